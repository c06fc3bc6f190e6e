//! Requests: one state machine for each, from the system call to its end.

pub mod filters;
pub(crate) mod in_flight;
pub mod moments;
pub mod named;
pub mod names;
pub mod peers;
pub(crate) mod serves;
pub mod stitch;
pub mod wanted;
