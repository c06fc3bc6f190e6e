//! The thin Python binding, `fusetools._core`. Its types and docstrings are in `fusetools/_core.pyi`.

mod before;
mod btf;
mod cache;
mod catalogue;
mod export;
mod files;
mod flame;
mod groups;
mod heat;
mod named;
mod now;
mod requests;
mod single;
mod stages;
mod tables;
mod told;
mod whatif;
mod why;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fusetools_core::answers::analysis::{analyse, Answer, Detail, Series};
use fusetools_core::cost::Cost;
use fusetools_core::events::Map;
use fusetools_core::format::ring;
use fusetools_core::operations;
use fusetools_core::programs::elf;
use fusetools_core::programs::files::{Files, Opener};
use fusetools_core::programs::frames;
use fusetools_core::programs::live;
use fusetools_core::programs::spaces::MappedFile;
use fusetools_core::reader::{Extent, Window};
use fusetools_core::requests::filters::Filters;
use fusetools_core::write;
use fusetools_core::Error;
use fusetools_core::Reader;
use fusetools_core::ScanInfo;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyString};
use pyo3::Borrowed;
use regex::Regex;
use serde::Serialize;

use crate::catalogue::{meaning, Row};
use crate::told::{Column, Told};

create_exception!(
    _core,
    CoreError,
    PyException,
    "(what, why): what could not be done and why, a line each."
);

create_exception!(
    _core,
    OtherHostError,
    CoreError,
    "The recordings are of different hosts."
);

fn elf_error(error: elf::Error) -> PyErr {
    CoreError::new_err((error.what, error.why))
}

fn read_error(path: &Path, error: Error) -> PyErr {
    let why = match error {
        Error::Io { path, source } => {
            return CoreError::new_err((
                format!("cannot read {}", path.display()),
                source.to_string(),
            ))
        }
        Error::Symbols { path, why } => {
            return CoreError::new_err((format!("cannot read {}", path.display()), why))
        }
        other => other.to_string(),
    };
    CoreError::new_err((format!("cannot read {}", path.display()), why))
}

#[pyfunction]
#[pyo3(signature = (path, debug_path = None))]
fn elf_functions(
    py: Python<'_>,
    path: PathBuf,
    debug_path: Option<PathBuf>,
) -> PyResult<Vec<(String, u64, u64, u64)>> {
    let functions = py
        .detach(|| elf::functions(&path, debug_path.as_deref()))
        .map_err(elf_error)?;
    Ok(functions
        .into_iter()
        .map(|f| (f.name, f.address, f.size, f.offset))
        .collect())
}

#[pyfunction]
fn elf_stepped(path: PathBuf, offsets: Vec<u64>) -> PyResult<Vec<u64>> {
    elf::stepped(&path, &offsets).map_err(elf_error)
}

/// Segments of code (address, size, offset), and the address of the variable.
type ExportedRow = (Vec<(u64, u64, u64)>, Option<u64>);

#[pyfunction]
fn elf_exported(path: PathBuf, name: &str) -> PyResult<ExportedRow> {
    let found = elf::exported(&path, name).map_err(elf_error)?;
    Ok((found.loads, found.variable))
}

#[pyfunction]
fn elf_starts(path: PathBuf, addresses: Vec<u64>) -> PyResult<Vec<(u64, u64, u64)>> {
    let found = elf::starts(&path, &addresses).map_err(elf_error)?;
    let rows = found.iter().map(|one| (one.address, one.size, one.offset));
    Ok(rows.collect())
}

#[pyfunction]
fn elf_build_id(path: PathBuf) -> PyResult<Option<String>> {
    elf::build_id(&path).map_err(elf_error)
}

#[pyfunction]
fn elf_about(path: PathBuf) -> PyResult<(String, String, Vec<String>)> {
    let about = elf::about(&path).map_err(elf_error)?;
    Ok((about.machine, about.runtime, about.imports))
}

