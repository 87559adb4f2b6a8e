"""A test's expectation of a message. If none fulfils it, the failure shows the published messages, the nearest
first."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from trunkline.broker.traced_message import DROPPED
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import matches, validate_filter
from trunkline.testing.published import MAX_SHOWN, from_whom
from trunkline.testing.source_text import WIDTH, shortened, written_as

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.testing.published import Published

T = TypeVar("T")


@final
class Anything:
    """The type of ANY."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ANY"


#: Stands for every payload. (None is JSON's null.)
ANY: Final = Anything()


def call_plain(function: Callable[..., T], *args: object) -> T:
    """Call a function of the test.

    Raises:
        TypeError: it is async: a coroutine would always be true.
    """
    __tracebackhide__ = True
    answer = function(*args)
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns that it was never awaited
    if inspect.isawaitable(answer):
        raise TypeError(f"{written_as(function)} is async, but is not awaited here: a plain function is needed")
    return answer


@dataclass(frozen=True, slots=True)
class Expected:
    topic_filter: str
    #: Bytes, text, a value that is compared as JSON, or a callable that takes bytes and judges.
    payload: Any = ANY
    qos: int | None = None
    retain: bool | None = None
    publisher: str | None = None
    #: Client id of a client that it must have been delivered to.
    to: str | None = None
    predicate: Callable[[Published], object] | None = None

    def __post_init__(self) -> None:
        try:
            validate_filter(self.topic_filter)
        except ProtocolError as error:
            raise ValueError(str(error)) from None

    def __str__(self) -> str:
        """The rest of a sentence that begins with "no message" or "2 messages"."""
        parts = [
            "" if self.topic_filter == "#" else f"on {self.topic_filter!r}",
            "" if self.payload is ANY else f"with payload {_wanted(self.payload)}",
            "" if self.qos is None else f"at QoS {self.qos}",
            "" if self.retain is None else ("with RETAIN" if self.retain else "without RETAIN"),
            "" if self.publisher is None else from_whom(self.publisher),
            "" if self.predicate is None else f"for which {written_as(self.predicate)} is true",
        ]
        return "".join(f" {part}" for part in parts if part)

    def met_by(self, message: Published) -> bool:
        return matches(self.topic_filter, message.topic) and not self.differences(message)

    def differences(self, message: Published) -> list[str]:
        """The differences from the expectation."""
        found: list[str] = []
        if not matches(self.topic_filter, message.topic):
            found.append("another topic")
        if message.refused:
            found.append(f"the broker refused it ({message.refused})")
        elif not message.routed:
            found.append("not published yet: a hook keeps it, or its PUBREL has not come")
        if self.payload is not ANY and (difference := payload_difference(self.payload, message.payload)):
            found.append(difference)
        if self.qos is not None and message.qos != self.qos:
            found.append(f"QoS {message.qos}, not {self.qos}")
        if self.retain is not None and message.retain != self.retain:
            found.append("RETAIN is set" if message.retain else "RETAIN is not set")
        if self.publisher is not None and message.publisher != self.publisher:
            found.append(f"{from_whom(message.publisher)}, not {from_whom(self.publisher)}")
        if self.to is not None and self.to not in message.delivered_to:
            found.append(f"for {self.to!r}: {message.fate(self.to)}")
        if not found and self.predicate is not None and not call_plain(self.predicate, message):
            found.append(f"{written_as(self.predicate)} is false")
        return found


def payload_difference(wanted: Any, payload: bytes) -> str:
    """How a payload differs from the expected one; empty if it does not."""
    if callable(wanted):
        return "" if call_plain(wanted, payload) else f"{written_as(wanted)} is false of payload {_cut(payload)}"
    if isinstance(wanted, str):
        wanted = wanted.encode()
    if isinstance(wanted, bytes | bytearray):
        if payload == wanted:
            return ""
        same = next((n for n, (a, b) in enumerate(zip(payload, wanted, strict=False)) if a != b), None)
        at = min(len(payload), len(wanted)) if same is None else same
        where = f" (they differ from byte {at} on)" if at >= WIDTH // 4 else ""
        return f"payload {_cut(payload)}, not {_cut(bytes(wanted))}{where}"
    try:
        found = json.loads(payload)
    except ValueError:
        return f"payload {_cut(payload)}, which is not JSON"
    return _json_difference(wanted, found, "payload")


def _json_difference(wanted: Any, found: Any, path: str) -> str:
    """The first place at which two JSON values differ; empty if there is none."""
    kinds: set[type] = {type(wanted), type(found)}
    if kinds == {dict}:
        return _object_difference(wanted, found, path)
    if kinds <= {list, tuple}:
        return _array_difference(wanted, found, path)
    same = wanted == found and (bool not in kinds or len(kinds) == 1)  # True is 1 to Python, not to JSON
    return "" if same else f"{path} is {_cut(found)}, not {_cut(wanted)}"


def _object_difference(wanted: dict[Any, Any], found: dict[str, Any], path: str) -> str:
    for key, value in wanted.items():
        if key not in found:
            return f"{path} has no {key!r}"
        if difference := _json_difference(value, found[key], f"{path}[{key!r}]"):
            return difference
    return next((f"{path} has {key!r} too" for key in found if key not in wanted), "")


def _array_difference(wanted: Sequence[Any], found: list[Any], path: str) -> str:
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if difference := _json_difference(one, other, f"{path}[{index}]"):
            return difference
    return "" if len(wanted) == len(found) else f"{path} has {len(found)} items, not {len(wanted)}"


def nearest(expected: Expected, messages: Sequence[Published]) -> list[Published]:
    """All messages, the nearest to what is expected first."""
    from difflib import SequenceMatcher  # only needed to explain a failure

    matcher = SequenceMatcher(a="", b=expected.topic_filter, autojunk=False)
    alike: dict[str, float] = {}

    def rank(message: Published) -> tuple[float, int, int, int]:
        topic = message.topic
        if topic not in alike:
            matcher.set_seq1(topic)
            alike[topic] = 2.0 if matches(expected.topic_filter, topic) else matcher.ratio()
        return -alike[topic], len(expected.differences(message)), way(message), -message.number

    def way(message: Published) -> int:
        """For a delivery: what was lost comes first, then what is under way."""
        state = "" if expected.to is None else message.fate(expected.to).state
        return 0 if state == DROPPED else 1 if state else 2

    return sorted(messages, key=rank)


def describe_instead(expected: Expected, messages: Sequence[Published]) -> str:
    """The lines of a failure that say what was published instead."""
    if not messages:
        return "nothing was published"
    lines = [
        f"{message}: {'; '.join(expected.differences(message))}" for message in nearest(expected, messages)[:MAX_SHOWN]
    ]
    nearest_of = f"the nearest of {len(messages)} messages that were" if len(messages) > MAX_SHOWN else "what was"
    return _list(f"{nearest_of} published instead:", lines, len(messages))


def describe_found(messages: Sequence[Published]) -> str:
    """The lines of a failure that say which were found."""
    return _list("these were:", [str(message) for message in messages[:MAX_SHOWN]], len(messages))


def _list(head: str, lines: Sequence[str], total: int) -> str:
    more = [f"  … and {total - len(lines)} more"] if total > len(lines) else []
    return "\n".join([head, *[f"  {line}" for line in lines], *more])


def counted(number: int, name: str) -> str:
    """`1 message`, `2 messages`"""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _wanted(payload: Any) -> str:
    return written_as(payload) if callable(payload) else _cut(payload)


def _cut(value: object) -> str:
    return shortened(repr(value))
