//! Each request's whole life, from the system call that made it to that call's end: on the caller's side and on the
//! daemon's.
//!
//! A `Stitch` takes the batches of a recording in time order and tells each request's story once, when nothing more
//! can be learned of it. It keeps what is open and no more. What it joins by: (connection, unique) and the address of
//! the kernel's struct fuse_req (requests.rs), the caller's thread, the daemon's thread.
//!
//! Several requests in one system call: the time before the first belongs to the first, the time after the last to
//! the last, and what lies between two to the later one (`Mark::Resumed`), so nothing is counted twice. Of requests
//! for which nobody waits (release, read-ahead) only what happens from their begin to their end is told. Requests
//! under way at once have each their own time: their sum may be longer than the call.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::{or_zero, told, Filters, FARTHEST, WAIT};
use crate::error::Error;
use crate::events::{Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT};
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::{Key, Request, Requests};

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
    /// The kernel does not tell which request it is: its end cannot be found.
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

/// A request. Times are ns on the recording's clock, durations ns, both ABSENT where the recording does not tell.
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
    /// ABSENT where not told, so `unique`, `opcode`, `nodeid` and the sizes.
    pub connection: u64,
    pub unique: u64,
    pub opcode: u64,
    pub nodeid: u64,
    /// Bytes of the request and of its answer, each with its header.
    pub request_len: u64,
    pub reply_len: u64,
    /// Bytes that the callback is asked for, or is given to write.
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
    /// Another thread than the one that read it answered: one without a callback.
    pub handed: bool,
    /// What the threads had slept and waited for a CPU, by mark: the caller's up to the begin and from `Runs` on, the
    /// daemon's thread's between. Only differences on one thread mean anything.
    pub idle: [Option<Idle>; MARKS],
    /// Events that the recorder took on the caller's thread before the begin and after it ran again, and on the
    /// daemon's between the callback and the reply: system calls and functions.
    pub before: u32,
    pub after: u32,
    pub inside: u32,
}

impl Story {
    fn new(id: u32, operation: Operation, fate: Fate) -> Story {
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

    fn set(&mut self, mark: Mark, time: u64) {
        self.marks[mark as usize] = time;
    }

    /// The first of them only.
    fn set_first(&mut self, mark: Mark, time: u64) {
        if self.marks[mark as usize] == ABSENT {
            self.set(mark, time);
        }
    }

    fn clear(&mut self, mark: Mark) {
        self.set(mark, ABSENT);
    }

    fn learn(&mut self, unique: u64, connection: u64) {
        if !Requests::is_numbered(self.unique) && Requests::is_numbered(unique) {
            self.unique = unique;
        }
        if self.connection == ABSENT {
            self.connection = connection;
        }
    }

    /// What its thread had slept and waited for a CPU by its reply, and when it began with it.
    fn slept(&mut self, idle: Idle, before: Idle) {
        self.blocked = idle.blocked.saturating_sub(before.blocked);
        self.runnable = idle.runnable.saturating_sub(before.runnable);
        self.unsplit = idle.unsplit.saturating_sub(before.unsplit);
    }

    /// Begun, and neither its end nor what became of it was lost.
    pub fn counts(&self) -> bool {
        self.until != ABSENT && self.at(Mark::Begin).is_some()
    }

    /// It has begun, and no answer came of the daemon: its durations are what it took at least.
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self.fate,
            Fate::Unfinished | Fate::Interrupted | Fate::Aborted
        )
    }

    /// ns from its begin until it was over, where that is known.
    pub fn duration(&self) -> Option<u64> {
        let begin = self.at(Mark::Begin).filter(|_| self.until != ABSENT)?;
        Some(self.until.saturating_sub(begin))
    }

    /// What the thread slept and waited for a CPU between two marks; None where not known.
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

/// An open story.
struct Open {
    story: Story,
    /// 0: nothing is open here.
    generation: u32,
    /// Its key among the open requests.
    key: Option<Key>,
    /// Made by a caller that the filters let pass.
    wanted: bool,
    losses: u32,
    /// The caller did something else meanwhile.
    background: bool,
    /// The caller has gone to wait for it.
    waited: bool,
    ended: bool,
    /// More may be seen of it on the caller's side, on the daemon's.
    caller_open: bool,
    daemon_open: bool,
    /// What the daemon's thread had slept and waited for a CPU when its callback began; without one, when it had read
    /// the request.
    idle: Idle,
    /// The thread that read it, where that is known by order and length.
    paired: Option<i32>,
    /// Requests of its length were read, more at once than can be told apart.
    maybe_read: bool,
    /// How many events its thread had had by then.
    events: u32,
}

impl Open {
    fn new(story: Story, generation: u32, losses: u32) -> Open {
        Open {
            story,
            generation,
            key: None,
            wanted: false,
            losses,
            background: false,
            waited: false,
            ended: false,
            caller_open: false,
            daemon_open: false,
            idle: Idle::default(),
            paired: None,
            maybe_read: false,
            events: 0,
        }
    }
}

/// A place in the slab, with the generation of what is there.
type Slot = (u32, u32);

/// ns so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub blocked: u64,
    pub runnable: u64,
    /// Of `blocked`, that of waits whose end alone was recorded: it may have been ready before.
    pub unsplit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Unknown,
    Running,
    Blocked,
    Runnable,
}

/// A system call that brought something.
#[derive(Clone, Copy)]
struct Read {
    enter: u64,
    exit: u64,
    run: Run,
    /// When it returned.
    idle: Idle,
    events: u32,
    /// Bytes; 0 where not told.
    len: u64,
    /// It is known which request it brought.
    claimed: bool,
}

/// When a thread last began to run, and since when it had been ready to; how long it was so in all since it replied.
#[derive(Clone, Copy, Default)]
struct Run {
    ready: u64,
    runs: u64,
    late: u64,
    /// Another task had the CPU until then: neither the one that woke this one up, nor none.
    busy: bool,
}

#[derive(Clone, Copy)]
struct Callback {
    function: u32,
    slot: Option<Slot>,
}

#[derive(Clone, Copy)]
struct Syscall {
    number: u64,
    start: u64,
    losses: u32,
    idle: Idle,
    events: u32,
}

#[derive(Default)]
struct Task {
    pid: i32,
    comm: u32,
    syscall: Option<Syscall>,

    /// Recorded on it, but for the scheduler's; by when it last ran again; the last one's time.
    events: u32,
    events_then: u32,
    seen: u64,

    // As a caller
    /// Requests of this system call of which more may be seen on this side.
    made: Vec<Slot>,
    /// The last one, until the task does something else.
    just_made: Option<Slot>,
    /// Ended; the task has yet to run.
    awaiting: Option<Slot>,
    /// The last one that it waited for in this system call.
    last: Option<Slot>,
    /// How many those were.
    waits: u32,
    /// Its time in this system call is told up to here; 0 outside. What it had been idle by then.
    told: u64,
    told_idle: Idle,
    /// When it last ran again after a request.
    resumed: u64,
    /// The outermost of the kernel's open FUSE functions: its depth or number, how often it is open, and its start.
    graph: Option<(u64, u64)>,
    probe: Option<(u32, u32, u64)>,
    /// When one was last entered whose return is not recorded.
    entered: u64,
    /// When the outermost was entered.
    kernel_idle: Idle,

    // As a thread of the daemon
    /// Since its last answer.
    reads: Vec<Read>,
    callbacks: Vec<Callback>,
    sent: Option<Slot>,
    /// The last one that it is known to have read, by order and length.
    paired: Option<Slot>,
    /// Ended by this thread in this system call.
    ended: Option<Slot>,
    /// Woken up for it.
    called: Option<Slot>,
    /// The kernel's function that takes answers was entered, or one that hands out requests.
    writes: Option<(u64, Idle, u32)>,
    fetches: u64,
    /// When it was last done with a request.
    freed: u64,

    // On the CPUs
    state: State,
    /// Who woke it up last.
    waker: i32,
    since: u64,
    idle: Idle,
    run: Run,
    /// Its switches are recorded.
    switches: bool,
}

impl Task {
    fn idle_at(&self, time: u64) -> Idle {
        let mut idle = self.idle;
        let passed = time.saturating_sub(self.since);
        match self.state {
            State::Blocked => idle.blocked += passed,
            State::Runnable => idle.runnable += passed,
            _ => {}
        }
        idle
    }

