//! Writes a recording for an older perf: replaces or omits what it cannot read.
//!
//! An older perf rejects a file whose attrs are longer than its own (tools/perf/util/header.c, read_attr), and ends at
//! the first record of a type that it does not know (tools/perf/util/session.c). It ignores flags, and parts of samples
//! that follow those it knows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Error;
use crate::format::record::{self, bit, u32_at};

/// A version of perf: its first two numbers.
pub type Version = (u32, u32);

/// The oldest perf that files are written for: the first that knows the clock in an attr.
pub const OLDEST: Version = (4, 1);

/// Types of records, and the first perf that knows them. Older ones are in all.
const RECORDS: [(u32, &str, Version); 25] = [
    (record::LOST_SAMPLES, "LOST_SAMPLES", (4, 2)),
    (record::SWITCH, "SWITCH", (4, 3)),
    (record::SWITCH_CPU_WIDE, "SWITCH_CPU_WIDE", (4, 3)),
    (16, "NAMESPACES", (4, 12)),
    (17, "KSYMBOL", (5, 1)),
    (18, "BPF_EVENT", (5, 1)),
    (19, "CGROUP", (5, 7)),
    (20, "TEXT_POKE", (5, 9)),
    (21, "AUX_OUTPUT_HW_ID", (5, 16)),
    (22, "CALLCHAIN_DEFERRED", (6, 19)),
    (record::THREAD_MAP, "THREAD_MAP", (4, 5)),
    (record::CPU_MAP, "CPU_MAP", (4, 5)),
    (75, "STAT_CONFIG", (4, 5)),
    (76, "STAT", (4, 5)),
    (77, "STAT_ROUND", (4, 5)),
    (record::EVENT_UPDATE, "EVENT_UPDATE", (4, 5)),
    (record::TIME_CONV, "TIME_CONV", (4, 8)),
    (record::HEADER_FEATURE, "HEADER_FEATURE", (4, 14)),
    (record::COMPRESSED, "COMPRESSED", (5, 2)),
    (record::FINISHED_INIT, "FINISHED_INIT", (6, 1)),
    (record::COMPRESSED2, "COMPRESSED2", (6, 16)),
    (84, "BPF_METADATA", (6, 17)),
    (85, "SCHEDSTAT_CPU", (6, 17)),
    (86, "SCHEDSTAT_DOMAIN", (6, 17)),
    (LATER, "of a later perf", (u32::MAX, 0)),
];
/// The first type that is none of the above.
const LATER: u32 = 87;
/// A CPU_MAP of this form is as old as perf 6.1 (PERF_CPU_MAP__RANGE_CPUS).
const RANGE: u16 = 2;
/// An MMAP2 may hold a build id since perf 5.12.
const BUILD_IDS: Version = (5, 12);
/// Place of the build id's size in an MMAP2, and of its path.
const BUILD_ID: usize = 40;
const PATH: usize = 72;

/// Sizes of struct perf_event_attr, and the first perf that has them.
const ATTR_SIZES: [(usize, Version); 5] = [
    (144, (6, 18)),
    (136, (6, 3)),
    (128, (5, 13)),
    (120, (5, 5)),
    (112, OLDEST),
];

/// Parts of a sample that stand before parts which an older perf knows: it would read those wrongly.
const WEIGHT_STRUCT: u64 = 1 << 24;
const AUX: u64 = 1 << 20;
const BEFORE_AUX: [(u64, Version); 3] = [(1 << 21, (5, 7)), (1 << 22, (5, 11)), (1 << 23, (5, 11))];
const HW_INDEX: u64 = 1 << 17;
const COUNTERS: u64 = 1 << 19;

/// Bits of an event's attr that tell what its samples hold.
#[derive(Clone, Copy, Default)]
pub(super) struct Holds {
    pub sample_type: u64,
    pub read_format: u64,
    pub branch_sample_type: u64,
}

/// A file for an older perf.
pub(super) struct Older {
    version: Version,
    /// Number of records left out, by the place of their type in `RECORDS`.
    left_out: BTreeMap<usize, u64>,
    /// Build ids of mapped files.
    build_ids: BTreeMap<Vec<u8>, [u8; 20]>,
}

impl Older {
    pub(super) fn new(version: Version) -> Result<Older, Error> {
        if version < OLDEST {
            return Err(Error::mismatch(format!(
                "a perf before {}.{} cannot read it",
                OLDEST.0, OLDEST.1
            )));
        }
        Ok(Older {
            version,
            left_out: BTreeMap::new(),
            build_ids: BTreeMap::new(),
        })
    }

