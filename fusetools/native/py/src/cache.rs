//! Caches of the kernel.

use std::path::PathBuf;

use fusetools_core::answers::cache::Caches;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::requests::Question;
use crate::told::Told;
use crate::Row;

#[pyfunction]
pub fn caches<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let mut caches = Caches::new(question.arch());
    let (info, counts, _) = question.tell(py, &mut caches)?;
    Told::new(&info, counts, caches.finish()).python(py)
}