#[pyfunction]
fn elf_frame_pointers(path: PathBuf) -> PyResult<Option<f64>> {
    frames::frame_pointers(&path).map_err(elf_error)
}

/// Return whether the pattern is found in each text, in time linear in their length.
#[pyfunction]
fn matching(pattern: &str, texts: Vec<String>) -> PyResult<Vec<bool>> {
    let regex = Regex::new(pattern).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(texts.iter().map(|text| regex.is_match(text)).collect())
}

#[pyfunction]
fn demangle(name: &str) -> String {
    elf::demangle(name)
}

#[pyfunction]
fn syscall_name(machine: &str, number: u64, is_32bit: bool) -> Option<&'static str> {
    operations::Arch::new(Some(machine)).call_name(number, is_32bit)
}

/// Row of /proc/PID/maps: (start, end, offset in the file, path, name of the file here).
type CodeRow = (u64, u64, u64, String, PathBuf);

#[pyfunction]
fn live_stacks(
    py: Python<'_>,
    code: Vec<CodeRow>,
    threads: Vec<(u64, u64, Vec<u8>)>,
    avoid: Vec<PathBuf>,
) -> Vec<(Vec<String>, bool)> {
    let code = code
        .into_iter()
        .map(|(start, end, offset, path, place)| live::Code {
            start,
            end,
            offset,
            path,
            place,
        });
    let code: Vec<live::Code> = code.collect();
    let threads = threads
        .into_iter()
        .map(|(ip, sp, stack)| live::Thread { ip, sp, stack });
    let threads: Vec<live::Thread> = threads.collect();
    py.detach(|| live::stacks(&code, &threads, avoid))
}

/// Empty function on which a recording puts a pair of uprobes, to measure the probes' own cost.
#[no_mangle]
#[inline(never)]
pub extern "C" fn fusetools_calibrate() {
    // A register that it must save makes it begin with a push, as callbacks do. The kernel emulates a push, and
    // single-steps a lone `ret`, which takes ten times as long.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("", out("r12") _, options(nomem, nostack, preserves_flags));
    }
    std::hint::black_box(());
}

#[pyfunction]
fn calibrate(py: Python<'_>, n: u64) -> u64 {
    // Called through a pointer that the compiler cannot see through, so that the exported function itself runs.
    let function: extern "C" fn() = std::hint::black_box(fusetools_calibrate);
    py.detach(|| {
        let start = std::time::Instant::now();
        for _ in 0..n {
            function();
        }
        start.elapsed().as_nanos() as u64
    })
}

/// A recording's header, and its session.
#[derive(Serialize)]
struct Description<'a> {
    session: Option<String>,
    events: Vec<&'a str>,
    sampled: Vec<&'a str>,
    functions: Vec<(u64, String)>,
    arch: Option<String>,
    release: Option<String>,
    hostname: Option<String>,
    kernel_place: Option<(String, u64)>,
    samples: Vec<(&'a str, bool)>,
    off_cpu: bool,
    stacks: Vec<&'a str>,
    warnings: &'a [String],
}

#[pyfunction]
fn describe(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let (reader, session) = py
        .detach(|| {
            let reader = Reader::open(&path)?;
            let session = reader.session();
            Ok((reader, session))
        })
        .map_err(|error| read_error(&path, error))?;
    let events = reader.events().iter();
    let sampled = events.clone().zip(reader.attrs());
    let sampled = sampled.filter(|(_, attr)| attr.is_sampled());
    let description = Description {
        session,
        events: events.map(|event| event.name.as_str()).collect(),
        sampled: sampled.map(|(event, _)| event.name.as_str()).collect(),
        functions: reader.kernel_functions(),
        arch: reader.arch(),
        release: reader.os_release(),
        hostname: reader.hostname(),
        kernel_place: reader.kernel_place(),
        samples: reader.samples(),
        off_cpu: reader.off_cpu(),
        stacks: reader.stacks(),
        warnings: reader.warnings(),
    };
    told::python(py, &description)
}

