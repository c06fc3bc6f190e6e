//! What the reader hands to the analysis: small plain events in time order.

use std::sync::Arc;

/// Maximum distance from a function's start of the first place that can be traced.
pub(crate) const FARTHEST: u64 = 64;

/// Where a caller sleeps for the answer to the request that it made last; in all kernels.
pub(crate) const WAIT: &str = "request_wait_answer";

/// What an event means. Chosen by the caller, from the recording's session or from probe sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A function is entered (kprobe, uprobe).
    Entry,
    /// A function returns.
    Return,
    /// A kernel function is entered, or returns, as function_graph records it; its address identifies the function.
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
    /// The daemon lists a file in a directory, with its inode (fuse_add_direntry_plus): makes no event but
    /// `Side::Listed`.
    Listed,
    /// A thread of the daemon takes a request: its calls without `unique` belong to that request.
    Taken,
    /// A completion is posted in a ring of io_uring (io_uring:io_uring_complete).
    Fetched,
    /// A command is submitted to a ring (io_uring:io_uring_submit_req).
    Committed,
    /// A thread waits for completions of a ring (io_uring:io_uring_cqring_wait).
    RingWait,
    /// A callback's entry, for the name that it is given: makes no event but `Side::Name`.
    Name,
    /// The kernel makes a request that has a name: makes no event but `Side::Asked`.
    Asked,
    /// The kernel makes another request: about an inode.
    About,
    /// The daemon gets a request to read or to write.
    Sized,
    /// The kernel gets the answer to a request that has a name, with an inode.
    Answered,
    /// The kernel forgets an inode.
    Forgotten,
    SysEnter,
    SysExit,
    Switch,
    Waking,
    /// A TCP connection is requested (sock:inet_sock_set_state, to TCP_SYN_SENT).
    Connect,
    /// A sample's call chain: in its own event after those of its other meanings, but for switches and wakings, whose
    /// events have it.
    Stack,
    /// A sample of what runs (cpu-clock), used for that alone.
    Sample,
    /// How long a request or an answer is: another reading of the event that begins or ends it.
    Length,
}

