"""`fusetools record` on this host: its events, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import affairs
import pytest
from left import TRACEFS, nothing_left, own_probes
from mounts import HANGS, wait_until
from recording import COMMAND, Done, begin, children, counts, environment, record, session
from sample import BUILD, Mounter, SampleMount, until
from schemas import held
from script import events
from variants import variants

import fusetools
from fusetools.plan.kernel import OF_FUNCTIONS

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_no_file", "leaves_nothing")]


def tasks(data: Path) -> str:
    """The records of tasks, as stock perf prints them: only those of the workload."""
    command = ["perf", "script", "-i", str(data), "--show-task-events"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def mixed(mount: SampleMount, processes: int = 8, few: bool = True) -> list[object]:
    amount = ["--processes", processes, *(["--few"] if few else [])]
    return ["--", BUILD / "workload", "mixed", *amount, mount.path]


def test_counts_equal_the_daemons_own(sample_mount: Mounter, tmp_path: Path) -> None:
    """With 8 processes at work and FORGETs: every callback, entry and return."""
    mount = sample_mount()
    forget = f"mount -i -o remount,ro {mount.path}"
    work = (
        f"{BUILD}/workload mixed --processes 8 {mount.path} && {forget}; {mount.until_forgotten()}"
    )
    before = mount.callbacks()
    done = record(tmp_path, "--mount", mount.path, "--", "sh", "-c", work)
    own = mount.callbacks() - before
    assert done.status == 0, done.stderr
    assert "none lost" in done.stderr
    data = tmp_path / "perf.data"
    recorded = events(data)
    seen = Counter(e.name for e in recorded)
    assert own["cvmfs_forget"] + own["cvmfs_forget_multi"] > 0
    assert sum(own.values()) > 10_000
    probed = {name for name in seen if name.startswith("fuse_daemon:cvmfs_")}
    assert {f"fuse_daemon:{name}" for name in own} <= probed
    for name in affairs.CALLBACKS.values():
        assert seen[f"fuse_daemon:{name}"] == own[name], name
        assert seen[f"fuse_daemon:{name}__return"] == own[name], name
    sent = [e.text for e in recorded if e.name == "fuse:fuse_request_send"]
    assert all(f"connection {mount.connection} " in trace for trace in sent)
    uniques = Counter(re.findall(r"req (\d+)", " ".join(sent)))
    ended = Counter(
        e.text.split("req ")[1].split()[0] for e in recorded if e.name == "fuse:fuse_request_end"
    )
    assert sum((uniques & ended).values()) >= 0.999 * len(sent)
    facts = session(data)
    assert facts["exit_status"] == 0 and facts["lost"] == {} and facts["misses"] == {}
    assert facts["mounts"][0]["daemon_pid"] == mount.pid
    assert facts["mounts"][0]["connection"] == mount.connection
    # The median of the calls of an empty function that were made to measure the cost.
    probe = "fuse_daemon:fusetools_calibrate"
    enters, leaves = (
        [e.time for e in recorded if e.name == name] for name in (probe, f"{probe}__return")
    )
    took = sorted(leave - enter for enter, leave in zip(enters, leaves))
    assert len(took) == len(enters) == len(leaves) == 1000
    assert took[499] <= facts["probe_cost_ns"] <= took[500]
    assert facts["workload_pid"] > 0 and facts["seconds"] > 0


def test_records_the_workload_and_the_daemon_only(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    with subprocess.Popen(
        ["sh", "-c", "while :; do cat /proc/uptime; done"], stdout=subprocess.DEVNULL
    ) as noise:
        try:
            done = record(tmp_path, "--mount", mount.path, *mixed(mount, 2))
        finally:
            noise.kill()
    assert done.status == 0, done.stderr
    data = tmp_path / "perf.data"
    facts = session(data)
    family = {facts["workload_pid"], mount.pid}
    calls = [e for e in events(data) if e.name.startswith("raw_syscalls:")]
    forked = {int(pid) for pid in re.findall(r"PERF_RECORD_FORK\((\d+):", tasks(data))}
    assert family < {e.pid for e in calls} <= family | forked
    # a call that is only a probe's return is no system call
    assert not [e for e in calls if re.search(r"NR (335|336|-1) ", e.text)]
    # only switches have stacks, besides samples
    script = ["perf", "script", "-i", str(data), "-F", "event,ip,sym"]
    stacks = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert "request_wait_answer" in stacks
    evlist = ["perf", "evlist", "-v", "-i", str(data)]
    listed = subprocess.run(evlist, capture_output=True, text=True).stdout.splitlines()
    with_stacks = {line.split(": ")[0] for line in listed if "CALLCHAIN" in line}
    copied = {"raw_syscalls:sys_enter"}  # calls in which the daemon waits for others
    assert with_stacks - copied == {"sched:sched_switch", "cpu-clock"}
    switched = [line for line in listed if line.startswith("sched:sched_switch")]
    assert any("CALLCHAIN" in line for line in switched)


def test_stock_perf_reads_it(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    assert record(tmp_path, "--mount", mount.path, *mixed(mount, 1)).status == 0
    for command in (["script"], ["report", "--stdio"], ["evlist", "-v"], ["report", "--stats"]):
        done = subprocess.run(
            ["perf", *command, "-i", "perf.data"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stdout, (command, done.stderr)
        assert "rror" not in done.stderr


def test_exit_status_and_output_are_the_workloads(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = "echo out; echo err >&2; exit 7"
    done = record(tmp_path, "--mount", mount.path, "--", "sh", "-c", script)
    assert done.status == 7
    assert done.stdout == "out\n"
    assert "err\n" in done.stderr
    assert session(tmp_path / "perf.data")["exit_status"] == 7
    done = record(tmp_path, "--mount", mount.path, "--", "sh", "-c", "kill -SEGV $$")
    assert done.status == 128 + signal.SIGSEGV
    assert (tmp_path / "perf.data.old").exists()


def test_json_tells_what_was_recorded(sample_mount: Mounter, tmp_path: Path) -> None:
    """The summary follows the workload's own output; its figures are those that stock perf
    counts."""
    mount = sample_mount()
    script = f"echo out; ls -R {mount.path} >/dev/null; exit 7"
    done = record(tmp_path, "--json", "--mount", mount.path, "--", "sh", "-c", script)
    assert done.status == 7
    assert "fusetools: tracing" in done.stderr and "requests, " not in done.stderr.split("\n", 1)[1]
    first, _, rest = done.stdout.partition("\n")
    assert first == "out"
    told = held("record", rest)
    data = tmp_path / "perf.data"
    seen = counts(data)
    probes = sum(n for event, n in seen.items() if "fusetools_calibrate" in event)
    assert told["events"] == sum(seen.values()) - probes - seen["fusetools:session"]
    assert told["requests"] == seen["fuse:fuse_request_send"] > 0
    assert (told["exit_status"], told["lost"], told["size_bytes"]) == (7, 0, data.stat().st_size)
    assert told["output"] == str(data)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_belongs_to_who_called_sudo(sample_mount: Mounter, reachable: Path) -> None:
    mount, tmp_path = sample_mount("-o", "allow_other"), reachable
    nobody = pwd.getpwnam("nobody")
    sudo = environment(
        SUDO_UID=str(nobody.pw_uid), SUDO_GID=str(nobody.pw_gid), SUDO_USER="nobody", HOME="/root"
    )
    show = "id -u; id -g; id -Gn; echo $HOME $USER ${SUDO_UID-none}"
    done = record(tmp_path, "--mount", mount.path, "--", "true", env=sudo)
    assert done.status == 1 and "nobody, who invoked sudo, may not write there" in done.stderr
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    done = record(tmp_path, "--mount", mount.path, "--", "sh", "-c", show, env=sudo)
    assert done.status == 0, done.stderr
    group = subprocess.run(["id", "-Gn", "nobody"], capture_output=True, text=True).stdout
    assert done.stdout == (
        f"{nobody.pw_uid}\n{nobody.pw_gid}\n{group}{nobody.pw_dir} nobody none\n"
    )
    status = (tmp_path / "perf.data").stat()
    assert (status.st_uid, status.st_gid) == (nobody.pw_uid, nobody.pw_gid)
    assert stat.S_IMODE(status.st_mode) == 0o600
    done = record(tmp_path, "--mount", mount.path, "--as-root", "--", "id", "-u", env=sudo)
    assert done.stdout == "0\n"
    assert (tmp_path / "perf.data").stat().st_uid == 0
    assert (tmp_path / "perf.data.old").stat().st_uid == nobody.pw_uid


def test_no_such_workload(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    for name in ("no-such-command", "/no/such/command"):
        done = record(tmp_path, "--mount", mount.path, "--", name)
        assert done.status == 1
        assert done.stderr.startswith(f"fusetools: there is no command {name}\n")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = record(tmp_path, "--mount", mount.path, "--", script)
    assert done.status == 1
    assert "there is no command" in done.stderr
    assert not (tmp_path / "perf.data").exists()


def test_no_such_mount(sample_mount: Mounter, tmp_path: Path) -> None:
    sample_mount()
    done = record(tmp_path, "--mount", tmp_path, "--", "true")
    assert done.status == 1
    assert f"no FUSE file system is mounted on {tmp_path}" in done.stderr


def probes(counted: Counter[str]) -> Counter[str]:
    return Counter({f"fuse_daemon:{name}": n for name, n in counted.items() if n})


def test_recordings_at_once_are_each_exact(sample_mount: Mounter, tmp_path: Path) -> None:
    """Calls of one daemon and of different ones, as their own counters show; and a third
    command."""
    one, two = sample_mount(), sample_mount()
    with (
        begin(tmp_path, "--mount", one.path, "-o", "first.data") as first,
        begin(tmp_path, "--mount", one.path, "--mount", two.path, "-o", "both.data") as second,
    ):
        before = one.callbacks(), two.callbacks()
        top = subprocess.run(
            [*COMMAND, "top", "--mount", one.path, "--once", "--json", "--interval", "0.2"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert top.returncode == 0, top.stderr
        one.mixed(2)
        two.workload("stat", 101, "dir-00/file-000")
        till_then = one.callbacks() - before[0]
        first.send_signal(signal.SIGINT)
        done_first = Done(first)
        one.workload("open", 53, "dir-00/file-000")
        own = one.callbacks() - before[0] + two.callbacks() - before[1]
        second.send_signal(signal.SIGINT)
        done_second = Done(second)
    for done, name, wanted in (
        (done_first, "first.data", till_then),
        (done_second, "both.data", own),
    ):
        assert done.status == 0, done.stderr
        assert "none lost" in done.stderr and " stay, " not in done.stderr
        seen = counts(tmp_path / name)
        assert not [event for event in seen if "recording_" in event or "bundle" in event]
        assert sum(wanted.values()) > 1000
        recorded = Counter({e: n for e, n in seen.items() if e.startswith("fuse_daemon:cvmfs_")})
        entries = Counter({e: n for e, n in recorded.items() if not e.endswith("__return")})
        assert entries == Counter({e: n for e, n in probes(wanted).items() if e in entries})
        assert sum(entries.values()) > 1000
    said = f"another recording ran at the same time and affected the timings: pid {first.pid}: "
    assert said in " ".join(done_second.stderr.split())
    assert "another recording" not in done_first.stderr


def test_a_killed_recording_is_cleared_up_beside_one_that_runs(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    mount = sample_mount()
    with (
        begin(tmp_path, "--mount", mount.path, "-o", "killed.data") as killed,
        begin(tmp_path, "--mount", mount.path) as other,
    ):
        theirs = [line for line in own_probes() if "recording_1_" in line]
        assert theirs and len(own_probes()) > len(theirs)
        killed.kill()
        killed.communicate()
        clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True, check=True)
        assert "probes" in clean.stdout
        running = f"left alone, as it runs: pid {other.pid}: fusetools record "
        assert running in clean.stdout
        assert own_probes() == theirs
        before = mount.callbacks()
        mount.workload("stat", 101, "dir-00/file-000")
        own = mount.callbacks() - before
        other.send_signal(signal.SIGINT)
        done = Done(other)
    assert done.status == 0, done.stderr
    seen = counts(tmp_path / "perf.data")
    assert seen["fuse_daemon:cvmfs_lookup"] == own["cvmfs_lookup"] > 100
    (tmp_path / "killed.data.partial").unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, *variants(signal.SIGTERM, signal.SIGHUP)])
def test_a_signal_ends_it_and_keeps_what_there_is(
    sample_mount: Mounter, tmp_path: Path, number: int
) -> None:
    """Without a workload: the daemon alone, until Ctrl-C."""
    mount = sample_mount()
    with begin(tmp_path, "--mount", mount.path) as process:
        before = mount.callbacks()
        mount.workload("stat", 101, "dir-00/file-000")
        own = mount.callbacks() - before
        process.send_signal(number)
        done = Done(process)
    assert done.status == 0, done.stderr
    assert "there is no workload: only the daemon's are recorded" in done.stderr
    seen = counts(tmp_path / "perf.data")
    for name in ("cvmfs_lookup", "cvmfs_getattr"):
        assert seen[f"fuse_daemon:{name}"] == own[name] > 0


def test_signals_reach_the_workload(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    with begin(tmp_path, "--mount", mount.path, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        done = Done(process)
    assert (done.status, done.stdout) == (3, "caught\n")
    # a workload that does not end: two requests suffice
    script = "trap 'echo caught' TERM; echo ready; while :; do sleep 0.1; echo on; done"
    with begin(tmp_path, "--mount", mount.path, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        lines = iter(process.stdout.readline, "")
        assert "caught\n" in lines
        assert [next(lines) for _ in range(3)] == ["on\n"] * 3
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        done = Done(process)
    assert done.status == 128 + signal.SIGKILL
    assert (tmp_path / "perf.data").exists()


def test_ctrl_c_reaches_the_workload_once(sample_mount: Mounter, tmp_path: Path) -> None:
    """From a terminal: the kernel sends the signal to both, and fusetools does not repeat it."""
    mount = sample_mount()
    script = (
        'n=0; trap "n=1\\$n; echo caught \\$n" INT; echo ready;'
        "until [ $n != 0 ]; do sleep 0.1; done; sleep 1; echo end; exit 5"
    )
    command = [*COMMAND, "record", "--mount", str(mount.path), "--", "sh", "-c", script]
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as a shell on a terminal starts it
        os.chdir(tmp_path)
        os.execve(command[0], command, environment())
    seen = b""
    sent = False
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while part := os.read(terminal, 4096):
            seen += part
            if b"ready" in seen and not sent:
                sent = True
                os.write(terminal, b"\x03")
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert seen.count(b"caught 10") == 1 and b"caught 110" not in seen, seen
    assert b"end" in seen
    assert os.waitstatus_to_exitcode(status) == 5
    assert (tmp_path / "perf.data").exists()


def test_tracefs_is_not_mounted(sample_mount: Mounter, tmp_path: Path) -> None:
    """tracefs is mounted for the recording, and unmounted afterwards."""
    mount = sample_mount()
    work = f"{BUILD}/workload stat 101 {mount.path}/big"
    script = (
        "umount /sys/kernel/tracing; ! test -e /sys/kernel/tracing/events || exit 99; "
        f"{' '.join(COMMAND)} record --mount {mount.path} -- {work}; status=$?; "
        "! test -e /sys/kernel/tracing/events || exit 98; exit $status"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert counts(tmp_path / "perf.data")["fuse_daemon:cvmfs_getattr"] == 101


def test_probes_that_never_fire_are_told(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(
        "[[group]]\nlibrary = 'libcvmfs_fuse3\\.so.*'\nfunction = 'cvmfs::cvmfs_(destroy)'\n"
        "[group.operations]\ndestroy = 'lookup'\n"
    )
    done = record(tmp_path, "--mount", mount.path, "--fs", wrong, *mixed(mount, 1))
    assert done.status == 0
    assert "none of its 2 probes fired though there were requests" in done.stderr


def test_duration(sample_mount: Mounter, tmp_path: Path) -> None:
    """The recording ends after that time, even if the workload continues."""
    mount = sample_mount()
    begun = time.monotonic()
    done = record(tmp_path, "--mount", mount.path, "--duration", 0.5)
    assert done.status == 0, done.stderr
    assert 0.5 <= session(tmp_path / "perf.data")["seconds"] < time.monotonic() - begun
    waits = f"{until('test -e go')}; exit 5"
    begun = time.monotonic()
    arguments = ["--mount", mount.path, "--duration", 0.3, "--", "sh", "-c", waits]
    with begin(tmp_path, *arguments) as process:
        wait_until(lambda: not children(process.pid, "perf"), "the end of perf")
        recorded = time.monotonic() - begun
        assert process.poll() is None
        (tmp_path / "go").touch()
        done = Done(process)
    assert done.status == 5
    assert 0.3 <= session(tmp_path / "perf.data")["seconds"] < recorded


def test_clean_after_sigkill(sample_mount: Mounter, tmp_path: Path) -> None:
    """All probes are removed, except another user's."""
    mount = sample_mount()
    library = next((BUILD / "with-symbols").glob("libcvmfs_fuse3.so.*"))
    mine = f"p:not_ours/x {library}:0x1000"
    write_probe(mine)
    try:
        with begin(tmp_path, "--mount", mount.path, "--", "sleep", "60") as process:
            workload = children(process.pid, "sleep")
            process.kill()
        assert own_probes()
        clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True)
        assert clean.returncode == 0, clean.stderr
        assert "probes" in clean.stdout
        nothing_left()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        assert "not_ours/x" in (TRACEFS / "uprobe_events").read_text()
        clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True)
        assert clean.stdout == "nothing was left\n"
        for pid in workload:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        write_probe("-:not_ours/x")


