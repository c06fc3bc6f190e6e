//! Activity of mounts at this moment: requests as they end, from the stream that perf writes to a pipe.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::answers::metrics::{InFlight, Measured, Metrics};
use crate::answers::slowest::NamedRequest;
use crate::error::Error;
use crate::events::{Batch, Layer, Meaning, Side, ABSENT};
use crate::operations::Operation;
use crate::reader::Stream;
use crate::requests::filters::Filters;
use crate::requests::named::{Known, Listener, Observer};
use crate::requests::names::Path;
use crate::requests::stitch::{asleep, Mark, Stitch};
use crate::requests::wanted::Wanted;

/// Headers of the protocol (include/uapi/linux/fuse.h): fuse_out_header, fuse_in_header and fuse_write_in.
const OUT_HEADER: u64 = 16;
const WRITE_HEADERS: u64 = 40 + 40;

/// Requests of an interval that are kept; more are counted as not kept.
const MOST_ROWS: usize = 1 << 20;
/// Requests that wait to be printed.
const MOST_LINES: usize = 1 << 16;
/// Maximum number of remembered file names, and of requests without an end.
const MOST_NAMES: usize = 1 << 19;
const MOST_UNSURE: usize = 1 << 12;
/// Wanted requests that have ended, whose records are held.
const MOST_HELD: usize = 1 << 12;

/// A request that has ended, or is in flight, with what the sums need. Times in ns.
#[derive(Clone, Copy, Debug)]
struct Row {
    duration: u64,
    /// Its end; for a request in flight, the interval's end.
    end: u64,
    /// Until its callback was entered, or the daemon had read it; ABSENT where that is not known.
    queue: u64,
    bytes: u64,
    operation: Operation,
    error: i32,
    waits: bool,
    in_flight: bool,
    pid: i32,
    comm: u32,
    thread: i32,
    connection: u64,
    path: u32,
}

/// The key by which requests are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Operation,
    Mount,
    Process,
    /// By the caller's label of processes.
    Label,
    File,
    Directory,
    /// Thread of the daemon.
    Thread,
}

impl By {
    pub fn of_name(name: &str) -> Option<By> {
        Some(match name {
            "operation" => By::Operation,
            "mount" => By::Mount,
            "process" => By::Process,
            "label" => By::Label,
            "file" => By::File,
            "directory" => By::Directory,
            "thread" => By::Thread,
            _ => return None,
        })
    }
}

/// A group of requests. Times in ns; None where not known of any.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Group {
    pub label: String,
    /// Number of the process, or of the daemon's thread.
    pub id: Option<i32>,
    pub connection: Option<u64>,
    pub requests: u64,
    pub errors: u64,
    /// Bytes read and written, and the number of requests that moved them.
    pub bytes: u64,
    pub transfers: u64,
    /// Total time of those that ended; the time within the interval that callers waited for these and those in flight.
    pub total: u64,
    pub waited: u64,
    #[serde(rename = "p50_ns")]
    pub p50: u64,
    #[serde(rename = "p99_ns")]
    pub p99: u64,
    #[serde(rename = "max_ns")]
    pub max: u64,
    /// Sums of requests with a known start in the daemon: until then, and from then on.
    pub queue: u64,
    pub daemon: u64,
    pub queued: u64,
    pub under_way: u64,
}

/// The figure by which rows are sorted, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Requests,
    Waited,
    P50,
    P99,
    Max,
    Bytes,
    Errors,
    UnderWay,
}

impl Sort {
    pub fn of_name(name: &str) -> Option<Sort> {
        Some(match name {
            "requests" => Sort::Requests,
            "waited" => Sort::Waited,
            "p50" => Sort::P50,
            "p99" => Sort::P99,
            "max" => Sort::Max,
            "bytes" => Sort::Bytes,
            "errors" => Sort::Errors,
            "under_way" => Sort::UnderWay,
            _ => return None,
        })
    }

