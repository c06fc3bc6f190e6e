#![no_main]
//! Any bytes as the function table of a Go program, in a valid ELF file around it.

mod common;

use fusetools_core::elf;
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
});
