"""What a publisher expects of a stream, which is compared with it when its message comes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.streams.search import FilterLast
    from trunkline.streams.stream import Stream

LAST_OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
LAST: Final = "Nats-Expected-Last-Sequence"
LAST_ID: Final = "Nats-Expected-Last-Msg-Id"
#: Errors of a stream that is another one, or has another last message.
NOT_AS_EXPECTED: Final = frozenset({10060, 10070, 10071})
#: What is not offered.
_REFUSED: Final = {
    "Nats-Incr": partial(ApiError, 400, 10168, "message counters is disabled"),
    "Nats-Schedule": partial(ApiError, 400, 10188, "message schedules is disabled"),
}
_NO_SEQUENCE: Final = partial(ApiError, 400, 10193, "missing sequence for expected last sequence per subject")


def check_offered(stream: Stream, demands: Mapping[str, str]) -> None:
    """
    Raises:
        ApiError: it is for another stream, or demands what is not offered.
    """
    for name in _REFUSED.keys() & demands.keys():
        raise _REFUSED[name]()
    if demands.get("Nats-Expected-Stream", stream.name) != stream.name:
        raise ApiError(400, 10060, "expected stream does not match")


def expect(stream: Stream, topic: str, demands: Mapping[str, str], last: FilterLast | None) -> None:
    """Of a message with this topic; `last` is that of `OF_SUBJECT`.

    Raises:
        ApiError, StreamError: it is not as expected.
    """
    last_of_subject = number(demands.get(LAST_OF_SUBJECT))
    if last is not None and last_of_subject is None:
        raise _NO_SEQUENCE()
    stream.expect(
        stream.naming.topic(topic), number(demands.get(LAST)), last_of_subject, demands.get(LAST_ID) or None, last
    )


def number(text: str | None) -> int | None:
    """What is no number is none that there could be."""
    if text is None:
        return None
    found = number_of(text)
    return -1 if found is None else found


def is_to_be_looked_up(stream: Stream, topic: str, demands: Mapping[str, str]) -> bool:
    """Does the publisher of a message with this topic expect something that is not known at once?"""
    return OF_SUBJECT in demands or (LAST_OF_SUBJECT in demands and not is_exact(stream, topic))


def is_exact(stream: Stream, topic: str) -> bool:
    """Is the last sequence of what comes with a topic known?"""
    figures = stream.log.topics.get(stream.naming.topic(topic))
    return figures is None or figures.exact
