//! The reader on files made field by field: every layout, every kind of file, every kind of damage.

use crate::perf_data;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fusetools_core::events::{Chain, Ev, Meaning, Role, Side, ABSENT};
use fusetools_core::Error;
use fusetools_core::Reader;
use fusetools_core::ScanInfo;
use perf_data::{
    compress, end, frame, meaning, record, round, send, session, words, Event, PerfData, Random,
    Sample,
};

/// Return kinds 0 and 1, and 2 so that switches come, too.
fn catalogue() -> Vec<Meaning> {
    vec![
        meaning("fuse:fuse_request_send", Role::Begin),
        meaning("fuse:fuse_request_end", Role::End),
        meaning("sched:sched_switch", Role::Switch),
    ]
}

#[derive(Debug, Default, PartialEq)]
struct Scan {
    events: Vec<Ev>,
    side: Vec<Side>,
    info: ScanInfo,
    batches: usize,
}

fn scan(reader: &Reader) -> Scan {
    let mut result = Scan::default();
    let info = reader.scan(&catalogue(), &mut |batch| {
        result.events.extend(batch.events);
        result.side.extend(batch.side);
        result.batches += 1;
    });
    result.info = info.unwrap();
    result
}

fn read(bytes: Vec<u8>) -> Scan {
    scan(&Reader::from_bytes(bytes).unwrap())
}

/// Return a recording of two CPUs: `rounds` rounds of each CPU's buffer, whose times overlap as in perf's.
fn two_cpus(rounds: u64, each: u64) -> PerfData {
    let mut file = PerfData::fuse();
    let mut random = Random(rounds);
    let mut unique = 0;
    for turn in 0..rounds {
        for cpu in [1, 0] {
            // No event is older than the latest of the round before the last: 2 x (500 + 20 each).
            let mut time = 1_000 + turn * (500 + 20 * each) + random.below(900);
            for _ in 0..each {
                time += random.below(40);
                unique += 1;
                let (kind, raw) = match unique % 3 {
                    0 => (0, send(45, unique, 1)),
                    _ => (1, end(45, unique, -2)),
                };
                let id = 11 + 2 * kind as u64 + cpu as u64;
                let sample = Sample {
                    id,
                    time,
                    pid: 7,
                    tid: 8 + cpu as i32,
                    cpu,
                    raw,
                    ..Sample::default()
                };
                file.records.push(file.events[kind].sample(&sample));
                if random.below(8) == 0 {
                    let side = file.events[0].other(14, 1 << 13, &[], &sample);
                    file.records.push(side);
                }
            }
        }
        file.records.push(round());
    }
    file
}

fn in_order(result: &Scan) -> bool {
    result
        .events
        .windows(2)
        .all(|pair| pair[0].time <= pair[1].time)
}

#[test]
fn every_layout_of_a_sample() {
    let bits = [
        perf_data::IP,
        perf_data::ADDR,
        perf_data::READ,
        perf_data::CALLCHAIN,
        perf_data::CPU,
        perf_data::PERIOD,
        perf_data::STREAM_ID,
        perf_data::BRANCH_STACK,
        perf_data::REGS_USER,
        perf_data::WEIGHT,
        perf_data::TID,
    ];
    let mut random = Random(1);
    for round in 0..1 << bits.len() {
        let chosen = bits
            .iter()
            .enumerate()
            .filter(|(i, _)| round >> i & 1 == 1)
            .map(|(_, bit)| bit);
        let mut sample_type = chosen.fold(perf_data::TIME | perf_data::RAW, |all, bit| all | bit);
        sample_type |= [
            perf_data::ID,
            perf_data::IDENTIFIER,
            perf_data::ID | perf_data::IDENTIFIER,
        ][round % 3];
        let mut file = PerfData::fuse();
        let mut expected = Vec::new();
        let has_read = sample_type & perf_data::READ != 0;
        // Without READ the format must not matter.
        for read_format in (0..32).filter(|format| has_read || format % 31 == 0) {
            for event in &mut file.events {
                event.sample_type = sample_type;
                event.read_format = read_format;
                event.size = [64, 72, 96, 112, 128, 136][random.below(6) as usize];
            }
            file.records.clear();
            expected.clear();
            for n in 0..3u64 {
                let sample = Sample {
                    id: 13 + n % 2,
                    pid: 100 + n as i32,
                    tid: -1,
                    time: 50 + n,
                    cpu: 3,
                    chain: (0..random.below(5)).collect(),
                    period: 1,
                    raw: end(9, 1 << 40 | n, -13),
                    members: random.below(4),
                };
                file.records.push(file.events[1].sample(&sample));
                let (pid, tid) = if sample_type & perf_data::TID != 0 {
                    (sample.pid, sample.tid)
                } else {
                    (-1, -1)
                };
                let cpu = if sample_type & perf_data::CPU != 0 {
                    sample.cpu
                } else {
                    u32::MAX
                };
                let v = [1 << 40 | n, 9, u64::from(-13i32 as u32), ABSENT];
                expected.push(Ev {
                    time: sample.time,
                    pid,
                    tid,
                    kind: 1,
                    cpu,
                    v,
                });
            }
            let id = Sample {
                id: 14,
                pid: 5,
                tid: 6,
                time: 99,
                ..Sample::default()
            };
            file.records
                .push(file.events[1].other(3, 0, b"\x05\0\0\0\x06\0\0\0cvmfs2\0\0", &id));
            let result = read(file.bytes());
            assert_eq!(
                result.events, expected,
                "sample_type {sample_type:#x} read_format {read_format:#x}"
            );
            assert_eq!(
                result.side,
                [Side::Comm {
                    time: 99,
                    pid: 5,
                    tid: 6,
                    comm: "cvmfs2".into(),
                }]
            );
            assert_eq!(result.info.counts, [0, 3, 0]);
            assert_eq!(result.info.warnings, [""; 0]);
        }
    }
}

