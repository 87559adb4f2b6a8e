"""What one thread waits for and another one brings."""

from __future__ import annotations

from collections import deque
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Seconds after which a waiting thread looks whether it was interrupted.
MAX_SLEEP: Final = 0.5


class Answer(Generic[T]):
    """A result or an error, brought by one thread, awaited by any others.

    Ctrl-C may interrupt a waiting thread between any two instructions. An interrupt in the middle of a method of
    `concurrent.futures.Future` leaves its condition locked, and the thread that brings the result then waits for ever.
    So nothing here is locked but what a waiting thread has for itself.
    """

    def __init__(self) -> None:
        self.done = False
        self._value: T
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[], object]] = deque()

    def set_result(self, value: T) -> None:
        """To be called from one thread only, as `set_exception`. The first result or error is the answer."""
        if not self.done:
            self._value = value
            self._set_done()

    def set_exception(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._set_done()

    def _set_done(self) -> None:
        self.done = True
        self._call_back()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """It is called once, here or in the thread that brings the answer."""
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread has just called it
                return
            callback()

    def wait(self, timeout: float = -1) -> None:
        """
        Raises:
            TimeoutError: there is no answer within `timeout` seconds; -1 waits for ever.
        """
        latch = Lock()
        latch.acquire()
        self.add_callback(latch.release)
        end = inf if timeout < 0 else monotonic() + timeout
        # a signal that comes just before the thread is asleep does not wake it
        while not latch.acquire(timeout=max(0.0, min(MAX_SLEEP, end - monotonic()))):
            if monotonic() >= end:
                raise TimeoutError

    def exception(self, timeout: float = -1) -> BaseException | None:
        """Wait for the answer. Returns its error, if it is one.

        Raises:
            TimeoutError: there is no answer within `timeout` seconds; -1 waits for ever.
        """
        self.wait(timeout)
        return self._error

    def result(self) -> T:
        """Wait for the answer. Its error is raised."""
        if (error := self.exception()) is not None:
            raise error
        return self._value
