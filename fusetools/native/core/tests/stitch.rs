//! Requests' stories from events made by hand.

use fusetools_core::cost::Cost;
use fusetools_core::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};
use fusetools_core::operations::PAGE_FAULT;
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::stitch::Cut;
use fusetools_core::requests::stitch::{Fate, Mark, MountCall, Stitch, Story, MARK_NAMES, OUTSIDE};
use proptest::prelude::*;

const DAEMON: i32 = 500;
const OTHER: i32 = 600;
const MOUNT: u64 = 45;
/// Functions of the kernel, for function_graph.
const FUNCTIONS: [(u64, &str); 4] = [
    (0x1000, "fuse_lookup"),
    (0x2000, "request_wait_answer"),
    (0x3000, "fuse_dev_do_read.isra.0"),
    (0x4000, "fuse_dev_do_write"),
];

#[rustfmt::skip]
const ROWS: [(&str, &str, Layer, &str, &str, Role); 28] = [
    ("begin", "fuse:fuse_request_send", Layer::Request, "", "", Role::Begin),
    ("sent", "fuse:fuse_request_sent", Layer::Request, "", "", Role::Sent),
    ("end", "fuse:fuse_request_end", Layer::Request, "", "", Role::End),
    ("enter", "raw_syscalls:sys_enter", Layer::Syscall, "", "", Role::SysEnter),
    ("exit", "raw_syscalls:sys_exit", Layer::Syscall, "", "", Role::SysExit),
    ("switch", "sched:sched_switch", Layer::Syscall, "", "", Role::Switch),
    ("waking", "sched:sched_waking", Layer::Syscall, "", "", Role::Waking),
    ("signal", "signal:signal_generate", Layer::Syscall, "", "", Role::Signal),
    ("lookup", "fuse_daemon:cvmfs_lookup", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Entry),
    ("lookup__return", "fuse_daemon:cvmfs_lookup__return", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Return),
    ("read", "fuse_daemon:cvmfs_read", Layer::Daemon, "cvmfs_read", "read", Role::Entry),
    ("read__return", "fuse_daemon:cvmfs_read__return", Layer::Daemon, "cvmfs_read", "read", Role::Return),
    ("forget", "fuse_daemon:cvmfs_forget", Layer::Daemon, "cvmfs_forget", "forget", Role::Entry),
    ("forget__return", "fuse_daemon:cvmfs_forget__return", Layer::Daemon, "cvmfs_forget", "forget", Role::Return),
    ("fuse_lookup", "fuse_kernel:fuse_lookup", Layer::Kernel, "fuse_lookup", "lookup", Role::Entry),
    ("fuse_lookup__return", "fuse_kernel:fuse_lookup__return", Layer::Kernel, "fuse_lookup", "lookup", Role::Return),
    ("reply", "fuse_daemon:fuse_reply_err", Layer::Daemon, "fuse_reply_err", "", Role::Reply),
    ("stub", "fuse_daemon:stub_lookup", Layer::Daemon, "stub_lookup", "lookup", Role::Entry),
    ("stub__return", "fuse_daemon:stub_lookup__return", Layer::Daemon, "stub_lookup", "lookup", Role::Return),
    ("wait", "fuse_kernel:request_wait_answer", Layer::Kernel, "request_wait_answer", "", Role::Entry),
    ("wait__return", "fuse_kernel:request_wait_answer__return", Layer::Kernel, "request_wait_answer", "", Role::Return),
    ("into", "ftrace:funcgraph_entry", Layer::Kernel, "", "", Role::GraphEntry),
    ("out", "ftrace:funcgraph_exit", Layer::Kernel, "", "", Role::GraphExit),
    ("length", "fuse:fuse_request_end", Layer::Request, "", "", Role::Length),
    ("bytes", "fuse:fuse_request_send", Layer::Request, "", "", Role::Length),
    ("fetched", "io_uring:io_uring_complete", Layer::Syscall, "", "", Role::Fetched),
    ("commit", "io_uring:io_uring_submit_req", Layer::Syscall, "", "", Role::Committed),
    ("await", "io_uring:io_uring_cqring_wait", Layer::Syscall, "", "", Role::RingWait),
];
const OF_RINGS: [&str; 3] = ["fetched", "commit", "await"];

/// Script with a line `TIME TID KIND VALUE…` for each event. Threads of the daemons are 500 to 599 and 600 to 699.
/// Kinds: `begin UNIQUE OPCODE [CONNECTION [REQ]]`, `end UNIQUE ERROR [CONNECTION [REQ]]`; for rings, which
/// `with_rings` records, `fetched RING MARK RESULT`, `commit RING MARK OPCODE BY_KERNEL`, `await RING`.
struct Script {
    without: Vec<&'static str>,
    daemons: Vec<(i32, u64)>,
}

impl Script {
    fn new() -> Script {
        Script {
            without: OF_RINGS.to_vec(),
            daemons: vec![(DAEMON, MOUNT), (OTHER, MOUNT + 1)],
        }
    }

    fn with_rings() -> Script {
        Script {
            without: Vec::new(),
            ..Script::new()
        }
    }

    fn without(mut self, kinds: &[&'static str]) -> Script {
        self.without.extend(kinds);
        self
    }

    fn run(&self, text: &str) -> Vec<Story> {
        self.run_with_calls(text).0
    }

    fn run_with_calls(&self, text: &str) -> (Vec<Story>, Vec<MountCall>) {
        let rows: Vec<_> = ROWS
            .iter()
            .filter(|row| !self.without.contains(&row.0))
            .collect();
        let catalogue: Vec<Meaning> = rows
            .iter()
            .map(|(_, event, layer, function, operation, role)| Meaning {
                event: event.to_string(),
                layer: *layer,
                function: function.to_string(),
                operation: operation.to_string(),
                role: *role,
            })
            .collect();
        let filters = Filters {
            daemons: self.daemons.clone(),
            functions: FUNCTIONS
                .iter()
                .map(|(at, name)| (*at, name.to_string(), String::new()))
                .collect(),
            ..Filters::default()
        };
        let mut stitch = Stitch::new(&catalogue, filters, Some("x86_64"), 0, 0xff);
        stitch.collect_calls();
        let mut batch = Batch::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse::<i64>().unwrap();
            let (time, tid) = (number(words[0]) as u64, number(words[1]) as i32);
            let pid = match tid / 100 {
                5 => DAEMON,
                6 => OTHER,
                _ => tid,
            };
            if words[2] == "lost" {
                batch.side.push(Side::Lost { time });
                continue;
            }
            if words[2] == "ends" {
                batch.side.push(Side::Exit { time, pid, tid });
                continue;
            }
            if words[2] == "forks" {
                let parent = number(words[3]) as i32;
                let (ppid, ptid) = (parent, parent);
                batch.side.push(Side::Fork {
                    time,
                    pid,
                    tid,
                    ppid,
                    ptid,
                });
                continue;
            }
            if words[2] == "runs" {
                let (out, preempt) = (false, false);
                batch.side.push(Side::Switch {
                    time,
                    pid,
                    tid,
                    out,
                    preempt,
                });
                continue;
            }
            assert!(ROWS.iter().any(|row| row.0 == words[2]), "{line}");
            let Some(kind) = rows.iter().position(|row| row.0 == words[2]) else {
                continue;
            };
            let mut v = [ABSENT; 4];
            for (place, word) in v.iter_mut().zip(&words[3..]) {
                *place = number(word) as u64;
            }
            if matches!(
                rows[kind].5,
                Role::Begin | Role::End | Role::Sent | Role::Length
            ) {
                let connection = if v[2] == ABSENT { MOUNT } else { v[2] };
                v = [v[0], connection, v[1], v[3]];
            }
            batch.events.push(Ev {
                time,
                pid,
                tid,
                kind: kind as u32,
                cpu: 0,
                v,
            });
        }
        let mut stories = Vec::new();
        stitch.push(&batch, &mut |story, _| stories.push(story.clone()));
        stitch.rest(&mut |story, _| stories.push(story.clone()));
        stories.sort_by_key(Story::start);
        (stories, stitch.take_calls())
    }
}