#[test]
fn records_that_are_no_samples() {
    for sample_id_all in [0, perf_data::SAMPLE_ID_ALL] {
        let mut file = PerfData::fuse();
        file.events
            .iter_mut()
            .for_each(|event| event.flags = sample_id_all);
        let event = file.events[0].clone();
        let at = |time| Sample {
            id: 11,
            pid: 30,
            tid: 31,
            time,
            ..Sample::default()
        };
        let task = |time: u64| [words(&[30, 29, 31, 28]), time.to_le_bytes().to_vec()].concat();
        file.records = vec![
            event.other(
                3,
                0,
                &[words(&[30, 31]), b"find\0\0\0\0".to_vec()].concat(),
                &Sample::default(),
            ),
            event.other(7, 0, &task(20), &at(20)),
            event.other(14, 1 << 13, &[], &at(30)),
            event.other(14, 0, &[], &at(40)),
            event.other(15, 1 << 13 | 1 << 14, &words(&[1, 2]), &at(50)),
            event.other(15, 0, &words(&[0, 0]), &Sample { tid: 0, ..at(55) }),
            event.other(4, 0, &task(60), &at(60)),
            event.other(2, 0, &words(&[11, 0, 17, 0]), &at(70)),
            event.other(13, 0, &words(&[19, 0]), &at(80)),
            event.other(13, 1 << 15, &words(&[1000, 0]), &at(80)),
            event.other(5, 0, &words(&[90, 0, 11, 0, 0, 0]), &at(90)),
            event.other(1, 0, &words(&[30, 31, 0, 0, 0, 0, 0, 0]), &at(91)),
            event.other(10, 0, &[0; 64], &at(92)),
            record(79, 0, &[0; 24]),
            record(200, 0, &[0; 8]),
        ];
        let result = read(file.bytes());
        let mut expected = vec![
            Side::Comm {
                time: 0,
                pid: 30,
                tid: 31,
                comm: "find".into(),
            },
            Side::Fork {
                time: 20,
                pid: 30,
                tid: 31,
                ppid: 29,
                ptid: 28,
            },
        ];
        let (pid, tid) = (30, 31);
        if sample_id_all != 0 {
            expected.push(Side::Switch {
                time: 30,
                pid,
                tid,
                out: true,
                preempt: false,
            });
            expected.push(Side::Switch {
                time: 40,
                pid,
                tid,
                out: false,
                preempt: false,
            });
            expected.push(Side::Switch {
                time: 50,
                pid,
                tid,
                out: true,
                preempt: true,
            });
        }
        expected.push(Side::Exit { time: 60, pid, tid });
        if sample_id_all != 0 {
            expected.push(Side::Lost { time: 70 });
            expected.push(Side::Lost { time: 80 });
        }
        assert_eq!(result.side, expected);
        let info = result.info;
        assert_eq!((info.lost, info.throttled), (19, 1));
        assert_eq!(info.warnings, [""; 0]);
    }
}

#[test]
fn the_files_own_facts_are_read() {
    let mut file = PerfData::fuse();
    let json = r#"{"format": 1, "command": ["find", "/mnt"]}"#;
    let facts = Sample {
        id: 15,
        time: 5,
        raw: session(json),
        ..Sample::default()
    };
    file.records.push(file.events[2].sample(&facts));
    for bytes in [file.bytes(), file.pipe()] {
        let reader = Reader::from_bytes(bytes).unwrap();
        let names: Vec<&str> = reader
            .events()
            .iter()
            .map(|event| event.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "fuse:fuse_request_send",
                "fuse:fuse_request_end",
                "fusetools:session"
            ]
        );
        assert_eq!(reader.events()[0].ids, [11, 12]);
        assert_eq!(reader.session().as_deref(), Some(json));
        assert_eq!(reader.arch().as_deref(), Some("x86_64"));
        assert_eq!(reader.os_release().as_deref(), Some("6.18.0"));
        assert_eq!(reader.hostname().as_deref(), Some("guest"));
        let tracing = reader.tracing().unwrap();
        assert_eq!(
            (
                tracing.version.as_str(),
                tracing.long_size,
                tracing.page_size
            ),
            ("0.6", 8, 4096)
        );
        assert_eq!(
            &reader.bytes()[tracing.systems[1].1[0].clone()],
            perf_data::END.as_bytes()
        );
        let page = include_str!("header_page.txt").as_bytes();
        assert_eq!(&reader.bytes()[tracing.header_page.clone()], page);
    }
    // Names without tracing data, and tracing data without names.
    let features = file.features();
    for which in [1, 12] {
        let only: Vec<_> = features
            .iter()
            .filter(|(bit, _)| *bit == which)
            .cloned()
            .collect();
        let reader = Reader::from_bytes(file.with_data(&file.data(), &only)).unwrap();
        assert_eq!(reader.events()[1].name, "fuse:fuse_request_end");
        assert_eq!(reader.warnings().is_empty(), which == 1);
    }
}

#[test]
fn time_order_by_rounds() {
    let file = two_cpus(9, 20_000);
    let result = read(file.bytes());
    assert_eq!(result.events.len(), 9 * 2 * 20_000);
    assert!(result.batches > 1, "rounds let batches go before the end");
    let mut expected = result.events.clone();
    expected.sort_by_key(|event| event.time);
    assert!(result.events == expected && in_order(&result));
    assert_eq!(result.info.warnings, [""; 0]);

    // Without rounds everything waits for the end.
    let mut without = file.clone();
    without.records.retain(|record| record[0] != 68);
    let flat = read(without.bytes());
    assert_eq!(flat.batches, 1);
    assert!(flat.events == result.events && flat.side == result.side);

    // An event far older than its round allows is reported.
    let mut late = file;
    let old = Sample {
        id: 11,
        time: 1_001,
        raw: send(45, 1, 1),
        ..Sample::default()
    };
    late.records.push(late.events[0].sample(&old));
    let warnings = read(late.bytes()).info.warnings;
    assert!(
        warnings.len() == 1 && warnings[0].contains("out of time order"),
        "{warnings:?}"
    );
}

