"""What all faults have in common: they happen, are counted, waited for, and removed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trunkline.testing.reach import Reaching, waits

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from trunkline.hooks.chain import Hooks
    from trunkline.testing.links import Links

_logger = logging.getLogger("trunkline.testing")


class Owner(Protocol):
    """The faults of a broker, as one of them sees them."""

    @property
    def reach(self) -> Any: ...
    def remove(self, fault: Fault) -> None: ...


class Fault(Reaching[Any]):
    """Something that goes wrong on purpose, until it is removed. As a context manager, until the block ends."""

    def __init__(self, text: str, owner: Owner, times: int | None = None, after: int = 0) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a fault happens once at least")
        if after < 0:
            raise ValueError(f"{after} packets cannot be let pass first")
        super().__init__(owner.reach)
        self._text = text
        self._owner = owner
        self._times = times
        self._to_pass = after
        self._hit = trio.Event()
        #: How often it has happened.
        self.hits = 0
        #: What its predicate raised; the fault is over then.
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<{self._text}, {self.hits} hits>"

    @property
    def over(self) -> bool:
        """It has happened as often as it should."""
        return self.error is not None or (self._times is not None and self.hits >= self._times)

    def remove(self) -> None:
        """Everything is as it should be again. What the fault holds back goes on. Harmless when it is removed already."""
        self._owner.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
        if self.error is not None and error is None:
            raise self.error

    @waits
    async def triggered(self, times: int = 1, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as elsewhere here
        """Wait until it has happened `times` times, for `timeout` seconds of the broker's clock at most. To be awaited; of a
        broker that is used without `await`, it blocks.

        Raises:
            TimeoutError: it has not. The message says what was waited for.
            Exception: what the fault's predicate raised.
        """
        __tracebackhide__ = True
        await self._reach.run(self._wait, times, timeout)
        if self.error is not None:
            raise self.error
        if self.hits < times:
            raise TimeoutError(f"{self._text}: happened {self.hits} times in {timeout:g} s, {times} were waited for")

    async def _wait(self, times: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while self.hits < times and self.error is None:
                await self._hit.wait()

    def happens(self) -> bool:
        """Something is there that the fault is for: does it happen now? If so, it is counted."""
        if self.over:
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        self.count()
        return True

    def count(self) -> None:
        self.hits += 1
        self._hit.set()
        self._hit = trio.Event()

    def failed(self, error: Exception) -> None:
        """Its predicate raised: that is the test's mistake, and not to be the broker's end."""
        _logger.error("%s: its predicate raised", self._text, exc_info=error)
        self.error = error
        self._hit.set()

    def begin(self, links: Links, hooks: Hooks) -> None:
        """Take effect."""

    def end(self, links: Links, hooks: Hooks) -> None:
        """Have no effect any more."""
