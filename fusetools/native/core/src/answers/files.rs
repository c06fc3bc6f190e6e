//! Files that callers opened or read, in the order of their first request.

use std::collections::{HashMap, HashSet};

use crate::requests::named::{Known, Listener};
use crate::requests::stitch::Fate;

/// A file of a mount. `begin`: its first request, in ns on the recording's clock; `waited`: ns that callers waited for
/// its open and read requests, which may overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub connection: u64,
    pub path: String,
    pub begin: u64,
    pub waited: u64,
}

/// Files whose open or read requests succeeded. Memory grows with the files, not with the requests.
#[derive(Default)]
pub struct Files {
    seen: HashMap<(u64, String), (u64, u64)>,
    named: HashSet<(u64, u64)>,
    unnamed: HashSet<(u64, u64)>,
}

impl Files {
    /// Return the files by their first request, and the number of those whose whole path is unknown.
    pub fn finish(self) -> (Vec<File>, usize) {
        let mut files: Vec<File> = self
            .seen
            .into_iter()
            .map(|((connection, path), (begin, waited))| File {
                connection,
                path,
                begin,
                waited,
            })
            .collect();
        files.sort_by(|a, b| (a.begin, &a.path).cmp(&(b.begin, &b.path)));
        (files, self.unnamed.difference(&self.named).count())
    }
}

impl Listener for Files {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let reads = matches!(story.operation.name(), "open" | "read");
        if !reads || story.error != 0 || story.fate != Fate::Matched {
            return;
        }
        let Some(path) = known.path().filter(|path| path.whole) else {
            self.unnamed.insert((story.connection, story.nodeid));
            return;
        };
        self.named.insert((story.connection, story.nodeid));
        let duration = story.duration().unwrap_or(0);
        let waited = if story.waits { duration } else { 0 };
        let begin = story.start();
        let file = self
            .seen
            .entry((story.connection, path.text))
            .or_insert((begin, 0));
        file.0 = file.0.min(begin);
        file.1 += waited;
    }
}
