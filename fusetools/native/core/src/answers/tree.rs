//! Calls of the kernel as a call tree, and as single calls if requested.

use rustc_hash::FxHashMap;

use crate::events::Ev;

/// Maximum number of ways to call a function: real kernels have some hundreds.
const MOST_NODES: usize = 1 << 16;

/// Function called in one way: all its calls that the same functions enclose in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Index into `Tree::nodes`; `Tree::ROOT` for an outermost function.
    pub parent: u32,
    /// Index into `Tree::functions`.
    pub function: u32,
    pub calls: u64,
    /// Time in ns of all calls, and the part not spent in calls inside them.
    pub total: u64,
    pub own: u64,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// Index into `Tree::functions`.
    pub function: u32,
    /// Number of functions around it.
    pub level: u32,
    /// Start in ns on the recording's clock.
    pub start: u64,
    /// Duration in ns; `Single::UNFINISHED` if its return was not seen.
    pub duration: u64,
    pub tid: i32,
    pub cpu: u32,
    /// Index into `Tree::comms`.
    pub comm: u32,
    /// Index of the outermost call around it, in the order of their entries.
    tree: u32,
}

impl Single {
    pub const NONE: u32 = u32::MAX;
    pub const UNFINISHED: u64 = u64::MAX;
}

#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Names of functions; addresses where unknown.
    pub functions: Vec<String>,
    /// Nodes; each comes after its parent.
    pub nodes: Vec<Node>,
    /// Number of calls without a return, or with an uncertain one.
    pub unmatched: u64,
    /// Single calls by tree, in the order of their begin; within a tree in the order of the entries.
    pub singles: Vec<Single>,
    /// Names of tasks; the first is for those without a name.
    pub comms: Vec<String>,
    /// More ways to call were found than in any real kernel: the further ones are left out.
    pub full: bool,
    each: bool,
    trees: u32,
    places: FxHashMap<(u32, u32), u32>,
    tasks: FxHashMap<i32, u32>,
    names: FxHashMap<String, u32>,
}

impl Tree {
    pub const ROOT: u32 = u32::MAX;
    const NOWHERE: u32 = u32::MAX - 1;

    pub(crate) fn new(each: bool) -> Tree {
        Tree {
            each,
            comms: vec![String::new()],
            ..Tree::default()
        }
    }

    pub(crate) fn comm(&mut self, tid: i32, comm: &str) {
        if !self.each {
            return;
        }
        let name = match self.names.get(comm) {
            Some(name) => *name,
            None => {
                self.comms.push(comm.to_owned());
                let name = self.comms.len() as u32 - 1;
                self.names.insert(comm.to_owned(), name);
                name
            }
        };
        self.tasks.insert(tid, name);
    }

    pub(crate) fn fork(&mut self, tid: i32, parent: i32) {
        if let Some(name) = self.tasks.get(&parent).copied() {
            self.tasks.insert(tid, name);
        }
    }

    /// Return the node of a function called from `parent`.
    pub(crate) fn child(&mut self, parent: u32, function: u32) -> u32 {
        let nodes = &mut self.nodes;
        let known = self.places.contains_key(&(parent, function));
        if parent == Tree::NOWHERE || nodes.len() >= MOST_NODES && !known {
            self.full = true;
            return Tree::NOWHERE;
        }
        *self.places.entry((parent, function)).or_insert_with(|| {
            nodes.push(Node {
                parent,
                function,
                ..Node::default()
            });
            nodes.len() as u32 - 1
        })
    }

    /// Add a single call, if requested, inside another one or `Single::NONE`.
    pub(crate) fn enter(&mut self, ev: &Ev, around: u32, function: u32) -> u32 {
        if !self.each || self.singles.len() >= Single::NONE as usize {
            return Single::NONE;
        }
        let (level, tree) = match self.singles.get(around as usize) {
            Some(around) => (around.level + 1, around.tree),
            None => {
                self.trees += 1;
                (0, self.trees - 1)
            }
        };
        self.singles.push(Single {
            function,
            level,
            start: ev.time,
            duration: Single::UNFINISHED,
            tid: ev.tid,
            cpu: ev.cpu,
            comm: self.tasks.get(&ev.tid).copied().unwrap_or(0),
            tree,
        });
        self.singles.len() as u32 - 1
    }

    pub(crate) fn leave(&mut self, node: u32, single: u32, duration: u64, own: u64) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.calls += 1;
            node.total = node.total.saturating_add(duration);
            node.own = node.own.saturating_add(own);
        }
        if let Some(single) = self.singles.get_mut(single as usize) {
            single.duration = duration;
        }
    }

    pub(crate) fn finish(&mut self, functions: impl Iterator<Item = String>) {
        self.functions = functions.collect();
        self.singles.sort_by_key(|single| single.tree);
    }
}
