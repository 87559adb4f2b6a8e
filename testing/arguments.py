"""Names of arguments that a test may have wrong. Python's own error names a function that the test has not called."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trunkline.config.key_path import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


A = ParamSpec("A")
T = TypeVar("T")


def takes_any(method: Callable[..., Any]) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(method).parameters.values())


def names_in(method: Callable[..., Any]) -> frozenset[str]:
    """The keyword arguments in a method's signature."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return frozenset(each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))


def check_names(method: str, given: Iterable[str], known: Collection[str]) -> None:
    """
    Raises:
        TypeError: the method has no such argument.
    """
    __tracebackhide__ = True
    for name in given:
        if name not in known:
            hint = (
                nearest(name, sorted(known), cutoff=0.5) or f"; it takes {', '.join(sorted(known)) or 'none by name'}"
            )
            raise TypeError(f"{method}() has no argument {name!r}{hint}")


def naming(options: type) -> Callable[[Callable[A, T]], Callable[A, T]]:
    """For a method that takes these options beside its own arguments: its error is its own, and not that of what it
    hands them to."""

    def checked(method: Callable[A, T]) -> Callable[A, T]:
        known = names_in(method) | options.__annotations__.keys()

        @wraps(method)
        def call(*args: A.args, **kwargs: A.kwargs) -> T:
            __tracebackhide__ = True
            check_names(method.__name__, kwargs, known)
            return method(*args, **kwargs)

        return call

    return checked
