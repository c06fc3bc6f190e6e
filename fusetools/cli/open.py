"""fusetools open."""

from __future__ import annotations

import sys

import click

from fusetools.cli.options import LOST, recording_output, say


@click.command()
@click.argument("tar", metavar="FILE.tar")
@recording_output
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(tar: str, output: str, as_json: bool) -> None:
    """Make a recording of the tar file that such a script left.

    The script (fusetools script) ran on any host. Exit status: 1 if the recording is incomplete, 4
    if events were lost.
    """
    from fusetools.cli.record import ended
    from fusetools.record.opened import open_tar
    from fusetools.render.json.answer import render as to_json

    outcome, detail = open_tar(tar, output)
    if as_json:
        say(to_json("open", outcome))
    else:
        ended(output, detail, outcome)
    sys.exit(1 if outcome.failed else LOST if outcome.lost else 0)
