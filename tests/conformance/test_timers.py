"""What happens with time: keep alive, will delay, session and message expiry.

Time is virtual and the connections are in memory, so hours pass in no time. The broker under test is always Trunkline.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.conformance import raw
from tests.conformance.lab import OTHER, nothing_crashes
from tests.conformance.raw import Will
from tests.conformance.statements import shows
from tests.wire import Wire

pytestmark = pytest.mark.skipif(bool(OTHER), reason="only a broker in this process can live in virtual time")

#: Nothing real takes that long, and a virtual day costs nothing.
DAY = 86_400.0


class Room:
    """A broker in virtual time and its clients."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._opened: list[Wire] = []

    async def wire(self, *, version: int = 5) -> Wire:
        wire = Wire(self._broker.connect(), version=version, patience=DAY)
        self._opened.append(wire)
        return wire

    async def client(self, name: str, *, version: int = 5, **settings: Any) -> Wire:
        wire = await self.wire(version=version)
        await wire.connect(name, **settings)
        return wire

    async def close(self) -> None:
        for wire in self._opened:
            await wire.abort()


@asynccontextmanager
async def room(**settings: dict[str, object]) -> AsyncIterator[Room]:
    from trunkline import testing

    with nothing_crashes():
        async with testing.broker(history=0, **settings) as broker:
            opened = Room(broker)
            try:
                yield opened
            finally:
                await opened.close()


async def _closed_after(wire: Wire) -> float:
    """Seconds until the broker is done with this connection."""
    began = trio.current_time()
    await wire.rest()
    return trio.current_time() - began


# Keep alive


@shows("MQTT-3.1.2-22", "MQTT-3.2.2-22")
@pytest.mark.parametrize("keep_alive", [1, 5, 60, 3600])
async def test_silence_of_one_and_a_half_keep_alives(autojump_clock: MockClock, keep_alive: int) -> None:
    async with room() as here:
        client = await here.client("a", keep_alive=keep_alive)
        began = trio.current_time()
        await client.expect_disconnect(0x8D)
        waited = trio.current_time() - began
        assert keep_alive * 1.5 <= waited <= keep_alive * 1.5 + 1


