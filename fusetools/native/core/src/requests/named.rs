//! Stories of requests with the names of files, for users of single requests.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::events::{Batch, Chain, Ev, Item, Meaning, Role, Side, ABSENT};
use crate::operations::Operation;
use crate::reader::{Places, Reader, ScanInfo};
use crate::requests::filters::Filters;
use crate::requests::in_flight::Requests;
use crate::requests::names::{Daemon, Details, Names, Path, NOTHING};
use crate::requests::stitch::{
    asleep, symbols, InFlight, Mark, MountCall, RequestCounts, Stitch, Story,
};

/// Request, and what else is known about it.
pub struct Known<'a> {
    pub story: &'a Story,
    pub details: &'a Details,
    names: &'a Names,
    comms: &'a [String],
}

impl Known<'_> {
    pub fn path(&self) -> Option<Path> {
        path(self.names, self.story, self.details)
    }

    pub fn daemon(&self) -> Daemon {
        self.names
            .daemon(self.story.daemon_pid, self.story.connection)
    }

    pub fn path_of_inode(&self, ino: u64) -> Option<Path> {
        self.names.path(self.daemon(), ino)
    }

    /// Return whether it is known which file, or which directory, the request is about.
    pub fn is_about(&self) -> bool {
        let name = self.details.name.as_ref();
        self.details.ino != ABSENT
            || self.story.nodeid != ABSENT
            || name.is_some_and(|name| name.starts_with('/'))
    }

    pub fn place(&self) -> Place {
        let (story, details) = (self.story, self.details);
        let ino = match details.ino {
            ABSENT => story.nodeid,
            ino => ino,
        };
        let name = details.name.as_ref().filter(|name| name.starts_with('/'));
        match (ino, name) {
            (_, Some(path)) if story.operation.names_a_file() => {
                Place::Path(story.connection, directory_of(path).into())
            }
            (_, Some(path)) => Place::Path(story.connection, path.clone()),
            (ABSENT, None) => Place::Unknown,
            (ino, None) => Place::Inode(story.connection, ino),
        }
    }

    /// Return the file's inode; for a lookup, the one in its reply.
    pub fn inode(&self) -> Option<u64> {
        let known = if self.story.operation.names_a_file() {
            Some(self.details.answer)
        } else {
            [self.details.ino, self.story.nodeid]
                .into_iter()
                .find(|ino| *ino != ABSENT)
        };
        known.filter(|ino| !matches!(*ino, 0 | ABSENT))
    }

    /// Return the caller's name; empty if unknown.
    pub fn comm(&self) -> &str {
        self.name_of(self.story.comm)
    }

    /// Return the thread's name that has this number; empty if unknown.
    pub fn name_of(&self, comm: u32) -> &str {
        self.comms.get(comm as usize).map_or("", String::as_str)
    }

    /// Return whether a lookup was answered without an error and without an inode: there is no such file.
    pub fn is_negative(&self) -> bool {
        self.story.error == 0 && self.details.answer == 0
    }

    /// Return whether it is a lookup that finds no file: an answer without an inode, or ENOENT.
    pub fn finds_nothing(&self) -> bool {
        let story = self.story;
        story.operation == Operation::LOOKUP && (self.is_negative() || story.error == -2)
    }
}

/// File or directory that a request is about, on a connection: known by its inode, or only by its path (libfuse's
/// high-level callbacks). A request with a file's name in a directory is about that directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Inode(u64, u64),
    Path(u64, Arc<str>),
    Unknown,
}

/// Return the directory of an absolute path, as the callbacks of its own requests get it.
fn directory_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((directory, _)) => directory,
    }
}

/// Return the path of a request's file.
pub fn path(names: &Names, story: &Story, details: &Details) -> Option<Path> {
    let ino = match details.ino {
        ABSENT => story.nodeid,
        ino => ino,
    };
    names.path_of(
        names.daemon(story.daemon_pid, story.connection),
        story.operation,
        ino,
        details.name.as_deref(),
    )
}

