//! Answers: one module per question.

pub mod analysis;
pub mod cache;
pub(crate) mod calls;
pub mod daemons;
pub mod export;
pub mod files;
pub mod flame;
pub mod groups;
pub mod heat;
pub mod hist;
pub mod metrics;
pub mod now;
pub mod offcpu;
pub mod outcomes;
pub mod perfetto;
pub mod queue;
pub mod replay;
pub(crate) mod rows;
pub mod slowest;
pub mod stages;
pub mod starts;
pub mod tables;
pub mod told;
pub mod tree;
pub mod whatif;
pub mod why;
