"""The messages that a consumer has delivered and that are not acknowledged, and when they come again."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Outstanding:
    """A message that was delivered and is not acknowledged."""

    #: Of its last delivery.
    consumer_sequence: int
    #: Deliveries.
    count: int
    #: It comes again then, in seconds since the epoch.
    deadline: float


class Unacknowledged(dict[int, Outstanding]):
    """By their sequences, in the order in which they were delivered for the first time."""

    def __init__(self) -> None:
        super().__init__()
        #: Deadline and sequence, also of some that are acknowledged.
        self.deadlines: list[tuple[float, int]] = []

    def wait(self, sequence: int, entry: Outstanding, deadline: float) -> None:
        """The message comes again then."""
        entry.deadline = deadline
        heappush(self.deadlines, (deadline, sequence))
        if len(self.deadlines) > 2 * len(self) + 64:
            self.deadlines = sorted((each.deadline, number) for number, each in self.items())

    @property
    def next_due(self) -> float:
        """No message comes again before, in seconds since the epoch."""
        return self.deadlines[0][0] if self.deadlines else inf

    def first_due(self) -> tuple[int, Outstanding] | None:
        """Sequence and entry of the message whose deadline is the first, if it waits for that still."""
        deadline, sequence = self.deadlines[0]
        entry = self.get(sequence)
        return None if entry is None or entry.deadline != deadline else (sequence, entry)

    def pass_first_due(self) -> None:
        """It has been looked at."""
        heappop(self.deadlines)

    @property
    def redelivered(self) -> int:
        """How many were delivered more than once."""
        return sum(entry.count > 1 for entry in self.values())

    # The store

    def to_plain(self) -> list[list[int] | list[float]]:
        entries = self.values()
        return [
            list(self),
            [entry.consumer_sequence for entry in entries],
            [entry.count for entry in entries],
            [entry.deadline for entry in entries],
        ]

    def restore(self, plain: Iterable[list[float]]) -> None:
        for sequence, consumer_sequence, count, deadline in zip(*plain, strict=True):
            self[int(sequence)] = Outstanding(int(consumer_sequence), int(count), deadline)
        self.deadlines = sorted((entry.deadline, sequence) for sequence, entry in self.items())
