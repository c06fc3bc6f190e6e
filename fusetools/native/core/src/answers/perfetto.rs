//! Requests as a trace for ui.perfetto.dev, in Perfetto's own format: a stream of messages of Protocol Buffers.
//!
//! A packet is a track, or an event on one: the begin or the end of a slice, or a counter's value. Slices of a track are
//! nested. The reader of the trace puts packets into time order, and keeps the order of those of one time. Hence slices
//! that may overlap, or that are written out of order, are on tracks of their own. A flow leads from slice to slice.
//! Times are ns on the recording's clock.

mod message;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use message::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::answers::flame::{Waited, Who};
use crate::answers::offcpu::STATES;
use crate::answers::queue::Queues;
use crate::answers::rows::Value;
use crate::events::{Ev, Role};
use crate::operations::Arch;
use crate::requests::named::{at_work, Known, Listener};
use crate::requests::stitch::{Cut, Mark, Story, FATES};

// Numbers of fields, by protos/perfetto/trace of Perfetto's sources.
// Trace and TracePacket:
const PACKET: u32 = 1;
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
// TrackDescriptor:
const UUID: u32 = 1;
const TRACK_NAME: u32 = 2;
const PROCESS: u32 = 3;
const THREAD: u32 = 4;
const PARENT_UUID: u32 = 5;
const COUNTER: u32 = 8;
// ProcessDescriptor, ThreadDescriptor and CounterDescriptor:
const PID: u32 = 1;
const TID: u32 = 2;
const THREAD_NAME: u32 = 5;
const PROCESS_NAME: u32 = 6;
const UNIT_NAME: u32 = 6;
// TrackEvent:
const DEBUG_ANNOTATIONS: u32 = 4;
const TYPE: u32 = 9;
const TRACK_UUID: u32 = 11;
const CATEGORIES: u32 = 22;
const EVENT_NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
const FLOW_IDS: u32 = 47;
const TERMINATING_FLOW_IDS: u32 = 48;
const CALLSTACK_IID: u32 = 56;
// DebugAnnotation:
const UINT_VALUE: u32 = 3;
const INT_VALUE: u32 = 4;
const STRING_VALUE: u32 = 6;
const ANNOTATION_NAME: u32 = 10;
// InternedData, and the messages in it:
const FUNCTION_NAMES: u32 = 5;
const FRAMES: u32 = 6;
const CALLSTACKS: u32 = 7;
const MAPPINGS: u32 = 19;
const IID: u32 = 1;
const STR: u32 = 2;
const FRAME_IDS: u32 = 2;
const FUNCTION_NAME_ID: u32 = 2;
const MAPPING_ID: u32 = 3;

// Types of a TrackEvent.
const BEGINS: u64 = 1;
const ENDS: u64 = 2;
const VALUE: u64 = 4;

/// All packets are one sequence, whose first packet says that no names were interned before.
const THE_SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// The only mapping. Functions have the recording's names for them, and no addresses.
const THE_MAPPING: u64 = 1;

/// Functions in which a thread gives up its CPU: they do not say what it waits for.
const SCHEDULER: [&str; 4] = ["__schedule", "schedule", "io_schedule", "schedule_timeout"];

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Track {
    Process(i32),
    /// A thread's system calls.
    Thread(Task),
    /// Requests of a caller, and requests that a thread of the daemon has in hand: of several at a time, each is on
    /// another track.
    Made(Task, usize),
    Served(Task, usize),
    OnCpu(Task),
    OffCpu(Task),
    /// A connection's counters.
    Queued(u64),
    Busy(u64),
}

type Task = (i32, i32);

/// Facts of the recording's session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Mount points by connection, and names of daemons by process.
    pub mounts: HashMap<u64, String>,
    pub daemons: HashMap<i32, String>,
    /// (process, connection) of the daemons.
    pub served: Vec<(i32, u64)>,
}

/// Writer of a trace: a listener to requests, to which the states of threads are reported after these.
pub struct Trace<W: Write> {
    out: W,
    arch: Arch,
    session: Session,
    requests: u64,
    any: bool,
    result: io::Result<()>,
    callers: FxHashMap<i32, Calls>,
    /// Numbers of the written tracks.
    tracks: FxHashMap<Track, u64>,
    /// End of the last slice on each of a thread's tracks of requests.
    made: FxHashMap<Task, Vec<u64>>,
    served: FxHashMap<Task, Vec<u64>>,
    queues: Queues,
    /// Process by thread of the daemons and the workload.
    processes: FxHashMap<i32, i32>,
    /// Written stacks, and numbers of functions.
    stacks: FxHashSet<u32>,
    functions: FxHashMap<String, u64>,
}

