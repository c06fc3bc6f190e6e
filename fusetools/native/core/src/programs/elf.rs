//! Functions of an ELF file, the place of a uprobe on each, and readable names.
//!
//! The file is hostile input: the amount read is bounded by the file's size, whatever its tables say.

use std::fmt::{self, Write as _};
use std::path::Path;

use object::elf::{
    FileHeader32, FileHeader64, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64,
};
use object::elf::{NT_GNU_BUILD_ID, PF_X, PT_LOAD, SHT_DYNSYM, SHT_NOTE, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{
    FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable,
};
use object::{Endianness, FileKind};

use crate::input;
use crate::programs::gopclntab;
use crate::programs::handlers;
use crate::programs::prologue::{self, code};
use crate::programs::starts;

/// Function that can be probed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Virtual address in the file (`st_value`).
    pub address: u64,
    /// Name as in the symbol table (mangled), without a symbol version.
    pub name: String,
    /// Size in bytes; 0 if the table has none.
    pub size: u64,
    /// Offset in the file for the kernel's `uprobe_events` (Documentation/trace/uprobetracer.rst). It is the
    /// function's, or some instructions further, where a probe is cheap or, in Go, is passed once.
    pub offset: u64,
}

/// Return those offsets (`Function::offset`) at which the kernel would single-step a probe's instruction. Empty for
/// other architectures than x86-64.
pub fn stepped(path: &Path, offsets: &[u64]) -> Result<Vec<u64>, Error> {
    let data = read(path)?;
    // e_machine of an Elf64_Ehdr
    let machine = data
        .get(18..20)
        .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if !matches!(FileKind::parse(&*data), Ok(FileKind::Elf64)) || machine != Some(EM_X86_64.0) {
        return Ok(Vec::new());
    }
    let steps = |offset: &u64| !prologue::is_emulated(code(&data, *offset));
    Ok(offsets.iter().copied().filter(steps).collect())
}

/// Facts that determine the probes that a file may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Machine as in `uname -m` ("x86_64", "i386", "aarch64" …); else "machine N" (`e_machine`).
    pub machine: String,
    /// Language whose runtime moves its stacks or reads the return addresses on them, and so does not survive a return
    /// probe. Empty: none is known. `OLD_GO`: Go whose functions do not get their arguments in registers.
    pub runtime: String,
    /// Imported functions of libfuse's API (`fuse_…`), sorted.
    pub imports: Vec<String>,
}

/// Beginning of the names of handlers in a program with libfuse inside.
const INSIDE: &str = "fuse_ll_ops.";

const OLD_GO: &str = "Go (before 1.18)";

/// Failure and its reason, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub what: String,
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Error {}

pub(crate) fn error(path: &Path, why: impl fmt::Display) -> Error {
    Error {
        what: format!("cannot read the symbols of {}", path.display()),
        why: why.to_string(),
    }
}

/// Return where the variable `name` is that a file exports (its virtual address), and where the file's code is.
pub fn exported(path: &Path, name: &str) -> Result<starts::Exported, Error> {
    starts::exported_in(&read(path)?, name).map_err(|why| error(path, why))
}

/// Return which of these virtual addresses are starts of functions, in the order of the file's tables.
pub fn starts(path: &Path, addresses: &[u64]) -> Result<Vec<starts::Start>, Error> {
    starts::starts_in(&read(path)?, addresses).map_err(|why| error(path, why))
}

