"""Plans, and what Spark's watermark would make of them: the watermark is simulated, so no Spark is needed."""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from trunkline.analytics.source.planning import Budget, Range, Window, admit, frontier, split, superseded
from trunkline.events.reader import Extent

if TYPE_CHECKING:
    from trunkline.analytics.source.offsets import Offsets

SECOND = 1_000_000
ANY = Window(None, None)


class Made(NamedTuple):
    node: str
    first: int
    end: int
    min_time: int
    max_time: int
    size: int = 0
    path: str = ""


def spans_of(node: str, times: list[int], rows: int, bytes_a_row: int = 100) -> list[Made]:
    """Batches of so many rows."""
    spans = []
    for first in range(0, len(times), rows):
        held = times[first : first + rows]
        spans.append(Made(node, first, first + len(held), min(held), max(held), len(held) * bytes_a_row))
    return spans


def after(spans: list[Made], first: int) -> Iterator[Made]:
    return (span for span in spans if span.end > first)


class Watermark:
    """As Spark does it: the newest time of earlier batches less a delay; rows before it are dropped."""

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._newest: int | None = None
        self.late = 0
        self.rows = 0

    def batch(self, times: list[int]) -> None:
        if self._newest is not None:
            self.late += sum(time < self._newest - self._delay for time in times)
        self.rows += len(times)
        self._newest = max([*times, self._newest or 0])


def replay(events: dict[str, list[int]], *, rows: int, aligned: bool) -> Watermark:
    """Reads a backlog to its end, so many rows a trigger."""
    spans = {node: spans_of(node, times, 512) for node, times in events.items()}
    watermark = Watermark(5 * SECOND)
    start: Offsets = {}
    while True:
        backlog = {node: len(times) - start.get(node, 0) for node, times in events.items()}
        pending = {node: after(spans[node], start.get(node, 0)) for node in events if backlog[node]}
        end = admit(start, pending, Budget(rows), backlog=None if aligned else backlog)
        if end == start:
            return watermark
        watermark.batch([time for node in end for time in events[node][start.get(node, 0) : end[node]]])
        start = end


def two_nodes() -> dict[str, list[int]]:
    """Node b joined 60 s later; about 1000 events a second each."""
    random = Random(25)
    times_a = sorted(random.randrange(120 * SECOND) for _ in range(120_000))
    times_b = sorted(60 * SECOND + random.randrange(60 * SECOND) for _ in range(60_000))
    return {"a@1": times_a, "b@2": times_b}


def test_without_alignment_a_backlog_comes_late() -> None:
    watermark = replay(two_nodes(), rows=20_000, aligned=False)
    assert watermark.rows == 180_000
    assert watermark.late > 40_000


def test_with_alignment_nothing_of_a_backlog_comes_late() -> None:
    watermark = replay(two_nodes(), rows=20_000, aligned=True)
    assert watermark.rows == 180_000
    assert watermark.late == 0


@pytest.mark.parametrize("rows", [100, 700, 5_000])
def test_alignment_holds_for_any_number_of_rows_a_trigger(rows: int) -> None:
    events = {"a@1": [n * 1000 for n in range(20_000)], "b@1": [7 * SECOND + n * 3000 for n in range(4_000)]}
    watermark = replay(events, rows=rows, aligned=True)
    assert (watermark.rows, watermark.late) == (24_000, 0)


