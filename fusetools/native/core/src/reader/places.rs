//! Places of times in the file: one pass notes them, and further ones read only the parts that they need.

use super::*;
use crate::programs::compat::Change;
use crate::reader::join::Begin;

/// Maximum number of places (2 MiB). Beyond it, neighbours are joined.
const MOST: usize = 1 << 16;

/// Notes of a pass. By default empty: further passes read everything.
#[derive(Clone, Debug, Default)]
pub struct Places {
    places: Vec<Place>,
    /// Changes that records of tasks show; those are not read again.
    changes: Vec<Change>,
    /// States from which calls can be joined with requests, by time; empty if they need not be joined.
    begins: Vec<Begin>,
}

/// Part of the file with whole records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bytes: Range<usize>,
    /// Earliest and latest time in it; MAX and 0 if it has none.
    first: u64,
    last: u64,
}

impl Places {
    pub(super) fn new(places: Vec<Place>, changes: Vec<Change>, begins: Vec<Begin>) -> Places {
        if places.is_empty() || changes.len() >= Change::MOST {
            return Places::default();
        }
        Places {
            places,
            changes,
            begins,
        }
    }

    /// Widen the windows to the times on which calls in them depend. Return them, and what is known at their begins.
    pub(super) fn joined(&self, windows: &[(u64, u64)]) -> (Vec<(u64, u64)>, Vec<Begin>) {
        let mut wider: Vec<(u64, u64)> = Vec::new();
        let mut begins = Vec::new();
        for (from, to) in windows {
            let before = self.begins.partition_point(|begin| begin.from <= *from);
            let begin = before.checked_sub(1).map(|at| &self.begins[at]);
            let from = begin.map_or(*from, |begin| begin.from);
            match wider.last_mut() {
                Some(last) if from <= last.1 => last.1 = *to,
                _ => {
                    wider.push((from, *to));
                    begins.extend(begin.cloned());
                }
            }
        }
        (wider, begins)
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Return the ranges of the file with a time in one of the windows, neighbours joined. None: all are needed.
    pub(super) fn within(&self, windows: &[(u64, u64)]) -> Option<Vec<Range<usize>>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for place in &self.places {
            let at = windows.partition_point(|(_, to)| *to < place.first);
            let wanted = windows.get(at).is_some_and(|(from, _)| *from <= place.last);
            match found.last_mut() {
                _ if !wanted => {}
                Some(last) if last.end == place.bytes.start => last.end = place.bytes.end,
                _ => found.push(place.bytes.clone()),
            }
        }
        (!self.places.is_empty()).then_some(found)
    }
}

impl Place {
    /// Add the part that follows those in `places`.
    pub(super) fn note(places: &mut Vec<Place>, part: &Part, bytes: Range<usize>) {
        if places.len() == MOST {
            let mut at = 0;
            places.dedup_by(|next, place| {
                at += 1;
                let second = at % 2 == 1;
                if second {
                    place.join(next);
                }
                second
            });
        }
        places.push(Place {
            bytes,
            first: part.earliest(),
            last: part.max,
        });
    }

    fn join(&mut self, next: &Place) {
        self.bytes.end = next.bytes.end;
        self.first = self.first.min(next.first);
        self.last = self.last.max(next.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bytes: Range<usize>, first: u64, last: u64) -> Place {
        Place { bytes, first, last }
    }

    fn read(places: &[Place], windows: &[(u64, u64)]) -> Vec<(usize, usize)> {
        let places = Places::new(places.to_vec(), Vec::new(), Vec::new());
        let found = places.within(windows).unwrap();
        found.iter().map(|part| (part.start, part.end)).collect()
    }

    /// With several CPUs, the times of a part may be before those of the part before it.
    #[test]
    fn parts_are_read_that_have_a_time_in_a_window() {
        let places = [
            place(0..10, 5, 20),
            place(10..20, 3, 15),
            place(20..30, u64::MAX, 0),
            place(30..40, 20, 30),
        ];
        let all = |from, to| read(&places, &[(from, to)]);
        assert_eq!(all(0, 2), []);
        assert_eq!(all(0, 3), [(10, 20)]);
        assert_eq!(all(0, 5), [(0, 20)]);
        assert_eq!(all(15, 15), [(0, 20)]);
        assert_eq!(all(16, 16), [(0, 10)]);
        assert_eq!(all(20, 20), [(0, 10), (30, 40)]);
        assert_eq!(all(21, 29), [(30, 40)]);
        assert_eq!(all(30, u64::MAX), [(30, 40)]);
        assert_eq!(all(31, u64::MAX), []);
        assert_eq!(
            read(&places, &[(0, 2), (4, 4), (25, 26)]),
            [(10, 20), (30, 40)]
        );
        assert_eq!(read(&places, &[]), []);
        assert_eq!(Places::default().within(&[(0, 0)]), None);
    }

    #[test]
    fn many_parts_take_bounded_memory() {
        let plan = ScanPlan {
            ids: Arc::default(),
            events: Vec::new(),
            windows: None,
            switches: false,
            stacked: Vec::new(),
            stacks: false,
            calls: false,
            most: AtomicUsize::new(0),
        };
        let mut places = Vec::new();
        let many = 5 * MOST + 3;
        for at in 0..many {
            let mut part = plan.read(View::whole(&[]), 0, 0);
            (part.min, part.max) = (2 * at as u64, 2 * at as u64 + 1);
            Place::note(&mut places, &part, at..at + 1);
            assert!(places.len() <= MOST);
        }
        assert!(places.len() > MOST / 2);
        let mut end = 0;
        for place in &places {
            assert_eq!(place.bytes.start, end);
            end = place.bytes.end;
            assert_eq!(place.first, 2 * place.bytes.start as u64);
            assert_eq!(place.last, 2 * end as u64 - 1);
        }
        assert_eq!(end, many);
    }
}
