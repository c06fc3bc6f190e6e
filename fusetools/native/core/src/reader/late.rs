//! Records that are in the file later than perf's rounds allow.
//!
//! With `--mmap-flush` perf leaves a CPU's buffer alone if it holds too little, and still reports a finished round
//! (record__mmap_read_evlist() in tools/perf/builtin-record.c). So the records of a quiet CPU come seconds later, or at
//! the end.

use super::*;

impl Reader {
    /// Return times and places of the late records, by time. None if the file is compressed, so that no record can be
    /// read by itself.
    pub(super) fn late(&self) -> Option<Vec<(u64, usize)>> {
        let mut late = Vec::new();
        let mut rounds = Rounds::default();
        let mut blocks = Blocks::new(&self.bytes, self.parts.data.clone(), self.chunk);
        while let Some(header) = blocks.header() {
            let at = blocks.at;
            match header.kind {
                record::COMPRESSED | record::COMPRESSED2 => return None,
                record::FINISHED_ROUND => rounds.ended(),
                record::USER.. => {}
                _ => {
                    let record = self.record(header, self.block(at..at + header.size));
                    if let Some(time) = record
                        .time
                        .filter(|_| !record.left_out(self.since, self.until))
                    {
                        if time < rounds.complete {
                            late.push((time, at));
                        }
                        rounds.saw(time);
                    }
                }
            }
            blocks.pass(header);
        }
        late.sort_by_key(|(time, _)| *time);
        Some(late)
    }

    /// Return the record at a place where `late` found one.
    pub(super) fn record_at(&self, at: usize) -> Option<Record<'_>> {
        let header = Header::at(&self.bytes, at).ok()?;
        Some(self.record(header, self.block(at..at + header.size)))
    }
}
