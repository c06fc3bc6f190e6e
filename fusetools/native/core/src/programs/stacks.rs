//! Turns call chains into frames with names, and adds stacks up.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::events::Chain;
use crate::programs::elf::{self, hex};
use crate::programs::files::{Files, VDSO};
use crate::programs::functions::Programs;
use crate::programs::generated::{self, is_generated};
use crate::programs::spaces::{MappedFile, Space, Spaces};
use crate::programs::symbols::{Kernel, Table};

/// Marks in a call chain that tell whose addresses follow (enum perf_callchain_context).
pub(crate) const CONTEXT_MAX: u64 = -4095i64 as u64;
pub(crate) const CONTEXT_KERNEL: u64 = -128i64 as u64;
pub(crate) const CONTEXT_USER: u64 = -512i64 as u64;

/// Maximum number of shown frames of a stack: deeper pictures are useless. (The kernel records 127 by default.)
pub const DEEPEST: usize = 1024;
/// Maximum number of different stacks, including all beginnings of stacks.
const MOST_NODES: usize = 1 << 22;
/// Maximum size of all stacks as text, in bytes.
const MOST_TEXT: usize = 1 << 30;
/// Maximum number of entries from which the order in time is taken, and of entries in it.
const MOST_ADDED: usize = 1 << 20;
const MOST_ORDERED: usize = 20_000;

/// Extent of a user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// It reaches the thread's beginning.
    Whole,
    /// It ends where a program's tables do not describe the rest.
    #[default]
    Cut,
    /// It goes as far as frame pointers lead, or no further than the kernel.
    Unfollowed,
    /// It goes as far as it was copied.
    Copied,
}

/// Number of different addresses, and of those without a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Named {
    /// There are symbols to name them by: the recording's, or requested ones.
    pub known: bool,
    pub addresses: u64,
    pub nameless: u64,
}

/// Place of a frame's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    Kernel,
    /// Library or program: index into `Frames::files`.
    File(u32),
    /// Thread's name, or a frame that stands for something else than a function.
    Other,
}

/// Names of frames, each once.
pub struct Frames<'a> {
    kernel: Option<Kernel<'a>>,
    programs: Programs,
    host: Option<Files>,
    /// Debug files by build id, for functions that nothing else names.
    pub debug: Option<Files>,
    debug_tables: FxHashMap<u32, Option<Table>>,
    /// Kernel modules of the recording: start, end, name.
    modules: Vec<(u64, u64, String)>,
    /// Functions by file of the recording's spaces.
    tables: FxHashMap<u32, Option<Table>>,
    pub files: Vec<MappedFile>,
    pub names: Vec<(Box<str>, Origin)>,
    known: FxHashMap<Origin, FxHashMap<Box<str>, u32>>,
    of_kernel: FxHashMap<u64, u32>,
    /// Names by file and place in it.
    of_files: FxHashMap<(u32, u64), u32>,
    /// Functions that processes generated, by process; and their names, by process and address.
    generated: FxHashMap<i32, Option<Table>>,
    of_generated: FxHashMap<(i32, u64), u32>,
    /// Frames by stack, and by the version of its user part's address space.
    of_stacks: FxHashMap<(u64, u64), Arc<[u32]>>,
    chains: Vec<Chain>,
    /// By stack: the chain has addresses that are not the kernel's.
    user: Vec<bool>,
    /// Extent by stack and space, as in `of_stacks`.
    reach: FxHashMap<(u64, u64), Reach>,
    /// By stack: a thread waits for its next request there.
    for_requests: FxHashMap<u64, bool>,
    /// Frame of addresses that are in no file.
    unknown: Option<u32>,
    /// Counts of different addresses of the kernel, and of programs' files.
    pub kernel_named: Named,
    pub user_named: Named,
    /// Files with nameless addresses.
    nameless: FxHashSet<u32>,
    /// Names of processes that generated nameless code.
    nameless_processes: BTreeSet<String>,
}

