//! Time off the CPU: from a task's switch-out to its next switch-in, on whatever CPU that is.
//!
//! The scheduler's events (sched_switch, PERF_RECORD_SWITCH, sched_waking) are combined by task: a task that moves
//! between CPUs is switched in where it goes. The idle tasks, all of number 0, wait for nothing.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;

/// State of a task that was not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waited for something.
    Blocked,
    /// It had been woken up, and waited for a CPU.
    Runnable,
    /// It was preempted.
    Preempted,
    /// It was blocked, then runnable; no recorded wake-up shows since when.
    Either,
}

pub const STATES: [(State, &str); 4] = [
    (State::Blocked, "blocked"),
    (State::Runnable, "runnable"),
    (State::Preempted, "preempted"),
    (State::Either, "blocked_or_runnable"),
];

/// Task that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    pub time: u64,
    /// -1: an interrupt that found no task running (the idle task's is 0).
    pub pid: i32,
    pub tid: i32,
    pub stack: u64,
    pub why: Why,
}

/// Reason of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The task itself woke the other one up.
    Task,
    /// It made a request, and woke up a thread that waited for one.
    Request,
    /// It was interrupted: it did not cause the wake-up.
    Interrupt,
}

/// Span off the CPU. `T`: the caller's note from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait<T> {
    pub pid: i32,
    pub tid: i32,
    pub from: u64,
    pub to: u64,
    pub preempted: bool,
    /// It was seen to run again.
    pub ended: bool,
    pub stack: u64,
    pub waker: Option<Waker>,
    pub note: T,
}

impl<T> Wait<T> {
    /// Return the part of it in from..to, with another note.
    pub fn part<U>(&self, from: u64, to: u64, note: U) -> Wait<U> {
        Wait {
            pid: self.pid,
            tid: self.tid,
            from: self.from.clamp(from, to),
            to: self.to.clamp(from, to),
            preempted: self.preempted,
            ended: self.ended,
            stack: self.stack,
            waker: self.waker,
            note,
        }
    }

    /// Return its parts and the ns of each; they add up to the whole.
    pub fn parts(&self) -> [(State, u64); 2] {
        let whole = self.to - self.from;
        if self.preempted {
            return [(State::Preempted, whole), (State::Runnable, 0)];
        }
        let woken = match self.waker {
            Some(waker) => waker.time,
            None if self.ended => return [(State::Either, whole), (State::Runnable, 0)],
            None => self.to,
        };
        let blocked = woken.clamp(self.from, self.to) - self.from;
        [
            (State::Blocked, blocked),
            (State::Runnable, whole - blocked),
        ]
    }
}

/// Tasks that are off the CPU.
pub struct OffCpu<T> {
    /// Tasks met so far, off the CPU or not: one look-up for each event.
    tasks: FxHashMap<i32, Task<T>>,
    /// Bits of prev_state that show that a task waits for something.
    asleep: u64,
}

struct Task<T> {
    open: Option<Wait<T>>,
    /// Waker before its switch-out was recorded: it was about to sleep, on another CPU than its waker's.
    early: Option<Waker>,
}

impl<T> OffCpu<T> {
    /// Start without tasks. `asleep`: bits of prev_state that show that a task waits, by the recording's own format.
    pub fn new(asleep: u64) -> OffCpu<T> {
        OffCpu {
            tasks: FxHashMap::default(),
            asleep,
        }
    }

    fn task(&mut self, tid: i32) -> &mut Task<T> {
        self.tasks.entry(tid).or_insert(Task {
            open: None,
            early: None,
        })
    }

    /// Note that a task is switched out.
    pub fn out(&mut self, pid: i32, tid: i32, time: u64, prev_state: u64, note: T) {
        if tid == 0 {
            return;
        }
        let preempted = prev_state != ABSENT && prev_state & self.asleep == 0;
        let task = self.task(tid);
        let early = task.early.take();
        task.open = Some(Wait {
            pid,
            tid,
            from: time,
            to: time,
            preempted,
            ended: false,
            stack: ABSENT,
            waker: early.filter(|_| !preempted),
            note,
        });
    }

    /// Return the wait that began at exactly that time.
    pub fn begun(&mut self, tid: i32, time: u64) -> Option<&mut Wait<T>> {
        self.open(tid).filter(|wait| wait.from == time)
    }

    /// Note that a task is woken up. Only the first wake-up after its switch-out ends its wait. Without one, the last
    /// wake-up before does, if the task did nothing after that.
    pub fn wake(&mut self, tid: i32, waker: Waker) {
        let task = self.task(tid);
        match &mut task.open {
            Some(wait) if wait.waker.is_none_or(|early| early.time < wait.from) => {
                wait.waker = Some(waker);
            }
            Some(_) => {}
            None => task.early = Some(waker),
        }
    }

    /// Note that a task runs. Return its wait, if it had one and its beginning was seen.
    pub fn on(&mut self, tid: i32, time: u64) -> Option<Wait<T>> {
        let task = self.tasks.get_mut(&tid)?;
        task.early = None;
        let mut wait = task.open.take()?;
        wait.to = time.max(wait.from);
        wait.ended = true;
        Some(wait)
    }

