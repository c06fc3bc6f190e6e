"""The command line."""

import click


@click.group()
def main() -> None:
    """Trace FUSE file systems."""