def test_a_live_backlog_of_one_node_waits_for_the_other() -> None:
    """Node b writes 3 s behind node a. Its rows are within the watermark only because a's newest wait for them."""
    watermark = Watermark(SECOND)
    waits = Watermark(SECOND)
    for mark, held in ((watermark, False), (waits, True)):
        start: Offsets = {}
        for now in range(10, 100):
            times = {"a@1": [n * SECOND // 10 for n in range(now * 10)], "b@1": [n * SECOND for n in range(now - 3)]}
            spans = {node: spans_of(node, some, 10 if node == "a@1" else 1) for node, some in times.items()}
            progress = {node: Extent(0, len(some), False, some[-1], 0) for node, some in times.items()}
            until = frontier(progress, now=now * SECOND, max_wait=10 * SECOND, within=0) if held else None
            pending = {node: after(spans[node], start.get(node, 0)) for node in spans}
            end = admit(start, pending, Budget(), frontier=until)
            mark.batch([time for node in end for time in times[node][start.get(node, 0) : end[node]]])
            start = end
    assert watermark.late > 50
    assert waits.late == 0


NOW = 1_000 * SECOND


def progress_of(*newest: float, ended: tuple[int, ...] = ()) -> dict[str, Extent]:
    return {
        f"n{number}@1": Extent(0, 1, number in ended, int(NOW + at * SECOND), 0) for number, at in enumerate(newest)
    }


@pytest.mark.parametrize(
    ("nodes", "held_at"),
    [
        (progress_of(0), None),
        (progress_of(-1, -3), -3.0),
        # silent for longer than the wait, by the clock and by the other's events
        (progress_of(-1, -11), -1.0),
        (progress_of(-30, -35), None),
        # ended in order
        (progress_of(-1, -3, ended=(1,)), -1.0),
        (progress_of(-1, -3, ended=(0, 1)), None),
        # a clock that is an hour ahead: the others do not hold it back for an hour
        (progress_of(-1, -3, 3600), 3600.0),
        (progress_of(-1, -3, 5), -3.0),
    ],
)
def test_who_is_waited_for(nodes: dict[str, Extent], held_at: float | None) -> None:
    until = frontier(nodes, now=NOW, max_wait=10 * SECOND, within=0)
    assert until == (None if held_at is None else NOW + int(held_at * SECOND))


def test_which_keys_are_of_nodes_that_started_anew() -> None:
    assert superseded(["a@10", "a@9", "b@3"]) == {"a@9"}


def test_a_trigger_takes_no_more_rows_or_bytes_than_allowed() -> None:
    spans = spans_of("a@1", list(range(1000)), 100, bytes_a_row=10)
    assert admit({}, {"a@1": after(spans, 0)}, Budget(rows=250)) == {"a@1": 250}
    assert admit({"a@1": 250}, {"a@1": after(spans, 250)}, Budget(rows=10)) == {"a@1": 260}
    assert admit({}, {"a@1": after(spans, 0)}, Budget(size=1500)) == {"a@1": 150}
    assert admit({"a@1": 150}, {"a@1": after(spans, 150)}, Budget(rows=900, size=1500)) == {"a@1": 300}
    assert admit({}, {"a@1": after(spans, 0)}, Budget()) == {"a@1": 1000}


def test_a_trigger_takes_rows_of_no_more_files_than_allowed() -> None:
    spans = {
        node: [Made(node, n * 10, n * 10 + 10, n, n, 0, f"{node}-{n // 3}") for n in range(first, 9)]
        for node, first in (("a@1", 0), ("b@1", 3))
    }

    def end(files: int, start: dict[str, int]) -> dict[str, int]:
        pending = {node: after(some, start.get(node, 0)) for node, some in spans.items()}
        return admit(start, pending, Budget(files=files))

    assert end(1, {}) == {"a@1": 30}
    assert end(1, {"a@1": 15}) == {"a@1": 30}, "what is left of a file"
    assert end(2, {}) == {"a@1": 40}, "b's rows are next, and in a third file"
    assert end(3, {}) == {"a@1": 60, "b@1": 60}
    assert end(9, {}) == {"a@1": 90, "b@1": 90}


def test_a_row_that_is_larger_than_allowed_is_taken_all_the_same() -> None:
    spans = [Made("a@1", 0, 1, 0, 0, 5000), Made("a@1", 1, 2, 1, 1, 5000)]
    assert admit({}, {"a@1": after(spans, 0)}, Budget(size=100)) == {"a@1": 1}
    assert admit({"a@1": 1}, {"a@1": after(spans, 1)}, Budget(size=100)) == {"a@1": 2}


def test_a_clock_that_was_set_back_stops_nobody() -> None:
    spans = {
        "a@1": [Made("a@1", 0, 1, 100, 100), Made("a@1", 1, 2, 5, 5), Made("a@1", 2, 3, 120, 120)],
        "b@1": [Made("b@1", 0, 1, 90, 110)],
    }
    taken: list[Offsets] = [{}]
    for _ in range(4):
        start = taken[-1]
        taken.append(admit(start, {node: after(some, start.get(node, 0)) for node, some in spans.items()}, Budget(1)))
    assert taken[1:] == [{"a@1": 1}, {"a@1": 2}, {"a@1": 2, "b@1": 1}, {"a@1": 3, "b@1": 1}]


def test_a_node_whose_first_rows_are_gone_begins_at_those_that_are_there() -> None:
    spans = [Made("a@1", 50, 60, 0, 9)]
    assert admit({"a@1": 20}, {"a@1": iter(spans)}, Budget()) == {"a@1": 60}


def rows_of(ranges: list[Range]) -> list[int]:
    return [row for part in ranges for first, end in part.runs for row in range(first, end)]


def test_ranges_cover_every_row_once_and_are_about_even() -> None:
    spans = spans_of("a@1", list(range(10_000)), 64)
    ranges = split("a@1", after(spans, 100), 100, 9_900, rows=3_000, size=10**9, window=ANY)
    assert rows_of(ranges) == list(range(100, 9_900))
    assert len(ranges) == 4
    assert all(abs(part.rows - 2_450) <= 64 for part in ranges)


def test_bytes_bound_a_range_as_rows_do() -> None:
    spans = spans_of("a@1", list(range(1_000)), 10, bytes_a_row=100)
    ranges = split("a@1", spans, 0, 1_000, rows=10**6, size=10_000, window=ANY)
    assert len(ranges) == 10
    assert rows_of(ranges) == list(range(1_000))


def test_a_span_that_is_larger_than_a_range_is_cut() -> None:
    ranges = split("a@1", [Made("a@1", 0, 1_000_000, 0, 1, 10)], 0, 1_000_000, rows=300_000, size=100, window=ANY)
    assert [part.rows for part in ranges] == [250_000] * 4
    assert split("a@1", [Made("a@1", 0, 2, 0, 1, 1000)], 0, 2, rows=10, size=100, window=ANY) == [
        Range("a@1", ((0, 1),)),
        Range("a@1", ((1, 2),)),
    ]


def test_spans_outside_of_the_window_are_not_read() -> None:
    spans = spans_of("a@1", list(range(100)), 10)
    (part,) = split("a@1", spans, 0, 100, rows=1000, size=10**6, window=Window(35, 71))
    assert part.runs == ((30, 80),)
    (part,) = split("a@1", spans, 0, 100, rows=1000, size=10**6, window=Window(None, 10))
    assert part.runs == ((0, 10),)
    assert split("a@1", spans, 0, 100, rows=1000, size=10**6, window=Window(100, None)) == []


def test_rows_that_no_span_has_are_read_so_that_their_loss_shows() -> None:
    spans = [Made("a@1", 10, 20, 0, 9, 10), Made("a@1", 30, 40, 20, 29, 10)]
    (part,) = split("a@1", spans, 0, 50, rows=1000, size=10**6, window=ANY)
    assert part == Range("a@1", ((0, 50),))
    assert split("a@1", [], 5, 9, rows=1000, size=10**6, window=ANY) == [Range("a@1", ((5, 9),))]


def test_nothing_is_no_range() -> None:
    assert split("a@1", [], 5, 5, rows=1000, size=10**6, window=ANY) == []
