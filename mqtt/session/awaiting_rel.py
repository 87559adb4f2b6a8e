"""QoS 2 messages received from the client whose PUBREL has not come yet: their packet ids must not publish twice."""

from __future__ import annotations

from itertools import count, islice, repeat
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.mqtt.packets import Acknowledgement, Pubrel
from trunkline.mqtt.session.states import RECEIVING, ReceiptEffect, ReceiptEvent, ReceiptState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trunkline.mqtt.packets import Acknowledgements
    from trunkline.mqtt.publication import Publication

#: Ids as plain values: packet ids, what each message weighs, and the messages; None stands for one that was refused.
Exported: TypeAlias = tuple[list[int], int, "Publication | None"]

_BY_OPEN: Final = (ReceiptState.NEW, ReceiptState.ACCEPTED)
#: What follows from a packet, by whether its message is open.
_PUBLISH, _PUBREL = (
    [RECEIVING[state][event][1] for state in _BY_OPEN] for event in (ReceiptEvent.PUBLISH, ReceiptEvent.PUBREL)
)

#: What follows for messages in a row, by their packet ids; and those of them that were held.
Released: TypeAlias = tuple[ReceiptEffect, "Sequence[int]", "Sequence[Publication | None]"]


class AwaitingRel:
    """The open ids of one session in the order in which they came, each with the message that is routed at its PUBREL.
    None stands for a refused message, because a 3.x client cannot be told of the refusal. An id is kept until its
    PUBREL, however long that takes, unless `expire` drops it: the message is not published yet.
    """

    __slots__ = ("byte_size", "max_bytes", "maximum", "open")

    def __init__(self, maximum: int = 0, max_bytes: int = 0) -> None:
        #: Ids that may be open at once, and the bytes that they may take; 0 means no limit.
        self.maximum = maximum
        self.max_bytes = max_bytes
        self.byte_size = 0
        #: The held publication of each id, and the number of the id's message in it. Others only look at it.
        self.open: dict[int, tuple[Held, int]] = {}

    def __len__(self) -> int:
        return len(self.open)

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self.open

    def has_room(self, number: int, weight: int) -> bool:
        """Whether there is room for `count` more ids, whose messages take `weight` bytes."""
        return not (0 < self.maximum < len(self.open) + number or 0 < self.max_bytes < self.byte_size + weight)

    def published(self, packet_id: int) -> ReceiptEffect:
        """PUBLISH of QoS 2 came: it is handed over once.  # [MQTT-4.3.3-10]

        What is handed over is received, or refused, before this is asked again.
        """
        return _PUBLISH[packet_id in self.open]

    def are_new(self, packet_ids: Sequence[int]) -> bool:
        """Whether all of these are handed over: none of them is open, and none occurs twice."""
        return self.open.keys().isdisjoint(packet_ids) and len(set(packet_ids)) == len(packet_ids)

    def count_new(self, packet_ids: Sequence[int]) -> int:
        """How many of these ids are not open."""
        return len(packet_ids) - sum(map(self.open.__contains__, packet_ids))

    def receive(
        self, packet_ids: Sequence[int], publication: Publication | None, weight: int, now: float = 0.0
    ) -> bool:
        """The messages that were handed over, of `weight` bytes, are accepted, and are routed only at their PUBRELs.
        Returns False, and holds none of them, if there is not enough room for all."""
        if not self.has_room(len(packet_ids), weight):
            return False
        held = Held(publication, weight, packet_ids, now)
        self.open.update(zip(packet_ids, zip(repeat(held), count()), strict=False))
        self.byte_size += weight
        return True

    def released(self, packet: Acknowledgement | Acknowledgements) -> Iterable[Released]:
        """PUBREL came. What follows is complete when all of it has been looked at."""
        if isinstance(packet, Acknowledgement):
            packet_ids: Sequence[int] = (packet.packet_id,)
            is_open = packet.packet_id in self.open
        else:
            opened = self.open.keys()
            packet_ids, distinct = packet.packet_ids, set(packet.packet_ids)
            is_open = opened >= distinct
            if len(distinct) < packet.count or not (is_open or opened.isdisjoint(distinct)):
                return self._released_singly(packet)
        return ((_PUBREL[is_open], packet_ids, self.release(packet_ids) if is_open else ()),)

    def _released_singly(self, row: Acknowledgements) -> Iterator[Released]:
        """One may be repeated, or not open."""
        for packet_id in row.packet_ids:
            yield from self.released(Pubrel(packet_id))

    def release(self, packet_ids: Sequence[int]) -> list[Publication | None]:
        """PUBRELs of open ids came. Returns the held messages in order; messages that came together are returned
        together."""
        pop = self.open.pop
        released: list[Publication | None] = []
        held, first = pop(packet_ids[0])
        last = first + 1
        for packet_id in packet_ids[1:]:
            following, number = pop(packet_id)
            if following is held and number == last:
                last += 1
                continue
            released.append(self._let_go(held, first, last))
            held, first, last = following, number, number + 1
        released.append(self._let_go(held, first, last))
        return released

    def _let_go(self, held: Held, first: int, last: int) -> Publication | None:
        held.left -= last - first
        if not held.left:
            self.byte_size -= held.weight
        return None if held.publication is None else held.publication.part(first, last)

    def held(self, packet_id: int) -> Publication | None:
        """The message of an open id, unless it was refused."""
        held, number = self.open[packet_id]
        return None if held.publication is None else held.publication.messages[number]

    def withdraw(self, packet_id: int, message: Publication) -> bool:
        """The message that came with this id is refused after all. Returns False if the id is not open with it."""
        is_open = packet_id in self.open and self.held(packet_id) is message
        if is_open:
            self.release((packet_id,))
        return is_open

    @property
    def oldest(self) -> float:
        """When the oldest open id came."""
        return next(iter(self.open.values()))[0].came_at

    def expire(self, before: float, limit: int) -> list[Publication]:
        """Forget up to `limit` ids that came before the given time. Returns the messages that were held."""
        # the ids first: to look for the first of a dict again and again passes all that were taken from it before
        ids = [packet_id for packet_id, (held, _) in islice(self.open.items(), limit) if held.came_at <= before]
        return [held for held in self.release(ids) if held is not None] if ids else []

    def export(self) -> list[Exported]:
        """The ids in order, with the weight of what they hold and itself, for another node."""
        return [
            ([packet_id], held.weight // len(held.packet_ids), held.publication and held.publication.messages[number])
            for packet_id, (held, number) in self.open.items()
        ]

    def restore(self, entries: Iterable[Exported], now: float = 0.0) -> None:
        """Take up what `export` gave, as if it came now."""
        maximum, max_bytes = self.maximum, self.max_bytes
        self.maximum = self.max_bytes = 0  # what was taken over stays, whatever the limits are now
        for packet_ids, weight, publication in entries:
            self.receive(packet_ids, publication, weight * len(packet_ids), now)
        self.maximum, self.max_bytes = maximum, max_bytes


class Held:
    """The held message of one id, or the batch of several ids: its memory is in use until the last of them is
    released."""

    __slots__ = ("came_at", "left", "packet_ids", "publication", "weight")

    def __init__(self, publication: Publication | None, weight: int, packet_ids: Sequence[int], came_at: float) -> None:
        self.publication = publication
        self.weight = weight
        self.came_at = came_at
        #: The ids that it was kept for, and the number of those that are still open.
        self.packet_ids = packet_ids
        self.left = len(packet_ids)
