//! Follows each request's whole life, from the system call that made it to that call's end, on the caller's side and on
//! the daemon's.
//!
//! A `Stitch` takes the batches of a recording in time order. It reports each request's story once, when nothing more
//! can be learned of it, and keeps only what is open. It joins events by (connection, unique) and the address of the
//! kernel's struct fuse_req (requests.rs), by the caller's thread, and by the daemon's thread.
//!
//! If a system call makes several requests, the time before the first belongs to the first, the time after the last to
//! the last. The time between two belongs to the later one (`Mark::Resumed`), so no time is counted twice. For requests
//! that nobody waits for (release, read-ahead), only the time from begin to end is reported. Requests in flight at once
//! have each their own time: their sum may be longer than the call.

mod caller;
mod calls;
mod cut;
mod daemon;
mod kernel;
mod refused;
mod rings;
mod scheduler;
mod slab;
mod task;
mod trace;

use std::borrow::Cow;
use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cost::Met;
use crate::error::Error;
use crate::events::{
    or_zero, Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT, FARTHEST, RESENT, WAIT,
};
use crate::operations::{Arch, Call, Operation};
use crate::programs::symbols::Kernel;
use crate::reader::{Reader, ScanInfo};
use crate::requests::filters::Filters;
use crate::requests::in_flight::{Identity, Key, Request, Requests};
use crate::requests::serves::Serves;

use calls::{Ends, Gap, Site, MOST_FILES};
pub use calls::{MountCall, AWAKE, BLOCKED, OUTSIDE, PAGE};
pub(crate) use cut::Piece;
pub use cut::{limited, Cut, Stage, BETWEEN, REFUSED, STAGES};
use daemon::Unread;
use kernel::{place, Place};
use refused::Refusal;
use rings::{Ring, Waiting};
use slab::{Open, Slot};
pub use task::Idle;
use task::{Callback, Freed, Read, Run, State, Syscall, Task, Tasks, MOST_CALLBACKS, MOST_MADE};
pub use trace::{Fate, Mark, RequestCounts, Story, FATES, MARKS, MARK_NAMES};

const MOST_COMMS: usize = 1 << 16;

/// Error of requests that the kernel ends because the daemon is gone (fs/fuse/dev.c, fuse_abort_conn).
const ECONNABORTED: i32 = 103;

#[derive(Clone, Copy)]
struct Kind {
    role: Role,
    layer: Layer,
    /// Function of the catalogue, for entries and returns.
    function: u32,
    place: Place,
    operation: Operation,
    returns: bool,
    /// The kernel function makes requests, and does not only handle them later.
    makes: bool,
}

pub struct Stitch {
    arch: Arch,
    filters: Filters,
    window: (u64, u64),
    kinds: Vec<Kind>,
    /// Connections that daemon processes serve, where known. And: all processes that served.
    serves: Serves,
    servants: FxHashSet<i32>,
    /// Those of them whose first thread has ended.
    ended: FxHashSet<i32>,
    /// Requests without a known read, by connection and length.
    unread: FxHashMap<(u64, u64), Unread>,
    /// Rings of io_uring, by the kernel's address. And: requests that they may yet bring, by connection.
    rings: FxHashMap<u64, Ring>,
    waiting: FxHashMap<u64, Waiting>,
    /// Completions of rings are recorded.
    ring_events: bool,
    /// Threads that are, or may be, in a system call that reads, by daemon.
    reading: FxHashMap<i32, FxHashSet<i32>>,
    /// Daemons in which another thread answers than the one that read.
    hand: FxHashSet<i32>,
    /// Daemons in which the thread answers that read. And: descriptors of FUSE's device, by process.
    own_answers: FxHashSet<i32>,
    devices: FxHashSet<(i32, u64)>,
    /// Reads of requests are recorded.
    reads: bool,
    /// Daemons whose callbacks were seen.
    callbacks: FxHashSet<i32>,
    /// Begins of requests are recorded.
    begins: bool,
    /// Time of the latest event.
    now: u64,
    /// Places of kernel functions, by start.
    places: Vec<(u64, Place)>,
    /// System calls are recorded.
    calls: bool,
    /// Switches are recorded. And: bits of prev_state that show that a task is not runnable.
    switches: bool,
    asleep: u64,
    requests: Requests,
    slab: Vec<Open>,
    free: Vec<u32>,
    generation: u32,
    tasks: Tasks,
    comms: Vec<String>,
    comm_numbers: FxHashMap<String, u32>,
    losses: u32,
    /// Shortest time in ns between two events of one thread that follow each other in the kernel.
    least: u64,
    /// Stories are reported when their request ends. And: the last request that ended, until its length is known.
    eager: bool,
    ended_last: Option<Slot>,
    /// Facts about system calls, by number; descriptors on mounts, by process and number: connection, and whether a new
    /// program closes it.
    kinds_of_calls: Vec<Call>,
    mounted: FxHashMap<(i32, u64), (u64, bool)>,
    /// Connections on which opening a file makes a request.
    opening: FxHashSet<u64>,
    /// System calls on mounts that have ended, if they are collected; the one that ended with the last event.
    collects: bool,
    mount_calls: Vec<MountCall>,
    last_call: Option<MountCall>,
    /// Kinds of waits, by the number of their stack; what functions show about them, by address.
    verdicts: Vec<u8>,
    sites: FxHashMap<u64, Site>,
}

