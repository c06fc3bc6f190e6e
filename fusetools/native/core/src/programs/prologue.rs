//! Places near a function's entry where a probe is cheap. The kernel emulates some instructions (push, jumps, calls;
//! arch/x86/kernel/uprobes.c) and single-steps the others, which takes 1.5 us more, and 15 us in some virtual machines.
//!
//! Any doubt ends the search: a probe inside an instruction would break the program.
//!
//! Also: how far a function has moved the stack pointer below its frame pointer.

use crate::format::record::u32_at;

/// Maximum number of bytes that are looked at: the first instructions.
const FARTHEST: usize = 128;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Registers of the first three arguments: rdx, rsi, rdi.
const ARGUMENTS: [u8; 3] = [2, 6, 7];
const RSP: u8 = 4;
/// Registers of all six arguments (also rcx, r8 and r9), and the stack pointer, by which a return probe finds the
/// return address.
const ENTERED: [u8; 7] = [1, 2, RSP, 6, 7, 8, 9];

/// Return the bytes from a function's entry (x86-64) to the first instruction that the kernel emulates. None, unless
/// the function always comes to it with its first three arguments in their registers.
pub fn emulated(code: &[u8]) -> Option<usize> {
    let code = code.get(..FARTHEST.min(code.len()))?;
    let mut at = 0;
    loop {
        let rest = code.get(at..)?;
        match rest {
            // push; conditional jumps, short and near
            [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => return Some(at),
            [0x70..=0x7f, _, ..] => return Some(at),
            [0x0f, 0x80..=0x8f, _, _, _, _, ..] => return Some(at),
            _ => at += harmless(rest)?,
        }
    }
}

/// Return the bytes from a function's entry (x86-64) to where a probe, also one of its return, is cheap.
///
/// The place is the first instruction, or one that the function reaches once and in its state at entry. In that state
/// all arguments are in their registers, and the return address is on top of the stack. A `push` of a register that it
/// must keep for its caller is such a place, since these are saved only once. So is any `push` after `endbr64`, with
/// which every function begins if a distribution's compiler adds it (-fcf-protection).
pub fn entered(code: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = code.get(at..FARTHEST.min(code.len())) {
        match rest {
            // rbx, rbp; r12 to r15
            [0x53 | 0x55, ..] | [0x41, 0x54..=0x57, ..] => return at,
            [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] if code[..at] == ENDBR64 => return at,
            _ => match step(rest, &ENTERED) {
                Some(length) => at += length,
                None => break,
            },
        }
    }
    0
}

/// Return whether the kernel emulates an instruction that a probe replaces: push, jumps, a call, nop.
pub fn is_emulated(code: &[u8]) -> bool {
    matches!(
        code,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x0f, 0x80..=0x8f, ..]
    )
}

/// Return the bytes by which a function has moved the stack pointer down since it set its frame pointer. `code`: the
/// bytes after that, up to where the thread is. All that counts comes before the first call or jump. None: it moves the
/// pointer otherwise, or an instruction is unknown here.
pub fn moved(code: &[u8]) -> Option<u64> {
    let (mut at, mut moved, mut last) = (0, 0u64, 0);
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let number = |at: usize| Some(u32_at(rest, at)? as i32);
        // A loop may move it any number of times.
        let ends = |length: usize, by: i32| {
            let to = at.checked_add(length)?.checked_add_signed(by as isize)?;
            (by >= 0 || to > last).then_some(moved)
        };
        let (length, down) = match rest {
            // push
            [0x50..=0x57, ..] => (1, 8),
            [0x41, 0x50..=0x57, ..] => (2, 8),
            // sub $…, %rsp; add $-128, %rsp
            [0x48, 0x83, 0xec, by, ..] => (4, i64::from(*by as i8)),
            [0x48, 0x81, 0xec, ..] => (7, i64::from(number(3)?)),
            [0x48, 0x83, 0xc4, 0x80, ..] => (4, 128),
            // call, near and by a register or memory; jmp; syscall
            [0xe8 | 0xe9 | 0xeb, ..] | [0xff, ..] | [0x41, 0xff, ..] | [0x0f, 0x05, ..] => break,
            [0x70..=0x7f, by, ..] => return ends(2, i32::from(*by as i8)),
            [0x0f, 0x80..=0x8f, ..] => return ends(6, number(2)?),
            _ => (step(rest, &[RSP])?, 0),
        };
        if down != 0 {
            (moved, last) = (moved.checked_add_signed(down)?, at);
        }
        at += length;
    }
    Some(moved)
}

/// Maximum size of a call in bytes.
pub const LONGEST_CALL: u64 = 7;

