"""Clients that send a packet byte by byte, after their CONNECT and before."""

import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.net import proxied
from tests.broker.net.web_client import request
from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.connection import slow_senders
from trunkline.broker.connection.slow_senders import SlowSenders
from trunkline.broker.metrics import LimitKind
from trunkline.broker.session import mail

#: Seconds between two checks: an end may come up to two of them late.
SLACK = slow_senders.INTERVAL

#: As in a standalone broker.
LIMITED = {"packet_timeout": 30}


def large(size: int) -> bytes:
    return raw.publish("t", bytes(size))


async def drip(wire: Wire, data: bytes, seconds: float, size: int = 1) -> float | None:
    """Send so many bytes each so many seconds. When the broker ended it, or None."""
    began = trio.current_time()
    for at in range(0, len(data), size):
        try:
            await wire.stream.send_all(data[at : at + size])
        except trio.BrokenResourceError:
            return trio.current_time() - began
        await trio.sleep(seconds)
    return None


@pytest.mark.parametrize("keep_alive", [0, 10])
async def test_a_packet_that_comes_byte_by_byte_has_a_limit(
    keep_alive: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(mqtt=LIMITED) as here:
        client = await here.client("dripping", keep_alive=keep_alive)
        client.patience = 1000
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, large(1000), 3)
            await client.expect_disconnect(0x97)
            nursery.cancel_scope.cancel()
        assert 30 <= trio.current_time() - began <= 30 + 2 * SLACK
        assert (await here.node.figures())["rate.connection.slow"] == 1
    (record,) = [each for each in caplog.records if each.name == "trunkline.limits"]
    assert record.levelno == logging.WARNING
    assert "packet_timeout = 30s, min_packet_rate = 100 (client dripping)" in record.getMessage()


async def test_a_3x_client_is_just_disconnected(autojump_clock: MockClock) -> None:
    async with room(mqtt={"packet_timeout": 5}) as here:
        client = await here.client("old", version=4)
        await client.send(large(100)[:50])
        await trio.sleep(5 * 3 + 1)
        await client.expect_close()


async def test_a_header_that_comes_byte_by_byte_is_one_packet(autojump_clock: MockClock) -> None:
    async with room(mqtt=LIMITED) as here:
        client = await here.client("a")
        await drip(client, b"\x30\xff\xff\xff", 9)
        await client.expect_disconnect(0x97)


async def test_a_large_packet_may_take_as_long_as_the_least_rate_allows(autojump_clock: MockClock) -> None:
    async with room(mqtt=LIMITED) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 0))
        for packet in (large(100_000), large(200)):
            assert await drip(client, packet, 5, 600) is None  # 120 bytes a second
        watcher.patience = 1
        await watcher.expect_publish("t", bytes(100_000))
        await watcher.expect_publish("t", bytes(200))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, large(100_000), 5, 400)  # 80 bytes a second
            await trio.sleep(220)
            client.patience = 1
            await client.expect_disconnect(0x97)
            nursery.cancel_scope.cancel()


async def test_a_client_that_always_holds_a_part_of_another_packet_stays(autojump_clock: MockClock) -> None:
    packet = large(100)
    stream = packet[50:] + packet[:50]  # each piece ends one packet and begins the next
    async with room(mqtt=LIMITED) as here:
        client = await here.client("a")
        await client.send(packet[:50])
        for _ in range(50):
            await client.send(stream)
            await trio.sleep(SLACK - 1)
        await client.send(packet[50:])
        await client.ping()


async def test_the_time_of_a_client_that_the_broker_keeps_waiting_does_not_run(autojump_clock: MockClock) -> None:
    async with room(mqtt=LIMITED) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await client.send(large(100)[:50])
        await watcher.ping()
        channel = here.session("a").channel
        assert channel is not None
        channel.cast(mail.Pause("test"))
        await trio.sleep(1000)
        channel.cast(mail.Resume("test"))
        await client.send(large(100)[50:])
        await client.ping()


