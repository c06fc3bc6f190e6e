"""Damages what Python reads: `texts.py N [--seed S]`, N texts for each reader.

A session, the note of a killed recording, a probe set, an experiment, folded stacks: valid, with
values replaced by odd ones and with damaged bytes. A reader may refuse them by its own error alone.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from fusetools import session  # noqa: E402
from fusetools.core import native  # noqa: E402
from fusetools.errors import Error  # noqa: E402
from fusetools.flame import svg  # noqa: E402
from fusetools.flame.folded import Error as FoldedError  # noqa: E402
from fusetools.flame.folded import folded, parse  # noqa: E402
from fusetools.plan import experiment, probeset  # noqa: E402
from fusetools.record.state import State  # noqa: E402

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
    """With odd values in places."""
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
    """With odd characters, cut, or doubled in places."""
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


def as_folded(text: str) -> None:
    graph = parse(text.splitlines())
    again = parse(folded(graph).splitlines())
    assert folded(again) == folded(graph)
    if random.random() < 0.02:  # which takes a hundred times as long
        svg(graph)


def as_note(text: str) -> None:
    state = State.from_json(json.loads(text))
    assert all(name.startswith(("fuse_daemon:", "fuse_kernel:")) for name in state.probes)
    assert all(name.startswith("perf.") and "/" not in name for name in state.folders)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    own = native.describe(str(DEMO))["session"] or "{}"
    folder = Path(tempfile.mkdtemp())
    toml = {path.stem: path.read_text() for path in (ROOT / "configs" / "fs").glob("*.toml")}
    ready = next(iter(experiment.ready().values()))

    def as_experiment(text: str) -> None:
        (folder / "x.toml").write_text(text, errors="replace")
        experiment.load(folder / "x.toml", {})

    refused = (ValueError, TypeError, AttributeError, RecursionError)  # as state.py takes them
    readers: list[tuple[str, Callable[[str], object], Any, tuple[type[Exception], ...]]] = [
        ("session", session.read, json.loads(own), ()),
        ("note", as_note, NOTE, refused),
        ("probe set", lambda text: probeset.parse(text, "x"), toml["cvmfs"], (Error,)),
        ("experiment", as_experiment, ready.read_text(), (Error,)),
        ("folded", as_folded, FOLDED, (FoldedError,)),
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
            except BaseException as error:  # a panic of the core is none of Exception
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
