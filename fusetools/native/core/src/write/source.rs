//! The records of the inputs, each in time order and as the output needs them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::bundles::Apart;
use super::head::{mismatch, put_lost, put_sample, Event, Head, Sample, RAW_MAX, SAMPLE_PID};
use super::stacks::{copied, words, Stacked, Stacks};
use super::waits::{about, tells, Tells, SOON};
use crate::error::Error;
use crate::file::feature;
use crate::format::{number, Format, Shape};
use crate::reader::{Reader, Record, Records, SESSION};
use crate::record::{self, bit, u32_at, u64_at, Layout};
use crate::tracedat::{Events, TraceDat, What};
use crate::tracing::{name_and_id, Tracing};

/// Records of one input in time order.
pub(super) trait Source {
    /// Time of the record that is next, 0 for one without; None at the end.
    fn time(&self) -> Option<u64>;
    fn record(&self) -> &[u8];
    /// Puts into the record what only the records before it tell, and tells `stacks` of it. False: it is left out.
    fn settle(&mut self, tasks: &Tasks, stacks: &mut Stacks<'_>) -> bool;
    fn advance(&mut self);
    /// What could not be taken over, once the end is reached.
    fn warnings(&mut self) -> Vec<String>;
    /// Samples of other daemons, by the event that they would be of.
    fn left_out(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Records of perf's own that stay.
const KEPT: [u32; 6] = [
    record::ID_INDEX,
    record::THREAD_MAP,
    record::CPU_MAP,
    record::EVENT_UPDATE,
    record::TIME_CONV,
    record::FINISHED_INIT,
];
/// Those that are in the output's header, as they are in a file's that was not written to a pipe.
const IN_HEADER: [u32; 3] = [
    record::HEADER_ATTR,
    record::HEADER_TRACING_DATA,
    record::HEADER_FEATURE,
];
/// The records of one perf.data.
pub(super) struct Perf<'a> {
    records: Records<'a>,
    mend: Mend,
    /// Time, event, and the record.
    next: Option<Next<'a>>,
    /// Those after it that have been looked at.
    ahead: VecDeque<Next<'a>>,
}

type Next<'a> = (u64, Option<usize>, Bytes<'a>);

/// Records that are looked at for the stack of a switch.
const MOST_AHEAD: usize = 256;

/// A record as it was read, or put together anew.
enum Bytes<'a> {
    Read(Record<'a>),
    Made(Vec<u8>),
}

impl Bytes<'_> {
    fn kind(&self) -> Option<u32> {
        u32_at(self.bytes(), 0)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Bytes::Read(record) => &record.bytes,
            Bytes::Made(bytes) => bytes,
        }
    }
}

impl<'a> Perf<'a> {
    pub(super) fn new(records: Records<'a>, mend: Mend) -> Perf<'a> {
        let mut perf = Perf {
            records,
            mend,
            next: None,
            ahead: VecDeque::new(),
        };
        perf.advance();
        perf
    }

    fn read(&mut self) -> Option<Next<'a>> {
        loop {
            let record = self.records.next()?;
            let (time, event) = (record.time.unwrap_or(0), record.event);
            if let Some(bytes) = self.mend.apply(record) {
                return Some((time, event, bytes));
            }
        }
    }

    /// The stack of a thread's switch, where one was taken: before the thread does anything else.
    fn stack_of(&mut self, tid: i32, time: u64) -> Option<Vec<u64>> {
        for at in 0..MOST_AHEAD {
            if at == self.ahead.len() {
                let next = self.read()?;
                self.ahead.push_back(next);
            }
            let (when, event, bytes) = &self.ahead[at];
            if when.checked_sub(time).is_none_or(|after| after > SOON) {
                return None;
            }
            let record = bytes.bytes();
            let written = event.and_then(|event| self.mend.written.get(event));
            let Some(written) = written.filter(|_| u32_at(record, 0) == Some(record::SAMPLE))
            else {
                continue;
            };
            if written.layout.task(record).map(|(_, tid)| tid) == Some(tid) {
                let taken = written.tells == Tells::Sampled;
                return written.layout.chain(record).filter(|_| taken).map(words);
            }
        }
        None
    }
}

