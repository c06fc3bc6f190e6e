//! Requests and the system calls that make them.

use super::*;

pub(super) struct Syscall {
    pub(super) number: u64,
    pub(super) start: u64,
    pub(super) losses: u32,
    /// Of the requests that began in it and are asked for.
    pub(super) operations: u64,
}

impl Analysis {
    /// A request of which nothing more can be learned.
    pub(super) fn story(&mut self, story: &Story) {
        let begin = story.at(Mark::Begin);
        self.counts.add(story);
        if begin.is_some() {
            self.request_tallies
                .entry(story.operation)
                .or_default()
                .request(story, begin, story.until);
        }
        let daemon = !story.is_unanswered() || story.next != Mark::Read;
        if self.filters.windows && daemon && story.at(Mark::CallbackEnter).is_none() {
            let read = story.at(Mark::Read);
            let to = story.at(Mark::Reply).unwrap_or(story.until);
            if begin.is_some() || read.is_some() {
                self.window_tallies
                    .entry(story.operation)
                    .or_default()
                    .request(story, read, to);
            }
        }
    }

    pub(super) fn begin(&mut self, ev: &Ev, kind: Kind) {
        let [unique, connection, opcode, req] = ev.v;
        let operation = match opcode {
            ABSENT => kind.operation,
            opcode => Operation::of_opcode(opcode),
        };
        let caller = self.wants_caller(ev.pid, ev.tid);
        let mut request = Request {
            operation,
            begin: ev.time,
            pid: ev.pid,
            tid: ev.tid,
            connection,
            unique,
            opcode,
            sent: None,
            caller,
            counted: false,
            undecided: caller && connection == ABSENT && !self.filters.connections.is_empty(),
            row: NO_ROW,
        };
        if caller && !request.undecided && self.wants_connection(connection) {
            self.ask_for(&mut request);
        }
        if self.columns.is_some() {
            self.tasks.entry(ev.tid).or_default().made = Some(request.row);
        }
        self.requests
            .begin(Told::new(unique, connection, req), request);
    }

    /// The request is one of those that the filters let pass, but for the time.
    pub(super) fn ask_for(&mut self, request: &mut Request) {
        request.undecided = false;
        if let Some(task) = self.tasks.get_mut(&request.tid) {
            let bit = request.operation.bit();
            if let Some(syscall) = &mut task.syscall {
                syscall.operations |= bit;
            }
            for stack in &mut task.stacks[PROBES..] {
                stack.iter_mut().for_each(|call| call.operations |= bit);
            }
        }
        request.counted = self.in_window(request.begin);
        if !request.counted {
            return;
        }
        if let Some(columns) = &mut self.columns {
            request.row = columns.requests.len() as u32;
            columns.requests.push(RequestRow {
                connection: or_zero(request.connection),
                unique: or_zero(request.unique),
                opcode: or_zero(request.opcode) as u32,
                begin: request.begin,
                end: 0,
                error: 0,
                pid: request.pid,
                tid: request.tid,
                callback_start: 0,
                callback_end: 0,
                sent: 0,
                woken: 0,
            });
        }
    }

    /// Adds what an event tells to the open request that it is about.
    pub(super) fn learn(&mut self, ev: &Ev, told: Told) -> Option<Key> {
        let daemon = self.daemons.get(&ev.pid).copied();
        let key = self.requests.locate(told, daemon)?;
        let mut request = *self.requests.learn(key, told, daemon)?;
        if request.undecided && request.connection != ABSENT {
            request.undecided = false;
            if self.wants_connection(request.connection) {
                self.ask_for(&mut request);
            }
            if let Some(open) = self.requests.get_mut(key) {
                *open = request;
            }
        }
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(request.row as usize) {
                row.unique = or_zero(request.unique);
                row.connection = or_zero(request.connection);
            }
        }
        Some(key)
    }

    pub(super) fn sent(&mut self, ev: &Ev) {
        let [unique, connection, write, req] = ev.v;
        if write == 0 {
            return;
        }
        let Some(key) = self.learn(ev, Told::new(unique, connection, req)) else {
            return;
        };
        if let Some(request) = self.requests.get_mut(key) {
            request.sent = Some((ev.time, ev.tid));
            if let Some(columns) = &mut self.columns {
                if let Some(row) = columns.requests.get_mut(request.row as usize) {
                    row.sent = ev.time;
                }
            }
        }
    }

    pub(super) fn end(&mut self, ev: &Ev) {
        let [unique, connection, error, req] = ev.v;
        let told = Told::new(unique, connection, req);
        if let Some(task) = self.tasks.get_mut(&ev.tid) {
            // What the thread does last before the end is to enter the system call that answers.
            let entered = task.syscall.as_ref().map_or(0, |call| call.start);
            for call in task.stacks[DAEMON].iter_mut() {
                if call.reply == ABSENT && (call.unique == ABSENT || call.unique == unique) {
                    call.reply = if entered >= call.start {
                        entered
                    } else {
                        ev.time
                    };
                }
            }
        }
        let mut found = None;
        // Most often there is nothing to learn that the answer needs.
        if self.columns.is_none() && self.filters.connections.is_empty() {
            found = self.requests.end(told.key());
        }
        if found.is_none() {
            let key = self.learn(ev, told);
            found = key.and_then(|key| self.requests.end(key));
        }
        if found.is_some_and(|request| {
            Requests::is_numbered(unique)
                && Requests::is_numbered(request.unique)
                && request.unique != unique
        }) {
            // Its end and the begin of the one that ends here were not seen.
            found = None;
        }
        let Some(request) = found.filter(|request| request.counted) else {
            return;
        };
        if let Some(columns) = &mut self.columns {
            if let Some(row) = columns.requests.get_mut(request.row as usize) {
                row.end = ev.time;
                row.error = or_zero(error) as i32;
            }
        }
    }

    pub(super) fn sys_enter(&mut self, ev: &Ev) {
        let number = ev.v[0];
        if self.arch.is_fake(number) {
            return;
        }
        let task = self.tasks.entry(ev.tid).or_default();
        let syscall = Syscall {
            number,
            start: ev.time,
            losses: self.losses,
            operations: 0,
        };
        let earlier = task.syscall.replace(syscall);
        self.syscall_unreturned(earlier);
    }

    pub(super) fn sys_exit(&mut self, ev: &Ev) {
        let [number, ret, ..] = ev.v;
        if self.arch.is_fake(number) {
            return;
        }
        let losses = self.losses;
        if self.follow_replies && ret as i64 > 0 && self.arch.is_read(number) {
            self.tasks
                .entry(ev.tid)
                .or_default()
                .reads
                .add(ev.time, losses);
        }
        let Some(task) = self.tasks.get_mut(&ev.tid) else {
            return;
        };
        let Some(syscall) = task.syscall.take() else {
            return;
        };
        if syscall.operations == 0 || !self.in_window(syscall.start) {
            return;
        }
        if syscall.number != number || syscall.losses != losses {
            self.syscall_unreturned(Some(syscall));
            return;
        }
        let duration = ev.time.saturating_sub(syscall.start);
        for operation in Operation::of_bits(syscall.operations) {
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
