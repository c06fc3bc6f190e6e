"""Makes tests/host_facts/*/{facts.json,doctor.txt} from files that were read on real kernels.

    python tests/host_facts/make.py          rewrites 5.10, 6.1, 6.12 and 7.2
    python tests/host_facts/make.py 6.18     reads this host, as root: its kernel must be a 6.18
    python tests/host_facts/make.py 4.15=F   reads F, the output of tests/vm/test_host_in_guest.py

The files in ../shared/data/kernels were read in virtual machines that ran Debian's kernels; here
they are laid out as the tree of a host and read like any host. Facts missing in those files
(mounts, sysctl settings) keep their defaults; the tools are Debian 12's, as tools.txt says. Mounts,
users of ftrace, settings and the kernel's local version of a running host are left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from fusetools.host.btf import CARRIERS, MEMBERS, OWNERS
from fusetools.host.facts import HostFacts, Tool
from fusetools.host.probe import read_host
from fusetools.host.selftest import judge_unique
from fusetools.host.tools import PERF_OPTIONS, TRACE_CMD_OPTIONS
from fusetools.plan.capabilities import diagnose
from fusetools.render.text.doctor import render
from fusetools.results.doctor import Doctor

HERE = Path(__file__).parent
DATA = Path(os.environ.get("FUSETOOLS_DATA", HERE.parents[1].parent / "shared" / "data"))
KERNELS = {
    "5.10": "5.10.0-46-amd64",
    "6.1": "6.1.0-56-amd64",
    "6.12": "6.12.117+deb13-amd64",
    "7.2": "7.2.13+deb14-amd64",
}
ALL_CAPABILITIES = (1 << 41) - 1


def lay_out(source: Path, root: Path) -> None:
    """Write the tree of the host that ``source`` was read on below ``root``."""

    def put(name: str, text: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def text_of(name: str) -> str:
        return (source / name).read_text()

    put("proc/sys/kernel/osrelease", text_of("uname.txt"))
    put("proc/filesystems", text_of("filesystems-fuse.txt"))
    put("proc/kallsyms", text_of("kallsyms-fuse.txt"))
    put("proc/self/status", f"Uid:\t0\t0\t0\t0\nCapEff:\t{ALL_CAPABILITIES:016x}\n")
    put(
        "proc/self/mountinfo",
        "24 23 0:12 / /sys/kernel/tracing rw - tracefs nodev rw\n",
    )
    put("sys/devices/system/cpu/online", "0-1\n")
    put("etc/os-release", "ID=debian\n")
    put("commands/uname -m", "0\nx86_64\n")
    tracefs = "sys/kernel/tracing"
    for name in ("README", "available_tracers", "trace_clock"):
        put(f"{tracefs}/{name}", text_of(f"tracefs/{name}"))
    for name in text_of("tracefs/ls.txt").split():
        if name.endswith("_events") and not name.startswith("available"):
            put(f"{tracefs}/{name}", "")
    for line in text_of("tracefs/options.txt").splitlines():
        name, _, value = line.partition(" ")
        put(f"{tracefs}/options/{name}", value)
    put(f"{tracefs}/available_filter_functions", text_of("available_filter_functions-fuse.txt"))
    for format_file in (source / "tracefs" / "events").glob("*/*/format"):
        relative = format_file.relative_to(source / "tracefs")
        put(f"{tracefs}/{relative}", format_file.read_text())
    types = text_of("btf-fuse.json")
    put("sys/kernel/btf/vmlinux", "")
    if "/sys/kernel/btf/fuse" in types:
        put("sys/kernel/btf/fuse", "")


def facts_of(kernel: str) -> HostFacts:
    """Return the facts, read again from the stored files of ``kernel``, a key of KERNELS."""
    source = DATA / "kernels" / KERNELS[kernel]
    with tempfile.TemporaryDirectory() as root:
        lay_out(source, Path(root))
        facts = read_host(Path(root))
    return dataclasses.replace(
        facts,
        fuse_send_unique=judge_unique((source / "fuse-tracepoints-trace.txt").read_text()),
        perf=Tool("/usr/bin/perf", "6.1.192", PERF_OPTIONS, True),
        trace_cmd=Tool("/usr/bin/trace-cmd", "3.1.6", TRACE_CMD_OPTIONS),
        # All of them have task:task_newtask, whose format was not stored.
        instances="instances" in (source / "tracefs" / "ls.txt").read_text().split(),
        perf_can_record=True,
        perf_why="",
        # Its symbol is not FUSE's, and was not stored; tests/vm reads it in such a kernel.
        unwinds_kretprobes=kernel != "5.10",
        **told_by_btf(source),
    )


def told_by_btf(source: Path) -> dict[str, Any]:
    """Members as read_fuse() would find them in the kernel's own BTF; only this part was stored."""
    data = json.loads((source / "btf-fuse.json").read_text())
    if "own BTF" not in data["source"]:
        return {}  # from debug symbols: the running kernel does not tell
    members = []
    for name in MEMBERS:
        structure, _, path = name.partition(".")
        place = data["structs"].get(structure, {}).get("members", {}).get(path)
        if of_array := re.fullmatch(r"(\w+)\[(\d)\]\.(\w+)", path):
            array = data["structs"][structure]["members"][of_array[1]]
            element = data["structs"][re.sub(r"struct (\w+)\[\d\]", r"\1", array["type"])]
            before = int(of_array[2]) * element["size"] + element["members"][of_array[3]]["offset"]
            place = {"offset": array["offset"] + before}
        if place:
            members.append((name, place["offset"], place.get("bit", 0), place.get("bits", 0)))
    pointers = {f"struct {name} *": name for name in (*CARRIERS, *OWNERS)}
    functions = []
    for line in (source / "btf-fuse-prototypes.txt").read_text().splitlines():
        prototype = re.fullmatch(r"\S.*?\**(\w+)\((.*)\)", line)
        if not prototype:
            continue
        types = [re.sub(r"\w+$", "", one).strip() for one in prototype[2].split(", ")]
        taken = tuple(pointers.get(one.replace("const ", ""), "") for one in types)
        functions.append((prototype[1], taken))
    for name, function in data["functions"].items():
        if function:
            taken = tuple(pointers.get(one["type"], "") for one in function["args"])
            functions.append((name, taken))
    return {
        "fuse_members": tuple(members),
        "fuse_functions": tuple(
            sorted({one for one in functions if not set(CARRIERS).isdisjoint(one[1])})
        ),
    }


