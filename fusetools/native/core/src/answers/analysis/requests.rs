//! Requests and the system calls that make them.

use super::*;

pub(super) struct Syscall {
    pub(super) number: u64,
    pub(super) start: u64,
    /// Number of its thread's own events by its start; 0 unless durations are corrected.
    pub(super) events: u32,
    pub(super) losses: u32,
    /// Operations of the selected requests that began in it.
    pub(super) operations: u128,
}

impl Analysis {
    /// Count a complete request.
    pub(super) fn story(&mut self, story: &Story) {
        self.decide(story);
        self.replied_to(story);
        let begin = story.at(Mark::Begin);
        self.counts.add(story);
        let mut caller = Some(story.pid).filter(|pid| *pid >= 0);
        while let Some(pid) = caller.filter(|pid| self.callers.insert(*pid)) {
            caller = self.parents.get(&pid).copied();
        }
        let cut = self.filters.less().map(|cost| Cut::new(story).less(cost));
        let taken = |from, to| cut.map_or(0, |cut| cut.taken(from, to));
        if begin.is_some() {
            self.request_tallies
                .entry(story.operation)
                .or_default()
                .request(story, begin, story.until, taken(Mark::Begin, Mark::End));
        }
        let daemon = !story.is_unanswered() || story.next != Mark::Read;
        if story.at(Mark::CallbackEnter).is_some() {
            self.called |= story.operation.bit();
        } else if self.filters.windows && daemon {
            let read = story.at(Mark::Read);
            let reply = story.at(Mark::Reply);
            let to = reply.unwrap_or(story.until);
            let last = reply.map_or(Mark::End, |_| Mark::Reply);
            // A recording may lack what a ring brings: then no request has a read.
            let unseen = story.ring && read.is_none() && !self.ring_events;
            if read.is_some() {
                self.readable.insert(story.connection);
                self.window_tallies
                    .entry(story.operation)
                    .or_default()
                    .request(story, read, to, taken(Mark::Read, last));
            } else if begin.is_some() && !unseen {
                *self
                    .unread
                    .entry((story.connection, story.operation))
                    .or_default() += 1;
            }
        }
    }

    /// Count requests without a seen read as unmatched, unless no read of their connection can be seen here (virtiofs).
    pub(super) fn count_unread(&mut self) {
        for ((connection, operation), count) in std::mem::take(&mut self.unread) {
            let unknown = connection == ABSENT && !self.readable.is_empty();
            if unknown || self.readable.contains(&connection) {
                let tally = self.window_tallies.entry(operation).or_default();
                tally.entries += count;
                tally.unmatched += count;
            }
        }
    }

    /// Begin a request: the calls around it get its operation, if its caller and its mount are selected.
    pub(super) fn begin(&mut self, ev: &Ev, kind: Kind) {
        let [_, connection, opcode, _] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        if !self.wants_caller(ev.pid, ev.tid) {
            return;
        }
        if connection == ABSENT && !self.filters.connections.is_empty() {
            // Known once the daemon has it.
            let story = self.stitch.as_ref().and_then(|s| s.begun(ev.tid));
            self.undecided.extend(story.map(|story| story.id));
        } else if self.wants_connection(connection) {
            self.made(ev.tid, operation);
        }
    }

