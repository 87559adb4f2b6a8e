"""What one side owes the other: answers to its packets, in the order of these packets.  # [MQTT-4.6.0-2] [MQTT-4.6.0-3]

An answer may wait: for the routes, for a hook, for a commit of the store. Those behind it wait with it, so an
acknowledgement never overtakes another. The ledger belongs to one connection: a new one owes nothing yet.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.packet_types import PacketType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.awaiting_rel import AwaitingRel

_TO_PUBLISH: Final = (PacketType.PUBACK, PacketType.PUBREC)


class Owed:
    """An answer, or several in a row: its place in the ledger."""

    __slots__ = ("count", "wire")

    def __init__(self, count: int) -> None:
        #: PUBLISH packets that it acknowledges, without those that `AwaitingRel` counts.
        self.count = count
        #: None as long as it waits.
        self.wire: bytes | None = None


class Ledger:
    __slots__ = ("_awaiting_rel", "_count", "entries")

    def __init__(self, awaiting_rel: AwaitingRel) -> None:
        self._awaiting_rel = awaiting_rel
        #: What has not left, in order. While it is empty, an answer that is there need not pass through the ledger.
        self.entries: deque[Owed] = deque()
        self._count = 0

    def __len__(self) -> int:
        """PUBLISH packets without PUBACK, or without PUBREC and PUBREL."""
        return self._count + len(self._awaiting_rel)

    def exceeds(self, receive_maximum: int, packet_ids: Sequence[int]) -> bool:
        """Would more than so many PUBLISH packets be without acknowledgement with these, which were not handled yet? 0
        is no bound, and a repetition of what awaits its PUBREL takes no place.  # [MQTT-3.3.4-7]"""
        new = self._awaiting_rel.count_new(packet_ids)
        return new > 0 and 0 < receive_maximum < len(self) + new

    def owe(self, kind: PacketType, packet_ids: Sequence[int] = ()) -> Owed:
        """Take the next place, for an answer of this kind; `AwaitingRel` has received what a PUBREC is for."""
        owed = Owed(self._awaiting_rel.count_new(packet_ids) if kind in _TO_PUBLISH else 0)
        self.entries.append(owed)
        self._count += owed.count
        return owed

    def settle(self, owed: Owed, wire: bytes) -> list[bytes]:
        """The answer is there. Returns what leaves now, in order: nothing while one before it waits, or when the
        connection that it was owed to is over."""
        owed.wire = wire
        entries, leaving = self.entries, list[bytes]()
        while entries and (first := entries[0]).wire is not None:
            leaving.append(first.wire)
            self._count -= first.count
            entries.popleft()
        return leaving

    def clear(self) -> None:
        """The connection is over: nothing is owed to it any more."""
        self.entries.clear()
        self._count = 0
