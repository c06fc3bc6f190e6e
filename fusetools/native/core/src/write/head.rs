//! The parts of a perf.data around its records: attrs, ids, features, event formats; joined from those of several
//! recordings.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::older::{Holds, Older};
use super::stacks::{copied, MEMORY};
use super::{SESSION_MAX, SESSION_PART};
use crate::error::Error;
use crate::format::file::{self, feature, Attr};
use crate::format::record::{self, bit, u32_at, u64_at};
use crate::format::tracing::{name_and_id, Tracing};
use crate::reader::{Reader, SESSION};

/// Features that are rewritten, or that describe data which is not in the output.
const ANEW: [u32; 6] = [
    feature::TRACING_DATA,
    feature::EVENT_DESC,
    feature::AUXTRACE,
    feature::SAMPLE_TIME,
    feature::DIR_FORMAT,
    feature::COMPRESSED,
];
/// An event of the output: struct perf_event_attr, the ids its samples carry, "system:name".
#[derive(Clone, Debug)]
pub(super) struct Event {
    attr: Vec<u8>,
    ids: Vec<u64>,
    name: String,
}

impl Event {
    /// Return the event of a tracepoint that fusetools writes, for samples of `put_sample`. `address`: its samples have
    /// one.
    pub(super) fn tracepoint(
        name: &str,
        config: u64,
        id: u64,
        clock: Option<i32>,
        address: bool,
    ) -> Event {
        let bits = bit::TID | bit::TIME | bit::CPU | bit::RAW | bit::IDENTIFIER;
        let bits = bits | if address { bit::IP | bit::PERIOD } else { 0 };
        let clocked = if clock.is_some() {
            flag::USE_CLOCKID
        } else {
            0
        };
        let mut event = Event {
            attr: vec![0; ATTR_SIZE],
            ids: vec![id],
            name: name.into(),
        };
        event.set(0, &file::TYPE_TRACEPOINT.to_le_bytes());
        for (at, value) in [
            (8, config),
            (16, 1),
            (24, bits),
            (40, flag::DISABLED | flag::SAMPLE_ID_ALL | clocked),
        ] {
            event.set(at, &value.to_le_bytes());
        }
        event.set(92, &clock.unwrap_or(0).to_le_bytes());
        event
    }

    /// Add stacks, and the address where each begins.
    pub(super) fn with_chain(mut self) -> Event {
        self.set(24, &(self.u64(24) | bit::IP | bit::CALLCHAIN).to_le_bytes());
        self
    }

    fn u64(&self, at: usize) -> u64 {
        u64_at(&self.attr, at).unwrap_or(0)
    }
    fn set(&mut self, at: usize, value: &[u8]) {
        self.attr[at..at + value.len()].copy_from_slice(value);
    }
    pub(super) fn name(&self) -> &str {
        &self.name
    }
    /// Turn it into the event of another tracepoint.
    pub(super) fn rename(&mut self, name: &str, config: u64, ids: Vec<u64>) {
        self.set(8, &config.to_le_bytes());
        (self.name, self.ids) = (name.into(), ids);
    }
    /// Take over the ids of another event.
    pub(super) fn also(&mut self, other: &Event) {
        self.ids.extend(&other.ids);
    }
    fn is_tracepoint(&self) -> bool {
        u32_at(&self.attr, 0) == Some(file::TYPE_TRACEPOINT)
    }
    pub(super) fn config(&self) -> u64 {
        self.u64(8)
    }
    /// Return the bytes of the sample id at the end of records that are no samples.
    pub(super) fn tail(&self) -> usize {
        let parts = bit::TID | bit::TIME | bit::ID | bit::STREAM_ID | bit::CPU | bit::IDENTIFIER;
        if self.sample_id_all() {
            8 * (self.u64(24) & parts).count_ones() as usize
        } else {
            0
        }
    }
    fn holds(&self) -> Holds {
        Holds {
            sample_type: self.u64(24),
            read_format: self.read_format(),
            branch_sample_type: self.u64(72),
        }
    }
    fn read_format(&self) -> u64 {
        self.u64(32)
    }
    fn sample_id_all(&self) -> bool {
        self.u64(40) & flag::SAMPLE_ID_ALL != 0
    }
    /// Return the clock of the time stamps; None: perf's own.
    fn clock(&self) -> Option<i32> {
        let given = self.u64(40) & flag::USE_CLOCKID != 0;
        u32_at(&self.attr, 92)
            .filter(|_| given)
            .map(|clock| clock as i32)
    }
}

