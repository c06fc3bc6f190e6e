//! Stacks for flame graphs.

use std::path::PathBuf;

use fusetools_core::answers::flame::{flame as stacks_of, Amount, Flame, Graph, Selection, Who};
use fusetools_core::answers::offcpu::STATES;
use fusetools_core::programs::stacks::Named;
use fusetools_core::Reader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::requests::operations_of;
use crate::{counts_dict, filters_of, meaning, read_error, scan_dict, Row};

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

fn flame_dict<'py>(dict: &Bound<'py, PyDict>, flame: Flame) -> PyResult<()> {
    let stacks = PyDict::new(dict.py());
    for (stack, weight) in flame.stacks {
        stacks.set_item(stack, weight)?;
    }
    dict.set_item("stacks", stacks)?;
    let pair = |amount: Amount| (amount.count, amount.ns);
    dict.set_item("shown", pair(flame.shown))?;
    dict.set_item("stackless", flame.stackless)?;
    dict.set_item("cut", flame.cut)?;
    dict.set_item("cut_daemons", flame.cut_daemons)?;
    dict.set_item("cut_copied", flame.cut_copied)?;
    dict.set_item("cut_unknown", flame.cut_unknown)?;
    dict.set_item("idle", pair(flame.idle))?;
    dict.set_item("own", pair(flame.own))?;
    dict.set_item("outside", pair(flame.outside))?;
    dict.set_item("others", pair(flame.others))?;
    dict.set_item("unfinished", flame.unfinished)?;
    let states = PyDict::new(dict.py());
    for ((_, name), ns) in STATES.iter().zip(flame.states) {
        states.set_item(name, ns)?;
    }
    dict.set_item("states", states)?;
    dict.set_item("daemons", flame.daemons)?;
    dict.set_item("shared", flame.shared)?;
    dict.set_item("requests", counts_dict(dict.py(), flame.requests)?)?;
    dict.set_item("wakers", flame.wakers)?;
    dict.set_item("wakers_stackless", flame.wakers_stackless)?;
    dict.set_item("frames", flame.frames)?;
    let named = |named: Named| (named.known, named.addresses, named.nameless);
    dict.set_item("kernel", named(flame.kernel))?;
    dict.set_item("user", named(flame.user))?;
    dict.set_item("without_symbols", flame.without_symbols)?;
    dict.set_item("stripped", flame.stripped)?;
    dict.set_item("nameless_ids", flame.nameless_ids)?;
    dict.set_item("generated", flame.generated)?;
    dict.set_item("copied", flame.copied)?;
    dict.set_item("full", flame.full)
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
    let dict = scan_dict(py, info)?;
    flame_dict(&dict, flame)?;
    Ok(dict)
}
