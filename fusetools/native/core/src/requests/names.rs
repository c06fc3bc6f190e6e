//! Names of files. A lookup has its directory, a name and, in its reply, the inode to which the name leads; joined they
//! are paths. A daemon may get neither inode nor path of an open file. It then knows the file by the handle in its
//! reply to the open; so does this module.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::events::{Ev, Layer, Meaning, Role, Side, ABSENT};
use crate::operations::Operation;
use crate::requests::serves::Serves;

/// FUSE_ROOT_ID, include/uapi/linux/fuse.h.
const ROOT: u64 = 1;
/// Maximum number of directories above one another: PATH_MAX leaves room for 2048 names.
const DEEPEST: usize = 2048;
/// Maximum number of requests that a daemon processes at once; if there are more, the reply of some was never recorded.
const MOST_OPEN: usize = 1 << 16;

/// Arguments and reply of a callback; ABSENT if unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Inode of the file, or of `name`'s directory.
    pub ino: u64,
    /// Name of a file in a directory, or of an attribute.
    pub name: Option<Arc<str>>,
    /// Name of an attribute, where `name` is the file's path.
    attribute: Option<Arc<str>>,
    /// Handle of the open file.
    handle: u64,
    /// The callback opens a directory.
    opens_directory: bool,
    /// Requested bytes, and their offset.
    pub size: u64,
    pub offset: u64,
    /// Inode in a lookup's reply; 0: no such file.
    pub answer: u64,
}

/// Details of a request about which nothing is known.
pub const NOTHING: Details = Details {
    ino: ABSENT,
    name: None,
    attribute: None,
    handle: ABSENT,
    opens_directory: false,
    size: ABSENT,
    offset: ABSENT,
    answer: ABSENT,
};

impl Details {
    /// Return the name in the request: an attribute's, or a file's (its path, from libfuse's high-level API).
    pub fn argument(&self) -> Option<&str> {
        self.attribute.as_deref().or(self.name.as_deref())
    }
}

/// Path of a file, from the mount point on if the names lead up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Path without a slash at its begin; empty: the mount point.
    pub text: String,
    /// The path begins at the mount point.
    pub whole: bool,
}

impl Path {
    /// Return the directory of the file; the mount point's is itself. None: unknown.
    pub fn parent(mut self) -> Option<Path> {
        match self.text.rfind('/') {
            Some(at) => self.text.truncate(at),
            None if self.whole => self.text.clear(),
            None => return None,
        }
        Some(self)
    }

    /// Return the path from the root directory on; "…" stands for the unknown part.
    pub fn full(&self, mount: &str) -> String {
        let mount = mount.trim_end_matches('/');
        match (self.whole, &self.text[..]) {
            (true, "") if mount.is_empty() => "/".to_owned(),
            (true, "") => mount.to_owned(),
            (true, path) => format!("{mount}/{path}"),
            (false, path) => format!("{mount}/…/{path}"),
        }
    }
}

/// Process and, if it serves several, connection: each has requests, inodes and handles of its own.
pub type Daemon = (i32, u64);

/// Arguments of callbacks by daemon and request, and names by daemon and inode. Grows with the inodes that were looked
/// up.
#[derive(Clone, Debug)]
pub struct Names {
    serves: Serves,
    roles: Vec<Option<(Role, Operation)>>,
    open: FxHashMap<(Daemon, u64), Details>,
    names: FxHashMap<(Daemon, u64), Name>,
    /// Number of names learned and files opened so far, which is the moment of the next one.
    moment: u64,
    /// Moments when names last led elsewhere, by daemon, directory and name.
    moved: FxHashMap<(Daemon, u64), FxHashMap<Box<str>, u64>>,
    /// Number of names in `moved`.
    moves: usize,
    /// Moments when any name may have led elsewhere, by daemon.
    void: FxHashMap<Daemon, u64>,
    /// First moments when inodes may have got other names, by daemon.
    unsure: FxHashMap<Daemon, u64>,
    /// Questions now concern the time before all these moments.
    ended: bool,
    /// Inodes may come from elsewhere than lookups: after a forget, the number may be another file's.
    listed: bool,
    /// Open files by daemon and handle.
    files: FxHashMap<(Daemon, u64), OpenFile>,
}

#[derive(Clone, Debug)]
struct Name {
    directory: u64,
    /// Name, or the path from that directory on, with a slash before it.
    name: Arc<str>,
    /// Moment when it was learned.
    learned: u64,
}

impl Name {
    fn text(&self) -> &str {
        self.name.strip_prefix('/').unwrap_or(&self.name)
    }
}

