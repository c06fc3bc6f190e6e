//! Calls, requests and system calls from events made by hand, and against a naive pairing.

use fusetools_core::answers::analysis::{Analysis, Answer, Detail, Series};
use fusetools_core::cost::Cost;
use fusetools_core::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};
use fusetools_core::requests::filters::Filters;
use proptest::prelude::*;

const DAEMON: i32 = 500;
const CALLER: i32 = 900;
const MOUNT: u64 = 45;

#[rustfmt::skip]
const ROWS: [(&str, Layer, &str, &str, Role); 18] = [
    ("fuse_daemon:cvmfs_lookup", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Entry),
    ("fuse_daemon:cvmfs_lookup__return", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Return),
    ("fuse_daemon:cvmfs_read", Layer::Daemon, "cvmfs_read", "read", Role::Entry),
    ("fuse_daemon:cvmfs_read__return", Layer::Daemon, "cvmfs_read", "read", Role::Return),
    ("fuse_kernel:fuse_lookup", Layer::Kernel, "fuse_lookup", "lookup", Role::Entry),
    ("fuse_kernel:fuse_lookup__return", Layer::Kernel, "fuse_lookup", "lookup", Role::Return),
    ("fuse_daemon:cvmfs_forget", Layer::Daemon, "cvmfs_forget", "forget", Role::Entry),
    ("fuse:fuse_request_send", Layer::Request, "", "", Role::Begin),
    ("fuse:fuse_request_sent", Layer::Request, "", "", Role::Sent),
    ("fuse:fuse_request_end", Layer::Request, "", "", Role::End),
    ("raw_syscalls:sys_enter", Layer::Syscall, "", "", Role::SysEnter),
    ("raw_syscalls:sys_exit", Layer::Syscall, "", "", Role::SysExit),
    ("fuse_daemon:fuse_reply_err", Layer::Daemon, "fuse_reply_err", "", Role::Reply),
    ("fuse_daemon:fuse_reply_none", Layer::Daemon, "fuse_reply_none", "", Role::Reply),
    ("ftrace:funcgraph_entry", Layer::Kernel, "", "", Role::GraphEntry),
    ("ftrace:funcgraph_exit", Layer::Kernel, "", "", Role::GraphExit),
    ("fuse_kernel:request_wait_answer", Layer::Kernel, "request_wait_answer", "", Role::Entry),
    ("fuse_kernel:request_wait_answer__return", Layer::Kernel, "request_wait_answer", "", Role::Return),
];

const LOOKUP: u32 = 0;
const LOOKUP_RETURN: u32 = 1;
const READ: u32 = 2;
const READ_RETURN: u32 = 3;
const KERNEL: u32 = 4;
const KERNEL_RETURN: u32 = 5;
const FORGET: u32 = 6;
const BEGIN: u32 = 7;
const SENT: u32 = 8;
const END: u32 = 9;
const ENTER: u32 = 10;
const EXIT: u32 = 11;
const REPLY: u32 = 12;
const REPLY_NONE: u32 = 13;
const INTO: u32 = 14;
const OUT: u32 = 15;
const WAIT: u32 = 16;
const WAIT_RETURN: u32 = 17;

const SYS_READ: u64 = 0;
const SYS_STAT: u64 = 4;
const SYS_OPENAT: u64 = 257;
const SYS_PREAD: u64 = 17;
const OP_LOOKUP: u64 = 1;
const OP_GETATTR: u64 = 3;
const OP_RELEASE: u64 = 18;

fn catalogue() -> Vec<Meaning> {
    ROWS.iter()
        .map(|(event, layer, function, operation, role)| Meaning {
            event: event.to_string(),
            layer: *layer,
            function: function.to_string(),
            operation: operation.to_string(),
            role: *role,
        })
        .collect()
}

fn ev(time: u64, tid: i32, kind: u32, v: &[u64]) -> Ev {
    let mut values = [ABSENT; 4];
    values[..v.len()].copy_from_slice(v);
    let pid = if tid / 100 == DAEMON / 100 {
        DAEMON
    } else {
        tid
    };
    Ev {
        time,
        pid,
        tid,
        kind,
        cpu: (time % 2) as u32,
        v: values,
    }
}

fn run(events: &[Ev], side: &[Side], filters: Filters) -> Answer {
    let mut analysis = Analysis::new(&catalogue(), filters, Some("x86_64"), 0, Detail::Columns);
    analysis.push(&Batch {
        events: events.to_vec(),
        side: side.to_vec(),
        ..Batch::default()
    });
    analysis.finish()
}

fn series<'a>(answer: &'a Answer, function: &str, operation: &str) -> Option<&'a Series> {
    answer
        .series
        .iter()
        .find(|s| s.function == function && s.operation == operation)
}

/// Return (entries, matched, unmatched, sum of ns). Calls without an end are in `unmatched`.
fn figures(answer: &Answer, function: &str, operation: &str) -> (u64, u64, u64, u64) {
    series(answer, function, operation).map_or((0, 0, 0, 0), |s| {
        let (matched, open) = (s.hist.count() - s.unanswered, s.unanswered);
        (s.entries, matched, s.unmatched + open, s.hist.sum() as u64)
    })
}

