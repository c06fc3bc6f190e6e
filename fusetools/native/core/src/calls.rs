//! Pairs a task's function entries with their returns.

/// The kernel follows no more nested uretprobes than this (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c): deeper
/// entries are some whose return was lost.
const DEEPEST: usize = 64;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub function: u32,
    /// ns
    pub start: u64,
    pub unique: u64,
    /// How often the recorder had dropped events by then.
    pub losses: u32,
    /// The answer wants it (filters).
    pub counted: bool,
    /// Its request's row in the columns.
    pub row: u32,
}

/// The open calls of one task in one layer, innermost last.
#[derive(Default, Debug)]
pub struct Stack(Vec<Open>);

impl Stack {
    /// Calls whose return will not be seen go to `lost`.
    pub fn enter(&mut self, call: Open, mut lost: impl FnMut(Open)) {
        if self.0.len() == DEEPEST {
            lost(self.0.remove(0));
        }
        self.0.push(call);
    }

    /// The innermost open call of `function`. Whatever was entered after it cannot return any more.
    pub fn leave(&mut self, function: u32, mut lost: impl FnMut(Open)) -> Option<Open> {
        let at = self.0.iter().rposition(|call| call.function == function)?;
        self.0.drain(at + 1..).for_each(&mut lost);
        self.0.pop()
    }

    /// The task has ended.
    pub fn abandon(&mut self, lost: impl FnMut(Open)) {
        self.0.drain(..).for_each(lost);
    }
}
