//! Numbers of requests that wait for the daemon and of its busy threads, over time.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::answers::told::known;
use crate::events::{Ev, Role, ABSENT};
use crate::requests::named::{at_work, Known, Listener};
use crate::requests::stitch::{Cut, Mark};

/// Maximum number of mounts; further ones count with the last.
const MOST_MOUNTS: usize = 1 << 12;

/// Requests in the queue and busy threads of the daemon from `time` on, ns on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub time: u64,
    pub queued: u32,
    pub busy: u32,
}

/// One mount's daemon.
#[derive(Debug, Serialize)]
pub struct Queue {
    /// ABSENT if unknown.
    #[serde(serialize_with = "known")]
    pub connection: u64,
    /// Requests sent to the daemon, and its threads that served any.
    pub requests: u64,
    pub threads: u64,
    /// Requests without a reply; with an unknown time of reading; answered by another thread than the one that read
    /// them.
    pub unanswered: u64,
    pub unread: u64,
    pub handed: u64,
    /// Requests whose reader continued with others and never answered them; requests whose answer the kernel refused.
    pub dropped: u64,
    pub refused: u64,
    /// Requests answered through io_uring, which only the thread of their ring could take.
    pub ring: u64,
    /// Part of `total` in which the thread that had the request was runnable without a CPU.
    #[serde(rename = "runnable_ns")]
    pub runnable: u64,
    /// Time of the requests from begin to end, ns; the part in the queue; the part of that while all threads were busy.
    /// A thread that has replied and only lacks a CPU to finish is not busy. If most requests go through io_uring:
    /// while the thread of their own ring was busy. Requests with an unknown time of reading are in none of these.
    #[serde(rename = "total_ns")]
    pub total: u64,
    #[serde(rename = "waited_ns")]
    pub waited: u64,
    #[serde(rename = "short_ns")]
    pub short: u128,
    /// Levels by time, one for each change.
    #[serde(skip)]
    pub levels: Vec<Level>,
}

/// Collector of `Queue`s. Takes 16 bytes for each change.
pub struct Queues {
    asleep: u64,
    replied: FxHashMap<i32, VecDeque<Replied>>,
    places: FxHashMap<u64, usize>,
    mounts: Vec<Mount>,
}

/// Reply of a daemon's thread: when its request ended, and the spans since then in which it was runnable without a CPU.
struct Replied {
    end: u64,
    gaps: Vec<(u64, u64)>,
}

/// Maximum number of replies of a thread to requests whose stories are not reported yet, and of gaps after a reply.
/// Beyond that, the thread counts as busy.
const MOST_REPLIED: usize = 64;
const MOST_GAPS: usize = 64;

struct Mount {
    connection: u64,
    requests: u64,
    threads: FxHashSet<i32>,
    unanswered: u64,
    unread: u64,
    handed: u64,
    dropped: u64,
    refused: u64,
    ring: u64,
    /// Time in ns that requests by io_uring spent in the queue while the thread that took them was busy.
    ring_short: u64,
    runnable: u64,
    total: u64,
    waited: u64,
    /// Time, and changes of: the queue, the busy threads, and the busy threads if none had lacked a CPU after its
    /// reply. And: the thread.
    changes: Vec<(u64, i8, i8, i8, i32)>,
}

impl Queues {
    /// Start without queues. `asleep`: `stitch::asleep` of the recording.
    pub fn new(asleep: u64) -> Queues {
        Queues {
            asleep,
            replied: FxHashMap::default(),
            places: FxHashMap::default(),
            mounts: Vec::new(),
        }
    }

    fn last_reply(&mut self, tid: u64) -> Option<&mut Replied> {
        self.replied.get_mut(&(tid as i32))?.back_mut()
    }

