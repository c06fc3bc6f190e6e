//! Each request's whole life, from the system call that made it to that call's end: on the caller's side and on the
//! daemon's.
//!
//! A `Stitch` takes the batches of a recording in time order and reports each request's story once, when nothing more
//! can be learned of it. It keeps only what is open. It joins events by (connection, unique) and the address of the
//! kernel's struct fuse_req (requests.rs), by the caller's thread, and by the daemon's thread.
//!
//! Several requests in one system call: the time before the first belongs to the first, the time after the last to
//! the last, and what lies between two to the later one (`Mark::Resumed`), so nothing is counted twice. Of requests
//! for which nobody waits (release, read-ahead) only what happens from their begin to their end is reported. Requests
//! under way at once have each their own time: their sum may be longer than the call.

mod caller;
mod cut;
mod daemon;
mod kernel;
mod rings;
mod scheduler;
mod slab;
mod task;
mod trace;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cost::Met;
use crate::error::Error;
use crate::events::{or_zero, Batch, Ev, Item, Layer, Meaning, Role, Side, ABSENT, FARTHEST, WAIT};
use crate::filters::Filters;
use crate::operations::{Arch, Operation};
use crate::reader::{Reader, ScanInfo};
use crate::requests::{Identity, Key, Request, Requests};
use crate::serves::Serves;

pub(crate) use cut::Piece;
pub use cut::{Cut, Stage, BETWEEN, STAGES};
use daemon::Unread;
use kernel::{place, Place};
use rings::{Ring, Waiting};
use slab::{Open, Slot};
pub use task::Idle;
use task::{Callback, Freed, Read, Run, State, Syscall, Tasks, MOST_CALLBACKS, MOST_MADE};
pub use trace::{Fate, Mark, RequestCounts, Story, FATES, MARKS, MARK_NAMES};

const MOST_COMMS: usize = 1 << 16;

/// The daemon is gone: the kernel ends what it had not answered (fs/fuse/dev.c, fuse_abort_conn).
const ECONNABORTED: i32 = 103;

#[derive(Clone, Copy)]
struct Kind {
    role: Role,
    layer: Layer,
    /// Of the catalogue, for entries and returns.
    function: u32,
    place: Place,
    operation: Operation,
    returns: bool,
    /// A kernel function that makes requests, not one that only handles them later.
    makes: bool,
}

pub struct Stitch {
    arch: Arch,
    filters: Filters,
    window: (u64, u64),
    kinds: Vec<Kind>,
    /// The connections that daemon processes serve, where known; and all processes that served.
    serves: Serves,
    servants: FxHashSet<i32>,
    /// By connection and length.
    unread: FxHashMap<(u64, u64), Unread>,
    /// Rings of io_uring, by the kernel's address; and what they may yet bring, by connection.
    rings: FxHashMap<u64, Ring>,
    waiting: FxHashMap<u64, Waiting>,
    /// Their completions are recorded.
    ring_events: bool,
    /// Threads of a daemon that are, or may be, in a system call that reads.
    reading: FxHashMap<i32, FxHashSet<i32>>,
    /// Daemons in which another thread answers than the one that read.
    hand: FxHashSet<i32>,
    /// Reads of requests are recorded.
    reads: bool,
    /// Daemons whose callbacks were seen.
    callbacks: FxHashSet<i32>,
    /// Begins of requests are recorded.
    begins: bool,
    /// The latest event's time.
    now: u64,
    /// By start.
    places: Vec<(u64, Place)>,
    /// Switches are recorded; and the bits of prev_state that show that a task is not ready to run.
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
    /// The shortest time seen between two events of one thread that follow each other in the kernel, ns.
    least: u64,
    /// A story is reported when its request ends; this is the last one, until its length is known.
    eager: bool,
    ended_last: Option<Slot>,
}

/// What is known beside the stories.
pub struct Summary {
    pub info: ScanInfo,
    /// Names of threads, by `Story::comm`.
    pub comms: Vec<String>,
    /// `Stitch::event_cost`
    pub event_cost: Option<u64>,
}

/// Reads a recording and reports each request's story, in order of completion.
pub fn stories(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
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
    let info = reader.scan(catalogue, &mut |batch| stitch.push(&batch, tell))?;
    let event_cost = stitch.event_cost();
    stitch.end_at(info.last);
    let comms = stitch.finish(tell);
    Ok(Summary {
        info,
        comms,
        event_cost,
    })
}

