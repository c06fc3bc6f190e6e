//! Stacks of waits, if only some were taken. ftrace records every switch. perf takes the stacks of all switches while
//! they are few, else of some, right before ftrace records the same switch on the same CPU. A switch without a stack
//! gets the stack of the last similar switch, or else of the next one. Similar switches have the same process, system
//! call, descriptor and FUSE operation. If the process has no such stack, the switch gets the kernel's part of another
//! process's stack.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::format::record::u32_at;
use crate::format::tracepoint::{number, Field, Format};
use crate::programs::stacks::CONTEXT_USER;
use crate::reader::Reader;

/// Maximum number of remembered threads and kinds of waits.
const MOST_TASKS: usize = 1 << 14;
const MOST_KINDS: usize = 1 << 14;
/// No system call.
const NONE: i64 = -1;

pub(super) const SWITCH: &str = "sched:sched_switch";
/// Events that ftrace records as well: only the stacks of perf's samples are used.
pub(super) const OF_BOTH: [&str; 2] = [SWITCH, "raw_syscalls:sys_enter"];

/// Prefix of events for a single system call.
pub(super) const ONE_CALL: &str = "syscalls:sys_enter_";

/// The place of a number in raw data.
pub(super) type Place = (usize, usize);

fn place(format: Option<&Format>, name: &str) -> Option<Place> {
    let field: &Field = format?.field(name)?;
    Some((field.offset, field.size))
}

pub(super) fn read(raw: &[u8], place: Option<Place>) -> Option<u64> {
    let (at, size) = place?;
    number(raw.get(at..at.checked_add(size)?)?)
}

/// The fact that an event's samples show about a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tells {
    Entered {
        nr: Option<Place>,
        args: Option<Place>,
    },
    Left,
    /// The thread stops running.
    Switched(Option<Place>),
    /// The thread makes a request, or answers one.
    Request(Place),
    Callback(bool),
    #[default]
    Nothing,
}

/// Return, by event of a recording, what it says of waits. `alone`: whether only its stacks are used.
pub(super) fn tells(reader: &Reader, alone: &[bool]) -> Vec<Tells> {
    let events = || reader.events().iter();
    let formats = || events().map(|info| info.format.as_deref());
    let returns = formats().any(|format| place(format, "__probe_ret_ip").is_some());
    let meanings = events().zip(alone).map(|(info, &alone)| {
        let format = info.format.as_deref();
        match alone && info.name.starts_with(ONE_CALL) {
            true => Tells::Entered {
                nr: place(format, "__syscall_nr"),
                args: None,
            },
            false => tells_by_name(&info.name, format, returns),
        }
    });
    meanings.collect()
}

/// `returns`: the recording has events of return probes.
pub(super) fn tells_by_name(name: &str, format: Option<&Format>, returns: bool) -> Tells {
    let (system, _) = name.split_once(':').unwrap_or_default();
    match name {
        "raw_syscalls:sys_enter" => Tells::Entered {
            nr: place(format, "id"),
            args: place(format, "args").map(|(at, _)| (at, 8)),
        },
        "raw_syscalls:sys_exit" => Tells::Left,
        SWITCH => Tells::Switched(place(format, "prev_state")),
        _ if system == "fuse_daemon" && returns => {
            Tells::Callback(place(format, "__probe_ret_ip").is_none())
        }
        _ if system.starts_with("fuse") => {
            place(format, "opcode").map_or(Tells::Nothing, Tells::Request)
        }
        _ => Tells::Nothing,
    }
}

/// Return, by event of tasks, the task concerned, besides the running one.
pub(super) fn about(reader: &Reader) -> Vec<Option<Option<Place>>> {
    let events = reader.events().iter();
    let of = events.map(|info| about_whom(&info.name, info.format.as_deref()));
    of.collect()
}

pub(super) fn about_whom(name: &str, format: Option<&Format>) -> Option<Option<Place>> {
    match name {
        SWITCH => Some(place(format, "next_pid")),
        "sched:sched_waking" => Some(place(format, "pid")),
        "raw_syscalls:sys_enter" | "raw_syscalls:sys_exit" => Some(None),
        _ if of_own_calls(name) => Some(None),
        _ => None,
    }
}

/// Return whether an event reports one process's calls, which concern no other process.
fn of_own_calls(name: &str) -> bool {
    let systems = ["syscalls:", "sock:", "io_uring:"];
    systems.iter().any(|system| name.starts_with(system))
}

/// The processes of a recording's scope, and their descendants.
#[derive(Default)]
pub(super) struct Scope {
    /// None: all processes.
    processes: Option<FxHashSet<i32>>,
    /// Processes that existed before the recording.
    roots: Vec<i32>,
    /// State of their threads: whether one runs, according to its last switch.
    runs: FxHashMap<i32, bool>,
    /// Number of switches of their threads that must have happened but are not in the recording.
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
        if let (Some(pid), Some(parent), Some(thread)) = (number(8), number(12), number(16)) {
            self.begins((pid, thread), parent);
        }
    }

    /// Note a new thread, in the process that started it or as the first one of its own. Both perf and ftrace report
    /// it: without its beginning a process would have nothing in the recording.
    pub(super) fn begins(&mut self, (pid, thread): (i32, i32), parent: i32) {
        self.runs.remove(&thread); // its number belonged to another thread before
        let Some(known) = self.processes.as_mut().filter(|_| pid != parent) else {
            return;
        };
        if known.contains(&parent) {
            known.insert(pid);
        } else if !self.roots.contains(&pid) {
            known.remove(&pid);
        }
    }

    /// Note that a thread stops running, and another one begins.
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

    /// Process perf's own record of a switch. Return whether to write it: one of the processes is concerned, and no
    /// event has reported the switch.
    pub(super) fn told(&mut self, (pid, tid): (i32, i32), out: bool) -> bool {
        let Some(known) = &self.processes else {
            return true;
        };
        if tid <= 0 || !known.contains(&pid) {
            return false;
        }
        self.runs.insert(tid, !out) != Some(!out)
    }

    /// Note that the recording reports lost events.
    pub(super) fn lost(&mut self) {
        self.runs.clear();
    }

    /// Return whether a process belongs to the scope.
    pub(super) fn of(&self, pid: i32) -> bool {
        self.processes
            .as_ref()
            .is_none_or(|known| known.contains(&pid))
    }

    /// Return whether process `pid` is in the scope, or the thread that the event's field `about` names. `process`: the
    /// process of a thread.
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

