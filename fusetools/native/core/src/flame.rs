//! Stacks for flame graphs: what ran, what was waited for, and what both did for a request.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Filters;
use crate::error::Error;
use crate::events::{Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT};
use crate::offcpu::{OffCpu, State, Wait, Waker};
use crate::operations::{Arch, Operation};
use crate::programs::{Files, Programs};
use crate::reader::{Reader, ScanInfo};
use crate::spaces::Spaces;
use crate::stacks::{Fold, Frames, Origin, ROOT};
use crate::stitch::{self, Fate, Mark, Stitch, Story};
use crate::symbols::Kernel;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graph {
    /// Samples of what ran; weights are their periods.
    #[default]
    OnCpu,
    /// What was waited for, ns.
    OffCpu,
    /// The same, below the stack of who ended the wait.
    OffWake,
    /// What the callers of requests waited for: their stack, the request, what the daemon did for it. ns.
    Requests,
}

/// Whose a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Workload,
    Daemon,
    Other,
}

/// What is asked for; an empty list asks for all.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub graph: Graph,
    /// Also what is of no request (OffCpu, OffWake), and what is neither of the workload nor of a daemon.
    pub all: bool,
    pub states: Vec<State>,
    /// Only the callers', or only the daemons'.
    pub who: Option<Who>,
    /// The workload's first process; its children are of it. None: there was no workload.
    pub workload: Option<i32>,
    /// Callers, their operations, mounts, daemons, spans of time, and the functions of function_graph.
    pub filters: Filters,
    pub operations: Vec<String>,
    /// The kernel's symbols, instead of those that the recording has.
    pub kallsyms: Option<PathBuf>,
    /// The directory below which the files of programs are, instead of what the recording has of them.
    pub symfs: Option<PathBuf>,
}

/// Something counted: how often, and the ns of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Different addresses, and of them those that nothing named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// There was something to name them by: symbols of the recording, or those that were asked for.
    pub known: bool,
    pub addresses: u64,
    pub nameless: u64,
}

/// Stacks and what is to be said beside them.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    /// "comm;outermost;…;innermost" and its weight.
    pub stacks: Vec<(String, u64)>,
    /// What is shown: samples, waits or requests; and of how many no stack was recorded.
    pub shown: Amount,
    pub stackless: u64,
    /// Of the weight of samples and waits, that of stacks which do not go on to where their thread begins.
    pub cut: u64,
    /// Left out: of a daemon without a request, of the workload outside of any, of neither.
    pub idle: Amount,
    pub own: Amount,
    pub others: Amount,
    /// Requests and waits whose end was not seen.
    pub unfinished: u64,
    /// Of the waits shown (of all states).
    pub blocked: u64,
    pub runnable: u64,
    pub preempted: u64,
    /// Wake-ups with and without the waker's stack.
    pub wakers: u64,
    pub wakers_stackless: u64,
    /// Names of frames, each with the file it is of ("" for none), and whether it is the kernel's.
    pub frames: Vec<(String, String, bool)>,
    /// What named the addresses of the kernel, and those of programs.
    pub kernel: Named,
    pub user: Named,
    /// Files with unnamed addresses: of those the recording (or the directory) holds nothing, and of those it does.
    pub without_symbols: Vec<String>,
    pub stripped: Vec<String>,
    /// Samples hold copies of user stacks that were not unwound.
    pub copied: bool,
    /// Too many different stacks: some are cut.
    pub full: bool,
}

/// Reads a recording. `catalogue`: what tells requests (Stitch) and switches, and a `Role::Stack` for each event whose
/// stacks are wanted; for OnCpu the samples' alone, unless requests are asked for.
pub fn flame(
    reader: &Reader,
    catalogue: &[Meaning],
    ask: &Ask,
) -> Result<(ScanInfo, Flame), Error> {
    let mut engine = Engine::new(reader, catalogue, ask)?;
    let info = reader.scan(catalogue, &mut |batch| engine.push(&batch))?;
    Ok((info, engine.finish()))
}

