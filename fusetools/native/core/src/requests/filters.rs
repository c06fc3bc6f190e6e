//! Selected part of a recording.

use crate::cost::Cost;
use crate::error::Error;
use crate::reader::Reader;

/// Selection of calls and requests; an empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Calling processes. For a daemon's call: the caller of its request.
    pub pids: Vec<i32>,
    /// Names of calling threads, used like `pids`.
    pub comms: Vec<String>,
    /// Connections of mounts.
    pub connections: Vec<u64>,
    /// Processes whose calls are selected in the daemon layer.
    pub daemon_pids: Vec<i32>,
    /// Connection that each daemon process serves, where known: `unique` numbers repeat between connections.
    pub daemons: Vec<(i32, u64)>,
    /// Callers' descriptors on mounts when the recording began: process, descriptor, connection.
    pub opened: Vec<(i32, u64, u64)>,
    /// Range of the starts of calls and requests: from..to, ns after the recording's first event.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// Kernel functions for function_graph: start, name, and operation if the name implies it.
    pub functions: Vec<(u64, String, String)>,
    /// Group kernel functions by the operation of the requests made inside a call, else by that of their name. A call
    /// with requests of several operations counts for each.
    pub by_operation: bool,
    /// Add a series `READ_TO_REPLY` to the daemon layer for each operation without a callback in the recording. It runs
    /// from the daemon's read of a request to its reply.
    pub windows: bool,
    /// The recording is the end of a longer one. A return that is a thread's first event ends a call from before it,
    /// and is not lost.
    pub begun_before: bool,
    /// Cost of recording, if measured.
    pub cost: Option<Cost>,
    /// Exclude the cost from durations.
    pub corrected: bool,
}

/// Name used for operations without callbacks, in place of a callback's.
pub const READ_TO_REPLY: &str = "read to reply";

impl Filters {
    /// Return the time of the recording's first event; 0 if no filter needs it, which saves a pass.
    pub(crate) fn first(&self, reader: &Reader) -> Result<u64, Error> {
        match (self.from, self.to) {
            (None, None) => Ok(0),
            _ => Ok(reader.scan(&[], &mut |_| {})?.first),
        }
    }

    /// Return the cost to subtract from durations.
    pub(crate) fn less(&self) -> Option<Cost> {
        self.cost.filter(|_| self.corrected)
    }

    /// Return whether all connections of daemons are selected.
    pub(crate) fn selects_all_mounts(&self) -> bool {
        let selected = |connection| self.connections.contains(connection);
        self.connections.is_empty() || self.daemons.iter().all(|(_, own)| selected(own))
    }

    /// Return `from` and `to` on the recording's clock.
    pub fn window(&self, first: u64) -> (u64, u64) {
        (
            self.from.map_or(0, |from| first.saturating_add(from)),
            self.to.map_or(u64::MAX, |to| first.saturating_add(to)),
        )
    }
}
