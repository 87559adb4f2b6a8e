"""How far a long run has come: a line on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a run is long.
PATIENCE: Final = 2.0
#: Seconds between two counts.
INTERVAL: Final = 0.5


class StatusLine(Protocol):
    def update(self, status: str) -> None: ...

    def stop(self) -> None: ...


def terminal_line() -> StatusLine:
    from rich.console import Console  # takes as long as all the rest

    status = Console(stderr=True).status("publishing")
    status.start()
    return status


async def show_progress(count: Callable[[], int], line: Callable[[], StatusLine] = terminal_line) -> None:
    """Until it is cancelled."""
    if not sys.stderr.isatty():
        return
    start = trio.current_time()
    await trio.sleep(PATIENCE)
    status = line()
    try:
        before, then = count(), trio.current_time()
        rate = before / (then - start)
        while True:
            status.update(f"{count():,} messages, {rate:,.0f} a second")
            await trio.sleep(INTERVAL)
            now = trio.current_time()
            rate = (count() - before) / (now - then)
            before, then = count(), now
    finally:
        status.stop()