#[test]
fn records_come_in_the_same_order() {
    let file = two_cpus(5, 30_000);
    let result = read(file.bytes());
    for bytes in [
        file.bytes(),
        file.with_data(
            &compress(&file.data(), 50_000, 81).concat(),
            &file.features(),
        ),
    ] {
        let reader = Reader::from_bytes(bytes).unwrap();
        let mut records = reader.records();
        let samples: Vec<(u64, Option<usize>)> = records
            .by_ref()
            .filter(|record| record.kind == 9)
            .map(|record| (record.time.unwrap(), record.event))
            .collect();
        assert_eq!(records.damage(), None);
        let expected: Vec<(u64, Option<usize>)> = result
            .events
            .iter()
            .map(|event| (event.time, Some(event.kind as usize)))
            .collect();
        assert!(samples == expected);
        let all = reader
            .records()
            .map(|record| record.bytes.len())
            .sum::<usize>();
        assert_eq!(all, file.data().len() - 8 * 5, "all but the rounds");
    }
}

/// A quiet CPU's records stay in its buffer for some rounds, or until the end: perf's --mmap-flush.
#[test]
fn late_records_come_in_order() {
    let file = two_cpus(6, 10_000);
    let all = |file: &PerfData| {
        let reader = Reader::from_bytes(file.bytes()).unwrap();
        let all = reader
            .records()
            .map(|record| (record.time, record.bytes.to_vec()));
        all.collect::<Vec<_>>()
    };
    let sorted = |file: &PerfData| {
        let mut all = all(file);
        all.sort();
        all
    };
    for rounds in [2, 3, 6] {
        let (mut records, mut kept, mut ended) = (Vec::new(), Vec::new(), 0);
        for record in &file.records {
            let cpu = u32::from_le_bytes(
                record
                    .get(40..44)
                    .map_or([0; 4], |it| it.try_into().unwrap()),
            );
            match (record[0], cpu) {
                (9, 1) => kept.push(record.clone()),
                (68, _) => {
                    records.push(record.clone());
                    ended += 1;
                    if ended % rounds == 0 {
                        records.append(&mut kept);
                    }
                }
                _ => records.push(record.clone()),
            }
        }
        let mut late = file.clone();
        late.records = records;
        assert!(late.records != file.records);
        let found = all(&late);
        assert!(found.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(sorted(&late) == sorted(&file), "each once: {rounds}");
    }
}

#[test]
fn chunks_do_not_matter() {
    let mut file = two_cpus(6, 40);
    // Data that is no record, but looks like some.
    let mut fake = record(71, 0, &words(&[800, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    (0..100).for_each(|_| fake.extend(round()));
    file.records.insert(100, fake);
    for (at, size) in [(250, 65_520), (200, 10_000), (150, 4_080)] {
        file.records.insert(at, record(79, 0, &vec![0; size]));
    }
    let expected = read(file.bytes());
    assert_eq!(expected.info.warnings, [""; 0]);
    let name = format!("fusetools-chunks-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, file.bytes()).unwrap();
    for chunk in [8, 16, 40, 64, 120, 256, 1000, 1024, 4096, 16 << 10] {
        let in_memory = Reader::from_bytes(file.bytes()).unwrap();
        for mut reader in [in_memory, Reader::open(&path).unwrap()] {
            reader.set_chunk(chunk);
            let result = scan(&reader);
            assert!(
                result.events == expected.events && result.side == expected.side,
                "chunks of {chunk}"
            );
            assert_eq!(result.info, expected.info);
        }
    }
    std::fs::remove_file(&path).unwrap();
}

/// Events and side-band records in the order in which the analysis sees them, of a file in time order.
#[test]
fn equal_times_stay_together() {
    let mut file = PerfData::fuse();
    let mut random = Random(3);
    for n in 0..15_000u64 {
        // Runs of up to some dozen records at the same time.
        let time = (1_000 + n) / 16;
        let sample = Sample {
            id: 11,
            time,
            tid: n as i32,
            raw: send(45, n, 1),
            ..Sample::default()
        };
        let task = words(&[7, 7, n as u32, 8, time as u32, 0]);
        file.records.push(match random.below(20) {
            0 => file.events[0].other(3, 0, &[&task[4..12], b"name\0\0\0\0"].concat(), &sample),
            1 => file.events[0].other(4, 0, &task, &sample),
            2 => file.events[0].other(7, 0, &task, &sample),
            _ => file.events[0].sample(&sample),
        });
    }
    file.records.sort_by_key(|record| {
        let at = if record[0] == 9 {
            32
        } else {
            record.len() - 24
        };
        u64::from_le_bytes(record[at..at + 8].try_into().unwrap())
    });
    let records = std::mem::take(&mut file.records);
    file.records = records
        .chunks(500)
        .flat_map(|part| [part.concat(), round()])
        .collect();
    let seen = |chunk: usize| {
        let mut reader = Reader::from_bytes(file.bytes()).unwrap();
        reader.set_chunk(chunk);
        let (mut seen, mut batches) = (Vec::new(), 0);
        let info = reader.scan(&catalogue(), &mut |batch| {
            batch.in_order(|item| seen.push(format!("{item:?}")));
            batches += 1;
        });
        assert_eq!(info.unwrap().warnings, [""; 0]);
        (seen, batches)
    };
    let (whole, few) = seen(4 << 20);
    assert!(whole.len() > 14_000);
    for chunk in [64, 500, 3000, 20_000] {
        let (parts, many) = seen(chunk);
        assert!(parts == whole, "chunks of {chunk}");
        assert!(many > few);
    }
}

#[test]
fn the_tail_has_all_events_since_a_time() {
    let file = two_cpus(60, 100);
    let data = file.data();
    let packed = compress(&data, 4096, 81).concat();
    let frames: Vec<u8> = file
        .records
        .chunks(50)
        .flat_map(|r| frame(&r.concat()))
        .collect();
    for (name, bytes, found) in [
        ("plain", file.bytes(), true),
        (
            "frames",
            file.with_data(&frames, &packed_features(&file)),
            true,
        ),
        // One stream: it cannot be unpacked from the middle.
        (
            "stream",
            file.with_data(&packed, &packed_features(&file)),
            false,
        ),
    ] {
        let mut reader = Reader::from_bytes(bytes).unwrap();
        let all = scan(&reader);
        let catalogue = catalogue();
        reader.set_chunk(if name == "plain" { 2000 } else { 1500 });
        let mut events = Vec::new();
        let tail = reader.scan_tail(&catalogue, &mut |batch| events.extend(batch.events));
        assert_eq!(tail.is_some(), found, "{name}");
        let Some(tail) = tail else { continue };
        assert_eq!(tail.info.last, all.info.last);
        assert!(events.len() < all.events.len() / 2, "{name}");
        let later = |events: &[Ev]| -> Vec<Ev> {
            let later = events.iter().filter(|event| event.time > tail.since);
            later.copied().collect()
        };
        assert!(later(&events).len() > 100, "{name}");
        assert!(later(&events) == later(&all.events), "{name}");
        // A part of it is too short for rounds.
        reader.set_chunk(64);
        assert!(reader.scan_tail(&catalogue, &mut drop).is_none());
    }
}

fn packed_features(file: &PerfData) -> Vec<(u32, Vec<u8>)> {
    let mut features = file.features();
    features.push((27, vec![0; 20]));
    features.sort();
    features
}

#[test]
fn compressed_records() {
    let file = two_cpus(4, 500);
    let expected = read(file.bytes());
    let data = file.data();
    for kind in [81, 83] {
        for step in [33, 1000, 4096, 100_000] {
            let packed = compress(&data, step, kind).concat();
            for bytes in [
                file.with_data(&packed, &file.features()),
                file.pipe_with(&packed),
            ] {
                let mut reader = Reader::from_bytes(bytes).unwrap();
                for chunk in [1000, 4 << 20] {
                    reader.set_chunk(chunk);
                    let result = scan(&reader);
                    assert!(result.events == expected.events && result.side == expected.side);
                    assert_eq!(result.info, expected.info);
                }
            }
        }
    }
    // Plain records first and in between, also rounds: as perf writes them.
    let mut mixed = Vec::new();
    let plain: Vec<_> = file.records.iter().take(10).cloned().collect();
    mixed.extend(plain.concat());
    let mut pieces = compress(&data[plain.concat().len()..], 3000, 81);
    let extra = file.events[0].other(
        14,
        0,
        &[],
        &Sample {
            id: 11,
            tid: 9,
            time: 1_500,
            ..Sample::default()
        },
    );
    pieces.insert(2, extra);
    pieces.insert(3, round());
    mixed.extend(pieces.concat());
    let result = read(file.with_data(&mixed, &file.features()));
    assert!(result.events == expected.events);
    assert_eq!(result.side.len(), expected.side.len() + 1);
    assert_eq!(result.info.warnings, [""; 0]);

    // Cut short in the middle of a piece: the whole records before it remain.
    let pieces = compress(&data, 1001, 81);
    let cut = pieces[..7].concat();
    let result = read(file.with_data(&cut, &file.features()));
    assert!(!result.events.is_empty() && result.events.len() < expected.events.len());
    assert!(
        result.info.warnings[0].contains("within a record"),
        "{:?}",
        result.info.warnings
    );

    // A record that cannot have been packed ends the records, and is reported at its place in the file. Damage after it
    // does not matter, however they are cut.
    let tracing = record(66, 0, &words(&[1 << 20]));
    let auxiliary = record(71, 0, &[&64u64.to_le_bytes()[..], &[0; 32]].concat());
    for (kind, odd) in [(66, &tracing), (71, &auxiliary), (81, &pieces[0])] {
        let mut pieces = compress(&[&data[..], odd, &data].concat(), 1000, 81);
        pieces.last_mut().unwrap()[8..].fill(0xff);
        let bytes = file.with_data(&pieces.concat(), &file.features());
        let mut warnings = Vec::new();
        for chunk in [64, 4096, 1 << 20] {
            let mut reader = Reader::from_bytes(bytes.clone()).unwrap();
            reader.set_chunk(chunk);
            let result = scan(&reader);
            assert!(result.events == expected.events);
            warnings.extend(result.info.warnings);
        }
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        let place = warnings[0].split([' ', ':']).nth(3).unwrap();
        assert!(place.parse::<usize>().unwrap() > data_start(&bytes));
        assert!(warnings[0].contains(&format!("a compressed record of type {kind};")));
        assert!(warnings.iter().all(|warning| *warning == warnings[0]));
    }
}

#[test]
fn plain_records_stay_behind_the_compressed_ones_before_them() {
    let mut file = PerfData::fuse();
    let at = |time| Sample {
        id: 11,
        time,
        raw: send(43, time, 1),
        ..Sample::default()
    };
    // More than is unpacked at once: two CPUs' buffers in a round, one after the other, each followed by two rounds'
    // ends.
    let times = |round: u64| {
        (0..2).flat_map(move |cpu| (0..2000).map(move |n| 100_000 * (round + 1) + 20 * n - cpu))
    };
    let records: Vec<Vec<u8>> = (0..32)
        .flat_map(times)
        .map(|time| file.events[0].sample(&at(time)))
        .collect();
    let of_a_round = 4000 * records[0].len();
    let ends = [round(), round()].concat();
    file.records = records
        .chunks(4000)
        .flat_map(|round| [round.concat(), ends.clone()])
        .collect();
    let expected = read(file.bytes());
    assert_eq!(expected.events.len(), 128_000);
    assert_eq!(expected.info.warnings, [""; 0]);
    let pieces = compress(&records.concat(), of_a_round, 81);
    assert_eq!(pieces.len(), 32);
    let data: Vec<u8> = pieces
        .into_iter()
        .flat_map(|piece| [piece, ends.clone()].concat())
        .collect();
    let mut reader = Reader::from_bytes(file.with_data(&data, &file.features())).unwrap();
    for chunk in [64, 1000, 4096, 4 << 20] {
        reader.set_chunk(chunk);
        let found = scan(&reader);
        assert!(found.events == expected.events, "chunks of {chunk}");
        assert_eq!(found.info, expected.info, "chunks of {chunk}");
    }
}

#[test]
fn a_bomb_does_not_blow_up() {
    let file = PerfData::fuse();
    // 1 GiB of meaningless records: a hundred kilobytes.
    let zeros = record(79, 0, &vec![0; 65_520]);
    let block = zeros.repeat(512);
    let mut packed = Vec::new();
    let mut encoder = zstd::stream::Encoder::new(&mut packed, 1).unwrap();
    for _ in 0..32 {
        std::io::Write::write_all(&mut encoder, &block).unwrap();
    }
    encoder.finish().unwrap();
    let data: Vec<u8> = packed
        .chunks(60_000)
        .flat_map(|piece| record(81, 0, piece))
        .collect();
    assert!(data.len() < 1 << 18, "{}", data.len());
    let started = Instant::now();
    let result = read(file.with_data(&data, &file.features()));
    assert!(
        result.info.warnings[0].contains("grow without end"),
        "{:?}",
        result.info.warnings
    );
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );

    let result = read(file.with_data(
        &record(81, 0, b"no zstd at all, whatever it says"),
        &file.features(),
    ));
    assert!(
        result.info.warnings[0].contains("compressed records"),
        "{:?}",
        result.info.warnings
    );
    let result = read(file.with_data(
        &record(83, 0, &words(&[u32::MAX, u32::MAX, 0, 0])),
        &file.features(),
    ));
    assert!(
        result.info.warnings[0].contains("compressed record's size"),
        "{:?}",
        result.info.warnings
    );
}

#[test]
fn pipe_mode() {
    let file = two_cpus(4, 500);
    let expected = read(file.bytes());
    let result = read(file.pipe());
    assert!(result.events == expected.events && result.side == expected.side);
    assert_eq!(result.info, expected.info);
    // Older versions of perf write names one by one and no EVENT_DESC.
    let mut bytes = b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec();
    let attr = &file.pipe()[..];
    let mut at = 16;
    while attr[at] != 66 {
        let size = u16::from_le_bytes([attr[at + 6], attr[at + 7]]) as usize;
        if attr[at] == 64 {
            bytes.extend(&attr[at..at + size]);
        }
        at += size;
    }
    let mut update = words(&[2, 0, 13, 0]);
    update.extend(b"fuse:fuse_request_end\0\0\0");
    bytes.extend(record(78, 0, &update));
    bytes.extend(file.data());
    let reader = Reader::from_bytes(bytes).unwrap();
    assert_eq!(reader.events()[1].name, "fuse:fuse_request_end");
    let result = scan(&reader);
    let ends = expected
        .events
        .iter()
        .filter(|event| event.kind == 1)
        .count();
    assert_eq!(result.events.len(), ends);
    assert!(result.info.counts == expected.info.counts && !result.info.warnings.is_empty());
}

#[test]
fn a_recorder_that_was_killed() {
    let file = two_cpus(3, 100);
    let whole = file.bytes();
    let end = whole.len() - file.with_data(&[], &file.features()).len() + data_start(&whole);
    let mut killed = whole[..end].to_vec();
    killed[48..56].fill(0);
    let result = read(killed.clone());
    assert_eq!(result.info.counts, read(whole).info.counts);
    assert!(
        result.info.warnings[0].contains("never finished"),
        "{:?}",
        result.info.warnings
    );
    assert!(
        result.info.warnings[1].contains("no name"),
        "{:?}",
        result.info.warnings
    );
    killed.truncate(end - 3);
    let result = read(killed);
    assert!(
        result.info.warnings[2].contains("cut short"),
        "{:?}",
        result.info.warnings
    );
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn data_start(bytes: &[u8]) -> usize {
    u64_at(bytes, 40) as usize
}

/// Open and read in every way. Return None if opening fails; the error must say something.
fn survive(bytes: Vec<u8>) -> Option<Scan> {
    match Reader::from_bytes(bytes) {
        Ok(mut reader) => {
            reader.set_chunk(512);
            reader.session();
            reader.arch();
            let mut records = reader.records();
            for record in records.by_ref() {
                let attr = record.event.and_then(|event| reader.attrs().get(event));
                attr.map(|attr| attr.layout.user_stack(&record.bytes, 0xff_0fff));
            }
            stacks(&reader);
            Some(scan(&reader))
        }
        Err(error) => {
            assert!(
                !error.to_string().contains('\n') && error.to_string().len() > 10,
                "{error}"
            );
            None
        }
    }
}

/// Return the samples of the first bytes of the records, sorted.
fn prefix(file: &PerfData, len: usize) -> Vec<u64> {
    let mut times = Vec::new();
    let mut at = 0;
    for record in &file.records {
        at += record.len();
        if at > len {
            break;
        }
        if record[0] == 9 {
            times.push(u64_at(record, 32));
        }
    }
    times.sort();
    times
}

#[test]
fn truncated_anywhere() {
    let file = two_cpus(2, 8);
    let whole = file.bytes();
    let expected = read(whole.clone());
    let start = data_start(&whole);
    let data = file.data().len();
    for len in 0..whole.len() {
        let Some(result) = survive(whole[..len].to_vec()) else {
            assert!(len < start, "cut at {len}");
            continue;
        };
        assert!(len >= start, "cut at {len}");
        assert!(!result.info.warnings.is_empty(), "cut at {len}");
        let left = prefix(&file, len - start);
        assert_eq!(
            result.info.counts.iter().sum::<u64>(),
            left.len() as u64,
            "cut at {len}"
        );
        assert_eq!(
            result.info.last,
            left.last().copied().unwrap_or(0),
            "cut at {len}"
        );
        // Once a name is there, its events are whole; before the formats are, fields are absent.
        if len >= start + data && !result.events.is_empty() {
            let times = |result: &Scan| {
                result
                    .events
                    .iter()
                    .map(|event| event.time)
                    .collect::<Vec<_>>()
            };
            assert_eq!(times(&result), times(&expected), "cut at {len}");
        }
    }
    let pipe = file.pipe();
    let start = pipe.len() - data;
    let expected = read(pipe.clone());
    for len in 0..pipe.len() {
        let result = survive(pipe[..len].to_vec());
        if len >= start {
            let result = result.unwrap();
            assert_eq!(
                result
                    .events
                    .iter()
                    .map(|event| event.time)
                    .collect::<Vec<_>>(),
                prefix(&file, len - start)
            );
            let at_end = prefix(&file, len - start).len() == expected.events.len();
            assert!(at_end || len == start || result.info.warnings.len() <= 1);
        }
    }
}

/// Every 8-byte word of the file, except the records themselves, is set to the worst values.
#[test]
fn wrong_words_anywhere() {
    let file = two_cpus(2, 6);
    let whole = file.bytes();
    let expected = read(whole.clone());
    let data = data_start(&whole)..data_start(&whole) + file.data().len();
    let len = whole.len() as u64;
    let values = [
        0,
        1,
        7,
        104,
        len - 8,
        len,
        len + 1,
        u32::MAX as u64,
        i64::MAX as u64,
        u64::MAX,
    ];
    for at in (0..whole.len() - 8).step_by(8) {
        if data.contains(&at) {
            continue;
        }
        // And its own place: a section that is its own list.
        for value in values.into_iter().chain([at as u64]) {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let started = Instant::now();
            let result = survive(bytes);
            assert!(
                started.elapsed() < Duration::from_secs(5),
                "{value:#x} at {at}"
            );
            // A wrong extent of the records must not pass for a whole recording.
            if let (40 | 48, Some(result)) = (at, result) {
                let same = result.events == expected.events;
                assert!(
                    same || !result.info.warnings.is_empty(),
                    "{value:#x} at {at}: {:?}",
                    result.info
                );
            }
        }
    }
}

#[test]
fn wrong_bytes_in_the_records() {
    let file = two_cpus(2, 20);
    let whole = file.bytes();
    let expected = read(whole.clone());
    let data = data_start(&whole)..data_start(&whole) + file.data().len();
    for at in data.step_by(2) {
        for value in [0u16, 7, 8, 0xffff] {
            let mut bytes = whole.clone();
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            let result = survive(bytes).unwrap();
            let lost = result.events.len() < expected.events.len();
            // A sample whose kind was overwritten is another record now; all others are reported.
            assert!(
                result.events.len() <= expected.events.len() + 1,
                "{value} at {at}"
            );
            if lost && value == 0 && u64_at(&whole, at & !7) >> 48 != 0 && at % 8 == 6 {
                assert!(!result.info.warnings.is_empty(), "{value} at {at}");
            }
        }
    }
}

#[test]
fn sizes_of_records() {
    let mut file = two_cpus(1, 10);
    let whole = file.bytes();
    let before: usize = file.records[..5].iter().map(Vec::len).sum();
    let place = data_start(&whole) + before + 6;
    for (size, what) in [
        (0u16, "a record of 0 bytes"),
        (7, "a record of 7 bytes"),
        (u16::MAX, "cut short"),
    ] {
        let mut bytes = whole.clone();
        bytes[place..place + 2].copy_from_slice(&size.to_le_bytes());
        let result = read(bytes);
        assert_eq!(
            result
                .events
                .iter()
                .map(|event| event.time)
                .collect::<Vec<_>>(),
            prefix(&file, before)
        );
        assert!(
            result.info.warnings[0].contains(what),
            "{:?}",
            result.info.warnings
        );
    }
    // A call chain, a group and raw data that claim more than the sample holds.
    let good = Sample {
        id: 13,
        time: 77,
        raw: end(1, 2, 3),
        ..Sample::default()
    };
    let mut event = Event {
        sample_type: perf_data::USUAL | perf_data::CALLCHAIN,
        ..file.events[1].clone()
    };
    for chain in [u64::MAX, u32::MAX as u64, 1 << 61, 100] {
        let mut sample = event.sample(&good);
        sample[64 - 8..64].copy_from_slice(&chain.to_le_bytes());
        file.events
            .iter_mut()
            .for_each(|other| other.sample_type = event.sample_type);
        file.records = vec![event.sample(&good), sample];
        let result = read(file.bytes());
        assert_eq!(result.events.len(), 1);
        assert_eq!(result.info.counts, [0, 1, 0]);
        assert!(
            result.info.warnings[0].contains("contradict"),
            "{:?}",
            result.info.warnings
        );
    }
    event.sample_type = perf_data::USUAL | perf_data::READ;
    event.read_format = 8;
    file.events
        .iter_mut()
        .for_each(|other| (other.sample_type, other.read_format) = (event.sample_type, 8));
    let mut sample = event.sample(&good);
    sample[56..64].copy_from_slice(&u64::MAX.to_le_bytes());
    file.records = vec![event.sample(&good), sample];
    assert_eq!(read(file.bytes()).info.counts, [0, 1, 0]);
    // Raw data shorter than the event's fields.
    let short = Sample {
        raw: vec![0; 4],
        ..good.clone()
    };
    file.records = vec![event.sample(&good), event.sample(&short)];
    assert_eq!(read(file.bytes()).info.counts, [0, 1, 0]);
    // An id that no event has.
    file.records = vec![
        event.sample(&good),
        event.sample(&Sample { id: 99, ..good }),
    ];
    let result = read(file.bytes());
    assert_eq!(result.info.counts, [0, 1, 0]);
    assert!(
        result.info.warnings[0].contains("no event"),
        "{:?}",
        result.info.warnings
    );
}

#[test]
fn ids_far_apart() {
    let mut file = PerfData::fuse();
    file.events[0].ids = vec![1, u64::MAX];
    file.events[1].ids = vec![1 << 40];
    for (event, id) in [(0, 1), (0, u64::MAX), (1, 1 << 40), (1, 2)] {
        let raw = [send(1, 2, 3), end(1, 2, 3)][event].clone();
        file.records.push(file.events[event].sample(&Sample {
            id,
            time: 9,
            raw,
            ..Sample::default()
        }));
    }
    assert_eq!(read(file.bytes()).info.counts, [2, 1, 0]);
}

/// Every event claims the whole file as its ids: their sum must be bounded, not each.
#[test]
fn overlapping_ids() {
    let mut file = PerfData::fuse();
    file.events = (0..500).map(|_| Event::new("cycles", 1, &[])).collect();
    let mut bytes = file.with_data(&vec![0; 1 << 20], &[]);
    let (attrs, len) = (u64_at(&bytes, 24) as usize, bytes.len() as u64);
    for event in 0..500 {
        let at = attrs + event * 144 + 128;
        bytes[at..at + 8].fill(0);
        bytes[at + 8..at + 16].copy_from_slice(&(len & !7).to_le_bytes());
    }
    assert!(survive(bytes).is_none());
}

#[test]
fn other_files() {
    let open = |bytes: &[u8]| {
        Reader::from_bytes(bytes.to_vec())
            .err()
            .map(|error| error.to_string())
    };
    let fails = |bytes: &[u8], what: &str| {
        let error = open(bytes).unwrap();
        assert!(error.contains(what), "{error}");
    };
    fails(b"", "empty");
    fails(b"PERF", "only 4 bytes");
    fails(b"PERFILE2", "header ends early");
    fails(b"PERFFILE\0\0\0\0\0\0\0\0", "2012");
    fails(
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
        "does not begin with",
    );
    fails(b"2ELIFREP\0\0\0\0\0\0\0\x68", "big-endian");
    assert!(matches!(
        Reader::from_bytes(b"2ELIFREP\0\0\0\0\0\0\0\x68".to_vec()),
        Err(Error::BigEndian)
    ));

    // Tracing data of the other byte order.
    let file = PerfData::fuse();
    let mut features = file.features();
    features[0].1[14] = 1;
    assert!(matches!(
        Reader::from_bytes(file.with_data(&round(), &features)),
        Err(Error::BigEndian)
    ));

    let directory = TempDir::new();
    let path = directory.0.as_path();
    let fails = |path: &Path, what: &str| {
        let error = Reader::open(path).err().unwrap().to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    };
    fails(path, "a directory");
    std::fs::write(path.join("data.0"), b"").unwrap();
    fails(path, "--threads");
    fails(&path.join("nothing"), "No such file");
    fails(Path::new("/dev/null"), "not a regular file");
    let whole = path.join("perf.data");
    std::fs::write(&whole, two_cpus(2, 10).bytes()).unwrap();
    assert!(scan(&Reader::open(&whole).unwrap()) == read(two_cpus(2, 10).bytes()));
    let mut permissions = std::fs::metadata(&whole).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    std::fs::set_permissions(&whole, permissions).unwrap();
    match std::fs::File::open(&whole) {
        Ok(_) => eprintln!(
            "no test of a file without permission: this user may read it all the same (root)"
        ),
        Err(_) => fails(&whole, "ermission"),
    }
}

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("fusetools-reader-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Return the shared recordings, unpacked; print a note and return none if they are missing.
fn shared() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let data = std::env::var("FUSETOOLS_DATA").map_or(root.join("../shared/data"), PathBuf::from);
    let mut paths = vec![data.join("cernvmfs-6.1/perf.data.zst")];
    for entry in std::fs::read_dir(data.join("kernels"))
        .into_iter()
        .flatten()
        .flatten()
    {
        paths.push(entry.path().join("recording/perf.data.zst"));
    }
    paths.retain(|path| path.is_file());
    if paths.is_empty() {
        eprintln!(
            "no test on shared recordings: there are none in {}",
            data.display()
        );
    }
    let unpack = |path: &PathBuf| zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    paths
        .iter()
        .map(|path| (path.display().to_string(), unpack(path)))
        .collect()
}

fn everything(reader: &Reader) -> Vec<Meaning> {
    reader
        .events()
        .iter()
        .map(|event| meaning(&event.name, Role::Entry))
        .collect()
}

fn scan_all(reader: &Reader) -> (Vec<Ev>, ScanInfo) {
    let mut events = Vec::new();
    let info = reader
        .scan(&everything(reader), &mut |batch| {
            events.extend(batch.events)
        })
        .unwrap();
    (events, info)
}

/// Return the stack of each sample that has one, and the mappings.
fn stacks(reader: &Reader) -> (Vec<(u64, Chain)>, Vec<Side>) {
    let rows: Vec<Meaning> = everything(reader)
        .into_iter()
        .map(|row| meaning(&row.event, Role::Stack))
        .collect();
    let (mut known, mut chains, mut maps) = (Vec::<Chain>::new(), Vec::new(), Vec::new());
    reader
        .scan(&rows, &mut |batch| {
            known.extend(batch.stacks);
            let stacked = batch.events.iter().filter(|event| event.v[3] != ABSENT);
            chains.extend(stacked.map(|event| (event.time, known[event.v[3] as usize].clone())));
            maps.extend(batch.side.into_iter().filter(|s| matches!(s, Side::Map(_))));
        })
        .unwrap();
    (chains, maps)
}

#[test]
fn stacks_are_reported_once() {
    let mut file = PerfData::fuse();
    file.events[0].sample_type |= perf_data::CALLCHAIN;
    let kernel = u64::MAX - 127; // PERF_CONTEXT_KERNEL
    let chains = [
        vec![kernel, 1, 2],
        vec![],
        vec![kernel, 1, 3],
        vec![kernel, 1, 2],
    ];
    for (chain, time) in chains.iter().zip(1000..) {
        let sample = Sample {
            id: 11,
            time,
            chain: chain.clone(),
            ..Sample::default()
        };
        file.records.push(file.events[0].sample(&sample));
    }
    let reader = Reader::from_bytes(file.bytes()).unwrap();
    let row = [meaning(&reader.events()[0].name, Role::Stack)];
    let (mut numbers, mut reported) = (Vec::new(), Vec::new());
    reader
        .scan(&row, &mut |batch| {
            numbers.extend(batch.events.iter().map(|event| event.v[3]));
            reported.extend(batch.stacks);
        })
        .unwrap();
    assert_eq!(numbers, [0, ABSENT, 1, 0]);
    assert_eq!(
        reported
            .iter()
            .map(|chain| chain.to_vec())
            .collect::<Vec<_>>(),
        [&chains[0][..], &chains[2]]
    );
}

#[test]
fn shared_recordings_in_chunks_and_packed() {
    for (name, bytes) in shared() {
        let mut reader = Reader::from_bytes(bytes.clone()).unwrap();
        let (events, info) = scan_all(&reader);
        assert_eq!(info.warnings, [""; 0], "{name}");
        assert_eq!(info.counts.iter().sum::<u64>(), events.len() as u64);
        let stacked = stacks(&reader);
        assert!(!stacked.0.is_empty() && !stacked.1.is_empty(), "{name}");
        for chunk in [4096, 65_000, 1 << 20] {
            reader.set_chunk(chunk);
            assert!(
                stacks(&reader) == stacked,
                "{name}: stacks in chunks of {chunk}"
            );
            let (again, same) = scan_all(&reader);
            assert!(
                again == events && same == info,
                "{name} in chunks of {chunk}"
            );
        }
        let times: Vec<u64> = reader
            .records()
            .filter(|r| r.kind == 9)
            .filter_map(|r| r.time)
            .collect();
        assert!(
            times == events.iter().map(|event| event.time).collect::<Vec<_>>(),
            "{name}"
        );

        let data = reader.data();
        let mut packed = bytes[..data.start].to_vec();
        packed.extend(compress(&bytes[data.clone()], 400_000, 81).concat());
        let size = (packed.len() - data.start) as u64;
        packed[48..56].copy_from_slice(&size.to_le_bytes());
        let moved = data.end as u64 - packed.len() as u64;
        let table = packed.len();
        packed.extend(&bytes[data.end..]);
        for feature in 0..reader.features().len() {
            let at = table + 16 * feature;
            let offset = u64_at(&packed, at) - moved;
            packed[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
        let packed = Reader::from_bytes(packed).unwrap();
        assert!(stacks(&packed) == stacked, "{name}: stacks, packed");
        let (again, same) = scan_all(&packed);
        assert!(again == events && same == info, "{name} packed");
    }
}

/// Cut at the boundaries of all sections and inside them: the file's beginning is kept, and the loss reported.
#[test]
fn shared_recordings_cut() {
    for (name, bytes) in shared() {
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        let (events, _) = scan_all(&reader);
        let data = reader.data();
        let mut cuts = vec![
            0,
            1,
            8,
            16,
            104,
            data.start - 1,
            data.start,
            data.start + 1,
            data.end - 1,
            data.end,
        ];
        cuts.extend(reader.features().iter().flat_map(|(_, range)| {
            [
                range.start - 1,
                range.start,
                range.start + range.len() / 2,
                range.end - 1,
            ]
        }));
        cuts.extend((1..8).map(|n| data.start + n * data.len() / 8));
        for cut in cuts {
            let Ok(short) = Reader::from_bytes(bytes[..cut].to_vec()) else {
                assert!(cut < data.start, "{name} cut at {cut}");
                continue;
            };
            let (left, info) = scan_all(&short);
            assert!(!info.warnings.is_empty(), "{name} cut at {cut}");
            assert!(left.len() <= events.len());
            let mut whole = 0;
            let mut at = data.start;
            while at + 8 <= cut.min(data.end) {
                let end = at + u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]) as usize;
                whole += u64::from(bytes[at] == 9 && end <= cut);
                at = end;
            }
            assert_eq!(
                info.counts.iter().sum::<u64>(),
                whole,
                "{name} cut at {cut}"
            );
            assert!(left.windows(2).all(|pair| pair[0].time <= pair[1].time));
        }
    }
}
