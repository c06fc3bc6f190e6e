//! Writes perf.data: merges concurrent recordings of one machine into one file that stock perf reads.
//!
//! Layout (tools/perf/Documentation/perf.data-file-format.txt): header, ids, attrs, data, feature table, features. The
//! data begins with the `fusetools:session` sample; all records follow in time order, those without a time (synthesised
//! by perf) where perf would deliver them.

mod bundles;
mod head;
mod older;
mod pack;
mod returns;
mod source;
mod stacks;
mod waits;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub use self::bundles::Bundle;
use self::head::{encode_event_desc, join_build_ids, Event, Head, SAMPLE_TIME, SESSION_TEXT};
use self::older::Older;
pub use self::older::{Version, OLDEST};
use self::pack::Packer;
use self::returns::Returns;
use self::source::{Perf, Rewriter, Source, Survey, Tasks, Trace};
use self::stacks::{copied, has_copies, machine, Stacks};
pub use self::waits::Shares;
use self::waits::{Alike, Scope, OF_BOTH, ONE_CALL};
use crate::error::Error;
use crate::events::Map;
use crate::format::file::{feature, Bytes};
use crate::format::record::{self, u32_at};
use crate::format::tracedat::{self, TraceDat};
use crate::format::tracing::Tracing;
use crate::programs::files::Files;
use crate::reader::{Extent, Reader, Window};

/// Records that a file has once.
const ONCE: [u32; 3] = [record::THREAD_MAP, record::CPU_MAP, record::TIME_CONV];

/// The maximum size of a session, and its share in one sample: a record's size is 16 bits.
pub const SESSION_MAX: usize = 16 << 20;
pub const SESSION_PART: usize = 60_000;

/// Number of records between two FINISHED_ROUND, where a reader may hand on what it has. Small enough to keep in
/// memory.
const ROUND: u64 = 16_384;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeInfo {
    /// Records written: all records of the inputs that describe the traced machine, and the session. FINISHED_ROUNDs do
    /// not count.
    pub records: u64,
    /// Omissions and corrections, a line each.
    pub warnings: Vec<String>,
    /// Places of the session's JSON in the file, part by part.
    pub session_at: Vec<Range<u64>>,
    /// Number of samples of other daemons, by event.
    pub left_out: Vec<(String, u64)>,
    /// Shares of switches whose stacks were taken.
    pub shares: Shares,
    /// Number of switches of the workload's and the daemons' threads that must have happened but were not recorded.
    pub missing_switches: u64,
    /// The recorded part of the window.
    pub extent: Option<Extent>,
}

/// The output while it is written: a file beside its final name, removed unless finished, or an open file.
struct Partial {
    /// None: the file has no name of its own.
    path: Option<PathBuf>,
    target: PathBuf,
    file: BufWriter<File>,
}

