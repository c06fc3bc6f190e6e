//! All tests of the core in one program, which is built and linked once.

mod perf_data;
mod trace_data;

mod analysis;
mod bundles;
mod copied_stacks;
mod daemons;
mod flame;
mod moments;
mod now;
mod packed;
mod prologue;
mod reader;
mod requests;
mod ring;
mod stitch;
mod tracedat;
mod waits;
mod window;
