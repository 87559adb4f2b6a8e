"""Whether a record is whole, without Spark."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import trio
from trio.testing import MockClock

from tests.analytics.events_made import INCARNATION, Row, at, made, microseconds, row, table
from tests.events.recordings import recorded, recording
from trunkline.analytics.jobs import records
from trunkline.analytics.jobs.records import AuditFinding, Auditor, RowRun, runs

SILENCE = 10_000_000
COLUMNS = ("node", "incarnation", "seq", "at", "kind", "reason", "value")


def as_read(events: pa.Table) -> pa.Table:
    times = pc.cast(events.column("time"), pa.int64())
    return events.append_column("at", times).select(COLUMNS)


def tick(seq: int, time: float, node: str = "n1", kind: str = "node.tick", **columns: Any) -> Row:
    return row(kind, time, node=node, seq=seq, **columns)


def found(rows: Iterable[Row]) -> list[RowRun]:
    return runs(as_read(table(rows)), SILENCE)


def audit(*batches: Iterable[Row], lateness: int = 0, end: bool = True) -> list[AuditFinding]:
    """The findings over several batches, with the state saved after each."""
    findings: list[AuditFinding] = []
    saved = None
    for batch in batches:
        auditor = Auditor(SILENCE, lateness, saved)
        for run in found(batch):
            findings += auditor.add(run)
        findings += auditor.settle()
        saved = json.loads(json.dumps(auditor.save()))
    return [*findings, *Auditor(SILENCE, lateness, saved).end()] if end else findings


def brief(findings: Iterable[AuditFinding]) -> list[tuple[Any, ...]]:
    """Check, node, first row, rows, reason."""
    return [(one.check, one.node, one.seq, one.rows, one.reason) for one in findings]


WHOLE = [tick(number, float(number)) for number in range(10)]


def test_consecutive_rows_are_one_run() -> None:
    assert found(reversed(WHOLE)) == [
        RowRun("n1", INCARNATION, 0, 10, microseconds(at(0)), microseconds(at(9)), None, None, None)
    ]
    assert found([]) == []


def test_a_run_ends_where_rows_are_missing_repeated_silent_or_the_exporters_own() -> None:
    rows = [
        tick(0, 0, kind="exporter.started"),
        tick(1, 1),
        tick(2, 2),
        tick(2, 2),
        tick(3, 12),
        tick(4, 22.000001),
        tick(6, 22.5),
        tick(7, 23, kind="log.lost", value=100.0),
        tick(107, 24),
        tick(0, 24, node="n2"),
        tick(1, 24, node="n2", incarnation=INCARNATION + 1),
    ]
    assert [(run.node, run.first, run.end, run.kind) for run in found(rows)] == [
        ("n1", 0, 1, "exporter.started"),
        ("n1", 1, 3, None),
        ("n1", 2, 4, None),
        ("n1", 4, 5, None),
        ("n1", 6, 7, None),
        ("n1", 7, 107, "log.lost"),
        ("n1", 107, 108, None),
        ("n2", 0, 1, None),
        ("n2", 1, 2, None),
    ]


def test_a_row_that_was_written_late_makes_no_silence() -> None:
    (run,) = found([tick(0, 20), tick(1, 9), tick(2, 21)])
    assert (run.began, run.newest) == (microseconds(at(20)), microseconds(at(21)))


def test_a_whole_record() -> None:
    (finding,) = audit(WHOLE[:4], WHOLE[4:])
    assert finding == AuditFinding(
        "incarnation", True, "n1", INCARNATION, None, 0, 10, microseconds(at(0)), microseconds(at(9)), 9.0, "running"
    )


def test_a_gap_is_told_of_when_later_rows_are_old_enough() -> None:
    first, second, third = WHOLE[:3], WHOLE[5:8], [tick(8, 9.0)]
    gap = ("gap", "n1", 3, 2, None)
    assert brief(audit(first, second, third, lateness=4_000_001, end=False)) == []
    assert brief(audit(first, second, third, lateness=4_000_000, end=False)) == [gap]
    assert brief(audit(first, second, end=False)) == [gap]
    (finding, _) = audit(first, second)
    assert (finding.ok, finding.since) == (False, microseconds(at(5)))


def test_rows_that_fill_a_gap_are_late_and_not_repeated() -> None:
    batches = WHOLE[:3], WHOLE[6:], WHOLE[4:5], WHOLE[3:6], WHOLE[2:3]
    assert brief(audit(*batches)) == [
        ("gap", "n1", 3, 3, None),
        ("late", "n1", 4, 1, None),
        ("late", "n1", 3, 2, None),
        ("duplicate", "n1", 3, 1, None),
        ("duplicate", "n1", 2, 1, None),
        ("incarnation", "n1", 0, 10, "running"),
    ]


def test_rows_before_the_first_one_seen_are_no_repeats() -> None:
    assert brief(audit(WHOLE[5:], WHOLE[:5], lateness=100_000_000)) == [("incarnation", "n1", 0, 10, "running")]


def test_what_the_exporter_and_readers_tell() -> None:
    rows = [
        tick(0, 0, kind="exporter.started"),
        tick(1, 1, kind="exporter.dropped", value=17.0, reason="disk"),
        tick(2, 2, kind="log.corrupt", value=500.0),
        tick(502, 3, kind="log.lost", value=8.0),
        tick(510, 4, kind="exporter.stopped"),
    ]
    assert brief(audit(rows)) == [
        ("dropped", "n1", 1, 17, "disk"),
        ("corrupt", "n1", 2, 500, None),
        ("lost", "n1", 502, 8, None),
        ("incarnation", "n1", 0, 3, "stopped"),
    ]


def test_an_incarnation_without_an_end_was_killed_when_there_is_a_newer_one() -> None:
    again = INCARNATION + 60_000
    newer = [
        tick(0, 60, incarnation=again),
        tick(1, 61, incarnation=again),
        tick(2, 62, kind="exporter.stopped", incarnation=again),
    ]
    told = audit(WHOLE, newer, WHOLE[:2], end=False)
    assert [(one.check, one.incarnation, one.rows, one.reason, one.ok) for one in told] == [
        ("incarnation", INCARNATION, 10, "killed", False),
        ("incarnation", again, 3, "stopped", True),
        # what comes of it now is not looked at
        ("late", INCARNATION, 2, None, True),
    ]


def test_a_node_is_silent_while_others_are_not() -> None:
    other = [tick(number, float(number), node="n2") for number in range(60)]
    told = audit([*WHOLE, *other[:19]], other[19:20], other[20:40], [tick(10, 40.0), *other[40:]])
    silent = ("silent", "n1", None, None, None)
    assert brief(told) == [
        # 10 seconds behind is not too much yet
        silent,
        ("silence", "n1", 10, None, None),
        silent,
        ("incarnation", "n1", 0, 11, "silent"),
        ("incarnation", "n2", 0, 60, "running"),
    ]
    assert [one.seconds for one in told[:3]] == [30.0, 31.0, 19.0]
    assert (told[1].since, told[1].until) == (microseconds(at(9)), microseconds(at(40)))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_PIECES", 5)
    monkeypatch.setattr(records, "MAX_ENDED", 3)
    scattered = [tick(2 * number, float(number)) for number in range(100)]
    auditor = Auditor(SILENCE, 10**12)
    for run in found(scattered):
        list(auditor.add(run))
    assert len([one for one in auditor.settle() if one.check == "gap"]) == 95
    ((_, _, state),), _ = auditor.save()
    assert [len(state[5]), len(state[6])] == [5, 5]
    for number in range(10):
        list(auditor.add(RowRun("n2", number, 0, 1, number, number, "exporter.stopped", None, None)))
    list(auditor.end())
    assert len(auditor.save()[1]) == 3


@cache
def damaged() -> list[Row]:
    """A long record of two nodes from which rows were taken, and in which some are twice; n1 was killed in between."""
    random = Random(7)
    rows = made(6_000).to_pylist()
    for one in rows:
        if one["node"] == "n1" and one["seq"] > 1500:
            one["seq"] -= 1501
            one["incarnation"] += 1000
    lost = {
        (random.choice(["n1", "n2"]), random.randrange(2000) + n)
        for _ in range(40)
        for n in range(random.randrange(1, 4))
    }
    rows = [one for one in rows if (one["node"], one["seq"]) not in lost]
    return rows + random.sample(rows, 60)


def plainly(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Gaps and silences with their places, the rest with how often, row by row."""
    by_key: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for one in rows:
        by_key[one["node"], one["incarnation"]].append(one)
    result: list[tuple[Any, ...]] = []
    for key, those in by_key.items():
        numbers = Counter(one["seq"] for one in those)
        missing = sorted(set(range(min(numbers), max(numbers))) - numbers.keys())
        for _, group in groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
            hole = [number for _, number in group]
            result.append(("gap", *key, hole[0], len(hole)))
        result.append(("duplicate", *key, sum(numbers.values()) - len(numbers)))
        result.append(("dropped", *key, sum(int(one["value"]) for one in those if one["kind"] == "exporter.dropped")))
        newest = None
        for one in sorted(those, key=lambda one: one["seq"]):
            if newest is not None and (one["time"] - newest).total_seconds() > 10:
                result.append(("silence", *key, one["seq"], (one["time"] - newest).total_seconds()))
            newest = max(one["time"], newest or one["time"])
        result.append(("incarnation", *key, len(numbers), min(numbers)))
    return sorted(map(str, result))


