//! perf.data out: merges recordings made at once on one machine into one file that stock perf reads.
//!
//! Layout (tools/perf/Documentation/perf.data-file-format.txt): header, ids, attrs, data, feature table, features. The data begins with the
//! `fusetools:session` sample; all records follow in time order, those without a time (synthesised by perf) where perf would deliver them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::file::{self, feature, Attr};
use crate::reader::{Reader, Record, Records, SESSION};
use crate::record::{self, bit, u32_at, u64_at, Layout};
use crate::tracing::{name_and_id, Tracing};

/// The longest JSON that fits: a record's size is 16 bits.
pub const SESSION_MAX: usize = 60_000;

/// Records between two FINISHED_ROUND, at which a reader may hand on what it has: small enough to keep in memory.
const ROUND: u64 = 16_384;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeInfo {
    /// Records written: all of the inputs that describe the traced machine, and the session; not the rounds.
    pub records: u64,
    /// What was left out or put right, a line each.
    pub warnings: Vec<String>,
}

/// Records of perf's own that stay, and of these the ones that a file has once.
const KEPT: [u32; 6] = [
    record::ID_INDEX,
    record::THREAD_MAP,
    record::CPU_MAP,
    record::EVENT_UPDATE,
    record::TIME_CONV,
    record::FINISHED_INIT,
];
const ONCE: [u32; 3] = [record::THREAD_MAP, record::CPU_MAP, record::TIME_CONV];
/// Those that are in the output's header, as they are in a file's that was not written to a pipe.
const IN_HEADER: [u32; 3] = [
    record::HEADER_ATTR,
    record::HEADER_TRACING_DATA,
    record::HEADER_FEATURE,
];
/// Features that are written anew, or are of data that is not in the output.
const ANEW: [u32; 6] = [
    feature::TRACING_DATA,
    feature::EVENT_DESC,
    feature::AUXTRACE,
    feature::SAMPLE_TIME,
    feature::DIR_FORMAT,
    feature::COMPRESSED,
];
/// An id for the only event of an input without ids; the kernel's do not reach it.
fn made_id(input: usize) -> u64 {
    (1 << 40) + input as u64
}

/// An event of the output: struct perf_event_attr, the ids its samples carry, "system:name".
#[derive(Clone, Debug)]
struct Event {
    attr: Vec<u8>,
    ids: Vec<u64>,
    name: String,
}

impl Event {
    fn u64(&self, at: usize) -> u64 {
        u64_at(&self.attr, at).unwrap_or(0)
    }
    fn set(&mut self, at: usize, value: &[u8]) {
        self.attr[at..at + value.len()].copy_from_slice(value);
    }
    fn is_tracepoint(&self) -> bool {
        u32_at(&self.attr, 0) == Some(file::TYPE_TRACEPOINT)
    }
    fn config(&self) -> u64 {
        self.u64(8)
    }
    /// Bytes of the sample id at the end of records that are no samples.
    fn tail(&self) -> usize {
        let parts = bit::TID | bit::TIME | bit::ID | bit::STREAM_ID | bit::CPU | bit::IDENTIFIER;
        if self.sample_id_all() {
            8 * (self.u64(24) & parts).count_ones() as usize
        } else {
            0
        }
    }
    fn read_format(&self) -> u64 {
        self.u64(32)
    }
    fn sample_id_all(&self) -> bool {
        self.u64(40) & flag::SAMPLE_ID_ALL != 0
    }
    /// The clock of the time stamps; None is perf's own.
    fn clock(&self) -> Option<i32> {
        let given = self.u64(40) & flag::USE_CLOCKID != 0;
        u32_at(&self.attr, 92)
            .filter(|_| given)
            .map(|clock| clock as i32)
    }
}

/// Bits of perf_event_attr after its read_format.
mod flag {
    pub const DISABLED: u64 = 1;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const USE_CLOCKID: u64 = 1 << 25;
}

