//! Stacks for flame graphs: of what ran, of waits, and of both for requests.

mod daemon;
mod recent;
mod requests;
mod waits;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use daemon::{Histories, Served, Spans};
use recent::{remember, Recent};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Serialize, Serializer};

use crate::answers::offcpu::{OffCpu, State, Wait, Waker, Why, STATES};
use crate::answers::told::map;
use crate::error::Error;
use crate::events::{Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT};
use crate::format::record::SUMMED;
use crate::operations::{Arch, Operation, Operations};
use crate::programs::files::Files;
use crate::programs::functions::Programs;
use crate::programs::spaces::Spaces;
use crate::programs::stacks::{Fold, Frames, Named, Origin, Reach, ROOT};
use crate::programs::symbols::Kernel;
use crate::reader::{Reader, ScanInfo};
use crate::requests::filters::Filters;
use crate::requests::stitch::{self, Mark, RequestCounts, Stitch, Story};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graph {
    /// Samples on CPU; weights are their periods.
    #[default]
    OnCpu,
    /// Waits, ns.
    OffCpu,
    /// Waits, ns, below the waker's stack.
    OffWake,
    /// Waits of requests' callers, ns: their stack, the request, what the daemon did meanwhile.
    Requests,
}

/// Bits of common_flags: in a hardware or software interrupt (TRACE_FLAG_HARDIRQ and _SOFTIRQ,
/// include/linux/trace_events.h).
const IN_INTERRUPT: u64 = 8 | 16;
/// Maximum number of texts of stacks that are kept.
const MOST_TEXTS: usize = 1 << 10;

/// Role of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Workload,
    Daemon,
    Other,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::Workload => "workload",
            Who::Daemon => "daemon",
            Who::Other => "other",
        }
    }
}

/// Selection of stacks; an empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub graph: Graph,
    /// Include waits outside requests (OffCpu, OffWake), and other processes than the workload and the daemons.
    pub all: bool,
    pub states: Vec<State>,
    /// Only the waits of callers, or only those of daemons.
    pub who: Option<Who>,
    /// First process of the workload, or all its processes when the recording began; their children belong to it, too.
    /// Empty: there was no workload.
    pub workload: Vec<i32>,
    /// Selected callers, their operations, mounts, daemons, spans of time, and the functions of function_graph.
    pub filters: Filters,
    pub operations: Operations,
    /// File with the kernel's symbols, instead of those that the recording has.
    pub kallsyms: Option<PathBuf>,
    /// Directory below which the files of programs are, instead of what the recording has of them.
    pub symfs: Option<PathBuf>,
    /// Directory with debug files in usr/lib/debug/.build-id.
    pub debug: Option<PathBuf>,
}

/// Number of events, and the sum of their ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    pub count: u64,
    pub ns: u64,
}

impl Amount {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

fn by_state<S: Serializer>(ns: &[u64; STATES.len()], serializer: S) -> Result<S::Ok, S::Error> {
    let names = STATES.iter().map(|(_, name)| name);
    serializer.collect_map(names.zip(ns))
}

/// Stacks, and figures about them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flame {
    /// Stack "comm;outermost;…;innermost", and its weight.
    #[serde(serialize_with = "map")]
    pub stacks: Vec<(String, u64)>,
    /// Stacks in time, thread after thread: index into `stacks` and weight, as of `Stacks::order`.
    pub order: Vec<(u32, u64)>,
    /// Samples, waits or requests shown; and the number of those without a recorded stack.
    pub shown: Amount,
    pub stackless: u64,
    /// Weight of samples and waits whose stacks do not reach their thread's beginning.
    pub cut: u64,
    /// Parts of `cut`: the daemons' waits; stacks that were copied too short; copied stacks that the programs' tables
    /// do not describe.
    pub cut_daemons: u64,
    pub cut_copied: u64,
    pub cut_unknown: u64,
    /// Waits that are not shown: of a daemon without a request, of the workload outside requests, of others.
    pub idle: Amount,
    pub own: Amount,
    pub others: Amount,
    /// Requests that are not shown because their end was not seen and may lie within the recording.
    pub unfinished: u64,
    /// Waits in system calls on mounts, outside of their requests, and their blocked time.
    pub outside: Amount,
    /// Time of the shown waits by state, ns, in the order of `STATES`.
    #[serde(serialize_with = "by_state")]
    pub states: [u64; STATES.len()],
    /// Part of the shown waits that threads of daemons waited, ns.
    pub daemons: u64,
    /// Time of requests that is not shown because their caller waited for another one at the same time, ns.
    pub shared: u64,
    /// Requests of the selected callers and mounts, of all operations.
    #[serde(skip)]
    pub requests: RequestCounts,
    /// Numbers of wake-ups with and without the waker's stack.
    pub wakers: u64,
    pub wakers_stackless: u64,
    /// Names of frames, each with its file ("" for none), and whether it is the kernel's.
    pub frames: Vec<(String, String, bool)>,
    /// Sources of names, and counts, for addresses of the kernel and of programs.
    pub kernel: Named,
    pub user: Named,
    /// Files with unnamed addresses: without any symbols in the recording (or the directory); with some symbols.
    pub without_symbols: Vec<String>,
    pub stripped: Vec<String>,
    /// Build ids in hexadecimal of files with functions that have no name.
    pub nameless_ids: Vec<String>,
    /// Names of processes that generated code without names.
    pub generated: Vec<String>,
    /// Samples hold copies of user stacks that were not unwound.
    pub copied: bool,
    /// There are too many different stacks: some are cut.
    pub full: bool,
}

