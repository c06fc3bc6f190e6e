//! Reads one chunk, in one worker.

use std::borrow::Cow;

use super::*;
use crate::format::record::Waited;

/// Plan of a scan: what to do with each event's samples. All workers share it.
pub(super) struct ScanPlan {
    pub(super) ids: Arc<Ids>,
    /// By event: its layout, what is taken, and whether that is in the whole recording or only in the windows.
    pub(super) events: Vec<(Layout, Vec<Take>, bool)>,
    pub(super) windows: Option<Vec<(u64, u64)>>,
    pub(super) switches: bool,
    /// By row of the catalogue: its events may have a stack. And: some row requests stacks.
    pub(super) stacked: Vec<bool>,
    pub(super) stacks: bool,
    /// Some row is a system call.
    pub(super) calls: bool,
    /// Maximum number of events in a chunk so far: room for as many costs less than growing.
    pub(super) most: AtomicUsize,
}

/// Different call chains, numbered in order of appearance.
#[derive(Default)]
pub(super) struct Stacks {
    pub(super) known: FxHashMap<Chain, u32>,
    /// Chains not handed on yet.
    pub(super) new: Vec<Chain>,
    pub(super) words: usize,
    /// Number of chains left out because there were too many.
    pub(super) left_out: u64,
    pub(super) scratch: Vec<u64>,
}

impl Stacks {
    /// Return the number of a chain. `bytes`: its words, little-endian.
    pub(super) fn number(&mut self, bytes: &[u8]) -> u64 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())),
        );
        let number = match self.known.get(&scratch[..]) {
            _ if scratch.is_empty() => ABSENT,
            Some(number) => u64::from(*number),
            None => self.add(Chain::from(&scratch[..])),
        };
        self.scratch = scratch;
        number
    }

    pub(super) fn add(&mut self, chain: Chain) -> u64 {
        if let Some(number) = self.known.get(&chain) {
            return u64::from(*number);
        }
        if self.words + chain.len() > MOST_STACK_WORDS {
            self.left_out += 1;
            return ABSENT;
        }
        self.words += chain.len();
        let number = self.known.len() as u32;
        self.known.insert(chain.clone(), number);
        self.new.push(chain);
        u64::from(number)
    }
}

/// Bytes of records, or a part of them.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) bytes: &'a [u8],
    /// Offset of the part, and the end of the whole.
    pub(super) base: usize,
    pub(super) end: usize,
}

impl<'a> View<'a> {
    pub(super) fn whole(bytes: &'a [u8]) -> View<'a> {
        View {
            bytes,
            base: 0,
            end: bytes.len(),
        }
    }

    /// Return whether bytes follow that are not in it.
    fn is_cut(&self) -> bool {
        self.base + self.bytes.len() < self.end
    }
}

/// Contents of one chunk, as one worker read them.
pub(super) struct Part {
    /// Offsets of its first record, and of the record after its last.
    pub(super) start: usize,
    pub(super) next: usize,
    pub(super) end: End,
    pub(super) events: Vec<Ev>,
    pub(super) side: Vec<Side>,
    /// Stacks, numbered within this chunk.
    pub(super) stacks: Stacks,
    /// Latest time before each FINISHED_ROUND.
    pub(super) rounds: Vec<u64>,
    pub(super) max: u64,
    /// Earliest time of a record that is no sample.
    pub(super) min: u64,
    /// Stretch of the time looked up last (`ScanPlan::stretch`): most of the times that follow are in it, too.
    stretch: Option<(u64, u64, bool)>,
    pub(super) tally: Tally,
}

impl Part {
    /// Return its earliest time; MAX if it has none.
    pub(super) fn earliest(&self) -> u64 {
        self.tally.first.unwrap_or(u64::MAX).min(self.min)
    }
}

pub(super) enum End {
    More,
    Damaged(String),
    /// The next record is compressed.
    Compressed,
    /// The next record is not whole in this part of the file.
    Cut,
}

#[derive(Clone, Default)]
pub(super) struct Tally {
    pub(super) counts: Vec<u64>,
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) lost: u64,
    pub(super) lost_samples: u64,
    pub(super) throttled: u64,
    /// Samples with an unknown id; that contradict their own layout; without a time.
    pub(super) unknown: u64,
    pub(super) broken: u64,
    pub(super) untimed: u64,
}

impl Tally {
    /// Return the number of events that the kernel could not write: PERF_RECORD_LOST as it happened, LOST_SAMPLES as
    /// summed up at the end. Recent kernels report the same loss in both: take the greater, not the sum.
    pub(super) fn lost(&self) -> u64 {
        self.lost.max(self.lost_samples)
    }

