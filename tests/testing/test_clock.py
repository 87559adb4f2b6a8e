"""A broker's time is moved on, and everything that waits in it comes true in its order, at its time."""

import asyncio
import socket
import threading
from time import perf_counter
from typing import Any

import aiomqtt
import pytest
import trio
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.client import ConnectionSettings, ConnectRefused, DisconnectedByServer, WillMessage
from trunkline.client.sync import Client
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connect, Publish
from trunkline.mqtt.versions import Version
from trunkline.testing.clock import AdvancingClock, advance

WILL = WillMessage(topic="wills/a", payload="gone", qos=1, delay=30)


def client(broker: testing.ThreadBroker, client_id: str, **settings: Any) -> Client:
    """It knows nothing of the broker's time."""
    return Client(ConnectionSettings(host=broker.host, port=broker.port, client_id=client_id, **settings))


def assert_lost(silent: Client) -> None:
    with pytest.raises(DisconnectedByServer, match="keep alive timeout"):
        silent.receive_from().receive(timeout=120)


# Real clients, a broker in a thread


def test_keep_alive() -> None:
    with testing.broker() as b:
        silent = client(b, "a").open()
        b.clock.advance(80)  # with some room for a machine that is busy
        assert [row.client_id for row in b.clients] == ["a"]
        b.clock.advance(11)
        assert b.clients == []
        assert_lost(silent)


def test_a_will_with_a_delay_and_the_end_of_its_session() -> None:
    with testing.broker() as b, client(b, "watcher", keep_alive=0) as watcher:
        wills = watcher.subscribe("wills/#", qos=1)
        silent = client(b, "a", session_expiry=300, will=WILL).open()
        b.clock.advance(100)  # silent since 90
        assert_lost(silent)
        assert [row.client_id for row in b.sessions] == ["a", "watcher"]
        b.clock.advance(15)
        watcher.ping()
        assert not wills
        b.clock.advance(10)  # 30 behind 90
        assert wills.receive(timeout=120).payload == b"gone"
        b.clock.advance(260)  # 385
        assert [row.client_id for row in b.sessions] == ["a", "watcher"]
        b.clock.advance(10)
        assert [row.client_id for row in b.sessions] == ["watcher"]


def test_one_step_over_all_of_it_sees_each_at_its_time() -> None:
    with testing.broker() as b, client(b, "watcher", keep_alive=0) as watcher:
        happened: list[tuple[str, int]] = []
        start: list[float] = []

        def note(what: str) -> None:
            happened.append((what, round(trio.current_time() - start[0])))

        b.hooks.add("client.disconnected", lambda client, reason, text: note(f"{client.client_id} lost"))
        b.hooks.add("message.routed", lambda message, receivers: note(f"routed {message.topic}"))
        b.hooks.add("session.terminated", lambda client, reason: note(f"{client.client_id} {reason}"))
        wills = watcher.subscribe("wills/#", qos=1)
        client(b, "a", session_expiry=300, will=WILL).open()
        b._portal.thread.call(lambda: start.append(trio.current_time()))
        b.clock.advance(3600)
        assert wills.receive(timeout=120).payload == b"gone"
        assert happened == [("a lost", 90), ("routed wills/a", 120), ("a expired", 390)]


def test_session_expiry_and_the_expiry_of_a_message_that_waits() -> None:
    with testing.broker() as b:
        with client(b, "a", session_expiry=1000) as leaving:
            leaving.subscribe("x", qos=1)
        b.wait_until(lambda: not b.clients)
        b.publish("x", "short", qos=1, properties={"message_expiry_interval": 10})
        b.publish("x", "long", qos=1, properties={"message_expiry_interval": 100})
        b.clock.advance(50)
        coming = client(b, "a", session_expiry=1000, clean_start=False)
        messages = coming.receive_from("x")
        with coming:
            assert messages.receive(timeout=120).payload == b"long"
            coming.ping()
            assert not messages
        b.wait_until(lambda: not b.clients)
        b.clock.advance(980)
        assert len(b.sessions) == 1
        b.clock.advance(21)
        assert b.sessions == []


def test_a_retained_message_expires() -> None:
    with testing.broker() as b:
        b.publish("x", "kept", retain=True, properties={"message_expiry_interval": 60})
        b.clock.advance(50)
        assert [row.expires_in for row in b.retained] == [pytest.approx(10, abs=5)]
        b.clock.advance(11)
        assert b.retained == []


def test_retry() -> None:
    with (
        testing.broker(session={"retry_interval": 20}) as b,
        client(b, "a", version="3.1.1", clean_start=False, keep_alive=0) as deaf,
    ):
        messages = deaf.subscribe("x", qos=1, manual_ack=True)
        b.publish("x", "again and again", qos=1)
        assert not messages.receive(timeout=120).dup
        b.clock.advance(15)
        deaf.ping()
        assert not messages
        b.clock.advance(26)  # it is looked at every 20 seconds
        again = messages.receive(timeout=120)
        assert (again.payload, again.dup) == (b"again and again", True)


def test_flapping_window() -> None:
    with testing.broker(flapping={"max_takeovers": 1, "window": 60, "jail": 600}) as b:
        for _ in range(2):
            client(b, "twin").open()
        b.clock.advance(61)
        third = client(b, "twin").open()  # the first takeover is too long ago to count
        with pytest.raises(ConnectRefused, match="connection rate exceeded"):
            client(b, "twin").open()
        third.close()
        b.clock.advance(601)
        with client(b, "twin"):
            assert [row.client_id for row in b.clients] == ["twin"]


