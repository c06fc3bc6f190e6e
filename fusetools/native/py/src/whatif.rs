//! Replays of requests with other limits.

use std::collections::HashMap;
use std::path::PathBuf;

use fusetools_core::answers::whatif::{Change, Requests, WhatIf};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::requests::Question;
use crate::told::Told;
use crate::Row;

#[derive(Serialize)]
struct Mounts {
    mounts: Vec<WhatIf>,
    cpus: Option<usize>,
}

/// `change`: threads, timeouts in ns of names, attributes and absent names, and asynchronous requests in flight; 0: as
/// recorded. `limits`: the recorded number of the latter, by connection.
#[pyfunction]
pub fn whatif<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    change: (usize, u64, u64, u64, usize),
    limits: HashMap<u64, usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let (threads, entry, attributes, negative, background) = change;
    let change = Change {
        threads,
        entry,
        attributes,
        negative,
        background,
    };
    let mut requests = Requests::new(change, limits.into_iter().collect());
    let (info, counts, _) = question.tell(py, &mut requests)?;
    let cpus = question.cpus();
    let mounts = py.detach(|| requests.finish(cpus.unwrap_or(0)));
    Told::new(&info, counts, Mounts { mounts, cpus }).python(py)
}
