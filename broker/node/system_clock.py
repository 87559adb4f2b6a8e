"""What a node asks for the time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import trio

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class MachineClock:
    """The clocks of this machine."""

    def __init__(self) -> None:
        self._offset = _offset()
        try:
            self._boot = _BOOT_ID.read_text().strip()
        except OSError:  # not Linux
            self._boot = ""

    def calendar(self) -> float:
        return time.time()

    def boot(self) -> tuple[str, float] | None:
        return (self._boot, time.clock_gettime(time.CLOCK_BOOTTIME)) if self._boot else None

    def correction(self) -> float:
        return _offset() - self._offset


class EmbeddedClock(MachineClock):
    """Those inside another process: time may be a test's, and no correction reaches it."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch = time.time() - trio.current_time()

    def calendar(self) -> float:
        return trio.current_time() + self._epoch

    def boot(self) -> None:
        return None


def _offset() -> float:
    return time.time() - time.monotonic()
