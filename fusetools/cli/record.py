"""fusetools record."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

from fusetools.cli.options import LOST, pid, seconds
from fusetools.cli.options import size as size_option
from fusetools.plan.request import CALL_GRAPHS, DETAILS, Attach, Caller, Request, Workload
from fusetools.session import MOST_STACK_BYTES, STACK_BYTES

NEXT = {
    "latency": ("fusetools hist", "fusetools count", "fusetools slow"),
    "stages": ("fusetools hist", "fusetools stages", "fusetools slow"),
    "stacks": ("fusetools hist", "fusetools stages", "fusetools flame --offcpu"),
}


def call_graph(value: str) -> tuple[str, int]:
    """How user stacks are recorded, and how many bytes of one are copied."""
    how, comma, text = value.partition(",")
    if how not in CALL_GRAPHS or (comma and not re.fullmatch(r"\d{3,5}", text)):
        ways = ", ".join(CALL_GRAPHS)
        raise click.BadParameter(f"{value!r} is none of {ways}, or one with bytes (dwarf,32768)")
    size = int(text) & ~7 if comma else STACK_BYTES
    if not 512 <= size <= MOST_STACK_BYTES:
        raise click.BadParameter(f"{text} is no size from 512 to {MOST_STACK_BYTES}")
    return how, size


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument("workload", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="PATH",
    help="Trace the FUSE file system on PATH (repeatable); wait for it where nothing is mounted.  "
    "[default: all mounts]",
)
@click.option("--pid", type=pid, metavar="PID", help="PID of the daemon, if it cannot be detected.")
@click.option(
    "--attach",
    "caller",
    type=pid,
    metavar="PID",
    help="Record process PID, which runs already, with its threads and children, until it ends; "
    "no workload is run.",
)
@click.option(
    "--fs",
    metavar="NAME|FILE.toml",
    help="Use this probe set: cvmfs, cvmfs+stub, libfuse_highlevel, libfuse (replies of any "
    "libfuse daemon), fuser, gofuse, or your own file.  [default: by the daemon's libraries]",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "graph", "kprobe", "tracepoint"]),
    default="auto",
    show_default=True,
    help="Record kernel functions by function_graph (trace-cmd), by kprobes, or not at all; auto "
    "takes the best one available.",
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
    help="Run the workload as root, not as the user who invoked sudo; attach to anybody's.",
)
@click.option(
    "-o",
    "--output",
    default="perf.data",
    show_default=True,
    metavar="FILE",
    help="Write the recording to FILE; an existing one becomes FILE.old.",
)
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
@click.option("--wait", is_flag=True, help="Wait until another recording on this host has ended.")
@click.option("--force", is_flag=True, help="Record even if FILE is on a traced mount.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON summary to stdout when done.",
)
def command(
    workload: tuple[str, ...],
    mounts: tuple[str, ...],
    as_json: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Record a workload on FUSE mounts into one perf.data.

    The workload (write it after --) runs as the user who invoked sudo. Exit status: the
    workload's; else 1 if the recording is incomplete, 4 if events were lost, 124 if the workload
    hangs and was left behind. Without a workload, record the process of --attach, or the daemons
    alone, until Ctrl-C.
    """
    # what is slow to import is for those who record
    from fusetools.record import preflight, waiting

    if options["wakers"] and options["detail"] != "stacks":
        raise click.UsageError("--wakers requires --detail stacks")
    options["call_graph"], options["stack_bytes"] = options["call_graph"]
    options["mounts"] = tuple(os.path.abspath(path) for path in mounts)
    request = _request(workload, options)
    if dry_run:
        from fusetools.record.planned import summary
        from fusetools.render.json.answer import render as to_json
        from fusetools.render.text.plan import render as plan_to_text

        facts, planned = preflight.planned(request)
        if as_json:
            click.echo(to_json("record", summary(facts, planned)), nl=False)
        else:
            click.echo(plan_to_text(facts, planned), nl=False)
        return
    outcome = waiting.record(request, sys.argv[1:], _began, warn)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        click.echo(to_json("record", outcome), nl=False)
    else:
        _ended(request, outcome)
    sys.exit(outcome.exit_status or (1 if outcome.failed else LOST if outcome.lost else 0))


def _request(workload: tuple[str, ...], options: dict[str, Any]) -> Request:
    caller = options.pop("caller")
    if workload and caller is not None:
        raise click.UsageError("--attach takes no workload")
    if caller is not None:
        return Caller(caller=caller, **options)
    return Workload(command=workload, **options) if workload else Attach(**options)


def warn(text: str) -> None:
    _say(f"fusetools: {text}")


def _say(text: str) -> None:
    from fusetools.printable import printable

    click.echo(printable(text), err=True)


def _began(plan: Any, removed: Any) -> None:
    if removed.what:
        _say(f"fusetools: removed what a killed recording left: {', '.join(removed.what)}")
    mounts = ", ".join(
        f"{target.mount.path} ({target.mount.comm}, pid {target.mount.daemon_pid})"
        if target.mount.daemon_pid is not None
        else f"{target.mount.path} (daemon unknown)"
        for target in plan.targets
    )
    _say(f"fusetools: tracing {mounts}: {', '.join(plan.layers)}")


def _ended(request: Request, outcome: Any) -> None:
    from fusetools.figures import duration, size, took

    lost = f"{outcome.lost:,} lost" if outcome.lost else "none lost"
    _say(
        f"fusetools: {request.output}, {size(outcome.size)}: {outcome.requests:,} requests, "
        f"{outcome.events:,} events in {took(outcome.seconds)}, {lost}"
    )
    for warning in outcome.warnings:
        _say(f"  warning: {warning}")
    for row in outcome.throttled:
        _say(
            f"  the {row.whose} was throttled {row.times:,} times, "
            f"{duration(row.ns)} in all, by the CPU quota of {row.cgroup}"
        )
    for missing in outcome.unavailable:
        _say(f"  missing: {missing.what}: {missing.why}")
        if missing.mend:
            _say(f"      fix: {missing.mend}")
    option = "" if request.output == "perf.data" else f" -i {request.output}"
    _say("next: " + " · ".join(name + option for name in NEXT[request.detail]))
