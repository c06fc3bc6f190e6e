//! Fates of daemons: whether they ended, were stopped, or did nothing while requests waited for them.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::answers::told::known;
use crate::error::Error;
use crate::events::{Ev, Meaning, Role, Side, ABSENT};
use crate::reader::{Reader, ScanInfo};
use crate::requests::filters::Filters;
use crate::requests::named::{tell, Known, Listener, Observer};
use crate::requests::stitch::{asleep, Stitch};

/// __TASK_STOPPED, __TASK_TRACED (include/linux/sched.h).
const STOPPED: u64 = 4 | 8;
/// EXIT_DEAD, EXIT_ZOMBIE; TASK_DEAD in Linux 3.10. (In later kernels the last is TASK_PARKED, of kernel threads
/// alone.)
const DEAD: u64 = 0x10 | 0x20 | 0x40;

/// State of a daemon. Times are ns on the recording's clock, ABSENT where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    pub pid: i32,
    pub connection: u64,
    /// Time when a thread of it last had a CPU.
    #[serde(serialize_with = "known")]
    pub ran: u64,
    /// Time since when SIGSTOP or a debugger has stopped it.
    #[serde(serialize_with = "known")]
    pub stopped: u64,
    /// Time when its last thread ended.
    #[serde(serialize_with = "known")]
    pub ended: u64,
    /// A request waits longer than any answered one took, and no thread of the daemon has run since it began.
    pub hangs: bool,
    /// Number of unanswered requests, the longest wait of one of them, and the longest of an answered one.
    pub unanswered: u64,
    #[serde(skip)]
    longest: u64,
    #[serde(skip)]
    answered: u64,
}

impl State {
    fn hangs(&self, last: u64) -> bool {
        let idle = last.saturating_sub(if self.ran == ABSENT { 0 } else { self.ran });
        self.unanswered > 0 && self.longest > self.answered && idle >= self.longest
    }
}

/// Return the daemons' states, from one pass; none if the recording's end shows that all of them work until then. The
/// filters define which processes are daemons.
pub fn states(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
) -> Result<(ScanInfo, Vec<State>), Error> {
    if let Some(info) = at_work(reader, catalogue, filters.clone()) {
        return Ok((info, Vec::new()));
    }
    let mut daemons = Daemons::new(&filters.daemons);
    let (info, ..) = tell(reader, catalogue, filters, &mut daemons)?;
    let states = daemons.finish(info.last);
    Ok((info, states))
}

/// Return facts about the recording's end if it shows that no daemon has ended, is stopped, or hangs: each has run
/// there after any sign of that, and more recently than an answered request took. None: the whole recording tells.
fn at_work(reader: &Reader, catalogue: &[Meaning], filters: Filters) -> Option<ScanInfo> {
    let mut signs = Signs {
        daemons: Daemons::new(&filters.daemons),
        last: 0,
    };
    let (first, arch) = (filters.first(reader).ok()?, reader.arch());
    let stitch = Stitch::new(catalogue, filters, arch.as_deref(), first, asleep(reader));
    let mut observer = Observer::new(stitch, catalogue, &mut signs);
    let tail = reader.scan_tail(catalogue, &mut |batch| observer.push(&batch))?;
    // Requests that have not ended do not count: the whole recording may have older ones.
    drop(observer);
    let last = tail.info.last;
    let over = signs.last.max(tail.since);
    let states = signs.daemons.finish(last);
    let works = |state: &State| {
        let over = state.ran == ABSENT || state.ran <= over;
        let done = state.stopped != ABSENT || state.ended != ABSENT;
        !over && !done && last.saturating_sub(state.ran) <= state.answered
    };
    states.iter().all(works).then_some(tail.info)
}

/// Observer of the daemons' threads at the recording's end, where not all threads are known.
struct Signs {
    daemons: Daemons,
    /// Time of the last sign that a thread which may be a daemon's has ended or is stopped; 0: none.
    last: u64,
}

impl Listener for Signs {
    fn story(&mut self, known: &Known<'_>) {
        self.daemons.story(known);
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        // perf does not know the process of a thread that has ended.
        let may_be = ev.pid <= 0 || self.daemons.places.contains_key(&ev.pid);
        if role == Role::Switch && ev.v[1] & (STOPPED | DEAD) != 0 && may_be {
            self.last = ev.time;
        }
        self.daemons.event(ev, role);
    }

    fn side(&mut self, record: &Side) {
        if let Side::Exit { pid, time, .. } = record {
            if self.daemons.places.contains_key(pid) {
                self.last = *time;
            }
        }
        self.daemons.side(record);
    }
}

/// Observer of the daemons' threads.
pub struct Daemons {
    states: Vec<State>,
    /// Index of the state by process, and by thread.
    places: FxHashMap<i32, usize>,
    threads: FxHashMap<i32, usize>,
    running: FxHashSet<i32>,
}

impl Daemons {
    /// Observe these daemons, each with the connection that it serves.
    pub fn new(daemons: &[(i32, u64)]) -> Daemons {
        let states = daemons.iter().map(|(pid, connection)| State {
            pid: *pid,
            connection: *connection,
            ran: ABSENT,
            stopped: ABSENT,
            ended: ABSENT,
            hangs: false,
            unanswered: 0,
            longest: 0,
            answered: 0,
        });
        // A process's threads serve all its connections: their state is kept with the first.
        let mut places = FxHashMap::default();
        for (at, (pid, _)) in daemons.iter().enumerate() {
            places.entry(*pid).or_insert(at);
        }
        Daemons {
            states: states.collect(),
            places,
            threads: FxHashMap::default(),
            running: FxHashSet::default(),
        }
    }

