//! Names of functions that a process generates while it runs (a JIT compiler's). The process itself writes them: into
//! /tmp/perf-PID.map, lines "START SIZE NAME" (perf's jit-interface.txt), or into a file jit-PID.dump that it maps
//! (perf's jitdump-specification.txt).
//!
//! A recording holds them as functions of the file /tmp/perf-PID.map, placed by their addresses. Where code replaced
//! other code at the same place, the later one names both: samples are not compared with the dump's time stamps.

use std::collections::BTreeMap;
use std::path::Path;

use crate::format::record::{u32_at, u64_at};
use crate::programs::files::Files;
use crate::programs::spaces::{MappedFile, Space};
use crate::programs::symbols::{Function, Table};

/// Maximum number of functions of a process.
const MOST: usize = 1 << 20;
/// Maximum number of dumps that a process's functions are read from.
const MOST_DUMPS: usize = 8;

/// Return whether a mapping of this name holds code that was generated, or copied there: it is no file.
pub fn is_generated(path: &str) -> bool {
    // As perf's is_anon_memory() and is_no_dso_memory().
    let known = ["//anon", "[anon", "/memfd:", "/anon_hugepage", "/dev/zero"];
    known.iter().any(|start| path.starts_with(start))
}

/// Return the file that stands for a process's generated code.
pub fn file_of(pid: i32) -> MappedFile {
    MappedFile {
        path: format!("/tmp/perf-{pid}.map"),
        build_id: Vec::new(),
    }
}

/// Read the names that a process gives its generated code. None: it names none, or `files` cannot ask for a file of
/// the process's owner.
pub fn table_of(pid: i32, space: &Space, all: &[MappedFile], files: &Files) -> Option<Table> {
    files.opener.as_ref()?;
    let mut functions = Functions::default();
    let mapped = space.mappings().filter_map(|at| all.get(at.file as usize));
    let mut dumps: Vec<&str> = mapped
        .map(|file| &*file.path)
        .filter(|p| is_dump(p))
        .collect();
    dumps.sort_unstable();
    dumps.dedup();
    let root = format!("/proc/{pid}/root");
    for path in dumps.into_iter().take(MOST_DUMPS) {
        if let Some(bytes) = files.image(Path::new(&format!("{root}{path}"))) {
            functions.read_dump(&bytes);
        }
    }
    if let Some(text) = files.image(Path::new(&format!("{root}{}", file_of(pid).path))) {
        functions.read_map(&text);
    }
    functions.table()
}

fn is_dump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let number = name
        .strip_prefix("jit-")
        .and_then(|name| name.strip_suffix(".dump"));
    path.starts_with('/')
        && number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Functions by start: end and name. None overlaps another.
#[derive(Default)]
struct Functions(BTreeMap<u64, (u64, Box<str>)>);

impl Functions {
    /// Add a function, which replaces the code that was there.
    fn add(&mut self, start: u64, size: u64, name: &str) {
        let Some(end) = start.checked_add(size).filter(|end| *end > start) else {
            return;
        };
        while let Some((&old, _)) = self
            .0
            .range(..end)
            .next_back()
            .filter(|(_, (to, _))| *to > start)
        {
            self.0.remove(&old);
        }
        if self.0.len() < MOST && !name.is_empty() {
            self.0.insert(start, (end, name.into()));
        }
    }

