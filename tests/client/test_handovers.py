"""Messages of the server, and their acknowledgements: in the order in which the messages came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.rig import PIECES, Rig, acknowledge, payloads, publish, shown
from trunkline.client.errors import Disconnected
from trunkline.mqtt.packets import Disconnect, Pubrel
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.receiving import Handover

VERSIONS = ("5.0", "3.1.1", "3.1")


def single(handovers: list[Handover]) -> Handover:
    (handover,) = handovers
    return handover


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_qos(version: str, pieces: int) -> None:
    rig = Rig(version=version, pieces=pieces)
    rig.open()
    zero, one, two = rig.give(publish("a"), publish("b", b"x", 1, 7), publish("c", b"y", 2, 8))
    assert zero.accept is None
    assert rig.sent() == []
    acknowledge(one)
    acknowledge(two)
    assert shown(rig.sent()) == ["PUBACK 7", "PUBREC 8"]
    rig.give(Pubrel(8))
    assert shown(rig.sent()) == ["PUBCOMP 8"]


def test_acknowledgements_leave_in_the_order_of_the_messages() -> None:
    rig = Rig()
    rig.open()
    first, second, third = (
        rig.give(publish("a", b"", 1, 1)) + rig.give(publish("b", b"", 2, 2)) + rig.give(publish("c", b"", 1, 3))
    )
    acknowledge(third)
    acknowledge(second)
    assert rig.sent() == []
    acknowledge(first)
    assert shown(rig.sent()) == ["PUBACK 1", "PUBREC 2", "PUBACK 3"]
    acknowledge(first)
    assert rig.sent() == []


def open_burst(rig: Rig, qos: int, ids: range) -> Handover:
    """Several messages that come as one publication."""
    rig.open()
    first = single(rig.give(publish("t", b"", 1, 999)))
    acknowledge(first)
    rig.sent()
    handover = single(rig.give(*(publish("t", b"%d" % packet_id, qos, packet_id) for packet_id in ids)))
    assert handover.publication.count == len(ids)
    return handover


@pytest.mark.parametrize(("qos", "name"), [(1, "PUBACK"), (2, "PUBREC")])
def test_of_a_burst_leaves_what_stands_at_its_front(qos: int, name: str) -> None:
    rig = Rig()
    handover = open_burst(rig, qos, range(1, 6))
    after = single(rig.give(publish("u", b"", 1, 50)))
    acknowledge(after)
    acknowledge(handover, 1, 3)
    assert rig.sent() == []
    acknowledge(handover, 0)
    assert shown(rig.sent()) == [f"{name} 1", f"{name} 2"]
    acknowledge(handover, 2, 4)
    assert shown(rig.sent()) == [f"{name} 3", f"{name} 4", f"{name} 5", "PUBACK 50"]


def test_what_is_acknowledged_of_a_burst_gives_its_room_back() -> None:
    rig = Rig(receive_maximum=3)
    handover = open_burst(rig, 1, range(1, 4))
    acknowledge(handover, 0, 1)
    assert shown(rig.sent()) == ["PUBACK 1", "PUBACK 2"]
    rig.give(publish("u", b"", 1, 7), publish("u", b"", 1, 8))
    assert rig.connection.error is None
    rig.give(publish("u", b"", 1, 9))
    assert isinstance(rig.connection.error, Disconnected)


@given(st.permutations(range(8)), st.lists(st.booleans(), min_size=8, max_size=8))
def test_any_order_of_the_user_is_the_servers_order(order: list[int], flushed: list[bool]) -> None:
    rig = Rig()
    handovers = [(open_burst(rig, 1, range(1, 5)), 0, 4)]
    handovers += [(single(rig.give(publish("u", b"", 1, packet_id))), packet_id - 1, 1) for packet_id in range(5, 9)]
    places = [(handover, number) for handover, _, count in handovers for number in range(count)]
    sent: list[str] = []
    done: set[int] = set()
    for place, flush in zip(order, flushed, strict=True):
        handover, number = places[place]
        acknowledge(handover, number)
        done.add(place)
        if flush:
            sent += shown(rig.sent())
            front = next(each for each in range(9) if each not in done)
            assert sent == [f"PUBACK {each + 1}" for each in range(front)]
    sent += shown(rig.sent())
    assert sent == [f"PUBACK {each}" for each in range(1, 9)]


def test_a_message_for_several_waits_for_all_of_them() -> None:
    rig = Rig()
    rig.open()
    handover = single(rig.give(publish("t", b"", 1, 1)))
    handover.expect(0, 2)
    acknowledge(handover)
    assert rig.sent() == []
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBACK 1"]


def test_a_message_for_nobody_is_acknowledged() -> None:
    rig = Rig()
    rig.open()
    for handover in rig.give(publish("t", b"", 1, 1), publish("t", b"", 2, 2), publish("t")):
        handover.expect(0, 0)
    assert shown(rig.sent()) == ["PUBACK 1", "PUBREC 2"]


# The next connection


def test_acknowledgements_of_a_lost_connection_are_not_sent_on_the_next() -> None:
    """The server delivers both messages again."""
    rig = Rig()
    rig.open()
    first, second = rig.give(publish("a", b"", 1, 1)) + rig.give(publish("b", b"", 1, 2))
    acknowledge(second)
    rig = rig.again()
    assert rig.open(session_present=True) == []
    acknowledge(first)
    assert rig.sent() == []
    again = rig.give(publish("a", b"1", 1, 1, dup=True)) + rig.give(publish("b", b"2", 1, 2, dup=True))
    assert payloads(again) == [b"1", b"2"]
    for handover in again:
        acknowledge(handover)
    assert shown(rig.sent()) == ["PUBACK 1", "PUBACK 2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_qos_2_message_is_handed_over_once(version: str) -> None:
    rig = Rig(version=version)
    rig.open()
    handover = single(rig.give(publish("t", b"", 2, 1)))
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBREC 1"]
    assert rig.give(publish("t", b"", 2, 1, dup=True)) == []
    assert shown(rig.sent()) == ["PUBREC 1"]
    rig = rig.again(version=version)
    rig.open(session_present=True)
    assert rig.give(publish("t", b"", 2, 1, dup=True)) == []
    assert shown(rig.sent()) == ["PUBREC 1"]
    rig.give(Pubrel(1))
    assert shown(rig.sent()) == ["PUBCOMP 1"]
    assert len(rig.give(publish("t", b"", 2, 1))) == 1


def test_a_qos_2_message_that_nobody_acknowledged_comes_again_and_waits() -> None:
    """It was handed over on the first connection; its PUBREC belongs to the last."""
    rig = Rig()
    rig.open()
    handover = single(rig.give(publish("t", b"", 2, 1)))
    for _ in range(2):
        rig = rig.again()
        rig.open(session_present=True)
        assert rig.give(publish("t", b"", 2, 1, dup=True)) == []
        assert rig.sent() == []
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBREC 1"]


def test_one_acknowledged_in_between_is_answered_when_it_comes_again() -> None:
    rig = Rig()
    rig.open()
    handover = single(rig.give(publish("t", b"", 2, 1)))
    rig = rig.again()
    acknowledge(handover)
    rig.open(session_present=True)
    rig.give(publish("t", b"", 2, 1, dup=True))
    assert shown(rig.sent()) == ["PUBREC 1"]


def test_of_a_burst_only_what_is_new_is_handed_over() -> None:
    rig = Rig()
    handover = open_burst(rig, 2, range(1, 4))
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBREC 1", "PUBREC 2", "PUBREC 3"]
    rig = rig.again()
    rig.open(session_present=True)
    again = rig.give(*(publish("t", b"%d" % packet_id, 2, packet_id, dup=True) for packet_id in range(1, 6)))
    assert payloads(again) == [b"4", b"5"]
    for each in again:
        acknowledge(each)
    assert shown(rig.sent()) == [f"PUBREC {packet_id}" for packet_id in range(1, 6)]


def test_of_two_that_come_together_the_new_one_is_handed_over() -> None:
    rig = Rig()
    rig.open()
    acknowledge(single(rig.give(publish("t", b"1", 2, 1))))
    again = rig.give(publish("t", b"1", 2, 1, dup=True), publish("t", b"2", 2, 2, dup=True))
    assert payloads(again) == [b"2"]


def test_pubrel_of_nothing() -> None:
    rig = Rig()
    rig.open()
    handover = single(rig.give(publish("t", b"", 2, 1)))
    acknowledge(handover)
    rig.sent()
    rig.give(Pubrel(5), Pubrel(1), Pubrel(1))
    assert shown(rig.sent()) == ["PUBCOMP 5 0x92", "PUBCOMP 1", "PUBCOMP 1 0x92"]


def test_pubcomp_waits_for_no_other_message() -> None:
    rig = Rig()
    rig.open()
    two = single(rig.give(publish("b", b"", 2, 2)))
    acknowledge(two)
    rig.sent()
    rig.give(publish("a", b"", 1, 1))
    rig.give(Pubrel(2))
    assert shown(rig.sent()) == ["PUBCOMP 2"]


def test_the_end_of_the_session_forgets_the_ids() -> None:
    rig = Rig()
    rig.open()
    rig.give(publish("t", b"", 2, 1))
    rig.incoming.forget()
    rig = Rig(incoming=rig.incoming)
    rig.open()
    assert len(rig.give(publish("t", b"", 2, 1))) == 1


# The receive maximum


def test_more_than_the_receive_maximum_ends_the_connection() -> None:
    rig = Rig(receive_maximum=2)
    rig.open()
    one = single(rig.give(publish("a", b"", 1, 1)))
    acknowledge(one)
    rig.sent()
    assert len(rig.give(publish("a", b"", 1, 2), publish("b", b"", 2, 3))) == 2
    assert rig.give(publish("c", b"", 1, 4)) == []
    assert isinstance(rig.connection.error, Disconnected)
    assert rig.sent() == [Disconnect(Reason.RECEIVE_MAXIMUM_EXCEEDED)]


def test_what_was_open_before_does_not_count_on_a_new_connection() -> None:
    rig = Rig(receive_maximum=1)
    rig.open()
    acknowledge(single(rig.give(publish("a", b"", 2, 1))))
    rig.sent()
    rig = rig.again(receive_maximum=1)
    rig.open(session_present=True)
    assert len(rig.give(publish("a", b"", 2, 2))) == 1
    rig.give(publish("a", b"", 2, 3))
    assert isinstance(rig.connection.error, Disconnected)


@pytest.mark.parametrize("connections", [1, 2])
def test_a_server_that_repeats_qos_2_again_and_again(connections: int) -> None:
    """As some do to 3.1.1 clients. It holds up no other acknowledgement."""
    rig = Rig(version="3.1.1", clean_start=False)
    rig.open()
    handover = single(rig.give(publish("t", b"x", 2, 5)))
    for _ in range(connections - 1):
        rig = rig.again(version="3.1.1", clean_start=False)
        rig.open(session_present=True)
    for _ in range(3):
        assert rig.give(publish("t", b"x", 2, 5, dup=True)) == []
    other = single(rig.give(publish("t", b"y", 1, 6)))
    acknowledge(other)
    assert rig.sent() == []
    acknowledge(handover)
    assert shown(rig.sent()) == ["PUBREC 5", "PUBACK 6"]
