//! The stacks of a recording while it is written: copies of user stacks are unwound, and all functions in stacks are
//! named.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::returns::Returns;
use super::waits::{read, Alike, Scope, Shares, Tells, Waits};
use crate::error::Error;
use crate::events::{Map, Side};
use crate::format::file::Attr;
use crate::format::record::{bit, u64_at, Layout, Waited};
use crate::programs::files::Files;
use crate::programs::functions::{is_of_program, Programs};
use crate::programs::generated::{self, is_generated};
use crate::programs::spaces::Spaces;
use crate::programs::stacks::{Reach, CONTEXT_KERNEL, CONTEXT_MAX, CONTEXT_USER};
use crate::programs::symbols::{Kernel, Table};
use crate::programs::unwind::{can_unwind, only_address, Copied, Machine, Unwinding, Unwound};
use crate::reader::{space_change, Reader};

/// Maximum number of different stacks that are remembered as done, and of different places in files that are to be
/// named.
const MOST_SEEN: usize = 1 << 20;
const MOST_PLACES: usize = 1 << 22;

/// The part of a process's memory and registers that a sample holds.
pub(super) const MEMORY: u64 = bit::REGS_USER | bit::STACK_USER;

/// Return the register mask of an event whose samples' copies of user stacks can be unwound.
pub(super) fn copied(reader: &Reader, attr: &Attr) -> Option<u64> {
    let layout = &attr.layout;
    let arch = arch(reader);
    // perf_event_attr.sample_regs_user
    let mask = u64_at(&attr.raw, 80)?;
    let stacks = layout.has_user_stack() && layout.has_chain() && attr.raw.len() >= 96;
    (stacks && can_unwind(Some(&arch), mask)).then_some(mask)
}

