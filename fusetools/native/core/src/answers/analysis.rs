//! Turns events into answers: histograms of calls, requests and system calls, and single calls.
//!
//! An `Analysis` takes the batches of a recording in time order. It keeps what is open and the results, so its memory
//! does not grow with the recording (except for single calls, which are the result).

mod daemon;
mod kernel;
mod requests;
mod series;
mod tally;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answers::calls::{Open, Stack};
use crate::answers::hist::Hist;
use crate::answers::tree::{Single, Tree};
use crate::cost::{Met, OF_CALLBACK};
use crate::error::Error;
use crate::events::{or_zero, Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT, FARTHEST};
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::filters::{Filters, READ_TO_REPLY};
use crate::requests::in_flight::Requests;
use crate::requests::serves::Serves;
use crate::requests::stitch::{self, Cut, Mark, RequestCounts, Stitch, Story, Tell};

use daemon::{Reads, Replied};
use requests::Syscall;
pub use series::{Answer, Call, Columns, Detail, Series};
use tally::{Function, Tally};

/// Row of the catalogue.
#[derive(Clone, Copy)]
struct Kind {
    role: Role,
    layer: Layer,
    function: u32,
    operation: Operation,
}

#[derive(Default)]
struct Task {
    /// Stacks of callbacks, of kernel functions by probes, and of kernel functions by function_graph.
    stacks: [Stack; 3],
    syscall: Option<Syscall>,
    reads: Reads,
}

const DAEMON: usize = 0;
const PROBES: usize = 1;
const GRAPH: usize = 2;

fn stack_of(layer: Layer) -> usize {
    if layer == Layer::Daemon {
        DAEMON
    } else {
        PROBES
    }
}

/// Maximum number of function_graph's functions, by address: no genuine recording has more.
const MOST_FUNCTIONS: usize = 1 << 16;
/// Maximum number of processes whose parent is known.
const MOST_PARENTS: usize = 1 << 20;

pub struct Analysis {
    arch: Arch,
    filters: Filters,
    /// Start and end of the selected range on the recording's clock.
    window: (u64, u64),
    serves: Serves,
    /// Threads with a selected name.
    named: FxHashSet<i32>,
    kinds: Vec<Kind>,
    functions: Vec<Function>,
    follow_replies: bool,
    follow_requests: bool,
    tasks: FxHashMap<i32, Task>,
    /// Threads and functions that they entered or left, if calls may have begun before the recording.
    entered: FxHashSet<(i32, u32)>,
    counts: RequestCounts,
    /// Processes that made requests, and those that made these processes.
    callers: FxHashSet<i32>,
    /// Process that made a process, while recorded.
    parents: FxHashMap<i32, i32>,
    /// Observer of each request.
    stitch: Option<Box<Stitch>>,
    /// Requests of selected callers on mounts that are unknown so far, by `Story::id`.
    undecided: FxHashSet<u32>,
    /// Time of the latest event.
    now: u64,
    request_tallies: FxHashMap<Operation, Box<Tally>>,
    window_tallies: FxHashMap<Operation, Box<Tally>>,
    /// Bits of the operations for which a callback was seen.
    called: u128,
    /// Connections with a known daemon or a read. And: number of requests without a read, by connection and operation.
    readable: FxHashSet<u64>,
    unread: FxHashMap<(u64, Operation), u64>,
    reply_tallies: FxHashMap<(u32, Operation), Box<Tally>>,
    /// Completions of io_uring are recorded. And: replies to requests that have not ended, by `Story::id`.
    ring_events: bool,
    replied: FxHashMap<u32, Replied>,
    syscall_tallies: FxHashMap<(u64, Operation), Box<Tally>>,
    /// Number of times that events were dropped so far.
    losses: u32,
    columns: Option<Columns>,
    tree: Option<Tree>,
    /// Index into `Columns::functions`.
    syscall_names: FxHashMap<u64, u32>,
    /// Function by address.
    addresses: FxHashMap<u64, u32>,
}

