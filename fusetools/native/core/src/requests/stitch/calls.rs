//! System calls on mounts, and their time outside of requests.
//!
//! A call's descriptor tells its mount, or else a request that it makes and may wait for. Its time is the time in the
//! stages of the requests that it waits for, and the rest, which lies outside of requests:
//!
//! - all of it, if it waits for none;
//! - before a request, the time until the caller goes on after it has waited for something else (a lock);
//! - after its last request, the time from when the caller begins to wait for something else (dirty pages, a page that
//!   another process reads). If the call reads or writes and the request does neither, all after the request.
//!
//! The kernel's stack of a wait shows what the caller waits for.
//!
//! A page fault on a mapped file is no system call. The thread sleeps until a page has arrived: then the daemon's thread
//! that answers wakes it up. Each such wait counts as a call.

use std::sync::Arc;

use super::*;
use crate::events::Chain;
use crate::operations::{Call, Files, PAGE_FAULT};
use crate::programs::symbols::Kernel;

/// Kinds of the caller's time outside of requests: it waits for the writing of dirty pages, for a page (its lock, or
/// what reads or writes it), for an inode's lock, for other lookups and lists in a directory of a mount without parallel
/// ones, for a program that permits accesses (fanotify), for the file below that the kernel itself reads or writes for
/// the daemon (FUSE passthrough), for something else, for something unknown (no stack was recorded); it lacks a CPU; it
/// runs; unknown, as its switches are not recorded.
pub const OUTSIDE: [&str; 11] = [
    "dirty_throttling",
    "page",
    "inode_lock",
    "directory_lock",
    "permission",
    "passthrough",
    "other",
    "blocked",
    "runnable",
    "on_cpu",
    "unknown",
];
const DIRTY: u8 = 0;
pub const PAGE: u8 = 1;
const INODE_LOCK: u8 = 2;
const DIRECTORY_LOCK: u8 = 3;
const PERMISSION: u8 = 4;
const PASSTHROUGH: u8 = 5;
const OTHER: u8 = 6;
pub const BLOCKED: u8 = 7;
const RUNNABLE: usize = 8;
const ON_CPU: usize = 9;
const UNKNOWN: usize = 10;
/// The wait is a part of a request's set-up: the kernel currently allows no more requests.
pub(super) const SETUP: u8 = 11;
/// No sleep.
pub const AWAKE: u8 = u8::MAX;

/// Maximum number of descriptors, more than a workload has open at once; further ones are unknown.
pub(super) const MOST_FILES: usize = 1 << 16;
/// AT_FDCWD and other negative numbers are no descriptors.
const MOST_DESCRIPTOR: u64 = i32::MAX as u64;
const O_CLOEXEC: u64 = 0o2_000_000;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// System call on a mount.
#[derive(Clone, Debug)]
pub struct MountCall {
    pub number: u64,
    pub pid: i32,
    pub tid: i32,
    /// Index into the names of threads.
    pub comm: u32,
    /// ABSENT if unknown.
    pub connection: u64,
    pub start: u64,
    /// Time of its return, of its thread's end, or of the recording's end. And: whether it is unfinished.
    pub until: u64,
    pub goes_on: bool,
    /// Operation of the call itself (`Call::operation`), and those of the requests that it made.
    pub operation: Operation,
    pub operations: u128,
    /// Number of requests that it waited for.
    pub requests: u32,
    /// Time in ns in the order of `OUTSIDE`. The rest of the call is in requests.
    pub outside: [u64; OUTSIDE.len()],
    /// Cost of recording in it, as far as known, by which its duration is too long: 0 unless `Filters::corrected`.
    pub taken: u64,
}

impl MountCall {
    /// Return the whole in ns.
    pub fn duration(&self) -> u64 {
        let whole = self.until.saturating_sub(self.start);
        whole.saturating_sub(self.taken)
    }

    /// Return whether it returned without a request: served from the kernel's caches, or with an error of the kernel.
    pub fn made_no_request(&self) -> bool {
        self.operations == 0 && !self.goes_on
    }

    /// Return the ns outside of requests.
    pub fn rest(&self) -> u64 {
        self.outside.iter().sum()
    }
}

