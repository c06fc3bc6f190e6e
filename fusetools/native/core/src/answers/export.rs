//! Writes single requests when they are complete: a row each, as CSV or JSON. Their rows are Arrow's, too (tables.rs).

use std::io::{self, Write};

use crate::answers::rows::{names, Row, Value};
use crate::operations::Arch;
use crate::requests::named::{Known, Listener};

impl Value<'_> {
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

/// Writer of a row for each request.
pub struct Rows<W: Write> {
    out: W,
    form: Form,
    arch: Arch,
    names: Vec<String>,
    rows: u64,
    result: io::Result<()>,
}

impl<W: Write> Rows<W> {
    pub fn new(out: W, form: Form, arch: Option<&str>) -> Rows<W> {
        let mut rows = Rows {
            out,
            form,
            arch: Arch::new(arch),
            names: names().collect(),
            rows: 0,
            result: Ok(()),
        };
        match form {
            Form::Csv => rows.write(&format!("{}\n", rows.names.join(","))),
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

impl<W: Write> Listener for Rows<W> {
    fn story(&mut self, known: &Known<'_>) {
        let row = Row::new(known, &self.arch);
        let mut line = String::with_capacity(512);
        let mut first = true;
        match self.form {
            Form::Csv => {
                row.each(|value| {
                    line.push_str(if first { "" } else { "," });
                    first = false;
                    value.csv(&mut line);
                });
                line.push('\n');
            }
            Form::Json => {
                line.push_str(if self.rows > 0 { ",\n{" } else { "\n{" });
                let mut names = self.names.iter();
                row.each(|value| {
                    line.push_str(if first { "\"" } else { ", \"" });
                    first = false;
                    line.push_str(names.next().map_or("", String::as_str));
                    line.push_str("\": ");
                    value.json(&mut line);
                });
                line.push('}');
            }
        }
        self.rows += 1;
        self.write(&line);
    }
}
