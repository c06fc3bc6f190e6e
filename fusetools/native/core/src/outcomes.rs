//! What requests were answered with.

use rustc_hash::FxHashMap;

use crate::named::{Known, Listener};
use crate::operations::Operation;
use crate::stitch::Mark;

/// Answered requests by operation.
#[derive(Default)]
pub struct Outcomes {
    pub operations: FxHashMap<Operation, Outcome>,
}

#[derive(Default)]
pub struct Outcome {
    pub answered: u64,
    /// Requests by errno.
    pub errors: FxHashMap<u32, u64>,
    /// Without an error and without an inode.
    pub negative: u64,
}

impl Listener for Outcomes {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.at(Mark::End).is_none() {
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
}
