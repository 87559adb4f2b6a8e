"""The rows of a stored window: what a commit writes of it, and the order in which they are found."""

from typing import Any

import pytest

from tests.broker.disk import Disk
from tests.broker.session.test_durable import Home, committer_of
from tests.conformance import raw
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_window import AWAITED, SENT, WINDOWS, RowKey
from trunkline.broker.stored_publications import MESSAGES
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.router import Options, Target
from trunkline.store.memory import MemoryEngine


class Stored:
    """A session, with what is stored of it."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.committer, self.turns, _ = committer_of(self.engine)
        actor = Home(self.committer).add(ClientInfo("a"), 1)
        self.session = actor.session
        self.session.inflight.resume(1000)
        self.to = Target[Any](actor.subscriber, Options(2))
        self.batches: list[dict[Any, Any]] = []
        commit = self.engine.commit

        def note(batch: Any) -> None:
            self.batches.append(batch.values)
            commit(batch)

        self.engine.commit = note

    def message(self, number: int) -> Message:
        return Message("t", b"%d" % number, 2, guid=3 * number)

    def commit(self) -> int:
        """Returns how many rows of the window it wrote."""
        self.session.durable.changed()
        self.committer.after_commit(lambda: None)
        self.turns.end()
        return len(self.batches[-1].get(WINDOWS, {}))

    def rows(self, lane: bytes) -> list[Any]:
        found = [(key[8:], unpack(value)) for key, value in self.engine.scan(WINDOWS) if key[8:9] == lane]
        return [(RowKey.of(key), value) for key, value in found]


@pytest.mark.parametrize("many", [1, 500])
def test_a_commit_writes_what_has_changed_however_much_is_open(many: int) -> None:
    stored = Stored()
    session = stored.session
    for number in range(1, many + 1):
        session.inflight.insert(stored.message(number), stored.to, 2, 0.0)
        session.awaiting_rel.receive([number], stored.message(1000 + number), 7)
    stored.commit()
    session.inflight.insert(stored.message(many + 1), stored.to, 2, 0.0)
    assert stored.commit() == 1
    session.awaiting_rel.receive([many + 1], stored.message(2000), 7)
    assert stored.commit() == 1
    session.awaiting_rel.release([1])
    session.inflight.release([1], 0.0)
    assert stored.commit() == 3  # two rows went, and one has a new place
    session.inflight.end([1])
    assert stored.commit() == 1


def test_pubrels_are_found_in_the_order_of_their_pubrecs() -> None:
    stored = Stored()
    for number in range(1, 6):
        stored.session.inflight.insert(stored.message(number), stored.to, 2, 0.0)
    stored.session.inflight.release([4, 5, 2], 0.0)
    stored.session.inflight.release([1], 0.0)
    stored.commit()
    assert [key.first for key, _ in stored.rows(SENT)] == [3, 4, 5, 2, 1]


def test_what_came_and_went_between_two_commits_is_not_written() -> None:
    stored = Stored()
    stored.commit()
    (packet_id,) = stored.session.inflight.insert(stored.message(1), stored.to, 1, 0.0)
    stored.session.inflight.end([packet_id])
    stored.session.awaiting_rel.receive([7], stored.message(2), 7)
    stored.session.awaiting_rel.release([7])
    assert stored.commit() == 0
    assert not stored.engine.count(MESSAGES)


def test_an_id_without_its_message() -> None:
    stored = Stored()
    stored.session.awaiting_rel.receive([9], None, 0)
    stored.commit()
    ((_, (packet_ids, _, place)),) = stored.rows(AWAITED)
    assert (packet_ids, place) == ([9], None)


def test_a_publication_is_stored_until_the_last_row_that_refers_to_it_goes() -> None:
    stored = Stored()
    message = stored.message(1)
    packet_ids = [stored.session.inflight.insert(message, stored.to, 1, 0.0)[0] for _ in range(2)]
    stored.commit()
    assert stored.engine.count(MESSAGES) == 1
    for packet_id, left in zip(packet_ids, (1, 0), strict=True):
        stored.commit()
        assert stored.engine.count(MESSAGES) == 1
        stored.session.inflight.end([packet_id])
        stored.commit()
        assert stored.engine.count(MESSAGES) == left


def test_a_publication_is_referred_to_once_however_often_its_entry_changes() -> None:
    stored = Stored()
    packet = raw.publish("t", b"x", qos=1, packet_id=1, version=4)
    publication = PublishBatch(["t"], packet[0], Version.V311, 2 * packet, [0, len(packet)], [1, 1])
    publication.guid = 5
    for packet_id in stored.session.inflight.insert(publication, stored.to, 1, 0.0):
        stored.commit()
        assert stored.engine.count(MESSAGES) == 1
        stored.session.inflight.end([packet_id])
    stored.commit()
    assert stored.engine.count(MESSAGES) == 0


async def test_what_is_sent_after_a_start_is_found_behind_what_was_sent_before() -> None:
    disk = Disk()
    for numbers in ("12", "3", "4"):
        async with disk.broker() as life:
            wire, was_there = await life.stay("a")
            if not was_there:
                await wire.subscribe(("t", 1))
            publisher = await life.wire()
            await publisher.connect("publisher")
            for number in numbers:
                await publisher.publish("t", number.encode(), qos=1)
            await publisher.ping()
    (found,) = [each for each in find(disk.engine).sessions.values() if each.client_id == "a"]
    keys = [key for key, _ in found.sent]
    assert [key.first for key in keys] == [1, 2, 3, 4]
    assert len({key.number for key in keys}) == 4
