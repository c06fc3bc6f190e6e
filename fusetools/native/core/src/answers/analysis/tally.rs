//! Sums of one function or operation while a recording is read.

use super::*;

#[derive(Default)]
pub(super) struct Tally {
    pub(super) entries: u64,
    pub(super) unmatched: u64,
    pub(super) hist: Hist,
    pub(super) unanswered: u64,
    pub(super) least: Option<u64>,
    /// Durations until the reply, and after it.
    pub(super) replied: Option<Box<(Hist, Hist)>>,
    pub(super) outermost: u64,
    pub(super) own: u128,
}

impl Tally {
    /// Add a call that replied after `until` ns.
    pub(super) fn reply(&mut self, duration: u64, until: Option<u64>) {
        let Some(until) = until.filter(|until| *until <= duration) else {
            if let Some(replied) = &mut self.replied {
                replied.0.add(duration);
            }
            return;
        };
        // Earlier calls did not reply.
        let whole = &self.hist;
        let replied = self
            .replied
            .get_or_insert_with(|| Box::new((whole.clone(), Hist::default())));
        replied.0.add(until);
        replied.1.add(duration - until);
    }

    /// Add a call whose duration is a lower bound.
    pub(super) fn unfinished(&mut self, duration: u64) {
        self.hist.add(duration);
        self.unanswered += 1;
        self.least = Some(self.least.map_or(duration, |least| least.min(duration)));
    }

    /// Add a request. `taken`: cost of recording in it in ns, to be subtracted.
    pub(super) fn request(&mut self, story: &Story, from: Option<u64>, to: u64, taken: u64) {
        self.entries += 1;
        let since = |from| to.saturating_sub(from).saturating_sub(taken);
        match from.filter(|_| story.until != ABSENT) {
            Some(from) if story.is_unanswered() => self.unfinished(since(from)),
            Some(from) => self.hist.add(since(from)),
            None => self.unmatched += 1,
        }
    }
}

/// Function of the catalogue.
pub(super) struct Function {
    pub(super) layer: Layer,
    pub(super) name: String,
    pub(super) operation: String,
    pub(super) named: Operation,
    /// The recording can show its return; only then is an entry open.
    pub(super) returns: bool,
    /// Address, if recorded by function_graph.
    pub(super) address: Option<u64>,
    /// Index into `Columns::functions`.
    pub(super) column: u32,
    /// Number of unmatched calls, each once.
    pub(super) lost: u64,
    /// Tallies by operation; UNKNOWN: the operation of the name, if any.
    pub(super) tallies: Vec<(Operation, Box<Tally>)>,
}

impl Function {
    /// Return the operations for which a call counts. `requested`: operations of the requests that it made, as bits.
    pub(super) fn operations(
        &self,
        by_operation: bool,
        requested: u128,
    ) -> impl Iterator<Item = Operation> {
        let named = self.named;
        let known = if by_operation { requested } else { 0 };
        let none = (known == 0).then_some(Operation::UNKNOWN);
        Operation::of_bits(known)
            .map(move |operation| {
                if operation == named {
                    Operation::UNKNOWN
                } else {
                    operation
                }
            })
            .chain(none)
    }

    pub(super) fn tally(&mut self, operation: Operation) -> &mut Tally {
        let known = self.tallies.iter().position(|(of, _)| *of == operation);
        let at = known.unwrap_or_else(|| {
            self.tallies.push((operation, Box::default()));
            self.tallies.len() - 1
        });
        &mut self.tallies[at].1
    }
}
