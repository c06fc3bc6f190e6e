//! Caller's side: its system calls, and the requests that it waits for.

use super::*;

impl Stitch {
    /// Return the request that a thread waits for, or will run again after.
    pub fn waiting(&self, tid: i32) -> Option<&Story> {
        let slot = self.waiting_slot(tid)?;
        self.get(slot).map(|open| &open.story)
    }

    /// Return whether a thread's wait that ends now was for a request: it has ended, or only its end lets the thread go on.
    pub fn awaits(&self, tid: i32) -> bool {
        let Some(task) = self.tasks.get(tid) else {
            return false;
        };
        let last = task.made.last().and_then(|slot| self.get(*slot));
        task.awaiting.is_some() || task.answered.is_some() || last.is_some_and(Open::is_awaited)
    }

    /// Return the request that a thread made last, if nothing else has happened on the thread since.
    pub fn begun(&self, tid: i32) -> Option<&Story> {
        let slot = self.tasks.get(tid)?.just_made?;
        self.get(slot).map(|open| &open.story)
    }

    pub(super) fn waiting_slot(&self, tid: i32) -> Option<Slot> {
        let task = self.tasks.get(tid)?;
        let open = |slot: &Slot| self.get(*slot).map(|open| (*slot, open));
        if let Some((slot, _)) = task.awaiting.as_ref().and_then(open) {
            return Some(slot);
        }
        let mut pending = task.made.iter().filter_map(open).filter(|o| !o.1.ended);
        let first = pending.next()?;
        let last = pending.next_back().unwrap_or(first);
        let (of_first, of_last) = (first.1.story.operation, last.1.story.operation);
        if last.1.waited || of_last.has_caller() {
            Some(last.0)
        } else if of_first.has_caller() || !of_first.may_wait() {
            None
        } else {
            Some(first.0) // of several pages, the caller needs the first
        }
    }

    /// Return whether a thread has just made a request: the task that it wakes up now will serve it.
    pub fn asks(&self, tid: i32) -> bool {
        let task = self.tasks.get(tid);
        task.is_some_and(|task| task.just_made.is_some())
    }

    /// Handle the earlier requests of a caller that makes another one: those that have ended are complete, and it did
    /// not wait for the others. Return those that stay open.
    pub(super) fn pass(
        &mut self,
        mut made: Vec<Slot>,
        last: Option<Slot>,
        tell: Tell,
    ) -> Vec<Slot> {
        made.retain(|slot| {
            let Some(open) = self.get_mut(*slot) else {
                return false;
            };
            if !open.ended {
                open.background = true;
                return true;
            }
            // It may prove to be the last in its system call for which the caller waited.
            if Some(*slot) == last {
                return true;
            }
            open.caller_open = false;
            self.charge(*slot);
            self.close(*slot, tell);
            false
        });
        made
    }

    /// Close a request on the caller's side, where nothing more will be seen of it.
    pub(super) fn leave(&mut self, slot: Slot, time: u64, tell: Tell) {
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        open.caller_open = false;
        if open.is_awaited() {
            open.story.fate = Fate::Interrupted;
            let tid = open.story.tid;
            if self.waits_for(slot) {
                if let Some(task) = self.tasks.get_mut(tid) {
                    task.waits += 1;
                    task.account(time);
                }
            }
            self.unanswered(slot, time);
        }
        self.charge(slot);
        self.close(slot, tell);
    }

    /// Add the cost of recording in a request that its caller waited for to the cost in the caller's system call. The
    /// caller's side is completely known by now.
    fn charge(&mut self, slot: Slot) {
        let Some(cost) = self.filters.less() else {
            return;
        };
        let Some(story) = self.get(slot).map(|open| &open.story) else {
            return;
        };
        let taken = Cut::new(story)
            .less(cost)
            .taken(Mark::SysEnter, Mark::SysExit);
        let (tid, waits) = (story.tid, story.waits && story.counts());
        if let Some(task) = self.tasks.get_mut(tid).filter(|_| waits) {
            task.taken += taken;
        }
    }

    /// Return the cost of recording in a thread's current or last system call in ns, as far as known; 0 unless
    /// `Filters::corrected`.
    pub fn taken(&self, tid: i32) -> u64 {
        self.tasks.get(tid).map_or(0, |task| task.taken)
    }