impl<'a> Frames<'a> {
    /// Prepare to name frames. `files`: places of programs, instead of what the recording holds of them.
    pub fn new(kernel: Option<Kernel<'a>>, programs: Programs, files: Option<Files>) -> Frames<'a> {
        let known = |known| Named {
            known,
            ..Named::default()
        };
        let kernel_named = known(kernel.is_some());
        let user_named = known(files.is_some() || !programs.is_empty());
        Frames {
            kernel,
            programs,
            host: files,
            debug: None,
            debug_tables: FxHashMap::default(),
            modules: Vec::new(),
            tables: FxHashMap::default(),
            files: Vec::new(),
            names: Vec::new(),
            known: FxHashMap::default(),
            of_kernel: FxHashMap::default(),
            of_files: FxHashMap::default(),
            generated: FxHashMap::default(),
            of_generated: FxHashMap::default(),
            of_stacks: FxHashMap::default(),
            chains: Vec::new(),
            user: Vec::new(),
            reach: FxHashMap::default(),
            for_requests: FxHashMap::default(),
            unknown: None,
            kernel_named,
            user_named,
            nameless: FxHashSet::default(),
            nameless_processes: BTreeSet::new(),
        }
    }

    /// Add the stacks of a batch, whose numbers continue those before.
    pub fn add_chains(&mut self, new: &[Chain]) {
        self.chains.extend_from_slice(new);
        self.user.extend(new.iter().map(|chain| {
            let mut user = false;
            chain.iter().any(|&ip| {
                user = if ip >= CONTEXT_MAX {
                    ip != CONTEXT_KERNEL
                } else {
                    user
                };
                user && ip < CONTEXT_MAX
            })
        }));
    }

    fn chain(&self, stack: u64) -> Option<(&Chain, bool)> {
        let at = usize::try_from(stack).ok()?;
        Some((self.chains.get(at)?, *self.user.get(at)?))
    }

    /// Return the number of a name.
    pub fn name(&mut self, name: &str, origin: Origin) -> u32 {
        let known = self.known.entry(origin).or_default();
        if let Some(&number) = known.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        known.insert(name.into(), number);
        self.names.push((name.into(), origin));
        number
    }

    /// Return a stack's frames, outermost first. `pid`'s space names what is not the kernel's.
    pub fn of(&mut self, stack: u64, spaces: &Spaces, pid: i32) -> Arc<[u32]> {
        let Some((chain, user)) = self.chain(stack) else {
            return Arc::default();
        };
        let space = if user { spaces.of(pid) } else { None };
        let version = space.map_or(0, |space| space.version);
        if let Some(frames) = self.of_stacks.get(&(stack, version)) {
            return frames.clone();
        }
        let chain = chain.clone();
        let mut kernel = false;
        let mut frames = Vec::new();
        for &ip in chain.iter() {
            match ip {
                CONTEXT_KERNEL => kernel = true,
                CONTEXT_USER => kernel = false,
                // Addresses of a hypervisor's guest are unknown here.
                CONTEXT_MAX.. => kernel = false,
                _ if frames.len() == DEEPEST => break,
                _ if kernel => {
                    let frame = self.of_kernel(ip, spaces);
                    if !is_tracing(&self.names[frame as usize].0) {
                        frames.push(frame);
                    }
                }
                _ => {
                    let name = self.of_user(ip, space.map(|space| &**space), spaces, pid);
                    // Without frame pointers, such a stack says less the longer it is.
                    if Some(name) != self.unknown || frames.last() != Some(&name) {
                        frames.push(name);
                    }
                }
            }
        }
        frames.reverse();
        let frames: Arc<[u32]> = frames.into();
        self.of_stacks.insert((stack, version), frames.clone());
        frames
    }

    /// Return whether a stack reaches its thread's beginning, or why not. Unwound stacks have a mark for that, unless a
    /// thread went on with another stack. With frame pointers the outermost function shows it: one that threads begin
    /// with, or a nameless one of a C library that called others.
    pub fn reach(&mut self, stack: u64, spaces: &Spaces, pid: i32) -> Reach {
        let version = spaces.of(pid).map_or(0, |space| space.version);
        if let Some(&reach) = self.reach.get(&(stack, version)) {
            return reach;
        }
        let Some((chain, user)) = self.chain(stack) else {
            return Reach::Unfollowed;
        };
        let marks = chain
            .iter()
            .rev()
            .take_while(|ip| **ip == CONTEXT_USER)
            .count();
        let bare = chain.iter().position(|ip| *ip == CONTEXT_USER) == Some(chain.len() - marks);
        let whole = user && marks < 2 && {
            let frames = self.of(stack, spaces, pid);
            let mut frames = frames.iter().map(|&frame| {
                let (name, origin) = &self.names[frame as usize];
                let path = match origin {
                    Origin::File(file) => &*self.files[*file as usize].path,
                    _ => "",
                };
                (&**name, path)
            });
            let beginning = |name: &str| BEGINNINGS.iter().any(|known| is_of(name, known));
            let nameless = |name: &str| name.starts_with('[');
            let mut outermost = frames.next();
            // A thread's first function has arbitrary data in the frame pointer's register: that is no frame.
            if outermost.is_some_and(|(name, path)| name == "[unknown]" && path.is_empty()) {
                outermost = frames.next().filter(|(name, _)| beginning(name));
            }
            match outermost {
                Some((name, _)) if beginning(name) => true,
                Some((name, path)) if marks == 0 && nameless(name) && path.starts_with('/') => {
                    let library = is_c_library(path);
                    let caller =
                        frames.find(|(name, path)| !(nameless(name) && is_c_library(path)));
                    // The first functions of a program and of its libraries, which are not exported.
                    caller.is_some_and(|(name, other)| {
                        is_of(name, "__libc_start_main")
                            || library && !is_c_library(other) && !other.is_empty()
                    })
                }
                _ => false,
            }
        };
        let reach = match marks {
            _ if whole => Reach::Whole,
            _ if bare => Reach::Unfollowed,
            0 => Reach::Unfollowed,
            1 => Reach::Cut,
            _ => Reach::Copied,
        };
        self.reach.insert((stack, version), reach);
        reach
    }

    /// Return whether a thread of a daemon waits for its next request in this stack.
    pub fn for_requests(&mut self, stack: u64, spaces: &Spaces, pid: i32) -> bool {
        if let Some(&known) = self.for_requests.get(&stack) {
            return known;
        }
        let frames = self.of(stack, spaces, pid);
        let known = frames.iter().any(|&frame| {
            let (name, origin) = &self.names[frame as usize];
            *origin == Origin::Kernel && FOR_REQUESTS.contains(&&**name)
        });
        self.for_requests.insert(stack, known);
        known
    }

    /// Return the index in a stack below a callback: after the callback's own frame, or the first frame if the stack
    /// lacks it.
    pub fn below(&self, stack: &[u32], callback: Option<u32>) -> usize {
        let name = |number: u32| &*self.names[number as usize].0;
        let wanted = callback.map(name);
        let own = stack.iter().rposition(|&frame| {
            let name = name(frame);
            Some(name.rsplit("::").next().unwrap_or(name)) == wanted
        });
        own.map_or(0, |own| own + 1)
    }

    /// Return the only frame of a sample without a stack.
    pub fn of_address(&mut self, address: u64, spaces: &Spaces, pid: i32) -> u32 {
        if address as i64 >= 0 {
            self.of_user(address, spaces.of(pid).map(|space| &**space), spaces, pid)
        } else {
            self.of_kernel(address, spaces)
        }
    }

    fn of_kernel(&mut self, address: u64, spaces: &Spaces) -> u32 {
        if let Some(&name) = self.of_kernel.get(&address) {
            return name;
        }
        if self.modules.len() != spaces.kernel.len() {
            self.modules = spaces
                .kernel
                .iter()
                .map(|map| {
                    // "[fuse]", or the path of the module's file.
                    let name = map.path.rsplit('/').next().unwrap_or("");
                    let name = name.split_once('.').map_or(name, |(name, _)| name);
                    let name = name.trim_start_matches('[').trim_end_matches(']');
                    (
                        map.start,
                        map.start.saturating_add(map.len),
                        name.replace('-', "_"),
                    )
                })
                .collect();
        }
        self.kernel_named.addresses += 1;
        let named = self.kernel.as_ref().and_then(|kernel| kernel.name(address));
        let name = match named {
            Some(name) => tidy(name).into_owned(),
            None => {
                self.kernel_named.nameless += 1;
                let module = self
                    .modules
                    .iter()
                    .find(|(start, end, name)| {
                        (*start..*end).contains(&address) && !name.starts_with("kernel")
                    })
                    .map_or("kernel", |(.., name)| name);
                format!("[{module}]")
            }
        };
        let number = self.name(&name, Origin::Kernel);
        self.of_kernel.insert(address, number);
        number
    }

    fn of_user(&mut self, address: u64, space: Option<&Space>, spaces: &Spaces, pid: i32) -> u32 {
        let Some(mapping) = space.and_then(|space| space.find(address)) else {
            let name = self.name("[unknown]", Origin::Other);
            self.unknown = Some(name);
            return name;
        };
        let place = (address - mapping.start).wrapping_add(mapping.offset);
        let file = mapping.file;
        if let Some(&name) = self.of_files.get(&(file, place)) {
            return name;
        }
        if is_generated(&spaces.files[file as usize].path) {
            return self.of_generated(address, file, spaces, pid);
        }
        self.learn_files(spaces);
        let mapped = &self.files[file as usize];
        let table = self.tables.entry(file).or_insert_with(|| match &self.host {
            // The vDSO is no file, wherever programs are.
            Some(files) if mapped.path != VDSO => Table::of(mapped, files),
            _ => self.programs.table(mapped),
        });
        // Other paths are no files: "[heap]", "//anon".
        let counted = mapped.path.starts_with('/') && !mapped.path.starts_with("//");
        self.user_named.addresses += u64::from(counted);
        let debug = &self.debug;
        let more = self.debug_tables.entry(file);
        let by_id = || {
            let id = id_of(mapped, table.as_ref());
            Table::by_id(&id, debug.as_ref()?, spaces.offset(file)?)
        };
        let name = table.as_ref().and_then(|table| table.name(place));
        let name = name.or_else(|| more.or_insert_with(by_id).as_ref()?.name(place));
        let name = match name {
            Some(name) => tidy(&elf::demangle(name)).into_owned(),
            None => {
                if counted {
                    self.user_named.nameless += 1;
                    self.nameless.insert(file);
                }
                let name = mapped.path.rsplit('/').next().unwrap_or("");
                // "[vdso]" has its brackets already.
                let name = name.trim_start_matches('[').trim_end_matches(']');
                format!("[{}]", if name.is_empty() { "unknown" } else { name })
            }
        };
        let number = self.name(&name, Origin::File(file));
        self.of_files.insert((file, place), number);
        number
    }

    /// Return a function that a process generated. `file`: that of the mapping.
    fn of_generated(&mut self, address: u64, file: u32, spaces: &Spaces, pid: i32) -> u32 {
        if let Some(&name) = self.of_generated.get(&(pid, address)) {
            return name;
        }
        self.learn_files(spaces);
        let programs = &self.programs;
        let table = self.generated.entry(pid);
        let table = table.or_insert_with(|| programs.table(&generated::file_of(pid)));
        self.user_named.addresses += 1;
        let name = match table.as_ref().and_then(|table| table.name(address)) {
            Some(name) => tidy(&elf::demangle(name)).into_owned(),
            None => {
                self.user_named.nameless += 1;
                let process = spaces.comm(pid).map(str::to_owned);
                let process = process.unwrap_or_else(|| format!("pid {pid}"));
                self.nameless_processes.insert(process);
                "[generated code]".into()
            }
        };
        let number = self.name(&name, Origin::File(file));
        self.of_generated.insert((pid, address), number);
        number
    }

    fn learn_files(&mut self, spaces: &Spaces) {
        if self.files.len() != spaces.files.len() {
            self.files
                .extend_from_slice(&spaces.files[self.files.len()..]);
        }
    }

    /// Return the names of processes that generated code without names.
    pub fn nameless_processes(&self) -> Vec<String> {
        self.nameless_processes.iter().cloned().collect()
    }

    /// Return paths of files with nameless addresses. `known`: of files with some symbols, else of files with none.
    pub fn nameless_files(&self, known: bool) -> Vec<String> {
        let of = |file: &&u32| matches!(self.tables.get(file), Some(Some(_))) == known;
        let files = self.nameless.iter().filter(of);
        let paths: BTreeSet<&String> = files.map(|&f| &self.files[f as usize].path).collect();
        paths.into_iter().cloned().collect()
    }

    /// Return the build ids of files with addresses that have no name.
    pub fn nameless_ids(&self) -> Vec<String> {
        let id = |file: &u32| {
            let table = self.tables.get(file).and_then(Option::as_ref);
            id_of(&self.files[*file as usize], table)
        };
        let ids: BTreeSet<String> = self.nameless.iter().map(id).collect();
        ids.into_iter().filter(|id| !id.is_empty()).collect()
    }
}

/// Return the build id of a mapped file in hexadecimal, "" if it is unknown. `table`: its symbols, if there are any.
fn id_of(mapped: &MappedFile, table: Option<&Table>) -> String {
    match mapped.build_id.is_empty() {
        true => table.map_or(String::new(), |table| table.build_id.clone()),
        false => hex(&mapped.build_id),
    }
}

/// Functions in which a thread of a daemon waits for its next request (fs/fuse/dev.c).
const FOR_REQUESTS: [&str; 3] = ["fuse_dev_do_read", "fuse_dev_read", "fuse_dev_splice_read"];

/// Functions of glibc and Go with which threads begin.
const BEGINNINGS: [&str; 13] = [
    "_start",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "_dl_start_user",
    "runtime.goexit",
    "runtime.mcall", // continues on the scheduler's own stack
    "runtime.mstart",
];

/// Return whether a function's name is this one, but for what compilers and symbol versions add ("@@GLIBC_2.34",
/// ".abi0").
fn is_of(name: &str, function: &str) -> bool {
    let rest = name.strip_prefix(function);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', '.']))
}

pub(crate) fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    ["libc.so", "libc-2", "libpthread", "ld-"]
        .iter()
        .any(|known| name.starts_with(known))
}

