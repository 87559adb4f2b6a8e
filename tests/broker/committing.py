"""A committer whose commits end when the test says so."""

from collections.abc import Callable
from typing import Any

from tests.broker.session.test_durable import Turns
from tests.store.clocks import Clocks
from trunkline.broker.alarms import Alarms
from trunkline.broker.committer import Committer
from trunkline.hooks.chain import Hooks
from trunkline.store import Space, StoreError, WriteBatch
from trunkline.store.clock import StoreClock

SPACE = Space("tests")
CALENDAR = 1000.0


class Slow:
    """Commits that end when the test says so."""

    def __init__(self) -> None:
        #: The last of each commit.
        self.batches: list[WriteBatch] = []
        #: All of the commit that runs, or ran last.
        self.pieces: list[WriteBatch] = []
        self._done: Callable[[int, StoreError | None], None] | None = None

    def commit(self, batches: list[WriteBatch], done: Callable[[int, StoreError | None], None]) -> None:
        assert self._done is None
        self.pieces = batches
        self.batches.append(batches[-1])
        self._done = done

    def end(self, error: StoreError | None = None, *, stored: int | None = None) -> None:
        done, self._done = self._done, None
        assert done is not None
        if stored is None:
            stored = 0 if error else len(self.pieces)
        done(stored, error)

    @property
    def values(self) -> list[dict[bytes, bytes | None]]:
        return [batch.values.get(SPACE, {}) for batch in self.batches]


class Value:
    owner: Any = None

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.value = 0

    def write(self, batch: WriteBatch) -> None:
        batch.put(SPACE, self.key, b"%d" % self.value)


class House:
    def __init__(self) -> None:
        self.turns, self.writer = Turns(), Slow()
        self.alarms = Alarms(Hooks(), lambda: 0.0)
        self.machine = Clocks(lambda: CALENDAR + self.turns.now)
        self.clock = StoreClock(self.machine, 0.0)
        self.committer = Committer(self.writer, self.turns, self.alarms, self.clock, 10.0, 0)  # type: ignore[arg-type]
        self.told: list[str] = []

    def set(self, part: Value, value: int) -> None:
        part.value = value
        self.committer.change(part)

    def tell(self, what: str) -> Callable[[], None]:
        return lambda: self.told.append(what)

    def go_on(self) -> None:
        """The turns in which the rest of what is gathered in slices is."""
        while self.committer._next_slice.armed:
            self.committer._next_slice.fire(0.0)
            self.turns.end()

    def fire(self) -> None:
        for timer in self.turns.timers:
            if timer.armed:
                timer.fire()
        self.turns.end()
