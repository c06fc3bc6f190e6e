//! Figures of single requests and calls, for statistics and checks.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use fusetools_core::answers::analysis;
use fusetools_core::events::{Meaning, Role, ABSENT};
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::stitch::{self, Mark, Story};
use fusetools_core::Reader;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::told::{python, Column};
use crate::{filters_of, meaning, read_error, Row};

fn stories(
    py: Python<'_>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Filters,
    mut tell: impl FnMut(&Story) + Send,
) -> PyResult<()> {
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let read = py.detach(|| {
        let reader = Reader::open(&path)?;
        stitch::stories(&reader, &catalogue, filters, &mut |story, _| tell(story))
    });
    read.map_err(|error| read_error(&path, error))?;
    Ok(())
}

/// Return little-endian ns by operation, by begin: of requests, or of the daemon's callbacks.
#[pyfunction]
pub fn durations<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    daemon: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let mut found: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
    stories(py, path, catalogue, filters_of(&filters)?, |story| {
        let until = Some(story.until).filter(|until| *until != ABSENT);
        let (begin, end) = match daemon {
            true => (
                story.at(Mark::CallbackEnter),
                story.at(Mark::CallbackReturn),
            ),
            false => (story.at(Mark::Begin), until),
        };
        let Some((begin, end)) = begin.zip(end) else {
            return;
        };
        if let Some(ns) = end.checked_sub(begin) {
            found.entry(story.operation).or_default().push((begin, ns));
        }
    })?;
    let rows = found.into_iter().map(|(operation, mut rows)| {
        rows.sort_by_key(|(begin, _)| *begin);
        (operation, Column::new(&rows, |(_, ns)| ns.to_le_bytes()))
    });
    python(py, &rows.collect::<BTreeMap<_, _>>())
}

/// (requests, bytes) by operation.
type Lengths = HashMap<&'static str, (u64, u64)>;

/// Return (requests, bytes with headers) by operation, of requests without an error whose length is known: bytes of the
/// requests, and of the replies.
#[pyfunction]
pub fn lengths(
    py: Python<'_>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'_, PyDict>,
) -> PyResult<(Lengths, Lengths)> {
    let mut found: [Lengths; 2] = Default::default();
    stories(py, path, catalogue, filters_of(&filters)?, |story| {
        if story.error != 0 {
            return;
        }
        for (sums, bytes) in found.iter_mut().zip([story.request_len, story.reply_len]) {
            if bytes != ABSENT {
                let sum = sums.entry(story.operation.name()).or_default();
                *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
            }
        }
    })?;
    let [requests, replies] = found;
    Ok((requests, replies))
}

/// Return (thread, begin, ns) of each call of a function in the catalogue; of each request if nothing has a return.
#[pyfunction]
pub fn spans(
    py: Python<'_>,
    path: PathBuf,
    catalogue: Vec<Row>,
    function: String,
) -> PyResult<Vec<(i32, u64, u64)>> {
    let mut found = Vec::new();
    let ends = [Role::Return, Role::GraphExit];
    if !catalogue.iter().any(|row| ends.contains(&row.0.role)) {
        stories(py, path, catalogue, Filters::default(), |story| {
            if let Some(begin) = story.at(Mark::Begin) {
                let end = story.at(Mark::End).unwrap_or(begin);
                found.push((story.tid, begin, end.saturating_sub(begin)));
            }
        })?;
        return Ok(found);
    }
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let read = py.detach(|| {
        let reader = Reader::open(&path)?;
        analysis::calls(
            &reader,
            &catalogue,
            Filters::default(),
            &mut |call, name| {
                if name == function {
                    found.push((call.tid, call.start, call.duration));
                }
            },
        )
    });
    read.map_err(|error| read_error(&path, error))?;
    Ok(found)
}
