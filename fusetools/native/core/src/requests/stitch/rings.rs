//! FUSE over io_uring: the completion that brought a request, and the thread that takes it.
//!
//! An entry of a ring holds one request at a time. The kernel copies the request into it and posts a completion with
//! the entry's mark (user_data). The daemon answers by a command with the same mark, and the kernel ends the request
//! while that is submitted (fs/fuse/dev_uring.c). So a request's end shows for certain which completion had brought it;
//! before, that is known only if just one request can have come.
//!
//! The thread that submitted an entry's last command copies, at any time, even in the middle of other work. The thread
//! that waits for the ring's completions takes, once it has finished what it had.

use super::*;

/// Maximum numbers: no daemon has more.
const MOST_RINGS: usize = 1 << 12;
const MOST_ENTRIES: usize = 1 << 12;
/// Maximum number of a connection's requests that have begun and are not known to have been brought. With more, none is
/// identified before its end.
const MOST_WAITING: usize = 1 << 10;

/// IORING_OP_URING_CMD (include/uapi/linux/io_uring.h).
const COMMAND: u64 = 46;

/// In place of a thread: several threads wait for a ring's completions, or one that cannot be seen.
const UNKNOWN: i32 = -1;

#[derive(Default)]
pub(super) struct Ring {
    /// Connection whose requests it carries.
    connection: Option<u64>,
    /// Thread that waits for its completions.
    waiter: Option<i32>,
    /// Completions by mark.
    entries: FxHashMap<u64, Brought>,
}

/// Completion that no command has answered yet.
#[derive(Clone, Copy)]
struct Brought {
    /// Thread that takes it.
    tid: i32,
    /// System call during which it was posted, if that is the taker's wait; else the moment of the posting.
    read: Read,
    /// Request that it brought, if known before the request's end.
    slot: Option<Slot>,
}

/// Command of a ring, from its submission on.
#[derive(Clone, Copy)]
pub(super) struct Commit {
    ring: u64,
    brought: Option<Brought>,
    /// The kernel's own thread submits it: the daemon's thread that answered is unknown.
    pub(super) by_kernel: bool,
}

/// Requests of a connection that have begun and are not known to have been brought.
#[derive(Default)]
pub(super) struct Waiting {
    slots: Vec<Slot>,
    /// There were too many.
    full: bool,
}

impl Stitch {
    /// Note that a thread waits for the completions of a ring.
    pub(super) fn ring_wait(&mut self, ev: &Ev) {
        let ring = ev.v[0];
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        task.waits_for = Some(ring);
        if let Some(ring) = self.ring(ring) {
            let earlier = ring.waiter.filter(|tid| *tid != ev.tid);
            let gone = earlier.is_none_or(|tid| self.tasks.get(tid).is_none());
            if let Some(ring) = self.rings.get_mut(&ev.v[0]) {
                ring.waiter = Some(if gone { ev.tid } else { UNKNOWN });
            }
        }
    }

    fn ring(&mut self, number: u64) -> Option<&mut Ring> {
        if self.rings.len() >= MOST_RINGS && !self.rings.contains_key(&number) {
            return None;
        }
        Some(self.rings.entry(number).or_default())
    }

    /// Return whether the thread waits for completions of a ring that brings requests.
    pub fn waits_for_ring(&self, tid: i32) -> bool {
        let ring = self.tasks.get(tid).and_then(|task| task.waits_for);
        let ring = ring.and_then(|number| self.rings.get(&number));
        ring.is_some_and(|ring| ring.connection.is_some())
    }

    /// Return whether the thread waits for completions of any ring.
    pub fn waits_for_any_ring(&self, tid: i32) -> bool {
        let task = self.tasks.get(tid);
        task.is_some_and(|task| task.waits_for.is_some())
    }

    /// Note that a completion is posted.
    pub(super) fn fetched(&mut self, ev: &Ev) {
        let [number, mark, result, _] = ev.v;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        // Other results are failures, or of another kind of command.
        if result != 0 {
            return;
        }
        let Some(ring) = self.ring(number) else {
            return;
        };
        let (connection, tid) = (ring.connection, ring.waiter.unwrap_or(ev.tid));
        let known = self.tasks.get(tid);
        let in_call = known.and_then(|task| task.syscall);
        let in_call = in_call.is_some_and(|call| self.arch.is_ring(call.number));
        let mut brought = Brought {
            tid,
            read: Read {
                enter: 0,
                exit: ev.time,
                run: known.map_or(Run::default(), |task| task.run),
                idle: known.map_or(Idle::default(), |task| task.idle_at(ev.time)),
                events: known.map_or(0, |task| task.events),
                len: 0,
                connection: connection.unwrap_or(ABSENT),
                claimed: true,
            },
            slot: None,
        };
        if let Some(connection) = connection {
            brought.slot = self.only_one(connection);
            if let Some(slot) = brought.slot {
                self.take_brought(slot, ev.pid, brought);
            }
        }
        let Some(ring) = self.rings.get_mut(&number) else {
            return;
        };
        if ring.entries.len() < MOST_ENTRIES || ring.entries.contains_key(&mark) {
            ring.entries.insert(mark, brought);
        }
        if let Some(task) = self.tasks.get_mut(tid).filter(|_| in_call) {
            if task.fetched.len() < MOST_ENTRIES {
                task.fetched.push((number, mark));
            }
        }
    }

