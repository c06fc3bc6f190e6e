//! Stacks of waits that were not all taken. One event tells every switch, without a stack; another one, right after it, the
//! stacks of a part of them, at most so many a second. They become one: a switch of which no stack was taken gets that of
//! the last one of the same process in the same system call, on the same descriptor, for the same FUSE operation; where
//! there was none before, that of the first one.

use rustc_hash::{FxHashMap, FxHashSet};

use super::stacks::words;
use crate::file::Attr;
use crate::format::{number, Field, Format};
use crate::reader::{EventInfo, Reader};
use crate::record::{self, bit, u32_at};

/// Threads, and kinds of waits, that are remembered.
const MOST_TASKS: usize = 1 << 14;
const MOST_KINDS: usize = 1 << 14;
/// No system call.
const NONE: i64 = -1;
/// ns after a switch within which its stack is told.
pub(super) const SOON: u64 = 100_000;

/// The event of the stacks, `context-switches` by another name (fusetools/plan/planner.py).
pub(super) const STACKS: &str = "fusetools_stacks";

/// The place of a number in raw data.
type Place = (usize, usize);

fn place(format: Option<&Format>, name: &str) -> Option<Place> {
    let field: &Field = format?.field(name)?;
    Some((field.offset, field.size))
}

fn read(raw: &[u8], place: Option<Place>) -> Option<u64> {
    let (at, size) = place?;
    number(raw.get(at..at.checked_add(size)?)?)
}

/// What an event's samples tell of what a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tells {
    Entered {
        nr: Option<Place>,
        args: Option<Place>,
    },
    Left,
    /// The thread runs no more; `stack`: the event whose samples have stacks as well.
    Switched {
        state: Option<Place>,
        stack: Option<u64>,
    },
    /// The stack of the switch before it.
    Sampled,
    /// It makes a request, or answers one.
    Request(Place),
    Callback(bool),
    #[default]
    Nothing,
}

/// By event of a recording.
pub(super) fn tells(reader: &Reader) -> Vec<Tells> {
    let events = || reader.events().iter().zip(reader.attrs());
    let of = |(info, _): &(&EventInfo, &Attr), name| place(info.format.as_deref(), name);
    let returns = events().any(|event| of(&event, "__probe_ret_ip").is_some());
    let sampled = events().any(|(info, _)| info.name == STACKS);
    // Its samples are as the others are, but for the stack.
    let with_stacks = |attr: &Attr| {
        let with = attr.layout.sample_type | bit::CALLCHAIN;
        let plain = attr.layout.sample_type & (bit::READ | bit::IDENTIFIER) == bit::IDENTIFIER;
        let mut others = events().filter(|(info, of)| {
            info.name == "sched:sched_switch" && of.layout.sample_type == with
        });
        let wanted = sampled && plain && !attr.layout.has_chain();
        wanted.then(|| others.find_map(|(_, of)| of.ids.first().copied()))?
    };
    let told = events().map(|event| {
        let (info, attr) = event;
        let (system, _) = info.name.split_once(':').unwrap_or_default();
        match &info.name[..] {
            "raw_syscalls:sys_enter" => Tells::Entered {
                nr: of(&event, "id"),
                args: of(&event, "args").map(|(at, _)| (at, 8)),
            },
            "raw_syscalls:sys_exit" => Tells::Left,
            STACKS => Tells::Sampled,
            "sched:sched_switch" => Tells::Switched {
                state: of(&event, "prev_state"),
                stack: with_stacks(attr),
            },
            _ if system == "fuse_daemon" && returns => match of(&event, "__probe_ret_ip") {
                Some(_) => Tells::Callback(false),
                None => Tells::Callback(true),
            },
            _ if system.starts_with("fuse") => match of(&event, "opcode") {
                Some(place) => Tells::Request(place),
                None => Tells::Nothing,
            },
            _ => Tells::Nothing,
        }
    });
    told.collect()
}

