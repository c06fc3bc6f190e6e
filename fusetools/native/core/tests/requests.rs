//! Single requests from events made by hand: names, the slowest, the queue, and their output.

use std::path::Path;

use fusetools_core::answers::cache::Caches;
use fusetools_core::answers::export::{Form, Rows};
use fusetools_core::answers::outcomes::{Gone, Outcomes};
use fusetools_core::answers::perfetto::{Session, Trace};
use fusetools_core::answers::queue::{Part, Queues};
use fusetools_core::answers::slowest::{NamedRequest, Numbered, Slowest};
use fusetools_core::answers::why::Why;
use fusetools_core::cost::Cost;
use fusetools_core::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};
use fusetools_core::operations::{Arch, Operation, Operations};
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::named::{Known, Listener, Observer};
use fusetools_core::requests::stitch::{RequestCounts, Stitch};
use fusetools_core::requests::wanted::Wanted;
use fusetools_core::Reader;
use proptest::prelude::*;

/// Bits of prev_state, as in current kernels: S, D, T, t, X, Z, P, I.
const ASLEEP: u64 = 0xff;

const DAEMON: i32 = 500;
const MOUNT: u64 = 45;

#[rustfmt::skip]
const ROWS: [(&str, Layer, &str, &str, Role); 16] = [
    ("fuse:fuse_request_send", Layer::Request, "", "", Role::Begin),
    ("fuse:fuse_request_end", Layer::Request, "", "", Role::End),
    ("raw_syscalls:sys_enter", Layer::Syscall, "", "", Role::SysEnter),
    ("raw_syscalls:sys_exit", Layer::Syscall, "", "", Role::SysExit),
    ("sched:sched_switch", Layer::Syscall, "", "", Role::Switch),
    ("sched:sched_waking", Layer::Syscall, "", "", Role::Waking),
    ("fuse_daemon:cvmfs_lookup", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Entry),
    ("fuse_daemon:cvmfs_lookup__return", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Return),
    ("fuse_daemon:cvmfs_getattr", Layer::Daemon, "cvmfs_getattr", "getattr", Role::Entry),
    ("fuse_daemon:cvmfs_getattr__return", Layer::Daemon, "cvmfs_getattr", "getattr", Role::Return),
    ("fuse_daemon:fuse_reply_entry", Layer::Daemon, "fuse_reply_entry", "", Role::Inode),
    ("fuse:fuse_request_send", Layer::Request, "", "", Role::Length),
    ("fuse_kernel:about", Layer::Request, "", "", Role::About),
    ("fuse_kernel:answered", Layer::Request, "", "", Role::Answered),
    ("fuse_kernel:forgotten", Layer::Request, "", "", Role::Forgotten),
    ("fuse_kernel:sized", Layer::Request, "", "", Role::Sized),
];
const BEGIN: u32 = 0;
const END: u32 = 1;
const ENTER: u32 = 2;
const EXIT: u32 = 3;
const SWITCH: u32 = 4;
const LOOKUP: u32 = 6;
const LOOKUP_RETURN: u32 = 7;
const GETATTR: u32 = 8;
const GETATTR_RETURN: u32 = 9;
const INODE: u32 = 10;
const LENGTH: u32 = 11;
const ABOUT: u32 = 12;
const ANSWERED: u32 = 13;
const FORGOTTEN: u32 = 14;
const SIZED: u32 = 15;
const OP_LOOKUP: u64 = 1;
const OP_GETATTR: u64 = 3;

fn tell(batch: &Batch, inodes: bool, listener: &mut dyn Listener) -> RequestCounts {
    let filters = Filters {
        daemons: vec![(DAEMON, MOUNT)],
        ..Filters::default()
    };
    observe(batch, &catalogue(inodes), filters, listener)
}