impl Source for Perf<'_> {
    fn time(&self) -> Option<u64> {
        self.next.as_ref().map(|(time, ..)| *time)
    }

    fn record(&self) -> &[u8] {
        self.next.as_ref().map_or(&[], |(.., bytes)| bytes.bytes())
    }

    fn settle(&mut self, tasks: &Tasks, stacks: &mut Stacks<'_>) -> bool {
        let mut own = None;
        if let Some((time, Some(event), bytes)) = &self.next {
            let written = self.mend.written.get(*event);
            if let Some(written) = written.filter(|_| bytes.kind() == Some(record::SAMPLE)) {
                if matches!(written.tells, Tells::Switched { stack: Some(_), .. }) {
                    let (time, task) = (*time, written.layout.task(bytes.bytes()));
                    own = task.and_then(|(_, tid)| self.stack_of(tid, time));
                }
            }
        }
        let Some((_, event, bytes)) = &mut self.next else {
            return true;
        };
        let record = bytes.bytes();
        match u32_at(record, 0) {
            Some(record::SAMPLE) => {
                let Some(written) = event.and_then(|event| self.mend.written.get(event)) else {
                    return true;
                };
                let (layout, by_address) = (&written.layout, written.by_address);
                if let Some(about) = written.about {
                    let pid = layout.task(record).map_or(-1, |(pid, _)| pid);
                    let process = |tid| tasks.process(tid);
                    if !stacks.scope.has(pid, about, layout.raw(record), process) {
                        return false;
                    }
                    if let (Tells::Switched { .. }, Some(task)) =
                        (written.tells, layout.task(record))
                    {
                        let raw = layout.raw(record);
                        stacks.scope.switched(task, about, raw, process);
                    }
                }
                match stacks.sample(
                    layout,
                    written.copied,
                    by_address,
                    written.tells,
                    own,
                    record,
                ) {
                    Stacked::AsIs => {}
                    Stacked::LeftOut => return false,
                    Stacked::Anew(record) => *bytes = Bytes::Made(record),
                    Stacked::Broken => {
                        self.mend.broken += 1;
                        // One that is left as it is does no harm.
                        return written.copied.is_none();
                    }
                }
            }
            Some(record::FORK) => {
                stacks.scope.forked(record);
                stacks.change(record);
            }
            Some(record::MMAP | record::MMAP2) => stacks.change(record),
            Some(record::LOST | record::LOST_SAMPLES) => {
                stacks.lost();
                stacks.scope.lost();
            }
            _ => {}
        }
        true
    }

    fn advance(&mut self) {
        self.next = self.ahead.pop_front().or_else(|| self.read());
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings: Vec<String> = self
            .records
            .damage()
            .map(str::to_owned)
            .into_iter()
            .collect();
        let mend = &self.mend;
        let mut warn = |count: u64, what: String| {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        };
        warn(
            mend.unknown,
            "records are of no event that their file lists: left out".into(),
        );
        warn(mend.broken, "samples contradict themselves".into());
        for (kind, count) in &mend.dropped {
            warn(
                *count,
                format!("records of type {kind} mean nothing in a merged file: left out"),
            );
        }
        warnings
    }

    fn left_out(&self) -> Vec<(String, u64)> {
        let left_out = self.mend.left_out.iter();
        left_out
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}

/// The samples of an event as they are written, but for copies of user stacks.
struct Written {
    layout: Layout,
    /// The mask of the registers of such a copy.
    copied: Option<u64>,
    /// It is no tracepoint: where the processor was is what its samples tell.
    by_address: bool,
    tells: Tells,
    /// It is of tasks; whom it tells of besides the one that runs.
    about: Option<Option<(usize, usize)>>,
}

/// What an input's records need to stand in a file with others.
pub(super) struct Mend {
    /// The layout of each event, None for one that is left out: an input's own session.
    events: Vec<Option<Layout>>,
    /// The layout of records that name no event: that of the file's first.
    first: Layout,
    /// Bytes of the sample id of the output's first event, which such records are read with there.
    tail: usize,
    /// The input has no PERF_SAMPLE_IDENTIFIER and gets it; where its records have no id at all, this is its one event's.
    identifier: Option<u64>,
    /// By event, its samples as they are written.
    written: Vec<Written>,
    /// By event, how its samples become those of the probes that share it.
    apart: Vec<Option<Rc<Apart>>>,
    /// By event, its name where only samples of some daemons are kept; those, and how many of others there were.
    of_daemons: Vec<Option<String>>,
    daemons: FxHashSet<i32>,
    left_out: BTreeMap<String, u64>,
    /// Records of an event that the file does not describe.
    unknown: u64,
    /// Samples whose stacks contradict their size.
    broken: u64,
    /// Records by type that mean nothing in another file.
    dropped: BTreeMap<u32, u64>,
}

