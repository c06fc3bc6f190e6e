//! Unwind tables (.eh_frame) of a file, and where they are in memory.

use std::sync::Arc;

use gimli::{
    AArch64, BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, Expression,
    FrameDescriptionEntry, LittleEndian, Operation, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, Vendor, X86_64,
};
use object::elf::{FileHeader64, EM_AARCH64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::Endianness;
use rustc_hash::FxHashMap;

use super::aarch64::Registers;
use crate::programs::files::Files;
use crate::programs::spaces::MappedFile;

pub(super) const PAGE: u64 = 4096;

/// Address and bytes of a section.
pub(super) type Section = Option<(u64, Arc<[u8]>)>;

/// Code to which a signal's handler returns: `mov $15, %rax` or `%eax` (rt_sigreturn), `syscall`. Debuggers recognise
/// it by this, too.
const SIGRETURN: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];

/// Size of `syscall` in bytes. A sample may find a thread at it, or in the kernel, which returns behind it.
const SYSCALL: usize = 2;

/// Parts of a file that unwinding needs: sections with their addresses.
pub(super) struct Tables {
    /// PT_LOAD segments of code: vaddr, size in the file, offset in it.
    pub(super) loads: Vec<(u64, u64, u64)>,
    pub(super) text: Section,
    pub(super) eh_frame: Section,
    pub(super) eh_frame_hdr: Section,
    pub(super) got: Section,
    /// Addresses of SIGRETURN, of its second instruction, and behind it.
    pub(super) signals: Vec<u64>,
    /// The code is Go's own, which keeps frame pointers and has no tables.
    pub(super) go: bool,
    /// Processor whose extensions the tables may have.
    vendor: Vendor,
    /// Descriptions of frames in the tables, by address.
    pub(super) known: FxHashMap<u64, Known>,
    /// Start and end of each function, and its part of .eh_frame; read when first needed.
    functions: Option<Vec<(u64, u64, usize)>>,
}

type Table<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;
type Entry<'a> = FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>;

/// Bytes from the frame pointer to the caller's frame: the saved frame pointer and the return address.
const BELOW_CFA: i64 = 16;

/// Maximum number of remembered addresses of a file.
const MOST_ADDRESSES: usize = 1 << 16;

/// Description of a frame's caller in the program's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// `by_bp`: by the frame pointer; `gives_bp`: they define where the caller's is.
    ByTables { by_bp: bool, gives_bp: bool },
    /// The code is Go's own, which frame pointers describe.
    Go,
    /// There are no tables of that code, which may keep frame pointers or not.
    NoTables,
    /// The file's tables omit it, or need something that is not followed: frame pointers would be a guess.
    No,
}

/// Caller of a frame by the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The frame is a thread's first.
    None,
    At(Registers),
}

/// Return whether an expression uses only registers that are followed, and reads no memory.
fn followed(
    expression: &UnwindExpression<usize>,
    section: &EhFrame<EndianSlice<LittleEndian>>,
) -> bool {
    let encoding = gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    };
    let Ok(Expression(code)) = expression.get(section) else {
        return false;
    };
    let mut operations = Expression(code).operations(encoding);
    loop {
        match operations.next() {
            Ok(Some(Operation::RegisterOffset { register, .. }))
                if ![X86_64::RSP, X86_64::RBP, X86_64::RA].contains(&register) =>
            {
                return false
            }
            Ok(Some(Operation::Deref { .. })) | Err(_) => return false,
            Ok(Some(_)) => {}
            Ok(None) => return true,
        }
    }
}

/// Return the segment that is mapped from this offset on, which begins a page. It is the segment that begins in that
/// page, or else one that contains the offset.
pub(super) fn load_of(loads: &[(u64, u64, u64)], mapped: u64) -> Option<&(u64, u64, u64)> {
    let first = |load: &&(u64, u64, u64)| load.2 & !(PAGE - 1) == mapped;
    let within =
        |load: &&(u64, u64, u64)| (load.2..load.2.saturating_add(load.1)).contains(&mapped);
    loads
        .iter()
        .find(first)
        .or_else(|| loads.iter().find(within))
}

