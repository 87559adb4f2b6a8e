"""The plugin `events` in a broker: what is recorded of which hook, and what is not."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.conformance import raw
from tests.events.recordings import all_bytes, figure, recorded, recording
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.finding import settings_model


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
        here.admin.alarms.activate("hot", "private-ann is hot")
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
    program = (
        "import sys; import trunkline.broker.node.opening, trunkline.events.plugin; print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