async def test_a_pause_of_the_process_is_not_the_clients(mock_clock: MockClock) -> None:
    async with testing.broker() as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        await wire.send(large(100)[:50])
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(SLACK + 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(1000)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await wire.send(large(100)[50:])
        await wire.ping()
        await wire.abort()


async def test_it_can_be_off(autojump_clock: MockClock) -> None:
    async with room(mqtt={"packet_timeout": 0}) as here:
        client = await here.client("a")
        await client.send(large(100)[:50])
        await trio.sleep(10_000)
        await client.send(large(100)[50:])
        await client.ping()


class Holding:
    """A connection that holds a part of a packet, or none."""

    def __init__(self, held: tuple[int, int] | None) -> None:
        self.held_packet = held
        self.is_paused = False
        self.ends = 0

    def end_slow_packet(self, limit: str) -> None:
        self.ends += 1


async def test_many_connections_are_checked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_senders, "CHECKED_AT_ONCE", 10)
    connections: Any = [Holding((0, 100) if n % 2 else None) for n in range(95)]
    checks = SlowSenders(lambda: connections, 20.0, 100)
    for _ in range(3):
        with trio.testing.assert_checkpoints():
            await checks.check()
        assert not any(each.ends for each in connections)  # 20 s, and one for 100 bytes
    await checks.check()
    assert [each.ends for each in connections] == [n % 2 for n in range(95)]


# Before CONNECT: `mqtt.connect_timeout` counts from the accept, whatever comes


TIMEOUT = 7


def certificate(files: Path) -> dict[str, object]:
    trustme = pytest.importorskip("trustme")
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(files / "server.pem"))
    return {"url": "tls://127.0.0.1:0", "tls": {"certificate": str(files / "server.pem"), "handshake_timeout": 100}}


def websocket(_files: Path) -> dict[str, object]:
    return {"url": "ws://127.0.0.1:0", "websocket": {"upgrade_timeout": 100}}


def proxy(_files: Path) -> dict[str, object]:
    return {"url": "tcp://127.0.0.1:0", "proxy_protocol": {"trusted": ["127.0.0.1"], "timeout": 100}}


def plain(_files: Path) -> dict[str, object]:
    return {"url": "tcp://127.0.0.1:0"}


CONNECT = raw.connect("a" * 200)
CASES: dict[str, tuple[Callable[[Path], dict[str, object]], bytes, bytes]] = {
    # the listener, what comes at once, what comes byte by byte
    "tls": (certificate, b"", b"\x16\x03\x01\x02\x00" + bytes(200)),
    "websocket": (websocket, b"", request()),
    "websocket frame": (websocket, request(), b"\x82\xfe" + struct.pack("!H", 200) + bytes(4) + CONNECT[:200]),
    "proxy v1": (proxy, b"", proxied.v1(("203.0.113.9", 40_000))),
    "proxy v2": (proxy, b"", proxied.v2(("203.0.113.9", 40_000), proxied.value(4, bytes(200)))),
    "connect behind proxy": (proxy, proxied.v1(("203.0.113.9", 40_000)), CONNECT),
    "connect": (plain, b"", CONNECT),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_time_before_connect_is_bounded_over_all_layers(
    case: str, tmp_path: Path, mock_clock: MockClock
) -> None:
    listener, first, dripped = CASES[case]
    async with testing.broker(listeners=[listener(tmp_path)], mqtt={"connect_timeout": TIMEOUT}) as b:
        stream = await trio.open_tcp_stream(b.host, b.port)
        connections = inside(b.node).listeners[0].acceptor.connections
        await stream.send_all(first + dripped[:1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        for number in range(1, TIMEOUT):
            mock_clock.jump(1)
            await stream.send_all(dripped[number : number + 1])
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(connections) == 1
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not connections
        assert inside(b.node).metrics.limited[LimitKind.CONNECT_TIMEOUT] == 1
        await stream.aclose()
