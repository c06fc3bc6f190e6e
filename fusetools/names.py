"""Names that stand in recordings: operations, layers, and what costs are measured on."""

from __future__ import annotations

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller inwards


# enum fuse_opcode of include/uapi/linux/fuse.h, in lower case.
_OPCODES = """
lookup forget getattr setattr readlink symlink mknod mkdir unlink rmdir rename link open read write
statfs release fsync setxattr getxattr listxattr removexattr flush init opendir readdir releasedir
fsyncdir getlk setlk setlkw access create interrupt bmap destroy ioctl poll notify_reply
batch_forget fallocate readdirplus rename2 lseek copy_file_range setupmapping removemapping syncfs
tmpfile statx
"""


OPERATIONS = frozenset(_OPCODES.split())


# Measures what a probe costs (see record/): never a result.
CALIBRATION = "fusetools_calibrate"
