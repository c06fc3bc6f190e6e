//! Time of requests by stage: their stories cut into stages and added up.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::answers::hist::Hist;
use crate::answers::told::map;
use crate::cost::{Cost, Met};
use crate::error::Error;
use crate::events::{known, Meaning, ABSENT};
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::filters::Filters;
use crate::requests::stitch::{
    self, limited, Cut, Fate, MountCall, Piece, RequestCounts, Stage, Story, FATES, OUTSIDE,
};

/// The key that groups requests of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Operation,
    /// Caller's name; below: its process, the daemon's thread, the connection, the size in bytes.
    Comm,
    Pid,
    DaemonThread,
    Mount,
    Size,
}

/// Durations. Few are kept singly; more are added to a histogram in batches, since a histogram is large and evicts the
/// one before from the cache.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    some: Vec<u64>,
    hist: Option<Box<Hist>>,
}

const SOME: usize = 1024;

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        if self.some.len() == SOME {
            let hist = self.hist.get_or_insert_default();
            self.some.drain(..).for_each(|ns| hist.add(ns));
        }
        self.some.push(ns);
    }

    pub(crate) fn merge(&mut self, other: Durations) {
        if let Some(hist) = other.hist {
            self.hist.get_or_insert_default().merge(&hist);
        }
        other.some.into_iter().for_each(|ns| self.add(ns));
    }

    pub fn hist(&self) -> Hist {
        let mut hist = self.hist.as_deref().cloned().unwrap_or_default();
        self.some.iter().for_each(|ns| hist.add(*ns));
        hist
    }
}

/// Parts of a stage in ns, over the requests for which they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub requests: u64,
    /// Times in the order of `Stage::parts`.
    pub ns: [u64; 3],
    /// Part of `blocked` without a recorded wake-up, if `blocked` is the first part.
    pub unsplit: u64,
    /// Rest of the stage.
    pub rest: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub durations: Durations,
    pub parts: Parts,
    /// Work of the recorder in the stage, and its ns by `Filters::cost`.
    pub met: Met,
    pub taken: u64,
}

/// Requests of one operation, or of one key of it. Those with a waiting caller and those without are separate.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Number of requests by fate, as in FATES.
    pub fates: [u64; FATES.len()],
    pub errors: u64,
    /// Requests answered through io_uring.
    pub ring: u64,
    /// Requests processed by another, unknown thread of the daemon than the one that read them.
    pub handed: u64,
    pub total: Durations,
    /// Shortest duration of an unanswered request in ns: longer durations are lower bounds.
    pub least: Option<u64>,
    /// Stages, in the order of the bounds once returned.
    pub stages: Vec<(Stage, Tally)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub operation: Operation,
    pub waits: bool,
    /// Value of `By`; ABSENT if unknown.
    pub key: u64,
}

/// System calls on mounts, of one kind, or of one key of it.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    pub total: Durations,
    /// Number of those that go on at the recording's end, and the shortest of their durations in ns: longer ones are lower bounds.
    pub unreturned: u64,
    pub least: Option<u64>,
    /// Those that made no request.
    pub cached: Durations,
    /// Operation of the call itself, the set of those of its requests, and the number of requests that callers waited for.
    pub operation: Option<Operation>,
    pub operations: u128,
    pub requests: u64,
    /// Time in ns in the order of `OUTSIDE`. The rest is in requests.
    pub outside: [u64; OUTSIDE.len()],
}

impl Calls {
    fn add(&mut self, call: &MountCall) {
        let duration = call.duration();
        self.total.add(duration);
        if call.made_no_request() {
            self.cached.add(duration);
        }
        if call.goes_on {
            self.unreturned += 1;
            self.least = Some(self.least.map_or(duration, |least| least.min(duration)));
        }
        self.operation = Some(call.operation);
        self.operations |= call.operations;
        self.requests += u64::from(call.requests);
        for (sum, ns) in self.outside.iter_mut().zip(call.outside) {
            *sum += ns;
        }
    }
}

/// Answer of `stages`.
pub struct Stages {
    pub groups: Vec<(Key, Group)>,
    /// By the system call's name, and the key.
    pub calls: Vec<((String, u64), Calls)>,
    /// Names of callers, indexed by a group's key.
    pub comms: Vec<String>,
    pub requests: RequestCounts,
    /// Maximum cost of an event, ns; None if unknown.
    pub event_cost: Option<u64>,
}

/// Maximum number of groups, more than anybody reads; further keys count as ABSENT.
const MOST_GROUPS: usize = 10_000;

