//! Puts the parts of the file back in order, and their events in time order.

use std::collections::VecDeque;

use super::*;

/// Receiver of complete batches.
pub(super) trait Sink {
    fn take(&mut self, batch: Batch);
}

impl Sink for &mut dyn FnMut(Batch) {
    fn take(&mut self, batch: Batch) {
        self(batch);
    }
}

impl Sink for Vec<Batch> {
    fn take(&mut self, batch: Batch) {
        self.push(batch);
    }
}

/// Return the latest time in a batch.
pub(super) fn latest(batch: &Batch) -> u64 {
    let event = batch.events.last().map_or(0, |event| event.time);
    event.max(batch.side.last().map_or(0, side_time))
}

/// Time up to which a file's rounds show that nothing is missing.
#[derive(Default)]
pub(super) struct Rounds {
    /// Latest time seen, and latest time in the last round.
    latest: u64,
    last: u64,
    /// Time up to which everything should have come.
    pub(super) complete: u64,
    /// Latest time before the end of the second round. Every later time in the file is at or after the first round's,
    /// also if the first round's beginning was not read.
    pub(super) second: Option<u64>,
}

impl Rounds {
    pub(super) fn saw(&mut self, time: u64) {
        self.latest = self.latest.max(time);
    }

    pub(super) fn ended(&mut self) {
        if self.complete > 0 {
            self.second.get_or_insert(self.last);
        }
        self.complete = self.last;
        self.last = self.latest;
    }
}

/// Collector that puts parts in time order and hands batches on.
pub(super) struct Order<S> {
    pub(super) sink: S,
    /// Events of each part, sorted.
    pub(super) events: VecDeque<Vec<Ev>>,
    pub(super) side: Vec<Side>,
    pub(super) stacks: Stacks,
    /// By row of the catalogue: its events have a stack.
    pub(super) stacked: Vec<bool>,
    pub(super) rounds: Rounds,
    /// Latest time handed on.
    pub(super) handed: u64,
    /// Number of events older than what was handed on already.
    pub(super) late: u64,
    /// Places of the parts so far. None if not requested, or if no part can be read without those before it.
    pub(super) places: Option<Vec<Place>>,
    pub(super) tally: Tally,
    pub(super) warnings: Vec<String>,
}

impl<S: Sink> Order<S> {
    pub(super) fn new(events: usize, sink: S) -> Order<S> {
        Order {
            sink,
            events: VecDeque::new(),
            side: Vec::new(),
            stacks: Stacks::default(),
            stacked: Vec::new(),
            rounds: Rounds::default(),
            handed: 0,
            late: 0,
            places: None,
            tally: Tally {
                counts: vec![0; events],
                ..Tally::default()
            },
            warnings: Vec::new(),
        }
    }

    pub(super) fn ends(&self, part: &Part) -> bool {
        !matches!(part.end, End::More)
    }

    /// Note the place of the next part in the file. Drop the places if the part has older times than rounds allow: the
    /// order of the events then depends on how much is handed on at a time.
    pub(super) fn note(&mut self, part: &Part, bytes: Range<usize>) {
        self.places
            .take_if(|_| part.earliest() <= self.rounds.complete);
        if let Some(places) = &mut self.places {
            Place::note(places, part, bytes);
        }
    }

    /// Add the next part. Return a place if it stopped at a compressed record.
    pub(super) fn add(&mut self, mut part: Part) -> Option<usize> {
        self.tally.add(&part.tally);
        self.number_stacks(&mut part);
        // At a round, everything up to the end of the round before is complete. Waiting longer is always right, so
        // process a part's rounds together.
        for latest in &part.rounds {
            self.rounds.saw(*latest);
            self.rounds.ended();
        }
        self.rounds.saw(part.max);
        if !part.events.is_empty() {
            self.events.push_back(part.events);
        }
        let handed = self.handed;
        self.side.extend(part.side.into_iter().map(|mut side| {
            // perf makes up records of tasks that ran before; these have no time.
            if handed > 0 && *side_time_mut(&mut side) == 0 {
                *side_time_mut(&mut side) = handed;
            }
            side
        }));
        let events: usize = self.events.iter().map(Vec::len).sum();
        let many = events + self.side.len() >= BATCH;
        if many && self.rounds.complete > 0 && !part.rounds.is_empty() {
            self.hand(self.rounds.complete);
        }
        match part.end {
            End::More | End::Cut => None,
            End::Compressed => Some(part.next),
            End::Damaged(what) => {
                self.warnings.push(what);
                None
            }
        }
    }