/// System calls of a caller: the current one, and the last of the earlier ones in which it made requests.
#[derive(Default)]
struct Calls {
    open: Option<Call>,
    made: VecDeque<Call>,
}

/// Maximum number of earlier calls: their requests' stories may still come.
const MOST_MADE: usize = 64;

struct Call {
    number: u64,
    enter: u64,
    exit: Option<u64>,
    /// A request was made in it; a reported one was; the call is written.
    made: bool,
    wanted: bool,
    written: bool,
}

/// Slice of a track.
struct Slice<'a> {
    category: &'a str,
    name: &'a str,
    from: u64,
    to: u64,
}

impl<'a> Slice<'a> {
    fn new(category: &'a str, name: &'a str, (from, to): (u64, u64)) -> Slice<'a> {
        Slice {
            category,
            name,
            from,
            to,
        }
    }
}

/// Facts about a slice.
#[derive(Default)]
struct Facts(Message);

impl Facts {
    fn add(&mut self, name: &str, value: Value<'_>) {
        let mut annotation = Message::default();
        annotation.text(ANNOTATION_NAME, name);
        match value {
            Value::Number(number) => annotation.number(UINT_VALUE, number),
            Value::Signed(number) => annotation.number(INT_VALUE, number as u64),
            Value::Text(text) => annotation.text(STRING_VALUE, text),
            Value::Truth(_) | Value::None => return,
        }
        self.0.message(DEBUG_ANNOTATIONS, &annotation);
    }
}

/// Return the first track of a thread on which a slice has a place.
fn lane(ends: &mut Vec<u64>, from: u64, to: u64) -> usize {
    let free = ends.iter().position(|end| *end <= from);
    let lane = free.unwrap_or(ends.len());
    ends.resize(ends.len().max(lane + 1), 0);
    ends[lane] = to;
    lane
}

impl<W: Write> Trace<W> {
    /// Start without requests. `asleep`: `stitch::asleep` of the recording.
    pub fn new(out: W, arch: Option<&str>, session: Session, asleep: u64) -> Trace<W> {
        Trace {
            out,
            arch: Arch::new(arch),
            session,
            requests: 0,
            any: false,
            result: Ok(()),
            callers: FxHashMap::default(),
            tracks: FxHashMap::default(),
            made: FxHashMap::default(),
            served: FxHashMap::default(),
            queues: Queues::new(asleep),
            processes: FxHashMap::default(),
            stacks: FxHashSet::default(),
            functions: FxHashMap::default(),
        }
    }

    /// Write the counters. Return the number of requests.
    pub fn finish(mut self) -> io::Result<u64> {
        for queue in std::mem::replace(&mut self.queues, Queues::new(0)).finish() {
            let tracks = [
                Track::Queued(queue.connection),
                Track::Busy(queue.connection),
            ];
            let mut last = [None; 2];
            for level in &queue.levels {
                for (place, value) in [level.queued, level.busy].into_iter().enumerate() {
                    if last[place].replace(value) != Some(value) {
                        self.value(tracks[place], level.time, value);
                    }
                }
            }
        }
        self.result?;
        self.out.flush()?;
        Ok(self.requests)
    }

    fn packet(&mut self, mut packet: Message) {
        let first = if self.any { 0 } else { STATE_CLEARED };
        self.any = true;
        packet.number(SEQUENCE, THE_SEQUENCE);
        packet.number(SEQUENCE_FLAGS, NEEDS_STATE | first);
        if self.result.is_ok() {
            let mut trace = Message::default();
            trace.message(PACKET, &packet);
            self.result = self.out.write_all(trace.as_bytes());
        }
    }

