"""`trunkline spark`: Spark and its Java."""

import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict

import click

from trunkline.analytics.command_line import java_option, spark_failures
from trunkline.management.command_line import FAILED


def _as_option(ctx: click.Context, param: click.Parameter, file: str | None) -> list[str]:
    return ["--properties-file", file] if file else []


def _check_host(ctx: click.Context, param: click.Parameter, host: str) -> str:
    """Spark answers a wrong one with the stack of its calls."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise click.BadParameter(f"{host!r} is no address, nor a name that leads to one", ctx, param) from None
    return host


def _check_master(ctx: click.Context, param: click.Parameter, url: str) -> str:
    if not re.fullmatch(r"spark://[^/\s:,]+:\d+(,[^/\s:,]+:\d+)*", url):
        raise click.BadParameter(f"{url!r} is not of the form spark://HOST:PORT", ctx, param)
    return url


def _check_size(ctx: click.Context, param: click.Parameter, size: str | None) -> str | None:
    if size is not None and not re.fullmatch(r"\d+[kmgt]?b?", size, re.IGNORECASE):
        raise click.BadParameter(f"{size!r} is not a size such as 500m or 2g", ctx, param)
    return size


_host_option = click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    callback=_check_host,
    help="Listen there: a client that reaches it can run code.",
)
_properties_option = click.option(
    "--properties-file",
    "properties",
    type=click.Path(exists=True, dir_okay=False),
    callback=_as_option,
    metavar="FILE",
    help="Settings of Spark, a line `name value` each.",
)


@click.group()
def spark() -> None:
    """Spark and its Java."""


@spark.command()
@java_option
@click.option("--try", "trial", is_flag=True, help="Start a session too, and run a query in it.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, for programs.")
def doctor(java: str | None, trial: bool, as_json: bool) -> None:
    """Say what Spark would find here, what is wrong, and how to mend it.

    Ends with 1 if anything is wrong.
    """
    from trunkline.analytics.spark.doctor import State, attempt, examine

    findings = examine(java)
    wrong = sum(finding.state is State.WRONG for finding in findings)
    if trial and not wrong:
        findings.append(attempt(java))
        wrong = sum(finding.state is State.WRONG for finding in findings)
    if as_json:
        click.echo(json.dumps({"good": not wrong, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        for finding in findings:
            mark = "WRONG" if finding.state is State.WRONG else finding.state.value
            click.echo(f"{mark:<6}{finding.topic}: {finding.found}")
            if finding.mend is not None:
                click.echo(f"{'':<6}-> {finding.mend}")
        click.echo("Spark can be used." if not wrong else f"Wrong: {wrong}. Spark cannot be used like this.")
    sys.exit(FAILED if wrong else 0)


@spark.command()
@_host_option
@click.option("--port", default=7077, show_default=True, help="For workers and sessions.")
@click.option("--webui-port", "web_port", default=8080, show_default=True, help="For browsers.")
@_properties_option
@java_option
def master(host: str, port: int, web_port: int, properties: Sequence[str], java: str | None) -> None:
    """Run the master of a Spark cluster, at spark://HOST:PORT."""
    with spark_failures():
        from trunkline.analytics.spark import programs

        options = ["--port", str(port), "--webui-port", str(web_port), *properties]
        programs.standalone(programs.MASTER, options, host=host, java=java)


@spark.command()
@click.argument("master_url", metavar="MASTER", callback=_check_master)
@_host_option
@click.option("--webui-port", "web_port", default=8081, show_default=True, help="For browsers.")
@click.option("--cores", type=int, help="Processors that sessions may use. [default: all]")
@click.option(
    "--memory", metavar="SIZE", callback=_check_size, help="Memory for sessions, as 2g. [default: all but a gigabyte]"
)
@click.option("--folder", type=click.Path(file_okay=False), help="For files and logs. [default: a new temporary one]")
@_properties_option
@java_option
def worker(
    master_url: str,
    host: str,
    web_port: int,
    cores: int | None,
    memory: str | None,
    folder: str | None,
    properties: Sequence[str],
    java: str | None,
) -> None:
    """Run a worker for the master of a Spark cluster (MASTER, as spark://HOST:PORT)."""
    with spark_failures():
        from trunkline.analytics.spark import programs

        # by default it would be within the installed PySpark
        place = folder or os.environ.get("SPARK_WORKER_DIR") or tempfile.mkdtemp(prefix="trunkline-spark-worker-")
        given = {"--webui-port": web_port, "--cores": cores, "--memory": memory, "--work-dir": place}
        options = [part for name, value in given.items() if value is not None for part in (name, str(value))]
        programs.standalone(programs.WORKER, [*options, *properties, master_url], host=host, java=java)


@spark.command()
@_host_option
@click.option("--port", default=15002, show_default=True, help="For sessions.")
@click.option("--master", default="local[*]", show_default=True, help="Where the work is done.")
@_properties_option
@java_option
def connect(host: str, port: int, master: str, properties: Sequence[str], java: str | None) -> None:
    """Run a Spark Connect server, at sc://HOST:PORT."""
    with spark_failures():
        from trunkline.analytics.spark import programs

        programs.connect(properties, host=host, port=port, master=master, java=java)
