//! Blocks of a file's records, unpacked if they were compressed.

use std::cell::RefCell;

use super::*;

/// Bytes of whole records: in the file, or unpacked from compressed records.
#[derive(Clone)]
pub struct Block<'a>(pub(super) Storage<'a>);

#[derive(Clone)]
pub(super) enum Storage<'a> {
    Mapped(&'a [u8]),
    Unpacked(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for Block<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(bytes) => bytes,
            Storage::Unpacked(bytes, range) => &bytes[range.clone()],
        }
    }
}

impl<'a> Block<'a> {
    pub(super) fn new(bytes: Vec<u8>) -> Block<'a> {
        let range = 0..bytes.len();
        Block(Storage::Unpacked(Arc::new(bytes), range))
    }

    pub(super) fn part(&self, range: Range<usize>) -> Block<'a> {
        Block(match &self.0 {
            Storage::Mapped(bytes) => Storage::Mapped(&bytes[range]),
            Storage::Unpacked(bytes, whole) => Storage::Unpacked(
                bytes.clone(),
                whole.start + range.start..whole.start + range.end,
            ),
        })
    }
}

/// Maximum size in bytes of a frame that is unpacked at once; a larger one is unpacked step by step.
const FRAME: usize = 1 << 20;

/// Piece of the file that other threads may unpack.
pub(super) enum Piece {
    Plain(Range<usize>),
    /// Compressed record at `at` whose `input` is a whole frame of `len` bytes.
    Frame {
        at: usize,
        input: Range<usize>,
        len: usize,
    },
}

/// Return the whole records of the pieces, in order, and the damage after them.
pub(super) fn unpack(bytes: &[u8], pieces: &[Piece]) -> (Block<'static>, Option<String>) {
    let len = |piece: &Piece| match piece {
        Piece::Plain(range) => range.len(),
        Piece::Frame { len, .. } => *len,
    };
    let mut out = Vec::with_capacity(pieces.iter().map(len).sum());
    let mut damage = None;
    for piece in pieces {
        let unpacked = match piece {
            Piece::Plain(range) => {
                out.extend_from_slice(&bytes[range.clone()]);
                Ok(())
            }
            Piece::Frame { at, input, len } => unpack_frame(&bytes[input.clone()], *len, &mut out)
                .map_err(|what| damaged(*at, &what)),
        };
        if let Err(what) = unpacked {
            damage = Some(what);
            break;
        }
    }
    (Block::new(out), damage)
}

fn damaged(at: usize, what: &str) -> String {
    format!("damaged at byte {at}: {what}; what follows is left out")
}

