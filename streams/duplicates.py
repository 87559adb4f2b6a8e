"""The ids of the messages that a stream got lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

#: The user property with which a publisher names a message, as JetStream's header.
MESSAGE_ID: Final = "Nats-Msg-Id"


def message_id(properties: Properties) -> str | None:
    return next((value for name, value in properties.get("user_property", ()) if name == MESSAGE_ID), None)


class DuplicateWindow:
    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        #: The id of the last message that had one.
        self.last_id = ""

    def find(self, identity: str, since: float) -> int | None:
        """The sequence of the message that had the id, if it is not older."""
        seen = self._seen
        while seen:
            oldest = next(iter(seen))
            if seen[oldest][1] >= since:
                break
            del seen[oldest]
        found = seen.get(identity)
        return None if found is None else found[0]

    def add(self, identity: str, sequence: int, time: float) -> None:
        self._seen[identity] = (sequence, time)
        self.last_id = identity

    @property
    def first(self) -> int | None:
        """The sequence of the oldest message with an id."""
        return next(iter(self._seen.values()))[0] if self._seen else None
