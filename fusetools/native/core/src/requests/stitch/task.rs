//! State of a thread: its scheduling, its system call, its reads and callbacks.

use super::calls::{Current, Fault, BLOCKED};
use super::rings::Commit;
use super::*;

/// Time that a thread had no CPU so far, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub blocked: u64,
    pub runnable: u64,
    /// Part of `blocked` in waits without a recorded wake-up: the thread may have been runnable before their end.
    pub unsplit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Unknown,
    Running,
    Blocked,
    Runnable,
}

/// System call that brought data.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub(super) enter: u64,
    pub(super) exit: u64,
    pub(super) run: Run,
    /// Idle time at its return.
    pub(super) idle: Idle,
    pub(super) events: u32,
    /// Number of bytes; 0 if unknown.
    pub(super) len: u64,
    /// Connection whose requests it brings; ABSENT if unknown, or if the process serves no other.
    pub(super) connection: u64,
    /// The request that it brought is known.
    pub(super) claimed: bool,
}

impl Read {
    /// Return whether it may have brought a request of that connection.
    pub(super) fn may_be_of(&self, connection: u64) -> bool {
        connection == ABSENT || [ABSENT, connection].contains(&self.connection)
    }
}

/// Last run of a thread: since when it had been runnable, and when it began to run. `late`: total time that it has been
/// runnable without a CPU since its reply.
#[derive(Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) ready: u64,
    pub(super) runs: u64,
    pub(super) late: u64,
    /// Time since when another task delayed it by its own work on the CPU; equal to `runs` if none did.
    pub(super) delayed: u64,
}

/// State of a thread when it last finished a request: time, idle time, number of events.
#[derive(Clone, Copy, Default)]
pub(super) struct Freed {
    pub(super) time: u64,
    pub(super) idle: Idle,
    pub(super) events: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Callback {
    pub(super) function: u32,
    pub(super) slot: Option<Slot>,
}

#[derive(Clone, Copy)]
pub(super) struct Syscall {
    pub(super) number: u64,
    /// Descriptors, if it reads or writes; ABSENT if unknown. And: the second and the third argument.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) second: u64,
    pub(super) third: u64,
    pub(super) start: u64,
    pub(super) losses: u32,
    pub(super) idle: Idle,
    pub(super) events: u32,
    /// `Task::freed` at its start.
    pub(super) freed: Freed,
}

#[derive(Default)]
pub(super) struct Task {
    pub(super) pid: i32,
    pub(super) comm: u32,
    pub(super) syscall: Option<Syscall>,
    /// Time of its last return from a system call.
    pub(super) left: u64,

    /// Number of events recorded on it, without the scheduler's; that number when it last ran again; time of the last
    /// event.
    pub(super) events: u32,
    pub(super) events_then: u32,
    pub(super) seen: u64,
    /// Cost of recording in the current or last system call, ns.
    pub(super) taken: u64,

    // As a caller
    /// Requests of this system call that may have more events on the caller's side.
    pub(super) made: Vec<Slot>,
    /// Signal that it got in this system call; 0: none. It stays pending until the call ends.
    pub(super) signal: u32,
    /// Last request made, until the task does something else.
    pub(super) just_made: Option<Slot>,
    /// Request that has ended while the task has yet to run.
    pub(super) awaiting: Option<Slot>,
    /// Request that ended while the task was on a CPU; the task has done nothing since.
    pub(super) answered: Option<Slot>,
    /// Last request that it waited for in this system call.
    pub(super) last: Option<Slot>,
    /// Number of requests that it waited for.
    pub(super) waits: u32,
    /// Time up to which this system call is accounted for (0 outside); idle time by then.
    pub(super) accounted: u64,
    pub(super) accounted_idle: Idle,
    /// Time when it last ran again after a request.
    pub(super) resumed: u64,
    /// Outermost open FUSE function of the kernel: its depth or number, how often it is open, and its start.
    pub(super) graph: Option<(u64, u64)>,
    pub(super) probe: Option<(u32, u32, u64)>,
    /// Time of the last entry of a FUSE function whose return is not recorded.
    pub(super) entered: u64,
    /// Idle time when the outermost FUSE function was entered.
    pub(super) kernel_idle: Idle,

