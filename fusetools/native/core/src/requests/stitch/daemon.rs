//! Daemon's side: the thread that read the request, its callback, its reply.

use super::refused::INTERRUPT;
use super::*;

/// Requests of one connection and length without a known read, in order of queuing.
#[derive(Default)]
pub(super) struct Unread {
    pub(super) queue: VecDeque<Slot>,
    /// Number of them that were read, while it is unknown which.
    pub(super) taken: usize,
}

/// Maximum number of them: no daemon has more waiting (max_background, and one for each caller).
pub(super) const MOST_UNREAD: usize = 1 << 16;

/// Maximum number of distinct lengths.
pub(super) const MOST_LENGTHS: usize = 1 << 16;

impl Stitch {
    /// Return the request that a thread of the daemon works on, from its callback on. Return it from its read on if the
    /// read's request is known, and the daemon's threads do not hand requests to each other.
    pub fn in_hand(&self, tid: i32) -> Option<&Story> {
        let task = self.tasks.get(tid)?;
        let callback = task.callbacks.last().and_then(|callback| callback.slot);
        let read = task.paired.filter(|_| !self.hands(task.pid));
        let slot = callback.or(task.sent).or(read)?;
        self.get(slot).map(|open| &open.story)
    }

    /// Return whether requests of this daemon have been answered by other threads than those that read them.
    pub fn hands(&self, pid: i32) -> bool {
        self.hand.contains(&pid)
    }

    /// Return the request that a thread has answered in its current system call.
    pub fn answered(&self, tid: i32) -> Option<&Story> {
        let slot = self.tasks.get(tid)?.ended?;
        self.get(slot).map(|open| &open.story)
    }

    /// Find the request that a daemon's thread has read, `len` bytes long, if only one fits. The kernel hands requests
    /// out in the order in which they are queued, each by a read of its length.
    pub(super) fn pair(&mut self, ev: &Ev, len: u64) {
        if !self.serves.knows(ev.pid) {
            return;
        }
        // A callback reads for itself.
        if self
            .tasks
            .get(ev.tid)
            .is_some_and(|task| !task.callbacks.is_empty())
        {
            return;
        }
        let read = self.tasks.get(ev.tid).and_then(|task| task.reads.last());
        let candidates = match read.map_or(ABSENT, |read| read.connection) {
            ABSENT => self.serves.of(ev.pid).to_vec(),
            connection => vec![connection],
        };
        let waiting =
            |connection: &u64| Some((*connection, self.waiting_unread(*connection, len)?));
        let mut waiting_of: Vec<_> = candidates.iter().filter_map(waiting).collect();
        if waiting_of.is_empty() && len == INTERRUPT {
            self.interrupt_read(&candidates);
        }
        let sure = waiting_of.len() == 1;
        for (connection, unread) in waiting_of.drain(..) {
            self.pair_one(ev, (connection, len), unread, sure);
        }
    }

    /// Return the requests without a known read that have not ended; None if there are none.
    fn waiting_unread(&mut self, connection: u64, len: u64) -> Option<Unread> {
        let mut unread = self.unread.remove(&(connection, len))?;
        unread.queue.retain(|slot| {
            let open = self.get(*slot);
            open.is_some_and(|open| !open.ended && open.story.at(Mark::Read).is_none())
        });
        unread.taken = unread.taken.min(unread.queue.len());
        (!unread.queue.is_empty()).then_some(unread)
    }

    /// Find the request in `unread`. `sure`: a thread of the daemon has read one of these; else it may have read
    /// another connection's.
    fn pair_one(&mut self, ev: &Ev, key: (u64, u64), mut unread: Unread, sure: bool) {
        let alone = self.reading.get(&ev.pid).is_none_or(FxHashSet::is_empty);
        match unread.queue.len() {
            waiting if sure && unread.taken == 0 && (waiting == 1 || alone) => {
                if let Some(slot) = unread.queue.pop_front() {
                    self.paired(slot, ev);
                }
            }
            // It is unknown which of them another thread may have read by then.
            waiting => {
                if let Some(task) = self.tasks.get_mut(ev.tid) {
                    task.paired = None;
                }
                unread.taken += 1;
                if unread.taken == waiting {
                    for slot in std::mem::take(&mut unread.queue) {
                        if let Some(open) = self.get_mut(slot) {
                            open.maybe_read = true;
                        }
                    }
                }
            }
        }
        if !unread.queue.is_empty() {
            self.unread.insert(key, unread);
        }
    }

