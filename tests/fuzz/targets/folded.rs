#![no_main]
//! Folded stacks to SVG.

#[path = "../../../flame/native/src/graph.rs"]
mod graph;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let palette = ["hot", "blue", "java", "nosuch"][how as usize & 3];
    let look = graph::Look {
        title: "t<&".into(),
        subtitle: (how & 4 == 4).then(|| "s\"]]>".into()),
        count_name: "ns".into(),
        inverted: how & 8 == 8,
        min_width: f64::from(how >> 6),
        width: if how & 16 == 16 { 1200 } else { 0 },
        colours: vec![("main".into(), (1, 2, 3))],
    };
    if let Ok(svg) = graph::svg(text, palette, look) {
        assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("<x>"), "names are escaped");
    }
});
