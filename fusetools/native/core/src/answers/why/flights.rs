//! Requests in the background that are in flight at once.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::answers::told::known;
use crate::requests::stitch::{Mark, Story};

/// Requests of one connection in flight at once, while there were any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InFlight {
    #[serde(serialize_with = "known")]
    pub connection: u64,
    pub requests: u64,
    pub most: u64,
    /// Mean over `ns`, the time in which at least one was in flight.
    pub mean: f64,
    pub ns: u64,
}

/// Maximum number of requests whose times are kept; later ones are left out.
const MOST: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Flights {
    changes: FxHashMap<u64, Vec<(u64, i8)>>,
    count: usize,
}

impl Flights {
    pub(super) fn add(&mut self, story: &Story) {
        let (Some(begin), Some(end)) = (story.at(Mark::Begin), story.at(Mark::End)) else {
            return;
        };
        if self.count >= MOST || end <= begin {
            return;
        }
        self.count += 1;
        let changes = self.changes.entry(story.connection).or_default();
        changes.extend([(begin, 1), (end, -1)]);
    }

    pub(super) fn finish(self) -> Vec<InFlight> {
        let mut all: Vec<InFlight> = self.changes.into_iter().map(of_connection).collect();
        all.sort_by_key(|row| (std::cmp::Reverse(row.requests), row.connection));
        all
    }
}

fn of_connection((connection, mut changes): (u64, Vec<(u64, i8)>)) -> InFlight {
    // At one time, ends come first.
    changes.sort_unstable();
    let (mut now, mut most, mut since) = (0i64, 0i64, 0u64);
    let (mut ns, mut sum) = (0u64, 0f64);
    for &(time, change) in &changes {
        if now > 0 {
            ns += time - since;
            sum += (time - since) as f64 * now as f64;
        }
        since = time;
        now += i64::from(change);
        most = most.max(now);
    }
    InFlight {
        connection,
        requests: changes.len() as u64 / 2,
        most: most.max(0) as u64,
        mean: if ns > 0 { sum / ns as f64 } else { 0.0 },
        ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_maximum_while_any_is_in_flight() {
        let changes = vec![
            (0, 1),
            (10, -1),
            (10, 1),
            (20, 1),
            (30, -1),
            (40, -1),
            (90, 1),
            (100, -1),
        ];
        let row = of_connection((7, changes));
        assert_eq!((row.requests, row.most, row.ns), (4, 2, 50));
        assert!((row.mean - 60.0 / 50.0).abs() < 1e-9);
    }
}
