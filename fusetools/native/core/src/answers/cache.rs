//! Caches of the kernel: system calls that need no request, questions asked again, data read again or written late.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::answers::why::{changes, size_of, Again, Asked, TIMEOUTS};
use crate::events::ABSENT;
use crate::operations::{Arch, Call, Operation};
use crate::requests::named::{Known, Listener, Place};
use crate::requests::stitch::{Cut, MountCall};

/// System calls of one kind on mounts: those that made no request, and those that waited for one or several. The others
/// made requests that they did not wait for, or had not returned.
#[derive(Clone, Debug, Default, Serialize)]
struct CachedCalls {
    syscall: String,
    calls: u64,
    /// None: no descriptor shows that it is on a mount, thus calls that need no request are not seen.
    none: Option<u64>,
    one: u64,
    several: u64,
    requests: u64,
}

/// Requests whose answer the kernel may keep, as in `Again`. Times in ns.
#[derive(Debug, Serialize)]
pub struct AskedAgain {
    operation: Operation,
    negative: bool,
    pub requests: u64,
    total_ns: u64,
    pub questions: u64,
    pub again: u64,
    soonest_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    /// Number of requests that a timeout of so many seconds would have saved.
    saved: Vec<(f64, u64)>,
}

impl From<Again> for AskedAgain {
    fn from(row: Again) -> AskedAgain {
        let after = row.after.hist();
        let timeouts = TIMEOUTS.iter().map(|ns| *ns as f64 / 1e9);
        AskedAgain {
            operation: row.operation,
            negative: row.negative,
            requests: row.requests,
            total_ns: row.ns,
            questions: row.keys,
            again: after.count(),
            soonest_ns: after.min(),
            p50_ns: after.percentile(500),
            p99_ns: after.percentile(990),
            saved: timeouts.zip(row.saved).collect(),
        }
    }
}

/// Reads or writes: of callers that waited for them, or in the background.
#[derive(Clone, Debug, Serialize)]
struct Transfer {
    operation: Operation,
    waits: bool,
    requests: u64,
    /// Number of requests of known size; the bytes that they transferred; the size of the largest one.
    sized: u64,
    total_bytes: u64,
    largest_bytes: u64,
    /// Number of requests with a predecessor in their file, and of those that continue it.
    followed: u64,
    in_order: u64,
    /// Bytes that had been read before, and not been changed since; None: they are written.
    again_bytes: Option<u64>,
}

impl Transfer {
    fn new(operation: Operation, waits: bool) -> Transfer {
        Transfer {
            operation,
            waits,
            requests: 0,
            sized: 0,
            total_bytes: 0,
            largest_bytes: 0,
            followed: 0,
            in_order: 0,
            again_bytes: (operation.name() == "read").then_some(0),
        }
    }
}

/// Answer of `cache`: calls by decreasing number, questions by decreasing time.
#[derive(Debug, Serialize)]
pub struct Cached {
    calls: Vec<CachedCalls>,
    pub asked: Vec<AskedAgain>,
    transfers: Vec<Transfer>,
    /// Number of transfers of an unknown file or place.
    unknown: u64,
}

/// Disjoint parts of a file.
#[derive(Default)]
struct Parts(BTreeMap<u64, u64>);

impl Parts {
    /// Add a part. Return how many of its bytes were there already.
    fn add(&mut self, from: u64, to: u64) -> u64 {
        let (mut begin, mut end, mut known) = (from, to, 0);
        while let Some((&start, &stop)) = self.0.range(..=end).next_back() {
            if stop < begin {
                break;
            }
            known += stop.min(to).saturating_sub(start.max(from));
            begin = begin.min(start);
            end = end.max(stop);
            self.0.remove(&start);
        }
        self.0.insert(begin, end);
        known
    }
}

#[derive(Default)]
struct File {
    read: Parts,
    /// End of the last read and of the last write.
    next: FxHashMap<Operation, u64>,
}

/// Part of a file that a request reads or writes.
struct Span {
    node: u32,
    operation: Operation,
    waits: bool,
    from: u64,
    to: u64,
}

/// Maximum number of requests that are put in the order of their begin: more than a mount has in flight.
const MOST_SPANS: usize = 1 << 12;

const MOST_NODES: usize = 1 << 18;
/// Maximum number of parts of files that were read.
const MOST_PARTS: usize = 1 << 20;

/// Collector of calls and requests.
pub struct Caches {
    arch: Arch,
    kinds: Vec<Call>,
    /// By the system call's number.
    calls: FxHashMap<u64, CachedCalls>,
    /// By operation, and by whether a caller waited.
    transfers: FxHashMap<(Operation, bool), Transfer>,
    /// Requests of unknown files, or of more files than are kept apart.
    unknown: u64,
    asked: Asked,
    nodes: FxHashMap<Place, u32>,
    files: FxHashMap<u32, File>,
    parts: usize,
    /// The last requests by begin and number. They are reported in the order of their ends.
    spans: BTreeMap<(u64, u64), Span>,
}

