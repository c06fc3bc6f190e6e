//! Reads trace.dat, version 6, which trace-cmd records from ftrace's ring buffers. Also reads the files of ring.rs: the
//! same head, then pieces of the CPUs' pages in the order in which they were taken.
//!
//! Layout: trace-cmd.dat.v6(5). A page of the ring buffer: Linux kernel/trace/ring_buffer.c, and the file's own
//! `header_page` and `header_event`. The events stay in the file; every offset and size in it is checked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::path::Path;

use crate::error::Error;
use crate::format::file::{self, Bytes, Tracing};
use crate::format::record::{u32_at, u64_at};
use crate::format::tracepoint::Field;

pub const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Header of the section of pieces. A piece is u32 CPU, u32 bytes, and that many bytes of pages, of which the last may
/// be cut short after its events. A piece of the CPU [`STATISTICS`] is text, as in the option CPUSTAT. CPUs of a second
/// instance have numbers from [`OF_INSTANCE`] on.
pub(crate) const PIECES: &[u8; 10] = b"pieces   \0";
pub(crate) const STATISTICS: u32 = u32::MAX;
pub(crate) const OF_INSTANCE: u32 = MOST_CPUS as u32;
/// Maximum number of CPUs in a file of pieces, and of instances.
const MOST_CPUS: usize = 1 << 16;
const MOST_INSTANCES: usize = 2;

/// Options by their number (trace-cmd's include/private/trace-cmd-private.h).
mod option {
    pub const DONE: u16 = 0;
    pub const CPUSTAT: u16 = 2;
    pub const TRACECLOCK: u16 = 4;
    pub const UNAME: u16 = 5;
}

/// Bits of a page's commit field: events were lost before this page; their number is stored after its data.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
pub(crate) const COMMIT_MASK: u64 = (1 << 27) - 1;

/// Values of an entry's 5-bit type_len that are no length.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const TIME_SHIFT: u32 = 27;
/// Bits of an absolute time stamp; the others are the page's.
const TIME_MASK: u64 = (1 << 59) - 1;

/// Offsets of a ring-buffer page's parts, from its `header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    timestamp: usize,
    commit: usize,
    /// Size in bytes of the commit field and of a count of lost events: the kernel's long.
    long: usize,
    data: usize,
    size: usize,
}

impl Page {
    fn new(text: &str, long: usize, page_size: usize) -> Option<Page> {
        let fields: Vec<Field> = text
            .lines()
            .filter_map(|line| Field::parse(line.trim().strip_prefix("field:")?, long))
            .collect();
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let page = match (field("timestamp"), field("commit"), field("data")) {
            (Some(timestamp), Some(commit), Some(data)) => Page {
                timestamp: timestamp.offset,
                commit: commit.offset,
                long: commit.size,
                data: data.offset,
                size: data.offset.checked_add(data.size)?,
            },
            // Kernels before 2.6.31 had no such file.
            _ => Page {
                timestamp: 0,
                commit: 8,
                long,
                data: 8 + long,
                size: page_size,
            },
        };
        let header = page
            .timestamp
            .checked_add(8)?
            .max(page.commit.checked_add(page.long)?);
        (matches!(page.long, 4 | 8)
            && page.data >= header
            && page.size > page.data
            && page.size <= 1 << 20)
            .then_some(page)
    }
}

/// Open trace.dat.
pub struct TraceDat {
    bytes: Bytes,
    tracing: Tracing,
    page: Page,
    /// Number of CPUs.
    width: usize,
    /// Ranges of the pages, by CPU: of each instance, one after the other.
    cpus: Vec<Vec<Range<usize>>>,
    /// The formats list exactly the requested events, including those that never happened.
    listed: bool,
    clock: String,
    uname: String,
    /// CPU, and number of events that it lost.
    lost: Vec<(usize, u64)>,
    warnings: Vec<String>,
}

/// Event of the ring buffer, or a gap in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub cpu: u32,
    /// Time in ns on the recording's clock.
    pub time: u64,
    pub what: What<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// Fields in the layout of the event's format: `common_type` first.
    Data(&'a [u8]),
    /// Number of events missing before this time; None if the kernel did not report it.
    Lost(Option<u64>),
}

impl TraceDat {
    /// Map the file and read all but its events.
    pub fn open(path: &Path) -> Result<TraceDat, Error> {
        TraceDat::new(Bytes::open(path)?)
    }

