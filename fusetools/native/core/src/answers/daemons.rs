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

/// Result of a signal that its target ignores (TRACE_SIGNAL_IGNORED, include/trace/events/signal.h).
const IGNORED: u64 = 1;
/// Maximum number of threads whose names are kept.
const MOST_NAMES: usize = 1 << 20;

/// Signal to a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signal {
    pub number: u32,
    /// Its si_code: 0 by kill(2), -6 by tgkill(2), above 0 by the kernel (include/uapi/asm-generic/siginfo.h).
    pub code: i32,
    /// Process that ran when it was sent, and its thread's name.
    pub pid: i32,
    pub comm: String,
    pub time: u64,
}

/// State of a daemon. Times are ns on the recording's clock, ABSENT where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The last signal that it got and did not ignore.
    pub signal: Option<Signal>,
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
    names: FxHashMap<i32, String>,
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
            signal: None,
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
            names: FxHashMap::default(),
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
                signal,
                ..
            } = self.states[first.unwrap_or(at)].clone();
            let state = &mut self.states[at];
            (state.ran, state.stopped, state.ended) = (ran, stopped, ended);
            state.signal = signal;
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

    fn signal(&mut self, ev: &Ev) {
        let [number, to, result, code] = ev.v;
        let place = self
            .threads
            .get(&(to as i32))
            .or(self.places.get(&(to as i32)));
        if let Some(at) = place.copied().filter(|_| result != IGNORED) {
            self.states[at].signal = Some(Signal {
                number: number as u32,
                code: code as i32,
                pid: ev.pid,
                comm: self.names.get(&ev.tid).cloned().unwrap_or_default(),
                time: ev.time,
            });
        }
    }

    fn name(&mut self, tid: i32, name: String) {
        if self.names.len() < MOST_NAMES || self.names.contains_key(&tid) {
            self.names.insert(tid, name);
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
        if role == Role::Signal {
            self.signal(ev);
        }
        if role == Role::Switch {
            self.switch(ev);
        } else if let Some(at) = self.places.get(&ev.pid).copied() {
            self.threads.insert(ev.tid, at);
            self.ran(at, ev.time);
        }
    }

    fn side(&mut self, record: &Side) {
        match record {
            Side::Comm { tid, comm, .. } => self.name(*tid, comm.clone()),
            Side::Fork { tid, ptid, .. } => {
                if let Some(name) = self.names.get(ptid).cloned() {
                    self.name(*tid, name);
                }
            }
            _ => {}
        }
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
        let [first, second] = &daemons.finish(last)[..] else {
            panic!("one for each connection");
        };
        // One process: its threads' state holds for both.
        let other = State {
            connection: 46,
            ..first.clone()
        };
        assert_eq!(*second, other);
        first.clone()
    }

    #[test]
    fn the_last_signal_that_a_daemon_did_not_ignore() {
        let mut daemons = Daemons::new(&[(500, 45)]);
        let named = |tid, comm: &str| Side::Comm {
            time: 0,
            pid: tid,
            tid,
            comm: comm.to_owned(),
        };
        daemons.side(&named(900, "sh"));
        daemons.side(&Side::Fork {
            time: 1,
            pid: 901,
            tid: 901,
            ppid: 900,
            ptid: 900,
        });
        let sent = |time, number, to, result, code: i32| Ev {
            v: [number, to, result, code as u32 as u64],
            pid: 901,
            tid: 901,
            ..switch(time, 901, 0, 0)
        };
        daemons.event(&sent(10, 15, 500, 0, -6), Role::Signal);
        daemons.event(&sent(20, 13, 500, IGNORED, 0), Role::Signal);
        daemons.event(&sent(30, 9, 600, 0, 0), Role::Signal);
        let signal = daemons.finish(100)[0].signal.clone().unwrap();
        let expected = Signal {
            number: 15,
            code: -6,
            pid: 901,
            comm: "sh".to_owned(),
            time: 10,
        };
        assert_eq!(signal, expected);
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
            signal: None,
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