/// Wait of a thread outside of system calls that an answer to a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    connection: u64,
    from: u64,
    woken: u64,
}

/// End of a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Returns(i64),
    WithThread,
    GoesOn,
}

/// Time that a thread had spent by some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) time: u64,
    pub(super) idle: Idle,
    /// Parts of `Idle::blocked`, in the order of `OUTSIDE`.
    pub(super) by: [u64; RUNNABLE],
}

impl Spent {
    /// Add the time from here until `to` by what the thread did.
    fn add(&self, to: &Spent, followed: bool, sums: &mut [u64; OUTSIDE.len()]) {
        let whole = to.time.saturating_sub(self.time);
        if !followed {
            sums[UNKNOWN] += whole;
            return;
        }
        let mut rest = whole;
        let blocked = to
            .by
            .iter()
            .zip(&self.by)
            .map(|(to, from)| to.saturating_sub(*from));
        let runnable = to.idle.runnable.saturating_sub(self.idle.runnable);
        for (sum, ns) in sums.iter_mut().zip(blocked.chain([runnable])) {
            let ns = ns.min(rest);
            *sum += ns;
            rest -= ns;
        }
        sums[ON_CPU] += rest;
    }
}

/// The system call that a thread is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Current {
    /// Its mount's connection, ABSENT if unknown; None: it is on no mount, as far as known.
    pub(super) mount: Option<u64>,
    operations: u128,
    /// Connection on which it has opened a file.
    opens: Option<u64>,
    /// State of the thread when the time up to which the call is accounted for ended.
    accounted: Spent,
    /// Since then: begin of the first wait for something else than a request; end of the last.
    off: Option<Spent>,
    on: Option<Spent>,
    outside: [u64; OUTSIDE.len()],
}

/// End of a caller's last wait before it made a request, and the begin of the time in which that lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    since: u64,
    on: Spent,
}

impl Task {
    fn spent(&self, time: u64) -> Spent {
        let idle = self.idle_at(time);
        let mut by = self.blocked_by;
        by[self.cause()] += idle.blocked - self.idle.blocked;
        Spent { time, idle, by }
    }

    /// Return the place in `OUTSIDE` of the last wait.
    pub(super) fn cause(&self) -> usize {
        usize::from(self.waits_for_what).min(usize::from(BLOCKED))
    }

    /// Note that the current call is accounted for up to `time`.
    pub(super) fn account(&mut self, time: u64) {
        self.call.accounted = self.spent(time);
        (self.call.off, self.call.on) = (None, None);
    }

    /// Note that the thread goes to sleep. `what`: the stack's verdict, one of OUTSIDE or SETUP.
    pub(super) fn sleeps(&mut self, time: u64, what: u8) {
        if self.syscall.is_some() && self.call.off.is_none() && what != SETUP {
            self.call.off = Some(self.spent(time));
        }
        self.slept = what != SETUP;
    }

    /// Note that the thread runs again.
    pub(super) fn woke(&mut self, time: u64) {
        if std::mem::take(&mut self.slept) && self.call.off.is_some() {
            self.call.on = Some(self.spent(time));
        }
    }

    /// Return what the thread waited for before the request that it makes now.
    pub(super) fn gap(&self) -> Option<Gap> {
        let on = self
            .call
            .on
            .filter(|_| self.followed && self.accounted > 0)?;
        let since = self.call.accounted.time;
        Some(Gap { since, on })
    }

    /// Leave the time before a request out of it, as far as the caller waited for something else. Return when the
    /// request's own time begins, and the thread's idle time by then.
    pub(super) fn leave_out(&mut self, gap: Gap) -> Option<(u64, Idle)> {
        let call = &mut self.call;
        if gap.since != call.accounted.time {
            return None;
        }
        call.accounted
            .add(&gap.on, self.followed, &mut call.outside);
        call.accounted = gap.on;
        Some((gap.on.time, gap.on.idle))
    }
}

impl Stitch {
    /// Collect system calls on mounts, for `take_calls`.
    pub fn collect_calls(&mut self) {
        self.collects = true;
    }

