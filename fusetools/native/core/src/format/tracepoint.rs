//! Event formats: the texts in tracefs (events/SYSTEM/NAME/format) and the values that they describe.
//!
//! Fields have the meaning that libtraceevent gives them. Arrays have brackets or `__data_loc`; strings have an element
//! type with `char`, `u8` or `s8` in it; `signed:` defines the sign.

use std::ffi::CStr;

/// Layout of a field's bytes in the sample's raw data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One number of 1, 2, 4 or 8 bytes.
    Number,
    /// Elements one after the other.
    Array,
    /// A u32: offset in the low 16 bits, length in the high 16 bits (`__data_loc`).
    DataLoc,
    /// As DataLoc, but the offset counts from the end of the field (`__rel_loc`).
    RelLoc,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Declared type without array brackets, e.g. "unsigned long".
    pub kind: String,
    /// Offset in bytes from the start of the raw data.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    pub signed: bool,
    pub shape: Shape,
    /// Size in bytes of an array's element; `size` for a number.
    pub element: usize,
    /// An array of characters.
    pub string: bool,
}

/// A field's value, borrowed from the raw data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    /// Text up to the first NUL or the end of the array.
    Text(&'a [u8]),
    /// Bytes of an array.
    Bytes(&'a [u8]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub system: String,
    pub name: String,
    pub id: u64,
    pub fields: Vec<Field>,
    /// Text after `print fmt:`.
    print: String,
}

const MAX_FIELDS: usize = 1024;

impl Format {
    /// Parse a format text. Return None if it has no name, no number, or more than MAX_FIELDS fields.
    pub fn parse(system: &str, text: &str, long_size: usize) -> Option<Format> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        let mut print = "";
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name.get_or_insert(rest.trim());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = id.or_else(|| rest.trim().parse().ok());
            } else if let Some(rest) = line.strip_prefix("field:") {
                fields.extend(Field::parse(rest, long_size));
            } else if let Some(rest) = line.strip_prefix("print fmt:") {
                print = rest.trim();
                break;
            }
        }
        // Probes have up to 128 fields.
        if fields.len() > MAX_FIELDS {
            return None;
        }
        Some(Format {
            system: system.to_owned(),
            name: name?.to_owned(),
            id: id?,
            fields,
            print: print.to_owned(),
        })
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Return all bits of a field that the print format has names for (`__print_flags`).
    pub fn flags(&self, field: &str) -> u64 {
        let call = format!("__print_flags(REC->{field}");
        let Some(at) = self.print.find(&call) else {
            return 0;
        };
        let rest = &self.print[at..];
        let table = rest.find('{').map_or("", |at| &rest[at + 1..]);
        // `{ 0x01, "S" }, { 0x02, "D" }) : …`
        let mut bits = 0;
        for entry in table.split('{') {
            let number = entry.split(',').next().unwrap_or("").trim();
            let number = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => number.parse(),
            };
            bits |= number.unwrap_or(0);
            let after = entry.split('}').nth(1).unwrap_or(")").trim_start();
            if after.starts_with(')') {
                break;
            }
        }
        bits
    }
}

impl Field {
    /// Parse the text after `field:`, e.g. `char comm[16];\toffset:8;\tsize:16;\tsigned:0;`.
    pub(crate) fn parse(line: &str, long_size: usize) -> Option<Field> {
        let mut parts = line.split(';').map(str::trim);
        let mut declaration = parts.next()?;
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", n)) => offset = n.trim().parse().ok(),
                Some(("size", n)) => size = n.trim().parse().ok(),
                Some(("signed", n)) => signed = n.trim() != "0",
                _ => {}
            }
        }
        let (offset, size): (usize, usize) = (offset?, size?);
        let mut shape = Shape::Number;
        for (prefix, dynamic) in [("__data_loc", Shape::DataLoc), ("__rel_loc", Shape::RelLoc)] {
            if let Some(rest) = declaration.strip_prefix(prefix) {
                declaration = rest.trim_start();
                shape = dynamic;
            }
        }
        // Brackets after the name (`char comm[16]`) or before it (`__data_loc char[] name`).
        let mut brackets = None;
        if declaration.ends_with(']') {
            let open = declaration.rfind('[')?;
            brackets = declaration.get(open + 1..declaration.len() - 1);
            declaration = declaration.get(..open)?.trim_end();
        }
        let start = declaration
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |at| {
                at + declaration[at..].chars().next().map_or(1, char::len_utf8)
            });
        let (kind, name) = declaration.split_at(start);
        if name.is_empty() {
            return None;
        }
        let mut kind = kind.trim();
        if let Some(open) = kind.find('[') {
            brackets = brackets.or(Some(""));
            kind = kind[..open].trim_end();
        }
        if brackets.is_some() && shape == Shape::Number {
            shape = Shape::Array;
        }
        let array = shape != Shape::Number;
        let string = array && ["char", "u8", "s8"].iter().any(|t| kind.contains(t));
        let element = match (array, brackets.and_then(|n| n.trim().parse::<usize>().ok())) {
            (false, _) => size,
            (true, Some(n)) if n > 0 && size >= n && shape == Shape::Array => size / n,
            _ => type_size(kind, long_size),
        };
        Some(Field {
            name: name.to_owned(),
            kind: kind.to_owned(),
            offset,
            size,
            signed,
            shape,
            element,
            string,
        })
    }

    /// Return the field's value in a sample's raw data. None if the data is too short.
    pub fn value<'a>(&self, raw: &'a [u8]) -> Option<Value<'a>> {
        let own = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        let bytes = match self.shape {
            Shape::Number => {
                let bits = number(own)?;
                return Some(if self.signed {
                    let unused = 64 - 8 * self.size as u32;
                    Value::Signed(((bits << unused) as i64) >> unused)
                } else {
                    Value::Unsigned(bits)
                });
            }
            // `args[]` of size 0 is the rest of the sample.
            Shape::Array if self.size == 0 => raw.get(self.offset..)?,
            Shape::Array => own,
            Shape::DataLoc | Shape::RelLoc => {
                let place = number(own)?;
                let base = if self.shape == Shape::RelLoc {
                    self.offset + self.size
                } else {
                    0
                };
                let start = base + (place & 0xffff) as usize;
                raw.get(start..start + (place >> 16 & 0xffff) as usize)?
            }
        };
        Some(if self.string {
            Value::Text(before_nul(bytes))
        } else {
            Value::Bytes(bytes)
        })
    }
}