    /// Read a file's bytes from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<TraceDat, Error> {
        TraceDat::new(Bytes::Owned(bytes))
    }

    pub(crate) fn new(bytes: Bytes) -> Result<TraceDat, Error> {
        let unsupported = |why: &str| Error::Unsupported { why: why.into() };
        if !bytes.starts_with(MAGIC) {
            return Err(unsupported("it does not begin as a trace.dat does"));
        }
        let version = &bytes[MAGIC.len()..];
        match version
            .iter()
            .position(|&byte| byte == 0)
            .map(|end| &version[..end])
        {
            Some(b"6") => {}
            Some(b"7") => return Err(unsupported(
                "a trace.dat of version 7; trace-cmd convert --file-version 6 makes it readable",
            )),
            _ => return Err(unsupported("a trace.dat of a version other than 6")),
        }
        let (tracing, whole) = file::tracing_data(&bytes, 0..bytes.len())?;
        if !whole {
            return Err(Error::damaged("the file ends in its header", bytes.len()));
        }
        let header_page = String::from_utf8_lossy(&bytes[tracing.header_page.clone()]).into_owned();
        let page = Page::new(&header_page, tracing.long_size, tracing.page_size as usize);
        let page = page.ok_or_else(|| {
            Error::damaged("pages of an impossible layout", tracing.header_page.start)
        })?;
        let mut at = tracing.cmdlines.end;
        let short = || Error::damaged("the file ends in its header", bytes.len());
        let cpus = u32_at(&bytes, at).ok_or_else(short)? as usize;
        at += 4;
        let mut dat = TraceDat {
            tracing,
            page,
            width: cpus,
            cpus: Vec::new(),
            listed: false,
            clock: String::new(),
            uname: String::new(),
            lost: Vec::new(),
            warnings: Vec::new(),
            bytes: Bytes::Owned(Vec::new()),
        };
        loop {
            let kind = bytes.get(at..at + 10).ok_or_else(short)?;
            at += 10;
            match kind {
                b"options  \0" => at = dat.options(&bytes, at).ok_or_else(short)?,
                b"flyrecord\0" => break,
                kind if kind == PIECES => {
                    dat.width = cpus.min(MOST_CPUS);
                    dat.pieces(&bytes, at);
                    dat.listed = true;
                    dat.bytes = bytes;
                    return Ok(dat);
                }
                b"latency  \0" => {
                    return Err(unsupported(
                        "a trace.dat of a latency tracer: text, no events",
                    ))
                }
                _ => return Err(Error::damaged("a section of unknown kind", at - 10)),
            }
        }
        let table = bytes
            .get(at..)
            .and_then(|rest| rest.get(..cpus.checked_mul(16)?))
            .ok_or_else(short)?;
        for (cpu, entry) in table.chunks_exact(16).enumerate() {
            let (Some(start), Some(size)) = (u64_at(entry, 0), u64_at(entry, 8)) else {
                continue;
            };
            let length = bytes.len() as u64;
            if start.checked_add(size).is_none_or(|end| end > length) {
                dat.warnings
                    .push(format!("the file is cut short in the events of CPU {cpu}"));
            }
            let start = start.min(length);
            let end = start.saturating_add(size).min(length);
            let whole = start as usize..end as usize;
            dat.cpus.push(Vec::from([whole]));
        }
        // If they overlapped, a small file could hold endless events.
        let sizes = dat.cpus.iter().flatten().map(|range| range.len());
        if sizes.fold(0, usize::saturating_add) > bytes.len() {
            return Err(Error::damaged("the events of several CPUs overlap", at));
        }
        // If the option with the clock is empty, the clock is after the table.
        let clock = u64_at(&bytes, at + table.len()).and_then(|size| {
            let start = at + table.len() + 8;
            bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
        });
        if dat.clock.is_empty() {
            dat.clock = clock.map_or_else(String::new, selected);
        }
        dat.bytes = bytes;
        Ok(dat)
    }

    /// Add the pieces up to the end of the file, or up to the last whole one.
    fn pieces(&mut self, bytes: &[u8], mut at: usize) {
        self.cpus = vec![Vec::new(); self.width];
        while let (Some(cpu), Some(size)) = (u32_at(bytes, at), u32_at(bytes, at + 4)) {
            let start = at + 8;
            at = start.saturating_add(size as usize).min(bytes.len());
            if at - start < size as usize {
                break;
            }
            if cpu == STATISTICS {
                let text = file::until_nul(&bytes[start..at]);
                self.lost.extend(lost(&text, &LOST_OR_LEFT));
                continue;
            }
            let (instance, cpu) = (cpu as usize / MOST_CPUS, cpu as usize % MOST_CPUS);
            if instance < MOST_INSTANCES && cpu < self.width {
                let of = instance * self.width + cpu;
                if of >= self.cpus.len() {
                    self.cpus.resize_with(MOST_INSTANCES * self.width, Vec::new);
                }
                self.cpus[of].push(start..at);
            }
        }
        if self.lost.is_empty() {
            let warning = "its recorder was killed: the last events are missing";
            self.warnings.push(warning.into());
        }
    }

    /// Read options: u16 number, u32 size, then so many bytes. Return the offset after them.
    fn options(&mut self, bytes: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let number = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
            at += 2;
            if number == option::DONE {
                return Some(at);
            }
            let size = u32_at(bytes, at)? as usize;
            at += 4;
            let value = bytes.get(at..at.checked_add(size)?)?;
            at += size;
            match number {
                option::CPUSTAT => self.lost.extend(lost(&file::until_nul(value), &LOST)),
                option::TRACECLOCK => self.clock = selected(value),
                option::UNAME => self.uname = file::until_nul(value),
                _ => {}
            }
        }
    }

    /// Return the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn tracing(&self) -> &Tracing {
        &self.tracing
    }

    /// Return the trace clock, e.g. "mono"; empty if the file does not name it.
    pub fn clock(&self) -> &str {
        &self.clock
    }

    /// Return the output of `uname`: system, host, kernel release, architecture.
    pub fn uname(&self) -> &str {
        &self.uname
    }

    pub fn cpus(&self) -> usize {
        self.width
    }

    /// Return whether the formats list exactly the requested events.
    pub(crate) fn listed(&self) -> bool {
        self.listed
    }

    /// Return the number of events of a CPU that the kernel reports as lost; 0 if the file lacks it.
    pub fn lost(&self, cpu: usize) -> u64 {
        self.lost
            .iter()
            .filter(|(of, _)| *of == cpu)
            .fold(0, |sum, (_, lost)| sum.saturating_add(*lost))
    }

    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Return all events in time order.
    pub fn events(&self) -> Events<'_> {
        let mut events = Events {
            width: self.width.max(1) as u32,
            cpus: Vec::new(),
            heads: Vec::new(),
            order: BinaryHeap::new(),
        };
        for (cpu, ranges) in self.cpus.iter().enumerate() {
            let pages = Pages {
                bytes: &self.bytes,
                page: self.page,
                ranges: ranges.iter(),
                next: 0,
                end: 0,
                at: 0,
                stop: 0,
                base: 0,
                time: 0,
                damaged: 0,
            };
            events.cpus.push(pages);
            events.heads.push(None);
            events.advance(cpu);
        }
        events
    }
}

