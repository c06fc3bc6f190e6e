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
    // A file in a directory, not the directory.
    let unnamed = |name, ino| names.path_of(DAEMON, Operation::of_name(name), ino, None);
    let text = |path: Option<Path>| path.map(|path| path.text);
    assert_eq!(text(unnamed("lookup", 11)), Some("usr/bin/…".to_owned()));
    assert_eq!(text(unnamed("create", 1)), Some("…".to_owned()));
    assert_eq!(text(unnamed("getattr", 11)), Some("usr/bin".to_owned()));
    assert_eq!(text(unnamed("lookup", 99)), None);
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
fn useless_names_are_ignored() {
    let mut names = Names::new(&[], &[]);
    names.learn(DAEMON, 10, "gone", 0);
    names.learn(DAEMON, 10, "..", 1);
    names.learn(DAEMON, 10, ".", 10);
    assert!(names.names.is_empty());
    // No file system has such a cycle; a recording may.
    names.learn(DAEMON, 11, "a", 12);
    names.learn(DAEMON, 12, "b", 11);
    let path = names.path(DAEMON, 11).unwrap();
    assert!(!path.whole && path.text.len() < 2 * DEEPEST);
}

/// Callbacks of a daemon without a request number or inode, as libfuse's high-level API has them.
struct Calls {
    names: Names,
    unique: u64,
}

const OPEN: u32 = 0;
const READ: u32 = 1;
const RELEASE: u32 = 2;
const RENAME: u32 = 3;
const REPLY: u32 = 4;
const OPENDIR: u32 = 5;

fn called(kind: u32, unique: u64, value: u64) -> Ev {
    Ev {
        time: 0,
        pid: 7,
        tid: 7,
        kind,
        cpu: 0,
        v: [unique, value, ABSENT, ABSENT],
    }
}

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
            row("opendir", Role::Entry),
        ];
        let names = Names::new(&catalogue, &[]);
        Calls { names, unique: 0 }
    }

    fn event(&mut self, kind: u32, value: u64) {
        let event = called(kind, self.unique, value);
        self.names.event(DAEMON, &event);
    }

    /// Make a callback. Return the path of its file.
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
                name: path.into(),
                attribute: None,
            },
        );
        self.event(kind, ABSENT);
        let name = self.names.details_of(DAEMON, self.unique).name.as_deref();
        name.map(str::to_owned)
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
    // Once more, closed twice like a dup'ed open file: the first close does not end it.
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

/// libfuse's handle of a directory is an address; no event shows that the directory is closed.
#[test]
fn a_closed_directorys_handle_may_be_reused() {
    let mut calls = Calls::new();
    for path in ["/d", "/e"] {
        calls.call(OPENDIR, path, 0);
        calls.event(REPLY, 7);
        assert_eq!(calls.read(7), some(path));
    }
    calls.open("/d/a", 7);
    assert_eq!(calls.read(7), some("/d/a"));
    // Two files may both be open.
    calls.open("/d/b", 7);
    assert_eq!(calls.read(7), None);
}

/// Make a callback with an inode and a name.
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
            name: name.into(),
            attribute: None,
        },
    );
    names.event(DAEMON, &called(kind, 2, ino));
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
    // Another file gets the old name, and then no name is known.
    names.learn(DAEMON, 1, "a", 13);
    assert_eq!(path(&names, 13), Some(("a".to_owned(), true)));
    // A file's earlier name is not its later one.
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

/// There are too many renames to keep each: no name learned before is sure, of any daemon.
#[test]
fn renames_are_bounded() {
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
fn a_forgotten_inode_may_be_reused_with_readdirplus() {
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
fn readdirplus_names_its_files() {
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
                name: name.into(),
            },
        );
    }
    assert_eq!(names.path(DAEMON, 11).unwrap().text, "usr/bin");
    assert_eq!(names.path(DAEMON, 10).unwrap().text, "usr");
}

#[test]
fn an_ambiguous_handle_names_no_file() {
    let mut calls = Calls::new();
    // The daemon does not use handles.
    calls.open("/a", 0);
    assert_eq!(calls.read(0), None);
    // One handle for two files, until both are closed.
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
    // Its release may have been lost.
    calls.names.side(DAEMON, &Side::Lost { time: 0 });
    assert_eq!(calls.read(7), None);
}

#[test]
fn a_renamed_file_loses_its_open_name() {
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
fn unanswered_requests_are_bounded() {
    let mut names = Names::new(&[], &[]);
    for unique in 0..3 * MOST_OPEN as u64 {
        names.details(DAEMON, unique);
    }
    assert!(names.open.len() <= MOST_OPEN);
}

#[test]
fn an_attribute_has_a_name_beside_the_path_of_its_file() {
    let mut names = with_rows(&["getxattr"]);
    let mut called = |name: &str, attribute: Option<&str>| {
        let name = Side::Name {
            time: 0,
            pid: 7,
            tid: 7,
            unique: 2,
            ino: ABSENT,
            handle: ABSENT,
            name: name.into(),
            attribute: attribute.map(Into::into),
        };
        names.side(DAEMON, &name);
        names.details_of(DAEMON, 2).clone()
    };
    let details = called("/a/b", Some("user.x"));
    assert_eq!(details.argument(), Some("user.x"));
    assert_eq!(details.name.as_deref(), Some("/a/b"));
    assert_eq!(called("/a/b", None).argument(), Some("/a/b"));
}
