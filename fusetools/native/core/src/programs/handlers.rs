//! libfuse's request handlers, found in the library's own table: distributions' builds have no symbols for them.
//!
//! `fuse_ll_ops` (lib/fuse_lowlevel.c, versions 2 and 3) has, by opcode, a function and the operation's name:
//! `do_lookup(fuse_req_t req, fuse_ino_t nodeid, const void *arg)`, "LOOKUP". A library with several such tables is
//! unsupported.

use object::elf::{FileHeader64, PT_LOAD, R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHT_RELA};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};
use object::Endianness;
use rustc_hash::FxHashMap;

use crate::operations::Operation;

/// Rows of the table, and bytes of a row: two addresses.
const ROWS: u64 = 64;
const ROW: u64 = 16;
/// Maximum number of places for a table, and of segments.
const MOST: usize = 64;

/// Return (address, name) of each handler; empty if the table is not certain.
pub(crate) fn functions(data: &[u8]) -> Vec<(u64, String)> {
    File::new(data).map_or_else(Vec::new, |file| file.functions())
}

struct File<'a> {
    /// Virtual address and bytes of each loaded segment.
    loads: Vec<(u64, &'a [u8])>,
    /// Relative relocations: where, and the value.
    relocations: Vec<(u64, u64)>,
}

impl File<'_> {
    fn new(data: &[u8]) -> Option<File<'_>> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        if header.is_big_endian() {
            return None;
        }
        let segments = header.program_headers(endian, data).ok()?.iter();
        let loads = segments
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
            .filter_map(|s| Some((s.p_vaddr(endian), s.data(endian, data).ok()?)))
            .take(MOST)
            .collect();
        let sections = header.sections(endian, data).ok()?;
        let tables = sections.iter().filter(|s| s.sh_type(endian) == SHT_RELA);
        let tables = tables.filter_map(|s| s.rela(endian, data).ok().flatten());
        let relocations = tables
            .flat_map(|(table, _)| table)
            .filter(|one| {
                let kind = one.r_type(endian, false);
                matches!(kind, R_X86_64_RELATIVE | R_AARCH64_RELATIVE)
            })
            .map(|one| (one.r_offset(endian), one.r_addend(endian) as u64))
            .collect();
        Some(File { loads, relocations })
    }

    fn at(&self, address: u64) -> Option<&[u8]> {
        self.loads.iter().find_map(|(start, bytes)| {
            let inside = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(inside..).filter(|rest| !rest.is_empty())
        })
    }

    fn functions(&self) -> Vec<(u64, String)> {
        let mut tables = self.places().into_iter().filter_map(|place| {
            // The table begins with the row before, of opcode 0.
            self.table(place.checked_sub(8 + ROW)?)
        });
        let table = tables.next().filter(|_| tables.next().is_none());
        let Some(table) = table else {
            return Vec::new();
        };
        let mut times: FxHashMap<u64, usize> = FxHashMap::default();
        for (function, _) in &table {
            *times.entry(*function).or_default() += 1;
        }
        // A function that handles several operations does not identify one.
        let own = |row: &(u64, String)| times[&row.0] == 1;
        table.into_iter().filter(own).collect()
    }

    /// Return the places where the address of "LOOKUP" is stored.
    fn places(&self) -> Vec<u64> {
        const NAME: &[u8] = b"LOOKUP\0";
        let mut names = Vec::new();
        for (start, bytes) in &self.loads {
            let windows = bytes.windows(NAME.len()).zip(*start..);
            let here = windows.filter(|(window, _)| *window == NAME);
            names.extend(here.map(|(_, address)| address).take(MOST));
        }
        let relocated = self.relocations.iter().copied();
        let mut places: Vec<u64> = relocated
            .filter(|(_, value)| names.contains(value))
            .map(|(offset, _)| offset)
            .take(MOST)
            .collect();
        // Places without a relocation, as the linker left them.
        for (start, bytes) in &self.loads {
            let words = bytes.chunks_exact(8).zip((*start..).step_by(8));
            let here = words.filter(|(word, _)| names.contains(&number(word)));
            places.extend(here.map(|(_, address)| address).take(MOST));
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Return (function, name) of each row of the table at `start`; None if there is no table.
    fn table(&self, start: u64) -> Option<Vec<(u64, String)>> {
        let end = start.checked_add(ROWS * ROW)?;
        let inside = |offset: &u64| (start..end).contains(offset);
        let relocated = self.relocations.iter().copied();
        let relocated: FxHashMap<u64, u64> = relocated.filter(|(at, _)| inside(at)).collect();
        let word = |address: u64| match relocated.get(&address) {
            Some(value) => Some(*value),
            None => self.at(address)?.get(..8).map(number),
        };
        let mut rows = Vec::new();
        for opcode in 1..ROWS {
            let operation = Operation::of_opcode(opcode).name();
            let at = start + opcode * ROW;
            let (Some(function), Some(name)) = (word(at), word(at + 8)) else {
                break;
            };
            let mut upper = operation.to_ascii_uppercase().into_bytes();
            upper.push(0);
            let named = self.at(name).is_some_and(|text| text.starts_with(&upper));
            if named && function != 0 {
                rows.push((function, format!("do_{operation}")));
            } else if matches!(operation, "lookup" | "forget" | "getattr" | "open" | "read") {
                return None;
            }
        }
        Some(rows)
    }
}

fn number(word: &[u8]) -> u64 {
    word.try_into().map_or(0, u64::from_le_bytes)
}
