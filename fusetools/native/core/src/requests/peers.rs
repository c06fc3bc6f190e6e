//! Peers of sockets: the address that a process connected a descriptor to, and until when.
//!
//! A connection may be made for one request and used for others, by any thread of the process. It is a descriptor's
//! peer from the connect() to the close() or the next connect().

use std::net::Ipv6Addr;

use rustc_hash::FxHashMap;

use crate::events::{Ev, Role, ABSENT};
use crate::operations::Arch;

/// Maximum number of connections; further ones are unknown.
const MOST: usize = 1 << 16;

/// Connection of a process, from one time to another. `address`: port and address as in a Connect event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: i32,
    pub descriptor: u64,
    pub from: u64,
    pub to: u64,
    pub address: [u64; 3],
}

#[derive(Default)]
pub struct Peers {
    arch: Option<Arch>,
    /// Descriptor that a thread connects now, by thread.
    connecting: FxHashMap<i32, u64>,
    /// Place in `rows` of the open connection, by process and descriptor.
    open: FxHashMap<(i32, u64), usize>,
    pub rows: Vec<Peer>,
}

impl Peers {
    pub fn new(arch: Arch) -> Peers {
        Peers {
            arch: Some(arch),
            ..Peers::default()
        }
    }

    pub fn event(&mut self, ev: &Ev, role: Role) {
        let Some(arch) = self.arch else { return };
        match role {
            Role::SysEnter => {
                let [number, descriptor, ..] = ev.v;
                if arch.is_connect(number) {
                    if self.connecting.len() < MOST {
                        self.connecting.insert(ev.tid, descriptor);
                    }
                } else if arch.is_close(number) {
                    self.close(ev.pid, descriptor, ev.time);
                }
            }
            Role::SysExit if arch.is_connect(ev.v[0]) => {
                self.connecting.remove(&ev.tid);
            }
            Role::Connect => {
                let [port, first, last, _] = ev.v;
                let descriptor = self.connecting.get(&ev.tid).copied();
                let Some(descriptor) = descriptor.filter(|_| self.rows.len() < MOST) else {
                    return;
                };
                self.close(ev.pid, descriptor, ev.time);
                self.open.insert((ev.pid, descriptor), self.rows.len());
                self.rows.push(Peer {
                    pid: ev.pid,
                    descriptor,
                    from: ev.time,
                    to: ABSENT,
                    address: [port, first, last],
                });
            }
            _ => {}
        }
    }

    /// Return port and address of the peer that a descriptor has now.
    pub fn now(&self, pid: i32, descriptor: u64) -> Option<[u64; 3]> {
        let place = self.open.get(&(pid, descriptor))?;
        Some(self.rows[*place].address)
    }

    fn close(&mut self, pid: i32, descriptor: u64, time: u64) {
        if let Some(place) = self.open.remove(&(pid, descriptor)) {
            self.rows[place].to = time;
        }
    }
}

/// Name of a connection's peer whose address was not recorded.
pub const UNKNOWN: &str = "a peer that is not known";

/// Return the peer's address in a Connect event's values: "192.0.2.1:3128" or "[2001:db8::1]:80".
pub fn address(v: &[u64]) -> Option<String> {
    let [port, first, last, ..] = *v else {
        return None;
    };
    if [port, first, last].contains(&ABSENT) {
        return None;
    }
    let halves = (u128::from(last) << 64 | u128::from(first)).to_le_bytes();
    let address = Ipv6Addr::from(halves);
    Some(match address.to_ipv4_mapped() {
        Some(address) => format!("{address}:{port}"),
        None => format!("[{address}]:{port}"),
    })
}

/// Begin, end and peer of a connection.
type Span = (u64, u64, String);

/// Peers of sockets by process and descriptor.
#[derive(Default)]
pub struct Connections {
    /// Peers of connections that were open for the whole recording.
    whole: FxHashMap<(i32, u64), String>,
    /// Connections that were made in it.
    made: FxHashMap<(i32, u64), Vec<Span>>,
    /// Files on disks that were open for the whole recording.
    files: FxHashMap<(i32, u64), String>,
}

impl Connections {
    /// Create it. `whole`: process, descriptor and peer of connections that were open for the whole recording; `files`:
    /// the same of files.
    pub fn new(
        whole: Vec<(i32, u64, String)>,
        files: Vec<(i32, u64, String)>,
        made: &Peers,
    ) -> Connections {
        let by_descriptor = |rows: Vec<(i32, u64, String)>| {
            let rows = rows.into_iter();
            rows.map(|(pid, fd, name)| ((pid, fd), name)).collect()
        };
        let mut connections = Connections {
            whole: by_descriptor(whole),
            files: by_descriptor(files),
            ..Connections::default()
        };
        for row in &made.rows {
            if let Some(address) = address(&row.address) {
                let key = (row.pid, row.descriptor);
                let made = connections.made.entry(key).or_default();
                made.push((row.from, row.to, address));
            }
        }
        connections
    }

    /// Return the file that a descriptor was for the whole recording.
    pub fn file(&self, pid: i32, descriptor: u64) -> Option<&str> {
        self.files.get(&(pid, descriptor)).map(String::as_str)
    }

    /// Return the peer's address at a time.
    pub fn peer(&self, pid: i32, descriptor: u64, time: u64) -> Option<&str> {
        let key = (pid, descriptor);
        let made = self.made.get(&key).map_or(&[][..], Vec::as_slice);
        let made = made
            .iter()
            .find(|(from, to, _)| (from..to).contains(&&time));
        let peer = made.map(|(_, _, peer)| peer);
        peer.or_else(|| self.whole.get(&key)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_lasts_from_its_connect_to_its_close() {
        let mut peers = Peers::new(Arch::X86_64);
        let mut see = |time, tid, role, v| {
            let ev = Ev {
                time,
                pid: 7,
                tid,
                kind: 0,
                cpu: 0,
                v,
            };
            peers.event(&ev, role);
        };
        let connect = |descriptor| [42, descriptor, ABSENT, ABSENT];
        let to = |port| [port, 1, 2, ABSENT];
        see(10, 8, Role::SysEnter, connect(5));
        see(11, 8, Role::Connect, to(80));
        see(12, 8, Role::SysExit, [42, 0, ABSENT, ABSENT]);
        see(13, 8, Role::Connect, to(81)); // in no connect()
        see(20, 9, Role::SysEnter, [3, 6, ABSENT, ABSENT]);
        see(30, 9, Role::SysEnter, [3, 5, ABSENT, ABSENT]);
        see(40, 8, Role::SysEnter, connect(5));
        see(41, 8, Role::Connect, to(82));
        see(50, 9, Role::SysEnter, connect(5));
        see(51, 9, Role::Connect, to(83));
        let rows: Vec<_> = peers
            .rows
            .iter()
            .map(|p| (p.from, p.to, p.address[0]))
            .collect();
        assert_eq!(rows, [(11, 30, 80), (41, 51, 82), (51, ABSENT, 83)]);
    }
}