impl Tables {
    pub(super) fn of(file: &MappedFile, files: &Files) -> Option<Tables> {
        let image = files.open(file)?;
        let data: &[u8] = &image;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let section = |name: &[u8]| {
            let (_, section) = sections.section_by_name(endian, name)?;
            let bytes = section.data(endian, data).ok()?;
            Some((section.sh_addr(endian), Arc::from(bytes)))
        };
        let segments = header.program_headers(endian, data).ok()?;
        let loads = segments
            .iter()
            .filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian).0 & PF_X.0 != 0);
        let text: Section = section(b".text");
        let signals = text.iter().flat_map(|(start, bytes)| {
            SIGRETURN.iter().flat_map(move |code| {
                let windows = bytes.windows(code.len()).enumerate();
                windows
                    .filter(move |(_, here)| here == code)
                    .flat_map(move |(at, _)| [at, at + code.len() - SYSCALL, at + code.len()])
                    .map(move |at| start.wrapping_add(at as u64))
            })
        });
        let signals = signals.collect();
        let is_go = |name: &[u8]| sections.section_by_name(endian, name).is_some();
        let go = is_go(b".gopclntab") || is_go(b".data.rel.ro.gopclntab");
        Some(Tables {
            loads: loads
                .map(|s| (s.p_vaddr(endian), s.p_filesz(endian), s.p_offset(endian)))
                .collect(),
            signals,
            text,
            eh_frame: section(b".eh_frame"),
            eh_frame_hdr: section(b".eh_frame_hdr"),
            got: section(b".got"),
            go,
            vendor: match header.e_machine(endian) {
                EM_AARCH64 => Vendor::AArch64,
                _ => Vendor::Default,
            },
            known: FxHashMap::default(),
            functions: None,
        })
    }

    pub(super) fn known(&mut self, address: u64) -> Known {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if self.known.len() >= MOST_ADDRESSES {
            self.known.clear();
        }
        let known = match self.describe(address) {
            Some(by_tables) => by_tables,
            None if self.go => Known::Go,
            None if self.eh_frame.is_some() => Known::No,
            None => Known::NoTables,
        };
        self.known.insert(address, known);
        known
    }

    /// Return what `tell` finds in a function's part of .eh_frame. None: the address is in none.
    fn described<T>(
        &mut self,
        address: u64,
        tell: impl FnOnce(&Entry<'_>, &Table<'_>, &BaseAddresses) -> Option<T>,
    ) -> Option<T> {
        let (start, bytes) = self.eh_frame.clone()?;
        let mut section = EhFrame::new(&bytes, LittleEndian);
        section.set_vendor(self.vendor);
        let mut bases = BaseAddresses::default().set_eh_frame(start);
        for (at, set) in [
            (
                &self.text,
                BaseAddresses::set_text as fn(BaseAddresses, u64) -> BaseAddresses,
            ),
            (&self.got, BaseAddresses::set_got),
            (&self.eh_frame_hdr, BaseAddresses::set_eh_frame_hdr),
        ] {
            if let Some((at, _)) = at {
                bases = set(bases, *at);
            }
        }
        let functions = self.functions.get_or_insert_with(|| {
            let mut functions = Vec::new();
            let mut entries = section.entries(&bases);
            while let Ok(Some(entry)) = entries.next() {
                let gimli::CieOrFde::Fde(fde) = entry else {
                    continue;
                };
                let offset = fde.offset();
                if let Ok(fde) = fde.parse(EhFrame::cie_from_offset) {
                    let end = fde.initial_address().saturating_add(fde.len());
                    functions.push((fde.initial_address(), end, offset));
                }
            }
            functions.sort_unstable();
            functions
        });
        let after = functions.partition_point(|(begin, _, _)| *begin <= address);
        let (_, end, offset) = functions[..after].last()?;
        if address >= *end {
            return None;
        }
        let cie = EhFrame::cie_from_offset;
        let fde = section.fde_from_offset(&bases, EhFrameOffset(*offset), cie);
        tell(&fde.ok()?, &section, &bases)
    }

    /// Return the tables' description of the caller of this address, if it needs only registers that are followed.
    fn describe(&mut self, address: u64) -> Option<Known> {
        self.described(address, |fde, section, bases| {
            let mut context = UnwindContext::new();
            let row = fde.unwind_info_for_address(section, bases, &mut context, address);
            let row = row.ok()?;
            let (of_cfa, by_bp) = match row.cfa() {
                CfaRule::RegisterAndOffset { register, .. } => (
                    [X86_64::RSP, X86_64::RBP].contains(register),
                    *register == X86_64::RBP,
                ),
                CfaRule::Expression(expression) => (followed(expression, section), true),
            };
            let end = matches!(
                row.register(X86_64::RA),
                None | Some(RegisterRule::Undefined)
            );
            let back = matches!(row.register(X86_64::RA), Some(RegisterRule::Offset(_)));
            let (of_bp, gives_bp) = match row.register(X86_64::RBP) {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (true, false),
                Some(RegisterRule::Offset(_)) => (true, true),
                Some(
                    RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression),
                ) => (followed(&expression, section), true),
                _ => (false, false),
            };
            let by_bp = by_bp && !end;
            (end || (of_cfa && back && of_bp)).then_some(Known::ByTables { by_bp, gives_bp })
        })
    }

    /// Return the caller of a frame of aarch64, whose pc is the return address as it was stored, maybe signed. None: the
    /// tables omit the address, or need a register or memory that is unknown.
    pub(super) fn caller(
        &mut self,
        address: u64,
        frame: &Registers,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Caller> {
        self.described(address, |fde, section, bases| {
            let mut context = UnwindContext::new();
            let row = fde.unwind_info_for_address(section, bases, &mut context, address);
            let row = row.ok()?;
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => match *register {
                    AArch64::SP => frame.sp.checked_add_signed(*offset)?,
                    AArch64::X29 => frame.fp?.checked_add_signed(*offset)?,
                    _ => return None,
                },
                CfaRule::Expression(_) => return None,
            };
            let mut before = |register, own| match row.register(register) {
                None | Some(RegisterRule::SameValue) => own,
                Some(RegisterRule::Offset(at)) => read(cfa.checked_add_signed(at)?),
                _ => None,
            };
            if row.register(AArch64::X30) == Some(RegisterRule::Undefined) {
                return Some(Caller::None);
            }
            Some(Caller::At(Registers {
                pc: before(AArch64::X30, frame.lr)?,
                sp: cfa,
                fp: before(AArch64::X29, frame.fp),
                lr: None,
            }))
        })
    }

    /// Return the code of a function from where its frame pointer is set (after `push %rbp; mov %rsp, %rbp`) up to an
    /// address. None: it is not known to keep one there.
    pub(super) fn since_frame(&mut self, address: u64) -> Option<Vec<u8>> {
        let from = self.described(address, |fde, section, bases| {
            let mut context = UnwindContext::new();
            let mut rows = fde.rows(section, bases, &mut context).ok()?;
            let (mut pushed, mut found) = (false, None);
            while let Ok(Some(row)) = rows.next_row() {
                if row.start_address() > address {
                    break;
                }
                let (register, offset) = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } => (*register, *offset),
                    CfaRule::Expression(_) => return None,
                };
                if pushed && (register, offset) == (X86_64::RBP, BELOW_CFA) {
                    found = Some(row.start_address());
                }
                pushed = (register, offset) == (X86_64::RSP, BELOW_CFA);
            }
            found
        })?;
        self.code(from, address)
    }

    /// Return the bytes of code between two addresses.
    pub(super) fn code(&self, from: u64, to: u64) -> Option<Vec<u8>> {
        let (start, bytes) = self.text.as_ref()?;
        let place = |at: u64| usize::try_from(at.checked_sub(*start)?).ok();
        bytes.get(place(from)?..place(to)?).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
impl Tables {
    /// Return the tables of a made-up program of aarch64. At 0x1000 is a function that signs its return address with its
    /// first instruction and then stores it with the frame pointer in 32 bytes of stack; at 0x1040 one without a caller.
    pub(super) fn of_two_functions(vendor: Vendor) -> Tables {
        const AT: i32 = 0x2000;
        let mut bytes: Vec<u8> = Vec::new();
        let mut part = |words: &[i32], rest: &[u8]| {
            let length = (words.len() * 4 + rest.len()).next_multiple_of(4);
            bytes.extend((length as u32).to_le_bytes());
            let begin = bytes.len();
            for (word, at) in words.iter().zip((begin as i32..).step_by(4)) {
                // The second word is the function's address, relative to its own.
                let relative = if at == begin as i32 + 4 { AT + at } else { 0 };
                bytes.extend((word - relative).to_le_bytes());
            }
            bytes.extend(rest);
            bytes.resize(begin + length, 0); // DW_CFA_nop
        };
        // Version 1, "zR", factors 4 and -8, x30, addresses relative to their place; DW_CFA_def_cfa sp, 0.
        part(&[0], b"\x01zR\0\x04\x78\x1e\x01\x1b\x0c\x1f\0");
        // DW_CFA_AARCH64_negate_ra_state after one instruction; after two DW_CFA_def_cfa_offset 32, and the places of x29
        // and x30.
        let stores = b"\0\x41\x2d\x41\x0e\x20\x9d\x04\x9e\x03";
        part(&[24, 0x1000, 0x40], stores);
        part(&[52, 0x1040, 0x40], b"\0\x07\x1e"); // DW_CFA_undefined x30
        Tables {
            loads: vec![(0, 0x2000, 0)],
            text: Some((0x1000, vec![0; 0x80].into())),
            eh_frame: Some((AT as u64, bytes.into())),
            eh_frame_hdr: None,
            got: None,
            signals: Vec::new(),
            go: false,
            vendor,
            known: FxHashMap::default(),
            functions: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_page_is_of_the_segment_that_begins_there() {
        // As lld lays them out: code continues in the file's page where the part before it ended, but in a page of its
        // own in memory.
        let loads = [(0x1000, 0x80b54, 0), (0x82b54, 0x23adec, 0x80b54)];
        assert_eq!(load_of(&loads, 0), Some(&loads[0]));
        assert_eq!(load_of(&loads, 0x80000), Some(&loads[1]));
        // A mapping that was split because a part of it was made writable.
        assert_eq!(load_of(&loads, 0x10000), Some(&loads[0]));
        assert_eq!(load_of(&loads, 0x90000), Some(&loads[1]));
        assert_eq!(load_of(&loads, 0x400000), None);
    }
}
