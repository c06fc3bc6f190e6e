//! Answers: series of calls, and single calls.

use serde::Serialize;

use super::*;

/// Requested results beside the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    Columns,
    /// The kernel's calls as a call tree.
    Tree,
    /// The tree, and each single call.
    Calls,
}

/// Calls of one function, or requests of one operation.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub layer: Layer,
    /// Function, request's constant (`FUSE_LOOKUP`) or system call.
    pub function: String,
    pub operation: String,
    /// Number of entries seen, or of requests begun.
    pub entries: u64,
    /// Number of entries whose return was not seen (or may belong to another call), and of returns whose entry was
    /// not seen.
    pub unmatched: u64,
    /// Durations of matched calls, and of `unanswered` ones.
    #[serde(flatten)]
    pub hist: Hist,
    /// Number of calls open at the end of the recording or of their thread, and of unanswered requests. They count
    /// until then, so their durations are lower bounds.
    pub unanswered: u64,
    /// Shortest duration of those, ns.
    #[serde(rename = "least_ns")]
    pub least: Option<u64>,
    /// For a kernel function: `unmatched` of all operations, each call once.
    pub lost: u64,
    /// For callbacks, if any replied: durations until the reply, and after it.
    pub until_reply: Option<Hist>,
    pub after_reply: Option<Hist>,
    /// Number of matched calls that no other call of the kernel layer encloses.
    pub outermost: u64,
    /// Time in ns of all matched calls, less the calls inside them; only if all functions are recorded
    /// (function_graph).
    #[serde(rename = "self_time_ns")]
    pub own: Option<u128>,
    /// Address of the function, if recorded by function_graph.
    pub address: Option<u64>,
}

/// Matched call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub layer: Layer,
    /// Index into `Columns::functions`.
    pub function: u32,
    pub start: u64,
    pub duration: u64,
    pub pid: i32,
    pub tid: i32,
    /// 0 if unknown.
    pub unique: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub functions: Vec<String>,
    /// Sorted by start.
    pub calls: Vec<Call>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    /// Series with anything in them, by layer, function and operation.
    pub series: Vec<Series>,
    pub requests: RequestCounts,
    /// Processes that made requests, and those that made these processes.
    pub callers: Vec<i32>,
    pub columns: Option<Columns>,
    pub tree: Option<Tree>,
}
