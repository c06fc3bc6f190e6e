//! Where the time goes that callers wait: each ns belongs to one cause.
//!
//! A request's time is cut into its stages. In each stage the thread that the request waits for was on a CPU, was ready
//! without one, or slept: in a system call, for a lock, or for another thread, whose own sleep is then the cause.
//! Requests are also counted by what would make them needless (asked again, no such file, small and in order).

mod asked;
mod flights;
mod tables;
mod waits;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answers::outcomes::{Gone, Results};
use crate::cost::Cost;
use crate::events::{Chain, Ev, Role, Side, ABSENT};
use crate::operations::{Arch, Operation};
use crate::programs::spaces::Spaces;
use crate::programs::stacks::{Frames, Origin};
use crate::reader::Reader;
use crate::requests::named::{Known, Listener, Place};
use crate::requests::names::{Names, Path};
use crate::requests::stitch::{asleep, Cut, Fate, Mark, MountCall, Piece, Story, FATES, REFUSED};

use asked::Sizes;
pub(crate) use asked::{changes, size_of, Asked};
pub use asked::{Again, Class, Transfers, CLASSES, TIMEOUTS};
use flights::Flights;
pub use flights::InFlight;
pub use tables::{Count, Table};
use waits::Threads;
pub use waits::{How, HOWS};

/// Cause of a part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// The caller's own work in the kernel; its sleep there.
    Caller,
    CallerBlocked,
    /// The caller was ready, and had no CPU. `Cause::pid`: process that had it last; 0: unknown.
    CallerCpu,
    /// No thread of the daemon was free.
    NoThread,
    /// The daemon's thread was ready, and had no CPU; `Cause::pid` as above.
    DaemonCpu,
    /// Copies, wake-ups of idle threads, dispatch and reply.
    Passing,
    /// The daemon's thread was on a CPU; or was for at least `Why::long`.
    OnCpu,
    Computes,
    /// The daemon's thread slept.
    Slept,
    /// A process had read the request and did not answer it, until it was sent a second time. `Cause::pid`: that
    /// process; 0: unknown.
    Resent,
    /// The daemon had a SETLKW, which waits until others have released the file's lock.
    FileLocks,
    /// The request was in vain: its caller got a signal (`Cause::signal`), and the daemon answered EINTR.
    Interrupted,
    /// The caller waited outside of requests: `Cause::outside`.
    Outside,
    /// It is unknown which thread worked on it, or since when.
    Unknown,
}

pub const WHATS: [(What, &str); 14] = [
    (What::Caller, "caller"),
    (What::CallerBlocked, "caller_blocked"),
    (What::CallerCpu, "caller_cpu"),
    (What::NoThread, "no_thread"),
    (What::DaemonCpu, "daemon_cpu"),
    (What::Passing, "passing"),
    (What::OnCpu, "on_cpu"),
    (What::Computes, "computes"),
    (What::Slept, "slept"),
    (What::Resent, "resent"),
    (What::FileLocks, "file_locks"),
    (What::Interrupted, "interrupted"),
    (What::Outside, "outside"),
    (What::Unknown, "unknown"),
];

/// Numbers are ABSENT, pid is 0, where they do not apply or are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    pub what: What,
    pub connection: u64,
    /// Purpose of a sleep, at the end of the chain of threads that waited for each other.
    pub how: How,
    pub syscall: u64,
    /// Descriptor that the system call waited on.
    pub fd: u64,
    /// Peer to which the thread had connected last: port, address.
    pub peer: (u64, u64, u64),
    /// Address of the lock through which it waited.
    pub lock: u64,
    /// The sleep ended by a timeout of the system call.
    pub timed_out: bool,
    /// The last thread of the chain is another one than the request's.
    pub helper: bool,
    pub pid: i32,
    /// It is the cause of requests for which no caller waited. Callers may have waited for what they brought.
    pub background: bool,
    /// Index in `OUTSIDE`.
    pub outside: u8,
    /// Number of a signal; 0: none.
    pub signal: u32,
}

impl Cause {
    fn new(what: What, connection: u64) -> Cause {
        Cause {
            what,
            connection,
            how: How::Other,
            syscall: ABSENT,
            fd: ABSENT,
            peer: (ABSENT, ABSENT, ABSENT),
            lock: ABSENT,
            timed_out: false,
            helper: false,
            pid: 0,
            background: false,
            outside: 0,
            signal: 0,
        }
    }

    /// Return what all causes of one finding have in common, as far as it is known here.
    fn kind(&self) -> (What, How, u64, u64) {
        let how = match self.how {
            How::Poll | How::Stream | How::Process => How::Network,
            how => how,
        };
        let several = matches!(how, How::Network | How::Disk | How::Page | How::OnCpu);
        let lumped = several || how.is_halt() || self.lock != ABSENT;
        let how = if self.lock == ABSENT { how } else { How::Lock };
        let syscall = if lumped { ABSENT } else { self.syscall };
        (self.what, how, syscall, self.lock)
    }
}

