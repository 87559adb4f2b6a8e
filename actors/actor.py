# pyright: reportPrivateUsage=false
"""The class that actors are derived from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.actors.calls import Reply
    from trunkline.actors.exits import Reason
    from trunkline.actors.ref import Ref
    from trunkline.actors.scheduler import Scheduler
    from trunkline.actors.timers import Timer

M = TypeVar("M")


class Actor(Generic[M]):
    """State that only its own handlers touch, one message after the other.

    Handlers are plain functions: a message costs no task switch. What must be awaited goes into `setup`, `teardown`
    or a task of the actor's own. A handler that raises ends the actor, and its supervisor decides what follows.
    """

    __slots__ = ("ref", "scheduler")

    sets_up: ClassVar[bool] = False
    tears_down: ClassVar[bool] = False

    ref: Ref[M]
    scheduler: Scheduler

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.sets_up = cls.setup is not Actor[Any].setup
        cls.tears_down = cls.teardown is not Actor[Any].teardown

    # -- what a subclass writes

    def init(self) -> None:
        """Runs at the start, before any message. `ref` and `scheduler` are there; in `__init__` they aren't."""

    async def setup(self) -> None:
        """As `init`, for what must be awaited. Messages wait until it is done; if it raises, the start has failed."""

    def handle(self, message: M) -> None:
        raise NotImplementedError(f"{type(self).__name__} takes no messages, but got {message!r}")

    def handle_many(self, messages: list[M]) -> None:
        """All messages that came since the last turn. Override it where a batch is cheaper than its messages."""
        handle = self.handle
        for message in messages:
            handle(message)

    def handle_handed(self, message: Any) -> None:
        """Handle an object that was handed to the actor and not cast; it may have another type."""
        raise NotImplementedError(f"{type(self).__name__} is handed nothing, but got {message!r}")

    def yields(self, messages: list[M]) -> bool:
        """May messages handed over now overtake these, which wait in the mailbox and come from other senders?"""
        del messages
        return False

    def handle_call(self, request: object) -> object:
        """Returns the reply, or `LATER` after taking `reply_later()`."""
        raise NotImplementedError(f"{type(self).__name__} takes no calls, but got {request!r}")

    def undelivered(self, messages: list[M]) -> None:
        """The actor ends without handling these messages of its mailbox. `terminate` follows."""

    def terminate(self, reason: Reason) -> None:
        """Runs at the end, whatever the reason, before the actor's tasks are cancelled: for cleanup without an
        await."""

    async def teardown(self, reason: Reason) -> None:
        """Runs at the end, when the actor's tasks are over; shielded, and cancelled after the child's `shutdown`."""

    # -- what it may use

    def stop(self, reason: Reason = None) -> None:
        """End after the current batch. Messages still in the mailbox are dropped."""
        self.ref._quit(reason)

    def send_after(self, delay: float, message: M) -> Timer:
        """Cast `message` to this actor after `delay` seconds. The timer may be cancelled, or armed again for the same
        message."""
        return self.call_at(trio.current_time() + delay, self.ref.cast, message)

    def call_at(self, deadline: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call back when node time reaches `deadline`, ahead of the messages in the mailbox, unless the actor has
        ended. If the callback raises, the actor crashes."""
        return self.scheduler.call_at(deadline, callback, *args, owner=self.ref)

    def start_task(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> trio.CancelScope:
        """Run a task that lives no longer than the actor. An exception from it crashes the actor.

        Returns its cancel scope, which ends it earlier.
        """
        return self.ref._start_task(async_fn, args)

    def reply_later(self) -> Reply:
        """In `handle_call`: keep the call, return `LATER`, and `send` the reply when there is one."""
        return self.scheduler.take_call()