/// Return whether code ends with a call. `code`: LONGEST_CALL bytes.
pub fn ends_with_call(code: &[u8]) -> bool {
    // call *…: the second byte, without the bits that choose the instruction, and the number of bytes after it.
    let by = |modrm: u8, more: usize| {
        let (mode, low) = (modrm >> 6, modrm & 7);
        modrm >> 3 & 7 == 2
            && more
                == match (mode, low) {
                    (3, _) => 0,
                    (0, 5) => 4,
                    (0, 4) => 1,
                    (0, _) => 0,
                    (1, 4) => 2,
                    (1, _) => 1,
                    (_, 4) => 5,
                    _ => 4,
                }
    };
    let near = matches!(code, [.., 0xe8, _, _, _, _]);
    near || (2..=code.len().min(LONGEST_CALL as usize)).any(|length| {
        let call = &code[code.len() - length..];
        call[0] == 0xff && by(call[1], length - 2)
    })
}

/// Return the length of an instruction that changes none of the arguments' registers and continues with the next one.
/// None: it changes one, or is unknown here.
fn harmless(code: &[u8]) -> Option<usize> {
    step(code, &ARGUMENTS)
}

/// Return the length if the instruction changes none of the registers in `kept`.
fn step(code: &[u8], kept: &[u8]) -> Option<usize> {
    if code.starts_with(&ENDBR64) {
        return Some(ENDBR64.len());
    }
    let mut at = 0;
    // Thread-local storage, for the stack protector.
    if *code.first()? == 0x64 {
        at += 1;
    }
    // Prefix for xmm registers.
    let wide = code.starts_with(&[0x66, 0x0f]);
    at += usize::from(wide);
    let mut rex = 0;
    if let 0x40..=0x4f = *code.get(at)? {
        rex = code[at];
        at += 1;
    }
    let opcode = *code.get(at)?;
    at += 1;
    // (whether `reg` is written, whether `r/m` is, bytes of the immediate value)
    let (reg, rm, immediate) = match opcode {
        0x8b | 0x8d | 0x33 | 0x03 | 0x23 | 0x2b | 0x0b | 0x63 => (true, false, 0),
        0x89 | 0x31 | 0x01 | 0x21 | 0x29 | 0x09 | 0x88 => (false, true, 0),
        0x85 | 0x84 | 0x39 | 0x3b | 0x38 | 0x3a => (false, false, 0),
        0x83 | 0xc1 => (false, true, 1),
        0x81 => (false, true, 4),
        0xc7 if code.get(at)? & 0x38 == 0 => (false, true, 4),
        0xc6 if code.get(at)? & 0x38 == 0 => (false, true, 1),
        0x80 => (false, true, 1),
        // test with a constant
        0xf6 if code.get(at)? & 0x38 == 0 => (false, false, 1),
        0xf7 if code.get(at)? & 0x38 == 0 => (false, false, 4),
        0x0f => {
            let second = *code.get(at)?;
            at += 1;
            match second {
                0xef | 0x6f | 0x7f if wide => (false, false, 0),
                _ if wide => return None,
                0xb6 | 0xb7 | 0xbe | 0xbf => (true, false, 0), // mov with extension
                0x10 | 0x11 | 0x28 | 0x29 | 0x57 => (false, false, 0), // on xmm registers
                0x1f => (false, false, 0),                     // nop
                _ => return None,
            }
        }
        // mov of a constant, of 8 bytes with REX.W
        0xb8..=0xbf => {
            let written = (opcode & 7) | (rex & 1) << 3;
            let length = at + if rex & 8 != 0 { 8 } else { 4 };
            return (!kept.contains(&written)).then_some(length);
        }
        _ => return None,
    };
    let modrm = *code.get(at)?;
    at += 1;
    let (mode, low) = (modrm >> 6, modrm & 7);
    if reg && kept.contains(&((modrm >> 3 & 7) | (rex & 4) << 1)) {
        return None;
    }
    // In byte operands without REX, 6 and 7 are dh and bh: dh is part of rdx.
    let byte = matches!(opcode, 0x88 | 0xc6 | 0x80);
    if rm && mode == 3 && (byte || kept.contains(&(low | (rex & 1) << 3))) {
        return None;
    }
    let mut address = 0;
    if mode != 3 && low == 4 {
        let base = *code.get(at)? & 7;
        at += 1;
        if mode == 0 && base == 5 {
            address = 4;
        }
    }
    address += match mode {
        1 => 1,
        2 => 4,
        0 if low == 5 => 4,
        _ => 0,
    };
    let length = at + address + immediate;
    (length <= code.len()).then_some(length)
}

