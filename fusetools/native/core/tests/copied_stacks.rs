//! Copies of user stacks in a recording that is merged give call chains, and never a panic or an unreadable file.

use crate::perf_data;

use std::fs;
use std::path::PathBuf;

use fusetools_core::events::Map;
use fusetools_core::programs::files::Files;
use fusetools_core::write::{merge_with, Extras};
use fusetools_core::Reader;
use perf_data::{record, Event, PerfData, Sample, CALLCHAIN, REGS_USER, USUAL, WEIGHT};

const STACK_USER: u64 = 1 << 13;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const KERNEL: u64 = -128i64 as u64;
const USER: u64 = -512i64 as u64;
const AT: u64 = 0xffff_ffff_8100_1000;

/// bp, sp and ip, in the order of their bits in perf's mask.
const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;

fn event() -> Event {
    let mut event = Event::new("fuse:fuse_request_send", 500, &[11]);
    event.sample_type = USUAL | CALLCHAIN | REGS_USER | STACK_USER;
    event.flags |= EXCLUDE_CALLCHAIN_USER;
    event
}

/// Return a sample of a program that was at `ip`; `abi` 0: of a kernel thread. `stack`: the copied part of `size`
/// bytes.
fn sample(event: &Event, time: u64, abi: u64, ip: u64, stack: &[u8], size: usize) -> Vec<u8> {
    sample_of(event, time, (abi, ip), vec![5; 20], (stack, size))
}

fn copy(event: &Event, time: u64, raw: Vec<u8>, ip: u64) -> Vec<u8> {
    sample_of(event, time, (2, ip), raw, (&[1; 64], 128))
}

fn sample_of(
    event: &Event,
    time: u64,
    (abi, ip): (u64, u64),
    raw: Vec<u8>,
    (stack, size): (&[u8], usize),
) -> Vec<u8> {
    let whole = event.sample(&Sample {
        id: 11,
        pid: 7,
        tid: 7,
        time,
        chain: vec![KERNEL, AT],
        raw,
        ..Sample::default()
    });
    // perf_data ends it with the mark of no registers, and the parts after them.
    let weight = if event.sample_type & WEIGHT != 0 {
        8
    } else {
        0
    };
    let (before, rest) = whole.split_at(whole.len() - 8 - weight);
    let mut body = before[8..].to_vec();
    let mut words = |words: &[u64]| {
        words
            .iter()
            .for_each(|word| body.extend(word.to_le_bytes()))
    };
    words(&[abi]);
    if abi != 0 {
        words(&[0, 0x7ffc_0000_0000, ip]);
    }
    words(&[size as u64]);
    if size != 0 {
        body.extend(stack);
        body.resize(body.len() + size - stack.len(), 0xee);
        body.extend((stack.len() as u64).to_le_bytes());
    }
    body.extend(&rest[8..]);
    record(9, 1, &body)
}

fn bytes(event: Event, records: Vec<Vec<u8>>) -> Vec<u8> {
    let file = PerfData {
        events: vec![event],
        formats: vec![("fuse", perf_data::SEND)],
        records,
    };
    with_mask(file.bytes())
}

/// Set the mask of the first event.
fn with_mask(mut bytes: Vec<u8>) -> Vec<u8> {
    // perf_event_attr.sample_regs_user
    let attrs = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
    bytes[attrs + 80..attrs + 88].copy_from_slice(&MASK.to_le_bytes());
    bytes[attrs + 88..attrs + 92].copy_from_slice(&8192u32.to_le_bytes());
    bytes
}

/// Merge, on the recordings' host if `here`. Return the output; None if it was refused.
fn merged(name: &str, bytes: &[u8], here: bool) -> Option<Vec<u8>> {
    let extras = Extras {
        files: here.then(Files::default),
        ..Extras::default()
    };
    merged_with(name, bytes, &extras)
}

fn merged_with(name: &str, bytes: &[u8], extras: &Extras) -> Option<Vec<u8>> {
    let folder = std::env::temp_dir();
    let path = |end: &str| -> PathBuf {
        folder.join(format!("fusetools-{name}-{}.{end}", std::process::id()))
    };
    fs::write(path("in"), bytes).unwrap();
    let done = merge_with(&[path("in")], &path("out"), "", extras);
    let out = done.is_ok().then(|| fs::read(path("out")).unwrap());
    let _ = (fs::remove_file(path("in")), fs::remove_file(path("out")));
    out
}

