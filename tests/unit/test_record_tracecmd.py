"""trace-cmd: its command line, whether ftrace is free, and ftrace restored to its settings."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mounts import wait_until

from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.record import tracecmd
from fusetools.record.graph import Graph


def tracefs(folder: Path, **files: str) -> Path:
    """A tracefs that nobody uses, except for ``files``."""
    usual = {
        "current_tracer": "nop\n",
        "trace_clock": "[local] global counter mono\n",
        "buffer_size_kb": "7 (expanded: 1408)\n",
        "tracing_on": "1\n",
        "set_ftrace_filter": "#### all functions enabled ####\n",
        "set_ftrace_notrace": "#### no functions disabled ####\n",
        "set_graph_function": "#### all functions enabled ####\n",
        "set_graph_notrace": "#### no functions disabled ####\n",
        "set_ftrace_pid": "no pid\n",
        "set_event": "",
    }
    for name, text in {**usual, **files}.items():
        (folder / name).write_text(text)
    return folder


def test_command_line() -> None:
    new = Tool("/usr/bin/trace-cmd", "3.1.6", ("-C", "--file-version"))
    functions = ("fuse_*", "request_wait_answer", "!fuse_copy_do")
    argv = tracecmd.command_line(new, "t.dat", functions, "mono", 4 << 20)
    assert " ".join(argv) == (
        "/usr/bin/trace-cmd record -p function_graph -C mono -b 4096 -o t.dat "
        "--file-version 6 -l fuse_* -l request_wait_answer -n fuse_copy_do"
    )
    old = Tool("/usr/bin/trace-cmd", "2.9.1", ("-C",))
    assert "--file-version" not in tracecmd.command_line(old, "t.dat", ("f",), "perf", 1 << 20)


def test_buffers_of_all_cpus_together_stay_bounded() -> None:
    much = 1 << 40
    assert tracecmd.buffer_size(2, much) == tracecmd.LARGEST
    assert tracecmd.buffer_size(128, much) * 128 <= tracecmd.BUFFERS
    assert tracecmd.buffer_size(4096, much) == tracecmd.SMALLEST
    assert tracecmd.buffer_size(2, 96 << 20) * 2 <= 6 << 20  # a small disk


def test_unused_ftrace_is_free(tmp_path: Path) -> None:
    tracecmd.check_free(tracefs(tmp_path), ["1 probe of others: x/y"])


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("current_tracer", "function\n", "the tracer function is on"),
        ("set_ftrace_filter", "vfs_read\nvfs_write\n", "vfs_read and 1 more in set_ftrace_filter"),
        ("set_graph_function", "vfs_read\n", "vfs_read in set_graph_function"),
        ("set_ftrace_pid", "17\n", "17 in set_ftrace_pid"),
        ("set_event", "sched:sched_switch\n", "sched:sched_switch in set_event"),
    ],
)
def test_the_user_of_a_busy_ftrace_is_named(
    tmp_path: Path, file: str, text: str, said: str
) -> None:
    root = tracefs(tmp_path, **{file: text})
    with pytest.raises(Error, match="ftrace is in use") as caught:
        tracecmd.check_free(root, [])
    assert said in caught.value.why
    assert "--backend kprobe" in caught.value.fix
    assert (root / file).read_text() == text


def test_a_recorder_that_is_refused_leaves_ftrace_to_its_user(tmp_path: Path) -> None:
    root = tracefs(tmp_path, current_tracer="function\n")
    trace_cmd = Tool("/usr/bin/trace-cmd", "3.1.6", ())
    job: Any = SimpleNamespace(facts=SimpleNamespace(trace_cmd=trace_cmd, ftrace_users=()))
    job.state = SimpleNamespace(ftrace={})
    graph = Graph(job, root, tmp_path)
    with pytest.raises(Error, match="ftrace is in use"):
        graph.start(1 << 40)
    graph.pause()
    graph.stop()
    assert (root / "tracing_on").read_text() == "1\n"


@pytest.mark.parametrize(
    "user",
    [
        "trace-cmd (pid 12) holds per_cpu/cpu0/trace_pipe_raw of tracefs",
        "perf (pid 12) holds 8 perf events",
        "cat (pid 12) holds trace_pipe of tracefs",
    ],
)
def test_processes_that_use_it_are_named(tmp_path: Path, user: str) -> None:
    with pytest.raises(Error) as caught:
        tracecmd.check_free(tracefs(tmp_path), [user, "agent (pid 3) holds 2 perf events"])
    assert caught.value.why == user


def test_settings_are_restored_where_they_differ(tmp_path: Path) -> None:
    root = tracefs(tmp_path)
    before = tracecmd.settings(root)
    assert before == {
        "current_tracer": "nop",
        "trace_clock": "local",
        "buffer_size_kb": "1408",
        "tracing_on": "1",
    }
    tracefs(
        root,
        current_tracer="function_graph\n",
        trace_clock="local [mono]\n",
        buffer_size_kb="16384\n",
        set_ftrace_filter="fuse_lookup [fuse]\n",
    )
    assert tracecmd.restore(root, before) == [
        "current_tracer",
        "trace_clock",
        "buffer_size_kb",
        "set_ftrace_filter",
    ]
    # plain files keep their old content behind a shorter new one
    assert (root / "current_tracer").read_text().startswith("nop\n")
    assert (root / "trace_clock").read_text().startswith("local\n")
    assert (root / "set_ftrace_filter").read_text() == ""
    assert (root / "tracing_on").read_text() == "1\n"


def test_lost_events_of_all_cpus(tmp_path: Path) -> None:
    for cpu, text in enumerate(("overrun: 3\ncommit overrun: 1\n", "dropped events: 5\nread: 9\n")):
        (tmp_path / f"per_cpu/cpu{cpu}").mkdir(parents=True)
        (tmp_path / f"per_cpu/cpu{cpu}/stats").write_text("entries: 7\n" + text)
    assert tracecmd.lost(tmp_path) == 9


def test_events_of_a_cpu_so_far(tmp_path: Path) -> None:
    """Events that are read, that are not read, and that were overwritten."""
    stats = tmp_path / "stats"
    text = "entries: 7\noverrun: 20\ncommit overrun: 1\nbytes: 444\noldest event ts:  1.000002\n"
    stats.write_text(text + "now ts:  6.5\ndropped events: 3\nread events: 100\n")
    assert tracecmd.counted(stats, tracecmd.RECORDED) == 127
    assert tracecmd.counted(stats, tracecmd.LOST) == 24
    assert tracecmd.counted(tmp_path / "none", tracecmd.RECORDED) == 0
    assert tracecmd.counted(tmp_path, tracecmd.RECORDED) == 0


def test_one_clock_is_seen_in_the_data() -> None:
    calls = [(7, 1_000_000_000 + i * 1000, 900) for i in range(50)]

    def said(*graphed: tuple[int, int, int]) -> str:
        return tracecmd.clocks_disagree("request_wait_answer", calls, graphed)

    def later(ns: int) -> list[tuple[int, int, int]]:
        return [(7, begin + ns, 800) for _, begin, _ in calls]

    assert said(*later(100)) == ""
    assert said((7, 5, 1), (8, 1_000_000_100, 1), *later(100)) == ""
    # On a busy mount function_graph recorded many calls before perf began.
    busy = [(7, 900_000_000 + i * 1000, 800) for i in range(3 * tracecmd.CHECKED)]
    assert said(*busy, *later(100)) == ""
    assert "of 600 calls" in said(*busy)
    assert said() == ""
    assert said(*later(950)) == (
        "its clock is not perf's: of 50 calls of request_wait_answer 0 lie inside those that "
        "kprobes saw"
    )
    for away in (10**9, -(10**9)):
        assert "not perf's" in said(*later(away))


# A trace-cmd whose child reads the buffers until a signal ends it, and a little longer.
STAND_IN = f"""#!{sys.executable}
import os, signal, time
os.chdir(os.path.dirname(__file__))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
child = os.fork()
if child == 0:
    open("reads", "w").close()
    signal.sigwait([signal.SIGINT])
    time.sleep(0.1)
    open("at-the-end", "w").write(open("current_tracer").read())
    os._exit(0)
signal.sigwait([signal.SIGINT])
os.waitpid(child, 0)
while open("current_tracer").read()[:4] != "nop\\n":
    time.sleep(0.01)
open("trace.dat", "w").close()
"""


def test_the_tracer_is_off_before_trace_cmd_empties_the_filters(tmp_path: Path) -> None:
    """Else the kernel would trace all functions for a moment. Before, the buffers are read: the
    kernel empties them when the tracer changes."""
    program = tmp_path / "trace-cmd"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    root = tracefs(tmp_path, current_tracer="function_graph")
    recorder = tracecmd.TraceCmd(root, tmp_path)
    recorder.start([str(program)], lambda: None, tmp_path)
    try:
        wait_until((root / "reads").exists, "a child that reads")
        assert recorder.stop()
    finally:
        recorder.kill()
    assert (root / "at-the-end").read_text() == "function_graph"
    assert (root / "current_tracer").read_text().startswith("nop\n")
