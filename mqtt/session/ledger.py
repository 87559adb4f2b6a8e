"""The acknowledgements that one side owes the other, in the order of the acknowledged packets.  # [MQTT-4.6.0-2]
[MQTT-4.6.0-3]

An answer may wait: for the routes, for a hook, for a commit of the store. Those behind it wait as well, so an
acknowledgement never overtakes another. A ledger belongs to one connection: a new connection owes nothing yet.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.mqtt.session.awaiting_rel import AwaitingRel

#: What an answer waits for: calls back, in any turn, when it may leave.
Wait: TypeAlias = "Callable[[Callable[[], None]], object]"

_TO_PUBLISH: Final = (PacketType.PUBACK, PacketType.PUBREC)


def all_of(waits: Sequence[Wait]) -> Wait:
    """Calls back when all of these have."""
    if len(waits) == 1:
        return waits[0]

    def wait(action: Callable[[], None]) -> None:
        left = len(waits)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                action()

        for each in waits:
            each(one)

    return wait


def one_after_other(first: Wait, second: Wait) -> Wait:
    """Calls back when the second one has, which begins when the first one has called back."""

    def wait(action: Callable[[], None]) -> None:
        def then() -> None:
            second(action)

        first(then)

    return wait


class Owed:
    """An answer, or several in a row: its place in the ledger."""

    __slots__ = ("answers", "count", "wire")

    def __init__(self, answers: int, count: int) -> None:
        #: Packets that the client gets.
        self.answers = answers
        #: PUBLISH packets that it acknowledges, without those that `AwaitingRel` counts.
        self.count = count
        #: None while it waits.
        self.wire: bytes | None = None


#: Most ledgers are empty most of the time, and an empty deque takes 760 bytes.
_NOTHING: Final[deque[Owed]] = deque(maxlen=0)


class Ledger:
    __slots__ = ("_awaiting_rel", "_count", "_limit", "answers", "entries")

    def __init__(self, awaiting_rel: AwaitingRel) -> None:
        self._awaiting_rel = awaiting_rel
        #: The answers that have not been sent, in order. While it is empty, an available answer need not pass through
        #: the ledger.
        self.entries: deque[Owed] = _NOTHING
        #: Packets in them.
        self.answers = 0
        self._count = 0
        self._limit = 0

    def open(self, receive_maximum: int) -> None:
        """A connection is open; 0 means no limit. What an earlier one has left open does not count on it."""
        self._limit = receive_maximum and receive_maximum + len(self._awaiting_rel)

    def __len__(self) -> int:
        """PUBLISH packets without PUBACK, or without PUBREC and PUBREL."""
        return self._count + len(self._awaiting_rel)

    def exceeds(self, packet_ids: Sequence[int]) -> bool:
        """Whether more PUBLISH packets than the receive maximum would be unacknowledged with these, which are not
        handled yet. A repetition of a message that awaits its PUBREL does not count.  # [MQTT-3.3.4-7]"""
        new = self._awaiting_rel.count_new(packet_ids)
        return new > 0 and 0 < self._limit < len(self) + new

    def check(self, packet_ids: Sequence[int]) -> None:
        """
        Raises:
            ProtocolError: the other side is above its receive maximum with these PUBLISH packets.
        """
        if self.exceeds(packet_ids):
            raise ProtocolError(
                "more messages without acknowledgement than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED
            )

    def owe(self, kind: PacketType, packet_ids: Sequence[int] = ()) -> Owed:
        """Take the next place, for an answer of this kind. For a PUBREC, `AwaitingRel` has already received the
        message."""
        count = len(packet_ids)
        if kind not in _TO_PUBLISH:
            owed = Owed(count or 1, 0)
        else:
            owed = Owed(count, self._awaiting_rel.count_new(packet_ids) if self._awaiting_rel.open else count)
        self.place(owed)
        return owed

    def place(self, owed: Owed) -> None:
        """It takes the next place."""
        if not self.entries:
            self.entries = deque()
        self.entries.append(owed)
        self.answers += owed.answers
        self._count += owed.count

    def settle(self, owed: Owed, wire: bytes) -> list[bytes]:
        """The answer is available. Returns the answers to send now, in order: none while an earlier one waits, or when
        the connection that it belongs to is closed."""
        owed.wire = wire
        entries, leaving = self.entries, list[bytes]()
        while entries and (first := entries[0]).wire is not None:
            leaving.append(first.wire)
            self.answers -= first.answers
            self._count -= first.count
            entries.popleft()
        if not entries:
            self.entries = _NOTHING
        return leaving

    def advance(self, number: int) -> None:
        """Some answers of the first place are sent. It is kept for the others."""
        first = self.entries[0]
        counted = min(number, first.count)
        first.answers -= number
        first.count -= counted
        self.answers -= number
        self._count -= counted

    def clear(self) -> None:
        """The connection is closed: nothing is owed to it any more."""
        self.entries = _NOTHING
        self.answers = self._count = 0
