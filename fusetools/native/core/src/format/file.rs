//! Parts of a perf.data file around its records: header, attributes, features, tracing data.
//!
//! Layout: Linux tools/perf/Documentation/perf.data-file-format.txt and tools/perf/util/header.c. Every offset and
//! count in a file is checked against the file's length.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::format::record::{self, Layout};
use crate::format::tracepoint::{before_nul, Format};

/// Feature sections by their bit in the header.
pub mod feature {
    pub const TRACING_DATA: u32 = 1;
    pub const BUILD_ID: u32 = 2;
    pub const HOSTNAME: u32 = 3;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const EVENT_DESC: u32 = 12;
    pub const GROUP_DESC: u32 = 17;
    pub const AUXTRACE: u32 = 18;
    pub const SAMPLE_TIME: u32 = 21;
    pub const DIR_FORMAT: u32 = 24;
    pub const COMPRESSED: u32 = 27;
}

pub const MAGIC: &[u8; 8] = b"PERFILE2";
pub(crate) const PIPE_HEADER: usize = 16;
const HEADER: usize = 104;
/// Size of perf_event_attr's first version; a file may hold more, as its sizes show.
const ATTR_SIZE_VER0: usize = 64;
const MAX_EVENTS: usize = 1 << 14;

/// Bytes of a file: mapped, or in memory.
pub(crate) enum Bytes {
    Mapped(memmap2::Mmap, File),
    Owned(Vec<u8>),
}

thread_local! {
    /// Kept, so that it stays in the CPU's cache.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map, _) => map,
            Bytes::Owned(vec) => vec,
        }
    }
}

impl Bytes {
    pub(crate) fn open(path: &Path) -> Result<Bytes, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        // Check before opening: opening a FIFO would wait for a writer.
        let opened = crate::input::by_number(path).transpose().map_err(io)?;
        let metadata = match &opened {
            Some(file) => file.metadata(),
            None => std::fs::metadata(path),
        };
        let metadata = metadata.map_err(io)?;
        if metadata.is_dir() {
            return Err(
                if path.join("data.0").exists() || path.join("data").exists() {
                    Error::Unsupported {
                        why: "a directory, as perf record --threads makes it".into(),
                    }
                } else {
                    Error::NotPerfData {
                        why: "a directory".into(),
                    }
                },
            );
        }
        if !metadata.is_file() {
            return Err(Error::NotPerfData {
                why: "not a regular file".into(),
            });
        }
        let file = opened.map_or_else(|| File::open(path), Ok).map_err(io)?;
        if metadata.len() == 0 {
            return Ok(Bytes::Owned(Vec::new()));
        }
        // SAFETY: the map is read-only and private. As with every mapped reader, this process ends if another one
        // shortens the file meanwhile.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(Bytes::Mapped(map, file))
    }

    /// Pass a part of the file to `see`. It is copied: mapping each page costs more, and its memory stays in use.
    pub(crate) fn with<R>(&self, range: Range<usize>, see: impl FnOnce(&[u8]) -> R) -> R {
        let Bytes::Mapped(_, file) = self else {
            return see(&self[range]);
        };
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < range.len() {
                buffer.resize(range.len(), 0);
            }
            let part = &mut buffer[..range.len()];
            match file.read_exact_at(part, range.start as u64) {
                Ok(()) => see(part),
                Err(_) => see(&self[range]),
            }
        })
    }
}

/// Event as it was opened: perf_event_attr and the ids that its samples carry.
#[derive(Clone, Debug)]
pub struct Attr {
    /// perf_event_attr as in the file (64 bytes or more).
    pub raw: Vec<u8>,
    pub ids: Vec<u64>,
    /// PERF_TYPE_*: 2 is a tracepoint, whose `config` is its format's id.
    pub kind: u32,
    pub config: u64,
    pub layout: Layout,
}

pub const TYPE_TRACEPOINT: u32 = 2;
/// Bit of perf_event_attr's flags: sample_freq instead of sample_period.
const FREQ: u64 = 1 << 10;

impl Attr {
    /// Return whether only some of a tracepoint's events were sampled.
    pub fn is_sampled(&self) -> bool {
        let at = |offset| record::u64_at(&self.raw, offset).unwrap_or(0);
        self.kind == TYPE_TRACEPOINT && (at(40) & FREQ != 0 || at(16) > 1)
    }

