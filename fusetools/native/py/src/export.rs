//! Export of all requests into a file.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use fusetools_core::answers::export::{Form, Rows};
use fusetools_core::answers::flame::{self, Waited};
use fusetools_core::answers::perfetto::{Session, Trace};
use fusetools_core::requests::stitch::asleep;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::flame::selection_of;
use crate::requests::Question;
use crate::told::Told;
use crate::{meaning, read_error, Row, Text};

#[derive(Serialize)]
struct Export {
    rows: u64,
}

/// Mount points by connection, and names of daemons by process.
type Named = (HashMap<u64, Text>, HashMap<i32, Text>);

/// `states`: of a trace, the catalogue's rows and the selection for `flame::states`.
#[pyfunction]
#[pyo3(signature = (path, catalogue, filters, output, form, named, states = None))]
#[allow(clippy::too_many_arguments)]
pub fn export<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    output: PathBuf,
    form: &str,
    named: Named,
    states: Option<(Vec<Row>, Bound<'py, PyDict>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let arch = question.reader.arch();
    let file = BufWriter::new(File::create(&output)?);
    let (info, counts, rows) = match form {
        "perfetto" => {
            let session = Session {
                mounts: Text::all(named.0),
                daemons: named
                    .1
                    .into_iter()
                    .map(|(pid, name)| (pid, name.0))
                    .collect(),
                served: question.filters().daemons.clone(),
            };
            let asleep = asleep(&question.reader);
            let mut trace = Trace::new(file, arch.as_deref(), session, asleep);
            let (info, counts, _) = question.tell(py, &mut trace)?;
            if let Some((rows, selection)) = states {
                let rows = rows
                    .into_iter()
                    .map(meaning)
                    .collect::<PyResult<Vec<_>>>()?;
                let selection = selection_of(&selection)?;
                let mut state = |state: &Waited<'_>| trace.state(state);
                let told =
                    py.detach(|| flame::states(&question.reader, &rows, &selection, &mut state));
                told.map_err(|error| read_error(&question.path, error))?;
            }
            (info, counts, trace.finish()?)
        }
        "csv" | "json" => {
            let form = if form == "csv" { Form::Csv } else { Form::Json };
            let mut rows = Rows::new(file, form, arch.as_deref());
            let (info, counts, _) = question.tell(py, &mut rows)?;
            (info, counts, rows.finish()?)
        }
        other => return Err(PyValueError::new_err(format!("no such form: {other}"))),
    };
    Told::new(&info, counts, Export { rows }).python(py)
}
