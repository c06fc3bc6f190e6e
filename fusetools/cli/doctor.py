"""fusetools doctor."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every fact of the host.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what this host can trace, and how to mend what is missing.

    Exit status 0 if a recording works here, else 1.
    """
    from fusetools.host.probe import read_host
    from fusetools.now import machine
    from fusetools.now.stuck import stuck
    from fusetools.plan.capabilities import diagnose
    from fusetools.record import doctor

    facts = doctor.with_self_test(read_host())
    diagnosis = diagnose(facts)
    mounts = [doctor.describe(facts, mount) for mount in facts.mounts]
    diagnosis = doctor.counted(diagnosis, mounts)
    hanging = [mount.path for mount in stuck(machine.read()).mounts if mount.state == "stuck"]
    if as_json:
        from fusetools.render.json.doctor import render as to_json

        click.echo(to_json(facts, diagnosis, mounts, hanging))
    else:
        from fusetools.render.text.doctor import render

        click.echo(render(facts, diagnosis, mounts, hanging))
    ctx.exit(0 if diagnosis.works else 1)
