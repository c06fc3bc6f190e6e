//! Row of a request: the same columns in each format.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use crate::answers::hist::bucket;
use crate::events::ABSENT;
use crate::operations::{Arch, Operation};
use crate::requests::named::Known;
use crate::requests::names::Path;
use crate::requests::stitch::{Cut, Mark, Stage, Story, BETWEEN, FATES, MARK_NAMES, STAGES};

/// Cell of a row.
#[derive(Clone, Copy)]
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

    pub(crate) fn task(id: i32) -> Value<'a> {
        match id {
            ..0 => Value::None,
            id => Value::Signed(id.into()),
        }
    }

    pub(crate) fn text(text: &'a str) -> Value<'a> {
        match text {
            "" => Value::None,
            text => Value::Text(text),
        }
    }
}

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identifier of 64 bits.
    Id,
    /// Signed number: ns, bytes, counts.
    Long,
    /// Signed number of 32 bits: tasks, errors.
    Int,
    Bool,
    Text,
}

/// Columns before the stages' and the marks'.
const COLUMNS: [(&str, Kind); 27] = [
    ("operation", Kind::Text),
    ("connection", Kind::Id),
    ("unique", Kind::Id),
    ("fate", Kind::Text),
    ("waits", Kind::Bool),
    ("error", Kind::Int),
    ("comm", Kind::Text),
    ("pid", Kind::Int),
    ("tid", Kind::Int),
    ("syscall", Kind::Text),
    ("daemon_pid", Kind::Int),
    ("daemon_tid", Kind::Int),
    ("path", Kind::Text),
    ("path_whole", Kind::Bool),
    ("name", Kind::Text),
    ("inode", Kind::Id),
    ("size_bytes", Kind::Long),
    ("offset_bytes", Kind::Long),
    ("request_bytes", Kind::Long),
    ("reply_bytes", Kind::Long),
    ("duration_ns", Kind::Long),
    ("no_thread_ns", Kind::Long),
    ("no_cpu_ns", Kind::Long),
    ("asleep_ns", Kind::Long),
    ("blocked_ns", Kind::Long),
    ("runnable_ns", Kind::Long),
    ("elsewhere_ns", Kind::Long),
];
/// Number of stages, with `between` in second place.
const PLACES: usize = STAGES.len() + 1;

/// Columns that only tables have. After them come the parts of the stages.
const MORE: [(&str, Kind); 9] = [
    ("mount", Kind::Text),
    ("opcode", Kind::Int),
    ("nth", Kind::Long),
    ("ring", Kind::Bool),
    ("until_ns", Kind::Long),
    ("negative", Kind::Bool),
    ("bucket", Kind::Int),
    ("whole_ns", Kind::Long),
    ("whole_bucket", Kind::Int),
];

fn stage_names() -> impl Iterator<Item = &'static str> {
    let (first, others) = STAGES.split_at(1);
    let others = others.iter().copied();
    first.iter().copied().chain([BETWEEN]).chain(others)
}

/// Return the names of the columns of `Row::each`.
pub(crate) fn names() -> impl Iterator<Item = String> {
    columns().map(|(name, _)| name)
}

fn columns() -> impl Iterator<Item = (String, Kind)> {
    let plain = COLUMNS
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), *kind));
    let stages = stage_names().map(|name| (format!("stage_{name}_ns"), Kind::Long));
    let marks = MARK_NAMES
        .iter()
        .map(|name| (format!("{name}_ns"), Kind::Long));
    plain.chain(stages).chain(marks)
}

/// Return the columns of a table: those of `Row::each`, and those of `Row::more`.
pub(crate) fn table_columns() -> impl Iterator<Item = (String, Kind)> {
    let more = MORE.iter().map(|(name, kind)| ((*name).to_owned(), *kind));
    let parts = stage_names().zip(PARTS.iter()).flat_map(|(stage, parts)| {
        parts
            .iter()
            .map(move |(part, _)| (format!("stage_{stage}_{part}_ns"), Kind::Long))
    });
    columns().chain(more).chain(parts)
}

type Parts = &'static [(&'static str, usize)];

/// `parts_of` each of `stage_names`.
static PARTS: LazyLock<Vec<Parts>> = LazyLock::new(|| stage_names().map(parts_of).collect());

/// Return the parts of a stage that have a column of their own, with their places in `Stage::parts`. Those of the queue
/// and of the daemon are among COLUMNS.
fn parts_of(stage: &str) -> Parts {
    match stage {
        "queue" | "daemon" => &[],
        "caller_wakeup" => &[("runnable", 0)],
        _ => &[("blocked", 0), ("runnable", 1)],
    }
}

