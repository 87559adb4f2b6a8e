"""Whatever clocks say, what was published after another message was seen is newer."""

import pytest

from trunkline.broker.shards import versions
from trunkline.broker.shards.versions import STEP, Versions
from trunkline.mqtt.message import Message
from trunkline.router import RetainedStore


def shard(number: int) -> tuple[Versions, RetainedStore]:
    retained = RetainedStore()
    return Versions(number, retained), retained


def message(payload: bytes = b"x", topic: str = "t") -> Message:
    return Message(topic, payload, retain=True)


def test_they_grow_also_while_the_clock_stands_or_goes_back() -> None:
    one, _ = shard(3)
    first = one.next(1000.0, 5)
    second = one.next(1000.0, 1)
    third = one.next(10.0, 1)
    assert first == 1000_000_000 * STEP + 3
    assert second == first + 5 * STEP
    assert third == second + STEP
    assert one.next(1001.0, 1) == 1001_000_000 * STEP + 3


def test_who_has_seen_a_message_publishes_a_newer_one() -> None:
    ahead, _ = shard(0)
    behind, retained = shard(1)
    seen = ahead.next(2000.0, 1)
    assert behind.is_newest(message(), seen)
    retained.store(message(), 0.0, seen)
    assert behind.next(1000.0, 1) > seen


def test_of_two_all_keep_the_same() -> None:
    (one, _), (other, _) = shard(0), shard(1)
    versions_of = {b"a": one.next(5.0, 1), b"b": other.next(5.0, 1)}
    assert len(set(versions_of.values())) == 2
    kept = set[bytes]()
    for order in (b"ab", b"ba"):
        third, retained = shard(2)
        for payload in (order[:1], order[1:]):
            if third.is_newest(message(payload), versions_of[payload]):
                retained.store(message(payload), 0.0, versions_of[payload])
        found = retained.get("t", 0.0)
        assert found is not None
        kept.add(found.payload)
    assert kept == {b"b"}


def test_the_same_is_not_newer() -> None:
    one, retained = shard(0)
    retained.store(message(), 0.0, 7)
    assert not one.is_newest(message(), 7)
    assert one.is_newest(message(), 8)


def test_what_was_deleted_is_not_brought_back_by_an_older_one() -> None:
    one, _ = shard(0)
    assert one.is_newest(message(b""), 9)
    assert not one.is_newest(message(), 8)
    assert not one.is_newest(message(b""), 9)
    assert one.is_newest(message(), 10)
    assert one.is_newest(message(topic="other"), 1)


def test_few_deletions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_DELETED", 2)
    one, _ = shard(0)
    for number in range(1, 4):
        assert one.is_newest(message(b"", f"t{number}"), 10 + number)
    assert one.is_newest(message(topic="t1"), 5)
    assert not one.is_newest(message(topic="t3"), 5)


def test_the_last_messages_of_another_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_RECENT", 3)
    (one, retained), (other, _) = shard(0), shard(1)
    for number, (topic, payload, publisher) in enumerate(
        [
            ("a", b"1", other),
            ("b", b"1", other),
            ("c", b"1", other),
            ("d", b"1", other),
            ("b", b"", other),
            ("d", b"2", one),
        ]
    ):
        version = publisher.next(1000.0 + number, 1)
        assert one.is_newest(message(payload, topic), version)
        retained.store(message(payload, topic), 0.0, version)
    assert [(each.topic, each.payload, version % STEP) for each, version in one.recent_of(1)] == [
        ("c", b"1", 1),
        ("b", b"", 1),
    ]
    assert list(one.recent_of(2)) == []


def test_what_an_earlier_life_has_stored_is_remembered() -> None:
    one, retained = shard(0)
    retained.store(message(b"1", "mine"), 0.0, 9 * STEP)
    retained.store(message(b"1", "a"), 0.0, 8 * STEP + 1)
    retained.store(message(b"1", "b"), 0.0, 7 * STEP + 1)
    retained.store(message(b"1", "alone"), 0.0)
    one.restored()
    assert [each.topic for each, _ in one.recent_of(1)] == ["b", "a"]
    assert one.next(0.0, 1) == 10 * STEP
