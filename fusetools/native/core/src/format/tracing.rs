//! Tracing data of a recording: event formats from the kernel, and what is needed to read its ring buffer.
//!
//! The same bytes are the TRACING_DATA section of a perf.data (tools/perf/util/trace-event-info.c) and the beginning of
//! a trace.dat up to version 6 (trace-cmd.dat.v6(5)).

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use crate::format::file;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

type Text<'a> = Cow<'a, [u8]>;

#[derive(Clone, Debug)]
pub struct Tracing<'a> {
    pub version: &'a str,
    pub long_size: u8,
    pub page_size: u32,
    pub header_page: &'a [u8],
    pub header_event: &'a [u8],
    /// Format texts of ftrace's own events (function, funcgraph_entry …).
    pub ftrace: Vec<Text<'a>>,
    /// Format texts of the other events, by system.
    pub systems: Vec<(String, Vec<Text<'a>>)>,
    pub kallsyms: Text<'a>,
    pub printk: &'a [u8],
    /// Lines "PID COMM"; not in version 0.5.
    pub cmdlines: Text<'a>,
}

impl<'a> Tracing<'a> {
    /// Return the tracing data of `file`, from its `parts`.
    pub fn new(file: &'a [u8], parts: &'a file::Tracing) -> Tracing<'a> {
        let at = |range: &Range<usize>| file.get(range.clone()).unwrap_or_default();
        let texts = |ranges: &[Range<usize>]| {
            ranges
                .iter()
                .map(|range| Cow::Borrowed(at(range)))
                .collect()
        };
        Tracing {
            version: &parts.version,
            long_size: parts.long_size as u8,
            page_size: parts.page_size,
            header_page: at(&parts.header_page),
            header_event: at(&parts.header_event),
            ftrace: texts(&parts.ftrace),
            systems: parts
                .systems
                .iter()
                .map(|(name, ranges)| (name.clone(), texts(ranges)))
                .collect(),
            kallsyms: Cow::Borrowed(at(&parts.kallsyms)),
            printk: at(&parts.printk),
            cmdlines: Cow::Borrowed(at(&parts.cmdlines)),
        }
    }

    /// Return tracing data for a recording that has none: that of a 64-bit kernel, without formats.
    pub fn empty() -> Tracing<'a> {
        Tracing {
            version: "0.6",
            long_size: 8,
            page_size: 4096,
            header_page: b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n",
            header_event: b"",
            ftrace: Vec::new(),
            systems: Vec::new(),
            kallsyms: Cow::Borrowed(b""),
            printk: b"",
            cmdlines: Cow::Borrowed(b""),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        fn sized(out: &mut Vec<u8>, text: &[u8]) {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text);
        }
        let mut out = MAGIC.to_vec();
        out.extend(self.version.as_bytes());
        out.extend([0, 0, self.long_size]);
        out.extend(self.page_size.to_le_bytes());
        out.extend(b"header_page\0");
        sized(&mut out, self.header_page);
        out.extend(b"header_event\0");
        sized(&mut out, self.header_event);
        out.extend((self.ftrace.len() as u32).to_le_bytes());
        self.ftrace.iter().for_each(|text| sized(&mut out, text));
        out.extend((self.systems.len() as u32).to_le_bytes());
        for (name, formats) in &self.systems {
            out.extend(name.as_bytes());
            out.push(0);
            out.extend((formats.len() as u32).to_le_bytes());
            formats.iter().for_each(|text| sized(&mut out, text));
        }
        for text in [&self.kallsyms[..], self.printk] {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text);
        }
        if self.version != "0.5" {
            sized(&mut out, &self.cmdlines);
        }
        out
    }

    /// Return every format as (system, text). The system of ftrace's own is "ftrace".
    pub fn formats(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let ftrace = self.ftrace.iter().map(|text| ("ftrace", &text[..]));
        ftrace.chain(
            self.systems.iter().flat_map(|(system, texts)| {
                texts.iter().map(move |text| (system.as_str(), &text[..]))
            }),
        )
    }

    pub fn add(&mut self, system: &str, text: Text<'a>) {
        if system == "ftrace" {
            self.ftrace.push(text);
        } else if let Some((_, texts)) = self.systems.iter_mut().find(|(name, _)| name == system) {
            texts.push(text);
        } else {
            self.systems.push((system.to_owned(), vec![text]));
        }
    }

    /// Keep the formats for which `keep` holds.
    pub(crate) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        self.ftrace.retain(|text| keep(text));
        self.systems
            .iter_mut()
            .for_each(|(_, texts)| texts.retain(|text| keep(text)));
        self.systems.retain(|(_, texts)| !texts.is_empty());
    }

    pub fn remove(&mut self, system: &str) {
        self.systems.retain(|(name, _)| name != system);
    }

    /// Add what `other`, from the same machine, has and this one lacks. An event id has only one meaning: where the two
    /// differ, keep this one's and return the event's name.
    pub fn absorb(&mut self, other: &Tracing<'a>) -> Vec<String> {
        let texts: HashSet<Vec<u8>> = self.formats().map(|(_, text)| text.to_vec()).collect();
        let ids: HashSet<u32> = texts
            .iter()
            .filter_map(|text| Some(name_and_id(text)?.1))
            .collect();
        let mut differing = Vec::new();
        for (system, text) in other.formats() {
            if texts.contains(text) {
                continue;
            }
            match name_and_id(text) {
                Some((name, id)) if ids.contains(&id) => {
                    differing.push(format!("{system}:{name}"));
                }
                _ => self.add(system, Cow::Owned(text.to_vec())),
            }
        }
        if self.kallsyms.is_empty() {
            self.kallsyms.clone_from(&other.kallsyms);
        }
        if self.printk.is_empty() {
            self.printk = other.printk;
        }
        let known: HashSet<&[u8]> = self.cmdlines.split(|&byte| byte == b'\n').collect();
        let new: Vec<&[u8]> = other
            .cmdlines
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty() && !known.contains(line))
            .collect();
        if !new.is_empty() {
            let mut joined = self.cmdlines.to_vec();
            if joined.last().is_some_and(|&byte| byte != b'\n') {
                joined.push(b'\n');
            }
            for line in new {
                joined.extend(line);
                joined.push(b'\n');
            }
            self.cmdlines = Cow::Owned(joined);
        }
        differing
    }
}