/// Return the names of a recording's events whose samples may hold memory or registers of processes.
#[pyfunction]
fn of_memory(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    py.detach(|| Ok(Reader::open(&path)?.of_memory()))
        .map_err(|error| read_error(&path, error))
}

/// A name or path of any bytes, or any text of a recording. Bytes that are not UTF-8 are replaced.
pub(crate) struct Text(pub(crate) String);

impl Text {
    pub(crate) fn all(texts: HashMap<u64, Text>) -> HashMap<u64, String> {
        texts.into_iter().map(|(n, text)| (n, text.0)).collect()
    }
}

impl FromPyObject<'_, '_> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Text> {
        let text = object.cast::<PyString>()?;
        Ok(Text(text.to_string_lossy().into_owned()))
    }
}

fn filters_of(dict: &Bound<'_, PyDict>) -> PyResult<Filters> {
    let mut filters = Filters::default();
    for (key, value) in dict {
        match key.extract::<String>()?.as_str() {
            "pids" => filters.pids = value.extract()?,
            "comms" => filters.comms = value.extract()?,
            "connections" => filters.connections = value.extract()?,
            "daemon_pids" => filters.daemon_pids = value.extract()?,
            "daemons" => filters.daemons = value.extract()?,
            "opened" => filters.opened = value.extract()?,
            "from_ns" => filters.from = value.extract()?,
            "to_ns" => filters.to = value.extract()?,
            "functions" => filters.functions = value.extract()?,
            "windows" => filters.windows = value.extract()?,
            "begun_before" => filters.begun_before = value.extract()?,
            "by_operation" => filters.by_operation = value.extract()?,
            "cost" => {
                let (event, pair) = value.extract()?;
                filters.cost = Some(Cost { event, pair });
            }
            "corrected" => filters.corrected = value.extract()?,
            other => return Err(PyValueError::new_err(format!("no such filter: {other}"))),
        }
    }
    Ok(filters)
}

fn answer(
    py: Python<'_>,
    path: &Path,
    catalogue: Vec<Row>,
    filters: &Bound<'_, PyDict>,
    detail: Detail,
) -> PyResult<(Reader, ScanInfo, Answer)> {
    let catalogue = catalogue
        .into_iter()
        .map(meaning)
        .collect::<PyResult<Vec<_>>>()?;
    let filters = filters_of(filters)?;
    py.detach(|| {
        let reader = Reader::open(path)?;
        let (info, answer) = analyse(&reader, &catalogue, filters, detail)?;
        Ok((reader, info, answer))
    })
    .map_err(|error| read_error(path, error))
}

#[derive(Serialize)]
struct Scan<'a> {
    /// Events of the recording, with their numbers of samples.
    events: Vec<(&'a str, u64)>,
    series: &'a [Series],
    /// Processes that made requests, and those that made these processes.
    callers: &'a [i32],
}

#[pyfunction]
fn scan<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let (reader, info, answer) = answer(py, &path, catalogue, &filters, Detail::None)?;
    let names = reader.events().iter().map(|event| event.name.as_str());
    let scan = Scan {
        events: names.zip(info.counts.iter().copied()).collect(),
        series: &answer.series,
        callers: &answer.callers,
    };
    Told::new(&info, answer.requests, scan).python(py)
}

/// Columns of single calls.
#[derive(Serialize)]
struct Singles {
    function: Column,
    level: Column,
    start: Column,
    duration: Column,
    tid: Column,
    cpu: Column,
    comm: Column,
}

#[derive(Serialize)]
struct Calls {
    calls: Singles,
    comms: Vec<String>,
}

#[derive(Serialize)]
struct CallGraph {
    /// (parent or -1, function, calls, total ns, own ns)
    nodes: Vec<(i64, u32, u64, u64, u64)>,
    functions: Vec<String>,
    unmatched: u64,
    full: bool,
    #[serde(flatten)]
    calls: Option<Calls>,
}

