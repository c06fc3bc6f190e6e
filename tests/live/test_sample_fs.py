"""The sample file system follows its settings exactly: other tests rely on it."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import affairs
import pytest
from mounts import HANGS, mount_entry, wait_until
from sample import ROOT, Mounter, SampleMount, SlowServer

pytestmark = [pytest.mark.live, pytest.mark.unrecorded]

CLIENT = ROOT.parent / "shared" / "data" / "cernvmfs-6.1" / "client-after.txt"
FILES = [f"dir-{i:02}/file-{j:03}" for i in range(13) for j in range(101)]


def totals(mount: SampleMount) -> dict[str, int]:
    """Return calls of each callback since mount, without those that were not called."""
    return {name: value.total for name, value in mount.affairs().items() if value.total}


def calls(done: dict[str, Any]) -> dict[str, int]:
    return {name: call["count"] for name, call in done["calls"].items()}


def test_serves_the_tree(sample_mount: Mounter) -> None:
    mount = sample_mount()
    listing = {path.relative_to(mount.tree) for path in mount.tree.rglob("*")}
    assert {path.relative_to(mount.path) for path in mount.path.rglob("*")} == listing
    assert len(listing) == 13 * (1 + 101 + 31 + 1) + 8 + 1
    for name in ("big", "dir-12/file-100", "dir-12/pages", "deep/1/2/3/4/5/6/leaf"):
        assert (mount.path / name).read_bytes() == (mount.tree / name).read_bytes()
        served, own = os.lstat(mount.path / name), os.lstat(mount.tree / name)
        for field in ("st_mode", "st_size", "st_mtime_ns", "st_uid", "st_ino", "st_nlink"):
            assert getattr(served, field) == getattr(own, field), field
    assert os.readlink(mount.path / "dir-00" / "link-30") == "file-030"
    assert os.statvfs(mount.path).f_blocks == os.statvfs(mount.tree).f_blocks
    assert sorted(os.listxattr(mount.path)) == ["user.inode", "user.pid"]
    assert os.listxattr(mount.path / "big") == ["user.inode"]
    inode = os.lstat(mount.path / "big").st_ino
    assert os.getxattr(mount.path / "big", "user.inode") == str(inode).encode()


def test_looks_like_the_client(sample_mount: Mounter) -> None:
    mount = sample_mount()
    entry = mount_entry(mount.path)
    assert entry is not None
    assert entry[entry.index("-") + 1 :][:2] == ["fuse", "samplefs"]
    assert os.getxattr(mount.path, "user.pid") == str(mount.pid).encode()
    mount.mixed()
    threads = list(Path(f"/proc/{mount.pid}/task").iterdir())
    assert len(threads) > 3
    assert {(thread / "comm").read_text() for thread in threads} == {"samplefs\n"}
    maps = Path(f"/proc/{mount.pid}/maps").read_text()
    assert str(mount.library) in maps and str(mount.stub_library) in maps


@pytest.mark.parametrize("build", ["with-symbols", "stripped", "as-shipped"])
def test_symbols(samples: Path, build: str) -> None:
    def symbols(library: str, *options: str) -> set[str]:
        path = next((samples / build).glob(library))
        done = subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True)
        return {line[17:] for line in done.stdout.splitlines()}

    for library, scope, prefix in (
        ("libcvmfs_fuse3.so.*", "_ZN5cvmfsL", "cvmfs"),
        ("libcvmfs_fuse3_stub.so.*", "_ZN6loaderL", "stub"),
    ):
        names = {name.replace("cvmfs", prefix, 1) for name in affairs.CALLBACKS.values()}
        mangled = {f"t {scope}{len(name)}{name}EP8fuse_req" for name in names}
        found = {
            start
            for symbol in symbols(library)
            for start in mangled
            if symbol.startswith(start) and ".cold" not in symbol
        }
        assert found == (set() if build == "stripped" else mangled)
        exported = symbols(library, "-D")
        assert exported & {"B g_cvmfs_exports", "T stub_main"}
        assert not [symbol for symbol in exported if f"{prefix}_lookup" in symbol]
    if build != "stripped":
        assert "t _ZN5cvmfsL12cvmfs_lookupEP8fuse_reqmPKc" in symbols("libcvmfs_fuse3.so.*")


# The callbacks of one call, beside a LOOKUP for each component of the path.
REQUESTS = {
    "stat": ("getattr",),
    "open": ("open", "release"),
    "readlink": ("readlink",),
    "getxattr": ("getxattr",),
    "listxattr": ("listxattr",),
    "statfs": ("statfs",),
}


@pytest.mark.parametrize(
    "operation, count, path",
    [
        ("stat", 1009, "dir-00/file-000"),
        ("stat", 101, "deep/1/2/3/4/5/6/leaf"),
        ("open", 211, "big"),
        ("readlink", 307, "dir-01/link-07"),
        ("getxattr", 223, "dir-02/file-001"),
        ("listxattr", 227, "dir-02"),
        ("statfs", 229, "dir-02/file-001"),
    ],
)
def test_counts(sample_mount: Mounter, operation: str, count: int, path: str) -> None:
    mount = sample_mount()
    done = mount.workload(operation, count, path)
    assert calls(done)[operation] == count
    assert done["errors"] == {}
    expected = {f"cvmfs_{name}": count for name in REQUESTS[operation]}
    expected["cvmfs_lookup"] = count * len(Path(path).parts)
    assert totals(mount) == expected


def test_counts_read(sample_mount: Mounter) -> None:
    mount = sample_mount()
    done = mount.workload("read", 503, "big")
    assert done["bytes_read"] == 503 * 4096
    assert totals(mount) == {
        "cvmfs_lookup": 1,
        "cvmfs_open": 1,
        "cvmfs_read": 503,
        "cvmfs_release": 1,
    }


def test_counts_readdir(sample_mount: Mounter) -> None:
    mount = sample_mount()
    done = mount.workload("readdir", 101, "dir-03")
    assert done["entries_read"] == 101 * (101 + 31 + 1 + 2)
    assert totals(mount) == {
        "cvmfs_lookup": 101,
        "cvmfs_opendir": 101,
        "cvmfs_readdir": calls(done)["getdents64"],
        "cvmfs_releasedir": 101,
    }


@pytest.mark.parametrize("options", [(), ("--threads=1",)])
def test_counts_of_8_processes(sample_mount: Mounter, options: tuple[str, ...]) -> None:
    mount = sample_mount(*options)
    done = calls(mount.mixed(processes=8))
    assert done == {
        "stat": 8 * 211,
        "open": 8 * (23 + 109 + 1),
        "read": 8 * 89,
        "getdents64": done["getdents64"],
        "close": 8 * (23 + 109 + 1),
        "readlink": 8 * 61,
        "getxattr": 8 * 43,
        "listxattr": 8 * 37,
        "statfs": 8 * 17,
    }
    assert totals(mount) == {
        # All use paths dir-NN/NAME, except readdir and statfs on dir-NN.
        "cvmfs_lookup": 8 * (2 * (211 + 109 + 1 + 61 + 43 + 37) + 23 + 17),
        "cvmfs_getattr": 8 * 211,
        "cvmfs_readlink": 8 * 61,
        "cvmfs_opendir": 8 * 23,
        "cvmfs_readdir": done["getdents64"],
        "cvmfs_releasedir": 8 * 23,
        "cvmfs_open": 8 * 110,
        "cvmfs_read": 8 * 89,
        "cvmfs_release": 8 * 110,
        "cvmfs_statfs": 8 * 17,
        "cvmfs_getxattr": 8 * 43,
        "cvmfs_listxattr": 8 * 37,
    }


def test_kernel_cache(sample_mount: Mounter) -> None:
    mount = sample_mount(kernel_cache=60)
    mount.workload("stat", 1009, "dir-00/file-000")
    assert totals(mount) == {"cvmfs_lookup": 2}
    for _ in range(3):
        mount.workload("read", 101, "dir-00/pages")
    assert totals(mount)["cvmfs_read"] == 101
    assert totals(mount)["cvmfs_open"] == 3
    # The absence of a file is also cached.
    assert mount.workload("stat", 101, "no-such-file")["errors"] == {"ENOENT": 101}
    assert mount.counters()["cvmfs.n_fs_lookup_negative"] == 1


def test_missing_file(sample_mount: Mounter) -> None:
    mount = sample_mount()
    assert mount.workload("stat", 101, "no-such-file")["errors"] == {"ENOENT": 101}
    assert totals(mount) == {"cvmfs_lookup": 101}
    assert mount.counters()["cvmfs.n_fs_lookup_negative"] == 101


def test_forget(sample_mount: Mounter) -> None:
    mount = sample_mount()
    inodes = [os.lstat(mount.path / path).st_ino for path in FILES]
    mount.workload("stat", 2003, *FILES)
    assert mount.counters()["inode_tracker.no_reference"] == 1 + 13 + 13 * 101
    mount.forget()
    wait_until(lambda: mount.counters()["inode_tracker.no_reference"] == 1, "the forgets")
    told = totals(mount)
    assert told.get("cvmfs_forget", 0) + told.get("cvmfs_forget_multi", 0) > 0
    assert [os.lstat(mount.path / path).st_ino for path in FILES] == inodes


def test_delay(sample_mount: Mounter) -> None:
    """Each lookup is delayed within its callback and its caller's system call, and nothing else
    is."""
    mount = sample_mount(delay=("lookup=200us", "readlink=300us:after"))
    begin = time.monotonic_ns()
    stat = mount.workload("stat", 211, "big")["calls"]["stat"]
    mount.workload("readlink", 53, "dir-01/link-07")
    end = time.monotonic_ns()
    of: dict[str, list[affairs.Call]] = {}
    for call in mount.calls():
        of.setdefault(call.operation, []).append(call)
    expected = {"lookup": 211 + 2 * 53, "getattr": 211, "readlink": 53}
    assert {name: len(calls) for name, calls in of.items()} == expected
    for call in of["lookup"]:
        assert begin < call.entered <= call.delay_begin
        assert call.delay_begin + 200_000 <= call.delay_end <= call.left
        assert call.delay_end < end and call.after_begin == call.after_end == 0
    for call in of["readlink"]:
        assert call.entered < call.after_begin
        assert call.after_begin + 300_000 <= call.after_end <= call.left
        assert call.delay_begin == call.delay_end == 0
    for call in of["getattr"]:
        assert not (call.delay_begin or call.delay_end or call.after_begin or call.after_end)
    # The callers waited for all delays before the replies.
    before_stats = [call.delay_end - call.delay_begin for call in of["lookup"][:211]]
    assert sum(before_stats) < stat["sum_ns"] and min(before_stats) < stat["min_ns"]

    # The counters and the histograms count the same calls.
    counters, histograms = mount.counters(), mount.affairs()
    for name, calls in of.items():
        durations = [call.left - call.entered for call in calls]
        assert histograms[f"cvmfs_{name}"] == affairs.Histogram.of(durations)
        assert counters[f"samplefs.ns_{name}"] == sum(durations)
        delays = [(call.delay_end or call.after_end) - (call.delay_begin or call.after_begin)
                  for call in calls if call.delay_end or call.after_end]  # fmt: skip
        assert counters[f"samplefs.n_delay_{name}"] == len(delays)
        assert counters[f"samplefs.ns_delay_{name}"] == sum(delays)


@pytest.mark.parametrize("delay", [50_000, 200_000, 2_000_000])
@pytest.mark.parametrize("how", ["", ":spin"])
def test_delays_are_exact(sample_mount: Mounter, delay: int, how: str) -> None:
    """No delay is too short, and of 503 at least 13 are too long by at most 1 %.

    A delay is longer if the daemon was kept from its CPU in the last 60 us, or while it spun. If
    this happened independently to 9 of 10, fewer than 13 of 503 would be exact in 2 of 10^11 runs
    (binomial).
    """
    mount = sample_mount(delay=(f"statfs={delay}ns{how}",))
    mount.workload("statfs", 503, "")
    delays = [call.delay_end - call.delay_begin for call in mount.calls()]
    assert len(delays) == 503
    assert min(delays) >= delay
    assert sum(ns <= delay * 1.01 for ns in delays) >= 13


def test_only_a_spinning_delay_uses_the_cpu(sample_mount: Mounter) -> None:
    """Sleeping, the daemon gives up its CPU in each delay; spinning, it does so in none.

    It may be preempted at any time. 53 requests have 5 delays each. In addition, the daemon waits
    for each request once.
    """

    def given_away(delay: str) -> int:
        mount = sample_mount("--threads", "1", delay=(delay,) * 5)

        def switches() -> int:
            threads = Path(f"/proc/{mount.pid}/task").iterdir()
            status = [(thread / "status").read_text() for thread in threads]
            return sum(int(s.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for s in status)

        mount.workload("statfs", 1, "")
        before = switches()
        mount.workload("statfs", 53, "")
        given_away = switches() - before
        assert mount.counters()["samplefs.n_delay_statfs"] == 54 * 5
        return given_away

    assert given_away("statfs=2ms:spin") < 2 * 53 < 4 * 53 < given_away("statfs=2ms")


def test_shares_of_delays_and_errors(sample_mount: Mounter) -> None:
    mount = sample_mount(
        delay=("getattr=5ms:1%", "getattr=2ms:10%"), error=("getattr=EIO:3.5%", "open=EACCES")
    )
    assert mount.workload("stat", 1009, "big")["errors"] == {"EIO": 1009 * 35 // 1000}
    assert mount.workload("open", 13, "big")["errors"] == {"EACCES": 13}
    counters = mount.counters()
    assert counters["samplefs.n_error_getattr"] == 1009 * 35 // 1000
    assert counters["samplefs.n_error_open"] == 13
    assert counters["samplefs.n_delay_getattr"] == 1009 // 100 + 1009 // 10
    own = mount.affairs()["cvmfs_getattr"]
    assert own.total == 1009  # failed calls are counted, too
    assert sum(own.bins[22:]) + own.overflow >= 1009 // 100  # above 4.2 ms
    assert sum(own.bins[20:]) + own.overflow >= 1009 // 10  # above 1 ms


@pytest.mark.parametrize("operation", ["release", "releasedir", "forget", "forget_multi"])
def test_delay_that_nobody_waits_for(sample_mount: Mounter, operation: str) -> None:
    mount = sample_mount(delay=(f"{operation}=300us",))
    mount.workload("open", 53, "big")
    mount.workload("readdir", 53, "")
    # One inode is forgotten by a FORGET, many by a BATCH_FORGET.
    mount.workload("stat", 1313, *(["big"] if operation == "forget" else FILES))
    mount.forget()
    wait_until(lambda: mount.counters()["inode_tracker.no_reference"] == 1, "the forgets")
    own = mount.affairs()[f"cvmfs_{operation}"]
    assert own.total > 0
    assert sum(own.bins[:18]) == 0
    assert mount.counters()[f"samplefs.n_delay_{operation}"] == own.total


def test_read_only(sample_mount: Mounter) -> None:
    mount = sample_mount()
    attempts: list[Callable[[], object]] = [
        lambda: os.open(mount.path / "big", os.O_RDWR),
        lambda: os.open(mount.path / "big", os.O_WRONLY | os.O_TRUNC),
        lambda: os.open(mount.path / "new", os.O_WRONLY | os.O_CREAT),
        lambda: os.mkdir(mount.path / "new"),
        lambda: os.unlink(mount.path / "big"),
        lambda: os.chmod(mount.path / "big", 0o600),
    ]
    for attempt in attempts:
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno == errno.EROFS
    assert "cvmfs_open" not in totals(mount)  # the kernel has answered by itself

    writable = sample_mount("-o", "rw")
    with pytest.raises(OSError) as caught:
        os.open(writable.path / "big", os.O_RDWR)
    assert caught.value.errno == errno.EROFS
    assert totals(writable)["cvmfs_open"] == 1


def test_internal_affairs_are_in_the_clients_form(sample_mount: Mounter) -> None:
    if not CLIENT.exists():
        pytest.skip(f"there is no {CLIENT}")
    client = CLIENT.read_text()
    parsed = affairs.parse(client)
    assert {name: value.total for name, value in parsed.items()} == {
        "cvmfs_lookup": 1832,
        "cvmfs_forget": 0,
        "cvmfs_forget_multi": 0,
        "cvmfs_getattr": 1,
        "cvmfs_readlink": 212,
        "cvmfs_opendir": 42,
        "cvmfs_releasedir": 42,
        "cvmfs_readdir": 98,
        "cvmfs_open": 24,
        "cvmfs_read": 50,
        "cvmfs_release": 24,
    }
    assert affairs.counters(client)["cvmfs.n_fs_lookup"] == 1832

    own = sample_mount().talk()
    assert list(affairs.parse(own)) == list(affairs.CALLBACKS.values())
    assert list(affairs.CALLBACKS.values())[: len(parsed)] == list(parsed)
    # The output names calls that never happened in the same words.
    assert client[client.index("Forget\n") : client.index("Multi-Forget\n")] in own


def test_asking_does_not_count(sample_mount: Mounter) -> None:
    mount = sample_mount()
    assert totals(mount) == {}
    assert totals(mount) == {}


def test_sigterm_unmounts(sample_mount: Mounter) -> None:
    mount = sample_mount()
    mount.mixed()
    assert mount.unmount() == 0
    assert not mount.mounted
    assert not mount.socket.exists()


def test_sigterm_during_a_request(sample_mount: Mounter, samples: Path) -> None:
    mount = sample_mount(delay=("statfs=2s",))
    command = [str(samples / "workload"), "statfs", "1", str(mount.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as caller:
        mount.wait_for("statfs")
        assert mount.unmount() == 0
        assert caller.stdout is not None
        done = json.load(caller.stdout)
    assert not mount.mounted
    assert done["calls"]["statfs"]["min_ns"] > 2e9  # the request was in flight, and got its answer
    assert done["errors"] == {}


def test_unmount_ends_the_daemon(sample_mount: Mounter) -> None:
    mount = sample_mount()
    subprocess.run(["fusermount3", "-u", mount.path], check=True)
    assert mount.process.wait(HANGS) == 0
    assert not mount.socket.exists()


def test_background(samples: Path, tmp_path: Path) -> None:
    tree, path = tmp_path / "tree", tmp_path / "mount"
    tree.mkdir()
    path.mkdir()
    (tree / "file").write_text("text")
    command = [str(samples / "with-symbols" / "samplefs")]
    command += ["--socket", "socket", "tree", "mount"]
    subprocess.run(command, cwd=tmp_path, check=True)
    try:
        assert (path / "file").read_text() == "text"
        os.kill(int(os.getxattr(path, "user.pid")), signal.SIGTERM)
        wait_until(lambda: mount_entry(path) is None, "the unmount")
        wait_until(lambda: not (tmp_path / "socket").exists(), "the daemon's end")
    finally:
        if mount_entry(path):
            subprocess.run(["umount", "-l", path], check=True)


def test_stripped(sample_mount: Mounter) -> None:
    mount = sample_mount(stripped=True)
    mount.workload("stat", 101, "big")
    assert totals(mount) == {"cvmfs_lookup": 101, "cvmfs_getattr": 101}


def prologues(library: Path) -> tuple[int, int]:
    """Return (callbacks, those that keep a frame pointer), as objdump shows their code."""
    command: list[str | Path] = ["objdump", "-d", "--no-show-raw-insn", library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    functions = re.split(r"\n\n[0-9a-f]+ <", done.stdout)
    callbacks = [text for text in functions if re.match(r"_ZN5cvmfsL\d+cvmfs_", text)]
    # The compiler may put a few instructions between the two. After stack space is reserved, it is
    # the address of an object there.
    frame = re.compile(r"push +%rbp\n((?!.*(?:sub|add) +\S+,%rsp).*\n){0,8}?.*mov +%rsp,%rbp\n")
    kept = [text for text in callbacks if frame.search(text)]
    return len(callbacks), len(kept)


def test_as_shipped_keeps_no_frame_pointers(samples: Path) -> None:
    """All callbacks, and init and destroy."""
    kept = {
        build: prologues(next((samples / build).glob("libcvmfs_fuse3.so.*")))
        for build in ("with-symbols", "as-shipped")
    }
    assert kept == {"with-symbols": (16, 16), "as-shipped": (16, 0)}


def test_downloads(
    sample_mount: Mounter, slow_server: Callable[..., SlowServer], tmp_path: Path
) -> None:
    """Another thread of the daemon makes the downloads, as many as are due, while the callback
    waits."""
    server = slow_server("--delay", "7ms")
    mount = sample_mount(
        f"--download=read={server.port}:50%", f"--download=open={server.port}", as_shipped=True
    )
    done = mount.workload("read", 31, *FILES[:5])
    counters = mount.counters()
    assert not done["errors"] and done["bytes_read"] > 0
    n_read = counters["samplefs.n_download_read"]
    assert n_read == calls(done)["read"] // 2
    assert counters["samplefs.n_download_open"] == 31
    requests = server.requests()
    assert Counter(request["path"] for request in requests) == {"/read": n_read, "/open": 31}
    # The thread waits for the server, and the callback for the thread.
    for name in ("read", "open"):
        served = sum(r["end"] - r["begin"] for r in requests if r["path"] == f"/{name}")
        waited = counters[f"samplefs.ns_download_{name}"]
        assert 7e6 * counters[f"samplefs.n_download_{name}"] <= served < waited
        assert waited < counters[f"samplefs.ns_{name}"]


def test_a_failed_download_is_an_error(
    sample_mount: Mounter, slow_server: Callable[..., SlowServer]
) -> None:
    server = slow_server()
    server.stop()
    mount = sample_mount(f"--download=open={server.port}", as_shipped=True)
    done = mount.workload("open", 3, FILES[0])
    assert done["errors"] == {"EIO": 3}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--delay", "lookup=200", "T", "T"], "'200' needs a unit: ns, us, ms or s"),
        (["--delay", "lookup=fast", "T", "T"], "'fast' does not begin with a number"),
        (["--delay", "lookup=", "T", "T"], "'' does not begin with a number"),
        (["--delay", "lookup", "T", "T"], "expected OPERATION=…"),
        (["--delay", "lokup=1ms", "T", "T"], "no operation 'lokup'"),
        (["--delay", "read=1ms:2", "T", "T"], "'2' is not a share"),
        (["--delay", "read=1ms:101%", "T", "T"], "between 0.0001% and 100%"),
        (["--delay", "read=2h", "T", "T"], "needs a unit"),
        (["--delay", "read=1.2.3ms", "T", "T"], "'1.2.3ms' does not begin with a number"),
        (["--delay", "read=3601s", "T", "T"], "longer than an hour"),
        (["--error", "open=EWRONG", "T", "T"], "'EWRONG' is no error's name"),
        (["--error", "open=EIO:1%:spin", "T", "T"], "expected OPERATION=ERRNO[:SHARE%]"),
        (["--error", "forget=EIO", "T", "T"], "a forget has no reply"),
        (["--download", "read=http", "T", "T"], "'http' does not begin with a number"),
        (["--download", "read=65536", "T", "T"], "'65536' is not between 1 and 65535"),
        (["--download", "read=80:1%:spin", "T", "T"], "expected OPERATION=PORT[:SHARE%]"),
        (["--download", "forget=80", "T", "T"], "a forget needs no file"),
        (["--kernel-cache", "1h", "T", "T"], "'1h' is not in seconds"),
        (["--kernel-cache=-1", "T", "T"], "'-1' does not begin with a number"),
        (["--threads", "0", "T", "T"], "'0' is not between 1 and 1000"),
        (["--threads"], "--threads: expected a value"),
        (["--wrong", "T", "T"], "there is no option '--wrong'"),
        (["T"], "expected DIRECTORY MOUNTPOINT"),
        (["-o", "nonsense", "T", "T"], "wrong mount options"),
        (["T", "/no/such/directory"], "cannot mount on /no/such/directory: No such file"),
        (["T", "/dev/null"], "cannot mount on /dev/null: not a directory"),
        (["/no/such/directory", "T"], "cannot serve /no/such/directory: No such file"),
        (["--socket", "/no/such/socket", "T", "T"], "cannot listen on /no/such/socket: No such"),
        (["--talk", "/no/such/socket", "internal", "affairs"], "cannot talk to /no/such/socket"),
    ],
)
def test_wrong_options(samples: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    command = [str(samples / "with-symbols" / "samplefs")]
    command += [str(tmp_path) if argument == "T" else argument for argument in arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
    assert mount_entry(tmp_path) is None
    assert message in done.stderr
    assert done.returncode in (1, 2)


def test_a_file_is_not_taken_for_an_old_socket(samples: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    command = [str(samples / "with-symbols" / "samplefs"), "--socket", str(file)]
    command += [str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, mount_entry(tmp_path)) == (1, None)
    assert f"cannot listen on {file}: Address already in use" in done.stderr
    assert file.read_text() == "precious"
