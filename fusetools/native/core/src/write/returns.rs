//! Where calls with a return probe go back to. While such a call is under way its return address on the stack is the
//! probe's; only what the probe tells at the end of the call says which one was there.

use rustc_hash::FxHashMap;

use crate::format::{Field, Value};
use crate::reader::Reader;
use crate::record;

/// Calls of a thread at a time, as many as the kernel follows (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c).
const DEEPEST: usize = 64;
/// Calls in all, 24 bytes each.
const MOST_CALLS: usize = 1 << 24;
/// Calls that are looked at for those that were under way.
const MOST_LATER: usize = 1 << 12;

struct Call {
    entered: u64,
    left: u64,
    to: u64,
}

#[derive(Default)]
pub(super) struct Returns {
    /// By thread, in the order in which they ended.
    calls: FxHashMap<i32, Vec<Call>>,
}

/// What tells of calls: an event of a uprobe has the field `__probe_ip`, one of a return probe `__probe_func` and
/// `__probe_ret_ip` (Documentation/trace/uprobetracer.rst).
enum Tells<'a> {
    Entry(&'a Field),
    Return(&'a Field, &'a Field),
}

impl Returns {
    /// Gathers them in a pass over a recording that is still as perf wrote it.
    pub(super) fn read(reader: &Reader) -> Returns {
        let mut returns = Returns::default();
        let events: Vec<_> = reader
            .events()
            .iter()
            .map(|event| {
                let format = event.format.as_ref()?;
                match (format.field("__probe_func"), format.field("__probe_ret_ip")) {
                    (Some(function), Some(to)) => Some(Tells::Return(function, to)),
                    _ => format.field("__probe_ip").map(Tells::Entry),
                }
            })
            .collect();
        if !events.iter().any(|e| matches!(e, Some(Tells::Return(..)))) {
            return returns;
        }
        let mut count = 0;
        // Functions entered and not left, with the time.
        let mut open: FxHashMap<i32, Vec<(u64, u64)>> = FxHashMap::default();
        // Where a function went back to last: it goes there again where its own end is not recorded.
        let mut usual: FxHashMap<(i32, u64), u64> = FxHashMap::default();
        let mut processes: FxHashMap<i32, i32> = FxHashMap::default();
        for record in reader.records() {
            let (record::SAMPLE, Some(time), Some(event)) =
                (record.kind, record.time, record.event)
            else {
                continue;
            };
            let (Some(Some(tells)), Some(attr)) = (events.get(event), reader.attrs().get(event))
            else {
                continue;
            };
            let task = attr.layout.task(&record.bytes);
            let (Some((pid, tid)), Some(raw)) = (task, attr.layout.raw(&record.bytes)) else {
                continue;
            };
            let user = |field: &Field| match field.value(raw) {
                Some(Value::Unsigned(address)) if address as i64 > 0 => Some(address),
                _ => None,
            };
            let stack = open.entry(tid).or_default();
            match tells {
                Tells::Entry(function) => {
                    if let Some(function) = user(function) {
                        if stack.len() == DEEPEST {
                            stack.remove(0);
                        }
                        stack.push((function, time));
                        processes.insert(tid, pid);
                    }
                }
                Tells::Return(function, to) => {
                    let (Some(function), Some(to)) = (user(function), user(to)) else {
                        continue;
                    };
                    usual.insert((pid, function), to);
                    let Some(at) = stack.iter().rposition(|(open, _)| *open == function) else {
                        continue;
                    };
                    let entered = stack[at].1;
                    stack.truncate(at);
                    count += 1;
                    if count <= MOST_CALLS {
                        let left = time;
                        let calls = returns.calls.entry(tid).or_default();
                        calls.push(Call { entered, left, to });
                    }
                }
            }
        }
        for (tid, stack) in open {
            let pid = processes.get(&tid).copied().unwrap_or(-1);
            for (function, entered) in stack.into_iter().rev() {
                if let Some(&to) = usual.get(&(pid, function)) {
                    let left = u64::MAX;
                    let calls = returns.calls.entry(tid).or_default();
                    calls.push(Call { entered, left, to });
                }
            }
        }
        returns
    }

    /// Where the calls go back to that a thread is in at a time, innermost first.
    pub(super) fn of(&self, tid: i32, time: u64) -> impl Iterator<Item = u64> + '_ {
        let calls = self.calls.get(&tid).map_or(&[][..], Vec::as_slice);
        let later = &calls[calls.partition_point(|call| call.left <= time)..];
        let later = later.iter().take(MOST_LATER);
        later
            .filter(move |call| call.entered < time)
            .map(|call| call.to)
    }
}
