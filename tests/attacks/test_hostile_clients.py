"""How long the longest turn of the broker is while clients are hostile or careless, in calls: while it lasts, all other
clients wait. And what each of them costs otherwise, where that has a bound of its own."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import pytest
import trio

from tests.attacks.operations import SECONDS, Operations
from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.net.poller import MAX_PASSING
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import CLIENT_CONNECTED, MESSAGE_PUBLISH
from trunkline.mqtt.message import Message

#: The longest turn: what takes about 25 ms on a machine of today.
MAX_TURN: Final = int(0.025 / SECONDS)
POLLER: Final = "trunkline.broker.net.poller"


class Turns(trio.abc.Instrument):
    """The longest step of the broker's tasks."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._began = self.longest = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._operations.count

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("trunkline."):
            self.longest = max(self.longest, self._operations.count - self._began)


class Siege:
    def __init__(self, broker: testing.Broker, operations: Operations) -> None:
        self.broker = broker
        self.node = inside(broker.node)
        self.operations = operations
        self.wires: list[Wire] = []

    async def client(self, client_id: str = "", expiry: int = 0) -> Wire:
        wire = await self.open()
        if client_id:
            await wire.connect(client_id, clean=not expiry, properties=raw.session_expiry(expiry))
        return wire

    async def open(self) -> Wire:
        wire = await Wire.open(self.broker.host, self.broker.port)
        self.wires.append(wire)
        return wire

    @contextmanager
    def turns(self) -> Iterator[None]:
        """Each turn meanwhile is a short one."""
        turns = Turns(self.operations)
        trio.lowlevel.add_instrument(turns)
        try:
            with self.operations.counted(self.node.scheduler):
                yield
        finally:
            trio.lowlevel.remove_instrument(turns)
        assert 0 < turns.longest < MAX_TURN


def write(wire: Wire, data: bytes) -> None:
    """Without a step of the broker meanwhile."""
    assert isinstance(wire.stream, trio.SocketStream)
    os.write(wire.stream.socket.fileno(), data)


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    """The poller's slices end by them, too."""
    counted = Operations()
    monkeypatch.setattr(f"{POLLER}.thread_time", counted.clock)
    monkeypatch.setattr(f"{POLLER}.perf_counter", counted.clock)
    return counted


@asynccontextmanager
async def besieged(operations: Operations, **settings: dict[str, object]) -> AsyncIterator[Siege]:
    async with testing.broker(history=0, **settings) as broker:
        siege = Siege(broker, operations)
        yield siege
        for wire in siege.wires:
            await wire.abort()


async def test_a_slow_consumer(operations: Operations) -> None:
    limits: dict[str, object] = {"max_queue_bytes": 1_000_000, "max_queue_length": 0, "backpressure": 0}
    async with besieged(operations, session=limits) as siege:
        deaf, publisher = await siege.client("deaf"), await siege.client("publisher")
        await deaf.subscribe(("t", 0))
        with siege.turns():
            for _ in range(40):
                await publisher.send(raw.publish("t", bytes(10_000)) * 100)
                await publisher.ping()
                session = siege.node.sessions.get("deaf")
                assert session is not None
                assert session.session.queue.byte_size <= 1_000_000


async def test_a_greedy_publisher(operations: Operations) -> None:
    async with besieged(operations) as siege:
        greedy, subscriber = await siege.client("greedy"), await siege.client("subscriber")
        await subscriber.subscribe(("t", 0))
        with siege.turns():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(greedy.send, raw.publish("t", b"x") * 100_000)
                for _ in range(100_000):
                    await subscriber.receive_bytes()


async def test_a_client_with_100_000_subscriptions(operations: Operations) -> None:
    async with besieged(operations, session={"max_subscriptions": 0}) as siege:
        client = await siege.client("a")
        router = siege.node.router
        for first in range(0, 100_000, 2000):
            packet = raw.subscribe(1, *[(f"plant/{number}/+", 0) for number in range(first, first + 2000)])
            if first == 50_000:
                with siege.turns():
                    await client.send(packet)
                    await client.expect_type(raw.SUBACK)
            else:
                await client.send(packet)
                await client.expect_type(raw.SUBACK)
        assert router.subscriptions == 100_000
        with siege.turns():
            await client.abort()
            while router.subscriptions:
                await trio.lowlevel.checkpoint()


