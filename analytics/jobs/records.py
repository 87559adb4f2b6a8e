"""What an audit goes by: rows of nodes that follow each other without gaps, and what there is to say when they do not.

Rows are not looked at one by one. A batch of them becomes a few runs, each of consecutive numbers and without long
silence, and only runs are put together.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Rows in which the exporter, or a reader, writes about the record itself; each is a run of its own.
OWN: Final = ("exporter.started", "exporter.stopped", "exporter.dropped", "log.corrupt", "log.lost")
#: Rows that stand for `value` rows from their number on.
STANDS_FOR: Final = ("log.corrupt", "log.lost")
#: Of each incarnation: pieces of the record that are not put together yet, or holes that were reported.
MAX_PIECES: Final = 1000
#: Incarnations that are over and of which all was reported.
MAX_ENDED: Final = 1000


class RowRun(NamedTuple):
    """Consecutive rows of a node, or one of `OWN`. Times are microseconds since the epoch."""

    node: str
    incarnation: int
    #: Rows [first, end).
    first: int
    end: int
    #: Time of the first row, and the newest.
    began: int
    newest: int
    kind: str | None
    reason: str | None
    value: float | None


def runs(batch: pa.RecordBatch | pa.Table, silence: int) -> list[RowRun]:
    """The runs of rows that have node, incarnation, seq, at (microseconds), kind, reason and value.

    Where nothing happened for more than `silence` microseconds, a new run begins.
    """
    order = pc.sort_indices(batch, [("node", "ascending"), ("incarnation", "ascending"), ("seq", "ascending")])
    rows = batch.take(order)
    count = rows.num_rows
    if not count:
        return []
    incarnation, seq, at = (rows.column(name).to_numpy(zero_copy_only=False) for name in ("incarnation", "seq", "at"))
    node = rows.column("node")
    own = pc.is_in(rows.column("kind"), pa.array(OWN)).to_numpy(zero_copy_only=False)
    other = np.ones(count, dtype=bool)
    other[1:] = pc.not_equal(node.slice(1), node.slice(0, count - 1)).to_numpy(zero_copy_only=False)
    other[1:] |= incarnation[1:] != incarnation[:-1]
    newest = at.copy()
    for first, end in pairwise([*np.flatnonzero(other), count]):
        np.maximum.accumulate(at[first:end], out=newest[first:end])
    begins = other | own
    begins[1:] |= own[:-1] | (seq[1:] != seq[:-1] + 1) | (at[1:] - newest[:-1] > silence)
    found: list[RowRun] = []
    firsts = np.flatnonzero(begins)
    heads = rows.select(["node", "kind", "reason", "value"]).take(firsts).to_pylist()
    for head, first, end in zip(heads, firsts, [*firsts[1:], count], strict=True):
        number = int(seq[first])
        after = number + int(end - first)
        if head["kind"] in STANDS_FOR:
            after = number + int(head["value"] or 1)
        found.append(
            RowRun(
                head["node"],
                int(incarnation[first]),
                number,
                after,
                int(at[first]),
                int(at[first:end].max()),
                *((head["kind"], head["reason"], head["value"]) if own[first] else (None, None, None)),
            )
        )
    return found


class AuditFinding(NamedTuple):
    """A row of the audit; see its columns."""

    check: str
    ok: bool
    node: str | None
    incarnation: int | None
    consumer: str | None = None
    seq: int | None = None
    rows: int | None = None
    since: int | None = None
    until: int | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(slots=True)
class _Piece:
    """Rows [first, end), all of which are there, and the time of the first."""

    first: int
    end: int
    began: int


class Incarnation:
    """The record of one incarnation of a node."""

    def __init__(self, node: str, number: int, saved: list[Any] | None = None) -> None:
        self.node = node
        self.number = number
        self.rows = 0
        self.since = 0
        self.newest = 0
        self.stopped = False
        #: It was reported silent, and no row has come since.
        self.is_silent = False
        self._pieces: list[_Piece] = []
        #: Reported holes, in which rows may still turn up.
        self._reported: list[list[int]] = []
        if saved is not None:
            self.rows, self.since, self.newest, self.stopped, self.is_silent, pieces, self._reported = saved
            self._pieces = [_Piece(*piece) for piece in pieces]

    def save(self) -> list[Any]:
        pieces = [[*astuple(piece)] for piece in self._pieces]
        return [
            self.node,
            self.number,
            [self.rows, self.since, self.newest, self.stopped, self.is_silent, pieces, self._reported],
        ]

    def finding(self, check: str, ok: bool, **more: Any) -> AuditFinding:
        return AuditFinding(check, ok, self.node, self.number, **more)

    def add(self, run: RowRun, silence: int) -> Iterator[AuditFinding]:
        pieces = self._pieces
        if pieces and run.first >= pieces[-1].end and run.began - self.newest > silence:
            yield self.finding(
                "silence",
                False,
                since=self.newest,
                until=run.began,
                seconds=(run.began - self.newest) / 1e6,
                seq=run.first,
            )
        self.since = min(self.since, run.began) if pieces else run.began
        if run.newest > self.newest:
            self.newest = run.newest
            self.is_silent = False
        self.stopped |= run.kind == "exporter.stopped"
        twice = self._place(run)
        late = self._fill(run) if twice else 0
        if late:
            yield self.finding("late", True, seq=run.first, rows=late, since=run.began)
        if twice - late:
            yield self.finding("duplicate", False, seq=run.first, rows=twice - late, since=run.began)
        self.rows += run.end - run.first - (twice - late) if run.kind not in STANDS_FOR else 0

    def _place(self, run: RowRun) -> int:
        """Puts it to the others; the number of rows that were there."""
        pieces = self._pieces
        if pieces and run.first == pieces[-1].end:  # nearly always
            pieces[-1].end = run.end
            return 0
        twice = sum(max(0, min(piece.end, run.end) - max(piece.first, run.first)) for piece in pieces)
        pieces.append(_Piece(run.first, run.end, run.began))
        pieces.sort(key=attrgetter("first", "end"))
        together = pieces[:1]
        for piece in pieces[1:]:
            if piece.first <= together[-1].end:
                together[-1].end = max(piece.end, together[-1].end)
            else:
                together.append(piece)
        self._pieces = together
        return twice

    def _fill(self, run: RowRun) -> int:
        """How many of its rows fill holes that were reported, which are closed by that."""
        late = 0
        left: list[list[int]] = []
        for first, end in self._reported:
            inside = max(first, run.first), min(end, run.end)
            if inside[0] >= inside[1]:
                left.append([first, end])
                continue
            late += inside[1] - inside[0]
            left += [hole for hole in ([first, inside[0]], [inside[1], end]) if hole[0] < hole[1]]
        self._reported = left
        return late

    def report_holes(self, until: float) -> Iterator[AuditFinding]:
        """Holes behind which rows follow that are as old as `until`, or all when there are too many pieces."""
        pieces = self._pieces
        excess = len(pieces) - MAX_PIECES
        while len(pieces) > 1 and (pieces[1].began <= until or excess > 0):
            first, end = pieces[0].end, pieces[1].first
            yield self.finding("gap", False, seq=first, rows=end - first, since=pieces[1].began)
            self._reported.append([first, end])
            pieces[1].first = pieces[0].first
            pieces[1].began = pieces[0].began
            del pieces[0]
            excess -= 1
        del self._reported[:-MAX_PIECES]

    def over(self, reason: str) -> AuditFinding:
        first = self._pieces[0].first if self._pieces else None
        return self.finding(
            "incarnation",
            reason in ("stopped", "running"),
            seq=first,
            rows=self.rows,
            since=self.since,
            until=self.newest,
            seconds=(self.newest - self.since) / 1e6,
            reason=reason,
        )


class Auditor:
    """Puts the runs of all nodes together; times are microseconds."""

    def __init__(self, silence: int, lateness: int, saved: list[Any] | None = None) -> None:
        self._silence = silence
        self._lateness = lateness
        self._known: dict[tuple[str, int], Incarnation] = {}
        self._over: list[tuple[str, int]] = []
        if saved is not None:
            known, over = saved
            self._known = {(node, number): Incarnation(node, number, state) for node, number, state in known}
            self._over = [(node, number) for node, number in over]

    def save(self) -> list[Any]:
        return [[incarnation.save() for incarnation in self._known.values()], [*map(list, self._over)]]

    def add(self, run: RowRun) -> Iterator[AuditFinding]:
        """A run; runs of an incarnation in the order of their rows, as far as there is one."""
        key = run.node, run.incarnation
        if key in self._over:
            yield AuditFinding("late", True, *key, seq=run.first, rows=run.end - run.first, since=run.began)
            return
        incarnation = self._known.get(key)
        if incarnation is None:
            incarnation = self._known[key] = Incarnation(*key)
        yield from incarnation.add(run, self._silence)
        count = int(run.value or 0)
        if run.kind == "exporter.dropped":
            yield incarnation.finding("dropped", False, seq=run.first, rows=count, since=run.began, reason=run.reason)
        elif run.kind in STANDS_FOR:
            check = run.kind.removeprefix("log.")
            yield incarnation.finding(check, False, seq=run.first, rows=run.end - run.first, since=run.began)

    def settle(self) -> Iterator[AuditFinding]:
        """What can be said when all is read up to about the same time."""
        now = max((one.newest for one in self._known.values()), default=0)
        latest = self._latest()
        for key, one in list(self._known.items()):
            yield from one.report_holes(one.newest - self._lateness)
            superseded = latest[one.node] is not one
            if superseded or one.stopped:
                if now - one.newest >= self._lateness:
                    yield from self._end(key, one, "stopped" if one.stopped else "killed")
            elif now - one.newest > self._silence and not one.is_silent:
                one.is_silent = True
                yield one.finding("silent", False, since=one.newest, seconds=(now - one.newest) / 1e6)

    def _end(self, key: tuple[str, int], one: Incarnation, reason: str) -> Iterator[AuditFinding]:
        yield from one.report_holes(float("inf"))
        yield one.over(reason)
        del self._known[key]
        self._over.append(key)
        del self._over[:-MAX_ENDED]

    def end(self) -> Iterator[AuditFinding]:
        """No more rows will come."""
        latest = self._latest()
        for key, one in list(self._known.items()):
            reason = "silent" if one.is_silent else "running"
            if one.stopped:
                reason = "stopped"
            elif latest[one.node] is not one:
                reason = "killed"
            yield from self._end(key, one, reason)

    def _latest(self) -> dict[str, Incarnation]:
        return {one.node: one for one in sorted(self._known.values(), key=attrgetter("number"))}
