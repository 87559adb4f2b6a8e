"""A clock that a test advances, in a trio run with `MockClock` and for a broker in a thread of its own."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trunkline.testing.portal import Portal, Proxy, maybe_async

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R", bound=Portal)

#: Turns of a trio run in which all that is due at one moment is done, with all that comes of it. A will that is
#: published when its client falls silent takes about ten.
_MAX_TURNS: Final = 50


class AdvancingClock(trio.abc.Clock):
    """Real time, so that clients elsewhere notice nothing unusual, plus the time that the test has advanced."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def start_clock(self) -> None:
        """It always runs."""

    def current_time(self) -> float:
        return perf_counter() + self._ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    def jump(self, seconds: float) -> None:
        """Only from within the trio run, which looks at its deadlines again before it sleeps."""
        self._ahead += seconds


class Clock(Proxy[R]):
    """The broker's time."""

    @maybe_async
    async def advance(self, seconds: float) -> None:
        """Move the broker's time on. All that becomes due by then has been done when this returns, each thing at its
        own time, and so has what came of it: a client that falls silent is disconnected, its will is published when its
        delay is over, its session expires.

        Clients in other threads and processes keep real time, and are not waited for. In a test's own trio run the time
        of the test is moved on with it.

        Raises:
            RuntimeError: the trio run has a real clock.
            ValueError: time does not go backwards.
        """
        await self._portal.run(advance, seconds)


async def advance(seconds: float) -> None:
    """Move the clock of this trio run on, from deadline to deadline, so that what one of them sets off can set the
    next."""
    # ours has it, and trio's MockClock
    jump: Callable[[float], None] | None = getattr(trio.lowlevel.current_clock(), "jump", None)
    if jump is None:
        raise RuntimeError(
            "this trio run has a real clock, which cannot be moved on. Run the test with trio's MockClock (with "
            "pytest-trio: "
            "ask for the fixture mock_clock or autojump_clock), or the broker in a thread of its own, which has such a "
            "clock: `with trunkline.testing.broker()` in a thread that does not run trio"
        )
    if seconds < 0:
        raise ValueError(f"{seconds} s: time does not go backwards")
    until = trio.current_time() + seconds
    await settled()
    while (left := until - trio.current_time()) > 0:
        jump(min(left, max(0.0, trio.lowlevel.current_statistics().seconds_to_next_deadline)))
        await settled()


async def settled() -> None:
    """Wait until nothing goes on in this trio run; or, with a client that sends without pause, until every task has had
    so many turns that all that was due is done."""
    from trio.testing import wait_all_tasks_blocked  # brings pytest with it where that is installed

    with trio.CancelScope() as scope:
        turns = _Turns(scope)
        trio.lowlevel.add_instrument(turns)
        try:
            await wait_all_tasks_blocked()
        finally:
            trio.lowlevel.remove_instrument(turns)


class _Turns(trio.abc.Instrument):
    """Ends a scope after so many turns of the trio run."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self._left = _MAX_TURNS

    def after_io_wait(self, timeout: float) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()
