"""While the disk is full: what one client that goes on publishing takes, whatever it publishes, and that all of it is
stored when there is room again."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.committer import MAX_RETRY
from trunkline.streams import StreamConfig

#: Bytes of one message, and of those that may wait.
LARGE = 100_000
LIMIT = 4 * LARGE
#: Messages that the client sends without waiting for an answer.
COUNT = 40


async def subscribed(life: Life) -> None:
    wire, _ = await life.stay("subscriber")
    await wire.subscribe("t/#")
    await wire.abort()


async def streamed(life: Life) -> None:
    await life.node.streams.create(StreamConfig(name="s", filters=("t/#",)))


async def delayed(life: Life) -> None:
    await life.node.plugins.enable("delayed-publish")


async def nothing(life: Life) -> None:
    del life


class Publisher:
    """It goes on publishing, whatever is acknowledged."""

    def __init__(self, wire: Wire, qos: int) -> None:
        self._wire = wire
        self._qos = qos
        self._sending = trio.Lock()
        #: The packet ids that were acknowledged to the end.
        self.done = set[int]()

    async def send(self, topic: str, *, retain: bool) -> None:
        for number in range(1, COUNT + 1):
            packet = raw.publish(
                f"{topic}/{number}", b"x" * LARGE, qos=self._qos, packet_id=number, retain=retain, version=5
            )
            async with self._sending:
                await self._wire.send(packet)

    async def receive(self) -> None:
        while len(self.done) < COUNT:
            packet = await self._wire.receive()
            if packet.type == raw.PUBREC:
                async with self._sending:
                    await self._wire.send(raw.ack(raw.PUBREL, packet.packet_id))
            else:
                assert packet.type == (raw.PUBACK if self._qos == 1 else raw.PUBCOMP)
                self.done.add(packet.packet_id)


@pytest.mark.parametrize("expiry", [0, 1000], ids=["clean", "durable"])
@pytest.mark.parametrize(
    ("prepare", "topic", "qos", "retain"),
    [
        (subscribed, "t", 1, False),
        (subscribed, "t", 2, False),
        (nothing, "t", 1, True),
        (nothing, "t", 2, True),
        (streamed, "t", 1, False),
        (streamed, "t", 2, False),
        (delayed, "$delayed/3600/t", 1, False),
        (delayed, "$delayed/3600/t", 2, False),
    ],
)
async def test_a_client_is_not_read_from_that_is_owed_too_many_bytes(
    mock_clock: MockClock,
    prepare: Callable[[Life], Awaitable[None]],
    topic: str,
    qos: int,
    retain: bool,
    expiry: int,
) -> None:
    disk = Disk()
    async with disk.broker(mqtt={"max_unacknowledged_bytes": LIMIT}) as life:
        await prepare(life)
        wire, _ = await life.stay("publisher", expiry=expiry)
        wire.patience = 1e9  # the clock jumps
        await life.node.plugin_stores.committed()
        life.fill()
        publisher = Publisher(wire, qos)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(publisher.send, topic, retain=retain))
            nursery.start_soon(publisher.receive)
            for _ in range(10):
                await wait_all_tasks_blocked()
            assert [each.is_paused for each in life.node.connections] == [True]
            assert life.node.metrics.messages_in[qos] * LARGE < 3 * LIMIT
            assert not publisher.done
            life.fill(full=False)
            while len(publisher.done) < COUNT:
                mock_clock.jump(MAX_RETRY)
                await wait_all_tasks_blocked()
        assert publisher.done == set(range(1, COUNT + 1))
        assert life.node.metrics.messages_in[qos] == COUNT
