//! Whole stories of requests as columns.

use std::path::PathBuf;

use fusetools_core::events::{Meaning, ABSENT};
use fusetools_core::stitch::{self, Story, FATES, MARK_NAMES};
use fusetools_core::Reader;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{column, filters_of, meaning, read_error, scan_dict, Row};

/// Return the value; 0 if unknown.
fn known(value: u64) -> u64 {
    if value == ABSENT {
        0
    } else {
        value
    }
}

/// Return the duration's bytes; -1 if unknown.
fn duration(value: u64) -> [u8; 8] {
    (value as i64).to_le_bytes()
}

#[pyfunction]
pub fn stories<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let filters = filters_of(&filters)?;
    let mut rows: Vec<Story> = Vec::new();
    let read = py.detach(|| {
        let reader = Reader::open(&path)?;
        let summary = stitch::stories(&reader, &catalogue, filters, &mut |story, _| {
            rows.push(story.clone());
        });
        rows.sort_by_key(Story::start);
        summary
    });
    let summary = read.map_err(|error| read_error(&path, error))?;
    let columns = PyDict::new(py);
    macro_rules! add {
        ($($name:literal: $field:expr),+ $(,)?) => {
            $(columns.set_item($name, column(py, &rows, $field)?)?;)+
        };
    }
    add!(
        "opcode": |s| (known(s.opcode) as u32).to_le_bytes(),
        "fate": |s| [s.fate as u8],
        "waits": |s| [u8::from(s.waits)],
        "nth": |s| s.nth.to_le_bytes(),
        "connection": |s| known(s.connection).to_le_bytes(),
        "unique": |s| known(s.unique).to_le_bytes(),
        "size_bytes": |s| known(s.size).to_le_bytes(),
        "ring": |s| [u8::from(s.ring)],
        "nodeid": |s| known(s.nodeid).to_le_bytes(),
        "request_bytes": |s| known(s.request_len).to_le_bytes(),
        "reply_bytes": |s| known(s.reply_len).to_le_bytes(),
        "error": |s| s.error.to_le_bytes(),
        "pid": |s| s.pid.to_le_bytes(),
        "tid": |s| s.tid.to_le_bytes(),
        "comm": |s| s.comm.to_le_bytes(),
        "daemon_pid": |s| s.daemon_pid.to_le_bytes(),
        "daemon_tid": |s| s.daemon_tid.to_le_bytes(),
        "syscall": |s| (s.syscall as i64 as i32).to_le_bytes(),
        "no_thread_ns": |s| duration(s.no_thread),
        "no_cpu_ns": |s| duration(s.no_cpu),
        "asleep_ns": |s| duration(s.asleep),
        "blocked_ns": |s| duration(s.blocked),
        "runnable_ns": |s| duration(s.runnable),
        "elsewhere_ns": |s| duration(s.elsewhere),
        "until_ns": |s| known(s.until).to_le_bytes(),
    );
    for (mark, name) in MARK_NAMES.iter().enumerate() {
        let times = column(py, &rows, |s: &Story| known(s.marks[mark]).to_le_bytes())?;
        columns.set_item(format!("{name}_ns"), times)?;
    }
    let operations: Vec<&str> = rows.iter().map(|s| s.operation.name()).collect();
    let mut names: Vec<&str> = operations.clone();
    names.sort_unstable();
    names.dedup();
    let codes: Vec<u8> = operations
        .iter()
        .map(|name| names.binary_search(name).unwrap_or(0) as u8)
        .collect();
    columns.set_item("operation", column(py, &codes, |code| [*code])?)?;
    let dict = scan_dict(py, summary.info)?;
    dict.set_item("stories", columns)?;
    dict.set_item("operations", names)?;
    dict.set_item("comms", summary.comms)?;
    dict.set_item("fates", FATES.map(|(_, name)| name))?;
    dict.set_item("marks", MARK_NAMES)?;
    Ok(dict)
}
