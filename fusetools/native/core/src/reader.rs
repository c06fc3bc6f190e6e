//! Reads perf.data: one pass over the mapped file on several cores, which yields batches of events in time order.
//!
//! The records are cut into chunks that workers read at the same time. The begin of a chunk's first record is a guess,
//! since only the record before it shows it. The guess counts only if the chunk before ends exactly there; else the
//! chunk is read again from the right place. So the result never depends on it.
//!
//! Time order is as in perf: the kernel's buffers are copied out in rounds, each in buffer order. After a round
//! (FINISHED_ROUND) nothing older than the end of the round before it can follow. Where it does (late.rs), a scan
//! reports it, and `records` sorts it in.

mod blocks;
mod fields;
mod ids;
mod join;
mod late;
mod order;
mod places;
mod records;
mod scan;
mod stream;
mod tail;
mod window;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref, Range};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use zstd::bulk::Decompressor;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use crate::error::Error;
use crate::events::{Batch, Chain, Ev, Layer, Map, Meaning, Role, Side, ABSENT};
use crate::format::file::{self, feature, until_nul, Attr, Bytes, Parts, Tracing};
use crate::format::record::{self, bit, u32_at, u64_at, Header, Layout, NoRecord};
use crate::format::tracepoint::{number, Field, Format, Shape, Value};
use crate::programs::compat::Compat;
use crate::programs::files::VDSO;
use crate::reader::join::{Begins, Join};
use crate::threads;

use blocks::{unpack, Block, Blocks, Piece, Storage};
use fields::Take;
use ids::Ids;
use order::{latest, Order, Rounds, Sink};
use places::Place;
pub use places::Places;
pub use records::{Record, Records};
pub(crate) use scan::space_change;
use scan::{side_time, side_time_mut, timed, End, Part, ScanPlan, Stacks, Tally, View};
pub use stream::Stream;
pub use tail::Tail;
pub use window::{Extent, Window};

/// Event with the recording's own facts.
pub const SESSION: &str = "fusetools:session";

/// Bytes of records that a worker reads at a time, chosen so that the decoded events stay in cache.
const CHUNK: usize = 256 << 10;
/// Maximum size of a recording that is read as one chunk, since there is too little for workers to share.
const SMALL: usize = 4 << 20;
/// Size in bytes that most records do not reach, and upper bound of a record's size, which has 16 bits.
const RECORD: usize = 1 << 12;
const RECORD_MAX: usize = 1 << 16;
/// Number of events that are gathered before they are sorted and handed on.
const BATCH: usize = 1 << 12;
/// Limit of what compressed records may grow to, in all: this many times their size, and this much more. perf's own
/// shrink 5 to 30 times.
const EXPANSION: usize = 1000;
const EXPANSION_FREE: usize = 64 << 20;

/// Maximum number of words of all different stacks: 256 MB, far more than hours of recording have.
const MOST_STACK_WORDS: usize = 1 << 25;

/// Maximum number of symbols read: a merged recording holds only those of its events.
const MOST_SYMBOLS: usize = 1 << 18;

/// Event of the recording.
#[derive(Clone, Debug)]
pub struct EventInfo {
    /// "system:name" for a tracepoint, else perf's name ("cycles:u").
    pub name: String,
    /// perf_event_attr.config; the format's id for a tracepoint.
    pub config: u64,
    /// Ids that its samples carry.
    pub ids: Vec<u64>,
    /// None if it is no tracepoint, or if the recording has lost its formats.
    pub format: Option<Arc<Format>>,
}

/// Result of a scan, apart from the batches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScanInfo {
    /// Times of the first and the last sample in ns on the recording's clock; 0 without samples.
    pub first: u64,
    pub last: u64,
    /// Number of samples per entry of `events()`.
    #[serde(skip)]
    pub counts: Vec<u64>,
    /// Number of events that the kernel could not write.
    pub lost: u64,
    /// Number of times that the kernel throttled an event.
    pub throttled: u64,
    pub warnings: Vec<String>,
}