/// Return a function's name as a frame of a folded stack, where ';' ends a frame. Parentheses stay: a demangled name
/// has no arguments, and its parentheses distinguish it from others (`Cache<void (*)(int)>::fetch`, `operator()`).
fn tidy(name: &str) -> Cow<'_, str> {
    if !name.contains([';', '"', '\'']) {
        return name.into();
    }
    name.replace(';', ":").replace(['"', '\''], "").into()
}

/// Tree of stacks with the sums of their weights.
#[derive(Default)]
pub struct Fold {
    /// Caller, name, and the weight of exactly this stack.
    nodes: Vec<(u32, u32, u64)>,
    index: FxHashMap<(u32, u32), u32>,
    /// Weights that were added, for the order in time: the first `MOST_ADDED`.
    added: Vec<Added>,
    /// There are too many different stacks: some are cut.
    pub full: bool,
}

pub const ROOT: u32 = u32::MAX;

/// Weight of a stack of a thread, and where in time it begins, in ns on the recording's clock.
#[derive(Clone, Copy)]
struct Added {
    tid: i32,
    node: u32,
    at: u64,
    weight: u64,
}

impl Fold {
    /// Return the stack with one more frame.
    pub fn below(&mut self, node: u32, name: u32) -> u32 {
        if let Some(&existing) = self.index.get(&(node, name)) {
            return existing;
        }
        if self.nodes.len() == MOST_NODES {
            self.full = true;
            return node;
        }
        let new = self.nodes.len() as u32;
        self.nodes.push((node, name, 0));
        self.index.insert((node, name), new);
        new
    }

