"""Probes in daemons: on callbacks, on replies of a library, and on what tells files' names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusetools.errors import Error
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.words import event_name
from fusetools.names import CALIBRATION
from fusetools.plan.capabilities import NO_UPROBES
from fusetools.plan.daemons import Target, by_program, no_calls, served_by, shared
from fusetools.plan.events import NUMBER, RETURN, Probe
from fusetools.plan.probeset import GENERIC, HELPERS, OFFSET, Group
from fusetools.plan.registers import fetch
from fusetools.plan.returns import no_returns
from fusetools.reasons import Code, Reason, of_daemon

DAEMON_GROUP = "fuse_daemon"

# (name, virtual address, size, file offset) as native.elf_functions returns them
Symbol = tuple[str, int, int, int]


@dataclass(frozen=True)
class Symbols:
    """The functions of daemons' files.

    ``functions``: of each file, by its host_path; ``plain``: plain names by mangled ones;
    ``unreadable``: why a file's symbols could not be read, by its host_path; ``stepped``: places
    "host_path:0xoffset" of functions whose probe is expensive, as the kernel single-steps the
    instruction that the probe replaces.
    """

    functions: Mapping[str, Sequence[Symbol]] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    stepped: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Callbacks:
    """The probes in daemons. ``targets``: each with the probe set that was taken; ``nameless``:
    connections whose probes do not tell the files' names."""

    targets: tuple[Target, ...]
    probes: tuple[Probe, ...]
    nameless: tuple[int, ...]
    missing: tuple[Reason, ...]


def callbacks(
    facts: HostFacts,
    chosen: Sequence[Target],
    symbols: Symbols,
    calibration: Library | None = None,
    names: bool = True,
) -> Callbacks:
    """Return the probes for the ``chosen`` targets: see planner.plan().

    ``names``: with those that tell the files' names. Raise Error if there is none, because of a
    stripped file.
    """
    probes: list[Probe] = []
    missing: list[Reason] = []
    settled = []
    nameless: list[int] = []
    for target in chosen:
        if target.groups:
            target, new, why = _settled(facts, target, symbols)
            probes += new
            if not _tell_names(new):
                nameless.append(target.mount.connection)
            missing += [lack for lack in dict.fromkeys(why) if lack not in missing]
        else:
            assert target.lacks is not None
            missing.append(target.lacks)
            nameless.append(target.mount.connection)
        settled.append(target)
    missing += shared(facts, settled)
    if facts.dynamic_events and "uprobe" not in facts.dynamic_events:
        probes = []
        missing.append(NO_UPROBES)
    stripped = [why for why in missing if why.code is Code.STRIPPED]
    if stripped and not probes:
        raise Error(f"cannot probe the {stripped[0].text}", "", stripped[0].fix)
    if not names:
        probes = [probe for probe in probes if probe.role not in ("inode", "listed")]
    probes = _distinct(probes)
    if probes and calibration:
        probes += _calibration(facts, calibration, symbols)
    return Callbacks(tuple(settled), tuple(probes), tuple(nameless), tuple(missing))


def _tell_names(probes: Sequence[Probe]) -> bool:
    """Return whether they show each file's name, and the inode that it leads to."""
    inodes = any(probe.role == "inode" or probe.function == "fuse_reply_entry" for probe in probes)
    return inodes and any("name" in dict(probe.arguments) for probe in probes)


def _settled(
    facts: HostFacts, target: Target, symbols: Symbols
) -> tuple[Target, list[Probe], list[Reason]]:
    """Return the target with its first probe set whose functions exist, and the probes."""
    assert target.probe_set is not None
    lacking: list[Reason] = []
    for probe_set, groups in ((target.probe_set, target.groups), *target.otherwise):
        tried = replace(target, probe_set=probe_set, groups=groups, otherwise=())
        probes, missing = _probes(facts, tried, symbols)
        calls = any(group.role == "call" for group, _ in groups) and not _is_generic(tried)
        wanted = "entry" if calls else "reply"
        if any(probe.role == wanted for probe in probes):
            calls = any(probe.role == "entry" for probe in probes)
            return tried, probes, [*(_instead(lack, calls) for lack in lacking), *missing]
        # A program of any name need not have them: nothing to report.
        if not target.otherwise or not any(by_program(group, library) for group, library in groups):
            lacking = lacking or missing
    unknown = no_calls(target.mount, Code.DAEMON_UNSUPPORTED, served_by(target.mount))
    return target, [], lacking or [unknown]


