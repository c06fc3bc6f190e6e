//! Which connection something in a daemon's process is about. Most processes serve one mount. Where one serves several,
//! requests of one number may be open on each; then the file descriptor shows it: an answer that ends a request names
//! the connection, and is written to the descriptor from which that connection's requests are read.

use rustc_hash::FxHashMap;

use crate::events::ABSENT;

/// Descriptors beyond that were closed long ago.
const MOST_DESCRIPTORS: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Serves {
    connections: FxHashMap<i32, Vec<u64>>,
    /// Whether any process serves several connections.
    shared: bool,
    /// Of processes with several connections: by process and descriptor.
    descriptors: FxHashMap<(i32, u64), u64>,
}

impl Serves {
    /// Processes, each with a connection that it serves.
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

    /// All connections of a process.
    pub fn of(&self, pid: i32) -> &[u64] {
        self.connections.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Who serves a connection.
    pub fn server(&self, connection: u64) -> Option<i32> {
        let mut served = self.connections.iter();
        served.find_map(|(pid, own)| own.contains(&connection).then_some(*pid))
    }

    /// Any process serves it.
    pub fn is_served(&self, connection: u64) -> bool {
        self.server(connection).is_some()
    }

    /// The one connection of a process that has no other.
    pub fn only(&self, pid: i32) -> Option<u64> {
        match self.of(pid) {
            [connection] => Some(*connection),
            _ => None,
        }
    }

    pub fn several(&self, pid: i32) -> bool {
        self.shared && self.of(pid).len() > 1
    }

    /// The process has written an answer of this connection to this descriptor.
    pub fn learn(&mut self, pid: i32, descriptor: u64, connection: u64) {
        if descriptor == ABSENT || !self.several(pid) || !self.of(pid).contains(&connection) {
            return;
        }
        if self.descriptors.len() >= MOST_DESCRIPTORS {
            self.descriptors.clear();
        }
        self.descriptors.insert((pid, descriptor), connection);
    }

    /// Of a process with several connections; ABSENT if unknown.
    pub fn by_descriptor(&self, pid: i32, descriptor: u64) -> u64 {
        if !self.shared {
            return ABSENT;
        }
        let connection = self.descriptors.get(&(pid, descriptor));
        connection.copied().unwrap_or(ABSENT)
    }
}
