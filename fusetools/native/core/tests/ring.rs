//! Events that ftrace records in an instance of ours, beside perf's recording of the same time.

use crate::perf_data;
use crate::trace_data;

use std::collections::{BTreeMap, HashMap};
use std::fs;

use fusetools_core::reader::Reader;
use fusetools_core::write::{merge_with, Bundle, Extras, MergeInfo};
use perf_data::PerfData;
use trace_data::{entry, page, pieces, statistics};

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
const FIELDS: [(&str, &str, u16, &str); 4] = [
    (
        "fuse_daemon",
        "bundle_1",
        700,
        "\tfield:u64 unique;\toffset:8;\tsize:8;\tsigned:0;\n\
         \tfield:u16 probe;\toffset:16;\tsize:2;\tsigned:0;\n",
    ),
    (
        "task",
        "task_newtask",
        701,
        "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:u64 clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n",
    ),
    (
        "raw_syscalls",
        "sys_enter",
        702,
        "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n",
    ),
    (
        "sched",
        "sched_switch",
        703,
        "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:pid_t next_pid;\toffset:12;\tsize:4;\tsigned:1;\n",
    ),
];

fn raw(kind: u16, tid: i32, rest: &[u8]) -> Vec<u8> {
    let mut raw = kind.to_le_bytes().to_vec();
    raw.extend([0, 0]);
    raw.extend(tid.to_le_bytes());
    raw.extend(rest);
    raw
}

fn callback(tid: i32, unique: u64, probe: u16) -> Vec<u8> {
    let rest = [&unique.to_le_bytes()[..], &probe.to_le_bytes()].concat();
    raw(700, tid, &rest)
}

fn begins(tid: i32, new: i32, flags: u64) -> Vec<u8> {
    let mut rest = new.to_le_bytes().to_vec();
    rest.resize(24, 0);
    rest.extend(flags.to_le_bytes());
    raw(701, tid, &rest)
}

fn enters(tid: i32, id: u64) -> Vec<u8> {
    raw(702, tid, &id.to_le_bytes())
}

fn switches(prev: i32, next: i32) -> Vec<u8> {
    raw(703, prev, &[prev, next].map(i32::to_le_bytes).concat())
}

/// (pid, tid, time) of samples by event's name. The events at 1000, 1001 … were merged with a recording of perf's.
type Samples = BTreeMap<String, Vec<(i32, i32, u64)>>;

fn merged(name: &str, events: &[Vec<u8>], more: Extras) -> (Samples, MergeInfo) {
    merged_beside(name, &PerfData::fuse(), events, more)
}

