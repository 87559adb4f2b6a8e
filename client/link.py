"""What goes out on one connection: packets as bytes, gathered until they are sent together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.client.server_limits import ServerLimits
from trunkline.mqtt.encoder import encode_run, encode_within
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.session.aliases import SentAliases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import Packet, PacketType
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.versions import Version

#: Bytes that wait to be sent. Above this, requests stay in their queue.
MAX_OUTPUT: Final = 262_144


class Link:
    """The outgoing side of a connection."""

    __slots__ = ("_aliases", "_pieces", "_size", "limits", "version")

    def __init__(self, version: Version) -> None:
        self.version = version
        self.limits = ServerLimits()
        self._aliases = SentAliases()
        self._pieces: list[bytes] = []
        self._size = 0

    def open(self, limits: ServerLimits, max_aliases: int = 0) -> None:
        """The server has accepted the connection."""
        self.limits = limits
        self._aliases.maximum = min(limits.topic_aliases, max_aliases)

    def __len__(self) -> int:
        """Bytes that wait to be sent."""
        return self._size

    @property
    def is_full(self) -> bool:
        return self._size >= MAX_OUTPUT

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)

    def send(self, packet: Packet) -> bool:
        """Send any packet but PUBLISH. False if the server accepts none so large."""
        wire = encode_within(packet, self.version, self.limits.max_packet_size)
        self.write(wire)
        return wire != b""

    def acknowledge(self, kind: PacketType, packet_ids: Sequence[int]) -> None:
        """Acknowledgements of success in a row."""
        self.write(encode_run(kind, packet_ids))

    def publish(self, publication: Publication, packet_ids: range) -> None:
        """Messages that have not been sent before, at QoS 1 and 2 with these packet ids."""
        if self._aliases.maximum:
            for number, message in enumerate(publication.messages):
                self._publish_with_alias(message, packet_ids[number] if packet_ids else 0)
        elif packet_ids:
            for piece in publication.numbered(self.version, publication.qos, publication.retain, packet_ids):
                self.write(piece)
        else:
            self.write(publication.wire(self.version, publication.retain))

    def _publish_with_alias(self, message: Message, packet_id: int) -> None:
        encode = partial(
            encode_publish, message, self.version, qos=message.qos, retain=message.retain, packet_id=packet_id
        )
        self.write(self._aliases.encode(message.topic, encode, self.limits.max_packet_size))

    def publish_again(self, message: Message, packet_id: int) -> None:
        """A message that was sent on an earlier connection.  # [MQTT-3.3.1-1]

        Raises:
            NotOffered, LargerThanServerAccepts: this connection does not take it.
        """
        self.limits.check_publish(message.qos, message.retain)
        wire = encode_publish(
            message, self.version, qos=message.qos, retain=message.retain, dup=True, packet_id=packet_id
        )
        self.limits.check_size(len(wire))
        self.write(wire)

    def take(self) -> bytes:
        """All that waits to be sent."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return data
