//! Pairs a task's function entries with their returns.

use crate::events::ABSENT;

/// The kernel follows no more nested uretprobes than this (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c): of more open
/// entries, some have lost their return.
const DEEPEST: usize = 64;
/// function_graph's return stack is a page (SHADOW_STACK_SIZE, kernel/trace/fgraph.c), before Linux 6.11 it had 50 places.
const DEEPEST_GRAPH: usize = 200;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub function: u32,
    /// ns
    pub start: u64,
    /// Its thread has begun another request meanwhile: its return was lost.
    pub overtaken: bool,
    /// When it entered the system call that answers its request; ABSENT: it has not.
    pub reply: u64,
    /// Number of its thread's own events at its start and at its reply; unknown unless durations are corrected.
    pub events: u32,
    pub reply_events: u32,
    pub unique: u64,
    /// How often the recorder had dropped events by then.
    pub losses: u32,
    /// The filters select it.
    pub counted: bool,
    /// Of a callback: its request's `Story::id`, 0 where not known.
    pub request: u32,
    /// The rest is for the kernel layer. The depth that the kernel's tracer reports.
    pub depth: u64,
    /// Of the selected requests that began in it.
    pub operations: u64,
    /// ns that the calls within it took.
    pub inner: u64,
    /// Its place in the tree of calls, and in the list of single ones.
    pub node: u32,
    pub single: u32,
    /// The outermost call around it is selected.
    pub whole: bool,
    pub outermost: bool,
}

impl Open {
    /// ns from its start to its reply.
    pub fn replied(&self) -> Option<u64> {
        self.reply
            .checked_sub(self.start)
            .filter(|_| self.reply != ABSENT)
    }
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
        for open in &mut self.0 {
            open.overtaken |= open.unique != call.unique;
        }
        self.0.push(call);
    }

    /// The innermost open call of `function`. Whatever was entered after it cannot return any more.
    pub fn leave(&mut self, function: u32, mut lost: impl FnMut(Open)) -> Option<Open> {
        let at = self.0.iter().rposition(|call| call.function == function)?;
        self.0.drain(at + 1..).for_each(&mut lost);
        self.0.pop()
    }

    /// Makes room for a call at this depth: what is open there or deeper cannot return any more.
    pub fn cut(&mut self, depth: u64, mut lost: impl FnMut(Open)) {
        while let Some(call) = self.0.last().filter(|call| call.depth >= depth) {
            lost(*call);
            self.0.pop();
        }
        if self.0.len() >= DEEPEST_GRAPH {
            lost(self.0.remove(0));
        }
    }

    pub fn push(&mut self, call: Open) {
        self.0.push(call);
    }

    /// The open call of `function` at this depth; what is deeper cannot return any more.
    pub fn leave_depth(
        &mut self,
        function: u32,
        depth: u64,
        mut lost: impl FnMut(Open),
    ) -> Option<Open> {
        while let Some(call) = self.0.last().filter(|call| call.depth > depth) {
            lost(*call);
            self.0.pop();
        }
        let call = self.0.last().filter(|call| call.depth == depth)?;
        if call.function == function {
            return self.0.pop();
        }
        lost(*call);
        self.0.pop();
        None
    }

    pub fn last(&self) -> Option<&Open> {
        self.0.last()
    }

    pub fn last_mut(&mut self) -> Option<&mut Open> {
        self.0.last_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Open> {
        self.0.iter_mut()
    }

    /// The task has ended.
    pub fn abandon(&mut self, lost: impl FnMut(Open)) {
        self.0.drain(..).for_each(lost);
    }
}
