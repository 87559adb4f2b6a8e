"""Selects the packets of a fault. An invalid selection is refused with a text that says what is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import PacketType, Publish
from trunkline.mqtt.topics import matches, validate_filter
from trunkline.testing.expecting import call_plain
from trunkline.testing.packets import FROM, PACKETS, TO, Direction, RawPacket

if TYPE_CHECKING:
    from collections.abc import Callable

#: Instead of a packet's name: all of them.
ANY: Final = "*"


class Cases(TypedDict, total=False):
    """When a fault happens; omitted fields match all."""

    #: The client id.
    client: str
    #: Hits after which the fault is over.
    times: int
    #: Cases that are let pass at first.
    after: int


class Which(Cases, total=False):
    """Which packets a fault is for."""

    #: `from` the client, or `to` it.
    direction: Direction
    #: A topic filter: only PUBLISH packets whose topic it takes.
    topic: str
    #: Called with the packet as `trunkline.mqtt` decodes it: only packets for which it returns something true.
    where: Callable[[Any], object]


@dataclass(slots=True)
class Selection:
    """Which packets a fault is for.

    Making one raises:
        ValueError: such packets do not exist. The message names those that do.
    """

    packet: str | PacketType
    client: str | None = None
    direction: Direction | None = None
    topic: str | None = None
    where: Callable[[Any], object] | None = None
    times: int | None = None
    after: int = 0
    #: None for all.
    type: PacketType | None = field(init=False)
    directions: tuple[Direction, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.type = None if self.packet == ANY else packet_type(self.packet)
        self.directions = directions(self.direction)
        if self.type is not None and not any(self.type in PACKETS[each] for each in self.directions):
            side = "client" if self.direction == FROM else "broker"
            known = ", ".join(kind.name for kind in sorted(PACKETS[self.directions[0]]))
            raise ValueError(f"a {side} sends no {self.type.name}; {self.direction!r} a client go {known}")
        if self.topic is not None:
            if self.type is not PacketType.PUBLISH:
                raise ValueError(f"topic={self.topic!r} selects PUBLISH packets; {self.packet} has no topic")
            check_filter(self.topic)

    def __str__(self) -> str:
        words = [ANY if self.type is None else self.type.name]
        if len(self.directions) == 1:
            words.append(self.directions[0])
        if self.client is not None:
            words.append(f"{'client' if len(self.directions) > 1 else ''} {self.client!r}".strip())
        if self.topic is not None:
            words.append(f"on {self.topic}")
        return " ".join(words)

    def takes(self, packet: RawPacket) -> bool:
        if packet.direction not in self.directions or (self.type is not None and packet.type is not self.type):
            return False
        if self.topic is not None:
            publish = packet.decoded
            if not isinstance(publish, Publish) or not publish.topic or not matches(self.topic, publish.topic):
                return False
        return self.where is None or (packet.decoded is not None and bool(call_plain(self.where, packet.decoded)))


def packet_type(name: str | PacketType) -> PacketType:
    """Raises ValueError if there is no packet with this name."""
    kinds = {kind.name: kind for kind in PacketType if kind is not PacketType.WILL}
    kind = kinds.get(name.upper()) if isinstance(name, str) else name
    if kind is None or kind is PacketType.WILL:
        from difflib import get_close_matches  # only needed to explain a mistake

        close = get_close_matches(str(name).upper(), kinds, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"no packet is called {name!r}{hint}; there are {', '.join(kinds)}, and {ANY!r} for all")
    return kind


def directions(direction: Direction | None) -> tuple[Direction, ...]:
    """Raises ValueError if this is not a direction."""
    if direction is None:
        return (FROM, TO)
    if direction not in (FROM, TO):
        raise ValueError(f"direction={direction!r}: it is {FROM!r} or {TO!r} (the client), or both if it is left out")
    return (direction,)


def check_filter(filter: str) -> None:
    """Raises ValueError if this is not a topic filter."""
    try:
        validate_filter(filter)
    except ProtocolError as error:
        raise ValueError(f"{filter!r} is not a topic filter: {error}") from None
