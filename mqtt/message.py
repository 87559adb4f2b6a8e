"""An application message, which is published, routed, queued, retained and stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from trunkline.mqtt.frames import PACKET_ID, publish_pieces, publish_whole
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import HEAVY, OVERHEAD, properties_weight

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from trunkline.mqtt.stored import StoredPublication

_V5: Final = Version.V5

#: A payload of this size or more is dropped when it is no longer needed. A smaller one is kept, because a message
#: without it is a new object.
LARGE_PAYLOAD: Final = 1024


@dataclass(slots=True, eq=False)
class Message:
    """One application message on its way through the broker: a publication of one (`trunkline.mqtt.publication`).

    It is filled in before it is routed and never changed after: every subscriber shares the object.
    """

    #: Of messages.
    count: ClassVar[int] = 1

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    #: The publisher's properties, without topic alias and subscription identifiers.
    properties: Properties = field(default=NO_PROPERTIES)
    #: Client id of the publisher; empty for the broker's own messages.
    publisher: str = ""
    username: str | None = None
    #: 128 bits, unique; sorts by time, and per publisher by order of publishing.
    guid: int = 0
    #: When the broker accepted the message, in seconds since the epoch.
    timestamp: float = 0.0
    #: The node's monotonic time at which it expires.
    expires_at: float = inf
    # The following fields are derived from those above, so `dataclasses.replace` does not copy them. The whole PUBLISH
    # at QoS 0 without RETAIN, for 3.x and for 5.0: the form of most deliveries. The decoder fills in the form that was
    # received; `wire` the other, when it is needed.
    wire3: bytes | None = field(default=None, init=False, repr=False)
    wire5: bytes | None = field(default=None, init=False, repr=False)
    #: All other encoded forms, shared by all subscribers (`trunkline.mqtt.frames`).
    frames: dict[int, tuple[bytes, bytes]] | None = field(default=None, init=False, repr=False)
    #: Where it is stored, if it is.
    stored: StoredPublication | None = field(default=None, init=False, repr=False)

    def bare(self) -> Message:
        """The same message without its encoded forms, which may take several times as much memory: for keeping it
        long."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.properties,
            self.publisher,
            self.username,
            self.guid,
            self.timestamp,
            self.expires_at,
        )

    def without_large_payload(self) -> Message:
        """Without its payload, while only its PUBREL is left to send."""
        if len(self.payload) < LARGE_PAYLOAD and self.weight < HEAVY:
            return self
        left = self.bare()
        left.payload, left.properties, left.stored = b"", NO_PROPERTIES, self.stored
        return left

    @property
    def weight(self) -> int:
        """The bytes of memory, roughly, that the message takes: every limit in bytes counts these. An encoded form
        takes the content once more, which is not counted.
        """
        topic = self.topic
        size = OVERHEAD + len(self.payload) + (len(topic) if topic.isascii() else 4 * len(topic))
        if self.properties:
            size += properties_weight(self.properties)
        return size

    # Its interface as a publication of one

    @property
    def topics(self) -> Sequence[str]:
        return (self.topic,)

    @property
    def sizes(self) -> Sequence[int]:
        return (len(self.payload),)

    @property
    def guids(self) -> Sequence[int]:
        return (self.guid,)

    @property
    def messages(self) -> Sequence[Self]:
        return (self,)

    @property
    def payloads(self) -> Sequence[bytes]:
        return (self.payload,)

    def part(self, first: int, last: int) -> Self:
        return self

    def select(self, numbers: Sequence[int]) -> Self:
        return self

    def wire(self, version: Version, retain: bool = False) -> bytes:
        """The packet for a subscriber at QoS 0."""
        return publish_pieces(self, version, 0, True)[0] if retain else publish_whole(self, version)

    def numbered(self, version: Version, qos: int, retain: bool, packet_ids: range) -> tuple[bytes, ...]:
        """The packet for a subscriber at QoS 1 or 2 with its packet identifier, in pieces."""
        frames = self.frames
        pieces = frames.get(qos + qos + retain + 8 * (version is _V5)) if frames is not None else None
        head, tail = pieces or publish_pieces(self, version, qos, retain)
        return head, PACKET_ID[packet_ids.start], tail
