//! User stacks out of what `perf record --call-graph dwarf` copies: registers and the top of the stack, unwound by the
//! programs' own tables (.eh_frame). x86-64 only.

use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::Endianness;
use rustc_hash::FxHashMap;

use crate::programs::Files;
use crate::spaces::{MappedFile, Space, Spaces};
use crate::stacks::DEEPEST;

/// Bits of perf's register mask (arch/x86/include/uapi/asm/perf_regs.h).
const BP: u32 = 6;
const SP: u32 = 7;
const IP: u32 = 8;

/// Where code can be: not in the first pages, nor above what a program gets unless it asks for more.
const CODE: Range<u64> = 1 << 12..1 << 47;

const PAGE: u64 = 4096;

/// Spaces of which the tables are kept at a time.
const MOST_SPACES: usize = 64;

type Section = Option<(u64, Arc<[u8]>)>;

/// Of a file what unwinding needs: sections with their addresses.
struct Tables {
    /// PT_LOAD: vaddr, size in the file, offset in it.
    loads: Vec<(u64, u64, u64)>,
    text: Section,
    eh_frame: Section,
    eh_frame_hdr: Section,
    got: Section,
}

/// A user stack, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// Innermost first, each within the function that was called there.
    pub chain: Vec<u64>,
    /// It goes on to where the thread began; else the rest was not copied, or a program tells nothing of it.
    pub whole: bool,
}

/// Whether the registers of a mask are such that stacks can be unwound from them.
pub fn can_unwind(arch: Option<&str>, mask: u64) -> bool {
    let wanted = 1 << IP | 1 << SP | 1 << BP;
    arch == Some("x86_64") && mask & wanted == wanted
}

/// Of a stack that cannot be unwound what is known: where the program was.
pub fn only_address(mask: u64, registers: &[u64]) -> Option<Unwound> {
    Some(Unwound {
        chain: vec![register(mask, registers, IP)?],
        whole: false,
    })
}

fn register(mask: u64, registers: &[u64], bit: u32) -> Option<u64> {
    let known = mask >> bit & 1 == 1;
    let at = (mask & ((1 << bit) - 1)).count_ones() as usize;
    registers.get(at).copied().filter(|_| known)
}

#[derive(Default)]
pub struct Unwinding {
    tables: FxHashMap<u32, Option<Tables>>,
    /// By the version of the space.
    spaces: FxHashMap<u64, UnwinderX86_64<Arc<[u8]>>>,
    cache: CacheX86_64,
}

impl Unwinding {
    /// Unwinds a stack. `registers`: those of the bits of `mask`, lowest first; `stack`: the bytes from the stack pointer
    /// up; `returns`: where the calls with return probes go back to that the thread is in, innermost first. None where the
    /// instruction pointer is not among the registers.
    #[allow(clippy::too_many_arguments)]
    pub fn chain(
        &mut self,
        mask: u64,
        registers: &[u64],
        stack: &[u8],
        spaces: &Spaces,
        files: &Files,
        pid: i32,
        returns: &mut dyn Iterator<Item = u64>,
    ) -> Option<Unwound> {
        let register = |bit| register(mask, registers, bit);
        let cut = only_address(mask, registers);
        let ip = register(IP)?;
        let (Some(sp), Some(bp), Some(space)) = (register(SP), register(BP), spaces.of(pid)) else {
            return cut;
        };
        if !self.spaces.contains_key(&space.version) {
            if self.spaces.len() == MOST_SPACES {
                self.spaces.clear();
            }
            let unwinder = self.unwinder(space, spaces, files);
            self.spaces.insert(space.version, unwinder);
        }
        let Some(unwinder) = self.spaces.get(&space.version) else {
            return cut;
        };
        let mut read = |address: u64| {
            let at = address
                .checked_sub(sp)
                .and_then(|at| usize::try_from(at).ok());
            let word = at.and_then(|at| stack.get(at..at.checked_add(8)?));
            let word: [u8; 8] = word.and_then(|word| word.try_into().ok()).ok_or(())?;
            Ok(u64::from_le_bytes(word))
        };
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frame = FrameAddress::from_instruction_pointer(ip);
        let mut chain = Vec::new();
        let mut whole = false;
        while chain.len() < DEEPEST {
            let address = frame.address_for_lookup();
            // Where a program's tables need a register that is not followed, what comes is no code.
            if !CODE.contains(&address) {
                break;
            }
            chain.push(address);
            let caller = unwinder.unwind_frame(frame, &mut registers, &mut self.cache, &mut read);
            // That of a return probe, which took the place of the caller's, begins a page of the kernel's own.
            let of_probe = |address: u64| {
                let known = space.find(address);
                let own = known.is_none_or(|part| {
                    let file = spaces.files.get(part.file as usize);
                    file.is_some_and(|file| file.path.starts_with("[uprobes"))
                });
                address % PAGE == 0 && own
            };
            let address = match caller {
                Ok(Some(address)) if of_probe(address) => returns.next(),
                Ok(Some(address)) if space.find(address).is_some() => Some(address),
                Ok(None) => {
                    whole = true;
                    break;
                }
                _ => break,
            };
            match address.and_then(FrameAddress::from_return_address) {
                Some(caller) => frame = caller,
                None => break,
            }
        }
        // What such a program's tables lead to last is no code either.
        while !whole && chain.len() > 1 && chain.last().is_some_and(|ip| space.find(*ip).is_none())
        {
            chain.pop();
        }
        Some(Unwound { chain, whole })
    }

