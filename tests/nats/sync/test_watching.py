"""Watches for threads, with real servers of two versions."""

import threading
from collections.abc import Iterator

import pytest
import trio

from tests.nats.client.stores import IN_MEMORY
from tests.nats.servers import NatsServer
from tests.nats.sync.interrupts import interrupt_behind
from trunkline.nats import sync
from trunkline.nats.errors import ClientClosed, NatsError
from trunkline.nats.jetstream.buckets import KeyValueConfig
from trunkline.nats.jetstream.entries import Entry, Operation

#: Seconds for what should come.
SOON = 60.0


@pytest.fixture
def buckets(server: NatsServer) -> Iterator[sync.KeyValues]:
    with sync.connect(server.url) as client:
        buckets = sync.KeyValues(client.jetstream(timeout=SOON))
        yield buckets
        for status in buckets.list():
            buckets.delete(status.config.bucket)


@pytest.fixture
def lamps(buckets: sync.KeyValues) -> sync.KeyValue:
    return buckets.create(KeyValueConfig(bucket="lamps", history=5, **IN_MEMORY))


def shown(entry: Entry | None) -> tuple[str, bytes, Operation] | None:
    return None if entry is None else (entry.key, entry.value, entry.operation)


def test_watch(lamps: sync.KeyValue) -> None:
    lamps.put("kitchen", b"on")
    lamps.put("hall", b"off")
    with lamps.watch(timeout=SOON) as watch:
        assert not watch.is_current
        assert shown(watch.receive_initial(timeout=SOON)) == ("kitchen", b"on", Operation.PUT)
        assert [shown(entry) for entry in watch.initial()] == [("hall", b"off", Operation.PUT)]
        assert watch.is_current
        assert watch.receive_initial(timeout=0) is None
        with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s"):
            watch.receive(timeout=0.01)
        lamps.delete("kitchen")
        assert shown(watch.receive(timeout=SOON)) == ("kitchen", b"", Operation.DELETE)
        lamps.put("hall", b"on")
        for entry in watch:
            assert shown(entry) == ("hall", b"on", Operation.PUT)
            watch.stop()
        with pytest.raises(trio.EndOfChannel):
            watch.receive()
    with lamps.watch() as watch:
        assert [entry.key for _, entry in zip(range(2), watch, strict=False)] == ["kitchen", "hall"]
        assert watch.is_current


def test_an_interrupt_takes_no_entry(lamps: sync.KeyValue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came for it is there for the next call: of what was there, and of what changes."""
    lamps.put("a", b"1")
    with lamps.watch() as watch:
        interrupt_behind(watch, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            watch.receive(timeout=SOON)
        monkeypatch.undo()
        assert not watch.is_current
        assert [entry.key for entry in watch.initial()] == ["a"]
        lamps.put("b", b"2")
        interrupt_behind(watch, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            watch.receive(timeout=SOON)
        monkeypatch.undo()
        assert watch.is_current
        assert list(watch.initial()) == []
        assert watch.receive(timeout=SOON).key == "b"


def test_threads_share_a_watch(lamps: sync.KeyValue) -> None:
    for number in range(50):
        lamps.put(f"a{number}", b"")
    found: list[str] = []
    with lamps.watch() as watch:

        def take() -> None:
            found.extend(entry.key for entry in watch)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(50):
            lamps.put(f"b{number}", b"")
        while len(found) + len(threads) < 100:
            lamps.status()  # entries come meanwhile
        watch.close()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()
    assert len(found) == len(set(found)) <= 100


def test_the_end_of_the_client_ends_a_watch(server: NatsServer, lamps: sync.KeyValue) -> None:
    lamps.put("a", b"1")
    client = sync.connect(server.url).open(timeout=SOON)
    with sync.KeyValues(client.jetstream()).open("lamps").watch() as watch:
        assert watch.receive(timeout=SOON).key == "a"
        client.close(timeout=SOON)
        assert list(watch) == []
        assert list(watch.initial()) == []
        with pytest.raises(ClientClosed):
            watch.stop()


def test_a_bucket_that_is_deleted(buckets: sync.KeyValues, lamps: sync.KeyValue) -> None:
    with lamps.watch() as watch:
        buckets.delete("lamps")
        with pytest.raises(NatsError):
            list(watch)
