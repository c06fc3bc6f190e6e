"""Debian's kernels in a virtual machine, as a place to run commands in.

    kernel = Kernel.fetch("bookworm")
    result = run(kernel, "uname -r", folder=tmp_path)

The guest sees the host's `/` at its own path, and `folder` in it: a checkout and its .venv work
there as they do here. Writes go to its memory; the final content of `folder` is copied to the host.
It has no network and no disk.

A guest is booted once and runs one command after the other: between two it kills what is left,
unmounts it, and compares its state with that after the boot. A guest whose state has changed is
ended. Times inside it are emulated: never quote them, except those of a guest that counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import lzma
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import debs
import initramfs
import mounts

HERE = Path(__file__).resolve().parent
MEMORY = 1024  # MB
READY = b"vm-init: ready"
LOCKUPS = (b"soft lockup", b"hard LOCKUP", b"detected stall")
PATIENCE = 400.0  # limit in seconds of CPU time that a command may take
WAITING = 700.0  # limit in seconds of a command; twice that is less than a test's limit
NICE = 10  # of a guest, between what records on this host and the pure tests (Makefile)
QEMU = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}
# CPU features that cost an emulator a quarter of its time, and that no test needs. A CPU with erms
# copies at once what the emulator copies byte by byte.
CPU = "max,la57=off,smap=off,smep=off,erms=off,fsrm=off,avx=off,avx2=off"
UNHARDENED = "mitigations=off init_on_alloc=0 hardened_usercopy=off randomize_kstack_offset=off"
# Code at another address is translated again by the emulator: in each process, with random maps.
TRANSLATED_ONCE = "norandmaps"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "fuse", "unix_diag")


class VMError(Exception):
    """The virtual machine itself failed: the command did not end."""


class Lockup(VMError):
    """The command exceeded its limit, or the guest's own watchdog reported a lockup."""


class VMRetry(UserWarning):
    """A run ended by a lockup or the time limit, and was repeated in a fresh machine."""


