//! Names of files: a lookup has its directory, a name and, in its answer, the inode that the name leads to;
//! joined they are paths.

use rustc_hash::FxHashMap;

use crate::events::{Ev, Meaning, Role, Side, ABSENT};
use crate::operations::Operation;

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

/// Callbacks' arguments by daemon and request, and names by daemon and inode. Grows with the inodes that were
/// looked up; a daemon's number is its process.
#[derive(Clone, Debug)]
pub struct Names {
    roles: Vec<Option<Role>>,
    open: FxHashMap<(i32, u64), Details>,
    names: FxHashMap<(i32, u64), (u64, Box<str>)>,
}

impl Names {
    /// `catalogue` as given to the reader.
    pub fn new(catalogue: &[Meaning]) -> Names {
        let role = |row: &Meaning| {
            let daemon = row.layer == crate::events::Layer::Daemon;
            matches!(row.role, Role::Entry | Role::Inode)
                .then_some(row.role)
                .filter(|_| daemon)
        };
        Names {
            roles: catalogue.iter().map(role).collect(),
            open: FxHashMap::default(),
            names: FxHashMap::default(),
        }
    }

    fn details(&mut self, daemon: i32, unique: u64) -> &mut Details {
        if self.open.len() >= MOST_OPEN {
            self.open.clear();
        }
        self.open.entry((daemon, unique)).or_insert(NOTHING)
    }

    pub fn event(&mut self, ev: &Ev) {
        let [unique, ino, size, offset] = ev.v;
        match self.roles.get(ev.kind as usize) {
            Some(Some(Role::Entry)) if unique != ABSENT && ino != ABSENT => {
                let details = self.details(ev.pid, unique);
                (details.ino, details.size, details.offset) = (ino, size, offset);
            }
            Some(Some(Role::Inode)) => {
                let details = self.details(ev.pid, unique);
                details.answer = ino;
                if let (Some(name), directory) = (details.name.clone(), details.ino) {
                    self.learn(ev.pid, directory, &name, ino);
                }
            }
            _ => {}
        }
    }

    pub fn side(&mut self, record: &Side) {
        if let Side::Name {
            pid,
            unique,
            ino,
            name,
            ..
        } = record
        {
            // Empty: the kernel could not read it.
            let details = self.details(*pid, *unique);
            details.ino = *ino;
            details.name = Some(name.clone()).filter(|name| !name.is_empty());
        }
    }

    /// In `directory` `name` leads to `ino`.
    pub fn learn(&mut self, daemon: i32, directory: u64, name: &str, ino: u64) {
        let (directory, name) = match name.strip_prefix('/') {
            Some(path) => (ROOT, path),
            None => (directory, name),
        };
        if matches!(ino, 0 | ROOT | ABSENT) || ino == directory || matches!(name, "" | "." | "..") {
            return;
        }
        self.names.insert((daemon, ino), (directory, name.into()));
    }

    pub fn knows(&self, daemon: i32, ino: u64) -> bool {
        ino == ROOT || self.names.contains_key(&(daemon, ino))
    }

    /// Keeps no more names than that: then all are forgotten.
    pub fn keep(&mut self, most: usize) {
        if self.names.len() > most {
            self.names = FxHashMap::default();
        }
    }

    /// What is known about a request so far.
    pub fn details_of(&self, daemon: i32, unique: u64) -> &Details {
        self.open.get(&(daemon, unique)).unwrap_or(&NOTHING)
    }

    /// What is known about a request; removes it.
    pub fn take(&mut self, daemon: i32, unique: u64) -> Option<Details> {
        self.open.remove(&(daemon, unique))
    }

    /// The path of the file that a request is about, which was given an inode and a name.
    pub fn path_of(
        &self,
        daemon: i32,
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

    /// The path of an inode; None where no name led to it.
    pub fn path(&self, daemon: i32, ino: u64) -> Option<Path> {
        let mut names: Vec<&str> = Vec::new();
        let mut at = ino;
        while at != ROOT && names.len() < DEEPEST {
            let Some((directory, name)) = self.names.get(&(daemon, at)) else {
                break;
            };
            names.push(name);
            at = *directory;
        }
        names.reverse();
        let whole = at == ROOT;
        (whole || !names.is_empty()).then(|| Path {
            text: names.join("/"),
            whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: i32 = 7;

    #[test]
    fn paths() {
        let mut names = Names::new(&[]);
        names.learn(DAEMON, 1, "usr", 10);
        names.learn(DAEMON, 10, "bin", 11);
        names.learn(DAEMON, 99, "deep", 12);
        names.learn(DAEMON, 12, "er", 13);
        let path = |ino| names.path(DAEMON, ino).map(|path| (path.text, path.whole));
        assert_eq!(path(1), Some((String::new(), true)));
        assert_eq!(path(11), Some(("usr/bin".to_owned(), true)));
        assert_eq!(path(13), Some(("deep/er".to_owned(), false)));
        assert_eq!(path(99), None);
        assert_eq!(names.path(DAEMON + 1, 11), None);
        let of = |name| names.path_of(DAEMON, Operation::of_name(name), 11, Some("sh"));
        assert_eq!(of("lookup").unwrap().text, "usr/bin/sh");
        assert_eq!(of("getxattr").unwrap().text, "usr/bin");
    }

    #[test]
    fn what_leads_nowhere() {
        let mut names = Names::new(&[]);
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

    #[test]
    fn what_is_never_answered_is_bounded() {
        let mut names = Names::new(&[]);
        for unique in 0..3 * MOST_OPEN as u64 {
            names.details(DAEMON, unique);
        }
        assert!(names.open.len() <= MOST_OPEN);
    }
}
