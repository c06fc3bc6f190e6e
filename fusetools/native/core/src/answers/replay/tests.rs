//! Moments as the reader gives them, of a worker and its helpers.

use std::sync::Arc;

use super::*;
use crate::answers::slowest::NamedRequest;
use crate::events::Layer;
use crate::operations::Operation;
use crate::requests::peers::Peers;
use crate::requests::stitch::Fate;

const WORKER: i32 = 7;
const DOWNLOAD: i32 = 8;
const RESOLVER: i32 = 9;
const DAEMON: i32 = 5;

// System calls of x86_64.
const READ: u64 = 0;
const POLL: u64 = 7;
const CONNECT: u64 = 42;
const RECVFROM: u64 = 45;
const FUTEX: u64 = 202;
const NANOSLEEP: u64 = 230;

const ROLES: [Role; 9] = [
    Role::Switch,
    Role::Waking,
    Role::SysEnter,
    Role::SysExit,
    Role::Connect,
    Role::Fetched,
    Role::Committed,
    Role::RingWait,
    Role::End,
];

fn catalogue() -> Vec<Meaning> {
    let row = |role| Meaning {
        event: format!("x:{role:?}"),
        layer: Layer::Syscall,
        function: String::new(),
        operation: String::new(),
        role,
    };
    ROLES.map(row).to_vec()
}

fn event(time: u64, tid: i32, role: Role, values: &[u64]) -> Moment {
    let mut v = [ABSENT; 4];
    v[..values.len()].copy_from_slice(values);
    let kind = ROLES.iter().position(|known| *known == role).unwrap();
    Moment {
        time,
        tid,
        cpu: 0,
        what: What::Event(kind as u32, v),
    }
}

fn sleeps(time: u64, tid: i32) -> Moment {
    event(time, tid, Role::Switch, &[tid as u64, 1, 0])
}

fn woken(time: u64, waker: i32, tid: i32, flags: u64) -> Moment {
    event(time, waker, Role::Waking, &[tid as u64, flags])
}

/// A system call of `tid` with its first argument.
fn call(from: u64, to: u64, tid: i32, number: u64, descriptor: u64) -> [Moment; 2] {
    [
        event(from, tid, Role::SysEnter, &[number, descriptor]),
        event(to, tid, Role::SysExit, &[number, 0]),
    ]
}

/// Return what is found in moments by thread, as a gather that gives those of spans.
fn with<T>(
    threads: &[(i32, Vec<Moment>)],
    connections: Connections,
    ask: impl Fn(&Replay) -> T,
) -> T {
    let catalogue = catalogue();
    let gather = |spans: &[Span]| {
        let of = |span: &Span| {
            let thread = threads.iter().filter(|(tid, _)| *tid == span.tid);
            let moments = thread.flat_map(|(_, moments)| moments);
            let inside = moments.filter(|moment| span.holds(moment.time));
            inside.take(MOST).cloned().collect()
        };
        spans.iter().map(of).collect()
    };
    let replay = Replay {
        catalogue: &catalogue,
        arch: Arch::X86_64,
        connections: &connections,
        gather: Box::new(gather),
    };
    ask(&replay)
}

fn story(from: u64, to: u64) -> Story {
    let mut story = Story::new(0, Operation::LOOKUP, Fate::Matched);
    story.daemon_pid = DAEMON;
    story.daemon_tid = WORKER;
    story.marks[Mark::Read as usize] = from;
    story.marks[Mark::Reply as usize] = to;
    story.until = to;
    story
}

fn helpers_with(threads: &[(i32, Vec<Moment>)], connections: Connections) -> Vec<Helper> {
    with(threads, connections, |replay| {
        let mut rows = replay.meanwhile(&[&story(0, 1000)]);
        rows.pop().flatten().unwrap().helpers
    })
}

fn helpers(threads: &[(i32, Vec<Moment>)]) -> Vec<Helper> {
    helpers_with(threads, Connections::default())
}

