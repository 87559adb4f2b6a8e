"""Describes a job: its events, its options, its results."""

from __future__ import annotations

import textwrap
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.config.units import accepted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo
    from pyspark.sql import SparkSession

    from trunkline.analytics.jobs.job import Job, Options

_WIDTH: Final = 100


def explained(job: Job[Any], options: Options) -> Iterator[str]:
    """The lines of its description."""
    summary, *paragraphs = job.description
    yield f"{job.name}: {summary}"
    yield ""
    for paragraph in paragraphs:
        yield from textwrap.wrap(paragraph, _WIDTH)
        yield ""
    kinds = job.kinds(options)
    yield from _wrapped("Reads", "events of all kinds" if "*" in kinds else ", ".join(kinds))
    yield ""
    yield "Options (--set NAME=VALUE)"
    for name, field in job.options.model_fields.items():
        yield from _entry(f"{name} = {shown(getattr(options, name))}", meaning(field))
    yield ""
    yield "Results"
    for column in job.columns:
        yield from _entry(f"{column.name} ({column.type})", column.meaning)
    yield ""
    yield from _wrapped("Key", ", ".join(job.key))
    yield "In a stream, each row comes once, when it is final."


def planned(spark: SparkSession, job: Job[Any], options: Options) -> str:
    """Spark's plan for recorded events."""
    from trunkline.events.schema import SPARK_SCHEMA

    frame = job(spark.createDataFrame([], SPARK_SCHEMA), options)
    with redirect_stdout(StringIO()) as plan:
        frame.explain("formatted")
    return plan.getvalue().strip()


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(f"{head}: {text}", _WIDTH, subsequent_indent="  ")


def _entry(head: str, text: str) -> Iterator[str]:
    yield f"  {head}"
    yield from textwrap.wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="      ")


def shown(value: object) -> str:
    """A value as it is written behind `--set NAME=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", value))) or "(none)"
    if isinstance(value, dict):
        return shown(tuple(f"{name}={shown(each)}" for name, each in cast("dict[str, object]", value).items()))
    if value is None:
        return "(none)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def meaning(field: FieldInfo) -> str:
    """An option's effect and its accepted values."""
    return f"{field.description} Takes {accepted(field)}."
