//! Requests' stories from events made by hand.

use fusetools_core::analysis::Filters;
use fusetools_core::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};
use fusetools_core::stitch::{Fate, Mark, Stitch, Story, MARK_NAMES};

const DAEMON: i32 = 500;
const MOUNT: u64 = 45;

#[rustfmt::skip]
const ROWS: [(&str, &str, Layer, &str, &str, Role); 16] = [
    ("begin", "fuse:fuse_request_send", Layer::Request, "", "", Role::Begin),
    ("sent", "fuse:fuse_request_sent", Layer::Request, "", "", Role::Sent),
    ("end", "fuse:fuse_request_end", Layer::Request, "", "", Role::End),
    ("enter", "raw_syscalls:sys_enter", Layer::Syscall, "", "", Role::SysEnter),
    ("exit", "raw_syscalls:sys_exit", Layer::Syscall, "", "", Role::SysExit),
    ("switch", "sched:sched_switch", Layer::Syscall, "", "", Role::Switch),
    ("waking", "sched:sched_waking", Layer::Syscall, "", "", Role::Waking),
    ("lookup", "fuse_daemon:cvmfs_lookup", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Entry),
    ("lookup__return", "fuse_daemon:cvmfs_lookup__return", Layer::Daemon, "cvmfs_lookup", "lookup", Role::Return),
    ("read", "fuse_daemon:cvmfs_read", Layer::Daemon, "cvmfs_read", "read", Role::Entry),
    ("read__return", "fuse_daemon:cvmfs_read__return", Layer::Daemon, "cvmfs_read", "read", Role::Return),
    ("forget", "fuse_daemon:cvmfs_forget", Layer::Daemon, "cvmfs_forget", "forget", Role::Entry),
    ("forget__return", "fuse_daemon:cvmfs_forget__return", Layer::Daemon, "cvmfs_forget", "forget", Role::Return),
    ("fuse_lookup", "fuse_kernel:fuse_lookup", Layer::Kernel, "fuse_lookup", "lookup", Role::Entry),
    ("fuse_lookup__return", "fuse_kernel:fuse_lookup__return", Layer::Kernel, "fuse_lookup", "lookup", Role::Return),
    ("reply", "fuse_daemon:fuse_reply_err", Layer::Daemon, "fuse_reply_err", "", Role::Reply),
];

/// `TIME TID KIND VALUE…`, a line each; threads of the daemon are 500 to 599. `- lost` is a loss. Kinds that are not
/// among these are not in the catalogue.
struct Script {
    without: Vec<&'static str>,
    daemons: Vec<(i32, u64)>,
}

impl Script {
    fn new() -> Script {
        Script {
            without: Vec::new(),
            daemons: vec![(DAEMON, MOUNT)],
        }
    }

    fn without(mut self, kinds: &[&'static str]) -> Script {
        self.without.extend(kinds);
        self
    }

    fn run(&self, text: &str) -> Vec<Story> {
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
            ..Filters::default()
        };
        let mut stitch = Stitch::new(&catalogue, filters, Some("x86_64"), 0, 0xff);
        let mut batch = Batch::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse::<i64>().unwrap();
            let (time, tid) = (number(words[0]) as u64, number(words[1]) as i32);
            let pid = if tid / 100 == 5 { DAEMON } else { tid };
            if words[2] == "lost" {
                batch.side.push(Side::Lost { time });
                continue;
            }
            if words[2] == "ends" {
                batch.side.push(Side::Exit { time, pid, tid });
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
            if rows[kind].5 == Role::Begin {
                // unique opcode -> unique connection opcode
                v = [v[0], MOUNT, v[1], ABSENT];
            } else if matches!(rows[kind].5, Role::End | Role::Sent) {
                v = [v[0], MOUNT, v[1], ABSENT];
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
        stitch.push(&batch, &mut |story| stories.push(story.clone()));
        stitch.finish(&mut |story| stories.push(story.clone()));
        stories.sort_by_key(Story::start);
        stories
    }
}

/// `sys_enter 100, begin 110 …` of what was seen.
fn seen(story: &Story) -> String {
    let marks = MARK_NAMES.iter().zip(story.marks);
    let seen = marks.filter(|(_, time)| *time != ABSENT);
    seen.map(|(name, time)| format!("{name} {time}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A caller that sleeps for an answer.
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

#[test]
fn without_what_is_not_recorded() {
    let all = [
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
