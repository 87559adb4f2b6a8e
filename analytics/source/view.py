"""The part of a log that the settings ask for: which nodes, from where to where, in which ranges."""

import os
from typing import TYPE_CHECKING, Final

from trunkline.analytics.options import OptionError
from trunkline.analytics.source.offsets import Offsets
from trunkline.analytics.source.places import check_place, open_log
from trunkline.analytics.source.planning import Range, Window, split
from trunkline.events.layout import NodeKey

if TYPE_CHECKING:
    from trunkline.analytics.source.options import Position, SourceSettings
    from trunkline.events.reader import EventLog, Extent

#: Rows for which a task of their own pays.
_WORTHWHILE: Final = 250_000


class View:
    """Opens the log at once.

    Raises: OptionError, LogError, OSError.
    """

    def __init__(self, settings: "SourceSettings") -> None:
        self._settings = settings
        self.log: EventLog = open_log(settings)
        self.window = Window(settings.starting_timestamp, settings.ending_timestamp)

    def refresh(self) -> None:
        """Raises: OptionError, if the log's directory is gone: it differs from a log from which everything was
        deleted."""
        check_place(self._settings)
        self.log.refresh()

    def extents(self) -> "dict[str, Extent]":
        """Of the nodes that are wanted."""
        wanted = self._settings.nodes
        return {
            node: extent
            for node, extent in sorted(self.log.nodes().items())
            if not wanted or node in wanted or NodeKey.parse(node).name in wanted
        }

    def first(self) -> Offsets:
        """Where the oldest rows are; with a `startingTimestamp`, the oldest that may be wanted."""
        return {node: self._first(node, extent) for node, extent in self.extents().items()}

    def _first(self, node: str, extent: "Extent") -> int:
        if self.window.since is None:
            return extent.first
        return next(
            (span.first for span in self.log.spans(node, extent.first) if span.max_time >= self.window.since),
            extent.end,
        )

    def end(self) -> Offsets:
        """Where the next rows will be."""
        return {node: extent.end for node, extent in self.extents().items()}

    def offsets(self, position: "Position", option: str) -> Offsets:
        """What a position means now. Of nodes that it does not name, all rows are meant.

        Raises: OptionError, for rows or nodes that are not there.
        """
        self._check_nodes()
        if position == "earliest":
            return self.first()
        if position == "latest":
            return self.end()
        extents = self.extents()
        for node, number in position.items():
            if node not in extents:
                raise OptionError(f"option {option}: there is no node {node} in {self._settings.place}")
            if number > extents[node].end:
                raise OptionError(f"option {option}: {node} has no row {number} yet, it ends at {extents[node].end}")
        rest = self.first() if option == "startingOffsets" else self.end()
        return {node: position.get(node, rest[node]) for node in rest}

    def _check_nodes(self) -> None:
        """A query of nothing, for a name that was mistyped, would look like a node to which nothing happened."""
        keys = self.log.nodes()
        names = {NodeKey.parse(node).name for node in keys}
        for wanted in self._settings.nodes:
            if wanted not in keys and wanted not in names:
                there = f"there are {', '.join(sorted(names))}" if names else "it has no nodes yet"
                raise OptionError(f"option nodes={wanted!r}: there is no such node in {self._settings.place}; {there}")

    def ranges(self, start: Offsets, end: Offsets, window: Window) -> list[Range]:
        """In which pieces the rows between are read. A node that the start does not know begins at 0."""
        asked = {node: (start.get(node, 0), number) for node, number in end.items() if start.get(node, 0) < number}
        total = sum(number - first for first, number in asked.values())
        if (least := self._settings.min_partitions) is not None:
            share = max(1, total // least)
        else:  # the cluster may have others; a task costs as much as reading a hundred thousand rows
            share = max(_WORTHWHILE, total // (os.cpu_count() or 1))
        rows = min(self._settings.max_rows_per_partition, share)
        found: list[Range] = []
        for node, (first, number) in asked.items():
            spans = self.log.spans(node, first, number)
            size = self._settings.max_bytes_per_partition
            found += split(node, spans, first, number, rows=rows, size=size, window=window)
        return found