thread_local! {
    /// Kept, since making one takes as long as unpacking a third of a frame.
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Unpack a whole frame into `out`. Return its unpacked size.
fn decompress(frame: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    UNPACKER.with_borrow_mut(|kept| {
        let unpacker = match kept {
            Some(unpacker) => unpacker,
            None => kept.insert(Decompressor::new()?),
        };
        unpacker.decompress_to_buffer(frame, out)
    })
}

/// Append the whole records of a whole frame to `out`.
fn unpack_frame(frame: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    out.resize(start + len, 0);
    let unpacked = decompress(frame, &mut out[start..])
        .map_err(|error| format!("compressed records: {error}"));
    let (whole, why) = match unpacked {
        Ok(written) => whole_records(&out[start..start + written]),
        Err(why) => (0, Some(why)),
    };
    let cut = start + whole < out.len();
    out.truncate(start + whole);
    match why {
        Some(why) => Err(why),
        None if cut => Err("a compressed record that ends within a record".into()),
        None => Ok(()),
    }
}

/// Return the size of the whole records, and what is wrong with the next one. None: it is only incomplete.
fn whole_records(bytes: &[u8]) -> (usize, Option<String>) {
    let mut whole = 0;
    let why = loop {
        match Header::at(bytes, whole) {
            // perf packs only what the kernel wrote, and puts its own records around that.
            Ok(header) if is_packed(header, header.extra(bytes, whole)) => whole += header.size,
            Ok(header) => break Some(format!("a compressed record of type {}", header.kind)),
            Err(NoRecord::Short) => break None,
            Err(NoRecord::Size(size)) => {
                break Some(format!("a compressed record of {size} bytes"))
            }
        }
    };
    (whole, why)
}

/// A file's records as blocks in file order. Compressed records are unpacked on the way.
pub(super) struct Blocks<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) size: usize,
    /// A compressed record was met: from there on blocks are copies.
    pub(super) unpacking: bool,
    pub(super) decoder: Option<Decoder<'static>>,
    /// Rest of the current compressed record that is not unpacked yet: in the file, and whether the decoder holds more.
    pub(super) input: Range<usize>,
    pub(super) more: bool,
    pub(super) scratch: Vec<u8>,
    /// Unpacked bytes after the last whole record. The next compressed record continues them.
    pub(super) rest: Vec<u8>,
    /// Number of bytes that may still be unpacked.
    pub(super) budget: usize,
    pub(super) damage: Option<String>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(bytes: &'a [u8], range: Range<usize>, size: usize) -> Blocks<'a> {
        Blocks {
            bytes: &bytes[..range.end],
            at: range.start,
            size,
            unpacking: false,
            decoder: None,
            input: 0..0,
            more: false,
            scratch: Vec::new(),
            rest: Vec::new(),
            budget: EXPANSION
                .saturating_mul(range.len())
                .saturating_add(EXPANSION_FREE),
            damage: None,
        }
    }

    /// Return the header at the current place. None at the end, or if the file is damaged.
    pub(super) fn header(&mut self) -> Option<Header> {
        if self.at >= self.bytes.len() || self.damage.is_some() {
            return None;
        }
        match Header::at(self.bytes, self.at) {
            Ok(header) => Some(header),
            Err(NoRecord::Short) => {
                self.damage = Some(format!(
                    "the file is cut short in the record at byte {}",
                    self.at
                ));
                None
            }
            Err(NoRecord::Size(size)) => {
                let what = format!(
                    "damaged at byte {}: a record of {size} bytes; what follows is left out",
                    self.at
                );
                self.damage = Some(what);
                None
            }
        }
    }

    /// Skip the record at the current place.
    pub(super) fn pass(&mut self, header: Header) {
        let next = file::range_end(self.at, header.size, header.extra(self.bytes, self.at));
        match next.filter(|&next| next <= self.bytes.len()) {
            Some(next) => self.at = next,
            None => {
                self.damage = Some(format!(
                    "the file is cut short in the data after the record at byte {}",
                    self.at
                ));
                self.at = self.bytes.len();
            }
        }
    }

    pub(super) fn next_block(&mut self) -> Option<Block<'a>> {
        if !self.unpacking {
            let start = self.at;
            while self.at - start < self.size {
                let Some(header) = self.header() else { break };
                if matches!(header.kind, record::COMPRESSED | record::COMPRESSED2) {
                    self.unpacking = true;
                    break;
                }
                self.pass(header);
            }
            if self.at > start {
                return Some(Block(Storage::Mapped(&self.bytes[start..self.at])));
            }
            if !self.unpacking {
                return None;
            }
        }
        let mut out = Vec::new();
        while out.len() < self.size && self.damage.is_none() {
            if self.unpack_step(&mut out) {
                continue;
            }
            let Some(header) = self.header() else { break };
            let (start, end) = (self.at, self.at + header.size);
            match self.packed(header) {
                Some(Ok(input)) => match self.frame(&input) {
                    Some(len) if self.pay(len) => {
                        if let Err(what) = unpack_frame(&self.bytes[input], len, &mut out) {
                            self.fail(&what);
                        }
                    }
                    Some(_) => {}
                    None => self.input = input,
                },
                Some(Err(what)) => self.fail(what),
                // Data after a record would be taken for records.
                None if header.extra(self.bytes, self.at) == 0 => {
                    out.extend_from_slice(&self.bytes[start..end]);
                }
                None => {}
            }
            self.pass(header);
        }
        if out.is_empty() {
            if self.damage.is_none() && !self.rest.is_empty() {
                let what = "the file is cut short: its compressed records end within a record";
                self.damage = Some(what.into());
            }
            return None;
        }
        let len = out.len();
        Some(Block(Storage::Unpacked(Arc::new(out), 0..len)))
    }

    /// Return the next pieces that can be unpacked without what is before them, about `size` bytes when unpacked. Empty
    /// if there is none at this place: `next_block` continues there.
    pub(super) fn next_pieces(&mut self) -> Vec<Piece> {
        let (mut pieces, mut size) = (Vec::new(), 0);
        // The rest of a compressed record comes before the next record.
        let between = self.input.is_empty() && !self.more;
        while between && size < self.size {
            let Some(header) = self.header() else { break };
            let at = self.at;
            let piece = match self.packed(header) {
                None if header.extra(self.bytes, at) == 0 => Piece::Plain(at..at + header.size),
                Some(Ok(input)) => match self.frame(&input) {
                    Some(len) if self.pay(len) => Piece::Frame { at, input, len },
                    _ => break,
                },
                _ => break,
            };
            size += match &piece {
                Piece::Plain(range) => range.len(),
                Piece::Frame { len, .. } => *len,
            };
            pieces.push(piece);
            self.pass(header);
        }
        pieces
    }

    /// Return the range of a compressed record's input.
    fn packed(&self, header: Header) -> Option<Result<Range<usize>, &'static str>> {
        let (start, end) = (self.at, self.at + header.size);
        match header.kind {
            record::COMPRESSED => Some(Ok(start + 8..end)),
            record::COMPRESSED2 => Some(match u64_at(self.bytes, start + 8) {
                Some(len) if header.size >= 16 && len <= (header.size - 16) as u64 => {
                    Ok(start + 16..start + 16 + len as usize)
                }
                _ => Err("a compressed record's size"),
            }),
            _ => None,
        }
    }

    /// Return the unpacked size of a compressed record that is a whole frame, if all before it were such frames, too.
    fn frame(&self, input: &Range<usize>) -> Option<usize> {
        if self.decoder.is_some() {
            return None;
        }
        let input = &self.bytes[input.clone()];
        let whole = zstd_safe::find_frame_compressed_size(input) == Ok(input.len());
        let len = zstd_safe::get_frame_content_size(input).ok().flatten()?;
        (whole && len <= FRAME as u64).then_some(len as usize)
    }

    /// Take `len` bytes from the budget. Return whether that many may be unpacked.
    fn pay(&mut self, len: usize) -> bool {
        match self.budget.checked_sub(len) {
            Some(left) => self.budget = left,
            None => self.fail("compressed records that grow without end"),
        }
        self.damage.is_none()
    }

    pub(super) fn fail(&mut self, what: &str) {
        let what = damaged(self.at, what);
        self.damage.get_or_insert(what);
    }

    /// Unpack a step of the current compressed record, and move its whole records to `out`. Return false if nothing is
    /// left of it.
    pub(super) fn unpack_step(&mut self, out: &mut Vec<u8>) -> bool {
        const STEP: usize = 128 << 10;
        if self.input.is_empty() && !self.more {
            return false;
        }
        let mut decoder = match self.decoder.take().map_or_else(Decoder::new, Ok) {
            Ok(decoder) => decoder,
            Err(error) => {
                self.fail(&format!("compressed records: {error}"));
                return true;
            }
        };
        self.scratch.resize(STEP, 0);
        let mut input = InBuffer::around(&self.bytes[self.input.clone()]);
        let mut output = OutBuffer::around(&mut self.scratch[..]);
        let result = decoder.run(&mut input, &mut output);
        let (read, written) = (input.pos(), output.pos());
        self.decoder = Some(decoder);
        if let Err(error) = result {
            self.fail(&format!("compressed records: {error}"));
            return true;
        }
        self.input.start += read;
        // A full buffer: the decoder may hold more.
        self.more = written == STEP;
        if read == 0 && written == 0 && !self.input.is_empty() {
            self.fail("compressed records that do not unpack");
            return true;
        }
        if !self.pay(written) {
            return true;
        }
        self.rest.extend_from_slice(&self.scratch[..written]);
        let (whole, why) = whole_records(&self.rest);
        if let Some(why) = why {
            self.fail(&why);
        }
        out.extend(self.rest.drain(..whole));
        true
    }
}

/// Return whether a record may come out of a compressed one: it is not compressed itself, and no data follows it.
fn is_packed(header: Header, extra: usize) -> bool {
    !matches!(header.kind, record::COMPRESSED | record::COMPRESSED2) && extra == 0
}
