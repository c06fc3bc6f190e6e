//! fusetools' native core: reads and writes perf.data, pairs calls and requests. No Python in it.

pub mod analysis;
mod calls;
pub mod elf;
pub mod error;
pub mod events;
pub mod export;
pub mod file;
pub mod flame;
pub mod format;
pub mod frames;
pub mod hist;
pub mod moments;
pub mod named;
pub mod names;
pub mod offcpu;
pub mod operations;
pub mod outcomes;
pub mod perfetto;
pub mod programs;
pub mod queue;
pub mod reader;
pub mod record;
mod requests;
pub mod slowest;
pub mod spaces;
pub mod stacks;
pub mod stages;
pub mod stitch;
pub mod symbols;
pub mod tracedat;
pub mod tracing;
pub mod tree;
pub mod unwind;
pub mod write;

pub use error::Error;
pub use reader::{EventInfo, Reader, Record, ScanInfo};
