//! Causes of callers' waiting.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fusetools_core::answers::why::{
    Again, Count, Found, Total, Transfers, What, Why, CLASSES, HOWS, WHATS,
};
use fusetools_core::events::Meaning;
use fusetools_core::operations::Operation;
use fusetools_core::requests::named::tell;
use fusetools_core::requests::peers;
use fusetools_core::requests::stitch::OUTSIDE;
use fusetools_core::Reader;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::named::known;
use crate::{counts_dict, filters_of, meaning, read_error, scan_dict, Row};

/// Maximum number of rows of each list.
const MOST: usize = 1000;

type Sums = (u64, u64, u64);

fn sums(total: &Total) -> Sums {
    (total.requests, total.ns, total.failed)
}

fn by_operation<'a>(
    totals: impl IntoIterator<Item = (&'a Operation, &'a Total)>,
) -> Vec<(&'static str, Sums)> {
    let mut rows: Vec<_> = totals.into_iter().collect();
    rows.sort_by_key(|(operation, total)| (std::cmp::Reverse(total.ns), **operation));
    rows.into_iter()
        .map(|(operation, total)| (operation.name(), sums(total)))
        .collect()
}

fn word<T: PartialEq>(of: T, words: &[(T, &'static str)]) -> &'static str {
    words
        .iter()
        .find(|(known, _)| *known == of)
        .map_or("", |(_, word)| word)
}

fn found_dict<'py>(py: Python<'py>, why: &Why<'_>, found: &Found) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let cause = &found.cause;
    dict.set_item("what", word(cause.what, &WHATS))?;
    dict.set_item("how", word(cause.how, &HOWS))?;
    dict.set_item("connection", known(cause.connection))?;
    let syscall = known(cause.syscall).map(|number| why.arch().syscall(number));
    dict.set_item("syscall", syscall)?;
    dict.set_item("fd", known(cause.fd))?;
    let (port, first, last) = cause.peer;
    dict.set_item("peer", peers::address(&[port, first, last]))?;
    dict.set_item("lock", known(cause.lock))?;
    dict.set_item("helper", cause.helper)?;
    dict.set_item("background", cause.background)?;
    if cause.what == What::Outside {
        dict.set_item("how", OUTSIDE[usize::from(cause.outside)])?;
    }
    dict.set_item("pid", Some(cause.pid).filter(|pid| *pid > 0))?;
    dict.set_item("ns", found.ns)?;
    dict.set_item("requests", found.requests)?;
    dict.set_item("own", &found.own)?;
    dict.set_item("last", &found.last)?;
    let places = found.places.iter().take(MOST);
    let places = places
        .map(|(operation, node, Count { requests, ns })| (operation.name(), *node, *requests, *ns));
    dict.set_item("places", places.collect::<Vec<_>>())?;
    let callers = found.callers.iter();
    let callers = callers.map(|(pid, count)| (*pid, count.requests, count.ns));
    dict.set_item("callers", callers.collect::<Vec<_>>())?;
    Ok(dict)
}

fn again_dict<'py>(py: Python<'py>, again: &Again) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("operation", again.operation.name())?;
    dict.set_item("negative", again.negative)?;
    dict.set_item("requests", again.requests)?;
    dict.set_item("ns", again.ns)?;
    dict.set_item("keys", again.keys)?;
    dict.set_item("saved", again.saved.to_vec())?;
    dict.set_item("saved_ns", again.saved_ns)?;
    let most = again.most.iter();
    let most = most.map(|(node, name, requests)| (*node, name.as_deref(), *requests));
    dict.set_item("most", most.collect::<Vec<_>>())?;
    Ok(dict)
}

fn transfers_dict<'py>(py: Python<'py>, of: &Transfers) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("operation", of.operation.name())?;
    dict.set_item("waits", of.waits)?;
    for (name, value) in [
        ("requests", of.requests),
        ("ns", of.ns),
        ("bytes", of.bytes),
        ("sized", of.sized),
        ("sequential", of.sequential),
        ("largest", of.largest),
    ] {
        dict.set_item(name, value)?;
    }
    dict.set_item("sizes", &of.sizes)?;
    let files = of.files.iter();
    let files = files.map(|(node, file)| {
        (
            *node,
            file.requests,
            file.ns,
            file.bytes,
            file.opens,
            file.end,
        )
    });
    dict.set_item("files", files.collect::<Vec<_>>())?;
    Ok(dict)
}

