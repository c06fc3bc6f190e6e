//! Requests that a cache, or larger requests, would make needless.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use serde::Serialize;

use crate::answers::stages::Durations;
use crate::events::ABSENT;
use crate::operations::Operation;
use crate::requests::named::Known;
use crate::requests::stitch::Mark;

/// Reason why a request is needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Needed,
    /// A lookup that finds nothing.
    Negative,
    /// The same had been asked before, and nothing had changed.
    Again,
    /// A small part of a file, next to the last one.
    Small,
}

pub const CLASSES: [(Class, &str); 4] = [
    (Class::Needed, "needed"),
    (Class::Negative, "negative"),
    (Class::Again, "again"),
    (Class::Small, "small"),
];

/// Requests of one operation, either those that found something or those that did not.
#[derive(Clone, Debug, Serialize)]
pub struct Again {
    pub operation: Operation,
    pub negative: bool,
    pub requests: u64,
    pub ns: u64,
    /// Number of different questions.
    pub keys: u64,
    /// Number of requests that a cache with each of TIMEOUTS would have saved.
    pub saved: [u64; TIMEOUTS.len()],
    /// Time of the requests that a cache with the first of TIMEOUTS would have saved.
    pub saved_ns: u64,
    /// Time since the last answer, where nothing had changed in between.
    #[serde(skip)]
    pub after: Durations,
    /// Files, or directories with a name in them, by number of requests.
    pub most: Vec<(u32, Option<Arc<str>>, u64)>,
}

pub const TIMEOUTS: [u64; 2] = [1_000_000_000, 60_000_000_000];

const MOST_KEYS: usize = 1 << 18;
const MOST_NAMES: usize = 5;

/// The latest of some times in ns; 0: none.
#[derive(Default)]
struct Latest([u64; 4]);

impl Latest {
    /// Return the last one by then.
    fn before(&self, time: u64) -> Option<u64> {
        let earlier = self.0.iter().filter(|at| (1..=time).contains(*at));
        earlier.max().copied()
    }

    fn add(&mut self, time: u64) {
        if let Some(oldest) = self.0.iter_mut().min() {
            *oldest = time.max(*oldest);
        }
    }

    /// Remove and return those from then on.
    fn take_from(&mut self, time: u64) -> impl Iterator<Item = u64> + '_ {
        let later = self.0.iter_mut().filter(move |at| **at >= time.max(1));
        later.map(std::mem::take)
    }
}

/// Answers to one question. Requests are reported in the order in which their callers go on, which is not always that of
/// the answers.
#[derive(Default)]
struct Answers {
    /// Times of the last answers.
    ends: Latest,
    /// Begins of the last requests without an answer before them.
    first: Latest,
    /// Thread that waited for the request added last (0: none), and the end of that request.
    latest: (i32, u64),
}

impl Answers {
    /// Add a request that `thread` waited for (0: none did). `found` gets the time in ns since the answer before, for each
    /// request that proves to have one to which nothing has `changed` since.
    ///
    /// A thread that asks again has its answer, even if the event of the request's end comes late: the kernel lets the caller
    /// go on before it (fuse_request_end in fs/fuse/dev.c).
    fn add(&mut self, thread: i32, begin: u64, end: u64, changed: u64, mut found: impl FnMut(u64)) {
        let begin = match self.latest {
            (before, answered) if before == thread && thread != 0 => begin.max(answered),
            _ => begin,
        };
        self.latest = (thread, end);
        let last = self.ends.before(begin).filter(|last| changed <= *last);
        self.ends.add(end);
        if changed <= end {
            for later in self.first.take_from(end) {
                found(later - end);
            }
        }
        match last {
            Some(last) => found(begin - last),
            None => self.first.add(begin),
        }
    }
}

struct Question {
    node: u32,
    name: Option<Arc<str>>,
    requests: u64,
    answers: Answers,
    /// Time when the answer came that a cache with each timeout would hold.
    held: [u64; TIMEOUTS.len()],
}