/// Read a recording and add up its requests' stages.
pub fn stages(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    by: By,
) -> Result<(ScanInfo, Stages), Error> {
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    let mut requests = RequestCounts::default();
    let (cost, corrected) = (filters.cost.unwrap_or_default(), filters.less().is_some());
    let mut calls: FxHashMap<(u64, u64), Calls> = FxHashMap::default();
    let mut on_call = |call: &MountCall| {
        let mut key = (call.number, call_key(call, by));
        if calls.len() >= MOST_GROUPS && !calls.contains_key(&key) {
            key.1 = ABSENT;
        }
        calls.entry(key).or_default().add(call);
    };
    let summary =
        stitch::stories_and_calls(reader, catalogue, filters, &mut on_call, &mut |story, _| {
            requests.add(story);
            let mut key = Key {
                operation: story.operation,
                // The caller of a request that has not ended may still wait.
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
    let arch = Arch::new(reader.arch().as_deref());
    let calls = calls.into_iter();
    let mut calls: Vec<_> = calls
        .map(|((number, key), calls)| ((arch.syscall(number), key), calls))
        .collect();
    calls.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, group) in &mut groups {
        group.stages.sort_by_key(|(stage, _)| *stage);
    }
    Ok((
        summary.info,
        Stages {
            groups,
            calls,
            comms: summary.comms,
            requests,
            event_cost: summary.event_cost,
        },
    ))
}

fn call_key(call: &MountCall, by: By) -> u64 {
    match by {
        By::Comm => u64::from(call.comm),
        By::Pid => u64::try_from(call.pid).unwrap_or(ABSENT),
        By::Mount => call.connection,
        By::Operation | By::DaemonThread | By::Size => ABSENT,
    }
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

/// Return the bytes read or written, rounded down to a power of two; ABSENT if unknown.
fn size(story: &Story) -> u64 {
    match story.bytes() {
        ABSENT => ABSENT,
        bytes => bytes.checked_ilog2().map_or(0, |log| 1 << log),
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
                tally.parts.unsplit += stage.unsplit(story).min(parts[0]).min(ns);
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
        let (parts, rest) = limited(parts, whole);
        for (sum, part) in self.ns.iter_mut().zip(parts) {
            *sum += part;
        }
        self.rest += rest;
    }
}

/// Figures of durations in ns.
#[derive(Serialize)]
struct Summary {
    total_ns: u128,
    mean_ns: Option<f64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
}

impl From<&Hist> for Summary {
    fn from(hist: &Hist) -> Summary {
        let count = hist.count();
        Summary {
            total_ns: hist.sum(),
            mean_ns: (count > 0).then(|| hist.sum() as f64 / count as f64),
            p50_ns: hist.percentile(500),
            p99_ns: hist.percentile(990),
            max_ns: hist.max(),
        }
    }
}

/// Key of a group; None if unknown.
#[derive(Serialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(u64),
}

/// Overhead of recording in ns: measured, or estimated.
#[derive(Serialize)]
#[serde(untagged)]
enum Overhead {
    Measured(u64),
    Estimated(f64),
}

/// Row of fusetools/results/stages.py, as are the next three.
#[derive(Serialize)]
struct StageRow {
    name: String,
    requests: u64,
    #[serde(flatten)]
    times: Summary,
    share: f64,
    #[serde(serialize_with = "map")]
    parts_ns: Vec<(&'static str, u64)>,
    probes_ns: Option<Overhead>,
    unsplit_ns: u64,
}

#[derive(Serialize)]
pub struct OperationStages {
    operation: Operation,
    waits: bool,
    key: Option<Name>,
    requests: u64,
    matched: u64,
    #[serde(serialize_with = "map")]
    unmatched: Vec<(&'static str, u64)>,
    errors: u64,
    ring: u64,
    handed: u64,
    timed: u64,
    #[serde(flatten)]
    times: Summary,
    least_ns: Option<u64>,
    stages: Vec<StageRow>,
}

#[derive(Serialize)]
pub struct MountCalls {
    syscall: String,
    key: Option<Name>,
    operation: Option<Operation>,
    operations: Vec<Operation>,
    calls: u64,
    unreturned: u64,
    requests: u64,
    #[serde(flatten)]
    times: Summary,
    in_requests_ns: u128,
    #[serde(serialize_with = "map")]
    outside_ns: Vec<(&'static str, u64)>,
    least_ns: Option<u64>,
    cached: Option<CallsWithoutRequest>,
}

#[derive(Serialize)]
struct CallsWithoutRequest {
    calls: u64,
    #[serde(flatten)]
    times: Summary,
}

/// Known cost of recording.
#[derive(Clone, Copy)]
pub enum Costs {
    Measured,
    Estimated(Cost),
    Unknown,
}

impl Tally {
    /// Return the row. `all`: number of requests; those without the stage count as 0. `whole`: time of all stages.
    fn row(&self, stage: Stage, all: u64, whole: u128, costs: Costs) -> StageRow {
        let mut hist = self.durations.hist();
        let requests = hist.count();
        hist.add_zeros(all.saturating_sub(requests));
        let total = hist.sum();
        let Parts { ns, rest, .. } = self.parts;
        let mut parts = Vec::new();
        if self.parts.requests > 0 {
            parts = stage.named(ns, rest);
            let known = ns.iter().chain([&rest]).map(|ns| u128::from(*ns)).sum();
            parts.push(("unknown", total.saturating_sub(known) as u64));
            parts.retain(|(name, ns)| *ns > 0 || !matches!(*name, "elsewhere" | "unknown"));
        }
        let Met { events, quarters } = self.met;
        let probes = match costs {
            Costs::Measured => Some(Overhead::Measured(self.taken)),
            Costs::Estimated(Cost { event, pair }) => {
                let pairs = quarters.saturating_mul(pair) as f64 / 4.0;
                let ns = events.saturating_mul(event) as f64 + pairs;
                Some(Overhead::Estimated(ns.min(total as f64)))
            }
            Costs::Unknown => None,
        };
        StageRow {
            name: stage.name(),
            requests,
            times: Summary::from(&hist),
            share: if whole > 0 {
                total as f64 / whole as f64
            } else {
                0.0
            },
            parts_ns: parts,
            probes_ns: probes,
            unsplit_ns: self.parts.unsplit,
        }
    }
}

impl Stages {
    fn name(&self, by: By, key: u64) -> Option<Name> {
        match (by, known(key)?) {
            (By::Comm, comm) => self.comms.get(comm as usize).cloned().map(Name::Text),
            (_, number) => Some(Name::Number(number)),
        }
    }

    pub fn operations(&self, by: By, costs: Costs) -> Vec<OperationStages> {
        let row = |(key, group): &(Key, Group)| {
            let hist = group.total.hist();
            let fates = FATES.iter().map(|(fate, name)| (fate, *name));
            let fates = fates.map(|(fate, name)| (*fate, name, group.fates[*fate as usize]));
            let unmatched = fates.filter(|(fate, _, n)| *fate != Fate::Matched && *n > 0);
            let stages = group.stages.iter();
            OperationStages {
                operation: key.operation,
                waits: key.waits,
                key: self.name(by, key.key),
                requests: group.fates.iter().sum(),
                matched: group.fates[Fate::Matched as usize],
                unmatched: unmatched.map(|(_, name, n)| (name, n)).collect(),
                errors: group.errors,
                ring: group.ring,
                handed: group.handed,
                timed: hist.count(),
                least_ns: group.least,
                stages: stages
                    .map(|(stage, tally)| tally.row(*stage, hist.count(), hist.sum(), costs))
                    .collect(),
                times: Summary::from(&hist),
            }
        };
        self.groups.iter().map(row).collect()
    }

    pub fn calls(&self, by: By) -> Vec<MountCalls> {
        let row = |((syscall, key), calls): &((String, u64), Calls)| {
            let times = Summary::from(&calls.total.hist());
            let cached = calls.cached.hist();
            let outside = OUTSIDE.iter().copied().zip(calls.outside);
            let rest: u128 = calls.outside.iter().map(|ns| u128::from(*ns)).sum();
            MountCalls {
                syscall: syscall.clone(),
                key: self.name(by, *key),
                operation: calls.operation.filter(|of| *of != Operation::UNKNOWN),
                operations: Operation::of_bits(calls.operations).collect(),
                calls: calls.total.hist().count(),
                unreturned: calls.unreturned,
                requests: calls.requests,
                in_requests_ns: times.total_ns.saturating_sub(rest),
                times,
                outside_ns: outside.filter(|(_, ns)| *ns > 0).collect(),
                least_ns: calls.least,
                cached: (cached.count() > 0).then(|| CallsWithoutRequest {
                    calls: cached.count(),
                    times: Summary::from(&cached),
                }),
            }
        };
        self.calls.iter().map(row).collect()
    }
}
