//! Which single requests are selected.

use crate::names::Path;
use crate::stitch::Story;

/// Which requests are printed.
pub struct Wanted {
    /// A set of bits.
    pub operations: u64,
    /// Minimum duration, ns.
    pub least: u64,
    /// Tests the path below the mount, with the connection.
    pub path: Option<PathFilter>,
}

pub type PathFilter = Box<dyn Fn(u64, &str, bool) -> bool + Send + Sync>;

impl Wanted {
    /// With any path and duration.
    pub fn of(operations: u64) -> Wanted {
        Wanted {
            operations,
            least: 0,
            path: None,
        }
    }

    /// Whether it is wanted; None: it depends on its path, which is not known.
    pub fn is(
        &self,
        story: &Story,
        duration: u64,
        path: impl FnOnce() -> Option<Path>,
    ) -> Option<bool> {
        if self.operations & story.operation.bit() == 0 || duration < self.least {
            return Some(false);
        }
        let Some(filter) = &self.path else {
            return Some(true);
        };
        let path = path()?;
        let fits = filter(story.connection, &path.text, path.whole);
        // What is missing of it could fit.
        (fits || path.whole).then_some(fits)
    }
}