/// Return the functions in executable segments, sorted by address then name, without the `.cold` halves that compilers
/// split off. They come from `.symtab` and `.dynsym`; in a Go program without a symbol table, from its `.gopclntab`; in
/// libfuse and in stripped programs with libfuse inside, also from its handlers of requests.
///
/// The offset of a Go function is after its stack check, since it starts again when its stack has grown. `debug` is a
/// separate debug file, which adds symbols; if both files have a build id, it must be the same. Offsets come from
/// `path`'s own program headers, since those of a debug file are not its own.
pub fn functions(path: &Path, debug: Option<&Path>) -> Result<Vec<Function>, Error> {
    let main = read(path)?;
    let image = Image::parse(&main).map_err(|why| error(path, why))?;
    let mut more = Vec::new();
    if let Some(debug) = debug {
        let map = read(debug)?;
        let other = Image::parse(&map).map_err(|why| error(debug, why))?;
        if let (Some(a), Some(b)) = (&image.build_id, &other.build_id) {
            if a != b {
                return Err(error(
                    debug,
                    format!("its build id is {b}, that of {} is {a}", path.display()),
                ));
            }
        }
        more = other.symbols;
    }
    Ok(image.functions(&main, more))
}

/// Return the functions of a file's bytes.
pub fn functions_in(data: &[u8]) -> Result<Vec<Function>, String> {
    Ok(Image::parse(data)?.functions(data, Vec::new()))
}

/// Return the facts that determine the probes that a file may have.
pub fn about(path: &Path) -> Result<About, Error> {
    about_in(&read(path)?).map_err(|why| error(path, why))
}

/// Return these facts for a file's bytes.
pub fn about_in(data: &[u8]) -> Result<About, String> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => about_class::<FileHeader64<Endianness>>(data),
        Ok(FileKind::Elf32) => about_class::<FileHeader32<Endianness>>(data),
        _ => return Err("it is not an ELF file".into()),
    }
    .map_err(|Damage(why)| format!("damaged ELF file: {why}"))
}

/// Maximum size of a file; programs with full debug information have some 300 MB.
pub(crate) const MOST: u64 = 512 << 20;

/// Maximum number of imports from libfuse that are read: it exports about 200.
const MOST_IMPORTS: usize = 1000;

fn about_class<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<About, Damage> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let machine = match (header.e_machine(endian), header.is_type_64()) {
        (EM_X86_64, true) => "x86_64".into(),
        (EM_386, _) => "i386".into(),
        (EM_AARCH64, true) => "aarch64".into(),
        (EM_ARM, _) => "arm".into(),
        (EM_RISCV, true) => "riscv64".into(),
        (EM_PPC64, _) if header.is_little_endian() => "ppc64le".into(),
        (EM_S390, true) => "s390x".into(),
        (number, _) => format!("machine {number}"),
    };
    let sections = header.sections(endian, data)?;
    let mut runtime = "";
    for section in sections.iter() {
        runtime = match sections.section_name(endian, section).unwrap_or(b"") {
            name if name.ends_with(b".gopclntab") => "Go",
            b".note.go.buildid" | b".go.buildinfo" => "Go",
            b".svm_heap" => "GraalVM",
            b"__managedcode" => ".NET",
            _ => continue,
        };
        break;
    }
    if runtime.is_empty() && sections.is_empty() && gopclntab::is_marked(data) {
        runtime = "Go";
    }
    if runtime == "Go" && gopclntab::passes_registers(data) == Some(false) {
        runtime = OLD_GO;
    }
    let mut imports = Vec::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some((index, section)) = sections
            .enumerate()
            .find(|(_, s)| s.sh_type(endian) == kind)
        else {
            continue;
        };
        let table = SymbolTable::<Elf>::parse(endian, data, &sections, index, section)?;
        for symbol in table.iter() {
            let Ok(name) = table.symbol_name(endian, symbol) else {
                continue;
            };
            if !symbol.is_undefined(endian) {
                match name {
                    b"caml_startup__code_begin" | b"caml_system__code_begin" => runtime = "OCaml",
                    b"stg_upd_frame_info" => runtime = "Haskell",
                    _ => {}
                }
            } else if name.starts_with(b"fuse_") && imports.len() < MOST_IMPORTS {
                let name = name.split(|&c| c == b'@').next().unwrap_or(name);
                imports.extend(std::str::from_utf8(name).ok().map(str::to_owned));
            }
        }
    }
    imports.sort_unstable();
    imports.dedup();
    Ok(About {
        machine,
        runtime: runtime.into(),
        imports,
    })
}

