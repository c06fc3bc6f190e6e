//! Events that the reader hands to the analysis: small, plain, in time order.

use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Maximum distance in bytes from a function's start to the first place that can be traced.
pub(crate) const FARTHEST: u64 = 64;

/// Function in which a caller sleeps until its last request is answered; the same in all kernels.
pub(crate) const WAIT: &str = "request_wait_answer";

/// Meaning of an event. Chosen by the caller, from the recording's session or from probe sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A function is entered (kprobe, uprobe).
    Entry,
    /// A function returns.
    Return,
    /// A kernel function is entered, or returns, as function_graph records it. Its address identifies the function.
    GraphEntry,
    GraphExit,
    /// A request begins (fuse:fuse_request_send, or a kprobe where it is queued).
    Begin,
    /// A request has been copied to the daemon (fuse:fuse_request_sent, or a kprobe on fuse_copy_args).
    Sent,
    /// A request ends (fuse:fuse_request_end, or a kprobe on fuse_request_end).
    End,
    /// The daemon answers (an exported fuse_reply_* function).
    Reply,
    /// The daemon answers with an inode (fuse_reply_entry).
    Inode,
    /// The daemon answers with the handle of a file that it has opened (fuse_reply_open, fuse_reply_create).
    Handle,
    /// The daemon adds a file to a directory's list, with its inode (fuse_add_direntry_plus). Yields only
    /// `Side::Listed`.
    Listed,
    /// A thread of the daemon takes a request. Its calls without `unique` belong to that request.
    Taken,
    /// A completion is posted in a ring of io_uring (io_uring:io_uring_complete).
    Fetched,
    /// A command is submitted to a ring (io_uring:io_uring_submit_req).
    Committed,
    /// A thread waits for completions of a ring (io_uring:io_uring_cqring_wait).
    RingWait,
    /// A callback is entered with a name. Yields only `Side::Name`.
    Name,
    /// The kernel makes a request with a file's name. Such events yield only `Side::Asked`.
    Asked,
    /// The kernel makes another request, with an inode.
    About,
    /// The daemon gets a request to read or to write, with its size and offset.
    Sized,
    /// The kernel gets the reply to a request that has a name, with an inode.
    Answered,
    /// The kernel forgets an inode.
    Forgotten,
    SysEnter,
    SysExit,
    Switch,
    Waking,
    /// A signal is sent to a task (signal:signal_generate).
    Signal,
    /// A TCP connection is requested (sock:inet_sock_set_state, to TCP_SYN_SENT).
    Connect,
    /// A sample's call chain, as an event of its own after the sample's other events. Switches and wakings carry their
    /// chain themselves.
    Stack,
    /// A sample (cpu-clock), used only for what runs.
    Sample,
    /// Length of a request or a reply: another reading of the event that begins or ends it.
    Length,
}

impl Role {
    /// Return the role with this name in a recording's session.
    pub fn of_name(name: &str) -> Option<Role> {
        let known = ROLES.iter().find(|(_, known)| *known == name);
        known.map(|(role, _)| *role)
    }

    pub fn name(self) -> &'static str {
        let known = ROLES.iter().find(|(role, _)| *role == self);
        known.map_or("", |(_, name)| name)
    }
}

const ROLES: [(Role, &str); 30] = [
    (Role::Entry, "entry"),
    (Role::Return, "return"),
    (Role::GraphEntry, "graph_entry"),
    (Role::GraphExit, "graph_exit"),
    (Role::Begin, "begin"),
    (Role::Sent, "sent"),
    (Role::End, "end"),
    (Role::Reply, "reply"),
    (Role::Inode, "inode"),
    (Role::Handle, "handle"),
    (Role::Listed, "listed"),
    (Role::Taken, "taken"),
    (Role::Name, "name"),
    (Role::Asked, "asked"),
    (Role::About, "about"),
    (Role::Sized, "sized"),
    (Role::Answered, "answered"),
    (Role::Forgotten, "forgotten"),
    (Role::SysEnter, "sys_enter"),
    (Role::SysExit, "sys_exit"),
    (Role::Switch, "switch"),
    (Role::Waking, "waking"),
    (Role::Fetched, "fetched"),
    (Role::Committed, "committed"),
    (Role::RingWait, "ring_wait"),
    (Role::Signal, "signal"),
    (Role::Connect, "connect"),
    (Role::Stack, "stack"),
    (Role::Sample, "sample"),
    (Role::Length, "length"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    Syscall,
    Kernel,
    Request,
    Daemon,
}

/// From the caller to the daemon.
pub const LAYERS: [(Layer, &str); 4] = [
    (Layer::Syscall, "syscall"),
    (Layer::Kernel, "kernel"),
    (Layer::Request, "request"),
    (Layer::Daemon, "daemon"),
];

impl Serialize for Layer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Layer {
    pub fn name(self) -> &'static str {
        LAYERS[self as usize].1
    }

    pub fn of_name(name: &str) -> Option<Layer> {
        let known = LAYERS.iter().find(|(_, known)| *known == name);
        known.map(|(layer, _)| *layer)
    }
}