    /// Return the maximum size of an attr.
    pub(super) fn attr_size(&self) -> usize {
        let known = ATTR_SIZES.iter().find(|(_, since)| *since <= self.version);
        known.map_or(ATTR_SIZES[0].0, |(size, _)| *size)
    }

    /// Refuse an event whose samples this perf would read wrongly.
    pub(super) fn check(&self, event: &str, of: Holds) -> Result<(), Error> {
        let has = |bits: u64| of.sample_type & bits != 0;
        let branches = of.branch_sample_type;
        let before_aux = BEFORE_AUX
            .iter()
            .any(|(bit, since)| has(*bit) && self.version < *since);
        let refused = [
            (has(WEIGHT_STRUCT), (5, 12), "WEIGHT_STRUCT"),
            (
                has(bit::READ) && of.read_format & bit::READ_LOST != 0,
                (6, 1),
                "FORMAT_LOST",
            ),
            (
                has(bit::BRANCH_STACK) && branches & HW_INDEX != 0,
                (5, 7),
                "BRANCH_HW_INDEX",
            ),
            (
                has(bit::BRANCH_STACK) && branches & COUNTERS != 0,
                (6, 8),
                "BRANCH_COUNTERS",
            ),
            (has(AUX) && before_aux, (5, 11), "AUX"),
        ];
        let found = refused
            .iter()
            .find(|(used, since, _)| *used && self.version < *since);
        match found {
            Some((_, (major, minor), what)) => Err(Error::mismatch(format!(
                "samples of {event} have {what}, which perf before {major}.{minor} reads wrongly"
            ))),
            None => Ok(()),
        }
    }

