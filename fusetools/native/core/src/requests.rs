//! FUSE requests, each keyed by (connection, unique) from its begin to its end.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;
use crate::operations::Operation;

/// ABSENT for the connection where the event does not tell it (kprobes).
pub type Key = (u64, u64);

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub operation: Operation,
    /// ns
    pub begin: u64,
    /// When and by which thread of the daemon it was picked up; None where the kernel does not tell.
    pub sent: Option<(u64, i32)>,
    /// Made by a caller that the filters let pass.
    pub caller: bool,
    /// The answer wants it.
    pub counted: bool,
    /// Its row in the columns.
    pub row: u32,
}

/// Requests that have begun and not ended.
#[derive(Default, Debug)]
pub struct Requests {
    open: FxHashMap<Key, Request>,
    connections: Vec<u64>,
}

impl Requests {
    /// The kernel numbers requests from 1; some say 0 in fuse_request_send since the number is given later.
    pub fn is_numbered(unique: u64) -> bool {
        unique != 0 && unique != ABSENT
    }

    /// An earlier one of the same key, which cannot end any more.
    pub fn begin(&mut self, key: Key, request: Request) -> Option<Request> {
        if !self.connections.contains(&key.0) && self.connections.len() < 1024 {
            self.connections.push(key.0);
        }
        self.open.insert(key, request)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Request> {
        self.open.get_mut(&key)
    }

    pub fn end(&mut self, key: Key) -> Option<Request> {
        self.open.remove(&key)
    }

    /// The open request of this number on a connection.
    pub fn find(&self, key: Key) -> Option<(Key, &Request)> {
        // Where the request's event does not tell its connection, all have the same.
        [key, (ABSENT, key.1)]
            .into_iter()
            .find_map(|key| self.open.get(&key).map(|request| (key, request)))
    }

    /// The open request that a daemon of one of the connections that `candidate` lets pass has in hand: the only one
    /// of this number, or the only one of this number and operation.
    pub fn guess(
        &self,
        unique: u64,
        operation: Operation,
        candidate: impl Fn(u64) -> bool,
    ) -> Option<(Key, &Request)> {
        let connections = self.connections.iter().copied();
        let found = connections
            .filter(|connection| candidate(*connection))
            .filter_map(|connection| {
                let key = (connection, unique);
                self.open.get(&key).map(|request| (key, request))
            });
        let same = |(_, request): &(Key, &Request)| request.operation == operation;
        only(found.clone()).or_else(|| only(found.filter(same)))
    }

    /// Those that never ended.
    pub fn unfinished(self) -> impl Iterator<Item = Request> {
        self.open.into_values()
    }
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
