//! Names of files: a lookup has its directory, a name and, in its answer, the inode that the name leads to;
//! joined they are paths. A daemon that is given neither inode nor path of an open file knows the file by the handle in
//! its answer to the open; so does this.

use rustc_hash::FxHashMap;

use crate::events::{Ev, Layer, Meaning, Role, Side, ABSENT};
use crate::operations::Operation;
use crate::serves::Serves;

/// FUSE_ROOT_ID, include/uapi/linux/fuse.h.
const ROOT: u64 = 1;
/// Directories above one another: PATH_MAX leaves room for 2048 names.
const DEEPEST: usize = 2048;
/// Requests that a daemon processes at once; more include some whose answer was never recorded.
const MOST_OPEN: usize = 1 << 16;

/// A callback's arguments and answer; ABSENT if unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The file's, or that of `name`'s directory.
    pub ino: u64,
    /// Of a file in a directory, or of an attribute.
    pub name: Option<String>,
    /// Of the open file.
    handle: u64,
    /// Requested bytes, and their offset.
    pub size: u64,
    pub offset: u64,
    /// The inode in a lookup's answer; 0: there is no such file.
    pub answer: u64,
}

/// Nothing is known about it.
pub const NOTHING: Details = Details {
    ino: ABSENT,
    name: None,
    handle: ABSENT,
    size: ABSENT,
    offset: ABSENT,
    answer: ABSENT,
};

/// A file's path, from the mount point on where the names lead up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Without a slash at its begin; empty: the mount point.
    pub text: String,
    /// It begins at the mount point.
    pub whole: bool,
}

/// A process, and, where it serves several, the connection: each has requests, inodes and handles of its own.
pub type Daemon = (i32, u64);

/// Callbacks' arguments by daemon and request, and names by daemon and inode. Grows with the inodes that were
/// looked up.
#[derive(Clone, Debug)]
pub struct Names {
    serves: Serves,
    roles: Vec<Option<(Role, Operation)>>,
    open: FxHashMap<(Daemon, u64), Details>,
    names: FxHashMap<(Daemon, u64), Name>,
    /// How many names were learned and files opened: the moment of the next one.
    moment: u64,
    /// By daemon, directory and name: when that last led elsewhere.
    moved: FxHashMap<(Daemon, u64), FxHashMap<Box<str>, u64>>,
    /// How many they are.
    moves: usize,
    /// By daemon: when any name may have led elsewhere.
    void: FxHashMap<Daemon, u64>,
    /// By daemon: the first time that its inodes may have got other names.
    unsure: FxHashMap<Daemon, u64>,
    /// Questions now concern the time before all that.
    past: bool,
    /// Inodes may come from elsewhere than lookups: after a forget, the number may be another file's.
    listed: bool,
    /// By daemon and handle.
    files: FxHashMap<(Daemon, u64), OpenFile>,
}

#[derive(Clone, Debug)]
struct Name {
    directory: u64,
    /// Or the path from that directory on.
    name: Box<str>,
    /// The moment.
    learned: u64,
}

/// What a daemon has answered with one handle.
#[derive(Clone, Debug)]
struct OpenFile {
    /// Its path. None: unknown, or there are several.
    name: Option<Name>,
    /// Not released yet.
    times: u32,
}