/// perf_event_attr up to its clock (PERF_ATTR_SIZE_VER3).
const ATTR_SIZE: usize = 96;

/// Bits of perf_event_attr after its read_format.
mod flag {
    pub const DISABLED: u64 = 1;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub const USE_CLOCKID: u64 = 1 << 25;
}

/// Everything in the inputs except their records.
pub(super) struct Head<'a> {
    pub events: Vec<Event>,
    pub tracing: Option<Tracing<'a>>,
    pub features: BTreeMap<u32, Cow<'a, [u8]>>,
    /// Ids of removed events that records other than samples still refer to.
    pub spare_ids: Vec<u64>,
}

impl<'a> Head<'a> {
    /// Join the heads of concurrent recordings. Where only one value is possible, the first one's stays.
    pub(super) fn join(
        heads: Vec<Head<'a>>,
        warnings: &mut Vec<String>,
    ) -> Result<Head<'a>, Error> {
        let mut heads = heads.into_iter();
        let mut joined = heads
            .next()
            .ok_or_else(|| Error::mismatch("no recording was given"))?;
        for other in heads {
            joined.absorb(other, warnings)?;
        }
        if let Some(event) = joined.events.first_mut() {
            event.ids.append(&mut joined.spare_ids);
        }
        Ok(joined)
    }

    fn absorb(&mut self, other: Head<'a>, warnings: &mut Vec<String>) -> Result<(), Error> {
        for (number, what) in [
            (feature::HOSTNAME, "hosts"),
            (feature::ARCH, "architectures"),
        ] {
            if let (Some(mine), Some(others)) =
                (self.features.get(&number), other.features.get(&number))
            {
                if mine != others {
                    let [mine, others] = [mine, others].map(|section| text(section));
                    return Err(Error::OtherHost {
                        why: format!("the recordings are of different {what}: {mine} and {others}"),
                    });
                }
            }
        }
        if [&self.events, &other.events]
            .iter()
            .any(|events| events.iter().any(|event| event.u64(24) & bit::TIME == 0))
        {
            return Err(Error::mismatch(
                "events were recorded without their time (perf record -T)",
            ));
        }
        let ids: HashSet<u64> = self
            .events
            .iter()
            .flat_map(|event| event.ids.iter().copied())
            .collect();
        if let Some(id) = other
            .events
            .iter()
            .flat_map(|event| &event.ids)
            .find(|id| ids.contains(id))
        {
            return Err(Error::mismatch(format!(
                "both have the event id {id}: not recorded at once on one machine, or given twice"
            )));
        }
        match (&mut self.tracing, other.tracing) {
            (Some(mine), Some(others)) => {
                if (mine.long_size, mine.page_size, mine.header_page)
                    != (others.long_size, others.page_size, others.header_page)
                {
                    return Err(Error::mismatch("their kernels lay out events differently"));
                }
                for event in mine.absorb(&others) {
                    warnings.push(format!("{event}: its number is another event's in the first recording; its fields may be wrong"));
                }
            }
            (mine, others) => *mine = mine.take().or(others),
        }
        let before = self.events.len();
        self.events.extend(other.events);
        self.spare_ids.extend(other.spare_ids);
        for (number, section) in other.features {
            let joined = match (number, self.features.get(&number)) {
                (feature::BUILD_ID, Some(mine)) => join_build_ids(mine, &section),
                (feature::GROUP_DESC, mine) => {
                    join_groups(mine.map(|mine| &mine[..]), &section, before)
                }
                (_, Some(_)) => continue,
                (_, None) => Some(section.to_vec()),
            };
            // A section with contradictory sizes stays as in the first file: no other section depends on it.
            if let Some(joined) = joined {
                self.features.insert(number, Cow::Owned(joined));
            }
        }
        Ok(())
    }
}

