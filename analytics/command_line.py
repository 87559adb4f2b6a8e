"""The options and the start of commands that use Spark."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.config.units import parse_duration
from trunkline.management.command_line import FAILED, fail, read_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

#: The packages of `trunkline[spark]` that the commands import.
LIBRARIES: Final = ("pyspark", "pyarrow", "pandas", "jinja2")

java_option = click.option(
    "--java", metavar="CHOICE", help="bundled, system, or the path of a Java. [variable: TRUNKLINE_JAVA]"
)


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where Spark runs, with which Java and settings."""
    master = click.option(
        "--master", metavar="URL", help="Where Spark runs, such as spark://host:7077 or sc://host:15002: else here."
    )
    conf = click.option(
        "--conf",
        multiple=True,
        callback=read_pairs,
        metavar="NAME=VALUE",
        help="A setting of Spark, such as spark.driver.memory=4g. May be repeated.",
    )
    return master(java_option(conf(command)))


def check_folder(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """A file needs a folder that exists: one that a typing error creates would not be looked into."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}", ctx, param)
    return path


def parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A time, or a duration before now."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(value))
    except (ValueError, OverflowError):
        wrong = f'{value!r} is neither a time such as "2026-03-01T12:00", in UTC, nor a duration such as "2h"'
        raise click.BadParameter(wrong, ctx, param) from None


def period_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The period of the events."""
    since = click.option(
        "--since", callback=parse_time, metavar="TIME", help="Begin there: a time (UTC), or a duration before now."
    )
    until = click.option("--until", callback=parse_time, metavar="TIME", help="End there.")
    return since(until(command))


def need_spark() -> None:
    """End with a line that says what to install, if a package is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        fail([f"{', '.join(missing)}: not installed; pip install 'trunkline[spark]'"], FAILED)


@contextmanager
def spark_failures() -> Generator[None]:
    """End with a line that says why there is no Spark or no Java; Java's last output follows it."""
    from trunkline.analytics.spark import SparkError

    try:
        yield
    except SparkError as error:
        fail(str(error).splitlines(), FAILED)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs the traceback of each call of Java that fails or is interrupted, partly by the root logger, and raises
    the error as well."""
    return record.module != "java_gateway"


@contextmanager
def spark_session(
    name: str, master: str | None, java: str | None, conf: Mapping[str, object], *, fast_start: bool = False
) -> Generator[SparkSession]:
    """A session that does not write to the terminal. Where it does not start, or fails, the command ends with a line
    that says why. `fast_start` is for short jobs."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from trunkline.analytics.running import summary
    from trunkline.analytics.spark import session

    remote = master if master is not None and master.startswith("sc://") else None
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    with spark_failures():
        spark = session(
            f"trunkline-{name}",
            master=None if remote else master,
            remote=remote,
            java=java,
            config=conf,
            fast_start=fast_start,
        )
    try:
        if remote is None:
            spark.sparkContext.setLogLevel("OFF")
        yield spark
    except (PySparkException, Py4JError, OSError, ValueError) as error:
        fail([f"{name}: {summary(error)}"], FAILED)
    finally:
        with suppress(Py4JError, OSError), warnings.catch_warnings():  # its Java may have ended
            warnings.simplefilter("ignore", RuntimeWarning)
            spark.stop()