    fn of(self, group: &Group) -> u64 {
        match self {
            Sort::Requests => group.requests,
            Sort::Waited => group.waited,
            Sort::P50 => group.p50,
            Sort::P99 => group.p99,
            Sort::Max => group.max,
            Sort::Bytes => group.bytes,
            Sort::Errors => group.errors,
            Sort::UnderWay => group.under_way,
        }
    }
}

/// How an interval's rows are wanted.
pub struct View<'a> {
    pub by: By,
    pub sort: Sort,
    /// Rows at most, and what their labels must contain.
    pub most: usize,
    pub contains: &'a str,
    /// Labels of processes, for `By::Label`.
    pub labels: &'a FxHashMap<i32, String>,
    /// Mount points by connection.
    pub mounts: &'a FxHashMap<u64, String>,
}

/// An interval's rows.
#[derive(Debug, Default, Serialize)]
pub struct Interval {
    pub total: Group,
    /// How many groups there were.
    pub groups: usize,
    pub rows: Vec<Group>,
    /// Requests that are in no sum: there were too many.
    pub left_out: u64,
}

/// Collects requests that have ended.
struct Ended {
    /// For the sums; with paths only if needed.
    rows: Option<Vec<Row>>,
    with_paths: bool,
    left_out: u64,
    paths: Vec<(u64, String, bool)>,
    numbers: FxHashMap<(u64, String, bool), u32>,
    comms: FxHashMap<u32, String>,
    wanted: Option<Wanted>,
    /// Requests that end with one of these errors are wanted, too.
    failed_with: Vec<i32>,
    lines: VecDeque<NamedRequest>,
    /// When wanted requests began and ended, while their records are held.
    held: VecDeque<[u64; 2]>,
    dropped: u64,
    pathless: u64,
    requests: u64,
    errors: u64,
}

impl Ended {
    fn path(&mut self, known: &Known<'_>) -> u32 {
        let path = if self.with_paths { known.path() } else { None };
        self.number(known.story.connection, path)
    }

    fn number(&mut self, connection: u64, path: Option<Path>) -> u32 {
        let Some(path) = path else {
            return u32::MAX;
        };
        let key = (connection, path.text, path.whole);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.paths.len() as u32;
        self.paths.push(key.clone());
        self.numbers.insert(key, number);
        number
    }

    fn row(&mut self, known: &Known<'_>, duration: u64) -> Row {
        let story = known.story;
        let begin = story.at(Mark::Begin).unwrap_or(0);
        let taken = story.at(Mark::CallbackEnter).or(story.at(Mark::Read));
        self.comms
            .entry(story.comm)
            .or_insert_with(|| known.comm().to_owned());
        Row {
            duration,
            end: begin.saturating_add(duration),
            queue: taken.map_or(ABSENT, |taken| taken.saturating_sub(begin).min(duration)),
            bytes: bytes(known).unwrap_or(ABSENT),
            operation: story.operation,
            error: story.error,
            waits: story.waits,
            in_flight: false,
            pid: story.pid,
            comm: story.comm,
            thread: story.daemon_tid,
            connection: story.connection,
            path: self.path(known),
        }
    }
}

/// Return the bytes read or written; 0 for operations that do neither.
fn bytes(known: &Known<'_>) -> Option<u64> {
    let story = known.story;
    let known_len = |len: u64| Some(len).filter(|len| *len != ABSENT);
    match story.operation.name() {
        _ if story.error != 0 => Some(0),
        "read" => known_len(story.reply_len)?.checked_sub(OUT_HEADER),
        "write" => {
            let size = known_len(story.size).or(known_len(known.details.size));
            size.or_else(|| known_len(story.request_len)?.checked_sub(WRITE_HEADERS))
        }
        _ => Some(0),
    }
}

