//! Cuts a request's story into stages.
//!
//! A stage lies between two marks. A stage whose mark was not seen is joined with its neighbour and has both names, so
//! a request's stages always make up its whole.

use super::{Mark, Story};
use crate::cost::{Cost, Met, OF_CALLBACK};
use crate::events::ABSENT;

/// Marks between which the stages lie. In place of the first, `Resumed` if it is there; of the last, `Leaves`.
const BOUNDS: &[Mark] = &[
    Mark::SysEnter,
    Mark::KernelEnter,
    Mark::Begin,
    Mark::Read,
    Mark::CallbackEnter,
    Mark::Reply,
    Mark::End,
    Mark::Runs,
    Mark::SysExit,
];
const BEGIN: usize = bound(Mark::Begin);
const READ: usize = bound(Mark::Read);
const CALLBACK: usize = bound(Mark::CallbackEnter);
const REPLY: usize = bound(Mark::Reply);
const END: usize = bound(Mark::End);

/// Return a mark's place in BOUNDS.
const fn bound(mark: Mark) -> usize {
    let mut at = 0;
    while BOUNDS[at] as usize != mark as usize {
        at += 1;
    }
    at
}

/// Stages from each bound to the next.
pub const STAGES: [&str; BOUNDS.len() - 1] = [
    "vfs_entry",
    "setup",
    "queue",
    "dispatch",
    "daemon",
    "reply",
    "caller_wakeup",
    "vfs_exit",
];
const QUEUE: usize = stage("queue");
const DAEMON: usize = stage("daemon");
const WAKEUP: usize = stage("caller_wakeup");

