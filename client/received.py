"""A message as a user gets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from trunkline.mqtt.weight import properties_weight, text_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.properties import Properties


def _call(function: Callable[[int], object], number: int) -> None:
    function(number)


class Origin(NamedTuple):
    """What the messages of one publication have in common."""

    qos: int
    retain: bool
    dup: bool
    properties: Properties
    #: Calls a function of the trio run with a number, from any thread.
    call: Callable[[Callable[[int], object], int], object] = _call


class ReceivedMessage:
    """Set `auto_ack` to False before you go on to the next message, and it is acknowledged when you call `ack`."""

    __slots__ = ("_acknowledge", "_number", "_origin", "auto_ack", "payload", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        origin: Origin,
        auto_ack: bool,
        number: int = 0,
        acknowledge: Callable[[int], object] | None = None,
    ) -> None:
        """`acknowledge` is called with `number`, once, in the trio run."""
        self.topic = topic
        self.payload = payload
        self._origin = origin
        self.auto_ack = auto_ack
        self._number = number
        self._acknowledge = acknowledge

    @property
    def qos(self) -> int:
        """At which the server has delivered it."""
        return self._origin.qos

    @property
    def retain(self) -> bool:
        """Whether it was retained when this client subscribed."""
        return self._origin.retain

    @property
    def dup(self) -> bool:
        """Whether the server may have delivered it before."""
        return self._origin.dup

    @property
    def properties(self) -> Properties:
        """They may be shared with other messages: not to be changed."""
        return self._origin.properties

    @property
    def text(self) -> str:
        """The payload as UTF-8.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.payload.decode()

    def json(self) -> Any:
        """The payload, read as JSON.

        Raises:
            ValueError: it is none.
        """
        return json.loads(self.payload)

    @property
    def user_properties(self) -> dict[str, str]:
        """Of several with one name the last. `properties["user_property"]` has all of them, in order."""
        return dict(self._origin.properties.get("user_property", ()))

    def ack(self) -> None:
        """Acknowledge it: in any order, from any task or thread, again without effect. The server is told when all
        messages that it sent before are acknowledged, too. After the connection on which a QoS 1 message came, this has
        no effect: the server delivers the message again."""
        acknowledge, self._acknowledge = self._acknowledge, None
        if acknowledge is not None:
            self._origin.call(acknowledge, self._number)

    def ack_in_run(self) -> None:
        """The same, for callers that are in the trio run."""
        acknowledge, self._acknowledge = self._acknowledge, None
        if acknowledge is not None:
            acknowledge(self._number)

    @property
    def weight(self) -> int:
        """Its bytes, roughly as they came."""
        size = len(self.payload) + text_weight(self.topic)
        return size + properties_weight(self.properties) if self.properties else size

    @property
    def is_acknowledged(self) -> bool:
        """Always at QoS 0."""
        return self._acknowledge is None

    def __repr__(self) -> str:
        return f"<{self.topic} {self.payload[:60]!r} QoS {self.qos}{' retained' if self.retain else ''}>"