    pub(super) fn add(&mut self, other: &Tally) {
        for (sum, n) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n;
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        for (sum, n) in [
            (&mut self.lost, other.lost),
            (&mut self.lost_samples, other.lost_samples),
            (&mut self.throttled, other.throttled),
            (&mut self.unknown, other.unknown),
            (&mut self.broken, other.broken),
            (&mut self.untimed, other.untimed),
        ] {
            *sum = sum.saturating_add(n);
        }
    }
}

/// Return whether a row is of the scheduler's events, which carry the stack of their samples if requested.
fn of_scheduler(role: Role) -> bool {
    matches!(role, Role::Switch | Role::Waking)
}

/// Return a text field; empty if the kernel could not read it.
fn read_text<'a>(field: &Field, raw: &'a [u8]) -> Option<Cow<'a, str>> {
    match field.value(raw)? {
        // FAULT_STRING, kernel/trace/trace_probe.h
        Value::Text(b"(fault)") => Some("".into()),
        Value::Text(text) => Some(file::text(text)),
        _ => None,
    }
}

/// Return whether this is a time on a clock. perf's own records have 0.
#[inline(always)]
pub(super) fn timed(time: &u64) -> bool {
    *time != 0 && *time < record::SUMMED
}

impl ScanPlan {
    pub(super) fn new(
        reader: &Reader,
        catalogue: &[Meaning],
        windows: Option<Vec<(u64, u64)>>,
    ) -> ScanPlan {
        let takes = |event: &EventInfo| -> Vec<Take> {
            let named = catalogue
                .iter()
                .zip(0u32..)
                .filter(|(meaning, _)| meaning.of_bundle().0 == event.name);
            let taken = named
                .map(|(meaning, kind)| (meaning, Take::new(kind, meaning, event.format.as_deref())))
                .filter(|(meaning, take)| {
                    let named = matches!(meaning.role, Role::Name | Role::Asked | Role::Listed);
                    !named || take.name.is_some()
                });
            let mut takes: Vec<(&Meaning, Take)> = taken.collect();
            // These are many: make one event with the stack, not two.
            let stacked = takes.iter().any(|(_, take)| take.stack);
            let carrier = takes.iter_mut().find(|(row, _)| of_scheduler(row.role));
            if let Some((_, take)) = carrier.filter(|_| stacked) {
                take.with_stack = true;
                takes.retain(|(_, take)| !take.stack);
            }
            takes.into_iter().map(|(_, take)| take).collect()
        };
        let all = |event: &EventInfo| {
            let mut named = catalogue.iter().filter(|row| row.event == event.name);
            windows.is_none() || named.any(Join::needs)
        };
        let events = reader
            .events
            .iter()
            .zip(&reader.parts.attrs)
            .map(|(event, attr)| (attr.layout, takes(event), all(event)))
            .collect();
        let stacked: Vec<bool> = catalogue
            .iter()
            .map(|meaning| meaning.role == Role::Stack || of_scheduler(meaning.role))
            .collect();
        ScanPlan {
            ids: reader.ids.clone(),
            events,
            windows,
            switches: catalogue.iter().any(|meaning| of_scheduler(meaning.role)),
            stacks: catalogue.iter().any(|meaning| meaning.role == Role::Stack),
            calls: catalogue.iter().any(Compat::needs),
            stacked,
            most: AtomicUsize::new(0),
        }
    }

    /// Return a likely start of a record in the range: one from which several plausible records follow each other.
    pub(super) fn guess(&self, view: View<'_>, range: Range<usize>) -> Option<usize> {
        const CHAIN: usize = 8;
        let bytes = view.bytes;
        let plausible = |at: usize| -> Result<usize, NoRecord> {
            let header = Header::at(bytes, at)?;
            let known = match header.kind {
                record::SAMPLE => self.ids.of_sample(&bytes[at..at + header.size]).is_some(),
                1..=31 | record::USER..=127 => true,
                _ => false,
            };
            match known && header.size % 8 == 0 {
                true => Ok(at + header.size),
                false => Err(NoRecord::Size(header.size)),
            }
        };
        range.step_by(8).find(|&start| {
            let mut at = start - view.base;
            for _ in 0..CHAIN {
                match plausible(at) {
                    Ok(next) => at = next,
                    Err(NoRecord::Short) if view.is_cut() => return true,
                    Err(_) => return at == bytes.len(),
                }
            }
            true
        })
    }

