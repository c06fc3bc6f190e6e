//! Stacks that perf took of some of ftrace's switches, and the events that get them; the workload's switches.

use crate::perf_data;
use crate::trace_data;

use std::collections::{BTreeMap, HashMap};
use std::fs;

use fusetools_core::write::{merge_with, Extras, Shares};
use fusetools_core::Reader;
use perf_data::{record, Event, PerfData, Sample, CALLCHAIN, USUAL};
use trace_data::{entry, page, pieces, statistics};

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\
    \tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
const ENTER: &str = "name: sys_enter\nID: 601\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\
    \nprint fmt: \"\"\n";
const EXIT: &str = "name: sys_exit\nID: 602\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
const ENTRY: &str = "name: x_read\nID: 603\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n\
    \nprint fmt: \"\"\n";

const KERNEL: u64 = -128i64 as u64;
const USER: u64 = -512i64 as u64;
const AT: u64 = 0xffff_ffff_8100_1000;

fn events() -> Vec<Event> {
    let mut stacks = Event::new("sched:sched_switch", 600, &[11]);
    stacks.sample_type = USUAL | CALLCHAIN;
    let mut copies = Event::new("raw_syscalls:sys_enter", 601, &[14]);
    copies.sample_type = USUAL | CALLCHAIN;
    vec![Event::new("sched:sched_switch", 600, &[12]), stacks, copies]
}

fn formats() -> Vec<(&'static str, &'static str)> {
    vec![
        ("sched", SWITCH),
        ("raw_syscalls", ENTER),
        ("raw_syscalls", EXIT),
        ("fuse", perf_data::SEND),
        ("fuse_daemon", ENTRY),
    ]
}

/// Event of ftrace: CPU, time, raw data.
type FtraceEvent = (u32, u64, Vec<u8>);

fn raw(kind: u16, tid: i32, words: &[u64]) -> Vec<u8> {
    let mut raw = kind.to_le_bytes().to_vec();
    raw.extend([0, 0]);
    raw.extend(tid.to_le_bytes());
    words.iter().for_each(|word| raw.extend(word.to_le_bytes()));
    raw
}

/// Return the switch of a thread that waits for something (state 1).
fn switch(tid: i32, time: u64) -> FtraceEvent {
    (1, time, raw(600, tid, &[tid as u64, 1, 0]))
}

fn enter(tid: i32, time: u64, number: u64, first: u64) -> FtraceEvent {
    (1, time, raw(601, tid, &[number, first, 0, 0, 0, 0, 0]))
}

fn leave(tid: i32, time: u64) -> FtraceEvent {
    (1, time, raw(602, tid, &[0]))
}

fn send(tid: i32, time: u64, opcode: u32) -> FtraceEvent {
    let mut raw = perf_data::send(2, time, opcode);
    raw[..2].copy_from_slice(&500u16.to_le_bytes());
    raw[4..8].copy_from_slice(&tid.to_le_bytes());
    (1, time, raw)
}

fn sample(event: usize, tid: i32, time: u64, chain: &[u64]) -> Vec<u8> {
    let raw = match event {
        2 => raw(601, tid, &[202, 0, 0, 0, 0, 0, 0]),
        _ => raw(600, tid, &[tid as u64, 1, 0]),
    };
    events()[event].sample(&Sample {
        id: events()[event].ids[0],
        pid: process(tid),
        tid,
        time,
        cpu: 1,
        chain: chain.to_vec(),
        raw,
        ..Sample::default()
    })
}

/// Return the stack that perf takes of a switch; below, of the entry of a system call.
fn stack(tid: i32, time: u64, chain: &[u64]) -> Vec<u8> {
    sample(1, tid, time, chain)
}

fn entry_stack(tid: i32, time: u64, chain: &[u64]) -> Vec<u8> {
    sample(2, tid, time, chain)
}

/// Return a thread's process: threads 7 and 8 are of one.
fn process(tid: i32) -> i32 {
    if tid == 8 {
        7
    } else {
        tid
    }
}

/// Samples of the merged recording: event's name, thread and chain of each.
type Samples = Vec<(String, i32, Vec<u64>)>;