    pub fn path(&mut self, node: u32, names: &[u32]) -> u32 {
        names
            .iter()
            .fold(node, |node, &name| self.below(node, name))
    }

    /// Add weight to a stack. `tid`, `at`: the thread, and its begin in ns on the recording's clock.
    pub fn add(&mut self, node: u32, weight: u64, (tid, at): (i32, u64)) {
        if let Some(known) = self.nodes.get_mut(node as usize) {
            known.2 = known.2.saturating_add(weight);
            if weight > 0 && self.added.len() < MOST_ADDED {
                self.added.push(Added {
                    tid,
                    node,
                    at,
                    weight,
                });
            }
        }
    }

    /// Return the stacks in time, thread after thread by their first: each a node, and its weight.
    /// Equal neighbours are merged; of more than `MOST_ORDERED`, the earliest remain.
    fn order(&self) -> Vec<(u32, u64)> {
        let mut first = FxHashMap::default();
        for added in &self.added {
            let known = first.entry(added.tid).or_insert(added.at);
            *known = added.at.min(*known);
        }
        let by_thread = |a: &Added| (first.get(&a.tid).copied(), a.tid, a.at);
        let mut rows = self.added.clone();
        rows.sort_by_key(by_thread);
        rows.dedup_by(|next, row| {
            let same = (next.tid, next.node) == (row.tid, row.node);
            if same {
                row.weight = row.weight.saturating_add(next.weight);
            }
            same
        });
        if rows.len() > MOST_ORDERED {
            rows.sort_by_key(|row| row.at);
            rows.truncate(MOST_ORDERED);
            rows.sort_by_key(by_thread);
        }
        rows.iter().map(|row| (row.node, row.weight)).collect()
    }

