//! Share of an ELF file's code that keeps frame pointers, read from its unwind tables.
//!
//! Source: the Linux Standard Base's `.eh_frame`, and DWARF's call frame instructions (version 5, 6.4.2). The file is
//! hostile input: each byte of the table is looked at a bounded number of times.

use std::path::Path;

use object::elf::{FileHeader64, EM_AARCH64, EM_X86_64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind};

use crate::programs::elf::{error, read, Error};

/// Maximum length of a CIE's augmentation string that means something here ("zPLRSB").
const LONGEST_AUGMENTATION: usize = 16;

/// Registers of a machine, as DWARF numbers them.
#[derive(Clone, Copy)]
struct Machine {
    frame_pointer: u64,
    /// Register in which calls leave the return address, if any.
    link: Option<u64>,
}

/// Return the share of functions that keep the frame pointer, among those that use its register: 0 to 1, by bytes of
/// code. The others break the chain of frames. 0: no function with a frame uses the register. 1: also for Go, whose
/// compiler keeps frame pointers and writes no such tables. None: unknown (no unwind tables, another machine than
/// x86-64 and aarch64), or no function has a frame.
pub fn frame_pointers(path: &Path) -> Result<Option<f64>, Error> {
    frame_pointers_in(&read(path)?).map_err(|why| error(path, why))
}

/// Return the share for a file's bytes.
pub fn frame_pointers_in(data: &[u8]) -> Result<Option<f64>, String> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Ok(None),
        _ => return Err("it is not an ELF file".into()),
    }
    of_file(data).map_err(|why| format!("damaged ELF file: {why}"))
}

fn of_file(data: &[u8]) -> Result<Option<f64>, object::read::Error> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let machine = match header.e_machine(endian) {
        EM_X86_64 => Machine {
            frame_pointer: 6,
            link: None,
        },
        EM_AARCH64 => Machine {
            frame_pointer: 29,
            link: Some(30),
        },
        _ => return Ok(None),
    };
    let sections = header.sections(endian, data)?;
    let section = |name: &[u8]| sections.section_by_name(endian, name);
    if section(b".gopclntab").is_some() || section(b".note.go.buildid").is_some() {
        return Ok(Some(1.0));
    }
    let Some((_, table)) = section(b".eh_frame").filter(|_| endian == Endianness::Little) else {
        return Ok(None);
    };
    Ok(share(table.data(endian, data)?, machine))
}

fn share(table: &[u8], machine: Machine) -> Option<f64> {
    let (mut preserved, mut lost, mut framed) = (0.0, 0.0, false);
    let mut rest = Bytes(table);
    while let Some(entry) = rest.entry() {
        let at = table.len() - rest.0.len() - entry.len();
        match function(table, at, entry, machine) {
            Some((size, Usage::Preserved)) => preserved += size as f64,
            Some((size, Usage::Lost)) => lost += size as f64,
            Some((_, Usage::Alone)) => framed = true,
            Some((_, Usage::NoFrame)) | None => {}
        }
    }
    if preserved + lost > 0.0 {
        return Some(preserved / (preserved + lost));
    }
    framed.then_some(0.0)
}

/// Use of the frame pointer's register by a function.
enum Usage {
    Preserved,
    /// The function uses it for something else.
    Lost,
    Alone,
    NoFrame,
}