/// Read a recording and return its answer. The reader's cores decode while this one pairs.
pub fn analyse(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    detail: Detail,
) -> Result<(ScanInfo, Answer), Error> {
    let mut analysis = Analysis::of(reader, catalogue, filters, detail)?;
    let info = reader.scan(catalogue, &mut |batch| analysis.push(&batch))?;
    analysis.end_at(info.last);
    Ok((info, analysis.finish()))
}

/// Read a recording and hand on each matched call with its function's name, in order of completion.
pub fn calls(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    tell: &mut dyn FnMut(&Call, &str),
) -> Result<(), Error> {
    let mut analysis = Analysis::of(reader, catalogue, filters, Detail::Columns)?;
    let mut hand_on = |columns: Option<&mut Columns>| {
        if let Some(Columns { functions, calls }) = columns {
            for call in calls.drain(..) {
                tell(&call, &functions[call.function as usize]);
            }
        }
    };
    let info = reader.scan(catalogue, &mut |batch| {
        analysis.push(&batch);
        hand_on(analysis.columns.as_mut());
    })?;
    analysis.end_at(info.last);
    hand_on(analysis.finish().columns.as_mut());
    Ok(())
}

impl Analysis {
    fn of(
        reader: &Reader,
        catalogue: &[Meaning],
        filters: Filters,
        detail: Detail,
    ) -> Result<Analysis, Error> {
        let first = filters.first(reader)?;
        let arch = reader.arch();
        let mut analysis = Analysis::new(catalogue, filters, arch.as_deref(), first, detail);
        if let Some(stitch) = &mut analysis.stitch {
            stitch.set_asleep(stitch::asleep(reader));
        }
        Ok(analysis)
    }

    /// Prepare an analysis. `catalogue`: as given to the reader. `arch`: as in the recording's header. `first`: time of
    /// the recording's first event, needed only for the filters `from` and `to`.
    pub fn new(
        catalogue: &[Meaning],
        filters: Filters,
        arch: Option<&str>,
        first: u64,
        detail: Detail,
    ) -> Analysis {
        let mut functions: Vec<Function> = Vec::new();
        let mut index: FxHashMap<(Layer, String), u32> = FxHashMap::default();
        let mut kinds = Vec::new();
        for row in catalogue {
            let function = match row.role {
                Role::Entry | Role::Return | Role::Reply => {
                    let key = (row.layer, row.function.clone());
                    let function = *index.entry(key).or_insert(functions.len() as u32);
                    if function as usize == functions.len() {
                        functions.push(Function {
                            layer: row.layer,
                            name: row.function.clone(),
                            operation: row.operation.clone(),
                            named: Operation::of_name(&row.operation),
                            returns: false,
                            address: None,
                            column: function,
                            lost: 0,
                            tallies: Vec::new(),
                        });
                    }
                    functions[function as usize].returns |= row.role == Role::Return;
                    function
                }
                _ => 0,
            };
            kinds.push(Kind {
                role: row.role,
                layer: row.layer,
                function,
                operation: Operation::of_name(&row.operation),
            });
        }
        let columns = detail == Detail::Columns;
        let begins = catalogue.iter().any(|row| row.role == Role::Begin);
        let stitch = (begins || filters.less().is_some())
            .then(|| Box::new(Stitch::new(catalogue, filters.clone(), arch, first, 0)));
        let mut filters = filters;
        filters.functions.sort();
        let follow_replies = catalogue.iter().any(|row| row.role == Role::Reply);
        let by_caller = !filters.pids.is_empty() || !filters.comms.is_empty();
        let follow_requests = by_caller || !filters.connections.is_empty();
        let columns = columns.then(|| Columns {
            functions: functions.iter().map(|f| f.name.clone()).collect(),
            ..Columns::default()
        });
        let tree = match detail {
            Detail::Tree | Detail::Calls => Some(Tree::new(detail == Detail::Calls)),
            _ => None,
        };
        let window = filters.window(first);
        let readable = filters.daemons.iter().map(|daemon| daemon.1).collect();
        Analysis {
            arch: Arch::new(arch),
            window,
            serves: Serves::new(&filters.daemons),
            named: FxHashSet::default(),
            filters,
            kinds,
            functions,
            follow_replies,
            follow_requests,
            tasks: FxHashMap::default(),
            entered: FxHashSet::default(),
            counts: RequestCounts::default(),
            callers: FxHashSet::default(),
            parents: FxHashMap::default(),
            stitch,
            undecided: FxHashSet::default(),
            now: 0,
            request_tallies: FxHashMap::default(),
            window_tallies: FxHashMap::default(),
            called: 0,
            readable,
            unread: FxHashMap::default(),
            reply_tallies: FxHashMap::default(),
            ring_events: catalogue.iter().any(|row| row.role == Role::Fetched),
            replied: FxHashMap::default(),
            syscall_tallies: FxHashMap::default(),
            losses: 0,
            columns,
            tree,
            syscall_names: FxHashMap::default(),
            addresses: FxHashMap::default(),
        }
    }

