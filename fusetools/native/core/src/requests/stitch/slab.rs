//! Open requests by slot, and their end.

use super::*;

/// Open story.
pub(super) struct Open {
    pub(super) story: Story,
    /// 0: the slot is free.
    pub(super) generation: u32,
    /// Key among the open requests.
    pub(super) key: Option<Key>,
    /// The filters select its caller.
    pub(super) wanted: bool,
    pub(super) losses: u32,
    /// The caller did something else meanwhile.
    pub(super) background: bool,
    /// The caller has gone to wait for it.
    pub(super) waited: bool,
    pub(super) ended: bool,
    /// More may be seen of it on the caller's side; on the daemon's.
    pub(super) caller_open: bool,
    pub(super) daemon_open: bool,
    /// Idle time of the daemon's thread when its callback began; without a callback, when it had read the request.
    pub(super) idle: Idle,
    /// Thread that read it, if known by order and length.
    pub(super) paired: Option<i32>,
    /// More requests of its length were read at once than can be distinguished.
    pub(super) maybe_read: bool,
    /// Time when its thread in the daemon ended without a reply.
    pub(super) left: Option<u64>,
    /// Time when its reader took another request, with that thread's idle time.
    pub(super) passed: Option<(u64, Idle)>,
    /// Answer that the kernel refused, unless another one is seen: error, begin and end of the write, idle time.
    pub(super) refused: Option<Refusal>,
    /// Number of events of its thread at the time of `idle`.
    pub(super) events: u32,
    /// State of the callback's thread when it had finished its request before.
    pub(super) freed: Freed,
    /// Wait of the caller before it made the request.
    pub(super) gap: Option<Gap>,
}

impl Open {
    pub(super) fn new(story: Story, generation: u32, losses: u32) -> Open {
        Open {
            story,
            generation,
            key: None,
            wanted: false,
            losses,
            background: false,
            waited: false,
            ended: false,
            caller_open: false,
            daemon_open: false,
            idle: Idle::default(),
            paired: None,
            maybe_read: false,
            left: None,
            passed: None,
            refused: None,
            events: 0,
            freed: Freed::default(),
            gap: None,
        }
    }
}

impl Open {
    /// Return whether its caller waits for it now, if the caller is still in the same system call.
    pub(super) fn is_awaited(&self) -> bool {
        let waits = self.waited || (self.story.operation.has_caller() && !self.background);
        !self.ended && waits && self.story.fate == Fate::Unfinished
    }

    /// Return whether its caller waits for it, as far as its operation and the caller's other requests show. `switches`:
    /// the caller's switches show it for operations that may be sent in the background.
    pub(super) fn may_be_awaited(&self, switches: bool) -> bool {
        let operation = self.story.operation;
        self.waited
            || (!self.background && (operation.has_caller() || (!switches && operation.may_wait())))
    }
}

/// Place in the slab, with the generation of its content.
pub(super) type Slot = (u32, u32);

