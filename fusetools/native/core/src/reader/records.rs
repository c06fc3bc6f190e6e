//! Every record of the file, one after the other.

use super::*;

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
    pub(super) reader: &'a Reader,
    pub(super) blocks: Blocks<'a>,
    pub(super) block: Option<Block<'a>>,
    pub(super) at: usize,
    pub(super) pending: Vec<Record<'a>>,
    pub(super) ready: std::vec::IntoIter<Record<'a>>,
    pub(super) max: u64,
    pub(super) flush: u64,
    pub(super) ended: bool,
    /// Threads that perf has named.
    pub(super) named: FxHashSet<u32>,
}

impl<'a> Records<'a> {
    /// Why the records ended early, once they have.
    pub fn damage(&self) -> Option<&str> {
        self.blocks.damage.as_deref()
    }

    /// Makes all pending records up to a time ready.
    pub(super) fn flush(&mut self, upto: u64) {
        self.pending.sort_by_key(|record| record.time);
        let later = self.pending.split_off(
            self.pending
                .partition_point(|record| record.time <= Some(upto)),
        );
        self.ready = std::mem::replace(&mut self.pending, later).into_iter();
    }

    /// The next record in file order.
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
            let record = Record {
                kind: header.kind,
                misc: header.misc,
                time: time.filter(timed),
                event,
                bytes,
            };
            if !record.left_out(self.reader.since) {
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
