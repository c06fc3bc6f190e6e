//! Flame graphs' stacks: what ran, what was waited for, and what both did for a request.

use std::borrow::Cow;
use std::path::PathBuf;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::comes_before;
use crate::error::Error;
use crate::events::{Batch, Ev, Meaning, Side, ABSENT};
use crate::file::{feature, until_nul};
use crate::reader::{Reader, ScanInfo};
use crate::record::u64_at;
use crate::spaces::Spaces;
use crate::stacks::{Fold, Frames, Origin, ROOT};
use crate::symbols::Kernel;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Also what is neither of the workload nor of a daemon.
    pub all: bool,
    /// Processes that serve.
    pub daemons: Vec<i32>,
    /// The workload's first process; its children are of it. None: there was no workload.
    pub workload: Option<i32>,
    /// Only these processes, and threads of these names; empty: all.
    pub pids: Vec<i32>,
    pub comms: Vec<String>,
    /// ns after the recording's first event.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// The kernel's symbols, where the recording has none itself.
    pub kallsyms: Option<PathBuf>,
}

/// Stacks and what is to be said beside them.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    /// "comm;outermost;…;innermost" and its weight.
    pub stacks: Vec<(String, u64)>,
    /// Samples with a stack; left out since they were of others, or had no stack.
    pub samples: u64,
    pub others: u64,
    pub stackless: u64,
    /// Names of frames, each with the file it is of ("" for none), and whether it is the kernel's.
    pub frames: Vec<(String, String, bool)>,
    /// Addresses of the kernel, and of them those that nothing named.
    pub kernel_addresses: u64,
    pub nameless: u64,
    /// Files whose symbols are not here.
    pub without_symbols: Vec<String>,
    /// Too many different stacks: some are cut.
    pub full: bool,
}

/// Reads a recording's samples.
pub fn on_cpu(
    reader: &Reader,
    catalogue: &[Meaning],
    ask: &Ask,
) -> Result<(ScanInfo, Flame), Error> {
    let mut flaming = Flaming::new(reader, ask)?;
    let info = reader.scan(catalogue, &mut |batch| flaming.push(&batch))?;
    Ok((info, flaming.finish()))
}

/// Whose a task is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Workload,
    Daemon,
    Other,
}

struct Flaming<'a> {
    ask: &'a Ask,
    window: (u64, u64),
    build_ids: FxHashMap<String, Vec<u8>>,
    spaces: Spaces,
    workload: FxHashSet<i32>,
    frames: Frames<'a>,
    fold: Fold,
    /// Node by (name of the thread, stack, version of its space).
    nodes: FxHashMap<(u32, u64, u64), u32>,
    flame: Flame,
}

