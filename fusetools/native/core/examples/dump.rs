//! Prints a recording for tests. `dump FILE`: every sample as `time pid tid cpu system:event field=value …` in time
//! order. `dump --formats FILE`: every field of every event's format. `dump --scan FILE`: what a scan of all events
//! finds.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::format::record;
use fusetools_core::format::tracepoint::Value;
use fusetools_core::Error;
use fusetools_core::Reader;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--formats", path] => formats(Path::new(path)),
        ["--scan", path] => scan(Path::new(path)),
        [path] => samples(Path::new(path)),
        _ => {
            eprintln!("usage: dump [--formats|--scan] PERF.DATA");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("dump: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("dump: {error}");
            ExitCode::FAILURE
        }
    }
}

fn text(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    write!(out, "\"{}\"", bytes.escape_ascii())
}

fn samples(path: &Path) -> Result<io::Result<()>, Error> {
    let reader = Reader::open(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    Ok(print_samples(&reader, &mut out).and_then(|()| out.flush()))
}

fn print_samples(reader: &Reader, out: &mut impl Write) -> io::Result<()> {
    for warning in reader.warnings() {
        eprintln!("dump: {warning}");
    }
    let mut records = reader.records();
    for record in &mut records {
        let (record::SAMPLE, Some(index)) = (record.kind, record.event) else {
            continue;
        };
        let (event, layout) = (&reader.events()[index], &reader.attrs()[index].layout);
        let (pid, tid) = layout.task(&record.bytes).unwrap_or((-1, -1));
        let cpu = layout.cpu(&record.bytes).map_or(-1, i64::from);
        write!(
            out,
            "{} {pid} {tid} {cpu} {}",
            record.time.unwrap_or(0),
            event.name
        )?;
        let raw = layout.raw(&record.bytes).unwrap_or(&[]);
        for field in event.format.iter().flat_map(|format| &format.fields) {
            write!(out, " {}=", field.name)?;
            match field.value(raw) {
                None => write!(out, "?")?,
                Some(Value::Unsigned(n)) => write!(out, "{n}")?,
                Some(Value::Signed(n)) => write!(out, "{n}")?,
                Some(Value::Text(bytes)) => text(out, bytes)?,
                Some(Value::Bytes(bytes)) => bytes
                    .iter()
                    .try_for_each(|byte| write!(out, "{byte:02x}"))?,
            }
        }
        writeln!(out)?;
    }
    if let Some(damage) = records.damage() {
        eprintln!("dump: {damage}");
    }
    Ok(())
}

fn formats(path: &Path) -> Result<io::Result<()>, Error> {
    let reader = Reader::open(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    for format in reader.tracing().iter().flat_map(|tracing| &tracing.formats) {
        for f in &format.fields {
            let line = writeln!(
                out,
                "{}:{} {} {} offset={} size={} signed={} shape={:?} element={} string={} type={}",
                format.system,
                format.name,
                format.id,
                f.name,
                f.offset,
                f.size,
                f.signed,
                f.shape,
                f.element,
                f.string,
                f.kind
            );
            if line.is_err() {
                return Ok(line);
            }
        }
    }
    Ok(out.flush())
}

fn scan(path: &Path) -> Result<io::Result<()>, Error> {
    let reader = Reader::open(path)?;
    let role = |name: &str| match name {
        "sched:sched_switch" => Role::Switch,
        "sched:sched_waking" => Role::Waking,
        "raw_syscalls:sys_enter" => Role::SysEnter,
        "raw_syscalls:sys_exit" => Role::SysExit,
        "fuse:fuse_request_send" => Role::Begin,
        "fuse:fuse_request_end" => Role::End,
        _ if name.ends_with("__return") => Role::Return,
        _ => Role::Entry,
    };
    let only: Vec<String> = std::env::var("DUMP_ONLY")
        .map_or(Vec::new(), |s| s.split(',').map(str::to_owned).collect());
    let wanted =
        |name: &str| only.is_empty() || only.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let mut names: Vec<&str> = reader
        .events()
        .iter()
        .map(|e| e.name.as_str())
        .filter(|name| wanted(name))
        .collect();
    names.sort();
    names.dedup();
    let catalogue: Vec<Meaning> = names
        .iter()
        .map(|name| Meaning {
            event: (*name).to_owned(),
            layer: Layer::Kernel,
            function: String::new(),
            operation: String::new(),
            role: role(name),
        })
        .collect();
    let (mut events, mut side, mut batches, mut last, mut disorder) = (0, 0, 0, 0, 0);
    let info = reader.scan(&catalogue, &mut |batch| {
        events += batch.events.len();
        side += batch.side.len();
        batches += 1;
        for event in &batch.events {
            disorder += usize::from(event.time < last);
            last = event.time;
        }
    })?;
    for (event, count) in reader.events().iter().zip(&info.counts) {
        println!("{count} {}", event.name);
    }
    println!("events={events} side={side} batches={batches} disorder={disorder}");
    println!(
        "first={} last={} lost={} throttled={}",
        info.first, info.last, info.lost, info.throttled
    );
    for warning in &info.warnings {
        println!("warning: {warning}");
    }
    Ok(Ok(()))
}
