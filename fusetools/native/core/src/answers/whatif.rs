//! Replay of a recording's requests with other limits: a queueing simulation.
//!
//! Each calling thread is a chain of requests: it thinks as long as recorded, makes the next request, and waits for it
//! if it did. A new thread or process begins as long as recorded after the request before it of its parent, or of its
//! parent's other children: a shell's commands follow each other. A request needs one of the daemon's threads, then a CPU for as long as it ran on one, then the time in
//! which it was blocked. The recorded order within a chain stays, the times are new. The simulation finds the time in
//! the queue.
//!
//! With a limit of asynchronous requests, a caller also waits for room for one more, and for the page that such a request
//! brings: the thread that ended the request wakes the caller up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::answers::told::known;
use crate::answers::why::Asked;
use crate::events::{Ev, Role, Side, ABSENT};
use crate::operations::Operation;
use crate::requests::named::{Known, Listener, Place};
use crate::requests::names::Names;
use crate::requests::stitch::{Fate, Mark, Story, BLOCKED, PAGE};

/// Maximum number of requests of a recording that are replayed; later ones are not.
const MOST_JOBS: usize = 1 << 22;

/// Maximum number of sleeps of threads that are kept; of later ones it is unknown what they were for.
const MOST_SLEEPS: usize = 1 << 22;

/// One part in so many of the requests' time may be waits for a thread, by chance.
const FEW_WAIT: u64 = 20;

/// TRACE_FLAG_HARDIRQ, TRACE_FLAG_SOFTIRQ (include/linux/trace_events.h).
const IN_INTERRUPT: u64 = 8 | 16;

/// Maximum number of a thread's ancestors among whose descendants the request before its first is looked for.
const MOST_ANCESTORS: usize = 8;

/// Limits to replay with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Threads of the daemon; 0: as many as served.
    pub threads: usize,
    /// Timeouts in ns of names, attributes and names that do not exist; 0: as recorded.
    pub entry: u64,
    pub attributes: u64,
    pub negative: u64,
    /// Asynchronous requests in flight; 0: as recorded, whatever that is.
    pub background: usize,
}

impl Change {
    fn caches(&self) -> bool {
        self.entry > 0 || self.attributes > 0 || self.negative > 0
    }

    /// Return the timeout that an answer to this request gets.
    fn timeout(&self, operation: Operation, negative: bool) -> u64 {
        match operation.name() {
            "lookup" if negative => self.negative,
            "lookup" => self.entry,
            "getattr" => self.attributes,
            _ => 0,
        }
    }
}

/// Result of a replay, or of the recording itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Time in ns that callers waited for requests, from the request until they run again.
    pub waited: u64,
    /// Time in ns that the daemon's threads had a request and lacked a CPU.
    pub no_cpu: u64,
    /// Time in ns from the first request to the end of the last.
    #[serde(skip)]
    pub lasted: u64,
    /// Number of requests, and ns of those that were waited for, by operation.
    pub operations: BTreeMap<Operation, (u64, u64)>,
}

/// Replays of one mount's requests.
#[derive(Debug, Serialize)]
pub struct WhatIf {
    /// ABSENT if unknown.
    #[serde(serialize_with = "known")]
    pub connection: u64,
    /// Requests replayed; those left out, as it is unknown when the daemon had them.
    pub requests: u64,
    pub left_out: u64,
    /// Requests answered by another thread than their reader; through io_uring, whose threads belong to CPUs.
    pub handed: u64,
    pub ring: u64,
    /// Asynchronous writes. Reads of which it is unknown whether they count as asynchronous.
    pub writes: u64,
    pub unsure: u64,
    /// Threads that served, and threads that called.
    pub threads: usize,
    pub callers: usize,
    /// Requests that the changed timeouts save.
    pub saved: u64,
    /// The recording; its replay without a change; with the change. Two replays: on the host's CPUs without other load;
    /// and on any number of CPUs, where each request lacks a CPU as long as recorded.
    pub recorded: Replayed,
    pub same: [Replayed; 2],
    pub changed: [Replayed; 2],
}

/// Request to replay. Times in ns.
struct Job {
    chain: u32,
    operation: Operation,
    waits: bool,
    saved: bool,
    /// It counts as asynchronous in the kernel, even if its caller waits for it.
    limited: bool,
    /// The kernel makes it without waiting for room.
    forced: bool,
    /// Its caller slept, for the answer or for a page.
    unsure: bool,
    /// No request, but a wait for the page that this one brings.
    page: Option<u32>,
    /// When its caller makes it, and when the kernel does.
    begin: u64,
    sent: u64,
    /// Its end, and when its caller ran again.
    end: u64,
    runs: u64,
    /// When a thread took it, and which.
    taken: u64,
    thread: i32,
    /// Thread that answered it.
    replier: i32,
    /// Time on a CPU and blocked, while the thread had it.
    cpu: u64,
    blocked: u64,
    /// Time in which that thread was runnable without a CPU.
    runnable: u64,
    /// Part of the queue's time in which a sleeping thread woke up; ABSENT if unknown.
    asleep: u64,
    /// Part of it in which the thread was busy with another request.
    no_thread: u64,
    /// Time of the thread with it after its end.
    after: u64,
    /// Idle time of the caller up to its begin, and when it runs again; ABSENT if unknown.
    idle: [u64; 2],
    /// The caller's time before it: blocked, and on a CPU.
    before: [u64; 2],
}

