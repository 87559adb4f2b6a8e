"""Direct get: a message of a stream with its headers, not in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream.messages import with_origin
from trunkline.broker.nats.jetstream.refusals import BAD_JSON, BAD_REQUEST, NOT_STORED, refusal_of
from trunkline.broker.nats.jetstream.stream_configs import kept_in
from trunkline.broker.nats.jetstream.stream_requests import find_message
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.headers import NO_HEADERS, Status, encode_headers
from trunkline.store import StoreError
from trunkline.streams.errors import StreamError

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.broker.nats.jetstream.requests import ApiRequest
    from trunkline.streams.stream import Stream

PREFIX: Final = "$JS.API.DIRECT.GET."
_EMPTY: Final = Status(408, "Empty Request")
_MISSING: Final = Status(404, "Message Not Found")
#: By the number of the error; what may not be read is not there.
_STATUSES: Final = {
    BAD_REQUEST().err_code: Status(408, "Bad Request"),
    BAD_JSON: Status(408, "Malformed Request"),
    NOT_STORED().err_code: Status(503, "Stream Unavailable"),
}


def stream_of(jetstream: JetStream, name: str) -> Stream | None:
    """The stream of this name, if it is read so; where it is not there, one that mirrors it and answers for it."""
    stream = jetstream.registry.find(name)
    if stream is not None:
        return stream if kept_in(stream.config.metadata).get("allow_direct") else None
    for each in jetstream.registry:
        mirror = each.config.mirror
        if mirror is not None and mirror.stream == name and kept_in(each.config.metadata).get("mirror_direct"):
            return each
    return None


async def answer(jetstream: JetStream, request: ApiRequest, stream: Stream) -> tuple[bytes, bytes]:
    """The payload and the block of headers. A subject behind the stream's name asks for its last message."""
    if request.payload.strip() in (b"", b"{}"):
        return b"", encode_headers(NO_HEADERS, _EMPTY)
    try:
        found = await find_message(jetstream, request, stream)
    except (ApiError, StreamError, StoreError) as error:
        return b"", encode_headers(NO_HEADERS, _STATUSES.get(refusal_of(error).err_code, _MISSING))
    return found.message.payload, with_origin(found, stream.name)