impl<'a> Flaming<'a> {
    fn new(reader: &'a Reader, ask: &'a Ask) -> Result<Flaming<'a>, Error> {
        let first = match (ask.from, ask.to) {
            (None, None) => 0,
            _ => reader.scan(&[], &mut |_| {})?.first,
        };
        let mut kernel = reader
            .kallsyms()
            .and_then(|text| Kernel::new(Cow::Borrowed(text)));
        if let (None, Some(path)) = (&kernel, &ask.kallsyms) {
            let text = std::fs::read(path).map_err(|source| Error::Io {
                path: path.clone(),
                source,
            })?;
            kernel = Kernel::new(Cow::Owned(text));
        }
        Ok(Flaming {
            window: (
                ask.from.map_or(0, |from| first.saturating_add(from)),
                ask.to.map_or(u64::MAX, |to| first.saturating_add(to)),
            ),
            ask,
            build_ids: build_ids(reader),
            spaces: Spaces::default(),
            workload: ask.workload.into_iter().collect(),
            frames: Frames::new(kernel),
            fold: Fold::default(),
            nodes: FxHashMap::default(),
            flame: Flame::default(),
        })
    }

    fn push(&mut self, batch: &Batch) {
        self.frames.add_chains(&batch.stacks);
        let mut side = batch.side.iter().peekable();
        for ev in &batch.events {
            while let Some(record) = side.next_if(|record| comes_before(record, ev.time)) {
                self.side(record);
            }
            self.sample(ev);
        }
        side.for_each(|record| self.side(record));
    }

    fn side(&mut self, record: &Side) {
        self.spaces.push(record, &self.build_ids);
        if let Side::Fork { pid, ppid, .. } = record {
            if pid != ppid {
                if self.workload.contains(ppid) {
                    self.workload.insert(*pid);
                } else {
                    self.workload.remove(pid);
                }
            }
        }
    }

    fn side_of(&self, pid: i32) -> Who {
        if self.ask.daemons.contains(&pid) {
            Who::Daemon
        } else if self.workload.contains(&pid) {
            Who::Workload
        } else {
            Who::Other
        }
    }

    fn wanted(&self, pid: i32, tid: i32) -> bool {
        (self.ask.pids.is_empty() || self.ask.pids.contains(&pid))
            && (self.ask.comms.is_empty()
                || self
                    .ask
                    .comms
                    .iter()
                    .any(|comm| **comm == *self.spaces.comm(tid)))
    }

    fn sample(&mut self, ev: &Ev) {
        if ev.time < self.window.0 || ev.time >= self.window.1 {
            return;
        }
        let side = self.side_of(ev.pid);
        if !self.wanted(ev.pid, ev.tid) || side == Who::Other && !self.ask.all {
            self.flame.others += 1;
            return;
        }
        let [ip, period, _, stack] = ev.v;
        self.flame.samples += 1;
        if stack == ABSENT {
            self.flame.stackless += 1;
        }
        let comm = self.comm(ev.tid);
        let node = self.node(comm, ip, stack, ev.pid);
        self.fold
            .add(node, if period == ABSENT { 1 } else { period });
    }

    /// The frame of a thread's name: blanks would end it in folded text.
    fn comm(&mut self, tid: i32) -> u32 {
        let comm = self.spaces.comm(tid).replace([' ', ';'], "_");
        self.frames.name(&comm, Origin::Other)
    }

    fn node(&mut self, comm: u32, ip: u64, stack: u64, pid: i32) -> u32 {
        let version = self.spaces.of(pid).map_or(0, |space| space.version);
        if stack != ABSENT {
            if let Some(&node) = self.nodes.get(&(comm, stack, version)) {
                return node;
            }
        }
        let root = self.fold.below(ROOT, comm);
        if stack == ABSENT {
            let name = self.frames.of_address(ip, &self.spaces, pid);
            return self.fold.below(root, name);
        }
        let names = self.frames.of(stack, &self.spaces, pid);
        let node = self.fold.path(root, &names);
        self.nodes.insert((comm, stack, version), node);
        node
    }

    fn finish(self) -> Flame {
        let frames = &self.frames;
        let listed = frames.names.iter().map(|(name, origin)| {
            let path = match origin {
                Origin::File(file) => frames.files[*file as usize].path.clone(),
                _ => String::new(),
            };
            (name.to_string(), path, *origin == Origin::Kernel)
        });
        Flame {
            stacks: self.fold.stacks(&frames.names),
            frames: listed.collect(),
            kernel_addresses: frames.kernel_addresses,
            nameless: frames.nameless,
            without_symbols: frames
                .without_symbols()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            full: self.fold.full,
            ..self.flame
        }
    }
}

/// The header's list of files and their build ids: records of 8 bytes of header, pid, 24 bytes with the build id, path.
fn build_ids(reader: &Reader) -> FxHashMap<String, Vec<u8>> {
    let mut found = FxHashMap::default();
    let ranges = reader
        .features()
        .iter()
        .filter(|(bit, _)| *bit == feature::BUILD_ID);
    for (_, range) in ranges {
        let mut rest = &reader.bytes()[range.clone()];
        while let Some(word) = u64_at(rest, 0) {
            let (misc, size) = ((word >> 32) as u16, (word >> 48) as usize);
            let Some(record) = rest.get(..size).filter(|record| record.len() > 36) else {
                break;
            };
            // Newer ones say how long it is.
            let len = match misc & 1 << 15 {
                0 => 20,
                _ => usize::from(record[32]).min(20),
            };
            found.insert(until_nul(&record[36..]), record[12..12 + len].to_vec());
            rest = &rest[size..];
        }
    }
    found
}