impl Partial {
    fn create(target: &Path) -> Result<Partial, Error> {
        let partial = |path, file| Partial {
            path,
            target: target.to_owned(),
            file: BufWriter::with_capacity(1 << 20, file),
        };
        if let Some(file) = crate::input::by_number(target) {
            let file = file.map_err(|source| Error::Io {
                path: target.to_owned(),
                source,
            })?;
            return Ok(partial(None, file));
        }
        let name = target
            .file_name()
            .ok_or_else(|| Error::mismatch(format!("{}: not a file's name", target.display())))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let path = target.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|source| Error::Io {
            path: path.clone(),
            source,
        })?;
        Ok(partial(Some(path), file))
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io {
            path: self.target.clone(),
            source,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|source| self.io(source))
    }

    /// Write at `offset`, which was written before.
    fn rewrite(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let seek = self.file.seek(SeekFrom::Start(offset));
        seek.map_err(|source| self.io(source))?;
        self.write(bytes)
    }

    /// No data is written.
    fn clear(&mut self) -> Result<(), Error> {
        let rewound = self.file.rewind();
        let done = rewound.and_then(|()| self.file.get_ref().set_len(0));
        done.map_err(|source| self.io(source))
    }

    fn finish(mut self) -> Result<(), Error> {
        let done = self.file.flush().and_then(|()| match &self.path {
            Some(path) => fs::rename(path, &self.target),
            None => Ok(()),
        });
        done.map_err(|source| self.io(source))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After finish no file has this name.
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// A recording to merge.
enum Input {
    Perf(Reader),
    Trace(TraceDat),
}

impl Input {
    fn open(path: &Path) -> Result<Input, Error> {
        let bytes = Bytes::open(path)?;
        if bytes.starts_with(tracedat::MAGIC) {
            Ok(Input::Trace(TraceDat::new(bytes)?))
        } else {
            Ok(Input::Perf(Reader::new(bytes)?))
        }
    }

    fn perf(&self) -> Option<&Reader> {
        match self {
            Input::Perf(reader) => Some(reader),
            Input::Trace(_) => None,
        }
    }
}

/// Facts that a recording's events lack and that naming its stacks on other hosts needs.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The traced kernel's symbols (/proc/kallsyms): those of functions in stacks become a part of the recording.
    /// Without it, the symbols of a trace.dat are used.
    pub kallsyms: Option<PathBuf>,
    /// Mappings from before the recording began.
    pub maps: Vec<Map>,
    /// Root directory of the recorded programs: copies of user stacks are unwound, and the functions in user stacks
    /// become a part of the recording. None: the programs are not on this host.
    pub files: Option<Files>,
    /// Events that several probes share.
    pub bundles: Vec<Bundle>,
    /// The processes whose samples are kept in events of the system `fuse_daemon`: other daemons may run the same
    /// library. None: all processes.
    pub daemons: Option<Vec<i32>>,
    /// Keep switches, wake-ups and system calls only of these processes and of their descendants.
    pub scope: Option<Vec<i32>>,
    /// The process of each thread whose start is in no recording.
    pub threads: HashMap<i32, i32>,
    /// The inputs come from overwriting buffers; cut the output to this window.
    pub window: Option<Window>,
    /// The time in which all inputs recorded: other samples are left out.
    pub span: Option<(u64, u64)>,
    /// The output is for a user who may not read the memory of others. It holds no copies of stacks and registers,
    /// whether or not they can be unwound. User stacks and calls are only those of the processes of `scope`, and stacks
    /// hold only addresses of code.
    pub private: bool,
    /// Pack the output's records, as `perf record -z` does: a tenth of the bytes.
    pub packed: bool,
    /// The perf that shall read the output, at least [`OLDEST`]. None: the perf that recorded it.
    pub for_perf: Option<Version>,
}

/// Merge concurrent recordings of one machine, made on one clock, into one perf.data that stock perf reads.
///
/// Inputs are perf.data files, and trace.dat files of version 6, whose events become samples: `funcgraph_entry` those
/// of `ftrace:funcgraph_entry`, with the function as their address. `session` is the JSON of the `fusetools:session`
/// samples, at most [`SESSION_MAX`] bytes, [`SESSION_PART`] in each; it replaces those of the inputs. If it is empty,
/// the inputs' first session stays, if any.
///
/// The merge needs memory for the rounds of the inputs, not for the files. The output is written beside `output` and
/// renamed when it is complete; on an error it is removed. "/proc/self/fd/N" is the open file N, as an input and,
/// empty, as the output. Damaged inputs contribute what can be salvaged, with a warning.
pub fn merge(inputs: &[PathBuf], output: &Path, session: &str) -> Result<MergeInfo, Error> {
    merge_with(inputs, output, session, &Extras::default())
}

/// Merge as [`merge`] does, and add what the inputs lack.
pub fn merge_with(
    inputs: &[PathBuf],
    output: &Path,
    session: &str,
    extras: &Extras,
) -> Result<MergeInfo, Error> {
    let mut written = write(inputs, output, session, extras, Alike::default())?;
    // For some waits, the first similar stack was taken only later.
    if let Some(later) = written.later.take() {
        written.out.clear()?;
        drop(written.out);
        written = write(inputs, output, session, extras, later)?;
    }
    written.out.finish()?;
    Ok(written.info)
}

/// A complete file without its final name.
struct Whole {
    out: Partial,
    info: MergeInfo,
    /// Stacks of waits, if some waits without a stack resemble ones with a later stack.
    later: Option<Alike>,
}

