//! A workload's system calls before its mount is there, from what perf writes to a pipe.

use fusetools_core::answers::before;
use fusetools_core::events::Meaning;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::told::python;
use crate::{meaning, CoreError, Row};

#[pyclass]
pub struct Before {
    inner: before::Before,
}

#[pymethods]
impl Before {
    #[new]
    fn new(catalogue: Vec<Row>, pid: i32, arch: &str) -> PyResult<Before> {
        let rows = catalogue.into_iter().map(meaning);
        let catalogue: Vec<Meaning> = rows.collect::<PyResult<_>>()?;
        Ok(Before {
            inner: before::Before::new(catalogue, pid, Some(arch)),
        })
    }

    fn feed(&mut self, py: Python<'_>, bytes: Bound<'_, PyBytes>) -> PyResult<()> {
        let inner = &mut self.inner;
        let bytes = bytes.as_bytes();
        let fed = py.detach(|| inner.feed(bytes));
        fed.map_err(|error| CoreError::new_err(("cannot read what perf writes", error.to_string())))
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py, &self.inner.finish())
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }
}