/// Return the GNU build id in lower-case hexadecimal.
pub fn build_id(path: &Path) -> Result<Option<String>, Error> {
    build_id_in(&read(path)?).map_err(|why| error(path, why))
}

/// Return the GNU build id of a file's bytes.
pub fn build_id_in(data: &[u8]) -> Result<Option<String>, String> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => build_id_of::<FileHeader64<Endianness>>(data),
        Ok(FileKind::Elf32) => build_id_of::<FileHeader32<Endianness>>(data),
        _ => return Err("it is not an ELF file".into()),
    }
    .map_err(|Damage(why)| format!("damaged ELF file: {why}"))
}

fn build_id_of<Elf: FileHeader<Endian = Endianness>>(
    data: &[u8],
) -> Result<Option<String>, Damage> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let sections = header.sections(endian, data)?;
    let mut budget = data.len() as u64;
    let mut find = |notes: Option<NoteIterator<'_, Elf>>, size: u64| {
        budget = budget.checked_sub(size)?;
        let mut notes = notes?;
        // A damaged note hides the notes after it, not the symbols.
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                let digits = note.desc().iter().map(|byte| format!("{byte:02x}"));
                return Some(digits.collect());
            }
        }
        None
    };
    let in_sections = sections
        .iter()
        .filter(|section| section.sh_type(endian) == SHT_NOTE)
        .find_map(|section| {
            let notes = section.notes(endian, data).unwrap_or(None);
            find(notes, section.sh_size(endian).into())
        });
    Ok(in_sections.or_else(|| {
        segments.iter().find_map(|segment| {
            let notes = segment.notes(endian, data).unwrap_or(None);
            find(notes, segment.p_filesz(endian).into())
        })
    }))
}

/// Return a C++ or Rust name without its arguments' types, e.g. `cvmfs::cvmfs_lookup`; any other name unchanged.
pub fn demangle(name: &str) -> String {
    // A mangled name can expand to any length, as substitutions double it; no readable name is longer than this.
    const LONGEST: usize = 16 << 10;
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            if self.0.len() + s.len() > LONGEST {
                return Err(fmt::Error);
            }
            self.0.push_str(s);
            Ok(())
        }
    }
    if name.len() > LONGEST {
        return name.to_owned();
    }
    let mut out = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return if write!(out, "{rust:#}").is_ok() {
            out.0
        } else {
            name.to_owned()
        };
    }
    if name.starts_with("_Z") {
        let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
        let print = cpp_demangle::DemangleOptions::new()
            .no_params()
            .no_return_type()
            .recursion_limit(96);
        if let Ok(symbol) = cpp_demangle::Symbol::new_with_options(name, &parse) {
            if symbol.structured_demangle(&mut out, &print).is_ok() {
                // A method's qualifiers are printed even if arguments are not. Those of a reference (`f() &`) always
                // are, the others in a function's local class, such as a lambda.
                const QUALIFIERS: [&str; 4] = [" &&", " &", " volatile", " const"];
                let mut shown = &*out.0;
                for qualifier in QUALIFIERS {
                    shown = shown.strip_suffix(qualifier).unwrap_or(shown);
                }
                return shown.to_owned();
            }
        }
    }
    name.to_owned()
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    input::read(path, MOST).map_err(|e| error(path, e))
}

struct Damage(String);

impl From<object::read::Error> for Damage {
    fn from(error: object::read::Error) -> Damage {
        Damage(error.to_string())
    }
}

struct Image {
    /// Executable PT_LOAD segments: (vaddr, file size, file offset).
    loads: Vec<(u64, u64, u64)>,
    /// Symbols: (vaddr, name, size).
    symbols: Vec<(u64, String, u64)>,
    /// The file has a full symbol table, not only symbols for other files.
    symtab: bool,
    build_id: Option<String>,
    x86_64: bool,
}

