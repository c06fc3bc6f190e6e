//! Tables of requests, calls, waits and stacks, as streams of Arrow record batches of bounded size.
//!
//! A thread reads the recording while the user of the stream takes the batches: memory does not grow with the recording.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::answers::analysis;
use crate::answers::flame;
use crate::answers::offcpu::STATES;
use crate::answers::rows::{table_columns, Kind, Row, Value};
use crate::error::Error;
use crate::events::Meaning;
use crate::operations::Arch;
use crate::reader::Reader;
use crate::requests::filters::Filters;
use crate::requests::named::{tell, Known, Listener};

/// Maximum number of rows of a batch, and of bytes of text in it.
const MOST_ROWS: usize = 1 << 16;
const MOST_TEXT: usize = 1 << 24;

/// Function that reads a recording and passes its rows on.
type Pass = Box<dyn FnOnce(&mut Rows) -> Result<(), Error> + Send>;

/// Next batch; None at the end.
type Message = Result<Option<RecordBatch>, ArrowError>;

/// Table: its columns, and a pass over the recording for each stream.
pub struct Table {
    schema: SchemaRef,
    pass: Box<dyn Fn() -> Result<Pass, Error> + Send + Sync>,
}

impl Table {
    fn new(
        columns: impl IntoIterator<Item = (String, Kind)>,
        pass: impl Fn() -> Result<Pass, Error> + Send + Sync + 'static,
    ) -> Table {
        let fields = columns.into_iter().map(|(name, kind)| {
            let text = || DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
            let of = match kind {
                Kind::Id => DataType::UInt64,
                Kind::Long => DataType::Int64,
                Kind::Int => DataType::Int32,
                Kind::Bool => DataType::Boolean,
                Kind::Text => text(),
            };
            Field::new(name, of, true)
        });
        Table {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            pass: Box::new(pass),
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Open the recording. Its events are read once the first batch is taken.
    pub fn stream(&self) -> Result<Stream, Error> {
        Ok(Stream {
            schema: self.schema.clone(),
            pass: Some((self.pass)()?),
            batches: None,
        })
    }
}

/// Batches of a table.
pub struct Stream {
    schema: SchemaRef,
    pass: Option<Pass>,
    /// Batches of the thread that reads. None: it has not begun, or has ended.
    batches: Option<Receiver<Message>>,
}

impl Stream {
    fn begin(&mut self, pass: Pass) -> Result<(), ArrowError> {
        let (sender, receiver) = sync_channel(1);
        let mut rows = Rows::new(&self.schema, sender);
        let thread = thread::Builder::new().name("fusetools-rows".to_owned());
        let spawned = thread.spawn(move || match pass(&mut rows) {
            Ok(()) => rows.end(),
            Err(error) => rows.send(Err(ArrowError::ExternalError(error.into()))),
        });
        spawned.map_err(|error| ArrowError::IoError("cannot start a thread".to_owned(), error))?;
        self.batches = Some(receiver);
        Ok(())
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(pass) = self.pass.take() {
            if let Err(error) = self.begin(pass) {
                return Some(Err(error));
            }
        }
        let message = self.batches.as_ref()?.recv();
        if !matches!(message, Ok(Ok(Some(_)))) {
            self.batches = None;
        }
        match message {
            Ok(message) => message.transpose(),
            Err(_) => Some(Err(ArrowError::ComputeError(
                "the thread that reads the recording has failed".to_owned(),
            ))),
        }
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Texts of the next batch. Each different text is stored once.
struct Texts {
    keys: PrimitiveBuilder<Int32Type>,
    values: StringBuilder,
    /// Key of each text by its hash, or by the next free number; and of each number of a text.
    by_hash: FxHashMap<u64, i32>,
    by_number: FxHashMap<u32, i32>,
    /// Key of the last text, which often comes again.
    last: i32,
}

impl Texts {
    fn new() -> Texts {
        Texts {
            keys: PrimitiveBuilder::new(),
            values: StringBuilder::new(),
            by_hash: FxHashMap::default(),
            by_number: FxHashMap::default(),
            last: 0,
        }
    }

    /// Return whether a text has this key.
    fn is(&self, key: i32, text: &str) -> bool {
        let ends = self.values.offsets_slice().get(key as usize..);
        let Some([from, to, ..]) = ends else {
            return false;
        };
        self.values.values_slice()[*from as usize..*to as usize] == *text.as_bytes()
    }

    fn key(&mut self, text: &str) -> i32 {
        if self.is(self.last, text) {
            return self.last;
        }
        let mut hash = FxBuildHasher.hash_one(text);
        self.last = loop {
            match self.by_hash.get(&hash) {
                Some(key) if self.is(*key, text) => break *key,
                Some(_) => hash = hash.wrapping_add(1),
                None => {
                    // A batch has at most MOST_ROWS.
                    let key = self.by_hash.len() as i32;
                    self.by_hash.insert(hash, key);
                    self.values.append_value(text);
                    break key;
                }
            }
        };
        self.last
    }

    /// Append a text. `number`: one that no other text has, if known.
    fn append(&mut self, text: &str, number: Option<u32>) {
        let known = number.and_then(|number| self.by_number.get(&number).copied());
        let key = known.unwrap_or_else(|| {
            let key = self.key(text);
            self.by_number.extend(number.map(|number| (number, key)));
            key
        });
        self.keys.append_value(key);
    }

    fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let values = Arc::new(self.values.finish());
        let array = DictionaryArray::<Int32Type>::try_new(self.keys.finish(), values)?;
        Ok(Arc::new(array))
    }
}

/// Column of the next batch.
enum Column {
    Id(PrimitiveBuilder<UInt64Type>),
    Long(PrimitiveBuilder<Int64Type>),
    Int(PrimitiveBuilder<Int32Type>),
    Bool(BooleanBuilder),
    Text(Box<Texts>),
}

impl Column {
    fn new(of: &DataType) -> Column {
        match of {
            DataType::UInt64 => Column::Id(PrimitiveBuilder::new()),
            DataType::Int64 => Column::Long(PrimitiveBuilder::new()),
            DataType::Int32 => Column::Int(PrimitiveBuilder::new()),
            DataType::Boolean => Column::Bool(BooleanBuilder::new()),
            _ => Column::Text(Box::new(Texts::new())),
        }
    }

    /// Append a value; null if it is unknown or does not fit. Return the bytes of its text.
    fn append(&mut self, value: Value<'_>) -> usize {
        #[inline]
        fn number<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: Value<'_>)
        where
            T::Native: TryFrom<u64> + TryFrom<i64>,
        {
            builder.append_option(match value {
                Value::Number(number) => number.try_into().ok(),
                Value::Signed(number) => number.try_into().ok(),
                _ => None,
            });
        }
        match (self, value) {
            (Column::Id(builder), value) => number(builder, value),
            (Column::Long(builder), value) => number(builder, value),
            (Column::Int(builder), value) => number(builder, value),
            (Column::Bool(builder), Value::Truth(truth)) => builder.append_value(truth),
            (Column::Bool(builder), _) => builder.append_null(),
            (Column::Text(texts), Value::Text(text)) => {
                texts.append(text, None);
                return text.len();
            }
            (Column::Text(texts), _) => texts.keys.append_null(),
        }
        0
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Column::Id(mut builder) => Arc::new(builder.finish()),
            Column::Long(mut builder) => Arc::new(builder.finish()),
            Column::Int(mut builder) => Arc::new(builder.finish()),
            Column::Bool(mut builder) => Arc::new(builder.finish()),
            Column::Text(texts) => texts.finish()?,
        })
    }
}

/// Cells of a row that are still to come.
struct Cells<'a> {
    columns: std::slice::IterMut<'a, Column>,
    /// Bytes of text so far.
    text: usize,
}

