//! Latency over time.

use std::path::PathBuf;

use fusetools_core::answers::heat::Heat;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::requests::{operations_of, Question};
use crate::told::Told;
use crate::Row;

#[derive(Serialize)]
struct Answer {
    /// Length of a column in ns.
    column: u64,
    /// (from, to in ns, requests by column)
    rows: Vec<(u64, u64, Vec<u64>)>,
}

/// `operations`: regular expressions; none: all. `columns`: number of spans of time.
#[pyfunction]
pub fn heat<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    operations: Vec<String>,
    columns: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let (begin, end) = question.span(py)?;
    let mut heat = Heat::new(operations_of(operations)?, begin, end, columns);
    let (info, counts, _) = question.tell(py, &mut heat)?;
    let answer = Answer {
        column: heat.column,
        rows: heat.rows(),
    };
    Told::new(&info, counts, answer).python(py)
}