/// Return the stages of a request, each at its place among `stage_names`. A stage that cannot be separated from the next
/// has none: it is part of the next. The time since a refused answer is the reply's. Also return their sum.
fn stages(story: &Story) -> ([Option<(Stage, u64)>; PLACES], u64) {
    let mut found = [None; PLACES];
    if !story.counts() {
        return (found, 0);
    }
    let cut = Cut::new(story);
    for (stage, ns) in cut.stages() {
        // `between` is after the first.
        let place = match stage.to {
            1 if !stage.resumed => 0,
            to => to,
        };
        found[usize::from(place)] = Some((stage, ns));
    }
    (found, cut.total)
}

/// Request with the texts of its row.
pub(crate) struct Row<'a> {
    known: &'a Known<'a>,
    path: Option<Path>,
    syscall: Cow<'static, str>,
    stages: [Option<(Stage, u64)>; PLACES],
    /// Sum of the stages in ns.
    whole: u64,
}

impl<'a> Row<'a> {
    pub(crate) fn new(known: &'a Known<'a>, arch: &Arch) -> Row<'a> {
        let syscall = match known.story.syscall {
            ABSENT => Cow::Borrowed(""),
            number => arch.syscall_text(number),
        };
        let (stages, whole) = stages(known.story);
        Row {
            known,
            path: known.path(),
            syscall,
            stages,
            whole,
        }
    }

    /// Pass the values of all columns of a row to `see`, in the columns' order.
    #[inline]
    pub(crate) fn each<'b>(&'b self, mut see: impl FnMut(Value<'b>)) {
        let (known, story) = (self.known, self.known.story);
        let path = self.path.as_ref();
        let fate = FATES.iter().find(|(fate, _)| *fate == story.fate);
        let end = story.at(Mark::End);
        let name = known.details.argument();
        let plain: [Value<'_>; COLUMNS.len()] = [
            Value::Text(story.operation.name()),
            Value::known_number(story.connection),
            Value::known_number(story.unique),
            Value::Text(fate.map_or("", |(_, name)| name)),
            Value::Truth(story.waits),
            end.map_or(Value::None, |_| Value::Signed(story.error.into())),
            Value::text(known.comm()),
            Value::task(story.pid),
            Value::task(story.tid),
            Value::text(&self.syscall),
            Value::task(story.daemon_pid),
            Value::task(story.daemon_tid),
            path.map_or(Value::None, |path| Value::Text(&path.text)),
            path.map_or(Value::None, |path| Value::Truth(path.whole)),
            name.map_or(Value::None, Value::Text),
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
        plain.into_iter().for_each(&mut see);
        for stage in self.stages {
            see(stage.map_or(Value::None, |(_, ns)| Value::Number(ns)));
        }
        for time in story.marks {
            see(Value::known_number(time));
        }
    }

    /// Pass the values of the other columns of a table. `mounts`: mount points by connection.
    #[inline]
    pub(crate) fn more<'b>(
        &'b self,
        mounts: &'b HashMap<u64, String>,
        mut see: impl FnMut(Value<'b>),
    ) {
        let story = self.known.story;
        let mount = mounts.get(&story.connection);
        let answered = story.at(Mark::End).is_some() && story.error == 0;
        let lookup = answered && story.operation == Operation::LOOKUP;
        let whole = story.counts().then_some(self.whole);
        let bucketed = |ns: Option<u64>| ns.map_or(Value::None, |ns| Value::Number(bucket(ns)));
        let more: [Value<'_>; MORE.len()] = [
            mount.map_or(Value::None, |path| Value::text(path)),
            Value::known_number(story.opcode),
            Value::Number(story.nth.into()),
            Value::Truth(story.ring),
            Value::known_number(story.until),
            Value::Truth(lookup && self.known.is_negative()),
            bucketed(story.duration()),
            whole.map_or(Value::None, Value::Number),
            bucketed(whole),
        ];
        more.into_iter().for_each(&mut see);
        for (parts, stage) in PARTS.iter().zip(self.stages) {
            let known = || stage.and_then(|(stage, ns)| Some((stage.parts(story)?, ns)));
            let known = if parts.is_empty() { None } else { known() };
            for (_, place) in *parts {
                see(known.map_or(Value::None, |(parts, ns)| {
                    let before = parts[..*place].iter();
                    let before = before.fold(0u64, |sum, ns| sum.saturating_add(*ns));
                    // A part is at most what is left.
                    Value::Number(parts[*place].min(ns.saturating_sub(before)))
                }));
            }
        }
    }
}
