"""A client that has to wait: for its routes, for a hook that asks somebody, for an access decision.

It waits alone. What it sends meanwhile is kept in order, and its connection reads no more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from trunkline.broker.session import mail
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Disconnect
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trunkline.actors import Ref
    from trunkline.broker.session.channel import Channel


class Waiting:
    """Of one session. `on` is True as long as an answer is missing."""

    __slots__ = ("_asking", "_held", "_start_task", "_timeout", "on")

    def __init__(self, start_task: Callable[[Callable[[], Awaitable[None]]], trio.CancelScope], timeout: float) -> None:
        """`start_task` runs a task that lives no longer than the session. Who is asked has `timeout` seconds."""
        self.on = False
        self._start_task = start_task
        self._timeout = timeout
        #: What came meanwhile. The connection is paused as long as this is not None.
        self._held: list[mail.Received | mail.Lost] | None = None
        self._asking: trio.CancelScope | None = None

    def hold(self, message: mail.Received | mail.Lost, *, first: bool = False) -> bool:
        """Returns whether it is new: what was held before may have to wait again."""
        new = not first or self._held is None
        if self._held is None:
            self._held = []
            message.channel.cast(mail.Pause(self))
        self._held.insert(0 if first else len(self._held), message)
        return new

    @property
    def held(self) -> Sequence[mail.Received | mail.Lost]:
        return self._held or ()

    @property
    def asks(self) -> bool:
        """Is a hook asked, which may take long? The routes answer at once."""
        return self._asking is not None

    def ask(
        self,
        session: Ref[Any],
        channel: Channel,
        question: Callable[[], Awaitable[Any]],
        answered: Callable[[Any], None],
    ) -> None:
        """Have a task ask; the answer comes back to the session as mail. When there is none, the client must go."""
        self.on = True

        def give_up() -> None:
            raise ProtocolError(
                f"a hook has not answered within {self._timeout:g} s", Reason.IMPLEMENTATION_SPECIFIC_ERROR
            )

        async def ask() -> None:
            proceed: Callable[[], None] = give_up
            with trio.move_on_after(self._timeout):
                answer = await question()
                proceed = partial(answered, answer)
            session.cast(mail.Answered(channel, proceed))

        self._asking = self._start_task(ask)

    def answered(self) -> None:
        self.on = False
        self._asking = None

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
        held, self._held = self._held, None
        if self._asking is not None:
            self._asking.cancel()
        self.answered()
        return any(
            type(packet) is Disconnect and packet.reason == Reason.SUCCESS
            for message in held or ()
            if type(message) is mail.Received
            for packet in message.packets
        )