def test_the_next_recording_cleans_after_sigkill(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    with begin(tmp_path, "--mount", mount.path, "--", "sleep", "60") as process:
        workload = children(process.pid, "sleep")
        process.kill()
    done = record(tmp_path, "--mount", mount.path, *mixed(mount, 1))
    assert done.status == 0, done.stderr
    assert "removed what a killed recording left" in done.stderr
    for pid in workload:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def write_probe(line: str) -> None:
    descriptor = os.open(TRACEFS / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def test_the_daemon_dies(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    gone = until(f"! stat {mount.path}/big >/dev/null 2>&1")
    script = f"stat {mount.path}/big; kill -9 {mount.pid}; {gone}; stat {mount.path}/big"
    done = record(tmp_path, "--mount", mount.path, "--", "sh", "-c", script)
    assert done.status == 1  # stat's
    assert f"the daemon, pid {mount.pid}, ended during the recording: SIGKILL" in done.stderr
    found = fusetools.open(tmp_path / "perf.data").why().findings[0].reason
    assert found.subject["pid"] == mount.pid
    assert (found.subject["ending"], found.subject["signal"]) == ("SIGKILL", "SIGKILL")
    assert str(found.subject["sender"]).startswith("sh (pid ")
    assert counts(tmp_path / "perf.data")["fuse_daemon:cvmfs_getattr"] >= 1


def test_only_the_mount_that_was_asked_for(sample_mount: Mounter, tmp_path: Path) -> None:
    """Another daemon runs the same library, and a further one starts during the recording.

    Every CernVM-FS host has several repositories.
    """
    ours, other = sample_mount(), sample_mount("--delay", "getattr=2ms")
    later = tmp_path / "later"
    later.mkdir()
    workload = BUILD / "workload"
    script = (
        f"{ours.samplefs} --kernel-cache 0 {ours.tree} {later} && "
        f"for mount in {ours.path} {other.path} {later}; do"
        f" {workload} stat 101 $mount/big >/dev/null; done"
    )
    before = ours.callbacks()
    try:
        done = record(tmp_path, "--mount", ours.path, "--", "sh", "-c", script)
    finally:
        subprocess.run(["fusermount3", "-u", "-z", later], check=False)
    own = ours.callbacks() - before
    own.pop("cvmfs_statfs", None)  # a request before the recording begins: doctor's or record's own
    assert done.status == 0, done.stderr
    data = tmp_path / "perf.data"
    seen = {name: n for name, n in counts(data).items() if name.startswith("fuse_daemon:cvmfs_")}
    assert seen == {
        f"fuse_daemon:{name}{end}": n for name, n in own.items() for end in ("", "__return")
    }
    assert own["cvmfs_getattr"] == 101
    assert {e.pid for e in events(data) if e.name in seen} == {ours.pid}
    assert session(data)["misses"] == {}

    compared = subprocess.run(
        [*COMMAND, "diff", "--json", data, data], capture_output=True, text=True, check=True
    )
    rows = {row["function"]: row for row in json.loads(compared.stdout)["differences"]}
    assert {name: rows[name]["a"]["count"] for name in own} == own
    # The other daemon sleeps for 202 ms in its callbacks, in threads with the same name.
    recording = fusetools.open(data)
    for graph in ("off-cpu", "requests", "off-wake"):
        stacks = recording.stacks(graph, layers=["daemon"]).stacks
        assert stacks or graph != "requests"  # the others may be empty: it never waits
        assert not any("nanosleep" in stack for stack in stacks), graph
        assert sum(stacks.values()) < 200_000, graph


@pytest.mark.parametrize("asked", [False, True])
def test_a_mount_that_comes_later_is_named(
    sample_mount: Mounter, tmp_path: Path, asked: bool
) -> None:
    """As autofs mounts a repository on first use; not if another mount was requested."""
    first = sample_mount()
    later = tmp_path / "later"
    later.mkdir()
    script = f"{first.samplefs} {first.tree} {later} && stat {later}/big >/dev/null"
    only = ["--mount", first.path] if asked else []
    try:
        done = record(tmp_path, *only, "--", "sh", "-c", script)
    finally:
        subprocess.run(["fusermount3", "-u", "-z", later], check=False)
    assert done.status == 0, done.stderr
    named = f"missing: mount {later}: it was mounted during the recording" in done.stderr
    assert named is not asked


def instances() -> list[str]:
    return [name for name in os.listdir(TRACEFS / "instances") if name.startswith("fusetools")]


def test_latency_by_ftrace_s_own_instance(sample_mount: Mounter, tmp_path: Path) -> None:
    """With 8 processes at work, beside another busy daemon.

    Every callback of this mount's daemon, entry and return, and every request is recorded, also
    those of new threads.
    """
    mount, other = sample_mount(), sample_mount()
    work = f"{BUILD}/workload mixed --processes 8 "
    both = f"{work}{other.path} & {work}{mount.path}; wait"
    before = mount.callbacks()
    options = ["--mount", mount.path, "--detail", "latency"]
    done = record(tmp_path, *options, "--", "sh", "-c", both)
    own = mount.callbacks() - before
    assert done.status == 0, done.stderr
    assert "none lost" in done.stderr
    data = tmp_path / "perf.data"
    recorded = events(data)
    seen = Counter(event.name for event in recorded)
    assert sum(own.values()) > 10_000 and sum(other.callbacks().values()) > 10_000
    for name, count in own.items():
        both_ends = seen[f"fuse_daemon:{name}"], seen[f"fuse_daemon:{name}__return"]
        assert both_ends == (count, count), name
    # FORGET is no such request; libfuse reports that it has no FLUSH, and may get requests until
    # then.
    sent = [event for event in recorded if event.name == "fuse:fuse_request_send"]
    of = Counter(re.findall(r"\(FUSE_(\w+)\)", event.text)[0] for event in sent)
    assert of.pop("FLUSH", 0) <= 8
    asked = {name: n for name, n in own.items() if "forget" not in name}
    assert {f"cvmfs_{operation.lower()}": n for operation, n in of.items()} == asked
    assert seen["fuse:fuse_request_end"] == len(sent)
    daemons = {event.pid for event in recorded if event.name.startswith("fuse_daemon:cvmfs_")}
    assert daemons == {mount.pid}
    others = {"sched:sched_switch", "task:task_newtask", "raw_syscalls:sys_enter"}
    assert not others & seen.keys()
    size = data.stat().st_size - os.path.getsize(empty_recording(tmp_path, mount))
    assert size <= 1000 * seen["fuse:fuse_request_send"]
    assert session(data)["misses"] == {}


@pytest.mark.parametrize("detail", ["latency", "stages", "stacks"])
def test_recording_cost_is_reported_per_event(
    detail: str, sample_mount: Mounter, tmp_path: Path
) -> None:
    """Stock perf counts: each event, each uprobe, and the additional part for stacks."""
    mount = sample_mount()
    done = record(tmp_path, "--mount", mount.path, "--detail", detail, *mixed(mount))
    assert done.status == 0, done.stderr
    data = tmp_path / "perf.data"
    facts = session(data)
    took = facts["took"]
    left_out = ("cpu-clock", "fusetools:session")
    names = Counter(event.name for event in events(data) if event.name not in left_out)
    probes = {probe["event"] for probe in facts["probes"] if probe["layer"] == "daemon"}
    own = {probe["event"] for probe in facts["probes"] if "calibrate" in probe["function"]}
    uprobes = sum(of for name, of in names.items() if name in probes - own)
    others = sum(of for name, of in names.items() if name not in probes | own)
    assert uprobes > 2_000 and others > 2_000
    assert took["requests"] == names["fuse:fuse_request_send"]
    known = uprobes * facts["pair_cost_ns"] / 2 + others * facts["event_cost_ns"]
    stacks = took["ns"] - round(known)
    assert 50 < facts["event_cost_ns"] < 50_000
    # Functions of the kernel are more expensive than events.
    functions = any(probe["layer"] == "kernel" for probe in facts["probes"])
    if detail != "latency":
        functions |= not any(
            row["layer"] == "kernel" and row["code"] in OF_FUNCTIONS for row in facts["missing"]
        )
    assert took["least"] == functions
    if detail == "stacks":
        taken = facts["stacks"][0]
        assert 500 * taken < stacks < 50_000 * taken
    else:
        assert stacks == 0
    about = "at least" if took["least"] else "about"
    assert f"  recording took {about} " in done.stderr


@pytest.mark.parametrize(
    "command", ["record -o perf.data", *variants("count --live", "top --once")]
)
def test_a_root_of_few_capabilities_is_told_what_doctor_says(
    command: str, sample_mount: Mounter, tmp_path: Path
) -> None:
    """perf is tried only if it refuses, and the trial's files are removed."""
    few = ["setpriv", "--bounding-set=-sys_admin,-perfmon"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [*few, *COMMAND, *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS)

    doctor = run("doctor", "--json")
    # The first is what record stops at. Others are of mounts that other tests made.
    needed = next(one for one in json.loads(doctor.stdout)["advice"] if one["needed"])
    mount = sample_mount()
    name, *options = command.split()
    workload = [] if name == "top" else ["--", "touch", str(tmp_path / "it-ran")]
    refused = run(name, *options, "--mount", str(mount.path), *workload)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"fusetools: cannot record\n  why: {needed['problem']}\n  fix: {needed['fix']}\n"
    )
    assert not list(tmp_path.glob("it-ran")) and not list(tmp_path.glob("perf.data*"))


def empty_recording(directory: Path, mount: SampleMount) -> Path:
    """Return the duration of a recording in which nothing happens."""
    options = ["--mount", mount.path, "--detail", "latency", "-o", directory / "empty.data"]
    assert record(directory, *options, "--", "true").status == 0
    return directory / "empty.data"


# Each process and thread: its name, and how often it asks for its greatest priority.
CALLERS = {"first": 1009, "thread": 2003, "child": 3001, "its thread": 997, "grandchild": 499}
CALLS = f"""
import os, sys, threading
def ask(name):
    for _ in range({CALLERS}[name]):
        os.sched_get_priority_max(0)
    os.write(1, f"{{threading.get_native_id()}} {{name}}\\n".encode())
def run(name):
    thread = threading.Thread(target=ask, args=(name,))
    thread.start()
    thread.join()
sys.stdin.read(1)
ask("first")
run("thread")
if not os.fork():
    ask("child")
    run("its thread")
    if not os.fork():
        ask("grandchild")
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
"""
ASKED = {"x86_64": 146, "aarch64": 125}[os.uname().machine]


@pytest.mark.parametrize("attached", [False, True])
def test_calls_of_those_recorded_alone(
    attached: bool, sample_mount: Mounter, tmp_path: Path
) -> None:
    """Each call of the callers' threads and of all that they start is recorded, and none of a
    process that is started meanwhile, by somebody else."""
    mount = sample_mount()
    program = [sys.executable, "-c", CALLS]
    other = "import os\nwhile True: os.sched_get_priority_max(0)"
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        named = tmp_path / "named"
        work = ["sh", "-c", 'sleep 0.3; "$@" >named </dev/null', "-", *program]
        what = ["--attach", str(running.pid)] if attached else ["--", *work]
        begun = begin(tmp_path, "--mount", mount.path, "--detail", "stages", *what)
        with begun as process, subprocess.Popen([sys.executable, "-c", other]) as beside:
            if attached:
                named.write_bytes(running.communicate(b"x")[0])
            process.communicate(timeout=HANGS)
            beside.kill()
            running.kill()
    assert process.returncode == 0
    tids = dict(line.split(" ", 1) for line in named.read_text().splitlines())
    calls = [e for e in events(tmp_path / "perf.data") if e.name == "raw_syscalls:sys_enter"]
    seen = Counter(str(call.tid) for call in calls if f"NR {ASKED} " in call.text)
    assert {tids[tid]: count for tid, count in seen.items()} == CALLERS
    assert beside.pid not in {call.pid for call in calls}


# With system calls there is a second one, which follows threads.
INSTANCES = [("latency", 1), ("stages", 2)]


@pytest.mark.parametrize(("detail", "number"), INSTANCES)
def test_an_instance_ends_with_its_recording(
    detail: str, number: int, sample_mount: Mounter, tmp_path: Path
) -> None:
    """A killed recording, with no process left that cleans up."""
    mount = sample_mount()
    options = ["--mount", mount.path, "--detail", detail, "--", "sleep", "60"]
    with begin(tmp_path, *options) as process:
        workload = children(process.pid, "sleep")
        assert len(instances()) == number
        process.kill()
    wait_until(lambda: not instances(), "the instance to go")
    for pid in workload:
        os.kill(pid, signal.SIGKILL)
    assert subprocess.run([*COMMAND, "clean"]).returncode == 0


@pytest.mark.parametrize(("detail", "number"), INSTANCES)
def test_a_killed_instance_reader_is_an_error(
    detail: str, number: int, sample_mount: Mounter, tmp_path: Path
) -> None:
    """Kill it with the recording, and alone."""
    mount = sample_mount()
    work = ["sh", "-c", f"stat {mount.path}/big; sleep 0.3; {until('test -e go')}"]
    options = ["--mount", mount.path, "--detail", detail, "--", *work]
    with begin(tmp_path, *options) as process:
        (reader,) = readers(process.pid)
        process.kill()
        os.kill(reader, signal.SIGKILL)
    assert len(instances()) == number
    (tmp_path / "go").touch()
    clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True)
    assert clean.returncode == 0 and "ftrace instance" in clean.stdout, clean.stderr
    assert not instances()

    (tmp_path / "go").unlink()
    with begin(tmp_path, *options) as process:
        time.sleep(0.2)
        (reader,) = readers(process.pid)
        os.kill(reader, signal.SIGKILL)
        (tmp_path / "go").touch()
        done = Done(process)
    assert done.status == 1
    assert "the recording ended early: what empties ftrace's buffers was killed" in done.stderr
    assert counts(tmp_path / "perf.data")  # output that was already written


def readers(parent: int) -> list[int]:
    """Return a recording's children that have run no other program, except its waiting workload."""
    named = children(parent, Path(f"/proc/{parent}/comm").read_text().strip())
    return [pid for pid in named if os.getsid(pid) == pid]


def test_perf_is_killed(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    work = ["sh", "-c", until("test -e go")]
    with begin(tmp_path, "--mount", mount.path, "--", *work) as process:
        perf, _of_tasks = children(process.pid, "perf")
        os.kill(perf, signal.SIGKILL)
        (tmp_path / "go").touch()
        done = Done(process)
    assert done.status == 1
    assert "the recording ended early: perf was killed" in done.stderr


def test_a_full_disk(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        done = record(small, "--mount", mount.path, *mixed(mount, few=False))
        assert done.status == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in small.iterdir()] == ["perf.data"]
        # The recording is complete: stock perf reads it. 1 MiB of it are events, the largest with
        # 127 frames, whatever kind of event the busy host had when the disk was full.
        kept = counts(small / "perf.data")
        assert sum(kept.values()) > (1 << 20) // (127 * 8 + 200)
    finally:
        subprocess.run(["umount", small], check=True)


def test_another_mount_namespace(sample_mount: Mounter, tmp_path: Path) -> None:
    """The daemon's library is reachable only through /proc/PID/root, and the mount only in
    there."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    shutil.copytree(BUILD / "with-symbols", tmp_path / "build")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    (hidden / "mnt").mkdir()
    script = (
        f"mount -t tmpfs tmpfs {hidden} && mkdir {hidden}/mnt && cp -r {tmp_path}/build {hidden}"
        f" && exec {hidden}/build/samplefs -f --kernel-cache 0 {tmp_path}/tree {hidden}/mnt"
    )
    with subprocess.Popen(["unshare", "-m", "sh", "-c", script]) as daemon:
        try:
            inside = Path(f"/proc/{daemon.pid}/root{hidden}/mnt")
            wait_until(lambda: (inside / "file").exists(), "the mount in its namespace")
            script = f"for i in 1 2 3 4 5 6 7; do stat {inside}/file; done"
            done = record(
                tmp_path, "--mount", hidden / "mnt", "--", "sh", "-c", script + " >/dev/null"
            )
        finally:
            daemon.terminate()
    assert done.status == 0, done.stderr
    seen = counts(tmp_path / "perf.data")
    assert seen["fuse_daemon:cvmfs_getattr"] == 7
    assert seen["fuse_daemon:cvmfs_lookup"] == 7


def test_a_stripped_client(sample_mount: Mounter, tmp_path: Path) -> None:
    """The callbacks of a stripped client are in the table that its library exports."""
    mount = sample_mount(stripped=True)
    before = mount.callbacks()
    done = record(tmp_path, "--mount", mount.path, *mixed(mount))
    own = mount.callbacks() - before
    assert done.status == 0, done.stderr
    assert own["cvmfs_lookup"] > 100
    assert "stripped" not in done.stderr
    seen = counts(tmp_path / "perf.data")
    for suffix in ("", "__return"):
        found = {name: seen[f"fuse_daemon:{name}{suffix}"] for name in own}
        assert found == dict(own)


def test_the_libfuse_of_a_stripped_daemon(sample_mount: Mounter, tmp_path: Path) -> None:
    """Replies take the place of callbacks."""
    mount = sample_mount(stripped=True)
    before = mount.callbacks()
    done = record(tmp_path, "--mount", mount.path, "--fs", "libfuse", *mixed(mount))
    own = mount.callbacks() - before
    assert done.status == 0, done.stderr
    recorded = events(tmp_path / "perf.data")
    seen = [e for e in recorded if ":fuse_reply_" in e.name]
    forgets = own["cvmfs_forget"] + own["cvmfs_forget_multi"]
    replies = Counter(e.name.partition("fuse_reply_")[2] for e in seen)
    assert replies["none"] == forgets
    # libfuse itself answers requests without a callback: the first FLUSH
    sent = [e.text for e in recorded if "request_send" in e.name]
    flushes = sum("(FUSE_FLUSH)" in trace for trace in sent)
    assert sum(replies.values()) == sum(own.values()) + flushes
    assert replies["open"] == own["cvmfs_open"] + own["cvmfs_opendir"]
    unique = [re.search(r"unique=(\d+)", e.text) for e in seen]
    assert all(unique)


def test_a_separate_debug_file(sample_mount: Mounter, tmp_path: Path) -> None:
    """Symbols in a separate debug file, found by its build id."""
    mount = sample_mount(stripped=True)
    library = mount.library
    whole = BUILD / "with-symbols" / library.name
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: (\w+)", notes)
    if not build_id:
        pytest.skip("the compiler writes no build id")
    debug = Path("/usr/lib/debug/.build-id") / build_id[1][:2] / f"{build_id[1][2:]}.debug"
    made = [p for p in debug.parents if not p.exists()]
    debug.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
        done = record(tmp_path, "--mount", mount.path, *mixed(mount, 1))
        assert done.status == 0, done.stderr
        assert counts(tmp_path / "perf.data")["fuse_daemon:cvmfs_lookup"] > 100
    finally:
        debug.unlink(missing_ok=True)
        for directory in made:
            directory.rmdir()


def test_ones_own_probe_set(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    own = tmp_path / "mine.toml"
    own.write_text(
        """
[[group]]
library = 'libcvmfs_fuse3\\.so.*'
function = '_ZN5cvmfsL\\d+cvmfs_(lookup|read)E.*'
[group.operations]
lookup = "lookup"
read = "read"
[group.arguments]
lookup = { unique = "+8(arg1):u64", name = "+0(arg3):string" }
"""
    )
    done = record(tmp_path, "--mount", mount.path, "--fs", own, *mixed(mount, 1))
    assert done.status == 0, done.stderr
    data = tmp_path / "perf.data"
    seen = {name for name in counts(data) if name.startswith("fuse_daemon:cvmfs_")}
    assert seen == {
        "fuse_daemon:cvmfs_lookup",
        "fuse_daemon:cvmfs_lookup__return",
        "fuse_daemon:cvmfs_read",
        "fuse_daemon:cvmfs_read__return",
    }
    assert any('name="dir-00"' in e.text for e in events(data))
    assert session(data)["mounts"][0]["fs"] == "mine"
    own.write_text("[[group]]\nlibrary = 'x'\nfunktion = 'y'\n")
    done = record(tmp_path, "--mount", mount.path, "--fs", own, "--", "true")
    assert done.status == 1
    assert f"mistake in the probe set {own}" in done.stderr
    assert "group 1, funktion: unknown key" in done.stderr


def test_the_stub_layer(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    done = record(tmp_path, "--mount", mount.path, "--fs", "cvmfs+stub", *mixed(mount, 1))
    assert done.status == 0, done.stderr
    seen = counts(tmp_path / "perf.data")
    assert seen["fuse_daemon:stub_lookup"] == seen["fuse_daemon:cvmfs_lookup"] > 100


def test_pid(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    done = record(tmp_path, "--pid", mount.pid, *mixed(mount, 1))
    assert done.status == 0, done.stderr
    assert session(tmp_path / "perf.data")["mounts"][0]["path"] == str(mount.path)
    done = record(tmp_path, "--mount", mount.path, "--pid", 2**22, "--", "true")
    assert done.status == 1
    assert f"there is no process {2**22}" in done.stderr


@pytest.mark.parametrize("how", ["fp", "dwarf"])
def test_user_stacks(sample_mount: Mounter, tmp_path: Path, how: str) -> None:
    mount = sample_mount()
    done = record(tmp_path, "--mount", mount.path, "--call-graph", how, *mixed(mount, 1))
    assert done.status == 0, done.stderr
    script = ["perf", "script", "-i", "perf.data", "-F", "event,ip,sym"]
    stacks = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "request_wait_answer" in stacks
    evlist = subprocess.run(
        ["perf", "evlist", "-v"], cwd=tmp_path, capture_output=True, text=True
    ).stdout
    # Copies are call chains at the end of the recording.
    assert "STACK_USER" not in evlist and "REGS_USER" not in evlist
    with_stacks = [line for line in evlist.splitlines() if "CALLCHAIN" in line]
    names = {line.split(": ")[0] for line in with_stacks}
    assert names == {"sched:sched_switch", "cpu-clock"}
    assert not any("exclude_callchain_user" in line for line in with_stacks)


def test_output(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    done = record(tmp_path, "--mount", mount.path, "-o", "there/x.data", "--", "true")
    assert done.status == 1
    assert "there is no directory" in done.stderr
    (tmp_path / "target").write_text("precious")
    (tmp_path / "x.data").symlink_to("target")
    done = record(tmp_path, "--mount", mount.path, "-o", "x.data", "--", "true")
    assert done.status == 1 and "it is a symbolic link to target" in done.stderr
    assert (tmp_path / "target").read_text() == "precious"
    assert (tmp_path / "x.data").is_symlink()


def test_without_root(samples: Path, tmp_path: Path) -> None:
    # import first: another user may be unable to read the files
    code = (
        "import os, sys, fusetools.cli.record, fusetools.record.session\n"
        "import fusetools.render.text.footer\n"
        "from fusetools.cli import main\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "main(['record', '--', 'true'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "sudo fusetools" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