/// Request that has begun and not ended.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    /// Its end may have been lost.
    pub unsure: bool,
    /// Its caller waits for it.
    pub awaited: bool,
}

/// Results beside the stories.
pub struct Summary {
    pub info: ScanInfo,
    /// Names of threads, indexed by `Story::comm`.
    pub comms: Vec<String>,
    /// `Stitch::event_cost`
    pub event_cost: Option<u64>,
}

/// Read a recording and report each request's story, in order of completion.
pub fn stories(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    tell: Tell,
) -> Result<Summary, Error> {
    read_stories(reader, catalogue, filters, None, tell)
}

/// Do the same, and report each system call on a mount.
pub fn stories_and_calls(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    call: &mut dyn FnMut(&MountCall),
    tell: Tell,
) -> Result<Summary, Error> {
    read_stories(reader, catalogue, filters, Some(call), tell)
}

/// Return the kernel's symbols that a recording has.
pub(crate) fn symbols(reader: &Reader) -> Option<Kernel<'_>> {
    Kernel::new(Cow::Borrowed(reader.kallsyms()?))
}

fn read_stories(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    mut call: Option<&mut dyn FnMut(&MountCall)>,
    tell: Tell,
) -> Result<Summary, Error> {
    let first = filters.first(reader)?;
    let mut stitch = Stitch::new(
        catalogue,
        filters,
        reader.arch().as_deref(),
        first,
        asleep(reader),
    );
    let kernel = call.as_ref().and_then(|_| symbols(reader));
    stitch.collects = call.is_some();
    let mut hand_on = |stitch: &mut Stitch| {
        if let Some(call) = &mut call {
            stitch.take_calls().iter().for_each(&mut **call);
        }
    };
    let info = reader.scan(catalogue, &mut |batch| {
        stitch.add_stacks(&batch.stacks, kernel.as_ref());
        stitch.push(&batch, tell);
        hand_on(&mut stitch);
    })?;
    let event_cost = stitch.event_cost();
    stitch.end_at(info.last);
    stitch.rest(tell);
    hand_on(&mut stitch);
    let comms = stitch.comms;
    Ok(Summary {
        info,
        comms,
        event_cost,
    })
}

/// Return the bits of sched_switch's prev_state that show that a task waits, as the recording's own format names them.
/// Without any of them the task is runnable (preempted).
pub fn asleep(reader: &Reader) -> u64 {
    let format = reader
        .events()
        .iter()
        .find(|event| event.name == "sched:sched_switch")
        .and_then(|event| event.format.as_deref());
    let bits = format.map_or(0, |format| format.flags("prev_state"));
    // TASK_INTERRUPTIBLE and TASK_UNINTERRUPTIBLE, if the format does not define the bits.
    if bits == 0 {
        3
    } else {
        bits
    }
}

