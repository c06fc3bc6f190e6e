//! The daemon's work for a request: states, system calls and peers of its thread, and of its helpers.
//!
//! A thread that hands work to another one sleeps. The thread that wakes it up did the work: it is a helper.

mod timeline;

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::events::{Meaning, Role, ABSENT};
use crate::operations::Arch;
use crate::reader::{Places, Reader};
use crate::requests::moments::{gather, Moment, Span, What, MOST};
use crate::requests::peers::{Connections, UNKNOWN};
use crate::requests::stitch::{Mark, Story};

pub use timeline::{Action, Line};

/// Maximum length of a chain of waiting threads.
const DEEPEST: usize = 4;

/// TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ, include/linux/trace_events.h
const INTERRUPT: u64 = 8 | 16;

/// End of a span at the recording's end, or unknown.
const NO_END: u64 = 1 << 63;

/// System calls of one name: their number, and the ns in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallTime {
    pub syscall: String,
    pub calls: u64,
    pub time: u64,
}

/// States of a thread, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States {
    pub on_cpu: u64,
    pub runnable: u64,
    pub blocked: u64,
}

/// Thread that did the work for which another thread waited, and woke it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    pub tid: i32,
    /// Duration of the wait, ns.
    pub waited: u64,
    /// System calls meanwhile, longest first.
    pub syscalls: Vec<SyscallTime>,
    /// Addresses of connections that it made or used. None: it used sockets with unknown peers.
    pub peers: Option<Vec<String>>,
    /// Files on disks that it worked on.
    pub files: Vec<String>,
    /// Times of each of its states in the wait; None if its switches were not recorded.
    pub states: Option<States>,
}

/// Activity of the daemon's thread between the callback's entry and its reply. The fields are as in `Helper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meanwhile {
    pub on_cpu: Option<u64>,
    pub syscalls: Vec<SyscallTime>,
    pub peers: Option<Vec<String>>,
    pub files: Vec<String>,
    /// The thread that ended the longest wait, the thread that ended that thread's longest wait, and so on.
    pub helpers: Vec<Helper>,
}

type Gather<'a> = Box<dyn Fn(&[Span]) -> Vec<Vec<Moment>> + Sync + 'a>;

/// Recording that was read once, to look up what its threads did in spans of time.
pub struct Replay<'a> {
    catalogue: &'a [Meaning],
    arch: Arch,
    connections: &'a Connections,
    /// Function that returns the moments of each span.
    gather: Gather<'a>,
}