/// What an event is good for here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sample,
    Switch,
    SwitchStack,
    Waking,
    WakingStack,
    BeginStack,
    /// The daemon's callback of that name.
    Callback(u32),
    None,
}

/// What is noted of a wait when it begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Note {
    who: Who,
    /// It is of a request that is asked for.
    wanted: bool,
    /// It is of a request.
    requested: bool,
    /// Its stack, by the names that things had when it began; ROOT: it is not asked for.
    node: u32,
    /// The stack goes on to where the thread begins.
    whole: bool,
}

/// Of the stories that are not told yet, what belongs to them by thread and time; bounded, the oldest go first.
type Recent<T> = FxHashMap<i32, VecDeque<T>>;
const MOST_RECENT: usize = 256;

fn remember<T>(recent: &mut Recent<T>, tid: i32, what: T) {
    let known = recent.entry(tid).or_default();
    if known.len() == MOST_RECENT {
        known.pop_front();
    }
    known.push_back(what);
}

struct Engine<'a> {
    ask: &'a Ask,
    /// An event that is asked for has copies of user stacks in its samples.
    copied: bool,
    arch: Arch,
    uses: Vec<Use>,
    window: (u64, u64),
    operations: u64,
    build_ids: FxHashMap<String, Vec<u8>>,
    spaces: Spaces,
    workload: FxHashSet<i32>,
    daemons: FxHashSet<i32>,
    /// Where requests are needed; and those it has told since last looked at.
    stitch: Option<Stitch>,
    told: Vec<Story>,
    off: OffCpu<Note>,
    /// The last wake-up: who was woken, by whom, when.
    woken: (i32, u64),
    /// Requests' beginnings with their stacks, callbacks, and a daemon's waits.
    begins: Recent<(u64, u64)>,
    callbacks: Recent<(u64, u32)>,
    waits: Recent<Wait<Note>>,
    /// Spans of a caller's time that are told.
    spans: Recent<(u64, u64)>,
    frames: Frames<'a>,
    fold: Fold,
    /// Node by (name of the thread, stack, version of its space).
    nodes: FxHashMap<(u32, u64, u64), u32>,
    /// Frame by comm of the spaces.
    comms: Vec<u32>,
    flame: Flame,
}

