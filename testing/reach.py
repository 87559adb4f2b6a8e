"""How a broker's face reaches the trio run in which the broker lives: it is the caller's own, or that of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Calls(Protocol):
    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Have a plain function called there, and wait for what it returns or raises. It must be short."""
        ...


class Reach(Calls, Protocol):
    """For code that awaits."""

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Have an async function run there. Cancelling this cancels it."""
        ...


class Blocking(Calls, Protocol):
    """For code that does not."""

    def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Have an async function run there, and block until it is done."""
        ...


class Here:
    """The broker lives in the caller's own trio run."""

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        return await function(*args)


def in_trio() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