    /// Return a track's number. Write the track, and those above it, before its first use. `comm`: its thread's name.
    fn track(&mut self, track: Track, comm: &str) -> u64 {
        if let Some(&uuid) = self.tracks.get(&track) {
            return uuid;
        }
        let above = match track {
            Track::Process(_) => None,
            Track::Thread((pid, _)) => Some(Track::Process(pid)),
            Track::Made(task, _)
            | Track::Served(task, _)
            | Track::OnCpu(task)
            | Track::OffCpu(task) => Some(Track::Thread(task)),
            Track::Queued(connection) | Track::Busy(connection) => {
                let mut served = self.session.served.iter();
                let daemon = served.find(|(_, known)| *known == connection);
                daemon.map(|(pid, _)| Track::Process(*pid))
            }
        };
        let above = above.map(|above| self.track(above, comm));
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.insert(track, uuid);
        let mut descriptor = Message::default();
        descriptor.number(UUID, uuid);
        if let Some(above) = above {
            descriptor.number(PARENT_UUID, above);
        }
        let name = |pid| match self.session.daemons.get(&pid) {
            Some(daemon) if comm.is_empty() => daemon,
            _ => comm,
        };
        let mut inner = Message::default();
        match track {
            Track::Process(pid) => {
                inner.number(PID, pid as u64);
                inner.text(
                    PROCESS_NAME,
                    self.session.daemons.get(&pid).map_or(comm, String::as_str),
                );
                descriptor.message(PROCESS, &inner);
            }
            Track::Thread((pid, tid)) => {
                inner.number(PID, pid as u64);
                inner.number(TID, tid as u64);
                inner.text(THREAD_NAME, name(pid));
                descriptor.message(THREAD, &inner);
            }
            Track::Made(..) => descriptor.text(TRACK_NAME, "requests"),
            Track::Served(..) => descriptor.text(TRACK_NAME, "requests in hand"),
            Track::OnCpu(_) => descriptor.text(TRACK_NAME, "on CPU"),
            Track::OffCpu(_) => descriptor.text(TRACK_NAME, "off CPU"),
            Track::Queued(connection) | Track::Busy(connection) => {
                let (what, unit) = match track {
                    Track::Queued(_) => ("queued requests", "requests"),
                    _ => ("busy threads", "threads"),
                };
                let mount = self
                    .session
                    .mounts
                    .get(&connection)
                    .map_or("", String::as_str);
                descriptor.text(TRACK_NAME, format!("{what} {mount}").trim_end());
                inner.text(UNIT_NAME, unit);
                descriptor.message(COUNTER, &inner);
            }
        }
        let mut packet = Message::default();
        packet.message(TRACK_DESCRIPTOR, &descriptor);
        self.packet(packet);
        uuid
    }

    fn put(&mut self, time: u64, kind: u64, uuid: u64, mut event: Message) {
        event.number(TYPE, kind);
        event.number(TRACK_UUID, uuid);
        let mut packet = Message::default();
        packet.number(TIMESTAMP, time);
        packet.message(TRACK_EVENT, &event);
        self.packet(packet);
    }

    fn begin(&mut self, uuid: u64, slice: &Slice<'_>, mut facts: Message) {
        facts.text(CATEGORIES, slice.category);
        facts.text(EVENT_NAME, slice.name);
        self.put(slice.from, BEGINS, uuid, facts);
    }

    fn end(&mut self, uuid: u64, time: u64) {
        self.put(time, ENDS, uuid, Message::default());
    }

    fn slice(&mut self, uuid: u64, slice: &Slice<'_>, facts: Message) {
        self.begin(uuid, slice, facts);
        self.end(uuid, slice.to.max(slice.from));
    }

    fn value(&mut self, track: Track, time: u64, value: u32) {
        let uuid = self.track(track, "");
        let mut event = Message::default();
        event.number(COUNTER_VALUE, value.into());
        self.put(time, VALUE, uuid, event);
    }

