//! Cost of recording that recorded times contain.

use std::ops::AddAssign;

/// Cost in ns, as measured in the recording; 0: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Cost of an event other than a uprobe's.
    pub event: u64,
    /// Cost of a callback's two uprobes, at its entry and at its return.
    pub pair: u64,
}

/// Work of the recorder on a thread in a span of time. An event's cost comes after its time stamp; a uprobe's half
/// before it and half after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub events: u64,
    /// Quarters of the cost of a callback's two uprobes.
    pub quarters: u64,
}

/// Quarters of that cost within the callback's own duration.
pub const OF_CALLBACK: u64 = 2;

impl Met {
    /// Return the cost in ns, rounded down.
    pub fn ns(self, cost: Cost) -> u64 {
        let events = self.events.saturating_mul(cost.event);
        events.saturating_add(self.quarters.saturating_mul(cost.pair) / 4)
    }

    /// Return the cost in ns within a span of `ns`, at most `ns`.
    pub fn taken(self, cost: Cost, ns: u64) -> u64 {
        self.ns(cost).min(ns)
    }
}

impl AddAssign for Met {
    fn add_assign(&mut self, more: Met) {
        self.events = self.events.saturating_add(more.events);
        self.quarters = self.quarters.saturating_add(more.quarters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost {
        event: 250,
        pair: 1602,
    };

    #[test]
    fn events_and_quarters_of_a_pair() {
        let ns = |events, quarters| Met { events, quarters }.ns(COST);
        assert_eq!(
            [ns(0, 0), ns(3, 0), ns(0, 4), ns(0, 2)],
            [0, 750, 1602, 801]
        );
        assert_eq!(ns(2, 1), 500 + 400); // of 400.5
        assert_eq!(ns(2, 3), 500 + 1201);
        assert_eq!(ns(u64::MAX, u64::MAX), u64::MAX);
        let mut met = Met::default();
        for _ in 0..3 {
            met += Met {
                events: 1,
                quarters: 1,
            };
        }
        assert_eq!(met.ns(COST), 750 + 1201);
    }

    #[test]
    fn cost_is_at_most_the_duration() {
        let met = Met {
            events: 2,
            quarters: 0,
        };
        let taken = [501, 500, 499, 0].map(|ns| met.taken(COST, ns));
        assert_eq!(taken, [500, 500, 499, 0]);
        assert_eq!(met.taken(Cost::default(), 499), 0);
    }
}
