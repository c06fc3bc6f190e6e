//! Parts that several targets share.
#![allow(dead_code)]

#[path = "../../../../fusetools/native/core/tests/perf_data/mod.rs"]
pub mod perf_data;
#[path = "../../../../fusetools/native/core/tests/trace_data/mod.rs"]
pub mod trace_data;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use fusetools_core::answers::analysis::{analyse, Detail};
use fusetools_core::answers::daemons::states;
use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::requests::filters::Filters;
use fusetools_core::answers::export::{Form, Rows};
use fusetools_core::answers::flame::{flame, Selection, Graph};
use fusetools_core::requests::moments::{gather, Span};
use fusetools_core::requests::named::{tell, Listener};
use fusetools_core::requests::wanted::Wanted;
use fusetools_core::operations::{Arch, Operations};
use fusetools_core::answers::outcomes::Outcomes;
use fusetools_core::answers::perfetto::{Session, Trace};
use fusetools_core::answers::queue::Queues;
use fusetools_core::answers::slowest::Slowest;
use fusetools_core::answers::stages::{stages, By};
use fusetools_core::requests::stitch::asleep;
use fusetools_core::answers::replay::Replay;
use fusetools_core::requests::peers::{Connections, Peers};
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use perf_data::{Event, PerfData, Sample};

extern "C" {
    fn memfd_create(name: *const std::ffi::c_char, flags: u32) -> i32;
}

// SAFETY: a new descriptor, owned by this process.
static IMAGE: LazyLock<File> = LazyLock::new(|| unsafe { File::from_raw_fd(memfd_create(c"x".as_ptr(), 1)) });

/// Return a name that reaches these bytes as a file, until the next call.
pub fn placed(file: &[u8]) -> PathBuf {
    IMAGE.set_len(0).unwrap();
    IMAGE.write_all_at(file, 0).unwrap();
    std::format!("/proc/self/fd/{}", IMAGE.as_raw_fd()).into()
}

macro_rules! format {
    ($name:literal, $id:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "name: ", $name, "\nID: ", $id, "\nformat:\n",
            "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n",
            "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n",
            "\tfield:u64 ", $a, ";\toffset:8;\tsize:8;\tsigned:0;\n",
            "\tfield:u64 ", $b, ";\toffset:16;\tsize:8;\tsigned:0;\n",
            "\tfield:s64 ", $c, ";\toffset:24;\tsize:8;\tsigned:1;\n",
            "\tfield:u64 ", $d, ";\toffset:32;\tsize:8;\tsigned:0;\n",
            "\tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:1;\n",
            "\nprint fmt: \"\"\n"
        )
    };
}