    /// Write a request among those of its caller, with its stages. Nothing if its end was lost.
    fn made(&mut self, known: &Known<'_>, name: &str, mut facts: Facts) {
        let story = known.story;
        let Some(begin) = story
            .at(Mark::Begin)
            .filter(|_| story.counts() && story.tid >= 0)
        else {
            return;
        };
        let task = (story.pid, story.tid);
        let cut = Cut::new(story);
        let from = begin.saturating_sub(cut.before_begin());
        let to = from.saturating_add(cut.total);
        let lane = lane(self.made.entry(task).or_default(), from, to);
        let uuid = self.track(Track::Made(task, lane), known.comm());
        self.called(task, begin);
        facts.0.fixed(FLOW_IDS, self.requests);
        self.begin(uuid, &Slice::new("request", name, (from, to)), facts.0);
        let mut at = from;
        for (stage, ns) in cut.stages() {
            let mut facts = Message::default();
            // The daemon's part of the flow may be missing: it would lead from the request to itself.
            if stage.is_the_callers_again() && in_hand(story).is_some() {
                facts.fixed(TERMINATING_FLOW_IDS, self.requests);
            }
            let end = at.saturating_add(ns);
            self.slice(uuid, &Slice::new("stage", &stage.name(), (at, end)), facts);
            at = end;
        }
        self.end(uuid, to);
    }

    /// Write a request among those that a thread of the daemon has in hand.
    fn served(&mut self, story: &Story, name: &str, mut facts: Facts) {
        let Some((from, to)) = in_hand(story).filter(|_| story.daemon_tid >= 0) else {
            return;
        };
        let task = (story.daemon_pid, story.daemon_tid);
        let lane = lane(self.served.entry(task).or_default(), from, to);
        let uuid = self.track(Track::Served(task, lane), "");
        if story.counts() && story.tid >= 0 {
            facts.0.fixed(FLOW_IDS, self.requests);
        }
        self.begin(uuid, &Slice::new("daemon", name, (from, to)), facts.0);
        if let Some(enter) = story.at(Mark::CallbackEnter) {
            let from = enter.clamp(from, to);
            let callback = Slice::new("callback", "callback", (from, to));
            self.slice(uuid, &callback, Message::default());
        }
        self.end(uuid, to);
    }

    /// Write a state of a thread: of the daemons' threads, and of callers with a request in the trace.
    pub fn state(&mut self, state: &Waited<'_>) {
        if state.pid >= 0 && state.who != Who::Other {
            self.processes.insert(state.tid, state.pid);
        }
        let pid = match state.pid {
            ..0 => self.processes.get(&state.tid).copied(),
            pid => Some(pid),
        };
        let Some(task) = pid.map(|pid| (pid, state.tid)) else {
            return;
        };
        let daemon = state.who == Who::Daemon || self.session.daemons.contains_key(&task.0);
        if !daemon && !self.made.contains_key(&task) {
            return;
        }
        let known = STATES.iter().find(|(known, _)| Some(*known) == state.state);
        let word = known.map_or("running", |(_, name)| name);
        let track = match known {
            None => Track::OnCpu(task),
            Some(_) => Track::OffCpu(task),
        };
        let uuid = self.track(track, state.comm);
        let mut facts = Facts::default();
        let mut name = word.replace('_', " ");
        if known.is_some() {
            let mut functions = state.stack.rsplit(';');
            let function = functions.find(|function| !SCHEDULER.contains(function));
            if let Some(function) = function.filter(|function| !function.is_empty()) {
                self.intern(state);
                facts.0.number(CALLSTACK_IID, u64::from(state.node) + 1);
                if word.starts_with("blocked") {
                    name.push_str(" in ");
                    name.push_str(function);
                }
            }
            if let Some((tid, comm)) = state.waker {
                facts.add("waker", Value::Text(comm));
                facts.add("waker_tid", Value::task(tid));
            }
        }
        let span = (state.begin, state.begin.saturating_add(state.ns));
        self.slice(uuid, &Slice::new(word, &name, span), facts.0);
    }

    /// Write a stack before its first use.
    fn intern(&mut self, state: &Waited<'_>) {
        if !self.stacks.insert(state.node) {
            return;
        }
        let mut data = Message::default();
        if self.functions.is_empty() {
            let mut mapping = Message::default();
            mapping.number(IID, THE_MAPPING);
            data.message(MAPPINGS, &mapping);
        }
        let mut stack = Message::default();
        stack.number(IID, u64::from(state.node) + 1);
        for function in state.stack.split(';') {
            let known = self.functions.get(function).copied();
            let number = known.unwrap_or_else(|| {
                let number = self.functions.len() as u64 + 1;
                self.functions.insert(function.to_owned(), number);
                let mut name = Message::default();
                name.number(IID, number);
                name.text(STR, function);
                data.message(FUNCTION_NAMES, &name);
                let mut frame = Message::default();
                frame.number(IID, number);
                frame.number(FUNCTION_NAME_ID, number);
                frame.number(MAPPING_ID, THE_MAPPING);
                data.message(FRAMES, &frame);
                number
            });
            stack.number(FRAME_IDS, number);
        }
        data.message(CALLSTACKS, &stack);
        let mut packet = Message::default();
        packet.message(INTERNED_DATA, &data);
        self.packet(packet);
    }