impl Caches {
    pub fn new(arch: Arch) -> Caches {
        Caches {
            arch,
            kinds: arch.calls(),
            calls: FxHashMap::default(),
            transfers: FxHashMap::default(),
            unknown: 0,
            asked: Asked::default(),
            nodes: FxHashMap::default(),
            files: FxHashMap::default(),
            parts: 0,
            spans: BTreeMap::new(),
        }
    }

    /// Count whether requests continue those before them, but for the last `most`.
    fn follow(&mut self, most: usize) {
        while self.spans.len() > most {
            let Some((_, span)) = self.spans.pop_first() else {
                return;
            };
            let file = self.files.entry(span.node).or_default();
            let next = file.next.insert(span.operation, span.to);
            let sum = self.transfers.get_mut(&(span.operation, span.waits));
            if let (Some(sum), Some(next)) = (sum, next) {
                sum.followed += 1;
                sum.in_order += u64::from(next == span.from);
            }
        }
    }

    pub fn finish(mut self) -> Cached {
        self.follow(0);
        let mut calls: Vec<_> = self.calls.into_values().collect();
        calls.sort_by(|a, b| (b.calls, &a.syscall).cmp(&(a.calls, &b.syscall)));
        let mut transfers: Vec<_> = self.transfers.into_values().collect();
        transfers.sort_by_key(|of| (of.operation, of.waits));
        Cached {
            calls,
            asked: self.asked.finish().into_iter().map(From::from).collect(),
            transfers,
            unknown: self.unknown,
        }
    }

    fn node(&mut self, known: &Known<'_>) -> Option<u32> {
        let key = known.place();
        let next = self.nodes.len() as u32;
        match self.nodes.get(&key) {
            Some(node) => Some(*node),
            None if self.nodes.len() >= MOST_NODES => None,
            None => Some(*self.nodes.entry(key).or_insert(next)),
        }
    }

    fn transfer(&mut self, known: &Known<'_>, node: Option<u32>, waits: bool) {
        let operation = known.story.operation;
        let size = size_of(known);
        let sum = self
            .transfers
            .entry((operation, waits))
            .or_insert_with(|| Transfer::new(operation, waits));
        sum.requests += 1;
        if size == ABSENT {
            return;
        }
        sum.sized += 1;
        sum.largest_bytes = sum.largest_bytes.max(size);
        // A read at the file's end brings fewer bytes than it requests.
        let size = known.story.transferred(size);
        sum.total_bytes = sum.total_bytes.saturating_add(size);
        let offset = known.details.offset;
        let Some(node) = node.filter(|_| offset != ABSENT && known.is_about()) else {
            self.unknown += 1;
            return;
        };
        let file = self.files.entry(node).or_default();
        let end = offset.saturating_add(size);
        let fits = size > 0 && self.parts < MOST_PARTS;
        if let Some(again) = sum.again_bytes.as_mut().filter(|_| fits) {
            let before = file.read.0.len();
            *again += file.read.add(offset, end);
            self.parts = (self.parts + file.read.0.len()).saturating_sub(before);
        }
        let span = Span {
            node,
            operation,
            waits,
            from: offset,
            to: end,
        };
        let story = known.story;
        self.spans.insert((story.start(), story.unique), span);
        self.follow(MOST_SPANS);
    }
}

impl Listener for Caches {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if !story.counts() {
            return;
        }
        let node = self.node(known);
        if let Some(node) = node {
            self.asked.add(known, node, Cut::new(story).total);
        }
        if changes(story.operation) {
            if let Some(file) = node.and_then(|node| self.files.get_mut(&node)) {
                self.parts -= std::mem::take(&mut file.read).0.len().min(self.parts);
            }
        }
        if matches!(story.operation.name(), "read" | "write") {
            self.transfer(known, node, story.waits);
        }
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn call(&mut self, call: &MountCall, _comm: &str) {
        let calls = self.calls.entry(call.number).or_insert_with(|| {
            let kind = usize::try_from(call.number).ok();
            let kind = kind.and_then(|number| self.kinds.get(number));
            CachedCalls {
                syscall: self.arch.syscall(call.number),
                none: kind.is_some_and(|kind| kind.own_descriptor).then_some(0),
                ..CachedCalls::default()
            }
        });
        calls.calls += 1;
        calls.requests += u64::from(call.requests);
        match (&mut calls.none, call.requests) {
            (Some(none), 0) => *none += u64::from(call.made_no_request()),
            (None, 0) => {}
            (_, 1) => calls.one += 1,
            _ => calls.several += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_those_of_a_set_of_bytes(adds in proptest::collection::vec((0u64..60, 0u64..20), 1..40)) {
            let mut parts = Parts::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (from, length) in adds {
                let expected = (from..from + length).filter(|at| !bytes.insert(*at)).count() as u64;
                if length > 0 {
                    prop_assert_eq!(parts.add(from, from + length), expected);
                }
                let held: u64 = parts.0.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(held, bytes.len() as u64);
            }
        }
    }
}