def _instead(lacking: Reason, calls: bool) -> Reason:
    """Return a reason that says what is recorded instead: the library's callbacks or replies."""
    subject = dict(lacking.subject)
    if of_daemon(lacking):
        subject["part"] = "own_callbacks" if calls else "callbacks"
    fix = lacking.fix.splitlines()[-1] if lacking.fix else ""
    return replace(lacking, subject=subject, fix=fix)


def _probes(facts: HostFacts, target: Target, symbols: Symbols) -> tuple[list[Probe], list[Reason]]:
    probes: list[Probe] = []
    missing: list[Reason] = []
    mount = target.mount
    for group, library in target.groups:
        before = len(probes)
        if why := _unreadable(mount, library, symbols.unreadable):
            missing.append(why)
            continue
        refused = no_returns(facts, library, target.mount)
        functions = symbols.functions.get(library.host_path, ())
        if group.unless and any(group.unless.fullmatch(name) for name, *_ in functions):
            continue
        for name, address, _, offset in functions:
            base, variants = _variants(name) if not library.go else (name, set())
            plain = symbols.plain.get(name, base)
            match = group.function.fullmatch(base) or group.function.fullmatch(plain)
            if not match or "part" in variants:
                continue
            key = match[1] if group.function.groups else ""
            if group.role == "call" and group.operations and key not in group.operations:
                continue
            function = short_name(plain)
            probe = Probe(
                event=f"{DAEMON_GROUP}:{event_name(function)}",
                kind="p",
                place=f"{library.host_path}:0x{offset:x}",
                layer="daemon",
                function=function,
                operation=group.operations.get(key, ""),
                role="entry" if group.role == "call" else group.role,
                address=address,
                arguments=()
                if variants & {"isra", "constprop"}
                else _arguments(group, key, facts, library),
            )
            probes.append(probe)
            if group.role == "call" and group.returns and not refused:
                probes.append(
                    replace(
                        probe, event=probe.event + RETURN, kind="r", role="return", arguments=()
                    )
                )
        if len(probes) == before and group.role in HELPERS:
            others = (other for other, _ in target.groups if other is not group)
            if any(other.unless and other.role == group.role for other in others):
                continue  # it stands in for this one, and says what is missing
            file = {"path": mount.path, "file": os.path.basename(library.path)}
            no_inodes = Reason(Code.NO_INODES, file, layer="names")
            no_requests = Reason(Code.NO_REQUESTS_OF_CALLBACKS, file, layer="daemon")
            missing.append(no_requests if group.role == "taken" else no_inodes)
        elif len(probes) == before and group.role == "call" and _is_generic(target):
            pass  # a libfuse whose handlers are not known: the replies are what is promised
        elif len(probes) == before:
            missing.append(_stripped(target, group, library))
        elif refused and group.role == "call" and group.returns:
            missing.append(refused)
    if all(probe.role in HELPERS for probe in probes):
        probes = []
    return probes, missing


def _unreadable(mount: Mount, library: Library, unreadable: Mapping[str, str]) -> Reason | None:
    fix = "mount it again"
    if not library.host_path:
        return no_calls(mount, Code.FILE_UNNAMED, {"file": library.path}, fix)
    if message := unreadable.get(library.host_path):
        about = {"file": library.path, "message": message}
        return no_calls(mount, Code.FILE_UNREADABLE, about, fix)
    return None


