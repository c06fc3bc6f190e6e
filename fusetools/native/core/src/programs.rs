//! Programs in a recording: address spaces, symbols, stacks.

pub(crate) mod compat;
pub mod elf;
pub mod files;
pub mod frames;
pub mod functions;
pub(crate) mod generated;
pub(crate) mod gopclntab;
pub(crate) mod handlers;
pub mod live;
pub mod prologue;
pub mod spaces;
pub mod stacks;
pub mod starts;
pub mod symbols;
pub mod unwind;
