//! Replay of a recording's requests with other limits: a queueing simulation.
//!
//! Each calling thread is a chain of requests: it thinks as long as recorded, makes the next request, and waits for it
//! if it did. A new thread or process begins as long as recorded after the request before it of its parent, or of its
//! parent's other children: a shell's commands follow each other. A request needs one of the daemon's threads, then a CPU for as long as it ran on one, then the time in
//! which it was blocked. The recorded order within a chain stays, the times are new. The simulation finds the time in
//! the queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::answers::told::known;
use crate::answers::why::Asked;
use crate::events::{Side, ABSENT};
use crate::operations::Operation;
use crate::requests::named::{Known, Listener};
use crate::requests::names::Names;
use crate::requests::stitch::{Fate, Mark, Story};

/// Maximum number of requests of a recording that are replayed; later ones are not.
const MOST_JOBS: usize = 1 << 22;

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
    begin: u64,
    /// Its end, and when its caller ran again.
    end: u64,
    runs: u64,
    /// When a thread took it, and which.
    taken: u64,
    thread: i32,
    /// Time on a CPU and blocked, while the thread had it.
    cpu: u64,
    blocked: u64,
    /// Time in which that thread was runnable without a CPU.
    runnable: u64,
    /// Part of the queue's time in which a sleeping thread woke up; ABSENT if unknown.
    asleep: u64,
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
}

/// Collector of the requests.
pub struct Requests {
    change: Change,
    mounts: BTreeMap<u64, Mount>,
    jobs: usize,
    asked: Asked,
    nodes: FxHashMap<(u64, u64), u32>,
    /// Thread that made a thread.
    parents: FxHashMap<i32, i32>,
}

impl Requests {
    /// Start without requests.
    pub fn new(change: Change) -> Requests {
        Requests {
            change,
            mounts: BTreeMap::new(),
            jobs: 0,
            asked: Asked::default(),
            nodes: FxHashMap::default(),
            parents: FxHashMap::default(),
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
        let ino = match known.details.ino {
            ABSENT => story.nodeid,
            ino => ino,
        };
        let next = self.nodes.len() as u32;
        let node = *self.nodes.entry((story.connection, ino)).or_insert(next);
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
            .map(|(connection, mount)| mount.replay(connection, self.change, cpus))
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
        if let Side::Fork { tid, ptid, .. } = record {
            self.parents.insert(*tid, *ptid);
        }
    }

    fn end(&mut self, _names: &Names) {}
}

impl Job {
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
        Some(Job {
            chain: 0,
            operation: story.operation,
            waits: story.waits && story.fate == Fate::Matched,
            saved: false,
            begin,
            end,
            runs,
            taken,
            thread: story.daemon_tid,
            cpu: busy - runnable,
            blocked,
            runnable,
            asleep: story.asleep,
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
            false => self.begin,
        }
    }

    /// Return the time in ns that its caller waited for it.
    fn waited(&self) -> u64 {
        match self.waits {
            true => self.runs.saturating_sub(self.begin),
            false => 0,
        }
    }
}

impl Mount {
    fn replay(mut self, connection: u64, change: Change, cpus: usize) -> WhatIf {
        self.jobs.sort_by_key(|job| (job.begin, job.end));
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
            let idle = match before {
                None => think,
                Some(b) => {
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
        let mut threads: Vec<i32> = self.jobs.iter().map(|job| job.thread).collect();
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
        let wanted = if change.threads == 0 {
            served
        } else {
            change.threads
        };
        let limits = [Some(cpus).filter(|cpus| *cpus > 0), None];
        let waits = self.jobs.iter().filter(|job| job.waits);
        let mut callers: Vec<u32> = waits.map(|job| job.chain).collect();
        callers.sort_unstable();
        callers.dedup();
        WhatIf {
            connection,
            requests: self.jobs.len() as u64,
            left_out: self.left_out,
            handed: self.handed,
            ring: self.ring,
            threads: served,
            callers: callers.len(),
            saved: self.jobs.iter().filter(|job| job.saved).count() as u64,
            recorded: model.recorded(),
            same: limits.map(|cpus| model.replay(served, cpus, false)),
            changed: limits.map(|cpus| model.replay(wanted, cpus, true)),
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
        let mut by_taken: Vec<&Job> = self.jobs.iter().collect();
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
    for_cpu: VecDeque<Runs>,
    threads: usize,
    for_thread: VecDeque<u32>,
    result: Replayed,
}

impl Model<'_> {
    fn recorded(&self) -> Replayed {
        let mut result = Replayed::default();
        for job in self.jobs {
            let row = result.operations.entry(job.operation).or_default();
            *row = (row.0 + 1, row.1 + job.waited());
            result.waited += job.waited();
            result.lasted = result.lasted.max(job.end.saturating_sub(self.first));
        }
        result
    }

    /// Replay the recording with other resources. `cpus`: None: any number, and the recorded lack of them.
    fn replay(&self, threads: usize, cpus: Option<usize>, cached: bool) -> Replayed {
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
            Step::NeedsCpu(chain) => self.wants_cpu(time, Runs::Chain(chain)),
            Step::Asks(chain) => {
                self.leaves_cpu(time);
                self.asks(time, chain);
            }
            Step::Takes(job) => self.wants_cpu(time, Runs::Job(job)),
            Step::Ran(job) => {
                self.leaves_cpu(time);
                let of = self.job(job);
                let lacked = if self.lacks { of.runnable } else { 0 };
                let ends = time + of.blocked + lacked;
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

    fn wants_cpu(&mut self, time: u64, who: Runs) {
        if self.cpus == 0 {
            self.for_cpu.push_back(who);
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
                self.at(time + ns, Step::Ran(job));
            }
        }
    }

    fn leaves_cpu(&mut self, time: u64) {
        self.cpus += 1;
        if let Some(who) = self.for_cpu.pop_front() {
            self.wants_cpu(time, who);
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
        if self.threads > 0 {
            self.threads -= 1;
            let wakes = self.model.wakes[usize::from(self.lacks)];
            self.at(time + wakes, Step::Takes(number));
        } else {
            self.for_thread.push_back(number);
        }
        if !self.job(number).waits {
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
                    operation: Operation::LOOKUP,
                    waits: true,
                    saved: false,
                    begin,
                    end: taken + served,
                    runs: taken + served,
                    taken,
                    thread: 7,
                    cpu,
                    blocked,
                    runnable: 0,
                    asleep: 0,
                    after: 0,
                    idle: [0; 2],
                    before: [0; 2],
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
        mount.replay(1, change, cpus)
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
        all.jobs[1].begin = 10 * US;
        let row = replay(all, 2, 2);
        // The second follows 10 us after the first begins; with one thread it waits for the first.
        assert_eq!(row.same[0].waited, (100 - 10 + 100) * US);
        assert_eq!(row.changed[0].waited, 100 * US);
    }
}
