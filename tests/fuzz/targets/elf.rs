#![no_main]
//! Reads any bytes as a program or library of a daemon: symbols, build id, possible probes, frame pointers, readable
//! names.

use fusetools_core::programs::elf;
use fusetools_core::programs::frames;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (elf::about_in(data), elf::build_id_in(data), frames::frame_pointers_in(data));
    if let Ok(functions) = elf::functions_in(data) {
        for pair in functions.windows(2) {
            assert!((pair[0].address, &pair[0].name) < (pair[1].address, &pair[1].name));
        }
        for function in functions.iter().take(100) {
            assert!(elf::demangle(&function.name).len() <= function.name.len().max(16 << 10));
        }
    }
});
