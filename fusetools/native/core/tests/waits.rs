//! Switches in a recording that is merged: the stacks that were taken of a part of them, and whose they become.

mod perf_data;

use std::fs;

use fusetools_core::write::{merge_with, Extras, Shares};
use fusetools_core::Reader;
use perf_data::{record, Event, PerfData, Sample, CALLCHAIN, RAW, USUAL};

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\
    \tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
const ENTER: &str = "name: sys_enter\nID: 601\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\
    \nprint fmt: \"\"\n";

const KERNEL: u64 = -128i64 as u64;
const USER: u64 = -512i64 as u64;
const AT: u64 = 0xffff_ffff_8100_1000;

fn events() -> Vec<Event> {
    let mut stacks = Event::new("fusetools_stacks", 3, &[13]);
    stacks.sample_type = USUAL & !RAW | CALLCHAIN;
    let mut always = Event::new("sched:sched_switch", 600, &[11]);
    always.sample_type = USUAL | CALLCHAIN;
    let mut waits = Event::new("raw_syscalls:sys_enter", 601, &[14]);
    waits.sample_type = USUAL | CALLCHAIN;
    vec![
        always,
        Event::new("sched:sched_switch", 600, &[12]),
        stacks,
        waits,
        Event::new("raw_syscalls:sys_enter", 601, &[15]),
    ]
}

fn sample(event: usize, tid: i32, time: u64, chain: &[u64], raw: Vec<u8>) -> Vec<u8> {
    let events = events();
    events[event].sample(&Sample {
        id: events[event].ids[0],
        pid: 7,
        tid,
        time,
        chain: chain.to_vec(),
        raw,
        ..Sample::default()
    })
}

/// From a thread in the state of waiting for something to another.
fn switch(tid: i32, time: u64, next: i32) -> Vec<u8> {
    let mut raw = vec![0; 28];
    raw[..2].copy_from_slice(&600u16.to_le_bytes());
    raw[8..12].copy_from_slice(&tid.to_le_bytes());
    raw[16] = 1;
    raw[24..28].copy_from_slice(&next.to_le_bytes());
    sample(1, tid, time, &[], raw)
}

fn stack(tid: i32, time: u64, chain: &[u64]) -> Vec<u8> {
    sample(2, tid, time, chain, vec![])
}

/// `with`: with a stack, as the calls in which a daemon waits.
fn enter(tid: i32, time: u64, number: u64, first: u64, with: Option<&[u64]>) -> Vec<u8> {
    let mut raw = vec![0; 64];
    raw[..2].copy_from_slice(&601u16.to_le_bytes());
    raw[8..16].copy_from_slice(&number.to_le_bytes());
    raw[16..24].copy_from_slice(&first.to_le_bytes());
    let event = if with.is_some() { 3 } else { 4 };
    sample(event, tid, time, with.unwrap_or_default(), raw)
}

/// What becomes of it: of each sample its event's name, thread and chain, and of how many stacks.
fn merged(
    name: &str,
    records: Vec<Vec<u8>>,
    extras: &Extras,
) -> (Vec<(String, i32, Vec<u64>)>, Shares) {
    let file = PerfData {
        events: events(),
        formats: vec![("sched", SWITCH), ("raw_syscalls", ENTER)],
        records,
    };
    let folder = std::env::temp_dir();
    let path = |end: &str| folder.join(format!("fusetools-{name}-{}.{end}", std::process::id()));
    fs::write(path("in"), file.bytes()).unwrap();
    let info = merge_with(&[path("in")], &path("out"), "", extras).unwrap();
    let reader = Reader::from_bytes(fs::read(path("out")).unwrap()).unwrap();
    let _ = (fs::remove_file(path("in")), fs::remove_file(path("out")));
    assert!(reader
        .events()
        .iter()
        .all(|event| event.name != "fusetools_stacks"));
    // perf looks its ids up.
    let mut ids = reader.attrs().iter().flat_map(|attr| &attr.ids);
    assert!(ids.any(|id| *id == 13));
    let samples = reader.records().filter(|record| record.kind == 9);
    let found = samples.map(|record| {
        let event = record.event.unwrap();
        let layout = reader.attrs()[event].layout;
        let words = layout.chain(&record.bytes).unwrap().chunks_exact(8);
        let chain = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let (_, tid) = layout.task(&record.bytes).unwrap();
        (reader.events()[event].name.clone(), tid, chain.collect())
    });
    (found.collect(), info.shares)
}

