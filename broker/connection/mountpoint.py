"""The topic prefix of a listener's clients. They name topics without it; everything else in the broker, with hooks and
access rules, sees full names.

A connection with a mountpoint has another decoder, and one more layer on its transport, so that others need no check on
a message's way.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.net.transport import OutputLayer
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Publish, Subscribe, Unsubscribe
from trunkline.mqtt.property_codec import encode_variable_integer
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.strings import MAX_STRING
from trunkline.mqtt.topics import SHARE_PREFIX, STREAM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.net.transport import Transport
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.publication import Decoded

#: The broker's own topics, which have no mountpoint.
_SYS: Final = "$SYS/"
#: Topics and filters that have another one behind so many levels.
_WRAPPED: Final = (("$delayed/", 2), (SHARE_PREFIX, 2), (STREAM_PREFIX, 2), ("$exclusive/", 1))
#: Characters that would let a client leave its own mountpoint by its name.
_UNSAFE: Final = frozenset("/+#")
#: PUBLISH, in the upper half of a packet's first byte.
_PUBLISH: Final = 3


class Unmountable(Exception):
    """The client's id or user name cannot be part of a topic."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def mountpoint_of(template: str, client: ClientInfo) -> str:
    """The mountpoint with the client's id for %c and its user name for %u.

    Raises:
        Unmountable: these cannot be part of a topic.
    """
    for word, value, name, reason in (
        ("%c", client.client_id, "client id", Reason.CLIENT_IDENTIFIER_NOT_VALID),
        ("%u", client.username, "user name", Reason.NOT_AUTHORIZED),
    ):
        if word in template:
            if not value:
                raise Unmountable(reason, f"the mountpoint of this listener needs a {name}")
            if _UNSAFE & set(value) or value.startswith("$"):
                text = f"the {name} cannot be part of a mountpoint: it has /, + or #, or begins with $"
                raise Unmountable(reason, text)
    values = {"%c": client.client_id, "%u": client.username or ""}
    return re.sub("%[cu]", lambda found: values[found[0]], template)


class Mountpoint:
    __slots__ = ("prefix",)

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def full(self, topic: str) -> str:
        """The full form of a client's topic name or filter.

        Raises:
            ProtocolError: it is too long.
        """
        if not topic or topic == "$SYS" or topic.startswith(_SYS):
            return topic  # an empty one stands for a topic alias
        for start, levels in _WRAPPED:
            if topic.startswith(start):
                *head, inner = topic.split("/", levels)
                if len(head) == levels:
                    return "/".join((*head, self.full(inner or _default(start))))
                if start == STREAM_PREFIX:
                    return "/".join((topic, self.full(_default(start))))
        full = self.prefix + topic
        if len(full.encode()) > MAX_STRING:
            raise ProtocolError("the topic is too long behind its mountpoint", Reason.TOPIC_NAME_INVALID)
        return full

    def received(self, packet: Decoded) -> Decoded:
        """
        Raises:
            ProtocolError: a topic is too long.
        """
        if isinstance(packet, Publish):
            # a new one, as this one keeps the bytes that came
            return replace(packet, topic=self.full(packet.topic))
        if isinstance(packet, Subscribe):
            for request in packet.requests:
                request.filter = self.full(request.filter)
        elif isinstance(packet, Unsubscribe):
            packet.filters = [self.full(each) for each in packet.filters]
        return packet


def _default(start: str) -> str:
    """Without a filter of its own, a consumer of a stream would get all of it."""
    return "#" if start == STREAM_PREFIX else ""


class MountedDecoder:
    """A decoder whose packets have full topics. It gathers none."""

    def __init__(self, decoder: Any, mountpoint: Mountpoint) -> None:
        self.inner = decoder
        self._full: Callable[[Decoded], Decoded] = mountpoint.received
        self._error: ProtocolError | None = None
        #: As of a decoder; it stays.
        self.gathers = False

    @property
    def error(self) -> ProtocolError | None:
        return self._error or self.inner.error

    def feed(self, data: bytes) -> list[Decoded]:
        packets: list[Decoded] = []
        for packet in self.inner.feed(data) if self._error is None else ():
            try:
                packets.append(self._full(packet))
            except ProtocolError as error:
                self._error = error
                break
        return packets

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class MountedOutput(OutputLayer):
    """Takes the prefix off the topics of sent packets."""

    __slots__ = ("_prefix",)

    def __init__(self, below: Transport, mountpoint: Mountpoint) -> None:
        super().__init__(below)
        self._prefix = mountpoint.prefix.encode()

    def send(self, data: bytes) -> None:
        super().send(without_prefix(data, self._prefix))


def without_prefix(data: bytes, prefix: bytes) -> bytes:
    """Whole packets, without the prefix of topics that have it. A topic that is the prefix itself stays."""
    pieces: list[bytes] = []
    position, kept = 0, 0
    while position < len(data):
        body, length = position + 1, 0
        for shift in (0, 7, 14, 21):
            byte = data[body]
            body += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
        name = body + 2
        size = int.from_bytes(data[body:name], "big")
        if data[position] >> 4 == _PUBLISH and size > len(prefix) and data.startswith(prefix, name):
            pieces += (
                data[kept : position + 1],
                encode_variable_integer(length - len(prefix)),
                (size - len(prefix)).to_bytes(2, "big"),
            )
            kept = name + len(prefix)
        position = body + length
    return b"".join((*pieces, data[kept:])) if pieces else data
