//! The catalogue, as Python sees it.

use fusetools_core::catalogue::{self, Selection};
use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::operations::Pattern;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::Borrowed;
use regex::Regex;

/// Return the test of a name against a regular expression.
pub(crate) fn pattern(expression: &str) -> PyResult<Pattern> {
    let regex = Regex::new(expression);
    let regex = regex.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Box::new(move |text| regex.is_match(text)))
}

/// Row of the catalogue.
#[pyclass(frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Probe(Meaning);

#[pymethods]
impl Probe {
    #[new]
    fn new(
        event: String,
        layer: &str,
        function: String,
        operation: String,
        role: &str,
    ) -> PyResult<Probe> {
        Ok(Probe(Meaning {
            event,
            layer: layer_of(layer)?,
            function,
            operation,
            role: role_of(role)?,
        }))
    }

    #[getter]
    fn event(&self) -> &str {
        &self.0.event
    }

    #[getter]
    fn layer(&self) -> &'static str {
        self.0.layer.name()
    }

    #[getter]
    fn function(&self) -> &str {
        &self.0.function
    }

    #[getter]
    fn operation(&self) -> &str {
        &self.0.operation
    }

    #[getter]
    fn role(&self) -> &'static str {
        self.0.role.name()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Row that a question gets.
pub(crate) struct Row(pub(crate) Meaning);

impl FromPyObject<'_, '_> for Row {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Row> {
        Ok(Row(object.cast::<Probe>()?.get().0.clone()))
    }
}

pub(crate) fn meaning(row: Row) -> PyResult<Meaning> {
    Ok(row.0)
}

fn role_of(name: &str) -> PyResult<Role> {
    Role::of_name(name).ok_or_else(|| PyValueError::new_err(format!("no such role: {name}")))
}

fn layer_of(name: &str) -> PyResult<Layer> {
    Layer::of_name(name).ok_or_else(|| PyValueError::new_err(format!("no such layer: {name}")))
}

#[pyclass(frozen)]
pub struct Catalogue(catalogue::Catalogue);

#[pymethods]
impl Catalogue {
    #[new]
    #[pyo3(signature = (rows, events = Vec::new()))]
    fn new(rows: Vec<Row>, events: Vec<String>) -> PyResult<Catalogue> {
        let rows = rows.into_iter().map(meaning);
        let rows = rows.collect::<PyResult<_>>()?;
        Ok(Catalogue(catalogue::Catalogue::new(rows, events)))
    }

    #[getter]
    fn rows(&self) -> Vec<Probe> {
        self.0.rows.iter().cloned().map(Probe).collect()
    }

    fn inferred(&self, graphed: Vec<String>) -> Catalogue {
        Catalogue(self.0.inferred(&graphed))
    }

    fn requests(&self) -> Catalogue {
        Catalogue(self.0.requests())
    }

    fn named(&self) -> Catalogue {
        Catalogue(self.0.named())
    }

    fn kernel(&self) -> Catalogue {
        Catalogue(self.0.kernel())
    }

    fn timed(&self) -> Catalogue {
        Catalogue(self.0.timed())
    }

    fn plus(&self, other: &Catalogue) -> Catalogue {
        Catalogue(self.0.plus(&other.0.rows))
    }

    fn with_events(&self, role: &str, events: Vec<String>) -> PyResult<Catalogue> {
        Ok(Catalogue(self.0.with_events(role_of(role)?, &events)))
    }

    #[pyo3(signature = (patterns, layers, callers, graphed, *, by_operation = false, windows = false,
        parts = false, sent = false))]
    #[allow(clippy::too_many_arguments)]
    fn select(
        &self,
        patterns: Vec<String>,
        layers: Vec<String>,
        callers: bool,
        graphed: Vec<String>,
        by_operation: bool,
        windows: bool,
        parts: bool,
        sent: bool,
    ) -> PyResult<Catalogue> {
        let layers = layers.iter().map(|layer| layer_of(layer));
        let patterns = patterns.iter().map(|text| pattern(text));
        Ok(Catalogue(self.0.select(&Selection {
            patterns: patterns.collect::<PyResult<_>>()?,
            layers: layers.collect::<PyResult<_>>()?,
            callers,
            graphed,
            by_operation,
            windows,
            parts,
            sent,
        })))
    }
}

#[pyfunction]
pub fn operation_of(function: &str) -> &'static str {
    catalogue::operation_of(function)
}
