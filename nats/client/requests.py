"""Requests and their answers: all answers come to one inbox, whose last token says which request they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.message import Message
from trunkline.nats.errors import BadHeaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.nats.client.message import Answering
    from trunkline.nats.protocol.operations import Deliver

#: The status that says that nobody subscribes to the subject of a request.
NO_RESPONDERS: Final = 503


class Answers:
    """Of one request."""

    __slots__ = ("_event", "messages", "token")

    def __init__(self, token: bytes) -> None:
        self.token = token
        self.messages: list[Message] = []
        self._event = trio.Event()

    def put(self, message: Message) -> None:
        self.messages.append(message)
        self._event.set()

    async def wait(self) -> None:
        """Until one more has come."""
        if not self.messages:
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()
        self._event = trio.Event()


class Inbox:
    """It is the receiver of its subscription."""

    def __init__(self, prefix: str, answering: Answering, random: Callable[[], str]) -> None:
        """`random` gives a token that nobody else has."""
        self.prefix = f"{prefix}.{random()}."
        self._length = len(self.prefix.encode())
        self._answering = answering
        self._requests: dict[bytes, Answers] = {}
        self._number = 0

    @property
    def pattern(self) -> str:
        return f"{self.prefix}*"

    def open(self) -> Answers:
        self._number += 1
        answers = Answers(b"%x" % self._number)
        self._requests[answers.token] = answers
        return answers

    def close(self, answers: Answers) -> None:
        """What comes later is for nobody."""
        self._requests.pop(answers.token, None)

    def put(self, wire: Deliver) -> None:
        answers = self._requests.get(wire.subject[self._length :])
        if answers is not None:
            answers.put(Message(wire, self._answering))


def is_refusal(message: Message) -> bool:
    """Whether the server says that nobody answers."""
    if message.payload:
        return False
    try:
        status = message.status
    except BadHeaders:
        return False
    return status is not None and status.code == NO_RESPONDERS