    pub(super) fn paired(&mut self, slot: Slot, ev: &Ev) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let freed = task.freed.time;
        let Some(read) = task.reads.last_mut() else {
            return;
        };
        read.claimed = true;
        let read = *read;
        task.paired = Some(slot);
        if let Some(open) = self.get_mut(slot) {
            open.paired = Some(ev.tid);
            (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
        }
        self.was_read(slot, ev.tid, read, freed);
    }

    /// Note that this read brought the request. The thread had been free for it since `freed`.
    pub(super) fn was_read(&mut self, slot: Slot, tid: i32, read: Read, freed: u64) {
        let switches = self.switches;
        if let Some(open) = self.get_mut(slot) {
            open.story.set(Mark::Read, read.exit);
            open.story.reader = tid;
            open.story.idle[Mark::Read as usize] = switches.then_some(read.idle);
            if open.story.at(Mark::CallbackEnter).is_none() {
                (open.idle, open.events) = (read.idle, read.events);
            }
        }
        self.split_queue(slot, read.enter.max(freed), read.run, read.exit);
    }

    /// Find the system call of this thread that brought the request: the last one, or the first one since it was sent.
    /// A call of another length brought something else.
    pub(super) fn take_read(&mut self, slot: Slot, tid: i32, last: bool) {
        let Some(open) = self.get(slot) else { return };
        let story = &open.story;
        let since = story
            .at(Mark::Sent)
            .filter(|_| story.daemon_tid == tid)
            .or(story.at(Mark::Begin))
            .unwrap_or(0);
        let (len, connection) = (story.request_len, story.connection);
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let fits = |read: &Read| len == ABSENT || read.len == 0 || read.len == len;
        let mut reads = task
            .reads
            .iter_mut()
            .filter(|read| read.exit >= since && fits(read) && read.may_be_of(connection));
        let read = if last {
            reads.next_back()
        } else {
            reads.next()
        };
        let Some(read) = read else { return };
        read.claimed = true;
        let (read, freed) = (*read, task.freed.time);
        self.was_read(slot, tid, read, freed);
    }

    /// Return the open request that the daemon has in hand.
    pub(super) fn request_of(&self, ev: &Ev, operation: Operation) -> Option<Slot> {
        let unique = ev.v[0];
        if !Requests::is_numbered(unique) {
            return None;
        }
        let request = match self.serves.of(ev.pid) {
            [connection] => self.requests.find((*connection, unique))?.1,
            [] => {
                let unowned = |connection| !self.serves.is_served(connection);
                self.requests.guess(unique, operation, unowned)?.1
            }
            own => match self.read_of(ev.tid) {
                Some(connection) => self.requests.find((connection, unique))?.1,
                None => {
                    let own = |connection| own.contains(&connection);
                    self.requests.guess(unique, operation, own)?.1
                }
            },
        };
        self.slot_of(request)
    }

    /// Return the connection that a thread has read from last since its last reply, if its process serves several; None
    /// if unknown.
    fn read_of(&self, tid: i32) -> Option<u64> {
        let task = self.tasks.get(tid)?;
        let read = task.reads.iter().rev();
        let mut known = read.map(|read| read.connection).filter(|c| *c != ABSENT);
        known.next().filter(|_| !self.hands(task.pid))
    }

    /// Return the connection of a daemon's event; None if unknown.
    pub fn connection_of(&self, pid: i32, tid: i32, unique: u64) -> Option<u64> {
        let own = self.serves.of(pid);
        if own.len() < 2 {
            return self.serves.only(pid);
        }
        let among = |connection| own.contains(&connection);
        let guess = || self.requests.guess(unique, Operation::UNKNOWN, among);
        self.read_of(tid).or_else(|| Some(guess()?.0))
    }

    /// Return the request of a daemon's call, if it began in the recording, and whether the filters select its caller.
    pub fn served(&self, ev: &Ev, operation: Operation) -> Option<(&Story, bool)> {
        let open = self.get(self.request_of(ev, operation)?)?;
        let begun = open.story.at(Mark::Begin).is_some();
        begun.then_some((&open.story, open.wanted))
    }

