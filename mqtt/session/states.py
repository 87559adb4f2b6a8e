"""The states of a message of QoS 1 or 2, and what follows from each packet in each of them.

All that decides stands in these tables: one for the side that sends the message, one for the side that receives it.
They do not know which side is the broker, nor how many messages there are. What has no place in the row of a state
cannot happen to a message in it: a packet that is not there breaks the protocol.  # [MQTT-4.13.1-1] [MQTT3-4.8.0-1]

The window follows the first table and the awaited PUBRELs the second one, for many messages in a row where they are in
the same state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Puback, Pubcomp, Pubrec

# The side that sends


class State(IntEnum):
    """The acknowledgement that a message waits for."""

    #: None: it is over, or this side has not sent it.
    CLOSED = 0
    WAIT_PUBACK = 1
    WAIT_PUBREC = 2
    WAIT_PUBCOMP = 3


class Event(IntEnum):
    """What happens to it: an acknowledgement, which may say that the receiver refuses the message, ..."""

    PUBACK = 1
    PUBACK_REFUSES = 2
    PUBREC = 3
    PUBREC_REFUSES = 4
    PUBCOMP = 5
    #: ... a new connection, or time that has passed without an answer of a 3.x client, ...
    AGAIN = 6
    #: ... or that it may not be sent again: the receiver takes it no more, or has lost its right to it.
    WITHDRAWN = 7


class Effect(IntEnum):
    """What follows for the sender."""

    NOTHING = 0
    #: The receiver has it, and that is all.
    TAKEN = 1
    #: The receiver has it, and gets a PUBREL.
    RELEASED = 2
    #: The receiver has released it, too.
    COMPLETED = 3
    #: The receiver does not want it.
    REFUSED = 4
    #: A PUBREL is sent, one that says that there is no such message, or PUBLISH once more.
    PUBREL = 5
    PUBREL_NOT_FOUND = 6
    PUBLISH = 7


#: The success and the failure that each acknowledgement can be. A PUBCOMP ends the exchange, whatever it says.
ANSWERS: Final[dict[type, tuple[Event, Event]]] = {
    Puback: (Event.PUBACK, Event.PUBACK_REFUSES),
    Pubrec: (Event.PUBREC, Event.PUBREC_REFUSES),
    Pubcomp: (Event.PUBCOMP, Event.PUBCOMP),
}

#: The state in which a message is sent, by its QoS.
OPENED: Final = {1: State.WAIT_PUBACK, 2: State.WAIT_PUBREC}

#: By state and event: the next state, and the effect.
SENDING: Final[dict[State, dict[Event, tuple[State, Effect]]]] = {
    State.CLOSED: {  # late, or for what an earlier connection has left
        Event.PUBACK: (State.CLOSED, Effect.NOTHING),
        Event.PUBACK_REFUSES: (State.CLOSED, Effect.NOTHING),
        Event.PUBREC: (State.CLOSED, Effect.PUBREL_NOT_FOUND),
        Event.PUBREC_REFUSES: (State.CLOSED, Effect.NOTHING),
        Event.PUBCOMP: (State.CLOSED, Effect.NOTHING),
    },
    State.WAIT_PUBACK: {
        Event.PUBACK: (State.CLOSED, Effect.TAKEN),  # [MQTT-4.3.2-3]
        Event.PUBACK_REFUSES: (State.CLOSED, Effect.REFUSED),
        Event.AGAIN: (State.WAIT_PUBACK, Effect.PUBLISH),  # [MQTT-4.4.0-1]
        Event.WITHDRAWN: (State.CLOSED, Effect.NOTHING),
    },
    State.WAIT_PUBREC: {
        Event.PUBREC: (State.WAIT_PUBCOMP, Effect.RELEASED),  # [MQTT-4.3.3-3] [MQTT-4.3.3-4]
        Event.PUBREC_REFUSES: (State.CLOSED, Effect.REFUSED),
        Event.AGAIN: (State.WAIT_PUBREC, Effect.PUBLISH),  # [MQTT-4.4.0-1]
        # the receiver may have it, and would take a later message with its packet id for it
        Event.WITHDRAWN: (State.WAIT_PUBCOMP, Effect.PUBREL),
    },
    State.WAIT_PUBCOMP: {
        Event.PUBREC: (State.WAIT_PUBCOMP, Effect.PUBREL),
        Event.PUBCOMP: (State.CLOSED, Effect.COMPLETED),  # [MQTT-4.3.3-5]
        Event.AGAIN: (State.WAIT_PUBCOMP, Effect.PUBREL),  # [MQTT-4.3.3-6]
    },
}

#: The same, as a window looks it up: by the kind of acknowledgement, whether it refuses the message, and the state.
ANSWERED: Final = {
    kind: [{state: row[event] for state, row in SENDING.items() if event in row} for event in events]
    for kind, events in ANSWERS.items()
}


def not_expected(kind: type, packet_id: int, state: State) -> ProtocolError:
    """Of an acknowledgement that the message does not wait for."""
    waited_for = state.name.removeprefix("WAIT_")
    return ProtocolError(f"{kind.__name__.upper()} for packet identifier {packet_id}, which waits for {waited_for}")


# The side that receives


class ReceiptState(IntEnum):
    """How far this side is with a message of QoS 2."""

    #: There is none with this packet id: what comes is a new one.
    NEW = 0
    #: It was handed over, and PUBREC is owed on this connection: it waits until the message is accepted.
    OWED = 1
    #: The same, on an earlier connection: nothing is owed on this one.
    LEFT = 2
    #: PUBREC has left, or may leave.
    ACCEPTED = 3


class ReceiptEvent(IntEnum):
    PUBLISH = 1
    #: Who has got it is done with it, ...
    ACCEPT = 2
    #: ... or will not have it, and the sender can be told so.
    REFUSE = 3
    PUBREL = 4
    #: The connection is over.
    LOSS = 5


class ReceiptEffect(IntEnum):
    """What follows for the receiver."""

    NOTHING = 0
    HAND_OVER = 1
    #: PUBREC is owed from now on.
    OWE = 2
    PUBREC = 3
    #: One that says why the message is refused.
    PUBREC_REFUSES = 4
    PUBCOMP = 5
    #: One that says that there is no such message.
    PUBCOMP_NOT_FOUND = 6


_NEW, _OWED, _LEFT, _ACCEPTED = ReceiptState

#: By state and event: the next state, and the effect. A message of QoS 1 has no state: each that comes is a new one.
#: # [MQTT-4.3.2-5]
RECEIVING: Final[dict[ReceiptState, dict[ReceiptEvent, tuple[ReceiptState, ReceiptEffect]]]] = {
    _NEW: {
        ReceiptEvent.PUBLISH: (_OWED, ReceiptEffect.HAND_OVER),  # [MQTT-4.3.3-12]
        ReceiptEvent.PUBREL: (_NEW, ReceiptEffect.PUBCOMP_NOT_FOUND),
    },
    _OWED: {
        ReceiptEvent.PUBLISH: (_OWED, ReceiptEffect.NOTHING),  # [MQTT-4.3.3-10]
        ReceiptEvent.ACCEPT: (_ACCEPTED, ReceiptEffect.PUBREC),  # [MQTT-4.3.3-8]
        ReceiptEvent.REFUSE: (_NEW, ReceiptEffect.PUBREC_REFUSES),  # [MQTT-4.3.3-9]
        ReceiptEvent.PUBREL: (_NEW, ReceiptEffect.PUBCOMP),
        ReceiptEvent.LOSS: (_LEFT, ReceiptEffect.NOTHING),
    },
    _LEFT: {
        ReceiptEvent.PUBLISH: (_OWED, ReceiptEffect.OWE),  # [MQTT-4.3.3-10]
        ReceiptEvent.ACCEPT: (_ACCEPTED, ReceiptEffect.NOTHING),
        ReceiptEvent.PUBREL: (_NEW, ReceiptEffect.PUBCOMP),
        ReceiptEvent.LOSS: (_LEFT, ReceiptEffect.NOTHING),
    },
    _ACCEPTED: {
        ReceiptEvent.PUBLISH: (_ACCEPTED, ReceiptEffect.PUBREC),  # [MQTT-4.3.3-10]
        ReceiptEvent.PUBREL: (_NEW, ReceiptEffect.PUBCOMP),  # [MQTT-4.3.3-11]
        ReceiptEvent.LOSS: (_ACCEPTED, ReceiptEffect.NOTHING),
    },
}