/// Return a function's size in bytes, and its use of the register. `entry`: the bytes after an entry's length, which
/// begin `at`. None: the entry is not a function's, or damaged.
fn function(table: &[u8], at: usize, entry: &[u8], machine: Machine) -> Option<(u64, Usage)> {
    let mut bytes = Bytes(entry);
    let back = bytes.fixed(4)?;
    if back == 0 {
        return None; // a CIE
    }
    let mut cie = Bytes(table.get(at.checked_sub(back as usize)?..)?);
    let (pointer, augmented) = Bytes(cie.entry()?).cie()?;
    bytes.pointer(pointer)?;
    let size = bytes.pointer(pointer)?;
    if augmented {
        let skipped = bytes.uleb()?;
        bytes.skip(skipped)?;
    }
    Some((size, bytes.usage(pointer, machine)))
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.take(count).map(|_| ())
    }

    /// Read a number of this many bytes, 8 at most.
    fn fixed(&mut self, count: usize) -> Option<u64> {
        let mut word = [0; 8];
        word[..count].copy_from_slice(self.take(count as u64)?);
        Some(u64::from_le_bytes(word))
    }

    /// Read a ULEB128. An SLEB128 gives the bits without the sign, which suffices to skip it.
    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.fixed(1)?;
            value |= (byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Read a CIE or an FDE, without its length; None at the table's end.
    fn entry(&mut self) -> Option<&'a [u8]> {
        let length = match self.fixed(4)? {
            0 => return None,
            0xffff_ffff => self.fixed(8)?,
            length => length,
        };
        self.take(length)
    }

    /// Read a CIE. Return how its FDEs encode addresses, and whether they state the length of their augmentation.
    fn cie(&mut self) -> Option<(u64, bool)> {
        if self.fixed(4)? != 0 {
            return None;
        }
        let version = self.fixed(1)?;
        let text = self.0;
        let end = text
            .iter()
            .take(LONGEST_AUGMENTATION)
            .position(|c| *c == 0)?;
        self.skip(end as u64 + 1)?;
        self.uleb()?; // code alignment
        self.uleb()?; // data alignment
        if version == 1 {
            self.skip(1)?;
        } else {
            self.uleb()?;
        }
        let Some((b'z', letters)) = text[..end].split_first() else {
            return (end == 0).then_some((0, false));
        };
        self.uleb()?;
        let mut encoding = 0;
        for letter in letters {
            match letter {
                b'R' => encoding = self.fixed(1)?,
                b'L' => self.skip(1)?,
                b'P' => {
                    let personality = self.fixed(1)?;
                    self.pointer(personality)?;
                }
                b'S' | b'B' | b'G' => {}
                _ => break,
            }
        }
        Some((encoding, true))
    }

    fn pointer(&mut self, encoding: u64) -> Option<u64> {
        match encoding & 0xf {
            0x1 | 0x9 => self.uleb(),
            0x2 | 0xa => self.fixed(2),
            0x3 | 0xb => self.fixed(4),
            0x0 | 0x4 | 0xc => self.fixed(8),
            _ => None,
        }
    }

    /// Return a function's use of the register, from its call frame instructions. It keeps the frame pointer on x86-64
    /// if they find its frame by it; on aarch64 if it is saved just below the return address.
    fn usage(mut self, pointer: u64, machine: Machine) -> Usage {
        let (mut saved, mut link, mut by_pointer, mut framed) = (None, None, false, false);
        while let Some(opcode) = self.fixed(1) {
            let low = opcode & 0x3f;
            let done = match (opcode >> 6, low) {
                (1, _) | (3, _) => Some(()),
                (2, register) => self.uleb().map(|at| {
                    if register == machine.frame_pointer {
                        saved = Some(at);
                    } else if Some(register) == machine.link {
                        link = Some(at);
                    }
                }),
                (_, 0x00 | 0x0a | 0x0b | 0x2c | 0x2d) => Some(()),
                (_, 0x01) => self.pointer(pointer).map(|_| ()),
                (_, 0x02) => self.skip(1),
                (_, 0x03) => self.skip(2),
                (_, 0x04) => self.skip(4),
                (_, 0x06 | 0x07 | 0x08 | 0x2e) => self.uleb().map(|_| ()),
                (_, 0x0e | 0x13) => self.uleb().map(|_| framed = true),
                (_, 0x05 | 0x09 | 0x11 | 0x14 | 0x15 | 0x2f) => {
                    self.uleb().and_then(|_| self.uleb()).map(|_| ())
                }
                (_, 0x0c | 0x12) => self.uleb().and_then(|register| {
                    by_pointer |= register == machine.frame_pointer;
                    self.uleb().map(|_| ())
                }),
                (_, 0x0d) => self
                    .uleb()
                    .map(|register| by_pointer |= register == machine.frame_pointer),
                // A table of jumps to other files' functions is no function.
                (_, 0x0f) => return Usage::NoFrame,
                (_, 0x10 | 0x16) => self
                    .uleb()
                    .and_then(|_| self.uleb())
                    .and_then(|size| self.skip(size)),
                _ => None,
            };
            if done.is_none() {
                break;
            }
        }
        match (saved, machine.link) {
            (_, None) if by_pointer => Usage::Preserved,
            (Some(at), Some(_)) if link.is_some_and(|link| link + 1 == at) => Usage::Preserved,
            (Some(_), _) => Usage::Lost,
            (None, _) if framed => Usage::Alone,
            (None, _) => Usage::NoFrame,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const X86: Machine = Machine {
        frame_pointer: 6,
        link: None,
    };
    const ARM: Machine = Machine {
        frame_pointer: 29,
        link: Some(30),
    };

    /// Return a table: a CIE as compilers write it, then a function for each size and instructions.
    fn table(functions: &[(u32, &[u8])]) -> Vec<u8> {
        let mut table = vec![
            16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
        ];
        table.extend([0; 3]);
        for (size, instructions) in functions {
            let length = 4 + 4 + 4 + 1 + instructions.len() as u32;
            table.extend(length.to_le_bytes());
            table.extend((table.len() as u32).to_le_bytes());
            table.extend([0; 4]);
            table.extend(size.to_le_bytes());
            table.push(0);
            table.extend(*instructions);
        }
        table.extend([0; 4]);
        table
    }

    #[test]
    fn functions_count_by_their_bytes() {
        // push %rbp; mov %rsp,%rbp, as gcc describes it
        let preserved = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6];
        // push %rbp like any register to be saved
        let lost = [0x41, 0x0e, 16, 0x86, 2, 0x02, 200, 0x0e, 8];
        let alone = [0x44, 0x0e, 32];
        assert_eq!(
            share(&table(&[(300, &preserved), (100, &lost)]), X86),
            Some(0.75)
        );
        assert_eq!(
            share(&table(&[(300, &preserved), (900, &alone)]), X86),
            Some(1.0)
        );
        assert_eq!(share(&table(&[(900, &alone)]), X86), Some(0.0));
        assert_eq!(share(&table(&[(900, &[0x41])]), X86), None);
        assert_eq!(share(&table(&[]), X86), None);
        // Unreadable instructions end the function's instructions, not the table.
        let odd = [0x3f, 0x0d, 6];
        assert_eq!(share(&table(&[(1, &odd), (2, &lost)]), X86), Some(0.0));
    }

    #[test]
    fn frame_records_of_aarch64() {
        // stp x29, x30, [sp, -32]!: x29 at cfa - 32, x30 at cfa - 24
        let preserved = [0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3];
        let lost = [0x41, 0x0e, 32, 0x9e, 4, 0x9d, 3];
        let leaf = [0x41, 0x0e, 32, 0x93, 4];
        assert_eq!(
            share(&table(&[(30, &preserved), (10, &lost)]), ARM),
            Some(0.75)
        );
        assert_eq!(share(&table(&[(30, &leaf)]), ARM), Some(0.0));
    }

    #[test]
    fn damaged_tables_end() {
        let good = table(&[(300, &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6])]);
        for cut in 0..good.len() {
            share(&good[..cut], X86);
        }
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bad = good.clone();
                bad[at] = byte;
                share(&bad, X86);
            }
        }
    }

    #[test]
    fn of_files() {
        let why = |path: &str| frame_pointers(Path::new(path)).unwrap_err().why;
        assert_eq!(why("/"), "it is not a file");
        assert_eq!(why("/etc/passwd"), "it is not an ELF file");
        let own = fs::read("/proc/self/exe").unwrap();
        let path = std::env::temp_dir().join(format!("fusetools-frames-{}", std::process::id()));
        for cut in (0..4096).step_by(61) {
            fs::write(&path, &own[..cut]).unwrap();
            let _ = frame_pointers(&path);
        }
        fs::remove_file(&path).unwrap();
    }
}
