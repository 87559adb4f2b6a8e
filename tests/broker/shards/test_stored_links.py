"""A life of a shard finds what the one before has stored."""

from tests.broker.session.test_durable import committer_of
from trunkline.broker.links.frames import LinkPlace
from trunkline.broker.shards.outbox import LinkOutbox
from trunkline.broker.shards.places import LinkPlaces, Reached
from trunkline.broker.shards.stored_links import NO_LINKS, find_links
from trunkline.store.memory import MemoryEngine


def test_it_finds_all_of_it() -> None:
    engine = MemoryEngine()
    assert find_links(engine) == NO_LINKS
    committer, turns, _ = committer_of(engine)
    outbox, places = LinkOutbox(committer), LinkPlaces(committer, {})
    outbox.keep(2, 11, b"burst")
    outbox.spread("a", 7)
    places.is_new(1, 12)
    places.reached(1, 3, 4, lambda: None)
    turns.end()
    found = find_links(engine)
    assert found.reached == {1: Reached(LinkPlace(3, 4, 4), 12)}
    assert found.unsent == ([(2, 11, b"burst")], {"a": 7})
    assert NO_LINKS == ({}, ([], {}))