#[pyfunction]
fn graph<'py>(
    py: Python<'py>,
    path: PathBuf,
    catalogue: Vec<Row>,
    filters: Bound<'py, PyDict>,
    calls: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let detail = if calls { Detail::Calls } else { Detail::Tree };
    let (_, info, answer) = answer(py, &path, catalogue, &filters, detail)?;
    let tree = answer.tree.unwrap_or_default();
    let nodes = tree.nodes.iter().map(|node| {
        let parent = i64::from(node.parent as i32);
        (parent, node.function, node.calls, node.total, node.own)
    });
    let of = &tree.singles;
    let calls = calls.then(|| Calls {
        calls: Singles {
            function: Column::new(of, |c| c.function.to_le_bytes()),
            level: Column::new(of, |c| c.level.to_le_bytes()),
            start: Column::new(of, |c| c.start.to_le_bytes()),
            duration: Column::new(of, |c| c.duration.to_le_bytes()),
            tid: Column::new(of, |c| c.tid.to_le_bytes()),
            cpu: Column::new(of, |c| c.cpu.to_le_bytes()),
            comm: Column::new(of, |c| c.comm.to_le_bytes()),
        },
        comms: tree.comms,
    });
    let graph = CallGraph {
        nodes: nodes.collect(),
        functions: tree.functions,
        unmatched: tree.unmatched,
        full: tree.full,
        calls,
    };
    Told::new(&info, answer.requests, graph).python(py)
}

/// (pid, start, length, offset in the file, path, build id, path by which the file can be read: "" for its own)
type MapRow = (i32, u64, u64, u64, OsString, Vec<u8>, PathBuf);

/// (event, field that identifies its probes, (number, resulting event, fields that it lacks) …)
type BundleRow = (String, String, Vec<(u64, String, Vec<String>)>);

/// Return an opener that takes its descriptors from `opener(path)`.
fn opener_of(opener: Py<PyAny>) -> Opener {
    Opener(Arc::new(move |path| {
        let number = Python::attach(|py| opener.call1(py, (path,))?.extract::<i32>(py));
        let number = number.map_err(std::io::Error::other)?;
        // SAFETY: the opener gives the descriptor away.
        Ok(unsafe { File::from_raw_fd(number) })
    }))
}

#[pyfunction]
fn ring_head<'py>(
    py: Python<'py>,
    header_page: &str,
    header_event: &str,
    formats: Vec<(String, String)>,
    clock: &str,
    uname: &str,
    cpus: u32,
) -> Bound<'py, PyBytes> {
    let head = ring::head(header_page, header_event, &formats, clock, uname, cpus);
    PyBytes::new(py, &head)
}

#[pyfunction]
fn ring_collect(
    py: Python<'_>,
    instances: Vec<PathBuf>,
    page: usize,
    limit: u64,
    output: i32,
    control: i32,
) -> PyResult<&'static str> {
    // SAFETY: the caller passes ownership of both.
    let (mut output, control) =
        unsafe { (File::from_raw_fd(output), OwnedFd::from_raw_fd(control)) };
    let mut control = UnixStream::from(control);
    let ended = py.detach(|| ring::collect(&instances, page, limit, &mut output, &mut control))?;
    Ok(match ended {
        ring::Ended::Signalled => "told",
        ring::Ended::Alone => "alone",
        ring::Ended::Full => "full",
    })
}

fn window_of((length, upto, since, buffer, held): (u64, u64, u64, u64, bool)) -> Window {
    Window {
        length,
        upto,
        since,
        buffer,
        held,
    }
}

/// (begin, end, whether earlier events were overwritten, bytes per second)
type ExtentRow = (u64, u64, bool, u64);

fn extent_tuple(extent: Extent) -> ExtentRow {
    (extent.begin, extent.end, extent.overwritten, extent.rate)
}

