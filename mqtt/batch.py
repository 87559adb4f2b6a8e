"""Packets that came together and are alike, as one object: what is the same for all of them is done once.

Who publishes fast has hundreds of packets in one read, most often of one topic and length. Such a `PublishBatch` goes through
the broker as one: a topic is looked up once, allowed once and routed once, and the bytes leave in one piece. Whoever
needs the single messages unfolds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, repeat
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.mqtt.frames import PACKET_ID, publish_head
from trunkline.mqtt.packets import ACKNOWLEDGEMENTS, Acknowledgement, Packet, Publish
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.weight import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.mqtt.versions import Version

#: The two bytes of every packet identifier, apart: they are laid over the packets of a burst in two strokes.
_HIGH: Final = b"".join(bytes((high,)) * 256 for high in range(256))
_LOW: Final = bytes(range(256)) * 256

_new: Final = object.__new__


class PublishBatch:
    """PUBLISH packets in a row of one QoS and version, without RETAIN, DUP or properties."""

    __slots__ = (
        "_forms",
        "_messages",
        "_starts",
        "_wire",
        "guids",
        "packet_ids",
        "publisher",
        "qos",
        "timestamp",
        "topics",
        "username",
        "version",
    )

    def __init__(
        self,
        topics: Sequence[str],
        qos: int,
        version: Version,
        wire: bytes,
        starts: Sequence[int],
        packet_ids: Sequence[int],
    ) -> None:
        """`wire` is the packets as they came, and `starts` where each begins: a `range`, if all have one topic and one
        length."""
        #: The topic of each packet, or one topic that all of them have.
        self.topics = topics
        self.qos = qos
        self.version = version
        #: Of each packet; empty at QoS 0.
        self.packet_ids = packet_ids
        #: As `Message` has them; filled in by the publisher's session.
        self.guids: Sequence[int] = ()
        self.publisher = ""
        self.username: str | None = None
        self.timestamp = 0.0
        self._wire = wire
        self._starts = starts
        self._messages: list[Publish] | None = None
        #: All packets in one piece, as subscribers of a kind get them, and where their packet identifiers are.
        self._forms: dict[int, tuple[bytes, Sequence[int]]] | None = None

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def messages(self) -> list[Publish]:
        """The single messages. They are made once: all subscribers share them."""
        if self._messages is None:
            self._messages = self._unfold()
        return self._messages

    def _unfold(self) -> list[Publish]:
        qos, wire = self.qos, self._wire
        publisher, username, timestamp = self.publisher, self.username, self.timestamp
        v5 = self.version == 5
        messages: list[Publish] = []
        for (topic, start, payload, end), packet_id, guid in zip(
            self._packets(), self.packet_ids or repeat(0), self.guids or repeat(0), strict=False
        ):
            # Filled in field by field, which saves a quarter of making it.
            message = _new(Publish)
            message.topic = topic
            message.payload = wire[payload:end]
            message.qos = qos
            message.retain = False
            message.properties = NO_PROPERTIES
            message.publisher = publisher
            message.username = username
            message.guid = guid
            message.timestamp = timestamp
            message.expires_at = inf
            message.wire3 = None if v5 or qos else wire[start:end]
            message.wire5 = wire[start:end] if v5 and not qos else None
            message.frames = None
            message.packet_id = packet_id
            message.dup = False
            messages.append(message)
        return messages

    def _packets(self) -> Iterator[tuple[str, int, int, int]]:
        """Of each packet its topic, and where it, its payload and what follows it begin."""
        wire, topics = self._wire, self.topics
        behind_name = 2 * (self.qos > 0) + (self.version == 5)
        each = topics if len(topics) > 1 else repeat(topics[0])
        for topic, start, end in zip(each, self._starts, [*self._starts[1:], len(wire)], strict=False):
            name = start + (2 if wire[start + 1] < 128 else 3)
            # gathered are short names alone, whose length is in its second byte
            yield topic, start, name + 2 + wire[name + 1] + behind_name, end

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly, that it costs to keep it, however few of its messages are needed."""
        return len(self._wire) + OVERHEAD * len(self._starts)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each payload."""
        if isinstance(self._starts, range):
            _, _, payload, end = next(self._packets())
            return [end - payload] * len(self._starts)
        return [end - payload for _, _, payload, end in self._packets()]

    def part(self, first: int, last: int) -> PublishBatch:
        """The packets from number `first` up to, and without, number `last`."""
        starts = self._starts
        if last - first == len(starts):
            return self
        begin = starts[first]
        end = starts[last] if last < len(starts) else len(self._wire)
        some = slice(first, last)
        shifted = [start - begin for start in starts[some]]
        return self._some(self._wire[begin:end], shifted, lambda each: each[some])

    def select(self, numbers: Sequence[int]) -> PublishBatch:
        """The packets with these numbers, which rise."""
        wire = self._wire
        bounds = [*self._starts, len(wire)]
        pieces = [wire[bounds[number] : bounds[number + 1]] for number in numbers]
        starts = list(accumulate(map(len, pieces), initial=0))[:-1]
        return self._some(b"".join(pieces), starts, lambda each: [each[number] for number in numbers])

    def _some(self, wire: bytes, starts: Sequence[int], take: Callable[[Sequence[Any]], Sequence[Any]]) -> PublishBatch:
        """A burst of some of the packets; `take` takes what is theirs from what there is one of for each packet."""
        if isinstance(self._starts, range):
            starts = range(0, len(wire), self._starts.step)
        topics = take(self.topics) if len(self.topics) > 1 else self.topics
        burst = PublishBatch(
            topics, self.qos, self.version, wire, starts, take(self.packet_ids) if self.packet_ids else ()
        )
        burst.guids = take(self.guids) if self.guids else ()
        burst.publisher, burst.username, burst.timestamp = self.publisher, self.username, self.timestamp
        if self._messages is not None:
            burst._messages = list(take(self._messages))
        return burst

    def wire(self, version: Version) -> bytes:
        """All packets for a subscriber at QoS 0."""
        if not self.qos and (version == 5) == (self.version == 5):
            return self._wire
        return self._form(version, 0)[0]

    def numbered(self, version: Version, qos: int, packet_ids: range) -> bytes:
        """All packets for a subscriber at QoS 1 or 2, with its packet identifiers."""
        form, places = self._form(version, qos)
        wire = bytearray(form)
        if isinstance(places, range):
            wire[places.start :: places.step] = _HIGH[packet_ids.start : packet_ids.stop]
            wire[places.start + 1 :: places.step] = _LOW[packet_ids.start : packet_ids.stop]
        else:
            for place, packet_id in zip(places, packet_ids, strict=True):
                wire[place : place + 2] = PACKET_ID[packet_id]
        return bytes(wire)

    def _form(self, version: Version, qos: int) -> tuple[bytes, Sequence[int]]:
        key = qos if version != 5 else qos + 4
        if self._forms is None:
            self._forms = {}
        form = self._forms.get(key)
        if form is None:
            same = qos == self.qos and (version == 5) == (self.version == 5)
            form = self._forms[key] = self._as_it_came() if same else self._rewritten(version, qos)
        return form

    def _as_it_came(self) -> tuple[bytes, Sequence[int]]:
        """At QoS 1 and 2: the packets with the publisher's packet identifiers, which are written over."""
        before_payload = 3 if self.version == 5 else 2
        starts = self._starts
        if isinstance(starts, range):
            _, _, payload, _ = next(self._packets())
            # the stop says nothing: a stroke goes to the end of the wire
            return self._wire, range(payload - before_payload, len(self._wire), starts.step)
        return self._wire, [payload - before_payload for _, _, payload, _ in self._packets()]

    def _rewritten(self, version: Version, qos: int) -> tuple[bytes, Sequence[int]]:
        wire = self._wire
        between = (b"\0\0" if qos else b"") + (b"\0" if version == 5 else b"")  # packet identifier, no properties
        pieces: list[bytes] = []
        places: list[int] = []
        size = 0
        for topic, _, start, end in self._packets():
            head = publish_head(topic, qos, False, end - start + (version == 5))
            places.append(size + len(head))
            size += len(head) + len(between) + end - start
            pieces += (head, between, wire[start:end])
        if isinstance(self._starts, range):
            return b"".join(pieces), range(places[0], size, size // len(places))
        return b"".join(pieces), places


@dataclass(slots=True, eq=False)
class Acknowledgements:
    """PUBACK, PUBREC, PUBREL or PUBCOMP packets in a row, all of success."""

    kind: type[Acknowledgement]
    packet_ids: Sequence[int]

    @property
    def packets(self) -> list[Acknowledgement]:
        """The single packets."""
        return [self.kind(packet_id) for packet_id in self.packet_ids]


#: What a decoder that gathers gives.
Decoded: TypeAlias = Packet | PublishBatch | Acknowledgements

_HEADS: Final = {kind: bytes((first, 2)) for first, kind in ACKNOWLEDGEMENTS.items()}


def acknowledge_all(kind: type[Acknowledgement], packet_ids: Iterable[int]) -> bytes:
    """The wire bytes of acknowledgements of success in a row, for all versions."""
    head = _HEADS[kind]
    return b"".join([head + PACKET_ID[packet_id] for packet_id in packet_ids])