/// File for which a daemon has replied with one handle.
#[derive(Clone, Debug)]
struct OpenFile {
    /// Path. None: unknown, or there are several.
    name: Option<Name>,
    /// Number of times that it was opened and not released yet.
    times: u32,
    /// It is a directory: its handle is libfuse's own, and none of the daemon's callbacks shows when it ends.
    directory: bool,
}

impl Names {
    /// Start without names. `catalogue`: as given to the reader; `daemons`: as in `Filters`.
    pub fn new(catalogue: &[Meaning], daemons: &[(i32, u64)]) -> Names {
        let role = |row: &Meaning| {
            let of_use = match row.layer {
                Layer::Daemon => matches!(row.role, Role::Entry | Role::Inode | Role::Handle),
                Layer::Request => of_kernel(row.role) || row.role == Role::Sized,
                _ => false,
            };
            of_use.then(|| (row.role, Operation::of_name(&row.operation)))
        };
        Names {
            serves: Serves::new(daemons),
            roles: catalogue.iter().map(role).collect(),
            open: FxHashMap::default(),
            names: FxHashMap::default(),
            moment: 0,
            moved: FxHashMap::default(),
            moves: 0,
            void: FxHashMap::default(),
            unsure: FxHashMap::default(),
            ended: false,
            listed: catalogue
                .iter()
                .any(|row| row.layer == Layer::Daemon && row.operation == "readdirplus"),
            files: FxHashMap::default(),
        }
    }

    fn details(&mut self, daemon: Daemon, unique: u64) -> &mut Details {
        if self.open.len() >= MOST_OPEN {
            self.open.clear();
        }
        self.open.entry((daemon, unique)).or_insert(NOTHING)
    }

    /// Return whether events of the process are about several connections.
    pub fn several(&self, pid: i32) -> bool {
        self.serves.several(pid)
    }

    /// Return the daemon that serves a connection.
    fn server(&self, connection: u64) -> Daemon {
        let pid = self.serves.server(connection);
        pid.map_or((-1, connection), |pid| self.daemon(pid, connection))
    }

    /// Return the daemon of an event of the kernel. None: the event is a daemon's.
    pub fn daemon_of_kernel_event(&self, ev: &Ev) -> Option<Daemon> {
        let (role, _) = (*self.roles.get(ev.kind as usize)?)?;
        of_kernel(role).then(|| self.server(ev.v[3]))
    }

    pub fn daemon(&self, pid: i32, connection: u64) -> Daemon {
        let connection = Some(connection).filter(|_| self.several(pid));
        (pid, connection.unwrap_or(ABSENT))
    }

    /// Return whether an event can concern names.
    #[inline]
    pub fn concerns(&self, ev: &Ev) -> bool {
        matches!(self.roles.get(ev.kind as usize), Some(Some(_)))
    }

    /// Process an event of `daemon`.
    pub fn event(&mut self, daemon: Daemon, ev: &Ev) {
        let [unique, ino, size, offset] = ev.v;
        match self.roles.get(ev.kind as usize) {
            Some(Some((Role::Entry | Role::Sized, operation))) if unique != ABSENT => {
                let operation = *operation;
                let details = self.details(daemon, unique);
                if ino != ABSENT {
                    details.ino = ino;
                }
                // One request may lead to several calls.
                if size != ABSENT || offset != ABSENT {
                    (details.size, details.offset) = (size, offset);
                }
                let (handle, of, name) = (details.handle, details.ino, details.name.clone());
                match operation {
                    Operation::OPENDIR => details.opens_directory = true,
                    Operation::RELEASE => self.released(daemon, handle),
                    Operation::RENAME | Operation::RENAME2 => {
                        self.renamed(daemon, of, name.as_deref());
                    }
                    Operation::FORGET if self.listed => {
                        self.unsure.entry(daemon).or_insert(self.moment);
                        self.names.remove(&(daemon, of));
                    }
                    Operation::BATCH_FORGET if self.listed => self.avoid(daemon),
                    _ => {}
                }
            }
            Some(Some((Role::Handle, _))) => {
                let details = self.details(daemon, unique);
                let (path, directory) = (details.name.clone(), details.opens_directory);
                self.opened(daemon, ino, path, directory);
            }
            Some(Some((Role::About, _))) => {
                let details = self.details(daemon, unique);
                if details.ino == ABSENT {
                    details.ino = ino;
                }
            }
            // From now on its number may be another file's, and a list of a directory may tell the kernel so.
            Some(Some((Role::Forgotten, _))) => {
                self.unsure.entry(daemon).or_insert(self.moment);
                self.names.remove(&(daemon, ino));
            }
            Some(Some((Role::Inode | Role::Answered, _))) => {
                let details = self.details(daemon, unique);
                details.answer = ino;
                if let (Some(name), directory) = (details.name.clone(), details.ino) {
                    self.learn(daemon, directory, name, ino);
                }
            }
            _ => {}
        }
    }

