#![no_main]
//! Real recordings of several kernels (FUSETOOLS_RECORDINGS: a folder with perf.data and trace.dat files), damaged at a
//! few places. The input defines where and how.

mod common;

use std::sync::LazyLock;

use common::*;
use fusetools_core::format::tracedat::TraceDat;
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = std::env::var("FUSETOOLS_RECORDINGS").expect("FUSETOOLS_RECORDINGS");
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file")).collect()
});

fn run(mut from: Unstructured) -> Result<()> {
    let which: u8 = from.arbitrary()?;
    let mut bytes = from.choose(&FILES)?.clone();
    // Put half of all damage near the beginning or the end, where the file's tables are.
    while !from.is_empty() {
        let near = 2048.min(bytes.len());
        let at = match from.int_in_range(0..=3)? {
            0 => from.int_in_range(0..=near.saturating_sub(1))?,
            1 => bytes.len() - from.int_in_range(1..=near.max(1))?,
            _ => from.choose_index(bytes.len().max(1))?,
        };
        if at >= bytes.len() {
            break;
        }
        match from.int_in_range(0..=15)? {
            0 => bytes.truncate(at),
            1 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0),
            3 => bytes[at] = bytes[at].wrapping_add(8),
            _ => bytes[at] = from.arbitrary()?,
        }
    }
    if bytes.starts_with(b"PERF") {
        let Ok(reader) = Reader::from_bytes(bytes) else { return Ok(()) };
        let known = catalogue();
        answers(&reader, &known, which);
        let _ = (reader.session(), reader.arch(), reader.kernel_functions().len(), reader.build_ids().len());
    } else if let Ok(dat) = TraceDat::from_bytes(bytes) {
        assert!(dat.events().count() <= dat.bytes().len());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Unstructured::new(data));
});
