//! Replays of requests with other limits.

use std::path::PathBuf;

use fusetools_core::answers::whatif::{Change, Replayed, Requests};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::named::known;
use crate::requests::Question;
use crate::Row;

/// Result of a replay: ns that callers waited, and (operation, requests, ns) of each operation.
#[pyclass(frozen, get_all)]
#[derive(Clone)]
pub struct Replay {
    waited: u64,
    operations: Vec<(&'static str, u64, u64)>,
}

/// Replays of one mount's requests, as in `fusetools_core::whatif::WhatIf`.
#[pyclass(frozen, get_all)]
pub struct MountReplays {
    connection: Option<u64>,
    requests: u64,
    left_out: u64,
    handed: u64,
    ring: u64,
    threads: usize,
    callers: usize,
    saved: u64,
    recorded: Replay,
    same: [Replay; 2],
    changed: [Replay; 2],
}

fn replay(result: Replayed) -> Replay {
    let operations = result.operations.into_iter();
    Replay {
        waited: result.waited,
        operations: operations
            .map(|(operation, (requests, ns))| (operation.name(), requests, ns))
            .collect(),
    }
}

/// `change`: threads (0: as recorded), and timeouts in ns of names, attributes and absent names (0: as recorded).
#[pyfunction]
pub fn whatif<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    change: (usize, u64, u64, u64),
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let (threads, entry, attributes, negative) = change;
    let mut requests = Requests::new(Change {
        threads,
        entry,
        attributes,
        negative,
    });
    let dict = question.tell(py, &mut requests)?;
    let cpus = question.cpus();
    let mounts = py.detach(|| requests.finish(cpus.unwrap_or(0)));
    let mounts = mounts.into_iter().map(|of| MountReplays {
        connection: known(of.connection),
        requests: of.requests,
        left_out: of.left_out,
        handed: of.handed,
        ring: of.ring,
        threads: of.threads,
        callers: of.callers,
        saved: of.saved,
        recorded: replay(of.recorded),
        same: of.same.map(replay),
        changed: of.changed.map(replay),
    });
    dict.set_item("mounts", mounts.collect::<Vec<_>>())?;
    dict.set_item("cpus", cpus)?;
    Ok(dict)
}
