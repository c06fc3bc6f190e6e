//! Functions of Go programs without a symbol table, from `.gopclntab`, which every Go program needs.
//!
//! Layouts of Go 1.2, 1.16, 1.18 and 1.20 (debug/gosym/pclntab.go and runtime/symtab.go of Go). The file is hostile
//! input: a table that contradicts itself gives no function at all, since a probe at a wrong address breaks the
//! program.

use object::elf::{FileHeader32, FileHeader64, PT_LOAD, SHT_RELA};
use object::elf::{
    R_390_RELATIVE, R_AARCH64_RELATIVE, R_PPC64_RELATIVE, R_RISCV_RELATIVE, R_X86_64_RELATIVE,
};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};
use object::{Endianness, FileKind};

/// Mark for which the runtime searches its own file (debug/buildinfo).
const BUILD_INFO: &[u8] = b"\xff Go buildinf:";
const LONGEST: usize = 4096; // bytes of a name
/// Numbers of words in `runtime.moduledata`, which begins with the table's address.
const MINPC: u64 = 20;
const TEXT: u64 = 22;
/// Maximum number of places in the file that may be a moduledata.
const MOST_MODULES: usize = 64;

/// Return whether a file without section headers is a Go program.
pub(crate) fn is_marked(data: &[u8]) -> bool {
    data.windows(BUILD_INFO.len()).any(|at| at == BUILD_INFO)
}

/// Return whether a file has the table.
pub(crate) fn is_there(data: &[u8]) -> bool {
    fn of<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<bool> {
        let header = Elf::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let named = |section| sections.section_name(endian, section).unwrap_or(b"");
        Some(sections.iter().any(|s| named(s).ends_with(b".gopclntab")))
    }
    let there = match FileKind::parse(data) {
        Ok(FileKind::Elf64) => of::<FileHeader64<Endianness>>(data),
        Ok(FileKind::Elf32) => of::<FileHeader32<Endianness>>(data),
        _ => None,
    };
    there.unwrap_or(false)
}

/// Return whether functions get their arguments in registers: on some processors since Go 1.17, on all since 1.18,
/// which has another form of the table. None: there is no table.
pub(crate) fn passes_registers(data: &[u8]) -> Option<bool> {
    fn of<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<bool> {
        let (table, _) = table::<Elf>(data)?;
        Some(Layout::of(table)?.relative)
    }
    match FileKind::parse(data).ok()? {
        FileKind::Elf64 => of::<FileHeader64<Endianness>>(data),
        FileKind::Elf32 => of::<FileHeader32<Endianness>>(data),
        _ => None,
    }
}

/// Return the size in bytes of the stack check at a function's beginning (cmd/internal/obj/x86/obj6.go,
/// arm64/obj7.go). 0: there is none, or its form is unknown.
pub(crate) fn stack_check(code: &[u8]) -> u64 {
    // lea -N(%rsp),%r12; cmp 0x10(%r14),%r12, or cmp 0x10(%r14),%rsp, or mov %rsp,%r12; sub $N,%r12; jb;
    // cmp 0x10(%r14),%r12; then jbe
    let compare = match code {
        [0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, _, _, _, _, rest @ ..] => match rest {
            [0x72, _, 0x4d, 0x3b, 0x66, 0x10, ..] => 16,
            [0x0f, 0x82, _, _, _, _, 0x4d, 0x3b, 0x66, 0x10, ..] => 20,
            _ => return 0,
        },
        [0x4c, 0x8d, 0x64, 0x24, _, 0x4d, 0x3b, 0x66, 0x10, ..] => 9,
        [0x4c, 0x8d, 0xa4, 0x24, _, _, _, _, 0x4d, 0x3b, 0x66, 0x10, ..] => 12,
        [0x49, 0x3b, 0x66, 0x10, ..] => 4,
        // ldr x16,[x28,#16]; cmp sp,x16; b.ls
        [0x90, 0x0b, 0x40, 0xf9, 0xff, 0x63, 0x30, 0xeb, branch, _, _, 0x54, ..] => {
            return if branch & 0x1f == 9 { 12 } else { 0 };
        }
        _ => return 0,
    };
    match &code[compare..] {
        [0x76, _, ..] => compare as u64 + 2,
        [0x0f, 0x86, _, _, _, _, ..] => compare as u64 + 6,
        _ => 0,
    }
}