impl Role {
    /// As Python calls it.
    pub fn of_name(name: &str) -> Option<Role> {
        Some(match name {
            "entry" => Role::Entry,
            "return" => Role::Return,
            "graph_entry" => Role::GraphEntry,
            "graph_exit" => Role::GraphExit,
            "begin" => Role::Begin,
            "sent" => Role::Sent,
            "end" => Role::End,
            "reply" => Role::Reply,
            "inode" => Role::Inode,
            "handle" => Role::Handle,
            "listed" => Role::Listed,
            "taken" => Role::Taken,
            "name" => Role::Name,
            "asked" => Role::Asked,
            "about" => Role::About,
            "sized" => Role::Sized,
            "answered" => Role::Answered,
            "forgotten" => Role::Forgotten,
            "sys_enter" => Role::SysEnter,
            "sys_exit" => Role::SysExit,
            "switch" => Role::Switch,
            "waking" => Role::Waking,
            "fetched" => Role::Fetched,
            "committed" => Role::Committed,
            "ring_wait" => Role::RingWait,
            "connect" => Role::Connect,
            "stack" => Role::Stack,
            "sample" => Role::Sample,
            "length" => Role::Length,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    Syscall,
    Kernel,
    Request,
    Daemon,
}

/// One line of the catalogue: an event of the recording and its meaning.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// "system:name", as in the recording's own event list; "system:name#3": the probe with that
    /// number, of an event shared by several.
    pub event: String,
    pub layer: Layer,
    /// The function's name as users know it, e.g. "cvmfs_lookup"; empty for requests and system calls.
    pub function: String,
    /// The FUSE operation in lower case, e.g. "lookup"; empty if unknown.
    pub operation: String,
    pub role: Role,
}

impl Meaning {
    /// Its event, and the number of its probe there.
    pub(crate) fn of_bundle(&self) -> (&str, Option<u64>) {
        let parts = self.event.rsplit_once('#');
        let numbered = parts.and_then(|(event, number)| Some((event, number.parse().ok()?)));
        numbered.map_or((&self.event, None), |(event, number)| (event, Some(number)))
    }
}

/// A field that the event does not have.
pub const ABSENT: u64 = u64::MAX;

/// One event. `kind` indexes the catalogue. `v` by role, ABSENT where the event lacks the field:
///
/// | role | v\[0\] | v\[1\] | v\[2\] | v\[3\] |
/// | --- | --- | --- | --- | --- |
/// | Entry, Return of the kernel | unique | | | req |
/// | Entry of the daemon, Sized | unique | ino | size | off |
/// | Return of the daemon | unique | | | |
/// | Taken | unique | | | |
/// | Reply, Inode | unique | ino (0: there is no such file) | | |
/// | Handle | unique | fh | | |
/// | About | unique | ino | | connection |
/// | Answered | unique | ino (0: there is no such file) | | connection |
/// | Forgotten | | ino | | connection |
/// | GraphEntry | func | depth | | |
/// | GraphExit | func | depth | calltime | rettime |
/// | Begin | unique | connection | opcode | req |
/// | Sent | unique | connection | write (0: it is the answer that is copied) | req |
/// | End | unique | connection | error (32 bits) | req |
/// | SysEnter | id | first argument | third argument | |
/// | SysExit | id | ret | | |
/// | Switch | prev_pid | prev_state | next_pid | stack |
/// | Waking | pid | common_flags (8, 16: in an interrupt) | | stack |
/// | Fetched | ring | user_data | res (32 bits) | |
/// | Committed | ring | user_data | opcode | sq_thread |
/// | RingWait | ring | | | |
/// | Connect | port | address, its first 8 bytes | and its last 8 | |
/// | Length | unique | connection | len | req |
/// | Stack | address (of the sample) | period | | stack |
///
/// `stack` counts the stacks of all batches so far; ABSENT: the sample has none, or no row with Role::Stack asks for it.
///
/// `req` is the address of the kernel's struct fuse_req: a request's from its begin to its end, then another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ev {
    /// ns on the recording's clock.
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
    /// Code in an address space, only if stacks are requested.
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
    /// A callback is given a name: of a file in the directory `ino`, or of an attribute of `ino`. Only if the
    /// catalogue requests it (Role::Name).
    Name {
        time: u64,
        pid: i32,
        tid: i32,
        unique: u64,
        ino: u64,
        /// Of an open file.
        handle: u64,
        name: Arc<str>,
    },
    /// The kernel makes a request: about `name` in the directory `ino`, or about an attribute `name` of `ino`. Only if
    /// the catalogue requests it (Role::Asked).
    Asked {
        time: u64,
        connection: u64,
        unique: u64,
        opcode: u64,
        ino: u64,
        name: Arc<str>,
    },
    /// A request for a directory's list is answered with this, among others. Only if the catalogue requests it
    /// (Role::Listed).
    Listed {
        time: u64,
        pid: i32,
        tid: i32,
        unique: u64,
        ino: u64,
        name: Arc<str>,
    },
    /// PERF_RECORD_SWITCH: `out` false = the task runs again.
    Switch {
        time: u64,
        pid: i32,
        tid: i32,
        out: bool,
        preempt: bool,
    },
    /// PERF_RECORD_LOST: events before this time are missing, so an open call may not be the one that returns next.
    Lost {
        time: u64,
    },
}

/// PERF_RECORD_MMAP and MMAP2: a part of a file in an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    pub time: u64,
    /// -1: the kernel's own.
    pub pid: i32,
    pub start: u64,
    pub len: u64,
    /// In the file.
    pub offset: u64,
    pub path: String,
    /// Empty if the record has none.
    pub build_id: Vec<u8>,
}

/// A call chain as perf records it, innermost first: addresses, and marks of their context (PERF_CONTEXT_*).
pub type Chain = Arc<[u64]>;

/// Everything up to some time, sorted by time; later batches hold only later events.
#[derive(Default, Debug)]
pub struct Batch {
    pub events: Vec<Ev>,
    pub side: Vec<Side>,
    /// New stacks, numbered on from those of the batches before.
    pub stacks: Vec<Chain>,
}

/// What `Batch::in_order` comes to.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    Event(&'a Ev),
    Side(&'a Side),
}

impl Batch {
    /// Events and side-band records merged by time; at the same time a thread's name and birth come before its events,
    /// its end and losses after.
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
    /// The time of the earliest event that a record comes before; of none there is no such event.
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

/// `value`, with 0 for ABSENT.
pub(crate) fn or_zero(value: u64) -> u64 {
    if value == ABSENT {
        0
    } else {
        value
    }
}
