"""Damage the texts that Python reads: `texts.py N [--seed S]`, N texts for each reader.

A session, the note of a killed recording, a probe set, an experiment, folded stacks, a sweep and
its runs, counts as CSV, tables of /proc: valid, with values replaced by odd ones and with damaged
bytes. A reader may reject texts only with its own error. An accepted text is printed as by its
command.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import fusetools  # noqa: E402
from fusetools import session  # noqa: E402
from fusetools.answers.counts_file import read_counts  # noqa: E402
from fusetools.answers.diff import diff  # noqa: E402
from fusetools.core import native  # noqa: E402
from fusetools.errors import Error  # noqa: E402
from fusetools.experiments import sweep  # noqa: E402
from fusetools.experiments.compare import compare  # noqa: E402
from fusetools.experiments.folder import Folder, Requests, Run  # noqa: E402
from fusetools.flame import svg  # noqa: E402
from fusetools.flame.folded import Error as FoldedError  # noqa: E402
from fusetools.flame.folded import folded, parse  # noqa: E402
from fusetools.host.btf import read_fuse  # noqa: E402
from fusetools.host.mounts import parse_mountinfo  # noqa: E402
from fusetools.host.processes import parse_maps  # noqa: E402
from fusetools.plan import experiment, probeset  # noqa: E402
from fusetools.plan.experiment import Experiment, Law, Relative, published  # noqa: E402
from fusetools.record.state import State  # noqa: E402
from fusetools.render.csv import count as counts_to_csv  # noqa: E402
from fusetools.render.html import page  # noqa: E402
from fusetools.render.json.answer import render as to_json  # noqa: E402
from fusetools.render.text import count as counts_to_text  # noqa: E402
from fusetools.render.text import diff as diff_to_text  # noqa: E402
from fusetools.render.text import sweep as sweep_to_text  # noqa: E402
from fusetools.report import report  # noqa: E402

DEMO = ROOT / "samples" / "recordings" / "demo.data"
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, -(2**63), 0.5, 1e308, float("nan")),
    *("", "x", "\0", "\n", "\ud800", "é" * 99, "../../etc", "/", "a;b", "=1", "<script>", "-"),
    *([], {}, [[]], [None], {"": None}, [1, [2, [3, [4]]]], "9" * 400),
)
NOTE = {
    "tracefs": "/sys/kernel/tracing",
    "mounted": False,
    "probes": ["fuse_daemon:cvmfs_lookup"],
    "folders": ["perf.01234567"],
    "scratch": [["/tmp/.perf.data.01234567", 1, 2, 0, 0]],
    "processes": [[99, 100]],
    "cgroup": "",
    "ftrace": {},
    "expedited": False,
}
FOLDED = "main;f 3\nmain;f;g 4.5\nmain;<x>\u2028;h 1\n"
LONGEST = 10.0  # seconds


def changed(value: Any, random_: random.Random) -> Any:
    """Return the value with odd values in places."""
    value = copy.deepcopy(value)
    for _ in range(random_.choice((1, 1, 1, 2, 5))):
        at = value
        while isinstance(at, (dict, list)) and at:
            key = random_.choice(list(at)) if isinstance(at, dict) else random_.randrange(len(at))
            if random_.random() < 0.4 or not isinstance(at[key], (dict, list)) or not at[key]:
                odd = copy.deepcopy(random_.choice(ODD))
                if random_.random() < 0.2 and isinstance(at, dict):
                    at[str(odd)[:50]] = at.pop(key)
                elif random_.random() < 0.2 and isinstance(at, list):
                    at.extend([odd] * random_.choice((1, 100)))
                else:
                    at[key] = odd
                break
            at = at[key]
    return value


def damaged(text: str, random_: random.Random) -> str:
    """Return the text with odd characters, cut, or doubled in places."""
    for _ in range(random_.choice((1, 1, 2, 8))):
        at = random_.randrange(len(text) + 1)
        how = random_.randrange(4)
        if how == 0:
            text = text[:at]
        elif how == 1:
            text = text[:at] + str(random_.choice(ODD))[:60] + text[at:]
        elif how == 2:
            text = text[:at] + text[at + random_.randrange(9) :]
        else:
            text = text[:at] + text[max(0, at - 30) : at] * random_.choice((1, 50)) + text[at:]
    return text


MAPS = """\
7f0000000000-7f0000001000 r-xp 00002000 fe:01 4711                       /usr/lib/libx.so.1
7f0000001000-7f0000002000 rw-p 00000000 00:00 0                          [stack]
7f0000002000-7f0000003000 --xp 00000000 fe:01 4712                       /tmp/a\\012b (deleted)
"""
MOUNTS = """\
22 1 0:21 / / rw - ext4 /dev/x rw
36 22 0:45 / /cvmfs/a\\040b ro,nosuid shared:1 - fuse cvmfs2 ro,user_id=0,group_id=0,allow_other
37 22 0:46 /part /mnt/b rw - fuse.sshfs host:/ rw,user_id=1000,group_id=1000
"""


def as_folded(text: str) -> None:
    graph = parse(text.splitlines())
    again = parse(folded(graph).splitlines())
    assert folded(again) == folded(graph)
    if random.random() < 0.02:  # takes a hundred times as long
        svg(graph)


def as_note(text: str) -> None:
    state = State.from_json(json.loads(text))
    assert all(name.startswith(("fuse_daemon:", "fuse_kernel:")) for name in state.probes)
    assert all(name.startswith("perf.") and "/" not in name for name in state.folders)


def as_maps(text: str) -> None:
    assert all(part.path and part.inode >= 0 for part in parse_maps(text))


def as_mounts(text: str) -> None:
    assert all(mount.fstype.startswith("fuse") for mount in parse_mountinfo(text))


def as_types(text: str) -> None:
    data = text.encode("latin-1", "replace")
    read_fuse(data, None)
    read_fuse(data, data[: len(data) // 2])


class Files:
    """Readers of files in a folder, and valid texts for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        csv = counts_to_csv.render(fusetools.open(DEMO).counts())
        self.rows = [line.split(",") for line in csv.splitlines()]
        self.sweep = folder / "sweep"
        one = Experiment(
            ("dd", "bs={bs}"),
            {"bs": ("4k", "64k")},
            recording={"mounts": ("/mnt",)},
            laws=(
                Law("one READ for a byte", "read", "bs"),
                Law("as many", "read", over={"bs": "64k"}, between=(0.5, 2)),
            ),
            relative=Relative("bs", "64k", {"Green": 0.5, "Red": 0}),
            published=published("series,bs,figure,low,high,source\nA,4k,read/bs,1,2,table 1\n"),
        )
        requests = {
            "read": Requests("request", 9, 9e4, 1e6, 1e5, 131072.0, ((1, 2, 3), (4, 8, 6))),
            "lookup": Requests("request", 60, 4e4, 5e4, 41e3),
        }
        run = Run(1, 0.5, 0.01, 0.1, 900, 1 << 28, 1e9, "command", 1.0, 0, ("w",), requests)
        made = Folder.create(self.sweep, one, 1)
        for index in range(2):
            with made.begin(index, 1) as place:
                made.keep(index, place, run)
        sweep._save(made)
        self.run = self.sweep / "runs/000-bs=4k/1/run.json"
        self.runs, self.definition = (
            asdict(run),
            json.loads((self.sweep / "sweep.json").read_text()),
        )

    def as_experiment(self, text: str) -> None:
        (self.folder / "x.toml").write_text(text, errors="replace")
        experiment.load(self.folder / "x.toml", {})

    def as_counts(self, text: str) -> None:
        with suppress(ValueError, TypeError):
            text = "\n".join(",".join(map(str, row)) for row in json.loads(text))
        (self.folder / "x.csv").write_text(text, errors="replace")
        counts = read_counts(self.folder / "x.csv")
        differences = diff(counts, counts)
        diff_to_text.render(differences)
        to_json("diff", differences)
        counts_to_text.render(counts)
        counts_to_csv.render(counts)

    def as_sweep(self, text: str, name: str = "sweep.json") -> None:
        whole = (self.sweep / name).read_text()
        (self.sweep / name).write_text(text, errors="replace")
        try:
            result = sweep.figures(Folder.open(self.sweep))
            sweep_to_text.render(result)
            to_json("sweep", result)
            if random.random() < 0.1:
                page.render(report([self.sweep]))
            with suppress(Error):
                compare([self.sweep])
        finally:
            (self.sweep / name).write_text(whole)

    def as_run(self, text: str) -> None:
        self.as_sweep(text, str(self.run.relative_to(self.sweep)))

    def as_session(self, text: str) -> None:
        session.read(text)
        if random.random() < 0.02:  # in a recording, which takes a hundred times as long
            data = str(self.folder / "x.data")
            with suppress(native.CoreError):  # larger than the maximum size of a session
                native.merge([str(DEMO)], data, text.encode(errors="replace").decode())
                recording = fusetools.open(data)
                with suppress(Error):
                    to_json("count", recording.counts())
                    to_json("hist", recording.hist())
                    page.render(report([Path(data)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    own = native.describe(str(DEMO))["session"] or "{}"
    folder = Path(tempfile.mkdtemp(prefix="fusetools-texts-"))
    try:
        return check(asked, own, Files(folder))
    finally:
        shutil.rmtree(folder)


def check(asked: argparse.Namespace, own: str, files: Files) -> int:
    toml = {path.stem: path.read_text() for path in (ROOT / "configs" / "fs").glob("*.toml")}
    ready = next(iter(experiment.ready().values()))
    types = Path("/sys/kernel/btf/fuse")
    of_kernel = types.read_bytes().decode("latin-1") if types.exists() else "\x9f\xeb\1\0" * 9
    refused = (ValueError, TypeError, AttributeError, RecursionError)  # as state.py reads them
    readers: list[tuple[str, Callable[[str], object], Any, tuple[type[Exception], ...]]] = [
        ("session", files.as_session, json.loads(own), ()),
        ("note", as_note, NOTE, refused),
        ("probe set", lambda text: probeset.parse(text, "x"), toml["cvmfs"], (Error,)),
        ("experiment", files.as_experiment, ready.read_text(), (Error,)),
        ("folded", as_folded, FOLDED, (FoldedError,)),
        ("counts", files.as_counts, files.rows, (Error,)),
        ("sweep", files.as_sweep, files.definition, (Error,)),
        ("run", files.as_run, files.runs, (Error,)),
        ("maps", as_maps, MAPS, ()),
        ("mountinfo", as_mounts, MOUNTS, ()),
        ("types", as_types, of_kernel, ()),
    ]
    failed = 0
    for name, read, valid, errors in readers:
        random_ = random.Random(f"{asked.seed} {name}")
        taken, longest, begun = 0, 0.0, time.monotonic()
        for number in range(asked.times):
            text = valid if isinstance(valid, str) else json.dumps(changed(valid, random_))
            if isinstance(valid, str) or random_.random() < 0.3:
                text = damaged(text, random_)
            start = time.monotonic()
            try:
                read(text)
                taken += 1
            except errors:
                pass
            except BaseException as error:  # a panic of the core is not an Exception
                failed += 1
                print(f"{name} {number}, seed {asked.seed}: {error!r}: {text[:300]!r}")
                if failed > 20:
                    return 1
            longest = max(longest, time.monotonic() - start)
        failed += longest > LONGEST
        spent = time.monotonic() - begun
        print(f"{name}: {asked.times} texts, {taken} taken, at most {longest:.3f} s, {spent:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
