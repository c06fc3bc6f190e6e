//! Requests by file, process and so on.

use std::collections::HashMap;
use std::path::PathBuf;

use fusetools_core::answers::groups as core;
use fusetools_core::answers::groups::{By, Groups, Key, Labels, Order};
use fusetools_core::answers::told::map;
use fusetools_core::events::known;
use fusetools_core::requests::stitch::FATES;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::requests::{wanted_of, Question};
use crate::told::Told;
use crate::{Row, Text};

/// Durations in ns, as in `fusetools.results.groups.Times`.
#[derive(Serialize)]
struct Times {
    count: u64,
    total_ns: u128,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    least_ns: Option<u64>,
}

/// A group of requests, as in `fusetools.results.groups.RequestGroup`.
#[derive(Serialize)]
struct RequestGroup {
    /// Name, process, or why there is neither.
    label: Option<String>,
    pid: Option<i32>,
    lacks: Option<&'static str>,
    /// Number of groups that it sums up; 0: it is one group.
    others: u64,
    comm: String,
    requests: u64,
    begun: u64,
    whole: Times,
    latency: Times,
    #[serde(serialize_with = "map")]
    stages_ns: Vec<(String, u64)>,
    answered: u64,
    errors: Vec<(u32, u64)>,
    negative: u64,
    unanswered: Vec<(&'static str, u64)>,
    slowest: Option<u64>,
}

/// Groups in their order, the sum of those that are not listed last.
#[derive(Serialize)]
struct Answer {
    groups: Vec<RequestGroup>,
    pathless: u64,
    /// Requests of processes that have the label of the process that made them.
    inherited: u64,
    full: bool,
}

impl From<core::Times> for Times {
    fn from(times: core::Times) -> Times {
        let hist = times.durations.hist();
        Times {
            count: hist.count(),
            total_ns: hist.sum(),
            p50_ns: hist.percentile(500),
            p90_ns: hist.percentile(900),
            p99_ns: hist.percentile(990),
            max_ns: hist.max(),
            least_ns: times.least,
        }
    }
}

impl RequestGroup {
    fn new(key: Option<Key>, group: core::Group, others: u64) -> RequestGroup {
        let (mut label, mut pid, mut lacks) = (None, None, None);
        match key {
            Some(Key::Text(text)) => label = Some(text.to_string()),
            Some(Key::Process(process)) => pid = Some(process),
            Some(Key::NoPath) => lacks = Some("path"),
            Some(Key::NoCaller) => lacks = Some("caller"),
            Some(Key::NoLabel) => lacks = Some("label"),
            None => {}
        }
        let outcome = group.outcome;
        let mut errors: Vec<_> = outcome.errors.into_iter().collect();
        errors.sort_unstable();
        let fates = FATES.iter().zip(outcome.unanswered);
        let stages = group.stages.into_iter();
        RequestGroup {
            label,
            pid,
            lacks,
            others,
            comm: group.comm.to_string(),
            requests: group.requests,
            begun: group.begun,
            whole: group.whole.into(),
            latency: group.latency.into(),
            stages_ns: stages.map(|(stage, ns)| (stage.name(), ns)).collect(),
            answered: outcome.answered,
            errors,
            negative: outcome.negative,
            unanswered: fates
                .filter(|(_, requests)| *requests > 0)
                .map(|((_, name), requests)| (*name, requests))
                .collect(),
            slowest: group.slowest.and_then(|(_, unique)| known(unique)),
        }
    }
}

/// `by`: name of the grouping, and labels of processes for "label", or for "user", whose labels are users. `listing`: order of groups, and how many to list.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn groups<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    wanted: (Vec<String>, u64, Option<Text>),
    mounts: HashMap<u64, Text>,
    by: (String, HashMap<i32, Text>),
    listing: (String, usize),
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let mounts = Text::all(mounts);
    let wanted = wanted_of(wanted, mounts.clone())?;
    let labels = by.1.into_iter();
    let labels = labels.map(|(pid, label)| (pid, label.0.into())).collect();
    let labels = Labels::new(labels, (by.0 == "user").then_some(question.arch()));
    let by = match &by.0[..] {
        "file" => By::File,
        "directory" => By::Directory,
        "process" => By::Process,
        "comm" => By::Comm,
        "label" | "user" => By::Label(labels),
        "" => By::One,
        other => return Err(PyValueError::new_err(format!("by what? {other}"))),
    };
    let order = match &listing.0[..] {
        "time" => Order::Time,
        "requests" => Order::Requests,
        "slowest" => Order::Slowest,
        "errors" => Order::Errors,
        other => return Err(PyValueError::new_err(format!("no such order: {other}"))),
    };
    let mut groups = Groups::new(by, wanted, mounts, question.filters());
    let (mut info, mut counts, _) = question.tell(py, &mut groups)?;
    if groups.again() {
        (info, counts, _) = question.tell(py, &mut groups)?;
    }
    let (pathless, inherited) = (groups.pathless, groups.inherited);
    let listed = py.detach(|| groups.finish(order, listing.1));
    let rows = listed.groups.into_iter();
    let rows = rows.map(|(key, group)| RequestGroup::new(Some(key), group, 0));
    let others = listed.others.into_iter();
    let others = others.map(|(group, number)| RequestGroup::new(None, group, number));
    let answer = Answer {
        groups: rows.chain(others).collect(),
        pathless,
        inherited,
        full: listed.full,
    };
    Told::new(&info, counts, answer).python(py)
}