fn catalogue(inodes: bool) -> Vec<Meaning> {
    ROWS.iter()
        .filter(|row| inodes || !matches!(row.4, Role::Inode | Role::Answered))
        .map(|(event, layer, function, operation, role)| Meaning {
            event: event.to_string(),
            layer: *layer,
            function: function.to_string(),
            operation: operation.to_string(),
            role: *role,
        })
        .collect()
}

fn observe(
    batch: &Batch,
    catalogue: &[Meaning],
    filters: Filters,
    listener: &mut dyn Listener,
) -> RequestCounts {
    let stitch = Stitch::new(catalogue, filters, Some("x86_64"), 0, 3);
    let mut observer = Observer::new(stitch, catalogue, listener);
    observer.push(batch);
    observer.finish()
}

fn ev(time: u64, tid: i32, kind: u32, v: &[u64]) -> Ev {
    let mut values = [ABSENT; 4];
    values[..v.len()].copy_from_slice(v);
    Ev {
        time,
        pid: if tid / 100 == 5 { DAEMON } else { tid },
        tid,
        kind,
        cpu: 0,
        v: values,
    }
}

/// Requests one after the other, each of 100 ns.
#[derive(Default)]
struct Script {
    batch: Batch,
    time: u64,
    unique: u64,
}

impl Script {
    fn call(&mut self, tid: i32, kind: u32, v: &[u64]) {
        self.time += 10;
        self.batch.events.push(ev(self.time, tid, kind, v));
    }

    /// Look up a name in the directory `inode`, answered with `answer`. The daemon's thread is 501.
    fn lookup(&mut self, tid: i32, inode: u64, name: &str, answer: u64, error: i64) {
        self.unique += 2;
        let unique = self.unique;
        self.call(tid, BEGIN, &[unique, MOUNT, OP_LOOKUP]);
        self.call(501, EXIT, &[0, 40]);
        self.call(501, LOOKUP, &[unique, inode]);
        self.batch.side.push(Side::Name {
            time: self.time,
            pid: DAEMON,
            tid: 501,
            unique,
            ino: inode,
            handle: ABSENT,
            name: name.into(),
            attribute: None,
        });
        self.call(501, INODE, &[unique, answer]);
        self.call(501, ENTER, &[20]);
        self.call(501, END, &[unique, MOUNT, error as u64]);
        self.call(501, EXIT, &[20, 144]);
        self.call(501, LOOKUP_RETURN, &[unique]);
    }

    fn getattr(&mut self, tid: i32, inode: u64) {
        self.unique += 2;
        let unique = self.unique;
        self.call(tid, BEGIN, &[unique, MOUNT, OP_GETATTR]);
        self.call(501, EXIT, &[0, 40]);
        self.call(501, GETATTR, &[unique, inode]);
        self.call(501, END, &[unique, MOUNT, 0]);
        self.call(501, GETATTR_RETURN, &[unique]);
    }
}

/// Path of each request by number, and whether it is whole.
#[derive(Default)]
struct Paths(Vec<(u64, String, bool)>);

impl Listener for Paths {
    fn story(&mut self, known: &Known<'_>) {
        let path = known.path();
        let whole = path.as_ref().is_some_and(|path| path.whole);
        let text = path.map_or("?".to_owned(), |path| path.text);
        self.0.push((known.story.unique, text, whole));
    }
}

fn paths(script: &Script, inodes: bool) -> Vec<String> {
    let mut paths = Paths::default();
    tell(&script.batch, inodes, &mut paths);
    paths.0.sort();
    let text = |(_, text, whole): (u64, String, bool)| {
        let before = if whole { "/" } else { "" };
        format!("{before}{text}")
    };
    paths.0.into_iter().map(text).collect()
}

#[test]
fn names_become_paths() {
    let mut script = Script::default();
    script.lookup(900, 1, "usr", 10, 0);
    script.lookup(900, 10, "bin", 11, 0);
    script.getattr(901, 11);
    script.lookup(900, 99, "lost", 12, 0);
    script.getattr(900, 12);
    script.getattr(900, 77);
    script.getattr(900, 1);
    let expected = ["/usr", "/usr/bin", "/usr/bin", "lost", "lost", "?", "/"];
    assert_eq!(paths(&script, true), expected);
}

