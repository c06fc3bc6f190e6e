//! Timeline of one request: what its caller and the daemon's thread did.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{by_interrupt, is, work, Meanwhile, Replay, NO_END};
use crate::answers::slowest::NamedRequest;
use crate::events::{Layer, Meaning, Role, ABSENT};
use crate::requests::moments::{Moment, Span, What};
use crate::requests::peers;
use crate::requests::stitch::{Mark, Story};

/// Actions of the caller and of the daemon at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// In ns on the recording's clock.
    pub time: u64,
    pub caller: Option<Action>,
    pub daemon: Option<Action>,
}

/// Action of a thread. `what` says which other fields have a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Action {
    #[serde(rename = "code")]
    pub what: &'static str,
    /// Function or system call.
    pub name: String,
    /// Peer of the socket in a system call.
    pub peer: Option<String>,
    /// Thread that is woken up, or that wakes this one.
    pub tid: Option<i32>,
    /// CPU, signal, result of a system call, error, or inode that the daemon answers.
    pub number: Option<i64>,
    /// Number of another request than the one shown.
    pub unique: Option<u64>,
    /// Name of a file or an attribute in `inode`.
    pub file: Option<String>,
    pub inode: Option<u64>,
    pub size: Option<u64>,
    pub offset: Option<u64>,
}

impl Action {
    fn new(what: &'static str) -> Action {
        Action {
            what,
            ..Action::default()
        }
    }

    fn named(what: &'static str, name: &str) -> Action {
        Action {
            name: name.to_owned(),
            ..Action::new(what)
        }
    }

    fn numbered(what: &'static str, number: i64) -> Action {
        Action {
            number: Some(number),
            ..Action::new(what)
        }
    }
}

impl Replay<'_> {
    /// Return a request's timeline, and what the daemon did for it. `functions`: function_graph's kernel functions by
    /// address.
    pub fn timeline(
        &self,
        request: &NamedRequest,
        functions: &[(u64, String)],
    ) -> (Vec<Line>, Option<Meanwhile>) {
        let story = &request.story;
        let spans = [caller(story), daemon(story), work(story)];
        let mut moments = self.gather(&spans);
        let at_work = moments.pop().unwrap_or_default();
        let mut lines: Vec<Line> = Vec::new();
        let mut places: FxHashMap<(u64, i64, i32), usize> = FxHashMap::default();
        for (side, moments) in moments.iter().enumerate() {
            let tid = [story.tid, story.daemon_tid][side];
            let mut thread = Thread::new(self, story, tid, side == 1, functions);
            for moment in moments {
                let Some(action) = thread.action(moment) else {
                    continue;
                };
                // An event may concern both threads: one wakes the other.
                let kind = match moment.what {
                    What::Event(kind, _) => i64::from(kind),
                    _ => -1,
                };
                let key = (moment.time, kind, moment.tid);
                let place = *places.entry(key).or_insert(lines.len());
                if place == lines.len() {
                    lines.push(Line {
                        time: moment.time,
                        caller: None,
                        daemon: None,
                    });
                }
                let line = &mut lines[place];
                let action = Some(action);
                match side {
                    0 => line.caller = action,
                    _ => line.daemon = action,
                }
            }
        }
        lines.sort_by_key(|line| line.time);
        let meanwhile = self.meanwhile_of(&[story], &spans[2..], &[at_work]);
        (lines, meanwhile.into_iter().next().flatten())
    }
}

/// Return the span of the caller's thread during the request.
fn caller(story: &Story) -> Option<Span> {
    let starts = [
        Mark::SysEnter,
        Mark::Resumed,
        Mark::KernelEnter,
        Mark::Begin,
    ];
    let ends = [
        Mark::End,
        Mark::Waking,
        Mark::Runs,
        Mark::KernelExit,
        Mark::Leaves,
        Mark::SysExit,
    ];
    // The caller of an asynchronous request does not wait for it.
    let ends: &[Mark] = if story.waits { &ends } else { &[Mark::Begin] };
    span(story, story.tid, &starts, ends)
}

/// Return the span of the daemon's thread during the request.
fn daemon(story: &Story) -> Option<Span> {
    let starts = [
        Mark::DaemonRuns,
        Mark::Sent,
        Mark::Read,
        Mark::CallbackEnter,
    ];
    let ends = [Mark::Reply, Mark::End, Mark::CallbackReturn];
    span(story, story.daemon_tid, &starts, &ends)
}

fn span(story: &Story, tid: i32, starts: &[Mark], ends: &[Mark]) -> Option<Span> {
    let from = starts.iter().filter_map(|mark| story.at(*mark)).min()?;
    let to = ends.iter().filter_map(|mark| story.at(*mark)).max();
    (tid >= 0).then_some(Span {
        tid,
        from,
        to: to.unwrap_or(NO_END).max(from),
    })
}

/// Reader of the moments of one thread.
struct Thread<'a> {
    replay: &'a Replay<'a>,
    story: &'a Story,
    tid: i32,
    is_daemon: bool,
    functions: &'a [(u64, String)],
    /// Events that already have a line as a point of the request.
    points: Vec<&'a str>,
    running: Option<bool>,
    /// Name in the arguments of the next callback, and the inode of its directory.
    name: Option<(String, u64)>,
}

