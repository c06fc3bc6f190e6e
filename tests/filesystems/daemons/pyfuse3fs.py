"""A file system with pyfuse3: pyfuse3fs.py SOURCE MOUNT shows SOURCE on MOUNT, to read and write.

Inode numbers are indices of a list of paths; file handles are descriptors.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pyfuse3
import trio


def system(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function. Its error becomes the answer."""
    try:
        return call(*arguments)
    except OSError as error:
        raise pyfuse3.FUSEError(error.errno) from None


class Shown(pyfuse3.Operations):
    enable_writeback_cache = True

    def __init__(self, source: str) -> None:
        super().__init__()
        self.paths = ["", source]
        self.numbers = {source: pyfuse3.ROOT_INODE}

    def path(self, parent: int, name: bytes) -> str:
        return f"{self.paths[parent]}/{os.fsdecode(name)}"

    def attributes(self, path: str) -> pyfuse3.EntryAttributes:
        of = system(os.lstat, path)
        if path not in self.numbers:
            self.numbers[path] = len(self.paths)
            self.paths.append(path)
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = self.numbers[path]
        entry.entry_timeout = entry.attr_timeout = 0
        for name in ("mode", "nlink", "uid", "gid", "rdev", "size", "blocks", "blksize"):
            setattr(entry, f"st_{name}", getattr(of, f"st_{name}"))
        for name in ("atime_ns", "mtime_ns", "ctime_ns"):
            setattr(entry, f"st_{name}", getattr(of, f"st_{name}"))
        return entry

    async def lookup(self, parent, name, ctx):
        return self.attributes(self.path(parent, name))

    async def getattr(self, inode, ctx):
        return self.attributes(self.paths[inode])

    async def setattr(self, inode, attr, fields, fh, ctx):
        if fields.update_size:
            system(os.truncate, self.paths[inode], attr.st_size)
        return self.attributes(self.paths[inode])

    async def readlink(self, inode, ctx):
        return os.fsencode(system(os.readlink, self.paths[inode]))

    async def opendir(self, inode, ctx):
        return inode

    async def readdir(self, fh, start_id, token):
        names = sorted(system(os.listdir, self.paths[fh]))
        for index, name in list(enumerate(names))[start_id:]:
            entry = self.attributes(f"{self.paths[fh]}/{name}")
            if not pyfuse3.readdir_reply(token, os.fsencode(name), entry, index + 1):
                break

    async def open(self, inode, flags, ctx):
        flags &= ~(os.O_DIRECT | os.O_APPEND)
        if flags & os.O_ACCMODE == os.O_WRONLY:
            flags += os.O_RDWR - os.O_WRONLY  # the kernel's cache also reads
        return pyfuse3.FileInfo(fh=system(os.open, self.paths[inode], flags))

    async def create(self, parent, name, mode, flags, ctx):
        path = self.path(parent, name)
        fd = system(os.open, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        return pyfuse3.FileInfo(fh=fd), self.attributes(path)

    async def read(self, fh, off, size):
        return system(os.pread, fh, size, off)

    async def write(self, fh, off, buf):
        return system(os.pwrite, fh, buf, off)

    async def fsync(self, fh, datasync):
        system(os.fsync, fh)

    async def release(self, fh):
        os.close(fh)

    async def mkdir(self, parent, name, mode, ctx):
        path = self.path(parent, name)
        system(os.mkdir, path, mode)
        return self.attributes(path)

    async def symlink(self, parent, name, target, ctx):
        path = self.path(parent, name)
        system(os.symlink, os.fsdecode(target), path)
        return self.attributes(path)

    async def link(self, inode, parent, name, ctx):
        path = self.path(parent, name)
        system(os.link, self.paths[inode], path)
        return self.attributes(path)

    async def unlink(self, parent, name, ctx):
        system(os.unlink, self.path(parent, name))

    async def rmdir(self, parent, name, ctx):
        system(os.rmdir, self.path(parent, name))

    async def rename(self, parent, name, new_parent, new_name, flags, ctx):
        old, new = self.path(parent, name), self.path(new_parent, new_name)
        system(os.rename, old, new)
        if old in self.numbers:  # the inode moves with the name
            self.numbers[new] = self.numbers.pop(old)
            self.paths[self.numbers[new]] = new

    async def setxattr(self, inode, name, value, ctx):
        system(os.setxattr, self.paths[inode], name, value)

    async def getxattr(self, inode, name, ctx):
        return system(os.getxattr, self.paths[inode], name)

    async def statfs(self, ctx):
        of = system(os.statvfs, self.paths[1])
        answer = pyfuse3.StatvfsData()
        for name in ("bsize", "frsize", "blocks", "bfree", "bavail", "files", "ffree", "favail"):
            setattr(answer, f"f_{name}", getattr(of, f"f_{name}"))
        answer.f_namemax = 255
        return answer


if __name__ == "__main__":
    source, mount = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pyfuse3.init(Shown(source), mount, {*pyfuse3.default_options, "fsname=pyfuse3fs"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)
