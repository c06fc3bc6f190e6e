//! Stacks of aarch64, by .eh_frame alone. framehop reads no tables of functions that sign their return addresses: there
//! it would continue by the frame pointer.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::tables::{Caller, Tables};
use super::{in_file, of_probe, only_address, register, Copied, Machine, Unwound, LARGEST};
use crate::programs::files::Files;
use crate::programs::spaces::Spaces;
use crate::programs::stacks::{Reach, DEEPEST};

/// Bits of perf's register mask (arch/arm64/include/uapi/asm/perf_regs.h).
pub(super) const FP: u32 = 29;
pub(super) const LR: u32 = 30;
pub(super) const SP: u32 = 31;
pub(super) const PC: u32 = 32;

/// Range of code addresses: neither in the first pages, nor above the default limit of a program's addresses.
const CODE: Range<u64> = 1 << 12..1 << 48;

/// Registers of a frame. None: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: Option<u64>,
    /// Return address of a function that has not stored it. Known of the innermost frame only.
    pub(super) lr: Option<u64>,
}

/// Return an address without its signature, which lies above the bits of a program's addresses.
fn unsigned(address: u64) -> u64 {
    address & (CODE.end - 1)
}

/// Unwind a stack, as `Unwinding::chain` does.
pub(super) fn chain(
    tables: &mut FxHashMap<u32, Option<Tables>>,
    copy: &Copied,
    spaces: &Spaces,
    files: &Files,
    pid: i32,
    returns: &mut dyn Iterator<Item = u64>,
) -> Option<Unwound> {
    let register = |bit| register(copy.mask, copy.registers, bit);
    let (Some(bottom), Some(space)) = (register(SP), spaces.of(pid)) else {
        return only_address(Machine::Aarch64, copy.mask, copy.registers);
    };
    let mut beyond = false;
    let mut read = |address: u64| {
        let at = usize::try_from(address.checked_sub(bottom)?).ok()?;
        beyond |= copy.full && at < LARGEST && at + 8 > copy.stack.len();
        let word = copy.stack.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let mut frame = Registers {
        pc: register(PC)?,
        sp: bottom,
        fp: register(FP),
        lr: register(LR),
    };
    let (mut chain, mut reach) = (Vec::new(), Reach::Cut);
    // A return address is less by 1, to lie within the call.
    let mut address = frame.pc;
    while chain.len() < DEEPEST && CODE.contains(&address) {
        chain.push(address);
        if let Some(part) = space.find(address) {
            tables
                .entry(part.file)
                .or_insert_with(|| Tables::of(&spaces.files[part.file as usize], files));
        }
        let caller = in_file(tables, space, address)
            .and_then(|(tables, at)| tables.caller(at, &frame, &mut read));
        frame = match caller {
            Some(Caller::None) => {
                reach = Reach::Whole;
                break;
            }
            // Only the innermost function can be without a frame.
            Some(Caller::At(caller))
                if caller.sp > frame.sp || (caller.sp == frame.sp && chain.len() == 1) =>
            {
                caller
            }
            _ => break,
        };
        frame.pc = unsigned(frame.pc);
        if of_probe(space, spaces, frame.pc) {
            match returns.next() {
                Some(original) => frame.pc = unsigned(original),
                None => break,
            }
        }
        if space.find(frame.pc).is_none() {
            break;
        }
        address = frame.pc - 1;
    }
    if reach == Reach::Cut && beyond {
        reach = Reach::Copied;
    }
    Some(Unwound { chain, reach })
}

#[cfg(test)]
mod tests {
    use gimli::Vendor;

    use super::*;
    use crate::events::{Map, Side};

    const START: u64 = 0xaaaa_0000_0000;
    const STACK: u64 = 0xffff_0000_0000;

    /// Unwind the stack of a thread at an offset of the made-up program, whose link register is `lr`.
    fn unwound(vendor: Vendor, at: u64, lr: u64, stack: &[u64], full: bool) -> (Vec<u64>, Reach) {
        let mut spaces = Spaces::default();
        let map = Map {
            time: 0,
            pid: 7,
            start: START,
            len: 0x2000,
            offset: 0,
            path: "/program".into(),
            build_id: Vec::new(),
        };
        spaces.push(&Side::Map(Box::new(map)), &FxHashMap::default());
        let mut tables = FxHashMap::default();
        tables.insert(0, Some(Tables::of_two_functions(vendor)));
        let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let copy = Copied {
            mask: 1 << FP | 1 << LR | 1 << SP | 1 << PC,
            registers: &[0, lr, STACK, START + at],
            stack: &bytes,
            full,
        };
        let mut returns = [START + 0x1060].into_iter();
        let files = Files::default();
        let found = chain(&mut tables, &copy, &spaces, &files, 7, &mut returns).unwrap();
        let offsets = found.chain.iter().map(|address| address - START);
        (offsets.collect(), found.reach)
    }

    #[test]
    fn signed_return_addresses_are_followed() {
        let signed = |at: u64| 0x00b5 << 48 | (START + at);
        let stack = [0, signed(0x1050)];
        let whole = |chain: &[u64]| (chain.to_vec(), Reach::Whole);
        let of = |at, lr, stack: &[u64]| unwound(Vendor::AArch64, at, lr, stack, false);
        // Before it is signed, before it is stored, and afterwards; the link register then has another value.
        assert_eq!(of(0x1000, START + 0x1050, &[]), whole(&[0x1000, 0x104f]));
        assert_eq!(of(0x1004, signed(0x1050), &[]), whole(&[0x1004, 0x104f]));
        assert_eq!(of(0x1008, START + 0x1010, &stack), whole(&[0x1008, 0x104f]));
        // A function that called itself.
        let twice = [0, signed(0x1020), 0, 0, 0, signed(0x1050)];
        let all = [0x1008, 0x101f, 0x104f];
        assert_eq!(of(0x1008, 0, &twice), whole(&all));
        assert_eq!(of(0x1044, START + 0x1010, &[]), whole(&[0x1044]));
        // A return probe's address is signed in its place.
        let probed = [0, 0x00b5 << 48 | 0xbbbb_0000_0000];
        assert_eq!(of(0x1008, 0, &probed), whole(&[0x1008, 0x105f]));
    }

    #[test]
    fn nothing_is_guessed() {
        let cut = (vec![0x1008], Reach::Cut);
        let stack = [0, START + 0x1050];
        assert_eq!(
            unwound(Vendor::Default, 0x1008, START + 0x1050, &stack, false),
            cut
        );
        // The return address is not in any code; is beyond the stack; is beyond the copy.
        let stray = [0, 0xbbbb_0000_0004];
        assert_eq!(unwound(Vendor::AArch64, 0x1008, 0, &stray, false), cut);
        assert_eq!(unwound(Vendor::AArch64, 0x1008, 0, &[], false), cut);
        let copied = (vec![0x1008], Reach::Copied);
        assert_eq!(unwound(Vendor::AArch64, 0x1008, 0, &[], true), copied);
        // Outside of any function.
        let outside = (vec![0x1090], Reach::Cut);
        assert_eq!(
            unwound(Vendor::AArch64, 0x1090, START + 0x1050, &stack, false),
            outside
        );
    }
}
