//! Reads perf.data: one pass over the mapped file on several cores, batches of events out, in time order.
//!
//! The records are cut into chunks that workers read at the same time. Where a chunk's first record
//! begins is a guess, since only the record before it tells; the guess counts only when the chunk before
//! ends exactly there, else the chunk is read again from the right place. So the result never depends on it.
//!
//! Time order as in perf: the kernel's buffers are copied out in rounds, each in buffer order, and after
//! a round (FINISHED_ROUND) nothing older than the end of the round before it can follow.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::mpsc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::error::Error;
use crate::events::{Batch, Chain, Ev, Layer, Map, Meaning, Role, Side, ABSENT};
use crate::file::{self, feature, until_nul, Attr, Bytes, Parts, Tracing};
use crate::format::{number, Field, Format, Shape, Value};
use crate::join::Join;
use crate::record::{self, u32_at, u64_at, Header, Layout, NoRecord};

/// The event that holds a recording's own facts.
pub const SESSION: &str = "fusetools:session";

/// Bytes of records that a worker reads at a time.
const CHUNK: usize = 4 << 20;
/// Events that are gathered before they are sorted and handed on.
const BATCH: usize = 1 << 16;
/// What compressed records may grow to, in all: this many times their size, and this much more.
/// perf's own shrink 5 to 30 times.
const EXPANSION: usize = 1000;
const EXPANSION_FREE: usize = 64 << 20;

/// Words of all different stacks: what a recording of hours has is far below. 256 MB.
const MOST_STACK_WORDS: usize = 1 << 25;

/// Symbols that are read: a recording that was merged by this holds those of its events only.
const MOST_SYMBOLS: usize = 1 << 18;

/// An event of the recording.
#[derive(Clone, Debug)]
pub struct EventInfo {
    /// "system:name" for a tracepoint, else perf's name ("cycles:u").
    pub name: String,
    /// perf_event_attr.config; the format's id for a tracepoint.
    pub config: u64,
    /// The ids its samples carry.
    pub ids: Vec<u64>,
    /// None for what is no tracepoint, and where the recording has lost its formats.
    pub format: Option<Arc<Format>>,
}

/// What a scan found beside the batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanInfo {
    /// Time of the first and of the last sample, ns on the recording's clock; 0 when there is none.
    pub first: u64,
    pub last: u64,
    /// Samples per entry of `events()`.
    pub counts: Vec<u64>,
    /// Events that the kernel could not write: PERF_RECORD_LOST as it happened, LOST_SAMPLES as summed up at the end.
    /// Recent kernels tell the same loss in both: take the greater, not the sum.
    pub lost: u64,
    pub lost_samples: u64,
    /// How often the kernel throttled an event.
    pub throttled: u64,
    pub warnings: Vec<String>,
}

/// An open perf.data: header, attrs, ids, features, formats; the records stay in the file.
pub struct Reader {
    bytes: Bytes,
    parts: Parts,
    events: Vec<EventInfo>,
    ids: Ids,
    chunk: usize,
}

