//! Callbacks of the daemon and their replies.

use super::*;

/// Times when the thread's reads returned data since its last reply: one of them brought the request.
#[derive(Default)]
pub(super) struct Reads {
    /// Time, and number of the thread's own events by then; 0 unless durations are corrected.
    pub(super) returns: Vec<(u64, u32)>,
    pub(super) replied: u64,
    pub(super) losses: u32,
}

impl Reads {
    pub(super) fn add(&mut self, time: u64, events: u32, losses: u32) {
        if self.losses != losses {
            self.returns.clear();
            self.losses = losses;
        }
        // Callbacks read, too. Only the first read after the request's begin and the last one are needed.
        if self.returns.len() == 64 {
            self.returns.pop();
        }
        self.returns.push((time, events));
    }
}

/// Reply of the daemon through a function of libfuse.
pub(super) struct Replied {
    function: u32,
    operation: Operation,
    /// Read that brought the request, as in `Reads::returns`.
    read: Option<(u64, u32)>,
    /// The call may have begun before the recording.
    before: bool,
    pid: i32,
    tid: i32,
    unique: u64,
    time: u64,
    events: u32,
}

impl Analysis {
    pub(super) fn entry(&mut self, ev: &Ev, kind: Kind) {
        if self.filters.begun_before {
            self.entered.insert((ev.tid, kind.function));
        }
        if kind.layer != Layer::Daemon {
            self.kernel_entry(ev, kind);
            return;
        }
        let request = if self.follow_requests {
            self.request_of(ev, kind.operation)
        } else {
            None
        };
        let counted = self.in_window(ev.time) && self.wants_daemon(ev.pid, request);
        let function = &mut self.functions[kind.function as usize];
        function.tally(Operation::UNKNOWN).entries += u64::from(counted);
        if !function.returns {
            return;
        }
        let call = Open {
            counted,
            unique: ev.v[0],
            // Includes the callback's own event, whose cost is that of its probes.
            events: self.events(ev.tid).saturating_add(1),
            ..self.opened(ev, kind.function)
        };
        let mut lost = Vec::new();
        let task = self.tasks.entry(ev.tid).or_default();
        task.stacks[DAEMON].enter(call, |call| lost.push(call));
        self.lose(lost);
    }

    /// Return whether a return without its entry ends a call that began before the recording: only a thread's first
    /// can.
    fn began_before(&mut self, tid: i32, function: u32) -> bool {
        self.filters.begun_before && self.entered.insert((tid, function))
    }