impl Listener for Ended {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let Some(duration) = story.duration().filter(|_| story.counts()) else {
            return;
        };
        self.requests += 1;
        self.errors += u64::from(story.error != 0);
        if self.rows.as_ref().is_some_and(|r| r.len() >= MOST_ROWS) {
            self.left_out += 1;
        } else if self.rows.is_some() {
            let row = self.row(known, duration);
            self.rows.get_or_insert_default().push(row);
        }
        let Some(wanted) = &self.wanted else { return };
        let failed = story.error != 0 && self.failed_with.contains(&-story.error);
        let fits = || wanted.is(story, duration, || known.path());
        match failed.then_some(true).or_else(fits) {
            Some(true) if self.lines.len() < MOST_LINES => {
                if self.held.len() == MOST_HELD {
                    self.held.pop_front();
                }
                let times = [Mark::Begin, Mark::End].map(|mark| story.at(mark).unwrap_or(0));
                self.held.push_back(times);
                self.lines.push_back(NamedRequest::new(known, duration));
            }
            Some(true) => self.dropped += 1,
            Some(false) => {}
            None => self.pathless += 1,
        }
    }
}

/// A running perf's requests.
pub struct Now {
    stream: Stream,
    catalogue: Vec<Meaning>,
    filters: Filters,
    /// Daemons whose calls count: where others run the same library, its probes fire there, too.
    servers: Vec<i32>,
    daemon: Vec<bool>,
    observer: Option<Observer<Ended>>,
    ended: Option<Ended>,
    upto: u64,
    /// Begin of the interval.
    from: u64,
    holds: bool,
    /// Operations of which the begin in the daemon was seen, by connection.
    begun: FxHashSet<(u64, Operation)>,
}

impl Now {
    /// Create it. `sums`: for `take`, with paths or without; `wanted`: for `lines`.
    pub fn new(
        catalogue: Vec<Meaning>,
        filters: Filters,
        servers: Vec<i32>,
        sums: bool,
        wanted: Option<Wanted>,
    ) -> Now {
        let daemon = |row: &Meaning| row.layer == Layer::Daemon;
        Now {
            stream: Stream::new(catalogue.clone()),
            daemon: catalogue.iter().map(daemon).collect(),
            catalogue,
            filters,
            servers,
            observer: None,
            ended: Some(Ended {
                rows: sums.then(Vec::new),
                with_paths: false,
                left_out: 0,
                paths: Vec::new(),
                numbers: FxHashMap::default(),
                comms: FxHashMap::default(),
                wanted,
                failed_with: Vec::new(),
                lines: VecDeque::new(),
                held: VecDeque::new(),
                dropped: 0,
                pathless: 0,
                requests: 0,
                errors: 0,
            }),
            upto: 0,
            from: 0,
            holds: false,
            begun: FxHashSet::default(),
        }
    }