#[derive(Default)]
struct Mount {
    jobs: Vec<Job>,
    chains: FxHashMap<i32, u32>,
    /// Ancestors of each chain's thread, nearest first.
    ancestors: Vec<Vec<i32>>,
    left_out: u64,
    handed: u64,
    ring: u64,
    writes: u64,
}

/// A thread's sleep that ended because another one ended a request.
struct Woken {
    tid: i32,
    off: u64,
    on: u64,
    /// The other thread, and the time of that end.
    by: (i32, u64),
}

/// Sleeps of threads. Times in ns.
#[derive(Default)]
struct Sleeps {
    /// Threads that sleep now, since when.
    off: FxHashMap<i32, u64>,
    /// Request that each thread ended last in its current system call.
    ended: FxHashMap<i32, u64>,
    waking: FxHashMap<i32, (i32, u64)>,
    woken: Vec<Woken>,
    /// Sleeps of each thread, in their order; their number.
    all: FxHashMap<i32, Vec<(u64, u64)>>,
    count: usize,
}

impl Sleeps {
    fn event(&mut self, ev: &Ev, role: Role) {
        match role {
            Role::End => {
                self.ended.insert(ev.tid, ev.time);
            }
            Role::SysEnter | Role::SysExit | Role::Sent => {
                self.ended.remove(&ev.tid);
            }
            Role::Waking if ev.v[1] == ABSENT || ev.v[1] & IN_INTERRUPT == 0 => {
                if let Some(end) = self.ended.get(&ev.tid) {
                    self.waking.insert(ev.v[0] as i32, (ev.tid, *end));
                }
            }
            Role::Switch => {
                let [prev, _, next, _] = ev.v;
                self.out(prev as i32, ev.time);
                self.back(next as i32, ev.time);
            }
            _ => {}
        }
    }

    fn out(&mut self, tid: i32, time: u64) {
        if tid > 0 {
            self.off.entry(tid).or_insert(time);
        }
    }

    fn back(&mut self, tid: i32, on: u64) {
        let by = self.waking.remove(&tid);
        let Some(off) = self.off.remove(&tid) else {
            return;
        };
        if self.count >= MOST_SLEEPS {
            return;
        }
        self.count += 1;
        self.all.entry(tid).or_default().push((off, on));
        if let Some(by) = by {
            self.woken.push(Woken { tid, off, on, by });
        }
    }

    /// Return the time that a thread was off the CPUs between two times.
    fn between(&self, tid: i32, from: u64, to: u64) -> u64 {
        let all = self.all.get(&tid).map_or(&[][..], |all| all);
        let first = all.partition_point(|(_, on)| *on <= from);
        let within = all[first..].iter().take_while(|(off, _)| *off < to);
        within
            .map(|(off, on)| (*on).min(to) - (*off).max(from))
            .sum()
    }
}

/// Collector of the requests.
pub struct Requests {
    change: Change,
    mounts: BTreeMap<u64, Mount>,
    jobs: usize,
    asked: Asked,
    nodes: FxHashMap<Place, u32>,
    /// Thread that made a thread.
    parents: FxHashMap<i32, i32>,
    /// Only for a limit of asynchronous requests.
    sleeps: Option<Sleeps>,
    /// The recorded limit by connection.
    limits: FxHashMap<u64, usize>,
}

impl Requests {
    /// Start without requests. `limits`: of asynchronous requests, by connection.
    pub fn new(change: Change, limits: FxHashMap<u64, usize>) -> Requests {
        Requests {
            change,
            mounts: BTreeMap::new(),
            jobs: 0,
            asked: Asked::default(),
            nodes: FxHashMap::default(),
            parents: FxHashMap::default(),
            sleeps: (change.background > 0).then(Sleeps::default),
            limits,
        }
    }

    fn ancestors(&self, tid: i32) -> Vec<i32> {
        std::iter::successors(Some(tid), |tid| self.parents.get(tid).copied())
            .skip(1)
            .take(MOST_ANCESTORS)
            .collect()
    }

    /// Return whether the changed timeouts save the request.
    fn is_saved(&mut self, known: &Known<'_>) -> bool {
        if !self.change.caches() {
            return false;
        }
        let story = known.story;
        let next = self.nodes.len() as u32;
        let node = *self.nodes.entry(known.place()).or_insert(next);
        let negative = known.finds_nothing();
        let timeout = self.change.timeout(story.operation, negative);
        self.asked.timeouts = [timeout; 2];
        self.asked.add(known, node, 0).1 && timeout > 0
    }

    /// Return the mounts' replays, most requests first. `cpus`: of the host; 0: unknown.
    pub fn finish(mut self, cpus: usize) -> Vec<WhatIf> {
        let mounts = std::mem::take(&mut self.mounts);
        let mut rows: Vec<WhatIf> = mounts
            .into_iter()
            .map(|(connection, mut mount)| {
                let recorded = self.limits.get(&connection).copied().unwrap_or(0);
                let sleeps = self.sleeps.as_ref().filter(|_| recorded > 0);
                if let Some(sleeps) = sleeps {
                    mount.add_pages(sleeps);
                }
                mount.replay(connection, self.change, recorded, cpus, sleeps)
            })
            .collect();
        rows.sort_by_key(|row| Reverse(row.requests));
        rows
    }
}