/// Time and requests of a cause.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub ns: u64,
    pub requests: u64,
    /// Stacks of the waiting thread, and of the last thread of the chain, with their ns.
    own: Stacks,
    last: Stacks,
}

/// Few different stacks with their process and ns; further ones are left out.
#[derive(Clone, Debug, Default)]
struct Stacks(Vec<(u64, i32, u64)>);

const MOST_STACKS: usize = 32;

impl Stacks {
    fn add(&mut self, stack: u64, pid: i32, ns: u64) {
        if stack == ABSENT {
            return;
        }
        if let Some((.., sum)) = self.0.iter_mut().find(|(known, ..)| *known == stack) {
            *sum += ns;
        } else if self.0.len() < MOST_STACKS {
            self.0.push((stack, pid, ns));
        }
    }

    /// Return the stacks, most ns first.
    fn sorted(mut self) -> Vec<(u64, i32, u64)> {
        self.0.sort_by_key(|(.., ns)| std::cmp::Reverse(*ns));
        self.0
    }
}

/// Frame of a stack: function, file, whether it is the kernel's.
pub type Frame = (String, String, bool);

/// A cause, with what is known of it.
#[derive(Debug)]
pub struct Found {
    pub cause: Cause,
    pub ns: u64,
    pub requests: u64,
    /// Stacks of the waiting thread with their ns, most first; the most frequent of the last thread of the chain,
    /// empty if unknown. Each has its outermost frame first.
    pub own: Vec<(Vec<Frame>, u64)>,
    pub last: Vec<Frame>,
    /// Time by operation, in ns.
    pub operations: Vec<(Operation, u64)>,
    /// Time by operation and file, and by calling process, most first.
    pub places: Vec<(Operation, u32, Count)>,
    pub callers: Vec<(i32, Count)>,
}

/// Sums of an operation's requests that callers waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    pub requests: u64,
    pub ns: u64,
    pub failed: u64,
}

/// Number of kinds in `OUTSIDE` in which the caller waits for something.
const WAITS: usize = 8;

/// Maximum number of causes, and of rows of each table; the rest has the row of its kind without details.
const MOST_CAUSES: usize = 1 << 12;
const MOST_ROWS: usize = 1 << 17;
/// Maximum number of different files, and of processes.
const MOST_NODES: usize = 1 << 17;
/// Maximum number of rows that are handed out of one table.
const MOST_SHOWN: usize = 4096;

/// Bounds of stages (stitch/cut.rs): the request is begun, read, its callback is entered, replied to, ended; the caller
/// runs.
const BEGIN: u8 = 2;
const READ: u8 = 3;
const REPLY: u8 = 5;
const END: u8 = 6;
const RUNS: u8 = 7;

const EINTR: i32 = 4;
const EIO: u32 = 5;

/// Collector of the causes.
pub struct Why<'a> {
    pub total: u64,
    pub requests: u64,
    /// Estimated cost of recording in `total`.
    pub recording: u64,
    pub operations: FxHashMap<Operation, Total>,
    pub asynchronous: FxHashMap<Operation, Total>,
    /// By operation and error, and whether nobody waited for the requests.
    pub errors: FxHashMap<(Operation, i32, bool), Total>,
    /// System calls that failed with EIO although their last request was answered without an error.
    pub refused: FxHashMap<(Operation, u64), u64>,
    pub gone: Gone,
    /// By fate; in place of it `REFUSED`, or "dropped" where the daemon read a request and left it; "daemon_ended" or
    /// "timeout" (the kernel's, for requests) where that aborted it.
    pub fates: FxHashMap<&'static str, Total>,
    pub calls: FxHashMap<(Operation, u64), Total>,
    /// Requests by process; and by process, operation and file.
    pub processes: Table<i32>,
    pub of_process: Table<(i32, Operation, u32)>,
    /// Needless requests: their time beside what waited for a resource, by process and by file.
    pub classes: Table<(Class, Operation, i32)>,
    pub class_places: Table<(Class, Operation, u32)>,
    /// Lookups and getattrs of a directory's files by the thread that listed the directory.
    pub listed: Total,
    /// Lists of directories.
    pub lists: u64,
    /// Threads that served, and callers that waited for one, by connection.
    pub threads: FxHashSet<(u64, i32)>,
    pub waiters: FxHashSet<(u64, i32)>,
    /// Names of processes, each with its lead in ns over other names (`name`).
    pub comms: FxHashMap<i32, (String, u64)>,
    /// Files by number, with their path and connection.
    pub nodes: Vec<(u64, Option<Path>)>,
    pub found: Vec<Found>,
    pub asked: Vec<Again>,
    /// Reads in the background that were in flight at once, by connection.
    pub background: Vec<InFlight>,
    pub sizes: Vec<Transfers>,

    results: Results,
    cost: Cost,
    long: u64,
    arch: Arch,
    numbers: FxHashMap<Place, u32>,
    /// Inode and daemon of files whose path is still incomplete.
    unnamed: FxHashMap<u32, (crate::requests::names::Daemon, u64)>,
    /// Sums by cause. Other causes than sleeps have a short key, sleeps are numbered already.
    causes: FxHashMap<Cause, u32>,
    plain: FxHashMap<(What, How, u64, i32), u32>,
    sleeps: FxHashMap<(u32, u64, How), u32>,
    /// Purposes by stack, by what the system call tells, and whether there is none.
    purposes: FxHashMap<(u64, How, bool), How>,
    sums: Vec<(Cause, Sum)>,
    cells: Table<(u32, Operation, u32)>,
    cause_callers: Table<(u32, i32)>,
    lister: FxHashSet<(i32, u32)>,
    again: Asked,
    transfers: Sizes,
    flights: Flights,
    tracked: Threads,
    frames: Frames<'a>,
    spaces: Spaces,
    build_ids: FxHashMap<String, Vec<u8>>,
    /// Parts of the request at hand, and the files of a part.
    parts: Vec<(u32, u64)>,
}

