//! Makes perf.data files for tests, field by field, after Linux's perf.data-file-format.txt and perf_event.h.
#![allow(dead_code)]

pub const IP: u64 = 1;
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
pub const WEIGHT: u64 = 1 << 14;
pub const IDENTIFIER: u64 = 1 << 16;
/// Parts of a sample that perf record requests for tracepoints.
pub const USUAL: u64 = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW;
pub const SAMPLE_ID_ALL: u64 = 1 << 18;

pub const SEND: &str = "name: fuse_request_send\nID: 500\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:dev_t connection;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:uint64_t unique;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:enum fuse_opcode opcode;\toffset:24;\tsize:4;\tsigned:0;\n\
    \nprint fmt: \"connection %u\", REC->connection\n";
pub const END: &str = "name: fuse_request_end\nID: 501\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:dev_t connection;\toffset:8;\tsize:4;\tsigned:0;\n\
    \tfield:uint64_t unique;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:int32_t error;\toffset:28;\tsize:4;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
pub const SESSION: &str = "name: session\nID: 502\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:__data_loc char[] json;\toffset:8;\tsize:4;\tsigned:1;\n\
    \nprint fmt: \"%s\", __get_str(json)\n";

/// Return the raw data of a fuse_request_send.
pub fn send(connection: u32, unique: u64, opcode: u32) -> Vec<u8> {
    let mut raw = vec![0; 28];
    raw[8..12].copy_from_slice(&connection.to_le_bytes());
    raw[16..24].copy_from_slice(&unique.to_le_bytes());
    raw[24..28].copy_from_slice(&opcode.to_le_bytes());
    raw
}

/// Return the raw data of a fuse_request_end.
pub fn end(connection: u32, unique: u64, error: i32) -> Vec<u8> {
    let mut raw = vec![0; 32];
    raw[8..12].copy_from_slice(&connection.to_le_bytes());
    raw[16..24].copy_from_slice(&unique.to_le_bytes());
    raw[28..32].copy_from_slice(&error.to_le_bytes());
    raw
}

pub fn session(json: &str) -> Vec<u8> {
    let mut raw = vec![0; 12];
    let place = 12 | (json.len() as u32 + 1) << 16;
    raw[8..12].copy_from_slice(&place.to_le_bytes());
    raw.extend(json.bytes().chain([0]));
    raw
}

/// Values for a sample or a sample id.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub id: u64,
    pub pid: i32,
    pub tid: i32,
    pub time: u64,
    pub cpu: u32,
    pub chain: Vec<u64>,
    /// 0: 1.
    pub period: u64,
    pub raw: Vec<u8>,
    /// Number of members in a group read.
    pub members: u64,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub name: &'static str,
    pub config: u64,
    pub ids: Vec<u64>,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    /// Size of the attr in bytes, at least 64.
    pub size: usize,
}

impl Event {
    pub fn new(name: &'static str, config: u64, ids: &[u64]) -> Event {
        let (sample_type, flags) = (USUAL, SAMPLE_ID_ALL);
        Event {
            name,
            config,
            ids: ids.to_vec(),
            sample_type,
            read_format: 0,
            flags,
            size: 128,
        }
    }

