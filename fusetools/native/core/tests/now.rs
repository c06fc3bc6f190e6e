//! perf's output to a pipe, read piece by piece, and the sums made of it.

use crate::perf_data;

use fusetools_core::answers::now::{By, Now, Sort, View};
use fusetools_core::events::{Batch, Meaning, Role};
use fusetools_core::operations::Operations;
use fusetools_core::reader::Stream;
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::wanted::Wanted;
use fusetools_core::Reader;
use perf_data::{end, meaning, round, send, words, PerfData, Sample};
use rustc_hash::FxHashMap;

/// Return 200 requests, one in ten without an end; later ones begin before earlier ones end.
fn requests() -> PerfData {
    let mut file = PerfData::fuse();
    for unique in 1..=200u64 {
        let ends = (unique % 10 != 0).then(|| (1, unique * 1_000 + 5_000 + unique * unique));
        for (kind, time) in [Some((0, unique * 1_000)), ends].into_iter().flatten() {
            let raw = match kind {
                0 => send(45, unique, 1 + 2 * (unique as u32 % 2)),
                _ => end(45, unique, -((unique % 4) as i32)),
            };
            let sample = Sample {
                id: 11 + 2 * kind as u64 + unique % 2,
                time,
                pid: 7,
                tid: unique as i32,
                cpu: unique as u32 % 2,
                raw,
                ..Sample::default()
            };
            file.records.push(file.events[kind].sample(&sample));
        }
        if unique % 50 == 0 {
            file.records.push(round());
        }
    }
    file
}

fn catalogue() -> Vec<Meaning> {
    vec![
        meaning("fuse:fuse_request_send", Role::Begin),
        meaning("fuse:fuse_request_end", Role::End),
    ]
}

fn joined(batches: Vec<Batch>) -> (Vec<fusetools_core::events::Ev>, usize) {
    let side = batches.iter().map(|batch| batch.side.len()).sum();
    (
        batches.into_iter().flat_map(|batch| batch.events).collect(),
        side,
    )
}

#[test]
fn in_pieces_of_any_size_it_is_the_same() {
    let bytes = requests().pipe();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut whole = Vec::new();
    let info = reader
        .scan(&catalogue(), &mut |batch| whole.push(batch))
        .unwrap();
    let whole = joined(whole);
    assert!(whole.0.len() >= 2);
    for size in [1, 7, 64, 1000, bytes.len()] {
        let mut stream = Stream::new(catalogue());
        let mut batches = Vec::new();
        for piece in bytes.chunks(size) {
            stream.feed(piece).unwrap();
            batches.extend(stream.batches());
        }
        stream.complete(u64::MAX);
        batches.extend(stream.batches());
        assert_eq!(joined(batches), whole, "in pieces of {size}");
        assert_eq!(stream.lost(), info.lost);
    }
}

#[test]
fn nothing_comes_before_it_is_complete() {
    let bytes = requests().pipe();
    let mut stream = Stream::new(catalogue());
    stream.feed(&bytes).unwrap();
    assert!(stream.batches().is_empty());
    stream.complete(u64::MAX);
    let (events, _) = joined(stream.batches());
    let middle = events[events.len() / 2].time;
    let mut stream = Stream::new(catalogue());
    stream.feed(&bytes).unwrap();
    stream.complete(middle);
    let (early, _) = joined(stream.batches());
    assert!(!early.is_empty() && early.len() < events.len());
    assert!(early.iter().all(|event| event.time <= middle));
}

/// perf ends a round after each look at all buffers, and looks for no commands while events come all the time.
#[test]
fn rounds_show_how_far_it_is_complete() {
    let mut stream = Stream::new(catalogue());
    assert_eq!(stream.by_rounds(), 0);
    let mut seen = Vec::new();
    for piece in requests().pipe().chunks(100) {
        stream.feed(piece).unwrap();
        seen.push(stream.by_rounds());
    }
    // Each of the four rounds shows the end of the one before: of its latest request, the 49th, 99th and 149th of 200.
    let ends = [49, 99, 149].map(|unique| unique * 1_000 + 5_000 + unique * unique);
    seen.dedup();
    assert_eq!(seen, [vec![0], ends.to_vec()].concat());
}

