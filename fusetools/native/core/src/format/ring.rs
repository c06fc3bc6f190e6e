//! Moves events from an ftrace instance, while they happen, into a file that tracedat.rs reads.
//!
//! Layout: trace-cmd.dat.v6(5) up to its options, then the pieces of tracedat.rs. For the contents of a page see Linux
//! kernel/trace/ring_buffer.c (ring_buffer_read_page).

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::format::record::u32_at;
use crate::format::tracedat::{COMMIT_MASK, OF_INSTANCE, PIECES, STATISTICS};
use crate::format::tracing::Tracing;

// asm-generic/fcntl.h, as in input.rs.
const O_NONBLOCK: i32 = 0o4000;
/// Maximum size of a piece in bytes.
const PIECE: usize = 1 << 20;
/// Maximum bytes of one CPU at a time, since the others wait meanwhile. More than a buffer holds.
const MOST: usize = 64 << 20;
/// Time between two rounds that empty the buffers.
const PAUSE: Duration = Duration::from_millis(40);

/// Return the head of a file of pieces. `formats`: (system, text) of each event; `cpus`: greater than any CPU's number.
pub fn head(
    header_page: &str,
    header_event: &str,
    formats: &[(String, String)],
    clock: &str,
    uname: &str,
    cpus: u32,
) -> Vec<u8> {
    let mut tracing = Tracing {
        version: "6",
        header_page: header_page.as_bytes(),
        header_event: header_event.as_bytes(),
        ..Tracing::empty()
    };
    for (system, text) in formats {
        tracing.add(system, Cow::Borrowed(text.as_bytes()));
    }
    let mut out = tracing.encode();
    out.extend(cpus.to_le_bytes());
    out.extend(b"options  \0");
    for (number, text) in [(4u16, format!("[{clock}]")), (5, uname.to_owned())] {
        out.extend(number.to_le_bytes());
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    out.extend(0u16.to_le_bytes());
    out.extend(PIECES);
    out
}

/// Reason why [`collect`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The end was requested; everything is in the file.
    Signalled,
    /// The process that could request it is gone; everything is in the file.
    Alone,
    /// The file has reached its maximum size.
    Full,
}

/// Move the contents of the instances' ring buffers into `output` until a byte comes from `control`, or its sender is
/// gone. Then write the rest, and the buffers' statistics. `page`: bytes of a page; `limit`: maximum bytes of the file.
/// The instances are switched off before the request to end.
pub fn collect(
    instances: &[PathBuf],
    page: usize,
    limit: u64,
    output: &mut File,
    control: &mut UnixStream,
) -> io::Result<Ended> {
    let mut cpus = Vec::new();
    for (instance, above) in instances.iter().zip((0..).step_by(OF_INSTANCE as usize)) {
        for entry in fs::read_dir(instance.join("per_cpu"))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else {
                continue;
            };
            let folder = instance.join("per_cpu").join(&name);
            let pages = OpenOptions::new()
                .read(true)
                .custom_flags(O_NONBLOCK)
                .open(folder.join("trace_pipe_raw"))?;
            cpus.push((above + number, pages, folder.join("stats")));
        }
    }
    control.set_read_timeout(Some(PAUSE))?;
    let mut piece = Vec::with_capacity(PIECE + page);
    let ended = loop {
        let mut word = [0];
        let ended = match control.read(&mut word) {
            Ok(0) => {
                // From now on no other process switches them off.
                for instance in instances {
                    fs::write(instance.join("tracing_on"), "0")?;
                }
                Some(Ended::Alone)
            }
            Ok(_) => Some(Ended::Signalled),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => return Err(error),
        };
        for (cpu, pages, _) in &mut cpus {
            empty(*cpu, pages, page, ended.is_some(), &mut piece, output)?;
        }
        if let Some(ended) = ended {
            break ended;
        }
        if output.metadata()?.len() >= limit {
            return Ok(Ended::Full);
        }
    };
    for (cpu, _, stats) in &cpus {
        let cpu = cpu % OF_INSTANCE;
        let text = format!("CPU: {cpu}\n{}", fs::read_to_string(stats)?);
        put(output, STATISTICS, text.as_bytes())?;
    }
    output.flush()?;
    Ok(ended)
}

/// Move the contents of one CPU's buffer. Unless `last`, leave out events that arrive meanwhile.
fn empty(
    cpu: u32,
    pages: &mut File,
    page: usize,
    last: bool,
    piece: &mut Vec<u8>,
    output: &mut File,
) -> io::Result<()> {
    let mut moved = 0;
    let mut more = true;
    while more && (last || moved < MOST) {
        piece.clear();
        while piece.len() < PIECE {
            let at = piece.len();
            piece.resize(at + page, 0);
            let size = match pages.read(&mut piece[at..]) {
                Ok(size) => size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    piece.truncate(at);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let used = filled(&piece[at..at + size]);
            piece.truncate(at + used);
            if used < page {
                // Only a piece's last page is cut short: it was being written, or no more followed.
                more = last && size > 0;
                break;
            }
        }
        moved += piece.len();
        if !piece.is_empty() {
            put(output, cpu, piece)?;
        }
    }
    Ok(())
}

/// Return the number of bytes of a page to keep: all, unless a good part is unused.
fn filled(page: &[u8]) -> usize {
    // Time; used bytes (a long of 4 or 8 bytes: its low half); events; perhaps the number of missing events.
    let commit = u32_at(page, 8).map_or(0, u64::from) & COMMIT_MASK;
    let used = 16 + commit as usize + 8;
    if used > page.len() * 3 / 4 {
        page.len()
    } else {
        used
    }
}

fn put(output: &mut File, cpu: u32, bytes: &[u8]) -> io::Result<()> {
    let mut head = cpu.to_le_bytes().to_vec();
    head.extend((bytes.len() as u32).to_le_bytes());
    output.write_all(&head)?;
    output.write_all(bytes)
}
