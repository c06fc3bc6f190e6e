//! Address spaces and names of tasks in a recording: which file's code is where, in which process, when.
//!
//! As in perf: threads share their process's space, a fork copies it, and a mapping replaces what it covers. This holds
//! after an exec, too: until the new program runs, stacks are still those of the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::events::{Map, Side};

/// Maximum number of mappings of a process, and of different files, processes and names; further ones are left out. The
/// kernel allows a process 65,530 mappings, of which few are code.
const MOST_MAPPINGS: usize = 1 << 13;
const MOST: usize = 1 << 20;

/// Part of a file in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Index into `Spaces::files`.
    pub file: u32,
}

/// Mappings of a process, by start.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Number that changes with every change of the space and differs from any other space's: a key for caches of
    /// addresses.
    pub version: u64,
    mappings: BTreeMap<u64, Mapping>,
}

impl Space {
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.mappings.range(..=address).next_back()?;
        (address < mapping.end).then_some(mapping)
    }

    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.values()
    }

    fn add(&mut self, new: Mapping) {
        let before = self.mappings.range(..new.start).next_back();
        if let Some(old) = before
            .map(|(_, old)| *old)
            .filter(|old| old.end > new.start)
        {
            self.mappings.insert(
                old.start,
                Mapping {
                    end: new.start,
                    ..old
                },
            );
            self.keep_end(old, new.end);
        }
        while let Some((&start, &old)) = self.mappings.range(new.start..new.end).next() {
            self.mappings.remove(&start);
            self.keep_end(old, new.end);
        }
        if self.mappings.len() < MOST_MAPPINGS {
            self.mappings.insert(new.start, new);
        }
    }

    /// Keep the part of an old mapping beyond a new one's end.
    fn keep_end(&mut self, old: Mapping, end: u64) {
        if old.end > end {
            let offset = old.offset.wrapping_add(end - old.start);
            self.mappings.insert(
                end,
                Mapping {
                    start: end,
                    offset,
                    ..old
                },
            );
        }
    }
}

/// File that is mapped somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedFile {
    pub path: String,
    /// Empty if unknown.
    pub build_id: Vec<u8>,
}

#[derive(Default)]
pub struct Spaces {
    pub files: Vec<MappedFile>,
    known: FxHashMap<MappedFile, u32>,
    processes: FxHashMap<i32, Arc<Space>>,
    /// Index into `names`, by thread.
    comms: FxHashMap<i32, u32>,
    pub names: Vec<Box<str>>,
    numbers: FxHashMap<Box<str>, u32>,
    versions: u64,
    /// Offset of each file's executable mappings, by its number; None if they have several.
    offsets: FxHashMap<u32, Option<u64>>,
    /// Kernel and modules, named as in perf ("[kernel.kallsyms]_text", "[fuse]").
    pub kernel: Vec<Map>,
}

impl Spaces {
    /// Apply a record. `build_ids`: the file header's, for mappings that lack theirs.
    pub fn push(&mut self, side: &Side, build_ids: &FxHashMap<String, Vec<u8>>) {
        match side {
            Side::Map(map) if map.pid == -1 => {
                let room = self.kernel.len() < MOST_MAPPINGS;
                self.kernel.extend(room.then(|| (**map).clone()));
            }
            Side::Map(map) => {
                let Some(end) = map
                    .start
                    .checked_add(map.len)
                    .filter(|&end| end > map.start)
                else {
                    return;
                };
                let mut file = MappedFile {
                    path: map.path.clone(),
                    build_id: map.build_id.clone(),
                };
                if file.build_id.is_empty() {
                    if let Some(build_id) = build_ids.get(&file.path) {
                        file.build_id.clone_from(build_id);
                    }
                }
                let next = self.files.len() as u32;
                if next as usize >= MOST || self.processes.len() >= MOST {
                    return;
                }
                let number = *self.known.entry(file.clone()).or_insert(next);
                if number == next {
                    self.files.push(file);
                }
                let offset = self.offsets.entry(number).or_insert(Some(map.offset));
                *offset = offset.filter(|&known| known == map.offset);
                self.versions += 1;
                let space = Arc::make_mut(self.processes.entry(map.pid).or_default());
                space.version = self.versions;
                space.add(Mapping {
                    start: map.start,
                    end,
                    offset: map.offset,
                    file: number,
                });
            }
            Side::Comm { tid, comm, .. } => {
                let number = match self.numbers.get(comm.as_str()) {
                    Some(number) => *number,
                    None if self.names.len() == MOST => return,
                    None => {
                        let number = self.names.len() as u32;
                        self.names.push(comm.as_str().into());
                        self.numbers.insert(comm.as_str().into(), number);
                        number
                    }
                };
                if self.comms.len() < MOST {
                    self.comms.insert(*tid, number);
                }
            }
            Side::Fork {
                pid,
                tid,
                ppid,
                ptid,
                ..
            } => {
                if let Some(&comm) = self.comms.get(ptid) {
                    self.comms.insert(*tid, comm);
                }
                if pid != ppid {
                    match self.processes.get(ppid).cloned() {
                        Some(space) => self.processes.insert(*pid, space),
                        None => self.processes.remove(pid),
                    };
                }
            }
            // An exit changes nothing: the thread's last switch comes after it.
            _ => {}
        }
    }

