//! Fates of daemons, from whole recordings and from their ends.

use crate::perf_data::{end, meaning, round, send, PerfData, Sample};

use fusetools_core::answers::daemons::{states, State};
use fusetools_core::events::{Meaning, Role};
use fusetools_core::requests::filters::Filters;
use fusetools_core::Reader;

const DAEMON: i32 = 7;
const LAST: u64 = 3_000;

fn catalogue() -> Vec<Meaning> {
    vec![
        meaning("fuse:fuse_request_send", Role::Begin),
        meaning("fuse:fuse_request_end", Role::End),
    ]
}

/// Return a recording of `LAST` requests, 1 us each. The daemon answers those before `until`, except `lost`.
fn recording(until: u64, lost: u64) -> Vec<u8> {
    let mut file = PerfData::fuse();
    for unique in 1..=LAST {
        for (kind, pid, after, raw) in [
            (0, 99, 0, send(45, unique, 1)),
            (1, DAEMON, 1_000, end(45, unique, 0)),
        ] {
            if kind == 1 && (unique >= until || unique == lost) {
                continue;
            }
            let sample = Sample {
                id: 11 + 2 * kind as u64,
                time: 2_000 * unique + after,
                pid,
                tid: pid,
                raw,
                ..Sample::default()
            };
            file.records.push(file.events[kind].sample(&sample));
        }
        if unique % 50 == 0 {
            file.records.push(round());
        }
    }
    file.bytes()
}

/// Return the states by the whole recording, and by its end where that is enough.
fn found(bytes: Vec<u8>) -> [Vec<State>; 2] {
    let mut reader = Reader::from_bytes(bytes).unwrap();
    let filters = || Filters {
        daemons: vec![(DAEMON, 45)],
        ..Filters::default()
    };
    let whole = states(&reader, &catalogue(), filters()).unwrap().1;
    reader.set_chunk(1000);
    [whole, states(&reader, &catalogue(), filters()).unwrap().1]
}

#[test]
fn a_daemon_that_works_until_the_end_has_no_fate() {
    for lost in [0, 10, LAST - 10] {
        let [whole, by_the_end] = found(recording(LAST, lost));
        assert_eq!(whole.len(), 1, "too short to read only its end");
        assert!(!whole[0].hangs);
        assert_eq!(by_the_end, [], "{lost}");
    }
}

#[test]
fn a_daemon_that_does_nothing_at_the_end_hangs() {
    // Shortly before the end, and before what is read of it.
    for until in [LAST - 20, LAST / 2] {
        let [whole, by_the_end] = found(recording(until, 0));
        assert!(whole[0].hangs && whole[0].unanswered == LAST + 1 - until);
        assert_eq!(by_the_end, whole, "{until}");
    }
}