    // As a thread of the daemon
    /// Reads since its last reply.
    pub(super) reads: Vec<Read>,
    pub(super) callbacks: Vec<Callback>,
    pub(super) sent: Option<Slot>,
    /// Request that it answers through a function of libfuse.
    pub(super) replies: Option<Slot>,
    /// Last request that it is known to have read, by order and length.
    pub(super) paired: Option<Slot>,
    /// Request that this thread ended in this system call; its connection, also if it is reported already.
    pub(super) ended: Option<Slot>,
    pub(super) ended_on: Option<u64>,
    /// Request that it was woken up for.
    pub(super) called: Option<Slot>,
    /// Last entry of the kernel's function that takes replies; time of the last entry of the function that hands out
    /// requests.
    pub(super) writes: Option<(u64, Idle, u32)>,
    pub(super) fetches: u64,
    pub(super) freed: Freed,
    /// Completions posted in rings while it waited for them (ring and mark); the ring for which it waits now; its
    /// command.
    pub(super) fetched: Vec<(u64, u64)>,
    pub(super) waits_for: Option<u64>,
    pub(super) commit: Option<Commit>,

    // On the CPUs
    pub(super) state: State,
    /// Woken up before its switch-out was recorded: it was about to sleep, on another CPU than its waker.
    pub(super) woken_early: bool,
    /// Task that woke it up last.
    pub(super) waker: i32,
    pub(super) since: u64,
    pub(super) idle: Idle,
    pub(super) run: Run,
    /// Current system call on a mount: see calls.rs. Kind of the last wait; parts of `idle.blocked`; whether it has
    /// slept since it last ran.
    pub(super) call: Current,
    pub(super) waits_for_what: u8,
    /// Its wait for a page of a mapped file, until it runs again.
    pub(super) fault: Option<Fault>,
    /// `Story::room` and `Story::slept` of the request that it makes next, or made last.
    pub(super) room: Option<u64>,
    pub(super) slept_for: Option<u8>,
    pub(super) blocked_by: [u64; BLOCKED as usize + 1],
    pub(super) slept: bool,
    /// Its switches are recorded, as far as known: `Stitch::follows`. Without them its state is unknown.
    pub(super) followed: bool,
    /// One of its switches was seen.
    pub(super) switched: bool,
}

impl Task {
    /// Return its idle time by `time`; None if its switches are not recorded.
    pub(super) fn known_idle(&self, time: u64) -> Option<Idle> {
        self.followed.then(|| self.idle_at(time))
    }

    /// Return its idle time by `accounted`.
    pub(super) fn known_accounted(&self) -> Option<Idle> {
        self.followed.then_some(self.accounted_idle)
    }

    pub(super) fn idle_at(&self, time: u64) -> Idle {
        let mut idle = self.idle;
        let passed = time.saturating_sub(self.since);
        match self.known() {
            State::Blocked => idle.blocked += passed,
            State::Runnable => idle.runnable += passed,
            _ => {}
        }
        idle
    }

    pub(super) fn enter_state(&mut self, state: State, time: u64) {
        let blocked = self.idle.blocked;
        self.idle = self.idle_at(time);
        self.blocked_by[self.cause()] += self.idle.blocked - blocked;
        if self.known() == State::Blocked && state != State::Runnable {
            self.idle.unsplit += time.saturating_sub(self.since);
        }
        (self.state, self.since) = (state, time);
    }

    /// Count an event of this task. It proves that the task runs, even if its switch is not recorded.
    pub(super) fn event(&mut self, time: u64) {
        self.events = self.events.wrapping_add(1);
        self.seen = time;
        self.runs(time);
    }

    /// Note that this task runs at this time.
    pub(super) fn runs(&mut self, time: u64) {
        self.goes_on();
        match self.state {
            State::Blocked | State::Runnable => self.run(time, time),
            State::Unknown if self.switched => self.enter_state(State::Running, time),
            _ => {}
        }
    }

    /// Note that it does something other than going to sleep, if it is on a CPU.
    pub(super) fn goes_on(&mut self) {
        if self.state == State::Running {
            self.woken_early = false;
            self.answered = None;
        }
    }

    /// Return since when it has been runnable; `time` if it runs or sleeps.
    pub(super) fn ready(&self, time: u64) -> u64 {
        match self.known() {
            State::Runnable => self.since,
            _ => time,
        }
    }

    /// Return its state, by everything recorded so far.
    pub(super) fn known(&self) -> State {
        match self.state {
            _ if !self.followed => State::Unknown,
            State::Blocked if self.woken_early => State::Runnable,
            state => state,
        }
    }

    /// Note that somebody wakes it up.
    pub(super) fn woken(&mut self, time: u64) {
        match self.state {
            State::Running => self.woken_early = true,
            State::Blocked | State::Unknown => {
                // Within a known sleep, an earlier wake-up had no effect.
                self.woken_early = self.state == State::Unknown;
                self.enter_state(State::Runnable, time);
            }
            State::Runnable => {}
        }
    }