/// Records of one input in time order.
trait Source {
    /// Time of the record that is next, 0 for one without; None at the end.
    fn time(&self) -> Option<u64>;
    fn record(&self) -> &[u8];
    fn advance(&mut self);
    /// What could not be taken over, once the end is reached.
    fn warnings(&mut self) -> Vec<String>;
}

// ---- the header's parts ----

/// Everything of the inputs but their records.
struct Head<'a> {
    events: Vec<Event>,
    tracing: Option<Tracing<'a>>,
    features: BTreeMap<u32, Cow<'a, [u8]>>,
}

fn mismatch(why: impl Into<String>) -> Error {
    Error::Mismatch { why: why.into() }
}

impl<'a> Head<'a> {
    /// Joins the heads of files recorded at once; the first one's stays where only one can be.
    fn join(heads: Vec<Head<'a>>, warnings: &mut Vec<String>) -> Result<Head<'a>, Error> {
        let mut heads = heads.into_iter();
        let mut joined = heads
            .next()
            .ok_or_else(|| mismatch("no recording was given"))?;
        for other in heads {
            joined.absorb(other, warnings)?;
        }
        Ok(joined)
    }

    fn absorb(&mut self, other: Head<'a>, warnings: &mut Vec<String>) -> Result<(), Error> {
        for (number, what) in [
            (feature::HOSTNAME, "hosts"),
            (feature::ARCH, "architectures"),
        ] {
            if let (Some(mine), Some(others)) =
                (self.features.get(&number), other.features.get(&number))
            {
                if mine != others {
                    let [mine, others] = [mine, others].map(|section| text(section));
                    return Err(mismatch(format!(
                        "the recordings are of different {what}: {mine} and {others}"
                    )));
                }
            }
        }
        if [&self.events, &other.events]
            .iter()
            .any(|events| events.iter().any(|event| event.u64(24) & bit::TIME == 0))
        {
            return Err(mismatch(
                "events were recorded without their time (perf record -T)",
            ));
        }
        let ids: HashSet<u64> = self
            .events
            .iter()
            .flat_map(|event| event.ids.iter().copied())
            .collect();
        if let Some(id) = other
            .events
            .iter()
            .flat_map(|event| &event.ids)
            .find(|id| ids.contains(id))
        {
            return Err(mismatch(format!(
                "both have the event id {id}: not recorded at once on one machine, or given twice"
            )));
        }
        match (&mut self.tracing, other.tracing) {
            (Some(mine), Some(others)) => {
                if (mine.long_size, mine.page_size, mine.header_page)
                    != (others.long_size, others.page_size, others.header_page)
                {
                    return Err(mismatch("their kernels lay out events differently"));
                }
                for event in mine.absorb(&others) {
                    warnings.push(format!("{event}: its number is another event's in the first recording; its fields may be wrong"));
                }
            }
            (mine, others) => *mine = mine.take().or(others),
        }
        let before = self.events.len();
        self.events.extend(other.events);
        for (number, section) in other.features {
            let joined = match (number, self.features.get(&number)) {
                (feature::BUILD_ID, Some(mine)) => join_build_ids(mine, &section),
                (feature::GROUP_DESC, mine) => {
                    join_groups(mine.map(|mine| &mine[..]), &section, before)
                }
                (_, Some(_)) => continue,
                (_, None) => Some(section.to_vec()),
            };
            // A section whose own sizes do not hold is left as the first file has it: nothing else depends on it.
            if let Some(joined) = joined {
                self.features.insert(number, Cow::Owned(joined));
            }
        }
        Ok(())
    }
}

/// perf's strings: u32 size, then the text padded with NUL.
fn text(section: &[u8]) -> String {
    let text = section.get(4..).unwrap_or_default();
    String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

/// Records of u32 type, u16 misc, u16 size …, each once.
fn join_build_ids(mine: &[u8], others: &[u8]) -> Option<Vec<u8>> {
    fn split(mut section: &[u8]) -> Option<Vec<&[u8]>> {
        let mut records = Vec::new();
        while !section.is_empty() {
            let size = u16::from_le_bytes(section.get(6..8)?.try_into().ok()?) as usize;
            let record = section.get(..size.max(8))?;
            records.push(record);
            section = &section[record.len()..];
        }
        Some(records)
    }
    let mine = split(mine)?;
    let known: HashSet<&[u8]> = mine.iter().copied().collect();
    let new = split(others)?
        .into_iter()
        .filter(|record| !known.contains(record));
    Some(mine.iter().copied().chain(new).flatten().copied().collect())
}

/// u32 count, then per group a string, u32 index of its leader among the events, u32 members: `others` come after `before` events.
fn join_groups(mine: Option<&[u8]>, others: &[u8], before: usize) -> Option<Vec<u8>> {
    let count = u32_at(others, 0)?;
    let mut joined = mine.unwrap_or(&[0; 4]).to_vec();
    let sum = u32_at(&joined, 0)?.checked_add(count)?;
    joined[..4].copy_from_slice(&sum.to_le_bytes());
    let mut at = 4usize;
    for _ in 0..count {
        let name = at..(at + 4).checked_add(u32_at(others, at)? as usize)?;
        let leader = u32_at(others, name.end)?.checked_add(before as u32)?;
        at = name.end + 8;
        joined.extend(others.get(name.clone())?);
        joined.extend(leader.to_le_bytes());
        joined.extend(others.get(name.end + 4..at)?);
    }
    Some(joined)
}

/// EVENT_DESC: u32 events, u32 size of an attr, then per event the attr, u32 ids, its name, the ids.
fn encode_event_desc(events: &[Event], attr_size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((events.len() as u32).to_le_bytes());
    out.extend((attr_size as u32).to_le_bytes());
    for event in events {
        out.extend(&event.attr);
        out.extend((event.ids.len() as u32).to_le_bytes());
        let size = (event.name.len() + 1).next_multiple_of(64);
        out.extend((size as u32).to_le_bytes());
        out.extend(event.name.as_bytes());
        out.resize(out.len() + size - event.name.len(), 0);
        event.ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
    }
    out
}

// ---- the session ----

/// A format text as tracefs gives them: the fields that all events have, then `fields`.
fn format_text(name: &str, id: u64, fields: &str, print: &str) -> Vec<u8> {
    format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         {fields}\nprint fmt: {print}\n"
    )
    .into_bytes()
}

const SESSION_FIELDS: &str = "\tfield:__data_loc char[] json;\toffset:8;\tsize:4;\tsigned:0;\n";

impl<'a> Head<'a> {
    fn remove_session(&mut self) {
        self.events.retain(|event| event.name != SESSION);
        if let Some(tracing) = &mut self.tracing {
            tracing.remove("fusetools");
        }
    }