impl Flame {
    fn add_state(&mut self, state: State, ns: u64) {
        let at = STATES.iter().position(|(known, _)| *known == state);
        if let Some(sum) = at.and_then(|at| self.states.get_mut(at)) {
            *sum = sum.saturating_add(ns);
        }
    }

    /// Add the weight of a cut stack to the sums, by the reason for the cut.
    fn reaches(&mut self, reach: Reach, weight: u64, daemons: bool) {
        if reach == Reach::Whole {
            return;
        }
        let (copied, unknown) = (reach == Reach::Copied, reach == Reach::Cut);
        for (sum, counts) in [
            (&mut self.cut, true),
            (&mut self.cut_daemons, daemons),
            (&mut self.cut_copied, copied),
            (&mut self.cut_unknown, unknown),
        ] {
            *sum = sum.saturating_add(if counts { weight } else { 0 });
        }
    }
}

/// Read a recording. `catalogue`: the events of requests (Stitch) and switches, and a `Role::Stack` for each event
/// whose stacks are used. For OnCpu, only the samples' events are needed, unless requests are selected.
pub fn flame(
    reader: &Reader,
    catalogue: &[Meaning],
    selection: &Selection,
) -> Result<(ScanInfo, Flame), Error> {
    let mut engine = Engine::new(reader, catalogue, selection)?;
    let calls = selection.graph == Graph::Requests;
    let kernel = if calls { stitch::symbols(reader) } else { None };
    let info = reader.scan(catalogue, &mut |batch| {
        if let Some(stitch) = engine.stitch.as_mut().filter(|_| calls) {
            stitch.add_stacks(&batch.stacks, kernel.as_ref());
        }
        engine.push(&batch);
    })?;
    let flame = engine.finish(info.last);
    Ok((info, flame))
}

/// Part of a wait, in one state, or a span on a CPU.
pub struct Waited<'a> {
    /// -1: the process had ended.
    pub pid: i32,
    pub tid: i32,
    pub who: Who,
    /// None: it ran (only from `states`).
    pub state: Option<State>,
    /// Begin in ns on the recording's clock, and duration in ns.
    pub begin: u64,
    pub ns: u64,
    /// Thread's name, and the stack below it, outermost function first; empty if it was not recorded.
    pub comm: &'a str,
    pub stack: &'a str,
    /// Number of the stack: the same for equal ones.
    pub node: u32,
    /// Thread that ended the wait, and its name; None if it was not seen.
    pub waker: Option<(i32, &'a str)>,
}

/// Read a recording, and hand on each wait that `Graph::OffCpu` would show, as soon as it is known to be shown.
pub fn waits(
    reader: &Reader,
    catalogue: &[Meaning],
    selection: &Selection,
    tell: &mut dyn FnMut(&Waited),
) -> Result<(), Error> {
    hand_on_each(reader, catalogue, selection, None, tell)
}

