//! States of tasks (on a CPU, waiting for one), wake-ups, and threads that begin and end.

use super::calls::SETUP;
use super::*;

impl Stitch {
    pub fn side(&mut self, record: &Side, tell: Tell) {
        match record {
            Side::Comm { pid, tid, comm, .. } => {
                let comm = self.comm_number(comm);
                let new = self.tasks.get(*tid).is_none();
                let task = self.tasks.of(*tid);
                (task.pid, task.comm) = (*pid, comm);
                if new && self.serves.knows(*pid) {
                    // Its state at the recording's beginning is unknown.
                    self.reading.entry(*pid).or_default().insert(*tid);
                }
            }
            Side::Fork {
                time,
                pid,
                tid,
                ppid,
                ptid,
            } => {
                self.exit(*tid, *time, tell);
                self.ended.remove(tid);
                self.files_forked(*ppid, *pid);
                let parent = self.tasks.get(*ptid);
                let (comm, followed) = parent.map_or((0, false), |task| (task.comm, task.followed));
                let task = self.tasks.of(*tid);
                (task.pid, task.comm, task.followed) = (*pid, comm, followed);
            }
            Side::Exit { tid, time, .. } => {
                if self.servants.contains(tid) {
                    self.ended.insert(*tid);
                }
                self.exit(*tid, *time, tell);
            }
            Side::Lost { .. } => self.losses += 1,
            Side::Map(_) | Side::Name { .. } | Side::Asked { .. } | Side::Listed { .. } => {}
            Side::Switch {
                time,
                tid,
                out,
                preempt,
                ..
            } => {
                self.tasks.of(*tid).followed = true;
                if *out {
                    // sched_switch has reported it, and how, if recorded for the task.
                    let out = self
                        .tasks
                        .get(*tid)
                        .is_some_and(|task| matches!(task.state, State::Blocked | State::Runnable));
                    if !out {
                        self.switch_out(*tid, !*preempt, *time, ABSENT);
                    }
                } else {
                    self.switch_in(*tid, *time, 0);
                }
            }
        }
    }

    pub(super) fn comm_number(&mut self, comm: &str) -> u32 {
        if let Some(number) = self.comm_numbers.get(comm) {
            return *number;
        }
        if self.comms.len() == MOST_COMMS {
            return 0;
        }
        let number = self.comms.len() as u32;
        self.comms.push(comm.to_owned());
        self.comm_numbers.insert(comm.to_owned(), number);
        number
    }

    /// Process sched_switch. A recording has only the switches of some threads: a switch counts if its previous or next
    /// thread is one of them.
    pub(super) fn switch(&mut self, [prev, next]: [i32; 2], asleep: bool, time: u64, stack: u64) {
        for (task, other) in [(prev, next), (next, prev)] {
            if other == 0 && task > 0 {
                self.tasks.of(task).followed = true;
            }
        }
        self.switch_out(prev, asleep, time, stack);
        self.switch_in(next, time, prev);
    }

    /// Return whether the switches of a thread are recorded, as far as known.
    pub fn followed(&self, pid: i32, tid: i32) -> bool {
        let known = self.tasks.get(tid).is_some_and(|task| task.followed);
        known || !self.calls || self.serves.knows(pid)
    }

    /// Return whether the switches of this thread are recorded: it makes recorded system calls, belongs to a daemon,
    /// was begun by such a thread, or its switches show it. Without system calls, all threads count as recorded.
    fn follows(&mut self, tid: i32) -> bool {
        let Some(task) = self.tasks.get_mut(tid) else {
            return false;
        };
        task.followed |= !self.calls || self.serves.knows(task.pid);
        task.followed
    }

    /// Process an event of a thread: it runs, even if its switch-in was not recorded. A caller that continues with
    /// other work has been woken up by then. Its next request, and the end of its system call, do not show when.
    pub(super) fn acts(&mut self, tid: i32, time: u64, role: Role) {
        let unseen = matches!(role, Role::Switch | Role::Stack | Role::Length);
        if tid <= 0 || unseen {
            return;
        }
        let calls = self.switches && matches!(role, Role::SysEnter | Role::SysExit);
        let Some(task) = (match calls {
            true => Some(self.tasks.of(tid)),
            false => self.tasks.get_mut(tid),
        }) else {
            return;
        };
        task.followed |= calls;
        task.runs(time);
        let goes_on = !matches!(role, Role::Begin | Role::SysExit);
        let runs = goes_on && task.followed && task.awaiting.is_some();
        if task.fault.is_some() {
            self.fault_ends(tid, time);
        }
        if runs {
            self.runs(tid, time, false);
        }
    }