impl Listener for Requests {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let saved = self.is_saved(known);
        let ancestors = self.ancestors(story.tid);
        let mount = self.mounts.entry(story.connection).or_default();
        mount.handed += u64::from(story.handed);
        mount.ring += u64::from(story.ring);
        mount.writes += u64::from(story.operation.name() == "write" && !story.waits);
        match Job::new(story) {
            Some(mut job) if self.jobs < MOST_JOBS => {
                let next = mount.chains.len() as u32;
                job.chain = *mount.chains.entry(story.tid).or_insert(next);
                if job.chain == next {
                    mount.ancestors.push(ancestors);
                }
                job.saved = saved;
                mount.jobs.push(job);
                self.jobs += 1;
            }
            _ => mount.left_out += u64::from(story.counts()),
        }
    }

    fn side(&mut self, record: &Side) {
        match (record, &mut self.sleeps) {
            (Side::Fork { tid, ptid, .. }, _) => {
                self.parents.insert(*tid, *ptid);
            }
            (Side::Switch { time, tid, out, .. }, Some(sleeps)) => match out {
                true => sleeps.out(*tid, *time),
                false => sleeps.back(*tid, *time),
            },
            _ => {}
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        if let Some(sleeps) = &mut self.sleeps {
            sleeps.event(ev, role);
        }
    }

    fn wants_calls(&self) -> bool {
        self.sleeps.is_some()
    }

    fn end(&mut self, _names: &Names) {}
}

impl Job {
    /// Return a job without times.
    fn empty(operation: Operation) -> Job {
        Job {
            chain: 0,
            operation,
            waits: false,
            saved: false,
            limited: false,
            forced: false,
            unsure: false,
            page: None,
            begin: 0,
            sent: 0,
            end: 0,
            runs: 0,
            taken: 0,
            thread: -1,
            replier: -1,
            cpu: 0,
            blocked: 0,
            runnable: 0,
            asleep: 0,
            no_thread: 0,
            after: 0,
            idle: [0; 2],
            before: [0; 2],
        }
    }

    /// Return the job; None if it is unknown when a thread had it.
    fn new(story: &Story) -> Option<Job> {
        let (begin, read) = (story.at(Mark::Begin)?, story.at(Mark::Read)?);
        let end = match story.fate {
            Fate::Matched => story.at(Mark::End)?,
            Fate::NoReply => story.at(Mark::CallbackReturn)?,
            _ => return None,
        };
        let known = |ns: u64| if ns == ABSENT { 0 } else { ns };
        let queued = known(story.no_thread) + known(story.no_cpu) + known(story.asleep);
        let taken = match story.no_thread {
            ABSENT => story.at(Mark::Sent).unwrap_or(read),
            _ => begin + queued,
        };
        let busy = end.saturating_sub(taken);
        // Unknown where switches were not recorded: then all of it may be either.
        let blocked = (known(story.blocked) + known(story.elsewhere)).min(busy);
        let busy = busy - blocked;
        let runnable = known(story.runnable).min(busy);
        let runs = story.at(Mark::Runs).unwrap_or(end).max(end);
        let idle = |mark: Mark| {
            let idle = story.idle[mark as usize];
            idle.map_or(ABSENT, |idle| idle.blocked + idle.runnable)
        };
        let waits = story.waits && story.fate == Fate::Matched;
        let roomless = story.room != ABSENT;
        let page = story.operation.name() == "read" && waits && story.slept == PAGE;
        Some(Job {
            chain: 0,
            operation: story.operation,
            waits,
            saved: false,
            limited: story.fate == Fate::Matched && (!waits || page || roomless),
            forced: !waits && !matches!(story.operation.name(), "read" | "write"),
            unsure: story.operation.name() == "read" && waits && story.slept == BLOCKED,
            page: None,
            begin: if roomless {
                story.room.min(begin)
            } else {
                begin
            },
            sent: begin,
            end,
            runs,
            taken,
            thread: story.daemon_tid,
            replier: story.replier,
            cpu: busy - runnable,
            blocked,
            runnable,
            asleep: story.asleep,
            no_thread: known(story.no_thread),
            after: story
                .at(Mark::CallbackReturn)
                .map_or(0, |back| back.saturating_sub(end)),
            idle: [idle(Mark::Begin), idle(Mark::Runs)],
            before: [0; 2],
        })
    }

    /// Return when its caller goes on.
    fn resumes(&self) -> u64 {
        match self.waits {
            true => self.runs,
            false => self.sent,
        }
    }

    /// Return the time in ns that its caller waited for it.
    fn waited(&self) -> u64 {
        self.resumes().saturating_sub(self.begin)
    }
}

