//! Stages of requests, added up.

use std::path::PathBuf;

use fusetools_core::answers::stages as core;
use fusetools_core::answers::stages::{By, Calls, Durations, Group, Key, Stages, Tally};
use fusetools_core::events::{Meaning, ABSENT};
use fusetools_core::operations::Operation;
use fusetools_core::requests::stitch::{FATES, OUTSIDE};
use fusetools_core::Reader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{counts_dict, filters_of, meaning, read_error, scan_dict, Row};

fn by_of(name: &str) -> PyResult<By> {
    Ok(match name {
        "" => By::Operation,
        "comm" => By::Comm,
        "pid" => By::Pid,
        "daemon-thread" => By::DaemonThread,
        "mount" => By::Mount,
        "size" => By::Size,
        _ => return Err(PyValueError::new_err(format!("by what? {name}"))),
    })
}

/// Return a summary of durations. `all`: number of requests; those without a duration count as 0.
fn durations<'py>(
    py: Python<'py>,
    durations: &Durations,
    all: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let mut hist = durations.hist();
    let dict = PyDict::new(py);
    dict.set_item("count", hist.count())?;
    hist.add_zeros(all.saturating_sub(hist.count()));
    dict.set_item("sum", hist.sum())?;
    dict.set_item("p50", hist.percentile(500))?;
    dict.set_item("p99", hist.percentile(990))?;
    dict.set_item("max", hist.max())?;
    Ok(dict)
}

fn tally<'py>(
    py: Python<'py>,
    name: &str,
    tally: &Tally,
    all: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = durations(py, &tally.durations, all)?;
    let parts = tally.parts;
    dict.set_item("stage", name)?;
    dict.set_item("parts", (parts.requests, parts.ns, parts.rest))?;
    dict.set_item("unsplit", parts.unsplit)?;
    dict.set_item("events", tally.met.events)?;
    dict.set_item("uprobes", tally.met.quarters)?;
    dict.set_item("taken", tally.taken)?;
    Ok(dict)
}

fn group<'py>(
    py: Python<'py>,
    key: &Key,
    group: &Group,
    by: By,
    stages: &Stages,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("operation", key.operation.name())?;
    dict.set_item("waits", key.waits)?;
    dict.set_item("key", key_of(py, by, key.key, stages)?)?;
    let fates = PyDict::new(py);
    for (fate, name) in FATES {
        fates.set_item(name, group.fates[fate as usize])?;
    }
    dict.set_item("fates", fates)?;
    dict.set_item("errors", group.errors)?;
    dict.set_item("ring", group.ring)?;
    dict.set_item("handed", group.handed)?;
    let all = group.total.hist().count();
    dict.set_item("total", durations(py, &group.total, all)?)?;
    dict.set_item("least", group.least)?;
    let stages = group
        .stages
        .iter()
        .map(|(stage, times)| tally(py, &stage.name(), times, all));
    dict.set_item("stages", stages.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

fn key_of<'py>(py: Python<'py>, by: By, key: u64, stages: &Stages) -> PyResult<Py<PyAny>> {
    Ok(match (by, key) {
        (_, ABSENT) => py.None(),
        (By::Comm, comm) => {
            let name = stages.comms.get(comm as usize);
            name.into_pyobject(py)?.into_any().unbind()
        }
        (_, number) => number.into_pyobject(py)?.into_any().unbind(),
    })
}

fn calls<'py>(
    py: Python<'py>,
    (name, key): &(String, u64),
    of: &Calls,
    by: By,
    stages: &Stages,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let known = |op: &Operation| *op != Operation::UNKNOWN;
    let operations = Operation::of_bits(of.operations).map(Operation::name);
    let outside = PyDict::new(py);
    for (name, ns) in OUTSIDE.iter().zip(of.outside) {
        outside.set_item(name, ns)?;
    }
    dict.set_item("syscall", name)?;
    dict.set_item("key", key_of(py, by, *key, stages)?)?;
    dict.set_item("operation", of.operation.filter(known).map(Operation::name))?;
    dict.set_item("operations", operations.collect::<Vec<_>>())?;
    dict.set_item("requests", of.requests)?;
    dict.set_item("unreturned", of.unreturned)?;
    dict.set_item("least", of.least)?;
    let all = of.total.hist().count();
    dict.set_item("total", durations(py, &of.total, all)?)?;
    let cached = of.cached.hist().count();
    dict.set_item("cached", durations(py, &of.cached, cached)?)?;
    dict.set_item("outside", outside)?;
    Ok(dict)
}

#[pyfunction]
pub fn stages<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    by: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let filters = filters_of(&filters)?;
    let by = by_of(by)?;
    let (info, stages) = py
        .detach(|| {
            let reader = Reader::open(&path)?;
            core::stages(&reader, &catalogue, filters, by)
        })
        .map_err(|error| read_error(&path, error))?;
    let dict = scan_dict(py, info)?;
    let groups = stages
        .groups
        .iter()
        .map(|(key, of)| group(py, key, of, by, &stages));
    dict.set_item("groups", groups.collect::<PyResult<Vec<_>>>()?)?;
    let rows = stages.calls.iter();
    let rows = rows.map(|(key, of)| calls(py, key, of, by, &stages));
    dict.set_item("calls", rows.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("requests", counts_dict(py, stages.requests)?)?;
    dict.set_item("event_cost", stages.event_cost)?;
    Ok(dict)
}
