"""The page: from an event log, or from results, to HTML."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from trunkline import __version__
from trunkline.analytics.report import wording
from trunkline.analytics.report.collecting import collect
from trunkline.analytics.report.findings import findings, tiles
from trunkline.analytics.report.plots import SIDE, Plot
from trunkline.analytics.report.sections.named import named
from trunkline.analytics.report.sections.order import sections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jinja2 import Template
    from pyspark.sql import SparkSession

    from trunkline.analytics.report.results import Results


@cache
def _template() -> Template:
    # everything is escaped, whatever the template is called: names come from clients
    environment = Environment(
        loader=PackageLoader("trunkline.analytics.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.jinja")


def render(results: Results) -> str:
    """One HTML page that needs nothing else: no network, no script."""
    made = sections(results)
    return _template().render(
        results=results,
        source=wording.name(results.source),
        begin=wording.moment(results.begin),
        end=wording.moment(results.end),
        made=wording.moment(results.made),
        length=wording.duration((results.end - results.begin).total_seconds()),
        before=results.before and {name: wording.moment(getattr(results.before, name)) for name in ("begin", "end")},
        tiles=tiles(results),
        findings=findings(results),
        sections=made,
        named=named(made, results),
        side=SIDE,
        version=__version__,
        whole=wording.whole,
        is_plot=lambda part: isinstance(part, Plot),
    )


def write(
    spark: SparkSession,
    source: str,
    html: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Results:
    """Write the page as a whole or not at all. Returns what it shows.

    Raises:
        NothingRecorded: there are no events in the period.
        LogError: there is no log that can be read.
        OSError: the file cannot be written.
    """
    beside = html.with_name(f".{html.name}.{os.getpid()}")
    beside.touch()  # fails before minutes of work if the folder is wrong
    try:
        results = collect(spark, source, now=datetime.now(UTC), since=since, until=until, say=say)
        beside.write_text(render(results), encoding="utf-8")
        beside.replace(html)
    finally:
        beside.unlink(missing_ok=True)
    return results