@shows("MQTT-3.1.2-22", "MQTT-3.1.2-8")
async def test_the_will_is_published_when_the_keep_alive_is_over(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        began = trio.current_time()
        await here.client("a", keep_alive=5, will=Will("will"))
        await watcher.expect_publish("will", b"gone")
        assert 7.5 <= trio.current_time() - began <= 8.5


@shows("MQTT-3.1.2-22", "MQTT-3.12.4-1")
async def test_any_packet_keeps_a_connection_alive(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", keep_alive=10)
        for number in range(20):
            await trio.sleep(14)
            if number % 2:
                await client.ping()
            else:
                await client.send(raw.publish("t", b"x"))
        assert 15 <= await _closed_after(client) <= 16


@shows("MQTT-3.1.2-22")
async def test_packets_to_the_client_do_not_keep_it_alive(autojump_clock: MockClock) -> None:
    async with room() as here:
        client, publisher = await here.client("a", keep_alive=10), await here.client("p")
        await client.subscribe(("t", 0))
        began = trio.current_time()
        for _ in range(14):
            await trio.sleep(1)
            await publisher.publish("t", b"x")
        await client.rest()
        assert 15 <= trio.current_time() - began <= 16


@shows("MQTT-3.1.2-22")
@pytest.mark.parametrize("version", [4, 5])
async def test_keep_alive_0_is_no_limit(autojump_clock: MockClock, version: int) -> None:
    async with room() as here:
        client = await here.client("a", version=version, keep_alive=0)
        await trio.sleep(10 * DAY)
        await client.ping()


@shows("MQTT-3.2.2-22", "MQTT-3.1.2-22")
async def test_a_keep_alive_of_the_brokers(autojump_clock: MockClock) -> None:
    async with room(mqtt={"max_keep_alive": 20}) as here:
        for asked in (0, 3600):
            client = await here.wire()
            connack = await client.connect("a", keep_alive=asked)
            assert connack.get(raw.SERVER_KEEP_ALIVE) == 20
            assert 30 <= await _closed_after(client) <= 31
        client = await here.wire()
        connack = await client.connect("a", keep_alive=10)
        assert connack.get(raw.SERVER_KEEP_ALIVE) in (None, 10)
        assert 15 <= await _closed_after(client) <= 16
        # 3.x cannot be told, and keep alive 0 is not refused.
        client = await here.client("b", version=4, keep_alive=0)
        await client.ping()


@shows("MQTT-3.2.2-22", "MQTT-3.1.2-22")
async def test_a_keep_alive_that_the_broker_sets_for_all(autojump_clock: MockClock) -> None:
    async with room(mqtt={"server_keep_alive": 20}) as here:
        for asked in (0, 5, 3600):
            client = await here.wire()
            connack = await client.connect("a", keep_alive=asked)
            assert connack.get(raw.SERVER_KEEP_ALIVE) == 20
            assert 30 <= await _closed_after(client) <= 31
        client = await here.client("b", version=4, keep_alive=0)
        await trio.sleep(DAY)
        await client.ping()


@shows("MQTT3-3.1.2-24")
async def test_silence_of_a_3_1_1_client(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w", version=4)
        await watcher.subscribe(("will", 0))
        client = await here.client("a", version=4, keep_alive=5, will=Will("will"))
        assert 7.5 <= await _closed_after(client) <= 8.5
        await watcher.expect_publish("will", b"gone")


async def test_a_connection_that_says_nothing_is_closed(autojump_clock: MockClock) -> None:
    async with room() as here:
        silent, slow = await here.wire(), await here.wire()
        await slow.send(raw.connect("a")[:5])
        assert 1 <= await _closed_after(silent) <= 60
        assert await _closed_after(slow) <= 60


# Wills


@shows("MQTT-3.1.2-8", "MQTT-3.1.2-10")
async def test_a_will_delay_is_never_too_short(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        properties = raw.session_expiry(100)
        client = await here.client("a", will=Will("will", properties=raw.will_delay(3)), properties=properties)
        await client.abort()
        began = trio.current_time()
        await watcher.expect_publish("will", b"gone")
        assert 3 <= trio.current_time() - began <= 4
        # Only once, also when the session ends.
        await trio.sleep(200)
        await watcher.expect_nothing()


@shows("MQTT-3.1.3-9", "MQTT-3.1.2-8")
async def test_a_new_connection_within_the_will_delay_stops_the_will(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        properties = raw.session_expiry(100)
        client = await here.client("a", will=Will("will", properties=raw.will_delay(10)), properties=properties)
        await client.abort()
        await trio.sleep(9)
        client = await here.client("a", clean=False, properties=properties)
        await trio.sleep(50)
        await watcher.expect_nothing()
        await client.abort()
        await trio.sleep(200)
        await watcher.expect_nothing()


@shows("MQTT-3.1.2-8")
async def test_the_end_of_the_session_comes_before_the_will_delay(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        properties = raw.session_expiry(5)
        client = await here.client("a", will=Will("will", properties=raw.will_delay(60)), properties=properties)
        await client.abort()
        began = trio.current_time()
        await watcher.expect_publish("will", b"gone")
        assert 5 <= trio.current_time() - began <= 6


@shows("MQTT-3.1.2-8", "MQTT-3.3.2-5")
async def test_the_expiry_of_a_will_begins_when_it_is_published(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("w")
        await watcher.subscribe(("will", 0))
        will = Will("will", properties=raw.will_delay(30) + raw.message_expiry(10))
        client = await here.client("a", will=will, properties=raw.session_expiry(100))
        await client.abort()
        packet = await watcher.expect_publish("will", b"gone")
        assert packet.get(raw.MESSAGE_EXPIRY) == 10


# Sessions


@shows("MQTT-4.1.0-2", "MQTT-3.1.2-23")
async def test_a_session_expires_and_never_too_early(autojump_clock: MockClock) -> None:
    async with room() as here:
        for wait, present in ((9.9, True), (11.1, False)):
            client = await here.client("a", properties=raw.session_expiry(10))
            await client.subscribe("t")
            await client.disconnect()
            await trio.sleep(wait)
            client = await here.wire()
            connack = await client.connect("a", clean=False)
            assert connack.session_present == present
            await client.disconnect()


@shows("MQTT-4.1.0-1", "MQTT-4.1.0-2")
async def test_the_expiry_interval_runs_from_the_end_of_the_connection(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.session_expiry(10))
        await client.subscribe(("t", 0))
        await trio.sleep(1000)
        await client.publish("t", b"x")
        await client.expect_publish("t", b"x")
        await client.disconnect()
        await trio.sleep(9)
        client = await here.wire()
        assert (await client.connect("a", clean=False, properties=raw.session_expiry(10))).session_present
        await trio.sleep(1000)
        await client.disconnect()
        await trio.sleep(9)
        client = await here.wire()
        assert (await client.connect("a", clean=False)).session_present


@shows("MQTT-3.1.2-23", "MQTT-4.1.0-2")
async def test_the_expiry_interval_that_disconnect_names(autojump_clock: MockClock) -> None:
    async with room() as here:
        for interval, wait, present in ((100, 99, True), (2, 4, False)):
            client = await here.client("a", properties=raw.session_expiry(10))
            await client.disconnect(0, raw.session_expiry(interval))
            await trio.sleep(wait)
            client = await here.wire()
            assert (await client.connect("a", clean=False)).session_present == present


@shows("MQTT-3.1.2-23")
async def test_an_expiry_interval_of_ffffffff_is_no_end(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.session_expiry(0xFFFFFFFF))
        await client.disconnect()
        await trio.sleep(100 * 365 * DAY)
        client = await here.wire()
        assert (await client.connect("a", clean=False)).session_present


@shows("MQTT-4.8.2-5", "MQTT-4.1.0-2")
async def test_a_shared_qos_2_delivery_ends_with_its_session(autojump_clock: MockClock) -> None:
    async with room() as here:
        one = await here.client("one", properties=raw.session_expiry(10))
        two, publisher = await here.client("two"), await here.client("p")
        await one.subscribe("$share/g/t")
        await two.subscribe("$share/g/t")
        await publisher.publish("t", b"x", qos=2)
        await one.expect_publish("t", b"x", qos=2)
        await one.abort()
        await trio.sleep(20)
        await two.expect_nothing()


# Messages


@shows("MQTT-3.3.2-5", "MQTT-3.3.2-6")
async def test_a_message_expires_in_the_queue_of_a_client_that_is_away(autojump_clock: MockClock) -> None:
    async with room() as here:
        client, publisher = await here.client("a", properties=raw.session_expiry(1000)), await here.client("p")
        await client.subscribe("t")
        await client.disconnect()
        for seconds in (5, 60):
            payload = b"%d" % seconds
            await publisher.publish("t", payload, qos=1, properties=raw.message_expiry(seconds))
        await trio.sleep(20)
        client = await here.client("a", clean=False)
        packet = await client.take_publish("t", b"60", qos=1)
        assert packet.get(raw.MESSAGE_EXPIRY) in (39, 40)
        await client.expect_nothing()


@shows("MQTT-3.3.2-5", "MQTT-3.3.2-6", "MQTT-3.3.1-5")
async def test_a_retained_message_expires(autojump_clock: MockClock) -> None:
    async with room() as here:
        publisher = await here.client("p")
        await publisher.publish("t", b"x", retain=True, properties=raw.message_expiry(10))
        await trio.sleep(4)
        client = await here.client("a")
        await client.subscribe(("t", 0))
        assert (await client.expect_publish("t", b"x")).get(raw.MESSAGE_EXPIRY) in (5, 6)
        await trio.sleep(7)
        await client.subscribe(("t", 0))
        await client.expect_nothing()


@shows("MQTT-4.3.3-7", "MQTT-4.3.3-13", "MQTT-4.4.0-1")
async def test_a_qos_2_message_that_was_sent_does_not_expire(autojump_clock: MockClock) -> None:
    async with room() as here:
        client, publisher = await here.client("a", properties=raw.session_expiry(1000)), await here.client("p")
        await client.subscribe("t")
        for payload in (b"1", b"2"):
            await publisher.publish("t", payload, qos=2, properties=raw.message_expiry(5))
        first = await client.expect_publish("t", b"1", qos=2)
        second = await client.expect_publish("t", b"2", qos=2)
        await client.send(raw.ack(raw.PUBREC, second.packet_id))
        await client.expect_type(raw.PUBREL)
        await trio.sleep(20)
        # The exchange goes on, on this connection and over a new one.
        await client.send(raw.ack(raw.PUBCOMP, second.packet_id))
        await client.abort()
        await trio.sleep(20)
        client = await here.client("a", clean=False)
        again = await client.take_publish("t", b"1", qos=2)
        assert again.dup
        assert again.packet_id == first.packet_id
        await client.expect_nothing()


@shows("MQTT-4.3.3-13")
async def test_the_acknowledgements_of_an_expired_qos_2_publish_go_on(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x", qos=2, packet_id=1, properties=raw.message_expiry(1)))
        await client.expect_type(raw.PUBREC)
        await trio.sleep(30)
        await client.send(raw.ack(raw.PUBREL, 1))
        await client.expect("70 02 00 01")


@shows("MQTT-4.4.0-1")
async def test_nothing_is_sent_again_on_a_connection_that_lasts(autojump_clock: MockClock) -> None:
    async with room() as here:
        client, publisher = await here.client("a"), await here.client("p")
        await client.subscribe("t")
        await publisher.publish("t", b"1", qos=1)
        await publisher.publish("t", b"2", qos=2)
        await client.expect_publish("t", b"1", qos=1)
        packet = await client.expect_publish("t", b"2", qos=2)
        await client.send(raw.ack(raw.PUBREC, packet.packet_id))
        await client.expect_type(raw.PUBREL)
        await trio.sleep(DAY)
        await client.expect_nothing()


# Ends


@shows("MQTT-3.14.4-2", "MQTT-4.13.2-1")
async def test_a_goodbye_lingers_but_not_for_ever(autojump_clock: MockClock) -> None:
    """The broker shuts its side down, reads on for the client to close, and then closes all the same."""
    async with room() as here:
        client = await here.client("a")
        await client.send("00 00")
        await client.rest()
        await client.send(raw.PINGREQ)
        await trio.sleep(30)
        with pytest.raises(trio.BrokenResourceError):
            await client.send(raw.PINGREQ)
