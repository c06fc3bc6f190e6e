//! Latency histograms: log2 buckets for people, a finer counter for percentiles.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// Sub-buckets of an octave in the finer counter. Percentiles are exact below 2 * SUB ns, and at most 1/SUB too high
/// above.
const SUB: usize = 1 << 11;
const OCTAVES: usize = 64 - 10;

/// Durations in ns. `count`, `sum`, `min`, `max` and the log2 buckets are exact.
#[derive(Clone, Debug)]
pub struct Hist {
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
    log2: [u64; 64],
    /// Finer counter: the first holds 0..SUB, each further one an octave in SUB steps.
    fine: [Option<Box<[u64; SUB]>>; OCTAVES],
}

/// Percentiles that every command shows, in thousandths.
const PERCENTILES: [(&str, u32); 5] = [
    ("50", 500),
    ("90", 900),
    ("95", 950),
    ("99", 990),
    ("99.9", 999),
];

/// Figures of a histogram, as in fusetools/results/hist.py.
#[derive(Serialize)]
struct Figures {
    count: u64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    mean_ns: Option<f64>,
    percentiles_ns: BTreeMap<&'static str, u64>,
    buckets: Vec<(u64, u64, u64)>,
    total_ns: u128,
}

impl Serialize for Hist {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let percentiles = PERCENTILES.into_iter();
        let percentiles =
            percentiles.filter_map(|(name, per_mille)| Some((name, self.percentile(per_mille)?)));
        let figures = Figures {
            count: self.count,
            min_ns: self.min(),
            max_ns: self.max(),
            mean_ns: (self.count > 0).then(|| self.sum as f64 / self.count as f64),
            percentiles_ns: percentiles.collect(),
            buckets: self.buckets(),
            total_ns: self.sum,
        };
        figures.serialize(serializer)
    }
}

/// Buckets of an octave in `bucket`.
const BUCKETS: u64 = 128;

/// Return the number of the log-linear bucket of a duration in tables: the duration itself below 2 * 128 ns, else 128
/// buckets for each octave. A bucket's last value is less than 1 % above its first. Buckets are those of
/// fusetools/results/buckets.py.
pub(crate) fn bucket(ns: u64) -> u64 {
    let shift = (ns / BUCKETS).max(1).ilog2();
    u64::from(shift) * BUCKETS + (ns >> shift)
}

impl Default for Hist {
    fn default() -> Hist {
        Hist {
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
            log2: [0; 64],
            fine: [const { None }; OCTAVES],
        }
    }
}

impl Hist {
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.log2[(ns | 1).ilog2() as usize] += 1;
        let (octave, sub) = place(ns);
        self.fine[octave].get_or_insert_with(|| Box::new([0; SUB]))[sub] += 1;
    }

    /// Add the duration 0, this many times.
    pub fn add_zeros(&mut self, times: u64) {
        if times > 0 {
            self.add(0);
            self.count += times - 1;
            self.log2[0] += times - 1;
            if let Some(first) = &mut self.fine[0] {
                first[0] += times - 1;
            }
        }
    }

    pub fn merge(&mut self, other: &Hist) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (a, b) in self.log2.iter_mut().zip(&other.log2) {
            *a += b;
        }
        for (a, b) in self.fine.iter_mut().zip(&other.fine) {
            if let Some(b) = b {
                let a = a.get_or_insert_with(|| Box::new([0; SUB]));
                for (a, b) in a.iter_mut().zip(b.iter()) {
                    *a += b;
                }
            }
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Return the minimum; None if nothing was added, like `max` and `percentile`.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Return the smallest duration that at least `per_mille` thousandths of all do not exceed (nearest rank).
    pub fn percentile(&self, per_mille: u32) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(per_mille))
            .div_ceil(1000)
            .max(1);
        let mut below = 0;
        for (octave, table) in self.fine.iter().enumerate() {
            for (sub, n) in table.iter().flat_map(|table| table.iter().enumerate()) {
                below += u128::from(*n);
                if below >= rank {
                    return Some(last(octave, sub).clamp(self.min, self.max));
                }
            }
        }
        None
    }

    /// Return (low, high, count) from the first to the last used bucket: 0 to 1, 2 to 3, 4 to 7 ns …
    pub fn buckets(&self) -> Vec<(u64, u64, u64)> {
        let used = |n: &u64| *n > 0;
        let Some(first) = self.log2.iter().position(used) else {
            return Vec::new();
        };
        let last = self.log2.iter().rposition(used).unwrap_or(first);
        (first..=last)
            .map(|k| {
                (
                    if k == 0 { 0 } else { 1 << k },
                    u64::MAX >> (63 - k),
                    self.log2[k],
                )
            })
            .collect()
    }
}

