"""Man pages, one per command, and the command reference from the commands' own help.

``python -m fusetools.man`` writes docs/commands.md.
"""

from __future__ import annotations

import click

from fusetools import cli


def reference() -> str:
    """Return the text of docs/commands.md."""
    lines = [
        "# Commands",
        "",
        "Made from the commands' own help: `python -m fusetools.man` writes it anew.",
        "",
        " ".join(str(cli.main.help).partition("\n")[0].split()),
    ]
    top = cli.main.make_context("fusetools", ["hist"])
    titles = {next(iter(commands)): title for title, commands in cli.GROUPS.items()}
    for name in cli.COMMANDS:
        lines += ["", f"## {titles[name]}"] if name in titles else []
        command = cli.main.get_command(top, name)
        assert command is not None
        context = click.Context(command, parent=top, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += ["", f"### fusetools {name}", "", f"    fusetools {name} {usage}", ""]
        lines += ["\n\n".join(" ".join(p.split()) for p in str(command.help).split("\n\n")), ""]
        lines += ["| option | |", "| --- | --- |"]
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if record and isinstance(option, click.Option):
                cells = (" ".join(cell.split()).replace("|", "\\|") for cell in record)
                lines.append("| `{}` | {} |".format(*cells))
    return "\n".join(lines) + "\n"