    /// Adds the event of the session sample; gives that sample's record, its time left at 0 at `SESSION_TIME`.
    fn add_session(&mut self, json: &str) -> Result<Vec<u8>, Error> {
        if json.len() > SESSION_MAX {
            return Err(mismatch(format!(
                "the session's facts take {} bytes, more than {SESSION_MAX}",
                json.len()
            )));
        }
        let used: HashSet<u64> = self
            .events
            .iter()
            .filter(|event| event.is_tracepoint())
            .map(Event::config)
            .chain(
                self.tracing
                    .iter()
                    .flat_map(|tracing| tracing.formats())
                    .filter_map(|(_, text)| Some(name_and_id(text)?.1.into())),
            )
            .collect();
        let kind = (0..=u64::from(u16::MAX))
            .rev()
            .find(|id| !used.contains(id))
            .ok_or_else(|| mismatch("no event number is left"))?;
        let id = self
            .events
            .iter()
            .flat_map(|event| &event.ids)
            .max()
            .map_or(1, |id| id.wrapping_add(1));
        let first = self.events.first().ok_or_else(|| mismatch("no events"))?;
        // What perf wants equal in all events is taken from the first: size, read_format, sample_id_all, the clock.
        let mut event = Event {
            attr: vec![0; first.attr.len()],
            ids: vec![id],
            name: SESSION.into(),
        };
        let flags = first.u64(40) & (flag::SAMPLE_ID_ALL | flag::USE_CLOCKID) | flag::DISABLED;
        let bits =
            bit::IP | bit::TID | bit::TIME | bit::CPU | bit::PERIOD | bit::RAW | bit::IDENTIFIER;
        event.set(0, &file::TYPE_TRACEPOINT.to_le_bytes());
        for (at, value) in [
            (8, kind),
            (16, 1),
            (24, bits),
            (32, first.read_format()),
            (40, flags),
        ] {
            event.set(at, &value.to_le_bytes());
        }
        if let Some(clock) = first.clock() {
            event.set(92, &clock.to_le_bytes());
        }
        self.events.push(event);
        let tracing = self.tracing.get_or_insert_with(Tracing::empty);
        let text = format_text("session", kind, SESSION_FIELDS, "\"%s\", __get_str(json)");
        tracing.add("fusetools", Cow::Owned(text));

        let mut raw = (kind as u16).to_le_bytes().to_vec();
        raw.resize(8, 0);
        raw.extend(((json.len() as u32 + 1) << 16 | 12).to_le_bytes());
        raw.extend(json.as_bytes());
        raw.push(0);
        // Raw data is padded so that it ends, its own size included, on 8 bytes.
        raw.resize((raw.len() + 4).next_multiple_of(8) - 4, 0);
        let mut sample = Vec::new();
        sample.extend(record::SAMPLE.to_le_bytes());
        sample.extend(1u16.to_le_bytes()); // PERF_RECORD_MISC_KERNEL
        sample.extend(0u16.to_le_bytes());
        for value in [id, 0, 0, 0, 0, 1] {
            sample.extend(u64::to_le_bytes(value)); // identifier, ip, pid and tid, time, cpu, period
        }
        sample.extend((raw.len() as u32).to_le_bytes());
        sample.extend(raw);
        let size = sample.len() as u16;
        sample[6..8].copy_from_slice(&size.to_le_bytes());
        Ok(sample)
    }