    /// Return the only request of a connection that can have been brought.
    fn only_one(&mut self, connection: u64) -> Option<Slot> {
        let mut waiting = self.waiting.remove(&connection)?;
        waiting.slots.retain(|slot| self.waits(*slot));
        waiting.full &= !waiting.slots.is_empty();
        let slot_of = match (waiting.full, &waiting.slots[..]) {
            (false, [slot]) => Some(*slot),
            _ => None,
        };
        self.waiting.insert(connection, waiting);
        slot_of
    }

    fn waits(&self, slot: Slot) -> bool {
        let open = self.get(slot);
        open.is_some_and(|open| !open.ended && open.story.at(Mark::Read).is_none())
    }

    /// Note that a request has begun: a ring may bring it.
    pub(super) fn may_come_by_ring(&mut self, slot: Slot, connection: u64) {
        if !self.ring_events {
            return;
        }
        let mut waiting = self.waiting.remove(&connection).unwrap_or_default();
        if waiting.slots.len() >= MOST_WAITING {
            waiting.slots.retain(|slot| self.waits(*slot));
        }
        match waiting.slots.len() < MOST_WAITING {
            true => waiting.slots.push(slot),
            false => waiting.full = true,
        }
        self.waiting.insert(connection, waiting);
    }

    /// Set the read of all completions that were posted during the taker's wait, which returns now.
    pub(super) fn ring_returns(&mut self, tid: i32, read: Read) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let mut posted = std::mem::take(&mut task.fetched);
        let pid = task.pid;
        for (number, mark) in posted.drain(..) {
            let ring = self.rings.get_mut(&number);
            let Some(brought) = ring.and_then(|ring| ring.entries.get_mut(&mark)) else {
                continue;
            };
            brought.read = read;
            let brought = *brought;
            if let Some(slot) = brought.slot {
                self.take_brought(slot, pid, brought);
            }
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            task.fetched = posted; // keep its memory
        }
    }

    /// Note that a command is submitted. It is an answer if a request ends in it.
    pub(super) fn committed(&mut self, ev: &Ev) {
        let [ring, mark, opcode, by_kernel] = ev.v;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        task.commit = None;
        if opcode == COMMAND {
            let entries = self.rings.get_mut(&ring).map(|ring| &mut ring.entries);
            let brought = entries.and_then(|entries| entries.remove(&mark));
            self.tasks.of(ev.tid).commit = Some(Commit {
                ring,
                brought,
                by_kernel: by_kernel == 1,
            });
        }
    }

    /// Find the completion that had brought a request, if the request ends in a command of a ring.
    pub(super) fn answered_by_ring(&mut self, ev: &Ev, slot: Slot) -> Option<Commit> {
        let commit = self.tasks.get_mut(ev.tid)?.commit.take()?;
        let connection = self.get(slot)?.story.connection;
        if let Some(ring) = self.ring(commit.ring) {
            ring.connection = Some(connection);
        }
        if let Some(mut brought) = commit.brought {
            if commit.by_kernel {
                brought.tid = UNKNOWN;
            }
            self.take_brought(slot, ev.pid, brought);
        }
        Some(commit)
    }

    /// Note that this completion brought the request. Its taker may have been busy then.
    fn take_brought(&mut self, slot: Slot, pid: i32, brought: Brought) {
        let Brought { tid, mut read, .. } = brought;
        let Some(open) = self.get(slot) else { return };
        let begin = open.story.at(Mark::Begin).unwrap_or(ABSENT);
        if read.exit < begin {
            return;
        }
        let callback = open.story.at(Mark::CallbackEnter).is_some();
        let own = callback && open.story.daemon_tid == tid;
        let freed = match self.tasks.get(tid) {
            _ if own => open.freed,
            // One system call may answer several requests: the taker was done with the first by then.
            Some(task) if !callback => task.syscall.map_or(task.freed, |call| call.freed),
            _ => Freed::default(),
        };
        let late = freed.time > read.exit;
        if late {
            (read.exit, read.idle, read.events) = (freed.time, freed.idle, freed.events);
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        if late {
            // It was woken only to copy the request.
            open.story.clear(Mark::DaemonWaking);
        }
        open.paired = (tid >= 0).then_some(tid);
        if !callback {
            (open.story.daemon_pid, open.story.daemon_tid) = (pid, tid);
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            task.paired = Some(slot);
        }
        self.was_read(slot, tid, read, freed.time);
    }

    /// Return whether a ring of the request's connection has brought an unknown request since `begin`.
    pub(super) fn may_have_fetched(&self, story: &Story, begin: u64) -> bool {
        let of = |ring: &&Ring| ring.connection.is_none_or(|of| of == story.connection);
        let mut entries = self
            .rings
            .values()
            .filter(of)
            .flat_map(|ring| ring.entries.values());
        entries.any(|brought| brought.slot.is_none() && brought.read.exit >= begin)
    }
}