#[test]
fn nested_and_recursive_calls() {
    let answer = run(
        &[
            ev(10, 501, LOOKUP, &[2]),
            ev(20, 501, READ, &[2]),
            ev(25, 502, LOOKUP, &[4]),
            ev(30, 501, LOOKUP, &[2]),
            ev(31, 501, LOOKUP_RETURN, &[]),
            ev(40, 501, READ_RETURN, &[]),
            ev(110, 501, LOOKUP_RETURN, &[]),
            ev(1025, 502, LOOKUP_RETURN, &[]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(
        figures(&answer, "cvmfs_lookup", "lookup"),
        (3, 3, 0, 1 + 100 + 1000)
    );
    assert_eq!(figures(&answer, "cvmfs_read", "read"), (1, 1, 0, 20));
    let starts: Vec<u64> = answer
        .columns
        .unwrap()
        .calls
        .iter()
        .map(|c| c.start)
        .collect();
    assert_eq!(starts, [10, 20, 25, 30]);
}

#[test]
fn layers_do_not_disturb_each_other() {
    let answer = run(
        &[
            ev(10, 501, KERNEL, &[]),
            ev(20, 501, LOOKUP, &[2]),
            ev(30, 501, KERNEL_RETURN, &[]),
            ev(50, 501, LOOKUP_RETURN, &[]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "fuse_lookup", "lookup"), (1, 1, 0, 20));
    assert_eq!(figures(&answer, "cvmfs_lookup", "lookup"), (1, 1, 0, 30));
}

#[test]
fn missing_ends() {
    let answer = run(
        &[
            ev(1, 501, LOOKUP_RETURN, &[]), // entered before the recording
            ev(10, 501, LOOKUP, &[2]),      // its return is missing
            ev(20, 501, LOOKUP, &[4]),
            ev(25, 501, LOOKUP_RETURN, &[]),
            ev(30, 501, READ, &[6]),
            ev(31, 501, LOOKUP, &[6]), // its return is missing; that of the call around it comes
            ev(37, 501, READ_RETURN, &[]),
            ev(40, 501, LOOKUP, &[8]),
            ev(42, 501, LOOKUP_RETURN, &[]),
            ev(50, 501, READ, &[10]), // open at the end
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "cvmfs_lookup", "lookup"), (4, 2, 3, 5 + 2));
    assert_eq!(figures(&answer, "cvmfs_read", "read"), (2, 1, 1, 7));
}

#[test]
fn an_event_without_its_return_in_the_catalogue_only_counts() {
    let events: Vec<Ev> = (0..1000).map(|i| ev(i, 501, FORGET, &[2 * i])).collect();
    let answer = run(&events, &[], Filters::default());
    assert_eq!(figures(&answer, "cvmfs_forget", "forget"), (1000, 0, 0, 0));
}

#[test]
fn a_function_that_never_returns_keeps_few_open_calls() {
    let mut events: Vec<Ev> = (0..10_000).map(|i| ev(i, 501, LOOKUP, &[2 * i])).collect();
    events.push(ev(10_001, 501, LOOKUP_RETURN, &[]));
    let answer = run(&events, &[], Filters::default());
    assert_eq!(
        figures(&answer, "cvmfs_lookup", "lookup"),
        (10_000, 1, 9_999, 2)
    );
}

#[test]
fn a_thread_that_exits_leaves_nothing_to_its_successor() {
    let answer = run(
        &[
            ev(10, 501, LOOKUP, &[2]),
            ev(10, 501, READ, &[2]),
            ev(30, 501, LOOKUP_RETURN, &[]),
            ev(40, 502, LOOKUP, &[4]),
            ev(60, 502, LOOKUP_RETURN, &[]),
        ],
        &[
            Side::Exit {
                time: 20,
                pid: DAEMON,
                tid: 501,
            },
            Side::Fork {
                time: 50,
                pid: DAEMON,
                tid: 502,
                ppid: DAEMON,
                ptid: DAEMON,
            },
        ],
        Filters::default(),
    );
    // They count up to their thread's end.
    assert_eq!(figures(&answer, "cvmfs_lookup", "lookup"), (2, 0, 4, 20));
    assert_eq!(figures(&answer, "cvmfs_read", "read"), (1, 0, 1, 10));
}

#[test]
fn a_gap_makes_no_wrong_pair() {
    // The return of the first and the entry of the second are lost.
    let lost = [Side::Lost { time: 50 }];
    let events = [
        ev(10, 501, LOOKUP, &[2]),
        ev(90, 501, LOOKUP_RETURN, &[]),
        ev(100, 501, LOOKUP, &[6]),
        ev(107, 501, LOOKUP_RETURN, &[]),
    ];
    let answer = run(&events, &lost, Filters::default());
    assert_eq!(figures(&answer, "cvmfs_lookup", "lookup"), (2, 1, 1, 7));
    // Likewise for a system call and a reply.
    let events = [
        ev(10, CALLER, ENTER, &[SYS_STAT]),
        ev(11, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
        ev(12, 501, EXIT, &[SYS_READ, 80]),
        ev(90, CALLER, EXIT, &[SYS_STAT, 0]),
        ev(91, 501, REPLY, &[2]),
    ];
    let answer = run(&events, &lost, Filters::default());
    assert_eq!(figures(&answer, "stat", "lookup"), (1, 0, 1, 0));
    assert_eq!(figures(&answer, "fuse_reply_err", "lookup"), (1, 0, 1, 0));
}

#[test]
fn requests_by_connection_and_number() {
    let answer = run(
        &[
            ev(1, 501, END, &[100, MOUNT, 0]), // begun before the recording
            ev(10, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
            ev(20, CALLER, BEGIN, &[2, 46, OP_GETATTR]),
            ev(30, 501, END, &[2, MOUNT, -2i64 as u64]),
            ev(60, 601, END, &[2, 46, 0]),
            ev(70, CALLER, BEGIN, &[4, MOUNT, OP_LOOKUP]), // unfinished
            ev(80, CALLER, BEGIN, &[4, MOUNT, 9999]),
            ev(81, 501, END, &[4, MOUNT, 0]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (2, 1, 1, 20));
    assert_eq!(figures(&answer, "FUSE_GETATTR", "getattr"), (1, 1, 0, 40));
    assert_eq!(
        figures(&answer, "FUSE_OPCODE_9999", "opcode_9999"),
        (1, 1, 0, 1)
    );
    let counts = answer.requests;
    assert_eq!((counts.begun, counts.ended, counts.matched), (4, 4, 3));
}

#[test]
fn requests_without_numbers_make_no_pairs() {
    let events = [
        ev(10, CALLER, BEGIN, &[0, MOUNT, OP_LOOKUP]),
        ev(20, CALLER, BEGIN, &[0, MOUNT, OP_LOOKUP]),
        ev(30, 501, END, &[2, MOUNT, 0]),
        ev(40, 501, END, &[0, MOUNT, 0]),
    ];
    let answer = run(&events, &[], Filters::default());
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (2, 0, 2, 0));
    let counts = answer.requests;
    assert_eq!((counts.begun, counts.ended, counts.matched), (2, 2, 0));
}

#[test]
fn system_calls_that_hold_requests() {
    let answer = run(
        &[
            ev(5, CALLER, ENTER, &[SYS_OPENAT]), // without a request
            ev(8, CALLER, EXIT, &[SYS_OPENAT, 3]),
            ev(10, CALLER, ENTER, &[SYS_STAT]),
            ev(11, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
            ev(12, CALLER, BEGIN, &[4, MOUNT, OP_LOOKUP]),
            ev(13, CALLER, BEGIN, &[6, MOUNT, OP_GETATTR]),
            ev(14, 901, BEGIN, &[8, MOUNT, 15]), // another task's: not in any system call
            ev(15, CALLER, ENTER, &[u64::MAX]),  // a signal's or a probe's: none of the task's
            ev(16, CALLER, ENTER, &[335]),
            ev(17, CALLER, EXIT, &[335, 0]),
            ev(18, CALLER, EXIT, &[u64::MAX, 0]),
            ev(110, CALLER, EXIT, &[SYS_STAT, 0]),
            ev(120, CALLER, BEGIN, &[10, MOUNT, OP_LOOKUP]), // after it
            ev(130, CALLER, ENTER, &[SYS_STAT]),
            ev(131, CALLER, BEGIN, &[12, MOUNT, OP_LOOKUP]),
            ev(132, CALLER, ENTER, &[SYS_OPENAT]), // the exit before is missing
            ev(133, CALLER, BEGIN, &[14, MOUNT, OP_LOOKUP]),
            ev(140, CALLER, EXIT, &[SYS_STAT, 0]), // not its exit
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "stat", "lookup"), (2, 1, 1, 100));
    assert_eq!(figures(&answer, "stat", "getattr"), (1, 1, 0, 100));
    assert_eq!(figures(&answer, "openat", "lookup"), (1, 0, 1, 0));
    assert!(series(&answer, "stat", "read").is_none());
}

#[test]
fn replies_start_at_the_read_that_brought_the_request() {
    let answer = run(
        &[
            ev(5, 501, EXIT, &[SYS_READ, 80]), // something read before the request was there
            ev(10, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
            ev(15, 501, EXIT, &[SYS_READ, (-11i64) as u64]), // EAGAIN
            ev(20, 501, EXIT, &[SYS_READ, 80]),
            ev(30, 501, EXIT, &[SYS_PREAD, 4096]), // the callback reads a file
            ev(120, 501, REPLY, &[2]),
            ev(121, 501, REPLY, &[2]), // a reply function that calls another
            ev(125, 501, END, &[2, MOUNT, 0]),
            ev(130, 501, EXIT, &[SYS_READ, 40]),
            ev(137, 501, REPLY_NONE, &[1000]),
            ev(140, 501, EXIT, &[SYS_READ, 40]),
            ev(150, 501, REPLY, &[1002]),
            ev(160, CALLER, BEGIN, &[4, MOUNT, OP_GETATTR]),
            ev(170, 502, REPLY, &[4]), // by a thread that read nothing
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "fuse_reply_err", "lookup"), (1, 1, 0, 100));
    assert_eq!(figures(&answer, "fuse_reply_none", "forget"), (1, 1, 0, 7));
    assert_eq!(figures(&answer, "fuse_reply_err", "unknown"), (1, 1, 0, 10));
    assert_eq!(figures(&answer, "fuse_reply_err", "getattr"), (1, 0, 1, 0));
}

#[test]
fn the_kernels_copy_shows_the_reading_thread() {
    let answer = run(
        &[
            ev(10, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
            ev(11, CALLER, BEGIN, &[4, MOUNT, OP_GETATTR]),
            ev(15, 501, EXIT, &[SYS_READ, 80]), // the tail of the callback before
            ev(20, 501, SENT, &[2, MOUNT]),
            ev(22, 501, EXIT, &[SYS_READ, 80]),
            ev(30, 502, SENT, &[4, MOUNT]),
            ev(32, 503, EXIT, &[SYS_READ, 8]), // a worker that answers for the thread that read
            ev(122, 501, REPLY, &[2]),
            ev(230, 503, REPLY, &[4]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "fuse_reply_err", "lookup"), (1, 1, 0, 100));
    assert_eq!(
        figures(&answer, "fuse_reply_err", "getattr"),
        (1, 1, 0, 200)
    );
}

/// Return events of two callers, each with a request on its own mount, with equal numbers, and a forget.
fn two_mounts() -> (Vec<Ev>, Vec<Side>) {
    let comm = |tid, comm: &str| Side::Comm {
        time: 0,
        pid: tid,
        tid,
        comm: comm.into(),
    };
    let events = vec![
        ev(100, 901, ENTER, &[SYS_STAT]),
        ev(110, 902, ENTER, &[SYS_STAT]),
        ev(120, 901, BEGIN, &[2, MOUNT, OP_LOOKUP]),
        ev(130, 902, BEGIN, &[2, 46, OP_GETATTR]),
        ev(140, 501, LOOKUP, &[2]),
        ev(150, 601, READ, &[2]),
        ev(160, 501, LOOKUP_RETURN, &[]),
        ev(165, 501, END, &[2, MOUNT, 0]),
        ev(170, 901, EXIT, &[SYS_STAT, 0]),
        ev(180, 601, READ_RETURN, &[]),
        ev(185, 601, END, &[2, 46, 0]),
        ev(190, 902, EXIT, &[SYS_STAT, 0]),
        ev(200, 501, FORGET, &[8]),
    ];
    (events, vec![comm(901, "find"), comm(902, "ls")])
}

fn seen(filters: Filters) -> Vec<String> {
    let (events, side) = two_mounts();
    let answer = run(&events, &side, filters);
    assert!(answer.series.iter().all(|s| s.unmatched == 0));
    answer
        .series
        .iter()
        .map(|s| format!("{}/{}", s.function, s.operation))
        .collect()
}

#[test]
fn filters() {
    let daemons = vec![(DAEMON, MOUNT), (601, 46)];
    let known = || Filters {
        daemons: daemons.clone(),
        ..Filters::default()
    };
    let all = seen(Filters::default());
    assert_eq!(all.len(), 7, "{all:?}");
    let first = ["stat/lookup", "FUSE_LOOKUP/lookup", "cvmfs_lookup/lookup"];
    assert_eq!(
        seen(Filters {
            pids: vec![901],
            ..known()
        }),
        first
    );
    assert_eq!(
        seen(Filters {
            comms: vec!["find".into()],
            ..known()
        }),
        first
    );
    // If the daemons' mounts are unknown, the callback's operation distinguishes the two.
    assert_eq!(
        seen(Filters {
            pids: vec![901],
            ..Filters::default()
        }),
        first
    );
    // If one daemon is known, the other mount is the unknown one's.
    let of_pid = |pid| Filters {
        pids: vec![pid],
        daemons: vec![(601, 46)],
        ..Filters::default()
    };
    assert_eq!(seen(of_pid(901)), first);
    assert_eq!(
        seen(of_pid(902)),
        ["stat/getattr", "FUSE_GETATTR/getattr", "cvmfs_read/read"]
    );
    // A forget belongs to its daemon's mount, although it has no request.
    assert_eq!(
        seen(Filters {
            connections: vec![MOUNT],
            ..known()
        }),
        [
            "stat/lookup",
            "FUSE_LOOKUP/lookup",
            "cvmfs_forget/forget",
            "cvmfs_lookup/lookup"
        ]
    );
    assert_eq!(
        seen(Filters {
            daemon_pids: vec![601],
            ..Filters::default()
        }),
        [
            "stat/getattr",
            "stat/lookup",
            "FUSE_GETATTR/getattr",
            "FUSE_LOOKUP/lookup",
            "cvmfs_read/read"
        ]
    );
    let window = Filters {
        from: Some(130),
        to: Some(150),
        ..Filters::default()
    };
    assert_eq!(
        seen(window),
        ["FUSE_GETATTR/getattr", "cvmfs_lookup/lookup"]
    );
}

#[test]
fn names_follow_fork_and_exec() {
    let comm = |time, tid, comm: &str| Side::Comm {
        time,
        pid: tid,
        tid,
        comm: comm.into(),
    };
    let side = [
        comm(0, 901, "make"),
        Side::Fork {
            time: 10,
            pid: 902,
            tid: 902,
            ppid: 901,
            ptid: 901,
        },
        comm(30, 902, "cc"),
        Side::Exit {
            time: 50,
            pid: 901,
            tid: 901,
        },
    ];
    let events = [(5, 901), (20, 902), (40, 902), (60, 901)]
        .map(|(time, tid)| ev(time, tid, BEGIN, &[time, MOUNT, OP_LOOKUP]));
    for (name, begun) in [("make", 2), ("cc", 1), ("ld", 0)] {
        let filters = Filters {
            comms: vec![name.into()],
            ..Filters::default()
        };
        assert_eq!(run(&events, &side, filters).requests.begun, begun, "{name}");
    }
}

#[derive(Clone, Debug)]
struct Step {
    tid: i32,
    /// None: the task's innermost call returns. Otherwise it enters this function.
    enter: Option<u32>,
    gap: u64,
    recorded: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let enter = prop_oneof![Just(None), Just(Some(LOOKUP)), Just(Some(READ))];
    let step = (501..504, enter, 0..5u64, 0..10u8);
    let step = step.prop_map(|(tid, enter, gap, recorded)| Step {
        tid,
        enter,
        gap,
        recorded: recorded > 0,
    });
    proptest::collection::vec(step, 1..400)
}

/// Play the steps on real call stacks. Return the events, and (function, start, duration) of each call that returns.
fn play(steps: &[Step]) -> (Vec<Ev>, Vec<(u32, u64, u64)>) {
    let (mut events, mut calls, mut time) = (Vec::new(), Vec::new(), 1);
    let mut stacks: [Vec<(u32, u64)>; 3] = Default::default();
    for step in steps {
        time += step.gap;
        let stack = &mut stacks[(step.tid - 501) as usize];
        match step.enter.filter(|_| stack.len() < 6) {
            Some(function) => {
                stack.push((function, time));
                events.push(ev(time, step.tid, function, &[]));
            }
            None => {
                if let Some((function, start)) = stack.pop() {
                    calls.push((function, start, time - start));
                    events.push(ev(time, step.tid, function + 1, &[]));
                }
            }
        }
    }
    calls.sort_unstable();
    (events, calls)
}

fn paired(answer: &Answer) -> Vec<(u32, u64, u64)> {
    let columns = answer.columns.as_ref().unwrap();
    let function = |index: u32| match columns.functions[index as usize].as_str() {
        "cvmfs_lookup" => LOOKUP,
        _ => READ,
    };
    let calls = columns.calls.iter();
    let mut calls: Vec<_> = calls
        .map(|c| (function(c.function), c.start, c.duration))
        .collect();
    calls.sort_unstable();
    calls
}

// function_graph

const A: u64 = 0xffff_8000_0000_1000;
const B: u64 = 0xffff_8000_0000_2000;
const C: u64 = 0xffff_8000_0000_3000;

/// Return an entry at this depth.
fn into(time: u64, tid: i32, function: u64, depth: u64) -> Ev {
    // Some bytes into the function, as if it began with endbr64.
    ev(time, tid, INTO, &[function + 4, depth])
}

/// Return an exit at this depth, of a call that took `ns` by the tracer's own clock.
fn out(time: u64, tid: i32, function: u64, depth: u64, ns: u64) -> Ev {
    ev(time, tid, OUT, &[function + 4, depth, 7_000, 7_000 + ns])
}

fn graph(events: &[Ev], side: &[Side], filters: Filters) -> Answer {
    let functions = [(A, "a"), (B, "b"), (C, "fuse_read")];
    let filters = Filters {
        functions: functions
            .iter()
            .map(|(at, name)| {
                let operation = name.strip_prefix("fuse_").unwrap_or("");
                (*at, name.to_string(), operation.to_string())
            })
            .collect(),
        ..filters
    };
    let mut analysis = Analysis::new(&catalogue(), filters, Some("x86_64"), 0, Detail::Calls);
    analysis.push(&Batch {
        events: events.to_vec(),
        side: side.to_vec(),
        ..Batch::default()
    });
    analysis.finish()
}

/// Return (path, calls, total, self) of each node that has calls.
fn tree(answer: &Answer) -> Vec<(String, u64, u64, u64)> {
    let tree = answer.tree.as_ref().unwrap();
    let path = |mut at: usize| {
        let mut path = Vec::new();
        loop {
            let node = tree.nodes[at];
            path.insert(0, tree.functions[node.function as usize].clone());
            at = match tree.nodes.get(node.parent as usize) {
                Some(_) => node.parent as usize,
                None => return path.join("/"),
            };
        }
    };
    let nodes = tree.nodes.iter().enumerate();
    nodes
        .filter(|(_, node)| node.calls > 0)
        .map(|(at, node)| (path(at), node.calls, node.total, node.own))
        .collect()
}

#[test]
fn graph_calls_nest_by_depth() {
    let answer = graph(
        &[
            into(10, CALLER, A, 0),
            into(20, CALLER, B, 1),
            into(25, 501, B, 0), // another task's
            into(30, CALLER, C, 2),
            out(40, CALLER, C, 2, 9),
            out(50, CALLER, B, 1, 29),
            into(60, CALLER, B, 1),
            out(70, CALLER, B, 1, 8),
            out(75, 501, B, 0, 48),
            out(90, CALLER, A, 0, 78),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(
        tree(&answer),
        [
            ("a".into(), 1, 78, 78 - 29 - 8),
            ("a/b".into(), 2, 29 + 8, 20 + 8),
            ("b".into(), 1, 48, 48),
            ("a/b/fuse_read".into(), 1, 9, 9),
        ]
    );
    assert_eq!(figures(&answer, "b", ""), (3, 3, 0, 29 + 8 + 48));
    assert_eq!(figures(&answer, "fuse_read", "read"), (1, 1, 0, 9));
    let b = series(&answer, "b", "").unwrap();
    assert_eq!((b.outermost, b.own, b.address), (1, Some(76), Some(B)));
    let tree = answer.tree.unwrap();
    let starts: Vec<(u64, u32)> = tree.singles.iter().map(|c| (c.start, c.level)).collect();
    // Tree by tree, although they were entered in turns.
    assert_eq!(starts, [(10, 0), (20, 1), (30, 2), (60, 1), (25, 0)]);
    assert_eq!(tree.unmatched, 0);
}

#[test]
fn graph_calls_with_missing_ends() {
    let answer = graph(
        &[
            out(5, CALLER, A, 0, 3), // entered before the recording
            into(10, CALLER, A, 0),  // its exit is missing
            into(20, CALLER, A, 0),
            into(21, CALLER, B, 1), // so is its exit; the exit around it comes
            out(40, CALLER, A, 0, 18),
            into(50, CALLER, A, 0),
            into(51, CALLER, C, 2), // the entry between is missing
            out(52, CALLER, C, 2, 1),
            out(53, CALLER, B, 1, 2),
            out(60, CALLER, A, 0, 9),
            into(70, CALLER, A, 0),
            out(80, CALLER, B, 0, 5), // another function's exit at this depth: its entry is missing
            into(90, CALLER, C, 0),   // open at the end
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "a", ""), (4, 2, 3, 18 + 9));
    assert_eq!(figures(&answer, "b", ""), (1, 0, 3, 0));
    assert_eq!(figures(&answer, "fuse_read", "read"), (2, 1, 1, 1));
    let paths: Vec<String> = tree(&answer).into_iter().map(|row| row.0).collect();
    assert_eq!(paths, ["a", "a/fuse_read"]);
}

#[test]
fn trees_are_whole_in_a_span_and_of_a_caller() {
    let events = [
        into(10, CALLER, A, 0),
        into(20, CALLER, B, 1),
        out(30, CALLER, B, 1, 9),
        out(40, CALLER, A, 0, 29),
        into(50, CALLER, A, 0),
        into(60, CALLER, B, 1),
        out(70, CALLER, B, 1, 8),
        out(80, CALLER, A, 0, 28),
        into(90, 901, A, 0),
        out(95, 901, A, 0, 4),
    ];
    let span = |from, to| Filters {
        from: Some(from),
        to: Some(to),
        ..Filters::default()
    };
    let first = ("a".to_string(), 1, 29, 20);
    let inner = ("a/b".to_string(), 1, 9, 9);
    assert_eq!(tree(&graph(&events, &[], span(0, 15))), [first, inner]);
    // The first tree began before, but not all of its calls: those count only as calls.
    let answer = graph(&events, &[], span(15, 85));
    assert_eq!(
        tree(&answer),
        [("a".into(), 1, 28, 20), ("a/b".into(), 1, 8, 8)]
    );
    assert_eq!(figures(&answer, "b", ""), (2, 2, 0, 9 + 8));
    assert_eq!(answer.tree.unwrap().singles.len(), 2);
    let caller = Filters {
        pids: vec![901],
        ..Filters::default()
    };
    assert_eq!(tree(&graph(&events, &[], caller)), [("a".into(), 1, 4, 4)]);
}

#[test]
fn the_tracers_times_hold_whatever_was_lost() {
    let events = [into(10, CALLER, A, 0), out(90, CALLER, A, 0, 33)];
    let answer = graph(&events, &[Side::Lost { time: 50 }], Filters::default());
    assert_eq!(figures(&answer, "a", ""), (1, 1, 0, 33));
    // Without these, the events' own times count, but only if they surely belong together.
    let events = [
        into(10, CALLER, A, 0),
        ev(90, CALLER, OUT, &[A + 4, 0]),
        into(100, CALLER, A, 0),
        ev(107, CALLER, OUT, &[A + 4, 0]),
    ];
    let answer = graph(&events, &[Side::Lost { time: 50 }], Filters::default());
    assert_eq!(figures(&answer, "a", ""), (2, 1, 1, 7));
}

#[test]
fn idle_tasks_of_two_cpus_are_two() {
    // Both have number 0; `ev` derives the CPU from the time.
    let answer = graph(
        &[
            into(10, 0, A, 0),
            into(11, 0, B, 0),
            out(20, 0, A, 0, 9),
            out(21, 0, B, 0, 8),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "a", ""), (1, 1, 0, 9));
    assert_eq!(figures(&answer, "b", ""), (1, 1, 0, 8));
}

#[test]
fn functions_without_a_name_have_their_address() {
    let answer = graph(
        &[
            into(1, CALLER, 0x500, 0), // no function begins near there
            out(2, CALLER, 0x500, 0, 1),
            into(3, CALLER, C + 0x1000, 0),
            out(4, CALLER, C + 0x1000, 0, 1),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "0x504", ""), (1, 1, 0, 1));
    assert_eq!(figures(&answer, "0xffff800000004004", ""), (1, 1, 0, 1));
}

#[test]
fn a_kernel_functions_operation_is_that_of_the_requests_in_it() {
    let events = [
        into(10, CALLER, A, 0),
        into(20, CALLER, C, 1),
        ev(30, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
        out(40, CALLER, C, 1, 5),
        ev(50, CALLER, BEGIN, &[4, MOUNT, OP_GETATTR]),
        out(60, CALLER, A, 0, 50),
        into(70, CALLER, C, 0),
        out(80, CALLER, C, 0, 7),
    ];
    let split = Filters {
        by_operation: true,
        ..Filters::default()
    };
    let answer = graph(&events, &[], split.clone());
    assert_eq!(figures(&answer, "a", "lookup"), (1, 1, 0, 50));
    assert_eq!(figures(&answer, "a", "getattr"), (1, 1, 0, 50));
    assert_eq!(figures(&answer, "fuse_read", "lookup"), (1, 1, 0, 5));
    assert_eq!(figures(&answer, "fuse_read", "read"), (1, 1, 0, 7));
    // An opcode without a name has its number.
    let mut later = events;
    later[4] = ev(50, CALLER, BEGIN, &[4, MOUNT, 77]);
    let answer = graph(&later, &[], split.clone());
    assert_eq!(figures(&answer, "a", "opcode_77"), (1, 1, 0, 50));
    // Each call once.
    let answer = graph(&events, &[], Filters::default());
    assert_eq!(figures(&answer, "a", ""), (1, 1, 0, 50));
    assert_eq!(figures(&answer, "fuse_read", "read"), (2, 2, 0, 12));
    // With a mount selected: the calls that made a request of it.
    let other = Filters {
        connections: vec![MOUNT + 1],
        ..split.clone()
    };
    assert_eq!(
        figures(&graph(&events, &[], other), "a", "lookup"),
        (0, 0, 0, 0)
    );
    let mount = Filters {
        connections: vec![MOUNT],
        ..split
    };
    let answer = graph(&events, &[], mount);
    assert_eq!(figures(&answer, "a", "lookup"), (1, 1, 0, 50));
    assert_eq!(figures(&answer, "fuse_read", "read"), (0, 0, 0, 0));
}

#[test]
fn endless_depth_and_endless_functions_are_bounded() {
    let mut events: Vec<Ev> = (0..10_000).map(|i| into(i, CALLER, A, i)).collect();
    let answer = graph(&events, &[], Filters::default());
    assert_eq!(figures(&answer, "a", ""), (10_000, 0, 10_000, 0));
    events = (0..100_000).map(|i| into(i, CALLER, 64 * i, 0)).collect();
    let answer = graph(&events, &[], Filters::default());
    let entries: u64 = answer.series.iter().map(|s| s.entries).sum();
    assert_eq!(entries, 100_000);
    assert!(answer.series.len() <= (1 << 16) + 1);
    assert!(answer.tree.unwrap().full);
}

// Requests by the address of the kernel's structure

const REQ: u64 = 0xffff_8880_0000_0040;

#[test]
fn an_address_is_a_request_from_its_begin_to_its_end() {
    let answer = run(
        &[
            ev(10, CALLER, BEGIN, &[0, ABSENT, OP_LOOKUP, REQ]),
            ev(12, 501, SENT, &[2, ABSENT, 1, REQ]),
            ev(13, 501, LOOKUP, &[2]),
            ev(14, 501, SENT, &[2, ABSENT, 0, REQ]), // the reply is copied
            ev(15, 501, END, &[2, ABSENT, 0, REQ]),
            ev(16, 501, LOOKUP_RETURN, &[]),
            ev(20, CALLER, BEGIN, &[0, ABSENT, OP_GETATTR, REQ]),
            ev(21, CALLER, WAIT, &[4, ABSENT, ABSENT, REQ]),
            ev(40, 501, END, &[4, ABSENT, -2i64 as u64, REQ]),
            ev(43, CALLER, WAIT_RETURN, &[]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (1, 1, 0, 5));
    assert_eq!(figures(&answer, "FUSE_GETATTR", "getattr"), (1, 1, 0, 20));
}

#[test]
fn an_address_is_used_again_after_an_end_that_was_not_seen() {
    let answer = run(
        &[
            ev(10, CALLER, BEGIN, &[2, ABSENT, OP_LOOKUP, REQ]),
            ev(20, CALLER, BEGIN, &[4, ABSENT, OP_LOOKUP, REQ]),
            ev(29, 501, END, &[4, ABSENT, 0, REQ]),
            ev(30, CALLER, BEGIN, &[6, ABSENT, OP_LOOKUP, REQ]), // neither its end …
            ev(50, 501, END, &[8, ABSENT, 0, REQ]),              // … nor the begin of this was seen
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (3, 1, 2, 9));
    assert_eq!(
        (
            answer.requests.begun,
            answer.requests.ended,
            answer.requests.matched
        ),
        (3, 2, 1)
    );
}

#[test]
fn a_kprobes_begin_ends_by_a_tracepoint() {
    let answer = run(
        &[
            ev(10, CALLER, BEGIN, &[0, ABSENT, OP_LOOKUP, REQ]),
            ev(11, CALLER, BEGIN, &[0, ABSENT, OP_LOOKUP, REQ + 64]),
            ev(12, 501, SENT, &[4, ABSENT, ABSENT, REQ + 64]),
            ev(13, 502, SENT, &[2, ABSENT, ABSENT, REQ]),
            ev(20, 502, END, &[2, MOUNT, 0]),
            ev(31, 501, END, &[4, MOUNT, 0]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (2, 2, 0, 30));
    // And the reverse.
    let answer = run(
        &[
            ev(10, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
            ev(15, 501, END, &[2, ABSENT, 0, REQ]),
        ],
        &[],
        Filters::default(),
    );
    assert_eq!(figures(&answer, "FUSE_LOOKUP", "lookup"), (1, 1, 0, 5));
}

#[test]
fn the_daemon_distinguishes_requests_of_two_mounts() {
    // The same number on two mounts at one time, and no event with a connection.
    let events = [
        ev(1, CALLER, ENTER, &[SYS_STAT]),
        ev(10, CALLER, BEGIN, &[0, ABSENT, OP_LOOKUP, REQ]),
        ev(11, 901, BEGIN, &[0, ABSENT, OP_LOOKUP, REQ + 64]),
        ev(12, 501, SENT, &[2, ABSENT, 1, REQ]),
        ev(13, 601, SENT, &[2, ABSENT, 1, REQ + 64]),
        ev(14, 501, LOOKUP, &[2]),
        ev(16, 501, LOOKUP_RETURN, &[]),
        ev(20, 501, END, &[2, ABSENT, 0, REQ]),
        ev(30, CALLER, EXIT, &[SYS_STAT, 0]),
        ev(31, 601, END, &[2, ABSENT, 0, REQ + 64]),
    ];
    let of = |connections: Vec<u64>| {
        let filters = Filters {
            connections,
            daemons: vec![(DAEMON, MOUNT), (601, MOUNT + 1)],
            ..Filters::default()
        };
        let answer = run(&events, &[], filters);
        (
            figures(&answer, "FUSE_LOOKUP", "lookup"),
            figures(&answer, "cvmfs_lookup", "lookup"),
            figures(&answer, "stat", "lookup"),
        )
    };
    let nothing = (0, 0, 0, 0);
    assert_eq!(
        of(vec![MOUNT]),
        ((1, 1, 0, 10), (1, 1, 0, 2), (1, 1, 0, 29))
    );
    assert_eq!(of(vec![MOUNT + 1]), ((1, 1, 0, 20), nothing, nothing));
    assert_eq!(of(vec![99]), (nothing, nothing, nothing));
    assert_eq!(of(vec![]).0, (2, 2, 0, 30));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_of_a_whole_recording_is_paired(steps in steps(), batch in 1..50usize) {
        let (events, calls) = play(&steps);
        let mut analysis = Analysis::new(&catalogue(), Filters::default(), None, 0, Detail::Columns);
        for part in events.chunks(batch) {
            analysis.push(&Batch { events: part.to_vec(), side: vec![], stacks: vec![] });
        }
        let answer = analysis.finish();
        prop_assert_eq!(paired(&answer), calls);
        let unmatched: u64 = answer.series.iter().map(|s| s.unmatched + s.unanswered).sum();
        let entered = events.iter().filter(|e| e.kind % 2 == 0).count();
        prop_assert_eq!(unmatched, (entered - paired(&answer).len()) as u64);
    }

    /// If events are missing unnoticed, each of the others is counted once: in a pair or as unmatched.
    #[test]
    fn every_event_of_a_damaged_recording_is_accounted_for(steps in steps()) {
        let (events, _) = play(&steps);
        let recorded = events.iter().zip(steps.iter().cycle()).filter(|(_, step)| step.recorded);
        let recorded: Vec<Ev> = recorded.map(|(event, _)| *event).collect();
        let answer = run(&recorded, &[], Filters::default());
        for (function, operation, entry) in [("cvmfs_lookup", "lookup", LOOKUP), ("cvmfs_read", "read", READ)] {
            let entries = recorded.iter().filter(|e| e.kind == entry).count() as u64;
            let returns = recorded.iter().filter(|e| e.kind == entry + 1).count() as u64;
            let (entered, matched, unmatched, _) = figures(&answer, function, operation);
            prop_assert_eq!(entered, entries);
            prop_assert_eq!(2 * matched + unmatched, entries + returns);
        }
    }

    /// If the recorder reports when events were lost, every pair that is made is a true one. This is for calls that do
    /// not nest: no event distinguishes an outer call's return from that of an inner call which lost its entry.
    #[test]
    fn no_pair_is_wrong_where_losses_are_reported(steps in steps()) {
        let mut flat = Vec::new();
        for step in steps {
            flat.push(Step { enter: None, ..step.clone() });
            flat.push(step);
        }
        let (events, calls) = play(&flat);
        let (mut recorded, mut side) = (Vec::new(), Vec::new());
        for (event, step) in events.iter().zip(flat.iter().cycle()) {
            // Time stamps differ, so that a loss lies between two events.
            let time = event.time * 2;
            if step.recorded {
                recorded.push(Ev { time, ..*event });
            } else {
                side.push(Side::Lost { time: time + 1 });
            }
        }
        for call in paired(&run(&recorded, &side, Filters::default())) {
            prop_assert!(calls.contains(&(call.0, call.1 / 2, call.2 / 2)), "{call:?}");
        }
    }

    /// Any recording gives an answer, whose figures fit together.
    #[test]
    fn any_events_give_an_answer(
        events in proptest::collection::vec(any_event(), 0..300),
        side in proptest::collection::vec(any_side(), 0..20),
        detail in any_detail(),
        caller in proptest::option::of(0..4i32),
    ) {
        let filters = Filters {
            pids: caller.into_iter().collect(),
            daemons: vec![(1, MOUNT)],
            from: caller.map(|_| u64::MAX),
            ..Filters::default()
        };
        let mut analysis = Analysis::new(&catalogue(), filters, Some("aarch64"), 5, detail);
        analysis.push(&Batch { events, side, stacks: vec![] });
        let answer = analysis.finish();
        for s in &answer.series {
            prop_assert!(s.hist.count() <= s.entries);
            prop_assert_eq!(s.hist.buckets().iter().map(|b| b.2).sum::<u64>(), s.hist.count());
        }
        prop_assert!(answer.requests.matched <= answer.requests.begun.min(answer.requests.ended));
        prop_assert_eq!(answer.columns.is_some(), detail == Detail::Columns);
        prop_assert_eq!(answer.tree.is_some(), matches!(detail, Detail::Tree | Detail::Calls));
    }
}

fn any_detail() -> impl Strategy<Value = Detail> {
    prop_oneof![
        Just(Detail::None),
        Just(Detail::Columns),
        Just(Detail::Tree),
        Just(Detail::Calls)
    ]
}

fn any_value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4u64,
        Just(63),
        Just(MOUNT),
        Just(1 << 32),
        Just(ABSENT),
        any::<u64>()
    ]
}

fn any_event() -> impl Strategy<Value = Ev> {
    let time = prop_oneof![0..100u64, any::<u64>()];
    let values = [any_value(), any_value(), any_value(), any_value()];
    (time, -1..4i32, 0..20u32, values).prop_map(|(time, tid, kind, v)| Ev {
        time,
        pid: tid / 2,
        tid,
        kind,
        cpu: 0,
        v,
    })
}

fn any_side() -> impl Strategy<Value = Side> {
    (0..100u64, 0..4i32, 0..4i32, 0..4u8).prop_map(|(time, tid, other, kind)| match kind {
        0 => Side::Exit {
            time,
            pid: tid,
            tid,
        },
        1 => Side::Fork {
            time,
            pid: tid,
            tid,
            ppid: other,
            ptid: other,
        },
        2 => Side::Comm {
            time,
            pid: tid,
            tid,
            comm: "find".into(),
        },
        _ => Side::Lost { time },
    })
}

/// At the beginning of a flight recording, threads are in calls: their returns are not lost, but a later one is.
#[test]
fn calls_that_began_before() {
    let events = [
        ev(10, 501, READ, &[2]),
        ev(20, 501, READ_RETURN, &[]),
        ev(30, 501, LOOKUP_RETURN, &[]),
        ev(40, 501, LOOKUP_RETURN, &[]),
        ev(50, 501, READ_RETURN, &[]),
        ev(60, 502, READ_RETURN, &[]),
    ];
    let before = Filters {
        begun_before: true,
        ..Filters::default()
    };
    let lost = |filters| {
        let answer = run(&events, &[], filters);
        let of = |name, operation| series(&answer, name, operation).map_or(0, |s| s.unmatched);
        (of("cvmfs_lookup", "lookup"), of("cvmfs_read", "read"))
    };
    assert_eq!(lost(Filters::default()), (2, 2));
    assert_eq!(lost(before), (1, 1));
}

/// A stat with a lookup, whose callback makes a system call of its own.
const CORRECTED: [(u64, i32, u32, [u64; 3]); 12] = [
    (100, 501, ENTER, [SYS_READ, 0, 0]),
    (1000, CALLER, ENTER, [SYS_STAT, 0, 0]),
    (3000, CALLER, BEGIN, [2, MOUNT, OP_LOOKUP]),
    (5000, 501, EXIT, [SYS_READ, 64, 0]),
    (8000, 501, LOOKUP, [2, ABSENT, ABSENT]),
    (9000, 501, ENTER, [SYS_PREAD, 0, 0]),
    (10000, 501, EXIT, [SYS_PREAD, 1, 0]),
    (20000, 501, ENTER, [SYS_WRITEV, 0, 0]),
    (24000, 501, END, [2, MOUNT, 0]),
    (26000, 501, EXIT, [SYS_WRITEV, 16, 0]),
    (28000, 501, LOOKUP_RETURN, [ABSENT, ABSENT, ABSENT]),
    (30000, CALLER, EXIT, [SYS_STAT, 0, 0]),
];
const SYS_WRITEV: u64 = 20;

fn corrected(events: &[Ev], event: u64, pair: u64) -> Answer {
    let filters = Filters {
        cost: Some(Cost { event, pair }),
        corrected: true,
        daemons: vec![(DAEMON, MOUNT)],
        windows: true,
        ..Filters::default()
    };
    run(events, &[], filters)
}

/// Return the ns of the request, of the system call, of the callback, and of the callback until its reply.
fn lengths(answer: &Answer) -> [u64; 4] {
    let sum = |function: &str| figures(answer, function, "lookup").3;
    let callback = series(answer, "cvmfs_lookup", "lookup");
    let until = callback.and_then(|callback| callback.until_reply.as_ref());
    [
        sum("FUSE_LOOKUP"),
        sum("stat"),
        sum("cvmfs_lookup"),
        until.map_or(0, |until| until.sum() as u64),
    ]
}

#[test]
fn cost_of_recording_is_subtracted() {
    let events = CORRECTED.map(|(time, tid, kind, v)| ev(time, tid, kind, &v));
    let recorded = [21000, 29000, 20000, 12000];
    assert_eq!(lengths(&run(&events, &[], Filters::default())), recorded);
    assert_eq!(lengths(&corrected(&events, 0, 0)), recorded);
    // Request: the queueing, the read's end, the inner call's two events, the write's entry. System call: also its own
    // entry and the request's end. Callback: the inner call's two, the write's two and the end.
    let less = |taken: [u64; 4]| [0, 1, 2, 3].map(|i| recorded[i] - taken[i]);
    assert_eq!(lengths(&corrected(&events, 1, 0)), less([5, 7, 5, 2]));
    // The first half of the entry's probe is before the callback, the second half of the return's after it.
    assert_eq!(lengths(&corrected(&events, 0, 4)), less([4, 4, 2, 2]));
    assert_eq!(
        lengths(&corrected(&events, 100, 1602)),
        less([500 + 1601, 700 + 1601, 500 + 801, 200 + 801])
    );
    // No stage loses more than it has.
    assert_eq!(lengths(&corrected(&events, 1 << 40, 0)), [0, 0, 0, 0]);
}

/// A system call that waits for none of its requests loses only its own thread's events.
#[test]
fn a_system_call_that_waits_for_nothing() {
    let released = [
        ev(1000, CALLER, ENTER, &[SYS_STAT]),
        ev(2000, CALLER, BEGIN, &[2, MOUNT, OP_RELEASE]),
        ev(3000, CALLER, EXIT, &[SYS_STAT, 0]),
        ev(9000, 501, END, &[2, MOUNT, 0]),
    ];
    let ns = |answer: &Answer| figures(answer, "stat", "release").3;
    assert_eq!(ns(&run(&released, &[], Filters::default())), 2000);
    assert_eq!(ns(&corrected(&released, 100, 1602)), 2000 - 2 * 100);
}

/// A daemon without callbacks: from the read to the reply.
#[test]
fn cost_is_subtracted_from_read_to_reply() {
    let events = CORRECTED.map(|(time, tid, kind, v)| ev(time, tid, kind, &v));
    let without: Vec<Ev> = events
        .into_iter()
        .filter(|ev| ![LOOKUP, LOOKUP_RETURN].contains(&ev.kind))
        .collect();
    let ns = |answer: &Answer| figures(answer, "read to reply", "lookup").3;
    assert_eq!(ns(&corrected(&without, 0, 0)), 15000);
    // The read's end, and the inner call's two events.
    assert_eq!(ns(&corrected(&without, 100, 1602)), 15000 - 3 * 100);
}

/// A compiler may have inlined the callbacks of some operations.
#[test]
fn read_to_reply_is_for_operations_without_a_callback() {
    let mut events = CORRECTED
        .map(|(time, tid, kind, v)| ev(time, tid, kind, &v))
        .to_vec();
    // A getattr, and a lookup whose callback was lost.
    for (unique, opcode) in [(4, 3), (6, 1)] {
        let more = CORRECTED
            .iter()
            .filter(|row| ![LOOKUP, LOOKUP_RETURN].contains(&row.2));
        events.extend(more.map(|&(time, tid, kind, v)| {
            let mut event = ev(time + unique * 100_000, tid, kind, &v);
            if [BEGIN, SENT, END].contains(&kind) {
                event.v[0] = unique;
            }
            if kind == BEGIN {
                event.v[2] = opcode;
            }
            event
        }));
    }
    let answer = corrected(&events, 0, 0);
    assert_eq!(figures(&answer, "read to reply", "getattr").3, 15000);
    assert!(series(&answer, "read to reply", "lookup").is_none());
    assert!(series(&answer, "cvmfs_lookup", "lookup").is_some());
}

/// With detail latency, what a ring brings is not recorded; only its command, which takes the reply, is.
#[test]
fn no_read_to_reply_where_reads_are_not_recorded() {
    let committed = ROWS.len() as u32;
    let mut rows = catalogue();
    rows.push(Meaning {
        event: "io_uring:io_uring_submit_req".into(),
        layer: Layer::Syscall,
        function: String::new(),
        operation: String::new(),
        role: Role::Committed,
    });
    let filters = Filters {
        windows: true,
        daemons: vec![(DAEMON, MOUNT)],
        ..Filters::default()
    };
    for by_ring in [true, false] {
        let mut analysis =
            Analysis::new(&rows, filters.clone(), Some("x86_64"), 0, Detail::default());
        let mut events = vec![ev(1000, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP])];
        if by_ring {
            events.push(ev(2000, DAEMON, committed, &[0xf00, 1, 46, 0]));
        }
        events.push(ev(3000, DAEMON, END, &[2, MOUNT, 0]));
        analysis.push(&Batch {
            events,
            ..Batch::default()
        });
        let answer = analysis.finish();
        assert_eq!(
            figures(&answer, "read to reply", "lookup").2,
            u64::from(!by_ring)
        );
    }
}

/// The cost in each request is also subtracted from its system call, even if that has not returned.
#[test]
fn requests_of_one_system_call() {
    let mut events = vec![
        ev(1000, CALLER, ENTER, &[SYS_STAT]),
        ev(2000, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
        ev(4000, 501, END, &[2, MOUNT, 0]),
        ev(5000, CALLER, BEGIN, &[4, MOUNT, OP_LOOKUP]),
        ev(7000, 501, END, &[4, MOUNT, 0]),
        ev(9000, CALLER, EXIT, &[SYS_STAT, 0]),
    ];
    let ns = |answer: &Answer| figures(answer, "stat", "lookup").3;
    // The call's entry; for each request the queueing and the read's end; after the last the request's end.
    let taken = [1 + 2, 2 + 1];
    assert_eq!(
        ns(&corrected(&events, 100, 1602)),
        8000 - 100 * (taken[0] + taken[1])
    );
    // The first request is over when a third one is made; the second may still be the last.
    events.truncate(5);
    events.push(ev(8000, CALLER, BEGIN, &[6, MOUNT, OP_LOOKUP]));
    events.push(ev(9000, 502, ENTER, &[SYS_READ]));
    let open = corrected(&events, 100, 1602);
    assert_eq!(
        figures(&open, "stat", "lookup"),
        (1, 0, 1, 8000 - 100 * taken[0])
    );
}

#[test]
fn cost_is_subtracted_from_an_open_callback() {
    let events = CORRECTED[..7].iter();
    let events: Vec<Ev> = events
        .map(|(time, tid, kind, v)| ev(*time, *tid, *kind, v))
        .collect();
    let ns = |answer: &Answer| figures(answer, "cvmfs_lookup", "lookup");
    assert_eq!(ns(&corrected(&events, 0, 0)), (1, 0, 1, 2000));
    // The inner call's entry, and its return, with which the recording ends: that event is its thread's, too.
    assert_eq!(
        ns(&corrected(&events, 100, 1602)),
        (1, 0, 1, 2000 - 2 * 100 - 801)
    );
}

/// A daemon of which only replies are known: from the read on. Half of the reply's probe is before its time stamp.
#[test]
fn cost_is_subtracted_from_replies() {
    let mut events = CORRECTED.map(|(time, tid, kind, v)| ev(time, tid, kind, &v));
    events[4].kind = u32::MAX;
    events[7] = ev(15000, 501, REPLY, &[2]);
    let ns = |answer: &Answer| figures(answer, "fuse_reply_err", "lookup").3;
    assert_eq!(ns(&corrected(&events, 0, 0)), 10000);
    assert_eq!(ns(&corrected(&events, 100, 0)), 10000 - 3 * 100);
    assert_eq!(ns(&corrected(&events, 0, 1602)), 10000 - 400);
}

/// virtiofs: its daemon is on another machine, and no part of its requests is "read to reply".
#[test]
fn no_read_to_reply_where_nobody_reads() {
    for (daemons, unmatched) in [(vec![], 0), (vec![(DAEMON, MOUNT)], 1)] {
        let filters = Filters {
            windows: true,
            daemons,
            ..Filters::default()
        };
        let mut analysis =
            Analysis::new(&catalogue(), filters, Some("x86_64"), 0, Detail::default());
        analysis.push(&Batch {
            events: vec![
                ev(1000, CALLER, BEGIN, &[2, MOUNT, OP_LOOKUP]),
                ev(3000, CALLER, END, &[2, MOUNT, 0]),
            ],
            ..Batch::default()
        });
        let answer = analysis.finish();
        assert_eq!(figures(&answer, "read to reply", "lookup").2, unmatched);
    }
}
