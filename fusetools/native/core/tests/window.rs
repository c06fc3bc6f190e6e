//! Window of perf's overwriting buffers: the part that is complete on all CPUs, and the records of its tasks.

use crate::perf_data;

use std::path::PathBuf;

use fusetools_core::reader::{Extent, Window};
use fusetools_core::write::{merge_with, Extras};
use fusetools_core::Error;
use fusetools_core::Reader;
use perf_data::{end, send, Event, PerfData, Sample};

const COMM: u32 = 3;
const FORK: u32 = 7;
const LOST: u32 = 2;
const SAMPLE: u32 = 9;

fn at(time: u64, cpu: u32) -> Sample {
    Sample {
        id: 11 + u64::from(cpu),
        pid: 7,
        tid: 7,
        time,
        cpu,
        raw: send(45, time, 1),
        ..Sample::default()
    }
}

fn comm(file: &PerfData, thread: u32, name: &str, sample: &Sample) -> Vec<u8> {
    let mut body = [thread, thread].map(u32::to_le_bytes).concat();
    body.extend(name.as_bytes());
    body.resize((body.len() + 8) & !7, 0);
    file.events[0].other(COMM, 0, &body, sample)
}

fn fork(file: &PerfData, parent: u32, thread: u32, sample: &Sample) -> Vec<u8> {
    let mut body = [thread, parent, thread, parent]
        .map(u32::to_le_bytes)
        .concat();
    body.extend(sample.time.to_le_bytes());
    file.events[0].other(FORK, 0, &body, sample)
}

/// Return records as perf writes them: the newest of each CPU first, and its own records of tasks last.
fn recording(times: &[(u32, &[u64])]) -> PerfData {
    let mut file = PerfData::fuse();
    for (cpu, times) in times {
        for time in times.iter().rev() {
            let record = file.events[0].sample(&at(*time, *cpu));
            file.records.push(record);
        }
    }
    file
}

/// Return (kind, time) of each record.
fn window_of(file: &PerfData, window: &Window) -> (Vec<(u32, Option<u64>)>, Extent) {
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    let extent = reader.keep(window).unwrap();
    let records = reader.records().map(|record| (record.kind, record.time));
    (records.collect(), extent)
}

fn times(records: &[(u32, Option<u64>)]) -> Vec<u64> {
    records.iter().filter_map(|(_, time)| *time).collect()
}

const ALL: Window = Window {
    length: 1_000,
    upto: 1_000,
    since: 0,
    buffer: 1 << 20,
    held: false,
};

#[test]
fn only_the_window_is_kept() {
    let file = recording(&[(0, &[100, 300, 500]), (1, &[200, 400, 600])]);
    let (records, extent) = window_of(&file, &ALL);
    assert_eq!(times(&records), [100, 200, 300, 400, 500, 600]);
    assert_eq!(
        (extent.begin, extent.end, extent.overwritten),
        (1, 1_000, false)
    );

    let (records, extent) = window_of(&file, &Window { length: 700, ..ALL });
    assert_eq!(times(&records), [300, 400, 500, 600]);
    assert_eq!((extent.begin, extent.overwritten), (300, false));

    let (records, extent) = window_of(&file, &Window { since: 450, ..ALL });
    assert_eq!(times(&records), [500, 600]);
    assert_eq!((extent.begin, extent.overwritten), (450, false));
}

/// A full buffer has lost everything before its oldest record, even if another CPU's reaches further back.
#[test]
fn it_begins_where_all_buffers_are_whole() {
    let busy: Vec<u64> = (500..1_000).collect();
    let file = recording(&[(0, &[100, 300, 900]), (1, &busy)]);
    let bytes: usize = file.records[3..].iter().map(Vec::len).sum();
    let full = Window {
        buffer: bytes as u64 + 65_000,
        ..ALL
    };
    let (records, extent) = window_of(&file, &full);
    assert_eq!((extent.begin, extent.overwritten), (500, true));
    assert_eq!(records.len(), 501);
    assert!(times(&records).iter().all(|time| *time >= 500));

    // The requested part lies after that.
    let (_, extent) = window_of(
        &file,
        &Window {
            length: 400,
            ..full
        },
    );
    assert_eq!((extent.begin, extent.overwritten), (600, false));

    // There was room for a record of any size.
    let room = Window {
        buffer: bytes as u64 + 65_536,
        ..ALL
    };
    let (records, extent) = window_of(&file, &room);
    assert_eq!((records.len(), extent.overwritten), (503, false));
}

