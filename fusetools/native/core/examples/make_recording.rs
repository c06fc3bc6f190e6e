//! Makes a big recording for benchmarks: `make_recording OUTPUT EVENTS [INPUT]`.
//!
//! Repeats a real recording, each time later and with other request numbers, so that calls and requests pair as they
//! did. Without INPUT, that is the recording of a CernVM-FS client in $FUSETOOLS_DATA (../shared/data beside the
//! repository), or else samples/recordings/demo.data. The client's recording is mostly switches with kernel stacks.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use fusetools_core::format::file::feature;
use fusetools_core::format::record;
use fusetools_core::format::tracepoint::Shape;
use fusetools_core::write;
use fusetools_core::Reader;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
/// Number of records between two FINISHED_ROUND, as in a merged recording.
const ROUND: usize = 16_384;
/// Upper bound of a `unique` that was read from a request.
const UNIQUE_MAX: u64 = 1 << 40;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (output, events, input) = match &arguments[..] {
        [output, events] => (output, events, find_input()?),
        [output, events, input] => (output, events, PathBuf::from(input)),
        _ => return Err("usage: make_recording OUTPUT EVENTS [INPUT]".into()),
    };
    let (output, events) = (Path::new(output), events.parse::<usize>()?);

    // Merged alone, it is in time order, unpacked and laid out as fusetools record leaves it.
    let base_path = output.with_extension("base");
    let unpacked = output.with_extension("unpacked");
    let merged = if input
        .extension()
        .is_some_and(|extension| extension == "zst")
    {
        fs::write(&unpacked, zstd::decode_all(File::open(&input)?)?)?;
        write::merge(std::slice::from_ref(&unpacked), &base_path, "")
    } else {
        write::merge(&[input], &base_path, "")
    };
    let _ = fs::remove_file(&unpacked);
    merged?;
    let base = Reader::open(&base_path)?;
    fs::remove_file(&base_path)?;

    let written = Repeated::new(&base)?.write(&base, output, events)?;
    println!("{}: {events} events, {written} bytes", output.display());
    Ok(())
}

fn find_input() -> Result<PathBuf, Box<dyn Error>> {
    let root = Path::new(ROOT);
    let data = env::var_os("FUSETOOLS_DATA").map_or(root.join("../shared/data"), PathBuf::from);
    [
        data.join("cernvmfs-6.1/perf.data.zst"),
        root.join("samples/recordings/demo.data"),
    ]
    .into_iter()
    .find(|path| path.exists())
    .ok_or_else(|| "no recording to begin with: give INPUT".into())
}

/// Repeated part of a recording: records that have a time, and the places in them that change with every copy.
struct Repeated {
    /// Bytes written once: the session, and records without a time.
    front: Vec<u8>,
    body: Vec<u8>,
    times: Vec<usize>,
    uniques: Vec<usize>,
    /// End of each sample.
    samples: Vec<usize>,
    first: u64,
    last: u64,
    unique_span: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .map_or(0, |field| u64::from_le_bytes(field.try_into().unwrap()))
}

fn add(bytes: &mut [u8], at: usize, value: u64) {
    let sum = u64_at(bytes, at).wrapping_add(value);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

impl Repeated {
    fn new(base: &Reader) -> Result<Repeated, Box<dyn Error>> {
        let mut repeated = Repeated {
            front: Vec::new(),
            body: Vec::new(),
            times: Vec::new(),
            uniques: Vec::new(),
            samples: Vec::new(),
            first: 0,
            last: 0,
            unique_span: 0,
        };
        let round = [u64::from(record::FINISHED_ROUND) | 8 << 48]
            .map(u64::to_le_bytes)
            .concat();
        let unique = |event: usize| base.events()[event].format.as_ref()?.field("unique");
        let uniques: Vec<_> = (0..base.events().len()).map(unique).collect();
        let (mut low, mut high) = (UNIQUE_MAX, 0);
        let mut records = 0;
        for record in base.records() {
            let (Some(time), Some(event)) = (record.time, record.event) else {
                repeated.front.extend(&record.bytes[..]);
                continue;
            };
            if base.events()[event].name == "fusetools:session" {
                repeated.front.extend(&record.bytes[..]);
                continue;
            }
            // A recording measures the probes once; repeated, that would be half of all events.
            if base.events()[event].name.contains("fusetools_calibrate") {
                continue;
            }
            let (start, layout) = (repeated.body.len(), base.attrs()[event].layout);
            let sample = record.kind == record::SAMPLE;
            repeated.body.extend(&record.bytes[..]);
            let time_at = if sample {
                layout.time
            } else {
                record.bytes.len() - layout.tail_time
            };
            repeated.times.push(start + time_at);
            if repeated.first == 0 {
                repeated.first = time;
            }
            repeated.last = time;
            if sample {
                repeated.samples.push(repeated.body.len());
                let field =
                    uniques[event].filter(|field| field.shape == Shape::Number && field.size == 8);
                if let (Some(field), Some(raw)) = (field, layout.raw(&record.bytes)) {
                    let at = raw.as_ptr() as usize - record.bytes.as_ptr() as usize + field.offset;
                    let value = u64_at(&record.bytes, at);
                    if value != 0 && value < UNIQUE_MAX {
                        repeated.uniques.push(start + at);
                        (low, high) = (low.min(value), high.max(value));
                    }
                }
            }
            records += 1;
            if records % ROUND == 0 {
                repeated.body.extend(&round);
            }
        }
        repeated.body.extend(&round);
        // The kernel numbers requests in steps of 2; an odd number is an interrupt's.
        repeated.unique_span = (high.saturating_sub(low) + 2) & !1;
        if repeated.samples.is_empty() {
            return Err("the recording to begin with holds no events".into());
        }
        Ok(repeated)
    }

    /// Write copies until there are `events` samples. Return the file's size.
    fn write(mut self, base: &Reader, output: &Path, events: usize) -> Result<u64, Box<dyn Error>> {
        let span = self.last - self.first + 1_000_000;
        let bytes = base.bytes();
        let data = base.data();
        let mut out = BufWriter::with_capacity(1 << 20, File::create(output)?);
        // Header, ids and attrs are before the data. Only the size of the data changes in them.
        let mut start = bytes[..data.start].to_vec();
        let whole = events / self.samples.len();
        let part = match events % self.samples.len() {
            0 => 0,
            rest => self.samples[rest - 1],
        };
        let size = self.front.len() + whole * self.body.len() + part;
        start[48..56].copy_from_slice(&(size as u64).to_le_bytes());
        out.write_all(&start)?;
        out.write_all(&self.front)?;
        for _ in 0..whole {
            out.write_all(&self.body)?;
            self.times
                .iter()
                .for_each(|&at| add(&mut self.body, at, span));
            self.uniques
                .iter()
                .for_each(|&at| add(&mut self.body, at, self.unique_span));
        }
        out.write_all(&self.body[..part])?;

        let last = self.first + span * (whole as u64 + u64::from(part > 0));
        let sections: Vec<Vec<u8>> = base
            .features()
            .iter()
            .map(|(number, range)| match *number {
                feature::SAMPLE_TIME => [self.first, last].map(u64::to_le_bytes).concat(),
                _ => bytes[range.clone()].to_vec(),
            })
            .collect();
        let mut at = (data.start + size + 16 * sections.len()) as u64;
        for section in &sections {
            out.write_all(&[at, section.len() as u64].map(u64::to_le_bytes).concat())?;
            at += section.len() as u64;
        }
        for section in &sections {
            out.write_all(section)?;
        }
        out.flush()?;
        Ok(at)
    }
}
