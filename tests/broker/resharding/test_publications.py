"""Publications, where they are needed, under new numbers, and counted."""

import pytest

from tests.broker.resharding.divided import all_rows, holding
from trunkline.broker.resharding.new_parts import NewParts
from trunkline.broker.resharding.publications import Publications
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.mqtt.message import Message
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes, publication_to_bytes
from trunkline.store.engine import key_of
from trunkline.store.memory import MemoryEngine


def row(payload: bytes, expires_at: float = 500.0) -> bytes:
    return publication_to_bytes(Message("t", payload, expires_at=expires_at), 0.0)


@pytest.fixture
def former() -> MemoryEngine:
    return holding(*[(MESSAGES, key_of(number), row(b"%d" % number)) for number in (3, 70, 900)])


def copied(publications: Publications, parts: NewParts, lag: float = 0.0) -> None:
    publications.copy(lag, lambda: None)
    parts.flush()


def test_they_go_to_parts_that_need_them_in_their_order(former: MemoryEngine) -> None:
    new = [MemoryEngine(), MemoryEngine()]
    parts = NewParts(list(new), lambda _: 0)
    publications = Publications(former, parts, 10)
    assert publications.last == 13
    assert publications.queued(0, 70) == publications.in_window(1, 70) == 12
    assert publications.in_window(1, 900) == 13
    assert publications.queued(0, 71) is None
    assert publications.in_window(0, 1000) is None
    copied(publications, parts)
    assert all_rows(new[0], MESSAGES) == [(key_of(12), row(b"70"))]
    assert all_rows(new[1], MESSAGES) == [(key_of(12), row(b"70")), (key_of(13), row(b"900"))]


def test_rows_of_queues_are_counted_where_one_is_not_alone(former: MemoryEngine) -> None:
    new = MemoryEngine()
    parts = NewParts([new], lambda _: 0)
    publications = Publications(former, parts, 0)
    publications.queued(0, 3)
    for _ in range(300):
        publications.queued(0, 70)
    publications.queued(0, 900)
    publications.in_window(0, 900)
    publications.in_window(0, 900)
    copied(publications, parts)
    assert {key: unpack(value) for key, value in all_rows(new, REFERENCES)} == {key_of(2): 300, key_of(3): 1}


def test_what_only_windows_have_is_counted_nowhere(former: MemoryEngine) -> None:
    new = MemoryEngine()
    parts = NewParts([new], lambda _: 0)
    publications = Publications(former, parts, 0)
    publications.in_window(0, 3)
    publications.in_window(0, 3)
    copied(publications, parts)
    assert all_rows(new, REFERENCES) == []
    assert new.count(MESSAGES) == 1


def test_moments_are_moved(former: MemoryEngine) -> None:
    new = MemoryEngine()
    parts = NewParts([new], lambda _: 0)
    publications = Publications(former, parts, 0)
    publications.queued(0, 3)
    copied(publications, parts, lag=20.0)
    ((_, moved),) = all_rows(new, MESSAGES)
    assert publication_from_bytes(moved, 0.0).expires_at == 520