    fn unwinder(
        &mut self,
        space: &Space,
        spaces: &Spaces,
        files: &Files,
    ) -> UnwinderX86_64<Arc<[u8]>> {
        let mut unwinder = UnwinderX86_64::new();
        for mapping in space.mappings() {
            let tables = self
                .tables
                .entry(mapping.file)
                .or_insert_with(|| Tables::of(&spaces.files[mapping.file as usize], files));
            let Some(tables) = tables else { continue };
            let load = tables.loads.iter().find(|(_, size, offset)| {
                (*offset..offset.saturating_add(*size)).contains(&mapping.offset)
            });
            // A segment begins where its page does.
            let load = load.or_else(|| {
                let page = |offset: u64| offset & !0xfff;
                tables
                    .loads
                    .iter()
                    .find(|load| page(load.2) == mapping.offset)
            });
            let Some((vaddr, _, offset)) = load else {
                continue;
            };
            let address = vaddr.wrapping_sub(*offset).wrapping_add(mapping.offset);
            let base = mapping.start.wrapping_sub(address);
            let range = |section: &Section| {
                let (start, bytes) = section.as_ref()?;
                Some(*start..start.checked_add(bytes.len() as u64)?)
            };
            let bytes = |section: &Section| Some(section.as_ref()?.1.clone());
            unwinder.add_module(Module::new(
                String::new(),
                mapping.start..mapping.end,
                base,
                ExplicitModuleSectionInfo {
                    base_svma: 0,
                    text_svma: range(&tables.text),
                    text: bytes(&tables.text),
                    got_svma: range(&tables.got),
                    eh_frame_svma: range(&tables.eh_frame),
                    eh_frame: bytes(&tables.eh_frame),
                    eh_frame_hdr_svma: range(&tables.eh_frame_hdr),
                    eh_frame_hdr: bytes(&tables.eh_frame_hdr),
                    ..ExplicitModuleSectionInfo::default()
                },
            ));
        }
        unwinder
    }
}

impl Tables {
    fn of(file: &MappedFile, files: &Files) -> Option<Tables> {
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
        let loads = segments.iter().filter(|s| s.p_type(endian) == PT_LOAD);
        Some(Tables {
            loads: loads
                .map(|s| (s.p_vaddr(endian), s.p_filesz(endian), s.p_offset(endian)))
                .collect(),
            text: section(b".text"),
            eh_frame: section(b".eh_frame"),
            eh_frame_hdr: section(b".eh_frame_hdr"),
            got: section(b".got"),
        })
    }
}