impl Mend {
    /// `unwinds`: copies of user stacks are unwound.
    pub(super) fn new(reader: &Reader, spare_id: u64, tail: usize, unwinds: bool) -> Mend {
        let first = &reader.attrs()[0];
        let identified = first.layout.sample_type & bit::IDENTIFIER != 0;
        let written = reader.attrs().iter().zip(tells(reader));
        let written = written.zip(about(reader)).map(|((attr, tells), about)| {
            let of = attr.layout;
            let flags = u64_at(&attr.raw, 40).unwrap_or(0);
            Written {
                layout: Layout::new(of.sample_type | bit::IDENTIFIER, of.read_format, flags),
                copied: copied(reader, attr).filter(|_| unwinds),
                by_address: !attr.is_tracepoint(),
                tells,
                about,
            }
        });
        let events = reader.attrs().iter().zip(reader.events());
        Mend {
            events: events
                .map(|(attr, info)| (info.name != SESSION).then_some(attr.layout))
                .collect(),
            first: first.layout,
            tail,
            identifier: (!identified).then(|| first.ids.first().copied().unwrap_or(spare_id)),
            written: written.collect(),
            apart: Vec::new(),
            of_daemons: Vec::new(),
            daemons: FxHashSet::default(),
            left_out: BTreeMap::new(),
            unknown: 0,
            broken: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// Takes bundles apart, and leaves out what other daemons did.
    pub(super) fn with(
        mut self,
        reader: &Reader,
        apart: &HashMap<String, Rc<Apart>>,
        daemons: Option<&[i32]>,
    ) -> Mend {
        let names = || reader.events().iter().map(|info| &info.name);
        self.apart = names().map(|name| apart.get(name).cloned()).collect();
        let filtered = |name: &&String| daemons.is_some() && name.starts_with("fuse_daemon:");
        self.of_daemons = names()
            .map(|name| Some(name).filter(filtered).cloned())
            .collect();
        self.daemons = daemons.unwrap_or_default().iter().copied().collect();
        self
    }

    /// The record as it is written; None when it is left out.
    fn apply<'a>(&mut self, record: Record<'a>) -> Option<Bytes<'a>> {
        let bytes = &record.bytes;
        if record.kind >= record::USER {
            if KEPT.contains(&record.kind) {
                return Some(Bytes::Read(record));
            }
            if !IN_HEADER.contains(&record.kind) {
                *self.dropped.entry(record.kind).or_default() += 1;
            }
            return None;
        }
        let Some(event) = record.event.filter(|&event| event < self.events.len()) else {
            if self.first.sample_id_all || record.kind == record::SAMPLE {
                self.unknown += 1;
                return None;
            }
            return Some(Bytes::Read(record));
        };
        let layout = self.events[event]?;
        if self.written[event].tells == Tells::Sampled && record.kind != record::SAMPLE {
            return None; // of an event that is not written
        }
        if record.kind == record::SAMPLE {
            let apart = self.apart.get(event).and_then(Option::as_ref);
            if let Some(Some(name)) = self.of_daemons.get(event) {
                let pid = layout.task(bytes).map(|(pid, _)| pid);
                if pid.is_some_and(|pid| !self.daemons.contains(&pid)) {
                    let name = apart.map_or(Some(&name[..]), |apart| apart.name(&layout, bytes));
                    *self.left_out.entry(name?.to_owned()).or_default() += 1;
                    return None;
                }
            }
            if let Some(apart) = apart {
                let Some(own) = apart.sample(&layout, bytes) else {
                    self.unknown += 1;
                    return None;
                };
                return match self.identifier {
                    None => Some(Bytes::Made(own)),
                    Some(_) => {
                        let id = u64_at(&own, layout.id).filter(|_| layout.id != 0)?;
                        made(&[&own[..8], &id.to_le_bytes(), &own[8..]])
                    }
                };
            }
            let Some(fallback) = self.identifier else {
                return Some(Bytes::Read(record));
            };
            let id = u64_at(bytes, layout.id)
                .filter(|_| layout.id != 0)
                .unwrap_or(fallback);
            return made(&[&bytes[..8], &id.to_le_bytes(), &bytes[8..]]);
        }
        if !self.first.sample_id_all {
            return Some(Bytes::Read(record));
        }
        let id = record::from_end(bytes, layout.tail_id, layout.tail_id)
            .and_then(|at| u64_at(bytes, at));
        let grows = if self.identifier.is_some() { 8 } else { 0 };
        if id == Some(0) && self.first.tail + grows != self.tail {
            // Synthesised by perf, its sample id all zero.
            let body = bytes
                .len()
                .checked_sub(self.first.tail)
                .filter(|&size| size >= 8)?;
            return made(&[&bytes[..body], &vec![0; self.tail]]);
        }
        match self.identifier {
            Some(fallback) => made(&[bytes, &id.unwrap_or(fallback).to_le_bytes()]),
            None => Some(Bytes::Read(record)),
        }
    }
}