    /// Write the caller's system call, once: with the first reported request in it.
    fn called(&mut self, task: Task, begin: u64) {
        let Some(calls) = self.callers.get_mut(&task.1) else {
            return;
        };
        let made = calls.made.iter_mut().rev();
        let mut latest = calls.open.iter_mut().chain(made);
        let Some(call) = latest.find(|call| call.enter <= begin) else {
            return;
        };
        call.wanted = true;
        if let Some(exit) = call.exit.filter(|exit| *exit >= begin && !call.written) {
            call.written = true;
            let (number, enter) = (call.number, call.enter);
            self.call(task, number, (enter, exit));
        }
    }

    fn call(&mut self, task: Task, number: u64, span: (u64, u64)) {
        let uuid = self.track(Track::Thread(task), "");
        let name = self.arch.syscall(number);
        self.slice(
            uuid,
            &Slice::new("syscall", &name, span),
            Message::default(),
        );
    }
}

/// Return the span in which a thread of the daemon works on it.
fn in_hand(story: &Story) -> Option<(u64, u64)> {
    let (from, to) = at_work(story)?;
    Some((from, to?))
}

impl<W: Write> Listener for Trace<W> {
    fn story(&mut self, known: &Known<'_>) {
        self.queues.story(known);
        self.requests += 1;
        let story = known.story;
        let operation = story.operation.name();
        let name = match known.path() {
            Some(path) if path.whole => format!("{operation} /{}", path.text),
            Some(path) => format!("{operation} …/{}", path.text),
            None => operation.to_owned(),
        };
        let facts = || {
            let mut facts = Facts::default();
            let fate = FATES.iter().find(|(fate, _)| *fate == story.fate);
            let ended = story.at(Mark::End);
            for (name, value) in [
                ("operation", Value::Text(operation)),
                ("unique", Value::known_number(story.unique)),
                ("connection", Value::known_number(story.connection)),
                (
                    "fate",
                    fate.map_or(Value::None, |(_, name)| Value::Text(name)),
                ),
                (
                    "error",
                    ended.map_or(Value::None, |_| Value::Signed(story.error.into())),
                ),
                ("inode", known.inode().map_or(Value::None, Value::Number)),
                ("size_bytes", Value::known_number(known.details.size)),
                ("offset_bytes", Value::known_number(known.details.offset)),
                (
                    "duration_ns",
                    story.duration().map_or(Value::None, Value::Number),
                ),
            ] {
                facts.add(name, value);
            }
            facts
        };
        self.made(known, &name, facts());
        self.served(story, &name, facts());
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        self.queues.event(ev, role);
        let number = ev.v[0];
        match role {
            Role::SysEnter if !self.arch.is_fake(number) => {
                self.callers.entry(ev.tid).or_default().open = Some(Call {
                    number,
                    enter: ev.time,
                    exit: None,
                    made: false,
                    wanted: false,
                    written: false,
                });
            }
            Role::Begin => {
                let calls = self.callers.get_mut(&ev.tid);
                if let Some(open) = calls.and_then(|calls| calls.open.as_mut()) {
                    open.made = true;
                }
            }
            Role::SysExit if !self.arch.is_fake(number) => {
                let Some(calls) = self.callers.get_mut(&ev.tid) else {
                    return;
                };
                let call = calls.open.take();
                let Some(mut call) = call.filter(|call| call.made && call.number == number) else {
                    return;
                };
                call.exit = Some(ev.time);
                call.written = call.wanted;
                let span = call.wanted.then_some((call.enter, ev.time));
                if calls.made.len() == MOST_MADE {
                    calls.made.pop_front();
                }
                calls.made.push_back(call);
                if let Some(span) = span {
                    self.call((ev.pid, ev.tid), number, span);
                }
            }
            _ => {}
        }
    }
}