fn write(
    inputs: &[PathBuf],
    output: &Path,
    session: &str,
    extras: &Extras,
    later: Alike,
) -> Result<Whole, Error> {
    let mut warnings = Warnings {
        inputs,
        lines: Vec::new(),
    };
    let mut opened = inputs
        .iter()
        .map(|path| Input::open(path))
        .collect::<Result<Vec<_>, _>>()?;
    let mut extent = None;
    if let Some(window) = &extras.window {
        let buffers = opened.len() - usize::from(window.held && opened.len() > 1);
        let (buffers, held) = opened.split_at_mut(buffers);
        for input in buffers {
            if let Input::Perf(reader) = input {
                // No second buffer adds what the first one no longer holds.
                let since = extent.map_or(window.since, |first: Extent| first.begin);
                let kept = reader.keep(&Window { since, ..*window })?;
                extent.get_or_insert(kept);
            }
        }
        for input in held {
            if let (Input::Perf(reader), Some(extent)) = (input, &extent) {
                reader.keep_before(extent.begin);
            }
        }
    }
    let readers = || opened.iter().filter_map(Input::perf);
    let unwinds = extras.files.is_some();
    // Ids that no input uses, near to the inputs' ids: readers find an id fastest in a small table.
    let ids = readers().flat_map(Reader::attrs).flat_map(|attr| &attr.ids);
    let mut free_id = ids.max().map_or(1, |id| id.wrapping_add(1));
    let mut alone = of_ftrace(&opened);
    let stacks = alone.iter().flatten().any(|both| *both);
    for (input, alone) in opened.iter().zip(&mut alone).filter(|_| unwinds) {
        let events = input.perf().into_iter().flat_map(of_one_call);
        alone
            .iter_mut()
            .zip(events)
            .for_each(|(alone, of_call)| *alone |= of_call);
    }
    let mut spare_ids = Vec::new();
    let mut surveys = Vec::new();
    let mut heads = Vec::new();
    for (input, opened) in opened.iter().enumerate() {
        spare_ids.push(free_id);
        match opened {
            Input::Perf(reader) => {
                warnings.add(input, reader.warnings());
                let mut head = Head::read(reader, free_id, unwinds, extras.private)?;
                head.remove(&alone[input]);
                heads.push(head);
                surveys.push(None);
                free_id = free_id.wrapping_add(1);
            }
            Input::Trace(dat) => {
                let survey = Survey::new(dat, free_id, stacks);
                warnings.add(input, survey.warnings());
                heads.push(survey.head(dat)?);
                free_id = free_id.wrapping_add(survey.ids());
                surveys.push(Some(survey));
            }
        }
    }
    let mut head = Head::join(heads, &mut warnings.lines)?;
    if head.events.is_empty() {
        return Err(Error::mismatch("they hold no events"));
    }
    let json = match session {
        "" => readers().find_map(Reader::session).unwrap_or_default(),
        _ => session.to_owned(),
    };
    head.remove_session();
    head.check()?;
    let split = head.split_bundles(&extras.bundles, &mut free_id)?;
    let (session, places) = match json.is_empty() {
        true => Default::default(),
        false => head.add_session(&json, free_id)?,
    };
    let older = extras.for_perf.map(Older::new).transpose()?;
    let attr_size = head.level(older.as_ref())?;
    head.add_formats(&mut warnings.lines);
    let tail = head.events.first().map_or(0, Event::tail);

    let mut sources: Vec<Box<dyn Source + '_>> = Vec::new();
    let of_input = opened.iter().zip(surveys).zip(spare_ids).zip(&alone);
    for (((opened, survey), spare_id), alone) in of_input {
        match (opened, survey) {
            (Input::Perf(reader), _) => {
                sources.push(Box::new(Perf::new(
                    reader.records(),
                    Rewriter::new(reader, spare_id, tail, unwinds, alone)
                        .private(reader, extras.private)
                        .with(reader, &split, extras.daemons.as_deref()),
                )));
            }
            (Input::Trace(dat), Some(survey)) => {
                let survey = survey.with(&split, extras.daemons.as_deref());
                sources.push(Box::new(Trace::new(dat, survey)));
            }
            (Input::Trace(_), None) => {}
        }
    }
    let mut out = Partial::create(output)?;
    let start = head.encode(attr_size, 0);
    out.write(&start)?;
    let mut written = Written {
        older,
        ..Written::default()
    };
    let begins = places
        .iter()
        .map(|place| place.start - SESSION_TEXT as usize);
    let ends = begins.clone().skip(1).chain([session.len()]);
    for (begin, end) in begins.zip(ends) {
        written.put(&mut out, &session[begin..end])?;
    }
    written.flush(&mut out)?; // its place is known
    written.packer.on = extras.packed;
    let build_ids = readers().flat_map(Reader::build_ids).collect();
    // At most one input has copies of stacks, and so what unwinding needs.
    let copied = readers().find(|reader| unwinds && has_copies(reader));
    let ftrace = opened.iter().find_map(|input| match input {
        Input::Trace(dat) if dat.listed() => Some(dat),
        _ => None,
    });
    let returns = match (copied, ftrace) {
        (Some(_), Some(dat)) => Returns::of_trace(dat, &extras.threads),
        (Some(reader), None) => Returns::read(reader),
        (None, _) => Returns::default(),
    };
    let mut stacks = Stacks::new(extras.files.as_ref(), build_ids, returns, later);
    stacks.unwinding.machine = copied.map(machine).unwrap_or_default();
    if extras.private || extras.scope.is_some() {
        stacks.scope = Scope::new(extras.scope.clone().unwrap_or_default());
    }
    stacks.private = extras.private;
    written.put_all(&mut out, &mut sources, extras, tail, &mut stacks)?;
    written.flush(&mut out)?;
    for (input, source) in sources.iter_mut().enumerate() {
        warnings.add(input, &source.warnings());
    }

    if extras.packed {
        let ratio = written.whole / written.bytes.max(1);
        let section = Cow::Owned(pack::feature(ratio as u32));
        head.features.insert(feature::COMPRESSED, section);
    }
    if let Some(older) = &written.older {
        warnings.lines.extend(older.warnings());
        let mine = head.features.get(&feature::BUILD_ID);
        let joined = join_build_ids(mine.map_or(&[], |mine| mine), &older.build_ids());
        if let Some(joined) = joined.filter(|joined| !joined.is_empty()) {
            head.features.insert(feature::BUILD_ID, Cow::Owned(joined));
        }
    }
    head.features.insert(
        feature::EVENT_DESC,
        Cow::Owned(encode_event_desc(&head.events, attr_size)),
    );
    let held: Vec<&[u8]> = readers().filter_map(Reader::kallsyms).collect();
    let of_function_graph = head
        .tracing
        .as_ref()
        .map(|tracing| tracing.kallsyms.clone());
    let held: Vec<&[u8]> = held
        .into_iter()
        .chain(of_function_graph.as_deref())
        .collect();
    let shares = stacks.shares();
    let later = stacks.later();
    let missing_switches = stacks.scope.missing;
    let symbols = stacks.symbols(&held, kallsyms_of(&opened, extras)?)?;
    if !symbols.is_empty() {
        head.tracing.get_or_insert_with(Tracing::empty).kallsyms = Cow::Owned(symbols);
    }
    if let Some(tracing) = &head.tracing {
        head.features
            .insert(feature::TRACING_DATA, Cow::Owned(tracing.encode()));
    }
    if let Some((first, last)) = written.samples {
        head.features.insert(
            feature::SAMPLE_TIME,
            Cow::Owned([first, last].map(u64::to_le_bytes).concat()),
        );
    }
    let mut at = start.len() as u64 + written.bytes + 16 * head.features.len() as u64;
    for section in head.features.values() {
        out.write(&[at, section.len() as u64].map(u64::to_le_bytes).concat())?;
        at += section.len() as u64;
    }
    for section in head.features.values() {
        out.write(section)?;
    }
    out.rewrite(0, &head.encode(attr_size, written.bytes))?;
    let session_at: Vec<Range<u64>> = places
        .iter()
        .map(|place| [place.start, place.end].map(|at| (start.len() + at) as u64))
        .map(|[start, end]| start..end)
        .collect();
    for place in session_at
        .iter()
        .filter_map(|place| place.start.checked_sub(SESSION_TEXT))
    {
        let first = written.first.unwrap_or(0);
        out.rewrite(place + SAMPLE_TIME as u64, &first.to_le_bytes())?;
    }
    let left_out = sources.iter().flat_map(|source| source.left_out());
    let info = MergeInfo {
        records: written.records,
        warnings: warnings.lines,
        session_at,
        shares,
        missing_switches,
        extent,
        left_out: left_out.collect(),
    };
    Ok(Whole { out, info, later })
}

