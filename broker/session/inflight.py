"""The outgoing window: QoS 1 and 2 messages that were sent and are not done.

One dict in the order of sending. A PUBREC moves its entry to the end, so that the PUBRELs stand in the order of
their PUBRECs, and what still waits for PUBACK or PUBREC in the order in which it was first sent. Both are the orders
in which a resumed session must send again.  # [MQTT-4.6.0-1] [MQTT-4.6.0-4]
"""

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import Final, Generic, TypeAlias, TypeVar

from trunkline.mqtt.message import Message

T = TypeVar("T")

MAX_PACKET_ID: Final = 65_535

#: A payload from this size on is let go when its PUBREC comes: only PUBREL is left to send. A smaller one is kept,
#: because a message without it is a new object.
RELEASED_SIZE: Final = 1024


class State(IntEnum):
    """What an entry waits for."""

    WAIT_PUBACK = 1
    WAIT_PUBREC = 2
    WAIT_PUBCOMP = 3


class Miss(Enum):
    """Why an acknowledgement found nothing to acknowledge."""

    NOT_FOUND = "not found"
    #: The packet id is in use by an exchange at another point: the client broke the protocol.
    WRONG_STATE = "wrong state"
    #: A PUBREC came before for this packet id. PUBREL answers it again.
    REPEATED = "repeated"


_WAIT_PUBACK: Final = State.WAIT_PUBACK
_WAIT_PUBREC: Final = State.WAIT_PUBREC
_WAIT_PUBCOMP: Final = State.WAIT_PUBCOMP
_NOT_FOUND: Final = Miss.NOT_FOUND
_WRONG_STATE: Final = Miss.WRONG_STATE


class Entry(Generic[T]):
    """One message on its way. It counts as a duplicate whenever it is sent from the window: it was sent before."""

    __slots__ = ("message", "sent_at", "state", "target")

    def __init__(self, message: Message, target: T, state: State, sent_at: float) -> None:
        self.message = message
        self.target = target
        self.state = state
        #: When PUBLISH, or PUBREL in the last state, was last sent.
        self.sent_at = sent_at

    @property
    def qos(self) -> int:
        return 1 if self.state is _WAIT_PUBACK else 2


#: An entry as plain values: packet id, state, message, target.
Exported: TypeAlias = tuple[int, int, Message, T]