/// Return the time in which a thread of the daemon processes a request. No end: until the recording's end.
pub fn at_work(story: &Story) -> Option<(u64, Option<u64>)> {
    let from = story.at(Mark::Read).or(story.at(Mark::CallbackEnter))?;
    // The thread may go on after its reply, or leave the reply to another thread.
    let to = story.at(Mark::CallbackReturn).or(story.at(Mark::End));
    let to = to.or(Some(story.until).filter(|until| *until != ABSENT));
    let to = Some(story.left).filter(|left| *left != ABSENT).or(to);
    Some((from, to.map(|to| to.max(from))))
}

/// Receiver of complete stories, and of the events between them.
pub trait Listener {
    /// Take the times between which requests begin that the filters select, on the recording's clock.
    fn selects(&mut self, _window: (u64, u64)) {}

    fn story(&mut self, known: &Known<'_>);

    /// Take new stacks. Their numbers continue those before.
    fn chains(&mut self, _new: &[Chain]) {}

    fn event(&mut self, _ev: &Ev, _role: Role) {}

    fn side(&mut self, _record: &Side) {}

    /// Report a system call on a mount, of a thread of this name. Only with `wants_calls`.
    fn call(&mut self, _call: &MountCall, _comm: &str) {}

    fn wants_calls(&self) -> bool {
        false
    }

    /// Finish: everything is reported.
    fn end(&mut self, _names: &Names) {}
}

impl<L: Listener + ?Sized> Listener for &mut L {
    fn selects(&mut self, window: (u64, u64)) {
        (**self).selects(window);
    }

    fn story(&mut self, known: &Known<'_>) {
        (**self).story(known);
    }

    fn chains(&mut self, new: &[Chain]) {
        (**self).chains(new);
    }

    fn event(&mut self, ev: &Ev, role: Role) {
        (**self).event(ev, role);
    }

    fn side(&mut self, record: &Side) {
        (**self).side(record);
    }

    fn call(&mut self, call: &MountCall, comm: &str) {
        (**self).call(call, comm);
    }

    fn wants_calls(&self) -> bool {
        (**self).wants_calls()
    }

    fn end(&mut self, names: &Names) {
        (**self).end(names);
    }
}

/// Read a recording once, and report each request that passes the filters as soon as it is complete.
pub fn tell(
    reader: &Reader,
    catalogue: &[Meaning],
    filters: Filters,
    listener: &mut dyn Listener,
) -> Result<(ScanInfo, RequestCounts, Places), Error> {
    let first = filters.first(reader)?;
    let arch = reader.arch();
    let stitch = Stitch::new(catalogue, filters, arch.as_deref(), first, asleep(reader));
    let mut observer = Observer::new(stitch, catalogue, listener);
    let calls = observer.listener().wants_calls();
    let kernel = if calls { symbols(reader) } else { None };
    if calls {
        observer.stitch.collect_calls();
    }
    let (info, places) = reader.scan_noting(catalogue, &mut |batch| {
        observer.stitch.add_stacks(&batch.stacks, kernel.as_ref());
        observer.push(&batch);
    })?;
    observer.stitch.end_at(info.last);
    Ok((info, observer.finish(), places))
}

/// Reporter: passes a recording's batches to the stitching and to the names, and reports the results.
pub struct Observer<L> {
    roles: Vec<Role>,
    stitch: Stitch,
    /// Name in the arguments of the last callback without a request number.
    unnumbered: Option<Side>,
    all: All<L>,
}

struct All<L> {
    names: Names,
    followed: Followed,
    counts: RequestCounts,
    listener: L,
}

impl<L: Listener> Observer<L> {
    /// Report to `listener`. `catalogue`: as given to the stitching.
    pub fn new(stitch: Stitch, catalogue: &[Meaning], mut listener: L) -> Observer<L> {
        listener.selects(stitch.window());
        let names = Names::new(catalogue, stitch.daemons());
        Observer {
            roles: catalogue.iter().map(|row| row.role).collect(),
            stitch,
            unnumbered: None,
            all: All {
                names,
                followed: Followed::new(catalogue),
                counts: RequestCounts::default(),
                listener,
            },
        }
    }

