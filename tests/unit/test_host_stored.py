"""The stored hosts, read again from the kernels' own files.

Compared with the kernels' answers when each kind of probe was tried on them.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fusetools.host.facts import HostFacts
from fusetools.plan.capabilities import diagnose
from fusetools.render.text.doctor import render

HOSTS = Path(__file__).parents[1] / "host_facts"
spec = importlib.util.spec_from_file_location("make_host_facts", HOSTS / "make.py")
assert spec is not None and spec.loader is not None
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

ALL = sorted(path.parent.name for path in HOSTS.glob("*/facts.json"))
WORKS = {
    "3.10",
    "4.4",
    "4.15",
    "4.18",
    "5.3",
    "5.4",
    "5.10",
    "5.15",
    "6.1",
    "6.8",
    "6.12",
    "6.14",
    "6.18",
    "7.2",
}


def stored(kernel: str) -> HostFacts:
    return HostFacts.from_json(make.stored(kernel).read_text())


def source(kernel: str) -> Path:
    path: Path = make.DATA / "kernels" / make.KERNELS[kernel]
    if not path.is_dir():
        pytest.skip(f"the kernels' own files are not here: {path}")
    return path


def test_none_is_missing() -> None:
    assert set(ALL) >= WORKS


@pytest.mark.parametrize("kernel", ALL)
def test_round_trip(kernel: str) -> None:
    text = make.stored(kernel).read_text()
    assert HostFacts.from_json(text).to_json() + "\n" == text


@pytest.mark.parametrize("kernel", make.KERNELS)
def test_stored_facts_are_what_the_kernel_s_files_say(kernel: str) -> None:
    source(kernel)
    assert make.facts_of(kernel) == stored(kernel)


# Trials on the kernel, and the fact that must agree with each answer.
TRIED = (
    ("p:kf/x fuse_lookup", "dynamic_events", "kprobe"),
    ("f:kf/x fuse_lookup", "dynamic_events", "fprobe"),
    ("t:kf/x sched_switch", "dynamic_events", "tprobe"),
    ("e:kf/x sched/sched_switch prev=$prev_pid:s32", "dynamic_events", "eprobe"),
    ("p:kf/x fuse_lookup $arg1", "fetch_args", "$arg<N>"),
    ("r:kf/x fuse_lookup $arg1", "fetch_args", "return $arg<N>"),
)


@pytest.mark.parametrize("kernel", make.KERNELS)
def test_dynamic_events_are_those_the_kernel_accepted(kernel: str) -> None:
    text = (source(kernel) / "dynamic-events.txt").read_text()
    answers = {line: answer for answer, line in re.findall(r"^(\S[^\t\n]*)\t(.+)$", text, re.M)}
    facts = stored(kernel)
    told = 0
    for line, field, name in TRIED:
        if line in answers:
            told += 1
            assert (name in getattr(facts, field)) == (answers[line] == "OK"), line
    assert told >= 5, "the file of answers has other lines than expected"


@pytest.mark.parametrize("kernel", make.KERNELS)
def test_filter_functions_are_counted_by_the_kernel(kernel: str) -> None:
    """set_ftrace_filter accepted `fuse_*`, and the kernel counted the matches."""
    text = (source(kernel) / "set_ftrace_filter-tests.txt").read_text()
    match = re.search(r"^OK\tfuse_\*\t(\d+) functions", text, re.MULTILINE)
    assert match
    names = [n for n in stored(kernel).filter_functions_fuse if n.startswith("fuse_")]
    assert len(names) == int(match[1])


@pytest.mark.parametrize("kernel", ALL)
def test_doctor_prints(kernel: str) -> None:
    """make.py rewrites these files: read the difference before it lands."""
    facts = stored(kernel)
    diagnosis = diagnose(facts)
    assert diagnosis.works == (kernel in WORKS)
    text = render(make.without_mounts(facts))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text == (HOSTS / kernel / "doctor.txt").read_text()
