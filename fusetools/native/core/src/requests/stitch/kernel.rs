//! Request in the kernel: its begin, its functions, its end.

use super::*;

/// Meaning of a kernel function for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Other,
    /// The caller waits in it.
    Wait,
    /// The daemon fetches requests; or answers.
    Fetch,
    Write,
}

pub(super) fn place(function: &str) -> Place {
    match function.split('.').next().unwrap_or(function) {
        WAIT => Place::Wait,
        "fuse_dev_do_read" => Place::Fetch,
        "fuse_dev_do_write" => Place::Write,
        _ => Place::Other,
    }
}

impl Stitch {
    pub(super) fn begin(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let [unique, connection, opcode, req] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        // A daemon that ends a request sends out requests that waited in the background.
        let own = match self.serves.of(ev.pid) {
            [] => self.servants.contains(&ev.pid),
            own => connection == ABSENT || own.contains(&connection),
        };
        let slot = self.put(operation, Fate::Unfinished);
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        // It has run since the last request's end; the time when it began to run was not recorded.
        task.awaiting = None;
        let open = &mut self.slab[slot.0 as usize];
        let story = &mut open.story;
        story.set(Mark::Begin, ev.time);
        story.idle[Mark::Begin as usize] = task.known_idle(ev.time);
        story.idle[Mark::KernelEnter as usize] = task.followed.then_some(task.kernel_idle);
        story.room = task.room.take().unwrap_or(ABSENT);
        task.slept_for = None;
        (story.pid, story.tid, story.comm) = (ev.pid, ev.tid, task.comm);
        (story.connection, story.unique, story.opcode) = (connection, unique, opcode);
        // One that came during an earlier request of the same system call.
        (story.signal, story.signals) = (task.signal, u32::from(task.signal != 0));
        story.before = task.events.wrapping_sub(task.events_then + 1);
        if !own {
            open.gap = task.gap();
            story.syscall = task.syscall.map_or(ABSENT, |syscall| syscall.number);
            if let Some(enter) = task.kernel_enter() {
                story.set(Mark::KernelEnter, enter);
            }
        }
        task.entered = 0;
        if !own {
            self.call_requests((ev.pid, ev.tid), operation, connection);
        }
        let task = self.tasks.of(ev.tid);
        let made = std::mem::take(&mut task.made);
        let last = task.last.filter(|_| task.syscall.is_some());
        let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty()
            || self.wants_caller(&self.slab[slot.0 as usize].story);
        self.slab[slot.0 as usize].wanted = wanted;
        let mut still = self.pass(made, last, tell);
        if !own {
            if let Some(open) = self.get_mut(slot) {
                open.caller_open = true;
            }
            if still.len() >= MOST_MADE {
                let oldest = still.remove(0);
                self.leave(oldest, ev.time, tell);
            }
            still.push(slot);
        }
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.made = still;
            task.just_made = Some(slot);
        }
        let request = Request {
            operation,
            connection,
            unique,
            place: slot.0,
        };
        self.may_come_by_ring(slot, connection);
        let identity = Identity::new(unique, connection, req);
        self.slab[slot.0 as usize].key = Some(identity.key());
        if let Some(earlier) = self.requests.begin(identity, request) {
            let Some(lost) = self.slot_of(&earlier) else {
                return;
            };
            if let Some(open) = self.get_mut(lost) {
                if lost == slot {
                    open.story.fate = Fate::Unnumbered;
                } else if open.story.fate == Fate::Unfinished {
                    open.story.fate = Fate::Lost;
                }
            }
            self.tell(lost, tell);
        }
    }

    pub(super) fn kernel_entry(&mut self, ev: &Ev, kind: Kind) {
        // The request may have had no number yet where it was queued.
        if ev.v[3] != ABSENT && self.requests.any_unnumbered() {
            self.learn(ev, ev.v[0], ABSENT, ev.v[3]);
        }
        match kind.place {
            Place::Wait => self.wait(ev.tid),
            place => self.dev(ev, place),
        }
        if !kind.makes {
            return;
        }
        let task = self.tasks.of(ev.tid);
        task.event(ev.time);
        let idle = task.idle_at(ev.time);
        if !kind.returns {
            (task.entered, task.kernel_idle) = (ev.time, idle);
            return;
        }
        match &mut task.probe {
            None => {
                task.probe = Some((kind.function, 1, ev.time));
                task.kernel_idle = idle;
            }
            Some((function, open, _)) if *function == kind.function => *open += 1,
            Some(_) => {}
        }
    }

    pub(super) fn kernel_return(&mut self, ev: &Ev, kind: Kind) {
        if kind.place == Place::Wait {
            self.runs(ev.tid, ev.time, true);
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let Some((function, open, _)) = &mut task.probe else {
            return;
        };
        if *function != kind.function {
            return;
        }
        *open -= 1;
        if *open == 0 {
            task.probe = None;
            self.kernel_exit(ev.tid, ev.time);
        }
    }

    pub(super) fn graph_entry(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        match self.place_at(address) {
            Place::Wait => self.wait(ev.tid),
            Place::Other => {}
            place => self.dev(ev, place),
        }
        if ev.tid == 0 {
            return;
        }
        let task = self.tasks.of(ev.tid);
        task.goes_on();
        if task.graph.is_none_or(|(outer, _)| depth <= outer) {
            task.graph = Some((depth, ev.time));
            task.kernel_idle = task.idle_at(ev.time);
        }
    }

    pub(super) fn graph_exit(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        match self.place_at(address) {
            Place::Wait => self.runs(ev.tid, ev.time, true),
            Place::Fetch => {
                if let Some(task) = self.tasks.get_mut(ev.tid) {
                    // If system calls are recorded, the thread's own call is more precise.
                    if task.syscall.is_none() {
                        let read = Read {
                            enter: task.fetches,
                            exit: ev.time,
                            run: task.run,
                            idle: task.idle_at(ev.time),
                            events: task.events,
                            len: 0,
                            connection: ABSENT,
                            claimed: false,
                        };
                        self.tasks.has_read(ev.tid, read);
                    }
                }
            }
            _ => {}
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.goes_on();
        if task.graph.is_some_and(|(outer, _)| depth <= outer) {
            task.graph = None;
            self.kernel_exit(ev.tid, ev.time);
        }
    }

    pub(super) fn place_at(&self, address: u64) -> Place {
        // function_graph records the first traceable address, which is some bytes into the function.
        let at = self
            .places
            .partition_point(|(start, _)| *start <= address)
            .checked_sub(1);
        match at.map(|at| self.places[at]) {
            Some((start, place)) if address - start < FARTHEST => place,
            _ => Place::Other,
        }
    }

    pub(super) fn kernel_exit(&mut self, tid: i32, time: u64) {
        let Some(slot) = self.tasks.get(tid).and_then(|task| task.last) else {
            return;
        };
        if let Some(open) = self.get_mut(slot) {
            open.story.set_first(Mark::KernelExit, time);
        }
    }

    /// Note that the caller goes to wait for the request that it made last.
    pub(super) fn wait(&mut self, tid: i32) {
        let slot = self.tasks.get(tid).and_then(|task| task.made.last());
        if let Some(slot) = slot.copied() {
            if let Some(open) = self.get_mut(slot) {
                open.waited = true;
                if open.ended {
                    self.awaited(slot);
                }
            }
        }
    }

    pub(super) fn dev(&mut self, ev: &Ev, place: Place) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        match place {
            Place::Write => task.writes = Some((ev.time, task.idle_at(ev.time), task.events)),
            Place::Fetch => task.fetches = ev.time,
            _ => {}
        }
    }

    pub(super) fn learn(&mut self, ev: &Ev, unique: u64, connection: u64, req: u64) -> Option<Key> {
        let identity = Identity::new(unique, connection, req);
        let daemon = self.serves.only(ev.pid);
        let key = self.requests.locate(identity, daemon)?;
        let request = *self.requests.learn(key, identity, daemon)?;
        let slot = self.slot_of(&request)?;
        let story = &mut self.get_mut(slot)?.story;
        story.learn(request.unique, request.connection);
        Some(key)
    }

    pub(super) fn sent(&mut self, ev: &Ev) {
        let [unique, connection, write, req] = ev.v;
        if write == 0 {
            return;
        }
        let Some(slot) = self
            .learn(ev, unique, connection, req)
            .and_then(|key| self.requests.get_mut(key).copied())
            .and_then(|request| self.slot_of(&request))
        else {
            return;
        };
        self.servants.insert(ev.pid);
        let task = self.tasks.of(ev.tid);
        task.event(ev.time);
        (task.pid, task.sent) = (ev.pid, Some(slot));
        let (run, freed, fetches) = (task.run, task.freed.time, task.fetches);
        let (idle, events) = (task.idle_at(ev.time), task.events);
        let enter = task.syscall.map_or(fetches, |call| call.start).max(freed);
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            open.story.set(Mark::Sent, ev.time);
            open.story.set(Mark::Read, ev.time);
            open.story.idle[Mark::Read as usize] = switches.then_some(idle);
            (open.idle, open.events) = (idle, events);
            (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
            open.story.reader = ev.tid;
        }
        self.split_queue(slot, enter, run, ev.time);
    }

    pub(super) fn end(&mut self, ev: &Ev, tell: Tell) {
        let [unique, connection, error, req] = ev.v;
        let resent = error >> 32 == RESENT >> 32;
        self.learn_server(ev, connection, or_zero(error) as i32);
        let mut ending = self
            .requests
            .end(Identity::new(unique, connection, req).key());
        if ending.is_none() {
            let key = self.learn(ev, unique, connection, req);
            ending = key.and_then(|key| self.requests.end(key));
        }
        if let Some(earlier) = ending.filter(|request| {
            Requests::is_numbered(unique)
                && Requests::is_numbered(request.unique)
                && request.unique != unique
        }) {
            // The end of that request, and the begin of the one that ends here, were missed.
            if let Some(slot) = self.slot_of(&earlier) {
                if let Some(open) = self.get_mut(slot) {
                    open.story.fate = Fate::Lost;
                }
                self.tell(slot, tell);
            }
            ending = None;
        }
        let slot = match ending.and_then(|request| self.slot_of(&request)) {
            Some(slot) => {
                if let Some(open) = self.get_mut(slot) {
                    open.story.learn(unique, connection);
                }
                slot
            }
            None => {
                let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty();
                let slot = self.put(Operation::UNKNOWN, self.without_begin());
                let open = &mut self.slab[slot.0 as usize];
                open.wanted = wanted;
                (open.story.connection, open.story.unique) = (connection, unique);
                slot
            }
        };
        if resent {
            self.resent(ev, slot);
        }
        self.ended(ev, slot, or_zero(error) as i32);
        if self.get(slot).is_some_and(|open| open.caller_open) {
            self.ended_for_the_caller(slot);
        }
        // The next event may be its length.
        self.ended_last = Some(slot);
    }

    /// Return whether all daemons of a connection have ended. A worker of the kernel may close what they left: rings of
    /// io_uring, for one.
    fn is_gone(&self, connection: u64) -> bool {
        let daemons = self.filters.daemons.iter();
        let mut of = daemons
            .filter(|(_, number)| *number == connection)
            .peekable();
        of.peek().is_some()
            && of.all(|(pid, _)| self.ended.contains(pid) && !self.tasks.any_of(*pid))
    }

    pub(super) fn ended(&mut self, ev: &Ev, slot: Slot, error: i32) {
        let switches = self.switches;
        let daemon = self.servants.contains(&ev.pid);
        let aborted = error == -ECONNABORTED;
        let commit = match daemon && !aborted {
            true => self.answered_by_ring(ev, slot),
            false => None,
        };
        let by_kernel = commit.is_some_and(|commit| commit.by_kernel);
        let Some(open) = self.get(slot) else { return };
        let callback = open.story.at(Mark::CallbackEnter);
        if !aborted && self.serves.several(ev.pid) {
            let to = self.tasks.get(ev.tid).and_then(|task| task.syscall);
            let to = to.map_or(ABSENT, |call| call.to);
            self.serves.learn(ev.pid, to, open.story.connection);
        }
        let Some(open) = self.get(slot) else { return };
        // If the return of its callback is not recorded, a thread has the request only until another thread answers.
        let left = open.daemon_open || open.story.at(Mark::CallbackReturn).is_some();
        let moved = callback.is_some() && !left && open.story.daemon_tid != ev.tid;
        let begun = open.story.at(Mark::Begin).is_some();
        if daemon && !aborted && moved {
            self.hand.insert(ev.pid);
            self.slab[slot.0 as usize].story.handed = true;
        }
        let Some(open) = self.get(slot) else { return };
        if daemon && !aborted && callback.is_none() && begun {
            // There is no callback, or the daemon's library answered by itself.
            match open.paired {
                Some(tid) if tid != ev.tid => {
                    self.hand.insert(ev.pid);
                    self.slab[slot.0 as usize].story.handed = true;
                }
                Some(_) => {
                    self.own_answers.insert(ev.pid);
                }
                None if by_kernel => self.slab[slot.0 as usize].story.handed = true,
                // Several threads wait for the same ring; this is one of them.
                None if commit.is_some() => {}
                None if open.story.at(Mark::Read).is_some() && open.story.daemon_tid != ev.tid => {
                    self.slab[slot.0 as usize].story.handed = true;
                }
                // If threads hand on what they read, this thread's read may have brought another request.
                None if self.hand.contains(&ev.pid) => {}
                None => self.take_read(slot, ev.tid, false),
            }
        }
        self.forget_unread(slot);
        let Some(open) = self.get(slot) else { return };
        let own = open.story.at(Mark::Read).is_some()
            && open.story.reader == ev.tid
            && (open.story.daemon_tid == ev.tid || open.story.daemon_tid < 0);
        let connection = open.story.connection;
        let by_daemon = daemon || (aborted && self.is_gone(connection));
        let task = self.tasks.of(ev.tid);
        let aborter = (task.comm, task.syscall.map_or(ABSENT, |call| call.number));
        (task.ended, task.ended_on) = (Some(slot), Some(connection));
        // The thread's last event before the end is the entry of the system call that answers.
        let ring = task
            .syscall
            .is_some_and(|call| daemon && self.arch.is_ring(call.number));
        let ring = ring || commit.is_some();
        let write = task
            .syscall
            .map(|call| (call.start, call.idle, call.events));
        let write = write.or(task.writes).filter(|_| daemon && !aborted);
        let idle = task.idle_at(ev.time);
        let at_end = idle;
        let events = task.events;
        task.event(ev.time);
        task.writes = None;
        task.sent = None;
        if daemon {
            task.reads.clear();
            task.free(ev.time);
            task.run.late = 0;
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        (open.ended, open.key) = (true, None);
        story.set(Mark::End, ev.time);
        story.error = error;
        story.ring = ring;
        if aborted {
            story.aborter = ev.pid;
            (story.aborter_comm, story.aborter_call) = aborter;
            story.aborted_by_daemon = by_daemon;
        }
        if story.fate == Fate::Unfinished || story.fate == Fate::Interrupted {
            story.fate = match aborted {
                true => Fate::Aborted,
                false => Fate::Matched,
            };
        }
        if story.at(Mark::Begin).is_some() {
            story.until = ev.time;
        }
        let since = [Mark::Begin, Mark::Sent, Mark::CallbackEnter]
            .into_iter()
            .filter_map(|mark| story.at(mark))
            .max();
        let (replied, idle, events) = match write {
            Some((start, idle, events)) if start >= since.unwrap_or(0) => {
                story.set(Mark::Reply, start);
                if switches {
                    story.idle[Mark::Reply as usize] = Some(idle);
                    story.idle[Mark::End as usize] = Some(at_end);
                }
                (start, idle, events)
            }
            _ => (ev.time, idle, events),
        };
        if daemon && !aborted && !by_kernel {
            story.replier = ev.tid;
        }
        if daemon && story.daemon_tid < 0 && !by_kernel {
            (story.daemon_pid, story.daemon_tid) = (ev.pid, ev.tid);
        }
        if story.daemon_tid == ev.tid && (callback.is_some() || own) {
            story.inside = events.wrapping_sub(open.events);
        }
        if aborted {
            let until = ev.time;
            self.unanswered(slot, until);
            return;
        }
        if daemon {
            self.answered_through(ev);
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        let moved = moved && open.left.is_none();
        if !switches || moved || (callback.is_none() && !(own && story.daemon_tid == ev.tid)) {
            return;
        }
        match story.at(Mark::CallbackReturn).or(open.left) {
            Some(left) if story.blocked != ABSENT && story.daemon_tid != ev.tid => {
                story.elsewhere = replied.saturating_sub(left);
            }
            _ if story.daemon_tid == ev.tid => {
                story.slept(idle, open.idle);
                story.elsewhere = 0;
            }
            _ => {
                // Another thread answered while the callback runs on.
                let (tid, before) = (story.daemon_tid, open.idle);
                let Some(idle) = self.tasks.get(tid).map(|task| task.idle_at(replied)) else {
                    return;
                };
                if let Some(open) = self.get_mut(slot) {
                    open.story.slept(idle, before);
                    open.story.elsewhere = 0;
                }
            }
        }
    }

    pub(super) fn ended_for_the_caller(&mut self, slot: Slot) {
        let switches = self.switches;
        let Some(open) = self.get(slot) else { return };
        let operation = open.story.operation;
        if open.may_be_awaited(switches) {
            self.awaited(slot);
        } else if !operation.may_wait() {
            let tid = open.story.tid;
            if let Some(task) = self.tasks.get_mut(tid) {
                task.made.retain(|made| *made != slot);
            }
            if let Some(open) = self.get_mut(slot) {
                open.caller_open = false;
            }
        }
    }
}