impl Reader {
    /// Maps the file and reads all but its records.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Reader::new(Bytes::open(path)?)
    }

    /// Reads a file's bytes from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, Error> {
        Reader::new(Bytes::Owned(bytes))
    }

    pub(crate) fn new(bytes: Bytes) -> Result<Reader, Error> {
        let mut parts = file::parse(&bytes)?;
        let events = name_events(&mut parts);
        let ids = Ids::new(&parts.attrs, &mut parts.warnings);
        Ok(Reader {
            bytes,
            parts,
            events,
            ids,
            chunk: CHUNK,
        })
    }

    /// Sets how many bytes a worker reads at a time. The result does not depend on it.
    #[doc(hidden)]
    pub fn set_chunk(&mut self, bytes: usize) {
        self.chunk = bytes.max(8);
    }

    /// The recording's events, one per attr and in their order.
    pub fn events(&self) -> &[EventInfo] {
        &self.events
    }

    /// The attrs as they stand in the file, with their ids.
    pub fn attrs(&self) -> &[Attr] {
        &self.parts.attrs
    }

    /// Feature sections by bit (`file::feature`), as ranges of `bytes()`.
    pub fn features(&self) -> &[(u32, Range<usize>)] {
        &self.parts.features
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The range of the records, those of a pipe's header included.
    pub fn data(&self) -> Range<usize> {
        self.parts.data.clone()
    }

    /// Written to a pipe: attrs and features are records.
    pub fn is_pipe(&self) -> bool {
        self.parts.pipe
    }

    pub fn tracing(&self) -> Option<&Tracing> {
        self.parts.tracing.as_ref()
    }

    /// What was wrong with the file's tables and could be lived with. A scan's warnings begin with these.
    pub fn warnings(&self) -> &[String] {
        &self.parts.warnings
    }

    /// A feature that is one string.
    fn text(&self, bit: u32) -> Option<String> {
        let (_, range) = self.parts.features.iter().find(|(b, _)| *b == bit)?;
        file::header_text(&self.bytes, range)
    }

    /// The machine's architecture, e.g. "x86_64".
    pub fn arch(&self) -> Option<String> {
        self.text(feature::ARCH)
    }

    pub fn hostname(&self) -> Option<String> {
        self.text(feature::HOSTNAME)
    }

    /// The kernel's release.
    pub fn os_release(&self) -> Option<String> {
        self.text(feature::OSRELEASE)
    }

    /// Start and name of the kernel's functions that the recording names, by start: those of its function_graph events.
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
        let mut found: Vec<_> = lines.filter_map(symbol).take(MOST_SYMBOLS).collect();
        found.sort();
        found.dedup_by_key(|(address, _)| *address);
        found
    }

    /// Where the kernel lay: a symbol and its address, which perf writes down at the beginning.
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

    /// The events that are samples of what runs: no tracepoints, and not the one that only brings side-band records.
    /// Each with the unit of its period: ns for the kernel's clocks, else none.
    pub fn samples(&self) -> Vec<(&str, bool)> {
        const SOFTWARE: u32 = 1;
        const DUMMY: u64 = 9;
        let named = self.events.iter().zip(&self.parts.attrs);
        named
            .filter(|(_, attr)| {
                !attr.is_tracepoint() && (attr.kind, attr.config) != (SOFTWARE, DUMMY)
            })
            // cpu-clock and task-clock
            .map(|(event, attr)| (&*event.name, attr.kind == SOFTWARE && attr.config < 2))
            .collect()
    }

    /// The events whose samples have a stack.
    pub fn stacks(&self) -> Vec<&str> {
        let named = self.events.iter().zip(&self.parts.attrs);
        let stacked = named.filter(|(_, attr)| attr.layout.has_chain());
        stacked.map(|(event, _)| &*event.name).collect()
    }

    /// The kernel's symbols, as the recording has them: those it needs, or all, or none.
    pub fn kallsyms(&self) -> Option<&[u8]> {
        let range = &self.tracing()?.kallsyms;
        self.bytes
            .get(range.clone())
            .filter(|text| !text.is_empty())
    }

    /// The header's list of files and their build ids, by path.
    pub fn build_ids(&self) -> FxHashMap<String, Vec<u8>> {
        let mut found = FxHashMap::default();
        let (sections, wanted) = (self.features().iter(), feature::BUILD_ID);
        for (_, range) in sections.filter(|(bit, _)| *bit == wanted) {
            // 8 bytes of header, pid, 24 bytes with the build id, path.
            let mut rest = &self.bytes()[range.clone()];
            while let Some(word) = u64_at(rest, 0) {
                let (misc, size) = ((word >> 32) as u16, (word >> 48) as usize);
                let Some(record) = rest.get(..size).filter(|record| record.len() > 36) else {
                    break;
                };
                // Newer ones say how long it is.
                let len = match misc & 1 << 15 {
                    0 => 20,
                    _ => usize::from(record[32]).min(20),
                };
                found.insert(until_nul(&record[36..]), record[12..12 + len].to_vec());
                rest = &rest[size..];
            }
        }
        found
    }

    /// The version of the perf that recorded.
    pub fn perf_version(&self) -> Option<String> {
        self.text(feature::VERSION)
    }

    /// The JSON text of the samples `fusetools:session`, which follow each other. Reads the records up to them, none where
    /// there is no such event.
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

    /// The layout that applies to a record, and the index of its event in `events()`.
    /// None for records of perf's own and for ids that no event has.
    fn event_of(&self, header: Header, bytes: &[u8]) -> Option<usize> {
        match header.kind {
            record::SAMPLE => self.ids.of_sample(bytes),
            record::USER.. => None,
            _ => self.ids.of_other(bytes),
        }
    }

    /// All records in time order, perf's rounds taken into account; those without a time at their place.
    pub fn records(&self) -> Records<'_> {
        Records {
            reader: self,
            blocks: Blocks::new(&self.bytes, self.parts.data.clone(), self.chunk),
            block: None,
            at: 0,
            pending: Vec::new(),
            ready: Vec::new().into_iter(),
            max: 0,
            flush: 0,
            ended: false,
        }
    }

    /// One pass, several cores; `sink` gets batches in time order. Decodes only what the catalogue names.
    ///
    /// `Side::Switch` comes only when the catalogue names a switch or a waking: nobody else needs it.
    /// Damaged records end the pass with a warning; what came before them is good.
    pub fn scan(
        &self,
        catalogue: &[Meaning],
        sink: &mut dyn FnMut(Batch),
    ) -> Result<ScanInfo, Error> {
        let plan = ScanPlan::new(self, catalogue);
        let mut join = Join::new(catalogue);
        let mut joined = |mut batch: Batch| {
            join.number(&mut batch);
            sink(batch);
        };
        let mut order = Order::new(self.events.len(), &mut joined);
        order.stacked.clone_from(&plan.stacked);
        order.warnings.extend(self.parts.warnings.iter().cloned());
        let compressed = self.scan_mapped(&plan, &mut order);
        if let Some(at) = compressed {
            self.scan_compressed(&plan, &mut order, at);
        }
        Ok(order.finish())
    }

    /// Reads the records where they lie. Some(place) at the first compressed record.
    fn scan_mapped(&self, plan: &ScanPlan, order: &mut Order) -> Option<usize> {
        let bytes: &[u8] = &self.bytes;
        let data = self.parts.data.clone();
        let bytes = &bytes[..data.end];
        let chunks = data.len().div_ceil(self.chunk);
        let range = |index: usize| {
            let start = data.start + index * self.chunk;
            start..(start + self.chunk).min(data.end)
        };
        if chunks <= 1 {
            let part = plan.read(bytes, data.start, data.end);
            return order.add(part);
        }
        let ahead = 2 * rayon::current_num_threads() + 1;
        rayon::in_place_scope(|scope| {
            let (send, receive) = mpsc::channel();
            let spawn = |index: usize| {
                let send = send.clone();
                let range = range(index);
                scope.spawn(move |_| {
                    let start = if index == 0 {
                        Some(range.start)
                    } else {
                        plan.guess(bytes, range.clone())
                    };
                    let part = start.map(|start| plan.read(bytes, start, range.end));
                    // The receiver is gone only when the result is no longer wanted.
                    let _ = send.send((index, part));
                });
            };
            (0..chunks.min(ahead)).for_each(&spawn);
            let mut early: BTreeMap<usize, Option<Part>> = BTreeMap::new();
            let mut at = data.start;
            for index in 0..chunks {
                let part = loop {
                    if let Some(part) = early.remove(&index) {
                        break part;
                    }
                    match receive.recv() {
                        Ok((which, part)) => early.insert(which, part),
                        Err(_) => break None,
                    };
                };
                if index + ahead < chunks {
                    spawn(index + ahead);
                }
                let end = range(index).end;
                if at >= end {
                    continue;
                }
                let part = match part {
                    Some(part) if part.start == at => part,
                    _ => plan.read(bytes, at, end),
                };
                at = part.next;
                if order.ends(&part) {
                    return order.add(part);
                }
                order.add(part);
            }
            None
        })
    }

    /// Unpacks compressed records one after the other, as their stream demands, and reads them on several cores.
    fn scan_compressed(&self, plan: &ScanPlan, order: &mut Order, at: usize) {
        let mut blocks = Blocks::new(&self.bytes, at..self.parts.data.end, self.chunk);
        blocks.unpacking = true;
        let ahead = 2 * rayon::current_num_threads() + 1;
        let whole = rayon::in_place_scope(|scope| {
            let (send, receive) = mpsc::channel();
            let mut early: BTreeMap<usize, Part> = BTreeMap::new();
            let (mut spawned, mut done) = (0, 0);
            loop {
                while spawned < done + ahead {
                    let Some(block) = blocks.next_block() else {
                        break;
                    };
                    let (send, index) = (send.clone(), spawned);
                    spawned += 1;
                    scope.spawn(move |_| {
                        let mut part = plan.read(&block, 0, block.len());
                        plan.unplace(&mut part);
                        let _ = send.send((index, part));
                    });
                }
                if done == spawned {
                    return true;
                }
                let part = loop {
                    if let Some(part) = early.remove(&done) {
                        break part;
                    }
                    match receive.recv() {
                        Ok((which, part)) => early.insert(which, part),
                        Err(_) => return false,
                    };
                };
                done += 1;
                let ends = order.ends(&part);
                order.add(part);
                if ends {
                    return false;
                }
            }
        });
        // What is damaged after the end does not matter, and how far it was unpacked depends on the chunks.
        if whole {
            order.warnings.extend(blocks.damage);
        }
    }
}

