"""Reading a host, from trees in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fusetools.host.facts import HostFacts, Mount
from fusetools.host.files import Answer, Files, bounded, end_children
from fusetools.host.mounts import parse_mountinfo
from fusetools.host.probe import (
    capabilities,
    looked_at,
    parse_kallsyms,
    parse_readme,
    read_host,
)
from fusetools.host.selftest import judge_unique
from fusetools.host.tools import known_options
from fusetools.stuck.places import Table

TRACEFS = "/sys/kernel/tracing"
OURS = "mnt:[4026531841]"


class Tree:
    """A host's files below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("/proc/self/status", "Uid:\t1000\t0\t0\t0\nCapEff:\t0000000000200001\n")
        self.put("/proc/sys/kernel/osrelease", "5.0.1\n")
        self.put("/sys/devices/system/cpu/online", "0-3,8\n")
        self.link("/proc/self/ns/mnt", OURS)

    def put(self, name: str, text: str | bytes = "") -> Path:
        path = Path(f"{self.root}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def link(self, name: str, target: str) -> None:
        path = Path(f"{self.root}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def mounts(self, *lines: str, pid: str = "self") -> None:
        self.put(f"/proc/{pid}/mountinfo", "".join(line + "\n" for line in lines))

    def tracefs(self, **files: str) -> None:
        self.put(f"{TRACEFS}/available_tracers", "function nop\n")
        for name, text in files.items():
            self.put(f"{TRACEFS}/{name}", text)

    def process(
        self,
        pid: int,
        comm: str,
        *arguments: str,
        descriptors: tuple[str, ...] = ("/dev/fuse",),
        connection: int | None = None,
        threads: int = 1,
        maps: str = "",
        namespace: str = OURS,
    ) -> None:
        self.put(f"/proc/{pid}/comm", comm + "\n")
        self.put(f"/proc/{pid}/cmdline", "\0".join((comm, *arguments)) + "\0")
        self.put(f"/proc/{pid}/status", f"Name:\t{comm}\nThreads:\t{threads}\n")
        self.put(f"/proc/{pid}/maps", maps)
        self.link(f"/proc/{pid}/ns/mnt", namespace)
        for number, target in enumerate(descriptors):
            self.link(f"/proc/{pid}/fd/{number}", target)
            info = "pos:\t0\nflags:\t02100002\n"
            if connection is not None:
                info += f"fuse_connection:\t{connection}\n"
            self.put(f"/proc/{pid}/fdinfo/{number}", info)

    def mapped(self, name: str, path: Path, start: int = 0x7F0000000000) -> str:
        """Return the line of maps for a file of this host that the daemon calls ``name``."""
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        return f"{start:x}-{start + 4096:x} r-xp 00000000 {device} {status.st_ino}   {name}\n"

    def read(self) -> HostFacts:
        return read_host(self.root)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def line(path: str, connection: str, kind: str = "fuse", source: str = "cvmfs2") -> str:
    return (
        f"40 27 {connection} / {path} ro,nosuid shared:1 - {kind} {source} ro,user_id=7,group_id=8"
    )


def test_an_empty_host(tree: Tree) -> None:
    facts = tree.read()
    assert (facts.kernel, facts.cpus, facts.uid) == ("5.0.1", 5, 0)
    assert facts.capabilities == ("cap_chown", "cap_sys_admin")
    assert facts.tracefs is None and not facts.tracefs_writable
    assert facts.perf is None and not facts.perf_can_record
    assert facts.perf_why == "perf is not installed"
    assert facts.mounts == ()
    assert HostFacts.from_json(facts.to_json()) == facts


def test_mountinfo_names_and_numbers() -> None:
    text = "\n".join(
        (
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
            "23 22 0:45 / /mnt/a\\040b\\134c rw,nosuid - fuse.sshfs me@h:/x\\040y rw,user_id=1000,"
            "group_id=100,allow_other",
            "24 22 1:300 / /big rw master:2 propagate_from:1 - fuseblk /dev/sdb rw",
            "25 22 0:46 / /sys/fs/fuse/connections rw - fusectl none rw",
            "26 22 0:45 /sub /bind rw - fuse.sshfs me@h: rw",
            "40 22 0:35 / /run/v rw,relatime - virtiofs vfs rw",
        )
    )
    assert parse_mountinfo(text) == [
        Mount("/mnt/a b\\c", "fuse.sshfs", "me@h:/x y", 45, user=1000, group=100),
        Mount("/big", "fuseblk", "/dev/sdb", 1 << 20 | 300, allow_other=False),
        Mount("/run/v", "virtiofs", "vfs", 35, allow_other=False),
        Mount("/bind", "fuse.sshfs", "me@h:", 45, allow_other=False),
    ]


def test_automounts_of_virtiofs_have_the_connection_above() -> None:
    text = "\n".join(
        (
            "40 22 0:35 / /run/v rw,relatime - virtiofs none rw",
            "41 40 0:36 / /run/v/sub rw,relatime - virtiofs none rw",
            "42 41 0:37 / /run/v/sub/deeper rw,relatime - virtiofs none rw",
            "43 40 0:38 / /run/v/other rw,relatime - virtiofs tag rw",
            "44 22 0:45 / /a rw - fuse.sshfs h: rw",
            "45 44 0:46 / /a/b rw - fuse.sshfs none rw",
        )
    )
    found = [(mount.path, mount.connection) for mount in parse_mountinfo(text)]
    assert found == [
        ("/run/v", 35),
        ("/run/v/sub", 35),
        ("/run/v/sub/deeper", 35),
        ("/run/v/other", 38),
        ("/a", 45),
        ("/a/b", 46),
    ]
    table = Table(text)
    assert (table.along("/run/v/sub/deeper/x")[0], table.along("/a/b/x")[0]) == (35, 46)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " - ",
        "1 2 3 - fuse",
        "1 2 x:y / /m rw - fuse a rw",
        "1 2 ٣:٤ / /m rw - fuse a rw",
        f"1 2 {'9' * 9999}:1 / /m rw - fuse a rw",
        "\0" * 1000,
        "1 2 0:4 / /m rw - fuse",
    ],
)
def test_mountinfo_that_makes_no_sense_gives_nothing(text: str) -> None:
    assert parse_mountinfo(text) == []