pub(crate) struct Asked {
    /// Timeouts in ns of a cache, shortest first.
    pub(crate) timeouts: [u64; TIMEOUTS.len()],
    questions: FxHashMap<(Operation, bool, u32, u64), Question>,
    sums: FxHashMap<(Operation, bool), Again>,
    changed: FxHashMap<u32, u64>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            timeouts: TIMEOUTS,
            questions: FxHashMap::default(),
            sums: FxHashMap::default(),
            changed: FxHashMap::default(),
        }
    }
}

impl Asked {
    /// Count a request. Return its class, and whether a cache with the longest timeout would have saved it.
    pub(crate) fn add(&mut self, known: &Known<'_>, node: u32, ns: u64) -> (Class, bool) {
        let story = known.story;
        let (begin, end) = (story.at(Mark::Begin), story.at(Mark::End));
        let (Some(begin), Some(end)) = (begin, end) else {
            return (Class::Needed, false);
        };
        let operation = story.operation;
        if changes(operation) && self.changed.len() < MOST_KEYS {
            let changed = self.changed.entry(node).or_default();
            *changed = end.max(*changed);
        }
        if !is_asked(operation) {
            return (Class::Needed, false);
        }
        let name = known.details.name.as_ref();
        let negative = known.finds_nothing();
        let mut hasher = FxHasher::default();
        (name, known.details.argument()).hash(&mut hasher);
        let key = (operation, negative, node, hasher.finish());
        let sum = self.sums.entry((operation, negative)).or_insert(Again {
            operation,
            negative,
            requests: 0,
            ns: 0,
            keys: 0,
            saved: [0; TIMEOUTS.len()],
            saved_ns: 0,
            after: Durations::default(),
            most: Vec::new(),
        });
        sum.requests += 1;
        sum.ns += ns;
        // Else it is unknown which file it was about, or nothing can be kept.
        let named = known.is_about()
            && (operation != Operation::LOOKUP || name.is_some())
            && (negative || can_hold(operation, story.error));
        let full = self.questions.len() >= MOST_KEYS && !self.questions.contains_key(&key);
        let mut again = false;
        if named && !full {
            let question = self.questions.entry(key).or_insert_with(|| {
                sum.keys += 1;
                Question {
                    node,
                    name: name.cloned(),
                    requests: 0,
                    answers: Answers::default(),
                    held: [ABSENT; TIMEOUTS.len()],
                }
            });
            question.requests += 1;
            let changed = self.changed.get(&node).copied().unwrap_or(0);
            let answers = &mut question.answers;
            let thread = if story.waits { story.tid } else { 0 };
            answers.add(thread, begin, end, changed, |ns| sum.after.add(ns));
            for (at, timeout) in self.timeouts.iter().enumerate() {
                let held = question.held[at];
                let fresh =
                    held != ABSENT && changed <= held && begin <= held.saturating_add(*timeout);
                if fresh {
                    sum.saved[at] += 1;
                    again = true;
                    if at == 0 {
                        sum.saved_ns += ns;
                    }
                } else {
                    question.held[at] = end;
                }
            }
        }
        let class = match (negative, again) {
            (true, _) => Class::Negative,
            (false, true) => Class::Again,
            (false, false) => Class::Needed,
        };
        (class, again)
    }

    pub(crate) fn finish(self) -> Vec<Again> {
        let mut sums = self.sums;
        let mut questions: Vec<_> = self.questions.into_iter().collect();
        questions.sort_by(|(a, x), (b, y)| (y.requests, a).cmp(&(x.requests, b)));
        for ((operation, negative, ..), question) in questions {
            if let Some(sum) = sums.get_mut(&(operation, negative)) {
                if sum.most.len() < MOST_NAMES {
                    sum.most
                        .push((question.node, question.name, question.requests));
                }
            }
        }
        let mut sums: Vec<Again> = sums.into_values().collect();
        sums.sort_by_key(|sum| (std::cmp::Reverse(sum.ns), sum.operation, sum.negative));
        sums
    }
}