/// Earlier tasks and their names come first, without a time; perf's records of running ones are newer than those.
#[test]
fn earlier_tasks_have_their_names() {
    let mut file = recording(&[(0, &[100, 900])]);
    for record in [
        comm(&file, 8, "named", &at(850, 1)),
        comm(&file, 9, "old", &at(200, 1)),
        comm(&file, 8, "young", &at(160, 1)),
        fork(&file, 7, 8, &at(150, 1)),
    ] {
        file.records.push(record);
    }
    let none = Sample::default();
    file.records.push(comm(&file, 9, "new", &none));
    let window = Window { length: 300, ..ALL };
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    reader.keep(&window).unwrap();
    let records: Vec<_> = reader
        .records()
        .map(|record| {
            let name = match record.kind {
                COMM => String::from_utf8_lossy(&record.bytes[16..24]).into_owned(),
                _ => String::new(),
            };
            (
                record.kind,
                record.time,
                name.trim_end_matches('\0').to_owned(),
            )
        })
        .collect();
    let expected = [
        (COMM, None, "new"),
        (FORK, None, ""),
        (COMM, None, "young"),
        (COMM, Some(850), "named"),
        (SAMPLE, Some(900), ""),
    ];
    assert_eq!(
        records
            .iter()
            .map(|(k, t, n)| (*k, *t, &n[..]))
            .collect::<Vec<_>>(),
        expected
    );
}

/// While perf reads the buffers they take no events; that time lies between two windows.
#[test]
fn drops_between_two_windows_are_not_losses() {
    let mut file = recording(&[(0, &[100, 900])]);
    let body = [11u64, 5].map(u64::to_le_bytes).concat();
    let lost = file.events[0].other(LOST, 0, &body, &at(901, 1));
    file.records.push(lost);
    assert_eq!(window_of(&file, &ALL).0.len(), 2);
    assert_eq!(
        Reader::from_bytes(file.bytes()).unwrap().records().count(),
        3
    );
}

#[test]
fn records_without_a_cpu_are_an_error() {
    let mut file = PerfData::fuse();
    for event in &mut file.events {
        event.sample_type &= !perf_data::CPU;
    }
    let record = Event::sample(
        &file.events[1],
        &Sample {
            id: 13,
            raw: end(45, 1, 0),
            ..at(5, 0)
        },
    );
    file.records.push(record);
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    assert!(matches!(reader.keep(&ALL), Err(Error::Mismatch { .. })));
}

#[test]
fn a_recording_is_made_of_it() {
    let file = recording(&[(0, &[100, 300, 500]), (1, &[200, 400, 600])]);
    let folder = std::env::temp_dir().join(format!("fusetools-window-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| -> PathBuf { folder.join(name) };
    std::fs::write(path("in"), file.bytes()).unwrap();
    let extras = Extras {
        window: Some(Window { length: 700, ..ALL }),
        ..Extras::default()
    };
    let info = merge_with(&[path("in")], &path("out"), "{}", &extras).unwrap();
    let reader = Reader::open(&path("out")).unwrap();
    let times: Vec<_> = reader.records().filter_map(|record| record.time).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(times, [300, 300, 400, 500, 600]); // the session has the first one's time
    assert_eq!(info.extent.map(|extent| extent.begin), Some(300));
    assert!(info.warnings.is_empty(), "{:?}", info.warnings);
}

/// Requests in flight are in the recording, however far the buffers reach back; none is there twice.
#[test]
fn what_is_held_precedes_the_buffers() {
    let buffers = recording(&[(0, &[100, 300, 500]), (1, &[200, 400, 600])]);
    let mut held = recording(&[]);
    for time in [50, 250, 300, 500] {
        let sample = Sample {
            id: 21,
            ..at(time, 0)
        };
        let mut event = held.events[0].clone();
        event.ids = vec![21];
        held.records.push(event.sample(&sample));
    }
    held.events.truncate(1);
    held.events[0].ids = vec![21];
    let folder = std::env::temp_dir().join(format!("fusetools-held-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| -> PathBuf { folder.join(name) };
    std::fs::write(path("in"), buffers.bytes()).unwrap();
    std::fs::write(path("held"), held.pipe()).unwrap();
    let window = Window {
        length: 700,
        held: true,
        ..ALL
    };
    let extras = Extras {
        window: Some(window),
        ..Extras::default()
    };
    let inputs = [path("in"), path("held")];
    let info = merge_with(&inputs, &path("out"), "{}", &extras).unwrap();
    let reader = Reader::open(&path("out")).unwrap();
    let times: Vec<_> = reader.records().filter_map(|record| record.time).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(times[1..], [50, 250, 300, 400, 500, 600]); // the session's is the first
    assert_eq!(info.extent.map(|extent| extent.begin), Some(300));
}