    /// Return the offset at which a file's code is mapped, by the file's number. None if it is not the same everywhere.
    pub fn offset(&self, file: u32) -> Option<u64> {
        self.offsets.get(&file).copied().flatten()
    }

    pub fn of(&self, pid: i32) -> Option<&Arc<Space>> {
        self.processes.get(&pid)
    }

    /// Return (process, thread) of these two numbers: perf's BPF program writes them in either order, and only a process
    /// has a space.
    pub fn in_order(&self, (pid, tid): (i32, i32)) -> (i32, i32) {
        match self.of(pid).is_none() && self.of(tid).is_some() {
            true => (tid, pid),
            false => (pid, tid),
        }
    }

    /// Return a thread's name, if recorded.
    pub fn comm(&self, tid: i32) -> Option<&str> {
        self.comm_number(tid)
            .map(|number| &*self.names[number as usize])
    }

    pub fn comm_number(&self, tid: i32) -> Option<u32> {
        self.comms.get(&tid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: i32, start: u64, len: u64, offset: u64, path: &str) -> Side {
        Side::Map(Box::new(Map {
            time: 0,
            pid,
            start,
            len,
            offset,
            path: path.into(),
            build_id: vec![],
        }))
    }

    fn place(spaces: &Spaces, pid: i32, address: u64) -> Option<(String, u64)> {
        let mapping = spaces.of(pid)?.find(address)?;
        let path = spaces.files[mapping.file as usize].path.clone();
        Some((path, address - mapping.start + mapping.offset))
    }

    #[test]
    fn a_mapping_replaces_what_it_covers() {
        let mut spaces = Spaces::default();
        let none = FxHashMap::default();
        spaces.push(&map(1, 100, 100, 1000, "a"), &none);
        spaces.push(&map(1, 140, 20, 0, "b"), &none);
        let at = |address| place(&spaces, 1, address);
        assert_eq!(at(99), None);
        assert_eq!(at(139), Some(("a".into(), 1039)));
        assert_eq!(at(140), Some(("b".into(), 0)));
        assert_eq!(at(160), Some(("a".into(), 1060)));
        assert_eq!(at(200), None);
        spaces.push(&map(1, 0, 1000, 5, "c"), &none);
        assert_eq!(place(&spaces, 1, 150), Some(("c".into(), 155)));
        assert_eq!(spaces.of(1).unwrap().mappings.len(), 1);
        spaces.push(&map(1, u64::MAX - 5, 100, 0, "beyond"), &none);
        assert_eq!(place(&spaces, 1, u64::MAX - 1), None);
    }

    #[test]
    fn code_has_an_offset_if_it_is_the_same_everywhere() {
        let mut spaces = Spaces::default();
        let none = FxHashMap::default();
        spaces.push(&map(1, 100, 100, 4096, "a"), &none);
        spaces.push(&map(2, 500, 100, 4096, "a"), &none);
        assert_eq!(spaces.offset(0), Some(4096));
        spaces.push(&map(2, 900, 100, 8192, "a"), &none);
        spaces.push(&map(3, 900, 100, 4096, "a"), &none);
        assert_eq!((spaces.offset(0), spaces.offset(1)), (None, None));
    }

    #[test]
    fn forks_copy_and_threads_share() {
        let mut spaces = Spaces::default();
        let none = FxHashMap::default();
        let fork = |pid, tid, ppid| Side::Fork {
            time: 0,
            pid,
            tid,
            ppid,
            ptid: ppid,
        };
        let comm = |pid| Side::Comm {
            time: 0,
            pid,
            tid: pid,
            comm: "x".into(),
        };
        spaces.push(&map(1, 100, 100, 0, "a"), &none);
        spaces.push(&comm(1), &none);
        spaces.push(&fork(2, 2, 1), &none);
        spaces.push(&map(2, 300, 100, 0, "b"), &none);
        assert_eq!(place(&spaces, 2, 150), Some(("a".into(), 50)));
        assert_eq!(place(&spaces, 1, 350), None);
        spaces.push(&fork(1, 7, 1), &none);
        assert_eq!((spaces.comm(7), spaces.comm(8)), (Some("x"), None));
    }
}
