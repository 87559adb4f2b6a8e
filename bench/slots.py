"""Counters that the processes of a run share: one writer each, read by the others at any time."""

import mmap
from typing import Final

#: What the generators do: they are connecting until the parent says what comes next.
CONNECT, PREPARE, CHECK, RUN, STOP = range(5)


class Slots:
    PHASE: Final = 0
    WIDTH: Final = 8
    DELIVERED, LOW, SENT = 0, 1, 2

    def __init__(self, workers: int) -> None:
        self._map = mmap.mmap(-1, 8 * self.WIDTH * (workers + 1))
        self.values = memoryview(self._map).cast("q")
        self.workers = workers

    def index(self, worker: int, slot: int) -> int:
        return self.WIDTH * (worker + 1) + slot

    def all(self, slot: int) -> list[int]:
        """Where the slot of each worker is."""
        return [self.index(worker, slot) for worker in range(self.workers)]

    @property
    def phase(self) -> int:
        return self.values[self.PHASE]

    @phase.setter
    def phase(self, value: int) -> None:
        self.values[self.PHASE] = value

    @property
    def delivered(self) -> int:
        return self.total(self.DELIVERED)

    def total(self, slot: int) -> int:
        return sum([self.values[index] for index in self.all(slot)])
