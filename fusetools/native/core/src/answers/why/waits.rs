//! Activity of threads: their sleeps, what ended them, and who had the CPU when they were ready.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Cause, What};
use crate::answers::offcpu::{OffCpu, Wait, Waker, Why};
use crate::events::{Ev, Role, Side, ABSENT};
use crate::operations::Arch;
use crate::requests::peers::Peers;

/// Purpose of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    Sleep,
    /// A lock in the process's memory, whose holder is unknown.
    Lock,
    /// Another thread, whose activity is unknown.
    Thread,
    Network,
    /// A file system or a disk below.
    Disk,
    FileLock,
    /// Another process, by a pipe, a socket or shared memory.
    Process,
    Child,
    /// A request to a FUSE mount.
    Fuse,
    Poll,
    Stream,
    /// A page that was not in memory.
    Page,
    /// A lock in the kernel: of a file or directory below, or of the process's memory.
    KernelLock,
    /// Another thread, which was on a CPU.
    OnCpu,
    /// The next request.
    Idle,
    /// It was halted: by a signal, by a tracer (a debugger, strace), or by the freezer of its cgroup.
    Stopped,
    Traced,
    Frozen,
    /// It had no request yet: it was woken for one.
    Woken,
    Other,
}

impl How {
    /// Return whether the thread was not allowed to run.
    pub(super) fn is_halt(self) -> bool {
        matches!(self, How::Stopped | How::Traced | How::Frozen)
    }
}

pub const HOWS: [(How, &str); 20] = [
    (How::Sleep, "sleep"),
    (How::Lock, "lock"),
    (How::Thread, "thread"),
    (How::Network, "network"),
    (How::Disk, "disk"),
    (How::FileLock, "file_lock"),
    (How::Process, "process"),
    (How::Child, "child"),
    (How::Fuse, "fuse"),
    (How::Poll, "poll"),
    (How::Stream, "stream"),
    (How::Page, "page"),
    (How::KernelLock, "kernel_lock"),
    (How::OnCpu, "on_cpu"),
    (How::Idle, "idle"),
    (How::Stopped, "stopped"),
    (How::Traced, "traced"),
    (How::Frozen, "frozen"),
    (How::Woken, "woken"),
    (How::Other, "other"),
];

/// Value that a contended mutex has (glibc, Go, Rust): futex(2)'s third argument when a thread waits for one.
const CONTENDED: u64 = 2;
/// TASK_UNINTERRUPTIBLE (include/linux/sched.h).
const UNINTERRUPTIBLE: u64 = 2;
/// __TASK_STOPPED and __TASK_TRACED, in the same file.
const STOPPED: u64 = 4;
const TRACED: u64 = 8;
/// TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ (include/linux/trace_events.h).
const IN_INTERRUPT: u64 = 8 | 16;
/// Maximum number of a thread's last waits, and of threads that are followed.
const MOST_WAITS: usize = 1024;
const MOST_TASKS: usize = 1 << 16;
const MOST_CAUSES: usize = 1 << 14;
/// Maximum time in ns between two tries of one wait.
const MOST_BETWEEN: u64 = 1_000_000;
/// Size of a pthread_cond_t, which has several futexes.
const CONDITION: u64 = 48;

/// Facts about a wait, noted when it begins.
#[derive(Clone, Copy, Debug)]
struct Note {
    call: Call,
    uninterruptible: bool,
    /// A signal or a tracer stopped it.
    halted: Option<How>,
    /// Connection that the thread made last: descriptor and peer.
    connected: Option<(u64, [u64; 3])>,
    /// The recording began during it: the thread was asleep, ready or on a CPU.
    unseen: bool,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    first: u64,
    second: u64,
    third: u64,
    /// It has made a request to a FUSE mount.
    fuse: bool,
    since: u64,
}

const NO_CALL: Call = Call {
    number: ABSENT,
    first: ABSENT,
    second: ABSENT,
    third: ABSENT,
    fuse: false,
    since: 0,
};

const NO_NOTE: Note = Note {
    call: NO_CALL,
    uninterruptible: false,
    halted: None,
    connected: None,
    unseen: false,
};

/// A wait that has ended: asleep from `from` to `woken`, then ready until `to`.
#[derive(Clone, Copy, Debug)]
struct Done {
    from: u64,
    woken: u64,
    to: u64,
    /// Number of the cause, in `Threads::causes`.
    cause: u32,
    /// The system call's first argument.
    first: u64,
    /// Process that had the CPU before it; 0: none, or unknown.
    taker: i32,
    /// Stack of the wait, and of the last thread of the chain, each with its process.
    stack: (u64, i32),
    last: (u64, i32),
}

/// Part of a wait within a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) blocked: u64,
    pub(super) runnable: u64,
    pub(super) cause: u32,
    pub(super) taker: i32,
    pub(super) stack: (u64, i32),
    pub(super) last: (u64, i32),
}

/// Return whether a thread waited then.
fn is_known(wait: &Wait<Note>) -> bool {
    !wait.note.unseen || wait.waker.is_some()
}

impl Done {
    fn part(&self, from: u64, to: u64) -> Part {
        let overlap = |a: u64, b: u64| b.min(to).saturating_sub(a.max(from));
        Part {
            blocked: overlap(self.from, self.woken),
            runnable: overlap(self.woken, self.to),
            cause: self.cause,
            taker: self.taker,
            stack: self.stack,
            last: self.last,
        }
    }
}

struct Task {
    pid: i32,
    call: Call,
    connected: Option<(u64, [u64; 3])>,
    /// Its system calls are recorded.
    followed: bool,
    /// It is off the CPU, in `Threads::off`.
    is_off: bool,
    waits: VecDeque<Done>,
    /// Thread that woke it up last, and the system call in which that was.
    waker: (i32, Call),
}

