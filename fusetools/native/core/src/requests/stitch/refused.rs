//! Unanswered requests that a daemon has read: the kernel refused the answer, or the thread that read them continued
//! with others. Also requests that are sent twice, and processes that turn out to serve.

use super::*;

/// Write of an answer that the kernel refused.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    error: i32,
    enter: u64,
    exit: u64,
    idle: Idle,
}

/// Maximum number of open requests among which the only one with the daemon is looked for.
const MOST_OPEN: usize = 1 << 12;
const MOST_DEVICES: usize = 1 << 16;

/// TRACE_SIGNAL_IGNORED (include/trace/events/signal.h).
const IGNORED: u64 = 1;
/// Length of an INTERRUPT: struct fuse_in_header and fuse_interrupt_in.
pub(super) const INTERRUPT: u64 = 48;

impl Stitch {
    /// Note that a process serves a connection: it ends a request in a call that answers.
    pub(super) fn learn_server(&mut self, ev: &Ev, connection: u64, error: i32) {
        if error == -ECONNABORTED || self.serves.of(ev.pid).contains(&connection) {
            return;
        }
        let call = self.tasks.get(ev.tid).and_then(|task| task.syscall);
        let answers = |number| self.arch.is_write(number) || self.arch.is_ring(number);
        if !call.is_some_and(|call| answers(call.number)) {
            return;
        }
        self.servants.insert(ev.pid);
        if connection != ABSENT && !self.serves.is_empty() {
            self.serves.add(ev.pid, connection);
        }
    }

    /// Note that a thread of a daemon has ended a request: what it writes to is FUSE's device.
    pub(super) fn answered_through(&mut self, ev: &Ev) {
        let call = self.tasks.get(ev.tid).and_then(|task| task.syscall);
        if let Some(call) = call.filter(|call| self.arch.is_write(call.number)) {
            self.is_device(ev.pid, call.to);
        }
    }

    fn is_device(&mut self, pid: i32, descriptor: u64) {
        if descriptor != ABSENT && self.devices.len() < MOST_DEVICES {
            self.devices.insert((pid, descriptor));
        }
    }

    /// Note that a read has returned: if it took a request, it read from FUSE's device.
    pub(super) fn has_taken(&mut self, ev: &Ev, from: u64) {
        let task = self.tasks.get(ev.tid);
        let read = task.and_then(|task| task.reads.last());
        if read.is_some_and(|read| read.claimed) {
            self.is_device(ev.pid, from);
        }
    }

    /// Note that a thread reads from a file. If that is FUSE's device, it has left the request that it read before.
    pub(super) fn passes_on(&mut self, ev: &Ev, from: u64, idle: Idle) {
        let paired = self.tasks.get(ev.tid).and_then(|task| task.paired);
        let Some(slot) = paired.filter(|_| self.devices.contains(&(ev.pid, from))) else {
            return;
        };
        if let Some(open) = self.get_mut(slot) {
            if !open.ended && open.passed.is_none() {
                open.passed = Some((ev.time, idle));
            }
        }
    }

    /// Note that a call of a daemon that writes to FUSE's device has failed: the request that the thread answered waits
    /// on. It may have been a notification, if an answer follows.
    pub(super) fn write_failed(&mut self, ev: &Ev, call: Syscall, error: i32) {
        let replies = self
            .tasks
            .get_mut(ev.tid)
            .and_then(|task| task.replies.take());
        if !self.devices.contains(&(ev.pid, call.to)) && replies.is_none() {
            return;
        }
        let Some(task) = self.tasks.get(ev.tid) else {
            return;
        };
        let callback = task.callbacks.last().and_then(|callback| callback.slot);
        let read = task.paired.filter(|_| !self.hands(task.pid));
        let own = replies.or(callback).or(task.sent).or(read);
        let waits = |slot: &Slot| self.get(*slot).is_some_and(|open| !open.ended);
        let slot = own.filter(waits).or_else(|| self.only_with(ev.pid));
        let refusal = Refusal {
            error,
            enter: call.start,
            exit: ev.time,
            idle: call.idle,
        };
        if let Some(open) = slot.and_then(|slot| self.get_mut(slot)) {
            open.refused = Some(refusal);
        }
    }

