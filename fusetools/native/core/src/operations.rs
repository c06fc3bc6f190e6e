//! Names of FUSE operations and of system calls.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use syscalls::{aarch64, arm, x86, x86_64};

/// Operations by opcode, as in enum fuse_opcode (include/uapi/linux/fuse.h); empty where that has a gap. The first
/// stands for every unknown opcode.
const OPERATIONS: &[&str] = &[
    "unknown",
    "lookup",
    "forget",
    "getattr",
    "setattr",
    "readlink",
    "symlink",
    "",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "statfs",
    "release",
    "",
    "fsync",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "flush",
    "init",
    "opendir",
    "readdir",
    "releasedir",
    "fsyncdir",
    "getlk",
    "setlk",
    "setlkw",
    "access",
    "create",
    "interrupt",
    "bmap",
    "destroy",
    "ioctl",
    "poll",
    "notify_reply",
    "batch_forget",
    "fallocate",
    "readdirplus",
    "rename2",
    "lseek",
    "copy_file_range",
    "setupmapping",
    "removemapping",
    "syncfs",
    "tmpfile",
    "statx",
    "copy_file_range_64",
];

/// System calls that the table of names lacks. They have the same numbers on all machines.
const NEW_CALLS: [(u64, &str); 8] = [
    (463, "setxattrat"),
    (464, "getxattrat"),
    (465, "listxattrat"),
    (466, "removexattrat"),
    (467, "open_tree_attr"),
    (468, "file_getattr"),
    (469, "file_setattr"),
    (470, "listns"),
];

/// FUSE operation: its opcode if that is in OPERATIONS, else a place after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation(u8);

/// Number of operations that can be told apart, so that a set of them fits in a u128.
const MOST: usize = 128;
const FIRST_OTHER: usize = 64;

/// Opcodes without a name, in the order in which they were first seen, with a name by their number. If there are more,
/// they are unknown.
static OTHERS: [OnceLock<(u64, String)>; MOST - FIRST_OTHER] =
    [const { OnceLock::new() }; MOST - FIRST_OTHER];
/// Name of an opcode without one.
const OTHER: &str = "opcode_";

/// Return the operations that have a name, by opcode.
pub fn opcodes() -> impl Iterator<Item = (usize, &'static str)> {
    let named = OPERATIONS.iter().copied().enumerate().skip(1);
    named.filter(|(_, name)| !name.is_empty())
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Operation {
    pub const UNKNOWN: Operation = Operation(0);
    pub const LOOKUP: Operation = Operation(1);
    pub const FORGET: Operation = Operation(2);
    pub const RENAME: Operation = Operation(12);
    pub const READ: Operation = Operation(15);
    pub const BATCH_FORGET: Operation = Operation(42);
    pub const RELEASE: Operation = Operation(18);
    pub const OPENDIR: Operation = Operation(27);
    pub const RENAME2: Operation = Operation(45);
    /// CUSE_INIT, 4096 in the enumeration.
    const CUSE_INIT: Operation = Operation(63);

    pub fn of_opcode(opcode: u64) -> Operation {
        match OPERATIONS.get(opcode as usize) {
            _ if opcode == 4096 => Operation::CUSE_INIT,
            Some(name) if !name.is_empty() => Operation(opcode as u8),
            _ if opcode > u64::from(u32::MAX) => Operation::UNKNOWN,
            _ => {
                let name = || (opcode, format!("{OTHER}{opcode}"));
                let known = |slot: &OnceLock<_>| slot.get_or_init(name).0 == opcode;
                let place = OTHERS.iter().position(known);
                place.map_or(Operation::UNKNOWN, |at| Operation((FIRST_OTHER + at) as u8))
            }
        }
    }

    pub fn of_name(name: &str) -> Operation {
        let known = OPERATIONS.iter();
        let opcode = known
            .zip(0..)
            .find(|(known, _)| !known.is_empty() && **known == name);
        opcode.map_or(Operation::UNKNOWN, |(_, opcode)| Operation(opcode))
    }

    /// Return whether the callback gets a directory and a name in it.
    pub fn names_a_file(self) -> bool {
        matches!(
            self.name(),
            "lookup"
                | "create"
                | "mknod"
                | "mkdir"
                | "symlink"
                | "unlink"
                | "rmdir"
                | "rename"
                | "rename2"
        )
    }

    /// Return whether it opens a file or a directory: the system call returns a descriptor on the mount.
    pub fn opens(self) -> bool {
        matches!(self.name(), "open" | "opendir" | "create" | "tmpfile")
    }

    /// Return whether the caller always waits for the reply. Requests of other operations may be sent in the
    /// background: read-ahead, write-back, and those without an operation.
    pub fn has_caller(self) -> bool {
        self.may_wait() && !matches!(self.name(), "read" | "write" | "unknown")
    }

    /// Return whether the caller may wait for the reply.
    pub fn may_wait(self) -> bool {
        self.has_reply() && !matches!(self.name(), "release" | "releasedir" | "init")
    }

    /// Return whether the kernel expects a reply.
    pub fn has_reply(self) -> bool {
        !matches!(
            self.name(),
            "forget" | "batch_forget" | "interrupt" | "notify_reply"
        )
    }

    /// Return its number, which has no meaning outside this process.
    pub fn place(self) -> u64 {
        u64::from(self.0)
    }

    pub fn bit(self) -> u128 {
        1 << self.0
    }

    pub fn of_bits(bits: u128) -> impl Iterator<Item = Operation> {
        let mut rest = bits;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (bit < MOST as u32).then_some(Operation(bit as u8))
        })
    }

    pub fn name(self) -> &'static str {
        let place = usize::from(self.0);
        match OPERATIONS.get(place) {
            Some(name) => name,
            None if self == Operation::CUSE_INIT => "cuse_init",
            None => {
                let other = place
                    .checked_sub(FIRST_OTHER)
                    .and_then(|at| OTHERS[at].get());
                other.map_or(OPERATIONS[0], |(_, name)| name)
            }
        }
    }

    /// Return the name in the enumeration, e.g. `FUSE_LOOKUP`.
    pub fn constant(self) -> String {
        let name = self.name().to_uppercase();
        if self == Operation::CUSE_INIT {
            name
        } else {
            format!("FUSE_{name}")
        }
    }
}