/// Decode a string of perf: u32 size, then the text padded with NUL.
fn text(section: &[u8]) -> String {
    let text = section.get(4..).unwrap_or_default();
    String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

/// Join the records (u32 type, u16 misc, u16 size …), each only once.
pub(super) fn join_build_ids(mine: &[u8], others: &[u8]) -> Option<Vec<u8>> {
    fn split(mut section: &[u8]) -> Option<Vec<&[u8]>> {
        let mut records = Vec::new();
        while !section.is_empty() {
            let size = u16::from_le_bytes(section.get(6..8)?.try_into().ok()?) as usize;
            let record = section.get(..size.max(8))?;
            records.push(record);
            section = &section[record.len()..];
        }
        Some(records)
    }
    let mine = split(mine)?;
    let known: HashSet<&[u8]> = mine.iter().copied().collect();
    let new = split(others)?
        .into_iter()
        .filter(|record| !known.contains(record));
    Some(mine.iter().copied().chain(new).flatten().copied().collect())
}

/// Join the groups: u32 count, then per group a string, u32 index of its leader among the events, u32 members: `others`
/// come after `before` events.
fn join_groups(mine: Option<&[u8]>, others: &[u8], before: usize) -> Option<Vec<u8>> {
    let count = u32_at(others, 0)?;
    let mut joined = mine.unwrap_or(&[0; 4]).to_vec();
    let sum = u32_at(&joined, 0)?.checked_add(count)?;
    joined[..4].copy_from_slice(&sum.to_le_bytes());
    let mut at = 4usize;
    for _ in 0..count {
        let name = at..(at + 4).checked_add(u32_at(others, at)? as usize)?;
        let leader = u32_at(others, name.end)?.checked_add(before as u32)?;
        at = name.end + 8;
        joined.extend(others.get(name.clone())?);
        joined.extend(leader.to_le_bytes());
        joined.extend(others.get(name.end + 4..at)?);
    }
    Some(joined)
}

/// Encode EVENT_DESC: u32 events, u32 size of an attr, then per event the attr, u32 ids, its name, the ids.
pub(super) fn encode_event_desc(events: &[Event], attr_size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((events.len() as u32).to_le_bytes());
    out.extend((attr_size as u32).to_le_bytes());
    for event in events {
        out.extend(&event.attr);
        out.extend((event.ids.len() as u32).to_le_bytes());
        let size = (event.name.len() + 1).next_multiple_of(64);
        out.extend((size as u32).to_le_bytes());
        out.extend(event.name.as_bytes());
        out.resize(out.len() + size - event.name.len(), 0);
        event.ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
    }
    out
}

/// Return a format text as tracefs writes it: the common fields, then `fields`.
fn format_text(name: &str, id: u64, fields: &str, print: &str) -> Vec<u8> {
    format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         {fields}\nprint fmt: {print}\n"
    )
    .into_bytes()
}

const SESSION_FIELDS: &str = "\tfield:__data_loc char[] json;\toffset:8;\tsize:4;\tsigned:0;\n";

impl<'a> Head<'a> {
    pub(super) fn remove_session(&mut self) {
        self.events.retain(|event| event.name != SESSION);
        if let Some(tracing) = &mut self.tracing {
            tracing.remove("fusetools");
        }
    }

