"""The control packets, one set of types for all protocol versions.

What a version does not have stays at its default: 3.x packets carry no properties and no reason codes.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.versions import Version


class PacketType(IntEnum):
    """The high half of a packet's first byte; WILL stands for the will inside a CONNECT, which has properties too."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(slots=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Connect:
    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    #: 3.x bridges set the high bit of the protocol level to say so.
    bridge: bool = False
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Connack:
    session_present: bool = False
    #: A reason code of 5.0; the encoder writes the return code that stands for it to a 3.x client.
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True, eq=False)
class Publish(Message):
    """A PUBLISH is an application message on one hop. The broker routes the very object that was decoded, as a
    `Message`: the two fields below are never read past the session that received it."""

    packet_id: int = 0
    dup: bool = False


@dataclass(slots=True)
class Puback:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Pubrec:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Pubrel:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Pubcomp:
    packet_id: int
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


Acknowledgement: TypeAlias = Puback | Pubrec | Pubrel | Pubcomp

#: By the first byte of their packets.
ACKNOWLEDGEMENTS: Final[dict[int, type[Acknowledgement]]] = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}


@dataclass(slots=True)
class SubscriptionRequest:
    """One entry of a SUBSCRIBE."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    #: 0 send retained messages, 1 only for a new subscription, 2 never.
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    requests: list[SubscriptionRequest]
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Suback:
    packet_id: int
    #: One a request. The encoder writes every failure as 0x80 to a 3.1.1 client.
    reasons: list[int]
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Unsubscribe:
    packet_id: int
    filters: list[str]
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Unsuback:
    packet_id: int
    #: One a filter; not on the wire for 3.x.
    reasons: list[int] = field(default_factory=list[int])
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Pingreq:
    pass


@dataclass(slots=True)
class Pingresp:
    pass


@dataclass(slots=True)
class Disconnect:
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Auth:
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)

TYPE_OF: Final[dict[type, PacketType]] = {
    Connect: PacketType.CONNECT,
    Connack: PacketType.CONNACK,
    Publish: PacketType.PUBLISH,
    Puback: PacketType.PUBACK,
    Pubrec: PacketType.PUBREC,
    Pubrel: PacketType.PUBREL,
    Pubcomp: PacketType.PUBCOMP,
    Subscribe: PacketType.SUBSCRIBE,
    Suback: PacketType.SUBACK,
    Unsubscribe: PacketType.UNSUBSCRIBE,
    Unsuback: PacketType.UNSUBACK,
    Pingreq: PacketType.PINGREQ,
    Pingresp: PacketType.PINGRESP,
    Disconnect: PacketType.DISCONNECT,
    Auth: PacketType.AUTH,
}
