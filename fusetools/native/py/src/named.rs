//! Single requests and what was done for them, as Python sees them.

use fusetools_core::answers::replay;
use fusetools_core::answers::slowest;
use fusetools_core::answers::told::map;
use fusetools_core::events::{known, ABSENT};
use fusetools_core::operations::Arch;
use fusetools_core::requests::stitch::{limited, Cut, MountCall, FATES, MARK_NAMES, OUTSIDE};
use pyo3::prelude::*;
use serde::Serialize;

/// (name, ns, its named parts and their ns)
type StageRow = (String, u64, Vec<(&'static str, u64)>);

#[pyclass(frozen, get_all)]
pub struct NamedRequest {
    operation: &'static str,
    fate: &'static str,
    waits: bool,
    connection: Option<u64>,
    unique: Option<u64>,
    size: Option<u64>,
    offset: Option<u64>,
    answer: Option<u64>,
    reply_len: Option<u64>,
    blocked: Option<u64>,
    runnable: Option<u64>,
    elsewhere: Option<u64>,
    unsplit: u64,
    error: i32,
    comm: String,
    pid: Option<i32>,
    tid: Option<i32>,
    daemon_pid: Option<i32>,
    daemon_tid: Option<i32>,
    reader: Option<i32>,
    replier: Option<i32>,
    syscall: Option<String>,
    path: Option<(String, bool)>,
    name: Option<String>,
    inode: Option<u64>,
    duration: u64,
    marks: Vec<(&'static str, u64)>,
    until: Option<u64>,
    handed: bool,
    left: Option<u64>,
    refused: i32,
    dropped: bool,
    resent: bool,
    first_reader: Option<i32>,
    first_read: Option<u64>,
    signals: u32,
    signal: u32,
    interrupted: bool,
    aborter: Option<i32>,
    aborter_comm: String,
    aborter_call: Option<String>,
    aborted_by_daemon: bool,
    stages: Vec<StageRow>,
    meanwhile: Option<Py<Meanwhile>>,
}

impl NamedRequest {
    pub fn new(
        request: &slowest::NamedRequest,
        arch: Arch,
        meanwhile: Option<Py<Meanwhile>>,
    ) -> NamedRequest {
        let story = &request.story;
        let fate = FATES.iter().find(|(fate, _)| *fate == story.fate);
        let marks = MARK_NAMES.into_iter().zip(story.marks);
        let marks = marks.filter(|(_, time)| *time != ABSENT);
        let cut = Cut::new(story);
        let stages = cut.stages().filter(|_| story.counts());
        let stages = stages.map(|(stage, ns)| {
            let parts = stage.parts(story).map(|parts| limited(parts, ns));
            let parts = parts.map(|(parts, rest)| stage.named(parts, rest));
            (stage.name(), ns, parts.unwrap_or_default())
        });
        let task = |id: i32| Some(id).filter(|id| *id >= 0);
        let syscall = |number| known(number).map(|number| arch.syscall(number));
        NamedRequest {
            operation: story.operation.name(),
            fate: fate.map_or("", |(_, name)| name),
            waits: story.waits,
            connection: known(story.connection),
            unique: known(story.unique),
            size: known(match request.details.size {
                // A write's own length shows it.
                ABSENT if story.operation.name() == "write" => story.bytes(),
                size => size,
            }),
            offset: known(request.details.offset),
            answer: known(request.details.answer),
            reply_len: known(story.reply_len),
            blocked: known(story.blocked),
            runnable: known(story.runnable),
            elsewhere: known(story.elsewhere),
            unsplit: story.unsplit,
            error: story.error,
            comm: request.comm.clone(),
            pid: task(story.pid),
            tid: task(story.tid),
            daemon_pid: task(story.daemon_pid),
            daemon_tid: task(story.daemon_tid),
            reader: task(story.reader),
            replier: task(story.replier),
            syscall: syscall(story.syscall),
            path: request
                .path
                .as_ref()
                .map(|path| (path.text.clone(), path.whole)),
            name: request.details.argument().map(str::to_owned),
            inode: request.inode,
            duration: request.duration,
            marks: marks.collect(),
            until: known(story.until),
            handed: story.handed,
            left: known(story.left),
            refused: story.refused,
            dropped: story.dropped,
            resent: story.resent,
            first_reader: task(story.first_reader),
            first_read: known(story.first_read),
            signals: story.signals,
            signal: story.signal,
            interrupted: story.interrupted,
            aborter: task(story.aborter),
            aborter_comm: request.aborter.clone(),
            aborter_call: syscall(story.aborter_call),
            aborted_by_daemon: story.aborted_by_daemon,
            stages: stages.collect(),
            meanwhile,
        }
    }
}

/// (system call, number, ns)
type SyscallRow = (String, u64, u64);

#[pyclass(frozen, get_all)]
pub struct Meanwhile {
    on_cpu: Option<u64>,
    syscalls: Vec<SyscallRow>,
    peers: Option<Vec<String>>,
    files: Vec<String>,
    helpers: Vec<Py<Helper>>,
}

impl Meanwhile {
    pub fn new(py: Python<'_>, row: replay::Meanwhile) -> PyResult<Py<Meanwhile>> {
        let helpers = row.helpers.into_iter();
        let helpers = helpers.map(|helper| Py::new(py, Helper::from(helper)));
        let row = Meanwhile {
            on_cpu: row.on_cpu,
            syscalls: syscalls(row.syscalls),
            peers: row.peers,
            files: row.files,
            helpers: helpers.collect::<PyResult<_>>()?,
        };
        Py::new(py, row)
    }
}

#[pyclass(frozen, get_all)]
pub struct Helper {
    tid: i32,
    waited: u64,
    syscalls: Vec<SyscallRow>,
    peers: Option<Vec<String>>,
    files: Vec<String>,
    on_cpu: Option<u64>,
    runnable: Option<u64>,
    blocked: Option<u64>,
}

impl From<replay::Helper> for Helper {
    fn from(row: replay::Helper) -> Helper {
        Helper {
            tid: row.tid,
            waited: row.waited,
            syscalls: syscalls(row.syscalls),
            peers: row.peers,
            files: row.files,
            on_cpu: row.states.map(|states| states.on_cpu),
            runnable: row.states.map(|states| states.runnable),
            blocked: row.states.map(|states| states.blocked),
        }
    }
}

fn syscalls(rows: Vec<replay::SyscallTime>) -> Vec<SyscallRow> {
    rows.into_iter()
        .map(|row| (row.syscall, row.calls, row.time))
        .collect()
}

/// A system call on a mount, as in `fusetools.results.slow.SlowCall`.
#[derive(Serialize)]
pub struct SlowCall {
    syscall: String,
    connection: Option<u64>,
    pid: i32,
    tid: i32,
    comm: String,
    start_ns: u64,
    duration_ns: u64,
    in_requests_ns: u64,
    #[serde(serialize_with = "map")]
    outside_ns: Vec<(&'static str, u64)>,
    returned: bool,
}

impl SlowCall {
    /// `first`: time of the recording's first event.
    pub fn new(call: &MountCall, comm: &str, arch: Arch, first: u64) -> SlowCall {
        let outside = OUTSIDE.into_iter().zip(call.outside);
        SlowCall {
            syscall: arch.syscall(call.number),
            connection: known(call.connection),
            pid: call.pid,
            tid: call.tid,
            comm: comm.to_owned(),
            start_ns: call.start.saturating_sub(first),
            duration_ns: call.duration(),
            in_requests_ns: call.duration().saturating_sub(call.rest()),
            outside_ns: outside.filter(|(_, ns)| *ns > 0).collect(),
            returned: !call.goes_on,
        }
    }
}
