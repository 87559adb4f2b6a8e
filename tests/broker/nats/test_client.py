"""A client of NATS as all others see it: in listings, hooks, metrics and traces."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.nats.speaking import NatsRoom, nats_room
from trunkline.hooks.points import POINTS

#: Points that a client of NATS comes by in the scene below, in order.
MET = [
    "client.connect",
    "client.authenticate",
    "client.authenticated",
    "session.created",
    "client.connack",
    "client.connected",
    "client.subscribe",
    "client.check_acl",
    "client.acl_decided",
    "session.subscribed",
    "client.check_acl",
    "client.acl_decided",
    "message.publish",
    "message.routed",
    "client.check_acl",
    "client.acl_decided",
    "message.deliver",
    "message.delivered",
    "delivery.completed",
    "message.publish",
    "message.routed",
    "message.dropped",
    "client.unsubscribe",
    "session.unsubscribed",
    "client.disconnected",
    "session.terminated",
]
#: Points of what NATS has not, and of what the scene has not.
NOT_MET = {
    "client.enhanced_authenticate",  # CONNECT of NATS has one step
    "client.read_filter",
    "session.resumed",
    "session.discarded",
    "session.taken_over",
    "message.acked",
    "message.queued",
    "alarm.activated",
    "alarm.deactivated",
}


async def test_every_hook_is_met() -> None:
    met: list[str] = []

    def noting(name: str, required: int) -> Callable[..., None]:
        def note(*_: object) -> None:
            met.append(name)

        return note

    async with nats_room() as here:
        for point in POINTS:
            here.node.hooks.add(point.name, noting(point.name, point.required))
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"PUB a 0", b"")
        await speaker.said()
        await speaker.say(b"PUB nobody.b 0", b"", b"UNSUB 1")
        await speaker.said()
        await speaker.say(b"FOO")
        await speaker.rest()
    nobody = ["client.check_acl", "client.acl_decided"]
    at = MET.index("message.publish", MET.index("delivery.completed"))
    assert met == [*MET[:at], *nobody, *MET[at:]]
    assert {point.name for point in POINTS} == set(MET) | NOT_MET


async def counted(here: NatsRoom, scene: Callable[[], Any]) -> dict[str, int]:
    before = await here.broker.metrics()
    await scene()
    after = await here.broker.metrics()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


async def test_metrics_count_it() -> None:
    async with nats_room() as here:

        async def scene() -> None:
            speaker = await here.speaker()
            await speaker.say(b"SUB a q 1", b"PUB a 1", b"x", b"PUB b 1", b"y")
            await speaker.said()

        found = await counted(here, scene)
        wanted = {
            "client.connected": 1,
            "session.created": 1,
            "sessions.count": 1,
            "connections.count": 1,
            "subscriptions.count": 1,
            "subscriptions.shared.count": 1,
            "messages.qos0.received": 2,
            "messages.qos0.sent": 1,
            "messages.dropped.no_subscribers": 1,
        }
        assert {name: found.get(name) for name in wanted} == wanted


async def test_listings_have_it() -> None:
    async with nats_room() as here:
        speaker = await here.speaker(name="service")
        await speaker.say(b"SUB a.> 1", b"SUB a.b q 2")
        await speaker.said()
        (row,) = here.broker.clients
        assert (row.version, row.connected, row.listener, row.subscriptions) == ("NATS", True, "nats", 2)
        assert row.peer is not None
        assert row.peer.startswith("127.0.0.1:")
        rows, _ = await here.node.clients.subscription_page(row.client_id, None, ("", ""), 10)
        assert [each.filter for each in rows] == ["$share/q/a/b", "a/+/#"]
        found, _ = await here.node.clients.matching("auto-nats-", None, True, "", 10)
        assert found == [row]
        assert here.node.clients.get(row.client_id) == row
        assert row.client_id in here.node.clients


async def test_an_mqtt_client_that_takes_its_id_ends_it() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        (row,) = here.broker.clients
        await here.wire(row.client_id)
        assert await speaker.rest() == b""
        (other,) = here.broker.clients
        assert (other.client_id, other.version) == (row.client_id, "5.0")


async def test_a_trace_shows_what_becomes_of_its_message() -> None:
    async with nats_room() as here:
        here.node.trace.start(clients=[], topics=["#"])
        speaker, wire, others = await here.speaker(), await here.wire("device"), await here.speaker()
        await wire.subscribe(("a", 0))
        await others.say(b"SUB a 1", b"PING")
        await others.expect(b"PONG")
        await speaker.publish(b"a", b"x")
        await wire.expect_publish("a", b"x")
        await wire.publish("a", b"yy")
        await others.expect(b"MSG a 1 1", b"x", b"MSG a 1 2", b"yy")
        second, first = here.node.trace.messages()[0]
        names = {row.client_id for row in here.broker.clients if row.version == "NATS"}
        (listener,) = names - {first.publisher}
        assert (len(names), second.publisher) == (2, "device")
        for row in (first, second):
            trace = here.node.trace.find(row.guid)
            assert {name: str(trace.outcome(name)) for name in ("device", listener)} == dict.fromkeys(
                ("device", listener), "routed, delivered, completed"
            )


async def test_the_event_log_has_its_life_and_its_messages(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs trunkline[events]")
    from tests.events.recordings import recorded

    async with nats_room(plugins={"events": {"path": str(tmp_path)}}) as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        (client_id,) = (row.client_id for row in here.broker.clients if row.version == "NATS")
        await speaker.say(b"SUB b 1", b"PING")
        await speaker.expect(b"PONG")
        await wire.subscribe(("a", 0))
        await speaker.publish(b"a", b"x")
        await wire.expect_publish("a", b"x")
        await wire.publish("b", b"y")
        await speaker.expect(b"MSG b 1 1", b"y")
        await speaker.leave()
    rows = recorded(tmp_path)
    assert [
        row["kind"] for row in rows if row.get("client_id") == client_id and row["kind"] != "client.acl_decided"
    ] == [
        *("client.authenticated", "session.created", "client.connack", "client.connected", "session.subscribed"),
        *("message.publish", "message.routed", "message.delivered", "client.disconnected", "session.terminated"),
    ]
    delivered = {
        row["topic"]: (row["client_id"], row["publisher"]) for row in rows if row["kind"] == "message.delivered"
    }
    assert delivered == {"a": ("device", client_id), "b": (client_id, "device")}


async def test_what_the_broker_says_of_itself() -> None:
    async with nats_room(sys={"interval": 0.05}) as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB $SYS.broker.uptime 1", b"SUB > 2")
        said = await speaker.line()
        assert said.startswith(b"MSG $SYS.broker.uptime 1 ")


async def test_settings_that_change_hold_for_it() -> None:
    async with nats_room() as here:
        await here.speaker()
        connection = here.connection
        assert connection.client is not None
        config = connection.client.config
        changed = config.model_copy(update={"session": config.session.model_copy(update={"max_queue_bytes": 8192})})
        connection.client.enter_zone(changed)
        assert connection.client.config is changed
        connection.follow_settings()
        assert connection.client.config is config