    /// Read the records that begin in `start..end`; the last may reach beyond.
    pub(super) fn read(&self, view: View<'_>, start: usize, end: usize) -> Part {
        let View { bytes, base, .. } = view;
        let mut part = Part {
            start,
            next: start,
            end: End::More,
            events: Vec::with_capacity(self.most.load(Ordering::Relaxed)),
            side: Vec::new(),
            stacks: Stacks::default(),
            rounds: Vec::new(),
            max: 0,
            min: u64::MAX,
            stretch: None,
            tally: Tally {
                counts: vec![0; self.events.len()],
                ..Tally::default()
            },
        };
        let mut at = start;
        while at < end {
            let header = match Header::at(bytes, at - base) {
                Ok(header) => header,
                Err(NoRecord::Short) if view.is_cut() => {
                    part.end = End::Cut;
                    break;
                }
                Err(NoRecord::Short) => {
                    part.end =
                        End::Damaged(format!("the file is cut short in the record at byte {at}"));
                    break;
                }
                Err(NoRecord::Size(size)) => {
                    part.end = End::Damaged(format!(
                        "damaged at byte {at}: a record of {size} bytes; what follows is left out"
                    ));
                    break;
                }
            };
            let record = &bytes[at - base..at - base + header.size];
            match header.kind {
                record::SAMPLE => self.sample(record, &mut part),
                record::FINISHED_ROUND => part.rounds.push(part.max),
                record::COMPRESSED | record::COMPRESSED2 => {
                    part.end = End::Compressed;
                    break;
                }
                record::USER.. => {}
                _ => self.other(header, record, &mut part),
            }
            let Some(next) = file::range_end(at, header.size, header.extra(bytes, at - base))
                .filter(|&n| n <= view.end)
            else {
                part.end = End::Damaged(format!(
                    "the file is cut short in the data after the record at byte {at}"
                ));
                break;
            };
            at = next;
        }
        part.next = at;
        self.most.fetch_max(part.events.len(), Ordering::Relaxed);
        // Sorted here, where several cores work: merging sorted parts costs little.
        part.events.sort_by_key(|event| event.time);
        part
    }

    #[inline(always)]
    fn within(&self, time: u64, part: &mut Part) -> bool {
        match &part.stretch {
            Some((from, to, within)) if (*from..=*to).contains(&time) => *within,
            _ => part.stretch.insert(self.stretch(time)).2,
        }
    }

    /// Return the first and the last ns of the window around a time (true), or of the time between two windows (false).
    fn stretch(&self, time: u64) -> (u64, u64, bool) {
        let Some(windows) = &self.windows else {
            return (0, u64::MAX, true);
        };
        let at = windows.partition_point(|(_, to)| *to < time);
        let after = at.checked_sub(1).map_or(0, |before| windows[before].1 + 1);
        match windows.get(at) {
            Some(&(from, to)) if from <= time => (from, to, true),
            Some(&(from, _)) => (after, from - 1, false),
            None => (after, u64::MAX, false),
        }
    }

    #[inline(always)]
    pub(super) fn sample(&self, record: &[u8], part: &mut Part) {
        let Some((index, (layout, takes, all))) = self
            .ids
            .of_sample(record)
            .and_then(|index| Some((index, self.events.get(index)?)))
        else {
            part.tally.unknown += 1;
            return;
        };
        let time = match layout.time {
            0 => 0,
            place => match u64_at(record, place) {
                Some(time) => time,
                None => {
                    part.tally.broken += 1;
                    return;
                }
            },
        };
        let timed = timed(&time);
        if timed {
            part.max = part.max.max(time);
            part.tally.last = part.tally.last.max(time);
            part.tally.first = Some(part.tally.first.map_or(time, |first| first.min(time)));
        }
        part.tally.counts[index] += 1;
        if takes.is_empty() || !(*all || self.within(time, part)) {
            return;
        }
        if !timed && !takes.iter().any(|take| take.off_cpu) {
            part.tally.untimed += 1;
            return;
        }
        if self.take(record, layout, takes, time, part).is_none() {
            part.tally.counts[index] -= 1;
            part.tally.broken += 1;
        }
    }

