"""Follows a connection from outside, packet by packet: version and topic aliases are needed to decode its packets."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Connack, Connect, PacketType, Publish

if TYPE_CHECKING:
    from trunkline.mqtt.packets import Packet
    from trunkline.mqtt.versions import Version


class Conversation:
    __slots__ = ("_aliases", "client_id", "version")

    def __init__(self, client_id: str = "", version: Version | None = None) -> None:
        #: Empty as long as it is not known.
        self.client_id = client_id
        #: None until there is a CONNECT.
        self.version = version
        #: Topics by alias, of the client and of the broker.
        self._aliases: dict[bool, dict[int, str]] = {True: {}, False: {}}

    def read(self, data: bytes, from_client: bool) -> Packet | None:
        """Decode one whole packet; None if it breaks the rules. A PUBLISH with an alias alone gets its topic, or none
        if the packet that set the alias was not read."""
        connects = from_client and data[0] >> 4 == PacketType.CONNECT
        if self.version is None and not connects:
            return None
        decoded = Decoder(server=from_client, version=None if connects else self.version).feed(data)
        packet = cast("Packet", decoded[0]) if decoded else None
        if isinstance(packet, Connect):
            self.version, self.client_id = packet.version, packet.client_id
        elif isinstance(packet, Connack):
            self.client_id = self.client_id or packet.properties.get("assigned_client_identifier", "")
        elif isinstance(packet, Publish) and (alias := packet.properties.get("topic_alias")) is not None:
            aliases = self._aliases[from_client]
            if packet.topic:
                aliases[alias] = packet.topic
            else:
                packet.topic = aliases.get(alias, "")
        return packet