def _vmlinux(vmlinuz: bytes) -> bytes:
    """Return the ELF image inside a bzImage, which QEMU boots directly through its PVH note.

    The payload lies `payload_offset` behind the real-mode sectors; its last four bytes are its
    uncompressed size. Source: Documentation/arch/x86/boot.rst.
    """
    if vmlinuz[0x202:0x206] != b"HdrS":
        raise VMError("not a bzImage")
    offset, length = struct.unpack_from("<II", vmlinuz, 0x248)
    start = (vmlinuz[0x1F1] + 1) * 512 + offset
    payload = vmlinuz[start : start + length - 4]
    if payload.startswith(b"\x1f\x8b"):
        image = zlib.decompressobj(31).decompress(payload)
    elif payload.startswith(b"\xfd7zXZ"):
        image = lzma.decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        image = initramfs.by("zstd", payload)
    elif payload.startswith(b"\x02\x21\x4c\x18"):
        image = initramfs.by("lz4", payload)
    else:
        raise VMError(f"a kernel compressed in a way not known here: {payload[:4].hex()}")
    if not image.startswith(b"\x7fELF"):
        raise VMError("the bzImage's payload is not an ELF image")
    return image


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to boot: `suite` names it, `release` is its `uname -r`, `root` is the guest's
    `/`.

    ``counting``: the guest has one CPU, whose clocks advance by 1 ns with each instruction: so any
    time of it is a number of instructions. A boot takes twice as long.
    """

    suite: str
    release: str
    folder: Path
    root: Path = Path("/")
    counting: bool = False

    @property
    def version(self) -> tuple[int, ...]:
        return _version(self.release)

    @property
    def architecture(self) -> str:
        """As in packages' names."""
        return "arm64" if self.suite.endswith("-arm64") else "amd64"

    @property
    def vmlinux(self) -> Path:
        return self.folder / "vmlinux"

    @property
    def initramfs(self) -> Path:
        """busybox and the modules; `run` adds the init."""
        return self.folder / "initramfs"

    @classmethod
    def fetch(cls, suite: str = "bookworm") -> Kernel:
        """Return the newest kernel of a suite, or that of a version (`noble-6.14`) if the suite has
        several, or for arm64 (`trixie-arm64`), which needs a root of its own.

        It is kept in tests/vm/build/`suite`. Raise debs.Unavailable if it cannot be downloaded.
        """
        folder = HERE / "build" / suite
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The release is written last: it marks the rest as complete.
            release = folder / "-".join(("release", *MODULES))
            if not release.exists():
                release.write_text(cls._unpack(suite, folder))
        return cls(suite, release.read_text(), folder)

    @staticmethod
    def _unpack(name: str, folder: Path) -> str:
        """Download kernel, modules and busybox. Return the kernel's release."""
        tree = folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        suite, _, version = name.partition("-")
        arm64 = version == "arm64"
        packages = debs.Suite(suite, folder, "arm64" if arm64 else "amd64")
        if version and not arm64:
            images = packages.named(f"linux-image-{version}.")
            generic = [image for image in images if re.search(r"-\d+-generic$", image)]
            newest = max(generic, key=lambda image: int(image.split("-")[-2]))
        else:
            debian = f"linux-image-{packages.architecture}"
            meta = debian if suite in debs.DEBIAN else "linux-image-generic"
            newest = next(n for n in packages.requires(meta) if n.startswith("linux-image-"))
        release = newest[len("linux-image-") :]
        # Since 7.2 the image package is empty, and needs its parts: linux-binary-RELEASE … Ubuntu's
        # modules are in two packages: linux-modules-RELEASE, linux-modules-extra-RELEASE.
        parts = [package for package in packages.requires(newest) if package.endswith(release)]
        parts += packages.named(f"linux-modules-extra-{release}")
        packages.unpack(tree, newest, *parts, "busybox-static")
        (vmlinuz,) = tree.rglob("vmlinuz*")
        image = vmlinuz.read_bytes()
        # QEMU starts an older one as bootloaders do; it then unpacks itself, which takes longer.
        direct = _version(release) >= (5, 0) and not arm64
        (folder / "vmlinux").write_bytes(_vmlinux(image) if direct else image)
        (busybox,) = (
            path for path in tree.rglob("busybox") if os.access(path, os.X_OK) and path.is_file()
        )
        (tree_modules,) = tree.glob(f"**/lib/modules/{release}")
        # virtiofs is as old as Linux 5.4.
        there = {path.name.partition(".ko")[0] for path in tree_modules.rglob("virtiofs.ko*")}
        loaded = initramfs.modules(tree_modules, (*MODULES, *there))
        (folder / "initramfs").write_bytes(initramfs.build(busybox.read_bytes(), loaded))
        shutil.rmtree(tree)
        return release

    def tools(self) -> Path:
        """Return a folder for PATH with the `perf` and `trace-cmd` of the kernel's own suite.

        If those are older than Linux 5.10's, this host's are used. They run under their suite's own
        loader and libraries; no other program in the guest does. Raise debs.Unavailable if they
        cannot be downloaded.
        """
        programs, tree = self.folder / "bin", self.folder / "tools"
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if programs.exists():
                return programs
            if self.version < (5, 10):
                programs.mkdir()
                for name in ("perf", "trace-cmd"):
                    (programs / name).symlink_to(shutil.which(name) or name)
                return programs
            shutil.rmtree(tree, ignore_errors=True)
            name = self.suite.partition("-")[0]
            package = "linux-perf" if name in debs.DEBIAN else f"linux-tools-{self.release}"
            debs.Suite(name, self.folder).unpack(tree, package, "trace-cmd", dependencies=True)
            unfinished = self.folder / "bin.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            # /usr/bin/perf may be a script that looks for the running kernel's perf_5.10.
            found = [*tree.glob("usr/bin/perf*"), *tree.glob("usr/lib/linux-*tools-*/perf")]
            perf = max(found, key=lambda path: path.stat().st_size)
            for name, program in (("perf", perf), ("trace-cmd", tree / "usr/bin/trace-cmd")):
                (unfinished / name).write_text(wrapper(tree, program))
                (unfinished / name).chmod(0o755)
            unfinished.rename(programs)
        return programs


