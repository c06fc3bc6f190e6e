"""Scripts that record without Python, and the tar files that they leave."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures import Invoke

from fusetools.errors import Error
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.files import Files
from fusetools.host.processes import read_stat
from fusetools.host.tar import Damaged, unpack
from fusetools.plan import daemons, planner, probeset
from fusetools.plan.callbacks import Symbols
from fusetools.plan.filters import Filter, OfConnection
from fusetools.plan.options import Options, Workload
from fusetools.record import by_script, opened, tracecmd
from fusetools.record.opened import open_tar
from fusetools.record.script import script, stored

FACTS = Path(__file__).parents[1] / "host_facts"
KERNELS = sorted(path.name for path in FACTS.iterdir() if (path / "facts.json").exists())
WORKLOAD = Options(Workload(("WORKLOAD",)))


def planned(kernel: str, library: Path, **more: Any) -> tuple[HostFacts, planner.ProbePlan]:
    library.write_bytes(b"a library")
    mount = Mount(
        path="/mnt/a b'$(touch gone)",
        fstype="fuse",
        source="x",
        connection=77,
        daemon_pid=4711,
        comm="da`emon'",
        program="/usr/bin/daemon",
        libraries=(Library("/x/libfuse3.so.3", str(library), 5, "8:1", "ab", "x86_64"),),
        streams=(7,),
    )
    facts = HostFacts.from_json((FACTS / kernel / "facts.json").read_text())
    facts = replace(facts, mounts=(mount,), instances=False)
    targets = daemons.targets(facts, WORKLOAD, probeset.builtin())
    functions = [("fuse_reply_attr", 1, 2, 3), ("fuse_reply_err", 4, 5, 6)]
    found = Symbols({str(library): functions})
    return facts, planner.plan(facts, WORKLOAD, targets, found, cgroup=False, **more)


def text_of(kernel: str, library: Path) -> str:
    facts, plan = planned(kernel, library)
    return script(WORKLOAD, ["script"], facts, plan, False)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_script_is_a_program_of_any_shell(kernel: str, tmp_path: Path) -> None:
    path = tmp_path / "record.sh"
    path.write_text(text_of(kernel, tmp_path / "libfuse3.so.3"))
    subprocess.run(["sh", "-n", path], check=True)
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck here: only sh has read the script")
    subprocess.run(["shellcheck", path], check=True)


def test_a_script_has_the_probes_and_events_of_the_plan(tmp_path: Path) -> None:
    facts, plan = planned("6.12", tmp_path / "libfuse3.so.3")
    text = script(WORKLOAD, ["script"], facts, plan, False)
    for probe in plan.probes:
        assert probe.event.replace(":", "/", 1) in text
    assert plan.events and plan.probes
    perf = text[text.index("\nperf_events()") : text.index("\nplan()")]
    for event in plan.events:
        assert f"-e {event.name}" in perf
    assert "--control" not in perf and "/usr/bin/perf record" not in perf


def test_function_graph_is_recorded_as_by_record(tmp_path: Path) -> None:
    facts, plan = planned("6.12", tmp_path / "libfuse3.so.3")
    assert plan.graph and facts.trace_cmd
    text = script(WORKLOAD, ["script"], facts, plan, False)
    function = text[text.index("\ngraph_events()") : text.index("\nperf_events()")]
    inside = function.partition("{")[2].rpartition("}")[0]
    line = shlex.split(inside.replace("\\\n", ""))
    direct = tracecmd.command_line(facts.trace_cmd, "trace.dat", plan.graph, plan.clock, 1 << 20)
    direct[direct.index("-b") + 1] = "$graph_buffer"
    assert line == ["start_graph", *direct[2:]]
    without = script(WORKLOAD, ["script"], facts, replace(plan, graph=()), False)
    assert "graph_events() {\n  :\n}" in without and "trace-cmd, tar" not in without


def test_a_killed_scripts_leftovers_are_known(tmp_path: Path) -> None:
    assert by_script.left(tmp_path) is None
    work = tmp_path / ".fusetools.Ab3dEf9h"
    work.mkdir()
    (work / "data").write_text("x")
    lines = [
        f"work {work}",
        "probe fuse_daemon/lookup",
        "probe somebody/elses",
        "ftrace current_tracer nop",
        "ftrace trace_clock local",
        "ftrace set_event nop",
        "work /etc",
        f"work {tmp_path}/other",
    ]
    (tmp_path / by_script.MADE).write_text("\n".join(lines))
    own = read_stat(Files(Path("/")), os.getpid())
    assert own
    (tmp_path / by_script.LINK).symlink_to(f"{os.getpid()}.{own.start}")
    assert by_script.running(tmp_path) == os.getpid() and by_script.left(tmp_path) is None
    (tmp_path / by_script.LINK).unlink()
    (tmp_path / by_script.LINK).symlink_to(f"{os.getpid()}.{own.start + 1}")
    assert by_script.running(tmp_path) is None
    made = by_script.left(tmp_path)
    assert made and made.probes == ("fuse_daemon:lookup",) and made.folders == (str(work),)
    assert made.ftrace == {"current_tracer": "nop", "trace_clock": "local"}
    assert by_script.forget(tmp_path, made) == [str(work)]
    assert list(tmp_path.iterdir()) == []


def test_names_of_a_host_are_no_code(tmp_path: Path) -> None:
    """The functions above the body, run without the rest, do nothing but call their helpers."""
    head = text_of("6.12", tmp_path / "libfuse3.so.3").split("# The rest is the same")[0]
    calls = "find_mount() { printf '%s\\n' \"$@\"; }\nfind_mounts\nprintf '%s' \"$mounts\"\n"
    done = subprocess.run(
        ["sh", "-euc", head + calls], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    path = "/mnt/a\\040b'$(touch\\040gone)"
    assert done.stdout == f"1\n{path}\nda`emon'\ndaemon\n\n/mnt/a b'$(touch gone)"
    assert not (tmp_path / "gone").exists()


def test_the_connection_is_left_to_the_host(tmp_path: Path) -> None:
    assert str(Filter((OfConnection(77),))) == "connection==77"
    text = text_of("7.2", tmp_path / "libfuse3.so.3")
    assert "connection==77" not in text.split("plan()")[0]
    assert 'connection=="$connection_1"' in text


def test_facts_have_types() -> None:
    with pytest.raises(ValueError, match="kernel"):
        HostFacts.from_json('{"kernel": 5, "arch": "x86_64", "cpus": 1, "uid": 0}')
    with pytest.raises(ValueError, match="cpus"):
        HostFacts.from_json('{"kernel": "5", "arch": "x86_64", "cpus": true, "uid": 0}')
    row = {"path": "/m", "fstype": "fuse", "source": "s", "connection": 1, "servers": ["x"]}
    whole = {"kernel": "5", "arch": "x86_64", "cpus": 1, "uid": 0, "mounts": [row]}
    with pytest.raises(ValueError, match="servers"):
        HostFacts.from_json(json.dumps(whole))


def tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, **more: Any) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            for key, value in more.items():
                setattr(info, key, value)
            file.addfile(info, io.BytesIO(data))
    return made.getvalue()


def unpacked(data: bytes, directory: Path, known: str = "ab") -> list[str]:
    def place(name: str) -> int | None:
        if name not in known:
            return None
        return os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    return unpack(io.BytesIO(data), place)


def test_a_tar_file_is_unpacked(tmp_path: Path) -> None:
    long = bytes(3000) + b"end"
    assert unpacked(tar(("./a", b"1"), ("b", long)), tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"1" and (tmp_path / "b").read_bytes() == long


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "early"),
        (tar(("a", b"x" * 2000))[:1500], "early"),
        (b"x" * 1024, "no tar file"),
        (tar(("../a", b"")), "holds ../a"),
        (tar(("/etc/passwd", b"")), "holds /etc/passwd"),
        (tar(("a", b"1"), ("a", b"2")), "twice"),
        (tar(("a", b""), kind=tarfile.SYMTYPE, linkname="/etc/passwd"), "no regular file"),
        (tar(("a", b""), kind=tarfile.LNKTYPE, linkname="b"), "no regular file"),
        (tar(("a", b""), kind=tarfile.CHRTYPE), "no regular file"),
        (tar(("a" * 200, b"")), "no regular file"),
    ],
)
def test_a_hostile_tar_file_is_refused(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=why):
        unpacked(data, tmp_path)


def left(tmp_path: Path, plan: object, **more: bytes) -> Path:
    """A tar file as a script leaves it, with an empty recording."""
    files = {
        "plan.json": json.dumps(plan).encode(),
        "run": b"mount.1 77 4711\nworkload 5\nuptime 1.0 2.0\nstatus 0\n",
        "perf.data": b"",
    }
    files.update({name.replace("_", "."): data for name, data in more.items()})
    path = tmp_path / "left.tar"
    path.write_bytes(tar(*files.items()))
    return path


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    facts, made = planned("7.2", tmp_path_factory.mktemp("library") / "libfuse3.so.3")
    whole: dict[str, Any] = json.loads(json.dumps(stored(WORKLOAD, ["script"], facts, made)))
    return whole


def test_a_tar_file_is_read_up_to_the_recording(plan: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Error, match="nothing was recorded"):
        open_tar(str(left(tmp_path, plan)), str(tmp_path / "perf.data"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_dropped_events_of_function_graph_are_lost(plan: dict[str, Any], tmp_path: Path) -> None:
    run = "mount.1 77 4711\nworkload 5\nuptime 1.0 2.0\nstatus 0\ngraphlost {}\n"
    files = {"plan.json": json.dumps(plan), "perf.data": "", "trace.dat": ""}
    for text, lost in (("7", {"trace-cmd": 7}), ("0", {}), ("x", {})):
        for name, data in {**files, "run": run.format(text)}.items():
            (tmp_path / name).write_text(data)
        _, recorded, _ = opened._read(tmp_path, {*files, "run"})
        assert recorded.lost == lost and recorded.graph == tmp_path / "trace.dat"


@pytest.mark.parametrize(
    "key",
    ["facts", "probes", "events", "graph", "sets", "files", "missing", "detail", "stack_bytes"],
)
def test_a_plan_that_makes_no_sense_is_an_error(
    key: str, plan: dict[str, Any], tmp_path: Path
) -> None:
    values: list[Any] = [None, 5, "x", [], [5], [[]], {}, {"x": 1}, [{"x": 1}]]
    for value in values:
        with pytest.raises(Error) as caught:
            open_tar(str(left(tmp_path, {**plan, key: value})), str(tmp_path / "perf.data"))
        assert caught.value.what


def test_the_command_names_what_is_wrong(run: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar(("plan.json", b"{}"), ("run", b""), ("perf.data", b"")))
    done = run("open", str(path))
    assert done.exit_code == 1 and "it is of another version of fusetools" in done.output
    facts = tmp_path / "facts.json"
    facts.write_text("[]")
    done = run("script", "--host", str(facts))
    assert done.exit_code == 1 and "cannot read the host's facts" in done.output
