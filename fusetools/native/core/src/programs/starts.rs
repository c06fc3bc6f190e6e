//! Starts of functions in a file without symbols: its unwind tables (.eh_frame) have an entry for each.
//!
//! A probe may be at such an address, and nowhere else in code that has no symbols: inside an instruction it would
//! break the program. The file is hostile input: its tables are read once.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::elf::{FileHeader64, EM_X86_64, PF_X, PT_LOAD, SHT_DYNSYM, STT_OBJECT};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable};
use object::Endianness;
use rustc_hash::FxHashSet;

use crate::programs::prologue::{self, code};

/// Places of a file's code (virtual address, size in the file, offset in it), and a variable that it exports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub loads: Vec<(u64, u64, u64)>,
    pub variable: Option<u64>,
}

/// Function without a name. Fields as of `elf::Function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub address: u64,
    pub size: u64,
    pub offset: u64,
}

/// Return where the variable `name` is that a file exports (its virtual address), and where the file's code is.
pub fn exported_in(data: &[u8], name: &str) -> Result<Exported, String> {
    let file = File::parse(data)?;
    let of_file = || -> object::read::Result<Option<u64>> {
        let sections = file.header.sections(file.endian, data)?;
        let mut tables = sections.enumerate();
        let Some((index, section)) = tables.find(|(_, s)| s.sh_type(file.endian) == SHT_DYNSYM)
        else {
            return Ok(None);
        };
        let table = SymbolTable::<FileHeader64<Endianness>>::parse(
            file.endian,
            data,
            &sections,
            index,
            section,
        )?;
        let mut found = table.iter().filter(|symbol| {
            symbol.st_type() == STT_OBJECT
                && !symbol.is_undefined(file.endian)
                && table.symbol_name(file.endian, *symbol) == Ok(name.as_bytes())
        });
        let one = found.next().filter(|_| found.next().is_none());
        Ok(one.map(|symbol| symbol.st_value(file.endian)))
    };
    Ok(Exported {
        loads: file.loads.clone(),
        variable: of_file().map_err(damaged)?,
    })
}

/// Return which of these virtual addresses are starts of functions, in the order of the file's tables.
pub fn starts_in(data: &[u8], addresses: &[u64]) -> Result<Vec<Start>, String> {
    let file = File::parse(data)?;
    let sections = file.header.sections(file.endian, data).map_err(damaged)?;
    let section = |name: &[u8]| Some(sections.section_by_name(file.endian, name)?.1);
    let Some(table) = section(b".eh_frame") else {
        return Ok(Vec::new());
    };
    let bytes = table.data(file.endian, data).map_err(damaged)?;
    let at = |name: &[u8]| section(name).map_or(0, |section| section.sh_addr(file.endian));
    let bases = BaseAddresses::default()
        .set_eh_frame(table.sh_addr(file.endian))
        .set_eh_frame_hdr(at(b".eh_frame_hdr"))
        .set_text(at(b".text"))
        .set_got(at(b".got"));
    let frames = EhFrame::new(bytes, LittleEndian);
    let wanted: FxHashSet<u64> = addresses.iter().copied().collect();
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(one) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (address, size) = (one.initial_address(), one.len());
        let Some(start) = file.offset(address).filter(|_| wanted.contains(&address)) else {
            continue;
        };
        let inside = match file.header.e_machine(file.endian) {
            EM_X86_64 => prologue::entered(code(data, start)) as u64,
            _ => 0,
        };
        found.push(Start {
            address,
            size,
            offset: start + if inside < size { inside } else { 0 },
        });
    }
    Ok(found)
}

struct File<'a> {
    header: &'a FileHeader64<Endianness>,
    endian: Endianness,
    loads: Vec<(u64, u64, u64)>,
}

impl File<'_> {
    fn parse(data: &[u8]) -> Result<File<'_>, String> {
        let header = FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        if endian != Endianness::Little {
            return Err("it is a big-endian file".into());
        }
        let segments = header.program_headers(endian, data).map_err(damaged)?;
        let loads = segments
            .iter()
            .filter(|s| s.p_type(endian) == PT_LOAD && s.p_flags(endian).0 & PF_X.0 != 0)
            .map(|s| (s.p_vaddr(endian), s.p_filesz(endian), s.p_offset(endian)))
            .collect();
        Ok(File {
            header,
            endian,
            loads,
        })
    }

    fn offset(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|&(start, size, offset)| {
            let inside = address.checked_sub(start).filter(|&inside| inside < size)?;
            offset.checked_add(inside)
        })
    }
}

fn damaged(why: object::read::Error) -> String {
    format!("damaged ELF file: {why}")
}
