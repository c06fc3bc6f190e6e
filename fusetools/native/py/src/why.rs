//! Causes of callers' waiting.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fusetools_core::answers::outcomes::Gone;
use fusetools_core::answers::why::{
    Again, Found, Frame, InFlight, Total, Transfers, What, Why, CLASSES, HOWS, WHATS,
};
use fusetools_core::events::{known, Meaning};
use fusetools_core::operations::Operation;
use fusetools_core::requests::named::tell;
use fusetools_core::requests::peers;
use fusetools_core::requests::stitch::OUTSIDE;
use fusetools_core::Reader;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::told::Told;
use crate::{filters_of, meaning, read_error, Row};

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

/// (operation, file, requests, ns)
type Place = (&'static str, u32, u64, u64);

/// Cause of waiting: None where a value is unknown or does not apply.
#[derive(Serialize)]
struct Cause<'a> {
    what: &'static str,
    how: &'static str,
    connection: Option<u64>,
    syscall: Option<String>,
    fd: Option<u64>,
    peer: Option<String>,
    lock: Option<u64>,
    timed_out: bool,
    helper: bool,
    background: bool,
    pid: Option<i32>,
    signal: u32,
    ns: u64,
    requests: u64,
    own: &'a [(Vec<Frame>, u64)],
    last: &'a [Frame],
    /// (operation, ns)
    operations: Vec<(&'static str, u64)>,
    places: Vec<Place>,
    /// (process, requests, ns)
    callers: Vec<(i32, u64, u64)>,
}

impl<'a> Cause<'a> {
    fn new(why: &Why<'_>, found: &'a Found) -> Cause<'a> {
        let cause = &found.cause;
        let (port, first, last) = cause.peer;
        let places = found.places.iter().take(MOST);
        let callers = found.callers.iter();
        Cause {
            what: word(cause.what, &WHATS),
            how: match cause.what {
                What::Outside => OUTSIDE[usize::from(cause.outside)],
                _ => word(cause.how, &HOWS),
            },
            connection: known(cause.connection),
            syscall: known(cause.syscall).map(|number| why.arch().syscall(number)),
            fd: known(cause.fd),
            peer: peers::address(&[port, first, last]),
            lock: known(cause.lock),
            timed_out: cause.timed_out,
            helper: cause.helper,
            background: cause.background,
            pid: Some(cause.pid).filter(|pid| *pid > 0),
            signal: cause.signal,
            ns: found.ns,
            requests: found.requests,
            own: &found.own,
            last: &found.last,
            operations: found
                .operations
                .iter()
                .map(|(operation, ns)| (operation.name(), *ns))
                .collect(),
            places: places
                .map(|(operation, node, of)| (operation.name(), *node, of.requests, of.ns))
                .collect(),
            callers: callers
                .map(|(pid, of)| (*pid, of.requests, of.ns))
                .collect(),
        }
    }
}

/// Path, and whether it is whole.
type Path<'a> = (&'a str, bool);

/// Number of threads by connection.
fn by_connection<'a>(threads: impl IntoIterator<Item = &'a (u64, i32)>) -> Vec<(Option<u64>, u64)> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (connection, _) in threads {
        *counts.entry(*connection).or_default() += 1;
    }
    let counts = counts.into_iter();
    counts
        .map(|(connection, count)| (known(connection), count))
        .collect()
}