    /// Leave out events whose stacks alone are used; perf needs their ids (ID_INDEX).
    pub(super) fn remove(&mut self, unwanted: &[bool]) {
        let mut unwanted = unwanted.iter();
        let (gone, rest): (Vec<Event>, _) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|_| unwanted.next() == Some(&true));
        self.events = rest;
        self.spare_ids
            .extend(gone.into_iter().flat_map(|event| event.ids));
    }

    /// Return the numbers of tracepoints that are already in use.
    pub(super) fn kinds(&self) -> HashSet<u64> {
        let events = self.events.iter().filter(|event| event.is_tracepoint());
        let formats = self.tracing.iter().flat_map(|tracing| tracing.formats());
        let formats = formats.filter_map(|(_, text)| Some(name_and_id(text)?.1.into()));
        events.map(Event::config).chain(formats).collect()
    }

    /// Add the event of the session samples. Return these samples, one after the other, with times of 0, and the places
    /// of their JSON.
    pub(super) fn add_session(
        &mut self,
        json: &str,
        id: u64,
    ) -> Result<(Vec<u8>, Vec<Range<usize>>), Error> {
        if json.len() > SESSION_MAX {
            return Err(Error::mismatch(format!(
                "the session's facts take {} bytes, more than {SESSION_MAX}",
                json.len()
            )));
        }
        let used = self.kinds();
        let kind = (0..=u64::from(u16::MAX))
            .rev()
            .find(|id| !used.contains(id))
            .ok_or_else(|| Error::mismatch("no event number is left"))?;
        let first = self
            .events
            .first()
            .ok_or_else(|| Error::mismatch("no events"))?;
        let mut event = Event::tracepoint(SESSION, kind, id, first.clock(), true);
        if !first.sample_id_all() {
            event.set(40, &(event.u64(40) & !flag::SAMPLE_ID_ALL).to_le_bytes());
        }
        self.events.push(event);
        let tracing = self.tracing.get_or_insert_with(Tracing::empty);
        let text = format_text("session", kind, SESSION_FIELDS, "\"%s\", __get_str(json)");
        tracing.add("fusetools", Cow::Owned(text));

        let (mut samples, mut places) = (Vec::new(), Vec::new());
        for part in json.as_bytes().chunks(SESSION_PART) {
            let mut raw = (kind as u16).to_le_bytes().to_vec();
            raw.resize(8, 0);
            raw.extend(((part.len() as u32 + 1) << 16 | 12).to_le_bytes());
            raw.extend(part);
            raw.push(0);
            let of = Sample {
                id,
                ip: Some(0),
                pid: 0,
                tid: 0,
                time: 0,
                cpu: 0,
            };
            let text = samples.len() + SESSION_TEXT as usize;
            places.push(text..text + part.len());
            put_sample(&mut samples, &of, &raw);
        }
        Ok((samples, places))
    }

    /// Give all attrs the same size, which is returned, and give the added attrs what older perfs require to be equal.
    /// Refuse what `older` reads wrongly.
    pub(super) fn level(&mut self, older: Option<&Older>) -> Result<usize, Error> {
        let sizes = self.events.iter().map(|event| event.attr.len());
        let size = sizes.max().unwrap_or(0);
        let size = older.map_or(size, |older| size.min(older.attr_size()));
        let read_format = self.events.first().map_or(0, Event::read_format);
        for event in &mut self.events {
            if let Some(older) = older {
                older.check(&event.name, event.holds())?;
            }
            if event.read_format() == 0 {
                event.set(32, &read_format.to_le_bytes());
            }
            event.attr.resize(size, 0);
            event.set(4, &(size as u32).to_le_bytes());
        }
        Ok(size)
    }

    /// Give every tracepoint a format: perf refuses a file without one, and a killed recorder leaves none.
    pub(super) fn add_formats(&mut self, warnings: &mut Vec<String>) {
        let known: HashMap<u64, String> = self
            .tracing
            .iter()
            .flat_map(|tracing| tracing.formats())
            .filter_map(|(system, text)| {
                name_and_id(text).map(|(name, id)| (id.into(), format!("{system}:{name}")))
            })
            .collect();
        let (mut added, mut unknown) = (HashSet::new(), Vec::new());
        for event in self.events.iter_mut().filter(|event| event.is_tracepoint()) {
            let id = event.config();
            if let Some(name) = known.get(&id) {
                event.name.clone_from(name);
                continue;
            }
            if !event.name.contains(':') {
                event.name = format!("unknown:event_{id}");
            }
            if added.insert(id) {
                unknown.push(event.name.clone());
                let (system, name) = event.name.split_once(':').unwrap_or_default();
                let text = Cow::Owned(format_text(name, id, "", "\"\""));
                self.tracing
                    .get_or_insert_with(Tracing::empty)
                    .add(system, text);
            }
        }
        let more = match unknown.len() {
            0 => return,
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        warnings.push(format!(
            "{}{more}: no recording has its format, so its fields cannot be read",
            unknown[0]
        ));
    }

    /// Check the part of sample_type that perf requires of all events in a file, and that merging their records needs.
    pub(super) fn check(&self) -> Result<(), Error> {
        let differ = |of: &dyn Fn(&Event) -> Option<i32>| {
            self.events
                .windows(2)
                .any(|pair| of(&pair[0]) != of(&pair[1]))
        };
        if differ(&|event| event.sample_id_all().then_some(0)) {
            return Err(Error::mismatch(
                "only some have sample ids in all records (perf record --no-sample-id-all)",
            ));
        }
        if differ(&Event::clock) {
            return Err(Error::mismatch(
                "they were recorded on different clocks (perf record -k)",
            ));
        }
        Ok(())
    }
}