/// Event, id, format, layer, operation and role.
type Kind = (&'static str, u64, &'static str, Layer, &'static str, Role);

const KINDS: [Kind; 24] = [
    ("fuse:fuse_request_send", 600, format!("fuse_request_send", 600, "unique", "connection", "opcode", "req"), Layer::Request, "", Role::Begin),
    ("fuse:fuse_request_end", 601, format!("fuse_request_end", 601, "unique", "connection", "error", "req"), Layer::Request, "", Role::End),
    ("sched:sched_switch", 602, format!("sched_switch", 602, "prev_pid", "prev_state", "next_pid", "x"), Layer::Syscall, "", Role::Switch),
    ("sched:sched_waking", 603, format!("sched_waking", 603, "pid", "x", "y", "z"), Layer::Syscall, "", Role::Waking),
    ("raw_syscalls:sys_enter", 604, format!("sys_enter", 604, "id", "x", "y", "z"), Layer::Syscall, "", Role::SysEnter),
    ("raw_syscalls:sys_exit", 605, format!("sys_exit", 605, "id", "ret", "y", "z"), Layer::Syscall, "", Role::SysExit),
    ("fuse_daemon:cvmfs_lookup", 606, format!("cvmfs_lookup", 606, "unique", "ino", "size", "off"), Layer::Daemon, "lookup", Role::Entry),
    ("fuse_daemon:cvmfs_lookup__return", 607, format!("cvmfs_lookup__return", 607, "unique", "x", "y", "z"), Layer::Daemon, "lookup", Role::Return),
    ("fuse_daemon:fuse_reply_entry", 608, format!("fuse_reply_entry", 608, "unique", "ino", "y", "z"), Layer::Daemon, "", Role::Inode),
    ("fuse_daemon:fuse_reply_err", 609, format!("fuse_reply_err", 609, "unique", "x", "y", "z"), Layer::Daemon, "", Role::Reply),
    ("fuse_kernel:copy_args", 610, format!("copy_args", 610, "unique", "connection", "write", "req"), Layer::Request, "", Role::Sent),
    ("ftrace:funcgraph_entry", 611, format!("funcgraph_entry", 611, "func", "depth", "y", "z"), Layer::Kernel, "", Role::GraphEntry),
    ("ftrace:funcgraph_exit", 612, format!("funcgraph_exit", 612, "func", "depth", "calltime", "rettime"), Layer::Kernel, "", Role::GraphExit),
    ("io_uring:io_uring_complete", 613, format!("io_uring_complete", 613, "ctx", "user_data", "res", "x"), Layer::Syscall, "", Role::Fetched),
    ("io_uring:io_uring_submit_req", 614, format!("io_uring_submit_req", 614, "ctx", "user_data", "opcode", "sq_thread"), Layer::Syscall, "", Role::Committed),
    ("io_uring:io_uring_cqring_wait", 615, format!("io_uring_cqring_wait", 615, "ctx", "x", "y", "z"), Layer::Syscall, "", Role::RingWait),
    ("fuse_daemon:fuse_reply_open", 616, format!("fuse_reply_open", 616, "unique", "fh", "y", "z"), Layer::Daemon, "", Role::Handle),
    ("fuse_daemon:fuse_add_direntry_plus", 617, format!("fuse_add_direntry_plus", 617, "unique", "ino", "y", "z"), Layer::Daemon, "", Role::Listed),
    ("fuse_daemon:take", 618, format!("take", 618, "unique", "x", "y", "z"), Layer::Daemon, "", Role::Taken),
    ("sock:inet_sock_set_state", 619, format!("inet_sock_set_state", 619, "dport", "x", "y", "z"), Layer::Syscall, "", Role::Connect),
    ("fuse_kernel:about", 620, format!("about", 620, "unique", "nodeid", "x", "connection"), Layer::Request, "", Role::About),
    ("fuse_kernel:sized", 621, format!("sized", 621, "unique", "nodeid", "size", "off"), Layer::Request, "", Role::Sized),
    ("fuse_kernel:answered", 622, format!("answered", 622, "unique", "ino", "x", "connection"), Layer::Request, "", Role::Answered),
    ("fuse_kernel:forgotten", 623, format!("forgotten", 623, "x", "ino", "y", "connection"), Layer::Request, "", Role::Forgotten),
];
/// Events whose samples also have a stack, a name or a length.
const MORE: [(usize, Role); 5] = [(0, Role::Stack), (2, Role::Stack), (3, Role::Stack), (6, Role::Name), (0, Role::Length)];

fn meaning(kind: &Kind, role: Role) -> Meaning {
    let function = kind.0.rsplit(':').next().unwrap_or("").trim_end_matches("__return");
    Meaning { event: kind.0.into(), layer: kind.3, function: function.into(), operation: kind.4.into(), role }
}

/// Return the catalogue of the files that `recording` makes.
pub fn catalogue() -> Vec<Meaning> {
    let more = MORE.iter().map(|(at, role)| meaning(&KINDS[*at], *role));
    KINDS.iter().map(|kind| meaning(kind, kind.5)).chain(more).collect()
}

/// Number of events and of their threads; upper bound of most values; kinds as bits.
pub struct Shape {
    pub events: usize,
    pub threads: u64,
    pub values: u64,
    pub kinds: u32,
}

/// Shape for small inputs: few threads and requests, which interact.
pub const SMALL: Shape = Shape { events: 200, threads: 6, values: 8, kinds: u32::MAX };

/// Return a value for an event's field. Small values are likely to be of one thread, or one request; those of rings are
/// IORING_OP_URING_CMD and the number of io_uring_enter.
fn value(from: &mut Unstructured, shape: &Shape) -> Result<u64> {
    Ok(match from.int_in_range(0..=15)? {
        0 => from.arbitrary()?,
        1 => u64::MAX,
        2..=4 => *from.choose(&[46, 426])?,
        _ => from.int_in_range(0..=shape.values - 1)?,
    })
}

/// Return a valid file of random events: their times mostly rise, their threads and requests are few.
pub fn recording(from: &mut Unstructured, shape: &Shape) -> Result<PerfData> {
    let sample_type = perf_data::USUAL | if from.arbitrary()? { perf_data::CALLCHAIN } else { 0 };
    let mut file = PerfData::default();
    for (at, kind) in KINDS.iter().enumerate() {
        let mut event = Event::new(kind.0, kind.1, &[at as u64 + 20]);
        event.sample_type = sample_type;
        file.events.push(event);
        file.formats.push((kind.0.split(':').next().unwrap_or(""), kind.2));
    }
    let mut time: u64 = 1000;
    for _ in 0..shape.events {
        if from.is_empty() {
            break;
        }
        let tid = from.int_in_range(0..=shape.threads - 1)? as i32;
        time = match from.int_in_range(0..=31)? {
            0 => from.arbitrary()?,
            step => time.wrapping_add(step),
        };
        let mut sample = Sample { pid: tid / 2, tid, time, cpu: from.int_in_range(0..=3)?, ..Sample::default() };
        match from.int_in_range(0..=KINDS.len() + 7)? {
            at if at < KINDS.len() && shape.kinds >> at & 1 == 0 => {}
            at if at < KINDS.len() => {
                sample.id = at as u64 + 20;
                if from.ratio(1, 3)? {
                    sample.chain = (0..from.int_in_range(0..=4)?).map(|_| value(from, shape)).collect::<Result<_>>()?;
                }
                let mut raw = vec![0; 8];
                for _ in 0..4 {
                    raw.extend(value(from, shape)?.to_le_bytes());
                }
                raw.extend((48u32 | 8 << 16).to_le_bytes());
                raw.resize(48, 0);
                raw.extend(b"a\xff/;\n\"<\0");
                sample.raw = raw;
                file.records.push(file.events[at].sample(&sample));
            }
            at if at == KINDS.len() => file.records.push(perf_data::round()),
            kind => {
                // LOST, COMM, EXIT, THROTTLE, FORK, MMAP2, SWITCH
                let kind = [2, 3, 4, 5, 7, 10, 14][kind - KINDS.len() - 1];
                let body: Vec<u8> = (0..from.int_in_range(0..=14)?).map(|_| value(from, shape)).collect::<Result<Vec<u64>>>()?
                    .iter().flat_map(|word| word.to_le_bytes()).collect();
                sample.id = 20;
                file.records.push(file.events[0].other(kind, from.arbitrary::<u8>()?.into(), &body, &sample));
            }
        }
    }
    Ok(file)
}

/// Return the file as bytes, in one of perf's forms.
pub fn bytes(file: &PerfData, from: &mut Unstructured) -> Result<Vec<u8>> {
    let packed = |step| perf_data::compress(&file.data(), step, 81).concat();
    Ok(match from.int_in_range(0..=7)? {
        0 => file.pipe(),
        1 => file.with_data(&packed(300), &file.features()),
        2 => file.pipe_with(&packed(70)),
        3 => {
            let frames = file.records.chunks(20).map(|records| perf_data::frame(&records.concat()));
            file.with_data(&frames.collect::<Vec<_>>().concat(), &file.features())
        }
        _ => file.bytes(),
    })
}

/// Damage bytes. Return whether it did.
pub fn damage(bytes: &mut Vec<u8>, from: &mut Unstructured) -> Result<bool> {
    let mut done = false;
    for _ in 0..from.int_in_range(0..=4)? {
        if from.is_empty() || bytes.is_empty() {
            break;
        }
        done = true;
        let at = from.choose_index(bytes.len())?;
        match from.int_in_range(0..=7)? {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + from.int_in_range(1..=16usize)?).min(bytes.len()))),
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            4 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0),
            _ => bytes[at] = from.arbitrary()?,
        }
    }
    Ok(done)
}

