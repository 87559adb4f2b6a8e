"""Enhanced authentication (MQTT 5.0, section 4.12): a conversation in AUTH packets, as an authenticator gets it.

The broker keeps one `Exchange` from the CONNECT (or the AUTH that asks for re-authentication) until the outcome, fills
in `data` for each packet of the client and runs `client.enhanced_authenticate`. An authenticator answers for its
own method and passes (None) on every other one; when all pass, the method is unknown and the client gets 0x8C.
"""

from dataclasses import dataclass, field
from typing import final

from trunkline.mqtt.strings import encode_binary


@final
@dataclass(slots=True, eq=False)
class Exchange:
    """One authentication of one connection."""

    #: The authentication method, the same in every packet. # [MQTT-4.12.0-5]
    method: str
    #: The authentication data of the packet that is handled now.
    data: bytes
    #: True for the first packet of the exchange: CONNECT, or AUTH with reason 0x19.
    first: bool = True
    #: The client is connected already and re-authenticates.
    again: bool = False
    #: That of the CONNECT, which may have one beside the method. None when the client re-authenticates.
    password: bytes | None = field(default=None, repr=False)
    #: The authenticator's own state; kept from one packet to the next.
    state: object = None


@final
@dataclass(frozen=True, slots=True)
class Continue:
    """The exchange continues: the client gets an AUTH with reason 0x18 and this data."""

    data: bytes = b""

    def __post_init__(self) -> None:
        _check(self.data)


@final
@dataclass(frozen=True, slots=True)
class Success:
    """The client is authenticated. `data` goes out in the CONNACK, or in the AUTH that ends a re-authentication."""

    data: bytes = b""
    #: The client's user name; None keeps the user name of the CONNECT.
    username: str | None = None
    superuser: bool = False

    def __post_init__(self) -> None:
        _check(self.data)


def _check(data: object) -> None:
    """Data that does not fit into a packet is the authenticator's error, not the connection's."""
    if not isinstance(data, bytes):
        raise TypeError(f"authentication data must be bytes, not {type(data).__name__}")
    encode_binary(data)
