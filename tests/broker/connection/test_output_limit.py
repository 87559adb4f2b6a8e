"""A client that asks and never reads the answers."""

import trio
from trio.testing import MockClock, lockstep_stream_pair

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.connection.connection import OUTPUT_LIMIT
from trunkline.broker.metrics import LimitKind


async def test_answers_that_nobody_reads_are_bounded(autojump_clock: MockClock) -> None:
    async with testing.broker(history=0) as b:
        # what is sent here waits until it is read: the smallest socket that there could be
        theirs, ours = lockstep_stream_pair()
        inside(b.node).listeners.inside.accept_stream(theirs)
        await ours.send_all(raw.connect("greedy"))
        connack = await ours.receive_some(65_536)
        assert connack[0] == raw.CONNACK
        (connection,) = inside(b.node).listeners.inside.connections
        transport = connection._transport  # pyright: ignore[reportPrivateUsage]
        pings = raw.PINGREQ * 32_768
        sent = 0
        with trio.move_on_after(1) as patience:
            while sent < 64 * OUTPUT_LIMIT:
                await ours.send_all(pings)
                sent += len(pings)
        assert patience.cancelled_caught
        assert OUTPUT_LIMIT < transport.pending < 2 * OUTPUT_LIMIT
        assert inside(b.node).metrics.limited[LimitKind.OUTPUT] == 1

        other = Wire(b.connect())
        await other.connect("other")
        await other.ping()
        await other.abort()

        answers = 0
        with trio.move_on_after(1):
            while True:
                answers += len(await ours.receive_some(1_048_576))
        assert answers >= sent
        assert transport.pending == 0
        await ours.aclose()
