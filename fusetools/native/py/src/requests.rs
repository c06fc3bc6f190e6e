//! Single requests with the names of files: the slowest, those with a number, errors, the queue, and export.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use fusetools_core::answers::daemons::{states, State};
use fusetools_core::answers::export::{Form, Rows};
use fusetools_core::answers::outcomes::{Kept, Outcome, Outcomes};
use fusetools_core::answers::perfetto::Trace;
use fusetools_core::answers::queue::{Part, Queues};
use fusetools_core::answers::replay::Replay;
use fusetools_core::answers::slowest::{Numbered, Slowest};
use fusetools_core::events::{Meaning, Role};
use fusetools_core::operations::{Arch, Operations};
use fusetools_core::reader::Places;
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::named::{tell, Listener};
use fusetools_core::requests::names::Path;
use fusetools_core::requests::peers::{Connections, Peers};
use fusetools_core::requests::stitch::{asleep, RequestCounts, Story, FATES};
use fusetools_core::requests::wanted::{PathFilter, Wanted};
use fusetools_core::{Reader, ScanInfo};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use regex::Regex;

use crate::catalogue::pattern;
use crate::named::{known, Action, Meanwhile, NamedRequest, SlowCall};
use crate::{counts_dict, filters_of, meaning, read_error, scan_dict, Row, Text};

/// Parts of a query about requests.
pub(crate) struct Question {
    reader: Reader,
    path: PathBuf,
    catalogue: Vec<Meaning>,
    filters: Filters,
}

impl Question {
    pub(crate) fn new(
        path: PathBuf,
        catalogue: Vec<Row>,
        filters: &Bound<'_, PyDict>,
    ) -> PyResult<Question> {
        let catalogue = catalogue.into_iter().map(meaning);
        Ok(Question {
            reader: Reader::open(&path).map_err(|error| read_error(&path, error))?,
            path,
            catalogue: catalogue.collect::<PyResult<_>>()?,
            filters: filters_of(filters)?,
        })
    }

    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    pub(crate) fn arch(&self) -> Arch {
        Arch::new(self.reader.arch().as_deref())
    }

    /// Return the selected time, from the first event to the last one.
    pub(crate) fn span(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let info = py.detach(|| self.reader.scan(&[], &mut |_| {}));
        let info = info.map_err(|error| read_error(&self.path, error))?;
        let (begin, end) = self.filters.window(info.first);
        Ok((begin.max(info.first), end.min(info.last)))
    }

    /// Return the number of CPUs of the host, if known.
    pub(crate) fn cpus(&self) -> Option<usize> {
        self.reader.cpus().map(|cpus| cpus as usize)
    }

    pub(crate) fn tell<'py>(
        &self,
        py: Python<'py>,
        listener: &mut (dyn Listener + Send),
    ) -> PyResult<Bound<'py, PyDict>> {
        Ok(self.tell_noting(py, listener)?.0)
    }

    fn tell_noting<'py>(
        &self,
        py: Python<'py>,
        listener: &mut (dyn Listener + Send),
    ) -> PyResult<(Bound<'py, PyDict>, Places)> {
        let filters = self.filters.clone();
        let answer = py.detach(|| tell(&self.reader, &self.catalogue, filters, listener));
        let (info, counts, places) = answer.map_err(|error| read_error(&self.path, error))?;
        Ok((facts(py, info, counts)?, places))
    }
}

