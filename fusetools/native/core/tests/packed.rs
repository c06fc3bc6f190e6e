//! Recordings whose records are packed, each compressed record by itself: as written, and as hostile files have them.

use crate::perf_data;

use fusetools_core::events::{Ev, Role, Side};
use fusetools_core::write::{merge_with, Extras, MergeInfo};
use fusetools_core::Reader;
use fusetools_core::ScanInfo;
use perf_data::{end, frame, meaning, record, round, send, PerfData, Random, Sample};

type Found = (Vec<Ev>, Vec<Side>, ScanInfo);

fn scan(reader: &Reader) -> Found {
    let catalogue = [
        meaning("fuse:fuse_request_send", Role::Begin),
        meaning("fuse:fuse_request_end", Role::End),
    ];
    let (mut events, mut side) = (Vec::new(), Vec::new());
    let info = reader.scan(&catalogue, &mut |batch| {
        events.extend(batch.events);
        side.extend(batch.side);
    });
    (events, side, info.unwrap())
}

/// Scan, also in other chunks, which must not change the result.
fn scanned(bytes: Vec<u8>) -> Found {
    let mut reader = Reader::from_bytes(bytes).unwrap();
    let found = scan(&reader);
    for chunk in [64, 1000, 70_000] {
        reader.set_chunk(chunk);
        assert!(scan(&reader) == found, "chunks of {chunk}");
    }
    let serial = reader.records().filter(|record| record.kind == 9).count();
    assert_eq!(serial as u64, found.2.counts.iter().sum::<u64>());
    found
}

/// Return requests in rounds, and a fork now and then, which has the time of its sample id.
fn requests(count: u64) -> PerfData {
    let mut file = PerfData::fuse();
    let mut random = Random(7);
    let at = |id, time| Sample {
        id,
        tid: 9,
        time,
        ..Sample::default()
    };
    for unique in 0..count {
        let time = 1_000 + 10 * unique;
        let mut begin = at(11, time);
        begin.raw = send(43, 2 * unique, 1 + random.below(40) as u32);
        let mut finish = at(13, time + 5);
        finish.raw = end(43, 2 * unique, 0);
        file.records.push(file.events[0].sample(&begin));
        file.records.push(file.events[1].sample(&finish));
        if unique % 100 == 99 {
            file.records.push(round());
        }
    }
    file
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = format!("fusetools-packed-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn merged(name: &str, bytes: &[u8], packed: bool) -> (Vec<u8>, MergeInfo) {
    let folder = Folder::new(name);
    let [from, to] = ["from", "to"].map(|name| folder.0.join(name));
    std::fs::write(&from, bytes).unwrap();
    let extras = Extras {
        packed,
        ..Extras::default()
    };
    let info = merge_with(&[from], &to, "{\"format\": 1}", &extras).unwrap();
    (std::fs::read(&to).unwrap(), info)
}

#[test]
fn packing_changes_no_record() {
    let bytes = requests(30_000).bytes();
    let (plain, of_plain) = merged("plain", &bytes, false);
    let (packed, of_packed) = merged("packed", &bytes, true);
    assert!(
        packed.len() * 4 < plain.len(),
        "{} {}",
        packed.len(),
        plain.len()
    );
    assert_eq!(of_packed, of_plain); // also where the session is
    let expected = scanned(plain);
    assert_eq!(expected.0.len(), 60_000);
    assert!(scanned(packed.clone()) == expected);
    // And back.
    let (unpacked, _) = merged("back", &packed, false);
    assert!(scanned(unpacked) == expected);
}

#[test]
fn incompressible_records_stay_plain() {
    let mut file = PerfData::fuse();
    file.events[0].sample_type |= perf_data::CALLCHAIN;
    let mut random = Random(3);
    for time in 0..200 {
        let chain: Vec<u64> = (0..4000).map(|_| random.below(u64::MAX)).collect();
        let mut sample = Sample {
            id: 11,
            time: 1_000 + time,
            chain,
            ..Sample::default()
        };
        sample.raw = send(43, time, 1);
        file.records.push(file.events[0].sample(&sample));
    }
    let bytes = file.bytes();
    let (plain, _) = merged("odd-plain", &bytes, false);
    let (packed, _) = merged("odd", &bytes, true);
    assert!(
        packed.len() < plain.len() + 200,
        "{} {}",
        packed.len(),
        plain.len()
    );
    assert!(scanned(packed) == scanned(plain));
}

/// Scan some good records, then this compressed record, then good ones again.
fn around(odd: Vec<u8>) -> Found {
    let file = requests(100);
    let half = file.records.len() / 2;
    let data = [
        frame(&file.records[..half].concat()),
        odd,
        frame(&file.records[half..].concat()),
    ];
    scanned(file.with_data(&data.concat(), &file.features()))
}

#[test]
fn damage_ends_the_records_where_it_is() {
    let good = requests(5).records.concat();
    assert_eq!(around(frame(&good)).0.len(), 210);
    assert_eq!(around(record(81, 0, &[])).2.warnings, [""; 0]);

    let mut broken = frame(&good);
    broken[20..].fill(0xff);
    let inner = frame(&[&good[..], &frame(&good)].concat());
    let aux = frame(
        &[
            &good[..],
            &record(71, 0, &[&64u64.to_le_bytes()[..], &[0; 32]].concat()),
        ]
        .concat(),
    );
    let cut = frame(&good[..good.len() - 3]);
    let zero = frame(&[&good[..], &[0; 64]].concat());
    for (name, odd, events, what) in [
        ("broken", broken, 100, "compressed records: "),
        ("packed twice", inner, 110, "a compressed record of type 81"),
        (
            "data that follows",
            aux,
            110,
            "a compressed record of type 71",
        ),
        ("cut", cut, 109, "ends within a record"),
        ("no size", zero, 110, "a compressed record of 0 bytes"),
    ] {
        let (found, _, info) = around(odd);
        let warnings = info.warnings.join("; ");
        assert!(warnings.contains(what), "{name}: {warnings}");
        // Some records of a broken one may be whole.
        assert!(
            found.len() == events || name == "broken" && found.len() < 210,
            "{name}: {}",
            found.len()
        );
    }
}

#[test]
fn a_stream_after_whole_frames_is_unpacked_as_a_stream() {
    let file = requests(300);
    let expected = scanned(file.bytes());
    let middle = file.records.len() / 2;
    let [first, second] =
        [&file.records[..middle], &file.records[middle..]].map(|some| some.concat());
    let data = [
        frame(&first),
        perf_data::compress(&second, 300, 81).concat(),
    ];
    let found = scanned(file.with_data(&data.concat(), &file.features()));
    assert!(found == expected, "{:?}", found.2.warnings);
}

#[test]
fn many_small_bombs_do_not_blow_up() {
    let file = PerfData::fuse();
    let nothing = record(79, 0, &vec![0; 65_520]).repeat(15);
    let bomb = frame(&nothing);
    assert!(bomb.len() < 300, "{}", bomb.len());
    let data = bomb.repeat(4000); // 4 GB
    let started = std::time::Instant::now();
    let (_, _, info) = scan(&Reader::from_bytes(file.with_data(&data, &file.features())).unwrap());
    assert!(
        info.warnings[0].contains("grow without end"),
        "{:?}",
        info.warnings
    );
    assert!(started.elapsed().as_secs() < 60);
}
