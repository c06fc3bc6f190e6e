//! System calls of 32-bit programs on a 64-bit kernel: the kernel's events have the number that the program gave, and
//! theirs are others.
//!
//! Which program a process runs shows where its vDSO is mapped, at each exec and, of those that ran before, with the
//! recording's first records.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::events::{Batch, Meaning, Role, Side};
use crate::files::VDSO;
use crate::operations::Arch;

pub(crate) struct Narrow {
    arch: Arch,
    /// By the event's number in the catalogue: it is a system call.
    calls: Vec<bool>,
    processes: FxHashSet<i32>,
    numbers: FxHashMap<u64, u64>,
}

impl Narrow {
    /// Whether such events have a system call's number.
    pub fn needs(row: &Meaning) -> bool {
        matches!(row.role, Role::SysEnter | Role::SysExit)
    }

    pub fn new(catalogue: &[Meaning], arch: Option<&str>) -> Narrow {
        Narrow {
            arch: Arch::new(arch),
            calls: catalogue.iter().map(Narrow::needs).collect(),
            processes: FxHashSet::default(),
            numbers: FxHashMap::default(),
        }
    }

    /// Of batches in their order: gives these calls the machine's own numbers.
    pub fn number(&mut self, batch: &mut Batch) {
        if self.processes.is_empty() && !batch.side.iter().any(begins_narrow) {
            return;
        }
        let mut side = batch.side.iter();
        let mut next = side.next();
        let mut due = Side::due(next);
        for event in &mut batch.events {
            while let Some(record) = next.take_if(|_| due <= event.time) {
                self.side(record);
                next = side.next();
                due = Side::due(next);
            }
            if self.calls[event.kind as usize] && self.processes.contains(&event.pid) {
                let number = event.v[0];
                let arch = self.arch;
                let own = self.numbers.entry(number);
                event.v[0] = *own.or_insert_with(|| arch.of_narrow(number));
            }
        }
        next.into_iter()
            .chain(side)
            .for_each(|record| self.side(record));
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Map(map) if begins_narrow(record) => {
                self.processes.insert(map.pid);
            }
            Side::Map(map) if map.path == VDSO => {
                self.processes.remove(&map.pid);
            }
            Side::Fork { pid, ppid, .. } if pid != ppid => {
                if self.processes.contains(ppid) {
                    self.processes.insert(*pid);
                } else {
                    self.processes.remove(pid);
                }
            }
            _ => {}
        }
    }
}

/// A process has, from now on, a program whose addresses have 32 bits.
fn begins_narrow(record: &Side) -> bool {
    matches!(record, Side::Map(map) if map.path == VDSO && map.start >> 32 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Ev, Layer, Map, ABSENT};

    fn call(time: u64, pid: i32, number: u64) -> Ev {
        Ev {
            time,
            pid,
            tid: pid + 1,
            kind: 0,
            cpu: 0,
            v: [number, ABSENT, ABSENT, ABSENT],
        }
    }

    fn vdso(time: u64, pid: i32, start: u64) -> Side {
        Side::Map(Box::new(Map {
            time,
            pid,
            start,
            len: 0x2000,
            offset: 0,
            path: VDSO.into(),
            build_id: Vec::new(),
        }))
    }

    /// Each batch's calls, by the machine's numbers.
    fn numbers(batches: Vec<(Vec<Side>, Vec<Ev>)>) -> Vec<u64> {
        let enter = Meaning {
            event: "raw_syscalls:sys_enter".into(),
            layer: Layer::Syscall,
            function: String::new(),
            operation: String::new(),
            role: Role::SysEnter,
        };
        let mut narrow = Narrow::new(&[enter], Some("x86_64"));
        let mut found = Vec::new();
        for (side, events) in batches {
            let mut batch = Batch {
                side,
                events,
                stacks: Vec::new(),
            };
            narrow.number(&mut batch);
            found.extend(batch.events.iter().map(|event| event.v[0]));
        }
        found
    }

    /// i386: 3 is read, 11 execve. x86-64: 3 is close, 0 read, 59 execve.
    #[test]
    fn a_program_of_32_bits_makes_other_calls() {
        let fork = |time, pid, ppid| Side::Fork {
            time,
            pid,
            ppid,
            tid: pid,
            ptid: ppid,
        };
        let found = numbers(vec![
            (
                vec![vdso(0, 5, 0xf7f0_0000), vdso(0, 6, 0x7fff_0000_0000)],
                vec![call(10, 5, 3), call(11, 6, 3), call(12, 7, 3)],
            ),
            // 8 is a child of 5; 6 becomes one of 32 bits, 5 one of 64.
            (
                vec![fork(15, 8, 5), vdso(20, 6, 0xf7f0_0000)],
                vec![call(16, 8, 3), call(19, 6, 59), call(21, 6, 11)],
            ),
            (
                vec![vdso(30, 5, 0x7fff_0000_0000), fork(32, 8, 5)],
                vec![call(29, 5, 3), call(31, 5, 3), call(33, 8, 3)],
            ),
        ]);
        assert_eq!(found, [0, 3, 3, 0, 59, 59, 0, 3, 3]);
    }
}
