"""The audit in Spark: the same findings as without, and what readers have left to do."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import INCARNATION, at, collected, frame, made, microseconds, row, stream, table
from tests.analytics.jobs.test_records import SILENCE, as_read, damaged, plainly, summed
from tests.analytics.jobs.test_records import audit as by_auditor
from trunkline.analytics.options import OptionError
from trunkline.events.layout import LogError, NodeKey
from trunkline.events.positions import Positions
from trunkline.events.schema import STORED
from trunkline.events.writer import LogWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from trunkline.analytics.jobs.audit import AuditOptions, Processor, audit, audited, in_runs, of_log
from trunkline.analytics.jobs.records import AuditFinding, runs


def findings(rows: list[Any]) -> list[AuditFinding]:
    """From rows of results."""
    made = []
    for one in rows:
        values = one if isinstance(one, dict) else one.asDict()
        for name in ("since", "until"):
            if values[name] is not None and not isinstance(values[name], int):
                values[name] = microseconds(values[name].replace(tzinfo=at(0).tzinfo))
        made.append(AuditFinding(**values))
    return made


def test_the_processor_keeps_the_auditor_between_batches() -> None:
    events = as_read(table(row("node.tick", float(number)) for number in range(30)))
    tester = TwsTester(Processor(SILENCE, 0))
    batches = [events.slice(0, 10), events.slice(12, 10), events.slice(21, 9)]
    found = [findings(tester.test(0, [Row(**run._asdict()) for run in runs(batch, SILENCE)])) for batch in batches]
    assert [[(one.check, one.seq, one.rows) for one in those] for those in found] == [
        [],
        [("gap", 10, 2)],
        [("duplicate", 21, 1)],
    ]
    ((kept,),) = [tester.peekValueState("auditor", 0)]
    assert json.loads(kept)[1] == []


def test_recorded_events_pass_two_steps() -> None:
    rows = table(damaged())
    steps = audited(SILENCE, in_runs(SILENCE, as_read(rows).to_batches(max_chunksize=1000)))
    found = [AuditFinding(**one) for batch in steps for one in batch.to_pylist()]
    assert summed(found, rows.to_pylist()) == plainly(rows.to_pylist())
    assert list(audited(SILENCE, iter([]))) == []
    assert list(in_runs(SILENCE, as_read(table([])).to_batches())) == []


def written(root: Path, name: str = "n1") -> str:
    """A log of 3 batches of 10 rows, a second apart; its node key."""
    writer = LogWriter(root, name, INCARNATION)
    events = table(row("node.tick", float(number)) for number in range(30)).select(STORED.names)
    for first in range(0, 30, 10):
        batch = events.slice(first, 10).combine_chunks().to_batches()[0]
        writer.append(batch, microseconds(at(first)), microseconds(at(first + 9)))
    writer.close()
    return str(writer.key)


def test_how_far_readers_are_behind_and_what_could_not_be_written(tmp_path: Path) -> None:
    key = written(tmp_path)
    Positions(tmp_path, "lake").write({key: 30})
    Positions(tmp_path, "slow").write({key: 12})
    Positions(tmp_path, "new").write({})
    letters = tmp_path / "deadletter"
    letters.mkdir()
    (letters / f"{key}.jsonl").write_text("{}\n{}\n")
    found = list(of_log(str(tmp_path)))
    end = microseconds(at(29))
    assert [(one.consumer, one.seq, one.rows, one.since, one.until, one.seconds) for one in found[:-1]] == [
        ("lake", 30, 0, end, end, 0.0),
        ("new", 0, 30, microseconds(at(0)), end, 29.0),
        # to the batch
        ("slow", 12, 18, microseconds(at(10)), end, 19.0),
    ]
    assert found[-1] == AuditFinding("dead_letters", False, "n1", INCARNATION, rows=2)
    (tmp_path / "consumers" / "slow.json").write_text("{")
    [damaged] = [one for one in of_log(str(tmp_path)) if one.check == "unreadable"]
    assert (damaged.ok, damaged.consumer) == (False, "slow")
    assert "slow.json" in str(damaged.reason)
    next(tmp_path.rglob("*.idx")).unlink()
    assert next(of_log(str(tmp_path))) == AuditFinding("unread", False, "n1", INCARNATION, seq=0, rows=30)
    with pytest.raises(LogError):
        list(of_log("nothing://there"))
    assert list(of_log("mock://bucket/events")) == []


def test_each_log_of_a_pattern_has_consumers_of_its_own(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        key = written(tmp_path / name, name)
        Positions(tmp_path / name, "lake").write({key: 30 if name == "n1" else 12})
        (tmp_path / name / "deadletter").mkdir()
        (tmp_path / name / "deadletter" / f"{NodeKey.parse(key).encoded}.jsonl").write_text("{}\n")
    found = [(one.check, one.node, one.rows) for one in of_log(str(tmp_path / "n*"))]
    assert found == [("lag", "n1", 0), ("dead_letters", "n1", 1), ("lag", "n2", 18), ("dead_letters", "n2", 1)]


def test_dead_letters_are_those_of_their_node_whatever_its_name(tmp_path: Path) -> None:
    key = NodeKey.parse(written(tmp_path, "büro/1"))
    letters = tmp_path / "deadletter"
    letters.mkdir()
    (letters / f"{key.encoded}.jsonl").write_text("{}\n")
    (letters / "others.jsonl").write_text("{}\n")
    assert list(of_log(str(tmp_path))) == [AuditFinding("dead_letters", False, *key, rows=1)]


def test_spark_tells_the_same_as_plain_python(spark: "SparkSession", tmp_path: Path) -> None:
    rows = table(damaged())
    key = written(tmp_path / "log")
    Positions(tmp_path / "log", "lake").write({key: 20})
    options = AuditOptions(root=str(tmp_path / "log"))
    found = findings(audit(frame(spark, rows), options).collect())
    assert [(one.consumer, one.rows) for one in found if one.check == "lag"] == [("lake", 10)]
    assert summed(found, rows.to_pylist()) == plainly(rows.to_pylist())

    with pytest.raises(OptionError, match="no such folder"):
        audit(frame(spark, rows), AuditOptions(root=str(tmp_path / "none")))

    whole = made(1_500)
    events = stream(spark, whole, tmp_path / "in", 2)
    with pytest.raises(OptionError, match="root: is for recorded events"):
        audit(events, options)
    streamed = findings(collected(audit(events, AuditOptions()), tmp_path / "checkpoint"))
    size = -(-whole.num_rows // 2)
    last = table([row("node.tick", max(whole.column("time").to_pylist()).timestamp() - at(0).timestamp() + 3600)])
    parts = [whole.slice(0, size), whole.slice(size), last]
    wanted = by_auditor(*(part.to_pylist() for part in parts), lateness=10_000_000, end=False)
    assert {one.check for one in wanted} == {"dropped", "silence", "silent", "duplicate"}
    assert sorted(map(str, streamed)) == sorted(map(str, wanted))
    assert audit(frame(spark, table([])), AuditOptions()).collect() == []
