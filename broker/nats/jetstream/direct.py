"""Direct get: a message of a stream with its headers, not in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream.messages import with_origin
from trunkline.broker.nats.jetstream.refusals import BAD_JSON, BAD_REQUEST, LEVEL_TOO_HIGH, NOT_STORED, refusal_of
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
#: What asks for several messages, which is not offered: one alone would let a client wait for the others.
_MANY: Final = ("batch", "multi_last")
_EMPTY: Final = Status(408, "Empty Request")
TOO_HIGH: Final = Status(412, "Required Api Level")
_MISSING: Final = Status(404, "Message Not Found")
#: By the number of the error; what may not be read is not there.
_STATUSES: Final = {
    BAD_REQUEST().err_code: Status(408, "Bad Request"),
    BAD_JSON: Status(408, "Malformed Request"),
    NOT_STORED().err_code: Status(503, "Stream Unavailable"),
    LEVEL_TOO_HIGH().err_code: TOO_HIGH,
}


def stream_of(jetstream: JetStream, name: str) -> Stream | None:
    """The stream of this name, if it is read so."""
    stream = jetstream.registry.find(name)
    return stream if stream is not None and kept_in(stream.config.metadata).get("allow_direct") else None


async def answer(jetstream: JetStream, request: ApiRequest, stream: Stream) -> tuple[bytes, bytes]:
    """The payload and the block of headers. A subject behind the stream's name asks for its last message."""
    try:
        request.check_level()
        if request.payload.strip() in (b"", b"{}"):
            return b"", encode_headers(NO_HEADERS, _EMPTY)
        if any(request.body.get(name) for name in _MANY):
            raise BAD_REQUEST()
        found = await find_message(jetstream, request, stream)
    except (ApiError, StreamError, StoreError) as error:
        return b"", encode_headers(NO_HEADERS, _STATUSES.get(refusal_of(error).err_code, _MISSING))
    return found.message.payload, with_origin(found, stream.name)
