//! Offsets of structures' members and parameters of functions, from the kernel's BTF. A module's BTF continues that of
//! vmlinux in the numbers of types and in the offsets of strings.
//!
//! Format: Documentation/bpf/btf.rst. A type is a record of 32-bit words: its name, its kind with a count, its size or
//! another type's number, and more words by kind.

use std::collections::{BTreeMap, HashMap};

use crate::format::record::u32_at;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Maximum depth of nested typedefs, qualifiers and nameless parts.
const DEPTH: usize = 16;
/// Maximum number of members that are looked at to find one.
const MOST_MEMBERS: usize = 100_000;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Return the number of words of a type after its first three: (always, for each that it counts).
fn more_words(kind: u32) -> (usize, usize) {
    match kind {
        INT | VAR | DECL_TAG => (1, 0),
        ARRAY => (3, 0),
        STRUCT | UNION | DATASEC | ENUM64 => (0, 3),
        ENUM | FUNC_PROTO => (0, 2),
        _ => (0, 0),
    }
}

/// Place of a member: bytes from its structure's begin. A bit field also has its first bit in that byte, and its number
/// of bits (else 0, 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub offset: u32,
    pub bit: u32,
    pub bits: u32,
}

/// Structure to which each parameter points ("" for anything else), by name of the function.
pub type Functions = BTreeMap<String, Vec<String>>;

/// Words from a type's first one on.
#[derive(Clone, Copy)]
struct Type<'a>(&'a [u32]);

impl Type<'_> {
    /// Return a word; 0 beyond the last type's end.
    fn word(&self, index: usize) -> u32 {
        self.0.get(index).copied().unwrap_or(0)
    }

    fn kind(&self) -> u32 {
        self.word(1) >> 24 & 0x1f
    }

    fn count(&self) -> usize {
        (self.word(1) & 0xffff) as usize
    }

    /// Return whether members' offsets also hold the sizes of bit fields.
    fn has_bits(&self) -> bool {
        self.word(1) >> 31 == 1
    }
}

/// File of /sys/kernel/btf.
pub struct Btf<'a> {
    base: Option<&'a Btf<'a>>,
    words: Vec<u32>,
    strings: &'a [u8],
    at: Vec<u32>, // start of each type, in words
}

impl<'a> Btf<'a> {
    /// Parse a file. `base`: vmlinux's types, for a module. Error: it is no BTF, or damaged.
    pub fn new(data: &'a [u8], base: Option<&'a Btf<'a>>) -> Result<Self, &'static str> {
        if data.len() < HEADER {
            return Err("it is too short");
        }
        if data[..2] != MAGIC.to_le_bytes() || data[2] != 1 {
            return Err("it is no BTF of this byte order");
        }
        let word = |at| u32_at(data, at).map(|word| word as usize);
        let section = |at: usize| {
            let begin = word(4)?.checked_add(word(at)?)?;
            data.get(begin..begin.checked_add(word(at + 4)?)?)
        };
        let (Some(types), Some(strings)) = (section(8), section(16)) else {
            return Err("its sections lie outside of it");
        };
        if types.len() % 4 > 0 {
            return Err("its types are no whole words");
        }
        let words: Vec<u32> = types
            .chunks_exact(4)
            .filter_map(|word| u32_at(word, 0))
            .collect();
        let at = walk(&words).ok_or("its last type is cut off")?;
        Ok(Btf {
            base,
            words,
            strings,
            at,
        })
    }

    /// Return the number of its first type; 0 is `void`.
    fn first(&self) -> usize {
        self.base.map_or(1, |base| base.first() + base.at.len())
    }

    fn string_base(&self) -> usize {
        self.base
            .map_or(0, |base| base.string_base() + base.strings.len())
    }

    /// Return its own types with their numbers, without those of its base.
    fn own(&self) -> impl Iterator<Item = (u32, Type<'_>)> {
        let first = self.first();
        self.at
            .iter()
            .enumerate()
            .map(move |(index, &at)| ((first + index) as u32, Type(&self.words[at as usize..])))
    }

    fn get(&self, number: u32) -> Option<Type<'_>> {
        let Some(index) = (number as usize).checked_sub(self.first()) else {
            return self.base?.get(number);
        };
        Some(Type(&self.words[*self.at.get(index)? as usize..]))
    }