    fn mount<'a>(
        places: &mut FxHashMap<u64, usize>,
        mounts: &'a mut Vec<Mount>,
        connection: u64,
    ) -> &'a mut Mount {
        let known = mounts.len();
        let new = known.min(MOST_MOUNTS - 1);
        let place = *places.entry(connection).or_insert(new);
        if place == known {
            mounts.push(Mount {
                connection,
                requests: 0,
                threads: FxHashSet::default(),
                unanswered: 0,
                unread: 0,
                handed: 0,
                dropped: 0,
                refused: 0,
                ring: 0,
                ring_short: 0,
                runnable: 0,
                total: 0,
                waited: 0,
                changes: Vec::new(),
            });
        }
        &mut mounts[place]
    }

    /// Return the queues, most requests first.
    pub fn finish(self) -> Vec<Queue> {
        let mut queues: Vec<Queue> = self.mounts.into_iter().map(Mount::finish).collect();
        queues.sort_by_key(|queue| std::cmp::Reverse(queue.requests));
        queues
    }
}

impl Mount {
    fn finish(mut self) -> Queue {
        self.changes.sort_unstable();
        let mut levels: Vec<Level> = Vec::new();
        let threads = self.threads.len() as u64;
        let (mut queued, mut busy, mut held) = (0i64, 0i64, 0i64);
        let (mut short, mut since) = (0u128, 0);
        // A thread with several requests counts once. If threads hand requests on, the owner is unknown.
        let mut of_thread: FxHashMap<i32, (i64, i64)> = FxHashMap::default();
        for (time, more, work, hold, tid) in self.changes {
            if held >= threads as i64 {
                short += u128::from(time - since) * u128::from(queued.max(0) as u64);
            }
            since = time;
            queued += i64::from(more);
            if self.handed > 0 {
                busy += i64::from(work);
                held += i64::from(hold);
            } else if work != 0 || hold != 0 {
                let own = of_thread.entry(tid).or_default();
                busy -= own.0.signum();
                held -= own.1.signum();
                own.0 += i64::from(work);
                own.1 += i64::from(hold);
                busy += own.0.signum();
                held += own.1.signum();
            }
            let level = Level {
                time,
                queued: queued.max(0) as u32,
                busy: busy.max(0) as u32,
            };
            match levels.last_mut().filter(|last| last.time == time) {
                Some(last) => *last = level,
                None => levels.push(level),
            }
        }
        if 2 * self.ring > self.requests {
            short = u128::from(self.ring_short);
        }
        levels.dedup_by(|next, last| (next.queued, next.busy) == (last.queued, last.busy));
        Queue {
            connection: self.connection,
            requests: self.requests,
            threads,
            unanswered: self.unanswered,
            unread: self.unread,
            handed: self.handed,
            dropped: self.dropped,
            refused: self.refused,
            ring: self.ring,
            runnable: self.runnable,
            total: self.total,
            waited: self.waited,
            short,
            levels,
        }
    }
}