pub(super) struct Threads {
    arch: Arch,
    off: OffCpu<Note>,
    servants: FxHashSet<i32>,
    tasks: Tasks,
    causes: Vec<Cause>,
    numbers: FxHashMap<Cause, u32>,
    kinds: FxHashMap<u64, Base>,
    peers: Peers,
    switches: bool,
}

/// Threads by number, for fast access: every event needs one.
#[derive(Default)]
struct Tasks {
    near: Vec<Option<Box<Task>>>,
    count: usize,
}

/// Upper bound of the kernel's numbers (PID_MAX_LIMIT, include/linux/threads.h).
const NEAR: usize = 1 << 22;

impl Tasks {
    fn get(&self, tid: i32) -> Option<&Task> {
        self.near.get(usize::try_from(tid).ok()?)?.as_deref()
    }

    fn get_mut(&mut self, tid: i32) -> Option<&mut Task> {
        self.near
            .get_mut(usize::try_from(tid).ok()?)?
            .as_deref_mut()
    }

    /// Return the thread with this number; a new one if there is room for it.
    fn of(&mut self, tid: i32, pid: i32) -> Option<&mut Task> {
        let at = usize::try_from(tid).ok().filter(|at| *at < NEAR)?;
        if at >= self.near.len() {
            self.near.resize_with(at + 1, || None);
        }
        let place = &mut self.near[at];
        if place.is_none() {
            if self.count >= MOST_TASKS {
                return None;
            }
            self.count += 1;
        }
        Some(place.get_or_insert_with(|| {
            Box::new(Task {
                pid,
                call: NO_CALL,
                connected: None,
                followed: false,
                is_off: false,
                waits: VecDeque::new(),
                waker: (0, NO_CALL),
            })
        }))
    }

    fn remove(&mut self, tid: i32) {
        let at = usize::try_from(tid).unwrap_or(NEAR);
        if self.near.get_mut(at).and_then(Option::take).is_some() {
            self.count -= 1;
        }
    }
}

/// Kind of a system call that may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Futex,
    Poll,
    /// As Poll; its first argument is the number of descriptors.
    Select,
    Socket,
    /// Reads or writes a descriptor, of a file or of a pipe or socket.
    Stream,
    /// Changes the process's memory: waits for its lock.
    Memory,
    /// Unknown: the recording began during it.
    Unseen,
    Is(How),
}

fn base(name: &str) -> Base {
    match name {
        "futex" => Base::Futex,
        "nanosleep" | "clock_nanosleep" => Base::Is(How::Sleep),
        "poll" | "ppoll" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Base::Poll,
        "select" | "pselect6" => Base::Select,
        "mmap" | "munmap" | "mremap" | "mprotect" | "madvise" | "brk" => Base::Memory,
        "connect" | "accept" | "accept4" | "recvfrom" | "recvmsg" | "recvmmsg" | "sendto"
        | "sendmsg" | "sendmmsg" => Base::Socket,
        "read" | "readv" | "write" | "writev" | "splice" | "sendfile" | "tee" => Base::Stream,
        "flock" | "fcntl" => Base::Is(How::FileLock),
        // vfork(2) returns when the child has called execve(2) or has ended.
        "wait4" | "waitid" | "fork" | "vfork" | "clone" | "clone3" => Base::Is(How::Child),
        "pread64" | "pwrite64" | "preadv" | "pwritev" | "preadv2" | "pwritev2" | "fsync"
        | "fdatasync" | "sync" | "syncfs" | "sync_file_range" | "msync" | "open" | "openat"
        | "openat2" | "creat" | "close" | "stat" | "lstat" | "fstat" | "newfstatat" | "statx"
        | "statfs" | "fstatfs" | "access" | "faccessat" | "faccessat2" | "getdents"
        | "getdents64" | "readlink" | "readlinkat" | "rename" | "renameat" | "renameat2"
        | "unlink" | "unlinkat" | "mkdir" | "mkdirat" | "rmdir" | "link" | "linkat" | "symlink"
        | "symlinkat" | "mknod" | "mknodat" | "truncate" | "ftruncate" | "fallocate"
        | "getxattr" | "lgetxattr" | "fgetxattr" | "setxattr" | "lsetxattr" | "fsetxattr"
        | "listxattr" | "llistxattr" | "flistxattr" | "copy_file_range" | "utimensat" => {
            Base::Is(How::Disk)
        }
        _ => Base::Is(How::Other),
    }
}

impl Threads {
    pub(super) fn new(arch: Arch, asleep: u64, daemons: impl Iterator<Item = i32>) -> Threads {
        Threads {
            arch,
            off: OffCpu::new(asleep),
            servants: daemons.collect(),
            tasks: Tasks::default(),
            causes: Vec::new(),
            numbers: FxHashMap::default(),
            kinds: FxHashMap::default(),
            peers: Peers::new(arch),
            switches: false,
        }
    }

    /// Note that a process serves requests.
    pub(super) fn serves(&mut self, pid: i32) {
        if pid > 0 {
            self.servants.insert(pid);
        }
    }

    /// Return whether it is known when the thread was on a CPU.
    pub(super) fn sees(&self, tid: i32) -> bool {
        self.switches && self.tasks.get(tid).is_some()
    }

    pub(super) fn cause(&self, number: u32) -> Cause {
        self.causes[number as usize]
    }

