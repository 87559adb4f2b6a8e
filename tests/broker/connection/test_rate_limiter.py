"""Connections over their rates wait, and lose nothing."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.connection.connection import Connection


def burst(count: int, qos: int = 0, version: int = 5) -> bytes:
    return b"".join(
        raw.publish("t", b"%d" % n, qos=qos, packet_id=n + 1 if qos else None, version=version) for n in range(count)
    )


async def test_messages_over_the_rate_come_later_all_of_them_and_in_order(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "10/s burst 20"}) as here:
        publisher, watcher = await here.client("p"), await here.client("w")
        await watcher.subscribe(("t", 0))
        began = trio.current_time()
        await publisher.send(burst(100), raw.PINGREQ)
        came: list[float] = []
        for n in range(100):
            await watcher.expect_publish("t", b"%d" % n)
            came.append(trio.current_time() - began)
        assert came[19] == 0
        assert all(n <= 20 + 10 * at + 10 for n, at in enumerate(came))  # a slice may be ahead
        assert came[-1] == pytest.approx(8, abs=1)
        await publisher.expect(raw.PINGRESP)
        figures = await here.node.figures()
        assert figures["rate.connection.messages"] > 5
        assert figures["messages.dropped"] == 0


@pytest.mark.parametrize("size", [0, 1, 200])
async def test_a_shaped_rate_lets_messages_go_on_one_by_one(size: int, autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "10/s shaped"}) as here:
        publisher, watcher = await here.client("p"), await here.client("w")
        await watcher.subscribe(("t", 0))
        await publisher.send(raw.publish("t", bytes(size)) * 50)
        came: list[float] = []
        for _ in range(50):
            await watcher.expect_publish("t", bytes(size))
            came.append(trio.current_time())
        gaps = [later - earlier for earlier, later in pairwise(came)]
        assert gaps == pytest.approx([0.1] * 49)


async def test_a_shaped_rate_of_bytes_puts_the_time_of_a_packet_behind_it(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_bytes": "100/s shaped"}) as here:
        publisher, watcher = await here.client("p"), await here.client("w")
        await watcher.subscribe(("t", 0))
        await trio.sleep(60)  # its CONNECT is paid for
        packets = [raw.publish("t", bytes(20 * (n + 1))) for n in range(5)]
        await publisher.send(*packets)
        came: list[float] = []
        for n in range(5):
            await watcher.expect_publish("t", bytes(20 * (n + 1)))
            came.append(trio.current_time())
        # a packet goes on with its last bytes, so it is its own bytes that it waited for, but for the first few
        for n in range(1, 5):
            assert came[n] - came[n - 1] == pytest.approx(len(packets[n - 1]) / 100, abs=0.06)


async def test_a_client_that_keeps_its_rate_is_never_paused(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "10/s", "connection_bytes": "1kB/s"}) as here:
        publisher = await here.client("p")
        for _ in range(50):
            await publisher.publish("t", b"x", qos=1)
            await trio.sleep(0.1)
        assert not any(here.node.metrics.limited.values())


async def test_bytes_over_the_rate_come_later(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_bytes": "1kB/s"}) as here:
        publisher = await here.client("p")
        began = trio.current_time()
        for n in range(10):
            await publisher.publish("t", bytes(990), qos=1, packet_id=n + 1)
        assert trio.current_time() - began == pytest.approx(9, abs=1)


async def test_a_new_connection_brings_a_client_no_new_burst(autojump_clock: MockClock) -> None:
    async with room(rate={"client_messages": "1/s burst 5"}) as here:
        began = trio.current_time()
        for _ in range(4):
            publisher = await here.client("p")
            for n in range(5):
                await publisher.publish("t", b"", qos=1, packet_id=n + 1)
            await publisher.disconnect()
        assert trio.current_time() - began == pytest.approx(15, abs=1)


async def test_connections_share_the_rate_of_the_node_in_turns(autojump_clock: MockClock) -> None:
    async with room(rate={"messages": "10/s"}) as here:
        watcher = await here.client("w")
        await watcher.subscribe(("+", 0))
        for name in ("a", "b"):
            publisher = await here.client(name)
            await publisher.send(*(raw.publish(name, bytes(100)) for _ in range(50)))
        came = [(await watcher.receive()).topic for _ in range(100)]
        half = came[10:60]
        assert min(half.count("a"), half.count("b")) > 15
        assert trio.current_time() == pytest.approx(9, abs=1)


async def test_the_end_comes_after_what_was_sent_before_it(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "5/s"}) as here:
        publisher, watcher = await here.client("p"), await here.client("w")
        await watcher.subscribe(("t", 0))
        await publisher.send(burst(50), raw.disconnect())
        for n in range(50):
            await watcher.expect_publish("t", b"%d" % n)
        await publisher.expect_close()
        assert here.node.metrics.packets_malformed == 0


async def test_a_paused_client_is_not_taken_for_silent(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "1/s"}) as here:
        publisher = await here.client("p", keep_alive=2)
        await publisher.send(burst(40, qos=1))
        for _ in range(40):
            await publisher.expect_type(raw.PUBACK)


async def test_a_client_that_is_disconnected_meanwhile_closes_as_ever(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "1/m"}, mqtt={"linger": 1000}) as here:
        publisher = await here.client("p")
        await publisher.send(burst(40))
        await trio.testing.wait_all_tasks_blocked()
        here.node.clients.kick("p")
        await publisher.expect_disconnect(0x98)
        await publisher.end()
        began = trio.current_time()
        (connection,) = here.node.listeners.connections
        await connection.ref.join()
        assert trio.current_time() == began


async def test_what_a_client_is_sent_does_not_wait_for_its_rate(autojump_clock: MockClock) -> None:
    async with room(rate={"connection_messages": "1/m burst 100"}, session={"max_queue_length": 10}) as here:
        # what is sent here waits until it is read
        theirs, ours = lockstep_stream_pair()
        here.node.listeners.inside.accept_stream(theirs)
        await ours.send_all(raw.connect("p"))
        await ours.receive_some(65_536)
        await ours.send_all(raw.subscribe(1, ("t", 0)) + burst(2000))
        await ours.receive_some(65_536)
        (connection,) = here.node.listeners.inside.connections
        assert connection.is_paused
        publisher = await here.client("other")
        for _ in range(100):
            await publisher.publish("t", bytes(100_000), qos=1)
        assert connection.pending < 3_000_000
        await ours.aclose()


async def test_the_log_names_the_limit_and_the_client(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(rate={"client_messages": "1/s"}) as here:
        publisher = await here.client("greedy")
        for n in range(3):
            await publisher.publish("t", b"", qos=1, packet_id=n + 1)
    lines = [record.getMessage() for record in caplog.records if record.name == "trunkline.limits"]
    assert lines == [
        "rate.client.messages acted for 1 client: client_messages = 1/s (client greedy)",
        (
            "rate.client.messages acted 2 more times in the last minute for 1 client: client_messages = 1/s "
            "(e.g. client greedy)"
        ),
    ]


async def test_without_a_limit_nothing_is_between_the_transport_and_the_connection() -> None:
    async with room(rate={"client_connections": "100/s"}) as here:
        await here.client("a")
        (connection,) = here.node.listeners.connections
        assert isinstance(connection, Connection)
        assert connection._limiter is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_quota_refuses_what_is_over_it(version: int, autojump_clock: MockClock) -> None:
    async with room(rate={"client_messages": "1/s burst 3", "over": "refuse"}) as here:
        publisher, watcher = await here.client("p", version=version), await here.client("w")
        await watcher.subscribe(("t", 0))
        dropped: list[str] = []

        def note(_client: object, _message: object, reason: str) -> None:
            dropped.append(reason)

        here.node.hooks.add("message.dropped", note)
        began = trio.current_time()
        await publisher.send(burst(5, qos=1, version=version), burst(2, version=version))
        reasons = [(await publisher.expect_type(raw.PUBACK)).reason for _ in range(5)]
        assert reasons == ([0, 0, 0, 0x97, 0x97] if version == 5 else [0] * 5)
        for n in range(3):
            await watcher.expect_publish("t", b"%d" % n)
        await watcher.expect_nothing(after=publisher)
        assert trio.current_time() == began
        assert dropped == ["rate_exceeded"] * 4
        await trio.sleep(1)
        await publisher.publish("t", b"later", qos=1, packet_id=9)
        await watcher.expect_publish("t", b"later")


async def test_a_client_id_that_connects_too_often_is_refused(autojump_clock: MockClock) -> None:
    async with room(rate={"client_connections": "1/m burst 2"}) as here:
        for _ in range(2):
            await (await here.client("a")).disconnect()
        wire = here.wire()
        await wire.send(raw.connect("a"))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0x9F
        await here.client("b")
        await trio.sleep(60)
        await here.client("a")
        assert (await here.node.figures())["rate.client.connections"] == 1
