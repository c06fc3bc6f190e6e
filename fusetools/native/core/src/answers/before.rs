//! System calls of a workload before what it uses is mounted, summed by process, from what perf writes to a pipe.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::error::Error;
use crate::events::{Ev, Item, Meaning, Role, Side};
use crate::operations::Arch;
use crate::reader::Stream;
use crate::requests::stitch::asleep;

/// Maximum number of threads at a time; of more nothing is kept.
const MOST: usize = 1 << 16;

/// Calls in which a process waits for its children: what they do counts instead.
const FOR_CHILDREN: [&str; 3] = ["wait4", "waitid", "waitpid"];

/// Sums of one system call. `total` is in ns.
#[derive(Clone, Debug, Serialize)]
pub struct Summed {
    pub name: String,
    pub calls: u64,
    /// Calls that returned an error.
    pub failed: u64,
    #[serde(rename = "total_ns")]
    pub total: u64,
}

/// A process's system calls and waits. Times in ns.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    pub pid: i32,
    pub comm: String,
    /// From its first event to its last one.
    #[serde(rename = "span_ns")]
    pub span: u64,
    /// When a thread of it neither ran nor wanted to, summed over its threads.
    #[serde(rename = "blocked_ns")]
    pub blocked: u64,
    /// When it waited for its children: part of `blocked`.
    #[serde(rename = "for_children_ns")]
    pub for_children: u64,
    /// Its other system calls, those of the greatest total first.
    pub calls: Vec<Summed>,
}

#[derive(Default)]
struct Sums {
    comm: String,
    first: u64,
    last: u64,
    blocked: u64,
    /// Calls, errors and ns by number.
    calls: FxHashMap<u64, [u64; 3]>,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    pid: i32,
    /// Number and begin of the system call it is in.
    inside: Option<(u64, u64)>,
    /// When it gave up its CPU to wait.
    asleep: Option<u64>,
}

/// Collects the system calls of a process and of all that it starts.
pub struct Before {
    stream: Stream,
    roles: Vec<Role>,
    asleep: Option<u64>,
    arch: Arch,
    processes: FxHashMap<i32, Sums>,
    threads: FxHashMap<i32, Thread>,
}

impl Before {
    /// Create it for the process `pid`, of one thread so far.
    pub fn new(catalogue: Vec<Meaning>, pid: i32, arch: Option<&str>) -> Before {
        let thread = Thread {
            pid,
            ..Thread::default()
        };
        Before {
            roles: catalogue.iter().map(|row| row.role).collect(),
            stream: Stream::new(catalogue),
            asleep: None,
            arch: Arch::new(arch),
            processes: [(pid, Sums::default())].into_iter().collect(),
            threads: [(pid, thread)].into_iter().collect(),
        }
    }

