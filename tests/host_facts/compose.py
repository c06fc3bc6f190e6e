"""Composes the facts of hosts whose kernels are known only by their public sources.

    python tests/host_facts/compose.py 3.10=TREE 4.18=TREE 5.15=TREE 6.8=TREE 6.14=TREE

TREE is a kernel's source tree. Read from it: the functions of fs/fuse (except those that compilers
inline in every kernel that was read), what its ftrace accepts (the README in kernel/trace/trace.c),
and whether x86's unwinder resolves return addresses that a return probe replaced. The rest comes
from KERNELS, and from a host of tests/host_facts that was read and has the same generation of FUSE.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from make import stored, write

from fusetools.host.facts import HostFacts, Tool
from fusetools.host.probe import NAMED, RECOVER, parse_readme

CLOCKS = ("local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot", "x86-tsc")
# Members of a request where BTF has them: offsetof() in structures of that source, compiled for
# x86-64 with CONFIG_VIRTIO_FS.
MEMBERS = {
    "fuse_req.in.h.unique": 64,
    "fuse_req.in.h.opcode": 60,
    "fuse_req.in.h.nodeid": 72,
    "fuse_req.out.h.error": 100,
    "fuse_req.fm": 144,
    "fuse_mount.fc": 0,
    "fuse_conn.dev": 336,
    "fuse_copy_state.req": 8,
    "fuse_copy_state.write": 0,
    "fuse_args.opcode": 8,
    "fuse_args.nodeid": 0,
}
# name of the kernel, nearest host that was read, differences
KERNELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "3.10": (
        "3.10.0-1160.el7.x86_64",
        "5.10",
        {
            "distribution": ("centos", "rhel", "fedora"),
            "dynamic_events": ("kprobe", "uprobe"),
            "clocks": ("local", "global", "counter", "uptime", "perf"),
            "perf": Tool("/usr/bin/perf", "3.10.0", ("-D", "-k", "--filter", "-z"), None),
            "trace_cmd": Tool("/usr/bin/trace-cmd", "2.7", ("-C",)),
        },
    ),
    "4.18": (
        "4.18.0-240.el8.x86_64",
        "5.10",
        {"distribution": ("rhel", "fedora"), "dynamic_events": ("kprobe", "uprobe")},
    ),
    "5.15": (
        "5.15.100",
        "6.1",
        {"distribution": ("ubuntu", "debian"), "fuse_module": False},
    ),
    "6.8": ("6.8.1", "6.1", {"distribution": ("ubuntu", "debian"), "fuse_module": False}),
    "6.14": (
        "6.14.0",
        "6.12",
        {"distribution": ("ubuntu", "debian"), "members": {**MEMBERS, "fuse_conn.dev": 344}},
    ),
}
# In kernel.md's words suffixed or inlined somewhere; inlined in every kernel that was read.
INLINED = {"request_find", "copy_out_args", "fuse_request_alloc", "__fuse_request_send"}


def functions(tree: Path) -> dict[str, tuple[str, ...]]:
    """Return functions of FUSE that are not inlined: name -> types that their parameters point
    to."""
    found = {}
    for path in sorted((tree / "fs/fuse").glob("*.c")):
        if path.name in ("cuse.c", "virtio_fs.c"):
            continue
        text = path.read_text(errors="replace")
        for head, name, parameters, body in re.findall(
            r"^((?:[a-z_]\w*[ *]+)+)(\w+)\(([^;{}]*?)\)\n(?:\t?__\w+\([^)]*\)\n)*\{\n(.*?)^\}",
            text.replace("(void)", "()"),
            re.M | re.S,
        ):
            words = head.split()
            called_once = text.count(f"{name}(") <= 2
            short = "static" in words and body.count("\n") < 12 and called_once
            if {"inline", "__init", "__exit", "__always_inline"} & set(words) or name in INLINED:
                continue
            if ("fuse" in name or name in NAMED) and not (short and f"= {name}" not in text):
                pointed = []
                for one in parameters.split(","):
                    match = re.search(r"struct (fuse_req|fuse_copy_state|fuse_args) \*\w+$", one)
                    pointed.append(match[1] if match else "")
                found[name] = tuple(pointed)
    return found


def compose(version: str, tree: Path) -> HostFacts:
    kernel, near, changes = KERNELS[version]
    changes = dict(changes)
    facts = HostFacts.from_json(stored(near).read_text())
    source = functions(tree)
    readme = re.search(
        r"char readme_msg\[\] =\n(.*?);\n", (tree / "kernel/trace/trace.c").read_text(), re.S
    )
    assert readme
    lines = re.findall(r'"((?:[^"\\]|\\.)*)"', readme[1])
    text = "".join(lines).encode().decode("unicode_escape")
    fetch_args, kinds, maxactive = parse_readme(text)
    tracepoints = [name for name in facts.tracepoints if not name.startswith("fuse:")]
    headers = tree / "fs/fuse/fuse_trace.h"
    for name in ("send", "sent", "end"):
        if headers.exists() and f"fuse_request_{name}" in headers.read_text():
            tracepoints.append(f"fuse:fuse_request_{name}")
    unwinder = tree / "arch/x86/include/asm/unwind.h"  # present since 4.9
    unwinding = unwinder.read_text() if unwinder.exists() else ""
    members = changes.pop("members", MEMBERS)
    has_btf = version not in ("3.10", "4.18")
    carriers = {name: taken for name, taken in source.items() if any(taken)}
    values: dict[str, Any] = {
        "kernel": kernel,
        "fetch_args": fetch_args,
        "maxactive": maxactive,
        "unwinds_kretprobes": RECOVER in unwinding,
        "dynamic_events": ("kprobe", "uprobe", *kinds),
        "clocks": CLOCKS,
        "tracepoints": tuple(sorted(tracepoints)),
        "fuse_send_unique": None,
        "kallsyms_fuse": tuple(sorted(source)),
        "filter_functions_fuse": tuple(sorted(source)),
        "btf": has_btf,
        "btf_modules": (),
        "fuse_members": tuple((n, o, 0, 0) for n, o in members.items()) if has_btf else (),
        "fuse_functions": tuple(sorted(carriers.items())) if has_btf else (),
    }
    return dataclasses.replace(facts, **{**values, **changes})


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        name, _, tree = argument.partition("=")
        write(name, compose(name, Path(tree)))
