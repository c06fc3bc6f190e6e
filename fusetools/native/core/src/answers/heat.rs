//! Latency over time: number of requests by the time of their begin and by their duration.

use crate::events::ABSENT;
use crate::operations::Operations;
use crate::requests::named::{Known, Listener};
use crate::requests::stitch::Mark;

/// Number of log2 buckets of durations.
const BUCKETS: usize = 64;

/// Map of requests of some operations. A column is a span of time, a row a log2 bucket.
pub struct Heat {
    operations: Operations,
    begin: u64,
    /// Length of a column in ns.
    pub column: u64,
    pub columns: Vec<[u64; BUCKETS]>,
}

impl Heat {
    /// `begin`, `end`: time of the map on the recording's clock.
    pub fn new(operations: Operations, begin: u64, end: u64, columns: usize) -> Heat {
        let columns = columns.max(1);
        let length = end.saturating_sub(begin).saturating_add(1);
        Heat {
            operations,
            begin,
            column: length.div_ceil(columns as u64),
            columns: vec![[0; BUCKETS]; columns],
        }
    }

    fn add(&mut self, begin: u64, ns: u64) {
        let at = begin.saturating_sub(self.begin) / self.column;
        let last = self.columns.len() - 1;
        let column = usize::try_from(at).map_or(last, |at| at.min(last));
        self.columns[column][(ns | 1).ilog2() as usize] += 1;
    }

    /// Return (low, high, requests by column) from the shortest to the longest used bucket, in ns.
    pub fn rows(&self) -> Vec<(u64, u64, Vec<u64>)> {
        let used = |bucket: &usize| self.columns.iter().any(|column| column[*bucket] > 0);
        let first = (0..BUCKETS).find(used);
        let last = (0..BUCKETS).rfind(used);
        let (Some(first), Some(last)) = (first, last) else {
            return Vec::new();
        };
        let low = |bucket: usize| if bucket == 0 { 0 } else { 1u64 << bucket };
        (first..=last)
            .map(|bucket| {
                let requests = self.columns.iter().map(|column| column[bucket]);
                (low(bucket), u64::MAX >> (63 - bucket), requests.collect())
            })
            .collect()
    }
}

impl Listener for Heat {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let begin = story.at(Mark::Begin).filter(|_| story.until != ABSENT);
        if let Some(begin) = begin.filter(|_| self.operations.has(story.operation)) {
            self.add(begin, story.until.saturating_sub(begin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_in_the_column_of_their_begin_and_the_row_of_their_duration() {
        let mut heat = Heat::new(Operations::default(), 100, 199, 10);
        assert_eq!(heat.column, 10);
        for (begin, ns) in [(100, 4), (109, 7), (110, 31), (199, 4), (5000, 5), (0, 6)] {
            heat.add(begin, ns);
        }
        let rows = heat.rows();
        let of = |row: usize| (rows[row].0, rows[row].1, rows[row].2.clone());
        assert_eq!(of(0), (4, 7, vec![3, 0, 0, 0, 0, 0, 0, 0, 0, 2]));
        assert_eq!(of(1), (8, 15, vec![0; 10]));
        assert_eq!(of(2), (16, 31, vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(rows.len(), 3);
        assert!(Heat::new(Operations::default(), 5, 5, 0).rows().is_empty());
    }
}
