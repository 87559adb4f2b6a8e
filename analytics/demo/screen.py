"""Where the demonstration is seen: a table that changes, or a line now and then where there is no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.live import Live

from trunkline.analytics.demo.table import Progress, line, table

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from trunkline.analytics.demo.devices import Tally
    from trunkline.analytics.demo.results import Received

#: Seconds between two lines.
LINES: Final = 5.0


class Screen:
    """Shows progress for the length of a block; the last table stays."""

    def __init__(self, console: Console, tally: Tally, received: Received) -> None:
        self._console = console
        self._tally = tally
        self._received = received
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said: tuple[str, float] | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def show(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.update(table(progress, self._tally, self._received), refresh=True)
        elif self._said is None or self._said[0] != progress.doing or progress.elapsed - self._said[1] >= LINES:
            self._said = progress.doing, progress.elapsed
            self._console.print(
                line(progress, self._tally, self._received), highlight=False, markup=False, soft_wrap=True
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