/// Return the bytes from an offset to the end of a file; empty if the offset is beyond the end.
pub(crate) fn code(data: &[u8], offset: u64) -> &[u8] {
    let at = usize::try_from(offset).ok();
    at.and_then(|at| data.get(at..)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_the_stack_below_the_frame() {
        // push %r14; mov %rdi, %r14; push %rbx; sub $0x30, %rsp; mov %fs:0x28, %rax; call
        let code = [
            0x41, 0x56, 0x49, 0x89, 0xfe, 0x53, 0x48, 0x83, 0xec, 0x30, 0x64, 0x48, 0x8b, 4, 0x25,
            0x28, 0, 0, 0, 0xe8, 1, 2, 3, 4, 0x50,
        ];
        assert_eq!(moved(&code), Some(64));
        // Up to the byte before the end of the call; and less far, where the thread is.
        assert_eq!(
            (moved(&code[..23]), moved(&code[..6])),
            (Some(64), Some(16))
        );
        assert_eq!(moved(&[]), Some(0));
        // sub $0x1020, %rsp, or add $-128; xor %eax, %eax; syscall
        assert_eq!(
            moved(&[0x48, 0x81, 0xec, 0x20, 0x10, 0, 0, 0x31, 0xc0, 0x0f, 5]),
            Some(0x1020)
        );
        assert_eq!(moved(&[0x48, 0x83, 0xc4, 0x80, 0x74, 9]), Some(128));
        // Page by page: lea -0x4000(%rsp), %r11; sub $0x1000, %rsp; orq $0, (%rsp); cmp %r11, %rsp; jne back
        let pages = [
            0x4c, 0x8d, 0x9c, 0x24, 0, 0xc0, 0xff, 0xff, 0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48,
            0x83, 0xc, 0x24, 0, 0x4c, 0x39, 0xdc, 0x75, 0xef,
        ];
        assert_eq!(moved(&pages), None);
        // Once, without a jump back; or with another loop after it.
        let once = [&pages[8..20], &[0xff, 0xd0]].concat();
        assert_eq!(moved(&once), Some(0x1000));
        let then = [&pages[8..20], &[0x31, 0xc0, 0x75, 0xfc]].concat();
        assert_eq!(moved(&then), Some(0x1000));
        // Aligned, changed by a register, or set: and $-32, %rsp; sub %rax, %rsp; lea -8(%rsp), %rsp; mov %rax, %rsp.
        for unknown in [
            &[0x48, 0x83, 0xe4, 0xe0][..],
            &[0x48, 0x29, 0xc4],
            &[0x48, 0x8d, 0x64, 0x24, 0xf8],
            &[0x48, 0x89, 0xc4],
        ] {
            assert_eq!(moved(unknown), None, "{unknown:x?}");
        }
    }

    #[test]
    fn calls() {
        for (call, is) in [
            (&[0x90, 0x90, 0xe8, 1, 2, 3, 4][..], true),
            (&[0, 0, 0, 0, 0, 0xff, 0xd0], true), // call *%rax
            (&[0, 0, 0, 0, 0x41, 0xff, 0xd4], true), // call *%r12
            (&[0, 0, 0, 0, 0xff, 0x50, 0x18], true), // call *0x18(%rax)
            (&[0, 0xff, 0x15, 1, 2, 3, 4], true), // call *0x04030201(%rip)
            (&[0, 0xff, 0x93, 1, 2, 3, 4], true), // call *0x04030201(%rbx)
            (&[0, 0, 0, 0xff, 0x54, 0x24, 8], true), // call *8(%rsp)
            (&[0, 0, 0, 0, 0xff, 0x14, 0xc3], true), // call *(%rbx,%rax,8)
            (&[0xff, 0x94, 0xc3, 1, 2, 3, 4], true), // call *0x04030201(%rbx,%rax,8)
            (&[0, 0, 0, 0, 0, 0xff, 0xe0], false), // jmp *%rax
            (&[0, 0, 0, 0, 0, 0xff, 0x50], false),
            (&[0, 0, 0, 0, 0xe8, 1, 2], false),
            (&[0; 7], false),
        ] {
            assert_eq!(ends_with_call(call), is, "{call:x?}");
        }
    }

    #[test]
    fn the_first_emulated_instruction_is_found() {
        // mov (%rdi),%rax; mov 0x40(%rax),%rax; test %rax,%rax; je
        let code = [
            0x48, 0x8b, 7, 0x48, 0x8b, 0x40, 0x40, 0x48, 0x85, 0xc0, 0x74, 5, 0xff, 0xe0,
        ];
        assert_eq!(emulated(&code), Some(10));
        // endbr64; push %rbp; and push %r12
        assert_eq!(emulated(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), Some(4));
        assert_eq!(emulated(&[0x41, 0x54]), Some(0));
        // sub $0x38,%rsp; mov %fs:0x28,%rax; mov %rax,0x28(%rsp); xor %eax,%eax; jne, near
        let code = [
            0x48, 0x83, 0xec, 0x38, 0x64, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0, 0x48, 0x89, 0x44,
            0x24, 0x28, 0x31, 0xc0, 0x0f, 0x85, 1, 0, 0, 0,
        ];
        assert_eq!(emulated(&code), Some(20));
    }

    #[test]
    fn places_in_the_entry_state_are_found() {
        let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
        for (code, place) in [
            (&[0x55, 0x48, 0x89, 0xe5][..], 0),
            (&[0x41, 0x57], 0),
            // mov %rdi, %rax; push %rbx. mov %rdx, %r14 (saved before, or not); push %rbp
            (&[0x48, 0x89, 0xf8, 0x53], 3),
            (&[0x49, 0x89, 0xd6, 0x55], 3),
            // mov %rdi, %rdx; push %r14: an argument is gone
            (&[0x48, 0x89, 0xfa, 0x41, 0x56], 0),
            // mov $1, %ecx, and mov $1, %r8d, and xor %r9d, %r9d; push %rbp
            (&[0xb9, 1, 0, 0, 0, 0x55], 0),
            (&[0x41, 0xb8, 1, 0, 0, 0, 0x55], 0),
            (&[0x45, 0x31, 0xc9, 0x55], 0),
            // sub $0x18, %rsp; push %rbp: the return address is elsewhere
            (&[0x48, 0x83, 0xec, 0x18, 0x55], 0),
            // lea 8(%rsp), %r10; and $-32, %rsp
            (
                &[0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xe0, 0x55],
                0,
            ),
            // test %rdi, %rdi; je: it may come back here
            (&[0x48, 0x85, 0xff, 0x74, 5, 0x55], 0),
            // mov %rdi, %rax; push %rax, or push %r8: an argument of a call, perhaps in a loop
            (&[0x48, 0x89, 0xf8, 0x50], 0),
            (&[0x48, 0x89, 0xf8, 0x41, 0x50], 0),
            (&[0x48, 0x89, 0xf8], 0),
            (&[], 0),
        ] {
            assert_eq!(entered(code), place, "{code:x?}");
            let behind = [&endbr64[..], code].concat();
            let pushes = code.starts_with(&[0x55]) || code.starts_with(&[0x41]);
            let place = if place > 0 || pushes && code[..2] != [0x41, 0xb8] {
                place + 4
            } else {
                0
            };
            assert_eq!(entered(&behind), place, "{behind:x?}");
        }
        assert!(is_emulated(&[0x41, 0x57]) && is_emulated(&[0xe8]) && is_emulated(&[0x0f, 0x85]));
        for stepped in [
            &endbr64[..],
            &[0x48, 0x83, 0xec, 0x18],
            &[0x41, 0x89],
            &[0xc3],
            &[],
        ] {
            assert!(!is_emulated(stepped));
        }
        for push in [&[0x50][..], &[0x41, 0x51], &[0x57]] {
            assert_eq!(entered(&[&endbr64[..], push].concat()), 4);
            assert_eq!(entered(&[&endbr64[..], &endbr64[..], push].concat()), 0);
        }
        // The push is further than the search goes.
        let far = [&[0x48, 0x89, 0xf8].repeat(50)[..], &[0x55]].concat();
        assert_eq!(entered(&far), 0);
    }

    #[test]
    fn uncertain_places_are_rejected() {
        // mov %rdx,%rsi; xor %edx,%edx; mov $1,%edi; jmp *%rax; an unknown one; the end
        for code in [
            &[0x48, 0x89, 0xd6, 0x55][..],
            &[0x31, 0xd2, 0x55],
            &[0xbf, 1, 0, 0, 0, 0x55],
            &[0xff, 0xe0, 0x55],
            &[0xc4, 0xe2, 0x55, 0x55],
            &[0x48, 0x8b],
            &[0x48, 0x81, 0xec, 0x55, 0x55],
            &[],
        ] {
            assert_eq!(emulated(code), None, "{code:x?}");
        }
        // mov %rdx,%r14 writes none of them, nor does mov $1,%r15d.
        assert_eq!(
            emulated(&[0x49, 0x89, 0xd6, 0x41, 0xbf, 1, 0, 0, 0, 0x55]),
            Some(9)
        );
    }
}
