"""A request that waits for its reply."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import outcome
import trio
from trio.lowlevel import Abort

from trunkline.actors.exits import Down, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors.ref import Ref


class _Later(Enum):
    LATER = "later"


#: `handle_call` returns this when the reply comes later, through the `Reply` that it took.
LATER: Final = _Later.LATER


class Reply:
    """One call on its way: it lies in the mailbox among the casts, and settles once.

    The caller is forgotten as soon as it has its reply, its timeout or its cancellation. A later reply is
    dropped.
    """

    __slots__ = ("_answer", "_ref", "request", "taken")

    def __init__(self, ref: Ref[Any], request: object, answer: Callable[[outcome.Outcome[Any]], None]) -> None:
        self._ref = ref
        #: Gives the caller the result: wakes its task, or calls it back.
        self._answer: Callable[[outcome.Outcome[Any]], None] | None = answer
        self.request = request
        #: True when the handler keeps the call to reply later.
        self.taken = False

    @property
    def waiting(self) -> bool:
        """False when nobody waits any more: replied, timed out, or the caller was cancelled."""
        return self._answer is not None

    def send(self, value: object) -> None:
        """Give the caller its reply. A second one, or one that comes too late, is dropped."""
        self._settle(outcome.Value(value))

    def down(self, reason: Reason) -> None:
        self._settle(outcome.Error(Down(self._ref, reason)))

    def expire(self) -> None:
        self._settle(outcome.Error(trio.TooSlowError()))

    def abandon(self, _raise_cancel: object) -> Abort:
        """The caller was cancelled."""
        self._answer = None
        self._forget()
        return Abort.SUCCEEDED

    def _settle(self, result: outcome.Outcome[Any]) -> None:
        answer = self._answer
        if answer is not None:
            self._answer = None
            self._forget()
            answer(result)

    def _forget(self) -> None:
        if self.taken:
            self._ref.disown(self)
