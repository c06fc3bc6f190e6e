//! Writes single requests when they are complete: a row each, as CSV or JSON.

use std::io::{self, Write};

use crate::events::ABSENT;
use crate::named::{Known, Listener};
use crate::operations::Arch;
use crate::stitch::{Cut, Mark, Story, BETWEEN, FATES, MARK_NAMES, STAGES};

/// Cell of a row, or value in JSON.
pub(crate) enum Value<'a> {
    None,
    Number(u64),
    Signed(i64),
    Truth(bool),
    Text(&'a str),
}

impl<'a> Value<'a> {
    pub(crate) fn known_number(value: u64) -> Value<'a> {
        match value {
            ABSENT => Value::None,
            value => Value::Number(value),
        }
    }

    fn task(id: i32) -> Value<'a> {
        match id {
            ..0 => Value::None,
            id => Value::Signed(id.into()),
        }
    }

    fn text(text: &'a str) -> Value<'a> {
        match text {
            "" => Value::None,
            text => Value::Text(text),
        }
    }

    /// Append the value as JSON, in ASCII only, so that no name can control a terminal.
    pub(crate) fn json(&self, out: &mut String) {
        match self {
            Value::None => out.push_str("null"),
            Value::Number(number) => out.push_str(&number.to_string()),
            Value::Signed(number) => out.push_str(&number.to_string()),
            Value::Truth(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Text(text) => {
                out.push('"');
                for unit in text.encode_utf16() {
                    match u8::try_from(unit) {
                        Ok(byte @ (b'"' | b'\\')) => out.extend(['\\', byte.into()]),
                        Ok(byte @ b' '..=b'~') => out.push(byte.into()),
                        _ => out.push_str(&format!("\\u{unit:04x}")),
                    }
                }
                out.push('"');
            }
        }
    }

    /// Append the value as CSV. Characters that could control a terminal become Python's escapes; a quote precedes text
    /// that a spreadsheet would run.
    fn csv(&self, out: &mut String) {
        let Value::Text(text) = self else {
            if !matches!(self, Value::None) {
                self.json(out);
            }
            return;
        };
        let mut plain = String::new();
        if text
            .trim_start_matches('\'')
            .starts_with(['=', '+', '-', '@'])
        {
            plain.push('\'');
        }
        for c in text.chars() {
            match c as u32 {
                _ if matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1 => plain.push(c),
                code @ ..0x100 => plain.push_str(&format!("\\x{code:02x}")),
                code @ ..0x1_0000 => plain.push_str(&format!("\\u{code:04x}")),
                code => plain.push_str(&format!("\\U{code:08x}")),
            }
        }
        if plain.contains(['"', ',']) {
            plain = format!("\"{}\"", plain.replace('"', "\"\""));
        }
        out.push_str(&plain);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Csv,
    /// JSON object up to the last row in the array `requests`. The caller ends both.
    Json,
}

/// Columns before the stages' and the marks'.
const COLUMNS: [&str; 27] = [
    "operation",
    "connection",
    "unique",
    "fate",
    "waits",
    "error",
    "comm",
    "pid",
    "tid",
    "syscall",
    "daemon_pid",
    "daemon_tid",
    "path",
    "path_whole",
    "name",
    "inode",
    "size_bytes",
    "offset_bytes",
    "request_bytes",
    "reply_bytes",
    "duration_ns",
    "no_thread_ns",
    "no_cpu_ns",
    "asleep_ns",
    "blocked_ns",
    "runnable_ns",
    "elsewhere_ns",
];

/// Writer of a row for each request.
pub struct Rows<W: Write> {
    out: W,
    form: Form,
    arch: Arch,
    rows: u64,
    result: io::Result<()>,
}

impl<W: Write> Rows<W> {
    pub fn new(out: W, form: Form, arch: Option<&str>) -> Rows<W> {
        let mut rows = Rows {
            out,
            form,
            arch: Arch::new(arch),
            rows: 0,
            result: Ok(()),
        };
        match form {
            Form::Csv => rows.write(&format!("{}\n", columns().collect::<Vec<_>>().join(","))),
            Form::Json => rows.write("{\"requests\": ["),
        }
        rows
    }

    /// Return the number of written rows.
    pub fn finish(mut self) -> io::Result<u64> {
        self.result?;
        self.out.flush()?;
        Ok(self.rows)
    }

    fn write(&mut self, text: &str) {
        if self.result.is_ok() {
            self.result = self.out.write_all(text.as_bytes());
        }
    }
}

fn columns() -> impl Iterator<Item = String> {
    let stages = stage_names().map(|name| format!("stage_{name}_ns"));
    let marks = MARK_NAMES.iter().map(|name| format!("{name}_ns"));
    let plain = COLUMNS.iter().map(|name| (*name).to_owned());
    plain.chain(stages).chain(marks)
}

fn stage_names() -> impl Iterator<Item = &'static str> {
    let (first, others) = STAGES.split_at(1);
    first
        .iter()
        .copied()
        .chain([BETWEEN])
        .chain(others.iter().copied())
}

/// Return the ns of each stage. A stage that cannot be separated from the next has none: it is part of the next. The
/// time since a refused answer is the reply's.
fn stages(story: &Story) -> [u64; STAGES.len() + 1] {
    let mut times = [ABSENT; STAGES.len() + 1];
    if !story.counts() {
        return times;
    }
    for (stage, ns) in Cut::new(story).stages() {
        // `between` is after the first.
        let place = match stage.to {
            1 if !stage.resumed => 0,
            to => to,
        };
        times[usize::from(place)] = ns;
    }
    times
}

impl<W: Write> Listener for Rows<W> {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let path = known.path();
        let fate = FATES.iter().find(|(fate, _)| *fate == story.fate);
        let syscall = match story.syscall {
            ABSENT => String::new(),
            number => self.arch.syscall(number),
        };
        let end = story.at(Mark::End);
        let plain = [
            Value::Text(story.operation.name()),
            Value::known_number(story.connection),
            Value::known_number(story.unique),
            Value::Text(fate.map_or("", |(_, name)| name)),
            Value::Truth(story.waits),
            end.map_or(Value::None, |_| Value::Signed(story.error.into())),
            Value::text(known.comm()),
            Value::task(story.pid),
            Value::task(story.tid),
            Value::text(&syscall),
            Value::task(story.daemon_pid),
            Value::task(story.daemon_tid),
            path.as_ref()
                .map_or(Value::None, |path| Value::Text(&path.text)),
            path.as_ref()
                .map_or(Value::None, |path| Value::Truth(path.whole)),
            known
                .details
                .name
                .as_deref()
                .map_or(Value::None, Value::Text),
            known.inode().map_or(Value::None, Value::Number),
            Value::known_number(known.details.size),
            Value::known_number(known.details.offset),
            Value::known_number(story.request_len),
            Value::known_number(story.reply_len),
            story.duration().map_or(Value::None, Value::Number),
            Value::known_number(story.no_thread),
            Value::known_number(story.no_cpu),
            Value::known_number(story.asleep),
            Value::known_number(story.blocked),
            Value::known_number(story.runnable),
            Value::known_number(story.elsewhere),
        ];
        let marks = story.marks.iter().map(|time| Value::known_number(*time));
        let stages = stages(story).map(Value::known_number);
        let values = plain.into_iter().chain(stages).chain(marks);
        let mut line = String::with_capacity(512);
        match self.form {
            Form::Csv => {
                for (place, value) in values.enumerate() {
                    line.push_str(if place > 0 { "," } else { "" });
                    value.csv(&mut line);
                }
                line.push('\n');
            }
            Form::Json => {
                line.push_str(if self.rows > 0 { ",\n{" } else { "\n{" });
                for (place, (name, value)) in columns().zip(values).enumerate() {
                    line.push_str(if place > 0 { ", " } else { "" });
                    line.push_str(&format!("\"{name}\": "));
                    value.json(&mut line);
                }
                line.push('}');
            }
        }
        self.rows += 1;
        self.write(&line);
    }
}
