//! Selection of single requests.

use crate::operations::Operations;
use crate::requests::names::Path;
use crate::requests::stitch::{MountCall, Story};

/// Selection of the requests to print.
pub struct Wanted {
    pub operations: Operations,
    /// Minimum duration, ns.
    pub least: u64,
    /// Test of (connection, path below the mount, whether the path is complete).
    pub path: Option<PathFilter>,
}

pub type PathFilter = Box<dyn Fn(u64, &str, bool) -> bool + Send + Sync>;

impl Wanted {
    /// Select these operations, with any path and duration.
    pub fn of(operations: Operations) -> Wanted {
        Wanted {
            operations,
            least: 0,
            path: None,
        }
    }

    /// Return whether a system call is wanted, by its operation and its time outside of requests. Its path is unknown.
    pub fn is_call(&self, call: &MountCall, rest: u64) -> bool {
        self.path.is_none() && self.operations.has(call.operation) && rest >= self.least
    }

    /// Return whether a request is wanted. None: it depends on its path, which is unknown.
    pub fn is(
        &self,
        story: &Story,
        duration: u64,
        path: impl FnOnce() -> Option<Path>,
    ) -> Option<bool> {
        if !self.operations.has(story.operation) || duration < self.least {
            return Some(false);
        }
        let Some(filter) = &self.path else {
            return Some(true);
        };
        let path = path()?;
        let fits = filter(story.connection, &path.text, path.whole);
        // The missing part of the path could match.
        (fits || path.whole).then_some(fits)
    }
}
