//! Names of addresses: the kernel's from its list (/proc/kallsyms), a program's from the symbol tables of its files.
//!
//! The choice among several symbols of an address is perf's (tools/perf/util/symbol.c, symbol-elf.c), so that both show
//! the same. All of it is hostile input, and bounded by the size of the file read.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::elf::{
    FileHeader32, FileHeader64, EM_386, EM_X86_64, PF_X, PT_LOAD, STB_GLOBAL, STB_WEAK, STT_FUNC,
    STT_GNU_IFUNC, STT_NOTYPE, STV_HIDDEN, STV_INTERNAL,
};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym};
use object::{Endianness, FileKind};

use crate::programs::elf::{self, hex};
use crate::programs::files::Files;
use crate::programs::gopclntab;
use crate::programs::spaces::MappedFile;

/// Types of lines that only an extract of a kallsyms has (see `Kernel::extract`): a symbol of a stack, and the end of
/// the symbol before.
const FRAME: u8 = b'f';
const END: u8 = b'e';
/// Maximum size of a kallsyms in bytes; that of a large kernel has 15 MB.
pub(crate) const MOST_TEXT: u64 = 256 << 20;
/// Minimum number of symbols: every kernel has more, and fewer cannot name the addresses between them.
const FEW: usize = 5_000;
const PAGE: u64 = 4096;

/// Symbols of the kernel.
#[derive(Default)]
pub struct Kernel<'a> {
    text: Cow<'a, [u8]>,
    symbols: Vec<Symbol>,
}

struct Symbol {
    start: u64,
    end: u64,
    name: Range<usize>,
    module: Range<usize>,
}

impl<'a> Kernel<'a> {
    /// Read a kallsyms: lines "ADDRESS TYPE NAME", for a module followed by a tab and "[MODULE]". Return None if it
    /// holds too few symbols, or hides its addresses.
    pub fn new(text: Cow<'a, [u8]>) -> Option<Kernel<'a>> {
        let mut symbols = Vec::new();
        let mut ends = Vec::new();
        let extract = lines(&text).any(|(_, kind, ..)| kind == FRAME);
        for (start, kind, name, module) in lines(&text) {
            let wanted = match kind {
                END if extract => {
                    ends.push(start);
                    false
                }
                FRAME => true,
                b'T' | b't' | b'W' | b'w' => !extract,
                _ => false,
            };
            if wanted && start != 0 {
                symbols.push(Symbol {
                    start,
                    end: start,
                    name,
                    module,
                });
            }
        }
        if symbols.is_empty() || !extract && symbols.len() < FEW {
            return None;
        }
        // perf takes the last of several symbols at one address. But the marks of sections (__sched_text_start), which
        // in some kernels are where the first function is, name none.
        let marks = |symbol: &Symbol| {
            let name = &text[symbol.name.clone()];
            name.ends_with(b"_text_start") || name.ends_with(b"_text_end")
        };
        symbols.sort_by(|a, b| {
            let by_place = a.start.cmp(&b.start);
            by_place.then_with(|| marks(b).cmp(&marks(a)))
        });
        symbols.reverse();
        symbols.dedup_by_key(|symbol| symbol.start);
        symbols.reverse();
        ends.sort_unstable();
        for at in 0..symbols.len() {
            let next = symbols.get(at + 1);
            let symbol = &symbols[at];
            let mut end = next.map_or(u64::MAX, |next| next.start);
            if extract {
                let next_end = ends.partition_point(|&end| end <= symbol.start);
                end = ends
                    .get(next_end)
                    .map_or(end, |&next_end| next_end.min(end));
            } else if next.is_none_or(|next| next.module.is_empty() != symbol.module.is_empty()) {
                // There is a large gap between the kernel and its modules.
                let page = page_after(symbol.start.saturating_add(PAGE));
                end = end.min(page);
            }
            symbols[at].end = end;
        }
        Some(Kernel { text, symbols })
    }

    fn find(&self, address: u64) -> Option<&Symbol> {
        let at = self.symbols.partition_point(|s| s.start <= address);
        let symbol = &self.symbols[at.checked_sub(1)?];
        (address < symbol.end).then_some(symbol)
    }

    /// Return the function that contains an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let symbol = self.find(address)?;
        std::str::from_utf8(&self.text[symbol.name.clone()]).ok()
    }

