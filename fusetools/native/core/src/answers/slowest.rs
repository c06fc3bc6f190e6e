//! The slowest requests, and those with a given number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::events::{Ev, Role};
use crate::requests::named::{path, Known, Listener};
use crate::requests::names::{Details, Names, Path};
use crate::requests::peers::Peers;
use crate::requests::stitch::{Cut, Mark, MountCall, Story};
use crate::requests::wanted::Wanted;

/// A request with its names and duration.
#[derive(Clone, Debug)]
pub struct NamedRequest {
    pub story: Story,
    pub details: Details,
    pub path: Option<Path>,
    pub inode: Option<u64>,
    pub comm: String,
    /// Name of the process that aborted it.
    pub aborter: String,
    /// Time in ns that its caller waited for it; for an asynchronous request, from its begin to its end. If unanswered:
    /// until it was over.
    pub duration: u64,
}

impl NamedRequest {
    /// Add names that became known after the request.
    fn learn(&mut self, names: &Names) {
        if !self.path.as_ref().is_some_and(|path| path.whole) {
            self.path = path(names, &self.story, &self.details);
        }
    }

    pub(crate) fn new(known: &Known<'_>, duration: u64) -> NamedRequest {
        NamedRequest {
            story: known.story.clone(),
            details: known.details.clone(),
            path: known.path(),
            inode: known.inode(),
            comm: known.comm().to_owned(),
            aborter: match known.story.aborter < 0 {
                true => String::new(),
                false => known.name_of(known.story.aborter_comm).to_owned(),
            },
            duration,
        }
    }
}

/// Collector of the `most` slowest requests in `wanted`. The earlier one of equally slow requests is kept.
///
/// If paths are selected, names that become known only later may be needed: see `again`.
pub struct Slowest {
    most: usize,
    wanted: Wanted,
    /// Names known at the recording's end.
    learned: Option<Names>,
    /// Number of requests skipped because their paths are unknown.
    pub pathless: u64,
    /// The end of some request left open whether it is wanted.
    undecided: bool,
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>, u32)>>,
    requests: Vec<NamedRequest>,
    pub peers: Peers,
    /// System calls with the most time outside of requests, each with its thread's name, longest first.
    pub calls: Vec<(MountCall, String)>,
}

impl Slowest {
    pub fn new(most: usize, wanted: Wanted) -> Slowest {
        Slowest {
            most,
            wanted,
            learned: None,
            pathless: 0,
            undecided: false,
            heap: BinaryHeap::new(),
            requests: Vec::new(),
            peers: Peers::default(),
            calls: Vec::new(),
        }
    }

    /// Prepare another pass over the recording, with the names known at its end. Return whether it is needed.
    pub fn again(&mut self) -> bool {
        let again = self.undecided && self.learned.is_some();
        if again {
            self.heap.clear();
            self.requests.clear();
            self.calls.clear();
            (self.pathless, self.undecided) = (0, false);
        }
        again
    }

    /// Return the requests, slowest first.
    pub fn finish(&mut self) -> Vec<NamedRequest> {
        let mut requests = std::mem::take(&mut self.requests);
        requests.sort_by_key(|request| (Reverse(request.duration), request.story.start()));
        requests
    }
}

impl Listener for Slowest {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let Some(begin) = story.at(Mark::Begin).filter(|_| story.counts()) else {
            return;
        };
        if self.most == 0 {
            return;
        }
        let duration = Cut::new(story).total;
        let mut whole = true;
        let fits = self.wanted.is(story, duration, || {
            let now = known.path();
            whole = now.as_ref().is_some_and(|path| path.whole);
            match &self.learned {
                Some(names) if !whole => path(names, story, known.details),
                _ => now,
            }
        });
        self.undecided |= !whole && self.learned.is_none();
        self.pathless += u64::from(fits.is_none());
        if fits != Some(true) {
            return;
        }
        let rank = |place| Reverse((duration, Reverse(begin), place));
        if self.requests.len() < self.most {
            self.heap.push(rank(self.requests.len() as u32));
            self.requests.push(NamedRequest::new(known, duration));
            return;
        }
        let Some(Reverse((least, earlier, place))) = self.heap.peek().copied() else {
            return;
        };
        if (duration, Reverse(begin)) > (least, earlier) {
            self.heap.pop();
            self.heap.push(rank(place));
            self.requests[place as usize] = NamedRequest::new(known, duration);
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        if self.learned.is_none() {
            self.peers.event(ev, role); // in the first pass
        }
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn call(&mut self, call: &MountCall, comm: &str) {
        let rest = call.rest();
        if rest == 0 || !self.wanted.is_call(call, rest) {
            return;
        }
        let at = self
            .calls
            .partition_point(|(known, _)| known.rest() >= rest);
        if at < self.most {
            self.calls.insert(at, (call.clone(), comm.to_owned()));
            self.calls.truncate(self.most);
        }
    }

    fn end(&mut self, names: &Names) {
        self.requests
            .iter_mut()
            .for_each(|request| request.learn(names));
        if self.undecided {
            self.learned = Some(names.clone());
        }
    }
}

/// Collector of the requests with a given number, at most `MOST`.
pub struct Numbered {
    unique: u64,
    pub requests: Vec<NamedRequest>,
    pub peers: Peers,
}

const MOST: usize = 64;

impl Numbered {
    pub fn new(unique: u64) -> Numbered {
        Numbered {
            unique,
            requests: Vec::new(),
            peers: Peers::default(),
        }
    }
}

impl Listener for Numbered {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.unique == self.unique && self.requests.len() < MOST {
            let duration = match story.counts() {
                true => Cut::new(story).total,
                false => 0,
            };
            self.requests.push(NamedRequest::new(known, duration));
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        self.peers.event(ev, role);
    }

    fn end(&mut self, names: &Names) {
        self.requests
            .iter_mut()
            .for_each(|request| request.learn(names));
    }
}
