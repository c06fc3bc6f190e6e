//! Story of one request: its marks, its fate, and when its caller and its daemon's thread had no CPU.

use serde::Serialize;

use super::*;

/// Size of struct fuse_out_header; of fuse_in_header and fuse_write_in (include/uapi/linux/fuse.h).
const OUT: u64 = 16;
const WRITE: u64 = 80;

/// Events of a request, in their order; but the callback may return at any time after it replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The caller's system call is entered. Only of the first request in it for which the caller waits.
    SysEnter,
    /// The caller runs again after its last request, or its last wait for something else, in the same system call.
    Resumed,
    /// The kernel's outermost FUSE function that makes the request is entered.
    KernelEnter,
    /// The request is queued.
    Begin,
    /// A thread of the daemon is woken up for it.
    DaemonWaking,
    /// The thread that takes it runs, and is free for it.
    DaemonRuns,
    /// The kernel copies it to the daemon.
    Sent,
    /// The daemon has it: the system call that brought it returns, or else the kernel has copied it.
    Read,
    CallbackEnter,
    /// The daemon enters the system call that answers.
    Reply,
    End,
    /// The caller is woken up.
    Waking,
    /// The caller runs again: on a CPU, or else where it returns from waiting.
    Runs,
    /// The kernel's FUSE function returns.
    KernelExit,
    /// The caller goes to wait for something else in the same system call (stitch/calls.rs). Only of the last request in
    /// it for which the caller waited.
    Leaves,
    /// The caller's system call returns. Only of the last request in it for which the caller waited.
    SysExit,
    CallbackReturn,
}

pub const MARKS: usize = 17;

/// Names of Python's columns.
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
    "leaves",
    "sys_exit",
    "callback_return",
];

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Begun and ended.
    Matched,
    /// Not ended by the recording's end.
    Unfinished,
    /// The caller left without a reply, since a signal came before the daemon took the request.
    Interrupted,
    /// Ended by the kernel, since the daemon was gone or the connection was aborted.
    Aborted,
    /// The kernel expects no reply (forget, batch_forget): there is only the callback.
    NoReply,
    /// Begun before the recording.
    Before,
    /// The recorder dropped its begin or its end.
    Lost,
    /// The kernel does not identify the request, so its end cannot be matched.
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

/// Request. Times are ns on the recording's clock, durations ns; both are ABSENT if not recorded.
#[derive(Clone, Debug)]
pub struct Story {
    /// Number that no other story of this recording has.
    pub id: u32,
    pub operation: Operation,
    pub fate: Fate,
    /// A caller sleeps until it is answered.
    pub waits: bool,
    /// The reply came through io_uring.
    pub ring: bool,
    /// Number of requests that the caller waited for before it in the same system call.
    pub nth: u32,
    /// Time since when its caller slept until the kernel allowed one more asynchronous request; ABSENT: it did not, as
    /// far as known.
    pub room: u64,
    /// Kind of the caller's last sleep since the request's begin, a place in `OUTSIDE`; `AWAKE`: it did not sleep, as far
    /// as known.
    pub slept: u8,
    /// ABSENT if unknown; also for `unique`, `opcode`, `nodeid` and the sizes.
    pub connection: u64,
    pub unique: u64,
    pub opcode: u64,
    pub nodeid: u64,
    /// Bytes of the request and of its reply, each with its header.
    pub request_len: u64,
    pub reply_len: u64,
    /// Bytes requested from the callback, or given to it to write.
    pub size: u64,
    /// Negated errno; 0 if it succeeded or has not ended.
    pub error: i32,
    /// Process and thread that made it; -1 if unknown.
    pub pid: i32,
    pub tid: i32,
    /// Caller's name, an index into `Stitch::comms`.
    pub comm: u32,
    /// Process and thread that served it; -1 if unknown.
    pub daemon_pid: i32,
    pub daemon_tid: i32,
    /// Threads of the daemon that read it and that answered it; -1 if unknown.
    pub reader: i32,
    pub replier: i32,
    /// System call of the caller; ABSENT outside of any (a page fault).
    pub syscall: u64,
    pub marks: [u64; MARKS],
    /// Parts of the time from begin to read. `no_thread`: the thread that took it was busy with something else.
    /// `no_cpu`: that thread was busy, but had no CPU. `asleep`: it slept and was woken up, or another one was. The
    /// rest is copying.
    pub no_thread: u64,
    pub no_cpu: u64,
    pub asleep: u64,
    /// Parts of the time from the callback to the reply. The callback's thread was blocked; was runnable without a CPU;
    /// had left the request to another thread (`elsewhere`). The rest is on a CPU.
    pub blocked: u64,
    pub runnable: u64,
    pub elsewhere: u64,
    /// Part of `blocked`, as in `Idle`.
    pub unsplit: u64,
    /// Part of the time from `waking` to `runs` in which another task had the CPU.
    pub late: u64,
    /// Time when a begun request was over, if known: its end; the return of its caller, which left without a reply; or
    /// the recording's end.
    pub until: u64,
    /// Mark that would have come next in an unanswered request; `End` if unknown.
    pub next: Mark,
    /// Another thread answered it than the one that read it, and the return of its callback, if it has one, is not
    /// recorded.
    pub handed: bool,
    /// Time when the thread that had it left it without an answer: the thread ended, took the next request, or wrote an
    /// answer that the kernel refused. ABSENT: it did not.
    pub left: u64,
    /// Error with which the kernel refused its answer, negated errno; 0 if it did not.
    pub refused: i32,
    /// The thread that read it continued with other requests and never answered it.
    pub dropped: bool,
    /// The kernel sent it a second time (FUSE_NOTIFY_RESEND). Then also: process that had read it before, -1 if unknown,
    /// and when.
    pub resent: bool,
    pub first_reader: i32,
    pub first_read: u64,
    /// Result of the caller's system call; ABSENT if unknown. Only of the last request in it for which the caller
    /// waited.
    pub result: u64,
    /// Number of signals that its caller got while it waited, and the first of them. And: the daemon has read an
    /// INTERRUPT for it.
    pub signals: u32,
    pub signal: u32,
    pub interrupted: bool,
    /// If aborted: process that did it, its name as in `comm`, its system call; and whether it serves
    /// the connection.
    pub aborter: i32,
    pub aborter_comm: u32,
    pub aborter_call: u64,
    pub aborted_by_daemon: bool,
    /// Idle times of the threads by mark: of the caller up to the begin and from `Runs` on, of the daemon's thread
    /// between. Only differences on one thread have a meaning.
    pub idle: [Option<Idle>; MARKS],
    /// Number of recorded events (system calls and functions). On the caller's thread: before the begin, and after it
    /// ran again. On the daemon's thread: between the callback and the reply.
    pub before: u32,
    pub after: u32,
    pub inside: u32,
}

