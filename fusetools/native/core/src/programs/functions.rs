//! Names of the functions of programs and libraries. The sources are their files, where a machine has them, and the
//! part of their symbols that a recording holds.
//!
//! A recording holds the functions of its stacks as lines after the kernel's (in the kallsyms of its tracing data; perf
//! skips them). "0000000000000000 F BUILD-ID PATH" begins a file; "START u END NAME" is a function of it, with places
//! in the file. A build id after a dash is that of the file on disk, if the mappings have none.

use std::collections::BTreeMap;

use crate::programs::elf::hex;
use crate::programs::spaces::MappedFile;
use crate::programs::symbols::{Function, Table};

/// Types of lines about programs.
const FILE: u8 = b'F';
const FUNCTION: u8 = b'u';

/// Maximum size in bytes of a recording's lines about programs, and of one name.
const MOST_TEXT: usize = 64 << 20;
const LONGEST_NAME: usize = 16 << 10;

/// Identity of a file: the build id of its mappings, or that of the file on disk if they have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    mapped: String,
    in_file: String,
}

/// Functions of a file, by start: end and name.
type Functions = BTreeMap<u64, (u64, Box<str>)>;

/// Functions of programs that a recording holds.
#[derive(Default)]
pub struct Programs {
    /// Functions by path and identity of the file.
    files: BTreeMap<String, BTreeMap<Id, Functions>>,
    text: usize,
}

impl Programs {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Add the programs' functions from a recording's kallsyms.
    pub fn read(&mut self, text: &[u8]) {
        let mut functions = None;
        for line in text.split(|&byte| byte == b'\n') {
            let Some((start, kind, rest)) = line_of(line) else {
                continue;
            };
            if kind == FILE {
                let Some((id, path)) = rest.split_once(' ') else {
                    functions = None;
                    continue;
                };
                let (mapped, in_file) = match id.strip_prefix('-') {
                    Some(in_file) => ("", in_file),
                    None => (id, ""),
                };
                let id = Id {
                    mapped: mapped.into(),
                    in_file: in_file.into(),
                };
                let files = self.files.entry(path.into()).or_default();
                functions = Some(files.entry(id).or_default());
            } else if let (FUNCTION, Some(functions)) = (kind, &mut functions) {
                let Some((end, name)) = rest.split_once(' ') else {
                    continue;
                };
                if let Ok(end) = u64::from_str_radix(end, 16) {
                    functions.insert(start, (end, name.into()));
                }
            }
        }
    }

    /// Add the functions at these places in a file, and mark the file as read.
    pub fn add(&mut self, file: &MappedFile, table: &Table, places: impl Iterator<Item = u64>) {
        if file.path.contains('\n') {
            return;
        }
        let mapped = hex(&file.build_id);
        let id = Id {
            in_file: match mapped.is_empty() {
                true => table.build_id.clone(),
                false => String::new(),
            },
            mapped,
        };
        self.text += file.path.len() + 64;
        let files = self.files.entry(file.path.clone()).or_default();
        let functions = files.entry(id).or_default();
        for function in places.filter_map(|place| table.find(place)) {
            let fits = function.name.len() <= LONGEST_NAME && !function.name.contains('\n');
            if fits && self.text < MOST_TEXT {
                let named = (function.end, function.name.clone());
                if functions.insert(function.start, named).is_none() {
                    self.text += function.name.len() + 48;
                }
            }
        }
    }

    /// Return the functions of a file; None if the recording holds none.
    pub fn table(&self, file: &MappedFile) -> Option<Table> {
        let files = self.files.get(&file.path)?;
        let wanted = hex(&file.build_id);
        let unknown = files.keys().any(|id| id.mapped.is_empty());
        // Some mappings of a file may have its build id, others not.
        let fits = |id: &Id| match (wanted.is_empty(), id.mapped.is_empty()) {
            (true, true) => true,
            (true, false) => !unknown && files.len() == 1,
            (false, true) => id.in_file.is_empty() || id.in_file == wanted,
            (false, false) => id.mapped == wanted,
        };
        let fitting = || files.iter().filter(|(id, _)| fits(id));
        let (id, _) = fitting().next()?;
        let functions: BTreeMap<_, _> = fitting().flat_map(|(_, functions)| functions).collect();
        let functions = functions.into_iter().map(|(&start, (end, name))| Function {
            start,
            end: *end,
            name: name.clone(),
            weak: false,
            global: true,
        });
        Some(Table {
            build_id: format!("{}{}", id.mapped, id.in_file),
            functions: functions.collect(),
        })
    }