/// Fields of a written sample, apart from its raw data.
pub(super) struct Sample {
    pub id: u64,
    /// None: samples of the event have no address.
    pub ip: Option<u64>,
    pub pid: i32,
    pub tid: i32,
    pub time: u64,
    pub cpu: u32,
}

/// Place of the time in the records of `put_sample` with an address.
pub(super) const SAMPLE_TIME: usize = 8 + 8 + 8 + 8;
/// Place of the JSON in a session's sample. It follows the header, six words and the size of the raw data; within the
/// raw data, it follows the event's number and the text's place.
pub(super) const SESSION_TEXT: u64 = 8 + 6 * 8 + 4 + 8 + 4;
/// The maximum size of raw data that fits into a record.
pub(super) const RAW_MAX: usize = u16::MAX as usize - 8 - 6 * 8 - 4 - 7;

/// Write a sample of an event of `Event::tracepoint`. `raw` has at most `RAW_MAX` bytes.
pub(super) fn put_sample(out: &mut Vec<u8>, sample: &Sample, raw: &[u8]) {
    // perf requires raw data with its size to end on 8 bytes.
    let padded = (raw.len() + 4).next_multiple_of(8) - 4;
    let kernel = sample.ip.unwrap_or(0) as i64 <= 0;
    let words = if sample.ip.is_some() { 6 } else { 4 };
    out.extend(record::SAMPLE.to_le_bytes());
    out.extend(
        if kernel {
            record::MISC_KERNEL
        } else {
            record::MISC_USER
        }
        .to_le_bytes(),
    );
    out.extend(((8 + words * 8 + 4 + padded) as u16).to_le_bytes());
    out.extend(sample.id.to_le_bytes());
    if let Some(ip) = sample.ip {
        out.extend(ip.to_le_bytes());
    }
    out.extend(sample.pid.to_le_bytes());
    out.extend(sample.tid.to_le_bytes());
    out.extend(sample.time.to_le_bytes());
    out.extend(u64::from(sample.cpu).to_le_bytes());
    if sample.ip.is_some() {
        out.extend(1u64.to_le_bytes()); // period
    }
    out.extend((padded as u32).to_le_bytes());
    out.extend(raw);
    out.resize(out.len() + padded - raw.len(), 0);
}

