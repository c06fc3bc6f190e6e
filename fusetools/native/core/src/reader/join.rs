//! Gives a daemon's calls without a request number the number of the request that their thread processes.
//!
//! A thread takes a request when the kernel copies it to the daemon, in the daemon's own thread (Role::Sent). It also
//! takes one by entering a function that gets the request (Role::Taken). It has the request until it takes the next
//! one, or until the request ends. A function that is entered again inside itself for the same request counts as one
//! call: the modules of a library do so.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::events::{Batch, Ev, Layer, Meaning, Role, Side, ABSENT};

/// Maximum depth of a thread's nested calls. With more, some have lost their return.
const DEEPEST: usize = 64;

type Tasks = FxHashMap<i32, Task>;

#[derive(Clone, Debug, Default)]
struct Task {
    unique: Option<u64>,
    /// A call has named the request: names in calls inside that call are ignored.
    named: bool,
    /// Open calls without a number: function, and whether the call is reported.
    open: Vec<(usize, bool)>,
}

pub(crate) struct Join {
    /// Roles by the event's number in the catalogue.
    roles: Vec<Option<Role>>,
    /// Functions by the event's number in the catalogue.
    functions: Vec<usize>,
    /// By function: its returns are recorded.
    returns: Vec<bool>,
    tasks: Tasks,
    /// Some event had no number.
    pub used: bool,
}

impl Join {
    /// Return whether events of this row get a number, or identify the request that their thread processes.
    pub fn needs(row: &Meaning) -> bool {
        match row.role {
            Role::Entry | Role::Return | Role::Name | Role::Taken => row.layer == Layer::Daemon,
            Role::Sent | Role::End => true,
            _ => false,
        }
    }

    /// Prepare to number the events of a catalogue.
    pub fn new(catalogue: &[Meaning]) -> Join {
        let mut names = FxHashMap::default();
        let mut functions = Vec::new();
        for row in catalogue {
            let next = names.len();
            functions.push(*names.entry(row.function.as_str()).or_insert(next));
        }
        let mut returns = vec![false; names.len()];
        for (row, function) in catalogue.iter().zip(&functions) {
            returns[*function] |= row.layer == Layer::Daemon && row.role == Role::Return;
        }
        let role = |row: &Meaning| Join::needs(row).then_some(row.role);
        Join {
            roles: catalogue.iter().map(role).collect(),
            functions,
            returns,
            tasks: Tasks::default(),
            used: false,
        }
    }

    /// Number the events of a batch. Batches come in order.
    pub fn number(&mut self, batch: &mut Batch) {
        self.number_again(batch, &mut &[][..]);
    }

    /// Number a batch of a further pass, which may skip the parts before the times in `begins`.
    pub fn number_again(&mut self, batch: &mut Batch, begins: &mut &[Begin]) {
        if !self.roles.iter().any(Option::is_some) {
            return;
        }
        let mut side = batch.side.iter_mut();
        let mut next = side.next();
        let mut due = Side::due(next.as_deref());
        batch.events.retain_mut(|event| {
            while let Some(record) = next.take_if(|_| due <= event.time) {
                self.begin(due, begins);
                self.name(record);
                next = side.next();
                due = Side::due(next.as_deref());
            }
            self.begin(event.time, begins);
            match self.roles.get(event.kind as usize) {
                Some(Some(role)) => self.event(event, *role),
                _ => true,
            }
        });
        for record in next.into_iter().chain(side) {
            self.begin(Side::due(Some(record)), begins);
            self.name(record);
        }
    }

    /// Restore the tasks noted for the time that a further pass has reached.
    #[inline]
    fn begin(&mut self, time: u64, begins: &mut &[Begin]) {
        while let Some((begin, later)) = begins.split_first().filter(|(b, _)| b.from <= time) {
            self.tasks.clone_from(&begin.tasks);
            *begins = later;
        }
    }

    fn name(&mut self, record: &mut Side) {
        match record {
            Side::Name {
                tid,
                unique,
                handle,
                name,
                ..
            } if *unique == ABSENT => {
                self.used = true;
                match self.tasks.get_mut(tid) {
                    Some(Task {
                        unique: Some(taken),
                        named: named @ false,
                        ..
                    }) => (*unique, *named) = (*taken, true),
                    // The name is of a call inside the one that has named the request.
                    Some(Task {
                        unique: Some(_), ..
                    }) => {
                        *name = "".into();
                        *handle = ABSENT;
                    }
                    // Its request may show only when requests are matched (`named.rs`).
                    _ => {}
                }
            }
            Side::Exit { tid, .. } => drop(self.tasks.remove(tid)),
            Side::Lost { .. } => self.tasks.clear(),
            _ => {}
        }
    }