#[test]
fn an_invalid_stream_is_an_error() {
    for bad in [&b"no perf.data at all, but long enough"[..], &[0; 4096]] {
        assert!(Stream::new(catalogue()).feed(bad).is_err());
    }
    let mut bytes = requests().pipe();
    bytes.extend_from_slice(&[0; 8]); // a record of no size
    assert!(Stream::new(catalogue()).feed(&bytes).is_err());
}

#[test]
fn sums_count_ended_requests() {
    let mut now = Now::new(
        catalogue(),
        Filters::default(),
        Vec::new(),
        true,
        Some(Wanted {
            operations: Operations::default(),
            least: 0,
            path: None,
        }),
    );
    let bytes = requests().pipe();
    now.feed(&bytes).unwrap();
    now.complete(u64::MAX);
    let view = View {
        by: By::Operation,
        sort: Sort::Requests,
        most: 10,
        contains: "",
        labels: &FxHashMap::default(),
        mounts: &FxHashMap::default(),
    };
    let lines = now.lines();
    let interval = now.take(&view);
    assert_eq!(
        (interval.total.requests, interval.total.under_way),
        (180, 20)
    );
    assert_eq!(
        interval.total.errors,
        (1..=200).filter(|n| n % 10 > 0 && n % 4 > 0).count() as u64
    );
    let mut took: Vec<u64> = (1..=200)
        .filter(|n| n % 10 > 0)
        .map(|n| 5_000 + n * n)
        .collect();
    took.sort_unstable();
    let total = &interval.total;
    assert_eq!(total.total, took.iter().sum::<u64>());
    // The 90th and the 179th of 180: the first that half of them, or 99 %, do not exceed.
    assert_eq!(
        (total.p50, total.p99, total.max),
        (took[89], took[178], took[179])
    );
    let durations: u64 = lines.iter().map(|line| line.duration).sum();
    assert_eq!((lines.len(), durations), (180, total.total));
    let names: Vec<_> = interval
        .rows
        .iter()
        .map(|row| (&row.label[..], row.requests))
        .collect();
    assert_eq!(names, [("getattr", 100), ("lookup", 80)]);
    let (oldest, all) = now.under_way(0, 3);
    let oldest: Vec<u64> = oldest
        .iter()
        .map(|(request, _)| request.story.unique)
        .collect();
    assert_eq!((oldest, all), (vec![10, 20, 30], 20));
    // And only once.
    assert_eq!(now.take(&view).total.requests, 0);
}

#[test]
fn distributions_count_what_the_sums_count() {
    let wanted = Wanted {
        operations: Operations::default(),
        least: 0,
        path: None,
    };
    let mut now = Now::new(
        catalogue(),
        Filters::default(),
        Vec::new(),
        true,
        Some(wanted),
    );
    now.feed(&requests().pipe()).unwrap();
    now.complete(1_000_000);
    let durations: Vec<u64> = now.lines().iter().map(|line| line.duration).collect();
    let metrics = now.measure();
    let whole: Vec<_> = metrics.measured.iter().map(|m| &m.whole).collect();
    assert_eq!(whole.iter().map(|w| w.count).sum::<u64>(), 180);
    assert_eq!(
        whole.iter().map(|w| w.sum).sum::<u64>(),
        durations.iter().sum()
    );
    for bucket in 0..=27 {
        let counted: u64 = whole.iter().filter_map(|w| w.classic.get(&bucket)).sum();
        let above = (bucket > 0).then(|| 1_000u64 << (bucket - 1));
        let inside = |ns: &&u64| above.is_none_or(|above| **ns > above) && **ns <= 1_000 << bucket;
        assert_eq!(
            counted,
            durations.iter().filter(inside).count() as u64,
            "{bucket}"
        );
    }
    for one in &metrics.measured {
        assert_eq!(one.whole.native.values().sum::<u64>(), one.whole.count);
        assert_eq!(
            (one.connection, one.queue.count, one.daemon.count),
            (45, 0, 0)
        );
    }
    let mut errors = [0; 4];
    for (error, number) in metrics.measured.iter().flat_map(|m| &m.errors) {
        errors[*error as usize] += number;
    }
    let expected = |rest| (1..=200).filter(|n| n % 10 > 0 && n % 4 == rest).count() as u64;
    assert_eq!(errors, [0, expected(1), expected(2), expected(3)]);
    // Those in flight, of which the oldest is the tenth; nothing tells when the daemon begins.
    let [flight] = &metrics.in_flight[..] else {
        panic!()
    };
    assert_eq!(
        (flight.requests, flight.queued, flight.oldest),
        (20, None, 990_000)
    );
    // Each request counts once.
    assert_eq!(now.measure().measured, []);
}

