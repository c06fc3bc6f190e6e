//! Events of threads in given spans of time.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::events::{Batch, Ev, Item, Meaning, Role, Side, ABSENT};
use crate::reader::{Places, Reader};
use crate::requests::stitch;

/// Maximum number of moments kept of a span.
pub const MOST: usize = 10_000;

/// Span of a thread, both ends included, in ns on the recording's clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub tid: i32,
    pub from: u64,
    pub to: u64,
}

impl Span {
    pub fn holds(&self, time: u64) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

/// Event of a thread, or one that concerns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub time: u64,
    /// Thread that caused the event: of a wake-up, the waking one.
    pub tid: i32,
    pub cpu: u32,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Row of the catalogue, and its values as in `Ev`. The state of a switched-out task is 0 if it is runnable.
    Event(u32, [u64; 4]),
    /// PERF_RECORD_SWITCH.
    Switch { out: bool, preempt: bool },
    /// A callback's name and inode.
    Name(Arc<str>, u64),
}

/// Return the moments of each span by time, at most `MOST`, from a further pass. `catalogue` is that of the pass that
/// noted the places.
pub fn gather(
    reader: &Reader,
    catalogue: &[Meaning],
    places: &Places,
    spans: &[Span],
) -> Vec<Vec<Moment>> {
    let mut gathered = Gathered {
        roles: catalogue.iter().map(|row| row.role).collect(),
        asleep: stitch::asleep(reader),
        spans,
        by_tid: FxHashMap::default(),
        moments: vec![Vec::new(); spans.len()],
    };
    for (index, span) in spans.iter().enumerate() {
        gathered.by_tid.entry(span.tid).or_default().push(index);
    }
    reader.scan_within(catalogue, places, windows(spans), &mut |batch| {
        gathered.push(&batch)
    });
    gathered.moments
}

/// Return the spans' times, merged where they overlap.
fn windows(spans: &[Span]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = spans.iter().map(|span| (span.from, span.to)).collect();
    all.sort_unstable();
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match windows.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => windows.push((from, to)),
        }
    }
    windows
}

struct Gathered<'a> {
    roles: Vec<Role>,
    asleep: u64,
    spans: &'a [Span],
    by_tid: FxHashMap<i32, Vec<usize>>,
    moments: Vec<Vec<Moment>>,
}

impl Gathered<'_> {
    fn push(&mut self, batch: &Batch) {
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => self.side(record),
        });
    }

    fn event(&mut self, ev: &Ev) {
        let Some(role) = self.roles.get(ev.kind as usize) else {
            return;
        };
        // A switch concerns two threads; a wake-up also the woken one. A signal's sender may be any task.
        let about = match role {
            Role::Switch => [ev.v[0], ev.v[2]],
            Role::Waking => [ev.tid as u64, ev.v[0]],
            Role::Signal => [ev.v[1], ABSENT],
            _ => [ev.tid as u64, ABSENT],
        };
        let mut v = ev.v;
        if *role == Role::Switch && v[1] != ABSENT {
            v[1] &= self.asleep;
        }
        for (place, tid) in about.into_iter().enumerate() {
            if tid == ABSENT || (place == 1 && about[0] as i32 == tid as i32) {
                continue;
            }
            self.keep(ev.time, tid as i32, || Moment {
                time: ev.time,
                tid: ev.tid,
                cpu: ev.cpu,
                what: What::Event(ev.kind, v),
            });
        }
    }

    fn side(&mut self, record: &Side) {
        let (time, tid, what) = match record {
            Side::Switch {
                time,
                tid,
                out,
                preempt,
                ..
            } => (
                *time,
                *tid,
                What::Switch {
                    out: *out,
                    preempt: *preempt,
                },
            ),
            Side::Name {
                time,
                tid,
                name,
                ino,
                ..
            } => (*time, *tid, What::Name(name.clone(), *ino)),
            _ => return,
        };
        self.keep(time, tid, || Moment {
            time,
            tid,
            cpu: u32::MAX,
            what: what.clone(),
        });
    }

    fn keep(&mut self, time: u64, about: i32, moment: impl Fn() -> Moment) {
        let spans = self.by_tid.get(&about).map_or(&[][..], Vec::as_slice);
        for index in spans {
            let span = &self.spans[*index];
            let moments = &mut self.moments[*index];
            if span.holds(time) && moments.len() < MOST {
                moments.push(moment());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_windows_are_merged() {
        let span = |from, to| Span { tid: 1, from, to };
        let spans = [span(50, 60), span(0, 10), span(10, 20), span(55, 58)];
        assert_eq!(windows(&spans), [(0, 20), (50, 60)]);
    }
}
