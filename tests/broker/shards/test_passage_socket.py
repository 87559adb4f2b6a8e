"""Connections go to another process over a Unix socket, and to the one that comes after it."""

import errno
import os
import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.shards.passage_ends import Client, ends
from tests.broker.shards.some_shards import descriptors, until
from trunkline.broker.net.passed import MAX_FIRST
from trunkline.broker.shards.passage_socket import LOOK, MAX_HELD
from trunkline.broker.shards.passages import MAX_WAITING
from trunkline.broker.shards.passed_frames import frame_of
from trunkline.hooks.identity import Certificate, Identity


async def test_a_shard_that_is_started_anew_is_found() -> None:
    async with ends("sockets") as both:
        for number in range(3, 12, 3):
            clients = [Client() for _ in range(3)]
            assert both.passage.hand_over(clients[0].passed)
            await both.has_taken(number - 2)
            assert both.listener is not None
            both.listener.close()
            await wait_all_tasks_blocked()
            for late in clients[1:]:
                assert both.passage.hand_over(late.passed), "it waits"
            both.listen()
            await both.has_taken(number)
            for client in clients:
                client.close()


async def test_nobody_listens_at_a_socket_that_was_left(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with ends("sockets") as both:
        assert both.listener is not None
        both.listener.close()
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(both.path)
        clients = [Client() for _ in range(MAX_WAITING + 1)]
        assert [both.passage.hand_over(client.passed) for client in clients] == [True] * MAX_WAITING + [False]
        await trio.sleep(MAX_HELD - LOOK)
        assert not clients[0].has(b"refused")
        await trio.sleep(2 * LOOK)
        assert all(client.has(b"refused") for client in clients[:-1])
        clients[-1].passed.close()
        for client in clients:
            client.close()
        assert [record.getMessage() for record in caplog.records] == [
            f"cannot hand connections over to {both.path}: {os.strerror(errno.ECONNREFUSED)}",
            f"{MAX_WAITING} connections that were to be handed over to {both.path} are refused: it has not come back",
        ]
        both.listen()  # in place of what was left
        client = Client()
        assert both.passage.hand_over(client.passed)
        await both.has_taken(1)
        client.close()


async def test_what_would_be_too_long_a_frame_stays_with_the_caller() -> None:
    async with ends("sockets") as both:
        client = Client(bytes(MAX_FIRST))
        names = tuple(("DNS", "x" * 100) for _ in range(400))
        passed: Any = client.passed
        object.__setattr__(passed, "identity", Identity(Certificate(names=names)))
        assert not both.passage.hand_over(passed)
        passed.close()
        client.close()


async def test_a_descriptor_that_the_system_does_not_take_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    send_fds, fails = socket.send_fds, True

    def send(*args: Any) -> int:
        if fails:
            raise OSError(errno.ETOOMANYREFS, "too many")
        return send_fds(*args)

    monkeypatch.setattr(socket, "send_fds", send)
    async with ends("sockets") as both:
        client, other = Client(), Client()
        assert both.passage.hand_over(client.passed)
        assert client.has(b"refused")
        fails = False
        assert both.passage.hand_over(other.passed)
        await both.has_taken(1)
        for each in (client, other):
            each.close()


@pytest.mark.parametrize("call", ["register", "modify"])
async def test_a_poller_that_watches_no_more_sockets_refuses(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends("sockets") as both:
        before = descriptors()

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no more watches")

        monkeypatch.setattr(type(both.poller), call, fail)
        clients = [Client(bytes(MAX_FIRST)) for _ in range(MAX_WAITING)]
        if call == "register":
            assert not both.passage.hand_over(clients[0].passed)
        else:
            taken = [client for client in clients if both.passage.hand_over(client.passed)]
            assert any(client.has(b"refused") for client in taken)
        monkeypatch.undo()
        for client in clients:
            client.passed.close()
            client.close()
        await until(lambda: descriptors() <= before + 1 + len(both.taken))


async def test_a_socket_that_ends_is_noticed_and_what_it_has_is_closed() -> None:
    async with ends("sockets") as both:
        assert both.listener is not None
        both.listener.close()
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(both.path)
        listening.listen()
        client = Client()
        assert both.passage.hand_over(client.passed)
        peer, _ = listening.accept()
        peer.close()  # it has taken nothing
        listening.close()
        await until(lambda: client.has(b""))
        os.unlink(both.path)
        both.listen()
        again = Client()
        assert both.passage.hand_over(again.passed)
        await both.has_taken(1)
        for each in (client, again):
            each.close()


@pytest.mark.parametrize("over", [0, 1])
async def test_the_longest_frame_goes(over: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends("sockets") as both:
        client = Client()
        longest = len(frame_of(client.passed)) - over
        monkeypatch.setattr("trunkline.broker.shards.passage_socket.MAX_FRAME", longest)
        assert both.passage.hand_over(client.passed) is (not over)
        if over:
            client.passed.close()
        else:
            await both.has_taken(1)
        client.close()


async def test_those_that_wait_are_refused_when_another_user_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends("sockets") as both:
        assert both.listener is not None
        both.listener.close()
        await wait_all_tasks_blocked()
        client = Client()
        assert both.passage.hand_over(client.passed)
        monkeypatch.setattr("trunkline.broker.shards.passage_socket.is_own_user", lambda sock: False)
        both.listen()
        await until(lambda: client.has(b"refused"))
        client.close()
        await wait_all_tasks_blocked()


async def test_each_loss_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with ends("sockets") as both:
        for number in (1, 2):
            assert both.listener is not None
            both.listener.close()
            await wait_all_tasks_blocked()
            clients = [Client() for _ in range(3)]
            for client in clients:
                assert both.passage.hand_over(client.passed)
            both.listen()
            await both.has_taken(3 * number)
            for client in clients:
                client.close()
            said = [record.getMessage() for record in caplog.records]
            assert len([text for text in said if text.startswith("cannot hand connections over")]) == number