/// Return a stage's place in STAGES.
const fn stage(name: &str) -> usize {
    let mut at = 0;
    while !equal(STAGES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Name in place of `vfs_entry`: the time since the caller's last request in the same system call, or since its last
/// wait for something else after that.
pub const BETWEEN: &str = "between";

/// Name in place of `reply`: the time since the kernel refused the answer.
pub const REFUSED: &str = "refused";

/// Return the mark of a bound.
fn mark_of(bound: usize, story: &Story) -> Mark {
    let instead = match BOUNDS[bound] {
        Mark::SysEnter => Mark::Resumed,
        Mark::SysExit => Mark::Leaves,
        mark => return mark,
    };
    story.at(instead).map_or(BOUNDS[bound], |_| instead)
}

/// Stage from one bound to another. `resumed`: it is not the first of its system call; or, at the reply, an answer was
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stage {
    pub from: u8,
    pub resumed: bool,
    pub to: u8,
}

impl Stage {
    /// Return the name: "queue", or "queue+dispatch" if the two cannot be separated.
    pub fn name(&self) -> String {
        let names = (usize::from(self.from)..usize::from(self.to)).map(|at| match at {
            0 if self.resumed => BETWEEN,
            REPLY if self.resumed => REFUSED,
            _ => STAGES[at],
        });
        names.collect::<Vec<_>>().join("+")
    }

    fn is(&self, stage: usize) -> bool {
        (self.from as usize, self.to as usize) == (stage, stage + 1)
    }

    /// Return whether the stage is the work of the daemon's threads: from the queue to the reply.
    pub fn is_the_daemons(&self) -> bool {
        usize::from(self.from) >= BEGIN && usize::from(self.to) <= END
    }

    /// Return whether it begins with the request's end: its caller runs again.
    pub(crate) fn is_the_callers_again(&self) -> bool {
        usize::from(self.from) == END
    }

    /// Return how the stage's thread spent the time, in ns; None if unknown.
    ///
    /// Queue: no thread free; that thread without a CPU; one being woken up. Daemon: asleep; runnable without a CPU;
    /// left by its thread. Caller's wake-up: runnable without a CPU. Other stages: asleep; runnable without a CPU. The
    /// rest of the stage is copying, on a CPU, or waking.
    pub fn parts(&self, story: &Story) -> Option<[u64; 3]> {
        if self.is(QUEUE) {
            let parts = [story.no_thread, story.no_cpu, story.asleep];
            return Some(parts).filter(|parts| parts[0] != ABSENT);
        }
        if usize::from(self.from) == REPLY && self.resumed {
            return None;
        }
        if self.is(DAEMON) {
            let parts = [story.blocked, story.runnable, story.elsewhere];
            return Some(parts).filter(|parts| !parts.contains(&ABSENT));
        }
        if self.is(WAKEUP) {
            return Some([story.late, 0, 0]).filter(|parts| parts[0] != ABSENT);
        }
        let (from, to) = (usize::from(self.from), usize::from(self.to));
        // Both marks are of the caller, or of one thread of the daemon.
        let same_thread = to <= BEGIN || (from, to) == (READ, CALLBACK) || from > DAEMON;
        if !same_thread || (from <= END && to > END) {
            return None;
        }
        let idle = story.idle_between(mark_of(from, story), mark_of(to, story))?;
        Some([idle.blocked, idle.runnable, 0])
    }

    /// Name the parts of the stage, of which the last is the rest.
    pub fn named(&self, parts: [u64; 3], rest: u64) -> Vec<(&'static str, u64)> {
        let names = if self.is(QUEUE) {
            ["no_thread", "runnable", "wakeup", "copy"]
        } else if self.is(DAEMON) {
            ["blocked", "runnable", "elsewhere", "on_cpu"]
        } else if self.is(WAKEUP) {
            ["runnable", "", "", "wakeup"]
        } else {
            ["blocked", "runnable", "", "on_cpu"]
        };
        let named = names.into_iter().zip(parts.into_iter().chain([rest]));
        named.filter(|(name, _)| !name.is_empty()).collect()
    }

    /// Return the recorder's work in the stage on the threads that the request waits for.
    fn met(&self, story: &Story) -> Met {
        let from = match usize::from(self.from) {
            // Without a callback, the daemon's time begins with its read.
            CALLBACK if story.at(Mark::CallbackEnter).is_none() => READ,
            from => from,
        };
        let mut met = Met::default();
        for bound in from..usize::from(self.to) {
            met += met_after(story, bound);
        }
        met
    }

    /// Return the ns of the stage's blocked part that may be waiting for a CPU, since no wake-up was recorded.
    pub(crate) fn unsplit(&self, story: &Story) -> u64 {
        if self.is(QUEUE) || self.is(WAKEUP) {
            return 0;
        }
        if self.is(DAEMON) {
            return story.unsplit;
        }
        let (from, to) = (usize::from(self.from), usize::from(self.to));
        let idle = story.idle_between(mark_of(from, story), mark_of(to, story));
        idle.map_or(0, |idle| idle.unsplit)
    }
}

/// Limit each part to what is left of the whole. Return also the rest.
pub fn limited(mut parts: [u64; 3], whole: u64) -> ([u64; 3], u64) {
    let mut rest = whole;
    for part in &mut parts {
        *part = (*part).min(rest);
        rest -= *part;
    }
    (parts, rest)
}

/// Stage of one request: its ns, the recorder's work in it, and the ns that `Cut::less` subtracted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) stage: Stage,
    pub(crate) ns: u64,
    pub(crate) met: Met,
    pub(crate) taken: u64,
}

/// Stages of a request in order, each with its ns. `total` is their sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    pieces: [Piece; STAGES.len()],
    len: usize,
    pub total: u64,
}

