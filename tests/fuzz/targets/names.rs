#![no_main]
//! Names of functions as C++ and Rust mangle them.

use fusetools_core::programs::elf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(name) = std::str::from_utf8(data) else { return };
    for name in [name.to_owned(), format!("_Z{name}"), format!("_R{name}")] {
        assert!(elf::demangle(&name).len() <= name.len().max(16 << 10));
    }
});