impl Listener for Queues {
    fn event(&mut self, ev: &Ev, role: Role) {
        match role {
            Role::End => {
                let replied = self.replied.entry(ev.tid).or_default();
                if replied.len() == MOST_REPLIED {
                    replied.pop_front();
                }
                replied.push_back(Replied {
                    end: ev.time,
                    gaps: Vec::new(),
                });
            }
            Role::Switch => {
                let [prev, state, next, _] = ev.v;
                if state & self.asleep == 0 {
                    if let Some(last) = self.last_reply(prev) {
                        if last.gaps.len() < MOST_GAPS && last.gaps.iter().all(|gap| gap.1 < ABSENT)
                        {
                            last.gaps.push((ev.time, ABSENT));
                        }
                    }
                }
                if let Some(gap) = self.last_reply(next).and_then(|last| last.gaps.last_mut()) {
                    gap.1 = gap.1.min(ev.time);
                }
            }
            _ => {}
        }
    }

    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let mount = Queues::mount(&mut self.places, &mut self.mounts, story.connection);
        let work = at_work(story);
        if let Some(begin) = story.at(Mark::Begin) {
            mount.requests += 1;
            mount.unanswered += u64::from(story.is_unanswered());
            mount.handed += u64::from(story.handed && !story.is_unanswered());
            mount.dropped += u64::from(story.dropped);
            mount.refused += u64::from(story.refused != 0);
            mount.ring += u64::from(story.ring);
            if story.ring && story.no_thread != ABSENT {
                mount.ring_short += story.no_thread;
            }
            let unread = story.is_unanswered() && story.next == Mark::Read;
            let left = match work {
                Some((from, _)) => Some(from.max(begin)),
                None => Some(story.until).filter(|_| unread),
            };
            if let Some(left) = left.filter(|_| story.counts()) {
                let end = story.until.max(begin);
                mount.changes.push((begin, 1, 0, 0, 0));
                mount.changes.push((left, -1, 0, 0, 0));
                mount.total += end - begin;
                mount.waited += left.min(end) - begin;
                let within = Cut::new(story);
                let lacked = within.stages().filter_map(|(stage, ns)| {
                    let parts = stage.parts(story).filter(|_| stage.is_the_daemons())?;
                    Some(parts[1].min(ns))
                });
                mount.runnable += lacked.sum::<u64>();
            } else {
                mount.unread += 1;
            }
        }
        if let Some((from, to)) = work {
            let tid = story.daemon_tid;
            mount.threads.insert(tid);
            mount.changes.push((from, 0, 1, 1, tid));
            let Some(to) = to else { return };
            mount.changes.push((to, 0, -1, 0, tid));
            // A thread that has replied and only lacks a CPU is not busy.
            let replied = self.replied.get(&story.daemon_tid).and_then(|replied| {
                let end = story.at(Mark::End)?;
                replied.iter().find(|replied| replied.end == end)
            });
            let mut done = to;
            for (lost, regained) in replied.map_or(&[][..], |replied| &replied.gaps) {
                if (from..to).contains(lost) {
                    let regained = (*regained).min(to);
                    mount.changes.push((*lost, 0, -1, 0, tid));
                    mount.changes.push((regained, 0, 1, 0, tid));
                    done = done.saturating_sub(regained.saturating_sub(*lost));
                }
            }
            mount.changes.push((done.max(from), 0, 0, -1, tid));
        }
    }
}

/// Levels in a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    pub mean_queued: f64,
    pub mean_busy: f64,
    pub most_queued: u32,
    pub most_busy: u32,
}

impl Queue {
    /// Split the time from the first change to the last into `parts` of equal length. Empty if the queue never changed.
    pub fn parts(&self, parts: usize) -> Vec<Part> {
        let (Some(first), Some(last)) = (self.levels.first(), self.levels.last()) else {
            return Vec::new();
        };
        let (first, span) = (first.time, u128::from(last.time - first.time));
        let bound = |part: usize| first + (span * part as u128 / parts as u128) as u64;
        let mut level = 0;
        let over = |part: usize| {
            let (from, to) = (bound(part), bound(part + 1));
            let mut sum = Part::default();
            let (mut queued, mut busy) = (0u128, 0u128);
            while let Some(at) = self.levels.get(level) {
                let next = self.levels.get(level + 1).map_or(to, |next| next.time);
                let (begin, end) = (at.time.max(from), next.min(to));
                let passed = u128::from(end.saturating_sub(begin));
                queued += passed * u128::from(at.queued);
                busy += passed * u128::from(at.busy);
                if passed > 0 {
                    sum.most_queued = sum.most_queued.max(at.queued);
                    sum.most_busy = sum.most_busy.max(at.busy);
                }
                if next >= to {
                    break;
                }
                level += 1;
            }
            let length = u128::from(to - from).max(1) as f64;
            sum.mean_queued = queued as f64 / length;
            sum.mean_busy = busy as f64 / length;
            sum
        };
        (0..parts).map(over).collect()
    }
}
