#![no_main]
//! Reads and queries a valid perf.data of random events, in each of perf's forms, perhaps damaged.

mod common;

use common::*;
use fusetools_core::format::record;
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

fn run(mut from: Unstructured) -> Result<()> {
    let which: u8 = from.arbitrary()?;
    let damaged: bool = from.arbitrary()?;
    let mut tail = Unstructured::new(&[]);
    if damaged {
        tail = Unstructured::new(from.bytes(12.min(from.len()))?);
    }
    let file = recording(&mut from, &SMALL)?;
    let mut bytes = bytes(&file, &mut from)?;
    let damaged = damaged && damage(&mut bytes, &mut tail)?;
    let Ok(reader) = Reader::from_bytes(bytes) else {
        assert!(damaged, "a valid file is read");
        return Ok(());
    };
    if !damaged {
        // Each record appears once.
        let samples = |kind: &[u8]| u32::from_le_bytes(kind[..4].try_into().unwrap()) == record::SAMPLE;
        let made = file.records.iter().filter(|bytes| samples(bytes)).count();
        let found = reader.records().filter(|item| item.kind == record::SAMPLE).count();
        assert_eq!(found, made);
        let info = reader.scan(&[], &mut |_| {}).expect("a scan");
        assert_eq!(info.counts.iter().sum::<u64>(), made as u64);
    }
    answers(&reader, &catalogue(), which);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Unstructured::new(data));
});
