//! fusetools' native core: reads and writes perf.data, pairs calls and requests. No Python in it.

pub mod answers;
pub mod catalogue;
pub mod cost;
pub mod error;
pub mod events;
pub mod format;
pub mod input;
pub mod operations;
pub mod programs;
pub mod reader;
pub mod requests;
mod threads;
pub mod write;

pub use error::Error;
pub use reader::{EventInfo, Reader, Record, ScanInfo};