def without_mounts(facts: HostFacts) -> Doctor:
    """Return doctor's output about the host itself."""
    diagnosis = diagnose(facts)
    return Doctor(diagnosis.works, diagnosis.layers, (), (), diagnosis.advice, facts)


def stored(kernel: str) -> Path:
    return HERE / kernel / "facts.json"


def facts_of_a_host(kernel: str, facts: HostFacts) -> HostFacts:
    version = facts.kernel.partition("-")[0]
    if not version.startswith(kernel + ".") or facts.uid != 0:
        raise SystemExit(f"this is uid {facts.uid} on {version}, not root on {kernel}")
    without: dict[str, Any] = {"mounts": (), "ftrace_users": (), "own_events": ()}
    return dataclasses.replace(facts, kernel=version, pid_max=0, sample_rate=0, **without)


def write(kernel: str, facts: HostFacts) -> None:
    directory = stored(kernel).parent
    directory.mkdir(exist_ok=True)
    stored(kernel).write_text(facts.to_json() + "\n")
    (directory / "doctor.txt").write_text(render(without_mounts(facts)))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        name, _, file = argument.partition("=")
        facts = HostFacts.from_json(Path(file).read_text()) if file else read_host()
        write(name, facts_of_a_host(name, facts))
    if not sys.argv[1:]:
        for name in KERNELS:
            write(name, facts_of(name))
        # Other hosts are not read again, but doctor's output about them may have changed.
        for path in HERE.glob("*/facts.json"):
            if path.parent.name not in KERNELS:
                write(path.parent.name, HostFacts.from_json(path.read_text()))