/// Names for all events: the tracing data's by id, else EVENT_DESC's, else the number.
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

/// From a sample's id to its event.
#[derive(Default)]
struct Ids {
    base: u64,
    /// Event by id - base, NONE where there is none.
    dense: Vec<u32>,
    /// Sorted, for ids too far apart for a table.
    sparse: Vec<(u64, u32)>,
    /// Place of the id: in a sample from its start, in others from their end; 0 = not there.
    sample: usize,
    other: usize,
    /// The only event: ids need not be looked at.
    single: bool,
}

const NONE: u32 = u32::MAX;

impl Ids {
    fn new(attrs: &[Attr], warnings: &mut Vec<String>) -> Ids {
        let Some(first) = attrs.first() else {
            return Ids::default();
        };
        let mut ids = Ids {
            single: attrs.len() == 1,
            sample: first.layout.id,
            other: first.layout.tail_id,
            ..Ids::default()
        };
        if attrs
            .iter()
            .any(|a| (a.layout.id, a.layout.tail_id) != (ids.sample, ids.other))
        {
            (ids.sample, ids.other) = (0, 0);
        }
        if ids.sample == 0 && !ids.single {
            warnings
                .push("the samples do not tell which event they are of: none can be read".into());
            return ids;
        }
        let mut all: Vec<(u64, u32)> = attrs
            .iter()
            .zip(0u32..)
            .flat_map(|(attr, i)| attr.ids.iter().map(move |id| (*id, i)))
            .collect();
        all.sort();
        if all
            .windows(2)
            .any(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1)
        {
            warnings
                .push("several events have the same id: their samples count for the first".into());
        }
        all.dedup_by_key(|(id, _)| *id);
        if let (Some(&(low, _)), Some(&(high, _))) = (all.first(), all.last()) {
            let span = high - low;
            if span < (64 << 10) + 4 * all.len() as u64 {
                ids.base = low;
                ids.dense = vec![NONE; span as usize + 1];
                for (id, index) in all {
                    ids.dense[(id - low) as usize] = index;
                }
            } else {
                ids.sparse = all;
            }
        }
        ids
    }

    #[inline(always)]
    fn find(&self, id: u64) -> Option<usize> {
        // What perf makes up at the start has id 0 and counts for the first event.
        if id == 0 {
            return Some(0);
        }
        let index = if self.sparse.is_empty() {
            let place = usize::try_from(id.wrapping_sub(self.base)).ok()?;
            self.dense.get(place).copied().unwrap_or(NONE)
        } else {
            self.sparse
                .binary_search_by_key(&id, |(id, _)| *id)
                .map_or(NONE, |place| self.sparse[place].1)
        };
        (index != NONE).then_some(index as usize)
    }

    #[inline(always)]
    fn of_sample(&self, bytes: &[u8]) -> Option<usize> {
        if self.single {
            return Some(0);
        }
        match self.sample {
            0 => None,
            place => self.find(u64_at(bytes, place)?),
        }
    }

    #[inline(always)]
    fn of_other(&self, bytes: &[u8]) -> Option<usize> {
        if self.single {
            return Some(0);
        }
        match self.other {
            0 => None,
            back => self.find(u64_at(bytes, record::from_end(bytes, back, back)?)?),
        }
    }
}

/// A number in the raw data. `size` 0: not there.
#[derive(Clone, Copy, Default)]
struct Number {
    offset: u32,
    size: u8,
    signed: bool,
}

impl Number {
    fn new(field: &Field) -> Option<Number> {
        let size = u8::try_from(field.size)
            .ok()
            .filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
        let offset = u32::try_from(field.offset).ok()?;
        (field.shape == Shape::Number).then_some(Number {
            offset,
            size,
            signed: field.signed,
        })
    }

    #[inline(always)]
    fn read(&self, raw: &[u8]) -> Option<u64> {
        let at = self.offset as usize;
        match self.size {
            0 => Some(ABSENT),
            8 => u64_at(raw, at),
            4 => u32_at(raw, at).map(|n| {
                if self.signed {
                    n as i32 as u64
                } else {
                    n as u64
                }
            }),
            _ => {
                let bits = number(raw.get(at..at + self.size as usize)?)?;
                let unused = 64 - 8 * u32::from(self.size);
                Some(if self.signed {
                    (((bits << unused) as i64) >> unused) as u64
                } else {
                    bits
                })
            }
        }
    }
}

/// What to take from an event's samples.
struct Take {
    kind: u32,
    v: [Number; 4],
    stack: bool,
    /// Of a callback's name (Role::Name).
    name: Option<Field>,
}

