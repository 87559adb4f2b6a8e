"""A network connection's life."""

import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.conformance.raw import Will
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.net.stream_transport import StreamTransport
from trunkline.broker.session import mail
from trunkline.mqtt.decoder import Decoder


async def test_reading_stops_until_everyone_who_asked_for_it_has_resumed() -> None:
    async with room() as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 0))
        channel = here.session("a").channel
        assert channel is not None
        for holder in ("one", "two"):
            channel.cast(mail.Pause(holder))
        await watcher.ping()
        await client.send(raw.publish("t", b"x"))
        channel.cast(mail.Resume("one"))
        await watcher.expect_nothing()
        channel.cast(mail.Resume("two"))
        await watcher.expect_publish("t", b"x")


async def test_a_client_that_is_held_up_does_not_time_out(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", keep_alive=10)
        channel = here.session("a").channel
        assert channel is not None
        channel.cast(mail.Pause("test"))
        await client.send(raw.PINGREQ)
        await trio.sleep(100)
        channel.cast(mail.Resume("test"))
        await client.expect(raw.PINGRESP)
        began = trio.current_time()
        await client.expect_disconnect(0x8D)
        assert trio.current_time() - began == pytest.approx(15, abs=0.1)


async def test_after_the_last_packet_the_broker_waits_for_the_client_to_close(autojump_clock: MockClock) -> None:
    async with room(mqtt={"linger": 5}) as here:
        polite, stubborn = await here.client("a"), await here.client("b")
        connections = here.node.listeners.inside.connections
        for wire in (polite, stubborn):
            await wire.send(raw.PINGRESP)  # not for a client to send
            await wire.expect_disconnect(0x82)
        await polite.end()
        await trio.sleep(1)
        assert len(connections) == 1
        await trio.sleep(4.1)
        assert not connections


@pytest.mark.parametrize(("kind", "method"), [(Decoder, "feed"), (StreamTransport, "send")], ids=["read", "write"])
async def test_a_connection_that_crashes_is_lost_to_its_session_alone(
    kind: type, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, crashes = getattr(kind, method), [RuntimeError("on purpose")]

    def crash(self: object, data: bytes) -> Any:
        if data in (raw.PINGREQ, raw.PINGRESP) and crashes:
            raise crashes.pop()
        return original(self, data)

    monkeypatch.setattr(kind, method, crash)
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        await here.stay("a", will=Will("will", b"gone"))
        doomed = here._wires[-1]  # pyright: ignore[reportPrivateUsage]
        await doomed.send(raw.PINGREQ)
        await watcher.expect_publish("will", b"gone")
        await doomed.expect_close()
        assert here.session("a").channel is None
        await (await here.stay("a")).ping()
    assert "on purpose" in caplog.text


@asynccontextmanager
async def connected(number: int, **settings: Any) -> AsyncGenerator[list[socket.socket]]:
    """Clients with sockets that can be written to while the broker stands still."""
    async with testing.broker() as b:
        socks: list[socket.socket] = []
        for index in range(number):
            wire = await Wire.open(b.host, b.port)
            await wire.connect(f"client {index}", **settings)
            assert isinstance(wire.stream, trio.SocketStream)
            socks.append(socket.socket(fileno=os.dup(wire.stream.socket.fileno())))
            await wire.stream.aclose()
        yield socks
        for sock in socks:
            sock.close()


async def answered(socks: list[socket.socket]) -> int:
    """How many get their PINGRESP rather than the end."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    return sum(sock.recv(100) == raw.PINGRESP for sock in socks)


async def test_what_came_in_time_counts_after_a_pause_of_the_process(mock_clock: MockClock) -> None:
    async with connected(30, keep_alive=10) as socks:
        mock_clock.jump(9)
        for sock in socks:
            sock.send(raw.PINGREQ)
        mock_clock.jump(100)  # nothing runs meanwhile: a suspended machine, or a callback that blocks
        assert await answered(socks) == len(socks)
        mock_clock.jump(16)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [sock.recv(100)[0] for sock in socks] == [raw.DISCONNECT] * len(socks)  # nobody was heard of since


async def test_a_connect_that_came_in_time_counts_after_a_pause_of_the_process(mock_clock: MockClock) -> None:
    async with testing.broker(mqtt={"connect_timeout": 10}) as b:
        socks = [socket.create_connection((b.host, b.port)) for _ in range(30)]
        await trio.testing.wait_all_tasks_blocked(0.01)
        for number, sock in enumerate(socks):
            sock.send(raw.connect(f"client {number}"))
        mock_clock.jump(100)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [sock.recv(100)[0] for sock in socks] == [raw.CONNACK] * len(socks)
        mock_clock.jump(100)  # these have no keep-alive
        for sock in socks:
            sock.send(raw.PINGREQ)
        assert await answered(socks) == len(socks)
        for sock in socks:
            sock.close()


async def test_a_day_of_pings_and_of_a_wall_clock_that_is_set(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room() as here:
        client = await here.client("a", keep_alive=60)
        client.patience = 100
        wall = time.time
        for minute in range(24 * 60):
            offset = (minute % 7 - 3) * 3600.0
            monkeypatch.setattr(time, "time", lambda offset=offset: wall() + offset)
            await trio.sleep(60)
            await client.ping()
        await trio.sleep(89)
        await client.ping()
        began = trio.current_time()
        await client.expect_disconnect(0x8D)
        assert trio.current_time() - began == pytest.approx(90, abs=0.01)