#[test]
fn the_next_request_in_the_call_shows_the_inode() {
    let mut script = Script::default();
    script.call(900, ENTER, &[262]);
    script.lookup(900, 1, "usr", 10, 0);
    script.lookup(900, 10, "bin", 11, 0);
    script.getattr(900, 11);
    script.call(900, EXIT, &[262, 0]);
    script.call(900, ENTER, &[262]);
    // Another call: its file has nothing to do with the lookup before.
    script.getattr(900, 12);
    script.call(900, EXIT, &[262, 0]);
    assert_eq!(paths(&script, false), ["/usr", "/usr/bin", "/usr/bin", "?"]);
}

/// A daemon without any callbacks.
#[test]
fn the_kernels_probes_give_names() {
    const OTHER: u64 = 46;
    const RENAME: u64 = 12;
    let mut script = Script::default();
    let mut unique = 0;
    let mut quick = false;
    let mut asked = |script: &mut Script, on: u64, opcode: u64, ino: u64, name: &str, answer| {
        unique += 2;
        script.call(900, BEGIN, &[unique, on, opcode]);
        // Every other reply of the daemon comes before its caller begins to wait.
        quick = !quick && answer != ABSENT;
        if quick {
            script.call(501, ANSWERED, &[unique, answer, ABSENT, on]);
        }
        script.call(900, ENTER, &[unique]);
        match name {
            "" => script.call(900, ABOUT, &[unique, ino, ABSENT, on]),
            _ => script.batch.side.push(Side::Asked {
                time: script.time,
                connection: on,
                unique,
                opcode,
                ino,
                name: name.into(),
            }),
        }
        script.call(501, EXIT, &[0, 40]);
        if answer != ABSENT && !quick {
            script.call(501, ANSWERED, &[unique, answer, ABSENT, on]);
        }
        script.call(501, END, &[unique, on, 0]);
    };
    asked(&mut script, MOUNT, OP_LOOKUP, 1, "usr", 10);
    asked(&mut script, MOUNT, OP_LOOKUP, 10, "bin", 11);
    asked(&mut script, MOUNT, OP_LOOKUP, 10, "no", 0);
    asked(&mut script, MOUNT, OP_GETATTR, 11, "", ABSENT);
    // The same number on a mount that no known daemon serves.
    asked(&mut script, OTHER, OP_GETATTR, 11, "", ABSENT);
    asked(&mut script, MOUNT, RENAME, 10, "bin", ABSENT);
    asked(&mut script, MOUNT, OP_GETATTR, 11, "", ABSENT);
    asked(&mut script, MOUNT, OP_LOOKUP, 10, "sbin", 11);
    asked(&mut script, MOUNT, OP_GETATTR, 11, "", ABSENT);
    script.call(900, FORGOTTEN, &[ABSENT, 11, ABSENT, OTHER]);
    asked(&mut script, MOUNT, OP_GETATTR, 11, "", ABSENT);
    script.call(900, FORGOTTEN, &[ABSENT, 11, ABSENT, MOUNT]);
    asked(&mut script, MOUNT, OP_GETATTR, 11, "", ABSENT);
    let expected = [
        "/usr",
        "/usr/bin",
        "/usr/no",
        "/usr/bin",
        "?",
        "/usr/bin",
        "?",
        "/usr/sbin",
        "/usr/sbin",
        "/usr/sbin",
        "?",
    ];
    assert_eq!(paths(&script, true), expected);
}