    /// Return the number of a thread's own events recorded so far, without the scheduler's.
    pub fn events(&self, tid: i32) -> u32 {
        self.tasks.get(tid).map_or(0, |task| task.events)
    }

    /// Give the caller's time to this request from here on, because the caller waits for it. Return whether this is
    /// new.
    pub(super) fn waits_for(&mut self, slot: Slot) -> bool {
        let Some(open) = self
            .slab
            .get_mut(slot.0 as usize)
            .filter(|open| open.generation == slot.1 && !open.story.waits)
        else {
            return false;
        };
        let story = &mut open.story;
        let Some(task) = self.tasks.get_mut(story.tid) else {
            return false;
        };
        let gap = open.gap.take();
        story.waits = true;
        story.nth = if task.accounted > 0 { task.waits } else { 0 };
        let begin = story.marks[Mark::Begin as usize];
        let mut from = task.resumed;
        if task.accounted > 0 && task.accounted <= begin {
            let mark = if task.waits == 0 {
                Mark::SysEnter
            } else {
                Mark::Resumed
            };
            story.set(mark, task.accounted);
            story.idle[mark as usize] = task.known_accounted();
            from = task.accounted;
            if let Some((time, idle)) = gap.and_then(|gap| task.leave_out(gap)) {
                story.set(Mark::Resumed, time);
                story.idle[Mark::Resumed as usize] = Some(idle);
                from = time;
            }
        }
        if from > begin {
            // It was already in flight while the caller waited for another one.
            story.clear(Mark::KernelEnter);
        } else if let Some(enter) = story.at(Mark::KernelEnter) {
            if enter < from {
                let idle = story
                    .at(Mark::Resumed)
                    .and(story.idle[Mark::Resumed as usize]);
                story.set(Mark::KernelEnter, from);
                story.idle[Mark::KernelEnter as usize] = idle.or(task.known_accounted());
            }
        }
        true
    }

    /// Note that the caller was waiting for a request, which has ended or whose end wakes it up.
    pub(super) fn awaited(&mut self, slot: Slot) {
        if !self.waits_for(slot) {
            return;
        }
        let switches = self.switches;
        let story = &mut self.slab[slot.0 as usize].story;
        let Some(task) = self.tasks.get_mut(story.tid) else {
            return;
        };
        task.waits += 1;
        task.last = Some(slot);
        let end = story.marks[Mark::End as usize];
        if switches && task.followed && task.state == State::Running {
            // The caller never slept, or is about to sleep.
            story.set(Mark::Runs, end);
            (story.idle[Mark::Runs as usize], story.late) = (Some(task.idle_at(end)), 0);
            task.resume(end);
            task.answered = Some(slot);
        } else {
            task.awaiting = Some(slot);
            // Until the caller is seen to run.
            task.resume(end);
        }
    }

    pub(super) fn sys_enter(&mut self, ev: &Ev, tell: Tell) {
        let [number, from, third, second] = ev.v;
        if self.arch.is_fake(number) {
            return;
        }
        let to = match self.arch.is_splice(number) {
            true => third,
            false => from,
        };
        let losses = self.losses;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        task.event(ev.time);
        let idle = task.idle_at(ev.time);
        task.syscall = Some(Syscall {
            number,
            from,
            to,
            second,
            third,
            start: ev.time,
            losses,
            idle,
            events: task.events.wrapping_sub(1),
            freed: task.freed,
        });
        if !task.made.is_empty() {
            self.leave_all(ev.tid, ev.time, tell);
        }
        if self.arch.is_close(number) {
            self.devices.remove(&(ev.pid, from));
        }
        if let Some(reading) = self.reading.get_mut(&ev.pid) {
            reading.remove(&ev.tid);
        }
        if self.arch.is_read(number) {
            self.passes_on(ev, from, idle);
        }
        if self.arch.is_read(number) && self.serves.knows(ev.pid) {
            self.reading.entry(ev.pid).or_default().insert(ev.tid);
        }
        let Some(task) = self.tasks.get_mut(ev.tid) else {
            return;
        };
        task.end_call();
        (task.accounted, task.accounted_idle, task.taken) = (ev.time, idle, 0);
        task.events_then = task.events.wrapping_sub(1);
        self.call_begins(ev);
    }