    #[inline(always)]
    pub(super) fn take(
        &self,
        record: &[u8],
        layout: &Layout,
        takes: &[Take],
        time: u64,
        part: &mut Part,
    ) -> Option<()> {
        let raw = if layout.has_raw() {
            layout.raw(record)?
        } else {
            &[]
        };
        let (mut pid, mut tid) = if layout.tid == 0 {
            (-1, -1)
        } else {
            layout.task(record)?
        };
        let cpu = if layout.cpu == 0 {
            u32::MAX
        } else {
            u32_at(record, layout.cpu)?
        };
        for take in takes {
            if !take.applies(raw) {
                continue;
            }
            let mut v = if take.off_cpu && layout.has_raw() {
                let waited = Waited::of(raw)?;
                (pid, tid) = waited.task;
                let stack = part.stacks.number(waited.chain);
                [ABSENT, waited.ns, ABSENT, stack]
            } else if take.stack {
                let word = |place| match place {
                    0 => Some(ABSENT),
                    place => u64_at(record, place),
                };
                [
                    word(layout.ip)?,
                    word(layout.period)?,
                    ABSENT,
                    part.stacks.number(layout.chain(record)?),
                ]
            } else {
                [
                    take.v[0].read(raw)?,
                    take.v[1].read(raw)?,
                    take.v[2].read(raw)?,
                    match take.with_stack {
                        true => part.stacks.number(layout.chain(record)?),
                        false => take.v[3].read(raw)?,
                    },
                ]
            };
            take.renumber(&mut v);
            if let Some(name) = &take.name {
                let other = take.other.as_ref().and_then(|other| read_text(other, raw));
                if let Some(name) = read_text(name, raw) {
                    let [unique, ino, handle, connection] = v;
                    let name = other.filter(|_| name.is_empty()).unwrap_or(name).into();
                    part.side.push(match take.role {
                        Role::Listed => Side::Listed {
                            time,
                            pid,
                            tid,
                            unique,
                            ino,
                            name,
                        },
                        Role::Asked => Side::Asked {
                            time,
                            connection,
                            unique,
                            opcode: v[2],
                            ino,
                            name,
                        },
                        _ => Side::Name {
                            time,
                            pid,
                            tid,
                            unique,
                            ino,
                            handle,
                            name,
                            attribute: take
                                .attribute
                                .as_ref()
                                .and_then(|field| read_text(field, raw))
                                .filter(|text| !text.is_empty())
                                .map(Into::into),
                        },
                    });
                }
                continue;
            }
            part.events.push(Ev {
                time,
                pid,
                tid,
                kind: take.kind,
                cpu,
                v,
            });
        }
        Some(())
    }

    /// Read a record of the kernel that is no sample.
    pub(super) fn other(&self, header: Header, record: &[u8], part: &mut Part) {
        let layout = self
            .ids
            .of_other(record)
            .and_then(|index| self.events.get(index))
            .map(|(layout, ..)| layout);
        let layout = layout.filter(|layout| layout.sample_id_all);
        let time = layout
            .and_then(|layout| layout.tail_time(record))
            .filter(timed);
        part.max = part.max.max(time.unwrap_or(0));
        part.min = part.min.min(time.unwrap_or(u64::MAX));
        if self.side(header, record, layout, time, part).is_none() {
            part.tally.broken += 1;
        }
    }

    pub(super) fn side(
        &self,
        header: Header,
        record: &[u8],
        layout: Option<&Layout>,
        time: Option<u64>,
        part: &mut Part,
    ) -> Option<()> {
        let id = |at: usize| u32_at(record, at).map(|id| id as i32);
        let side = match header.kind {
            record::COMM => {
                // The name ends before the sample id.
                let tail = layout.map_or(0, |layout| layout.tail);
                let comm = until_nul(record.get(16..record.len().checked_sub(tail)?)?);
                Side::Comm {
                    time: time.unwrap_or(0),
                    pid: id(8)?,
                    tid: id(12)?,
                    comm,
                }
            }
            record::MMAP | record::MMAP2 if self.stacks || self.calls => {
                let tail = layout.map_or(0, |layout| layout.tail);
                let map = map_of(header, record, tail, time.unwrap_or(0))?;
                if !self.stacks && map.path != VDSO {
                    return Some(());
                }
                Side::Map(Box::new(map))
            }
            record::FORK | record::EXIT => {
                let time = time.or(u64_at(record, 24)).unwrap_or(0);
                let (pid, ppid, tid, ptid) = (id(8)?, id(12)?, id(16)?, id(20)?);
                if header.kind == record::FORK {
                    Side::Fork {
                        time,
                        pid,
                        tid,
                        ppid,
                        ptid,
                    }
                } else {
                    Side::Exit { time, pid, tid }
                }
            }
            record::SWITCH | record::SWITCH_CPU_WIDE if self.switches => {
                let (Some((pid, tid)), Some(time)) =
                    (layout.and_then(|layout| layout.tail_task(record)), time)
                else {
                    return Some(());
                };
                // The idle task belongs to no process.
                if tid == 0 {
                    return Some(());
                }
                let out = header.misc & record::MISC_SWITCH_OUT != 0;
                Side::Switch {
                    time,
                    pid,
                    tid,
                    out,
                    preempt: header.misc & record::MISC_SWITCH_OUT_PREEMPT != 0,
                }
            }
            record::LOST => {
                let lost = u64_at(record, 16)?;
                part.tally.lost = part.tally.lost.saturating_add(lost);
                match time {
                    Some(time) if lost > 0 => Side::Lost { time },
                    _ => return Some(()),
                }
            }
            record::LOST_SAMPLES if header.misc & record::MISC_LOST_SAMPLES_BPF == 0 => {
                let lost = u64_at(record, 8)?;
                part.tally.lost_samples = part.tally.lost_samples.saturating_add(lost);
                match time {
                    Some(time) if lost > 0 => Side::Lost { time },
                    _ => return Some(()),
                }
            }
            record::THROTTLE => {
                part.tally.throttled += 1;
                return Some(());
            }
            _ => return Some(()),
        };
        part.side.push(side);
        Some(())
    }
}