    /// Add the next bytes of perf's stream. Error: they are invalid.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.feed(bytes)?;
        self.see();
        Ok(())
    }

    /// Note that perf has ended, and return the processes: those that ran or waited the longest first, apart from their
    /// waits for children.
    pub fn finish(&mut self) -> Vec<Process> {
        self.stream.complete(u64::MAX);
        self.see();
        let processes = self.processes.iter().filter(|(_, sums)| sums.first > 0);
        let mut processes: Vec<Process> = processes
            .map(|(pid, sums)| self.process(*pid, sums))
            .collect();
        processes.sort_by_key(|p| (Reverse(p.span.saturating_sub(p.for_children)), p.pid));
        processes
    }

    /// Number of events that the kernel dropped.
    pub fn lost(&self) -> u64 {
        self.stream.lost()
    }

    fn process(&self, pid: i32, sums: &Sums) -> Process {
        let mut by_number = sums.calls.clone();
        // Those under way, too.
        let threads = self.threads.values().filter(|thread| thread.pid == pid);
        for (number, begin) in threads.filter_map(|thread| thread.inside) {
            let [calls, _, total] = by_number.entry(number).or_default();
            *calls += 1;
            *total += sums.last.saturating_sub(begin);
        }
        let summed = by_number.into_iter();
        let (children, mut calls): (Vec<Summed>, Vec<Summed>) = summed
            .map(|(number, [calls, failed, total])| Summed {
                name: self.arch.syscall(number),
                calls,
                failed,
                total,
            })
            .partition(|call| FOR_CHILDREN.contains(&&*call.name));
        calls.sort_by(|a, b| b.total.cmp(&a.total).then(a.name.cmp(&b.name)));
        Process {
            pid,
            comm: sums.comm.clone(),
            span: sums.last - sums.first,
            blocked: sums.blocked,
            for_children: children.iter().map(|call| call.total).sum(),
            calls,
        }
    }

    fn see(&mut self) {
        if self.asleep.is_none() {
            self.asleep = self.stream.head().map(asleep);
        }
        for batch in self.stream.batches() {
            batch.in_order(|item| match item {
                Item::Event(event) => self.event(event),
                Item::Side(record) => self.side(record),
            });
        }
    }

    fn event(&mut self, ev: &Ev) {
        let Some(thread) = self.threads.get_mut(&ev.tid) else {
            return;
        };
        let Some(sums) = self.processes.get_mut(&thread.pid) else {
            return;
        };
        if sums.first == 0 {
            sums.first = ev.time;
        }
        sums.last = ev.time;
        // Any event of a thread proves that it runs.
        if let Some(since) = thread.asleep.take() {
            sums.blocked += ev.time.saturating_sub(since);
        }
        match self.roles.get(ev.kind as usize) {
            Some(Role::SysEnter) => thread.inside = Some((ev.v[0], ev.time)),
            Some(Role::SysExit) => {
                if let Some((_, begin)) = thread.inside.take_if(|(number, _)| *number == ev.v[0]) {
                    let [calls, failed, total] = sums.calls.entry(ev.v[0]).or_default();
                    *calls += 1;
                    *failed += u64::from(is_error(ev.v[1]));
                    *total += ev.time.saturating_sub(begin);
                }
            }
            Some(Role::Switch) if ev.v[1] & self.asleep.unwrap_or(3) != 0 => {
                thread.asleep = Some(ev.time);
            }
            _ => (),
        }
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Fork { pid, tid, ppid, .. }
                if self.processes.contains_key(ppid) && self.threads.len() < MOST =>
            {
                let comm = self.processes[ppid].comm.clone();
                let new = self.processes.entry(*pid).or_default();
                if new.comm.is_empty() {
                    new.comm = comm;
                }
                let thread = Thread {
                    pid: *pid,
                    ..Thread::default()
                };
                self.threads.entry(*tid).or_insert(thread);
            }
            Side::Comm { pid, tid, comm, .. } if pid == tid => {
                if let Some(sums) = self.processes.get_mut(pid) {
                    sums.comm.clone_from(comm);
                }
            }
            Side::Exit { time, tid, .. } => {
                if let Some(thread) = self.threads.remove(tid) {
                    if let Some(sums) = self.processes.get_mut(&thread.pid) {
                        sums.last = sums.last.max(*time);
                    }
                }
            }
            _ => (),
        }
    }
}