    /// Return the system calls on mounts that have ended since the last time.
    pub fn take_calls(&mut self) -> Vec<MountCall> {
        std::mem::take(&mut self.mount_calls)
    }

    /// Return the system call that ended with the last event, if it was on a mount.
    pub fn mount_call(&self) -> Option<&MountCall> {
        self.last_call.as_ref()
    }

    /// Return whether a thread is in a system call.
    pub fn in_call(&self, tid: i32) -> bool {
        self.tasks
            .get(tid)
            .is_some_and(|task| task.syscall.is_some())
    }

    /// Return the process of a thread that is in a system call on a mount, as far as known, with that mount (ABSENT if
    /// unknown) and the call's own operation.
    pub fn on_mount(&self, tid: i32) -> Option<(i32, u64, Operation)> {
        let task = self.tasks.get(tid)?;
        let call = task.syscall.as_ref()?;
        let operation = self.call_of(call.number).operation;
        Some((task.pid, task.call.mount?, operation))
    }

    pub(super) fn call_of(&self, number: u64) -> Call {
        let known = usize::try_from(number)
            .ok()
            .and_then(|at| self.kinds_of_calls.get(at));
        known.copied().unwrap_or_default()
    }

    /// Learn what waits with these stacks are for.
    pub fn add_stacks(&mut self, chains: &[Chain], kernel: Option<&Kernel<'_>>) {
        let verdicts = chains.iter().map(|chain| match kernel {
            Some(kernel) => verdict(chain, |address| {
                if let Some(known) = self.sites.get(&address) {
                    return *known;
                }
                let site = kernel.name(address).map_or(Site::Other, site);
                self.sites.insert(address, site);
                site
            }),
            None => BLOCKED,
        });
        let verdicts: Vec<u8> = verdicts.collect();
        self.verdicts.extend(verdicts);
    }

    pub(super) fn verdict_of(&self, stack: u64) -> u8 {
        let at = usize::try_from(stack).ok();
        at.and_then(|at| self.verdicts.get(at))
            .copied()
            .unwrap_or(BLOCKED)
    }

