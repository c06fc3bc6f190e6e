//! Requests by file, directory, process or what else a process is known by: one key for each request, and the same sums
//! for each key.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::answers::outcomes::Outcome;
use crate::answers::stages::Durations;
use crate::cost::Cost;
use crate::events::{Ev, Role, Side};
use crate::operations::Arch;
use crate::requests::filters::Filters;
use crate::requests::named::{path, Known, Listener};
use crate::requests::names::{Names, Path};
use crate::requests::stitch::{Cut, Mark, Stage, Story};
use crate::requests::wanted::Wanted;

/// Property that the requests of a group share.
pub enum By {
    File,
    /// Directory of the file.
    Directory,
    Process,
    /// Name of the calling thread.
    Comm,
    /// Label of the calling process.
    Label(Labels),
    /// All requests are of one group.
    One,
}

/// Labels of processes. A process without one has that of the process that made it, unless that gives its children other
/// ones (a batch system, init).
#[derive(Default)]
pub struct Labels {
    noted: FxHashMap<i32, Arc<str>>,
    inherited: FxHashMap<i32, Inherited>,
    /// Processes that made one with another label than theirs.
    managers: FxHashSet<i32>,
    /// The labels are users, which a system call can change.
    users: Option<Arch>,
}

struct Inherited {
    label: Arc<str>,
    /// The process's system calls are recorded.
    calls: bool,
}

impl Labels {
    /// `noted`: labels by process. `users`: they are users on a machine of this kind.
    pub fn new(noted: FxHashMap<i32, Arc<str>>, users: Option<Arch>) -> Labels {
        Labels {
            noted,
            users,
            ..Labels::default()
        }
    }

    /// Return the label of a process, and whether it is inherited.
    fn of(&self, pid: i32) -> Option<(&Arc<str>, bool)> {
        if let Some(label) = self.noted.get(&pid) {
            return Some((label, false));
        }
        let inherited = self.inherited.get(&pid)?;
        let sure = self.users.is_none() || inherited.calls;
        sure.then_some((&inherited.label, true))
    }

    fn side(&mut self, record: &Side) {
        let Side::Fork { pid, ppid, .. } = record else {
            return;
        };
        if pid == ppid {
            return;
        }
        if let Some(own) = self.noted.get(pid) {
            if self.noted.get(ppid).is_some_and(|label| label != own) {
                self.managers.insert(*ppid);
            }
            return;
        }
        // Another process may have had this number.
        self.inherited.remove(pid);
        if *ppid == INIT || self.managers.contains(ppid) || self.inherited.len() >= MOST_PROCESSES {
            return;
        }
        let label = self.of(*ppid).map(|(label, _)| label.clone());
        // A process in no job may begin one.
        if let Some(label) = label.filter(|label| !label.is_empty()) {
            let calls = false;
            self.inherited.insert(*pid, Inherited { label, calls });
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        let (Some(arch), Role::SysEnter) = (self.users, role) else {
            return;
        };
        if let Some(inherited) = self.inherited.get_mut(&ev.pid) {
            inherited.calls = true;
            if arch.changes_user(ev.v[0]) {
                self.inherited.remove(&ev.pid);
            }
        }
    }
}

/// Maximum number of processes with an inherited label; further ones have none.
const MOST_PROCESSES: usize = 1 << 20;
const INIT: i32 = 1;

/// A group's name, or why it has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Text(Arc<str>),
    Process(i32),
    /// No path, or no complete one, is recorded.
    NoPath,
    /// The caller is not recorded.
    NoCaller,
    /// The calling process has no label.
    NoLabel,
}

impl Key {
    fn is_known(&self) -> bool {
        matches!(self, Key::Text(_) | Key::Process(_))
    }
}

/// Order of the groups, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Time that callers waited, or the duration of asynchronous requests.
    Time,
    Requests,
    Slowest,
    Errors,
}

impl Order {
    fn of(self, group: &Group) -> u64 {
        match self {
            Order::Time => group.ns,
            Order::Requests => group.begun,
            Order::Slowest => group.slowest.map_or(0, |(ns, ..)| ns),
            Order::Errors => group.outcome.failed(),
        }
    }
}

/// Durations, the last of them those of unanswered requests: lower bounds from `least` on.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub durations: Durations,
    pub least: Option<u64>,
}