def test_daemon_by_the_connection_of_its_descriptor(tree: Tree) -> None:
    tree.mounts(line("/a", "0:45"), line("/b", "0:46"))
    tree.process(10, "other", "/a", connection=46)
    tree.process(11, "daemon", connection=45)
    assert [(m.path, m.daemon_pid, m.comm) for m in tree.read().mounts] == [
        ("/a", 11, "daemon"),
        ("/b", 10, "other"),
    ]


def test_a_file_system_has_all_its_paths_in_one_namespace(tree: Tree) -> None:
    tree.mounts(
        line("/a", "0:45"), line("/b", "0:46"), line("/bind", "0:45"), line("/bind", "0:45")
    )
    tree.process(10, "container", namespace="mnt:[2]")
    tree.put("/proc/10/mountinfo", f"{line('/in', '0:46')}\n{line('/c', '0:47')}\n")
    assert [(m.path, m.also, m.seen_by) for m in tree.read().mounts] == [
        ("/a", ("/bind",), None),
        ("/b", (), None),
        ("/c", (), 10),
    ]


def test_streams_of_a_daemon(tree: Tree) -> None:
    """Sockets and pipes to other processes; none that a thread reads from already."""
    tree.mounts(line("/a", "0:45"))
    descriptors = (
        "/dev/null /dev/fuse socket:[70] pipe:[71] pipe:[72] pipe:[72] socket:[73] pipe:[74]"
    )
    descriptors += " pipe:[75] /tmp/pipe:[76] pipe:[77] socket:[78] pipe:[79]"
    tree.process(10, "daemon", connection=45, descriptors=tuple(descriptors.split()))
    for thread, call in enumerate(("0 0x6 0x7f 0x1", "19 0x7 0x7f 0x1", "1 0x8 0x7f", "running")):
        tree.put(f"/proc/10/task/{10 + thread}/syscall", f"{call} 0x0 0x0 0x0\n")
    flags = {3: "02004000", 8: "0100000", 10: "0100001", 11: "02", 12: "02004001"}
    for number, text in flags.items():
        tree.put(f"/proc/10/fdinfo/{number}", f"pos:\t0\nflags:\t{text}\nmnt_id:\t14\n")
    assert tree.read().mounts[0].streams == (2, 3, 8, 11)