impl Mount {
    /// Add the callers' waits for pages, in place of those for the requests that brought them.
    fn add_pages(&mut self, sleeps: &Sleeps) {
        let mut rooms: FxHashMap<u32, Vec<(u64, u64)>> = FxHashMap::default();
        for job in self.jobs.iter().filter(|job| job.begin < job.sent) {
            rooms
                .entry(job.chain)
                .or_default()
                .push((job.begin, job.sent));
        }
        rooms.values_mut().for_each(|rooms| rooms.sort_unstable());
        let threads = self.jobs.iter().flat_map(|job| [job.thread, job.replier]);
        let threads: FxHashSet<i32> = threads.collect();
        let of = |job: &Job| (job.replier, job.end);
        let reads = self.jobs.iter().enumerate();
        let reads = reads.filter(|(_, job)| job.limited && job.operation.name() == "read");
        let reads: FxHashMap<(i32, u64), u32> =
            reads.map(|(at, job)| (of(job), at as u32)).collect();
        for woken in &sleeps.woken {
            let Some(&at) = reads.get(&woken.by) else {
                continue;
            };
            if threads.contains(&woken.tid) {
                continue;
            }
            let next = self.chains.len() as u32;
            let chain = *self.chains.entry(woken.tid).or_insert(next);
            if chain == next {
                self.ancestors.push(Vec::new());
            }
            let rooms = rooms.get(&chain).map_or(&[][..], |rooms| rooms);
            let before = &rooms[..rooms.partition_point(|(from, _)| *from <= woken.off)];
            if before.last().is_some_and(|(_, to)| woken.off < *to) {
                continue; // it waited for room
            }
            let job = &mut self.jobs[at as usize];
            if job.chain == chain {
                job.waits = false;
            }
            let (end, operation) = (job.end, job.operation);
            self.jobs.push(Job {
                chain,
                page: Some(at),
                begin: woken.off,
                sent: woken.off,
                end,
                runs: woken.on,
                waits: true,
                ..Job::empty(operation)
            });
        }
    }

    fn replay(
        mut self,
        connection: u64,
        change: Change,
        recorded: usize,
        cpus: usize,
        sleeps: Option<&Sleeps>,
    ) -> WhatIf {
        self.sort();
        let tids: FxHashMap<u32, i32> = self.chains.iter().map(|(tid, at)| (*at, *tid)).collect();
        let mut chains: Vec<Vec<u32>> = vec![Vec::new(); self.chains.len()];
        let first = self.jobs.first().map_or(0, |job| job.begin);
        let follows = self.follows(chains.len());
        for at in 0..self.jobs.len() {
            let chain = &mut chains[self.jobs[at].chain as usize];
            let before = chain.last().map(|&last| &self.jobs[last as usize]);
            let job = &self.jobs[at];
            let since = match (before, follows.get(&(at as u32))) {
                (Some(b), _) => b.resumes(),
                (None, Some(&b)) => self.jobs[b as usize].resumes(),
                (None, None) => first,
            };
            let think = job.begin.saturating_sub(since);
            // A chain's first request comes when it did.
            let idle = match (before, sleeps) {
                (None, _) => think,
                (Some(_), Some(sleeps)) => {
                    let tid = tids.get(&job.chain).copied().unwrap_or(-1);
                    sleeps.between(tid, since, job.begin).min(think)
                }
                (Some(b), None) => {
                    let from = if b.waits { b.idle[1] } else { b.idle[0] };
                    match (from, job.idle[0]) {
                        (ABSENT, _) | (_, ABSENT) => 0,
                        (from, to) => to.saturating_sub(from).min(think),
                    }
                }
            };
            chain.push(at as u32);
            self.jobs[at].before = [idle, think - idle];
        }
        let requests = self.jobs.iter().filter(|job| job.page.is_none());
        let mut threads: Vec<i32> = requests.map(|job| job.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let mut followers: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (&at, &before) in &follows {
            let chain = self.jobs[at as usize].chain;
            followers.entry(before).or_default().push(chain);
        }
        let turnarounds = typical(self.turnarounds());
        let mut asleep: Vec<u64> = self.jobs.iter().map(|job| job.asleep).collect();
        asleep.retain(|ns| !matches!(*ns, 0 | ABSENT));
        let model = Model {
            jobs: &self.jobs,
            chains: &chains,
            followers: &followers,
            follows: &follows,
            first,
            wakes: typical(asleep),
            turnaround: turnarounds,
        };
        let served = threads.len();
        let wanted = match change.threads {
            0 if sleeps.is_some() && !self.lacks_threads() => self.jobs.len(),
            0 => served,
            threads => threads,
        };
        let limits = [Some(cpus).filter(|cpus| *cpus > 0), None];
        let limit = |most: usize| match sleeps {
            Some(_) => most,
            None => usize::MAX,
        };
        let requests = self.jobs.iter().filter(|job| job.page.is_none());
        let waits = self.jobs.iter().filter(|job| job.waits);
        let mut callers: Vec<u32> = waits.map(|job| job.chain).collect();
        callers.sort_unstable();
        callers.dedup();
        WhatIf {
            connection,
            requests: requests.clone().count() as u64,
            left_out: self.left_out,
            handed: self.handed,
            ring: self.ring,
            writes: self.writes,
            unsure: requests.filter(|job| job.unsure).count() as u64,
            threads: served,
            callers: callers.len(),
            saved: self.jobs.iter().filter(|job| job.saved).count() as u64,
            recorded: model.recorded(),
            same: limits.map(|cpus| model.replay(served, cpus, limit(recorded), false)),
            changed: limits.map(|cpus| model.replay(wanted, cpus, limit(change.background), true)),
        }
    }

    /// Return whether requests waited for a thread of the daemon. If they did not, it may have more than those that served.
    fn lacks_threads(&self) -> bool {
        let waited: u64 = self.jobs.iter().map(|job| job.no_thread).sum();
        let whole: u64 = self
            .jobs
            .iter()
            .map(|job| job.end - job.sent.min(job.end))
            .sum();
        waited.saturating_mul(FEW_WAIT) > whole
    }

    /// Sort the jobs by their begin.
    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.jobs.len() as u32).collect();
        // A wait for a page comes after the request that its caller made at the same time.
        let jobs = &self.jobs;
        order.sort_by_key(|&at| {
            let job = &jobs[at as usize];
            (job.begin, job.page.is_some(), job.end)
        });
        let mut places = vec![0; order.len()];
        for (place, &at) in (0..).zip(&order) {
            places[at as usize] = place;
        }
        let mut jobs: Vec<Option<Job>> = std::mem::take(&mut self.jobs)
            .into_iter()
            .map(Some)
            .collect();
        self.jobs = order
            .iter()
            .filter_map(|&at| jobs[at as usize].take())
            .collect();
        for job in &mut self.jobs {
            job.page = job.page.map(|at| places[at as usize]);
        }
    }

    /// Return the job that each chain's first job follows, if any: the last before it that ended in the descendants of
    /// its nearest ancestor that has one.
    fn follows(&self, chains: usize) -> FxHashMap<u32, u32> {
        let mut ends: Vec<u32> = (0..self.jobs.len() as u32).collect();
        ends.sort_by_key(|&at| self.jobs[at as usize].resumes());
        let mut ends = ends.into_iter().peekable();
        let mut last: FxHashMap<i32, u32> = FxHashMap::default();
        let tids: FxHashMap<u32, i32> = self.chains.iter().map(|(tid, at)| (*at, *tid)).collect();
        let mut seen = vec![false; chains];
        let mut follows = FxHashMap::default();
        for (at, job) in self.jobs.iter().enumerate() {
            if std::mem::replace(&mut seen[job.chain as usize], true) {
                continue;
            }
            while let Some(end) =
                ends.next_if(|&end| self.jobs[end as usize].resumes() <= job.begin)
            {
                let chain = self.jobs[end as usize].chain;
                let own = tids.get(&chain).copied();
                for tid in own.iter().chain(&self.ancestors[chain as usize]) {
                    last.insert(*tid, end);
                }
            }
            let nearest = self.ancestors[job.chain as usize].iter();
            if let Some(&before) = nearest.filter_map(|tid| last.get(tid)).next() {
                follows.insert(at as u32, before);
            }
        }
        follows
    }

    /// Return the times in ns that threads needed after a request until they took the next one in the queue.
    fn turnarounds(&self) -> Vec<u64> {
        let mut last: FxHashMap<i32, u64> = FxHashMap::default();
        let requests = self.jobs.iter().filter(|job| job.page.is_none());
        let mut by_taken: Vec<&Job> = requests.collect();
        by_taken.sort_by_key(|job| job.taken);
        let mut gaps = Vec::new();
        for job in by_taken {
            if let Some(end) = last.insert(job.thread, job.end + job.after) {
                if job.begin < end && job.taken >= end {
                    gaps.push(job.taken - end);
                }
            }
        }
        gaps
    }
}