/// Return (virtual address, name, size in bytes) of each function, by address. None: there is no table, or a damaged
/// one.
pub(crate) fn functions(data: &[u8]) -> Option<Vec<(u64, String, u64)>> {
    match FileKind::parse(data).ok()? {
        FileKind::Elf64 => {
            located::<FileHeader64<Endianness>, _>(data, |layout, text| layout.functions(text))
        }
        FileKind::Elf32 => {
            located::<FileHeader32<Endianness>, _>(data, |layout, text| layout.functions(text))
        }
        _ => None,
    }
}

/// Content of the stack below a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// The function's frame of so many bytes, and above it the return address.
    Caller(u64),
    /// Nothing: a goroutine, or a thread, begins there.
    Nothing,
    /// Another stack.
    Other,
}

/// Distance in bytes from the stack pointer to the function's return address, for each instruction of a 64-bit Go
/// program (`pcsp` of runtime.pcvalue, runtime/symtab.go).
#[derive(Debug, Default)]
pub(crate) struct Depths {
    /// By address: start, end, and the place in `values`; `Err` for a function that nobody called.
    functions: Vec<(u64, u64, Result<u64, Below>)>,
    values: Vec<u8>,
    /// Minimum size of an instruction in bytes.
    quantum: u64,
}

/// Functions in which the runtime ends its own tracebacks (topofstack, runtime/traceback.go), without their ABI.
/// Goroutines and threads begin with the first ones; the others continue on another stack.
const BEGINNINGS: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go"];
const SWITCHES: [&str; 5] = [
    "runtime.mcall",
    "runtime.systemstack",
    "runtime.morestack",
    "runtime.asmcgocall",
    "runtime.cgocallback",
];
/// Maximum number of changes of a function's stack pointer that are looked at.
const MOST_CHANGES: usize = 1 << 16;

impl Depths {
    pub fn of(data: &[u8]) -> Option<Depths> {
        located::<FileHeader64<Endianness>, _>(data, |layout, text| layout.depths(text))
    }

    /// Return the stack's content below the function at a virtual address. None: it is in no function, or the table is
    /// damaged.
    pub fn at(&self, address: u64) -> Option<Below> {
        let after = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        let (start, end, place) = *self.functions[..after].last()?;
        let place = match place {
            _ if address >= end => return None,
            Err(known) => return Some(known),
            Ok(place) => usize::try_from(place).ok()?,
        };
        let mut bytes = self.values.get(place..)?.iter();
        let mut number = || {
            let mut number = 0u64;
            for shift in (0..35).step_by(7) {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return Some(number);
                }
            }
            None
        };
        let (mut value, mut upto) = (-1i64, start);
        for change in 0..MOST_CHANGES {
            let by = number()?;
            if by == 0 && change > 0 {
                return None;
            }
            value += (by >> 1) as i64 ^ -((by & 1) as i64);
            upto = upto.checked_add(number()?.checked_mul(self.quantum)?)?;
            if address < upto {
                return u64::try_from(value).ok().map(Below::Caller);
            }
        }
        None
    }
}

/// Return the table and its address.
fn table<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<(Bytes<'_>, u64)> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let section = sections.iter().find(|section| {
        let name = sections.section_name(endian, section).unwrap_or(b"");
        name.ends_with(b".gopclntab")
    })?;
    let table = Bytes {
        data: section.data(endian, data).ok()?,
        big: header.is_big_endian(),
    };
    Some((table, section.sh_addr(endian).into()))
}

/// Return what `tell` finds in the table, given the address from which the table counts code.
fn located<Elf: FileHeader<Endian = Endianness>, T>(
    data: &[u8],
    tell: impl FnOnce(&Layout, u64) -> Option<T>,
) -> Option<T> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let (table, address) = table::<Elf>(data)?;
    let layout = Layout::of(table)?;
    let text = match layout.relative {
        false => 0,
        true => {
            let entry = layout.entry(0)?;
            let size = u64::from(layout.pointer);
            modules::<Elf>(data, header, endian, address, size)
                .into_iter()
                .find_map(|(minpc, text)| (text.checked_add(entry)? == minpc).then_some(text))?
        }
    };
    tell(&layout, text)
}

