"""Buckets of keys with values for threads, with real servers of two versions."""

from collections.abc import Iterator

import pytest

from tests.nats.client.stores import IN_MEMORY
from tests.nats.servers import NatsServer
from trunkline.nats import sync
from trunkline.nats.errors import (
    BadSubject,
    BucketMissing,
    KeyExists,
    KeyMissing,
    NotSupported,
    WrongRevision,
)
from trunkline.nats.jetstream.buckets import KeyValueConfig
from trunkline.nats.jetstream.entries import Operation
from trunkline.nats.jetstream.replies import ApiError, NameTaken

#: Seconds for what should come.
SOON = 60.0


@pytest.fixture
def buckets(server: NatsServer) -> Iterator[sync.KeyValues]:
    with sync.connect(server.url) as client:
        buckets = sync.KeyValues(client.jetstream(timeout=SOON))
        yield buckets
        for status in buckets.list(timeout=SOON):
            buckets.delete(status.config.bucket, timeout=SOON)


@pytest.fixture
def lamps(buckets: sync.KeyValues) -> sync.KeyValue:
    return buckets.create(KeyValueConfig(bucket="lamps", history=5, **IN_MEMORY), timeout=SOON)


def test_values(lamps: sync.KeyValue) -> None:
    assert lamps.bucket == "lamps"
    assert lamps.put("kitchen", b"on", timeout=SOON) == 1
    assert lamps.update("kitchen", b"off", 1, timeout=SOON) == 2
    with pytest.raises(WrongRevision):
        lamps.update("kitchen", b"dim", 1)
    with pytest.raises(KeyExists):
        lamps.create("kitchen", b"on")
    assert lamps.create("hall", b"on", timeout=SOON) == 3
    assert lamps.get("kitchen", timeout=SOON).value == b"off"
    assert lamps.get("kitchen", 1).value == b"on"
    assert sorted(lamps.keys(timeout=SOON)) == ["hall", "kitchen"]
    assert lamps.keys("hall") == ["hall"]
    with pytest.raises(WrongRevision):
        lamps.delete("kitchen", revision=1)
    assert lamps.delete("kitchen", revision=2, timeout=SOON) == 4
    assert [each.operation for each in lamps.history("kitchen", timeout=SOON)] == [
        *(Operation.PUT, Operation.PUT),
        Operation.DELETE,
    ]
    with pytest.raises(KeyMissing):
        lamps.get("kitchen")
    with pytest.raises(WrongRevision):
        lamps.purge("kitchen", revision=1)
    assert lamps.purge("kitchen", revision=4, timeout=SOON) == 5
    assert [each.operation for each in lamps.history("kitchen")] == [Operation.PURGE]
    assert lamps.purge_deletes(before=0.0) == 1
    assert len(lamps.history("kitchen")) == 1
    assert lamps.purge_deletes(timeout=SOON) == 1
    with pytest.raises(KeyMissing):
        lamps.history("kitchen")
    assert (lamps.status(timeout=SOON).values, lamps.status().config.history) == (1, 5)
    with pytest.raises(BadSubject):
        lamps.put("a b", b"")


def test_buckets(buckets: sync.KeyValues) -> None:
    config = KeyValueConfig(bucket="lamps", **IN_MEMORY)
    buckets.create(config).put("a", b"1")
    with pytest.raises(NameTaken):
        buckets.create(KeyValueConfig(bucket="lamps", history=3, **IN_MEMORY))
    changed = buckets.update(KeyValueConfig(bucket="lamps", description="in the house", **IN_MEMORY), timeout=SOON)
    assert changed.status().config.description == "in the house"
    assert buckets.open("lamps", timeout=SOON).get("a").value == b"1"
    assert [each.config.bucket for each in buckets.list(timeout=SOON)] == ["lamps"]
    buckets.delete("lamps", timeout=SOON)
    for missing in (buckets.open, buckets.delete):
        with pytest.raises(BucketMissing):
            missing("lamps")


def test_a_life_of_its_own(buckets: sync.KeyValues, lamps: sync.KeyValue) -> None:
    """The TTL goes to the server as far as it is known there."""
    with pytest.raises(NotSupported):
        lamps.create("a", b"1", ttl=60)
    with pytest.raises(NotSupported):
        lamps.purge("a", ttl=60)
    try:
        doors = buckets.create(KeyValueConfig(bucket="doors", limit_marker_ttl=60.0, **IN_MEMORY))
    except NotSupported:
        return
    with pytest.raises(ApiError, match="TTL"):
        doors.create("a", b"1", ttl=0.5)
    with pytest.raises(ApiError, match="TTL"):
        doors.purge("a", ttl=0.5)
    assert doors.create("a", b"1", ttl=60) == 1
    assert doors.purge("a", ttl=60) == 2


@pytest.mark.parametrize(
    ("said", "patterns", "expected"),
    [
        ({"include_history": True}, ["a"], [b"1", b"2", b""]),
        ({"updates_only": True}, [], []),
        ({"ignore_deletes": True}, [], [b"3"]),
        ({"meta_only": True, "ignore_deletes": True}, ["b"], [b""]),
        ({"resume_from": 2}, [], [b"2", b"3", b""]),
    ],
)
def test_choices(lamps: sync.KeyValue, said: dict[str, bool], patterns: list[str], expected: list[bytes]) -> None:
    for key, value in (("a", b"1"), ("a", b"2"), ("b", b"3")):
        lamps.put(key, value)
    lamps.delete("a")
    with lamps.watch(*patterns, **said) as watch:
        assert [entry.value for entry in watch.initial()] == expected
    with pytest.raises(ValueError, match="begins with"):
        lamps.watch(updates_only=True, include_history=True)