impl Take {
    fn new(kind: u32, meaning: &Meaning, format: Option<&Format>) -> Take {
        // More than one name: as probes made by hand call it.
        let names: [&[&str]; 4] = match meaning.role {
            Role::Entry | Role::Return if meaning.layer == Layer::Kernel => {
                [&["unique"], &[], &[], &["req"]]
            }
            Role::Entry => [&["unique"], &["ino"], &["size"], &["off"]],
            Role::Return | Role::Taken => [&["unique"], &[], &[], &[]],
            Role::Reply | Role::Inode | Role::Name => [&["unique"], &["ino"], &[], &[]],
            Role::GraphEntry => [&["func"], &["depth"], &[], &[]],
            Role::GraphExit => [&["func"], &["depth"], &["calltime"], &["rettime"]],
            Role::Begin => [&["unique"], &["connection"], &["opcode"], &["req"]],
            Role::Sent => [&["unique"], &["connection"], &["write", "wr"], &["req"]],
            Role::End => [&["unique"], &["connection"], &["error", "err"], &["req"]],
            Role::SysEnter => [&["id"], &[], &[], &[]],
            Role::SysExit => [&["id"], &["ret"], &[], &[]],
            Role::Switch => [&["prev_pid"], &["prev_state"], &["next_pid"], &[]],
            Role::Waking => [&["pid"], &["common_flags"], &[], &[]],
            Role::Connect => [&["dport"], &[], &[], &[]],
            Role::Stack => [&[], &[], &[], &[]],
            Role::Length => [&["unique"], &["connection"], &["len"], &["req"]],
        };
        let find = |names: &[&str]| {
            let field = names.iter().find_map(|name| format?.field(name));
            field.and_then(Number::new).unwrap_or_default()
        };
        let name = if meaning.role == Role::Name {
            format.and_then(|format| format.field("name")).cloned()
        } else {
            None
        };
        let mut v = names.map(find);
        if meaning.role == Role::Connect {
            let address = format.and_then(|format| format.field("daddr_v6"));
            let address = address.filter(|field| field.size == 16);
            if let Some(offset) = address.and_then(|field| u32::try_from(field.offset).ok()) {
                // 16 bytes, of IPv4 as ::ffff:a.b.c.d: both halves, as they lie there.
                let half = |offset| Number {
                    offset,
                    size: 8,
                    signed: false,
                };
                (v[1], v[2]) = (half(offset), half(offset.saturating_add(8)));
            }
        }
        Take {
            kind,
            v,
            stack: meaning.role == Role::Stack,
            name,
        }
    }
}

/// What a scan does with each event's samples; shared by all workers.
struct ScanPlan<'a> {
    ids: &'a Ids,
    events: Vec<(Layout, Vec<Take>)>,
    switches: bool,
    /// By row of the catalogue: its events have a stack; is there any?
    stacked: Vec<bool>,
    stacks: bool,
}

/// Different call chains, numbered as they come.
#[derive(Default)]
struct Stacks {
    known: FxHashMap<Chain, u32>,
    /// Those not yet handed on.
    new: Vec<Chain>,
    words: usize,
    /// Chains left out because there were too many.
    left_out: u64,
    scratch: Vec<u64>,
}

impl Stacks {
    /// The number of a chain (`bytes`: its words, little-endian).
    fn number(&mut self, bytes: &[u8]) -> u64 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())),
        );
        let number = match self.known.get(&scratch[..]) {
            _ if scratch.is_empty() => ABSENT,
            Some(number) => u64::from(*number),
            None => self.add(Chain::from(&scratch[..])),
        };
        self.scratch = scratch;
        number
    }

    fn add(&mut self, chain: Chain) -> u64 {
        if let Some(number) = self.known.get(&chain) {
            return u64::from(*number);
        }
        if self.words + chain.len() > MOST_STACK_WORDS {
            self.left_out += 1;
            return ABSENT;
        }
        self.words += chain.len();
        let number = self.known.len() as u32;
        self.known.insert(chain.clone(), number);
        self.new.push(chain);
        u64::from(number)
    }
}

/// What one worker found in one chunk.
struct Part {
    /// Where its first record begins, and where the one after its last does.
    start: usize,
    next: usize,
    end: End,
    events: Vec<Ev>,
    side: Vec<Side>,
    /// Numbered within this chunk.
    stacks: Stacks,
    /// For each FINISHED_ROUND the latest time before it.
    rounds: Vec<u64>,
    max: u64,
    tally: Tally,
}

enum End {
    More,
    Damaged(String),
    /// At a compressed record.
    Compressed,
}

#[derive(Clone, Default)]
struct Tally {
    counts: Vec<u64>,
    first: Option<u64>,
    last: u64,
    lost: u64,
    lost_samples: u64,
    throttled: u64,
    /// Samples with an id that no event has; that contradict their own layout; without a time.
    unknown: u64,
    broken: u64,
    untimed: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        for (sum, n) in [
            (&mut self.lost, other.lost),
            (&mut self.lost_samples, other.lost_samples),
            (&mut self.throttled, other.throttled),
            (&mut self.unknown, other.unknown),
            (&mut self.broken, other.broken),
            (&mut self.untimed, other.untimed),
        ] {
            *sum = sum.saturating_add(n);
        }
    }
}

/// Is this a time on a clock? perf's own records carry 0.
#[inline(always)]
fn timed(time: &u64) -> bool {
    *time != 0 && *time != u64::MAX
}