    fn made(&mut self, tid: i32, operation: Operation) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let bit = operation.bit();
        if let Some(syscall) = &mut task.syscall {
            syscall.operations |= bit;
        }
        for stack in &mut task.stacks[PROBES..] {
            stack.iter_mut().for_each(|call| call.operations |= bit);
        }
    }

    /// Decide about an undecided request, if its mount is known by now.
    pub(super) fn decide(&mut self, story: &Story) {
        let known = story.connection != ABSENT && self.undecided.remove(&story.id);
        if known && self.wants_connection(story.connection) {
            self.made(story.tid, story.operation);
        }
    }

    /// Decide about the requests that a thread of the daemon has just got or ended.
    pub(super) fn settle(&mut self, tid: i32) {
        if self.undecided.is_empty() {
            return;
        }
        if let Some(stitch) = self.stitch.take() {
            for story in [stitch.in_hand(tid), stitch.answered(tid)] {
                story.into_iter().for_each(|story| self.decide(story));
            }
            self.stitch = Some(stitch);
        }
    }

    /// End a request. Its thread's last event before is the entry of the system call that answers.
    pub(super) fn end(&mut self, ev: &Ev) {
        let unique = ev.v[0];
        let events = self.events(ev.tid);
        let Some(task) = self.tasks.get_mut(&ev.tid) else {
            return;
        };
        let entered = task.syscall.as_ref();
        let entered = entered.map_or((0, 0), |call| (call.start, call.events));
        for call in task.stacks[DAEMON].iter_mut() {
            if call.reply == ABSENT && (call.unique == ABSENT || call.unique == unique) {
                (call.reply, call.reply_events) = match entered {
                    (start, _) if start < call.start => (ev.time, events),
                    entered => entered,
                };
            }
        }
    }

    pub(super) fn sys_enter(&mut self, ev: &Ev) {
        let number = ev.v[0];
        if self.arch.is_fake(number) {
            return;
        }
        let events = self.events(ev.tid);
        let task = self.tasks.entry(ev.tid).or_default();
        let syscall = Syscall {
            number,
            start: ev.time,
            events,
            losses: self.losses,
            operations: 0,
        };
        let earlier = task.syscall.replace(syscall);
        self.syscall_unreturned(earlier);
    }

    /// Return the system call that has returned, if its duration counts.
    pub(super) fn sys_exit(&mut self, ev: &Ev) -> Option<Syscall> {
        let [number, ret, ..] = ev.v;
        if self.arch.is_fake(number) {
            return None;
        }
        let losses = self.losses;
        let events = self.events(ev.tid);
        let ring = self.ring_events && self.arch.is_ring(number);
        if self.follow_replies && ret as i64 > 0 && self.arch.is_read(number) && !ring {
            self.tasks
                .entry(ev.tid)
                .or_default()
                .reads
                .add(ev.time, events, losses);
        }
        let syscall = self.tasks.get_mut(&ev.tid)?.syscall.take()?;
        if !self.in_window(syscall.start) {
            return None;
        }
        if syscall.number != number || syscall.losses != losses {
            self.syscall_unreturned(Some(syscall));
            return None;
        }
        Some(syscall)
    }

    /// Return the operations that a system call counts for: its own, if it reads or writes data; else those of its
    /// requests; else its own, if it is on a mount. `on`: its own operation, if it is on a selected mount.
    pub(super) fn counts_for(&self, syscall: &Syscall, on: Option<Operation>) -> u128 {
        let own = on.filter(|operation| *operation != Operation::UNKNOWN);
        match own.map(Operation::bit) {
            Some(own) if syscall.operations == 0 || self.arch.is_data(syscall.number) => own,
            _ => syscall.operations,
        }
    }

    /// Count a system call. The stitching has seen its return, too, so the cost of recording in its requests is known.
    pub(super) fn syscall_returned(&mut self, ev: &Ev, syscall: Syscall) {
        let number = syscall.number;
        let stitch = self.stitch.as_ref();
        let call = stitch.and_then(|stitch| stitch.mount_call());
        let operations = self.counts_for(&syscall, call.map(|call| call.operation));
        if operations == 0 {
            return;
        }
        let duration = ev.time.saturating_sub(syscall.start);
        let duration = duration.saturating_sub(self.taken(ev.tid));
        for operation in Operation::of_bits(operations) {
            let tally = self.syscall_tallies.entry((number, operation)).or_default();
            tally.entries += 1;
            tally.hist.add(duration);
        }
        if let Some(columns) = &mut self.columns {
            let function = *self.syscall_names.entry(number).or_insert_with(|| {
                columns.functions.push(self.arch.syscall(number));
                columns.functions.len() as u32 - 1
            });
            columns.calls.push(Call {
                layer: Layer::Syscall,
                function,
                start: syscall.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: 0,
            });
        }
    }

    pub(super) fn syscall_unreturned(&mut self, syscall: Option<Syscall>) {
        let Some(syscall) = syscall.filter(|syscall| self.in_window(syscall.start)) else {
            return;
        };
        for operation in Operation::of_bits(syscall.operations) {
            let tally = self
                .syscall_tallies
                .entry((syscall.number, operation))
                .or_default();
            tally.entries += 1;
            tally.unmatched += 1;
        }
    }
}
