//! Writes the first inputs of the targets: `seeds CORPUS RECORDINGS [FILE ...]`. Each target gets a corpus. RECORDINGS
//! gets the files (perf.data or trace.dat, also packed by zstd) that `recordings` damages, cut to a size that is fuzzed
//! fast.

use std::path::Path;

#[path = "../../../fusetools/native/core/tests/perf_data/mod.rs"]
mod perf_data;
#[path = "../../../fusetools/native/core/tests/trace_data/mod.rs"]
mod trace_data;

use fusetools_core::format::tracedat::TraceDat;
use fusetools_core::Reader;
use perf_data::*;

const ENTRY: &str = "name: funcgraph_entry\nID: 503\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
const EXIT: &str = "name: funcgraph_exit\nID: 504\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n\
    \tfield:unsigned long long calltime;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned long long rettime;\toffset:32;\tsize:8;\tsigned:0;\n\
    \nprint fmt: \"\"\n";

/// Return the raw data of a funcgraph_entry or, with both times, a funcgraph_exit.
fn graph(function: u64, depth: u64, times: &[u64]) -> Vec<u8> {
    [&[0, function, depth], times].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sizes that suffice for a recording: bytes of records, pages of each CPU, and bytes of symbols.
const RECORDS: usize = 10_000;
const PAGES: usize = 3;
const SYMBOLS: usize = 500;
const SYSTEMS: [&str; 3] = ["fuse", "raw_syscalls", "task"];

/// Return a recording with only its first records, and everything after the records.
fn cut(bytes: Vec<u8>) -> Option<Vec<u8>> {
    if !bytes.starts_with(b"PERF") {
        return cut_trace(bytes);
    }
    let reader = Reader::from_bytes(bytes).ok()?;
    let (bytes, data) = (reader.bytes(), reader.data());
    let mut end = data.start;
    while end < data.end && end - data.start < RECORDS {
        end += u16::from_le_bytes(bytes.get(end + 6..end + 8)?.try_into().ok()?) as usize;
    }
    let less = (data.end - end) as u64;
    let mut out = bytes[..end].to_vec();
    out[48..56].copy_from_slice(&((end - data.start) as u64).to_le_bytes());
    for at in (data.end..).step_by(16).take(reader.features().len()) {
        let place = u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) - less;
        out.extend(place.to_le_bytes());
        out.extend(bytes.get(at + 8..at + 16)?);
    }
    out.extend(bytes.get(data.end + 16 * reader.features().len()..)?);
    Some(out)
}

/// Return a trace.dat with only its first pages and symbols, and the formats of few systems.
fn cut_trace(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) as usize);
    let dat = TraceDat::from_bytes(bytes.clone()).ok()?;
    let (tracing, page) = (dat.tracing(), dat.tracing().page_size as usize);
    let symbols = &bytes[tracing.kallsyms.clone()];
    let symbols = &symbols[..symbols.len().min(SYMBOLS)];
    let mark = b"flyrecord\0";
    let options = tracing.cmdlines.end;
    let table = options + bytes[options..].windows(mark.len()).position(|window| window == mark)? + mark.len();
    let systems: Vec<_> = tracing.systems.iter().filter(|(name, _)| SYSTEMS.contains(&&name[..])).collect();
    let mut out = bytes[..tracing.ftrace.last()?.end].to_vec();
    out.extend((systems.len() as u32).to_le_bytes());
    for (name, formats) in systems {
        out.extend(name.bytes().chain([0]));
        out.extend((formats.len() as u32).to_le_bytes());
        for format in formats {
            out.extend((format.len() as u64).to_le_bytes());
            out.extend(&bytes[format.clone()]);
        }
    }
    out.extend((symbols.len() as u32).to_le_bytes());
    out.extend(symbols);
    out.extend(&bytes[tracing.kallsyms.end..table]);
    let mut places = Vec::new();
    for cpu in 0..dat.cpus() {
        let (at, size) = (word(table + 16 * cpu)?, word(table + 16 * cpu + 8)?);
        places.push(at..at + size.min(PAGES * page));
    }
    let mut at = (out.len() + 16 * places.len()).next_multiple_of(page);
    for place in &places {
        out.extend((at as u64).to_le_bytes());
        out.extend((place.len() as u64).to_le_bytes());
        at += place.len();
    }
    out.resize(out.len().next_multiple_of(page), 0);
    for place in places {
        out.extend(bytes.get(place)?);
    }
    assert!(TraceDat::from_bytes(out.clone()).is_ok_and(|dat| dat.events().next().is_some()), "it is whole");
    Some(out)
}

fn recordings(folder: &str, files: &[String]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, file) in files.iter().enumerate() {
        let bytes = std::fs::read(file)?;
        let bytes = if file.ends_with(".zst") { zstd::decode_all(&bytes[..])? } else { bytes };
        let Some(bytes) = cut(bytes) else { continue };
        println!("recordings: {file}, {} bytes", bytes.len());
        std::fs::write(format!("{folder}/{number:03}"), bytes)?;
    }
    Ok(())
}

