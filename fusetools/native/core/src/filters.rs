//! The selected part of a recording.

use crate::cost::Cost;
use crate::error::Error;
use crate::reader::Reader;

/// The selection; an empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Calling processes: a request's caller; for a daemon's call, the caller of its request.
    pub pids: Vec<i32>,
    /// The same by the calling thread's name.
    pub comms: Vec<String>,
    /// Mounts.
    pub connections: Vec<u64>,
    /// Only these processes' calls in the daemon layer.
    pub daemon_pids: Vec<i32>,
    /// The connection that a daemon process serves, where known: `unique` numbers repeat between connections.
    pub daemons: Vec<(i32, u64)>,
    /// Calls and requests that start in from..to, ns after the recording's first event.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// The kernel's functions for function_graph, by start: name, and operation if the name implies it.
    pub functions: Vec<(u64, String, String)>,
    /// Group kernel functions by the operation of the requests made inside a call, else by that of their name. A call
    /// with requests of several operations counts for each.
    pub by_operation: bool,
    /// A series `READ_TO_REPLY` of the daemon layer for each operation: from the daemon's read of a request to its
    /// reply, for requests without a callback.
    pub windows: bool,
    /// The recording is the end of a longer one: a return that is a thread's first event began before it and is not
    /// lost.
    pub begun_before: bool,
    /// The cost of recording, if measured.
    pub cost: Option<Cost>,
    /// Durations exclude it.
    pub corrected: bool,
}

/// Instead of a callback's name, for daemons without callbacks.
pub const READ_TO_REPLY: &str = "read to reply";

impl Filters {
    /// The time of the recording's first event; 0 if no filter needs it, which saves a pass.
    pub(crate) fn first(&self, reader: &Reader) -> Result<u64, Error> {
        match (self.from, self.to) {
            (None, None) => Ok(0),
            _ => Ok(reader.scan(&[], &mut |_| {})?.first),
        }
    }

    /// The cost to subtract from durations.
    pub(crate) fn less(&self) -> Option<Cost> {
        self.cost.filter(|_| self.corrected)
    }

    /// From and to on the recording's clock.
    pub(crate) fn window(&self, first: u64) -> (u64, u64) {
        (
            self.from.map_or(0, |from| first.saturating_add(from)),
            self.to.map_or(u64::MAX, |to| first.saturating_add(to)),
        )
    }
}