#[test]
fn the_kernels_probes_give_sizes_and_offsets() {
    const READ: u64 = 15;
    struct Parts(Vec<(Option<u64>, u64, u64)>);
    impl Listener for Parts {
        fn story(&mut self, known: &Known<'_>) {
            let details = known.details;
            let part = (known.inode(), details.size, details.offset);
            self.0.push(part);
        }
    }
    let mut script = Script::default();
    script.call(900, BEGIN, &[2, MOUNT, READ]);
    script.call(900, ABOUT, &[2, 11, ABSENT, MOUNT]);
    script.call(501, SIZED, &[2, 11, 4096, 8192]);
    script.call(501, END, &[2, MOUNT, 0]);
    let mut parts = Parts(Vec::new());
    tell(&script.batch, true, &mut parts);
    assert_eq!(parts.0, [(Some(11), 4096, 8192)]);
}

/// libfuse's write_buf gets no request: it belongs to the one whose length the thread has read last.
#[test]
fn a_callback_without_a_number_names_the_request_that_its_thread_read() {
    let mut script = Script::default();
    let mut calls = |unique: u64, length: u64, read: u64, path: &str| {
        script.call(900, BEGIN, &[unique, MOUNT, OP_GETATTR]);
        script.call(900, LENGTH, &[unique, MOUNT, length]);
        script.call(501, ENTER, &[0]);
        script.call(501, EXIT, &[0, read]);
        script.call(501, GETATTR, &[]);
        script.batch.side.push(Side::Name {
            time: script.time,
            pid: DAEMON,
            tid: 501,
            unique: ABSENT,
            ino: ABSENT,
            handle: ABSENT,
            name: path.into(),
            attribute: None,
        });
        script.call(501, GETATTR_RETURN, &[]);
        script.call(501, END, &[unique, MOUNT, 0]);
    };
    calls(2, 80, 80, "/a/b");
    calls(4, 90, 90, "/c");
    calls(6, 80, 90, "/no");
    assert_eq!(paths(&script, true), ["/a/b", "/c", "?"]);
}

/// libfuse's high-level callbacks get a file's path as well as the attribute's name.
#[test]
fn attributes_of_one_file_are_different_questions() {
    const GETXATTR: u64 = 22;
    let mut script = Script::default();
    for (unique, attribute) in [(2, "user.a"), (4, "user.b"), (6, "user.a")] {
        script.call(900, BEGIN, &[unique, MOUNT, GETXATTR]);
        script.call(501, EXIT, &[0, 40]);
        script.call(501, GETATTR, &[unique]);
        script.batch.side.push(Side::Name {
            time: script.time,
            pid: DAEMON,
            tid: 501,
            unique,
            ino: ABSENT,
            handle: ABSENT,
            name: "/file".into(),
            attribute: Some(attribute.into()),
        });
        script.call(501, END, &[unique, MOUNT, 0]);
        script.call(501, GETATTR_RETURN, &[unique]);
    }
    let mut caches = Caches::new(Arch::X86_64);
    tell(&script.batch, true, &mut caches);
    let asked = caches.finish().asked;
    let found: Vec<_> = asked
        .iter()
        .map(|row| (row.requests, row.questions, row.again))
        .collect();
    assert_eq!(found, [(3, 2, 1)]);
}

/// Nothing shows which files these requests are about: they may be different ones.
#[test]
fn requests_of_unknown_files_are_not_of_one_file() {
    const READDIR: u64 = 28;
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let reader = Reader::open(&root.join("samples/recordings/demo.data")).unwrap();
    let of = |known: bool| {
        let mut script = Script::default();
        for (opcode, count) in [(READDIR, 1), (OP_LOOKUP, 7), (OP_GETATTR, 9)] {
            for _ in 0..count {
                script.unique += 2;
                let unique = script.unique;
                script.call(900, BEGIN, &[unique, MOUNT, opcode]);
                if known {
                    script.call(900, ABOUT, &[unique, 1, ABSENT, MOUNT]);
                }
                script.call(501, END, &[unique, MOUNT, 0]);
            }
        }
        let daemons = [DAEMON].into_iter();
        let mut why = Why::new(&reader, daemons, Gone::default(), Cost::default(), u64::MAX);
        tell(&script.batch, true, &mut why);
        let rows = why.of_process.rows();
        let most = rows.iter().map(|(_, count)| count.requests).max();
        (most, why.lists, why.listed.requests)
    };
    assert_eq!(of(true), (Some(9), 1, 7));
    assert_eq!(of(false), (None, 1, 0));
}