impl Times {
    fn add(&mut self, ns: u64, story: &Story) {
        self.durations.add(ns);
        if story.is_unanswered() {
            self.bound(ns);
        }
    }

    fn bound(&mut self, ns: u64) {
        self.least = Some(self.least.map_or(ns, |least| least.min(ns)));
    }

    fn merge(&mut self, other: Times) {
        self.durations.merge(other.durations);
        other.least.into_iter().for_each(|ns| self.bound(ns));
    }
}

/// Sums of a group. Each equals that of the commands' answers that do not group.
#[derive(Default)]
pub struct Group {
    /// Name of the thread that called last.
    pub comm: Arc<str>,
    pub requests: u64,
    /// Number of those whose begin is recorded.
    pub begun: u64,
    /// Durations with the caller's time before and after, as `stages` has them; from begin to end, as `hist` has them.
    pub whole: Times,
    pub latency: Times,
    /// Time by stage; their sum.
    pub stages: Vec<(Stage, u64)>,
    pub ns: u64,
    pub outcome: Outcome,
    /// Duration and number of the slowest request.
    pub slowest: Option<(u64, u64)>,
}

impl Group {
    fn add(&mut self, known: &Known<'_>, cost: Option<Cost>) {
        let story = known.story;
        self.requests += 1;
        self.outcome.add(known);
        self.begun += u64::from(story.at(Mark::Begin).is_some());
        let (true, Some(begin)) = (story.counts(), story.at(Mark::Begin)) else {
            return;
        };
        let mut cut = Cut::new(story);
        let mut taken = 0;
        if let Some(cost) = cost {
            cut = cut.less(cost);
            taken = cut.taken(Mark::Begin, Mark::End);
        }
        let latency = story.until.saturating_sub(begin).saturating_sub(taken);
        self.latency.add(latency, story);
        self.whole.add(cut.total, story);
        self.ns += cut.total;
        for piece in cut.pieces() {
            self.stage(piece.stage, piece.ns);
        }
        if self.slowest.is_none_or(|(ns, _)| ns < cut.total) {
            self.slowest = Some((cut.total, story.unique));
        }
    }

    fn stage(&mut self, stage: Stage, ns: u64) {
        match self.stages.iter_mut().find(|(of, _)| *of == stage) {
            Some((_, sum)) => *sum += ns,
            None => self.stages.push((stage, ns)),
        }
    }

