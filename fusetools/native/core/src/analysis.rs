//! From events to answers: calls, requests and system calls, their histograms and columns.
//!
//! One `Analysis` takes the batches of a recording in time order. It keeps what is open and the results, so its
//! memory does not grow with the recording (columns apart, which are the result).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::calls::{Open, Stack};
use crate::error::Error;
use crate::events::{Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT};
use crate::hist::Hist;
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::{Key, Request, Requests, Told};
use crate::stitch::{Mark, Stitch, Story};
use crate::tree::{Single, Tree};

/// What is asked for; an empty list asks for all.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Processes that call: of a request, its caller; of a daemon's call, the caller of its request.
    pub pids: Vec<i32>,
    /// The same by the calling thread's name.
    pub comms: Vec<String>,
    /// Mounts.
    pub connections: Vec<u64>,
    /// Only these processes' calls in the daemon layer.
    pub daemon_pids: Vec<i32>,
    /// The connection that a daemon process serves, where known: `unique` numbers repeat between connections.
    pub daemons: Vec<(i32, u64)>,
    /// Calls and requests that start in from..to, ns after the recording's first event.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// The kernel's functions for function_graph, by start: name, and operation where the name tells it.
    pub functions: Vec<(u64, String, String)>,
    /// Kernel functions apart by operation: that of the requests made inside a call, else what the name tells. A call
    /// with requests of several operations counts for each.
    pub by_operation: bool,
    /// A series `READ_TO_REPLY` of the daemon layer for each operation: from the daemon's read of a request to its
    /// reply, of those without a callback.
    pub windows: bool,
}

/// In the place of a callback's name, where a daemon has none.
pub const READ_TO_REPLY: &str = "read to reply";

impl Filters {
    /// The time of the recording's first event; 0, without a pass over it, where no filter needs that.
    pub(crate) fn first(&self, reader: &Reader) -> Result<u64, Error> {
        match (self.from, self.to) {
            (None, None) => Ok(0),
            _ => Ok(reader.scan(&[], &mut |_| {})?.first),
        }
    }

    /// From and to on the recording's clock.
    pub(crate) fn window(&self, first: u64) -> (u64, u64) {
        (
            self.from.map_or(0, |from| first.saturating_add(from)),
            self.to.map_or(u64::MAX, |to| first.saturating_add(to)),
        )
    }
}

/// What is wanted beside the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    Columns,
    /// The kernel's calls as a tree of what called what.
    Tree,
    /// The same, and each single call.
    Calls,
}

/// The calls of one function, or the requests of one operation.
#[derive(Clone, Debug)]
pub struct Series {
    pub layer: Layer,
    /// The function, the request's constant (`FUSE_LOOKUP`) or the system call.
    pub function: String,
    pub operation: String,
    /// Entries seen, or requests begun.
    pub entries: u64,
    /// Entries whose return was not seen (or not surely theirs), and returns whose entry was not seen.
    pub unmatched: u64,
    /// Durations of matched calls, and of `unanswered` ones.
    pub hist: Hist,
    /// Open at the recording's or their thread's end; requests that were not answered. They count until then, so
    /// their durations are what they took at least.
    pub unanswered: u64,
    /// The shortest of those, ns.
    pub least: Option<u64>,
    /// Of a kernel function: `unmatched` of all operations, each call once.
    pub lost: u64,
    /// Of callbacks, where any replied: until the reply, and what of the duration comes after it.
    pub until_reply: Option<Hist>,
    pub after_reply: Option<Hist>,
    /// Matched calls that no other call of the kernel layer encloses.
    pub outermost: u64,
    /// ns of all matched calls less what was spent in the calls inside them; where all functions are seen
    /// (function_graph).
    pub own: Option<u128>,
    /// Of the function, where function_graph tells it.
    pub address: Option<u64>,
}

/// Requests of all operations: `begun - matched` have not ended, `ended - matched` have no begin in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub begun: u64,
    pub ended: u64,
    pub matched: u64,
    /// Of those begun: no answer came of the daemon.
    pub unanswered: u64,
}

impl RequestCounts {
    pub fn add(&mut self, story: &Story) {
        let begun = story.at(Mark::Begin).is_some();
        let ended = story.at(Mark::End).is_some();
        self.begun += u64::from(begun);
        self.ended += u64::from(ended);
        self.matched += u64::from(begun && ended);
        self.unanswered += u64::from(begun && story.is_unanswered());
    }
}

/// A matched call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub layer: Layer,
    /// Index into `Columns::functions`.
    pub function: u32,
    pub start: u64,
    pub duration: u64,
    pub pid: i32,
    pub tid: i32,
    /// 0 where not known.
    pub unique: u64,
}