    /// Note that a thread which ends a request of a connection wakes another one, asleep since then. If this thread is in no
    /// system call, it has waited for a page that the answer brought.
    pub(super) fn wakes_by_answer(&mut self, tid: i32, (from, woken): (u64, u64), connection: u64) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        // Before its first return from a system call it may be in one.
        if task.syscall.is_none() && task.left > 0 {
            task.fault = Some(Fault {
                connection,
                from,
                woken,
            });
        }
    }

    /// Report the wait for a page that has ended: the thread runs.
    pub(super) fn fault_ends(&mut self, tid: i32, time: u64) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let Some(fault) = task.fault.take() else {
            return;
        };
        let mut outside = [0; OUTSIDE.len()];
        outside[usize::from(PAGE)] = fault.woken.saturating_sub(fault.from);
        outside[RUNNABLE] = time.saturating_sub(fault.woken);
        let call = MountCall {
            number: PAGE_FAULT,
            pid: task.pid,
            tid,
            comm: task.comm,
            connection: fault.connection,
            start: fault.from,
            until: time,
            goes_on: false,
            operation: Operation::READ,
            operations: Operation::READ.bit(),
            requests: 0,
            outside,
            taken: 0,
        };
        self.report_call(call);
    }

    fn report_call(&mut self, call: MountCall) {
        let filters = &self.filters;
        let wanted = (self.window.0..self.window.1).contains(&call.start)
            && (filters.connections.is_empty() || filters.connections.contains(&call.connection))
            && (filters.pids.is_empty() || filters.pids.contains(&call.pid))
            && (filters.comms.is_empty()
                || filters.comms.contains(&self.comms[call.comm as usize]));
        if !wanted {
            return;
        }
        if self.collects {
            self.mount_calls.push(call.clone());
        }
        self.last_call = Some(call);
    }

    /// Begin a system call.
    pub(super) fn call_begins(&mut self, ev: &Ev) {
        let [number, first, third, second] = ev.v;
        let kind = self.call_of(number);
        let of = |fd: u64, takes: bool| {
            let key = (ev.pid, fd);
            let known = takes && fd <= MOST_DESCRIPTOR;
            self.mounted.get(&key).filter(|_| known).map(|file| file.0)
        };
        let mount = of(first, kind.descriptor)
            .or_else(|| of(third, kind.third))
            .or_else(|| of(second, kind.second));
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.call = Current {
            mount,
            ..Current::default()
        };
        task.account(ev.time);
        task.room = None;
    }

    /// Note that a thread makes a request.
    pub(super) fn call_requests(&mut self, (pid, tid): (i32, i32), op: Operation, connection: u64) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let Some(syscall) = task.syscall else { return };
        task.call.operations |= op.bit();
        if !op.may_wait() {
            return;
        }
        if matches!(task.call.mount, None | Some(ABSENT)) {
            task.call.mount = Some(connection);
        }
        if op.opens() && connection != ABSENT {
            task.call.opens = Some(connection);
            if self.opening.len() < MOST_FILES {
                self.opening.insert(connection);
            }
        }
        let kind = self.call_of(syscall.number);
        // With two descriptors, it may be the other one. A page fault at the call's buffer reads from another file.
        let two = kind.second || kind.third;
        let faults = op == Operation::READ && kind.operation != op;
        if kind.own_descriptor && connection != ABSENT && !two && !faults {
            self.opened((pid, syscall.from), (connection, false));
        }
    }

    fn opened(&mut self, (pid, fd): (i32, u64), file: (u64, bool)) {
        let full = self.mounted.len() >= MOST_FILES;
        if fd <= MOST_DESCRIPTOR && (!full || self.mounted.contains_key(&(pid, fd))) {
            self.mounted.insert((pid, fd), file);
        }
    }

    /// Copy the parent's descriptors to a new process.
    pub(super) fn files_forked(&mut self, parent: i32, child: i32) {
        if parent == child || self.mounted.is_empty() {
            return;
        }
        let of = self.mounted.iter().filter(|((pid, _), _)| *pid == parent);
        let own: Vec<_> = of.map(|((_, fd), file)| (*fd, *file)).collect();
        own.into_iter()
            .for_each(|(fd, file)| self.opened((child, fd), file));
    }

    pub(super) fn files_closed(&mut self, pid: i32) {
        if !self.mounted.is_empty() {
            self.mounted.retain(|(of, _), _| *of != pid);
        }
    }

    /// Learn from a system call that returns which descriptors are on which mounts.
    fn descriptors(&mut self, pid: i32, call: Syscall, current: &Current, ret: i64) {
        let kind = self.call_of(call.number);
        let first = (pid, call.from);
        match kind.files {
            Files::None => {}
            _ if ret < 0 => {}
            Files::Opens | Files::OpensOld => {
                let flags = match kind.files {
                    Files::Opens => call.third,
                    _ => call.second,
                };
                // Without an OPEN, a part of the path is on the mount, but the file may be elsewhere (a symbolic link, a
                // mount below). Some daemons get no OPEN at all.
                let led_on =
                    Operation::of_bits(current.operations).any(|op| op.name() == "readlink");
                let may_be =
                    |mount: &u64| *mount != ABSENT && !led_on && !self.opening.contains(mount);
                let connection = current.opens.or(current.mount.filter(may_be));
                self.replaced((pid, ret as u64), connection, flags & O_CLOEXEC != 0);
            }
            Files::Copies | Files::CopiesWith => {
                let source = self.mounted.get(&first).map(|file| file.0);
                let closes = kind.files == Files::CopiesWith && call.third & O_CLOEXEC != 0;
                self.replaced((pid, ret as u64), source, closes);
            }
            // F_DUPFD and F_DUPFD_CLOEXEC.
            Files::Control if matches!(call.second, 0 | 1030) => {
                let source = self.mounted.get(&first).map(|file| file.0);
                self.replaced((pid, ret as u64), source, call.second == 1030);
            }
            // F_SETFD.
            Files::Control if call.second == 2 => {
                if let Some(file) = self.mounted.get_mut(&first) {
                    file.1 = call.third & 1 != 0;
                }
            }
            Files::Control => {}
            Files::Closes => {
                self.mounted.remove(&first);
            }
            Files::ClosesRange => {
                let later = call.third & CLOSE_RANGE_CLOEXEC != 0;
                let range = call.from..=call.second;
                self.mounted.retain(|(of, fd), file| {
                    let within = *of == pid && range.contains(fd);
                    file.1 |= within;
                    !within || later
                });
            }
            Files::Executes => self.mounted.retain(|(of, _), file| *of != pid || !file.1),
        }
    }

    fn replaced(&mut self, key: (i32, u64), connection: Option<u64>, closes: bool) {
        match connection {
            Some(connection) => self.opened(key, (connection, closes)),
            None => {
                self.mounted.remove(&key);
            }
        }
    }

    /// Account for the time from the last request to the end of a thread's system call. `waits`: the thread still waits
    /// for a request.
    pub(super) fn call_leaves(&mut self, tid: i32, time: u64, waits: bool) {
        let Some(task) = self.tasks.get_mut(tid).filter(|_| !waits) else {
            return;
        };
        let Some(syscall) = task.syscall else { return };
        let (exit, followed) = (task.spent(time), task.followed);
        let (current, last) = (task.call, task.last);
        let kind = self.call_of(syscall.number);
        let mut from = Some(current.accounted);
        if let Some(open) = last.and_then(|slot| self.get_mut(slot)) {
            let story = &mut open.story;
            let foreign = kind.data && story.operation != kind.operation;
            if !foreign || story.at(Mark::Runs).is_none() {
                from = current.off.filter(|_| followed);
            }
            if let Some(from) = from {
                story.set(Mark::Leaves, from.time);
                story.idle[Mark::Leaves as usize] = followed.then_some(from.idle);
            }
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            if let Some(from) = from {
                from.add(&exit, followed, &mut task.call.outside);
            }
            task.account(time);
        }
    }

    /// End a thread's system call at `time`: with `ret`, with its thread, or unfinished at the recording's end. `last`:
    /// connection of the last request that it waited for.
    pub(super) fn call_ends(&mut self, tid: i32, call: Syscall, time: u64, how: Ends, last: u64) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let mut current = std::mem::take(&mut task.call);
        let (pid, requests, comm, taken) = (task.pid, task.waits, task.comm, task.taken);
        if current.mount == Some(ABSENT) {
            current.mount = Some(last);
        }
        if let Ends::Returns(ret) = how {
            self.descriptors(pid, call, &current, ret);
        }
        let Some(connection) = current.mount else {
            return;
        };
        let mut outside = current.outside;
        if requests == 0 {
            // The recorder's work lies in no request.
            outside[ON_CPU] = outside[ON_CPU].saturating_sub(taken);
        }
        self.report_call(MountCall {
            number: call.number,
            pid,
            tid,
            comm,
            connection,
            start: call.start,
            until: time,
            goes_on: how == Ends::GoesOn,
            operation: self.call_of(call.number).operation,
            operations: current.operations,
            requests,
            outside,
            taken,
        });
    }
}