/// Return (minpc, text) of each possible moduledata of the table at `address`.
fn modules<Elf: FileHeader<Endian = Endianness>>(
    data: &[u8],
    header: &Elf,
    endian: Endianness,
    address: u64,
    size: u64,
) -> Vec<(u64, u64)> {
    let mut pairs = Vec::new();
    // Values as the linker left them: a position-independent program has zeros there, and relocations.
    for segment in header.program_headers(endian, data).unwrap_or(&[]) {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let Ok(bytes) = segment.data(endian, data) else {
            continue;
        };
        let bytes = Bytes {
            data: bytes,
            big: header.is_big_endian(),
        };
        let words = bytes.data.len() as u64 / size;
        for at in (0..words).map(|word| word * size) {
            if bytes.word(at, size) != Some(address) || pairs.len() >= MOST_MODULES {
                continue;
            }
            let word = |number: u64| bytes.word(at + number * size, size);
            pairs.extend(word(MINPC).zip(word(TEXT)));
        }
    }
    let Ok(sections) = header.sections(endian, data) else {
        return pairs;
    };
    let relocations = || {
        let tables = sections
            .iter()
            .filter(|s| s.sh_type(endian) == SHT_RELA)
            .filter_map(|s| s.rela(endian, data).ok().flatten());
        tables
            .flat_map(|(table, _)| table)
            .filter_map(|relocation| {
                let addend: i64 = relocation.r_addend(endian).into();
                let offset: u64 = relocation.r_offset(endian).into();
                let kind = relocation.r_type(endian, false);
                let relative = matches!(
                    kind,
                    R_X86_64_RELATIVE
                        | R_AARCH64_RELATIVE
                        | R_PPC64_RELATIVE
                        | R_390_RELATIVE
                        | R_RISCV_RELATIVE
                );
                relative.then_some((offset, addend as u64))
            })
    };
    let at: Vec<u64> = relocations()
        .filter(|(_, value)| *value == address)
        .map(|(offset, _)| offset)
        .take(MOST_MODULES)
        .collect();
    if !at.is_empty() {
        let mut ends = vec![(None, None); at.len()];
        for (offset, value) in relocations() {
            for (start, (minpc, text)) in at.iter().zip(&mut ends) {
                match offset.checked_sub(*start) {
                    Some(inside) if inside == MINPC * size => *minpc = Some(value),
                    Some(inside) if inside == TEXT * size => *text = Some(value),
                    _ => {}
                }
            }
        }
        pairs.extend(ends.into_iter().filter_map(|(minpc, text)| minpc.zip(text)));
    }
    pairs
}

#[derive(Clone, Copy)]
struct Bytes<'a> {
    data: &'a [u8],
    big: bool,
}

impl<'a> Bytes<'a> {
    fn word(&self, at: u64, size: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.data.get(at..at.checked_add(size as usize)?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(match self.big {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        })
    }

    fn from(&self, at: u64) -> Option<Bytes<'a>> {
        let data = self.data.get(usize::try_from(at).ok()?..)?;
        Some(Bytes { data, ..*self })
    }
}

/// Parts of a table.
struct Layout<'a> {
    names: Bytes<'a>,
    /// Tables of values by address.
    values: Bytes<'a>,
    quantum: u8,
    /// List of functions: the start of each and the place of its details; then the end of the last.
    list: Bytes<'a>,
    /// Base of the offsets in the table.
    infos: Bytes<'a>,
    count: u64,
    pointer: u8,
    /// Size of a field of the list in bytes.
    field: u64,
    /// Starts count from the beginning of the code.
    relative: bool,
}