/// The key of similar waits: process, system call, its first argument, FUSE operation, in a callback, state.
type Kind = (i32, i64, u64, u64, bool, u64);

fn of_all((_, nr, _, opcode, callback, state): Kind) -> Kind {
    (0, nr, 0, opcode, callback, state)
}

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

/// Numbers of waits with their own stack, with the stack of a similar wait, and without a stack. `ns`: the cost of
/// taking all stacks, for their threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub taken: u64,
    pub alike: u64,
    pub without: u64,
    pub ns: u64,
}

/// Stacks that similar waits share.
#[derive(Default)]
pub(super) struct Alike {
    kinds: FxHashMap<Kind, Vec<u64>>,
    /// The kernel's part of stacks, by kind, for all processes and descriptors.
    kernel: FxHashMap<Kind, Vec<u64>>,
}

impl Alike {
    fn of(&self, kind: &Kind) -> Option<&Vec<u64>> {
        let alike = self.kinds.get(kind);
        alike.or_else(|| self.kernel.get(&of_all(*kind)))
    }
}

#[derive(Default)]
pub(super) struct Waits {
    tasks: FxHashMap<i32, Task>,
    /// The last stack of each kind, and the first one over all kinds.
    last: FxHashMap<Kind, Vec<u64>>,
    first: Alike,
    /// The first stacks of the whole recording, for a second pass.
    later: Alike,
    /// Kinds of waits without a stack so far.
    lacking: FxHashSet<Kind>,
    /// By CPU: the last stack taken there, and its thread, until the switch is reported.
    taken: FxHashMap<u32, (i32, Vec<u64>)>,
    pub(super) shares: Shares,
}

impl Waits {
    pub(super) fn new(later: Alike) -> Waits {
        Waits {
            later,
            ..Waits::default()
        }
    }

    /// Return the first stack of each kind, if it was taken after a similar wait without a stack.
    pub(super) fn later(&mut self) -> Option<Alike> {
        let first = std::mem::take(&mut self.first);
        let lacks = |kind| self.later.of(kind).is_none() && first.of(kind).is_some();
        self.lacking.iter().any(lacks).then_some(first)
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

    /// Process the facts in a sample; switches go through `switched`.
    pub(super) fn note(&mut self, tells: Tells, tid: i32, raw: Option<&[u8]>) {
        let Some(raw) = raw else { return };
        match tells {
            Tells::Entered { nr, args } => {
                let task = self.task(tid);
                task.nr = read(raw, nr).map_or(NONE, |nr| nr as i64);
                // For other calls the first argument is mostly an address.
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
            Tells::Switched(_) | Tells::Nothing => {}
        }
    }

    /// Note the stack of a thread that is about to stop running.
    pub(super) fn take(&mut self, cpu: u32, tid: i32, chain: Vec<u64>) {
        self.taken.insert(cpu, (tid, chain));
    }

    /// Return the stack of a switch: its own, or that of a similar one.
    pub(super) fn switched(
        &mut self,
        (pid, tid): (i32, i32),
        cpu: u32,
        state: Option<Place>,
        raw: &[u8],
    ) -> Option<Vec<u64>> {
        let own = self.taken.remove(&cpu).filter(|(of, _)| *of == tid);
        let kind = self.kind((pid, tid), state, raw);
        if let Some((_, chain)) = own {
            self.shares.taken += 1;
            let user = chain.iter().position(|ip| *ip == CONTEXT_USER);
            // Two marks: the stack continues, and nothing is known of the rest.
            let kernel = chain[..user.unwrap_or(chain.len())].iter().copied();
            let marks = [CONTEXT_USER; 2].into_iter().filter(|_| user.is_some());
            let first = &mut self.first;
            if first.kernel.len() < MOST_KINDS {
                let of_all = first.kernel.entry(of_all(kind));
                of_all.or_insert_with(|| kernel.chain(marks).collect());
            }
            if first.kinds.len() < MOST_KINDS {
                first.kinds.entry(kind).or_insert_with(|| chain.clone());
            }
            if self.last.len() >= MOST_KINDS {
                self.last.clear();
            }
            self.last.insert(kind, chain.clone());
            return Some(chain);
        }
        let alike = self.last.get(&kind);
        let alike = alike.or_else(|| self.later.kinds.get(&kind));
        let alike = alike.or_else(|| self.first.kernel.get(&of_all(kind)));
        let alike = alike.or_else(|| self.later.kernel.get(&of_all(kind)));
        let alike = alike.cloned();
        if alike.is_none() && self.lacking.len() < MOST_KINDS {
            self.lacking.insert(kind);
        }
        match alike {
            Some(_) => self.shares.alike += 1,
            None => self.shares.without += 1,
        }
        alike
    }
}
