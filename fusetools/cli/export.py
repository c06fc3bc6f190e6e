"""fusetools export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusetools.cli.options import FilterOptions, filters, opened, request_options, tell, write

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.answers.filters import Filters
    from fusetools.recording import Recording

_BY_NAME = {".csv": "csv", ".json": "json", ".perfetto-trace": "perfetto", ".pftrace": "perfetto"}


def label(value: str) -> tuple[str, str]:
    """NAME=TEXT."""
    match = re.fullmatch(r"([a-z][a-z0-9_]{0,31})=([^\x00-\x1f]{1,200})", value)
    if not match:
        raise click.BadParameter(f"{value!r} is not NAME=TEXT, for example rack=r07")
    return match[1], match[2]


@click.command()
@request_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "csv", "json", "parquet", "cvmfsbundle", "shrinkwrap"]),
    help="Write a trace for ui.perfetto.dev (perfetto), a row for each request (csv, json), all "
    "tables into a folder for fusetools fleet (parquet), or the files that were read, for "
    "CernVM-FS to fetch (cvmfsbundle, shrinkwrap).  [default: by FILE's name]",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="Write to FILE, - prints it; parquet: below the folder FILE.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=label,
    metavar="NAME=TEXT",
    help="Give the recording a property for --by of fusetools fleet, such as rack=r07 (parquet; "
    "repeatable).",
)
@click.option(
    "--anonymise",
    "key",
    metavar="KEYFILE",
    help="Replace paths and users by hashes with the key in KEYFILE (parquet).",
)
def command(
    path: str,
    form: str | None,
    output: str,
    labels: tuple[tuple[str, str], ...],
    key: str | None,
    **options: Unpack[FilterOptions],
) -> None:
    """Write every request, with all known facts, for other programs."""
    from fusetools.output import Output

    if form == "parquet":
        _tables(path, output, dict(labels), key, filters(options))
        return
    if labels or key:
        used = "--label" if labels else "--anonymise"
        raise click.UsageError(f"{used} needs --format parquet")
    if form is None:
        bundle = Path(output).name.startswith(".cvmfsbundle-")
        form = "cvmfsbundle" if bundle else _BY_NAME.get(Path(output).suffix)
        if form is None:
            known = ", ".join(_BY_NAME)
            raise click.UsageError(f"--format is needed: {output} ends in none of {known}")
    Output(output).close()  # refused before anything is read
    if form in ("cvmfsbundle", "shrinkwrap"):
        return _bundle(opened(path), output, form, filters(options))
    result = opened(path).export(output, form, filters=filters(options))
    if output != "-":
        from fusetools.figures import plural
        from fusetools.printable import printable
        from fusetools.render.text.footer import nothing

        size = plural(result.requests, "request")
        tell(f"fusetools: {printable(output)}: {size}")
        if result.facts.removed:
            tell(*(f"  {line}" for line in nothing(result.facts)))
        if result.stateless:
            tell(f"  no states of threads: {printable(result.stateless)}")


def _tables(
    path: str, folder: str, labels: dict[str, str], key: str | None, chosen: Filters
) -> None:
    from fusetools.figures import plural
    from fusetools.printable import printable

    if folder == "-":
        raise click.UsageError("--format parquet writes a folder: -o DIR")
    result = opened(path).tables(folder, labels=labels, key=key, filters=chosen)
    rows = ", ".join(plural(n, name[:-1]) for name, n in result.rows.items() if name != "sessions")
    of = f"{printable(result.host)}, {result.date}"
    tell(f"fusetools: {printable(folder)}: {rows} of {of}")
    tell(*(f"  {printable(missing.text)}" for missing in result.missing))


def _bundle(recording: Recording, output: str, form: str, chosen: Filters) -> None:
    from fusetools.figures import duration, plural
    from fusetools.output import Output
    from fusetools.printable import printable
    from fusetools.render.bundle import render
    from fusetools.render.text.footer import ways_out
    from fusetools.render.text.layout import ERR

    result = recording.bundle(chosen)
    text, unwritable = render(result, form)
    with Output(output) as target:
        write(target, text)
    count = len(result.files) - unwritable
    name = "standard output" if output == "-" else printable(output)
    tell(
        f"fusetools: {name}: {plural(count, 'file')} of {printable(result.mount)}",
        f"  callers waited {duration(result.waited_ns)} for these files: bundles can save no more",
    )
    if result.unnamed:
        files = plural(result.unnamed, "file")
        tell(
            f"  left out: {files} of unknown path: the kernel had the name cached",
            *ways_out("echo 2 > /proc/sys/vm/drop_caches   # then record again", " " * 6, ERR),
        )
    if unwritable:
        names = plural(unwritable, "file")
        tell(f"  left out: {names} whose name {form} cannot hold")