impl<'a> Replay<'a> {
    /// Prepare it. `catalogue` is that of the pass that noted the places.
    pub fn new(
        reader: &'a Reader,
        catalogue: &'a [Meaning],
        places: &'a Places,
        connections: &'a Connections,
    ) -> Replay<'a> {
        Replay {
            catalogue,
            arch: Arch::new(reader.arch().as_deref()),
            connections,
            gather: Box::new(move |spans| gather(reader, catalogue, places, spans)),
        }
    }

    /// Return what the daemon did for each request. None: unknown.
    pub fn meanwhile(&self, stories: &[&Story]) -> Vec<Option<Meanwhile>> {
        let spans: Vec<Option<Span>> = stories.iter().map(|story| work(story)).collect();
        let moments = self.gather(&spans);
        self.meanwhile_of(stories, &spans, &moments)
    }

    fn meanwhile_of(
        &self,
        stories: &[&Story],
        spans: &[Option<Span>],
        moments: &[Vec<Moment>],
    ) -> Vec<Option<Meanwhile>> {
        let pids: Vec<i32> = stories.iter().map(|story| story.daemon_pid).collect();
        let helpers = self.helpers(spans, moments, &pids);
        let rows = stories.iter().zip(spans).zip(moments).zip(helpers);
        rows.map(|(((story, span), moments), helpers)| {
            let span = span.as_ref()?;
            let syscalls = self.calls_inside(span, moments);
            Some(Meanwhile {
                on_cpu: on_cpu(story, span),
                peers: self.peers(span, moments, story.daemon_pid, &syscalls),
                files: self.files(span, moments, story.daemon_pid),
                syscalls,
                helpers,
            })
        })
        .collect()
    }

    /// Return the moments of each span's thread; none where there is no span.
    fn gather(&self, spans: &[Option<Span>]) -> Vec<Vec<Moment>> {
        let wanted: Vec<Span> = spans.iter().flatten().copied().collect();
        let mut moments = match wanted.is_empty() {
            true => Vec::new(),
            false => (self.gather)(&wanted),
        }
        .into_iter();
        spans
            .iter()
            .map(|span| span.and_then(|_| moments.next()).unwrap_or_default())
            .collect()
    }

    /// Return the helpers of each span's thread. `moments`: those of the spans; `pids`: their processes.
    fn helpers(
        &self,
        spans: &[Option<Span>],
        moments: &[Vec<Moment>],
        pids: &[i32],
    ) -> Vec<Vec<Helper>> {
        let mut helpers: Vec<Vec<Helper>> = vec![Vec::new(); spans.len()];
        let mut now = spans.to_vec();
        let mut gathered: Vec<Vec<Moment>>;
        let mut moments = moments;
        for depth in 0..DEEPEST {
            let wait = |at: usize| {
                let span = now[at]?;
                let wait = self.longest_wait(&span, &moments[at])?;
                let known = spans[at].iter().map(|span| span.tid);
                let mut known = known.chain(helpers[at].iter().map(|helper| helper.tid));
                // A helper's wait counts if it lasts at least half of the wait for the helper.
                let half = (span.to - span.from).div_ceil(2);
                let long = depth == 0 || wait.to - wait.from >= half;
                (long && !known.any(|tid| tid == wait.tid)).then_some(wait)
            };
            let waits: Vec<Option<Span>> = (0..now.len()).map(wait).collect();
            if waits.iter().all(Option::is_none) {
                break;
            }
            // A helper may begin to work before the waiting thread sleeps.
            let begun = waits.iter().zip(&now).map(|(wait, span)| {
                let from = span.as_ref()?.from;
                wait.map(|wait| Span { from, ..wait })
            });
            gathered = self.gather(&begun.collect::<Vec<_>>());
            moments = &gathered;
            now = waits;
            for (at, span) in now.iter_mut().enumerate() {
                let helper = span.and_then(|span| self.helper(&span, &moments[at], pids[at]));
                match helper {
                    Some(helper) => helpers[at].push(helper),
                    None => *span = None,
                }
            }
        }
        helpers
    }

    /// Return what a helper did in the span. All the daemon's system calls are recorded: a thread without any is another
    /// process's.
    fn helper(&self, span: &Span, moments: &[Moment], pid: i32) -> Option<Helper> {
        let syscalls = self.calls_within(span, moments);
        if syscalls.is_empty() {
            return None;
        }
        Some(Helper {
            tid: span.tid,
            waited: span.to - span.from,
            peers: self.peers(span, moments, pid, &syscalls),
            files: self.files(span, moments, pid),
            states: self.states(span, moments),
            syscalls,
        })
    }

    /// Return the span's longest wait that another thread ended, as that thread's span.
    fn longest_wait(&self, span: &Span, moments: &[Moment]) -> Option<Span> {
        let mut best: Option<Span> = None;
        let mut asleep = None;
        for moment in moments.iter().filter(|moment| span.holds(moment.time)) {
            let Some((role, v)) = self.event(moment) else {
                continue;
            };
            let own = is(span.tid, v[0]);
            match role {
                Role::Switch => asleep = own.then_some(moment.time),
                Role::Waking if own => {
                    let Some(from) = asleep.take() else { continue };
                    // A wake-up from an interrupt is unrelated to the current thread.
                    let by_thread = moment.tid > 0 && !by_interrupt(&v);
                    let longest = best.is_none_or(|best| moment.time - from > best.to - best.from);
                    if by_thread && longest {
                        best = Some(Span {
                            tid: moment.tid,
                            from,
                            to: moment.time,
                        });
                    }
                }
                _ => {}
            }
        }
        best
    }

    /// Return how the thread spent the span. None: its switches are not recorded, or its state at the begin is unknown.
    fn states(&self, span: &Span, moments: &[Moment]) -> Option<States> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            OnCpu,
            Runnable,
            Blocked,
        }
        let mut times = States::default();
        let mut add = |state, ns| match state {
            State::OnCpu => times.on_cpu += ns,
            State::Runnable => times.runnable += ns,
            State::Blocked => times.blocked += ns,
        };
        let (mut state, mut since, mut switched) = (None, span.from, false);
        let stopped = |runnable| match runnable {
            true => State::Runnable,
            false => State::Blocked,
        };
        for moment in moments.iter().take_while(|moment| moment.time <= span.to) {
            let own = moment.tid == span.tid;
            let new = match (&moment.what, self.event(moment)) {
                (What::Switch { out, preempt }, _) if own => {
                    switched = true;
                    Some(match out {
                        true => stopped(*preempt),
                        false => State::OnCpu,
                    })
                }
                (_, Some((Role::Switch, v))) if is(span.tid, v[0]) => {
                    switched = true;
                    Some(stopped(matches!(v[1], 0 | ABSENT)))
                }
                (_, Some((Role::Switch, v))) if is(span.tid, v[2]) => {
                    switched = true;
                    Some(State::OnCpu)
                }
                (_, Some((Role::Switch, _))) => state,
                (_, Some((Role::Waking, v))) if is(span.tid, v[0]) => match state {
                    None | Some(State::Blocked) => Some(State::Runnable),
                    other => other,
                },
                (_, Some(_)) if own => Some(State::OnCpu),
                _ => state,
            };
            if moment.time <= span.from {
                state = new;
            } else if new != state {
                add(state?, moment.time - since);
                (state, since) = (new, moment.time);
            }
        }
        add(state.filter(|_| switched)?, span.to - since);
        Some(times)
    }

    /// Return the system calls that the span's thread entered in it. The last one may go on: what it did after the last
    /// moment that was kept is unknown.
    fn calls_inside(&self, span: &Span, moments: &[Moment]) -> Vec<SyscallTime> {
        let mut calls = Calls::default();
        let mut entered: Option<(u64, u64)> = None;
        let mut last = span.from;
        for moment in moments.iter().filter(|moment| span.holds(moment.time)) {
            last = last.max(moment.time);
            match self.call(span, moment) {
                Some((Role::SysEnter, number)) => entered = Some((number, moment.time)),
                Some((_, number)) => {
                    if let Some((number, since)) = entered.take_if(|(n, _)| *n == number) {
                        calls.add(number, moment.time - since);
                    }
                }
                None => {}
            }
        }
        // A call entered at the span's end writes the reply.
        if let Some((number, since)) = entered.filter(|(_, since)| *since != span.to) {
            let whole = span.to < NO_END && moments.len() < MOST;
            let until = if whole { span.to } else { last };
            calls.add(number, until - since);
        }
        calls.longest_first(self.arch)
    }

    /// Return the system calls that the span's thread was in during the span.
    fn calls_within(&self, span: &Span, moments: &[Moment]) -> Vec<SyscallTime> {
        let mut calls = Calls::default();
        let mut add = |number, since: u64, until: u64| {
            if until >= span.from {
                calls.add(number, until - since.max(span.from));
            }
        };
        let mut entered: Option<(u64, u64)> = None;
        for moment in moments {
            match self.call(span, moment) {
                Some((Role::SysEnter, number)) => entered = Some((number, moment.time)),
                Some((_, number)) => {
                    let (name, since) = entered.take().unwrap_or((number, span.from));
                    if name == number {
                        add(number, since, moment.time);
                    }
                }
                None => {}
            }
        }
        if let Some((number, since)) = entered {
            add(number, since, span.to);
        }
        calls.longest_first(self.arch)
    }

    /// Return the peers of the connections of process `pid` that the span's thread made or used. A helper may have used
    /// one before the wait, which counts if it was in the same request.
    ///
    /// A used connection is known if it was made in the recording, by whatever thread, or was open for all of it. None:
    /// the thread used sockets, but their peers are unknown.
    fn peers(
        &self,
        span: &Span,
        moments: &[Moment],
        pid: i32,
        calls: &[SyscallTime],
    ) -> Option<Vec<String>> {
        let mut found: Vec<String> = Vec::new();
        let own = moments.iter().filter(|moment| moment.tid == span.tid);
        for moment in own {
            let peer = match self.event(moment) {
                Some((Role::Connect, v)) => {
                    Some(crate::requests::peers::address(&v).unwrap_or(UNKNOWN.into()))
                }
                Some((Role::SysEnter, v)) => self.peer(pid, &v, moment.time).map(str::to_owned),
                _ => None,
            };
            if let Some(peer) = peer.filter(|peer| !found.contains(peer)) {
                found.push(peer);
            }
        }
        let used = calls.iter().any(|call| is_socket_call(&call.syscall));
        (!used || !found.is_empty()).then_some(found)
    }

    /// Return the files of process `pid` that the span's thread worked on.
    fn files(&self, span: &Span, moments: &[Moment], pid: i32) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for moment in moments.iter().filter(|moment| moment.tid == span.tid) {
            let file = match self.event(moment) {
                Some((Role::SysEnter, v)) => self.file(pid, &v),
                _ => None,
            };
            if let Some(file) = file.filter(|file| !found.iter().any(|known| known == file)) {
                found.push(file.to_owned());
            }
        }
        found
    }

    /// Return the file of the descriptor that a system call of process `pid` works on.
    fn file(&self, pid: i32, v: &[u64; 4]) -> Option<&str> {
        let [number, descriptor, ..] = *v;
        let known = !self.arch.is_fake(number) && self.arch.is_on_descriptor(number);
        known
            .then(|| self.connections.file(pid, descriptor))
            .flatten()
    }

    /// Return the peer of the descriptor that is the first argument of a system call of process `pid`.
    fn peer(&self, pid: i32, v: &[u64; 4], time: u64) -> Option<&str> {
        let [number, descriptor, ..] = *v;
        if self.arch.is_fake(number) || !is_stream_call(&self.arch.syscall(number)) {
            return None;
        }
        self.connections.peer(pid, descriptor, time)
    }

    /// Return an event's role and values.
    fn event(&self, moment: &Moment) -> Option<(Role, [u64; 4])> {
        match moment.what {
            What::Event(kind, v) => Some((self.catalogue.get(kind as usize)?.role, v)),
            _ => None,
        }
    }

    /// Return the role and the number of a system call's event, if it is of the span's thread.
    fn call(&self, span: &Span, moment: &Moment) -> Option<(Role, u64)> {
        let (role, v) = self.event(moment)?;
        let real = matches!(role, Role::SysEnter | Role::SysExit) && !self.arch.is_fake(v[0]);
        (real && moment.tid == span.tid).then_some((role, v[0]))
    }
}

