"""Which of the messages that came together are acknowledged. The ledger keeps the order among those that did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.session.ledger import Owed

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Receivers of one message that may each have to acknowledge it.
MAX_RECEIVERS: Final = 255


class OwedRun(Owed):
    """The acknowledgements of one publication: a place in the ledger that leaves message by message, from its front."""

    __slots__ = ("_packet_ids", "_sent", "_waiting", "kind")

    def __init__(self, kind: PacketType, packet_ids: Sequence[int]) -> None:
        # `AwaitingRel` counts the messages of QoS 2
        super().__init__(len(packet_ids), len(packet_ids) if kind is PacketType.PUBACK else 0)
        #: PUBACK or PUBREC.
        self.kind = kind
        self._packet_ids = packet_ids
        #: How many acknowledgements each message still waits for: one of each receiver.
        self._waiting = bytearray(b"\1") * len(packet_ids)
        self._sent = 0

    def expect(self, number: int, receivers: int) -> None:
        """Message `number` waits for so many receivers."""
        self._waiting[number] = min(receivers, MAX_RECEIVERS)

    def acknowledge(self, number: int) -> bool:
        """One receiver is done with message `number`. Returns True if it was the last."""
        left = self._waiting[number]
        if left:
            self._waiting[number] = left - 1
        return left == 1

    def packet_id(self, number: int) -> int:
        return self._packet_ids[number]

    def take(self) -> tuple[Sequence[int], bool]:
        """The packet ids that may be acknowledged now: of those at the front. And whether these are all that are
        left."""
        begin = self._sent
        rest = self._waiting[begin:]
        self._sent = begin + len(rest) - len(rest.lstrip(b"\0"))
        return self._packet_ids[begin : self._sent], self._sent == len(self._waiting)
