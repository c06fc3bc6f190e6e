#![no_main]
//! A perf.data of random events and a trace.dat, perhaps damaged, merged; the output is read.

mod common;

use std::path::PathBuf;
use std::sync::LazyLock;

use common::*;
use fusetools_core::programs::files::Files;
use fusetools_core::write::{merge_with, Bundle, Extras};
use fusetools_core::format::record;
use fusetools_core::Reader;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Folder in memory.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let own = || format!("/dev/shm/fusetools-fuzz-{}", std::process::id());
    let folder = PathBuf::from(std::env::var("FUSETOOLS_FUZZ_MEMORY").unwrap_or_else(|_| own()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
});

fn samples(reader: &Reader) -> usize {
    let session = |event: Option<usize>| event.is_some_and(|at| reader.events()[at].name == "fusetools:session");
    reader.records().filter(|item| item.kind == record::SAMPLE && !session(item.event)).count()
}

/// Return an event that stands for two others.
fn bundle() -> Bundle {
    let probes = ["a", "b"].map(|name| format!("fuse_daemon:{name}")).into_iter().zip(0..);
    let probes = probes.map(|(name, number)| (number, name, vec!["error".to_owned()])).collect();
    Bundle { event: "fuse_daemon:fuse_reply_err".into(), field: "unique".into(), probes }
}

fn run(mut from: Unstructured) -> Result<()> {
    let how: u8 = from.arbitrary()?;
    let mut tail = Unstructured::new(from.bytes(24.min(from.len()))?);
    let file = recording(&mut from, &SMALL)?;
    let mut perf = bytes(&file, &mut from)?;
    let damaged = how & 1 == 1 && damage(&mut perf, &mut tail)?;
    let made = Reader::from_bytes(perf.clone()).map(|reader| samples(&reader));
    let [first, second, output] = ["a", "b", "c"].map(|name| FOLDER.join(name));
    std::fs::write(&first, perf).expect("memory");
    let mut inputs = vec![first];
    if how & 130 == 130 {
        let mut dat = trace_data::everything();
        if how & 1 == 1 {
            damage(&mut dat, &mut tail)?;
        }
        std::fs::write(&second, dat).expect("memory");
        inputs.push(second);
    }
    let extras = Extras {
        files: (how & 4 == 4).then(|| Files { root: "/nosuch".into(), ..Files::default() }),
        daemons: (how & 8 == 8).then(|| vec![0, 1]),
        bundles: if how & 64 == 64 { vec![bundle()] } else { vec![] },
        scope: (how & 16 == 16).then(|| vec![2]),
        packed: how & 2 == 2,
        ..Extras::default()
    };
    let session = if how & 32 == 32 { "{\"format\": 1}" } else { "" };
    if merge_with(&inputs, &output, session, &extras).is_ok() {
        let reader = Reader::open(&output).expect("what is written can be read");
        let all = how & (4 | 8 | 16 | 64) == 0 && inputs.len() == 1;
        if let (false, true, Ok(made)) = (damaged, all, made) {
            assert_eq!(samples(&reader), made);
        }
        let mut last = 0;
        for item in reader.records() {
            let time = item.time.unwrap_or(last);
            assert!(time >= last, "in time order");
            last = time;
        }
        answers(&reader, &catalogue(), how);
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Unstructured::new(data));
});
