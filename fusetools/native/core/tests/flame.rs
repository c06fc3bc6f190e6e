//! Stacks for flame graphs from damaged recordings and symbol lists: an answer, bounded, and never a panic.

use crate::perf_data;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fusetools_core::answers::flame::{flame, Graph, Selection};
use fusetools_core::answers::stages::{stages, By};
use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::programs::files::{Files, Opener};
use fusetools_core::programs::symbols::Kernel;
use fusetools_core::requests::filters::Filters;
use fusetools_core::write::{merge_with, Extras};
use fusetools_core::Reader;
use perf_data::{Event, PerfData, Sample, CALLCHAIN};

fn row(event: &str, layer: Layer, operation: &str, role: Role) -> Meaning {
    Meaning {
        event: event.into(),
        layer,
        function: event
            .split(':')
            .next_back()
            .unwrap()
            .trim_end_matches("__return")
            .into(),
        operation: operation.into(),
        role,
    }
}

fn catalogue() -> Vec<Meaning> {
    let (switch, waking) = ("sched:sched_switch", "sched:sched_waking");
    let send = "fuse:fuse_request_send";
    vec![
        row(switch, Layer::Syscall, "", Role::Switch),
        row(waking, Layer::Syscall, "", Role::Waking),
        row("raw_syscalls:sys_enter", Layer::Syscall, "", Role::SysEnter),
        row("raw_syscalls:sys_exit", Layer::Syscall, "", Role::SysExit),
        row(send, Layer::Request, "", Role::Begin),
        row("fuse:fuse_request_end", Layer::Request, "", Role::End),
        row(
            "fuse_daemon:cvmfs_lookup",
            Layer::Daemon,
            "lookup",
            Role::Entry,
        ),
        row(
            "fuse_daemon:cvmfs_lookup__return",
            Layer::Daemon,
            "lookup",
            Role::Return,
        ),
        row(switch, Layer::Syscall, "", Role::Stack),
        row(waking, Layer::Syscall, "", Role::Stack),
        row(send, Layer::Syscall, "", Role::Stack),
    ]
}

fn demo() -> Vec<u8> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    std::fs::read(root.join("samples/recordings/demo.data")).unwrap()
}

/// Return the weights in ns of every graph of a recording.
fn weights(bytes: Vec<u8>) -> Option<[u64; 4]> {
    let reader = Reader::from_bytes(bytes).ok()?;
    let rows = catalogue();
    let graphs = [Graph::OnCpu, Graph::OffCpu, Graph::OffWake, Graph::Requests];
    Some(graphs.map(|graph| {
        let selection = Selection {
            graph,
            all: true,
            filters: Filters::default(),
            ..Selection::default()
        };
        let (_, flames) = flame(&reader, &rows, &selection).unwrap();
        let sum = flames
            .stacks
            .iter()
            .fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight));
        if graph != Graph::OnCpu {
            assert_eq!(sum, flames.shown.ns, "{graph:?}");
        }
        sum
    }))
}

#[test]
fn a_whole_recording_has_every_graph() {
    let [_, off, wake, requests] = weights(demo()).unwrap();
    assert!(off > wake && wake > 1_000_000 && requests > 1_000_000);
}

#[test]
fn a_graph_of_requests_has_the_callers_time_outside_of_them() {
    let reader = Reader::from_bytes(demo()).unwrap();
    let rows = catalogue();
    let selection = Selection {
        graph: Graph::Requests,
        all: true,
        ..Selection::default()
    };
    let (_, flames) = flame(&reader, &rows, &selection).unwrap();
    let (_, answer) = stages(&reader, &rows, Filters::default(), By::Operation).unwrap();
    let outside: u64 = answer
        .calls
        .iter()
        .flat_map(|(_, calls)| calls.outside)
        .sum();
    assert!(outside > 0);
    assert_eq!(flames.outside.ns, outside);
    let shown = flames
        .stacks
        .iter()
        .filter(|(stack, _)| stack.contains(";[outside of requests];["));
    assert_eq!(shown.map(|(_, ns)| ns).sum::<u64>(), outside);
    // A call on a mount that is not selected is not shown.
    let selection = Selection {
        filters: Filters {
            connections: vec![1],
            ..Filters::default()
        },
        ..selection
    };
    let (_, flames) = flame(&reader, &rows, &selection).unwrap();
    assert_eq!((flames.outside.ns, flames.shown.ns), (0, 0));
}

#[test]
fn damaged_recordings() {
    let whole = demo();
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for _ in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(200) {
            let at = 200 + random(bytes.len() - 200);
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)];
        }
        if random(4) == 0 {
            bytes.truncate(1000 + random(whole.len() - 1000));
        }
        weights(bytes);
    }
}