/// Test of an operation's or a function's name.
pub type Pattern = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Selection of operations by their names; all without patterns.
#[derive(Clone, Default)]
pub struct Operations(Option<Arc<Selected>>);

struct Selected {
    patterns: Vec<Pattern>,
    /// By operation: NEW, SELECTED or EXCLUDED.
    known: [AtomicU8; MOST],
}

const NEW: u8 = 0;
const SELECTED: u8 = 1;
const EXCLUDED: u8 = 2;

impl Operations {
    pub fn new(patterns: Vec<Pattern>) -> Operations {
        Operations((!patterns.is_empty()).then(|| {
            Arc::new(Selected {
                patterns,
                known: [const { AtomicU8::new(NEW) }; MOST],
            })
        }))
    }

    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    pub fn has(&self, operation: Operation) -> bool {
        let Some(selected) = &self.0 else { return true };
        let known = &selected.known[usize::from(operation.0)];
        if known.load(Ordering::Relaxed) == NEW {
            let name = operation.name();
            let matches = selected.patterns.iter().any(|matches| matches(name));
            known.store(if matches { SELECTED } else { EXCLUDED }, Ordering::Relaxed);
        }
        known.load(Ordering::Relaxed) == SELECTED
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

/// Effect of a system call on its process's descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    #[default]
    None,
    /// It returns a new one of a file; its third argument is the flags, of `open` the second.
    Opens,
    OpensOld,
    /// It returns a copy of its first argument, without flags; or with flags, which are its third.
    Copies,
    CopiesWith,
    /// fcntl: some commands make a copy, one sets the flags.
    Control,
    Closes,
    /// Its third argument is the flags.
    ClosesRange,
    /// A new program: some are closed.
    Executes,
}

/// Facts about a system call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// FUSE operation that is closest to it; `UNKNOWN` if none is.
    pub operation: Operation,
    /// It reads or writes data: requests of other operations are only on the way to that.
    pub data: bool,
    /// Arguments that are descriptors: the first one (the call's own file, or the directory where a path begins), the
    /// second, the third.
    pub descriptor: bool,
    pub own_descriptor: bool,
    pub second: bool,
    pub third: bool,
    pub files: Files,
}

