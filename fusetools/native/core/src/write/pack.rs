//! Packs records on their way to the file, or leaves them as they are. Packed records have the form of `perf record -z`
//! (PERF_RECORD_COMPRESSED, tools/perf/Documentation/perf.data-file-format.txt).

use std::io;
use std::ops::ControlFlow;

use zstd::bulk::Compressor;

use crate::format::record;
use crate::threads;

/// Maximum number of bytes in a compressed record before packing: perf allocates a buffer of this size (comp_mmap_len).
pub(super) const BLOCK: usize = 256 << 10;
/// Number of bytes to collect before packing, so that several cores have work.
const WAITING: usize = 4 << 20;
/// Maximum size of the content of a record: its size is 16 bits.
const ROOM: usize = u16::MAX as usize - 8;
const LEVEL: i32 = 1;

/// Whole records, one after the other.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// End of each record. Empty: the records are not packed.
    ends: Vec<usize>,
}

/// A queue of records. Each compressed record is a complete frame of complete records, so that readers need no other
/// record to unpack it.
#[derive(Default)]
pub(super) struct Packer {
    pub(super) on: bool,
    blocks: Vec<Block>,
    waiting: usize,
}

impl Packer {
    /// Add a record of the kernel's, which may be packed.
    pub(super) fn put(&mut self, record: &[u8]) {
        self.add(record, self.on);
    }

    /// Add a record of perf's own, which is not packed.
    pub(super) fn put_plain(&mut self, record: &[u8]) {
        self.add(record, false);
    }

    fn add(&mut self, record: &[u8], packed: bool) {
        let fits = |block: &Block| {
            block.ends.is_empty() != packed && block.bytes.len() + record.len() <= BLOCK
        };
        if !self.blocks.last().is_some_and(fits) {
            self.blocks.push(Block::default());
        }
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        block.bytes.extend_from_slice(record);
        if packed {
            block.ends.push(block.bytes.len());
        }
        self.waiting += record.len();
    }

    /// Return whether to write the collected records now.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= WAITING
    }

    /// Return the collected records, in order, as they go into the file.
    pub(super) fn take(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.waiting = 0;
        let blocks = std::mem::take(&mut self.blocks);
        if blocks.iter().all(|block| block.ends.is_empty()) {
            return Ok(blocks.into_iter().map(|block| block.bytes).collect());
        }
        let (mut blocks, mut packed) = (blocks.into_iter(), Vec::new());
        threads::in_order(
            || blocks.next(),
            pack,
            |block| {
                packed.push(block);
                ControlFlow::Continue(())
            },
        );
        packed.into_iter().collect()
    }
}

fn pack(block: Block) -> io::Result<Vec<u8>> {
    if block.ends.is_empty() {
        return Ok(block.bytes);
    }
    let mut out = Vec::new();
    let mut room = vec![0; ROOM];
    pack_part(
        &mut Compressor::new(LEVEL)?,
        &block,
        0..block.ends.len(),
        &mut room,
        &mut out,
    );
    Ok(out)
}

/// Pack records `part` of a block into one record, or in halves if they do not fit into one.
fn pack_part(
    compressor: &mut Compressor<'_>,
    block: &Block,
    part: std::ops::Range<usize>,
    room: &mut [u8],
    out: &mut Vec<u8>,
) {
    let start = part.start.checked_sub(1).map_or(0, |last| block.ends[last]);
    let bytes = &block.bytes[start..block.ends[part.end - 1]];
    match compressor.compress_to_buffer(bytes, room) {
        Ok(len) if len + 8 < bytes.len() => {
            out.extend(record::COMPRESSED.to_le_bytes());
            out.extend([0; 2]);
            out.extend((8 + len as u16).to_le_bytes());
            out.extend_from_slice(&room[..len]);
        }
        Err(_) if part.len() > 1 => {
            let middle = part.start + part.len() / 2;
            pack_part(compressor, block, part.start..middle, room, out);
            pack_part(compressor, block, middle..part.end, room, out);
        }
        // Packing does not help.
        _ => out.extend_from_slice(bytes),
    }
}

/// Return the section of the feature that tells perf how records are packed: version, type (zstd), level, ratio, size
/// of the buffer.
pub(super) fn feature(ratio: u32) -> Vec<u8> {
    [1, 1, LEVEL as u32, ratio, BLOCK as u32]
        .map(u32::to_le_bytes)
        .concat()
}