#[pyfunction]
pub fn why<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    long: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let catalogue: Vec<Meaning> = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<_>>()?;
    let filters = filters_of(&filters)?;
    let failed = |error| read_error(&path, error);
    let reader = Reader::open(&path).map_err(failed)?;
    let daemons: Vec<i32> = filters.daemons.iter().map(|(pid, _)| *pid).collect();
    let cost = filters.cost.unwrap_or_default();
    let mut why = Why::new(&reader, daemons.into_iter(), cost, long);
    let told = py.detach(|| tell(&reader, &catalogue, filters, &mut why));
    let (info, counts, _) = told.map_err(failed)?;
    let dict = scan_dict(py, info)?;
    dict.set_item("requests", counts_dict(py, counts)?)?;
    dict.set_item("waited", (why.requests, why.total))?;
    dict.set_item("recording", why.recording)?;
    dict.set_item("operations", by_operation(&why.operations))?;
    dict.set_item("asynchronous", by_operation(&why.asynchronous))?;
    let mut errors: Vec<_> = why.errors.iter().collect();
    errors.sort_by_key(|(key, total)| (std::cmp::Reverse(total.ns), **key));
    let errors = errors.into_iter().take(MOST);
    let errors = errors.map(|((operation, error), total)| (operation.name(), *error, sums(total)));
    dict.set_item("errors", errors.collect::<Vec<_>>())?;
    let mut fates: Vec<_> = why.fates.iter().collect();
    fates.sort_by_key(|(name, total)| (std::cmp::Reverse(total.ns), **name));
    let fates = fates.into_iter().map(|(name, total)| (*name, sums(total)));
    dict.set_item("fates", fates.collect::<Vec<_>>())?;
    let mut calls: Vec<_> = why.calls.iter().collect();
    calls.sort_by_key(|(key, total)| (std::cmp::Reverse(total.ns), **key));
    let calls = calls.into_iter().take(MOST);
    let calls = calls.map(|((operation, number), total)| {
        (operation.name(), why.arch().syscall(*number), sums(total))
    });
    dict.set_item("calls", calls.collect::<Vec<_>>())?;
    let processes = why.processes.rows().into_iter().take(MOST);
    let processes = processes.map(|(pid, count)| (pid, count.requests, count.ns));
    dict.set_item("processes", processes.collect::<Vec<_>>())?;
    let mut of_process = why.of_process.rows();
    of_process.sort_by_key(|(key, count)| (std::cmp::Reverse(count.requests), *key));
    let of_process = of_process.into_iter().take(MOST);
    let of_process = of_process.map(|((pid, operation, node), count)| {
        (pid, operation.name(), node, count.requests, count.ns)
    });
    dict.set_item("of_process", of_process.collect::<Vec<_>>())?;
    let classes = why.classes.rows().into_iter().take(MOST);
    let classes = classes.map(|((class, operation, pid), count)| {
        let class = word(class, &CLASSES);
        (class, operation.name(), pid, count.requests, count.ns)
    });
    dict.set_item("classes", classes.collect::<Vec<_>>())?;
    let places = why.class_places.rows().into_iter().take(MOST);
    let places = places.map(|((class, operation, node), count)| {
        let class = word(class, &CLASSES);
        (class, operation.name(), node, count.requests, count.ns)
    });
    dict.set_item("class_places", places.collect::<Vec<_>>())?;
    dict.set_item("listed", (why.lists, sums(&why.listed)))?;
    for (name, of) in [("threads", &why.threads), ("waiters", &why.waiters)] {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (connection, _) in of {
            *counts.entry(*connection).or_default() += 1;
        }
        let counts = counts.into_iter();
        let counts = counts.map(|(connection, count)| (known(connection), count));
        dict.set_item(name, counts.collect::<Vec<_>>())?;
    }
    dict.set_item("comms", why.comms.iter().collect::<Vec<_>>())?;
    let nodes = why.nodes.iter().map(|(connection, path)| {
        let path = path.as_ref().map(|path| (path.text.as_str(), path.whole));
        (known(*connection), path)
    });
    dict.set_item("nodes", nodes.collect::<Vec<_>>())?;
    let found = why.found.iter().take(MOST);
    let found = found.map(|found| found_dict(py, &why, found));
    dict.set_item("causes", found.collect::<PyResult<Vec<_>>>()?)?;
    let asked = why.asked.iter().map(|again| again_dict(py, again));
    dict.set_item("asked", asked.collect::<PyResult<Vec<_>>>()?)?;
    let flights = why.background.iter();
    let flights = flights.map(|row| {
        (
            known(row.connection),
            row.requests,
            row.most,
            row.mean,
            row.ns,
        )
    });
    dict.set_item("background", flights.collect::<Vec<_>>())?;
    let sizes = why.sizes.iter().map(|of| transfers_dict(py, of));
    dict.set_item("transfers", sizes.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}