impl<'a> Why<'a> {
    /// `daemons`: processes that serve. `cost`: as measured while recording. `long`: ns on a CPU from which on a
    /// request's work in the daemon is computing.
    pub fn new(
        reader: &'a Reader,
        daemons: impl Iterator<Item = i32>,
        gone: Gone,
        cost: Cost,
        long: u64,
    ) -> Why<'a> {
        let arch = Arch::new(reader.arch().as_deref());
        Why {
            total: 0,
            requests: 0,
            recording: 0,
            operations: FxHashMap::default(),
            asynchronous: FxHashMap::default(),
            errors: FxHashMap::default(),
            refused: FxHashMap::default(),
            gone,
            results: Results::default(),
            fates: FxHashMap::default(),
            calls: FxHashMap::default(),
            processes: Table::new(MOST_ROWS),
            of_process: Table::new(MOST_ROWS),
            classes: Table::new(MOST_ROWS),
            class_places: Table::new(MOST_ROWS),
            listed: Total::default(),
            lists: 0,
            threads: FxHashSet::default(),
            waiters: FxHashSet::default(),
            comms: FxHashMap::default(),
            nodes: Vec::new(),
            found: Vec::new(),
            asked: Vec::new(),
            background: Vec::new(),
            sizes: Vec::new(),
            cost,
            long,
            arch,
            numbers: FxHashMap::default(),
            unnamed: FxHashMap::default(),
            causes: FxHashMap::default(),
            plain: FxHashMap::default(),
            sleeps: FxHashMap::default(),
            purposes: FxHashMap::default(),
            sums: Vec::new(),
            cells: Table::new(MOST_ROWS),
            cause_callers: Table::new(MOST_ROWS),
            lister: FxHashSet::default(),
            again: Asked::default(),
            transfers: Sizes::default(),
            flights: Flights::default(),
            tracked: Threads::new(arch, asleep(reader), daemons),
            frames: crate::answers::flame::frames_of_recording(reader),
            spaces: Spaces::default(),
            build_ids: reader.build_ids(),
            parts: Vec::new(),
        }
    }

    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Return the number of the file or directory that a request is about; of a lookup, of the directory.
    fn node(&mut self, known: &Known<'_>) -> u32 {
        let node = known.place();
        if let Some(&number) = self.numbers.get(&node) {
            return number;
        }
        let node = match self.numbers.len() < MOST_NODES {
            true => node,
            false => Place::Unknown,
        };
        let next = self.nodes.len() as u32;
        let number = *self.numbers.entry(node.clone()).or_insert(next);
        if number != next {
            return number;
        }
        let path = match &node {
            Place::Path(_, path) => Some(Path {
                text: path.trim_start_matches('/').to_owned(),
                whole: true,
            }),
            Place::Inode(_, ino) => {
                let daemon = known.daemon();
                let path = known.path_of_inode(*ino);
                if !path.as_ref().is_some_and(|path| path.whole) {
                    self.unnamed.insert(number, (daemon, *ino));
                }
                path
            }
            Place::Unknown => None,
        };
        self.nodes.push((known.story.connection, path));
        number
    }

    fn cause(&mut self, mut cause: Cause) -> u32 {
        if let Some(&number) = self.causes.get(&cause) {
            return number;
        }
        if self.sums.len() >= MOST_CAUSES {
            let bare = Cause::new(cause.what, ABSENT);
            cause = Cause {
                how: cause.how,
                ..bare
            };
        }
        let next = self.sums.len() as u32;
        let number = *self.causes.entry(cause).or_insert(next);
        if number == next {
            self.sums.push((cause, Sum::default()));
        }
        number
    }

    /// Add a part of the request at hand. `pid`: as in `Cause`.
    fn part(&mut self, what: What, connection: u64, pid: i32, ns: u64) {
        self.part_of((what, How::Other), connection, pid, ns);
    }

    fn part_of(&mut self, (what, how): (What, How), connection: u64, pid: i32, ns: u64) {
        if ns == 0 {
            return;
        }
        let key = (what, how, connection, pid);
        let number = match self.plain.get(&key) {
            Some(&number) => number,
            None => {
                let cause = Cause {
                    pid,
                    how,
                    ..Cause::new(what, connection)
                };
                let number = self.cause(cause);
                self.plain.insert(key, number);
                number
            }
        };
        self.add_part(number, ns);
    }

    fn slept(&mut self, wait: &waits::Part, connection: u64, ns: u64) {
        if ns == 0 {
            return;
        }
        let how = self.purpose(wait);
        let key = (wait.cause, connection, how);
        let number = match self.sleeps.get(&key) {
            Some(&number) => number,
            None => {
                let cause = Cause {
                    connection,
                    how,
                    ..self.tracked.cause(wait.cause)
                };
                let number = self.cause(cause);
                self.sleeps.insert(key, number);
                number
            }
        };
        self.add_part(number, ns);
        let sum = &mut self.sums[number as usize].1;
        sum.own.add(wait.stack.0, wait.stack.1, ns);
        sum.last.add(wait.last.0, wait.last.1, ns);
    }

    /// Return what a wait was for. The kernel's stack shows it outside of system calls (a page that was not in memory, the
    /// freezer), whether a file system below is a FUSE mount, even if that mount is not recorded, and locks in the kernel.
    fn purpose(&mut self, wait: &waits::Part) -> How {
        let cause = self.tracked.cause(wait.cause);
        let how = cause.how;
        let (stack, pid) = wait.last;
        if stack == ABSENT || !matches!(how, How::Disk | How::Page | How::Other) {
            return how;
        }
        let no_call = cause.syscall == ABSENT;
        let key = (stack, how, no_call);
        if let Some(how) = self.purposes.get(&key) {
            return *how;
        }
        let frames = self.frames(stack, pid);
        let has = |is: fn(&str) -> bool| frames.iter().any(|(name, _, kernel)| *kernel && is(name));
        let how = if has(|name| name.starts_with("fuse_") && !name.starts_with("fuse_dev")) {
            How::Fuse
        } else if has(|name| name.starts_with("rwsem_down_") || name.starts_with("__mutex_lock")) {
            How::KernelLock
        } else if !no_call || how == How::Disk {
            how
        } else if has(|name| name.contains("refrigerator") || name == "do_freezer_trap") {
            How::Frozen
        // The latter on arm64.
        } else if has(|name| name.contains("page_fault") || name == "do_mem_abort") {
            How::Page
        } else {
            How::Other
        };
        if self.purposes.len() < MOST_ROWS {
            self.purposes.insert(key, how);
        }
        how
    }

    /// Divide the time in the queue in which the thread that took the request was not allowed to run. Return its ns.
    fn halted(&mut self, tid: i32, (from, to): (u64, u64), connection: u64) -> u64 {
        let mut halted = 0;
        for wait in self.tracked.waits(tid, from, to) {
            if self.purpose(&wait).is_halt() {
                self.slept(&wait, connection, wait.blocked);
                halted += wait.blocked;
            }
        }
        halted
    }

    fn add_part(&mut self, number: u32, ns: u64) {
        match self.parts.iter_mut().find(|(known, _)| *known == number) {
            Some((_, sum)) => *sum += ns,
            None => self.parts.push((number, ns)),
        }
    }

    /// Return the parts of a request, most time first. Where several belong to one finding, only the first one counts the
    /// request.
    fn take_parts(&mut self) -> Vec<(u32, Count)> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let mut seen = Vec::new();
        let counted = parts.into_iter().map(|(number, ns)| {
            let kind = self.sums[number as usize].0.kind();
            let requests = u64::from(!seen.contains(&kind));
            seen.push(kind);
            (number, Count { requests, ns })
        });
        counted.collect()
    }

    /// Cut from..to by what a thread did: its sleeps and its waits for a CPU; the rest is `rest`'s.
    fn by_thread(
        &mut self,
        tid: i32,
        span: (u64, u64),
        (slept, ready, rest): (What, What, What),
        connection: u64,
    ) {
        let (from, to) = span;
        let mut left = to.saturating_sub(from);
        for wait in self.tracked.waits(tid, from, to) {
            let blocked = wait.blocked.min(left);
            left -= blocked;
            match slept {
                What::Slept => self.slept(&wait, connection, blocked),
                _ => self.part(slept, connection, 0, blocked),
            }
            let runnable = wait.runnable.min(left);
            left -= runnable;
            self.part(ready, connection, wait.taker, runnable);
        }
        let rest = match rest {
            What::OnCpu if left >= self.long => What::Computes,
            rest => rest,
        };
        self.part(rest, connection, 0, left);
    }

    /// Divide the request's time among its causes, into `parts`.
    fn divide(&mut self, story: &Story, cut: &Cut) {
        self.parts.clear();
        let connection = story.connection;
        let before: u64 = cut
            .stages()
            .filter(|(stage, _)| stage.to <= BEGIN)
            .map(|(_, ns)| ns)
            .sum();
        let mut at = story.at(Mark::Begin).unwrap_or(0).saturating_sub(before);
        let worker = match (story.handed, story.at(Mark::CallbackEnter)) {
            (true, _) => story.replier,
            (false, Some(_)) => story.daemon_tid,
            (false, None) => story.reader,
        };
        // The callback's thread leaves the request to another thread when the callback returns.
        let left = story
            .at(Mark::CallbackReturn)
            .filter(|_| story.replier >= 0 && story.replier != worker);
        for (stage, ns) in cut.stages() {
            let span = (at, at + ns);
            at += ns;
            let caller = (What::CallerBlocked, What::CallerCpu, What::Caller);
            match (stage.from, stage.to) {
                (_, ..=BEGIN) | (RUNS.., _) => {
                    self.by_thread(story.tid, span, caller, connection);
                }
                (BEGIN, READ) if story.no_thread != ABSENT => {
                    let mut halted = self.halted(story.reader, span, connection).min(ns);
                    let ns = ns - halted;
                    let asleep = (ns + halted).saturating_sub(story.no_thread + story.no_cpu);
                    // It lies in these parts, most of it in the first.
                    let mut less = |part: u64| {
                        let taken = halted.min(part);
                        halted -= taken;
                        part - taken
                    };
                    let no_thread = less(story.no_thread).min(ns);
                    less(asleep);
                    let no_cpu = less(story.no_cpu).min(ns - no_thread);
                    self.part(What::NoThread, connection, 0, no_thread);
                    let taker = match no_cpu {
                        0 => 0,
                        _ => self.tracked.taker(story.reader, span.0, span.1),
                    };
                    self.part_of((What::DaemonCpu, How::Woken), connection, taker, no_cpu);
                    self.part(What::Passing, connection, 0, ns - no_thread - no_cpu);
                    if no_thread > 0 {
                        self.waiters.insert((connection, story.tid));
                    }
                }
                (BEGIN, READ) if story.resent => {
                    let held = match story.first_read {
                        ABSENT => ns,
                        read => span.1.saturating_sub(read).min(ns),
                    };
                    let reader = story.first_reader.max(0);
                    self.part(What::Resent, connection, reader, held);
                    self.part(What::Unknown, connection, 0, ns - held);
                }
                // No thread works on it: its reader continued with others, or the kernel refused the answer.
                (READ.., _) if stage.name() == REFUSED || story.dropped => {
                    self.part(What::Unknown, connection, 0, ns);
                }
                (READ.., ..=END) if story.operation.name() == "setlkw" => {
                    self.part(What::FileLocks, connection, 0, ns);
                }
                (READ.., ..=REPLY) if worker >= 0 => {
                    let rest = match (story.handed, self.tracked.sees(worker)) {
                        (false, true) => What::OnCpu,
                        _ => What::Unknown,
                    };
                    let daemon = |rest| (What::Slept, What::DaemonCpu, rest);
                    let left = left.unwrap_or(span.1).clamp(span.0, span.1);
                    self.by_thread(worker, (span.0, left), daemon(rest), connection);
                    let after = (left, span.1);
                    self.by_thread(story.replier, after, daemon(What::Unknown), connection);
                }
                (READ.., ..=END) if story.is_unanswered() && worker >= 0 => {
                    let daemon = (What::Slept, What::DaemonCpu, What::Unknown);
                    self.by_thread(worker, span, daemon, connection);
                }
                (REPLY, END) => {
                    self.part(What::Passing, connection, 0, ns);
                }
                (END, RUNS) => {
                    let late = match story.late {
                        ABSENT => 0,
                        late => late.min(ns),
                    };
                    let taker = match late {
                        0 => 0,
                        _ => self.tracked.taker(story.tid, span.0, span.1),
                    };
                    self.part(What::CallerCpu, connection, taker, late);
                    self.part(What::Passing, connection, 0, ns - late);
                }
                (END, _) => {
                    self.by_thread(story.tid, span, caller, connection);
                }
                _ => {
                    self.part(What::Unknown, connection, 0, ns);
                }
            }
        }
    }

    fn asynchronous(&mut self, known: &Known<'_>, cut: &Cut, node: u32) {
        let (story, ns) = (known.story, cut.total);
        if story.operation.name() == "read" {
            self.flights.add(story);
            self.divide(story, cut);
            for (number, count) in self.take_parts() {
                let cause = Cause {
                    background: true,
                    ..self.sums[number as usize].0
                };
                let number = self.cause(cause);
                let sum = &mut self.sums[number as usize].1;
                sum.ns = sum.ns.saturating_add(count.ns);
                sum.requests += count.requests;
                self.cells.count((number, story.operation, node), count);
            }
        }
        if story.error != 0 && self.errors.len() < MOST_CAUSES {
            let key = (story.operation, story.error, true);
            self.errors.entry(key).or_default().requests += 1;
        }
        let total = self.asynchronous.entry(story.operation).or_default();
        total.requests += 1;
        total.ns = total.ns.saturating_add(ns);
        self.transfers.add(known, node, false, ns);
    }

    fn waited(&mut self, known: &Known<'_>, cut: &Cut, node: u32) {
        let story = known.story;
        let (operation, ns) = (story.operation, cut.total);
        let cut_less = cut.less(self.cost);
        self.recording += cut_less
            .pieces()
            .map(|piece: &Piece| piece.taken)
            .sum::<u64>();
        self.total = self.total.saturating_add(ns);
        self.requests += 1;
        let failed = u64::from(story.error != 0);
        let add = |total: &mut Total| {
            total.requests += 1;
            total.ns = total.ns.saturating_add(ns);
            total.failed += failed;
        };
        add(self.operations.entry(operation).or_default());
        let fate = match (story.refused != 0, story.dropped) {
            (true, _) => REFUSED,
            (_, true) => "dropped",
            _ if story.fate == Fate::Aborted && story.aborted_by_daemon => "daemon_ended",
            _ if story.fate == Fate::Aborted
                && known.name_of(story.aborter_comm).starts_with("kworker/") =>
            {
                "timeout"
            }
            _ => FATES
                .iter()
                .find(|(fate, _)| *fate == story.fate)
                .map_or("", |(_, name)| name),
        };
        add(self.fates.entry(fate).or_default());
        if story.syscall != ABSENT {
            add(self.calls.entry((operation, story.syscall)).or_default());
        }
        if story.error != 0 && self.errors.len() < MOST_CAUSES {
            add(self
                .errors
                .entry((operation, story.error, false))
                .or_default());
        }
        self.name(story.pid, known.comm(), ns);
        self.processes.add(story.pid, ns);
        // Requests of unknown files may be of different ones.
        let place = (self.numbers.get(&Place::Unknown) != Some(&node)).then_some(node);
        if place.is_some() {
            self.of_process.add((story.pid, operation, node), ns);
        }
        self.lists_or_listed(story, place, ns);
        self.divide(story, cut);
        if story.signals > 0 && story.error == -EINTR {
            let mut cause = Cause::new(What::Interrupted, story.connection);
            cause.signal = story.signal;
            let number = self.cause(cause);
            self.parts.clear();
            self.add_part(number, ns);
        }
        let mut resource = 0;
        for (number, count) in self.take_parts() {
            let (cause, sum) = &mut self.sums[number as usize];
            sum.ns = sum.ns.saturating_add(count.ns);
            sum.requests += count.requests;
            if !matches!(cause.what, What::Caller | What::Passing | What::OnCpu) {
                resource += count.ns;
            }
            self.cells.count((number, operation, node), count);
            self.cause_callers.count((number, story.pid), count);
        }
        self.transfers.add(known, node, true, ns);
        let (mut class, _) = self.again.add(known, node, ns);
        if class == Class::Needed && self.transfers.is_small(known) {
            class = Class::Small;
        }
        let own = ns.saturating_sub(resource);
        self.classes.add((class, operation, story.pid), own);
        self.class_places.add((class, operation, node), own);
    }

    /// Count a list of a directory, or a lookup in a directory that its thread has listed. Libfuse's high-level API knows
    /// the directory (`node`) at the first of several lists alone.
    fn lists_or_listed(&mut self, story: &Story, node: Option<u32>, ns: u64) {
        let listed = |node| self.lister.contains(&(story.tid, node));
        match story.operation.name() {
            "readdir" | "readdirplus" => {
                self.lists += 1;
                if self.lister.len() < MOST_NODES {
                    self.lister.extend(node.map(|node| (story.tid, node)));
                }
            }
            "lookup" if node.is_some_and(listed) => {
                self.listed.requests += 1;
                self.listed.ns += ns;
            }
            _ => {}
        }
    }

    /// Name a process that waited for `ns`. Where its name changes, by execve(2) or by threads of their own names, the one
    /// with more than half of the time stays: a majority vote.
    fn name(&mut self, pid: i32, comm: &str, ns: u64) {
        let room = self.comms.len() < MOST_NODES;
        match self.comms.get_mut(&pid) {
            Some((name, lead)) if name == comm => *lead = lead.saturating_add(ns),
            Some((_, lead)) if ns <= *lead => *lead -= ns,
            Some(named) => *named = (comm.to_owned(), ns - named.1),
            None if room => drop(self.comms.insert(pid, (comm.to_owned(), ns))),
            None => {}
        }
    }

    fn frames(&mut self, stack: u64, pid: i32) -> Vec<Frame> {
        let numbers = self.frames.of(stack, &self.spaces, pid);
        let name = |&number: &u32| {
            let (name, origin) = &self.frames.names[number as usize];
            let path = match origin {
                Origin::File(file) => self.frames.files[*file as usize].path.clone(),
                _ => String::new(),
            };
            (name.to_string(), path, *origin == Origin::Kernel)
        };
        numbers.iter().map(name).collect()
    }
}