impl Cells<'_> {
    #[inline]
    fn add(&mut self, value: Value<'_>) {
        if let Some(column) = self.columns.next() {
            self.text += column.append(value);
        }
    }

    /// Add a text with a number that no other text of its column has; null if it is empty.
    fn add_numbered(&mut self, number: u32, text: &str) {
        match self.columns.next() {
            Some(Column::Text(texts)) if !text.is_empty() => {
                texts.append(text, Some(number));
                self.text += text.len();
            }
            Some(column) => self.text += column.append(Value::None),
            None => {}
        }
    }
}

/// Rows of the next batch.
struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    text: usize,
    batches: SyncSender<Message>,
    /// The stream was dropped: nobody wants further rows.
    unwanted: bool,
}

impl Rows {
    fn new(schema: &SchemaRef, batches: SyncSender<Message>) -> Rows {
        Rows {
            schema: schema.clone(),
            columns: Rows::columns(schema),
            rows: 0,
            text: 0,
            batches,
            unwanted: false,
        }
    }

    fn columns(schema: &Schema) -> Vec<Column> {
        let fields = schema.fields().iter();
        fields.map(|field| Column::new(field.data_type())).collect()
    }

    fn send(&mut self, message: Message) {
        self.unwanted |= self.batches.send(message).is_err();
    }