    fn attr(&self, size: usize) -> Vec<u8> {
        let mut attr = vec![0; size];
        // PERF_TYPE_TRACEPOINT, or PERF_TYPE_SOFTWARE.
        let kind: u32 = if self.name.contains(':') { 2 } else { 1 };
        attr[0..4].copy_from_slice(&kind.to_le_bytes());
        attr[4..8].copy_from_slice(&(self.size as u32).to_le_bytes());
        for (at, word) in [
            (8, self.config),
            (24, self.sample_type),
            (32, self.read_format),
            (40, self.flags),
        ] {
            attr[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        attr
    }

    /// Return a PERF_RECORD_SAMPLE, in the order of perf_output_sample() in Linux kernel/events/core.c.
    pub fn sample(&self, sample: &Sample) -> Vec<u8> {
        let has = |bit| self.sample_type & bit != 0;
        let mut out = Vec::new();
        let mut word =
            |present: bool, word: u64| out.extend(word.to_le_bytes().iter().filter(|_| present));
        word(has(IDENTIFIER), sample.id);
        word(has(IP), 0xffff_ffff_8100_0000);
        word(
            has(TID),
            sample.pid as u32 as u64 | (sample.tid as u32 as u64) << 32,
        );
        word(has(TIME), sample.time);
        word(has(ADDR), 0xadd7);
        word(has(ID), sample.id);
        word(has(STREAM_ID), 0x57e);
        word(has(CPU), sample.cpu as u64 | 0xdead << 32);
        word(has(PERIOD), sample.period.max(1));
        if has(READ) {
            let (group, id, lost) = (
                self.read_format & 8 != 0,
                self.read_format & 4 != 0,
                self.read_format & 16 != 0,
            );
            word(group, sample.members);
            word(!group, 77);
            word(self.read_format & 1 != 0, 1000);
            word(self.read_format & 2 != 0, 1001);
            for member in 0..if group { sample.members } else { 0 } {
                word(true, member);
                word(id, sample.id);
                word(lost, 0);
            }
            word(!group && id, sample.id);
            word(!group && lost, 0);
        }
        if has(CALLCHAIN) {
            word(true, sample.chain.len() as u64);
            sample.chain.iter().for_each(|ip| word(true, *ip));
        }
        if has(RAW) {
            let mut raw = sample.raw.clone();
            while (raw.len() + 4) % 8 != 0 {
                raw.push(0);
            }
            out.extend((raw.len() as u32).to_le_bytes());
            out.extend(raw);
        }
        let mut word =
            |present: bool, word: u64| out.extend(word.to_le_bytes().iter().filter(|_| present));
        word(has(BRANCH_STACK), 1);
        (0..3).for_each(|n| word(has(BRANCH_STACK), n));
        word(has(REGS_USER), 0);
        word(has(WEIGHT), 9);
        record(9, 1, &out)
    }

    /// Return another record of the kernel: its body, then the sample id.
    pub fn other(&self, kind: u32, misc: u16, body: &[u8], sample: &Sample) -> Vec<u8> {
        let has = |bit| self.flags & SAMPLE_ID_ALL != 0 && self.sample_type & bit != 0;
        let mut out = body.to_vec();
        let mut word =
            |present: bool, word: u64| out.extend(word.to_le_bytes().iter().filter(|_| present));
        word(
            has(TID),
            sample.pid as u32 as u64 | (sample.tid as u32 as u64) << 32,
        );
        word(has(TIME), sample.time);
        word(has(ID), sample.id);
        word(has(STREAM_ID), 0x57e);
        word(has(CPU), sample.cpu as u64);
        word(has(IDENTIFIER), sample.id);
        record(kind, misc, &out)
    }
}

pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + body.len());
    out.extend(kind.to_le_bytes());
    out.extend(misc.to_le_bytes());
    out.extend((8 + body.len() as u16).to_le_bytes());
    out.extend(body);
    out
}

