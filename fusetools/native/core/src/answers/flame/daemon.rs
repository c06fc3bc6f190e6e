//! Waits of a daemon's threads, and the requests that they were for.
//!
//! A thread's request may be known only when it is answered: a daemon without callbacks has the window from its read to its
//! reply. So a daemon's waits are remembered until then.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::recent::taken;
use super::{Engine, Graph, Note, Who};
use crate::answers::offcpu::{Wait, Why};
use crate::events::ABSENT;
use crate::programs::spaces::Spaces;
use crate::programs::stacks::Frames;
use crate::requests::stitch::{Mark, Story};

/// Maximum number of remembered waits and replies of a thread, and of ended threads whose waits are remembered. The
/// oldest are dropped first.
const MOST_WAITS: usize = 4096;
const MOST_ANSWERS: usize = 256;
const MOST_DEAD: usize = 1024;
/// Maximum number of threads that hand a request on, one after the other.
const MOST_HOPS: usize = 256;

/// Spans of time, in order, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<(u64, u64)>);

impl Spans {
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|span| span.1 < from);
        let last = self.0.partition_point(|span| span.0 <= to);
        let mut new = (from, to);
        for span in &self.0[first..last] {
            new = (new.0.min(span.0), new.1.max(span.1));
        }
        self.0.splice(first..last, [new]);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Return the union with other spans.
    pub fn with(&self, others: &Spans) -> Spans {
        let mut all = self.clone();
        others.iter().for_each(|(from, to)| all.add(from, to));
        all
    }

    /// Return the parts of from..to outside all spans.
    pub fn gaps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = from;
        let ends = self.iter().chain([(to, to)]);
        ends.filter_map(move |span| {
            let gap = (at, span.0.min(to));
            at = at.max(span.1);
            (gap.0 < gap.1).then_some(gap)
        })
    }
}

/// History of a daemon's thread.
#[derive(Default)]
pub(super) struct History {
    waits: VecDeque<Wait<Note>>,
    /// Times when it answered requests.
    answers: VecDeque<u64>,
    /// Time up to which some of its waits are forgotten.
    forgotten: u64,
}

/// Return the index of the first of these successive waits that ends after `time`. Search from the last one on, because
/// the caller looks at all that follow it, and most requests are short.
fn ending_after<T>(waits: &VecDeque<Wait<T>>, time: u64) -> usize {
    let later = waits.iter().rev().take_while(|wait| wait.to > time);
    waits.len() - later.count()
}

/// Histories by thread.
#[derive(Default)]
pub(super) struct Histories {
    threads: FxHashMap<i32, History>,
    /// Threads that have ended.
    dead: VecDeque<i32>,
}

/// Part of a request's time in the daemon, and the thread that worked on it.
pub(super) struct Worked {
    pub from: u64,
    pub to: u64,
    /// `waits` holds all its waits of that time; for the rest it was on a CPU.
    pub whole: bool,
    pub waits: Vec<Wait<Note>>,
}

/// Work of the daemon on a request, in order of time.
#[derive(Default)]
pub(super) struct Served {
    /// Frame of the callback.
    pub callback: Option<u32>,
    pub worked: Vec<Worked>,
}

