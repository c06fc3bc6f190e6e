"""fusetools merge."""

from __future__ import annotations

import click

from fusetools.cli.options import say


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="PERF.DATA [TRACE.DAT]...")
@click.option(
    "-o",
    "--output",
    default="merged.data",
    metavar="FILE",
    help="Write to FILE, which may be one of the inputs; - prints it.  [default: merged.data]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(inputs: tuple[str, ...], output: str, as_json: bool) -> None:
    """Merge simultaneous perf and trace-cmd recordings.

    All must have one host and clock (perf record -k CLOCK_MONOTONIC, trace-cmd record -C mono).
    fusetools record does this itself.
    """
    import sys
    from functools import partial

    from fusetools.figures import plural
    from fusetools.printable import printable
    from fusetools.record import manual_merge

    def progress(share: float) -> None:
        click.echo(f"\rmerging: {100 * share:.0f} %", nl=False, err=True)

    shown = sys.stderr.isatty()
    merged = manual_merge.merge(inputs, output, progress if shown else None)
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    printed = output == "-"
    echo = partial(click.echo, nl=False, err=True) if printed else say
    if as_json:
        from fusetools.render.json.answer import render as to_json

        echo(to_json("merge", merged))
        return
    for warning in merged.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    name = "the standard output" if printed else printable(output)
    echo(f"{name}: {plural(merged.records, 'record')}\n")
