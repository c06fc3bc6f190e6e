"""fusetools doctor."""

from __future__ import annotations

import click

from fusetools.cli.options import say


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every fact of the host.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what this host can trace, and how to fix what is missing.

    Exit status 0 if a recording works here, else 1.
    """
    from fusetools.host.probe import read_host
    from fusetools.record import doctor
    from fusetools.stuck import machine
    from fusetools.stuck.diagnosis import stuck

    facts = doctor.with_self_test(read_host())
    mounts = [mount for mount in stuck(machine.read()).mounts if mount.path]
    hanging, unknown, dead = (
        [mount.path for mount in mounts if mount.state == state]
        for state in ("stuck", "unknown", "dead")
    )
    clients = {mount.path: mount.client for mount in mounts}
    result = doctor.examined(facts, hanging, unknown, dead, clients)
    if as_json:
        from fusetools.render.json.answer import render as to_json

        say(to_json("doctor", result))
    else:
        from fusetools.render.text.doctor import render

        say(render(result))
    ctx.exit(0 if result.works else 1)
