"""What it costs to keep a message."""

import pytest

from trunkline.mqtt.message import Message
from trunkline.mqtt.user_properties import UserProperties
from trunkline.mqtt.weight import weight

EMPTY = weight(Message("t", b""))


@pytest.mark.parametrize(
    "message",
    [
        Message("t", bytes(100_000)),
        Message("t" * 65_535, b""),
        Message("t", b"", properties={"correlation_data": bytes(60_000)}),
        Message("t", b"", properties={"response_topic": "r" * 60_000}),
        Message("t", b"", properties={"user_property": UserProperties(bytes(100_000))}),
        Message("t", b"", properties={"user_property": [("k", "v" * 1000)] * 100}),
    ],
    ids=["payload", "topic", "bytes", "text", "user-properties", "pairs"],
)
def test_all_that_a_client_can_make_large_weighs(message: Message) -> None:
    assert EMPTY + 50_000 < weight(message) < EMPTY + 120_000


def test_text_weighs_as_much_as_its_widest_letter_makes_it() -> None:
    assert weight(Message("t" * 1000 + "\N{PILE OF POO}", b"")) > EMPTY + 4000


def test_a_message_that_carries_nothing_still_weighs_something() -> None:
    assert 0 < EMPTY < weight(Message("t", b"", properties={"payload_format_indicator": 1}))
