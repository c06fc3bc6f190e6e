//! fusetools' native core: reads and writes perf.data, pairs calls and requests. No Python in it.

pub mod elf;
pub mod error;
pub mod events;
pub mod file;
pub mod format;
pub mod reader;
pub mod record;

pub use error::Error;
pub use reader::{EventInfo, Reader, Record, ScanInfo};