    fn parse(raw: &[u8], ids: Vec<u64>) -> Option<Attr> {
        let at = |offset| record::u64_at(raw, offset);
        if raw.len() < ATTR_SIZE_VER0 {
            return None;
        }
        let layout = Layout::new(at(24)?, at(32)?, at(40)?);
        Some(Attr {
            kind: record::u32_at(raw, 0)?,
            config: at(8)?,
            layout,
            ids,
            raw: raw.to_owned(),
        })
    }

    pub fn is_tracepoint(&self) -> bool {
        self.kind == TYPE_TRACEPOINT
    }
}

/// Tracing data that `perf record` copies from tracefs. Ranges refer to the file.
#[derive(Clone, Debug, Default)]
pub struct Tracing {
    /// From the magic to the end, as in the file.
    pub whole: Range<usize>,
    /// "0.5" or "0.6".
    pub version: String,
    pub long_size: usize,
    pub page_size: u32,
    pub header_page: Range<usize>,
    pub header_event: Range<usize>,
    /// Format texts of events/ftrace.
    pub ftrace: Vec<Range<usize>>,
    /// Format texts by system.
    pub systems: Vec<(String, Vec<Range<usize>>)>,
    pub kallsyms: Range<usize>,
    pub printk: Range<usize>,
    pub cmdlines: Range<usize>,
    /// Formats of all systems, parsed; ftrace's own first.
    pub formats: Vec<Arc<Format>>,
}

/// All of a file but its records.
#[derive(Default)]
pub(crate) struct Parts {
    pub attrs: Vec<Attr>,
    /// Name in EVENT_DESC or EVENT_UPDATE, one per attr.
    pub names: Vec<Option<String>>,
    /// Feature sections by bit.
    pub features: Vec<(u32, Range<usize>)>,
    pub tracing: Option<Tracing>,
    /// Range of the records.
    pub data: Range<usize>,
    pub pipe: bool,
    pub warnings: Vec<String>,
}

