"""The outgoing window: QoS 1 and 2 messages that were sent and are not complete.

One dict in the order of sending. A PUBREC moves its entry to the end, so that the PUBRELs stand in the order of
their PUBRECs, and what still waits for PUBACK or PUBREC in the order in which it was first sent. Both are the orders
in which a resumed session must send again.  # [MQTT-4.6.0-1] [MQTT-4.6.0-4]

The messages of a publication that were sent together share one entry, which is found by each of their packet ids.
"""

from __future__ import annotations

from itertools import groupby, islice
from sys import maxsize
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from trunkline.mqtt.packets import Acknowledgement, Pubrec
from trunkline.mqtt.reasons import FAILURE
from trunkline.mqtt.session.states import ANSWERED, OPENED, SENDING, Effect, Event, State, not_expected
from trunkline.mqtt.weight import HEAVY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import Acknowledgements
    from trunkline.mqtt.publication import Publication

T = TypeVar("T")

MAX_PACKET_ID: Final = 65_535

#: How a message comes to a subscriber: sent when it was routed, after it had waited, for a new subscription because it
#: was retained, or once more because no acknowledgement came.
Delivery: TypeAlias = Literal["live", "waited", "retained", "resent"]

#: What is sent next of what waits: with its target, and its packet id if it was sent before; else 0.
Taken: TypeAlias = tuple["Publication", T, Delivery, int]


_CLOSED: Final = State.CLOSED
_WAIT_PUBACK: Final = State.WAIT_PUBACK
_WAIT_PUBCOMP: Final = State.WAIT_PUBCOMP
_NONE: Final = range(0)


class Entry(Generic[T]):
    """A publication in flight, with consecutive packet ids. Whenever it is sent from the window it is a duplicate: it
    was sent before."""

    __slots__ = ("delivery", "first_id", "publication", "sent_at", "state", "target")

    def __init__(
        self, publication: Publication, first_id: int, target: T, state: State, sent_at: float, delivery: Delivery
    ) -> None:
        self.publication = publication
        self.first_id = first_id
        self.target = target
        self.state = state
        #: When PUBLISH, or PUBREL in the last state, was last sent.
        self.sent_at = sent_at
        self.delivery: Delivery = delivery

    def message(self, packet_id: int) -> Message:
        """The message with this packet id."""
        return self.publication.messages[packet_id - self.first_id]

    def numbers(self, packet_ids: Iterable[int]) -> list[int]:
        """Which of the messages these are."""
        first = self.first_id
        return [packet_id - first for packet_id in packet_ids]


#: Messages that were sent together, by their packet ids.
Together: TypeAlias = tuple[Entry[T], "Sequence[int]"]

#: What follows for messages in a row, by their packet ids; and these messages, as they were, if their state is another
#: now.
Step: TypeAlias = tuple[Effect, "Sequence[int]", "Sequence[Together[T]]"]

#: An entry as plain values: first packet id, state, publication, target.
Exported: TypeAlias = tuple[int, int, "Publication", T]


def deliveries(messages: Iterable[Together[T]]) -> Iterator[tuple[Publication, Delivery]]:
    """Those in a row that were sent together still are."""
    for entry, packet_ids in messages:
        numbers = entry.numbers(packet_ids)
        first, stop = numbers[0], numbers[0] + len(numbers)
        if numbers == list(range(first, stop)):
            yield entry.publication.part(first, stop), entry.delivery
        else:
            for number in numbers:
                yield entry.publication.messages[number], entry.delivery


