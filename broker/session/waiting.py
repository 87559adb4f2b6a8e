"""A client has to wait for its routes, for a hook, for an access decision, or for the commit before its CONNACK. Other
clients do not wait. Its packets are kept in order meanwhile, and its connection stops reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trunkline.broker.session import mail
from trunkline.broker.session.lifecycle import SessionEvent
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Disconnect, Publish
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.mqtt.publication import Decoded
    from trunkline.mqtt.session.ledger import Wait

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiting:
    context: SessionContext
    #: Packets that came meanwhile. The connection is paused while this is not None.
    _held: list[mail.Received | mail.Lost] | None = None
    _asking: trio.CancelScope | None = None

    def hold(self, message: mail.Received | mail.Lost, *, first: bool = False) -> bool:
        """Returns False for packets that were held before and have to wait again."""
        new = not first or self._held is None
        if self._held is None:
            self._held = []
            message.channel.cast(mail.Pause(self))
        self._held.insert(0 if first else len(self._held), message)
        return new

    @property
    def packet_ids(self) -> Sequence[int]:
        """The number of held PUBLISH packets that need an acknowledgement."""
        return [
            packet_id
            for message in self._held or ()
            if type(message) is mail.Received
            for packet in message.packets
            if isinstance(packet, Publish | PublishBatch) and packet.qos
            for packet_id in packet.packet_ids
        ]

    @property
    def asks(self) -> bool:
        """Whether it waits for a hook or an access service, which may take long. The routes answer at once."""
        return self._asking is not None

    def ask(
        self,
        channel: Channel,
        question: Callable[[], Coroutine[Any, Any, T]],
        answered: Callable[[T], None],
        *,
        in_task: bool = True,
    ) -> None:
        """Answer a question. Where it has to be awaited, a task does that, and the answer comes back to the session as
        mail; without an answer in time the client is disconnected.

        Raises:
            ProtocolError: the client must go.
        """
        if not in_task:
            answered(at_once(question()))
            return
        self.begin()
        timeout = self.context.services.config.session.hook_timeout

        def give_up() -> None:
            raise ProtocolError(f"a hook has not answered within {timeout:g} s", Reason.IMPLEMENTATION_SPECIFIC_ERROR)

        async def ask() -> None:
            proceed: Callable[[], None] = give_up
            with trio.move_on_after(timeout):
                answer = await question()
                proceed = partial(answered, answer)
            self.context.subscriber.cast(mail.Answered(channel, proceed))

        self._asking = self.context.start_task(ask)

    def begin(self) -> None:
        """Somebody was asked, who answers with `mail.Answered` or `mail.Routed`."""
        self.context.follow(SessionEvent.ASK)

    def until(self, wait: Wait, channel: Channel, proceed: Callable[[], None]) -> None:
        """Go on when `wait` calls back."""
        self.begin()
        wait(lambda: self.context.subscriber.cast(mail.Answered(channel, proceed)))

    def answered(self, channel: Channel) -> None:
        self.context.follow(SessionEvent.ANSWER, channel)
        self._asking = None

    def go_on(self, channel: Channel, handle: Callable[[mail.Received | mail.Lost], None]) -> None:
        """Handle the held packets, until the client has to wait again. After the last one the connection continues
        reading."""
        held = self._held
        while held and self.context.reading is channel:
            handle(held.pop(0))
        if held is not None and self.context.reading is channel:
            self._held = None
            channel.cast(mail.Resume(self))

    def end(self) -> bool:
        """The connection has ended. Returns True if a held DISCONNECT cancels the will."""
        held, self._held = self._held, None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        return any(type(message) is mail.Received and say_goodbye(message.packets) for message in held or ())


def say_goodbye(packets: Iterable[Decoded]) -> bool:
    """Whether a DISCONNECT among them cancels the will."""
    return any(type(packet) is Disconnect and packet.reason == Reason.SUCCESS for packet in packets)


def at_once(question: Coroutine[Any, Any, T]) -> T:
    """The result of what awaits nothing, without a task."""
    try:
        question.send(None)
        while True:
            question.throw(TypeError("a callback that is not async returned something to be awaited"))
    except StopIteration as done:
        result: T = done.value
        return result