    fn merge(&mut self, other: Group) {
        self.requests += other.requests;
        self.begun += other.begun;
        self.whole.merge(other.whole);
        self.latency.merge(other.latency);
        self.ns += other.ns;
        for (stage, ns) in other.stages {
            self.stage(stage, ns);
        }
        self.outcome.merge(other.outcome);
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// Maximum number of groups. Requests of further ones count as one group.
const MOST_GROUPS: usize = 1 << 17;

/// Collector of requests in `wanted`. Names of files that become known only later need another pass: see `again`.
pub struct Groups {
    by: By,
    mounts: HashMap<u64, String>,
    wanted: Wanted,
    cost: Option<Cost>,
    learned: Option<Names>,
    /// Number of requests skipped because their paths are unknown.
    pub pathless: u64,
    /// Number of requests of processes whose label is inherited.
    pub inherited: u64,
    /// A path is not complete, and may be at the recording's end.
    undecided: bool,
    groups: FxHashMap<Key, Group>,
    others: Option<Group>,
}

/// The groups in their order.
pub struct Listed {
    pub groups: Vec<(Key, Group)>,
    /// Sum of those that are not listed, and their number.
    pub others: Option<(Group, u64)>,
    /// There were more groups than are kept apart; `others` counts them as one.
    pub full: bool,
}

impl Groups {
    /// `mounts`: mount points by connection; `filters`: as given to `tell`.
    pub fn new(by: By, wanted: Wanted, mounts: HashMap<u64, String>, filters: &Filters) -> Groups {
        Groups {
            by,
            mounts,
            wanted,
            cost: filters.less(),
            learned: None,
            pathless: 0,
            inherited: 0,
            undecided: false,
            groups: FxHashMap::default(),
            others: None,
        }
    }

    /// Prepare another pass over the recording, with the names known at its end. Return whether it is needed.
    pub fn again(&mut self) -> bool {
        let again = self.undecided && self.learned.is_some();
        if again {
            self.groups.clear();
            self.others = None;
            (self.pathless, self.inherited, self.undecided) = (0, 0, false);
        }
        again
    }

    /// Return the first `most` groups, and those without a name.
    pub fn finish(self, order: Order, most: usize) -> Listed {
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by(|(a, x), (b, y)| {
            let last = (!a.is_known()).cmp(&!b.is_known());
            last.then_with(|| Reverse(order.of(x)).cmp(&Reverse(order.of(y))))
                .then_with(|| Reverse(x.requests).cmp(&Reverse(y.requests)))
                .then_with(|| a.cmp(b))
        });
        let full = self.others.is_some();
        let mut others = self.others.map(|group| (group, 1));
        let known = groups.iter().filter(|(key, _)| key.is_known()).count();
        for (_, group) in groups.drain(most.min(known)..known) {
            match &mut others {
                Some((sum, number)) => {
                    sum.merge(group);
                    *number += 1;
                }
                None => others = Some((group, 1)),
            }
        }
        let stages = groups.iter_mut().map(|(_, group)| &mut group.stages);
        for stages in stages.chain(others.iter_mut().map(|(group, _)| &mut group.stages)) {
            stages.sort_by_key(|(stage, _)| *stage);
        }
        Listed {
            groups,
            others,
            full,
        }
    }

    fn key(&mut self, known: &Known<'_>) -> Key {
        let story = known.story;
        let text = |text: &str| Key::Text(text.into());
        match &self.by {
            By::File | By::Directory => {
                let path = self.path(known);
                let path = match self.by {
                    By::Directory => path.and_then(Path::parent),
                    _ => path,
                };
                let mount = self.mounts.get(&story.connection);
                let mount = mount.map_or("", |mount| mount);
                path.map_or(Key::NoPath, |path| text(&path.full(mount)))
            }
            By::One => text(""),
            _ if story.pid < 0 => Key::NoCaller,
            By::Process => Key::Process(story.pid),
            By::Comm => match known.comm() {
                "" => Key::NoCaller,
                comm => text(comm),
            },
            By::Label(labels) => {
                let Some((label, inherited)) = labels.of(story.pid) else {
                    return Key::NoLabel;
                };
                self.inherited += u64::from(inherited);
                Key::Text(label.clone())
            }
        }
    }

    /// Return the path of a request's file, as it was then, or else as it is known at the recording's end.
    fn path(&mut self, known: &Known<'_>) -> Option<Path> {
        let now = known.path();
        if now.as_ref().is_some_and(|path| path.whole) {
            return now;
        }
        self.undecided |= self.learned.is_none();
        match &self.learned {
            Some(names) => path(names, known.story, known.details),
            None => now,
        }
    }
}

impl Listener for Groups {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let duration = match story.counts() && self.wanted.least > 0 {
            true => Cut::new(story).total,
            false => 0,
        };
        let path = self.wanted.path.is_some().then(|| self.path(known));
        match self.wanted.is(story, duration, || path.flatten()) {
            Some(true) => {}
            Some(false) => return,
            None => {
                self.pathless += 1;
                return;
            }
        }
        let key = self.key(known);
        let full = self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key);
        let group = match full {
            true => self.others.get_or_insert_default(),
            false => self.groups.entry(key).or_default(),
        };
        group.add(known, self.cost);
        if matches!(self.by, By::Process) && *group.comm != *known.comm() {
            group.comm = known.comm().into();
        }
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        if let By::Label(labels) = &mut self.by {
            labels.event(ev, role);
        }
    }

    fn side(&mut self, record: &Side) {
        if let By::Label(labels) = &mut self.by {
            labels.side(record);
        }
    }