    pub(super) fn leave_all(&mut self, tid: i32, time: u64, tell: Tell) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let mut made = std::mem::take(&mut task.made);
        for slot in made.drain(..) {
            self.leave(slot, time, tell);
        }
        if let Some(task) = self.tasks.get_mut(tid) {
            task.made = made; // keep its memory
        }
    }

    pub(super) fn sys_exit(&mut self, ev: &Ev, tell: Tell) {
        let [number, ret, ..] = ev.v;
        if self.arch.is_fake(number) {
            return;
        }
        let losses = self.losses;
        let task = self.tasks.of(ev.tid);
        task.pid = ev.pid;
        let syscall = task.syscall.take();
        task.left = ev.time;
        let syscall = syscall.filter(|call| call.number == number && call.losses == losses);
        let ring = self.arch.is_ring(number);
        let read = (ret as i64) >= i64::from(!ring) && self.arch.is_read(number);
        let from = syscall.map_or(ABSENT, |call| call.from);
        let connection = self.serves.by_descriptor(ev.pid, from);
        let returned = Read {
            enter: syscall.map_or(0, |call| call.start),
            exit: ev.time,
            run: task.run,
            idle: task.idle_at(ev.time),
            events: task.events.wrapping_add(1),
            len: if ring { 0 } else { ret },
            connection,
            claimed: false,
        };
        let last = task.last;
        let made = !task.made.is_empty();
        let after = task.events.wrapping_sub(task.events_then);
        if let (0, Some(call), Some(cost)) = (task.waits, syscall, self.filters.less()) {
            // The recorder's work here lies in none of its requests' stages.
            let events = u64::from(task.events.wrapping_sub(call.events));
            let met = Met {
                events,
                quarters: 0,
            };
            task.taken = met.ns(cost);
        }
        task.event(ev.time);
        let idle = task.known_idle(ev.time);
        if read && !(ring && self.ring_events) {
            self.tasks.has_read(ev.tid, returned);
        }
        if let (Some(last), Some(_)) = (last, syscall) {
            if let Some(open) = self.get_mut(last) {
                open.story.set(Mark::SysExit, ev.time);
                open.story.result = ret;
                open.story.idle[Mark::SysExit as usize] = idle;
                open.story.after = after;
            }
        }
        if let Some(call) = syscall {
            self.end_of_call(ev.tid, call, ev.time, Ends::Returns(ret as i64), tell);
        } else if made {
            self.leave_all(ev.tid, ev.time, tell);
        }
        if let Some(task) = self.tasks.get_mut(ev.tid) {
            task.end_call();
        }
        if let Some(reading) = self.reading.get_mut(&ev.pid) {
            reading.remove(&ev.tid);
        }
        if ring {
            self.ring_returns(ev.tid, returned);
        } else if read {
            self.pair(ev, ret);
            self.has_taken(ev, from);
        }
        if let Some(call) = syscall.filter(|_| (ret as i64) < 0 && self.arch.is_write(number)) {
            self.write_failed(ev, call, ret as i32);
        }
    }

    /// End a thread's system call, with the requests that it made.
    pub(super) fn end_of_call(
        &mut self,
        tid: i32,
        call: Syscall,
        time: u64,
        how: Ends,
        tell: Tell,
    ) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        task.syscall = Some(call);
        let (made, last) = (std::mem::take(&mut task.made), task.last);
        let open = |slot: &Slot| self.get(*slot);
        let waits = made.iter().filter_map(open).any(Open::is_awaited);
        let last = last
            .and_then(|slot| self.get(slot))
            .or_else(|| made.iter().filter_map(open).next_back());
        let connection = last.map_or(ABSENT, |open| open.story.connection);
        if let Some(task) = self.tasks.get_mut(tid) {
            task.made = made;
        }
        self.call_leaves(tid, time, waits);
        self.leave_all(tid, time, tell);
        self.call_ends(tid, call, time, how, connection);
        if let Some(task) = self.tasks.get_mut(tid) {
            task.syscall = None;
        }
    }

    pub(super) fn wants_caller(&self, story: &Story) -> bool {
        let filters = &self.filters;
        (filters.pids.is_empty() || filters.pids.contains(&story.pid))
            && (filters.comms.is_empty()
                || filters.comms.contains(&self.comms[story.comm as usize]))
    }
}