impl Default for Call {
    fn default() -> Call {
        Call {
            operation: Operation::UNKNOWN,
            data: false,
            descriptor: false,
            own_descriptor: false,
            second: false,
            third: false,
            files: Files::None,
        }
    }
}

/// Operation, and the system calls that are closest to it.
#[rustfmt::skip]
const CALLS_OF: [(&str, &[&str]); 29] = [
    ("read", &["read", "pread64", "readv", "preadv", "preadv2", "readahead"]),
    ("write", &["write", "pwrite64", "writev", "pwritev", "pwritev2"]),
    ("readdir", &["getdents", "getdents64"]),
    ("getattr", &["stat", "lstat", "fstat", "newfstatat", "statx"]),
    ("open", &["open", "openat", "openat2"]),
    ("create", &["creat"]),
    ("access", &["access", "faccessat", "faccessat2"]),
    ("readlink", &["readlink", "readlinkat"]),
    ("mkdir", &["mkdir", "mkdirat"]),
    ("mknod", &["mknod", "mknodat"]),
    ("unlink", &["unlink", "unlinkat"]),
    ("rmdir", &["rmdir"]),
    ("rename", &["rename", "renameat", "renameat2"]),
    ("link", &["link", "linkat"]),
    ("symlink", &["symlink", "symlinkat"]),
    ("setattr", &["chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat", "truncate",
                  "ftruncate", "utime", "utimes", "futimesat", "utimensat"]),
    ("getxattr", &["getxattr", "lgetxattr", "fgetxattr"]),
    ("setxattr", &["setxattr", "lsetxattr", "fsetxattr"]),
    ("listxattr", &["listxattr", "llistxattr", "flistxattr"]),
    ("removexattr", &["removexattr", "lremovexattr", "fremovexattr"]),
    ("fsync", &["fsync", "fdatasync", "sync_file_range"]),
    ("syncfs", &["syncfs"]),
    ("flush", &["close"]),
    ("statfs", &["statfs", "fstatfs"]),
    ("ioctl", &["ioctl"]),
    ("lseek", &["lseek"]),
    ("fallocate", &["fallocate"]),
    ("setlk", &["flock"]),
    ("copy_file_range", &["copy_file_range"]),
];
/// Further calls whose first argument is a descriptor that they work on.
const OF_DESCRIPTORS: [&str; 7] = [
    "fadvise64",
    "fcntl",
    "fchdir",
    "sendfile",
    "splice",
    "vmsplice",
    "tee",
];

impl Call {
    fn of(name: &str) -> Call {
        let of = CALLS_OF.iter().find(|(_, calls)| calls.contains(&name));
        let operation = of.map_or(Operation::UNKNOWN, |(name, _)| Operation::of_name(name));
        let from_directory =
            name.ends_with("at") && name != "fstat" && name != "stat" && name != "lstat"
                || matches!(
                    name,
                    "openat2" | "renameat2" | "faccessat2" | "fchmodat2" | "statx"
                );
        let by_path = matches!(
            name,
            "stat"
                | "lstat"
                | "open"
                | "creat"
                | "access"
                | "readlink"
                | "mkdir"
                | "mknod"
                | "unlink"
                | "rmdir"
                | "rename"
                | "link"
                | "symlink"
                | "chmod"
                | "chown"
                | "lchown"
                | "truncate"
                | "utime"
                | "utimes"
                | "getxattr"
                | "lgetxattr"
                | "setxattr"
                | "lsetxattr"
                | "listxattr"
                | "llistxattr"
                | "removexattr"
                | "lremovexattr"
                | "statfs"
        );
        let listed = of.is_some() || OF_DESCRIPTORS.contains(&name);
        let own = listed && !by_path && !from_directory;
        Call {
            operation,
            data: matches!(operation.name(), "read" | "write"),
            descriptor: own || (from_directory && name != "symlinkat"),
            own_descriptor: own,
            second: matches!(name, "sendfile" | "symlinkat"),
            third: matches!(name, "splice" | "copy_file_range"),
            files: match name {
                "openat" | "openat2" => Files::Opens,
                "open" | "creat" => Files::OpensOld,
                "dup" | "dup2" => Files::Copies,
                "dup3" => Files::CopiesWith,
                "fcntl" => Files::Control,
                "close" => Files::Closes,
                "close_range" => Files::ClosesRange,
                "execve" | "execveat" => Files::Executes,
                _ => Files::None,
            },
        }
    }
}