    /// Return the address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        let line = lines(&self.text).find(|(.., at, _)| &self.text[at.clone()] == name.as_bytes());
        line.map(|(start, ..)| start)
    }

    /// Return the part of the list that names these addresses, small enough to be stored in a recording. Its lines have
    /// types of their own, so that nobody takes them for all of the kernel's symbols.
    pub fn extract(&self, addresses: impl Iterator<Item = u64>) -> Vec<u8> {
        let used: BTreeSet<usize> = addresses
            .filter_map(|address| {
                let at = self.symbols.partition_point(|s| s.start <= address);
                let at = at.checked_sub(1)?;
                (address < self.symbols[at].end).then_some(at)
            })
            .collect();
        let mut out = Vec::new();
        for &at in &used {
            let symbol = &self.symbols[at];
            out.extend(format!("{:016x} {} ", symbol.start, FRAME as char).bytes());
            out.extend(&self.text[symbol.name.clone()]);
            if !symbol.module.is_empty() {
                out.push(b'\t');
                out.extend(&self.text[symbol.module.clone()]);
            }
            out.push(b'\n');
            if !used.contains(&(at + 1)) || self.symbols[at + 1].start != symbol.end {
                out.extend(format!("{:016x} {} -\n", symbol.end, END as char).bytes());
            }
        }
        out
    }
}

/// Yield each line of a kallsyms: address, type, name, "[MODULE]" or nothing.
fn lines(text: &[u8]) -> impl Iterator<Item = (u64, u8, Range<usize>, Range<usize>)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || loop {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let len = rest
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len());
        let start = at;
        at += len + 1;
        if let Some((address, kind, name, module)) = line(&rest[..len]) {
            let placed = |range: Range<usize>| range.start + start..range.end + start;
            return Some((address, kind, placed(name), placed(module)));
        }
    })
}

fn line(line: &[u8]) -> Option<(u64, u8, Range<usize>, Range<usize>)> {
    let mut address = 0u64;
    let digits = line.iter().position(|&byte| byte == b' ')?;
    for &byte in &line[..digits] {
        address = address.checked_mul(16)? | u64::from((byte as char).to_digit(16)?);
    }
    let kind = *line.get(digits + 1)?;
    let name = digits + 3;
    let rest = line.get(name..)?;
    let space = |byte: &u8| byte.is_ascii_whitespace();
    let len = rest.iter().position(space).unwrap_or(rest.len());
    let module = name + len + rest[len..].iter().take_while(|byte| space(byte)).count();
    Some((address, kind, name..name + len, module..line.len()))
}

/// Functions of a file, by their place in it.
#[derive(Default)]
pub struct Table {
    /// Build id of the file in hexadecimal; empty if it has none.
    pub build_id: String,
    pub(crate) functions: Vec<Function>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub start: u64,
    pub end: u64,
    /// Name as in the symbol table.
    pub name: Box<str>,
    pub weak: bool,
    pub global: bool,
}

impl Table {
    /// Read the symbols of a program or library, and of its separate debug file if it has none itself. Return None if
    /// `files` has neither.
    pub fn of(file: &MappedFile, files: &Files) -> Option<Table> {
        let wanted = hex(&file.build_id);
        let Some(image) = files.open(file) else {
            return Table::debug(file, files, &wanted, None);
        };
        let main = Elf::parse(&image)?;
        let build_id = elf::build_id_in(&image).ok().flatten().unwrap_or(wanted);
        let debug = match main.symtab {
            true => None,
            false => Table::debug(file, files, &build_id, Some(&main)),
        };
        Some(debug.unwrap_or_else(|| Table::new(build_id, main.functions)))
    }

    /// Read the symbols of the debug file below `files` that has the file's build id. `offset`: where in the file that
    /// runs its code is mapped from, which a debug file does not tell. None: there is none, or the file is not known to
    /// have its code in one segment of pages of 4 KiB.
    pub fn by_id(build_id: &str, files: &Files, offset: u64) -> Option<Table> {
        let image = files.open_debug(&place_by_id(&files.root, build_id)?, build_id)?;
        let (start, size) = match FileKind::parse(&image[..]).ok()? {
            FileKind::Elf64 => code_of::<FileHeader64<Endianness>>(&image),
            FileKind::Elf32 => code_of::<FileHeader32<Endianness>>(&image),
            _ => None,
        }?;
        let page = start % PAGE;
        let code = (start - page, size.checked_add(page)?, offset);
        let debug = Elf::parse_placed(&image, Some(&[code]))?;
        (debug.symtab).then(|| Table::new(build_id.to_owned(), debug.functions))
    }

