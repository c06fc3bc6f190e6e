//! fusetools' native core: reads and writes perf.data, pairs calls and requests. No Python in it.

pub mod elf;
pub mod events;
