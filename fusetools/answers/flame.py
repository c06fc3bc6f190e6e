"""Stacks of a recording for flame graphs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.frames import kind_of
from fusetools.answers.graph import graph as call_graph
from fusetools.answers.operations import expressions
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.host.debuginfod import SECONDS, debug_files
from fusetools.host.files import answers
from fusetools.names import MOST_STACK_BYTES
from fusetools.reasons import Code, Reason
from fusetools.results.flame import Amount, LeftOut, Named, Stacks
from fusetools.results.graph import GraphNode

# Command that records complete stacks of programs that have unwind tables.
COPY = "fusetools record --call-graph {} -- WORKLOAD"


# The event of perf record --off-cpu: a sample is a wait, and its period the wait's ns.
OFF_CPU = "offcpu-time"


def _by_perf(described: core.native.Description) -> bool:
    """Return whether perf's own event alone shows waits."""
    return described["off_cpu"] and "sched:sched_switch" not in described["events"]


# Kernel functions in which a daemon waits for a request and reads it.
IDLE = ("fuse_dev_read", "fuse_dev_splice_read", "fuse_dev_do_read")


def flame(
    source: Source,
    graph: str,
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    states: Sequence[str] = (),
    everything: bool = False,
    kallsyms: str | None = None,
    symfs: str | None = None,
) -> Stacks:
    """Return stacks. ``graph``: one of GRAPHS; the other arguments as in Recording.stacks()."""
    if graph == "graph":
        return _call_graph_stacks(source, patterns, filters, everything)
    session = source.session
    probes, ask = prepare(
        source, graph, patterns, layers, filters, states, everything, kallsyms, symfs
    )
    by_perf = ask["graph"] != graph
    answer = source.query(core.native.flame, probes, ask)
    unasked = 0
    with debug_files(answer["nameless_ids"]) as found:
        if found:
            unasked = found.unasked
            if found.files:
                ask["debug"] = str(found.folder)
                answer = source.query(core.native.flame, probes, ask)
    selection = [*patterns, *layers, *states, *filters.comms, *filters.mounts]
    selection += [f"pid {pid}" for pid in filters.pids] + ["all"] * everything
    daemons = [mount.comm for mount in session.mounts if mount.comm]
    callbacks = {p.function for p in source.probes if p.layer == "daemon"}
    kinds = {}
    for name, path, in_kernel in answer["frames"]:
        kind = kind_of(name, path, in_kernel, daemons, callbacks)
        if kind:
            kinds[name] = kind
    notes = [*_notes(source, graph, answer, symfs)]
    if unasked:
        figures = {"files": unasked, "limit_ns": round(1e9 * SECONDS)}
        notes.append(Reason(Code.DEBUGINFOD_SLOW, {}, figures))
    stacks, names = answer["stacks"], [*answer["stacks"]]
    divisor = 1 if graph == "on-cpu" else 1000  # us, as the well-known scripts print
    if graph == "on-cpu":
        units = dict(source.described["samples"])
        unit = "ns" if units[probes[0].event] else "samples"
    else:
        stacks, unit = {stack: ns / divisor for stack, ns in stacks.items()}, "us"
        if len(session.stacks) == 3:
            notes += sampled(*session.stacks[:2])
        if by_perf:
            notes.append(Reason(Code.WAITS_BY_PERF, fix="fusetools record -- WORKLOAD"))

    def amount(key: Literal["shown", "idle", "own", "others", "outside"]) -> Amount:
        return Amount(answer[key]["count"], None if unit == "samples" else answer[key]["ns"])

    return Stacks(
        graph=graph,
        selection=", ".join(selection),
        stacks=stacks,
        unit=unit,
        kinds=kinds,
        count=answer["shown"]["count"],
        total_ns=amount("shown").total_ns,
        stackless=answer["stackless"],
        cut_ns=None if unit == "samples" else _cut(graph, answer),
        left_out=LeftOut(amount("idle"), amount("own"), amount("others")),
        unfinished=answer["unfinished"],
        states_ns=answer["states"],
        daemons_ns=answer["daemons"],
        shared_ns=answer["shared"],
        order=tuple((names[place], weight / divisor) for place, weight in answer["order"]),
        kernel=_named(answer["kernel"], kallsyms),
        user=_named(answer["user"], symfs),
        notes=tuple(notes),
        facts=source.facts(answer, filters),
        outside=amount("outside"),
    )