    /// Note that the caller runs again. `exactly`: since this time, not only by this time.
    pub(super) fn runs(&mut self, tid: i32, time: u64, exactly: bool) {
        let Some(task) = self.tasks.get_mut(tid) else {
            return;
        };
        let Some(slot) = task.awaiting.take() else {
            return;
        };
        task.resume(time);
        let (idle, run, slept) = (task.known_idle(time), task.run, task.slept_for);
        let followed = self.switches && task.followed;
        if let Some(open) = self.get_mut(slot) {
            let story = &mut open.story;
            story.set(Mark::Runs, time);
            story.slept = slept.unwrap_or(AWAKE);
            if followed {
                story.idle[Mark::Runs as usize] = idle;
                let waking = story.at(Mark::Waking).or(story.at(Mark::End));
                let ready = run.ready.max(waking.unwrap_or(time));
                story.late = match run.runs == time {
                    true if !exactly => ABSENT,
                    true => time.saturating_sub(ready.max(run.delayed)),
                    false => 0,
                };
            }
        }
    }

    pub(super) fn exit(&mut self, tid: i32, time: u64, tell: Tell) {
        if self.tasks.get(tid).is_none() {
            return;
        }
        if self.eager {
            self.withdraw(tid, tell);
        }
        let call = self.tasks.get(tid).and_then(|task| task.syscall);
        match call.filter(|call| call.losses == self.losses) {
            Some(call) => self.end_of_call(tid, call, time, Ends::WithThread, tell),
            None => self.leave_all(tid, time, tell),
        }
        let Some(task) = self.tasks.remove(tid) else {
            return;
        };
        if task.pid == tid {
            self.files_closed(tid);
        }
        if self.switches && self.servants.contains(&task.pid) {
            self.leaves(tid, task.idle_at(time), time);
        }
        if let Some(reading) = self.reading.get_mut(&task.pid) {
            reading.remove(&tid);
        }
        self.drop_callbacks(task.callbacks, time, tell);
    }

    /// Report the requests that a thread that ends would still wait for: they are over. If it was killed while they were
    /// in the queue, the kernel has dropped them without a sign.
    fn withdraw(&mut self, tid: i32, tell: Tell) {
        let made = self.tasks.get(tid).map(|task| task.made.clone());
        for slot in made.into_iter().flatten() {
            let over = |open: &Open| !open.ended && open.story.operation.has_caller();
            if self.get(slot).is_some_and(over) {
                self.tell(slot, tell);
            }
        }
    }

    /// Split the time in the queue: until a thread was free, and until it ran. A thread that lacked a CPU after its
    /// reply would have been free that much earlier.
    pub(super) fn split_queue(&mut self, slot: Slot, enter: u64, run: Run, read: u64) {
        if !self.switches {
            return;
        }
        let Some(open) = self.get_mut(slot) else {
            return;
        };
        let story = &mut open.story;
        let Some(begin) = story.at(Mark::Begin) else {
            return;
        };
        let within = |time: u64| time.clamp(begin, read.max(begin));
        let free = within(enter);
        let ready = within(enter.max(run.runs));
        if story.at(Mark::DaemonWaking).is_some() {
            // Woken up for it; until then another task may have had the CPU.
            let lacked = match run.runs == ready {
                true => ready - within(run.delayed),
                false => 0,
            };
            (story.no_thread, story.no_cpu, story.asleep) = (0, lacked, ready - begin - lacked);
        } else {
            let late = if run.runs <= free { run.late } else { 0 };
            let lacked = run.runs.min(free).saturating_sub(within(run.ready));
            let no_cpu = lacked.max(late.min(free - begin));
            (story.no_thread, story.no_cpu) = (free - begin - no_cpu, no_cpu);
            story.asleep = ready - free;
            if run.runs == ready {
                let lacked = ready.saturating_sub(within(run.delayed).max(free));
                story.no_cpu += lacked;
                story.asleep -= lacked;
            }
        }
        story.set(Mark::DaemonRuns, ready);
    }