/// Do the same as `waits`, and hand on the spans in which threads of the workload and of daemons ran, too. A span whose
/// begin or end was not seen is left out. A thread's waits come in the order of time, and so do the spans in which it
/// ran.
pub fn states(
    reader: &Reader,
    catalogue: &[Meaning],
    selection: &Selection,
    tell: &mut dyn FnMut(&Waited),
) -> Result<(), Error> {
    let running = Some(FxHashMap::default());
    hand_on_each(reader, catalogue, selection, running, tell)
}

fn hand_on_each(
    reader: &Reader,
    catalogue: &[Meaning],
    selection: &Selection,
    running: Option<FxHashMap<i32, u64>>,
    tell: &mut dyn FnMut(&Waited),
) -> Result<(), Error> {
    let mut engine = Engine::new(reader, catalogue, selection)?;
    engine.each = true;
    engine.running = running;
    let info = reader.scan(catalogue, &mut |batch| {
        engine.push(&batch);
        engine.hand_on(tell);
    })?;
    engine.end(info.last);
    engine.hand_on(tell);
    Ok(())
}

/// Use of an event here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sample,
    Switch,
    Waking,
    BeginStack,
    /// A request ends.
    End,
    /// A ring of io_uring has got a request.
    Fetched,
    /// The daemon's callback of that name is entered.
    Callback(u32),
    None,
}

/// Facts about a wait, noted when it begins.
#[derive(Clone, PartialEq, Eq)]
struct Note {
    who: Who,
    /// It belongs to a selected request.
    wanted: bool,
    /// It belongs to a request, or to a system call on a mount. And: only to the latter.
    requested: bool,
    outside: bool,
    /// It is shown if its system call proves to be on a mount.
    undecided: bool,
    /// It is outside of system calls, and shown if it proves to be a page fault on a mount.
    faults: bool,
    /// The thread waits for the next request from a ring of io_uring.
    for_ring: bool,
    /// Node of the stack, with its names at the wait's beginning; ROOT if the wait is not selected.
    node: u32,
    /// Extent of the stack.
    reach: Reach,
    /// Thread's name. It and the fields below are for a daemon's threads, whose waits are assigned to requests later.
    comm: u32,
    /// Spans in which it worked on selected requests, and on others.
    claimed: Spans,
    of_others: Spans,
}

struct Engine<'a> {
    selection: &'a Selection,
    /// A selected event has copies of user stacks in its samples.
    copied: bool,
    arch: Arch,
    uses: Vec<Use>,
    window: (u64, u64),
    operations: Operations,
    build_ids: FxHashMap<String, Vec<u8>>,
    spaces: Spaces,
    workload: FxHashSet<i32>,
    daemons: FxHashSet<i32>,
    /// Observer of requests, if needed; and the requests completed since the last check.
    stitch: Option<Stitch>,
    complete: Vec<Story>,
    off: OffCpu<Note>,
    /// Waits in system calls that may prove to be on a mount, by thread.
    undecided: FxHashMap<i32, Vec<Wait<Note>>>,
    /// Waits outside of system calls that end with this event.
    faults: Vec<Wait<Note>>,
    /// Threads whose switches are recorded, and those that have ended: their last switch-out is no wait.
    switched: FxHashSet<i32>,
    exited: FxHashSet<i32>,
    /// Begins of requests with their stacks, and callbacks.
    begins: Recent<(u64, u64)>,
    callbacks: Recent<(u64, u32)>,
    /// Threads of daemons. And: requests that they have answered, by `Story::id`, until these are reported.
    histories: Histories,
    served: FxHashMap<u32, Served>,
    /// Reported spans of callers' time.
    spans: Recent<(u64, u64)>,
    frames: Frames<'a>,
    fold: Fold,
    /// Node by (thread's name, stack, version of its space).
    nodes: FxHashMap<(u32, u64, u64), u32>,
    /// Frame by number of a name in `Spaces::names`.
    comms: Vec<u32>,
    flame: Flame,
    /// Single waits are wanted; and those since the last batch, each with its stack.
    each: bool,
    waited: Vec<(Waited<'static>, Option<(i32, u32)>)>,
    /// Texts of the last of these stacks, by node: most waits share few.
    texts: FxHashMap<u32, String>,
    /// Begin of the running spans by thread, if they are wanted.
    running: Option<FxHashMap<i32, u64>>,
}

