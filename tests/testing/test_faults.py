"""What goes wrong on purpose does so, and nothing else."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.mqtt.packets import Disconnect, Puback, Publish
from trunkline.mqtt.reasons import Reason
from trunkline.testing.faults import Faults


@asynccontextmanager
async def people(how: str, broker: testing.Broker) -> AsyncIterator[tuple[Wire, Wire]]:
    """Two clients, `a` and `b`, by TCP or in the process."""
    wires: list[Wire] = []
    for name in ("a", "b"):
        wires.append(await Wire.open(broker.host, broker.port) if how == "tcp" else Wire(broker.connect()))
        await wires[-1].connect(name)
    try:
        yield wires[0], wires[1]
    finally:
        for wire in wires:
            await wire.abort()


both_ways = pytest.mark.parametrize("how", ["tcp", "in process"])


# Packets


@both_ways
async def test_a_dropped_packet_does_not_arrive(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        fault = b.faults.drop("PUBACK", client="a", times=1)
        await one.send(raw.publish("t", b"1", qos=1, packet_id=1))
        await one.send(raw.publish("t", b"2", qos=1, packet_id=2))
        assert (await one.expect_type(raw.PUBACK)).packet_id == 2
        await other.publish("t", b"3", qos=1)
        assert fault.hits == 1
        await one.expect_nothing()


async def test_what_a_client_sends_can_be_dropped_too() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        here.broker.faults.drop("PUBLISH", direction="from", topic="t/+")
        await one.send(raw.publish("t/1", b"lost"), raw.publish("other", b"kept"))
        await other.expect_publish("other", b"kept")


async def test_a_fault_lets_some_pass_and_ends_after_some() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.drop("PUBLISH", direction="to", after=1, times=2)
        for number in range(5):
            here.broker.publish("t", str(number).encode())
        assert [(await client.expect_type(raw.PUBLISH)).payload for _ in range(3)] == [b"0", b"3", b"4"]
        assert fault.hits == 2
        assert repr(fault) == "<drop PUBLISH to, 2 hits>"


async def test_a_predicate_sees_the_decoded_packet() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.drop("PUBLISH", direction="to", where=lambda publish: publish.payload == b"bad")
        for payload in (b"good", b"bad", b"better"):
            here.broker.publish("t", payload)
        await client.expect_publish("t", b"good")
        await client.expect_publish("t", b"better")


async def test_a_predicate_that_raises_is_the_tests_mistake_and_not_the_brokers_end() -> None:
    async with room() as here:
        client = await here.client("a")
        with pytest.raises(ZeroDivisionError), here.broker.faults.drop("PINGREQ", where=lambda _: 1 // 0):
            await client.ping()
        fault = here.broker.faults.drop("PINGREQ", where=lambda _: 1 // 0)
        await client.ping()
        with pytest.raises(ZeroDivisionError):
            await fault.triggered()


async def test_a_topic_is_known_by_its_alias() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        await one.send(raw.publish("secret", b"1", properties=raw.topic_alias(1)))
        await other.expect_publish("secret", b"1")
        fault = here.broker.faults.drop("PUBLISH", direction="from", topic="secret")
        await one.send(raw.publish("", b"2", properties=raw.topic_alias(1)))
        await one.ping()
        assert fault.hits == 1
        await other.expect_nothing()


async def test_an_alias_of_the_broker_is_known_too() -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.topic_alias_maximum(5))
        await client.subscribe("#")
        here.broker.publish("secret", b"1")
        assert (await client.expect_type(raw.PUBLISH)).get(raw.TOPIC_ALIAS) == 1
        fault = here.broker.faults.drop("PUBLISH", direction="to", topic="secret")
        here.broker.publish("secret", b"2")
        await client.expect_nothing()
        assert fault.hits == 1


async def test_a_delayed_packet_comes_later_and_in_order(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.delay("PUBLISH", 5, direction="to")
        began = trio.current_time()
        here.broker.publish("t", b"1")
        await trio.sleep(2)
        here.broker.publish("t", b"2")
        await client.send(raw.PINGREQ)
        await client.expect_publish("t", b"1")
        assert trio.current_time() - began == pytest.approx(5)
        await client.expect_publish("t", b"2")
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(7)


async def test_what_a_client_sends_is_delayed_and_so_is_its_leaving(autojump_clock: MockClock) -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        here.broker.faults.delay("PUBLISH", 5, client="a", direction="from")
        began = trio.current_time()
        await one.send(raw.publish("t", b"1"), raw.disconnect())
        await one.abort()
        await other.expect_publish("t", b"1")
        assert trio.current_time() - began == pytest.approx(5)


async def test_a_duplicated_publish_looks_like_a_redelivery() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("#", 1))
        here.broker.faults.duplicate("PUBLISH", 2, direction="to")
        here.broker.publish("t", b"x", qos=1)
        got = [await client.expect_publish("t", b"x", qos=1) for _ in range(3)]
        assert [packet.dup for packet in got] == [False, True, True]
        assert len({packet.packet_id for packet in got}) == 1
        here.broker.publish("t", b"y")
        assert [(await client.expect_publish("t", b"y")).dup for _ in range(3)] == [False, False, False]


async def test_qos_2_is_not_published_twice_whatever_comes_twice() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe(("#", 0))
        here.broker.faults.duplicate("PUBLISH", client="a", direction="from")
        await one.send(raw.publish("t", b"x", qos=2, packet_id=7))
        await one.expect(raw.ack(raw.PUBREC, 7), raw.ack(raw.PUBREC, 7))
        await one.send(raw.ack(raw.PUBREL, 7))
        await one.expect(raw.ack(raw.PUBCOMP, 7))
        await other.expect_publish("t", b"x")
        await other.expect_nothing(after=one)


async def test_a_packet_comes_behind_the_next_ones() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        here.broker.faults.reorder("PUBLISH", behind=2, direction="to", times=1)
        for number in range(5):
            here.broker.publish("t", str(number).encode())
        assert [(await client.expect_type(raw.PUBLISH)).payload for _ in range(5)] == [b"1", b"2", b"0", b"3", b"4"]


async def test_what_is_held_back_goes_on_when_the_fault_is_removed() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        with here.broker.faults.reorder("PUBLISH", direction="to"):
            here.broker.publish("t", b"1")
            await client.expect_nothing()
        await client.expect_publish("t", b"1")


async def test_a_predicate_may_raise_while_something_is_held_back() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.reorder("PUBLISH", direction="to", where=lambda publish: 1 // len(publish.payload))
        here.broker.publish("t", b"1")
        here.broker.publish("t", b"")
        await client.expect_publish("t", b"")
        with pytest.raises(ZeroDivisionError):
            await fault.triggered(2)
        fault.remove()
        await client.expect_publish("t", b"1")


async def test_of_two_faults_the_older_one_happens() -> None:
    async with room() as here:
        client = await here.client("a")
        first, second = here.broker.faults.drop("PINGRESP", times=1), here.broker.faults.drop("*", direction="to")
        await client.send(raw.PINGREQ)
        await first.triggered()
        await client.send(raw.PINGREQ)
        await second.triggered()
        assert (first.hits, second.hits) == (1, 1)
        assert len(list(here.broker.faults)) == 2
        here.broker.faults.clear()
        assert not list(here.broker.faults)
        await client.ping()


async def test_waiting_for_a_fault_that_does_not_happen_says_what_was_waited_for(autojump_clock: MockClock) -> None:
    async with room() as here:
        fault = here.broker.faults.drop("PUBACK", client="a")
        with pytest.raises(TimeoutError, match=r"drop PUBACK client 'a': happened 0 times in 3 s, 2 were waited for"):
            await fault.triggered(2, timeout=3)


@both_ways
async def test_without_faults_bytes_go_on_as_they_come(how: str) -> None:
    """Half a packet reaches the broker, which judges it: a rule for somebody else changes nothing about that."""
    async with testing.broker(mqtt={"max_packet_size": 1000}) as b, people(how, b) as (one, other):
        b.faults.drop("PUBLISH", client="b").optional()
        await one.send(b"\x30\xff\xff\x7f")
        await one.expect_disconnect(Reason.PACKET_TOO_LARGE)
        await other.ping()


async def test_what_is_too_large_is_not_held_back_by_a_fault() -> None:
    async with room(mqtt={"max_packet_size": 1000}) as here:
        client = await here.client("a")
        here.broker.faults.drop("PUBLISH", client="a").optional()
        await client.send(b"\x30\xff\xff\x7f")
        await client.expect_disconnect(Reason.PACKET_TOO_LARGE)


async def test_a_fault_that_comes_within_a_packet_does_not_tear_it() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        await other.subscribe("#")
        packet = raw.publish("t", b"x" * 100)
        await one.send(packet[:50])
        await wait_all_tasks_blocked()
        fault = here.broker.faults.drop("PUBLISH", client="a")
        await one.send(packet[50:] + packet[:30])
        await other.expect_publish("t", b"x" * 100)  # its beginning had gone on already
        await wait_all_tasks_blocked()
        fault.remove()
        await one.send(packet[30:])
        await other.expect_publish("t", b"x" * 100)
        assert fault.hits == 0


@given(
    cuts=st.lists(st.integers(1, 400), max_size=8),
    changes=st.lists(st.booleans(), min_size=9, max_size=9),
)
@settings(max_examples=30)
def test_no_byte_is_lost_or_moved_however_faults_come_and_go(cuts: list[int], changes: list[bool]) -> None:
    packets = [raw.publish("t", bytes([number]) * (number * 13 % 90)) for number in range(8)]
    data = b"".join(packets)

    async def main() -> None:
        async with room() as here:
            one, other = await here.client("a"), await here.client("b")
            await other.subscribe("#")
            places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
            for begin, end, change in zip(places, places[1:], changes, strict=False):
                if change:
                    here.broker.faults.drop("PUBREL").optional()
                else:
                    here.broker.faults.clear()
                await one.send(data[begin:end])
                await wait_all_tasks_blocked()
            await other.expect(*packets)

    trio.run(main)


# Connections


@both_ways
@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_connection_is_cut_at_a_packet(how: str, point: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        await other.subscribe(("t", 0))
        fault = b.faults.cut(client="a", **{point: "PUBLISH"})
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await one.publish("t", b"x", qos=1)
        await fault.triggered()
        if point == "after":
            await other.expect_publish("t", b"x")
        await other.expect_nothing()
        await b.wait_until(lambda: len(b.clients) == 1)


async def test_a_cut_is_a_reset_behind_what_was_sent_before() -> None:
    async with testing.broker() as b, people("tcp", b) as (one, _):
        await one.subscribe("#")
        b.faults.cut(client="a", before="PUBLISH", skip=1)
        b.publish("t", b"1")
        b.publish("t", b"2")
        await one.expect_publish("t", b"1")
        with pytest.raises(trio.BrokenResourceError):
            await one.stream.receive_some()


@both_ways
@pytest.mark.parametrize("size", [1, 5, 6, 20])
async def test_a_connection_is_cut_after_so_many_bytes(how: str, size: int) -> None:
    async with testing.broker() as b, people(how, b) as (one, _):
        await one.subscribe("#")
        fault = b.faults.cut(client="a", after_bytes=size, direction="to")
        for _ in range(5):
            b.publish("t", b"1")  # 6 bytes
        assert len(await one.rest()) == size
        assert fault.hits == 1


async def test_bytes_are_counted_for_each_connection_until_the_fault_is_removed() -> None:
    async with room() as here:
        one, other = await here.client("a"), await here.client("b")
        with here.broker.faults.cut(after_bytes=10) as fault:
            for _ in range(2):
                await one.ping()  # 4 bytes
            await other.ping()
            assert fault.hits == 0
            await one.send(raw.PINGREQ)
            await one.expect_close()
            assert fault.hits == 1
            await other.ping()  # it happens once
        await here.client("c")


@both_ways
async def test_connections_are_cut_now_and_their_wills_published(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        mortal = Wire(b.connect())
        await mortal.connect("mortal", will=raw.Will("last", b"words"))
        await other.subscribe("last")
        assert b.faults.cut(client="mortal").hits == 1
        await mortal.expect_close()
        await other.expect_publish("last", b"words")
        assert b.faults.cut().hits == 2
        await one.expect_close()
        await other.expect_close()


@both_ways
async def test_what_is_closed_already_is_not_cut(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        (link,) = [link for link in b._running.network if link.client_id == "a"]  # pyright: ignore[reportPrivateUsage]
        await one.abort()
        await b.wait_until(lambda: len(b.clients) == 1)
        link.reset_soon()
        await other.ping()
        assert not list(b._running.network)[1:]  # pyright: ignore[reportPrivateUsage]
    assert not caplog.records


async def test_a_client_that_is_not_read_from_goes_on_where_it_was() -> None:
    async with room() as here:
        client = await here.client("a")
        fault = here.broker.faults.stop_reading(client="a")
        assert fault.hits == 1
        await client.send(raw.PINGREQ)
        await wait_all_tasks_blocked()
        assert here.node.metrics.received[12] == 0
        fault.remove()
        await client.expect(raw.PINGRESP)


async def test_a_client_that_takes_nothing_makes_the_broker_keep_its_messages() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("#", 0))
        fault = here.broker.faults.stop_reading(client="a", direction="to")
        for _ in range(20):
            here.broker.publish("t", b"x" * 10_000)
            await wait_all_tasks_blocked()
        assert here.session("a").session.queue.length > 10
        fault.remove()
        for _ in range(20):
            await client.expect_publish("t", b"x" * 10_000)


@both_ways
async def test_bytes_drip(how: str) -> None:
    async with testing.broker() as b, people(how, b) as (one, _):
        fault = b.faults.drip(client="a")
        await one.send(raw.PINGREQ)
        sizes = [len(await one.stream.receive_some()) for _ in range(2)]
        assert sizes == [1, 1]
        await one.subscribe("#")
        fault.remove()
        await one.ping()


async def test_bytes_drip_at_a_pace(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a")
        here.broker.faults.drip(client="a", seconds=2, direction="from")
        began = trio.current_time()
        await client.send(raw.PINGREQ, raw.PINGREQ)
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(2)
        await client.expect(raw.PINGRESP)
        assert trio.current_time() - began == pytest.approx(6)


async def test_a_client_is_dripped_from_its_first_byte() -> None:
    async with room() as here:
        here.broker.faults.drip(client="late")
        client = here.wire()
        await client.connect("late")
        await client.ping()


async def test_silence_is_a_connection_that_is_open_at_one_end_only(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("watcher")
        await watcher.subscribe("last")
        client = await here.client("a", keep_alive=10, will=raw.Will("last", b"words"))
        here.broker.faults.silence(client="a")
        began = trio.current_time()
        await client.abort()
        await watcher.expect_publish("last", b"words")
        assert trio.current_time() - began == pytest.approx(15, abs=1)


async def test_a_silent_client_does_not_hear_that_the_broker_has_closed(mock_clock: MockClock) -> None:
    async with testing.broker() as b, people("tcp", b) as (one, other):
        first, second = b.faults.silence(client="a"), b.faults.silence(client="b")
        for name in ("a", "b"):
            b.kick(name)
        await b.clock.advance(1)
        first.remove()
        await one.expect_disconnect(Reason.ADMINISTRATIVE_ACTION)  # the broker still waits for it to close
        await b.clock.advance(1000)
        heard = list[bytes]()
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                heard.append(await other.rest())

            nursery.start_soon(listen)
            await wait_all_tasks_blocked(0.01)
            assert not heard
            second.remove()
        assert heard == [b""]


async def test_a_silent_client_may_close_what_the_broker_has_closed(mock_clock: MockClock) -> None:
    async with testing.broker() as b, people("tcp", b) as (one, other):
        b.faults.silence(client="a")
        b.kick("a")
        await b.clock.advance(1000)
        assert len(list(b.faults)) == 1
        await one.abort()
        await other.ping()


async def test_what_was_silenced_comes_when_the_network_is_back() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.silence(client="a")
        here.broker.publish("t", b"x")
        await client.send(raw.PINGREQ)
        await wait_all_tasks_blocked()
        fault.remove()
        await client.expect_publish("t", b"x")
        await client.expect(raw.PINGRESP)


async def test_a_broker_that_ends_leaves_no_silent_socket() -> None:
    async with testing.broker() as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        b.faults.silence()
        b.kick("a")
        await b.wait_until(lambda: not b.clients)
    await wire.expect_disconnect(Reason.ADMINISTRATIVE_ACTION)
    await wire.abort()


# Requests of clients


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3), (3, 3)])
async def test_connects_are_refused(version: int, code: int) -> None:
    async with room() as here:
        fault = here.broker.faults.refuse_connect("server_busy", client="a", times=1)
        refused = here.wire(version)
        await refused.send(raw.connect("a", version=version))
        assert (await refused.expect_type(raw.CONNACK)).reason == code
        await here.client("b", version)
        await here.client("a", version)
        assert fault.hits == 1


async def test_an_enhanced_authentication_is_refused_too() -> None:
    async with room() as here:
        here.broker.faults.refuse_connect(Reason.BANNED)
        refused = here.wire()
        await refused.send(raw.connect("a", properties=raw.authentication_method("RIDDLE")))
        assert (await refused.expect_type(raw.CONNACK)).reason == 0x8A


async def test_subscribes_are_refused_by_filter() -> None:
    async with room() as here:
        client = await here.client("a")
        with here.broker.faults.refuse_subscribe(0x87, filter="secret/#") as fault:
            assert await client.subscribe("secret/one", "$share/g/secret/+", "open") == [0x87, 0x87, 2]
            assert fault.hits == 2
        old = await here.client("old", 4)
        with here.broker.faults.refuse_subscribe("QUOTA_EXCEEDED"):
            assert await old.subscribe("open") == [0x80]
        assert await client.subscribe("secret/one") == [2]


async def test_publishes_are_refused_by_topic() -> None:
    async with room() as here:
        client = await here.client("a")
        here.broker.faults.refuse_publish("QUOTA_EXCEEDED", topic="full/#")
        answer = await client.publish("full/1", qos=1)
        assert answer is not None
        assert answer.reason == 0x97
        answer = await client.publish("full/1", qos=2)
        assert answer is not None
        assert answer.reason == 0x97
        answer = await client.publish("empty", qos=1)
        assert answer is not None
        assert answer.reason == 0x10


# What cannot be


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f.drop("PUBAK"), r"no packet is called 'PUBAK' \(did you mean PUBACK\?\); there are CONNECT, CONN"),
        (lambda f: f.drop("WILL"), "no packet is called 'WILL'"),
        (lambda f: f.drop("SUBSCRIBE", direction="to"), r"a broker sends no SUBSCRIBE; 'to' a client go CONNACK, PUBL"),
        (lambda f: f.drop("CONNACK", direction="from"), r"a client sends no CONNACK; 'from' a client go CONNECT, PUB"),
        (lambda f: f.drop("PUBLISH", direction="up"), r"direction='up': it is 'from' or 'to' \(the client\)"),
        (lambda f: f.drop("PUBACK", topic="t"), "topic='t' selects PUBLISH packets; PUBACK has no topic"),
        (lambda f: f.drop("PUBLISH", topic="a#"), "'a#' is not a topic filter: "),
        (lambda f: f.drop("PUBLISH", times=0), "times=0: must be 1 or more"),
        (lambda f: f.drop("PUBLISH", after=-1), "after=-1: must be 0 or more"),
        (lambda f: f.delay("PUBLISH", -1), "seconds=-1: must be more than 0"),
        (lambda f: f.duplicate("PUBLISH", 0), "copies=0: must be more than 0"),
        (lambda f: f.reorder("PUBLISH", 0), "behind=0: must be more than 0"),
        (lambda f: f.cut(before="PUBLISH", after_bytes=1), "give one of them"),
        (lambda f: f.cut(topic="t"), "topic=, where= and skip= choose the packet to cut before= or after=: name one"),
        (lambda f: f.cut(direction="to"), "a connection is cut as a whole"),
        (lambda f: f.drip(seconds=-1), "seconds=-1: must be 0 or more"),
        (lambda f: f.refuse_connect("SUCCESS"), "CONNACK does not refuse with SUCCESS, but with UNSPECIFIED_ERROR, "),
        (lambda f: f.refuse_connect(0xF3), "CONNACK does not refuse with 0xF3, but with "),
        (lambda f: f.refuse_subscribe("banned"), "SUBACK does not refuse with banned, but with "),
        (lambda f: f.refuse_connect("SERVER_BUZY"), "QUOTA_EXCEEDED.*; did you mean SERVER_BUSY?"),
        (lambda f: f.refuse_publish(Reason.BANNED), "PUBACK does not refuse with BANNED, but with "),
    ],
)
async def test_impossible_faults_are_refused_with_what_is_possible(make: Any, message: str) -> None:
    async with testing.broker() as b:
        with pytest.raises(ValueError, match=message):
            make(b.faults)
        assert not list(b.faults)


async def test_a_selection_that_does_not_exist_is_named() -> None:
    async with testing.broker() as b:
        with pytest.raises(TypeError, match="topics"):
            b.faults.drop("PUBLISH", topics="t")  # type: ignore[call-arg]


# Without trio


def test_a_fault_that_does_not_happen_is_reported_without_await_too() -> None:
    with testing.broker() as b:
        assert isinstance(b.faults, Faults)
        with b.faults.drop("PUBACK") as fault, pytest.raises(TimeoutError, match="happened 0 times"):
            fault.triggered(timeout=0.01)
        with socket.create_connection((b.host, b.port)) as sock:
            sock.sendall(raw.connect("a"))
            sock.recv(100)
            b.faults.cut(client="a")
            with pytest.raises(ConnectionResetError):
                sock.recv(100)


def test_faults_are_awaited_in_asyncio() -> None:
    async def main() -> None:
        async with testing.broker() as b:
            reader, writer = await asyncio.open_connection(b.host, b.port)
            writer.write(raw.connect("a"))
            await reader.read(100)
            with b.faults.drop("PINGREQ", client="a") as fault:
                writer.write(raw.PINGREQ)
                await fault.triggered()
            with pytest.raises(TimeoutError, match="happened 0 times"):
                await b.faults.drop("PUBACK").triggered(timeout=0.01)
            await b.restart()
            with pytest.raises(ConnectionResetError):
                await reader.read(100)
            writer.close()

    asyncio.run(main())


async def test_a_client_gets_what_the_broker_has_not_sent() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, Wire(b.connect(), version=4) as old:
        await wire.connect("a")
        await old.connect("old")
        fault = b.faults.inject(Puback(7), client="a")
        assert (await wire.expect_type(raw.PUBACK)).packet_id == 7
        assert repr(fault) == "<inject PUBACK to 'a', 1 hit>"
        b.faults.inject(Publish("unasked", b"x"))
        await wire.expect_publish("unasked", b"x")
        await old.expect_publish("unasked", b"x")
        b.faults.inject(Disconnect(Reason.SERVER_BUSY), client="a")
        assert (await wire.expect_type(raw.DISCONNECT)).reason == 0x89
        b.faults.inject(b"\xff\x00", client="old")
        assert await old.stream.receive_some() == b"\xff\x00"
        with pytest.raises(LookupError, match="no client 'nobody' is connected"):
            b.faults.inject(b"", client="nobody")


async def test_packets_are_corrupted() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        with b.faults.corrupt("SUBACK", lambda data: data[:-1] + b"\x80", client="a"):
            assert await wire.subscribe(("t", 0)) == [0x80]
        with b.faults.corrupt("PUBLISH", lambda data: 1 // 0, times=1) as broken:  # type: ignore[arg-type, return-value]
            b.publish("t", "as it is")
            await wire.expect_publish("t", b"as it is")
            with pytest.raises(ZeroDivisionError):
                await broken.triggered()
            broken.error = None
        with b.faults.corrupt("PUBLISH", client="a", direction="from"):
            await wire.publish("t", b"x")
            await wire.expect_disconnect(0x81)
