#![no_main]
//! Any bytes as a trace.dat; every other time a valid one that is damaged.

mod common;

use common::trace_data;
use fusetools_core::format::tracedat::{TraceDat, What};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Return a valid file of random pages.
fn made(from: &mut Unstructured) -> Result<Vec<u8>> {
    let mut cpus = Vec::new();
    for _ in 0..from.int_in_range(1..=3)? {
        let mut pages = Vec::new();
        for number in 0..from.int_in_range(0..=3u64)? {
            let mut entries = Vec::new();
            for _ in 0..from.int_in_range(0..=20)? {
                entries.push(match from.int_in_range(0..=5)? {
                    0 => trace_data::head(from.int_in_range(0..=31)?, from.int_in_range(0..=(1 << 27) - 1)?),
                    1 => [trace_data::head(30, 5), from.arbitrary::<[u8; 4]>()?.to_vec()].concat(),
                    2 => from.bytes(4)?.to_vec(),
                    _ => trace_data::call(from.int_in_range(0..=9)?, from.arbitrary()?),
                });
            }
            let flags = u64::from(from.int_in_range(0..=3u8)?) << 30;
            pages.push(trace_data::page(1000 * number, flags, &entries, from.bytes(8)?));
        }
        cpus.push(pages);
    }
    let mut bytes = trace_data::file(&cpus);
    common::damage(&mut bytes, from)?;
    Ok(bytes)
}

fuzz_target!(|data: &[u8]| {
    let mut from = Unstructured::new(data.get(1..).unwrap_or(&[]));
    let bytes = match data.first() {
        Some(first) if first & 1 == 1 => made(&mut from).unwrap_or_default(),
        _ => data.get(1..).unwrap_or(&[]).to_vec(),
    };
    let length = bytes.len();
    let Ok(dat) = TraceDat::from_bytes(bytes) else { return };
    let _ = (dat.clock(), dat.uname(), dat.warnings(), (0..dat.cpus()).map(|cpu| dat.lost(cpu)).max());
    let mut held = 0;
    for event in dat.events() {
        if let What::Data(data) = event.what {
            held += data.len();
        }
    }
    assert!(held <= length, "no byte is told twice");
});