fn facts(py: Python<'_>, info: ScanInfo, counts: RequestCounts) -> PyResult<Bound<'_, PyDict>> {
    let dict = scan_dict(py, info)?;
    dict.set_item("requests", counts_dict(py, counts)?)?;
    Ok(dict)
}

/// Return the operations whose names match regular expressions; all without one.
pub(crate) fn operations_of(expressions: Vec<String>) -> PyResult<Operations> {
    let patterns = expressions.iter().map(|expression| pattern(expression));
    Ok(Operations::new(patterns.collect::<PyResult<_>>()?))
}

/// Process, descriptor and peer of sockets that were open for the whole recording; the same of files.
type Connected = (Vec<(i32, u64, Text)>, Vec<(i32, u64, Text)>);

fn connections(connected: Connected, made: &Peers) -> Connections {
    let texts = |rows: Vec<(i32, u64, Text)>| {
        let rows = rows.into_iter();
        rows.map(|(pid, fd, text)| (pid, fd, text.0)).collect()
    };
    Connections::new(texts(connected.0), texts(connected.1), made)
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn slowest<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    wanted: (Vec<String>, u64, Option<Text>),
    mounts: HashMap<u64, Text>,
    connected: Connected,
    most: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let mut question = Question::new(path, catalogue, &filters)?;
    let arch = question.arch();
    let mut slowest = Slowest::new(most, wanted_of(wanted, Text::all(mounts))?);
    slowest.peers = Peers::new(arch);
    let (mut dict, mut places) = question.tell_noting(py, &mut slowest)?;
    if slowest.again() {
        (dict, places) = question.tell_noting(py, &mut slowest)?;
    }
    dict.set_item("pathless", slowest.pathless)?;
    let calls = slowest.calls.iter();
    let calls = calls.map(|(call, comm)| SlowCall::new(call, comm, arch));
    dict.set_item("calls", calls.collect::<Vec<_>>())?;
    let requests = slowest.finish();
    // Stacks are no moments. Their rows are the last.
    question.catalogue.retain(|row| row.role != Role::Stack);
    let connections = connections(connected, &slowest.peers);
    let stories: Vec<&Story> = requests.iter().map(|request| &request.story).collect();
    let meanwhile = py.detach(|| {
        Replay::new(&question.reader, &question.catalogue, &places, &connections)
            .meanwhile(&stories)
    });
    let rows = requests.iter().zip(meanwhile).map(|(request, meanwhile)| {
        let meanwhile = meanwhile.map(|row| Meanwhile::new(py, row)).transpose()?;
        Ok(NamedRequest::new(request, arch, meanwhile))
    });
    dict.set_item("rows", rows.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

#[pyfunction]
pub fn numbered<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    connected: Connected,
    unique: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let arch = question.arch();
    let mut numbered = Numbered::new(unique);
    numbered.peers = Peers::new(arch);
    let (dict, places) = question.tell_noting(py, &mut numbered)?;
    let requests = &numbered.requests;
    let mut lines = Vec::new();
    let mut meanwhile = None;
    if let [request] = &requests[..] {
        let connections = connections(connected, &numbered.peers);
        (lines, meanwhile) = py.detach(|| {
            let functions = question.reader.kernel_functions();
            Replay::new(&question.reader, &question.catalogue, &places, &connections)
                .timeline(request, &functions)
        });
    }
    let lines = lines.into_iter().map(|line| {
        let action = |action: Option<_>| action.map(Action::from);
        (line.time, action(line.caller), action(line.daemon))
    });
    dict.set_item("lines", lines.collect::<Vec<_>>())?;
    let mut meanwhile = meanwhile.map(|row| Meanwhile::new(py, row)).transpose()?;
    let rows = requests.iter();
    let rows = rows.map(|request| NamedRequest::new(request, arch, meanwhile.take()));
    dict.set_item("rows", rows.collect::<Vec<_>>())?;
    Ok(dict)
}

/// Return the state of each traced daemon with unanswered requests.
#[pyfunction]
pub fn daemons<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let question = Question::new(path, catalogue, &filters)?;
    let answer = py.detach(|| {
        states(
            &question.reader,
            &question.catalogue,
            question.filters.clone(),
        )
    });
    let (info, states) = answer.map_err(|error| read_error(&question.path, error))?;
    let since = |time: u64| known(time).map(|time| time.saturating_sub(info.first));
    let state_dict = |state: &State| {
        let dict = PyDict::new(py);
        dict.set_item("pid", state.pid)?;
        dict.set_item("connection", state.connection)?;
        dict.set_item("ran", since(state.ran))?;
        dict.set_item("stopped", since(state.stopped))?;
        dict.set_item("ended", since(state.ended))?;
        dict.set_item("unanswered", state.unanswered)?;
        dict.set_item("hangs", state.hangs(info.last))?;
        Ok(dict)
    };
    states.iter().map(state_dict).collect()
}

#[pyfunction]
pub fn errors<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let mut outcomes = Outcomes::new(question.arch(), &question.filters);
    let dict = question.tell(py, &mut outcomes)?;
    let operations = outcomes.operations.into_iter().map(|(operation, outcome)| {
        let errors: Vec<(u32, u64)> = outcome.errors.into_iter().collect();
        let fates = FATES.iter().zip(outcome.unanswered);
        let fates = fates.filter(|(_, requests)| *requests > 0);
        let fates: Vec<_> = fates.map(|((_, name), n)| (*name, n)).collect();
        let Outcome {
            answered, negative, ..
        } = outcome;
        (operation.name(), answered, negative, errors, fates)
    });
    let arch = question.arch();
    let gone = outcomes.gone.into_iter();
    let gone = gone.map(|(number, calls)| (arch.syscall(number), calls));
    dict.set_item("disconnected", gone.collect::<Vec<_>>())?;
    dict.set_item("operations", operations.collect::<Vec<_>>())?;
    let kept = |kept: Kept| (kept.requests, kept.some, kept.waiting);
    let refused = outcomes.refused.into_iter();
    let refused = refused.map(|((operation, error), rows)| (operation.name(), error, kept(rows)));
    dict.set_item("refused", refused.collect::<Vec<_>>())?;
    let dropped = outcomes.dropped.into_iter();
    let dropped = dropped.map(|(operation, rows)| (operation.name(), kept(rows)));
    dict.set_item("dropped", dropped.collect::<Vec<_>>())?;
    let aborted = outcomes.aborted.into_iter().map(|(by, requests)| {
        let call = known(by.call).map(|number| arch.syscall(number));
        (by.pid, by.comm, call, by.daemon, requests)
    });
    dict.set_item("aborted", aborted.collect::<Vec<_>>())?;
    let contradicted = outcomes.contradicted.into_iter();
    let contradicted = contradicted.map(|((number, error, operation), calls)| {
        (arch.syscall(number), error, operation.name(), calls)
    });
    dict.set_item("contradicted", contradicted.collect::<Vec<_>>())?;
    let interrupts = outcomes.interrupts.into_iter();
    let interrupts = interrupts.map(|((operation, comm, signal), of)| {
        let counts = (of.requests, of.signals, of.read, of.obeyed);
        (operation.name(), comm, signal, counts)
    });
    dict.set_item("interrupts", interrupts.collect::<Vec<_>>())?;
    Ok(dict)
}

