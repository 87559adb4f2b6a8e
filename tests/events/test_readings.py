"""What the log holds for its judges: limits, what was there before, and figures that hold until the next."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room
from tests.events.recordings import Row, all_bytes, recorded, recording
from trunkline import __version__
from trunkline.events import readings
from trunkline.events.plugin import EventsSettings
from trunkline.events.readings import Readings
from trunkline.events.schema import Flag


def of(rows: list[Row], **values: object) -> list[Row]:
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


async def test_the_limits_of_the_broker(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {
        "session": {"max_queue_length": 7},
        "limits": {"max_connections": 50},
        "retained": {"max_messages": 0},
        "zones": {"plant": {"max_inflight": 3}},
    }
    async with recording(tmp_path, **settings):
        await trio.sleep(11)
    limits = {row["name"]: row["value"] for row in recorded(tmp_path, "node.limit")}
    assert limits["session.max_queue_length"] == 7
    assert limits["zones.plant.max_inflight"] == 3
    assert limits["mqtt.max_packet_size"] == 10_485_760
    assert "zones.plant.max_queue_length" not in limits
    stats = {row["name"]: row.get("value_limit") for row in recorded(tmp_path, "node.stats")}
    assert (stats["connections.count"], stats["retained.count"], stats["messages.received"]) == (50, None, None)
    assert (stats["process.files"] or 0) > 10


async def test_what_is_recorded_and_by_which_version(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(
        tmp_path, {"kinds": ["message.publish", "alarm.*"], "topics": ["a/#"], "heartbeat": 60, "stats": 600}
    ):
        for _ in range(2):
            await trio.sleep(43_250)
    told = [(row["name"], row["reason"]) for row in recorded(tmp_path, "exporter.records")]
    assert told == [(name, "topics") for name in ("message.publish", "alarm.activated", "alarm.deactivated")] * 2
    assert [row["name"] for row in recorded(tmp_path, "node.version")] == [__version__] * 2


@pytest.mark.usefixtures("threadless")
async def test_what_was_there_when_recording_began(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, {"clients": ["a*"]}) as here:
        await here.admin.plugins.disable("events")
        for name in ("ann", "bob"):
            client = await here.stay(name)
            await client.subscribe((f"{name}/#", 1), ("$share/g/x", 0))
        here.admin.alarms.activate("hot", "too hot")
        await here.admin.plugins.enable("events", EventsSettings(path=tmp_path, clients=("a*",)))
        await trio.sleep(1)
        here.admin.alarms.deactivate("hot")
    subscriptions = recorded(tmp_path, "session.subscription")
    assert [(row["client_id"], row["filter"], row["qos"]) for row in subscriptions] == [
        ("ann", "ann/#", 1),
        ("ann", "$share/g/x", 0),
    ]
    assert not recorded(tmp_path, "session.subscribed")
    alarms = recorded(tmp_path, "alarm.active", "alarm.activated", "alarm.deactivated")
    assert [(row["kind"], row["name"], row["reason"]) for row in alarms] == [
        ("alarm.active", "hot", "too hot"),
        ("alarm.deactivated", "hot", "too hot"),
    ]


@pytest.mark.usefixtures("threadless")
async def test_many_subscriptions_of_a_client_are_told_in_slices(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unsubscribed between two of them is not told as if it were there."""
    monkeypatch.setattr(readings, "_AT_ONCE", 1)
    filters = [f"a/{number}" for number in range(50)]
    real = Readings._record_facts

    def unsubscribe(self: Readings) -> None:
        real(self)
        self._context.unsubscribe_client("ann", *filters[1:])

    async with recording(tmp_path) as here:
        await here.admin.plugins.disable("events")
        await (await here.stay("ann")).subscribe(*((filter, 1) for filter in filters))
        monkeypatch.setattr(Readings, "_record_facts", unsubscribe)
        await here.admin.plugins.enable("events", EventsSettings(path=tmp_path))
        await trio.sleep(1)
    rows = recorded(tmp_path, "session.subscription", "session.unsubscribed")
    there = [row["filter"] for row in rows if row["kind"] == "session.subscription"]
    assert "a/0" in there
    assert len(there) < 50
    told = [row["kind"] for row in rows]
    assert told == sorted(told), "none is told behind the end of all others"


def files(folder: Path, *suffixes: str) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and (not suffixes or path.suffix in suffixes))
    return sorted(found, key=lambda path: path.suffix)


async def absent(here: Room, name: str, count: int) -> None:
    """A client that is away with so many messages waiting."""
    client = await here.stay(name)
    await client.subscribe((f"{name}/#", 1))
    await client.abort()
    await wait_all_tasks_blocked()
    for _ in range(count):
        here.broker.publish(f"{name}/x", b"x", qos=1)


