//! Results of requests: errors, negative replies, missing replies.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::events::{known, Ev, Role, ABSENT};
use crate::operations::{Arch, Operation};
use crate::requests::filters::Filters;
use crate::requests::named::{Known, Listener};
use crate::requests::stitch::{Fate, Mark, Story, FATES};

/// Outcomes of requests by operation, and system calls that failed because the daemon is gone.
pub struct Outcomes {
    pub operations: FxHashMap<Operation, Outcome>,
    pub gone: Gone,
    /// Requests whose answer the kernel refused, by operation and error; requests that their reader left without an
    /// answer, by operation.
    pub refused: FxHashMap<(Operation, u32), Kept>,
    pub dropped: FxHashMap<Operation, Kept>,
    /// Aborted requests, by operation and who did it.
    pub aborted: FxHashMap<(Operation, Aborter), u64>,
    /// Failed system calls whose last request was answered without an error: call, error, operation, and whether requests
    /// in the background had been answered with that error.
    pub contradicted: FxHashMap<(u64, u32, Operation, bool), u64>,
    /// Requests whose callers got signals while they waited, by operation, caller's name and first signal.
    pub interrupts: FxHashMap<(Operation, String, u32), Interrupts>,
    results: Results,
    arch: Arch,
}

/// System calls that failed with ENOTCONN: a mount whose daemon is gone gets no requests.
#[derive(Default)]
pub struct Gone {
    /// Calls by their number. None if the filters select callers by name, or some mounts.
    pub calls: FxHashMap<u64, u64>,
    daemons: FxHashSet<i32>,
    pids: Vec<i32>,
    window: (u64, u64),
    /// The filters select callers or mounts, which failed calls on a mount without a daemon do not show.
    partial: bool,
}

impl Gone {
    pub fn new(filters: &Filters) -> Gone {
        Gone {
            calls: FxHashMap::default(),
            daemons: filters.daemons.iter().map(|(pid, _)| *pid).collect(),
            pids: filters.pids.clone(),
            window: (0, u64::MAX),
            partial: !filters.comms.is_empty() || !filters.selects_all_mounts(),
        }
    }

    pub(crate) fn selects(&mut self, window: (u64, u64)) {
        self.window = window;
    }

    pub(crate) fn event(&mut self, ev: &Ev, role: Role, arch: &Arch) {
        let [number, result, ..] = ev.v;
        let wanted = role == Role::SysExit && result == ENOTCONN && !self.daemons.contains(&ev.pid);
        let wanted = wanted && (self.pids.is_empty() || self.pids.contains(&ev.pid));
        let wanted = wanted && !self.partial && (self.window.0..self.window.1).contains(&ev.time);
        if wanted && !arch.is_fake(number) && !arch.is_socket(number) {
            *self.calls.entry(number).or_default() += 1;
        }
    }
}

/// Error of system calls on a mount whose daemon is gone.
const ENOTCONN: u64 = -107i64 as u64;
const ENOENT: i64 = 2;
const EINTR: i64 = 4;
const EEXIST: i64 = 17;

impl Outcomes {
    pub fn new(arch: Arch, filters: &Filters) -> Outcomes {
        Outcomes {
            operations: FxHashMap::default(),
            gone: Gone::new(filters),
            refused: FxHashMap::default(),
            dropped: FxHashMap::default(),
            aborted: FxHashMap::default(),
            contradicted: FxHashMap::default(),
            interrupts: FxHashMap::default(),
            results: Results::default(),
            arch,
        }
    }
}

/// Number of requests, the numbers of some, and how many have callers that still wait at the recording's end.
#[derive(Default, Serialize)]
pub struct Kept {
    pub requests: u64,
    #[serde(rename = "numbers")]
    pub some: Vec<u64>,
    pub waiting: u64,
}

impl Kept {
    fn add(&mut self, story: &Story) {
        self.requests += 1;
        self.waiting += u64::from(story.fate == Fate::Unfinished && story.waits);
        if self.some.len() < SOME {
            self.some.push(story.unique);
        }
    }
}

/// Maximum number of requests whose numbers are kept; of aborters, of kinds of contradicted calls, and of errors.
const SOME: usize = 5;
const MOST: usize = 1 << 10;

