//! Facts about threads, remembered until a story claims them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Facts of stories that are not reported yet, by thread and time. The number is bounded: the oldest go first.
pub(super) type Recent<T> = FxHashMap<i32, VecDeque<T>>;
const MOST_RECENT: usize = 256;

pub(super) fn remember<T>(recent: &mut Recent<T>, tid: i32, what: T) {
    let known = recent.entry(tid).or_default();
    if known.len() == MOST_RECENT {
        known.pop_front();
    }
    known.push_back(what);
}

/// Remove and return what a thread remembered at exactly that time.
pub(super) fn taken<T: Copy>(recent: &mut Recent<(u64, T)>, tid: i32, time: u64) -> Option<T> {
    let known = recent.get_mut(&tid)?;
    let at = known.iter().position(|(at, _)| *at == time)?;
    let (_, what) = known.remove(at)?;
    Some(what)
}
