//! Live requests, from what perf writes to a pipe.

use std::collections::HashMap;

use fusetools_core::answers::now::{self, By, Sort, View};
use fusetools_core::events::Meaning;
use fusetools_core::operations::Arch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::named::NamedRequest;
use crate::requests::wanted_of;
use crate::told::python;
use crate::{filters_of, meaning, CoreError, Row, Text};

#[pyclass]
pub struct Now {
    inner: now::Now,
    mounts: HashMap<u64, String>,
    arch: Arch,
}

#[pymethods]
impl Now {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        catalogue: Vec<Row>,
        filters: Bound<'_, PyDict>,
        servers: Vec<i32>,
        mounts: HashMap<u64, Text>,
        arch: &str,
        sums: bool,
        wanted: Option<(Vec<String>, u64, Option<Text>)>,
    ) -> PyResult<Now> {
        let mounts = Text::all(mounts);
        let rows = catalogue.into_iter().map(meaning);
        let catalogue: Vec<Meaning> = rows.collect::<PyResult<_>>()?;
        let wanted = wanted
            .map(|wanted| wanted_of(wanted, mounts.clone()))
            .transpose()?;
        let filters = filters_of(&filters)?;
        Ok(Now {
            inner: now::Now::new(catalogue, filters, servers, sums, wanted),
            mounts,
            arch: Arch::new(Some(arch)),
        })
    }

    fn set_errors(&mut self, errors: Vec<i32>) {
        self.inner.set_errors(errors);
    }

    fn feed(&mut self, py: Python<'_>, bytes: Bound<'_, PyBytes>) -> PyResult<()> {
        let inner = &mut self.inner;
        let bytes = bytes.as_bytes();
        let fed = py.detach(|| inner.feed(bytes));
        fed.map_err(|error| CoreError::new_err(("cannot read what perf writes", error.to_string())))
    }

    fn complete(&mut self, py: Python<'_>, upto: u64) {
        let inner = &mut self.inner;
        py.detach(|| inner.complete(upto));
    }

    fn by_rounds(&self) -> u64 {
        self.inner.by_rounds()
    }

    fn start(&mut self, py: Python<'_>, upto: u64) {
        let inner = &mut self.inner;
        py.detach(|| inner.start(upto));
    }

    fn forget(&mut self, connections: Vec<u64>, before: u64) {
        self.inner.forget(&connections, before);
    }

    fn hold(&mut self) {
        self.inner.hold();
    }

    fn held<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.inner.held().map(|bytes| PyBytes::new(py, &bytes))
    }

    fn set_paths(&mut self, with: bool) {
        self.inner.set_paths(with);
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }

    fn sums(&mut self) -> [u64; 4] {
        self.inner.sums()
    }

    fn callers(&mut self) -> Vec<i32> {
        self.inner.callers()
    }

    fn lines(&mut self) -> Vec<NamedRequest> {
        let lines = self.inner.lines();
        let lines = lines.iter();
        lines
            .map(|request| NamedRequest::new(request, self.arch, None))
            .collect()
    }

    fn under_way(&self, least: u64, most: usize) -> (Vec<(NamedRequest, bool)>, usize) {
        let (rows, all) = self.inner.under_way(least, most);
        let rows = rows.iter();
        let rows =
            rows.map(|(request, unsure)| (NamedRequest::new(request, self.arch, None), *unsure));
        (rows.collect(), all)
    }

    fn measure<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inner = &mut self.inner;
        let metrics = py.detach(|| inner.measure());
        python(py, &metrics)
    }

    fn take<'py>(
        &mut self,
        py: Python<'py>,
        by: &str,
        sort: &str,
        most: usize,
        contains: Text,
        labels: HashMap<i32, Text>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bad = || PyValueError::new_err(format!("no such order: {by}, {sort}"));
        let by = By::of_name(by).ok_or_else(bad)?;
        let sort = Sort::of_name(sort).ok_or_else(bad)?;
        let labels = labels.into_iter().map(|(pid, text)| (pid, text.0));
        let labels = labels.collect();
        let mounts = self.mounts.iter().map(|(n, path)| (*n, path.clone()));
        let mounts = mounts.collect();
        let inner = &mut self.inner;
        let interval = py.detach(|| {
            inner.take(&View {
                by,
                sort,
                most,
                contains: &contains.0,
                labels: &labels,
                mounts: &mounts,
            })
        });
        python(py, &interval)
    }
}
