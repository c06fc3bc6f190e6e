//! Splits events that several probes share: in the output each probe has an event of its own. Since Linux 5.4 an
//! event can have several probes (kernel/trace/trace_probe.c, trace_probe_append). Arming and closing take time for
//! each event, not for each probe.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::head::{Event, Head};
use crate::error::Error;
use crate::format::record::{bit, Layout};
use crate::format::tracepoint::{number, Format, Shape};
use crate::format::tracing::name_and_id;

/// An event of several probes. One of its fields holds the probe's number.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// "system:name".
    pub event: String,
    pub field: String,
    /// (number, "system:name" of the probe's event in the same system, fields that only other probes of the bundle
    /// have).
    pub probes: Vec<(u64, String, Vec<String>)>,
}

/// Maps samples of a bundle to the events of its probes.
pub(super) struct Split {
    field: (usize, usize),
    /// By number: the event's id, its number in raw data, its name.
    probes: FxHashMap<u64, (u64, u16, String)>,
}

impl Split {
    fn probe(&self, raw: &[u8]) -> Option<&(u64, u16, String)> {
        let (at, size) = self.field;
        let number = number(raw.get(at..at.checked_add(size)?)?)?;
        self.probes.get(&number)
    }

    /// Return the event id of raw data's probe, and its number there.
    pub(super) fn of(&self, raw: &[u8]) -> Option<(u64, u16)> {
        self.probe(raw).map(|(id, kind, _)| (*id, *kind))
    }

    /// Return the event of raw data's probe.
    pub(super) fn name_of(&self, raw: &[u8]) -> Option<&str> {
        self.probe(raw).map(|(.., name)| &name[..])
    }

    /// Return the event of a sample's probe.
    pub(super) fn name(&self, layout: &Layout, bytes: &[u8]) -> Option<&str> {
        self.name_of(layout.raw(bytes)?)
    }

    /// Return the sample as a sample of its own probe; None if it belongs to no probe.
    pub(super) fn sample(&self, layout: &Layout, bytes: &[u8]) -> Option<Vec<u8>> {
        let raw = layout.raw(bytes)?;
        let (id, kind, _) = self.probe(raw)?;
        // Place of the raw data in the sample.
        let begin = raw.as_ptr() as usize - bytes.as_ptr() as usize;
        let mut own = bytes.to_vec();
        own.get_mut(begin..begin + 2)?
            .copy_from_slice(&kind.to_le_bytes());
        let before = bit::IDENTIFIER | bit::IP | bit::TID | bit::TIME | bit::ADDR;
        let before = 8 + 8 * (layout.sample_type & before).count_ones() as usize;
        for (part, at) in [(bit::IDENTIFIER, 8), (bit::ID, before)] {
            if layout.sample_type & part != 0 {
                own.get_mut(at..at + 8)?.copy_from_slice(&id.to_le_bytes());
            }
        }
        Some(own)
    }
}

impl Head<'_> {
    /// Replace the bundles by the events of their probes. Return how to distribute samples, by the bundle's name. The
    /// events get ids from `free_id` on. Bundles without recorded events are left out.
    pub(super) fn split_bundles(
        &mut self,
        bundles: &[Bundle],
        free_id: &mut u64,
    ) -> Result<HashMap<String, Rc<Split>>, Error> {
        let mut split = HashMap::new();
        for bundle in bundles {
            let Some(at) = self.events.iter().position(|e| e.name() == bundle.event) else {
                continue;
            };
            let wrong = |what: &str| Error::mismatch(format!("{}: {what}", bundle.event));
            let (system, _) = bundle.event.split_once(':').unwrap_or_default();
            let mut used: HashSet<u64> = self.kinds();
            let tracing = self.tracing.as_mut().ok_or_else(|| wrong("no format"))?;
            let config = self.events[at].config();
            let text = tracing.formats().find_map(|(of, text)| {
                let known = name_and_id(text)?;
                (of == system && u64::from(known.1) == config).then(|| text.to_vec())
            });
            let text = text.ok_or_else(|| wrong("no format"))?;
            let text = String::from_utf8(text).map_err(|_| wrong("no format"))?;
            let format = Format::parse(system, &text, tracing.long_size.into());
            let field = format.as_ref().and_then(|f| f.field(&bundle.field));
            let field = field.filter(|field| field.shape == Shape::Number);
            let field = field.ok_or_else(|| wrong("no field tells its probes split"))?;
            let field = (field.offset, field.size);
            tracing.retain(|text| name_and_id(text).is_none_or(|(_, id)| u64::from(id) != config));
            used.remove(&config);
            let rest = text.splitn(3, '\n').nth(2).unwrap_or_default();
            let old = self.events[at].clone();
            let mut probes = FxHashMap::default();
            let mut free = (0..=u16::MAX)
                .rev()
                .filter(|kind| !used.contains(&u64::from(*kind)));
            for (index, (number, name, absent)) in bundle.probes.iter().enumerate() {
                let kind = free
                    .next()
                    .ok_or_else(|| wrong("no event number is left"))?;
                let mut event = old.of_probe(name, kind.into(), *free_id);
                probes.insert(*number, (*free_id, kind, name.clone()));
                *free_id = free_id.wrapping_add(1);
                let short = name.split_once(':').map_or(&name[..], |(_, short)| short);
                let rest = without(rest, absent);
                let text = format!("name: {short}\nID: {kind}\n{rest}");
                tracing.add(system, Cow::Owned(text.into_bytes()));
                if index == 0 {
                    // Records other than samples name the bundle.
                    event.also(&old);
                    self.events[at] = event;
                } else {
                    self.events.push(event);
                }
            }
            split.insert(bundle.event.clone(), Rc::new(Split { field, probes }));
        }
        Ok(split)
    }
}

/// Return a format's text without some fields: without their lines and their part of the print format, as the kernel
/// writes it for probes (kernel/trace/trace_probe.c, __set_print_fmt): `"(%lx) ino=%Lu", REC->__probe_ip, REC->ino`.
fn without<'a>(text: &'a str, absent: &[String]) -> Cow<'a, str> {
    if absent.is_empty() {
        return text.into();
    }
    let (fields, printed) = text.split_once("print fmt:").unwrap_or((text, ""));
    let is_absent = |line: &str| {
        let declared = line
            .trim_start()
            .strip_prefix("field:")
            .and_then(|l| l.split(';').next());
        let name = declared.and_then(|declared| declared.split_whitespace().last());
        name.is_some_and(|name| absent.iter().any(|other| other == name))
    };
    let own = fields.split_inclusive('\n').filter(|line| !is_absent(line));
    let mut text: String = own.collect();
    let mut printed = format!("print fmt:{printed}");
    for name in absent {
        if let Some(at) = printed.find(&format!(" {name}=%")) {
            let value = &printed[at + 1..];
            let len = value.find([' ', '"']).unwrap_or(value.len());
            printed.replace_range(at..at + 1 + len, "");
        }
        let argument = format!(", REC->{name}");
        let is_whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let place = printed.match_indices(&argument);
        let mut ends = place.map(|(at, _)| (at, at + argument.len()));
        if let Some((at, end)) = ends.find(|(_, end)| is_whole(&printed[*end..])) {
            printed.replace_range(at..end, "");
        }
    }
    text.push_str(&printed);
    text.into()
}

impl Event {
    /// Return the same event under another name, for samples with other raw data.
    fn of_probe(&self, name: &str, kind: u64, id: u64) -> Event {
        let mut event = self.clone();
        event.rename(name, kind, vec![id]);
        event
    }
}