/// Return the daemon thread's span from the callback's entry (or the read) to the reply.
///
/// Without a reply, it ends where the thread left the request. None: unknown, or another thread worked on the request.
fn work(story: &Story) -> Option<Span> {
    let from = story.at(Mark::CallbackEnter).or(story.at(Mark::Read))?;
    let marks = [Mark::Reply, Mark::End, Mark::CallbackReturn];
    let end = marks.into_iter().find_map(|mark| story.at(mark));
    // Unknown times are ABSENT, which is later than all.
    let to = end.unwrap_or(story.until).min(story.left);
    let to = if to == ABSENT { NO_END } else { to };
    (story.daemon_tid >= 0 && !story.handed).then_some(Span {
        tid: story.daemon_tid,
        from,
        to: to.max(from),
    })
}

/// Return the ns that the daemon's thread ran while it worked on a request.
fn on_cpu(story: &Story, span: &Span) -> Option<u64> {
    let known = |ns: u64| Some(ns).filter(|ns| *ns != ABSENT);
    let idle = known(story.blocked)?.saturating_add(known(story.runnable)?);
    // Since the thread left the request, its time is elsewhere, and behind the span's end.
    let elsewhere = known(story.elsewhere).filter(|_| story.left != span.to);
    let end = story.at(Mark::Reply).unwrap_or(span.to);
    let end = end.min(known(story.until).unwrap_or(span.to));
    let idle = idle.saturating_add(elsewhere.unwrap_or(0));
    Some(end.saturating_sub(span.from).saturating_sub(idle))
}

