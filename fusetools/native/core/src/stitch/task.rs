//! What is known of a thread: its state, its system call, its reads and callbacks.

use super::rings::Commit;
use super::*;

/// ns so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub blocked: u64,
    pub runnable: u64,
    /// The part of `blocked` in waits without a recorded wake-up: the thread may have been ready before their end.
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

/// A system call that brought data.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub(super) enter: u64,
    pub(super) exit: u64,
    pub(super) run: Run,
    /// When it returned.
    pub(super) idle: Idle,
    pub(super) events: u32,
    /// Bytes; 0 if unknown.
    pub(super) len: u64,
    /// The connection whose requests it brings; ABSENT if unknown, or if the process serves no other.
    pub(super) connection: u64,
    /// It is known which request it brought.
    pub(super) claimed: bool,
}

impl Read {
    /// It may have brought a request of that connection.
    pub(super) fn may_be_of(&self, connection: u64) -> bool {
        connection == ABSENT || [ABSENT, connection].contains(&self.connection)
    }
}

/// When a thread last began to run, and since when it had been ready to; for how long in all it has been ready but
/// without a CPU since its reply.
#[derive(Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) ready: u64,
    pub(super) runs: u64,
    pub(super) late: u64,
    /// Since when another task delayed it by its own work on the CPU; equal to `runs` if none did.
    pub(super) delayed: u64,
}

/// When a thread last finished a request, and how long it had slept and how many events it had by then.
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
    /// Descriptors, if it reads or writes; ABSENT if unknown.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) start: u64,
    pub(super) losses: u32,
    pub(super) idle: Idle,
    pub(super) events: u32,
    /// By then.
    pub(super) freed: Freed,
}

#[derive(Default)]
pub(super) struct Task {
    pub(super) pid: i32,
    pub(super) comm: u32,
    pub(super) syscall: Option<Syscall>,
    /// When it last returned from one.
    pub(super) left: u64,

    /// Number of events recorded on it, without the scheduler's; the number when it last ran again; the last one's
    /// time.
    pub(super) events: u32,
    pub(super) events_then: u32,
    pub(super) seen: u64,
    /// The cost of recording in the current or last system call, ns.
    pub(super) taken: u64,

    // As a caller
    /// Requests of this system call that may have more events on this side.
    pub(super) made: Vec<Slot>,
    /// The request made last, until the task does something else.
    pub(super) just_made: Option<Slot>,
    /// Ended; the task has yet to run.
    pub(super) awaiting: Option<Slot>,
    /// Ended while the task was on a CPU; it has done nothing since.
    pub(super) answered: Option<Slot>,
    /// The last request that it waited for in this system call.
    pub(super) last: Option<Slot>,
    /// Number of requests that it waited for.
    pub(super) waits: u32,
    /// Up to when its time in this system call is accounted for (0 outside); its idle time by then.
    pub(super) accounted: u64,
    pub(super) accounted_idle: Idle,
    /// When it last ran again after a request.
    pub(super) resumed: u64,
    /// The outermost of the kernel's open FUSE functions: its depth or number, how often it is open, and its start.
    pub(super) graph: Option<(u64, u64)>,
    pub(super) probe: Option<(u32, u32, u64)>,
    /// When a FUSE function was last entered whose return is not recorded.
    pub(super) entered: u64,
    /// Its idle time when the outermost FUSE function was entered.
    pub(super) kernel_idle: Idle,

    // As a thread of the daemon
    /// Its reads since its last answer.
    pub(super) reads: Vec<Read>,
    pub(super) callbacks: Vec<Callback>,
    pub(super) sent: Option<Slot>,
    /// The last one that it is known to have read, by order and length.
    pub(super) paired: Option<Slot>,
    /// The request that this thread ended in this system call.
    pub(super) ended: Option<Slot>,
    /// The request that it was woken up for.
    pub(super) called: Option<Slot>,
    /// When the kernel's function that takes answers was entered; when one that hands out requests was.
    pub(super) writes: Option<(u64, Idle, u32)>,
    pub(super) fetches: u64,
    pub(super) freed: Freed,
    /// What was posted in rings while it waited for them (ring and mark); the ring for which it waits now; its command.
    pub(super) fetched: Vec<(u64, u64)>,
    pub(super) waits_for: Option<u64>,
    pub(super) commit: Option<Commit>,

