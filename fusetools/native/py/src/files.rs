//! Files that callers opened or read.

use std::path::PathBuf;

use fusetools_core::answers::files::Files;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::requests::Question;
use crate::told::Told;
use crate::Row;

#[derive(Serialize)]
struct Answer {
    /// (connection, path, ns waited)
    files: Vec<(u64, String, u64)>,
    /// Number of further files, whose whole path is unknown.
    unnamed: usize,
}

#[pyfunction]
pub fn files<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let mut files = Files::default();
    let (info, counts, _) = question.tell(py, &mut files)?;
    let (files, unnamed) = files.finish();
    let files = files
        .into_iter()
        .map(|file| (file.connection, file.path, file.waited))
        .collect();
    Told::new(&info, counts, Answer { files, unnamed }).python(py)
}
