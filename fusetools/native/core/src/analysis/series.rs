//! What comes back: series of calls, single calls and requests as columns.

use super::*;

/// What is wanted beside the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    Columns,
    /// The kernel's calls as a tree of what called what.
    Tree,
    /// The same, and each single call.
    Calls,
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
    /// Durations of matched calls, and of `unanswered` ones.
    pub hist: Hist,
    /// Calls open at the end of the recording or of their thread, and requests without an answer. They count until
    /// then, so their durations are lower bounds.
    pub unanswered: u64,
    /// The shortest of those, ns.
    pub least: Option<u64>,
    /// Of a kernel function: `unmatched` of all operations, each call once.
    pub lost: u64,
    /// Of callbacks, if any replied: the durations until the reply, and after it.
    pub until_reply: Option<Hist>,
    pub after_reply: Option<Hist>,
    /// Matched calls that no other call of the kernel layer encloses.
    pub outermost: u64,
    /// ns of all matched calls, less the calls inside them; only if all functions are recorded (function_graph).
    pub own: Option<u128>,
    /// The function's, if recorded by function_graph.
    pub address: Option<u64>,
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
    /// 0 if the event lacks it; also for `unique` and `opcode`.
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
    /// The daemon has copied it; the caller runs on.
    pub sent: u64,
    pub woken: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub functions: Vec<String>,
    /// By start.
    pub calls: Vec<Call>,
    /// By begin.
    pub requests: Vec<RequestRow>,
    /// Start and end of open requests' callbacks, by `Story::id`. Of nested ones (a stub around the real one) those of
    /// the outermost, which returns last.
    pub(super) callbacks: FxHashMap<u32, (u64, u64)>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// Those with anything in them, by layer, function and operation.
    pub series: Vec<Series>,
    pub requests: RequestCounts,
    pub columns: Option<Columns>,
    pub tree: Option<Tree>,
}

impl Columns {
    pub(super) fn request(&mut self, story: &Story, callback: (u64, u64)) {
        let at = |mark| story.at(mark).unwrap_or(0);
        self.requests.push(RequestRow {
            connection: or_zero(story.connection),
            unique: or_zero(story.unique),
            opcode: or_zero(story.opcode) as u32,
            begin: at(Mark::Begin),
            end: at(Mark::End),
            error: story.error,
            pid: story.pid,
            tid: story.tid,
            callback_start: callback.0,
            callback_end: callback.1,
            sent: at(Mark::Sent),
            woken: at(Mark::Runs),
        });
    }
}
