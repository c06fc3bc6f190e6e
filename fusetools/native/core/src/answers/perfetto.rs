//! Requests as a trace for ui.perfetto.dev and chrome://tracing.
//!
//! The format is Chrome's 'Trace Event Format': an array of events in any order. An X is a span of a thread; spans of a
//! thread are nested. A b begins and an e ends a span that is no thread's. The points of a flow are s, t and f, each on
//! the span that is there. An M names a process or a thread. Times are in us.

use std::collections::VecDeque;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answers::rows::Value;
use crate::events::{Ev, Role, ABSENT};
use crate::operations::Arch;
use crate::requests::named::{at_work, Known, Listener};
use crate::requests::stitch::{Mark, Story};

/// Writer of a trace. Callers and the daemon's threads are tracks; a request is a span on both and a flow between them.
/// The user of this type writes the end of the array and of the object around it, and the daemon's names.
pub struct Trace<W: Write> {
    out: W,
    arch: Arch,
    /// Begin of the trace, ns on the recording's clock.
    first: u64,
    requests: u64,
    any: bool,
    result: io::Result<()>,
    callers: FxHashMap<i32, Calls>,
    named: FxHashSet<(&'static str, i32)>,
    /// (process, thread) of the threads that served.
    servants: FxHashSet<(i32, i32)>,
}

type Task = (i32, i32);

/// System calls of a caller: the current one, and the last of the earlier ones in which it made requests.
#[derive(Default)]
struct Calls {
    open: Option<Call>,
    made: VecDeque<Call>,
}

/// Maximum number of earlier calls: their requests' stories may still come.
const MOST_MADE: usize = 64;

struct Call {
    number: u64,
    enter: u64,
    exit: Option<u64>,
    /// A request was made in it; a reported one was; the call is written.
    made: bool,
    wanted: bool,
    written: bool,
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    Value::Text(text).json(&mut out);
    out
}

/// Return us, with the digits of ns.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

impl<W: Write> Trace<W> {
    pub fn new(out: W, arch: Option<&str>, first: u64) -> Trace<W> {
        let mut trace = Trace {
            out,
            arch: Arch::new(arch),
            first,
            requests: 0,
            any: false,
            result: Ok(()),
            callers: FxHashMap::default(),
            named: FxHashSet::default(),
            servants: FxHashSet::default(),
        };
        trace.write("{\"traceEvents\": [");
        trace
    }

    /// Return the number of written requests, and the daemons' (process, thread) pairs.
    pub fn finish(mut self) -> io::Result<(u64, Vec<(i32, i32)>)> {
        self.result?;
        self.out.flush()?;
        let mut servants: Vec<Task> = self.servants.into_iter().collect();
        servants.sort_unstable();
        Ok((self.requests, servants))
    }

    fn write(&mut self, text: &str) {
        if self.result.is_ok() {
            self.result = self.out.write_all(text.as_bytes());
        }
    }

    /// Write one event. `more`: further members.
    fn put(&mut self, phase: char, name: &str, (pid, tid): Task, more: &str) {
        let between = if self.any { "," } else { "" };
        self.any = true;
        self.write(&format!(
            "{between}\n{{\"ph\": \"{phase}\", \"name\": {}, \"pid\": {pid}, \"tid\": {tid}{more}}}",
            quoted(name)
        ));
    }

    fn at(&self, time: u64) -> String {
        let time = micros(time.saturating_sub(self.first));
        format!(", \"cat\": \"fuse\", \"ts\": {time}")
    }

    fn span(&mut self, name: &str, task: Task, (from, to): (u64, u64), args: &str) {
        let duration = micros(to.saturating_sub(from));
        let more = format!("{}, \"dur\": {duration}{args}", self.at(from));
        self.put('X', name, task, &more);
    }

    /// Write a point of the request's flow, or an end of its span if that is no thread's.
    fn point(&mut self, phase: char, name: &str, task: Task, time: u64, args: &str) {
        let more = format!("{}, \"id\": {}{args}", self.at(time), self.requests);
        self.put(phase, name, task, &more);
    }

    fn name(&mut self, what: &'static str, (pid, tid): Task, name: &str) {
        let id = if what == "process_name" { pid } else { tid };
        if !name.is_empty() && self.named.insert((what, id)) {
            let args = format!(", \"args\": {{\"name\": {}}}", quoted(name));
            self.put('M', what, (pid, tid), &args);
        }
    }

    fn caller(&mut self, known: &Known<'_>, name: &str, args: &str) {
        let story = known.story;
        let Some(begin) = story.at(Mark::Begin).filter(|_| story.tid >= 0) else {
            return;
        };
        let task = (story.pid, story.tid);
        self.name("process_name", task, known.comm());
        self.name("thread_name", task, known.comm());
        self.called(task, begin);
        let Some(end) = story.at(Mark::End) else {
            return;
        };
        if stands_alone(story) {
            let until = story.at(Mark::Runs).unwrap_or(end).max(end);
            self.span(name, task, (begin, until), args);
            if let Some((read, _)) = in_hand(story).filter(|(read, _)| *read >= begin) {
                self.span("queue", task, (begin, read.min(until)), "");
            }
            if until > end {
                self.span("caller_wakeup", task, (end, until), "");
            }
        } else {
            self.point('b', name, task, begin, args);
            self.point('e', name, task, end, "");
        }
    }