/// Return the usual value, and the mean, which has what other load adds.
fn typical(mut values: Vec<u64>) -> [u64; 2] {
    if values.is_empty() {
        return [0; 2];
    }
    let mean = values.iter().sum::<u64>() / values.len() as u64;
    let middle = values.len() / 2;
    [*values.select_nth_unstable(middle).1, mean]
}

struct Model<'a> {
    jobs: &'a [Job],
    chains: &'a [Vec<u32>],
    /// Job that a chain's first job follows, by that; chains that begin after a job, by the job.
    follows: &'a FxHashMap<u32, u32>,
    followers: &'a FxHashMap<u32, Vec<u32>>,
    first: u64,
    /// Time in ns until a thread that sleeps has a request; until one is free after a request. Without other load, and
    /// with it.
    wakes: [u64; 2],
    turnaround: [u64; 2],
}

/// Next step of a chain or of a job, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The caller goes on: blocked, then on a CPU, then its next request.
    Goes(u32),
    NeedsCpu(u32),
    Asks(u32),
    /// A thread has the job: on a CPU, then blocked, then the end.
    Takes(u32),
    Ran(u32),
    Ends(u32),
    /// A thread is free.
    Free,
}

/// Holders of a CPU.
#[derive(Clone, Copy)]
enum Runs {
    Chain(u32),
    Job(u32),
}

struct Replay<'a> {
    model: &'a Model<'a>,
    cached: bool,
    lacks: bool,
    next: Vec<usize>,
    asked: Vec<u64>,
    steps: BinaryHeap<Reverse<(u64, u64, Step)>>,
    number: u64,
    cpus: usize,
    /// With the time since when each waits.
    for_cpu: VecDeque<(u64, Runs)>,
    threads: usize,
    for_thread: VecDeque<u32>,
    /// Room for asynchronous requests, and those that wait for it.
    room: usize,
    for_room: VecDeque<u32>,
    done: Vec<bool>,
    /// Waits for the page that a job brings, by that.
    for_page: FxHashMap<u32, Vec<u32>>,
    result: Replayed,
}

