"""Statuses: what a server says to the subscriber of a consumer in place of a message."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from trunkline.nats.errors import BadHeaders, StatusError, UnknownStatus
from trunkline.nats.protocol.acknowledging import PREFIX
from trunkline.nats.protocol.numbers import number_of

if TYPE_CHECKING:
    from trunkline.nats.protocol.headers import Status
    from trunkline.nats.protocol.operations import Deliver

#: Headers of a heartbeat: how far the consumer is, and the subject by which a stalled one goes on.
LAST_CONSUMER: Final = "Nats-Last-Consumer"
LAST_STREAM: Final = "Nats-Last-Stream"
STALLED: Final = "Nats-Consumer-Stalled"
#: Headers of the end of a pull: what it had still room for.
PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"

_PREFIX: Final = b"NATS/1.0 "
_ACK_PREFIX: Final = PREFIX.encode()


class Meaning(Enum):
    """Of a status."""

    #: A heartbeat, or a question of flow control.
    ALIVE = auto()
    #: A pull has ended, and nothing is wrong.
    ENDED = auto()
    #: A pull has ended, and the next one may do better.
    AGAIN = auto()
    #: A pull has ended, as the next message is larger than what it has room for.
    TOO_LARGE = auto()
    ERROR = auto()


#: What comes with a code, by the beginning of its text; the first that fits.
_MEANINGS: Final[tuple[tuple[int, str, Meaning], ...]] = (
    (100, "", Meaning.ALIVE),
    (404, "", Meaning.ENDED),
    (408, "", Meaning.ENDED),
    (409, "batch completed", Meaning.ENDED),
    (409, "leadership change", Meaning.AGAIN),
    (409, "server shutdown", Meaning.AGAIN),
    (409, "exceeded maxwaiting", Meaning.AGAIN),
    (409, "message size exceeds", Meaning.TOO_LARGE),
    (409, "", Meaning.ERROR),
    (503, "", Meaning.AGAIN),
    (400, "", Meaning.ERROR),
)


def status_of(wire: Deliver) -> Status | None:
    """None: it is a message. One of a stream may look like a status, as anybody can publish that."""
    if wire.payload or not wire.block.startswith(_PREFIX) or wire.reply.startswith(_ACK_PREFIX):
        return None
    try:
        return wire.status
    except BadHeaders:
        return None


def meaning_of(status: Status) -> Meaning:
    text = status.text.lower()
    for code, beginning, meaning in _MEANINGS:
        if status.code == code and text.startswith(beginning):
            return meaning
    return Meaning.ERROR


def error_of(status: Status) -> StatusError:
    text = status.text or ("nobody answers" if status.code == 503 else "")
    is_known = any(status.code == code for code, _, _ in _MEANINGS)
    return (StatusError if is_known else UnknownStatus)(status.code, text)


def number_in(wire: Deliver, header: str) -> int | None:
    """None: it has no such header, or no number in it."""
    return number_of(wire.headers.get(header, ""))