/// Row of the catalogue: an event of the recording and its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// "system:name" as in the recording's own event list; "system:name#3": probe 3 of an event that several probes
    /// share.
    pub event: String,
    pub layer: Layer,
    /// Function's name as users know it, e.g. "cvmfs_lookup"; empty for requests and system calls.
    pub function: String,
    /// FUSE operation in lower case, e.g. "lookup"; empty if unknown.
    pub operation: String,
    pub role: Role,
}

impl Meaning {
    /// Return the event, and the probe's number there if several share it.
    pub(crate) fn of_bundle(&self) -> (&str, Option<u64>) {
        let parts = self.event.rsplit_once('#');
        let numbered = parts.and_then(|(event, number)| Some((event, number.parse().ok()?)));
        numbered.map_or((&self.event, None), |(event, number)| (event, Some(number)))
    }
}

/// Mark in the error of a request that the kernel sent a second time (FUSE_NOTIFY_RESEND): bit 63 of its number was set
/// (FUSE_UNIQUE_RESEND).
pub(crate) const RESENT: u64 = 1 << 32;

/// Value of a field that the event does not have.
pub const ABSENT: u64 = u64::MAX;

/// Return the value, None if it is ABSENT.
pub fn known(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value != ABSENT)
}

/// One event. `kind` indexes the catalogue. `v` depends on the role, with ABSENT for fields that the event lacks:
///
/// | role | v\[0\] | v\[1\] | v\[2\] | v\[3\] |
/// | --- | --- | --- | --- | --- |
/// | Entry, Return of the kernel | unique | | | req |
/// | Entry of the daemon, Sized | unique | ino | size | off |
/// | Return of the daemon | unique | | | |
/// | Taken | unique | | | |
/// || Reply, Inode | unique | ino (0: no such file) | | |
/// || Handle | unique | fh | | |
/// | About | unique | ino | | connection |
/// || Answered | unique | ino (0: no such file) | | connection |
/// | Forgotten | | ino | | connection |
/// | GraphEntry | func | depth | | |
/// | GraphExit | func | depth | calltime | rettime |
/// | Begin | unique | connection | opcode | req |
/// || Sent | unique | connection | write (0: the reply is copied) | req |
/// | End | unique | connection | error (32 bits), RESENT | req |
/// | SysEnter | id | first argument | third argument | second argument |
/// | SysExit | id | ret | | |
/// | Switch | prev_pid | prev_state | next_pid | stack |
/// | Waking | pid | common_flags (8, 16: in an interrupt) | | stack |
/// | Fetched | ring | user_data | res (32 bits) | |
/// | Committed | ring | user_data | opcode | sq_thread |
/// | RingWait | ring | | | |
/// | Signal | sig | pid | result (1: ignored) | code (32 bits) |
/// || Connect | port | first 8 bytes of the address | its last 8 bytes | |
/// | Length | unique | connection | len | req |
/// || Stack | address of the sample | period | | stack |
///
/// `stack` is a stack's number, counted over all batches. ABSENT: the sample has none, or no row with Role::Stack
/// requests it.
///
/// `req` is the address of the kernel's struct fuse_req. It is a request's from its begin to its end, then another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ev {
    /// Time in ns on the recording's clock.
    pub time: u64,
    pub pid: i32,
    pub tid: i32,
    pub kind: u32,
    pub cpu: u32,
    pub v: [u64; 4],
}

