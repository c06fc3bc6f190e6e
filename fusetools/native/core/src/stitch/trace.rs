//! What is known of one request: its marks, its fate, and when its caller and its daemon's thread had no CPU.

use super::*;

/// What happens to a request, in the order in which it does; but the callback may return at any time after it replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The caller's system call is entered: of the first request in it for which the caller waits.
    SysEnter,
    /// The caller runs again after its last request in the same system call: of the further ones.
    Resumed,
    /// The outermost of the kernel's FUSE functions that makes the request is entered.
    KernelEnter,
    /// The request is queued.
    Begin,
    /// A thread of the daemon is woken up for it.
    DaemonWaking,
    /// The thread that takes it runs, and is free to.
    DaemonRuns,
    /// The kernel copies it to the daemon.
    Sent,
    /// The daemon has it: the system call that brought it returns, else when the kernel copied it.
    Read,
    CallbackEnter,
    /// The daemon enters the system call that answers.
    Reply,
    End,
    /// The caller is woken up.
    Waking,
    /// The caller runs again: on a CPU, else where it returns from waiting.
    Runs,
    /// The kernel's FUSE function returns.
    KernelExit,
    /// The caller's system call returns: of the last request in it for which the caller waited.
    SysExit,
    CallbackReturn,
}

pub const MARKS: usize = 16;

/// As Python's columns are called.
pub const MARK_NAMES: [&str; MARKS] = [
    "sys_enter",
    "resumed",
    "kernel_enter",
    "begin",
    "daemon_waking",
    "daemon_runs",
    "sent",
    "read",
    "callback_enter",
    "reply",
    "end",
    "waking",
    "runs",
    "kernel_exit",
    "sys_exit",
    "callback_return",
];

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Begun and ended.
    Matched,
    /// Not ended when the recording did.
    Unfinished,
    /// The caller left without an answer, since a signal came before the daemon took the request.
    Interrupted,
    /// Ended by the kernel, since the daemon was gone or the connection was aborted.
    Aborted,
    /// The kernel expects no answer (forget, batch_forget): there is the callback alone.
    NoReply,
    /// Begun before the recording.
    Before,
    /// Its begin or its end is among what the recorder dropped.
    Lost,
    /// The kernel does not identify the request: its end cannot be matched.
    Unnumbered,
}

pub const FATES: [(Fate, &str); 8] = [
    (Fate::Matched, "matched"),
    (Fate::Unfinished, "unfinished"),
    (Fate::Interrupted, "interrupted"),
    (Fate::Aborted, "aborted"),
    (Fate::NoReply, "no_reply"),
    (Fate::Before, "before"),
    (Fate::Lost, "lost"),
    (Fate::Unnumbered, "unnumbered"),
];

/// A request. Times are ns on the recording's clock, durations ns, both ABSENT if not recorded.
#[derive(Clone, Debug)]
pub struct Story {
    /// No other story's of this recording.
    pub id: u32,
    pub operation: Operation,
    pub fate: Fate,
    /// A caller sleeps until it is answered.
    pub waits: bool,
    /// The answer came by io_uring.
    pub ring: bool,
    /// How many requests the caller waited for before it in the same system call.
    pub nth: u32,
    /// ABSENT if unknown; also for `unique`, `opcode`, `nodeid` and the sizes.
    pub connection: u64,
    pub unique: u64,
    pub opcode: u64,
    pub nodeid: u64,
    /// Bytes of the request and of its answer, each with its header.
    pub request_len: u64,
    pub reply_len: u64,
    /// Bytes requested from the callback, or given to it to write.
    pub size: u64,
    /// Negated errno; 0 when it succeeded or has not ended.
    pub error: i32,
    /// Who made it, -1 where not known.
    pub pid: i32,
    pub tid: i32,
    /// The caller's name, an index into `Stitch::comms`.
    pub comm: u32,
    /// Who served it, -1 where not known.
    pub daemon_pid: i32,
    pub daemon_tid: i32,
    /// The threads of the daemon that read it and that answered it, -1 where not known.
    pub reader: i32,
    pub replier: i32,
    /// The caller's system call; ABSENT outside of any (a page fault).
    pub syscall: u64,
    pub marks: [u64; MARKS],
    /// From begin to read: the thread that took it was busy with something else; it was, but had no CPU; it slept and
    /// was woken up, or another one was. The rest is the copying.
    pub no_thread: u64,
    pub no_cpu: u64,
    pub asleep: u64,
    /// From the callback to the reply: the callback's thread slept; was ready, but had no CPU; had left the request
    /// to another thread. The rest is on a CPU.
    pub blocked: u64,
    pub runnable: u64,
    pub elsewhere: u64,
    /// Of `blocked`: as in `Idle`.
    pub unsplit: u64,
    /// Of `waking` to `runs`: another task had the CPU.
    pub late: u64,
    /// Begun, and how it ended is known: when it was over. That is its end; its caller's return, which left without an
    /// answer; or the recording's end.
    pub until: u64,
    /// Of one that was not answered: the mark that would have come next; `End` where that is not known.
    pub next: Mark,
    /// It was answered by another thread than the one that read it, and has no callback.
    pub handed: bool,
    /// How long the threads had slept and waited for a CPU, by mark: the caller up to the begin and from `Runs` on, the
    /// daemon's thread between. Only differences on one thread have a meaning.
    pub idle: [Option<Idle>; MARKS],
    /// Events that the recorder took on the caller's thread before the begin and after it ran again, and on the
    /// daemon's between the callback and the reply: system calls and functions.
    pub before: u32,
    pub after: u32,
    pub inside: u32,
}