    pub fn push(&mut self, batch: &Batch) {
        self.all.listener.chains(&batch.stacks);
        batch.in_order(|item| match item {
            Item::Event(event) => self.event(event),
            Item::Side(record) => self.side(record),
        });
        self.settle();
        self.calls();
    }

    fn calls(&mut self) {
        for call in self.stitch.take_calls() {
            let comm = self.stitch.comms().get(call.comm as usize);
            let comm = comm.map_or("", String::as_str);
            self.all.listener.call(&call, comm);
        }
    }

    pub fn listener(&mut self) -> &mut L {
        &mut self.all.listener
    }

    /// Note that ends of requests that have begun until now may be missing.
    pub fn lose(&mut self) {
        self.stitch.lose();
    }

    /// Forget requests whose reply will not come, and names, if there are more than these.
    pub fn bound(&mut self, names: usize, lost: usize) {
        self.all.names.keep(names);
        self.stitch.forget_lost(lost);
    }

    /// Give up the requests of a connection that began before a time when the kernel had none in flight.
    pub fn forget(&mut self, connection: u64, before: u64) {
        self.stitch.forget(connection, before);
    }

    /// Pass on the requests that have begun and not ended.
    pub fn under_way<'a>(&'a self, mut see: impl FnMut(&Known<'a>, InFlight)) {
        for (story, in_flight) in self.stitch.under_way() {
            let details = {
                let names = &self.all.names;
                let daemon = names.daemon(story.daemon_pid, story.connection);
                names.details_of(daemon, story.unique)
            };
            let known = Known {
                story,
                details,
                names: &self.all.names,
                comms: self.stitch.comms(),
            };
            see(&known, in_flight);
        }
    }

    /// Return the daemon of an event. A daemon whose connection is unknown has no names.
    fn daemon(&self, pid: i32, tid: i32, unique: u64) -> Daemon {
        if !self.all.names.several(pid) {
            return (pid, ABSENT);
        }
        let connection = self.stitch.connection_of(pid, tid, unique);
        self.all.names.daemon(pid, connection.unwrap_or(ABSENT))
    }

    /// Return the daemon whose names an event concerns. None: a daemon's call without a request number.
    fn daemon_of_event(&self, event: &Ev) -> Option<Daemon> {
        let [unique, ..] = event.v;
        let numbered = || (unique != ABSENT).then(|| self.daemon(event.pid, event.tid, unique));
        self.all
            .names
            .daemon_of_kernel_event(event)
            .or_else(numbered)
    }

    /// Report the request that ended with the last event, before names change.
    fn settle(&mut self) {
        let all = &mut self.all;
        self.stitch
            .settle(&mut |story, comms| all.story(story, comms));
    }

    fn event(&mut self, event: &Ev) {
        if self.roles.get(event.kind as usize) != Some(&Role::Length) {
            self.settle();
        }
        let concerns = self.all.names.concerns(event);
        let daemon = if concerns {
            self.daemon_of_event(event)
        } else {
            None
        };
        if let Some(daemon) = daemon {
            self.all.names.event(daemon, event);
        }
        let all = &mut self.all;
        self.stitch
            .event(event, &mut |story, comms| all.story(story, comms));
        if concerns && daemon.is_none() {
            self.number(event);
        }
        if let Some(role) = self.roles.get(event.kind as usize) {
            self.all.listener.event(event, *role);
        }
    }

    /// Number a callback without a request number, if the stitching has found its request by what its thread has read.
    fn number(&mut self, event: &Ev) {
        let name = self.unnumbered.take();
        let story = self.stitch.in_hand(event.tid);
        let begins = |story: &&Story| {
            Requests::is_numbered(story.unique) && story.at(Mark::CallbackEnter) == Some(event.time)
        };
        let Some(story) = story.filter(begins) else {
            return;
        };
        let names = &mut self.all.names;
        let daemon = names.daemon(story.daemon_pid, story.connection);
        if let Some(mut name) = name.filter(|name| Side::due(Some(name)) == event.time) {
            if let Side::Name { tid, unique, .. } = &mut name {
                if *tid == event.tid {
                    *unique = story.unique;
                    names.side(daemon, &name);
                }
            }
        }
        let mut event = *event;
        event.v[0] = story.unique;
        names.event(daemon, &event);
    }