    pub(super) fn callback(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let unique = ev.v[0];
        let mut slot = self.request_of(ev, kind.operation);
        if unique == ABSENT {
            slot = self.read_last(ev.tid, kind.operation);
        }
        let known = self.serves.is_empty() || self.serves.knows(ev.pid);
        self.servants.insert(ev.pid);
        self.callbacks.insert(ev.pid);
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        // The callback that calls this one (a stub), if it is for the same request.
        let around = task.callbacks.last().and_then(|callback| callback.slot);
        let around = around.filter(|slot| {
            let same = |open: &Open| [open.story.unique, ABSENT].contains(&unique);
            self.get(*slot).is_some_and(same)
        });
        // A callback without a request number gets no request of its own, if requests are recorded.
        let own = unique != ABSENT || !self.begins || !kind.operation.has_reply();
        if slot.is_none() && around.is_some() {
            slot = around;
        } else if slot.is_none() && known && own && kind.operation != Operation::UNKNOWN {
            slot = Some(self.callback_alone(ev, kind));
        }
        let mut idle = Idle::default();
        let mut events = 0;
        let mut freed = Freed::default();
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.event(ev.time);
            (idle, events) = (task.idle_at(ev.time), task.events);
            freed = task.freed;
        }
        let mut first = false;
        let switches = self.switches;
        if let Some(open) = slot.and_then(|slot| self.get_mut(slot)) {
            if open.story.at(Mark::CallbackEnter).is_none() {
                first = true;
                open.story.set(Mark::CallbackEnter, ev.time);
                (open.idle, open.events, open.freed) = (idle, events, freed);
                if open.story.reader != ev.tid {
                    // The other thread's idle time until then says nothing about this one.
                    open.story.idle[Mark::Read as usize] = None;
                }
                open.story.idle[Mark::CallbackEnter as usize] = switches.then_some(idle);
                open.daemon_open = kind.returns;
            }
        }
        if let Some(slot) = slot.filter(|_| first) {
            self.take_read(slot, ev.tid, true);
            if let Some(open) = self.get_mut(slot) {
                (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
                (open.story.nodeid, open.story.size) = (ev.v[1], ev.v[2]);
                if open.story.opcode == ABSENT {
                    open.story.operation = kind.operation;
                }
            }
        }
        if !kind.returns {
            if let Some(slot) = slot.filter(|_| first) {
                self.close(slot, tell);
            }
            return;
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.callbacks.push(Callback {
            function: kind.function,
            slot,
        });
        if task.callbacks.len() > MOST_CALLBACKS {
            let oldest = task.callbacks.remove(0);
            self.drop_callbacks(vec![oldest], ev.time, tell);
        }
    }

    /// Return the request that this thread has read last, if the callback that begins now may belong to it.
    fn read_last(&self, tid: i32, operation: Operation) -> Option<Slot> {
        let task = self.tasks.get(tid)?;
        let slot = task.paired.filter(|_| !self.hands(task.pid))?;
        let open = self.get(slot)?;
        let fits = [Operation::UNKNOWN, open.story.operation].contains(&operation);
        let begins = open.story.at(Mark::CallbackEnter).is_none() && !open.ended;
        (fits && begins).then_some(slot)
    }

    /// Add a callback without a request: a forget, or one whose begin is not in the recording.
    pub(super) fn callback_alone(&mut self, ev: &Ev, kind: Kind) -> Slot {
        let unique = ev.v[0];
        let fate = if kind.operation.has_reply() {
            self.without_begin()
        } else {
            Fate::NoReply
        };
        let connection = self.connection_of(ev.pid, ev.tid, unique);
        let connection = connection.unwrap_or(ABSENT);
        // Its request is unknown.
        let wanted = self.filters.pids.is_empty() && self.filters.comms.is_empty();
        let slot = self.put(kind.operation, fate);
        let open = &mut self.slab[slot.0 as usize];
        (open.ended, open.wanted) = (true, wanted);
        (open.story.connection, open.story.unique) = (connection, unique);
        if fate != Fate::NoReply && Requests::is_numbered(unique) {
            // Allows its end to be matched.
            let request = Request {
                operation: kind.operation,
                connection,
                unique,
                place: slot.0,
            };
            let identity = Identity::new(unique, connection, ABSENT);
            self.slab[slot.0 as usize].key = Some(identity.key());
            if let Some(earlier) = self.requests.begin(identity, request) {
                // The earlier one may be of another connection, which is unknown as well.
                if let Some(open) = self.slot_of(&earlier).and_then(|slot| self.get_mut(slot)) {
                    open.key = None;
                }
            }
        }
        slot
    }

    pub(super) fn without_begin(&self) -> Fate {
        if self.losses == 0 {
            Fate::Before
        } else {
            Fate::Lost
        }
    }

    pub(super) fn callback_return(&mut self, ev: &Ev, kind: Kind, tell: Tell) {
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        let Some(at) = task
            .callbacks
            .iter()
            .rposition(|callback| callback.function == kind.function)
        else {
            return;
        };
        // Callbacks entered after it cannot return any more.
        let lost: Vec<Callback> = match at + 1 < task.callbacks.len() {
            true => task.callbacks.drain(at + 1..).collect(),
            false => Vec::new(),
        };
        let callback = task.callbacks.pop();
        task.event(ev.time);
        task.free(ev.time);
        let idle = task.idle_at(ev.time);
        let outer = task.callbacks.last().and_then(|outer| outer.slot);
        if !lost.is_empty() {
            let lost = lost.into_iter().filter(|lost| lost.slot != outer);
            self.drop_callbacks(lost.collect(), ev.time, tell);
        }
        let Some(slot) = callback.and_then(|callback| callback.slot) else {
            return;
        };
        if Some(slot) == outer {
            return;
        }
        let switches = self.switches;
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        story.set(Mark::CallbackReturn, ev.time);
        if story.at(Mark::Reply).is_none() && story.at(Mark::End).is_none() && switches {
            // If there is a reply, another thread sends it.
            story.slept(idle, open.idle);
        }
        self.done_on_the_daemons_side(slot, tell);
    }

    pub(super) fn done_on_the_daemons_side(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.daemon_open = false;
        self.close(slot, tell);
    }

    pub(super) fn drop_callbacks(&mut self, callbacks: Vec<Callback>, _time: u64, tell: Tell) {
        for slot in callbacks.into_iter().filter_map(|callback| callback.slot) {
            self.done_on_the_daemons_side(slot, tell);
        }
    }

    /// Note that the daemon answers through a function of libfuse.
    pub(super) fn reply(&mut self, ev: &Ev) {
        self.servants.insert(ev.pid);
        let Some(slot) = self.request_of(ev, Operation::UNKNOWN) else {
            return;
        };
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.replies = Some(slot);
        }
        let Some(open) = self.get(slot) else { return };
        if open.story.at(Mark::CallbackEnter).is_some() || open.story.at(Mark::Reply).is_some() {
            return;
        }
        self.take_read(slot, ev.tid, false);
        if let Some(open) = self.get_mut(slot) {
            if open.story.daemon_tid < 0 {
                (open.story.daemon_pid, open.story.daemon_tid) = (ev.pid, ev.tid);
            }
        }
    }

