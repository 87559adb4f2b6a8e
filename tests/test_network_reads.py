"""Reading a server: a socket, and streams of other kinds."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair

from trunkline import network_reads
from trunkline.network_errors import NETWORK_ERRORS
from trunkline.network_reads import MAX_READ, StreamReader


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[trio.SocketStream, trio.SocketStream]]:
    one, two = trio.socket.socketpair()
    async with trio.SocketStream(one) as ours, trio.SocketStream(two) as theirs:
        yield ours, theirs


@pytest.mark.skipif(os.name != "posix", reason="a socket is no file there")
async def test_a_socket_that_was_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (ours, theirs):
        reader, got = StreamReader(ours), list[bytes]()
        monkeypatch.delattr(trio.SocketStream, "receive_some")  # it tries first
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                while data := await reader.next():
                    got.append(data)

            nursery.start_soon(read)
            for data in (b"one", b"two"):
                await trio.testing.wait_all_tasks_blocked()
                await theirs.send_all(data)
            await trio.testing.wait_all_tasks_blocked()
            await theirs.send_eof()
        assert got == [b"one", b"two"]


@pytest.mark.parametrize("reads_files", [True, False])
async def test_much_at_a_time_comes_as_it_was(monkeypatch: pytest.MonkeyPatch, reads_files: bool) -> None:
    monkeypatch.setattr(network_reads, "_READS_FILES", reads_files)
    sent = bytes(range(256)) * (3 * MAX_READ // 256) + b"end"
    async with pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(theirs.send_all, sent)
        reader, got = StreamReader(ours), b""
        while len(got) < len(sent):
            data = await reader.next()
            assert 0 < len(data) <= MAX_READ
            got += data
        assert got == sent


@pytest.mark.skipif(os.name != "posix", reason="a socket is no file there")
async def test_behind_a_full_read_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, waits = trio.lowlevel.wait_readable, list[int]()

    async def counted(file: int) -> None:
        waits.append(file)
        await wait(file)

    async with pair() as (ours, theirs):
        monkeypatch.setattr(network_reads, "MAX_READ", 10)
        await theirs.send_all(b"x" * 25)
        monkeypatch.setattr(trio.lowlevel, "wait_readable", counted)
        reader = StreamReader(ours)
        assert [len(await reader.next()) for _ in range(3)] == [10, 10, 5]
        assert len(waits) == 1


async def test_a_stream_that_is_no_socket() -> None:
    one, two = memory_stream_pair()
    await two.send_all(b"in memory")
    assert await StreamReader(one).next() == b"in memory"


async def test_ready_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may say that a socket can be read, and have nothing."""

    async def ready(_: object) -> None:
        await trio.lowlevel.checkpoint()

    async with pair() as (ours, theirs), trio.open_nursery() as nursery:
        monkeypatch.setattr(trio.lowlevel, "wait_readable", ready)
        reader = StreamReader(ours)
        got = list[bytes]()

        async def read() -> None:
            got.append(await reader.next())

        nursery.start_soon(read)
        await trio.lowlevel.checkpoint()
        await theirs.send_all(b"later")
    assert got == [b"later"]


async def test_a_broken_connection() -> None:
    async with pair() as (ours, theirs):
        reader = StreamReader(ours)
        await ours.send_all(b"unread")
        await theirs.aclose()
        with pytest.raises(NETWORK_ERRORS, match=r"reset|closed"):
            await reader.next()
        await ours.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await reader.next()