/// Requests whose callers got `signals` while they waited; of them, those for which the daemon has read an INTERRUPT, and
/// those that it answered with EINTR.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Interrupts {
    pub requests: u64,
    pub signals: u64,
    pub read: u64,
    pub obeyed: u64,
}

/// Process that aborted requests. `call`: its system call, ABSENT if unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Aborter {
    pub pid: i32,
    pub comm: String,
    pub call: u64,
    /// It is the daemon.
    pub daemon: bool,
}

#[derive(Default)]
pub struct Outcome {
    pub answered: u64,
    /// Number of requests by errno.
    pub errors: FxHashMap<u32, u64>,
    /// Lookups without an error and without an inode.
    pub negative: u64,
    /// Unanswered requests by fate, as in FATES.
    pub unanswered: [u64; FATES.len()],
}

impl Outcome {
    /// Count a request, if it has ended or its fate shows that it has no answer.
    pub(crate) fn add(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.at(Mark::End).is_none() {
            self.unanswered[story.fate as usize] += u64::from(story.is_unanswered());
            return;
        }
        self.answered += 1;
        if story.error != 0 {
            *self.errors.entry(story.error.unsigned_abs()).or_default() += 1;
        } else if story.operation == Operation::LOOKUP && known.is_negative() {
            self.negative += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: Outcome) {
        self.answered += other.answered;
        self.negative += other.negative;
        for (error, requests) in other.errors {
            *self.errors.entry(error).or_default() += requests;
        }
        for (sum, requests) in self.unanswered.iter_mut().zip(other.unanswered) {
            *sum += requests;
        }
    }

    /// Return the number of requests without an answer, with an error, or about nothing.
    pub(crate) fn failed(&self) -> u64 {
        self.negative + self.errors.values().chain(&self.unanswered).sum::<u64>()
    }
}

/// Compares the results of callers' system calls with the answers to their last requests.
#[derive(Default)]
pub(crate) struct Results {
    /// Errors of requests that no caller waited for, by connection. The kernel keeps those of writes for a later call
    /// (mapping_set_error, file_check_and_advance_wb_err in mm/filemap.c): close, fsync, write.
    background: FxHashSet<(u64, u32)>,
}

impl Results {
    /// Return the error of a system call whose last request, this one, was answered without an error; and whether requests
    /// in the background had been answered with that error before.
    pub(crate) fn contradicted(&mut self, story: &Story) -> Option<(u32, bool)> {
        if !story.waits && story.error != 0 && self.background.len() < MOST {
            let error = story.error.unsigned_abs();
            self.background.insert((story.connection, error));
        }
        let error = match story.result {
            ABSENT => return None,
            result => (result as i64).wrapping_neg(),
        };
        // A signal ended the call, or no error number.
        let own = (1..512).contains(&error) && error != EINTR;
        let answered = story.fate == Fate::Matched && story.error == 0;
        // The kernel may know that the file does not exist, or that it does, from a lookup.
        let known_file = error == ENOENT || error == EEXIST;
        if !own || !answered || (story.operation == Operation::LOOKUP && known_file) {
            return None;
        }
        let error = error as u32;
        Some((error, self.background.contains(&(story.connection, error))))
    }
}

impl Listener for Outcomes {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.refused != 0 {
            let key = (story.operation, story.refused.unsigned_abs());
            self.refused.entry(key).or_default().add(story);
        }
        if story.dropped {
            self.dropped.entry(story.operation).or_default().add(story);
        }
        if let Some((error, earlier)) = self.results.contradicted(story) {
            let key = (story.syscall, error, story.operation, earlier);
            if self.contradicted.len() < MOST || self.contradicted.contains_key(&key) {
                *self.contradicted.entry(key).or_default() += 1;
            }
        }
        if story.signals > 0 && story.waits {
            let key = (story.operation, known.comm().to_owned(), story.signal);
            if self.interrupts.len() < MOST || self.interrupts.contains_key(&key) {
                let of = self.interrupts.entry(key).or_default();
                of.requests += 1;
                of.signals += u64::from(story.signals);
                of.read += u64::from(story.interrupted);
                of.obeyed += u64::from(i64::from(story.error) == -EINTR);
            }
        }
        if story.fate == Fate::Aborted {
            let aborter = Aborter {
                pid: story.aborter,
                comm: known.name_of(story.aborter_comm).to_owned(),
                call: story.aborter_call,
                daemon: story.aborted_by_daemon,
            };
            let key = (story.operation, aborter);
            if self.aborted.len() < MOST || self.aborted.contains_key(&key) {
                *self.aborted.entry(key).or_default() += 1;
            }
        }
        if story.at(Mark::End).is_some() || story.is_unanswered() {
            self.operations
                .entry(story.operation)
                .or_default()
                .add(known);
        }
    }

