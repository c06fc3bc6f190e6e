//! The trace.dat reader on files made here: every kind of ring-buffer entry, and every kind of damage.

use std::path::{Path, PathBuf};

use fusetools_core::format::tracedat::{Event, TraceDat, What};
use fusetools_core::write;
use fusetools_core::Reader;

use crate::trace_data;
use trace_data::*;

fn events_of(dat: &TraceDat) -> Vec<(u32, u64, Option<u64>)> {
    let func = |event: Event| match event.what {
        What::Data(raw) => Some(u64::from_le_bytes(raw[8..16].try_into().unwrap())),
        What::Lost(_) => None,
    };
    dat.events()
        .map(|event| (event.cpu, event.time, func(event)))
        .collect()
}

#[test]
fn every_kind_of_entry() {
    let dat = TraceDat::from_bytes(everything()).unwrap();
    assert_eq!(
        (dat.clock(), dat.cpus(), dat.uname()),
        ("mono", 2, "Linux guest 6.1.0 x86_64")
    );
    assert_eq!((dat.lost(0), dat.lost(1)), (0, 12));
    let extended = 1003 + (2 << 27) + 5 + 1;
    let stamped = 1 << 40 | 77;
    let delta = (1 << 27) - 1;
    assert_eq!(
        events_of(&dat),
        [
            (0, 1000, Some(1)),
            (1, 1001, Some(8)),
            (0, 1003, Some(7)),
            (1, 1001 + delta, Some(9)),
            (0, extended, Some(2)),
            (0, extended + 4, Some(3)),
            (0, stamped + 2, Some(4)),
            (0, 1 << 41, None),
            (0, (1 << 41) + 10, Some(0x1000)),
            (0, 1 << 42, None),
            (0, (1 << 42) + 10, Some(6)),
        ]
    );
    let gaps: Vec<What> = dat
        .events()
        .map(|event| event.what)
        .filter(|what| matches!(what, What::Lost(_)))
        .collect();
    assert_eq!(gaps, [What::Lost(Some(123)), What::Lost(None)]);
    let mut events = dat.events();
    assert_eq!(events.by_ref().count(), 11);
    assert_eq!(events.damaged(), 0);
}

/// Pages of the CPUs in the order in which they were taken. The last page of a piece is cut short.
#[test]
fn pieces_of_pages() {
    let whole = page(1000, 0, &[call(0, 1), call(5, 2)], &[]);
    let short = |time, func| page(time, 0, &[call(1, func)], &[])[..48].to_vec();
    let gap = page(3000, 1 << 31 | 1 << 30, &[call(1, 6)], &4u64.to_le_bytes());
    let all = [
        (1, short(1001, 3)),
        (0, [whole, short(2000, 4)].concat()),
        (1, short(2500, 5)),
        (0, gap),
        statistics(9),
    ];
    let dat = TraceDat::from_bytes(pieces(&[("ftrace", ENTRY)], &all)).unwrap();
    assert_eq!((dat.clock(), dat.cpus()), ("perf", 2));
    assert_eq!((dat.lost(0), dat.lost(1)), (0, 9));
    assert!(dat.warnings().is_empty(), "{:?}", dat.warnings());
    let expected = [
        (0, 1000, Some(1)),
        (1, 1002, Some(3)),
        (0, 1005, Some(2)),
        (0, 2001, Some(4)),
        (1, 2501, Some(5)),
        (0, 3000, None),
        (0, 3001, Some(6)),
    ];
    assert_eq!(events_of(&dat), expected);
    assert_eq!(
        dat.events()
            .filter(|e| e.what == What::Lost(Some(4)))
            .count(),
        1
    );
    let mut events = dat.events();
    events.by_ref().for_each(drop);
    assert_eq!(events.damaged(), 0);

    // Cut anywhere, as if the recorder was killed: the whole pieces remain, and a warning.
    let bytes = pieces(&[("ftrace", ENTRY)], &all);
    let head = pieces(&[("ftrace", ENTRY)], &[]).len();
    for size in head..bytes.len() - 1 {
        let dat = TraceDat::from_bytes(bytes[..size].to_vec()).unwrap();
        assert_eq!(dat.warnings().len(), 1, "{size}");
        let events = events_of(&dat);
        assert!(
            events.iter().all(|event| expected.contains(event)),
            "{size}"
        );
    }
    // A CPU that the head does not count, and an endless piece.
    let odd = [(7, short(1, 1)), (0, short(1, 1)), statistics(0)];
    let dat = TraceDat::from_bytes(pieces(&[("ftrace", ENTRY)], &odd)).unwrap();
    assert_eq!(events_of(&dat), [(0, 2, Some(1))]);
    let mut endless = pieces(&[("ftrace", ENTRY)], &[]);
    endless.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(events_of(&TraceDat::from_bytes(endless).unwrap()), []);
}

