//! Errors with an input file, one line each. Nothing here panics.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum Error {
    /// Operation that the operating system refused.
    Io { path: PathBuf, source: io::Error },
    /// Input that is not a perf.data file.
    NotPerfData { why: String },
    /// Recording of a big-endian machine.
    BigEndian,
    /// A perf.data or trace.dat of an unsupported kind.
    Unsupported { why: String },
    /// Recordings that do not belong together, or cannot be in one file.
    Mismatch { why: String },
    /// Recordings of different hosts.
    OtherHost { why: String },
    /// List of symbols that is not the recorded kernel's.
    Symbols { path: PathBuf, why: String },
    /// A perf.data whose own tables contradict each other. `offset` is in bytes from its start.
    Damaged { what: String, offset: u64 },
}

impl Error {
    pub(crate) fn mismatch(why: impl Into<String>) -> Error {
        Error::Mismatch { why: why.into() }
    }

    pub(crate) fn damaged(what: impl Into<String>, offset: usize) -> Error {
        Error::Damaged {
            what: what.into(),
            offset: offset as u64,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::NotPerfData { why } => write!(f, "not a perf.data file: {why}"),
            Error::BigEndian => write!(
                f,
                "recorded on a big-endian machine: only little-endian recordings are read"
            ),
            Error::Unsupported { why } => write!(f, "cannot read this kind of file: {why}"),
            Error::Mismatch { why } | Error::OtherHost { why } => {
                write!(f, "cannot be merged: {why}")
            }
            Error::Symbols { path, why } => write!(f, "{}: {why}", path.display()),
            Error::Damaged { what, offset } => write!(f, "damaged at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
