"""What is wrong with a message, in words that lead to the mistake."""

from typing import Any

import pytest

from trunkline.broker.traced_message import TracedMessage
from trunkline.mqtt.message import Message
from trunkline.testing.expecting import (
    ANY,
    MAX_SHOWN,
    Expected,
    describe_found,
    describe_instead,
    nearest,
    payload_difference,
)
from trunkline.testing.published import Published


def published(topic: str, payload: bytes = b"", number: int = 1, **settings: Any) -> Published:
    record = TracedMessage(Message(topic, payload, **{"publisher": "p", **settings}), number, 1000, whole=True)
    record.begun = record.routed = True
    return Published(record, lambda client_id: True)


@pytest.mark.parametrize(
    ("wanted", "payload"),
    [
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        ("größe", "größe".encode()),
        (21, b"21"),
        (21, b"21.0"),
        (None, b"null"),
        (True, b"true"),
        ({"a": [1, {"b": None}]}, b'{"a":[1,{"b":null}]}'),
        ((1, 2), b"[1, 2]"),
        (lambda payload: payload.startswith(b"x"), b"xyz"),
    ],
)
def test_payloads_that_are_as_wanted(wanted: Any, payload: bytes) -> None:
    assert payload_difference(wanted, payload) == ""


def empty(payload: bytes) -> bool:
    return not payload


@pytest.mark.parametrize(
    ("wanted", "payload", "difference"),
    [
        (b"x", b"y", "payload b'y', not b'x'"),
        ("x", b"", "payload b'', not b'x'"),
        (b"x" * 60, b"x" * 50 + b"y", f"payload b'{'x' * 50}y', not b'{'x' * 60}' (they differ from byte 50 on)"),
        (b"x" * 50, b"x" * 60, f"payload b'{'x' * 60}', not b'{'x' * 50}' (they differ from byte 50 on)"),
        (21, b"20", "payload is 20, not 21"),
        (True, b"1", "payload is 1, not True"),
        (1, b"true", "payload is True, not 1"),
        ({"a": 1}, b"not json", "payload b'not json', which is not JSON"),
        ({"a": 1}, b"\xff", "payload b'\\xff', which is not JSON"),
        ({"a": {"b": [1, 2]}}, b'{"a": {"b": [1, 3]}}', "payload['a']['b'][1] is 3, not 2"),
        ({"a": 1, "b": 2}, b'{"a": 1}', "payload has no 'b'"),
        ({"a": 1}, b'{"a": 1, "b": 2}', "payload has 'b' too"),
        ([1, 2], b"[1]", "payload has 1 items, not 2"),
        ({"a": [1]}, b'{"a": {"x": 1}}', "payload['a'] is {'x': 1}, not [1]"),
        (empty, b"x", "empty is false of payload b'x'"),
    ],
)
def test_payloads_that_are_not(wanted: Any, payload: bytes, difference: str) -> None:
    assert payload_difference(wanted, payload) == difference


def test_long_payloads_are_cut() -> None:
    assert len(payload_difference(b"x" * 10_000, b"y" * 10_000)) < 300


def test_all_differences_are_named() -> None:
    message = published("t/x", b"1", qos=1, retain=True)
    assert Expected("t/+", payload=1, qos=1, retain=True, publisher="p").met_by(message)
    assert Expected("u", payload=2, qos=0, retain=False, publisher="q", to="a").differences(message) == [
        "another topic",
        "payload is 1, not 2",
        "QoS 1, not 0",
        "RETAIN is set",
        "from 'p', not from 'q'",
        "for 'a': did not go there",
    ]
    assert Expected("t/x", retain=True).differences(published("t/x")) == ["RETAIN is not set"]


def test_a_predicate_is_asked_last() -> None:
    asked: list[str] = []

    def never(message: Published) -> bool:
        asked.append(message.topic)
        return False

    expected = Expected("t", payload=b"x", predicate=never)
    assert expected.differences(published("t", b"y")) == ["payload b'y', not b'x'"]
    assert expected.differences(published("t", b"x")) == [f"{never.__qualname__} is false"]
    assert asked == ["t"]


def test_async_functions_are_refused() -> None:
    async def never(message: object) -> bool:
        return False

    for expected in (Expected("t", never), Expected("t", predicate=never)):
        with pytest.raises(TypeError, match="never is async"):
            expected.met_by(published("t"))


def test_what_is_expected_can_be_read() -> None:
    assert str(Expected("#")) == ""
    expected = Expected("t", {"a": 1}, 1, True, "p", predicate=empty)  # type: ignore[arg-type]
    assert str(expected) == " on 't' with payload {'a': 1} at QoS 1 with RETAIN from 'p' for which empty is true"
    assert str(Expected("#", empty, retain=False)) == " with payload empty without RETAIN"
    assert repr(ANY) == "ANY"


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'#' is not alone"):
        Expected("a/#/b")


def test_the_nearest_topic_comes_first_then_what_differs_least() -> None:
    messages = [
        published("quite/something/else", b"21", 1),
        published("sensors/kitchen/humidity", b"21", 2),
        published("sensors/kitchen/temperature", b"20", 3, qos=1),
        published("sensors/kitchen/temperature", b"20", 4),
        published("sensors/bath/temperature", b"21", 5),
    ]
    expected = Expected("sensors/kitchen/temperature", payload=21, qos=0)
    assert [message.number for message in nearest(expected, messages)] == [4, 3, 5, 2, 1]


def test_lists_are_short() -> None:
    messages = [published("t", b"x", number) for number in range(100)]
    lines = describe_instead(Expected("u"), messages).splitlines()
    assert lines[0] == "the nearest of 100 messages that were published instead:"
    assert lines[1] == "  t b'x' QoS 0 from 'p': another topic"
    assert lines[-1] == f"  … and {100 - MAX_SHOWN} more"
    assert len(lines) == MAX_SHOWN + 2
    assert describe_found(messages).splitlines()[-1] == f"  … and {100 - MAX_SHOWN} more"
    assert describe_instead(Expected("u"), []) == "nothing was published"