/// Return the name and id at the head of a format text.
pub fn name_and_id(text: &[u8]) -> Option<(&str, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    let name = lines.next()?.strip_prefix("name: ")?;
    let id = lines.next()?.strip_prefix("ID: ")?.trim().parse().ok()?;
    Some((name, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, id: u32, more: &str) -> Vec<u8> {
        format!("name: {name}\nID: {id}\nformat:\n{more}").into_bytes()
    }

    fn tracing(formats: &[(&str, Vec<u8>)], cmdlines: &'static str) -> Tracing<'static> {
        let mut tracing = Tracing {
            cmdlines: Cow::Borrowed(cmdlines.as_bytes()),
            ..Tracing::empty()
        };
        for (system, text) in formats {
            tracing.add(system, Cow::Owned(text.clone()));
        }
        tracing
    }

    #[test]
    fn formats_are_joined_without_duplicates() {
        let (switch, entry) = (
            text("sched_switch", 300, ""),
            text("funcgraph_entry", 11, ""),
        );
        let mut mine = tracing(
            &[("sched", switch.clone()), ("ftrace", entry.clone())],
            "1 init\n2 kthreadd",
        );
        let waking = text("sched_waking", 301, "");
        let others = tracing(
            &[
                ("ftrace", entry.clone()),
                ("sched", switch.clone()),
                ("sched", waking.clone()),
                ("fuse", text("end", 300, "x")),
            ],
            "2 kthreadd\n3 find\n",
        );
        // 300 is another event there.
        assert_eq!(mine.absorb(&others), ["fuse:end"]);
        let joined: Vec<(&str, &[u8])> = mine.formats().collect();
        assert_eq!(
            joined,
            [
                ("ftrace", &entry[..]),
                ("sched", &switch),
                ("sched", &waking)
            ]
        );
        assert_eq!(&mine.cmdlines[..], b"1 init\n2 kthreadd\n3 find\n");
    }

    #[test]
    fn name_and_id_of_a_text() {
        assert_eq!(
            name_and_id(&text("sys_enter", 443, "")),
            Some(("sys_enter", 443))
        );
        assert_eq!(name_and_id(b"name: x\n"), None);
        assert_eq!(name_and_id(b"\xff"), None);
    }
}
