"""fusetools merge."""

from __future__ import annotations

import click

from fusetools.cli.options import say, tell
from fusetools.errors import Error

OLDEST = (4, 1)  # as the core has it


def _version(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    """Return the first two numbers of what `perf --version` prints."""
    if text is None:
        return None
    import re

    found = re.match(r"(?:perf version )?(\d{1,3})\.(\d{1,3})", text)
    if not found:
        raise click.BadParameter(f"{text!r} is no version, such as 6.1 or 4.18.0-553.el8_10")
    version = int(found[1]), int(found[2])
    if version < OLDEST:
        raise Error(
            f"cannot write for perf {found[1]}.{found[2]}",
            "no perf before 4.1 can read such a file; el7's perf 3.10 has the reader of perf 4.8",
            "fusetools merge --for-perf 4.8 …      (for perf 3.10 of el7)",
        )
    return version


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="PERF.DATA [TRACE.DAT]...")
@click.option(
    "-o",
    "--output",
    default="merged.data",
    metavar="FILE",
    help="Write to FILE, which may be one of the inputs; - prints it.  [default: merged.data]",
)
@click.option(
    "--for-perf",
    "for_perf",
    metavar="VERSION",
    callback=_version,
    help="Write what perf of this version (as perf --version prints) reads.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    inputs: tuple[str, ...], output: str, for_perf: tuple[int, int] | None, as_json: bool
) -> None:
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
    merged = manual_merge.merge(inputs, output, progress if shown else None, for_perf)
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    printed = output == "-"
    echo = partial(click.echo, nl=False, err=True) if printed else say
    if as_json:
        from fusetools.render.json.answer import render as to_json

        echo(to_json("merge", merged))
        return
    for warning in merged.warnings:
        tell(f"warning: {printable(warning)}")
    name = "the standard output" if printed else printable(output)
    echo(f"{name}: {plural(merged.records, 'record')}\n")
