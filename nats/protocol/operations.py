"""What stands in the control lines of NATS, from either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.nats.protocol.headers import NO_HEADERS, Headers, Status, decode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

#: JSON in a line.
Json: TypeAlias = "Mapping[str, Any]"


@dataclass(slots=True, eq=False)
class Deliver:
    """MSG or HMSG: a message for a subscription. Thousands may be in a read, so that it is kept as it came."""

    subject: bytes
    sid: bytes
    reply: bytes
    #: The block of headers, or nothing.
    block: bytes
    payload: bytes

    def with_payload(self, payload: bytes) -> Deliver:
        """Of one without headers: the same with another payload."""
        return Deliver(self.subject, self.sid, self.reply, b"", payload)

    @property
    def status(self) -> Status | None:
        """Raises BadHeaders if the block is none."""
        return decode_headers(self.block)[0] if self.block else None

    @property
    def headers(self) -> Headers:
        """Raises BadHeaders if the block is none."""
        return decode_headers(self.block)[1] if self.block else NO_HEADERS


@dataclass(slots=True, eq=False)
class Publish:
    """PUB or HPUB."""

    subject: bytes
    reply: bytes
    #: The block of headers, or nothing.
    block: bytes
    payload: bytes

    def with_payload(self, payload: bytes) -> Publish:
        """Of one without headers: the same with another payload."""
        return Publish(self.subject, self.reply, b"", payload)


@dataclass(slots=True)
class Subscribe:
    subject: bytes
    queue: bytes
    sid: bytes


@dataclass(slots=True)
class Unsubscribe:
    sid: bytes
    #: Messages that may still come, counted from the subscription on; 0 for none.
    after: int


@dataclass(slots=True)
class Connect:
    options: Json


@dataclass(slots=True)
class Info:
    server: Json


@dataclass(slots=True)
class Error:
    """-ERR: what was wrong. The server closes the connection behind some of them."""

    text: str


class Signal:
    """PING, PONG and +OK say nothing but their name."""

    __slots__ = ("line", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line: Final = b"%s\r\n" % name.encode()

    def __repr__(self) -> str:
        return self.name


PING: Final = Signal("PING")
PONG: Final = Signal("PONG")
OK: Final = Signal("+OK")

FromServer: TypeAlias = Deliver | Info | Error | Signal
FromClient: TypeAlias = Publish | Subscribe | Unsubscribe | Connect | Info | Signal
