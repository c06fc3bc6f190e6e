#![no_main]
//! Queries a valid perf.data of many random events as the commands do. The time must not grow quadratically. The
//! input defines the numbers of threads and values, the kinds of events, and the random seed.

mod common;

use common::*;
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const EVENTS: usize = 150_000;

fn run(mut from: Unstructured) -> Result<()> {
    let which: u8 = from.arbitrary()?;
    let seed: u64 = from.arbitrary()?;
    let many = [1, 4, 300, 40_000];
    let shape = Shape {
        events: EVENTS,
        threads: *from.choose(&many)?,
        values: *from.choose(&many)?,
        kinds: from.arbitrary()?,
    };
    let mut random = perf_data::Random(seed | 1);
    let mut chance = Vec::with_capacity(EVENTS * 96);
    while chance.len() < EVENTS * 96 {
        chance.extend_from_slice(&random.below(1 << 24).to_le_bytes()[..3]);
    }
    let file = recording(&mut Unstructured::new(&chance), &shape)?;
    drop(chance);
    let reader = Reader::from_bytes(file.bytes()).expect("a valid file is read");
    answers(&reader, &catalogue(), which);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Unstructured::new(data));
});