    /// Add the next bytes of perf's stream. Error: they are invalid.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.feed(bytes)?;
        self.tell();
        Ok(())
    }

    /// Note that all events up to this time (ns on the recording's clock) have been fed.
    pub fn complete(&mut self, upto: u64) {
        self.stream.complete(upto);
        self.upto = self.upto.max(upto);
        self.tell();
        if let Some(observer) = &mut self.observer {
            observer.bound(MOST_NAMES, MOST_UNSURE);
            if self.holds {
                let mut times = FxHashSet::default();
                observer.under_way(|known, _| times.extend(known.story.at(Mark::Begin)));
                times.extend(observer.listener().held.iter().flatten());
                self.stream.retain(upto, &times);
            }
        }
    }

    /// Hold, from now on, the records of requests in flight, and of wanted ones.
    pub fn hold(&mut self) {
        self.holds = true;
        self.stream.keep_records();
    }

    /// Return a recording of what is held: begins of requests in flight; begins and ends of wanted requests since the
    /// last time. None: nothing is held.
    pub fn held(&mut self) -> Option<Vec<u8>> {
        let held = self.stream.held();
        if let Some(ended) = self.ended() {
            ended.held.clear();
        }
        held
    }

    /// Return the time up to which nothing is missing, as perf's own rounds show, in ns on the recording's clock; 0:
    /// unknown.
    pub fn by_rounds(&self) -> u64 {
        self.stream.by_rounds()
    }

    /// Note that all events are recorded from now on. They are switched on one after the other, so the ends of requests
    /// that began before may be missing.
    pub fn start(&mut self, upto: u64) {
        self.complete(upto);
        self.from = upto;
        if let Some(observer) = &mut self.observer {
            observer.lose();
        }
        if let Some(ended) = self.ended() {
            if let Some(rows) = &mut ended.rows {
                rows.clear();
            }
            ended.lines.clear();
            [ended.requests, ended.errors, ended.dropped, ended.pathless] = [0; 4];
        }
    }

    fn tell(&mut self) {
        let head = self.stream.head();
        if let Some((head, ended)) = head.and_then(|head| Some((head, self.ended.take()?))) {
            let (filters, arch) = (self.filters.clone(), head.arch());
            let stitch = Stitch::new(&self.catalogue, filters, arch.as_deref(), 0, asleep(head));
            self.observer = Some(Observer::new(stitch.eager(), &self.catalogue, ended));
        }
        let Some(observer) = &mut self.observer else {
            return;
        };
        for mut batch in self.stream.batches() {
            ours(&mut batch, &self.daemon, &self.servers);
            observer.push(&batch);
        }
    }

    fn ended(&mut self) -> Option<&mut Ended> {
        match &mut self.observer {
            Some(observer) => Some(observer.listener()),
            None => self.ended.as_mut(),
        }
    }

    /// Give up the requests of these connections that began before a time when the kernel had none in flight there.
    pub fn forget(&mut self, connections: &[u64], before: u64) {
        if let Some(observer) = &mut self.observer {
            for connection in connections {
                observer.forget(*connection, before);
            }
        }
    }

    /// Set whether paths are wanted from now on.
    pub fn set_paths(&mut self, with: bool) {
        if let Some(ended) = self.ended() {
            ended.with_paths = with;
        }
    }

    /// Add requests that end with one of these errors (errno) to the lines.
    pub fn set_errors(&mut self, errors: Vec<i32>) {
        if let Some(ended) = self.ended() {
            ended.failed_with = errors;
        }
    }

    pub fn lost(&self) -> u64 {
        self.stream.lost()
    }

    /// Number of requests that ended so far, of failed ones, of wanted ones that were dropped, and of those without a
    /// path to match.
    pub fn sums(&mut self) -> [u64; 4] {
        self.ended().map_or([0; 4], |ended| {
            [ended.requests, ended.errors, ended.dropped, ended.pathless]
        })
    }

    /// Return the wanted requests, in the order in which they ended.
    pub fn lines(&mut self) -> VecDeque<NamedRequest> {
        let ended = self.ended();
        ended.map_or_else(VecDeque::new, |ended| std::mem::take(&mut ended.lines))
    }

    /// Return the callers of the interval's requests so far, and of those in flight.
    pub fn callers(&mut self) -> Vec<i32> {
        let mut pids: Vec<i32> = Vec::new();
        if let Some(observer) = &self.observer {
            observer.under_way(|known, _| pids.push(known.story.pid));
        }
        let rows = self.ended().and_then(|ended| ended.rows.as_ref());
        pids.extend(rows.into_iter().flatten().map(|row| row.pid));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Return the requests under way that are older than `least` ns, oldest first, at most `most`; each with its age,
    /// and whether its end may have been lost. And the number of all under way.
    pub fn under_way(&self, least: u64, most: usize) -> (Vec<(NamedRequest, bool)>, usize) {
        let mut rows: Vec<(u64, NamedRequest, bool)> = Vec::new();
        let mut all = 0;
        let Some(observer) = &self.observer else {
            return (Vec::new(), 0);
        };
        let mut begins = Vec::new();
        observer.under_way(|known, _| {
            all += 1;
            begins.push(known.story.at(Mark::Begin).unwrap_or(0));
        });
        begins.sort_unstable();
        let last = begins.get(most.saturating_sub(1)).copied();
        let latest = last.unwrap_or(u64::MAX);
        observer.under_way(|known, in_flight| {
            let begin = known.story.at(Mark::Begin).unwrap_or(0);
            let age = self.upto.saturating_sub(begin);
            if begin <= latest && age >= least && rows.len() < most {
                rows.push((begin, NamedRequest::new(known, age), in_flight.unsure));
            }
        });
        rows.sort_by_key(|(begin, ..)| *begin);
        let rows = rows
            .into_iter()
            .map(|(_, request, unsure)| (request, unsure));
        (rows.collect(), all)
    }

    /// Return the requests that ended since the last time, and those in flight. It takes what `take` would.
    pub fn measure(&mut self) -> Metrics {
        let mut in_flight: BTreeMap<u64, InFlight> = BTreeMap::new();
        let rows = self.ended().and_then(|ended| ended.rows.as_mut());
        let rows = rows.map(std::mem::take).unwrap_or_default();
        let begun = rows.iter().filter(|row| row.queue != ABSENT);
        let begun = begun.map(|row| (row.connection, row.operation));
        self.begun.extend(begun);
        if let Some(observer) = &self.observer {
            observer.under_way(|known, how| {
                let story = known.story;
                let row = in_flight.entry(story.connection).or_insert(InFlight {
                    connection: story.connection,
                    ..InFlight::default()
                });
                if how.unsure {
                    return;
                }
                row.requests += 1;
                let begin = story.at(Mark::Begin).unwrap_or(self.upto);
                row.oldest = row.oldest.max(self.upto.saturating_sub(begin));
                if self.begun.contains(&(story.connection, story.operation)) {
                    let begun = story.at(Mark::CallbackEnter).or(story.at(Mark::Read));
                    *row.queued.get_or_insert(0) += u64::from(begun.is_none());
                }
            });
        }
        let Some(ended) = self.ended() else {
            return Metrics::default();
        };
        ended.paths.clear();
        ended.numbers.clear();
        ended.comms.clear();
        Metrics {
            measured: measured(&rows),
            in_flight: in_flight.into_values().collect(),
            left_out: std::mem::take(&mut ended.left_out),
        }
    }

    /// Return the sums since the last time.
    pub fn take(&mut self, view: &View<'_>) -> Interval {
        let mut under_way: Vec<(Row, Option<Path>)> = Vec::new();
        let mut waiting: FxHashMap<u32, String> = FxHashMap::default();
        let (from, upto) = (self.from, self.upto);
        self.from = upto;
        let paths = matches!(view.by, By::File | By::Directory);
        if let Some(observer) = &self.observer {
            observer.under_way(|known, how| {
                let story = known.story;
                let name = || known.comm().to_owned();
                waiting.entry(story.comm).or_insert_with(name);
                let begin = story.at(Mark::Begin).unwrap_or(upto);
                let row = Row {
                    duration: upto.saturating_sub(begin),
                    end: upto,
                    queue: ABSENT,
                    bytes: ABSENT,
                    operation: story.operation,
                    error: 0,
                    waits: how.awaited && !how.unsure,
                    in_flight: true,
                    pid: story.pid,
                    comm: story.comm,
                    thread: story.daemon_tid,
                    connection: story.connection,
                    path: u32::MAX,
                };
                under_way.push((row, if paths { known.path() } else { None }));
            });
        }
        let Some(ended) = self.ended() else {
            return Interval::default();
        };
        let number = |(mut row, path): (Row, _)| {
            row.path = ended.number(row.connection, path);
            row
        };
        let under_way: Vec<Row> = under_way.into_iter().map(number).collect();
        let mut rows = std::mem::take(ended.rows.get_or_insert_default());
        rows.extend(under_way);
        let left_out = std::mem::take(&mut ended.left_out);
        let paths = std::mem::take(&mut ended.paths);
        ended.numbers = FxHashMap::default();
        let mut comms = std::mem::take(&mut ended.comms);
        comms.extend(waiting);
        let sums = Sums {
            view,
            from,
            paths: &paths,
            comms: &comms,
        };
        Interval {
            left_out,
            ..sums.interval(&rows)
        }
    }
}

