"""What to know about the rows of a query: which its reader skipped, where clocks were corrected, and how many it is
behind.

Spark takes no metrics from sources in Python: `sources[].metrics` of a stream's progress is always empty. But it
measures any frame that observes itself, in batches and in streams, and a stream's progress has its offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.events.layout import LogError
from trunkline.events.notices import CLOCK, ClockCorrection
from trunkline.events.positions import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Rows of these kinds stand for rows that the reader skipped.
SKIPPED: Final = ("log.corrupt", "log.lost")
#: The kinds that an observed frame needs.
OBSERVED: Final = (*SKIPPED, CLOCK)
#: The name of the observation, unless another is given.
NAME: Final = "trunkline"
#: Places that are named one by one.
_NAMED: Final = 10


class Skipped(NamedTuple):
    """A run of rows that could not be read."""

    node: str
    #: Rows [first, end).
    first: int
    end: int
    #: One of `SKIPPED`.
    kind: str


def observed(events: DataFrame, observation: str | Observation = NAME) -> DataFrame:
    """The same rows of `format("trunkline")`; on their way, Spark notes what its reader skipped, and
    corrections of clocks.

    With a name, that becomes the part of that name of `observedMetrics` in a stream's progress; with an `Observation`,
    what its `get` gives after a batch. `places` are the runs of rows, `rows` is how many rows they are, `clocks` are
    the corrections. Rows of the kinds `OBSERVED` must be among the events: a frame with the option `kinds` needs them
    there.
    """
    return events.observe(observation, *measures())


def measures() -> list[Column]:
    """The aggregates that `observed` notes."""
    from pyspark.sql import functions as F

    place = F.struct("node", "incarnation", "seq", "kind", F.col("value").cast("bigint").alias("rows"))
    # a set, for a task that is tried again, or a frame that is read twice, gives each of them twice
    places = F.sort_array(F.collect_set(F.when(F.col("kind").isin(*SKIPPED), place)))
    rows = F.aggregate(places, F.lit(0).cast("bigint"), lambda sum, each: sum + each["rows"])
    correction = F.struct("node", "incarnation", "seq", F.unix_micros("time").alias("time"), "value")
    clocks = F.sort_array(F.collect_set(F.when(F.col("kind") == CLOCK, correction)))
    return [rows.alias("rows"), places.alias("places"), clocks.alias("clocks")]


def skipped(metrics: Mapping[str, Any]) -> list[Skipped]:
    """The runs of rows from what was observed, by nodes and numbers."""
    return [
        Skipped(f"{place['node']}@{place['incarnation']}", place["seq"], place["seq"] + place["rows"], place["kind"])
        for place in metrics["places"]
    ]


def corrected(metrics: Mapping[str, Any]) -> list[tuple[str, ClockCorrection]]:
    """Each node's key and a correction of its clock, from what was observed."""
    return [
        (f"{clock['node']}@{clock['incarnation']}", ClockCorrection(clock["seq"], clock["time"], clock["value"]))
        for clock in metrics["clocks"]
    ]


def told(places: Sequence[Skipped]) -> Iterator[str]:
    """Lines for people; none if nothing was skipped."""
    if not places:
        return
    rows = sum(end - first for _, first, end, _ in places)
    yield f"{rows:,} rows could not be read and are missing in the results:"
    for node, first, end, kind in places[:_NAMED]:
        why = "damaged" if kind == "log.corrupt" else "not in the log"
        yield f"  rows {first} to {end - 1} of {node}: {why}"
    if len(places) > _NAMED:
        yield f"  and in {len(places) - _NAMED} more places; `trunkline events check` names all"


def behind(progress: StreamingQueryProgress) -> dict[str, int]:
    """For each node the rows that a stream has yet to read, of those that were there when its batch was planned."""
    rows: dict[str, int] = {}
    for source in progress.sources:
        try:
            latest = checked(json.loads(source.latestOffset or "null"))
            end = checked(json.loads(source.endOffset or "null"))
        except (LogError, ValueError):
            continue  # it is a source of another kind
        for node, number in latest.items():
            rows[node] = rows.get(node, 0) + max(0, number - end.get(node, 0))
    return rows
