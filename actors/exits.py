"""How actors end: the reasons, and the message that reports an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from trunkline.actors.bonds import Monitor
    from trunkline.actors.ref import Ref

#: Why an actor ended. None is a normal end, `Shutdown` an ordered one, anything else a crash.
Reason: TypeAlias = BaseException | None


class Shutdown(Exception):
    """An ordered end: the supervisor's, or one that a handler asks for by raising it. Never counts as a crash."""


class Down(Exception):
    """An actor has ended: raised from a call to it, and delivered as a message to the actor that monitors it."""

    def __init__(self, ref: Ref[Any], reason: Reason, monitor: Monitor | None = None) -> None:
        super().__init__(ref, reason)
        self.ref = ref
        self.reason = reason
        #: The monitor that asked for this message; None for a failed call.
        self.monitor = monitor

    def __str__(self) -> str:
        return f"{self.ref.name} is down ({'normal' if self.reason is None else repr(self.reason)})"


class TooManyRestarts(Exception):
    """A supervisor gave up: its children crashed more often than its intensity allows."""

    def __init__(self, supervisor: str, child: str, reason: Reason) -> None:
        super().__init__(supervisor, child, reason)
        self.supervisor = supervisor
        self.child = child
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.supervisor} gave up: {self.child} ended too often, at last with {self.reason!r}"


def abnormal(reason: Reason) -> bool:
    """True for a crash: it is logged, and a transient child is started again."""
    return reason is not None and not isinstance(reason, Shutdown)


def innermost(error: BaseException) -> BaseException:
    """The single exception inside nested groups, or the innermost group with several exceptions."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    first = group.exceptions[0]
    return group if len(group.exceptions) > 1 else innermost(first)