fn merged(
    name: &str,
    recorded: &[FtraceEvent],
    taken: Vec<Vec<u8>>,
    extras: Extras,
) -> (Samples, Shares) {
    let mut events = events();
    events[0] = Event::new("dummy:u", 9, &[13]);
    let file = PerfData {
        events,
        formats: formats(),
        records: taken,
    };
    let mut by_cpu = BTreeMap::<u32, Vec<&FtraceEvent>>::new();
    recorded
        .iter()
        .for_each(|it| by_cpu.entry(it.0).or_default().push(it));
    let mut all = Vec::new();
    for (cpu, recorded) in by_cpu {
        let mut time = recorded[0].1;
        let entries: Vec<_> = recorded
            .iter()
            .map(|(_, at, raw)| entry(at - std::mem::replace(&mut time, *at), raw))
            .collect();
        all.push((cpu, page(recorded[0].1, 0, &entries, &[])));
    }
    all.push(statistics(0));
    let folder = std::env::temp_dir().join(format!("fusetools-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [perf, ring, whole] = ["perf", "ring", "whole"].map(|name| folder.join(name));
    fs::write(&perf, file.bytes()).unwrap();
    fs::write(&ring, pieces(&formats(), &all)).unwrap();
    let extras = Extras {
        threads: HashMap::from([(7, 7), (8, 7), (9, 9)]),
        ..extras
    };
    let info = merge_with(&[perf, ring], &whole, "", &extras).unwrap();
    let reader = Reader::open(&whole).unwrap();
    assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
    // perf looks up its ids.
    let mut ids = reader.attrs().iter().flat_map(|attr| &attr.ids);
    assert!(ids.any(|id| *id == 14));
    let samples = reader.records().filter(|record| record.kind == 9);
    let samples = samples.map(|record| {
        let event = record.event.unwrap();
        let layout = reader.attrs()[event].layout;
        let words = layout
            .chain(&record.bytes)
            .unwrap_or_default()
            .chunks_exact(8);
        let chain = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let (pid, tid) = layout.task(&record.bytes).unwrap();
        assert_eq!(pid, process(tid));
        (reader.events()[event].name.clone(), tid, chain.collect())
    });
    let samples = samples.collect();
    fs::remove_dir_all(folder).unwrap();
    (samples, info.shares)
}

fn chains(samples: &Samples) -> Vec<Vec<u64>> {
    let switches = samples.iter().filter(|of| of.0 == "sched:sched_switch");
    switches.map(|of| of.2.clone()).collect()
}

const A: [u64; 4] = [KERNEL, AT, USER, 0x1000];
const B: [u64; 4] = [KERNEL, AT + 8, USER, 0x2000];

#[test]
fn a_wait_has_its_own_stack_or_a_similar_ones() {
    let events = [
        enter(7, 10, 0, 5),
        switch(7, 20), // its own, A
        enter(7, 30, 0, 5),
        switch(7, 40), // like the first one
        enter(7, 50, 0, 6),
        switch(7, 60), // on another descriptor: only the kernel's part
        enter(7, 70, 35, 6),
        switch(7, 80),        // its own, B
        enter(7, 90, 35, 99), // its argument is an address
        switch(7, 100),
        enter(8, 110, 0, 5),
        switch(8, 120), // another thread of that process
        enter(9, 130, 0, 5),
        switch(9, 140), // another process: only the kernel's part
        leave(7, 150),
        switch(7, 160), // in no call: no other is alike
        enter(7, 170, 1, 0),
        switch(7, 180), // before the first similar one with a stack: has that
        enter(7, 190, 1, 0),
        switch(7, 200), // its own, A
        enter(7, 210, 35, 0),
        switch(7, 220), // its own, A: from now on others of its kind have it
        enter(7, 230, 35, 0),
        switch(7, 240),
    ];
    let taken = vec![
        stack(7, 18, &A),
        stack(7, 77, &B),
        stack(7, 199, &A),
        stack(7, 219, &A),
    ];
    let (samples, shares) = merged("waits", &events, taken, Extras::default());
    let of_kernel = vec![KERNEL, AT, USER, USER];
    let [a, b, none] = [A.to_vec(), B.to_vec(), Vec::new()];
    let expected = [
        &a, &a, &of_kernel, &b, &b, &a, &of_kernel, &none, &a, &a, &a, &a,
    ];
    assert_eq!(chains(&samples), expected.map(Clone::clone));
    assert_eq!(samples.len(), events.len());
    let expected = Shares {
        taken: 4,
        alike: 7,
        without: 1,
        ns: 2 + 3 + 1 + 1,
    };
    assert_eq!(shares, expected);
}

#[test]
fn a_stranger_has_no_stack() {
    let mut given_way = switch(9, 20);
    given_way.2[24..28].copy_from_slice(&7i32.to_le_bytes()); // to a thread of the daemon
    let extras = Extras {
        scope: Some(vec![7]),
        daemons: Some(vec![7]),
        ..Extras::default()
    };
    let taken = vec![stack(9, 19, &A), stack(7, 29, &B)];
    let (samples, shares) = merged("stranger", &[given_way, switch(7, 30)], taken, extras);
    assert_eq!(chains(&samples), [vec![], B.to_vec()]);
    assert_eq!(shares.taken, 1);
}

#[test]
fn a_stack_is_of_the_next_switch_on_its_cpu() {
    let (mut elsewhere, mut here) = (switch(7, 20), enter(9, 30, 0, 5));
    (elsewhere.0, here.0) = (0, 1);
    let events = [
        elsewhere, // on another CPU
        here,
        switch(9, 40), // another thread's: the switch with the stack was lost
        enter(7, 50, 0, 5),
        switch(7, 60), // the stack is gone by now
    ];
    let (samples, shares) = merged("next", &events, vec![stack(7, 19, &A)], Extras::default());
    assert_eq!(chains(&samples), vec![Vec::<u64>::new(); 3]);
    assert_eq!((shares.taken, shares.alike, shares.without), (0, 0, 3));
}

#[test]
fn waits_for_other_operations_are_not_alike() {
    let callback = |tid, time| (1, time, raw(603, tid, &[0x1000]));
    let events = [
        enter(7, 10, 262, 1),
        send(7, 15, 1),
        switch(7, 20), // for a lookup: A
        enter(7, 30, 262, 1),
        send(7, 35, 3),
        switch(7, 40), // for a getattr: no other is alike
        enter(7, 50, 262, 1),
        send(7, 55, 1),
        switch(7, 60),
        enter(7, 70, 262, 1),
        switch(7, 80), // for something else
        enter(9, 90, 202, 0),
        switch(9, 100), // B
        callback(9, 110),
        enter(9, 120, 202, 0),
        switch(9, 130), // within a callback
    ];
    let taken = vec![stack(7, 19, &A), stack(9, 99, &B)];
    let (samples, _) = merged("operations", &events, taken, Extras::default());
    let [a, b, none] = [A.to_vec(), B.to_vec(), Vec::new()];
    let expected = [&a, &none, &a, &none, &b, &none].map(Clone::clone);
    assert_eq!(chains(&samples), expected);
}

#[test]
fn a_wait_in_a_call_has_the_users_stack_of_its_entry() {
    let own = [KERNEL, AT + 8, USER, 0x7000, 0x7100];
    let at_entry = [KERNEL, AT, USER, 0x1000, 0x1100];
    let events = [
        enter(7, 10, 202, 0), // with the stack of that time
        switch(7, 20),        // the kernel's part is the switch's
        enter(7, 30, 0, 5),
        switch(7, 40), // in another call
        enter(7, 50, 202, 0),
        switch(7, 60), // no stack: the kernel's part of the first similar one
        leave(7, 70),
        switch(7, 80),
    ];
    let taken = vec![
        entry_stack(7, 9, &at_entry),
        stack(7, 19, &own),
        entry_stack(7, 49, &[KERNEL, AT, USER, 0x3000]),
    ];
    let extras = Extras {
        files: Some(Default::default()),
        ..Extras::default()
    };
    let (samples, _) = merged("entry", &events, taken, extras);
    let expected = [
        vec![KERNEL, AT + 8, USER, 0x1000, 0x1100],
        vec![],
        vec![KERNEL, AT + 8, USER, 0x3000],
        vec![],
    ];
    assert_eq!(chains(&samples), expected);
    // The calls themselves have no stack, and each is reported once.
    let calls = samples.iter().filter(|of| of.0 == "raw_syscalls:sys_enter");
    assert!(calls.clone().count() == 3 && calls.map(|of| &of.2).all(Vec::is_empty));
}

/// Merge a recording of perf's alone. Return the threads of its samples.
fn threads(name: &str, records: Vec<Vec<u8>>, extras: &Extras) -> (Vec<i32>, u64) {
    let file = PerfData {
        events: events(),
        formats: formats(),
        records,
    };
    let name = format!("fusetools-{name}-{}", std::process::id());
    let path = |end: &str| std::env::temp_dir().join(format!("{name}.{end}"));
    fs::write(path("in"), file.bytes()).unwrap();
    let info = merge_with(&[path("in")], &path("out"), "", extras).unwrap();
    let reader = Reader::from_bytes(fs::read(path("out")).unwrap()).unwrap();
    let _ = (fs::remove_file(path("in")), fs::remove_file(path("out")));
    let samples = reader.records().filter(|record| record.kind == 9);
    let threads = samples.map(|record| {
        let layout = reader.attrs()[record.event.unwrap()].layout;
        layout.task(&record.bytes).unwrap().1
    });
    (threads.collect(), info.missing_switches)
}

/// Return a switch to another thread.
fn of_perf(pid: i32, time: u64, next: i32) -> Vec<u8> {
    events()[0].sample(&Sample {
        id: 12,
        pid,
        tid: pid,
        time,
        raw: raw(600, pid, &[pid as u64, 0, next as u64]),
        ..Sample::default()
    })
}

#[test]
fn other_processes_are_left_out() {
    let fork = |pid: i32, parent: i32, time: u64| {
        let body = perf_data::words(&[pid as u32, parent as u32, pid as u32, parent as u32]);
        let body = [body, time.to_le_bytes().to_vec()].concat();
        let id = Sample {
            id: 12,
            pid: parent,
            tid: parent,
            time,
            ..Sample::default()
        };
        events()[0].other(7, 0, &body, &id)
    };
    let of = of_perf;
    let records = vec![
        fork(100, 1, 5), // of the workload itself, as perf reports earlier processes
        of(100, 10, 0),
        of(50, 20, 0),
        of(101, 25, 0),
        fork(101, 100, 30),
        of(101, 40, 0),
        of(50, 50, 101),   // to one of its processes
        of(42, 60, 0),     // a daemon
        fork(101, 50, 70), // its number, used again
        of(101, 80, 0),
        record(9, 1, &[0; 8]),
    ];
    let extras = Extras {
        scope: Some(vec![42, 100]),
        daemons: Some(vec![42]),
        ..Extras::default()
    };
    let (tids, _) = threads("scope", records, &extras);
    assert_eq!(tids, [100, 101, 50, 42]);
}

#[test]
fn switches_that_are_missing_are_counted() {
    let whole = vec![
        of_perf(100, 10, 42),
        of_perf(42, 20, 100),
        of_perf(100, 30, 50),
        of_perf(50, 40, 42), // switches between others are not recorded
        of_perf(42, 50, 50),
        of_perf(50, 60, 100),
    ];
    let missing = |name: &str, records: Vec<Vec<u8>>| {
        let extras = Extras {
            scope: Some(vec![42, 100]),
            daemons: Some(vec![42]),
            ..Extras::default()
        };
        threads(&format!("missing-{name}"), records, &extras).1
    };
    assert_eq!(missing("none", whole.clone()), 0);
    let without = |at: usize| {
        let mut records = whole.clone();
        records.remove(at);
        missing(&at.to_string(), records)
    };
    // Without the daemon's first switch, it is switched to twice, and the workload from twice.
    assert_eq!([without(1), without(2), without(3)], [2, 1, 1]);
}
