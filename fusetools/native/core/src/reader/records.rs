//! Iterates over every record of the file.

use std::iter::Peekable;

use super::*;

/// Record in time order.
#[derive(Clone)]
pub struct Record<'a> {
    /// PERF_RECORD_*.
    pub kind: u32,
    pub misc: u16,
    /// Time in ns on the recording's clock; None for perf's own records and those made up at the start.
    pub time: Option<u64>,
    /// Index into `events()`.
    pub event: Option<usize>,
    /// Whole record, including its header.
    pub bytes: Block<'a>,
}

/// Iterator over a recording's records in time order; see [`Reader::records`].
pub struct Records<'a> {
    pub(super) reader: &'a Reader,
    pub(super) blocks: Blocks<'a>,
    pub(super) block: Option<Block<'a>>,
    pub(super) at: usize,
    pub(super) pending: Vec<Record<'a>>,
    pub(super) ready: std::vec::IntoIter<Record<'a>>,
    pub(super) rounds: Rounds,
    /// Late records that have not come yet, if they are known.
    pub(super) late: Option<Peekable<std::vec::IntoIter<(u64, usize)>>>,
    pub(super) ended: bool,
    /// Threads that perf itself has named.
    pub(super) named: FxHashSet<u32>,
}

impl<'a> Records<'a> {
    /// Return why the records ended early, once they have.
    pub fn damage(&self) -> Option<&str> {
        self.blocks.damage.as_deref()
    }

    /// Make all pending records up to a time ready.
    pub(super) fn flush(&mut self, upto: u64) {
        if let Some(late) = &mut self.late {
            while let Some((_, at)) = late.next_if(|(time, _)| *time <= upto) {
                self.pending.extend(self.reader.record_at(at));
            }
        }
        self.pending.sort_by_key(|record| record.time);
        let later = self.pending.split_off(
            self.pending
                .partition_point(|record| record.time <= Some(upto)),
        );
        self.ready = std::mem::replace(&mut self.pending, later).into_iter();
    }

    /// Return the next record in file order.
    pub(super) fn next_in_file(&mut self) -> Option<Record<'a>> {
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
            let record = self.reader.record(header, bytes);
            if !record.left_out(self.reader.since, self.reader.until) {
                return Some(record);
            }
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            if let Some(record) = self.ready.next() {
                if record.time >= Some(self.reader.since) {
                    return Some(record);
                }
                match self.before(record) {
                    Some(record) => return Some(record),
                    None => continue,
                }
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
                    self.rounds.saw(time);
                    if self.late.is_none() || time >= self.rounds.complete {
                        self.pending.push(record);
                    }
                }
                None if record.kind == record::FINISHED_ROUND => {
                    self.rounds.ended();
                    if self.rounds.complete > 0 && self.pending.len() >= BATCH {
                        self.flush(self.rounds.complete);
                    }
                }
                None => {
                    if self.reader.since != 0 && record.kind == record::COMM {
                        self.named.extend(u32_at(&record.bytes, 12));
                    }
                    return Some(record);
                }
            }
        }
    }
}
