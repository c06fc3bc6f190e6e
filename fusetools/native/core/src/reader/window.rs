//! Cuts perf's overwriting buffers to the part at their end that all CPUs have complete.

use super::*;

/// Requested part of overwriting buffers. Times are ns on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Length of the part, and its end.
    pub length: u64,
    pub upto: u64,
    /// Time from which on everything was recorded.
    pub since: u64,
    /// Size of each CPU's buffer in bytes.
    pub buffer: u64,
    /// True if the last input is no buffer, but what `Now::held` returned.
    pub held: bool,
}

/// Part of a window that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub begin: u64,
    pub end: u64,
    /// It would begin earlier with larger buffers.
    pub overwritten: bool,
    /// Bytes per second of the CPU with the most.
    pub rate: u64,
}

impl Reader {
    /// Leave out of `records` what happened before the window. Records of tasks and programs stay, without a time. LOST
    /// records go: an overwriting buffer drops events only while it is read, which is between two windows (`rb->paused`
    /// in kernel/events/ring_buffer.c). Error: records lack their CPU.
    ///
    /// A CPU with few events reaches further back than one with many. All are complete from the latest of their first
    /// times on.
    pub fn keep(&mut self, window: &Window) -> Result<Extent, Error> {
        // By CPU: bytes, and the oldest time.
        let mut buffers: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        let mut records = self.records_by_rounds();
        while let Some(record) = records.next_in_file() {
            let Some(time) = record.time else { continue };
            let layout = record.event.and_then(|event| self.parts.attrs.get(event));
            let cpu = layout.and_then(|attr| match record.kind {
                record::SAMPLE => attr.layout.cpu(&record.bytes),
                _ => attr.layout.tail_cpu(&record.bytes),
            });
            let Some(cpu) = cpu else {
                let why = "its records do not tell which CPU they are of".into();
                return Err(Error::Mismatch { why });
            };
            let (bytes, oldest) = buffers.entry(cpu).or_insert((0, u64::MAX));
            *bytes += record.bytes.len() as u64;
            *oldest = time.min(*oldest);
        }
        // A full buffer lacks less than a record.
        let lacks = RECORD_MAX as u64;
        let filled = |&&(bytes, _): &&(u64, u64)| bytes.saturating_add(lacks) > window.buffer;
        let whole = buffers.values().filter(filled).map(|(_, oldest)| *oldest);
        let whole = whole.max().unwrap_or(0);
        let rate = |(bytes, oldest): &(u64, u64)| {
            let ns = window.upto.saturating_sub((*oldest).max(window.since));
            u128::from(*bytes) * 1_000_000_000 / u128::from(ns.max(1_000_000))
        };
        let rate = buffers.values().map(rate).max().unwrap_or(0);
        let wanted = window.upto.saturating_sub(window.length).max(window.since);
        self.since = wanted.max(whole).max(1);
        Ok(Extent {
            begin: self.since,
            end: window.upto,
            overwritten: whole > wanted,
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
        })
    }
}

impl Reader {
    /// Leave out of `records` what the buffers hold: they begin at this time.
    pub fn keep_before(&mut self, begin: u64) {
        self.until = begin;
    }
}

impl Record<'_> {
    /// Return whether the record is left out of a recording that begins at `since` (0: at the file's beginning), or
    /// that ends before `until`.
    pub(super) fn left_out(&self, since: u64, until: u64) -> bool {
        match self.kind {
            _ if until != u64::MAX => self.time.is_none_or(|time| time >= until),
            _ if since == 0 => false,
            record::LOST | record::LOST_SAMPLES => true,
            record::COMM | record::FORK | record::MMAP | record::MMAP2 => false,
            _ => self.time.is_some_and(|time| time < since),
        }
    }
}

impl<'a> Records<'a> {
    /// Return the record without a time, as perf synthesizes it for the state at the window's begin. None: perf itself
    /// recorded the thread later.
    pub(super) fn before(&self, record: Record<'a>) -> Option<Record<'a>> {
        let thread = match record.kind {
            record::COMM => u32_at(&record.bytes, 12),
            record::FORK => u32_at(&record.bytes, 16),
            _ => None,
        };
        if thread.is_some_and(|thread| self.named.contains(&thread)) {
            return None;
        }
        let layout = self.reader.parts.attrs.get(record.event?)?.layout;
        let at = record::from_end(&record.bytes, layout.tail_time, layout.tail)?;
        let mut bytes = record.bytes.to_vec();
        bytes[at..at + 8].fill(0);
        Some(Record {
            time: None,
            bytes: Block::new(bytes),
            ..record
        })
    }
}