/// Meaning of a function in a stack for a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Dirty,
    Page,
    /// Waits for a sleeping lock: an inode's, unless it is one of the process's memory.
    Lock,
    /// Waits until no other lookup or list is under way in the directory (no FUSE_PARALLEL_DIROPS).
    Directory,
    /// Asks a program whether the access is allowed.
    Permission,
    Memory,
    Setup,
    /// Calls the file system of the file below.
    Passthrough,
    Other,
}

fn site(name: &str) -> Site {
    let name = name.split('.').next().unwrap_or(name);
    let is = |names: &[&str]| names.contains(&name);
    if name.starts_with("balance_dirty_pages") {
        Site::Dirty
    } else if name.starts_with("fuse_passthrough_") {
        Site::Passthrough
    } else if name.starts_with("fanotify_") {
        Site::Permission
    } else if name == "fuse_lock_inode" {
        Site::Directory
    } else if name.starts_with("folio_wait_")
        || name.starts_with("wait_on_page_")
        || is(&[
            "__folio_lock",
            "__folio_lock_killable",
            "__folio_lock_or_retry",
            "__lock_page",
            "__lock_page_killable",
            "__lock_page_or_retry",
            "folio_put_wait_locked",
            "put_and_wait_on_page_locked",
            "fuse_wait_on_page_writeback",
            "fuse_wait_on_folio_writeback",
        ])
    {
        Site::Page
    } else if is(&[
        "rwsem_down_read_slowpath",
        "rwsem_down_write_slowpath",
        "rwsem_down_read_failed",
        "rwsem_down_write_failed",
        "d_alloc_parallel",
    ]) {
        Site::Lock
    } else if name.starts_with("mmap_read_lock")
        || name.starts_with("mmap_write_lock")
        || is(&[
            "lock_mm_and_find_vma",
            "do_user_addr_fault",
            "exc_page_fault",
            "do_page_fault",
            "__mm_populate",
            "vm_mmap_pgoff",
            "__vm_munmap",
            "do_madvise",
            "do_mprotect_pkey",
            "dup_mmap",
            "exit_mm",
            "__do_sys_brk",
            "down_read_killable_mm",
        ])
    {
        Site::Memory
    } else if is(&[
        "fuse_get_req",
        "__fuse_get_req",
        "fuse_request_alloc",
        "fuse_block_alloc",
        // It does not wait for the answer, but for room.
        "fuse_simple_background",
    ]) {
        Site::Setup
    } else {
        Site::Other
    }
}