impl Engine<'_> {
    /// Remember a wait of a daemon's thread, which runs again.
    pub(super) fn daemon_waited(&mut self, wait: Wait<Note>) {
        let history = self.histories.threads.entry(wait.tid).or_default();
        let oldest = match history.waits.len() == MOST_WAITS {
            true => history.waits.pop_front(),
            false => None,
        };
        history.waits.push_back(wait);
        if let Some(mut oldest) = oldest {
            history.forgotten = history.forgotten.max(oldest.to);
            // The wait may be part of a request in flight.
            let stitch = self.stitch.as_ref();
            let story = stitch.and_then(|stitch| stitch.in_hand(oldest.tid));
            if let Some(story) = story {
                let from = story.at(Mark::CallbackEnter).or(story.at(Mark::Read));
                let wanted = self.wants(story);
                if let Some(from) = from {
                    oldest.note.claim(wanted, from.max(oldest.from), oldest.to);
                }
            }
            self.settle(&oldest);
        }
    }

    /// Note that a thread copies a request into a ring of io_uring. If it was not waiting for that, the request's
    /// caller has interrupted other work, which the thread resumes.
    pub(super) fn copies(&mut self, tid: i32) {
        let stitch = self.stitch.as_ref();
        let history = self.histories.threads.get_mut(&tid);
        let last = history.and_then(|history| history.waits.back_mut());
        let waker = last.and_then(|wait| wait.waker.as_mut());
        let waker = waker.filter(|waker| waker.why == Why::Request);
        if let Some(waker) = waker.filter(|_| stitch.is_some_and(|s| !s.waits_for_any_ring(tid))) {
            waker.why = Why::Interrupt;
        }
    }

    /// Note that a thread has answered a request.
    pub(super) fn daemon_answered(&mut self, tid: i32, time: u64) {
        let history = self.histories.threads.entry(tid).or_default();
        if history.answers.len() == MOST_ANSWERS {
            history.answers.pop_front();
        }
        history.answers.push_back(time);
    }

    /// Note that a thread has ended. Requests that it worked on may yet be answered.
    pub(super) fn daemon_ended(&mut self, tid: i32) {
        if !self.histories.threads.contains_key(&tid) {
            return;
        }
        self.histories.dead.push_back(tid);
        if self.histories.dead.len() > MOST_DEAD {
            let oldest = self.histories.dead.pop_front();
            let history = oldest.and_then(|tid| self.histories.threads.remove(&tid));
            history
                .iter()
                .flat_map(|history| &history.waits)
                .for_each(|wait| self.settle(wait));
        }
    }

    /// Settle all remembered waits: no later request can claim them.
    pub(super) fn settle_all(&mut self) {
        let mut threads: Vec<(i32, History)> = self.histories.threads.drain().collect();
        threads.sort_by_key(|(tid, _)| *tid);
        for (_, history) in &threads {
            history.waits.iter().for_each(|wait| self.settle(wait));
        }
    }

    /// Assign the waits of the daemon's threads to a request that the daemon is done with, or that the recording's end
    /// cuts off.
    pub(super) fn claim(&mut self, story: &Story) -> Served {
        let wanted = self.wants(story);
        let callback = match story.at(Mark::CallbackEnter) {
            Some(enter) => taken(&mut self.callbacks, story.daemon_tid, enter),
            None => None,
        };
        let mut spans = self.worked_on(story);
        spans.sort_by_key(|(_, from, _)| *from);
        let worked = spans
            .into_iter()
            .map(|(tid, from, to)| self.claim_span(wanted, tid, from, to));
        Served {
            worked: worked.collect(),
            callback,
        }
    }

    fn claim_span(&mut self, wanted: bool, tid: i32, from: u64, to: u64) -> Worked {
        let requests = self.selection.graph == Graph::Requests;
        let history = self.histories.threads.get_mut(&tid);
        let forgotten = history.as_ref().map_or(0, |history| history.forgotten);
        let whole = self.switched.contains(&tid) && forgotten <= from;
        // The waits follow each other, since they belong to one thread.
        let known = history.into_iter().flat_map(|history| {
            let first = ending_after(&history.waits, from);
            history.waits.range_mut(first..)
        });
        let known = known.take_while(|wait| wait.from < to);
        let open = self.off.open(tid);
        let mut to = to;
        let mut waits = Vec::new();
        for wait in known.chain(open) {
            if wait.from >= to || wait.note.who != Who::Daemon {
                continue;
            }
            if is_for_requests(&mut self.frames, &self.spaces, wait) {
                // From then on another thread has the request.
                to = wait.from.max(from);
                break;
            }
            let (since, until) = match wait.ended {
                true => (wait.from.max(from), wait.to.min(to)),
                false => (wait.from.max(from), to),
            };
            if requests && wanted {
                let mut wait = wait.clone();
                wait.to = until.max(wait.to);
                waits.push(wait);
            } else if !requests {
                wait.note.claim(wanted, since, until);
            }
        }
        Worked {
            from,
            to,
            whole,
            waits,
        }
    }

    /// Return the threads that worked on a request, and when, as far as recorded.
    fn worked_on(&mut self, story: &Story) -> Vec<(i32, u64, u64)> {
        let replied = story.at(Mark::Reply).or(story.at(Mark::End));
        let over = Some(story.until).filter(|until| *until != ABSENT);
        let until = replied.or(over);
        let left = story.at(Mark::CallbackReturn);
        let read = story.at(Mark::Read);
        if let Some(enter) = story.at(Mark::CallbackEnter).filter(|_| !story.handed) {
            let own = story.reader == story.daemon_tid;
            let from = read.filter(|read| own && *read <= enter).unwrap_or(enter);
            // The library may answer when the callback has returned.
            let left = left.filter(|_| story.replier != story.daemon_tid);
            let Some(to) = left.into_iter().chain(until).min() else {
                return Vec::new();
            };
            let mut spans = vec![(story.daemon_tid, from, to)];
            // The callback's thread left the reply to another thread.
            if let Some(until) = until.filter(|until| to < *until && story.replier >= 0) {
                spans.extend(self.chain(story.replier, None, to, until));
            }
            return spans;
        }
        let from = read
            .or(story.at(Mark::CallbackEnter))
            .or(story.at(Mark::Begin));
        let (Some(from), Some(until)) = (from, until) else {
            return Vec::new();
        };
        let hands = story.replier < 0
            && self
                .stitch
                .as_ref()
                .is_some_and(|stitch| stitch.hands(story.daemon_pid));
        match (story.reader, story.replier) {
            (-1, -1) => Vec::new(),
            (reader, replier) if read.is_some() && (reader == replier || replier < 0) => {
                match hands {
                    true => Vec::new(),
                    false => vec![(reader, from, until)],
                }
            }
            (_, -1) => Vec::new(),
            (reader, replier) => {
                let reader = match story.at(Mark::CallbackEnter) {
                    Some(_) => story.daemon_tid,
                    None => reader,
                };
                let reader = (reader >= 0).then_some(reader);
                self.chain(replier, reader, from, until)
            }
        }
    }

    /// Return the spans of the threads that had the request, backwards from the one that answers. A thread got it at
    /// its previous reply, or when another thread of the daemon woke it up. Before that the waking thread had it, and
    /// so on to the thread that read it. Earlier time is unknown.
    fn chain(
        &mut self,
        replier: i32,
        reader: Option<i32>,
        from: u64,
        to: u64,
    ) -> Vec<(i32, u64, u64)> {
        let mut spans = Vec::new();
        let (mut tid, mut to) = (replier, to);
        for _ in 0..MOST_HOPS {
            let Some(history) = self.histories.threads.get(&tid) else {
                break;
            };
            let mut idle = |wait: &Wait<Note>| {
                wait.waker.is_some_and(|waker| waker.why == Why::Request)
                    || is_for_requests(&mut self.frames, &self.spaces, wait)
            };
            if Some(tid) == reader {
                // The span ends when the thread starts to wait for another request.
                let mut later = history.waits.iter().filter(|wait| wait.from >= from);
                let next = later.find(|wait| idle(wait));
                let to = next.map_or(to, |wait| wait.from.min(to));
                spans.push((tid, from, to));
                break;
            }
            let answered = history.answers.iter().rev().find(|time| **time < to);
            let mut since = from.max(answered.map_or(0, |time| *time));
            let mut hop = None;
            for wait in history.waits.iter().rev().filter(|wait| wait.from < to) {
                if wait.to <= since {
                    break;
                }
                if idle(wait) {
                    since = since.max(wait.to.min(to));
                    break;
                }
                let Some(waker) = wait.waker else { continue };
                let fellow = waker.why == Why::Task && waker.pid == wait.pid;
                if fellow && waker.tid != tid && (since..to).contains(&waker.time) {
                    since = waker.time;
                    hop = Some(waker.tid);
                    break;
                }
            }
            if since < to {
                spans.push((tid, since, to));
            }
            match hop {
                Some(waker) => (tid, to) = (waker, since),
                None => break,
            }
        }
        spans
    }
}