impl Cut {
    /// Cut a request that has begun and whose end is known. An asynchronous request lasts from its begin to its end. An
    /// unanswered one lasts until it was over, and ends in the stage in which it was. Without a callback, the daemon's
    /// time runs from its read to its reply.
    pub fn new(story: &Story) -> Cut {
        let mut cut = Cut::default();
        let last = match story.is_unanswered() {
            true => BOUNDS.iter().position(|mark| *mark == story.next),
            false => None,
        };
        let last = last.unwrap_or(END).clamp(BEGIN + 1, END);
        let range = match (story.waits, story.is_unanswered()) {
            (true, false) => 0..BOUNDS.len(),
            (true, true) => 0..last + 1,
            (false, _) => BEGIN..last + 1,
        };
        let begin = story.at(Mark::Begin).unwrap_or(0);
        let end = match story.until {
            ABSENT => story.at(Mark::End).unwrap_or(begin),
            until => until,
        };
        let mut before: Option<(usize, bool, u64)> = None;
        for bound in range {
            let mut resumed = bound == 0 && story.at(Mark::SysEnter).is_none();
            let time = match story.is_unanswered() && bound == last {
                true => Some(end),
                false => story.at(mark_of(bound, story)),
            };
            let Some(time) = time else { continue };
            resumed |= bound == REPLY && story.refused != 0;
            // Ignore a mark that contradicts the others.
            let fits = match bound {
                ..BEGIN => time <= begin,
                BEGIN..=END => (begin..=end).contains(&time),
                _ => time >= end,
            };
            if !fits || before.is_some_and(|(_, _, earlier)| time < earlier) {
                continue;
            }
            // Nothing after it is its own.
            let none = mark_of(bound, story) == Mark::Leaves;
            if none && before.is_some_and(|(_, _, earlier)| time == earlier) {
                continue;
            }
            if let Some((mut from, since, earlier)) = before {
                if from == READ && bound > CALLBACK {
                    from = CALLBACK;
                }
                let stage = Stage {
                    from: from as u8,
                    resumed: since,
                    to: bound as u8,
                };
                cut.pieces[cut.len] = Piece {
                    stage,
                    ns: time - earlier,
                    met: stage.met(story),
                    taken: 0,
                };
                cut.len += 1;
                cut.total += time - earlier;
            }
            before = Some((bound, resumed, time));
        }
        cut
    }

    /// Subtract the cost of recording from each stage, at most the whole stage.
    pub fn less(mut self, cost: Cost) -> Cut {
        for piece in &mut self.pieces[..self.len] {
            let taken = piece.met.taken(cost, piece.ns);
            piece.ns -= taken;
            piece.taken += taken;
            self.total -= taken;
        }
        self
    }

    /// Return the ns of the stages before the request's begin.
    pub(crate) fn before_begin(&self) -> u64 {
        let before = self
            .pieces()
            .filter(|piece| usize::from(piece.stage.to) <= BEGIN);
        before.map(|piece| piece.ns).sum()
    }

    pub fn stages(&self) -> impl Iterator<Item = (Stage, u64)> + '_ {
        self.pieces().map(|piece| (piece.stage, piece.ns))
    }

    /// Return the ns that `less` subtracted from the stages between two of the bounds.
    pub fn taken(&self, from: Mark, to: Mark) -> u64 {
        let bound = |mark| BOUNDS.iter().position(|bound| *bound == mark);
        let (from, to) = (bound(from).unwrap_or(0), bound(to).unwrap_or(0));
        let within = |stage: Stage| usize::from(stage.from) >= from && usize::from(stage.to) <= to;
        let pieces = self.pieces().filter(|piece| within(piece.stage));
        pieces.map(|piece| piece.taken).sum()
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces[..self.len].iter()
    }
}

/// Return the recorder's work between a bound and the next.
fn met_after(story: &Story, bound: usize) -> Met {
    let seen = |mark: Mark| u64::from(story.at(mark).is_some());
    let callback = seen(Mark::CallbackEnter);
    let (events, quarters) = match BOUNDS[bound] {
        Mark::SysEnter => (u64::from(story.before), 0),
        // For queueing and waking, and for the switch to the daemon's thread.
        Mark::Begin => (1 + 2 * seen(Mark::DaemonWaking), 0),
        Mark::Read => (1, callback),
        Mark::CallbackEnter => (u64::from(story.inside), OF_CALLBACK * callback),
        Mark::Reply => (seen(Mark::Reply), callback),
        Mark::End => (1 + 2 * seen(Mark::Waking), 0),
        Mark::Runs => (u64::from(story.after), 0),
        _ => (0, 0),
    };
    Met { events, quarters }
}
