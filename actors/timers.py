# pyright: reportPrivateUsage=false
"""The node's deadlines: one heap, however many timers.

A timer that is pushed back, which is what keep-alives do with every packet, only stores its new deadline: its entry
in the heap stays where it is, and when that comes up too early it is put in again. So re-arming costs a comparison
and a store, not a walk through the heap. A cancelled timer leaves its entry behind, too; when more than half of the
entries are of that kind the heap is built anew without them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors.ref import Ref

#: Below this many left-over entries it isn't worth building the heap anew.
MIN_STALE: Final = 64


def _nothing() -> None: ...


class Timer:
    """A callback at a point in time: once, unless it is armed again."""

    __slots__ = ("_args", "_deadlines", "_due", "_number", "callback", "deadline", "owner")

    def __init__(
        self,
        deadlines: Deadlines,
        callback: Callable[..., object],
        args: tuple[object, ...],
        owner: Ref[Any] | None = None,
    ) -> None:
        self._deadlines = deadlines
        self.callback = callback
        self._args = args
        #: The actor that armed it: it does not fire for one that has ended, and an error in it ends that actor.
        self.owner = owner
        #: When the entry in the heap comes up: never after `deadline`. Infinite when there is none.
        self._due = inf
        self._number = 0
        #: When it fires; infinite when it isn't armed.
        self.deadline = inf

    @property
    def armed(self) -> bool:
        return self.deadline < inf

    def restart(self, delay: float) -> None:
        """Fire `delay` seconds from now, whether armed, cancelled or fired before."""
        self.restart_at(trio.current_time() + delay)

    def restart_at(self, deadline: float) -> None:
        """Fire at `deadline`: the cheapest way to push the timer back when `scheduler.now` is at hand."""
        if self.deadline == inf and self._due < inf:
            self._deadlines.stale -= 1  # its entry is needed again
        self.deadline = deadline
        if deadline < self._due:
            self._deadlines.push(self, deadline)

    def cancel(self) -> None:
        """Not to fire any more. Harmless when it has fired."""
        if self.deadline < inf:
            self.deadline = inf
            if self._due < inf:
                self._deadlines.drop()

    def discard(self) -> None:
        """The timer will never be armed again: drop its callback, which its entry in the heap would keep alive."""
        self.cancel()
        self.callback, self._args = _nothing, ()

    def fire(self, now: float) -> None:
        """Fire, unless a timer that fired before has cancelled it or pushed it back."""
        if self.deadline <= now and self._due == inf:
            self.deadline = inf
            if self.owner is None or self.owner.alive:
                self.callback(*self._args)


class Deadlines:
    """A heap of (when, number, timer). The number keeps timers of the same instant in the order they were armed."""

    __slots__ = ("_count", "_entries", "_sooner", "next", "stale")

    def __init__(self, sooner: Callable[[float], None]) -> None:
        self._entries: list[tuple[float, int, Timer]] = []
        #: No timer fires before this time.
        self.next = inf
        self._count = 0
        #: Told when a new entry is the first to come up.
        self._sooner = sooner
        #: Entries that no armed timer needs.
        self.stale = 0

    def __len__(self) -> int:
        """How many timers are armed."""
        return len(self._entries) - self.stale

    def push(self, timer: Timer, due: float) -> None:
        if timer._due < inf:
            self.stale += 1  # the later entry that it had
        timer._due = due
        self._count += 1
        timer._number = self._count
        entries = self._entries
        heappush(entries, (due, self._count, timer))
        if entries[0][2] is timer:
            self.next = due
            self._sooner(due)

    def drop(self) -> None:
        """An entry is no longer needed."""
        self.stale += 1
        if self.stale > MIN_STALE and self.stale * 2 > len(self._entries):
            kept: list[tuple[float, int, Timer]] = []
            for entry in self._entries:
                timer = entry[2]
                if entry[1] != timer._number:
                    continue
                if timer.deadline == inf:
                    timer._due = inf
                    timer._number = 0
                else:
                    kept.append(entry)
            heapify(kept)
            self._entries = kept
            self.stale = 0

    def pop_due(self, now: float) -> list[Timer]:
        """The timers whose deadline has passed, in order. They have not fired yet."""
        entries = self._entries
        due: list[Timer] = []
        while entries and entries[0][0] <= now:
            when, number, timer = heappop(entries)
            if number != timer._number:
                self.stale -= 1
                continue
            timer._due = inf
            timer._number = 0
            if timer.deadline <= when:
                due.append(timer)
            elif timer.deadline < inf:  # pushed back: in again, due or not, to keep the order of deadlines
                self.push(timer, timer.deadline)
            else:
                self.stale -= 1
        self.next = entries[0][0] if entries else inf
        return due