impl Stitch {
    /// Prepare like `Analysis::new`. `asleep`: result of the function of that name.
    pub fn new(
        catalogue: &[Meaning],
        filters: Filters,
        arch: Option<&str>,
        first: u64,
        asleep: u64,
    ) -> Stitch {
        let mut numbers: FxHashMap<(Layer, &str), u32> = FxHashMap::default();
        let kinds = catalogue.iter().map(|row| {
            let next = numbers.len() as u32;
            let function = *numbers.entry((row.layer, &row.function)).or_insert(next);
            Kind {
                role: row.role,
                layer: row.layer,
                function,
                place: place(&row.function),
                makes: place(&row.function) == Place::Other
                    && !catalogue
                        .iter()
                        .any(|other| other.event == row.event && other.layer == Layer::Request),
                operation: Operation::of_name(&row.operation),
                returns: catalogue.iter().any(|other| {
                    other.role == Role::Return
                        && (other.layer, &other.function) == (row.layer, &row.function)
                }),
            }
        });
        let mut places: Vec<(u64, Place)> = filters
            .functions
            .iter()
            .map(|(start, name, _)| (*start, place(name)))
            .filter(|(_, place)| *place != Place::Other)
            .collect();
        places.sort_by_key(|(start, _)| *start);
        let opened = filters.opened.iter().take(MOST_FILES);
        let mounted = opened.map(|(pid, fd, connection)| ((*pid, *fd), (*connection, false)));
        let mounted = mounted.collect();
        Stitch {
            arch: Arch::new(arch),
            window: filters.window(first),
            kinds: kinds.collect(),
            serves: Serves::new(&filters.daemons),
            servants: filters.daemons.iter().map(|(pid, _)| *pid).collect(),
            ended: FxHashSet::default(),
            unread: FxHashMap::default(),
            rings: FxHashMap::default(),
            waiting: FxHashMap::default(),
            ring_events: catalogue.iter().any(|row| row.role == Role::Fetched),
            reading: FxHashMap::default(),
            hand: FxHashSet::default(),
            own_answers: FxHashSet::default(),
            devices: FxHashSet::default(),
            reads: catalogue
                .iter()
                .any(|row| matches!(row.role, Role::Sent | Role::SysExit)),
            callbacks: FxHashSet::default(),
            begins: catalogue.iter().any(|row| row.role == Role::Begin),
            now: 0,
            places,
            calls: catalogue.iter().any(|row| row.role == Role::SysEnter),
            switches: catalogue.iter().any(|row| row.role == Role::Switch),
            asleep,
            filters,
            requests: Requests::default(),
            slab: Vec::new(),
            free: Vec::new(),
            generation: 0,
            tasks: Tasks::default(),
            comms: vec![String::new()],
            comm_numbers: FxHashMap::default(),
            losses: 0,
            least: u64::MAX,
            eager: false,
            ended_last: None,
            kinds_of_calls: Arch::new(arch).calls(),
            mounted,
            opening: FxHashSet::default(),
            collects: false,
            mount_calls: Vec::new(),
            last_call: None,
            verdicts: Vec::new(),
            sites: FxHashMap::default(),
        }
    }

    /// Set the bits of sched_switch's prev_state, as `asleep` returns them.
    pub(crate) fn set_asleep(&mut self, bits: u64) {
        self.asleep = bits;
    }

    /// Return the maximum cost of an event in ns. It is the shortest time from a request's end to the waking of its
    /// caller, which the kernel does right after. None if neither was seen.
    pub fn event_cost(&self) -> Option<u64> {
        Some(self.least).filter(|ns| *ns < u64::MAX)
    }

    /// Return the names of threads, indexed by `Story::comm`.
    pub fn comms(&self) -> &[String] {
        &self.comms
    }

