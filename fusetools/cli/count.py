"""fusetools count."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    by_option,
    filters,
    listed,
    opened,
    recording_options,
    say,
    say_groups,
    write,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.results.count import Counts


@click.command(options_metavar="[OPTIONS]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[REGEX | -- WORKLOAD]")
@recording_options
@click.option(
    "--live", is_flag=True, help="Count in the kernel while the workload runs; record nothing."
)
@click.option(
    "--csv", metavar="FILE", help="Write CSV to FILE, also for fusetools diff; - prints it."
)
@by_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...],
    path: str,
    layers: tuple[str, ...],
    live: bool,
    csv: str | None,
    by: str | None,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print how often each function, request and callback was called.

    REGEX selects by function or operation name: lookup, '^fuse_', 'open|read'.

    With --by, counts requests; REGEX selects by operation.

    With --live, runs WORKLOAD (write it after --) and counts meanwhile, as root, on the mounts of
    --mount or on all.
    """
    from fusetools.core import matching
    from fusetools.output import Output

    chosen = filters(options)
    status = 0
    target = Output(csv) if csv else None
    if by and (live or csv or layers):
        used = "--live" if live else "--csv" if csv else "--layer"
        raise click.UsageError(f"--by counts requests of a recording: it excludes {used}")
    if live:
        result, status = _live(words, layers, options)
    else:
        if len(words) > 1:
            raise click.UsageError("give one REGEX; to count a workload: --live -- WORKLOAD")
        regex = words[0] if words else ""
        try:
            matching(regex, ())
        except ValueError as error:
            reason = str(error).rpartition("error: ")[2]  # its last line
            raise click.BadParameter(f"{regex!r}: {reason}", param_hint="REGEX") from error
        if by:
            from fusetools.answers.operations import matched

            recording = opened(path)
            selected = matched(regex, recording.path) if regex else ()
            groups = recording.groups(
                by, *selected, order="requests", most=listed(as_json), filters=chosen
            )
            say_groups("count", groups, as_json)
            return
        result = opened(path).counts(regex, layers=layers, filters=chosen)
    if target:
        from fusetools.render.csv.count import render as to_csv

        with target:
            write(target, to_csv(result))
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("count", result))
    elif not csv:
        from fusetools.render.text.count import render, render_live

        say(render_live(result) if live else render(result))
    if status:
        sys.exit(status)


def _live(
    workload: tuple[str, ...], layers: tuple[str, ...], options: FilterOptions
) -> tuple[Counts, int]:
    """Return the counts, and the workload's exit status."""
    from fusetools.host.files import absolute
    from fusetools.plan import options as plan
    from fusetools.record import live
    from fusetools.results.count import Count, Counts
    from fusetools.results.facts import Facts, Losses

    if not workload:
        raise click.UsageError("--live needs a workload: fusetools count --live -- WORKLOAD")
    if options["pids"] or options["comms"] or options["start"] or options["end"]:
        raise click.UsageError("--live counts all processes: no --pid, --comm, --from, --to")
    mounts = tuple(map(absolute, options["mounts"]))
    counted = live.count(plan.Options(plan.Count(workload), mounts), sys.argv[1:])
    counts = [
        Count(row.function, row.operation, row.layer, number, row.address)
        for row, number in counted.counts
        if (not layers or row.layer in layers)
        and (number or row.layer != "request")  # every kind would be listed
    ]
    counts.sort(key=lambda c: (-c.count, c.layer, c.function))
    facts = Facts(
        name="",
        seconds=counted.seconds,
        losses=Losses(warnings=counted.warnings),
        missing=counted.missing,
        probe_cost_ns=counted.cost,
    )
    return Counts(tuple(counts), facts), counted.exit_status
