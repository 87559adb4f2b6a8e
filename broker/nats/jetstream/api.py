"""The API: requests to `$JS.API.…`, each of which gets one answer in JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trunkline.broker.nats.jetstream import consumer_requests, stream_requests
from trunkline.broker.nats.jetstream.refusals import as_json, refusal_of
from trunkline.broker.nats.jetstream.requests import ApiRequest
from trunkline.nats.jetstream.replies import ApiError
from trunkline.store import StoreError
from trunkline.streams.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.broker.nats.jetstream.node import JetStream

PREFIX: Final = "$JS.API."
Handler: TypeAlias = "Callable[[JetStream, ApiRequest], Coroutine[Any, Any, dict[str, Any]]]"


class Verb(NamedTuple):
    #: What the answer calls itself.
    kind: str
    handler: Handler
    #: Names that the subject has: of a stream, and of a consumer.
    names: int = 0
    #: Whether more tokens may follow, a subject.
    has_more: bool = False


VERBS: Final[dict[str, Verb]] = {
    "INFO": Verb("account_info", stream_requests.account),
    "STREAM.CREATE": Verb("stream_create", stream_requests.create, 1),
    "STREAM.UPDATE": Verb("stream_update", stream_requests.update, 1),
    "STREAM.DELETE": Verb("stream_delete", stream_requests.delete, 1),
    "STREAM.INFO": Verb("stream_info", stream_requests.info, 1),
    "STREAM.NAMES": Verb("stream_names", stream_requests.names),
    "STREAM.LIST": Verb("stream_list", stream_requests.listing),
    "STREAM.PURGE": Verb("stream_purge", stream_requests.purge, 1),
    "STREAM.MSG.GET": Verb("stream_msg_get", stream_requests.get_message, 1),
    "STREAM.MSG.DELETE": Verb("stream_msg_delete", stream_requests.delete_message, 1),
    "CONSUMER.CREATE": Verb("consumer_create", consumer_requests.create, 2, has_more=True),
    "CONSUMER.DURABLE.CREATE": Verb("consumer_create", consumer_requests.create_durable, 2),
    "CONSUMER.INFO": Verb("consumer_info", consumer_requests.info, 2),
    "CONSUMER.NAMES": Verb("consumer_names", consumer_requests.names, 1),
    "CONSUMER.LIST": Verb("consumer_list", consumer_requests.listing, 1),
    "CONSUMER.DELETE": Verb("consumer_delete", consumer_requests.delete, 2),
    "CONSUMER.PAUSE": Verb("consumer_pause", consumer_requests.pause, 2),
    "CONSUMER.UNPIN": Verb("consumer_unpin", consumer_requests.unpin, 2),
}
#: Tokens of the longest verb.
_MOST: Final = max(name.count(".") + 1 for name in VERBS)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a subject asks for."""

    verb: Verb
    stream: str = ""
    consumer: str = ""
    rest: str = ""


def asked_by(subject: str) -> Asked | None:
    """None: nobody answers such a request."""
    tokens = subject[len(PREFIX) :].split(".")
    for length in range(min(_MOST, len(tokens)), 0, -1):
        verb = VERBS.get(".".join(tokens[:length]))
        if verb is not None:
            return _names_of(verb, tokens[length:])
    return None


def _names_of(verb: Verb, names: list[str]) -> Asked | None:
    least = 1 if verb.has_more else verb.names
    if len(names) < least or (len(names) > verb.names and not verb.has_more) or not all(names):
        return None
    stream, consumer, rest = (*names[: verb.names], "", "")[0], "", ""
    if verb.names > 1:
        consumer, rest = "".join(names[1:2]), ".".join(names[2:])
    return Asked(verb, stream, consumer, rest)


async def answer(jetstream: JetStream, asker: Asker, asked: Asked, payload: bytes, block: bytes = b"") -> bytes:
    said: dict[str, Any] = {"type": f"io.nats.jetstream.api.v1.{asked.verb.kind}_response"}
    try:
        request = ApiRequest(asker, asked.stream, asked.consumer, asked.rest, payload, block)
        request.check_level()
        said |= await asked.verb.handler(jetstream, request)
    except (ApiError, StreamError, StoreError) as error:
        said["error"] = as_json(refusal_of(error))
        jetstream.errors += 1
    return json.dumps(said, separators=(",", ":")).encode()
