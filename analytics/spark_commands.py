"""`trunkline spark`: Spark and its Java."""

import click


@click.group()
def spark() -> None:
    """Spark and its Java."""