/// By event that is of tasks: whom it tells of besides the task that runs.
pub(super) fn about(reader: &Reader) -> Vec<Option<Option<Place>>> {
    let events = reader.events().iter();
    let of = events.map(|info| about_whom(&info.name, info.format.as_deref()));
    of.collect()
}

pub(super) fn about_whom(name: &str, format: Option<&Format>) -> Option<Option<Place>> {
    match name {
        "sched:sched_switch" => Some(place(format, "next_pid")),
        "sched:sched_waking" => Some(place(format, "pid")),
        "raw_syscalls:sys_enter" | "raw_syscalls:sys_exit" => Some(None),
        _ => None,
    }
}

/// Processes that a recording is about, and those that they start.
#[derive(Default)]
pub(super) struct Scope {
    /// None: all.
    processes: Option<FxHashSet<i32>>,
    /// Which were there before.
    roots: Vec<i32>,
    /// Whether a thread of them runs, by its last switch.
    runs: FxHashMap<i32, bool>,
    /// Switches of their threads that must have been, and are not in the recording.
    pub(super) missing: u64,
}

impl Scope {
    pub(super) fn new(roots: Vec<i32>) -> Scope {
        Scope {
            processes: Some(roots.iter().copied().collect()),
            roots,
            ..Scope::default()
        }
    }

    pub(super) fn forked(&mut self, record: &[u8]) {
        let number = |at| u32_at(record, at).map(|number| number as i32);
        if let Some(thread) = number(16) {
            self.runs.remove(&thread); // its number was another's before
        }
        if let (Some(known), Some(pid), Some(parent)) = (&mut self.processes, number(8), number(12))
        {
            if pid != parent && known.contains(&parent) {
                known.insert(pid);
            } else if pid != parent && !self.roots.contains(&pid) {
                known.remove(&pid);
            }
        }
    }

    /// A thread stops running, and another one begins.
    pub(super) fn switched(
        &mut self,
        (pid, tid): (i32, i32),
        next: Option<Place>,
        raw: Option<&[u8]>,
        process: impl Fn(i32) -> i32,
    ) {
        let Some(known) = &self.processes else {
            return;
        };
        let next = raw.and_then(|raw| read(raw, next)).map(|tid| tid as i32);
        let next = next.filter(|&tid| tid > 0 && known.contains(&process(tid)));
        let prev = known.contains(&pid).then_some(tid);
        if self.runs.len() >= MOST_TASKS {
            self.runs.clear();
        }
        for (tid, runs) in [(prev, false), (next, true)] {
            let before = tid.and_then(|tid| self.runs.insert(tid, runs));
            self.missing += u64::from(before == Some(runs));
        }
    }

    /// The recording itself says that events are missing.
    pub(super) fn lost(&mut self) {
        self.runs.clear();
    }

    /// Is it about one of them? `process`: which a thread is of.
    pub(super) fn has(
        &self,
        pid: i32,
        about: Option<Place>,
        raw: Option<&[u8]>,
        process: impl Fn(i32) -> i32,
    ) -> bool {
        let Some(known) = &self.processes else {
            return true;
        };
        let about = raw.and_then(|raw| read(raw, about));
        known.contains(&pid) || about.is_some_and(|tid| known.contains(&process(tid as i32)))
    }
}

/// What makes waits alike: process, system call, its first argument, FUSE operation, in a callback, state.
type Kind = (i32, i64, u64, u64, bool, u64);

struct Task {
    nr: i64,
    first: u64,
    opcode: u64,
    callback: bool,
}

impl Default for Task {
    fn default() -> Task {
        Task {
            nr: NONE,
            first: 0,
            opcode: 0,
            callback: false,
        }
    }
}

/// Of waits with a stack: those of which it was taken, and those that have it of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub taken: u64,
    pub alike: u64,
    pub without: u64,
}

#[derive(Default)]
pub(super) struct Waits {
    tasks: FxHashMap<i32, Task>,
    kinds: FxHashMap<Kind, Vec<u64>>,
    pub(super) shares: Shares,
}