impl<'a> ScanPlan<'a> {
    fn new(reader: &'a Reader, catalogue: &[Meaning]) -> ScanPlan<'a> {
        let takes = |event: &EventInfo| -> Vec<Take> {
            let named = catalogue
                .iter()
                .zip(0u32..)
                .filter(|(meaning, _)| meaning.event == event.name);
            named
                .map(|(meaning, kind)| (meaning, Take::new(kind, meaning, event.format.as_deref())))
                .filter(|(meaning, take)| meaning.role != Role::Name || take.name.is_some())
                .map(|(_, take)| take)
                .collect()
        };
        let events = reader
            .events
            .iter()
            .zip(&reader.parts.attrs)
            .map(|(event, attr)| (attr.layout, takes(event)));
        let stacked: Vec<bool> = catalogue
            .iter()
            .map(|meaning| meaning.role == Role::Stack)
            .collect();
        ScanPlan {
            ids: &reader.ids,
            events: events.collect(),
            switches: catalogue
                .iter()
                .any(|meaning| matches!(meaning.role, Role::Switch | Role::Waking)),
            stacks: stacked.contains(&true),
            stacked,
        }
    }

    /// A likely start of a record in the range: a place from which several plausible ones follow each other.
    fn guess(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        const CHAIN: usize = 8;
        let plausible = |at: usize| -> Option<usize> {
            let header = Header::at(bytes, at).ok()?;
            let known = match header.kind {
                record::SAMPLE => self.ids.of_sample(&bytes[at..at + header.size]).is_some(),
                1..=31 | record::USER..=127 => true,
                _ => false,
            };
            (known && header.size % 8 == 0).then_some(at + header.size)
        };
        range.step_by(8).find(|&start| {
            let mut at = start;
            for _ in 0..CHAIN {
                match plausible(at) {
                    Some(next) => at = next,
                    None => return at == bytes.len(),
                }
            }
            true
        })
    }

    /// Reads the records that begin in `start..end`; the last may reach beyond.
    fn read(&self, bytes: &[u8], start: usize, end: usize) -> Part {
        let mut part = Part {
            start,
            next: start,
            end: End::More,
            events: Vec::new(),
            side: Vec::new(),
            stacks: Stacks::default(),
            rounds: Vec::new(),
            max: 0,
            tally: Tally {
                counts: vec![0; self.events.len()],
                ..Tally::default()
            },
        };
        let mut at = start;
        while at < end {
            let header = match Header::at(bytes, at) {
                Ok(header) => header,
                Err(NoRecord::Short) => {
                    part.end =
                        End::Damaged(format!("the file is cut short in the record at byte {at}"));
                    break;
                }
                Err(NoRecord::Size(size)) => {
                    part.end = End::Damaged(format!(
                        "damaged at byte {at}: a record of {size} bytes; what follows is left out"
                    ));
                    break;
                }
            };
            let record = &bytes[at..at + header.size];
            match header.kind {
                record::SAMPLE => self.sample(record, at, &mut part),
                record::FINISHED_ROUND => part.rounds.push(part.max),
                record::COMPRESSED | record::COMPRESSED2 => {
                    part.end = End::Compressed;
                    break;
                }
                record::USER.. => {}
                _ => self.other(header, record, &mut part),
            }
            let Some(next) = file::range_end(at, header.size, header.extra(bytes, at))
                .filter(|&n| n <= bytes.len())
            else {
                part.end = End::Damaged(format!(
                    "the file is cut short in the data after the record at byte {at}"
                ));
                break;
            };
            at = next;
        }
        part.next = at;
        // Here, where several cores are at it: putting sorted parts together costs little.
        part.events.sort_by_key(|event| event.time);
        part
    }

    /// What was unpacked has no place in the file.
    fn unplace(&self, part: &mut Part) {
        for event in part.events.iter_mut().filter(|_| self.stacks) {
            if self.stacked[event.kind as usize] {
                event.v[2] = ABSENT;
            }
        }
    }

    #[inline(always)]
    fn sample(&self, record: &[u8], at: usize, part: &mut Part) {
        let Some((index, (layout, takes))) = self
            .ids
            .of_sample(record)
            .and_then(|index| Some((index, self.events.get(index)?)))
        else {
            part.tally.unknown += 1;
            return;
        };
        let time = match layout.time {
            0 => 0,
            place => match u64_at(record, place) {
                Some(time) => time,
                None => {
                    part.tally.broken += 1;
                    return;
                }
            },
        };
        let timed = timed(&time);
        if timed {
            part.max = part.max.max(time);
            part.tally.last = part.tally.last.max(time);
            part.tally.first = Some(part.tally.first.map_or(time, |first| first.min(time)));
        }
        part.tally.counts[index] += 1;
        if takes.is_empty() {
            return;
        }
        if !timed {
            part.tally.untimed += 1;
            return;
        }
        if self.take(record, at, layout, takes, time, part).is_none() {
            part.tally.counts[index] -= 1;
            part.tally.broken += 1;
        }
    }

    #[inline(always)]
    fn take(
        &self,
        record: &[u8],
        at: usize,
        layout: &Layout,
        takes: &[Take],
        time: u64,
        part: &mut Part,
    ) -> Option<()> {
        let raw = if layout.has_raw() {
            layout.raw(record)?
        } else {
            &[]
        };
        let (pid, tid) = if layout.tid == 0 {
            (-1, -1)
        } else {
            layout.task(record)?
        };
        let cpu = if layout.cpu == 0 {
            u32::MAX
        } else {
            u32_at(record, layout.cpu)?
        };
        for take in takes {
            let v = if take.stack {
                let word = |place| match place {
                    0 => Some(ABSENT),
                    place => u64_at(record, place),
                };
                [
                    word(layout.ip)?,
                    word(layout.period)?,
                    at as u64,
                    part.stacks.number(layout.chain(record)?),
                ]
            } else {
                [
                    take.v[0].read(raw)?,
                    take.v[1].read(raw)?,
                    take.v[2].read(raw)?,
                    take.v[3].read(raw)?,
                ]
            };
            if let Some(name) = &take.name {
                if let Some(Value::Text(text)) = name.value(raw) {
                    part.side.push(Side::Name {
                        time,
                        pid,
                        tid,
                        unique: v[0],
                        ino: v[1],
                        name: until_nul(text),
                    });
                }
                continue;
            }
            part.events.push(Ev {
                time,
                pid,
                tid,
                kind: take.kind,
                cpu,
                v,
            });
        }
        Some(())
    }

    /// A record of the kernel that is no sample.
    fn other(&self, header: Header, record: &[u8], part: &mut Part) {
        let layout = self
            .ids
            .of_other(record)
            .and_then(|index| self.events.get(index))
            .map(|(layout, _)| layout);
        let layout = layout.filter(|layout| layout.sample_id_all);
        let time = layout
            .and_then(|layout| layout.tail_time(record))
            .filter(timed);
        part.max = part.max.max(time.unwrap_or(0));
        if self.side(header, record, layout, time, part).is_none() {
            part.tally.broken += 1;
        }
    }

    fn side(
        &self,
        header: Header,
        record: &[u8],
        layout: Option<&Layout>,
        time: Option<u64>,
        part: &mut Part,
    ) -> Option<()> {
        let id = |at: usize| u32_at(record, at).map(|id| id as i32);
        let side = match header.kind {
            record::COMM => {
                // The name ends before the sample id.
                let tail = layout.map_or(0, |layout| layout.tail);
                let comm = until_nul(record.get(16..record.len().checked_sub(tail)?)?);
                Side::Comm {
                    time: time.unwrap_or(0),
                    pid: id(8)?,
                    tid: id(12)?,
                    comm,
                }
            }
            record::MMAP | record::MMAP2 if self.stacks => {
                let tail = layout.map_or(0, |layout| layout.tail);
                Side::Map(Box::new(map_of(header, record, tail, time.unwrap_or(0))?))
            }
            record::FORK | record::EXIT => {
                let time = time.or(u64_at(record, 24)).unwrap_or(0);
                let (pid, ppid, tid, ptid) = (id(8)?, id(12)?, id(16)?, id(20)?);
                if header.kind == record::FORK {
                    Side::Fork {
                        time,
                        pid,
                        tid,
                        ppid,
                        ptid,
                    }
                } else {
                    Side::Exit { time, pid, tid }
                }
            }
            record::SWITCH | record::SWITCH_CPU_WIDE if self.switches => {
                let (Some((pid, tid)), Some(time)) =
                    (layout.and_then(|layout| layout.tail_task(record)), time)
                else {
                    return Some(());
                };
                // The idle task is nobody's.
                if tid == 0 {
                    return Some(());
                }
                let out = header.misc & record::MISC_SWITCH_OUT != 0;
                Side::Switch {
                    time,
                    pid,
                    tid,
                    out,
                    preempt: header.misc & record::MISC_SWITCH_OUT_PREEMPT != 0,
                }
            }
            record::LOST => {
                let lost = u64_at(record, 16)?;
                part.tally.lost = part.tally.lost.saturating_add(lost);
                match time {
                    Some(time) if lost > 0 => Side::Lost { time },
                    _ => return Some(()),
                }
            }
            record::LOST_SAMPLES if header.misc & record::MISC_LOST_SAMPLES_BPF == 0 => {
                let lost = u64_at(record, 8)?;
                part.tally.lost_samples = part.tally.lost_samples.saturating_add(lost);
                match time {
                    Some(time) if lost > 0 => Side::Lost { time },
                    _ => return Some(()),
                }
            }
            record::THROTTLE => {
                part.tally.throttled += 1;
                return Some(());
            }
            _ => return Some(()),
        };
        part.side.push(side);
        Some(())
    }
}

/// What an MMAP or MMAP2 tells; `tail`: the bytes of its sample id.
fn map_of(header: Header, record: &[u8], tail: usize, time: u64) -> Option<Map> {
    let name_at = if header.kind == record::MMAP { 40 } else { 72 };
    let name = record.get(name_at..record.len().checked_sub(tail)?)?;
    let mut build_id = &[][..];
    if header.kind == record::MMAP2 && header.misc & record::MISC_MMAP_BUILD_ID != 0 {
        let size = usize::from(*record.get(40)?).min(20);
        build_id = record.get(44..44 + size)?;
    }
    Some(Map {
        time,
        pid: match header.misc & 7 {
            record::MISC_KERNEL => -1,
            _ => u32_at(record, 8)? as i32,
        },
        start: u64_at(record, 16)?,
        len: u64_at(record, 24)?,
        offset: u64_at(record, 32)?,
        path: until_nul(name),
        build_id: build_id.to_owned(),
    })
}

/// What a record changes of address spaces: a mapping, or a new task.
pub(crate) fn space_change(record: &[u8], tail: usize) -> Option<Side> {
    let header = Header::at(record, 0).ok()?;
    let id = |at: usize| u32_at(record, at).map(|id| id as i32);
    match header.kind {
        record::MMAP | record::MMAP2 => Some(Side::Map(Box::new(map_of(header, record, tail, 0)?))),
        record::FORK => Some(Side::Fork {
            time: 0,
            pid: id(8)?,
            ppid: id(12)?,
            tid: id(16)?,
            ptid: id(20)?,
        }),
        _ => None,
    }
}

fn side_time(side: &Side) -> u64 {
    match side {
        Side::Comm { time, .. }
        | Side::Fork { time, .. }
        | Side::Exit { time, .. }
        | Side::Name { time, .. }
        | Side::Switch { time, .. }
        | Side::Lost { time } => *time,
        Side::Map(map) => map.time,
    }
}

fn side_time_mut(side: &mut Side) -> &mut u64 {
    match side {
        Side::Comm { time, .. }
        | Side::Fork { time, .. }
        | Side::Exit { time, .. }
        | Side::Name { time, .. }
        | Side::Switch { time, .. }
        | Side::Lost { time } => time,
        Side::Map(map) => &mut map.time,
    }
}

/// Puts parts in time order and hands batches on.
struct Order<'a> {
    sink: &'a mut dyn FnMut(Batch),
    events: Vec<Ev>,
    side: Vec<Side>,
    stacks: Stacks,
    /// By row of the catalogue: its events have a stack.
    stacked: Vec<bool>,
    /// The latest time seen, and up to which time nothing can be missing.
    max: u64,
    flush: u64,
    /// The latest time handed on.
    handed: u64,
    /// Events older than what was handed on already.
    late: u64,
    tally: Tally,
    warnings: Vec<String>,
}