    /// Return the stack of a node.
    pub fn stack(&self, node: u32, names: &[(Box<str>, Origin)]) -> String {
        let mut frames = Vec::new();
        let mut at = node;
        while let Some(&(caller, name, _)) = self.nodes.get(at as usize) {
            frames.push(&*names[name as usize].0);
            at = caller;
        }
        frames.reverse();
        frames.join(";")
    }

    /// Return the stacks. Functions of the same name in different files are different nodes: their weights are added.
    pub fn stacks(&self, names: &[(Box<str>, Origin)]) -> Stacks {
        let mut rows: Vec<(String, u64)> = Vec::new();
        let (mut by_text, mut by_node) = (FxHashMap::default(), FxHashMap::default());
        let mut budget = MOST_TEXT;
        let mut whole = true;
        let nodes = self.nodes.iter().zip(0u32..);
        for (&(.., weight), node) in nodes.filter(|((.., weight), _)| *weight > 0) {
            let text = self.stack(node, names);
            let next = rows.len() as u32;
            let place = *by_text.entry(text.clone()).or_insert(next);
            if place == next {
                budget = match budget.checked_sub(text.len()) {
                    Some(left) => left,
                    None => {
                        whole = false;
                        break;
                    }
                };
                rows.push((text, 0));
            }
            let sum = &mut rows[place as usize].1;
            *sum = sum.saturating_add(weight);
            by_node.insert(node, place);
        }
        let order = self.order().into_iter();
        let order = order.filter_map(|(node, weight)| Some((*by_node.get(&node)?, weight)));
        Stacks {
            rows,
            order: order.collect(),
            whole,
        }
    }
}

