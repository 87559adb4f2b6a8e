"""`trunkline analytics`: jobs over recorded events."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from trunkline.analytics.command_line import need_spark, period_options, spark_options, spark_session
from trunkline.analytics.jobs.catalogue import UnknownJob, find, summaries
from trunkline.management.command_line import BAD_USAGE, LazyGroup, fail, read_duration, read_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from trunkline.analytics.jobs.job import Job, Options


class _Analytics(LazyGroup):
    elsewhere: ClassVar = {
        "report": ("trunkline.analytics.report.commands", "Write a page about the state of a broker."),
    }


@click.group(cls=_Analytics)
def analytics() -> None:
    """Run jobs over recorded events, in Spark."""


_set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    callback=read_pairs,
    metavar="OPTION=VALUE",
    help="An option of the job. May be repeated.",
)


@analytics.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON, a line each.")
def list_jobs(as_json: bool) -> None:
    """List the jobs."""
    for name, summary in summaries().items():
        click.echo(json.dumps({"name": name, "summary": summary}) if as_json else f"{name:<16}{summary}")


@analytics.command()
@click.argument("name")
@click.option("--plan", is_flag=True, help="Print Spark's plan, too: starts Spark.")
@_set_option
@spark_options
def explain(
    name: str, plan: bool, settings: dict[str, str], master: str | None, java: str | None, conf: dict[str, str]
) -> None:
    """Describe what job NAME reads, its options and its results. NAME is as for `run`."""
    job = _job(name)
    options = _options(job, settings)
    from trunkline.analytics.explaining import explained

    for line in explained(job, options):
        click.echo(line)
    if plan:
        from trunkline.analytics.explaining import planned

        with spark_session("explain", master, java, conf) as spark:
            click.echo("\n" + planned(spark, job, options))


@analytics.command()
@click.argument("name")
@click.option(
    "--input", "source", required=True, metavar="LOG", help="The event log, Parquet files or a Delta table of it: a "
    "folder, or a URI such as s3://…. A pattern such as 'logs/*' reads several logs as one."
)  # fmt: skip
@click.option(
    "--output",
    metavar="PLACE",
    help="A file, a folder, a Delta table, or mqtt://HOST:PORT/TOPIC. [default: the terminal]",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "parquet", "delta", "mqtt"]),
    help="[default: table on the terminal, else as the name of the output says]",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace what is there.")
@click.option("--rows", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Of a table, at most.")
@click.option("--columns", metavar="A,B,…", default="", help="Of tables and JSON. [default: all]")
@period_options
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Events of this node alone. May be repeated.")
@_set_option
@click.option(
    "--read",
    "reading",
    multiple=True,
    callback=read_pairs,
    metavar="OPTION=VALUE",
    help="An option of the source, such as onCorrupt=skip.",
)
@click.option("--stream", is_flag=True, help="Go on with new events, until Ctrl-C.")
@click.option("--once", is_flag=True, help="End a stream when it has read all events.")
@click.option(
    "--every",
    metavar="TIME",
    default="5s",
    callback=read_duration,
    show_default=True,
    help="From one batch of a stream to the next.",
)
@click.option("--checkpoint", metavar="DIR", help="The folder of a stream's position and state.")
@spark_options
def run(
    name: str, source: str, output: str | None, form: str | None, overwrite: bool, rows: int, columns: str,
    since: datetime | None, until: datetime | None, nodes: Sequence[str], settings: dict[str, str],
    reading: dict[str, str], stream: bool, once: bool, every: float, checkpoint: str | None, master: str | None,
    java: str | None, conf: dict[str, str],
) -> None:  # fmt: skip
    """Run job NAME over events, and print or store its results.

    NAME is one of the list, or MODULE:FUNCTION, a job of your own in a module that is in this folder or installed.
    """
    job = _job(name)
    options = _options(job, settings)
    # imported here: they take a second
    from trunkline.analytics.inputs import Input, InputError
    from trunkline.analytics.options import OptionError
    from trunkline.analytics.outputs import OutputError, parse_output
    from trunkline.analytics.running import Run, RunError

    try:
        wanted = Run(
            job,
            options,
            Input(source, since, until, tuple(nodes), reading),
            replace(parse_output(output, form, job.name), overwrite=overwrite, rows=rows, columns=_words(columns)),
            stream=stream,
            checkpoint=checkpoint,
            every=every,
            once=once,
        )
        found = wanted.check()
    except (InputError, OutputError, RunError) as error:
        fail([error], BAD_USAGE)
    with spark_session(job.name, master, java, conf) as spark:
        try:
            wanted.start(spark, found, say=lambda words: click.echo(words, err=True))
        except OptionError as error:
            fail(error.problems, BAD_USAGE)


def _job(name: str) -> Job[Any]:
    need_spark()
    sys.path.append(os.getcwd())  # there, MODULE is looked for
    try:
        return find(name)
    except (UnknownJob, ImportError) as error:
        fail([error], BAD_USAGE)


def _options(job: Job[Any], settings: Mapping[str, str]) -> Options:
    from trunkline.analytics.options import OptionError

    try:
        options: Options = job.read_options(settings)
    except OptionError as error:
        fail(error.problems, BAD_USAGE)
    return options


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for each in text.split(",") if (word := each.strip()))