    /// Replace a chunk's own numbers of stacks by those of the whole recording.
    pub(super) fn number_stacks(&mut self, part: &mut Part) {
        self.stacks.left_out += part.stacks.left_out;
        let new = std::mem::take(&mut part.stacks.new);
        if new.is_empty() {
            return;
        }
        let numbers: Vec<u64> = new
            .into_iter()
            .map(|chain| self.stacks.add(chain))
            .collect();
        for event in &mut part.events {
            if self.stacked[event.kind as usize] {
                let number = numbers.get(event.v[3] as usize);
                event.v[3] = number.copied().unwrap_or(ABSENT);
            }
        }
    }

    /// Hand on everything up to a time, sorted; in file order at equal times. Parts whose times do not overlap are handed
    /// on as they are.
    pub(super) fn hand(&mut self, upto: u64) {
        self.side.sort_by_key(side_time);
        let ends = self.events.iter().map(|part| part.last().map(|ev| ev.time));
        let begins = self
            .events
            .iter()
            .map(|part| part.first().map(|ev| ev.time));
        if !ends.zip(begins.skip(1)).all(|(end, begin)| end <= begin) {
            let mut all: Vec<Ev> = self.events.drain(..).flatten().collect();
            all.sort_by_key(|event| event.time);
            self.events.push_back(all);
        }
        let due = |part: &Vec<Ev>| part.first().is_some_and(|event| event.time <= upto);
        while self.events.front().is_some_and(due) {
            let mut events = self.events.pop_front().unwrap_or_default();
            let later = events.split_off(events.partition_point(|event| event.time <= upto));
            if !later.is_empty() {
                self.events.push_front(later);
            }
            let until = match (
                events.last(),
                self.events.front().and_then(|part| part.first()),
            ) {
                // Events of the same time belong to one batch.
                (Some(last), Some(next)) if last.time == next.time => {
                    let next = self.events.pop_front().unwrap_or_default();
                    events.extend(next);
                    self.events.push_front(events);
                    continue;
                }
                (Some(last), Some(next)) if next.time <= upto => last.time,
                _ => upto,
            };
            self.hand_batch(events, until);
        }
        self.hand_batch(Vec::new(), upto);
    }

    /// Hand on events, and the other records up to a time.
    fn hand_batch(&mut self, events: Vec<Ev>, upto: u64) {
        let later = self
            .side
            .split_off(self.side.partition_point(|side| side_time(side) <= upto));
        let side = std::mem::replace(&mut self.side, later);
        if events.is_empty() && side.is_empty() {
            return;
        }
        let handed = self.handed;
        self.late += events.partition_point(|event| event.time < handed) as u64;
        self.late += side.partition_point(|side| side_time(side) < handed) as u64;
        let batch = Batch {
            events,
            side,
            stacks: std::mem::take(&mut self.stacks.new),
        };
        self.handed = handed.max(latest(&batch));
        self.sink.take(batch);
    }

    pub(super) fn finish(mut self) -> (ScanInfo, Option<Vec<Place>>) {
        self.hand(u64::MAX);
        let tally = self.tally;
        let mut warnings = self.warnings;
        let mut warn = |n: u64, what: &str| {
            if n > 0 {
                warnings.push(format!("{n} {what}"));
            }
        };
        warn(
            tally.unknown,
            "samples are of no event that this file lists: left out",
        );
        warn(
            tally.broken,
            "records contradict their own layout: left out",
        );
        warn(tally.untimed, "samples have no time: left out");
        warn(
            self.stacks.left_out,
            "times a stack was left out: there are too many different ones",
        );
        warn(
            self.late,
            "events came out of time order: they are in the file later than perf's rounds allow",
        );
        let info = ScanInfo {
            first: tally.first.unwrap_or(0),
            last: tally.last,
            lost: tally.lost(),
            counts: tally.counts,
            throttled: tally.throttled,
            warnings,
        };
        (info, self.places)
    }
}