def _version(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def wrapper(tree: Path, program: Path) -> str:
    """Return a script that runs a suite's program with the loader and the libraries of that
    suite."""
    # Some of its names are absolute links, which lead out of the tree.
    loaders = {path.resolve() for path in tree.rglob("ld-linux-x86-64.so.2")}
    (loader,) = (path for path in loaders if tree in path.parents)
    libraries = f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu"
    plugins = f"{tree}/usr/lib/x86_64-linux-gnu/traceevent/plugins"
    return f"""#!/bin/sh
export TRACEEVENT_PLUGIN_DIR={plugins}
exec {loader} --library-path {libraries} {program} "$@"
"""


@dataclass(frozen=True)
class Result:
    """The result of a command in the guest; `seconds` is wall time, `tries` is 1 or 2."""

    rc: int
    stdout: str
    stderr: str
    seconds: float
    tries: int


class Guest(Protocol):
    """`run` with a test's own kernel and folder."""

    def __call__(
        self,
        command: str,
        timeout: float = PATIENCE,
        systemd: bool = False,
        devices: Sequence[str] = (),
    ) -> Result: ...


def guest(kernel: Kernel, folder: Path) -> Guest:
    """Return a function that runs a command in a guest with `folder` shared; its exit status must
    be 0."""

    def run_well(
        command: str, timeout: float = PATIENCE, systemd: bool = False, devices: Sequence[str] = ()
    ) -> Result:
        result = run(kernel, command, folder, timeout, systemd, devices)
        assert result.rc == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result

    return run_well


# Return the command as a service, if the host's systemd is the guest's first process.¶It has the
# environment of a command without systemd. Also return init's last commands.
UNIT = """
[Service]
Type=oneshot
Environment=HOME=/root LANG=C.UTF-8
ExecStart=/bin/sh -c 'cd {folder} && sh .vm/command >.vm/stdout 2>.vm/stderr </dev/null; \\
  rc=$?; cp -a {folder}/. /run/share && echo $rc dirty >/run/share/.vm/rc; sync; \\
  systemctl poweroff --force --force'
"""


def run(
    kernel: Kernel,
    command: str,
    folder: Path,
    timeout: float = PATIENCE,
    systemd: bool = False,
    devices: Sequence[str] = (),
) -> Result:
    """Run the shell `command` as the guest's root in `folder`, whose final content is copied back.

    ``systemd``: run it below the host's systemd, which is the guest's first process. ``devices``:
    additional arguments of QEMU. Either has a guest of its own.

    A guest that locks up, or exceeds `timeout` seconds of CPU time or WAITING seconds, is ended,
    and gets one fresh try (VMRetry).
    Lockup, VMError: the command did not end; the guest's last output is in `folder`/.vm/console.
    """
    folder = folder.resolve()
    if set(str(folder)) & set(' ,"\\'):
        raise VMError(f"neither QEMU nor the kernel's command line can name the folder {folder}")
    alone = systemd or bool(devices)
    try:
        return _run(kernel, command, folder, timeout, systemd, devices, alone, 1)
    except Lockup as lockup:
        warnings.warn(VMRetry(f"{kernel.release}: {lockup}; trying once more"), stacklevel=2)
        return _run(kernel, command, folder, timeout, systemd, devices, True, 2)


def _run(
    kernel: Kernel,
    command: str,
    folder: Path,
    timeout: float,
    systemd: bool,
    devices: Sequence[str],
    alone: bool,
    tries: int,
) -> Result:
    own = folder / ".vm"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    (own / "command").write_text(command + "\n")
    if systemd:
        (own / "unit").write_text(UNIT.format(folder=folder))
    begun = time.monotonic()
    key = kernel, folder.parent
    machine = None if alone else _machines.pop(key, None)
    machine = machine or Machine(kernel, folder.parent, devices)
    try:
        rc, clean = machine.run(folder, timeout)
        if clean and not alone:
            _machines[key] = machine
    finally:
        if _machines.get(key) is not machine:
            machine.close()
    return Result(
        rc=rc,
        stdout=(own / "stdout").read_text(errors="replace"),
        stderr=(own / "stderr").read_text(errors="replace"),
        seconds=time.monotonic() - begun,
        tries=tries,
    )


class Machine:
    """A running guest, with the folders in `base` shared."""

    def __init__(self, kernel: Kernel, base: Path, devices: Sequence[str]) -> None:
        self.kernel, self.base = kernel, base
        self._ready = False
        name = next(name for n in itertools.count() if not (base / (name := f"guest-{n}")).exists())
        own = base / name
        own.mkdir()
        forked = kernel.root == Path("/")
        # The kernel takes archives one after the other: a changed init needs no new download.
        init = initramfs.cpio(
            [
                ("init", 0o100755, (HERE / "init").read_bytes()),
                ("forked", 0o100644, _forked().encode() if forked else b"fusetools="),
            ]
        )
        (own / "initramfs").write_bytes(kernel.initramfs.read_bytes() + init)
        self.initramfs, self.console = own / "initramfs", own / "console"
        with self.console.open("wb") as log:
            self.process = subprocess.Popen(
                [*_qemu(kernel, base, self.initramfs), *devices],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_prepare,
            )

    def run(self, folder: Path, timeout: float) -> tuple[int, bool]:
        """Return the command's exit status, and whether the guest's state is unchanged."""
        begin = self.console.stat().st_size if self._ready else 0
        (folder / ".vm" / "console").symlink_to(self.console)
        if self._ready:
            self._tell(folder)
        deadline, most = time.monotonic() + WAITING, self._ran() + timeout
        while (answer := self._answer(folder)) is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
                if (answer := self._answer(folder)) is not None:
                    break
                lines = self.console.read_text(errors="replace").strip().splitlines()
                last = (lines or ["nothing said"])[-1]
                why = f"the guest ended early: {last} (see {self.console})"
                raise VMError(f"{self.kernel.release}: {why}")
            said = self.console.read_bytes()[begin:]
            if not self._ready and READY in said:  # output before that is lost on its console
                self._ready = True
                self._tell(folder)
            for line in said.splitlines():
                if any(sign in line for sign in LOCKUPS):
                    raise Lockup(line.decode(errors="replace").strip())
            if time.monotonic() > deadline or self._ran() > most:
                raise Lockup(f"no end within the time (see {self.console})")
        return answer

    def _ran(self) -> float:
        """Return the guest's CPU time in seconds, which a busy host hardly changes."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _tell(self, folder: Path) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # notice its end soon
            self.process.stdin.write(f"{folder}\n".encode())
            self.process.stdin.flush()

    @staticmethod
    def _answer(folder: Path) -> tuple[int, bool] | None:
        """The exit status and "clean" or "dirty", written last."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            rc, state = (folder / ".vm" / "rc").read_text().split()
            return int(rc), state == "clean"
        return None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.initramfs.unlink(missing_ok=True)


def _prepare() -> None:
    """A guest computes, while tests that record on this host wait: these go first."""
    mounts.end_with_the_test()
    os.nice(NICE)


def _forked() -> str:
    """Compile the client forked.c. Return the places that init asks for, as shell code."""
    fusetools = Path(sys.prefix) / "bin" / "fusetools"
    client = HERE / "build" / "forked"
    client.parent.mkdir(exist_ok=True)
    places = {
        "fusetools": fusetools,
        "python": sys.executable,
        "client": client,
        "forked": HERE / "forked.py",
    }
    with (client.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        defined = ['-DORIGINAL="/vm/fusetools"', '-DSOCKET="/vm/socket"']
        command = ["cc", "-Os", "-static", "-Wall", "-Werror", *defined, "-o"]
        subprocess.run([*command, client, HERE / "forked.c"], check=True)
    return "".join(f"{name}={shlex.quote(str(place))}\n" for name, place in places.items())


_machines: dict[tuple[Kernel, Path], Machine] = {}


def close() -> None:
    """End the guests that wait for a command."""
    while _machines:
        _machines.popitem()[1].close()


# tsc=reliable: otherwise the clock is hpet.
MACHINES = {
    "amd64": (("-cpu", CPU, "-M", "q35"), "console=ttyS0 tsc=reliable no_timer_check"),
    # Pointers are authenticated, as on current processors, by a hash that takes an emulator little.
    "arm64": (("-cpu", "max,pauth-impdef=on,sve=off", "-M", "virt"), "console=ttyAMA0"),
}


def _qemu(kernel: Kernel, folder: Path, initramfs: Path) -> list[str]:
    # One thread for both CPUs: with a thread each, guests locked up while function_graph was
    # switched on.
    machine, arguments = MACHINES[kernel.architecture]
    # With sleep=off its clock would jump to the end of a timeout while the host reads a file.
    cpus = ("-smp", "1", "-icount", "shift=0,sleep=on") if kernel.counting else ("-smp", "2")
    return [
        *(QEMU[kernel.architecture], "-accel", "tcg,thread=single", *machine, *cpus),
        *("-m", f"{MEMORY}M", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
        *("-kernel", str(kernel.vmlinux), "-initrd", str(initramfs)),
        "-append",
        # A guest is stuck after 120 s, not 20: a busy host may take a whole CPU from it for that
        # long.
        f"{arguments} quiet panic=-1 watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300"
        f" {UNHARDENED} {TRANSLATED_ONCE} vmfolder={folder}",
        *(
            "-fsdev",
            f"local,id=root,path={kernel.root},security_model=none,readonly=on,multidevs=remap",
        ),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=vmroot"),
        *("-fsdev", f"local,id=folder,path={folder},security_model=none"),
        *("-device", "virtio-9p-pci,fsdev=folder,mount_tag=vmfolder"),
    ]
