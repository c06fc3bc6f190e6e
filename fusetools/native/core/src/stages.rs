//! Where requests' time goes: their stories cut into stages and added up.
//!
//! A stage lies between two marks. One whose mark was not seen is joined to its neighbour and is of both their names,
//! so a request's stages always make up its whole.

use rustc_hash::FxHashMap;

use crate::analysis::RequestCounts;
use crate::cost::{Cost, Met, OF_CALLBACK};
use crate::error::Error;
use crate::events::{Meaning, ABSENT};
use crate::filters::Filters;
use crate::hist::Hist;
use crate::operations::Operation;
use crate::reader::{Reader, ScanInfo};
use crate::stitch::{self, Fate, Mark, Story, FATES};

/// The marks between which the stages lie; the first is `Resumed` for a further request of a system call.
const BOUNDS: [Mark; 9] = [
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
const BEGIN: usize = 2;
const READ: usize = 3;
const CALLBACK: usize = 4;
const END: usize = 6;

/// What lies between a bound and the next.
pub const STAGES: [&str; 8] = [
    "vfs_entry",
    "setup",
    "queue",
    "dispatch",
    "daemon",
    "reply",
    "caller_wakeup",
    "vfs_exit",
];
const QUEUE: usize = 2;
const DAEMON: usize = 4;
const WAKEUP: usize = 6;
/// In the place of `vfs_entry`: since the caller's last request in the same system call.
pub const BETWEEN: &str = "between";

/// From one bound to another; `resumed`: the first is `Mark::Resumed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stage {
    pub from: u8,
    pub resumed: bool,
    pub to: u8,
}

impl Stage {
    /// "queue"; "queue+dispatch" where they cannot be told apart.
    pub fn name(&self) -> String {
        let names = (self.from..self.to).map(|at| match at {
            0 if self.resumed => BETWEEN,
            _ => STAGES[at as usize],
        });
        names.collect::<Vec<_>>().join("+")
    }

    fn is(&self, stage: usize) -> bool {
        (self.from as usize, self.to as usize) == (stage, stage + 1)
    }

    /// From the queue to the reply: what the daemon's threads do.
    pub fn is_the_daemons(&self) -> bool {
        usize::from(self.from) >= BEGIN && usize::from(self.to) <= END
    }

    /// What its thread did: of the queue no thread free, that thread without a CPU, one being woken up; of the daemon
    /// asleep, ready but without a CPU, with another thread; of the caller's waking ready but without a CPU; of the
    /// others asleep, ready but without a CPU. The rest of the stage is copying, on a CPU, and waking. ns; None where
    /// it is not known.
    pub fn parts(&self, story: &Story) -> Option<[u64; 3]> {
        if self.is(QUEUE) {
            let parts = [story.no_thread, story.no_cpu, story.asleep];
            return Some(parts).filter(|parts| parts[0] != ABSENT);
        }
        if self.is(DAEMON) {
            let parts = [story.blocked, story.runnable, story.elsewhere];
            return Some(parts).filter(|parts| !parts.contains(&ABSENT));
        }
        if self.is(WAKEUP) {
            return Some([story.late, 0, 0]).filter(|parts| parts[0] != ABSENT);
        }
        let (from, to) = (usize::from(self.from), usize::from(self.to));
        // Of the caller, or of one thread of the daemon.
        let one = to <= BEGIN || (from, to) == (READ, CALLBACK) || from > DAEMON;
        if !one || (from <= END && to > END) {
            return None;
        }
        let from = match from {
            0 if self.resumed => Mark::Resumed,
            from => BOUNDS[from],
        };
        let idle = story.idle_between(from, BOUNDS[to])?;
        Some([idle.blocked, idle.runnable, 0])
    }

    /// What the threads that the request waits for meet of the recorder in it.
    fn met(&self, story: &Story) -> Met {
        let from = match usize::from(self.from) {
            // Where there is no callback, the daemon's time begins with its read.
            CALLBACK if story.at(Mark::CallbackEnter).is_none() => READ,
            from => from,
        };
        let mut met = Met::default();
        for bound in from..usize::from(self.to) {
            met += met_after(story, bound);
        }
        met
    }

    /// ns of a stage's blocked part that may be waiting for a CPU: no wake-up was recorded.
    fn unsplit(&self, story: &Story) -> u64 {
        if self.is(DAEMON) {
            return story.unsplit;
        }
        let (from, to) = (usize::from(self.from), usize::from(self.to));
        let from = match from {
            0 if self.resumed => Mark::Resumed,
            from => BOUNDS[from],
        };
        let idle = story.idle_between(from, BOUNDS[to]);
        idle.map_or(0, |idle| idle.unsplit)
    }
}

/// A stage of one request: its ns, what of the recorder lies in it, and the ns that `Cut::less` took of it.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    stage: Stage,
    ns: u64,
    met: Met,
    taken: u64,
}