    fn add<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) {
        self.add_row(|cells| values.for_each(|value| cells.add(value)));
    }

    /// Add a row whose cells `fill` adds.
    #[inline]
    fn add_row(&mut self, fill: impl FnOnce(&mut Cells<'_>)) {
        let mut cells = Cells {
            columns: self.columns.iter_mut(),
            text: 0,
        };
        fill(&mut cells);
        self.text += cells.text;
        self.rows += 1;
        if self.rows >= MOST_ROWS || self.text >= MOST_TEXT {
            self.flush();
        }
    }

    /// Hand the batch on, and begin the next one.
    fn flush(&mut self) {
        let columns = Rows::columns(&self.schema);
        let columns = std::mem::replace(&mut self.columns, columns).into_iter();
        let columns: Result<Vec<ArrayRef>, ArrowError> = columns.map(Column::finish).collect();
        let batch = columns.and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns));
        (self.rows, self.text) = (0, 0);
        self.send(batch.map(Some));
    }

    fn end(mut self) {
        if self.rows > 0 {
            self.flush();
        }
        self.send(Ok(None));
    }
}

/// Recording, and the question about it.
#[derive(Clone)]
pub struct Question {
    pub path: PathBuf,
    pub catalogue: Vec<Meaning>,
    pub filters: Filters,
}

/// Return the requests, in order of completion. `mounts`: mount points by connection.
pub fn requests(question: Question, mounts: HashMap<u64, String>) -> Table {
    Table::new(table_columns(), move || {
        let (question, mounts) = (question.clone(), mounts.clone());
        let reader = Reader::open(&question.path)?;
        Ok(Box::new(move |rows| {
            let arch = Arch::new(reader.arch().as_deref());
            let mut requests = Requests { rows, arch, mounts };
            tell(
                &reader,
                &question.catalogue,
                question.filters,
                &mut requests,
            )?;
            Ok(())
        }))
    })
}

struct Requests<'a> {
    rows: &'a mut Rows,
    arch: Arch,
    mounts: HashMap<u64, String>,
}

impl Listener for Requests<'_> {
    fn story(&mut self, known: &Known<'_>) {
        if self.rows.unwanted {
            return;
        }
        let row = Row::new(known, &self.arch);
        self.rows.add_row(|cells| {
            row.each(|value| cells.add(value));
            row.more(&self.mounts, |value| cells.add(value));
        });
    }
}

/// Return the matched calls of all layers, in order of completion.
pub fn calls(question: Question) -> Table {
    const COLUMNS: [(&str, Kind); 7] = [
        ("layer", Kind::Text),
        ("function", Kind::Text),
        ("begin_ns", Kind::Long),
        ("duration_ns", Kind::Long),
        ("pid", Kind::Int),
        ("tid", Kind::Int),
        ("unique", Kind::Id),
    ];
    let columns = COLUMNS.map(|(name, kind)| (name.to_owned(), kind));
    Table::new(columns, move || {
        let question = question.clone();
        let reader = Reader::open(&question.path)?;
        Ok(Box::new(move |rows| {
            let tell = &mut |call: &analysis::Call, function: &str| {
                if rows.unwanted {
                    return;
                }
                let unique = match call.unique {
                    0 => Value::None,
                    unique => Value::Number(unique),
                };
                let values: [Value<'_>; COLUMNS.len()] = [
                    Value::Text(call.layer.name()),
                    Value::Text(function),
                    Value::Number(call.start),
                    Value::Number(call.duration),
                    Value::task(call.pid),
                    Value::task(call.tid),
                    unique,
                ];
                rows.add(values.into_iter());
            };
            analysis::calls(&reader, &question.catalogue, question.filters, tell)
        }))
    })
}