/// Return the clock in brackets, as in "local global [mono]".
fn selected(text: &[u8]) -> String {
    let text = file::until_nul(text);
    let inner = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(String::new, |(clock, _)| clock.to_owned())
}

/// Counters of lost events; if the buffer was emptied to the end, also of those still in it.
const LOST: [&str; 3] = ["overrun", "commit overrun", "dropped events"];
const LOST_OR_LEFT: [&str; 4] = ["entries", "overrun", "commit overrun", "dropped events"];

/// Return the CPU, and the number of events that its statistics (per_cpu/cpuN/stats) count as lost.
fn lost(stats: &str, counts: &[&str]) -> Option<(usize, u64)> {
    let lines: Vec<(&str, &str)> = stats
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let cpu = lines
        .iter()
        .find(|(name, _)| *name == "CPU")?
        .1
        .trim()
        .parse()
        .ok()?;
    let lost = lines
        .iter()
        .filter(|(name, _)| counts.contains(name))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add);
    Some((cpu, lost))
}

/// Iterator over all events in time order; at equal times, the lower CPU's first.
pub struct Events<'a> {
    width: u32,
    cpus: Vec<Pages<'a>>,
    heads: Vec<Option<What<'a>>>,
    order: BinaryHeap<Reverse<(u64, u32)>>,
}

impl<'a> Events<'a> {
    fn advance(&mut self, cpu: usize) {
        if let Some((time, what)) = self.cpus[cpu].next() {
            self.heads[cpu] = Some(what);
            self.order.push(Reverse((time, cpu as u32)));
        }
    }

