"""Errors of JetStream's API as servers number and word them, and which of them an error of a stream is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.nats.jetstream.replies import ApiError
from trunkline.store import StoreError
from trunkline.streams import errors

if TYPE_CHECKING:
    from collections.abc import Callable

# Each is made when it is raised: one that is kept would keep the last client that it was raised for.
BAD_REQUEST: Final = partial(ApiError, 400, 10003, "bad request")
BAD_JSON: Final = 10025
NOT_EMPTY: Final = partial(ApiError, 400, 10038, "expected an empty request payload")
STREAM_MISSING: Final = partial(ApiError, 404, 10059, "stream not found")
CONSUMER_MISSING: Final = partial(ApiError, 404, 10014, "consumer not found")
MESSAGE_MISSING: Final = partial(ApiError, 404, 10037, "no message found")
OTHER_NAME: Final = partial(ApiError, 400, 10056, "stream name in subject does not match request")
NAME_TAKEN: Final = partial(ApiError, 400, 10058, "stream name already in use with a different configuration")
CONSUMER_TAKEN: Final = partial(ApiError, 400, 10148, "consumer already exists")
TOO_MANY_STREAMS: Final = partial(ApiError, 400, 10027, "maximum number of streams reached")
TOO_MANY_CONSUMERS: Final = partial(ApiError, 400, 10026, "maximum consumers limit reached")
OVERLAP: Final = partial(ApiError, 400, 10065, "subjects overlap with an existing stream")
REPLICAS: Final = partial(ApiError, 500, 10074, "replicas > 1 not supported in non-clustered mode")
SEALED: Final = partial(ApiError, 400, 10109, "invalid operation on sealed stream")
TOO_LARGE: Final = partial(ApiError, 400, 10054, "message size exceeds maximum allowed")
NOT_STORED: Final = partial(ApiError, 503, 10008, "JetStream system temporarily unavailable")

LEVEL_TOO_HIGH: Final = partial(ApiError, 412, 10185, "JetStream minimum api level required")


def bad_json(why: str) -> ApiError:
    return ApiError(400, BAD_JSON, f"invalid JSON: {why}")


def bad_stream(why: str) -> ApiError:
    return ApiError(500, 10052, why)


def bad_consumer(why: str) -> ApiError:
    return ApiError(500, 10012, why)


#: What an error of a stream is to a client; the first that fits.
_KNOWN: Final[tuple[tuple[type[Exception], Callable[[], ApiError]], ...]] = (
    (errors.StreamNotFound, STREAM_MISSING),
    (errors.ConsumerNotFound, CONSUMER_MISSING),
    (errors.MessageNotFound, MESSAGE_MISSING),
    (errors.FiltersTaken, OVERLAP),
    (errors.StreamExists, NAME_TAKEN),
    (errors.ConsumerBound, partial(ApiError, 400, 10013, "consumer name already in use")),
    (errors.ConsumerExists, CONSUMER_TAKEN),
    (errors.MessageTooLarge, TOO_LARGE),
    (errors.StreamSealed, SEALED),
    (errors.RollupForbidden, partial(ApiError, 500, 10111, "rollup not permitted")),
    (errors.InvalidLife, partial(ApiError, 400, 10165, "invalid per-message TTL")),
    (errors.LifeForbidden, partial(ApiError, 400, 10166, "per-message TTL is disabled")),
    (errors.StreamsNotOffered, partial(ApiError, 503, 10076, "JetStream not enabled")),
    (StoreError, NOT_STORED),
)
_FORBIDDEN: Final = {
    "sealed": SEALED,
    "delete": partial(ApiError, 500, 10057, "message delete not permitted"),
    "purge": partial(ApiError, 500, 10110, "stream purge not permitted"),
}
_FULL: Final = {"messages": "messages", "bytes": "bytes", "topic": "messages per subject"}


def as_json(refusal: ApiError) -> dict[str, int | str]:
    return {"code": refusal.code, "err_code": refusal.err_code, "description": refusal.description}


def refusal_of(error: Exception) -> ApiError:
    """What a client is told of an error; raised again if it is none that a client has to do with."""
    match error:
        case ApiError():
            return error
        case errors.StreamForbids():
            return _FORBIDDEN[error.why]()
        case errors.WrongLastSequence():
            return ApiError(400, 10071, f"wrong last sequence: {error.actual}")
        case errors.WrongLastId():
            return ApiError(400, 10070, f"wrong last msg ID: {error.actual}")
        case errors.StreamFull():
            return ApiError(503, 10077, f"maximum {_FULL[error.limit]} exceeded")
        case _:
            known = next((refusal for kind, refusal in _KNOWN if isinstance(error, kind)), None)
    if known is not None:
        return known()
    if isinstance(error, errors.StreamRefuses):
        return ApiError(503, 10077, str(error))
    if isinstance(error, errors.InvalidStreamConfig):
        return bad_stream(str(error))
    raise error