    fn enter_state(&mut self, state: State, time: u64) {
        self.idle = self.idle_at(time);
        if self.state == State::Blocked && state != State::Runnable {
            self.idle.unsplit += time.saturating_sub(self.since);
        }
        (self.state, self.since) = (state, time);
    }

    /// An event of its own: it runs, whether or not its switch is recorded.
    fn event(&mut self, time: u64) {
        self.events = self.events.wrapping_add(1);
        self.seen = time;
        self.runs(time);
    }

    /// It is seen at work.
    fn runs(&mut self, time: u64) {
        if matches!(self.state, State::Blocked | State::Runnable) {
            self.run(time, false);
        }
    }

    /// `busy`: as in `Run`.
    fn run(&mut self, time: u64, busy: bool) {
        let ready = match self.state {
            State::Runnable => self.since,
            _ => time,
        };
        self.enter_state(State::Running, time);
        let late = self.run.late.saturating_add(time.saturating_sub(ready));
        self.run = Run {
            ready,
            runs: time,
            late,
            busy,
        };
    }

    /// When the kernel's FUSE function was entered that is at work.
    fn kernel_enter(&self) -> Option<u64> {
        let graph = self.graph.map(|(_, start)| start);
        let probe = self.probe.map(|(.., start)| start);
        let entered = Some(self.entered).filter(|start| *start > 0);
        graph.or(probe).or(entered)
    }
}

/// Threads by their number: of every switch two are looked up.
#[derive(Default)]
struct Tasks {
    near: Vec<Option<Box<Task>>>,
    far: FxHashMap<i32, Box<Task>>,
}

/// The kernel has no numbers beyond (PID_MAX_LIMIT, include/linux/threads.h).
const NEAR: usize = 1 << 22;

impl Tasks {
    #[inline]
    fn get(&self, tid: i32) -> Option<&Task> {
        match self.near.get(tid as usize) {
            Some(task) => task.as_deref(),
            None => self.far.get(&tid).map(|task| &**task),
        }
    }

    #[inline]
    fn get_mut(&mut self, tid: i32) -> Option<&mut Task> {
        match self.near.get_mut(tid as usize) {
            Some(task) => task.as_deref_mut(),
            None => self.far.get_mut(&tid).map(|task| &mut **task),
        }
    }

    /// A new one if there is none.
    #[inline]
    fn of(&mut self, tid: i32) -> &mut Task {
        let at = tid as usize;
        if at >= NEAR {
            return self.far.entry(tid).or_default();
        }
        if at >= self.near.len() {
            self.near.resize_with(at + 1, || None);
        }
        self.near[at].get_or_insert_default()
    }

    fn remove(&mut self, tid: i32) -> Option<Box<Task>> {
        match self.near.get_mut(tid as usize) {
            Some(task) => task.take(),
            None => self.far.remove(&tid),
        }
    }
}

/// More than any program has open at once on one thread.
const MOST_MADE: usize = 256;
const MOST_READS: usize = 16;
const MOST_CALLBACKS: usize = 64;
const MOST_COMMS: usize = 1 << 16;

/// Requests of one connection and length of which no read is known, in the order in which they were queued.
#[derive(Default)]
struct Unread {
    queue: VecDeque<Slot>,
    /// So many of them were read: which ones cannot be told.
    taken: usize,
}

/// More wait for no daemon (max_background, and a caller each).
const MOST_UNREAD: usize = 1 << 16;
/// Lengths that are told apart.
const MOST_LENGTHS: usize = 1 << 16;

/// The daemon is gone: the kernel ends what it had not answered (fs/fuse/dev.c, fuse_abort_conn).
const ECONNABORTED: i32 = 103;

/// What a kernel function means for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Other,
    /// The caller waits in it.
    Wait,
    /// The daemon fetches requests, or answers.
    Fetch,
    Write,
}

fn place(function: &str) -> Place {
    match function.split('.').next().unwrap_or(function) {
        WAIT => Place::Wait,
        "fuse_dev_do_read" => Place::Fetch,
        "fuse_dev_do_write" => Place::Write,
        _ => Place::Other,
    }
}

#[derive(Clone, Copy)]
struct Kind {
    role: Role,
    layer: Layer,
    /// Of the catalogue, for entries and returns.
    function: u32,
    place: Place,
    operation: Operation,
    returns: bool,
    /// A kernel function that makes requests: not one that is part of what happens to them.
    makes: bool,
}

pub struct Stitch {
    arch: Arch,
    filters: Filters,
    window: (u64, u64),
    kinds: Vec<Kind>,
    /// The connection that a daemon process serves, where known; and all processes that served.
    daemons: FxHashMap<i32, u64>,
    servants: FxHashSet<i32>,
    /// By connection and length.
    unread: FxHashMap<(u64, u64), Unread>,
    /// Threads of a daemon that are, or may be, in a system call that reads.
    reading: FxHashMap<i32, FxHashSet<i32>>,
    /// Daemons in which another thread answers than the one that read.
    hand: FxHashSet<i32>,
    /// Reads of requests are recorded; callbacks are.
    reads: bool,
    callbacks: bool,
    /// The latest event's time.
    now: u64,
    /// By start.
    places: Vec<(u64, Place)>,
    /// Switches are recorded, and what in prev_state says that a task is not ready to run.
    switches: bool,
    asleep: u64,
    requests: Requests,
    slab: Vec<Open>,
    free: Vec<u32>,
    generation: u32,
    tasks: Tasks,
    comms: Vec<String>,
    comm_numbers: FxHashMap<String, u32>,
    losses: u32,
    /// ns between two events of one thread that follow each other in the kernel: the least seen.
    least: u64,
}

/// What is known beside the stories.
pub struct Told {
    pub info: ScanInfo,
    /// Names of threads, by `Story::comm`.
    pub comms: Vec<String>,
    /// `Stitch::event_cost`
    pub event_cost: Option<u64>,
}

/// Reads a recording and tells each request's story, in the order in which they are complete.
pub fn stories(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    tell: &mut dyn FnMut(&Story, &[String]),
) -> Result<Told, Error> {
    let first = filters.first(reader)?;
    let mut stitch = Stitch::new(
        catalogue,
        filters,
        reader.arch().as_deref(),
        first,
        asleep(reader),
    );
    let mut told = |stitch: &[String], story: &Story| tell(story, stitch);
    let info = reader.scan(catalogue, &mut |batch| stitch.push_with(&batch, &mut told))?;
    let event_cost = stitch.event_cost();
    stitch.end_at(info.last);
    let comms = stitch.finish_with(&mut told);
    Ok(Told {
        info,
        comms,
        event_cost,
    })
}

/// The bits of sched_switch's prev_state that say that a task waits for something, as the recording's own format
/// names them; without any it is ready to run (preempted).
pub fn asleep(reader: &Reader) -> u64 {
    let format = reader
        .events()
        .iter()
        .find(|event| event.name == "sched:sched_switch")
        .and_then(|event| event.format.as_deref());
    let bits = format.map_or(0, |format| format.flags("prev_state"));
    // TASK_INTERRUPTIBLE and TASK_UNINTERRUPTIBLE, where the format says nothing.
    if bits == 0 {
        3
    } else {
        bits
    }
}

impl Stitch {
    /// As `Analysis::new`; `asleep` is what the function of that name gives.
    pub fn new(
        catalogue: &[Meaning],
        filters: Filters,
        arch: Option<&str>,
        first: u64,
        asleep: u64,
    ) -> Stitch {
        let mut numbers: FxHashMap<(Layer, &str), u32> = FxHashMap::default();
        let kinds = catalogue.iter().map(|row| {
            let next = numbers.len() as u32;
            let function = *numbers.entry((row.layer, &row.function)).or_insert(next);
            Kind {
                role: row.role,
                layer: row.layer,
                function,
                place: place(&row.function),
                makes: place(&row.function) == Place::Other
                    && !catalogue
                        .iter()
                        .any(|other| other.event == row.event && other.layer == Layer::Request),
                operation: Operation::of_name(&row.operation),
                returns: catalogue.iter().any(|other| {
                    other.role == Role::Return
                        && (other.layer, &other.function) == (row.layer, &row.function)
                }),
            }
        });
        let mut places: Vec<(u64, Place)> = filters
            .functions
            .iter()
            .map(|(start, name, _)| (*start, place(name)))
            .filter(|(_, place)| *place != Place::Other)
            .collect();
        places.sort_by_key(|(start, _)| *start);
        Stitch {
            arch: Arch::new(arch),
            window: filters.window(first),
            kinds: kinds.collect(),
            daemons: filters.daemons.iter().copied().collect(),
            servants: filters.daemons.iter().map(|(pid, _)| *pid).collect(),
            unread: FxHashMap::default(),
            reading: FxHashMap::default(),
            hand: FxHashSet::default(),
            reads: catalogue
                .iter()
                .any(|row| matches!(row.role, Role::Sent | Role::SysExit)),
            callbacks: catalogue.iter().any(|row| {
                (row.role, row.layer) == (Role::Entry, Layer::Daemon) && !row.operation.is_empty()
            }),
            now: 0,
            places,
            switches: catalogue.iter().any(|row| row.role == Role::Switch),
            asleep,
            filters,
            requests: Requests::default(),
            slab: Vec::new(),
            free: Vec::new(),
            generation: 0,
            tasks: Tasks::default(),
            comms: vec![String::new()],
            comm_numbers: FxHashMap::default(),
            losses: 0,
            least: u64::MAX,
        }
    }