    fn selects(&mut self, window: (u64, u64)) {
        self.gone.selects(window);
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        self.gone.event(ev, role, &self.arch);
    }
}

/// Rows of fusetools/results/errors.py, with numbers of errors and signals.
#[derive(Serialize)]
struct OperationErrors {
    operation: Operation,
    requests: u64,
    errors: Vec<(u32, u64)>,
    negative: u64,
    unanswered: Vec<(&'static str, u64)>,
}

#[derive(Serialize)]
struct Row<Of> {
    operation: Operation,
    #[serde(flatten)]
    of: Of,
}

#[derive(Serialize)]
struct Refused {
    error: u32,
    #[serde(flatten)]
    kept: Kept,
}

#[derive(Serialize)]
struct Interrupted {
    comm: String,
    signal: u32,
    #[serde(flatten)]
    of: Interrupts,
}

#[derive(Serialize)]
struct Contradicted {
    syscall: String,
    error: u32,
    calls: u64,
    earlier: bool,
}

#[derive(Serialize)]
struct Aborted {
    pid: i32,
    comm: String,
    call: Option<String>,
    daemon: bool,
    requests: u64,
}

/// Answer of `errors`.
#[derive(Serialize)]
pub struct Errors {
    operations: Vec<OperationErrors>,
    disconnected: Vec<(String, u64)>,
    refused: Vec<Row<Refused>>,
    dropped: Vec<Row<Kept>>,
    aborted: Vec<Row<Aborted>>,
    interrupts: Vec<Row<Interrupted>>,
    contradicted: Vec<Row<Contradicted>>,
}

impl Outcomes {
    pub fn finish(self) -> Errors {
        let syscall = |number| self.arch.syscall(number);
        let operations = self.operations.into_iter();
        let operations = operations.map(|(operation, outcome)| OperationErrors {
            operation,
            requests: outcome.answered,
            errors: outcome.errors.into_iter().collect(),
            negative: outcome.negative,
            unanswered: FATES
                .iter()
                .map(|(_, name)| *name)
                .zip(outcome.unanswered)
                .filter(|(_, requests)| *requests > 0)
                .collect(),
        });
        let disconnected = self.gone.calls.into_iter();
        let refused = self.refused.into_iter();
        let refused = refused.map(|((operation, error), kept)| Row {
            operation,
            of: Refused { error, kept },
        });
        let dropped = self.dropped.into_iter();
        let aborted = self.aborted.into_iter();
        let aborted = aborted.map(|((operation, by), requests)| Row {
            operation,
            of: Aborted {
                pid: by.pid,
                comm: by.comm,
                call: known(by.call).map(syscall),
                daemon: by.daemon,
                requests,
            },
        });
        let interrupts = self.interrupts.into_iter();
        let interrupts = interrupts.map(|((operation, comm, signal), of)| Row {
            operation,
            of: Interrupted { comm, signal, of },
        });
        let contradicted = self.contradicted.into_iter();
        let contradicted = contradicted.map(|((number, error, operation, earlier), calls)| Row {
            operation,
            of: Contradicted {
                syscall: syscall(number),
                error,
                calls,
                earlier,
            },
        });
        Errors {
            operations: operations.collect(),
            disconnected: disconnected
                .map(|(number, calls)| (syscall(number), calls))
                .collect(),
            refused: refused.collect(),
            dropped: dropped
                .map(|(operation, of)| Row { operation, of })
                .collect(),
            aborted: aborted.collect(),
            interrupts: interrupts.collect(),
            contradicted: contradicted.collect(),
        }
    }
}