    /// Return the states. `last`: the recording's end.
    pub fn finish(&mut self, last: u64) -> Vec<State> {
        for tid in &self.running {
            if let Some(at) = self.threads.get(tid) {
                self.states[*at].ran = last;
            }
        }
        for at in 0..self.states.len() {
            let first = self.places.get(&self.states[at].pid).copied();
            let State {
                ran,
                stopped,
                ended,
                ..
            } = self.states[first.unwrap_or(at)];
            let state = &mut self.states[at];
            (state.ran, state.stopped, state.ended) = (ran, stopped, ended);
            state.hangs = state.hangs(last);
        }
        std::mem::take(&mut self.states)
    }

    fn ran(&mut self, at: usize, time: u64) {
        let state = &mut self.states[at];
        (state.ran, state.stopped) = (time, ABSENT);
    }

    /// Remove a thread that has ended.
    fn left(&mut self, tid: i32, at: usize, time: u64) {
        self.threads.remove(&tid);
        self.running.remove(&tid);
        if !self.threads.values().any(|place| *place == at) {
            self.states[at].ended = time;
        }
    }

    fn switch(&mut self, ev: &Ev) {
        let [prev, asleep, next, _] = ev.v;
        if let Some(at) = self.threads.get(&(prev as i32)).copied() {
            self.running.remove(&(prev as i32));
            self.ran(at, ev.time);
            if asleep & STOPPED != 0 {
                self.states[at].stopped = ev.time;
            }
            if asleep & DEAD != 0 {
                self.left(prev as i32, at, ev.time);
            }
        }
        if let Some(at) = self.threads.get(&(next as i32)).copied() {
            self.running.insert(next as i32);
            self.ran(at, ev.time);
        }
    }
}

impl Listener for Daemons {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let serves = |state: &&mut State| match (story.daemon_pid, story.connection) {
            (pid, ABSENT) => state.pid == pid,
            (_, connection) => state.connection == connection,
        };
        let (Some(state), Some(ns)) = (self.states.iter_mut().find(serves), story.duration())
        else {
            return;
        };
        if story.is_unanswered() {
            state.unanswered += 1;
            state.longest = state.longest.max(ns);
        } else {
            state.answered = state.answered.max(ns);
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        if role == Role::Switch {
            self.switch(ev);
        } else if let Some(at) = self.places.get(&ev.pid).copied() {
            self.threads.insert(ev.tid, at);
            self.ran(at, ev.time);
        }
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Comm { pid, tid, .. } | Side::Fork { pid, tid, .. } => {
                if let Some(at) = self.places.get(pid) {
                    self.threads.insert(*tid, *at);
                }
            }
            Side::Exit { pid, tid, time } => {
                let known = self.threads.contains_key(tid);
                if let Some(at) = self.places.get(pid).copied().filter(|_| known) {
                    self.left(*tid, at, *time);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(time: u64, prev: u64, state: u64, next: u64) -> Ev {
        let v = [prev, state, next, ABSENT];
        Ev {
            time,
            pid: prev as i32,
            tid: prev as i32,
            kind: 0,
            cpu: 0,
            v,
        }
    }

    fn daemon(events: &[Ev], exits: &[(u64, i32)], last: u64) -> State {
        let mut daemons = Daemons::new(&[(500, 45), (500, 46)]);
        for tid in [500, 501] {
            daemons.side(&Side::Comm {
                time: 0,
                pid: 500,
                tid,
                comm: String::new(),
            });
        }
        for ev in events {
            daemons.event(ev, Role::Switch);
        }
        for (time, tid) in exits {
            daemons.side(&Side::Exit {
                time: *time,
                pid: 500,
                tid: *tid,
            });
        }
        let [first, second] = daemons.finish(last)[..] else {
            panic!("one for each connection");
        };
        // One process: its threads' state holds for both.
        assert_eq!(
            second,
            State {
                connection: 46,
                ..first
            }
        );
        first
    }

    #[test]
    fn stopped_and_ended() {
        let events = [
            switch(10, 500, 1, 501),
            switch(20, 501, 4, 900),
            switch(30, 900, 1, 0),
        ];
        let stopped = daemon(&events, &[], 100);
        assert_eq!(
            (stopped.ran, stopped.stopped, stopped.ended),
            (20, 20, ABSENT)
        );
        let again = [events[1], switch(40, 0, 0, 500), switch(50, 500, 1, 0)];
        let continued = daemon(&again, &[], 100);
        assert_eq!((continued.ran, continued.stopped), (50, ABSENT));
        assert_eq!(daemon(&[], &[(60, 501)], 100).ended, ABSENT);
        assert_eq!(daemon(&[], &[(60, 501), (70, 500)], 100).ended, 70);
        // Exits may not be recorded; the threads' last switches are.
        let left = [switch(60, 501, 0x10, 0), switch(80, 500, 0x20, 0)];
        assert_eq!(daemon(&left, &[], 100).ended, 80);
        // A thread on a CPU needs no event.
        assert_eq!(daemon(&[switch(40, 0, 0, 500)], &[], 100).ran, 100);
    }

    #[test]
    fn an_idle_daemon_with_a_waiting_request_hangs() {
        let state = |ran, unanswered, longest, answered| State {
            pid: 500,
            connection: 45,
            ran,
            stopped: ABSENT,
            ended: ABSENT,
            hangs: false,
            unanswered,
            longest,
            answered,
        };
        assert!(state(100, 1, 900, 50).hangs(1000));
        assert!(state(ABSENT, 1, 900, 0).hangs(1000));
        // It has run since; nothing waits; others took as long.
        assert!(!state(500, 1, 900, 50).hangs(1000));
        assert!(!state(100, 0, 0, 50).hangs(1000));
        assert!(!state(100, 1, 40, 50).hangs(1000));
    }
}