pub(crate) fn before_nul(bytes: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes)
}

/// Return a little-endian number of 1, 2, 4 or 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a as u64,
        [a, b] => u16::from_le_bytes([a, b]) as u64,
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as u64,
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

fn type_size(kind: &str, long_size: usize) -> usize {
    let has = |word: &str| kind.contains(word);
    match () {
        _ if has("*") || kind.ends_with("long") && !has("long long") => long_size,
        _ if has("64") || has("long long") => 8,
        _ if has("32") || has("int") || kind == "unsigned" => 4,
        _ if has("16") || has("short") => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &str) -> Field {
        Field::parse(line, 8).unwrap()
    }

    #[test]
    fn declarations() {
        let comm = field("char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;");
        assert_eq!(
            (
                comm.name.as_str(),
                comm.kind.as_str(),
                comm.element,
                comm.string
            ),
            ("prev_comm", "char", 1, true)
        );
        let symbolic = field("char comm[TASK_COMM_LEN]; offset:8; size:16; signed:1;");
        assert_eq!(
            (symbolic.name.as_str(), symbolic.shape, symbolic.element),
            ("comm", Shape::Array, 1)
        );
        let json = field("__data_loc char[] json;\toffset:8;\tsize:4;\tsigned:1;");
        assert_eq!(
            (json.name.as_str(), json.shape, json.string),
            ("json", Shape::DataLoc, true)
        );
        let old = field("__data_loc char[] name; offset:8; size:4;");
        assert!(!old.signed);
        let args = field("unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;");
        assert_eq!(
            (args.element, args.string, args.shape),
            (8, false, Shape::Array)
        );
        let pointer = field("struct fuse_req * req;\toffset:16;\tsize:8;\tsigned:0;");
        assert_eq!(
            (pointer.name.as_str(), pointer.shape),
            ("req", Shape::Number)
        );
        let rest = field("unsigned long args[];\toffset:24;\tsize:0;\tsigned:0;");
        assert_eq!((rest.shape, rest.element), (Shape::Array, 8));
        assert_eq!(Field::parse("nothing", 8), None);
    }

    #[test]
    fn values() {
        let raw = [0xff, 0xff, 0xff, 0xff, 4 + 4, 0, 3, 0, b'a', 0, b'b'];
        let error = field("s32 error; offset:0; size:4; signed:1;");
        assert_eq!(error.value(&raw), Some(Value::Signed(-1)));
        let id = field("u32 id; offset:0; size:4; signed:0;");
        assert_eq!(id.value(&raw), Some(Value::Unsigned(0xffff_ffff)));
        let name = field("__data_loc char[] name; offset:4; size:4; signed:0;");
        assert_eq!(name.value(&raw), Some(Value::Text(b"a")));
        let bytes = field("__rel_loc unsigned short[] name; offset:4; size:4; signed:0;");
        assert_eq!(bytes.value(&raw), None);
        let raw = [0xff, 0xff, 0xff, 0xff, 0, 0, 3, 0, b'a', 0, b'b'];
        assert_eq!(bytes.value(&raw), Some(Value::Bytes(b"a\0b")));
        assert_eq!(name.value(&raw[..7]), None);
    }
}