impl Stitch {
    pub(super) fn put(&mut self, operation: Operation, fate: Fate) -> Slot {
        self.generation = self.generation.wrapping_add(1).max(1);
        let open = Open::new(
            Story::new(self.generation, operation, fate),
            self.generation,
            self.losses,
        );
        let place = match self.free.pop() {
            Some(place) => {
                self.slab[place as usize] = open;
                place
            }
            None => {
                self.slab.push(open);
                self.slab.len() as u32 - 1
            }
        };
        (place, self.generation)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Open> {
        let open = self.slab.get(slot.0 as usize)?;
        (open.generation == slot.1).then_some(open)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Open> {
        let open = self.slab.get_mut(slot.0 as usize)?;
        (open.generation == slot.1).then_some(open)
    }

    /// Return the slot of an open request's story.
    pub(super) fn slot_of(&self, request: &Request) -> Option<Slot> {
        let open = self.slab.get(request.place as usize)?;
        (open.generation > 0).then_some((request.place, open.generation))
    }

    /// Report a story that is complete on both sides.
    pub(super) fn close(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get(slot) else { return };
        if open.ended && !open.caller_open && !open.daemon_open {
            self.tell(slot, tell);
        }
    }

    pub(super) fn tell(&mut self, slot: Slot, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.generation = 0;
        if let Some(key) = open.key.take() {
            if self
                .requests
                .get_mut(key)
                .is_some_and(|r| r.place == slot.0)
            {
                self.requests.end(key);
            }
        }
        self.free.push(slot.0);
        let open = &self.slab[slot.0 as usize];
        let story = &open.story;
        let start = story.start();
        let connection = match story.connection {
            ABSENT => self.serves.only(story.daemon_pid),
            connection => Some(connection),
        };
        let filters = &self.filters;
        let wanted = open.wanted
            && (self.window.0..self.window.1).contains(&start)
            && (filters.connections.is_empty()
                || connection.is_some_and(|c| filters.connections.contains(&c)));
        if wanted {
            tell(story, &self.comms);
        }
    }

    /// Report a request whose end will not be seen.
    pub(super) fn give_up(&mut self, slot: Slot, tell: Tell) {
        let (losses, now) = (self.losses, self.now);
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        if open.story.fate == Fate::Unfinished {
            if open.losses == losses {
                let tid = open.story.tid;
                self.unanswered(slot, now);
                if self.is_asleep(tid)
                    && self.waiting_slot(tid) == Some(slot)
                    && self.waits_for(slot)
                {
                    if let Some(task) = self.tasks.get_mut(tid) {
                        task.waits += 1;
                        task.account(now);
                    }
                }
            } else {
                open.story.fate = Fate::Lost;
            }
        }
        self.tell(slot, tell);
    }

    /// Return whether a thread is asleep now, as far as known.
    pub(super) fn is_asleep(&self, tid: i32) -> bool {
        self.tasks.get(tid).is_some_and(|task| {
            !self.switches || matches!(task.known(), State::Blocked | State::Unknown)
        })
    }

    /// Note that a request was over at `until` without a reply.
    pub(super) fn unanswered(&mut self, slot: Slot, until: u64) {
        self.find_refused(slot);
        self.find_dropped(slot);
        let Some(open) = self.get(slot) else { return };
        let story = &open.story;
        let begin = story.at(Mark::Begin).unwrap_or(0);
        let seen = |mark| story.at(mark).is_some();
        let next = if seen(Mark::Reply) {
            Mark::End
        } else if seen(Mark::CallbackEnter) {
            Mark::Reply
        } else if seen(Mark::Read) {
            match self.callbacks.contains(&story.daemon_pid) {
                true => Mark::CallbackEnter,
                false => Mark::Reply,
            }
        } else if self.reads
            && !open.maybe_read
            && !self.may_have_read(story, begin)
            && !self.may_have_fetched(story, begin)
        {
            Mark::Read
        } else {
            Mark::End
        };
        let (tid, before, left) = (story.daemon_tid, open.idle, open.left);
        let own = left.is_some() || self.works_on(open);
        let handed = !own && seen(Mark::Read);
        let idle = self.tasks.get(tid).map(|task| task.idle_at(until));
        let idle = idle.filter(|_| self.switches && own && next == Mark::Reply);
        if let Some(open) = self.get_mut(slot) {
            let story = &mut open.story;
            story.next = next;
            story.until = until.max(begin);
            story.handed |= handed;
            if story.refused != 0 {
                story.elsewhere = 0;
            } else if let Some(left) = left {
                (story.left, story.elsewhere) = (left, until.saturating_sub(left));
            } else if let Some(idle) = idle.filter(|_| story.blocked == ABSENT) {
                story.slept(idle, before);
                story.elsewhere = 0;
            }
        }
    }

    /// Return whether the daemon's thread that is known to have read a request still works on it.
    fn works_on(&self, open: &Open) -> bool {
        let story = &open.story;
        let hands = self.hand.contains(&story.daemon_pid);
        let called = story.at(Mark::CallbackEnter).is_some() && (open.daemon_open || !hands);
        // A thread that waits for its next request may have left this one to another thread.
        let reads = self.reading.get(&story.daemon_pid);
        let again = reads.is_some_and(|threads| threads.contains(&story.daemon_tid));
        called || (story.at(Mark::Read).is_some() && !hands && !again)
    }

    /// Note that a thread of a daemon ends, with this idle time: from then on nobody works on its requests.
    pub(super) fn leaves(&mut self, tid: i32, idle: Idle, time: u64) {
        for place in 0..self.slab.len() {
            let open = &self.slab[place];
            let story = &open.story;
            let over = open.ended || story.at(Mark::Reply).is_some() || story.blocked != ABSENT;
            if open.generation == 0 || story.daemon_tid != tid || over || !self.works_on(open) {
                continue;
            }
            let open = &mut self.slab[place];
            open.story.slept(idle, open.idle);
            open.left = Some(time);
        }
    }

    /// Return whether a thread of the request's daemon has read an unknown request since `begin`.
    pub(super) fn may_have_read(&self, story: &Story, begin: u64) -> bool {
        let len = story.request_len;
        self.tasks.readers().any(|task| {
            let serves = match self.serves.of(task.pid) {
                [] => self.servants.contains(&task.pid),
                own => story.connection == ABSENT || own.contains(&story.connection),
            };
            let may = |read: &Read| {
                let fits = len == ABSENT || read.len == 0 || read.len == len;
                read.exit >= begin && !read.claimed && fits && read.may_be_of(story.connection)
            };
            serves && task.reads.iter().any(may)
        })
    }
}
