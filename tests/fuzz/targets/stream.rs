#![no_main]
//! perf's output to a pipe, in pieces of any size. Whole, it gives what a scan of the same file finds. Perhaps damaged,
//! it is queried like top and trace do.

mod common;

use common::*;
use fusetools_core::events::{Ev, Role};
use fusetools_core::requests::filters::Filters;
use fusetools_core::answers::now::{By, Now, Sort, View};
use fusetools_core::requests::wanted::Wanted;
use fusetools_core::operations::Operations;
use fusetools_core::reader::Stream;
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const BY: [By; 7] = [By::Operation, By::Mount, By::Process, By::Label, By::File, By::Directory, By::Thread];
const SORT: [Sort; 8] = [
    Sort::Requests, Sort::Waited, Sort::P50, Sort::P99, Sort::Max, Sort::Bytes, Sort::Errors, Sort::UnderWay,
];

/// Return the stream's events, fed in pieces of this size, as far as it can be read.
fn streamed(bytes: &[u8], size: usize) -> Option<Vec<Ev>> {
    let mut stream = Stream::new(catalogue());
    let mut events = Vec::new();
    for piece in bytes.chunks(size) {
        stream.feed(piece).ok()?;
        events.extend(stream.batches().into_iter().flat_map(|batch| batch.events));
    }
    stream.complete(u64::MAX);
    events.extend(stream.batches().into_iter().flat_map(|batch| batch.events));
    Some(events)
}

fn run(mut from: Unstructured) -> Result<()> {
    let how: u8 = from.arbitrary()?;
    let least = from.int_in_range(0..=40)?;
    let size = 1 << from.int_in_range(3..=14)?;
    let mut tail = Unstructured::new(from.bytes(12.min(from.len()))?);
    let mut bytes = if how & 1 == 1 {
        from.take_rest().to_vec()
    } else {
        recording(&mut from, &SMALL)?.pipe()
    };
    let damaged = how & 3 == 2 && damage(&mut bytes, &mut tail)?;
    if how & 4 == 4 {
        let events = streamed(&bytes, size);
        if how & 1 == 0 && !damaged {
            let mut whole = Vec::new();
            let reader = Reader::from_bytes(bytes).expect("a valid file");
            reader.scan(&catalogue(), &mut |batch| whole.extend(batch.events)).expect("a scan");
            let (rows, mut events) = (catalogue(), events.expect("a valid stream"));
            for event in events.iter_mut().chain(&mut whole) {
                if rows[event.kind as usize].role == Role::Stack {
                    event.v[2] = 0; // where in the file it lies
                }
            }
            assert!(events == whole, "{events:?}\n{whole:?}");
        }
        return Ok(());
    }
    let path: Box<dyn Fn(u64, &str, bool) -> bool + Send + Sync> = Box::new(|_, path, whole| whole || path.len() > 3);
    let wanted = Wanted { operations: Operations::default(), least, path: (how & 8 == 8).then_some(path) };
    let servers = if how & 16 == 16 { vec![0, 1] } else { vec![] };
    let mut now = Now::new(catalogue(), Filters::default(), servers, how & 32 == 0, Some(wanted));
    now.set_paths(how & 64 == 64);
    let (labels, mounts) = Default::default();
    for (number, piece) in bytes.chunks(size.max(bytes.len() / 8)).enumerate() {
        if now.feed(piece).is_err() {
            break;
        }
        match number % 4 {
            0 => now.start(1000),
            1 => now.complete(1000 + 200 * number as u64),
            _ => {}
        }
        let (by, sort) = (BY[(how as usize + number) % BY.len()], SORT[(how as usize / 7 + number) % SORT.len()]);
        let interval = now.take(&View { by, sort, most: 5, contains: "", labels: &labels, mounts: &mounts });
        assert!(interval.rows.len() <= 5 && interval.rows.iter().all(|row| row.requests <= interval.total.requests));
        drop((now.callers(), now.under_way(least, 3)));
    }
    now.complete(u64::MAX);
    let [ended, errors, ..] = now.sums();
    assert!(errors <= ended && now.lines().len() as u64 <= ended);
    let _ = now.lost();
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Unstructured::new(data));
});
