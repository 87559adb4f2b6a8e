import io
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing
from rich.console import Console

from trunkline.analytics.demo.running import PATIENCE, Demo, Settings, muted, present
from trunkline.analytics.demo.streams import Plan
from trunkline.analytics.report.results import Results
from trunkline.events.reader import EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trunkline.analytics.demo.reference import Rows


@pytest.fixture
async def console() -> Console:
    return Console(file=io.StringIO(), width=200)


async def test_everything_at_once(spark: "SparkSession", console: Console, tmp_path: Path) -> None:
    """The main line: a real broker, real sockets, the event log, streams, results by MQTT, the report."""
    plan = Plan(window=2.0, within=1.0)
    html = tmp_path / "out" / "report.html"
    html.parent.mkdir()
    settings = Settings(folder=tmp_path, duration=10.0, rate=100.0, seed=3, plan=plan)
    outcome, results = await present(settings, spark, console, html)
    checks = {check.job: check for check in outcome.checks}
    assert [str(check) for check in outcome.checks if not check.good] == []
    assert (
        checks["latency"].equal >= 15
    )  # six groups in each of five windows, but for windows in which some have nothing
    assert checks["traffic"].equal >= 5 * 8
    assert checks["flapping"].equal >= 2
    _assert_same(results, [row for row in _rows(outcome.log) if _microseconds(row) < outcome.until])
    page = html.read_text(encoding="utf-8")
    assert "gateway-worse" in page
    assert 'id="traffic-messages"' in page
    assert [path.name for path in html.parent.iterdir()] == ["report.html"]
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "to what plain Python computes from the same" in said
    assert str(html) in said


class Silent:
    """Shows nothing; counts."""

    def show(self, progress: object) -> None:
        pass


async def drained(console: Console, tmp_path: Path, rows: int, every: float) -> float:
    """Seconds until nothing is waited for any more, with one result each so many seconds, and one that never comes."""
    settings = Settings(folder=tmp_path, plan=Plan(window=2.0, within=1.0))
    demo = Demo(settings, cast("Any", None), console)
    expected: dict[str, Rows] = {job: {} for job in demo._received.rows}
    expected["latency"] = {(number,): {} for number in range(rows + 1)}

    async def come() -> None:
        for number in range(rows):
            await trio.sleep(every)
            demo._received.rows["latency"][(number,)] = {}

    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(come)
        await demo._drain(expected, [], cast("Any", Silent()))
    return trio.current_time() - begin


async def test_results_are_waited_for_as_long_as_some_come(
    console: Console, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    patience = PATIENCE + 2 * 2.0 + 1.0
    assert patience <= await drained(console, tmp_path, 0, 1.0) < patience + 2
    assert patience + 500 <= await drained(console, tmp_path, 10, 50.0) < patience + 502


def _rows(log: Path) -> list[dict[str, Any]]:
    reading = EventLog(log)
    reading.refresh()
    return [
        row
        for node, extent in reading.nodes().items()
        for batch in reading.read(node, extent.first, extent.end)
        for row in batch.to_pylist()
    ]


def _microseconds(row: dict[str, Any]) -> int:
    return round(row["time"].timestamp() * 1_000_000)


def _assert_same(results: Results, rows: list[dict[str, Any]]) -> None:
    """The report's sums are those of the events."""
    kinds = Counter(row["kind"] for row in rows)
    published = [row for row in rows if row["kind"] == "message.publish"]
    assert sum(row.received for row in results.traffic) == kinds["message.publish"] > 0
    assert sum(row.received_bytes for row in results.traffic) == sum(row["size"] for row in published)
    assert sum(row.delivered for row in results.traffic) == kinds["message.delivered"] > 0
    assert sum(row.connected for row in results.churn) == kinds["client.connected"] > 0
    assert sum(row.disconnected for row in results.churn) == kinds["client.disconnected"]
    refused = sum(row["kind"] == "client.connack" and row["reason_code"] != 0 for row in rows)
    assert sum(row.refused for row in results.churn) == refused > 0
    drops = Counter(row["reason"] for row in rows if row["kind"] == "message.dropped")
    found = Counter[str]()
    for drop in results.drops:
        found[drop.reason] += drop.messages
    assert found == drops
    assert results.denied == refused + drops["not_authorized"] == sum(row.times for row in results.denials)
    topics = Counter(row["topic"] for row in published)
    assert {row.name: row.messages for row in results.topics} == dict(topics)
    assert {row.name: row.messages for row in results.clients} == Counter(row["client_id"] for row in published)
    assert sum(row.deliveries for row in results.latency) == kinds["message.delivered"]
    assert {row.client_id for row in results.flapping} == {"gateway-flaps", "gateway-worse"}
    lengths = [row["queue_length"] for row in rows if row["kind"] == "session.stats"]
    assert max(row.length for row in results.queues) == max(lengths)
    (health,) = results.health
    assert (health.missing, health.dropped, health.corrupt, health.end) == (0, 0, 0, "stopped")
    assert health.events >= len(rows)


def test_what_others_write_past_python_goes_into_a_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with muted(log):
        os.write(2, b"hidden\n")
    os.write(2, b"")
    assert log.read_bytes() == b"hidden\n"