/// A record put together anew; None if it got too long for its size field.
fn made<'a>(parts: &[&[u8]]) -> Option<Bytes<'a>> {
    let mut bytes = parts.concat();
    let size = u16::try_from(bytes.len()).ok()?;
    bytes[6..8].copy_from_slice(&size.to_le_bytes());
    Some(Bytes::Made(bytes))
}

/// Which process a thread is of, as the records so far say.
#[derive(Default)]
pub(super) struct Tasks {
    /// By thread; 0 where not known.
    processes: Vec<i32>,
}

/// The kernel's PID_MAX_LIMIT: what is above is no thread.
const TASKS: u32 = 1 << 22;

impl Tasks {
    /// Learns from COMM (pid, tid) and FORK (pid, ppid, tid, ptid).
    pub(super) fn learn(&mut self, bytes: &[u8]) {
        let thread = match u32_at(bytes, 0) {
            Some(record::COMM) => u32_at(bytes, 12),
            Some(record::FORK) => u32_at(bytes, 16),
            _ => return,
        };
        let (Some(process), Some(thread)) =
            (u32_at(bytes, 8), thread.filter(|&thread| thread < TASKS))
        else {
            return;
        };
        let thread = thread as usize;
        if thread >= self.processes.len() {
            self.processes.resize((thread + 1).next_power_of_two(), 0);
        }
        self.processes[thread] = process as i32;
    }

    fn process(&self, thread: i32) -> i32 {
        let known = usize::try_from(thread)
            .ok()
            .and_then(|thread| self.processes.get(thread));
        known
            .copied()
            .filter(|&process| process != 0)
            .unwrap_or(thread)
    }
}

/// An event of a trace.dat that is in its data.
struct Kind {
    format: Format,
    id: u64,
    /// Place of the address that it is of: the function's for function_graph.
    address: Option<usize>,
    /// Place of the thread's id.
    thread: Option<usize>,
}

/// What a pass over a trace.dat found: which of the events that it knows are there.
pub(super) struct Survey {
    /// By `common_type`.
    kinds: Vec<Option<Kind>>,
    /// Addresses of functions.
    functions: HashSet<u64>,
    /// Events that are missing, by the statistics and not by a gap.
    owed: u64,
    warnings: Vec<String>,
}

const NAMES_OF_ADDRESS: [&str; 4] = ["func", "__probe_ip", "__probe_func", "ip"];

