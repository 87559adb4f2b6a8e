"""Fast batches (ADR-50): what a publisher says in its reply subject, and what a stream answers there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from trunkline.nats.jetstream.fields import BadReply, from_json
from trunkline.nats.jetstream.replies import PublishAck, error_of, parse
from trunkline.nats.protocol.numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.nats.jetstream.replies import ApiError

#: The level of the API, in INFO, from which servers know fast batches. An older one would take each message by itself.
API_LEVEL: Final = 4
#: Of acknowledgements: a stream acknowledges at least once in so many messages.
MAX_EVERY: Final = 0xFFFF
#: Errors behind which the stream knows nothing of the batch: not allowed, cannot be, not known, too many.
ENDING: Final = frozenset({10205, 10206, 10208, 10211})


class Step(IntEnum):
    """What a publication does to its batch."""

    START = 0
    APPEND = 1
    #: The end, with no message of its own.
    END = 3
    PING = 4


@dataclass(frozen=True, slots=True)
class FlowAck:
    """The messages up to this one are taken; if gaps are allowed, those of them that came."""

    sequence: int
    #: The next one comes after so many messages.
    every: int


@dataclass(frozen=True, slots=True)
class FlowGap:
    """This message came where `expected` was."""

    expected: int
    sequence: int


@dataclass(frozen=True, slots=True)
class FlowRefusal:
    """The stream does not take this message."""

    sequence: int
    error: ApiError


Answer: TypeAlias = FlowAck | FlowGap | FlowRefusal | PublishAck


def knows_fast_batches(server: Mapping[str, Any]) -> bool:
    level = server.get("api_lvl")
    return isinstance(level, int) and level >= API_LEVEL


def reply_subject(inbox: bytes, every: int, sequence: int, step: Step, *, gaps: bool) -> bytes:
    """The last token of the `inbox` is the id of the batch."""
    return b"%b.%d.%b.%d.%d.$FI" % (inbox, every, b"ok" if gaps else b"fail", sequence, step)


def asked_by(subject: bytes) -> tuple[int, int]:
    """The sequence and the step of the publication that is answered at this subject; zeros: it is none."""
    numbers = [number for token in subject.split(b".")[-3:-1] if (number := number_of(token)) is not None]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def answer_of(payload: bytes) -> Answer:
    """
    Raises:
        ApiError: the publication is refused.
        BadReply: this is no answer.
    """
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or "type" not in said:
        return from_json(PublishAck, parse(payload))
    reply = cast("dict[str, Any]", said)
    match reply["type"]:
        case "ack":
            return FlowAck(_whole(reply, "seq"), _whole(reply, "msgs"))
        case "gap":
            return FlowGap(_whole(reply, "last_seq"), _whole(reply, "seq"))
        case "err" if (error := error_of(reply)) is not None:
            return FlowRefusal(_whole(reply, "seq"), error)
        case _:
            raise BadReply(f"{payload[:80]!r} is no answer to a batch")


def _whole(reply: Mapping[str, Any], name: str) -> int:
    value = reply.get(name)
    if not isinstance(value, int) or value < 0:
        raise BadReply(f"{name}: {value!r:.80}")
    return value
