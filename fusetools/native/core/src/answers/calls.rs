//! Pairs a task's function entries with their returns.

use crate::events::ABSENT;

/// Maximum depth of nested uretprobes in the kernel (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c). With more open
/// entries, some have lost their return.
const DEEPEST: usize = 64;
/// Maximum depth in function_graph. Its return stack is a page (SHADOW_STACK_SIZE, kernel/trace/fgraph.c); before Linux
/// 6.11 it had 50 entries.
const DEEPEST_GRAPH: usize = 200;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub function: u32,
    /// Start in ns.
    pub start: u64,
    /// The thread has begun another request meanwhile: the call's return was lost.
    pub overtaken: bool,
    /// Time when the thread entered the system call that answers the request; ABSENT before that.
    pub reply: u64,
    /// Numbers of the thread's own events at the start and at the reply; unknown unless durations are corrected.
    pub events: u32,
    pub reply_events: u32,
    pub unique: u64,
    /// Number of times that the recorder had dropped events by the start.
    pub losses: u32,
    /// The filters select the call.
    pub counted: bool,
    /// Depth that the kernel's tracer reports. This field and those below are for the kernel layer.
    pub depth: u64,
    /// Operations of the selected requests that began in the call, as bits.
    pub operations: u128,
    /// Time in ns of the calls inside it.
    pub inner: u64,
    /// Indices in the tree of calls and in the list of single calls.
    pub node: u32,
    pub single: u32,
    /// The outermost call around it is selected.
    pub whole: bool,
    pub outermost: bool,
}

impl Open {
    /// Return the time in ns from the start to the reply.
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
    /// Push a call. Calls whose return will not be seen go to `lost`.
    pub fn enter(&mut self, call: Open, mut lost: impl FnMut(Open)) {
        if self.0.len() == DEEPEST {
            lost(self.0.remove(0));
        }
        for open in &mut self.0 {
            open.overtaken |= open.unique != call.unique;
        }
        self.0.push(call);
    }

    /// Pop the innermost open call of `function`. Calls entered after it go to `lost`: they cannot return any more.
    pub fn leave(&mut self, function: u32, mut lost: impl FnMut(Open)) -> Option<Open> {
        let at = self.0.iter().rposition(|call| call.function == function)?;
        self.0.drain(at + 1..).for_each(&mut lost);
        self.0.pop()
    }

    /// Make room for a call at this depth. Open calls there or deeper go to `lost`: they cannot return any more.
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

    /// Pop the open call of `function` at this depth. Deeper calls go to `lost`: they cannot return any more.
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

    /// Drop all open calls, because the task has ended.
    pub fn abandon(&mut self, lost: impl FnMut(Open)) {
        self.0.drain(..).for_each(lost);
    }
}