/// Return the chain and the raw data of each sample.
fn chains(bytes: Vec<u8>) -> Vec<(Vec<u64>, Vec<u8>)> {
    let reader = Reader::from_bytes(bytes).unwrap();
    let samples = reader.records().filter(|record| record.kind == 9);
    let chains = samples.filter_map(|record| {
        let layout = reader.attrs()[record.event?].layout;
        let words = layout.chain(&record.bytes)?.chunks_exact(8);
        let chain = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        Some((chain.collect(), layout.raw(&record.bytes)?.to_vec()))
    });
    chains.collect()
}

#[test]
fn copies_become_call_chains() {
    let ip = 0x5555_0000_1234;
    let records = |event: &Event| {
        vec![
            sample(event, 10, 2, ip, &[1; 64], 128),
            sample(event, 20, 0, 0, &[], 0),
            sample(event, 30, 1, 0x0804_8000, &[1; 64], 64),
        ]
    };
    let whole = bytes(event(), records(&event()));
    let out = merged("copies", &whole, true).unwrap();
    let reader = Reader::from_bytes(out.clone()).unwrap();
    let attr = &reader.attrs()[0];
    assert!(!attr.layout.has_user_stack() && attr.layout.has_chain());
    assert_eq!(attr.layout.sample_type, USUAL | CALLCHAIN);
    let word = |at: usize| u64::from_le_bytes(attr.raw[at..at + 8].try_into().unwrap());
    assert_eq!(
        (word(40) & EXCLUDE_CALLCHAIN_USER, word(80), word(88)),
        (0, 0, 0)
    );
    // The known part, and a mark that it does not reach the thread's beginning.
    let raw_chains = chains(out);
    let of = |ip| vec![KERNEL, AT, USER, ip, USER];
    assert_eq!(
        raw_chains
            .iter()
            .map(|(chain, _)| chain.clone())
            .collect::<Vec<_>>(),
        [of(ip), vec![KERNEL, AT], of(0x0804_8000)]
    );
    assert!(raw_chains.iter().all(|(_, raw)| raw == &[5; 20]));
    // The parts of a sample after the copies are kept.
    let mut weighed = event();
    weighed.sample_type |= WEIGHT;
    let out = merged("weighed", &bytes(weighed.clone(), records(&weighed)), true).unwrap();
    let reader = Reader::from_bytes(out).unwrap();
    let ends: Vec<u8> = reader
        .records()
        .filter(|record| record.kind == 9)
        .map(|record| record.bytes[record.bytes.len() - 8])
        .collect();
    assert_eq!(ends, [9, 9, 9]);
    // On another host they are kept.
    let reader = Reader::from_bytes(merged("kept", &whole, false).unwrap()).unwrap();
    assert!(reader.attrs()[0].layout.has_user_stack());
}

/// Options of a user whose own process is 7, with code at 0x1000 to 0x2000.
fn private(files: Option<Files>) -> Extras {
    let code = Map {
        time: 0,
        pid: 7,
        start: 0x1000,
        len: 0x1000,
        offset: 0,
        path: "/none".into(),
        build_id: Vec::new(),
    };
    Extras {
        files,
        maps: vec![code],
        scope: Some(vec![7]),
        private: true,
        ..Extras::default()
    }
}

#[test]
fn a_private_recording_holds_no_copy_of_a_stack() {
    let copies = |event: &Event| {
        let secret = [0x5e; 64];
        vec![
            sample(event, 10, 2, 0x1234, &secret, 128),
            sample(event, 20, 0, 0, &[], 0),
        ]
    };
    let whole = bytes(event(), copies(&event()));
    assert!(!Reader::from_bytes(whole.clone())
        .unwrap()
        .of_memory()
        .is_empty());
    for (name, files) in [("cut", None), ("unwound", Some(Files::default()))] {
        let out = merged_with(name, &whole, &private(files)).unwrap();
        assert!(!out.windows(8).any(|bytes| bytes == [0x5e; 8]));
        assert!(Reader::from_bytes(out.clone())
            .unwrap()
            .of_memory()
            .is_empty());
        let kept = chains(out);
        assert_eq!(kept.len(), 2);
        assert!(kept.iter().all(|(_, raw)| raw == &[5; 20]));
    }
    // Other parts may be anything.
    const REGS_INTR: u64 = 1 << 18;
    let mut more = event();
    more.sample_type |= REGS_INTR;
    let whole = bytes(more.clone(), copies(&more));
    let out = merged_with("more", &whole, &private(None)).unwrap();
    assert_eq!(Reader::from_bytes(out).unwrap().of_memory().len(), 1);
}

