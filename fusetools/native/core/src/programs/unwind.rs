//! User stacks from the copies of `perf record --call-graph dwarf`: registers and the top of the stack. They are
//! unwound by the programs' own tables (.eh_frame), on x86-64 and aarch64.

use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::programs::files::Files;
use crate::programs::gopclntab::{Below, Depths};
use crate::programs::prologue;
use crate::programs::spaces::{Space, Spaces};
use crate::programs::stacks::{Reach, DEEPEST};

mod aarch64;
mod tables;

use tables::{load_of, Known, Section, Tables, PAGE};

/// Bits of perf's register mask (arch/x86/include/uapi/asm/perf_regs.h).
const BP: u32 = 6;
const SP: u32 = 7;
const IP: u32 = 8;

/// Processor of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    #[default]
    X86_64,
    Aarch64,
}

impl Machine {
    /// Return the machine named as in `uname -m`, if its stacks can be unwound.
    pub fn of(arch: Option<&str>) -> Option<Machine> {
        match arch? {
            "x86_64" => Some(Machine::X86_64),
            "aarch64" => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// Return perf's mask of the stack pointer and, above it, the instruction pointer.
    pub fn least(self) -> u64 {
        1 << self.ip() | 1 << self.sp()
    }

    fn ip(self) -> u32 {
        match self {
            Machine::X86_64 => IP,
            Machine::Aarch64 => aarch64::PC,
        }
    }

    fn sp(self) -> u32 {
        match self {
            Machine::X86_64 => SP,
            Machine::Aarch64 => aarch64::SP,
        }
    }

    fn wanted(self) -> u64 {
        self.least()
            | match self {
                Machine::X86_64 => 1 << BP,
                Machine::Aarch64 => 1 << aarch64::FP | 1 << aarch64::LR,
            }
    }
}

/// Range of code addresses: neither in the first pages, nor above the default limit of a program's addresses.
const CODE: Range<u64> = 1 << 12..1 << 47;

/// Maximum number of spaces whose tables are kept.
const MOST_SPACES: usize = 64;

/// Offsets of the registers at the interruption in a struct ucontext, to which the stack pointer points in a signal's
/// frame (arch/x86/include/uapi/asm/sigcontext.h).
const SAVED_BP: u64 = 120;
const SAVED_SP: u64 = 160;
const SAVED_IP: u64 = 168;

/// Unwinding tables of a program's address space.
#[derive(Default)]
struct Program {
    modules: UnwinderX86_64<Arc<[u8]>>,
    signals: FxHashSet<u64>,
}

/// Copied state of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// One bit for each register of `registers`, by its number.
    pub mask: u64,
    /// Values of the registers in `mask`, lowest number first.
    pub registers: &'a [u64],
    /// Bytes from the stack pointer up. `full`: as many as were requested, so that there may be more.
    pub stack: &'a [u8],
    pub full: bool,
}

/// The known part of a user stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// Addresses, innermost first. Return addresses are less by 1, to lie within the call.
    pub chain: Vec<u64>,
    pub reach: Reach,
}

/// Maximum size of the kernel's copy (PERF_SAMPLE_STACK_USER, perf_event_open(2)).
const LARGEST: usize = 1 << 16;

/// Return whether stacks can be unwound from the registers of a mask.
pub fn can_unwind(arch: Option<&str>, mask: u64) -> bool {
    Machine::of(arch).is_some_and(|machine| mask & machine.wanted() == machine.wanted())
}

/// Return all that is known of a stack that cannot be unwound: the address where the program was.
pub fn only_address(machine: Machine, mask: u64, registers: &[u64]) -> Option<Unwound> {
    Some(Unwound {
        chain: vec![register(mask, registers, machine.ip())?],
        reach: Reach::Cut,
    })
}

fn register(mask: u64, registers: &[u64], bit: u32) -> Option<u64> {
    let known = mask >> bit & 1 == 1;
    let at = (mask & ((1 << bit) - 1)).count_ones() as usize;
    registers.get(at).copied().filter(|_| known)
}