/// Return the contents of an MMAP or MMAP2. `tail`: bytes of its sample id.
pub(super) fn map_of(header: Header, record: &[u8], tail: usize, time: u64) -> Option<Map> {
    let name_at = if header.kind == record::MMAP { 40 } else { 72 };
    let name = record.get(name_at..record.len().checked_sub(tail)?)?;
    let mut build_id = &[][..];
    if header.kind == record::MMAP2 && header.misc & record::MISC_MMAP_BUILD_ID != 0 {
        let size = usize::from(*record.get(40)?).min(20);
        build_id = record.get(44..44 + size)?;
    }
    Some(Map {
        time,
        pid: match header.misc & 7 {
            record::MISC_KERNEL => -1,
            _ => u32_at(record, 8)? as i32,
        },
        start: u64_at(record, 16)?,
        len: u64_at(record, 24)?,
        offset: u64_at(record, 32)?,
        path: until_nul(name),
        build_id: build_id.to_owned(),
    })
}

/// Return the change of address spaces that a record shows: a mapping, or a new task.
pub(crate) fn space_change(record: &[u8], tail: usize) -> Option<Side> {
    let header = Header::at(record, 0).ok()?;
    let id = |at: usize| u32_at(record, at).map(|id| id as i32);
    match header.kind {
        record::MMAP | record::MMAP2 => Some(Side::Map(Box::new(map_of(header, record, tail, 0)?))),
        record::FORK => Some(Side::Fork {
            time: 0,
            pid: id(8)?,
            ppid: id(12)?,
            tid: id(16)?,
            ptid: id(20)?,
        }),
        _ => None,
    }
}

pub(super) fn side_time(side: &Side) -> u64 {
    match side {
        Side::Comm { time, .. }
        | Side::Fork { time, .. }
        | Side::Exit { time, .. }
        | Side::Name { time, .. }
        | Side::Asked { time, .. }
        | Side::Listed { time, .. }
        | Side::Switch { time, .. }
        | Side::Lost { time } => *time,
        Side::Map(map) => map.time,
    }
}

pub(super) fn side_time_mut(side: &mut Side) -> &mut u64 {
    match side {
        Side::Comm { time, .. }
        | Side::Fork { time, .. }
        | Side::Exit { time, .. }
        | Side::Name { time, .. }
        | Side::Asked { time, .. }
        | Side::Listed { time, .. }
        | Side::Switch { time, .. }
        | Side::Lost { time } => time,
        Side::Map(map) => &mut map.time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_window_or_in_a_gap() {
        for windows in [
            None,
            Some(vec![]),
            Some(vec![(0, 0), (5, 9), (10, 12), (20, 20)]),
            Some(vec![(3, u64::MAX)]),
        ] {
            let expected = |time: u64| {
                let mut all = windows.iter().flatten();
                windows.is_none() || all.any(|(from, to)| (*from..=*to).contains(&time))
            };
            let plan = ScanPlan {
                ids: Arc::default(),
                events: Vec::new(),
                windows: windows.clone(),
                switches: false,
                stacked: Vec::new(),
                stacks: false,
                calls: false,
                most: AtomicUsize::new(0),
            };
            for time in (0..25).chain([u64::MAX]) {
                let (from, to, within) = plan.stretch(time);
                assert!((from..=to).contains(&time), "{windows:?} {time}");
                let whole = from..=to.min(25);
                assert!(whole.chain([to]).all(|time| expected(time) == within));
            }
        }
    }
}
