"""Messages as a consumer delivers them, and the answers to them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trunkline.streams.config import AckPolicy

if TYPE_CHECKING:
    from collections.abc import Generator

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.host import StreamHost
    from trunkline.streams.stream import Stream


@contextmanager
def receiving(stream: Stream, cursor: ConsumerCursor, host: StreamHost) -> Generator[None]:
    """The consumer has a receiver meanwhile."""
    cursor.receivers += 1
    try:
        yield
    finally:
        stream.consumers.left(cursor, host.now)


class ConsumedMessage:
    """A message that a consumer has delivered. It comes again until it is acknowledged, unless the consumer wants no
    acknowledgements; then, and after the first answer, all answers do nothing."""

    __slots__ = ("_cursor", "_delivered", "_host", "_is_open", "_stream")

    def __init__(self, host: StreamHost, stream: Stream, cursor: ConsumerCursor, delivered: Delivered) -> None:
        self._host = host
        self._stream = stream
        self._cursor = cursor
        self._delivered = delivered
        self._is_open = cursor.config.ack_policy is not AckPolicy.NONE

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.stream} {self.sequence} {self.topic!r}>"

    # What it is

    @property
    def message(self) -> Message:
        """As it was published."""
        return self._delivered.message

    @property
    def topic(self) -> str:
        return self._delivered.message.topic

    @property
    def payload(self) -> bytes:
        """Empty, if the consumer leaves payloads out."""
        return b"" if self._cursor.config.headers_only else self._delivered.message.payload

    @property
    def properties(self) -> Properties:
        return self._delivered.message.properties

    @property
    def stream(self) -> str:
        return self._stream.name

    @property
    def consumer(self) -> str:
        return self._cursor.name

    @property
    def sequence(self) -> int:
        """In the stream."""
        return self._delivered.sequence

    @property
    def consumer_sequence(self) -> int:
        """Numbers what the consumer delivers."""
        return self._delivered.consumer_sequence

    @property
    def delivered(self) -> int:
        """How often it was delivered, this time included."""
        return self._delivered.count

    @property
    def time(self) -> float:
        """When it was published, in seconds since the epoch."""
        return self._delivered.time + self._stream.log.behind

    @property
    def pending(self) -> int:
        """Messages that the consumer has still to deliver after this one."""
        return self._delivered.pending

    # Answers

    def ack(self) -> None:
        """It is done with. That is stored with the next commit, a second later at most."""
        if self._take_answer():
            self._stream.ack(self._cursor, self.sequence, self._host.now)

    async def ack_sync(self) -> None:
        """As `ack`, and wait until that is stored."""
        self.ack()
        await self._host.committed()

    def nak(self, delay: float = 0.0) -> None:
        """It comes again, after some seconds."""
        if self._take_answer():
            self._cursor.nak(self.sequence, delay, self._host.now)
            self._stream.consumers.note(self._cursor)

    def in_progress(self) -> None:
        """More time is needed: the ack wait begins anew."""
        if self._is_open:
            self._cursor.in_progress(self.sequence, self._host.now)
            self._stream.consumers.note(self._cursor)

    def term(self) -> None:
        """It does not come again, although it could not be handled."""
        self.ack()

    def _take_answer(self) -> bool:
        is_open, self._is_open = self._is_open, False
        return is_open
