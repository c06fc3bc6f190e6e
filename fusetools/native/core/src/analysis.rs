//! From events to answers: calls, requests and system calls, their histograms and columns.
//!
//! One `Analysis` takes the batches of a recording in time order. It keeps what is open and the results, so its
//! memory does not grow with the recording (columns apart, which are the result).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::calls::{Open, Stack};
use crate::error::Error;
use crate::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};
use crate::hist::Hist;
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::{Request, Requests};

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
    /// Durations of matched calls.
    pub hist: Hist,
}

/// Requests of all operations: `begun - matched` have not ended, `ended - matched` have no begin in the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub begun: u64,
    pub ended: u64,
    pub matched: u64,
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
}

#[derive(Default)]
struct Tally {
    entries: u64,
    unmatched: u64,
    hist: Hist,
}

/// A function of the catalogue.
struct Function {
    layer: Layer,
    name: String,
    operation: String,
    /// An entry is only open where the recording can show its return.
    returns: bool,
    tally: Tally,
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
    /// Of the kernel and of the daemon.
    stacks: [Stack; 2],
    syscall: Option<Syscall>,
    reads: Reads,
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
    request_tallies: FxHashMap<Operation, Box<Tally>>,
    reply_tallies: FxHashMap<(u32, Operation), Box<Tally>>,
    syscall_tallies: FxHashMap<(u64, Operation), Box<Tally>>,
    /// How often events were dropped so far.
    losses: u32,
    columns: Option<Columns>,
    /// Index into `Columns::functions`.
    syscall_names: FxHashMap<u64, u32>,
}