/// Return what `merge` would keep of this recording.
#[pyfunction]
fn kept(py: Python<'_>, path: PathBuf, window: (u64, u64, u64, u64, bool)) -> PyResult<ExtentRow> {
    let extent = py.detach(|| Reader::open(&path)?.keep(&window_of(window)));
    let error = |error: Error| CoreError::new_err(("cannot read the recording", error.to_string()));
    extent.map(extent_tuple).map_err(error)
}

/// Read the vDSO. Call this before a process drops its privileges and merges.
#[pyfunction]
fn keep_vdso() {
    fusetools_core::programs::files::keep_vdso();
}

/// Result of a merge.
#[derive(Serialize)]
struct Merged<'a> {
    records: u64,
    warnings: &'a [String],
    session_at: Vec<(u64, u64)>,
    left_out: HashMap<String, u64>,
    stacks: (u64, u64, u64),
    stacks_ns: u64,
    missing_switches: u64,
    kept: Option<ExtentRow>,
}

#[pyfunction]
#[pyo3(signature = (inputs, output, session, kallsyms = None, maps = Vec::new(), avoid = None,
    bundles = Vec::new(), daemons = None, scope = None, threads = HashMap::new(), window = None, span = None,
    opener = None, packed = false, private = false, for_perf = None))]
