import pytest

from tests.conformance import raw
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Acknowledgements, Pubrel
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.states import RECEIVING, ReceiptEffect, ReceiptEvent, ReceiptState
from trunkline.mqtt.versions import Version

HAND_OVER, PUBREC = ReceiptEffect.HAND_OVER, ReceiptEffect.PUBREC
NOT_FOUND, PUBCOMP = ReceiptEffect.PUBCOMP_NOT_FOUND, ReceiptEffect.PUBCOMP
NEW = ReceiptState.NEW
MESSAGES = [Message(f"message {number}", b"") for number in range(500)]


def received(maximum: int, *sizes: int, max_bytes: int = 0) -> AwaitingRel:
    awaiting = AwaitingRel(maximum, max_bytes)
    for packet_id, size in enumerate(sizes, 1):
        assert awaiting.published(packet_id) is HAND_OVER
        assert awaiting.receive([packet_id], MESSAGES[packet_id - 1], size)
    return awaiting


def test_a_packet_id_is_new_once_until_it_is_released() -> None:
    awaiting = received(10, 5)
    assert awaiting.published(1) is PUBREC
    assert awaiting.are_new([2, 3])
    assert not awaiting.are_new([1, 2])
    assert not awaiting.are_new([2, 2])
    assert 1 in awaiting
    assert awaiting.release([1]) == [MESSAGES[0]]
    assert 1 not in awaiting
    assert awaiting.published(1) is HAND_OVER


@pytest.mark.parametrize("event", [None, ReceiptEvent.ACCEPT, ReceiptEvent.REFUSE])
def test_what_is_accepted_or_refused_at_once_follows_the_table(event: ReceiptEvent | None) -> None:
    """`None`: nothing came before."""
    awaiting, state = AwaitingRel(), NEW
    if event is not None:
        (state, effect), (after, _) = RECEIVING[NEW][ReceiptEvent.PUBLISH], RECEIVING[ReceiptState.OWED][event]
        assert (awaiting.published(1), state) == (effect, ReceiptState.OWED)
        state = after
        if event is ReceiptEvent.ACCEPT:
            awaiting.receive([1], MESSAGES[0], 1)
    assert awaiting.published(1) is RECEIVING[state][ReceiptEvent.PUBLISH][1]
    after, expected = RECEIVING[state][ReceiptEvent.PUBREL]
    ((effect, _, _),) = awaiting.released(Pubrel(1))
    assert (effect, 1 in awaiting) == (expected, after is not NEW)


def released(awaiting: AwaitingRel, *packet_ids: int) -> list[tuple[ReceiptEffect, list[int], int]]:
    """What follows from PUBRELs: each effect with its packet ids, and the number of messages that were held."""
    packet = Pubrel(packet_ids[0]) if len(packet_ids) == 1 else Acknowledgements(Pubrel, packet_ids)
    return [(effect, list(ids), len(held)) for effect, ids, held in awaiting.released(packet)]


def test_only_what_is_open_can_be_released() -> None:
    awaiting = received(10, 5, 5, 5)
    assert released(awaiting, 4) == [(NOT_FOUND, [4], 0)]
    assert released(awaiting, 4, 4, 5) == [(NOT_FOUND, [4], 0), (NOT_FOUND, [4], 0), (NOT_FOUND, [5], 0)]
    assert released(awaiting, 4, 5) == [(NOT_FOUND, [4, 5], 0)]
    assert released(awaiting, 1, 4, 1) == [(PUBCOMP, [1], 1), (NOT_FOUND, [4], 0), (NOT_FOUND, [1], 0)]
    assert released(awaiting, 3, 2) == [(PUBCOMP, [3, 2], 2)]
    assert len(awaiting) == 0


def test_one_that_was_refused_stands_for_nothing() -> None:
    awaiting = AwaitingRel(10)
    awaiting.receive([1], None, 0)
    assert awaiting.release([1]) == [None]


def test_a_message_is_withdrawn_from_its_own_id_alone() -> None:
    awaiting = AwaitingRel(10)
    together = PublishBatch(["t"], raw.PUBLISH | 2, Version.V5, b"\x32\x06\0\x01t\0\x01\0" * 2, [0, 8], [1, 2])
    awaiting.receive([1, 2], together, 10)
    awaiting.receive([3], None, 0)
    assert awaiting.held(1) is together.messages[0]
    assert awaiting.held(3) is None
    assert not awaiting.withdraw(1, together.messages[1])
    assert not awaiting.withdraw(4, together.messages[1]), "it is not open any more"
    assert awaiting.withdraw(2, together.messages[1])
    assert list(awaiting.open) == [1, 3]
    assert awaiting.byte_size == 10, "of both, until the last is gone"


def test_no_more_than_the_maximum_may_be_open() -> None:
    awaiting = received(2, 5, 5)
    assert not awaiting.receive([3], None, 0)
    assert len(awaiting) == 2
    awaiting.release([1])
    assert awaiting.has_room(1, 0)
    assert not awaiting.has_room(2, 0)


def test_no_more_than_so_many_bytes_may_be_held() -> None:
    awaiting = received(0, 40, 60, max_bytes=100)
    assert not awaiting.has_room(1, 1)
    assert awaiting.byte_size == 100
    awaiting.release([1])
    assert awaiting.has_room(1, 40)
    assert not awaiting.has_room(1, 41)


def test_zero_is_no_maximum() -> None:
    assert received(0, *[1_000_000] * 500).has_room(10**6, 10**9)


def test_an_export_restores() -> None:
    copy = AwaitingRel(10)
    copy.restore(received(10, 3, 4).export())
    assert copy.export() == [([1], 3, MESSAGES[0]), ([2], 4, MESSAGES[1])]
    assert copy.byte_size == 7


def test_what_is_old_expires_in_order_and_in_parts() -> None:
    awaiting = AwaitingRel()
    for number in range(4):
        awaiting.receive([number], None if number == 1 else MESSAGES[number], 1, float(number))
    assert awaiting.expire(2.0, 2) == [MESSAGES[0]]
    assert awaiting.expire(2.0, 2) == [MESSAGES[2]]
    assert awaiting.expire(2.0, 2) == []
    assert (len(awaiting), awaiting.oldest) == (1, 3.0)


def test_a_batch_takes_its_memory_until_the_last_of_it_is_released() -> None:
    packets = [raw.publish("t", b"x", qos=2, packet_id=n, version=4) for n in range(1, 6)]
    size = len(packets[0])
    batch = PublishBatch(["t"], 0x34, Version.V311, b"".join(packets), range(0, 5 * size, size), [1, 2, 3, 4, 5])
    awaiting = AwaitingRel(10)
    assert awaiting.receive(batch.packet_ids, batch, batch.weight)
    assert awaiting.byte_size == batch.weight
    assert [part.count for part in awaiting.release([1, 2, 4]) if part is not None] == [2, 1]
    awaiting.release([3])
    assert (len(awaiting), awaiting.byte_size) == (1, batch.weight)
    assert [(packet_ids, size) for packet_ids, size, _ in awaiting.export()] == [([5], batch.weight // 5)]
    awaiting.release([5])
    assert awaiting.byte_size == 0