impl<'a> Engine<'a> {
    fn new(
        reader: &'a Reader,
        catalogue: &[Meaning],
        selection: &'a Selection,
    ) -> Result<Engine<'a>, Error> {
        let filters = &selection.filters;
        let first = filters.first(reader)?;
        let mut frames = frames_of(reader, selection)?;
        let has = |event: &str, role| {
            catalogue
                .iter()
                .any(|row| row.event == event && row.role == role)
        };
        let uses = catalogue.iter().map(|row| match row.role {
            Role::Stack if has(&row.event, Role::Begin) => Use::BeginStack,
            Role::Stack => Use::Sample,
            Role::Switch => Use::Switch,
            Role::End => Use::End,
            Role::Fetched => Use::Fetched,
            Role::Waking => Use::Waking,
            Role::Entry if row.layer == Layer::Daemon => {
                Use::Callback(frames.name(&row.function, Origin::Other))
            }
            _ => Use::None,
        });
        let uses: Vec<Use> = uses.collect();
        let copied = catalogue.iter().any(|row| {
            let mut named = reader.events().iter().zip(reader.attrs());
            let stack = row.role == Role::Stack;
            stack && named.any(|(e, attr)| e.name == row.event && attr.layout.has_user_stack())
        });
        let requests = catalogue.iter().any(|row| row.layer == Layer::Request);
        let asleep = stitch::asleep(reader);
        let arch = reader.arch();
        let stitch = requests.then(|| {
            // The user's filters would leave out requests that others wait for.
            let filters = Filters {
                daemons: filters.daemons.clone(),
                opened: filters.opened.clone(),
                functions: filters.functions.clone(),
                ..Filters::default()
            };
            let mut stitch = Stitch::new(catalogue, filters, arch.as_deref(), first, asleep);
            if selection.graph == Graph::Requests {
                stitch.collect_calls();
            }
            stitch
        });
        let operations = selection.operations.clone();
        let served = filters.daemons.iter().map(|(pid, _)| *pid);
        Ok(Engine {
            window: filters.window(first),
            selection,
            copied,
            arch: Arch::new(arch.as_deref()),
            uses,
            operations,
            build_ids: reader.build_ids(),
            spaces: Spaces::default(),
            workload: selection.workload.iter().copied().collect(),
            daemons: served.collect(),
            stitch,
            complete: Vec::new(),
            off: OffCpu::new(asleep),
            undecided: FxHashMap::default(),
            faults: Vec::new(),
            switched: FxHashSet::default(),
            exited: FxHashSet::default(),
            begins: Recent::default(),
            callbacks: Recent::default(),
            histories: Histories::default(),
            served: FxHashMap::default(),
            spans: Recent::default(),
            frames,
            fold: Fold::default(),
            nodes: FxHashMap::default(),
            comms: Vec::new(),
            flame: Flame::default(),
            each: false,
            waited: Vec::new(),
            texts: FxHashMap::default(),
            running: None,
        })
    }

    fn hand_on(&mut self, tell: &mut dyn FnMut(&Waited)) {
        let mut waited = std::mem::take(&mut self.waited);
        if self.running.is_some() {
            // Parts of a wait for several requests come in another order.
            waited.sort_by_key(|(wait, _)| wait.begin);
        }
        for (wait, waker) in waited {
            if self.texts.len() >= MOST_TEXTS {
                self.texts.clear();
            }
            let text = || self.fold.stack(wait.node, &self.frames.names);
            let stack = &*self.texts.entry(wait.node).or_insert_with(text);
            let (comm, stack) = stack.split_once(';').unwrap_or((stack, ""));
            let name = |(tid, comm): (i32, u32)| (tid, &*self.frames.names[comm as usize].0);
            tell(&Waited {
                comm,
                stack,
                waker: waker.map(name),
                ..wait
            });
        }
    }

    fn push(&mut self, batch: &Batch) {
        self.frames.add_chains(&batch.stacks);
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => self.side(record),
        });
        self.calls();
    }

    fn side(&mut self, record: &Side) {
        self.spaces.push(record, &self.build_ids);
        match record {
            Side::Fork { pid, tid, ppid, .. } => {
                self.off.forget(*tid);
                self.exited.remove(tid);
                if pid != ppid {
                    // perf may report the first process like those that existed before: the first one has a parent,
                    // too.
                    if self.workload.contains(ppid) {
                        self.workload.insert(*pid);
                    } else if !self.selection.workload.contains(pid) {
                        self.workload.remove(pid);
                    }
                }
            }
            Side::Exit { tid, .. } => {
                self.exited.insert(*tid);
                self.daemon_ended(*tid);
            }
            Side::Switch {
                time,
                tid,
                out: false,
                ..
            } => self.on(*tid, *time),
            _ => {}
        }
        if let Some(stitch) = &mut self.stitch {
            let complete = &mut self.complete;
            stitch.side(record, &mut |story, _| complete.push(story.clone()));
        }
        if let Side::Exit { tid, .. } = record {
            self.decide(*tid);
        }
        self.settle_faults();
        self.stories();
    }

    fn event(&mut self, ev: &Ev) {
        let what = self
            .uses
            .get(ev.kind as usize)
            .copied()
            .unwrap_or(Use::None);
        // A thread that makes a system call, wakes another one or is sampled is running, even if its switch-in was
        // lost.
        let acts = matches!(what, Use::None | Use::Callback(_) | Use::End | Use::Waking);
        if acts || what == Use::Fetched {
            self.on(ev.tid, ev.time);
        }
        match what {
            Use::Switch => self.switch(ev),
            Use::Waking => {
                let tid = ev.v[0] as i32;
                let interrupt = ev.v[1] != ABSENT && ev.v[1] & IN_INTERRUPT != 0;
                let asks = || self.stitch.as_ref().is_some_and(|s| s.asks(ev.tid));
                let why = match interrupt {
                    true => Why::Interrupt,
                    false if asks() => Why::Request,
                    false => Why::Task,
                };
                let waker = Waker {
                    time: ev.time,
                    pid: ev.pid,
                    tid: ev.tid,
                    stack: ev.v[3],
                    why,
                };
                self.off.wake(tid, waker);
            }
            Use::BeginStack => remember(&mut self.begins, ev.tid, (ev.time, ev.v[3])),
            Use::Callback(name) => remember(&mut self.callbacks, ev.tid, (ev.time, name)),
            Use::Sample => self.sample(ev),
            Use::Fetched => self.copies(ev.tid),
            Use::End | Use::None => {}
        }
        if let Some(stitch) = self.stitch.as_mut().filter(|_| ev.time < SUMMED) {
            let complete = &mut self.complete;
            stitch.event(ev, &mut |story, _| complete.push(story.clone()));
            if what == Use::End {
                self.answered(ev);
            }
            if !self.undecided.is_empty() {
                self.decide(ev.tid);
            }
            self.stories();
        }
        self.settle_faults();
        if what == Use::Switch {
            self.switch_stack(ev);
        }
    }

    /// Note a request that ends: from now on the threads that worked on it are known.
    fn answered(&mut self, ev: &Ev) {
        let open = self.stitch.as_ref().and_then(|s| s.answered(ev.tid));
        let open = open.filter(|story| story.at(Mark::End) == Some(ev.time));
        if let Some(story) = open.cloned() {
            let served = self.claim(&story);
            self.served.insert(story.id, served);
        }
        if self.daemons.contains(&ev.pid) {
            self.daemon_answered(ev.tid, ev.time);
        }
    }

    // Roles and selection

    fn who(&self, pid: i32) -> Who {
        if self.daemons.contains(&pid) {
            Who::Daemon
        } else if self.workload.contains(&pid) {
            Who::Workload
        } else {
            Who::Other
        }
    }

    fn within(&self, time: u64) -> bool {
        self.window.0 <= time && time < self.window.1
    }

    /// Return whether the request is selected.
    fn wants(&self, story: &Story) -> bool {
        self.operations.has(story.operation) && self.among(story)
    }

    /// Return whether the request is selected, whatever its operation.
    fn among(&self, story: &Story) -> bool {
        let filters = &self.selection.filters;
        let by_caller = filters.pids.is_empty() || filters.pids.contains(&story.pid);
        let by_comm = filters.comms.is_empty()
            || self.stitch.as_ref().is_some_and(|stitch| {
                let comm = stitch.comms().get(story.comm as usize);
                comm.is_some_and(|comm| filters.comms.contains(comm))
            });
        by_caller
            && by_comm
            && (filters.connections.is_empty() || filters.connections.contains(&story.connection))
    }

    /// Return whether the task itself is selected, by its number and name.
    fn named(&self, pid: i32, tid: i32) -> bool {
        let filters = &self.selection.filters;
        (filters.pids.is_empty() || filters.pids.contains(&pid))
            && (filters.comms.is_empty()
                || self
                    .spaces
                    .comm(tid)
                    .is_some_and(|comm| filters.comms.iter().any(|name| **name == *comm)))
    }

    /// Return whether a thread's system call on this mount, of this operation, is selected.
    fn wants_call(&self, connection: u64, operation: Operation, (pid, tid): (i32, i32)) -> bool {
        let filtered = &self.selection.filters.connections;
        self.operations.has(operation)
            && (filtered.is_empty() || filtered.contains(&connection))
            && self.named(pid, tid)
    }

    /// Return what a task does at this moment.
    fn note(&self, pid: i32, tid: i32) -> Note {
        let who = self.who(pid);
        let stitch = self.stitch.as_ref();
        let in_hand = stitch
            .and_then(|stitch| stitch.in_hand(tid))
            .filter(|story| {
                // Nobody waits for what it does after its reply.
                story.at(Mark::End).is_none() && story.at(Mark::Reply).is_none()
            });
        let waiting = || stitch.and_then(|stitch| stitch.waiting(tid));
        let (who, story) = match in_hand {
            Some(story) => (Who::Daemon, Some(story)),
            None => (who, waiting().filter(|_| who != Who::Daemon)),
        };
        let call = || stitch.and_then(|stitch| stitch.on_mount(tid));
        let call = match story {
            None if who != Who::Daemon => call(),
            _ => None,
        };
        Note {
            who: match story.is_some() || call.is_some() {
                true if who == Who::Other => Who::Workload,
                _ => who,
            },
            wanted: story.is_some_and(|story| self.wants(story))
                || call.is_some_and(|(_, connection, own)| {
                    self.wants_call(connection, own, (pid, tid))
                }),
            requested: story.is_some() || call.is_some(),
            outside: call.is_some(),
            undecided: false,
            faults: false,
            for_ring: stitch.is_some_and(|stitch| stitch.waits_for_ring(tid)),
            node: ROOT,
            reach: Reach::Unfollowed,
            comm: 0,
            claimed: Spans::default(),
            of_others: Spans::default(),
        }
    }

    // On the CPU

    fn sample(&mut self, ev: &Ev) {
        if !self.within(ev.time) {
            return;
        }
        let (pid, tid) = self.spaces.in_order((ev.pid, ev.tid));
        let [ip, period, ..] = ev.v;
        let stack = ev.v[3];
        let period = if period == ABSENT { 1 } else { period };
        let filters = &self.selection.filters;
        let by_request = !self.operations.is_all() || !filters.connections.is_empty();
        let note = self.note(pid, tid);
        let wanted = if by_request {
            note.wanted
        } else {
            note.wanted || self.named(pid, tid)
        };
        let others = note.who == Who::Other && !self.selection.all && !self.unknown();
        if others || !wanted || self.selection.who.is_some_and(|who| who != note.who) {
            self.flame.others.add(period);
            return;
        }
        self.flame.shown.add(period);
        if stack == ABSENT {
            self.flame.stackless += 1;
        }
        let comm = self.comm(pid, tid);
        let node = match stack {
            ABSENT if ip == ABSENT => self.fold.below(ROOT, comm),
            ABSENT => {
                let root = self.fold.below(ROOT, comm);
                let name = self.frames.of_address(ip, &self.spaces, pid);
                self.fold.below(root, name)
            }
            _ => self.node(comm, stack, pid),
        };
        let reach = match stack {
            ABSENT => Reach::Unfollowed,
            _ => self.frames.reach(stack, &self.spaces, pid),
        };
        self.flame.reaches(reach, period, false);
        self.fold.add(node, period, (tid, ev.time));
    }

    /// Return the frame of a thread's name, without blanks, which would end it in folded text. A thread that the daemon
    /// has begun meanwhile gets its process's name.
    fn comm(&mut self, pid: i32, tid: i32) -> u32 {
        let known = self.spaces.comm_number(tid);
        let Some(number) = known.or_else(|| self.spaces.comm_number(pid)) else {
            let name = if tid == 0 {
                "swapper".into()
            } else {
                format!(":{tid}")
            };
            return self.frames.name(&name, Origin::Other);
        };
        while self.comms.len() <= number as usize {
            let name = self.spaces.names[self.comms.len()].replace([' ', ';'], "_");
            self.comms.push(self.frames.name(&name, Origin::Other));
        }
        self.comms[number as usize]
    }

    fn node(&mut self, comm: u32, stack: u64, pid: i32) -> u32 {
        let version = self.spaces.of(pid).map_or(0, |space| space.version);
        if let Some(&node) = self.nodes.get(&(comm, stack, version)) {
            return node;
        }
        let root = self.fold.below(ROOT, comm);
        let names = self.frames.of(stack, &self.spaces, pid);
        let node = self.fold.path(root, &names);
        self.nodes.insert((comm, stack, version), node);
        node
    }

    /// Return the result. `last`: time of the recording's last event.
    /// Process what has not ended by the recording's end.
    fn end(&mut self, last: u64) {
        // Unfinished waits count until then.
        for wait in self.off.rest(last) {
            if !self.exited.contains(&wait.tid) {
                self.over(wait);
            }
        }
        let undecided: Vec<i32> = self.undecided.keys().copied().collect();
        undecided.into_iter().for_each(|tid| self.settle_call(tid));
        self.settle_faults();
        if let Some(stitch) = &mut self.stitch {
            let complete = &mut self.complete;
            stitch.end_at(last);
            stitch.rest(&mut |story, _| complete.push(story.clone()));
            self.stories();
            self.calls();
        }
        self.settle_all();
    }

    fn finish(mut self, last: u64) -> Flame {
        self.end(last);
        let frames = &self.frames;
        let listed = frames.names.iter().map(|(name, origin)| {
            let path = match origin {
                Origin::File(file) => frames.files[*file as usize].path.clone(),
                _ => String::new(),
            };
            (name.to_string(), path, *origin == Origin::Kernel)
        });
        let stacks = self.fold.stacks(&frames.names);
        Flame {
            stacks: stacks.rows,
            order: stacks.order,
            frames: listed.collect(),
            kernel: frames.kernel_named,
            user: frames.user_named,
            without_symbols: frames.nameless_files(false),
            stripped: frames.nameless_files(true),
            nameless_ids: frames.nameless_ids(),
            generated: frames.nameless_processes(),
            copied: self.copied,
            full: self.fold.full || !stacks.whole,
            ..self.flame
        }
    }
}