pub fn round() -> Vec<u8> {
    record(68, 0, &[])
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn header_text(text: &str) -> Vec<u8> {
    let mut padded = text.as_bytes().to_vec();
    padded.resize((text.len() + 64) & !63, 0);
    [&(padded.len() as u32).to_le_bytes()[..], &padded].concat()
}

#[derive(Clone, Debug, Default)]
pub struct PerfData {
    pub events: Vec<Event>,
    pub formats: Vec<(&'static str, &'static str)>,
    pub records: Vec<Vec<u8>>,
}

impl PerfData {
    /// Return a file with fuse:fuse_request_send (ids 11, 12), fuse:fuse_request_end (13, 14) and fusetools:session
    /// (15).
    pub fn fuse() -> PerfData {
        PerfData {
            events: vec![
                Event::new("fuse:fuse_request_send", 500, &[11, 12]),
                Event::new("fuse:fuse_request_end", 501, &[13, 14]),
                Event::new("fusetools:session", 502, &[15]),
            ],
            formats: vec![("fuse", SEND), ("fuse", END), ("fusetools", SESSION)],
            records: Vec::new(),
        }
    }

    pub fn data(&self) -> Vec<u8> {
        self.records.concat()
    }

    pub fn tracing(&self) -> Vec<u8> {
        let mut out = b"\x17\x08\x44tracing0.6\0\0\x08\x00\x10\0\0".to_vec();
        let page = include_str!("../header_page.txt");
        for (name, text) in [("header_page", page), ("header_event", "")] {
            out.extend(name.bytes().chain([0]));
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.bytes());
        }
        out.extend(0u32.to_le_bytes());
        out.extend((self.formats.len() as u32).to_le_bytes());
        for (system, text) in &self.formats {
            out.extend(system.bytes().chain([0]));
            out.extend(1u32.to_le_bytes());
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.bytes());
        }
        out.extend([0; 4 + 4 + 8]);
        out
    }

    pub fn event_desc(&self) -> Vec<u8> {
        let mut out = words(&[self.events.len() as u32, 128]);
        for event in &self.events {
            out.extend(event.attr(128));
            out.extend((event.ids.len() as u32).to_le_bytes());
            out.extend(header_text(event.name));
            out.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        out
    }

    /// Return the feature sections by bit.
    pub fn features(&self) -> Vec<(u32, Vec<u8>)> {
        vec![
            (1, self.tracing()),
            (3, header_text("guest")),
            (4, header_text("6.18.0")),
            (6, header_text("x86_64")),
            (12, self.event_desc()),
        ]
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.with_data(&self.data(), &self.features())
    }

    pub fn with_data(&self, data: &[u8], features: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let entry = self
            .events
            .iter()
            .map(|event| event.size)
            .max()
            .unwrap_or(128)
            + 16;
        let mut ids = Vec::new();
        let mut attrs = Vec::new();
        for event in &self.events {
            attrs.extend(event.attr(entry - 16));
            attrs.extend((104 + ids.len() as u64).to_le_bytes());
            attrs.extend((8 * event.ids.len() as u64).to_le_bytes());
            ids.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        let attrs_at = 104 + ids.len();
        let data_at = attrs_at + attrs.len();
        let bits = features.iter().fold(0u64, |bits, (bit, _)| bits | 1 << bit);
        let mut out = b"PERFILE2".to_vec();
        for word in [104, entry, attrs_at, attrs.len(), data_at, data.len(), 0, 0] {
            out.extend((word as u64).to_le_bytes());
        }
        out.extend(bits.to_le_bytes());
        out.extend([0; 24]);
        out.extend(ids);
        out.extend(attrs);
        out.extend(data);
        let mut at = out.len() + 16 * features.len();
        for (_, section) in features {
            out.extend((at as u64).to_le_bytes());
            out.extend((section.len() as u64).to_le_bytes());
            at += section.len();
        }
        features.iter().for_each(|(_, section)| out.extend(section));
        out
    }

    /// Return the file as `perf record -o -` writes it.
    pub fn pipe(&self) -> Vec<u8> {
        self.pipe_with(&self.data())
    }

    pub fn pipe_with(&self, data: &[u8]) -> Vec<u8> {
        let mut out = b"PERFILE2".to_vec();
        out.extend(16u64.to_le_bytes());
        for (bit, section) in self.features().iter().filter(|(bit, _)| *bit != 1) {
            let mut body = u64::from(*bit).to_le_bytes().to_vec();
            body.extend(section);
            out.extend(record(80, 0, &body));
        }
        for event in &self.events {
            let mut body = event.attr(event.size);
            body.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
            out.extend(record(64, 0, &body));
        }
        let mut tracing = self.tracing();
        tracing.resize((tracing.len() + 7) & !7, 0);
        out.extend(record(66, 0, &words(&[tracing.len() as u32])));
        out.extend(tracing);
        out.extend(data);
        out
    }
}

/// Pack records like `perf record -z`: one zstd stream, flushed after every `step` bytes, which need not end with a
/// record. `kind` is 81 (COMPRESSED) or 83 (COMPRESSED2).
pub fn compress(records: &[u8], step: usize, kind: u32) -> Vec<Vec<u8>> {
    use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};
    let mut encoder = Encoder::new(3).unwrap();
    let mut packed = Vec::new();
    for piece in records.chunks(step) {
        let mut buffer = vec![0; 2 * step + 4096];
        let mut input = InBuffer::around(piece);
        let mut output = OutBuffer::around(&mut buffer[..]);
        while input.pos() < piece.len() {
            encoder.run(&mut input, &mut output).unwrap();
        }
        assert_eq!(encoder.flush(&mut output).unwrap(), 0);
        let size = output.pos();
        // A record holds less than 64 KiB.
        for part in buffer[..size].chunks(60_000) {
            let mut body = Vec::new();
            if kind == 83 {
                body.extend((part.len() as u64).to_le_bytes());
            }
            body.extend(part);
            if kind == 83 {
                body.resize((body.len() + 7) & !7, 0);
            }
            packed.push(record(kind, 0, &body));
        }
    }
    packed
}

/// Small pseudo-random numbers, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Return records packed by themselves: a compressed record that holds a whole zstd frame.
pub fn frame(records: &[u8]) -> Vec<u8> {
    record(81, 0, &zstd::bulk::compress(records, 1).unwrap())
}

/// Return a row of a catalogue: the event in that role, for requests.
pub fn meaning(event: &str, role: fusetools_core::events::Role) -> fusetools_core::events::Meaning {
    fusetools_core::events::Meaning {
        event: event.into(),
        layer: fusetools_core::events::Layer::Request,
        function: String::new(),
        operation: String::new(),
        role,
    }
}
