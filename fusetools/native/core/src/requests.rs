//! FUSE requests, from begin to end: by (connection, unique), or by the address of the kernel's struct fuse_req.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;
use crate::operations::Operation;

/// (connection, unique), ABSENT for the connection where the event does not tell it; or (BY_ADDRESS, req), since
/// kprobes tell the address, and often before the kernel has numbered the request.
pub type Key = (u64, u64);

/// No connection's number: those have 32 bits.
const BY_ADDRESS: u64 = ABSENT - 1;

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub operation: Operation,
    /// ABSENT while not known, so `unique`.
    pub connection: u64,
    pub unique: u64,
    /// Where its story is.
    pub place: u32,
}

/// What an event tells of its request; ABSENT where it does not.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub connection: u64,
    pub unique: u64,
    pub req: u64,
}

impl Told {
    pub(crate) fn new(unique: u64, connection: u64, req: u64) -> Told {
        Told {
            connection,
            unique,
            req,
        }
    }

    /// That of a request which began with an event that told as much.
    pub fn key(&self) -> Key {
        match self.req {
            ABSENT => (self.connection, self.unique),
            req => (BY_ADDRESS, req),
        }
    }
}

/// Requests that have begun and not ended.
#[derive(Default, Debug)]
pub struct Requests {
    open: FxHashMap<Key, Request>,
    /// Of those known by address: their key, by connection and number.
    numbers: FxHashMap<Key, Key>,
    /// How many of them have no number yet.
    unnumbered: usize,
    connections: Vec<u64>,
}

impl Requests {
    /// The kernel numbers requests from 1; some say 0 in fuse_request_send since the number is given later.
    pub fn is_numbered(unique: u64) -> bool {
        unique != 0 && unique != ABSENT
    }

    /// Takes up a request that can be told apart. Comes back: one that cannot, or an earlier one of the same key,
    /// which cannot end any more.
    pub fn begin(&mut self, told: Told, request: Request) -> Option<Request> {
        if !self.connections.contains(&told.connection) && self.connections.len() < 1024 {
            self.connections.push(told.connection);
        }
        let numbered = Requests::is_numbered(told.unique);
        if told.req == ABSENT && !numbered {
            return Some(request);
        }
        let key = told.key();
        let earlier = self.open.insert(key, request);
        if let Some(earlier) = &earlier {
            self.unindex(key, earlier);
        }
        if told.req != ABSENT && numbered {
            self.numbers.insert((told.connection, told.unique), key);
        }
        self.unnumbered += usize::from(!numbered);
        earlier
    }

    /// The open request that an event is about. `daemon` is the connection that the event's process serves, if any.
    pub fn locate(&self, told: Told, daemon: Option<u64>) -> Option<Key> {
        if told.req != ABSENT && self.open.contains_key(&(BY_ADDRESS, told.req)) {
            return Some((BY_ADDRESS, told.req));
        }
        if !Requests::is_numbered(told.unique) {
            return None;
        }
        let connection = match told.connection {
            ABSENT => daemon.unwrap_or(ABSENT),
            connection => connection,
        };
        if let Some(key) = self.key((connection, told.unique)) {
            return Some(key);
        }
        // A kprobe's event that tells no connection, of a request that a tracepoint told.
        if connection == ABSENT {
            return only(
                self.connections
                    .iter()
                    .filter_map(|c| self.key((*c, told.unique))),
            );
        }
        None
    }

    /// Adds to a request what an event tells that the earlier ones did not.
    pub fn learn(&mut self, key: Key, told: Told, daemon: Option<u64>) -> Option<&mut Request> {
        let request = self.open.get_mut(&key)?;
        let before = (request.connection, request.unique);
        if request.connection == ABSENT {
            request.connection = match told.connection {
                ABSENT => daemon.unwrap_or(ABSENT),
                connection => connection,
            };
        }
        if !Requests::is_numbered(request.unique) && Requests::is_numbered(told.unique) {
            request.unique = told.unique;
        }
        let now = (request.connection, request.unique);
        if key.0 == BY_ADDRESS && now != before && Requests::is_numbered(now.1) {
            self.numbers.remove(&before);
            self.unnumbered -= usize::from(!Requests::is_numbered(before.1));
            self.numbers.insert(now, key);
            if !self.connections.contains(&now.0) && self.connections.len() < 1024 {
                self.connections.push(now.0);
            }
        }
        Some(request)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Request> {
        self.open.get_mut(&key)
    }

    pub fn end(&mut self, key: Key) -> Option<Request> {
        let request = self.open.remove(&key)?;
        self.unindex(key, &request);
        Some(request)
    }

    fn unindex(&mut self, key: Key, request: &Request) {
        if key.0 == BY_ADDRESS {
            let number = (request.connection, request.unique);
            if !Requests::is_numbered(number.1) {
                self.unnumbered -= 1;
            } else if self.numbers.get(&number) == Some(&key) {
                self.numbers.remove(&number);
            }
        }
    }

    pub fn any_unnumbered(&self) -> bool {
        self.unnumbered > 0
    }

    fn key(&self, number: Key) -> Option<Key> {
        // Where the request's event does not tell its connection, all have the same.
        [number, (ABSENT, number.1)].into_iter().find_map(|number| {
            if self.open.contains_key(&number) {
                return Some(number);
            }
            self.numbers.get(&number).copied()
        })
    }

    /// The open request of this number on a connection, with its connection.
    pub fn find(&self, number: Key) -> Option<(u64, &Request)> {
        let request = self.open.get(&self.key(number)?)?;
        Some((request.connection, request))
    }

    /// The open request that a daemon of one of the connections that `candidate` lets pass has in hand: the only one
    /// of this number, or the only one of this number and operation.
    pub fn guess(
        &self,
        unique: u64,
        operation: Operation,
        candidate: impl Fn(u64) -> bool,
    ) -> Option<(u64, &Request)> {
        let connections = self.connections.iter().copied();
        let found = connections
            .filter(|connection| candidate(*connection))
            .filter_map(|connection| {
                let number = (connection, unique);
                let key = self.numbers.get(&number).unwrap_or(&number);
                self.open.get(key).map(|request| (connection, request))
            });
        let same = |(_, request): &(u64, &Request)| request.operation == operation;
        only(found.clone()).or_else(|| only(found.filter(same)))
    }
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