fn chains(found: &[(String, i32, Vec<u64>)]) -> Vec<Vec<u64>> {
    let switches = found.iter().filter(|one| one.0 == "sched:sched_switch");
    switches.map(|one| one.2.clone()).collect()
}

#[test]
fn a_wait_has_its_own_stack_or_that_of_the_last_one_alike() {
    let [a, b] = [[KERNEL, AT, USER, 0x1000], [KERNEL, AT, USER, 0x2000]];
    let records = vec![
        enter(7, 10, 0, 5, None),
        switch(7, 20, 0),
        sample(1, 8, 21, &[], vec![0; 28]), // another CPU's, between the two
        stack(7, 22, &a),
        enter(7, 30, 0, 5, None),
        switch(7, 40, 0), // as the first one
        enter(7, 50, 0, 6, None),
        switch(7, 60, 0), // on another descriptor: none is alike
        enter(7, 70, 35, 6, None),
        switch(7, 80, 0),
        stack(7, 82, &b),
        enter(7, 90, 35, 99, None), // what it takes is an address
        switch(7, 100, 0),
        enter(8, 110, 0, 5, None),
        switch(8, 120, 0), // another thread of that process
        stack(9, 130, &a), // its switch was lost
        enter(7, 140, 1, 0, None),
        switch(7, 150, 0), // before the first one alike of which a stack was taken
        enter(7, 160, 1, 0, None),
        switch(7, 170, 0),
        stack(7, 172, &b),
    ];
    let (found, shares) = merged("waits", records, &Extras::default());
    let [a, b] = [a.to_vec(), b.to_vec()];
    let none = Vec::new();
    let expected = [&a, &none, &a, &none, &b, &b, &a, &b, &b];
    assert_eq!(chains(&found), expected.map(Clone::clone));
    assert_eq!(found.len(), 17);
    let expected = Shares {
        taken: 3,
        alike: 4,
        without: 2,
    };
    assert_eq!(shares, expected);
}

#[test]
fn a_stack_is_of_the_switch_right_before_it() {
    let a = [KERNEL, AT, USER, 0x1000];
    let records = vec![
        switch(7, 10, 0),
        enter(7, 20, 1, 0, None), // it ran again
        stack(7, 21, &a),
        switch(7, 1_000, 0),
        stack(7, 900_000, &a), // much later
    ];
    let (found, shares) = merged("before", records, &Extras::default());
    assert_eq!(chains(&found), [vec![], vec![]]);
    assert_eq!((shares.taken, shares.alike), (0, 0));
}

#[test]
fn a_wait_in_a_call_has_the_users_stack_of_its_entry() {
    let [a, own] = [
        [KERNEL, AT, USER, 0x1000, 0x1100],
        [KERNEL, AT + 8, USER, 0x7000, 0x7100],
    ];
    let files = Extras {
        files: Some(Default::default()),
        ..Extras::default()
    };
    let records = vec![
        enter(7, 10, 202, 0, Some(&own)),
        switch(7, 20, 0), // none of it was taken: the kernel's part is that of the first one alike
        enter(7, 30, 0, 5, None),
        switch(7, 40, 0), // in another call
        enter(7, 50, 202, 0, Some(&a)),
        switch(7, 60, 0),
        stack(7, 62, &own),
    ];
    let (found, _) = merged("entry", records, &files);
    let last = vec![KERNEL, AT + 8, USER, 0x1000, 0x1100];
    assert_eq!(chains(&found), [own.to_vec(), vec![], last]);
    // The calls themselves have none.
    let calls = found.iter().filter(|one| one.0 == "raw_syscalls:sys_enter");
    assert!(calls.clone().count() == 3 && calls.map(|one| &one.2).all(Vec::is_empty));
}