/// Write a LOST record of an event of `Event::tracepoint`.
pub(super) fn put_lost(out: &mut Vec<u8>, sample: &Sample, count: u64) {
    out.extend(record::LOST.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend((8 + 2 * 8 + 4 * 8u16).to_le_bytes());
    out.extend(sample.id.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(sample.pid.to_le_bytes());
    out.extend(sample.tid.to_le_bytes());
    out.extend(sample.time.to_le_bytes());
    out.extend(u64::from(sample.cpu).to_le_bytes());
    out.extend(sample.id.to_le_bytes());
}

impl<'a> Head<'a> {
    /// Read a header. `spare_id` is for the only event of a recording without ids. `unwinds`: copies of user stacks
    /// become call chains; `private`: other copies are removed.
    pub(super) fn read(
        reader: &'a Reader,
        spare_id: u64,
        unwinds: bool,
        private: bool,
    ) -> Result<Head<'a>, Error> {
        let identified = |attr: &&Attr| attr.layout.sample_type & bit::IDENTIFIER != 0;
        let attrs = reader.attrs();
        if attrs.iter().filter(identified).count() % attrs.len() != 0
            || attrs.len() > 1 && attrs[0].layout.id == 0
        {
            return Err(Error::mismatch(
                "its samples do not tell which event they are of",
            ));
        }
        let mut events = Vec::new();
        for (attr, info) in attrs.iter().zip(reader.events()) {
            let mut event = Event {
                attr: attr.raw.clone(),
                ids: attr.ids.clone(),
                name: info.name.clone(),
            };
            if event.ids.is_empty() {
                event.ids.push(spare_id);
            }
            let mut bits = attr.layout.sample_type | bit::IDENTIFIER;
            if unwinds && copied(reader, attr).is_some() {
                bits &= !(bit::REGS_USER | bit::STACK_USER);
                let flags = event.u64(40) & !flag::EXCLUDE_CALLCHAIN_USER;
                event.set(40, &flags.to_le_bytes());
                event.set(80, &[0; 12]); // sample_regs_user, sample_stack_user
            } else if private && bits & MEMORY != 0 {
                bits &= !MEMORY;
                if event.attr.len() >= 92 {
                    event.set(80, &[0; 12]);
                }
            }
            event.set(24, &bits.to_le_bytes());
            events.push(event);
        }
        let features = reader
            .features()
            .iter()
            .filter(|(number, _)| !ANEW.contains(number));
        let features = features
            .map(|(number, range)| (*number, Cow::Borrowed(&reader.bytes()[range.clone()])))
            .collect();
        let tracing = reader
            .tracing()
            .map(|tracing| Tracing::new(reader.bytes(), tracing));
        Ok(Head {
            events,
            tracing,
            features,
            spare_ids: Vec::new(),
        })
    }

    /// Return the header, ids and attrs, which precede the data.
    pub(super) fn encode(&self, attr_size: usize, data_size: u64) -> Vec<u8> {
        let ids: u64 = self
            .events
            .iter()
            .map(|event| 8 * event.ids.len() as u64)
            .sum();
        let attrs = HEADER + ids;
        let entry = attr_size as u64 + 16;
        let data = attrs + entry * self.events.len() as u64;
        let mut bits = [0u64; 4];
        for &number in self.features.keys().filter(|&&number| number < 256) {
            bits[number as usize / 64] |= 1 << (number % 64);
        }
        let mut out = file::MAGIC.to_vec();
        for value in [HEADER, entry, attrs, data - attrs, data, data_size, 0, 0]
            .into_iter()
            .chain(bits)
        {
            out.extend(value.to_le_bytes());
        }
        self.events
            .iter()
            .flat_map(|event| &event.ids)
            .for_each(|id| out.extend(id.to_le_bytes()));
        let mut at = HEADER;
        for event in &self.events {
            let size = 8 * event.ids.len() as u64;
            out.extend(&event.attr);
            out.extend(at.to_le_bytes());
            out.extend(size.to_le_bytes());
            at += size;
        }
        out
    }
}

const HEADER: u64 = 104;

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, leader: u32, members: u32) -> Vec<u8> {
        let mut out = 64u32.to_le_bytes().to_vec();
        out.extend(name.as_bytes());
        out.resize(4 + 64, 0);
        out.extend(leader.to_le_bytes());
        out.extend(members.to_le_bytes());
        out
    }

    #[test]
    fn groups_count_events_of_the_whole() {
        let [mine, others] = [(1u32, group("a", 1, 2)), (1, group("b", 0, 3))]
            .map(|(count, group)| [count.to_le_bytes().to_vec(), group].concat());
        let joined = [
            2u32.to_le_bytes().to_vec(),
            group("a", 1, 2),
            group("b", 5, 3),
        ]
        .concat();
        assert_eq!(join_groups(Some(&mine), &others, 5), Some(joined));
        assert_eq!(join_groups(None, &others[..others.len() - 1], 5), None);
        assert_eq!(join_groups(None, &u32::MAX.to_le_bytes(), 5), None);
    }

    #[test]
    fn build_ids_are_joined_without_duplicates() {
        let record = |name: u8| [0, 0, 0, 0, 0, 0, 12, 0, name, 0, 0, 0];
        let joined = join_build_ids(
            &[record(1), record(2)].concat(),
            &[record(2), record(3)].concat(),
        );
        assert_eq!(joined, Some([record(1), record(2), record(3)].concat()));
        assert_eq!(
            join_build_ids(&record(1), &[0, 0, 0, 0, 0, 0, 255, 255]),
            None
        );
        assert_eq!(join_build_ids(&record(1), &[0; 7]), None);
    }
}