#[derive(Default)]
pub struct Unwinding {
    pub machine: Machine,
    tables: FxHashMap<u32, Option<Tables>>,
    /// Depths of Go programs by file; read only if frame pointers are unknown.
    depths: FxHashMap<u32, Depths>,
    /// Programs by the version of their space.
    spaces: FxHashMap<u64, Program>,
    cache: CacheX86_64,
}

impl Unwinding {
    pub fn new(machine: Machine) -> Unwinding {
        Unwinding {
            machine,
            ..Unwinding::default()
        }
    }

    /// Unwind a stack. `returns`: the original return addresses of the thread's open calls with return probes,
    /// innermost first. Return None if the instruction pointer is not among the registers.
    pub fn chain(
        &mut self,
        copy: &Copied,
        spaces: &Spaces,
        files: &Files,
        pid: i32,
        returns: &mut dyn Iterator<Item = u64>,
    ) -> Option<Unwound> {
        let register = |bit| register(copy.mask, copy.registers, bit);
        if self.machine == Machine::Aarch64 {
            return aarch64::chain(&mut self.tables, copy, spaces, files, pid, returns);
        }
        let cut = only_address(self.machine, copy.mask, copy.registers);
        let ip = register(IP)?;
        let (Some(sp), Some(space)) = (register(SP), spaces.of(pid)) else {
            return cut;
        };
        let (bp, mut has_bp) = (register(BP).unwrap_or(0), register(BP).is_some());
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
        let mut beyond = false;
        let mut read = |address: u64| {
            let at = address
                .checked_sub(sp)
                .and_then(|at| usize::try_from(at).ok());
            beyond |= copy.full && at.is_some_and(|at| at < LARGEST && at + 8 > copy.stack.len());
            let word = at.and_then(|at| copy.stack.get(at..at.checked_add(8)?));
            let word: [u8; 8] = word.and_then(|word| word.try_into().ok()).ok_or(())?;
            Ok(u64::from_le_bytes(word))
        };
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frame = FrameAddress::from_instruction_pointer(ip);
        let mut chain = Vec::new();
        let mut reach = Reach::Cut;
        let mut followed = false;
        while chain.len() < DEEPEST {
            let address = frame.address_for_lookup();
            // If a program's tables need a register that is not followed, the result is no code address.
            if !CODE.contains(&address) {
                break;
            }
            chain.push(address);
            if let Some(ip) = interrupted(unwinder, frame, &mut registers, &mut read) {
                if space.find(ip).is_none() {
                    break;
                }
                frame = FrameAddress::from_instruction_pointer(ip);
                has_bp = true;
                continue;
            }
            let known = known(&mut self.tables, space, address);
            let guessed = known == Known::NoTables;
            match known {
                Known::ByTables { by_bp: true, .. } if !has_bp => {
                    let sp = registers.sp();
                    match frame_pointer(&mut self.tables, space, address, sp, &mut read) {
                        Some(bp) => {
                            registers.set_bp(bp);
                            has_bp = true;
                        }
                        None => break,
                    }
                }
                Known::ByTables { gives_bp, .. } => has_bp |= gives_bp,
                Known::NoTables if !has_bp => break,
                _ => {}
            }
            let caller = match known {
                Known::No => break,
                Known::Go => {
                    let below = match has_bp {
                        true => None,
                        false => {
                            let (tables, depths) = (&mut self.tables, &mut self.depths);
                            below(tables, depths, space, spaces, files, address)
                        }
                    };
                    let begins = |ip| space.find(ip).is_some();
                    let caller = match below {
                        Some(Below::Nothing) => Ok(None),
                        Some(Below::Other) => break,
                        Some(Below::Caller(depth)) => {
                            called(&mut registers, depth, &mut read).map(Some)
                        }
                        None => of_go(frame, &mut registers, followed, begins, &mut read),
                    };
                    followed = true;
                    caller.map_err(|()| framehop::Error::CouldNotReadStack(registers.sp()))
                }
                _ => {
                    unwinder
                        .modules
                        .unwind_frame(frame, &mut registers, &mut self.cache, &mut read)
                }
            };
            let address = match caller {
                Ok(Some(address)) if of_probe(space, spaces, address) => returns.next(),
                Ok(Some(address)) if space.find(address).is_some() => Some(address),
                Ok(None) => {
                    if !guessed {
                        reach = Reach::Whole;
                    }
                    break;
                }
                _ => break,
            };
            match address.and_then(FrameAddress::from_return_address) {
                Some(caller) => frame = caller,
                None => break,
            }
        }
        // The last address from such tables is no code address, either.
        while reach != Reach::Whole
            && chain.len() > 1
            && chain.last().is_some_and(|ip| space.find(*ip).is_none())
        {
            chain.pop();
        }
        if reach == Reach::Cut && beyond {
            reach = Reach::Copied;
        }
        Some(Unwound { chain, reach })
    }