#[test]
fn a_private_recording_holds_user_stacks_of_its_processes_and_code_alone() {
    let mut event = Event::new("fuse:fuse_request_send", 500, &[11]);
    event.sample_type = USUAL | CALLCHAIN;
    const SECRET: u64 = 0xdead_beef_dead_beef;
    let records = [
        (7, vec![KERNEL, AT, USER, 0x1010, 0x1020]),
        (7, vec![KERNEL, AT, USER, 0x1010, SECRET, 0x1020]),
        (7, vec![KERNEL, AT, USER, SECRET >> 1]),
        (7, vec![USER, 0x1010, USER, USER, 0x1020]),
        (7, vec![KERNEL, AT]),
        (8, vec![KERNEL, AT, USER, 0x1010, SECRET]),
    ];
    let sampled = |time: u64, (pid, chain): &(i32, Vec<u64>)| {
        event.sample(&Sample {
            id: 11,
            pid: *pid,
            tid: *pid,
            time,
            chain: chain.clone(),
            raw: vec![5; 20],
            ..Sample::default()
        })
    };
    let file = PerfData {
        events: vec![event.clone()],
        formats: vec![("fuse", perf_data::SEND)],
        records: (10..).zip(&records).map(|(t, of)| sampled(t, of)).collect(),
    };
    let of = |extras: &Extras| {
        let out = merged_with("code", &file.bytes(), extras).unwrap();
        let chains: Vec<_> = chains(out).into_iter().map(|(chain, _)| chain).collect();
        chains
    };
    let expected = [
        vec![KERNEL, AT, USER, 0x1010, 0x1020],
        vec![KERNEL, AT, USER, 0x1010, USER],
        vec![KERNEL, AT, USER, USER],
        vec![USER, 0x1010, USER],
        vec![KERNEL, AT],
        vec![KERNEL, AT],
    ];
    assert_eq!(of(&private(Some(Files::default()))), expected);
    let all = Extras {
        private: false,
        scope: None,
        ..private(Some(Files::default()))
    };
    let all: Vec<_> = of(&all);
    assert_eq!(all, records.map(|(_, chain)| chain));
}

#[test]
fn a_private_recording_holds_no_calls_of_others() {
    let event = Event::new("syscalls:sys_enter_read", 501, &[11]);
    let records = [7, 8].map(|pid| {
        event.sample(&Sample {
            id: 11,
            pid,
            tid: pid,
            time: 10,
            raw: vec![5; 20],
            ..Sample::default()
        })
    });
    let file = PerfData {
        events: vec![event],
        formats: FORMATS.to_vec(),
        records: records.to_vec(),
    };
    let samples = |extras: &Extras| {
        let out = merged_with("calls", &file.bytes(), extras).unwrap();
        let reader = Reader::from_bytes(out).unwrap();
        let samples = reader.records().filter(|record| record.kind == 9);
        let of = samples.map(|record| {
            let layout = reader.attrs()[record.event.unwrap()].layout;
            layout.task(&record.bytes).unwrap().0
        });
        of.collect::<Vec<_>>()
    };
    assert_eq!(samples(&private(Some(Files::default()))), [7]);
    assert_eq!(samples(&Extras::default()), [7, 8]);
}

#[test]
fn damaged_copies() {
    let event = event();
    let records = (0..20).map(|n| sample(&event, 10 + n, 2, 0x5555_0000_1234, &[7; 200], 256));
    let whole = bytes(event.clone(), records.collect());
    assert_eq!(chains(merged("whole", &whole, true).unwrap()).len(), 20);
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let mut left = 0;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(20) {
            let at = 200 + random(bytes.len() - 200);
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)];
        }
        if let Some(out) = merged("damaged", &bytes, true) {
            left += chains(out).len();
        }
    }
    assert!(left > 300);
}