impl Survey {
    /// Ids from `first_id` on are given to the events.
    pub(super) fn new(dat: &TraceDat, first_id: u64) -> Survey {
        let mut formats: Vec<Option<&Format>> = vec![None; 1 << 16];
        for format in &dat.tracing().formats {
            if let Some(slot) = usize::try_from(format.id)
                .ok()
                .and_then(|id| formats.get_mut(id))
            {
                *slot = Some(format);
            }
        }
        let mut survey = Survey {
            kinds: (0..1 << 16).map(|_| None).collect(),
            functions: HashSet::new(),
            owed: 0,
            warnings: dat.warnings().to_vec(),
        };
        let (mut next_id, mut unknown, mut long) = (first_id, 0u64, 0u64);
        let mut gaps = vec![0u64; dat.cpus()];
        let mut events = dat.events();
        for event in &mut events {
            let raw = match event.what {
                What::Data(raw) => raw,
                What::Lost(count) => {
                    gaps[event.cpu as usize] =
                        gaps[event.cpu as usize].saturating_add(count.unwrap_or(1));
                    continue;
                }
            };
            let Some(kind) = survey.kind_or(raw, |number| {
                let format = formats[number]?;
                let place = |name: &str| {
                    let field = format
                        .field(name)
                        .filter(|field| field.shape == Shape::Number)?;
                    Some((field.offset, field.size))
                };
                let address = NAMES_OF_ADDRESS
                    .iter()
                    .find_map(|name| place(name).filter(|(_, size)| *size == 8));
                let thread = place("common_pid").filter(|(_, size)| *size == 4);
                next_id = next_id.wrapping_add(1);
                Some(Kind {
                    format: format.clone(),
                    id: next_id.wrapping_sub(1),
                    address: address.map(|(at, _)| at),
                    thread: thread.map(|(at, _)| at),
                })
            }) else {
                unknown += 1;
                continue;
            };
            let address = kind.address.and_then(|at| u64_at(raw, at));
            long += u64::from(raw.len() > RAW_MAX);
            survey.functions.extend(address);
        }
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                survey.warnings.push(format!("{count} {what}"));
            }
        };
        warn(unknown, "events have no format in this file: left out");
        warn(long, "events are too long for a perf.data: left out");
        warn(
            events.damaged(),
            "pages of events are damaged: what they do not tell is left out",
        );
        for (cpu, gaps) in gaps.iter().enumerate() {
            survey.owed = survey
                .owed
                .saturating_add(dat.lost(cpu).saturating_sub(*gaps));
        }
        survey
    }

    /// The event that raw data is of; `make` is asked once for each.
    fn kind_or(&mut self, raw: &[u8], make: impl FnOnce(usize) -> Option<Kind>) -> Option<&Kind> {
        let slot = &mut self.kinds[common_type(raw)?];
        if slot.is_none() {
            *slot = make(common_type(raw)?);
        }
        slot.as_ref()
    }

    pub(super) fn ids(&self) -> u64 {
        self.kinds.iter().flatten().count() as u64
    }

    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The head that a perf.data of these events has.
    pub(super) fn head<'a>(&self, dat: &'a TraceDat) -> Result<Head<'a>, Error> {
        let clock = match dat.clock() {
            "perf" => None,
            "mono" => Some(1),
            "mono_raw" => Some(4),
            "boot" => Some(7),
            "tai" => Some(11),
            clock => {
                return Err(mismatch(format!(
                    "the trace.dat was recorded on the clock {clock:?}, which perf does not have (trace-cmd record -C mono)"
                )))
            }
        };
        let kinds = || self.kinds.iter().flatten();
        let event = |kind: &Kind| {
            let name = format!("{}:{}", kind.format.system, kind.format.name);
            Event::tracepoint(&name, kind.format.id, kind.id, clock)
        };
        // Of thousands of formats and symbols only those that the events need.
        let mut tracing = Tracing::new(dat.bytes(), dat.tracing());
        tracing.version = "0.6";
        tracing.printk = b"";
        let used: HashSet<u64> = kinds().map(|kind| kind.format.id).collect();
        tracing.retain(|text| name_and_id(text).is_some_and(|(_, id)| used.contains(&id.into())));
        tracing.kallsyms = Cow::Owned(symbols_of(&tracing.kallsyms, &self.functions));
        // "Linux HOST RELEASE ARCHITECTURE"
        let mut words = dat.uname().split(' ').skip(1);
        let features = [feature::HOSTNAME, feature::OSRELEASE, feature::ARCH]
            .into_iter()
            .filter_map(|number| Some((number, Cow::Owned(header_text(words.next()?)))))
            .collect();
        Ok(Head {
            events: kinds().map(event).collect(),
            tracing: Some(tracing),
            features,
        })
    }
}

