//! Bounded tables of counts.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Number of requests, and their ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: u64,
    pub ns: u64,
}

/// Counts by key. Beyond `most` keys, new ones are only counted together.
#[derive(Clone, Debug)]
pub struct Table<K> {
    most: usize,
    rows: FxHashMap<K, Count>,
    pub others: Count,
}

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table::new(0)
    }
}

impl<K> Table<K> {
    pub fn new(most: usize) -> Table<K> {
        Table {
            most,
            rows: FxHashMap::default(),
            others: Count::default(),
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> Table<K> {
    pub fn add(&mut self, key: K, ns: u64) {
        self.count(key, Count { requests: 1, ns });
    }

    pub fn count(&mut self, key: K, more: Count) {
        let full = self.rows.len() >= self.most;
        let count = match self.rows.get_mut(&key) {
            Some(count) => count,
            None if full => &mut self.others,
            None => self.rows.entry(key).or_default(),
        };
        count.requests += more.requests;
        count.ns = count.ns.saturating_add(more.ns);
    }

    /// Return the rows, most time first.
    pub fn rows(&self) -> Vec<(K, Count)> {
        let mut rows: Vec<(K, Count)> = self.rows.iter().map(|(key, n)| (*key, *n)).collect();
        rows.sort_by(|a, b| (b.1.ns, b.1.requests, a.0).cmp(&(a.1.ns, a.1.requests, b.0)));
        rows
    }

    /// Return the rows by a part of their key, each by decreasing time.
    pub fn by<G: Eq + Hash>(self, group: impl Fn(&K) -> G) -> FxHashMap<G, Vec<(K, Count)>> {
        let mut groups: FxHashMap<G, Vec<(K, Count)>> = FxHashMap::default();
        for row in self.rows() {
            groups.entry(group(&row.0)).or_default().push(row);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_counts_the_rest_together() {
        let mut table = Table::new(2);
        for (key, ns) in [(1, 10), (2, 20), (3, 5), (1, 1), (4, 7)] {
            table.add(key, ns);
        }
        let count = |requests, ns| Count { requests, ns };
        assert_eq!(table.rows(), [(2, count(1, 20)), (1, count(2, 11))]);
        assert_eq!(table.others, count(2, 12));
    }
}