impl Listener for Why<'_> {
    fn chains(&mut self, new: &[Chain]) {
        self.frames.add_chains(new);
    }

    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if !story.counts() {
            return;
        }
        if let Some((EIO, false)) = self.results.contradicted(story) {
            let key = (story.operation, story.syscall);
            if self.refused.len() < MOST_CAUSES || self.refused.contains_key(&key) {
                *self.refused.entry(key).or_default() += 1;
            }
        }
        let cut = Cut::new(story);
        let node = self.node(known);
        self.tracked.serves(story.daemon_pid);
        if story.daemon_tid >= 0 && self.threads.len() < MOST_NODES {
            self.threads.insert((story.connection, story.daemon_tid));
        }
        let waits = story.waits || (story.fate != Fate::Matched && story.operation.has_caller());
        if waits {
            self.waited(known, &cut, node);
        } else {
            self.asynchronous(known, &cut, node);
        }
    }

    fn selects(&mut self, window: (u64, u64)) {
        self.gone.selects(window);
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        self.gone.event(ev, role, &self.arch);
        self.tracked.event(ev, role);
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn call(&mut self, call: &MountCall, comm: &str) {
        for (kind, ns) in (0..).zip(call.outside) {
            // Only waits: neither its own work nor what is unknown.
            if ns == 0 || usize::from(kind) >= WAITS {
                continue;
            }
            self.total = self.total.saturating_add(ns);
            let mut cause = Cause::new(What::Outside, call.connection);
            (cause.outside, cause.syscall) = (kind, call.number);
            let number = self.cause(cause);
            let sum = &mut self.sums[number as usize].1;
            sum.ns = sum.ns.saturating_add(ns);
            sum.requests += 1;
            self.cause_callers.add((number, call.pid), ns);
            self.name(call.pid, comm, ns);
        }
    }

    fn side(&mut self, record: &Side) {
        self.spaces.push(record, &self.build_ids);
        self.tracked.side(record);
    }

    fn end(&mut self, names: &Names) {
        for (number, (daemon, ino)) in std::mem::take(&mut self.unnamed) {
            let node = &mut self.nodes[number as usize].1;
            *node = names.path(daemon, ino).or(node.take());
        }
        let mut cells = std::mem::take(&mut self.cells).by(|key| key.0);
        let mut callers = std::mem::take(&mut self.cause_callers).by(|key| key.0);
        let sums = std::mem::take(&mut self.sums);
        let mut sums: Vec<(u32, (Cause, Sum))> = (0..).zip(sums).collect();
        sums.sort_by_key(|(_, (_, sum))| std::cmp::Reverse(sum.ns));
        for (number, (cause, sum)) in sums {
            let shown = self.found.len() < MOST_SHOWN;
            if cause.pid > 0 && !self.comms.contains_key(&cause.pid) {
                let comm = self.spaces.comm(cause.pid).unwrap_or("");
                self.comms.insert(cause.pid, (comm.to_owned(), 0));
            }
            let (mut own, mut last) = (Vec::new(), Vec::new());
            if shown && cause.what == What::Slept && !cause.background {
                let stacks = sum.own.sorted();
                own.extend(
                    stacks
                        .into_iter()
                        .map(|(stack, pid, ns)| (self.frames(stack, pid), ns)),
                );
                if let Some((stack, pid, _)) = sum.last.sorted().first() {
                    last = self.frames(*stack, *pid);
                }
            }
            let places = cells.remove(&number).unwrap_or_default();
            let mut operations: Vec<(Operation, u64)> = Vec::new();
            for ((_, operation, _), count) in &places {
                match operations.iter_mut().find(|(known, _)| known == operation) {
                    Some((_, ns)) => *ns += count.ns,
                    None => operations.push((*operation, count.ns)),
                }
            }
            let places = places.into_iter().take(MOST_SHOWN);
            let callers = callers.remove(&number).unwrap_or_default();
            self.found.push(Found {
                cause,
                ns: sum.ns,
                requests: sum.requests,
                own,
                last,
                operations,
                places: places
                    .map(|((_, operation, node), count)| (operation, node, count))
                    .collect(),
                callers: callers
                    .into_iter()
                    .take(64)
                    .map(|((_, pid), count)| (pid, count))
                    .collect(),
            });
        }
        self.asked = std::mem::take(&mut self.again).finish();
        self.sizes = std::mem::take(&mut self.transfers).finish();
        self.background = std::mem::take(&mut self.flights).finish();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use super::*;

    const CLOCK_NANOSLEEP: u64 = 230;

    fn demo() -> Reader {
        let root = FilePath::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        Reader::open(&root.join("samples/recordings/demo.data")).unwrap()
    }

    fn empty(reader: &Reader) -> Why<'_> {
        Why::new(
            reader,
            [500].into_iter(),
            Gone::default(),
            Cost::default(),
            u64::MAX,
        )
    }

    #[test]
    fn a_finding_counts_each_request_once() {
        let reader = demo();
        let mut why = empty(&reader);
        let sleep = |syscall, lock, fd| Cause {
            how: How::Sleep,
            syscall,
            lock,
            fd,
            ..Cause::new(What::Slept, 1)
        };
        let causes = [(7, ABSENT, 1), (7, ABSENT, 2), (8, ABSENT, 1), (8, 0x70, 1)];
        for (ns, (syscall, lock, fd)) in (10..).zip(causes) {
            let number = why.cause(sleep(syscall, lock, fd));
            why.add_part(number, ns);
        }
        let counts = why.take_parts();
        let counts: Vec<_> = counts.iter().map(|(_, n)| (n.ns, n.requests)).collect();
        assert_eq!(counts, [(13, 1), (12, 1), (11, 1), (10, 0)]);
    }

    #[test]
    fn a_process_has_the_name_under_which_it_waited_most() {
        let reader = demo();
        let mut why = empty(&reader);
        why.name(7, "sh", 20);
        why.name(7, "cat", 30);
        why.name(7, "cat", 40);
        assert_eq!(why.comms[&7].0, "cat");
        why.name(7, "sh", 10);
        assert_eq!(why.comms[&7].0, "cat");
    }

    /// Return the ns of each kind of cause, of a request that 500 read at 100 and whose callback it entered at 110; 501
    /// sleeps in clock_nanosleep from 200 to 280, and answers at 300. 500 sleeps in read from 150 on.
    fn divided(handed: bool, returns: u64) -> Vec<(What, u64, u64)> {
        let reader = demo();
        let mut why = empty(&reader);
        let mut event = |time, tid, role, v| {
            let (pid, kind, cpu) = (500, 0, 0);
            why.event(
                &Ev {
                    time,
                    pid,
                    tid,
                    kind,
                    cpu,
                    v,
                },
                role,
            );
        };
        let out = |tid| [tid, 1, 0, ABSENT];
        event(140, 500, Role::SysEnter, [0, 3, 4096, ABSENT]);
        event(150, 500, Role::Switch, out(500));
        event(
            190,
            501,
            Role::SysEnter,
            [CLOCK_NANOSLEEP, 0, ABSENT, ABSENT],
        );
        event(200, 501, Role::Switch, out(501));
        event(280, 0, Role::Switch, [0, 0, 501, ABSENT]);
        event(
            290,
            501,
            Role::SysExit,
            [CLOCK_NANOSLEEP, 0, ABSENT, ABSENT],
        );
        let mut story = Story::new(0, Operation::of_name("read"), Fate::Matched);
        story.connection = 45;
        (story.daemon_pid, story.daemon_tid) = (500, 500);
        (story.reader, story.replier, story.handed) = (500, 501, handed);
        for (mark, time) in [
            (Mark::Begin, 90),
            (Mark::Read, 100),
            (Mark::CallbackEnter, 110),
            (Mark::CallbackReturn, returns),
            (Mark::Reply, 300),
            (Mark::End, 310),
        ] {
            story.marks[mark as usize] = time;
        }
        why.divide(&story, &Cut::new(&story));
        let parts = why.parts.iter().map(|(number, ns)| {
            let cause = why.sums[*number as usize].0;
            (cause.what, cause.syscall, *ns)
        });
        parts.filter(|(what, ..)| *what == What::Slept).collect()
    }

    #[test]
    fn a_request_that_is_handed_on_waits_with_the_answering_thread() {
        let expected = [(What::Slept, CLOCK_NANOSLEEP, 80)];
        assert_eq!(divided(true, ABSENT), expected);
        // The callback's return tells when.
        assert_eq!(divided(false, 130), expected);
    }
}