fn place(ns: u64) -> (usize, usize) {
    if ns < SUB as u64 {
        return (0, ns as usize);
    }
    let k = ns.ilog2() as usize;
    (k - 10, (ns >> (k - 11)) as usize & (SUB - 1))
}

/// Return the largest duration that falls in this place.
fn last(octave: usize, sub: usize) -> u64 {
    if octave == 0 {
        return sub as u64;
    }
    let shift = octave - 1;
    (((SUB + sub) as u64) << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(values: &[u64]) -> Hist {
        let mut hist = Hist::default();
        values.iter().for_each(|v| hist.add(*v));
        hist
    }

    /// Return durations of all sizes, not only huge ones.
    fn durations() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec((any::<u64>(), 0u32..64).prop_map(|(v, s)| v >> s), 1..300)
    }

    #[test]
    fn edges() {
        let hist = Hist::default();
        assert_eq!(
            (hist.min(), hist.max(), hist.percentile(500)),
            (None, None, None)
        );
        assert_eq!(hist.buckets(), []);
        let hist = filled(&[0, 1, 2, 3, 4, 7, 8, u64::MAX]);
        let buckets = hist.buckets();
        assert_eq!(buckets[..4], [(0, 1, 2), (2, 3, 2), (4, 7, 2), (8, 15, 1)]);
        assert_eq!(buckets[63], (1 << 63, u64::MAX, 1));
        assert_eq!(hist.percentile(1000), Some(u64::MAX));
        assert_eq!(hist.sum(), 25 + u128::from(u64::MAX));
        // 99.9 % of 1000 is the 999th, which floating-point arithmetic misses.
        assert_eq!(
            filled(&(1..=1000).collect::<Vec<_>>()).percentile(999),
            Some(999)
        );
    }

    proptest! {
        #[test]
        fn as_a_sorted_list(values in durations(), per_mille in 0u32..=1000) {
            let hist = filled(&values);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!(hist.count(), sorted.len() as u64);
            prop_assert_eq!(hist.sum(), sorted.iter().map(|v| u128::from(*v)).sum::<u128>());
            prop_assert_eq!(hist.min(), sorted.first().copied());
            prop_assert_eq!(hist.max(), sorted.last().copied());
            for (low, high, n) in hist.buckets() {
                let expected = sorted.iter().filter(|v| (low..=high).contains(*v)).count();
                prop_assert_eq!(n, expected as u64);
            }
            prop_assert_eq!(hist.buckets().iter().map(|b| b.2).sum::<u64>(), hist.count());

            let enough = |v: u64| sorted.iter().filter(|x| **x <= v).count() * 1000 >= per_mille as usize * sorted.len();
            let exact = sorted.iter().copied().find(|v| enough(*v)).unwrap();
            let got = hist.percentile(per_mille).unwrap();
            prop_assert!(got >= exact && got - exact <= exact / 2048, "{got} for {exact}");
            prop_assert!(exact >= 4096 || got == exact);
        }

        #[test]
        fn merging_is_adding_to_one(a in durations(), b in durations(), per_mille in 0u32..=1000) {
            let mut merged = filled(&a);
            merged.merge(&filled(&b));
            let both = filled(&[a, b].concat());
            prop_assert_eq!(merged.buckets(), both.buckets());
            prop_assert_eq!(merged.percentile(per_mille), both.percentile(per_mille));
            prop_assert_eq!((merged.count(), merged.sum(), merged.min(), merged.max()), (both.count(), both.sum(), both.min(), both.max()));
        }
    }
}
