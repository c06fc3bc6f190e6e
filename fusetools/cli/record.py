"""fusetools record."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fusetools.cli.options import LOST, pid, recording_output, say, seconds, tell, whole
from fusetools.cli.options import size as size_option
from fusetools.errors import Error
from fusetools.names import (
    BACKENDS,
    CALL_GRAPHS,
    DETAILS,
    LEAST_STACK_BYTES,
    MOST_STACK_BYTES,
    STACK_BYTES,
    given,
)

if TYPE_CHECKING:  # slow to import
    from typing_extensions import Unpack

    from fusetools.plan.conditions import Condition
    from fusetools.plan.options import Flight, Kind, Options, RecordOptions, UserOptions
    from fusetools.plan.planner import ProbePlan
    from fusetools.reasons import Reason
    from fusetools.record.state import Removed
    from fusetools.results.flight import Written
    from fusetools.results.record import Outcome

DEFAULT = ParameterSource.DEFAULT
NEXT = {
    "latency": ("fusetools why", "fusetools hist", "fusetools slow"),
    "stages": ("fusetools why", "fusetools hist", "fusetools stages"),
    "stacks": ("fusetools why", "fusetools stages", "fusetools flame --offcpu"),
}
# Largest recording whose first finding `record` prints, and seconds for it: 64 MB take about one.
MOST_EXAMINED = 64 << 20
PATIENCE = 5.0


# Options that need, or contradict, --flight.
OF_FLIGHT = {"conditions": "--when", "keep": "--keep", "buffer": "--buffer"}
# Options that sweep and overhead have in another form, or not at all.
OF_RECORD = (
    *("workload", "caller", "duration", "output", "force", "wait", "as_json", "dry_run"),
    *("flight", *OF_FLIGHT),
)
NOT_OF_FLIGHT = {"caller": "--attach", "duration": "--duration", "max_size": "--max-size"}


def condition(value: str) -> Condition:
    from fusetools.plan.conditions import condition as read

    try:
        return read(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from error


def buffer(value: str) -> int:
    """Convert to a power of two, as perf takes it."""
    return 1 << (size_option(value) - 1).bit_length()


def call_graph(value: str) -> tuple[str, int]:
    """How user stacks are recorded, and how many bytes of one are copied."""
    how, comma, text = value.partition(",")
    if how not in CALL_GRAPHS or (comma and not re.fullmatch(r"\d{3,5}", text)):
        ways = ", ".join(CALL_GRAPHS)
        raise click.BadParameter(f"{value!r} is none of {ways}, or one with bytes (dwarf,32768)")
    size = int(text) & ~7 if comma else STACK_BYTES
    if not LEAST_STACK_BYTES <= size <= MOST_STACK_BYTES:
        least = LEAST_STACK_BYTES
        raise click.BadParameter(f"{text} is not a size from {least} to {MOST_STACK_BYTES}")
    return how, size


def _with_bytes(ctx: click.Context, _: click.Parameter, value: tuple[str, int]) -> str:
    """Make each of the two an option of its own."""
    ctx.params["stack_bytes"] = value[1]
    return value[0]


def _absolute(_: click.Context, __: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    from fusetools.host.files import absolute

    return tuple(map(absolute, paths))


def check(options: UserOptions) -> None:
    """UsageError: the options contradict each other."""
    if options["wakers"] and options["detail"] != "stacks":
        raise click.UsageError("--wakers requires --detail stacks")


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument("workload", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    callback=_absolute,
    metavar="PATH",
    help="Trace the FUSE file system on PATH (repeatable); wait for it where nothing is mounted.  "
    "[default: all mounts]",
)
@click.option(
    "--pid", type=pid, metavar="PID", help="Use this PID of the daemon, if it cannot be detected."
)
@click.option(
    "--attach",
    "caller",
    type=pid,
    metavar="PID",
    help="Record process PID, which runs already, with its threads and children, until it ends; "
    "no workload is run. Other users' processes require --as-root.",
)
@click.option(
    "--fs",
    metavar="NAME|FILE.toml",
    help="Use this probe set: cvmfs, cvmfs+stub, libfuse_highlevel, libfuse (replies of any "
    "libfuse daemon), bazil, fuser, gofuse, jacobsa, libfuse_inside, or your own file.  "
    "[default: by the daemon's libraries]",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default=BACKENDS[0],
    show_default=True,
    help="Record kernel functions by function_graph (trace-cmd), by kprobes (kprobe), or not at "
    "all (tracepoint); auto takes the best one available.",
)
@click.option(
    "--functions",
    multiple=True,
    metavar="GLOB",
    help="Record these kernel functions (repeatable).  [default: fuse_*]",
)
@click.option(
    "--duration",
    type=seconds,
    metavar="SECONDS",
    help="Stop recording after SECONDS.  [default: when the workload ends, or Ctrl-C]",
)
@click.option(
    "--call-graph",
    type=call_graph,
    callback=_with_bytes,
    default="auto",
    show_default=True,
    metavar="[auto|fp|dwarf|kernel][,BYTES]",
    help="Record user stacks by frame pointers (fp), as copies to unwind (dwarf; BYTES of each, "
    "8192 by default), or only kernel stacks (kernel); auto copies the stacks of waits, except "
    "waits for the next request, of daemons without frame pointers.",
)
@click.option(
    "--detail",
    type=click.Choice(DETAILS),
    default=DETAILS[-1],
    show_default=True,
    help="Record requests and callbacks for hist, count, errors and slow (latency); also switches, "
    "wake-ups, system calls and kernel functions (stages); also stacks for flame (stacks). Less "
    "detail costs less.",
)
@click.option("--wakers", is_flag=True, help="Also record wakers' stacks, for flame --offwake.")
@click.option(
    "--as-root",
    is_flag=True,
    help="Run the workload as root, not as the user who invoked sudo.",
)
@recording_output
@click.option(
    "--dry-run",
    is_flag=True,
    help="Record nothing; print the planned events and probes, and what is missing.",
)
@click.option(
    "--max-size",
    type=size_option,
    default="4G",
    show_default=True,
    metavar="SIZE",
    help="Stop recording at SIZE (500M, 2G), or before the disk is full.",
)
@click.option(
    "--flight",
    type=seconds,
    metavar="SECONDS",
    help="Record all the time; write the last SECONDS as FILE.TIME when a --when becomes true, on "
    "SIGUSR1, or on fusetools snap.",
)
@click.option(
    "--when",
    "conditions",
    multiple=True,
    type=condition,
    metavar="CONDITION",
    help="With --flight: 'read > 1s' (an operation or *), 'waiting > 20 for 5s', 'errors(EIO)' "
    "(repeatable).",
)
@click.option(
    "--keep",
    type=whole(1, 10_000),
    metavar="N",
    help="With --flight: keep the newest N recordings.  [default: 10, 4 GiB at most for who "
    "invoked sudo]",
)
@click.option(
    "--buffer",
    type=buffer,
    metavar="SIZE",
    help="With --flight: bytes of each CPU's buffer (64M).  [default: 2M for each second]",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until no other recording is in the way, for function_graph.",
)
@click.option("--force", is_flag=True, help="Record even if FILE is on a traced mount.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON summary to stdout when done.",
)
def command(
    workload: tuple[str, ...],
    caller: int | None,
    duration: float | None,
    max_size: int,
    flight: float | None,
    conditions: tuple[Condition, ...],
    keep: int | None,
    buffer: int | None,
    as_json: bool,
    dry_run: bool,
    **given_options: Unpack[RecordOptions],
) -> None:
    """Record a workload on FUSE mounts into one perf.data.

    The workload (write it after --) runs as the user who invoked sudo. Exit status: the
    workload's; else 1 if the recording is incomplete, 4 if events were lost, 124 if the workload
    hangs and was left behind. Without a workload, record the process of --attach, or the daemons
    alone, until Ctrl-C.
    """
    # slow to import, so only when recording
    from fusetools.plan import options as plan
    from fusetools.record import preflight, waiting

    check(given_options)
    ctx = click.get_current_context()
    given = {name for name in ctx.params if ctx.get_parameter_source(name) != DEFAULT}
    kind: Kind = plan.Daemons()
    if flight is not None:
        _check_flight(flight, workload, given_options["backend"], given)
        kind = plan.Flight(flight, conditions, keep, buffer)
    else:
        _check_no_flight(given)
        if workload and caller is not None:
            raise click.UsageError("--attach takes no workload")
        if caller is not None:
            kind = plan.Caller(caller)
        elif workload:
            kind = plan.Workload(workload)
    options = plan.Options(kind, duration=duration, max_size=max_size, **given_options)
    if dry_run:
        from fusetools.record.planned import summary
        from fusetools.render.json.answer import render as to_json
        from fusetools.render.text.plan import render as plan_to_text

        planned = summary(*preflight.planned(options))
        text = to_json("record", planned) if as_json else plan_to_text(planned)
        say(text)
        return
    if options.flight:
        _fly(options, options.flight, as_json)
        return
    endless = isinstance(options.kind, plan.Daemons) and duration is None
    began = partial(_began, more=" (Ctrl-C ends)") if endless else _began
    outcome = waiting.record(options, sys.argv[1:], began, warn, _waited)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("record", outcome))
    else:
        ended(options.output, options.detail, outcome)
    sys.exit(outcome.exit_status or (1 if outcome.failed else LOST if outcome.lost else 0))


def _waited(connections: Sequence[int]) -> list[Reason]:
    from fusetools.stuck.waited import waited  # only for who may record

    return waited(connections)


def _check_no_flight(given: set[str]) -> None:
    for name, option in OF_FLIGHT.items():
        if name in given:
            why = "it is about the recordings of a flight recorder"
            raise Error(
                f"{option} requires --flight", why, f"fusetools record --flight 30 {option} …"
            )


def _check_flight(flight: float, workload: tuple[str, ...], backend: str, given: set[str]) -> None:
    why = "a flight recorder runs until Ctrl-C, and records whoever uses the mounts"
    fix = f"fusetools record --flight {flight:g}"
    for name, option in NOT_OF_FLIGHT.items():
        if name in given:
            raise Error(f"--flight takes no {option}", why, fix)
    if workload:
        raise Error("--flight takes no workload", why, fix)
    if backend == "graph":
        why = "function_graph has no buffers that perf could write"
        raise Error("--flight cannot record by function_graph", why, f"{fix} --backend kprobe")


def _fly(options: Options, kept: Flight, as_json: bool) -> None:
    from fusetools.figures import binary, size, took
    from fusetools.live.flight import fly
    from fusetools.render.json.answer import render as to_json
    from fusetools.results.record import Outcome

    known: set[Reason] = set()

    def armed(plan: ProbePlan, removed: Removed, buffer: int, holds: float) -> None:
        _began(plan, removed)
        _notes(Outcome(missing=plan.missing))
        known.update(plan.missing)
        when = [c.text for c in kept.conditions]
        short = f"; at the present rate they hold {took(holds)}" if math.isfinite(holds) else ""
        _say(
            f"fusetools: flight recorder: the last {kept.seconds:g} s, in buffers of "
            f"{binary(buffer)} on each CPU ({size(buffer / kept.seconds)}/s"
            f"{short * (holds < kept.seconds)}); written "
            f"{''.join(f'when {text}, ' for text in when)}at SIGUSR1 (pid {os.getpid()}) or: "
            "fusetools snap"
        )

    def written(new: Written) -> None:
        _say(
            f"fusetools: {new.output}, {size(new.size_bytes)}: {new.requests:,} requests, "
            f"{new.events:,} events in {took(new.seconds)}: {new.why}"
        )
        _notes(new, known)
        if as_json:
            say(to_json("snap", new, compact=True))

    fly(options, sys.argv[1:], lambda stuck: to_json("stuck", stuck), armed, written, warn)


def warn(text: str) -> None:
    _say(f"fusetools: {text}")


def _say(text: str) -> None:
    from fusetools.printable import printable

    tell(printable(text))


def _began(plan: ProbePlan, removed: Removed, more: str = "") -> None:
    from fusetools.host.service import ready

    ready()
    if removed.what:
        _say(f"fusetools: removed what a killed recording left: {', '.join(removed.what)}")
    mounts = ", ".join(
        f"{target.mount.path} ({target.mount.comm}, pid {target.mount.daemon_pid})"
        if target.mount.daemon_pid is not None
        else f"{target.mount.path} (daemon unknown)"
        for target in plan.targets
    )
    _say(f"fusetools: tracing {mounts}: {', '.join(plan.layers)}{more}")


def ended(output: str, detail: str, outcome: Outcome) -> None:
    """Print what became of a recording."""
    from fusetools.figures import size, took
    from fusetools.printable import printable
    from fusetools.render.text.footer import following, taken
    from fusetools.render.text.layout import ERR

    lost = f"{outcome.lost:,} lost" if outcome.lost else "none lost"
    _say(
        f"fusetools: {output}, {size(outcome.size_bytes)}: {outcome.requests:,} requests, "
        f"{outcome.events:,} events in {took(outcome.seconds)}, {lost}"
    )
    for line in taken(outcome.took):
        _say(f"  {line}")
    _notes(outcome)
    for line in _finding(outcome):
        _say(line)
    if not outcome.events:
        return
    which = shlex.join(given(output))
    tell(*following((printable(f"{name} {which}".rstrip()) for name in NEXT[detail]), ERR))


def _finding(outcome: Outcome) -> list[str]:
    """Return the most important finding of `fusetools why`. A child process reads the recording,
    with the rights of who called sudo: the file is in that user's hands by now."""
    output = outcome.output
    if output is None or outcome.failed or not 0 < outcome.size_bytes <= MOST_EXAMINED:
        return []
    from fusetools.host.asuser import as_user
    from fusetools.record.workload import caller

    def ask() -> str:
        from fusetools.recording import Recording
        from fusetools.render.text.why import first

        return "\n".join(first(Recording(output).why()))

    text = as_user(caller(os.environ), ask, PATIENCE)
    return text.splitlines() if text else []


def _notes(outcome: Outcome, known: Collection[Reason] = ()) -> None:
    """Print what is wrong with the recording; ``known``: what has been printed already."""
    from fusetools.render.text.footer import throttled, ways_out
    from fusetools.render.text.layout import ERR

    for warning in dict.fromkeys(outcome.warnings):
        _say(f"  warning: {warning}")
    for line in throttled(outcome.throttled):
        _say(f"  {line}")
    for missing in outcome.missing:
        if missing in known:
            continue
        _say(f"  missing: {missing.text}")
        tell(*ways_out(missing.fix, " " * 6, ERR))