    /// Makes all attrs the same size, which is the answer.
    fn level(&mut self) -> usize {
        let size = self
            .events
            .iter()
            .map(|event| event.attr.len())
            .max()
            .unwrap_or(0);
        for event in &mut self.events {
            event.attr.resize(size, 0);
            event.set(4, &(size as u32).to_le_bytes());
        }
        size
    }

    /// Gives every tracepoint a format: perf refuses a file without one, and a killed recorder leaves none.
    fn add_formats(&mut self, warnings: &mut Vec<String>) {
        let known: HashMap<u64, String> = self
            .tracing
            .iter()
            .flat_map(|tracing| tracing.formats())
            .filter_map(|(system, text)| {
                name_and_id(text).map(|(name, id)| (id.into(), format!("{system}:{name}")))
            })
            .collect();
        let mut added = HashSet::new();
        for event in self.events.iter_mut().filter(|event| event.is_tracepoint()) {
            let id = event.config();
            if let Some(name) = known.get(&id) {
                event.name.clone_from(name);
                continue;
            }
            if !event.name.contains(':') {
                event.name = format!("unknown:event_{id}");
            }
            if added.insert(id) {
                warnings.push(format!(
                    "{}: no recording has its format, so its fields cannot be read",
                    event.name
                ));
                let (system, name) = event.name.split_once(':').unwrap_or_default();
                let text = Cow::Owned(format_text(name, id, "", "\"\""));
                self.tracing
                    .get_or_insert_with(Tracing::empty)
                    .add(system, text);
            }
        }
    }

