//! Writes small recordings of every kind, for the fuzzer to begin with: `seeds DIRECTORY`.

#[path = "../../../fusetools/native/core/tests/perf_data/mod.rs"]
mod perf_data;

use perf_data::*;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "corpus/reader".into());
    std::fs::create_dir_all(&directory)?;
    let mut number = 0;
    let mut write = |bytes: Vec<u8>| {
        number += 1;
        std::fs::write(format!("{directory}/seed-{number:03}"), bytes)
    };
    let kinds = [
        USUAL,
        USUAL | CALLCHAIN,
        USUAL | READ | CALLCHAIN | BRANCH_STACK,
        USUAL & !IDENTIFIER | ID | STREAM_ID,
        TID | TIME | RAW | ID,
    ];
    for (turn, sample_type) in kinds.into_iter().enumerate() {
        let mut file = PerfData::fuse();
        for event in &mut file.events {
            event.sample_type = sample_type;
            event.read_format = [0, 31, 8, 4, 24][turn];
            event.size = [128, 64, 112, 136, 96][turn];
        }
        let event = file.events[0].clone();
        let at = |id, time| Sample { id, time, pid: 7, tid: 8, cpu: 1, chain: vec![1, 2, 3], members: 2, ..Sample::default() };
        file.records.push(event.other(3, 0, &[words(&[7, 8]), b"find\0\0\0\0".to_vec()].concat(), &at(0, 0)));
        file.records.push(file.events[2].sample(&Sample { raw: session("{\"format\": 1}"), ..at(15, 900) }));
        for n in 0..6u64 {
            file.records.push(file.events[0].sample(&Sample { raw: send(45, n, 1), ..at(11, 1000 + 10 * n) }));
            file.records.push(file.events[1].sample(&Sample { raw: end(45, n, -2), ..at(13, 1005 + 9 * n) }));
            file.records.push(event.other(14, 1 << 13, &[], &at(12, 1001 + 10 * n)));
            if n % 2 == 0 {
                file.records.push(round());
            }
        }
        let task = words(&[30, 29, 31, 28, 1040, 0]);
        file.records.push(event.other(7, 0, &task, &at(11, 1040)));
        file.records.push(event.other(4, 0, &task, &at(11, 1050)));
        file.records.push(event.other(2, 0, &words(&[11, 0, 17, 0]), &at(11, 1055)));
        file.records.push(event.other(13, 0, &words(&[19, 0]), &at(11, 1056)));
        file.records.push(event.other(5, 0, &words(&[90, 0, 11, 0, 0, 0]), &at(11, 1057)));
        let packed = compress(&file.data(), 500, 81 + 2 * (turn as u32 % 2)).concat();
        let whole = file.bytes();
        let mut killed = whole.clone();
        killed[48..56].fill(0);
        write(whole)?;
        write(killed)?;
        write(file.pipe())?;
        write(file.with_data(&packed, &file.features()))?;
        write(file.pipe_with(&packed))?;
    }
    println!("{number} seeds in {directory}");
    Ok(())
}
