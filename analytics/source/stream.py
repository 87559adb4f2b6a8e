"""`spark.readStream.format("trunkline")`: rows as they come, in triggers of which each can be read again exactly."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from trunkline.analytics.source.offsets import Offsets, farthest
from trunkline.analytics.source.planning import (
    Budget,
    Range,
    Window,
    admit,
    divide,
    frontier,
    superseded,
)
from trunkline.analytics.source.rows import RowReader
from trunkline.analytics.source.view import View
from trunkline.analytics.source.wrong_options import in_one_line
from trunkline.events.positions import Positions, checked
from trunkline.events.reader import Span

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trunkline.analytics.source.options import SourceSettings


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process of Spark's driver for as long as the query runs; copies of it read the rows in tasks."""

    def __init__(self, settings: "SourceSettings", schema: "StructType") -> None:
        self._settings = settings
        self._rows = RowReader(settings, schema)
        # opened when first needed: copies of this object go to the tasks, which have no use for it
        self._opened: View | None = None
        self._positions: Positions | None = None
        self._held: Offsets | None = None
        self._target: Offsets | None = None
        self._seen: Offsets = {}
        #: The span of each node that was divided last: the next trigger begins in it, or behind it.
        self._divided: dict[str, list[Span]] = {}

    def _view(self) -> View:
        if self._opened is None:
            self._opened = View(self._settings)
        return self._opened

    @in_one_line()
    def initialOffset(self) -> Offsets:
        return self._view().offsets(self._settings.starting_offsets, "startingOffsets")

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._settings.max_rows_per_trigger is not None:
            return ReadMaxRows(self._settings.max_rows_per_trigger)
        if self._settings.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._settings.max_bytes_per_trigger)
        if self._settings.max_files_per_trigger is not None:
            return ReadMaxFiles(self._settings.max_files_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._view()
        view.refresh()
        self._target = view.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offsets:
        """Where the next trigger ends. The same as `start` when there is nothing for it.

        Spark asks when it has finished everything before `start`, so that is what consumers are done with. Its own word
        for it, `commit`, comes a trigger later, and for the last one never.
        """
        begin = checked(start)
        self._hold(begin)
        view = self._view()
        view.refresh()
        latest = view.end() if self._target is None else self._target
        waiting = {node: number - begin.get(node, 0) for node, number in latest.items() if number > begin.get(node, 0)}
        vanished = self._vanished(view, begin)
        budget, limited = self._budget(limit)
        align = self._settings.align_event_time
        held_at = self._frontier(view) if align and self._target is None else None
        if not limited and held_at is None:
            end = farthest(begin, {node: latest[node] for node in waiting})
        else:
            fine = align and (len(waiting) > 1 or held_at is not None)
            pending = {node: self._pending(view, node, begin.get(node, 0), latest[node], fine) for node in waiting}
            end = admit(begin, pending, budget, frontier=held_at, backlog=None if align else waiting)
        end = farthest(end, vanished)
        return end if end == begin else self._without_forgotten(view, end, vanished)

    def _vanished(self, view: View, begin: Offsets) -> Offsets:
        """Rows that were there at the last look, and were deleted unread. The tasks that look for them find it out."""
        ends = view.end()
        lost = {node: end for node, end in self._seen.items() if node not in ends and end > begin.get(node, 0)}
        self._seen = {**lost, **ends}
        return lost

    def _budget(self, limit: ReadLimit) -> tuple[Budget, bool]:
        if isinstance(limit, ReadAllAvailable):
            return Budget(), False
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.max_rows_per_trigger
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._settings.max_bytes_per_trigger
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else self._settings.max_files_per_trigger
        return Budget(rows, size, files), True

    def _frontier(self, view: View) -> int | None:
        return frontier(
            {node: extent for node, extent in view.extents().items() if extent.end},
            now=time.time_ns() // 1000,
            max_wait=round(self._settings.max_wait * 1_000_000),
            within=self._within(),
        )

    def _within(self) -> int:
        return round(self._settings.align_within * 1_000_000)

    def _pending(self, view: View, node: str, first: int, end: int, fine: bool) -> Iterator[Span]:
        """Spans in their order; those that cover much time, such as row groups of compacted files, in pieces."""
        for span in view.log.spans(node, first, end):
            if fine and span.max_time - span.min_time > self._within() and span.end - span.first > 1:
                yield from self._pieces(view, span)
            else:
                yield span
        self._divided.pop(node, None)  # all of it was taken

    def _pieces(self, view: View, span: Span) -> list[Span]:
        known = self._divided.get(span.node)
        if known is None or known[0].first > span.first or known[-1].end != span.end:
            times: list[int] = []
            for batch in view.log.read(
                span.node, span.first, span.end, columns=["time"], on_corrupt="skip", on_lost="skip"
            ):
                moments: Any = batch.column("time").cast(pa.int64()).to_pylist()
                times += moments
            known = self._divided[span.node] = divide(span, times, self._within())
        return [piece for piece in known if piece.end > span.first]

    def _without_forgotten(self, view: View, end: Offsets, vanished: Offsets) -> Offsets:
        """Lets go of incarnations that are gone from the log while a later one of their node is there."""
        there = view.log.nodes()
        gone = superseded([*end, *there]) - there.keys() - vanished.keys()
        return {node: number for node, number in end.items() if node not in gone}

    def reportLatestOffset(self) -> Offsets | None:
        return None if self._opened is None else self._opened.end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        window = Window(self._settings.starting_timestamp, self._settings.ending_timestamp)
        return [InputPartition(part) for part in self._view().ranges(checked(start), checked(end), window)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        part: Range = partition.value
        return self._rows.read(part)

    def commit(self, end: dict[str, Any]) -> None:
        self._hold(checked(end))

    def _hold(self, position: Offsets) -> None:
        """Note the position, so that retention keeps what is still wanted."""
        if self._settings.consumer is None or (self._held is not None and farthest(self._held, position) == self._held):
            return
        if self._positions is None:
            self._positions = Positions(self._settings.roots[0], self._settings.consumer)
        self._positions.write(position)
        self._held = position