    fn read_map(&mut self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n') {
            let mut words = line.splitn(3, |&byte| byte == b' ');
            let mut number = || {
                let word = std::str::from_utf8(words.next()?).ok()?;
                u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
            };
            if let (Some(start), Some(size)) = (number(), number()) {
                let name = String::from_utf8_lossy(words.next().unwrap_or_default());
                self.add(start, size, name.trim());
            }
        }
    }

    /// Read a dump of this machine's byte order; a damaged one as far as it makes sense.
    fn read_dump(&mut self, bytes: &[u8]) -> Option<()> {
        if u32_at(bytes, 0)? != 0x4A69_5444 {
            return None;
        }
        let mut rest = bytes.get(u32_at(bytes, 8)? as usize..)?;
        loop {
            // struct jr_prefix, then jr_code_load or jr_code_move.
            let (kind, size) = (u32_at(rest, 0)?, u32_at(rest, 4)? as usize);
            let (record, next) = rest.split_at_checked(size.max(16))?;
            rest = next;
            match kind {
                0 => {
                    let name = record.get(56..).unwrap_or_default();
                    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                    let name = String::from_utf8_lossy(name);
                    if let (Some(start), Some(size)) = (u64_at(record, 32), u64_at(record, 40)) {
                        self.add(start, size, &name);
                    }
                }
                1 => {
                    let (from, to) = (u64_at(record, 32), u64_at(record, 40));
                    let moved = from.and_then(|from| self.0.remove(&from));
                    if let (Some((_, name)), Some(to), Some(size)) = (moved, to, u64_at(record, 48))
                    {
                        self.add(to, size, &name);
                    }
                }
                _ => {}
            }
        }
    }

    fn table(self) -> Option<Table> {
        if self.0.is_empty() {
            return None;
        }
        let functions = self.0.into_iter().map(|(start, (end, name))| Function {
            start,
            end,
            name,
            weak: false,
            global: true,
        });
        Some(Table {
            build_id: String::new(),
            functions: functions.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(functions: Functions, addresses: &[u64]) -> Vec<Option<String>> {
        let table = functions.table().unwrap();
        let name = |at: &u64| table.name(*at).map(str::to_owned);
        addresses.iter().map(name).collect()
    }

    #[test]
    fn a_map_names_addresses_and_later_code_replaces_earlier() {
        let mut functions = Functions::default();
        functions.read_map(
            b"1000 10 first\n0x2000 20 LazyCompile:~f /a b.js:1\nx 1 no\n3000\n3000 0 none\n\
              ffffffffffffffff 2 over\n4000 8 caf\xe9\n1008 4 second\n5000 4 \n",
        );
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            names(
                functions,
                &[0x1000, 0x1008, 0x100c, 0x201f, 0x2020, 0x3000, 0x4000, 0x5000]
            ),
            [
                None,
                some("second"),
                None,
                some("LazyCompile:~f /a b.js:1"),
                None,
                None,
                some("caf\u{fffd}"),
                None
            ]
        );
    }

    fn dump_record(kind: u32, words: [u64; 4], name: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend(
            [0u64]
                .iter()
                .chain(&words[..3])
                .flat_map(|word| word.to_le_bytes()),
        );
        if kind == 0 {
            body.extend(name);
        } else {
            body.extend(words[3].to_le_bytes());
        }
        let mut record = kind.to_le_bytes().to_vec();
        record.extend((16 + body.len() as u32).to_le_bytes());
        record.extend([0; 8]);
        record.extend(body);
        record
    }

    #[test]
    fn a_dump_names_code_where_it_is_now() {
        let mut dump = 0x4A69_5444u32.to_le_bytes().to_vec();
        dump.extend([1u32, 40].iter().flat_map(|word| word.to_le_bytes()));
        dump.extend([0; 28]);
        dump.extend(dump_record(0, [0x1000, 16, 1, 0], b"one\0\xc3\xc3"));
        dump.extend(dump_record(0, [0x2000, 16, 2, 0], b"two\0"));
        dump.extend(dump_record(2, [0; 4], b""));
        dump.extend(dump_record(1, [0x1000, 0x3000, 16, 1], b""));
        let mut functions = Functions::default();
        functions.read_dump(&dump);
        let found = names(functions, &[0x1000, 0x2008, 0x300f]);
        assert_eq!(found, [None, Some("two".into()), Some("one".into())]);
        for cut in 0..dump.len() {
            Functions::default().read_dump(&dump[..cut]);
            let mut bad = dump.clone();
            bad[cut] ^= 0xff;
            Functions::default().read_dump(&bad);
        }
    }

    #[test]
    fn dumps_are_known_by_their_names() {
        for (path, known) in [
            ("/a/jit-12.dump", true),
            ("jit-1.dump", false),
            ("/jit-.dump", false),
        ] {
            assert_eq!(is_dump(path), known, "{path}");
        }
        assert!(is_generated("//anon") && is_generated("/memfd:doublemapper (deleted)"));
        assert!(!is_generated("[vdso]") && !is_generated("/usr/lib/a"));
    }
}
