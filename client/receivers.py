"""Where messages wait for their user: a buffer with a limit, and loops over it that acknowledge what they have done."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self
from weakref import WeakSet

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from trunkline.client.limits import WaitingLimits
    from trunkline.client.received import ReceivedMessage

#: Messages that a loop gets before other tasks have their turn.
MAX_RUN: Final = 256
#: While messages must be read to get to an answer, a buffer may grow beyond its limit. When it holds this many times as
#: much, QoS 0 messages are dropped.
OVERFULL: Final = 2


class ReceiverOwner(Protocol):
    def has_room(self, receiver: Receiver) -> None:
        """It has room for more messages again."""

    def closed(self, receiver: Receiver) -> None:
        """It gets no more."""

    def acknowledge_later(self, messages: Sequence[ReceivedMessage]) -> None:
        """Acknowledge what a loop has left, if the client goes on: it would hold up all that comes after it. If the
        client ends, the server delivers it again. From any thread."""


class Receiver:
    """The messages of some topic filters: `async for message in receiver`. Several tasks may loop over one receiver;
    each message goes to one of them.

    A message is acknowledged when its loop goes on to the next one, or when the receiver is closed. One whose loop was
    left, by `break`, an exception or cancellation, is acknowledged as soon as the client is found to go on. Messages
    with `auto_ack` False are acknowledged by `message.ack()`, at any time, and by nothing else.
    """

    #: Whether its topic filters are subscribed because of it.
    is_subscribed: ClassVar = False
    #: The subscription identifier that its messages have (5.0), if the user has chosen one.
    identifier = 0

    def __init__(
        self,
        filters: Sequence[str],
        *,
        manual_ack: bool,
        limits: WaitingLimits,
        owner: ReceiverOwner,
    ) -> None:
        self.filters = tuple(filters)
        self.manual_ack = manual_ack
        #: QoS 0 messages that found no room.
        self.dropped = 0
        self._limits = limits
        #: While it holds more messages than this, no more should be read.
        self._enough = limits.buffered - 1
        #: No fewer bytes than its messages have.
        self._size = 0
        self._owner = owner
        self._buffer: deque[ReceivedMessage] = deque()
        self._lot = trio.lowlevel.ParkingLot()
        self._is_over = False
        self._loops = WeakSet[Loop]()
        #: What loops had when they were left.
        self._left: list[ReceivedMessage] = []

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._buffer)

    @property
    def is_crowded(self) -> bool:
        """Whether no more should be read from the server."""
        return len(self._buffer) > self._enough

    # From the client

    def put(self, messages: Sequence[ReceivedMessage], size: int) -> None:
        """The messages of one read. They came in no more than `size` bytes."""
        buffer = self._buffer
        if self._is_over:
            for message in messages:
                message.ack()
            return
        if len(buffer) >= OVERFULL * self._limits.buffered or self._size >= OVERFULL * self._limits.buffered_bytes:
            kept = [message for message in messages if message.qos]
            self.dropped += len(messages) - len(kept)
            messages = kept
        buffer.extend(messages)
        self._size += size
        if self._size >= self._limits.buffered_bytes:
            self._weigh()
        self._lot.unpark_all()

    def _weigh(self) -> None:
        """Find out what the messages weigh, and how many must be taken before more are read. This is done when so many
        bytes have come that they may be too many, so that single messages need not be weighed."""
        weights = [message.weight for message in self._buffer.copy()]  # of which another thread may take some
        self._size = left = sum(weights)
        self._enough = self._limits.buffered - 1
        for taken, weight in enumerate(weights):
            if left < self._limits.buffered_bytes:
                break
            self._enough = min(self._enough, len(weights) - taken - 1)
            left -= weight

    def withdraw(self) -> None:
        """The connection is lost. The server delivers QoS 1 messages again, so those that wait here are dropped."""
        self._buffer.extend([message for message in self._drained() if message.qos != 1])
        self._enough = self._limits.buffered - 1

    def end(self) -> None:
        """Nothing more comes. Loops end when they have got what is there."""
        self._is_over = True
        self._lot.unpark_all()

    # For the user

    async def receive(self) -> ReceivedMessage:
        """The next message, already acknowledged unless `manual_ack` is set.

        Raises:
            trio.EndOfChannel: there are no more.
        """
        await self.some()
        message = self.pop()
        if message.auto_ack:
            message.ack()
        return message

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        loop = Loop(self, self._buffer)
        self._loops.add(loop)
        return loop

    async def some(self) -> None:
        """For loops: wait until there is a message; a checkpoint in any case.

        Raises:
            trio.EndOfChannel: there are no more.
        """
        if self._buffer or self._is_over:
            await trio.lowlevel.checkpoint()
        while not self._buffer:
            if self._is_over:
                raise trio.EndOfChannel
            await self._lot.park()

    def pop(self) -> ReceivedMessage:
        """For loops: take a message that is there."""
        buffer = self._buffer
        message = buffer.popleft()
        if len(buffer) == self._enough:
            self._enough = self._limits.buffered - 1
            self._owner.has_room(self)
        return message

    # For other threads, which take messages without entering the trio run

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self._is_over

    def poll(self) -> ReceivedMessage | None:
        """Take a message that is there. From any thread."""
        try:
            return self._buffer.popleft()
        except IndexError:
            return None

    async def polled(self) -> None:
        """The messages that were there are taken: wait until there is one again.

        Raises:
            trio.EndOfChannel: there are no more.
        """
        if not self.is_crowded:
            self._owner.has_room(self)
        await self.some()

    def _drained(self) -> list[ReceivedMessage]:
        """All messages, each of which another thread may take first."""
        found: list[ReceivedMessage] = []
        while (message := self.poll()) is not None:
            found.append(message)
        return found

    def left(self, message: ReceivedMessage) -> None:
        """For loops: this one was left while it had the message."""
        self._left = [each for each in self._left if not each.is_acknowledged] + [message]
        self._owner.acknowledge_later([message])

    def close(self) -> None:
        """What was not read is dropped and acknowledged, so that it holds up no other acknowledgement."""
        for message in self._left + self._take_left():
            message.ack()
        self._left.clear()
        self._owner.closed(self)

    def _take_left(self) -> list[ReceivedMessage]:
        """Nothing more comes, and nobody reads what is left: it is returned, with the messages that loops have."""
        self.end()
        return [message for loop in self._loops if (message := loop.leave()) is not None] + self._drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            self.close()
        else:
            self._owner.acknowledge_later(self._take_left())
            self._owner.closed(self)


class Loop:
    """One task's iteration. The statement that runs it has the only reference to it, so it is deleted when it is
    left."""

    __slots__ = ("__weakref__", "_buffer", "_current", "_receiver", "_run")

    def __init__(self, receiver: Receiver, buffer: deque[ReceivedMessage]) -> None:
        self._receiver = receiver
        self._buffer = buffer
        self._current: ReceivedMessage | None = None
        #: Messages since other tasks had their turn.
        self._run = MAX_RUN

    def __del__(self) -> None:
        if (current := self.leave()) is not None and not current.is_acknowledged:
            self._receiver.left(current)

    def leave(self) -> ReceivedMessage | None:
        """The message that the task has, unless that is acknowledged by hand."""
        current, self._current = self._current, None
        return current if current is not None and current.auto_ack else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        receiver, buffer, current = self._receiver, self._buffer, self._current
        if current is not None and current.auto_ack:
            current.ack_in_run()
        self._current = None
        self._run += 1
        if self._run > MAX_RUN or not buffer:
            self._run = 0
            try:
                await receiver.some()
            except trio.EndOfChannel:
                raise StopAsyncIteration from None
        self._current = message = receiver.pop()
        return message