def prepare(
    source: Source,
    graph: str,
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    states: Sequence[str],
    everything: bool,
    kallsyms: str | None,
    symfs: str | None,
) -> tuple[Sequence[core.native.Probe], core.native.Ask]:
    """Return the rows of the catalogue and the question for the core; arguments as in flame()."""
    session = source.session
    _check_symbols(kallsyms, symfs)
    if source.detail != "stacks":
        why, again = f"recorded with --detail {source.detail}", source.with_detail("stacks")
        raise Error(f"{source.path.name} holds no stacks", why, again)
    by_request = bool(patterns or filters.mounts or filters.pids or filters.comms)
    probes = question(source.path.name, graph, source.catalogue, source.described, by_request)
    sides = {layer == "daemon" for layer in layers}
    by_perf = graph == "off-cpu" and _by_perf(source.described)
    if by_perf and states:
        name, why = source.path.name, "perf record --off-cpu records no state"
        raise Error(f"{name} holds no states of waits", why, "fusetools record -- WORKLOAD")
    ask: core.native.Ask = {
        "graph": "on-cpu" if by_perf else graph,
        "all": everything,
        "states": states,
        "who": None if len(sides) != 1 else "daemon" if True in sides else "workload",
        "workload": [pid for pid in (session.workload_pid, *session.descendants) if pid],
        "filters": source.core_filters(filters),
        "operations": expressions(patterns, source.path),
    }
    if kallsyms is not None:
        ask["kallsyms"] = kallsyms
    if symfs is not None:
        ask["symfs"] = symfs
    return probes, ask


def _call_graph_stacks(
    source: Source, patterns: Sequence[str], filters: Filters, everything: bool
) -> Stacks:
    graphs = [call_graph(source, pattern, filters) for pattern in patterns or ("",)]
    graph = graphs[0]
    roots = [root for g in graphs for root in g.roots]
    # A daemon's read of a request is mostly a wait for one.
    idle = [r for r in roots if r.function in IDLE and not (patterns or everything)]
    roots = [root for root in roots if root not in idle]
    stacks: dict[str, float] = {}
    for path, weight in folded_graph(roots):
        stacks[path] = stacks.get(path, 0) + weight
    names = {frame for path in stacks for frame in path.split(";")}
    return Stacks(
        graph="graph",
        selection=", ".join([*patterns, *filters.comms] + ["all"] * everything),
        stacks=stacks,
        unit="us",
        kinds={name: kind_of(name, "", True) or "" for name in names},
        count=sum(root.calls for root in roots),
        total_ns=sum(root.total_ns for root in roots),
        stackless=0,
        cut_ns=None,
        left_out=LeftOut(Amount(sum(r.calls for r in idle), sum(r.total_ns for r in idle))),
        unfinished=graph.unmatched,
        states_ns={},
        daemons_ns=0,
        shared_ns=0,
        kernel=Named("recording", len(names), 0),
        user=Named("", 0, 0),
        notes=(),
        facts=graph.facts,
    )


def question(
    name: str,
    graph: str,
    catalogue: core.native.Catalogue,
    described: core.native.Description,
    by_request: bool,
) -> Sequence[core.native.Probe]:
    """Return the rows of the catalogue that the core needs. Raise Error if the recording lacks
    events."""
    record = "fusetools record -- WORKLOAD"
    stacks = set(described["stacks"])
    events = set(described["events"])
    requests = catalogue.requests()

    def only(event: str) -> Sequence[core.native.Probe]:
        stack = core.native.Catalogue([]).with_events("stack", [event])
        return (stack.plus(requests) if by_request else stack).rows

    if graph == "on-cpu":
        sampled = [event for event, _ in described["samples"]]
        if not sampled:
            raise Error(f"{name} holds no samples of what ran", "none were recorded", record)
        # Use one event only, as stackcollapse-perf.pl does: periods of different events do not add
        # up.
        return only(sampled[0])
    switch, waking = "sched:sched_switch", "sched:sched_waking"
    if graph == "off-cpu" and _by_perf(described):
        return only(OFF_CPU)
    if graph != "requests" and switch not in events:
        raise Error(f"{name} holds no switches of tasks", "no off-CPU events were recorded", record)
    if graph != "requests" and switch not in stacks:
        raise Error(f"{name} holds no stacks", "its switches were recorded without any", record)
    begins = [p.event for p in catalogue.rows if p.role == "begin"]
    if graph == "requests" and not begins:
        raise Error(f"{name} holds no requests", "where they begin was not recorded", record)
    with_stack = [switch, *begins, *([waking] if graph == "off-wake" else [])]
    # A sample of a thread ends its wait.
    requests = requests.with_events("sample", [event for event, _ in described["samples"]])
    # The "stack" rows come after the other rows of the same events.
    return requests.with_events("stack", [event for event in with_stack if event in stacks]).rows


def _check_symbols(kallsyms: str | None, symfs: str | None) -> None:
    """Check that the given sources of symbols exist. Error: one is missing."""
    for path in (kallsyms, symfs):
        if path is not None and not answers(path):
            raise Error(f"cannot read {path}", "its file system does not answer")
    if kallsyms is not None and not Path(kallsyms).is_file():
        raise Error(f"cannot read {kallsyms}", "there is no such file")
    if symfs is not None and not Path(symfs).is_dir():
        raise Error(f"cannot read {symfs}", "there is no such directory")


