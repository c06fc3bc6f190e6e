//! Tables of requests, calls, waits and stacks: the Arrow PyCapsule interface.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use fusetools_core::answers::tables::{self, Question};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::flame::selection_of;
use crate::{filters_of, meaning, read_error, Row, Text};

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

#[pyclass(frozen)]
pub struct Table {
    path: PathBuf,
    table: tables::Table,
}

#[pymethods]
impl Table {
    /// Begin a pass over the recording.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer keep its own types.
        let _ = requested_schema;
        let stream = py.detach(|| self.table.stream());
        let stream = stream.map_err(|error| read_error(&self.path, error))?;
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&**self.table.schema());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    fn columns(&self) -> Vec<String> {
        let fields = self.table.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }
}

fn question(path: &Path, catalogue: Vec<Row>, filters: &Bound<'_, PyDict>) -> PyResult<Question> {
    Ok(Question {
        path: path.to_path_buf(),
        catalogue: catalogue
            .into_iter()
            .map(meaning)
            .collect::<PyResult<_>>()?,
        filters: filters_of(filters)?,
    })
}

#[pyfunction]
pub fn requests(
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'_, PyDict>,
    mounts: HashMap<u64, Text>,
) -> PyResult<Table> {
    let question = question(&path, catalogue, &filters)?;
    let table = tables::requests(question, Text::all(mounts));
    Ok(Table { path, table })
}

#[pyfunction]
pub fn calls(path: PathBuf, catalogue: Vec<Row>, filters: Bound<'_, PyDict>) -> PyResult<Table> {
    let question = question(&path, catalogue, &filters)?;
    let table = tables::calls(question);
    Ok(Table { path, table })
}

#[pyfunction]
pub fn waits(path: PathBuf, catalogue: Vec<Row>, selection: Bound<'_, PyDict>) -> PyResult<Table> {
    let catalogue = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let table = tables::waits(path.clone(), catalogue, selection_of(&selection)?);
    Ok(Table { path, table })
}

#[pyfunction]
pub fn stacks(weight: &str, stacks: Vec<(String, u64)>) -> Table {
    Table {
        path: PathBuf::new(),
        table: tables::stacks(weight, stacks),
    }
}