    /// Return the only request that a daemon has read and not answered.
    fn only_with(&self, pid: i32) -> Option<Slot> {
        if self.slab.len() > MOST_OPEN {
            return None;
        }
        let own = self.serves.of(pid);
        let with = |open: &Open| {
            open.generation > 0
                && !open.ended
                && open.refused.is_none()
                && open.story.at(Mark::Read).is_some()
                && own.contains(&open.story.connection)
        };
        let mut found = (0..).zip(&self.slab).filter(|(_, open)| with(open));
        let (place, open) = found.next()?;
        found.next().is_none().then_some((place, open.generation))
    }

    /// Note in its story that an unanswered request's answer was refused.
    pub(super) fn find_refused(&mut self, slot: Slot) {
        let switches = self.switches;
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let Some(refusal) = open.refused.take() else {
            return;
        };
        let story = &mut open.story;
        (story.refused, story.left) = (refusal.error, refusal.exit);
        story.set(Mark::Reply, refusal.enter);
        if switches
            && story
                .at(Mark::Read)
                .or(story.at(Mark::CallbackEnter))
                .is_some()
        {
            story.slept(refusal.idle, open.idle);
        }
        open.left = Some(refusal.exit);
    }

    /// Note that the thread which read an unanswered request continued with others, if the daemon's threads answer what
    /// they read.
    pub(super) fn find_dropped(&mut self, slot: Slot) {
        let Some(open) = self.get(slot) else { return };
        let story = &open.story;
        let pid = story.daemon_pid;
        let known = self.own_answers.contains(&pid) && !self.hands(pid);
        if !known || story.refused != 0 || open.paired.is_none() || open.daemon_open {
            return;
        }
        let Some((time, idle)) = open.passed else {
            return;
        };
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            open.left = Some(time);
            open.story.dropped = true;
            if switches {
                open.story.slept(idle, open.idle);
            }
        }
    }

    /// Note that the request that ends here was sent a second time: the thread that answers it has read it then.
    pub(super) fn resent(&mut self, ev: &Ev, slot: Slot) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.story.resent = true;
        // Only the second reading is known, unless the thread has gone on to others since.
        if open.paired == Some(ev.tid) && open.passed.is_none() {
            return;
        }
        if open.paired.is_some() {
            open.story.first_reader = open.story.daemon_pid;
            open.story.first_read = open.story.at(Mark::Read).unwrap_or(ABSENT);
        }
        (open.refused, open.passed, open.left) = (None, None, None);
        (open.paired, open.story.blocked) = (Some(ev.tid), ABSENT);
        (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
        for mark in [Mark::Read, Mark::Sent, Mark::DaemonWaking, Mark::DaemonRuns] {
            open.story.clear(mark);
        }
        self.take_read(slot, ev.tid, true);
        // It was not in the queue for all the time: its first reader had it.
        if let Some(open) = self.get_mut(slot) {
            (open.story.no_thread, open.story.no_cpu, open.story.asleep) = (ABSENT, ABSENT, ABSENT);
        }
    }

    /// Note that a signal is sent to a task. If the task waits for a request, the kernel sends the daemon an INTERRUPT.
    pub(super) fn signal(&mut self, ev: &Ev) {
        let [signal, tid, result, _] = ev.v;
        if result == IGNORED {
            return;
        }
        let slot = self.waiting_slot(tid as i32);
        let task = self.tasks.get_mut(tid as i32);
        if let Some(task) = task.filter(|task| task.syscall.is_some()) {
            task.signal = signal as u32;
        }
        if let Some(open) = slot.and_then(|slot| self.get_mut(slot)) {
            if !open.ended {
                let story = &mut open.story;
                story.signals = story.signals.saturating_add(1);
                if story.signal == 0 {
                    story.signal = signal as u32;
                }
            }
        }
    }

    /// Note that a daemon has read something of the length of an INTERRUPT that no request has: it is for the oldest
    /// request whose caller got a signal. The kernel sends one for each, before all requests.
    pub(super) fn interrupt_read(&mut self, connections: &[u64]) {
        if self.slab.len() > MOST_OPEN {
            return;
        }
        let waits = |open: &&mut Open| {
            open.generation > 0
                && !open.ended
                && open.story.signals > 0
                && !open.story.interrupted
                && connections.contains(&open.story.connection)
        };
        let oldest = self.slab.iter_mut().filter(waits);
        if let Some(open) = oldest.min_by_key(|open| open.story.start()) {
            open.story.interrupted = true;
        }
    }
}
