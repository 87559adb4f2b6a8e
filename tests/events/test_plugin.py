"""The plugin `events` in a broker: what is recorded of which hook, and what is not."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.events.exporter import TIDY
from trunkline.events.plugin import EventsSettings
from trunkline.events.reader import EventLog
from trunkline.events.schema import OWN_KINDS, Flag
from trunkline.events.watching import Wanted
from trunkline.hooks import DROP, STOP, ClientInfo, Deny
from trunkline.hooks.points import POINTS
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import PluginError
from trunkline.plugins.finding import settings_model

Row = dict[str, Any]


@asynccontextmanager
async def recording(path: Path, settings: dict[str, Any] | None = None, **others: Any) -> AsyncIterator[Room]:
    async with room(plugins={"events": {"path": str(path), **(settings or {})}}, **others) as here:
        yield here


def recorded(path: Path, *kinds: str) -> list[Row]:
    """What all incarnations have, without what is null."""
    log = EventLog(path)
    log.refresh()
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for node, extent in log.nodes().items()
        for batch in log.read(node, extent.first, extent.end)
        for row in batch.to_pylist()
    ]
    return [row for row in rows if not kinds or row["kind"] in kinds]


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def figure(here: Room, name: str) -> int:
    return dict(here.node.plugins.figures())[f"plugins.events.{name}"]


async def test_a_clients_life_and_a_messages(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as here:
        subscriber = await here.client("sub", username="ann")
        await subscriber.subscribe(("a/+", 1))
        publisher = await here.client("pub")
        await trio.sleep(5)
        await publisher.publish("a/b", b"hello", qos=1)
        packet = await subscriber.expect_publish("a/b", b"hello", qos=1)
        await trio.sleep(2)
        await subscriber.acknowledge(packet)
        await subscriber.disconnect()
        await subscriber.expect_close()
    rows = recorded(tmp_path)
    kinds = [
        row["kind"]
        for row in rows
        if row["kind"] not in ("node.tick", "node.version", "node.limit", "node.stats", "exporter.records")
    ]
    assert kinds == [
        "exporter.started",
        *("client.authenticated", "session.created", "client.connack", "client.connected"),
        *("client.acl_decided", "session.subscribed"),
        *("client.authenticated", "session.created", "client.connack", "client.connected"),
        "client.acl_decided",
        *("message.publish", "message.routed", "client.acl_decided", "message.delivered", "message.acked"),
        *("client.disconnected", "session.terminated"),
        *("client.disconnected", "session.terminated"),
        "exporter.stopped",
    ]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert len({row["incarnation"] for row in rows}) == 1
    by_kind = {row["kind"]: row for row in rows if row.get("client_id") in ("sub", "pub")}
    assert by_kind["session.subscribed"]["filter"] == "a/+"
    publish, routed = by_kind["message.publish"], by_kind["message.routed"]
    delivered, acked = by_kind["message.delivered"], by_kind["message.acked"]
    assert publish["guid"] == routed["guid"] == delivered["guid"] == acked["guid"]
    assert (publish["client_id"], delivered["client_id"], acked["client_id"]) == ("pub", "sub", "sub")
    assert {row["publisher"] for row in (publish, routed, delivered, acked)} == {"pub"}
    assert (publish["topic"], publish["qos"], publish["size"], routed["receivers"]) == ("a/b", 1, 5, 1)
    assert (publish["latency_us"], delivered["latency_us"], acked["latency_us"]) == (0, 0, 2_000_000)
    assert (delivered["delivery"], "delivery" in publish, "delivery" in acked) == ("live", False, False)
    assert "payload" not in publish
    gone = next(row for row in rows if row["kind"] == "client.disconnected" and row["client_id"] == "sub")
    assert (gone["reason_code"], gone["latency_us"]) == (0, 7_000_000)
    ticks = [row["time"].timestamp() for row in rows if row["kind"] == "node.tick"]
    assert [round(later - earlier, 3) for earlier, later in pairwise(ticks)] == [1.0] * (len(ticks) - 1)
    assert len(ticks) >= 7


async def test_every_point_can_be_recorded(tmp_path: Path) -> None:
    kinds = [point.name for point in POINTS]
    async with recording(tmp_path, {"kinds": kinds}, session={"max_inflight": 1, "max_queue_length": 1}) as here:
        here.broker.hooks.add("message.publish", lambda client, message: DROP if message.topic == "drop" else None)
        client = await here.stay("a")
        await client.subscribe(("#", 1))
        publisher = await here.client("b")
        for topic in ("a/1", "a/2", "a/3", "a/4", "drop"):
            await publisher.publish(topic, b"x", qos=1)
        await client.take_publish("a/1", b"x", qos=1)
        await client.take_publish("a/4", b"x", qos=1)  # the queue holds one, and that is the last
        await client.send(raw.unsubscribe(7, "#"))
        await client.expect_type(raw.UNSUBACK)
        await (await here.stay("a")).ping()
        await (await here.client("a")).ping()
        here.node.alarms.activate("hot", "too hot")
        here.node.alarms.deactivate("hot")
    seen = {row["kind"] for row in recorded(tmp_path)}
    never = {"client.enhanced_authenticate", "client.read_filter", "session.terminated"}
    assert {point.name for point in POINTS} - seen <= never
    assert seen <= {point.name for point in POINTS} | {kind.name for kind in OWN_KINDS}


async def test_what_others_make_of_a_message_is_recorded_with_its_id_time_and_publisher(tmp_path: Path) -> None:
    constant = Message("b", b"constant", 1)

    async with recording(tmp_path, {"kinds": ["message.*"]}) as here:
        here.broker.hooks.add("message.publish", lambda client, message: constant)
        here.broker.hooks.add("message.deliver", lambda client, message: Message("c", b"delivered", message.qos))
        here.broker.hooks.add("message.delivered", lambda client, message: STOP)
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("b", 1))
        for _ in range(2):
            await client.publish("a", b"x", qos=1)
            await watcher.take_publish("c", b"delivered", qos=1)
    rows = [row for row in recorded(tmp_path) if "topic" in row]
    assert Counter((row["kind"], row["topic"]) for row in rows) == {
        ("message.publish", "b"): 2,
        ("message.routed", "b"): 2,
        ("message.deliver", "c"): 2,
        ("message.delivered", "c"): 2,
        ("message.acked", "c"): 2,
    }
    assert len({row["guid"] for row in rows}) == 2
    assert {row["publisher"] for row in rows} == {"a"}
    assert max(row["latency_us"] for row in rows) < 60_000_000
    assert len({row["time"].year for row in rows}) == 1


async def test_denials_say_what_was_denied(tmp_path: Path) -> None:
    def authenticate(client: ClientInfo, password: bytes | None) -> Deny | None:
        return Deny(Reason.BANNED, "go away") if client.client_id == "bad" else None

    def check(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if topic.startswith("secret") else None

    async with recording(tmp_path) as here:
        here.broker.hooks.add("client.authenticate", authenticate)
        here.broker.hooks.add("client.check_acl", check)
        bad = here.wire()
        await bad.send(raw.connect("bad"))
        await bad.expect_type(raw.CONNACK)
        client = await here.client("a")
        await client.publish("secret/1", b"x", qos=1)
        await client.publish("secret/1", b"x", qos=1)
        await client.send(raw.subscribe(1, ("secret/#", 0)))
        await client.expect_type(raw.SUBACK)
    (refused,) = [row for row in recorded(tmp_path, "client.authenticated") if row["client_id"] == "bad"]
    assert (refused["reason_code"], refused["reason"]) == (Reason.BANNED, "go away")
    (connack,) = [row for row in recorded(tmp_path, "client.connack") if row["client_id"] == "bad"]
    assert connack["reason_code"] == Reason.BANNED
    decided = recorded(tmp_path, "client.acl_decided")
    assert [(row["action"], row["topic"], row.get("flags", 0) & Flag.ALLOWED) for row in decided] == [
        ("publish", "secret/1", 0),
        ("subscribe", "secret/#", 0),
    ]
    dropped = recorded(tmp_path, "message.dropped")
    assert [(row["topic"], row["reason"]) for row in dropped] == [("secret/1", "not_authorized")] * 2


async def test_topics_clients_and_samples(tmp_path: Path) -> None:
    settings = {"topics": ["a/#"], "clients": ["dev-*"], "kinds": ["message.*", "client.connected"]}
    async with recording(tmp_path, settings) as here:
        device, other, watcher = [await here.client(name) for name in ("dev-1", "other", "watcher")]
        await watcher.subscribe(("#", 0))
        for client in (device, other):
            for topic in ("a/1", "b/1", "$SYS/x"):
                await client.publish(topic, b"x")
            await client.ping()
    rows = recorded(tmp_path)
    assert {row["client_id"] for row in rows if "client_id" in row} == {"dev-1"}
    assert {row["topic"] for row in rows if row["kind"].startswith("message.")} == {"a/1"}


def test_long_names_are_known_but_not_remembered() -> None:
    wanted = Wanted(["a/#"], ["dev-*"], 1)
    for number in range(25_000):
        assert wanted.topic(f"a/{number}")
        assert wanted.client(f"dev-{number}")
    for number in range(100):
        assert wanted.topic(f"a/{number}" + "x" * 60_000)
        assert not wanted.client(f"{number}" + "x" * 60_000)
    for names in (wanted.known_topics, wanted._known_clients):
        assert sum(map(len, names)) < 200_000


async def test_of_a_sample_all_or_nothing_is_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path, {"one_in": 4, "kinds": ["message.publish", "message.delivered"]}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("#", 0))
        for number in range(50):
            await client.send(*[raw.publish("t", b"%d" % number) for _ in range(40)])
            await client.ping()
    rows = recorded(tmp_path, "message.publish", "message.delivered")
    fates = Counter(row["guid"] for row in rows)
    assert set(fates.values()) == {2}
    assert 250 < len(fates) < 1000, "about 500 of 2000"
    assert {row["weight"] for row in rows} == {4}


async def test_publications_stay_together_and_are_recorded_message_by_message(tmp_path: Path) -> None:
    async with recording(tmp_path) as here:
        assert not here.broker.hooks.single
        client, watcher = await here.client("a"), await here.client("w", version=4)
        await watcher.subscribe(("#", 1))
        await client.publish("t", b"-1", qos=1)
        await watcher.take_publish("t", b"-1", qos=1)
        packets = [raw.publish("t", b"%04d" % number, qos=1, packet_id=number + 1) for number in range(100)]
        await client.send(*packets)
        for number in range(32):  # as many as its window holds
            await watcher.take_publish("t", b"%04d" % number, qos=1)
    published = recorded(tmp_path, "message.publish")
    assert [row["packet_id"] for row in published[1:]] == list(range(1, 101))
    assert [row["guid"] for row in published] == sorted({row["guid"] for row in published})
    assert Counter(row["kind"] for row in recorded(tmp_path))["message.routed"] == 101
    delivered = recorded(tmp_path, "message.delivered")
    assert [row["guid"] for row in delivered] == [row["guid"] for row in published][: len(delivered)]
    assert len(delivered) > 32


async def test_payloads_user_properties_and_hidden_columns(tmp_path: Path) -> None:
    settings = {
        "max_payload": 10,
        "user_properties": True,
        "hash": ["client_id", "publisher"],
        "hash_key": "k",
        "leave_out": ["peer", "username"],
    }
    async with recording(tmp_path, settings) as here:
        client = await here.client("private-device", username="private-ann")
        await client.publish("t", b"short", properties=raw.user_property("k", "v"))
        await client.publish("t", b"x" * 11)
        await client.ping()
    rows = recorded(tmp_path)
    assert "private" not in repr(rows)
    one, two = recorded(tmp_path, "message.publish")
    assert (one["payload"], one["user_properties"]) == (b"short", [{"key": "k", "value": "v"}])
    assert "payload" not in two
    assert one["client_id"] == one["publisher"]


async def test_what_is_hidden_is_not_told_by_the_words_of_others(tmp_path: Path, autojump_clock: MockClock) -> None:
    hidden = ["client_id", "publisher", "username", "topic", "filter"]
    settings = {"hash": hidden, "hash_key": "k", "leave_out": ["peer"], "compression": "none", "kinds": ["*"]}

    def authenticate(client: ClientInfo, password: bytes | None) -> Deny | None:
        return Deny(Reason.BANNED, f"{client.username} is banned") if client.username == "private-eve" else None

    def check(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if topic == "private/denied" else None

    async with recording(tmp_path, settings, acl={"deny_action": "disconnect"}) as here:
        here.broker.hooks.add("client.authenticate", authenticate)
        here.broker.hooks.add("client.check_acl", check)
        eve = here.wire()
        await eve.send(raw.connect("private-eve", username="private-eve"))
        await eve.expect_type(raw.CONNACK)
        client = await here.stay("private-ann", username="private-ann")
        await client.subscribe(("private/#", 1))
        here.broker.publish("private/fine", b"x", qos=1)
        await client.expect_publish("private/fine", b"x", qos=1)
        await trio.sleep(11)  # sessions are measured
        await client.send(raw.publish("private/denied", b"x"))
        await client.expect_disconnect(Reason.NOT_AUTHORIZED)
        here.node.alarms.activate("hot", "private-ann is hot")
        await trio.sleep(1)
    assert b"private" not in all_bytes(tmp_path)
    reasons = {row.get("reason") for row in recorded(tmp_path, "client.authenticated", "client.disconnected")}
    assert reasons == {"success", "banned", "not_authorized"}


async def test_queues_and_metrics_are_measured(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"stats": 10, "stats_sessions": 2, "clients": ["few", "m*", "none"]}
    async with recording(tmp_path, settings) as here:
        for name, count in (("few", 1), ("many", 3), ("more", 2), ("none", 0), ("other", 9)):
            client = await here.stay(name)
            await client.subscribe((f"{name}/#", 1))
            await client.abort()
            await wait_all_tasks_blocked()
            for _ in range(count):
                here.broker.publish(f"{name}/x", b"x", qos=1)
        await trio.sleep(11)
    stats = recorded(tmp_path, "session.stats")
    assert [(row["client_id"], row["queue_length"], row["inflight"]) for row in stats] == [
        ("many", 3, 0),
        ("more", 2, 0),
    ]
    figures = {row["name"]: row["value"] for row in recorded(tmp_path, "node.stats")}
    assert figures["sessions.count"] == 5
    assert figures["queue.count"] == 15


@pytest.mark.usefixtures("threadless")
async def test_the_log_is_never_much_larger_than_it_may_be(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"max_size": "1MiB", "max_payload": "10kB", "compression": "none", "stats": 1000, "batch_time": 0.1}
    async with recording(tmp_path, settings) as here:
        client = await here.client("a")
        for _ in range(200):
            for _ in range(4):
                await client.publish("t", b"x" * 10_000)
            await client.ping()
            await trio.sleep(0.11)  # a batch is written, and what is too much is deleted
            assert len(all_bytes(tmp_path)) < 1.2 * 1024**2
    assert len(all_bytes(tmp_path)) > 1024**2 / 2
    assert not recorded(tmp_path, "exporter.started"), "the oldest went"


async def test_heartbeats_keep_their_rhythm(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, {"heartbeat": 1, "stats": 1000, "kinds": []}):
        for _ in range(50):
            await trio.sleep(0.999)
            autojump_clock.jump(0.02)  # something else runs when one is due
        autojump_clock.jump(10.25)
        await trio.sleep(3)
    times = [row["time"].timestamp() for row in recorded(tmp_path, "node.tick")]
    late = [time - times[0] - number for number, time in enumerate(times)]
    assert max(late[:50]) < 0.1
    [pause] = [after - before for before, after in pairwise(times) if after - before > 1.2]
    assert pause > 10
    assert min(after - before for before, after in pairwise(times)) > 0.9


@pytest.mark.usefixtures("threadless")
async def test_a_disk_that_does_not_take_what_is_written_is_told_of_once(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with recording(tmp_path, {"sync": 1}):
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.sync", fail)
            await trio.sleep(20)
    assert caplog.text.count("could not be synced to disk") == 1


async def test_each_start_is_an_incarnation_of_its_own(tmp_path: Path) -> None:
    async with recording(tmp_path) as here:
        await here.node.plugins.disable("events")
        assert not here.broker.hooks.message_publish
        await here.node.plugins.enable("events", EventsSettings(path=tmp_path))
    started = recorded(tmp_path, "exporter.started", "exporter.stopped")
    started.sort(key=lambda row: (row["incarnation"], row["seq"]))
    assert [row["kind"] for row in started] == ["exporter.started", "exporter.stopped"] * 2
    assert started[0]["incarnation"] == started[1]["incarnation"] < started[2]["incarnation"]


async def test_the_disk_is_full_and_the_broker_goes_on(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with recording(tmp_path, {"kinds": ["message.publish"]}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 1))
        await trio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.append", full)
            for _ in range(10):
                await client.publish("t", b"x", qos=1)
                await watcher.take_publish("t", b"x", qos=1)
                await trio.sleep(1)
            assert [alarm.name for alarm in here.node.alarms.active] == ["events.disk"]
            assert figure(here, "dropped") >= 10
        await trio.sleep(55)
        assert here.node.alarms.active, "a disk that is nearly full takes some batches"
        await trio.sleep(10)
        assert not here.node.alarms.active
        await client.publish("t", b"x", qos=1)
    (lost,) = recorded(tmp_path, "exporter.dropped")
    assert lost["reason"] == "disk"
    assert lost["value"] >= 10
    assert len(recorded(tmp_path, "message.publish")) == 1


async def test_a_disk_that_fails_between_two_heartbeats_is_told_of(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with recording(tmp_path, {"kinds": ["message.publish"], "heartbeat": 30}) as here:
        client = await here.client("a")
        await trio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.append", full)
            await client.publish("t", b"x", qos=1)
            await trio.sleep(2)
        await client.publish("t", b"x", qos=1)
        await trio.sleep(2)
        assert figure(here, "dropped") == 1
        await trio.sleep(30)
        assert [alarm.name for alarm in here.node.alarms.active] == ["events.disk"]


def test_what_is_wrong_with_the_settings() -> None:
    def problems(**settings: Any) -> str:
        with pytest.raises(ConfigError) as refused:
            from_mapping({"plugins": {"events": settings}}, settings_model)
        return str(refused.value)

    assert "no hook point is named 'message.publsh'; did you mean message.publish" in problems(kinds=["message.publsh"])
    assert "no hook point begins with 'mesage.'" in problems(kinds=["mesage.*"])
    assert "without a key" in problems(hash=["client_id"])
    assert "more than 64 bytes" in problems(hash_key="x" * 65)
    assert 'plugins.events.hash[0]: "colour": accepted is "client_id" or' in problems(hash=["colour"])
    assert "secret" not in problems(hash_key="secret" * 20)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
async def test_one_broker_of_a_name_records_in_a_folder(tmp_path: Path) -> None:
    """A second one would look like the first one started anew, and readers would give the first one up."""
    async with recording(tmp_path), room() as other:
        with pytest.raises(PluginError, match=r"another broker records as node .*: give this one another node\.name"):
            await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        await other.node.plugins.enable("events", EventsSettings(path=tmp_path / "elsewhere"))
    async with recording(tmp_path):
        pass
    assert len({row["incarnation"] for row in recorded(tmp_path)}) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
@pytest.mark.usefixtures("threadless")
async def test_a_lock_that_somebody_deletes_is_made_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as here, room() as other:
        lock = tmp_path / ".trunkline@0.lock"
        lock.unlink()
        await trio.sleep(TIDY + 1)
        assert lock.exists()
        with pytest.raises(PluginError, match="another broker records as node"):
            await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        lock.unlink()
        await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        await trio.sleep(TIDY + 1)
        (alarm,) = here.node.alarms.active
        assert alarm.name == "events.node"
        assert alarm.text.endswith("since the lock was deleted: stop one of them")
        await other.node.plugins.disable("events")
        await trio.sleep(TIDY + 1)
        assert not here.node.alarms.active
    assert len({row["incarnation"] for row in recorded(tmp_path)}) == 2


async def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    async with room() as here:
        with pytest.raises(PluginError, match=r"events: path: .*/log: File exists; give another folder") as caught:
            await here.node.plugins.enable("events", EventsSettings(path=tmp_path / "log"))
        assert str(caught.value).count(str(tmp_path)) == 1
        assert not here.broker.hooks.message_publish


async def test_a_hook_that_makes_nonsense_costs_its_own_event_alone(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, {"kinds": ["message.publish"]}) as here:
        client = await here.client("a")

        def spoil(client: ClientInfo, message: Message) -> None:
            if message.payload == b"spoil":
                message.publisher = 5  # type: ignore[assignment]

        here.broker.hooks.add("message.publish", spoil)
        for payload in (b"one", b"spoil", b"two"):
            await client.publish("t", payload)
        await client.ping()
        await trio.sleep(1)
        assert figure(here, "rejected") == 1
    assert [row["size"] for row in recorded(tmp_path, "message.publish")] == [3, 3]
    assert [row["value"] for row in recorded(tmp_path, "exporter.dropped")] == [1]


def test_the_broker_does_not_load_pyarrow_unless_events_are_recorded() -> None:
    program = "import sys; import trunkline.broker.node, trunkline.events.plugin; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
