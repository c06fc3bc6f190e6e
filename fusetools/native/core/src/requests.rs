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

    /// The open request that a daemon of `connection` has in hand under this number. Where the daemon's connection
    /// is not known: the only one of that number, or the only one of them with the callback's operation.
    pub fn find(
        &self,
        connection: Option<u64>,
        unique: u64,
        operation: Operation,
    ) -> Option<(Key, &Request)> {
        if !Requests::is_numbered(unique) {
            return None;
        }
        let get = |connection| {
            self.open
                .get(&(connection, unique))
                .map(|found| ((connection, unique), found))
        };
        if let Some(connection) = connection {
            return get(connection).or_else(|| get(ABSENT));
        }
        let found = || {
            self.connections
                .iter()
                .filter_map(|connection| get(*connection))
        };
        match found().count() {
            0 | 1 => found().next(),
            _ => {
                let mut same = found().filter(|(_, request)| request.operation == operation);
                same.next().filter(|_| same.next().is_none())
            }
        }
    }

    /// Those that never ended.
    pub fn unfinished(self) -> impl Iterator<Item = Request> {
        self.open.into_values()
    }
}