class Inflight(Generic[T]):
    """The window of one session."""

    __slots__ = ("_entries", "_last_id", "_unsent", "limit")

    def __init__(self, limit: int) -> None:
        #: Entries that may be open at once: the configured window, or the client's receive maximum if that is less.
        self.limit = limit
        self._entries: dict[int, Entry[T]] = {}
        # Runs on and is not set back by acknowledgements: a late duplicate of one must not hit a newer message.
        self._last_id = 0
        #: Entries that a resumed session has not sent again yet, because the window is too small for all.
        self._unsent: dict[int, Entry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def room(self) -> int:
        """How many more messages may be sent; never negative."""
        return max(0, self.limit - len(self._entries))

    def insert(self, message: Message, target: T, qos: int, now: float) -> int:
        """Open an entry for a message sent with `qos` 1 or 2. Returns its packet id, or 0 when the window is full."""
        entries = self._entries
        if len(entries) >= self.limit:
            return 0
        packet_id = self._last_id + 1
        if packet_id > MAX_PACKET_ID:
            packet_id = 1
        while packet_id in entries:  # [MQTT-2.2.1-4]
            packet_id = packet_id % MAX_PACKET_ID + 1
        self._last_id = packet_id
        entries[packet_id] = Entry(message, target, _WAIT_PUBACK if qos == 1 else _WAIT_PUBREC, now)
        return packet_id

    def puback(self, packet_id: int) -> Entry[T] | Miss:
        """End a QoS 1 exchange, whatever the reason code of the PUBACK."""
        return self._end(packet_id, _WAIT_PUBACK)

    def pubrec(self, packet_id: int, now: float) -> Entry[T] | Miss:
        """Go on to PUBREL in a QoS 2 exchange. Returns the entry as it was."""
        entry = self._entries.get(packet_id)
        if entry is None:
            return _NOT_FOUND
        if entry.state is not _WAIT_PUBREC:
            return Miss.REPEATED if entry.state is _WAIT_PUBCOMP else _WRONG_STATE
        if self._unsent:
            self._unsent.pop(packet_id, None)
        message = entry.message
        if len(message.payload) >= RELEASED_SIZE:
            message = _without_payload(message)
        del self._entries[packet_id]
        self._entries[packet_id] = Entry(message, entry.target, _WAIT_PUBCOMP, now)
        return entry

    def refuse(self, packet_id: int) -> Entry[T] | Miss:
        """End a QoS 2 exchange by a PUBREC with an error: no PUBREL follows.  # [MQTT-4.3.3-4]"""
        return self._end(packet_id, _WAIT_PUBREC)

    def pubcomp(self, packet_id: int) -> Entry[T] | Miss:
        """End a QoS 2 exchange."""
        return self._end(packet_id, _WAIT_PUBCOMP)

    def forget(self, packet_id: int) -> None:
        """Give up an exchange that can't be had with this client, such as a message larger than it takes."""
        self._entries.pop(packet_id, None)
        self._unsent.pop(packet_id, None)

    def _end(self, packet_id: int, state: State) -> Entry[T] | Miss:
        entry = self._entries.get(packet_id)
        if entry is None:
            return _NOT_FOUND
        if entry.state is not state:
            return _WRONG_STATE
        del self._entries[packet_id]
        if self._unsent:
            self._unsent.pop(packet_id, None)
        return entry

    def resume(self, limit: int) -> None:
        """A client with room for `limit` messages came back: all that is open is to be sent again."""
        self.limit = limit
        entries = self._entries.items()
        # PUBRELs first: they are older than what has no PUBREC yet, and they free the client's memory.
        ordered = [item for item in entries if item[1].state is _WAIT_PUBCOMP]
        ordered += [item for item in entries if item[1].state is not _WAIT_PUBCOMP]
        self._unsent = dict(ordered)

    def redelivery(self, now: float) -> list[tuple[int, Entry[T]]]:
        """What a resumed session may send again now, in order: PUBREL, or PUBLISH with DUP set, by the entry's state.

        When the window became smaller than what is open, each acknowledgement makes room for more: ask again after
        it. New messages find no room before all is sent.
        """
        sendable: list[tuple[int, Entry[T]]] = []
        if not self._unsent:
            return sendable
        open_now = len(self._entries) - len(self._unsent)
        for packet_id, entry in self._unsent.items():
            # [MQTT-3.3.4-9] the receive maximum bounds PUBLISH; a PUBREL takes no room that it did not have
            if entry.state is not _WAIT_PUBCOMP and open_now + len(sendable) >= self.limit:
                break
            entry.sent_at = now
            sendable.append((packet_id, entry))
        for packet_id, _ in sendable:
            del self._unsent[packet_id]
        return sendable

    def due(self, now: float, interval: float) -> list[tuple[int, Entry[T]]]:
        """What was sent `interval` ago or longer, in order; it counts as sent again now. Only for 3.x clients:
        5.0 sends again on a new connection alone.  # [MQTT-4.4.0-1]"""
        before = now - interval
        overdue = [
            (packet_id, entry)
            for packet_id, entry in self._entries.items()
            if entry.sent_at <= before and packet_id not in self._unsent
        ]
        for _, entry in overdue:
            entry.sent_at = now
        return overdue

    def redispatchable(self, shared: Callable[[T], bool]) -> list[Entry[T]]:
        """What another member of a shared group may get when this session ends: QoS 1 without PUBACK. QoS 2 that
        was sent stays with its session and ends with it.  # [MQTT-4.8.2-5]"""
        return [entry for entry in self._entries.values() if entry.state is _WAIT_PUBACK and shared(entry.target)]

    def items(self) -> list[tuple[int, Entry[T]]]:
        """All entries, for listings."""
        return list(self._entries.items())

    def export(self) -> tuple[int, list[Exported[T]]]:
        """The last packet id given, and the entries in order, for a store or another node."""
        entries = self._entries.items()
        return self._last_id, [(packet_id, int(e.state), e.message, e.target) for packet_id, e in entries]

    def restore(self, last_id: int, entries: Iterable[Exported[T]], now: float) -> None:
        """Fill an empty window with what `export` gave."""
        self._last_id = last_id
        for packet_id, state, message, target in entries:
            self._entries[packet_id] = Entry(message, target, State(state), now)


def _without_payload(message: Message) -> Message:
    return Message(
        message.topic,
        b"",
        message.qos,
        message.retain,
        message.properties,
        message.publisher,
        message.username,
        message.guid,
        message.timestamp,
        message.expires_at,
    )