/// Return, by event, whether it is the entry of one system call, with a copy of the stack. Another event reports each
/// entry, so only the stacks of this one are used.
fn of_one_call(reader: &Reader) -> Vec<bool> {
    let events = reader.attrs().iter().zip(reader.events());
    let of = events
        .map(|(attr, info)| info.name.starts_with(ONE_CALL) && copied(reader, attr).is_some());
    of.collect()
}

/// Return, by input and perf event, whether only its stacks are used, because an ftrace instance recorded the event,
/// too.
fn of_ftrace(inputs: &[Input]) -> Vec<Vec<bool>> {
    let listed = inputs.iter().filter_map(|input| match input {
        Input::Trace(dat) if dat.listed() => Some(&dat.tracing().formats),
        _ => None,
    });
    let names: HashSet<String> = listed
        .flatten()
        .map(|format| format!("{}:{}", format.system, format.name))
        .filter(|name| OF_BOTH.contains(&&name[..]))
        .collect();
    let of = |reader: &Reader| {
        let events = reader.attrs().iter().zip(reader.events());
        let both = events.map(|(attr, info)| attr.layout.has_chain() && names.contains(&info.name));
        both.collect()
    };
    let inputs = inputs.iter().map(|input| input.perf().map(of));
    inputs.map(Option::unwrap_or_default).collect()
}