impl Model<'_> {
    fn recorded(&self) -> Replayed {
        let mut result = Replayed::default();
        for job in self.jobs {
            let row = result.operations.entry(job.operation).or_default();
            *row = (row.0 + u64::from(job.page.is_none()), row.1 + job.waited());
            result.waited += job.waited();
            result.no_cpu += job.runnable;
            result.lasted = result.lasted.max(job.end.saturating_sub(self.first));
        }
        result
    }

    /// Replay the recording with other resources. `cpus`: None: any number, and the recorded lack of them. `room`: most
    /// asynchronous requests in flight.
    fn replay(&self, threads: usize, cpus: Option<usize>, room: usize, cached: bool) -> Replayed {
        let mut replay = Replay {
            model: self,
            cached,
            lacks: cpus.is_none(),
            next: vec![0; self.chains.len()],
            asked: vec![0; self.jobs.len()],
            steps: BinaryHeap::new(),
            number: 0,
            cpus: cpus.unwrap_or(usize::MAX),
            for_cpu: VecDeque::new(),
            threads,
            for_thread: VecDeque::new(),
            room,
            for_room: VecDeque::new(),
            done: vec![false; self.jobs.len()],
            for_page: FxHashMap::default(),
            result: Replayed::default(),
        };
        for (chain, jobs) in self.chains.iter().enumerate() {
            let first = jobs.first();
            if first.is_some_and(|first| !self.follows.contains_key(first)) {
                replay.at(0, Step::Goes(chain as u32));
            }
        }
        while let Some(Reverse((time, _, step))) = replay.steps.pop() {
            replay.step(time, step);
        }
        replay.result
    }
}