/// Return the marks that were seen: `sys_enter 100, begin 110 …`.
fn seen(story: &Story) -> String {
    let marks = MARK_NAMES.iter().zip(story.marks);
    let seen = marks.filter(|(_, time)| *time != ABSENT);
    seen.map(|(name, time)| format!("{name} {time}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A caller sleeps for a reply.
const STAT: &str = "
    50 500 enter 0
    51 500 switch 500 1 900
    100 900 enter 262
    105 900 fuse_lookup
    110 900 begin 2 1
    112 900 waking 500
    120 900 switch 900 1 500
    130 500 exit 0 49
    140 500 lookup 2
    150 500 enter 262
    160 500 switch 500 1 0
    165 0 waking 500
    170 0 switch 0 0 500
    180 500 exit 262 0
    190 500 enter 20
    200 500 end 2 0
    202 500 waking 900
    205 500 exit 20 49
    210 500 lookup__return
    215 500 enter 0
    220 500 switch 500 1 900
    225 900 fuse_lookup__return
    230 900 exit 262 0
";

#[test]
fn one_request() {
    let stories = Script::new().run(STAT);
    let [story] = &stories[..] else {
        panic!("{stories:?}")
    };
    assert_eq!(
        seen(story),
        "sys_enter 100, kernel_enter 105, begin 110, daemon_waking 112, daemon_runs 120, read 130, \
         callback_enter 140, reply 190, end 200, waking 202, runs 220, kernel_exit 225, sys_exit 230, \
         callback_return 210"
    );
    assert_eq!(
        (story.fate, story.waits, story.nth),
        (Fate::Matched, true, 0)
    );
    assert_eq!(
        (story.tid, story.daemon_tid, story.syscall),
        (900, 500, 262)
    );
    assert_eq!((story.no_thread, story.asleep), (0, 10));
    assert_eq!((story.blocked, story.runnable, story.elsewhere), (5, 5, 0));
}

/// A caller makes two requests in one call; no event shows that it runs after the first one.
#[test]
fn an_unrecorded_switch() {
    let stories = Script::new().run(
        "
    100 900 enter 262
    110 900 begin 2 1
    120 900 switch 900 1 500
    130 500 exit 0 49
    140 500 lookup 2
    160 500 end 2 0
    165 500 waking 900
    200 900 begin 4 3
    203 900 switch 900 0 500
    206 500 switch 500 0 900
    210 900 switch 900 1 500
    240 500 lookup 4
    260 500 end 4 0
    265 500 waking 900
    270 500 switch 500 1 900
    280 900 exit 262 0
",
    );
    let at = |story: &Story, mark: Mark| Some(story.marks[mark as usize]).filter(|t| *t != ABSENT);
    let runs: Vec<_> = stories.iter().map(|story| at(story, Mark::Runs)).collect();
    let exits: Vec<_> = stories
        .iter()
        .map(|story| at(story, Mark::SysExit))
        .collect();
    assert_eq!(
        (runs, exits),
        (vec![None, Some(270)], vec![None, Some(280)])
    );
}

/// The thread that replies is preempted at once, and the caller's next request waits for it.
const PREEMPTED: &str = "
    100 900 enter 262
    110 900 begin 2 1
    120 900 switch 900 1 500
    130 500 exit 0 49
    140 500 lookup 2
    150 500 enter 20
    160 500 end 2 0
    170 500 switch 500 0 900
    180 900 exit 262 0
    190 900 enter 262
    200 900 begin 4 1
    210 900 switch 900 1 500
    AFTER 500 lookup__return
    390 500 enter 0
    400 500 exit 0 49
    410 500 lookup 4
    420 500 enter 20
    430 500 end 4 0
    440 500 lookup__return
";

#[test]
fn a_cpu_shortage_after_a_reply_is_no_thread_shortage() {
    let split = |after: &str| {
        let stories = Script::new().run(&PREEMPTED.replace("AFTER", after));
        let story = &stories[1];
        assert_eq!(
            (story.at(Mark::Begin), story.at(Mark::Read)),
            (Some(200), Some(400))
        );
        (story.no_thread, story.no_cpu, story.asleep)
    };
    // Free at 390, and 40 earlier with a CPU: it had none from 170 to 210.
    assert_eq!(split("380"), (150, 40, 0));
    let soon = PREEMPTED.replace("AFTER", "220").replace("390", "230");
    // Free at 230; with a CPU, before the request came.
    assert_eq!(Script::new().run(&soon)[1].no_thread, 0);
    // Asleep after its reply: busy.
    let asleep = PREEMPTED
        .replace("500 0 900", "500 1 900")
        .replace("AFTER", "380");
    let story = &Script::new().run(&asleep)[1];
    assert_eq!((story.no_thread, story.no_cpu), (190, 0));
}

#[test]
fn stories_without_some_events() {
    let all = [
        "stub",
        "stub__return",
        "wait",
        "wait__return",
        "into",
        "out",
        "length",
        "enter",
        "exit",
        "switch",
        "waking",
        "lookup",
        "lookup__return",
        "fuse_lookup",
        "fuse_lookup__return",
        "read",
        "read__return",
        "forget",
        "forget__return",
        "reply",
        "sent",
    ];
    let [story] = &Script::new().without(&all).run(STAT)[..] else {
        panic!()
    };
    assert_eq!(seen(story), "begin 110, end 200");
    assert!(story.waits);
    let [story] = &Script::new().without(&["switch", "waking"]).run(STAT)[..] else {
        panic!()
    };
    assert_eq!(
        seen(story),
        "sys_enter 100, kernel_enter 105, begin 110, read 130, callback_enter 140, reply 190, \
         end 200, kernel_exit 225, sys_exit 230, callback_return 210"
    );
    assert_eq!((story.no_thread, story.blocked), (ABSENT, ABSENT));
}

#[test]
fn fates() {
    let story = |text: &str| Script::new().run(text)[0].clone();
    assert_eq!(story("10 900 begin 2 1").fate, Fate::Unfinished);
    assert_eq!(story("10 900 begin 2 1\n20 0 lost").fate, Fate::Lost);
    assert_eq!(story("10 900 begin 2 1\n20 900 begin 2 1").fate, Fate::Lost);
    assert_eq!(story("20 500 end 2 0").fate, Fate::Before);
    assert_eq!(story("10 0 lost\n20 500 end 2 0").fate, Fate::Lost);
    assert_eq!(story("10 900 begin 0 1").fate, Fate::Unnumbered);
    let killed = story("5 900 enter 262\n10 900 begin 2 1\n20 900 exit 262 -512");
    assert_eq!(killed.fate, Fate::Interrupted);
    let forget = story("5 500 exit 0 64\n10 500 forget 7\n20 500 forget__return");
    assert_eq!(
        (forget.fate, seen(&forget)),
        (
            Fate::NoReply,
            "read 5, callback_enter 10, callback_return 20".to_owned()
        )
    );
    let before = story("10 500 lookup 8\n15 500 enter 20\n20 500 end 8 0\n30 500 lookup__return");
    assert_eq!(before.fate, Fate::Before);
    assert_eq!(before.at(Mark::Reply), Some(15));
    assert_eq!(before.at(Mark::CallbackReturn), Some(30));
}

fn times(story: &Story, marks: &[Mark]) -> Vec<Option<u64>> {
    marks.iter().map(|mark| story.at(*mark)).collect()
}

fn cut(story: &Story) -> String {
    let cut = Cut::new(story);
    let stages: Vec<_> = cut.stages().collect();
    assert_eq!(stages.iter().map(|(_, ns)| ns).sum::<u64>(), cut.total);
    stages
        .iter()
        .map(|(stage, ns)| format!("{} {ns}", stage.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn stages() {
    let whole = &Script::new().run(STAT)[0];
    assert_eq!(
        cut(whole),
        "vfs_entry 5, setup 5, queue 20, dispatch 10, daemon 50, reply 10, caller_wakeup 20, vfs_exit 10"
    );
    for (without, expected) in [
        (
            vec!["fuse_lookup", "fuse_lookup__return", "switch", "waking"],
            "vfs_entry+setup 10, queue 20, dispatch 10, daemon 50, reply 10, caller_wakeup+vfs_exit 30",
        ),
        (
            vec!["lookup", "lookup__return"],
            "vfs_entry 5, setup 5, queue 20, daemon 60, reply 10, caller_wakeup 20, vfs_exit 10",
        ),
        (
            vec!["enter", "exit"],
            "setup 5, queue+dispatch 30, daemon+reply 60, caller_wakeup 20",
        ),
    ] {
        assert_eq!(cut(&Script::new().without(&without).run(STAT)[0]), expected);
    }
}

/// The subtracted work of the recorder is counted by hand.
#[test]
fn cost_is_subtracted_from_stages() {
    let story = &Script::new().run(STAT)[0];
    let less = |event, pair| {
        let cut = Cut::new(story).less(Cost { event, pair });
        let stages: Vec<String> = cut.stages().map(|(_, ns)| ns.to_string()).collect();
        assert_eq!(cut.total + cut.taken(Mark::SysEnter, Mark::SysExit), 130);
        (
            stages.join(" "),
            cut.total,
            cut.taken(Mark::Begin, Mark::End),
        )
    };
    // vfs_entry, setup, queue, dispatch, daemon, reply, caller_wakeup, vfs_exit
    assert_eq!(less(0, 0), ("5 5 20 10 50 10 20 10".to_owned(), 130, 0));
    // The call's entry, and the function's; the queueing, waking and switch; the read's end; the inner call's two
    // events; the write's entry; the end, waking and switch.
    assert_eq!(
        less(1, 0),
        ("3 5 17 9 48 9 17 10".to_owned(), 118, 3 + 1 + 2 + 1)
    );
    assert_eq!(
        less(0, 8),
        ("5 5 20 8 46 8 20 10".to_owned(), 122, 2 + 4 + 2)
    );
    // No stage loses more than it has.
    assert_eq!(
        less(100, 8),
        ("0 5 0 0 0 0 0 10".to_owned(), 15, 20 + 10 + 50 + 10)
    );
}

/// Three requests in one system call, the second in the function that made the first.
#[test]
fn several_in_one_call() {
    let stories = Script::new().run(
        "100 900 enter 257
         105 900 fuse_lookup
         110 900 begin 2 1
         111 900 switch 900 1 500
         130 500 end 2 0
         131 500 waking 900
         140 500 switch 500 1 900
         150 900 begin 4 1
         151 900 switch 900 1 500
         170 500 end 4 0
         171 500 waking 900
         180 500 switch 500 1 900
         185 900 fuse_lookup__return
         190 900 begin 6 14
         191 900 switch 900 1 500
         200 500 end 6 0
         201 500 waking 900
         210 500 switch 500 1 900
         230 900 exit 257 3
         300 900 enter 257
         330 900 exit 257 3",
    );
    let [first, second, third] = &stories[..] else {
        panic!("{stories:?}")
    };
    assert_eq!(
        cut(first),
        "vfs_entry 5, setup 5, queue+dispatch+daemon+reply 20, caller_wakeup 10"
    );
    assert_eq!(
        cut(second),
        "between 0, setup 10, queue+dispatch+daemon+reply 20, caller_wakeup 10"
    );
    assert_eq!(
        cut(third),
        "between+setup 10, queue+dispatch+daemon+reply 10, caller_wakeup 10, vfs_exit 20"
    );
    assert_eq!([first.nth, second.nth, third.nth], [0, 1, 2]);
    // Together they are the system call, of which no time is counted twice.
    let total: u64 = stories.iter().map(|story| Cut::new(story).total).sum();
    assert_eq!(total, 130);
}

/// Pages are read ahead: the caller sleeps for the first, and never for the second.
#[test]
fn read_ahead() {
    let stories = Script::new().run(
        "100 900 enter 0
         110 900 begin 2 15
         112 900 begin 4 15
         120 900 switch 900 2 0
         150 500 end 2 0
         151 500 waking 900
         160 0 switch 0 0 900
         170 900 exit 0 4096
         180 500 end 4 0
         181 500 waking 901
         200 900 enter 0
         210 900 exit 0 4096",
    );
    let [first, second] = &stories[..] else {
        panic!("{stories:?}")
    };
    assert!(first.waits && !second.waits);
    assert_eq!(second.fate, Fate::Matched);
    assert_eq!(
        cut(first),
        "vfs_entry+setup 10, queue+dispatch+daemon+reply 40, caller_wakeup 10, vfs_exit 10"
    );
    assert_eq!(cut(second), "queue+dispatch+daemon+reply 68");
    assert_eq!(seen(second), "begin 112, end 180");
}

/// A release goes out in the background, also from the daemon's thread that ends another request.
#[test]
fn nobody_waits() {
    let stories = Script::new().run(
        "100 900 enter 3
         110 900 begin 2 18
         120 900 exit 3 0
         130 500 exit 0 64
         140 500 enter 20
         150 500 end 2 0
         151 500 begin 4 18
         160 500 exit 20 16
         170 501 exit 0 64
         180 501 enter 20
         190 501 end 4 0",
    );
    for story in &stories {
        assert!(!story.waits && story.fate == Fate::Matched);
    }
    assert_eq!(cut(&stories[0]), "queue 20, daemon 10, reply 10");
    assert_eq!(cut(&stories[1]), "queue 19, daemon 10, reply 10");
}

/// The library answers by itself (ENOSYS): there is no callback.
#[test]
fn without_a_callback() {
    let [story] = &Script::new().run(
        "100 900 enter 3
         110 900 begin 2 25
         120 500 exit 0 64
         121 500 enter 335
         122 500 exit -1 0
         130 500 enter 20
         140 500 end 2 -38
         150 900 exit 3 0",
    )[..] else {
        panic!()
    };
    assert_eq!((story.error, story.daemon_tid), (-38, 500));
    assert_eq!(
        cut(story),
        "vfs_entry+setup 10, queue 10, daemon 10, reply 10, caller_wakeup+vfs_exit 10"
    );
}

/// The callback leaves its request to another thread, which answers later.
#[test]
fn answered_by_another_thread() {
    let [story] = &Script::new().run(
        "100 900 enter 262
         110 900 begin 2 1
         120 500 exit 0 49
         130 500 lookup 2
         140 500 switch 500 1 0
         150 0 waking 500
         155 0 switch 0 0 500
         160 500 lookup__return
         170 500 enter 0
         180 501 enter 20
         190 501 end 2 0
         200 900 exit 262 0",
    )[..] else {
        panic!()
    };
    assert_eq!(
        times(story, &[Mark::CallbackReturn, Mark::Reply]),
        [Some(160), Some(180)]
    );
    assert_eq!(story.daemon_tid, 500);
    assert_eq!(
        (story.blocked, story.runnable, story.elsewhere),
        (10, 5, 20)
    );
}

/// A stub's callback around the real one.
#[test]
fn nested_callbacks() {
    let [story] = &Script::new().run(
        "110 900 begin 2 1
         130 500 stub 2
         135 500 lookup 2
         150 500 end 2 0
         160 500 lookup__return
         170 500 stub__return",
    )[..] else {
        panic!()
    };
    assert_eq!(
        times(story, &[Mark::CallbackEnter, Mark::CallbackReturn]),
        [Some(130), Some(170)]
    );
}

/// io_uring_enter answers, and returns with the next request, although its result may be 0.
#[test]
fn by_io_uring() {
    let [story, ..] = &Script::new().run(
        "110 900 begin 2 1
         120 500 exit 426 0
         130 500 lookup 2
         140 500 lookup__return
         150 500 enter 426
         155 500 end 2 0
         160 900 begin 4 1
         170 500 exit 426 1",
    )[..] else {
        panic!()
    };
    assert!(story.ring);
    assert_eq!(
        times(story, &[Mark::Read, Mark::Reply]),
        [Some(120), Some(150)]
    );
}

/// The thread was preempted after its reply. It got the next request where it left the kernel, by no system call.
const BY_NO_CALL: &str = "
    90 900 begin 2 1
    91 500 fetched 7 33 0
    100 500 enter 426
    101 500 commit 7 33 46 0
    102 500 end 2 0
    103 500 exit 426 1
    104 500 switch 500 0 900
    110 900 begin 4 1
    115 900 switch 900 1 500
    120 500 fetched 7 33 0
    130 500 enter 230
    140 500 exit 230 0
    150 500 enter 426
    151 500 commit 7 33 46 0
    152 500 end 4 0
";

#[test]
fn a_ring_brings_a_request_at_any_time() {
    let [_, story] = &Script::with_rings().run(BY_NO_CALL)[..] else {
        panic!()
    };
    assert!(story.ring && !story.handed);
    assert_eq!((story.reader, story.replier), (500, 500));
    assert_eq!(
        times(story, &[Mark::Read, Mark::Reply]),
        [Some(120), Some(150)]
    );
    assert_eq!((story.no_thread, story.no_cpu), (0, 5));
}

/// A request that a ring brings during other work waits until that is done: until its callback has returned, or its
/// reply is given.
#[test]
fn a_ring_fills_before_its_thread_is_free() {
    let callbacks = "
        50 500 await 7
        51 0 switch 0 0 500
        100 900 begin 2 1
        101 500 fetched 7 33 0
        102 500 exit 426 0
        103 500 lookup 2
        110 901 begin 4 1
        111 901 waking 500
        115 500 fetched 7 44 0
        140 500 lookup__return
        145 500 lookup 4
        160 500 lookup__return
        170 500 enter 426
        171 500 commit 7 33 46 0
        172 500 end 2 0
        173 500 commit 7 44 46 0
        174 500 end 4 0";
    let by_callback = Script::with_rings().run(callbacks);
    let [first, second] = &by_callback[..] else {
        panic!()
    };
    assert_eq!(
        times(first, &[Mark::Read, Mark::Reply]),
        [Some(101), Some(170)]
    );
    assert_eq!(
        times(second, &[Mark::Read, Mark::Reply]),
        [Some(140), Some(170)]
    );
    assert_eq!((second.no_thread, second.daemon_tid), (30, 500));
    let without = ["lookup", "lookup__return"];
    let by_window = Script::with_rings().without(&without).run(callbacks);
    // They are answered together: the thread had both.
    let reads: Vec<_> = by_window.iter().map(|story| story.at(Mark::Read)).collect();
    assert_eq!(reads, [Some(101), Some(115)]);
    let split = "
        50 500 await 7
        51 0 switch 0 0 500
        100 900 begin 2 1
        101 500 fetched 7 33 0
        110 901 begin 4 1
        111 901 waking 500
        115 500 fetched 7 44 0
        140 500 enter 426
        141 500 commit 7 33 46 0
        142 500 end 2 0
        143 500 exit 426 1
        170 500 enter 426
        171 500 commit 7 44 46 0
        172 500 end 4 0";
    let split = Script::with_rings().run(split);
    assert_eq!(split[1].at(Mark::Read), Some(142));
    assert_eq!(split[1].no_thread, 32);
}

/// The thread that waits for the ring takes what it brings, whichever thread the kernel makes copy it.
#[test]
fn a_ring_whose_requests_are_handed_on() {
    let stories = Script::with_rings().run(
        "
        90 900 begin 2 1
        91 501 fetched 7 33 0
        95 501 enter 426
        96 501 commit 7 33 46 0
        97 501 end 2 0
        98 501 exit 426 1
        99 500 enter 426
        100 500 await 7
        110 900 begin 4 1
        120 501 fetched 7 33 0
        125 500 exit 426 0
        126 500 enter 426
        127 500 await 7
        150 501 enter 426
        151 501 commit 7 33 46 0
        152 501 end 4 0",
    );
    let story = &stories[1];
    assert!(story.ring && story.handed);
    assert_eq!((story.reader, story.replier), (500, 501));
    assert_eq!(
        times(story, &[Mark::Read, Mark::Reply]),
        [Some(125), Some(150)]
    );
    assert_eq!(story.blocked, ABSENT);
    // The kernel submits: it is unknown which thread answered.
    let story = &Script::with_rings().run(
        "
        90 900 begin 2 1
        91 502 fetched 7 33 0
        96 502 commit 7 33 46 1
        97 502 end 2 0",
    )[0];
    assert!(story.ring && story.handed);
    assert_eq!(
        (story.reader, story.replier, story.blocked),
        (-1, -1, ABSENT)
    );
}

/// With a ring, the length in a reply's header is the daemon's choice; what is submitted shows that a ring answered.
#[test]
fn an_answer_that_nobody_waits_for_has_a_length() {
    for opcode in [15, 18] {
        let text = format!(
            "100 900 begin 2 {opcode}
            150 500 end 2 0
            150 500 length 2 160
            160 500 exit 1 160"
        );
        let stories = Script::new().run(&text);
        assert_eq!(stories[0].reply_len, 160, "{opcode}");
    }
}

#[test]
fn an_answer_by_a_ring_has_no_length() {
    let script = "
        90 900 begin 2 1
        90 900 bytes 2 64
        96 500 commit 7 33 46 0
        97 500 end 2 0
        97 500 length 2 64
        190 900 begin 4 1
        197 500 end 4 0
        197 500 length 4 80";
    let stories = Script::with_rings()
        .without(&["fetched", "await"])
        .run(script);
    let lengths: Vec<_> = stories
        .iter()
        .map(|story| (story.ring, story.request_len, story.reply_len))
        .collect();
    assert_eq!(lengths, [(true, 64, ABSENT), (false, ABSENT, 80)]);
}

/// A ring of the daemon's own, for its files, brings no request; nor does a failed command.
#[test]
fn a_ring_of_another_kind() {
    let stories = Script::with_rings().run(
        "
        90 900 begin 2 1
        92 500 enter 426
        93 500 commit 8 33 22 0
        94 500 fetched 8 33 0
        95 500 exit 426 1
        96 500 fetched 7 44 4294967189
        100 500 lookup 2
        110 500 enter 426
        111 500 commit 7 44 46 0
        112 500 end 2 0",
    );
    assert_eq!(stories[0].at(Mark::Read), None);
    assert!(stories[0].ring);
}

/// A request is never answered. Its thread has it, if no other can have come; otherwise that is unknown.
#[test]
fn a_ring_and_no_answer() {
    let known = format!(
        "{BY_NO_CALL}
        153 500 exit 426 1
        200 900 begin 6 1
        210 500 fetched 7 33 0
        300 900 enter 0"
    );
    let stories = Script::with_rings().run(&known);
    let last = &stories[2];
    assert_eq!((last.fate, last.next), (Fate::Interrupted, Mark::Reply));
    assert_eq!((last.at(Mark::Read), last.daemon_tid), (Some(210), 500));
    let queued = known.replace("210 500 fetched 7 33 0", "");
    let stories = Script::with_rings().run(&queued);
    assert_eq!(stories[2].next, Mark::Read);
    let either = known.replace("200 900 begin 6 1", "200 900 begin 6 1\n 201 901 begin 8 1");
    let stories = Script::with_rings().run(&either);
    let next: Vec<_> = stories[2..].iter().map(|story| story.next).collect();
    assert_eq!(next, [Mark::End, Mark::End]);
    assert_eq!(stories[2].at(Mark::Read), None);
}

/// The same numbers on two mounts at once.
#[test]
fn two_daemons() {
    let stories = Script::new().run(
        "100 900 begin 2 1
         101 901 begin 2 1 46
         110 600 lookup 2
         120 500 lookup 2
         130 600 end 2 0 46
         140 500 end 2 -2 45
         150 500 lookup__return
         160 600 lookup__return",
    );
    let fates: Vec<_> = stories
        .iter()
        .map(|s| {
            (
                s.tid,
                s.connection,
                s.daemon_pid,
                s.error,
                s.at(Mark::CallbackEnter),
            )
        })
        .collect();
    assert_eq!(
        fates,
        [(900, 45, 500, -2, Some(120)), (901, 46, 600, 0, Some(110))]
    );
}

/// The address of struct fuse_req is used again; the number comes with the copy.
#[test]
fn by_address() {
    let stories = Script::new().run(
        "100 900 begin 0 1 45 7777
         110 500 sent 2 1 45 7777
         120 500 lookup 2
         130 500 end 2 0 45 7777
         140 500 lookup__return
         200 900 begin 0 3 45 7777
         210 500 sent 4 1 45 7777
         230 500 end 4 0 45 7777
         300 900 begin 0 3 45 7777
         400 901 begin 0 3 45 7777",
    );
    let fates: Vec<_> = stories.iter().map(|s| (s.unique, s.fate)).collect();
    assert_eq!(
        fates,
        [
            (2, Fate::Matched),
            (4, Fate::Matched),
            (0, Fate::Lost),
            (0, Fate::Unfinished)
        ]
    );
    assert_eq!(stories[0].at(Mark::CallbackEnter), Some(120));
    assert_eq!(stories[1].at(Mark::Read), Some(210));
}

/// Only function_graph: no system calls, no switches.
#[test]
fn by_function_graph() {
    let [story] = &Script::new().without(&["switch", "waking"]).run(
        "50 500 into 12288 0
         100 900 into 4096 0
         110 900 begin 2 1
         115 900 into 8192 1
         120 500 out 12290 0
         130 500 lookup 2
         140 500 into 16384 0
         150 500 end 2 0
         155 500 out 16384 0
         160 500 lookup__return
         170 900 out 8192 1
         180 900 out 4100 0",
    )[..] else {
        panic!()
    };
    assert_eq!(
        seen(story),
        "kernel_enter 100, begin 110, read 120, callback_enter 130, reply 140, end 150, runs 170, \
         kernel_exit 180, callback_return 160"
    );
    assert_eq!(
        cut(story),
        "setup 10, queue 10, dispatch 10, daemon 10, reply 10, caller_wakeup 20"
    );
}

/// Outside of any system call: a page fault.
#[test]
fn page_fault() {
    let [story] = &Script::new().run(
        "100 900 enter 9
         105 900 exit 9 0
         110 900 begin 2 15
         120 900 switch 900 2 0
         150 500 end 2 0
         151 500 waking 900
         160 0 switch 0 0 900
         170 900 enter 0
         180 900 exit 0 1",
    )[..] else {
        panic!()
    };
    assert_eq!((story.syscall, story.waits), (ABSENT, true));
    assert_eq!(
        cut(story),
        "queue+dispatch+daemon+reply 40, caller_wakeup 10"
    );
}

/// A thread waits for a page of a mapped file that another one reads: the answer wakes it up.
#[test]
fn a_page_fault_for_a_page_on_its_way() {
    let text = "
        90 900 enter 9
        95 900 exit 9 0
        100 901 enter 0
        110 901 begin 2 15
        115 901 switch 901 2 900
        120 900 switch 900 2 0
        140 500 enter 20
        150 500 end 2 0
        151 500 waking 901
        152 500 waking 900
        155 500 exit 20 16
        158 0 switch 0 0 901
        160 0 switch 0 0 900
        170 901 exit 0 4096";
    let of = |text: &str| -> Vec<_> {
        let found = calls(text).into_iter();
        let faults = found.filter(|(number, ..)| *number == PAGE_FAULT);
        faults
            .map(|(_, inside, outside)| (inside, outside))
            .collect()
    };
    assert_eq!(of(text), [(0, "page 32, runnable 8".to_owned())]);
    // In a system call, or before its first return from one, it may wait for something else.
    assert_eq!(of(&text.replace("95 900 exit 9 0", "")), []);
    assert_eq!(
        of(&text.replace("90 900 enter 9\n        95 900 exit 9 0", "")),
        []
    );
    // After the answer the daemon's thread wakes others for reasons of its own.
    let (woken, exit) = ("152 500 waking 900", "155 500 exit 20 16");
    let later = text
        .replace(woken, "")
        .replace(exit, "155 500 exit 20 16\n156 500 waking 900");
    assert_eq!(of(&later), []);
}

/// State of a thread, queried event by event.
#[test]
fn at_any_time() {
    let rows: Vec<Meaning> = ROWS
        .iter()
        .map(|(_, event, layer, function, operation, role)| Meaning {
            event: event.to_string(),
            layer: *layer,
            function: function.to_string(),
            operation: operation.to_string(),
            role: *role,
        })
        .collect();
    let mut stitch = Stitch::new(&rows, Filters::default(), Some("x86_64"), 0, 0xff);
    let mut stories = 0;
    let mut at = |time, tid, name: &str, v: [u64; 3]| {
        let kind = ROWS.iter().position(|row| row.0 == name).unwrap() as u32;
        let pid = if tid == 500 { DAEMON } else { tid };
        let v = [v[0], v[1], v[2], ABSENT];
        let ev = Ev {
            time,
            pid,
            tid,
            kind,
            cpu: 0,
            v,
        };
        stitch.event(&ev, &mut |_, _| stories += 1);
        let unique = |story: Option<&Story>| story.map(|story| story.unique);
        (
            unique(stitch.waiting(900)),
            unique(stitch.in_hand(500)),
            stories,
        )
    };
    assert_eq!(at(100, 900, "enter", [262, 0, 0]), (None, None, 0));
    assert_eq!(at(110, 900, "begin", [2, MOUNT, 1]), (Some(2), None, 0));
    assert_eq!(at(120, 900, "switch", [900, 1, 500]), (Some(2), None, 0));
    assert_eq!(at(130, 500, "sent", [2, MOUNT, 1]), (Some(2), Some(2), 0));
    assert_eq!(at(140, 500, "lookup", [2, 0, 0]), (Some(2), Some(2), 0));
    assert_eq!(at(150, 500, "end", [2, MOUNT, 0]), (Some(2), Some(2), 0));
    assert_eq!(at(155, 500, "waking", [900, 0, 0]), (Some(2), Some(2), 0));
    assert_eq!(
        at(160, 500, "lookup__return", [ABSENT; 3]),
        (Some(2), None, 0)
    );
    assert_eq!(at(170, 500, "switch", [500, 1, 900]), (None, None, 0));
    assert_eq!(at(180, 900, "exit", [262, 0, 0]), (None, None, 1));
}

proptest! {
    /// Anything in any order causes no panic; a request is reported once; its stages are its whole; nothing is kept
    /// open that is not.
    #[test]
    fn anything(events in proptest::collection::vec(
        (0..ROWS.len(), 0u64..4, 0i32..6, 0u64..6, 0u64..4, 0u64..4, 0u64..3), 0..400,
    ), without in proptest::collection::vec(0..ROWS.len(), 0..6), known in any::<bool>()) {
        let tids = [0, 1, 500, 501, 900, 901];
        let mut text = String::new();
        let mut time = 1;
        let mut begun = 0;
        for (kind, passed, tid, a, b, c, d) in events {
            time += passed;
            let name = ROWS[kind].0;
            let numbers = [0, 2, 4, 257, 500, 900];
            let tid = tids[tid as usize];
            begun += usize::from(name == "begin" && !without.contains(&kind));
            let third = match (name, c) {
                ("begin" | "end" | "sent", 0..2) => -1i64,
                ("begin" | "end" | "sent", _) => 45,
                _ => numbers[c as usize],
            };
            let opcode = [1, 3, 15, 18][b as usize];
            let req = if d == 0 { -1 } else { 7000 + d as i64 };
            text += &format!("{time} {tid} {name} {} {opcode} {third} {req}\n", numbers[a as usize]);
            if d == 2 && c == 3 {
                text += &format!("{time} {tid} {}\n", if b == 0 { "lost" } else { "ends" });
            }
        }
        let without: Vec<&'static str> = without.into_iter().map(|kind| ROWS[kind].0).collect();
        let mut script = Script::new().without(&without);
        if !known {
            script.daemons.clear();
        }
        let stories = script.run(&text);
        prop_assert_eq!(stories.iter().filter(|s| s.at(Mark::Begin).is_some()).count(), begun);
        for story in &stories {
            let has = |mark| story.at(mark).is_some();
            if story.fate == Fate::Matched {
                prop_assert!(has(Mark::Begin) && has(Mark::End));
                prop_assert!(story.at(Mark::Begin) <= story.at(Mark::End));
            } else {
                prop_assert!(!(has(Mark::Begin) && has(Mark::End)), "{:?} {}\n{text}", story.fate, seen(story));
            }
            cut(story);
        }
    }
}

/// A daemon without callbacks: only the order and length of requests show which one a read brings.
const GO: [&str; 12] = [
    "lookup",
    "lookup__return",
    "read",
    "read__return",
    "forget",
    "forget__return",
    "stub",
    "stub__return",
    "reply",
    "sent",
    "fuse_lookup",
    "fuse_lookup__return",
];

fn unnamed(text: &str) -> Vec<Story> {
    Script::new().without(&GO).run(text)
}

#[test]
fn reads_are_paired_by_order_and_length() {
    // One thread reads, another one answers: two requests of one length, one of another.
    let stories = unnamed(
        "10 500 enter 0
         100 900 begin 2 1
         100 900 bytes 2 56 45
         101 901 begin 4 1
         101 901 bytes 4 56 45
         102 902 begin 6 3
         102 902 bytes 6 80 45
         110 500 exit 0 56
         111 500 enter 0
         112 500 exit 0 80
         113 500 enter 0
         114 500 exit 0 56
         120 501 enter 1
         121 501 end 4 0
         130 501 enter 1
         131 501 end 6 0
         140 501 enter 1
         141 501 end 2 0",
    );
    let reads: Vec<_> = stories
        .iter()
        .map(|s| (s.unique, s.at(Mark::Read)))
        .collect();
    assert_eq!(reads, [(2, Some(110)), (4, Some(114)), (6, Some(112))]);
    assert!(stories.iter().all(|s| s.handed && s.daemon_tid == 500));
    assert_eq!(cut(&stories[0]), "queue 10, daemon 30, reply 1");
    // The answering thread's time before is unknown.
    assert!(stories.iter().all(|s| s.blocked == ABSENT));
}

#[test]
fn ambiguous_reads_are_not_guessed() {
    let text = "10 500 enter 0
         11 501 enter 0
         100 900 begin 2 1
         100 900 bytes 2 56 45
         101 901 begin 4 1
         101 901 bytes 4 56 45
         110 500 exit 0 56
         112 501 exit 0 56
         SECOND
         120 502 enter 1
         121 502 end 4 0
         130 503 enter 1
         131 503 end 2 0
         150 900 begin 6 1
         150 900 bytes 6 56 45
         160 501 exit 0 56
         170 501 enter 1
         171 501 end 6 0";
    let stories = unnamed(&text.replace("SECOND", ""));
    let reads: Vec<_> = stories.iter().map(|s| s.at(Mark::Read)).collect();
    assert_eq!(reads, [None, None, Some(160)]);
    assert_eq!(cut(&stories[0]), "queue+dispatch+daemon 30, reply 1");
    // If each thread answers what it read, the replies show it.
    let own = text
        .replace("SECOND", "")
        .replace("502", "501")
        .replace("503", "500");
    let reads: Vec<_> = unnamed(&own).iter().map(|s| s.at(Mark::Read)).collect();
    assert_eq!(reads, [Some(110), Some(112), Some(160)]);
}

#[test]
fn a_read_of_another_length_brings_no_request() {
    let [story] = &unnamed(
        "100 900 begin 2 1
         100 900 bytes 2 56 45
         110 500 exit 0 4096
         120 500 exit 0 56
         130 500 exit 17 512
         140 500 enter 20
         150 500 end 2 0",
    )[..] else {
        panic!()
    };
    assert_eq!(cut(story), "queue 20, daemon 20, reply 10");
    assert_eq!(story.daemon_tid, 500);
}

/// Return the stories of one process with two connections, whose requests have the same numbers and lengths.
fn of_two(text: &str, without: &[&'static str]) -> Vec<Story> {
    let mut script = Script::new().without(without);
    script.daemons = vec![(DAEMON, MOUNT), (DAEMON, MOUNT + 1)];
    script.run(text)
}

/// Request 2 of each: its reply shows which connection a descriptor is of, for write (7) and for splice (8).
const TELLING: &str = "100 900 begin 2 1 45
    100 900 bytes 2 56 45
    102 500 enter 0 7
    110 500 exit 0 56
    120 500 enter 1 7
    121 500 end 2 0 45
    122 500 exit 1 16
    130 901 begin 2 1 46
    130 901 bytes 2 56 46
    132 501 enter 275 8 3
    140 501 exit 275 56
    150 501 enter 275 4 8
    151 501 end 2 0 46
    152 501 exit 275 16
    ";

#[test]
fn descriptors_distinguish_reads_of_two_connections() {
    let both = "200 900 begin 4 1 45
        200 900 bytes 4 56 45
        201 901 begin 4 1 46
        201 901 bytes 4 56 46
        202 502 enter 0 8
        203 503 enter 0 7
        210 502 exit 0 56
        212 503 exit 0 56
        220 500 enter 1 8
        221 500 end 4 0 46
        230 501 enter 1 7
        231 501 end 4 0 45";
    let reads = |text: &str| {
        let stories = of_two(text, &GO);
        let of_4 = stories.iter().filter(|story| story.unique == 4);
        let read = |s: &Story| (s.connection, s.at(Mark::Read));
        of_4.map(read).collect::<Vec<_>>()
    };
    let told = reads(&format!("{TELLING}{both}"));
    assert_eq!(told, [(45, Some(212)), (46, Some(210))]);
    // Either may have been read by either thread.
    assert_eq!(reads(both), [(45, None), (46, None)]);
}

#[test]
fn calls_are_of_the_connection_that_the_thread_reads() {
    let both = "200 900 begin 4 1 45
        201 901 begin 4 1 46
        202 501 enter 275 8 3
        203 500 enter 0 7
        210 501 exit 275 56
        211 500 exit 0 56
        212 500 lookup 4 1
        214 501 lookup 4 1
        218 500 lookup__return 4
        219 501 lookup__return 4
        230 501 enter 1 8
        231 501 end 4 0 46
        240 500 enter 1 7
        241 500 end 4 0 45";
    let calls = |text: &str| {
        let stories = of_two(text, &["sent", "bytes"]);
        let of_4 = stories
            .iter()
            .filter(|s| s.unique == 4 && s.connection != ABSENT);
        let call = |s: &Story| (s.connection, s.at(Mark::CallbackEnter));
        of_4.map(call).collect::<Vec<_>>()
    };
    let told = calls(&format!("{TELLING}{both}"));
    assert_eq!(told, [(45, Some(212)), (46, Some(214))]);
    assert_eq!(calls(both), [(45, None), (46, None)]);
    // If only one has such a request, the call is its.
    let one = both
        .replace("201 901 begin 4 1 46", "")
        .replace("231 501 end 4 0 46", "");
    assert_eq!(calls(&one), [(45, Some(212))]);
}

/// From its read to its reply a thread of the daemon is asleep and lacks a CPU.
#[test]
fn the_window_of_a_daemon_without_callbacks_splits() {
    let [story] = &unnamed(
        "100 900 begin 2 1
         100 900 bytes 2 56 45
         110 500 exit 0 56
         120 500 switch 500 1 0
         150 0 waking 500
         155 0 switch 0 0 500
         160 500 enter 20
         170 500 switch 500 0 77
         175 0 switch 77 0 500
         190 500 end 2 0",
    )[..] else {
        panic!()
    };
    assert_eq!(cut(story), "queue 10, daemon 50, reply 30");
    assert_eq!((story.blocked, story.runnable, story.elsewhere), (30, 5, 0));
    let parts: Vec<_> = Cut::new(story)
        .stages()
        .map(|(stage, _)| stage.parts(story))
        .collect();
    assert_eq!(parts[2], Some([0, 5, 0]));
}

#[test]
fn a_wait_without_a_wake_up_is_not_split() {
    // Asleep from 20 to 60, woken up at 50; and from 70 on, until it is seen to run at 90.
    let stories = unnamed(
        "
        10 7 begin 3 1
        11 7 bytes 3 64
        12 500 exit 0 64
        20 500 switch 500 1 0
        50 8 waking 500
        60 500 switch 0 0 500
        70 500 switch 500 1 0
        90 500 enter 1
        95 500 end 3 0
        ",
    );
    let story = &stories[0];
    assert_eq!((story.blocked, story.runnable, story.unsplit), (50, 10, 20));
}

#[test]
fn unanswered_requests_count_to_the_end() {
    let last = |text: &str| {
        let story = Script::new().run(text)[0].clone();
        (story.fate, story.next, cut(&story))
    };
    let unread =
        "100 900 enter 262\n110 900 begin 2 1\n120 900 switch 900 2 0\n2000 0 switch 0 0 7";
    assert_eq!(
        last(unread),
        (
            Fate::Unfinished,
            Mark::Read,
            "vfs_entry+setup 10, queue 1890".into()
        )
    );
    let read = unread.replace("2000", "130 500 exit 0 49\n2000");
    // The read may have brought this one.
    assert_eq!(last(&read).1, Mark::End);
    let called = unread.replace(
        "2000",
        "130 500 exit 0 49\n140 500 lookup 2\n150 500 switch 500 1 0\n2000",
    );
    assert_eq!(
        last(&called),
        (
            Fate::Unfinished,
            Mark::Reply,
            "vfs_entry+setup 10, queue 20, dispatch 10, daemon 1860".into()
        )
    );
    assert_eq!(Script::new().run(&called)[0].blocked, 1850);
    let replied = called.replace("150 500 switch 500 1 0", "150 500 enter 20");
    assert_eq!(last(&replied).1, Mark::Reply);
    // A signal: it counts up to the caller's return.
    let killed = "100 900 enter 262\n110 900 begin 2 1\n500 900 exit 262 -4\n2000 0 switch 0 0 7";
    let (fate, _, stages) = last(killed);
    assert_eq!(
        (fate, stages.as_str()),
        (Fate::Interrupted, "vfs_entry+setup 10, queue 390")
    );
    // The daemon dies: the kernel ends the requests that it had in hand.
    let died = unread.replace(
        "2000",
        "130 500 exit 0 49\n140 500 lookup 2\n900 500 enter 231\n1000 500 end 2 -103\n2000",
    );
    assert_eq!(
        last(&died),
        (
            Fate::Aborted,
            Mark::Reply,
            "vfs_entry+setup 10, queue 20, dispatch 10, daemon 860".into()
        )
    );
}

/// The daemon is killed while a thread works on a request. The thread's sleep stays known although its last switch
/// comes after its end; the time after its end is nobody's.
#[test]
fn work_of_an_ended_thread_is_kept() {
    let parts = |story: &Story| (story.blocked, story.runnable, story.elsewhere);
    let killed = "
        100 900 enter 262
        110 900 begin 2 1
        120 900 switch 900 2 0
        130 500 exit 0 49
        140 500 lookup 2
        150 500 switch 500 1 0
        650 501 waking 500
        660 0 switch 0 0 500
        700 500 ends
        710 500 switch 500 128 0
        ";
    let aborted = format!("{killed}\n1000 501 end 2 -103\n1100 900 exit 262 -103");
    let stories = Script::new().run(&aborted);
    assert_eq!(stories[0].fate, Fate::Aborted);
    assert_eq!(parts(&stories[0]), (500, 10, 300));
    assert_eq!(
        cut(&stories[0]),
        "vfs_entry+setup 10, queue 20, dispatch 10, daemon 860"
    );
    // Another process has the device open, too: nobody ends the request.
    let held = format!("{killed}\n2000 0 switch 0 0 7");
    let stories = Script::new().run(&held);
    assert_eq!(stories[0].fate, Fate::Unfinished);
    assert_eq!(parts(&stories[0]), (500, 10, 1300));
    // Another thread of the daemon answers.
    let answered = format!("{killed}\n990 501 enter 1\n1000 501 end 2 0\n1100 900 exit 262 0");
    let stories = Script::new().run(&answered);
    assert_eq!(stories[0].fate, Fate::Matched);
    assert_eq!(parts(&stories[0]), (500, 10, 290));
    // It is known without a callback, too.
    let window = aborted
        .replace("140 500 lookup 2\n", "\n")
        .replace("110 900 begin 2 1", "110 900 begin 2 1\n111 900 bytes 2 49");
    let stories = Script::new()
        .without(&["lookup", "lookup__return"])
        .run(&window);
    assert_eq!(parts(&stories[0]), (500, 10, 300));
    // It had answered before, so nothing was left.
    let done = killed.replace(
        "700 500 ends",
        "690 500 enter 1\n691 500 end 2 0\n700 500 ends",
    );
    let stories = Script::new().run(&done);
    assert_eq!(parts(&stories[0]), (500, 10, 0));
}

/// Another task has the CPU on which a thread is to run; or none has.
#[test]
fn waiting_for_a_cpu_is_no_wake_up() {
    let woken = |switch: &str| {
        let text = STAT.replace("120 900 switch 900 1 500", switch);
        let story = &Script::new().run(&text)[0];
        (story.no_thread, story.no_cpu, story.asleep)
    };
    assert_eq!(woken("120 900 switch 900 1 500"), (0, 0, 10));
    assert_eq!(woken("120 0 switch 0 0 500"), (0, 0, 10));
    assert_eq!(woken("120 77 switch 77 0 500"), (0, 8, 2));
    let caller = |switch: &str| {
        let text = STAT.replace("220 500 switch 500 1 900", switch);
        Script::new().run(&text)[0].late
    };
    // The waker keeps the CPU: from its return from the system call in which it woke the caller.
    assert_eq!(caller("220 500 switch 500 1 900"), 15);
    assert_eq!(caller("204 500 switch 500 0 900"), 0);
    assert_eq!(caller("220 0 switch 0 0 900"), 0);
    assert_eq!(caller("220 77 switch 77 0 900"), 18);
    // An interrupt came while another task ran, which is no waker.
    let interrupted = STAT
        .replace("112 900 waking 500", "112 77 waking 500")
        .replace("120 900 switch 900 1 500", "120 77 switch 77 0 500");
    let story = &Script::new().run(&interrupted)[0];
    assert_eq!((story.no_cpu, story.asleep), (8, 2));
    // Preempted between its read and its callback.
    let text = STAT.replace(
        "140 500 lookup 2",
        "132 500 switch 500 0 77\n138 77 switch 77 0 500\n140 500 lookup 2",
    );
    let story = &Script::new().run(&text)[0];
    let dispatch = Cut::new(story)
        .stages()
        .find(|(stage, _)| stage.name() == "dispatch");
    assert_eq!(dispatch.unwrap().0.parts(story), Some([0, 6, 0]));
}

/// On its way to sleep, on another CPU than its waker's: its switch-out is recorded after that.
#[test]
fn a_thread_woken_before_its_switch_out_waits_for_a_cpu_at_once() {
    let daemon = |act: &str, state: u64| {
        let text = STAT
            .replace("51 500 switch 500 1 900\n", "")
            .replace(
                "112 900 waking 500",
                &format!("112 900 waking 500\n{act}\n113 500 switch 500 {state} 77"),
            )
            .replace("120 900 switch 900 1 500", "120 77 switch 77 0 500");
        let story = &Script::new().run(&text)[0];
        (story.no_thread, story.no_cpu, story.asleep)
    };
    assert_eq!(daemon("", 1), (0, 7, 3));
    assert_eq!(daemon("", 0), (0, 7, 3));
    // It went on, and slept later: the wake-up from that is not recorded.
    assert_eq!(daemon("112 500 exit 1 0\n112 500 enter 0", 1).1, 0);
    let window = |before: &str| {
        let text = STAT.replace(
            "140 500 lookup 2",
            &format!("{before}\n138 77 switch 77 0 500\n140 500 lookup 2"),
        );
        let story = &Script::new().run(&text)[0];
        let dispatch = Cut::new(story)
            .stages()
            .find(|(stage, _)| stage.name() == "dispatch");
        dispatch.unwrap().0.parts(story).unwrap()
    };
    // Blocked; runnable.
    let [early, slept, neither] = [
        "131 0 waking 500\n132 500 switch 500 1 77",
        "131 0 waking 500\n132 500 switch 500 1 77\n136 0 waking 500",
        "132 500 switch 500 1 77",
    ]
    .map(window);
    assert_eq!((early, slept, neither), ([0, 6, 0], [4, 2, 0], [6, 0, 0]));
}

#[test]
fn an_answer_that_comes_before_its_caller_sleeps() {
    let runs = |act: &str, state: u64| {
        let text = STAT
            .replace("120 900 switch 900 1 500\n", "")
            .replace(
                "202 500 waking 900",
                &format!("202 500 waking 900\n{act}\n204 900 switch 900 {state} 77"),
            )
            .replace("220 500 switch 500 1 900", "220 77 switch 77 0 900");
        let text = text.replace(
            "100 900",
            "80 900 switch 900 0 77\n90 77 switch 77 0 900\n100 900",
        );
        let story = &Script::new().run(&text)[0];
        (story.at(Mark::Runs), story.late)
    };
    // On its way to sleep; it went on; it was preempted, with its reply.
    assert_eq!(runs("", 1), (Some(220), 16));
    assert_eq!(runs("203 900 fuse_lookup__return", 1), (Some(200), 0));
    assert_eq!(runs("", 0), (Some(200), 0));
}

/// A recording holds the switches of some threads, and those of others only where they take turns with them.
#[test]
fn a_thread_that_is_not_followed_has_no_state() {
    let text = STAT
        .replace("900", "77")
        .replace("100 77 enter 262", "")
        .replace("230 77 exit 262 0", "")
        .replace("220 500 switch 500 1 77", "9220 500 switch 500 1 77");
    let story = &Script::new().run(&text)[0];
    assert_eq!(
        (story.at(Mark::Waking), story.at(Mark::Runs)),
        (Some(202), None)
    );
    assert!(story.waits);
    assert_eq!(story.idle_between(Mark::Begin, Mark::End), None);
    // Its switch to an idle CPU shows that its switches are recorded; so do its parent's.
    let idle = text.replace(
        "120 77 switch 77 1 500",
        "120 77 switch 77 1 0\n121 0 switch 0 0 500",
    );
    assert_eq!(Script::new().run(&idle)[0].at(Mark::Runs), Some(9220));
    // It returns from waiting: this is seen, whatever its state.
    let returns = text.replace("225 77", "224 77 wait__return\n225 77");
    let story = &Script::new().run(&returns)[0];
    assert_eq!((story.at(Mark::Runs), story.late), (Some(224), ABSENT));
}

#[test]
fn a_callers_own_event_shows_that_it_runs() {
    for (act, runs, stages) in [
        ("", Some(9220), "caller_wakeup 9020, vfs_exit 80"),
        (
            "245 900 waking 78",
            Some(245),
            "caller_wakeup 45, vfs_exit 9055",
        ),
        (
            "246 900 fuse_lookup",
            Some(246),
            "caller_wakeup 46, vfs_exit 9054",
        ),
        // The next request shows that it ran, and may be long after.
        (
            "247 900 begin 4 3",
            None,
            "reply 10, caller_wakeup+vfs_exit 9100",
        ),
    ] {
        let text = STAT
            .replace(
                "220 500 switch 500 1 900",
                &format!("{act}\n9220 500 switch 500 1 900"),
            )
            .replace("225 900", "9225 900")
            .replace("230 900", "9300 900");
        let story = &Script::new().run(&text)[0];
        assert_eq!(story.at(Mark::Runs), runs, "{act}");
        assert!(cut(story).ends_with(stages), "{act}: {}", cut(story));
        assert_eq!(story.late == ABSENT, !act.is_empty(), "{act}");
    }
}

/// perf's record of a switch, where the tracepoint is silent.
#[test]
fn a_record_of_a_switch_shows_that_a_thread_runs() {
    let text = STAT.replace(
        "220 500 switch 500 1 900",
        "220 500 switch 500 1 0\n222 900 runs",
    );
    let story = &Script::new().run(&text)[0];
    assert_eq!(story.at(Mark::Runs), Some(222));
    // After the tracepoint's own event, which comes first, it changes nothing.
    let both = STAT.replace("225 900", "222 900 runs\n225 900");
    assert_eq!(
        seen(&Script::new().run(&both)[0]),
        seen(&Script::new().run(STAT)[0])
    );
}

/// Return a call's time: in requests, and outside by what it was for. The requests that it waited for must say the same.
fn split(stories: &[Story], call: &MountCall) -> (u64, String) {
    let inside = call.duration() - call.rest();
    let own = stories.iter().filter(|story| story.waits);
    let own = own.filter(|story| (call.start..=call.until).contains(&story.start()));
    assert_eq!(own.map(|story| Cut::new(story).total).sum::<u64>(), inside);
    let named = OUTSIDE.iter().zip(call.outside).filter(|(_, ns)| *ns > 0);
    let named: Vec<_> = named.map(|(name, ns)| format!("{name} {ns}")).collect();
    (inside, named.join(", "))
}

fn calls(text: &str) -> Vec<(u64, u64, String)> {
    let (stories, calls) = Script::new().run_with_calls(text);
    let rows = calls.iter().map(|call| {
        let (inside, outside) = split(&stories, call);
        (call.number, inside, outside)
    });
    rows.collect()
}

/// A file of the mount is opened as descriptor 5.
const OPENED: &str = "
    10 900 enter 257 -100 0 0
    12 900 begin 2 14
    14 900 switch 900 1 500
    20 500 end 2 0
    21 500 waking 900
    22 500 switch 500 1 900
    24 900 exit 257 5
";

#[test]
fn a_write_that_is_throttled_is_no_part_of_the_request_before() {
    let text = format!(
        "{OPENED}
        100 900 enter 1 5
        110 900 begin 4 22
        120 900 switch 900 1 500
        200 500 end 4 -61
        202 500 waking 900
        220 500 switch 500 1 900
        300 900 switch 900 2 0
        1300 0 waking 900
        1310 0 switch 0 0 900
        1400 900 exit 1 4096
        1500 900 enter 1 5
        1510 900 switch 900 0 77
        1530 77 switch 77 0 900
        1600 900 exit 1 4096"
    );
    let expected = [
        (257, 14, String::new()),
        (1, 120, "blocked 1000, runnable 10, on_cpu 170".to_owned()),
        (1, 0, "runnable 20, on_cpu 80".to_owned()),
    ];
    assert_eq!(calls(&text), expected);
    let story = &Script::new().run(&text)[1];
    assert_eq!(cut(story).split(", ").last(), Some("caller_wakeup 20"));
    // A request for the data itself ends when the caller waits for something else.
    let read = text
        .replace("enter 1 ", "enter 0 ")
        .replace("exit 1 ", "exit 0 ");
    let read = read
        .replace("begin 4 22", "begin 4 15")
        .replace("200 500 end 4 -61", "200 500 end 4 0");
    assert_eq!(
        calls(&read)[1],
        (0, 200, "blocked 1000, runnable 10, on_cpu 90".to_owned())
    );
    assert_eq!(
        cut(&Script::new().run(&read)[1]).split(", ").last(),
        Some("vfs_exit 80")
    );
}

#[test]
fn a_wait_before_a_request_is_no_part_of_it() {
    let text = "
        100 900 enter 83
        105 900 switch 900 2 0
        400 0 waking 900
        405 0 switch 0 0 900
        420 900 begin 2 9
        425 900 switch 900 1 500
        500 500 end 2 0
        501 500 waking 900
        510 500 switch 500 1 900
        515 900 switch 900 2 0
        600 0 waking 900
        601 0 switch 0 0 900
        620 900 begin 4 3
        625 900 switch 900 1 500
        700 500 end 4 0
        701 500 waking 900
        710 500 switch 500 1 900
        720 900 exit 83 0";
    let inside = (420 - 405) + (510 - 420) + (620 - 601) + (720 - 620);
    let outside = "blocked 380, runnable 6, on_cpu 10".to_owned();
    assert_eq!(calls(text), [(83, inside, outside)]);
    let stories = Script::new().run(text);
    assert_eq!(
        stories.iter().map(cut).collect::<Vec<_>>(),
        [
            "vfs_entry+setup 15, queue+dispatch+daemon+reply 80, caller_wakeup 10",
            "between+setup 19, queue+dispatch+daemon+reply 80, caller_wakeup 10, vfs_exit 10"
        ]
    );
    assert_eq!(stories[0].at(Mark::SysEnter), Some(100));
}

#[test]
fn descriptors_tell_the_mount() {
    let numbers = |text: &str| {
        let text = format!("{OPENED}{text}");
        let (_, calls) = Script::new().run_with_calls(&text);
        let known = calls.iter().all(|call| call.connection == MOUNT);
        assert!(known, "{calls:?}");
        calls[1..]
            .iter()
            .map(|call| call.number)
            .collect::<Vec<_>>()
    };
    let read = "100 900 enter 0 5\n110 900 exit 0 10\n";
    assert_eq!(numbers(read), [0]);
    assert_eq!(numbers("100 900 enter 0 6\n110 900 exit 0 10"), []);
    // A copy of it; a close; another file of the same number; a child.
    let copied = "40 900 enter 33 5 0 1\n41 900 exit 33 1\n42 900 enter 0 1\n43 900 exit 0 1\n";
    assert_eq!(numbers(copied), [0]);
    let closed = "40 900 enter 3 5\n41 900 exit 3 0\n";
    assert_eq!(numbers(&format!("{closed}{read}")), [3]);
    let another = "40 900 enter 257 -100 0 0\n41 900 exit 257 5\n";
    assert_eq!(numbers(&format!("{another}{read}")), []);
    let child = read.replace("900", "901");
    assert_eq!(numbers(&format!("40 901 forks 900\n{child}")), [0]);
    assert_eq!(numbers(&child), []);
    // A new program keeps it, unless it was opened to be closed then (O_CLOEXEC).
    let execs = "40 900 enter 59\n41 900 exit 59 0\n";
    assert_eq!(numbers(&format!("{execs}{read}")), [0]);
    let closes = OPENED.replace("enter 257 -100 0 0", "enter 257 -100 524288 0");
    let (_, calls) = Script::new().run_with_calls(&format!("{closes}{execs}{read}"));
    assert_eq!(calls.len(), 1);
    // Flags: dup2 has none, whatever its third argument is; fcntl and close_range set them.
    let copied = "40 900 enter 33 5 524288 1\n41 900 exit 33 1\n";
    let on_copy = read.replace("0 5", "0 1");
    assert_eq!(numbers(&format!("{copied}{execs}{on_copy}")), [0]);
    for sets in [
        "enter 72 5 1 2\n36 900 exit 72 0",
        "enter 436 3 4 9\n36 900 exit 436 0",
    ] {
        let set = format!("35 900 {sets}\n");
        assert!(numbers(&format!("{set}{read}")).contains(&0), "{sets}");
        assert!(
            !numbers(&format!("{set}{execs}{read}")).contains(&0),
            "{sets}"
        );
    }
    // A request tells it, too: of a file that was opened before.
    let told = "100 900 enter 0 7\n102 900 begin 4 15\n104 500 end 4 0\n106 900 exit 0 1\n
                110 900 enter 0 7\n112 900 exit 0 1";
    assert_eq!(numbers(told), [0, 0]);
}

/// The path of a file is on a mount, and the file is not.
#[test]
fn a_descriptor_is_on_the_mount_where_the_file_is_opened() {
    let connections = |text: &str| {
        let (_, calls) = Script::new().run_with_calls(text);
        let reads = calls.iter().filter(|call| call.number == 0);
        reads.map(|call| call.connection).collect::<Vec<_>>()
    };
    let open = |requests: &str| {
        format!("40 900 enter 257 -100 0 0\n{requests}\n50 900 exit 257 6\n60 900 enter 0 6\n70 900 exit 0 9\n")
    };
    let looks = "41 900 begin 4 1\n42 500 end 4 0\n";
    let follows = format!("{looks}43 900 begin 6 5\n44 500 end 6 0");
    let there = format!("{follows}\n45 900 begin 8 14 46\n46 600 end 8 0 46");
    assert_eq!(connections(&open(&follows)), []);
    assert_eq!(connections(&open(&there)), [MOUNT + 1]);
    // Some daemons get no OPEN.
    assert_eq!(connections(&open(looks)), [MOUNT]);
    assert_eq!(connections(&format!("{OPENED}{}", open(looks))), []);
    // A write whose buffer is a page of a mapped file that is read now; sendfile reads from its second descriptor.
    for call in [1, 40] {
        let text = format!(
            "100 900 enter {call} 7 8\n102 900 begin 4 15\n104 500 end 4 0\n106 900 exit {call} 1\n
             110 900 enter 1 7\n112 900 exit 1 1"
        );
        assert_eq!(Script::new().run_with_calls(&text).1.len(), 1);
    }
}

/// Go's callbacks: neither their request nor their return is recorded.
const ENTRIES: [&str; 9] = [
    "lookup__return",
    "read__return",
    "forget__return",
    "stub",
    "stub__return",
    "reply",
    "sent",
    "fuse_lookup",
    "fuse_lookup__return",
];

#[test]
fn a_callback_without_a_number_is_of_the_request_that_its_thread_read() {
    let entries = |text: &str| Script::new().without(&ENTRIES).run(text);
    let text = "
        100 900 begin 2 1
        100 900 bytes 2 56 45
        110 500 exit 0 56
        120 500 lookup
        121 500 forget
        125 500 switch 500 1 0
        130 0 waking 500
        135 0 switch 0 0 500
        140 500 enter 20
        150 500 end 2 0";
    let stories = entries(text);
    assert_eq!(stories.len(), 2, "{stories:?}");
    assert_eq!(
        cut(&stories[0]),
        "queue 10, dispatch 10, daemon 20, reply 10"
    );
    assert_eq!((stories[0].fate, stories[0].blocked), (Fate::Matched, 5));
    assert_eq!(stories[1].fate, Fate::NoReply);
    // Another operation than was read, or another thread than read it: it is no request of its own, either.
    for other in [
        text.replace("500 lookup", "500 read"),
        text.replace("500 lookup", "501 lookup"),
    ] {
        let stories = entries(&other);
        let fates: Vec<_> = stories.iter().map(|story| story.fate).collect();
        assert_eq!(fates, [Fate::Matched, Fate::NoReply]);
        assert_eq!(stories[0].at(Mark::CallbackEnter), None);
    }
    // It hangs. In the system call that reads, its thread may have left it to another one.
    let hung = |next: &str| {
        let text = format!("100 900 begin 2 1\n100 900 bytes 2 56 45\n110 500 exit 0 56\n{next}");
        let story = entries(&text)[0].clone();
        (story.next, story.handed, story.reader, story.blocked)
    };
    let sleeps = "130 500 enter 35\n140 500 switch 500 1 0\n900 7 enter 1";
    assert_eq!(hung(sleeps), (Mark::Reply, false, 500, 760));
    let reads = sleeps.replace("enter 35", "enter 0");
    assert_eq!(hung(&reads), (Mark::Reply, true, 500, ABSENT));
    // Another thread answers: the callback's thread meanwhile did something unknown.
    let moved = text
        .replace("500 enter 20", "501 enter 20")
        .replace("500 end", "501 end");
    let story = &entries(&moved)[0];
    assert_eq!((story.handed, story.blocked), (true, ABSENT));
}

/// A single-threaded daemon that reads from descriptor 9, and writes to it.
const READS: &str = "
    90 500 enter 0 9
    100 900 enter 262
    110 900 begin 2 3
    110 900 bytes 2 56 45
    130 500 exit 0 56
    140 500 enter 1 9 16
";

#[test]
fn a_refused_answer_is_no_answer() {
    let script = Script::new().without(&["length"]);
    let refused = format!("{READS}150 500 exit 1 -22\n");
    let waits = format!("{refused}160 500 enter 0 9\n400 901 enter 39\n");
    let aborted = format!("{refused}160 500 enter 0 9\n300 77 enter 166\n400 77 end 2 -103\n");
    for (text, fate) in [(&waits, Fate::Unfinished), (&aborted, Fate::Aborted)] {
        let story = &script.run(text)[0];
        assert_eq!((story.fate, story.refused), (fate, -22));
        assert_eq!(
            (story.left, story.handed, story.dropped),
            (150, false, false)
        );
        assert_eq!(
            cut(story),
            "vfs_entry+setup 10, queue 20, daemon 10, refused 260"
        );
    }
    let aborted = &script.run(&aborted)[0];
    let by = (aborted.aborter, aborted.aborter_call);
    assert_eq!((by, aborted.aborted_by_daemon), ((77, 166), false));
    // A worker of the kernel closed what the daemon had left.
    let gone = format!("{READS}150 500 exit 1 -22\n160 500 ends\n400 77 end 2 -103\n");
    assert!(script.run(&gone)[0].aborted_by_daemon);
    // A notification that the kernel refused, before the answer.
    let text = format!("{refused}160 500 enter 1 9\n170 500 end 2 0\n180 500 exit 1 16\n");
    let story = &script.run(&text)[0];
    assert_eq!((story.fate, story.refused), (Fate::Matched, 0));
    assert!(cut(story).contains("daemon 30, reply 10"), "{}", cut(story));
    // A write to another file.
    let text = waits.replace("enter 1 9 16", "enter 1 8 16");
    assert_eq!(script.run(&text)[0].refused, 0);
    // The device has been closed, and another file has its number.
    let text = waits.replace("140 500 enter 1", "135 500 enter 3 9\n140 500 enter 1");
    assert_eq!(script.run(&text)[0].refused, 0);
}

#[test]
fn a_dropped_request_is_no_work_of_its_thread() {
    let script = Script::new().without(&["length"]);
    let served = "
        150 500 end 2 0
        155 500 exit 1 16
        160 500 enter 0 9
        200 900 exit 262 0
        300 900 enter 262
        310 900 begin 4 3
        310 900 bytes 4 56 45
        320 500 exit 0 56
        330 500 enter 0 9
    ";
    let again = "
        400 901 enter 262
        410 901 begin 6 3
        410 901 bytes 6 72 45
        420 500 exit 0 72
        430 500 enter 1 9
        440 500 end 6 0
        450 500 exit 1 16
        460 500 enter 0 9
        900 902 enter 39
    ";
    let text = format!("{READS}{served}");
    for text in [format!("{text}900 902 enter 39"), format!("{text}{again}")] {
        let stories = script.run(&text);
        let story = &stories[1];
        assert_eq!((story.fate, story.unique), (Fate::Unfinished, 4));
        assert!(story.dropped && !story.handed);
        assert_eq!((story.left, story.elsewhere), (330, 570));
        assert!(stories
            .iter()
            .all(|story| story.unique == 4 || !story.dropped));
    }
    // The thread ends later.
    let text = format!("{text}{again}950 500 ends\n960 7 end 4 -103");
    let story = &script.run(&text)[1];
    assert_eq!((story.fate, story.left), (Fate::Aborted, 330));
    assert!(story.dropped);
    // If the threads hand requests on, it is unknown who has it.
    let handed = "
        150 501 enter 1 9
        152 501 end 2 0
        155 501 exit 1 16
    ";
    let text = format!("{READS}{served}").replace("140 500 enter 1 9 16", "140 500 enter 202");
    let text = text.replace("150 500 end 2 0\n        155 500 exit 1 16", handed);
    let story = &script.run(&format!("{text}900 902 enter 39"))[1];
    assert_eq!((story.dropped, story.left), (false, ABSENT));
}

#[test]
fn a_request_that_is_sent_again_is_one() {
    const RESENT: i64 = 1 << 32;
    let script = Script::new().without(&["length"]);
    let text = format!(
        "
        90 500 enter 0 9
        100 900 enter 262
        110 900 begin 2 3
        110 900 bytes 2 56 45
        130 500 exit 0 56
        200 500 ends
        290 503 enter 0 9
        310 503 exit 0 56
        320 503 enter 1 9
        330 503 end 2 {RESENT}
        340 503 exit 1 16
        350 900 exit 262 0
    "
    );
    let stories = script.run(&text);
    let story = &stories[0];
    assert_eq!((stories.len(), story.fate), (1, Fate::Matched));
    assert!(story.resent && !story.handed);
    assert_eq!((story.reader, story.replier), (503, 503));
    assert_eq!((story.first_reader, story.first_read), (500, 130));
    // The same thread went on to wait for others.
    let text = text
        .replace("200 500 ends\n", "200 500 enter 0 9\n")
        .replace("503", "500");
    let again = text.replace("        290 500 enter 0 9\n", "");
    let stories = script.run(&again);
    let again = &stories[0];
    assert!(again.resent && !again.dropped);
    assert_eq!((again.first_reader, again.first_read), (500, 130));
    assert_eq!(cut(again), cut(story));
    assert_eq!(
        cut(story),
        "vfs_entry+setup 10, queue 200, daemon 10, reply 10, caller_wakeup+vfs_exit 20"
    );
}

/// The process that holds the device is known; its child serves.
#[test]
fn whoever_answers_is_the_server() {
    let script = Script::new().without(&["length"]);
    let text = "
        90 777 enter 0 9
        100 900 enter 262
        110 900 begin 2 3
        110 900 bytes 2 56 45
        130 777 exit 0 56
        140 777 enter 1 9
        150 777 end 2 0
        155 777 exit 1 16
        160 777 enter 0 9
        170 900 exit 262 0
        200 900 enter 262
        210 900 begin 4 3
        210 900 bytes 4 56 45
        230 777 exit 0 56
        240 777 enter 1 9
        250 777 end 4 0
        255 777 exit 1 16
        270 900 exit 262 0
    ";
    for story in &script.run(text) {
        assert_eq!((story.daemon_pid, story.reader), (777, 777));
        assert_eq!(
            cut(story),
            "vfs_entry+setup 10, queue 20, daemon 10, reply 10, caller_wakeup+vfs_exit 20"
        );
    }
}

#[test]
fn signals_of_a_waiting_caller_send_an_interrupt() {
    let script = Script::new().without(&["length"]);
    let rest = "
        150 500 enter 0 9
        155 0 signal 14 900 0
        160 0 signal 14 900 2
        165 0 signal 17 900 1
        170 500 exit 0 48
        180 500 enter 1 9
        190 500 end 2 -4
        195 500 exit 1 16
        200 900 exit 262 -4
        210 0 signal 14 900 0
    ";
    let reads = READS.replace("140 500 enter 1 9 16", "140 500 enter 202");
    let story = &script.run(&format!("{reads}{rest}"))[0];
    assert_eq!(
        (story.signals, story.signal, story.interrupted),
        (2, 14, true)
    );
    // It is pending when the same call makes its next request.
    let next = rest.replace("200 900 exit 262 -4", "");
    let next = format!(
        "{reads}{next}
        220 900 begin 4 3
        220 900 bytes 4 56 45
        230 500 enter 0 9
        235 500 exit 0 56
        240 500 enter 0 9
        245 500 exit 0 48
        250 500 enter 1 9
        260 500 end 4 0
        270 900 exit 262 0"
    );
    let stories = script.run(&next);
    assert_eq!((stories[1].signals, stories[1].interrupted), (1, true));
    // The daemon read a request of that length, or something else's INTERRUPT.
    let own = rest.replace(
        "170 500",
        "166 901 begin 4 3\n166 901 bytes 4 48 45\n170 500",
    );
    let story = &script.run(&format!("{reads}{own}"))[0];
    assert_eq!((story.signals, story.interrupted), (2, false));
    let story = &script.run(&format!("{reads}{}", rest.replace("0 48", "0 56")))[0];
    assert!(!story.interrupted);
}