#[test]
fn damaged_symbol_lists() {
    let many: String = (0..6000)
        .map(|i| format!("ffffffff81{:06x} t f{i}\n", i * 16))
        .collect();
    let whole = Kernel::new(Cow::Borrowed(many.as_bytes())).unwrap();
    assert_eq!(whole.name(0xffff_ffff_8100_0025), Some("f2"));
    assert_eq!((whole.name(0), whole.name(u64::MAX)), (None, None));
    let extract = whole.extract([0xffff_ffff_8100_0025, 7, u64::MAX].into_iter());
    let few = Kernel::new(Cow::Owned(extract)).unwrap();
    assert_eq!(few.name(0xffff_ffff_8100_002f), Some("f2"));
    assert_eq!(
        (
            few.name(0xffff_ffff_8100_0030),
            few.name(0xffff_ffff_8100_001f)
        ),
        (None, None)
    );
    for text in [
        "",
        "\n",
        "x",
        "ffffffffffffffff f z",
        "1 f",
        "1 f a\n1 e -\n",
        "ffffffffffffffffff t a",
    ] {
        if let Some(kernel) = Kernel::new(Cow::Borrowed(text.as_bytes())) {
            let _ = [0, 1, 2, u64::MAX].map(|address| kernel.name(address).map(str::len));
            kernel.extract([0, 1, u64::MAX].into_iter());
        }
    }
    let last = format!("{many}ffffffffffffffff t last\t[m]\n");
    let kernel = Kernel::new(Cow::Borrowed(last.as_bytes())).unwrap();
    assert_eq!(kernel.name(u64::MAX - 1), None);
}

/// In Linux 5.4 and Enterprise Linux 8 a section begins where its first function does, and its mark is the last line there.
#[test]
fn marks_of_sections_name_no_function() {
    let mut list: String = (0..6000)
        .map(|i| format!("ffffffff81{:06x} t f{i}\n", i * 16))
        .collect();
    list += "ffffffff82000000 t __schedule\nffffffff82000000 T __sched_text_start\n\
        ffffffff82000200 T __sched_text_end\nffffffff82000200 T __cpuidle_text_start\n\
        ffffffff82000200 t default_idle\nffffffff82000300 T __cpuidle_text_end\n";
    let kernel = Kernel::new(Cow::Borrowed(list.as_bytes())).unwrap();
    let names = [0x10, 0x1ff, 0x200].map(|at| kernel.name(0xffff_ffff_8200_0000 + at));
    assert_eq!(
        names,
        [Some("__schedule"), Some("__schedule"), Some("default_idle")]
    );
}

/// A program of two functions, `start_thread` at 0x100 and `work` at 0x200, as a recording holds it.
const PROGRAM: u64 = 0x5555_0000_0000;
const SYMBOLS: &str = "0000000000000000 F - /bin/program\n\
    0000000000000100 u 1ff start_thread\n0000000000000200 u 2ff work\n";

fn mapping() -> Vec<u8> {
    let mut body = perf_data::words(&[7, 7]);
    for word in [PROGRAM, 0x1000, 0, 0, 0, 0] {
        body.extend(u64::to_le_bytes(word));
    }
    body.extend(perf_data::words(&[5, 2]));
    body.extend(b"/bin/program\0\0\0\0");
    body
}

/// Return weights for one sample with this chain: all; the cut part; cut where the tables end; cut where the copy ends.
fn cut(chain: &[u64]) -> [u64; 4] {
    let mut file = PerfData::fuse();
    let event: &mut Event = &mut file.events[0];
    event.sample_type |= CALLCHAIN;
    let sample = Sample {
        id: event.ids[0],
        pid: 7,
        tid: 7,
        time: 10,
        chain: chain.to_vec(),
        raw: perf_data::send(45, 2, 1),
        ..Sample::default()
    };
    file.records = vec![
        event.other(
            10,
            2,
            &mapping(),
            &Sample {
                time: 5,
                ..sample.clone()
            },
        ),
        event.sample(&sample),
    ];
    let mut tracing = file.tracing();
    tracing.truncate(tracing.len() - 16);
    tracing.extend((SYMBOLS.len() as u32).to_le_bytes());
    tracing.extend(SYMBOLS.bytes().chain([0; 12]));
    let mut features = file.features();
    features[0].1 = tracing;
    let bytes = file.with_data(&file.data(), &features);
    let reader = Reader::from_bytes(bytes).unwrap();
    let rows = [row(
        "fuse:fuse_request_send",
        Layer::Syscall,
        "",
        Role::Stack,
    )];
    let selection = Selection {
        graph: Graph::OnCpu,
        all: true,
        ..Selection::default()
    };
    let (_, flames) = flame(&reader, &rows, &selection).unwrap();
    let weight = flames.shown.ns;
    let parts = [flames.cut, flames.cut_unknown, flames.cut_copied];
    let shares = parts.map(|part| part / weight);
    [weight.min(1), shares[0], shares[1], shares[2]]
}