    /// Return the number of pages, and of entries in them, left out so far because they contradict themselves.
    pub fn damaged(&self) -> u64 {
        self.cpus.iter().map(|pages| pages.damaged).sum()
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let Reverse((time, cpu)) = self.order.pop()?;
        let what = self.heads[cpu as usize].take()?;
        self.advance(cpu as usize);
        let cpu = cpu % self.width;
        Some(Event { cpu, time, what })
    }
}

/// Iterator over the events of one CPU.
struct Pages<'a> {
    bytes: &'a [u8],
    page: Page,
    ranges: std::slice::Iter<'a, Range<usize>>,
    /// Offset of the next page, and end of the pages that follow each other.
    next: usize,
    end: usize,
    /// Offset of the next entry of this page, and end of its data.
    at: usize,
    stop: usize,
    /// Time of the page, and of the last entry.
    base: u64,
    time: u64,
    damaged: u64,
}

impl<'a> Pages<'a> {
    /// Enter the next page. Return a gap before it as an event.
    fn enter(&mut self) -> Option<(u64, What<'a>)> {
        let start = self.next;
        let end = start.saturating_add(self.page.size).min(self.end);
        self.next = end;
        let page = &self.bytes[start..end];
        let commit = match self.page.long {
            4 => u32_at(page, self.page.commit).map(u64::from),
            _ => u64_at(page, self.page.commit),
        };
        let (Some(time), Some(commit)) = (u64_at(page, self.page.timestamp), commit) else {
            self.damaged += 1;
            return None;
        };
        let data = self.page.data;
        let size = (commit & COMMIT_MASK) as usize;
        let stop = data + size.min(page.len().saturating_sub(data));
        if stop < data + size {
            self.damaged += 1;
        }
        (self.at, self.stop) = (start + data.min(page.len()), start + stop.min(page.len()));
        (self.base, self.time) = (time, time);
        if commit & MISSED == 0 {
            return None;
        }
        let stored = match self.page.long {
            4 => u32_at(page, stop).map(u64::from),
            _ => u64_at(page, stop),
        };
        Some((
            time,
            What::Lost(stored.filter(|_| commit & MISSED_STORED != 0)),
        ))
    }

    /// Return the next entry of this page that is an event.
    fn entry(&mut self) -> Option<(u64, What<'a>)> {
        while self.at + 4 <= self.stop {
            let entry = &self.bytes[self.at..self.stop];
            let head = u32_at(entry, 0)?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            if kind == PADDING && delta == 0 {
                break;
            }
            // Word after the head: a length, or the rest of a time.
            let word = u32_at(entry, 4);
            let (start, length) = match (kind, word) {
                (1..=28, _) => (4, kind as usize * 4),
                // The length counts its own 4 bytes.
                (0, Some(length)) if length >= 4 => (8, length as usize - 4),
                (PADDING, Some(length)) if length >= 4 => (4, length as usize),
                (TIME_EXTEND | TIME_STAMP, Some(_)) => (8, 0),
                _ => break,
            };
            // Entries are a multiple of 4 bytes long.
            let next = start + length.next_multiple_of(4);
            let Some(data) = entry
                .get(start..start + length)
                .filter(|_| next <= entry.len())
            else {
                break;
            };
            self.at += next;
            let rest = u64::from(word.unwrap_or(0)) << TIME_SHIFT;
            match kind {
                TIME_EXTEND => self.time = self.time.wrapping_add(rest + delta),
                TIME_STAMP => {
                    let time = (rest + delta) & TIME_MASK | self.base & !TIME_MASK;
                    // The 59 bits have wrapped since the page began.
                    self.time = if time < self.base {
                        time.wrapping_add(TIME_MASK + 1)
                    } else {
                        time
                    };
                }
                _ => self.time = self.time.wrapping_add(delta),
            }
            if kind <= 28 {
                return Some((self.time, What::Data(data)));
            }
        }
        if self.at < self.stop && !self.ends() {
            self.damaged += 1;
        }
        self.at = self.stop;
        None
    }

    /// Return whether the page ends here, with padding without a length.
    fn ends(&self) -> bool {
        u32_at(&self.bytes[..self.stop], self.at).is_some_and(|head| head == PADDING)
    }
}

impl<'a> Iterator for Pages<'a> {
    type Item = (u64, What<'a>);

    fn next(&mut self) -> Option<(u64, What<'a>)> {
        loop {
            if let Some(event) = self.entry() {
                return Some(event);
            }
            if self.next >= self.end {
                let range = self.ranges.next()?;
                (self.next, self.end) = (range.start, range.end);
                continue;
            }
            if let Some(gap) = self.enter() {
                return Some(gap);
            }
        }
    }
}
