//! Stacks for flame graphs.

use std::path::PathBuf;

use fusetools_core::flame::{on_cpu, Ask, Flame};
use fusetools_core::Reader;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{meaning, read_error, scan_dict, Row};

fn ask_of(dict: &Bound<'_, PyDict>) -> PyResult<Ask> {
    let mut ask = Ask::default();
    for (key, value) in dict {
        match key.extract::<String>()?.as_str() {
            "all" => ask.all = value.extract()?,
            "daemons" => ask.daemons = value.extract()?,
            "workload" => ask.workload = value.extract()?,
            "pids" => ask.pids = value.extract()?,
            "comms" => ask.comms = value.extract()?,
            "from_ns" => ask.from = value.extract()?,
            "to_ns" => ask.to = value.extract()?,
            "kallsyms" => ask.kallsyms = value.extract()?,
            other => return Err(PyValueError::new_err(format!("no such filter: {other}"))),
        }
    }
    Ok(ask)
}

fn flame_dict<'py>(dict: &Bound<'py, PyDict>, flame: Flame) -> PyResult<()> {
    let stacks = PyDict::new(dict.py());
    for (stack, weight) in flame.stacks {
        stacks.set_item(stack, weight)?;
    }
    dict.set_item("stacks", stacks)?;
    dict.set_item("samples", flame.samples)?;
    dict.set_item("others", flame.others)?;
    dict.set_item("stackless", flame.stackless)?;
    dict.set_item("frames", flame.frames)?;
    dict.set_item("kernel_addresses", flame.kernel_addresses)?;
    dict.set_item("nameless", flame.nameless)?;
    dict.set_item("without_symbols", flame.without_symbols)?;
    dict.set_item("full", flame.full)
}

#[pyfunction]
pub fn flame_on_cpu<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    ask: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<Vec<_>>>()?;
    let ask = ask_of(&ask)?;
    let (info, flame) = py
        .detach(|| on_cpu(&Reader::open(&path)?, &catalogue, &ask))
        .map_err(|error| read_error(&path, error))?;
    let dict = scan_dict(py, info)?;
    flame_dict(&dict, flame)?;
    Ok(dict)
}