    /// Number an event. Return whether to report it.
    fn event(&mut self, event: &mut Ev, role: Role) -> bool {
        let function = self.functions[event.kind as usize];
        match role {
            Role::Taken | Role::Sent => {
                // The reply is copied, too.
                let taken = event.v[0];
                if role == Role::Taken || event.v[2] != 0 {
                    let task = self.tasks.entry(event.tid).or_default();
                    if task.unique != Some(taken) {
                        task.unique = Some(taken).filter(|unique| !matches!(*unique, 0 | ABSENT));
                        task.named = false;
                    }
                }
                true
            }
            Role::End => {
                if let Some(task) = self.tasks.get_mut(&event.tid) {
                    if task.unique == Some(event.v[0]) && task.open.is_empty() {
                        task.unique = None;
                    }
                }
                true
            }
            Role::Entry if event.v[0] == ABSENT => {
                self.used = true;
                let task = self.tasks.entry(event.tid).or_default();
                event.v[0] = task.unique.unwrap_or(ABSENT);
                if !self.returns[function] {
                    return true;
                }
                let first = !task.open.iter().any(|(open, _)| *open == function);
                if task.open.len() == DEEPEST {
                    task.open.remove(0);
                }
                task.open.push((function, first));
                first
            }
            Role::Return => {
                let Some(task) = self.tasks.get_mut(&event.tid) else {
                    return true;
                };
                let Some(at) = task.open.iter().rposition(|(open, _)| *open == function) else {
                    return true;
                };
                let first = task.open[at].1;
                // Calls entered after it cannot return any more.
                task.open.truncate(at);
                if event.v[0] == ABSENT {
                    event.v[0] = task.unique.unwrap_or(ABSENT);
                }
                first
            }
            _ => true,
        }
    }
}

/// State of the tasks at a time. Numbering from then on needs nothing from before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begin {
    pub from: u64,
    tasks: Arc<Tasks>,
}

/// Times from which a further pass can begin, spaced so as to keep few threads in all.
pub(crate) struct Begins {
    noted: Vec<Begin>,
    threads: usize,
    /// Number of events from one noted time to the next, and since the last one.
    every: usize,
    since: usize,
}

impl Begins {
    /// Maximum number of threads kept, about 5 MB.
    const MOST: usize = 1 << 16;
    /// Minimum number of events between two noted times.
    const LEAST: usize = 1 << 12;

    pub fn new() -> Begins {
        Begins {
            noted: vec![Begin::default()],
            threads: 0,
            every: Begins::LEAST,
            since: 0,
        }
    }

    /// Note the state after a batch, if due. `last`: the batch's latest time; `events`: number of its events.
    pub fn note(&mut self, last: u64, events: usize, join: &Join) {
        self.since += events;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        self.threads += join.tasks.len() + 1;
        self.noted.push(Begin {
            from: last.saturating_add(1),
            tasks: Arc::new(join.tasks.clone()),
        });
        while self.threads > Begins::MOST && self.noted.len() > 1 {
            let mut at = 0;
            self.noted.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.threads = self.noted.iter().map(|begin| begin.tasks.len() + 1).sum();
            self.every = self.every.saturating_mul(2);
        }
    }

    /// Return the noted times in order. The first is the recording's begin.
    pub fn finish(self) -> Vec<Begin> {
        self.noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Vec<Meaning> {
        let row = |event: &str, layer, function: &str, role| Meaning {
            event: event.into(),
            layer,
            function: function.into(),
            operation: String::new(),
            role,
        };
        vec![
            row("d:take", Layer::Daemon, "take", Role::Taken),
            row("d:a", Layer::Daemon, "a", Role::Entry),
            row("d:a__return", Layer::Daemon, "a", Role::Return),
            row("d:b", Layer::Daemon, "b", Role::Entry),
            row("f:end", Layer::Request, "", Role::End),
        ]
    }

    /// Return (kind, unique) of each reported event. `events`: (kind, tid, unique).
    fn joined(events: &[(u32, i32, u64)]) -> Vec<(u32, u64)> {
        let mut batch = Batch::default();
        for (time, (kind, tid, unique)) in events.iter().enumerate() {
            let v = [*unique, ABSENT, ABSENT, ABSENT];
            let (time, tid, kind) = (time as u64, *tid, *kind);
            batch.events.push(Ev {
                time,
                pid: 1,
                tid,
                kind,
                cpu: 0,
                v,
            });
        }
        Join::new(&catalogue()).number(&mut batch);
        batch
            .events
            .iter()
            .map(|event| (event.kind, event.v[0]))
            .collect()
    }

    const NONE: u64 = ABSENT;

    #[test]
    fn a_call_is_of_the_request_that_its_thread_has() {
        let events = [
            (0, 1, 7),
            (0, 2, 8),
            (1, 1, NONE),
            (1, 2, NONE),
            (2, 2, NONE),
            (2, 1, NONE),
        ];
        assert_eq!(
            joined(&events),
            [(0, 7), (0, 8), (1, 7), (1, 8), (2, 8), (2, 7)]
        );
    }

    #[test]
    fn a_recursive_callback_is_one_call() {
        let events = [
            (0, 1, 7),
            (1, 1, NONE),
            (1, 1, NONE),
            (3, 1, NONE),
            (2, 1, NONE),
            (2, 1, NONE),
            (1, 1, NONE),
        ];
        assert_eq!(joined(&events), [(0, 7), (1, 7), (3, 7), (2, 7), (1, 7)]);
    }

    #[test]
    fn no_thread_has_a_request_after_its_end() {
        let events = [
            (0, 1, 7),
            (3, 1, NONE),
            (4, 1, 7),
            (3, 1, NONE),
            (3, 2, NONE),
        ];
        assert_eq!(
            joined(&events),
            [(0, 7), (3, 7), (4, 7), (3, NONE), (3, NONE)]
        );
    }

    #[test]
    fn known_numbers_stay() {
        assert_eq!(
            joined(&[(0, 1, 7), (1, 1, 9), (1, 1, 9)]),
            [(0, 7), (1, 9), (1, 9)]
        );
    }
}
