"""The outgoing window: QoS 1 and 2 messages that were sent and are not done.

One dict in the order of sending. A PUBREC moves its entry to the end, so that the PUBRELs stand in the order of
their PUBRECs, and what still waits for PUBACK or PUBREC in the order in which it was first sent. Both are the orders
in which a resumed session must send again.  # [MQTT-4.6.0-1] [MQTT-4.6.0-4]
"""

from __future__ import annotations

from enum import Enum, IntEnum
from sys import maxsize
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.weight import weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.mqtt.batch import PublishBatch

T = TypeVar("T")

MAX_PACKET_ID: Final = 65_535

#: Bytes from which on a message counts in the window's bytes. Lighter ones are bounded by their number, and pay nothing.
HEAVY: Final = 4096

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
    #: A PUBREC came before for this packet id. PUBREL answers it again.
    REPEATED = "repeated"


_WAIT_PUBACK: Final = State.WAIT_PUBACK
_WAIT_PUBREC: Final = State.WAIT_PUBREC
_WAIT_PUBCOMP: Final = State.WAIT_PUBCOMP
_NOT_FOUND: Final = Miss.NOT_FOUND
#: Which acknowledgement a message in each state waits for.
_WAITS_FOR: Final = {_WAIT_PUBACK: "PUBACK", _WAIT_PUBREC: "PUBREC", _WAIT_PUBCOMP: "PUBCOMP"}


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

    def of(self, packet_id: int) -> Entry[T]:
        """The entry of this packet id alone."""
        return self


class Shared(Generic[T]):
    """One entry for all messages of a burst that were sent together, with packet ids in a row."""

    __slots__ = ("_burst", "_first_id", "sent_at", "state", "target")

    def __init__(self, burst: PublishBatch, first_id: int, target: T, state: State, sent_at: float) -> None:
        self._burst = burst
        self._first_id = first_id
        self.target = target
        self.state = state
        self.sent_at = sent_at

    def released(self, now: float) -> Shared[T]:
        """As it is after PUBREC."""
        return Shared(self._burst, self._first_id, self.target, _WAIT_PUBCOMP, now)

    def part(self, packet_ids: Sequence[int]) -> PublishBatch:
        """The messages of these packet ids, which are in a row."""
        return self._burst.part(packet_ids[0] - self._first_id, packet_ids[-1] + 1 - self._first_id)

    def of(self, packet_id: int) -> Entry[T]:
        return Entry(self._burst.messages[packet_id - self._first_id], self.target, self.state, self.sent_at)


#: An entry as plain values: packet id, state, message, target.
Exported: TypeAlias = tuple[int, int, Message, T]