/// Return the processor of a recording; this host's if the recording does not name it.
fn arch(reader: &Reader) -> String {
    reader
        .arch()
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Return the processor of a recording with copies of stacks.
pub(super) fn machine(reader: &Reader) -> Machine {
    Machine::of(Some(&arch(reader))).unwrap_or_default()
}

/// Return whether an event of a recording has copies of user stacks that can be unwound.
pub(super) fn has_copies(reader: &Reader) -> bool {
    let mut attrs = reader.attrs().iter();
    attrs.any(|attr| copied(reader, attr).is_some())
}

/// Maximum number of threads in system calls whose stacks at the entry are kept.
const MOST_ENTERED: usize = 1 << 12;

/// Maximum time to take a stack, in ns; a longer time means that it was interrupted.
const MOST_TAKEN: u64 = 100_000;

/// The user stack with which a thread entered its current system call.
enum Entered {
    Copied {
        mask: u64,
        registers: Vec<u64>,
        is_32bit: bool,
        bytes: Vec<u8>,
        full: bool,
        time: u64,
    },
    Known(Option<Unwound>),
}

/// Return the words of a call chain.
pub(super) fn words(chain: &[u8]) -> Vec<u64> {
    let words = chain.chunks_exact(8).filter_map(|word| u64_at(word, 0));
    words.collect()
}

/// The result of processing a sample.
pub(super) enum Stacked {
    AsIs,
    Anew(Vec<u8>),
    /// It becomes a part of the next sample.
    LeftOut,
    /// The sample contradicts itself.
    Broken,
}

pub(super) struct Stacks<'a> {
    /// None: the recorded programs are not on this host.
    files: Option<&'a Files>,
    build_ids: FxHashMap<String, Vec<u8>>,
    spaces: Spaces,
    pub(super) unwinding: Unwinding,
    returns: Returns,
    /// By thread: the number of the call, if another event will report that entry or has just reported it.
    entered: FxHashMap<i32, (Entered, Option<u64>)>,
    waits: Waits,
    /// By thread: the time when perf began to take a stack whose event ftrace records next.
    begun: FxHashMap<i32, u64>,
    pub(super) scope: Scope,
    /// User stacks of processes outside of the scope, and addresses outside of code, are left out. With frame pointers,
    /// the kernel may take any word of a program without them for an address.
    pub(super) private: bool,
    seen: FxHashSet<u64>,
    kernel: FxHashSet<u64>,
    /// By file of the address spaces: places in the file.
    user: FxHashMap<u32, FxHashSet<u64>>,
    /// By process, addresses in code that it generated.
    generated: FxHashMap<i32, FxHashSet<u64>>,
    places: usize,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(
        files: Option<&'a Files>,
        build_ids: FxHashMap<String, Vec<u8>>,
        returns: Returns,
        later: Alike,
    ) -> Stacks<'a> {
        Stacks {
            files,
            build_ids,
            spaces: Spaces::default(),
            unwinding: Unwinding::default(),
            returns,
            entered: FxHashMap::default(),
            waits: Waits::new(later),
            begun: FxHashMap::default(),
            scope: Scope::default(),
            private: false,
            seen: FxHashSet::default(),
            kernel: FxHashSet::default(),
            user: FxHashMap::default(),
            generated: FxHashMap::default(),
            places: 0,
        }
    }

    /// Process a record that may change an address space.
    pub(super) fn change(&mut self, record: &[u8]) {
        // Names end by themselves, before the sample id.
        if let (Some(_), Some(side)) = (self.files, space_change(record, 0)) {
            self.spaces.push(&side, &self.build_ids);
        }
    }

    pub(super) fn map(&mut self, map: &Map) {
        let side = Side::Map(Box::new(map.clone()));
        self.spaces.push(&side, &self.build_ids);
    }

    /// Process a sample. `copied`: its register mask if its stack is to be unwound; `by_address`: it shows the
    /// processor's position, with or without a stack. `alone`: only its stack is used; ftrace recorded the rest. A
    /// thread that waits in a system call has the same user stack as at the call's entry: if that stack was copied, the
    /// wait gets it.
    pub(super) fn sample(
        &mut self,
        layout: &Layout,
        copied: Option<u64>,
        by_address: bool,
        tells: Tells,
        alone: bool,
        record: &[u8],
    ) -> Stacked {
        let (pid, tid) = layout.task(record).unwrap_or((-1, -1));
        let entered = matches!(tells, Tells::Entered { .. });
        let number = match tells {
            Tells::Entered { nr, .. } => layout.raw(record).and_then(|raw| read(raw, nr)),
            _ => None,
        };
        let time = u64_at(record, layout.time).filter(|_| layout.time != 0);
        if tells == Tells::Left {
            self.called(tid);
        } else if entered && !alone {
            self.entered(tid, number, time.unwrap_or(0));
        }
        if let Some(time) = time.filter(|_| alone) {
            if self.begun.len() >= MOST_ENTERED {
                self.begun.clear();
            }
            self.begun.insert(tid, time);
        }
        let reported_later = alone.then_some(number.unwrap_or(u64::MAX));
        if !layout.has_chain() && !by_address {
            return Stacked::AsIs;
        }
        let Some(chain) = layout.chain(record) else {
            return Stacked::Broken;
        };
        let chain_at = (chain.as_ptr() as usize).checked_sub(record.as_ptr() as usize + 8);
        let after_chain = chain_at.map(|at| at + 8 + chain.len());
        let mut chain = words(chain);
        if entered && copied.is_none() {
            self.permit(pid, &mut chain);
            let of_user = chain.iter().position(|ip| *ip == CONTEXT_USER);
            let user = of_user.map(|at| Unwound {
                chain: chain.split_off(at + 1),
                reach: Reach::Whole, // with frame pointers, nothing shows the opposite
            });
            // A copy of the stack shows more.
            if alone || !self.entered.contains_key(&tid) {
                self.enter(tid, Entered::Known(user), reported_later);
            }
            if alone {
                return Stacked::LeftOut;
            }
            let (Some(at), Some(after)) = (chain_at, after_chain) else {
                return Stacked::AsIs;
            };
            return with_chain(record, at, [after..record.len(), 0..0], &[])
                .map_or(Stacked::Broken, Stacked::Anew);
        }
        let mut anew = None;
        if let (Some(mask), Some(files)) = (copied, self.files) {
            let Some(user) = layout.user_stack(record, mask) else {
                return Stacked::Broken;
            };
            if entered {
                let entered = Entered::Copied {
                    mask,
                    registers: user.registers,
                    is_32bit: user.is_32bit,
                    bytes: user.bytes.to_vec(),
                    full: user.full,
                    time: time.unwrap_or(0),
                };
                self.enter(tid, entered, reported_later);
                if alone {
                    return Stacked::LeftOut;
                }
                let parts = [user.raw..user.place.start, user.place.end..record.len()];
                return with_chain(record, user.chain, parts, &[])
                    .map_or(Stacked::Broken, Stacked::Anew);
            }
            let of_user = chain.iter().position(|ip| *ip == CONTEXT_USER);
            chain.truncate(of_user.unwrap_or(chain.len()));
            let (registers, spaces) = (&user.registers, &self.spaces);
            let mut returns = self.returns.of(tid, time.unwrap_or(0));
            let unwound = match user.is_32bit {
                // Tables of 32-bit programs are not read.
                true => only_address(self.unwinding.machine, mask, registers),
                false => {
                    let copy = Copied {
                        mask,
                        registers,
                        stack: user.bytes,
                        full: user.full,
                    };
                    self.unwinding
                        .chain(&copy, spaces, files, pid, &mut returns)
                }
            };
            if let Some(unwound) = unwound {
                add_user(&mut chain, &unwound);
                self.permit(pid, &mut chain);
            }
            let parts = [user.raw..user.place.start, user.place.end..record.len()];
            let Some(out) = with_chain(record, user.chain, parts, &chain) else {
                return Stacked::Broken;
            };
            anew = Some(out);
        } else if let (Tells::Switched(_), Some(at), Some(after)) = (tells, chain_at, after_chain) {
            if let Some(user) = self.of_entry(pid, tid) {
                let of_user = chain.iter().position(|ip| *ip == CONTEXT_USER);
                chain.truncate(of_user.unwrap_or(chain.len()));
                add_user(&mut chain, &user);
                self.permit(pid, &mut chain);
                let parts = [after..record.len(), 0..0];
                let Some(out) = with_chain(record, at, parts, &chain) else {
                    return Stacked::Broken;
                };
                anew = Some(out);
            }
        }
        if self.permit(pid, &mut chain) {
            let places = chain_at.zip(after_chain);
            let out = places.and_then(|(at, after)| {
                with_chain(record, at, [after..record.len(), 0..0], &chain)
            });
            let Some(out) = out else {
                return Stacked::Broken;
            };
            anew = Some(out);
        }
        if alone {
            let cpu = layout.cpu(record).unwrap_or(0);
            self.waits.take(cpu, tid, chain);
            return Stacked::LeftOut;
        }
        let own = u64_at(record, layout.ip).filter(|_| layout.ip != 0);
        self.gather(pid, &chain, own);
        anew.map_or(Stacked::AsIs, Stacked::Anew)
    }

    /// Process the raw data of a wait by `perf record --off-cpu`.
    pub(super) fn waited(&mut self, raw: &[u8]) {
        if let Some(waited) = Waited::of(raw) {
            let (pid, _) = self.spaces.in_order(waited.task);
            self.gather(pid, &words(waited.chain), None);
        }
    }

    /// Remove the words of a chain's user part that the reader may not see. Return whether there were any.
    fn permit(&self, pid: i32, chain: &mut Vec<u64>) -> bool {
        let is_user = |ip: &u64| *ip >= CONTEXT_MAX && *ip != CONTEXT_KERNEL;
        let Some(at) = chain.iter().position(is_user).filter(|_| self.private) else {
            return false;
        };
        if !self.scope.of(pid) {
            chain.truncate(at);
            return true;
        }
        let space = self.spaces.of(pid);
        let is_code = |ip: &&u64| space.is_some_and(|space| space.find(**ip).is_some());
        let user = &chain[at + 1..];
        let marks = user.iter().rev().take_while(|ip| **ip == CONTEXT_USER);
        let (marks, all) = (marks.count(), user.len());
        let code = user.iter().take_while(is_code).count();
        if code + marks >= all && marks <= 2 {
            return false;
        }
        chain.truncate(at + 1 + code);
        chain.push(CONTEXT_USER);
        true
    }

    /// Note that a thread enters or leaves a system call, by an event without a stack.
    pub(super) fn called(&mut self, tid: i32) {
        if !self.entered.is_empty() {
            self.entered.remove(&tid);
        }
    }

    /// Note that a thread enters a system call, by an event without a stack. The stack of the entry may have been taken
    /// right before.
    pub(super) fn entered(&mut self, tid: i32, number: Option<u64>, time: u64) {
        self.taken(tid, time);
        match self.entered.get_mut(&tid) {
            Some((_, reported_later))
                if reported_later.is_some()
                    && *reported_later == Some(number.unwrap_or(u64::MAX)) =>
            {
                *reported_later = None;
            }
            Some(_) => self.called(tid),
            None => {}
        }
    }

    fn enter(&mut self, tid: i32, entered: Entered, reported_later: Option<u64>) {
        if self.entered.len() >= MOST_ENTERED {
            self.entered.clear();
        }
        self.entered.insert(tid, (entered, reported_later));
    }

    /// Note an ftrace event about a thread that may wait afterwards.
    pub(super) fn note(&mut self, tells: Tells, tid: i32, raw: &[u8]) {
        self.waits.note(tells, tid, Some(raw));
    }

    /// Return the stack of a switch that ftrace recorded: perf's stack of the switch, or of a similar one.
    pub(super) fn switched(
        &mut self,
        (pid, tid): (i32, i32),
        (cpu, time): (u32, u64),
        state: Option<(usize, usize)>,
        raw: &[u8],
    ) -> Option<Vec<u64>> {
        if tid <= 0 {
            return None;
        }
        self.taken(tid, time);
        let known = self.waits.switched((pid, tid), cpu, state, raw);
        let user = self.of_entry(pid, tid);
        if known.is_none() && user.is_none() {
            return None;
        }
        let mut chain = known.unwrap_or_default();
        if let Some(user) = user {
            let of_user = chain.iter().position(|ip| *ip == CONTEXT_USER);
            chain.truncate(of_user.unwrap_or(chain.len()));
            add_user(&mut chain, &user);
        }
        self.permit(pid, &mut chain);
        self.gather(pid, &chain, None);
        Some(chain)
    }

    /// Note an ftrace event whose stack perf has just taken. The time between the two is the stack's cost.
    fn taken(&mut self, tid: i32, time: u64) {
        let took = self
            .begun
            .remove(&tid)
            .map(|from| time.saturating_sub(from));
        if let Some(took) = took.filter(|&took| took < MOST_TAKEN) {
            self.waits.shares.ns += took;
        }
    }

    pub(super) fn shares(&self) -> Shares {
        self.waits.shares
    }

    pub(super) fn later(&mut self) -> Option<Alike> {
        self.waits.later()
    }

    /// Return the user stack of a thread in a system call, if it was copied at the call's entry.
    fn of_entry(&mut self, pid: i32, tid: i32) -> Option<Unwound> {
        let files = self.files?;
        let (entered, _) = self.entered.get_mut(&tid)?;
        if let Entered::Copied {
            mask,
            registers,
            is_32bit,
            bytes,
            full,
            time,
        } = entered
        {
            let unwound = match is_32bit {
                true => only_address(self.unwinding.machine, *mask, registers),
                false => self.unwinding.chain(
                    &Copied {
                        mask: *mask,
                        registers,
                        stack: bytes,
                        full: *full,
                    },
                    &self.spaces,
                    files,
                    pid,
                    &mut self.returns.of(tid, *time),
                ),
            };
            *entered = Entered::Known(unwound);
        }
        match entered {
            Entered::Known(user) => user.clone(),
            Entered::Copied { .. } => None,
        }
    }

    /// Forget which calls threads are in, as records were lost.
    pub(super) fn lost(&mut self) {
        self.entered.clear();
    }

    fn gather(&mut self, pid: i32, chain: &[u64], own: Option<u64>) {
        let version = self.spaces.of(pid).map_or(0, |space| space.version);
        let mut hasher = DefaultHasher::new();
        (version, chain, own).hash(&mut hasher);
        if self.seen.len() == MOST_SEEN {
            self.seen.clear();
        }
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        for &ip in chain.iter().chain(&own) {
            if ip as i64 <= 0 {
                // Marks lie above all addresses of the kernel and have no names.
                if self.kernel.len() < MOST_PLACES {
                    self.kernel.insert(ip);
                }
                continue;
            }
            let mapping = self.spaces.of(pid).and_then(|space| space.find(ip));
            let Some(mapping) = mapping.filter(|_| self.places < MOST_PLACES) else {
                continue;
            };
            let new = if is_generated(&self.spaces.files[mapping.file as usize].path) {
                self.generated.entry(pid).or_default().insert(ip)
            } else {
                let place = (ip - mapping.start).wrapping_add(mapping.offset);
                self.user.entry(mapping.file).or_default().insert(place)
            };
            self.places += usize::from(new);
        }
    }

    /// Return the lines of kallsyms that name the functions in stacks, together with the lines that the inputs held
    /// already. `kallsyms`: that of the traced kernel, if available.
    pub(super) fn symbols(
        self,
        held: &[&[u8]],
        kallsyms: Option<Cow<'_, [u8]>>,
    ) -> Result<Vec<u8>, Error> {
        let mut programs = Programs::default();
        let mut lines: Vec<&[u8]> = Vec::new();
        for text in held {
            programs.read(text);
            let of_kernel = text.split(|&byte| byte == b'\n');
            lines.extend(of_kernel.filter(|line| !line.is_empty() && !is_of_program(line)));
        }
        if let Some(files) = self.files {
            for (file, places) in self.user {
                let file = &self.spaces.files[file as usize];
                if let Some(table) = Table::of(file, files) {
                    programs.add(file, &table, places.into_iter());
                }
            }
            for (pid, addresses) in self.generated {
                let space = self.spaces.of(pid);
                let table = space
                    .and_then(|space| generated::table_of(pid, space, &self.spaces.files, files));
                if let Some(table) = table {
                    let file = generated::file_of(pid);
                    programs.add(&file, &table, addresses.into_iter());
                }
            }
        }
        let kernel = match self.kernel.is_empty() {
            true => None,
            false => kallsyms.and_then(Kernel::new),
        };
        let extract = kernel.map(|kernel| kernel.extract(self.kernel.into_iter()));
        let extract = extract.unwrap_or_default();
        let of_extract = extract.split(|&byte| byte == b'\n');
        lines.extend(of_extract.filter(|line| !line.is_empty()));
        lines.sort_unstable();
        lines.dedup();
        let mut out: Vec<u8> = lines
            .into_iter()
            .flat_map(|line| [line, b"\n"].concat())
            .collect();
        out.extend(programs.lines());
        match u32::try_from(out.len()) {
            Ok(_) => Ok(out),
            Err(_) => Err(Error::mismatch(
                "their lists of symbols are longer than 4 GiB",
            )),
        }
    }
}

