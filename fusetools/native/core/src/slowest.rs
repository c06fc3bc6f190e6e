//! The slowest requests, and those of a number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::named::{path, Known, Listener};
use crate::names::{Names, Path, Told};
use crate::stitch::{Cut, Mark, Story};
use crate::wanted::Wanted;

/// A request that is kept, with what is known of it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub story: Story,
    pub told: Told,
    pub path: Option<Path>,
    pub inode: Option<u64>,
    pub comm: String,
    /// ns that its caller waited for it; of one that nobody waits for, from its begin to its end. Of one without an
    /// answer up to when it was over.
    pub duration: u64,
}

impl Kept {
    /// What names told only after the request.
    fn learn(&mut self, names: &Names) {
        if !self.path.as_ref().is_some_and(|path| path.whole) {
            self.path = path(names, &self.story, &self.told);
        }
    }

    pub(crate) fn new(known: &Known<'_>, duration: u64) -> Kept {
        Kept {
            story: known.story.clone(),
            told: known.told.clone(),
            path: known.path(),
            inode: known.inode(),
            comm: known.comm().to_owned(),
            duration,
        }
    }
}

/// Keeps the `most` slowest of those in `wanted`; the earlier ones of equally slow ones.
///
/// Where it wants certain paths, names that are told only later may be needed: see `again`.
pub struct Slowest {
    most: usize,
    wanted: Wanted,
    /// What names told at the recording's end.
    learned: Option<Names>,
    /// Requests that were not looked at, as their paths are not known.
    pub pathless: u64,
    /// Those of which it was not known when they ended whether they were wanted.
    undecided: bool,
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>, u32)>>,
    kept: Vec<Kept>,
}

impl Slowest {
    pub fn new(most: usize, wanted: Wanted) -> Slowest {
        Slowest {
            most,
            wanted,
            learned: None,
            pathless: 0,
            undecided: false,
            heap: BinaryHeap::new(),
            kept: Vec::new(),
        }
    }

    /// For another pass over the recording, with the names that it told in the end, if that is needed.
    pub fn again(&mut self) -> bool {
        let again = self.undecided && self.learned.is_some();
        if again {
            self.heap.clear();
            self.kept.clear();
            (self.pathless, self.undecided) = (0, false);
        }
        again
    }

    /// Slowest first.
    pub fn finish(self) -> Vec<Kept> {
        let mut kept = self.kept;
        kept.sort_by_key(|one| (Reverse(one.duration), one.story.start()));
        kept
    }
}

impl Listener for Slowest {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        let Some(begin) = story.at(Mark::Begin).filter(|_| story.counts()) else {
            return;
        };
        if self.most == 0 {
            return;
        }
        let duration = Cut::new(story).total;
        let mut whole = true;
        let fits = self.wanted.is(story, duration, || {
            let now = known.path();
            whole = now.as_ref().is_some_and(|path| path.whole);
            match &self.learned {
                Some(names) if !whole => path(names, story, known.told),
                _ => now,
            }
        });
        self.undecided |= !whole && self.learned.is_none();
        self.pathless += u64::from(fits.is_none());
        if fits != Some(true) {
            return;
        }
        let rank = |place| Reverse((duration, Reverse(begin), place));
        if self.kept.len() < self.most {
            self.heap.push(rank(self.kept.len() as u32));
            self.kept.push(Kept::new(known, duration));
            return;
        }
        let Some(Reverse((least, earlier, place))) = self.heap.peek().copied() else {
            return;
        };
        if (duration, Reverse(begin)) > (least, earlier) {
            self.heap.pop();
            self.heap.push(rank(place));
            self.kept[place as usize] = Kept::new(known, duration);
        }
    }

    fn end(&mut self, names: &Names) {
        self.kept.iter_mut().for_each(|kept| kept.learn(names));
        if self.undecided {
            self.learned = Some(names.clone());
        }
    }
}

/// Keeps the requests of a number, at most `MOST` of them.
pub struct Numbered {
    unique: u64,
    pub kept: Vec<Kept>,
}

const MOST: usize = 64;

impl Numbered {
    pub fn new(unique: u64) -> Numbered {
        Numbered {
            unique,
            kept: Vec::new(),
        }
    }
}

impl Listener for Numbered {
    fn story(&mut self, known: &Known<'_>) {
        let story = known.story;
        if story.unique == self.unique && self.kept.len() < MOST {
            let duration = match story.counts() {
                true => Cut::new(story).total,
                false => 0,
            };
            self.kept.push(Kept::new(known, duration));
        }
    }

    fn end(&mut self, names: &Names) {
        self.kept.iter_mut().for_each(|kept| kept.learn(names));
    }
}