impl<'a> Order<'a> {
    fn new(events: usize, sink: &'a mut dyn FnMut(Batch)) -> Order<'a> {
        Order {
            sink,
            events: Vec::new(),
            side: Vec::new(),
            stacks: Stacks::default(),
            stacked: Vec::new(),
            max: 0,
            flush: 0,
            handed: 0,
            late: 0,
            tally: Tally {
                counts: vec![0; events],
                ..Tally::default()
            },
            warnings: Vec::new(),
        }
    }

    fn ends(&self, part: &Part) -> bool {
        !matches!(part.end, End::More)
    }

    /// Takes the next part. Some(place) when it stopped at a compressed record.
    fn add(&mut self, mut part: Part) -> Option<usize> {
        self.tally.add(&part.tally);
        self.number_stacks(&mut part);
        // At a round everything up to the end of the round before it is complete. Waiting longer than
        // that is always right, so a part's rounds are taken together.
        let mut flush = self.flush;
        let mut max = self.max;
        let mut complete = 0;
        for latest in &part.rounds {
            complete = flush;
            max = max.max(*latest);
            flush = max;
        }
        self.flush = flush;
        self.max = self.max.max(part.max);
        if self.events.is_empty() {
            self.events = part.events;
        } else {
            self.events.extend(part.events);
        }
        let handed = self.handed;
        self.side.extend(part.side.into_iter().map(|mut side| {
            // What perf makes up of tasks that ran before has no time.
            if handed > 0 && *side_time_mut(&mut side) == 0 {
                *side_time_mut(&mut side) = handed;
            }
            side
        }));
        if complete > 0 && self.events.len() + self.side.len() >= BATCH {
            self.hand(complete);
        }
        match part.end {
            End::More => None,
            End::Compressed => Some(part.next),
            End::Damaged(what) => {
                self.warnings.push(what);
                None
            }
        }
    }

    /// From a chunk's own numbers to those of all.
    fn number_stacks(&mut self, part: &mut Part) {
        self.stacks.left_out += part.stacks.left_out;
        let new = std::mem::take(&mut part.stacks.new);
        if new.is_empty() {
            return;
        }
        let numbers: Vec<u64> = new
            .into_iter()
            .map(|chain| self.stacks.add(chain))
            .collect();
        for event in &mut part.events {
            if self.stacked[event.kind as usize] {
                let number = numbers.get(event.v[3] as usize);
                event.v[3] = number.copied().unwrap_or(ABSENT);
            }
        }
    }

    /// Hands on all up to a time, sorted; the order of the file where times are equal.
    fn hand(&mut self, upto: u64) {
        self.events.sort_by_key(|event| event.time);
        self.side.sort_by_key(side_time);
        let later = self
            .events
            .split_off(self.events.partition_point(|event| event.time <= upto));
        let later_side = self
            .side
            .split_off(self.side.partition_point(|side| side_time(side) <= upto));
        let batch = Batch {
            events: std::mem::replace(&mut self.events, later),
            side: std::mem::replace(&mut self.side, later_side),
            stacks: std::mem::take(&mut self.stacks.new),
        };
        self.late += batch
            .events
            .partition_point(|event| event.time < self.handed) as u64;
        self.late += batch
            .side
            .partition_point(|side| side_time(side) < self.handed) as u64;
        if let Some(last) = batch.events.last() {
            self.handed = self.handed.max(last.time);
        }
        if let Some(last) = batch.side.last() {
            self.handed = self.handed.max(side_time(last));
        }
        if !(batch.events.is_empty() && batch.side.is_empty()) {
            (self.sink)(batch);
        }
    }

    fn finish(mut self) -> ScanInfo {
        self.hand(u64::MAX);
        let tally = self.tally;
        let mut warnings = self.warnings;
        let mut warn = |n: u64, what: &str| {
            if n > 0 {
                warnings.push(format!("{n} {what}"));
            }
        };
        warn(
            tally.unknown,
            "samples are of no event that this file lists: left out",
        );
        warn(
            tally.broken,
            "records contradict their own layout: left out",
        );
        warn(tally.untimed, "samples have no time: left out");
        warn(
            self.stacks.left_out,
            "times a stack was left out: there are too many different ones",
        );
        warn(
            self.late,
            "events came out of time order: they are in the file later than perf's rounds allow",
        );
        ScanInfo {
            first: tally.first.unwrap_or(0),
            last: tally.last,
            counts: tally.counts,
            lost: tally.lost,
            lost_samples: tally.lost_samples,
            throttled: tally.throttled,
            warnings,
        }
    }
}

/// Bytes of whole records: in the file, or unpacked from compressed records.
#[derive(Clone)]
pub struct Block<'a>(Storage<'a>);

