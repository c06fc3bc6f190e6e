//! Caches of the kernel.

use std::path::PathBuf;

use fusetools_core::answers::cache::{Caches, Transfer};
use fusetools_core::answers::why::Again;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::requests::Question;
use crate::told::Told;
use crate::Row;

/// System calls, as in `fusetools_core::answers::cache::Calls`.
#[pyclass(frozen, get_all)]
pub struct CachedCalls {
    syscall: String,
    none: u64,
    one: u64,
    several: u64,
    requests: u64,
    seen: bool,
}

/// Questions of one operation, as in `fusetools_core::answers::why::Again`. Times in ns.
#[pyclass(frozen, get_all)]
pub struct Questions {
    operation: &'static str,
    negative: bool,
    requests: u64,
    ns: u64,
    keys: u64,
    again: u64,
    soonest: Option<u64>,
    p50: Option<u64>,
    p99: Option<u64>,
    saved: Vec<u64>,
}

/// Reads or writes, as in `fusetools_core::answers::cache::Transfer`.
#[pyclass(frozen, get_all)]
pub struct CachedTransfers {
    operation: &'static str,
    waits: bool,
    requests: u64,
    sized: u64,
    bytes: u64,
    largest: u64,
    placed: u64,
    in_order: u64,
    again: u64,
}

fn questions(row: Again) -> Questions {
    let after = row.after.hist();
    Questions {
        operation: row.operation.name(),
        negative: row.negative,
        requests: row.requests,
        ns: row.ns,
        keys: row.keys,
        again: after.count(),
        soonest: after.min(),
        p50: after.percentile(500),
        p99: after.percentile(990),
        saved: row.saved.to_vec(),
    }
}

#[pyfunction]
pub fn caches<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let arch = question.arch();
    let mut caches = Caches::new(arch);
    let (info, counts, _) = question.tell(py, &mut caches)?;
    let dict = Told::new(&info, counts, ()).python(py)?;
    let mut calls: Vec<_> = caches.calls.iter().collect();
    calls.sort_unstable_by_key(|(number, _)| **number);
    let calls = calls.into_iter().map(|(number, calls)| CachedCalls {
        syscall: arch.syscall(*number),
        none: calls.none,
        one: calls.one,
        several: calls.several,
        requests: calls.requests,
        seen: calls.seen,
    });
    dict.set_item("calls", calls.collect::<Vec<_>>())?;
    let asked = caches.asked().into_iter().map(questions);
    dict.set_item("asked", asked.collect::<Vec<_>>())?;
    let mut transfers: Vec<_> = caches.transfers.into_iter().collect();
    transfers.sort_unstable_by_key(|(key, _)| *key);
    let transfers = transfers.into_iter().map(|((operation, waits), of)| {
        let Transfer {
            requests,
            sized,
            bytes,
            largest,
            placed,
            in_order,
            again,
        } = of;
        CachedTransfers {
            operation: operation.name(),
            waits,
            requests,
            sized,
            bytes,
            largest,
            placed,
            in_order,
            again,
        }
    });
    dict.set_item("transfers", transfers.collect::<Vec<_>>())?;
    dict.set_item("unknown", caches.unknown)?;
    Ok(dict)
}
