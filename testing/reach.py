"""How a test reaches the trio run in which its broker lives: it is the caller's own, or that of a thread.

What a test may wait for is written once, as async methods marked with `waits`. They run where the caller is, and what must
be done where the broker lives goes through a `Reach`. For code that does not await, the reach blocks instead of waiting,
so that such a method is over as soon as it is begun, and is a plain one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple, cast, overload

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Self

    from trunkline.hooks.chain import Hooks

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Reach(ABC):
    @abstractmethod
    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Have a plain function called there, and wait for what it returns or raises. It must be short."""

    @abstractmethod
    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Have an async function run there. Cancelling this cancels it."""

    def hooks(self, hooks: Hooks) -> Hooks:
        """The broker's hooks as the caller may register at them."""
        return hooks


class Awaiting(Reach):
    """For code that awaits."""


class Blocking(Reach):
    """For code that does not: `run` is over when it has been begun."""


class Here(Awaiting):
    """The broker lives in the caller's own trio run."""

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        return await function(*args)


R = TypeVar("R", bound=Reach)


class Reaching(Generic[R]):
    """Something of a broker, as code that awaits sees it (`Reaching[Awaiting]`) or code that does not."""

    def __init__(self, reach: R) -> None:
        self._reach = reach


class waits(Generic[P, T]):
    """An async method: awaited by code that awaits, and plain for code that does not."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        update_wrapper(cast("Any", self), method)

    @overload
    def __get__(self, instance: None, owner: object) -> Self: ...
    @overload
    def __get__(self, instance: Reaching[Blocking], owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Reaching[Awaiting], owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Reaching[Any] | None, owner: object) -> object:
        if instance is None:
            return self
        method = MethodType(self._method, instance)
        return partial(_done, method) if isinstance(instance._reach, Blocking) else method  # pyright: ignore[reportPrivateUsage]


def _done(method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a method of code that blocks returns."""
    __tracebackhide__ = True
    try:
        method(*args, **kwargs).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError(f"{method} waits for something besides the broker")


def in_trio() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
