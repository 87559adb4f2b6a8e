"""Requests and their answers: all answers come to one inbox, whose last token says which request they are for."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.message import Message
from trunkline.nats.errors import BadHeaders
from trunkline.nats.protocol import encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.nats.client.message import Answering
    from trunkline.nats.errors import NatsError, PermissionDenied
    from trunkline.nats.protocol.operations import Deliver

#: The status that says that nobody subscribes to the subject of a request.
NO_RESPONDERS: Final = 503


class Answers:
    """Of one request."""

    __slots__ = (
        *("_event", "_inbox", "_is_over", "_is_slow", "_left", "_max_bytes", "_max_messages"),
        *("deadline", "error", "messages", "subject", "token"),
    )

    def __init__(
        self, inbox: Inbox, subject: str, token: bytes, max_answers: float, max_messages: int, max_bytes: int
    ) -> None:
        """More than `max_answers` are not asked for; `max_messages` and `max_bytes` may wait."""
        self._inbox = inbox
        self.subject = subject
        self.token = token
        #: What comes later does not count.
        self.deadline = inf
        #: Why there will be none.
        self.error: NatsError | None = None
        self.messages: list[Message] = []
        self._left = max_answers
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._is_slow = False
        self._event = trio.Event()
        self._is_over = False

    def put(self, message: Message) -> None:
        if not self._left or trio.current_time() > self.deadline:
            return
        # what is larger by itself waits alone
        is_full = len(self.messages) >= self._max_messages or message.size > self._max_bytes
        if self.messages and is_full:
            if not self._is_slow:
                self._is_slow = True
                self._inbox.slow(self.subject)
            return
        self._left -= 1
        self._max_bytes -= message.size
        self.messages.append(message)
        self._event.set()

    def take(self) -> Message:
        message = self.messages.pop(0)
        self._max_bytes += message.size
        return message

    def close(self) -> None:
        """What comes later is for nobody."""
        self._inbox.close(self.token)

    def end(self, error: NatsError | None = None) -> None:
        """No more will come."""
        self._is_over, self.error = True, error
        self._event.set()

    async def wait(self) -> None:
        """Until one more has come, or none will."""
        if not (self.messages or self._is_over):
            self._event = trio.Event()
            await self._event.wait()
        else:
            await trio.lowlevel.checkpoint()


class Inbox:
    """It is the receiver of its subscription."""

    def __init__(self, prefix: str, sid: bytes, answering: Answering, slow: Callable[[str], object]) -> None:
        """Nobody else has this prefix. `slow` is told of a subject, answers from which find no room."""
        self.prefix = f"{prefix}."
        self.sid = sid
        self.is_over = False
        self._length = len(self.prefix.encode())
        self._answering = answering
        self.slow = slow
        self._requests: dict[bytes, Answers] = {}
        self._number = 0

    def again(self) -> Iterable[bytes]:
        """What a new connection is asked for."""
        yield encoder.subscribe(f"{self.prefix}*".encode(), self.sid)

    def open(self, subject: str, max_answers: float, max_messages: int, max_bytes: int) -> Answers:
        self._number += 1
        answers = Answers(self, subject, b"%x" % self._number, max_answers, max_messages, max_bytes)
        self._requests[answers.token] = answers
        return answers

    def close(self, token: bytes) -> None:
        self._requests.pop(token, None)

    def denied(self, error: PermissionDenied) -> None:
        self.is_over = not error.is_publishing and error.subject == f"{self.prefix}*"
        for answers in self._requests.values():
            if self.is_over or (error.is_publishing and error.subject == answers.subject):
                answers.end(error)

    def end(self, failure: NatsError | None = None) -> None:
        """No more will come."""
        del failure
        for answers in self._requests.values():
            answers.end()

    def put(self, wire: Deliver) -> None:
        answers = self._requests.get(wire.subject[self._length :])
        if answers is not None:
            answers.put(Message(wire, self._answering))


def code_of(message: Message | Deliver) -> int:
    """The code of the status that has come in place of an answer; 0 for none."""
    if message.payload:
        return 0
    try:
        status = message.status
    except BadHeaders:
        return 0
    return 0 if status is None else status.code


def is_refusal(message: Message | Deliver) -> bool:
    """Whether the server says that nobody answers."""
    return code_of(message) == NO_RESPONDERS
