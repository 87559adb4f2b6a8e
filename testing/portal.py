"""Portals lead from a test into the trio run of its broker: the caller's own, or that of a thread.

Each operation is written once. A plain one is marked with `in_broker`, and runs where the broker lives. One that waits
is an async method marked with `maybe_async`: it runs where the caller is, and goes through the portal for what must be
done where the broker lives. For code that does not await, the portal blocks instead of waiting, so that such a method
is over as soon as it has begun, and is a plain one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import update_wrapper, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple, cast, overload

import trio

from trunkline.testing.arguments import check_names, names_in, takes_any
from trunkline.testing.awaiting import Calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Self

    from trunkline.hooks.chain import Hooks

A = ParamSpec("A")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Portal(ABC):
    @abstractmethod
    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a plain function there, and wait for what it returns or raises. It must be short."""

    @abstractmethod
    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function there. Cancelling this cancels it."""

    def hooks(self, hooks: Hooks) -> Hooks:
        """The broker's hooks, for the caller to register callbacks."""
        return hooks


class AsyncPortal(Portal):
    """For code that awaits."""

    def __init__(self) -> None:
        self.calls = Calls()


class BlockingPortal(Portal):
    """For code that does not: `run` is over when it has begun."""


class LocalPortal(AsyncPortal):
    """The broker lives in the caller's own trio run."""

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        __tracebackhide__ = True
        return await function(*args)


P = TypeVar("P", bound=Portal)
X = TypeVar("X", bound="Proxy[Any]")


class Proxy(Generic[P]):
    """Something of a broker, for code that awaits (`Proxy[AsyncPortal]`) or code that does not."""

    def __init__(self, portal: P) -> None:
        self._portal = portal


def in_broker(method: Callable[Concatenate[X, A], T]) -> Callable[Concatenate[X, A], T]:
    """A plain method that runs where the broker lives."""
    names = None if takes_any(method) else names_in(method)

    @wraps(method)
    def call(self: X, /, *args: A.args, **kwargs: A.kwargs) -> T:
        __tracebackhide__ = True
        if names is not None:
            check_names(method.__name__, kwargs, names)
        portal: Portal = self._portal  # pyright: ignore[reportPrivateUsage]
        return portal.call(lambda: method(self, *args, **kwargs))

    return call


def waiting_in_broker(method: Callable[Concatenate[X, A], Coroutine[Any, Any, T]]) -> maybe_async[A, T]:
    """As `maybe_async`, for a method all of which runs where the broker lives."""

    @wraps(method)
    async def run(self: X, /, *args: A.args, **kwargs: A.kwargs) -> T:
        __tracebackhide__ = True
        portal: Portal = self._portal  # pyright: ignore[reportPrivateUsage]
        return await portal.run(lambda: method(self, *args, **kwargs))

    return maybe_async(run)


class maybe_async(Generic[A, T]):
    """An async method: awaited by code that awaits, and plain for code that does not."""

    def __init__(self, method: Callable[Concatenate[Any, A], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self._names = None if takes_any(method) else names_in(method)
        update_wrapper(cast("Any", self), method)

    @overload
    def __get__(self, instance: None, owner: object) -> Self: ...
    @overload
    def __get__(self, instance: Proxy[BlockingPortal], owner: object) -> Callable[A, T]: ...
    @overload
    def __get__(self, instance: Proxy[AsyncPortal], owner: object) -> Callable[A, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Proxy[Any] | None, owner: object) -> object:
        if instance is None:
            return self
        method = MethodType(self._method, instance)
        portal: Portal = instance._portal  # pyright: ignore[reportPrivateUsage]

        @wraps(method)
        def begin(*args: A.args, **kwargs: A.kwargs) -> object:
            __tracebackhide__ = True
            if self._names is not None:
                check_names(method.__name__, kwargs, self._names)
            if isinstance(portal, AsyncPortal):
                return portal.calls.begin(method.__name__, method(*args, **kwargs))
            return _done(method, *args, **kwargs)

        return begin


def _done(method: Callable[A, Coroutine[Any, Any, T]], *args: A.args, **kwargs: A.kwargs) -> T:
    """Run a method for code that blocks, and return its result."""
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