#[test]
fn negative_lookups() {
    let mut script = Script::default();
    script.lookup(900, 1, "a", 10, 0);
    script.lookup(900, 1, "b", 0, 0);
    script.lookup(900, 1, "c", 0, 0);
    script.lookup(900, 1, "d", ABSENT, -2);
    script.getattr(900, 10);
    let mut outcomes = Outcomes::new(Arch::X86_64, &Filters::default());
    let counts = tell(&script.batch, true, &mut outcomes);
    assert_eq!((counts.begun, counts.matched), (5, 5));
    let lookup = &outcomes.operations[&Operation::LOOKUP];
    assert_eq!((lookup.answered, lookup.negative), (4, 2));
    assert_eq!(lookup.errors.iter().collect::<Vec<_>>(), [(&2, &1)]);
    let getattr = &outcomes.operations[&Operation::of_name("getattr")];
    assert_eq!((getattr.answered, getattr.negative), (1, 0));
}

#[test]
fn calls_without_a_daemon_are_of_the_selected_time_and_mounts() {
    let mut script = Script::default();
    for time in [100, 200, 300] {
        script.time = time - 10;
        script.call(900, EXIT, &[4, -107i64 as u64]);
    }
    let gone = |filters: Filters| {
        let filters = Filters {
            daemons: vec![(DAEMON, MOUNT), (600, MOUNT + 1)],
            ..filters
        };
        let mut outcomes = Outcomes::new(Arch::X86_64, &filters);
        observe(&script.batch, &catalogue(true), filters, &mut outcomes);
        outcomes.gone.calls.get(&4).copied().unwrap_or(0)
    };
    assert_eq!(gone(Filters::default()), 3);
    let (from, to) = (Some(150), Some(250));
    assert_eq!(
        gone(Filters {
            from,
            to,
            ..Filters::default()
        }),
        1
    );
    // Neither the mount of such a call is known, nor here its caller's name.
    let comms = vec!["nobody".to_owned()];
    assert_eq!(
        gone(Filters {
            comms,
            ..Filters::default()
        }),
        0
    );
    for (connections, calls) in [(vec![MOUNT], 0), (vec![MOUNT, MOUNT + 1], 3)] {
        assert_eq!(
            gone(Filters {
                connections,
                ..Filters::default()
            }),
            calls
        );
    }
}

#[test]
fn no_name_steers_a_terminal_or_breaks_a_row() {
    let mut script = Script::default();
    let name = "a,\"b\"\n\u{1b}[2J\u{202e}é\u{1f600}\\";
    script.lookup(900, 1, name, 10, 0);
    let written = |form| {
        let mut out = Vec::new();
        let mut rows = Rows::new(&mut out, form, Some("x86_64"));
        tell(&script.batch, true, &mut rows);
        assert_eq!(rows.finish().unwrap(), 1);
        String::from_utf8(out).unwrap()
    };
    let csv = written(Form::Csv);
    assert_eq!(csv.lines().count(), 2);
    assert!(
        csv.contains(",\"a,\"\"b\"\"\\x0a\\x1b[2J\\u202eé😀\\\","),
        "{csv}"
    );
    let json = written(Form::Json);
    assert!(
        json.is_ascii()
            && json.contains(
                "\"path\": \"a,\\\"b\\\"\\u000a\\u001b[2J\\u202e\\u00e9\\ud83d\\ude00\\\\\""
            ),
        "{json}"
    );
    let mut out = Vec::new();
    let mut trace = Trace::new(&mut out, Some("x86_64"), Session::default(), ASLEEP);
    tell(&script.batch, true, &mut trace);
    assert_eq!(trace.finish().unwrap(), 1);
    assert!(out.windows(name.len()).any(|part| part == name.as_bytes()));
}

