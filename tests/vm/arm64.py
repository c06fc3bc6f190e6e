"""A guest's root: Debian for arm64, with fusetools as it is packaged and the sample file system.

The host's programs do not run there. Its own sign return addresses, as Debian's do since trixie.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import debs
import vm
from samplefs import REPOSITORY

SUITE = "trixie-arm64"
PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "grep", "mount", "sed", "util-linux"),
    *("fuse3", "libstdc++6", "linux-perf", "python3", "trace-cmd"),
)
SAMPLES = Path("/samples")
COMPILER = "aarch64-linux-gnu-g++"
VERSION = "0.1.0"


def needed() -> list[str]:
    """Return the host's packages that are missing."""
    of = {vm.QEMU["arm64"]: "qemu-system-arm", COMPILER: "g++-aarch64-linux-gnu"}
    return [package for program, package in of.items() if not shutil.which(program)]


def fetch() -> vm.Kernel:
    """Return the kernel with its root. Raise debs.Unavailable if packages cannot be downloaded."""
    kernel = vm.Kernel.fetch(SUITE)
    root = kernel.folder / "root"
    with (kernel.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            new = kernel.folder / "root.new"
            shutil.rmtree(new, ignore_errors=True)
            suite = debs.Suite(SUITE.partition("-")[0], kernel.folder, "arm64")
            suite.unpack(new, *PACKAGES, dependencies=True)
            suite.unpack(new, "libfuse3-dev")
            new.rename(root)
        _install(root)
        _compile(root)
    return dataclasses.replace(kernel, root=root)


def _install(root: Path) -> None:
    """Unpack the newest package that tools/packages/build.sh built."""
    built = sorted(REPOSITORY.glob("dist/fusetools_*_arm64.deb"), key=os.path.getmtime)
    if not built:
        raise debs.Unavailable("no dist/fusetools_*_arm64.deb: make test-arm64 builds it")
    shutil.rmtree(root / "usr/lib/fusetools", ignore_errors=True)
    subprocess.run(["dpkg", "-x", built[-1], root], check=True)


def _compile(root: Path) -> None:
    """Compile the sample file system and its workloads into SAMPLES."""
    build = f"{root}{SAMPLES}"
    libraries = [f"libcvmfs_fuse3{part}.so.{VERSION}" for part in ("", "_stub")]
    daemon = [f"{build}/with-symbols/{file}" for file in ("samplefs", *libraries)]
    # Else pkg-config would name this host's libfuse.
    lists = f"{root}/usr/lib/aarch64-linux-gnu/pkgconfig"
    subprocess.run(
        ["make", "--silent", "-C", REPOSITORY / "samples/fs", f"BUILD={build}",
         f"CXX={COMPILER} -mbranch-protection=standard",
         *daemon, f"{build}/workload", f"{build}/make_tree"],
        env={**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_LIBDIR": lists},
        check=True,
    )  # fmt: skip