/// Side-band records that the analysis needs, in the same time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    Comm {
        time: u64,
        pid: i32,
        tid: i32,
        comm: String,
    },
    /// Code mapped into an address space. Only if stacks are requested.
    Map(Box<Map>),
    Fork {
        time: u64,
        pid: i32,
        tid: i32,
        ppid: i32,
        ptid: i32,
    },
    Exit {
        time: u64,
        pid: i32,
        tid: i32,
    },
    /// Name in a callback's arguments: of a file in the directory `ino`, or of an attribute of `ino`. Only if the
    /// catalogue requests it (Role::Name).
    Name {
        time: u64,
        pid: i32,
        tid: i32,
        unique: u64,
        ino: u64,
        /// Handle of an open file.
        handle: u64,
        name: Arc<str>,
        /// Name of an extended attribute, where `name` is the file's path.
        attribute: Option<Arc<str>>,
    },
    /// Request that the kernel makes: for `name` in the directory `ino`, or for the attribute `name` of `ino`. Only if
    /// the catalogue requests it (Role::Asked).
    Asked {
        time: u64,
        connection: u64,
        unique: u64,
        opcode: u64,
        ino: u64,
        name: Arc<str>,
    },
    /// Entry in the reply to a request for a directory's list. Only if the catalogue requests it (Role::Listed).
    Listed {
        time: u64,
        pid: i32,
        tid: i32,
        unique: u64,
        ino: u64,
        name: Arc<str>,
    },
    /// PERF_RECORD_SWITCH. `out` false: the task runs again.
    Switch {
        time: u64,
        pid: i32,
        tid: i32,
        out: bool,
        preempt: bool,
    },
    /// PERF_RECORD_LOST. Events before this time are missing, so an open call may not be the one that returns next.
    Lost {
        time: u64,
    },
}

/// PERF_RECORD_MMAP or MMAP2: a part of a file in an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub time: u64,
    /// -1: the kernel.
    pub pid: i32,
    pub start: u64,
    pub len: u64,
    /// Offset in bytes in the file.
    pub offset: u64,
    pub path: String,
    /// Empty if the record has none.
    pub build_id: Vec<u8>,
}

/// Call chain as perf records it, innermost first: addresses, and marks of their context (PERF_CONTEXT_*).
pub type Chain = Arc<[u64]>;

/// All events up to some time, sorted by time. Later batches hold only later events.
#[derive(Default, Debug)]
pub struct Batch {
    pub events: Vec<Ev>,
    pub side: Vec<Side>,
    /// New stacks. Their numbers continue those of earlier batches.
    pub stacks: Vec<Chain>,
}

/// Item that `Batch::in_order` passes on.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    Event(&'a Ev),
    Side(&'a Side),
}

impl Batch {
    /// Pass events and side-band records to `see`, merged by time. At equal times, a thread's name and fork come before
    /// its events, its exit and losses after.
    pub fn in_order<'a>(&'a self, mut see: impl FnMut(Item<'a>)) {
        let mut side = self.side.iter();
        let mut next = side.next();
        let mut due = Side::due(next);
        for event in &self.events {
            while let Some(record) = next.take_if(|_| due <= event.time) {
                see(Item::Side(record));
                next = side.next();
                due = Side::due(next);
            }
            see(Item::Event(event));
        }
        next.into_iter()
            .chain(side)
            .for_each(|record| see(Item::Side(record)));
    }
}

impl Side {
    /// Return the time of the earliest event that the record precedes; u64::MAX without a record.
    pub(crate) fn due(record: Option<&Side>) -> u64 {
        match record {
            Some(
                Side::Comm { time, .. }
                | Side::Fork { time, .. }
                | Side::Name { time, .. }
                | Side::Asked { time, .. }
                | Side::Listed { time, .. },
            ) => *time,
            Some(Side::Map(map)) => map.time,
            Some(Side::Exit { time, .. } | Side::Switch { time, .. } | Side::Lost { time }) => {
                time.saturating_add(1)
            }
            None => u64::MAX,
        }
    }
}

/// Return `value`, or 0 for ABSENT.
pub(crate) fn or_zero(value: u64) -> u64 {
    if value == ABSENT {
        0
    } else {
        value
    }
}
