"""What stands in a topic's place when its last message has gone by its age or its life, as JetStream's markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.message import Message
from trunkline.streams.lives import TTL, write_ttl
from trunkline.streams.rollups import ROLLUP, TOPIC

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

#: The user property that says why.
REASON: Final = "Nats-Marker-Reason"
#: Its age, or its life, was over.
MAX_AGE: Final = "MaxAge"


def marker(topic: str, seconds: float) -> Message:
    """It lives for so long, in whole seconds."""
    words = [(REASON, MAX_AGE), (TTL, write_ttl(seconds)), (ROLLUP, TOPIC)]
    return Message(topic, b"", 1, properties={"user_property": words})


def is_marker(properties: Properties) -> bool:
    """Whoever has published it."""
    return any(name == REASON for name, _ in properties.get("user_property", ()))