#[pyfunction]
pub fn queue<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    parts: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let mut queues = Queues::new(asleep(&question.reader));
    let dict = question.tell(py, &mut queues)?;
    let queues = py.detach(|| queues.finish());
    let queues = queues.iter().map(|queue| {
        let row = PyDict::new(py);
        row.set_item("connection", queue.connection())?;
        row.set_item("requests", queue.requests)?;
        row.set_item("threads", queue.threads)?;
        row.set_item("unanswered", queue.unanswered)?;
        row.set_item("unread", queue.unread)?;
        row.set_item("handed", queue.handed)?;
        row.set_item("dropped", queue.dropped)?;
        row.set_item("refused", queue.refused)?;
        row.set_item("ring", queue.ring)?;
        row.set_item("runnable", queue.runnable)?;
        row.set_item("total", queue.total)?;
        row.set_item("waited", queue.waited)?;
        row.set_item("short", queue.short)?;
        for (name, parts) in [("whole", 1), ("parts", parts)] {
            let parts = queue.parts(parts).into_iter().map(|part| {
                let Part {
                    mean_queued,
                    mean_busy,
                    most_queued,
                    most_busy,
                } = part;
                (mean_queued, mean_busy, most_queued, most_busy)
            });
            row.set_item(name, parts.collect::<Vec<_>>())?;
        }
        let levels = &queue.levels;
        row.set_item("time", crate::column(py, levels, |l| l.time.to_le_bytes())?)?;
        row.set_item(
            "queued",
            crate::column(py, levels, |l| l.queued.to_le_bytes())?,
        )?;
        row.set_item("busy", crate::column(py, levels, |l| l.busy.to_le_bytes())?)?;
        Ok(row)
    });
    dict.set_item("mounts", queues.collect::<PyResult<Vec<_>>>()?)?;
    Ok(dict)
}

#[pyfunction]
pub fn export<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    output: PathBuf,
    form: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let arch = question.reader.arch();
    let file = BufWriter::new(File::create(&output)?);
    let (dict, rows, servants) = match form {
        "perfetto" => {
            let first = question.reader.scan(&[], &mut |_| {});
            let first = first
                .map_err(|error| read_error(&question.path, error))?
                .first;
            let mut trace = Trace::new(file, arch.as_deref(), first);
            let dict = question.tell(py, &mut trace)?;
            let (rows, servants) = trace.finish()?;
            (dict, rows, servants)
        }
        "csv" | "json" => {
            let form = if form == "csv" { Form::Csv } else { Form::Json };
            let mut rows = Rows::new(file, form, arch.as_deref());
            let dict = question.tell(py, &mut rows)?;
            (dict, rows.finish()?, Vec::new())
        }
        other => return Err(PyValueError::new_err(format!("no such form: {other}"))),
    };
    dict.set_item("rows", rows)?;
    dict.set_item("servants", servants)?;
    Ok(dict)
}

/// Return the selection: regular expressions of operations, minimum ns, regular expression for full paths. `mounts`: mount points by
/// connection.
pub fn wanted_of(
    (operations, least, path): (Vec<String>, u64, Option<Text>),
    mounts: HashMap<u64, String>,
) -> PyResult<Wanted> {
    Ok(Wanted {
        operations: operations_of(operations)?,
        least,
        path: path_filter(path.as_ref().map(|path| &path.0[..]), mounts)?,
    })
}

/// Return a filter of full paths. A path that does not begin at the mount point has "…" for the unknown part.
pub(crate) fn path_filter(
    pattern: Option<&str>,
    mounts: HashMap<u64, String>,
) -> PyResult<Option<PathFilter>> {
    let Some(pattern) = pattern else {
        return Ok(None);
    };
    let regex = Regex::new(pattern).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let filter = move |connection: u64, path: &str, whole: bool| {
        let mount = mounts.get(&connection).map_or("", |mount| mount);
        let text = path.to_owned();
        regex.is_match(&Path { text, whole }.full(mount))
    };
    Ok(Some(Box::new(filter)))
}
