//! File formats: perf.data, trace.dat and the kernel's types.

pub mod btf;
pub mod file;
pub mod record;
pub mod ring;
pub mod tracedat;
pub mod tracepoint;
pub mod tracing;
