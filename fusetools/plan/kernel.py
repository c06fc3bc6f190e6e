"""The kernel's side of a plan: which of its functions and events show FUSE requests.

All decisions depend on what the running kernel has (its lists of functions, its BTF), never on its
version. configs/kernel/ defines which function brackets which stage, with alternatives in order.
Why perf records the kprobes, and why there are no fprobe events: docs/design/kernel-probes.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, TypedDict, cast

from fusetools.configured import files, tomllib
from fusetools.errors import Error
from fusetools.host.facts import HostFacts
from fusetools.plan.capabilities import installs
from fusetools.plan.events import RETURN, Event, Probe
from fusetools.plan.filters import (
    EVERY,
    Filter,
    OfConnection,
    all_of,
    any_of,
    condition,
    grouped,
)
from fusetools.plan.registers import fetch
from fusetools.reasons import Code, Reason

if TYPE_CHECKING:
    from typing_extensions import NotRequired

GROUP = "fuse_kernel"
GRAPH = "fuse_*"  # the functions that function_graph records by default

# Maximum number of concurrent calls of one function: waiting callers, threads of the daemon.
# A kretprobe takes about 150 bytes for each; the kernel allows 4096.
INSTANCES = 1024
MOST = 400  # kernel functions probed with kprobes, two events each

NO_UNIQUE = Reason(Code.NO_UNIQUE, layer="request")

# Compilers append: the function itself (llvm), or a variant whose arguments may have moved.
_SAME = r"(\.llvm\.\d+)?"
_VARIANT = r"(\.(isra|constprop|part|llvm)(\.\d+)?)+"


@dataclass(frozen=True)
class Layout:
    """The offsets of a request's members, and the types that a function's parameters point to.

    ``members``: "structure.member" -> (byte offset, bit, bits of a bit field or 0).
    """

    members: Mapping[str, tuple[int, int, int]]
    functions: Mapping[str, tuple[str, ...]]
    from_btf: bool = True


@dataclass(frozen=True)
class KernelPlan:
    """``graph``: what function_graph records, as set_ftrace_filter takes it (`!name`: without it);
    empty: nothing.

    ``functions``: the functions it shows, each with its operation ("" for none).
    """

    probes: tuple[Probe, ...] = ()
    events: tuple[Event, ...] = ()
    graph: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    missing: tuple[Reason, ...] = ()


_Way = TypedDict(
    "_Way",
    {"tracepoint": str, "function": str, "filter": str, "if": str, "also": "list[str]"},
    total=False,
)


class _Stage(TypedDict):
    """A row of requests.toml."""

    name: str
    role: str
    fetch: list[str]
    ways: list[_Way]


class _Name(TypedDict):
    """A row of requests.toml: ``fetch`` has a path's name by the event's field."""

    name: str
    role: str
    functions: list[str]
    fetch: dict[str, str]
    filter: NotRequired[str]


class _Table(TypedDict):
    """A row of layouts.toml."""

    has: list[str]
    lacks: NotRequired[list[str]]
    members: dict[str, int]
    functions: dict[str, list[str]]


class _Config(TypedDict, total=False):
    """The contents of requests.toml, layouts.toml and functions.toml."""

    stage: list[_Stage]
    names: list[_Name]
    fetch: dict[str, list[str]]
    takes: dict[str, str]
    layout: list[_Table]
    operations: dict[str, list[list[str]]]
    left_out: list[str]


@cache
def _config(name: str) -> _Config:
    (file,) = (file for file in files("kernel") if file.stem == name)
    return cast(_Config, tomllib.loads(file.read_text(encoding="utf-8")))


def plan(
    facts: HostFacts,
    connections: Sequence[int],
    backend: str = "auto",
    functions: Sequence[str] = (),
    begins: bool = True,
    counts: bool = False,
) -> KernelPlan:
    """Return what to record of the kernel's FUSE code.

    ``connections``: those of the traced mounts; ``backend``: one of names.BACKENDS;
    ``functions``: shell patterns of kernel functions instead of the usual ones; ``begins``: with
    the stacks of the requests' callers; ``counts``: only what can be counted: kprobes if available,
    never function_graph. Raise Error if the backend is not available.
    """
    if backend == "kprobe" and "kprobe" not in facts.dynamic_events:
        raise Error("cannot use kprobes", "this kernel has none (CONFIG_KPROBE_EVENTS)")
    kprobes = "kprobe" in facts.dynamic_events and backend != "tracepoint"
    names = _Names(facts)
    made = _Requests(facts, names, connections, kprobes, begins)
    probes, events, missing = made.stages()
    graph: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    why = _no_graph(facts, "kprobe" if counts else backend)
    if why and backend == "graph":
        raise Error("cannot use function_graph", why.why, why.fix)
    if kprobes or not why:
        missing += [_no_function(pattern) for pattern in functions if not names.matching([pattern])]
    if not why:
        brackets = [probe.place for probe in probes]
        graph = tuple(dict.fromkeys([*(functions or (GRAPH,)), *([] if functions else brackets)]))
        graph = tuple(pattern for pattern in graph if _covered(pattern, graph))
        operations = {name: operation for operation, name in _operations(names)}
        shown = tuple((name, operations.get(name, "")) for name in names.matching(graph))
        graph = tuple(pattern for pattern in graph if names.matching([pattern]))
        if graph and not functions:
            found = (names.find(name) for name in _config("functions")["left_out"])
            without = [name for name in found if name]
            graph += tuple(f"!{name}" for name in without)
            shown = tuple(row for row in shown if row[0] not in without)
    if not facts.unwinds_kretprobes:
        # function_graph records these returns as well, and the unwinder knows its trampoline.
        gone = {p.event for p in probes if p.role == "return" and p.place in dict(shown)}
        probes = [probe for probe in probes if probe.event not in gone]
        events = [event for event in events if event.name not in gone]
    if not graph and backend in ("auto", "kprobe") and kprobes:
        pairs, more = _pairs(facts, names, functions, {probe.event for probe in probes})
        probes += pairs
        events += [Event(probe.event) for probe in pairs]
        missing += more
        if backend == "auto" and why and not counts:
            missing.append(why)
    elif not graph:
        missing.append(replace(why or Reason(Code.NO_FUNCTION_MATCHES), layer="kernel"))
    if not counts and not facts.unwinds_kretprobes:
        fix = "fusetools record --functions request_wait_answer …   # too" if graph else ""
        if backend == "kprobe" and not _no_graph(facts, "graph"):
            fix = "fusetools record --backend graph -- …"
        missing += _cut_stacks(probes, fix)
    return KernelPlan(tuple(probes), tuple(events), graph, shown, tuple(missing))


def names(
    facts: HostFacts, connections: Sequence[int], backend: str = "auto"
) -> tuple[tuple[Probe, ...], tuple[Event, ...]]:
    """Return what tells the names of files by requests and their answers, whatever the daemon is.

    Both are empty where this kernel cannot.
    """
    if not connections or "kprobe" not in facts.dynamic_events or backend == "tracepoint":
        return (), ()
    made = _Requests(facts, _Names(facts), connections, True, False).names_of_files()
    return tuple(probe for probe, _ in made), tuple(event for _, event in made)


def without_functions(plan: KernelPlan) -> KernelPlan:
    """Return the plan with only the stages of requests."""
    gone = {probe.event for probe in plan.probes if probe.layer == "kernel"}
    return KernelPlan(
        tuple(probe for probe in plan.probes if probe.event not in gone),
        tuple(event for event in plan.events if event.name not in gone),
        missing=tuple(lack for lack in plan.missing if lack.code not in OF_FUNCTIONS),
    )


def _cut_stacks(probes: Sequence[Probe], fix: str) -> list[Reason]:
    """Return why stacks are cut: they end at functions whose return is probed for a requested
    duration."""
    returns = [probe.function for probe in probes if probe.role == "return"]
    if not returns:
        return []
    about = {"function": returns[0]} if len(returns) == 1 else {}
    figures = {"functions": len(returns)}
    return [Reason(Code.KERNEL_STACKS_CUT, about, figures, fix, "stacks")]


def _covered(name: str, patterns: Sequence[str]) -> bool:
    """Return whether no other pattern covers ``name``."""
    return not any(other != name and fnmatchcase(name, other) for other in patterns)


def _no_function(pattern: str) -> Reason:
    return Reason(Code.FUNCTION_ABSENT, {"pattern": pattern}, layer="kernel")


def _no_graph(facts: HostFacts, backend: str) -> Reason | None:
    """Return why function_graph cannot be used; None: it can."""
    if backend == "tracepoint":
        return Reason(Code.TRACEPOINTS_ONLY)
    if backend == "kprobe":
        return Reason(Code.NO_KPROBES, fix="a kernel with CONFIG_KPROBE_EVENTS")
    if "function_graph" not in facts.tracers:
        if "kprobe" in facts.dynamic_events:
            return Reason(Code.NO_GRAPH_TRACER)
        fix = "a kernel with CONFIG_KPROBE_EVENTS and CONFIG_FUNCTION_GRAPH_TRACER"
        return Reason(Code.NO_KERNEL_PROBES, fix=fix)
    if facts.trace_cmd is None:
        return Reason(Code.NO_TRACE_CMD, fix=installs(facts, "trace-cmd"))
    if not facts.filter_functions_fuse:
        return Reason(Code.NO_FUSE_FUNCTIONS, fix="modprobe fuse")
    if "mono" not in facts.clocks and "perf" not in facts.clocks:
        return Reason(Code.NO_COMMON_CLOCK)
    if facts.pid_namespace:
        fix = "docker run --pid=host …   # where this is a container"
        return Reason(Code.PID_NAMESPACE, fix=fix)
    return None


# Reasons that concern only the kernel's functions.
OF_FUNCTIONS = frozenset(
    {
        Code.TRACEPOINTS_ONLY,
        Code.NO_KPROBES,
        Code.NO_GRAPH_TRACER,
        Code.NO_KERNEL_PROBES,
        Code.NO_TRACE_CMD,
        Code.NO_FUSE_FUNCTIONS,
        Code.NO_COMMON_CLOCK,
        Code.PID_NAMESPACE,
        Code.NO_FUNCTION_MATCHES,
        Code.KERNEL_STACKS_CUT,
    }
)


class _Names:
    """The kernel's FUSE functions that can be probed, by their plain names."""

    def __init__(self, facts: HostFacts) -> None:
        # Functions that ftrace must not touch are refused for kprobes, too.
        listed = facts.filter_functions_fuse or facts.kallsyms_fuse
        self._known = Counter(facts.kallsyms_fuse)
        self._known.update({name: 1 for name in listed if name not in self._known})
        self._listed = tuple(dict.fromkeys(n for n in listed if ".cold" not in n))

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def find(self, name: str, variant: bool = False) -> str | None:
        """Return the function's name in the kernel; ``variant``: one whose arguments may have
        moved."""
        wanted = re.compile(re.escape(name) + (_VARIANT if variant else _SAME))
        matches = [listed for listed in self._listed if wanted.fullmatch(listed)]
        return matches[0] if len(matches) == 1 and self._known[matches[0]] == 1 else None

    def why(self, name: str) -> Reason | None:
        """Return why find() returns None; None: the kernel does not have the function."""
        if self._known[name] > 1:
            number = {"functions": self._known[name]}
            return Reason(Code.STAGE_AMBIGUOUS, {"function": name}, number, layer="request")
        if variant := self.find(name, variant=True):
            subject = {"function": name, "variant": variant}
            return Reason(Code.STAGE_VARIANT, subject, layer="request")
        if name in self._known and name not in self._listed:
            return Reason(Code.STAGE_UNTRACEABLE, {"function": name}, layer="request")
        return None

    def matching(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Return the functions that a shell pattern matches, as set_ftrace_filter does."""
        return tuple(n for n in self._listed if any(fnmatchcase(n, p) for p in patterns))


class _Requests:
    """The stages of a request: for each stage the first way that this kernel supports."""

    def __init__(
        self,
        facts: HostFacts,
        names: _Names,
        connections: Sequence[int],
        kprobes: bool,
        begins: bool,
    ) -> None:
        self.facts = facts
        self.names = names
        self.kprobes = kprobes
        self.begins = begins
        self.layout = layout(facts)
        self.config = _config("requests")
        self.only = any_of(*(Filter((OfConnection(number),)) for number in connections))

    def stages(self) -> tuple[list[Probe], list[Event], list[Reason]]:
        probes: list[Probe] = []
        events: list[Event] = []
        missing: list[Reason] = []
        for stage in self.config["stage"]:
            why = None
            for way in stage["ways"]:
                recorded, reason = self._way(stage, way)
                why = why or reason
                if recorded is None:
                    continue
                others = [self._way(stage, {"function": name}) for name in way.get("also", ())]
                for more, reason in [(recorded, None), *others]:
                    if more is not None:
                        probes += more[0]
                        events += more[1]
                    elif reason:
                        missing.append(_of_stage(reason, stage, "io_uring or virtiofs"))
                break
            else:
                if self.kprobes:
                    why = why or Reason(Code.STAGE_NO_FUNCTION, layer="request")
                    missing.append(_of_stage(why, stage))
        if not self.kprobes and not events:
            missing.append(Reason(Code.NO_FUSE_TRACEPOINTS, layer="request"))
        elif self.facts.fuse_send_unique is False and not self.kprobes:
            missing.append(NO_UNIQUE)
        return probes, events, missing

    def _way(
        self, stage: _Stage, way: _Way
    ) -> tuple[tuple[list[Probe], list[Event]] | None, Reason | None]:
        """Return the probes and events of one way, or why it is none here."""
        if name := way.get("tracepoint"):
            return self._tracepoint(stage, name, way), None
        name = way["function"]
        if not self.kprobes:
            return None, None
        place = self.names.find(name)
        if place is None:
            return None, self.names.why(name)
        if self.layout is None:
            return None, Reason(Code.STAGE_NO_LAYOUT, {"function": name}, layer="request")
        arguments = tuple(
            (argument, value)
            for argument in stage["fetch"]
            if (value := self._fetch(name, self.config["fetch"][argument])) is not None
        )
        fetched = dict(arguments)
        if "req" not in fetched:
            return None, Reason(Code.STAGE_NO_ARGUMENTS, {"function": name}, layer="request")
        call = stage["role"] == "call"
        event = f"{GROUP}:{name}"
        first = Probe(
            event=event,
            kind="p",
            place=place,
            layer="kernel" if call else "request",
            function=name if call else "",
            operation="",
            role="entry" if call else stage["role"],
            arguments=arguments,
        )
        # A table may be wrong for another kernel configuration: it never filters events.
        only = self.only if self.layout.from_btf and "connection" in fetched else EVERY
        if not call:
            chosen = all_of(condition(way.get("filter", "")), only)
            return ([first], [Event(first.event, chosen, stack=self._stack(stage))]), None
        keeps = "return $arg<N>" in self.facts.fetch_args
        back = Probe(
            event=event + RETURN,
            kind="r",
            place=place,
            layer="kernel",
            function=name,
            operation="",
            role="return",
            arguments=arguments if keeps else (),
            instances=self._instances(),
        )
        # If an entry is filtered out, its return must be, too.
        only = only if keeps else EVERY
        return ([first, back], [Event(first.event, only), Event(back.event, only)]), None

    def names_of_files(self) -> list[tuple[Probe, Event]]:
        """All of them or none: who does not see what is forgotten takes a file for another one."""
        made = []
        for row in self.config["names"]:
            places = ((name, self.names.find(name)) for name in row["functions"])
            found = next(((name, place) for name, place in places if place), None)
            if found is None or self.layout is None:
                return []
            name, place = found
            values = {
                field: self._fetch(name, self.config["fetch"][path])
                for field, path in row["fetch"].items()
            }
            fetched = tuple((field, value) for field, value in values.items() if value is not None)
            if len(fetched) < len(values):
                return []
            event = f"{GROUP}:{row['name']}"
            probe = Probe(event, "p", place, "request", "", "", row["role"], arguments=fetched)
            both = [of for of in (condition(row.get("filter", "")), self.only) if of]
            only = all_of(*(grouped(of) for of in both))
            made.append((probe, Event(event, only)))
        return made

    def _tracepoint(
        self, stage: _Stage, name: str, way: _Way
    ) -> tuple[list[Probe], list[Event]] | None:
        if name not in self.facts.tracepoints:
            return None
        # Kernels with fuse_request_sent have numbered the request by then.
        good = self.facts.fuse_send_unique or "fuse:fuse_request_sent" in self.facts.tracepoints
        if way.get("if") == "unique" and self.kprobes and not good:
            return None
        return [], [Event(name, self.only, stack=self._stack(stage))]

    def _stack(self, stage: _Stage) -> str:
        """The stack shows the caller only where a request begins."""
        return "fp" if stage["role"] == "begin" and self.begins else ""

    def _instances(self) -> int:
        return INSTANCES if self.facts.maxactive else 0

    def _fetch(self, function: str, paths: Sequence[str]) -> str | None:
        """Return the argument's fetch expression from the function's parameters; None: there is
        none."""
        assert self.layout is not None
        takes = self.layout.functions.get(self.config["takes"].get(function, function), ())
        for path in paths:
            steps, _, kind = path.rpartition(":")
            value = self._follow(takes, steps.split(), kind)
            if value is not None:
                return value
        return None

    def _follow(self, takes: Sequence[str], steps: Sequence[str], kind: str) -> str | None:
        assert self.layout is not None
        members = self.layout.members
        structure = steps[0].partition(".")[0]
        if structure == "after":
            if steps[1] not in takes:
                return None
            value = f"$arg{takes.index(steps[1]) + 2}"
        elif structure in takes:
            value = f"$arg{takes.index(structure) + 1}"
        elif "fuse_copy_state" in takes and "fuse_copy_state.req" in members:
            if structure != "fuse_req":
                return None
            offset = members["fuse_copy_state.req"][0]
            value = f"+{offset}($arg{takes.index('fuse_copy_state') + 1})"
        else:
            return None
        for step in steps:
            if step.startswith("*"):
                value = f"+{step[1:]}({value})"
            if "." not in step:
                continue
            if step not in members:
                return None
            offset, bit, bits = members[step]
            value = f"+{offset}({value})"
            if bits:
                kind = f"b{bits}@{bit}/8"
        if "$arg<N>" not in self.facts.fetch_args:  # before Linux 4.20
            return fetch(f"{value}:{kind}".replace("$arg", "arg"), self.facts.arch)
        return f"{value}:{kind}"


def _of_stage(why: Reason, stage: _Stage, transport: str = "") -> Reason:
    """``transport``: of the only requests that lack the stage, "" for all."""
    by = {"transport": transport} if transport else {}
    return replace(why, subject={**why.subject, "stage": stage["name"], **by})


def layout(facts: HostFacts) -> Layout | None:
    """From the kernel's BTF or, if fuse has no BTF, from the table of known layouts."""
    members = {name: (offset, bit, bits) for name, offset, bit, bits in facts.fuse_members}
    if "fuse_req.in.h.unique" in members:
        return Layout(members, dict(facts.fuse_functions))
    names = set(facts.kallsyms_fuse) | set(facts.filter_functions_fuse)
    for table in _config("layouts")["layout"]:
        if names.issuperset(table["has"]) and not names & set(table.get("lacks", ())):
            return Layout(
                {name: (offset, 0, 0) for name, offset in table["members"].items()},
                {name: tuple(takes) for name, takes in table["functions"].items()},
                from_btf=False,
            )
    return None


def _operations(names: _Names) -> list[tuple[str, str]]:
    """Return (operation, function) of the kernel's entries from the VFS."""
    pairs = []
    for operation, groups in _config("functions")["operations"].items():
        for group in groups:
            function = next((name for name in group if names.find(name)), None)
            if function is not None:
                pairs.append((operation, function))
    return pairs


def _pairs(
    facts: HostFacts, names: _Names, patterns: Sequence[str], taken: set[str]
) -> tuple[list[Probe], list[Reason]]:
    """Entry and return of kernel functions, by kprobes."""
    operations = {name: operation for operation, name in _operations(names)}
    missing: list[Reason] = []
    wanted = names.matching(patterns) if patterns else tuple(operations)
    if len(wanted) > MOST:
        figures = {"functions": len(wanted), "probed": MOST}
        fix = "--functions GLOB   # fewer"
        missing.append(Reason(Code.TOO_MANY_FUNCTIONS, {}, figures, fix, "kernel"))
    probes = []
    for name in wanted[:MOST]:
        place = names.find(name) or names.find(name.partition(".")[0], variant=True)
        event = f"{GROUP}:{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
        if place is None or {event, event + RETURN} & taken:
            continue
        function = name.partition(".")[0]
        entry = Probe(
            event=event,
            kind="p",
            place=place,
            layer="kernel",
            function=function,
            operation=operations.get(function, ""),
            role="entry",
        )
        back = Probe(
            event=event + RETURN,
            kind="r",
            place=place,
            layer="kernel",
            function=function,
            operation=entry.operation,
            role="return",
            instances=INSTANCES if facts.maxactive else 0,
        )
        probes += [entry, back]
    return probes, missing