impl Image {
    fn parse(data: &[u8]) -> Result<Image, String> {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => Image::parse_class::<FileHeader64<Endianness>>(data),
            Ok(FileKind::Elf32) => Image::parse_class::<FileHeader32<Endianness>>(data),
            _ => return Err("it is not an ELF file".into()),
        }
        .map_err(|Damage(why)| format!("damaged ELF file: {why}"))
    }

    fn parse_class<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Image, Damage> {
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, data)?;
        let sections = header.sections(endian, data)?;
        let loads = segments
            .iter()
            .filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian).0 & PF_X.0 != 0)
            .map(|s| {
                (
                    s.p_vaddr(endian).into(),
                    s.p_filesz(endian).into(),
                    s.p_offset(endian).into(),
                )
            })
            .collect();

        let mut symbols = Vec::new();
        // Damaged tables may all point at the same long bytes: read no more of them than the file holds.
        let mut budget = data.len();
        for (_, table) in symbol_tables::<Elf>(endian, data, &sections) {
            let table = table?;
            for symbol in table.iter() {
                if symbol.st_type() != STT_FUNC || symbol.is_undefined(endian) {
                    continue;
                }
                let name = table.symbol_name(endian, symbol)?;
                let name = name.split(|&c| c == b'@').next().unwrap_or(name);
                // Linkers share the tails of names, so names may add up to more than the table: be generous.
                budget = budget
                    .saturating_add(symbol_bytes::<Elf>() * 16)
                    .saturating_sub(name.len());
                if budget == 0 {
                    return Err(Damage("its symbols' names are longer than the file".into()));
                }
                let Ok(name) = std::str::from_utf8(name) else {
                    continue;
                };
                if name.is_empty() || name.split('.').skip(1).any(|part| part == "cold") {
                    continue;
                }
                symbols.push((
                    symbol.st_value(endian).into(),
                    name.to_owned(),
                    symbol.st_size(endian).into(),
                ));
            }
        }

        let build_id = build_id_of::<Elf>(data)?;
        Ok(Image {
            loads,
            symbols,
            symtab: sections.iter().any(|s| s.sh_type(endian) == SHT_SYMTAB),
            build_id,
            x86_64: header.e_machine(endian) == EM_X86_64 && header.is_type_64(),
        })
    }

    /// Return its functions and those of a debug file (`more`), as `functions` does.
    fn functions(&self, data: &[u8], more: Vec<(u64, String, u64)>) -> Vec<Function> {
        let mut symbols = self.symbols.clone();
        symbols.extend(more);
        if !self.symtab {
            symbols.extend(gopclntab::functions(data).unwrap_or_default());
        }
        let go = gopclntab::is_there(data);
        let mut functions: Vec<Function> = symbols
            .into_iter()
            .filter_map(|(address, name, size)| {
                let mut offset = self.offset(address)?;
                let inside = match go {
                    true => gopclntab::stack_check(code(data, offset)),
                    false if self.x86_64 => prologue::entered(code(data, offset)) as u64,
                    false => 0,
                };
                offset += if inside < size { inside } else { 0 };
                Some(Function {
                    address,
                    name,
                    size,
                    offset,
                })
            })
            .collect();
        let library = functions.iter().any(|one| one.name == "fuse_reply_entry");
        if library || !(self.symtab || go) {
            functions.extend(self.handlers(data, library));
        }
        functions.sort_unstable();
        functions.dedup_by(|a, b| a.address == b.address && a.name == b.name);
        functions
    }

    /// Return libfuse's handlers, each at a place where a probe is cheap. Only batch_forget's is at its start, since it
    /// may pass other places repeatedly. In a program with libfuse inside (no `library`) their names begin with that of
    /// the table, and each is the start of a function in the file's unwind tables.
    fn handlers(&self, data: &[u8], library: bool) -> Vec<Function> {
        let mut found = handlers::functions(data);
        if !(library || found.is_empty()) {
            let addresses: Vec<u64> = found.iter().map(|(address, _)| *address).collect();
            let starts = starts::starts_in(data, &addresses).unwrap_or_default();
            found.retain(|(address, _)| starts.iter().any(|start| start.address == *address));
            for (_, name) in &mut found {
                *name = name.replacen("do_", INSIDE, 1);
            }
        }
        found
            .into_iter()
            .filter_map(|(address, name)| {
                let mut offset = self.offset(address)?;
                if self.x86_64 && !name.ends_with("batch_forget") {
                    offset += prologue::emulated(code(data, offset)).unwrap_or(0) as u64;
                }
                Some(Function {
                    address,
                    name,
                    size: 0,
                    offset,
                })
            })
            .collect()
    }

    fn offset(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|&(vaddr, size, offset)| {
            let inside = address.checked_sub(vaddr).filter(|&inside| inside < size)?;
            offset.checked_add(inside)
        })
    }
}

