//! Probes that share an event while they are recorded; in the recording each has its own.

use crate::perf_data;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fusetools_core::reader::Reader;
use fusetools_core::write::{merge_with, Bundle, Extras, MergeInfo};
use perf_data::{Event, PerfData, Sample, ID, USUAL};

const CALLS: &str = "name: bundle_1\nID: 600\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:u64 unique;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:u16 probe;\toffset:16;\tsize:2;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:18;\tsize:4;\tsigned:1;\n\
    \tfield:u64 sizes;\toffset:22;\tsize:8;\tsigned:0;\n\
    \tfield:u64 size;\toffset:30;\tsize:8;\tsigned:0;\n\
    \nprint fmt: \"(%lx) unique=%Lu probe=%u name=\\\"%s\\\" sizes=%Lu size=%Lu\", REC->__probe_ip, REC->unique, REC->probe, \
    __get_str(name), REC->sizes, REC->size\n";

fn raw(unique: u64, probe: u16) -> Vec<u8> {
    let mut raw = vec![0; 38];
    raw[..2].copy_from_slice(&600u16.to_le_bytes());
    raw[8..16].copy_from_slice(&unique.to_le_bytes());
    raw[16..18].copy_from_slice(&probe.to_le_bytes());
    raw
}

/// Return (pid, unique, number of the probe) of each sample as a recording, then a LOST record that names the bundle.
fn recording(samples: &[(i32, u64, u16)], sample_type: u64) -> PerfData {
    let mut data = PerfData::fuse();
    let mut calls = Event::new("fuse_daemon:bundle_1", 600, &[21, 22]);
    calls.sample_type = sample_type;
    data.events
        .iter_mut()
        .for_each(|event| event.sample_type = sample_type);
    data.formats.push(("fuse_daemon", CALLS));
    for (n, (pid, unique, probe)) in samples.iter().enumerate() {
        data.records.push(calls.sample(&Sample {
            id: 21 + n as u64 % 2,
            pid: *pid,
            tid: *pid,
            time: 100 + n as u64,
            raw: raw(*unique, *probe),
            ..Sample::default()
        }));
    }
    let last = Sample {
        id: 22,
        pid: 7,
        tid: 7,
        time: 1000,
        ..Sample::default()
    };
    let lost = [22u64, 5].map(u64::to_le_bytes).concat();
    data.records.push(calls.other(2, 0, &lost, &last));
    data.events.push(calls);
    data
}

/// Folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("fusetools-bundles-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn merged(name: &str, data: &PerfData, daemons: Option<&[i32]>) -> (Folder, PathBuf, MergeInfo) {
    let folder = Folder::new(name);
    let (from, to) = (folder.0.join("raw"), folder.0.join("perf.data"));
    std::fs::write(&from, data.bytes()).unwrap();
    let probes = [
        ("lookup", vec!["size", "sizes"]),
        ("read", vec![]),
        ("open", vec!["size"]),
    ];
    let bundle = Bundle {
        event: "fuse_daemon:bundle_1".into(),
        field: "probe".into(),
        probes: (1..)
            .zip(probes)
            .map(|(number, (name, absent))| {
                let absent = absent.into_iter().map(String::from).collect();
                (number, format!("fuse_daemon:x_{name}"), absent)
            })
            .collect(),
    };
    let extras = Extras {
        bundles: vec![bundle],
        daemons: daemons.map(<[i32]>::to_vec),
        ..Extras::default()
    };
    let info = merge_with(&[from], &to, "{\"format\": 1}", &extras).unwrap();
    (folder, to, info)
}

/// Return the `unique` of each sample, by event.
fn calls(path: &Path) -> BTreeMap<String, Vec<u64>> {
    let reader = Reader::open(path).unwrap();
    assert!(reader.warnings().is_empty(), "{:?}", reader.warnings());
    let mut by_event = BTreeMap::new();
    for (event, info) in reader.events().iter().enumerate() {
        if !info.name.starts_with("fuse_daemon:") {
            continue;
        }
        let format = info.format.as_ref().unwrap();
        let (system, name) = info.name.split_once(':').unwrap();
        assert_eq!((&format.system[..], &format.name[..]), (system, name));
        let layout = &reader.attrs()[event].layout;
        let own: &mut Vec<u64> = by_event.entry(info.name.clone()).or_default();
        for record in reader
            .records()
            .filter(|r| r.kind == 9 && r.event == Some(event))
        {
            let raw = layout.raw(&record.bytes).unwrap();
            assert_eq!(u16::from_le_bytes([raw[0], raw[1]]) as u64, format.id);
            own.push(u64::from_le_bytes(raw[8..16].try_into().unwrap()));
        }
    }
    by_event
}

fn expected(pairs: &[(&str, &[u64])]) -> BTreeMap<String, Vec<u64>> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, of)| (format!("fuse_daemon:x_{name}"), of.to_vec()))
        .collect()
}