    pub(super) fn ret(&mut self, ev: &Ev, kind: Kind) {
        let mut lost = Vec::new();
        let call = self.tasks.get_mut(&ev.tid).and_then(|task| {
            task.stacks[stack_of(kind.layer)].leave(kind.function, |call| lost.push(call))
        });
        self.lose(lost);
        let Some(call) = call else {
            // A daemon's return without its entry has no request, so its caller is unknown.
            let before = self.began_before(ev.tid, kind.function);
            let wanted = !before
                && self.in_window(ev.time)
                && if kind.layer == Layer::Daemon {
                    self.wants_daemon(ev.pid, None)
                } else {
                    self.wants_kernel(ev, 0)
                };
            let function = &mut self.functions[kind.function as usize];
            function.lost += u64::from(wanted);
            function.tally(Operation::UNKNOWN).unmatched += u64::from(wanted);
            return;
        };
        if kind.layer != Layer::Daemon {
            let duration = ev.time.saturating_sub(call.start);
            let sure = call.losses == self.losses;
            self.kernel_return(ev, PROBES, call, sure.then_some(duration));
            return;
        }
        if !call.counted {
            return;
        }
        if call.losses != self.losses {
            // Its own return and a later entry may have been dropped meanwhile.
            self.unreturned([call]);
            return;
        }
        let (duration, until) = self.duration(&call, ev.tid, ev.time);
        let function = &mut self.functions[kind.function as usize];
        let tally = function.tally(Operation::UNKNOWN);
        tally.reply(duration, until);
        tally.hist.add(duration);
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: kind.layer,
                function: kind.function,
                start: call.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: or_zero(call.unique),
            });
        }
    }

    /// Return the ns of a callback up to a time, and the part before its reply. If durations are corrected, subtract
    /// the cost of the callback's own probes and of its thread's events meanwhile.
    pub(super) fn duration(&self, call: &Open, tid: i32, end: u64) -> (u64, Option<u64>) {
        let duration = end.saturating_sub(call.start);
        let replied = call.replied().filter(|until| *until <= duration);
        let Some(cost) = self.filters.less() else {
            return (duration, replied);
        };
        let met = |from: u32, to: u32, quarters| Met {
            events: u64::from(to.saturating_sub(from)),
            quarters,
        };
        let (from, to) = (call.events, self.events(tid));
        let Some(until) = replied else {
            let taken = met(from, to, OF_CALLBACK).taken(cost, duration);
            return (duration - taken, None);
        };
        let after = duration - until;
        let until = until - met(from, call.reply_events, OF_CALLBACK).taken(cost, until);
        let after = after - met(call.reply_events, to, 0).taken(cost, after);
        (until + after, Some(until))
    }

    /// Return `Stitch::events`; 0 unless durations are corrected.
    pub(super) fn events(&self, tid: i32) -> u32 {
        match (&self.stitch, self.filters.less()) {
            (Some(stitch), Some(_)) => stitch.events(tid),
            _ => 0,
        }
    }

    /// Return `Stitch::taken`.
    pub(super) fn taken(&self, tid: i32) -> u64 {
        self.stitch.as_ref().map_or(0, |stitch| stitch.taken(tid))
    }

    pub(super) fn opened(&self, ev: &Ev, function: u32) -> Open {
        Open {
            function,
            start: ev.time,
            overtaken: false,
            reply: ABSENT,
            events: 0,
            reply_events: 0,
            unique: ABSENT,
            losses: self.losses,
            counted: false,
            depth: 0,
            operations: 0,
            inner: 0,
            node: Tree::ROOT,
            single: Single::NONE,
            whole: false,
            outermost: true,
        }
    }

    /// Note the daemon's call from the read that brought the request to the reply.
    pub(super) fn reply(&mut self, ev: &Ev, kind: Kind) {
        let unique = ev.v[0];
        let served = self.request_of(ev, Operation::UNKNOWN);
        let wanted = self.wants_daemon(ev.pid, served);
        let counts = served.is_some_and(|(story, _)| self.in_window(story.start()));
        let request = served.map(|(story, _)| {
            let sent = story.at(Mark::Sent);
            let since = sent.or(story.at(Mark::Begin)).unwrap_or(0);
            let elsewhere = sent.filter(|_| story.reader != ev.tid);
            (story.id, story.operation, since, elsewhere)
        });
        let events = self.events(ev.tid);
        let reads = &mut self.tasks.entry(ev.tid).or_default().reads;
        // Reply functions call one another, and a batch of forgets is answered one by one under one number.
        if Requests::is_numbered(unique) && reads.replied == unique {
            reads.returns.clear();
            return;
        }
        if reads.losses != self.losses {
            reads.returns.clear();
        }
        let before = self.filters.begun_before && request.is_none() && reads.replied == 0;
        let start = match request {
            // The events of another thread are unknown.
            Some((.., Some(sent))) => Some((sent, events)),
            Some((_, _, since, _)) => reads.returns.iter().copied().find(|read| read.0 >= since),
            None => reads.returns.last().copied(),
        };
        reads.returns.clear();
        reads.replied = unique;
        if !wanted {
            return;
        }
        let operation = match request {
            Some((_, operation, ..)) => operation,
            None if self.functions[kind.function as usize].name == "fuse_reply_none" => {
                Operation::FORGET
            }
            None => Operation::UNKNOWN,
        };
        let replied = Replied {
            function: kind.function,
            operation,
            read: start,
            before,
            pid: ev.pid,
            tid: ev.tid,
            unique,
            time: ev.time,
            events,
        };
        match request.filter(|_| self.ring_events && counts) {
            // The ring's completion that brought it is known only at its end.
            Some((id, ..)) => {
                self.replied.insert(id, replied);
            }
            None => self.replied(replied),
        }
    }

    /// Count the reply to a request whose story is complete.
    pub(super) fn replied_to(&mut self, story: &Story) {
        let Some(mut replied) = self.replied.remove(&story.id) else {
            return;
        };
        if story.ring {
            let read = story.at(Mark::Read).filter(|read| *read <= replied.time);
            // The thread's events since then are unknown.
            replied.read = read.map(|read| (read, replied.events));
        }
        self.replied(replied);
    }

    pub(super) fn replied(&mut self, replied: Replied) {
        let start = replied.read.map(|read| read.0);
        if !self.in_window(start.unwrap_or(replied.time)) {
            return;
        }
        let tally = self
            .reply_tallies
            .entry((replied.function, replied.operation))
            .or_default();
        tally.entries += 1;
        let Some((start, events)) = replied.read else {
            tally.entries -= u64::from(replied.before);
            tally.unmatched += u64::from(!replied.before);
            return;
        };
        let mut duration = replied.time.saturating_sub(start);
        if let Some(cost) = self.filters.less() {
            // Half of the cost of its own probe lies before its time stamp.
            let met = Met {
                events: u64::from(replied.events.saturating_sub(events)),
                quarters: 1,
            };
            duration -= met.taken(cost, duration);
        }
        tally.hist.add(duration);
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: Layer::Daemon,
                function: replied.function,
                start,
                duration,
                pid: replied.pid,
                tid: replied.tid,
                unique: or_zero(replied.unique),
            });
        }
    }

    /// Return the request that the daemon is working on, and whether the filters select its caller.
    pub(super) fn request_of(&self, ev: &Ev, operation: Operation) -> Option<(&Story, bool)> {
        self.stitch.as_ref()?.served(ev, operation)
    }

    pub(super) fn wants_daemon(&self, pid: i32, request: Option<(&Story, bool)>) -> bool {
        let filters = &self.filters;
        if !filters.daemon_pids.is_empty() && !filters.daemon_pids.contains(&pid) {
            return false;
        }
        let all_callers = filters.pids.is_empty() && filters.comms.is_empty();
        if !all_callers && !request.is_some_and(|(_, wanted)| wanted) {
            return false;
        }
        if filters.connections.is_empty() {
            return true;
        }
        // A forget has no request: its connection is that of its daemon.
        let of_request = request.map(|(story, _)| story.connection);
        match self.serves.only(pid).or(of_request) {
            Some(connection) => filters.connections.contains(&connection),
            // If its process serves other connections, it may be one of theirs.
            None => !filters.daemon_pids.is_empty() && !self.serves.several(pid),
        }
    }
}