/// A hung mount has callers that only wait.
#[test]
fn waiting_callers_have_a_name() {
    let mut file = PerfData::fuse();
    let sample = Sample {
        id: 11,
        time: 5,
        pid: 7,
        tid: 7,
        raw: send(45, 1, 1),
        ..Sample::default()
    };
    let mut named = words(&[7, 7]);
    named.extend(b"ls\0\0\0\0\0\0");
    file.records
        .push(file.events[0].other(3, 0, &named, &sample));
    file.records.push(file.events[0].sample(&sample));
    let mut now = Now::new(catalogue(), Filters::default(), Vec::new(), true, None);
    now.feed(&file.pipe()).unwrap();
    now.complete(u64::MAX);
    assert_eq!(now.callers(), [7]);
    let labels = FxHashMap::from_iter([(7, "ann".to_owned())]);
    for (by, label) in [(By::Process, "ls"), (By::Label, "ann")] {
        let interval = now.take(&View {
            by,
            sort: Sort::Requests,
            most: 10,
            contains: "",
            labels: &labels,
            mounts: &FxHashMap::default(),
        });
        let rows = interval.rows.iter();
        let rows: Vec<_> = rows.map(|row| (&row.label[..], row.under_way)).collect();
        assert_eq!(rows, [(label, 1)]);
    }
}

/// Requests in flight stay, however long ago they began, and so do those that were wanted, until they are taken.
#[test]
fn records_of_requests_in_flight_are_held() {
    let wanted = Wanted {
        operations: Operations::default(),
        least: 40_000,
        path: None,
    };
    let mut now = Now::new(
        catalogue(),
        Filters::default(),
        Vec::new(),
        false,
        Some(wanted),
    );
    now.hold();
    assert_eq!(now.held(), None);
    let bytes = requests().pipe();
    let mut upto = 0;
    for piece in bytes.chunks(1000) {
        now.feed(piece).unwrap();
        upto += 1_000;
        now.complete(upto.min(now.by_rounds()));
    }
    now.complete(u64::MAX);
    let times = |held: Option<Vec<u8>>| -> Vec<u64> {
        let reader = Reader::from_bytes(held.unwrap()).unwrap();
        let records = reader.records().filter_map(|record| record.time);
        records.collect()
    };
    let slow = (1..=200u64).filter(|n| n % 10 > 0 && 5_000 + n * n > 40_000);
    let ended = slow.flat_map(|n| [n * 1_000, n * 1_000 + 5_000 + n * n]);
    let in_flight = (10..=200).step_by(10).map(|n| n * 1_000);
    let mut expected: Vec<u64> = in_flight.clone().chain(ended).collect();
    expected.sort_unstable();
    assert_eq!(times(now.held()), expected);
    // Ended requests are taken once.
    now.complete(u64::MAX);
    assert_eq!(times(now.held()), in_flight.collect::<Vec<u64>>());
}

fn task(pid: i32, time: u64) -> Sample {
    Sample {
        id: 11,
        time,
        pid,
        tid: pid,
        ..Sample::default()
    }
}

fn begins(file: &mut PerfData, pid: i32, time: u64, unique: u64, opcode: u32) {
    let raw = send(45, unique, opcode);
    let sample = Sample {
        raw,
        ..task(pid, time)
    };
    file.records.push(file.events[0].sample(&sample));
}

fn ends(file: &mut PerfData, pid: i32, time: u64, unique: u64) {
    let raw = end(45, unique, 0);
    let sample = Sample {
        id: 13,
        raw,
        ..task(pid, time)
    };
    file.records.push(file.events[1].sample(&sample));
}

fn live(file: &PerfData, upto: u64) -> Now {
    let mut now = Now::new(catalogue(), Filters::default(), Vec::new(), true, None);
    now.feed(&file.pipe()).unwrap();
    now.complete(upto);
    now
}

/// Return the rows of an interval: label, requests, requests in flight, ns that callers waited.
fn rows(now: &mut Now, by: By) -> Vec<(String, u64, u64, u64)> {
    let mounts = FxHashMap::from_iter([(45, "/mnt".to_owned())]);
    let interval = now.take(&View {
        by,
        sort: Sort::Requests,
        most: 10,
        contains: "",
        labels: &FxHashMap::default(),
        mounts: &mounts,
    });
    let rows = interval.rows.into_iter();
    rows.map(|row| (row.label, row.requests, row.under_way, row.waited))
        .collect()
}

