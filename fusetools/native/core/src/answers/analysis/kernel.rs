//! Calls of the kernel's functions, by probes and by function_graph.

use super::*;

impl Analysis {
    /// Return the function at an address that function_graph recorded.
    pub(super) fn function_at(&mut self, address: u64) -> u32 {
        if let Some(function) = self.addresses.get(&address) {
            return *function;
        }
        // ABSENT stands for all functions beyond the limit.
        let address = if self.addresses.len() < MOST_FUNCTIONS {
            address
        } else {
            ABSENT
        };
        let functions = &mut self.functions;
        let columns = &mut self.columns;
        // function_graph records the first traceable address, which is some bytes into the function.
        let known = &self.filters.functions;
        let at = known.partition_point(|f| f.0 <= address).checked_sub(1);
        let named = at.map(|at| &known[at]);
        let named = named.filter(|f| address != ABSENT && address - f.0 < FARTHEST);
        *self.addresses.entry(address).or_insert_with(|| {
            let (name, operation) = match named {
                Some((_, name, operation)) => (name.clone(), operation.clone()),
                None if address == ABSENT => ("others".to_owned(), String::new()),
                None => (format!("{address:#x}"), String::new()),
            };
            let mut column = functions.len() as u32;
            if let Some(columns) = columns {
                column = columns.functions.len() as u32;
                columns.functions.push(name.clone());
            }
            functions.push(Function {
                layer: Layer::Kernel,
                name,
                named: Operation::of_name(&operation),
                operation,
                returns: true,
                address: match named {
                    Some((start, ..)) => Some(*start),
                    None => Some(address).filter(|a| *a != ABSENT),
                },
                column,
                lost: 0,
                tallies: Vec::new(),
            });
            functions.len() as u32 - 1
        })
    }

    pub(super) fn kernel_entry(&mut self, ev: &Ev, kind: Kind) {
        let function = &mut self.functions[kind.function as usize];
        if !function.returns {
            let wanted = self.in_window(ev.time) && self.wants_kernel(ev, 0);
            self.functions[kind.function as usize]
                .tally(Operation::UNKNOWN)
                .entries += u64::from(wanted);
            return;
        }
        self.kernel_call(ev, PROBES, kind.function, 0);
    }

    pub(super) fn graph_entry(&mut self, ev: &Ev) {
        let [address, depth, ..] = ev.v;
        let function = self.function_at(address);
        self.kernel_call(ev, GRAPH, function, depth);
    }

    pub(super) fn graph_exit(&mut self, ev: &Ev) {
        let [address, depth, calltime, rettime] = ev.v;
        let function = self.function_at(address);
        let mut lost = Vec::new();
        let call = self.tasks.get_mut(&task_of(ev)).and_then(|task| {
            task.stacks[GRAPH].leave_depth(function, depth, |call| lost.push(call))
        });
        self.lose(lost);
        let Some(call) = call else {
            let wanted = self.in_window(ev.time) && self.wants_kernel(ev, 0);
            let function = &mut self.functions[function as usize];
            function.lost += u64::from(wanted);
            function.tally(Operation::UNKNOWN).unmatched += u64::from(wanted);
            return;
        };
        // The tracer's own times, of another clock, give the duration. They belong to this very call, whatever was lost
        // meanwhile.
        let timed = calltime != ABSENT && rettime != ABSENT;
        let duration = match rettime.checked_sub(calltime) {
            Some(duration) if timed => Some(duration),
            _ if call.losses == self.losses => Some(ev.time.saturating_sub(call.start)),
            _ => None,
        };
        self.kernel_return(ev, GRAPH, call, duration);
    }

    /// Open a call of a kernel function whose return the recording can show.
    pub(super) fn kernel_call(&mut self, ev: &Ev, which: usize, function: u32, depth: u64) {
        let counted = self.in_window(ev.time) && self.wants_caller(ev.pid, ev.tid);
        let mut call = Open {
            unique: if which == PROBES { ev.v[0] } else { ABSENT },
            counted,
            depth,
            whole: counted,
            ..self.opened(ev, function)
        };
        let mut lost = Vec::new();
        let task = self.tasks.entry(task_of(ev)).or_default();
        let stack = &mut task.stacks[which];
        if which == GRAPH {
            stack.cut(depth, |call| lost.push(call));
        }
        let parent = stack.last();
        if let Some(parent) = parent {
            (call.whole, call.outermost) = (parent.whole, false);
        }
        if let Some(tree) = &mut self.tree {
            call.node = tree.child(parent.map_or(Tree::ROOT, |parent| parent.node), function);
            if call.whole {
                call.single = tree.enter(ev, parent.map_or(Single::NONE, |p| p.single), function);
            }
        }
        if which == GRAPH {
            stack.push(call);
        } else {
            stack.enter(call, |call| lost.push(call));
        }
        self.lose(lost);
    }

    /// Close a call of the kernel layer. `duration` None: this may be another call's return.
    pub(super) fn kernel_return(
        &mut self,
        ev: &Ev,
        which: usize,
        call: Open,
        duration: Option<u64>,
    ) {
        let Some(duration) = duration else {
            self.unreturned([call]);
            return;
        };
        let task = self.tasks.get_mut(&task_of(ev));
        if let Some(parent) = task.and_then(|task| task.stacks[which].last_mut()) {
            parent.inner = parent.inner.saturating_add(duration);
        }
        let own = duration.saturating_sub(call.inner);
        if let Some(tree) = self.tree.as_mut().filter(|_| call.whole) {
            tree.leave(call.node, call.single, duration, own);
        }
        if !call.counted || !self.wants_kernel(ev, call.operations) {
            return;
        }
        let function = &mut self.functions[call.function as usize];
        for operation in function.operations(self.filters.by_operation, call.operations) {
            let tally = function.tally(operation);
            tally.entries += 1;
            tally.hist.add(duration);
            tally.own += u128::from(own);
            tally.outermost += u64::from(call.outermost);
        }
        let column = function.column;
        if let Some(columns) = &mut self.columns {
            columns.calls.push(Call {
                layer: Layer::Kernel,
                function: column,
                start: call.start,
                duration,
                pid: ev.pid,
                tid: ev.tid,
                unique: or_zero(call.unique),
            });
        }
    }

    /// Return whether a kernel function's call counts. If mounts are selected, only their daemons' calls do, and those
    /// that made one of their requests.
    pub(super) fn wants_kernel(&self, ev: &Ev, operations: u128) -> bool {
        self.wants_caller(ev.pid, ev.tid)
            && (self.filters.connections.is_empty()
                || operations != 0
                || self.filters.daemon_pids.contains(&ev.pid))
    }
}