    fn name(&self, offset: u32) -> &'a [u8] {
        let Some(begin) = (offset as usize).checked_sub(self.string_base()) else {
            return self.base.map_or(b"", |base| base.name(offset));
        };
        let rest = self.strings.get(begin..).unwrap_or_default();
        rest.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Return the numbers of the structures with these names, those of a module before the kernel's.
    pub fn structures<'n>(&self, names: &[&'n str]) -> HashMap<&'n str, u32> {
        let mut numbers = self
            .base
            .map(|base| base.structures(names))
            .unwrap_or_default();
        let mut own = HashMap::new();
        for (number, it) in self.own() {
            if it.kind() == STRUCT && it.count() > 0 {
                let name = self.name(it.word(0));
                if let Some(&wanted) = names.iter().find(|wanted| wanted.as_bytes() == name) {
                    own.entry(wanted).or_insert(number);
                }
            }
        }
        numbers.extend(own);
        numbers
    }

    /// Return the place of a member, such as "in.h.unique" or "in_args[1].value". Members of nameless parts go by their
    /// own name.
    pub fn member(&self, structure: u32, path: &str) -> Option<Member> {
        let mut left = MOST_MEMBERS;
        let (mut offset, mut bits, mut within) = (0_u32, 0, structure);
        for name in path.split('.') {
            let (name, index) = match name.strip_suffix(']').and_then(|it| it.split_once('[')) {
                Some((name, index)) => (name, Some(index.parse().ok()?)),
                None => (name, None),
            };
            let place = self.direct(within, name.as_bytes(), 0, &mut left)?;
            offset = offset.checked_add(place.0)?;
            (bits, within) = (place.1, place.2);
            if let Some(index) = index {
                let (before, element) = self.element(within, index)?;
                offset = offset.checked_add(before)?;
                within = element;
            }
        }
        let bit = if bits > 0 { offset % 8 } else { 0 };
        Some(Member {
            offset: offset / 8,
            bit,
            bits,
        })
    }

    /// Return (offset in bits, bits of a bit field or 0, type) of a structure's own member, or of one in its nameless
    /// parts.
    fn direct(
        &self,
        structure: u32,
        name: &[u8],
        depth: usize,
        left: &mut usize,
    ) -> Option<(u32, u32, u32)> {
        let it = self.plain(structure)?;
        if depth > DEPTH || !matches!(it.kind(), STRUCT | UNION) {
            return None;
        }
        for index in 0..it.count() {
            *left = left.checked_sub(1)?;
            let [own, number, place] = [3, 4, 5].map(|word| it.word(word + 3 * index));
            let (offset, bits) = if it.has_bits() {
                (place & 0xff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            let own = self.name(own);
            if own == name {
                return Some((offset, bits, number));
            }
            if own.is_empty() {
                if let Some(inner) = self.direct(number, name, depth + 1, left) {
                    return Some((offset.checked_add(inner.0)?, inner.1, inner.2));
                }
            }
        }
        None
    }

    /// Return (bits before it, type) of an array's element, which is a structure.
    fn element(&self, array: u32, index: u32) -> Option<(u32, u32)> {
        let it = self.plain(array).filter(|it| it.kind() == ARRAY)?;
        let [element, count] = [3, 5].map(|word| it.word(word));
        let of = self.plain(element)?;
        let known = index < count && matches!(of.kind(), STRUCT | UNION);
        let bits = of.word(2).checked_mul(8)?.checked_mul(index)?;
        known.then_some((bits, element))
    }

    /// Return a type without typedefs and qualifiers.
    fn plain(&self, mut number: u32) -> Option<Type<'_>> {
        for _ in 0..DEPTH {
            let it = self.get(number)?;
            if !matches!(it.kind(), TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG) {
                return Some(it);
            }
            number = it.word(2);
        }
        None
    }

    /// Return its own functions that take a pointer to one of these structures.
    pub fn functions(&self, structures: &[&str]) -> Functions {
        let mut targets: HashMap<u32, &str> = self
            .structures(structures)
            .into_iter()
            .map(|(name, number)| (number, name))
            .collect();
        targets.extend(self.pointing(CONST, &targets));
        let pointers: HashMap<u32, &str> = self.pointing(PTR, &targets).into_iter().collect();
        let mut taken = HashMap::new();
        for (number, it) in self.own().filter(|(_, it)| it.kind() == FUNC_PROTO) {
            let kinds = (0..it.count()).map(|index| it.word(4 + 2 * index));
            let names: Vec<_> = kinds
                .map(|kind| pointers.get(&kind).copied().unwrap_or_default())
                .collect();
            if names.iter().any(|name| !name.is_empty()) {
                taken.insert(
                    number,
                    names.into_iter().map(String::from).collect::<Vec<_>>(),
                );
            }
        }
        let functions = self.own().filter(|(_, it)| it.kind() == FUNC);
        functions
            .filter_map(|(_, it)| {
                let name = String::from_utf8_lossy(self.name(it.word(0))).into_owned();
                Some((name, taken.get(&it.word(2))?.clone()))
            })
            .collect()
    }

    /// Return its own types of a kind that refer to one of `targets`, with the target's name.
    fn pointing<'n>(&self, kind: u32, targets: &HashMap<u32, &'n str>) -> Vec<(u32, &'n str)> {
        let own = self.own().filter(|(_, it)| it.kind() == kind);
        own.filter_map(|(number, it)| Some((number, *targets.get(&it.word(2))?)))
            .collect()
    }
}

/// Return the start of each type, in words. None: the last one is cut off.
fn walk(words: &[u32]) -> Option<Vec<u32>> {
    let mut at = Vec::new();
    let mut here = 0;
    while here < words.len() {
        let it = Type(words.get(here..here + 3)?);
        let (always, each) = more_words(it.kind());
        at.push(u32::try_from(here).ok()?);
        here += 3 + always + each * it.count();
    }
    (here == words.len()).then_some(at)
}
