"""Options of a recording: contradictions are errors, for every command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from fixtures import Invoke

from fusetools.errors import Error
from fusetools.experiments import overhead
from fusetools.experiments.folder import Folder
from fusetools.live import flight
from fusetools.plan.conditions import condition
from fusetools.plan.experiment import Experiment
from fusetools.plan.options import (
    Caller,
    Count,
    Daemons,
    Flight,
    Kind,
    Options,
    Stream,
    Workload,
    stream,
)
from fusetools.record import live, streaming, waiting


def test_a_kind_takes_its_own_options_alone() -> None:
    builds: tuple[Callable[[], Options], ...] = (
        lambda: Options(Flight(), duration=5),
        lambda: Options(Flight(), max_size=1),
        lambda: Options(Stream(), detail="stacks"),
        lambda: Options(Stream(), output="x", detail="latency"),
        lambda: Options(Count(("x",)), duration=1.0),
        lambda: Options(Count(("x",)), backend="kprobe"),
    )
    for build in builds:
        with pytest.raises(ValueError):
            build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Workload(()),
        lambda: Options(Workload(("x",)), backend="count"),
        lambda: Options(Workload(("x",)), backend="nonsense"),
        lambda: Options(Workload(("x",)), stack_bytes=3),
        lambda: Options(Workload(("x",)), stack_bytes=504),
        lambda: Options(Workload(("x",)), stack_bytes=65536),
        lambda: Options(call_graph="zz"),
        lambda: Options(detail="nonsense"),
        lambda: Options(duration=-1),
        lambda: Options(duration=0),
        lambda: Options(duration=float("nan")),
        lambda: Options(max_size=0),
        lambda: Options(wakers=True, detail="stages"),
        lambda: replace(Options(), detail="nonsense"),
        lambda: Caller(0),
        lambda: Caller(-1),
        lambda: Count(()),
        lambda: Flight(seconds=-1),
        lambda: Flight(seconds=float("inf")),
        lambda: Flight(keep=0),
        lambda: Flight(buffer=3 << 20),
        lambda: Flight(buffer=0),
        lambda: Options(Flight(), backend="graph"),
    ],
)
def test_values_that_make_no_sense(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        build()


class Asked(Exception):
    """Instead of a recording."""

    def __init__(self, options: Options) -> None:
        self.options = options


@pytest.fixture(autouse=True)
def nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(options: Options, *_: object, **__: object) -> NoReturn:
        raise Asked(options)

    monkeypatch.setattr(waiting, "record", instead)
    monkeypatch.setattr(flight, "fly", instead)
    monkeypatch.setattr(live, "count", instead)
    monkeypatch.setattr(streaming, "streaming", instead)
    monkeypatch.setattr(overhead, "overhead", instead)
    monkeypatch.setattr(
        "fusetools.cli.sweep._run", lambda folder, _: folder.save(_saved(folder), "")
    )
    monkeypatch.chdir(tmp_path)


def _saved(folder: Folder) -> dict[str, object]:
    experiment = folder.experiment.to_json()
    return {"format": 1, "experiment": experiment, "repeat": folder.repeat, "left_out": {}}


TRUE = ("true",)
CHOSEN = ["--mount", "a", "--call-graph", "dwarf,1001", "--backend", "kprobe", "--wakers"]
CHOSEN += ["--functions", "fuse_*", "--pid", "7", "--fs", "cvmfs", "--as-root"]
AS_CHOSEN: dict[str, Any] = {
    "call_graph": "dwarf", "stack_bytes": 1000, "backend": "kprobe", "wakers": True,
    "functions": ("fuse_*",), "pid": 7, "fs": "cvmfs", "as_root": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "kind", "more"),
    [
        (["record", "--", "true"], Workload(TRUE), {}),
        (["record", "--attach", "7", "--duration", "2"], Caller(7), {"duration": 2.0}),
        (["record", "--max-size", "1M", "--wait"], Daemons(), {"max_size": 1 << 20, "wait": True}),
        (["record", "--force", "-o", "x"], Daemons(), {"force": True, "output": "x"}),
        (
            ["record", "--flight", "9", "--when", "* > 1s", "--buffer", "3M"],
            Flight(9.0, (condition("* > 1s"),), buffer=4 << 20),
            {},
        ),
        (["overhead", "--max-size", "2G", "--", "true"], Workload(TRUE), {"max_size": 2 << 30}),
    ],
)
def test_options_of_the_commands(
    arguments: list[str], kind: Kind, more: dict[str, Any], run: Invoke
) -> None:
    """With the usual options, and with others; `overhead` takes what `record` does."""
    command, *rest = arguments
    for words, chosen in (([], {}), (CHOSEN, {**AS_CHOSEN, "mounts": (os.path.abspath("a"),)})):
        with pytest.raises(Asked) as asked:
            run(command, *words, *rest)
        found = asked.value.options
        if command == "overhead":
            assert found.log is not None
            kind, more = Workload(TRUE, found.log), {**more, "wait": True}
        assert found == Options(kind, **chosen, **more)


def test_options_without_a_recording(run: Invoke) -> None:
    for arguments, options in (
        (["top", "--once"], stream()),
        (["trace", "--mount", "//a/../b"], stream(("/b",))),
        (["trace", "--mount", "a"], stream((os.path.abspath("a"),))),
        (["count", "--live", "--", "true"], Options(Count(TRUE))),
    ):
        with pytest.raises(Asked) as asked:
            run(*arguments)
        assert asked.value.options == options


def test_options_of_a_sweep(run: Invoke) -> None:
    """It runs with the same options when it is resumed."""
    for name, words, expected in (
        ("usual", [], {}),
        ("chosen", CHOSEN, {**AS_CHOSEN, "mounts": (os.path.abspath("a"),)}),
    ):
        assert run("sweep", *words, "-o", name, "--", "true").exit_code == 0
        there = Folder.open(Path(name)).experiment.recording
        assert Options(Workload(TRUE), **there) == Options(Workload(TRUE), **expected)


@pytest.mark.parametrize(
    "recording",
    [
        3,
        {"command": ["rm"]},
        {"output": "/etc/passwd"},
        {"wait": False},
        {"detail": "nonsense"},
        {"call_graph": ["auto", 8192]},
        {"stack_bytes": "x"},
        {"wakers": True, "detail": "latency"},
    ],
)
def test_a_sweep_that_could_not_be_asked_for(recording: object, tmp_path: Path) -> None:
    experiment = {**json.loads(json.dumps(Experiment(TRUE).to_json())), "recording": recording}
    data = {"format": 1, "experiment": experiment, "repeat": 1, "left_out": {}}
    (tmp_path / "sweep.json").write_text(json.dumps(data))
    with pytest.raises(Error, match="no sweep that can be read"):
        Folder.open(tmp_path)


@pytest.mark.parametrize("command", ["record", "overhead", "sweep"])
@pytest.mark.parametrize(
    "options",
    [
        ["--backend", "count"],
        ["--backend", "nonsense"],
        ["--detail", "nonsense"],
        ["--wakers", "--detail", "stages"],
        ["--call-graph", "zz"],
        ["--call-graph", "auto,504"],
        ["--call-graph", "auto,65536"],
        ["--call-graph", "auto,"],
        ["--max-size", "0"],
        ["--max-size", "-1"],
        ["--pid", "0"],
    ],
)
def test_contradicting_options_are_refused(command: str, options: list[str], run: Invoke) -> None:
    """One line, without a traceback: a defect would raise."""
    done = run(command, *options, "--", "true")
    assert done.exit_code == 2 and "fusetools: " in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--duration", "-1"],
        ["--duration", "0"],
        ["--duration", "nan"],
        ["--duration", "inf"],
        ["--attach", "0"],
        ["--flight", "-1"],
        ["--flight", "nan"],
        ["--flight", "9", "--keep", "0"],
        ["--flight", "9", "--buffer", "1"],
        ["--flight", "9", "--buffer", "2000000T"],
        ["--attach", "7", "--", "true"],
    ],
)
def test_record_refuses_contradicting_options(options: list[str], run: Invoke) -> None:
    done = run("record", *options)
    assert done.exit_code == 2 and "fusetools: " in done.stderr
