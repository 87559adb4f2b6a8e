"""What JetStream's API answers."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003  the hints of the fields are looked at
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, cast

from trunkline.nats.errors import NatsError
from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.fields import BadReply, Form, Moment, Part, from_json


class ApiError(NatsError):
    """An error of JetStream, in the server's words. `code` is as in HTTP, and `err_code` says which one it is."""

    #: Those that have a class of their own.
    by_code: ClassVar[dict[int, type[ApiError]]] = {}

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})" if err_code else description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def __init_subclass__(cls, *, err_codes: tuple[int, ...]) -> None:
        ApiError.by_code |= dict.fromkeys(err_codes, cls)


class StreamMissing(ApiError, err_codes=(10059,)):
    """There is no such stream."""


class ConsumerMissing(ApiError, err_codes=(10014,)):
    """There is no such consumer."""


class MessageMissing(ApiError, err_codes=(10037,)):
    """There is no such message, or not any more."""


class NameTaken(ApiError, err_codes=(10058, 10013, 10148)):
    """The stream, or the consumer, is there already and is another one."""


class WrongLast(ApiError, err_codes=(10071, 10164)):
    """The stream, or the subject in it, is not where the publisher expected it to be."""


class NotEnabled(ApiError, err_codes=(10076, 10039)):
    """The server, or the account, has no JetStream."""


def error_of(reply: Mapping[str, Any]) -> ApiError | None:
    """What a reply says to be wrong."""
    said = reply.get("error")
    if said is None:
        return None
    if not isinstance(said, dict):
        raise BadReply(f"error: {said!r:.80}")
    error = cast("dict[str, Any]", said)
    code, err_code = _whole(error.get("code")), _whole(error.get("err_code"))
    return ApiError.by_code.get(err_code, ApiError)(code, err_code, str(error.get("description") or "no description"))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def parse(payload: bytes) -> dict[str, Any]:
    """
    Raises:
        ApiError: the server refuses what was asked for.
        BadReply: this is no answer of JetStream.
    """
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{payload[:80]!r} is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadReply(f"{payload[:80]!r} is no object")
    reply = cast("dict[str, Any]", said)
    found = error_of(reply)
    if found is not None:
        raise found
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    messages: int = 0
    bytes: int = 0
    first_sequence: Annotated[int, Form("first_seq")] = 0
    first_time: Annotated[float | None, Moment("first_ts")] = None
    last_sequence: Annotated[int, Form("last_seq")] = 0
    last_time: Annotated[float | None, Moment("last_ts")] = None
    deleted: Annotated[int, Form("num_deleted")] = 0
    subjects: Annotated[int, Form("num_subjects")] = 0
    consumers: Annotated[int, Form("consumer_count")] = 0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    config: Annotated[StreamConfig, Part(kind=StreamConfig)]
    state: Annotated[StreamState, Part(kind=StreamState)]
    created: Annotated[float | None, Moment()] = None
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePair:
    """How far a consumer is."""

    consumer: Annotated[int, Form("consumer_seq")] = 0
    stream: Annotated[int, Form("stream_seq")] = 0
    last_active: Annotated[float | None, Moment()] = None
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerInfo:
    stream: Annotated[str, Form("stream_name")]
    name: str
    config: Annotated[ConsumerConfig, Part(kind=ConsumerConfig)]
    delivered: Annotated[SequencePair, Part(kind=SequencePair)]
    ack_floor: Annotated[SequencePair, Part(kind=SequencePair)]
    ack_pending: Annotated[int, Form("num_ack_pending")] = 0
    redelivered: Annotated[int, Form("num_redelivered")] = 0
    waiting: Annotated[int, Form("num_waiting")] = 0
    pending: Annotated[int, Form("num_pending")] = 0
    #: Of a push consumer: somebody subscribes to its deliver subject.
    push_bound: bool = False
    paused: bool = False
    created: Annotated[float | None, Moment()] = None
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishAck:
    """A stream has taken a message."""

    stream: str
    sequence: Annotated[int, Form("seq")]
    #: It had the message already, by its `Nats-Msg-Id`.
    duplicate: bool = False
    domain: str = ""
    #: Of a batch: its id, and how many messages it had. The sequence is that of the last one.
    batch: str = ""
    count: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


def publish_ack_of(payload: bytes) -> PublishAck:
    """Raises as `parse` does."""
    return from_json(PublishAck, parse(payload))
