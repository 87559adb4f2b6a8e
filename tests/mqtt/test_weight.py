"""What it costs to keep a message."""

import pytest

from trunkline.mqtt.message import Message
from trunkline.mqtt.user_properties import UserProperties

EMPTY = Message("t", b"").weight


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
    assert EMPTY + 50_000 < message.weight < EMPTY + 120_000


def test_text_weighs_as_much_as_its_widest_letter_makes_it() -> None:
    assert Message("t" * 1000 + "\N{PILE OF POO}", b"").weight > EMPTY + 4000


def test_a_message_that_carries_nothing_still_weighs_something() -> None:
    assert 0 < EMPTY < Message("t", b"", properties={"payload_format_indicator": 1}).weight