/// Return a sample without its copy of the stack and registers; None if it contradicts itself.
pub(super) fn without(layout: &Layout, mask: u64, record: &[u8]) -> Option<Vec<u8>> {
    let place = layout.user_stack(record, mask)?.place;
    let mut out = [record.get(..place.start)?, record.get(place.end..)?].concat();
    let size = u16::try_from(out.len()).ok()?;
    out.get_mut(6..8)?.copy_from_slice(&size.to_le_bytes());
    Some(out)
}

/// Return a sample with another call chain at `at`, shortened if it would be too long, and with only `parts` of what
/// follows.
pub(super) fn with_chain(
    record: &[u8],
    at: usize,
    parts: [Range<usize>; 2],
    chain: &[u64],
) -> Option<Vec<u8>> {
    let room = usize::from(u16::MAX) & !7;
    let others = at + 8 + parts.iter().map(ExactSizeIterator::len).sum::<usize>();
    let chain = &chain[..chain.len().min(room.saturating_sub(others) / 8)];
    let mut out = Vec::with_capacity(others + 8 * chain.len());
    out.extend(record.get(..at)?);
    out.extend((chain.len() as u64).to_le_bytes());
    chain.iter().for_each(|ip| out.extend(ip.to_le_bytes()));
    for part in parts {
        out.extend(record.get(part)?);
    }
    let size = u16::try_from(out.len()).ok()?;
    out.get_mut(6..8)?.copy_from_slice(&size.to_le_bytes());
    Some(out)
}

/// Append a user stack. An incomplete stack ends with an additional mark of a user's part, of which nothing is known;
/// with two such marks if more was to be copied. perf skips these marks.
fn add_user(chain: &mut Vec<u64>, user: &Unwound) {
    chain.push(CONTEXT_USER);
    chain.extend(&user.chain);
    let marks = match user.reach {
        Reach::Whole | Reach::Unfollowed => 0,
        Reach::Cut => 1,
        Reach::Copied => 2,
    };
    chain.extend(std::iter::repeat_n(CONTEXT_USER, marks));
}
