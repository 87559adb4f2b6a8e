"""From an event log to a page in a file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trunkline.analytics.report.collecting import collect
from trunkline.analytics.report.page import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from trunkline.analytics.report.results import Results


def write(
    spark: SparkSession,
    source: str,
    html: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Results:
    """Make the page, and return what it tells. It is there as a whole or not at all.

    Raises:
        NothingRecorded: there are no events in the period.
        LogError: there is no log that can be read.
        OSError: the file cannot be written.
    """
    beside = html.with_name(f".{html.name}.{os.getpid()}")
    beside.touch()  # what is wrong with its folder shows before minutes of work
    try:
        results = collect(spark, source, now=datetime.now(UTC), since=since, until=until, say=say)
        beside.write_text(render(results), encoding="utf-8")
        beside.replace(html)
    finally:
        beside.unlink(missing_ok=True)
    return results
