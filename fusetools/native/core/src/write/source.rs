//! The records of the inputs, each in time order and in the output's form.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::bundles::Split;
use super::head::{put_lost, put_sample, Event, Head, Sample, RAW_MAX};
use super::stacks::{copied, with_chain, without, Stacked, Stacks, MEMORY};
use super::waits::{about, about_whom, read, tells, tells_by_name, Tells, SWITCH};
use crate::error::Error;
use crate::format::file::feature;
use crate::format::record::{self, bit, u32_at, u64_at, Layout};
use crate::format::tracedat::{Events, TraceDat, What};
use crate::format::tracepoint::{number, Format, Shape};
use crate::format::tracing::{name_and_id, Tracing};
use crate::programs::stacks::CONTEXT_MAX;
use crate::reader::{Reader, Record, Records, SESSION};

/// Records of one input in time order.
pub(super) trait Source {
    /// Return the time of the next record, 0 for a record without a time; None at the end.
    fn time(&self) -> Option<u64>;
    fn record(&self) -> &[u8];
    /// Complete the record from earlier records, and pass it to `stacks`. Return false if it is left out.
    fn settle(&mut self, tasks: &mut Tasks<'_>, stacks: &mut Stacks<'_>) -> bool;
    fn advance(&mut self);
    /// Return what could not be copied; complete once the end is reached.
    fn warnings(&mut self) -> Vec<String>;
    /// Return the number of samples of other daemons, by event.
    fn left_out(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// perf's own records that are copied.
const PASSED_ON: [u32; 6] = [
    record::ID_INDEX,
    record::THREAD_MAP,
    record::CPU_MAP,
    record::EVENT_UPDATE,
    record::TIME_CONV,
    record::FINISHED_INIT,
];
/// Records whose content is in the output's header, as in any file that was not written to a pipe.
const IN_HEADER: [u32; 3] = [
    record::HEADER_ATTR,
    record::HEADER_TRACING_DATA,
    record::HEADER_FEATURE,
];
/// The records of one perf.data.
pub(super) struct Perf<'a> {
    records: Records<'a>,
    rewriter: Rewriter,
    /// Time, event, and the record.
    next: Option<(u64, Option<usize>, Bytes<'a>)>,
    /// For a record of a switch: its task, and whether it stops running.
    switch: Option<((i32, i32), bool)>,
}

/// A record, as read or rebuilt.
enum Bytes<'a> {
    Read(Record<'a>),
    Made(Vec<u8>),
}

impl Bytes<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Bytes::Read(record) => &record.bytes,
            Bytes::Made(bytes) => bytes,
        }
    }
}

impl<'a> Perf<'a> {
    pub(super) fn new(records: Records<'a>, rewriter: Rewriter) -> Perf<'a> {
        let mut perf = Perf {
            records,
            rewriter,
            next: None,
            switch: None,
        };
        perf.advance();
        perf
    }
}

impl Source for Perf<'_> {
    fn time(&self) -> Option<u64> {
        self.next.as_ref().map(|(time, ..)| *time)
    }

    fn record(&self) -> &[u8] {
        self.next.as_ref().map_or(&[], |(.., bytes)| bytes.bytes())
    }