class Inflight(Generic[T]):
    """The window of one session."""

    __slots__ = ("_entries", "_heavy", "_max_bytes", "_max_id", "byte_size", "capacity", "last_id", "limit", "unsent")

    def __init__(self, limit: int, max_bytes: int = 0, max_id: int = MAX_PACKET_ID) -> None:
        """`max_bytes` limits the weight of heavy messages; the last one admitted may exceed it. 0 means no limit.
        Packet ids above `max_id` are left to other packets."""
        #: Messages that may be open at once: the configured window, or the client's receive maximum if that is less.
        self.capacity = limit
        #: The same, or 0 while the bytes are full.
        self.limit = limit
        self.limit_bytes(max_bytes)
        self._max_id = max_id
        #: The weight of each heavy message by its packet id, and of all together.
        self._heavy: dict[int, int] = {}
        self.byte_size = 0
        self._entries: dict[int, Entry[T]] = {}
        # Keeps counting and is not reset by acknowledgements: a late duplicate of one must not match a newer message.
        self.last_id = 0
        #: Packet ids that a resumed session has not sent again yet, in order, because the window is too small for all.
        self.unsent: dict[int, None] = {}

    def limit_messages(self, limit: int) -> None:
        """The configured window, or the client's receive maximum if that is less."""
        self.capacity = limit
        self.limit = limit if self.byte_size < self._max_bytes else 0

    def limit_bytes(self, max_bytes: int) -> None:
        """The limit from the next message, acknowledgement or `resume` on."""
        self._max_bytes = max_bytes or maxsize

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def room(self) -> int:
        """How many more messages may be sent; never negative."""
        return max(0, self.limit - len(self._entries))

    @property
    def top(self) -> int:
        """The highest packet id in use, or the last that was, if that is higher."""
        return max(self.last_id, *self._entries, 0)

    def insert(self, publication: Publication, target: T, qos: int, now: float, delivery: Delivery = "live") -> range:
        """Open an entry for a publication sent with `qos` 1 or 2. Returns the packet ids of its first messages, as many
        as there is room for and consecutive packet ids are free."""
        entries = self._entries
        count = publication.count
        if len(entries) + count > self.limit:
            count = self.limit - len(entries)
            if count <= 0:
                return _NONE
            publication = publication.part(0, count)
        first = self.last_id + 1
        stop = first + count
        packet_ids = range(first, stop)
        is_heavy = publication.weight >= HEAVY * count
        is_taken = first in entries if count == 1 else not entries.keys().isdisjoint(packet_ids)
        if is_taken or is_heavy or stop > self._max_id:
            packet_ids = self._free_ids(1 if is_heavy else count)
            publication = publication.part(0, len(packet_ids))
            first, stop = packet_ids.start, packet_ids.stop
            if is_heavy:  # each is weighed on its own
                self._weigh(first, publication)
        entry = Entry(publication, first, target, OPENED[qos], now, delivery)
        if count == 1:
            entries[first] = entry
        else:
            entries.update(dict.fromkeys(packet_ids, entry))
        self.last_id = stop - 1
        return packet_ids

    def _free_ids(self, count: int) -> range:
        """The next consecutive free packet ids, `count` at most.  # [MQTT-2.2.1-4]"""
        entries, max_id = self._entries, self._max_id
        first = self.last_id % max_id + 1
        while first in entries:
            first = first % max_id + 1
        last = first
        while last < first + count - 1 and last < max_id and last + 1 not in entries:
            last += 1
        return range(first, last + 1)

    def _weigh(self, packet_id: int, message: Publication) -> None:
        size = message.weight
        if size >= HEAVY:
            self._heavy[packet_id] = size
            self.byte_size += size
            if self.byte_size >= self._max_bytes:
                self.limit = 0

    def _lighten(self, packet_ids: Iterable[int]) -> None:
        """These messages are complete."""
        for packet_id in packet_ids:
            self.byte_size -= self._heavy.pop(packet_id, 0)
        if self.byte_size < self._max_bytes:
            self.limit = self.capacity

    def state(self, packet_id: int) -> State:
        """Of the message with this packet id."""
        entry = self._entries.get(packet_id)
        return _CLOSED if entry is None else entry.state

    def answered(
        self, packet: Acknowledgement | Acknowledgements, now: float, keeps_payload: object = False
    ) -> Iterable[Step[T]]:
        """PUBACK, PUBREC or PUBCOMP came. What follows is complete when all of it has been looked at. Large payloads
        are dropped at PUBREC, unless a hook needs them once more.

        Raises:
            ProtocolError: a message waits for an acknowledgement of another kind. What came before it counts.
        """
        if isinstance(packet, Acknowledgement):
            packet_ids: Sequence[int] = (packet.packet_id,)
            entry = self._entries.get(packet.packet_id)
            state = _CLOSED if entry is None else entry.state
        else:
            packet_ids = packet.packet_ids
            states: set[State] = set()
            for entry in set(map(self._entries.get, packet_ids)):
                states.add(_CLOSED if entry is None else entry.state)
            if len(states) != 1 or len(set(packet_ids)) != packet.count:
                return self._answered_singly(packet, now, keeps_payload)
            (state,) = states
        try:
            after, effect = ANSWERED[packet.kind][packet.reason >= FAILURE][state]
        except KeyError:
            raise not_expected(packet.kind, packet_ids[0], state) from None
        if after is state:
            return ((effect, packet_ids, ()),)
        if after is _CLOSED:
            return ((effect, packet_ids, self.end(packet_ids)),)
        return ((effect, packet_ids, self.release(packet_ids, now, keeps_payload)),)

    def _answered_singly(self, row: Acknowledgements, now: float, keeps_payload: object) -> Iterator[Step[T]]:
        """One may be late, or repeated, or of the wrong kind."""
        packet_ids: Iterable[int] = row.packet_ids
        if row.kind is not Pubrec:  # which alone is answered although its message is not here
            packet_ids = filter(self._entries.__contains__, packet_ids)
        for packet_id in packet_ids:
            yield from self.answered(row.kind(packet_id, row.reason), now, keeps_payload)

    def withdraw(self, packet_id: int, now: float) -> Effect:
        """A message that was sent before may not be sent again."""
        after, effect = SENDING[self.state(packet_id)][Event.WITHDRAWN]
        if after is _CLOSED:
            self.end((packet_id,))
        else:
            self.release((packet_id,), now)
        return effect

    @property
    def all_targets(self) -> list[T]:
        """The targets of all open messages, in order, each once."""
        return list(dict.fromkeys(entry.target for entry in self._entries.values()))

    def end(self, packet_ids: Sequence[int]) -> Sequence[Together[T]]:
        """The exchanges of these packet ids, which are open, are over."""
        ended: Sequence[Together[T]]
        if len(packet_ids) == 1:
            ended = ((self._entries.pop(packet_ids[0]), packet_ids),)
        else:
            ended = [(entry, list(group)) for entry, group in groupby(packet_ids, self._entries.pop)]
        if self.unsent:
            self._forget_unsent(packet_ids)
        if self._heavy:
            self._lighten(packet_ids)
        return ended

    def _forget_unsent(self, packet_ids: Iterable[int]) -> None:
        for packet_id in packet_ids:
            self.unsent.pop(packet_id, None)

    def release(self, packet_ids: Sequence[int], now: float, keeps_payload: object = False) -> Sequence[Together[T]]:
        """Go on to PUBREL in the exchanges of these packet ids, which wait for PUBREC."""
        entries = self._entries
        taken: list[Together[T]] = []
        for entry, group in groupby(packet_ids, entries.pop):
            together = list(group)
            publication = entry.publication if keeps_payload else entry.publication.without_large_payload()
            released = Entry(publication, entry.first_id, entry.target, _WAIT_PUBCOMP, now, entry.delivery)
            entries.update(dict.fromkeys(together, released))
            taken.append((entry, together))
        if self.unsent:
            self._forget_unsent(packet_ids)
        if self._heavy and not keeps_payload:
            self._lighten(packet_ids)
        return taken

    def remove_oldest(self, limit: int) -> list[tuple[Message, T, State]]:
        """The `limit` oldest messages, whatever they wait for."""
        # together: to look for the first of a dict again and again passes all that were taken from it before
        oldest = list(islice(self._entries.items(), limit))
        self.end([packet_id for packet_id, _ in oldest])
        return [(entry.message(packet_id), entry.target, entry.state) for packet_id, entry in oldest]

    def resume(self, limit: int) -> None:
        """A client with room for `limit` messages came back: all open messages are sent again."""
        self.limit_messages(limit)
        entries = self._entries.items()
        # PUBRELs first: they are older than what has no PUBREC yet, and they free the client's memory.
        ordered = [packet_id for packet_id, entry in entries if entry.state is _WAIT_PUBCOMP]
        ordered += [packet_id for packet_id, entry in entries if entry.state is not _WAIT_PUBCOMP]
        self.unsent = dict.fromkeys(ordered)

    @property
    def entry_again(self) -> Entry[T] | None:
        """The entry whose packet `next_again` gives next, when there is room for it."""
        for packet_id in self.unsent:
            return self._entries[packet_id]
        return None

    def next_again(self, now: float) -> tuple[Effect, int, Entry[T]] | None:
        """What is sent again next, if it may be: PUBREL, or PUBLISH with DUP set.

        When the window became smaller than what is open, each acknowledgement makes room for more: ask again after
        it. New messages find no room before all is sent.
        """
        if not self.unsent:
            return None
        packet_id = next(iter(self.unsent))
        entry = self._entries[packet_id]
        _, effect = SENDING[entry.state][Event.AGAIN]
        # [MQTT-3.3.4-9] the receive maximum limits PUBLISH; a PUBREL takes no additional room
        if effect is Effect.PUBLISH and len(self._entries) - len(self.unsent) >= self.capacity:
            return None
        del self.unsent[packet_id]
        entry.sent_at = now
        entry.delivery = "resent"
        return effect, packet_id, entry

    @property
    def waits(self) -> bool:
        """Is anything left to be sent again?"""
        return bool(self.unsent)

    def take(self, room: int, now: float) -> Sequence[Taken[T]]:
        """The same as plain values, for a sender that asks all its sources for what is next. The `room` is what new
        messages have: these are in the window already."""
        del room
        again = self.next_again(now)
        if again is None:
            return ()
        _, packet_id, entry = again
        return ((entry.message(packet_id), entry.target, "resent", packet_id),)

    def repeat(self, now: float, interval: float) -> None:
        """Packets that were sent `interval` ago or longer are sent again. Only for 3.x clients: 5.0 sends again only on
        a new connection.  # [MQTT-4.4.0-1]"""
        before = now - interval
        overdue = [packet_id for packet_id, entry in self._entries.items() if entry.sent_at <= before]
        waiting = self.unsent
        self.unsent = dict.fromkeys(packet_id for packet_id in overdue if packet_id not in waiting) | waiting

    @property
    def has_qos2(self) -> bool:
        """Is an exchange of QoS 2 open?"""
        return any(entry.state is not _WAIT_PUBACK for entry in self._entries.values())

    def export(self) -> tuple[int, list[Exported[T]]]:
        """The packet id assigned last, and all messages in order, for another node."""
        return self.last_id, [
            (packet_id, int(entry.state), entry.message(packet_id), entry.target)
            for packet_id, entry in self._entries.items()
        ]

    def restore(self, last_id: int, entries: Iterable[Exported[T]], now: float) -> None:
        """Fill an empty window with the result of `export`."""
        self.last_id = last_id
        for first, state, publication, target in entries:
            entry = Entry(publication, first, target, State(state), now, "resent")
            self._entries.update(dict.fromkeys(range(first, first + publication.count), entry))
            if publication.count == 1:
                self._weigh(first, publication)
