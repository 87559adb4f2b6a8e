"""The tables are whole, and say what the specification says: the clauses stand beside their lines."""

import pytest

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Acknowledgement, Puback, Pubcomp, Pubrec
from trunkline.mqtt.session.states import ANSWERS, OPENED, SENDING, Effect, Event, State, not_expected
from trunkline.mqtt.session.window import Inflight

#: Each acknowledgement, as the success and as the failure that it can be.
PACKETS = [kind(1, reason) for kind in ANSWERS for reason in (0x00, 0x10, 0x80, 0xFF)]


def window(state: State) -> Inflight[str]:
    """With a message in this state, whose packet id is 1."""
    inflight = Inflight[str](10)
    if state is not State.CLOSED:
        inflight.insert(Message("t", b"", 2), "target", 1 if state is State.WAIT_PUBACK else 2, 0.0)
    if state is State.WAIT_PUBCOMP:
        inflight.release([1], 0.0)
    assert inflight.state(1) is state
    return inflight


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: f"{type(packet).__name__}-{packet.reason:#x}")
def test_a_window_follows_the_table(state: State, packet: Acknowledgement) -> None:
    inflight = window(state)
    event = ANSWERS[type(packet)][packet.reason >= 0x80]
    if event not in SENDING[state]:
        with pytest.raises(
            ProtocolError, match=f"{type(packet).__name__.upper()} for packet identifier 1, which waits"
        ):
            inflight.answered(packet, 0.0)
        assert inflight.state(1) is state
        return
    after, expected = SENDING[state][event]
    ((effect, packet_ids, messages),) = inflight.answered(packet, 0.0)
    assert (effect, list(packet_ids), inflight.state(1)) == (expected, [1], after)
    assert len(messages) == (after is not state)


def test_every_way_of_a_message_ends() -> None:
    """From each state in which a message is sent it can be over, and it never comes to another QoS."""
    reached = {
        opened: {after for after, _ in SENDING[opened].values()}
        | {after for state, _ in SENDING[opened].values() for after, _ in SENDING[state].values()}
        for opened in OPENED.values()
    }
    assert reached[State.WAIT_PUBACK] == {State.WAIT_PUBACK, State.CLOSED}
    assert reached[State.WAIT_PUBREC] == {State.WAIT_PUBREC, State.WAIT_PUBCOMP, State.CLOSED}
    assert {after for after, _ in SENDING[State.CLOSED].values()} == {State.CLOSED}


def test_every_effect_and_every_event_has_a_place() -> None:
    assert {effect for row in SENDING.values() for _, effect in row.values()} == set(Effect)
    assert {event for row in SENDING.values() for event in row} == set(Event)


@pytest.mark.parametrize(
    ("kind", "state", "text"),
    [
        (Puback, State.WAIT_PUBREC, "PUBACK for packet identifier 7, which waits for PUBREC"),
        (Pubrec, State.WAIT_PUBACK, "PUBREC for packet identifier 7, which waits for PUBACK"),
        (Pubcomp, State.WAIT_PUBREC, "PUBCOMP for packet identifier 7, which waits for PUBREC"),
    ],
)
def test_what_is_wrong_is_said(kind: type, state: State, text: str) -> None:
    assert str(not_expected(kind, 7, state)) == text
