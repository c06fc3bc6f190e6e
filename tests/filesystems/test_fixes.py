"""Changes that `why` advises save the requests that they are about, as stock perf counts them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import catalogue
import mounts
import pytest
from catalogue import Place, Word

from fusetools.answers.fixes import advice
from fusetools.session import TracedMount

pytestmark = pytest.mark.live

ROUNDS = 5
# Opcodes of the requests that a change saves, and what asks for them (include/uapi/linux/fuse.h).
QUESTIONS: dict[str, tuple[tuple[int, ...], Callable[[Path], object]]] = {
    "timeouts": ((1, 3), lambda path: path.stat()),
    "negative": ((1,), lambda path: path.with_suffix(".none").exists()),
    "attributes": ((22,), lambda path: os.getxattr(path, "user.none")),
    "pages": ((15,), lambda path: path.read_bytes()),
}


def overlay(place: Place, *options: str) -> list[Word]:
    for name in "upper", "work":
        (place.folder / name).mkdir(exist_ok=True)
    layers = f"lowerdir={place.source},upperdir={place.folder}/upper,workdir={place.folder}/work"
    return ["fuse-overlayfs", "-f", "-o", layers, *options, place.mount]


def encrypted(place: Place, *options: str) -> list[Word]:
    data = place.folder / f"encrypted{len(options)}"
    return [*catalogue.encrypt(place, place.source, data), *options, data, place.mount]


def archive(place: Place, *options: str) -> list[Word]:
    catalogue.run("tar", "-C", place.source, "-cf", place.folder / "a.tar", ".")
    return ["archivemount", "-f", "-o", "readonly", *options, place.folder / "a.tar", place.mount]


def passthrough(*command: str) -> Callable[..., list[Word]]:
    return lambda place, *options: [*command, *options, place.source, place.mount]


DAEMONS: dict[str, Callable[..., list[Word]]] = {
    "archivemount": archive,
    "bindfs": passthrough("bindfs", "-f"),
    "fuse-overlayfs": overlay,
    "gocryptfs": encrypted,
    "mergerfs": passthrough("mergerfs", "-f"),
    "rclone": passthrough("rclone", "mount", "--config", "/dev/null"),
}
# Options without which the daemon's caches leave nothing to save.
NO_CACHES = ("-o", "entry_timeout=0,attr_timeout=0,negative_timeout=0")
LIBFUSE = ("archivemount", "bindfs")  # that take its options
CASES = [
    ("mergerfs", "attributes", ()),
    ("mergerfs", "timeouts", ("-o", "cache.entry=0,cache.attr=0")),
    ("mergerfs", "negative", ()),
    ("mergerfs", "pages", ()),
    ("bindfs", "attributes", ()),
    ("bindfs", "timeouts", NO_CACHES),
    ("bindfs", "negative", ()),
    ("bindfs", "pages", ()),
    ("archivemount", "timeouts", NO_CACHES),
    ("archivemount", "negative", ()),
    ("archivemount", "pages", ()),
    ("fuse-overlayfs", "attributes", ()),
    ("gocryptfs", "timeouts", ("-sharedstorage",)),
    ("rclone", "timeouts", ("--attr-timeout", "0s")),
]


def changed(options: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Return the options after the change that the advice names."""
    found = re.match(r"mount it (with|without) (-[^ ,]+( [^ ,(-]\S*?(?=,? |$))?)", text)
    assert found, text
    words = tuple(shlex.split(found[2]))
    if "second" in text or words[-1] == "1s":  # the machine may be slow
        words = tuple(re.sub(r"\b1(?=s?$|,)", "600", word) for word in words)
    if found[1] == "with":
        return (*options, *words)
    return tuple(option for option in options if option not in words)


def asked(place: Place, kind: str, command: list[Word]) -> int:
    """Serve the given files and ask for each several times. Return how many requests that took."""
    daemon = place.serve(*command)
    opcodes, ask = QUESTIONS[kind]
    wanted = " || ".join(f"opcode == {number}" for number in opcodes)
    wanted = f"connection == {mounts.connection(place.mount)} && ({wanted})"
    files = sorted((place.mount / "given").glob("file-*"))
    assert len(files) == catalogue.FILES
    counting = ["perf", "stat", "-x,", "-a", "-e", "fuse:fuse_request_send", "--filter", wanted]
    reader = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(
        [*counting, "--", *reader],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as perf:
        assert perf.stdin and perf.stdout and perf.stderr
        perf.stdout.readline()
        for _ in range(ROUNDS):
            for path in files:
                with contextlib.suppress(OSError):  # no such attribute
                    ask(path)
            time.sleep(0.01)
        perf.stdin.close()
        printed = perf.stderr.read()
    assert place.clean() == [] and daemon.poll() is not None
    return int(next(row for row in printed.splitlines() if row.strip()).split(",")[0])


@pytest.mark.parametrize(
    ("program", "kind", "options"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.variant) for case in CASES[1:])],
)
def test_the_change_saves_requests(
    tmp_path: Path, program: str, kind: str, options: tuple[str, ...]
) -> None:
    catalogue.require("perf", program)
    catalogue.make("all")
    generic = program in LIBFUSE
    fs = "libfuse_highlevel" if generic else None
    text = advice(kind, TracedMount("/mnt", program=program, parses=generic, fs=fs))
    place = Place(tmp_path)
    try:
        with mounts.alone():
            before = asked(place, kind, DAEMONS[program](place, *options))
            after = asked(place, kind, DAEMONS[program](place, *changed(options, text)))
    finally:
        place.clean()
    assert before >= ROUNDS * catalogue.FILES
    assert after <= before // 2
