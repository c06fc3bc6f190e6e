"""doctor on this host: real mounts, real namespaces, a daemon that hangs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import frame_pointers
import pytest
from mounts import HANGS, mount_entry, wait_until
from sample import Mounter

from fusetools.host import mounts
from fusetools.host.facts import HostFacts, Mount
from fusetools.host.files import end_children
from fusetools.host.probe import read_host
from fusetools.host.selftest import self_test_unique
from fusetools.plan import daemons

pytestmark = pytest.mark.live
FUSETOOLS = Path(sys.executable).with_name("fusetools")


def mount_at(facts: HostFacts, path: object) -> Mount:
    return next(mount for mount in facts.mounts if mount.path == str(path))


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FUSETOOLS, "doctor", *arguments], capture_output=True, text=True, timeout=HANGS
    )


def test_the_daemon_of_a_mount(sample_mount: Mounter) -> None:
    sample = sample_mount()
    mount = mount_at(read_host(), sample.path)
    assert (mount.daemon_pid, mount.connection) == (sample.pid, sample.connection)
    assert mount.comm == Path(f"/proc/{sample.pid}/comm").read_text().strip()
    assert (mount.seen_by, mount.why) == (None, "")
    for file in (sample.samplefs, sample.library, sample.stub_library):
        library = next(lib for lib in mount.libraries if lib.path == str(file.resolve()))
        assert library.host_path == library.path
        assert library.inode == file.stat().st_ino
        notes = subprocess.run(["readelf", "-n", file], capture_output=True, text=True).stdout
        build_id = re.search(r"Build ID: (\w+)", notes)
        assert library.build_id == (build_id[1] if build_id else None)


def test_doctor_detects_code_with_frame_pointers(sample_mount: Mounter) -> None:
    """Compare the sample as compiled, and all files that the daemons have mapped, with readelf."""
    whole, shipped = sample_mount(), sample_mount(as_shipped=True)
    facts = read_host()
    for sample, keeps in ((whole, True), (shipped, False)):
        mount = mount_at(facts, sample.path)
        for file in (sample.library, sample.stub_library):
            library = next(lib for lib in mount.libraries if lib.path == str(file.resolve()))
            assert library.frame_pointers is not None
            assert library.frame_pointers == 1.0 if keeps else library.frame_pointers < 0.2
        for library in mount.libraries:
            theirs = frame_pointers.by_readelf(Path(library.host_path))
            share = library.frame_pointers or 0.0
            # In libc one function of about 30 bytes is counted differently.
            assert share == pytest.approx(theirs or 0.0, abs=1e-4), library.path
    described = {m["path"]: m["stacks"] for m in json.loads(doctor("--json").stdout)["mounts"]}
    stacks = described[str(shipped.path)]
    without = daemons.without_frame_pointers(mount_at(facts, shipped.path))
    assert {shipped.library.name, "libc.so.6"} <= set(without)
    assert stacks.startswith(f"stacks of the daemon: {without[0]}, ")
    assert stacks.endswith("keep no frame pointers: record copies the stacks of its waits")
    assert whole.library.name not in described[str(whole.path)]
    assert stacks in " ".join(doctor().stdout.split())


def test_two_mounts_are_not_confused(sample_mount: Mounter) -> None:
    first, second = sample_mount(), sample_mount(stripped=True)
    facts = read_host()
    for sample in (first, second):
        assert mount_at(facts, sample.path).daemon_pid == sample.pid
        assert mount_at(facts, sample.path).connection == sample.connection


@contextmanager
def namespaced(script: str) -> Iterator[int]:
    """Yield the pid of a shell in a mount namespace of its own, after it has printed a line."""
    shell = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "bash", "-c", f"{script}\necho ready; read"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        yield shell.pid
    finally:
        shell.communicate("\n", timeout=HANGS)


def test_mount_in_another_namespace(sample_mount: Mounter, tmp_path: Path) -> None:
    """The daemon sees a library and its mount point; this namespace has other files there."""
    sample = sample_mount()  # built, and with a mount of this namespace beside it
    there, tree = tmp_path / "there", tmp_path / "tree"
    hidden = tmp_path / "build"
    for directory in (there, tree, hidden):
        directory.mkdir()
    (tree / "file").write_text("x")
    decoy = hidden / sample.library.name
    shutil.copy(sample.library, decoy)  # another file under the same name
    script = (
        f"mount --bind {sample.build} {hidden}\n"
        f"{hidden}/samplefs -f {tree} {there} &\n"
        f"until grep -q ' {there} ' /proc/self/mountinfo; do sleep 0.01; done"
    )
    with namespaced(script) as shell:
        facts = read_host()
        mount = mount_at(facts, there)
        assert mount.seen_by is not None and mount.daemon_pid is not None
        same = os.readlink(f"/proc/{mount.seen_by}/ns/mnt")
        assert same == os.readlink(f"/proc/{shell}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        assert Path(f"/proc/{mount.daemon_pid}/cmdline").read_text().split("\0")[-2] == str(there)
        library = next(lib for lib in mount.libraries if lib.path == str(decoy))
        assert library.host_path == f"/proc/{mount.daemon_pid}/root{decoy}"
        assert os.stat(library.host_path).st_ino == sample.library.stat().st_ino == library.inode
        assert decoy.stat().st_ino != library.inode
        os.kill(mount.daemon_pid, signal.SIGTERM)
    assert str(there) not in [mount.path for mount in read_host().mounts]


def test_library_replaced_under_a_running_daemon(sample_mount: Mounter, tmp_path: Path) -> None:
    build, tree, path = tmp_path / "build", tmp_path / "tree", tmp_path / "mount"
    sample = sample_mount()
    shutil.copytree(sample.build, build)
    tree.mkdir()
    path.mkdir()
    daemon = subprocess.Popen([build / "samplefs", "-f", tree, path])
    try:
        wait_until(lambda: mount_entry(path) is not None or daemon.poll() is not None, "the mount")
        assert daemon.poll() is None
        library = build / sample.library.name
        inode = library.stat().st_ino
        new = tmp_path / "new"
        shutil.copy(library, new)
        new.rename(library)
        found = next(
            lib for lib in mount_at(read_host(), path).libraries if lib.path == str(library)
        )
        assert found.inode == inode != library.stat().st_ino
        assert found.host_path.startswith(f"/proc/{daemon.pid}/map_files/")
        assert os.stat(found.host_path).st_ino == inode
    finally:
        daemon.terminate()
        daemon.wait(HANGS)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process is stopped.

    A command that waits for it would wait forever: the process is continued, and the test fails.
    """
    waited = threading.Event()

    def go_on() -> None:
        waited.set()
        os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(HANGS, go_on)
    os.kill(pid, signal.SIGSTOP)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.kill(pid, signal.SIGCONT)
    assert not waited.is_set(), "it waited for the daemon that hangs"