const LOOKUP: u32 = 1;
const READ: u32 = 15;
const FLUSH: u32 = 25;

/// The kernel drops a request in the queue whose caller is killed, and says so nowhere. A killed process flushes its
/// files. A read may be in the background: it outlives its caller.
#[test]
fn requests_end_with_their_callers() {
    let mut file = PerfData::fuse();
    begins(&mut file, 7, 10, 1, LOOKUP);
    begins(&mut file, 7, 20, 2, FLUSH);
    begins(&mut file, 8, 30, 3, READ);
    begins(&mut file, 9, 40, 4, LOOKUP);
    for pid in [7, 8] {
        let mut body = words(&[pid, 1, pid, 1]);
        body.extend(50u64.to_le_bytes());
        let exit = file.events[0].other(4, 0, &body, &task(pid as i32, 50));
        file.records.push(exit);
    }
    ends(&mut file, 9, 60, 4);
    let mut now = live(&file, 100);
    let (in_flight, all) = now.under_way(0, 9);
    let unique: Vec<_> = in_flight
        .iter()
        .map(|(request, _)| request.story.unique)
        .collect();
    assert_eq!((unique, all), (vec![3], 1));
    let ended: Vec<_> = rows(&mut now, By::Operation);
    assert_eq!(ended[0], ("lookup".into(), 1, 0, 20));
    assert_eq!(ended.len(), 2);
}

/// The kernel had none in flight at 25.
#[test]
fn requests_are_over_where_the_kernel_has_none() {
    let mut file = PerfData::fuse();
    for (unique, time) in [(1, 10), (2, 20), (3, 30)] {
        begins(&mut file, unique as i32, time, unique, READ);
    }
    let mut now = live(&file, 100);
    now.forget(&[44], 25);
    assert_eq!(now.under_way(0, 9).1, 3);
    now.forget(&[45], 25);
    let (in_flight, _) = now.under_way(0, 9);
    let unique: Vec<_> = in_flight
        .iter()
        .map(|(request, _)| request.story.unique)
        .collect();
    assert_eq!(unique, [3]);
}

/// One caller waits from 30 to 250: it never waits longer than an interval lasts.
#[test]
fn callers_wait_within_the_interval() {
    let mut file = PerfData::fuse();
    begins(&mut file, 7, 30, 1, LOOKUP);
    ends(&mut file, 7, 250, 1);
    let mut now = live(&file, 100);
    assert_eq!(rows(&mut now, By::Mount), [("/mnt".into(), 0, 1, 70)]);
    now.complete(200);
    assert_eq!(rows(&mut now, By::Mount), [("/mnt".into(), 0, 1, 100)]);
    now.complete(300);
    assert_eq!(rows(&mut now, By::Mount), [("/mnt".into(), 1, 0, 50)]);
    now.complete(400);
    assert_eq!(rows(&mut now, By::Mount), []);
}

/// Threads of a process have names of their own.
#[test]
fn a_process_is_one_row() {
    let mut file = PerfData::fuse();
    for (tid, name) in [(7, b"main\0\0\0\0"), (8, b"worker\0\0")] {
        let mut named = words(&[7, tid]);
        named.extend(name);
        let of = Sample {
            tid: tid as i32,
            ..task(7, 5)
        };
        file.records.push(file.events[0].other(3, 0, &named, &of));
        let raw = send(45, tid.into(), LOOKUP);
        let sample = Sample {
            raw,
            time: 10 + u64::from(tid),
            ..of
        };
        file.records.push(file.events[0].sample(&sample));
        ends(&mut file, 1, 40 + u64::from(tid), tid.into());
    }
    let rows = rows(&mut live(&file, 100), By::Process);
    assert_eq!(rows, [("worker".into(), 2, 0, 60)]);
}

/// No callback is seen.
#[test]
fn files_without_a_path_are_in_an_unknown_directory() {
    for by in [By::File, By::Directory] {
        let mut file = PerfData::fuse();
        begins(&mut file, 7, 30, 1, LOOKUP);
        ends(&mut file, 7, 50, 1);
        assert_eq!(
            rows(&mut live(&file, 100), by),
            [("/mnt/…".into(), 1, 0, 20)]
        );
    }
}
