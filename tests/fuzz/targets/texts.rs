#![no_main]
//! Texts in recordings: formats of events, symbols of the kernel and of programs.

use std::borrow::Cow;

use fusetools_core::format::tracepoint::Format;
use fusetools_core::programs::functions::Programs;
use fusetools_core::programs::spaces::MappedFile;
use fusetools_core::programs::symbols::Kernel;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for long in [4, 8] {
        if let Some(format) = Format::parse("fuse", &text, long) {
            for field in &format.fields {
                let _ = (field.value(data), format.flags(&field.name));
            }
        }
    }
    if let Some(kernel) = Kernel::new(Cow::Borrowed(data)) {
        let addresses = [0, 0x1000, 0xffff_ffff_8100_0000, u64::MAX];
        for address in addresses {
            let _ = kernel.name(address);
        }
        let again = kernel.extract(addresses.into_iter());
        if let Some(kernel) = Kernel::new(Cow::Owned(again)) {
            let _ = (kernel.address("fuse_lookup"), kernel.name(0x1000));
        }
    }
    let mut programs = Programs::default();
    programs.read(data);
    let lines = programs.lines();
    let mut again = Programs::default();
    again.read(&lines);
    assert_eq!(again.lines(), lines);
    let file = MappedFile { path: "/x".into(), build_id: vec![0xaa] };
    let _ = programs.table(&file).map(|table| table.name(1).map(str::to_owned));
});
