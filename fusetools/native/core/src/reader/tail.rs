//! Reads only the end of a recording.

use std::collections::VecDeque;

use super::*;

/// Number of chunks to read; of packed records, which are some times larger when unpacked.
const PLAIN: usize = 64;
const PACKED: usize = 8;
/// A recording that is not this many times as large is better read whole.
const WORTH: usize = 8;

/// Facts about the end of a recording.
pub struct Tail {
    /// Time of the last sample, in ns on the recording's clock.
    pub info: ScanInfo,
    /// Time after which the end has all events of the recording.
    pub since: u64,
}

impl Reader {
    /// Read the end of the recording, as `scan` does. Numbers of requests are not joined. None: the end cannot be read
    /// by itself, or it does not show which of its events are complete; then discard what `sink` got.
    pub fn scan_tail(&self, catalogue: &[Meaning], sink: &mut dyn FnMut(Batch)) -> Option<Tail> {
        let plan = ScanPlan::new(self, catalogue, None);
        let start = self.tail_start(&plan)?;
        let mut order = Order::new(self.events.len(), sink);
        order.stacked.clone_from(&plan.stacked);
        self.scan_part(&plan, &mut order, start..self.data().end);
        let since = order.rounds.second;
        let (info, _) = order.finish();
        // A wrong start shows in damage or in unknown records.
        let good = info.warnings.is_empty();
        Some(Tail {
            info,
            since: since.filter(|_| good)?,
        })
    }

    /// Return the offset of a record near the end.
    fn tail_start(&self, plan: &ScanPlan) -> Option<usize> {
        let data = self.data();
        let packed = self
            .features()
            .iter()
            .any(|(bit, _)| *bit == feature::COMPRESSED);
        let bytes = self.chunk * if packed { PACKED } else { PLAIN };
        if data.len() < WORTH * bytes {
            return None;
        }
        if !packed {
            let view = View::whole(&self.bytes[..data.end]);
            return plan.guess(view, data.end - bytes..data.end);
        }
        // Only the headers tell where packed records begin.
        let mut starts = VecDeque::new();
        let mut blocks = Blocks::new(&self.bytes, data.clone(), self.chunk);
        while let Some(header) = blocks.header() {
            starts.push_back(blocks.at);
            blocks.pass(header);
            while starts.get(1).is_some_and(|next| blocks.at - next > bytes) {
                starts.pop_front();
            }
        }
        starts.pop_front()
    }
}
