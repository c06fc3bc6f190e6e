//! Stacks for flame graphs.

use std::path::PathBuf;

use fusetools_core::answers::flame::{flame as stacks_of, Graph, Selection, Who};
use fusetools_core::answers::offcpu::STATES;
use fusetools_core::Reader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::requests::operations_of;
use crate::told::Told;
use crate::{filters_of, meaning, read_error, Row};

fn no_such(what: &str, name: &str) -> PyErr {
    PyValueError::new_err(format!("no such {what}: {name}"))
}

pub fn selection_of(dict: &Bound<'_, PyDict>) -> PyResult<Selection> {
    let mut selection = Selection::default();
    for (key, value) in dict {
        match key.extract::<String>()?.as_str() {
            "graph" => {
                selection.graph = match value.extract::<String>()?.as_str() {
                    "on-cpu" => Graph::OnCpu,
                    "off-cpu" => Graph::OffCpu,
                    "off-wake" => Graph::OffWake,
                    "requests" => Graph::Requests,
                    other => return Err(no_such("graph", other)),
                }
            }
            "all" => selection.all = value.extract()?,
            "states" => {
                for name in value.extract::<Vec<String>>()? {
                    let known = STATES.iter().find(|(_, known)| *known == name);
                    let known = known.ok_or_else(|| no_such("state", &name))?;
                    selection.states.push(known.0);
                }
            }
            "who" => {
                selection.who = match value.extract::<Option<String>>()?.as_deref() {
                    None => None,
                    Some("workload") => Some(Who::Workload),
                    Some("daemon") => Some(Who::Daemon),
                    Some(other) => return Err(no_such("side", other)),
                }
            }
            "workload" => selection.workload = value.extract()?,
            "operations" => selection.operations = operations_of(value.extract()?)?,
            "kallsyms" => selection.kallsyms = value.extract()?,
            "debug" => selection.debug = value.extract()?,
            "symfs" => selection.symfs = value.extract()?,
            "filters" => selection.filters = filters_of(value.cast::<PyDict>()?)?,
            other => return Err(no_such("question", other)),
        }
    }
    Ok(selection)
}

#[pyfunction]
pub fn flame<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    selection: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<Vec<_>>>()?;
    let selection = selection_of(&selection)?;
    let (info, flame) = py
        .detach(|| stacks_of(&Reader::open(&path)?, &catalogue, &selection))
        .map_err(|error| read_error(&path, error))?;
    Told::new(&info, flame.requests, flame).python(py)
}