# Compilers append to a function's name: it is local to a link (llvm, lto_priv), its arguments
# have moved (isra, constprop), it is only a part of the function, which calls it (part).
_VARIANT = re.compile(r"\.(part|isra|constprop|llvm|lto_priv)(?:\.\d+)?(?=\.|$)")


def _variants(name: str) -> tuple[str, set[str]]:
    """Return a symbol's name without the suffixes of compilers, and these suffixes."""
    return _VARIANT.sub("", name), set(_VARIANT.findall(name))


def short_name(function: str) -> str:
    """Return a function's name without its scope: C++'s and Rust's "::", Go's directories.

    Text in brackets is not split: template arguments, Rust's impls.
    """
    depth, begin = 0, 0
    for at, letter in enumerate(function):
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}":
            depth = max(depth - 1, 0)
        elif depth == 0 and (letter == "/" or function.startswith("::", at)):
            begin = at + (1 if letter == "/" else 2)
    return function[begin:] or function


def _arguments(
    group: Group, key: str, facts: HostFacts, library: Library
) -> tuple[tuple[str, str], ...]:
    wanted = {**group.arguments.get("all", {}), **(group.arguments.get(key, {}) if key else {})}
    fetches = []
    abi = group.abi or ("go" if library.go else "c")
    if abi == "go" and not library.go_registers:
        return ()
    file = os.path.basename(library.path)
    offsets = {
        name: str(number)
        for name, rows in group.offsets.items()
        for library_name, number in reversed(rows)
        if library_name.fullmatch(file)
    }
    for name, text in wanted.items():
        if not offsets.keys() >= set(OFFSET.findall(text)):
            continue
        text = OFFSET.sub(lambda match: offsets[match[1]], text)
        value = fetch(text, facts.arch, library.machine, abi)
        if value is not None:
            fetches.append((NUMBER if name == "opcode" else name, value))
    return tuple(fetches)


def _is_generic(target: Target) -> bool:
    return target.probe_set is not None and target.probe_set.name == GENERIC


def _stripped(target: Target, group: Group, library: Library) -> Reason:
    ways = "install its debug symbols (a package such as NAME-dbgsym or NAME-debuginfo)"
    if not _is_generic(target):
        ways = (
            f"fusetools record --fs {GENERIC} -- …   "
            "(works without symbols; libfuse's callbacks, not the daemon's)\n" + ways
        )
    about = {"file": os.path.basename(library.path), "group": group.name}
    return no_calls(target.mount, Code.STRIPPED, {**about, **served_by(target.mount)}, ways)


def _distinct(probes: Sequence[Probe]) -> list[Probe]:
    """Return each place once. Events with the same name in another file get a number."""
    apart: list[Probe] = []
    seen: set[tuple[str, str]] = set()
    used: set[str] = set()
    # Probes of inodes come last: another daemon's reply probe at that place shows inodes, too.
    for probe in sorted(probes, key=lambda probe: probe.role == "inode"):
        if (probe.kind, probe.place) in seen:
            continue
        seen.add((probe.kind, probe.place))
        stem = probe.event[: -len(RETURN)] if probe.role == "return" else probe.event
        mark = probe.event[len(stem) :]
        number = 1
        while probe.event in used:
            number += 1
            probe = replace(probe, event=f"{stem}_{number}{mark}")
        used.add(probe.event)
        apart.append(probe)
    return apart


def _calibration(facts: HostFacts, library: Library, symbols: Symbols) -> list[Probe]:
    if no_returns(facts, library):
        return []
    for name, address, _, offset in symbols.functions.get(library.host_path, ()):
        if name == CALIBRATION:
            entry = Probe(
                event=f"{DAEMON_GROUP}:{CALIBRATION}",
                kind="p",
                place=f"{library.host_path}:0x{offset:x}",
                layer="daemon",
                function=CALIBRATION,
                operation="",
                role="entry",
                address=address,
            )
            return [entry, replace(entry, event=entry.event + RETURN, kind="r", role="return")]
    return []