/// A request's stages in order, each with its ns. `total` is their sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    pieces: [Piece; 8],
    len: usize,
    pub total: u64,
}

impl Cut {
    /// Of a request that has begun, and of which it is known when it was over. Of one that nobody waits for: from its
    /// begin to its end. Of one that was not answered: up to when it was over, in the stage in which it was. Where
    /// there is no callback, the daemon's time is that from its read to its reply.
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
            let mut resumed = false;
            let time = match story.is_unanswered() && bound == last {
                true => Some(end),
                false => story.at(BOUNDS[bound]).or_else(|| {
                    resumed = bound == 0;
                    story.at(Mark::Resumed).filter(|_| bound == 0)
                }),
            };
            let Some(time) = time else { continue };
            // A mark that contradicts the others is none.
            let fits = match bound {
                ..BEGIN => time <= begin,
                BEGIN..=END => (begin..=end).contains(&time),
                _ => time >= end,
            };
            if !fits || before.is_some_and(|(_, _, earlier)| time < earlier) {
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

    /// Without what recording took of each stage, of none more than there is.
    pub fn less(mut self, cost: Cost) -> Cut {
        for piece in &mut self.pieces[..self.len] {
            let taken = piece.met.taken(cost, piece.ns);
            piece.ns -= taken;
            piece.taken += taken;
            self.total -= taken;
        }
        self
    }

    pub fn stages(&self) -> impl Iterator<Item = (Stage, u64)> + '_ {
        self.pieces().map(|piece| (piece.stage, piece.ns))
    }

    /// ns that `less` took of the stages between two of the bounds.
    pub fn taken(&self, from: Mark, to: Mark) -> u64 {
        let bound = |mark| BOUNDS.iter().position(|bound| *bound == mark);
        let (from, to) = (bound(from).unwrap_or(0), bound(to).unwrap_or(0));
        let within = |stage: Stage| usize::from(stage.from) >= from && usize::from(stage.to) <= to;
        let pieces = self.pieces().filter(|piece| within(piece.stage));
        pieces.map(|piece| piece.taken).sum()
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces[..self.len].iter()
    }
}

/// What to tell requests of one operation apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Operation,
    /// The caller's name, its process, the daemon's thread, the connection, the size in bytes.
    Comm,
    Pid,
    DaemonThread,
    Mount,
    Size,
}

/// Durations: as they are while they are few, since there may be many of these; and then some at a time, since a
/// histogram is large and the next one's turn comes at once.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    some: Vec<u64>,
    hist: Option<Box<Hist>>,
}

const SOME: usize = 1024;

impl Durations {
    fn add(&mut self, ns: u64) {
        if self.some.len() == SOME {
            let hist = self.hist.get_or_insert_default();
            self.some.drain(..).for_each(|ns| hist.add(ns));
        }
        self.some.push(ns);
    }

    pub fn hist(&self) -> Hist {
        let mut hist = self.hist.as_deref().cloned().unwrap_or_default();
        self.some.iter().for_each(|ns| hist.add(*ns));
        hist
    }
}

/// What part of a stage went where, ns, over the requests of which it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub requests: u64,
    /// As `Stage::parts`.
    pub ns: [u64; 3],
    /// Of a first part that is blocked: without a recorded wake-up.
    pub unsplit: u64,
    /// What is left of the stage.
    pub rest: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub durations: Durations,
    pub parts: Parts,
    /// What of the recorder lies in it, and the ns that this took, by `Filters::cost`.
    pub met: Met,
    pub taken: u64,
}

/// The requests of one operation, those with a waiting caller and those without apart; or those of one key.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// By fate, as in FATES.
    pub fates: [u64; FATES.len()],
    pub errors: u64,
    /// Answered by io_uring.
    pub ring: u64,
    /// Another thread of the daemon worked on it than the one that read it: which is not known.
    pub handed: u64,
    pub total: Durations,
    /// The shortest of those without an answer, ns: what is longer is what they took at least.
    pub least: Option<u64>,
    /// In the order of the bounds once it is handed out.
    pub stages: Vec<(Stage, Tally)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub operation: Operation,
    pub waits: bool,
    /// What `By` asks for; ABSENT where it is not known.
    pub key: u64,
}

/// The answer.
pub struct Stages {
    pub groups: Vec<(Key, Group)>,
    /// Names of callers, by a group's key.
    pub comms: Vec<String>,
    pub requests: RequestCounts,
    /// ns that an event costs at most; None where it cannot be told.
    pub event_cost: Option<u64>,
}

/// More groups than anybody reads; further keys count for ABSENT.
const MOST_GROUPS: usize = 10_000;