    fn unwinder(&mut self, space: &Space, spaces: &Spaces, files: &Files) -> Program {
        let mut unwinder = Program::default();
        for mapping in space.mappings() {
            let tables = self
                .tables
                .entry(mapping.file)
                .or_insert_with(|| Tables::of(&spaces.files[mapping.file as usize], files));
            let Some(tables) = tables else { continue };
            let Some((vaddr, _, offset)) = load_of(&tables.loads, mapping.offset) else {
                continue;
            };
            let address = vaddr.wrapping_sub(*offset).wrapping_add(mapping.offset);
            let base = mapping.start.wrapping_sub(address);
            let range = |section: &Section| {
                let (start, bytes) = section.as_ref()?;
                Some(*start..start.checked_add(bytes.len() as u64)?)
            };
            let bytes = |section: &Section| Some(section.as_ref()?.1.clone());
            let signals = tables.signals.iter().map(|at| at.wrapping_add(base));
            unwinder
                .signals
                .extend(signals.filter(|at| (mapping.start..mapping.end).contains(at)));
            unwinder.modules.add_module(Module::new(
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

/// Return whether a return address is that of a return probe, which replaces the caller's by one that begins a page of
/// the kernel's own.
fn of_probe(space: &Space, spaces: &Spaces, address: u64) -> bool {
    let own = space.find(address).is_none_or(|part| {
        let file = spaces.files.get(part.file as usize);
        file.is_some_and(|file| file.path.starts_with("[uprobes"))
    });
    address % PAGE == 0 && own
}

/// Return the caller of Go's code by frame pointers; None where a goroutine begins, which has no caller. `followed`:
/// the frame pointer is that of a frame of Go already. A thread may be in a function without a frame of its own; then
/// its caller is on top of the stack. `is_code` distinguishes addresses from other numbers.
fn of_go(
    frame: FrameAddress,
    registers: &mut UnwindRegsX86_64,
    followed: bool,
    is_code: impl Fn(u64) -> bool,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, ()> {
    let (sp, bp) = (registers.sp(), registers.bp());
    if matches!(frame, FrameAddress::InstructionPointer(_)) {
        if let Some(caller) = read(sp).ok().filter(|&caller| is_code(caller)) {
            *registers = UnwindRegsX86_64::new(caller, sp.checked_add(8).ok_or(())?, bp);
            return Ok(Some(caller));
        }
    }
    if bp == 0 && followed {
        return Ok(None);
    }
    if bp < sp {
        return Err(());
    }
    let caller = read(bp.checked_add(8).ok_or(())?)?;
    *registers = UnwindRegsX86_64::new(caller, bp.checked_add(16).ok_or(())?, read(bp)?);
    Ok(Some(caller))
}

/// Return the stack's content below a function of a Go program, by the program's own table.
fn below(
    tables: &mut FxHashMap<u32, Option<Tables>>,
    depths: &mut FxHashMap<u32, Depths>,
    space: &Space,
    spaces: &Spaces,
    files: &Files,
    address: u64,
) -> Option<Below> {
    let number = space.find(address)?.file;
    let (_, at) = in_file(tables, space, address)?;
    let depths = depths.entry(number).or_insert_with(|| {
        let file = spaces.files.get(number as usize);
        let image = file.and_then(|file| files.open(file));
        image
            .and_then(|image| Depths::of(&image))
            .unwrap_or_default()
    });
    depths.at(at)
}

/// Return the caller of code whose return address is `depth` bytes above the stack pointer.
fn called(
    registers: &mut UnwindRegsX86_64,
    depth: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<u64, ()> {
    let at = registers.sp().checked_add(depth).ok_or(())?;
    let caller = read(at)?;
    registers.set_sp(at.checked_add(8).ok_or(())?);
    Ok(caller)
}

/// Return what the tables of the file mapped at an address describe. The unwinder itself silently continues by frame
/// pointers where they describe nothing.
fn known(tables: &mut FxHashMap<u32, Option<Tables>>, space: &Space, address: u64) -> Known {
    match in_file(tables, space, address) {
        Some((tables, at)) => tables.known(at),
        None => Known::NoTables,
    }
}

/// Return the tables of the file mapped at an address, and the virtual address that they have for it.
fn in_file<'a>(
    tables: &'a mut FxHashMap<u32, Option<Tables>>,
    space: &Space,
    address: u64,
) -> Option<(&'a mut Tables, u64)> {
    let part = space.find(address)?;
    let tables = tables.get_mut(&part.file)?.as_mut()?;
    let (vaddr, _, offset) = load_of(&tables.loads, part.offset)?;
    let start = vaddr.wrapping_sub(*offset).wrapping_add(part.offset);
    Some((tables, address.wrapping_sub(part.start).wrapping_add(start)))
}

/// Return the frame pointer of a thread in a function that keeps one. The function's own code shows how far it moves
/// the stack pointer before it does anything else. None if there is any doubt, or if no return address is above it.
fn frame_pointer(
    tables: &mut FxHashMap<u32, Option<Tables>>,
    space: &Space,
    address: u64,
    sp: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    let (of_function, at) = in_file(tables, space, address)?;
    let moved = prologue::moved(&of_function.since_frame(at)?)?;
    let bp = sp.checked_add(moved)?;
    let caller = read(bp.checked_add(8)?).ok()?;
    space.find(caller)?;
    // Code that was made at run time cannot be looked at.
    if let Some((of_caller, at)) = in_file(tables, space, caller) {
        let before = of_caller.code(at.checked_sub(prologue::LONGEST_CALL)?, at)?;
        if !prologue::ends_with_call(&before) {
            return None;
        }
    }
    Some(bp)
}

/// Return where a thread was when a signal interrupted it, if the frame is in the code to which the signal's handler
/// returns. The tables describe that by an expression that reads the stack, which the unwinder does not follow: it
/// would guess.
fn interrupted(
    unwinder: &Program,
    frame: FrameAddress,
    registers: &mut UnwindRegsX86_64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    let at = match frame {
        FrameAddress::ReturnAddress(at) => at.get(),
        FrameAddress::InstructionPointer(at) => at,
    };
    if !unwinder.signals.contains(&at) {
        return None;
    }
    let mut saved = |at| read(registers.sp().checked_add(at)?).ok();
    // The registers were not copied: nothing is at address 0.
    let (ip, sp, bp) = match (saved(SAVED_IP), saved(SAVED_SP), saved(SAVED_BP)) {
        (Some(ip), Some(sp), Some(bp)) => (ip, sp, bp),
        _ => return Some(0),
    };
    *registers = UnwindRegsX86_64::new(ip, sp, bp);
    Some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::spaces::MappedFile;

    // Two functions that call on. The tables lack the first, and need a register for the second that is not followed.
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(
        ".text",
        ".globl fusetools_test_untold",
        "fusetools_test_untold:",
        "nop",
        "nop",
        "ret",
        ".globl fusetools_test_other_register",
        "fusetools_test_other_register:",
        ".cfi_startproc",
        "nop",
        ".cfi_def_cfa r10, 16",
        "nop",
        "ret",
        ".cfi_endproc",
    );

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_stack_without_tables_is_cut() {
        extern "C" {
            fn fusetools_test_untold();
            fn fusetools_test_other_register();
        }
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap().to_owned();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let numbers = |line: &str| -> Option<(u64, u64, u64)> {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let code = words.next()?.contains('x') && line.ends_with(&path);
            let number = |text| u64::from_str_radix(text, 16).ok();
            code.then_some((number(start)?, number(end)?, number(words.next()?)?))
        };
        let (start, end, offset) = maps.lines().find_map(numbers).unwrap();
        let file = MappedFile {
            path: path.clone(),
            build_id: Vec::new(),
        };
        let mut tables = Tables::of(&file, &Files::default()).unwrap();
        let (vaddr, _, at) = *load_of(&tables.loads, offset).unwrap();
        let mut known = |address: u64| tables.known(address - start + offset + vaddr - at);
        let plain: fn(&Vec<u64>) -> Vec<u64> = Vec::clone;
        let by_tables = |known| matches!(known, Known::ByTables { .. });
        assert!(by_tables(known(plain as *const () as usize as u64)));
        let untold = fusetools_test_untold as *const () as usize as u64;
        assert_eq!(known(untold + 1), Known::No);
        let other = fusetools_test_other_register as *const () as usize as u64;
        assert!(by_tables(known(other)));
        assert_eq!(known(other + 1), Known::No);
        // Through such code the unwinder would continue by the frame pointer, to what looks like the start of a thread.
        let mut spaces = Spaces::default();
        let map = crate::events::Map {
            time: 0,
            pid: 7,
            start,
            len: end - start,
            offset,
            path,
            build_id: Vec::new(),
        };
        spaces.push(
            &crate::events::Side::Map(Box::new(map)),
            &FxHashMap::default(),
        );
        let stack: Vec<u8> = [other + 2, 0, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let mask = 1 << BP | 1 << SP | 1 << IP;
        let registers = [0, 0x7000_0000, other];
        let mut unwinding = Unwinding::default();
        let mut none = std::iter::empty();
        let user = unwinding.chain(
            &Copied {
                mask,
                registers: &registers,
                stack: &stack,
                full: true,
            },
            &spaces,
            &Files::default(),
            7,
            &mut none,
        );
        let user = user.unwrap();
        assert_eq!(
            (user.chain, user.reach),
            (vec![other, other + 1], Reach::Cut)
        );
        // The next frame is beyond what was copied; or beyond all that there is.
        for (full, reach) in [(true, Reach::Copied), (false, Reach::Cut)] {
            let copy = Copied {
                mask,
                registers: &registers,
                stack: &[],
                full,
            };
            let user = unwinding
                .chain(
                    &copy,
                    &spaces,
                    &Files::default(),
                    7,
                    &mut std::iter::empty(),
                )
                .unwrap();
            assert_eq!((user.chain, user.reach), (vec![other], reach));
        }
        tables.eh_frame = None;
        tables.known.clear();
        assert_eq!(tables.known(vaddr), Known::NoTables);
        tables.known.clear();
        tables.go = true;
        assert_eq!(tables.known(vaddr), Known::Go);
    }

    #[test]
    fn gos_code_is_followed_by_its_frame_pointers() {
        const CODE: u64 = 0x40_0000;
        // In a function with a frame of two words. Its caller was called by the function with which a goroutine begins.
        let stack = [7, 8, 0x7020, CODE + 1, 0x7038, CODE + 2, 9, 0, CODE + 3];
        let mut read = |at: u64| stack.get((at as usize - 0x7000) / 8).copied().ok_or(());
        let code = |at| (CODE..CODE + 10).contains(&at);
        let in_go = |ip| FrameAddress::from_instruction_pointer(ip);
        let mut chain = |sp, bp| {
            let mut registers = UnwindRegsX86_64::new(CODE, sp, bp);
            let (mut frame, mut followed, mut callers) = (in_go(CODE), false, Vec::new());
            let end = loop {
                match of_go(frame, &mut registers, followed, code, &mut read) {
                    Ok(Some(caller)) => callers.push(caller - CODE),
                    end => break end,
                }
                followed = true;
                frame = FrameAddress::from_return_address(*callers.last().unwrap() + CODE).unwrap();
            };
            (callers, end)
        };
        assert_eq!(chain(0x7000, 0x7010), (vec![1, 2, 3], Ok(None)));
        // Without a frame of its own: its caller's, on top of the stack, does not count twice.
        assert_eq!(chain(0x7018, 0x7020), (vec![1, 2, 3], Ok(None)));
        // The frame pointer is unknown, or of another stack.
        assert_eq!(chain(0x7000, 0), (vec![], Err(())));
        assert_eq!(chain(0x7010, 0x7000), (vec![], Err(())));
    }
}