async def test_a_queue_is_recorded_when_it_changes_and_when_it_is_empty(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with recording(tmp_path, {"stats_sessions": 1}, session={"max_queue_length": 20}) as here:
        await absent(here, "one", 2)
        await trio.sleep(95)
        here.broker.publish("one/x", b"x", qos=1)
        await trio.sleep(10)
        await absent(here, "two", 5)  # there is room for one in the record
        await trio.sleep(10)
        client = await here.stay("two")
        for _ in range(5):
            await client.acknowledge(await client.expect_publish("two/x", b"x", qos=1))
        await client.ping()
        await trio.sleep(10)
    rows = recorded(tmp_path, "session.stats")
    assert [(row["client_id"], row["queue_length"]) for row in rows] == [
        *[("one", 2)] * 9,  # it has changed not long ago
        ("one", 3),
        ("two", 5),
        ("one", 3),  # is no longer among the longest
        ("one", 3),
        ("two", 0),
    ]
    assert {(row["queue_limit"], row["inflight_limit"]) for row in rows} == {(20, 100)}


async def test_metrics_are_recorded_when_they_change(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as here:
        client = await here.client("a")
        await trio.sleep(300)
        for _ in range(3):
            await client.publish("t", b"x", qos=1)
            await trio.sleep(10)
        await client.ping()  # is not worth a row
        await trio.sleep(291)
    readings: dict[str, list[float]] = defaultdict(list)
    times = {row["time"] for row in recorded(tmp_path, "node.stats")}
    for row in recorded(tmp_path, "node.stats"):
        readings[row["name"]].append(row["value"])
    assert readings["messages.qos1.received"] == [0, 1, 2, *[3] * 30], "for a quarter of an hour"
    assert readings["client.connected"] == [1, 1], "first of all, and once more after ten minutes"
    assert len(times) == 33


@pytest.mark.usefixtures("threadless")
async def test_nothing_that_an_idle_broker_does_by_itself_makes_a_row(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """With the defaults of a standalone broker: it publishes its own metrics and has a store."""
    async with recording(tmp_path / "log", sys={}, store={"path": tmp_path / "store"}) as here:
        await trio.sleep(5)
        assert len(here.broker.retained) > 50
        before = await here.admin.figures()
        await trio.sleep(3600)
        after = await here.admin.figures()
    assert [name for name in before if before[name] != after[name] and readings._is_telling(name)] == []
    assert len({row["time"] for row in recorded(tmp_path / "log", "node.stats")}) == 6


@pytest.mark.usefixtures("threadless")
async def test_a_quiet_broker_writes_little(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, sys={}) as here:
        client = await here.client("a", keep_alive=60)
        for _ in range(14 * 30):
            await trio.sleep(60)
            await client.ping()
        assert [path.suffix for path in files(tmp_path, ".arrows", ".idx", ".parquet")] == [
            ".arrows",
            ".idx",
            ".parquet",
        ]
        assert len(all_bytes(tmp_path)) < 250_000
    ticks = [row["time"].timestamp() for row in recorded(tmp_path, "node.tick")]
    assert len(ticks) == 7 * 3600 + 1
    assert {round(later - earlier, 3) for earlier, later in pairwise(ticks)} == {1.0}


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_times_follow_the_clock(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    import time

    real = time.time
    async with recording(tmp_path, {"heartbeat": 1}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 1))
        await trio.sleep(10.5)
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda: real() + jump)
            await trio.sleep(1)
            await client.publish("t", b"x", qos=1)
            packet = await watcher.expect_publish("t", b"x", qos=1)
            await trio.sleep(2)
            await watcher.acknowledge(packet)
            await watcher.disconnect()
            await watcher.expect_close()
            await trio.sleep(5)
    rows = recorded(tmp_path)
    [corrected] = of(rows, kind="node.clock")
    assert corrected["value"] == pytest.approx(jump, abs=0.05)
    began = rows[0]["time"].timestamp()
    assert corrected["time"].timestamp() - began == pytest.approx(jump + 11, abs=0.05)
    ticks = [round(row["time"].timestamp() - began) for row in of(rows, kind="node.tick")]
    assert ticks[:11] == list(range(11))
    assert ticks[11:] == [round(jump) + second for second in range(11, 11 + len(ticks) - 11)]
    [acked] = of(rows, kind="message.acked")
    assert acked["latency_us"] == pytest.approx(2_000_000, abs=100)
    [gone] = of(rows, kind="client.disconnected", client_id="w")
    assert gone["latency_us"] == pytest.approx(13_500_000, abs=100_000)
    [published] = of(rows, kind="message.publish")
    assert published["time"].timestamp() - began == pytest.approx(jump + 11.5, abs=0.05)
    assert len(files(tmp_path, ".arrows", ".parquet")) == 2


@pytest.mark.usefixtures("threadless")
async def test_hidden_texts_are_not_in_what_was_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    hidden = EventsSettings(path=tmp_path, hash=("client_id", "filter"), hash_key="k", leave_out=("username",))  # type: ignore[arg-type]
    async with recording(tmp_path / "other") as here:
        client = await here.stay("private-ann", username="private-ann")
        await client.subscribe(("private/#", 1))
        here.admin.alarms.activate("hot", "private-ann is hot")
        await here.admin.plugins.disable("events")
        await here.admin.plugins.enable("events", hidden)
        await trio.sleep(1)
    [row] = recorded(tmp_path, "session.subscription")
    assert (len(row["client_id"]), len(row["filter"]), row.get("username")) == (32, 32, None)
    assert "reason" not in recorded(tmp_path, "alarm.active")[0]
    assert row["flags"] == Flag(0)
