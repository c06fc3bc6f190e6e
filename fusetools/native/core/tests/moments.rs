//! What threads did in spans of time.

mod perf_data;

use fusetools_core::events::{Layer, Meaning, Role};
use fusetools_core::moments::{gather, Span, What};
use fusetools_core::Reader;
use perf_data::{Event, PerfData, Sample};

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\
    \tfield:pid_t prev_pid;\toffset:0;\tsize:4;\tsigned:1;\n\
    \tfield:pid_t next_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\
    \nprint fmt: \"%s\", __print_flags(REC->prev_state & 0xff, \"|\", \
    { 0x01, \"S\" }, { 0x02, \"D\" }, { 0x04, \"T\" })\n";

/// The state of a thread that is switched out, as gathered.
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
    let (_, moments) = gather(&reader, &[row], &[span]).unwrap();
    match &moments[0][..] {
        [moment] => match moment.what {
            What::Event(0, [7, state, 0, _]) => state,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// By the names of the recording's own format: a preempted thread (0x100) is ready, a stopped one (T) is not.
#[test]
fn states_are_the_formats() {
    assert_eq!((state(0), state(0x100)), (0, 0));
    assert_eq!((state(1), state(4), state(0x102)), (1, 4, 2));
}
