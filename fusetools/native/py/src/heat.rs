//! Latency over time.

use std::path::PathBuf;

use fusetools_core::answers::heat::Heat;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::requests::{operations_of, Question};
use crate::Row;

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
    let dict = question.tell(py, &mut heat)?;
    dict.set_item("column", heat.column)?;
    dict.set_item("rows", heat.rows())?;
    Ok(dict)
}