#[allow(clippy::too_many_arguments)]
fn merge<'py>(
    py: Python<'py>,
    inputs: Vec<PathBuf>,
    output: PathBuf,
    session: &str,
    kallsyms: Option<PathBuf>,
    maps: Vec<MapRow>,
    avoid: Option<Vec<PathBuf>>,
    bundles: Vec<BundleRow>,
    daemons: Option<Vec<i32>>,
    scope: Option<Vec<i32>>,
    threads: HashMap<i32, i32>,
    window: Option<(u64, u64, u64, u64, bool)>,
    span: Option<(u64, u64)>,
    opener: Option<Py<PyAny>>,
    packed: bool,
    private: bool,
    for_perf: Option<write::Version>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut files = Files {
        opener: opener.map(opener_of),
        ..Files::default()
    };
    let maps = maps
        .into_iter()
        .map(|(pid, start, len, offset, path, build_id, place)| {
            let path = path.to_string_lossy().into_owned();
            if !place.as_os_str().is_empty() {
                let file = MappedFile {
                    path: path.clone(),
                    build_id: build_id.clone(),
                };
                files.places.insert(file, place);
            }
            Map {
                time: 0,
                pid,
                start,
                len,
                offset,
                path,
                build_id,
            }
        })
        .collect();
    let files = avoid.map(|avoid| Files { avoid, ..files });
    let extras = write::Extras {
        kallsyms,
        maps,
        files,
        bundles: bundles
            .into_iter()
            .map(|(event, field, probes)| write::Bundle {
                event,
                field,
                probes,
            })
            .collect(),
        daemons,
        scope,
        threads,
        window: window.map(window_of),
        span,
        packed,
        private,
        for_perf,
    };
    let merged = py.detach(|| write::merge_with(&inputs, &output, session, &extras));
    let info = merged.map_err(|error| {
        let what = "cannot merge the recordings";
        match error {
            Error::OtherHost { why } => OtherHostError::new_err((what, why)),
            Error::Mismatch { why } => CoreError::new_err((what, why)),
            other => CoreError::new_err((what, other.to_string())),
        }
    })?;
    let shares = info.shares;
    let places = info.session_at.iter().map(|place| (place.start, place.end));
    let merged = Merged {
        records: info.records,
        warnings: &info.warnings,
        session_at: places.collect(),
        left_out: info.left_out.into_iter().collect(),
        stacks: (shares.taken, shares.alike, shares.without),
        stacks_ns: shares.ns,
        missing_switches: info.missing_switches,
        kept: info.extent.map(extent_tuple),
    };
    told::python(py, &merged)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("OPCODES", operations::opcodes().into_py_dict(module.py())?)?;
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add("OtherHostError", module.py().get_type::<OtherHostError>())?;
    module.add_function(wrap_pyfunction!(elf_functions, module)?)?;
    module.add_function(wrap_pyfunction!(elf_stepped, module)?)?;
    module.add_function(wrap_pyfunction!(elf_exported, module)?)?;
    module.add_function(wrap_pyfunction!(elf_starts, module)?)?;
    module.add_function(wrap_pyfunction!(elf_build_id, module)?)?;
    module.add_function(wrap_pyfunction!(elf_about, module)?)?;
    module.add_function(wrap_pyfunction!(elf_frame_pointers, module)?)?;
    module.add_function(wrap_pyfunction!(demangle, module)?)?;
    module.add_function(wrap_pyfunction!(syscall_name, module)?)?;
    module.add_function(wrap_pyfunction!(live_stacks, module)?)?;
    module.add_function(wrap_pyfunction!(btf::btf, module)?)?;
    module.add_function(wrap_pyfunction!(matching, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)?;
    module.add_function(wrap_pyfunction!(kept, module)?)?;
    module.add_function(wrap_pyfunction!(of_memory, module)?)?;
    module.add_function(wrap_pyfunction!(scan, module)?)?;
    module.add_function(wrap_pyfunction!(tables::requests, module)?)?;
    module.add_function(wrap_pyfunction!(tables::calls, module)?)?;
    module.add_function(wrap_pyfunction!(tables::waits, module)?)?;
    module.add_function(wrap_pyfunction!(tables::stacks, module)?)?;
    module.add_function(wrap_pyfunction!(graph, module)?)?;
    module.add_class::<catalogue::Catalogue>()?;
    module.add_class::<catalogue::Probe>()?;
    module.add_function(wrap_pyfunction!(catalogue::operation_of, module)?)?;
    module.add_function(wrap_pyfunction!(stages::stages, module)?)?;
    module.add_function(wrap_pyfunction!(single::durations, module)?)?;
    module.add_function(wrap_pyfunction!(single::lengths, module)?)?;
    module.add_function(wrap_pyfunction!(single::spans, module)?)?;
    module.add_function(wrap_pyfunction!(requests::slowest, module)?)?;
    module.add_function(wrap_pyfunction!(requests::numbered, module)?)?;
    module.add_function(wrap_pyfunction!(requests::starts, module)?)?;
    module.add_class::<named::NamedRequest>()?;
    module.add_class::<named::Meanwhile>()?;
    module.add_class::<named::Helper>()?;
    module.add_function(wrap_pyfunction!(requests::errors, module)?)?;
    module.add_function(wrap_pyfunction!(requests::daemons, module)?)?;
    module.add_function(wrap_pyfunction!(requests::queue, module)?)?;
    module.add_function(wrap_pyfunction!(whatif::whatif, module)?)?;
    module.add_function(wrap_pyfunction!(groups::groups, module)?)?;
    module.add_function(wrap_pyfunction!(heat::heat, module)?)?;
    module.add_function(wrap_pyfunction!(cache::caches, module)?)?;
    module.add_function(wrap_pyfunction!(export::export, module)?)?;
    module.add_function(wrap_pyfunction!(files::files, module)?)?;
    module.add_function(wrap_pyfunction!(why::why, module)?)?;
    module.add_class::<before::Before>()?;
    module.add_class::<now::Now>()?;
    module.add_function(wrap_pyfunction!(merge, module)?)?;
    module.add_function(wrap_pyfunction!(keep_vdso, module)?)?;
    module.add_function(wrap_pyfunction!(ring_head, module)?)?;
    module.add_function(wrap_pyfunction!(ring_collect, module)?)?;
    module.add_function(wrap_pyfunction!(flame::flame, module)?)?;
    Ok(())
}