    /// What perf demands of all events of a file, and merging of their records.
    fn check(&self) -> Result<(), Error> {
        let differ = |of: &dyn Fn(&Event) -> Option<i32>| {
            self.events
                .windows(2)
                .any(|pair| of(&pair[0]) != of(&pair[1]))
        };
        if differ(&|event| event.sample_id_all().then_some(0)) {
            return Err(mismatch(
                "only some have sample ids in all records (perf record --no-sample-id-all)",
            ));
        }
        if differ(&Event::clock) {
            return Err(mismatch(
                "they were recorded on different clocks (perf record -k)",
            ));
        }
        Ok(())
    }
}

/// Offset of the time in the session's record.
const SESSION_TIME: u64 = 8 + 8 + 8 + 8;

// ---- records ----

/// The records of one perf.data.
struct Perf<'a> {
    records: Records<'a>,
    mend: Mend,
    next: Option<(u64, Bytes<'a>)>,
}

/// A record as it was read, or put together anew.
enum Bytes<'a> {
    Read(Record<'a>),
    Made(Vec<u8>),
}

impl<'a> Perf<'a> {
    fn new(records: Records<'a>, mend: Mend) -> Perf<'a> {
        let mut perf = Perf {
            records,
            mend,
            next: None,
        };
        perf.advance();
        perf
    }
}

impl Source for Perf<'_> {
    fn time(&self) -> Option<u64> {
        self.next.as_ref().map(|(time, _)| *time)
    }

    fn record(&self) -> &[u8] {
        match &self.next {
            Some((_, Bytes::Read(record))) => &record.bytes,
            Some((_, Bytes::Made(bytes))) => bytes,
            None => &[],
        }
    }