/// Write seeds of the targets that take no perf.data.
fn others(corpus: &str) -> std::io::Result<()> {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(corpus).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    for target in ["events", "merge", "stream", "unwind", "gopclntab", "recordings", "large"] {
        write(target, "seed", &[7; 300])?;
    }
    write("tracedat", "seed", &[&[0], &trace_data::everything()[..]].concat())?;
    write("tracedat", "made", &[1; 400])?;
    write("names", "cpp", b"N5cvmfsL12cvmfs_lookupEP8fuse_reqmPKc")?;
    write("names", "template", b"St6vectorIN4llvm9StringRefESaIS1_EE")?;
    write("names", "rust", b"NvNtC4core3fmt5write")?;
    write("texts", "format", SEND.as_bytes())?;
    write("texts", "symbols", b"ffffffff81000000 T fuse_lookup\t[fuse]\n0000000000000000 F aa /x\n0000000000000001 u 2 f\n")?;
    write("folded", "seed", b"\0main;f 3\nmain;g 4 5\nmain;g;<x> 1\n")?;
    for path in ["/bin/true", "/usr/lib/x86_64-linux-gnu/libdl.so.2", "/usr/lib/x86_64-linux-gnu/libutil.so.1"] {
        if let Ok(bytes) = std::fs::read(path) {
            write("elf", &path.replace('/', "-"), &bytes)?;
        }
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [corpus, folder, files @ ..] = &arguments[..] else {
        panic!("seeds CORPUS RECORDINGS [FILE ...]");
    };
    recordings(folder, files)?;
    others(corpus)?;
    let directory = format!("{corpus}/reader");
    std::fs::create_dir_all(&directory)?;
    let mut number = 0;
    let mut write = |bytes: Vec<u8>| {
        number += 1;
        std::fs::write(format!("{directory}/seed-{number:03}"), bytes)
    };
    let kinds = [
        USUAL,
        USUAL | CALLCHAIN,
        USUAL | READ | CALLCHAIN | BRANCH_STACK,
        USUAL & !IDENTIFIER | ID | STREAM_ID,
        TID | TIME | RAW | ID,
    ];
    for (turn, sample_type) in kinds.into_iter().enumerate() {
        let mut file = PerfData::fuse();
        file.events.push(Event::new("ftrace:funcgraph_entry", 503, &[16]));
        file.events.push(Event::new("ftrace:funcgraph_exit", 504, &[17]));
        file.formats.extend([("ftrace", ENTRY), ("ftrace", EXIT)]);
        for event in &mut file.events {
            event.sample_type = sample_type;
            event.read_format = [0, 31, 8, 4, 24][turn];
            event.size = [128, 64, 112, 136, 96][turn];
        }
        let event = file.events[0].clone();
        let at = |id, time| Sample { id, time, pid: 7, tid: 8, cpu: 1, chain: vec![1, 2, 3], members: 2, ..Sample::default() };
        file.records.push(event.other(3, 0, &[words(&[7, 8]), b"find\0\0\0\0".to_vec()].concat(), &at(0, 0)));
        file.records.push(file.events[2].sample(&Sample { raw: session("{\"format\": 1}"), ..at(15, 900) }));
        for n in 0..6u64 {
            file.records.push(file.events[0].sample(&Sample { raw: send(45, n, 1), ..at(11, 1000 + 10 * n) }));
            file.records.push(file.events[1].sample(&Sample { raw: end(45, n, -2), ..at(13, 1005 + 9 * n) }));
            let (outer, inner) = (0xffff_8000 + n / 2, 0xffff_9000);
            for (time, at_exit, raw) in [
                (1001, false, graph(outer, 0, &[])),
                (1002, false, graph(inner, 1, &[])),
                (1003, true, graph(inner, 1, &[1002 + 10 * n, 1003 + 10 * n])),
                (1006, true, graph(outer, 0, &[1001 + 10 * n, 1006 + 10 * n])),
            ] {
                let (event, id) = if at_exit { (4, 17) } else { (3, 16) };
                file.records.push(file.events[event].sample(&Sample { raw, ..at(id, time + 10 * n) }));
            }
            file.records.push(event.other(14, 1 << 13, &[], &at(12, 1001 + 10 * n)));
            if n % 2 == 0 {
                file.records.push(round());
            }
        }
        let task = words(&[30, 29, 31, 28, 1040, 0]);
        file.records.push(event.other(7, 0, &task, &at(11, 1040)));
        file.records.push(event.other(4, 0, &task, &at(11, 1050)));
        file.records.push(event.other(2, 0, &words(&[11, 0, 17, 0]), &at(11, 1055)));
        file.records.push(event.other(13, 0, &words(&[19, 0]), &at(11, 1056)));
        file.records.push(event.other(5, 0, &words(&[90, 0, 11, 0, 0, 0]), &at(11, 1057)));
        let packed = compress(&file.data(), 500, 81 + 2 * (turn as u32 % 2)).concat();
        let whole = file.bytes();
        let mut killed = whole.clone();
        killed[48..56].fill(0);
        write(whole)?;
        write(killed)?;
        write(file.pipe())?;
        write(file.with_data(&packed, &file.features()))?;
        write(file.pipe_with(&packed))?;
    }
    println!("{number} seeds in {directory}");
    Ok(())
}
