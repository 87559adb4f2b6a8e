"""Checks a whole log file by file, and reports all problems."""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trunkline.events.arrow_segment import ArrowSegment
from trunkline.events.layout import DATA, LogError, NodeKey
from trunkline.events.notices import without_other
from trunkline.events.parquet_segment import ParquetSegment
from trunkline.events.parquet_target import is_compacted
from trunkline.events.projection import Projection
from trunkline.events.reader import EventLog, Segment
from trunkline.events.segment import Damage, Part, Rows


class LogProblem(StrEnum):
    #: Rows exist but cannot be read.
    CORRUPT = "corrupt"
    #: Rows are missing before this file.
    GAP = "gap"
    #: Rows are older or newer than their index record says, so that a search by time may miss them.
    TIMES = "times"
    #: Rows are in the file and not in its index, or in the index of a file that is gone, so that nobody reads them.
    UNINDEXED = "unindexed"
    #: Another file of the same kind has some of the rows too; each row is still read once.
    OVERLAP = "overlap"
    #: The file cannot be read as it is: a column has an impossible type, a later version wrote it, or it does not open.
    UNREADABLE = "unreadable"


class LogFinding(NamedTuple):
    problem: LogProblem
    path: str
    node: str
    #: The rows concerned: [first, end).
    first: int
    end: int
    #: For people.
    text: str


class Checked(NamedTuple):
    """One checked file."""

    path: str
    node: str
    first: int
    end: int
    findings: tuple[LogFinding, ...]


def check(log: EventLog) -> Iterator[Checked]:
    """Reads all of the log, a file at a time: its checksums, its numbers of rows, its times. Of files that vanish
    meanwhile, because others compact or clear up, those are read that have their rows.

    Raises OSError if the directories cannot be reached.
    """
    log.refresh()
    for key, _ in log.segments():
        yield from _check_node(log, key)
    yield from _without_other(log)


def _check_node(log: EventLog, key: NodeKey) -> Iterator[Checked]:
    #: By kind: rows may be in a segment, in a merged file and in a compacted one.
    ends: dict[str, int] = {}
    seen: set[str] = set()
    left = deque(dict(log.segments()).get(key, ()))
    while left:
        segment = left.popleft()
        seen.add(segment.path)
        try:
            found = _check(key, segment)
        except FileNotFoundError:
            log.refresh()
            there = dict(log.segments()).get(key, ())
            left = deque(one for one in there if one.path not in seen)
            if all(one.first > segment.first for one in there):  # the oldest rows are deleted
                ends.clear()
            continue
        kind = _kind(segment)
        before = ends.get(kind)
        if found.first == found.end and not found.findings:
            continue
        found = found._replace(
            findings=(*_continuity(found, before, max(ends.values(), default=None)), *found.findings)
        )
        ends[kind] = max(before or 0, found.end)
        yield found
        segment.forget()


def _kind(segment: Segment) -> str:
    if isinstance(segment, ArrowSegment):
        return "segment"
    return "compacted" if is_compacted(segment.files) else "merged"


def _without_other(log: EventLog) -> Iterator[Checked]:
    log.refresh()
    for key in log.files():
        for files, rows in without_other(log, key):
            node, path, first = str(key), files.paths[0], files.first
            gone = "index" if path.endswith(DATA) else "data file"
            text = f"its {gone} is gone: {rows} rows are not read"
            finding = LogFinding(LogProblem.UNINDEXED, path, node, first, first + rows, text)
            yield Checked(path, node, first, first + rows, (finding,))


def _check(key: NodeKey, segment: Segment) -> Checked:
    node = str(key)
    findings: list[LogFinding] = []
    first = end = segment.first
    projection = Projection(None)
    try:
        end = segment.end
        for part in segment.parts(first, end):
            oldest: list[int] = []
            newest: list[int] = []
            whole = True
            for piece in segment.read(key, part.first, part.end, projection, verify=True):
                if isinstance(piece, Damage):
                    findings.append(
                        LogFinding(LogProblem.CORRUPT, segment.path, node, piece.first, piece.end, piece.reason)
                    )
                    whole = False
                    continue
                if (wrong := _invalid(piece)) is not None:
                    findings.append(LogFinding(LogProblem.CORRUPT, segment.path, node, piece.first, piece.end, wrong))
                times = piece.batch.column("time").cast(pa.int64())
                if times.null_count < len(times):
                    oldest.append(pc.min(times).as_py())
                    newest.append(pc.max(times).as_py())
            if whole and oldest and not _within(min(oldest), max(newest), part):
                text = (
                    f"its rows are of {min(oldest)} to {max(newest)} µs, and it says {part.min_time} to {part.max_time}"
                )
                findings.append(LogFinding(LogProblem.TIMES, segment.path, node, part.first, part.end, text))
        if isinstance(segment, ArrowSegment) and (behind := segment.unindexed()):
            text = f"its index ends before it does: {behind} rows are not read"
            findings.append(
                LogFinding(LogProblem.UNINDEXED, segment.path, node, segment.end, segment.end + behind, text)
            )
        if isinstance(segment, ParquetSegment) and not findings and (wrong := segment.misplaced(key)) is not None:
            findings.append(LogFinding(LogProblem.CORRUPT, segment.path, node, first, end, wrong))
    except FileNotFoundError:
        raise
    except (LogError, OSError) as error:
        findings.append(LogFinding(LogProblem.UNREADABLE, segment.path, node, first, end, str(error)))
    return Checked(segment.path, node, first, end, tuple(_together(findings)))


def _together(findings: list[LogFinding]) -> Iterator[LogFinding]:
    """A truncated file has one problem, not one for each missing batch."""
    run: LogFinding | None = None
    for each in findings:
        if run is not None and run._replace(first=each.first, end=each.end) == each and run.end == each.first:
            run = run._replace(end=each.end)
            continue
        if run is not None:
            yield run
        run = each
    if run is not None:
        yield run


def _within(oldest: int, newest: int, part: Part) -> bool:
    return (part.min_time is None or part.min_time <= oldest) and (part.max_time is None or newest <= part.max_time)


def _invalid(rows: Rows) -> str | None:
    try:
        rows.batch.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"its contents are not rows: {error}"
    return None


def _continuity(found: Checked, same: int | None, reached: int | None) -> Iterator[LogFinding]:
    """`same` is how far files of its kind went before, `reached` how far any did. The oldest file may begin anywhere:
    what was before has been deleted."""
    if same is not None and found.first < same:
        text = f"rows {found.first} to {same - 1} are in the previous file too"
        yield LogFinding(LogProblem.OVERLAP, found.path, found.node, found.first, same, text)
    if reached is not None and found.first > reached:
        text = f"rows {reached} to {found.first - 1} are in no file"
        yield LogFinding(LogProblem.GAP, found.path, found.node, reached, found.first, text)
