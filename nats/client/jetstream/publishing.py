"""Many messages, each acknowledged, without waiting for one before the next is published."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.requests import is_refusal
from trunkline.nats.errors import ConnectionLost, NatsError, NoResponders, RequestTimeout
from trunkline.nats.jetstream.publications import headers_of
from trunkline.nats.jetstream.replies import publish_ack_of
from trunkline.nats.protocol import encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol, Unpack

    from trunkline.nats.client.jetstream.subscribed import Client
    from trunkline.nats.errors import PermissionDenied
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.jetstream.replies import PublishAck
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.protocol.operations import Deliver

    class Failed(Protocol):
        """A receipt, on trio or for threads."""

        @property
        def subject(self) -> str: ...

        @property
        def payload(self) -> bytes: ...

        @property
        def headers(self) -> Headers | None: ...

        @property
        def error(self) -> NatsError | None: ...


#: Messages that wait for their acknowledgement.
WINDOW: Final = 1000
#: A publication that no stream answers is repeated: its leader may be changing.
RETRIES: Final = 2
RETRY_WAIT: Final = 0.25
#: Failures that are kept; the others are counted.
MAX_FAILURES: Final = 100
#: How an acknowledgement begins. What begins otherwise is looked at.
_TAKEN: Final = b'{"stream":'


class PublishFailed(NatsError):
    """Messages that were published in a window were not taken, or nobody knows. `receipts` has those of the first
    ones that nobody has asked for."""

    def __init__(self, receipts: Sequence[Failed], count: int) -> None:
        first = f", the first one at {receipts[0].subject!r}: {receipts[0].error}" if receipts else ""
        super().__init__(f"{count} messages were not taken{first}")
        self.receipts = receipts
        self.count = count


class Receipt:
    """Of one message."""

    __slots__ = (
        "_answer",
        "_publisher",
        "attempts",
        "error",
        "headers",
        "is_safe",
        "is_sent",
        "is_told",
        "payload",
        "sent_at",
        "subject",
    )

    def __init__(
        self, publisher: Publisher, subject: str, payload: bytes, headers: Headers | None, *, is_safe: bool
    ) -> None:
        self.subject = subject
        self.payload = payload
        self.headers = headers
        #: It can be published twice, as it has a message id.
        self.is_safe = is_safe
        #: Why the message was not taken, or may not have been.
        self.error: NatsError | None = None
        self.sent_at = 0.0
        #: Written to a connection, and not only kept for the next one.
        self.is_sent = False
        self.attempts = 0
        #: Somebody has been told why it failed.
        self.is_told = False
        self._answer: bytes | None = None
        self._publisher = publisher

    @property
    def is_settled(self) -> bool:
        return self._answer is not None or self.error is not None

    def settle(self, answer: bytes | None, error: NatsError | None) -> None:
        self._answer, self.error = answer, error

    async def ack(self) -> PublishAck:
        """Wait for the acknowledgement.

        Raises:
            NatsError: as for `JetStream.publish`. The end of the block does not raise it once more.
        """
        await self._publisher.wait(lambda: self.is_settled)
        if self.error is not None:
            self._publisher.was_told(self)
            raise self.error
        assert self._answer is not None
        return publish_ack_of(self._answer)


class Publisher:
    """`js.publisher()` makes one. It receives the acknowledgements."""

    def __init__(self, client: Client, inbox: str, sid: bytes, window: int, timeout: float) -> None:
        self.sid = sid
        self._client = client
        self._prefix = f"{inbox}.".encode()
        self._length = len(self._prefix)
        self._window = window
        self._timeout = timeout
        #: By their token: what waits for its acknowledgement, the oldest first.
        self._open: dict[bytes, Receipt] = {}
        #: What is published again, and when.
        self._repeats: deque[tuple[float, Receipt]] = deque()
        self._failures: list[Receipt] = []
        self._failed = 0
        self._numbers = count(1)
        self._lot = trio.lowlevel.ParkingLot()
        self.is_over = False
        self._failure: NatsError | None = None

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        **demands: Unpack[Demands],
    ) -> Receipt:
        """Publish. Waits while the window is full. Raises as `Client.publish` does."""
        if len(self._open) + len(self._repeats) >= self._window:
            await self.wait(lambda: len(self._open) + len(self._repeats) < self._window)
        if self._failure is not None:
            raise self._failure
        every = headers_of(headers, demands) if headers or demands else None
        receipt = Receipt(self, subject, payload, every, is_safe=bool(demands.get("message_id")))
        token = self._opened(receipt)
        try:
            await self._client.post(self._client.encode(subject, payload, self._prefix + token, every))
        except NatsError:
            self._open.pop(token, None)
            raise
        return receipt

    def _opened(self, receipt: Receipt) -> bytes:
        token = b"%x" % next(self._numbers)
        receipt.sent_at, receipt.is_sent = trio.current_time(), self._client.is_connected
        self._open[token] = receipt
        return token

    # What comes

    def put(self, wire: Deliver) -> None:
        receipt = self._open.pop(wire.subject[self._length :], None)
        if receipt is None:
            return
        if wire.payload.startswith(_TAKEN) and b'"error"' not in wire.payload:
            receipt.settle(wire.payload, None)
        elif is_refusal(wire):
            self._repeat(receipt)
        else:
            try:
                publish_ack_of(wire.payload)
            except NatsError as error:
                self._fail(receipt, error)
            else:
                receipt.settle(wire.payload, None)
        if self._lot:
            self._lot.unpark_all()

    def again(self) -> Iterable[bytes]:
        """On a new connection, what may be published twice is; of the rest nobody knows whether it was taken."""
        yield encoder.subscribe(self._prefix + b"*", self.sid)
        for token, receipt in list(self._open.items()):
            if not receipt.is_sent:
                receipt.is_sent = True
                continue
            del self._open[token]
            if receipt.is_safe:
                self._repeats.append((trio.current_time(), receipt))
            else:
                self._fail(receipt, ConnectionLost("the connection was lost before the message was acknowledged"))
        self._lot.unpark_all()

    def denied(self, error: PermissionDenied) -> None:
        if not error.is_publishing and error.subject.encode() == self._prefix + b"*":
            self.end(error)
        for token, receipt in list(self._open.items()):
            if error.is_publishing and error.subject == receipt.subject:
                del self._open[token]
                self._fail(receipt, error)
        self._lot.unpark_all()

    def end(self, failure: NatsError | None = None) -> None:
        self.is_over, self._failure = True, failure
        for receipt in [*self._open.values(), *[receipt for _, receipt in self._repeats]]:
            self._fail(receipt, failure or ConnectionLost("the client was closed before the message was acknowledged"))
        self._open.clear()
        self._repeats.clear()
        self._lot.unpark_all()

    def _repeat(self, receipt: Receipt) -> None:
        """Nobody has answered."""
        receipt.attempts += 1
        if receipt.attempts > RETRIES:
            self._fail(receipt, NoResponders(receipt.subject))
        else:
            self._repeats.append((trio.current_time() + RETRY_WAIT, receipt))

    def _fail(self, receipt: Receipt, error: NatsError) -> None:
        receipt.settle(None, error)
        self._failed += 1
        if len(self._failures) < MAX_FAILURES:
            self._failures.append(receipt)

    def was_told(self, receipt: Receipt) -> None:
        """Somebody has been told of its failure."""
        if not receipt.is_told:
            receipt.is_told = True
            self._failed -= 1
            if receipt in self._failures:
                self._failures.remove(receipt)

    # Waiting

    async def wait(self, is_done: Callable[[], bool]) -> None:
        """Until this is so. What is late fails meanwhile, and what is to be published again is."""
        await trio.lowlevel.checkpoint()
        while not is_done():
            now = trio.current_time()
            if self._repeats and self._repeats[0][0] <= now and self._client.is_connected:
                _, receipt = self._repeats.popleft()
                await self._publish(receipt)
                continue  # meanwhile it may be so
            if self._open and (oldest := next(iter(self._open.values()))).sent_at + self._timeout <= now:
                del self._open[next(iter(self._open))]
                self._fail(oldest, RequestTimeout(f"no acknowledgement within {self._timeout:g} s"))
                continue
            with trio.move_on_at(self._next_at()):
                await self._lot.park()

    async def _publish(self, receipt: Receipt) -> None:
        """Again. Its failure is not that of whoever waits."""
        token = self._opened(receipt)
        try:
            data = self._client.encode(receipt.subject, receipt.payload, self._prefix + token, receipt.headers)
            await self._client.post(data)
        except NatsError as error:
            if self._open.pop(token, None) is not None:
                self._fail(receipt, error)
                self._lot.unpark_all()

    def _next_at(self) -> float:
        """When something is to be done although nothing comes."""
        times = [self._repeats[0][0]] if self._repeats and self._client.is_connected else []
        times += [next(iter(self._open.values())).sent_at + self._timeout] if self._open else []
        return min(times, default=float("inf"))

    async def finish(self) -> None:
        """Until all are acknowledged.

        Raises:
            PublishFailed: some are not, and nobody was told.
        """
        await self.wait(lambda: not self._open and not self._repeats)
        self.check()

    def check(self) -> None:
        """
        Raises:
            PublishFailed: some of those that are settled were not taken, and nobody was told.
        """
        if self._failed:
            raise PublishFailed(self._failures, self._failed)
