from collections.abc import Callable

import pytest
import trio.testing
from trio.testing import lockstep_stream_pair, memory_stream_pair

from tests.broker.net.transport_ends import MUCH, Mailbox, owner, read_all
from trunkline.actors import Scheduler
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.stream_transport import StreamTransport
from trunkline.broker.net.transport import BLOCKED, DRAINED, READ_SIZE, Event


async def test_a_stream_that_takes_nothing_is_blocked_until_it_does() -> None:
    theirs, ours = lockstep_stream_pair()
    transport, mailbox = StreamTransport(theirs, None, Scheduler(), Metrics()), Mailbox()
    async with trio.open_nursery() as nursery:
        transport.start(mailbox, owner(nursery.start_soon))
        transport.send(b"first")
        await trio.testing.wait_all_tasks_blocked()
        assert not mailbox.got
        transport.send(MUCH)
        assert mailbox.got == [BLOCKED]
        assert await read_all(ours, 5 + len(MUCH)) == b"first" + MUCH
        await mailbox.until(lambda: DRAINED in mailbox.got)
        await ours.send_all(b"back")
        await mailbox.until(lambda: mailbox.data == b"back")
        transport.finish()
        assert await ours.receive_some() == b""
        await ours.aclose()
        await mailbox.until(lambda: mailbox.ended == "")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("pair", [lockstep_stream_pair, memory_stream_pair])
async def test_a_stream_is_reset_when_it_has_sent_the_last_bytes(
    pair: Callable[[], tuple[trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream], trio.abc.Stream]],
) -> None:
    theirs, ours = pair()
    transport, mailbox = StreamTransport(theirs, None, Scheduler(), Metrics()), Mailbox()
    async with trio.open_nursery() as nursery:
        transport.start(mailbox, owner(nursery.start_soon))
        transport.send(b"last")
        transport.reset()
        assert await read_all(ours, 4) == b"last"
        await mailbox.until(lambda: mailbox.ended == "reset")
        nursery.cancel_scope.cancel()
    assert await ours.receive_some() == b""


async def test_what_comes_while_it_is_paused_is_bounded_and_before_the_end() -> None:
    theirs, ours = memory_stream_pair()
    transport, mailbox = StreamTransport(theirs, None, Scheduler(), Metrics()), Mailbox()
    async with trio.open_nursery() as nursery:
        transport.start(mailbox, owner(nursery.start_soon))
        await trio.testing.wait_all_tasks_blocked()
        transport.pause()
        for _ in range(3):  # a read need not be full
            await ours.send_all(bytes(READ_SIZE - 10))
            await trio.testing.wait_all_tasks_blocked()
        assert len(transport.take_unread()) == READ_SIZE
        await ours.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert mailbox.got == []
        transport.resume()
        await mailbox.until(lambda: mailbox.ended == "")
        assert len(mailbox.data) == 2 * READ_SIZE - 30
        nursery.cancel_scope.cancel()


async def test_the_end_waits_while_it_is_paused() -> None:
    theirs, ours = memory_stream_pair()
    transport, mailbox = StreamTransport(theirs, None, Scheduler(), Metrics()), Mailbox()

    def take(event: Event) -> None:
        mailbox(event)
        if event == b"last":
            transport.pause()

    async with trio.open_nursery() as nursery:
        transport.start(take, owner(nursery.start_soon))
        await trio.testing.wait_all_tasks_blocked()
        transport.pause()
        await ours.send_all(b"last")
        await ours.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert mailbox.got == []
        transport.resume()
        await mailbox.until(lambda: mailbox.data == b"last")
        await trio.testing.wait_all_tasks_blocked()
        assert mailbox.got == [b"last"]
        transport.resume()
        await mailbox.until(lambda: mailbox.ended == "")
        nursery.cancel_scope.cancel()