class Inflight(Generic[T]):
    """The window of one session.

    An acknowledgement of a packet id that is not open finds nothing: it may be late. One of another kind than the message
    waits for is a protocol error, and raises.  # [MQTT-4.13.1-1] [MQTT3-4.8.0-1]
    """

    __slots__ = ("_entries", "_heavy", "_last_id", "_limit", "_max_bytes", "_shares", "_unsent", "byte_size", "limit")

    def __init__(self, limit: int, max_bytes: int = 0) -> None:
        """`max_bytes` bounds what heavy messages weigh, but for the last one that is let in; 0 is no bound."""
        #: Entries that may be open at once: the configured window, or the client's receive maximum if that is less.
        self._limit = limit
        #: The same, or 0 while the bytes are full.
        self.limit = limit
        self._max_bytes = max_bytes or maxsize
        #: What each heavy message weighs, by its packet id, and all together.
        self._heavy: dict[int, int] = {}
        self.byte_size = 0
        self._entries: dict[int, Entry[T] | Shared[T]] = {}
        #: Is a `Shared` among the entries?
        self._shares = False
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
        if len(message.payload) + len(message.topic) >= HEAVY or message.properties:
            self._weigh(packet_id, message)
        return packet_id

    def _weigh(self, packet_id: int, message: Message) -> None:
        size = weight(message)
        if size >= HEAVY:
            self._heavy[packet_id] = size
            self.byte_size += size
            if self.byte_size >= self._max_bytes:
                self.limit = 0

    def _lighten(self, packet_id: int) -> None:
        """It is done."""
        self.byte_size -= self._heavy.pop(packet_id, 0)
        if self.byte_size < self._max_bytes:
            self.limit = self._limit

    def insert_burst(self, burst: PublishBatch, target: T, qos: int, now: float) -> range:
        """Open entries for all messages of a burst, sent with `qos` 1 or 2. Returns their packet ids, which are in a
        row; none if there are no such ids, or if each is to be weighed. There must be room for it."""
        entries, count = self._entries, len(burst)
        if burst.weight >= HEAVY * count:
            return range(0)
        first = self._last_id + 1
        if first + count - 1 > MAX_PACKET_ID:
            first = 1
        packet_ids = range(first, first + count)
        if not entries.keys().isdisjoint(packet_ids):  # [MQTT-2.2.1-4]
            return range(0)
        shared = Shared(burst, first, target, _WAIT_PUBACK if qos == 1 else _WAIT_PUBREC, now)
        entries.update(dict.fromkeys(packet_ids, shared))
        self._shares = True
        self._last_id = packet_ids[-1]
        return packet_ids

    def _single(self) -> dict[int, Entry[T]]:
        """The entries, from now on one for each message."""
        entries = self._entries
        if self._shares:
            entries.update([(packet_id, entry.of(packet_id)) for packet_id, entry in entries.items()])
            self._shares = False
        return cast("dict[int, Entry[T]]", entries)

    def waiting(self, packet_ids: Iterable[int], state: State) -> list[Message | PublishBatch]:
        """The messages that an acknowledgement of each of these packet ids is about, up to the first one that waits for
        another, in bursts where they are in a row and were sent so."""
        entries = self._entries
        found: list[Message | PublishBatch] = []
        share: Shared[T] | None = None
        row: list[int] = []

        def end_row() -> None:
            if share is not None:
                found.append(share.part(row))

        for packet_id in dict.fromkeys(packet_ids):
            entry = entries.get(packet_id)
            if entry is None:
                continue
            if entry.state is not state:
                break
            if entry is share and packet_id == row[-1] + 1:
                row.append(packet_id)
                continue
            end_row()
            if type(entry) is Shared:
                share, row = entry, [packet_id]
            else:
                share = None
                found.append(entry.of(packet_id).message)
        end_row()
        return found

    def puback(self, packet_id: int) -> Entry[T] | Shared[T] | Miss:
        """End a QoS 1 exchange, whatever the reason code of the PUBACK."""
        return self._end(packet_id, _WAIT_PUBACK)

    def pubacks(self, packet_ids: Iterable[int]) -> None:
        """End many QoS 1 exchanges."""
        self._end_all(packet_ids, _WAIT_PUBACK)

    def pubcomps(self, packet_ids: Iterable[int]) -> None:
        """End many QoS 2 exchanges."""
        self._end_all(packet_ids, _WAIT_PUBCOMP)

    def _end_all(self, packet_ids: Iterable[int], state: State) -> None:
        entries, unsent, heavy = self._entries, self._unsent, self._heavy
        for packet_id in packet_ids:
            entry = entries.get(packet_id)
            if entry is None:
                continue
            if entry.state is not state:
                raise _wrong_kind(packet_id, state, entry.state)
            del entries[packet_id]
            if unsent:
                unsent.pop(packet_id, None)
            if heavy:
                self._lighten(packet_id)

    def pubrecs(self, packet_ids: Sequence[int], now: float) -> bool:
        """Go on to PUBREL in many QoS 2 exchanges at once; False, and nothing happens, unless all are messages of bursts
        that wait for it."""
        entries = self._entries
        shares: list[Shared[T]] = []
        for packet_id in packet_ids:
            entry = entries.get(packet_id)
            if type(entry) is not Shared or entry.state is not _WAIT_PUBREC:
                return False
            shares.append(entry)
        if self._unsent or len(set(packet_ids)) < len(packet_ids):
            return False
        before = after = shares[0]
        for packet_id, share in zip(packet_ids, shares, strict=True):
            if share is not before or after is before:
                before, after = share, share.released(now)
            del entries[packet_id]
            entries[packet_id] = after
        return True

    def pubrec(self, packet_id: int, now: float, keeps_payload: bool = False) -> Entry[T] | Miss:
        """Go on to PUBREL in a QoS 2 exchange. Returns the entry as it was. A large payload is let go, unless somebody
        wants to see it once more."""
        found = self._entries.get(packet_id)
        if found is None:
            return _NOT_FOUND
        entry = found.of(packet_id)
        if entry.state is _WAIT_PUBCOMP:
            return Miss.REPEATED
        if entry.state is not _WAIT_PUBREC:
            raise _wrong_kind(packet_id, _WAIT_PUBREC, entry.state)
        if self._unsent:
            self._unsent.pop(packet_id, None)
        message = entry.message
        if (len(message.payload) >= RELEASED_SIZE or packet_id in self._heavy) and not keeps_payload:
            message = _without_content(message)
            self._lighten(packet_id)
        del self._entries[packet_id]
        self._entries[packet_id] = Entry(message, entry.target, _WAIT_PUBCOMP, now)
        return entry

    def refuse(self, packet_id: int) -> Entry[T] | Shared[T] | Miss:
        """End a QoS 2 exchange by a PUBREC with an error: no PUBREL follows.  # [MQTT-4.3.3-4]"""
        return self._end(packet_id, _WAIT_PUBREC)

    def pubcomp(self, packet_id: int) -> Entry[T] | Shared[T] | Miss:
        """End a QoS 2 exchange."""
        return self._end(packet_id, _WAIT_PUBCOMP)

    def forget(self, packet_id: int) -> None:
        """Give up an exchange that can't be had with this client, such as a message larger than it takes."""
        self._entries.pop(packet_id, None)
        self._unsent.pop(packet_id, None)
        self._lighten(packet_id)

    def take(self) -> Entry[T] | None:
        """Take the oldest entry out, whatever it waits for."""
        for packet_id, entry in self._entries.items():
            self.forget(packet_id)
            return entry.of(packet_id)
        return None

    def _end(self, packet_id: int, state: State) -> Entry[T] | Shared[T] | Miss:
        entry = self._entries.get(packet_id)
        if entry is None:
            return _NOT_FOUND
        if entry.state is not state:
            raise _wrong_kind(packet_id, state, entry.state)
        del self._entries[packet_id]
        if self._unsent:
            self._unsent.pop(packet_id, None)
        if self._heavy:
            self._lighten(packet_id)
        return entry

    def resume(self, limit: int) -> None:
        """A client with room for `limit` messages came back: all that is open is to be sent again."""
        self._limit = limit
        self.limit = limit if self.byte_size < self._max_bytes else 0
        entries = self._single().items()
        # PUBRELs first: they are older than what has no PUBREC yet, and they free the client's memory.
        ordered = [item for item in entries if item[1].state is _WAIT_PUBCOMP]
        ordered += [item for item in entries if item[1].state is not _WAIT_PUBCOMP]
        self._unsent = dict(ordered)

    def next_again(self, now: float) -> tuple[int, Entry[T]] | None:
        """What may be sent again next, in order: PUBREL, or PUBLISH with DUP set, by the entry's state.

        When the window became smaller than what is open, each acknowledgement makes room for more: ask again after
        it. New messages find no room before all is sent.
        """
        if not self._unsent:
            return None
        packet_id, entry = next(iter(self._unsent.items()))
        # [MQTT-3.3.4-9] the receive maximum bounds PUBLISH; a PUBREL takes no room that it did not have
        if entry.state is not _WAIT_PUBCOMP and len(self._entries) - len(self._unsent) >= self._limit:
            return None
        del self._unsent[packet_id]
        entry.sent_at = now
        return packet_id, entry

    def repeat(self, now: float, interval: float) -> None:
        """What was sent `interval` ago or longer is to be sent again. Only for 3.x clients: 5.0 sends again on a new
        connection alone.  # [MQTT-4.4.0-1]"""
        before = now - interval
        overdue = {
            packet_id: entry
            for packet_id, entry in self._single().items()
            if entry.sent_at <= before and packet_id not in self._unsent
        }
        self._unsent = overdue | self._unsent

    def items(self) -> list[tuple[int, Entry[T]]]:
        """All entries, in order."""
        return [(packet_id, entry.of(packet_id)) for packet_id, entry in self._entries.items()]

    def export(self) -> tuple[int, list[Exported[T]]]:
        """The last packet id given, and the entries in order, for a store or another node."""
        return self._last_id, [(packet_id, int(e.state), e.message, e.target) for packet_id, e in self.items()]

    def restore(self, last_id: int, entries: Iterable[Exported[T]], now: float) -> None:
        """Fill an empty window with what `export` gave."""
        self._last_id = last_id
        for packet_id, state, message, target in entries:
            self._entries[packet_id] = Entry(message, target, State(state), now)
            self._weigh(packet_id, message)


def _wrong_kind(packet_id: int, came: State, waits_for: State) -> ProtocolError:
    return ProtocolError(
        f"{_WAITS_FOR[came]} for packet identifier {packet_id}, which waits for {_WAITS_FOR[waits_for]}"
    )


def _without_content(message: Message) -> Message:
    left = message.bare()
    left.payload, left.properties = b"", NO_PROPERTIES
    return left