impl Story {
    pub(super) fn new(id: u32, operation: Operation, fate: Fate) -> Story {
        Story {
            id,
            operation,
            fate,
            waits: false,
            ring: false,
            nth: 0,
            connection: ABSENT,
            unique: ABSENT,
            opcode: ABSENT,
            nodeid: ABSENT,
            request_len: ABSENT,
            reply_len: ABSENT,
            size: ABSENT,
            error: 0,
            pid: -1,
            tid: -1,
            comm: 0,
            daemon_pid: -1,
            daemon_tid: -1,
            reader: -1,
            replier: -1,
            syscall: ABSENT,
            marks: [ABSENT; MARKS],
            no_thread: ABSENT,
            no_cpu: ABSENT,
            asleep: ABSENT,
            blocked: ABSENT,
            runnable: ABSENT,
            elsewhere: ABSENT,
            unsplit: 0,
            late: ABSENT,
            until: ABSENT,
            next: Mark::End,
            handed: false,
            idle: [None; MARKS],
            before: 0,
            after: 0,
            inside: 0,
        }
    }

    pub fn at(&self, mark: Mark) -> Option<u64> {
        Some(self.marks[mark as usize]).filter(|time| *time != ABSENT)
    }

    pub(super) fn set(&mut self, mark: Mark, time: u64) {
        self.marks[mark as usize] = time;
    }

    /// The first of them only.
    pub(super) fn set_first(&mut self, mark: Mark, time: u64) {
        if self.marks[mark as usize] == ABSENT {
            self.set(mark, time);
        }
    }

    pub(super) fn clear(&mut self, mark: Mark) {
        self.set(mark, ABSENT);
    }

    pub(super) fn learn(&mut self, unique: u64, connection: u64) {
        if !Requests::is_numbered(self.unique) && Requests::is_numbered(unique) {
            self.unique = unique;
        }
        if self.connection == ABSENT {
            self.connection = connection;
        }
    }

    /// How long its thread had slept and waited for a CPU by its reply, and when it began with it.
    pub(super) fn slept(&mut self, idle: Idle, before: Idle) {
        self.blocked = idle.blocked.saturating_sub(before.blocked);
        self.runnable = idle.runnable.saturating_sub(before.runnable);
        self.unsplit = idle.unsplit.saturating_sub(before.unsplit);
    }

    /// It has begun, and neither its end nor what became of it was lost.
    pub fn counts(&self) -> bool {
        self.until != ABSENT && self.at(Mark::Begin).is_some()
    }

    /// It has begun, and the daemon gave no answer: its durations are lower bounds.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self.fate,
            Fate::Unfinished | Fate::Interrupted | Fate::Aborted
        )
    }

    /// ns from its begin until it was over, if that is known.
    pub fn duration(&self) -> Option<u64> {
        let begin = self.at(Mark::Begin).filter(|_| self.until != ABSENT)?;
        Some(self.until.saturating_sub(begin))
    }

    /// How long the thread slept and waited for a CPU between two marks; None if unknown.
    pub fn idle_between(&self, from: Mark, to: Mark) -> Option<Idle> {
        let (from, to) = (self.idle[from as usize]?, self.idle[to as usize]?);
        Some(Idle {
            blocked: to.blocked.checked_sub(from.blocked)?,
            runnable: to.runnable.checked_sub(from.runnable)?,
            unsplit: to.unsplit.saturating_sub(from.unsplit),
        })
    }

    /// From its begin, or from where it is first seen.
    pub fn start(&self) -> u64 {
        let first = self.marks.iter().copied().min().unwrap_or(ABSENT);
        self.at(Mark::Begin).unwrap_or(first)
    }
}

/// Requests of all operations: `begun - matched` have not ended, `ended - matched` have no begin in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub begun: u64,
    pub ended: u64,
    pub matched: u64,
    /// Of those begun: the daemon gave no answer.
    pub unanswered: u64,
}

impl RequestCounts {
    pub fn add(&mut self, story: &Story) {
        let begun = story.at(Mark::Begin).is_some();
        let ended = story.at(Mark::End).is_some();
        self.begun += u64::from(begun);
        self.ended += u64::from(ended);
        self.matched += u64::from(begun && ended);
        self.unanswered += u64::from(begun && story.is_unanswered());
    }
}