    // On the CPUs
    pub(super) state: State,
    /// Woken up before its switch-out was recorded: it was about to sleep, on another CPU than its waker.
    pub(super) woken_early: bool,
    /// Who woke it up last.
    pub(super) waker: i32,
    pub(super) since: u64,
    pub(super) idle: Idle,
    pub(super) run: Run,
    /// Its switches are recorded.
    pub(super) switches: bool,
}

impl Task {
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
        self.idle = self.idle_at(time);
        if self.known() == State::Blocked && state != State::Runnable {
            self.idle.unsplit += time.saturating_sub(self.since);
        }
        (self.state, self.since) = (state, time);
    }

    /// An event of its own: it runs, whether or not its switch is recorded.
    pub(super) fn event(&mut self, time: u64) {
        self.events = self.events.wrapping_add(1);
        self.seen = time;
        self.runs(time);
    }

    /// It is seen at work.
    pub(super) fn runs(&mut self, time: u64) {
        self.goes_on();
        if matches!(self.state, State::Blocked | State::Runnable) {
            self.run(time, time);
        }
    }

    /// If it is on a CPU: it does something other than going to sleep.
    pub(super) fn goes_on(&mut self) {
        if self.state == State::Running {
            self.woken_early = false;
            self.answered = None;
        }
    }

    /// Since when it has been ready to run, if it does not run.
    pub(super) fn ready(&self, time: u64) -> u64 {
        match self.known() {
            State::Runnable => self.since,
            _ => time,
        }
    }

    /// Its state, by everything recorded so far.
    fn known(&self) -> State {
        match self.state {
            State::Blocked if self.woken_early => State::Runnable,
            state => state,
        }
    }

    /// Somebody wakes it up.
    pub(super) fn woken(&mut self, time: u64) {
        match self.state {
            State::Running => self.woken_early = true,
            State::Blocked | State::Unknown => {
                // Within a sleep that is known, an earlier wake-up was for nothing.
                self.woken_early = self.state == State::Unknown;
                self.enter_state(State::Runnable, time);
            }
            State::Runnable => {}
        }
    }

    /// `delayed`: as in `Run`.
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
    }

    /// When the kernel's FUSE function that is at work was entered.
    pub(super) fn kernel_enter(&self) -> Option<u64> {
        let graph = self.graph.map(|(_, start)| start);
        let probe = self.probe.map(|(.., start)| start);
        let entered = Some(self.entered).filter(|start| *start > 0);
        graph.or(probe).or(entered)
    }
}

/// Threads by their number: every switch needs two of them.
#[derive(Default)]
pub(super) struct Tasks {
    near: Vec<Option<Box<Task>>>,
    far: FxHashMap<i32, Box<Task>>,
    /// Those that have read something.
    readers: FxHashSet<i32>,
}

/// The kernel has no numbers beyond (PID_MAX_LIMIT, include/linux/threads.h).
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

    /// A new one if there is none.
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

    pub(super) fn has_read(&mut self, tid: i32, read: Read) {
        let reads = &mut self.of(tid).reads;
        if reads.len() == MOST_READS {
            reads.remove(0);
        }
        reads.push(read);
        self.readers.insert(tid);
    }

    /// Those that have read something: far fewer than there are.
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

/// More than any program has open at once on one thread.
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
        }
    }

    /// Done with a request.
    pub(super) fn free(&mut self, time: u64) {
        self.freed = Freed {
            time,
            idle: self.idle_at(time),
            events: self.events,
        };
    }

    /// Between two system calls nothing is known.
    pub(super) fn end_call(&mut self) {
        self.waits_for = None;
        self.commit = None;
        self.accounted = 0;
        self.waits = 0;
        self.last = None;
        self.awaiting = None;
        self.answered = None;
        self.just_made = None;
        self.ended = None;
        self.graph = None;
        self.probe = None;
        self.entered = 0;
    }
}