/// A request that has begun; 0 for a time not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// 0 where the event does not tell; so `unique` and `opcode`.
    pub connection: u64,
    pub unique: u64,
    pub opcode: u32,
    pub begin: u64,
    pub end: u64,
    /// Negated errno, 0 when it succeeded or has not ended.
    pub error: i32,
    /// The caller.
    pub pid: i32,
    pub tid: i32,
    pub callback_start: u64,
    pub callback_end: u64,
    /// The daemon has copied it; the caller runs on.
    pub sent: u64,
    pub woken: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub functions: Vec<String>,
    /// By start.
    pub calls: Vec<Call>,
    /// By begin.
    pub requests: Vec<RequestRow>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// Those with anything in them, by layer, function and operation.
    pub series: Vec<Series>,
    pub requests: RequestCounts,
    pub columns: Option<Columns>,
    pub tree: Option<Tree>,
}

#[derive(Default)]
struct Tally {
    entries: u64,
    unmatched: u64,
    hist: Hist,
    unanswered: u64,
    least: Option<u64>,
    /// Until the reply, and after it.
    replied: Option<Box<(Hist, Hist)>>,
    outermost: u64,
    own: u128,
}

impl Tally {
    /// Of a call that replied after `until` ns.
    fn reply(&mut self, duration: u64, until: Option<u64>) {
        let Some(until) = until.filter(|until| *until <= duration) else {
            if let Some(replied) = &mut self.replied {
                replied.0.add(duration);
            }
            return;
        };
        // Those before it did not reply.
        let whole = &self.hist;
        let replied = self
            .replied
            .get_or_insert_with(|| Box::new((whole.clone(), Hist::default())));
        replied.0.add(until);
        replied.1.add(duration - until);
    }

    /// Its duration is what it took at least.
    fn unfinished(&mut self, duration: u64) {
        self.hist.add(duration);
        self.unanswered += 1;
        self.least = Some(self.least.map_or(duration, |least| least.min(duration)));
    }

    fn request(&mut self, story: &Story, from: Option<u64>, to: u64) {
        self.entries += 1;
        match from.filter(|_| story.until != ABSENT) {
            Some(from) if story.is_unanswered() => self.unfinished(to.saturating_sub(from)),
            Some(from) => self.hist.add(to.saturating_sub(from)),
            None => self.unmatched += 1,
        }
    }
}

/// A function of the catalogue.
struct Function {
    layer: Layer,
    name: String,
    operation: String,
    named: Operation,
    /// An entry is only open where the recording can show its return.
    returns: bool,
    /// Told by function_graph.
    address: Option<u64>,
    /// Index into `Columns::functions`.
    column: u32,
    /// Calls that are unmatched, each once.
    lost: u64,
    /// By operation; UNKNOWN stands for what the name tells, if anything.
    tallies: Vec<(Operation, Box<Tally>)>,
}

