//! Stacks across requests: the caller's stack, the request's stages, and what the daemon did for it.

use super::daemon::Served;
use super::recent::{remember, taken};
use super::waits::frame_of;
use super::{Engine, Graph, Who};
use crate::events::ABSENT;
use crate::programs::stacks::{Origin, ROOT};
use crate::requests::stitch::{Mark, Stitch, Story, FATES, OUTSIDE};

/// Innermost functions of a stack that was taken when its thread went to sleep.
const SCHEDULER: [&str; 3] = ["__schedule", "schedule", "io_schedule"];

impl Engine<'_> {
    /// Process the complete requests.
    pub(super) fn stories(&mut self) {
        if self.complete.is_empty() {
            return;
        }
        let mut complete = std::mem::take(&mut self.complete);
        for story in &complete {
            let served = match self.served.remove(&story.id) {
                Some(served) => served,
                None => self.claim(story),
            };
            if self.among(story) && self.within(story.start()) {
                self.flame.requests.add(story);
            }
            if self.selection.graph == Graph::Requests {
                self.story(story, &served);
            }
        }
        complete.clear();
        self.complete = complete;
    }

    /// Add the time outside of requests of the system calls on mounts that have ended.
    pub(super) fn calls(&mut self) {
        let calls = self.stitch.as_mut().map(Stitch::take_calls);
        for call in calls.unwrap_or_default() {
            let of_daemon =
                self.selection.who == Some(Who::Daemon) || self.who(call.pid) == Who::Daemon;
            let wanted = self.wants_call(call.connection, call.operation, (call.pid, call.tid));
            if of_daemon || !wanted || !self.within(call.start) || call.rest() == 0 {
                continue;
            }
            let comm = self.comm(call.pid, call.tid);
            let node = self.fold.below(ROOT, comm);
            let node = self.below(node, &format!("[{}]", self.arch.syscall(call.number)));
            let node = self.below(node, "[outside of requests]");
            for (kind, ns) in OUTSIDE.iter().zip(call.outside).filter(|(_, ns)| *ns > 0) {
                let node = self.below(node, &format!("[{}]", kind.replace('_', " ")));
                self.fold.add(node, ns, (call.tid, call.start));
            }
            self.flame.outside.add(call.rest());
            self.flame.shown.ns = self.flame.shown.ns.saturating_add(call.rest());
        }
    }

    fn story(&mut self, story: &Story, served: &Served) {
        let begun = story.at(Mark::Begin);
        let stack = begun.and_then(|begin| taken(&mut self.begins, story.tid, begin));
        if !story.waits || !self.wants(story) {
            return;
        }
        let (Some(begin), true) = (begun, story.counts()) else {
            self.flame.unfinished += 1;
            return;
        };
        let at_daemon = story.at(Mark::Read).is_some() || story.replier >= 0;
        let at_daemon = at_daemon || served.callback.is_some();
        if !self.within(begin) || self.selection.who == Some(Who::Daemon) && !at_daemon {
            return;
        }
        let end = match story.is_unanswered() {
            true => story.until,
            false => story.at(Mark::Runs).unwrap_or(story.until),
        };
        let whole = end - begin;
        // With several requests at once, each moment of the caller's counts once.
        let (mut begin, mut end) = (begin, end);
        for &(from, to) in self.spans.get(&story.tid).into_iter().flatten() {
            if from <= begin {
                begin = begin.max(to);
            } else {
                end = end.min(from);
            }
        }
        self.flame.shared += whole - end.saturating_sub(begin);
        if begin >= end {
            return;
        }
        remember(&mut self.spans, story.tid, (begin, end));
        self.flame.shown.add(end - begin);
        self.flame.stackless += u64::from(stack.is_none());

        let comm = self.comm(story.pid, story.tid);
        let mut node = self.fold.below(ROOT, comm);
        if story.syscall != ABSENT {
            let name = format!("[{}]", self.arch.syscall(story.syscall));
            node = self.below(node, &name);
        }
        if let Some(stack) = stack {
            let names = self.frames.of(stack, &self.spaces, story.pid);
            let made = |frame: &u32| !SCHEDULER.contains(&&*self.frames.names[*frame as usize].0);
            let made = names.iter().rposition(made).map_or(0, |at| at + 1);
            node = self.fold.path(node, &names[..made]);
        }
        node = self.below(node, &format!("[FUSE {}]", story.operation.name()));
        if story.is_unanswered() {
            let fate = FATES.iter().find(|(fate, _)| *fate == story.fate);
            let name = fate.map_or("", |(_, name)| name);
            node = self.below(node, &format!("[{name}]"));
        }
        self.stages(story, served, node, begin, end);
    }

    /// Add the stages, each of which ends with a mark. If a mark was not seen, its time is part of the next stage.
    fn stages(&mut self, story: &Story, served: &Served, node: u32, begin: u64, end: u64) {
        let marks = [
            Mark::Read,
            Mark::CallbackEnter,
            Mark::Reply,
            Mark::End,
            Mark::Runs,
        ];
        let answered = !story.is_unanswered();
        let mut seen: Vec<(Mark, u64)> = marks
            .into_iter()
            .filter_map(|mark| Some((mark, story.at(mark)?)))
            .filter(|(mark, time)| answered || *time <= story.until && *mark != Mark::End)
            .collect();
        if !answered {
            seen.push((story.next, story.until));
        }
        let mut at = begin;
        let mut before = Mark::Begin;
        for (mark, to) in seen {
            let to = to.clamp(at, end);
            let frame = match mark {
                Mark::Read => "[queue]",
                Mark::CallbackEnter if before == Mark::Read => "[dispatch]",
                Mark::CallbackEnter => "[queue]",
                Mark::End if before == Mark::Reply => "[reply]",
                Mark::Reply | Mark::End => {
                    let read = before != Mark::Begin;
                    self.served(node, served, read, (story.tid, at, to));
                    (at, before) = (to, mark);
                    continue;
                }
                _ => "[wakeup]",
            };
            let node = self.below(node, frame);
            self.fold.add(node, to - at, (story.tid, at));
            (at, before) = (to, mark);
        }
        if at < end {
            let node = self.below(node, "[wakeup]");
            self.fold.add(node, end - at, (story.tid, at));
        }
    }

    fn below(&mut self, node: u32, name: &str) -> u32 {
        let name = self.frames.name(name, Origin::Other);
        self.fold.below(node, name)
    }

    /// Add what the daemon did from `from` to `to` for a thread `tid`: its threads' waits; they ran the rest of the
    /// time. `read`: the daemon had read the request by then.
    fn served(&mut self, node: u32, served: &Served, read: bool, (tid, from, to): (i32, u64, u64)) {
        let callback = served.callback;
        let in_daemon = match callback {
            Some(name) => self.fold.below(node, name),
            None => self.below(node, "[daemon]"),
        };
        let mut at = from;
        let mut unknown = Vec::new();
        for worked in &served.worked {
            let since = worked.from.clamp(at, to);
            let until = worked.to.clamp(since, to);
            unknown.push((at, since - at));
            at = until;
            let mut slept = Vec::new();
            for wait in &worked.waits {
                let wait = wait.part(since, until, ());
                slept.push((wait.from, wait.to));
                let names = self.frames.of(wait.stack, &self.spaces, wait.pid);
                let below = self.frames.below(&names, callback);
                let node = self.fold.path(in_daemon, &names[below..]);
                let mut begin = wait.from;
                for (state, ns) in wait.parts().into_iter().filter(|(_, ns)| *ns > 0) {
                    self.flame.add_state(state, ns);
                    let node = match frame_of(state) {
                        Some(frame) => self.below(node, frame),
                        None => node,
                    };
                    self.fold.add(node, ns, (tid, begin));
                    begin += ns;
                }
            }
            let waited = slept.iter().map(|(from, to)| to - from).sum();
            let mut left = (until - since).saturating_sub(waited);
            if left > 0 {
                let node = match worked.whole {
                    true => self.below(in_daemon, "[on CPU]"),
                    false => in_daemon,
                };
                let mut ran = since;
                for (from, to) in slept {
                    let ns = from.saturating_sub(ran).min(left);
                    self.fold.add(node, ns, (tid, ran));
                    left -= ns;
                    ran = ran.max(to);
                }
                self.fold.add(node, left, (tid, ran));
            }
        }
        unknown.push((at, to - at));
        for (at, ns) in unknown.into_iter().filter(|(_, ns)| *ns > 0) {
            let frame = match read {
                true => "[daemon, thread unknown]",
                false => "[queue or daemon]",
            };
            let node = self.below(node, frame);
            self.fold.add(node, ns, (tid, at));
        }
    }
}
