"""An initramfs: busybox and kernel modules in the order they are loaded, as a cpio archive."""

from __future__ import annotations

import lzma
import re
import stat
import subprocess
from pathlib import Path


def decompress(path: Path) -> bytes:
    """Return a kernel module's bytes (`.ko`, `.ko.xz`, `.ko.zst`)."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return by("zstd", data)
    return data


def by(program: str, data: bytes) -> bytes:
    """Return the bytes as `zstd` or `lz4` unpacks them."""
    return subprocess.run([program, "-dc"], input=data, capture_output=True, check=True).stdout


def _name(file_name: str) -> str:
    """Return `9pnet_virtio` for `9pnet_virtio.ko.xz`: module names have no `-`."""
    return file_name.split(".ko")[0].replace("-", "_")


def modules(tree: Path, wanted: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of `wanted` and their dependencies, dependencies first, without built-in
    modules.

    `tree` is lib/modules/RELEASE of a package on which no depmod has run: dependencies are read
    from each module's .modinfo. Raise KeyError for a module that is neither there nor built in.
    """
    files = {_name(path.name): path for path in tree.rglob("*.ko*")}
    builtin = {_name(Path(line).name) for line in (tree / "modules.builtin").read_text().split()}
    loaded: dict[str, bytes] = {}

    def load(name: str) -> None:
        if name in builtin or name in loaded:
            return
        data = decompress(files[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for needed in depends[1].decode().split(",") if depends else ():
            if needed:
                load(needed.replace("-", "_"))
        loaded[name] = data

    for name in wanted:
        load(name)
    return list(loaded.items())


def cpio(entries: list[tuple[str, int, bytes]]) -> bytes:
    """Return a `newc` archive of (name, mode, data); its only device is the console, 5:1.

    Source: Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    archive = bytearray()
    for inode, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        major, minor = (5, 1) if stat.S_ISCHR(mode) else (0, 0)
        path = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(path), 0)
        archive += b"070701" + b"".join(b"%08x" % field for field in fields) + path
        archive += b"\0" * (-len(archive) % 4) + data
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)


def build(busybox: bytes, loaded: list[tuple[str, bytes]]) -> bytes:
    folder, program = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755
    entries = [(name, folder, b"") for name in ("bin", "dev", "proc", "sys", "modules")]
    entries += [
        ("dev/console", stat.S_IFCHR | 0o600, b""),
        ("bin/busybox", program, busybox),
    ]
    entries += [
        (f"modules/{n:03}-{name}.ko", program, data) for n, (name, data) in enumerate(loaded)
    ]
    return cpio(entries)
