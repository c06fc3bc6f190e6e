"""fusetools hist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusetools.cli.options import (
    FilterOptions,
    by_option,
    corrected_option,
    either,
    filters,
    listed,
    opened,
    recording_options,
    say,
    say_groups,
    tell,
    unit_option,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.answers.filters import Filters


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|FUNCTION|GLOB]...")
@recording_options
@by_option()
@unit_option
@click.option("--over-time", is_flag=True, help="Print a map of latency over time.")
@click.option(
    "--style",
    type=click.Choice(["cvmfs"]),
    help="Print daemon latencies in the CernVM-FS client's format.",
)
@click.option(
    "--overhead", is_flag=True, help="Show the overhead of probes as a share of daemon durations."
)
@corrected_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    patterns: tuple[str, ...],
    path: str,
    layers: tuple[str, ...],
    by: str | None,
    unit: str | None,
    over_time: bool,
    style: str | None,
    overhead: bool,
    corrected: bool,
    as_json: bool,
    **options: Unpack[FilterOptions],
) -> None:
    """Print latency histograms, per operation and layer.

    Without an operation, prints a summary of all, most calls first. With operations (lookup,
    cvmfs_lookup, 'read*'), prints the summary and a log2 histogram of each, in every layer.

    With --over-time, prints a map of latency over time.

    With --by, prints the latency of requests by file, process, and so on.
    """
    either(corrected, overhead)
    if style and layers and layers != ("daemon",):
        raise click.UsageError("--style cvmfs shows the daemon layer only")
    if style and (overhead or as_json):
        raise click.UsageError(f"--style cvmfs excludes {'--json' if as_json else '--overhead'}")
    if style:
        layers = ("daemon",)
    chosen = filters(options)
    if over_time:
        _over_time(path, patterns, chosen, as_json, layers or by or style or overhead or corrected)
        return
    if by:
        if style or overhead or layers:
            used = "--style" if style else "--overhead" if overhead else "--layer"
            raise click.UsageError(f"--by groups requests: it excludes {used}")
        most = listed(as_json)
        groups = opened(path).groups(by, *patterns, most=most, filters=chosen, corrected=corrected)
        say_groups("hist", groups, as_json, unit)
        return
    result = opened(path).hist(*patterns, layers=layers, filters=chosen, corrected=corrected)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("hist", result))
    elif style:
        from fusetools.render.text import cvmfs
        from fusetools.render.text.footer import footer

        say(cvmfs.render(result.histograms))
        # Separate from the client's format, for programs that read it.
        tell(*footer(result.facts, result.unmatched))
    else:
        from fusetools.render.text.hist import render

        say(render(result, unit or "", bool(patterns), layers, overhead))


def _over_time(
    path: str, patterns: tuple[str, ...], chosen: Filters, as_json: bool, others: object
) -> None:
    if others:
        raise click.UsageError(
            "--over-time shows requests: it excludes --layer, --by, --style, --overhead, "
            "--corrected"
        )
    recording = opened(path)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("hist", recording.heat(*patterns, filters=chosen)))
    else:
        from fusetools.render.text.heat import columns, render

        say(render(recording.heat(*patterns, columns=columns(), filters=chosen)))