@pytest.mark.parametrize("argument", ["/mnt/x y", "/mnt/x y/", "x y", "./x y"])
def test_daemon_by_its_command_line_where_the_kernel_does_not_tell(
    tree: Tree, argument: str
) -> None:
    tree.mounts(line("/mnt/x\\040y", "0:45"))
    tree.process(9, "bystander", "/mnt/x y", descriptors=("/dev/null",))
    tree.process(10, "sshfs", "host:/", "/mnt/x")
    tree.process(11, "sshfs", "host:/", argument)
    assert tree.read().mounts[0].daemon_pid == 11


def test_command_line_does_not_count_where_the_kernel_tells(tree: Tree) -> None:
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "sshfs", "/a", connection=99)
    mount = tree.read().mounts[0]
    assert mount.daemon_pid is None
    assert "another pid namespace" in mount.why


def test_the_client_serves_not_its_watchdog(tree: Tree) -> None:
    library = tree.put("/usr/lib/libcvmfs_fuse3.so.2.12.0")
    maps = tree.mapped("/usr/lib/libcvmfs_fuse3.so.2.12.0", library)
    tree.mounts(line("/cvmfs/a", "0:45"))
    tree.process(20, "cvmfs2", "/cvmfs/a", connection=45, threads=1)
    tree.process(21, "cvmfs2", "/cvmfs/a", connection=45, threads=12, maps=maps)
    tree.process(22, "cvmfs2", "/cvmfs/a", connection=45, threads=1)
    mount = tree.read().mounts[0]
    assert mount.daemon_pid == 21
    assert [library.path for library in mount.libraries] == ["/usr/lib/libcvmfs_fuse3.so.2.12.0"]


def test_the_reader_serves_not_its_supervisor(tree: Tree) -> None:
    tree.mounts(line("/a", "0:45"))
    for pid in (20, 21, 22):
        tree.process(pid, "d", "/a", connection=45)
        tree.put(f"/proc/{pid}/task/{pid}/wchan", "fuse_dev_do_read" if pid == 21 else "do_wait")
    mount = tree.read().mounts[0]
    assert (mount.daemon_pid, mount.servers) == (21, (20, 21, 22))


def test_library_is_known_by_its_inode(tree: Tree) -> None:
    """A copy under the daemon's name for it is another file; the path through its root is the
    same."""
    copy = tree.put("/usr/lib/lib.so", b"copy")
    real = tree.put("/proc/11/root/usr/lib/lib.so", b"real")
    same = tree.put("/usr/lib/same.so")
    maps = tree.mapped("/usr/lib/lib.so", real) + tree.mapped("/usr/lib/same.so", same, 0x7F1 << 32)
    assert copy.stat().st_ino != real.stat().st_ino
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "d", connection=45, maps=maps)
    first, second = tree.read().mounts[0].libraries
    assert (first.path, first.host_path) == ("/usr/lib/lib.so", "/proc/11/root/usr/lib/lib.so")
    assert first.inode == real.stat().st_ino
    assert second.host_path == "/usr/lib/same.so"


def test_library_on_another_device_of_the_same_number_is_another_file(tree: Tree) -> None:
    library = tree.put("/usr/lib/lib.so")
    inode = library.stat().st_ino
    maps = f"7f0000000000-7f0000001000 r-xp 00000000 7f:7f {inode} /usr/lib/lib.so\n"
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "d", connection=45, maps=maps)
    assert tree.read().mounts[0].libraries[0].host_path == ""