/// Return a PERF_RECORD_MMAP2 of a program's code as perf synthesizes it, with an empty sample id of `tail` bytes.
fn mapping(map: &Map, tail: usize) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(map.pid.to_le_bytes());
    body.extend(map.pid.to_le_bytes());
    for word in [map.start, map.len, map.offset] {
        body.extend(word.to_le_bytes());
    }
    let mut build_id = [0; 24];
    let len = map.build_id.len().min(20);
    build_id[0] = len as u8;
    build_id[4..4 + len].copy_from_slice(&map.build_id[..len]);
    body.extend(build_id);
    body.extend(5u32.to_le_bytes()); // PROT_READ | PROT_EXEC
    body.extend(2u32.to_le_bytes()); // MAP_PRIVATE
    let path = map.path.as_bytes();
    body.extend(&path[..path.len().min(4096)]);
    body.resize((body.len() + 1).next_multiple_of(8) + tail, 0);
    let misc = match len {
        0 => record::MISC_USER,
        _ => record::MISC_USER | record::MISC_MMAP_BUILD_ID,
    };
    let mut out = record::MMAP2.to_le_bytes().to_vec();
    out.extend(misc.to_le_bytes());
    out.extend((8 + body.len() as u16).to_le_bytes());
    out.extend(body);
    out
}

/// Return the traced kernel's symbols.
fn kallsyms_of<'a>(opened: &'a [Input], extras: &Extras) -> Result<Option<Cow<'a, [u8]>>, Error> {
    if let Some(path) = &extras.kallsyms {
        let text =
            crate::input::read(path, crate::programs::symbols::MOST_TEXT).map_err(|source| {
                Error::Io {
                    path: path.clone(),
                    source,
                }
            })?;
        return Ok(Some(Cow::Owned(text)));
    }
    Ok(opened.iter().find_map(|input| match input {
        Input::Trace(dat) => Some(Tracing::new(dat.bytes(), dat.tracing()).kallsyms),
        Input::Perf(_) => None,
    }))
}

/// Set the session of a recording, in place.
pub fn set_session(path: &Path, session: &str) -> Result<MergeInfo, Error> {
    merge(&[path.to_owned()], path, session)
}

/// Return warnings, each with the input's name if there are several inputs.
struct Warnings<'a> {
    inputs: &'a [PathBuf],
    lines: Vec<String>,
}

impl Warnings<'_> {
    fn add(&mut self, input: usize, lines: &[String]) {
        let path = &self.inputs[input];
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        self.lines
            .extend(lines.iter().map(|line| match self.inputs.len() {
                1 => line.clone(),
                _ => format!("{name}: {line}"),
            }));
    }
}