    /// At most what taking an event costs, ns: the least time from a request's end to the waking of its caller, which
    /// the kernel does right after. None where neither is seen.
    pub fn event_cost(&self) -> Option<u64> {
        Some(self.least).filter(|ns| *ns < u64::MAX)
    }

    /// Names of threads, by `Story::comm`.
    pub fn comms(&self) -> &[String] {
        &self.comms
    }

    /// The next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch, tell: &mut dyn FnMut(&Story)) {
        self.push_with(batch, &mut |_, story| tell(story));
    }

    fn push_with(&mut self, batch: &Batch, tell: Tell) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event_with(event, tell),
            Item::Side(record) => self.side_with(record, tell),
        });
    }

    /// One event, or side-band record, for those who look at them one by one (`waiting`, `in_hand`).
    pub fn event(&mut self, ev: &Ev, tell: &mut dyn FnMut(&Story)) {
        self.event_with(ev, &mut |_, story| tell(story));
    }

    pub fn side(&mut self, record: &Side, tell: &mut dyn FnMut(&Story)) {
        self.side_with(record, &mut |_, story| tell(story));
    }

    /// The request that a thread waits for, or will run again after.
    pub fn waiting(&self, tid: i32) -> Option<&Story> {
        let slot = self.waiting_slot(tid)?;
        self.get(slot).map(|open| &open.story)
    }

    fn waiting_slot(&self, tid: i32) -> Option<Slot> {
        let task = self.tasks.get(tid)?;
        let open = |slot: &Slot| self.get(*slot).map(|open| (*slot, open));
        if let Some((slot, _)) = task.awaiting.as_ref().and_then(open) {
            return Some(slot);
        }
        let mut pending = task.made.iter().filter_map(open).filter(|o| !o.1.ended);
        let first = pending.next()?;
        let last = pending.next_back().unwrap_or(first);
        let (of_first, of_last) = (first.1.story.operation, last.1.story.operation);
        if last.1.waited || of_last.has_caller() {
            Some(last.0)
        } else if of_first.has_caller() || !of_first.may_wait() {
            None
        } else {
            Some(first.0) // of a file's pages it needs the first
        }
    }

    /// The request that a thread of the daemon has in hand: from its callback on, or its read where it is known by then
    /// what that brought, and the daemon's threads do not hand requests to each other.
    pub fn in_hand(&self, tid: i32) -> Option<&Story> {
        let task = self.tasks.get(tid)?;
        let callback = task.callbacks.last().and_then(|callback| callback.slot);
        let read = task.paired.filter(|_| !self.hands(task.pid));
        let slot = callback.or(task.sent).or(read)?;
        self.get(slot).map(|open| &open.story)
    }

    /// Requests of this daemon have been answered by other threads than those that read them.
    pub fn hands(&self, pid: i32) -> bool {
        self.hand.contains(&pid)
    }

    /// The request that a thread has answered in the system call in which it is.
    pub fn answered(&self, tid: i32) -> Option<&Story> {
        let slot = self.tasks.get(tid)?.ended?;
        self.get(slot).map(|open| &open.story)
    }

    /// A thread has just made a request: whom it wakes up now is to serve that.
    pub fn asks(&self, tid: i32) -> bool {
        let task = self.tasks.get(tid);
        task.is_some_and(|task| task.just_made.is_some())
    }

    fn side_with(&mut self, record: &Side, tell: Tell) {
        match record {
            Side::Comm { pid, tid, comm, .. } => {
                let comm = self.comm_number(comm);
                let new = self.tasks.get(*tid).is_none();
                let task = self.tasks.of(*tid);
                (task.pid, task.comm) = (*pid, comm);
                if new && self.daemons.contains_key(pid) {
                    // Where it stood when the recording began is not known.
                    self.reading.entry(*pid).or_default().insert(*tid);
                }
            }
            Side::Fork {
                time,
                pid,
                tid,
                ptid,
                ..
            } => {
                self.exit(*tid, *time, tell);
                let comm = self.tasks.get(*ptid).map_or(0, |parent| parent.comm);
                let task = self.tasks.of(*tid);
                (task.pid, task.comm) = (*pid, comm);
            }
            Side::Exit { tid, time, .. } => self.exit(*tid, *time, tell),
            Side::Lost { .. } => self.losses += 1,
            Side::Map(_) | Side::Name { .. } => {}
            Side::Switch {
                time,
                tid,
                out,
                preempt,
                ..
            } => {
                if *out {
                    // sched_switch has told it, and how, where that is recorded of the task.
                    let out = self
                        .tasks
                        .get(*tid)
                        .is_some_and(|task| matches!(task.state, State::Blocked | State::Runnable));
                    if !out {
                        self.switch_out(*tid, !*preempt, *time);
                    }
                } else {
                    self.switch_in(*tid, *time, 0);
                }
            }
        }
    }

    fn comm_number(&mut self, comm: &str) -> u32 {
        if let Some(number) = self.comm_numbers.get(comm) {
            return *number;
        }
        if self.comms.len() == MOST_COMMS {
            return 0;
        }
        let number = self.comms.len() as u32;
        self.comms.push(comm.to_owned());
        self.comm_numbers.insert(comm.to_owned(), number);
        number
    }

    #[inline]
    fn event_with(&mut self, ev: &Ev, tell: Tell) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        self.now = self.now.max(ev.time);
        match kind.role {
            Role::SysEnter => self.sys_enter(ev, tell),
            Role::SysExit => self.sys_exit(ev, tell),
            Role::Switch => {
                let [prev, state, next, _] = ev.v;
                self.switch_out(prev as i32, state & self.asleep != 0, ev.time);
                self.switch_in(next as i32, ev.time, prev as i32);
            }
            Role::Waking => self.waking(ev),
            Role::Begin => self.begin(ev, kind, tell),
            Role::Sent => self.sent(ev),
            Role::End => self.end(ev, tell),
            Role::Reply => self.reply(ev),
            Role::Length => self.length(ev),
            Role::Entry if kind.layer == Layer::Daemon => self.callback(ev, kind, tell),
            Role::Return if kind.layer == Layer::Daemon => self.callback_return(ev, kind, tell),
            Role::Entry => self.kernel_entry(ev, kind),
            Role::Return => self.kernel_return(ev, kind),
            Role::GraphEntry => self.graph_entry(ev),
            Role::GraphExit => self.graph_exit(ev),
            Role::Stack | Role::Inode | Role::Name | Role::Taken | Role::Connect => {}
        }
    }

    // The slab

    fn put(&mut self, operation: Operation, fate: Fate) -> Slot {
        self.generation = self.generation.wrapping_add(1).max(1);
        let open = Open::new(
            Story::new(self.generation, operation, fate),
            self.generation,
            self.losses,
        );
        let place = match self.free.pop() {
            Some(place) => {
                self.slab[place as usize] = open;
                place
            }
            None => {
                self.slab.push(open);
                self.slab.len() as u32 - 1
            }
        };
        (place, self.generation)
    }

    fn get(&self, slot: Slot) -> Option<&Open> {
        let open = self.slab.get(slot.0 as usize)?;
        (open.generation == slot.1).then_some(open)
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Open> {
        let open = self.slab.get_mut(slot.0 as usize)?;
        (open.generation == slot.1).then_some(open)
    }

    /// The story of an open request.
    fn slot_of(&self, request: &Request) -> Option<Slot> {
        let open = self.slab.get(request.row as usize)?;
        (open.generation > 0).then_some((request.row, open.generation))
    }

    /// Tells a story that is complete on both sides.
    fn close(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get(slot) else { return };
        if open.ended && !open.caller_open && !open.daemon_open {
            self.tell(slot, tell);
        }
    }

    fn tell(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.generation = 0;
        if let Some(key) = open.key.take() {
            if self.requests.get_mut(key).is_some_and(|r| r.row == slot.0) {
                self.requests.end(key);
            }
        }
        self.free.push(slot.0);
        let open = &self.slab[slot.0 as usize];
        let story = &open.story;
        let start = story.start();
        let connection = match story.connection {
            ABSENT => self.daemons.get(&story.daemon_pid).copied(),
            connection => Some(connection),
        };
        let filters = &self.filters;
        let wanted = open.wanted
            && (self.window.0..self.window.1).contains(&start)
            && (filters.connections.is_empty()
                || connection.is_some_and(|c| filters.connections.contains(&c)));
        if wanted {
            tell(&self.comms, story);
        }
    }

    /// A request of which no end will be seen.
    fn give_up(&mut self, slot: Slot, tell: Tell) {
        let (losses, now) = (self.losses, self.now);
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        if open.story.fate == Fate::Unfinished {
            if open.losses == losses {
                let tid = open.story.tid;
                self.unanswered(slot, now);
                let asleep = self.tasks.get(tid).is_some_and(|task| {
                    !self.switches || matches!(task.state, State::Blocked | State::Unknown)
                });
                if asleep && self.waiting_slot(tid) == Some(slot) {
                    self.waits_for(slot);
                }
            } else {
                open.story.fate = Fate::Lost;
            }
        }
        self.tell(slot, tell);
    }

    /// A request was over at `until` without an answer.
    fn unanswered(&mut self, slot: Slot, until: u64) {
        let Some(open) = self.get(slot) else { return };
        let story = &open.story;
        let begin = story.at(Mark::Begin).unwrap_or(0);
        let told = |mark| story.at(mark).is_some();
        let next = if told(Mark::Reply) {
            Mark::End
        } else if told(Mark::CallbackEnter) {
            Mark::Reply
        } else if told(Mark::Read) {
            match self.callbacks {
                true => Mark::CallbackEnter,
                false => Mark::Reply,
            }
        } else if self.reads && !open.maybe_read && !self.may_have_read(story, begin) {
            Mark::Read
        } else {
            Mark::End
        };
        let (tid, before) = (story.daemon_tid, open.idle);
        let hands = self.hand.contains(&story.daemon_pid);
        let own = told(Mark::CallbackEnter) || (told(Mark::Read) && !hands);
        let idle = self.tasks.get(tid).map(|task| task.idle_at(until));
        let idle = idle.filter(|_| self.switches && own && next == Mark::Reply);
        if let Some(open) = self.get_mut(slot) {
            open.story.next = next;
            open.story.until = until.max(begin);
            if let Some(idle) = idle.filter(|_| open.story.blocked == ABSENT) {
                open.story.slept(idle, before);
                open.story.elsewhere = 0;
            }
        }
    }

    /// A thread of the request's daemon has read something since then of which is not known what it was.
    fn may_have_read(&self, story: &Story, begin: u64) -> bool {
        let len = story.request_len;
        let any = |task: &Task| {
            let serves = match self.daemons.get(&task.pid) {
                Some(connection) => [ABSENT, *connection].contains(&story.connection),
                None => self.servants.contains(&task.pid),
            };
            let may = |read: &Read| {
                let fits = len == ABSENT || read.len == 0 || read.len == len;
                read.exit >= begin && !read.claimed && fits
            };
            serves && task.reads.iter().any(may)
        };
        let mut near = self.tasks.near.iter().flatten();
        near.any(|task| any(task)) || self.tasks.far.values().any(|task| any(task))
    }

    // The caller's side

    fn begin(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let [unique, connection, opcode, req] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        // The daemon, which ends a request, sends out what waited in the background for its turn.
        let own = match self.daemons.get(&ev.pid) {
            Some(own) => connection == ABSENT || *own == connection,
            None => self.servants.contains(&ev.pid),
        };
        let slot = self.put(operation, Fate::Unfinished);
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        let open = &mut self.slab[slot.0 as usize];
        let story = &mut open.story;
        story.set(Mark::Begin, ev.time);
        if self.switches {
            story.idle[Mark::Begin as usize] = Some(task.idle_at(ev.time));
            story.idle[Mark::KernelEnter as usize] = Some(task.kernel_idle);
        }
        (story.pid, story.tid, story.comm) = (ev.pid, ev.tid, task.comm);
        (story.connection, story.unique, story.opcode) = (connection, unique, opcode);
        story.before = task.events.wrapping_sub(task.events_then + 1);
        if !own {
            story.syscall = task.syscall.map_or(ABSENT, |syscall| syscall.number);
            if let Some(enter) = task.kernel_enter() {
                story.set(Mark::KernelEnter, enter);
            }
        }
        task.entered = 0;
        let made = std::mem::take(&mut task.made);
        let last = task.last.filter(|_| task.syscall.is_some());
        let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty()
            || self.wants_caller(&self.slab[slot.0 as usize].story);
        self.slab[slot.0 as usize].wanted = wanted;
        let mut still = self.pass(made, last, tell);
        if !own {
            if let Some(open) = self.get_mut(slot) {
                open.caller_open = true;
            }
            if still.len() >= MOST_MADE {
                let oldest = still.remove(0);
                self.leave(oldest, ev.time, tell);
            }
            still.push(slot);
        }
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.made = still;
            task.just_made = Some(slot);
        }
        let request = Request {
            operation,
            begin: ev.time,
            pid: ev.pid,
            tid: ev.tid,
            connection,
            unique,
            opcode,
            sent: None,
            caller: wanted,
            counted: false,
            undecided: false,
            row: slot.0,
        };
        let told = told(unique, connection, req);
        self.slab[slot.0 as usize].key = Some(told.key());
        if let Some(earlier) = self.requests.begin(told, request) {
            let Some(lost) = self.slot_of(&earlier) else {
                return;
            };
            if let Some(open) = self.get_mut(lost) {
                if lost == slot {
                    open.story.fate = Fate::Unnumbered;
                } else if open.story.fate == Fate::Unfinished {
                    open.story.fate = Fate::Lost;
                }
            }
            self.tell(lost, tell);
        }
    }

    /// The caller makes another request: those that have ended are done, for the others it did not wait.
    fn pass(&mut self, mut made: Vec<Slot>, last: Option<Slot>, tell: Tell) -> Vec<Slot> {
        made.retain(|slot| {
            let Some(open) = self.get_mut(*slot) else {
                return false;
            };
            if !open.ended {
                open.background = true;
                return true;
            }
            // It may yet be the last in its system call for which the caller waited.
            if Some(*slot) == last {
                return true;
            }
            open.caller_open = false;
            self.close(*slot, tell);
            false
        });
        made
    }

    /// Nothing more will be seen of a request on the caller's side.
    fn leave(&mut self, slot: Slot, time: u64, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.caller_open = false;
        let waits = open.waited || (open.story.operation.has_caller() && !open.background);
        if !open.ended && waits && open.story.fate == Fate::Unfinished {
            open.story.fate = Fate::Interrupted;
            self.waits_for(slot);
            self.unanswered(slot, time);
        }
        self.close(slot, tell);
    }

    /// A caller waits for it: since when its time is this request's.
    fn waits_for(&mut self, slot: Slot) -> bool {
        let switches = self.switches;
        let Some(open) = self
            .slab
            .get_mut(slot.0 as usize)
            .filter(|open| open.generation == slot.1 && !open.story.waits)
        else {
            return false;
        };
        let story = &mut open.story;
        let Some(task) = self.tasks.get_mut(story.tid) else {
            return false;
        };
        story.waits = true;
        story.nth = if task.told > 0 { task.waits } else { 0 };
        let begin = story.marks[Mark::Begin as usize];
        let mut from = task.resumed;
        if task.told > 0 && task.told <= begin {
            let mark = if task.waits == 0 {
                Mark::SysEnter
            } else {
                Mark::Resumed
            };
            story.set(mark, task.told);
            story.idle[mark as usize] = switches.then_some(task.told_idle);
            from = task.told;
        }
        if from > begin {
            // It was under way while the caller waited for another one.
            story.clear(Mark::KernelEnter);
        } else if let Some(enter) = story.at(Mark::KernelEnter) {
            if enter < from {
                story.set(Mark::KernelEnter, from);
                story.idle[Mark::KernelEnter as usize] = switches.then_some(task.told_idle);
            }
        }
        true
    }

    /// A request has ended, or its end wakes the caller up: the caller was waiting for it.
    fn awaited(&mut self, slot: Slot) {
        if !self.waits_for(slot) {
            return;
        }
        let switches = self.switches;
        let story = &mut self.slab[slot.0 as usize].story;
        let Some(task) = self.tasks.get_mut(story.tid) else {
            return;
        };
        task.waits += 1;
        task.last = Some(slot);
        let end = story.marks[Mark::End as usize];
        if switches && task.switches && task.state == State::Running {
            // It never slept.
            story.set(Mark::Runs, end);
            (story.idle[Mark::Runs as usize], story.late) = (Some(task.idle_at(end)), 0);
            task.resume(end);
        } else {
            task.awaiting = Some(slot);
            // Until it is seen to run.
            task.resume(end);
        }
    }

    /// The caller runs again.
    fn runs(&mut self, tid: i32, time: u64) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let Some(slot) = task.awaiting.take() else {
            return;
        };
        task.resume(time);
        let (idle, run) = (task.idle_at(time), task.run);
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            let story = &mut open.story;
            story.set(Mark::Runs, time);
            if switches {
                story.idle[Mark::Runs as usize] = Some(idle);
                let waking = story.at(Mark::Waking).or(story.at(Mark::End));
                let ready = run.ready.max(waking.unwrap_or(time));
                story.late = match run.busy && run.runs == time {
                    true => time.saturating_sub(ready),
                    false => 0,
                };
            }
        }
    }

    fn sys_enter(&mut self, ev: &Ev, tell: Tell) {
        let number = ev.v[0];
        if self.arch.is_fake(number) {
            return;
        }
        let losses = self.losses;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        let idle = task.idle_at(ev.time);
        task.syscall = Some(Syscall {
            number,
            start: ev.time,
            losses,
            idle,
            events: task.events.wrapping_sub(1),
        });
        if !task.made.is_empty() {
            self.leave_all(ev.tid, ev.time, tell);
        }
        if let Some(reading) = self.reading.get_mut(&ev.pid) {
            reading.remove(&ev.tid);
        }
        if self.arch.is_read(number) && self.daemons.contains_key(&ev.pid) {
            self.reading.entry(ev.pid).or_default().insert(ev.tid);
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.end_call();
        (task.told, task.told_idle) = (ev.time, idle);
        task.events_then = task.events.wrapping_sub(1);
    }

    fn leave_all(&mut self, tid: i32, time: u64, tell: Tell) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let mut made = std::mem::take(&mut task.made);
        for slot in made.drain(..) {
            self.leave(slot, time, tell);
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            task.made = made; // its memory
        }
    }

    fn sys_exit(&mut self, ev: &Ev, tell: Tell) {
        let [number, ret, ..] = ev.v;
        if self.arch.is_fake(number) {
            return;
        }
        let losses = self.losses;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        let syscall = task.syscall.take();
        let syscall = syscall.filter(|call| call.number == number && call.losses == losses);
        let ring = self.arch.is_ring(number);
        let read = (ret as i64) >= i64::from(!ring) && self.arch.is_read(number);
        if read {
            if task.reads.len() == MOST_READS {
                task.reads.remove(0);
            }
            task.reads.push(Read {
                enter: syscall.map_or(0, |call| call.start),
                exit: ev.time,
                run: task.run,
                idle: task.idle_at(ev.time),
                events: task.events.wrapping_add(1),
                len: if ring { 0 } else { ret },
                claimed: false,
            });
        }
        let last = task.last;
        let made = !task.made.is_empty();
        let after = task.events.wrapping_sub(task.events_then);
        task.event(ev.time);
        let idle = self.switches.then_some(task.idle_at(ev.time));
        if let (Some(last), Some(_)) = (last, syscall) {
            if let Some(open) = self.get_mut(last) {
                open.story.set(Mark::SysExit, ev.time);
                open.story.idle[Mark::SysExit as usize] = idle;
                open.story.after = after;
            }
        }
        if made {
            self.leave_all(ev.tid, ev.time, tell);
        }
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.end_call();
        }
        if let Some(reading) = self.reading.get_mut(&ev.pid) {
            reading.remove(&ev.tid);
        }
        if read && !ring {
            self.pair(ev, ret);
        }
    }

    /// A thread of a daemon has read so many bytes: which request that was, where only one can be it. The kernel hands
    /// requests out in the order in which they are queued, each by a read of its length.
    fn pair(&mut self, ev: &Ev, len: u64) {
        let Some(connection) = self.daemons.get(&ev.pid).copied() else {
            return;
        };
        // A callback reads for itself.
        if self
            .tasks
            .get(ev.tid)
            .is_some_and(|task| !task.callbacks.is_empty())
        {
            return;
        }
        let alone = self.reading.get(&ev.pid).is_none_or(FxHashSet::is_empty);
        let Some(mut unread) = self.unread.remove(&(connection, len)) else {
            return;
        };
        unread.queue.retain(|slot| {
            let open = self.get(*slot);
            open.is_some_and(|open| !open.ended && open.story.at(Mark::Read).is_none())
        });
        unread.taken = unread.taken.min(unread.queue.len());
        match unread.queue.len() {
            0 => {}
            waiting if unread.taken == 0 && (waiting == 1 || alone) => {
                if let Some(slot) = unread.queue.pop_front() {
                    self.paired(slot, ev);
                }
            }
            // Which of them another thread may have at that time is not told.
            waiting => {
                unread.taken += 1;
                if unread.taken == waiting {
                    for slot in std::mem::take(&mut unread.queue) {
                        if let Some(open) = self.get_mut(slot) {
                            open.maybe_read = true;
                        }
                    }
                }
            }
        }
        if !unread.queue.is_empty() {
            self.unread.insert((connection, len), unread);
        }
    }

    fn paired(&mut self, slot: Slot, ev: &Ev) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let freed = task.freed;
        let Some(read) = task.reads.last_mut() else {
            return;
        };
        read.claimed = true;
        let read = *read;
        task.paired = Some(slot);
        if let Some(open) = self.get_mut(slot) {
            open.paired = Some(ev.tid);
            (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
        }
        self.was_read(slot, ev.tid, read, freed);
    }

    /// This read brought it; the thread had been free for it since `freed`.
    fn was_read(&mut self, slot: Slot, tid: i32, read: Read, freed: u64) {
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            open.story.set(Mark::Read, read.exit);
            open.story.reader = tid;
            open.story.idle[Mark::Read as usize] = switches.then_some(read.idle);
            if open.story.at(Mark::CallbackEnter).is_none() {
                (open.idle, open.events) = (read.idle, read.events);
            }
        }
        self.split_queue(slot, read.enter.max(freed), read.run, read.exit);
    }

    fn exit(&mut self, tid: i32, time: u64, tell: Tell) {
        if self.tasks.get(tid).is_none() {
            return;
        }
        self.leave_all(tid, time, tell);
        let Some(task) = self.tasks.remove(tid) else {
            return;
        };
        if let Some(reading) = self.reading.get_mut(&task.pid) {
            reading.remove(&tid);
        }
        self.drop_callbacks(task.callbacks, time, tell);
    }

    // The kernel's functions

    fn kernel_entry(&mut self, ev: &Ev, kind: Kind) {
        // Where the request was queued it may have had no number yet.
        if ev.v[3] != ABSENT && self.requests.any_unnumbered() {
            self.learn(ev, ev.v[0], ABSENT, ev.v[3]);
        }
        match kind.place {
            Place::Wait => self.wait(ev.tid),
            place => self.dev(ev, place),
        }
        if !kind.makes {
            return;
        }
        let task = self.tasks.of(ev.tid);
        task.event(ev.time);
        let idle = task.idle_at(ev.time);
        if !kind.returns {
            (task.entered, task.kernel_idle) = (ev.time, idle);
            return;
        }
        match &mut task.probe {
            None => {
                task.probe = Some((kind.function, 1, ev.time));
                task.kernel_idle = idle;
            }
            Some((function, open, _)) if *function == kind.function => *open += 1,
            Some(_) => {}
        }
    }

    fn kernel_return(&mut self, ev: &Ev, kind: Kind) {
        if kind.place == Place::Wait {
            self.runs(ev.tid, ev.time);
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let Some((function, open, _)) = &mut task.probe else {
            return;
        };
        if *function != kind.function {
            return;
        }
        *open -= 1;
        if *open == 0 {
            task.probe = None;
            self.kernel_exit(ev.tid, ev.time);
        }
    }

    fn graph_entry(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        match self.place_at(address) {
            Place::Wait => self.wait(ev.tid),
            Place::Other => {}
            place => self.dev(ev, place),
        }
        if ev.tid == 0 {
            return;
        }
        let task = self.tasks.of(ev.tid);
        if task.graph.is_none_or(|(outer, _)| depth <= outer) {
            task.graph = Some((depth, ev.time));
            task.kernel_idle = task.idle_at(ev.time);
        }
    }

    fn graph_exit(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        match self.place_at(address) {
            Place::Wait => self.runs(ev.tid, ev.time),
            Place::Fetch => {
                if let Some(task) = self.tasks.get_mut(ev.tid) {
                    // Where system calls are recorded the thread is in one, and that tells better.
                    if task.syscall.is_none() {
                        if task.reads.len() == MOST_READS {
                            task.reads.remove(0);
                        }
                        task.reads.push(Read {
                            enter: task.fetches,
                            exit: ev.time,
                            run: task.run,
                            idle: task.idle_at(ev.time),
                            events: task.events,
                            len: 0,
                            claimed: false,
                        });
                    }
                }
            }
            _ => {}
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        if task.graph.is_some_and(|(outer, _)| depth <= outer) {
            task.graph = None;
            self.kernel_exit(ev.tid, ev.time);
        }
    }

    fn place_at(&self, address: u64) -> Place {
        // function_graph tells the first place that can be traced, which is some bytes into the function.
        let at = self
            .places
            .partition_point(|(start, _)| *start <= address)
            .checked_sub(1);
        match at.map(|at| self.places[at]) {
            Some((start, place)) if address - start < FARTHEST => place,
            _ => Place::Other,
        }
    }

    fn kernel_exit(&mut self, tid: i32, time: u64) {
        let Some(slot) = self.tasks.get(tid).and_then(|task| task.last) else {
            return;
        };
        if let Some(open) = self.get_mut(slot) {
            open.story.set_first(Mark::KernelExit, time);
        }
    }

    /// The caller goes to wait for the request that it made last.
    fn wait(&mut self, tid: i32) {
        let slot = self.tasks.get(tid).and_then(|task| task.made.last());
        if let Some(slot) = slot.copied() {
            if let Some(open) = self.get_mut(slot) {
                open.waited = true;
                if open.ended {
                    self.awaited(slot);
                }
            }
        }
    }

    fn dev(&mut self, ev: &Ev, place: Place) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        match place {
            Place::Write => task.writes = Some((ev.time, task.idle_at(ev.time), task.events)),
            Place::Fetch => task.fetches = ev.time,
            _ => {}
        }
    }

    // The daemon's side

    fn learn(&mut self, ev: &Ev, unique: u64, connection: u64, req: u64) -> Option<Key> {
        let told = told(unique, connection, req);
        let daemon = self.daemons.get(&ev.pid).copied();
        let key = self.requests.locate(told, daemon)?;
        let request = *self.requests.learn(key, told, daemon)?;
        let slot = self.slot_of(&request)?;
        let story = &mut self.get_mut(slot)?.story;
        story.learn(request.unique, request.connection);
        Some(key)
    }

    fn sent(&mut self, ev: &Ev) {
        let [unique, connection, write, req] = ev.v;
        if write == 0 {
            return;
        }
        let Some(slot) = self
            .learn(ev, unique, connection, req)
            .and_then(|key| self.requests.get_mut(key).copied())
            .and_then(|request| self.slot_of(&request))
        else {
            return;
        };
        self.servants.insert(ev.pid);
        let task = self.tasks.of(ev.tid);
        task.event(ev.time);
        (task.pid, task.sent) = (ev.pid, Some(slot));
        let (run, freed, fetches) = (task.run, task.freed, task.fetches);
        let (idle, events) = (task.idle_at(ev.time), task.events);
        let enter = task.syscall.map_or(fetches, |call| call.start).max(freed);
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            open.story.set(Mark::Sent, ev.time);
            open.story.set(Mark::Read, ev.time);
            open.story.idle[Mark::Read as usize] = switches.then_some(idle);
            (open.idle, open.events) = (idle, events);
            (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
            open.story.reader = ev.tid;
        }
        self.split_queue(slot, enter, run, ev.time);
    }

    /// Of the time in the queue: until a thread was free, and until it ran. One that had replied and then lacked a CPU
    /// would have been free so much earlier.
    fn split_queue(&mut self, slot: Slot, enter: u64, run: Run, read: u64) {
        if !self.switches {
            return;
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        let Some(begin) = story.at(Mark::Begin) else {
            return;
        };
        let within = |time: u64| time.clamp(begin, read.max(begin));
        let free = within(enter);
        let ready = within(enter.max(run.runs));
        if story.at(Mark::DaemonWaking).is_some() {
            // Woken up for it; then another task may have had the CPU.
            let lacked = match run.busy && run.runs == ready {
                true => ready - within(run.ready),
                false => 0,
            };
            (story.no_thread, story.no_cpu, story.asleep) = (0, lacked, ready - begin - lacked);
        } else {
            let late = if run.runs <= free { run.late } else { 0 };
            let lacked = run.runs.min(free).saturating_sub(within(run.ready));
            let no_cpu = lacked.max(late.min(free - begin));
            (story.no_thread, story.no_cpu) = (free - begin - no_cpu, no_cpu);
            story.asleep = ready - free;
            if run.busy && run.runs == ready {
                let lacked = ready.saturating_sub(within(run.ready).max(free));
                story.no_cpu += lacked;
                story.asleep -= lacked;
            }
        }
        story.set(Mark::DaemonRuns, ready);
    }

    /// The system call of this thread that brought the request: the last one, or the first one since it was sent. One
    /// of another length was of something else.
    fn take_read(&mut self, slot: Slot, tid: i32, last: bool) {
        let Some(open) = self.get(slot) else { return };
        let story = &open.story;
        let since = story
            .at(Mark::Sent)
            .filter(|_| story.daemon_tid == tid)
            .or(story.at(Mark::Begin))
            .unwrap_or(0);
        let len = story.request_len;
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let fits = |read: &Read| len == ABSENT || read.len == 0 || read.len == len;
        let mut reads = task
            .reads
            .iter_mut()
            .filter(|read| read.exit >= since && fits(read));
        let read = if last {
            reads.next_back()
        } else {
            reads.next()
        };
        let Some(read) = read else { return };
        read.claimed = true;
        let (read, freed) = (*read, task.freed);
        self.was_read(slot, tid, read, freed);
    }

    /// The open request that the daemon has in hand.
    fn request_of(&self, ev: &Ev, operation: Operation) -> Option<Slot> {
        let unique = ev.v[0];
        if !Requests::is_numbered(unique) {
            return None;
        }
        let request = match self.daemons.get(&ev.pid) {
            Some(connection) => self.requests.find((*connection, unique))?.1,
            None => {
                let unowned = |connection| !self.daemons.values().any(|own| *own == connection);
                self.requests.guess(unique, operation, unowned)?.1
            }
        };
        self.slot_of(request)
    }

    fn callback(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let unique = ev.v[0];
        let mut found = self.request_of(ev, kind.operation);
        let known = self.daemons.is_empty() || self.daemons.contains_key(&ev.pid);
        self.servants.insert(ev.pid);
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        // A callback that calls another one (a stub), of a request that is none.
        let around = task.callbacks.last().and_then(|callback| callback.slot);
        let around =
            around.filter(|slot| self.get(*slot).is_some_and(|o| o.story.unique == unique));
        if found.is_none() && around.is_some() {
            found = around;
        } else if found.is_none() && known && kind.operation != Operation::UNKNOWN {
            found = Some(self.callback_alone(ev, kind));
        }
        let mut idle = Idle::default();
        let mut events = 0;
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.event(ev.time);
            (idle, events) = (task.idle_at(ev.time), task.events);
        }
        let mut first = false;
        let switches = self.switches;
        if let Some(open) = found.and_then(|slot| self.get_mut(slot)) {
            if open.story.at(Mark::CallbackEnter).is_none() {
                first = true;
                open.story.set(Mark::CallbackEnter, ev.time);
                (open.idle, open.events) = (idle, events);
                if open.story.reader != ev.tid {
                    // What another thread did then is not this one's.
                    open.story.idle[Mark::Read as usize] = None;
                }
                open.story.idle[Mark::CallbackEnter as usize] = switches.then_some(idle);
                open.daemon_open = kind.returns;
            }
        }
        if let Some(slot) = found.filter(|_| first) {
            self.take_read(slot, ev.tid, true);
            if let Some(open) = self.get_mut(slot) {
                (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
                (open.story.nodeid, open.story.size) = (ev.v[1], ev.v[2]);
                if open.story.opcode == ABSENT {
                    open.story.operation = kind.operation;
                }
            }
        }
        if !kind.returns {
            if let Some(slot) = found.filter(|_| first) {
                self.close(slot, tell);
            }
            return;
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.callbacks.push(Callback {
            function: kind.function,
            slot: found,
        });
        if task.callbacks.len() > MOST_CALLBACKS {
            let oldest = task.callbacks.remove(0);
            self.drop_callbacks(vec![oldest], ev.time, tell);
        }
    }

    /// A callback without a request: a forget, or one whose begin is not in the recording.
    fn callback_alone(&mut self, ev: &Ev, kind: Kind) -> Slot {
        let unique = ev.v[0];
        let fate = if kind.operation.has_reply() {
            self.without_begin()
        } else {
            Fate::NoReply
        };
        let connection = self.daemons.get(&ev.pid).copied().unwrap_or(ABSENT);
        // Whose request it was is not known.
        let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty();
        let slot = self.put(kind.operation, fate);
        let open = &mut self.slab[slot.0 as usize];
        (open.ended, open.wanted) = (true, wanted);
        (open.story.connection, open.story.unique) = (connection, unique);
        if fate != Fate::NoReply && Requests::is_numbered(unique) {
            // So that its end finds it.
            let request = Request {
                operation: kind.operation,
                begin: ev.time,
                pid: -1,
                tid: -1,
                connection,
                unique,
                opcode: ABSENT,
                sent: None,
                caller: wanted,
                counted: false,
                undecided: false,
                row: slot.0,
            };
            let told = told(unique, connection, ABSENT);
            self.slab[slot.0 as usize].key = Some(told.key());
            if let Some(earlier) = self.requests.begin(told, request) {
                // Of another connection that is not told, either.
                if let Some(open) = self.slot_of(&earlier).and_then(|slot| self.get_mut(slot)) {
                    open.key = None;
                }
            }
        }
        slot
    }

    fn without_begin(&self) -> Fate {
        if self.losses == 0 {
            Fate::Before
        } else {
            Fate::Lost
        }
    }

    fn callback_return(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let Some(at) = task
            .callbacks
            .iter()
            .rposition(|callback| callback.function == kind.function)
        else {
            return;
        };
        // Whatever was entered after it cannot return any more.
        let lost: Vec<Callback> = match at + 1 < task.callbacks.len() {
            true => task.callbacks.drain(at + 1..).collect(),
            false => Vec::new(),
        };
        let callback = task.callbacks.pop();
        task.freed = ev.time;
        task.event(ev.time);
        let idle = task.idle_at(ev.time);
        let outer = task.callbacks.last().and_then(|outer| outer.slot);
        if !lost.is_empty() {
            let lost = lost.into_iter().filter(|lost| lost.slot != outer);
            self.drop_callbacks(lost.collect(), ev.time, tell);
        }
        let Some(slot) = callback.and_then(|callback| callback.slot) else {
            return;
        };
        if Some(slot) == outer {
            return;
        }
        let switches = self.switches;
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        story.set(Mark::CallbackReturn, ev.time);
        if story.at(Mark::Reply).is_none() && story.at(Mark::End).is_none() && switches {
            // Another thread will answer, if any.
            story.slept(idle, open.idle);
        }
        self.done_on_the_daemons_side(slot, tell);
    }

    fn done_on_the_daemons_side(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.daemon_open = false;
        self.close(slot, tell);
    }

    fn drop_callbacks(&mut self, callbacks: Vec<Callback>, _time: u64, tell: Tell) {
        for slot in callbacks.into_iter().filter_map(|callback| callback.slot) {
            self.done_on_the_daemons_side(slot, tell);
        }
    }

    /// The daemon answers through a function of libfuse.
    fn reply(&mut self, ev: &Ev) {
        self.servants.insert(ev.pid);
        let Some(slot) = self.request_of(ev, Operation::UNKNOWN) else {
            return;
        };
        let Some(open) = self.get(slot) else { return };
        if open.story.at(Mark::CallbackEnter).is_some() || open.story.at(Mark::Reply).is_some() {
            return;
        }
        self.take_read(slot, ev.tid, false);
        if let Some(open) = self.get_mut(slot) {
            if open.story.daemon_tid < 0 {
                (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
            }
        }
    }

    fn end(&mut self, ev: &Ev, tell: Tell) {
        let [unique, connection, error, req] = ev.v;
        let mut found = self.requests.end(told(unique, connection, req).key());
        if found.is_none() {
            let key = self.learn(ev, unique, connection, req);
            found = key.and_then(|key| self.requests.end(key));
        }
        if let Some(earlier) = found.filter(|request| {
            Requests::is_numbered(unique)
                && Requests::is_numbered(request.unique)
                && request.unique != unique
        }) {
            // Its end and the begin of the one that ends here were not seen.
            if let Some(slot) = self.slot_of(&earlier) {
                if let Some(open) = self.get_mut(slot) {
                    open.story.fate = Fate::Lost;
                }
                self.tell(slot, tell);
            }
            found = None;
        }
        let slot = match found.and_then(|request| self.slot_of(&request)) {
            Some(slot) => {
                if let Some(open) = self.get_mut(slot) {
                    open.story.learn(unique, connection);
                }
                slot
            }
            None => {
                let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty();
                let slot = self.put(Operation::UNKNOWN, self.without_begin());
                let open = &mut self.slab[slot.0 as usize];
                open.wanted = wanted;
                (open.story.connection, open.story.unique) = (connection, unique);
                slot
            }
        };
        self.ended(ev, slot, or_zero(error) as i32);
        let Some(open) = self.get(slot) else { return };
        if open.caller_open {
            self.ended_for_the_caller(slot);
        }
        self.close(slot, tell);
    }

    fn ended(&mut self, ev: &Ev, slot: Slot, error: i32) {
        let switches = self.switches;
        let daemon = self.servants.contains(&ev.pid);
        let Some(open) = self.get(slot) else { return };
        let callback = open.story.at(Mark::CallbackEnter);
        let aborted = error == -ECONNABORTED;
        if daemon && !aborted && callback.is_none() && open.story.at(Mark::Begin).is_some() {
            // There is none, or the daemon's library answered by itself.
            match open.paired {
                Some(tid) if tid != ev.tid => {
                    self.hand.insert(ev.pid);
                    self.slab[slot.0 as usize].story.handed = true;
                }
                Some(_) => {}
                None if open.story.at(Mark::Read).is_some() && open.story.daemon_tid != ev.tid => {
                    self.slab[slot.0 as usize].story.handed = true;
                }
                // Where threads hand on what they read, what this one read may have been another request.
                None if self.hand.contains(&ev.pid) => {}
                None => self.take_read(slot, ev.tid, false),
            }
        }
        self.forget_unread(slot);
        let Some(open) = self.get(slot) else { return };
        let own = open.story.at(Mark::Read).is_some()
            && (open.story.daemon_tid == ev.tid || open.story.daemon_tid < 0);
        let task = self.tasks.of(ev.tid);
        task.ended = Some(slot);
        // What the thread does last before the end is to enter the system call that answers.
        let ring = task
            .syscall
            .is_some_and(|call| daemon && self.arch.is_ring(call.number));
        let write = task
            .syscall
            .map(|call| (call.start, call.idle, call.events));
        let write = write.or(task.writes).filter(|_| daemon && !aborted);
        let idle = task.idle_at(ev.time);
        let at_end = idle;
        let events = task.events;
        task.event(ev.time);
        task.writes = None;
        task.sent = None;
        if daemon {
            task.reads.clear();
            task.freed = ev.time;
            task.run.late = 0;
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        (open.ended, open.key) = (true, None);
        story.set(Mark::End, ev.time);
        story.error = error;
        story.ring = ring;
        if story.fate == Fate::Unfinished || story.fate == Fate::Interrupted {
            story.fate = match aborted {
                true => Fate::Aborted,
                false => Fate::Matched,
            };
        }
        if story.at(Mark::Begin).is_some() {
            story.until = ev.time;
        }
        let since = [Mark::Begin, Mark::Sent, Mark::CallbackEnter]
            .into_iter()
            .filter_map(|mark| story.at(mark))
            .max();
        let (replied, idle, events) = match write {
            Some((start, idle, events)) if start >= since.unwrap_or(0) => {
                story.set(Mark::Reply, start);
                if switches {
                    story.idle[Mark::Reply as usize] = Some(idle);
                    story.idle[Mark::End as usize] = Some(at_end);
                }
                (start, idle, events)
            }
            _ => (ev.time, idle, events),
        };
        if story.daemon_tid == ev.tid && (callback.is_some() || own) {
            story.inside = events.wrapping_sub(open.events);
        }
        if daemon && !aborted {
            story.replier = ev.tid;
        }
        if daemon && story.daemon_tid < 0 {
            (story.daemon_pid, story.daemon_tid) = (ev.pid, ev.tid);
        }
        if aborted {
            let until = ev.time;
            self.unanswered(slot, until);
            return;
        }
        if !switches || (callback.is_none() && !(own && story.daemon_tid == ev.tid)) {
            return;
        }
        match story.at(Mark::CallbackReturn) {
            Some(left) if story.blocked != ABSENT && story.daemon_tid != ev.tid => {
                story.elsewhere = replied.saturating_sub(left);
            }
            _ if story.daemon_tid == ev.tid => {
                story.slept(idle, open.idle);
                story.elsewhere = 0;
            }
            _ => {
                // Answered by another thread while the callback runs on.
                let (tid, before) = (story.daemon_tid, open.idle);
                let Some(idle) = self.tasks.get(tid).map(|task| task.idle_at(replied)) else {
                    return;
                };
                if let Some(open) = self.get_mut(slot) {
                    open.story.slept(idle, before);
                    open.story.elsewhere = 0;
                }
            }
        }
    }

    fn ended_for_the_caller(&mut self, slot: Slot) {
        let switches = self.switches;
        let Some(open) = self.get(slot) else { return };
        let operation = open.story.operation;
        let waits = open.waited
            || (!open.background
                && (operation.has_caller() || (!switches && operation.may_wait())));
        if waits {
            self.awaited(slot);
        } else if !operation.may_wait() {
            let tid = open.story.tid;
            if let Some(task) = self.tasks.get_mut(tid) {
                task.made.retain(|made| *made != slot);
            }
            if let Some(open) = self.get_mut(slot) {
                open.caller_open = false;
            }
        }
    }

    fn length(&mut self, ev: &Ev) {
        let [unique, connection, len, req] = ev.v;
        let ended = self.tasks.get(ev.tid).and_then(|task| task.ended);
        if let Some(open) = ended.and_then(|slot| self.get_mut(slot)) {
            if open.story.at(Mark::End) == Some(ev.time) {
                open.story.reply_len = len;
                return;
            }
        }
        let daemon = self.daemons.get(&ev.pid).copied();
        let key = self.requests.locate(told(unique, connection, req), daemon);
        let request = key.and_then(|key| self.requests.get_mut(key).copied());
        if let Some(slot) = request.and_then(|request| self.slot_of(&request)) {
            if let Some(open) = self.get_mut(slot) {
                open.story.request_len = len;
            }
            let known = self.unread.contains_key(&(connection, len));
            if known || self.unread.len() < MOST_LENGTHS {
                let unread = self.unread.entry((connection, len)).or_default();
                if unread.queue.len() < MOST_UNREAD {
                    unread.queue.push_back(slot);
                }
            }
        }
    }

    /// It has ended: no read that comes brings it.
    fn forget_unread(&mut self, slot: Slot) {
        let Some(open) = self.get(slot) else { return };
        let key = (open.story.connection, open.story.request_len);
        let Some(unread) = self.unread.get_mut(&key) else {
            return;
        };
        let Some(at) = unread.queue.iter().position(|one| *one == slot) else {
            return;
        };
        unread.queue.remove(at);
        // It had been read, if any of them had.
        unread.taken = unread.taken.saturating_sub(1);
        if unread.queue.is_empty() {
            self.unread.remove(&key);
        }
    }

    // On the CPUs

    fn switch_out(&mut self, tid: i32, asleep: bool, time: u64) {
        if tid <= 0 {
            return;
        }
        let task = self.tasks.of(tid);
        task.switches = true;
        task.just_made = None;
        let state = if asleep {
            State::Blocked
        } else {
            State::Runnable
        };
        task.enter_state(state, time);
    }

    /// `before`: who had the CPU; 0: nobody, or not told.
    fn switch_in(&mut self, tid: i32, time: u64, before: i32) {
        if tid <= 0 {
            return;
        }
        let task = self.tasks.of(tid);
        if task.state == State::Running {
            return;
        }
        let busy = before > 0 && before != task.waker;
        task.run(time, busy);
        let called = task.called.take();
        if task.awaiting.is_some() {
            self.runs(tid, time);
        }
        if let Some(open) = called.and_then(|slot| self.get_mut(slot)) {
            open.story.set_first(Mark::DaemonRuns, time);
        }
    }

    fn waking(&mut self, ev: &Ev) {
        let woken = ev.v[0] as i32;
        let task = self.tasks.of(woken);
        task.waker = ev.tid;
        let servant = task.pid <= 0 || self.servants.contains(&task.pid);
        if matches!(task.state, State::Blocked | State::Unknown) {
            task.enter_state(State::Runnable, ev.time);
        }
        let Some(waker) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        waker.runs(ev.time);
        let (ended, made) = (waker.ended, waker.just_made);
        let passed = ev.time.saturating_sub(waker.seen);
        if let Some(open) = ended.and_then(|slot| self.get_mut(slot)) {
            if open.story.tid == woken && open.caller_open {
                let next = open
                    .story
                    .at(Mark::End)
                    .is_some_and(|end| ev.time - end == passed);
                open.story.set_first(Mark::Waking, ev.time);
                if next && passed > 0 {
                    self.least = self.least.min(passed);
                }
                if let Some(slot) = ended {
                    self.awaited(slot);
                }
                return;
            }
        }
        let Some(slot) = made.filter(|_| servant) else {
            return;
        };
        if let Some(open) = self.get_mut(slot) {
            if open.story.at(Mark::DaemonWaking).is_none() {
                open.story.set(Mark::DaemonWaking, ev.time);
                if let Some(task) = self.tasks.get_mut(woken) {
                    task.called = Some(slot);
                }
            }
        }
    }

    // The end

    fn wants_caller(&self, story: &Story) -> bool {
        let filters = &self.filters;
        (filters.pids.is_empty() || filters.pids.contains(&story.pid))
            && (filters.comms.is_empty()
                || filters.comms.contains(&self.comms[story.comm as usize]))
    }

    /// The recording's last event: until then counts what is open.
    pub fn end_at(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// Tells the rest. Comes back: the names of threads.
    pub fn finish(self, tell: &mut dyn FnMut(&Story)) -> Vec<String> {
        self.finish_with(&mut |_, story| tell(story))
    }

    fn finish_with(mut self, tell: Tell) -> Vec<String> {
        self.rest_with(tell);
        self.comms
    }

    /// Tells the rest: no event comes any more.
    pub fn rest(&mut self, tell: &mut dyn FnMut(&Story)) {
        self.rest_with(&mut |_, story| tell(story));
    }

    fn rest_with(&mut self, tell: Tell) {
        for place in 0..self.slab.len() {
            match self.slab[place].generation {
                0 => {} // free
                generation => self.give_up((place as u32, generation), tell),
            }
        }
    }
}

type Tell<'a> = &'a mut dyn FnMut(&[String], &Story);

impl Task {
    fn resume(&mut self, time: u64) {
        self.events_then = self.events;
        self.resumed = time;
        if self.syscall.is_some() {
            self.told = time;
            self.told_idle = self.idle_at(time);
        }
    }

    /// Between two system calls nothing is known.
    fn end_call(&mut self) {
        self.told = 0;
        self.waits = 0;
        self.last = None;
        self.awaiting = None;
        self.just_made = None;
        self.ended = None;
        self.graph = None;
        self.probe = None;
        self.entered = 0;
    }
}