/// Prepare to name frames by what the recording holds.
pub(crate) fn frames_of_recording(reader: &Reader) -> Frames<'_> {
    let text = reader.kallsyms().unwrap_or_default();
    let mut programs = Programs::default();
    programs.read(text);
    Frames::new(Kernel::new(Cow::Borrowed(text)), programs, None)
}

fn frames_of<'a>(reader: &'a Reader, selection: &Selection) -> Result<Frames<'a>, Error> {
    let text = reader.kallsyms().unwrap_or_default();
    let kernel = match &selection.kallsyms {
        None => Kernel::new(Cow::Borrowed(text)),
        Some(path) => {
            let text = crate::input::read(path, crate::programs::symbols::MOST_TEXT).map_err(
                |source| Error::Io {
                    path: path.clone(),
                    source,
                },
            )?;
            Some(kernel_of(reader, path, text)?)
        }
    };
    let mut programs = Programs::default();
    programs.read(text);
    let below = |root: &PathBuf| Files {
        root: root.clone(),
        ..Files::default()
    };
    let files = selection.symfs.as_ref().map(below);
    let mut frames = Frames::new(kernel, programs, files);
    frames.debug = selection.debug.as_ref().map(below);
    Ok(frames)
}

/// Read the kernel's symbols from a kallsyms that a user named. Error: they are of another kernel than the recorded
/// one, or lack their addresses.
fn kernel_of(reader: &Reader, path: &Path, text: Vec<u8>) -> Result<Kernel<'static>, Error> {
    let unfit = |why: &str| Error::Symbols {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let kernel = Kernel::new(Cow::Owned(text)).ok_or_else(|| {
        unfit("it does not list a kernel's symbols, or was copied without their addresses (copy it as root)")
    })?;
    let place = reader.kernel_place();
    let moved = place.is_some_and(|(symbol, address)| {
        let listed = kernel.address(&symbol);
        listed.is_some_and(|listed| listed != address)
    });
    match moved {
        true => Err(unfit("it is of another kernel or boot than the recording")),
        false => Ok(kernel),
    }
}