impl Note {
    /// Add the time in which a wait belongs to a request. `wanted`: the request is selected.
    fn claim(&mut self, wanted: bool, from: u64, to: u64) {
        match wanted {
            true => self.claimed.add(from, to),
            false => self.of_others.add(from, to),
        }
    }
}

/// Return whether a thread of a daemon waits for its next request.
fn is_for_requests(frames: &mut Frames<'_>, spaces: &Spaces, wait: &Wait<Note>) -> bool {
    wait.note.for_ring || frames.for_requests(wait.stack, spaces, wait.pid)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::answers::flame::Selection;
    use crate::events::{Batch, Ev, Layer, Meaning, Role, Side};
    use crate::reader::Reader;
    use crate::requests::filters::Filters;

    const DAEMON: i32 = 500;
    const MOUNT: u64 = 45;
    const ROWS: [(&str, Layer, Role); 12] = [
        ("begin", Layer::Request, Role::Begin),
        ("end", Layer::Request, Role::End),
        ("enter", Layer::Syscall, Role::SysEnter),
        ("exit", Layer::Syscall, Role::SysExit),
        ("out", Layer::Syscall, Role::Switch),
        ("in", Layer::Syscall, Role::Switch),
        ("wake", Layer::Syscall, Role::Waking),
        ("bytes", Layer::Request, Role::Length),
        ("fetched", Layer::Syscall, Role::Fetched),
        ("commit", Layer::Syscall, Role::Committed),
        ("await", Layer::Syscall, Role::RingWait),
        ("call", Layer::Daemon, Role::Entry),
    ];

    /// Return the ns of each stack. Across requests, the stacks lack a caller's name and system call.
    ///
    /// `text` has a line `TIME TID KIND VALUE…` for each event. Threads of the daemon are 500 to 599, each named by its
    /// number. Kinds: `begin UNIQUE` (a lookup), `bytes UNIQUE LENGTH`, `call UNIQUE` (a callback whose return is not
    /// recorded), `end UNIQUE`, `out` (asleep), `in`, `wake TID`.
    fn flame(graph: Graph, text: &str) -> BTreeMap<String, u64> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        let reader = Reader::open(&root.join("samples/recordings/demo.data")).unwrap();
        let catalogue = ROWS.map(|(event, layer, role)| {
            let (function, operation) = match role {
                Role::Entry => ("do_lookup", "lookup"),
                _ => ("", ""),
            };
            Meaning {
                event: event.into(),
                layer,
                function: function.into(),
                operation: operation.into(),
                role,
            }
        });
        let filters = Filters {
            daemons: vec![(DAEMON, MOUNT)],
            ..Filters::default()
        };
        let selection = Selection {
            graph,
            filters,
            workload: vec![1],
            ..Selection::default()
        };
        let mut engine = Engine::new(&reader, &catalogue, &selection).unwrap();
        let mut batch = Batch::default();
        let mut last = 0;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at).map_or(ABSENT, |w| w.parse().unwrap());
            let (time, tid) = (number(0), number(1) as i32);
            let pid = if tid / 100 == 5 { DAEMON } else { tid };
            let kind = ROWS.iter().position(|row| row.0 == words[2]).unwrap();
            let v = match words[2] {
                "begin" => [number(3), MOUNT, 1, ABSENT],
                "end" => [number(3), MOUNT, 0, ABSENT],
                "bytes" => [number(3), MOUNT, number(4), ABSENT],
                "out" => [tid as u64, 1, 0, ABSENT],
                "in" => [0, 0, tid as u64, ABSENT],
                "fetched" => [7, number(3), 0, ABSENT],
                "commit" => [7, number(3), 46, 0],
                "await" => [7, ABSENT, ABSENT, ABSENT],
                _ => [number(3), number(4), ABSENT, ABSENT],
            };
            let (pid, tid) = if words[2] == "in" { (0, 0) } else { (pid, tid) };
            let name = |tid: i32| Side::Comm {
                time: 0,
                pid,
                tid,
                comm: tid.to_string(),
            };
            batch.side.push(name(tid));
            batch.events.push(Ev {
                time,
                pid,
                tid,
                kind: kind as u32,
                cpu: 0,
                v,
            });
            last = time;
        }
        engine.push(&batch);
        let shown = engine.finish(last);
        let sum: u64 = shown.stacks.iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, shown.shown.ns);
        let stacks = shown.stacks.into_iter();
        let short = |stack: String| match stack.split_once("[FUSE lookup];") {
            Some((_, rest)) => rest.to_owned(),
            None => stack,
        };
        stacks.map(|(stack, ns)| (short(stack), ns)).collect()
    }

    fn stacks(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let all = all.iter();
        all.map(|(stack, ns)| (stack.to_string(), *ns)).collect()
    }

    /// One thread reads, sleeps and answers. It had waited for the request, and waits for the next one.
    const ALONE: &str = "
        10 500 enter 0
        20 500 out
        100 1 begin 7
        100 1 bytes 7 64
        105 1 wake 500
        110 1 out
        120 500 in
        130 500 exit 0 64
        150 500 out
        350 0 wake 500
        360 500 in
        400 500 enter 1
        410 500 end 7
        412 500 wake 1
        420 1 in
        430 500 exit 1 16
        440 500 enter 0
        450 500 out
        900 1 enter 2
    ";

    #[test]
    fn a_window_stands_for_the_callback() {
        let expected = [
            ("[queue]", 30),
            ("[daemon];[on CPU]", 60),
            ("[daemon]", 200),
            ("[daemon];[runnable]", 10),
            ("[reply]", 10),
            ("[wakeup]", 10),
        ];
        assert_eq!(flame(Graph::Requests, ALONE), stacks(&expected));
        let expected = [
            ("500", 200),
            ("500;[runnable]", 10),
            ("1", 302),
            ("1;[runnable]", 8),
        ];
        assert_eq!(flame(Graph::OffCpu, ALONE), stacks(&expected));
    }

    /// A ring's thread sleeps and answers, and waits for the ring.
    #[test]
    fn a_wait_for_a_ring_is_of_no_request() {
        let expected = [
            ("500", 200),
            ("500;[runnable]", 10),
            ("1", 302),
            ("1;[runnable]", 8),
        ];
        let by_ring = ALONE
            .replace("10 500 enter 0", "8 500 enter 426\n 10 500 await")
            .replace(
                "130 500 exit 0 64",
                "130 500 fetched 33\n 131 500 exit 426 0",
            )
            .replace("400 500 enter 1", "400 500 enter 426\n 405 500 commit 33")
            .replace("440 500 enter 0", "440 500 enter 426\n 445 500 await");
        assert_eq!(flame(Graph::OffCpu, &by_ring), stacks(&expected));
        // It hands the request on and waits for the ring meanwhile: that wait belongs to no request.
        let handed = "
            90 1 begin 5
            91 501 fetched 33
            92 501 enter 426
            93 501 commit 33
            94 501 end 5
            95 501 exit 426 1
            96 500 enter 426
            97 500 await
            98 500 out
            99 501 enter 202
            100 501 out
            200 1 begin 7
            205 1 wake 500
            210 1 out
            215 500 in
            216 500 fetched 33
            217 500 exit 426 0
            218 500 wake 501
            219 501 in
            220 500 enter 426
            221 500 await
            222 500 out
            230 501 enter 230
            231 501 out
            331 0 wake 501
            341 501 in
            350 501 enter 426
            351 501 commit 33
            352 501 end 7
            353 501 wake 1
            360 1 in
            370 501 exit 426 1
            900 1 enter 2";
        let shown = flame(Graph::OffCpu, handed);
        assert_eq!(shown.get("500"), None);
        assert_eq!((shown["501"], shown["501;[runnable]"]), (100, 11));
        // Meanwhile another caller's request makes it copy that request; then it sleeps on for the first.
        let interrupted = handed.replace(
            "331 0 wake 501",
            "280 2 begin 9
            281 2 wake 501
            283 501 in
            284 501 fetched 44
            286 501 out
            331 0 wake 501",
        );
        let shown = flame(Graph::OffCpu, &interrupted);
        assert_eq!((shown["501"], shown["501;[runnable]"]), (95, 13));
    }

    /// 500 reads and wakes 501 up, which sleeps and answers.
    const HANDED: &str = "
        10 500 enter 0
        20 500 out
        30 501 out
        100 1 begin 7
        100 1 bytes 7 64
        105 1 wake 500
        110 1 out
        120 500 in
        130 500 exit 0 64
        150 500 wake 501
        155 501 in
        160 500 enter 0
        170 500 out
        180 501 out
        350 0 wake 501
        360 501 in
        400 501 enter 1
        410 501 end 7
        412 501 wake 1
        420 1 in
        430 501 exit 1 16
        440 501 out
        500 1 begin 8
        500 1 bytes 8 64
        505 1 wake 500
        510 500 in
        520 500 exit 0 64
    ";

    #[test]
    fn the_answering_thread_is_traced_back_to_its_waker() {
        let expected = [
            ("501", 170),
            ("501;[runnable]", 15),
            ("1", 302),
            ("1;[runnable]", 8),
        ];
        let of_first = |mut folded: BTreeMap<String, u64>| {
            folded.retain(|stack, _| !stack.contains("[unfinished]"));
            folded
        };
        assert_eq!(flame(Graph::OffCpu, HANDED), stacks(&expected));
        let expected = [
            ("[queue]", 30),
            ("[daemon]", 170),
            // 500 from 130 to 150, 501 from 155 to 180 and from 360 on.
            ("[daemon];[on CPU]", 85),
            ("[daemon];[runnable]", 15),
            ("[reply]", 10),
            ("[wakeup]", 10),
        ];
        assert_eq!(of_first(flame(Graph::Requests, HANDED)), stacks(&expected));
        // The same with a callback, which hands the request on at an unknown time.
        let called = HANDED.replace("150 500 wake", "140 500 call 7\n150 500 wake");
        let off = flame(Graph::OffCpu, &called);
        assert_eq!((off["501"], off["501;[runnable]"]), (170, 15));
        let expected = [
            ("[queue]", 30),
            ("[dispatch]", 10),
            ("[daemon]", 170),
            ("[daemon];[on CPU]", 75),
            ("[daemon];[runnable]", 15),
            ("[reply]", 10),
            ("[wakeup]", 10),
        ];
        let whole = of_first(flame(Graph::Requests, &called));
        let named = whole
            .into_iter()
            .map(|(s, ns)| (s.replace("do_lookup", "[daemon]"), ns));
        assert_eq!(named.collect::<BTreeMap<_, _>>(), stacks(&expected));
    }

    #[test]
    fn work_without_a_recorded_wake_up_is_unknown() {
        // 501 ran all the time, and had answered another request meanwhile.
        let text = "
            100 1 begin 7
            100 1 bytes 7 64
            105 1 wake 500
            110 1 out
            120 500 in
            130 500 exit 0 64
            160 500 enter 0
            170 500 out
            200 501 enter 1
            205 501 end 3
            210 501 exit 1 16
            220 501 out
            350 0 wake 501
            360 501 in
            400 501 enter 1
            410 501 end 7
            412 501 wake 1
            420 1 in
        ";
        let expected = [
            ("[queue]", 30),
            ("[daemon, thread unknown]", 75),
            ("[daemon]", 130),
            ("[daemon];[on CPU]", 55),
            ("[daemon];[runnable]", 10),
            ("[reply]", 10),
            ("[wakeup]", 10),
        ];
        assert_eq!(flame(Graph::Requests, text), stacks(&expected));
    }

    #[test]
    fn unanswered_requests_count_to_the_end() {
        let text = "
            100 1 begin 7
            100 1 bytes 7 64
            105 1 wake 500
            110 1 out
            120 500 in
            130 500 exit 0 64
            150 500 out
            900 2 enter 0
        ";
        let expected = [
            ("[unfinished];[queue]", 30),
            ("[unfinished];[daemon];[on CPU]", 20),
            ("[unfinished];[daemon]", 750),
        ];
        assert_eq!(flame(Graph::Requests, text), stacks(&expected));
        let expected = [("1", 790), ("500", 750)];
        assert_eq!(flame(Graph::OffCpu, text), stacks(&expected));
        let unread = "
            100 1 begin 7
            100 1 bytes 7 64
            110 1 out
            900 2 enter 0
        ";
        let expected = [("[unfinished];[queue]", 800)];
        assert_eq!(flame(Graph::Requests, unread), stacks(&expected));
    }

    #[test]
    fn waits_that_end_after_a_time() {
        for count in 0..40_u64 {
            let mut off = crate::answers::offcpu::OffCpu::new(0xff);
            let mut waits = VecDeque::new();
            for number in 0..count {
                off.out(1, 1, 20 * number, 1, ());
                waits.push_back(off.on(1, 20 * number + 10).unwrap());
            }
            for time in 0..20 * count + 20 {
                let expected = waits.partition_point(|wait| wait.to <= time);
                assert_eq!(ending_after(&waits, time), expected);
            }
        }
    }

    #[test]
    fn spans_are_counted_once() {
        let mut spans = Spans::default();
        for (from, to) in [(10, 20), (30, 40), (15, 18), (5, 5), (18, 25), (50, 60)] {
            spans.add(from, to);
        }
        let all: Vec<_> = spans.iter().collect();
        assert_eq!(all, [(10, 25), (30, 40), (50, 60)]);
        let gaps = |from, to| spans.gaps(from, to).collect::<Vec<_>>();
        assert_eq!(gaps(0, 35), [(0, 10), (25, 30)]);
        assert_eq!(gaps(12, 20), []);
        assert_eq!(gaps(45, 70), [(45, 50), (60, 70)]);
        spans.add(20, 55);
        assert_eq!(spans.iter().collect::<Vec<_>>(), [(10, 60)]);
    }
}
