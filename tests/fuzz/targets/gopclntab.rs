#![no_main]
//! Any bytes as the function table of a Go program, in a valid ELF file around it, and a thread in one of its functions.

mod common;

use fusetools_core::programs::elf;
use fusetools_core::programs::live::{stacks, Code, Thread};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let (table, code) = rest.split_at(rest.len() - rest.len() / 4);
    let machine = if first & 1 == 0 { 62 } else { 183 };
    let magic = match first >> 1 & 7 {
        0 => &[][..],
        1 => &[0xfb, 0xff, 0xff, 0xff, 0, 0, 1, 8],
        2 => &[0xfa, 0xff, 0xff, 0xff, 0, 0, 1, 8],
        3 => &[0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8],
        _ => &[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8],
    };
    let table = [magic, table].concat();
    let name = if first & 16 == 0 { ".gopclntab" } else { ".data.rel.ro.gopclntab" };
    let at = 0x1000 + 120;
    let file = common::elf(machine, &[(name, at, &table), (".data", at + table.len() as u64, code)]);
    let functions = elf::functions_in(&file).expect("a valid file");
    assert!(functions.iter().all(|function| function.offset < file.len() as u64 + 64));
    assert_eq!(elf::about_in(&file).expect("a valid file").runtime, "Go");
    let Some(function) = functions.first() else { return };
    let base = 0x5555_0000_0000u64;
    let end = base + file.len() as u64;
    let mapped = Code { start: base, end, offset: 0, path: "/bin/x".into(), place: common::placed(&file) };
    let word = |chunk: &[u8]| base + u64::from_le_bytes(chunk.try_into().unwrap()) % (2 * file.len() as u64);
    let stack = code.chunks_exact(8).flat_map(|chunk| word(chunk).to_le_bytes()).collect();
    let thread = Thread { ip: base + function.offset + u64::from(first), sp: 0x7fff_0000_0000, stack };
    for (names, _) in stacks(&[mapped], &[thread], vec![]) {
        assert!(names.len() <= 1 << 12);
    }
});
