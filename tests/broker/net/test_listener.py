"""Where clients come in, and who may."""

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.room import room
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.connection.connection import Connection
from trunkline.broker.net import poller as polling
from trunkline.broker.net.listener import Listener
from trunkline.broker.net.poller import Poller


def listeners(**settings: Any) -> dict[str, Any]:
    return {"listeners": [{"url": "tcp://127.0.0.1:0", **settings}]}


async def test_no_more_connections_than_allowed() -> None:
    async with testing.broker(**listeners(max_connections=2)) as b:
        first, second = await Wire.open(b.host, b.port), await Wire.open(b.host, b.port)
        await first.connect("first")
        await second.connect("second")
        third = await Wire.open(b.host, b.port)
        await third.expect_close()
        await first.disconnect()
        await first.abort()
        await second.ping()
        while len(inside(b.node).listeners[0].acceptor.connections) > 1:
            await trio.lowlevel.checkpoint()
        fourth = await Wire.open(b.host, b.port)
        await fourth.connect("fourth")
        assert inside(b.node).metrics.connections_refused == 1
        for wire in (second, third, fourth):
            await wire.abort()


async def test_who_is_turned_away_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker(**listeners(name="door", max_connections=1)) as b:
        first = await Wire.open(b.host, b.port)
        await first.connect("first")
        for _ in range(3):
            async with await Wire.open(b.host, b.port) as refused:
                await refused.expect_close()
        await first.abort()
    assert [record.getMessage() for record in caplog.records if record.name == "trunkline.listeners"] == [
        "door: 1 connection refused from 1 host: max_connections is 1 (127.0.0.1)",
        "door: 2 more connections refused in the last minute from 1 host: max_connections is 1 (e.g. 127.0.0.1)",
    ]


@pytest.mark.parametrize(
    ("rules", "welcome"),
    [
        (["allow 127.0.0.0/8", "deny all"], True),
        (["allow 10.0.0.0/8", "deny all"], False),
        (["deny 127.0.0.1"], False),
        (["deny ::1", "deny 10.0.0.0/8"], True),
    ],
)
async def test_access_rules(rules: list[str], welcome: bool) -> None:
    async with testing.broker(**listeners(access_rules=rules)) as b, await Wire.open(b.host, b.port) as wire:
        if welcome:
            await wire.connect("a")
        else:
            await wire.expect_close()


async def test_no_more_connections_of_one_address_than_allowed() -> None:
    async with testing.broker(**listeners(max_connections_per_address=1)) as b:
        first = await Wire.open(b.host, b.port)
        await first.connect("first")
        async with await Wire.open(b.host, b.port) as second:
            await second.expect_close()
        stream = await trio.open_tcp_stream(b.host, b.port, local_address="127.0.0.2")
        async with Wire(stream) as elsewhere:
            await elsewhere.connect("elsewhere")
        await first.disconnect()
        await first.abort()
        while len(inside(b.node).listeners[0].acceptor.connections):
            await trio.lowlevel.checkpoint()
        async with await Wire.open(b.host, b.port) as third:
            await third.connect("third")


async def test_clients_wait_while_a_listener_is_paused() -> None:
    async with testing.broker() as b:
        listener = inside(b.node).listeners[0]
        listener.pause()
        listener.pause()
        async with await Wire.open(b.host, b.port) as wire, trio.open_nursery() as nursery:
            nursery.start_soon(wire.connect, "patient")
            await trio.testing.wait_all_tasks_blocked()
            assert inside(b.node).metrics.connections_accepted == 0
            listener.resume()


async def test_a_pause_without_a_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "available", lambda: False)
    async with testing.broker() as b:
        listener = inside(b.node).listeners[0]
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("before")
        listener.pause()
        listener.resume()
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("after")


async def test_a_listener_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    async with testing.broker(listeners=[{"url": f"unix://{path}", "socket_mode": "600"}]) as b:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert inside(b.node).listeners[0].address == (str(path), 0)
        assert b.url == f"unix://{path}"
        async with Wire(await trio.open_unix_socket(path)) as wire:
            await wire.connect("local")
            await wire.ping()
            assert [(client.client_id, client.peer) for client in b.clients] == [("local", None)]
    assert not path.exists()


