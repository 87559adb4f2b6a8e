"""The control packets, one set of types for all protocol versions.

Fields that a version does not have stay at their default: 3.x packets carry no properties and no reason codes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from trunkline.mqtt.message import Message
from trunkline.mqtt.packet_types import PacketType as PacketType  # noqa: PLC0414  these names belong to the packets' interface
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.versions import Version


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
    #: Bridges of 3.x set the high bit of the protocol level.
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
    """A PUBLISH is an application message on one hop. The broker routes the decoded object itself as a `Message`: only
    the session that received it reads the two fields below."""

    packet_id: int = 0
    dup: bool = False

    @property
    def packet_ids(self) -> Sequence[int]:
        return (self.packet_id,)


@dataclass(slots=True)
class Acknowledgement:
    """PUBACK, PUBREC, PUBREL or PUBCOMP: acknowledgements of one."""

    #: Of packets.
    count: ClassVar[int] = 1
    #: The class itself.
    kind: ClassVar["type[Acknowledgement]"]

    packet_id: int
    reason: int = 0
    properties: Properties = field(default=NO_PROPERTIES)

    def __init_subclass__(cls) -> None:
        cls.kind = cls

    @property
    def packet_ids(self) -> Sequence[int]:
        return (self.packet_id,)


class Puback(Acknowledgement):
    __slots__ = ()


class Pubrec(Acknowledgement):
    __slots__ = ()


class Pubrel(Acknowledgement):
    __slots__ = ()


class Pubcomp(Acknowledgement):
    __slots__ = ()


class Acknowledgements:
    """Acknowledgements of one kind in a row, all of success and with the same reason code, as one value."""

    __slots__ = ("count", "kind", "packet_ids", "reason")

    properties: ClassVar[Properties] = NO_PROPERTIES

    def __init__(self, kind: type[Acknowledgement], packet_ids: Sequence[int], reason: int = 0) -> None:
        self.kind = kind
        self.packet_ids = packet_ids
        self.reason = reason
        self.count = len(packet_ids)


#: By the first byte of their packets.
ACKNOWLEDGEMENTS: Final[dict[int, type[Acknowledgement]]] = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}


@dataclass(slots=True)
class SubscriptionRequest:
    """One entry of a SUBSCRIBE."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    #: 0: send retained messages; 1: only for a new subscription; 2: never.
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    requests: list[SubscriptionRequest]
    properties: Properties = field(default=NO_PROPERTIES)


@dataclass(slots=True)
class Suback:
    packet_id: int
    #: One for each requested filter. The encoder writes every failure as 0x80 to a 3.1.1 client.
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
    #: One for each filter; not sent to 3.x clients.
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
    | Acknowledgement
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
