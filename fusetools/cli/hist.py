"""fusetools hist."""

from __future__ import annotations

from typing import Any

import click

from fusetools.cli.options import filters, opened, recording_options, say


@click.command()
@click.argument("patterns", nargs=-1, metavar="[OPERATION|FUNCTION|GLOB]...")
@recording_options
@click.option(
    "--unit", type=click.Choice(["ns", "us", "ms"]), help="All times in this unit, not one to fit."
)
@click.option(
    "--style",
    type=click.Choice(["cvmfs"]),
    help="The CernVM-FS client's own form, of the daemon's calls.",
)
@click.option(
    "--overhead", is_flag=True, help="What part of the daemon's durations is the probes' own."
)
@click.option("--json", "as_json", is_flag=True, help="JSON, times in ns.")
def command(
    patterns: tuple[str, ...],
    path: str,
    layers: tuple[str, ...],
    unit: str | None,
    style: str | None,
    overhead: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print latency histograms, per operation and layer.

    Without an operation: a summary of all, most calls first. With some (lookup, cvmfs_lookup,
    'read*'): the summary and a log2 histogram of each, in every layer that was recorded.
    """
    if style and layers and layers != ("daemon",):
        raise click.UsageError("--style cvmfs is of the daemon layer")
    if style and overhead:
        raise click.UsageError("--style cvmfs has the client's own form: no --overhead")
    if style:
        layers = ("daemon",)
    chosen = filters(options)
    result = opened(path).hist(*patterns, layers=layers, filters=chosen)
    if as_json:
        from fusetools.render.json.hist import render as to_json

        say(to_json(result, overhead))
    elif style:
        from fusetools.render.text import cvmfs
        from fusetools.render.text.footer import footer
        from fusetools.render.text.layout import lines

        say(cvmfs.render(result.histograms))
        # Apart from the client's form, for whatever reads that.
        click.echo(lines(footer(result.facts, result.unmatched)), nl=False, err=True)
    else:
        from fusetools.render.text.hist import render

        say(render(result, unit or "", bool(patterns), layers, overhead))