    /// Process the next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => {
                self.side(record);
                self.follow(|stitch, tell| stitch.side(record, tell));
            }
        });
    }

    /// Set the time of the recording's last event: open calls count until then.
    pub fn end_at(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Comm { tid, comm, .. } => {
                if let Some(tree) = &mut self.tree {
                    tree.comm(*tid, comm);
                }
                if self.filters.comms.contains(comm) {
                    self.named.insert(*tid);
                } else {
                    self.named.remove(tid);
                }
            }
            Side::Fork {
                pid,
                ppid,
                tid,
                ptid,
                time,
            } => {
                if pid != ppid && self.parents.len() < MOST_PARENTS {
                    self.parents.insert(*pid, *ppid);
                }
                self.forget_task(*tid, *time);
                if let Some(tree) = &mut self.tree {
                    tree.fork(*tid, *ptid);
                }
                if self.named.contains(ptid) {
                    self.named.insert(*tid);
                }
            }
            Side::Exit { tid, time, .. } => self.forget_task(*tid, *time),
            Side::Lost { .. } => self.losses += 1,
            Side::Switch { .. } | Side::Map(_) => {}
            Side::Name { .. } | Side::Asked { .. } | Side::Listed { .. } => {}
        }
    }

    fn forget_task(&mut self, tid: i32, time: u64) {
        self.named.remove(&tid);
        if let Some(task) = self.tasks.remove(&tid) {
            self.abandon(tid, task, time);
        }
    }

    /// Close the open calls of a task that has ended, or at the recording's end. Calls about requests count until then.
    fn abandon(&mut self, tid: i32, mut task: Task, time: u64) {
        let mut lost = Vec::new();
        for stack in &mut task.stacks {
            stack.abandon(|call| lost.push(call));
        }
        for call in lost {
            let daemon = self.functions[call.function as usize].layer == Layer::Daemon;
            let about = if daemon {
                !call.overtaken
            } else {
                call.operations != 0
            };
            if call.losses == self.losses && about {
                self.unfinished_call(call, tid, time);
            } else {
                self.unreturned([call]);
            }
        }
        let Some(syscall) = task.syscall else { return };
        if syscall.losses != self.losses || !self.in_window(syscall.start) {
            self.syscall_unreturned(Some(syscall));
            return;
        }
        let duration = time.saturating_sub(syscall.start);
        let duration = duration.saturating_sub(self.taken(tid));
        let on = self.stitch.as_ref().and_then(|stitch| stitch.on_mount(tid));
        let on = on.filter(|(pid, connection, _)| {
            self.wants_connection(*connection) && self.wants_caller(*pid, tid)
        });
        for operation in Operation::of_bits(self.counts_for(&syscall, on.map(|(.., own)| own))) {
            let tally = self.syscall_tallies.entry((syscall.number, operation));
            let tally = tally.or_default();
            tally.entries += 1;
            tally.unfinished(duration);
        }
    }

    fn unfinished_call(&mut self, call: Open, tid: i32, time: u64) {
        if let Some(tree) = self.tree.as_mut().filter(|_| call.whole) {
            tree.unmatched += 1;
        }
        if !call.counted {
            return;
        }
        let daemon = self.functions[call.function as usize].layer == Layer::Daemon;
        let (duration, until) = match daemon {
            true => self.duration(&call, tid, time),
            false => (time.saturating_sub(call.start), None),
        };
        let function = &mut self.functions[call.function as usize];
        let by_operation = self.filters.by_operation && !daemon;
        for operation in function.operations(by_operation, call.operations) {
            let tally = function.tally(operation);
            // A callback was counted at its entry.
            tally.entries += u64::from(!daemon);
            tally.reply(duration, until);
            tally.unfinished(duration);
            tally.outermost += u64::from(call.outermost && !daemon);
        }
    }

    /// Call `hand` with the stitching of requests.
    #[inline]
    fn follow(&mut self, hand: impl FnOnce(&mut Stitch, Tell)) {
        if let Some(mut stitch) = self.stitch.take() {
            hand(&mut stitch, &mut |story, _| self.story(story));
            self.stitch = Some(stitch);
        }
    }

    /// Process an event. A call ends before its request is dropped; a request begins before the calls around it belong
    /// to it.
    #[inline]
    fn event(&mut self, ev: &Ev) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        self.now = self.now.max(ev.time);
        match kind.role {
            Role::Begin => {
                self.follow(|stitch, tell| stitch.event(ev, tell));
                self.begin(ev, kind);
            }
            Role::Sent | Role::End => {
                if kind.role == Role::End {
                    self.end(ev);
                }
                self.follow(|stitch, tell| stitch.event(ev, tell));
                self.settle(ev.tid);
            }
            Role::SysExit => {
                let syscall = self.sys_exit(ev);
                self.follow(|stitch, tell| stitch.event(ev, tell));
                if let Some(syscall) = syscall {
                    self.syscall_returned(ev, syscall);
                }
            }
            _ => {
                self.call(ev, kind);
                self.follow(|stitch, tell| stitch.event(ev, tell));
            }
        }
    }

    #[inline]
    fn call(&mut self, ev: &Ev, kind: Kind) {
        match kind.role {
            Role::Entry => self.entry(ev, kind),
            Role::Return => self.ret(ev, kind),
            Role::GraphEntry => self.graph_entry(ev),
            Role::GraphExit => self.graph_exit(ev),
            Role::Reply => self.reply(ev, kind),
            Role::SysEnter => self.sys_enter(ev),
            Role::SysExit
            | Role::Switch
            | Role::Waking
            | Role::Connect
            | Role::Fetched
            | Role::Committed
            | Role::RingWait
            | Role::Length
            | Role::Stack
            | Role::Sample => {}
            Role::Begin | Role::Sent | Role::End | Role::Taken => {}
            Role::Inode | Role::Handle | Role::Name | Role::Listed => {}
            Role::Asked | Role::About | Role::Sized | Role::Answered | Role::Forgotten => {}
            Role::Signal => {}
        }
    }

    #[inline]
    fn lose(&mut self, calls: Vec<Open>) {
        if !calls.is_empty() {
            self.unreturned(calls);
        }
    }

    /// Count calls whose return was not seen, or may belong to another call.
    fn unreturned(&mut self, calls: impl IntoIterator<Item = Open>) {
        for call in calls {
            let function = &mut self.functions[call.function as usize];
            if function.layer == Layer::Daemon {
                function.tally(Operation::UNKNOWN).unmatched += u64::from(call.counted);
                continue;
            }
            if let Some(tree) = self.tree.as_mut().filter(|_| call.whole) {
                tree.unmatched += 1;
            }
            let mounts = !self.filters.connections.is_empty();
            if call.counted && (!mounts || call.operations != 0) {
                function.lost += 1;
                for operation in function.operations(self.filters.by_operation, call.operations) {
                    let tally = function.tally(operation);
                    tally.entries += 1;
                    tally.unmatched += 1;
                }
            }
        }
    }

    fn in_window(&self, time: u64) -> bool {
        (self.window.0..self.window.1).contains(&time)
    }

    fn wants_caller(&self, pid: i32, tid: i32) -> bool {
        (self.filters.pids.is_empty() || self.filters.pids.contains(&pid))
            && (self.filters.comms.is_empty() || self.named.contains(&tid))
    }

    fn wants_connection(&self, connection: u64) -> bool {
        self.filters.connections.is_empty() || self.filters.connections.contains(&connection)
    }

    pub fn finish(mut self) -> Answer {
        for (tid, task) in std::mem::take(&mut self.tasks) {
            self.abandon(tid, task, self.now);
        }
        if let Some(mut stitch) = self.stitch.take() {
            stitch.end_at(self.now);
            stitch.finish(&mut |story, _| self.story(story));
        }
        for (_, replied) in std::mem::take(&mut self.replied) {
            self.replied(replied);
        }
        self.count_unread();
        let mut series = Vec::new();
        let mut add = |layer, function: String, operation: &str, tally: Tally| {
            if tally.entries + tally.unmatched > 0 {
                series.push(Series {
                    layer,
                    function,
                    operation: operation.to_owned(),
                    entries: tally.entries,
                    unmatched: tally.unmatched,
                    hist: tally.hist,
                    unanswered: tally.unanswered,
                    least: tally.least,
                    lost: tally.unmatched,
                    until_reply: None,
                    after_reply: None,
                    outermost: tally.outermost,
                    own: None,
                    address: None,
                });
            }
        };
        for ((function, operation), tally) in self.reply_tallies {
            let function = &self.functions[function as usize];
            add(
                Layer::Daemon,
                function.name.clone(),
                operation.name(),
                *tally,
            );
        }
        for (operation, tally) in self.request_tallies {
            add(
                Layer::Request,
                operation.constant(),
                operation.name(),
                *tally,
            );
        }
        let called = self.called;
        let uncalled = self.window_tallies.into_iter();
        for (operation, tally) in uncalled.filter(|(operation, _)| called & operation.bit() == 0) {
            let function = READ_TO_REPLY.to_owned();
            add(Layer::Daemon, function, operation.name(), *tally);
        }
        for ((number, operation), tally) in self.syscall_tallies {
            add(
                Layer::Syscall,
                self.arch.syscall(number),
                operation.name(),
                *tally,
            );
        }
        for function in &mut self.functions {
            for (operation, tally) in std::mem::take(&mut function.tallies) {
                if tally.entries + tally.unmatched == 0 {
                    continue;
                }
                let replied = tally.replied.map(|replied| *replied);
                let (until_reply, after_reply) = replied.unzip();
                series.push(Series {
                    layer: function.layer,
                    function: function.name.clone(),
                    operation: match operation {
                        Operation::UNKNOWN => function.operation.clone(),
                        operation => operation.name().to_owned(),
                    },
                    entries: tally.entries,
                    unmatched: tally.unmatched,
                    hist: tally.hist,
                    unanswered: tally.unanswered,
                    least: tally.least,
                    lost: match function.layer {
                        Layer::Kernel => function.lost,
                        _ => tally.unmatched,
                    },
                    until_reply,
                    after_reply,
                    outermost: tally.outermost,
                    own: function.address.map(|_| tally.own),
                    address: function.address,
                });
            }
        }
        series.sort_by(|a, b| {
            (a.layer, &a.function, &a.operation).cmp(&(b.layer, &b.function, &b.operation))
        });
        if let Some(columns) = &mut self.columns {
            columns.calls.sort_by_key(|call| call.start);
        }
        if let Some(tree) = &mut self.tree {
            tree.finish(self.functions.into_iter().map(|function| function.name));
        }
        Answer {
            series,
            requests: self.counts,
            callers: self.callers.into_iter().collect(),
            columns: self.columns,
            tree: self.tree,
        }
    }
}

/// Return an event's task. The idle tasks, one per CPU, all have number 0; here each has its own.
fn task_of(ev: &Ev) -> i32 {
    if ev.tid == 0 {
        !(ev.cpu as i32 & i32::MAX)
    } else {
        ev.tid
    }
}