def summed(findings: Sequence[AuditFinding], rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Findings as `plainly` has them."""
    sums = {(check, one["node"], one["incarnation"]): 0 for one in rows for check in ("duplicate", "dropped")}
    result: list[tuple[Any, ...]] = []
    for one in findings:
        key = one.check, one.node, one.incarnation
        if key in sums:
            sums[key] += one.rows or 0
        elif one.check == "gap":
            result.append((*key, one.seq, one.rows))
        elif one.check == "silence":
            result.append((*key, one.seq, one.seconds))
        elif one.check == "incarnation":
            result.append((*key, one.rows, one.seq))
    return sorted(map(str, [*result, *((*key, value) for key, value in sums.items())]))


@pytest.mark.parametrize("batches", [1, 7])
def test_a_damaged_record_is_as_in_plain_python(batches: int) -> None:
    rows = damaged()
    ordered = sorted(rows, key=lambda one: (one["incarnation"], one["seq"]))
    wanted = plainly(rows)
    assert len(wanted) > 50
    size = -(-len(rows) // batches)
    parts = [ordered[first : first + size] for first in range(0, len(rows), size)]
    assert summed(audit(*parts), rows) == wanted


async def test_what_a_broker_recorded_is_whole(tmp_path: Path, autojump_clock: MockClock) -> None:
    for name in ("first", "second"):
        async with recording(tmp_path) as here:
            client = await here.client(name)
            for number in range(20):
                await client.publish(f"a/{number}", b"", qos=1)
                await trio.sleep(3)
    rows = [{**dict.fromkeys(COLUMNS), **one} for one in recorded(tmp_path)]
    told = audit(rows)
    assert [(one.check, one.reason, one.ok) for one in told] == [("incarnation", "stopped", True)] * 2
    assert sum(one.rows or 0 for one in told) == len(rows)
    taken = [
        one
        for one in rows
        if (one["incarnation"], one["seq"]) not in ((told[0].incarnation, 7), (told[0].incarnation, 8))
    ]
    assert brief(audit(taken))[0] == ("gap", rows[0]["node"], 7, 2, None)