    /// Return a record as this perf reads it; None if it cannot.
    pub(super) fn record<'r>(&mut self, record: &'r [u8]) -> Option<Cow<'r, [u8]>> {
        let kind = u32_at(record, 0)?;
        let known = RECORDS.iter().position(|(of, ..)| *of == kind.min(LATER));
        if let Some(at) = known.filter(|&at| self.version < RECORDS[at].2) {
            *self.left_out.entry(at).or_default() += 1;
            return None;
        }
        let two = |at: usize| Some(u16::from_le_bytes(record.get(at..at + 2)?.try_into().ok()?));
        if kind == record::CPU_MAP && two(8) == Some(RANGE) && self.version < (6, 1) {
            *self.left_out.entry(known?).or_default() += 1;
            return None;
        }
        let with_build_id = two(4).is_some_and(|misc| misc & record::MISC_MMAP_BUILD_ID != 0);
        if kind != record::MMAP2 || !with_build_id || self.version >= BUILD_IDS {
            return Some(Cow::Borrowed(record));
        }
        let mut made = record.to_vec();
        let misc = two(4)? & !record::MISC_MMAP_BUILD_ID;
        made[4..6].copy_from_slice(&misc.to_le_bytes());
        let size = usize::from(*record.get(BUILD_ID)?).min(20);
        let mut build_id = [0; 20];
        build_id[..size].copy_from_slice(record.get(BUILD_ID + 4..BUILD_ID + 4 + size)?);
        made.get_mut(BUILD_ID..BUILD_ID + 24)?.fill(0);
        let path = record.get(PATH..)?.split(|&byte| byte == 0).next()?;
        if size > 0 && !path.is_empty() {
            self.build_ids.entry(path.to_vec()).or_insert(build_id);
        }
        Some(Cow::Owned(made))
    }

    /// Return the section of BUILD_ID with what MMAP2s had: struct perf_record_header_build_id.
    pub(super) fn build_ids(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, build_id) in &self.build_ids {
            let name = (path.len() + 1).next_multiple_of(64);
            out.extend(record::HEADER_BUILD_ID.to_le_bytes());
            out.extend(record::MISC_USER.to_le_bytes());
            out.extend((8 + 4 + 24 + name as u16).to_le_bytes());
            out.extend((-1i32).to_le_bytes()); // of the host, not of a guest
            out.extend(build_id);
            out.extend([0; 4]);
            out.extend(path);
            out.resize(out.len() + name - path.len(), 0);
        }
        out
    }

    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let (major, minor) = self.version;
        let told = self
            .left_out
            .iter()
            .filter(|(&at, _)| RECORDS[at].0 != record::FINISHED_INIT);
        told.map(move |(&at, count)| {
            let records = if *count == 1 { "record" } else { "records" };
            format!(
                "{count} {records} {} left out: perf {major}.{minor} cannot read such records",
                RECORDS[at].1
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend(misc.to_le_bytes());
        out.extend((8 + body.len() as u16).to_le_bytes());
        out.extend(body);
        out
    }

    /// Return the types below 100 that a perf of this version reads.
    fn read_by(version: Version) -> Vec<u32> {
        let mut older = Older::new(version).unwrap();
        let kinds = (1..100).filter(|&kind| older.record(&record(kind, 0, &[0; 80])).is_some());
        kinds.collect()
    }

    #[test]
    fn types_are_those_of_each_perfs_headers() {
        // PERF_RECORD_MAX of include/uapi/linux/perf_event.h, PERF_RECORD_HEADER_MAX of perf's event.h
        for (version, kernel, perf) in [((4, 18), 17, 81), ((5, 10), 21, 82), ((6, 1), 22, 83)] {
            let expected: Vec<u32> = (1..kernel).chain(64..perf).collect();
            let mut read = read_by(version);
            read.retain(|kind| !(23..64).contains(kind)); // no perf has them
            assert_eq!(read, expected, "{version:?}");
        }
    }

    #[test]
    fn the_form_of_a_cpu_map_counts() {
        let mut older = Older::new((5, 10)).unwrap();
        for (form, read) in [(0u16, true), (1, true), (RANGE, false)] {
            let map = record(record::CPU_MAP, 0, &[form.to_le_bytes(), [0; 2]].concat());
            assert_eq!(older.record(&map).is_some(), read);
        }
        assert_eq!(
            older.warnings().collect::<Vec<_>>(),
            ["1 record CPU_MAP left out: perf 5.10 cannot read such records"]
        );
    }

    #[test]
    fn build_ids_move_to_the_header() {
        let misc = record::MISC_USER | record::MISC_MMAP_BUILD_ID;
        let mut body = vec![7; 32];
        body.extend([20, 0, 0, 0]);
        body.extend([9; 20]);
        body.extend([5; 8]);
        body.extend(b"/usr/bin/x\0\0\0\0\0\0");
        let mapped = record(record::MMAP2, misc, &body);
        let mut newer = Older::new((5, 12)).unwrap();
        assert_eq!(newer.record(&mapped).as_deref(), Some(&mapped[..]));
        assert!(newer.build_ids().is_empty());

        let mut older = Older::new((5, 11)).unwrap();
        body[32..56].fill(0);
        let expected = record(record::MMAP2, record::MISC_USER, &body);
        for _ in 0..2 {
            assert_eq!(older.record(&mapped).as_deref(), Some(&expected[..]));
        }
        let mut section = (-1i32).to_le_bytes().to_vec();
        section.extend([[9; 20].as_slice(), &[0; 4], b"/usr/bin/x", &[0; 54]].concat());
        let expected = record(record::HEADER_BUILD_ID, record::MISC_USER, &section);
        assert_eq!(older.build_ids(), expected);
    }

    #[test]
    fn what_would_be_read_wrongly_is_refused() {
        let refused = |sample_type, read_format, branch_sample_type, version| {
            let of = Holds {
                sample_type,
                read_format,
                branch_sample_type,
            };
            Older::new(version).unwrap().check("a:b", of).is_err()
        };
        assert!(!refused(
            bit::IP | bit::READ | bit::BRANCH_STACK,
            0,
            0,
            OLDEST
        ));
        for (sample_type, read_format, branches, since) in [
            (WEIGHT_STRUCT, 0, 0, (5, 12)),
            (AUX | BEFORE_AUX[0].0, 0, 0, (5, 7)),
            (AUX | BEFORE_AUX[1].0, 0, 0, (5, 11)),
            (bit::READ, bit::READ_LOST, 0, (6, 1)),
            (bit::BRANCH_STACK, 0, HW_INDEX, (5, 7)),
            (bit::BRANCH_STACK, 0, COUNTERS, (6, 8)),
        ] {
            let before = (since.0, since.1 - 1);
            assert!(refused(sample_type, read_format, branches, before));
            assert!(!refused(sample_type, read_format, branches, since));
        }
        assert!(Older::new((4, 0)).is_err());
    }
}
