"""One callback at one point, checked when it is registered: a mistake shows at the start, not at the first message."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from trunkline.hooks.points import Point

Callback: TypeAlias = Callable[..., Any]
C = TypeVar("C", bound=Callback)
T = TypeVar("T")


class HookError(Exception):
    """A callback does not fit its point."""


class RegistrationOptions(TypedDict, total=False):
    """How a callback is registered."""

    #: Higher ones run first, equal ones in the order of registration. By default 0.
    priority: int
    #: Called with the point's arguments; the callback is skipped if it returns false.
    filter: Callback | None
    #: Appended to the point's own.
    args: tuple[object, ...]
    #: For callbacks that only watch: such a callback is called once for messages that came together, with the
    #: publication in place of a message.
    publications: bool
    #: The name by which a listener's `authenticators` name it; empty for callbacks that are no authenticators.
    authenticator: str


class Registering:
    """Has callbacks registered at hook points."""

    __slots__ = ()

    def add(self, point: Point | str, callback: Callback, **options: Unpack[RegistrationOptions]) -> bool:
        """Register a callback; False when it is registered at this point already."""
        raise NotImplementedError

    def on(self, point: Point | str, **options: Unpack[RegistrationOptions]) -> Callable[[C], C]:
        """The decorator form of `add`."""

        def register(callback: C) -> C:
            self.add(point, callback, **options)
            return callback

        return register


class Registration:
    """A callback, and where and how it is registered. The chain runs `call`, which applies the filter and the extra
    arguments."""

    __slots__ = (
        "args",
        "authenticator",
        "call",
        "callback",
        "crashes",
        "filter",
        "is_async",
        "point",
        "priority",
        "publications",
        "rank",
        "settled",
        "waiting",
    )

    def __init__(self, point: Point, callback: Callback, **options: Unpack[RegistrationOptions]) -> None:
        check_options(callback, options)
        filter, args = options.get("filter"), options.get("args", ())
        publications = options.get("publications", False)
        _check_arguments(point, callback, args)
        if publications:
            _check_publications(point, callback, filter, args)
        if filter is not None:
            _check_arguments(point, filter, ())
            if is_async(filter):
                raise HookError(f"the filter {describe(filter)} of {describe(callback)} is async; a filter cannot wait")
        self.is_async = is_async(callback)
        if self.is_async and not point.waits:
            raise HookError(f"{describe(callback)} is async, but {point.name} cannot wait: its callbacks are plain")
        self.point = point
        self.callback = callback
        self.priority = options.get("priority", 0)
        self.filter = filter
        self.args = tuple(args)
        #: Whether it is called once for messages that came together.
        self.publications = publications
        self.authenticator = options.get("authenticator", "")
        #: How often it raised, or returned a value that its point does not accept.
        self.crashes = 0
        self.call = _bound(point, callback, filter, args)
        #: Its turn among those of the same priority.
        self.rank = 0
        #: Calls that wait for an async callback, and what is called when the last of them is over.
        self.waiting = 0
        self.settled: Callable[[], object] | None = None

    async def answer(self, result: Awaitable[T]) -> T:
        """The result of the async callback."""
        self.waiting += 1
        try:
            return await result
        finally:
            self.waiting -= 1
            if not self.waiting and self.settled is not None:
                self.settled()

    @property
    def turn(self) -> tuple[int, int]:
        return -self.priority, self.rank

    @property
    def name(self) -> str:
        return describe(self.callback)

    def __repr__(self) -> str:
        return f"<{self.name} at {self.point.name}, priority {self.priority}>"


def describe(callback: Callback) -> str:
    """Module and name, as a person would search for it."""
    while isinstance(callback, partial):
        callback = callback.func
    target: object = callback if hasattr(callback, "__qualname__") else type(callback)
    return ".".join(filter(None, (getattr(target, "__module__", ""), getattr(target, "__qualname__", ""))))


def is_async(callback: Callback) -> bool:
    while isinstance(callback, partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def check_options(callback: Callback, options: RegistrationOptions) -> None:
    """Raises HookError if there is no such option, or the priority is no whole number."""
    names = RegistrationOptions.__annotations__
    for name in options:
        if name not in names:
            from difflib import get_close_matches  # only needed to explain a mistake

            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(names)}"
            raise HookError(f"{describe(callback)}: a hook has no option {name!r}; {hint}")
    priority: object = options.get("priority", 0)
    if not isinstance(priority, int):
        raise HookError(f"{describe(callback)}: priority is {priority!r:.80}; accepted is a whole number")


def check_call(callback: Callback, how: str, arguments: Sequence[object]) -> inspect.Signature | None:
    """The callback's signature; None if it is unknown, as for some callables written in C.

    Raises:
        HookError: it cannot be called with these arguments; `how` describes the call.
    """
    try:
        signature = inspect.signature(callback)
    except ValueError:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise HookError(f"{how}, but {describe(callback)} takes {signature}: {error}") from None
    return signature


def _bound(point: Point, callback: Callback, filter: Callback | None, args: tuple[object, ...]) -> Callback:
    takes = _count_taken(point, callback)
    if filter is None:
        if not args and takes == len(point.arguments):
            return callback
        return lambda *values: callback(*values[:takes], *args)
    filter_takes = _count_taken(point, filter)

    def filtered(*values: object) -> object:
        return callback(*values[:takes], *args) if filter(*values[:filter_takes]) else None

    return filtered


def _count_taken(point: Point, callback: Callback) -> int:
    """How many of the point's arguments the callback is called with."""
    taken = point.required
    if taken == len(point.arguments):
        return taken
    try:
        parameters = list(inspect.signature(callback).parameters.values())
    except ValueError:
        return taken
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters[: taken + 1]):
        return len(point.arguments)
    named = [parameter.name for parameter in parameters]
    while taken < len(point.arguments) and named[taken : taken + 1] == [point.arguments[taken]]:
        taken += 1
    return taken


def _check_publications(point: Point, callback: Callback, filter: Callback | None, args: tuple[object, ...]) -> None:
    if point.publication is None:
        raise HookError(f"{describe(callback)} takes publications, but {point.name} has single messages alone")
    if filter is not None or args:
        raise HookError(f"{describe(callback)} takes publications, so it can have neither a filter nor extra arguments")


def _check_arguments(point: Point, callback: Callback, args: tuple[object, ...]) -> None:
    if not callable(callback):
        raise HookError(f"{callback!r} cannot be called, so it cannot be registered at {point.name}")
    given = point.arguments[: _count_taken(point, callback)]
    count = f"{len(given)} argument" + ("" if len(given) == 1 else "s")
    extra = f" and {len(args)} of its own" if args else ""
    signature = check_call(callback, f"{point} calls back with {count}{extra}", (*given, *args))
    if signature is None:
        return
    for position, name in enumerate(signature.parameters):
        if name in point.arguments and position < len(point.arguments) and point.arguments[position] != name:
            raise HookError(
                f"{point} calls back in this order, "
                f"but {describe(callback)} takes {signature}: {name!r} is at another position"
            )