#[derive(Serialize)]
struct Answer<'a> {
    waited: (u64, u64),
    recording: u64,
    operations: Vec<(&'static str, Sums)>,
    asynchronous: Vec<(&'static str, Sums)>,
    errors: Vec<(&'static str, i32, bool, Sums)>,
    refused: Vec<(&'static str, String, u64)>,
    disconnected: u64,
    fates: Vec<(&'static str, Sums)>,
    calls: Vec<(&'static str, String, Sums)>,
    processes: Vec<(i32, u64, u64)>,
    of_process: Vec<(i32, &'static str, u32, u64, u64)>,
    classes: Vec<(&'static str, &'static str, i32, u64, u64)>,
    class_places: Vec<(&'static str, &'static str, u32, u64, u64)>,
    listed: (u64, Sums),
    threads: Vec<(Option<u64>, u64)>,
    waiters: Vec<(Option<u64>, u64)>,
    comms: Vec<(i32, &'a str)>,
    /// Connection and path of each file.
    nodes: Vec<(Option<u64>, Option<Path<'a>>)>,
    causes: Vec<Cause<'a>>,
    asked: &'a [Again],
    background: &'a [InFlight],
    transfers: &'a [Transfers],
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
    let gone = Gone::new(&filters);
    let mut why = Why::new(&reader, daemons.into_iter(), gone, cost, long);
    let told = py.detach(|| tell(&reader, &catalogue, filters, &mut why));
    let (info, counts, _) = told.map_err(failed)?;
    let mut errors: Vec<_> = why.errors.iter().collect();
    errors.sort_by_key(|(key, total)| (std::cmp::Reverse(total.ns), **key));
    let errors = errors.into_iter().take(MOST);
    let mut refused: Vec<_> = why.refused.iter().collect();
    refused.sort_by_key(|(key, calls)| (std::cmp::Reverse(**calls), **key));
    let mut fates: Vec<_> = why.fates.iter().collect();
    fates.sort_by_key(|(name, total)| (std::cmp::Reverse(total.ns), **name));
    let mut calls: Vec<_> = why.calls.iter().collect();
    calls.sort_by_key(|(key, total)| (std::cmp::Reverse(total.ns), **key));
    let calls = calls.into_iter().take(MOST);
    let processes = why.processes.rows().into_iter().take(MOST);
    let mut of_process = why.of_process.rows();
    of_process.sort_by_key(|(key, count)| (std::cmp::Reverse(count.requests), *key));
    let of_process = of_process.into_iter().take(MOST);
    let classes = why.classes.rows().into_iter().take(MOST);
    let places = why.class_places.rows().into_iter().take(MOST);
    let found = why.found.iter().take(MOST);
    let answer = Answer {
        waited: (why.requests, why.total),
        recording: why.recording,
        operations: by_operation(&why.operations),
        asynchronous: by_operation(&why.asynchronous),
        errors: errors
            .map(|((operation, error, background), total)| {
                (operation.name(), *error, *background, sums(total))
            })
            .collect(),
        refused: refused
            .into_iter()
            .map(|((operation, number), calls)| {
                (operation.name(), why.arch().syscall(*number), *calls)
            })
            .collect(),
        disconnected: why.gone.calls.values().sum(),
        fates: fates
            .into_iter()
            .map(|(name, total)| (*name, sums(total)))
            .collect(),
        calls: calls
            .map(|((operation, number), total)| {
                (operation.name(), why.arch().syscall(*number), sums(total))
            })
            .collect(),
        processes: processes
            .map(|(pid, count)| (pid, count.requests, count.ns))
            .collect(),
        of_process: of_process
            .map(|((pid, operation, node), count)| {
                (pid, operation.name(), node, count.requests, count.ns)
            })
            .collect(),
        classes: classes
            .map(|((class, operation, pid), count)| {
                let class = word(class, &CLASSES);
                (class, operation.name(), pid, count.requests, count.ns)
            })
            .collect(),
        class_places: places
            .map(|((class, operation, node), count)| {
                let class = word(class, &CLASSES);
                (class, operation.name(), node, count.requests, count.ns)
            })
            .collect(),
        listed: (why.lists, sums(&why.listed)),
        threads: by_connection(&why.threads),
        waiters: by_connection(&why.waiters),
        comms: why
            .comms
            .iter()
            .map(|(pid, (comm, _))| (*pid, &**comm))
            .collect(),
        nodes: why
            .nodes
            .iter()
            .map(|(connection, path)| {
                let path = path.as_ref().map(|path| (path.text.as_str(), path.whole));
                (known(*connection), path)
            })
            .collect(),
        causes: found.map(|found| Cause::new(&why, found)).collect(),
        asked: &why.asked,
        background: &why.background,
        transfers: &why.sizes,
    };
    Told::new(&info, counts, answer).python(py)
}
