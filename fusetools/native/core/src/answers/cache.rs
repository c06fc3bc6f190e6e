//! Caches of the kernel: system calls that need no request, questions asked again, data read again or written late.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::answers::why::{changes, size_of, Again, Asked};
use crate::events::ABSENT;
use crate::operations::{Arch, Call, Operation};
use crate::requests::named::{Known, Listener};
use crate::requests::stitch::{Cut, MountCall};

/// System calls of one kind on mounts, by the number of requests that each waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub none: u64,
    pub one: u64,
    pub several: u64,
    pub requests: u64,
    /// Its descriptor shows that it is on a mount. Without one, calls that need no request are not seen.
    pub seen: bool,
}

/// Reads or writes: of callers that waited for them, or in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    pub requests: u64,
    /// Number of requests of known size, their bytes, and the largest one.
    pub sized: u64,
    pub bytes: u64,
    pub largest: u64,
    /// Number of requests with a predecessor in their file, and of those that continue it.
    pub placed: u64,
    pub in_order: u64,
    /// Bytes that had been read before, and not been changed since.
    pub again: u64,
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
    /// End of the last read and of the last write, of those that wait and of others.
    next: FxHashMap<(Operation, bool), u64>,
}

const MOST_NODES: usize = 1 << 18;
/// Maximum number of parts of files that were read.
const MOST_PARTS: usize = 1 << 20;

/// Collector of calls and requests.
pub struct Caches {
    kinds: Vec<Call>,
    pub calls: FxHashMap<u64, Calls>,
    /// By operation, and by whether a caller waited.
    pub transfers: FxHashMap<(Operation, bool), Transfer>,
    /// Requests of unknown files, or of more files than are kept apart.
    pub unknown: u64,
    asked: Asked,
    nodes: FxHashMap<(u64, u64), u32>,
    files: FxHashMap<u32, File>,
    parts: usize,
}

impl Caches {
    pub fn new(arch: Arch) -> Caches {
        Caches {
            kinds: arch.calls(),
            calls: FxHashMap::default(),
            transfers: FxHashMap::default(),
            unknown: 0,
            asked: Asked::default(),
            nodes: FxHashMap::default(),
            files: FxHashMap::default(),
            parts: 0,
        }
    }

    /// Return the questions that were asked, most time first.
    pub fn asked(&mut self) -> Vec<Again> {
        std::mem::take(&mut self.asked).finish()
    }

    fn node(&mut self, known: &Known<'_>) -> Option<u32> {
        let story = known.story;
        let ino = match known.details.ino {
            ABSENT => story.nodeid,
            ino => ino,
        };
        let key = (story.connection, ino);
        let next = self.nodes.len() as u32;
        match self.nodes.get(&key) {
            Some(node) => Some(*node),
            None if self.nodes.len() >= MOST_NODES => None,
            None => Some(*self.nodes.entry(key).or_insert(next)),
        }
    }

    fn transfer(&mut self, known: &Known<'_>, node: Option<u32>, waits: bool) {
        let (operation, name) = (known.story.operation, known.story.operation.name());
        let size = size_of(known, name);
        let sum = self.transfers.entry((operation, waits)).or_default();
        sum.requests += 1;
        if size == ABSENT {
            return;
        }
        sum.sized += 1;
        sum.bytes = sum.bytes.saturating_add(size);
        sum.largest = sum.largest.max(size);
        let offset = known.details.offset;
        let Some(node) = node.filter(|_| offset != ABSENT && known.is_about()) else {
            self.unknown += 1;
            return;
        };
        let file = self.files.entry(node).or_default();
        let end = offset.saturating_add(size);
        if let Some(next) = file.next.insert((operation, waits), end) {
            sum.placed += 1;
            sum.in_order += u64::from(next == offset);
        }
        if name == "read" && size > 0 && self.parts < MOST_PARTS {
            let before = file.read.0.len();
            sum.again += file.read.add(offset, end);
            self.parts = (self.parts + file.read.0.len()).saturating_sub(before);
        }
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
        let kind = usize::try_from(call.number).ok();
        let kind = kind.and_then(|number| self.kinds.get(number));
        let calls = self.calls.entry(call.number).or_default();
        calls.seen = kind.is_some_and(|kind| kind.own_descriptor);
        calls.requests += u64::from(call.requests);
        match call.requests {
            0 => calls.none += 1,
            1 => calls.one += 1,
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
