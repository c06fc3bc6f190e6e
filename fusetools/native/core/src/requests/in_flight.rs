//! FUSE requests from begin to end, identified by (connection, unique) or by the address of the kernel's struct
//! fuse_req.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;
use crate::operations::Operation;

/// Key of a request: (connection, unique), with ABSENT for a connection that the event lacks; or (BY_ADDRESS, req).
/// Kprobes have the address, often before the kernel has numbered the request.
pub type Key = (u64, u64);

/// Marker in place of a connection's number, which has 32 bits.
const BY_ADDRESS: u64 = ABSENT - 1;

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub operation: Operation,
    /// ABSENT while unknown, like `unique`.
    pub connection: u64,
    pub unique: u64,
    /// Index of the request's story.
    pub place: u32,
}

/// Fields of an event that identify its request; ABSENT if missing.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    pub connection: u64,
    pub unique: u64,
    pub req: u64,
}

impl Identity {
    pub(crate) fn new(unique: u64, connection: u64, req: u64) -> Identity {
        Identity {
            connection,
            unique,
            req,
        }
    }

    /// Return the key of a request that begins with an event with these fields.
    pub fn key(&self) -> Key {
        match self.req {
            ABSENT => (self.connection, self.unique),
            req => (BY_ADDRESS, req),
        }
    }
}

/// Requests that have begun but not ended.
#[derive(Default, Debug)]
pub struct Requests {
    open: FxHashMap<Key, Request>,
    /// Keys of requests known by address, by connection and number.
    numbers: FxHashMap<Key, Key>,
    /// Number of open requests without a number.
    unnumbered: usize,
    connections: Vec<u64>,
}

impl Requests {
    /// Return whether `unique` is a request's number. The kernel numbers requests from 1; some kernels do so only after
    /// fuse_request_send, which then reports 0.
    pub fn is_numbered(unique: u64) -> bool {
        unique != 0 && unique != ABSENT
    }

    /// Add a request. Return it if it cannot be identified. Otherwise return an earlier one with the same key, which
    /// cannot end any more.
    pub fn begin(&mut self, identity: Identity, request: Request) -> Option<Request> {
        if !self.connections.contains(&identity.connection) && self.connections.len() < 1024 {
            self.connections.push(identity.connection);
        }
        let numbered = Requests::is_numbered(identity.unique);
        if identity.req == ABSENT && !numbered {
            return Some(request);
        }
        let key = identity.key();
        let earlier = self.open.insert(key, request);
        if let Some(earlier) = &earlier {
            self.unindex(key, earlier);
        }
        if identity.req != ABSENT && numbered {
            self.numbers
                .insert((identity.connection, identity.unique), key);
        }
        self.unnumbered += usize::from(!numbered);
        earlier
    }

    /// Return the key of an event's open request. `daemon`: the connection that the event's process serves, if any.
    pub fn locate(&self, identity: Identity, daemon: Option<u64>) -> Option<Key> {
        if identity.req != ABSENT && self.open.contains_key(&(BY_ADDRESS, identity.req)) {
            return Some((BY_ADDRESS, identity.req));
        }
        if !Requests::is_numbered(identity.unique) {
            return None;
        }
        let connection = match identity.connection {
            ABSENT => daemon.unwrap_or(ABSENT),
            connection => connection,
        };
        if let Some(key) = self.key((connection, identity.unique)) {
            return Some(key);
        }
        // A kprobe's event without a connection, for a request that a tracepoint reported.
        if connection == ABSENT {
            return only(
                self.connections
                    .iter()
                    .filter_map(|c| self.key((*c, identity.unique))),
            );
        }
        None
    }

    /// Add to a request the fields that its earlier events lacked.
    pub fn learn(
        &mut self,
        key: Key,
        identity: Identity,
        daemon: Option<u64>,
    ) -> Option<&mut Request> {
        let request = self.open.get_mut(&key)?;
        let before = (request.connection, request.unique);
        if request.connection == ABSENT {
            request.connection = match identity.connection {
                ABSENT => daemon.unwrap_or(ABSENT),
                connection => connection,
            };
        }
        if !Requests::is_numbered(request.unique) && Requests::is_numbered(identity.unique) {
            request.unique = identity.unique;
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
        // The event that began the request may lack its connection.
        [number, (ABSENT, number.1)].into_iter().find_map(|number| {
            if self.open.contains_key(&number) {
                return Some(number);
            }
            self.numbers.get(&number).copied()
        })
    }

    /// Return the open request with this number, and its connection.
    pub fn find(&self, number: Key) -> Option<(u64, &Request)> {
        let request = self.open.get(&self.key(number)?)?;
        Some((request.connection, request))
    }

    /// Return the open request that a daemon processes, on a connection that passes `candidate`. It must be the only
    /// one with this number, or with this number and operation.
    pub fn guess(
        &self,
        unique: u64,
        operation: Operation,
        candidate: impl Fn(u64) -> bool,
    ) -> Option<(u64, &Request)> {
        let connections = self.connections.iter().copied();
        let candidates = connections
            .filter(|connection| candidate(*connection))
            .filter_map(|connection| {
                let number = (connection, unique);
                let key = self.numbers.get(&number).unwrap_or(&number);
                self.open.get(key).map(|request| (connection, request))
            });
        let same = |(_, request): &(u64, &Request)| request.operation == operation;
        only(candidates.clone()).or_else(|| only(candidates.filter(same)))
    }
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