/// Return the waits that `flame::waits` hands on: a row for each of their states.
pub fn waits(path: PathBuf, catalogue: Vec<Meaning>, selection: flame::Selection) -> Table {
    const COLUMNS: [(&str, Kind); 8] = [
        ("side", Kind::Text),
        ("comm", Kind::Text),
        ("pid", Kind::Int),
        ("tid", Kind::Int),
        ("state", Kind::Text),
        ("begin_ns", Kind::Long),
        ("duration_ns", Kind::Long),
        ("stack", Kind::Text),
    ];
    let columns = COLUMNS.map(|(name, kind)| (name.to_owned(), kind));
    Table::new(columns, move || {
        let (catalogue, selection) = (catalogue.clone(), selection.clone());
        let reader = Reader::open(&path)?;
        Ok(Box::new(move |rows| {
            let tell = &mut |wait: &flame::Waited| {
                if rows.unwanted {
                    return;
                }
                let state = STATES.iter().find(|(state, _)| Some(*state) == wait.state);
                let values: [Value<'_>; COLUMNS.len() - 1] = [
                    Value::Text(wait.who.name()),
                    Value::text(wait.comm),
                    Value::task(wait.pid),
                    Value::task(wait.tid),
                    Value::Text(state.map_or("", |(_, name)| name)),
                    Value::Number(wait.begin),
                    Value::Number(wait.ns),
                ];
                rows.add_row(|cells| {
                    values.into_iter().for_each(|value| cells.add(value));
                    cells.add_numbered(wait.node, wait.stack);
                });
            };
            flame::waits(&reader, &catalogue, &selection, tell)
        }))
    })
}

/// Return stacks, each with its weight. `weight`: name of its column.
pub fn stacks(weight: &str, stacks: Vec<(String, u64)>) -> Table {
    let columns = [("stack", Kind::Text), (weight, Kind::Long)];
    let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
    let stacks = Arc::new(stacks);
    Table::new(columns, move || {
        let stacks = stacks.clone();
        Ok(Box::new(move |rows| {
            for (stack, weight) in stacks.iter() {
                rows.add([Value::Text(stack), Value::Number(*weight)].into_iter());
            }
            Ok(())
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(
        pass: impl Fn(&mut Rows) -> Result<(), Error> + Clone + Send + Sync + 'static,
    ) -> Table {
        let columns = [("number", Kind::Long), ("name", Kind::Text)];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
        Table::new(columns, move || Ok(Box::new(pass.clone())))
    }

    fn add(rows: &mut Rows, number: u64, name: &str) {
        rows.add([Value::Number(number), Value::Text(name)].into_iter());
    }

    fn sizes(table: &Table) -> Vec<usize> {
        let batches = table.stream().unwrap().map(|batch| batch.unwrap());
        batches.map(|batch| batch.num_rows()).collect()
    }

    #[test]
    fn a_batch_is_bounded_by_its_rows_and_by_its_text() {
        let many = table(|rows| {
            (0..MOST_ROWS as u64 + 10).for_each(|number| add(rows, number, "x"));
            Ok(())
        });
        assert_eq!(sizes(&many), [MOST_ROWS, 10]);
        let long = "x".repeat(MOST_TEXT / 4);
        let long = table(move |rows| {
            (0..6).for_each(|number| add(rows, number, &long));
            Ok(())
        });
        assert_eq!(sizes(&long), [4, 2]);
        assert_eq!(sizes(&table(|_| Ok(()))), []);
        assert_eq!(sizes(&many), [MOST_ROWS, 10]);
    }

    #[test]
    fn a_number_that_does_not_fit_is_null() {
        let numbers = table(|rows| {
            [1, u64::MAX]
                .into_iter()
                .for_each(|number| add(rows, number, ""));
            Ok(())
        });
        let batch = numbers.stream().unwrap().next().unwrap().unwrap();
        assert_eq!(batch.column(0).null_count(), 1);
        assert_eq!(batch.column(1).null_count(), 0);
    }

    #[test]
    fn nothing_is_decoded_for_a_stream_that_was_dropped() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let endless = table(move |rows| {
            while !rows.unwanted {
                add(rows, 1, "x");
            }
            sender.send(()).unwrap();
            Ok(())
        });
        let mut stream = endless.stream().unwrap();
        assert_eq!(stream.next().unwrap().unwrap().num_rows(), MOST_ROWS);
        drop(stream);
        receiver.recv().unwrap();
    }

    #[test]
    fn an_incomplete_table_ends_with_an_error() {
        for fails in [true, false] {
            let cut = table(move |rows| {
                add(rows, 1, "x");
                if fails {
                    return Err(Error::mismatch("it is damaged"));
                }
                panic!("expected here");
            });
            let rows: Vec<_> = cut.stream().unwrap().collect();
            let error = rows.last().unwrap().as_ref().unwrap_err().to_string();
            assert!(
                error.contains(if fails { "damaged" } else { "failed" }),
                "{error}"
            );
        }
    }
}