/// Return whether the kernel may cache the answer.
fn is_asked(operation: Operation) -> bool {
    matches!(
        operation.name(),
        "lookup" | "getattr" | "getxattr" | "listxattr" | "readlink" | "access"
    )
}

/// Return whether the kernel may keep an answer with this error for as long as the daemon says: no error (but that a
/// name does not exist).
fn can_hold(operation: Operation, error: i32) -> bool {
    error == 0 || !matches!(operation.name(), "lookup" | "getattr")
}

/// Return whether answers about the request's file or directory may be others after it.
pub(crate) fn changes(operation: Operation) -> bool {
    matches!(
        operation.name(),
        "write"
            | "setattr"
            | "create"
            | "mknod"
            | "mkdir"
            | "symlink"
            | "link"
            | "unlink"
            | "rmdir"
            | "rename"
            | "rename2"
            | "setxattr"
            | "removexattr"
            | "fallocate"
            | "copy_file_range"
            | "tmpfile"
    )
}

/// Reads or writes: of callers that waited for them, or in the background.
#[derive(Clone, Debug, Serialize)]
pub struct Transfers {
    pub operation: Operation,
    pub waits: bool,
    pub requests: u64,
    pub ns: u64,
    pub bytes: u64,
    /// Number of requests with a known size.
    pub sized: u64,
    /// Number of requests that begin where the previous one on their file ended.
    pub sequential: u64,
    pub largest: u64,
    /// Sizes by number of requests.
    pub sizes: Vec<(u64, u64)>,
    /// Files by bytes: number of requests and of opens, bytes, end of the farthest one.
    pub files: Vec<(u32, FileSums)>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FileSums {
    pub requests: u64,
    pub ns: u64,
    pub bytes: u64,
    pub opens: u64,
    pub end: u64,
    #[serde(skip)]
    next: u64,
}

const MOST_SIZES: usize = 1024;
const MOST_FILES: usize = 1 << 16;
const SMALL: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct Sizes {
    sums: FxHashMap<(Operation, bool), (Transfers, FxHashMap<u64, u64>)>,
    files: FxHashMap<(Operation, bool, u32), FileSums>,
    opens: FxHashMap<u32, u64>,
    small: bool,
}

impl Sizes {
    /// Return whether the request added last is small, and next to one before it.
    pub(super) fn is_small(&self, _known: &Known<'_>) -> bool {
        self.small
    }

    pub(super) fn add(&mut self, known: &Known<'_>, node: u32, waits: bool, ns: u64) {
        self.small = false;
        let story = known.story;
        let operation = story.operation;
        let name = operation.name();
        if matches!(name, "open" | "create") {
            if self.opens.len() < MOST_FILES && known.is_about() {
                *self.opens.entry(node).or_default() += 1;
            }
            return;
        }
        if !matches!(name, "read" | "write") {
            return;
        }
        let (sum, sizes) = self.sums.entry((operation, waits)).or_insert_with(|| {
            let transfers = Transfers {
                operation,
                waits,
                requests: 0,
                ns: 0,
                bytes: 0,
                sized: 0,
                sequential: 0,
                largest: 0,
                sizes: Vec::new(),
                files: Vec::new(),
            };
            (transfers, FxHashMap::default())
        });
        sum.requests += 1;
        sum.ns += ns;
        let size = size_of(known);
        if size == ABSENT {
            return;
        }
        sum.sized += 1;
        sum.bytes = sum.bytes.saturating_add(size);
        sum.largest = sum.largest.max(size);
        if sizes.len() < MOST_SIZES || sizes.contains_key(&size) {
            *sizes.entry(size).or_default() += 1;
        }
        let key = (operation, waits, node);
        if !known.is_about() || self.files.len() >= MOST_FILES && !self.files.contains_key(&key) {
            return;
        }
        let file = self.files.entry(key).or_default();
        file.requests += 1;
        file.ns += ns;
        file.bytes = file.bytes.saturating_add(size);
        let offset = known.details.offset;
        if offset == ABSENT {
            return;
        }
        if file.requests > 1 && file.next == offset {
            sum.sequential += 1;
            self.small = size < SMALL;
        }
        file.next = offset.saturating_add(size);
        file.end = file.end.max(file.next);
    }