/// Reads a recording and answers. The reader's cores decode while this one pairs.
pub fn analyse(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    columns: bool,
) -> Result<(ScanInfo, Answer), Error> {
    let first = match filters {
        Filters {
            from: None,
            to: None,
            ..
        } => 0,
        _ => reader.scan(&[], &mut |_| {})?.first,
    };
    let arch = reader.arch();
    let mut analysis = Analysis::new(catalogue, filters, arch.as_deref(), first, columns);
    let info = reader.scan(catalogue, &mut |batch| analysis.push(&batch))?;
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
        columns: bool,
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
                            returns: false,
                            tally: Tally::default(),
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
        let follow_replies = catalogue.iter().any(|row| row.role == Role::Reply);
        let by_caller = !filters.pids.is_empty() || !filters.comms.is_empty();
        let follow_requests = by_caller || !filters.connections.is_empty() || columns;
        let columns = columns.then(|| Columns {
            functions: functions.iter().map(|f| f.name.clone()).collect(),
            ..Columns::default()
        });
        let window = (
            filters.from.map_or(0, |from| first.saturating_add(from)),
            filters.to.map_or(u64::MAX, |to| first.saturating_add(to)),
        );
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
            request_tallies: FxHashMap::default(),
            reply_tallies: FxHashMap::default(),
            syscall_tallies: FxHashMap::default(),
            losses: 0,
            columns,
            syscall_names: FxHashMap::default(),
        }
    }

    /// The next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch) {
        let mut side = batch.side.iter().peekable();
        for event in &batch.events {
            while let Some(record) = side.next_if(|record| comes_before(record, event.time)) {
                self.side(record);
            }
            self.event(event);
        }
        side.for_each(|record| self.side(record));
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Comm { tid, comm, .. } => {
                if self.filters.comms.contains(comm) {
                    self.named.insert(*tid);
                } else {
                    self.named.remove(tid);
                }
            }
            Side::Fork { tid, ptid, .. } => {
                self.forget_task(*tid);
                if self.named.contains(ptid) {
                    self.named.insert(*tid);
                }
            }
            Side::Exit { tid, .. } => self.forget_task(*tid),
            Side::Lost { .. } => self.losses += 1,
            Side::Switch { .. } => {}
        }
    }

    fn forget_task(&mut self, tid: i32) {
        self.named.remove(&tid);
        if let Some(task) = self.tasks.remove(&tid) {
            self.abandon(task);
        }
    }

    fn abandon(&mut self, mut task: Task) {
        for stack in &mut task.stacks {
            stack.abandon(|call| unreturned(&mut self.functions, call));
        }
        self.syscall_unreturned(task.syscall);
    }

    #[inline]
    fn event(&mut self, ev: &Ev) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        match kind.role {
            Role::Entry => self.entry(ev, kind),
            Role::Return => self.ret(ev, kind),
            Role::Reply => self.reply(ev, kind),
            Role::Begin => self.begin(ev, kind),
            Role::Sent => {
                if let Some(request) = self.requests.get_mut((ev.v[1], ev.v[0])) {
                    request.sent = Some((ev.time, ev.tid));
                }
            }
            Role::End => self.end(ev),
            Role::SysEnter => self.sys_enter(ev),
            Role::SysExit => self.sys_exit(ev),
            Role::Switch | Role::Waking => {}
        }
    }

    fn entry(&mut self, ev: &Ev, kind: Kind) {
        let (mut counted, mut row) = (self.in_window(ev.time), NO_ROW);
        if kind.layer == Layer::Daemon {
            let request = if self.follow_requests {
                self.request_of(ev, kind.operation)
            } else {
                None
            };
            row = request.map_or(NO_ROW, |(_, request)| request.row);
            counted &= self.wants_daemon(ev.pid, request);
        } else {
            counted &= self.wants_caller(ev.pid, ev.tid);
        }
        let function = &mut self.functions[kind.function as usize];
        function.tally.entries += u64::from(counted);
        if !function.returns {
            return;
        }
        let call = Open {
            function: kind.function,
            start: ev.time,
            unique: ev.v[0],
            losses: self.losses,
            counted,
            row,
        };
        let task = self.tasks.entry(ev.tid).or_default();
        task.stacks[usize::from(kind.layer == Layer::Daemon)]
            .enter(call, |call| unreturned(&mut self.functions, call));
    }

    fn ret(&mut self, ev: &Ev, kind: Kind) {
        let call = self.tasks.get_mut(&ev.tid).and_then(|task| {
            task.stacks[usize::from(kind.layer == Layer::Daemon)]
                .leave(kind.function, |call| unreturned(&mut self.functions, call))
        });
        let Some(call) = call else {
            // Whose caller it was cannot be known: a daemon's return without its entry has no request.
            let wanted = self.in_window(ev.time)
                && if kind.layer == Layer::Daemon {
                    self.wants_daemon(ev.pid, None)
                } else {
                    self.wants_caller(ev.pid, ev.tid)
                };
            self.functions[kind.function as usize].tally.unmatched += u64::from(wanted);
            return;
        };
        if !call.counted {
            return;
        }
        if call.losses != self.losses {
            // Its own return and a later entry may be among what was dropped meanwhile.
            unreturned(&mut self.functions, call);
            return;
        }
        let duration = ev.time.saturating_sub(call.start);
        self.functions[kind.function as usize]
            .tally
            .hist
            .add(duration);
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
        let [unique, connection, opcode] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        let caller = self.wants_caller(ev.pid, ev.tid);
        let asked = caller && self.wants_connection(connection);
        let counted = asked && self.in_window(ev.time);
        if asked {
            if let Some(syscall) = self
                .tasks
                .get_mut(&ev.tid)
                .and_then(|task| task.syscall.as_mut())
            {
                syscall.operations |= operation.bit();
            }
        }
        let mut row = NO_ROW;
        if counted {
            self.counts.begun += 1;
            self.request_tallies.entry(operation).or_default().entries += 1;
            if let Some(columns) = &mut self.columns {
                row = columns.requests.len() as u32;
                columns.requests.push(RequestRow {
                    connection,
                    unique: or_zero(unique),
                    opcode: or_zero(opcode) as u32,
                    begin: ev.time,
                    end: 0,
                    error: 0,
                    pid: ev.pid,
                    tid: ev.tid,
                    callback_start: 0,
                    callback_end: 0,
                });
            }
        }
        let request = Request {
            operation,
            begin: ev.time,
            sent: None,
            caller,
            counted,
            row,
        };
        if Requests::is_numbered(unique) {
            if let Some(earlier) = self.requests.begin((connection, unique), request) {
                self.unfinished(earlier);
            }
        } else {
            self.unfinished(request);
        }
    }

    fn end(&mut self, ev: &Ev) {
        let [unique, connection, error] = ev.v;
        let Some(request) = self.requests.end((connection, unique)) else {
            let all_callers = self.filters.pids.is_empty() && self.filters.comms.is_empty();
            let wanted =
                all_callers && self.wants_connection(connection) && self.in_window(ev.time);
            self.counts.ended += u64::from(wanted);
            return;
        };
        if !request.counted {
            return;
        }
        self.counts.ended += 1;
        self.counts.matched += 1;
        let duration = ev.time.saturating_sub(request.begin);
        self.request_tallies
            .entry(request.operation)
            .or_default()
            .hist
            .add(duration);
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(request.row as usize) {
                row.end = ev.time;
                row.error = or_zero(error) as i32;
            }
        }
    }

    fn unfinished(&mut self, request: Request) {
        if request.counted {
            self.request_tallies
                .entry(request.operation)
                .or_default()
                .unmatched += 1;
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
        let [number, ret, _] = ev.v;
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
        let ((connection, _), request) = match self.daemons.get(&ev.pid) {
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
            self.abandon(task);
        }
        for request in std::mem::take(&mut self.requests).unfinished() {
            self.unfinished(request);
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
        for function in self.functions {
            add(
                function.layer,
                function.name,
                &function.operation,
                function.tally,
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
        for ((number, operation), tally) in self.syscall_tallies {
            add(
                Layer::Syscall,
                self.arch.syscall(number),
                operation.name(),
                *tally,
            );
        }
        series.sort_by(|a, b| {
            (a.layer, &a.function, &a.operation).cmp(&(b.layer, &b.function, &b.operation))
        });
        if let Some(columns) = &mut self.columns {
            columns.calls.sort_by_key(|call| call.start);
        }
        Answer {
            series,
            requests: self.counts,
            columns: self.columns,
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

/// At the same time a thread's name and birth come before its events, its end and losses after.
fn comes_before(record: &Side, event: u64) -> bool {
    match record {
        Side::Comm { time, .. } | Side::Fork { time, .. } => *time <= event,
        Side::Exit { time, .. } | Side::Switch { time, .. } | Side::Lost { time, .. } => {
            *time < event
        }
    }
}

fn or_zero(value: u64) -> u64 {
    if value == ABSENT {
        0
    } else {
        value
    }
}

fn unreturned(functions: &mut [Function], call: Open) {
    functions[call.function as usize].tally.unmatched += u64::from(call.counted);
}