    fn number(&mut self, mut cause: Cause) -> u32 {
        if let Some(&number) = self.numbers.get(&cause) {
            return number;
        }
        if self.causes.len() >= MOST_CAUSES {
            cause = Cause {
                how: cause.how,
                syscall: cause.syscall,
                ..Cause::new(What::Slept, ABSENT)
            };
        }
        let next = self.causes.len() as u32;
        let number = *self.numbers.entry(cause).or_insert(next);
        if number == next {
            self.causes.push(cause);
        }
        number
    }

    fn task(&mut self, tid: i32, pid: i32) -> Option<&mut Task> {
        let task = self.tasks.of(tid, pid)?;
        if pid > 0 {
            task.pid = pid;
        }
        Some(task)
    }

    pub(super) fn side(&mut self, record: &Side) {
        match record {
            Side::Comm { pid, tid, .. } => {
                self.task(*tid, *pid);
            }
            Side::Fork { time, pid, tid, .. } => {
                self.off.forget(*tid);
                self.tasks.remove(*tid);
                let serves = self.servants.contains(pid);
                if let Some(task) = self.task(*tid, *pid) {
                    // A new one is ready to run, and has not run yet. perf writes one at 0 for each thread that
                    // there was before: only its wake-up shows that it was asleep.
                    task.is_off = serves;
                    let unseen = *time == 0;
                    if serves {
                        let state = if unseen { ABSENT } else { 0 };
                        let note = Note { unseen, ..NO_NOTE };
                        self.off.out(*pid, *tid, *time, state, note);
                    }
                }
            }
            Side::Switch {
                time,
                tid,
                out: false,
                ..
            } => self.runs(*tid, *time, 0),
            _ => {}
        }
    }

