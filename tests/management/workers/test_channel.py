"""Messages and descriptors over a pair of sockets."""

import os
import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from trunkline.management.workers.channel import ChannelClosed, WorkerChannel
from trunkline.management.workers.messages import AlarmIs, Message, Quiet, Ready, SocketsAre

pytestmark = pytest.mark.skipif(os.name == "nt", reason="workers need Unix sockets")


@pytest.fixture
def ends() -> Iterator[tuple[WorkerChannel, WorkerChannel]]:
    one, other = map(WorkerChannel, socket.socketpair())
    yield one, other
    one.close()
    other.close()


async def said(channel: WorkerChannel, count: int) -> list[tuple[Message, list[int]]]:
    found = [await channel.receive() for _ in range(count)]
    return [each for each in found if each is not None]


async def test_messages_come_in_order_with_their_descriptors(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        one.send(Ready())
        one.send(SocketsAre(1, 0, ""), [first.fileno()])
        one.send(SocketsAre(2, 0, ""), [second.fileno(), first.fileno()])
        one.send(Quiet())
        (ready, none), (one_socket, [a]), (two_sockets, [b, c]), (quiet, _) = await said(other, 4)
        assert (ready, none, one_socket, two_sockets, quiet) == (
            Ready(),
            [],
            SocketsAre(1, 0, ""),
            SocketsAre(2, 0, ""),
            Quiet(),
        )
        assert not any(map(os.get_inheritable, (a, b, c)))
        ports = []
        for descriptor in (a, b, c):
            with socket.socket(fileno=descriptor) as copy:
                ports.append(copy.getsockname()[1])
        assert ports == [each.getsockname()[1] for each in (first, second, first)]


async def test_a_message_that_comes_in_pieces(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    text = "x" * 100_000
    async with trio.open_nursery() as nursery:

        async def hear() -> None:
            assert await said(other, 2) == [(AlarmIs("a", text), []), (Ready(), [])]

        nursery.start_soon(hear)
        one.send(AlarmIs("a", text))
        one.send(Ready())


async def test_the_end_of_the_other_side_ends_the_messages(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    one.send(Ready())
    one.close()
    assert await other.receive() == (Ready(), [])
    assert await other.receive() is None
    with pytest.raises(ChannelClosed):
        other.send(Ready())


async def test_closing_it_ends_whoever_listens(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, _ = ends
    async with trio.open_nursery() as nursery:
        nursery.start_soon(said, one, 1)
        await trio.testing.wait_all_tasks_blocked()
        one.close()


async def test_a_side_that_reads_nothing_is_as_good_as_gone(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, _ = ends
    with pytest.raises(ChannelClosed):  # noqa: PT012 - as soon as its socket is full
        for _ in range(10_000):
            one.send(AlarmIs("a", "x" * 1000))


async def test_what_is_written_in_part_is_not_gone_on_with(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, _ = ends
    with pytest.raises(ChannelClosed, match="reads nothing"):
        one.send(AlarmIs("a", "x" * 10_000_000))


def test_the_first_message_needs_no_event_loop(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    one.send(Ready())
    assert other.first(10) == Ready()


def test_a_first_message_that_does_not_come(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    with pytest.raises(ChannelClosed):
        other.first(0.01)
    one.close()
    with pytest.raises(ChannelClosed, match="says nothing"):
        other.first(10)


def test_descriptors_that_nobody_takes_are_closed(ends: tuple[WorkerChannel, WorkerChannel]) -> None:
    one, other = ends
    read, write = os.pipe()
    one.send(Ready())
    one.send(SocketsAre(1, 0, ""), [write])
    os.close(write)
    assert other.first(10) == Ready()
    one.close()
    other.close()
    assert os.read(read, 1) == b""  # nobody has the other end
    os.close(read)
