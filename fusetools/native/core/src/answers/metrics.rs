//! Distributions of durations for monitoring systems, which add them up over time and over hosts.

use std::collections::BTreeMap;

use serde::Serialize;

/// The last classic bucket ends at 2^26 us, 67 s; longer durations have the next number.
const MOST_CLASSIC: u32 = 27;

/// Durations of an interval, counted in two ways. Both count all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    pub count: u64,
    /// Sum in ns.
    pub sum: u64,
    /// By the smallest n of which 2^n us is not exceeded: exact.
    pub classic: BTreeMap<u32, u64>,
    /// By the smallest n of which 2^(n/8) s is not exceeded: schema 3 of Prometheus, scale 3 of OpenTelemetry with
    /// n - 1. A duration within 1e-12 of a bound may be on its other side.
    pub native: BTreeMap<i32, u64>,
    /// Durations of 0 ns, in no native bucket.
    pub zeros: u64,
}

impl Distribution {
    /// Count a duration in ns.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        *self.classic.entry(classic(ns)).or_default() += 1;
        match native(ns) {
            Some(bucket) => *self.native.entry(bucket).or_default() += 1,
            None => self.zeros += 1,
        }
    }
}

fn classic(ns: u64) -> u32 {
    let us = ns.div_ceil(1000).max(1);
    (64 - (us - 1).leading_zeros()).min(MOST_CLASSIC)
}

fn native(ns: u64) -> Option<i32> {
    (ns > 0).then(|| ((ns as f64 / 1e9).log2() * 8.0).ceil() as i32)
}

/// Requests of an operation on a connection that ended in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub connection: u64,
    pub operation: &'static str,
    /// From begin to end; and, of requests with a known start in the daemon, until then and from then on.
    pub whole: Distribution,
    pub queue: Distribution,
    pub daemon: Distribution,
    /// Bytes read or written.
    pub bytes: u64,
    /// Number of requests by errno.
    pub errors: BTreeMap<i32, u64>,
}

/// Requests of a connection in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InFlight {
    pub connection: u64,
    pub requests: u64,
    /// Requests that no thread of the daemon has begun, of operations of which a begin was seen before; None: there are
    /// no such requests.
    pub queued: Option<u64>,
    /// Age of the oldest in ns; those whose end may have been lost do not count.
    pub oldest: u64,
}

/// An interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    pub measured: Vec<Measured>,
    pub in_flight: Vec<InFlight>,
    /// Requests that are in no sum: there were too many.
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        for (ns, bucket) in [
            (0, 0),
            (1, 0),
            (1_000, 0),
            (1_001, 1),
            (2_000, 1),
            (2_001, 2),
        ] {
            assert_eq!(classic(ns), bucket, "{ns}");
        }
        assert_eq!(classic(1_000 << 26), 26);
        assert_eq!(classic((1_000 << 26) + 1), 27);
        assert_eq!(classic(u64::MAX), 27);
    }

    #[test]
    fn native_buckets_are_eight_an_octave_of_seconds() {
        for (ns, bucket) in [
            (1_000_000_000, 0),
            (1_000_000_001, 1),
            (2_000_000_000, 8),
            (500_000_000, -8),
        ] {
            assert_eq!(native(ns), Some(bucket), "{ns}");
        }
        assert_eq!(native(0), None);
        // Each duration is within its bucket's bounds.
        for ns in (1..64).map(|shift| u64::MAX >> shift) {
            let bucket = f64::from(native(ns).unwrap());
            let seconds = ns as f64 / 1e9;
            assert!(seconds <= (bucket / 8.0).exp2() * (1.0 + 1e-12), "{ns}");
            assert!(
                seconds > ((bucket - 1.0) / 8.0).exp2() * (1.0 - 1e-12),
                "{ns}"
            );
        }
    }
}
