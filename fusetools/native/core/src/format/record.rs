//! Records: their headers, and the offsets of a sample's parts for each combination of sample_type bits.
//!
//! Layout: perf_event_open(2), Linux include/uapi/linux/perf_event.h; types from 64 up are perf's own
//! (tools/lib/perf/include/perf/event.h).

use std::ops::Range;

pub const MMAP: u32 = 1;
pub const LOST: u32 = 2;
pub const COMM: u32 = 3;
pub const EXIT: u32 = 4;
pub const THROTTLE: u32 = 5;
pub const FORK: u32 = 7;
pub const SAMPLE: u32 = 9;
pub const MMAP2: u32 = 10;
pub const LOST_SAMPLES: u32 = 13;
pub const SWITCH: u32 = 14;
pub const SWITCH_CPU_WIDE: u32 = 15;
/// Types from here up are written by perf, not by the kernel, and have no sample id.
pub const USER: u32 = 64;
pub const HEADER_ATTR: u32 = 64;
pub const HEADER_TRACING_DATA: u32 = 66;
pub const HEADER_BUILD_ID: u32 = 67;
pub const FINISHED_ROUND: u32 = 68;
pub const ID_INDEX: u32 = 69;
pub const AUXTRACE: u32 = 71;
pub const THREAD_MAP: u32 = 73;
pub const CPU_MAP: u32 = 74;
pub const EVENT_UPDATE: u32 = 78;
pub const TIME_CONV: u32 = 79;
pub const HEADER_FEATURE: u32 = 80;
pub const COMPRESSED: u32 = 81;
pub const FINISHED_INIT: u32 = 82;
pub const COMPRESSED2: u32 = 83;

/// CPU mode of a record.
pub const MISC_KERNEL: u16 = 1;
pub const MISC_USER: u16 = 2;
/// MMAP2 with a build id in place of device and inode.
pub const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
pub const MISC_SWITCH_OUT: u16 = 1 << 13;
pub const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// LOST_SAMPLES that a BPF filter dropped on purpose.
pub const MISC_LOST_SAMPLES_BPF: u16 = 1 << 15;

#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    field.try_into().ok().map(u64::from_le_bytes)
}

#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    field.try_into().ok().map(u32::from_le_bytes)
}

/// struct perf_event_header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u32,
    pub misc: u16,
    /// Size in bytes, including the header's own 8.
    pub size: usize,
}

/// Reason why there is no record at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// The bytes end before the record.
    Short,
    /// A size smaller than a header.
    Size(usize),
}

impl Header {
    #[inline(always)]
    pub(crate) fn at(bytes: &[u8], at: usize) -> Result<Header, NoRecord> {
        let word = u64_at(bytes, at).ok_or(NoRecord::Short)?;
        let header = Header {
            kind: word as u32,
            misc: (word >> 32) as u16,
            size: (word >> 48) as usize,
        };
        if header.size < 8 {
            return Err(NoRecord::Size(header.size));
        }
        if bytes.len() - at < header.size {
            return Err(NoRecord::Short);
        }
        Ok(header)
    }

    /// Return the number of bytes after the record that belong to it: tracing data in a pipe, AUX data.
    #[inline(always)]
    pub(crate) fn extra(&self, bytes: &[u8], at: usize) -> usize {
        match self.kind {
            HEADER_TRACING_DATA if self.size >= 12 => {
                u32_at(bytes, at + 8).map_or(0, |n| (n as usize + 7) & !7)
            }
            AUXTRACE if self.size >= 16 => {
                u64_at(bytes, at + 8).map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX))
            }
            _ => 0,
        }
    }
}

pub(crate) mod bit {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;

    pub const READ_TIMES: u64 = 1 << 0 | 1 << 1;
    pub const READ_ID: u64 = 1 << 2;
    pub const READ_GROUP: u64 = 1 << 3;
    pub const READ_LOST: u64 = 1 << 4;

    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
}

/// Event of `perf record --off-cpu`, a PERF_COUNT_SW_BPF_OUTPUT: a wait that ended, its ns as the period.
pub const OFF_CPU: &str = "offcpu-time";
/// From here on, "times" only put the samples with sums of short waits last (perf's OFF_CPU_TIMESTAMP).
pub const SUMMED: u64 = !0 << 32;

/// Wait that perf's BPF program described in the raw data of a sample (since perf 6.16).
pub(crate) struct Waited<'a> {
    /// Process and thread, in either order (`Spaces::in_order`).
    pub task: (i32, i32),
    pub ns: u64,
    /// Words of the call chain.
    pub chain: &'a [u8],
}