    /// Read the symbols of the debug file with that build id. `main`: the file that runs, which defines where in it an
    /// address lies.
    fn debug(
        file: &MappedFile,
        files: &Files,
        build_id: &str,
        main: Option<&Elf>,
    ) -> Option<Table> {
        let place = files.place(file)?;
        let path = Path::new(&file.path);
        let (folder, mut name) = (path.parent()?, path.file_name()?.to_owned());
        name.push(".debug");
        let folder = folder.strip_prefix("/").ok()?;
        let places = files.roots(&place).into_iter().flat_map(|root| {
            let all = root.join("usr/lib/debug");
            let by_id = place_by_id(&root, build_id);
            // Default places of .gnu_debuglink.
            let beside = [
                root.join(folder).join(".debug").join(&name),
                root.join(folder).join(&name),
                all.join(folder).join(&name),
            ];
            by_id.into_iter().chain(beside)
        });
        places.into_iter().find_map(|place| {
            let debug = files.open_debug(&place, build_id)?;
            let mut debug = Elf::parse_placed(&debug, main.map(|main| &main.loads[..]))?;
            if !debug.symtab {
                return None;
            }
            if let Some(main) = main {
                debug.functions.extend(main.functions.iter().cloned());
            }
            Some(Table::new(build_id.to_owned(), debug.functions))
        })
    }

    fn new(build_id: String, mut functions: Vec<Function>) -> Table {
        functions.sort_by_key(|function| function.start);
        for at in 0..functions.len() {
            if functions[at].end == functions[at].start {
                let next = functions.get(at + 1).map(|next| next.start);
                functions[at].end =
                    next.unwrap_or(page_after(functions[at].start).saturating_add(PAGE));
            }
        }
        // dedup_by passes the later one first.
        functions.dedup_by(|later, earlier| {
            if later.start != earlier.start {
                return false;
            }
            if !first_is_better(earlier, later) {
                std::mem::swap(earlier, later);
            }
            true
        });
        Table {
            build_id,
            functions,
        }
    }

    /// Return the function at a place in the file, named as in the symbol table.
    pub fn name(&self, offset: u64) -> Option<&str> {
        self.find(offset).map(|function| &*function.name)
    }

    pub(crate) fn find(&self, offset: u64) -> Option<&Function> {
        let at = self.functions.partition_point(|f| f.start <= offset);
        // A function may lie within another.
        let mut near = self.functions[at.saturating_sub(8)..at].iter().rev();
        near.find(|f| offset < f.end)
    }
}

/// Return where below a root the debug file of a build id is. None: the id is unknown.
fn place_by_id(root: &Path, build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id
        .split_at_checked(2)
        .filter(|(_, rest)| !rest.is_empty())?;
    Some(root.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// Return the address and the size in memory of the only executable segment. None: there are several, or pages may be
/// larger than PAGE.
fn code_of<Class: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<(u64, u64)> {
    let header = Class::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if ![EM_X86_64, EM_386].contains(&header.e_machine(endian)) {
        return None;
    }
    let segments = header.program_headers(endian, data).ok()?.iter();
    let mut code = segments
        .filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian).contains(PF_X))
        .map(|s| (s.p_vaddr(endian).into(), s.p_memsz(endian).into()));
    code.next().filter(|_| code.next().is_none())
}

/// Return whether perf prefers `a` to `b`, two symbols of one address.
fn first_is_better(a: &Function, b: &Function) -> bool {
    let size = |f: &Function| f.end - f.start;
    if (size(a) == 0) != (size(b) == 0) {
        return size(b) == 0;
    }
    if a.weak != b.weak {
        return b.weak;
    }
    if a.global != b.global {
        return a.global;
    }
    let (a, b) = (elf::demangle(&a.name), elf::demangle(&b.name));
    let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
    if underscores(&a) != underscores(&b) {
        return underscores(&a) < underscores(&b);
    }
    a.len() >= b.len()
}