/// Kind of machine, which determines the numbers of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
    Other,
}

/// Upper bound of the numbers of system calls.
const CALLS: u64 = 1024;
/// Bit in the number of a 32-bit program's system call that the machine itself lacks.
const ONLY_32BIT: u64 = 1 << 32;
/// Number of a page fault in place of a system call's.
pub const PAGE_FAULT: u64 = 1 << 33;

impl Arch {
    /// Return the architecture of a machine. `name` is as in `uname -m` and perf's HEADER_ARCH.
    pub fn new(name: Option<&str>) -> Arch {
        match name {
            Some("x86_64") => Arch::X86_64,
            Some("aarch64") => Arch::Aarch64,
            _ => Arch::Other,
        }
    }

    pub fn syscall(self, number: u64) -> String {
        self.syscall_text(number).into_owned()
    }

    /// Return the same, without a copy of known names.
    pub(crate) fn syscall_text(self, number: u64) -> Cow<'static, str> {
        if number == PAGE_FAULT {
            return "page_fault".into();
        }
        let name = self.call_name(number & !ONLY_32BIT, number & ONLY_32BIT != 0);
        name.map_or_else(
            || format!("syscall_{}", number & !ONLY_32BIT).into(),
            Cow::from,
        )
    }

    /// Return a system call's name by the number that a program uses. `is_32bit`: the program is a 32-bit one.
    pub fn call_name(self, number: u64, is_32bit: bool) -> Option<&'static str> {
        if is_32bit {
            self.name_32bit(number)
        } else {
            self.name_64bit(number)
        }
    }

    fn name_64bit(self, number: u64) -> Option<&'static str> {
        let name = match self {
            Arch::X86_64 => x86_64::Sysno::new(number as usize).map(|call| call.name()),
            // The table has the C library's name; the kernel's function is the same as on x86_64.
            Arch::Aarch64 => match aarch64::Sysno::new(number as usize).map(|call| call.name()) {
                Some("fstatat") => Some("newfstatat"),
                name => name,
            },
            Arch::Other => return None,
        };
        name.or_else(|| new_call(number))
    }

    fn name_32bit(self, number: u64) -> Option<&'static str> {
        let name = match self {
            Arch::X86_64 => x86::Sysno::new(number as usize).map(|call| call.name()),
            Arch::Aarch64 => arm::Sysno::new(number as usize).map(|call| call.name()),
            Arch::Other => return None,
        };
        name.or_else(|| new_call(number))
    }

    /// Return the number of the machine's own system call with the same name as a 32-bit program's call. Without one,
    /// return the program's number, marked with ONLY_32BIT.
    pub fn from_32bit(self, number: u64) -> u64 {
        if number >= CALLS {
            return number;
        }
        let name = self.name_32bit(number);
        let own = (0..CALLS).find(|&own| name.is_some() && self.name_64bit(own) == name);
        own.unwrap_or(number | ONLY_32BIT)
    }

    /// Return the facts about all system calls, by number.
    pub fn calls(self) -> Vec<Call> {
        let name = |number| self.name_64bit(number);
        let of = |number| name(number).map_or(Call::default(), Call::of);
        (0..CALLS).map(of).collect()
    }

    /// Return whether the call reads or writes a file's data.
    pub fn is_data(self, number: u64) -> bool {
        self.name_64bit(number)
            .is_some_and(|name| Call::of(name).data)
    }

    /// Return whether the call works on the file of the descriptor that is its first argument.
    pub fn is_on_descriptor(self, number: u64) -> bool {
        self.name_64bit(number)
            .is_some_and(|name| Call::of(name).own_descriptor)
    }

    /// Return whether this is no system call of the task. -1 means none. On x86-64 a uretprobe's trampoline enters the
    /// kernel as 335, a uprobe's as 336 (arch/x86/kernel/uprobes.c).
    pub fn is_fake(self, number: u64) -> bool {
        number & !ONLY_32BIT >= CALLS || (self == Arch::X86_64 && matches!(number, 335 | 336))
    }

    /// Return whether the call is io_uring_enter, which can bring a request and still return 0.
    pub fn is_ring(self, number: u64) -> bool {
        self != Arch::Other && number == 426
    }

    /// Return whether the call works on sockets, which may fail because they are not connected.
    pub fn is_socket(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => matches!(number, 41..=55 | 288 | 299 | 307),
            Arch::Aarch64 => matches!(number, 198..=212 | 242 | 243 | 269),
            Arch::Other => false,
        }
    }

    /// Return whether the call is splice: its first argument is the source, its third the destination.
    pub fn is_splice(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => number == 275,
            Arch::Aarch64 => number == 76,
            Arch::Other => false,
        }
    }

    /// Return whether the call can answer a request: write, writev, pwrite64, pwritev, splice.
    pub fn is_write(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => matches!(number, 1 | 18 | 20 | 275 | 296),
            Arch::Aarch64 => matches!(number, 64 | 66 | 68 | 70 | 76),
            Arch::Other => false,
        }
    }

    /// Return whether the call connects its first argument, a socket.
    pub fn is_connect(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => number == 42,
            Arch::Aarch64 => number == 203,
            Arch::Other => false,
        }
    }

    /// Return whether the call can change the user of its process, or may be one that can.
    pub fn changes_user(self, number: u64) -> bool {
        let name = self.call_name(number & !ONLY_32BIT, number & ONLY_32BIT != 0);
        let own = |name: &str| matches!(name, "setuid" | "setreuid" | "setresuid");
        self == Arch::Other || name.is_some_and(|name| own(name.trim_end_matches("32")))
    }

    /// Return whether the call closes its first argument, a descriptor.
    pub fn is_close(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => number == 3,
            Arch::Aarch64 => number == 57,
            Arch::Other => false,
        }
    }

    /// Return whether the call can bring a daemon a request: read, readv, pread64, preadv, splice, io_uring_enter.
    pub fn is_read(self, number: u64) -> bool {
        match self {
            Arch::X86_64 => matches!(number, 0 | 17 | 19 | 275 | 295 | 426),
            Arch::Aarch64 => matches!(number, 63 | 65 | 67 | 69 | 76 | 426),
            Arch::Other => false,
        }
    }
}

