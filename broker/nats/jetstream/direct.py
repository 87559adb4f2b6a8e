"""Direct get (ADR-31): messages of a stream with their headers, not in JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream import direct_batches
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
#: What a request may look for. One that has nothing of it says nothing.
_LOOKED_FOR: Final = ("seq", "last_by_subj", "next_by_subj", "start_time", "multi_last")

#: What says nothing beside a subject behind the stream's name.
_IN_PLACE_OF_SUBJECT: Final = (*_LOOKED_FOR, "batch", "up_to_seq", "up_to_time")


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


async def answer(jetstream: JetStream, request: ApiRequest, stream: Stream, reply: bytes) -> tuple[bytes, bytes]:
    """The payload and the block of headers of the only answer, or of the one behind all messages of a batch. A subject
    behind the stream's name asks for its last message."""
    try:
        request.check_level()
        if request.rest:
            if any(map(request.body.get, _IN_PLACE_OF_SUBJECT)):
                raise BAD_REQUEST()
            request = replace(request, payload=json.dumps({"last_by_subj": request.rest}).encode())
        if not any(map(request.body.get, _LOOKED_FOR)):
            return b"", encode_headers(NO_HEADERS, _EMPTY)
        if direct_batches.asks_several(request):
            return b"", await direct_batches.send(jetstream, request, stream, reply)
        found = await find_message(jetstream, request, stream)
    except (ApiError, StreamError, StoreError) as error:
        return b"", encode_headers(NO_HEADERS, _STATUSES.get(refusal_of(error).err_code, _MISSING))
    return found.message.payload, with_origin(found, stream.name)