fn is(tid: i32, value: u64) -> bool {
    u64::try_from(tid) == Ok(value)
}

/// Return whether a wake-up came from an interrupt. `v`: its values.
fn by_interrupt(v: &[u64; 4]) -> bool {
    v[1] != ABSENT && v[1] & INTERRUPT != 0
}

/// Return whether the system call's first argument is a socket.
fn is_socket_call(name: &str) -> bool {
    matches!(
        name,
        "connect"
            | "sendto"
            | "sendmsg"
            | "sendmmsg"
            | "recvfrom"
            | "recvmsg"
            | "recvmmsg"
            | "accept"
            | "accept4"
    )
}

/// Return whether the system call's first argument may be a socket.
fn is_stream_call(name: &str) -> bool {
    let file = matches!(
        name,
        "read" | "readv" | "write" | "writev" | "sendfile" | "splice"
    );
    file || is_socket_call(name)
}

/// System calls by number, in the order of their first one: how many, and their ns.
#[derive(Default)]
struct Calls {
    places: FxHashMap<u64, usize>,
    rows: Vec<(u64, u64, u64)>,
}

impl Calls {
    fn add(&mut self, number: u64, ns: u64) {
        let place = *self.places.entry(number).or_insert(self.rows.len());
        if place == self.rows.len() {
            self.rows.push((number, 0, 0));
        }
        let (_, calls, time) = &mut self.rows[place];
        *calls += 1;
        *time = time.saturating_add(ns);
    }

    fn longest_first(mut self, arch: Arch) -> Vec<SyscallTime> {
        self.rows.sort_by_key(|(_, _, time)| Reverse(*time));
        let rows = self.rows.into_iter();
        rows.map(|(number, calls, time)| SyscallTime {
            syscall: arch.syscall(number),
            calls,
            time,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