impl Replay<'_> {
    fn at(&mut self, time: u64, step: Step) {
        self.number += 1;
        self.steps.push(Reverse((time, self.number, step)));
    }

    fn job(&self, job: u32) -> &Job {
        &self.model.jobs[job as usize]
    }

    /// Return the chain's next job.
    fn following(&self, chain: u32) -> Option<u32> {
        let at = self.next[chain as usize];
        self.model.chains[chain as usize].get(at).copied()
    }

    fn step(&mut self, time: u64, step: Step) {
        match step {
            Step::Goes(chain) => {
                if let Some(job) = self.following(chain) {
                    let [idle, _] = self.job(job).before;
                    self.at(time + idle, Step::NeedsCpu(chain));
                }
            }
            Step::NeedsCpu(chain) => self.wants_cpu(time, time, Runs::Chain(chain)),
            Step::Asks(chain) => {
                self.leaves_cpu(time);
                self.asks(time, chain);
            }
            Step::Takes(job) => self.wants_cpu(time, time, Runs::Job(job)),
            Step::Ran(job) => {
                self.leaves_cpu(time);
                let of = self.job(job);
                let lacked = if self.lacks { of.runnable } else { 0 };
                let ends = time + of.blocked + lacked;
                self.result.no_cpu += lacked;
                self.at(ends, Step::Ends(job));
            }
            Step::Ends(number) => {
                let free =
                    time + self.job(number).after + self.model.turnaround[usize::from(self.lacks)];
                self.at(free, Step::Free);
                self.ends(time, number);
            }
            Step::Free => match self.for_thread.pop_front() {
                Some(job) => self.at(time, Step::Takes(job)),
                None => self.threads += 1,
            },
        }
    }

    /// Run on a CPU, for which `who` waits since a time.
    fn wants_cpu(&mut self, time: u64, since: u64, who: Runs) {
        if self.cpus == 0 {
            self.for_cpu.push_back((since, who));
            return;
        }
        self.cpus -= 1;
        match who {
            Runs::Chain(chain) => {
                let ns = self
                    .following(chain)
                    .map_or(0, |job| self.job(job).before[1]);
                self.at(time + ns, Step::Asks(chain));
            }
            Runs::Job(job) => {
                let ns = self.job(job).cpu;
                self.result.no_cpu += time - since;
                self.at(time + ns, Step::Ran(job));
            }
        }
    }

    fn leaves_cpu(&mut self, time: u64) {
        self.cpus += 1;
        if let Some((since, who)) = self.for_cpu.pop_front() {
            self.wants_cpu(time, since, who);
        }
    }

    fn asks(&mut self, time: u64, chain: u32) {
        let Some(number) = self.following(chain) else {
            return;
        };
        self.next[chain as usize] += 1;
        self.asked[number as usize] = time;
        if self.cached && self.job(number).saved {
            self.goes_on(time, number);
            return;
        }
        if let Some(at) = self.job(number).page {
            match self.done[at as usize] {
                true => self.goes_on(time, number),
                false => self.for_page.entry(at).or_default().push(number),
            }
            return;
        }
        if self.job(number).forced {
            self.goes_on(time, number);
        }
        match self.job(number).limited && self.room == 0 {
            true => self.for_room.push_back(number),
            false => self.sends(time, number),
        }
    }

    /// Send a request that has room to the daemon.
    fn sends(&mut self, time: u64, number: u32) {
        self.room -= usize::from(self.job(number).limited);
        let alone = !self.job(number).waits && !self.job(number).forced;
        if alone {
            let (operation, room) = (
                self.job(number).operation,
                time - self.asked[number as usize],
            );
            self.result.operations.entry(operation).or_default().1 += room;
            self.result.waited += room;
        }
        if self.threads > 0 {
            self.threads -= 1;
            let wakes = self.model.wakes[usize::from(self.lacks)];
            self.at(time + wakes, Step::Takes(number));
        } else {
            self.for_thread.push_back(number);
        }
        if alone {
            self.goes_on(time, number);
        }
    }

    /// Let the job's chain go on, and begin those that follow it.
    fn goes_on(&mut self, time: u64, number: u32) {
        let model = self.model;
        self.at(time, Step::Goes(model.jobs[number as usize].chain));
        for &chain in model.followers.get(&number).into_iter().flatten() {
            self.at(time, Step::Goes(chain));
        }
    }

    fn ends(&mut self, time: u64, number: u32) {
        let model = self.model;
        let job = &model.jobs[number as usize];
        let runs = time + job.runs.saturating_sub(job.end);
        let waited = match job.waits {
            true => runs - self.asked[number as usize],
            false => 0,
        };
        let row = self.result.operations.entry(job.operation).or_default();
        *row = (row.0 + 1, row.1 + waited);
        self.result.waited += waited;
        self.result.lasted = self.result.lasted.max(time);
        if job.waits {
            self.goes_on(runs, number);
        }
        self.done[number as usize] = true;
        for page in self.for_page.remove(&number).unwrap_or_default() {
            let of = &model.jobs[page as usize];
            let runs = time + of.runs.saturating_sub(of.end);
            let waited = runs - self.asked[page as usize];
            self.result.operations.entry(of.operation).or_default().1 += waited;
            self.result.waited += waited;
            self.goes_on(runs, page);
        }
        if job.limited {
            self.room += 1;
            if let Some(next) = self.for_room.pop_front() {
                self.sends(time, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Return jobs of `callers` threads, each of which makes `each` requests at once after another. A request takes
    /// `cpu` and `blocked` ns of a thread.
    fn mount(callers: u32, each: u64, cpu: u64, blocked: u64) -> Mount {
        let mut mount = Mount::default();
        for chain in 0..callers {
            mount.chains.insert(chain as i32, chain);
            mount.ancestors.push(Vec::new());
            for nth in 0..each {
                // As one thread serves them in turn.
                let served = cpu + blocked;
                let taken = (nth * u64::from(callers) + u64::from(chain)) * served;
                let begin = match nth {
                    0 => 0,
                    _ => taken - u64::from(callers - 1) * served,
                };
                mount.jobs.push(Job {
                    chain,
                    waits: true,
                    begin,
                    sent: begin,
                    end: taken + served,
                    runs: taken + served,
                    taken,
                    thread: 7,
                    cpu,
                    blocked,
                    ..Job::empty(Operation::LOOKUP)
                });
            }
        }
        mount
    }

    fn replay(mount: Mount, threads: usize, cpus: usize) -> WhatIf {
        let change = Change {
            threads,
            ..Change::default()
        };
        mount.replay(1, change, 0, cpus, None)
    }

    #[test]
    fn the_replay_of_the_recording_equals_it() {
        let row = replay(mount(8, 100, 0, 100 * US), 8, 2);
        assert_eq!((row.threads, row.callers, row.requests), (1, 8, 800));
        assert_eq!(row.same[0], row.recorded);
        assert_eq!(row.recorded.lasted, 800 * 100 * US);
    }

    #[test]
    fn threads_divide_what_blocks() {
        for threads in 1..=8 {
            let row = replay(mount(8, 100, 0, 100 * US), threads, 2);
            let expected = 800 * 100 * US / threads as u64;
            let got = row.changed[0].lasted;
            assert!(
                got >= expected && got <= expected + 200 * US,
                "{threads}: {got}"
            );
        }
        // More threads than callers change nothing.
        let [eight, nine] = [8, 9].map(|n| replay(mount(8, 100, 0, 100 * US), n, 2));
        assert_eq!(eight.changed[0], nine.changed[0]);
    }

    #[test]
    fn threads_do_not_multiply_cpus() {
        let row = replay(mount(8, 100, 100 * US, 0), 8, 2);
        assert_eq!(row.same[0], row.recorded);
        assert_eq!(row.changed[0].lasted, 400 * 100 * US);
        assert_eq!(row.changed[1].lasted, 100 * 100 * US);
    }

    #[test]
    fn a_saved_request_takes_no_time() {
        let mut all = mount(1, 10, 0, 100 * US);
        for job in &mut all.jobs[5..] {
            job.saved = true;
        }
        let row = replay(all, 0, 2);
        assert_eq!(row.saved, 5);
        assert_eq!(row.same[0].waited, 10 * 100 * US);
        assert_eq!(row.changed[0].waited, 5 * 100 * US);
        assert_eq!(row.changed[0].operations[&Operation::LOOKUP].0, 5);
    }

    #[test]
    fn processes_of_one_shell_follow_each_other() {
        // Two callers, each a shell that starts a new process for each request.
        let mut all = mount(2, 10, 0, 100 * US);
        all.chains.clear();
        all.ancestors.clear();
        for (at, job) in all.jobs.iter_mut().enumerate() {
            let shell = -1 - job.chain as i32;
            job.chain = at as u32;
            all.chains.insert(at as i32, at as u32);
            all.ancestors.push(vec![shell]);
        }
        let row = replay(all, 2, 2);
        assert_eq!(row.same[0], row.recorded);
        assert_eq!(row.changed[0].waited, 2 * 10 * 100 * US);
    }

    #[test]
    fn a_request_that_nobody_waits_for_holds_up_nobody() {
        let mut all = mount(1, 2, 0, 100 * US);
        all.jobs[0].waits = false;
        (all.jobs[1].begin, all.jobs[1].sent) = (10 * US, 10 * US);
        let row = replay(all, 2, 2);
        // The second follows 10 us after the first begins; with one thread it waits for the first.
        assert_eq!(row.same[0].waited, (100 - 10 + 100) * US);
        assert_eq!(row.changed[0].waited, 100 * US);
    }
    fn limited(mount: Mount, recorded: usize, background: usize, sleeps: &Sleeps) -> WhatIf {
        let change = Change {
            background,
            ..Change::default()
        };
        mount.replay(1, change, recorded, 2, Some(sleeps))
    }

    #[test]
    fn asynchronous_requests_wait_for_room() {
        for background in 1..=9 {
            // Eight threads, but room for one request.
            let mut all = mount(8, 100, 0, 100 * US);
            for job in &mut all.jobs {
                (job.limited, job.sent, job.thread) = (true, job.taken, job.chain as i32);
            }
            let row = limited(all, 1, background, &Sleeps::default());
            assert_eq!(row.same[0], row.recorded);
            let expected = 800 * 100 * US / background.min(8) as u64;
            let got = row.changed[0].lasted;
            assert!(
                got >= expected && got <= expected + 200 * US,
                "{background}: {got}"
            );
        }
    }

    #[test]
    fn a_release_does_not_hold_up_its_caller() {
        let mut all = mount(1, 2, 0, 100 * US);
        for job in &mut all.jobs {
            (job.limited, job.forced, job.waits) = (true, true, false);
            (job.begin, job.sent) = (0, 0);
            job.thread = job.taken as i32;
        }
        let row = limited(all, 2, 1, &Sleeps::default());
        assert_eq!(row.changed[0].waited, 0);
        assert_eq!(row.changed[0].lasted, 200 * US);
    }

    #[test]
    fn a_page_is_awaited_by_whoever_the_end_of_its_read_wakes_up() {
        let mut all = mount(1, 1, 0, 100 * US);
        let read = &mut all.jobs[0];
        (read.operation, read.limited, read.replier) = (Operation::of_name("read"), true, 7);
        let woken = |tid, off| Woken {
            tid,
            off,
            on: 105 * US,
            by: (7, 100 * US),
        };
        let mut sleeps = Sleeps::default();
        // Its caller, another one, the daemon itself; and another request.
        for (tid, off) in [(0, 10), (9, 20), (7, 30)] {
            sleeps.woken.push(woken(tid, off * US));
        }
        sleeps.woken.push(Woken {
            by: (7, 90 * US),
            ..woken(8, 0)
        });
        all.add_pages(&sleeps);
        let row = limited(all, 4, 1, &sleeps);
        assert_eq!((row.requests, row.callers), (1, 2));
        assert_eq!(row.recorded.waited, (105 - 10 + 105 - 20) * US);
        assert_eq!(row.same[0], row.recorded);
        assert_eq!(row.changed[0], row.recorded);
    }

    #[test]
    fn a_wait_for_room_is_none_for_a_page() {
        let mut all = mount(2, 1, 0, 100 * US);
        for job in &mut all.jobs {
            (job.operation, job.limited, job.replier) = (Operation::of_name("read"), true, 7);
            job.sent = job.taken;
        }
        let mut sleeps = Sleeps::default();
        sleeps.woken.push(Woken {
            tid: 1,
            off: 0,
            on: 100 * US,
            by: (7, 100 * US),
        });
        all.add_pages(&sleeps);
        assert_eq!(all.jobs.len(), 2);
    }

    #[test]
    fn a_sleep_is_attributed_to_the_thread_that_ended_a_request() {
        let mut sleeps = Sleeps::default();
        let event = |tid, time, v| Ev {
            time,
            pid: tid,
            tid,
            kind: 0,
            cpu: 0,
            v,
        };
        sleeps.event(&event(3, 10, [3, 1, 0, 0]), Role::Switch);
        sleeps.event(&event(7, 20, [0; 4]), Role::End);
        sleeps.event(&event(7, 21, [3, 0, 0, 0]), Role::Waking);
        sleeps.event(&event(7, 30, [0, 1, 3, 0]), Role::Switch);
        // Its system call has returned: it wakes up others for other reasons.
        sleeps.event(&event(7, 35, [0; 4]), Role::SysExit);
        sleeps.event(&event(3, 40, [3, 1, 0, 0]), Role::Switch);
        sleeps.event(&event(7, 50, [3, 0, 0, 0]), Role::Waking);
        sleeps.event(&event(7, 60, [0, 1, 3, 0]), Role::Switch);
        let woken: Vec<_> = sleeps
            .woken
            .iter()
            .map(|w| (w.tid, w.off, w.on, w.by))
            .collect();
        assert_eq!(woken, [(3, 10, 30, (7, 20))]);
        assert_eq!(sleeps.between(3, 0, 100), 40);
        assert_eq!(sleeps.between(3, 15, 45), 20);
    }
}
