//! Makes trace.dat files for tests: every kind of ring-buffer entry.
#![allow(dead_code)]

pub const PAGE: usize = 4096;
pub const ENTRY: &str = "name: funcgraph_entry\nID: 11\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"--> %ps (%d)\", (void *)REC->func, REC->depth\n";
/// events/header_page of a kernel.
pub const HEADER_PAGE: &str = include_str!("../header_page.txt");

pub fn sized(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

pub fn option(out: &mut Vec<u8>, number: u16, text: &str) {
    out.extend(number.to_le_bytes());
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Return a page that begins at a time. `flags` are ored into its commit, `after` follows its data.
pub fn page(time: u64, flags: u64, entries: &[Vec<u8>], after: &[u8]) -> Vec<u8> {
    let data = entries.concat();
    let mut out = time.to_le_bytes().to_vec();
    out.extend((data.len() as u64 | flags).to_le_bytes());
    out.extend(data);
    out.extend(after);
    out.resize(PAGE, 0);
    out
}

pub fn head(kind: u32, delta: u64) -> Vec<u8> {
    (kind | (delta as u32) << 5).to_le_bytes().to_vec()
}

/// Return a funcgraph_entry of a function, with its length in the head.
pub fn call(delta: u64, func: u64) -> Vec<u8> {
    [head(5, delta), payload(func)].concat()
}

pub fn payload(func: u64) -> Vec<u8> {
    let mut raw = vec![11, 0, 0, 0];
    raw.extend(42u32.to_le_bytes());
    raw.extend(func.to_le_bytes());
    raw.extend(0u32.to_le_bytes());
    raw
}

pub fn file(cpus: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut out = b"\x17\x08\x44tracing6\0\0\x08".to_vec();
    out.extend((PAGE as u32).to_le_bytes());
    out.extend(b"header_page\0");
    sized(&mut out, HEADER_PAGE);
    out.extend(b"header_event\0");
    sized(&mut out, "");
    out.extend(1u32.to_le_bytes());
    sized(&mut out, ENTRY);
    out.extend(0u32.to_le_bytes());
    let symbols = "0000000000001000 t fuse_lookup\t[fuse]\n0000000000002000 t unused\n";
    out.extend((symbols.len() as u32).to_le_bytes());
    out.extend(symbols.as_bytes());
    out.extend(0u32.to_le_bytes());
    sized(&mut out, "42 find\n");
    out.extend((cpus.len() as u32).to_le_bytes());
    out.extend(b"options  \0");
    option(
        &mut out,
        2,
        "CPU: 1\nentries: 0\noverrun: 9\ncommit overrun: 1\nbytes: 7\ndropped events: 2\n",
    );
    option(&mut out, 4, "local global [mono] boot\0");
    option(&mut out, 5, "Linux guest 6.1.0 x86_64\0");
    out.extend(0u16.to_le_bytes());
    out.extend(b"flyrecord\0");
    let mut at = (out.len() + 16 * cpus.len()).next_multiple_of(PAGE);
    for pages in cpus {
        out.extend((at as u64).to_le_bytes());
        out.extend(((pages.len() * PAGE) as u64).to_le_bytes());
        at += pages.len() * PAGE;
    }
    out.resize(out.len().next_multiple_of(PAGE), 0);
    cpus.iter().flatten().for_each(|page| out.extend(page));
    out
}

/// Return a file of pieces, each of a CPU. `formats`: (system, text).
pub fn pieces(formats: &[(&str, &str)], pieces: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let formats: Vec<_> = formats
        .iter()
        .map(|(system, text)| (system.to_string(), text.to_string()))
        .collect();
    let uname = "Linux guest 6.1.0 x86_64";
    let mut out = fusetools_core::format::ring::head(HEADER_PAGE, "", &formats, "perf", uname, 2);
    for (cpu, bytes) in pieces {
        out.extend(cpu.to_le_bytes());
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
    out
}

pub const STATISTICS: u32 = u32::MAX;

/// Return the statistics of CPU 1 with so many lost events.
pub fn statistics(lost: u64) -> (u32, Vec<u8>) {
    let text = format!("CPU: 1\nentries: 0\noverrun: {lost}\ndropped events: 0\n");
    (STATISTICS, text.into_bytes())
}

/// Return an event with its data's length in its head.
pub fn entry(delta: u64, raw: &[u8]) -> Vec<u8> {
    let mut raw = raw.to_vec();
    raw.resize(raw.len().next_multiple_of(4), 0);
    [head(raw.len() as u32 / 4, delta), raw].concat()
}

pub fn everything() -> Vec<u8> {
    let delta = (1 << 27) - 1;
    let long = [head(0, 3), 24u32.to_le_bytes().to_vec(), payload(7)].concat();
    let extend = [head(30, 5), 2u32.to_le_bytes().to_vec()].concat();
    let stamp_time: u64 = 1 << 40 | 77;
    let stamp = [
        head(31, stamp_time & delta),
        ((stamp_time >> 27) as u32).to_le_bytes().to_vec(),
    ]
    .concat();
    let discarded = [head(29, 4), 20u32.to_le_bytes().to_vec(), vec![0xff; 16]].concat();
    let first = page(
        1000,
        0,
        &[
            call(0, 1),
            long,
            extend,
            call(1, 2),
            discarded,
            call(0, 3),
            stamp,
            call(2, 4),
            head(29, 0),
            vec![0xff; 8],
        ],
        &[],
    );
    let second = page(
        1 << 41,
        1 << 31 | 1 << 30,
        &[call(10, 0x1000)],
        &123u64.to_le_bytes(),
    );
    let third = page(1 << 42, 1 << 31, &[call(10, 6)], &[]);
    file(&[
        vec![first, second, third],
        vec![page(1001, 0, &[call(0, 8), call(delta, 9)], &[])],
    ])
}
