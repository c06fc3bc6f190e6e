//! Places of probes in real functions, as binutils' disassembler has their instructions.

use std::collections::HashMap;
use std::process::Command;

use fusetools_core::elf::functions_in;
use fusetools_core::prologue::emulated;

/// The functions of this test, and of the C library that it runs with.
#[test]
#[cfg(target_arch = "x86_64")]
fn each_place_is_an_instruction_that_is_emulated() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = line.split_whitespace().last()?;
        path.contains("/libc.so").then(|| path.to_owned())
    });
    let own = std::env::current_exe().unwrap();
    let mut places = 0;
    for path in library.map(Into::into).into_iter().chain([own]) {
        let data = std::fs::read(&path).unwrap();
        let text = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(&path)
            .output()
            .expect("binutils' objdump");
        let text = String::from_utf8_lossy(&text.stdout);
        let instructions: HashMap<u64, &str> = text
            .lines()
            .filter_map(|line| {
                let (address, instruction) = line.trim_start().split_once(":\t")?;
                Some((u64::from_str_radix(address, 16).ok()?, instruction))
            })
            .collect();
        assert!(instructions.len() > 10_000, "{path:?}");
        for function in functions_in(&data).unwrap() {
            // Hand-written code may hold data.
            if function.size == 0 || !instructions.contains_key(&function.address) {
                continue;
            }
            let end = (function.offset + function.size) as usize;
            let code = data.get(function.offset as usize..end).unwrap_or(&[]);
            if let Some(inside) = emulated(code) {
                places += 1;
                let instruction = instructions.get(&(function.address + inside as u64));
                let fits = |text: &&str| text.starts_with('j') || text.starts_with("push");
                assert!(
                    instruction.is_some_and(fits),
                    "{function:?}: {inside}, {instruction:?}"
                );
            }
        }
    }
    assert!(places > 1000, "{places}");
}