/// Cursor that reads a file front to back and checks every step.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8], range: Range<usize>) -> Cursor<'a> {
        Cursor {
            bytes,
            at: range.start,
            end: range.end.min(bytes.len()),
        }
    }

    fn take(&mut self, len: u64) -> Option<Range<usize>> {
        let len = usize::try_from(len).ok()?;
        let stop = self.at.checked_add(len).filter(|&stop| stop <= self.end)?;
        let range = self.at..stop;
        self.at = stop;
        Some(range)
    }

    fn u8(&mut self) -> Option<u8> {
        let range = self.take(1)?;
        self.bytes.get(range.start).copied()
    }

    fn u32(&mut self) -> Option<u32> {
        record::u32_at(self.bytes, self.take(4)?.start)
    }

    fn u64(&mut self) -> Option<u64> {
        record::u64_at(self.bytes, self.take(8)?.start)
    }

    fn sized(&mut self) -> Option<Range<usize>> {
        let len = self.u64()?;
        self.take(len)
    }

    /// Read text up to a NUL, and skip that.
    fn text(&mut self) -> Option<String> {
        let rest = self.bytes.get(self.at..self.end)?;
        let len = rest.iter().position(|&b| b == 0)?;
        self.at += len + 1;
        Some(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    /// Read perf's header string: u32 length, then that many bytes with NUL padding.
    fn header_text(&mut self) -> Option<String> {
        let len = self.u32()?;
        let range = self.take(len as u64)?;
        Some(until_nul(self.bytes.get(range)?))
    }
}

pub(crate) fn until_nul(bytes: &[u8]) -> String {
    text(before_nul(bytes)).into_owned()
}

/// Decode like from_utf8_lossy, which takes much longer for valid text.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Return a feature that is one header string.
pub(crate) fn header_text(bytes: &[u8], range: &Range<usize>) -> Option<String> {
    Cursor::new(bytes, range.clone())
        .header_text()
        .filter(|text| !text.is_empty())
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Parts, Error> {
    let magic = bytes.get(..8).ok_or_else(|| Error::NotPerfData {
        why: if bytes.is_empty() {
            "empty".into()
        } else {
            format!("only {} bytes", bytes.len())
        },
    })?;
    match magic {
        b"PERFILE2" => {}
        b"2ELIFREP" => return Err(Error::BigEndian),
        b"PERFFILE" => {
            return Err(Error::Unsupported {
                why: "written by a perf before Linux 3.6 (2012)".into(),
            })
        }
        _ => {
            return Err(Error::NotPerfData {
                why: "it does not begin with PERFILE2".into(),
            })
        }
    }
    let size = record::u64_at(bytes, 8)
        .ok_or_else(|| Error::damaged("the header ends early", bytes.len()))?;
    match size as usize {
        PIPE_HEADER => parse_pipe(bytes),
        HEADER => parse_file(bytes),
        size => Err(Error::damaged(
            format!("a header of {size} bytes (16 and {HEADER} are known)"),
            8,
        )),
    }
}

/// Return a section (offset, size) of the header at `at`, unchecked.
fn section(bytes: &[u8], at: usize) -> Option<(u64, u64)> {
    Some((record::u64_at(bytes, at)?, record::u64_at(bytes, at + 8)?))
}

/// Return the section as a range. None if it does not lie in the file.
fn within(bytes: &[u8], (offset, size): (u64, u64)) -> Option<Range<usize>> {
    let end = offset
        .checked_add(size)
        .filter(|&end| end <= bytes.len() as u64)?;
    Some(offset as usize..end as usize)
}

fn parse_file(bytes: &[u8]) -> Result<Parts, Error> {
    let short = || Error::damaged("the header ends early", bytes.len());
    let mut parts = Parts::default();
    let attr_size = record::u64_at(bytes, 16).ok_or_else(short)?;
    let attrs = section(bytes, 24).ok_or_else(short)?;
    let data = section(bytes, 40).ok_or_else(short)?;
    let mut bits = [0u64; 4];
    for (i, word) in bits.iter_mut().enumerate() {
        *word = record::u64_at(bytes, 72 + 8 * i).ok_or_else(short)?;
    }

    // Each entry: perf_event_attr, then the section of its ids.
    let entry = usize::try_from(attr_size)
        .ok()
        .filter(|&n| (ATTR_SIZE_VER0 + 16..=4096).contains(&n));
    let entry =
        entry.ok_or_else(|| Error::damaged(format!("events of {attr_size} bytes each"), 16))?;
    let range = within(bytes, attrs)
        .ok_or_else(|| Error::damaged("the list of events lies outside the file", 24))?;
    if range.len() % entry != 0 {
        parts.warnings.push(format!(
            "the list of events is {} bytes, not a multiple of {entry}",
            range.len()
        ));
    }
    // Sections may overlap: bound their sum, not each alone.
    let mut budget = bytes.len() / 8;
    for (i, raw) in bytes[range.clone()].chunks_exact(entry).enumerate() {
        let at = range.start + i * entry;
        let ids = section(raw, entry - 16).and_then(|s| within(bytes, s));
        let ids = ids.filter(|ids| ids.len() % 8 == 0 && ids.len() / 8 <= budget);
        let ids = ids.ok_or_else(|| Error::damaged("an event's ids lie outside the file", at))?;
        budget -= ids.len() / 8;
        let ids = bytes[ids]
            .chunks_exact(8)
            .filter_map(|id| record::u64_at(id, 0))
            .collect();
        parts.attrs.extend(Attr::parse(&raw[..entry - 16], ids));
    }

    let start = usize::try_from(data.0)
        .ok()
        .filter(|&start| (HEADER..=bytes.len()).contains(&start));
    let start = start.ok_or_else(|| Error::damaged("the records lie outside the file", 40))?;
    let finished = data.1 != 0;
    let end = within(bytes, data).map(|range| range.end);
    parts.data = start..end.unwrap_or(bytes.len());
    if !finished {
        parts.data.end = bytes.len();
        parts.warnings.push(
            "the recording was never finished (its recorder was killed): it holds no names and formats of its events".into(),
        );
    } else if end.is_none() {
        parts.warnings.push(format!(
            "the file is cut short: {} of {} bytes of records are there, names and formats of its events are missing",
            bytes.len() - start,
            data.1
        ));
    }

    // The table of feature sections follows the records, in the order of the bits.
    if let (true, Some(mut at)) = (finished, end) {
        for bit in (0..256u32).filter(|bit| bits[*bit as usize / 64] >> (bit % 64) & 1 == 1) {
            let Some(claim) = section(bytes, at) else {
                parts
                    .warnings
                    .push("the file is cut short in its list of features".into());
                break;
            };
            at += 16;
            match within(bytes, claim) {
                Some(range) => parts.features.push((bit, range)),
                None => parts.warnings.push(format!(
                    "the file is cut short: feature {bit} lies outside it"
                )),
            }
        }
    }
    let find = |bit| {
        parts
            .features
            .iter()
            .find(|(b, _)| *b == bit)
            .map(|(_, range)| range.clone())
    };
    parts.names = vec![None; parts.attrs.len()];
    check_number(&parts.attrs, 24)?;
    if let Some(range) = find(feature::EVENT_DESC) {
        if !event_desc(bytes, range, &parts.attrs, &mut parts.names) {
            parts
                .warnings
                .push("the list of event names is damaged".into());
        }
    }
    if let Some(range) = find(feature::TRACING_DATA) {
        tracing_or_warn(bytes, range, &mut parts)?;
    }
    Ok(parts)
}

/// Check the number of events. More than any perf opens would only cost time.
fn check_number(attrs: &[Attr], at: usize) -> Result<(), Error> {
    match attrs.len() {
        0 => Err(Error::damaged("it lists no events", at)),
        1..=MAX_EVENTS => Ok(()),
        n => Err(Error::damaged(format!("it lists {n} events"), at)),
    }
}

fn tracing_or_warn(bytes: &[u8], range: Range<usize>, parts: &mut Parts) -> Result<(), Error> {
    let (tracing, whole) = tracing_data(bytes, range)?;
    if !whole {
        parts
            .warnings
            .push("the event formats are damaged or cut short: some fields may be missing".into());
    }
    parts.tracing = Some(tracing);
    Ok(())
}

/// Set the names in EVENT_DESC, by the ids, else by position. Return false if the section ends early.
fn event_desc(
    bytes: &[u8],
    range: Range<usize>,
    attrs: &[Attr],
    names: &mut [Option<String>],
) -> bool {
    let mut cursor = Cursor::new(bytes, range);
    let mut known = HashMap::new();
    for (index, attr) in attrs.iter().enumerate() {
        known
            .entry((Some(attr.config), attr.ids.first().copied()))
            .or_insert(index);
    }
    let mut read = || -> Option<()> {
        let (count, attr_size) = (cursor.u32()?, cursor.u32()?);
        for position in 0..count as usize {
            let attr = cursor.take(attr_size as u64)?;
            let config = bytes.get(attr).and_then(|attr| record::u64_at(attr, 8));
            let nr_ids = cursor.u32()?;
            let name = cursor.header_text()?;
            let ids = cursor.take(8 * nr_ids as u64)?;
            let first = bytes.get(ids).and_then(|ids| record::u64_at(ids, 0));
            // Without ids several are alike: take the one at this position.
            let index = match attrs.get(position) {
                Some(attr) if (Some(attr.config), attr.ids.first().copied()) == (config, first) => {
                    Some(position)
                }
                _ => known.get(&(config, first)).copied(),
            };
            if let Some(slot) = index.and_then(|i| names.get_mut(i)) {
                *slot = Some(name);
            }
        }
        Some(())
    };
    read().is_some()
}

/// Parse tracing data (Linux tools/perf/util/trace-event-read.c). The flag is false if the data ends early.
pub(crate) fn tracing_data(bytes: &[u8], range: Range<usize>) -> Result<(Tracing, bool), Error> {
    let mut tracing = Tracing {
        whole: range.clone(),
        long_size: 8,
        ..Tracing::default()
    };
    let start = range.start;
    let mut cursor = Cursor::new(bytes, range);
    if bytes.get(start..start + 10) != Some(b"\x17\x08\x44tracing") {
        return Ok((tracing, false));
    }
    cursor.at += 10;
    let mut big_endian = false;
    let mut texts: Vec<(usize, Range<usize>)> = Vec::new();
    let mut read = |tracing: &mut Tracing| -> Option<()> {
        tracing.version = cursor.text()?;
        big_endian = cursor.u8()? != 0;
        tracing.long_size = usize::from(cursor.u8()?);
        tracing.page_size = cursor.u32()?;
        for (name, which) in [("header_page", 0), ("header_event", 1)] {
            if cursor.text()? != name {
                return None;
            }
            let text = cursor.sized()?;
            *if which == 0 {
                &mut tracing.header_page
            } else {
                &mut tracing.header_event
            } = text;
        }
        for _ in 0..cursor.u32()? {
            let text = cursor.sized()?;
            tracing.ftrace.push(text);
        }
        for _ in 0..cursor.u32()? {
            let name = cursor.text()?;
            tracing.systems.push((name, Vec::new()));
            let system = tracing.systems.len() - 1;
            for _ in 0..cursor.u32()? {
                let text = cursor.sized()?;
                tracing.systems[system].1.push(text.clone());
                texts.push((system, text));
            }
        }
        let len = cursor.u32()?;
        tracing.kallsyms = cursor.take(len as u64)?;
        let len = cursor.u32()?;
        tracing.printk = cursor.take(len as u64)?;
        // Command lines exist since version 0.6.
        if tracing.version != "0.5" {
            tracing.cmdlines = cursor.sized()?;
        }
        Some(())
    };
    let whole = read(&mut tracing).is_some();
    if big_endian {
        return Err(Error::BigEndian);
    }
    if !matches!(tracing.long_size, 4 | 8) {
        tracing.long_size = 8;
    }
    let parse = |system: &str, text: &Range<usize>| {
        let text = String::from_utf8_lossy(&bytes[text.clone()]);
        Format::parse(system, &text, tracing.long_size).map(Arc::new)
    };
    let mut formats: Vec<Arc<Format>> = tracing
        .ftrace
        .iter()
        .filter_map(|text| parse("ftrace", text))
        .collect();
    formats.extend(
        texts
            .iter()
            .filter_map(|(system, text)| parse(&tracing.systems[*system].0, text)),
    );
    tracing.formats = formats;
    Ok((tracing, whole))
}

/// Parse a recording in pipe mode: attrs, features and tracing data come as records before the samples.
fn parse_pipe(bytes: &[u8]) -> Result<Parts, Error> {
    let mut parts = Parts {
        data: PIPE_HEADER..bytes.len(),
        pipe: true,
        ..Parts::default()
    };
    let mut updates = HashMap::new();
    let mut at = PIPE_HEADER;
    while let Ok(header) = record::Header::at(bytes, at) {
        let range = at..at + header.size;
        match header.kind {
            record::HEADER_ATTR => pipe_attr(&bytes[range], &mut parts),
            record::EVENT_UPDATE => updates.extend(pipe_update(&bytes[range])),
            record::HEADER_FEATURE => {
                // u64 bit, then the section.
                if let Some(bit) =
                    record::u64_at(bytes, at + 8).filter(|bit| *bit < 256 && range.len() >= 16)
                {
                    parts.features.push((bit as u32, at + 16..range.end));
                }
            }
            record::HEADER_TRACING_DATA => {
                let end = (range.end + header.extra(bytes, at)).min(bytes.len());
                tracing_or_warn(bytes, range.end..end, &mut parts)?;
            }
            record::SAMPLE | record::COMPRESSED | record::COMPRESSED2 | record::FINISHED_ROUND => {
                break
            }
            _ => {}
        }
        let Some(next) = range_end(at, header.size, header.extra(bytes, at)) else {
            break;
        };
        at = next;
    }
    check_number(&parts.attrs, PIPE_HEADER)?;
    for (attr, name) in parts.attrs.iter().zip(&mut parts.names) {
        *name = attr.ids.iter().find_map(|id| updates.get(id).cloned());
    }
    let names = parts
        .features
        .iter()
        .find(|(bit, _)| *bit == feature::EVENT_DESC)
        .map(|(_, range)| range.clone());
    if let Some(range) = names {
        if !event_desc(bytes, range, &parts.attrs, &mut parts.names) {
            parts
                .warnings
                .push("the list of event names is damaged".into());
        }
    }
    Ok(parts)
}

pub(crate) fn range_end(at: usize, size: usize, extra: usize) -> Option<usize> {
    at.checked_add(size)?.checked_add(extra)
}

/// Add the attr of a HEADER_ATTR: header, perf_event_attr (with its own `size`), then the ids.
fn pipe_attr(record: &[u8], parts: &mut Parts) {
    let size = record::u32_at(record, 12).map_or(0, |size| size as usize);
    let size = if size == 0 { ATTR_SIZE_VER0 } else { size };
    let Some(raw) = record.get(8..8 + size) else {
        let what = "an event's description is damaged";
        if !parts.warnings.iter().any(|warning| warning == what) {
            parts.warnings.push(what.into());
        }
        return;
    };
    let ids = record[8 + size..]
        .chunks_exact(8)
        .filter_map(|id| record::u64_at(id, 0))
        .collect();
    if let Some(attr) = Attr::parse(raw, ids) {
        parts.attrs.push(attr);
        parts.names.push(None);
    }
}

/// Return the id and the name in an EVENT_UPDATE: header, u64 what (2 = name), u64 id, then the name.
fn pipe_update(record: &[u8]) -> Option<(u64, String)> {
    const NAME: u64 = 2;
    record::u64_at(record, 8).filter(|what| *what == NAME)?;
    Some((record::u64_at(record, 16)?, until_nul(record.get(24..)?)))
}
