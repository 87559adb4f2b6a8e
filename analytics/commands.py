"""`trunkline analytics`: jobs over recorded events."""

import click


@click.group()
def analytics() -> None:
    """Run jobs over recorded events, in Spark."""
