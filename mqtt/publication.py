"""The unit that is published, routed, delivered and acknowledged: one message, or several similar ones that came
together.

A single `Message` is a publication of one. A client that publishes fast has hundreds of packets in one read, most often
of one topic and length: those are a `PublishBatch`. Every step of a message's way works on publications: a topic is
looked up once, allowed once and routed once, and the bytes are sent in one piece. Both have the same attributes and
methods, so only parsing and encoding distinguish the two. Code that needs single messages uses `messages`.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.mqtt.frames import PACKET_ID, property_block, publish_head
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Acknowledgements, Packet, Publish
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.weight import OVERHEAD, properties_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.mqtt.stored import StoredPublication
    from trunkline.mqtt.versions import Version

#: The two bytes of every packet identifier, separately: two slice assignments write them into all packets of a batch.
_HIGH: Final = b"".join(bytes((high,)) * 256 for high in range(256))
_LOW: Final = bytes(range(256)) * 256

_new: Final = object.__new__


class PublishBatch:
    """PUBLISH packets in a row with the same QoS, RETAIN, DUP and properties, unless `each` has those of each."""

    __slots__ = (
        "_each",
        "_forms",
        "_messages",
        "_starts",
        "_stored",
        "_wire",
        "count",
        "dup",
        "expires_at",
        "guids",
        "packet_ids",
        "properties",
        "publisher",
        "qos",
        "retain",
        "timestamp",
        "topics",
        "username",
        "version",
        "wire3",
        "wire5",
    )

    def __init__(
        self,
        topics: Sequence[str],
        first_byte: int,
        version: Version,
        wire: bytes,
        starts: Sequence[int],
        packet_ids: Sequence[int],
        properties: Properties = NO_PROPERTIES,
        each: Sequence[Properties] = (),
    ) -> None:
        """`wire` holds the packets as received, and `starts` where each begins: a `range`, if all have one topic and
        one length. `each` has the properties of each packet, which are in `wire` as they are to be sent."""
        self.count = len(starts)
        #: The topic of each packet, or one topic that all of them have.
        self.topics = topics
        self.qos = qos = first_byte >> 1 & 3
        self.retain = retain = first_byte & 1 == 1
        self.dup = first_byte & 8 != 0
        self.version = version
        #: Of each packet; empty at QoS 0.
        self.packet_ids = packet_ids
        # As `Message` has them; the publisher's session fills them in.
        self.properties = properties
        self._each = each
        self.guids: Sequence[int] = ()
        self.publisher = ""
        self.username: str | None = None
        self.timestamp = 0.0
        self.expires_at = inf
        self._stored: StoredPublication | None = None
        self._wire = wire
        self._starts = starts
        self._messages: list[Publish] | None = None
        #: All packets in one piece, as subscribers of one kind get them, and the positions of their packet identifiers.
        self._forms: dict[int, tuple[bytes, Sequence[int]]] | None = None
        as_it_came = not qos and not retain and not properties
        self.wire3 = wire if as_it_came and version != 5 else None
        self.wire5 = wire if as_it_came and version == 5 else None

    @property
    def topic(self) -> str:
        """Of the first packet."""
        return self.topics[0]

    @topic.setter
    def topic(self, topic: str) -> None:
        """The topic that the alias of all packets stands for."""
        self.topics = (topic,)

    @property
    def guid(self) -> int:
        """Of the first packet."""
        return self.guids[0]

    @guid.setter
    def guid(self, guid: int) -> None:
        self.guids = range(guid, guid + self.count)

    @property
    def packet_id(self) -> int:
        """Of the first packet."""
        return self.packet_ids[0]

    @property
    def stored(self) -> StoredPublication | None:
        """Where it is stored, if it is."""
        return self._stored

    @stored.setter
    def stored(self, stored: StoredPublication | None) -> None:
        self._stored = stored
        for message in self._messages or ():
            message.stored = stored

    @property
    def messages(self) -> Sequence[Publish]:
        """The single messages. They are made once: all subscribers share them."""
        if self._messages is None:
            self._messages = self._unfold()
        return self._messages

    @property
    def has_properties(self) -> bool:
        """Whether any of them has."""
        return bool(self.properties or self._each)

    @property
    def payloads(self) -> list[bytes]:
        """Of each packet, without making the messages."""
        wire, starts = self._wire, self._starts
        if isinstance(starts, range):
            _, _, payload, end = next(self._packets())
            return [wire[start + payload : start + end] for start in starts]
        return [wire[payload:end] for _, _, payload, end in self._packets()]

    def _unfold(self) -> list[Publish]:
        qos, wire, retain, dup = self.qos, self._wire, self.retain, self.dup
        publisher, username, timestamp, expires_at = self.publisher, self.username, self.timestamp, self.expires_at
        is_wire3, is_wire5, stored = self.wire3 is not None, self.wire5 is not None, self._stored
        messages: list[Publish] = []
        for (topic, start, payload, end), packet_id, guid, properties in zip(
            self._packets(),
            self.packet_ids or repeat(0),
            self.guids or repeat(0),
            self._each or repeat(self.properties),
            strict=False,
        ):
            # Filled in field by field, which saves a quarter of making it.
            message = _new(Publish)
            message.topic = topic
            message.payload = wire[payload:end]
            message.qos = qos
            message.retain = retain
            # a hook may change the properties of one message
            message.properties = {**properties} if properties else NO_PROPERTIES
            message.publisher = publisher
            message.username = username
            message.guid = guid
            message.timestamp = timestamp
            message.expires_at = expires_at
            message.wire3 = wire[start:end] if is_wire3 else None
            message.wire5 = wire[start:end] if is_wire5 else None
            message.frames = None
            message.stored = stored
            message.packet_id = packet_id
            message.dup = dup
            messages.append(message)
        return messages

    def _packets(self) -> Iterator[tuple[str, int, int, int]]:
        """For each packet its topic, and where the packet, its payload and the next packet begin."""
        wire, topics = self._wire, self.topics
        before_properties = 4 if self.qos else 2
        v5 = self.version == 5
        each = topics if len(topics) > 1 else repeat(topics[0])
        for topic, start, end in zip(each, self._starts, [*self._starts[1:], len(wire)], strict=False):
            name = start + (2 if wire[start + 1] < 128 else 3)
            # only short topic names and properties are gathered, whose lengths take one byte
            payload = name + before_properties + wire[name + 1]
            yield topic, start, payload + 1 + wire[payload] if v5 else payload, end

    @property
    def packets(self) -> tuple[int, Version, bytes, Sequence[int]]:
        """What it was made from: first byte, version, wire, starts."""
        return self._wire[0], self.version, self._wire, self._starts

    @property
    def weight(self) -> int:
        """The bytes of memory, roughly, that it takes, however few of its messages are needed."""
        each = OVERHEAD + (properties_weight(self.properties) if self.properties else 0)
        return len(self._wire) + each * self.count

    @property
    def sizes(self) -> list[int]:
        """Bytes of each payload."""
        if isinstance(self._starts, range):
            _, _, payload, end = next(self._packets())
            return [end - payload] * self.count
        return [end - payload for _, _, payload, end in self._packets()]

    def part(self, first: int, last: int) -> Publish | PublishBatch:
        """The packets from number `first` up to, and without, number `last`."""
        starts = self._starts
        if last - first == self.count:
            return self
        begin = starts[first]
        end = starts[last] if last < self.count else len(self._wire)
        some = slice(first, last)
        shifted = [start - begin for start in starts[some]]
        return self._some(self._wire[begin:end], shifted, lambda each: each[some])

    def select(self, numbers: Sequence[int]) -> Publish | PublishBatch:
        """The packets with these numbers, in ascending order."""
        wire = self._wire
        bounds = [*self._starts, len(wire)]
        pieces = [wire[bounds[number] : bounds[number + 1]] for number in numbers]
        starts = list(accumulate(map(len, pieces), initial=0))[:-1]
        return self._some(b"".join(pieces), starts, lambda each: [each[number] for number in numbers])

    def _some(
        self, wire: bytes, starts: Sequence[int], take: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Publish | PublishBatch:
        """Some of the packets; `take` selects their entries from a sequence with one entry for each packet."""
        if isinstance(self._starts, range):
            starts = range(0, len(wire), self._starts.step)
        topics = take(self.topics) if len(self.topics) > 1 else self.topics
        packet_ids = take(self.packet_ids) if self.packet_ids else ()
        each = take(self._each) if self._each else ()
        batch = PublishBatch(topics, self._wire[0], self.version, wire, starts, packet_ids, self.properties, each)
        batch.guids = take(self.guids) if self.guids else ()
        batch.publisher, batch.username, batch.timestamp = self.publisher, self.username, self.timestamp
        batch.expires_at, batch._stored = self.expires_at, self._stored
        if self._messages is not None:
            batch._messages = list(take(self._messages))
        return batch if batch.count > 1 else batch.messages[0]

    def without_large_payload(self) -> PublishBatch:
        """As `Message` has it. Heavy messages are in a window one by one."""
        return self

    def wire(self, version: Version, retain: bool = False) -> bytes:
        """All packets for a subscriber at QoS 0."""
        return self._form(version, 0, retain)[0]

    def numbered(self, version: Version, qos: int, retain: bool, packet_ids: range) -> tuple[bytes, ...]:
        """All packets for a subscriber at QoS 1 or 2 with its packet identifiers, in pieces."""
        form, places = self._form(version, qos, retain)
        wire = bytearray(form)
        if isinstance(places, range):
            wire[places.start :: places.step] = _HIGH[packet_ids.start : packet_ids.stop]
            wire[places.start + 1 :: places.step] = _LOW[packet_ids.start : packet_ids.stop]
        else:
            for place, packet_id in zip(places, packet_ids, strict=True):
                wire[place : place + 2] = PACKET_ID[packet_id]
        return (bytes(wire),)

    def _form(self, version: Version, qos: int, retain: bool) -> tuple[bytes, Sequence[int]]:
        key = qos << 2 | retain << 1 | (version == 5)
        if self._forms is None:
            self._forms = {}
        form = self._forms.get(key)
        if form is None:
            same = (
                qos == self.qos
                and retain == self.retain
                and not self.dup
                and not self.properties
                and (version == 5) == (self.version == 5)
            )
            form = self._forms[key] = self._as_it_came() if same else self._rewritten(version, qos, retain)
        return form

    def _as_it_came(self) -> tuple[bytes, Sequence[int]]:
        """The packets with the publisher's packet identifiers, if any, which are overwritten."""
        wire, starts = self._wire, self._starts
        some = starts[:1] if isinstance(starts, range) else starts
        names = [start + (2 if wire[start + 1] < 128 else 3) for start in some]
        places = [name + 2 + wire[name + 1] for name in names]
        # the stop does not matter: the slice extends to the end of the wire
        return wire, range(places[0], len(wire), starts.step) if isinstance(starts, range) else places

    def _rewritten(self, version: Version, qos: int, retain: bool) -> tuple[bytes, Sequence[int]]:
        wire = self._wire
        block = property_block(self.properties) if version == 5 else b""
        between = b"\0\0" + block if qos else block  # the packet identifier comes later
        pieces: list[bytes] = []
        places: list[int] = []
        size = 0
        for topic, _, start, end in self._packets():
            head = publish_head(topic, qos, retain, end - start + len(block))
            places.append(size + len(head))
            size += len(head) + len(between) + end - start
            pieces += (head, between, wire[start:end])
        if isinstance(self._starts, range):
            return b"".join(pieces), range(places[0], size, size // len(places))
        return b"".join(pieces), places


#: One or many.
Publication: TypeAlias = Message | PublishBatch
#: As received from the publisher, with packet identifiers.
ReceivedPublication: TypeAlias = Publish | PublishBatch
#: The result of a decoder that gathers.
Decoded: TypeAlias = Packet | PublishBatch | Acknowledgements