impl Function {
    /// Where a call in which these operations were requested counts.
    fn operations(&self, apart: bool, requested: u64) -> impl Iterator<Item = Operation> {
        let named = self.named;
        let known = if apart { requested } else { 0 };
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

    fn tally(&mut self, operation: Operation) -> &mut Tally {
        let known = self.tallies.iter().position(|(of, _)| *of == operation);
        let at = known.unwrap_or_else(|| {
            self.tallies.push((operation, Box::default()));
            self.tallies.len() - 1
        });
        &mut self.tallies[at].1
    }
}

/// A row of the catalogue.
#[derive(Clone, Copy)]
struct Kind {
    role: Role,
    layer: Layer,
    function: u32,
    operation: Operation,
}

#[derive(Default)]
struct Task {
    /// Of the daemon, of the kernel by probes, and by function_graph.
    stacks: [Stack; 3],
    syscall: Option<Syscall>,
    reads: Reads,
    /// Row of the last request it made.
    made: Option<u32>,
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

struct Syscall {
    number: u64,
    start: u64,
    losses: u32,
    /// Of the requests that began in it and are asked for.
    operations: u64,
}

/// When a thread's reads returned with something since it last replied: one of them brought the request.
#[derive(Default)]
struct Reads {
    returns: Vec<u64>,
    replied: u64,
    losses: u32,
}

impl Reads {
    fn add(&mut self, time: u64, losses: u32) {
        if self.losses != losses {
            self.returns.clear();
            self.losses = losses;
        }
        // Callbacks read too. The first after the request's begin and the last are what is asked for.
        if self.returns.len() == 64 {
            self.returns.pop();
        }
        self.returns.push(time);
    }
}

const NO_ROW: u32 = u32::MAX;

/// Functions of function_graph, by address: a recording with more is no recording.
const MOST_FUNCTIONS: usize = 1 << 16;

/// How far into a function the place is that can be traced.
pub(crate) const FARTHEST: u64 = 64;

/// Where a caller sleeps for the answer to the request that it made last; in all kernels.
pub(crate) const WAIT: &str = "request_wait_answer";

pub struct Analysis {
    arch: Arch,
    filters: Filters,
    /// Start and end on the recording's clock.
    window: (u64, u64),
    daemons: FxHashMap<i32, u64>,
    /// Threads whose name is asked for.
    named: FxHashSet<i32>,
    kinds: Vec<Kind>,
    functions: Vec<Function>,
    follow_replies: bool,
    follow_requests: bool,
    tasks: FxHashMap<i32, Task>,
    requests: Requests,
    counts: RequestCounts,
    /// Follows each request.
    stitch: Option<Stitch>,
    /// The latest event's time.
    now: u64,
    request_tallies: FxHashMap<Operation, Box<Tally>>,
    window_tallies: FxHashMap<Operation, Box<Tally>>,
    reply_tallies: FxHashMap<(u32, Operation), Box<Tally>>,
    syscall_tallies: FxHashMap<(u64, Operation), Box<Tally>>,
    /// How often events were dropped so far.
    losses: u32,
    columns: Option<Columns>,
    tree: Option<Tree>,
    /// Index into `Columns::functions`.
    syscall_names: FxHashMap<u64, u32>,
    /// Function by address.
    addresses: FxHashMap<u64, u32>,
}

/// Reads a recording and answers. The reader's cores decode while this one pairs.
pub fn analyse(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    detail: Detail,
) -> Result<(ScanInfo, Answer), Error> {
    let first = filters.first(reader)?;
    let arch = reader.arch();
    let mut analysis = Analysis::new(catalogue, filters, arch.as_deref(), first, detail);
    let info = reader.scan(catalogue, &mut |batch| analysis.push(&batch))?;
    analysis.end_at(info.last);
    Ok((info, analysis.finish()))
}

impl Analysis {
    /// `catalogue` as given to the reader; `arch` as the recording's header says it; `first` is the time of the
    /// recording's first event, which only the filters `from` and `to` need.
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
        let stitch = catalogue
            .iter()
            .any(|row| row.role == Role::Begin)
            .then(|| Stitch::new(catalogue, filters.clone(), arch, first, 0));
        let mut filters = filters;
        filters.functions.sort();
        let follow_replies = catalogue.iter().any(|row| row.role == Role::Reply);
        let by_caller = !filters.pids.is_empty() || !filters.comms.is_empty();
        let follow_requests = by_caller || !filters.connections.is_empty() || columns;
        let columns = columns.then(|| Columns {
            functions: functions.iter().map(|f| f.name.clone()).collect(),
            ..Columns::default()
        });
        let tree = match detail {
            Detail::Tree | Detail::Calls => Some(Tree::new(detail == Detail::Calls)),
            _ => None,
        };
        let window = filters.window(first);
        Analysis {
            arch: Arch::new(arch),
            window,
            daemons: filters.daemons.iter().copied().collect(),
            named: FxHashSet::default(),
            filters,
            kinds,
            functions,
            follow_replies,
            follow_requests,
            tasks: FxHashMap::default(),
            requests: Requests::default(),
            counts: RequestCounts::default(),
            stitch,
            now: 0,
            request_tallies: FxHashMap::default(),
            window_tallies: FxHashMap::default(),
            reply_tallies: FxHashMap::default(),
            syscall_tallies: FxHashMap::default(),
            losses: 0,
            columns,
            tree,
            syscall_names: FxHashMap::default(),
            addresses: FxHashMap::default(),
        }
    }

    /// The function at an address that function_graph tells.
    fn function_at(&mut self, address: u64) -> u32 {
        if let Some(function) = self.addresses.get(&address) {
            return *function;
        }
        // One for all that are too many.
        let address = if self.addresses.len() < MOST_FUNCTIONS {
            address
        } else {
            ABSENT
        };
        let functions = &mut self.functions;
        let columns = &mut self.columns;
        // function_graph tells the first place that can be traced, which is some bytes into the function.
        let known = &self.filters.functions;
        let at = known.partition_point(|f| f.0 <= address).checked_sub(1);
        let named = at.map(|at| &known[at]);
        let named = named.filter(|f| address != ABSENT && address - f.0 < FARTHEST);
        *self.addresses.entry(address).or_insert_with(|| {
            let (name, operation) = match named {
                Some((_, name, operation)) => (name.clone(), operation.clone()),
                None if address == ABSENT => ("others".to_owned(), String::new()),
                None => (format!("{address:#x}"), String::new()),
            };
            let mut column = functions.len() as u32;
            if let Some(columns) = columns {
                column = columns.functions.len() as u32;
                columns.functions.push(name.clone());
            }
            functions.push(Function {
                layer: Layer::Kernel,
                name,
                named: Operation::of_name(&operation),
                operation,
                returns: true,
                address: match named {
                    Some((start, ..)) => Some(*start),
                    None => Some(address).filter(|a| *a != ABSENT),
                },
                column,
                lost: 0,
                tallies: Vec::new(),
            });
            functions.len() as u32 - 1
        })
    }