/// Stacks of a `Fold`.
pub struct Stacks {
    /// Each stack with a weight, "comm;outermost;…;innermost"; none comes twice.
    pub rows: Vec<(String, u64)>,
    /// Stacks in time, thread after thread: index into `rows` and weight.
    pub order: Vec<(u32, u64)>,
    /// These are all.
    pub whole: bool,
}

/// Return whether a function is on a stack only because of tracing. One replaces a return address in function_graph
/// (older kernels list it before the address itself). Others call a tracepoint's probes if there are several.
fn is_tracing(name: &str) -> bool {
    name == "return_to_handler" || name.starts_with("__traceiter_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Map, Side};

    /// As on Linux 4.4, where each return address is listed before the address that it stands for.
    #[test]
    fn tracing_functions_are_no_frames() {
        let list = b"ffffffff81000000 f fuse_open\nffffffff81000100 f return_to_handler\n\
            ffffffff81000200 f vfs_open\nffffffff81000300 f __traceiter_sched_switch\nffffffff81000400 e -\n";
        let kernel = Kernel::new(Cow::Borrowed(list));
        let mut frames = Frames::new(kernel, Programs::default(), None);
        let ips = [0x310, 0x110, 0x10, 0x110, 0x210].map(|at| 0xffff_ffff_8100_0000 + at);
        frames.add_chains(&[[&[CONTEXT_KERNEL], &ips[..]].concat().into()]);
        let found = frames.of(0, &Spaces::default(), 1);
        let names = found
            .iter()
            .map(|&frame| &*frames.names[frame as usize].0)
            .collect::<Vec<_>>();
        assert_eq!(names, ["vfs_open", "fuse_open"]);
    }

    #[test]
    fn weights_of_stacks_with_equal_names_are_added() {
        let names = ["cat", "read", "read"].map(Box::<str>::from);
        let origins = [Origin::Kernel, Origin::File(0), Origin::File(1)];
        let names: Vec<_> = names.into_iter().zip(origins).collect();
        let mut fold = Fold::default();
        for (name, weight) in [(1, 2), (2, 3), (1, 5)] {
            let node = fold.path(ROOT, &[0, name]);
            fold.add(node, weight, (7, weight));
        }
        let stacks = fold.stacks(&names);
        assert_eq!(stacks.rows, [("cat;read".to_owned(), 10)]);
        assert_eq!(stacks.order, [(0, 2), (0, 3), (0, 5)]);
        assert!(stacks.whole);
    }

    #[test]
    fn the_vdso_keeps_its_names_with_symfs() {
        let mut spaces = Spaces::default();
        for (start, path) in [(0x1000, "[vdso]"), (0x2000, "/lib/a")] {
            let map = Map {
                time: 0,
                pid: 1,
                start,
                len: 0x1000,
                offset: 0,
                path: path.to_owned(),
                build_id: Vec::new(),
            };
            spaces.push(&Side::Map(Box::new(map)), &FxHashMap::default());
        }
        let text = "0000000000000000 F - [vdso]\n0000000000000010 u 20 __vdso_time\n\
                    0000000000000000 F - /lib/a\n0000000000000010 u 20 gone\n";
        let names_with = |files| {
            let mut programs = Programs::default();
            programs.read(text.as_bytes());
            let mut frames = Frames::new(None, programs, files);
            [0x1018, 0x2018].map(|address| {
                let number = frames.of_address(address, &spaces, 1);
                frames.names[number as usize].0.to_string()
            })
        };
        assert_eq!(names_with(None), ["__vdso_time", "gone"]);
        let elsewhere = Files {
            root: "/nosuch".into(),
            ..Files::default()
        };
        assert_eq!(names_with(Some(elsewhere)), ["__vdso_time", "[a]"]);
    }

    #[test]
    fn frames_of_cpp_and_rust_keep_their_whole_names() {
        // Symbols of g++, as c++filt --no-params prints them.
        let names = [
            ("_ZN5CacheIPFviEE5fetchEPKc", "Cache<void (*)(int)>::fetch"),
            (
                "_ZNK5CacheIMN8download7JobInfoEKFiPKczEEclEi",
                "Cache<int (download::JobInfo::*)(char const*, ...) const>::operator()",
            ),
            (
                "_ZNK5CacheIPFviEEcvbEv",
                "Cache<void (*)(int)>::operator bool",
            ),
            (
                "_ZNK5CacheIPFviEEltERKS2_",
                "Cache<void (*)(int)>::operator<",
            ),
            (
                "_ZZ3useiENKUliE_clEi",
                "use(int)::{lambda(int)#1}::operator()",
            ),
            (
                "_ZNSt17_Function_handlerIFiiEZ3useiEUliE_E9_M_invokeERKSt9_Any_dataOi",
                "std::_Function_handler<int (int), use(int)::{lambda(int)#1}>::_M_invoke",
            ),
            ("_ZN12_GLOBAL__N_11fEPFviE", "(anonymous namespace)::f"),
            (
                "_ZN12_GLOBAL__N_15twiceIiEET_S1_",
                "(anonymous namespace)::twice<int>",
            ),
            ("_Z5applyIiJiPcEET_PFS1_DpT0_ES3_", "apply<int, int, char*>"),
            (
                "_ZN5cvmfsL12cvmfs_lookupEP8fuse_reqmPKc",
                "cvmfs::cvmfs_lookup",
            ),
            (
                "_ZNK12_GLOBAL__N_16Hidden1fEv",
                "(anonymous namespace)::Hidden::f",
            ),
            ("_ZNKR5Cache3getEv", "Cache::get"),
            // Symbols of rustc, in the older and the newer scheme.
            (
                "_ZN45_$LT$fn$LP$i32$RP$$u20$as$u20$names..Call$GT$4call17h0123456789abcdefE",
                "<fn(i32) as names::Call>::call",
            ),
            (
                "_RNvXCsd7U9rWHuKO9_5namesFlElNtB2_4Call4call",
                "<fn(i32) -> i32 as names::Call>::call",
            ),
            (
                "_RNCNvCsd7U9rWHuKO9_5names4user0B3_",
                "names::user::{closure#0}",
            ),
            (
                "_RNvXs_Csd7U9rWHuKO9_5namesThReENtB4_4Call4call",
                "<(u8, &str) as names::Call>::call",
            ),
            ("main.(*Server).loop", "main.(*Server).loop"),
            ("_ZN1aC1E\"';", "_ZN1aC1E:"),
        ];
        for (mangled, shown) in names {
            assert_eq!(tidy(&elf::demangle(mangled)), shown, "{mangled}");
        }
    }
}
