"""The packet ids of a session that another client has begun.

That client may have been killed in the middle of an exchange of QoS 2. The server then takes a new message with the
same packet id for the old one, repeated: it acknowledges the message, and drops it. Nobody knows these packet ids any
more, so each of them is released before a message of QoS 2 has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.packets import PacketType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.client.link import Link

#: Packet ids that are released at first. Then they are as many as there are already, which costs no more than a few
#: waits for the server.
FIRST_STEP: Final = 64


class Clearing:
    """What is released from 1 upwards, as packet ids are taken."""

    __slots__ = ("_asked", "_clear", "_last", "_target")

    def __init__(self, last: int) -> None:
        """All packet ids up to the `last` are clear: the session is new."""
        self._last = last
        self._clear = self._target = last
        #: PUBREL was sent for these.
        self._asked: set[int] = set()

    def begin(self) -> None:
        """None is known to be clear: the session is another client's."""
        self._clear = 0

    def detach(self) -> None:
        """What was not answered is asked again."""
        self._asked.clear()

    @property
    def is_over(self) -> bool:
        return self._clear == self._last

    def room(self, top: int, link: Link) -> int:
        """How many packet ids behind `top`, the highest in use, are clear. If there are none, the next are released."""
        if (room := self._clear - top) > 0:
            return room
        if not self._asked:
            self._target = min(self._last, top + max(FIRST_STEP, self._clear))
            packet_ids = range(self._clear + 1, self._target + 1)
            self._asked = set(packet_ids)
            link.acknowledge(PacketType.PUBREL, packet_ids)
        return 0

    def answered(self, packet_ids: Sequence[int]) -> list[int]:
        """PUBCOMP came. Returns the packet ids that it is not meant for here."""
        left = [each for each in packet_ids if each not in self._asked]
        if self._asked and len(left) < len(packet_ids):
            self._asked.difference_update(packet_ids)
            if not self._asked:
                self._clear = self._target
        return left
