"""A client in a thread of its own, and what it hands to other threads: receipts, receivers and subscriptions."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary

import trio

from trunkline.actors.context_thread import ContextThread
from trunkline.actors.trio_thread import limit
from trunkline.client.block import BlockClient
from trunkline.client.errors import ClientClosed
from trunkline.client.messaging import Subscription as TrioSubscription
from trunkline.client.receivers import Receiver as TrioReceiver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from trunkline.client.errors import ClientError
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.requests import Receipt as TrioReceipt

A = ParamSpec("A")
B = TypeVar("B", bound=BlockClient)
R = TypeVar("R", bound=TrioReceiver)
T = TypeVar("T")


class ClientThread(ContextThread, Generic[B]):
    """A client, and the thread that it runs in once it is opened."""

    def __init__(self, client: B) -> None:
        super().__init__("the client", lambda: client, stopped=ClientClosed)
        self.client = client
        #: What loops of the main thread had when they were left, perhaps by an interrupt.
        self._left: deque[ReceivedMessage] = deque()

    def check(self) -> None:
        """
        Raises:
            Exception: what ended the client, if the user did not.
        """
        if self.client.failure is not None:
            raise self.client.failure
        if self.is_over:
            with suppress(ClientClosed):
                self.opened.check()

    def run(self, timeout: float | None, function: Callable[A, Awaitable[T]], *args: A.args, **kwargs: A.kwargs) -> T:
        self.go_on()
        return super().run(timeout, function, *args, **kwargs)

    def call(self, function: Callable[A, T], *args: A.args, **kwargs: A.kwargs) -> T:
        self.go_on()
        return super().call(function, *args, **kwargs)

    def call_early(self, function: Callable[A, T], *args: A.args, **kwargs: A.kwargs) -> T:
        """The same as `call`, also before the client is opened."""
        return self.call(function, *args, **kwargs) if self.is_opened else function(*args, **kwargs)

    def left(self, message: ReceivedMessage) -> None:
        """A loop was left while it had the message, which would hold up all that comes after it. An interrupt may be
        why, in the main thread, and end the client: there the message waits until the thread goes on."""
        if current_thread() is main_thread():
            self._left.append(message)
        else:
            message.ack()

    def interrupted(self) -> None:
        """What loops had when they were left is not acknowledged."""
        self._left.clear()

    def go_on(self) -> None:
        """This thread calls the client again."""
        if self._left and current_thread() is main_thread():
            while self._left:
                self._left.popleft().ack()


class Receipt:
    """A request on its way."""

    def __init__(self, receipt: TrioReceipt, thread: ClientThread[Any]) -> None:
        self._receipt = receipt
        self._thread = thread

    @property
    def is_done(self) -> bool:
        return self._receipt.is_done

    @property
    def error(self) -> ClientError | None:
        """Why it failed, if it is done and did."""
        return self._receipt.error

    def wait(self, *, timeout: float | None = None) -> int:
        """The server's reason code, below 0x80. A timeout only ends the waiting."""
        return self._thread.run(timeout, self._receipt.wait)

    def cancel(self) -> None:
        """Take it out of the queue. What was sent cannot be taken back."""
        self._thread.call(self._receipt.cancel)


class _Messages(Generic[R]):
    def __init__(self, receiver: R, thread: ClientThread[Any]) -> None:
        self._receiver = receiver
        self._thread = thread
        self._loops = WeakValueDictionary[int, _Loop]()

    @property
    def filters(self) -> tuple[str, ...]:
        return self._receiver.filters

    @property
    def dropped(self) -> int:
        """QoS 0 messages that found no room."""
        return self._receiver.dropped

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._receiver)

    def receive(self, *, timeout: float | None = None) -> ReceivedMessage:
        """The next message, already acknowledged unless `manual_ack` is set.

        Raises:
            TimeoutError: none has come.
            trio.EndOfChannel: there are no more.
        """
        self._thread.go_on()
        message = self.next(timeout)
        if message.auto_ack:
            message.ack()
        return message

    def __iter__(self) -> Iterator[ReceivedMessage]:
        self._thread.go_on()
        loop = _Loop(self)
        self._loops[id(loop)] = loop
        return loop

    def next(self, timeout: float | None = None) -> ReceivedMessage:
        """For loops: wait for a message, and take it. What ends the client comes after the messages before it."""
        until = None if timeout is None else monotonic() + limit(timeout)
        while (message := self._receiver.poll()) is None:
            try:
                self._wait(None if until is None else max(0.0, until - monotonic()))
            except TimeoutError:
                raise TimeoutError(f"no message within {timeout:g} s") from None
            except Exception:
                if (message := self._receiver.poll()) is not None:
                    break
                raise
        return message

    def _wait(self, timeout: float | None) -> None:
        """Until there may be a message."""
        self._thread.check()
        if self._receiver.is_over:
            raise trio.EndOfChannel
        with suppress(trio.EndOfChannel, ClientClosed):
            self._thread.run(timeout, self._receiver.polled)

    def left(self, message: ReceivedMessage) -> None:
        """For loops: this one was left while it had the message."""
        self._thread.left(message)

    def _running_loops(self) -> list[_Loop]:
        return [loop for each in self._loops.valuerefs() if (loop := each()) is not None]

    def close(self) -> None:
        """What was not read is dropped and acknowledged, so that it holds up no other acknowledgement."""
        for loop in self._running_loops():
            loop.finish()
        with suppress(ClientClosed):
            self._thread.call_early(self._receiver.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            for loop in self._running_loops():
                loop.finish()
        else:
            self._thread.interrupted()
        if not self._thread.is_over:
            with suppress(ClientClosed):
                self._thread.run(None, self._receiver.__aexit__, kind, error, trace)


class Receiver(_Messages[TrioReceiver]):
    """The messages of some topic filters: `for message in receiver`. Several threads may loop over one receiver; each
    message goes to one of them.

    A message is acknowledged when its loop goes on to the next one, or when the receiver is closed. One whose loop was
    left, by `break` or an exception, is acknowledged: in the main thread by the next call of the client. Messages with
    `auto_ack` False are acknowledged by `message.ack()`, at any time and in any thread, and by nothing else.
    """


class Subscription(_Messages[TrioSubscription]):
    """The messages of a subscription, as of a `Receiver`. Leaving its block (`with`) unsubscribes."""

    @property
    def granted(self) -> dict[str, int]:
        """The reason code for each topic filter: the QoS that the server grants."""
        return self._receiver.granted

    def unsubscribe(self, *, timeout: float | None = None) -> None:
        """No more messages come. Loops end when they have got what is there."""
        self._thread.run(timeout, self._receiver.unsubscribe)


class _Loop:
    """One thread's iteration. The statement that runs it has the only reference to it, so it is deleted when it is
    left."""

    __slots__ = ("__weakref__", "_current", "_messages")

    def __init__(self, messages: _Messages[Any]) -> None:
        self._messages = messages
        self._current: ReceivedMessage | None = None

    def __del__(self) -> None:
        if (current := self._leave()) is not None and not current.is_acknowledged:
            self._messages.left(current)

    def finish(self) -> None:
        """The thread is done with its message."""
        if (current := self._leave()) is not None:
            current.ack()

    def _leave(self) -> ReceivedMessage | None:
        """The message that the thread has, unless that is acknowledged by hand."""
        current, self._current = self._current, None
        return current if current is not None and current.auto_ack else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        self.finish()
        try:
            self._current = message = self._messages.next()
        except trio.EndOfChannel:
            raise StopIteration from None
        return message