    fn advance(&mut self) {
        self.next = loop {
            let Some(record) = self.records.next() else {
                break None;
            };
            let time = record.time.unwrap_or(0);
            if let Some(bytes) = self.mend.apply(record) {
                break Some((time, bytes));
            }
        };
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings: Vec<String> = self
            .records
            .damage()
            .map(str::to_owned)
            .into_iter()
            .collect();
        let mend = &self.mend;
        let mut warn = |count: u64, what: String| {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        };
        warn(
            mend.unknown,
            "records are of no event that their file lists: left out".into(),
        );
        for (kind, count) in &mend.dropped {
            warn(
                *count,
                format!("records of type {kind} mean nothing in a merged file: left out"),
            );
        }
        warnings
    }
}

/// What an input's records need to stand in a file with others.
struct Mend {
    /// The layout of each event, None for one that is left out: an input's own session.
    events: Vec<Option<Layout>>,
    /// The layout of records that name no event: that of the file's first.
    first: Layout,
    /// Bytes of the sample id of the output's first event, which such records are read with there.
    tail: usize,
    /// The input has no PERF_SAMPLE_IDENTIFIER and gets it; where its records have no id at all, this is its one event's.
    identifier: Option<u64>,
    /// Records of an event that the file does not describe.
    unknown: u64,
    /// Records by type that mean nothing in another file.
    dropped: BTreeMap<u32, u64>,
}

impl Mend {
    fn new(reader: &Reader, input: usize, tail: usize) -> Mend {
        let first = &reader.attrs()[0];
        let identified = first.layout.sample_type & bit::IDENTIFIER != 0;
        let events = reader.attrs().iter().zip(reader.events());
        Mend {
            events: events
                .map(|(attr, info)| (info.name != SESSION).then_some(attr.layout))
                .collect(),
            first: first.layout,
            tail,
            identifier: (!identified).then(|| first.ids.first().copied().unwrap_or(made_id(input))),
            unknown: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// The record as it is written; None when it is left out.
    fn apply<'a>(&mut self, record: Record<'a>) -> Option<Bytes<'a>> {
        let bytes = &record.bytes;
        if record.kind >= record::USER {
            if KEPT.contains(&record.kind) {
                return Some(Bytes::Read(record));
            }
            if !IN_HEADER.contains(&record.kind) {
                *self.dropped.entry(record.kind).or_default() += 1;
            }
            return None;
        }
        let Some(event) = record.event.filter(|&event| event < self.events.len()) else {
            if self.first.sample_id_all || record.kind == record::SAMPLE {
                self.unknown += 1;
                return None;
            }
            return Some(Bytes::Read(record));
        };
        let layout = self.events[event]?;
        if record.kind == record::SAMPLE {
            let Some(fallback) = self.identifier else {
                return Some(Bytes::Read(record));
            };
            let id = u64_at(bytes, layout.id)
                .filter(|_| layout.id != 0)
                .unwrap_or(fallback);
            return made(&[&bytes[..8], &id.to_le_bytes(), &bytes[8..]]);
        }
        if !self.first.sample_id_all {
            return Some(Bytes::Read(record));
        }
        let id = record::from_end(bytes, layout.tail_id, layout.tail_id)
            .and_then(|at| u64_at(bytes, at));
        let grows = if self.identifier.is_some() { 8 } else { 0 };
        if id == Some(0) && self.first.tail + grows != self.tail {
            // Synthesised by perf, its sample id all zero.
            let body = bytes
                .len()
                .checked_sub(self.first.tail)
                .filter(|&size| size >= 8)?;
            return made(&[&bytes[..body], &vec![0; self.tail]]);
        }
        match self.identifier {
            Some(fallback) => made(&[bytes, &id.unwrap_or(fallback).to_le_bytes()]),
            None => Some(Bytes::Read(record)),
        }
    }
}

/// A record put together anew; None if it got too long for its size field.
fn made<'a>(parts: &[&[u8]]) -> Option<Bytes<'a>> {
    let mut bytes = parts.concat();
    let size = u16::try_from(bytes.len()).ok()?;
    bytes[6..8].copy_from_slice(&size.to_le_bytes());
    Some(Bytes::Made(bytes))
}

// ---- the file ----

/// The output while it is written: beside its place, gone unless finished.
struct Partial {
    path: PathBuf,
    target: PathBuf,
    file: BufWriter<File>,
}

impl Partial {
    fn create(target: &Path) -> Result<Partial, Error> {
        let name = target
            .file_name()
            .ok_or_else(|| mismatch(format!("{}: not a file's name", target.display())))?;
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
        Ok(Partial {
            path,
            target: target.to_owned(),
            file: BufWriter::with_capacity(1 << 20, file),
        })
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

    /// Writes at `offset`, which was written before.
    fn rewrite(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let seek = self.file.seek(SeekFrom::Start(offset));
        seek.map_err(|source| self.io(source))?;
        self.write(bytes)
    }

    fn finish(mut self) -> Result<(), Error> {
        let done = self
            .file
            .flush()
            .and_then(|()| fs::rename(&self.path, &self.target));
        done.map_err(|source| self.io(source))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After finish there is nothing of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Merges recordings that were made at once on one machine, on one clock, into one perf.data that stock perf reads.
///
/// `session` is the JSON of the `fusetools:session` sample, at most [`SESSION_MAX`] bytes; it replaces those of the inputs. Empty: the first
/// one of the inputs stays, if any. Needs memory for the rounds of the inputs, not for the files. The output is written beside `output` and
/// takes its place when it is whole; on an error nothing is left of it. Damaged inputs give what can be saved of them, and a warning.
pub fn merge(inputs: &[PathBuf], output: &Path, session: &str) -> Result<MergeInfo, Error> {
    let readers = inputs
        .iter()
        .map(|path| Reader::open(path))
        .collect::<Result<Vec<_>, _>>()?;
    let mut warnings = Warnings {
        inputs,
        lines: Vec::new(),
    };
    let mut heads = Vec::new();
    for (input, reader) in readers.iter().enumerate() {
        warnings.add(input, reader.warnings());
        heads.push(Head::read(reader, input)?);
    }
    let mut head = Head::join(heads, &mut warnings.lines)?;
    let session = match session {
        "" => readers.iter().find_map(Reader::session).unwrap_or_default(),
        _ => session.to_owned(),
    };
    head.remove_session();
    head.check()?;
    let session = if session.is_empty() {
        None
    } else {
        Some(head.add_session(&session)?)
    };
    let attr_size = head.level();
    head.add_formats(&mut warnings.lines);
    let tail = head.events.first().map_or(0, Event::tail);

    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    for (input, reader) in readers.iter().enumerate() {
        sources.push(Box::new(Perf::new(
            reader.records(),
            Mend::new(reader, input, tail),
        )));
    }
    let mut out = Partial::create(output)?;
    let start = head.encode(attr_size, 0);
    out.write(&start)?;
    let mut written = Written {
        bytes: 0,
        records: 0,
        first: None,
        samples: None,
    };
    if let Some(sample) = &session {
        written.put(&mut out, sample)?;
    }
    written.put_all(&mut out, &mut sources)?;
    for (input, source) in sources.iter_mut().enumerate() {
        warnings.add(input, &source.warnings());
    }

    head.features.insert(
        feature::EVENT_DESC,
        Cow::Owned(encode_event_desc(&head.events, attr_size)),
    );
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
    if let (Some(_), Some(first)) = (&session, written.first) {
        out.rewrite(start.len() as u64 + SESSION_TIME, &first.to_le_bytes())?;
    }
    out.finish()?;
    Ok(MergeInfo {
        records: written.records,
        warnings: warnings.lines,
    })
}

/// Sets the session of a recording, in place.
pub fn set_session(path: &Path, session: &str) -> Result<MergeInfo, Error> {
    merge(&[path.to_owned()], path, session)
}

/// Warnings, each with the input it is about where there are several.
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

/// What has been written of the data.
struct Written {
    bytes: u64,
    records: u64,
    /// Time of the first record that has one.
    first: Option<u64>,
    /// Of the first and the last sample, without the session's.
    samples: Option<(u64, u64)>,
}

impl Written {
    fn put(&mut self, out: &mut Partial, record: &[u8]) -> Result<(), Error> {
        self.bytes += record.len() as u64;
        self.records += 1;
        out.write(record)
    }

    /// Writes all records in time order; the earlier input's first where times are equal.
    fn put_all(
        &mut self,
        out: &mut Partial,
        sources: &mut [Box<dyn Source + '_>],
    ) -> Result<(), Error> {
        // Records without a time describe what was there when the recorders started: what one has said need not be said again.
        let mut said: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut init = None;
        while let Some((time, input)) = sources
            .iter()
            .enumerate()
            .filter_map(|(i, source)| Some((source.time()?, i)))
            .min()
        {
            let source = &mut sources[input];
            let record = source.record();
            let kind = u32_at(record, 0).unwrap_or(0);
            if time != 0 {
                if let Some(init) = init.take() {
                    self.put(out, init)?;
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
                if *said.entry(known).or_insert(input) == input {
                    self.put(out, record)?;
                }
            }
            source.advance();
            if self.records % ROUND == 0 && time != 0 {
                self.bytes += FINISHED_ROUND.len() as u64;
                out.write(FINISHED_ROUND)?;
            }
        }
        Ok(())
    }
}

const FINISHED_INIT: &[u8] = &[record::FINISHED_INIT as u8, 0, 0, 0, 0, 0, 8, 0];
const FINISHED_ROUND: &[u8] = &[record::FINISHED_ROUND as u8, 0, 0, 0, 0, 0, 8, 0];

impl<'a> Head<'a> {
    fn read(reader: &'a Reader, input: usize) -> Result<Head<'a>, Error> {
        let identified = |attr: &&Attr| attr.layout.sample_type & bit::IDENTIFIER != 0;
        let attrs = reader.attrs();
        if attrs.iter().filter(identified).count() % attrs.len() != 0
            || attrs.len() > 1 && attrs[0].layout.id == 0
        {
            return Err(mismatch("its samples do not tell which event they are of"));
        }
        let mut events = Vec::new();
        for (attr, info) in attrs.iter().zip(reader.events()) {
            let mut event = Event {
                attr: attr.raw.clone(),
                ids: attr.ids.clone(),
                name: info.name.clone(),
            };
            if event.ids.is_empty() {
                event.ids.push(made_id(input));
            }
            event.set(
                24,
                &(attr.layout.sample_type | bit::IDENTIFIER).to_le_bytes(),
            );
            events.push(event);
        }
        let features = reader
            .features()
            .iter()
            .filter(|(number, _)| !ANEW.contains(number));
        let features = features
            .map(|(number, range)| (*number, Cow::Borrowed(&reader.bytes()[range.clone()])))
            .collect();
        let tracing = reader
            .tracing()
            .map(|tracing| Tracing::new(reader.bytes(), tracing));
        Ok(Head {
            events,
            tracing,
            features,
        })
    }

    /// Header, ids and attrs: what stands before the data.
    fn encode(&self, attr_size: usize, data_size: u64) -> Vec<u8> {
        let ids: u64 = self
            .events
            .iter()
            .map(|event| 8 * event.ids.len() as u64)
            .sum();
        let attrs = HEADER + ids;
        let entry = attr_size as u64 + 16;
        let data = attrs + entry * self.events.len() as u64;
        let mut bits = [0u64; 4];
        for &number in self.features.keys().filter(|&&number| number < 256) {
            bits[number as usize / 64] |= 1 << (number % 64);
        }
        let mut out = file::MAGIC.to_vec();
        for value in [HEADER, entry, attrs, data - attrs, data, data_size, 0, 0]
            .into_iter()
            .chain(bits)
        {
            out.extend(value.to_le_bytes());
        }
        self.events
            .iter()
            .flat_map(|event| &event.ids)
            .for_each(|id| out.extend(id.to_le_bytes()));
        let mut at = HEADER;
        for event in &self.events {
            let size = 8 * event.ids.len() as u64;
            out.extend(&event.attr);
            out.extend(at.to_le_bytes());
            out.extend(size.to_le_bytes());
            at += size;
        }
        out
    }
}

const HEADER: u64 = 104;

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, leader: u32, members: u32) -> Vec<u8> {
        let mut out = 64u32.to_le_bytes().to_vec();
        out.extend(name.as_bytes());
        out.resize(4 + 64, 0);
        out.extend(leader.to_le_bytes());
        out.extend(members.to_le_bytes());
        out
    }

    #[test]
    fn groups_count_events_of_the_whole() {
        let [mine, others] = [(1u32, group("a", 1, 2)), (1, group("b", 0, 3))]
            .map(|(count, group)| [count.to_le_bytes().to_vec(), group].concat());
        let joined = [
            2u32.to_le_bytes().to_vec(),
            group("a", 1, 2),
            group("b", 5, 3),
        ]
        .concat();
        assert_eq!(join_groups(Some(&mine), &others, 5), Some(joined));
        assert_eq!(join_groups(None, &others[..others.len() - 1], 5), None);
        assert_eq!(join_groups(None, &u32::MAX.to_le_bytes(), 5), None);
    }

    #[test]
    fn build_ids_are_joined_without_duplicates() {
        let record = |name: u8| [0, 0, 0, 0, 0, 0, 12, 0, name, 0, 0, 0];
        let joined = join_build_ids(
            &[record(1), record(2)].concat(),
            &[record(2), record(3)].concat(),
        );
        assert_eq!(joined, Some([record(1), record(2), record(3)].concat()));
        assert_eq!(
            join_build_ids(&record(1), &[0, 0, 0, 0, 0, 0, 255, 255]),
            None
        );
        assert_eq!(join_build_ids(&record(1), &[0; 7]), None);
    }
}
