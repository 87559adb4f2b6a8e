"""Plans the next rows to read, and their partitions. Pure: it sees spans and numbers, and no file, clock or Spark.

A span is a run of rows of one node that were written together, with the times of its first and last event. Offsets may
cut a span anywhere; its times then stand for both halves.

**Admission** decides how far a trigger goes. Spark's watermark is the maximum over all rows of a source: if one node's
backlog is read ahead of another's, the other's rows come late, and are dropped silently. So spans are taken from all
nodes in the order of their newest events, and while a node is live but has not reached some time yet, the others wait
for it.

**Splitting** cuts what was admitted into ranges of about equal size, each of one node, which are read in parallel.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trunkline.analytics.source.offsets import Offsets
from trunkline.events.layout import NodeKey
from trunkline.events.reader import Extent, Span


class Range(NamedTuple):
    """Rows of a node for one task: runs [first, end) in their order."""

    node: str
    runs: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        return sum(end - first for first, end in self.runs)


class Budget:
    """Rows, bytes and files that a trigger may still take; None is without end."""

    def __init__(self, rows: int | None = None, size: int | None = None, files: int | None = None) -> None:
        self._rows = rows
        self._size = size
        self._files = files
        self._opened: set[str] = set()
        self._spent = False

    @property
    def exhausted(self) -> bool:
        return self._rows == 0 or self._size == 0

    def opens(self, path: str) -> bool:
        """Whether rows of this file may be taken, too."""
        if path not in self._opened and self._files is not None and len(self._opened) >= self._files:
            return False
        self._opened.add(path)
        return True

    def take(self, rows: int, size: int) -> int:
        """How many of the rows may be taken, and takes them. The first row is always granted, or nothing would move."""
        granted = rows
        if self._rows is not None:
            granted = min(granted, self._rows)
        if self._size is not None and size > self._size:
            granted = min(granted, rows * self._size // size)
        if not self._spent:
            granted = max(granted, 1)
        self._spent = True
        if self._rows is not None:
            self._rows -= granted
        if self._size is not None:
            self._size -= min(self._size, -(-size * granted // rows))
        return granted


def superseded(nodes: Iterable[str]) -> set[str]:
    """Node keys whose node has started again since: nothing comes from them any more."""
    keys = {key: NodeKey.parse(key) for key in nodes}
    newest: dict[str, int] = {}
    for name, incarnation in keys.values():
        newest[name] = max(incarnation, newest.get(name, 0))
    return {key for key, (name, incarnation) in keys.items() if incarnation < newest[name]}


def frontier(nodes: Mapping[str, Extent], *, now: int, max_wait: int, within: int) -> int | None:
    """The time up to which rows may be taken, when some node has yet to write what is after it. None: no node is
    waited for.

    A node is waited for while it is live: not ended, and with something new in the last `max_wait`,
    by the clock as by the other nodes' events. So one that was killed, or whose clock is wrong, holds the others back
    no longer than that. All in microseconds.
    """
    if len(nodes) < 2:
        return None
    since = max(now, *(extent.newest for extent in nodes.values())) - max_wait
    awaited = [extent.newest for extent in nodes.values() if not extent.ended and extent.newest > since]
    return min(awaited) + within if awaited else None


def admit(
    start: Offsets,
    pending: Mapping[str, Iterator[Span]],
    budget: Budget,
    *,
    frontier: int | None = None,
    backlog: Mapping[str, int] | None = None,
) -> Offsets:
    """Where a trigger that begins at `start` ends. Spans are taken in the order of their newest events across nodes.

    Among rows that are left, none is older than the newest that was taken by more than the time that one span covers.
    With `backlog`, the rows that each node has waiting, every node gives its share of them instead, whatever their
    times.
    """
    end = dict(start)
    heads: list[tuple[float, str, Span]] = []

    def look(node: str, after: float) -> None:
        span = next(pending[node], None)
        if span is not None:
            rank = span.max_time if backlog is None else (span.end - start.get(node, 0)) / backlog[node]
            # a clock that was set back does not put a node behind the others again
            heapq.heappush(heads, (max(rank, after), node, span))

    for node in pending:
        look(node, float("-inf"))
    while heads and not budget.exhausted:
        rank, node, span = heapq.heappop(heads)
        if frontier is not None and rank > frontier:
            break
        first = max(span.first, end.get(node, 0))
        rows = span.end - first
        if rows > 0:
            if not budget.opens(span.path):
                break
            granted = budget.take(rows, span.size * rows // (span.end - span.first))
            if granted:
                end[node] = first + granted
            if granted < rows:
                break
        look(node, rank)
    return {key: end[key] for key in sorted(end)}


def divide(span: Span, times: Sequence[int], within: int) -> list[Span]:
    """The span in pieces that cover no more than `within` microseconds each, by the times of its rows.

    Rows that could not be read leave it whole.
    """
    held = span.end - span.first
    if len(times) != held:
        return [span]
    pieces: list[Span] = []
    begin, oldest, newest = 0, times[0], times[0]

    def piece(low: int, high: int) -> Span:
        size = span.size * (high - low) // held
        return span._replace(first=span.first + low, end=span.first + high, min_time=oldest, max_time=newest, size=size)

    for row, time in enumerate(times):
        if max(newest, time) - min(oldest, time) > within:
            pieces.append(piece(begin, row))
            begin, oldest, newest = row, time, time
        else:
            oldest, newest = min(oldest, time), max(newest, time)
    return [*pieces, piece(begin, held)]


class Window(NamedTuple):
    """Times from `since` on and before `until`, in microseconds since the epoch; None is without end."""

    since: int | None = None
    until: int | None = None

    def holds(self, time: int) -> bool:
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)

    def may_hold(self, span: Span) -> bool:
        return (self.since is None or span.max_time >= self.since) and (
            self.until is None or span.min_time < self.until
        )


def split(
    node: str, spans: Iterable[Span], first: int, end: int, *, rows: int, size: int, window: Window
) -> list[Range]:
    """Ranges of about equal size over the rows [first, end), without spans that are outside of the window.

    They hold about `rows` rows or `size` bytes at most, and are cut between spans where possible. Rows that no span has
    are in them all the same: the reader finds out that they are lost.
    """
    pieces = list(_pieces(spans, first, end, rows, size, window))
    total = sum(load for _, _, load in pieces)
    count = max(1, math.ceil(total - 1e-9))
    runs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    done = 0.0
    for low, high, load in pieces:
        into = runs[min(int(done * count / total + 1e-9), count - 1)] if total else runs[0]
        if into and into[-1][1] == low:
            into[-1] = (into[-1][0], high)
        else:
            into.append((low, high))
        done += load
    return [Range(node, tuple(some)) for some in runs if some]


def _pieces(
    spans: Iterable[Span], first: int, end: int, rows: int, size: int, window: Window
) -> Iterator[tuple[int, int, float]]:
    """Runs of rows, and the part of a full range that each is: no more than 1."""
    at = first
    for span in spans:
        low, high = max(span.first, at), min(span.end, end)
        if low >= high:
            continue
        if at < low:
            yield at, low, 0.0
        at = high
        if not window.may_hold(span):
            continue
        load = (high - low) * max(1 / rows, span.size / (span.end - span.first) / size)
        parts = min(math.ceil(load), high - low)
        bounds = [low + (high - low) * part // parts for part in range(parts + 1)]
        for one, other in itertools.pairwise(bounds):
            yield one, other, load / parts
    if at < end:
        yield at, end, 0.0
