"""A client that has to wait: for its routes, for a hook that asks somebody, for an access decision.

It waits alone. What it sends meanwhile is kept in order, and its connection reads no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.broker.session import mail
from trunkline.mqtt.packets import Disconnect
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from trunkline.actors import Ref
    from trunkline.broker.session.channel import Channel


class Waiting:
    """Of one session. `on` is True as long as an answer is missing."""

    __slots__ = ("_asking", "_held", "_start_task", "on")

    def __init__(self, start_task: Callable[[Callable[[], Awaitable[None]]], trio.CancelScope]) -> None:
        """`start_task` runs a task that lives no longer than the session."""
        self.on = False
        self._start_task = start_task
        #: What came meanwhile. The connection is paused as long as this is not None.
        self._held: list[mail.Received | mail.Lost] | None = None
        self._asking: trio.CancelScope | None = None

    def hold(self, message: mail.Received | mail.Lost, *, first: bool = False) -> None:
        if self._held is None:
            self._held = []
            message.channel.cast(mail.Pause(self))
        self._held.insert(0 if first else len(self._held), message)

    @property
    def question(self) -> object:
        """The last one, to be told from the next."""
        return self._asking

    def ask(
        self,
        session: Ref[Any],
        channel: Channel,
        question: Callable[[], Awaitable[Any]],
        answered: Callable[[Any], None],
    ) -> None:
        """Have a task ask; the answer comes back to the session as mail."""
        self.on = True

        async def ask() -> None:
            answer = await question()
            session.cast(mail.Answered(channel, lambda: answered(answer)))

        self._asking = self._start_task(ask)

    def go_on(self, handle: Callable[[mail.Received | mail.Lost], None]) -> bool:
        """With what was held, up to where the client has to wait again. Returns whether that was all, so that its
        connection may read on."""
        held = self._held
        while held and not self.on and self._held is held:
            handle(held.pop(0))
        if held is None or self._held is not held or self.on:
            return False
        self._held = None
        return True

    def end(self) -> bool:
        """The connection is gone, and nobody waits any more. Did what was held say goodbye, with a DISCONNECT that takes
        the will back?"""
        self.on = False
        held, self._held = self._held, None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        return any(
            type(packet) is Disconnect and packet.reason == Reason.SUCCESS
            for message in held or ()
            if type(message) is mail.Received
            for packet in message.packets
        )