    fn end(&mut self, names: &Names) {
        if self.undecided {
            self.learned = Some(names.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Operations;

    fn group(ns: &[u64]) -> Group {
        let mut group = Group {
            requests: ns.len() as u64,
            ns: ns.iter().sum(),
            ..Group::default()
        };
        ns.iter().for_each(|ns| group.whole.durations.add(*ns));
        group
    }

    fn groups(rows: impl IntoIterator<Item = (Key, Group)>) -> Groups {
        let wanted = Wanted::of(Operations::default());
        let mut groups = Groups::new(By::Process, wanted, HashMap::new(), &Filters::default());
        groups.groups.extend(rows);
        groups
    }

    #[test]
    fn the_largest_groups_are_listed_and_the_others_summed() {
        let rows = (1..=30).map(|pid| (Key::Process(pid), group(&[pid as u64; 3])));
        let unknown = (Key::NoCaller, group(&[1000; 2]));
        let listed = groups(rows.chain([unknown])).finish(Order::Time, 20);
        assert_eq!(listed.groups.len(), 21);
        assert_eq!(listed.groups[0].0, Key::Process(30));
        assert_eq!(listed.groups[19].0, Key::Process(11));
        assert_eq!(listed.groups[20].0, Key::NoCaller);
        let (others, number) = listed.others.unwrap();
        assert_eq!((others.requests, others.ns, number), (30, 3 * 55, 10));
        let hist = others.whole.durations.hist();
        assert_eq!((hist.count(), hist.max()), (30, Some(10)));
        assert!(!listed.full);
    }

    fn fork(pid: i32, ppid: i32) -> Side {
        Side::Fork {
            time: 0,
            pid,
            tid: pid,
            ppid,
            ptid: ppid,
        }
    }

    fn enters(pid: i32, number: u64) -> Ev {
        Ev {
            time: 0,
            pid,
            tid: pid,
            kind: 0,
            cpu: 0,
            v: [number, 0, 0, 0],
        }
    }

    #[test]
    fn a_process_has_the_label_of_the_one_that_made_it() {
        let noted = [(5, "one"), (2, "two"), (6, ""), (1, "init"), (7, "seven")];
        let noted = noted
            .into_iter()
            .map(|(pid, label)| (pid, label.into()))
            .collect();
        let mut labels = Labels::new(noted, None);
        let forks = [
            (10, 5),
            (11, 10),
            (12, 2),
            (13, 99),
            (5, 5),
            (14, 6),
            (15, 1),
            (16, 7),
        ];
        for (pid, ppid) in [&forks[..], &[(2, 7), (17, 7)]].concat() {
            labels.side(&fork(pid, ppid));
        }
        let of = |labels: &Labels, pid| labels.of(pid).map(|(of, own)| (of.to_string(), own));
        let label = |text: &str, inherited| Some((text.to_owned(), inherited));
        assert_eq!(of(&labels, 11), label("one", true));
        assert_eq!(of(&labels, 12), label("two", true));
        assert_eq!(of(&labels, 2), label("two", false));
        assert_eq!(of(&labels, 16), label("seven", true));
        // Made by an unknown one, by one in no job, by init, by one whose child has another label.
        for pid in [13, 14, 15, 17] {
            assert_eq!(of(&labels, pid), None, "{pid}");
        }
        // Another process has this number later, made by an unknown one.
        labels.side(&fork(11, 99));
        assert_eq!(of(&labels, 11), None);
    }

    #[test]
    fn a_user_is_inherited_until_a_system_call_changes_it() {
        let noted = FxHashMap::from_iter([(5, "ann".into())]);
        let mut labels = Labels::new(noted, Some(Arch::X86_64));
        labels.side(&fork(10, 5));
        // Its system calls may not be recorded.
        assert!(labels.of(10).is_none());
        labels.event(&enters(10, 0), Role::SysEnter);
        assert!(labels.of(10).is_some_and(|(_, inherited)| inherited));
        labels.event(&enters(10, 117), Role::SysEnter);
        labels.event(&enters(10, 0), Role::SysEnter);
        labels.side(&fork(11, 10));
        labels.event(&enters(11, 0), Role::SysEnter);
        assert!(labels.of(10).is_none() && labels.of(11).is_none());
    }

    #[test]
    fn equal_groups_are_ordered_by_name() {
        let rows = (1..=5).rev().map(|pid| (Key::Process(pid), group(&[7])));
        let listed = groups(rows).finish(Order::Errors, 3);
        let keys: Vec<_> = listed.groups.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, [1, 2, 3].map(Key::Process));
    }

    #[test]
    fn a_directory_is_that_of_the_file() {
        let path = |text: &str, whole| Path {
            text: text.to_owned(),
            whole,
        };
        let above = |text, whole| path(text, whole).parent().map(|path| path.full("/mnt"));
        assert_eq!(above("a/b/c", true).unwrap(), "/mnt/a/b");
        assert_eq!(above("a", true).unwrap(), "/mnt");
        assert_eq!(above("", true).unwrap(), "/mnt");
        assert_eq!(above("b/c", false).unwrap(), "/mnt/…/b");
        assert_eq!(above("c", false), None);
    }
}
