"""Options of a recording: contradictions are errors, for every command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from fixtures import Invoke

from fusetools.errors import Error
from fusetools.experiments import overhead
from fusetools.experiments.folder import Folder
from fusetools.now import flight
from fusetools.plan.conditions import condition
from fusetools.plan.experiment import Experiment
from fusetools.plan.request import (
    Attach,
    Caller,
    Count,
    Flight,
    Limited,
    Request,
    Stream,
    Workload,
)
from fusetools.record import live, streaming, waiting


@pytest.mark.parametrize(
    "build",
    [
        lambda: Request(),
        lambda: Limited(),
        lambda: Attach(command=("x",)),  # type: ignore[call-arg]
        lambda: Flight(duration=5),  # type: ignore[call-arg]
        lambda: Flight(max_size=1),  # type: ignore[call-arg]
        lambda: Stream(detail="stacks"),  # type: ignore[call-arg]
        lambda: Count(("x",), duration=1.0),  # type: ignore[call-arg]
        lambda: Count(("x",), backend="kprobe"),  # type: ignore[call-arg]
    ],
)
def test_what_no_such_request_has(build: Callable[[], Request]) -> None:
    with pytest.raises(TypeError):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Workload(),
        lambda: Workload(command=("x",), backend="count"),
        lambda: Workload(command=("x",), backend="nonsense"),
        lambda: Workload(command=("x",), stack_bytes=3),
        lambda: Workload(command=("x",), stack_bytes=504),
        lambda: Workload(command=("x",), stack_bytes=65536),
        lambda: Attach(call_graph="zz"),
        lambda: Attach(detail="nonsense"),
        lambda: Attach(duration=-1),
        lambda: Attach(duration=0),
        lambda: Attach(duration=float("nan")),
        lambda: Attach(max_size=0),
        lambda: Attach(wakers=True, detail="stages"),
        lambda: replace(Attach(), detail="nonsense"),
        lambda: Caller(),
        lambda: Caller(caller=-1),
        lambda: Count(()),
        lambda: Flight(seconds=-1),
        lambda: Flight(seconds=float("inf")),
        lambda: Flight(keep=0),
        lambda: Flight(buffer=3 << 20),
        lambda: Flight(buffer=0),
        lambda: Flight(backend="graph"),
    ],
)
def test_values_that_make_no_sense(build: Callable[[], Request]) -> None:
    with pytest.raises(ValueError):
        build()


class Asked(Exception):
    """Instead of a recording."""

    def __init__(self, request: Request) -> None:
        self.request = request


@pytest.fixture(autouse=True)
def nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(request: Request, *_: object, **__: object) -> NoReturn:
        raise Asked(request)

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
AS_CHOSEN = Attach(
    mounts=("a",), call_graph="dwarf", stack_bytes=1000, backend="kprobe", wakers=True,
    functions=("fuse_*",), pid=7, fs="cvmfs", as_root=True,
)  # fmt: skip


def same(kind: type[Request], **more: object) -> Request:
    """Return CHOSEN's options for that kind of recording."""
    build: Callable[..., Request] = kind
    names = {one.name for one in fields(kind)} & set(AS_CHOSEN.__dict__)
    there = {name: AS_CHOSEN.__dict__[name] for name in names}
    return build(**{**there, "mounts": (os.path.abspath("a"),), **more})


@pytest.mark.parametrize(
    ("arguments", "kind", "more"),
    [
        (["record", "--", "true"], Workload, {"command": TRUE}),
        (["record", "--attach", "7", "--duration", "2"], Caller, {"caller": 7, "duration": 2.0}),
        (["record", "--max-size", "1M", "--wait"], Attach, {"max_size": 1 << 20, "wait": True}),
        (["record", "--force", "-o", "x"], Attach, {"force": True, "output": "x"}),
        (
            ["record", "--flight", "9", "--when", "* > 1s", "--buffer", "3M"],
            Flight,
            {"seconds": 9.0, "conditions": (condition("* > 1s"),), "buffer": 4 << 20},
        ),
        (["overhead", "--max-size", "2G", "--", "true"], Workload, {"command": TRUE}),
    ],
)
def test_what_is_asked_of_the_commands(
    arguments: list[str], kind: type[Request], more: dict[str, object], run: Invoke
) -> None:
    """With the usual options, and with others; `overhead` has record's options."""
    command, *rest = arguments
    more = dict(more)
    usual: Callable[..., Request] = kind
    for options, expected in (([], usual), (CHOSEN, partial(same, kind))):
        with pytest.raises(Asked) as asked:
            run(command, *options, *rest)
        found = asked.value.request
        if command == "overhead":
            assert isinstance(found, Workload) and found.log is not None
            more.update(log=found.log, wait=True, max_size=2 << 30)
        assert found == expected(**more)


def test_what_is_asked_without_a_recording(run: Invoke) -> None:
    for arguments, request in (
        (["top", "--once"], Stream()),
        (["trace", "--mount", "//a/../b"], Stream(("/b",))),
        (["trace", "--mount", "a"], Stream((os.path.abspath("a"),))),
        (["count", "--live", "--", "true"], Count(TRUE)),
    ):
        with pytest.raises(Asked) as asked:
            run(*arguments)
        assert asked.value.request == request


def test_what_is_asked_of_a_sweep(run: Invoke) -> None:
    """It runs with the same options when it is resumed."""
    for name, options, expected in (
        ("usual", [], Workload(command=TRUE)),
        ("chosen", CHOSEN, same(Workload, command=TRUE)),
    ):
        assert run("sweep", *options, "-o", name, "--", "true").exit_code == 0
        there = Folder.open(Path(name)).experiment.recording
        assert Workload(command=TRUE, **there) == expected


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
def test_what_is_refused(command: str, options: list[str], run: Invoke) -> None:
    """One line, without a traceback: a defect would raise."""
    done = run(command, *options, "--", "true")
    assert done.exit_code == 2 and "Error: " in done.stderr


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
def test_what_record_refuses(options: list[str], run: Invoke) -> None:
    done = run("record", *options)
    assert done.exit_code == 2 and "Error: " in done.stderr