/// The same, merged with this recording of perf's. Its records of switches are in `Samples`, too.
fn merged_beside(
    name: &str,
    beside: &PerfData,
    events: &[Vec<u8>],
    more: Extras,
) -> (Samples, MergeInfo) {
    let folder = std::env::temp_dir().join(format!("fusetools-ring-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [perf, ring, whole] = ["perf", "ring", "whole"].map(|name| folder.join(name));
    fs::write(&perf, beside.bytes()).unwrap();
    let texts = FIELDS.map(|(system, name, id, fields)| {
        let text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: \"\"\n");
        (system, text)
    });
    let formats: Vec<(&str, &str)> = texts
        .iter()
        .map(|(system, text)| (*system, &text[..]))
        .collect();
    let entries = events.iter().enumerate();
    let entries: Vec<_> = entries.map(|(n, raw)| entry((n > 0).into(), raw)).collect();
    let all = [(1, page(1000, 0, &entries, &[])), statistics(0)];
    fs::write(&ring, pieces(&formats, &all)).unwrap();
    let extras = Extras {
        bundles: vec![Bundle {
            event: "fuse_daemon:bundle_1".into(),
            field: "probe".into(),
            probes: vec![
                (1, "fuse_daemon:x_read".into(), vec![]),
                (2, "fuse_daemon:x_open".into(), vec![]),
            ],
        }],
        daemons: Some(vec![70]),
        threads: HashMap::from([(71, 70), (91, 90)]),
        ..more
    };
    let info = merge_with(&[perf, ring], &whole, "{\"format\": 1}", &extras).unwrap();
    let reader = Reader::open(&whole).unwrap();
    assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
    let mut samples = Samples::new();
    for record in reader.records().filter(|record| record.kind == 15) {
        let (pid, tid) = reader.attrs()[0].layout.tail_task(&record.bytes).unwrap();
        let of = samples.entry("switches".into()).or_default();
        of.push((pid, tid, record.time.unwrap()));
    }
    for record in reader.records().filter(|record| record.kind == 9) {
        let event = record.event.unwrap();
        let name = &reader.events()[event].name;
        if name.starts_with("fuse:") || name.starts_with("fusetools:") {
            continue;
        }
        let layout = &reader.attrs()[event].layout;
        let raw = layout.raw(&record.bytes).unwrap();
        let format = reader.events()[event].format.as_ref().unwrap();
        assert_eq!(
            u64::from(u16::from_le_bytes([raw[0], raw[1]])),
            format.id,
            "{name}"
        );
        let (pid, tid) = layout.task(&record.bytes).unwrap();
        samples
            .entry(name.clone())
            .or_default()
            .push((pid, tid, record.time.unwrap()));
        assert!(
            record.bytes.len() <= 80,
            "{name}: {} bytes",
            record.bytes.len()
        );
    }
    fs::remove_dir_all(folder).unwrap();
    (samples, info)
}

#[test]
fn a_bundle_is_taken_apart_and_other_daemons_left_out() {
    let events = [
        callback(71, 5, 1),      // a thread of which only the caller knows
        callback(91, 6, 2),      // another daemon's
        begins(71, 72, 0x10000), // a thread that its thread starts
        callback(72, 7, 2),
        begins(71, 73, 0), // a process, of another daemon then
        callback(73, 8, 1),
    ];
    let (samples, info) = merged("bundle", &events, Extras::default());
    assert_eq!(samples["fuse_daemon:x_read"], [(70, 71, 1000)]);
    assert_eq!(samples["fuse_daemon:x_open"], [(70, 72, 1003)]);
    assert_eq!(samples.len(), 2);
    let mut left_out = info.left_out.clone();
    left_out.sort();
    assert_eq!(
        left_out,
        [
            ("fuse_daemon:x_open".into(), 1),
            ("fuse_daemon:x_read".into(), 1)
        ]
    );
    assert_eq!(info.missing_switches, 0);
}

#[test]
fn only_what_is_in_scope_remains_and_missing_switches_are_counted() {
    let events = [
        enters(71, 0),
        enters(91, 0),
        switches(71, 0),
        switches(0, 71),
        switches(91, 0),
        switches(71, 91),
        switches(71, 91), // no event shows that it runs again
    ];
    let scope = Some(vec![70]);
    let more = Extras {
        scope,
        ..Extras::default()
    };
    let (samples, info) = merged("scope", &events, more);
    assert_eq!(samples["raw_syscalls:sys_enter"], [(70, 71, 1000)]);
    let switches: Vec<u64> = samples["sched:sched_switch"]
        .iter()
        .map(|of| of.2)
        .collect();
    assert_eq!(switches, [1002, 1003, 1005, 1006]);
    assert_eq!(info.missing_switches, 1);
}

/// Where the tracepoint is silent, perf's own records show the switches; elsewhere they add nothing.
#[test]
fn records_of_switches_fill_what_no_event_reports() {
    let events = [
        enters(71, 0),
        switches(71, 0),
        switches(0, 71),
        switches(71, 0),
        switches(71, 0), // no event shows that it ran before
    ];
    let mut beside = PerfData::fuse();
    let event = beside.events[0].clone();
    // Each comes right after its event, and before the next one.
    for (time, pid, tid, out) in [
        (1002, 70, 71, true),  // reported
        (1003, 70, 71, false), // reported
        (1004, 70, 71, true),
        (1004, 70, 71, false), // by nothing else
        (1004, 90, 91, false), // somebody else
        (1004, 0, 0, true),
        (1005, 70, 71, true),
    ] {
        let at = perf_data::Sample {
            id: event.ids[0],
            pid,
            tid,
            time,
            ..perf_data::Sample::default()
        };
        beside
            .records
            .push(event.other(15, u16::from(out) << 13, &[0; 8], &at));
    }
    let scope = Some(vec![70]);
    let more = Extras {
        scope,
        ..Extras::default()
    };
    let (samples, info) = merged_beside("records", &beside, &events, more);
    assert_eq!(samples["switches"], [(70, 71, 1004)]);
    assert_eq!(info.missing_switches, 0);
}

/// perf's FORK can be lost.
#[test]
fn a_child_is_in_scope_by_ftraces_events() {
    let events = [
        begins(71, 80, 0),
        begins(80, 81, 0x10000),
        enters(81, 0),
        begins(91, 92, 0),
        enters(92, 0),
        begins(91, 80, 0), // the number is another's now
        enters(80, 0),
    ];
    let more = Extras {
        scope: Some(vec![70]),
        ..Extras::default()
    };
    let (samples, _) = merged("begins", &events, more);
    assert_eq!(samples["raw_syscalls:sys_enter"], [(80, 81, 1002)]);
}

#[test]
fn events_outside_the_common_span_are_left_out() {
    let events = [(); 5].map(|()| enters(71, 0));
    let more = Extras {
        span: Some((1001, 1003)),
        ..Extras::default()
    };
    let (samples, _) = merged("span", &events, more);
    let times: Vec<u64> = samples["raw_syscalls:sys_enter"]
        .iter()
        .map(|of| of.2)
        .collect();
    assert_eq!(times, [1001, 1002, 1003]);
}

#[test]
fn losses_of_the_ring_buffer_are_reported() {
    let folder = std::env::temp_dir().join(format!("fusetools-ring-owed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (ring, whole) = (folder.join("ring"), folder.join("whole"));
    let (system, name, id, fields) = FIELDS[2];
    let text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: \"\"\n");
    let all = [
        (0, page(1000, 0, &[entry(0, &enters(71, 0))], &[])),
        statistics(12),
    ];
    fs::write(&ring, pieces(&[(system, &text)], &all)).unwrap();
    merge_with(&[ring], &whole, "", &Extras::default()).unwrap();
    let lost: u64 = Reader::open(&whole)
        .unwrap()
        .records()
        .filter(|record| record.kind == 2)
        .map(|record| u64::from_le_bytes(record.bytes[16..24].try_into().unwrap()))
        .sum();
    assert_eq!(lost, 12);
    fs::remove_dir_all(folder).unwrap();
}