def test_replaced_library_is_reached_through_map_files(tree: Tree) -> None:
    old = tree.put("/proc/11/map_files/7f0000000000-7f0000001000", b"old")
    tree.put("/usr/lib/lib.so", b"new")
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "d", connection=45, maps=tree.mapped("/usr/lib/lib.so (deleted)", old))
    library = tree.read().mounts[0].libraries[0]
    assert library.path == "/usr/lib/lib.so"
    assert library.host_path == "/proc/11/map_files/7f0000000000-7f0000001000"


def test_only_executable_files_are_libraries(tree: Tree) -> None:
    file = tree.put("/l.so")
    lines = tree.mapped("/l.so", file), tree.mapped("/data", file).replace("r-xp", "r--p")
    anonymous = "7f2000000000-7f2000001000 r-xp 00000000 00:00 0 \n", "7f3 garbage\n", "\n"
    vdso = "7fff00000000-7fff00001000 r-xp 00000000 00:00 0      [vdso]\n"
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "d", connection=45, maps="".join((*lines, *anonymous, vdso, lines[0])))
    assert [library.path for library in tree.read().mounts[0].libraries] == ["/l.so"]


def test_mounts_of_other_namespaces(tree: Tree) -> None:
    tree.mounts(line("/a", "0:45"))
    tree.process(10, "d", connection=45)
    tree.process(11, "inside", connection=46, namespace="mnt:[4026532000]")
    tree.process(12, "inside2", descriptors=(), namespace="mnt:[4026532000]")
    tree.mounts(line("/a-there", "0:45"), line("/b", "0:46"), pid="11")
    tree.mounts(line("/never-read", "0:99"), pid="12")
    found = [(m.path, m.seen_by, m.daemon_pid) for m in tree.read().mounts]
    assert found == [("/a", None, 10), ("/b", 11, 11)]


def test_processes_that_vanish(tree: Tree) -> None:
    """A process that ends between two reads leaves a descriptor and no other file."""
    tree.mounts(line("/a", "0:45"))
    tree.link("/proc/11/fd/3", "/dev/fuse")
    (tree.root / "proc/12").mkdir()
    assert tree.read().mounts[0].daemon_pid is None


def test_only_the_device_of_the_mounts_user_makes_a_daemon(tree: Tree) -> None:
    """The mount's user is 7; an older kernel does not show the connection of a descriptor."""
    tree.mounts(line("/a", "0:45"))
    tree.process(11, "x", "x:", "/a")
    status = "Name:\tx\nThreads:\t1\nUid:\t{0}\t{0}\t{0}\t{0}\n"
    for uid, daemon in ((8, None), (7, 11), (0, 11)):
        tree.put("/proc/11/status", status.format(uid))
        assert tree.read().mounts[0].daemon_pid == daemon
    # This one shows it: such a descriptor has no mount.
    tree.put("/proc/kallsyms", "0000000000000000 t fuse_dev_show_fdinfo\n")
    (mount,) = tree.read().mounts
    assert mount.daemon_pid is None and "does not show" not in mount.why


def test_another_daemons_connection_shows_that_this_kernel_shows_them(tree: Tree) -> None:
    tree.mounts(line("/a", "0:45"), line("/b", "0:46"))
    tree.process(11, "x", "x:", "/a")
    tree.process(12, "y", "y:", "/b", connection=46)
    assert [mount.daemon_pid for mount in tree.read().mounts] == [None, 12]


