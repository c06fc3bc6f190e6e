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

/// Times of the last answers; 0: none. Requests are reported in the order in which their callers go on, which is not
/// always that of the answers.
#[derive(Default)]
struct Answers([u64; 4]);

impl Answers {
    /// Return the time of the last one by then.
    fn before(&self, time: u64) -> Option<u64> {
        let earlier = self.0.iter().filter(|end| (1..=time).contains(*end));
        earlier.max().copied()
    }

    fn add(&mut self, end: u64) {
        if let Some(oldest) = self.0.iter_mut().min() {
            *oldest = end.max(*oldest);
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
            self.changed.insert(node, end);
        }
        if !is_asked(operation) {
            return (Class::Needed, false);
        }
        let name = known.details.name.as_ref();
        let negative = known.finds_nothing();
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
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
        // Else it is unknown which file it was about.
        let named = known.is_about() && (operation != Operation::LOOKUP || name.is_some());
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
            let last = question.answers.before(begin);
            if let Some(last) = last.filter(|last| changed <= *last) {
                sum.after.add(begin - last);
            }
            question.answers.add(end);
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
        let size = size_of(known, name);
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

/// Return the bytes requested or written; ABSENT if unknown.
pub(crate) fn size_of(known: &Known<'_>, name: &str) -> u64 {
    // Size of struct fuse_out_header; of fuse_in_header and fuse_write_in (include/uapi/linux/fuse.h).
    const OUT: u64 = 16;
    const WRITE: u64 = 80;
    let story = known.story;
    match (known.details.size, story.size) {
        (ABSENT, ABSENT) => match (name, story.request_len, story.reply_len) {
            ("write", len, _) if len != ABSENT => len.saturating_sub(WRITE),
            ("read", _, len) if len != ABSENT => len.saturating_sub(OUT),
            _ => ABSENT,
        },
        (ABSENT, size) | (size, _) => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_is_found_in_any_order() {
        let mut answers = Answers::default();
        assert_eq!(answers.before(100), None);
        for end in [40, 20, 30] {
            answers.add(end);
        }
        let found = [19, 20, 29, 35, 100].map(|time| answers.before(time));
        assert_eq!(found, [None, Some(20), Some(20), Some(30), Some(40)]);
        for end in [60, 50, 10] {
            answers.add(end);
        }
        assert_eq!(answers.before(100), Some(60));
        assert_eq!(answers.before(35), Some(30));
    }
}
