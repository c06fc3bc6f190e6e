"""fusetools script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fusetools.cli.record import OF_RECORD, check
from fusetools.cli.record import command as record
from fusetools.errors import Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusetools.host.facts import HostFacts
    from fusetools.plan.options import LimitedOptions

MOST_FACTS = 64 << 20  # bytes of a file


@click.command(options_metavar="[OPTIONS]")
@click.option(
    "--host",
    metavar="FILE.json",
    help="Make the script for the host of these facts (fusetools doctor --json), not for this one.",
)
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    metavar="FILE",
    help="Write the script to FILE; - prints it.",
)
def command(
    host: str | None, output: str, duration: float | None, **options: Unpack[LimitedOptions]
) -> None:
    """Print a shell script that records on a host without Python.

    The script needs root, a POSIX shell, perf, and trace-cmd for function_graph: sh record.sh --
    WORKLOAD. It leaves one tar file, of which fusetools open makes the recording.
    """
    from fusetools.output import Output
    from fusetools.plan.options import Options, Workload
    from fusetools.record import preflight
    from fusetools.record.script import script

    check(options)
    # The script takes any workload, or none.
    wanted = Options(Workload(("WORKLOAD",)), duration=duration, **options)
    facts, plan = preflight.for_script(wanted, None if host is None else _facts(host))
    text = script(wanted, sys.argv[1:], facts, plan, host is None)
    data = text.encode(errors="surrogateescape")
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    with Output(output, preflight.owner(wanted.as_root)) as target:
        target.write(data)


def _facts(path: str) -> HostFacts:
    """Read facts, or what doctor printed."""
    import json

    from fusetools.host.facts import HostFacts
    from fusetools.host.files import read_input

    what = f"cannot read the host's facts in {path}"
    fix = "fusetools doctor --json > facts.json   # on that host"
    try:
        data = json.loads(read_input(path, MOST_FACTS))
        if isinstance(data, dict):
            data = data.get("facts", data)
        return HostFacts.from_json(json.dumps(data))
    except OSError as error:
        raise Error(what, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise Error(what, str(error), fix) from error


# Most options of record are options of script.
command.params[1:1] = [
    param
    for param in record.params
    if param.name not in (set(OF_RECORD) - {"duration"}) | {"as_root"}
]