    pub(super) fn length(&mut self, ev: &Ev) {
        let [unique, connection, len, req] = ev.v;
        let ended = self.tasks.get(ev.tid).and_then(|task| task.ended);
        if let Some(open) = ended.and_then(|slot| self.get_mut(slot)) {
            if open.story.at(Mark::End) == Some(ev.time) {
                // Daemons need not fill it in: a ring has its own field for it (payload_sz).
                if !open.story.ring {
                    open.story.reply_len = len;
                }
                return;
            }
        }
        let daemon = self.serves.only(ev.pid);
        let key = self
            .requests
            .locate(Identity::new(unique, connection, req), daemon);
        let request = key.and_then(|key| self.requests.get_mut(key).copied());
        if let Some(slot) = request.and_then(|request| self.slot_of(&request)) {
            if let Some(open) = self.get_mut(slot) {
                open.story.request_len = len;
            }
            let known = self.unread.contains_key(&(connection, len));
            if known || self.unread.len() < MOST_LENGTHS {
                let unread = self.unread.entry((connection, len)).or_default();
                if unread.queue.len() < MOST_UNREAD {
                    unread.queue.push_back(slot);
                }
            }
        }
    }

    /// Forget a request that has ended: no later read brings it.
    pub(super) fn forget_unread(&mut self, slot: Slot) {
        let Some(open) = self.get(slot) else { return };
        let key = (open.story.connection, open.story.request_len);
        let Some(unread) = self.unread.get_mut(&key) else {
            return;
        };
        let Some(at) = unread.queue.iter().position(|waiting| *waiting == slot) else {
            return;
        };
        unread.queue.remove(at);
        // If any of them had been read, this one was.
        unread.taken = unread.taken.saturating_sub(1);
        if unread.queue.is_empty() {
            self.unread.remove(&key);
        }
    }
}