fn new_call(number: u64) -> Option<&'static str> {
    let call = NEW_CALLS.iter().find(|(own, _)| *own == number);
    call.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        // From include/uapi/linux/fuse.h.
        for (opcode, name) in [
            (1, "lookup"),
            (15, "read"),
            (42, "batch_forget"),
            (44, "readdirplus"),
            (52, "statx"),
        ] {
            let operation = Operation::of_opcode(opcode);
            assert_eq!(operation.name(), name);
            assert_eq!(Operation::of_name(name), operation);
        }
        assert_eq!(Operation::of_opcode(1).constant(), "FUSE_LOOKUP");
        assert_eq!(Operation::of_opcode(4096).constant(), "CUSE_INIT");
        for opcode in [
            7,
            19,
            OPERATIONS.len() as u64,
            62,
            63,
            64,
            77,
            257,
            4097,
            u64::from(u32::MAX),
        ] {
            let operation = Operation::of_opcode(opcode);
            assert_eq!(operation.name(), format!("opcode_{opcode}"));
            assert_eq!(operation.constant(), format!("FUSE_OPCODE_{opcode}"));
            assert_eq!(Operation::of_opcode(opcode), operation);
            assert_eq!(Operation::of_bits(operation.bit()).next(), Some(operation));
        }
        for unknown in [0, u64::MAX] {
            assert_eq!(Operation::of_opcode(unknown), Operation::UNKNOWN);
        }
        assert_eq!(Operation::of_name("unknown"), Operation::UNKNOWN);
        let wanted = Operations::new(vec![
            Box::new(|name| name.starts_with("opcode_7")),
            Box::new(|name| name == "read"),
        ]);
        let has = |opcode| wanted.has(Operation::of_opcode(opcode));
        for _ in 0..2 {
            assert!(has(15) && has(7) && has(77) && !has(16) && !has(63) && !has(4096));
        }
        assert!(Operations::default().has(Operation::UNKNOWN));
        let set = Operation::of_opcode(3).bit() | Operation::of_opcode(4096).bit();
        assert_eq!(
            Operation::of_bits(set)
                .map(Operation::name)
                .collect::<Vec<_>>(),
            ["getattr", "cuse_init"]
        );
    }

    #[test]
    fn facts_about_system_calls() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let calls = arch.calls();
            let of = |name: &str| {
                let number = (0..CALLS).find(|n| arch.name_64bit(*n) == Some(name));
                calls[number.unwrap() as usize]
            };
            let facts = |name| {
                let call = of(name);
                (
                    call.operation.name(),
                    call.data,
                    call.descriptor,
                    call.own_descriptor,
                )
            };
            assert_eq!(facts("pwrite64"), ("write", true, true, true));
            assert_eq!(facts("preadv2"), ("read", true, true, true));
            assert_eq!(facts("fstat"), ("getattr", false, true, true));
            assert_eq!(facts("newfstatat"), ("getattr", false, true, false));
            assert_eq!(facts("getdents64"), ("readdir", false, true, true));
            assert_eq!(facts("getxattr"), ("getxattr", false, false, false));
            assert_eq!(facts("close"), ("flush", false, true, true));
            assert_eq!(facts("futex"), ("unknown", false, false, false));
            assert_eq!(of("dup3").files, Files::CopiesWith);
            assert!(of("splice").third && of("sendfile").second);
        }
        for (operation, names) in CALLS_OF {
            assert_ne!(
                Operation::of_name(operation),
                Operation::UNKNOWN,
                "{operation}"
            );
            for name in names {
                let known = (0..CALLS).any(|n| Arch::X86_64.name_64bit(n) == Some(name));
                assert!(known, "{name}");
            }
        }
    }

    #[test]
    fn system_calls() {
        assert_eq!(Arch::new(Some("x86_64")).syscall(262), "newfstatat");
        assert_eq!(Arch::new(Some("aarch64")).syscall(56), "openat");
        assert_eq!(Arch::new(Some("s390x")).syscall(5), "syscall_5");
        for arch in [Arch::X86_64, Arch::Aarch64] {
            assert_eq!(arch.syscall(463), "setxattrat");
            assert_eq!(arch.syscall(468), "file_getattr");
            assert_eq!(arch.syscall(arch.from_32bit(466)), "removexattrat");
            let writes: Vec<String> = (0..1024)
                .filter(|n| arch.is_write(*n))
                .map(|n| arch.syscall(n))
                .collect();
            for name in ["write", "writev", "pwrite64", "pwritev", "splice"] {
                assert!(writes.iter().any(|write| write == name), "{name}");
            }
            let connects = (0..1024).filter(|n| arch.is_connect(*n));
            assert_eq!(
                connects.map(|n| arch.syscall(n)).collect::<Vec<_>>(),
                ["connect"]
            );
            let closes = (0..1024).filter(|n| arch.is_close(*n));
            assert_eq!(
                closes.map(|n| arch.syscall(n)).collect::<Vec<_>>(),
                ["close"]
            );
        }
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let reads: Vec<String> = (0..1024)
                .filter(|n| arch.is_read(*n))
                .map(|n| arch.syscall(n))
                .collect();
            let sockets = (0..1024).filter(|n| arch.is_socket(*n));
            let sockets: Vec<String> = sockets.map(|n| arch.syscall(n)).collect();
            assert_eq!(sockets.len(), 18);
            for name in ["getpeername", "sendmmsg", "recvmsg", "shutdown"] {
                assert!(sockets.iter().any(|known| known == name), "{name}");
            }
            let mut expected = [
                "read",
                "readv",
                "pread64",
                "preadv",
                "splice",
                "io_uring_enter",
            ]
            .map(str::to_owned);
            let mut reads = reads;
            reads.sort();
            expected.sort();
            assert_eq!(reads, expected);
        }
        for (arch, number, name) in [
            (Arch::X86_64, 3, "read"),
            (Arch::X86_64, 300, "fstatat64"),
            (Arch::X86_64, 999, "syscall_999"),
            (Arch::Aarch64, 322, "openat"),
            (Arch::Other, 3, "syscall_3"),
        ] {
            let number = arch.from_32bit(number);
            assert_eq!(arch.syscall(number), name);
            assert!(!arch.is_fake(number), "{name}");
            assert_eq!(arch.is_read(number), name == "read" && arch != Arch::Other);
        }
        assert!(Arch::X86_64.is_fake(Arch::X86_64.from_32bit(u64::MAX)));
        assert!(
            Arch::X86_64.is_fake(335)
                && Arch::X86_64.is_fake(u64::MAX)
                && !Arch::Aarch64.is_fake(335)
        );
    }
}
