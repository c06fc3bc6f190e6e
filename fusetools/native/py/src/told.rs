//! Answers of the core as Python objects: a dict for each struct, a tuple for each sequence.

use fusetools_core::requests::stitch::RequestCounts;
use fusetools_core::ScanInfo;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pythonize::{pythonize_custom, PythonizeTypes, PythonizeUnnamedMappingAdapter};
use serde::{Serialize, Serializer};

struct Types;

impl PythonizeTypes for Types {
    type Map = PyDict;
    type NamedMap = PythonizeUnnamedMappingAdapter<PyDict>;
    type List = PyTuple;
}

/// Convert a value of the core.
pub(crate) fn python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize_custom::<Types, _>(py, value)?)
}

/// Answer to a question, with the facts that every pass over a recording reports.
#[derive(Serialize)]
pub(crate) struct Told<'a, Answer> {
    #[serde(flatten)]
    info: &'a ScanInfo,
    requests: RequestCounts,
    #[serde(flatten)]
    answer: Answer,
}

impl<'a, Answer: Serialize> Told<'a, Answer> {
    pub(crate) fn new(
        info: &'a ScanInfo,
        requests: RequestCounts,
        answer: Answer,
    ) -> Told<'a, Answer> {
        Told {
            info,
            requests,
            answer,
        }
    }

    pub(crate) fn python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(python(py, self)?.cast_into()?)
    }

    /// Add `rows`, which are objects.
    pub(crate) fn with_rows<'py, Row: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        rows: Vec<Row>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.python(py)?;
        dict.set_item("rows", rows)?;
        Ok(dict)
    }
}

/// A field of every row, little-endian, back to back: a bytes object.
pub(crate) struct Column(Vec<u8>);

impl Column {
    pub(crate) fn new<Row, const N: usize>(
        rows: &[Row],
        field: impl Fn(&Row) -> [u8; N],
    ) -> Column {
        Column(rows.iter().flat_map(field).collect())
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}
