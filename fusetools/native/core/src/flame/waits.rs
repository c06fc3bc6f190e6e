//! Time off the CPU: whose it is, its stack, and who ended it.

use super::requests::remember;
use super::{Engine, Graph, Note, Who};
use crate::events::{Ev, ABSENT};
use crate::offcpu::{State, Wait, Waker};
use crate::stacks::{Origin, ROOT};

impl Engine<'_> {
    pub(super) fn switch(&mut self, ev: &Ev) {
        let [prev, state, next, _] = ev.v;
        let (prev, next) = (prev as i32, next as i32);
        self.on(next, ev.time);
        if prev > 0 {
            // A process that has ended has no pid any more.
            let pid = if ev.tid == prev { ev.pid } else { -1 };
            let mut note = self.note(pid, prev);
            if self.shows(pid, prev, note) {
                let comm = self.comm(pid, prev);
                note.node = self.fold.below(ROOT, comm);
            }
            let missed = self.off.out(pid, prev, ev.time, state, note);
            self.flame.unfinished += u64::from(missed.is_some_and(|note| note.wanted));
        }
    }

    pub(super) fn switch_stack(&mut self, ev: &Ev) {
        let Some(wait) = self.off.begun(ev.tid, ev.time) else {
            return;
        };
        wait.stack = ev.v[3];
        if wait.note.node == ROOT {
            return;
        }
        let stack = ev.v[3];
        let mut node = None;
        let mut whole = false;
        if stack != ABSENT {
            let comm = self.comm(ev.pid, ev.tid);
            node = Some(self.node(comm, stack, ev.pid));
            whole = self.frames.whole(stack, &self.spaces, ev.pid);
        }
        if let Some(wait) = self.off.begun(ev.tid, ev.time) {
            wait.stack = stack;
            wait.note.whole = whole;
            wait.note.node = node.unwrap_or(wait.note.node);
        }
    }

    /// Is a wait asked for that begins now?
    pub(super) fn shows(&self, pid: i32, tid: i32, note: Note) -> bool {
        let filtered = self.operations != 0 || !self.ask.filters.connections.is_empty();
        let known = note.who != Who::Other || self.unknown();
        let all = self.ask.all && !note.requested && !filtered && known && self.named(pid, tid);
        (note.wanted || all) && self.ask.who.is_none_or(|who| who == note.who)
    }

    pub(super) fn on(&mut self, tid: i32, time: u64) {
        let Some(wait) = self.off.on(tid, time) else {
            return;
        };
        match self.ask.graph {
            Graph::OnCpu => {}
            Graph::Requests => {
                if wait.note.requested && wait.note.who == Who::Daemon {
                    remember(&mut self.waits, tid, wait);
                }
            }
            Graph::OffCpu | Graph::OffWake => self.waited(&wait),
        }
    }

    pub(super) fn waited(&mut self, wait: &Wait<Note>) {
        let (from, to) = (wait.from.max(self.window.0), wait.to.min(self.window.1));
        if from >= to {
            return;
        }
        let wait = &Wait {
            from,
            to,
            ..wait.clone()
        };
        let Note {
            who,
            requested,
            node: stack,
            ..
        } = wait.note;
        if stack == ROOT {
            let amount = match who {
                _ if requested => &mut self.flame.others,
                Who::Daemon => &mut self.flame.idle,
                Who::Workload => &mut self.flame.own,
                // Of who ran before or after a daemon only that is recorded.
                Who::Other if !self.unknown() => return,
                Who::Other => &mut self.flame.others,
            };
            amount.add(to - from);
            return;
        }
        let parts = wait.parts().into_iter().filter(|(_, ns)| *ns > 0);
        let mut any = false;
        for (state, ns) in parts {
            let sum = match state {
                State::Blocked => &mut self.flame.blocked,
                State::Runnable => &mut self.flame.runnable,
                State::Preempted => &mut self.flame.preempted,
            };
            *sum = sum.saturating_add(ns);
            let offwake = self.ask.graph == Graph::OffWake;
            let states = &self.ask.states;
            if !states.is_empty() && !states.contains(&state) || offwake && state != State::Blocked
            {
                continue;
            }
            let mut node = stack;
            if offwake {
                node = self.below_waker(node, wait.waker);
            }
            if let Some(frame) = frame_of(state) {
                let frame = self.frames.name(frame, Origin::Other);
                node = self.fold.below(node, frame);
            }
            self.fold.add(node, ns);
            self.flame.shown.ns = self.flame.shown.ns.saturating_add(ns);
            if !wait.note.whole {
                self.flame.cut = self.flame.cut.saturating_add(ns);
            }
            any = true;
        }
        self.flame.shown.count += u64::from(any);
        self.flame.stackless += u64::from(any && wait.stack == ABSENT);
    }

    /// A recording that tells of no daemon and no workload is of everything.
    pub(super) fn unknown(&self) -> bool {
        self.ask.workload.is_none() && self.daemons.is_empty()
    }

    /// On top of who waited: who ended it, innermost first, so that the two meet.
    pub(super) fn below_waker(&mut self, node: u32, waker: Option<Waker>) -> u32 {
        let between = self.frames.name("--", Origin::Other);
        let mut node = self.fold.below(node, between);
        let Some(waker) = waker else {
            let nobody = self.frames.name("[not seen]", Origin::Other);
            return self.fold.below(node, nobody);
        };
        self.flame.wakers += 1;
        self.flame.wakers_stackless += u64::from(waker.stack == ABSENT);
        let mut names = self.frames.of(waker.stack, &self.spaces, waker.pid);
        names.reverse();
        node = self.fold.path(node, &names);
        let comm = self.comm(waker.pid, waker.tid);
        self.fold.below(node, comm)
    }
}

/// On top of a stack that does not tell it by itself.
pub(super) fn frame_of(state: State) -> Option<&'static str> {
    match state {
        State::Blocked => None,
        State::Runnable => Some("[runnable]"),
        State::Preempted => Some("[preempted]"),
    }
}
