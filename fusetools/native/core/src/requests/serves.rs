//! Connection of an event in a daemon's process. Most processes serve one mount. If one serves several, requests of one
//! number may be open on each; then the file descriptor identifies the connection. A reply that ends a request names
//! the connection, and is written to the descriptor from which that connection's requests are read.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;

/// Maximum number of descriptors: those beyond were closed long ago.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// Maximum number of processes that serve, and of a process's connections.
const MOST_SERVERS: usize = 1 << 12;

#[derive(Clone, Debug, Default)]
pub(crate) struct Serves {
    connections: FxHashMap<i32, Vec<u64>>,
    /// Some process serves several connections.
    shared: bool,
    /// Connection by process and descriptor, for processes with several connections.
    descriptors: FxHashMap<(i32, u64), u64>,
}

impl Serves {
    /// Start with these processes, each with a connection that it serves.
    pub fn new(daemons: &[(i32, u64)]) -> Serves {
        let mut connections: FxHashMap<i32, Vec<u64>> = FxHashMap::default();
        for (pid, connection) in daemons {
            let of_pid = connections.entry(*pid).or_default();
            if !of_pid.contains(connection) {
                of_pid.push(*connection);
            }
        }
        Serves {
            shared: connections.values().any(|own| own.len() > 1),
            connections,
            descriptors: FxHashMap::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub fn knows(&self, pid: i32) -> bool {
        self.connections.contains_key(&pid)
    }

    /// Return all connections of a process.
    pub fn of(&self, pid: i32) -> &[u64] {
        self.connections.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Return the process that serves a connection.
    pub fn server(&self, connection: u64) -> Option<i32> {
        let mut served = self.connections.iter();
        served.find_map(|(pid, own)| own.contains(&connection).then_some(*pid))
    }

    /// Note that a process has answered a request of this connection.
    pub fn add(&mut self, pid: i32, connection: u64) {
        if self.connections.len() >= MOST_SERVERS && !self.knows(pid) {
            return;
        }
        let own = self.connections.entry(pid).or_default();
        if !own.contains(&connection) && own.len() < MOST_SERVERS {
            own.push(connection);
            self.shared |= own.len() > 1;
        }
    }

    /// Return whether any process serves the connection.
    pub fn is_served(&self, connection: u64) -> bool {
        self.server(connection).is_some()
    }

    /// Return the connection of a process that has no other.
    pub fn only(&self, pid: i32) -> Option<u64> {
        match self.of(pid) {
            [connection] => Some(*connection),
            _ => None,
        }
    }

    pub fn several(&self, pid: i32) -> bool {
        self.shared && self.of(pid).len() > 1
    }

    /// Note that the process has written a reply of this connection to this descriptor.
    pub fn learn(&mut self, pid: i32, descriptor: u64, connection: u64) {
        if descriptor == ABSENT || !self.several(pid) || !self.of(pid).contains(&connection) {
            return;
        }
        if self.descriptors.len() >= MOST_DESCRIPTORS {
            self.descriptors.clear();
        }
        self.descriptors.insert((pid, descriptor), connection);
    }

    /// Return the connection of a descriptor of a process with several; ABSENT if unknown.
    pub fn by_descriptor(&self, pid: i32, descriptor: u64) -> u64 {
        if !self.shared {
            return ABSENT;
        }
        let connection = self.descriptors.get(&(pid, descriptor));
        connection.copied().unwrap_or(ABSENT)
    }
}
