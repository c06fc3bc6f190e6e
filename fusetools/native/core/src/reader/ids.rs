//! Lookup from a sample's id to its event.

use super::*;

/// Table from a sample's id to its event.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) base: u64,
    /// Event by id - base; NONE if there is none.
    pub(super) dense: Vec<u32>,
    /// Sorted list, for ids too far apart for a table.
    pub(super) sparse: Vec<(u64, u32)>,
    /// Offset of the id: in a sample from its start, in others from their end; 0: absent.
    pub(super) sample: usize,
    pub(super) other: usize,
    /// There is only one event: ids are not needed.
    pub(super) single: bool,
}

pub(super) const NONE: u32 = u32::MAX;

impl Ids {
    pub(super) fn new(attrs: &[Attr], warnings: &mut Vec<String>) -> Ids {
        let Some(first) = attrs.first() else {
            return Ids::default();
        };
        let mut ids = Ids {
            single: attrs.len() == 1,
            sample: first.layout.id,
            other: first.layout.tail_id,
            ..Ids::default()
        };
        if attrs
            .iter()
            .any(|a| (a.layout.id, a.layout.tail_id) != (ids.sample, ids.other))
        {
            (ids.sample, ids.other) = (0, 0);
        }
        if ids.sample == 0 && !ids.single {
            warnings
                .push("the samples do not tell which event they are of: none can be read".into());
            return ids;
        }
        let mut all: Vec<(u64, u32)> = attrs
            .iter()
            .zip(0u32..)
            .flat_map(|(attr, i)| attr.ids.iter().map(move |id| (*id, i)))
            .collect();
        all.sort();
        if all
            .windows(2)
            .any(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1)
        {
            warnings
                .push("several events have the same id: their samples count for the first".into());
        }
        all.dedup_by_key(|(id, _)| *id);
        if let (Some(&(low, _)), Some(&(high, _))) = (all.first(), all.last()) {
            let span = high - low;
            if span < (64 << 10) + 4 * all.len() as u64 {
                ids.base = low;
                ids.dense = vec![NONE; span as usize + 1];
                for (id, index) in all {
                    ids.dense[(id - low) as usize] = index;
                }
            } else {
                ids.sparse = all;
            }
        }
        ids
    }

    #[inline(always)]
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        // Records that perf makes up at the start have id 0 and count as the first event's.
        if id == 0 {
            return Some(0);
        }
        let index = if self.sparse.is_empty() {
            let place = usize::try_from(id.wrapping_sub(self.base)).ok()?;
            self.dense.get(place).copied().unwrap_or(NONE)
        } else {
            self.sparse
                .binary_search_by_key(&id, |(id, _)| *id)
                .map_or(NONE, |place| self.sparse[place].1)
        };
        (index != NONE).then_some(index as usize)
    }

    #[inline(always)]
    pub(super) fn of_sample(&self, bytes: &[u8]) -> Option<usize> {
        if self.single {
            return Some(0);
        }
        match self.sample {
            0 => None,
            place => self.find(u64_at(bytes, place)?),
        }
    }

    #[inline(always)]
    pub(super) fn of_other(&self, bytes: &[u8]) -> Option<usize> {
        if self.single {
            return Some(0);
        }
        match self.other {
            0 => None,
            back => self.find(u64_at(bytes, record::from_end(bytes, back, back)?)?),
        }
    }
}