#[test]
fn what_is_not_of_the_workload_is_left_out() {
    let fork = |pid: i32, parent: i32, time: u64| {
        let body = perf_data::words(&[pid as u32, parent as u32, pid as u32, parent as u32]);
        let body = [body, time.to_le_bytes().to_vec()].concat();
        let id = Sample {
            id: 11,
            pid: parent,
            tid: parent,
            time,
            ..Sample::default()
        };
        events()[0].other(7, 0, &body, &id)
    };
    let of = |pid: i32, time: u64, next: i32| {
        let mut raw = vec![0; 28];
        raw[..2].copy_from_slice(&600u16.to_le_bytes());
        raw[24..28].copy_from_slice(&next.to_le_bytes());
        events()[1].sample(&Sample {
            id: 12,
            pid,
            tid: pid,
            time,
            raw,
            ..Sample::default()
        })
    };
    let records = vec![
        fork(100, 1, 5), // of the workload itself, as perf tells of who was there before
        of(100, 10, 0),
        of(50, 20, 0),
        of(101, 25, 0),
        fork(101, 100, 30),
        of(101, 40, 0),
        of(50, 50, 101),   // to one of its processes
        of(42, 60, 0),     // a daemon
        fork(101, 50, 70), // its number, given anew
        of(101, 80, 0),
        record(9, 1, &[0; 8]),
    ];
    let extras = Extras {
        scope: Some(vec![42, 100]),
        daemons: Some(vec![42]),
        ..Extras::default()
    };
    let (found, _) = merged("scope", records, &extras);
    let tids: Vec<i32> = found.iter().map(|one| one.1).collect();
    assert_eq!(tids, [100, 101, 50, 42]);
}

#[test]
fn switches_that_are_missing_are_counted() {
    let switch = |pid: i32, time: u64, next: i32| {
        let mut raw = vec![0; 28];
        raw[..2].copy_from_slice(&600u16.to_le_bytes());
        raw[8..12].copy_from_slice(&pid.to_le_bytes());
        raw[24..28].copy_from_slice(&next.to_le_bytes());
        events()[1].sample(&Sample {
            id: 12,
            pid,
            tid: pid,
            time,
            raw,
            ..Sample::default()
        })
    };
    let whole = vec![
        switch(100, 10, 42),
        switch(42, 20, 100),
        switch(100, 30, 50),
        switch(50, 40, 42), // others' own come and go without being recorded
        switch(42, 50, 50),
        switch(50, 60, 100),
    ];
    let missing = |name: &str, records: Vec<Vec<u8>>| {
        let file = PerfData {
            events: events(),
            formats: vec![("sched", SWITCH), ("raw_syscalls", ENTER)],
            records,
        };
        let name = format!("fusetools-missing-{name}-{}", std::process::id());
        let path = |end: &str| std::env::temp_dir().join(format!("{name}.{end}"));
        fs::write(path("in"), file.bytes()).unwrap();
        let extras = Extras {
            scope: Some(vec![42, 100]),
            daemons: Some(vec![42]),
            ..Extras::default()
        };
        let info = merge_with(&[path("in")], &path("out"), "", &extras).unwrap();
        let _ = (fs::remove_file(path("in")), fs::remove_file(path("out")));
        info.missing_switches
    };
    assert_eq!(missing("none", whole.clone()), 0);
    let without = |at: usize| {
        let mut records = whole.clone();
        records.remove(at);
        missing(&at.to_string(), records)
    };
    // The daemon's first one: it is switched to twice, and the workload from twice.
    assert_eq!([without(1), without(2), without(3)], [2, 1, 1]);
}
