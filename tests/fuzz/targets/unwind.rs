#![no_main]
//! Any bytes as the unwind tables and the code of a daemon's library, and as the stack of a thread in it.

mod common;

use fusetools_core::programs::live::{stacks, Code, Thread};
use fusetools_core::programs::elf;
use fusetools_core::programs::frames;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if data.len() < 64 {
        return;
    }
    let (head, rest) = data.split_at(16);
    let quarter = rest.len() / 4;
    let (tables, more) = rest.split_at(rest.len() - 2 * quarter);
    let (code, stack) = more.split_at(quarter);
    let at = 0x1000 + 120;
    let file = if head[0] & 7 == 0 {
        tables.to_vec() // a whole file
    } else {
        let header = if head[0] & 8 == 0 { &[][..] } else { &code[..quarter / 2] };
        let text = at + tables.len() as u64;
        let all = [(".eh_frame", at, tables), (".text", text, code), (".eh_frame_hdr", text, header), (".got", text, code)];
        common::elf(62, &all[..if header.is_empty() { 2 } else { 4 }])
    };
    let _ = (frames::frame_pointers_in(&file), elf::functions_in(&file));
    let base = 0x5555_0000_0000u64;
    let place = common::placed(&file);
    let mapped = Code { start: base, end: base + 0x10000, offset: 0, path: "/lib/x".into(), place };
    let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]) as u64;
    // The stack's words are likely to be addresses of the code.
    let stack = stack.chunks_exact(8).flat_map(|chunk| {
        let word = u64::from_le_bytes(chunk.try_into().unwrap());
        if word & 3 == 0 { base + (word >> 2 & 0xffff) } else { word }.to_le_bytes()
    });
    let thread = Thread { ip: base + word(2), sp: 0x7fff_0000_0000 + word(4), stack: stack.collect() };
    for (names, _) in stacks(&[mapped], &[thread], vec![]) {
        assert!(names.len() <= 1 << 12);
    }
});
