//! Time off the CPU: whose it is, its stack, and who ended it.

use std::iter;

use super::recent::remember;
use super::{Engine, Graph, Note, Waited, Who};
use crate::answers::offcpu::{State, Wait, Waker, STATES};
use crate::events::{Ev, ABSENT};
use crate::operations::{Operation, PAGE_FAULT};
use crate::programs::stacks::{Origin, Reach, ROOT};
use crate::requests::stitch::Mark;

/// Maximum number of waits in one system call before its mount is known.
const MOST_UNDECIDED: usize = 256;

impl Engine<'_> {
    pub(super) fn switch(&mut self, ev: &Ev) {
        let [prev, state, next, _] = ev.v;
        let (prev, next) = (prev as i32, next as i32);
        self.on(next, ev.time);
        if self.off.open(prev).is_some() {
            // It ran, though its switch-in was not recorded.
            self.on(prev, ev.time);
        }
        self.ran(ev, prev, next);
        self.switched.extend([prev, next]);
        let pid = if ev.tid == prev { ev.pid } else { -1 };
        let stitch = self.stitch.as_ref();
        if prev > 0 && stitch.is_none_or(|stitch| next == 0 || stitch.followed(pid, prev)) {
            // An ended process has no pid any more.
            let pid = if ev.tid == prev { ev.pid } else { -1 };
            let mut note = self.note(pid, prev);
            if note.who == Who::Daemon {
                note.comm = self.comm(pid, prev);
            } else if self.shows(pid, prev, &note) {
                let comm = self.comm(pid, prev);
                note.node = self.fold.below(ROOT, comm);
            } else if !note.requested {
                let in_call = stitch_in_call(self, prev);
                (note.undecided, note.faults) = (in_call, !in_call);
                let comm = self.comm(pid, prev);
                note.node = self.fold.below(ROOT, comm);
            }
            self.off.out(pid, prev, ev.time, state, note);
        }
    }

    /// Note a span of `prev` on a CPU, if such are wanted, and the begin of one of `next`.
    fn ran(&mut self, ev: &Ev, prev: i32, next: i32) {
        let Some(running) = &mut self.running else {
            return;
        };
        let since = running.remove(&prev);
        running.insert(next, ev.time);
        let pid = if ev.tid == prev { ev.pid } else { -1 };
        let Some(since) = since.filter(|_| prev > 0) else {
            return;
        };
        let who = self.who(pid);
        let (begin, end) = (since.max(self.window.0), ev.time.min(self.window.1));
        if begin < end && (who != Who::Other || self.unknown() || pid < 0) {
            let comm = self.comm(pid, prev);
            let ran = Waited {
                pid,
                tid: prev,
                who,
                state: None,
                begin,
                ns: end - begin,
                comm: "",
                stack: "",
                node: self.fold.below(ROOT, comm),
                waker: None,
            };
            self.waited.push((ran, None));
        }
    }

    /// Give a request the stack of the thread that goes to sleep for it, if the request has none of its own.
    fn begin_of_wait(&mut self, tid: i32, stack: u64) {
        let stitch = self.stitch.as_ref();
        let waiting = stitch.and_then(|stitch| stitch.waiting(tid));
        let Some(begin) = waiting.and_then(|story| story.at(Mark::Begin)) else {
            return;
        };
        let mut known = self.begins.get(&tid).into_iter().flatten();
        if !known.any(|(at, _)| *at == begin) {
            remember(&mut self.begins, tid, (begin, stack));
        }
    }

    pub(super) fn switch_stack(&mut self, ev: &Ev) {
        if self.selection.graph == Graph::Requests && ev.v[3] != ABSENT {
            self.begin_of_wait(ev.tid, ev.v[3]);
        }
        let Some(wait) = self.off.begun(ev.tid, ev.time) else {
            return;
        };
        wait.stack = ev.v[3];
        // Few waits outside of system calls are page faults on mounts: the others need no names.
        if wait.note.node == ROOT || wait.note.faults {
            return;
        }
        let stack = ev.v[3];
        let mut node = None;
        let mut reach = Reach::Unfollowed;
        if stack != ABSENT {
            let comm = self.comm(ev.pid, ev.tid);
            node = Some(self.node(comm, stack, ev.pid));
            reach = self.frames.reach(stack, &self.spaces, ev.pid);
        }
        if let Some(wait) = self.off.begun(ev.tid, ev.time) {
            wait.stack = stack;
            wait.note.reach = reach;
            wait.note.node = node.unwrap_or(wait.note.node);
        }
    }

    /// Return whether a wait that begins now is selected.
    fn shows(&self, pid: i32, tid: i32, note: &Note) -> bool {
        (note.wanted || !note.requested && self.shows_all(pid, tid, note.who))
            && self.selection.who.is_none_or(|who| who == note.who)
    }

    /// Return whether waits outside requests are selected, too.
    fn shows_all(&self, pid: i32, tid: i32, who: Who) -> bool {
        let filtered = !self.operations.is_all() || !self.selection.filters.connections.is_empty();
        let known = who != Who::Other || self.unknown();
        self.selection.all && !filtered && known && self.named(pid, tid)
    }

    pub(super) fn on(&mut self, tid: i32, time: u64) {
        if let Some(wait) = self.off.on(tid, time) {
            self.over(wait);
        }
    }

    /// Process a wait that has ended, or that the recording's end cuts off.
    pub(super) fn over(&mut self, wait: Wait<Note>) {
        match self.selection.graph {
            Graph::OnCpu => {}
            _ if wait.note.who == Who::Daemon => self.daemon_waited(wait),
            Graph::Requests => {}
            Graph::OffCpu | Graph::OffWake if wait.note.undecided => {
                let waits = self.undecided.entry(wait.tid).or_default();
                if waits.len() < MOST_UNDECIDED {
                    return waits.push(wait);
                }
                let mut wait = wait;
                wait.note.node = ROOT;
                self.waited(&wait);
            }
            Graph::OffCpu | Graph::OffWake if wait.note.faults => self.faults.push(wait),
            Graph::OffCpu | Graph::OffWake => self.waited(&wait),
        }
    }

    /// Process a thread's waits in a system call, once it is known to be on a mount, or has ended.
    pub(super) fn decide(&mut self, tid: i32) {
        let stitch = self
            .stitch
            .as_ref()
            .filter(|_| self.undecided.contains_key(&tid));
        let known = stitch.is_some_and(|s| s.on_mount(tid).is_some() || !s.in_call(tid));
        if known {
            self.settle_call(tid);
        }
    }

    pub(super) fn settle_call(&mut self, tid: i32) {
        let stitch = self.stitch.as_ref();
        let on = stitch.and_then(|stitch| stitch.on_mount(tid)).or_else(|| {
            let ended = stitch?.mount_call().filter(|call| call.tid == tid)?;
            Some((ended.pid, ended.connection, ended.operation))
        });
        for wait in self.undecided.remove(&tid).into_iter().flatten() {
            self.settle_wait(wait, on);
        }
    }

    /// Process the waits outside of system calls that have just ended: some were page faults on mounts.
    pub(super) fn settle_faults(&mut self) {
        for mut wait in std::mem::take(&mut self.faults) {
            let stitch = self.stitch.as_ref();
            let fault = stitch
                .and_then(|stitch| stitch.mount_call())
                .filter(|call| (call.number, call.tid) == (PAGE_FAULT, wait.tid))
                .filter(|call| call.start == wait.from);
            let on = fault.map(|fault| (fault.pid, fault.connection, fault.operation));
            if on.is_some() && wait.stack != ABSENT {
                let comm = self.comm(wait.pid, wait.tid);
                wait.note.node = self.node(comm, wait.stack, wait.pid);
                wait.note.reach = self.frames.reach(wait.stack, &self.spaces, wait.pid);
            }
            self.settle_wait(wait, on);
        }
    }

    /// Process a wait, now that its mount is known: process, connection, operation; None: it is on none.
    fn settle_wait(&mut self, mut wait: Wait<Note>, on: Option<(i32, u64, Operation)>) {
        let note = &mut wait.note;
        (note.undecided, note.requested, note.outside) = (false, on.is_some(), on.is_some());
        if on.is_some() && note.who == Who::Other {
            note.who = Who::Workload;
        }
        let (who, tid) = (note.who, wait.tid);
        let selected = self.selection.who.is_none_or(|wanted| wanted == who);
        let wanted = |(pid, connection, own)| self.wants_call(connection, own, (pid, tid));
        if !selected || !on.is_some_and(wanted) {
            wait.note.node = ROOT;
        }
        self.waited(&wait);
    }

    /// Add a wait of a thread that is no daemon's: its purpose was known when it began.
    fn waited(&mut self, wait: &Wait<Note>) {
        let span = iter::once((wait.from, wait.to));
        let Note {
            who,
            requested,
            node,
            reach,
            ..
        } = wait.note;
        match node {
            ROOT => self.left_out(who, requested, span),
            _ => {
                let blocked =
                    |[blocked, _, _, either]: [u64; STATES.len()]| blocked.saturating_add(either);
                let before = blocked(self.flame.states);
                self.shown(wait, node, reach, span);
                let ns = blocked(self.flame.states).saturating_sub(before);
                // Several pages may be on their way: its end shows whether it was for one of these requests.
                let stitch = self.stitch.as_ref();
                let for_none = || stitch.is_some_and(|stitch| !stitch.awaits(wait.tid));
                let outside = wait.note.outside || wait.ended && requested && for_none();
                if outside && ns > 0 {
                    self.flame.outside.add(ns);
                }
            }
        }
    }

    /// Add a wait of a daemon. By now it is known which requests it was for.
    pub(super) fn settle(&mut self, wait: &Wait<Note>) {
        if self.selection.graph == Graph::Requests {
            return;
        }
        let Note {
            claimed, of_others, ..
        } = &wait.note;
        let both;
        let of_any = match (claimed.is_empty(), of_others.is_empty()) {
            (_, true) => claimed,
            (true, _) => of_others,
            _ => {
                both = claimed.with(of_others);
                &both
            }
        };
        let others = of_others.iter();
        self.left_out(
            Who::Daemon,
            true,
            others.flat_map(|(from, to)| claimed.gaps(from, to)),
        );
        let shown = self.selection.who.is_none_or(|who| who == Who::Daemon);
        let idle = || of_any.gaps(wait.from, wait.to);
        let idle_too = shown && self.shows_all(wait.pid, wait.tid, Who::Daemon);
        if !shown {
            self.left_out(Who::Daemon, true, claimed.iter());
        }
        if !idle_too {
            self.left_out(Who::Daemon, false, idle());
        }
        let claimed = claimed.iter().filter(|_| shown);
        let mut spans = claimed.chain(idle().filter(|_| idle_too)).peekable();
        if spans.peek().is_none() {
            return;
        }
        let comm = wait.note.comm;
        let (node, reach) = match wait.stack {
            ABSENT => (self.fold.below(ROOT, comm), Reach::Unfollowed),
            stack => (
                self.node(comm, stack, wait.pid),
                self.frames.reach(stack, &self.spaces, wait.pid),
            ),
        };
        self.shown(wait, node, reach, spans);
    }

    /// Count `spans` of a wait as not shown. Without a request, a daemon's wait is idle time.
    fn left_out(&mut self, who: Who, requested: bool, spans: impl Iterator<Item = (u64, u64)>) {
        let unknown = self.unknown();
        let amount = match who {
            _ if requested => &mut self.flame.others,
            Who::Daemon => &mut self.flame.idle,
            Who::Workload => &mut self.flame.own,
            // The recording has only those switches of other tasks that are from or to a daemon's thread.
            Who::Other if !unknown => return,
            Who::Other => &mut self.flame.others,
        };
        for (from, to) in spans {
            let (from, to) = (from.max(self.window.0), to.min(self.window.1));
            if from < to {
                amount.add(to - from);
            }
        }
    }

    /// Show `spans` of a wait.
    fn shown(
        &mut self,
        wait: &Wait<Note>,
        stack: u32,
        reach: Reach,
        spans: impl Iterator<Item = (u64, u64)>,
    ) {
        let mut any = false;
        for (from, to) in spans {
            let (from, to) = (from.max(self.window.0), to.min(self.window.1));
            if from < to {
                any |= self.show(&wait.part(from, to, wait.note.who), stack, reach);
            }
        }
        self.flame.shown.count += u64::from(any);
        self.flame.stackless += u64::from(any && wait.stack == ABSENT);
    }

    fn show(&mut self, wait: &Wait<Who>, stack: u32, reach: Reach) -> bool {
        let parts = wait.parts().into_iter().filter(|(_, ns)| *ns > 0);
        let (mut any, mut end) = (false, wait.from);
        for (state, ns) in parts {
            let begin = end;
            end += ns;
            self.flame.add_state(state, ns);
            let offwake = self.selection.graph == Graph::OffWake;
            let states = &self.selection.states;
            let blocked = matches!(state, State::Blocked | State::Either);
            if !states.is_empty() && !states.contains(&state) || offwake && !blocked {
                continue;
            }
            if self.each {
                let waker = wait.waker.filter(|waker| waker.tid > 0);
                let waker = waker.map(|waker| (waker.tid, self.comm(waker.pid, waker.tid)));
                let wait = Waited {
                    pid: wait.pid,
                    tid: wait.tid,
                    who: wait.note,
                    state: Some(state),
                    begin,
                    ns,
                    comm: "",
                    stack: "",
                    node: stack,
                    waker: None,
                };
                self.waited.push((wait, waker));
            }
            let mut node = stack;
            if offwake {
                node = self.below_waker(node, wait.waker);
            }
            if let Some(frame) = frame_of(state) {
                let frame = self.frames.name(frame, Origin::Other);
                node = self.fold.below(node, frame);
            }
            self.fold.add(node, ns, (wait.tid, begin));
            self.flame.shown.ns = self.flame.shown.ns.saturating_add(ns);
            if wait.note == Who::Daemon {
                self.flame.daemons = self.flame.daemons.saturating_add(ns);
            }
            self.flame.reaches(reach, ns, wait.note == Who::Daemon);
            any = true;
        }
        any
    }

    /// Return whether the recording has neither daemons nor a workload, so that it covers everything.
    pub(super) fn unknown(&self) -> bool {
        self.selection.workload.is_empty() && self.daemons.is_empty()
    }

    /// Append the waker's frames to the waiter's stack, innermost first, so that the two meet.
    pub(super) fn below_waker(&mut self, node: u32, waker: Option<Waker>) -> u32 {
        let between = self.frames.name("--", Origin::Other);
        let mut node = self.fold.below(node, between);
        let Some(waker) = waker else {
            let nobody = self.frames.name("[not seen]", Origin::Other);
            return self.fold.below(node, nobody);
        };
        self.flame.wakers += 1;
        self.flame.wakers_stackless += u64::from(waker.stack == ABSENT);
        let names = self.frames.of(waker.stack, &self.spaces, waker.pid);
        for &name in names.iter().rev() {
            node = self.fold.below(node, name);
        }
        let comm = self.comm(waker.pid, waker.tid);
        self.fold.below(node, comm)
    }
}

fn stitch_in_call(engine: &Engine<'_>, tid: i32) -> bool {
    engine
        .stitch
        .as_ref()
        .is_some_and(|stitch| stitch.in_call(tid))
}

/// Return the frame that is appended to a stack which does not show by itself why it waited.
pub(super) fn frame_of(state: State) -> Option<&'static str> {
    match state {
        State::Blocked => None,
        State::Runnable => Some("[runnable]"),
        State::Preempted => Some("[preempted]"),
        State::Either => Some("[blocked or runnable]"),
    }
}
