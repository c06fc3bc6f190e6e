//! Replays of requests with other limits.

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
    let (info, counts, _) = question.tell(py, &mut requests)?;
    let cpus = question.cpus();
    let mounts = py.detach(|| requests.finish(cpus.unwrap_or(0)));
    Told::new(&info, counts, Mounts { mounts, cpus }).python(py)
}
