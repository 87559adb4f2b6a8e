"""Counting what Python does, where time would say more of the machine than of the code."""

import sys
from collections.abc import Generator
from contextlib import contextmanager


class Calls:
    """Calls of functions. `turn` ends one turn and begins the next."""

    def __init__(self) -> None:
        self.now = self.longest = 0

    def turn(self) -> None:
        self.longest, self.now = max(self.longest, self.now), 0

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.now += event in ("call", "c_call")


@contextmanager
def counted() -> Generator[Calls]:
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls._count)  # pyright: ignore[reportPrivateUsage]
    try:
        yield calls
    finally:
        sys.setprofile(before)
        calls.turn()
