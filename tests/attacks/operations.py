"""What the broker does, counted in calls instead of seconds: the same on every machine, however busy it is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trunkline.actors import Scheduler

#: Seconds that a call, or the return from one, counts for: roughly what either takes on a machine of today.
SECONDS = 50e-9


class Operations:
    """Calls and returns, of Python functions and of built-in ones."""

    def __init__(self) -> None:
        self.count = 0

    def clock(self) -> float:
        """For a scheduler: its turns end by what was done in them."""
        return self.count * SECONDS

    def _seen(self, _frame: FrameType, _event: str, _argument: object) -> None:
        self.count += 1

    @contextmanager
    def counted(self, scheduler: Scheduler) -> Iterator[None]:
        usual = scheduler._clock  # pyright: ignore[reportPrivateUsage]
        scheduler._clock = self.clock  # pyright: ignore[reportPrivateUsage]
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(None)
            scheduler._clock = usual  # pyright: ignore[reportPrivateUsage]