async def test_a_client_that_sends_without_pause_holds_nobody_up(mock_clock: MockClock) -> None:
    async with (
        testing.broker(history=0) as b,
        Wire(b.connect()) as wire,
        Wire(b.connect(), patience=10_000) as busy,
        trio.open_nursery() as nursery,
    ):
        will = raw.Will("wills/a", b"gone", properties=raw.will_delay(30))
        await wire.connect("a", keep_alive=60, properties=raw.session_expiry(300), will=will)
        await busy.connect("busy")
        lost: list[str] = []
        b.hooks.add(
            "message.routed", lambda message, receivers: lost.append(message.topic) if message.payload else None
        )

        async def send() -> None:
            while True:
                await busy.publish("noise", b"", qos=0)

        nursery.start_soon(send)
        await b.clock.advance(3600)
        assert [row.client_id for row in b.sessions] == ["busy"]
        assert lost == ["wills/a"]
        nursery.cancel_scope.cancel()


def test_a_thread_that_sends_without_pause_holds_nobody_up() -> None:
    over = threading.Event()

    def send(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(encode(Connect("busy"), Version.V5))
            packets = encode(Publish("noise", b"x"), Version.V5) * 100
            while not over.is_set():
                sock.sendall(packets)

    with testing.broker(history=0) as b:
        client(b, "a").open()
        thread = threading.Thread(target=send, args=(b.port,))
        thread.start()
        try:
            b.wait_until(lambda: len(b.clients) == 2)
            b.clock.advance(91)
            assert [row.client_id for row in b.clients] == ["busy"]
        finally:
            over.set()
            thread.join()


def test_an_hour_takes_no_time() -> None:
    with testing.broker(sys={"interval": 10}) as b:  # 360 times figures
        began = perf_counter()
        b.clock.advance(3600)
        assert perf_counter() - began < 60
        assert b.metrics()["messages.received"] == 0


def test_time_runs_on_its_own_as_well() -> None:
    with testing.broker() as b:

        def seconds() -> float:
            return b._portal.thread.call(trio.current_time)

        before = seconds()
        b.clock.advance(100)
        after = seconds()
        assert 100 <= after - before < 160
        b.wait_until(lambda: seconds() > after + 0.001)


def test_time_does_not_go_backwards() -> None:
    with testing.broker() as b, pytest.raises(ValueError, match="backwards"):
        b.clock.advance(-1)


def test_from_asyncio() -> None:
    async def test() -> None:
        async with (
            testing.broker() as b,
            aiomqtt.Client(b.host, b.port, protocol=aiomqtt.ProtocolVersion.V5, keepalive=60) as client,
        ):
            await client.subscribe("x")
            b.publish("x", "soon gone", retain=True, properties={"message_expiry_interval": 50})
            assert (await anext(client.messages)).payload == b"soon gone"
            await b.clock.advance(60)
            assert b.retained == []
            assert len(b.clients) == 1
            await b.clock.advance(31)
            assert b.clients == []
            with pytest.raises(aiomqtt.MqttError):
                await anext(client.messages)

    asyncio.run(test())


# In the test's own trio run


async def test_in_trio_it_is_the_tests_clock_that_jumps(mock_clock: MockClock) -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, Wire(b.connect()) as watcher:
        await watcher.connect("watcher")
        await watcher.subscribe(("wills/#", 1))
        will = raw.Will("wills/a", b"gone", properties=raw.will_delay(30))
        await wire.connect("a", keep_alive=60, properties=raw.session_expiry(300), will=will)
        began = trio.current_time()
        happened: list[tuple[str, float]] = []

        def note(what: str) -> None:
            happened.append((what, trio.current_time() - began))

        b.hooks.add("client.disconnected", lambda client, reason, text: note("lost"))
        b.hooks.add("message.routed", lambda message, receivers: note("routed"))
        b.hooks.add("session.terminated", lambda client, reason: note(reason))
        await b.clock.advance(3600)
        assert trio.current_time() - began == pytest.approx(3600)
        assert happened == [("lost", 90), ("routed", 120), ("expired", 390)]
        await wire.expect_disconnect(0x8D)
        await watcher.expect_publish("wills/a", b"gone")


async def test_what_the_test_itself_waits_for_comes_true_in_between(mock_clock: MockClock) -> None:
    async with testing.broker() as b, trio.open_nursery() as nursery:
        began = trio.current_time()
        times: list[float] = []

        async def tick() -> None:
            for _ in range(10):
                await trio.sleep(7)
                times.append(trio.current_time() - began)

        nursery.start_soon(tick)
        await b.clock.advance(45)
        assert times == [7, 14, 21, 28, 35, 42]
        nursery.cancel_scope.cancel()


async def test_a_real_clock_cannot_be_moved_on() -> None:
    async with testing.broker() as b:
        with pytest.raises(RuntimeError, match=r"MockClock.*mock_clock or autojump_clock.*thread of its own"):
            await b.clock.advance(1)


def test_timers_of_one_instant_all_fire() -> None:
    async def run() -> list[int]:
        fired: list[int] = []

        async def wait(number: int) -> None:
            await trio.sleep_until(began + 5)
            fired.append(number)

        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for number in range(20):
                nursery.start_soon(wait, number)
            await advance(5)
            return sorted(fired)

    assert trio.run(run, clock=AdvancingClock()) == list(range(20))