    pub(super) fn switch_out(&mut self, tid: i32, asleep: bool, time: u64, stack: u64) {
        if tid <= 0 {
            return;
        }
        let task = self.tasks.of(tid);
        task.just_made = None;
        self.follows(tid);
        let what = self.verdict_of(stack);
        let task = self.tasks.of(tid);
        task.switched = true;
        let state = if asleep {
            task.sleeps(time, what);
            task.slept_for = Some(what);
            if what == SETUP {
                task.room.get_or_insert(time);
            }
            State::Blocked
        } else {
            task.woken_early = false;
            State::Runnable
        };
        task.enter_state(state, time);
        task.waits_for_what = what;
        let answered = task.answered.take().filter(|_| task.woken_early);
        let Some(slot) = answered else { return };
        // So it slept until the answer, and runs again when it is switched to.
        task.awaiting = Some(slot);
        if let Some(open) = self.get_mut(slot) {
            let story = &mut open.story;
            story.clear(Mark::Runs);
            (story.idle[Mark::Runs as usize], story.late) = (None, ABSENT);
        }
    }

    /// Note that a task gets a CPU. `before`: the task that had the CPU; 0: none, or unknown.
    pub(super) fn switch_in(&mut self, tid: i32, time: u64, before: i32) {
        if tid <= 0 {
            return;
        }
        let task = self.tasks.of(tid);
        if task.state == State::Running {
            return;
        }
        let followed = self.follows(tid);
        let task = self.tasks.of(tid);
        let (ready, waker) = (task.ready(time), task.waker);
        let delayed = match before {
            ..=0 => time,
            _ if before == waker => self.delayed_by_waker(before, ready, time),
            _ => ready,
        };
        let task = self.tasks.of(tid);
        task.run(time, delayed);
        let called = task.called.take();
        let faulted = task.fault.is_some();
        if followed && task.awaiting.is_some() {
            self.runs(tid, time, true);
        }
        if let Some(open) = called.and_then(|slot| self.get_mut(slot)) {
            open.story.set_first(Mark::DaemonRuns, time);
        }
        if faulted {
            self.fault_ends(tid, time);
        }
    }

    /// Return the time from which a task that woke another one at `ready`, and kept its CPU until `time`, delayed it by
    /// its own work. The end of the system call that did the waking is a part of the wake-up; what follows is not, nor
    /// is the work of a task that was interrupted.
    fn delayed_by_waker(&self, waker: i32, ready: u64, time: u64) -> u64 {
        let Some(task) = self.tasks.get(waker) else {
            return ready;
        };
        match task.syscall {
            Some(call) if call.start <= ready => time,
            _ if task.left > ready => task.left.min(time),
            // Its system calls are not recorded.
            None if task.seen > 0 && task.left == 0 => time,
            _ => ready,
        }
    }

    pub(super) fn waking(&mut self, ev: &Ev) {
        let woken = ev.v[0] as i32;
        let task = self.tasks.of(woken);
        task.waker = ev.tid;
        let servant = task.pid <= 0 || self.servants.contains(&task.pid);
        self.follows(woken);
        let task = self.tasks.of(woken);
        let slept = Some(task.since).filter(|_| task.known() == State::Blocked);
        task.woken(ev.time);
        let Some(waker) = self.tasks.get(ev.tid) else {
            return;
        };
        let (ended, made, ended_on) = (waker.ended, waker.just_made, waker.ended_on);
        let passed = ev.time.saturating_sub(waker.seen);
        if let Some(open) = ended.and_then(|slot| self.get_mut(slot)) {
            if open.story.tid == woken && open.caller_open {
                let next = open
                    .story
                    .at(Mark::End)
                    .is_some_and(|end| ev.time - end == passed);
                open.story.set_first(Mark::Waking, ev.time);
                if next && passed > 0 {
                    self.least = self.least.min(passed);
                }
                if let Some(slot) = ended {
                    self.awaited(slot);
                }
                return;
            }
        }
        if let (Some(connection), Some(from)) = (ended_on, slept) {
            self.wakes_by_answer(woken, (from, ev.time), connection);
        }
        let Some(slot) = made.filter(|_| servant) else {
            return;
        };
        if let Some(open) = self.get_mut(slot) {
            if open.story.at(Mark::DaemonWaking).is_none() {
                open.story.set(Mark::DaemonWaking, ev.time);
                if let Some(task) = self.tasks.get_mut(woken) {
                    task.called = Some(slot);
                }
            }
        }
    }
}
