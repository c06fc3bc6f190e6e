//! Events of threads in spans of time.

use crate::perf_data;

use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::reader::{Places, Reader};
use fusetools_core::requests::moments::{gather, Span, What};
use perf_data::{meaning, Event, PerfData, Random, Sample};

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\
    \tfield:pid_t prev_pid;\toffset:0;\tsize:4;\tsigned:1;\n\
    \tfield:pid_t next_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\
    \nprint fmt: \"%s\", __print_flags(REC->prev_state & 0xff, \"|\", \
    { 0x01, \"S\" }, { 0x02, \"D\" }, { 0x04, \"T\" })\n";

/// Return the state of a thread that is switched out, as gathered.
fn state(recorded: u64) -> u64 {
    let mut file = PerfData::fuse();
    file.formats.push(("sched", SWITCH));
    let switch = Event::new("sched:sched_switch", 600, &[16]);
    file.records.push(switch.sample(&Sample {
        id: switch.ids[0],
        pid: 7,
        tid: 7,
        time: 100,
        raw: [perf_data::words(&[7, 0]), recorded.to_le_bytes().to_vec()].concat(),
        ..Sample::default()
    }));
    file.events.push(switch);
    let reader = Reader::from_bytes(file.bytes()).unwrap();
    let row = Meaning {
        event: "sched:sched_switch".into(),
        layer: Layer::Syscall,
        function: String::new(),
        operation: String::new(),
        role: Role::Switch,
    };
    let span = Span {
        tid: 7,
        from: 0,
        to: 200,
    };
    let moments = gather(&reader, &[row], &Places::default(), &[span]);
    match &moments[0][..] {
        [moment] => match moment.what {
            What::Event(0, [7, state, 0, _]) => state,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// States have the names of the recording's own format: a preempted thread (0x100) is runnable, a stopped one (T) is
/// not.
#[test]
fn states_are_the_formats() {
    assert_eq!((state(0), state(0x100)), (0, 0));
    assert_eq!((state(1), state(4), state(0x102)), (1, 4, 2));
}

const ENTER: &str = "name: sys_enter\nID: 601\nformat:\n\
    \tfield:long id;\toffset:0;\tsize:8;\tsigned:1;\n\
    \nprint fmt: \"\"\n";
const CALLBACK: &str = "name: cb\nID: 602\nformat:\n\
    \tfield:unsigned long other;\toffset:0;\tsize:8;\tsigned:0;\n\
    \nprint fmt: \"\"\n";

/// Return requests' events, switches, system calls, and callbacks without a request's number.
fn threads() -> PerfData {
    let mut file = PerfData::fuse();
    file.formats.push(("sched", SWITCH));
    file.formats.push(("raw_syscalls", ENTER));
    file.formats.push(("fuse_daemon", CALLBACK));
    file.events
        .push(Event::new("sched:sched_switch", 600, &[16]));
    file.events
        .push(Event::new("raw_syscalls:sys_enter", 601, &[17]));
    file.events.push(Event::new("fuse_daemon:cb", 602, &[18]));
    file
}

fn rows() -> Vec<Meaning> {
    let callback = Meaning {
        layer: Layer::Daemon,
        ..meaning("fuse_daemon:cb", Role::Entry)
    };
    vec![
        meaning("fuse:fuse_request_end", Role::End),
        meaning("sched:sched_switch", Role::Switch),
        meaning("raw_syscalls:sys_enter", Role::SysEnter),
        callback,
    ]
}

fn at(id: u64, time: u64, tid: i32, raw: Vec<u8>) -> Sample {
    Sample {
        id,
        pid: tid,
        tid,
        time,
        raw,
        ..Sample::default()
    }
}

fn switch(file: &PerfData, time: u64, from: u32, to: u32) -> Vec<u8> {
    let raw = [perf_data::words(&[from, to]), 1u64.to_le_bytes().to_vec()].concat();
    file.events[3].sample(&at(16, time, from as i32, raw))
}

fn enter(file: &PerfData, time: u64, tid: i32, number: u64) -> Vec<u8> {
    file.events[4].sample(&at(17, time, tid, number.to_le_bytes().to_vec()))
}

/// Return an exec of a 32-bit program, or of a 64-bit one.
fn vdso(file: &PerfData, time: u64, pid: i32, is_32bit: bool) -> Vec<u8> {
    let start: u64 = if is_32bit {
        0xf7f0_0000
    } else {
        0x7fff_0000_0000
    };
    let mut body = perf_data::words(&[pid as u32, pid as u32]);
    [start, 0x2000, 0]
        .iter()
        .for_each(|word| body.extend(word.to_le_bytes()));
    body.extend(b"[vdso]\0\0");
    file.events[0].other(1, 2, &body, &at(11, time, pid, Vec::new()))
}

fn fork(file: &PerfData, time: u64, pid: u32, ppid: u32) -> Vec<u8> {
    let mut body = perf_data::words(&[pid, ppid, pid, ppid]);
    body.extend(time.to_le_bytes());
    file.events[0].other(7, 0, &body, &at(11, time, ppid as i32, Vec::new()))
}

/// Return a PERF_RECORD_SWITCH.
fn switched(file: &PerfData, time: u64, tid: i32) -> Vec<u8> {
    let out = ((time % 2) as u16) << 13;
    file.events[0].other(14, out, &[], &at(11, time, tid, Vec::new()))
}

/// Return what several CPUs write while perf copies their buffers out, one after the other.
fn recorded(random: &mut Random, rounds: u64) -> PerfData {
    const CPUS: usize = 3;
    let mut file = threads();
    let mut buffers = vec![Vec::new(); CPUS];
    let mut time = 1000;
    for _ in 0..rounds {
        for cpu in 0..CPUS {
            for _ in 0..random.below(12) {
                time += random.below(3);
                let tid = 1 + random.below(4) as i32;
                let other = 1 + random.below(5) as u32;
                let record = match random.below(16) {
                    0..=5 => switch(&file, time, tid as u32, other),
                    6..=11 => enter(&file, time, tid, random.below(12)),
                    12 => switched(&file, time, tid),
                    13 => fork(&file, time, other, tid as u32),
                    14 => vdso(&file, time, tid, random.below(2) == 0),
                    _ => file.events[1].sample(&at(13, time, tid, perf_data::end(4, time, 0))),
                };
                buffers[random.below(CPUS as u64) as usize].push(record);
            }
            file.records.append(&mut buffers[cpu]);
        }
        file.records.push(perf_data::round());
    }
    file.records.extend(buffers.concat());
    file
}

/// Return the file as it is; packed in frames, all of it or from some place on; or packed as one stream.
fn packed(file: &PerfData, random: &mut Random) -> Vec<u8> {
    let at = random.below(file.records.len() as u64) as usize;
    let frames = |records: &[Vec<u8>]| -> Vec<u8> {
        let pieces = records.chunk_by(|_, next| next[0] != 68 && next.len() % 3 > 0);
        let frame = |piece: &[Vec<u8>]| match piece {
            [round] if round[0] == 68 => round.clone(),
            [round, rest @ ..] if round[0] == 68 => {
                [round.clone(), perf_data::frame(&rest.concat())].concat()
            }
            _ => perf_data::frame(&piece.concat()),
        };
        pieces.flat_map(frame).collect()
    };
    let data = match random.below(4) {
        0 => file.data(),
        1 => frames(&file.records),
        2 => [file.records[..at].concat(), frames(&file.records[at..])].concat(),
        _ => [
            file.records[..at].concat(),
            perf_data::compress(&file.records[at..].concat(), 500, 81).concat(),
        ]
        .concat(),
    };
    file.with_data(&data, &file.features())
}

/// Check that the places of a first pass do not change what is gathered. Return the number of samples read, and of all.
fn samples_read(reader: &Reader, spans: &[Span]) -> (u64, u64) {
    let (whole, places) = reader.scan_noting(&rows(), &mut |_| ()).unwrap();
    let all = gather(reader, &rows(), &Places::default(), spans);
    assert_eq!(gather(reader, &rows(), &places, spans), all, "{spans:?}");
    let windows = spans.iter().map(|span| (span.from, span.to)).collect();
    let read = reader.scan_within(&rows(), &places, windows, &mut |_| ());
    (read.counts.iter().sum(), whole.counts.iter().sum())
}

#[test]
fn parts_that_are_left_out_change_nothing() {
    let mut random = Random(3);
    let (mut read, mut of) = (0, 0);
    for case in 0..100 {
        let file = recorded(&mut random, 1 + case % 20);
        let mut reader = Reader::from_bytes(packed(&file, &mut random)).unwrap();
        reader.set_chunk([64, 500, 2000][random.below(3) as usize]);
        let mut span = || {
            let from = 990 + random.below(20 + 20 * (case % 20));
            let to = from + random.below(12);
            let tid = 1 + random.below(4) as i32;
            Span { tid, from, to }
        };
        let spans = [span(), span(), span()];
        for span in spans {
            let (some, all) = samples_read(&reader, &[span]);
            (read, of) = (read + some, of + all);
        }
        let (_, places) = reader.scan_noting(&rows(), &mut |_| ()).unwrap();
        let all = gather(&reader, &rows(), &Places::default(), &spans);
        assert_eq!(gather(&reader, &rows(), &places, &spans), all, "{spans:?}");
    }
    assert!(read < of / 2, "{read} of {of}");
}

/// Return a file of switches between threads 7 and 8 at these times, each a part of its own. Time 0 stands for a round.
fn switches(times: &[u64]) -> Reader {
    let mut file = threads();
    for time in times {
        file.records.push(match time {
            0 => perf_data::round(),
            _ => switch(&file, *time, 7, 8),
        });
    }
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    reader.set_chunk(64);
    reader
}

#[test]
fn parts_at_the_borders_of_a_window_are_read() {
    let reader = switches(&[10, 20, 20, 30, 40, 50]);
    let span = |from, to| Span { tid: 7, from, to };
    assert_eq!(samples_read(&reader, &[span(20, 40)]), (4, 6));
    assert_eq!(samples_read(&reader, &[span(21, 29)]), (0, 6));
    assert_eq!(samples_read(&reader, &[span(50, u64::MAX)]), (1, 6));
    assert_eq!(samples_read(&reader, &[span(10, 10), span(30, 31)]), (2, 6));
}

/// One CPU's block comes after another's: the events of a window are far apart in the file.
#[test]
fn blocks_of_cpus_overlap() {
    let reader = switches(&[10, 11, 40, 41, 12, 13, 42, 0, 14, 43, 0, 50, 0]);
    let span = |from, to| Span { tid: 7, from, to };
    assert_eq!(samples_read(&reader, &[span(11, 14)]), (4, 10));
    assert_eq!(samples_read(&reader, &[span(41, 43)]), (3, 10));
}

#[test]
fn unordered_files_are_read_completely() {
    let span = Span {
        tid: 7,
        from: 0,
        to: 0,
    };
    // More events than are gathered before they are handed on.
    let times = |late: u64| {
        let mut times: Vec<u64> = (100..5100)
            .chain([0])
            .chain(5100..5200)
            .chain([0])
            .collect();
        times.extend([5200, 5201, late]);
        times
    };
    let all = 5103;
    assert_eq!(samples_read(&switches(&times(5202)), &[span]), (0, all));
    assert_eq!(samples_read(&switches(&times(5100)), &[span]), (0, all));
    // As late as the last event that was handed on, and later.
    assert_eq!(samples_read(&switches(&times(5099)), &[span]), (all, all));
    assert_eq!(samples_read(&switches(&times(5000)), &[span]), (all, all));
}

#[test]
fn earlier_parts_are_read_if_a_call_needs_them() {
    let mut file = threads();
    let callback = file.events[5].sample(&at(18, 25, 7, vec![0; 8]));
    file.records = vec![switch(&file, 10, 7, 8), callback, switch(&file, 30, 7, 8)];
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    reader.set_chunk(64);
    let span = Span {
        tid: 7,
        from: 30,
        to: 30,
    };
    assert_eq!(samples_read(&reader, &[span]), (3, 3));
}

const TAKE: &str = "name: take\nID: 603\nformat:\n\
    \tfield:u64 unique;\toffset:0;\tsize:8;\tsigned:0;\n\
    \nprint fmt: \"\"\n";

/// Return requests taken, nested callbacks with their returns, and switches, of four threads.
fn called(random: &mut Random, events: u64) -> (PerfData, Vec<Meaning>) {
    let mut file = threads();
    file.formats.push(("fuse_daemon", TAKE));
    let back = CALLBACK.replace("cb", "cb__return").replace("602", "604");
    file.formats.push(("fuse_daemon", back.leak()));
    file.events.push(Event::new("fuse_daemon:take", 603, &[19]));
    file.events
        .push(Event::new("fuse_daemon:cb__return", 604, &[20]));
    for time in 1000..1000 + events {
        let tid = 1 + random.below(4) as i32;
        let sample = |index: usize, id, word: u64| {
            file.events[index].sample(&at(id, time, tid, word.to_le_bytes().to_vec()))
        };
        file.records.push(match random.below(64) {
            0 => sample(6, 19, time),
            1..=9 => sample(5, 18, 0),
            10..=18 => sample(7, 20, 0),
            19 => file.events[1].sample(&at(13, time, tid, perf_data::end(4, time - 9, 0))),
            _ => switch(&file, time, tid as u32, 9),
        });
        if time % 500 == 0 {
            file.records.push(perf_data::round());
        }
    }
    let daemon = |event, role| Meaning {
        layer: Layer::Daemon,
        function: "cb".into(),
        ..meaning(event, role)
    };
    let mut rows = rows();
    rows[3].function = "cb".into();
    rows.push(daemon("fuse_daemon:take", Role::Taken));
    rows.push(daemon("fuse_daemon:cb__return", Role::Return));
    (file, rows)
}

#[test]
fn calls_are_joined_as_if_all_had_been_read() {
    const EVENTS: u64 = 30_000;
    let mut random = Random(7);
    let (file, rows) = called(&mut random, EVENTS);
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    reader.set_chunk(4000);
    let (whole, places) = reader.scan_noting(&rows, &mut |_| ()).unwrap();
    let (mut read, mut numbered) = (0, 0);
    for _ in 0..100 {
        let mut span = || {
            let from = 1000 + random.below(EVENTS);
            let (to, tid) = (from + random.below(500), 1 + random.below(4) as i32);
            Span { tid, from, to }
        };
        let mut spans = [span(), span()];
        spans.sort_by_key(|span| span.from);
        let all = gather(&reader, &rows, &Places::default(), &spans);
        assert_eq!(gather(&reader, &rows, &places, &spans), all, "{spans:?}");
        let number =
            |what: &What| matches!(what, What::Event(3 | 5, [unique, ..]) if *unique != u64::MAX);
        let moments = all.iter().flatten();
        numbered += moments.filter(|moment| number(&moment.what)).count();
        let windows = vec![(spans[0].from, spans[0].to)];
        let some = reader.scan_within(&rows, &places, windows, &mut |_| ());
        read += some.counts.iter().sum::<u64>();
    }
    let all = 100 * whole.counts.iter().sum::<u64>();
    assert!(
        numbered > 100 && read < all / 2,
        "{numbered}; {read} of {all}"
    );
}

/// 7 runs a 32-bit program from 10 to 30, its child 9 too. i386: 3 is read; x86-64: 3 is close.
#[test]
fn skipped_parts_still_show_32bit_programs() {
    let mut file = threads();
    let mut records = vec![vdso(&file, 10, 7, true), fork(&file, 20, 9, 7)];
    records.push(enter(&file, 25, 7, 3));
    records.push(vdso(&file, 30, 7, false));
    for time in [40, 50] {
        records.push(enter(&file, time, 7, 3));
        records.push(enter(&file, time + 1, 9, 3));
    }
    file.records = records;
    let mut reader = Reader::from_bytes(file.bytes()).unwrap();
    reader.set_chunk(64);
    let call = |tid, time| {
        let span = Span {
            tid,
            from: time,
            to: time,
        };
        assert_eq!(samples_read(&reader, &[span]), (1, 5));
        let (_, places) = reader.scan_noting(&rows(), &mut |_| ()).unwrap();
        match gather(&reader, &rows(), &places, &[span])[0][..] {
            [ref moment] => match moment.what {
                What::Event(_, [number, ..]) => number,
                ref other => panic!("{other:?}"),
            },
            ref other => panic!("{other:?}"),
        }
    };
    let found = [call(7, 25), call(7, 40), call(9, 41), call(9, 51)];
    assert_eq!(found, [0, 3, 0, 0]);
}
