"""One message of a stream: as the leader of the stream tells it, and as any server does that has it (ADR-31)."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trunkline.nats.errors import BadHeaders, NoResponders, RequestTimeout
from trunkline.nats.jetstream.fields import BadReply, Moment
from trunkline.nats.jetstream.replies import ApiError, MessageMissing
from trunkline.nats.protocol.headers import NO_HEADERS, Headers, decode_headers
from trunkline.nats.protocol.numbers import number_of
from trunkline.nats.protocol.subjects import has_wildcard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.nats.client.jetstream.subscribed import Api
    from trunkline.nats.client.message import Message

#: What a server puts behind the headers of a message that it tells directly.
_SUBJECT: Final = "Nats-Subject"
_SEQUENCE: Final = "Nats-Sequence"
_TIME: Final = "Nats-Time-Stamp"
#: Of a batch: how many messages are left.
PENDING: Final = "Nats-Num-Pending"
_OWN: Final = ("Nats-Stream", _SUBJECT, _SEQUENCE, _TIME, PENDING, "Nats-Last-Sequence")

_NOT_FOUND: Final = 404
#: The server's number of it, which is not told directly.
_NO_MESSAGE: Final = 10037


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a stream."""

    stream: str
    sequence: int
    subject: str
    payload: bytes
    headers: Headers
    #: When the stream took it, in seconds since the epoch.
    time: float


def stored_of(stream: str, reply: Mapping[str, Any]) -> StoredMessage:
    """From the leader's answer.

    Raises:
        BadReply: it has no message.
    """
    try:
        message = reply["message"]
        block = b64decode(message.get("hdrs") or "", validate=True)
        headers = decode_headers(block)[1] if block else NO_HEADERS
        at = Moment().read(message["time"])
        payload = b64decode(message.get("data") or "", validate=True)
        return StoredMessage(stream, int(message["seq"]), str(message["subject"]), payload, headers, at or 0.0)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, NotBase64) as error:
        raise BadReply(f"{reply!r:.80} has no message") from error


async def get_directly(api: Api, stream: str, body: Mapping[str, Any], seconds: float) -> StoredMessage | None:
    """None: nobody answers directly, as the stream does not allow it, or is not there. Some servers say nothing then.

    Raises:
        MessageMissing: there is none.
        BadReply: what is answered is no message of a stream.
    """
    what, payload = f"DIRECT.GET.{stream}", json.dumps(body).encode()
    last = body.get("last_by_subj")
    if last and not has_wildcard(last):  # a user may have the right to ask for some subjects alone
        what, payload = f"{what}.{last}", b""
    try:
        answer = await api.client.request(f"{api.prefix}.{what}", payload, timeout=seconds)
    except (NoResponders, RequestTimeout):
        return None
    return told_directly(stream, answer)


def told_directly(stream: str, answer: Message) -> StoredMessage:
    """From an answer to a direct get.

    Raises:
        MessageMissing, ApiError: it is a status.
        BadReply: it is no message of a stream.
    """
    try:
        status, headers = answer.status, answer.headers
        if status is not None:
            if status.code == _NOT_FOUND:
                raise MessageMissing(status.code, _NO_MESSAGE, status.text or "no message found")
            raise ApiError(status.code, 0, status.text or "no description")
        # the last ones: a message that was published once more has such headers of its own
        subject, sequence, time = (headers.all(name)[-1] for name in (_SUBJECT, _SEQUENCE, _TIME))
        at = Moment().read(time)
        if (number := number_of(sequence)) is None:
            raise ValueError(sequence)
        return StoredMessage(stream, number, subject, answer.payload, _without_own(headers), at or 0.0)
    except (IndexError, ValueError, OverflowError, BadHeaders) as error:
        raise BadReply(f"{answer!r} is no message of a stream") from error


def _without_own(headers: Headers) -> Headers:
    left = Headers()
    for name in headers:
        values = headers.all(name)
        for value in values[:-1] if name in _OWN else values:
            left.add(name, value)
    return left