    pub fn side(&mut self, daemon: Daemon, record: &Side) {
        if let Side::Name {
            unique,
            ino,
            handle,
            name,
            attribute,
            ..
        } = record
        {
            // Empty if the kernel could not read it, or if libfuse gives the daemon no path.
            let name = Some(name.clone()).filter(|name| !name.is_empty());
            let name = name.or_else(|| self.open_file(daemon, *handle));
            let details = self.details(daemon, *unique);
            (details.ino, details.handle, details.name) = (*ino, *handle, name);
            details.attribute.clone_from(attribute);
        }
        if let Side::Asked {
            connection,
            unique,
            opcode,
            ino,
            name,
            ..
        } = record
        {
            let name = Some(name.clone()).filter(|name| !name.is_empty());
            let daemon = self.server(*connection);
            let details = self.details(daemon, *unique);
            (details.ino, details.name) = (*ino, name.clone());
            // A daemon may answer before the kernel's function that waits for it is entered.
            if let (Some(name), answer) = (name.clone(), details.answer) {
                self.learn(daemon, *ino, name, answer);
            }
            let operation = Operation::of_opcode(*opcode);
            if matches!(operation, Operation::RENAME | Operation::RENAME2) {
                self.renamed(daemon, *ino, name.as_deref());
            }
        }
        if let Side::Listed {
            unique, ino, name, ..
        } = record
        {
            let directory = self.details_of(daemon, *unique).ino;
            if directory != ABSENT {
                self.learn(daemon, directory, name.clone(), *ino);
            }
        }
        if let Side::Lost { .. } = record {
            // A lost event may be a close, and a handle be another file's since then.
            self.files.clear();
        }
    }

    /// Note the daemon's reply that `handle` is the open file `path` from now on, until it is released.
    fn opened(&mut self, daemon: Daemon, handle: u64, path: Option<Arc<str>>, directory: bool) {
        // 0: the daemon does not use handles.
        if matches!(handle, 0 | ABSENT) {
            return;
        }
        self.moment += 1;
        let same = self.open_file(daemon, handle) == path;
        let path = path.filter(|path| path.starts_with('/'));
        let name = path.map(|path| Name {
            directory: ROOT,
            name: path,
            learned: self.moment,
        });
        match self.files.get_mut(&(daemon, handle)) {
            // A directory's handle, an address of the heap, is given again once the directory is closed.
            Some(file) if !file.directory => {
                file.times = file.times.saturating_add(1);
                file.name = file.name.take().filter(|_| same);
            }
            _ => {
                let file = OpenFile {
                    name,
                    times: 1,
                    directory,
                };
                self.files.insert((daemon, handle), file);
            }
        }
    }

    /// Return the path of an open file.
    fn open_file(&self, daemon: Daemon, handle: u64) -> Option<Arc<str>> {
        let name = self.files.get(&(daemon, handle))?.name.as_ref()?;
        let stands = self.stands(daemon, name);
        stands.then(|| name.name.clone())
    }

    fn released(&mut self, daemon: Daemon, handle: u64) {
        if let Some(file) = self.files.get_mut(&(daemon, handle)) {
            file.times -= 1;
            if file.times == 0 {
                self.files.remove(&(daemon, handle));
            }
        }
    }

    /// Note that `name`, in `directory` or a path, leads elsewhere, or nowhere. None: an unknown one does.
    fn renamed(&mut self, daemon: Daemon, directory: u64, name: Option<&str>) {
        self.unsure.entry(daemon).or_insert(self.moment);
        let Some((directory, name)) = name.map(|name| from_root(directory, name)) else {
            return self.avoid(daemon);
        };
        if self.moves >= MOST_OPEN {
            let daemons: Vec<Daemon> = self.moved.drain().map(|((daemon, _), _)| daemon).collect();
            daemons.into_iter().for_each(|daemon| self.avoid(daemon));
            self.moves = 0;
        }
        if directory != ABSENT {
            let names = self.moved.entry((daemon, directory)).or_default();
            let earlier = names.insert(name.into(), self.moment);
            self.moves += usize::from(earlier.is_none());
        }
    }

    /// Note that any of the daemon's names may lead elsewhere now.
    fn avoid(&mut self, daemon: Daemon) {
        self.unsure.entry(daemon).or_insert(self.moment);
        self.void.insert(daemon, self.moment);
    }

