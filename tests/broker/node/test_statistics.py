"""The node's figures."""

from pathlib import Path

from trio.testing import MockClock, memory_stream_pair

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping
from trunkline.mqtt.message import Message


async def test_figures_come_from_what_happened() -> None:
    async with room() as here:
        client, asleep = await here.client("a"), await here.stay("b")
        await asleep.subscribe(("t/+", 1), ("$share/g/t/1", 1))
        await asleep.disconnect()
        await client.publish("t/1", b"x", qos=1, retain=True)
        figures = await here.node.figures()
        expected = {
            "sessions.count": 2,
            "connections.count": 1,
            "subscriptions.count": 2,
            "subscriptions.shared.count": 1,
            "retained.count": 1,
            "retained.bytes": Message("t/1", b"x").weight,
            "queue.count": 2,
            "messages.received": 1,
            "messages.qos1.received": 1,
            "packets.publish.received": 1,
            "packets.connect.received": 2,
            "packets.connack.sent": 2,
            "packets.disconnect.received": 1,
            "client.subscribe": 2,
            "session.created": 2,
            "messages.retained": 1,
        }
        assert {name: figures[name] for name in expected} == expected


async def test_figures_count_what_clients_do_not_take() -> None:
    async with testing.broker(history=0) as b:
        figures = await b.node.figures()
        assert figures["output.bytes"] == 0
        assert figures["process.memory.max"] >= figures["process.memory"] >= 0
        asleep = await Wire.open(b.host, b.port)
        await asleep.connect("asleep")
        await asleep.subscribe(("t", 1))
        for _ in range(100):  # more than any system keeps for a socket
            b.publish("t", bytes(1_000_000), qos=1)
            await b.node.ending.quiet()
            if (await b.node.figures())["output.bytes"]:
                break
        assert (await b.node.figures())["output.bytes"] > 0
        await asleep.abort()


async def test_figures_are_published_to_those_who_may_read_them(autojump_clock: MockClock) -> None:
    async with room(sys={"interval": 10}) as here:
        inside = await here.client("a")
        await inside.subscribe(("$SYS/broker/clients/connected", 0), ("$SYS/broker/version", 0))
        first = {(packet := await inside.expect_type(raw.PUBLISH)).topic: packet.payload for _ in range(2)}
        assert first["$SYS/broker/clients/connected"] == b"0"
        assert first["$SYS/broker/version"].startswith(b"trunkline version ")
        await here.client("b")
        changed = await inside.expect_type(raw.PUBLISH)  # only what is different
        assert (changed.topic, changed.payload) == ("$SYS/broker/clients/connected", b"2")


async def test_who_comes_from_elsewhere_reads_no_figures() -> None:
    async with room(sys={"interval": 10}) as here:
        here.node.hooks.add("client.connect", lambda client, packet: setattr(client, "peer", ("10.1.2.3", 5)))
        client = await here.client("a")
        assert await client.subscribe(("$SYS/#", 0), ("#", 0), ("a/#", 0)) == [0x87, 0x87, 0]


async def test_figures_of_the_store(tmp_path: Path) -> None:
    config = from_mapping({"listeners": [], "store": {"durability": "os", "path": str(tmp_path / "a.db")}})
    async with open_node(config, grace=0) as node:
        here, there = memory_stream_pair()
        node.serve(there)
        wire = Wire(here)
        await wire.connect("a", properties=raw.session_expiry(100))
        await wire.subscribe(("t", 1))
        figures = await node.figures()
        assert figures["store.commits"] >= 1
        assert figures["store.commits.microseconds"] > 0
        assert figures["store.commits.rows"] >= 3  # the session, its subscription, that the broker runs
        assert 0 < figures["store.commits.bytes"] < figures["store.bytes"]
        assert figures["store.commits.failed"] == figures["store.waiting"] == 0
        await wire.abort()


async def test_figures_of_a_store_that_refuses() -> None:
    async with Disk().broker() as life:
        wire, _ = await life.stay("a")
        life.fill()
        await wire.send(raw.subscribe(1, ("t", 1)))
        await wire.ping()
        figures = await life.node.figures()
        while not figures["store.commits.failed"]:
            figures = await life.node.figures()
        assert figures["store.waiting"] == 1
