//! Return addresses of calls with a return probe. During such a call the return address on the stack is the probe's;
//! only the probe's event at the end of the call has the original address.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::format::record::{self, u32_at};
use crate::format::tracedat::{TraceDat, What};
use crate::format::tracepoint::{number, Field, Format, Value};
use crate::reader::Reader;

/// Maximum number of nested calls of a thread, as in the kernel (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c).
const DEEPEST: usize = 64;
/// Maximum number of calls, 24 bytes each.
const MOST_CALLS: usize = 1 << 24;
/// Maximum number of calls that are searched for those in progress.
const MOST_LATER: usize = 1 << 12;

struct Call {
    entered: u64,
    left: u64,
    to: u64,
}

#[derive(Default)]
pub(super) struct Returns {
    /// Calls by thread, in the order in which they ended.
    calls: FxHashMap<i32, Vec<Call>>,
}

/// Events that show calls: an event of a uprobe has the field `__probe_ip`, one of a return probe `__probe_func` and
/// `__probe_ret_ip` (Documentation/trace/uprobetracer.rst).
enum Tells<'a> {
    Entry(&'a Field),
    Return(&'a Field, &'a Field),
}

impl Returns {
    /// Collect the calls in a pass over a recording as perf wrote it.
    pub(super) fn read(reader: &Reader) -> Returns {
        let formats = reader.events().iter().map(|event| event.format.as_deref());
        let events: Vec<_> = formats.map(tells).collect();
        if !events.iter().any(|e| matches!(e, Some(Tells::Return(..)))) {
            return Returns::default();
        }
        let mut reading = Reading::default();
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
            if let (Some(task), Some(raw)) = (task, attr.layout.raw(&record.bytes)) {
                reading.take(tells, task, time, raw);
            }
        }
        reading.end()
    }

    /// Collect the calls from an ftrace recording. `threads`: the process of each thread.
    pub(super) fn of_trace(dat: &TraceDat, threads: &HashMap<i32, i32>) -> Returns {
        let formats = dat.tracing().formats.iter();
        let of = formats.filter_map(|format| Some((format.id, tells(Some(format))?)));
        let events: FxHashMap<u64, Tells> = of.collect();
        if !events.values().any(|e| matches!(e, Tells::Return(..))) {
            return Returns::default();
        }
        let mut reading = Reading::default();
        for event in dat.events() {
            let What::Data(raw) = event.what else {
                continue;
            };
            let kind: u64 = number(raw.get(..2).unwrap_or_default()).unwrap_or(0);
            if let (Some(tells), Some(tid)) = (events.get(&kind), u32_at(raw, 4)) {
                let tid = tid as i32;
                let pid = threads.get(&tid).copied().unwrap_or(-1);
                reading.take(tells, (pid, tid), event.time, raw);
            }
        }
        reading.end()
    }

    /// Return the original return addresses of the calls that a thread is in at a time, innermost first.
    pub(super) fn of(&self, tid: i32, time: u64) -> impl Iterator<Item = u64> + '_ {
        let calls = self.calls.get(&tid).map_or(&[][..], Vec::as_slice);
        let later = &calls[calls.partition_point(|call| call.left <= time)..];
        let later = later.iter().take(MOST_LATER);
        later
            .filter(move |call| call.entered < time)
            .map(|call| call.to)
    }
}

/// Return the contents of an event of such a format.
fn tells(format: Option<&Format>) -> Option<Tells<'_>> {
    let format = format?;
    match (format.field("__probe_func"), format.field("__probe_ret_ip")) {
        (Some(function), Some(to)) => Some(Tells::Return(function, to)),
        _ => format.field("__probe_ip").map(Tells::Entry),
    }
}

/// A pass over a recording.
#[derive(Default)]
struct Reading {
    returns: Returns,
    count: usize,
    /// Functions entered and not yet left, with the time of entry.
    open: FxHashMap<i32, Vec<(u64, u64)>>,
    /// The last return address of a function: it returns there again if its own end is not recorded.
    usual: FxHashMap<(i32, u64), u64>,
    processes: FxHashMap<i32, i32>,
}

impl Reading {
    fn take(&mut self, tells: &Tells, (pid, tid): (i32, i32), time: u64, raw: &[u8]) {
        let user = |field: &Field| match field.value(raw) {
            Some(Value::Unsigned(address)) if address as i64 > 0 => Some(address),
            _ => None,
        };
        let stack = self.open.entry(tid).or_default();
        match tells {
            Tells::Entry(function) => {
                if let Some(function) = user(function) {
                    if stack.len() == DEEPEST {
                        stack.remove(0);
                    }
                    stack.push((function, time));
                    self.processes.insert(tid, pid);
                }
            }
            Tells::Return(function, to) => {
                let (Some(function), Some(to)) = (user(function), user(to)) else {
                    return;
                };
                self.usual.insert((pid, function), to);
                let Some(at) = stack.iter().rposition(|(open, _)| *open == function) else {
                    return;
                };
                let entered = stack[at].1;
                stack.truncate(at);
                self.count += 1;
                if self.count <= MOST_CALLS {
                    let left = time;
                    let calls = self.returns.calls.entry(tid).or_default();
                    calls.push(Call { entered, left, to });
                }
            }
        }
    }

    fn end(mut self) -> Returns {
        for (tid, stack) in self.open {
            let pid = self.processes.get(&tid).copied().unwrap_or(-1);
            for (function, entered) in stack.into_iter().rev() {
                if let Some(&to) = self.usual.get(&(pid, function)) {
                    let left = u64::MAX;
                    let calls = self.returns.calls.entry(tid).or_default();
                    calls.push(Call { entered, left, to });
                }
            }
        }
        self.returns
    }
}