    /// Note that it runs. `delayed`: as in `Run`.
    pub(super) fn run(&mut self, time: u64, delayed: u64) {
        let ready = self.ready(time);
        self.enter_state(State::Running, time);
        self.woken_early = false;
        self.answered = None;
        let late = self.run.late.saturating_add(time.saturating_sub(ready));
        self.run = Run {
            ready,
            runs: time,
            late,
            delayed,
        };
        self.woke(time);
    }

    /// Return when the kernel's FUSE function that is at work was entered.
    pub(super) fn kernel_enter(&self) -> Option<u64> {
        let graph = self.graph.map(|(_, start)| start);
        let probe = self.probe.map(|(.., start)| start);
        let entered = Some(self.entered).filter(|start| *start > 0);
        graph.or(probe).or(entered)
    }
}

/// Threads by number, for fast access: every switch needs two of them.
#[derive(Default)]
pub(super) struct Tasks {
    near: Vec<Option<Box<Task>>>,
    far: FxHashMap<i32, Box<Task>>,
    /// Threads that have read something.
    readers: FxHashSet<i32>,
}

/// Upper bound of the kernel's numbers (PID_MAX_LIMIT, include/linux/threads.h).
pub(super) const NEAR: usize = 1 << 22;

impl Tasks {
    #[inline]
    pub(super) fn get(&self, tid: i32) -> Option<&Task> {
        match self.near.get(tid as usize) {
            Some(task) => task.as_deref(),
            None => self.far.get(&tid).map(|task| &**task),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, tid: i32) -> Option<&mut Task> {
        match self.near.get_mut(tid as usize) {
            Some(task) => task.as_deref_mut(),
            None => self.far.get_mut(&tid).map(|task| &mut **task),
        }
    }

    /// Return the thread with this number; a new one if there is none.
    #[inline]
    pub(super) fn of(&mut self, tid: i32) -> &mut Task {
        let at = tid as usize;
        if at >= NEAR {
            return self.far.entry(tid).or_default();
        }
        if at >= self.near.len() {
            self.near.resize_with(at + 1, || None);
        }
        self.near[at].get_or_insert_default()
    }

    /// Return whether a thread of the process is known.
    pub(super) fn any_of(&self, pid: i32) -> bool {
        let near = self.near.iter().flatten();
        near.chain(self.far.values()).any(|task| task.pid == pid)
    }

    pub(super) fn has_read(&mut self, tid: i32, read: Read) {
        let reads = &mut self.of(tid).reads;
        if reads.len() == MOST_READS {
            reads.remove(0);
        }
        reads.push(read);
        self.readers.insert(tid);
    }

    /// Return the threads that are in a system call.
    pub(super) fn in_calls(&self) -> Vec<i32> {
        let near = self
            .near
            .iter()
            .zip(0..)
            .filter_map(|(task, tid)| Some((tid, task.as_ref()?)));
        let all = near.chain(self.far.iter().map(|(tid, task)| (*tid, task)));
        let inside = all.filter(|(_, task)| task.syscall.is_some());
        inside.map(|(tid, _)| tid).collect()
    }

    /// Return the threads that have read something: far fewer than there are.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Task> {
        self.readers.iter().filter_map(|tid| self.get(*tid))
    }

    pub(super) fn remove(&mut self, tid: i32) -> Option<Box<Task>> {
        self.readers.remove(&tid);
        match self.near.get_mut(tid as usize) {
            Some(task) => task.take(),
            None => self.far.remove(&tid),
        }
    }
}

/// Maximum number, more than any program has open at once on one thread.
pub(super) const MOST_MADE: usize = 256;

const MOST_READS: usize = 16;

pub(super) const MOST_CALLBACKS: usize = 64;

impl Task {
    pub(super) fn resume(&mut self, time: u64) {
        self.events_then = self.events;
        self.resumed = time;
        if self.syscall.is_some() {
            self.accounted = time;
            self.accounted_idle = self.idle_at(time);
            self.account(time);
        }
    }

    /// Note that it is done with a request.
    pub(super) fn free(&mut self, time: u64) {
        self.freed = Freed {
            time,
            idle: self.idle_at(time),
            events: self.events,
        };
    }

    /// Forget what holds only within a system call.
    pub(super) fn end_call(&mut self) {
        self.waits_for = None;
        self.signal = 0;
        self.commit = None;
        self.accounted = 0;
        self.waits = 0;
        self.last = None;
        self.awaiting = None;
        self.answered = None;
        self.just_made = None;
        self.ended = None;
        self.ended_on = None;
        self.graph = None;
        self.probe = None;
        self.entered = 0;
    }
}
