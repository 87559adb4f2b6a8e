# ruff: noqa: PT012 - how a block ends is the matter here
"""Windows and batches for threads, with real servers."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import sync
from trunkline.nats.client.events import Disconnected, Event
from trunkline.nats.client.jetstream import FastBatchFailed, NotSupported, PublishFailed
from trunkline.nats.client.jetstream.batch import knows_batches
from trunkline.nats.errors import ClientClosed, ConnectionLost, NatsError
from trunkline.nats.jetstream.configs import Storage, StreamConfig
from trunkline.nats.jetstream.flows import knows_fast_batches
from trunkline.nats.jetstream.replies import WrongLast

#: Seconds for what should come.
SOON = 60.0
IN_MEMORY = StreamConfig(name="window", storage=Storage.MEMORY, subjects=("window.>",))


@pytest.fixture
def js(server: NatsServer) -> Iterator[sync.JetStream]:
    with sync.connect(server.url) as client:
        js = client.jetstream(timeout=SOON)
        js.create_stream(IN_MEMORY)
        try:
            yield js
        finally:
            js.delete_stream("window")


def test_a_window_with_some_that_fail(js: sync.JetStream) -> None:
    count = 10_000
    refused = {17, 5_000, 9_999}
    said = "2 messages were not taken, the first one at 'window.a'"
    with pytest.raises(PublishFailed, match=said) as caught, js.publisher(window=500) as publisher:
        receipts = [
            publisher.publish(
                "window.a",
                b"%d" % number,
                expected_last_sequence=count * 2 if number in refused else None,
                timeout=SOON,
            )
            for number in range(count)
        ]
        with pytest.raises(WrongLast):
            receipts[17].ack(timeout=SOON)
        assert (receipts[0].subject, receipts[0].payload, receipts[0].error) == ("window.a", b"0", None)
        headers = receipts[17].headers
        assert headers is not None
        assert headers["Nats-Expected-Last-Sequence"] == "20000"
        assert receipts[0].ack(timeout=SOON).sequence == 1
    assert caught.value.receipts == [receipts[5_000], receipts[9_999]]
    assert len({*caught.value.receipts, receipts[5_000], receipts[0]}) == 3
    assert receipts[0] not in (receipts[1], "a receipt")
    assert all(isinstance(each.error, WrongLast) for each in caught.value.receipts)
    assert all(each.is_settled for each in receipts)
    assert {number for number, each in enumerate(receipts) if each.error} == refused
    assert js.stream("window").state.messages == count - len(refused)


def test_many_threads_share_a_window(js: sync.JetStream) -> None:
    with js.publisher(window=3) as publisher:

        def publish() -> None:
            for number in range(50):
                publisher.publish("window.a", b"%d" % number, timeout=SOON)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        publisher.finish(timeout=SOON)
    assert js.stream("window").state.messages == 200


def test_an_error_in_the_block_ends_the_window_and_is_raised(js: sync.JetStream) -> None:
    with pytest.raises(KeyError, match="mine"), js.publisher() as publisher:
        publisher.publish("window.a", expected_last_sequence=7)
        raise KeyError("mine")
    with pytest.raises(NatsError, match="the block of the publisher has ended"):
        publisher.publish("window.a")
    with pytest.raises(PublishFailed, match="1 messages"), js.publisher() as publisher:
        publisher.publish("window.a", expected_last_sequence=7)
        publisher.finish(timeout=SOON)
    with pytest.raises(ValueError, match="window: 0"):
        js.publisher(window=0)


def test_a_full_window_is_waited_for_no_longer_than_it_may(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("mute") as mute:
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"), client.jetstream().publisher(window=1) as publisher:
            receipt = publisher.publish("mute", timeout=SOON)
            assert mute.receive(timeout=SOON).subject == "mute"
            assert not receipt.is_settled
            with pytest.raises(TimeoutError):
                receipt.ack(timeout=0.01)
            with pytest.raises(TimeoutError):
                publisher.finish(timeout=0.01)
            publisher.publish("mute", timeout=0.01)
        assert "the block of the publisher has ended" in str(receipt.error)


def test_a_client_that_is_closed_within(server: NatsServer, js: sync.JetStream) -> None:
    client = sync.connect(server.url).open(timeout=SOON)
    with client.jetstream().publisher() as publisher:
        assert publisher.publish("window.a").ack(timeout=SOON).sequence == 1
        client.close(timeout=SOON)
    with sync.connect(server.url) as other, other.subscribe("mute"):
        other.flush(timeout=SOON)
        client = sync.connect(server.url).open(timeout=SOON)
        said = "closed before the message was acknowledged"
        with pytest.raises(PublishFailed, match=said) as caught, client.jetstream().publisher() as publisher:
            receipt = publisher.publish("mute")
            client.close(timeout=SOON)
            with pytest.raises(ClientClosed):
                publisher.publish("mute")
        assert caught.value.receipts == [receipt]
    assert js.stream("window").state.messages == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed(kind: str, tmp_path: Path) -> None:
    """What has an id is published again; of the rest nobody knows."""
    lost = threading.Event()

    def told(event: Event) -> None:
        if isinstance(event, Disconnected):
            lost.set()

    options = ("-js", "-sd", str(tmp_path / "js"))
    with (
        running(kind, tmp_path, *options) as server,
        sync.connect(server.url, reconnect_wait=0.01, on_event=told) as client,
        client.subscribe("mute"),
    ):
        js = client.jetstream(timeout=SOON)
        js.create_stream(StreamConfig(name="window", subjects=("window.>",)))
        with pytest.raises(PublishFailed, match="1 messages") as caught, js.publisher() as publisher:
            unknown = publisher.publish("mute", timeout=SOON)
            client.flush(timeout=SOON)
            server.kill()
            assert lost.wait(SOON)
            receipts = [publisher.publish("window.a", message_id=f"{number}", timeout=SOON) for number in range(100)]
            server.start()
            assert [receipt.ack(timeout=SOON).stream for receipt in receipts] == ["window"] * 100
        assert caught.value.receipts == [unknown]
        assert isinstance(unknown.error, ConnectionLost)
        assert js.stream("window").state.messages == 100


def test_batches(server: NatsServer, js: sync.JetStream) -> None:
    with sync.connect(server.url) as client:
        if not knows_batches(client.server):
            with pytest.raises(NotSupported, match="does not know allow_atomic"):
                js.batch(timeout=SOON)
            return
    js.create_stream(StreamConfig(name="batch", storage=Storage.MEMORY, subjects=("batch.>",), allow_atomic=True))
    try:
        with js.batch() as batch:
            for number in range(150):
                batch.publish("batch.a", b"%d" % number, headers={"A": "b"}, timeout=SOON)
            assert js.stream("batch").state.messages == 0
        assert batch.ack is not None
        assert (batch.ack.sequence, batch.ack.count) == (150, 150)
        assert js.get("batch", 150).headers["A"] == "b"
        with pytest.raises(KeyError, match="mine"), js.batch() as batch:
            batch.publish("batch.a")
            batch.publish("batch.a")
            raise KeyError("mine")
        assert batch.ack is None
        with pytest.raises(WrongLast), js.batch() as batch:
            batch.publish("batch.a", expected_last_sequence=7)
            batch.publish("batch.a")
        assert js.stream("batch").state.messages == 150
        other = sync.connect(server.url).open(timeout=SOON)
        with pytest.raises(ClientClosed), other.jetstream().batch() as batch:
            batch.publish("batch.a")
            other.close(timeout=SOON)
        assert js.stream("batch").state.messages == 150
    finally:
        js.delete_stream("batch")


def test_fast_batches(server: NatsServer, js: sync.JetStream) -> None:
    with sync.connect(server.url) as client:
        if not knows_fast_batches(client.server):
            with pytest.raises(NotSupported, match="does not know allow_batched"):
                js.fast_batch(timeout=SOON)
            return
    js.create_stream(StreamConfig(name="fast", storage=Storage.MEMORY, subjects=("fast.>",), allow_batched=True))
    try:
        with js.fast_batch(every=5) as batch:

            def publish() -> None:
                for _ in range(50):
                    batch.publish("fast.a", headers={"A": "b"}, timeout=SOON)

            threads = [threading.Thread(target=publish) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SOON)
            assert batch.ack is None
            batch.finish(timeout=SOON)
            assert batch.ack is not None
        assert (batch.ack.count, batch.published, batch.stored) == (200, 200, 200)
        assert js.get("fast", 200).headers["A"] == "b"
        with js.fast_batch(gaps=True) as batch:
            for number in range(1, 101):
                batch.publish("fast.a", expected_last_sequence=7 if number == 50 else None, timeout=SOON)
        assert ([(each.first, each.last) for each in batch.misses], batch.missed) == ([(50, 50)], 1)
        assert batch.may_miss_more is False
        assert not batch.may_miss_more
        with pytest.raises(FastBatchFailed, match="wrong last sequence") as caught, js.fast_batch() as batch:
            for number in range(1, 101):
                batch.publish("fast.a", expected_last_sequence=7 if number == 50 else None, timeout=SOON)
        assert (caught.value.stored, caught.value.is_certain) == (49, True)
        with pytest.raises(KeyError, match="mine"), js.fast_batch() as batch:
            batch.publish("fast.a", timeout=SOON)
            raise KeyError("mine")
        with pytest.raises(FastBatchFailed, match="the block of the batch has ended"):
            batch.publish("fast.a", timeout=SOON)
        other = sync.connect(server.url).open(timeout=SOON)
        with pytest.raises(ClientClosed), other.jetstream().fast_batch() as batch:
            batch.publish("fast.a", timeout=SOON)
            other.close(timeout=SOON)
    finally:
        js.delete_stream("fast")


def test_a_fast_batch_waits_no_longer_than_it_may(server: NatsServer) -> None:
    """What was not published in time was not at all, and the batch goes on."""
    with sync.connect(server.url) as client, client.subscribe("mute") as mute:
        if not knows_fast_batches(client.server):
            return
        with pytest.raises(FastBatchFailed, match="rubbish"), client.jetstream().fast_batch() as batch:
            assert batch.publish("mute", timeout=SOON) == 1
            asked = mute.receive(timeout=SOON)
            with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
                batch.publish("mute", timeout=0.01)
            assert batch.published == 1
            asked.respond(b'{"type":"ack","seq":0,"msgs":10}')
            assert batch.publish("mute", timeout=SOON) == 2
            assert mute.receive(timeout=SOON).reply.endswith(".2.1.$FI")
            asked.respond(b"rubbish")


def test_a_fast_batch_in_asyncio(server: NatsServer, js: sync.JetStream) -> None:
    with sync.connect(server.url) as client:
        if not knows_fast_batches(client.server):
            return
    js.create_stream(StreamConfig(name="fast", storage=Storage.MEMORY, subjects=("fast.>",), allow_batched=True))

    def fill(subject: str) -> int:
        with js.fast_batch() as batch:
            for _ in range(100):
                batch.publish(subject, timeout=SOON)
        return batch.stored

    async def main() -> list[int]:
        return await asyncio.gather(*[asyncio.to_thread(fill, f"fast.{number}") for number in range(3)])

    try:
        assert asyncio.run(main()) == [100, 100, 100]
        assert js.stream("fast").state.messages == 300
    finally:
        js.delete_stream("fast")