def test_users_of_ftrace_are_named(tree: Tree) -> None:
    tree.tracefs(
        current_tracer="function_graph\n",
        set_event="sched:sched_switch\n",
        set_ftrace_filter="fuse_lookup\nfuse_getattr\n",
        dynamic_events="p:uprobes/malloc /l:0x1\nr4:fuse_daemon/cvmfs_lookup__return /l:0x2\n",
    )
    tree.put(f"{TRACEFS}/instances/foo/current_tracer", "nop\n")
    tree.put(f"{TRACEFS}/instances/foo/set_event", "irq:irq_handler_entry\n")
    tree.process(30, "bpftrace", descriptors=("anon_inode:[perf_event]", "pipe:[1]"))
    tree.process(31, "trace-cmd", descriptors=(f"{TRACEFS}/per_cpu/cpu0/trace_pipe_raw",))
    facts = tree.read()
    assert facts.ftrace_users == (
        "the tracer function_graph is on (current_tracer)",
        "2 functions in set_ftrace_filter",
        "1 event on (set_event): sched:sched_switch",
        "1 event on in instance foo (set_event): irq:irq_handler_entry",
        "1 probe of others: uprobes/malloc",
        "bpftrace (pid 30) holds 1 perf event",
        "trace-cmd (pid 31) holds per_cpu/cpu0/trace_pipe_raw of tracefs",
    )
    assert facts.own_events == ("fuse_daemon/cvmfs_lookup__return",)


def test_idle_ftrace_has_no_users(tree: Tree) -> None:
    tree.tracefs(
        current_tracer="nop\n",
        set_ftrace_filter="#### all functions enabled ####\n",
        set_event="",
        dynamic_events="",
        enabled_functions="",
    )
    facts = tree.read()
    assert (facts.ftrace_users, facts.own_events) == ((), ())
    assert facts.tracefs == TRACEFS and facts.tracefs_writable


def test_tracefs_in_debugfs(tree: Tree) -> None:
    tree.put("/sys/kernel/debug/tracing/available_tracers", "function_graph nop\n")
    tree.put("/sys/kernel/debug/tracing/kprobe_events", "")
    tree.put("/sys/kernel/debug/tracing/trace_clock", "[local] global perf\n")
    facts = tree.read()
    assert facts.tracefs == "/sys/kernel/debug/tracing"
    assert facts.tracers == ("function_graph", "nop")
    assert facts.dynamic_events == ("kprobe",)
    assert facts.clocks == ("local", "global", "perf")
    assert facts.fetch_args == ()  # its README is empty


def test_a_file_that_is_refused_is_told(tree: Tree) -> None:
    tree.tracefs()
    (tree.root / f"{TRACEFS[1:]}/available_filter_functions").mkdir()  # cannot be read: EISDIR
    facts = tree.read()
    assert facts.filter_functions_fuse == ()
    assert facts.unreadable == ((f"{TRACEFS}/available_filter_functions", "Is a directory"),)


def test_tools_of_a_stored_tree(tree: Tree) -> None:
    tree.put("/commands/perf --version", "0\nperf version 6.8.12\n")
    tree.put("/commands/perf version --build-options", "0\n  libtraceevent: [ OFF ]  # HAVE\n")
    tree.put("/commands/perf record -h", "129\n    -k, --clockid <c>\n        --control <x>\n")
    trial = "perf record -q -N -B -a -e sched:sched_switch -o /dev/null -- true"
    tree.put(
        f"/commands/{trial}",
        "129\nevent syntax error: 'sched:sched_switch'\n  \\___ unsupported tracepoint\n\n"
        "libtraceevent is necessary for tracepoint support\n",
    )
    tree.put("/commands/trace-cmd --version", "0\n\ntrace-cmd version 2.9.1 (x)\n")
    tree.put("/commands/trace-cmd record -h", "0\n          -C set the trace clock\n")
    tree.tracefs()
    facts = tree.read()
    assert facts.perf is not None and facts.trace_cmd is not None
    assert (facts.perf.version, facts.perf.libtraceevent) == ("6.8.12", False)
    assert facts.perf.options == ("--clockid", "--control", "-k")
    assert not facts.perf_can_record
    assert facts.perf_why == "libtraceevent is necessary for tracepoint support"
    assert (facts.trace_cmd.version, facts.trace_cmd.options) == ("2.9.1", ("-C",))
    untried = read_host(tree.root, trial=False)
    assert untried.perf == facts.perf and untried.perf_can_record