    /// Process the next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch, tell: Tell) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event, tell),
            Item::Side(record) => self.side(record, tell),
        });
    }

    /// Report each story as soon as its request has ended, without what the caller and the callback do after that.
    pub fn eager(mut self) -> Stitch {
        self.eager = true;
        self
    }

    /// Report the request that ended with the last event, if nothing more can be learned of it. With `eager`, call this at
    /// the end of a batch.
    pub fn settle(&mut self, tell: Tell) {
        let Some(slot) = self.ended_last.take() else {
            return;
        };
        match self.eager {
            true => self.tell(slot, tell),
            false => self.close(slot, tell),
        }
    }

    /// Return the stories of requests that have begun and not ended.
    pub fn under_way(&self) -> impl Iterator<Item = (&Story, InFlight)> {
        let open = |open: &&Open| open.generation > 0 && !open.ended;
        let begun = self.slab.iter().filter(open);
        begun
            .filter(|open| open.story.at(Mark::Begin).is_some())
            .map(|open| {
                let in_flight = InFlight {
                    unsure: open.losses != self.losses,
                    awaited: open.may_be_awaited(self.switches),
                };
                (&open.story, in_flight)
            })
    }

    /// Give up the requests of a connection that began before a time when the kernel had none in flight. A request that
    /// its killed caller has withdrawn from the queue has no end.
    pub fn forget(&mut self, connection: u64, before: u64) {
        let over = |open: &Open| {
            let begin = open.story.at(Mark::Begin);
            open.generation > 0
                && !open.ended
                && open.story.connection == connection
                && begin.is_some_and(|begin| begin < before)
        };
        let places = self.slab.iter().zip(0u32..);
        let over: Vec<Slot> = places
            .filter(|(open, _)| over(open))
            .map(|(open, place)| (place, open.generation))
            .collect();
        over.into_iter()
            .for_each(|slot| self.tell(slot, &mut |_, _| {}));
    }

    /// Note that ends of requests that have begun until now may be missing.
    pub fn lose(&mut self) {
        self.losses += 1;
        self.forget_lost(0);
    }

    /// Give up requests whose ends may have been lost, if there are more than `most`.
    pub fn forget_lost(&mut self, most: usize) {
        let unsure = |open: &Open| open.generation > 0 && open.losses != self.losses;
        let places = self.slab.iter().zip(0u32..);
        let lost: Vec<Slot> = places
            .filter(|(open, _)| unsure(open))
            .map(|(open, place)| (place, open.generation))
            .collect();
        if lost.len() > most {
            lost.into_iter()
                .for_each(|slot| self.give_up(slot, &mut |_, _| {}));
        }
    }

    /// Process one event, for callers that look at events one by one (`waiting`, `in_hand`). Side-band records: `side`.
    #[inline]
    pub fn event(&mut self, ev: &Ev, tell: Tell) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        self.now = self.now.max(ev.time);
        if kind.role != Role::Length {
            self.settle(tell);
        }
        self.last_call = None;
        self.acts(ev.tid, ev.time, kind.role);
        match kind.role {
            Role::SysEnter => self.sys_enter(ev, tell),
            Role::SysExit => self.sys_exit(ev, tell),
            Role::Switch => {
                let [prev, state, next, _] = ev.v;
                let asleep = state & self.asleep != 0;
                self.switch([prev as i32, next as i32], asleep, ev.time, ev.v[3]);
            }
            Role::Waking => self.waking(ev),
            Role::Fetched => self.fetched(ev),
            Role::Committed => self.committed(ev),
            Role::RingWait => self.ring_wait(ev),
            Role::Begin => self.begin(ev, kind, tell),
            Role::Sent => self.sent(ev),
            Role::End => self.end(ev, tell),
            Role::Reply => self.reply(ev),
            Role::Length => self.length(ev),
            Role::Entry if kind.layer == Layer::Daemon => self.callback(ev, kind, tell),
            Role::Return if kind.layer == Layer::Daemon => self.callback_return(ev, kind, tell),
            Role::Entry => self.kernel_entry(ev, kind),
            Role::Return => self.kernel_return(ev, kind),
            Role::GraphEntry => self.graph_entry(ev),
            Role::GraphExit => self.graph_exit(ev),
            Role::Inode | Role::Handle | Role::Name | Role::Listed | Role::Taken => {}
            Role::Asked | Role::About | Role::Sized | Role::Answered | Role::Forgotten => {}
            Role::Signal => self.signal(ev),
            Role::Stack | Role::Sample | Role::Connect => {}
        }
    }

    /// Return the daemons of the filters.
    pub fn daemons(&self) -> &[(i32, u64)] {
        &self.filters.daemons
    }

    /// Return `Filters::window`.
    pub fn window(&self) -> (u64, u64) {
        self.window
    }

    /// Set the time of the recording's last event: open requests count until then.
    pub fn end_at(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// Report the rest. Return the names of threads.
    pub fn finish(mut self, tell: Tell) -> Vec<String> {
        self.rest(tell);
        self.comms
    }

    /// Report the rest: no more events come.
    pub fn rest(&mut self, tell: Tell) {
        let inside = self.tasks.in_calls();
        for tid in &inside {
            // Requests that it waits for are over below.
            let slot = self.waiting_slot(*tid).filter(|_| self.is_asleep(*tid));
            self.call_leaves(*tid, self.now, slot.is_some());
        }
        for place in 0..self.slab.len() {
            match self.slab[place].generation {
                0 => {} // free
                generation => self.give_up((place as u32, generation), tell),
            }
        }
        for tid in inside {
            let call = self.tasks.get(tid).and_then(|task| task.syscall);
            if let Some(call) = call.filter(|call| call.losses == self.losses) {
                self.call_ends(tid, call, self.now, Ends::GoesOn, ABSENT);
            }
        }
    }
}

/// Receiver of a story, with the names of threads indexed by `Story::comm`.
pub type Tell<'a> = &'a mut dyn FnMut(&Story, &[String]);
