//! Functions with which threads began, from their recorded stacks: a thread's name says little (all threads of CernVM-FS
//! are called cvmfs2).

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::events::{Ev, Item, Meaning, Role, Side, ABSENT};
use crate::programs::spaces::Spaces;
use crate::programs::stacks::{is_c_library, Frames, Origin, Reach};
use crate::reader::Reader;

/// Maximum number of different stacks of a thread.
const MOST_STACKS: usize = 16;

/// Return each thread's functions, outermost first, from the first one outside of the C library to the last one before the
/// library is called again. Threads of which no recorded stack reaches the start are left out.
///
/// Frame pointers skip the caller of a function that keeps none, as those of the C library: nothing behind such a function
/// is a start.
pub fn starts(
    reader: &Reader,
    catalogue: &[Meaning],
    threads: &[i32],
) -> Result<Vec<(i32, Vec<String>)>, Error> {
    let catalogue: Vec<Meaning> = catalogue
        .iter()
        .filter(|row| matches!(row.role, Role::Switch | Role::Stack))
        .cloned()
        .collect();
    let mut starts = Starts {
        frames: crate::answers::flame::frames_of_recording(reader),
        spaces: Spaces::default(),
        build_ids: reader.build_ids(),
        roles: catalogue.iter().map(|row| row.role).collect(),
        seen: threads.iter().map(|tid| (*tid, (0, Vec::new()))).collect(),
    };
    reader.scan(&catalogue, &mut |batch| {
        starts.frames.add_chains(&batch.stacks);
        batch.in_order(|item| match item {
            Item::Event(event) => starts.event(event),
            Item::Side(record) => starts.side(record),
        });
    })?;
    let found = threads.iter().map(|tid| (*tid, starts.of(*tid)));
    Ok(found.filter(|(_, names)| !names.is_empty()).collect())
}

struct Starts<'a> {
    frames: Frames<'a>,
    spaces: Spaces,
    build_ids: FxHashMap<String, Vec<u8>>,
    roles: Vec<Role>,
    /// Process and stacks by thread.
    seen: FxHashMap<i32, (i32, Vec<u64>)>,
}

impl Starts<'_> {
    fn event(&mut self, ev: &Ev) {
        let [thread, _, _, stack] = ev.v;
        // A process's first thread began with main().
        let own = ev.tid != ev.pid && ev.pid > 0 && u64::try_from(ev.tid) == Ok(thread);
        if !own || stack == ABSENT || self.roles.get(ev.kind as usize) != Some(&Role::Switch) {
            return;
        }
        if let Some((pid, stacks)) = self.seen.get_mut(&ev.tid) {
            if *pid != ev.pid {
                (*pid, *stacks) = (ev.pid, Vec::new()); // its number is another thread's now
            }
            if stacks.len() < MOST_STACKS && !stacks.contains(&stack) {
                stacks.push(stack);
            }
        }
    }

    fn side(&mut self, record: &Side) {
        self.spaces.push(record, &self.build_ids);
    }

    fn of(&mut self, tid: i32) -> Vec<String> {
        let (pid, stacks) = self.seen.get(&tid).cloned().unwrap_or_default();
        let names = stacks.into_iter().map(|stack| self.named(stack, pid));
        names
            .into_iter()
            .find(|names| !names.is_empty())
            .unwrap_or_default()
    }

    fn named(&mut self, stack: u64, pid: i32) -> Vec<String> {
        if self.frames.reach(stack, &self.spaces, pid) != Reach::Whole {
            return Vec::new();
        }
        let frames = self.frames.of(stack, &self.spaces, pid);
        let named = frames.iter().map(|&frame| {
            let (name, origin) = &self.frames.names[frame as usize];
            let path = match origin {
                Origin::File(file) => self.frames.files[*file as usize].path.as_str(),
                _ => "",
            };
            (name, path)
        });
        let own = named.skip_while(|(_, path)| path.is_empty() || is_c_library(path));
        let own = own.take_while(|(_, path)| !path.is_empty() && !is_c_library(path));
        own.map(|(name, _)| name.to_string()).collect()
    }
}