    pub(super) fn event(&mut self, ev: &Ev, role: Role) {
        match role {
            Role::Switch => return self.switch(ev),
            Role::Stack | Role::Sample | Role::Length => return,
            _ => {}
        }
        self.runs(ev.tid, ev.time, 0);
        self.peers.event(ev, role);
        match role {
            Role::SysEnter if !self.arch.is_fake(ev.v[0]) => {
                if let Some(task) = self.task(ev.tid, ev.pid) {
                    task.followed = true;
                    task.call = Call {
                        number: ev.v[0],
                        first: ev.v[1],
                        second: ev.v[3],
                        third: ev.v[2],
                        fuse: false,
                        since: ev.time,
                    };
                }
            }
            Role::SysExit if !self.arch.is_fake(ev.v[0]) => {
                self.left(ev.tid, ev.v[0], ev.v[1] as i64);
            }
            Role::Begin => {
                if let Some(task) = self.tasks.get_mut(ev.tid) {
                    task.call.fuse = true;
                }
            }
            Role::Connect => {
                if let Some(task) = self.task(ev.tid, ev.pid) {
                    task.connected = Some((task.call.first, [ev.v[0], ev.v[1], ev.v[2]]));
                }
            }
            Role::Waking => {
                let interrupt = ev.v[1] != ABSENT && ev.v[1] & IN_INTERRUPT != 0;
                let woken = ev.v[0] as i32;
                let Some(task) = self.tasks.get(woken) else {
                    return;
                };
                let serves = self.servants.contains(&task.pid);
                if !task.followed && !serves {
                    return;
                }
                let call = self.tasks.get(ev.tid).map_or(NO_CALL, |task| task.call);
                let waker = Waker {
                    time: ev.time,
                    pid: ev.pid,
                    tid: ev.tid,
                    stack: ev.v[3],
                    why: match interrupt {
                        true => Why::Interrupt,
                        false if serves && call.fuse => Why::Request,
                        false => Why::Task,
                    },
                };
                self.off.wake(woken, waker);
                if let Some(task) = self.tasks.get_mut(woken) {
                    task.waker = (ev.tid, call);
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, ev: &Ev) {
        self.switches = true;
        let [prev, state, next, stack] = ev.v;
        let (prev, next) = (prev as i32, next as i32);
        self.runs(next, ev.time, prev);
        if prev <= 0 {
            return;
        }
        self.runs(prev, ev.time, 0);
        let pid = if ev.tid == prev { ev.pid } else { -1 };
        let Some(task) = self.tasks.of(prev, pid) else {
            return;
        };
        if pid > 0 {
            task.pid = pid;
        }
        if !task.followed && !self.servants.contains(&task.pid) {
            return;
        }
        task.is_off = true;
        let is = |bit: u64| state != ABSENT && state & bit != 0;
        let note = Note {
            call: task.call,
            uninterruptible: is(UNINTERRUPTIBLE),
            halted: match (is(STOPPED), is(TRACED)) {
                (true, _) => Some(How::Stopped),
                (_, true) => Some(How::Traced),
                _ => None,
            },
            connected: task.connected,
            unseen: false,
        };
        let pid = task.pid;
        self.off.out(pid, prev, ev.time, state, note);
        if let Some(wait) = self.off.begun(prev, ev.time).filter(|_| ev.tid == prev) {
            wait.stack = stack;
        }
    }

    /// Note that a thread runs. `before`: the thread that had the CPU; 0: none, or unknown.
    fn runs(&mut self, tid: i32, time: u64, before: i32) {
        let Some(task) = self.tasks.get_mut(tid).filter(|task| task.is_off) else {
            return;
        };
        task.is_off = false;
        let Some(wait) = self.off.on(tid, time).filter(is_known) else {
            return;
        };
        let taker = match before {
            ..=0 => 0,
            before => self.tasks.get(before).map_or(before, |task| task.pid),
        };
        let done = self.done(&wait, taker);
        self.ends_retries(tid, &wait, &done);
        if let Some(task) = self.tasks.get_mut(tid) {
            if task.waits.len() == MOST_WAITS {
                task.waits.pop_front();
            }
            task.waits.push_back(done);
        }
    }

    /// Note that a thread has left a system call. Its result shows whether the call's last wait ended by a timeout.
    fn left(&mut self, tid: i32, number: u64, result: i64) {
        let base = self.kind(number);
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let call = std::mem::replace(&mut task.call, NO_CALL);
        // EAGAIN, ETIMEDOUT, EINPROGRESS: socket(7), SO_RCVTIMEO and SO_SNDTIMEO.
        let over = match base {
            Base::Poll | Base::Select => result == 0,
            Base::Futex => result == -110,
            Base::Socket | Base::Stream => matches!(result, -11 | -110 | -115),
            _ => false,
        };
        let within = |done: &&Done| over && call.number == number && done.from >= call.since;
        let Some(done) = task.waits.back().filter(within) else {
            return;
        };
        let cause = self.causes[done.cause as usize];
        if matches!(cause.how, How::Sleep | How::Idle) || cause.helper || cause.syscall != number {
            return;
        }
        let timed_out = self.number(Cause {
            timed_out: true,
            ..cause
        });
        let waits = self.tasks.get_mut(tid).map(|task| &mut task.waits);
        if let Some(done) = waits.and_then(VecDeque::back_mut) {
            done.cause = timed_out;
        }
    }

    /// Give the waits of a thread that tries again after each timeout to what ends the last of them: another thread of the
    /// process wakes it up. `last`: the wait that ended so.
    fn ends_retries(&mut self, tid: i32, wait: &Wait<Note>, last: &Done) {
        let number = wait.note.call.number;
        let by_thread = wait.waker.is_some_and(|waker| {
            waker.why == Why::Task && waker.tid > 0 && waker.pid == wait.pid && waker.tid != tid
        });
        if !by_thread || self.kind(number) != Base::Futex {
            return;
        }
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let mut next = last.from;
        for done in task.waits.iter_mut().rev() {
            let near = next.saturating_sub(done.to) < MOST_BETWEEN;
            next = done.from;
            let cause = &self.causes[done.cause as usize];
            let same = cause.timed_out && cause.syscall == number;
            if near && same && done.first.abs_diff(last.first) < CONDITION {
                (done.cause, done.last) = (last.cause, last.last);
            } else if !near || done.woken - done.from >= MOST_BETWEEN || cause.how == How::Idle {
                break; // otherwise it was ready to run, or waited for the condition's lock
            }
        }
    }

    fn kind(&mut self, number: u64) -> Base {
        let arch = self.arch;
        *self
            .kinds
            .entry(number)
            .or_insert_with(|| base(&arch.syscall(number)))
    }

    /// Find out what a wait was for.
    fn done(&mut self, wait: &Wait<Note>, taker: i32) -> Done {
        let woken = match (wait.preempted, wait.waker) {
            (true, _) => wait.from,
            (false, Some(waker)) => waker.time.clamp(wait.from, wait.to),
            (false, None) => wait.to,
        };
        let Note {
            call,
            uninterruptible,
            halted,
            connected: made,
            unseen,
        } = wait.note;
        let mut cause = Cause::new(What::Slept, ABSENT);
        cause.syscall = call.number;
        let base = match call.number {
            // In whatever call it was: its waker is known.
            ABSENT if unseen => Base::Unseen,
            ABSENT if uninterruptible => Base::Is(How::Page),
            ABSENT => Base::Is(How::Other),
            number => self.kind(number),
        };
        let mut lock = ABSENT;
        let mut chained = false;
        let connected = self.peers.now(wait.pid, call.first);
        // The connection that the thread made last, if it is still open.
        let peer = made.filter(|(fd, peer)| self.peers.now(wait.pid, *fd) == Some(*peer));
        let mut own = false;
        cause.how = match base {
            _ if halted.is_some() => {
                (cause.syscall, chained) = (ABSENT, true);
                halted.unwrap_or(How::Other)
            }
            _ if call.fuse => How::Fuse,
            Base::Futex if call.third == CONTENDED => {
                (lock, chained) = (call.first, true);
                How::Lock
            }
            Base::Futex => {
                chained = true;
                How::Thread
            }
            // Without descriptors it waits for the time that it names.
            Base::Poll if (call.first, call.second) == (0, 0) => How::Sleep,
            Base::Select if call.first == 0 => How::Sleep,
            Base::Poll | Base::Select => {
                chained = true;
                match peer {
                    Some(_) => How::Network,
                    None => How::Poll,
                }
            }
            Base::Socket => {
                (cause.fd, chained) = (call.first, true);
                How::Network
            }
            Base::Stream if uninterruptible => How::Disk,
            Base::Stream => {
                (cause.fd, chained) = (call.first, true);
                match connected {
                    Some(_) => How::Network,
                    None => How::Stream,
                }
            }
            Base::Unseen => {
                chained = true;
                How::Other
            }
            Base::Is(How::FileLock) => {
                chained = true;
                How::FileLock
            }
            // Another thread of the process may hold what it waits for: a lock, not a disk.
            Base::Memory => {
                own = true;
                How::Other
            }
            Base::Is(how @ (How::Disk | How::Page)) => {
                own = uninterruptible;
                how
            }
            Base::Is(How::Other) if uninterruptible => {
                own = true;
                How::Disk
            }
            Base::Is(how) => how,
        };
        if cause.how == How::Network {
            let known = connected.filter(|_| cause.fd != ABSENT);
            let peer = known.or(peer.map(|(_, peer)| peer));
            let unknown = (ABSENT, ABSENT, ABSENT);
            cause.peer = peer.map_or(unknown, |[port, first, last]| (port, first, last));
            if known.is_some() {
                // Its number says nothing: other connections have had it, or will.
                cause.fd = ABSENT;
            }
        }
        if cause.how == How::Disk && self.arch.is_on_descriptor(call.number) {
            cause.fd = call.first;
        }
        if wait.waker.is_some_and(|waker| waker.why == Why::Request) {
            cause.how = How::Idle;
        }
        let stack = (wait.stack, wait.pid);
        let mut last = stack;
        let same = |waker: &Waker| {
            let known = self.tasks.get(waker.tid);
            known.map_or(waker.pid, |task| task.pid) == wait.pid
        };
        let waker = wait.waker.filter(|waker| {
            let another = waker.tid > 0 && waker.tid != wait.tid;
            waker.why == Why::Task && another && (chained || (own && same(waker)))
        });
        if let Some(waker) = waker {
            if !same(&waker) {
                cause.pid = waker.pid;
                if halted.is_none() {
                    cause.how = How::Process;
                }
            } else if let Some((of, at)) = self
                .meanwhile(waker.tid, (wait.from, woken), lock)
                .filter(|_| halted.is_none())
            {
                (cause, last) = (of, at);
                let waker_in = self.tasks.get(wait.tid).map(|task| task.waker);
                let (tid, call) = waker_in.unwrap_or((0, NO_CALL));
                let whole = call.since <= wait.from + (woken - wait.from) / 2;
                if cause.how == How::OnCpu && !cause.helper && tid == waker.tid && whole {
                    cause.syscall = call.number;
                }
                if of.what == What::Slept {
                    cause.helper = true;
                    if lock == ABSENT {
                        lock = of.lock;
                    }
                } else {
                    lock = ABSENT;
                }
            }
        }
        cause.lock = lock;
        Done {
            from: wait.from,
            woken,
            to: wait.to,
            cause: self.number(cause),
            first: call.first,
            taker,
            stack,
            last,
        }
    }

    /// Return the activity of a thread for most of a span, and its stack at that time; on a CPU, that of its last wait,
    /// which shows where it began. None: several activities, or unknown. Only the end of the span counts in which the
    /// thread had a request and held the `lock`.
    fn meanwhile(
        &self,
        tid: i32,
        (mut from, to): (u64, u64),
        lock: u64,
    ) -> Option<(Cause, (u64, i32))> {
        let task = self.tasks.get(tid)?;
        let known = match task.waits.front() {
            Some(first) if task.waits.len() == MOST_WAITS => first.from <= from,
            _ => true,
        };
        let mut within = task.waits.iter().rev().take_while(|done| done.to > from);
        let before = within.find(|done| {
            let cause = &self.causes[done.cause as usize];
            cause.how == How::Idle || (lock != ABSENT && cause.lock == lock)
        });
        from = from.max(before.map_or(0, |done| done.to));
        let span = to.saturating_sub(from);
        if span == 0 || !known {
            return None;
        }
        let mut idle = 0;
        // Time without a CPU; the longest of it, and the process that had the CPU.
        let mut ready = (0, 0, 0);
        // Sleeps by what they were for, each with the longest one.
        let mut kinds: Vec<((How, u64), u64, u64, &Done)> = Vec::new();
        for done in task.waits.iter().rev().take_while(|done| done.to > from) {
            let part = done.part(from, to);
            idle += part.blocked + part.runnable;
            ready.0 += part.runnable;
            if part.runnable > ready.1 {
                (ready.1, ready.2) = (part.runnable, part.taker);
            }
            let cause = &self.causes[done.cause as usize];
            let kind = (cause.how, cause.syscall);
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((_, sum, most, longest)) => {
                    *sum += part.blocked;
                    if part.blocked > *most {
                        (*most, *longest) = (part.blocked, done);
                    }
                }
                None => kinds.push((kind, part.blocked, part.blocked, done)),
            }
        }
        let most = kinds.into_iter().max_by_key(|(_, sum, ..)| *sum);
        if let Some((.., done)) = most.filter(|(_, sum, ..)| 2 * sum >= span) {
            return Some((self.cause(done.cause), done.last));
        }
        // A wait for a lock stays one if its holder lacks a CPU.
        if 2 * ready.0 >= span && lock == ABSENT {
            let mut cause = Cause::new(What::DaemonCpu, ABSENT);
            cause.pid = ready.2;
            return Some((cause, (ABSENT, task.pid)));
        }
        if 2 * span.saturating_sub(idle) >= span {
            let mut cause = Cause::new(What::Slept, ABSENT);
            cause.how = How::OnCpu;
            let stacks = task.waits.iter().rev().map(|done| done.stack);
            let stack = stacks.into_iter().find(|(stack, _)| *stack != ABSENT);
            return Some((cause, stack.unwrap_or((ABSENT, task.pid))));
        }
        None
    }

    /// Return a thread's waits within a span, also one that has not ended.
    pub(super) fn waits(&mut self, tid: i32, from: u64, to: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let open = self.off.open(tid).cloned();
        if let Some(mut wait) = open.filter(|wait| wait.from < to && is_known(wait)) {
            wait.to = to;
            parts.push(self.done(&wait, 0).part(from, to));
        }
        if let Some(task) = self.tasks.get(tid) {
            let within = task.waits.iter().rev().take_while(|done| done.to > from);
            parts.extend(within.map(|done| done.part(from, to)));
        }
        parts
    }

    /// Return the process that had the CPU for which a thread was ready in a span; 0: unknown.
    pub(super) fn taker(&self, tid: i32, from: u64, to: u64) -> i32 {
        let Some(task) = self.tasks.get(tid) else {
            return 0;
        };
        let within = task.waits.iter().rev().take_while(|done| done.to > from);
        let mut ready = within.filter(|done| done.part(from, to).runnable > 0);
        ready.next().map_or(0, |done| done.taker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUTEX: u64 = 202;
    const PREAD: u64 = 17;
    const READ: u64 = 0;
    const CLOSE: u64 = 3;
    const POLL: u64 = 7;
    const CLOCK_NANOSLEEP: u64 = 230;
    const SLEEPS: u64 = 1;
    const DISK: u64 = 2;
    const LOCK: u64 = 0x7000;

    /// Threads of process 500 are tracked; 900 is another one.
    struct Script(Threads);

    impl Script {
        fn new() -> Script {
            Script(Threads::new(Arch::X86_64, 0xff, [500].into_iter()))
        }

        fn event(&mut self, time: u64, tid: i32, role: Role, v: [u64; 4]) -> &mut Script {
            let pid = if tid < 600 { 500 } else { tid };
            let ev = Ev {
                time,
                pid,
                tid,
                kind: 0,
                cpu: 0,
                v,
            };
            self.0.event(&ev, role);
            self
        }

        fn enters(
            &mut self,
            time: u64,
            tid: i32,
            call: u64,
            first: u64,
            third: u64,
        ) -> &mut Script {
            self.event(time, tid, Role::SysEnter, [call, first, third, ABSENT])
        }

        fn leaves(&mut self, time: u64, tid: i32, call: u64, result: u64) -> &mut Script {
            self.event(time, tid, Role::SysExit, [call, result, ABSENT, ABSENT])
        }

        fn switch(&mut self, time: u64, prev: i32, state: u64, next: i32) -> &mut Script {
            let v = [prev as u64, state, next as u64, ABSENT];
            self.event(time, prev, Role::Switch, v)
        }

        fn wakes(&mut self, time: u64, tid: i32, woken: i32) -> &mut Script {
            self.event(time, tid, Role::Waking, [woken as u64, 0, ABSENT, ABSENT])
        }

        /// 501 connects descriptor 9 to a peer.
        fn connects(&mut self, time: u64) -> &mut Script {
            const CONNECT: u64 = 42;
            self.enters(time, 501, CONNECT, 9, 16)
                .event(time + 2, 501, Role::Connect, [80, 1, 2, ABSENT])
                .leaves(time + 5, 501, CONNECT, 0)
        }

        /// 501 sleeps in a system call: return what for.
        fn sleeps_in(&mut self, time: u64, call: u64, first: u64) -> Cause {
            self.enters(time, 501, call, first, 4096)
                .switch(time + 10, 501, SLEEPS, 0)
                .switch(time + 90, 0, 0, 501)
                .leaves(time + 95, 501, call, 0);
            let parts = self.0.waits(501, time, time + 100);
            self.0.cause(parts[0].cause)
        }

        /// Return the only wait of a thread: (asleep, ready, cause).
        fn wait(&mut self, tid: i32) -> (u64, u64, Cause, i32) {
            let parts = self.0.waits(tid, 0, 10_000);
            assert_eq!(parts.len(), 1, "{parts:?}");
            let part = parts[0];
            (
                part.blocked,
                part.runnable,
                self.0.cause(part.cause),
                part.taker,
            )
        }
    }

    #[test]
    fn a_lock_is_what_its_holder_does() {
        let mut script = Script::new();
        // 501 holds the lock, and sleeps; 502 waits for it.
        script
            .enters(10, 501, CLOCK_NANOSLEEP, 0, 0)
            .switch(20, 501, SLEEPS, 502)
            .enters(30, 502, FUTEX, LOCK, CONTENDED)
            .switch(40, 502, SLEEPS, 0)
            .switch(900, 0, 0, 501)
            .leaves(910, 501, CLOCK_NANOSLEEP, 0)
            .enters(920, 501, FUTEX, LOCK, 1)
            .wakes(940, 501, 502)
            .switch(1000, 501, SLEEPS, 502);
        let (blocked, runnable, cause, taker) = script.wait(502);
        assert_eq!((blocked, runnable), (900, 60));
        assert_eq!((cause.how, cause.lock), (How::Sleep, LOCK));
        assert_eq!((cause.syscall, cause.helper), (CLOCK_NANOSLEEP, true));
        // The holder had the CPU until then.
        assert_eq!(taker, 500);
    }

    #[test]
    fn a_holder_that_was_idle_before_did_not_hold_it() {
        let mut script = Script::new();
        script
            .enters(10, 501, READ, 3, 0)
            .switch(20, 501, SLEEPS, 502)
            .enters(30, 502, FUTEX, LOCK, CONTENDED)
            .switch(40, 502, SLEEPS, 0)
            // A caller makes a request, which 501 reads; then 501 computes for 100 ns with the lock.
            .enters(800, 900, READ, 4, 0)
            .event(810, 900, Role::Begin, [1, 45, 15, ABSENT])
            .wakes(820, 900, 501)
            .switch(840, 900, SLEEPS, 501)
            .wakes(940, 501, 502)
            .switch(950, 501, SLEEPS, 502);
        let (_, _, cause, _) = script.wait(502);
        assert_eq!((cause.how, cause.lock), (How::OnCpu, LOCK));
    }

    #[test]
    fn uninterruptible_reads_are_of_a_disk() {
        let mut script = Script::new();
        script
            .enters(10, 501, PREAD, 3, 4096)
            .switch(20, 501, DISK, 0)
            .switch(520, 900, 0, 501);
        let (blocked, runnable, cause, taker) = script.wait(501);
        // No wake-up was recorded.
        assert_eq!((blocked, runnable, cause.how), (500, 0, How::Disk));
        assert_eq!((cause.syscall, cause.helper, taker), (PREAD, false, 900));
    }

    #[test]
    fn a_preempted_thread_lacks_the_cpu_that_another_process_has() {
        let mut script = Script::new();
        script
            .enters(10, 501, PREAD, 3, 4096)
            .switch(20, 501, 0x100, 900)
            .switch(320, 900, 0x100, 501);
        let (blocked, runnable, _, taker) = script.wait(501);
        assert_eq!((blocked, runnable, taker), (0, 300, 900));
        // Only the part within the span counts.
        assert_eq!(script.0.waits(501, 100, 200)[0].runnable, 100);
    }

    #[test]
    fn a_wait_for_another_process_names_it() {
        let mut script = Script::new();
        script
            .enters(10, 501, READ, 7, 0)
            .switch(20, 501, SLEEPS, 0)
            .wakes(500, 900, 501)
            .switch(520, 900, SLEEPS, 501);
        let (_, _, cause, _) = script.wait(501);
        assert_eq!((cause.how, cause.pid, cause.fd), (How::Process, 900, 7));
    }

    #[test]
    fn a_thread_that_a_signal_stopped_is_in_no_system_call() {
        let mut script = Script::new();
        script
            .enters(10, 501, READ, 7, 0)
            .switch(20, 501, SLEEPS, 0)
            .wakes(100, 900, 501)
            .switch(110, 0, 0, 501)
            .leaves(115, 501, READ, 0)
            .switch(120, 501, STOPPED, 0)
            .wakes(500, 901, 501)
            .switch(520, 900, SLEEPS, 501);
        let parts = script.0.waits(501, 200, 10_000);
        let cause = script.0.cause(parts[0].cause);
        assert_eq!((parts[0].blocked, parts[0].runnable), (300, 20));
        // 901 continued it.
        assert_eq!((cause.how, cause.pid), (How::Stopped, 901));
        assert!(cause.how.is_halt() && cause.syscall == ABSENT);
    }

    #[test]
    fn a_stop_by_a_tracer_is_not_the_system_calls_wait() {
        let mut script = Script::new();
        script
            .enters(10, 501, PREAD, 3, 4096)
            .switch(20, 501, TRACED, 0)
            .wakes(500, 900, 501)
            .switch(520, 900, SLEEPS, 501);
        let (blocked, _, cause, _) = script.wait(501);
        assert_eq!((blocked, cause.how, cause.pid), (480, How::Traced, 900));
    }

    #[test]
    fn a_new_thread_lacks_a_cpu_until_it_runs() {
        let fork = Side::Fork {
            time: 50,
            pid: 500,
            tid: 510,
            ppid: 500,
            ptid: 501,
        };
        let mut script = Script::new();
        script.enters(10, 501, READ, 7, 0).leaves(20, 501, READ, 0);
        script.0.side(&fork);
        script
            .enters(60, 501, FUTEX, LOCK, 0)
            .switch(70, 501, SLEEPS, 900)
            .switch(970, 900, SLEEPS, 510)
            .wakes(990, 510, 501)
            .switch(1000, 510, SLEEPS, 501);
        let parts = script.0.waits(510, 0, 980);
        assert_eq!(parts.len(), 1);
        assert_eq!(
            (parts[0].blocked, parts[0].runnable, parts[0].taker),
            (0, 920, 900)
        );
        // 501 waits for it, so it waits for a CPU.
        let parts = script.0.waits(501, 60, 2000);
        let cause = script.0.cause(parts[0].cause);
        assert_eq!((cause.what, cause.pid), (What::DaemonCpu, 900));
        assert_eq!(
            (parts[0].blocked, cause.lock, cause.helper),
            (920, ABSENT, false)
        );
    }

    /// As perf writes it for each thread that there is when the recording begins.
    const THERE_BEFORE: Side = Side::Fork {
        time: 0,
        pid: 500,
        tid: 510,
        ppid: 500,
        ptid: 500,
    };

    #[test]
    fn a_thread_that_slept_when_the_recording_began_lacks_no_cpu_until_it_is_woken() {
        let mut script = Script::new();
        script.0.side(&THERE_BEFORE);
        // 510 reads from a pipe of process 900; 501 waits for 510.
        script
            .enters(60, 501, FUTEX, LOCK, 0)
            .switch(70, 501, SLEEPS, 0)
            .wakes(970, 900, 510)
            .switch(980, 901, SLEEPS, 510)
            .wakes(990, 510, 501)
            .switch(1000, 510, SLEEPS, 501);
        let parts = script.0.waits(510, 0, 980);
        assert_eq!((parts[0].blocked, parts[0].runnable), (970, 10));
        let parts = script.0.waits(501, 60, 2000);
        let cause = script.0.cause(parts[0].cause);
        assert_eq!(
            (cause.what, cause.how, cause.pid, cause.helper),
            (What::Slept, How::Process, 900, true)
        );
    }

    #[test]
    fn a_thread_that_ran_when_the_recording_began_waited_for_nothing() {
        let mut script = Script::new();
        script.0.side(&THERE_BEFORE);
        assert!(script.0.waits(510, 0, 980).is_empty());
        script.switch(980, 510, SLEEPS, 0);
        assert!(script.0.waits(510, 0, 980).is_empty());
    }

    #[test]
    fn a_read_of_a_new_connection_is_the_networks() {
        let mut script = Script::new();
        let cause = script.connects(10).sleeps_in(100, READ, 9);
        assert_eq!(
            (cause.how, cause.peer, cause.fd),
            (How::Network, (80, 1, 2), ABSENT)
        );
        // After its close the number is another file's.
        let cause = script.enters(300, 501, CLOSE, 9, 0).sleeps_in(400, READ, 9);
        assert_eq!((cause.how, cause.fd), (How::Stream, 9));
    }

    #[test]
    fn a_file_lock_is_held_by_the_process_that_wakes() {
        const FLOCK: u64 = 73;
        let mut script = Script::new();
        script
            .enters(10, 501, FLOCK, 7, 0)
            .switch(20, 501, SLEEPS, 0)
            .wakes(500, 900, 501)
            .switch(520, 900, SLEEPS, 501);
        let (_, _, cause, _) = script.wait(501);
        assert_eq!(
            (cause.how, cause.pid, cause.syscall),
            (How::Process, 900, FLOCK)
        );
    }

    #[test]
    fn a_poll_of_no_descriptor_sleeps() {
        const SELECT: u64 = 23;
        let polled = |v: [u64; 4]| {
            let mut script = Script::new();
            script
                .event(10, 501, Role::SysEnter, v)
                .switch(20, 501, SLEEPS, 0)
                .switch(520, 0, 0, 501);
            script.wait(501).2.how
        };
        assert_eq!(polled([POLL, 0, 1000, 0]), How::Sleep);
        assert_eq!(polled([POLL, 0x7f00, 1000, 1]), How::Poll);
        assert_eq!(polled([SELECT, 0, 0, 0]), How::Sleep);
        assert_eq!(polled([SELECT, 4, 0, 0x7f00]), How::Poll);
    }

    #[test]
    fn a_poll_is_for_the_peer_of_a_connection_that_is_still_open() {
        let mut script = Script::new();
        let cause = script.connects(10).sleeps_in(100, POLL, 0x7f00);
        assert_eq!((cause.how, cause.peer.0), (How::Network, 80));
        script.enters(300, 501, CLOSE, 9, 0);
        let cause = script.sleeps_in(400, POLL, 0x7f00);
        assert_eq!((cause.how, cause.peer.0), (How::Poll, ABSENT));
    }

    #[test]
    fn a_lock_in_the_kernel_is_what_its_holder_does_and_no_disk() {
        const MUNMAP: u64 = 11;
        const UNLINK: u64 = 87;
        let woken = |call: u64, holder: i32| {
            let mut script = Script::new();
            script
                .enters(5, 502, PREAD, 3, 0)
                .enters(10, 501, call, 0x7f00, 0)
                .switch(20, 501, DISK, holder)
                .wakes(500, holder, 501)
                .switch(520, holder, SLEEPS, 501);
            let cause = script.wait(501).2;
            (cause.how, cause.helper)
        };
        // 502, of the same process, was on a CPU; 900 may have ended the work of a disk.
        assert_eq!(woken(UNLINK, 502), (How::OnCpu, true));
        assert_eq!(woken(UNLINK, 900), (How::Disk, false));
        assert_eq!(woken(MUNMAP, 502), (How::OnCpu, true));
        assert_eq!(woken(MUNMAP, 900), (How::Other, false));
    }

    #[test]
    fn a_thread_on_a_cpu_is_in_the_system_call_of_most_of_the_wait() {
        const MMAP: u64 = 9;
        let waits = |call: u64, since: u64| {
            let mut script = Script::new();
            script
                .enters(5, 501, MMAP, 0, 0)
                .switch(20, 501, DISK, 502)
                .enters(since, 502, call, 0x7f00, 0)
                .wakes(500, 502, 501)
                .leaves(510, 502, call, 0)
                .switch(520, 502, SLEEPS, 501);
            let cause = script.wait(501).2;
            (cause.how, cause.syscall)
        };
        assert_eq!(waits(MMAP, 30), (How::OnCpu, MMAP));
        // It computed, and called futex(2) to release a lock.
        assert_eq!(waits(FUTEX, 490), (How::OnCpu, ABSENT));
    }

    #[test]
    fn a_wait_whose_call_says_so_ended_by_a_timeout() {
        let waits = |call: u64, result: i64| {
            let mut script = Script::new();
            script
                .enters(10, 501, call, 9, 16)
                .switch(20, 501, SLEEPS, 0)
                .switch(520, 0, 0, 501)
                .leaves(530, 501, call, result as u64);
            script.wait(501).2.timed_out
        };
        const RECVFROM: u64 = 45;
        assert!(waits(POLL, 0) && waits(FUTEX, -110) && waits(RECVFROM, -11));
        assert!(!waits(POLL, 1) && !waits(FUTEX, 0) && !waits(RECVFROM, 0));
        assert!(!waits(CLOCK_NANOSLEEP, 0));
    }

    #[test]
    fn a_wait_that_is_tried_again_is_for_whoever_ends_it() {
        let mut script = Script::new();
        // 501 waits for a condition, 100 ns each time; 502 computes all the while, then wakes it up.
        script.enters(5, 502, CLOSE, 3, 0).leaves(6, 502, CLOSE, 0);
        for at in [100, 210, 320] {
            script
                .enters(at, 501, FUTEX, 0x7f08 + at % 2 * 4, 128)
                .switch(at + 2, 501, SLEEPS, 0);
            if at < 320 {
                script
                    .switch(at + 100, 0, 0, 501)
                    .leaves(at + 102, 501, FUTEX, -110i64 as u64);
            }
        }
        script.wakes(400, 502, 501).switch(410, 0, 0, 501);
        let parts = script.0.waits(501, 0, 1000);
        let hows: Vec<_> = parts
            .iter()
            .map(|part| script.0.cause(part.cause).how)
            .collect();
        assert_eq!(hows, [How::OnCpu; 3]);
    }

    #[test]
    fn a_fork_waits_for_its_child() {
        const VFORK: u64 = 58;
        let mut script = Script::new();
        script
            .enters(10, 501, VFORK, 0, 0)
            .switch(20, 501, DISK, 0)
            .switch(520, 900, SLEEPS, 501);
        assert_eq!(script.wait(501).2.how, How::Child);
    }
}