impl<'a> Engine<'a> {
    fn new(reader: &'a Reader, catalogue: &[Meaning], ask: &'a Ask) -> Result<Engine<'a>, Error> {
        let filters = &ask.filters;
        let first = filters.first(reader)?;
        let mut frames = frames_of(reader, ask)?;
        let has = |event: &str, role| {
            catalogue
                .iter()
                .any(|row| row.event == event && row.role == role)
        };
        let uses = catalogue.iter().map(|row| match row.role {
            Role::Stack if has(&row.event, Role::Switch) => Use::SwitchStack,
            Role::Stack if has(&row.event, Role::Waking) => Use::WakingStack,
            Role::Stack if has(&row.event, Role::Begin) => Use::BeginStack,
            Role::Stack => Use::Sample,
            Role::Switch => Use::Switch,
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
            // Its own filters would leave out what others wait for.
            let filters = Filters {
                daemons: filters.daemons.clone(),
                functions: filters.functions.clone(),
                ..Filters::default()
            };
            Stitch::new(catalogue, filters, arch.as_deref(), first, asleep)
        });
        let operations = ask
            .operations
            .iter()
            .fold(0, |bits, name| bits | Operation::of_name(name).bit());
        let served = filters.daemons.iter().map(|(pid, _)| *pid);
        Ok(Engine {
            window: filters.window(first),
            ask,
            copied,
            arch: Arch::new(arch.as_deref()),
            uses,
            operations,
            build_ids: reader.build_ids(),
            spaces: Spaces::default(),
            workload: ask.workload.into_iter().collect(),
            daemons: served.collect(),
            stitch,
            told: Vec::new(),
            off: OffCpu::new(asleep),
            woken: (-1, 0),
            begins: Recent::default(),
            callbacks: Recent::default(),
            waits: Recent::default(),
            spans: Recent::default(),
            frames,
            fold: Fold::default(),
            nodes: FxHashMap::default(),
            comms: Vec::new(),
            flame: Flame::default(),
        })
    }

    fn push(&mut self, batch: &Batch) {
        self.frames.add_chains(&batch.stacks);
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => self.side(record),
        });
    }

    fn side(&mut self, record: &Side) {
        self.spaces.push(record, &self.build_ids);
        match record {
            Side::Fork { pid, tid, ppid, .. } => {
                self.off.forget(*tid);
                if pid != ppid {
                    // Of the first process perf may tell as of all that were there before: it has a parent, too.
                    if self.workload.contains(ppid) {
                        self.workload.insert(*pid);
                    } else if self.ask.workload != Some(*pid) {
                        self.workload.remove(pid);
                    }
                }
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
            let told = &mut self.told;
            stitch.side(record, &mut |story| told.push(story.clone()));
        }
        self.stories();
    }

    fn event(&mut self, ev: &Ev) {
        let what = self
            .uses
            .get(ev.kind as usize)
            .copied()
            .unwrap_or(Use::None);
        // Who makes a system call runs, whatever became of its switch-in.
        if matches!(what, Use::None | Use::Callback(_)) {
            self.on(ev.tid, ev.time);
        }
        match what {
            Use::Switch => self.switch(ev),
            Use::SwitchStack => self.switch_stack(ev),
            Use::Waking => {
                let tid = ev.v[0] as i32;
                self.woken = (tid, ev.time);
                let waker = Waker {
                    time: ev.time,
                    pid: ev.pid,
                    tid: ev.tid,
                    stack: ABSENT,
                };
                self.off.wake(tid, waker);
            }
            Use::WakingStack if self.woken.1 == ev.time => {
                self.off.waker_stack(self.woken.0, ev.time, ev.v[3]);
            }
            Use::BeginStack => remember(&mut self.begins, ev.tid, (ev.time, ev.v[3])),
            Use::Callback(name) => remember(&mut self.callbacks, ev.tid, (ev.time, name)),
            Use::Sample => self.sample(ev),
            Use::WakingStack | Use::None => {}
        }
        if let Some(stitch) = &mut self.stitch {
            let told = &mut self.told;
            stitch.event(ev, &mut |story| told.push(story.clone()));
            self.stories();
        }
    }

    // Whose

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

    /// Is the request asked for?
    fn wants(&self, story: &Story) -> bool {
        let filters = &self.ask.filters;
        let by_caller = filters.pids.is_empty() || filters.pids.contains(&story.pid);
        let by_comm = filters.comms.is_empty()
            || self.stitch.as_ref().is_some_and(|stitch| {
                let comm = stitch.comms().get(story.comm as usize);
                comm.is_some_and(|comm| filters.comms.contains(comm))
            });
        by_caller
            && by_comm
            && (self.operations == 0 || story.operation.bit() & self.operations != 0)
            && (filters.connections.is_empty() || filters.connections.contains(&story.connection))
    }

    /// The task itself, by its number and name.
    fn named(&self, pid: i32, tid: i32) -> bool {
        let filters = &self.ask.filters;
        (filters.pids.is_empty() || filters.pids.contains(&pid))
            && (filters.comms.is_empty()
                || self
                    .spaces
                    .comm(tid)
                    .is_some_and(|comm| filters.comms.iter().any(|name| **name == *comm)))
    }

    /// What a task does at this moment.
    fn note(&self, pid: i32, tid: i32) -> Note {
        let who = self.who(pid);
        let stitch = self.stitch.as_ref();
        let in_hand = stitch
            .and_then(|stitch| stitch.in_hand(tid))
            .filter(|story| {
                // What it does after its answer nobody waits for.
                story.at(Mark::End).is_none() && story.at(Mark::Reply).is_none()
            });
        let waiting = || stitch.and_then(|stitch| stitch.waiting(tid));
        let (who, story) = match in_hand {
            Some(story) => (Who::Daemon, Some(story)),
            None => (who, waiting().filter(|_| who != Who::Daemon)),
        };
        Note {
            who: match story {
                Some(_) if who == Who::Other => Who::Workload,
                _ => who,
            },
            wanted: story.is_some_and(|story| self.wants(story)),
            requested: story.is_some(),
            node: ROOT,
            whole: false,
        }
    }

    // On the CPU

    fn sample(&mut self, ev: &Ev) {
        if !self.within(ev.time) {
            return;
        }
        let [ip, period, ..] = ev.v;
        let stack = ev.v[3];
        let period = if period == ABSENT { 1 } else { period };
        let filters = &self.ask.filters;
        let by_request = self.operations != 0 || !filters.connections.is_empty();
        let note = self.note(ev.pid, ev.tid);
        let wanted = if by_request {
            note.wanted
        } else {
            note.wanted || self.named(ev.pid, ev.tid)
        };
        let others = note.who == Who::Other && !self.ask.all && !self.unknown();
        if others || !wanted || self.ask.who.is_some_and(|who| who != note.who) {
            self.flame.others.add(period);
            return;
        }
        self.flame.shown.add(period);
        if stack == ABSENT {
            self.flame.stackless += 1;
        }
        let comm = self.comm(ev.pid, ev.tid);
        let node = match stack {
            ABSENT => {
                let root = self.fold.below(ROOT, comm);
                let name = self.frames.of_address(ip, &self.spaces, ev.pid);
                self.fold.below(root, name)
            }
            _ => self.node(comm, stack, ev.pid),
        };
        if stack == ABSENT || !self.frames.whole(stack, &self.spaces, ev.pid) {
            self.flame.cut = self.flame.cut.saturating_add(period);
        }
        self.fold.add(node, period);
    }

    /// The frame of a thread's name: a blank would end it in folded text. A thread that the daemon began meanwhile has
    /// that of its process.
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

    // Off the CPU

    fn switch(&mut self, ev: &Ev) {
        let [prev, state, next, _] = ev.v;
        let (prev, next) = (prev as i32, next as i32);
        self.on(next, ev.time);
        if prev > 0 {
            // A process that has ended has no pid any more.
            let pid = if ev.tid == prev { ev.pid } else { -1 };
            let mut note = self.note(pid, prev);
            if self.shows(pid, prev, note) {
                let comm = self.comm(pid, prev);
                note.node = self.fold.below(ROOT, comm);
            }
            let missed = self.off.out(pid, prev, ev.time, state, note);
            self.flame.unfinished += u64::from(missed.is_some_and(|note| note.wanted));
        }
    }

    fn switch_stack(&mut self, ev: &Ev) {
        let Some(wait) = self.off.begun(ev.tid, ev.time) else {
            return;
        };
        wait.stack = ev.v[3];
        if wait.note.node == ROOT {
            return;
        }
        let stack = ev.v[3];
        let mut node = None;
        let mut whole = false;
        if stack != ABSENT {
            let comm = self.comm(ev.pid, ev.tid);
            node = Some(self.node(comm, stack, ev.pid));
            whole = self.frames.whole(stack, &self.spaces, ev.pid);
        }
        if let Some(wait) = self.off.begun(ev.tid, ev.time) {
            wait.stack = stack;
            wait.note.whole = whole;
            wait.note.node = node.unwrap_or(wait.note.node);
        }
    }

    /// Is a wait asked for that begins now?
    fn shows(&self, pid: i32, tid: i32, note: Note) -> bool {
        let filtered = self.operations != 0 || !self.ask.filters.connections.is_empty();
        let known = note.who != Who::Other || self.unknown();
        let all = self.ask.all && !note.requested && !filtered && known && self.named(pid, tid);
        (note.wanted || all) && self.ask.who.is_none_or(|who| who == note.who)
    }

    fn on(&mut self, tid: i32, time: u64) {
        let Some(wait) = self.off.on(tid, time) else {
            return;
        };
        match self.ask.graph {
            Graph::OnCpu => {}
            Graph::Requests => {
                if wait.note.requested && wait.note.who == Who::Daemon {
                    remember(&mut self.waits, tid, wait);
                }
            }
            Graph::OffCpu | Graph::OffWake => self.waited(&wait),
        }
    }

    fn waited(&mut self, wait: &Wait<Note>) {
        let (from, to) = (wait.from.max(self.window.0), wait.to.min(self.window.1));
        if from >= to {
            return;
        }
        let wait = &Wait {
            from,
            to,
            ..wait.clone()
        };
        let Note {
            who,
            requested,
            node: stack,
            ..
        } = wait.note;
        if stack == ROOT {
            let amount = match who {
                _ if requested => &mut self.flame.others,
                Who::Daemon => &mut self.flame.idle,
                Who::Workload => &mut self.flame.own,
                // Of who ran before or after a daemon only that is recorded.
                Who::Other if !self.unknown() => return,
                Who::Other => &mut self.flame.others,
            };
            amount.add(to - from);
            return;
        }
        let parts = wait.parts().into_iter().filter(|(_, ns)| *ns > 0);
        let mut any = false;
        for (state, ns) in parts {
            let sum = match state {
                State::Blocked => &mut self.flame.blocked,
                State::Runnable => &mut self.flame.runnable,
                State::Preempted => &mut self.flame.preempted,
            };
            *sum = sum.saturating_add(ns);
            let offwake = self.ask.graph == Graph::OffWake;
            let states = &self.ask.states;
            if !states.is_empty() && !states.contains(&state) || offwake && state != State::Blocked
            {
                continue;
            }
            let mut node = stack;
            if offwake {
                node = self.below_waker(node, wait.waker);
            }
            if let Some(frame) = frame_of(state) {
                let frame = self.frames.name(frame, Origin::Other);
                node = self.fold.below(node, frame);
            }
            self.fold.add(node, ns);
            self.flame.shown.ns = self.flame.shown.ns.saturating_add(ns);
            if !wait.note.whole {
                self.flame.cut = self.flame.cut.saturating_add(ns);
            }
            any = true;
        }
        self.flame.shown.count += u64::from(any);
        self.flame.stackless += u64::from(any && wait.stack == ABSENT);
    }

    /// A recording that tells of no daemon and no workload is of everything.
    fn unknown(&self) -> bool {
        self.ask.workload.is_none() && self.daemons.is_empty()
    }

    /// On top of who waited: who ended it, innermost first, so that the two meet.
    fn below_waker(&mut self, node: u32, waker: Option<Waker>) -> u32 {
        let between = self.frames.name("--", Origin::Other);
        let mut node = self.fold.below(node, between);
        let Some(waker) = waker else {
            let nobody = self.frames.name("[not seen]", Origin::Other);
            return self.fold.below(node, nobody);
        };
        self.flame.wakers += 1;
        self.flame.wakers_stackless += u64::from(waker.stack == ABSENT);
        let mut names = self.frames.of(waker.stack, &self.spaces, waker.pid);
        names.reverse();
        node = self.fold.path(node, &names);
        let comm = self.comm(waker.pid, waker.tid);
        self.fold.below(node, comm)
    }

    // Across requests

    fn stories(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let told = std::mem::take(&mut self.told);
        for story in &told {
            if self.ask.graph == Graph::Requests {
                self.story(story);
            }
        }
        self.told = told;
        self.told.clear();
    }

    fn story(&mut self, story: &Story) {
        let begun = story.at(Mark::Begin);
        let stack = begun.and_then(|begin| taken(&mut self.begins, story.tid, begin));
        let callback = story
            .at(Mark::CallbackEnter)
            .and_then(|enter| taken(&mut self.callbacks, story.daemon_tid, enter));
        let end = story.at(Mark::Runs).or(story.at(Mark::End));
        let waits = match (
            story.at(Mark::CallbackEnter).or(story.at(Mark::Read)),
            story.at(Mark::End),
        ) {
            (Some(from), Some(to)) => self.waits_of(story.daemon_tid, from, to),
            _ => Vec::new(),
        };
        if !story.waits || !self.wants(story) {
            return;
        }
        let (Some(begin), Some(end), Fate::Matched) = (begun, end, story.fate) else {
            self.flame.unfinished += 1;
            return;
        };
        if !self.within(begin) || self.ask.who == Some(Who::Daemon) && callback.is_none() {
            return;
        }
        // Several at once: each moment of the caller's counts once.
        let (mut begin, mut end) = (begin, end);
        for &(from, to) in self.spans.get(&story.tid).into_iter().flatten() {
            if from <= begin {
                begin = begin.max(to);
            } else {
                end = end.min(from);
            }
        }
        if begin >= end {
            return;
        }
        remember(&mut self.spans, story.tid, (begin, end));
        self.flame.shown.add(end - begin);
        self.flame.stackless += u64::from(stack.is_none());

        let comm = self.comm(story.pid, story.tid);
        let mut node = self.fold.below(ROOT, comm);
        if story.syscall != ABSENT {
            let name = format!("[{}]", self.arch.syscall(story.syscall));
            let name = self.frames.name(&name, Origin::Other);
            node = self.fold.below(node, name);
        }
        if let Some(stack) = stack {
            let names = self.frames.of(stack, &self.spaces, story.pid);
            node = self.fold.path(node, &names);
        }
        let name = format!("[FUSE {}]", story.operation.name());
        let name = self.frames.name(&name, Origin::Other);
        let node = self.fold.below(node, name);

        let callback_frame = match callback {
            Some(name) => name,
            None => self.frames.name("[daemon]", Origin::Other),
        };
        // What ends with each mark; where one was not seen its time is part of the next.
        let stages = [
            (Mark::Read, "[queue]"),
            (Mark::CallbackEnter, "[dispatch]"),
            (Mark::Reply, ""),
            (Mark::End, "[reply]"),
            (Mark::Runs, "[wakeup]"),
        ];
        let mut at = begin;
        let mut taken_up = false;
        for (mark, frame) in stages {
            let Some(to) = story.at(mark) else { continue };
            let to = to.clamp(at, end);
            let served =
                mark == Mark::Reply || mark == Mark::End && story.at(Mark::Reply).is_none();
            if served && (taken_up || callback.is_some()) {
                let node = self.fold.below(node, callback_frame);
                self.served(node, callback, &waits, at, to);
            } else {
                let frame = match mark {
                    Mark::CallbackEnter if !taken_up => "[queue]",
                    _ if served => "[daemon]",
                    _ => frame,
                };
                let name = self.frames.name(frame, Origin::Other);
                let node = self.fold.below(node, name);
                self.fold.add(node, to - at);
            }
            taken_up |= matches!(mark, Mark::Read | Mark::CallbackEnter);
            at = to;
        }
        if at < end {
            let name = self.frames.name("[wakeup]", Origin::Other);
            let node = self.fold.below(node, name);
            self.fold.add(node, end - at);
        }
    }

    /// What the daemon did from `from` to `to`: what it waited for, and the rest, in which it ran.
    fn served(
        &mut self,
        node: u32,
        callback: Option<u32>,
        waits: &[Wait<Note>],
        from: u64,
        to: u64,
    ) {
        let mut ran = to - from;
        for wait in waits {
            let cut = Wait {
                from: wait.from.clamp(from, to),
                to: wait.to.clamp(from, to),
                ..wait.clone()
            };
            if cut.from == cut.to {
                continue;
            }
            ran = ran.saturating_sub(cut.to - cut.from);
            let names = self.frames.of(cut.stack, &self.spaces, cut.pid);
            let below = self.frames.below(&names, callback);
            let node = self.fold.path(node, &names[below..]);
            for (state, ns) in cut.parts() {
                let sum = match state {
                    State::Blocked => &mut self.flame.blocked,
                    State::Runnable => &mut self.flame.runnable,
                    State::Preempted => &mut self.flame.preempted,
                };
                *sum = sum.saturating_add(ns);
                let node = match frame_of(state) {
                    Some(frame) if ns > 0 => {
                        let frame = self.frames.name(frame, Origin::Other);
                        self.fold.below(node, frame)
                    }
                    _ => node,
                };
                self.fold.add(node, ns);
            }
        }
        if ran > 0 {
            let name = self.frames.name("[on CPU]", Origin::Other);
            let node = self.fold.below(node, name);
            self.fold.add(node, ran);
        }
    }

    /// A thread's waits that end in a span of time; those before are needed no more.
    fn waits_of(&mut self, tid: i32, from: u64, to: u64) -> Vec<Wait<Note>> {
        let Some(known) = self.waits.get_mut(&tid) else {
            return Vec::new();
        };
        while known.front().is_some_and(|wait| wait.to <= from) {
            known.pop_front();
        }
        known
            .iter()
            .filter(|wait| wait.from < to)
            .cloned()
            .collect()
    }

    fn finish(mut self) -> Flame {
        if let Some(stitch) = self.stitch.take() {
            // Those that are told now have not ended.
            let mut rest = 0;
            stitch.finish(&mut |story| rest += u64::from(story.waits));
            if self.ask.graph == Graph::Requests {
                self.flame.unfinished += rest;
            }
        }
        if matches!(self.ask.graph, Graph::OffCpu | Graph::OffWake) {
            let open = self.off.unfinished().filter(|wait| wait.note.wanted);
            self.flame.unfinished += open.count() as u64;
        }
        let frames = &self.frames;
        let listed = frames.names.iter().map(|(name, origin)| {
            let path = match origin {
                Origin::File(file) => frames.files[*file as usize].path.clone(),
                _ => String::new(),
            };
            (name.to_string(), path, *origin == Origin::Kernel)
        });
        let (stacks, whole) = self.fold.stacks(&frames.names);
        Flame {
            stacks,
            frames: listed.collect(),
            kernel: frames.kernel_named,
            user: frames.user_named,
            without_symbols: frames.nameless_files(false),
            stripped: frames.nameless_files(true),
            copied: self.copied,
            full: self.fold.full || !whole,
            ..self.flame
        }
    }
}