#[test]
fn an_unfinished_request_is_as_slow_as_the_recording_is_long() {
    let mut script = Script::default();
    script.getattr(900, 10);
    script.call(901, BEGIN, &[1000, MOUNT, OP_GETATTR]);
    for _ in 0..5 {
        script.getattr(900, 10);
    }
    let mut slowest = Slowest::new(2, Wanted::of(Operations::default()));
    tell(&script.batch, true, &mut slowest);
    let requests = slowest.finish();
    assert_eq!(requests[0].story.unique, 1000);
    assert_eq!(requests[0].duration, 5 * 50);
    assert_eq!(requests[1].duration, 30);
    let mut numbered = Numbered::new(1000);
    tell(&script.batch, true, &mut numbered);
    assert_eq!(numbered.requests.len(), 1);
}

/// Requests for a file whose name is known only later, for one that is never named, and for another file.
#[test]
fn the_slowest_of_a_path() {
    let mut script = Script::default();
    script.getattr(900, 11);
    script.lookup(900, 1, "a", 10, 0);
    script.getattr(900, 12);
    script.lookup(900, 10, "b", 11, 0);
    script.lookup(900, 10, "c", 13, 0);
    script.getattr(900, 11);
    let slowest = |path: &'static str| {
        let filter = move |_: u64, text: &str, whole: bool| whole && text == path;
        let wanted = Wanted {
            path: Some(Box::new(filter)),
            ..Wanted::of(Operations::new(vec![Box::new(|name| name == "getattr")]))
        };
        let mut slowest = Slowest::new(9, wanted);
        tell(&script.batch, true, &mut slowest);
        if slowest.again() {
            tell(&script.batch, true, &mut slowest);
            assert!(!slowest.again());
        }
        let pathless = slowest.pathless;
        let uniques: Vec<u64> = slowest.finish().iter().map(|k| k.story.unique).collect();
        (uniques, pathless)
    };
    assert_eq!(slowest("a/b"), (vec![2, 12], 1));
    assert_eq!(slowest("a/c"), (vec![], 1));
}

#[test]
fn each_mount_has_its_queue() {
    let mut batch = Batch::default();
    for (unique, mount) in [(2, MOUNT), (4, MOUNT), (2, 46)] {
        let time = 100 * batch.events.len() as u64 + 100;
        batch
            .events
            .push(ev(time, 900, BEGIN, &[unique, mount, OP_GETATTR]));
        batch
            .events
            .push(ev(time + 50, 501, END, &[unique, mount, 0]));
    }
    let mut queues = Queues::new(ASLEEP);
    tell(&batch, true, &mut queues);
    let queues = queues.finish();
    let served: Vec<_> = queues
        .iter()
        .map(|q| (q.connection, q.requests, q.unread, q.total))
        .collect();
    // No read of them is known, so neither is their time in the queue.
    assert_eq!(served, [(MOUNT, 2, 2, 0), (46, 1, 1, 0)]);
}