impl<'a> Thread<'a> {
    fn new(
        replay: &'a Replay<'a>,
        story: &'a Story,
        tid: i32,
        is_daemon: bool,
        functions: &'a [(u64, String)],
    ) -> Thread<'a> {
        let is_point = |row: &&Meaning| matches!(row.role, Role::Begin | Role::Sent | Role::End);
        let points = replay.catalogue.iter().filter(is_point);
        Thread {
            replay,
            story,
            tid,
            is_daemon,
            functions,
            points: points.map(|row| row.event.as_str()).collect(),
            running: None,
            name: None,
        }
    }

    /// Return a moment's action; None if it adds nothing new.
    fn action(&mut self, moment: &Moment) -> Option<Action> {
        let (kind, v) = match &moment.what {
            What::Switch { out, preempt } => return self.switch(!out, *preempt, moment.cpu),
            What::Name(name, inode) => {
                self.name = (!name.is_empty()).then(|| (name.to_string(), *inode));
                return None;
            }
            What::Event(kind, v) => (*kind, v),
        };
        let row = self.replay.catalogue.get(kind as usize)?;
        let own = is(self.tid, v[0]);
        match row.role {
            // These events provide only names, or have another role that gets the line.
            Role::Name
            | Role::Handle
            | Role::Listed
            | Role::Length
            | Role::Asked
            | Role::About
            | Role::Sized
            | Role::Answered
            | Role::Forgotten => None,
            Role::Entry if self.points.contains(&row.event.as_str()) => None,
            Role::Switch if own => self.switch(false, matches!(v[1], 0 | ABSENT), moment.cpu),
            Role::Switch => self.switch(true, false, moment.cpu),
            // The task that runs during an interrupt has nothing to do with the wake-up.
            Role::Waking if by_interrupt(v) => own.then(|| Action::new("interrupted")),
            Role::Waking if moment.tid == self.tid => Some(Action {
                tid: known(v[0]).map(|tid| tid as i32),
                ..Action::new("wakes")
            }),
            Role::Waking => Some(Action {
                tid: Some(moment.tid).filter(|tid| *tid != 0),
                ..Action::new("woken")
            }),
            Role::Signal => {
                let number = known(v[0]).unwrap_or(0) as i64;
                is(self.tid, v[1]).then(|| Action::numbered("signal", number))
            }
            Role::Connect => Some(Action {
                peer: Some(peers::address(v).unwrap_or(peers::UNKNOWN.into())),
                ..Action::new("connects")
            }),
            Role::Fetched => Some(Action::new("fetched")),
            Role::Committed => Some(Action::new("committed")),
            Role::RingWait => Some(Action::new("ring_wait")),
            Role::SysEnter | Role::SysExit => self.syscall(row.role, v, moment.time),
            Role::Begin | Role::Sent | Role::End => self.request(row.role, v, moment.time),
            Role::GraphEntry => Some(Action::named("calls", &self.function(v[0]))),
            Role::GraphExit => Some(Action::named("leaves", &self.function(v[0]))),
            Role::Inode => Some(match known(v[1]).filter(|inode| *inode != 0) {
                Some(inode) => Action {
                    inode: Some(inode),
                    ..Action::new("inode")
                },
                None => Action::new("no_file"),
            }),
            Role::Return => Some(Action::named("leaves", &row.function)),
            _ if row.layer == Layer::Kernel => Some(Action::named("calls", &row.function)),
            _ => {
                let [unique, inode, size, offset] = v.map(known);
                let (file, inode) = match self.name.take() {
                    Some((file, directory)) => (Some(file), known(directory)),
                    None => (None, inode),
                };
                Some(Action {
                    unique: unique.filter(|unique| *unique != self.story.unique),
                    file,
                    inode,
                    size,
                    offset,
                    ..Action::named("callback", &row.function)
                })
            }
        }
    }

    /// Return a switch of the thread. Two kinds of events may report the same one.
    fn switch(&mut self, runs: bool, preempted: bool, cpu: u32) -> Option<Action> {
        if self.running.replace(runs) == Some(runs) {
            return None;
        }
        Some(match (runs, preempted) {
            (true, _) => Action {
                number: Some(i64::from(cpu)).filter(|_| cpu != u32::MAX),
                ..Action::new("runs")
            },
            (false, true) => Action::new("preempted"),
            (false, false) => Action::new("sleeps"),
        })
    }

    fn syscall(&self, role: Role, v: &[u64; 4], time: u64) -> Option<Action> {
        if self.replay.arch.is_fake(v[0]) {
            return None;
        }
        let name = self.replay.arch.syscall(v[0]);
        if role == Role::SysExit {
            return Some(Action {
                number: known(v[1]).map(|result| result as i64),
                ..Action::named("returns", &name)
            });
        }
        let peer = |pid| {
            let peer = self.replay.peer(pid, v, time);
            peer.or_else(|| self.replay.file(pid, v)).map(str::to_owned)
        };
        Some(Action {
            // Only the daemon's connections and files are known.
            peer: Some(self.story.daemon_pid)
                .filter(|_| self.is_daemon)
                .and_then(peer),
            ..Action::named("enters", &name)
        })
    }

    fn request(&self, role: Role, v: &[u64; 4], time: u64) -> Option<Action> {
        let (mark, what) = match role {
            Role::Begin => (Mark::Begin, "begin"),
            Role::Sent => (Mark::Sent, "sent"),
            _ => (Mark::End, "end"),
        };
        let own = self.story.at(mark) == Some(time) || v[0] == self.story.unique;
        if role == Role::Sent && v[2] == 0 {
            return own.then(|| Action::new("copies"));
        }
        let error = known(v[2]).map_or(0, |error| error as u32 as i32);
        Some(Action {
            unique: Some(v[0]).filter(|_| !own),
            number: (role == Role::End).then_some(i64::from(error)),
            ..Action::new(what)
        })
    }

    /// Return the name of the function at an address.
    fn function(&self, address: u64) -> String {
        let after = self
            .functions
            .partition_point(|(start, _)| *start <= address);
        match after.checked_sub(1) {
            Some(at) => self.functions[at].1.clone(),
            None => format!("{address:#x}"),
        }
    }
}

fn known(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value != ABSENT)
}