/// Of the lines of /proc/kallsyms ("ADDRESS TYPE NAME"), those of the functions that the addresses are in: function_graph names a
/// function by its first instruction that can be traced, which is not the first of all where there is `endbr64`.
fn symbols_of(kallsyms: &[u8], addresses: &HashSet<u64>) -> Vec<u8> {
    let symbol = |line: &'_ [u8]| {
        let text = std::str::from_utf8(line).ok()?;
        let (address, rest) = text.split_once(' ')?;
        rest.starts_with(['t', 'T', 'w', 'W']).then_some(())?;
        u64::from_str_radix(address, 16).ok()
    };
    let lines = || kallsyms.split_inclusive(|&byte| byte == b'\n');
    let mut starts: Vec<u64> = lines().filter_map(symbol).collect();
    starts.sort_unstable();
    let start = |address: &u64| {
        starts
            .partition_point(|start| start <= address)
            .checked_sub(1)
            .map(|at| starts[at])
    };
    let used: HashSet<u64> = addresses.iter().filter_map(start).collect();
    let kept = lines().filter(|line| symbol(line).is_some_and(|address| used.contains(&address)));
    kept.flatten().copied().collect()
}

/// perf's string: u32 size, then the text padded with NUL.
fn header_text(text: &str) -> Vec<u8> {
    let size = (text.len() + 1).next_multiple_of(64);
    let mut out = (size as u32).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out.resize(4 + size, 0);
    out
}

/// The number of the event that raw data is of: the same in all formats.
fn common_type(raw: &[u8]) -> Option<usize> {
    Some(number(raw.get(..2)?)? as usize)
}

/// The events of a trace.dat as samples.
pub(super) struct Trace<'a> {
    events: Events<'a>,
    survey: Survey,
    /// Where a gap is told: any of the events.
    id: u64,
    time: Option<u64>,
    last: u64,
    record: Vec<u8>,
}

impl<'a> Trace<'a> {
    pub(super) fn new(dat: &'a TraceDat, survey: Survey) -> Trace<'a> {
        let id = survey
            .kinds
            .iter()
            .flatten()
            .next()
            .map_or(0, |kind| kind.id);
        let mut trace = Trace {
            events: dat.events(),
            survey,
            id,
            time: None,
            last: 0,
            record: Vec::new(),
        };
        trace.advance();
        trace
    }

    fn lost(&mut self, time: u64, cpu: u32, count: u64) {
        put_lost(
            &mut self.record,
            &Sample {
                id: self.id,
                ip: 0,
                pid: 0,
                tid: 0,
                time,
                cpu,
            },
            count,
        );
    }
}

impl Source for Trace<'_> {
    fn time(&self) -> Option<u64> {
        self.time
    }

    fn record(&self) -> &[u8] {
        &self.record
    }

    fn settle(&mut self, tasks: &Tasks, _stacks: &mut Stacks<'_>) -> bool {
        if u32_at(&self.record, 0) == Some(record::SAMPLE) {
            let thread = u32_at(&self.record, SAMPLE_PID + 4).unwrap_or(0);
            let process = tasks.process(thread as i32);
            self.record[SAMPLE_PID..SAMPLE_PID + 4].copy_from_slice(&process.to_le_bytes());
        }
        true
    }

    fn advance(&mut self) {
        self.record.clear();
        while let Some(event) = self.events.next() {
            // 0 would be no time.
            let time = event.time.max(1);
            self.time = Some(time);
            self.last = time;
            match event.what {
                What::Lost(count) => return self.lost(time, event.cpu, count.unwrap_or(1)),
                What::Data(raw) => {
                    let kind =
                        common_type(raw).and_then(|number| self.survey.kinds[number].as_ref());
                    let Some(kind) = kind.filter(|_| raw.len() <= RAW_MAX) else {
                        continue;
                    };
                    let thread = kind.thread.and_then(|at| u32_at(raw, at)).unwrap_or(0) as i32;
                    let ip = kind.address.and_then(|at| u64_at(raw, at)).unwrap_or(0);
                    let sample = Sample {
                        id: kind.id,
                        ip,
                        pid: thread,
                        tid: thread,
                        time,
                        cpu: event.cpu,
                    };
                    return put_sample(&mut self.record, &sample, raw);
                }
            }
        }
        // What the statistics say beyond the gaps has no place in time.
        let owed = std::mem::take(&mut self.survey.owed);
        self.time = (owed > 0 && self.id != 0).then_some(self.last);
        if owed > 0 {
            self.lost(self.last, 0, owed);
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}
