"""Gauges of nodes over time: from readings, each of which holds until the next, to windows and sums."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trunkline.analytics.report.results import GAUGES, GaugeLevels, GaugeSums
from trunkline.analytics.report.shaping import holds_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import Row

    from trunkline.analytics.report.axes import Grid
    from trunkline.analytics.report.results import Health

#: A gauge has grown that is so many times in the last quarter what it was in the first, in a period of so many seconds.
_GROWTH: Final = 1.5
_LONG: Final = 3600.0


def gauges(
    readings: Sequence[Row], health: Sequence[Health], grid: Grid, end: datetime
) -> tuple[list[GaugeLevels], list[GaugeSums]]:
    """Each window of each gauge, and each gauge of the period, which ends within the last window. Readings are those of
    windows as long as the grid's, also of some before."""
    rows: dict[tuple[str, str], dict[datetime, Row]] = defaultdict(dict)
    for row in readings:
        rows[row["node"], row["name"]][row["time"]] = row
    places = {name: place for place, name in enumerate(GAUGES)}
    windows: list[GaugeLevels] = []
    sums: list[GaugeSums] = []
    for node, name in sorted(rows, key=lambda key: (places[key[1]], key[0])):
        of_one = rows[node, name]
        own = list(_windows(node, name, of_one, health, grid, end))
        if own:
            windows += own
            sums.append(_summed(own, of_one, grid))
    return windows, sums


def _windows(
    node: str, name: str, rows: dict[datetime, Row], health: Sequence[Health], grid: Grid, end: datetime
) -> Iterator[GaugeLevels]:
    last: float | None = None
    until = grid.begin
    if before := [time for time in rows if time < grid.begin]:
        newest = rows[max(before)]
        last, until = newest["last"], holds_until(node, newest["at"], health)
    for time in grid.times:
        stop = min(time + timedelta(seconds=grid.step), end)
        row = rows.get(time)
        constant: list[tuple[float, timedelta]] = []
        if last is not None:
            constant.append((last, min(until, stop if row is None else row["first_at"]) - time))
        if row is not None:
            last, until = float(row["last"]), holds_until(node, row["at"], health)
            constant.append((last, min(until, stop) - row["at"]))
        holding = [(value, length.total_seconds()) for value, length in constant if length > timedelta()]
        values = [value for value, _ in holding] + ([] if row is None else [row["low"], row["high"]])
        if values:
            held = sum(seconds for _, seconds in holding) + (0.0 if row is None else row["held"])
            summed = sum(value * seconds for value, seconds in holding) + (0.0 if row is None else row["summed"])
            yield GaugeLevels(time, node, name, min(values), summed / held if held else values[-1], max(values), held)


def _summed(windows: Sequence[GaugeLevels], rows: dict[datetime, Row], grid: Grid) -> GaugeSums:
    held = sum(each.held for each in windows)
    top = max(windows, key=lambda each: each.high)
    newest = rows[max(rows)]
    there = rows.get(top.time)
    shares = [row["share"] for time, row in rows.items() if time >= grid.begin and row["share"] is not None]
    quarter = (grid.end - grid.begin) / 4
    first = max((each.high for each in windows if each.time < grid.begin + quarter), default=None)
    final = min((each.low for each in windows if each.time >= grid.end - quarter), default=None)
    return GaugeSums(
        node=top.node,
        name=top.name,
        low=min(each.low for each in windows),
        mean=sum(each.mean * each.held for each in windows) / held if held else top.mean,
        high=top.high,
        high_at=there["high_at"] if there is not None and there["high"] == top.high else top.time,
        last=newest["last"],
        limit=newest["limit"],
        share=max(shares, default=None),
        has_grown=first is not None
        and final is not None
        and 4 * quarter.total_seconds() >= _LONG
        and final >= max(_GROWTH * first, first + GAUGES[top.name]),
    )