def test_options_are_not_found_in_other_options_text() -> None:
    usage = "    -z, --compression-level[=<n>]\n      use it with --control or -D\n"
    assert known_options(usage, ("-z", "--control", "-D", "--compression-level")) == (
        "-z",
        "--compression-level",
    )


def test_readme_without_dynamic_events() -> None:
    assert parse_readme("tracing mini-HOWTO:\n f[ t[ $arg<N> string\n") == ((), (), False)


def test_kallsyms() -> None:
    text = (
        "0000000000000000 t fuse_lookup\t[fuse]\n"
        "0000000000000000 t __pfx_fuse_lookup\t[fuse]\n"
        "0000000000000000 d fuse_ops\t[fuse]\n"
        "0000000000000000 t request_wait_answer.isra.0\t[fuse]\n"
        "0000000000000000 t request_wait_answers\n"
        "0000000000000000 T branch_type_fused\n"
    )
    functions = ("fuse_lookup", "request_wait_answer.isra.0")
    assert parse_kallsyms(text) == (functions, False, True)
    shown = text.replace("000 t fuse_lookup", "abc t fuse_lookup").replace("\t[fuse]", "")
    assert parse_kallsyms(shown) == (functions, True, False)
    assert parse_kallsyms("") == ((), False, False)
    more = "1 T rethook_find_ret_addr\n2 t shstk_update_last_frame\n3 T __x64_sys_uretprobe\n"
    other = "4 T wait_answer\n5 T shstk_update_last_frames\n6 D fuse_ops\n7 T sys_uretprobe"
    unknown = ("answers", " d ")
    of_fuse = "".join(
        line for line in shown.splitlines(True) if not any(u in line for u in unknown)
    )
    assert looked_at(shown + more + other) == of_fuse + more
    assert parse_kallsyms(looked_at(text)) == parse_kallsyms(text)
    assert parse_kallsyms("garbage\n\nfuse\n") == ((), False, False)


def test_unique_is_judged_from_sends_and_ends() -> None:
    send, end = (
        "fuse:fuse_request_send: connection 9 req {} o",
        "fuse:fuse_request_end: c 9 req {} l",
    )
    assert judge_unique("\n".join((send.format(4), end.format(4)))) is True
    assert judge_unique("\n".join((send.format(0), end.format(4)))) is False
    assert judge_unique("\n".join((send.format(6), end.format(4)))) is False
    assert judge_unique(send.format(4)) is None
    assert judge_unique("") is None


def test_capabilities() -> None:
    assert capabilities((1 << 41) - 1)[-1] == "cap_checkpoint_restore"
    assert capabilities(1 << 38) == ("cap_perfmon",)
    assert len(capabilities((1 << 64) - 1)) == 41


def test_bounded_ends_in_time() -> None:
    """None: it did not wait for the empty text."""

    def sleeps() -> str:
        time.sleep(600)
        return ""

    assert bounded(sleeps, 0.2) is None


def test_a_child_that_does_not_end_is_waited_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even SIGKILL ends a child that waits for a file system; when it ends, no zombie is
    left."""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    end_children([child])
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.close(end)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    end_children([])
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)
    os.close(ended)


def test_bounded_gives_the_result_or_nothing() -> None:
    assert bounded(lambda: "ä\udcff" * 100_000, 120) == "ä\udcff" * 100_000
    assert bounded(lambda: str(1 // 0), 120) is None


def test_command_that_hangs_is_killed() -> None:
    answer = Files(Path("/")).start("sleep", "60")
    assert isinstance(answer, Answer)
    status, said = answer.get(0.2)
    assert (status, said) == (124, "no answer within 0.2 s")


def test_command_that_is_not_there() -> None:
    assert Files(Path("/")).start("no-such-command").get()[0] == 127


def test_a_pid_namespace(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert not read_host(tmp_path).pid_namespace
    tree.link("/proc/self/ns/pid", "pid:[4026532201]")
    assert read_host(tmp_path).pid_namespace