    fn side(&mut self, record: &Side) {
        self.settle();
        let daemon = match record {
            Side::Name { unique, .. } if *unique == ABSENT => {
                self.unnumbered = Some(record.clone());
                return self.all.listener.side(record);
            }
            Side::Name {
                pid, tid, unique, ..
            }
            | Side::Listed {
                pid, tid, unique, ..
            } => self.daemon(*pid, *tid, *unique),
            _ => (-1, ABSENT),
        };
        self.all.names.side(daemon, record);
        let all = &mut self.all;
        self.stitch
            .side(record, &mut |story, comms| all.story(story, comms));
        self.all.listener.side(record);
    }

    /// Report the rest.
    pub fn finish(mut self) -> RequestCounts {
        let all = &mut self.all;
        self.stitch
            .rest(&mut |story, comms| all.story(story, comms));
        self.calls();
        let mut all = self.all;
        all.names.end();
        all.listener.end(&all.names);
        all.counts
    }
}

impl<L: Listener> All<L> {
    fn story(&mut self, story: &Story, comms: &[String]) {
        let daemon = self.names.daemon(story.daemon_pid, story.connection);
        let details = self.names.take(daemon, story.unique);
        let details = details.as_ref().unwrap_or(&NOTHING);
        self.counts.add(story);
        self.followed.story(story, details, &mut self.names);
        self.listener.story(&Known {
            story,
            details,
            names: &self.names,
            comms,
        });
    }
}

/// Inodes of lookups, for recordings without those in lookup replies. The caller's next request in the same system call
/// concerns that inode, unless the kernel knew a part of the path.
struct Followed {
    needed: bool,
    /// Facts by caller, and by the time when it ran again after the lookup.
    halves: FxHashMap<(i32, u64), Half>,
}

/// Known half of a lookup and the next request; stories may be reported in another order.
enum Half {
    Lookup(Daemon, u64, Arc<str>),
    Next(Daemon, u64),
}

const MOST_HALVES: usize = 1 << 16;

impl Followed {
    fn new(catalogue: &[Meaning]) -> Followed {
        Followed {
            needed: !catalogue
                .iter()
                .any(|row| matches!(row.role, Role::Inode | Role::Answered)),
            halves: FxHashMap::default(),
        }
    }

    fn story(&mut self, story: &Story, details: &Details, names: &mut Names) {
        if !self.needed || story.daemon_pid < 0 {
            return;
        }
        let daemon = names.daemon(story.daemon_pid, story.connection);
        // Most lookups are the last of their system call.
        if self.halves.len() > MOST_HALVES {
            self.halves.clear();
        }
        let ino = match details.ino {
            ABSENT => story.nodeid,
            ino => ino,
        };
        if let Some(resumed) = story.at(Mark::Resumed) {
            let next = Half::Next(daemon, ino);
            self.meet((story.tid, resumed), next, names);
        }
        let names_file = story.operation == Operation::LOOKUP && story.error == 0;
        let runs = story.at(Mark::Runs).or(story.at(Mark::End));
        if let (true, Some(runs), Some(name)) = (names_file, runs, &details.name) {
            let lookup = Half::Lookup(daemon, details.ino, name.clone());
            self.meet((story.tid, runs), lookup, names);
        }
    }

    fn meet(&mut self, key: (i32, u64), half: Half, names: &mut Names) {
        let other = self.halves.remove(&key);
        match (half, other) {
            (Half::Lookup(daemon, directory, name), Some(Half::Next(same, ino)))
            | (Half::Next(same, ino), Some(Half::Lookup(daemon, directory, name))) => {
                if daemon == same && !names.knows(daemon, ino) {
                    names.learn(daemon, directory, name, ino);
                }
            }
            (half, _) => {
                self.halves.insert(key, half);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_file_is_the_one_that_is_listed() {
        assert_eq!(directory_of("/file"), "/");
        assert_eq!(directory_of("/a/file"), "/a");
        assert_eq!(directory_of("/a/b/file"), "/a/b");
    }
}
