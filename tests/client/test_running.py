"""Output on a plain socket: a task that asks writes it itself when the writer is idle."""

import os
import socket
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trunkline.client import Client, ConnectionSettings, running
from trunkline.client.outgoing import MANY_ANSWERS
from trunkline.client.request_queue import FEW_TASKS
from trunkline.client.running import READ_PAUSE
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Pingreq, Pingresp, Puback
from trunkline.mqtt.versions import Version

CONNACK = bytes.fromhex("2003000000")
SETTINGS = ConnectionSettings(keep_alive=0)


def pair() -> tuple[trio.SocketStream, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.sendall(CONNACK)
    theirs.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(ours)), theirs


async def read_all(sock: socket.socket) -> bytes:
    """All that is sent until the other tasks have nothing to do."""
    data = bytearray()
    while True:
        try:
            while more := sock.recv(65_536):
                data += more
            return bytes(data)
        except BlockingIOError:
            before = len(data)
            await wait_all_tasks_blocked()
            with suppress(BlockingIOError):
                data += sock.recv(65_536)
            if len(data) == before:
                return bytes(data)


async def test_publish_writes_to_the_socket_without_the_writer() -> None:
    stream, server = pair()
    with server:
        async with Client(SETTINGS, open_stream=lambda _: stream) as client:
            await read_all(server)
            runner = client._runner
            wakes_writer, runner._output = runner._output, trio.Event()
            await client.publish("t", b"payload")
            assert server.recv(100).endswith(b"payload")
            runner._output = wakes_writer
            server.close()


async def test_output_that_a_full_socket_does_not_take_follows_in_order() -> None:
    stream, server = pair()
    with server:
        async with Client(SETTINGS, open_stream=lambda _: stream, max_queued=1000) as client:
            await read_all(server)
            payloads = [bytes([number]) * 20_000 for number in range(100)]
            async with trio.open_nursery() as nursery:

                async def publish() -> None:
                    for payload in payloads:
                        await client.publish("t", payload)

                nursery.start_soon(publish)
                await wait_all_tasks_blocked()
                data = await read_all(server)
            data += await read_all(server)
            assert [data.count(payload) for payload in payloads] == [1] * 100
            places = [data.index(payload) for payload in payloads]
            assert places == sorted(places)
            server.close()


@pytest.mark.parametrize(("number", "is_together"), [(MANY_ANSWERS - 1, False), (2 * MANY_ANSWERS, True)])
async def test_answers_to_a_burst_are_read_together(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, number: int, is_together: bool
) -> None:
    stream, server = pair()
    reads: list[int] = []
    with server:
        async with Client(SETTINGS, open_stream=lambda _: stream) as client, trio.open_nursery() as nursery:
            await read_all(server)
            monkeypatch.setattr(client._receivers, "hand_over", lambda _, size: reads.append(size))
            nursery.start_soon(lambda: client.publish_many("t", [b"x"] * number, qos=1))
            await read_all(server)
            for packet_id in range(1, number + 1):
                server.sendall(encode(Puback(packet_id), Version.V5))
                await trio.sleep(READ_PAUSE / 100)
        server.close()
    assert sum(reads) == 4 * number
    assert max(reads) >= 80 if is_together else set(reads) == {4}


async def test_many_tasks_that_publish_at_once_write_together(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, server = pair()
    writes: list[bytes] = []
    write = os.write

    def counting(file: int, data: bytes) -> int:
        writes.append(data)
        return write(file, data)

    with server:
        async with Client(SETTINGS, open_stream=lambda _: stream) as client:
            await read_all(server)
            monkeypatch.setattr(running.os, "write", counting)
            async with trio.open_nursery() as nursery:
                for _ in range(5 * FEW_TASKS):
                    nursery.start_soon(client.publish, "t", b"payload")
            monkeypatch.undo()
            assert (await read_all(server)).count(b"payload") == 5 * FEW_TASKS
            assert 0 < len(writes) <= FEW_TASKS + 1
            server.close()


async def test_an_answer_that_is_there_counts_before_its_time_is_over(mock_clock: MockClock) -> None:
    """As after a stop of the process, when both have come."""
    stream, server = pair()
    settings = ConnectionSettings(keep_alive=10, ping_timeout=5)
    with server:
        async with Client(settings, open_stream=lambda _: stream) as client:
            for seconds in [10] + [100] * 20:  # which task runs first is left to chance
                mock_clock.jump(seconds)
                await wait_all_tasks_blocked()
                assert (await read_all(server)).endswith(encode(Pingreq(), Version.V5))
                server.sendall(encode(Pingresp(), Version.V5))
            await client.publish("t")
            server.close()