/// Return the `short` of two requests, one after the other. The second waits from 120 to 200 while the thread works on
/// after its first reply. The thread was switched off its CPU from 110 to 140 in this state.
fn short(state: u64) -> u64 {
    let events = vec![
        ev(50, 900, BEGIN, &[2, MOUNT, OP_GETATTR]),
        ev(60, 501, EXIT, &[0, 40]),
        ev(70, 501, GETATTR, &[2, 7]),
        ev(100, 501, END, &[2, MOUNT, 0]),
        ev(110, 501, SWITCH, &[501, state, 900]),
        ev(120, 900, BEGIN, &[4, MOUNT, OP_GETATTR]),
        ev(140, 900, SWITCH, &[900, 1, 501]),
        ev(180, 501, GETATTR_RETURN, &[2]),
        ev(200, 501, EXIT, &[0, 40]),
        ev(210, 501, GETATTR, &[4, 7]),
        ev(220, 501, END, &[4, MOUNT, 0]),
        ev(230, 501, GETATTR_RETURN, &[4]),
    ];
    let batch = Batch {
        events,
        ..Batch::default()
    };
    let mut queues = Queues::new(ASLEEP);
    tell(&batch, true, &mut queues);
    let queue = queues.finish().remove(0);
    assert_eq!((queue.threads, queue.waited), (1, 10 + 80));
    queue.short as u64
}

#[test]
fn a_thread_that_lacked_a_cpu_after_its_reply_would_have_been_free_earlier() {
    assert_eq!(short(0), 180 - 120 - 30);
    assert_eq!(short(1), 180 - 120);
    // Stopped, which is no lack of a CPU, either.
    assert_eq!(short(4), 180 - 120);
}

/// Return requests that a thread each serves: begin, read, end, return, each later than the one before.
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    prop::collection::vec((0..60u64, 1..20u64, 1..20u64, 1..20u64), 1..10)
}

/// Return a batch in which each has its own caller and its own thread of the daemon.
fn batch(requests: &[(u64, u64, u64, u64)]) -> Batch {
    let mut batch = Batch::default();
    for (i, (begin, read, end, left)) in requests.iter().enumerate() {
        let (unique, thread) = (2 + 2 * i as u64, 501 + i as i32);
        // Times of events are all different.
        let at = |time: u64| 1000 + 10 * time + i as u64;
        let (read, end) = (begin + read, begin + read + end);
        let left = end + left;
        batch.events.extend([
            ev(
                at(*begin),
                900 + i as i32,
                BEGIN,
                &[unique, MOUNT, OP_GETATTR],
            ),
            ev(at(read), thread, EXIT, &[0, 40]),
            ev(at(read), thread, GETATTR, &[unique, 7]),
            ev(at(end), thread, END, &[unique, MOUNT, 0]),
            ev(at(left), thread, GETATTR_RETURN, &[unique]),
        ]);
    }
    batch.events.sort_by_key(|event| event.time);
    batch
}

fn naive(requests: &[(u64, u64, u64, u64)]) -> Vec<(u64, u64, u64, u64)> {
    let at = |(i, (begin, read, end, left)): (usize, &(u64, u64, u64, u64))| {
        let at = |time: u64| 1000 + 10 * time + i as u64;
        let (read, end) = (begin + read, begin + read + end);
        (at(*begin), at(read), at(end), at(end + left))
    };
    requests.iter().enumerate().map(at).collect()
}

