"""The first byte of a packet: the allowed values by version and side, and the decoder of the rest."""

from collections.abc import Callable
from typing import Final

from trunkline.mqtt.decode_connect import decode_connack, decode_connect
from trunkline.mqtt.decode_control import decode_auth, decode_disconnect, decode_pingreq, decode_pingresp
from trunkline.mqtt.decode_publish import acknowledgement_decoder, decode_publish
from trunkline.mqtt.decode_subscribe import decode_suback, decode_subscribe, decode_unsuback, decode_unsubscribe
from trunkline.mqtt.packets import Packet, PacketType, Puback, Pubcomp, Pubrec, Pubrel
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.versions import Version

Decode = Callable[[Reader, int], Packet]

_TYPES: Final[dict[PacketType, tuple[Decode, bool, bool]]] = {
    # packet: its decoder, whether a client sends it, whether a server does
    PacketType.CONNECT: (decode_connect, True, False),
    PacketType.CONNACK: (decode_connack, False, True),
    PacketType.PUBLISH: (decode_publish, True, True),
    PacketType.PUBACK: (acknowledgement_decoder(Puback), True, True),
    PacketType.PUBREC: (acknowledgement_decoder(Pubrec), True, True),
    PacketType.PUBREL: (acknowledgement_decoder(Pubrel), True, True),
    PacketType.PUBCOMP: (acknowledgement_decoder(Pubcomp), True, True),
    PacketType.SUBSCRIBE: (decode_subscribe, True, False),
    PacketType.SUBACK: (decode_suback, False, True),
    PacketType.UNSUBSCRIBE: (decode_unsubscribe, True, False),
    PacketType.UNSUBACK: (decode_unsuback, False, True),
    PacketType.PINGREQ: (decode_pingreq, True, False),
    PacketType.PINGRESP: (decode_pingresp, False, True),
    PacketType.DISCONNECT: (decode_disconnect, True, True),
    PacketType.AUTH: (decode_auth, True, True),
}

#: [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT3-3.6.1-1] [MQTT3-3.8.1-1] [MQTT3-3.10.1-1]
_WITH_FLAGS: Final = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)


def _flags(kind: PacketType, version: Version) -> tuple[int, ...]:
    """The allowed low halves of the first byte."""
    if kind is PacketType.PUBLISH:
        # No QoS 3: [MQTT-3.3.1-4]. No DUP at QoS 0: [MQTT-3.3.1-2]
        return tuple(flags for flags in range(16) if flags & 0x06 != 0x06 and flags & 0x0E != 0x08)
    if kind in _WITH_FLAGS:
        return (2, 10) if version is Version.V31 else (2,)  # 3.1 marks repeated ones with DUP
    return (0,)  # [MQTT-2.1.3-1] [MQTT3-2.2.2-1]


def _first_bytes(version: Version, server: bool) -> dict[int, Decode]:
    """All allowed first bytes except CONNECT's, which comes once and first."""
    table: dict[int, Decode] = {}
    for kind, (decode, by_client, by_server) in _TYPES.items():
        if kind is PacketType.CONNECT or (kind is PacketType.AUTH and version is not Version.V5):
            continue
        if version is not Version.V5 and not server and kind is PacketType.DISCONNECT:
            continue  # a 3.x server never sends one
        if by_client if server else by_server:
            table.update((kind << 4 | flags, decode) for flags in _flags(kind, version))
    return table


FIRST_BYTES: Final = {
    (version, server): _first_bytes(version, server) for version in Version for server in (True, False)
}

#: CONNECT of 3.1 may have any flags, so the name that follows decides about them.
CONNECT_ONLY: Final[dict[int, Decode]] = {0x10 | flags: decode_connect for flags in range(16)}
OLD_NAME: Final = b"\0\6MQIsdp"