macro_rules! format_of {
    ($name:literal, $id:literal, $field:literal) => {
        concat!(
            "name: ",
            $name,
            "\nID: ",
            $id,
            "\nformat:\n",
            "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n",
            "\tfield:",
            $field,
            ";\toffset:8;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n"
        )
    };
}

const FORMATS: [(&str, &str); 4] = [
    (
        "syscalls",
        format_of!("sys_enter_read", 501, "int __syscall_nr"),
    ),
    ("raw_syscalls", format_of!("sys_enter", 502, "long id")),
    ("raw_syscalls", format_of!("sys_exit", 503, "long id")),
    ("sched", format_of!("sched_switch", 504, "long prev_state")),
];

/// Kind of a sample, with its argument: entry of one system call, of any, their returns, a switch.
#[derive(Clone, Copy)]
enum What {
    Read(u64),
    Enter(u64),
    Leave,
    Switch,
}

#[test]
fn a_wait_has_the_stack_with_which_its_call_was_entered() {
    let ip = 0x5555_0000_1234;
    let mut read = Event::new("syscalls:sys_enter_read", 501, &[11]);
    read.sample_type = USUAL | CALLCHAIN | REGS_USER | STACK_USER;
    read.flags |= EXCLUDE_CALLCHAIN_USER;
    let mut switched = Event::new("sched:sched_switch", 504, &[14]);
    switched.sample_type = USUAL | CALLCHAIN;
    let events = vec![
        read,
        Event::new("raw_syscalls:sys_enter", 502, &[12]),
        Event::new("raw_syscalls:sys_exit", 503, &[13]),
        switched,
    ];
    let waits = |name: &str, what: &[What]| {
        let records = what.iter().zip(1u64..).map(|(what, time)| {
            let (event, kind, number) = match *what {
                What::Read(number) => (0, 501u16, number),
                What::Enter(number) => (1, 502, number),
                What::Leave => (2, 503, 0),
                What::Switch => (3, 504, 1),
            };
            let mut raw = kind.to_le_bytes().to_vec();
            raw.resize(8, 0);
            raw.extend(number.to_le_bytes());
            match event {
                0 => copy(&events[0], 10 * time, raw, ip),
                _ => events[event].sample(&Sample {
                    id: events[event].ids[0],
                    pid: 7,
                    tid: 7,
                    time: 10 * time,
                    chain: vec![KERNEL, AT, USER, 0x99],
                    raw,
                    ..Sample::default()
                }),
            }
        });
        let file = PerfData {
            events: events.clone(),
            formats: FORMATS.to_vec(),
            records: records.collect(),
        };
        let out = merged(name, &with_mask(file.bytes()), true).unwrap();
        let reader = Reader::from_bytes(out).unwrap();
        let of_switches = reader.records().filter(|record| {
            let event = record.event.filter(|_| record.kind == 9);
            event.is_some_and(|event| reader.events()[event].name == "sched:sched_switch")
        });
        let of = of_switches.map(|record| {
            let layout = reader.attrs()[record.event.unwrap()].layout;
            let words = layout.chain(&record.bytes).unwrap().chunks_exact(8);
            let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            words.collect::<Vec<_>>()
        });
        of.collect::<Vec<_>>()
    };
    use What::{Enter, Leave, Read, Switch};
    let whole = vec![KERNEL, AT, USER, ip, USER];
    let own = vec![KERNEL, AT, USER, 0x99];
    // The order of these two is the kernel's choice.
    let expected = [whole.clone(), whole.clone(), own.clone()];
    let after = [Enter(0), Read(0), Switch, Switch, Leave, Switch];
    assert_eq!(waits("after", &after), expected);
    let before = [Read(0), Enter(0), Switch, Switch, Leave, Switch];
    assert_eq!(waits("before", &before), expected);
    // The entry of another call, whose end was not recorded, is none of this one's.
    let other = [
        Read(0),
        Enter(0),
        Switch,
        Enter(202),
        Switch,
        Enter(0),
        Switch,
    ];
    assert_eq!(waits("other", &other), [whole, own.clone(), own]);
}