    /// Return the lines for `read`, at most about 64 MiB.
    pub fn lines(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, files) in &self.files {
            for (id, functions) in files {
                let id = match id.mapped.is_empty() {
                    true => format!("-{}", id.in_file),
                    false => id.mapped.clone(),
                };
                out.extend(format!("{:016x} {} {id} {path}\n", 0, FILE as char).bytes());
                for (start, (end, name)) in functions {
                    if out.len() > MOST_TEXT {
                        return out;
                    }
                    let kind = FUNCTION as char;
                    out.extend(format!("{start:016x} {kind} {end:x} {name}\n").bytes());
                }
            }
        }
        out
    }
}

/// Return whether a line of a kallsyms is about a program, not the kernel.
pub fn is_of_program(line: &[u8]) -> bool {
    line_of(line).is_some_and(|(_, kind, _)| matches!(kind, FILE | FUNCTION))
}

fn line_of(line: &[u8]) -> Option<(u64, u8, &str)> {
    let (digits, rest) = line.split_at_checked(16)?;
    let &[b' ', kind @ (FILE | FUNCTION), b' ', ref rest @ ..] = rest else {
        return None;
    };
    let start = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some((start, kind, std::str::from_utf8(rest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::files::Files;

    fn file(path: &str, build_id: &[u8]) -> MappedFile {
        MappedFile {
            path: path.into(),
            build_id: build_id.to_vec(),
        }
    }

    fn table(name: &str) -> Table {
        let function = Function {
            start: 16,
            end: 32,
            name: name.into(),
            weak: false,
            global: true,
        };
        Table {
            build_id: "aa".into(),
            functions: vec![function],
        }
    }

    #[test]
    fn functions_come_back_by_file_and_build_id() {
        let mut programs = Programs::default();
        let [plain, first, second] = [&[][..], &[1; 20], &[2; 20]].map(|id| file("/lib/a b", id));
        programs.add(&plain, &table("operator new[]"), [17, 99].into_iter());
        programs.add(&plain, &table("operator new[]"), [18].into_iter());
        programs.add(&first, &table("one"), [31].into_iter());
        programs.add(&second, &table("two"), [32].into_iter());
        let mut again = Programs::default();
        again.read(b"ffffffff81000000 f kernel\n");
        again.read(&programs.lines());
        again.read(&programs.lines());
        assert_eq!(again.lines(), programs.lines());
        let name = |file: &MappedFile| Some(again.table(file)?.name(20)?.to_owned());
        assert_eq!(name(&plain).as_deref(), Some("operator new[]"));
        assert_eq!(name(&first).as_deref(), Some("one"));
        // The file was examined, and has no functions there.
        assert!(again.table(&second).is_some() && name(&second).is_none());
        // No mapping has 0xaa…, but the file of mappings without a build id had it.
        assert_eq!(
            name(&file("/lib/a b", &[0xaa])).as_deref(),
            Some("operator new[]")
        );
        assert!(again.table(&file("/lib/a b", &[3; 20])).is_none());
        assert!(again.table(&file("/lib/a", &[])).is_none());
    }

    #[test]
    fn damaged_lines_are_ignored() {
        let mut programs = Programs::default();
        for text in [
            "0000000000000000 F\n",
            "0000000000000000 F x\n0000000000000001 u 2 lost\n",
            "0000000000000001 u 2 lost\n",
            "000000000000000g F - /x\n",
            "0000000000000000 F - /y\n0000000000000001 u z n\n0000000000000001 u\n\n",
        ] {
            programs.read(text.as_bytes());
        }
        assert_eq!(programs.lines(), b"0000000000000000 F - /y\n");
    }

    #[test]
    fn the_vdso_has_functions() {
        let files = Files::default();
        let vdso = file("[vdso]", &[]);
        if let Some(table) = Table::of(&vdso, &files) {
            assert!(table.functions.iter().any(|f| f.name.contains("vdso")));
        }
        let elsewhere = Files {
            root: "/nosuch".into(),
            ..Files::default()
        };
        assert!(elsewhere.open(&vdso).is_none());
        assert!(elsewhere.open(&file("/proc/self/exe", &[])).is_none());
        assert!(files.open(&file("/proc/self/exe", &[])).is_some());
        assert!(files.open(&file("/proc/self/exe", &[9; 20])).is_none());
        let avoiding = Files {
            avoid: vec!["/proc".into(), "[vdso]".into()],
            ..Files::default()
        };
        assert!(avoiding.open(&vdso).is_none());
        assert!(avoiding.open(&file("/proc/self/exe", &[])).is_none());
    }
}