/// Return whether a system call's result is an error (include/linux/err.h, MAX_ERRNO).
fn is_error(result: u64) -> bool {
    (-4095..0).contains(&(result as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Layer;

    const CLOSE: u64 = 3; // arch/x86/entry/syscalls/syscall_64.tbl
    const WAIT4: u64 = 61;
    const READ: u64 = 0;

    fn before() -> Before {
        let rows = [
            ("raw_syscalls:sys_enter", Role::SysEnter),
            ("raw_syscalls:sys_exit", Role::SysExit),
            ("sched:sched_switch", Role::Switch),
        ];
        let rows = rows.map(|(event, role)| Meaning {
            event: event.into(),
            layer: Layer::Syscall,
            function: String::new(),
            operation: String::new(),
            role,
        });
        Before::new(rows.into(), 100, Some("x86_64"))
    }

    fn event(before: &mut Before, tid: i32, time: u64, kind: u32, v: [u64; 2]) {
        let v = [v[0], v[1], 0, 0];
        let pid = tid;
        before.event(&Ev {
            time,
            pid,
            tid,
            kind,
            cpu: 0,
            v,
        });
    }

    fn call(before: &mut Before, tid: i32, (from, to): (u64, u64), number: u64, result: i64) {
        event(before, tid, from, 0, [number, 0]);
        event(before, tid, to, 1, [number, result as u64]);
    }

    fn fork(before: &mut Before, parent: i32, pid: i32, comm: &str) {
        before.side(&Side::Fork {
            time: 0,
            pid,
            tid: pid,
            ppid: parent,
            ptid: parent,
        });
        before.side(&Side::Comm {
            time: 0,
            pid,
            tid: pid,
            comm: comm.into(),
        });
    }

    #[test]
    fn calls_are_summed_by_process_and_waits_for_children_are_theirs() {
        let mut sums = before();
        fork(&mut sums, 100, 101, "mounter");
        fork(&mut sums, 999, 1000, "stranger");
        event(&mut sums, 100, 1_000, 0, [WAIT4, 0]);
        event(&mut sums, 100, 1_100, 2, [100, 1]);
        for n in 0..1009 {
            let result = if n == 0 { 0 } else { -9 }; // EBADF
            call(
                &mut sums,
                101,
                (2_000 + 10 * n, 2_004 + 10 * n),
                CLOSE,
                result,
            );
            call(&mut sums, 1000, (2_000 + 10 * n, 2_009 + 10 * n), CLOSE, 0);
        }
        // It reads, and sleeps meanwhile; any event shows that it runs again.
        event(&mut sums, 101, 13_000, 0, [READ, 0]);
        event(&mut sums, 101, 13_100, 2, [101, 1]);
        event(&mut sums, 101, 15_000, 1, [READ, 8]);
        // Preempted: it does not wait.
        event(&mut sums, 101, 15_100, 2, [101, 0]);
        event(&mut sums, 101, 16_000, 0, [READ, 0]);
        event(&mut sums, 101, 18_000, 0, [READ, 0]);
        event(&mut sums, 100, 18_100, 1, [WAIT4, 101]);

        let found = sums.finish();
        let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [101, 100], "the shell only waited for its child");
        let mounter = &found[0];
        assert_eq!(
            (&*mounter.comm, mounter.span, mounter.blocked),
            ("mounter", 16_000, 1_900)
        );
        let calls = mounter.calls.iter();
        let calls: Vec<_> = calls
            .map(|call| (&*call.name, call.calls, call.failed, call.total))
            .collect();
        // The second read has not returned, and took no time so far.
        assert_eq!(calls, [("close", 1009, 1008, 4036), ("read", 2, 0, 2000)]);
        assert_eq!(found[1].for_children, 17_100);
        assert_eq!(found[1].blocked, 17_000);
    }

    #[test]
    fn a_thread_is_of_its_process_and_its_end_counts() {
        let mut sums = before();
        sums.side(&Side::Fork {
            time: 0,
            pid: 100,
            tid: 150,
            ppid: 100,
            ptid: 100,
        });
        call(&mut sums, 100, (1_000, 1_010), READ, 1);
        call(&mut sums, 150, (2_000, 2_010), READ, -4095);
        sums.side(&Side::Exit {
            time: 5_000,
            pid: 100,
            tid: 150,
        });
        call(&mut sums, 150, (6_000, 6_010), READ, 1); // another process's thread by now
        let found = sums.finish();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].span, 4_000);
        assert_eq!((found[0].calls[0].calls, found[0].calls[0].failed), (2, 1));
    }
}