/// The bits of sched_switch's prev_state that say that a task waits for something, as the recording's own format
/// names them; without any it is ready to run (preempted).
pub fn asleep(reader: &Reader) -> u64 {
    let format = reader
        .events()
        .iter()
        .find(|event| event.name == "sched:sched_switch")
        .and_then(|event| event.format.as_deref());
    let bits = format.map_or(0, |format| format.flags("prev_state"));
    // TASK_INTERRUPTIBLE and TASK_UNINTERRUPTIBLE, if the format does not define it.
    if bits == 0 {
        3
    } else {
        bits
    }
}

impl Stitch {
    /// As `Analysis::new`; `asleep` is what the function of that name gives.
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
        Stitch {
            arch: Arch::new(arch),
            window: filters.window(first),
            kinds: kinds.collect(),
            serves: Serves::new(&filters.daemons),
            servants: filters.daemons.iter().map(|(pid, _)| *pid).collect(),
            unread: FxHashMap::default(),
            rings: FxHashMap::default(),
            waiting: FxHashMap::default(),
            ring_events: catalogue.iter().any(|row| row.role == Role::Fetched),
            reading: FxHashMap::default(),
            hand: FxHashSet::default(),
            reads: catalogue
                .iter()
                .any(|row| matches!(row.role, Role::Sent | Role::SysExit)),
            callbacks: FxHashSet::default(),
            begins: catalogue.iter().any(|row| row.role == Role::Begin),
            now: 0,
            places,
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
        }
    }

    /// Bits of sched_switch's prev_state, as `asleep` gives them.
    pub(crate) fn set_asleep(&mut self, bits: u64) {
        self.asleep = bits;
    }

    /// Maximum cost of an event, ns: the shortest time from a request's end to the waking of its caller, which the
    /// kernel does right after. None if neither was seen.
    pub fn event_cost(&self) -> Option<u64> {
        Some(self.least).filter(|ns| *ns < u64::MAX)
    }

    /// Names of threads, by `Story::comm`.
    pub fn comms(&self) -> &[String] {
        &self.comms
    }

    /// The next batch: all its events are later than those before.
    pub fn push(&mut self, batch: &Batch, tell: Tell) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event, tell),
            Item::Side(record) => self.side(record, tell),
        });
    }

    /// Reports each story as soon as its request has ended, without what happens to the caller and the callback after
    /// that.
    pub fn eager(mut self) -> Stitch {
        self.eager = true;
        self
    }

    /// Reports requests that have ended. For an eager one, at the end of a batch.
    pub fn settle(&mut self, tell: Tell) {
        if let Some(slot) = self.ended_last.take() {
            self.tell(slot, tell);
        }
    }

    /// Stories of requests that have begun and not ended, each with whether its end may be among what was lost.
    pub fn under_way(&self) -> impl Iterator<Item = (&Story, bool)> {
        let open = |open: &&Open| open.generation > 0 && !open.ended;
        let begun = self.slab.iter().filter(open);
        begun
            .filter(|open| open.story.at(Mark::Begin).is_some())
            .map(|open| (&open.story, open.losses != self.losses))
    }

    /// The ends of requests that have begun until now may be missed.
    pub fn lose(&mut self) {
        self.losses += 1;
        self.forget_lost(0);
    }

    /// Gives up requests whose ends may have been lost, if there are more of them than `most`.
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

    /// One event, for those who look at them one by one (`waiting`, `in_hand`); side-band records: `side`.
    #[inline]
    pub fn event(&mut self, ev: &Ev, tell: Tell) {
        let Some(&kind) = self.kinds.get(ev.kind as usize) else {
            return;
        };
        self.now = self.now.max(ev.time);
        if kind.role != Role::Length {
            self.settle(tell);
        }
        match kind.role {
            Role::SysEnter => self.sys_enter(ev, tell),
            Role::SysExit => self.sys_exit(ev, tell),
            Role::Switch => {
                let [prev, state, next, _] = ev.v;
                self.switch_out(prev as i32, state & self.asleep != 0, ev.time);
                self.switch_in(next as i32, ev.time, prev as i32);
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
            Role::Stack | Role::Sample | Role::Connect => {}
        }
    }

    /// As in the filters.
    pub fn daemons(&self) -> &[(i32, u64)] {
        &self.filters.daemons
    }

    /// The time of the recording's last event: open requests count until then.
    pub fn end_at(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// Reports the rest. Returns the names of threads.
    pub fn finish(mut self, tell: Tell) -> Vec<String> {
        self.rest(tell);
        self.comms
    }

    /// Reports the rest: no more events come.
    pub fn rest(&mut self, tell: Tell) {
        for place in 0..self.slab.len() {
            match self.slab[place].generation {
                0 => {} // free
                generation => self.give_up((place as u32, generation), tell),
            }
        }
    }
}

/// Takes a story with the names of threads, by `Story::comm`.
pub type Tell<'a> = &'a mut dyn FnMut(&Story, &[String]);