    /// Forget a task that has ended, or whose number another one has got.
    pub fn forget(&mut self, tid: i32) {
        self.tasks.remove(&tid);
    }

    /// Return the wait of a task that is off the CPU.
    pub fn open(&mut self, tid: i32) -> Option<&mut Wait<T>> {
        self.tasks.get_mut(&tid)?.open.as_mut()
    }

    /// Return the waits that have not ended: they last at least until `time`.
    pub fn rest(&mut self, time: u64) -> Vec<Wait<T>> {
        let mut rest: Vec<Wait<T>> = self
            .tasks
            .drain()
            .filter_map(|(_, task)| task.open)
            .collect();
        rest.sort_by_key(|wait| (wait.from, wait.tid));
        for wait in &mut rest {
            wait.to = time.max(wait.from);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waker(time: u64) -> Waker {
        Waker {
            time,
            pid: 6,
            tid: 6,
            stack: 9,
            why: Why::Task,
        }
    }

    #[test]
    fn without_a_wake_up_the_time_is_not_split() {
        let mut off = OffCpu::new(0xff);
        off.out(1, 1, 10, 1, ());
        let wait = off.on(1, 20).unwrap();
        assert_eq!(wait.parts(), [(State::Either, 10), (State::Runnable, 0)]);
        // Nothing shows that a task which has not run since was woken up.
        off.out(1, 1, 30, 1, ());
        let rest = off.rest(50);
        assert_eq!(rest.len(), 1);
        assert_eq!(
            rest[0].parts(),
            [(State::Blocked, 20), (State::Runnable, 0)]
        );
    }

    #[test]
    fn an_involuntary_switch_is_a_preemption() {
        for (state, preempted) in [(0x100, true), (0, true), (2, false), (ABSENT, false)] {
            let mut off = OffCpu::new(0xff);
            off.out(1, 1, 10, state, ());
            let wait = off.on(1, 20).unwrap();
            assert_eq!(wait.preempted, preempted, "{state:#x}");
            assert_eq!(wait.parts().map(|(_, ns)| ns), [10, 0]);
        }
    }

    #[test]
    fn a_task_woken_before_its_switch_out_is_runnable_at_once() {
        let mut off = OffCpu::new(0xff);
        // The task is going to sleep. If it continued first, or was preempted, the wake-up belongs to no sleep.
        for (acts, state, parts) in [
            (false, 1, [(State::Blocked, 0), (State::Runnable, 10)]),
            (true, 1, [(State::Either, 10), (State::Runnable, 0)]),
            (false, 0, [(State::Preempted, 10), (State::Runnable, 0)]),
        ] {
            off.wake(5, waker(90));
            if acts {
                assert_eq!(off.on(5, 95), None);
            }
            off.out(5, 5, 100, state, ());
            let wait = off.on(5, 110).unwrap();
            assert_eq!(wait.parts(), parts);
            let stack = wait.waker.map(|waker| waker.stack);
            assert_eq!(stack, (parts[0].0 == State::Blocked).then_some(9));
        }
        // It slept, and was woken up again.
        off.wake(5, waker(190));
        off.out(5, 5, 200, 1, ());
        off.wake(5, waker(207));
        let wait = off.on(5, 210).unwrap();
        assert_eq!(wait.parts(), [(State::Blocked, 7), (State::Runnable, 3)]);
        assert_eq!(wait.waker, Some(waker(207)));
        // The next sleep has no wake-up.
        off.out(5, 5, 300, 1, ());
        assert_eq!(off.rest(310)[0].waker, None);
        off.wake(5, waker(390));
        off.out(5, 5, 400, 1, ());
        assert_eq!(
            off.rest(410)[0].parts(),
            [(State::Blocked, 0), (State::Runnable, 10)]
        );
    }

    #[test]
    fn a_wait_follows_its_task_across_cpus() {
        let mut off = OffCpu::new(0xff);
        off.out(5, 5, 100, 1, 'a');
        off.out(0, 0, 100, 0, 'i');
        off.begun(5, 100).unwrap().stack = 7;
        assert!(off.begun(5, 101).is_none());
        off.out(6, 6, 150, 1, 'b');
        off.wake(5, waker(180));
        off.wake(5, waker(190));
        let wait = off.on(5, 200).unwrap();
        assert_eq!(
            (wait.from, wait.to, wait.stack, wait.note),
            (100, 200, 7, 'a')
        );
        assert_eq!(
            wait.waker,
            Some(Waker {
                stack: 9,
                ..waker(180)
            })
        );
        assert_eq!(wait.parts(), [(State::Blocked, 80), (State::Runnable, 20)]);
        assert_eq!(off.on(5, 300), None);
        assert_eq!(off.on(0, 300), None);
        off.out(6, 6, 400, 1, 'c');
        assert_eq!(off.rest(500).len(), 1);
    }
}