/// Return the first address of a page from here on.
fn page_after(address: u64) -> u64 {
    address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// PT_LOAD segments: vaddr, size in memory, offset in the file.
type Loads = [(u64, u64, u64)];

struct Elf {
    loads: Vec<(u64, u64, u64)>,
    functions: Vec<Function>,
    /// The file has a full symbol table, besides that of the dynamic linker.
    symtab: bool,
}

impl Elf {
    fn parse(data: &[u8]) -> Option<Elf> {
        Elf::parse_placed(data, None)
    }

    /// Parse a file. `loads`: segments of the file that runs, if `data` is its debug file.
    fn parse_placed(data: &[u8], loads: Option<&Loads>) -> Option<Elf> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => Elf::parse_class::<FileHeader64<Endianness>>(data, loads),
            Ok(FileKind::Elf32) => Elf::parse_class::<FileHeader32<Endianness>>(data, loads),
            _ => None,
        }
    }

    fn parse_class<Class: FileHeader<Endian = Endianness>>(
        data: &[u8],
        loads: Option<&Loads>,
    ) -> Option<Elf> {
        let header = Class::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let own: Vec<(u64, u64, u64)> = header
            .program_headers(endian, data)
            .ok()?
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
            .map(|segment| {
                (
                    segment.p_vaddr(endian).into(),
                    segment.p_memsz(endian).into(),
                    segment.p_offset(endian).into(),
                )
            })
            .collect();
        let place = |address: u64| {
            loads
                .unwrap_or(&own)
                .iter()
                .find_map(|&(vaddr, size, offset)| {
                    let inside = address.checked_sub(vaddr).filter(|&inside| inside < size)?;
                    offset.checked_add(inside)
                })
        };
        let mut functions = Vec::new();
        let mut symtab = false;
        // Damaged tables may all point at the same long bytes: read at most a few times the file's size of them.
        let mut budget = data.len().saturating_mul(4);
        for (full, table) in elf::symbol_tables::<Class>(endian, data, &sections) {
            let Ok(table) = table else {
                continue;
            };
            symtab |= full && !table.is_empty();
            for (index, symbol) in table.enumerate() {
                if symbol.is_undefined(endian) {
                    continue;
                }
                match symbol.st_type() {
                    STT_FUNC | STT_GNU_IFUNC => {}
                    // A label of assembly, in code.
                    STT_NOTYPE => {
                        let hidden = matches!(symbol.st_visibility(), STV_HIDDEN | STV_INTERNAL);
                        let section = table.symbol_section(endian, symbol, index).ok().flatten();
                        let section = section.and_then(|s| sections.section(s).ok());
                        let code = section.is_some_and(|section| {
                            let name = sections.section_name(endian, section).unwrap_or(b"");
                            name.windows(4).any(|part| part == b"text")
                        });
                        if hidden || !code {
                            continue;
                        }
                    }
                    _ => continue,
                }
                let Ok(name) = table.symbol_name(endian, symbol) else {
                    continue;
                };
                budget = match budget.checked_sub(name.len() + 1) {
                    Some(left) => left,
                    None => break,
                };
                let Ok(name) = std::str::from_utf8(name) else {
                    continue;
                };
                let Some(start) = place(symbol.st_value(endian).into()) else {
                    continue;
                };
                if name.is_empty() {
                    continue;
                }
                let size: u64 = symbol.st_size(endian).into();
                functions.push(Function {
                    start,
                    end: start.saturating_add(size),
                    name: name.into(),
                    weak: symbol.st_bind() == STB_WEAK,
                    global: symbol.st_bind() == STB_GLOBAL,
                });
            }
        }
        if loads.is_none() && !symtab {
            // The table that a Go program without a symbol table keeps for itself.
            for (address, name, size) in gopclntab::functions(data).unwrap_or_default() {
                functions.extend(place(address).map(|start| Function {
                    start,
                    end: start.saturating_add(size),
                    name: name.into(),
                    weak: false,
                    global: false,
                }));
            }
        }
        if loads.is_none() {
            Elf::add_plt::<Class>(&sections, endian, data, &mut functions, budget);
        }
        Some(Elf {
            loads: own,
            functions,
            symtab,
        })
    }

    /// Add the jumps to other libraries' functions, `NAME@plt`. There is one for each entry of `.rela.plt`, in its
    /// order. Before them is one more of the same size (on aarch64 of two).
    fn add_plt<Class: FileHeader<Endian = Endianness>>(
        sections: &SectionTable<Class>,
        endian: Endianness,
        data: &[u8],
        functions: &mut Vec<Function>,
        mut budget: usize,
    ) -> Option<()> {
        let (_, plt) = sections.section_by_name(endian, b".plt")?;
        let (_, relocations) = sections.section_by_name(endian, b".rela.plt")?;
        let (entries, link) = relocations.rela(endian, data).ok()??;
        let symbols = sections.symbol_table_by_index(endian, data, link).ok()?;
        let size = match plt.sh_entsize(endian).into() {
            0 => 16,
            size => size,
        };
        let aarch64 = data.get(18..20) == Some(&[183, 0]);
        let offset: u64 = plt.sh_offset(endian).into();
        let mut at = offset + if aarch64 { 32 } else { size };
        for entry in entries {
            let start = at;
            at = at.checked_add(size)?;
            let Some(index) = entry.symbol(endian, false) else {
                continue;
            };
            let symbol = symbols.symbol(index).ok()?;
            let name = std::str::from_utf8(symbols.symbol_name(endian, symbol).ok()?).ok()?;
            budget = budget.checked_sub(name.len())?;
            functions.push(Function {
                start,
                end: at,
                name: format!("{}@plt", elf::demangle(name)).into(),
                weak: false,
                global: true,
            });
        }
        Some(())
    }
}