#[test]
fn the_end_of_a_stack_depends_on_its_method() {
    const KERNEL: u64 = -128i64 as u64;
    let (kernel, user) = (0xffff_ffff_8100_1000, 0x5555_0000_1234);
    // By frame pointers; copied, and followed as far as the tables describe it, or as far as it was copied.
    assert_eq!(cut(&[KERNEL, kernel, USER, user]), [1, 1, 0, 0]);
    assert_eq!(cut(&[KERNEL, kernel, USER, user, USER]), [1, 1, 1, 0]);
    assert_eq!(cut(&[KERNEL, kernel, USER, user, USER, USER]), [1, 1, 0, 1]);
    // There is no user part: a longer copy of it would bring nothing.
    assert_eq!(cut(&[KERNEL, kernel]), [1, 1, 0, 0]);
    assert_eq!(cut(&[KERNEL, kernel, USER]), [1, 1, 0, 0]);
    assert_eq!(cut(&[KERNEL, kernel, USER, USER]), [1, 1, 0, 0]);
    // A thread's first function ends it. The frame pointer's value before is no frame; that of others may be.
    let [begin, work, beyond] = [PROGRAM + 0x110, PROGRAM + 0x210, 0xbe55_2274];
    assert_eq!(cut(&[USER, work, begin]), [1, 0, 0, 0]);
    assert_eq!(cut(&[USER, work, begin, beyond]), [1, 0, 0, 0]);
    assert_eq!(cut(&[USER, work, beyond]), [1, 1, 0, 0]);
    assert_eq!(cut(&[USER, begin, work]), [1, 1, 0, 0]);
}

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\
    \tfield:pid_t prev_pid;\toffset:0;\tsize:4;\tsigned:1;\n\
    \tfield:pid_t next_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\
    \nprint fmt: \"\"\n";

/// Return the ns that thread 7 waits. It is switched out at 100, and its switch-in is not recorded.
fn waited(sampled: bool) -> u64 {
    let mut file = PerfData::fuse();
    file.formats.push(("sched", SWITCH));
    let switch = Event::new("sched:sched_switch", 600, &[16]);
    let mut clock = Event::new("cpu-clock", 0, &[17]);
    clock.sample_type &= !perf_data::RAW;
    let of = |event: &Event, time| Sample {
        id: event.ids[0],
        pid: 7,
        tid: 7,
        time,
        ..Sample::default()
    };
    let out = Sample {
        raw: [perf_data::words(&[7, 0]), 1u64.to_le_bytes().to_vec()].concat(),
        ..of(&switch, 100)
    };
    let begin = Sample {
        raw: perf_data::send(45, 2, 1),
        ..of(&file.events[0], 300)
    };
    file.records.push(switch.sample(&out));
    if sampled {
        file.records.push(clock.sample(&of(&clock, 160)));
    }
    file.records.push(file.events[0].sample(&begin));
    file.events.extend([switch, clock]);
    let reader = Reader::from_bytes(file.bytes()).unwrap();
    let rows = [
        row("sched:sched_switch", Layer::Syscall, "", Role::Switch),
        row("fuse:fuse_request_send", Layer::Request, "", Role::Begin),
        row("cpu-clock", Layer::Syscall, "", Role::Sample),
    ];
    let selection = Selection {
        graph: Graph::OffCpu,
        all: true,
        ..Selection::default()
    };
    let (_, flame) = flame(&reader, &rows, &selection).unwrap();
    flame.shown.ns
}

#[test]
fn a_sample_ends_a_wait() {
    assert_eq!(waited(true), 60);
    assert_eq!(waited(false), 200);
}

/// perf_event.h: PERF_CONTEXT_USER
const USER: u64 = -512i64 as u64;