fn times(rows: &[(&str, u64, u64)]) -> Vec<SyscallTime> {
    let row = |&(syscall, calls, time): &(&str, u64, u64)| SyscallTime {
        syscall: syscall.to_owned(),
        calls,
        time,
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_download_by_another_thread_is_named() {
    let half = |bytes| u64::from_le_bytes(bytes);
    let proxy = half([0, 0, 255, 255, 192, 0, 2, 1]);
    let worker = vec![
        sleeps(100, WORKER),
        woken(110, DOWNLOAD, WORKER, 0), // a moment only, for a lock
        event(112, DOWNLOAD, Role::Switch, &[8, 1, 7]),
        sleeps(120, WORKER),
        woken(900, DOWNLOAD, WORKER, 0),
        event(905, 0, Role::Switch, &[0, 0, 7]),
    ];
    let mut download = call(115, 130, DOWNLOAD, POLL, 0).to_vec();
    download.extend([
        event(140, DOWNLOAD, Role::SysEnter, &[CONNECT, 4]),
        event(145, DOWNLOAD, Role::Connect, &[3128, 0, proxy]),
        event(150, DOWNLOAD, Role::SysExit, &[CONNECT, 0]),
    ]);
    download.extend(call(160, 860, DOWNLOAD, POLL, 0));
    download.push(event(890, DOWNLOAD, Role::SysEnter, &[FUTEX, 0]));
    assert_eq!(
        helpers(&[(WORKER, worker), (DOWNLOAD, download)]),
        [Helper {
            tid: DOWNLOAD,
            waited: 780,
            // The first poll had begun before: it counts from where the wait does.
            syscalls: times(&[("poll", 2, 710), ("connect", 1, 10), ("futex", 1, 10)]),
            peers: Some(vec!["192.0.2.1:3128".to_owned()]),
            files: vec![],
            states: None,
        }]
    );
}

#[test]
fn a_chain_ends_at_a_thread_that_is_in_it() {
    let worker = vec![sleeps(10, WORKER), woken(900, DOWNLOAD, WORKER, 0)];
    let download = vec![
        event(15, DOWNLOAD, Role::SysEnter, &[FUTEX, 0]),
        sleeps(16, DOWNLOAD),
        woken(800, RESOLVER, DOWNLOAD, 0),
        event(850, DOWNLOAD, Role::SysExit, &[FUTEX, 0]),
    ];
    let resolver = vec![
        event(16, RESOLVER, Role::SysEnter, &[RECVFROM, 5]),
        sleeps(17, RESOLVER),
        woken(750, WORKER, RESOLVER, 0),
        event(760, RESOLVER, Role::SysExit, &[RECVFROM, 0]),
    ];
    let found = helpers(&[(WORKER, worker), (DOWNLOAD, download), (RESOLVER, resolver)]);
    let rows: Vec<_> = found.iter().map(|row| (row.tid, row.waited)).collect();
    assert_eq!(rows, [(DOWNLOAD, 890), (RESOLVER, 784)]);
    assert_eq!(found[0].syscalls, times(&[("futex", 1, 835)]));
    assert_eq!(found[0].peers, Some(vec![]));
    // It used a socket with an unknown peer.
    assert_eq!(found[1].peers, None);
    // It began its sleep with the wait, and ran from its wake-up.
    let states = found[1].states.unwrap();
    assert_eq!((states.blocked, states.runnable), (733, 10));
    assert_eq!(states.on_cpu, 1 + 40);
}

#[test]
fn interrupts_and_unrecorded_threads_are_no_helpers() {
    let calls = call(20, 30, DOWNLOAD, POLL, 0).to_vec();
    // An interrupt, whatever task it came upon; the idle task; after the reply.
    for end in [
        woken(90, DOWNLOAD, WORKER, 8),
        woken(90, DOWNLOAD, WORKER, 16),
        woken(90, 0, WORKER, 0),
        woken(1900, DOWNLOAD, WORKER, 0),
    ] {
        let worker = vec![sleeps(10, WORKER), end];
        let threads = [(WORKER, worker), (DOWNLOAD, calls.clone())];
        assert_eq!(helpers(&threads), []);
    }
    // A thread that is not recorded has no system calls.
    let worker = vec![sleeps(10, WORKER), woken(90, DOWNLOAD, WORKER, 0)];
    assert_eq!(helpers(&[(WORKER, worker)]), []);
}

#[test]
fn a_request_without_a_span_has_no_answer() {
    let mut handed = story(0, 1000);
    handed.handed = true;
    let mut unread = story(0, 1000);
    unread.marks[Mark::Read as usize] = ABSENT;
    let rows = with(&[], Connections::default(), |replay| {
        replay.meanwhile(&[&handed, &unread])
    });
    assert_eq!(rows, [None, None]);
}

#[test]
fn peers_are_those_of_the_descriptors_that_a_thread_uses() {
    let worker = vec![sleeps(10, WORKER), woken(90, DOWNLOAD, WORKER, 0)];
    // The first argument of poll is no descriptor. The helper may begin before its wait.
    let calls = [
        (5, READ, 3),
        (15, POLL, 7),
        (20, READ, 4),
        (40, RECVFROM, 5),
    ];
    let calls = calls.map(|(time, number, fd)| call(time, time + 4, DOWNLOAD, number, fd));
    let threads = [(WORKER, worker), (DOWNLOAD, calls.concat())];
    let connected = |rows: &[(u64, &str)]| {
        let rows = rows.iter();
        let rows = rows.map(|(fd, peer)| (DAEMON, *fd, peer.to_string()));
        Connections::new(rows.collect(), Vec::new(), &Peers::default())
    };
    let peers = |rows: &[(u64, &str)]| helpers_with(&threads, connected(rows))[0].peers.clone();
    let (four, five, seven) = ("10.0.0.4:80", "[::1]:443", "10.0.0.7:80");
    let all = peers(&[(4, four), (5, five), (7, seven)]);
    assert_eq!(all, Some(vec![four.to_owned(), five.to_owned()]));
    assert_eq!(peers(&[(4, four)]), Some(vec![four.to_owned()]));
    assert_eq!(peers(&[(3, four)]), Some(vec![four.to_owned()]));
    assert_eq!(peers(&[(7, seven)]), None);
}

#[test]
fn files_are_those_of_the_descriptors_that_a_thread_uses() {
    let worker = vec![sleeps(10, WORKER), woken(90, DOWNLOAD, WORKER, 0)];
    // The first argument of poll is no descriptor.
    let calls = [(15, POLL, 7), (20, READ, 4), (40, READ, 4), (60, READ, 5)];
    let calls = calls.map(|(time, number, fd)| call(time, time + 4, DOWNLOAD, number, fd));
    let threads = [(WORKER, worker), (DOWNLOAD, calls.concat())];
    let row = |pid, fd, path: &str| (pid, fd, path.to_owned());
    let files = vec![
        row(DAEMON, 4, "/data/four"),
        row(DAEMON + 1, 5, "/data/five"),
        row(DAEMON, 7, "/data/seven"),
    ];
    let connections = Connections::new(Vec::new(), files, &Peers::default());
    let helper = &helpers_with(&threads, connections)[0];
    assert_eq!(helper.files, ["/data/four"]);
    assert_eq!(helper.peers, Some(vec![]));
}

#[test]
fn a_call_that_does_not_return_lasts_until_the_request_is_over() {
    let enter = event(140, WORKER, Role::SysEnter, &[NANOSLEEP]);
    let last = sleeps(145, WORKER);
    let calls = |moments: Vec<Moment>, until| {
        let mut story = story(120, ABSENT);
        story.until = until;
        with(&[(WORKER, moments)], Connections::default(), |replay| {
            replay
                .meanwhile(&[&story])
                .pop()
                .flatten()
                .unwrap()
                .syscalls
        })
    };
    let moments = vec![enter.clone(), last.clone()];
    let of = |ns| times(&[("clock_nanosleep", 1, ns)]);
    assert_eq!(calls(moments.clone(), 1000), of(860));
    // The request's end may be unknown, and so are events beyond the last kept moment.
    assert_eq!(calls(moments, ABSENT), of(5));
    let mut many = vec![enter; MOST - 1];
    many.push(last);
    assert_eq!(calls(many, 1000), of(5));
}

fn timeline(threads: &[(i32, Vec<Moment>)], story: Story) -> Vec<Line> {
    let request = NamedRequest {
        story,
        details: crate::requests::names::NOTHING,
        path: None,
        inode: None,
        comm: String::new(),
        aborter: String::new(),
        duration: 0,
    };
    with(threads, Connections::default(), |replay| {
        replay.timeline(&request, &[]).0
    })
}

#[test]
fn a_timeline_has_what_a_ring_does_and_each_switch_once() {
    let switch = |time, out| Moment {
        time,
        tid: WORKER,
        cpu: u32::MAX,
        what: What::Switch {
            out,
            preempt: false,
        },
    };
    let moments = vec![
        event(130, WORKER, Role::Fetched, &[1, 2, 3]),
        event(140, WORKER, Role::Committed, &[1, 2, 3]),
        event(150, WORKER, Role::RingWait, &[1]),
        sleeps(160, WORKER),
        switch(160, true),
        switch(170, false),
        Moment {
            time: 175,
            tid: WORKER,
            cpu: 0,
            what: What::Name(Arc::from("x"), 1),
        },
        event(180, 0, Role::Waking, &[WORKER as u64, 8]),
    ];
    let lines = timeline(&[(WORKER, moments)], story(120, 1000));
    let daemon = lines.iter().map(|line| {
        assert_eq!(line.caller, None);
        line.daemon.as_ref().unwrap().what
    });
    let expected = [
        "fetched",
        "committed",
        "ring_wait",
        "sleeps",
        "runs",
        "interrupted",
    ];
    assert_eq!(daemon.collect::<Vec<_>>(), expected);
}

#[test]
fn a_timeline_tells_other_requests_and_errors() {
    let mut story = story(120, 1000);
    story.unique = 4;
    let failed = u64::from(-2i32 as u32);
    let moments = vec![
        event(130, WORKER, Role::End, &[6, 40, failed]),
        event(
            140,
            WORKER,
            Role::End,
            &[4, 40, failed | crate::events::RESENT],
        ),
        event(150, WORKER, Role::SysExit, &[READ, -9i64 as u64]),
        event(160, WORKER, Role::SysExit, &[335, 0]), // a uretprobe's trampoline
    ];
    let lines = timeline(&[(WORKER, moments)], story);
    let told = lines.iter().map(|line| {
        let action = line.daemon.as_ref().unwrap();
        (action.what, action.number, action.unique)
    });
    let expected = [
        ("end", Some(-2), Some(6)),
        ("end", Some(-2), None),
        ("returns", Some(-9), None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
