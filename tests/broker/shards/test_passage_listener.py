"""What other processes hand over is taken, or closed, whatever they do and whatever the system has no room for."""

import errno
import os
import resource
import socket
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.shards.passage_ends import Client, Ends, ends
from tests.broker.shards.some_shards import descriptors, until
from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.net.listener import PAUSE
from trunkline.broker.shards.passage_listener import PassageListener
from trunkline.broker.shards.passed_frames import frame_of


def connected(both: Ends) -> socket.socket:
    """Another process, by hand."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(both.path)
    return sock


def is_alarmed(both: Ends) -> bool:
    return OUT_OF_DESCRIPTORS in [alarm.name for alarm in both.services.alarms.active]


@pytest.mark.parametrize("rest", ["nothing", "a half", "garbage", "too much"])
async def test_a_process_that_breaks_off_leaks_nothing(rest: str) -> None:
    async with ends("sockets") as both:
        before = descriptors()
        client, peer = Client(), connected(both)
        frame = frame_of(client.passed)
        data = {"nothing": b"\0", "a half": frame[:-1], "garbage": b"\0\0\0\1\xc1", "too much": b"\xff" * 4}[rest]
        socket.send_fds(peer, [data], [client.passed.sock.fileno()])
        client.passed.close()
        if rest in ("nothing", "a half"):
            await wait_all_tasks_blocked()
            peer.close()
        await until(lambda: client.has(b""))
        peer.close()
        client.close()
        await until(lambda: descriptors() == before)
        assert both.taken == []


async def test_a_frame_without_a_descriptor_is_none(caplog: pytest.LogCaptureFixture) -> None:
    async with ends("sockets") as both:
        client, peer = Client(), connected(both)
        peer.sendall(frame_of(client.passed))
        assert peer.recv(1) == b"" if not await wait_all_tasks_blocked() else False
        client.passed.close()
        client.close()
        peer.close()
    assert "it has no descriptor" in caplog.text


async def test_a_process_cannot_use_up_the_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    async with ends("sockets") as both:
        before = descriptors()
        client, peer = Client(), connected(both)
        for byte in frame_of(client.passed)[:2]:
            socket.send_fds(peer, [bytes([byte])], [client.passed.sock.fileno()])
        client.passed.close()
        await until(lambda: client.has(b""))
        peer.close()
        client.close()
        await until(lambda: descriptors() == before)
    assert "it has several descriptors" in caplog.text


async def test_a_descriptor_that_is_no_socket_is_closed() -> None:
    async with ends("sockets") as both:
        client, peer = Client(), connected(both)
        before = descriptors()
        null = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(peer, [frame_of(client.passed)], [null])
        os.close(null)
        await until(lambda: both.services.metrics.connections_failed == 1)
        assert descriptors() <= before + 1  # the accepted end of the other process
        client.passed.close()
        client.close()
        peer.close()


async def test_without_a_free_descriptor_a_client_is_closed_and_the_others_wait(mock_clock: MockClock) -> None:
    async with ends("sockets") as both:
        warm = Client()
        assert both.passage.hand_over(warm.passed)
        await both.has_taken(1)
        clients = [Client() for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for client in clients:
            assert both.passage.hand_over(client.passed)  # their descriptors are with the system
        # the lowest free ones are taken, and the next is beyond the limit
        taken = [socket.socket() for _ in range(3)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(each.fileno() for each in taken) + 1, hard))
            await until(lambda: both.services.metrics.connections_failed == 1)
            await wait_all_tasks_blocked()
            assert clients[0].has(b""), "the system has closed it"
            assert is_alarmed(both)
            assert len(both.taken) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in taken:
                each.close()
        mock_clock.jump(PAUSE)
        await both.has_taken(3)
        assert not is_alarmed(both)
        for client in (*clients, warm):
            client.close()


async def test_without_a_free_descriptor_processes_wait(mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends("sockets") as both:
        assert both.listener is not None
        listening: Any = both.listener._sock

        class Full:
            fileno = listening.fileno
            close = listening.close

            def accept(self) -> None:
                raise OSError(errno.EMFILE, "no more descriptors")

        listener: Any = both.listener
        listener._sock = Full()
        client = Client()
        assert both.passage.hand_over(client.passed)
        await until(lambda: is_alarmed(both))
        listener._sock = listening
        await wait_all_tasks_blocked()
        assert both.taken == []
        mock_clock.jump(PAUSE)
        await both.has_taken(1)
        client.close()


async def test_a_path_that_cannot_be_listened_at_is_an_error() -> None:
    async with ends("sockets") as both:
        before = descriptors()
        with pytest.raises(OSError, match=r"."):
            PassageListener("/no/such/folder/1", both.services, both.taken.append)
        assert descriptors() == before
