"""What is to be sent is in the store until the others have it."""

from tests.broker.session.test_durable import committer_of
from trunkline.broker.shards.outbox import OUTBOX, SPREADING, LinkOutbox, Unsent, parts_of_key, unsent
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine


class House:
    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.committer, self.turns, _ = committer_of(self.engine)
        self.outbox = LinkOutbox(self.committer)

    def commit(self) -> Unsent:
        """Returns what the next life finds."""
        self.committer.after_commit(lambda: None)
        self.turns.end()
        return unsent(self.engine)


def test_bursts_are_found_in_the_order_of_their_shards_and_numbers() -> None:
    house = House()
    for shard, number in ((2, 5), (300, 1), (1, 256), (1, 3), (1, 2**60)):
        house.outbox.keep(shard, number, b"%d.%d" % (shard, number))
    assert unsent(house.engine) == Unsent([], {}), "nothing is committed yet"
    assert house.commit().bursts == [
        (1, 3, b"1.3"),
        (1, 256, b"1.256"),
        (1, 2**60, b"1.%d" % 2**60),
        (2, 5, b"2.5"),
        (300, 1, b"300.1"),
    ]
    *_, (key, _) = rows(house.engine, OUTBOX)
    assert key == b"\x01\x2c\0\0\0\0\0\0\0\1", "stored rows have it"
    assert parts_of_key(key) == (300, 1)


def test_what_was_sent_is_gone() -> None:
    house = House()
    for number in (1, 2, 3):
        house.outbox.keep(1, number, b"%d" % number)
    house.commit()
    house.outbox.sent(1, 2)
    assert len(unsent(house.engine).bursts) == 3
    assert house.commit().bursts == [(1, 1, b"1"), (1, 3, b"3")]
    house.outbox.sent(2, 1)
    house.outbox.keep(1, 4, b"4")
    house.outbox.sent(1, 4)
    assert house.commit().bursts == [(1, 1, b"1"), (1, 3, b"3")], "it was there before it was stored"


def test_it_counts_as_what_waits_for_the_store() -> None:
    house = House()
    before = house.committer.uncommitted
    house.outbox.keep(1, 1, b"x" * 1000)
    assert house.committer.uncommitted == before + 1000


def test_topics_are_found_until_all_have_their_newest_message() -> None:
    house = House()
    house.outbox.spread("a", 1)
    house.outbox.spread("ä/b", 2**60)
    assert house.commit() == Unsent([], {"a": 1, "ä/b": 2**60})
    house.outbox.spread("a", 3)
    house.outbox.has_spread("a", 1)
    assert house.commit().versions == {"a": 3, "ä/b": 2**60}, "there is a newer one"
    house.outbox.has_spread("a", 3)
    house.outbox.has_spread("nobody knows it", 1)
    assert house.commit().versions == {"ä/b": 2**60}
    house.outbox.has_spread("a", 3)
    house.outbox.spread("b", 7)
    house.outbox.has_spread("b", 7)
    assert house.commit().versions == {"ä/b": 2**60}


def test_only_what_has_changed_is_written() -> None:
    house = House()
    house.outbox.keep(1, 1, b"x")
    house.outbox.spread("a", 1)
    house.commit()
    batch = WriteBatch()
    for space in (OUTBOX, SPREADING):
        for key, _ in rows(house.engine, space):
            batch.delete(space, key)
    house.engine.commit(batch)
    house.outbox.spread("b", 1)
    assert house.commit() == Unsent([], {"b": 1})