/// Return the rows by connection and operation.
fn measured(rows: &[Row]) -> Vec<Measured> {
    let mut groups: BTreeMap<(u64, u64), Measured> = BTreeMap::new();
    for row in rows {
        let key = (row.connection, row.operation.place());
        let group = groups.entry(key).or_insert_with(|| Measured {
            connection: row.connection,
            operation: row.operation.name(),
            ..Measured::default()
        });
        group.whole.add(row.duration);
        if row.queue != ABSENT {
            group.queue.add(row.queue);
            group.daemon.add(row.duration - row.queue);
        }
        if row.bytes != ABSENT {
            group.bytes = group.bytes.saturating_add(row.bytes);
        }
        if row.error != 0 {
            *group.errors.entry(row.error.saturating_neg()).or_default() += 1;
        }
    }
    groups.into_values().collect()
}

/// Drop the events of other daemons that run the same library.
fn ours(batch: &mut Batch, daemon: &[bool], servers: &[i32]) {
    let is_ours = |pid: i32| servers.is_empty() || servers.contains(&pid);
    let of_daemon = |kind: u32| daemon.get(kind as usize).copied().unwrap_or(false);
    batch
        .events
        .retain(|ev| !of_daemon(ev.kind) || is_ours(ev.pid));
    batch.side.retain(|record| match record {
        Side::Name { pid, .. } | Side::Listed { pid, .. } => is_ours(*pid),
        _ => true,
    });
}