impl Waited<'_> {
    /// Read two numbers of the task, ns, the chain's length and its words. The cgroup follows.
    pub(crate) fn of(raw: &[u8]) -> Option<Waited<'_>> {
        let left = (raw.len().checked_sub(24)? / 8) as u64;
        let depth = u64_at(raw, 16).filter(|&n| n <= left)? as usize;
        Some(Waited {
            task: (u32_at(raw, 0)? as i32, u32_at(raw, 4)? as i32),
            ns: u64_at(raw, 8)?,
            chain: raw.get(24..24 + 8 * depth)?,
        })
    }
}

/// Offsets of the parts of an event's records in bytes, computed once from its attr. A sample's count from its start,
/// those of another record's sample id from its end. 0: absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub sample_type: u64,
    pub read_format: u64,
    pub sample_id_all: bool,
    pub id: usize,
    pub ip: usize,
    pub tid: usize,
    pub time: usize,
    pub cpu: usize,
    pub period: usize,
    /// Start of the parts of varying length: READ, CALLCHAIN, RAW, then parts that nothing here reads.
    pub body: usize,
    pub tail_id: usize,
    pub tail_tid: usize,
    pub tail_time: usize,
    pub tail_cpu: usize,
    /// Size of the sample id in bytes.
    pub tail: usize,
}

/// Data in a sample for unwinding its user stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// Offsets in the record: of the call chain, of the raw data after it, and of registers and stack.
    pub chain: usize,
    pub raw: usize,
    pub place: Range<usize>,
    /// The program is a 32-bit one.
    pub is_32bit: bool,
    /// One for each bit of the mask, lowest first; empty for a kernel thread.
    pub registers: Vec<u64>,
    /// Bytes from the stack pointer up.
    pub bytes: &'a [u8],
    /// The kernel copied as many bytes as requested.
    pub full: bool,
}

impl Layout {
    pub(crate) fn new(sample_type: u64, read_format: u64, flags: u64) -> Layout {
        let has = |bit| sample_type & bit != 0;
        let mut layout = Layout {
            sample_type,
            read_format,
            sample_id_all: flags & bit::SAMPLE_ID_ALL != 0,
            ..Layout::default()
        };
        let mut at = 8;
        let mut place = |present: bool| {
            let place = if present { at } else { 0 };
            at += if present { 8 } else { 0 };
            place
        };
        let identifier = place(has(bit::IDENTIFIER));
        layout.ip = place(has(bit::IP));
        layout.tid = place(has(bit::TID));
        layout.time = place(has(bit::TIME));
        place(has(bit::ADDR));
        let id = place(has(bit::ID));
        place(has(bit::STREAM_ID));
        layout.cpu = place(has(bit::CPU));
        layout.period = place(has(bit::PERIOD));
        layout.body = at;
        layout.id = if identifier != 0 { identifier } else { id };

        let mut from_end = 0;
        let mut place = |present: bool| {
            from_end += if present { 8 } else { 0 };
            if present {
                from_end
            } else {
                0
            }
        };
        let identifier = place(has(bit::IDENTIFIER));
        layout.tail_cpu = place(has(bit::CPU));
        place(has(bit::STREAM_ID));
        let id = place(has(bit::ID));
        layout.tail_time = place(has(bit::TIME));
        layout.tail_tid = place(has(bit::TID));
        layout.tail_id = if identifier != 0 { identifier } else { id };
        layout.tail = from_end;
        layout
    }

    pub fn has_raw(&self) -> bool {
        self.sample_type & bit::RAW != 0
    }

    /// Return the offset of a sample's call chain, or of what follows if it has none.
    fn chain_at(&self, record: &[u8]) -> Option<usize> {
        let mut at = self.body;
        if self.sample_type & bit::READ != 0 {
            let times = u64::from((self.read_format & bit::READ_TIMES).count_ones());
            let each = 1
                + u64::from(self.read_format & bit::READ_ID != 0)
                + u64::from(self.read_format & bit::READ_LOST != 0);
            let words = if self.read_format & bit::READ_GROUP != 0 {
                let left = (record.len().saturating_sub(at) / 8) as u64;
                let members = u64_at(record, at).filter(|&n| n <= left)?;
                1 + times + members * each
            } else {
                times + each
            };
            at += 8 * words as usize;
        }
        Some(at)
    }

