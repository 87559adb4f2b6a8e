"""The base of all faults: they happen, are counted, waited for, and removed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from trunkline.testing.portal import Portal, Proxy, maybe_async

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import Network

_logger = logging.getLogger("trunkline.testing")

P = TypeVar("P", bound=Portal)
P_co = TypeVar("P_co", bound=Portal, covariant=True)


class Owner(Protocol[P_co]):
    """The faults of a broker, as needed by one of them."""

    @property
    def portal(self) -> P_co: ...
    def remove(self, fault: Fault[Any]) -> None: ...
    def seen(self) -> str:
        """The clients that it could have been for, in a line."""
        ...


class Fault(Proxy[P]):
    """An injected fault, until it is removed. As a context manager, until the block ends."""

    def __init__(self, owner: Owner[P], text: str, times: int | None = None, after: int = 0) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be 1 or more")
        if after < 0:
            raise ValueError(f"after={after}: must be 0 or more")
        super().__init__(owner.portal)
        self._owner = owner
        self._text = text
        self._times = times
        self._to_pass = after
        self._happened = trio.Event()
        #: Whether the end of the test has nothing to say about it.
        self._is_checked = False
        #: How often it has happened.
        self.hits = 0
        #: What its predicate raised; the fault is over then.
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<{self._text}, {self.hits} hit{'' if self.hits == 1 else 's'}>"

    @property
    def over(self) -> bool:
        """Whether it has happened as often as requested."""
        return self.error is not None or (self._times is not None and self.hits >= self._times)

    def remove(self) -> None:
        """End the fault, and let held packets go on. Harmless if it is removed already."""
        self._owner.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        self.remove()
        if error is None:
            self.check()

    def optional(self) -> Self:
        """It need not happen: otherwise the end of its block, or that of the test, raises LookupError."""
        self._is_checked = True
        return self

    def check(self) -> None:
        """
        Raises:
            LookupError: it has not happened, and is not `optional`.
            Exception: what its predicate raised.
        """
        __tracebackhide__ = True
        checked, self._is_checked = self._is_checked, True
        if self.error is not None and not checked:
            raise self.error
        if not self.hits and not checked:
            words = f"this fault has never happened: {self._text}. Say optional() of one that need not"
            raise LookupError(f"{words}\n{self._owner.seen()}")

    @maybe_async
    async def triggered(self, times: int = 1, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as elsewhere here
        """Wait until it has happened `times` times, for `timeout` seconds of the broker's clock at most.

        Raises:
            TimeoutError: it has not. The message says what was waited for.
            Exception: what the fault's predicate raised.
        """
        __tracebackhide__ = True
        await self._portal.run(self._wait, times, timeout)
        self._is_checked = True
        if self.error is not None:
            raise self.error
        if self.hits < times:
            raise TimeoutError(f"{self._text}: happened {self.hits} times in {timeout:g} s, {times} were waited for")

    async def _wait(self, times: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while self.hits < times and self.error is None:
                await self._happened.wait()

    def happens(self) -> bool:
        """Called for each case: whether the fault happens now. If so, it is counted."""
        if self.over:
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        self.count()
        return True

    def count(self) -> None:
        self.hits += 1
        self._happened.set()
        self._happened = trio.Event()

    def failed(self, error: Exception) -> None:
        """Its predicate raised: that is the test's mistake, and must not end the broker."""
        _logger.error("%s: its predicate raised", self._text, exc_info=error)
        self.error = error
        self._happened.set()

    def begin(self, network: Network, hooks: Hooks) -> None:
        """Take effect."""

    def end(self, network: Network, hooks: Hooks) -> None:
        """End the effect."""


def nobody(client: str | None, connected: Iterable[str]) -> LookupError:
    """What is raised when a client is not there."""
    from difflib import get_close_matches  # only needed to explain a mistake

    if client is None:
        return LookupError("no client is connected")
    close = get_close_matches(client, connected := [*connected], 1)
    hint = f"did you mean {close[0]!r}?" if close else f"connected: {', '.join(map(repr, connected)) or 'nobody'}"
    return LookupError(f"no client {client!r} is connected; {hint}")