struct Sums<'a> {
    view: &'a View<'a>,
    /// Begin of the interval.
    from: u64,
    paths: &'a [(u64, String, bool)],
    comms: &'a FxHashMap<u32, String>,
}

/// The key of a group: numbers alone, which are compared quickly.
type Key = (u64, u64);

impl Sums<'_> {
    fn key(&self, row: &Row) -> Key {
        match self.view.by {
            By::Operation => (row.operation.place(), 0),
            By::Mount => (row.connection, 0),
            By::Process | By::Label => (row.pid as u32 as u64, 0),
            By::File | By::Directory => match row.path {
                u32::MAX => (row.connection, u64::MAX),
                path => (row.connection, u64::from(path)),
            },
            By::Thread => (row.thread as u32 as u64, row.connection),
        }
    }

    fn mount(&self, connection: u64) -> &str {
        self.view.mounts.get(&connection).map_or("", |s| s.as_str())
    }

    fn path(&self, connection: u64, path: u32) -> String {
        let mount = self.mount(connection);
        match self.paths.get(path as usize) {
            Some((_, text, true)) if text.is_empty() => mount.to_owned(),
            Some((_, text, true)) => format!("{}/{text}", mount.trim_end_matches('/')),
            Some((_, text, false)) => format!("{}/…/{text}", mount.trim_end_matches('/')),
            None => format!("{}/…", mount.trim_end_matches('/')),
        }
    }

    fn label(&self, row: &Row) -> String {
        match self.view.by {
            By::Operation => row.operation.name().to_owned(),
            By::Mount => self.mount(row.connection).to_owned(),
            By::Process => self.comms.get(&row.comm).cloned().unwrap_or_default(),
            By::Label => self.view.labels.get(&row.pid).cloned().unwrap_or_default(),
            By::File => self.path(row.connection, row.path),
            By::Directory => {
                let path = self.path(row.connection, row.path);
                // The directory of an unknown file is unknown, too.
                let known = row.path != u32::MAX && path != self.mount(row.connection);
                match path.rsplit_once('/').filter(|_| known) {
                    Some((above, _)) => above.to_owned(),
                    None => path,
                }
            }
            By::Thread => String::new(),
        }
    }

    /// Return the group that a row belongs to, without figures.
    fn group(&self, row: &Row, label: String) -> Group {
        let id = match self.view.by {
            By::Process => Some(row.pid),
            By::Thread => Some(row.thread),
            _ => None,
        };
        let one = matches!(self.view.by, By::Mount | By::File | By::Thread);
        Group {
            label,
            id: id.filter(|id| *id >= 0),
            connection: one.then_some(row.connection),
            ..Group::default()
        }
    }

    fn interval(&self, rows: &[Row]) -> Interval {
        let mut by_key: FxHashMap<Key, Vec<&Row>> = FxHashMap::default();
        for row in rows {
            // A request in flight may not have a thread yet.
            if self.view.by != By::Thread || !row.in_flight || row.thread >= 0 {
                by_key.entry(self.key(row)).or_default().push(row);
            }
        }
        // Different keys may have one label: processes of a user, files of a directory.
        let together = matches!(self.view.by, By::Label | By::Directory);
        let mut by_label: FxHashMap<String, Vec<&Row>> = FxHashMap::default();
        let mut groups: Vec<(Group, Vec<&Row>)> = Vec::new();
        for (_, rows) in by_key {
            let Some(last) = rows.last() else { continue };
            let label = self.label(last);
            if !label.contains(self.view.contains) {
                continue;
            }
            match together {
                true => by_label.entry(label).or_default().extend(rows),
                false => groups.push((self.group(last, label), rows)),
            }
        }
        for (label, rows) in by_label {
            groups.push((self.group(rows[0], label), rows));
        }
        let sums = groups.into_iter();
        let mut sums: Vec<Group> = sums
            .map(|(group, rows)| self.sum(group, rows.into_iter()))
            .collect();
        let sort = self.view.sort;
        sums.sort_by(|a, b| {
            let rank = |group: &Group| (sort.of(group), group.requests, group.under_way);
            let names = || (&a.label, a.id).cmp(&(&b.label, b.id));
            rank(b).cmp(&rank(a)).then_with(names)
        });
        let number = sums.len();
        sums.truncate(self.view.most);
        Interval {
            total: self.sum(Group::default(), rows.iter()),
            groups: number,
            rows: sums,
            left_out: 0,
        }
    }

    /// Return the figures of a group's requests.
    fn sum<'a>(&self, mut group: Group, rows: impl Iterator<Item = &'a Row>) -> Group {
        let mut durations: Vec<u64> = Vec::new();
        for row in rows {
            if row.waits {
                let within = row.end.saturating_sub(self.from).min(row.duration);
                group.waited = group.waited.saturating_add(within);
            }
            if row.in_flight {
                group.under_way += 1;
                continue;
            }
            durations.push(row.duration);
            group.errors += u64::from(row.error != 0);
            group.total = group.total.saturating_add(row.duration);
            if row.bytes != ABSENT {
                group.bytes = group.bytes.saturating_add(row.bytes);
                group.transfers += u64::from(row.bytes > 0);
            }
            if row.queue != ABSENT {
                group.queued += 1;
                group.queue = group.queue.saturating_add(row.queue);
                group.daemon = group.daemon.saturating_add(row.duration - row.queue);
            }
        }
        durations.sort_unstable();
        // Nearest rank, as `Hist::percentile`.
        let rank = |per_mille: usize| {
            let rank = (durations.len() * per_mille).div_ceil(1000).max(1);
            durations.get(rank - 1).copied().unwrap_or(0)
        };
        (group.p50, group.p99) = (rank(500), rank(990));
        group.max = durations.last().copied().unwrap_or(0);
        group.requests = durations.len() as u64;
        group
    }
}
