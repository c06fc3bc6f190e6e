//! Across requests: the caller's stack, the request's stages, and what the daemon did for it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::waits::frame_of;
use super::{Engine, Graph, Note, Who};
use crate::events::ABSENT;
use crate::offcpu::{State, Wait};
use crate::stacks::{Origin, ROOT};
use crate::stitch::{Fate, Mark, Story};

/// Of the stories that are not told yet, what belongs to them by thread and time; bounded, the oldest go first.
pub(super) type Recent<T> = FxHashMap<i32, VecDeque<T>>;
const MOST_RECENT: usize = 256;

pub(super) fn remember<T>(recent: &mut Recent<T>, tid: i32, what: T) {
    let known = recent.entry(tid).or_default();
    if known.len() == MOST_RECENT {
        known.pop_front();
    }
    known.push_back(what);
}

impl Engine<'_> {
    pub(super) fn stories(&mut self) {
        if self.told.is_empty() {
            return;
        }
        let told = std::mem::take(&mut self.told);
        for story in &told {
            if self.ask.graph == Graph::Requests {
                self.story(story);
            }
        }
        self.told = told;
        self.told.clear();
    }

    pub(super) fn story(&mut self, story: &Story) {
        let begun = story.at(Mark::Begin);
        let stack = begun.and_then(|begin| taken(&mut self.begins, story.tid, begin));
        let callback = story
            .at(Mark::CallbackEnter)
            .and_then(|enter| taken(&mut self.callbacks, story.daemon_tid, enter));
        let end = story.at(Mark::Runs).or(story.at(Mark::End));
        let waits = match (
            story.at(Mark::CallbackEnter).or(story.at(Mark::Read)),
            story.at(Mark::End),
        ) {
            (Some(from), Some(to)) => self.waits_of(story.daemon_tid, from, to),
            _ => Vec::new(),
        };
        if !story.waits || !self.wants(story) {
            return;
        }
        let (Some(begin), Some(end), Fate::Matched) = (begun, end, story.fate) else {
            self.flame.unfinished += 1;
            return;
        };
        if !self.within(begin) || self.ask.who == Some(Who::Daemon) && callback.is_none() {
            return;
        }
        // Several at once: each moment of the caller's counts once.
        let (mut begin, mut end) = (begin, end);
        for &(from, to) in self.spans.get(&story.tid).into_iter().flatten() {
            if from <= begin {
                begin = begin.max(to);
            } else {
                end = end.min(from);
            }
        }
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
            let name = self.frames.name(&name, Origin::Other);
            node = self.fold.below(node, name);
        }
        if let Some(stack) = stack {
            let names = self.frames.of(stack, &self.spaces, story.pid);
            node = self.fold.path(node, &names);
        }
        let name = format!("[FUSE {}]", story.operation.name());
        let name = self.frames.name(&name, Origin::Other);
        let node = self.fold.below(node, name);

        let callback_frame = match callback {
            Some(name) => name,
            None => self.frames.name("[daemon]", Origin::Other),
        };
        // What ends with each mark; where one was not seen its time is part of the next.
        let stages = [
            (Mark::Read, "[queue]"),
            (Mark::CallbackEnter, "[dispatch]"),
            (Mark::Reply, ""),
            (Mark::End, "[reply]"),
            (Mark::Runs, "[wakeup]"),
        ];
        let mut at = begin;
        let mut taken_up = false;
        for (mark, frame) in stages {
            let Some(to) = story.at(mark) else { continue };
            let to = to.clamp(at, end);
            let served =
                mark == Mark::Reply || mark == Mark::End && story.at(Mark::Reply).is_none();
            if served && (taken_up || callback.is_some()) {
                let node = self.fold.below(node, callback_frame);
                self.served(node, callback, &waits, at, to);
            } else {
                let frame = match mark {
                    Mark::CallbackEnter if !taken_up => "[queue]",
                    _ if served => "[daemon]",
                    _ => frame,
                };
                let name = self.frames.name(frame, Origin::Other);
                let node = self.fold.below(node, name);
                self.fold.add(node, to - at);
            }
            taken_up |= matches!(mark, Mark::Read | Mark::CallbackEnter);
            at = to;
        }
        if at < end {
            let name = self.frames.name("[wakeup]", Origin::Other);
            let node = self.fold.below(node, name);
            self.fold.add(node, end - at);
        }
    }

    /// What the daemon did from `from` to `to`: what it waited for, and the rest, in which it ran.
    pub(super) fn served(
        &mut self,
        node: u32,
        callback: Option<u32>,
        waits: &[Wait<Note>],
        from: u64,
        to: u64,
    ) {
        let mut ran = to - from;
        for wait in waits {
            let cut = Wait {
                from: wait.from.clamp(from, to),
                to: wait.to.clamp(from, to),
                ..wait.clone()
            };
            if cut.from == cut.to {
                continue;
            }
            ran = ran.saturating_sub(cut.to - cut.from);
            let names = self.frames.of(cut.stack, &self.spaces, cut.pid);
            let below = self.frames.below(&names, callback);
            let node = self.fold.path(node, &names[below..]);
            for (state, ns) in cut.parts() {
                let sum = match state {
                    State::Blocked => &mut self.flame.blocked,
                    State::Runnable => &mut self.flame.runnable,
                    State::Preempted => &mut self.flame.preempted,
                };
                *sum = sum.saturating_add(ns);
                let node = match frame_of(state) {
                    Some(frame) if ns > 0 => {
                        let frame = self.frames.name(frame, Origin::Other);
                        self.fold.below(node, frame)
                    }
                    _ => node,
                };
                self.fold.add(node, ns);
            }
        }
        if ran > 0 {
            let name = self.frames.name("[on CPU]", Origin::Other);
            let node = self.fold.below(node, name);
            self.fold.add(node, ran);
        }
    }

    /// A thread's waits that end in a span of time; those before are needed no more.
    pub(super) fn waits_of(&mut self, tid: i32, from: u64, to: u64) -> Vec<Wait<Note>> {
        let Some(known) = self.waits.get_mut(&tid) else {
            return Vec::new();
        };
        while known.front().is_some_and(|wait| wait.to <= from) {
            known.pop_front();
        }
        known
            .iter()
            .filter(|wait| wait.from < to)
            .cloned()
            .collect()
    }
}

/// What a thread remembered of that very time; what is older is needed no more.
fn taken<T: Copy>(recent: &mut Recent<(u64, T)>, tid: i32, time: u64) -> Option<T> {
    let known = recent.get_mut(&tid)?;
    let at = known.iter().position(|(at, _)| *at == time)?;
    let (_, found) = known.remove(at)?;
    Some(found)
}