/// Open perf.data: header, attrs, ids, features, formats. The records stay in the file.
pub struct Reader {
    bytes: Bytes,
    parts: Parts,
    events: Vec<EventInfo>,
    ids: Arc<Ids>,
    chunk: usize,
    /// Time before which `records` leaves events out; 0: none are left out.
    since: u64,
    /// Time from which on `records` leaves events out; MAX: none are left out.
    until: u64,
}

impl Reader {
    /// Map the file and read all but its records.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Reader::new(Bytes::open(path)?)
    }

    /// Read a file's bytes from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, Error> {
        Reader::new(Bytes::Owned(bytes))
    }

    pub(crate) fn new(bytes: Bytes) -> Result<Reader, Error> {
        let mut parts = file::parse(&bytes)?;
        let events = name_events(&mut parts);
        let ids = Arc::new(Ids::new(&parts.attrs, &mut parts.warnings));
        let small = parts.data.len() <= SMALL;
        Ok(Reader {
            bytes,
            parts,
            events,
            ids,
            chunk: if small { SMALL } else { CHUNK },
            since: 0,
            until: u64::MAX,
        })
    }

    /// Set how many bytes a worker reads at a time. The result does not depend on it.
    #[doc(hidden)]
    pub fn set_chunk(&mut self, bytes: usize) {
        self.chunk = bytes.max(8);
    }

    /// Return the recording's events, one per attr and in their order.
    pub fn events(&self) -> &[EventInfo] {
        &self.events
    }

    /// Return the attrs as they are in the file, with their ids.
    pub fn attrs(&self) -> &[Attr] {
        &self.parts.attrs
    }

    /// Return the feature sections by bit (`file::feature`), as ranges of `bytes()`.
    pub fn features(&self) -> &[(u32, Range<usize>)] {
        &self.parts.features
    }

    /// Return the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Return the range of the records, including those of a pipe's header.
    pub fn data(&self) -> Range<usize> {
        self.parts.data.clone()
    }

    /// Return whether the recording was written to a pipe: its attrs and features are records.
    pub fn is_pipe(&self) -> bool {
        self.parts.pipe
    }

    pub fn tracing(&self) -> Option<&Tracing> {
        self.parts.tracing.as_ref()
    }

    /// Return warnings about the file's tables. A scan's warnings begin with these.
    pub fn warnings(&self) -> &[String] {
        &self.parts.warnings
    }

    /// Return a feature that is one string.
    fn text(&self, bit: u32) -> Option<String> {
        let (_, range) = self.parts.features.iter().find(|(b, _)| *b == bit)?;
        file::header_text(&self.bytes, range)
    }

    /// Return the machine's architecture, e.g. "x86_64".
    pub fn arch(&self) -> Option<String> {
        self.text(feature::ARCH)
    }

    pub fn hostname(&self) -> Option<String> {
        self.text(feature::HOSTNAME)
    }

    /// Return the kernel's release.
    pub fn os_release(&self) -> Option<String> {
        self.text(feature::OSRELEASE)
    }

    /// Return the number of CPUs that were online (the second number of perf's HEADER_NRCPUS).
    pub fn cpus(&self) -> Option<u32> {
        let (_, range) = self
            .parts
            .features
            .iter()
            .find(|(b, _)| *b == feature::NRCPUS)?;
        let bytes = self.bytes.get(range.clone())?.get(4..8)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Return the start and name of the kernel functions that the recording names (those of its function_graph events),
    /// by start.
    pub fn kernel_functions(&self) -> Vec<(u64, String)> {
        let Some(tracing) = self.tracing() else {
            return Vec::new();
        };
        // "ADDRESS TYPE NAME", then a tab and "[MODULE]".
        let symbol = |line: &[u8]| {
            let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let text = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next().filter(|_| text && address != 0)?;
            Some((address, name.to_owned()))
        };
        let lines = self.bytes[tracing.kallsyms.clone()].split(|byte| *byte == b'\n');
        let mut functions: Vec<_> = lines.filter_map(symbol).take(MOST_SYMBOLS).collect();
        functions.sort();
        functions.dedup_by_key(|(address, _)| *address);
        functions
    }

    /// Return where the kernel lay: a symbol and its address, which perf writes at the beginning.
    pub fn kernel_place(&self) -> Option<(String, u64)> {
        const MOST: usize = 4096;
        let mut blocks = Blocks::new(&self.bytes, self.parts.data.clone(), self.chunk);
        let block = blocks.next_block()?;
        let mut at = 0;
        for _ in 0..MOST {
            let header = Header::at(&block, at).ok()?;
            let record = &block[at..at + header.size];
            if header.kind == record::MMAP && header.misc & 7 == record::MISC_KERNEL {
                let name = until_nul(record.get(40..)?);
                if let Some(symbol) = name.strip_prefix("[kernel.kallsyms]") {
                    return Some((symbol.to_owned(), u64_at(record, 32)?));
                }
            }
            at = file::range_end(at, header.size, header.extra(&block, at))?;
        }
        None
    }

    /// Return the events that sample what runs: no tracepoints, and not the one that only brings side-band records.
    /// Each comes with the unit of its period: true for ns (the kernel's clocks).
    pub fn samples(&self) -> Vec<(&str, bool)> {
        const SOFTWARE: u32 = 1;
        const DUMMY: u64 = 9;
        let named = self.events.iter().zip(&self.parts.attrs);
        named
            .filter(|(event, attr)| {
                let other = (attr.kind, attr.config) == (SOFTWARE, DUMMY);
                !attr.is_tracepoint() && !other && event.name != record::OFF_CPU
            })
            // cpu-clock and task-clock
            .map(|(event, attr)| (&*event.name, attr.kind == SOFTWARE && attr.config < 2))
            .collect()
    }

    /// Return whether the recording has waits by `perf record --off-cpu`.
    pub fn off_cpu(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| event.name == record::OFF_CPU)
    }

    /// Return the events whose samples have a stack.
    pub fn stacks(&self) -> Vec<&str> {
        let named = self.events.iter().zip(&self.parts.attrs);
        let stacked = named.filter(|(_, attr)| attr.layout.has_chain());
        stacked.map(|(event, _)| &*event.name).collect()
    }

    /// Return the events whose samples may hold memory or registers of processes: copies of stacks, or parts that are unknown here.
    pub fn of_memory(&self) -> Vec<String> {
        let known = bit::IP | bit::TID | bit::TIME | bit::ADDR | bit::READ | bit::CALLCHAIN;
        let known = known | bit::ID | bit::CPU | bit::PERIOD | bit::STREAM_ID | bit::RAW;
        let known = known | bit::WEIGHT | bit::DATA_SRC | bit::IDENTIFIER;
        let named = self.events.iter().zip(&self.parts.attrs);
        let more = named.filter(|(_, attr)| attr.layout.sample_type & !known != 0);
        more.map(|(event, _)| event.name.clone()).collect()
    }

    /// Return the kernel's symbols in the recording: those it needs, or all. None without symbols.
    pub fn kallsyms(&self) -> Option<&[u8]> {
        let range = &self.tracing()?.kallsyms;
        self.bytes
            .get(range.clone())
            .filter(|text| !text.is_empty())
    }

    /// Return the header's list of files and their build ids, by path.
    pub fn build_ids(&self) -> FxHashMap<String, Vec<u8>> {
        let mut ids = FxHashMap::default();
        let (sections, wanted) = (self.features().iter(), feature::BUILD_ID);
        for (_, range) in sections.filter(|(bit, _)| *bit == wanted) {
            // 8 bytes of header, pid, 24 bytes with the build id, path.
            let mut rest = &self.bytes()[range.clone()];
            while let Some(word) = u64_at(rest, 0) {
                let (misc, size) = ((word >> 32) as u16, (word >> 48) as usize);
                let Some(record) = rest.get(..size).filter(|record| record.len() > 36) else {
                    break;
                };
                // Newer records hold the build id's length.
                let len = match misc & 1 << 15 {
                    0 => 20,
                    _ => usize::from(record[32]).min(20),
                };
                ids.insert(until_nul(&record[36..]), record[12..12 + len].to_vec());
                rest = &rest[size..];
            }
        }
        ids
    }

    /// Return the version of the perf that recorded.
    pub fn perf_version(&self) -> Option<String> {
        self.text(feature::VERSION)
    }

    /// Return the JSON text of the samples `fusetools:session`, which follow each other. Read only the records up to
    /// them, and none if there is no such event.
    pub fn session(&self) -> Option<String> {
        let mut text = Vec::new();
        let wanted = self.events.iter().position(|event| event.name == SESSION)?;
        let field = self.events[wanted].format.as_ref()?.field("json")?;
        let layout = &self.parts.attrs[wanted].layout;
        let mut blocks = Blocks::new(&self.bytes, self.parts.data.clone(), self.chunk);
        while let Some(block) = blocks.next_block() {
            let mut at = 0;
            while let Ok(header) = Header::at(&block, at) {
                let bytes = &block[at..at + header.size];
                if header.kind == record::SAMPLE && self.ids.of_sample(bytes) == Some(wanted) {
                    if let Some(Value::Text(json)) =
                        layout.raw(bytes).and_then(|raw| field.value(raw))
                    {
                        text.extend(json.iter().take_while(|&&byte| byte != 0));
                    }
                } else if !text.is_empty() {
                    return Some(String::from_utf8_lossy(&text).into_owned());
                }
                match file::range_end(at, header.size, header.extra(&block, at)) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Return the index of a record's event in `events()`. None for records of perf's own and for ids that no event
    /// has.
    fn event_of(&self, header: Header, bytes: &[u8]) -> Option<usize> {
        match header.kind {
            record::SAMPLE => self.ids.of_sample(bytes),
            record::USER.. => None,
            _ => self.ids.of_other(bytes),
        }
    }

    /// Return a block of the file as it is, not of unpacked records.
    fn block(&self, range: Range<usize>) -> Block<'_> {
        Block(Storage::Mapped(&self.bytes[range]))
    }

    fn record<'a>(&self, header: Header, bytes: Block<'a>) -> Record<'a> {
        let event = self.event_of(header, &bytes);
        let layout = event
            .and_then(|index| self.parts.attrs.get(index))
            .map(|attr| attr.layout);
        let time = layout.and_then(|layout| match header.kind {
            record::SAMPLE if layout.time != 0 => u64_at(&bytes, layout.time),
            record::SAMPLE => None,
            _ if layout.sample_id_all => layout.tail_time(&bytes),
            _ => None,
        });
        Record {
            kind: header.kind,
            misc: header.misc,
            time: time.filter(timed),
            event,
            bytes,
        }
    }

    /// Return all records in time order, also those that perf wrote later than its rounds allow (unless it compressed
    /// them). Records without a time stay at their place.
    pub fn records(&self) -> Records<'_> {
        Records {
            late: self.late().map(|late| late.into_iter().peekable()),
            ..self.records_by_rounds()
        }
    }

    /// Return the records without a look at the whole file first. Late ones come late; `next_in_file` yields all in
    /// file order.
    fn records_by_rounds(&self) -> Records<'_> {
        Records {
            reader: self,
            blocks: Blocks::new(&self.bytes, self.parts.data.clone(), self.chunk),
            block: None,
            at: 0,
            pending: Vec::new(),
            ready: Vec::new().into_iter(),
            rounds: Rounds::default(),
            late: None,
            ended: false,
            named: FxHashSet::default(),
        }
    }

    /// Read the recording in one pass on several cores. `sink` gets batches in time order. Only what the catalogue
    /// names is decoded.
    ///
    /// `Side::Switch` comes only if the catalogue names a switch or a waking: nothing else needs it. Damaged records
    /// end the pass with a warning; everything before them is good.
    pub fn scan(
        &self,
        catalogue: &[Meaning],
        sink: &mut dyn FnMut(Batch),
    ) -> Result<ScanInfo, Error> {
        Ok(self.scan_noting(catalogue, sink)?.0)
    }

    /// Scan, and note the places for `scan_within`.
    pub fn scan_noting(
        &self,
        catalogue: &[Meaning],
        sink: &mut dyn FnMut(Batch),
    ) -> Result<(ScanInfo, Places), Error> {
        let plan = ScanPlan::new(self, catalogue, None);
        let mut join = Join::new(catalogue);
        let mut compat = Compat::new(catalogue, self.arch().as_deref());
        let mut changes = Vec::new();
        let mut begins = Begins::new();
        let mut numbered = |mut batch: Batch| {
            let (last, events) = (latest(&batch), batch.events.len());
            join.number(&mut batch);
            begins.note(last, events, &join);
            compat.number(&mut batch, &mut changes);
            sink(batch);
        };
        let sink: &mut dyn FnMut(Batch) = &mut numbered;
        let mut order = Order::new(self.events.len(), sink);
        order.stacked.clone_from(&plan.stacked);
        order.warnings.extend(self.parts.warnings.iter().cloned());
        order.places = Some(Vec::new());
        self.scan_part(&plan, &mut order, self.data());
        let (info, places) = order.finish();
        let begins = if join.used {
            begins.finish()
        } else {
            Vec::new()
        };
        let places = Places::new(places.unwrap_or_default(), changes, begins);
        Ok((info, places))
    }

    /// Read the recording again, with the catalogue of the pass that noted the places. System calls and scheduler
    /// events, which are most of a recording, are decoded only in the windows. `windows`: ns, both ends included,
    /// sorted by start, not overlapping. Other events and records are decoded at least there. Return what was read.
    pub fn scan_within(
        &self,
        catalogue: &[Meaning],
        places: &Places,
        windows: Vec<(u64, u64)>,
        sink: &mut dyn FnMut(Batch),
    ) -> ScanInfo {
        let mut join = Join::new(catalogue);
        let mut compat = Compat::new(catalogue, self.arch().as_deref());
        let (wider, begins) = places.joined(&windows);
        let parts = places.within(&wider);
        let (mut changes, mut begins) = (places.changes(), &begins[..]);
        let mut numbered = |mut batch: Batch| {
            join.number_again(&mut batch, &mut begins);
            match &parts {
                Some(_) => compat.number_again(&mut batch, &mut changes),
                None => compat.number(&mut batch, &mut Vec::new()),
            }
            sink(batch);
        };
        let sink: &mut dyn FnMut(Batch) = &mut numbered;
        let plan = ScanPlan::new(self, catalogue, Some(windows));
        let mut order = Order::new(self.events.len(), sink);
        order.stacked.clone_from(&plan.stacked);
        match &parts {
            Some(parts) => parts
                .iter()
                .for_each(|part| self.scan_part(&plan, &mut order, part.clone())),
            None => self.scan_part(&plan, &mut order, self.data()),
        }
        order.finish().0
    }

    /// Read whole records.
    fn scan_part(&self, plan: &ScanPlan, order: &mut Order<impl Sink>, data: Range<usize>) {
        if let Some(at) = self.scan_mapped(plan, order, data.clone()) {
            self.scan_compressed(plan, order, at..data.end);
        }
    }

    /// Read the records where they lie. Return the place of the first compressed record, if any.
    fn scan_mapped(
        &self,
        plan: &ScanPlan,
        order: &mut Order<impl Sink>,
        data: Range<usize>,
    ) -> Option<usize> {
        let whole = View::whole(&self.bytes[..data.end]);
        let chunks = data.len().div_ceil(self.chunk);
        let range = |index: usize| {
            let start = data.start + index * self.chunk;
            start..(start + self.chunk).min(data.end)
        };
        if chunks <= 1 {
            let part = plan.read(whole, data.start, data.end);
            order.note(&part, part.start..part.next);
            return order.add(part);
        }
        let mut indexes = 0..chunks;
        // Bytes after a chunk that hold the rest of its last record; most records are short.
        let beyond = AtomicUsize::new(RECORD);
        let read = |index: usize| {
            let range = range(index);
            let read = |beyond: usize| {
                let copied = range.start..(range.end + beyond).min(data.end);
                self.bytes.with(copied, |bytes| {
                    let view = View {
                        bytes,
                        base: range.start,
                        end: data.end,
                    };
                    let start = match index {
                        0 => Some(range.start),
                        _ => plan.guess(view, range.clone()),
                    };
                    start.map(|start| plan.read(view, start, range.end))
                })
            };
            let mut part = read(beyond.load(Ordering::Relaxed));
            if let Some(End::Cut) = part.as_ref().map(|part| &part.end) {
                beyond.store(RECORD_MAX, Ordering::Relaxed);
                part = read(RECORD_MAX);
            }
            (part, range.end)
        };
        let mut at = data.start;
        let mut compressed = None;
        let add = |(part, end): (Option<Part>, usize)| {
            if at >= end {
                return ControlFlow::Continue(());
            }
            let part = match part {
                Some(part) if part.start == at => part,
                _ => plan.read(whole, at, end),
            };
            at = part.next;
            order.note(&part, part.start..part.next);
            let ends = order.ends(&part);
            compressed = order.add(part);
            match ends {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        threads::in_order(|| indexes.next(), read, add);
        compressed
    }

    /// Unpack compressed records and read them on several cores. Unpack one after the other where their stream demands
    /// it.
    fn scan_compressed(&self, plan: &ScanPlan, order: &mut Order<impl Sink>, data: Range<usize>) {
        let mut blocks = Blocks::new(&self.bytes, data, self.chunk);
        blocks.unpacking = true;
        let mut readable = true;
        let next = || {
            let start = blocks.at;
            let pieces = blocks.next_pieces();
            let block = match pieces[..] {
                [] => Some(blocks.next_block()?),
                _ => None,
            };
            // Unpacking it requires the data before it.
            readable &= blocks.decoder.is_none();
            Some((start..blocks.at, pieces, block))
        };
        let read = |(range, pieces, block): (Range<usize>, Vec<Piece>, Option<Block<'_>>)| {
            let unpacked = || unpack(&self.bytes, &pieces);
            let (block, damage) = block.map_or_else(unpacked, |block| (block, None));
            let mut part = plan.read(View::whole(&block), 0, block.len());
            if let (Some(what), End::More) = (damage, &part.end) {
                part.end = End::Damaged(what);
            }
            (range, part)
        };
        let add = |(range, part): (Range<usize>, Part)| {
            order.note(&part, range);
            let ends = order.ends(&part);
            order.add(part);
            match ends {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let whole = threads::in_order(next, read, add);
        if !readable {
            order.places = None;
        }
        // Damage after the end does not matter, and how far was unpacked depends on the chunks.
        if whole {
            order.warnings.extend(blocks.damage);
        }
    }
}

/// Return all events with their names: the tracing data's by id, else EVENT_DESC's, else the number.
fn name_events(parts: &mut Parts) -> Vec<EventInfo> {
    let formats = parts
        .tracing
        .as_ref()
        .map_or(&[][..], |tracing| &tracing.formats[..]);
    let by_id: BTreeMap<u64, &Arc<Format>> =
        formats.iter().map(|format| (format.id, format)).collect();
    let mut nameless = 0;
    let mut formless = Vec::new();
    let mut events = Vec::new();
    for (attr, name) in parts.attrs.iter().zip(&parts.names) {
        let format = if attr.is_tracepoint() {
            by_id.get(&attr.config).copied()
        } else {
            None
        };
        let name = match (format, name) {
            (Some(format), _) => format!("{}:{}", format.system, format.name),
            (None, Some(name)) => name.clone(),
            (None, None) => {
                nameless += 1;
                let kind = if attr.is_tracepoint() {
                    "tracepoint".into()
                } else {
                    format!("type {}", attr.kind)
                };
                format!("{kind} {:#x}", attr.config)
            }
        };
        if attr.is_tracepoint() && format.is_none() && !parts.names.is_empty() {
            formless.push(name.clone());
        }
        events.push(EventInfo {
            name,
            config: attr.config,
            ids: attr.ids.clone(),
            format: format.cloned(),
        });
    }
    if nameless > 0 {
        parts.warnings.push(format!(
            "{nameless} of {} events have no name in this file",
            events.len()
        ));
    } else if let Some(first) = formless.first() {
        parts.warnings.push(format!(
            "{} events have no format in this file, the first is {first}",
            formless.len()
        ));
    }
    events
}