impl Story {
    pub(crate) fn new(id: u32, operation: Operation, fate: Fate) -> Story {
        Story {
            id,
            operation,
            fate,
            waits: false,
            ring: false,
            nth: 0,
            room: ABSENT,
            slept: AWAKE,
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
            left: ABSENT,
            refused: 0,
            dropped: false,
            resent: false,
            first_reader: -1,
            first_read: ABSENT,
            result: ABSENT,
            signals: 0,
            signal: 0,
            interrupted: false,
            aborter: -1,
            aborter_comm: 0,
            aborter_call: ABSENT,
            aborted_by_daemon: false,
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

    /// Set a mark, unless it was set before.
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

    /// Set the blocked and runnable times. `idle`: idle time of its thread by its reply; `before`: when the thread
    /// began with it.
    pub(super) fn slept(&mut self, idle: Idle, before: Idle) {
        self.blocked = idle.blocked.saturating_sub(before.blocked);
        self.runnable = idle.runnable.saturating_sub(before.runnable);
        self.unsplit = idle.unsplit.saturating_sub(before.unsplit);
    }

    /// Return whether it has begun, and neither its end nor its fate was lost.
    pub fn counts(&self) -> bool {
        self.until != ABSENT && self.at(Mark::Begin).is_some()
    }

    /// Return the bytes that a read or a write of `requested` bytes transferred; `requested` if the reply's length is
    /// unknown.
    pub fn transferred(&self, requested: u64) -> u64 {
        match (self.operation.name(), self.reply_len) {
            _ if self.error != 0 || self.is_unanswered() => 0,
            ("read", length) if length != ABSENT => length.saturating_sub(OUT),
            _ => requested,
        }
    }

    /// Return the bytes read or written: as given to the callback, else as transferred; ABSENT if unknown.
    pub fn bytes(&self) -> u64 {
        let (length, head) = match self.operation.name() {
            "write" => (self.request_len, WRITE),
            _ => (self.reply_len, OUT),
        };
        match (self.size, length) {
            (ABSENT, ABSENT) => ABSENT,
            (ABSENT, length) => length.saturating_sub(head),
            (size, _) => size,
        }
    }

    /// Return whether it has begun, and the daemon gave no reply: its durations are lower bounds.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self.fate,
            Fate::Unfinished | Fate::Interrupted | Fate::Aborted
        )
    }

    /// Return the ns from its begin until it was over, if known.
    pub fn duration(&self) -> Option<u64> {
        let begin = self.at(Mark::Begin).filter(|_| self.until != ABSENT)?;
        Some(self.until.saturating_sub(begin))
    }

    /// Return the idle time of the thread between two marks; None if unknown.
    pub fn idle_between(&self, from: Mark, to: Mark) -> Option<Idle> {
        let (from, to) = (self.idle[from as usize]?, self.idle[to as usize]?);
        Some(Idle {
            blocked: to.blocked.checked_sub(from.blocked)?,
            runnable: to.runnable.checked_sub(from.runnable)?,
            unsplit: to.unsplit.saturating_sub(from.unsplit),
        })
    }

    /// Return the time of its begin, or else of its first mark.
    pub fn start(&self) -> u64 {
        let first = self.marks.iter().copied().min().unwrap_or(ABSENT);
        self.at(Mark::Begin).unwrap_or(first)
    }
}

/// Numbers of requests of all operations: `begun - matched` have not ended, `ended - matched` have no begin in the
/// recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    pub begun: u64,
    pub ended: u64,
    pub matched: u64,
    /// Number of begun requests without a reply.
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
