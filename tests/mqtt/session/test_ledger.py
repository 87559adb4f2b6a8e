"""What is owed leaves in order, and is counted until it has left."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.ledger import Ledger, Owed

PUBACK, PUBREC, PUBCOMP, SUBACK = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP, PacketType.SUBACK


def test_an_answer_that_is_there_leaves_at_once() -> None:
    ledger = Ledger(AwaitingRel())
    for number in range(3):
        assert ledger.settle(ledger.owe(PUBACK, (1, 2)), b"%d" % number) == [b"%d" % number]
        assert not ledger.entries
        assert len(ledger) == 0


def test_what_stands_behind_an_answer_that_waits_waits_with_it() -> None:
    """As behind a commit: each of them may be there first."""
    ledger = Ledger(AwaitingRel())
    commit, routes, later = ledger.owe(PUBACK, (1, 2, 3)), ledger.owe(SUBACK), ledger.owe(PUBACK, (5,))
    assert ledger.settle(ledger.owe(PUBACK, (6,)), b"at once") == []
    assert ledger.settle(later, b"later") == []
    assert ledger.settle(routes, b"routes") == []
    assert (len(ledger), ledger.answers) == (5, 6)
    assert ledger.settle(commit, b"commit") == [b"commit", b"routes", b"later", b"at once"]
    assert (len(ledger), ledger.answers) == (0, 0)


def test_a_place_may_be_settled_in_parts() -> None:
    """As by a user who acknowledges single messages of those that came together."""
    awaiting_rel = AwaitingRel()
    awaiting_rel.receive((7, 8), None, 0)
    ledger = Ledger(awaiting_rel)
    first, second = ledger.owe(PUBACK, (1, 2, 3)), ledger.owe(PUBREC, (7, 8))
    ledger.advance(2)
    assert (len(ledger), ledger.answers) == (1 + 2, 1 + 2)
    assert ledger.settle(second, b"second") == []
    assert ledger.settle(first, b"rest") == [b"rest", b"second"]
    assert (len(ledger), ledger.answers) == (2, 0)
    ledger.place(second := Owed(2, 0))
    ledger.advance(1)
    assert (len(ledger), ledger.answers) == (2, 1)
    assert ledger.entries[0] is second


def test_the_end_of_the_connection_ends_what_is_owed() -> None:
    ledger = Ledger(AwaitingRel())
    old = ledger.owe(PUBACK, (1,))
    assert ledger.settle(ledger.owe(PUBACK, (2,)), b"behind") == []
    ledger.clear()
    assert (len(ledger), ledger.answers) == (0, 0)
    new = ledger.owe(PUBACK, (1,))
    assert ledger.settle(old, b"old") == []  # its commit comes when another connection is there
    assert len(ledger) == 1
    assert ledger.settle(new, b"new") == [b"new"]


def test_its_length_counts_a_qos_2_message_once() -> None:
    awaiting_rel = AwaitingRel()
    ledger = Ledger(awaiting_rel)
    awaiting_rel.receive((1, 2), None, 0)
    assert len(ledger) == 2
    taken, refused = ledger.owe(PUBREC, (1, 2)), ledger.owe(PUBREC, (3,))
    assert len(ledger) == 3
    ledger.settle(taken, b"")
    ledger.settle(refused, b"")
    assert len(ledger) == 2
    awaiting_rel.release((1, 2))
    ledger.owe(PUBCOMP, (1, 2))
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("maximum", "exceeded"), [(0, False), (5, False), (4, True), (3, True)], ids=["none", "at", "above", "far above"]
)
def test_the_receive_maximum_is_about_what_is_open_what_waits_and_what_comes(maximum: int, exceeded: bool) -> None:
    awaiting_rel = AwaitingRel()
    ledger = Ledger(awaiting_rel)
    ledger.open(maximum)
    awaiting_rel.receive((1,), None, 0)
    ledger.owe(PUBACK, (2, 3))
    assert ledger.exceeds((1, 4, 5)) is exceeded  # that of id 1 is open already
    assert not ledger.exceeds((1,))
    ledger.check((1,))
    with pytest.raises(ProtocolError) if exceeded else nullcontext() as error:
        ledger.check((1, 4, 5))
    assert error is None or error.value.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_what_an_earlier_connection_has_left_open_does_not_count() -> None:
    """The send quota is not preserved over connections (section 4.9)."""
    awaiting_rel = AwaitingRel()
    ledger = Ledger(awaiting_rel)
    ledger.open(2)
    awaiting_rel.receive((1, 2), None, 0)
    assert ledger.exceeds((3,))
    ledger.clear()
    ledger.open(2)
    assert not ledger.exceeds((3, 4))
    assert ledger.exceeds((3, 4, 5))


@given(st.data())
def test_answers_leave_in_order_however_they_are_settled(data: st.DataObject) -> None:
    ledger = Ledger(AwaitingRel())
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=20), "PUBLISH packets that each acknowledges")
    waiting: list[int] = []
    entries, left = list[Owed](), list[bytes]()
    for number, size in enumerate(sizes):
        entries.append(ledger.owe(PUBACK if size else SUBACK, range(1, size + 1)))
        waiting.append(number)
        while waiting and data.draw(st.booleans(), "settle one"):
            settled = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            left += ledger.settle(entries[settled], b"%d" % settled)
        first = min(waiting, default=number + 1)
        assert left == [b"%d" % each for each in range(first)]
        assert len(ledger) == sum(sizes[first : number + 1])
        assert len(ledger.entries) == number + 1 - first