/// Reads a recording and adds its requests' stages up.
pub fn stages(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    by: By,
) -> Result<(ScanInfo, Stages), Error> {
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    let mut requests = RequestCounts::default();
    let (cost, corrected) = (filters.cost.unwrap_or_default(), filters.less().is_some());
    let told = stitch::stories(reader, catalogue, filters, &mut |story, _| {
        requests.add(story);
        let mut key = Key {
            operation: story.operation,
            // One that has not ended may yet be waited for.
            waits: story.waits || (story.fate != Fate::Matched && story.operation.has_caller()),
            key: key(story, by),
        };
        if groups.len() >= MOST_GROUPS && !groups.contains_key(&key) {
            key.key = ABSENT;
        }
        groups.entry(key).or_default().add(story, cost, corrected);
    })?;
    let mut groups: Vec<(Key, Group)> = groups.into_iter().collect();
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, group) in &mut groups {
        group.stages.sort_by_key(|(stage, _)| *stage);
    }
    Ok((
        told.info,
        Stages {
            groups,
            comms: told.comms,
            requests,
            event_cost: told.event_cost,
        },
    ))
}

fn key(story: &Story, by: By) -> u64 {
    match by {
        By::Operation => ABSENT,
        By::Comm => u64::from(story.comm),
        By::Pid => u64::try_from(story.pid).unwrap_or(ABSENT),
        By::DaemonThread => u64::try_from(story.daemon_tid).unwrap_or(ABSENT),
        By::Mount => story.connection,
        By::Size => size(story),
    }
}

/// Bytes read or written, rounded down to a power of two: as the callback is asked for, else as they came.
fn size(story: &Story) -> u64 {
    // struct fuse_out_header; fuse_in_header and fuse_write_in (include/uapi/linux/fuse.h).
    const OUT: u64 = 16;
    const WRITE: u64 = 80;
    let bytes = match (story.size, story.request_len, story.reply_len) {
        (ABSENT, len, _) if story.operation.name() == "write" && len != ABSENT => {
            len.saturating_sub(WRITE)
        }
        (ABSENT, _, ABSENT) => return ABSENT,
        (ABSENT, _, len) => len.saturating_sub(OUT),
        (size, ..) => size,
    };
    match bytes.checked_ilog2() {
        Some(log) => 1 << log,
        None => 0,
    }
}

impl Group {
    fn add(&mut self, story: &Story, cost: Cost, corrected: bool) {
        self.fates[story.fate as usize] += 1;
        if !story.counts() {
            return;
        }
        self.errors += u64::from(story.error != 0);
        self.ring += u64::from(story.ring);
        self.handed += u64::from(story.handed);
        let recorded = Cut::new(story);
        let less = recorded.less(cost);
        let cut = if corrected { less } else { recorded };
        self.total.add(cut.total);
        if story.is_unanswered() {
            self.least = Some(self.least.map_or(cut.total, |least| least.min(cut.total)));
        }
        for (Piece { stage, ns, .. }, piece) in cut.pieces().copied().zip(less.pieces()) {
            let tally = self.tally(stage);
            tally.durations.add(ns);
            if let Some(parts) = stage.parts(story) {
                tally.parts.add(ns, parts);
                if !stage.is(QUEUE) && !stage.is(WAKEUP) {
                    tally.parts.unsplit += stage.unsplit(story).min(parts[0]).min(ns);
                }
            }
            tally.met += piece.met;
            tally.taken += piece.taken;
        }
    }

    fn tally(&mut self, stage: Stage) -> &mut Tally {
        let at = self.stages.iter().position(|(of, _)| *of == stage);
        let at = at.unwrap_or_else(|| {
            self.stages.push((stage, Tally::default()));
            self.stages.len() - 1
        });
        &mut self.stages[at].1
    }
}

impl Parts {
    fn add(&mut self, whole: u64, parts: [u64; 3]) {
        self.requests += 1;
        let mut rest = whole;
        for (sum, part) in self.ns.iter_mut().zip(parts) {
            // Never more than there is.
            let part = part.min(rest);
            *sum += part;
            rest -= part;
        }
        self.rest += rest;
    }
}

/// What is met between a bound and the next.
fn met_after(story: &Story, bound: usize) -> Met {
    let seen = |mark: Mark| u64::from(story.at(mark).is_some());
    let callback = seen(Mark::CallbackEnter);
    let (events, quarters) = match bound {
        0 => (u64::from(story.before), 0),
        // Of the queueing and waking, and of the switch to the daemon's thread.
        2 => (1 + 2 * seen(Mark::DaemonWaking), 0),
        3 => (1, callback),
        4 => (u64::from(story.inside), OF_CALLBACK * callback),
        5 => (seen(Mark::Reply), callback),
        6 => (1 + 2 * seen(Mark::Waking), 0),
        7 => (u64::from(story.after), 0),
        _ => (0, 0),
    };
    Met { events, quarters }
}