/// Data written so far.
#[derive(Default)]
struct Written {
    packer: Packer,
    older: Option<Older>,
    bytes: u64,
    /// Number of bytes before packing.
    whole: u64,
    records: u64,
    /// Time of the first record that has a time.
    first: Option<u64>,
    /// Times of the first and the last sample, without the session's.
    samples: Option<(u64, u64)>,
}

impl Written {
    fn put(&mut self, out: &mut Partial, record: &[u8]) -> Result<(), Error> {
        let Some(record) = self.readable(record) else {
            return Ok(());
        };
        self.records += 1;
        self.packer.put(&record);
        self.written(out, &record)
    }

    /// Write a record that perf synthesizes: it is not packed.
    fn put_plain(&mut self, out: &mut Partial, record: &[u8]) -> Result<(), Error> {
        let Some(record) = self.readable(record) else {
            return Ok(());
        };
        self.records += u64::from(*record != *FINISHED_ROUND);
        self.packer.put_plain(&record);
        self.written(out, &record)
    }

    fn readable<'r>(&mut self, record: &'r [u8]) -> Option<Cow<'r, [u8]>> {
        match &mut self.older {
            Some(older) => older.record(record),
            None => Some(Cow::Borrowed(record)),
        }
    }

    fn written(&mut self, out: &mut Partial, record: &[u8]) -> Result<(), Error> {
        self.whole += record.len() as u64;
        match self.packer.is_full() {
            true => self.flush(out),
            false => Ok(()),
        }
    }

    fn flush(&mut self, out: &mut Partial) -> Result<(), Error> {
        for bytes in self.packer.take().map_err(|source| out.io(source))? {
            self.bytes += bytes.len() as u64;
            out.write(&bytes)?;
        }
        Ok(())
    }

    /// Write all records in time order; at equal times the earlier input comes first. `maps` come after the records
    /// about tasks that ran before (their forks would undo the maps), and before all events.
    fn put_all(
        &mut self,
        out: &mut Partial,
        sources: &mut [Box<dyn Source + '_>],
        extras: &Extras,
        tail: usize,
        stacks: &mut Stacks<'_>,
    ) -> Result<(), Error> {
        // Records without a time describe the state when the recorders started: one copy suffices.
        let mut written_by: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut tasks = Tasks::new(&extras.threads);
        let mut init = None;
        let mut maps = Some(&extras.maps);
        let (since, until) = extras.span.unwrap_or((0, u64::MAX));
        while let Some((time, input)) = sources
            .iter()
            .enumerate()
            .filter_map(|(i, source)| Some((source.time()?, i)))
            .min()
        {
            let source = &mut sources[input];
            if time != 0 {
                for map in maps.take().into_iter().flatten() {
                    stacks.map(map);
                    self.put(out, &mapping(map, tail))?;
                }
            }
            if !source.settle(&mut tasks, stacks) {
                source.advance();
                continue;
            }
            let record = source.record();
            tasks.learn(record);
            let kind = u32_at(record, 0).unwrap_or(0);
            if kind == record::SAMPLE && !(since..=until).contains(&time) {
                source.advance();
                continue;
            }
            if time != 0 {
                if let Some(init) = init.take() {
                    self.put_plain(out, init)?;
                }
                self.first.get_or_insert(time);
                if kind == record::SAMPLE {
                    self.samples = Some((self.samples.map_or(time, |(first, _)| first), time));
                }
                self.put(out, record)?;
            } else if kind == record::FINISHED_INIT {
                init.get_or_insert(FINISHED_INIT);
            } else {
                let known = if ONCE.contains(&kind) {
                    record[..4].to_vec()
                } else {
                    record.to_vec()
                };
                if *written_by.entry(known).or_insert(input) == input {
                    self.put_plain(out, record)?;
                }
            }
            source.advance();
            if self.records % ROUND == 0 && time != 0 {
                self.put_plain(out, FINISHED_ROUND)?;
            }
        }
        Ok(())
    }
}

const FINISHED_INIT: &[u8] = &[record::FINISHED_INIT as u8, 0, 0, 0, 0, 0, 8, 0];
const FINISHED_ROUND: &[u8] = &[record::FINISHED_ROUND as u8, 0, 0, 0, 0, 0, 8, 0];