/// Run all queries of the commands on a recording.
pub fn answers(reader: &Reader, catalogue: &[Meaning], which: u8) {
    let filters = Filters { by_operation: which & 1 == 1, windows: which & 2 == 2, from: (which & 4 == 4).then_some(3), ..Filters::default() };
    let listen = |listener: &mut dyn Listener| drop(tell(reader, catalogue, filters.clone(), listener).expect("a scan"));
    let arch = reader.arch();
    match which >> 3 & 15 {
        0 => {
            drop(analyse(reader, catalogue, filters, Detail::Calls).expect("a scan"));
        }
        1 => {
            let by = [By::Operation, By::Comm, By::Pid, By::DaemonThread, By::Mount, By::Size];
            for by in by {
                drop(stages(reader, catalogue, filters.clone(), by).expect("a scan"));
            }
        }
        graph @ 2..=5 => {
            let graph = [Graph::OnCpu, Graph::OffCpu, Graph::OffWake, Graph::Requests][graph as usize - 2];
            let ask = Selection { graph, all: which & 1 == 1, filters, symfs: Some("/nosuch".into()), ..Selection::default() };
            drop(flame(reader, catalogue, &ask).expect("a scan"));
        }
        6 => {
            let mut slowest = Slowest::new(3, Wanted::of(Operations::default()));
            slowest.peers = Peers::new(Arch::new(arch.as_deref()));
            let (_, _, places) = tell(reader, catalogue, filters, &mut slowest).expect("a scan");
            let requests = slowest.finish();
            assert!(requests.len() <= 3);
            let connections = Connections::new(Vec::new(), Vec::new(), &slowest.peers);
            let replay = Replay::new(reader, catalogue, &places, &connections);
            drop(replay.meanwhile(&requests.iter().map(|request| &request.story).collect::<Vec<_>>()));
            for request in &requests {
                drop(replay.timeline(request, &[]));
            }
        }
        7 => {
            let mut queues = Queues::new(asleep(reader));
            listen(&mut queues);
            for queue in queues.finish() {
                drop((queue.parts(1), queue.parts(7)));
            }
        }
        8 => listen(&mut Outcomes::new(Arch::new(arch.as_deref()), &filters)),
        form @ 9..=10 => {
            let form = if form == 9 { Form::Csv } else { Form::Json };
            let mut rows = Rows::new(Vec::new(), form, arch.as_deref());
            listen(&mut rows);
            rows.finish().expect("memory");
        }
        11 => {
            let session = Session { served: filters.daemons.clone(), ..Session::default() };
            let mut trace = Trace::new(Vec::new(), arch.as_deref(), session, asleep(reader));
            listen(&mut trace);
            let selection = Selection { graph: Graph::OffCpu, all: true, filters, ..Selection::default() };
            fusetools_core::answers::flame::states(reader, catalogue, &selection, &mut |state| trace.state(state)).expect("a scan");
            trace.finish().expect("memory");
        }
        12 => drop(states(reader, catalogue, filters).expect("a scan")),
        13 => {
            let spans = [Span { tid: 1, from: 0, to: u64::MAX }, Span { tid: 2, from: 1010, to: 1000 }];
            let (_, places) = reader.scan_noting(catalogue, &mut drop).expect("a scan");
            drop(gather(reader, catalogue, &places, &spans));
        }
        _ => {
            let (_, answer) = analyse(reader, catalogue, filters, Detail::default()).expect("a scan");
            drop(answer);
        }
    }
}