    pub fn has_chain(&self) -> bool {
        self.sample_type & bit::CALLCHAIN != 0
    }

    /// Return the call chain's words, little-endian; empty without a call chain. None if the sample contradicts itself.
    #[inline]
    pub fn chain<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_chain() {
            return Some(&[]);
        }
        let at = self.chain_at(record)?;
        let left = (record.len().saturating_sub(at) / 8) as u64;
        let depth = u64_at(record, at).filter(|&n| n <= left)? as usize;
        record.get(at + 8..at + 8 + 8 * depth)
    }

    /// Return the tracepoint's own data in a sample. None if it has none or contradicts itself.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        if !self.has_raw() {
            return None;
        }
        let mut at = self.chain_at(record)?;
        if self.has_chain() {
            let left = (record.len().saturating_sub(at) / 8) as u64;
            let depth = u64_at(record, at).filter(|&n| n <= left)?;
            at += 8 + 8 * depth as usize;
        }
        let size = u32_at(record, at)? as usize;
        record.get(at + 4..(at + 4).checked_add(size)?)
    }

    /// Return whether samples hold user registers and the top of the user stack.
    pub fn has_user_stack(&self) -> bool {
        let both = bit::REGS_USER | bit::STACK_USER;
        self.sample_type & both == both && self.sample_type & bit::BRANCH_STACK == 0
    }

    /// Return a sample's user registers and user stack, with their offsets. `mask`: perf's mask of the registers. None
    /// if the sample contradicts itself.
    pub fn user_stack<'a>(&self, record: &'a [u8], mask: u64) -> Option<UserStack<'a>> {
        if !self.has_user_stack() {
            return None;
        }
        let chain = self.chain_at(record)?;
        let mut at = chain;
        if self.has_chain() {
            at += 8 + self.chain(record)?.len();
        }
        let raw = at;
        if self.has_raw() {
            at += 4 + self.raw(record)?.len();
        }
        let place = at;
        let abi = u64_at(record, at)?;
        at += 8;
        let mut registers = Vec::new();
        // A kernel thread has none.
        if abi != 0 {
            for _ in 0..mask.count_ones() {
                registers.push(u64_at(record, at)?);
                at += 8;
            }
        }
        let size = usize::try_from(u64_at(record, at)?).ok()?;
        at += 8;
        let mut bytes = &[][..];
        if size != 0 {
            bytes = record.get(at..at.checked_add(size)?)?;
            // Number of bytes that the kernel could copy.
            let copied = u64_at(record, at + size)?.min(size as u64);
            bytes = &bytes[..copied as usize];
            at += size + 8;
        }
        let full = bytes.len() == size;
        Some(UserStack {
            chain,
            raw,
            place: place..at,
            is_32bit: abi == 1,
            registers,
            bytes,
            full,
        })
    }

    /// Return (pid, tid) of a sample.
    #[inline]
    pub fn task(&self, record: &[u8]) -> Option<(i32, i32)> {
        pair(record, self.tid)
    }

    pub fn cpu(&self, record: &[u8]) -> Option<u32> {
        if self.cpu == 0 {
            return None;
        }
        u32_at(record, self.cpu)
    }

    /// Return (pid, tid) from another record's sample id.
    #[inline]
    pub fn tail_task(&self, record: &[u8]) -> Option<(i32, i32)> {
        pair(record, from_end(record, self.tail_tid, self.tail)?)
    }

    /// Return the CPU from another record's sample id.
    pub fn tail_cpu(&self, record: &[u8]) -> Option<u32> {
        u32_at(record, from_end(record, self.tail_cpu, self.tail)?)
    }

    /// Return the time in ns from another record's sample id.
    #[inline]
    pub fn tail_time(&self, record: &[u8]) -> Option<u64> {
        u64_at(record, from_end(record, self.tail_time, self.tail)?)
    }
}

/// Return the offset of a sample id's part. None if it is absent, or if the record has no room for a sample id.
#[inline]
pub(crate) fn from_end(record: &[u8], back: usize, tail: usize) -> Option<usize> {
    if back == 0 {
        return None;
    }
    record
        .len()
        .checked_sub(tail.max(back))
        .filter(|&start| start >= 8)?;
    Some(record.len() - back)
}

#[inline]
fn pair(record: &[u8], at: usize) -> Option<(i32, i32)> {
    if at == 0 {
        return None;
    }
    Some((u32_at(record, at)? as i32, u32_at(record, at + 4)? as i32))
}