def test_a_daemon_that_hangs_does_not_hang_doctor(sample_mount: Mounter) -> None:
    """doctor's trials of the kernel use a mount of their own."""
    sample = sample_mount()
    unique = self_test_unique()
    asked = sample.ask("internal", "affairs")
    with stopped(sample.pid):
        data = json.loads(doctor("--json").stdout)
        paths = [mount["path"] for mount in data["facts"]["mounts"]]
        assert str(sample.path) in paths
        assert self_test_unique() is unique
    assert sample.ask("internal", "affairs") == asked


def test_a_library_on_a_mount_that_hangs(
    sample_mount: Mounter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is found; only the queries to the mount are abandoned."""
    monkeypatch.setattr(mounts, "PATIENCE", 1.0)  # doctor waits six times as long for it
    sample = sample_mount(own_tree=True)
    tree, path = tmp_path / "tree", tmp_path / "mount"
    tree.mkdir()
    path.mkdir()
    shutil.copytree(sample.build, sample.tree / "build")
    program = sample.path / "build" / "samplefs"
    daemon = subprocess.Popen([program, "-f", tree, path])
    try:
        wait_until(lambda: mount_entry(path) is not None or daemon.poll() is not None, "the mount")
        assert daemon.poll() is None
        library = mount_at(read_host(), path).libraries[0]
        assert library.host_path == library.path == str(program)
        with stopped(sample.pid):
            mount = mount_at(read_host(), path)
        assert mount.daemon_pid == daemon.pid
        hung = [lib.path for lib in mount.libraries if not lib.host_path]
        assert hung == [
            lib.path for lib in mount.libraries if lib.path.startswith(str(sample.path))
        ]
        assert len(hung) == 3 < len(mount.libraries)
    finally:
        daemon.terminate()
        daemon.wait(HANGS)


def test_self_test_agrees_with_a_recording(sample_mount: Mounter, tmp_path: Path) -> None:
    """The result for one statfs holds for other requests: every end has the number of its send."""
    facts = read_host()
    if "fuse:fuse_request_send" not in facts.tracepoints:
        pytest.skip("this kernel has no fuse:* tracepoints")
    sample = sample_mount()
    data = tmp_path / "perf.data"
    only = ["--filter", f"connection=={sample.connection}"]
    events = ["-e", "fuse:fuse_request_send", *only, "-e", "fuse:fuse_request_end", *only]
    record: list[str | Path] = ["perf", "record", "-q", "-a", "-N", "-B", "--no-bpf-event"]
    record += ["-o", data, *events]
    subprocess.run([*record, "--", "ls", "-lR", sample.path], check=True, capture_output=True)
    script: list[str | Path] = ["perf", "script", "-i", data, "-F", "event,trace"]
    text = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    sent = re.findall(r"request_send:.* req (\d+) ", text)
    ended = set(re.findall(r"request_end:.* req (\d+) ", text))
    # The last RELEASEDIR, for which no caller waits, may end after the recording.
    assert len(sent) > 20 and len(ended) > 20
    good = ended <= set(sent) and "0" not in sent
    assert self_test_unique() is good


def test_doctor_output(sample_mount: Mounter) -> None:
    sample = sample_mount()
    done = doctor()
    facts = read_host()
    assert done.stderr == "" and done.returncode == 0
    assert f"Linux {facts.kernel}" in done.stdout
    comm = Path(f"/proc/{sample.pid}/comm").read_text().strip()
    callbacks = subprocess.run(["nm", "-C", sample.library], capture_output=True, text=True).stdout
    names = set(re.findall(r" t cvmfs::cvmfs_(\w+)\(", callbacks))
    count = len(names - {"init", "destroy"})  # these answer no caller's request
    said = f"{comm}, pid {sample.pid}: {count} callbacks in {sample.library.name}"
    assert said in " ".join(done.stdout.split())
    long = [line for line in done.stdout.splitlines() if len(line) > 80]
    # A path and a command that users copy are not wrapped.
    copied = ("/", "fix: ")
    assert not [one for one in long if not one.strip().startswith(copied) and "echo N" not in one]


def test_a_stripped_client(sample_mount: Mounter) -> None:
    """doctor finds the table of callbacks that the client's library exports, as record does."""
    sample = sample_mount(stripped=True)
    data = json.loads(doctor("--json").stdout)
    described = next(mount for mount in data["mounts"] if mount["path"] == str(sample.path))
    assert described["how"].startswith("14 callbacks in libcvmfs_fuse3.so.")
    assert described["probed"] == "callbacks"
    assert not [each for each in data["advice"] if str(sample.path) in each["problem"]]


def test_it_is_fast(sample_mount: Mounter) -> None:
    """doctor takes less than ten times the CPU time of its own help, measured beside it.

    The remaining time is spent waiting for other users of the kernel's lock. Compare the minimum of
    three runs each: a busy machine slows both down alike.
    """
    sample_mount()
    code = """
import resource, sys
import fusetools.stuck.machine, fusetools.stuck.diagnosis, fusetools.record.doctor
import fusetools.render.text.doctor
from fusetools.cli import main
try:
    main(standalone_mode=False)
finally:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(sum(one.ru_utime + one.ru_stime for one in used), file=sys.stderr)
"""

    def cpu(*arguments: str) -> float:
        command = [sys.executable, "-c", code, "doctor", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
        assert done.returncode == 0
        return float(done.stderr.split()[-1])

    pairs = [(cpu(), cpu("--help")) for _ in range(3)]
    doctors, helps = zip(*pairs)
    assert min(doctors) < 10 * min(helps), pairs


def test_unprivileged() -> None:
    """Imported as root, run as nobody: other users may be unable to read this Python."""
    code = """
import os, sys
import fusetools.cli.doctor, fusetools.record.doctor, fusetools.stuck.diagnosis
import encodings.idna, json
import fusetools.render.json.answer, fusetools.stuck.machine, fusetools.host.probe
import ctypes, resource, shutil, subprocess, traceback
from fusetools.cli import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main(["doctor", *sys.argv[1:]])
"""
    command = [sys.executable, "-c", code, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=HANGS)
    assert done.stderr == ""
    data = json.loads(done.stdout)
    facts = HostFacts.from_json(json.dumps(data["facts"]))
    root = read_host()
    assert facts.uid == 65534 and facts.capabilities == ()
    linked = facts.perf.libtraceevent if facts.perf else None
    assert (facts.kernel, facts.cpus, facts.perf) == (
        root.kernel,
        root.cpus,
        dataclasses.replace(root.perf, libtraceevent=linked) if root.perf else None,
    )
    if facts.tracefs is None:
        assert done.returncode == 1 and not data["works"]
        assert data["advice"][-1]["fix"] == "sudo fusetools doctor"
        assert any(why == "Permission denied" for _, why in facts.unreadable)


@pytest.mark.parametrize(
    ("broken", "fix"),
    [
        ("umount $(findmnt -n -o TARGET -t tracefs)", "mount -t tracefs nodev /sys/kernel/tracing"),
        ("mount -o remount,bind,ro {0}", "mount -o remount,rw {0}"),
    ],
)
def test_the_mend_that_it_names_mends(
    broken: str, fix: str, sample_mount: Mounter, tmp_path: Path
) -> None:
    """Use a private mount namespace, so that nobody else loses tracefs.

    Mount one traceable file system: with only dead mounts a recording fails.
    """
    sample_mount()
    tracefs = read_host().tracefs
    if tracefs != "/sys/kernel/tracing":
        pytest.skip(f"tracefs is at {tracefs}")
    script = f"""{broken.format(tracefs)} || exit 9
    cp /proc/self/mountinfo {tmp_path}/before
    {FUSETOOLS} doctor --json; echo "status $?"
    cmp /proc/self/mountinfo {tmp_path}/before || exit 8  # perf mounts tracefs where it may
    {fix.format(tracefs)} || exit 9
    {FUSETOOLS} doctor --json; echo "status $?"
    """
    command = ["unshare", "-m", "--propagation", "private", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0 and done.stderr == ""
    before, first, after, second, _ = re.split(r"^status (\d)\n", done.stdout, flags=re.MULTILINE)
    assert (first, second) == ("1", "0")
    needed = [advice["fix"] for advice in json.loads(before)["advice"] if advice["needed"]]
    assert needed == [fix.format(tracefs)]
    assert json.loads(after)["works"] is True


def test_without_perf(tmp_path: Path) -> None:
    trace_cmd = shutil.which("trace-cmd")
    assert trace_cmd is not None
    (tmp_path / "trace-cmd").symlink_to(trace_cmd)
    code = "import os, sys, fusetools.cli as c; os.environ['PATH'] = sys.argv.pop(1); c.main()"
    command = [sys.executable, "-c", code, str(tmp_path), "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 1 and done.stderr == ""
    assert "no perf" in done.stdout and "perf is not installed" in done.stdout


def test_users_of_perf_and_ftrace_are_named() -> None:
    tracefs = read_host().tracefs
    assert tracefs is not None
    instance = Path(tracefs) / "instances" / f"fusetools-test-{os.getpid()}"
    perf = subprocess.Popen(
        ["perf", "record", "-q", "-e", "dummy:u", "-o", "/dev/null", "--", "sleep", "60"]
    )
    try:
        instance.mkdir()
        (instance / "set_event").write_text("sched:sched_process_exec\n")
        wanted = f"perf (pid {perf.pid}) holds "
        wait_until(
            lambda: any(user.startswith(wanted) for user in read_host().ftrace_users), wanted
        )
        event = f"1 event on in instance {instance.name} (set_event): sched:sched_process_exec"
        assert event in read_host().ftrace_users
    finally:
        perf.terminate()
        perf.wait(HANGS)
        if instance.exists():
            instance.rmdir()
    assert not any(user.startswith(wanted) for user in read_host().ftrace_users)


def test_nothing_is_left_behind(
    sample_mount: Mounter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_mount()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    doctor()
    assert list(tmp_path.iterdir()) == []
    read_host()

    def no_zombies() -> bool:
        end_children([])  # those that had not ended when they were abandoned
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return True

    wait_until(no_zombies, "the end of all children")
