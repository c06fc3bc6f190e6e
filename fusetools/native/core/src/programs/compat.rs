//! System calls of 32-bit programs on a 64-bit kernel: the kernel's events have the number that the program used, and
//! 32-bit programs have other numbers.
//!
//! The place of a process's vDSO shows which kind of program it runs: at each exec, and for earlier programs in the
//! recording's first records.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::events::{Batch, Ev, Meaning, Role, Side};
use crate::operations::Arch;
use crate::programs::files::VDSO;

pub(crate) struct Compat {
    arch: Arch,
    /// By the event's number in the catalogue: it is a system call.
    calls: Vec<bool>,
    processes: FxHashSet<i32>,
    numbers: FxHashMap<u64, u64>,
    /// Time of the last event.
    last: u64,
}

/// Kind of program that a process runs from the first event of a time or later on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    from: u64,
    pid: i32,
    is_32bit: bool,
}

impl Change {
    /// Maximum number of changes that are kept of a recording.
    pub const MOST: usize = 1 << 20;
}

impl Compat {
    /// Return whether such events have a system call's number.
    pub fn needs(row: &Meaning) -> bool {
        matches!(row.role, Role::SysEnter | Role::SysExit)
    }

    pub fn new(catalogue: &[Meaning], arch: Option<&str>) -> Compat {
        Compat {
            arch: Arch::new(arch),
            calls: catalogue.iter().map(Compat::needs).collect(),
            processes: FxHashSet::default(),
            numbers: FxHashMap::default(),
            last: 0,
        }
    }

    /// Give these calls the machine's own numbers, and add to `changes`. Batches come in order.
    pub fn number(&mut self, batch: &mut Batch, changes: &mut Vec<Change>) {
        if self.processes.is_empty() && !batch.side.iter().any(begins_32bit) {
            self.last = batch.events.last().map_or(self.last, |event| event.time);
            return;
        }
        let mut side = batch.side.iter();
        let mut next = side.next();
        let mut due = Side::due(next);
        for event in &mut batch.events {
            while let Some(record) = next.take_if(|_| due <= event.time) {
                self.side(record, changes);
                next = side.next();
                due = Side::due(next);
            }
            self.event(event);
        }
        next.into_iter()
            .chain(side)
            .for_each(|record| self.side(record, changes));
    }

    /// Number a batch of a further pass, which may lack records, by the changes that are left.
    pub fn number_again(&mut self, batch: &mut Batch, changes: &mut &[Change]) {
        if self.processes.is_empty() && changes.is_empty() {
            return;
        }
        for event in &mut batch.events {
            while let Some((change, left)) = changes.split_first() {
                if change.from > event.time {
                    break;
                }
                self.set(change.pid, change.is_32bit);
                *changes = left;
            }
            self.event(event);
        }
    }

    fn event(&mut self, event: &mut Ev) {
        self.last = event.time;
        if self.calls[event.kind as usize] && self.processes.contains(&event.pid) {
            let number = event.v[0];
            let arch = self.arch;
            let own = self.numbers.entry(number);
            event.v[0] = *own.or_insert_with(|| arch.from_32bit(number));
        }
    }

    fn side(&mut self, record: &Side, changes: &mut Vec<Change>) {
        let (pid, is_32bit) = match record {
            Side::Map(map) if map.path == VDSO => (map.pid, begins_32bit(record)),
            Side::Fork { pid, ppid, .. } if pid != ppid => (*pid, self.processes.contains(ppid)),
            _ => return,
        };
        if self.set(pid, is_32bit) && changes.len() < Change::MOST {
            // It comes after the events so far, whatever its own time.
            let from = Side::due(Some(record)).max(self.last.saturating_add(1));
            changes.push(Change {
                from,
                pid,
                is_32bit,
            });
        }
    }

    /// Note the kind of program that a process runs. Return whether that is new.
    fn set(&mut self, pid: i32, is_32bit: bool) -> bool {
        match is_32bit {
            true => self.processes.insert(pid),
            false => self.processes.remove(&pid),
        }
    }
}

/// Return whether a process has, from now on, a program whose addresses have 32 bits.
fn begins_32bit(record: &Side) -> bool {
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

    /// Return the numbers of each batch's calls as the machine's own.
    fn numbers(batches: Vec<(Vec<Side>, Vec<Ev>)>) -> Vec<u64> {
        let enter = Meaning {
            event: "raw_syscalls:sys_enter".into(),
            layer: Layer::Syscall,
            function: String::new(),
            operation: String::new(),
            role: Role::SysEnter,
        };
        let arch = Some("x86_64");
        let mut compat = Compat::new(std::slice::from_ref(&enter), arch);
        let (mut found, mut calls, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for (side, events) in batches {
            calls.extend(events.clone());
            let mut batch = Batch {
                side,
                events,
                stacks: Vec::new(),
            };
            compat.number(&mut batch, &mut changes);
            found.extend(batch.events.iter().map(|event| event.v[0]));
        }
        // A further pass that reads only the calls from some call on.
        for first in 0..calls.len() {
            let mut batch = Batch {
                events: calls[first..].to_vec(),
                ..Batch::default()
            };
            Compat::new(std::slice::from_ref(&enter), arch)
                .number_again(&mut batch, &mut &changes[..]);
            let again = batch.events.iter().map(|event| event.v[0]);
            assert!(again.eq(found[first..].iter().copied()), "from {first}");
        }
        found
    }

    /// i386: 3 is read, 11 execve. x86-64: 3 is close, 0 read, 59 execve.
    #[test]
    fn calls_of_32bit_programs_have_64bit_numbers() {
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
            // 8 is a child of 5; 6 becomes a 32-bit program, 5 a 64-bit one.
            (
                vec![fork(15, 8, 5), vdso(20, 6, 0xf7f0_0000)],
                vec![call(16, 8, 3), call(19, 6, 59), call(21, 6, 11)],
            ),
            (
                vec![vdso(30, 5, 0x7fff_0000_0000), fork(32, 8, 5)],
                vec![call(29, 5, 3), call(31, 5, 3), call(33, 8, 3)],
            ),
            // A record that comes late.
            (vec![vdso(32, 8, 0xf7f0_0000)], vec![call(40, 8, 3)]),
        ]);
        assert_eq!(found, [0, 3, 3, 0, 59, 59, 0, 3, 3, 0]);
    }
}