impl Names {
    /// `catalogue` as given to the reader; `daemons`: as in `Filters`.
    pub fn new(catalogue: &[Meaning], daemons: &[(i32, u64)]) -> Names {
        let role = |row: &Meaning| {
            let daemon = row.layer == Layer::Daemon;
            let of_use = matches!(row.role, Role::Entry | Role::Inode | Role::Handle);
            (daemon && of_use).then(|| (row.role, Operation::of_name(&row.operation)))
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
            past: false,
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

    /// Of a process whose events are about several connections.
    pub fn several(&self, pid: i32) -> bool {
        self.serves.several(pid)
    }

    pub fn daemon(&self, pid: i32, connection: u64) -> Daemon {
        let connection = Some(connection).filter(|_| self.several(pid));
        (pid, connection.unwrap_or(ABSENT))
    }

    /// Whether an event can tell of names.
    #[inline]
    pub fn heeds(&self, ev: &Ev) -> bool {
        matches!(self.roles.get(ev.kind as usize), Some(Some(_)))
    }

    /// Of `daemon`'s.
    pub fn event(&mut self, daemon: Daemon, ev: &Ev) {
        let [unique, ino, size, offset] = ev.v;
        match self.roles.get(ev.kind as usize) {
            Some(Some((Role::Entry, operation))) if unique != ABSENT => {
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
                let path = self.details(daemon, unique).name.clone();
                self.opened(daemon, ino, path.as_deref());
            }
            Some(Some((Role::Inode, _))) => {
                let details = self.details(daemon, unique);
                details.answer = ino;
                if let (Some(name), directory) = (details.name.clone(), details.ino) {
                    self.learn(daemon, directory, &name, ino);
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
            ..
        } = record
        {
            // Empty: the kernel could not read it, or libfuse gives the daemon no path.
            let name = Some(name.as_str()).filter(|name| !name.is_empty());
            let name = name.map(str::to_owned);
            let name = name.or_else(|| self.open_file(daemon, *handle));
            let details = self.details(daemon, *unique);
            (details.ino, details.handle, details.name) = (*ino, *handle, name);
        }
        if let Side::Listed {
            unique, ino, name, ..
        } = record
        {
            let directory = self.details_of(daemon, *unique).ino;
            if directory != ABSENT {
                self.learn(daemon, directory, name, *ino);
            }
        }
        if let Side::Lost { .. } = record {
            // A close may be among what is lost, and a handle another file's since.
            self.files.clear();
        }
    }

    /// The daemon answers that `handle` is the open file `path` from now on, until it is released.
    fn opened(&mut self, daemon: Daemon, handle: u64, path: Option<&str>) {
        // 0: the daemon does not use handles.
        if matches!(handle, 0 | ABSENT) {
            return;
        }
        self.moment += 1;
        let name = path
            .and_then(|path| path.strip_prefix('/'))
            .map(|path| Name {
                directory: ROOT,
                name: path.into(),
                learned: self.moment,
            });
        let same = self.open_file(daemon, handle).as_deref() == path;
        match self.files.get_mut(&(daemon, handle)) {
            Some(file) => {
                file.times = file.times.saturating_add(1);
                file.name = file.name.take().filter(|_| same);
            }
            None => {
                self.files
                    .insert((daemon, handle), OpenFile { name, times: 1 });
            }
        }
    }

    /// The path of an open file.
    fn open_file(&self, daemon: Daemon, handle: u64) -> Option<String> {
        let name = self.files.get(&(daemon, handle))?.name.as_ref()?;
        let stands = self.stands(daemon, name);
        stands.then(|| format!("/{}", name.name))
    }

    fn released(&mut self, daemon: Daemon, handle: u64) {
        if let Some(file) = self.files.get_mut(&(daemon, handle)) {
            file.times -= 1;
            if file.times == 0 {
                self.files.remove(&(daemon, handle));
            }
        }
    }

    /// `name`, in `directory` or a path, leads elsewhere, or nowhere; None: one that is unknown does.
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

    /// Any of the daemon's names may lead elsewhere now.
    fn avoid(&mut self, daemon: Daemon) {
        self.unsure.entry(daemon).or_insert(self.moment);
        self.void.insert(daemon, self.moment);
    }

    /// Whether a name leads where it did when it was learned.
    fn stands(&self, daemon: Daemon, name: &Name) -> bool {
        let since = |moment: Option<&u64>| moment.is_some_and(|moment| name.learned <= *moment);
        if since(self.void.get(&daemon)) {
            return false;
        }
        let Some(moved) = self.moved.get(&(daemon, name.directory)) else {
            return true;
        };
        let ends = name.name.match_indices('/').map(|(at, _)| at);
        let mut ends = ends.chain([name.name.len()]);
        !ends.any(|end| since(moved.get(&name.name[..end])))
    }

    /// In `directory` `name` leads to `ino`.
    pub fn learn(&mut self, daemon: Daemon, directory: u64, name: &str, ino: u64) {
        let (directory, name) = from_root(directory, name);
        if matches!(ino, 0 | ROOT | ABSENT) || ino == directory || matches!(name, "" | "." | "..") {
            return;
        }
        self.moment += 1;
        let (name, learned) = (name.into(), self.moment);
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

    /// Keeps no more names than that: then all are forgotten.
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

    /// What is known about a request so far.
    pub fn details_of(&self, daemon: Daemon, unique: u64) -> &Details {
        self.open.get(&(daemon, unique)).unwrap_or(&NOTHING)
    }

    /// What is known about a request; removes it.
    pub fn take(&mut self, daemon: Daemon, unique: u64) -> Option<Details> {
        self.open.remove(&(daemon, unique))
    }

    /// The path of the file that a request is about, which was given an inode and a name.
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
            Some(name) if operation.names_a_file() => {
                let above = self.path(daemon, ino);
                let whole = above.as_ref().is_some_and(|path| path.whole);
                let mut text = above.map_or_else(String::new, |path| path.text);
                if !text.is_empty() {
                    text.push('/');
                }
                text.push_str(name);
                Some(Path { text, whole })
            }
            _ => self.path(daemon, ino),
        }
    }

    /// From now on, questions concern requests of any earlier time.
    pub fn end(&mut self) {
        self.past = true;
    }

    /// It stands, and stood at the time that is asked about.
    fn is_sure(&self, daemon: Daemon, name: &Name) -> bool {
        let Some(unsure) = self.unsure.get(&daemon) else {
            return true;
        };
        self.stands(daemon, name) && !(self.past && name.learned > *unsure)
    }

    /// The path of an inode; None where no name led to it.
    pub fn path(&self, daemon: Daemon, ino: u64) -> Option<Path> {
        let mut names: Vec<&str> = Vec::new();
        let mut at = ino;
        while at != ROOT && names.len() < DEEPEST {
            let name = self.names.get(&(daemon, at));
            let Some(name) = name.filter(|name| self.is_sure(daemon, name)) else {
                break;
            };
            names.push(&name.name);
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

/// A name in its directory; a path, from the mount point on.
fn from_root(directory: u64, name: &str) -> (u64, &str) {
    match name.strip_prefix('/') {
        Some(path) => (ROOT, path),
        None => (directory, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: Daemon = (7, ABSENT);

    #[test]
    fn paths() {
        let mut names = Names::new(&[], &[]);
        names.learn(DAEMON, 1, "usr", 10);
        names.learn(DAEMON, 10, "bin", 11);
        names.learn(DAEMON, 99, "deep", 12);
        names.learn(DAEMON, 12, "er", 13);
        let path = |ino| names.path(DAEMON, ino).map(|path| (path.text, path.whole));
        assert_eq!(path(1), Some((String::new(), true)));
        assert_eq!(path(11), Some(("usr/bin".to_owned(), true)));
        assert_eq!(path(13), Some(("deep/er".to_owned(), false)));
        assert_eq!(path(99), None);
        assert_eq!(names.path((8, ABSENT), 11), None);
        let of = |name| names.path_of(DAEMON, Operation::of_name(name), 11, Some("sh"));
        assert_eq!(of("lookup").unwrap().text, "usr/bin/sh");
        assert_eq!(of("getxattr").unwrap().text, "usr/bin");
    }

    #[test]
    fn connections_of_one_process_have_names_of_their_own() {
        let mut names = Names::new(&[], &[(7, 45), (7, 46), (8, 47)]);
        let (first, second) = (names.daemon(7, 45), names.daemon(7, 46));
        names.learn(first, 1, "a", 10);
        names.learn(second, 1, "b", 10);
        let path = |daemon| names.path(daemon, 10).map(|path| path.text);
        assert_eq!(path(first), some("a"));
        assert_eq!(path(second), some("b"));
        assert_eq!(path(names.daemon(7, ABSENT)), None);
        assert_eq!(names.daemon(8, 47), names.daemon(8, ABSENT));
    }

    #[test]
    fn what_leads_nowhere() {
        let mut names = Names::new(&[], &[]);
        names.learn(DAEMON, 10, "gone", 0);
        names.learn(DAEMON, 10, "..", 1);
        names.learn(DAEMON, 10, ".", 10);
        assert!(names.names.is_empty());
        // No file system has this; a file may.
        names.learn(DAEMON, 11, "a", 12);
        names.learn(DAEMON, 12, "b", 11);
        let path = names.path(DAEMON, 11).unwrap();
        assert!(!path.whole && path.text.len() < 2 * DEEPEST);
    }

    /// A daemon's callbacks without a request number or inode, as libfuse's high-level API has them.
    struct Calls {
        names: Names,
        unique: u64,
    }

    const OPEN: u32 = 0;
    const READ: u32 = 1;
    const RELEASE: u32 = 2;
    const RENAME: u32 = 3;
    const REPLY: u32 = 4;

    impl Calls {
        fn new() -> Calls {
            let row = |operation: &str, role| Meaning {
                event: format!("d:{operation}"),
                layer: Layer::Daemon,
                function: String::new(),
                operation: operation.to_owned(),
                role,
            };
            let catalogue = [
                row("open", Role::Entry),
                row("read", Role::Entry),
                row("release", Role::Entry),
                row("rename", Role::Entry),
                row("", Role::Handle),
            ];
            let names = Names::new(&catalogue, &[]);
            Calls { names, unique: 0 }
        }

        fn event(&mut self, kind: u32, value: u64) {
            let v = [self.unique, value, ABSENT, ABSENT];
            let (time, pid, tid, cpu) = (0, 7, 7, 0);
            self.names.event(
                DAEMON,
                &Ev {
                    time,
                    pid,
                    tid,
                    kind,
                    cpu,
                    v,
                },
            );
        }

        /// The path of the callback's file.
        fn call(&mut self, kind: u32, path: &str, handle: u64) -> Option<String> {
            self.unique += 2;
            self.names.side(
                DAEMON,
                &Side::Name {
                    time: 0,
                    pid: 7,
                    tid: 7,
                    unique: self.unique,
                    ino: ABSENT,
                    handle,
                    name: path.to_owned(),
                },
            );
            self.event(kind, ABSENT);
            self.names.details_of(DAEMON, self.unique).name.clone()
        }

        fn open(&mut self, path: &str, handle: u64) {
            self.call(OPEN, path, 0);
            self.event(REPLY, handle);
        }

        fn read(&mut self, handle: u64) -> Option<String> {
            self.call(READ, "", handle)
        }
    }

    fn some(path: &str) -> Option<String> {
        Some(path.to_owned())
    }

    #[test]
    fn an_open_file_is_known_by_its_handle() {
        let mut calls = Calls::new();
        calls.open("/a", 7);
        calls.open("/b/c", 9);
        assert_eq!(calls.read(7), some("/a"));
        assert_eq!(calls.read(9), some("/b/c"));
        assert_eq!(calls.read(8), None);
        assert_eq!(calls.call(READ, "/d", 7), some("/d"));
        // Once more, as a dup'ed open file's two closes: the first does not end it.
        calls.open("/a", 7);
        assert_eq!(calls.call(RELEASE, "", 7), some("/a"));
        assert_eq!(calls.read(7), some("/a"));
        assert_eq!(calls.call(RELEASE, "", 7), some("/a"));
        assert_eq!(calls.read(7), None);
        calls.open("/e", 7);
        assert_eq!(calls.read(7), some("/e"));
        assert_eq!(
            calls
                .names
                .path_of(DAEMON, Operation::of_name("read"), ABSENT, Some("/e"))
                .unwrap()
                .text,
            "e"
        );
    }

    /// (ino, name) of a callback that has an inode.
    fn of_inode(names: &mut Names, kind: u32, ino: u64, name: &str) {
        names.side(
            DAEMON,
            &Side::Name {
                time: 0,
                pid: 7,
                tid: 7,
                unique: 2,
                ino,
                handle: ABSENT,
                name: name.to_owned(),
            },
        );
        let v = [2, ino, ABSENT, ABSENT];
        let (time, pid, tid, cpu) = (0, 7, 7, 0);
        names.event(
            DAEMON,
            &Ev {
                time,
                pid,
                tid,
                kind,
                cpu,
                v,
            },
        );
    }

    fn with_rows(rows: &[&str]) -> Names {
        let row = |operation: &&str| Meaning {
            event: format!("d:{operation}"),
            layer: Layer::Daemon,
            function: String::new(),
            operation: (*operation).to_owned(),
            role: Role::Entry,
        };
        Names::new(&rows.iter().map(row).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn a_renamed_inode_has_no_name_until_it_is_looked_up_again() {
        let mut names = with_rows(&["rename"]);
        names.learn(DAEMON, 1, "a", 10);
        names.learn(DAEMON, 10, "b", 11);
        names.learn(DAEMON, 1, "c", 12);
        of_inode(&mut names, 0, 1, "a");
        let path = |names: &Names, ino| names.path(DAEMON, ino).map(|p| (p.text, p.whole));
        assert_eq!(path(&names, 10), None);
        assert_eq!(path(&names, 11), Some(("b".to_owned(), false)));
        assert_eq!(path(&names, 12), Some(("c".to_owned(), true)));
        names.learn(DAEMON, 1, "z", 10);
        assert_eq!(path(&names, 11), Some(("z/b".to_owned(), true)));
        // Another file by the old name, and then no name that is known.
        names.learn(DAEMON, 1, "a", 13);
        assert_eq!(path(&names, 13), Some(("a".to_owned(), true)));
        // What a file was called before is not what it was called later.
        names.end();
        assert_eq!(path(&names, 13), None);
        assert_eq!(path(&names, 12), Some(("c".to_owned(), true)));
        of_inode(&mut names, 0, 1, "");
        assert_eq!(path(&names, 12), None);
    }

    #[test]
    fn a_renamed_directory_takes_paths_along() {
        let mut names = with_rows(&["rename"]);
        for (path, ino) in [("/a", 10), ("/a/b", 11), ("/ab", 12)] {
            names.learn(DAEMON, ABSENT, path, ino);
        }
        of_inode(&mut names, 0, ABSENT, "/a");
        let path = |ino| names.path(DAEMON, ino).map(|path| path.text);
        assert_eq!([10, 11, 12].map(path), [None, None, some("ab")]);
    }

    /// So many that which they were is not kept: no name learned before is sure, of any daemon.
    #[test]
    fn renames_without_end() {
        const OTHER: Daemon = (8, ABSENT);
        let mut names = with_rows(&["rename"]);
        names.learn(DAEMON, 1, "a", 10);
        names.learn(OTHER, 1, "b", 11);
        names.learn(OTHER, 1, "c", 12);
        names.renamed(OTHER, 1, Some("b"));
        for number in 0..MOST_OPEN {
            names.renamed(DAEMON, 1, Some(&format!("x{number}")));
        }
        assert!(names.moves < MOST_OPEN);
        assert_eq!(names.path(DAEMON, 10), None);
        assert_eq!(names.path(OTHER, 11), None);
        names.learn(OTHER, 1, "c", 12);
        assert_eq!(names.path(OTHER, 12).unwrap().text, "c");
    }

    #[test]
    fn a_forgotten_inode_may_be_another_file_where_lists_give_inodes() {
        for listed in [true, false] {
            let rows: &[&str] = match listed {
                true => &["forget", "batch_forget", "readdirplus"],
                false => &["forget", "batch_forget"],
            };
            let mut names = with_rows(rows);
            for ino in 10..13 {
                names.learn(DAEMON, 1, "a", ino);
            }
            of_inode(&mut names, 0, 10, "");
            assert_eq!(names.knows(DAEMON, 10), !listed);
            assert!(names.knows(DAEMON, 11));
            of_inode(&mut names, 1, 0, "");
            assert_eq!(names.knows(DAEMON, 11), !listed);
        }
    }

    #[test]
    fn a_list_names_its_files() {
        let mut names = with_rows(&["readdirplus"]);
        names.learn(DAEMON, 1, "usr", 10);
        of_inode(&mut names, 0, 10, "");
        for (ino, name) in [(11, "bin"), (10, "."), (1, ".."), (0, "gone")] {
            names.side(
                DAEMON,
                &Side::Listed {
                    time: 0,
                    pid: 7,
                    tid: 7,
                    unique: 2,
                    ino,
                    name: name.to_owned(),
                },
            );
        }
        assert_eq!(names.path(DAEMON, 11).unwrap().text, "usr/bin");
        assert_eq!(names.path(DAEMON, 10).unwrap().text, "usr");
    }

    #[test]
    fn a_handle_that_may_be_anothers_is_no_name() {
        let mut calls = Calls::new();
        // The daemon does not use them.
        calls.open("/a", 0);
        assert_eq!(calls.read(0), None);
        // One for two files, until both are closed.
        calls.open("/a", 7);
        calls.open("/b", 7);
        assert_eq!(calls.read(7), None);
        calls.call(RELEASE, "", 7);
        calls.open("/c", 7);
        assert_eq!(calls.read(7), None);
        calls.call(RELEASE, "", 7);
        calls.call(RELEASE, "", 7);
        calls.open("/c", 7);
        assert_eq!(calls.read(7), some("/c"));
        // Its release may be what was lost.
        calls.names.side(DAEMON, &Side::Lost { time: 0 });
        assert_eq!(calls.read(7), None);
    }

    #[test]
    fn a_renamed_file_has_not_the_name_it_was_opened_by() {
        let mut calls = Calls::new();
        for (handle, path) in [(1, "/a"), (2, "/a/b"), (3, "/ab"), (4, "/c/a")] {
            calls.open(path, handle);
        }
        calls.call(RENAME, "/a", 0);
        let read: Vec<_> = (1..5).map(|handle| calls.read(handle)).collect();
        assert_eq!(read, [None, None, some("/ab"), some("/c/a")]);
        calls.call(RENAME, "", 0);
        assert_eq!(calls.read(3), None);
    }

    #[test]
    fn what_is_never_answered_is_bounded() {
        let mut names = Names::new(&[], &[]);
        for unique in 0..3 * MOST_OPEN as u64 {
            names.details(DAEMON, unique);
        }
        assert!(names.open.len() <= MOST_OPEN);
    }
}