proptest! {
    #[test]
    fn the_slowest_are_the_slowest(requests in requests(), most in 1..10usize) {
        let mut slowest = Slowest::new(most, Wanted::of(Operations::default()));
        tell(&batch(&requests), true, &mut slowest);
        let slow: Vec<(u64, u64)> = slowest
            .finish()
            .iter()
            .map(|request: &NamedRequest| (request.duration, request.story.start()))
            .collect();
        let mut all: Vec<(u64, u64)> = naive(&requests)
            .iter()
            .map(|(begin, _, end, _)| (end - begin, *begin))
            .collect();
        all.sort_by_key(|(duration, begin)| (std::cmp::Reverse(*duration), *begin));
        all.truncate(most);
        prop_assert_eq!(slow, all);
    }

    #[test]
    fn the_queue_is_what_it_is_at_each_moment(requests in requests(), parts in 1..7usize) {
        let mut queues = Queues::new(ASLEEP);
        tell(&batch(&requests), true, &mut queues);
        let queue = queues.finish().remove(0);
        let times = naive(&requests);
        prop_assert_eq!(queue.requests as usize, requests.len());
        prop_assert_eq!(queue.threads as usize, requests.len());
        prop_assert_eq!(queue.total, times.iter().map(|(begin, _, end, _)| end - begin).sum::<u64>());
        prop_assert_eq!(queue.waited, times.iter().map(|(begin, read, ..)| read - begin).sum::<u64>());
        let first = times.iter().map(|(begin, ..)| *begin).min().unwrap();
        let last = times.iter().map(|(.., left)| *left).max().unwrap();
        let sums = queue.parts(parts);
        prop_assert_eq!(sums.len(), parts);
        let mut short = 0;
        for (i, part) in sums.iter().enumerate() {
            let bound = |i: usize| first + (u128::from(last - first) * i as u128 / parts as u128) as u64;
            let mut expected = Part::default();
            for now in bound(i)..bound(i + 1) {
                let within = |from: u64, to: u64| (from..to).contains(&now);
                let queued = times.iter().filter(|(begin, read, ..)| within(*begin, *read)).count();
                let busy = times.iter().filter(|(_, read, _, left)| within(*read, *left)).count();
                expected.mean_queued += queued as f64;
                expected.mean_busy += busy as f64;
                expected.most_queued = expected.most_queued.max(queued as u32);
                expected.most_busy = expected.most_busy.max(busy as u32);
                if busy == requests.len() {
                    short += queued as u128;
                }
            }
            let length = (bound(i + 1) - bound(i)).max(1) as f64;
            prop_assert!((part.mean_queued - expected.mean_queued / length).abs() < 1e-9);
            prop_assert!((part.mean_busy - expected.mean_busy / length).abs() < 1e-9);
            prop_assert_eq!(part.most_queued, expected.most_queued);
            prop_assert_eq!(part.most_busy, expected.most_busy);
        }
        prop_assert_eq!(queue.short, short);
    }

    #[test]
    fn any_events_give_requests(
        events in prop::collection::vec(
            (0..60u64, 0..6i32, 0..11u32, [0..6u64, 0..3u64, 0..5u64, 0..4u64]), 0..300),
        names in prop::collection::vec((0..60u64, 0..6u64, 0..6u64, 0..3u64, "\\PC{0,3}"), 0..30),
    ) {
        let mut batch = Batch::default();
        for (time, tid, kind, v) in events {
            // Three threads each of callers and of the daemon.
            let tid = if tid < 3 { 900 + tid } else { 498 + tid };
            let v = v.map(|value| if value == 3 { ABSENT } else { value });
            batch.events.push(ev(time, tid, kind, &v));
        }
        for (time, unique, ino, handle, name) in names {
            batch.side.push(Side::Name { time, pid: DAEMON, tid: 501, unique, ino, handle, name: name.into(), attribute: None });
        }
        batch.events.sort_by_key(|event| event.time);
        batch.side.sort_by_key(|side| match side {
            Side::Name { time, .. } => *time,
            _ => 0,
        });
        for inodes in [true, false] {
            let mut queues = Queues::new(ASLEEP);
            tell(&batch, inodes, &mut queues);
            for queue in queues.finish() {
                queue.parts(5);
            }
            let mut slowest = Slowest::new(3, Wanted::of(Operations::default()));
            tell(&batch, inodes, &mut slowest);
            slowest.finish();
            tell(&batch, inodes, &mut Outcomes::new(Arch::X86_64, &Filters::default()));
            for form in [Form::Csv, Form::Json] {
                let mut rows = Rows::new(Vec::new(), form, None);
                let counts = tell(&batch, inodes, &mut rows);
                prop_assert!(rows.finish().unwrap() >= counts.matched);
            }
            let mut trace = Trace::new(Vec::new(), Some("x86_64"), Session::default(), ASLEEP);
            tell(&batch, inodes, &mut trace);
            trace.finish().unwrap();
        }
    }
}
