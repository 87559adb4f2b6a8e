"""Where clients come in, and who may."""

import errno
import socket
from typing import Any

import pytest
import trio

from tests.broker.room import room
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.connection import poller as polling
from trunkline.broker.listeners import Listener
from trunkline.broker.node import ListenError


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
        while len(b.node.listeners[0].gate.connections) > 1:
            await trio.lowlevel.checkpoint()
        fourth = await Wire.open(b.host, b.port)
        await fourth.connect("fourth")
        assert b.node.metrics.connections_refused == 1
        for wire in (second, third, fourth):
            await wire.abort()


@pytest.mark.parametrize(
    ("settings", "welcome"),
    [
        ({"allow": ["127.0.0.0/8"]}, True),
        ({"allow": ["10.0.0.0/8"]}, False),
        ({"deny": ["127.0.0.1"]}, False),
        ({"allow": ["127.0.0.0/8"], "deny": ["127.0.0.1/32"]}, False),
        ({"deny": ["::1", "10.0.0.0/8"]}, True),
    ],
)
async def test_networks(settings: dict[str, Any], welcome: bool) -> None:
    async with testing.broker(**listeners(**settings)) as b:
        if welcome:
            async with await Wire.open(b.host, b.port) as wire:
                await wire.connect("a")
        else:
            wire = await Wire.open(b.host, b.port)
            await wire.expect_close()
            await wire.abort()


async def test_an_ipv4_address_in_ipv6_clothes_is_an_ipv4_address() -> None:
    async with testing.broker(**listeners(deny=["127.0.0.0/8"])) as b:
        listener = b.node.listeners[0]
        assert not listener._welcome(("::ffff:127.0.0.1", 1))  # pyright: ignore[reportPrivateUsage]
        assert listener._welcome(("fe80::1%eth0", 1))  # pyright: ignore[reportPrivateUsage]


async def test_an_address_in_use_is_one_line() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with pytest.raises(ListenError, match=rf"cannot listen on tcp://127\.0\.0\.1:{port}: .*in use"):
        async with testing.broker(listeners=[f"tcp://127.0.0.1:{port}"]):
            raise AssertionError("it listens")
    taken.close()


async def test_several_listeners_know_their_ports() -> None:
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"]) as b:
        ports = {listener.address[1] for listener in b.node.listeners}
        assert len(ports) == 2
        assert 0 not in ports
        for listener in b.node.listeners:
            async with await Wire.open(*listener.address) as wire:
                await wire.connect("a")


async def test_a_system_without_descriptors_raises_an_alarm_and_clients_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trunkline.broker.listeners.PAUSE", 0.01)

    class Exhausted:
        """A listening socket whose system has no descriptors for two calls."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock
            self.failures = 2

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sock, name)

        def accept(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self.sock.accept()

    bound = Listener._accept  # pyright: ignore[reportPrivateUsage]
    exhausted: dict[socket.socket, Exhausted] = {}

    def accept(self: Listener, listening: Any, events: int) -> None:
        found = listening if isinstance(listening, Exhausted) else exhausted.setdefault(listening, Exhausted(listening))
        bound(self, found, events)  # type: ignore[arg-type]

    monkeypatch.setattr(Listener, "_accept", accept)
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
        assert b.node.metrics.client_connected == 2
    async with room() as here:
        await (await here.client("a")).ping()