impl Waits {
    /// The first stack of each kind, in a pass over a recording that is still as perf wrote it.
    pub(super) fn read(reader: &Reader) -> Waits {
        let mut waits = Waits::default();
        let tells = tells(reader);
        if !tells.contains(&Tells::Sampled) {
            return waits;
        }
        // Of the last switch of a thread, which its stack follows.
        let mut last: FxHashMap<i32, (u64, Kind)> = FxHashMap::default();
        for record in reader.records() {
            let (record::SAMPLE, Some(time), Some(event)) =
                (record.kind, record.time, record.event)
            else {
                continue;
            };
            let (Some(tells), Some(attr)) = (tells.get(event), reader.attrs().get(event)) else {
                continue;
            };
            let Some(task) = attr.layout.task(&record.bytes) else {
                continue;
            };
            let raw = attr.layout.raw(&record.bytes);
            match *tells {
                Tells::Switched { state, .. } => {
                    if last.len() >= MOST_TASKS {
                        last.clear();
                    }
                    let kind = waits.kind(task, state, raw.unwrap_or_default());
                    last.insert(task.1, (time, kind));
                }
                Tells::Sampled => {
                    let of = last.remove(&task.1);
                    let of = of.filter(|(at, _)| time.wrapping_sub(*at) <= SOON);
                    let chain = attr.layout.chain(&record.bytes);
                    if let (Some((_, kind)), Some(chain)) = (of, chain) {
                        if waits.kinds.len() < MOST_KINDS {
                            waits.kinds.entry(kind).or_insert_with(|| words(chain));
                        }
                    }
                }
                other => {
                    last.remove(&task.1);
                    waits.note(other, task.1, raw);
                }
            }
        }
        waits.tasks.clear();
        waits
    }

    fn kind(&mut self, (pid, tid): (i32, i32), state: Option<Place>, raw: &[u8]) -> Kind {
        let state = read(raw, state).unwrap_or(0);
        let task = self.task(tid);
        (pid, task.nr, task.first, task.opcode, task.callback, state)
    }

    fn task(&mut self, tid: i32) -> &mut Task {
        if self.tasks.len() >= MOST_TASKS {
            self.tasks.clear();
        }
        self.tasks.entry(tid).or_default()
    }

    /// Takes in what a sample tells; a switch is asked for by `switched`.
    pub(super) fn note(&mut self, tells: Tells, tid: i32, raw: Option<&[u8]>) {
        let Some(raw) = raw else { return };
        match tells {
            Tells::Entered { nr, args } => {
                let task = self.task(tid);
                task.nr = read(raw, nr).map_or(NONE, |nr| nr as i64);
                // Of other calls it is mostly an address.
                task.first = match task.nr {
                    0 | 19 | 45 | 47 | 275 => read(raw, args).unwrap_or(0),
                    _ => 0,
                };
                task.opcode = 0;
            }
            Tells::Left => self.task(tid).nr = NONE,
            Tells::Request(place) => {
                let opcode = read(raw, Some(place)).unwrap_or(0);
                self.task(tid).opcode = opcode;
            }
            Tells::Callback(inside) => self.task(tid).callback = inside,
            Tells::Switched { .. } | Tells::Sampled | Tells::Nothing => {}
        }
    }

    /// The stack of a switch: its own, or that of the last one alike.
    pub(super) fn switched(
        &mut self,
        (pid, tid): (i32, i32),
        own: Option<Vec<u64>>,
        state: Option<Place>,
        raw: &[u8],
    ) -> Option<Vec<u64>> {
        let kind = self.kind((pid, tid), state, raw);
        if let Some(chain) = own {
            if self.kinds.len() >= MOST_KINDS {
                self.kinds.clear();
            }
            self.shares.taken += 1;
            self.kinds.insert(kind, chain.clone());
            return Some(chain);
        }
        let alike = self.kinds.get(&kind).cloned();
        match alike {
            Some(_) => self.shares.alike += 1,
            None => self.shares.without += 1,
        }
        alike
    }
}
