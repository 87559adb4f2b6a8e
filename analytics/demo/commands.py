"""`trunkline analytics demo`."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trunkline.analytics.command_line import check_folder, need_spark, spark_options
from trunkline.management.command_line import BAD_USAGE, FAILED, fail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import Console

    from trunkline.analytics.demo.running import Outcome, Settings

#: How a process ends that Ctrl-C has ended.
INTERRUPTED = 130


@click.command()
@click.option("--duration", type=click.FloatRange(5, 3600), default=60.0, show_default=True, help="Seconds of traffic.")
@click.option("--rate", type=click.FloatRange(1, 2000), default=200.0, show_default=True, help="Messages a second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another one makes other devices' dice.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Leave the event log, the checkpoints and the configuration there: an empty folder, or one to be made.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=check_folder,
    default=Path("trunkline-demo.html"),
    show_default=True,
    metavar="FILE",
    help="The report to write.",
)
@spark_options
def demo(
    duration: float, rate: float, seed: int, keep: Path | None, html: Path, master: str | None, java: str | None
) -> None:
    """See it all at once: a broker, simulated devices, their events in Spark, results back by MQTT in a live table, and a
    report. At its end the results are compared with plain Python over the same events. With the default duration all of it
    takes three to four minutes.

    Ends with 1 if anything differs.
    """
    need_spark()
    # imported here: they take a second, and pip may not have brought them
    import trio
    from rich.console import Console

    from trunkline.analytics.demo.running import DemoError, Settings
    from trunkline.analytics.spark import JavaError, SparkError

    console = Console()
    with ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-demo-")))
        else:
            folder = keep
            if folder.exists() and any(folder.iterdir()):
                fail([f"{folder} is not empty: --keep wants a folder of its own"], BAD_USAGE)
            folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(folder=folder, duration=duration, rate=rate, seed=seed)
        try:
            outcome = trio.run(_unless_stopped, settings, console, html, master, java)
        except (DemoError, SparkError, JavaError, OSError) as error:
            fail([error], FAILED)
    if outcome is None:
        click.echo("stopped", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if not all(check.good for check in outcome.checks):
        raise click.exceptions.Exit(FAILED)


async def _unless_stopped(
    settings: Settings, console: Console, html: Path, master: str | None, java: str | None
) -> Outcome | None:
    """Run it until it ends, or a signal comes; the second one ends the process at once."""
    import trio

    from trunkline.actors.system import innermost

    found: Outcome | None = None

    async def heed(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for _ in signals:
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            scope.cancel()

    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(heed, signals, nursery.cancel_scope)
                found = await _run(settings, console, html, master, java)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None
    return found


async def _run(settings: Settings, console: Console, html: Path, master: str | None, java: str | None) -> Outcome:
    from trunkline.analytics.demo.running import muted, present, sparking

    with muted(settings.folder / "spark.log"):
        async with sparking(console, master, java) as spark:
            return (await present(settings, spark, console, html))[0]
