//! Stages of requests, added up.

use std::path::PathBuf;

use fusetools_core::answers::stages as core;
use fusetools_core::answers::stages::{By, Costs, MountCalls, OperationStages};
use fusetools_core::cost::Cost;
use fusetools_core::events::Meaning;
use fusetools_core::Reader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::told::Told;
use crate::{filters_of, meaning, read_error, Row};

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

#[derive(Serialize)]
struct Answer {
    groups: Vec<OperationStages>,
    calls: Vec<MountCalls>,
    event_cost: Option<u64>,
}

/// `pair`: cost of a callback's two uprobes in ns, to estimate the overhead if an event's cost was not measured.
#[pyfunction]
pub fn stages<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    by: &str,
    pair: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let filters = filters_of(&filters)?;
    let by = by_of(by)?;
    let measured = filters.cost.is_some();
    let (info, stages) = py
        .detach(|| {
            let reader = Reader::open(&path)?;
            core::stages(&reader, &catalogue, filters, by)
        })
        .map_err(|error| read_error(&path, error))?;
    let event = stages.event_cost.filter(|event| *event > 0);
    let costs = match (measured, event) {
        (true, _) => Costs::Measured,
        (false, Some(event)) => Costs::Estimated(Cost { event, pair }),
        (false, None) => Costs::Unknown,
    };
    let answer = Answer {
        groups: stages.operations(by, costs),
        calls: stages.calls(by),
        event_cost: stages.event_cost,
    };
    Told::new(&info, stages.requests, answer).python(py)
}