    /// Return whether a name leads where it did when it was learned.
    fn stands(&self, daemon: Daemon, name: &Name) -> bool {
        let since = |moment: Option<&u64>| moment.is_some_and(|moment| name.learned <= *moment);
        if since(self.void.get(&daemon)) {
            return false;
        }
        let Some(moved) = self.moved.get(&(daemon, name.directory)) else {
            return true;
        };
        let text = name.text();
        let ends = text.match_indices('/').map(|(at, _)| at);
        let mut ends = ends.chain([text.len()]);
        !ends.any(|end| since(moved.get(&text[..end])))
    }

    /// Note that `name` in `directory` leads to `ino`.
    pub fn learn(&mut self, daemon: Daemon, directory: u64, name: impl Into<Arc<str>>, ino: u64) {
        let name = name.into();
        let (directory, text) = from_root(directory, &name);
        if matches!(ino, 0 | ROOT | ABSENT) || ino == directory || matches!(text, "" | "." | "..") {
            return;
        }
        self.moment += 1;
        let learned = self.moment;
        let name = Name {
            directory,
            name,
            learned,
        };
        self.names.insert((daemon, ino), name);
    }

    pub fn knows(&self, daemon: Daemon, ino: u64) -> bool {
        let name = self.names.get(&(daemon, ino));
        ino == ROOT || name.is_some_and(|name| self.stands(daemon, name))
    }

    /// Forget all names, or all files, if there are more than `most`.
    pub fn keep(&mut self, most: usize) {
        if self.names.len() > most {
            self.names = FxHashMap::default();
        }
        if self.files.len() > most {
            self.files = FxHashMap::default();
        }
        if self.names.is_empty() && self.files.is_empty() {
            (self.moved, self.moves) = (FxHashMap::default(), 0);
        }
    }

    /// Return what is known about a request so far.
    pub fn details_of(&self, daemon: Daemon, unique: u64) -> &Details {
        self.open.get(&(daemon, unique)).unwrap_or(&NOTHING)
    }

    /// Remove and return what is known about a request.
    pub fn take(&mut self, daemon: Daemon, unique: u64) -> Option<Details> {
        self.open.remove(&(daemon, unique))
    }

    /// Return the path of the file that a request is about, from the inode and the name in its arguments; "…" for a name
    /// that is unknown.
    pub fn path_of(
        &self,
        daemon: Daemon,
        operation: Operation,
        ino: u64,
        name: Option<&str>,
    ) -> Option<Path> {
        match name {
            // No name of a file has a slash: this is its path (libfuse's high-level API).
            Some(path) if path.starts_with('/') => Some(Path {
                text: path[1..].to_owned(),
                whole: true,
            }),
            _ if !operation.names_a_file() => self.path(daemon, ino),
            name => {
                let above = self.path(daemon, ino);
                if name.is_none() && above.is_none() {
                    return None;
                }
                let whole = above.as_ref().is_some_and(|path| path.whole);
                let mut text = above.map_or_else(String::new, |path| path.text);
                if !text.is_empty() {
                    text.push('/');
                }
                text.push_str(name.unwrap_or("…"));
                Some(Path { text, whole })
            }
        }
    }

    /// Note that from now on questions concern requests of any earlier time.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Return whether a name is valid now, and was at the time in question.
    fn is_sure(&self, daemon: Daemon, name: &Name) -> bool {
        let Some(unsure) = self.unsure.get(&daemon) else {
            return true;
        };
        self.stands(daemon, name) && !(self.ended && name.learned > *unsure)
    }

    /// Return the path of an inode; None if no name led to it.
    pub fn path(&self, daemon: Daemon, ino: u64) -> Option<Path> {
        let mut names: Vec<&str> = Vec::new();
        let mut at = ino;
        while at != ROOT && names.len() < DEEPEST {
            let name = self.names.get(&(daemon, at));
            let Some(name) = name.filter(|name| self.is_sure(daemon, name)) else {
                break;
            };
            names.push(name.text());
            at = name.directory;
        }
        names.reverse();
        let whole = at == ROOT;
        (whole || !names.is_empty()).then(|| Path {
            text: names.join("/"),
            whole,
        })
    }
}

/// Return whether events with this role are the kernel's, with a connection.
fn of_kernel(role: Role) -> bool {
    matches!(role, Role::About | Role::Answered | Role::Forgotten)
}

/// Return a name with its directory; a path with the mount point.
fn from_root(directory: u64, name: &str) -> (u64, &str) {
    match name.strip_prefix('/') {
        Some(path) => (ROOT, path),
        None => (directory, name),
    }
}

#[cfg(test)]
mod tests;