#[derive(Clone)]
enum Storage<'a> {
    Mapped(&'a [u8]),
    Unpacked(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for Block<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(bytes) => bytes,
            Storage::Unpacked(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl<'a> Block<'a> {
    fn part(&self, range: Range<usize>) -> Block<'a> {
        Block(match &self.0 {
            Storage::Mapped(bytes) => Storage::Mapped(&bytes[range]),
            Storage::Unpacked(bytes, whole) => Storage::Unpacked(
                bytes.clone(),
                whole.start + range.start..whole.start + range.end,
            ),
        })
    }
}

/// A file's records as blocks in file order, compressed ones unpacked on the way.
struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
    size: usize,
    /// A compressed record has been met: from there on blocks are copies.
    unpacking: bool,
    decoder: Option<Decoder<'static>>,
    /// What is left to unpack of the compressed record at hand, in the file and in the decoder.
    input: Range<usize>,
    more: bool,
    scratch: Vec<u8>,
    /// Unpacked bytes after the last whole record: the rest of it comes with the next compressed one.
    rest: Vec<u8>,
    /// Bytes that may still be unpacked.
    budget: usize,
    damage: Option<String>,
}

impl<'a> Blocks<'a> {
    fn new(bytes: &'a [u8], range: Range<usize>, size: usize) -> Blocks<'a> {
        Blocks {
            bytes: &bytes[..range.end],
            at: range.start,
            size,
            unpacking: false,
            decoder: None,
            input: 0..0,
            more: false,
            scratch: Vec::new(),
            rest: Vec::new(),
            budget: EXPANSION
                .saturating_mul(range.len())
                .saturating_add(EXPANSION_FREE),
            damage: None,
        }
    }

    /// The header at the current place; None at the end or where the file is damaged.
    fn header(&mut self) -> Option<Header> {
        if self.at >= self.bytes.len() || self.damage.is_some() {
            return None;
        }
        match Header::at(self.bytes, self.at) {
            Ok(header) => Some(header),
            Err(NoRecord::Short) => {
                self.damage = Some(format!(
                    "the file is cut short in the record at byte {}",
                    self.at
                ));
                None
            }
            Err(NoRecord::Size(size)) => {
                let what = format!(
                    "damaged at byte {}: a record of {size} bytes; what follows is left out",
                    self.at
                );
                self.damage = Some(what);
                None
            }
        }
    }

    /// Passes the record at the current place.
    fn pass(&mut self, header: Header) {
        let next = file::range_end(self.at, header.size, header.extra(self.bytes, self.at));
        match next.filter(|&next| next <= self.bytes.len()) {
            Some(next) => self.at = next,
            None => {
                self.damage = Some(format!(
                    "the file is cut short in the data after the record at byte {}",
                    self.at
                ));
                self.at = self.bytes.len();
            }
        }
    }

    fn next_block(&mut self) -> Option<Block<'a>> {
        if !self.unpacking {
            let start = self.at;
            while self.at - start < self.size {
                let Some(header) = self.header() else { break };
                if matches!(header.kind, record::COMPRESSED | record::COMPRESSED2) {
                    self.unpacking = true;
                    break;
                }
                self.pass(header);
            }
            if self.at > start {
                return Some(Block(Storage::Mapped(&self.bytes[start..self.at])));
            }
            if !self.unpacking {
                return None;
            }
        }
        let mut out = Vec::new();
        while out.len() < self.size && self.damage.is_none() {
            if self.unpack_step(&mut out) {
                continue;
            }
            let Some(header) = self.header() else { break };
            let (start, end) = (self.at, self.at + header.size);
            match header.kind {
                record::COMPRESSED => self.input = start + 8..end,
                record::COMPRESSED2 => match u64_at(self.bytes, start + 8) {
                    Some(len) if header.size >= 16 && len <= (header.size - 16) as u64 => {
                        self.input = start + 16..start + 16 + len as usize;
                    }
                    _ => self.fail("a compressed record's size"),
                },
                // Data that follows a record would be taken for records.
                _ if header.extra(self.bytes, self.at) == 0 => {
                    out.extend_from_slice(&self.bytes[start..end]);
                }
                _ => {}
            }
            self.pass(header);
        }
        if out.is_empty() {
            if self.damage.is_none() && !self.rest.is_empty() {
                let what = "the file is cut short: its compressed records end within a record";
                self.damage = Some(what.into());
            }
            return None;
        }
        let len = out.len();
        Some(Block(Storage::Unpacked(Arc::new(out), 0..len)))
    }

    fn fail(&mut self, what: &str) {
        let at = self.at;
        self.damage.get_or_insert_with(|| {
            format!("damaged at byte {at}: {what}; what follows is left out")
        });
    }

    /// Unpacks a step of the compressed record at hand and moves what is whole of it to `out`.
    /// False when there is nothing left of it.
    fn unpack_step(&mut self, out: &mut Vec<u8>) -> bool {
        const STEP: usize = 128 << 10;
        if self.input.is_empty() && !self.more {
            return false;
        }
        let mut decoder = match self.decoder.take().map_or_else(Decoder::new, Ok) {
            Ok(decoder) => decoder,
            Err(error) => {
                self.fail(&format!("compressed records: {error}"));
                return true;
            }
        };
        self.scratch.resize(STEP, 0);
        let mut input = InBuffer::around(&self.bytes[self.input.clone()]);
        let mut output = OutBuffer::around(&mut self.scratch[..]);
        let result = decoder.run(&mut input, &mut output);
        let (read, written) = (input.pos(), output.pos());
        self.decoder = Some(decoder);
        if let Err(error) = result {
            self.fail(&format!("compressed records: {error}"));
            return true;
        }
        self.input.start += read;
        // Full: the decoder may hold more.
        self.more = written == STEP;
        if read == 0 && written == 0 && !self.input.is_empty() {
            self.fail("compressed records that do not unpack");
            return true;
        }
        match self.budget.checked_sub(written) {
            Some(left) => self.budget = left,
            None => {
                self.fail("compressed records that grow without end");
                return true;
            }
        }
        self.rest.extend_from_slice(&self.scratch[..written]);
        let mut whole = 0;
        loop {
            match Header::at(&self.rest, whole) {
                Ok(header) => whole += header.size,
                Err(NoRecord::Short) => break,
                Err(NoRecord::Size(size)) => {
                    self.fail(&format!("a compressed record of {size} bytes"));
                    break;
                }
            }
        }
        out.extend(self.rest.drain(..whole));
        true
    }
}

/// A record in time order.
#[derive(Clone)]
pub struct Record<'a> {
    /// PERF_RECORD_*.
    pub kind: u32,
    pub misc: u16,
    /// ns on the recording's clock; None for perf's own records and those made up at the start.
    pub time: Option<u64>,
    /// Index into `events()`.
    pub event: Option<usize>,
    /// The whole record, its header included.
    pub bytes: Block<'a>,
}