/// Return an ELF file of these sections (name, address, content) and one executable segment that holds all.
pub fn elf(machine: u16, sections: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut names = vec![0];
    let mut body = Vec::new();
    let mut table = vec![0; 64];
    for (name, address, content) in sections {
        let at = 120 + body.len() as u64;
        let kind = match *name {
            ".symtab" => 2u32,
            ".rela" => 4,
            ".note" => 7,
            ".dynsym" => 11,
            _ => 1,
        };
        table.extend((names.len() as u32).to_le_bytes());
        table.extend(kind.to_le_bytes());
        for word in [2, *address, at, content.len() as u64] {
            table.extend(word.to_le_bytes());
        }
        // Strings of symbols are those of the sections.
        let (link, each) = if matches!(kind, 2 | 11) { (sections.len() as u32 + 1, 24u64) } else { (0, 0) };
        table.extend(link.to_le_bytes());
        table.extend(0u32.to_le_bytes());
        table.extend(4u64.to_le_bytes());
        table.extend(each.to_le_bytes());
        names.extend(name.bytes().chain([0]));
        body.extend_from_slice(content);
    }
    let at = 120 + body.len() as u64;
    names.extend(b"f\0fuse_reply_err\0main.main\0");
    table.extend(0u32.to_le_bytes());
    table.extend(3u32.to_le_bytes());
    for word in [0, 0, at, names.len() as u64, 0, 1, 0] {
        table.extend(word.to_le_bytes());
    }
    let table_at = at + names.len() as u64;
    let count = sections.len() as u16 + 2;
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
    out.extend(machine.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for word in [0, 64, table_at] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    for half in [64, 56, 1, 64, count, count - 1] {
        out.extend(half.to_le_bytes());
    }
    out.extend([1u32, 5].map(u32::to_le_bytes).concat());
    for word in [0, 0x1000, 0x1000, table_at, table_at, 0x1000u64] {
        out.extend(word.to_le_bytes());
    }
    out.extend(body);
    out.extend(names);
    out.extend(table);
    out
}
