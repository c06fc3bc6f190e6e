//! Places of probes in real functions, checked by the instructions that binutils' disassembler shows.

#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::process::Command;

use fusetools_core::programs::elf::functions_in;
use fusetools_core::programs::prologue::{emulated, entered};
use object::{Object, ObjectSegment};

/// Check of a function: its instructions by address, its address, its code.
type Check<'a> = dyn FnMut(&BTreeMap<u64, String>, u64, &[u8]) + 'a;

/// Check the functions of this test, and of the C library that it runs with.
fn each(check: &mut Check<'_>) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = line.split_whitespace().last()?;
        path.contains("/libc.so").then(|| path.to_owned())
    });
    let own = std::env::current_exe().unwrap();
    for path in library.map(Into::into).into_iter().chain([own]) {
        let data = std::fs::read(&path).unwrap();
        let text = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(&path)
            .output()
            .expect("binutils' objdump");
        let text = String::from_utf8_lossy(&text.stdout);
        let instructions: BTreeMap<u64, String> = text
            .lines()
            .filter_map(|line| {
                let (address, instruction) = line.trim_start().split_once(":\t")?;
                let address = u64::from_str_radix(address, 16).ok()?;
                Some((address, instruction.to_owned()))
            })
            .collect();
        assert!(instructions.len() > 10_000, "{path:?}");
        let file = object::File::parse(&*data).unwrap();
        let offset = |address: u64| {
            let mut segments = file.segments();
            let of =
                segments.find(|of| (of.address()..of.address() + of.size()).contains(&address));
            of.map(|of| address - of.address() + of.file_range().0)
        };
        for function in functions_in(&data).unwrap() {
            // Hand-written code may hold data.
            if function.size == 0 || !instructions.contains_key(&function.address) {
                continue;
            }
            let begin = offset(function.address).unwrap() as usize;
            let end = begin + function.size as usize;
            let inside = function.offset as usize - begin;
            let code = data.get(begin..end).unwrap_or(&[]);
            assert_eq!(entered(code), inside, "{function:?}");
            check(&instructions, function.address, code);
        }
    }
}

#[test]
fn each_place_is_an_instruction_that_is_emulated() {
    let mut places = 0;
    each(&mut |instructions, address, code| {
        if let Some(inside) = emulated(code) {
            places += 1;
            let instruction = instructions.get(&(address + inside as u64));
            let fits = |text: &String| text.starts_with('j') || text.starts_with("push");
            assert!(
                instruction.is_some_and(fits),
                "{address:x}: {inside}, {instruction:?}"
            );
        }
    });
    assert!(places > 1000, "{places}");
}

/// Nothing before the place writes to a register of an argument, or to the stack pointer. Nothing in the function jumps
/// to the place, or to what is before it.
#[test]
fn places_in_the_entry_state_are_safe() {
    let mut places = 0;
    each(&mut |instructions, address, code| {
        let place = address + entered(code) as u64;
        if place == address {
            return;
        }
        places += 1;
        assert!(instructions[&place].starts_with("push"), "{place:x}");
        for (at, before) in instructions.range(address..place) {
            let written = before.rsplit([',', ' ']).next().unwrap_or("");
            let tests = before.starts_with("test") || before.starts_with("cmp");
            let kept = [
                "di", "si", "dx", "cx", "sp", "r8", "r9", "dl", "dil", "sil", "cl", "spl",
            ];
            let writes = kept.iter().any(|one| {
                let bare = written.trim_start_matches("%r").trim_start_matches("%e");
                bare == *one || bare == format!("{one}d") || written == format!("%{one}")
            });
            assert!(tests || !writes, "{at:x}: {before}");
            assert!(!before.starts_with('j') && !before.starts_with("call"));
        }
        let end = address + code.len() as u64;
        for (at, text) in instructions.range(address..end) {
            let mut words = text.split_whitespace();
            let jumps = words.next().is_some_and(|word| word.starts_with('j'));
            let to = words.next().and_then(|to| u64::from_str_radix(to, 16).ok());
            let inside = to.is_some_and(|to| address < to && to <= place);
            assert!(!jumps || !inside, "{at:x}: {text}");
        }
    });
    assert!(places > 5, "{places}");
}