/// Iterates over a recording's records in time order; see [`Reader::records`].
pub struct Records<'a> {
    reader: &'a Reader,
    blocks: Blocks<'a>,
    block: Option<Block<'a>>,
    at: usize,
    pending: Vec<Record<'a>>,
    ready: std::vec::IntoIter<Record<'a>>,
    max: u64,
    flush: u64,
    ended: bool,
}

impl<'a> Records<'a> {
    /// Why the records ended early, once they have.
    pub fn damage(&self) -> Option<&str> {
        self.blocks.damage.as_deref()
    }

    /// Makes all pending records up to a time ready.
    fn flush(&mut self, upto: u64) {
        self.pending.sort_by_key(|record| record.time);
        let later = self.pending.split_off(
            self.pending
                .partition_point(|record| record.time <= Some(upto)),
        );
        self.ready = std::mem::replace(&mut self.pending, later).into_iter();
    }

    /// The next record in file order.
    fn next_in_file(&mut self) -> Option<Record<'a>> {
        loop {
            if self.block.is_none() {
                self.block = Some(self.blocks.next_block()?);
                self.at = 0;
            }
            let block = self.block.as_ref()?;
            let Ok(header) = Header::at(block, self.at) else {
                self.block = None;
                continue;
            };
            let bytes = block.part(self.at..self.at + header.size);
            self.at = file::range_end(self.at, header.size, header.extra(block, self.at))
                .unwrap_or(usize::MAX);
            if self.at >= block.len() {
                self.block = None;
            }
            let event = self.reader.event_of(header, &bytes);
            let layout = event
                .and_then(|index| self.reader.parts.attrs.get(index))
                .map(|attr| attr.layout);
            let time = layout.and_then(|layout| match header.kind {
                record::SAMPLE if layout.time != 0 => u64_at(&bytes, layout.time),
                record::SAMPLE => None,
                _ if layout.sample_id_all => layout.tail_time(&bytes),
                _ => None,
            });
            return Some(Record {
                kind: header.kind,
                misc: header.misc,
                time: time.filter(timed),
                event,
                bytes,
            });
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            if let Some(record) = self.ready.next() {
                return Some(record);
            }
            if self.ended {
                return None;
            }
            let Some(record) = self.next_in_file() else {
                self.ended = true;
                self.flush(u64::MAX);
                continue;
            };
            match record.time {
                Some(time) => {
                    self.max = self.max.max(time);
                    self.pending.push(record);
                }
                None if record.kind == record::FINISHED_ROUND => {
                    let upto = self.flush;
                    self.flush = self.max;
                    if upto > 0 && self.pending.len() >= BATCH {
                        self.flush(upto);
                    }
                }
                None => return Some(record),
            }
        }
    }
}
