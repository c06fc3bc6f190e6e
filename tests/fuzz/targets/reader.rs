#![no_main]
//! Opens and reads arbitrary bytes in every way that the reader has, and analyses what it found.

use fusetools_core::answers::analysis::{analyse, Detail};
use fusetools_core::requests::filters::Filters;
use fusetools_core::events::{Ev, Layer, Meaning, Role, Side};
use fusetools_core::answers::tree::Tree;
use fusetools_core::format::record;
use fusetools_core::Reader;
use fusetools_core::ScanInfo;
use libfuzzer_sys::fuzz_target;

type Found = (Vec<Ev>, Vec<Side>, ScanInfo);

const ROLES: [Role; 18] = [
    Role::Begin,
    Role::End,
    Role::Switch,
    Role::SysExit,
    Role::Entry,
    Role::Return,
    Role::Sent,
    Role::Reply,
    Role::Inode,
    Role::Name,
    Role::Asked,
    Role::About,
    Role::Sized,
    Role::Answered,
    Role::Forgotten,
    Role::SysEnter,
    Role::Waking,
    Role::Stack,
];

/// Return a meaning for each event: its own for function_graph's, one role after the other for others, from `turn` on.
fn catalogue(reader: &Reader, turn: usize) -> Vec<Meaning> {
    let roles = ROLES.iter().cycle().skip(turn % ROLES.len());
    reader
        .events()
        .iter()
        .zip(roles)
        .map(|(event, role)| Meaning {
            event: event.name.clone(),
            layer: Layer::Kernel,
            function: String::new(),
            operation: String::new(),
            role: match event.name.as_str() {
                "ftrace:funcgraph_entry" => Role::GraphEntry,
                "ftrace:funcgraph_exit" => Role::GraphExit,
                _ => *role,
            },
        })
        .take(20)
        .collect()
}

fn scan(reader: &Reader, catalogue: &[Meaning]) -> Found {
    let (mut events, mut side) = (Vec::new(), Vec::new());
    let info = reader.scan(catalogue, &mut |batch| {
        events.extend(batch.events);
        side.extend(batch.side);
    });
    (events, side, info.expect("a scan salvages what there is"))
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::from_bytes(data.to_vec()) else { return };
    let catalogue = catalogue(&reader, data.len());
    let found = scan(&reader, &catalogue);
    let told = |what: &str| found.2.warnings.iter().any(|warning| warning.contains(what));
    if !told("out of time order") {
        assert!(found.0.windows(2).all(|pair| pair[0].time <= pair[1].time));
    }
    let _ = (reader.session(), reader.arch(), reader.os_release(), reader.hostname(), reader.perf_version());
    let mut samples = 0;
    for item in reader.records() {
        samples += u64::from(item.kind == record::SAMPLE && item.event.is_some());
        if let Some(index) = item.event {
            let event = &reader.events()[index];
            let raw = reader.attrs()[index].layout.raw(&item.bytes).unwrap_or(&[]);
            for field in event.format.iter().flat_map(|format| &format.fields) {
                let _ = field.value(raw);
            }
        }
    }
    let counted: u64 = found.2.counts.iter().sum();
    assert!(counted <= samples);
    if !told("contradict") {
        assert_eq!(counted, samples);
    }
    let (_, answer) = analyse(&reader, &catalogue, Filters::default(), Detail::Calls).expect("as the scan");
    if let Some(tree) = answer.tree {
        let calls: u64 = tree.nodes.iter().map(|node| node.calls).sum();
        assert!(calls <= counted);
        assert!(tree.nodes.iter().enumerate().all(|(at, node)| node.parent == Tree::ROOT || (node.parent as usize) < at));
    }
    // Handing chunks to threads is slow: do so only sometimes.
    if data.len() % 16 == 0 {
        reader.set_chunk(256);
        assert!(scan(&reader, &catalogue) == found);
    }
});