/// The events of both stand in time order, with their CPU; losses are the sum.
#[test]
fn pieces_of_two_instances() {
    let at = |time, func| page(time, 0, &[call(0, func)], &[]);
    let second = 1 << 16;
    let all = [
        (second + 1, at(1000, 1)),
        (1, [at(1001, 2), at(1003, 4)].concat()),
        (second, at(1002, 3)),
        (2 * second, at(1, 9)),
        (second + 2, at(1, 9)),
        statistics(9),
        statistics(4),
    ];
    let dat = TraceDat::from_bytes(pieces(&[("ftrace", ENTRY)], &all)).unwrap();
    assert_eq!((dat.cpus(), dat.lost(0), dat.lost(1)), (2, 0, 13));
    let expected = [(1, 1), (1, 2), (0, 3), (1, 4)];
    let expected = expected.map(|(cpu, func)| (cpu, 999 + func, Some(func)));
    assert_eq!(events_of(&dat), expected);
}

/// A time stamp's 59 bits have wrapped since the page's.
#[test]
fn an_absolute_time_that_wraps() {
    let stamp = [head(31, 5), 0u32.to_le_bytes().to_vec()].concat();
    let dat = TraceDat::from_bytes(file(&[vec![page(
        (3 << 59) - 10,
        0,
        &[stamp, call(0, 1)],
        &[],
    )]]))
    .unwrap();
    assert_eq!(events_of(&dat), [(0, (3 << 59) + 5, Some(1))]);
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fusetools-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn merged_alone_it_is_a_perf_data() {
    let folder = folder("tracedat");
    let (input, output) = (folder.join("trace.dat"), folder.join("perf.data"));
    std::fs::write(&input, everything()).unwrap();
    let info = write::merge(&[input], &output, "").unwrap();
    assert_eq!(info.warnings, Vec::<String>::new());
    let reader = Reader::open(&output).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(reader.events()[0].name, "ftrace:funcgraph_entry");
    assert_eq!(
        (reader.hostname().as_deref(), reader.os_release().as_deref()),
        (Some("guest"), Some("6.1.0"))
    );
    let symbols = &reader.bytes()[reader.tracing().unwrap().kallsyms.clone()];
    assert_eq!(symbols, b"0000000000001000 t fuse_lookup\t[fuse]\n");
    let scanned = reader.scan(&[], &mut |_| ()).unwrap();
    assert_eq!(
        (scanned.counts, scanned.first, scanned.last),
        (vec![9], 1000, (1 << 42) + 10)
    );
    // 123 and one more at the gaps of CPU 0; the statistics of CPU 1 say 12.
    assert_eq!(scanned.lost, 123 + 1 + 12);
}

/// Read all of a file, which must end without a panic. Return the number of events.
fn survives(bytes: Vec<u8>) -> Option<usize> {
    let size = bytes.len();
    let dat = TraceDat::from_bytes(bytes).ok()?;
    let count = dat.events().count();
    assert!(count <= size / 4);
    Some(count)
}

#[test]
fn damage_everywhere() {
    let whole = everything();
    assert_eq!(survives(whole.clone()), Some(11));
    for end in (0..whole.len()).step_by(7) {
        survives(whole[..end].to_vec());
    }
    let pages = whole.len() - 4 * PAGE;
    let mut places: Vec<usize> = (0..pages).collect();
    places.extend((0..4).flat_map(|page| pages + page * PAGE..pages + page * PAGE + 260));
    let (mut read, mut refused) = (0, 0);
    for place in places {
        for value in [0u32, 1, 29, u32::MAX, 0x7fff_ffff, 1 << 31] {
            let mut bytes = whole.clone();
            let end = (place + 4).min(bytes.len());
            bytes[place..end].copy_from_slice(&value.to_le_bytes()[..end - place]);
            match survives(bytes) {
                Some(_) => read += 1,
                None => refused += 1,
            }
        }
    }
    assert!(
        read > 10_000 && refused > 500,
        "{read} read, {refused} refused"
    );
}

#[test]
fn cpus_that_all_claim_the_whole_file() {
    let mut bytes = everything();
    let table = bytes
        .windows(10)
        .position(|window| window == b"flyrecord\0")
        .unwrap()
        + 10;
    let size = bytes.len() as u64;
    for cpu in 0..2 {
        bytes[table + 16 * cpu..][..16].copy_from_slice(&[0, size].map(u64::to_le_bytes).concat());
    }
    let error = TraceDat::from_bytes(bytes).err().unwrap().to_string();
    assert!(error.contains("overlap"), "{error}");
}

#[test]
fn unsupported_files_are_refused() {
    for (version, what) in [
        ("7", "version 7; trace-cmd convert"),
        ("5", "version other than 6"),
    ] {
        let mut bytes = everything();
        bytes[10] = version.as_bytes()[0];
        let error = TraceDat::from_bytes(bytes).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(TraceDat::from_bytes(Vec::new()).is_err());
    assert!(TraceDat::open(Path::new("/")).is_err());
    assert!(TraceDat::open(Path::new("/nowhere/trace.dat")).is_err());
}

#[test]
fn a_clock_that_perf_does_not_have() {
    let folder = folder("clock");
    let input = folder.join("trace.dat");
    let mut bytes = everything();
    let clock = bytes
        .windows(6)
        .position(|window| window == b"[mono]")
        .unwrap();
    bytes[clock..clock + 6].copy_from_slice(b"[tick]");
    std::fs::write(&input, bytes).unwrap();
    let error = write::merge(&[input], &folder.join("out"), "")
        .unwrap_err()
        .to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(error.contains("trace-cmd record -C mono"), "{error}");
}