async def test_topics_of_1_000_levels(operations: Operations) -> None:
    async with besieged(operations, mqtt={"max_topic_levels": 1000}) as siege:
        subscriber, publisher = await siege.client("subscriber"), await siege.client("publisher")
        with siege.turns():
            filters = [("a/" * number + "+/" * (999 - number) + "b", 0) for number in range(0, 1000, 10)]
            await subscriber.send(raw.subscribe(1, *filters))
            await subscriber.expect_type(raw.SUBACK)
            await publisher.send(*[raw.publish("a/" * 999 + str(number), b"") for number in range(20)])
            await publisher.ping()


async def test_a_packet_of_256_mb(operations: Operations) -> None:
    async with besieged(operations, mqtt={"linger": 0}) as siege:
        client = await siege.client("a")
        (connection,) = siege.node.listeners.connections
        with siege.turns():
            await client.send("30 ff ff ff 7f", bytes(1000))
            disconnect = await client.expect_type(raw.DISCONNECT)
        assert disconnect.reason == 0x95
        assert connection.held_packet is None, "nothing of it is kept"


async def test_65_535_messages_without_pubrel(operations: Operations) -> None:
    async with besieged(operations, session={"max_queue_bytes": 1_000_000_000}) as siege:
        client = await siege.client("a")
        messages = b"".join(raw.publish("t", b"x", qos=2, packet_id=number) for number in range(1, 65_536))
        with siege.turns():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send, messages)
                for _ in range(65_535):
                    await client.receive_bytes()
            session = siege.node.sessions.get("a")
            assert session is not None
            assert len(session.session.awaiting_rel) == 65_535
            await client.abort()
            while session.ref.alive:
                await trio.lowlevel.checkpoint()
        assert not len(session.session.awaiting_rel)


@pytest.mark.parametrize("is_limited", [False, True])
async def test_many_connections_with_one_client_id(operations: Operations, is_limited: bool) -> None:
    """By default only the first takeovers of a minute reach the session."""
    takeovers = 30 if is_limited else 0
    async with besieged(operations, flapping={"max_takeovers": takeovers}, mqtt={"linger": 0}) as siege:
        with siege.turns():
            for _ in range(5):
                wires = [await siege.open() for _ in range(200)]
                for wire in wires:
                    await wire.send(raw.connect("same", clean=False, properties=raw.session_expiry(1000)))
                for wire in wires:
                    await wire.expect_type(raw.CONNACK)
                for wire in wires:
                    await wire.abort()
        taken_over = siege.node.metrics.session_takenover
        assert taken_over <= takeovers if is_limited else taken_over > 200


async def test_many_clients_that_come_back_at_once(operations: Operations) -> None:
    """One that stays is served after each slice of them."""
    async with besieged(operations) as siege:
        stays, order = await siege.client("stays"), list[str]()
        await stays.ping()

        def note(client: ClientInfo, message: Message | None = None) -> None:
            order.append(client.client_id)

        siege.broker.hooks.add(CLIENT_CONNECTED, note)
        siege.broker.hooks.add(MESSAGE_PUBLISH, note)
        for number in range(2):
            wires = [await siege.open() for _ in range(400)]
            with siege.turns():
                for client, wire in enumerate(wires):
                    filters = [(f"device/{client}/{each}", 1) for each in range(10)]
                    hello = raw.connect(f"c{client}", clean=False, properties=raw.session_expiry(1000))
                    write(wire, hello + raw.subscribe(1, *filters))
                write(stays, raw.publish("t", b"x"))
                for wire in wires:
                    await wire.expect_type(raw.CONNACK)
                    await wire.expect_type(raw.SUBACK)
                for wire in wires:
                    await wire.abort()
            assert number or order.index("stays") <= 2 * MAX_PASSING