/// What names addresses: what the recording holds, or what was asked for instead.
fn frames_of<'a>(reader: &'a Reader, ask: &Ask) -> Result<Frames<'a>, Error> {
    let text = reader.kallsyms().unwrap_or_default();
    let kernel = match &ask.kallsyms {
        None => Kernel::new(Cow::Borrowed(text)),
        Some(path) => {
            let text = crate::input::read(path, crate::symbols::MOST_TEXT).map_err(|source| {
                Error::Io {
                    path: path.clone(),
                    source,
                }
            })?;
            Some(kernel_of(reader, path, text)?)
        }
    };
    let mut programs = Programs::default();
    programs.read(text);
    let files = ask.symfs.as_ref().map(|root| Files {
        root: root.clone(),
        ..Files::default()
    });
    Ok(Frames::new(kernel, programs, files))
}

/// The kernel of a kallsyms that a user named. Error: it is not the one recorded, or hides its addresses.
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
        let found = kernel.address(&symbol);
        found.is_some_and(|found| found != address)
    });
    match moved {
        true => Err(unfit("it is of another kernel or boot than the recording")),
        false => Ok(kernel),
    }
}

/// What a thread remembered of that very time; what is older is needed no more.
fn taken<T: Copy>(recent: &mut Recent<(u64, T)>, tid: i32, time: u64) -> Option<T> {
    let known = recent.get_mut(&tid)?;
    let at = known.iter().position(|(at, _)| *at == time)?;
    let (_, found) = known.remove(at)?;
    Some(found)
}

/// On top of a stack that does not tell it by itself.
fn frame_of(state: State) -> Option<&'static str> {
    match state {
        State::Blocked => None,
        State::Runnable => Some("[runnable]"),
        State::Preempted => Some("[preempted]"),
    }
}
