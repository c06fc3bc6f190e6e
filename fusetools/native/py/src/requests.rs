//! Single requests with the names of files: the slowest, those with a number, errors, and the queue.

use std::collections::HashMap;
use std::path::PathBuf;

use fusetools_core::answers::daemons::{states, State};
use fusetools_core::answers::outcomes::Outcomes;
use fusetools_core::answers::queue::{Part, Queue, Queues};
use fusetools_core::answers::replay::{Line, Replay};
use fusetools_core::answers::slowest::{Numbered, Slowest};
use fusetools_core::events::{Meaning, Role};
use fusetools_core::operations::{Arch, Operations};
use fusetools_core::reader::Places;
use fusetools_core::requests::filters::Filters;
use fusetools_core::requests::named::{tell, Listener};
use fusetools_core::requests::names::Path;
use fusetools_core::requests::peers::{Connections, Peers};
use fusetools_core::requests::stitch::{asleep, RequestCounts, Story};
use fusetools_core::requests::wanted::{PathFilter, Wanted};
use fusetools_core::{Reader, ScanInfo};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use regex::Regex;
use serde::Serialize;

use crate::catalogue::pattern;
use crate::named::{Meanwhile, NamedRequest, SlowCall};
use crate::told::{Column, Told};
use crate::{filters_of, meaning, read_error, Row, Text};

/// Parts of a query about requests.
pub(crate) struct Question {
    pub(crate) reader: Reader,
    pub(crate) path: PathBuf,
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

    pub(crate) fn tell(
        &self,
        py: Python<'_>,
        listener: &mut (dyn Listener + Send),
    ) -> PyResult<(ScanInfo, RequestCounts, Places)> {
        let filters = self.filters.clone();
        let answer = py.detach(|| tell(&self.reader, &self.catalogue, filters, listener));
        answer.map_err(|error| read_error(&self.path, error))
    }
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

#[derive(Serialize)]
struct SlowCalls {
    calls: Vec<SlowCall>,
    pathless: u64,
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
    let (mut info, mut counts, mut places) = question.tell(py, &mut slowest)?;
    if slowest.again() {
        (info, counts, places) = question.tell(py, &mut slowest)?;
    }
    let pathless = slowest.pathless;
    let calls = slowest.calls.iter();
    let calls = calls.map(|(call, comm)| SlowCall::new(call, comm, arch, info.first));
    let calls = calls.collect();
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
    let rows = rows.collect::<PyResult<Vec<_>>>()?;
    Told::new(&info, counts, SlowCalls { calls, pathless }).with_rows(py, rows)
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
    let (info, counts, places) = question.tell(py, &mut numbered)?;
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
    let mut meanwhile = meanwhile.map(|row| Meanwhile::new(py, row)).transpose()?;
    let rows = requests.iter();
    let rows = rows.map(|request| NamedRequest::new(request, arch, meanwhile.take()));
    Told::new(&info, counts, Timeline { lines }).with_rows(py, rows.collect())
}

/// Return (thread, its functions, outermost first) of the threads whose recorded stacks reach their start.
#[pyfunction]
pub fn starts(
    py: Python<'_>,
    path: PathBuf,
    catalogue: Vec<Row>,
    threads: Vec<i32>,
) -> PyResult<Vec<(i32, Vec<String>)>> {
    let catalogue = catalogue.into_iter().map(meaning);
    let catalogue: Vec<Meaning> = catalogue.collect::<PyResult<_>>()?;
    let reader = Reader::open(&path).map_err(|error| read_error(&path, error))?;
    let found =
        py.detach(|| fusetools_core::answers::starts::starts(&reader, &catalogue, &threads));
    found.map_err(|error| read_error(&path, error))
}

/// Lines of a single request; none if there are several.
#[derive(Serialize)]
struct Timeline {
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Daemons {
    daemons: Vec<State>,
}

/// Return the state of each traced daemon with unanswered requests.
#[pyfunction]
pub fn daemons<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let question = Question::new(path, catalogue, &filters)?;
    let answer = py.detach(|| {
        states(
            &question.reader,
            &question.catalogue,
            question.filters.clone(),
        )
    });
    let (info, daemons) = answer.map_err(|error| read_error(&question.path, error))?;
    Told::new(&info, RequestCounts::default(), Daemons { daemons }).python(py)
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
    let (info, counts, _) = question.tell(py, &mut outcomes)?;
    Told::new(&info, counts, outcomes.finish()).python(py)
}

#[derive(Serialize)]
struct Mounts<'a> {
    mounts: Vec<MountQueue<'a>>,
}

/// A mount's queue, and its levels as columns.
#[derive(Serialize)]
struct MountQueue<'a> {
    #[serde(flatten)]
    queue: &'a Queue,
    whole: Option<Part>,
    parts: Vec<Part>,
    time: Column,
    queued: Column,
    busy: Column,
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
    let (info, counts, _) = question.tell(py, &mut queues)?;
    let queues = py.detach(|| queues.finish());
    let mounts = queues.iter().map(|queue| MountQueue {
        queue,
        whole: queue.parts(1).pop(),
        parts: queue.parts(parts),
        time: Column::new(&queue.levels, |level| level.time.to_le_bytes()),
        queued: Column::new(&queue.levels, |level| level.queued.to_le_bytes()),
        busy: Column::new(&queue.levels, |level| level.busy.to_le_bytes()),
    });
    let mounts = mounts.collect();
    Told::new(&info, counts, Mounts { mounts }).python(py)
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
