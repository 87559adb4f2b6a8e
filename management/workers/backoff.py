"""How long a worker that has crashed waits for its next start."""

from typing import Final

#: Seconds: the first time, twice as long each time that follows, and no longer than the last one.
FIRST: Final = 1.0
LONGEST: Final = 30.0
#: Seconds after which a worker that runs has not crashed because it started.
STEADY: Final = 60.0
#: Crashes in a row that an operator should know about.
LOOP: Final = 3


class Backoff:
    def __init__(self) -> None:
        #: Crashes in a row.
        self.crashes = 0

    def crashed(self, ran_for: float) -> float:
        """After so many seconds. Returns for how many it waits."""
        self.crashes = 1 if ran_for >= STEADY else self.crashes + 1
        return min(FIRST * 2.0 ** min(self.crashes - 1, 16), LONGEST)

    @property
    def is_loop(self) -> bool:
        return self.crashes >= LOOP
