"""Publishing in a window and in batches, for any thread. Where nothing else is said, it does and raises what that of
`trunkline.nats.client.jetstream` does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

from trunkline.nats.client.jetstream.batch import Batch as TrioBatch
from trunkline.nats.client.jetstream.fast_batch import FastBatch as TrioFastBatch
from trunkline.nats.client.jetstream.publishing import Publisher as TrioPublisher
from trunkline.nats.client.jetstream.publishing import PublishFailed
from trunkline.nats.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Unpack

    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.fast_batch import Missed
    from trunkline.nats.client.jetstream.publishing import Receipt as TrioReceipt
    from trunkline.nats.errors import NatsError
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.jetstream.replies import PublishAck
    from trunkline.nats.protocol.headers import Headers

P = TypeVar("P")


class Receipt:
    """Of one message. Those of one message are equal."""

    __slots__ = ("_receipt", "_thread")

    def __init__(self, receipt: TrioReceipt, thread: ContextThread) -> None:
        self._receipt = receipt
        self._thread = thread

    @property
    def subject(self) -> str:
        return self._receipt.subject

    @property
    def payload(self) -> bytes:
        return self._receipt.payload

    @property
    def headers(self) -> Headers | None:
        return self._receipt.headers

    @property
    def error(self) -> NatsError | None:
        """Why the message was not taken, or may not have been."""
        return self._receipt.error

    @property
    def is_settled(self) -> bool:
        return self._receipt.is_settled

    def ack(self, *, timeout: float | None = None) -> PublishAck:
        """Wait for the acknowledgement.

        Raises:
            NatsError: as for `JetStream.publish`. The end of the block does not raise it once more.
        """
        return self._thread.run(timeout, self._receipt.ack)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self._receipt is other._receipt

    def __hash__(self) -> int:
        return hash(self._receipt)


class _Publishing(Generic[P]):
    """An error in the block (`with`) ends it as it does on trio, and is raised."""

    def __init__(self, opening: AbstractAsyncContextManager[P], opened: P, thread: ContextThread) -> None:
        self._opening = opening
        self._opened = opened
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.leave(self._opening, kind, error, trace)
        except Exception:
            if error is None:
                raise


class Publisher(_Publishing[TrioPublisher]):
    """`js.publisher()` makes one. Any number of threads may publish with it."""

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> Receipt:
        """Publish. Waits while the window is full. Raises as `Client.publish` does."""
        publish = partial(self._opened.publish, subject, payload, headers=headers, **demands)
        return Receipt(self._thread.run(timeout, publish), self._thread)

    def finish(self, *, timeout: float | None = None) -> None:
        """Wait until all are acknowledged, as the end of the block does.

        Raises:
            PublishFailed: some are not, and nobody was told.
        """
        try:
            self._thread.run(timeout, self._opened.finish)
        except PublishFailed as failed:
            raise self._of(failed) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except PublishFailed as failed:
            raise self._of(failed) from None
        except ClientClosed:  # that has settled all receipts
            try:
                self._opened.check()
            except PublishFailed as failed:
                raise self._of(failed) from None

    def _of(self, failed: PublishFailed) -> PublishFailed:
        """The error, with receipts for threads."""
        receipts = cast("list[TrioReceipt]", failed.receipts)
        return PublishFailed([Receipt(each, self._thread) for each in receipts], failed.count)


class Batch(_Publishing[TrioBatch]):
    """`js.batch()` makes one. The stream takes it at the end of its block, and nothing of it if the block raises. It is
    of one thread."""

    @property
    def ack(self) -> PublishAck | None:
        """Of the last message, and so of all of them."""
        return self._opened.ack

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> None:
        """
        Raises:
            ApiError: the stream takes no batches, or too many are open.
            NoResponders, RequestTimeout: as for `JetStream.publish`.
        """
        self._thread.run(timeout, partial(self._opened.publish, subject, payload, headers=headers, **demands))


class FastBatch(_Publishing[TrioFastBatch]):
    """`js.fast_batch()` makes one. Any number of threads may publish with it."""

    @property
    def published(self) -> int:
        """Messages that were published: the number of the last one."""
        return self._opened.published

    @property
    def stored(self) -> int:
        """The messages up to this one are in the stream, but those that are missed."""
        return self._opened.stored

    @property
    def ack(self) -> PublishAck | None:
        """Of the whole batch, at its end."""
        return self._opened.ack

    @property
    def misses(self) -> list[Missed]:
        """What is not in the stream where gaps are allowed: the first ones."""
        return self._opened.misses

    @property
    def missed(self) -> int:
        """How many messages are not in the stream."""
        return self._opened.missed

    @property
    def may_miss_more(self) -> bool:
        """A connection was lost, and what the server has told of misses perhaps with it."""
        return self._opened.may_miss_more

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float | None = None,
        **demands: Unpack[Demands],
    ) -> int:
        """Publish. Waits while the stream has not acknowledged enough of what came before. Returns the number of the
        message in the batch.

        Raises:
            FastBatchFailed: the batch has ended: this message is not published.
            TimeoutError: it took too long, and is not published. The batch goes on.
        """
        return self._thread.run(timeout, partial(self._opened.publish, subject, payload, headers=headers, **demands))

    def finish(self, *, timeout: float | None = None) -> None:
        """End the batch, and wait until the stream has acknowledged all of it, as the end of the block does.

        Raises:
            FastBatchFailed: it has not.
        """
        self._thread.run(timeout, self._opened.finish)