impl<'a> Layout<'a> {
    fn of(table: Bytes<'a>) -> Option<Layout<'a>> {
        let magic = table.word(0, 4)?;
        let pointer = *table.data.get(7)?;
        if table.word(4, 2)? != 0 || !matches!(pointer, 4 | 8) {
            return None;
        }
        let size = u64::from(pointer);
        let word = |number: u64| table.word(8 + number * size, size);
        let count = word(0)?;
        let (names, values, list, infos, relative) = match magic {
            0xffff_fffb => (0, 0, 8 + size, 0, false),
            0xffff_fffa => (word(2)?, word(5)?, word(6)?, word(6)?, false),
            0xffff_fff0 | 0xffff_fff1 => (word(3)?, word(6)?, word(7)?, word(7)?, true),
            _ => return None,
        };
        let field = if relative { 4 } else { size };
        let list = table.from(list)?;
        let needed = count.checked_mul(2)?.checked_add(1)?.checked_mul(field)?;
        if count == 0 || needed > list.data.len() as u64 {
            return None;
        }
        Some(Layout {
            names: table.from(names)?,
            values: table.from(values)?,
            quantum: *table.data.get(6)?,
            list,
            infos: table.from(infos)?,
            count,
            pointer,
            field,
            relative,
        })
    }

    /// Return the start of the function with that number; after the last, its end.
    fn entry(&self, number: u64) -> Option<u64> {
        self.list.word(2 * number * self.field, self.field)
    }

    /// Return its start, its end, its name and the place of its details.
    fn function(&self, number: u64) -> Option<(u64, u64, &'a [u8], u64)> {
        let (start, end) = (self.entry(number)?, self.entry(number + 1)?);
        let info = self.list.word((2 * number + 1) * self.field, self.field)?;
        let name = self.infos.word(info.checked_add(self.field)?, 4)?;
        if end < start || self.infos.word(info, self.field)? != start {
            return None;
        }
        let name = self.names.from(name)?.data;
        let name = &name[..name.len().min(LONGEST)];
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        Some((start, end, name, info))
    }

    fn functions(&self, text: u64) -> Option<Vec<(u64, String, u64)>> {
        let mut functions = Vec::new();
        // Damaged tables may all point at the same long name.
        let mut budget = self.names.data.len().saturating_mul(4);
        for number in 0..self.count {
            let (start, end, name, _) = self.function(number)?;
            budget = budget.checked_sub(name.len() + 1)?;
            let name = std::str::from_utf8(name).ok()?;
            if !name.is_empty() {
                functions.push((text.checked_add(start)?, name.to_owned(), end - start));
            }
        }
        Some(functions)
    }

    fn depths(&self, text: u64) -> Option<Depths> {
        let mut functions = Vec::new();
        for number in 0..self.count {
            let (start, end, name, info) = self.function(number)?;
            let name = name.strip_suffix(b".abi0").unwrap_or(name);
            let among = |known: &[&str]| known.iter().any(|known| known.as_bytes() == name);
            // Fields after its start: name, arguments, frame or deferreturn, each of 4 bytes.
            let place = self.infos.word(info.checked_add(self.field + 12)?, 4)?;
            let place = match () {
                () if among(&BEGINNINGS) => Err(Below::Nothing),
                () if among(&SWITCHES) => Err(Below::Other),
                () => Ok(place),
            };
            functions.push((text.checked_add(start)?, text.checked_add(end)?, place));
        }
        functions.sort_unstable_by_key(|(start, ..)| *start);
        Some(Depths {
            functions,
            values: self.values.data.to_vec(),
            quantum: u64::from(self.quantum),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(out: &mut Vec<u8>, value: u64, size: usize, big: bool) {
        let bytes = value.to_le_bytes();
        match big {
            true => out.extend(bytes[..size].iter().rev()),
            false => out.extend(&bytes[..size]),
        }
    }

    /// Return a table of three functions, in one of the layouts.
    fn table(magic: u64, size: usize, big: bool) -> Vec<u8> {
        let functions = [
            (0x40u64, "main.main"),
            (0x60, "a/b.(*T).Read"),
            (0xa0, "runtime.goexit.abi0"),
        ];
        let relative = matches!(magic, 0xffff_fff0 | 0xffff_fff1);
        let field = if relative { 4 } else { size };
        let mut names = vec![0];
        let mut places = Vec::new();
        for (_, name) in functions {
            places.push(names.len() as u64);
            names.extend(name.as_bytes());
            names.push(0);
        }
        let words: usize = match magic {
            0xffff_fffb => 1,
            0xffff_fffa => 7,
            _ => 8,
        };
        let old = magic == 0xffff_fffb;
        let list_at = 8 + words * size;
        let list_len = (2 * functions.len() + 1) * field;
        let infos_len = functions.len() * (field + 16);
        // 0 for 4 bytes, then 0x18; 0, 0x88 from the 8th to the 56th, 0; damaged.
        let values: [&[u8]; 3] = [
            &[2, 4, 0x30, 0x1c, 0],
            &[2, 8, 0x90, 2, 48, 0x8f, 2, 8, 0],
            &[0x80],
        ];
        let names_at = list_at + list_len + infos_len;
        let values_at = names_at + names.len();
        let base = if old { 0 } else { list_at };
        let mut out = Vec::new();
        put(&mut out, magic, 4, big);
        out.extend([0, 0, 1, size as u8]);
        for word in 0..words {
            let value = match (word, magic) {
                (0, _) => functions.len() as u64,
                (2, 0xffff_fffa) | (3, 0xffff_fff0 | 0xffff_fff1) => names_at as u64,
                (6, 0xffff_fffa) | (7, 0xffff_fff0 | 0xffff_fff1) => list_at as u64,
                (5, 0xffff_fffa) | (6, 0xffff_fff0 | 0xffff_fff1) => values_at as u64,
                _ => 0,
            };
            put(&mut out, value, size, big);
        }
        for (i, (start, _)) in functions.iter().enumerate() {
            put(&mut out, *start, field, big);
            let at = list_at + list_len + i * (field + 16) - base;
            put(&mut out, at as u64, field, big);
        }
        put(&mut out, 0xb0, field, big);
        let mut value_at = if old { values_at as u64 } else { 0 };
        for (((start, _), place), values) in functions.iter().zip(&places).zip(values) {
            put(&mut out, *start, field, big);
            let place = place + if old { names_at as u64 } else { 0 };
            put(&mut out, place, 4, big);
            out.extend([0; 8]);
            put(&mut out, value_at, 4, big);
            value_at += values.len() as u64;
        }
        out.extend(names);
        out.extend(values.concat());
        out
    }

    fn read(data: &[u8], big: bool) -> Option<Vec<(u64, String, u64)>> {
        Layout::of(Bytes { data, big })?.functions(0)
    }

    #[test]
    fn every_layout_is_read() {
        let expected = Some(vec![
            (0x40, "main.main".to_owned(), 0x20),
            (0x60, "a/b.(*T).Read".to_owned(), 0x40),
            (0xa0, "runtime.goexit.abi0".to_owned(), 0x10),
        ]);
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
            for (size, big) in [(4, false), (4, true), (8, false), (8, true)] {
                assert_eq!(read(&table(magic, size, big), big), expected, "{magic:x}");
            }
        }
    }

    #[test]
    fn depths_of_functions_in_the_stack() {
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
            for (size, big) in [(8, false), (8, true)] {
                let data = &table(magic, size, big);
                let layout = Layout::of(Bytes { data, big }).unwrap();
                let depths = layout.depths(0x1000).unwrap();
                let at = |address: u64| depths.at(0x1000 + address);
                let caller = |depth| Some(Below::Caller(depth));
                let first = [0x3f, 0x40, 0x43, 0x44, 0x5f].map(at);
                assert_eq!(
                    first,
                    [None, caller(0), caller(0), caller(0x18), caller(0x18)]
                );
                let second = [0x60, 0x67, 0x68, 0x97, 0x98, 0x9f].map(at);
                assert_eq!(second, [0, 0, 0x88, 0x88, 0, 0].map(caller));
                // The table is not asked where a goroutine begins.
                assert_eq!(
                    [at(0xa0), at(0xaf), at(0xb0)],
                    [Some(Below::Nothing), Some(Below::Nothing), None]
                );
            }
        }
    }

    #[test]
    fn checks_of_the_stack() {
        let small = [0x49, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x55];
        let far = [0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1, 2, 3, 4, 0x55];
        let large = [
            0x4c, 0x8d, 0x64, 0x24, 0x80, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0, 0x55,
        ];
        let huge = [
            0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0xa0, 0x0f, 0, 0, 0x72, 0x70, 0x4d, 0x3b, 0x66,
            0x10, 0x76, 0x6a, 0x55,
        ];
        assert_eq!(stack_check(&huge), 18);
        let arm = [
            0x90, 0x0b, 0x40, 0xf9, 0xff, 0x63, 0x30, 0xeb, 0xc9, 0x05, 0, 0x54,
        ];
        assert_eq!(stack_check(&small), 6);
        assert_eq!(stack_check(&far), 10);
        assert_eq!(stack_check(&large), 11);
        assert_eq!(stack_check(&arm), 12);
        for at in 0..small.len() - 1 {
            assert_eq!(stack_check(&small[..at]), if at == 6 { 6 } else { 0 });
        }
        assert_eq!(stack_check(&[0x55, 0x48, 0x89, 0xe5]), 0);
    }

    #[test]
    fn damaged_tables_end() {
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1, 0] {
            let good = table(magic, 8, false);
            for cut in 0..good.len() {
                let _ = read(&good[..cut], false);
            }
            for at in 0..good.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut bad = good.clone();
                    bad[at] = byte;
                    let _ = (read(&bad, false), read(&bad, true));
                    let layout = Layout::of(Bytes {
                        data: &bad,
                        big: false,
                    });
                    if let Some(depths) = layout.and_then(|layout| layout.depths(0)) {
                        let known = (0x30u64..0xc0).filter_map(|at| depths.at(at));
                        assert!(known.count() <= 0x90);
                    }
                }
            }
        }
    }
}