    fn settle(&mut self, tasks: &mut Tasks<'_>, stacks: &mut Stacks<'_>) -> bool {
        let Some((_, event, bytes)) = &mut self.next else {
            return true;
        };
        let record = bytes.bytes();
        if let Some((task, out)) = self.switch {
            return stacks.scope.told(task, out);
        }
        match u32_at(record, 0) {
            Some(record::SAMPLE) => {
                let Some(written) = event.and_then(|event| self.rewriter.written.get(event)) else {
                    return true;
                };
                let (layout, by_address) = (&written.layout, written.by_address);
                if let Some(about) = written.about.filter(|_| !written.stack_alone) {
                    let pid = layout.task(record).map_or(-1, |(pid, _)| pid);
                    let process = |tid| tasks.process(tid);
                    if !stacks.scope.has(pid, about, layout.raw(record), process) {
                        return false;
                    }
                    if let (Tells::Switched(_), Some(task)) = (written.tells, layout.task(record)) {
                        let raw = layout.raw(record);
                        stacks.scope.switched(task, about, raw, process);
                    }
                }
                let alone = written.stack_alone;
                if let Some(mask) = written.cut {
                    // Afterwards the record has the layout of its event.
                    let cut = without(layout, mask, record);
                    let Some(cut) = cut else {
                        self.rewriter.broken += 1;
                        return false;
                    };
                    *bytes = Bytes::Made(cut);
                }
                let record = bytes.bytes();
                if let Some(raw) = layout.raw(record).filter(|_| written.off_cpu) {
                    stacks.waited(raw);
                }
                match stacks.sample(
                    layout,
                    written.copied,
                    by_address,
                    written.tells,
                    alone,
                    record,
                ) {
                    Stacked::AsIs => {}
                    Stacked::LeftOut => return false,
                    Stacked::Anew(record) => *bytes = Bytes::Made(record),
                    Stacked::Broken => {
                        self.rewriter.broken += 1;
                        // An unchanged record does no harm.
                        return written.copied.is_none() && !stacks.private;
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
        let rewriter = &mut self.rewriter;
        let switch = &mut self.switch;
        self.next = self.records.find_map(|record| {
            let (time, event) = (record.time.unwrap_or(0), record.event);
            *switch = rewriter.switch(&record);
            Some((time, event, rewriter.apply(record)?))
        });
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings: Vec<String> = self
            .records
            .damage()
            .map(str::to_owned)
            .into_iter()
            .collect();
        let rewriter = &self.rewriter;
        let mut warn = |count: u64, what: String| {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        };
        warn(
            rewriter.unknown,
            "records are of no event that their file lists: left out".into(),
        );
        warn(rewriter.broken, "samples contradict themselves".into());
        for (kind, count) in &rewriter.dropped {
            warn(
                *count,
                format!("records of type {kind} mean nothing in a merged file: left out"),
            );
        }
        warnings
    }

    fn left_out(&self) -> Vec<(String, u64)> {
        let left_out = self.rewriter.left_out.iter();
        left_out
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}

/// Return how an event's samples are written, except for copies of user stacks.
struct Written {
    layout: Layout,
    /// The register mask of such a copy.
    copied: Option<u64>,
    /// The register mask of a copy that is cut out of the sample without unwinding.
    cut: Option<u64>,
    /// It is not a tracepoint: its samples show the processor's position.
    by_address: bool,
    /// Its raw data may hold the stack of a wait.
    off_cpu: bool,
    tells: Tells,
    /// Only the stacks of its samples are used: ftrace recorded the event, too.
    stack_alone: bool,
    /// For events of tasks: the task concerned, besides the running one.
    about: Option<Option<(usize, usize)>>,
}

/// Everything that an input's records need to be in a file with records of others.
pub(super) struct Rewriter {
    /// The layout of each event; None if the event is left out, as an input's own session is.
    events: Vec<Option<Layout>>,
    /// The layout of records that name no event: that of the file's first event.
    first: Layout,
    /// Size of the sample id of the output's first event; such records are read with it.
    tail: usize,
    /// The input has no PERF_SAMPLE_IDENTIFIER and gets one. If its records have no id at all, its only event's id is
    /// used.
    identifier: Option<u64>,
    /// By event: how its samples are written.
    written: Vec<Written>,
    /// By event: how its samples are distributed to the probes that share it.
    split: Vec<Option<Rc<Split>>>,
    /// By event of which only samples of some daemons are kept: its name, these daemons, and numbers of other daemons'
    /// samples.
    of_daemons: Vec<Option<String>>,
    daemons: FxHashSet<i32>,
    left_out: BTreeMap<String, u64>,
    /// Records of an event that the file does not describe.
    unknown: u64,
    /// Samples whose stacks contradict their size.
    broken: u64,
    /// By type: records that mean nothing in another file.
    dropped: BTreeMap<u32, u64>,
}

impl Rewriter {
    /// `unwinds`: copies of user stacks are unwound; `alone`: by event, whether only its stacks are used.
    pub(super) fn new(
        reader: &Reader,
        spare_id: u64,
        tail: usize,
        unwinds: bool,
        alone: &[bool],
    ) -> Rewriter {
        let first = &reader.attrs()[0];
        let identified = first.layout.sample_type & bit::IDENTIFIER != 0;
        let written = reader.attrs().iter().zip(tells(reader, alone));
        let written = written.zip(about(reader)).zip(alone).zip(reader.events());
        let written = written.map(|((((attr, tells), about), &stack_alone), event)| {
            let of = attr.layout;
            let flags = u64_at(&attr.raw, 40).unwrap_or(0);
            Written {
                layout: Layout::new(of.sample_type | bit::IDENTIFIER, of.read_format, flags),
                copied: copied(reader, attr).filter(|_| unwinds),
                cut: None,
                by_address: !attr.is_tracepoint(),
                off_cpu: event.name == record::OFF_CPU,
                tells,
                stack_alone,
                about,
            }
        });
        let events = reader.attrs().iter().zip(reader.events());
        Rewriter {
            events: events
                .map(|(attr, info)| (info.name != SESSION).then_some(attr.layout))
                .collect(),
            first: first.layout,
            tail,
            identifier: (!identified).then(|| first.ids.first().copied().unwrap_or(spare_id)),
            written: written.collect(),
            split: Vec::new(),
            of_daemons: Vec::new(),
            daemons: FxHashSet::default(),
            left_out: BTreeMap::new(),
            unknown: 0,
            broken: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// Cut out the copies of stacks that are not unwound.
    pub(super) fn private(mut self, reader: &Reader, private: bool) -> Rewriter {
        for (written, attr) in self.written.iter_mut().zip(reader.attrs()) {
            let of_memory = attr.layout.sample_type & MEMORY != 0;
            if private && of_memory && written.copied.is_none() {
                written.cut = Some(u64_at(&attr.raw, 80).unwrap_or(0));
            }
        }
        self
    }

    /// Split bundles, and leave out samples of other daemons.
    pub(super) fn with(
        mut self,
        reader: &Reader,
        split: &HashMap<String, Rc<Split>>,
        daemons: Option<&[i32]>,
    ) -> Rewriter {
        let names = || reader.events().iter().map(|info| &info.name);
        self.split = names().map(|name| split.get(name).cloned()).collect();
        let filtered = |name: &&String| daemons.is_some() && name.starts_with("fuse_daemon:");
        self.of_daemons = names()
            .map(|name| Some(name).filter(filtered).cloned())
            .collect();
        self.daemons = daemons.unwrap_or_default().iter().copied().collect();
        self
    }

    /// For a record of a switch, return its task, and whether it stops running.
    fn switch(&self, record: &Record<'_>) -> Option<((i32, i32), bool)> {
        if !matches!(record.kind, record::SWITCH | record::SWITCH_CPU_WIDE) {
            return None;
        }
        let layout = match record.event {
            Some(event) => self.events.get(event)?.as_ref()?,
            None => &self.first,
        };
        let misc = u16::from_le_bytes([*record.bytes.get(4)?, *record.bytes.get(5)?]);
        let out = misc & record::MISC_SWITCH_OUT != 0;
        Some((layout.tail_task(&record.bytes)?, out))
    }

    /// Return the record as it is written; None if it is left out.
    fn apply<'a>(&mut self, record: Record<'a>) -> Option<Bytes<'a>> {
        let bytes = &record.bytes;
        if record.kind >= record::USER {
            if PASSED_ON.contains(&record.kind) {
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
        if record.kind == record::SAMPLE {
            let split = self.split.get(event).and_then(Option::as_ref);
            if let Some(Some(name)) = self.of_daemons.get(event) {
                let pid = layout.task(bytes).map(|(pid, _)| pid);
                if pid.is_some_and(|pid| !self.daemons.contains(&pid)) {
                    let name = split.map_or(Some(&name[..]), |split| split.name(&layout, bytes));
                    *self.left_out.entry(name?.to_owned()).or_default() += 1;
                    return None;
                }
            }
            if let Some(split) = split {
                let Some(own) = split.sample(&layout, bytes) else {
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
            // Synthesized by perf; its sample id is all zero.
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

/// Return a rebuilt record; None if it became too long for its size field.
fn made<'a>(parts: &[&[u8]]) -> Option<Bytes<'a>> {
    let mut bytes = parts.concat();
    let size = u16::try_from(bytes.len()).ok()?;
    bytes[6..8].copy_from_slice(&size.to_le_bytes());
    Some(Bytes::Made(bytes))
}

/// The process of each thread, according to the records so far.
pub(super) struct Tasks<'a> {
    /// Process by thread; 0 if unknown.
    processes: Vec<i32>,
    /// For threads without a record of their own.
    others: &'a HashMap<i32, i32>,
}

/// The kernel's PID_MAX_LIMIT: no thread has a higher number.
const TASKS: u32 = 1 << 22;

impl<'a> Tasks<'a> {
    pub(super) fn new(others: &'a HashMap<i32, i32>) -> Tasks<'a> {
        Tasks {
            processes: Vec::new(),
            others,
        }
    }

    /// Learn from COMM (pid, tid) and FORK (pid, ppid, tid, ptid).
    pub(super) fn learn(&mut self, bytes: &[u8]) {
        let thread = match u32_at(bytes, 0) {
            Some(record::COMM) => u32_at(bytes, 12),
            Some(record::FORK) => u32_at(bytes, 16),
            _ => return,
        };
        if let (Some(process), Some(thread)) = (u32_at(bytes, 8), thread) {
            self.begins(thread, process);
        }
    }

    pub(super) fn begins(&mut self, thread: u32, process: u32) {
        if thread >= TASKS {
            return;
        }
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
        let known = known.copied().filter(|&process| process != 0);
        known.unwrap_or_else(|| self.others.get(&thread).copied().unwrap_or(thread))
    }
}

/// An event of a trace.dat that occurs in its data or is listed.
struct Kind {
    format: Format,
    id: u64,
    /// Place of its address: the function's for function_graph.
    address: Option<usize>,
    /// Place of the thread's id.
    thread: Option<usize>,
    /// How its samples are distributed to the probes that share it.
    split: Option<Rc<Split>>,
    /// Only samples of some daemons are kept.
    of_daemons: bool,
    /// For events of tasks: the task concerned, besides the running one.
    about: Option<Option<(usize, usize)>>,
    tells: Tells,
    /// Id of samples with a stack, if perf took stacks.
    with_stack: Option<u64>,
    /// The event reports a new thread: places of its number and of the flags of clone(2). Used only to learn the
    /// thread's process.
    begins: Option<(usize, usize)>,
}

/// clone(2): the new thread belongs to the same process.
const CLONE_THREAD: u64 = 0x10000;

impl Kind {
    /// `addressed`: its samples get its address.
    fn new(format: &Format, id: u64, addressed: bool) -> Kind {
        let place = |name: &str| {
            let field = format
                .field(name)
                .filter(|field| field.shape == Shape::Number)?;
            Some((field.offset, field.size))
        };
        let mut addresses = NAMES_OF_ADDRESS.iter().filter(|_| addressed);
        let address = addresses.find_map(|name| place(name).filter(|(_, size)| *size == 8));
        let thread = place("common_pid").filter(|(_, size)| *size == 4);
        let name = format!("{}:{}", format.system, format.name);
        Kind {
            about: about_whom(&name, Some(format)),
            tells: tells_by_name(&name, Some(format), true),
            with_stack: None,
            begins: place("pid")
                .zip(place("clone_flags"))
                .filter(|_| name == "task:task_newtask")
                .filter(|((_, pid), (_, flags))| (*pid, *flags) == (4, 8))
                .map(|((pid, _), (flags, _))| (pid, flags)),
            format: format.clone(),
            id,
            address: address.map(|(at, _)| at),
            thread: thread.map(|(at, _)| at),
            split: None,
            of_daemons: false,
        }
    }

    fn name(&self) -> String {
        format!("{}:{}", self.format.system, self.format.name)
    }
}

/// Facts about a trace.dat before its events are written: which of its events occur.
pub(super) struct Survey {
    /// By `common_type`.
    kinds: Vec<Option<Kind>>,
    /// Samples have addresses.
    addressed: bool,
    /// Addresses of functions.
    functions: HashSet<u64>,
    /// The processes whose samples of daemons' events are kept.
    daemons: FxHashSet<i32>,
    warnings: Vec<String>,
}

const NAMES_OF_ADDRESS: [&str; 4] = ["func", "__probe_ip", "__probe_func", "ip"];

impl Survey {
    /// Assign ids from `first_id` on to the events. `stacks`: perf took stacks of all switches, or of some.
    pub(super) fn new(dat: &TraceDat, first_id: u64, stacks: bool) -> Survey {
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
            addressed: !dat.listed(),
            functions: HashSet::new(),
            daemons: FxHashSet::default(),
            warnings: dat.warnings().to_vec(),
        };
        let mut next_id = first_id;
        if dat.listed() {
            for (slot, format) in survey.kinds.iter_mut().zip(formats) {
                *slot = format.map(|format| Kind::new(format, next_id, false));
                next_id = next_id.wrapping_add(u64::from(format.is_some()));
            }
            let kinds = survey.kinds.iter_mut().flatten();
            for kind in kinds.filter(|kind| stacks && kind.name() == SWITCH) {
                kind.with_stack = Some(next_id);
                next_id = next_id.wrapping_add(1);
            }
            return survey;
        }
        for event in dat.events() {
            let What::Data(raw) = event.what else {
                continue;
            };
            let kind = survey.kind_or(raw, |number| {
                let format = formats[number]?;
                next_id = next_id.wrapping_add(1);
                Some(Kind::new(format, next_id.wrapping_sub(1), true))
            });
            let address = kind.and_then(|kind| u64_at(raw, kind.address?));
            survey.functions.extend(address);
        }
        survey
    }

    /// Split bundles, and leave out samples of other daemons.
    pub(super) fn with(
        mut self,
        split: &HashMap<String, Rc<Split>>,
        daemons: Option<&[i32]>,
    ) -> Survey {
        for kind in self.kinds.iter_mut().flatten() {
            kind.split = split.get(&kind.name()).cloned();
            kind.of_daemons = daemons.is_some() && kind.format.system == "fuse_daemon";
        }
        self.daemons = daemons.unwrap_or_default().iter().copied().collect();
        self
    }

    /// Return the event of raw data; `make` is called once for each event.
    fn kind_or(&mut self, raw: &[u8], make: impl FnOnce(usize) -> Option<Kind>) -> Option<&Kind> {
        let slot = &mut self.kinds[common_type(raw)?];
        if slot.is_none() {
            *slot = make(common_type(raw)?);
        }
        slot.as_ref()
    }

    pub(super) fn ids(&self) -> u64 {
        let kinds = self.kinds.iter().flatten();
        kinds.fold(0, |ids, kind| {
            ids + 1 + u64::from(kind.with_stack.is_some())
        })
    }

    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Return the head of a perf.data with these events.
    pub(super) fn head<'a>(&self, dat: &'a TraceDat) -> Result<Head<'a>, Error> {
        let clock = match dat.clock() {
            "perf" => None,
            "mono" => Some(1),
            "mono_raw" => Some(4),
            "boot" => Some(7),
            "tai" => Some(11),
            clock => {
                return Err(Error::mismatch(format!(
                    "the trace.dat was recorded on the clock {clock:?}, which perf does not have (trace-cmd record -C mono)"
                )))
            }
        };
        let kinds = || self.kinds.iter().flatten();
        let event = |kind: &Kind, id: u64| {
            Event::tracepoint(&kind.name(), kind.format.id, id, clock, self.addressed)
        };
        let plain = kinds().map(|kind| event(kind, kind.id));
        let stacked = kinds().filter_map(|kind| Some(event(kind, kind.with_stack?).with_chain()));
        // Keep only the formats and symbols that the events need: there are thousands.
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
            // perf script looks only at the first event to decide whether it can print addresses.
            events: stacked.chain(plain).collect(),
            tracing: Some(tracing),
            features,
            spare_ids: Vec::new(),
        })
    }
}

/// Return the lines of /proc/kallsyms ("ADDRESS TYPE NAME") for the functions that contain these addresses.
/// function_graph names a function by its first traceable instruction, which follows `endbr64` if there is one.
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
    let named = lines().filter(|line| symbol(line).is_some_and(|address| used.contains(&address)));
    named.flatten().copied().collect()
}

/// Encode a string of perf: u32 size, then the text padded with NUL.
fn header_text(text: &str) -> Vec<u8> {
    let size = (text.len() + 1).next_multiple_of(64);
    let mut out = (size as u32).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out.resize(4 + size, 0);
    out
}

/// Return the event number of raw data: its place is the same in all formats.
fn common_type(raw: &[u8]) -> Option<usize> {
    Some(number(raw.get(..2)?)? as usize)
}

/// The events of a trace.dat, as samples.
pub(super) struct Trace<'a> {
    events: Events<'a>,
    survey: Survey,
    /// The event that reports gaps: any will do.
    id: u64,
    time: Option<u64>,
    last: u64,
    record: Vec<u8>,
    /// The raw data of the event, and the event by its number.
    raw: &'a [u8],
    kind: Option<usize>,
    /// By CPU: lost events according to its statistics that no gap has reported so far.
    owed: Vec<u64>,
    left_out: BTreeMap<String, u64>,
    /// Numbers of events without a format, and of events too long for a record.
    unknown: u64,
    long: u64,
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
            raw: &[],
            kind: None,
            owed: (0..dat.cpus()).map(|cpu| dat.lost(cpu)).collect(),
            left_out: BTreeMap::new(),
            unknown: 0,
            long: 0,
        };
        trace.advance();
        trace
    }

    fn lost(&mut self, time: u64, cpu: u32, count: u64) {
        put_lost(
            &mut self.record,
            &Sample {
                id: self.id,
                ip: None,
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

    fn settle(&mut self, tasks: &mut Tasks<'_>, stacks: &mut Stacks<'_>) -> bool {
        let Some(kind) = self.kind.and_then(|kind| self.survey.kinds[kind].as_ref()) else {
            stacks.lost();
            stacks.scope.lost();
            return true;
        };
        // The address follows the header and the id, if present.
        let at = if self.survey.addressed { 24 } else { 16 };
        let thread = u32_at(&self.record, at + 4).unwrap_or(0);
        let time = self.time.unwrap_or(0);
        let process = tasks.process(thread as i32);
        if let Some((pid, flags)) = kind.begins {
            if let (Some(new), Some(flags)) = (u32_at(self.raw, pid), u64_at(self.raw, flags)) {
                let same = flags & CLONE_THREAD != 0;
                let own = if same { process as u32 } else { new };
                tasks.begins(new, own);
                stacks.scope.begins((own as i32, new as i32), process);
            }
            return false;
        }
        if let Some(about) = kind.about {
            let (raw, of) = (Some(self.raw), |tid| tasks.process(tid));
            if !stacks.scope.has(process, about, raw, of) {
                return false;
            }
            let task = (process, thread as i32);
            match kind.tells {
                Tells::Entered { nr, .. } => {
                    let number = raw.and_then(|raw| read(raw, nr));
                    stacks.entered(thread as i32, number, time);
                }
                Tells::Left => stacks.called(thread as i32),
                Tells::Switched(_) => stacks.scope.switched(task, about, raw, of),
                _ => {}
            }
        }
        if kind.of_daemons && !self.survey.daemons.contains(&process) {
            let name = match &kind.split {
                Some(split) => split.name_of(self.raw).map(str::to_owned),
                None => Some(kind.name()),
            };
            *self.left_out.entry(name.unwrap_or_default()).or_default() += 1;
            return false;
        }
        self.record[at..at + 4].copy_from_slice(&process.to_le_bytes());
        let task = (process, thread as i32);
        stacks.note(kind.tells, task.1, self.raw);
        // The stack of another process that is switched out for one of them shows nothing.
        let id = kind.with_stack.filter(|_| stacks.scope.of(process));
        let (Some(id), Tells::Switched(state)) = (id, kind.tells) else {
            return true;
        };
        let cpu = u32_at(&self.record, at + 16).unwrap_or(0);
        if let Some(chain) = stacks.switched(task, (cpu, time), state, self.raw) {
            // The address follows the id, the chain follows the CPU.
            let ip = chain.iter().find(|&&ip| ip < CONTEXT_MAX).unwrap_or(&0);
            let mut with = self.record.clone();
            with.splice(16..16, ip.to_le_bytes());
            let parts = [at + 32..with.len(), 0..0];
            if let Some(mut with) = with_chain(&with, at + 32, parts, &chain) {
                with[8..16].copy_from_slice(&id.to_le_bytes());
                self.record = with;
            }
        }
        true
    }

    fn advance(&mut self) {
        self.record.clear();
        self.kind = None;
        while let Some(event) = self.events.next() {
            // 0 would mean no time.
            let time = event.time.max(1);
            self.time = Some(time);
            self.last = time;
            match event.what {
                What::Lost(count) => {
                    let count = count.unwrap_or(1);
                    let owed = &mut self.owed[event.cpu as usize];
                    *owed = owed.saturating_sub(count);
                    return self.lost(time, event.cpu, count);
                }
                What::Data(raw) => {
                    let number = common_type(raw);
                    let Some(kind) = number.and_then(|n| self.survey.kinds[n].as_ref()) else {
                        self.unknown += 1;
                        continue;
                    };
                    let of = kind.split.as_ref().map(|split| split.of(raw));
                    let (id, own) = match of {
                        Some(Some((id, own))) => (id, Some(own)),
                        Some(None) => {
                            self.unknown += 1;
                            continue;
                        }
                        None => (kind.id, None),
                    };
                    if raw.len() > RAW_MAX {
                        self.long += 1;
                        continue;
                    }
                    let thread = kind.thread.and_then(|at| u32_at(raw, at)).unwrap_or(0) as i32;
                    let ip = kind.address.and_then(|at| u64_at(raw, at)).unwrap_or(0);
                    let sample = Sample {
                        id,
                        ip: self.survey.addressed.then_some(ip),
                        pid: thread,
                        tid: thread,
                        time,
                        cpu: event.cpu,
                    };
                    put_sample(&mut self.record, &sample, raw);
                    if let Some(own) = own {
                        let at = self.record.len() - (raw.len() + 4).next_multiple_of(8) + 4;
                        self.record[at..at + 2].copy_from_slice(&own.to_le_bytes());
                    }
                    (self.raw, self.kind) = (raw, number);
                    return;
                }
            }
        }
        // Losses in the statistics beyond the gaps have no place in time.
        let owed = self.owed.drain(..).fold(0, u64::saturating_add);
        self.time = (owed > 0 && self.id != 0).then_some(self.last);
        if owed > 0 {
            self.lost(self.last, 0, owed);
        }
    }

    fn warnings(&mut self) -> Vec<String> {
        let problems = [
            (self.unknown, "events have no format in this file: left out"),
            (self.long, "events are too long for a perf.data: left out"),
            (
                self.events.damaged(),
                "pages of events are damaged: what they do not tell is left out",
            ),
        ];
        let problems = problems.iter().filter(|(count, _)| *count > 0);
        problems
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }

    fn left_out(&self) -> Vec<(String, u64)> {
        let left_out = self.left_out.iter();
        left_out
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}
