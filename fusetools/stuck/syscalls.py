"""System calls that can wait for a file system, a lock or another process, and which arguments are
paths and descriptors.

Sources: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h and the man pages
of section 2.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from fusetools.core import native


class Call(NamedTuple):
    """Paths and descriptors among a system call's arguments.

    ``paths``: (argument that holds the directory's descriptor or None, argument that points to the
    path); ``descriptors``: arguments that are descriptors. close's is left out: while close waits,
    the number is free, or refers to another file.
    """

    name: str
    paths: tuple[tuple[int | None, int], ...]
    descriptors: tuple[int, ...]


# Name, number on x86-64, number on arm64 (-: none), arguments. p1: a path; a1: a directory's
# descriptor, followed by a path; f1: a descriptor.
_TABLE = """
read 0 63 f0
write 1 64 f0
open 2 - p0
close 3 57
stat 4 - p0
fstat 5 80 f0
lstat 6 - p0
poll 7 -
lseek 8 62 f0
mmap 9 222 f4
mprotect 10 226
munmap 11 215
rt_sigtimedwait 128 137
ioctl 16 29 f0
pread64 17 67 f0
pwrite64 18 68 f0
readv 19 65 f0
writev 20 66 f0
access 21 - p0
select 23 -
msync 26 227
madvise 28 233
pause 34 -
nanosleep 35 101
sendfile 40 71 f0 f1
connect 42 203 f0
accept 43 202 f0
sendto 44 206 f0
recvfrom 45 207 f0
sendmsg 46 211 f0
recvmsg 47 212 f0
execve 59 221 p0
exit 60 93
wait4 61 260
semop 65 193
msgrcv 70 188
fcntl 72 25 f0
flock 73 32 f0
fsync 74 82 f0
fdatasync 75 83 f0
truncate 76 45 p0
ftruncate 77 46 f0
getdents 78 - f0
chdir 80 49 p0
fchdir 81 50 f0
rename 82 - p0 p1
mkdir 83 - p0
rmdir 84 - p0
creat 85 - p0
link 86 - p0 p1
unlink 87 - p0
symlink 88 - p1
readlink 89 - p0
chmod 90 - p0
fchmod 91 52 f0
chown 92 - p0
fchown 93 55 f0
lchown 94 - p0
rt_sigsuspend 130 133
utime 132 - p0
mknod 133 - p0
statfs 137 43 p0
fstatfs 138 44 f0
chroot 161 51 p0
sync 162 81
mount 165 40 p1
umount2 166 39 p0
swapon 167 224 p0
readahead 187 213 f0
setxattr 188 5 p0
lsetxattr 189 6 p0
fsetxattr 190 7 f0
getxattr 191 8 p0
lgetxattr 192 9 p0
fgetxattr 193 10 f0
listxattr 194 11 p0
llistxattr 195 12 p0
flistxattr 196 13 f0
removexattr 197 14 p0
lremovexattr 198 15 p0
fremovexattr 199 16 f0
futex 202 98
io_getevents 208 4
getdents64 217 61 f0
semtimedop 220 192
fadvise64 221 223 f0
clock_nanosleep 230 115
exit_group 231 94
epoll_wait 232 - f0
epoll_ctl 233 21 f2
utimes 235 - p0
waitid 247 95
inotify_add_watch 254 27 p1
openat 257 56 a0
mkdirat 258 34 a0
mknodat 259 33 a0
fchownat 260 54 a0
futimesat 261 - a0
newfstatat 262 79 a0
unlinkat 263 35 a0
renameat 264 38 a0 a2
linkat 265 37 a0 a2
symlinkat 266 36 a1
readlinkat 267 78 a0
fchmodat 268 53 a0
faccessat 269 48 a0
pselect6 270 72
ppoll 271 73
splice 275 76 f0 f2
sync_file_range 277 84 f0
utimensat 280 88 a0
epoll_pwait 281 22 f0
fallocate 285 47 f0
accept4 288 242 f0
preadv 295 69 f0
pwritev 296 70 f0
recvmmsg 299 243 f0
fanotify_mark 301 263 a3
name_to_handle_at 303 264 a0
open_by_handle_at 304 265 f0
syncfs 306 267 f0
sendmmsg 307 269 f0
renameat2 316 276 a0 a2
execveat 322 281 a0
copy_file_range 326 285 f0 f2
preadv2 327 286 f0
pwritev2 328 287 f0
statx 332 291 a0
io_uring_enter 426 426 f0
open_tree 428 428 a0
openat2 437 437 a0
faccessat2 439 439 a0
epoll_pwait2 441 441 f0
mount_setattr 442 442 a0
futex_wait 455 455
futex_waitv 449 449
brk 12 214
mremap 25 216
dup2 33 -
shutdown 48 210 f0
clone 56 220
fork 57 -
vfork 58 -
msgsnd 69 189
ptrace 101 117
mlock 149 228
mlockall 151 230
pivot_root 155 41 p0 p1
swapoff 168 225 p0
init_module 175 105
delete_module 176 106
mq_timedsend 242 182
mq_timedreceive 243 183
request_key 249 218
keyctl 250 219
unshare 272 97
tee 276 77 f0 f1
vmsplice 278 75 f0
dup3 292 24
setns 308 268
fspick 433 433 a0
process_vm_readv 310 270
process_vm_writev 311 271
finit_module 313 273 f0
getrandom 318 278
io_pgetevents 333 292
move_mount 429 429 a0 a2
fsconfig 431 431
clone3 435 435
close_range 436 436
process_madvise 440 440
fchmodat2 452 452 a0
"""


def _tables() -> dict[str, dict[int, Call]]:
    tables: dict[str, dict[int, Call]] = {"x86_64": {}, "aarch64": {}}
    for line in _TABLE.strip().splitlines():
        name, x86, arm, *arguments = line.split()
        paths = tuple(
            (int(a[1:]), int(a[1:]) + 1) if a[0] == "a" else (None, int(a[1:]))
            for a in arguments
            if a[0] in "ap"
        )
        call = Call(name, paths, tuple(int(a[1:]) for a in arguments if a[0] == "f"))
        for machine, number in (("x86_64", x86), ("aarch64", arm)):
            if number != "-":
                tables[machine][int(number)] = call
    return tables


_CALLS = _tables()


# Calls of 32-bit programs that have another name than the machine's own, apart from _END: those
# with files' sizes or times, which have a wider variant.
_OF_32BIT = {
    "fstatat64": "newfstatat",
    "_llseek": "lseek",
    "_newselect": "select",
    "mmap2": "mmap",
    "fadvise64_64": "fadvise64",
    "arm_fadvise64_64": "fadvise64",
    "umount": "umount2",
    "waitpid": "wait4",
}
_END = re.compile("(_time)?(32|64)$")


@functools.lru_cache(maxsize=1024)  # many callers wait in few different calls
def call(machine: str, number: int, is_32bit: bool = False) -> Call:
    """Return system call ``number`` of a process, which may be a 32-bit one.

    A call that is not in the table has only a name.
    """
    if not is_32bit and (known := _CALLS.get(machine, {}).get(number)):
        return known
    name = native.syscall_name(machine, number, is_32bit) or f"syscall_{number}"
    if is_32bit:
        calls = {known.name: known for known in _CALLS.get(machine, {}).values()}
        if known := calls.get(_OF_32BIT.get(name, name)) or calls.get(_END.sub("", name)):
            return known
    return Call(name, (), ())