async def test_a_system_without_descriptors_raises_an_alarm_and_clients_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trunkline.broker.net.listener.PAUSE", 0.01)

    failures = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EMFILE, "Too many open files")]
    accept = socket.socket.accept

    def exhausted(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    async with testing.broker() as b:
        alarms: list[str] = []
        b.hooks.add("alarm.activated", lambda alarm: alarms.append(alarm.name))
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("patient")
        assert alarms == [OUT_OF_DESCRIPTORS]
        assert b.node.alarms.active == []


async def test_without_a_poller_connections_are_fed_by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "available", lambda: False)
    async with testing.broker(session={"max_inflight": 10}) as b:
        async with await Wire.open(b.host, b.port) as one, await Wire.open(b.host, b.port) as two:
            await one.connect("one")
            await two.connect("two")
            await two.subscribe(("t", 2))
            large = bytes(500_000)
            for qos in (0, 1, 2):
                await one.publish("t", large, qos=qos)
                await two.take_publish("t", large, qos=qos)
            await one.disconnect()
        assert inside(b.node).metrics.client_connected == 2
    async with room() as here:
        await (await here.client("a")).ping()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not told there")
@pytest.mark.parametrize(
    ("target", "name", "error"),
    [
        # on macOS, when the client has reset the connection meanwhile
        (socket.socket, "setsockopt", OSError(errno.EINVAL, "Invalid argument")),
        # fs.epoll.max_user_watches
        (Poller, "register", OSError(errno.ENOSPC, "No space left on device")),
        (Poller, "register", ValueError("a fault")),
        (Listener, "_allows", ValueError("a fault")),
        (Connection, "init", ValueError("a fault")),
    ],
)
async def test_an_error_while_a_connection_is_accepted_ends_that_one_alone(
    target: Any, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.broker.net.listener.PAUSE", 0.01)
    async with testing.broker() as b, await Wire.open(b.host, b.port) as there:
        await there.connect("there")
        before = descriptors()
        failures = [error]
        works = getattr(target, name)

        def fails_once(*args: Any) -> Any:
            if failures and (name != "setsockopt" or args[1:] == (6, 1, 1)):
                raise failures.pop()
            return works(*args)

        client = socket.create_connection((b.host, b.port))
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(client))
        monkeypatch.setattr(target, name, fails_once)
        async with Wire(stream) as unlucky:
            await unlucky.expect_close()
        assert not failures
        assert inside(b.node).metrics.connections_failed == 1
        await there.ping()
        assert len(inside(b.node).listeners[0].acceptor.connections) == 1
        assert descriptors() == before
        async with await Wire.open(b.host, b.port) as next_one:
            await next_one.connect("next")
        assert b.node.alarms.active == []


async def test_a_listener_comes_back_although_it_cannot_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.broker.net.listener.PAUSE", 0.01)
    errors = [OSError(errno.ENOSPC, "No space left on device") for _ in range(3)]
    register = Poller.register

    def fails_at_first(*args: Any) -> None:
        if errors:
            raise errors.pop()
        register(*args)

    async with testing.broker() as b:
        monkeypatch.setattr(Poller, "register", fails_at_first)
        async with await Wire.open(b.host, b.port) as first:
            await first.expect_close()
            assert [alarm.name for alarm in b.node.alarms.active] == [OUT_OF_DESCRIPTORS]
        async with await Wire.open(b.host, b.port) as second:
            await second.connect("second")
        assert not errors
        assert b.node.alarms.active == []


async def test_a_task_that_accepts_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "available", lambda: False)
    monkeypatch.setattr("trunkline.broker.net.listener.PAUSE", 0.01)
    errors = [OSError(errno.EMFILE, "Too many open files"), ValueError("a fault")]
    init = Connection.init

    def fails_at_first(self: Connection) -> None:
        if errors:
            raise errors.pop()
        init(self)

    monkeypatch.setattr(Connection, "init", fails_at_first)
    async with testing.broker() as b:
        for _ in range(2):
            async with await Wire.open(b.host, b.port) as unlucky:
                await unlucky.expect_close()
        assert [alarm.name for alarm in b.node.alarms.active] == [OUT_OF_DESCRIPTORS]
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("a")
        assert b.node.alarms.active == []
        assert inside(b.node).metrics.connections_failed == 2


@pytest.mark.parametrize("in_tasks", [False, True])
async def test_connections_over_the_rate_are_accepted_later(
    in_tasks: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_tasks:
        monkeypatch.setattr(polling, "available", lambda: False)
    async with testing.broker(**listeners(name="door", rate={"connections": "1/m burst 2"})) as b:
        began = trio.current_time()
        for number in range(4):
            async with await Wire.open(b.host, b.port) as wire:
                await wire.connect(f"c{number}")
        assert trio.current_time() - began == pytest.approx(120, abs=1)
        figures = await b.node.figures()
        assert figures["connections.accepted"] == 4
        assert figures["rate.listener.connections"] >= 2
