//! User stacks of threads that sleep in the kernel at this moment, taken without stopping them. The sources are the
//! instruction and stack pointers in /proc/PID/task/TID/syscall (proc_pid_syscall(5)), and the stack above.

use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::events::{Map, Side};
use crate::programs::files::Files;
use crate::programs::functions::Programs;
use crate::programs::spaces::{MappedFile, Spaces};
use crate::programs::stacks::{Frames, Reach};
use crate::programs::unwind::{Copied, Machine, Unwinding};

/// Code that a process has mapped: addresses, offset in its file, its path there, and the path that reaches it here.
#[derive(Clone, Debug)]
pub struct Code {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
    pub place: PathBuf,
}

/// Position of a thread, and the bytes from its stack pointer up.
#[derive(Clone, Debug)]
pub struct Thread {
    pub ip: u64,
    pub sp: u64,
    pub stack: Vec<u8>,
}

/// Return the names of each thread's functions, innermost first, and whether they reach the thread's start. The frame
/// pointer is unknown. Where a function's caller is found by it alone, the function's own code tells the place, or the
/// stack ends. x86-64 and aarch64 only. Debug files are not looked for below the mount points `avoid`.
pub fn stacks(code: &[Code], threads: &[Thread], avoid: Vec<PathBuf>) -> Vec<(Vec<String>, bool)> {
    let pid = 1; // any: there is only this process
    let mut spaces = Spaces::default();
    let mut files = Files {
        avoid,
        ..Files::default()
    };
    for part in code {
        let map = Map {
            time: 0,
            pid,
            start: part.start,
            len: part.end.saturating_sub(part.start),
            offset: part.offset,
            path: part.path.clone(),
            build_id: Vec::new(),
        };
        spaces.push(&Side::Map(Box::new(map)), &FxHashMap::default());
        let file = MappedFile {
            path: part.path.clone(),
            build_id: Vec::new(),
        };
        files.places.insert(file, part.place.clone());
    }
    let Some(machine) = Machine::of(Some(std::env::consts::ARCH)) else {
        return threads.iter().map(|_| (Vec::new(), false)).collect();
    };
    let mut unwinding = Unwinding::new(machine);
    let mut chains = Vec::new();
    for thread in threads {
        let copy = Copied {
            mask: machine.least(),
            registers: &[thread.sp, thread.ip],
            stack: &thread.stack,
            full: false,
        };
        let none = &mut std::iter::empty();
        chains.push(unwinding.chain(&copy, &spaces, &files, pid, none));
    }
    let mut frames = Frames::new(None, Programs::default(), Some(files));
    let named = chains.into_iter().map(|unwound| {
        let Some(unwound) = unwound else {
            return (Vec::new(), false);
        };
        let numbers = unwound
            .chain
            .iter()
            .map(|&address| frames.of_address(address, &spaces, pid));
        let numbers: Vec<u32> = numbers.collect();
        let names = numbers
            .iter()
            .map(|&number| frames.names[number as usize].0.to_string());
        (names.collect(), unwound.reach == Reach::Whole)
    });
    named.collect()
}
