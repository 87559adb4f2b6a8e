"""What a method that waits gives: something to be awaited. A plain coroutine is true, so `assert broker.wait_for("x")`
would pass without a wait; and one that is never awaited is a warning that few see.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


class Calls:
    """Calls that were not awaited so far."""

    def __init__(self) -> None:
        self._waiting: dict[Unawaited[Any], None] = {}

    def begin(self, name: str, coroutine: Coroutine[Any, Any, T]) -> Unawaited[T]:
        """To be called by what the test calls."""
        caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - as `warnings` finds it
        where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        waiting = Unawaited(name, coroutine, f"{name}() in {where}", self)
        self._waiting[waiting] = None
        return waiting

    def begun(self, waiting: Unawaited[Any]) -> None:
        self._waiting.pop(waiting, None)

    def check(self) -> None:
        """
        Raises:
            AssertionError: there are some.
        """
        __tracebackhide__ = True
        left = [*self._waiting]
        for waiting in left:
            waiting.close()
        if left:
            raise AssertionError("\n".join(f"{each} was never awaited, and did nothing: await it" for each in left))


class Unawaited(Coroutine[Any, Any, T]):
    """A coroutine whose truth is an error."""

    def __init__(self, name: str, coroutine: Coroutine[Any, Any, T], text: str, calls: Calls) -> None:
        self._coroutine = coroutine
        self._text = text
        self._calls = calls
        # as frameworks name tasks
        self.__name__ = self.__qualname__ = name

    def __repr__(self) -> str:
        return self._text

    def __bool__(self) -> NoReturn:
        __tracebackhide__ = True
        self.close()
        raise AssertionError(f"{self} is neither true nor false before it is awaited: await it")

    if not TYPE_CHECKING:  # type checkers know what a coroutine has

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{self} has no {name!r} before it is awaited: await it")

        def __getitem__(self, key: object) -> NoReturn:
            raise TypeError(f"{self} has no items before it is awaited: await it")

    def __await__(self) -> Generator[Any, Any, T]:
        __tracebackhide__ = True
        self._calls.begun(self)
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        __tracebackhide__ = True
        self._calls.begun(self)
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        __tracebackhide__ = True
        self._calls.begun(self)
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._calls.begun(self)
        self._coroutine.close()
