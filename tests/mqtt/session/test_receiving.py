"""What is handed over, what is owed for it, which messages of a burst are acknowledged, and which of them may leave."""

from collections.abc import Callable

import pytest

from tests.conformance import raw
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.packets import Publish, Pubrel
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.session.receiving import MAX_RECEIVERS, OwedRun, Receiving
from trunkline.mqtt.session.states import RECEIVING, ReceiptEffect, ReceiptEvent, ReceiptState
from trunkline.mqtt.versions import Version


def test_the_front_leaves() -> None:
    run = OwedRun(PacketType.PUBACK, (5, 6, 7))
    assert run.take() == ((), False)
    assert run.acknowledge(1)
    assert not run.acknowledge(1)
    assert run.take() == ((), False)
    run.acknowledge(0)
    assert run.take() == ((5, 6), False)
    run.acknowledge(2)
    assert run.take() == ((7,), True)
    assert run.packet_id(2) == 7


def test_the_last_of_several_receivers_counts() -> None:
    run = OwedRun(PacketType.PUBREC, (1,))
    run.expect(0, 3)
    assert [run.acknowledge(0) for _ in range(4)] == [False, False, True, False]


def test_there_is_a_limit_to_receivers_that_count() -> None:
    run = OwedRun(PacketType.PUBREC, (1,))
    run.expect(0, 1000)
    assert [run.acknowledge(0) for _ in range(MAX_RECEIVERS)].index(True) == MAX_RECEIVERS - 1


def test_qos_2_is_counted_elsewhere() -> None:
    assert OwedRun(PacketType.PUBACK, (1, 2)).count == 2
    assert OwedRun(PacketType.PUBREC, (1, 2)).count == 0


def publish(receiving: Receiving, packet_id: int = 1) -> list[Callable[[int], object]]:
    """A QoS 2 message comes; what accepts it, if it is handed over."""
    packet = Publish("t", b"", 2)
    packet.packet_id = packet_id
    return [handover.accept for handover in receiving.publish(packet) if handover.accept is not None]


class Case:
    """A message in a state, and what happens to it."""

    def __init__(self, state: ReceiptState) -> None:
        self.receiving = Receiving()
        self.accepts: list[Callable[[int], object]] = []
        if state is not ReceiptState.NEW:
            self.accepts = publish(self.receiving)
        if state is ReceiptState.LEFT:
            self.receiving.detach()
        if state is ReceiptState.ACCEPTED:
            self.accepts[0](0)
            self.flushed()
        assert self.receiving.state(1) is state

    def flushed(self) -> list[tuple[PacketType, list[int]]]:
        return [(kind, list(packet_ids)) for kind, packet_ids in self.receiving.leaving()]

    def publish(self) -> ReceiptEffect:
        before = len(self.receiving.ledger.entries)
        if publish(self.receiving):
            return ReceiptEffect.HAND_OVER
        if self.flushed() == [(PacketType.PUBREC, [1])]:
            return ReceiptEffect.PUBREC
        return ReceiptEffect.OWE if len(self.receiving.ledger.entries) > before else ReceiptEffect.NOTHING

    def accept(self) -> ReceiptEffect:
        self.accepts[0](0)
        return ReceiptEffect.PUBREC if self.flushed() == [(PacketType.PUBREC, [1])] else ReceiptEffect.NOTHING

    def pubrel(self) -> ReceiptEffect:
        ((effect, _, _),) = self.receiving.released(Pubrel(1))
        return effect

    def lose(self) -> ReceiptEffect:
        self.receiving.detach()
        return ReceiptEffect.NOTHING


#: It refuses nothing that was handed over: who does that tells `AwaitingRel` at once.
EVENTS: dict[ReceiptEvent, Callable[[Case], ReceiptEffect]] = {
    ReceiptEvent.PUBLISH: Case.publish,
    ReceiptEvent.ACCEPT: Case.accept,
    ReceiptEvent.PUBREL: Case.pubrel,
    ReceiptEvent.LOSS: Case.lose,
}


@pytest.mark.parametrize(
    ("state", "event"),
    [(state, event) for state, row in RECEIVING.items() for event in row if event in EVENTS],
    ids=lambda each: each.name,
)
def test_the_half_follows_the_table(state: ReceiptState, event: ReceiptEvent) -> None:
    case = Case(state)
    effect = EVENTS[event](case)
    assert (case.receiving.state(1), effect) == RECEIVING[state][event]


def test_every_event_and_every_effect_has_a_place() -> None:
    assert {event for row in RECEIVING.values() for event in row} == set(ReceiptEvent)
    assert {effect for row in RECEIVING.values() for _, effect in row.values()} == set(ReceiptEffect)


def test_a_late_acceptance_is_not_that_of_a_later_message_with_the_same_packet_id() -> None:
    """The other side may withdraw what it may not send again: it sends PUBREL in its place."""
    receiving = Receiving()
    (old,) = publish(receiving)
    receiving.detach()
    assert [effect for effect, _, _ in receiving.released(Pubrel(1))] == [ReceiptEffect.PUBCOMP]
    (new,) = publish(receiving)
    old(0)
    assert receiving.state(1) is ReceiptState.OWED
    assert receiving.leaving() == []
    new(0)
    assert receiving.leaving() == [(PacketType.PUBREC, (1,))]


def test_no_pubrec_follows_a_pubrel_that_came_before_the_message_was_accepted() -> None:
    """It would be taken for that of a later message with the same packet id."""
    receiving = Receiving()
    packets = [raw.publish("t", b"x", qos=2, packet_id=packet_id, version=4) for packet_id in (1, 2, 3)]
    size = len(packets[0])
    batch = PublishBatch(["t"], 0x34, Version.V311, b"".join(packets), range(0, 3 * size, size), [1, 2, 3])
    (handover,) = receiving.publish(batch)
    assert handover.accept is not None
    assert [effect for effect, _, _ in receiving.released(Pubrel(2))] == [ReceiptEffect.PUBCOMP]
    (later,) = publish(receiving, 2)
    for number in (1, 0, 2):
        handover.accept(number)
    assert [(kind, list(ids)) for kind, ids in receiving.leaving()] == [(PacketType.PUBREC, [1, 3])]
    assert receiving.state(2) is ReceiptState.OWED
    later(0)
    assert [(kind, list(ids)) for kind, ids in receiving.leaving()] == [(PacketType.PUBREC, [2])]
    assert len(receiving.ledger.entries) == 0
    assert receiving.ledger.answers == 0