/// Return a file's symbol tables, each with whether it is the full one, `.symtab`, which comes first.
pub(super) fn symbol_tables<'data, Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    data: &'data [u8],
    sections: &SectionTable<'data, Elf>,
) -> Vec<(bool, object::Result<SymbolTable<'data, Elf>>)> {
    let found = |kind| {
        let mut sections = sections.enumerate();
        sections.find(move |(_, section)| section.sh_type(endian) == kind)
    };
    let tables = [SHT_SYMTAB, SHT_DYNSYM].into_iter().filter_map(|kind| {
        let (index, section) = found(kind)?;
        let table = SymbolTable::parse(endian, data, sections, index, section);
        Some((kind == SHT_SYMTAB, table))
    });
    tables.collect()
}

fn symbol_bytes<Elf: FileHeader>() -> usize {
    std::mem::size_of::<Elf::Sym>()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_made_readable() {
        assert_eq!(
            demangle("_ZN5cvmfsL12cvmfs_lookupEP8fuse_reqmPKc"),
            "cvmfs::cvmfs_lookup"
        );
        assert_eq!(
            demangle("_ZN6loaderL11stub_lookupEP8fuse_reqmPKc"),
            "loader::stub_lookup"
        );
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        for plain in ["fuse_reply_err", "_Z", "_ZN5cvmfs", "", "é_Z"] {
            assert_eq!(demangle(plain), plain);
        }
    }

    #[test]
    fn exploding_names_stay_mangled() {
        // Each template argument list names the one before it twice.
        let mut name = String::from("_Z1fI1aS0_E");
        for i in 0..60 {
            name = format!("_Z1fI{}S{}_S{}_E", &name[2..], i, i);
        }
        assert!(demangle(&name).len() <= 16 << 10);
    }

    #[test]
    fn damaged_files_end_in_an_error_or_a_result() {
        let good = fs::read("/proc/self/exe").unwrap();
        let head = &good[..good.len().min(4096)];
        let path = std::env::temp_dir().join(format!("fusetools-elf-{}", std::process::id()));
        for cut in (0..head.len()).step_by(7) {
            fs::write(&path, &head[..cut]).unwrap();
            let _ = (functions(&path, None), build_id(&path));
        }
        for at in 0..64 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bad = head.to_vec();
                bad[at] = byte;
                fs::write(&path, &bad).unwrap();
                let _ = (functions(&path, None), build_id(&path));
            }
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(
            functions(Path::new("/"), None).unwrap_err().why,
            "it is not a file"
        );
        assert_eq!(
            functions(Path::new("/dev/null"), None).unwrap_err().why,
            "it is not a file"
        );
        assert_eq!(
            build_id(Path::new("/proc/self/maps/x")).unwrap_err().why,
            "Not a directory (os error 20)"
        );
        assert_eq!(
            functions(Path::new("/etc/passwd"), None).unwrap_err().why,
            "it is not an ELF file"
        );
    }
}