#[test]
fn each_probe_has_an_event_of_its_own() {
    let samples = [(7, 10, 1), (7, 11, 2), (8, 12, 1), (7, 13, 2), (7, 14, 2)];
    for (name, sample_type) in [("usual", USUAL), ("both-ids", USUAL | ID)] {
        let (_folder, path, info) = merged(name, &recording(&samples, sample_type), None);
        let all = expected(&[
            ("lookup", &[10, 12]),
            ("read", &[11, 13, 14]),
            ("open", &[]),
        ]);
        assert_eq!(calls(&path), all);
        assert!(
            info.warnings.is_empty() && info.left_out.is_empty(),
            "{info:?}"
        );
        // The record of a loss names the bundle, and stays.
        let reader = Reader::open(&path).unwrap();
        let lost = reader.records().find(|record| record.kind == 2).unwrap();
        assert!(lost.event.is_some());
    }
}

/// A field that only others of the bundle have is a constant in a probe's samples, and must not look like a value.
#[test]
fn a_probe_has_only_the_fields_of_its_own() {
    let (_folder, path, _) = merged("fields", &recording(&[(7, 10, 1)], USUAL), None);
    let reader = Reader::open(&path).unwrap();
    let all = ["unique", "probe", "name", "sizes", "size"];
    let start = "\"(%lx) unique=%Lu probe=%u name=\\\"%s\\\"";
    for (name, fields, printed) in [
        ("lookup", &all[..3], format!("{start}\", REC->__probe_ip, REC->unique, REC->probe, __get_str(name)")),
        ("read", &all[..], format!("{start} sizes=%Lu size=%Lu\", REC->__probe_ip, REC->unique, REC->probe, __get_str(name), REC->sizes, REC->size")),
        ("open", &all[..4], format!("{start} sizes=%Lu\", REC->__probe_ip, REC->unique, REC->probe, __get_str(name), REC->sizes")),
    ] {
        let event = format!("fuse_daemon:x_{name}");
        let info = reader.events().iter().find(|info| info.name == event).unwrap();
        let format = info.format.as_ref().unwrap();
        let has = all.into_iter().filter(|field| format.field(field).is_some());
        assert_eq!(has.collect::<Vec<_>>(), fields, "{name}");
        let text = std::fs::read(&path).unwrap();
        let of_event = format!("name: x_{name}\n");
        let at = text.windows(of_event.len()).position(|w| w == of_event.as_bytes()).unwrap();
        let text = String::from_utf8_lossy(&text[at..at + 1000]).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("print fmt: ")).unwrap();
        assert_eq!(line, printed);
    }
}

#[test]
fn other_daemons_samples_are_counted_and_left_out() {
    let samples = [(7, 10, 1), (8, 11, 1), (8, 12, 2), (9, 13, 1)];
    let (_folder, path, info) = merged("others", &recording(&samples, USUAL), Some(&[7, 6]));
    assert_eq!(
        calls(&path),
        expected(&[("lookup", &[10]), ("read", &[]), ("open", &[])])
    );
    let left_out = [("lookup", 2), ("read", 1)];
    let left_out = left_out.map(|(name, n)| (format!("fuse_daemon:x_{name}"), n));
    assert_eq!(info.left_out, left_out);
}

#[test]
fn a_number_of_no_probe_is_left_out_with_a_warning() {
    let (_folder, path, info) = merged(
        "unknown",
        &recording(&[(7, 10, 1), (7, 11, 9)], USUAL),
        None,
    );
    assert_eq!(calls(&path)["fuse_daemon:x_lookup"], [10]);
    assert!(
        info.warnings.iter().any(|line| line.contains("left out")),
        "{info:?}"
    );
}

#[test]
fn the_session_can_be_written_anew_in_its_place() {
    let (_folder, path, info) = merged("session", &recording(&[(7, 10, 1)], USUAL), None);
    assert_eq!(info.session_at.len(), 1);
    let at = info.session_at[0].start as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[at..at + 13], b"{\"format\": 1}");
    bytes[at..at + 13].copy_from_slice(b"{\"format\":2}\0");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(
        Reader::open(&path).unwrap().session().unwrap(),
        "{\"format\":2}"
    );
}

#[test]
fn a_long_session_takes_several_samples() {
    let folder = Folder::new("long");
    let (from, to) = (folder.0.join("raw"), folder.0.join("perf.data"));
    std::fs::write(&from, recording(&[(7, 10, 1)], USUAL).bytes()).unwrap();
    let json = |n: usize| format!("{{\"text\": \"{}\"}}", "x\u{e4}".repeat(n));
    for n in [1, 19_990, 20_000, 20_010, 100_000] {
        let info =
            fusetools_core::write::merge(std::slice::from_ref(&from), &to, &json(n)).unwrap();
        let size = json(n).len();
        assert_eq!(info.session_at.len(), size.div_ceil(60_000));
        let places = info.session_at.iter().map(|place| place.end - place.start);
        assert_eq!(places.sum::<u64>(), size as u64);
        let reader = Reader::open(&to).unwrap();
        assert_eq!(reader.session().unwrap(), json(n));
        assert!(reader.warnings().is_empty());
        // It stays if merged again.
        let again = folder.0.join("again");
        fusetools_core::write::merge(std::slice::from_ref(&to), &again, "").unwrap();
        assert_eq!(Reader::open(&again).unwrap().session().unwrap(), json(n));
    }
    assert!(fusetools_core::write::merge(&[from], &to, &json(6_000_000)).is_err());
}