def _cut(graph: str, answer: core.native.Flame) -> int | None:
    """Return the weight of cut stacks. None: unknown, as there are no symbols of user code.

    With frame pointers, only the outermost function's name shows whether a stack is complete."""
    return answer["cut"] if graph != "requests" and answer["user"]["known"] else None


def _named(symbols: core.native.Named, given: str | None) -> Named:
    source = given or "recording" if symbols["known"] else ""
    return Named(source, symbols["addresses"], symbols["nameless"])


def _nameless(symbols: core.native.Named) -> dict[str, int | float]:
    """Return the figures of addresses of which none could have a name; {} if there are none."""
    if not symbols["nameless"] or symbols["known"]:
        return {}
    return {"nameless": symbols["nameless"], "addresses": symbols["addresses"]}


def _notes(
    source: Source, graph: str, answer: core.native.Flame, symfs: str | None
) -> Iterator[Reason]:
    path, host = shlex.quote(str(source.path)), source.described["hostname"] or ""
    if host in ("(none)", "localhost"):  # it has none of its own
        host = ""
    merge, elsewhere = f"fusetools merge {path} -o {path}", {"host": host}
    if figures := _nameless(answer["kernel"]):
        yield Reason(Code.KERNEL_UNNAMED, elsewhere, figures, merge)
    if answer["copied"]:
        yield Reason(Code.COPIES_NOT_UNWOUND, elsewhere, fix=merge)
    if figures := _nameless(answer["user"]):
        yield Reason(Code.USER_UNNAMED, elsewhere, figures, merge)
    elif files := answer["without_symbols"]:
        below = {} if symfs is None else {"folder": symfs}
        yield Reason(Code.FILES_NOT_FOUND, {"files": tuple(files), **below})
    if answer["user"]["known"] and (files := answer["stripped"]):
        yield Reason(Code.FILES_STRIPPED, {"files": tuple(files)})
    if processes := answer["generated"]:
        yield Reason(Code.GENERATED_UNNAMED, {"processes": tuple(processes)})
    total, cut = answer["shown"]["ns"], _cut(graph, answer) or 0
    if cut * 1000 >= total > 0:
        yield from _cut_notes(source, answer, cut)
    if graph == "off-wake" and answer["wakers"] and answer["wakers_stackless"] == answer["wakers"]:
        yield Reason(Code.WAKERS_STACKLESS, fix="fusetools record --wakers -- WORKLOAD")
    if answer["full"]:
        yield Reason(Code.TOO_MANY_STACKS)


def _cut_notes(source: Source, answer: core.native.Flame, cut: int) -> Iterator[Reason]:
    """Yield how much time has incomplete stacks, and why."""
    session, total = source.session, answer["shown"]["ns"]
    shares = {"time_share": cut / total}
    if 0 < answer["daemons"] < total:
        shares["daemon_share"] = answer["cut_daemons"] / answer["daemons"]
    deep, unknown = answer["cut_copied"], answer["cut_unknown"]
    # Copies of all stacks complete the others, where the unwinder supports the processor.
    copy = source.described["arch"] in ("x86_64", "aarch64") and session.call_graph != "dwarf"
    copy = copy and not answer["copied"] and (cut - deep - unknown) * 1000 >= total
    yield Reason(Code.STACKS_CUT, {}, shares, COPY.format("dwarf") if copy else "")
    if unknown * 1000 >= total:
        yield Reason(Code.STACKS_WITHOUT_TABLES, {}, {"time_share": unknown / total})
    if deep * 1000 >= total:
        size = session.stack_bytes
        larger = min(4 * size, MOST_STACK_BYTES)
        fix = COPY.format(f"{session.call_graph or 'dwarf'},{larger}") if larger > size else ""
        figures = {"time_share": deep / total, "copied_bytes": size}
        yield Reason(Code.STACKS_TOO_DEEP, {}, figures, fix)


def sampled(taken: int, alike: int) -> Iterator[Reason]:
    """Yield a note if stacks were sampled.

    ``taken``: switches with a stack of their own; ``alike``: with the stack of a similar switch."""
    if alike and taken:
        figures = {"alike": alike, "waits": taken + alike, "error_share": 0.98 / taken**0.5}
        yield Reason(Code.STACKS_SAMPLED, {}, figures)


def folded_graph(nodes: Iterable[GraphNode]) -> Iterator[tuple[str, float]]:
    """Yield the stacks of call trees, each with its self time (wall time) in us."""

    def walk(node: GraphNode, above: str) -> Iterator[tuple[str, float]]:
        path = f"{above};{node.function}" if above else node.function
        if node.self_time_ns > 0:
            yield path, node.self_time_ns / 1000
        for child in node.children:
            yield from walk(child, path)

    for node in nodes:
        yield from walk(node, "")