    pub(super) fn finish(mut self) -> Vec<Transfers> {
        let mut files: Vec<_> = self.files.drain().collect();
        files.sort_by(|(a, x), (b, y)| (y.bytes, a).cmp(&(x.bytes, b)));
        let mut all = Vec::new();
        for ((operation, waits), (mut sum, sizes)) in self.sums {
            let own = files
                .iter()
                .filter(|((of, waited, _), _)| (*of, *waited) == (operation, waits));
            let opens = &self.opens;
            sum.files = own
                .take(MOST_NAMES)
                .map(|((.., node), file)| {
                    let opens = opens.get(node).copied().unwrap_or(0);
                    (*node, FileSums { opens, ..*file })
                })
                .collect();
            sum.sizes = sizes.into_iter().collect();
            sum.sizes
                .sort_by_key(|(size, n)| (std::cmp::Reverse(*n), *size));
            sum.sizes.truncate(MOST_NAMES);
            all.push(sum);
        }
        all.sort_by_key(|sum| (std::cmp::Reverse(sum.ns), sum.operation, sum.waits));
        all
    }
}

/// Return the bytes requested or written by a read or a write; ABSENT if unknown.
pub(crate) fn size_of(known: &Known<'_>) -> u64 {
    match known.details.size {
        ABSENT => known.story.bytes(),
        size => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_is_found_in_any_order() {
        let mut ends = Latest::default();
        assert_eq!(ends.before(100), None);
        for end in [40, 20, 30] {
            ends.add(end);
        }
        let found = [19, 20, 29, 35, 100].map(|time| ends.before(time));
        assert_eq!(found, [None, Some(20), Some(20), Some(30), Some(40)]);
        for end in [60, 50, 10] {
            ends.add(end);
        }
        assert_eq!(ends.before(100), Some(60));
        assert_eq!(ends.before(35), Some(30));
    }

    #[test]
    fn the_kernel_keeps_no_errors() {
        let named = Operation::of_name;
        for name in ["lookup", "getattr"] {
            assert!(can_hold(named(name), 0) && !can_hold(named(name), -5));
        }
        assert!(can_hold(named("getxattr"), -61));
    }

    #[test]
    fn a_thread_that_asks_again_has_its_answer() {
        for (threads, expected) in [([7, 7], vec![0]), ([7, 8], vec![]), ([0, 0], vec![])] {
            let mut again = Vec::new();
            let mut answers = Answers::default();
            for (thread, begin, end) in [(threads[0], 10, 21), (threads[1], 20, 30)] {
                answers.add(thread, begin, end, 0, |ns| again.push(ns));
            }
            assert_eq!(again, expected);
        }
    }

    #[test]
    fn as_many_are_asked_again_in_any_order() {
        let requests = [(10, 20), (15, 30), (20, 25), (40, 40)];
        // The first two begin before any answer.
        let changes = [(0, 2), (21, 1), (30, 1), (31, 0)];
        for (changed, expected) in changes {
            let mut order = requests;
            // Heap's algorithm: each order once.
            let mut counts = [0; 4];
            let mut at = 0;
            while at < counts.len() {
                let mut again = 0;
                let mut answers = Answers::default();
                for (begin, end) in order {
                    answers.add(0, begin, end, changed, |_| again += 1);
                }
                assert_eq!(again, expected, "{order:?}, changed at {changed}");
                at = 0;
                while at < counts.len() && counts[at] >= at {
                    counts[at] = 0;
                    at += 1;
                }
                if at < counts.len() {
                    order.swap(if at % 2 == 0 { 0 } else { counts[at] }, at);
                    counts[at] += 1;
                }
            }
        }
    }
}