/// Return what a wait with this stack is for: a place in `OUTSIDE`, or SETUP. Without the kernel's part it is BLOCKED.
fn verdict(chain: &Chain, mut site: impl FnMut(u64) -> Site) -> u8 {
    let mut found = [false; 9];
    let mut kernel = false;
    let mut any = false;
    for ip in Arc::as_ref(chain) {
        if *ip >= crate::programs::stacks::CONTEXT_MAX {
            kernel = *ip == crate::programs::stacks::CONTEXT_KERNEL;
        } else if kernel {
            any = true;
            found[site(*ip) as usize] = true;
        }
    }
    let has = |site: Site| found[site as usize];
    match () {
        () if !any => BLOCKED,
        () if has(Site::Passthrough) => PASSTHROUGH,
        () if has(Site::Dirty) => DIRTY,
        () if has(Site::Page) => PAGE,
        () if has(Site::Permission) => PERMISSION,
        () if has(Site::Directory) => DIRECTORY_LOCK,
        () if has(Site::Lock) && !has(Site::Memory) => INODE_LOCK,
        () if has(Site::Setup) => SETUP,
        () => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::stacks::{CONTEXT_KERNEL, CONTEXT_USER};

    fn waits(functions: &[&str]) -> u8 {
        let mut chain = vec![CONTEXT_KERNEL];
        chain.extend(0..functions.len() as u64);
        chain.extend([CONTEXT_USER, 0x400]);
        verdict(&chain.into(), |address| site(functions[address as usize]))
    }

    #[test]
    fn a_wait_below_passthrough_is_for_the_file_below() {
        let wait = ["schedule", "folio_wait_bit", "ext4_file_read_iter"];
        assert_eq!(waits(&wait), PAGE);
        let below = [&wait[..], &["fuse_passthrough_read_iter"]].concat();
        assert_eq!(waits(&below), PASSTHROUGH);
        let dirty = [
            "schedule",
            "balance_dirty_pages",
            "fuse_passthrough_write_iter",
        ];
        assert_eq!(waits(&dirty), PASSTHROUGH);
        assert_eq!(waits(&dirty[..2]), DIRTY);
        assert_eq!(waits(&["schedule", "futex_wait"]), OTHER);
        let lock = ["schedule", "__mutex_lock.constprop.0", "fuse_lock_inode"];
        assert_eq!(waits(&lock), DIRECTORY_LOCK);
        let scan = ["schedule", "fanotify_handle_event", "fsnotify", "do_open"];
        assert_eq!(waits(&scan), PERMISSION);
        assert_eq!(waits(&[]), BLOCKED);
    }
}
