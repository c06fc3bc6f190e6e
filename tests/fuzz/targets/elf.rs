#![no_main]
//! Reads any bytes as a program or library of a daemon: symbols, build id, possible probes, frame pointers, starts of
//! functions, readable names.

use fusetools_core::programs::elf;
use fusetools_core::programs::frames;
use fusetools_core::programs::starts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (elf::about_in(data), elf::build_id_in(data), frames::frame_pointers_in(data));
    if let Ok(exported) = starts::exported_in(data, "g_cvmfs_exports") {
        let starts: Vec<u64> = exported.loads.iter().map(|load| load.0).collect();
        let found = starts::starts_in(data, &starts).unwrap_or_default();
        assert!(found.iter().all(|one| starts.contains(&one.address)));
    }
    if let Ok(functions) = elf::functions_in(data) {
        for pair in functions.windows(2) {
            assert!((pair[0].address, &pair[0].name) < (pair[1].address, &pair[1].name));
        }
        for function in functions.iter().take(100) {
            assert!(elf::demangle(&function.name).len() <= function.name.len().max(16 << 10));
        }
    }
});
