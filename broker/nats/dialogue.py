"""The operations of one client in order, and the answers to them.

A limited number is handled in a turn. Where one has to wait, for its login, for a route or for a hook, those behind it
wait too, and nothing more is read.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from trunkline.actors import Due, Later
from trunkline.broker.session.waiting import at_once
from trunkline.mqtt.reasons import Reason
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.operations import Publish

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.nats.nats_listener import NatsListener
    from trunkline.broker.net.transport import Transport
    from trunkline.nats.protocol.operations import FromClient

T = TypeVar("T")

#: Operations that are handled before others get their turn.
OPERATIONS_AT_ONCE: Final = 250
#: Bytes of copies that may wait for the end of a turn. A client may have thousands of subscriptions to one subject, so
#: that one message of 1 MiB becomes gigabytes for it.
WRITTEN_AT_ONCE: Final = 1 << 20
_OK: Final = b"+OK\r\n"


class Line(Protocol):
    """A connection, as the dialogue on it sees it."""

    @property
    def ref(self) -> Ref[Any]: ...
    @property
    def scheduler(self) -> Scheduler: ...
    def pause(self, holder: object, /) -> None: ...
    def resume(self, holder: object, /) -> None: ...
    def operate(self, operation: FromClient, /) -> None:
        """Handle one operation."""
        ...

    def all_done(self) -> None:
        """All operations that have come are handled."""
        ...

    def close(self, farewell: str, reason: Reason, text: str, /) -> None: ...
    def cut_off(self) -> None:
        """More waits for the client than may."""
        ...


class Dialogue:
    __slots__ = (
        "_later",
        "_left",
        "_line",
        "_listener",
        "_operations",
        "_transport",
        "_waits",
        "_written",
        "is_over",
        "is_too_slow",
        "is_verbose",
        "pieces",
        "ref",
        "scheduler",
    )

    def __init__(self, line: Line, transport: Transport, listener: NatsListener) -> None:
        self._line = line
        self._transport = transport
        self._listener = listener
        self.ref = line.ref
        self.scheduler = line.scheduler
        self._later = Later(line.ref, line.scheduler)
        #: What leaves at the end of the turn.
        self.pieces: list[bytes] = []
        #: Whether each operation is answered. A client that has not said so is: that is NATS's default.
        self.is_verbose = True
        #: Bytes of the copies among them.
        self._written = 0
        #: More than `nats.max_pending` waits, and the connection is about to be cut.
        self.is_too_slow = False
        #: Nothing more is handled.
        self.is_over = False
        #: What waits for its turn.
        self._operations: deque[FromClient] = deque()
        #: Whether something is awaited before the next one is handled.
        self._waits = False
        #: How many more may be handled in this turn.
        self._left = OPERATIONS_AT_ONCE

    @property
    def pending(self) -> int:
        """Bytes that wait because the client does not read them yet."""
        return self._transport.pending

    # Operations

    def take(self, operations: list[FromClient]) -> None:
        self._operations.extend(operations)
        if self._waits:
            self._line.pause(self)
        else:
            self._left = OPERATIONS_AT_ONCE
            self._go_on()

    def alike(self, first: Publish, most: int) -> list[bytes]:
        """The payloads, each of up to `most` bytes, of the messages that follow at once and differ in nothing else.
        They are handled with the first one, which has no reply and no headers."""
        operations, subject, payloads = self._operations, first.subject, list[bytes]()
        while operations and len(payloads) < self._left:
            following = operations[0]
            if (
                type(following) is not Publish
                or following.subject != subject
                or following.reply
                or following.block
                or len(following.payload) > most
            ):
                break
            payloads.append(following.payload)
            operations.popleft()
        self._left -= len(payloads)
        return payloads

    def put_back(self, operation: FromClient) -> None:
        """It is handled again, before all others."""
        self._operations.appendleft(operation)

    def _go_on(self) -> None:
        """Handle operations until one has to wait, or others are to have their turn."""
        operations, operate = self._operations, self._line.operate
        while operations and not self._waits and not self.is_over:
            if not self._left:
                self.wait()
                self._later.next_turn(self._next_turn)
                break
            self._left -= 1
            operate(operations.popleft())
        if self.is_over:
            operations.clear()
        elif operations:
            self._line.pause(self)
        elif not self._waits:
            self._line.resume(self)
            self._line.all_done()

    def _next_turn(self) -> None:
        self._left = OPERATIONS_AT_ONCE
        self.proceed()

    @property
    def is_waiting(self) -> bool:
        return self._waits

    def wait(self) -> None:
        """Handle nothing more until `proceed`."""
        self._waits = True

    def proceed(self) -> None:
        self._waits = False
        if not self.is_over:
            self._go_on()

    def soon(self, action: Callable[[], object]) -> None:
        """From another's turn: call `action` in a turn of the connection's own."""
        self.ref.cast(Due(action))

    def ask(
        self,
        question: Callable[[], Coroutine[Any, Any, T]],
        answered: Callable[[T], None],
        *,
        in_task: bool,
        is_hook: bool = True,
    ) -> None:
        """Answer a question; where it has to be awaited, a task does that, and the client waits. Without an answer of a
        hook in time it is disconnected."""
        if not in_task:
            answered(at_once(question()))
            return
        self.wait()
        timeout = self._listener.config.session.hook_timeout if is_hook else inf

        async def wait() -> None:
            with trio.move_on_after(timeout):
                answer = await question()
                self.soon(partial(self._answered, partial(answered, answer)))
                return
            text = f"a hook has not answered within {timeout:g} s"
            self.soon(partial(self.end, "", Reason.IMPLEMENTATION_SPECIFIC_ERROR, text))

        self._later.start_task(wait)

    def _answered(self, go_on: Callable[[], None]) -> None:
        if not self.is_over:
            self._waits = False
            go_on()
            self._go_on()

    # Answers

    def acknowledge(self) -> None:
        """+OK, if the client wants it."""
        if self.is_verbose:
            self.pieces.append(_OK)

    def complain(self, text: str) -> None:
        """-ERR, which leaves the connection as it is."""
        self.pieces.append(encoder.error(text))

    def flush(self) -> None:
        """At the end of a turn: all of it leaves at once."""
        if self.pieces:
            self._transport.send(b"".join(self.pieces))
            self.pieces.clear()
            self._written = 0

    def wrote(self, size: int) -> None:
        """A copy of so many bytes is among the pieces. What is too much for the end of the turn leaves now."""
        self._written += size
        if self._written > WRITTEN_AT_ONCE:
            self._transport.send_now(b"".join(self.pieces))
            self.pieces.clear()
            self._written = 0
            if self.pending > self._listener.config.nats.max_pending:
                self.is_too_slow = True
                self.soon(self._line.cut_off)

    def end(self, farewell: str, reason: Reason, text: str) -> None:
        """Close the connection, and say `farewell` if it is anything. `text` is for logs and hooks."""
        self._line.close(farewell, reason, text)