    fn daemon(&mut self, story: &Story, name: &str, args: &str) {
        let Some((from, to)) = in_hand(story).filter(|_| story.daemon_tid >= 0) else {
            return;
        };
        let task = (story.daemon_pid, story.daemon_tid);
        self.servants.insert(task);
        self.span(name, task, (from, to), args);
        let within = |time: u64| time.clamp(from, to);
        let enter = story.at(Mark::CallbackEnter).map(within);
        let end = story.at(Mark::End).map(within);
        if let Some(enter) = enter {
            self.span("callback", task, (enter, to), "");
        }
        let enter = enter.unwrap_or(from);
        if let (Some(reply), Some(end)) = (story.at(Mark::Reply).map(within), end) {
            self.span("reply", task, (reply.max(enter), end.max(enter)), "");
        }
        let Some(begin) = story.at(Mark::Begin).filter(|_| story.tid >= 0) else {
            return;
        };
        // A flow's points lie on spans. A request without a span of its own begins and ends on the system call's, if
        // any.
        let alone = stands_alone(story);
        if !alone && story.syscall == ABSENT {
            return;
        }
        let caller = (story.pid, story.tid);
        let bind = ", \"bp\": \"e\"";
        self.point('s', "request", caller, begin, "");
        match story.at(Mark::End).filter(|_| alone) {
            Some(end) => {
                let until = story.at(Mark::Runs).unwrap_or(end).max(end);
                let within = end.min(until.saturating_sub(1)).max(begin);
                self.point('t', "request", task, from, bind);
                self.point('f', "request", caller, within, bind);
            }
            None => self.point('f', "request", task, from, bind),
        }
    }

    /// Write the caller's system call, once: with the first reported request in it.
    fn called(&mut self, task: Task, begin: u64) {
        let Some(calls) = self.callers.get_mut(&task.1) else {
            return;
        };
        let made = calls.made.iter_mut().rev();
        let mut latest = calls.open.iter_mut().chain(made);
        let Some(call) = latest.find(|call| call.enter <= begin) else {
            return;
        };
        call.wanted = true;
        if let Some(exit) = call.exit.filter(|exit| *exit >= begin && !call.written) {
            call.written = true;
            let (number, enter) = (call.number, call.enter);
            self.call(task, number, (enter, exit));
        }
    }

    fn call(&mut self, task: Task, number: u64, span: (u64, u64)) {
        let name = self.arch.syscall(number);
        self.span(&name, task, span, "");
    }
}

/// Return whether it has a place of its own on the caller's track: the caller waited for it, and for no other at that
/// time.
fn stands_alone(story: &Story) -> bool {
    story.waits && (story.nth == 0 || story.at(Mark::Resumed).is_some())
}

/// Return the span in which a thread of the daemon works on it.
fn in_hand(story: &Story) -> Option<(u64, u64)> {
    let (from, to) = at_work(story)?;
    Some((from, to?))
}

impl<W: Write> Listener for Trace<W> {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let operation = story.operation.name();
        let name = match known.path() {
            Some(path) if path.whole => format!("{operation} /{}", path.text),
            Some(path) => format!("{operation} …/{}", path.text),
            None => operation.to_owned(),
        };
        let mut args = String::new();
        for (key, value) in [
            ("unique", Value::known_number(story.unique)),
            ("connection", Value::known_number(story.connection)),
            ("error", Value::Signed(story.error.into())),
            ("inode", known.inode().map_or(Value::None, Value::Number)),
            ("size", Value::known_number(known.details.size)),
            ("offset", Value::known_number(known.details.offset)),
        ] {
            if !matches!(value, Value::None) {
                let between = if args.is_empty() { "" } else { ", " };
                args.push_str(&format!("{between}\"{key}\": "));
                value.json(&mut args);
            }
        }
        let args = format!(", \"args\": {{{args}}}");
        self.requests += 1;
        self.caller(known, &name, &args);
        self.daemon(story, &name, &args);
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        let number = ev.v[0];
        match role {
            Role::SysEnter if !self.arch.is_fake(number) => {
                self.callers.entry(ev.tid).or_default().open = Some(Call {
                    number,
                    enter: ev.time,
                    exit: None,
                    made: false,
                    wanted: false,
                    written: false,
                });
            }
            Role::Begin => {
                let calls = self.callers.get_mut(&ev.tid);
                if let Some(open) = calls.and_then(|calls| calls.open.as_mut()) {
                    open.made = true;
                }
            }
            Role::SysExit if !self.arch.is_fake(number) => {
                let Some(calls) = self.callers.get_mut(&ev.tid) else {
                    return;
                };
                let call = calls.open.take();
                let Some(mut call) = call.filter(|call| call.made && call.number == number) else {
                    return;
                };
                call.exit = Some(ev.time);
                call.written = call.wanted;
                let span = call.wanted.then_some((call.enter, ev.time));
                if calls.made.len() == MOST_MADE {
                    calls.made.pop_front();
                }
                calls.made.push_back(call);
                if let Some(span) = span {
                    self.call((ev.pid, ev.tid), number, span);
                }
            }
            _ => {}
        }
    }
}
