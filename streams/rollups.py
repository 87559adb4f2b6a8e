"""Messages that take the place of those before them, as JetStream's roll-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.streams.errors import RollupForbidden

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties
    from trunkline.streams.config import StreamConfig

#: The user property that says of which messages: of the same topic (`TOPIC`), or of the whole stream (`STREAM`).
ROLLUP: Final = "Nats-Rollup"
TOPIC: Final = "sub"
STREAM: Final = "all"


def rollup(properties: Properties) -> str:
    """What the publisher has said, in small letters; empty, if it is nothing."""
    return next((value.lower() for name, value in properties.get("user_property", ()) if name == ROLLUP), "")


def check_rollup(config: StreamConfig, text: str) -> None:
    """
    Raises:
        RollupForbidden: the message is to take the place of others, which the stream does not allow, or it does not
            say of which.
    """
    value = text.lower()
    if value and not config.allow_rollup:
        raise RollupForbidden(f"the stream {config.name!r} does not allow roll-ups")
    if value not in ("", TOPIC, STREAM):
        raise RollupForbidden(f"{ROLLUP} is {value!r}, not {TOPIC!r} or {STREAM!r}")
