"""Subscriptions to consumers for threads, with real servers of two versions."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
import trio

from tests.nats.servers import NatsServer
from tests.nats.sync.interrupts import interrupt_behind
from trunkline.nats import sync
from trunkline.nats.errors import CannotSubscribe, NatsError, StatusError
from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.replies import ConsumerMissing

#: Seconds for what should come.
SOON = 60.0


@pytest.fixture
def js(server: NatsServer) -> Iterator[sync.JetStream]:
    """With ten messages in a stream."""
    with sync.connect(server.url) as client:
        js = client.jetstream(timeout=SOON)
        js.create_stream(StreamConfig(name="orders", subjects=("orders.>",)))
        try:
            for number in range(10):
                js.publish("orders.new", b"%d" % number)
            yield js
        finally:
            js.delete_stream("orders")


def payloads(messages: list[sync.JetStreamMessage]) -> list[int]:
    return [int(message.payload) for message in messages]


@pytest.mark.parametrize(
    ("said", "delivered"),
    [
        ({"ahead": 6, "threshold": 5}, 8),
        ({"ahead": 6, "threshold": 1}, 6),
        ({"ahead_bytes": 1, "threshold_bytes": 1}, 0),
    ],
)
def test_how_far_a_loop_asks_ahead(js: sync.JetStream, said: dict[str, int], delivered: int) -> None:
    with js.subscribe_pull("orders.>", **said) as orders:  # type: ignore[arg-type]
        if delivered:
            for _ in range(3):
                orders.receive(timeout=SOON).ack()
        else:
            with pytest.raises(StatusError, match="Message Size Exceeds MaxBytes"):
                orders.receive(timeout=SOON)
        deadline = time.monotonic() + SOON
        while (at := js.consumer("orders", orders.consumer).delivered.consumer) < delivered:
            assert time.monotonic() < deadline
        assert at == delivered


def test_what_asyncio_asks_of_an_account_and_ahead(js: sync.JetStream) -> None:
    def take() -> list[int]:
        with js.subscribe_pull("orders.>", ahead=4, threshold=3) as orders:
            return payloads([orders.receive(timeout=SOON) for _ in range(10)])

    async def ask() -> None:
        account, taken = await asyncio.gather(asyncio.to_thread(js.account_info), asyncio.to_thread(take))
        assert (account.streams, taken) == (1, list(range(10)))

    asyncio.run(ask())


def test_fetch_and_acknowledge_in_any_thread(js: sync.JetStream) -> None:
    with js.subscribe_pull("orders.>", durable="billing", timeout=SOON) as orders:
        assert (orders.stream, orders.consumer) == ("orders", "billing")
        assert orders.info is not None
        found = orders.fetch(4, expires=SOON, timeout=2 * SOON)
        assert payloads(found) == [0, 1, 2, 3]
        assert found[0].origin.stream_sequence == 1
        threads = [threading.Thread(target=message.ack) for message in found[:3]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        found[3].in_progress()
        found[3].ack_sync(timeout=SOON)
        assert all(message.is_settled for message in found)
        assert js.consumer("orders", "billing").ack_pending == 0
        with pytest.raises(NatsError, match="acknowledged, and not answered"):
            found[0].respond(b"")
        one = orders.next(expires=SOON)
        assert one is not None
        one.nak()
        again = orders.next(expires=SOON)
        assert again is not None
        again.term("it is broken")
        # a server may deliver again what was handed back a little later
        left = {*range(4, 10)} - {int(again.payload)}
        while left:
            left -= {*payloads(orders.fetch(100, expires=SOON, no_wait=True))}
        assert orders.next(expires=0.01) is None
        with pytest.raises(TimeoutError):
            orders.fetch(1, expires=SOON, timeout=0.01)


def test_loops_over_what_is_pulled_pushed_and_ordered(js: sync.JetStream) -> None:
    found: list[int] = []
    with js.subscribe_pull("orders.>", durable="pull") as pulled:
        for message in pulled:
            message.ack()
            found.append(int(message.payload))
            if len(found) == 10:
                break
    with js.subscribe("orders.>", durable="push") as pushed:
        found += payloads([pushed.receive(timeout=SOON) for _ in range(10)])
    with js.subscribe_ordered("orders.>") as ordered:
        found += payloads([ordered.receive(timeout=SOON) for _ in range(10)])
        with pytest.raises(TimeoutError):
            ordered.receive(timeout=0.01)
    assert found == [*range(10)] * 3


def test_consume_until_it_is_over(js: sync.JetStream) -> None:
    found: list[int] = []
    with js.subscribe_pull("orders.>", config=ConsumerConfig()) as orders:

        def handle(message: sync.JetStreamMessage) -> None:
            message.ack_sync(timeout=SOON)
            found.append(int(message.payload))
            if len(found) == 10:
                orders.unsubscribe(timeout=SOON)

        orders.consume(handle)
        with pytest.raises(trio.EndOfChannel):
            orders.receive(timeout=SOON)
        with pytest.raises(ConsumerMissing):
            js.consumer("orders", orders.consumer)
    assert found == [*range(10)]


def test_what_was_brought_and_not_picked_up_goes_to_others(js: sync.JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the thread was interrupted: by the end of the subscription at the latest."""
    config = ConsumerConfig(durable="billing", ack_wait=SOON * 10)
    with js.subscribe_pull("orders.>", config=config) as orders:
        interrupt_behind(orders, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            orders.fetch(3, expires=SOON)
        monkeypatch.undo()
        assert len(orders) == 3
        assert payloads(orders.fetch(2, expires=SOON)) == [0, 1]
    with js.subscribe_pull("orders.>", durable="billing") as orders:
        found = payloads(orders.fetch(8, expires=SOON))
        assert sorted(found) == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_what_was_pushed_and_not_picked_up_goes_to_others(
    js: sync.JetStream, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    config = ConsumerConfig(durable="billing", ack_wait=SOON * 10)
    with js.subscribe("orders.>", config=config) as orders:
        interrupt_behind(orders, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            orders.receive(timeout=SOON)
        monkeypatch.undo()
        getattr(orders, end)()
        with js.subscribe("orders.>", durable="billing") as others:
            found = [int(others.receive(timeout=SOON).payload) for _ in range(10)]
            assert sorted(found) == list(range(10))


def test_how_much_silence_is_told(js: sync.JetStream) -> None:
    with pytest.raises(CannotSubscribe, match="missed_heartbeats is 0"):
        js.subscribe("orders.>", missed_heartbeats=0)


def test_what_comes_for_a_fetch_that_is_over_is_there_for_the_next(
    js: sync.JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with js.subscribe_pull("orders.>", durable="billing") as orders:
        thread = orders._thread

        def later(_: object, function: object) -> None:
            thread.opened.submit(function)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        monkeypatch.setattr(thread, "run", later)
        with pytest.raises(KeyboardInterrupt):
            orders.fetch(3, expires=SOON)
        monkeypatch.undo()
        while len(orders._laid_down) < 3:
            orders._thread.call(len, orders)
        assert payloads(orders.fetch(10, expires=SOON)) == [0, 1, 2]
        assert payloads(orders.fetch(7, expires=SOON)) == [3, 4, 5, 6, 7, 8, 9]


def test_errors_are_those_of_the_client(js: sync.JetStream) -> None:
    with pytest.raises(CannotSubscribe, match="no stream"):
        js.subscribe("lamps.>")
    with pytest.raises(ConsumerMissing):
        js.subscribe(stream="orders", consumer="nobody")
    with (
        js.subscribe_pull("orders.>", durable="billing") as orders,
        pytest.raises(ValueError, match="a fetch of 0 messages"),
    ):
        orders.fetch(0)


def test_a_block_outlives_the_client(server: NatsServer, js: sync.JetStream) -> None:
    client = sync.connect(server.url).open(timeout=SOON)
    with client.jetstream().subscribe_pull("orders.>", durable="late") as orders:
        (message,) = orders.fetch(1, expires=SOON)
        client.close(timeout=SOON)
        with pytest.raises(NatsError, match="not open"):
            message.ack()
        assert list(orders) == []
    with pytest.raises(NatsError, match="not open"):
        orders.drain()