/// Return an MMAP2 of process `pid`: 0x1000 bytes from `start` on.
fn mapped(event: &Event, pid: i32, start: u64, path: &str) -> Vec<u8> {
    let mut body = perf_data::words(&[pid as u32, pid as u32]);
    body.extend(
        [start, 0x1000, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    body.extend([0; 32]);
    let mut name = path.as_bytes().to_vec();
    name.resize((path.len() + 8) & !7, 0);
    body.extend(name);
    let sample = Sample {
        id: event.ids[0],
        pid,
        tid: pid,
        time: 50,
        ..Sample::default()
    };
    event.other(10, 2, &body, &sample)
}

fn on_cpu(bytes: Vec<u8>, event: &str) -> fusetools_core::answers::flame::Flame {
    let reader = Reader::from_bytes(bytes).unwrap();
    let rows = [
        row("fuse:fuse_request_send", Layer::Request, "", Role::Begin),
        row("fuse:fuse_request_end", Layer::Request, "", Role::End),
        row(event, Layer::Syscall, "", Role::Stack),
    ];
    let selection = Selection {
        graph: Graph::OnCpu,
        all: true,
        ..Selection::default()
    };
    let (info, flame) = flame(&reader, &rows, &selection).unwrap();
    assert!(
        info.last < 1000 && info.warnings.is_empty(),
        "{:?}",
        info.warnings
    );
    flame
}

#[test]
fn waits_by_perfs_own_off_cpu_event() {
    for raw in [false, true] {
        let mut file = PerfData::fuse();
        let mut waits = Event::new("offcpu-time", 10, &[17]);
        waits.sample_type |= CALLCHAIN;
        waits.sample_type &= if raw { !CALLCHAIN } else { !perf_data::RAW };
        file.records.push(mapped(&waits, 7, 0x1000, "/bin/x"));
        // Thread 8 waited until 300; short waits of thread 7 are added up.
        for (time, ns, task) in [(300, 100, (8u32, 7u32)), (u64::MAX << 32, 40, (7, 7))] {
            let chain = vec![USER, 0x1234];
            let mut words = vec![u64::from(task.0) | u64::from(task.1) << 32, ns, 2];
            words.extend(chain.iter().chain([&99]));
            let sample = Sample {
                id: 17,
                pid: task.1 as i32,
                tid: task.0 as i32,
                time,
                period: ns,
                raw: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
                chain,
                ..Sample::default()
            };
            file.records.push(waits.sample(&sample));
        }
        let end = Sample {
            id: 13,
            time: 400,
            raw: perf_data::end(45, 2, 0),
            ..Sample::default()
        };
        file.records.push(file.events[1].sample(&end));
        file.events.push(waits);
        let flame = on_cpu(file.bytes(), "offcpu-time");
        let mut stacks = flame.stacks;
        stacks.sort();
        let expected = [(":7;[x]".to_owned(), 40), (":8;[x]".to_owned(), 100)];
        assert_eq!(stacks, expected, "raw: {raw}");
        assert_eq!((flame.shown.ns, flame.user.nameless), (140, 1));
    }
}

#[test]
fn a_merged_recording_keeps_the_names_of_generated_code() {
    let mut file = PerfData::fuse();
    let mut clock = Event::new("cpu-clock", 0, &[17]);
    clock.sample_type = (clock.sample_type | CALLCHAIN) & !perf_data::RAW;
    for (pid, ip) in [(7, 0x1234), (8, 0x1234), (7, 0x1300)] {
        file.records.push(mapped(&clock, pid, 0x1000, "//anon"));
        let sample = Sample {
            id: 17,
            pid,
            tid: pid,
            time: 60,
            chain: vec![USER, ip],
            ..Sample::default()
        };
        file.records.push(clock.sample(&sample));
    }
    file.events.push(clock);
    let place = |end: &str| -> PathBuf {
        std::env::temp_dir().join(format!("fusetools-generated-{}.{end}", std::process::id()))
    };
    std::fs::write(place("in"), file.bytes()).unwrap();
    std::fs::write(place("map"), "1200 40 Lazy:~f /a.js\n").unwrap();
    let map = place("map");
    let opener = Opener(Arc::new(move |path: &Path| match path.to_str() {
        Some("/proc/7/root/tmp/perf-7.map") => std::fs::File::open(&map),
        _ => Err(std::io::Error::other("none")),
    }));
    let extras = Extras {
        files: Some(Files {
            opener: Some(opener),
            ..Files::default()
        }),
        ..Extras::default()
    };
    merge_with(&[place("in")], &place("out"), "", &extras).unwrap();
    let flame = on_cpu(std::fs::read(place("out")).unwrap(), "cpu-clock");
    for end in ["in", "out", "map"] {
        std::fs::remove_file(place(end)).unwrap();
    }
    let mut stacks = flame.stacks;
    stacks.sort();
    let names: Vec<&str> = stacks.iter().map(|(stack, _)| &**stack).collect();
    let expected = [
        ":7;Lazy:~f /a.js",
        ":7;[generated code]",
        ":8;[generated code]",
    ];
    assert_eq!(names, expected);
    assert_eq!((flame.user.addresses, flame.user.nameless), (3, 2));
    assert_eq!(flame.generated, ["pid 7", "pid 8"]);
}
