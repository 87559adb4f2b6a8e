"""`trunkline events`: the event log, looked at from outside."""

import click


@click.group()
def events() -> None:
    """Look at the event log."""
