"""Headers and properties, reply and response topic."""

from typing import Any

import pytest

from trunkline.broker.nats.carrying import (
    WITH_HEADERS,
    WITHOUT_HEADERS,
    deliver_all,
    form_of,
    forms_of,
    gathered,
    properties_of,
)
from trunkline.mqtt.frames import publish_whole
from trunkline.mqtt.message import Message
from trunkline.mqtt.versions import Version
from trunkline.nats.errors import BadSubject
from trunkline.nats.protocol.headers import Headers, encode_headers
from trunkline.nats.protocol.operations import Publish


def published(headers: Any = (), reply: bytes = b"") -> Publish:
    return Publish(b"a", reply, encode_headers(Headers(headers)) if headers else b"", b"x")


#: Headers, the properties that they are, and whether these are the same headers again.
SAME: list[tuple[list[tuple[str, str]], dict[str, Any], bool]] = [
    ([("A", "b")], {"user_property": [("A", "b")]}, True),
    ([("a", "1"), ("A", "2"), ("a", "3")], {"user_property": [("a", "1"), ("a", "3"), ("A", "2")]}, False),
    ([("Mqtt-Content-Type", "text/plain")], {"content_type": "text/plain"}, True),
    ([("Mqtt-Correlation-Data", "AAH/")], {"correlation_data": b"\x00\x01\xff"}, True),
    ([("Mqtt-Correlation-Data", "?")], {"user_property": [("Mqtt-Correlation-Data", "?")]}, True),
    ([("A", "\udcff"), ("B", "a\0"), ("C", "é")], {"user_property": [("C", "é")]}, False),
    ([("A", "x" * 70_000)], {}, False),
]


def forms(asked: Publish) -> dict[int, tuple[bytes, bytes]]:
    return forms_of(asked.subject, asked.reply, asked.block, asked.payload)


@pytest.mark.parametrize(("headers", "properties", "both_ways"), SAME)
def test_headers_are_properties(headers: Any, properties: dict[str, Any], both_ways: bool) -> None:
    asked = published(headers)
    assert properties_of(asked) == properties
    if both_ways:
        assert form_of(Message("a", b"x", properties=properties_of(asked)), WITH_HEADERS) == forms(asked)[WITH_HEADERS]


def test_a_reply_is_a_response_topic() -> None:
    assert properties_of(published(reply=b"_INBOX.x/20y")) == {"response_topic": "_INBOX/x y"}
    message = Message("a b", b"x", properties={"response_topic": "r/+.1".replace("+", "*")})
    assert form_of(message, WITH_HEADERS) == (b"MSG a/20b ", b" r.*//1 1\r\nx\r\n")
    with pytest.raises(BadSubject):
        properties_of(published(reply=b"a/b"))


def test_what_is_no_header_is_left_out() -> None:
    properties: Any = {
        "user_property": [("with space", "1"), ("ok", "2"), ("line", "a\nb"), ("", "3"), ("é", "4")],
        "payload_format_indicator": 1,
        "message_expiry_interval": 5,
    }
    head, tail = form_of(Message("a", b"x", properties=properties), WITH_HEADERS)
    assert head == b"HMSG a "
    assert tail == b" 19 20\r\nNATS/1.0\r\nok: 2\r\n\r\nx\r\n"


def test_who_wants_no_headers_gets_none() -> None:
    message = Message("a", b"x", properties={"user_property": [("A", "b")]})
    assert form_of(message, WITHOUT_HEADERS) == (b"MSG a ", b" 1\r\nx\r\n")
    assert forms(published([("A", "b")]))[WITHOUT_HEADERS] == (b"MSG a ", b" 1\r\nx\r\n")


def test_of_a_block_with_lines_that_are_no_headers_the_others_stay() -> None:
    block = b"NATS/1.0\r\nA: 1\r\nB B: 2\r\nno colon\r\nC: 3\r\n\r\n"
    properties = properties_of(Publish(b"a", b"", block, b""))
    assert properties == {"user_property": [("A", "1"), ("C", "3")]}


def test_a_block_that_is_none_is_no_property() -> None:
    asked = Publish(b"a", b"", b"GARBAGE!", b"x")
    assert properties_of(asked) == {}
    assert forms(asked)[WITH_HEADERS] == (b"HMSG a ", b" 8 9\r\nGARBAGE!x\r\n")


def test_a_form_is_made_once() -> None:
    message = Message("a/b", b"x")
    assert form_of(message, WITH_HEADERS) is form_of(message, WITH_HEADERS)


@pytest.mark.parametrize(
    "payloads", [[b"ab", b"cd", b"ef"], [b"", b"a", b""], [b"", b""], [bytes(200), bytes(1)], [bytes(16_000)] * 2]
)
def test_messages_that_came_together(payloads: list[bytes]) -> None:
    batch = gathered("t/é", payloads)
    assert [(each.topic, each.payload, each.qos, each.retain) for each in batch.messages] == [
        ("t/é", payload, 0, False) for payload in payloads
    ]
    assert (batch.payloads, batch.sizes, batch.count) == (payloads, list(map(len, payloads)), len(payloads))
    assert batch.wire(Version.V311) == b"".join(publish_whole(each, Version.V311) for each in batch.messages)
    assert batch.wire(Version.V5) == b"".join(publish_whole(Message("t/é", each), Version.V5) for each in payloads)
    for some in (batch.part(0, 1), batch.select([len(payloads) - 1])):
        assert some.payloads[0] in payloads
    assert deliver_all("t/é", b"7", payloads) == b"".join(
        b"7".join(form_of(each, WITHOUT_HEADERS)) for each in batch.messages
    )
