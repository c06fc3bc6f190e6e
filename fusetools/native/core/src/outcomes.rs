//! Results of requests: errors, negative replies, missing replies.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::events::{Ev, Role};
use crate::filters::Filters;
use crate::named::{Known, Listener};
use crate::operations::{Arch, Operation};
use crate::stitch::{Mark, FATES};

/// Outcomes of requests by operation, and system calls that failed because the daemon is gone.
pub struct Outcomes {
    pub operations: FxHashMap<Operation, Outcome>,
    /// Calls that failed with ENOTCONN, by number. A mount whose daemon is gone gets no requests.
    pub gone: FxHashMap<u64, u64>,
    arch: Arch,
    daemons: FxHashSet<i32>,
    pids: Vec<i32>,
}

/// Error of system calls on a mount whose daemon is gone.
const ENOTCONN: u64 = -107i64 as u64;

impl Outcomes {
    pub fn new(arch: Arch, filters: &Filters) -> Outcomes {
        Outcomes {
            operations: FxHashMap::default(),
            gone: FxHashMap::default(),
            arch,
            daemons: filters.daemons.iter().map(|(pid, _)| *pid).collect(),
            pids: filters.pids.clone(),
        }
    }
}

#[derive(Default)]
pub struct Outcome {
    pub answered: u64,
    /// Number of requests by errno.
    pub errors: FxHashMap<u32, u64>,
    /// Requests without an error and without an inode.
    pub negative: u64,
    /// Unanswered requests by fate, as in FATES.
    pub unanswered: [u64; FATES.len()],
}

impl Listener for Outcomes {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.at(Mark::End).is_none() {
            if story.is_unanswered() {
                let outcome = self.operations.entry(story.operation).or_default();
                outcome.unanswered[story.fate as usize] += 1;
            }
            return;
        }
        let outcome = self.operations.entry(story.operation).or_default();
        outcome.answered += 1;
        if story.error != 0 {
            *outcome
                .errors
                .entry(story.error.unsigned_abs())
                .or_default() += 1;
        } else if known.is_negative() {
            outcome.negative += 1;
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        let [number, result, ..] = ev.v;
        let wanted = role == Role::SysExit && result == ENOTCONN && !self.daemons.contains(&ev.pid);
        let wanted = wanted && (self.pids.is_empty() || self.pids.contains(&ev.pid));
        if wanted && !self.arch.is_fake(number) && !self.arch.is_socket(number) {
            *self.gone.entry(number).or_default() += 1;
        }
    }
}
