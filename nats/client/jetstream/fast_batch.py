"""Many messages to one stream, which acknowledges them many at a time and says how fast they may come: fast batches
(ADR-50).

They are not atomic: the stream has what it has taken, whatever becomes of the batch. A publisher is `_limit` messages
ahead of the last acknowledgement at most. Where an answer may have been lost, it asks; the server tells then how far it
is, and whether messages have not come.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from trunkline.nats.client.requests import is_refusal
from trunkline.nats.errors import (
    BufferFull,
    ClientClosed,
    ConnectionLost,
    NatsError,
    NoResponders,
    NotSupported,
    RequestTimeout,
)
from trunkline.nats.jetstream.flows import (
    ENDING,
    MAX_EVERY,
    FlowAck,
    FlowGap,
    FlowRefusal,
    Step,
    answer_of,
    asked_by,
    reply_subject,
)
from trunkline.nats.jetstream.publications import headers_of
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol import encoder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
    from typing import Unpack

    from trunkline.nats.client.jetstream.subscribed import Client
    from trunkline.nats.errors import PermissionDenied
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.jetstream.replies import PublishAck
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.protocol.operations import Deliver

#: Messages until the stream acknowledges once more: the most that a publisher asks for. A busy server chooses fewer.
EVERY: Final = 200
#: Acknowledgements that may be missing until a publisher waits.
_OUTSTANDING: Final = 2
#: Publications before other tasks have their turn.
_MAX_RUN: Final = 64
#: Misses that are kept; the others are counted.
MAX_MISSES: Final = 100


class Missed(NatsError):
    """Messages of a batch, by their numbers, are not in the stream: they were lost on their way, or refused for this
    reason."""

    def __init__(self, first: int, last: int, reason: NatsError | None = None) -> None:
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        super().__init__(f"{which} not in the stream: {reason or 'lost on the way'}")
        self.first = first
        self.last = last
        self.reason = reason


class FastBatchFailed(NatsError):
    """A fast batch has ended before its end. The messages up to number `stored` of those that were `published` are in
    the stream; the others are not if this `is_certain`, and otherwise nobody knows. The `reason` is a `Missed`, or what
    the server or the client has said."""

    def __init__(self, reason: NatsError, stored: int, published: int, *, is_certain: bool) -> None:
        if stored:
            rest = "the others are not" if is_certain else "of the others nobody knows"
            kept = f"of {published} messages the first {stored} are stored, {rest}"
        else:
            kept = "no message is stored" if is_certain else "nobody knows whether any message is stored"
        super().__init__(f"{reason}; {kept}")
        self.reason = reason
        self.stored = stored
        self.published = published
        self.is_certain = is_certain


class FastBatch:
    """`js.fast_batch()` makes one. It receives the acknowledgements."""

    def __init__(self, client: Client, inbox: str, sid: bytes, every: int, timeout: float, *, gaps: bool) -> None:
        self.sid = sid
        #: Messages that were published: the number of the last one.
        self.published = 0
        #: The messages up to this one are in the stream, but those that are missed.
        self.stored = 0
        #: Of the whole batch, at its end.
        self.ack: PublishAck | None = None
        #: What is not in the stream where gaps are allowed: the first ones, and how many messages that are in all.
        self.misses: list[Missed] = []
        self.missed = 0
        #: A connection was lost, and what the server has told of misses perhaps with it.
        self.may_miss_more = False
        self.is_over = False
        self._client = client
        self._inbox = inbox.encode()
        self._every = every
        self._timeout = timeout
        self._gaps = gaps
        #: Messages up to this one may be published. The first one finds out whether there can be others.
        self._limit = 1
        self._subject = ""
        self._reason: NatsError | None = None
        self._is_certain = False
        #: The server was told the end, or is to be.
        self._is_ending = False
        #: What it is to be asked as soon as somebody waits.
        self._owed: Step | None = None
        #: A message that was refused, and why. A gap will tell that it is missing.
        self._refused: tuple[int, NatsError] = (0, NatsError())
        self._run = 0
        self._lot = trio.lowlevel.ParkingLot()

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        **demands: Unpack[Demands],
    ) -> int:
        """Publish. Waits while the stream has not acknowledged enough of what came before. Returns the number of the
        message in the batch. If this is cancelled, the message is not published.

        Raises:
            FastBatchFailed: the batch has ended: this message is not published.
            BadSubject, BadHeaders, PayloadTooLarge: the server would not take it. The batch goes on.
            ClientClosed: the client is not open.
        """
        every = headers_of(headers, demands) if headers or demands else None
        self._run += 1
        if self._run >= _MAX_RUN:
            self._run = 0
            await trio.lowlevel.checkpoint()
        while True:
            if self.published >= self._limit or self._is_ending:
                await self._until(lambda: self.published < self._limit and not self._is_ending)
            self._check()
            number = self.published + 1
            step = Step.APPEND if self.published else Step.START
            data = self._client.encode(subject, payload, self._reply(number, step), every)
            try:
                self._client.send(data, is_last=number >= self._limit)
            except BufferFull:
                await self._client.room()
                continue
            self.published, self._subject = number, subject
            return number

    async def finish(self) -> None:
        """End the batch, and wait until the stream has acknowledged all of it, as the end of the block does.

        Raises:
            FastBatchFailed: it has not.
        """
        if self.published and not self._is_ending:
            self._end()
        if self.published:
            await self._until(lambda: False)
        if self._reason is not None:
            raise self._failed()

    def abandon(self) -> None:
        """The block has ended. What was published stays; the server need not wait for more."""
        if self.published and not self._is_ending:
            self._end()
        self._over(NatsError("the block of the batch has ended"))

    def _check(self) -> None:
        if self._reason is not None:
            raise self._failed()
        if self._is_ending:
            raise NatsError("the batch has ended")

    def _failed(self) -> FastBatchFailed:
        assert self._reason is not None
        failed = FastBatchFailed(self._reason, self.stored, self.published, is_certain=self._is_certain)
        failed.__cause__ = self._reason
        return failed

    # To the server

    def _reply(self, number: int, step: Step) -> bytes:
        return reply_subject(self._inbox, self._every, number, step, gaps=self._gaps)

    def _ask(self, step: Step) -> bool:
        """Whether there was room for it."""
        number = self.published + (step is Step.END)  # a ping has the number of the last message
        try:
            self._client.send(self._client.encode(self._subject, b"", self._reply(number, step), None), is_last=True)
        except BufferFull:
            self._owed = step
            return False
        except NatsError as error:
            self._over(error)
        self._owed = None
        return True

    def _end(self) -> None:
        """The server answers it with how far it has come."""
        self._is_ending = True
        self._ask(Step.END)

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Or until the batch is over. A server that says nothing is asked, once."""
        is_asked = False
        while not (is_done() or self.is_over):
            if self._owed is not None:
                if not self._ask(self._owed):
                    with suppress(ClientClosed):  # that has ended the batch
                        await self._client.room()
                continue
            with trio.move_on_after(self._timeout / 2) as silence:
                await self._lot.park()
            if not silence.cancelled_caught:
                is_asked = False
            elif is_asked:
                lost = ConnectionLost("the connection was lost, and not made again in time")
                timeout = RequestTimeout(f"the stream does not answer within {self._timeout:g} s")
                self._over(timeout if self._client.is_connected else lost)
            else:
                is_asked = True
                self._owed = Step.END if self._is_ending else Step.PING

    # What comes

    def put(self, wire: Deliver) -> None:
        if self.is_over:
            return
        number, step = asked_by(wire.subject)
        try:
            if is_refusal(wire):
                raise NoResponders(self._subject)
            answer = answer_of(wire.payload)
        except NatsError as error:
            self._refuse(number, step, error)
        else:
            if isinstance(answer, FlowAck):
                self.stored = max(self.stored, min(answer.sequence, self.published))
                self._limit = self.stored + _OUTSTANDING * min(max(1, answer.every), self._every)
            elif isinstance(answer, FlowGap):
                self._gap(answer)
            elif isinstance(answer, FlowRefusal):
                self._miss(Missed(answer.sequence, answer.sequence, answer.error))
            else:
                self._finished(answer)
        self._lot.unpark_all()

    def _refuse(self, number: int, step: int, error: NatsError) -> None:
        """A publication has not come to the batch."""
        if step == Step.START and number == 1:
            self._is_certain = isinstance(error, ApiError | NoResponders)
            self._over(error)
        elif step == Step.END or (isinstance(error, ApiError) and error.err_code in ENDING):
            self._over(error)
        elif self._gaps:
            self._refused = (number, error)
        else:
            self._fail(error)

    def _gap(self, gap: FlowGap) -> None:
        first, last = gap.expected, gap.sequence - 1
        if first > last:
            self._fail(NatsError(f"message {gap.sequence} came where the server expected {gap.expected}"))
        else:
            number, error = self._refused
            self._miss(Missed(first, last, error if first <= number <= last else None))

    def _miss(self, missed: Missed) -> None:
        if not self._gaps:
            self._fail(missed.reason or missed)
            return
        self.missed += missed.last - missed.first + 1
        if len(self.misses) < MAX_MISSES:
            self.misses.append(missed)

    def _finished(self, ack: PublishAck) -> None:
        if ack.batch.encode() != self._inbox.rpartition(b".")[2]:
            self._over(NotSupported("the server of the stream knows no fast batches, and took the message by itself"))
            return
        self.stored, self._is_certain = min(ack.count, self.published), not self._gaps
        if self._reason is not None:
            self._over()
        elif self._is_ending and ack.count == self.published:
            self.ack = ack
            self._over()
        else:
            self._over(NatsError("the server has ended the batch"))

    def _fail(self, reason: NatsError) -> None:
        """The server has ended the batch, or will when it hears of it again: it tells then how far it has come."""
        self._reason = self._reason or reason
        if not self._is_ending:
            self._end()

    def _over(self, reason: NatsError | None = None) -> None:
        if not self.is_over:
            self.is_over = self._is_ending = True
            self._reason = self._reason or reason
            self._lot.unpark_all()

    # As a receiver

    def again(self) -> Iterable[bytes]:
        """The server knows the batch still, if it is the same one, and tells what has not come."""
        yield encoder.subscribe(self._inbox + b".>", self.sid)
        if self.published:
            self.may_miss_more = True
            self._owed = Step.END if self._is_ending else Step.PING
            self._lot.unpark_all()

    def denied(self, error: PermissionDenied) -> None:
        if error.is_publishing:
            is_ours = error.subject == self._subject and (self.published == 1 or not self._gaps)
        else:
            is_ours = error.subject.encode() == self._inbox + b".>"
        if is_ours:
            self._over(error)

    def end(self, failure: NatsError | None = None) -> None:
        self._over(failure or ConnectionLost("the client was closed before the batch was acknowledged"))


@asynccontextmanager
async def fast_batch(client: Client, timeout: float, every: int, *, gaps: bool) -> AsyncGenerator[FastBatch]:  # noqa: ASYNC109  of one answer
    """Raises as `JetStream.fast_batch` does."""
    if not 1 <= every <= MAX_EVERY:
        raise ValueError(f"every: {every}; accepted is 1 to {MAX_EVERY}")
    receivers = client.receivers
    batch = FastBatch(client, client.new_inbox(), receivers.next_id(), every, timeout, gaps=gaps)
    receivers.add(batch)
    try:
        yield batch
        await batch.finish()
    finally:
        batch.abandon()
        receivers.remove(batch)