    /// The next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => self.side(record),
        });
        if let Some(mut stitch) = self.stitch.take() {
            stitch.push(batch, &mut |story| self.story(story));
            self.stitch = Some(stitch);
        }
    }

    /// The recording's last event: until then counts what is open.
    pub fn end_at(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// A request of which nothing more can be learned.
    fn story(&mut self, story: &Story) {
        let begin = story.at(Mark::Begin);
        self.counts.add(story);
        if begin.is_some() {
            self.request_tallies
                .entry(story.operation)
                .or_default()
                .request(story, begin, story.until);
        }
        let daemon = !story.is_unanswered() || story.next != Mark::Read;
        if self.filters.windows && daemon && story.at(Mark::CallbackEnter).is_none() {
            let read = story.at(Mark::Read);
            let to = story.at(Mark::Reply).unwrap_or(story.until);
            if begin.is_some() || read.is_some() {
                self.window_tallies
                    .entry(story.operation)
                    .or_default()
                    .request(story, read, to);
            }
        }
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
                tid, ptid, time, ..
            } => {
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
            Side::Switch { .. } | Side::Map(_) | Side::Name { .. } => {}
        }
    }

    fn forget_task(&mut self, tid: i32, time: u64) {
        self.named.remove(&tid);
        if let Some(task) = self.tasks.remove(&tid) {
            self.abandon(task, time);
        }
    }

    /// The task ended, or the recording: what is about requests, and open, counts until then.
    fn abandon(&mut self, mut task: Task, time: u64) {
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
                self.unfinished_call(call, time);
            } else {
                self.unreturned([call]);
            }
        }
        let Some(syscall) = task.syscall else { return };
        if syscall.losses != self.losses || !self.in_window(syscall.start) {
            self.syscall_unreturned(Some(syscall));
            return;
        }
        for operation in Operation::of_bits(syscall.operations) {
            let tally = self.syscall_tallies.entry((syscall.number, operation));
            let tally = tally.or_default();
            tally.entries += 1;
            tally.unfinished(time.saturating_sub(syscall.start));
        }
    }

    fn unfinished_call(&mut self, call: Open, time: u64) {
        if let Some(tree) = self.tree.as_mut().filter(|_| call.whole) {
            tree.unmatched += 1;
        }
        if !call.counted {
            return;
        }
        let duration = time.saturating_sub(call.start);
        let function = &mut self.functions[call.function as usize];
        let daemon = function.layer == Layer::Daemon;
        let by_operation = self.filters.by_operation && !daemon;
        for operation in function.operations(by_operation, call.operations) {
            let tally = function.tally(operation);
            // A callback was counted when it was entered.
            tally.entries += u64::from(!daemon);
            tally.reply(duration, call.replied());
            tally.unfinished(duration);
            tally.outermost += u64::from(call.outermost && !daemon);
        }
    }

    #[inline]
    fn event(&mut self, ev: &Ev) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        self.now = self.now.max(ev.time);
        match kind.role {
            Role::Entry => self.entry(ev, kind),
            Role::Return => self.ret(ev, kind),
            Role::GraphEntry => self.graph_entry(ev),
            Role::GraphExit => self.graph_exit(ev),
            Role::Reply => self.reply(ev, kind),
            Role::Begin => self.begin(ev, kind),
            Role::Sent => self.sent(ev),
            Role::End => self.end(ev),
            Role::SysEnter => self.sys_enter(ev),
            Role::SysExit => self.sys_exit(ev),
            Role::Switch | Role::Waking | Role::Connect | Role::Length | Role::Stack => {}
            Role::Inode | Role::Name | Role::Taken => {}
        }
    }

    fn entry(&mut self, ev: &Ev, kind: Kind) {
        if kind.layer != Layer::Daemon {
            self.kernel_entry(ev, kind);
            return;
        }
        let request = if self.follow_requests {
            self.request_of(ev, kind.operation)
        } else {
            None
        };
        let row = request.map_or(NO_ROW, |(_, request)| request.row);
        let counted = self.in_window(ev.time) && self.wants_daemon(ev.pid, request);
        let function = &mut self.functions[kind.function as usize];
        function.tally(Operation::UNKNOWN).entries += u64::from(counted);
        if !function.returns {
            return;
        }
        let call = Open {
            counted,
            row,
            unique: ev.v[0],
            ..self.opened(ev, kind.function)
        };
        let mut lost = Vec::new();
        let task = self.tasks.entry(ev.tid).or_default();
        task.stacks[DAEMON].enter(call, |call| lost.push(call));
        self.lose(lost);
    }

    fn ret(&mut self, ev: &Ev, kind: Kind) {
        let mut lost = Vec::new();
        let call = self.tasks.get_mut(&ev.tid).and_then(|task| {
            task.stacks[stack_of(kind.layer)].leave(kind.function, |call| lost.push(call))
        });
        self.lose(lost);
        let Some(call) = call else {
            // Whose caller it was cannot be known: a daemon's return without its entry has no request.
            let wanted = self.in_window(ev.time)
                && if kind.layer == Layer::Daemon {
                    self.wants_daemon(ev.pid, None)
                } else {
                    self.wants_kernel(ev, 0)
                };
            let function = &mut self.functions[kind.function as usize];
            function.lost += u64::from(wanted);
            function.tally(Operation::UNKNOWN).unmatched += u64::from(wanted);
            return;
        };
        if kind.layer != Layer::Daemon {
            let duration = ev.time.saturating_sub(call.start);
            let sure = call.losses == self.losses;
            self.kernel_return(ev, PROBES, call, sure.then_some(duration));
            return;
        }
        if !call.counted {
            return;
        }
        if call.losses != self.losses {
            // Its own return and a later entry may be among what was dropped meanwhile.
            self.unreturned([call]);
            return;
        }
        let duration = ev.time.saturating_sub(call.start);
        let function = &mut self.functions[kind.function as usize];
        let tally = function.tally(Operation::UNKNOWN);
        tally.reply(duration, call.replied());
        tally.hist.add(duration);
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: kind.layer,
                function: kind.function,
                start: call.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: or_zero(call.unique),
            });
            columns.callback(call.row, call.start, ev.time);
        }
    }

    fn opened(&self, ev: &Ev, function: u32) -> Open {
        Open {
            function,
            start: ev.time,
            overtaken: false,
            reply: ABSENT,
            unique: ABSENT,
            losses: self.losses,
            counted: false,
            row: NO_ROW,
            depth: 0,
            operations: 0,
            inner: 0,
            node: Tree::ROOT,
            single: Single::NONE,
            whole: false,
            outermost: true,
        }
    }

    fn kernel_entry(&mut self, ev: &Ev, kind: Kind) {
        // Where the request was queued it may have had no number yet.
        if ev.v[3] != ABSENT && self.requests.any_unnumbered() {
            self.learn(ev, told(ev.v[0], ABSENT, ev.v[3]));
        }
        let function = &mut self.functions[kind.function as usize];
        if !function.returns {
            let wanted = self.in_window(ev.time) && self.wants_kernel(ev, 0);
            self.functions[kind.function as usize]
                .tally(Operation::UNKNOWN)
                .entries += u64::from(wanted);
            return;
        }
        self.kernel_call(ev, PROBES, kind.function, 0);
    }

    fn graph_entry(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        let function = self.function_at(address);
        self.kernel_call(ev, GRAPH, function, depth);
    }

    fn graph_exit(&mut self, ev: &Ev) {
        let [address, depth, calltime, rettime] = ev.v;
        let function = self.function_at(address);
        let mut lost = Vec::new();
        let call = self.tasks.get_mut(&task_of(ev)).and_then(|task| {
            task.stacks[GRAPH].leave_depth(function, depth, |call| lost.push(call))
        });
        self.lose(lost);
        let Some(call) = call else {
            let wanted = self.in_window(ev.time) && self.wants_kernel(ev, 0);
            let function = &mut self.functions[function as usize];
            function.lost += u64::from(wanted);
            function.tally(Operation::UNKNOWN).unmatched += u64::from(wanted);
            return;
        };
        // The tracer's own times, which are of a clock of their own, but for their difference; they belong to this
        // very call, whatever was lost meanwhile.
        let told = calltime != ABSENT && rettime != ABSENT;
        let duration = match rettime.checked_sub(calltime) {
            Some(duration) if told => Some(duration),
            _ if call.losses == self.losses => Some(ev.time.saturating_sub(call.start)),
            _ => None,
        };
        self.kernel_return(ev, GRAPH, call, duration);
    }

    /// A kernel function is entered whose return the recording can show.
    fn kernel_call(&mut self, ev: &Ev, which: usize, function: u32, depth: u64) {
        let counted = self.in_window(ev.time) && self.wants_caller(ev.pid, ev.tid);
        let mut call = Open {
            unique: if which == PROBES { ev.v[0] } else { ABSENT },
            counted,
            depth,
            whole: counted,
            ..self.opened(ev, function)
        };
        let mut lost = Vec::new();
        let task = self.tasks.entry(task_of(ev)).or_default();
        let stack = &mut task.stacks[which];
        if which == GRAPH {
            stack.cut(depth, |call| lost.push(call));
        }
        let parent = stack.last();
        if let Some(parent) = parent {
            (call.whole, call.outermost) = (parent.whole, false);
        }
        if let Some(tree) = &mut self.tree {
            call.node = tree.child(parent.map_or(Tree::ROOT, |parent| parent.node), function);
            if call.whole {
                call.single = tree.enter(ev, parent.map_or(Single::NONE, |p| p.single), function);
            }
        }
        if self.columns.is_some() && self.functions[function as usize].name == WAIT {
            call.row = task.made.take().unwrap_or(NO_ROW);
        }
        if which == GRAPH {
            stack.push(call);
        } else {
            stack.enter(call, |call| lost.push(call));
        }
        self.lose(lost);
    }

    /// A call of the kernel layer has returned. Without a duration: it is not sure that this is its return.
    fn kernel_return(&mut self, ev: &Ev, which: usize, call: Open, duration: Option<u64>) {
        let Some(duration) = duration else {
            self.unreturned([call]);
            return;
        };
        let task = self.tasks.get_mut(&task_of(ev));
        if let Some(parent) = task.and_then(|task| task.stacks[which].last_mut()) {
            parent.inner = parent.inner.saturating_add(duration);
        }
        let own = duration.saturating_sub(call.inner);
        if let Some(tree) = self.tree.as_mut().filter(|_| call.whole) {
            tree.leave(call.node, call.single, duration, own);
        }
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(call.row as usize) {
                row.woken = ev.time;
            }
        }
        if !call.counted || !self.wants_kernel(ev, call.operations) {
            return;
        }
        let function = &mut self.functions[call.function as usize];
        for operation in function.operations(self.filters.by_operation, call.operations) {
            let tally = function.tally(operation);
            tally.entries += 1;
            tally.hist.add(duration);
            tally.own += u128::from(own);
            tally.outermost += u64::from(call.outermost);
        }
        let column = function.column;
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: Layer::Kernel,
                function: column,
                start: call.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: or_zero(call.unique),
            });
        }
    }

    #[inline]
    fn lose(&mut self, calls: Vec<Open>) {
        if !calls.is_empty() {
            self.unreturned(calls);
        }
    }

    /// Calls whose return was not seen, or not surely theirs.
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

    /// Of a kernel function's call: with a choice of mounts only their daemons', and those that made one of their requests.
    fn wants_kernel(&self, ev: &Ev, operations: u64) -> bool {
        self.wants_caller(ev.pid, ev.tid)
            && (self.filters.connections.is_empty()
                || operations != 0
                || self.filters.daemon_pids.contains(&ev.pid))
    }

    /// The daemon's call from the read that brought the request to the reply.
    fn reply(&mut self, ev: &Ev, kind: Kind) {
        let unique = ev.v[0];
        let found = self.request_of(ev, Operation::UNKNOWN);
        let wanted = self.wants_daemon(ev.pid, found);
        let request = found.map(|(_, request)| *request);
        let reads = &mut self.tasks.entry(ev.tid).or_default().reads;
        // Reply functions call one another, and a batch of forgets is answered one by one under one number.
        if Requests::is_numbered(unique) && reads.replied == unique {
            reads.returns.clear();
            return;
        }
        if reads.losses != self.losses {
            reads.returns.clear();
        }
        let start = match request {
            Some(Request {
                sent: Some((time, tid)),
                ..
            }) if tid != ev.tid => Some(time),
            Some(request) => {
                let since = request.sent.map_or(request.begin, |(time, _)| time);
                reads.returns.iter().copied().find(|time| *time >= since)
            }
            None => reads.returns.last().copied(),
        };
        reads.returns.clear();
        reads.replied = unique;

        if !wanted || !self.in_window(start.unwrap_or(ev.time)) {
            return;
        }
        let operation = match request {
            Some(request) => request.operation,
            None if self.functions[kind.function as usize].name == "fuse_reply_none" => {
                Operation::FORGET
            }
            None => Operation::UNKNOWN,
        };
        let tally = self
            .reply_tallies
            .entry((kind.function, operation))
            .or_default();
        tally.entries += 1;
        let Some(start) = start else {
            tally.unmatched += 1;
            return;
        };
        let duration = ev.time.saturating_sub(start);
        tally.hist.add(duration);
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: Layer::Daemon,
                function: kind.function,
                start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: or_zero(unique),
            });
            columns.callback(
                request.map_or(NO_ROW, |request| request.row),
                start,
                ev.time,
            );
        }
    }

    fn begin(&mut self, ev: &Ev, kind: Kind) {
        let [unique, connection, opcode, req] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        let caller = self.wants_caller(ev.pid, ev.tid);
        let mut request = Request {
            operation,
            begin: ev.time,
            pid: ev.pid,
            tid: ev.tid,
            connection,
            unique,
            opcode,
            sent: None,
            caller,
            counted: false,
            undecided: caller && connection == ABSENT && !self.filters.connections.is_empty(),
            row: NO_ROW,
        };
        if caller && !request.undecided && self.wants_connection(connection) {
            self.ask_for(&mut request);
        }
        if self.columns.is_some() {
            self.tasks.entry(ev.tid).or_default().made = Some(request.row);
        }
        self.requests.begin(told(unique, connection, req), request);
    }

    /// The request is one of those that the filters let pass, but for the time.
    fn ask_for(&mut self, request: &mut Request) {
        request.undecided = false;
        if let Some(task) = self.tasks.get_mut(&request.tid) {
            let bit = request.operation.bit();
            if let Some(syscall) = &mut task.syscall {
                syscall.operations |= bit;
            }
            for stack in &mut task.stacks[PROBES..] {
                stack.iter_mut().for_each(|call| call.operations |= bit);
            }
        }
        request.counted = self.in_window(request.begin);
        if !request.counted {
            return;
        }
        if let Some(columns) = &mut self.columns {
            request.row = columns.requests.len() as u32;
            columns.requests.push(RequestRow {
                connection: or_zero(request.connection),
                unique: or_zero(request.unique),
                opcode: or_zero(request.opcode) as u32,
                begin: request.begin,
                end: 0,
                error: 0,
                pid: request.pid,
                tid: request.tid,
                callback_start: 0,
                callback_end: 0,
                sent: 0,
                woken: 0,
            });
        }
    }

    /// Adds what an event tells to the open request that it is about.
    fn learn(&mut self, ev: &Ev, told: Told) -> Option<Key> {
        let daemon = self.daemons.get(&ev.pid).copied();
        let key = self.requests.locate(told, daemon)?;
        let mut request = *self.requests.learn(key, told, daemon)?;
        if request.undecided && request.connection != ABSENT {
            request.undecided = false;
            if self.wants_connection(request.connection) {
                self.ask_for(&mut request);
            }
            if let Some(open) = self.requests.get_mut(key) {
                *open = request;
            }
        }
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(request.row as usize) {
                row.unique = or_zero(request.unique);
                row.connection = or_zero(request.connection);
            }
        }
        Some(key)
    }

    fn sent(&mut self, ev: &Ev) {
        let [unique, connection, write, req] = ev.v;
        if write == 0 {
            return;
        }
        let Some(key) = self.learn(ev, told(unique, connection, req)) else {
            return;
        };
        if let Some(request) = self.requests.get_mut(key) {
            request.sent = Some((ev.time, ev.tid));
            if let Some(columns) = &mut self.columns {
                if let Some(row) = columns.requests.get_mut(request.row as usize) {
                    row.sent = ev.time;
                }
            }
        }
    }

    fn end(&mut self, ev: &Ev) {
        let [unique, connection, error, req] = ev.v;
        let told = told(unique, connection, req);
        if let Some(task) = self.tasks.get_mut(&ev.tid) {
            // What the thread does last before the end is to enter the system call that answers.
            let entered = task.syscall.as_ref().map_or(0, |call| call.start);
            for call in task.stacks[DAEMON].iter_mut() {
                if call.reply == ABSENT && (call.unique == ABSENT || call.unique == unique) {
                    call.reply = if entered >= call.start {
                        entered
                    } else {
                        ev.time
                    };
                }
            }
        }
        let mut found = None;
        // Most often there is nothing to learn that the answer needs.
        if self.columns.is_none() && self.filters.connections.is_empty() {
            found = self.requests.end(told.key());
        }
        if found.is_none() {
            let key = self.learn(ev, told);
            found = key.and_then(|key| self.requests.end(key));
        }
        if found.is_some_and(|request| {
            Requests::is_numbered(unique)
                && Requests::is_numbered(request.unique)
                && request.unique != unique
        }) {
            // Its end and the begin of the one that ends here were not seen.
            found = None;
        }
        let Some(request) = found.filter(|request| request.counted) else {
            return;
        };
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(request.row as usize) {
                row.end = ev.time;
                row.error = or_zero(error) as i32;
            }
        }
    }

    fn sys_enter(&mut self, ev: &Ev) {
        let number = ev.v[0];
        if self.arch.is_fake(number) {
            return;
        }
        let task = self.tasks.entry(ev.tid).or_default();
        let syscall = Syscall {
            number,
            start: ev.time,
            losses: self.losses,
            operations: 0,
        };
        let earlier = task.syscall.replace(syscall);
        self.syscall_unreturned(earlier);
    }

    fn sys_exit(&mut self, ev: &Ev) {
        let [number, ret, ..] = ev.v;
        if self.arch.is_fake(number) {
            return;
        }
        let losses = self.losses;
        if self.follow_replies && ret as i64 > 0 && self.arch.is_read(number) {
            self.tasks
                .entry(ev.tid)
                .or_default()
                .reads
                .add(ev.time, losses);
        }
        let Some(task) = self.tasks.get_mut(&ev.tid) else {
            return;
        };
        let Some(syscall) = task.syscall.take() else {
            return;
        };
        if syscall.operations == 0 || !self.in_window(syscall.start) {
            return;
        }
        if syscall.number != number || syscall.losses != losses {
            self.syscall_unreturned(Some(syscall));
            return;
        }
        let duration = ev.time.saturating_sub(syscall.start);
        for operation in Operation::of_bits(syscall.operations) {
            let tally = self.syscall_tallies.entry((number, operation)).or_default();
            tally.entries += 1;
            tally.hist.add(duration);
        }
        if let Some(columns) = &mut self.columns {
            let function = *self.syscall_names.entry(number).or_insert_with(|| {
                columns.functions.push(self.arch.syscall(number));
                columns.functions.len() as u32 - 1
            });
            columns.calls.push(Call {
                layer: Layer::Syscall,
                function,
                start: syscall.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: 0,
            });
        }
    }

    fn syscall_unreturned(&mut self, syscall: Option<Syscall>) {
        let Some(syscall) = syscall.filter(|syscall| self.in_window(syscall.start)) else {
            return;
        };
        for operation in Operation::of_bits(syscall.operations) {
            let tally = self
                .syscall_tallies
                .entry((syscall.number, operation))
                .or_default();
            tally.entries += 1;
            tally.unmatched += 1;
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

    /// The request that the daemon has in hand, with its connection.
    fn request_of(&self, ev: &Ev, operation: Operation) -> Option<(u64, &Request)> {
        let unique = ev.v[0];
        if !Requests::is_numbered(unique) {
            return None;
        }
        let (connection, request) = match self.daemons.get(&ev.pid) {
            Some(connection) => self.requests.find((*connection, unique))?,
            None => {
                let unowned = |connection| !self.daemons.values().any(|own| *own == connection);
                self.requests.guess(unique, operation, unowned)?
            }
        };
        Some((connection, request))
    }

    fn wants_daemon(&self, pid: i32, request: Option<(u64, &Request)>) -> bool {
        let filters = &self.filters;
        if !filters.daemon_pids.is_empty() && !filters.daemon_pids.contains(&pid) {
            return false;
        }
        let all_callers = filters.pids.is_empty() && filters.comms.is_empty();
        if !all_callers && !request.is_some_and(|(_, request)| request.caller) {
            return false;
        }
        if filters.connections.is_empty() {
            return true;
        }
        // A forget has no request: its connection is that of its daemon.
        match self
            .daemons
            .get(&pid)
            .copied()
            .or(request.map(|(connection, _)| connection))
        {
            Some(connection) => filters.connections.contains(&connection),
            None => !filters.daemon_pids.is_empty(),
        }
    }

    pub fn finish(mut self) -> Answer {
        for (_, task) in std::mem::take(&mut self.tasks) {
            self.abandon(task, self.now);
        }
        if let Some(mut stitch) = self.stitch.take() {
            stitch.end_at(self.now);
            stitch.finish(&mut |story| self.story(story));
        }
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
        for (operation, tally) in self.window_tallies {
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
            // One whose mount was told late was put down late.
            columns.requests.sort_by_key(|request| request.begin);
        }
        if let Some(tree) = &mut self.tree {
            tree.finish(self.functions.into_iter().map(|function| function.name));
        }
        Answer {
            series,
            requests: self.counts,
            columns: self.columns,
            tree: self.tree,
        }
    }
}

impl Columns {
    fn callback(&mut self, row: u32, start: u64, end: u64) {
        if let Some(row) = self.requests.get_mut(row as usize) {
            // Of nested callbacks (a stub around the real one) the outermost: it returns last.
            (row.callback_start, row.callback_end) = (start, end);
        }
    }
}

pub(crate) fn or_zero(value: u64) -> u64 {
    if value == ABSENT {
        0
    } else {
        value
    }
}

pub(crate) fn told(unique: u64, connection: u64, req: u64) -> Told {
    Told {
        connection,
        unique,
        req,
    }
}

/// The task that an event is of: the idle tasks are one per CPU, all with number 0.
fn task_of(ev: &Ev) -> i32 {
    if ev.tid == 0 {
        !(ev.cpu as i32 & i32::MAX)
    } else {
        ev.tid
    }
}
