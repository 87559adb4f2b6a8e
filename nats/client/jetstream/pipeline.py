"""Publications to a stream in their order, of which some wait for their acknowledgements at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import trio

from trunkline.nats.client.requests import is_refusal
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.errors import ClientClosed, NatsError, NoResponders, RequestTimeout
from trunkline.nats.jetstream.replies import publish_ack_of

if TYPE_CHECKING:
    from trunkline.nats.client.jetstream.context import JetStream


class Pipeline:
    """`with Pipeline(js, 32) as pipeline: await pipeline.publish(…); await pipeline.finish()`. It is of one task."""

    def __init__(self, js: JetStream, most: int) -> None:
        """`most` publications may wait for their acknowledgements."""
        self._js = js
        self._most = most
        inbox = js.client.new_inbox()
        self._acks = js.client.receivers.open(Subscription, f"{inbox}.*")
        self._inbox = inbox
        self._subject = ""
        self._published = 0
        self._answered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._acks.unsubscribe()

    async def publish(self, subject: str, payload: bytes) -> None:
        """
        Raises:
            ApiError: the stream refuses one of those before.
            NoResponders, RequestTimeout: it is not known to have taken one of those before.
            NatsError: as for `publish` of the client.
        """
        while self._published - self._answered >= self._most:
            await self._acknowledge()
        self._subject = subject
        reply = f"{self._inbox}.{self._published}"
        self._published += 1  # before: when it is cancelled, it may have been written
        try:
            await self._js.client.publish(subject, payload, reply=reply)
        except NatsError:
            self._published -= 1
            raise

    async def finish(self) -> None:
        """Until all are acknowledged. Raises as `publish` does."""
        while self._answered < self._published:
            await self._acknowledge()

    async def settle(self) -> None:
        """Until all are answered, whatever the answers are.

        Raises:
            trio.EndOfChannel, NatsError: no more answers come.
        """
        while self._answered < self._published:
            await self._acks.receive()
            self._answered += 1

    async def _acknowledge(self) -> None:
        number, seconds = self._answered, self._js.timeout
        answer = None
        try:
            with trio.move_on_after(seconds):
                answer = await self._acks.receive()
        except trio.EndOfChannel:
            raise ClientClosed(f"the client is closed, and publication {number + 1} is not acknowledged") from None
        if answer is None:
            raise RequestTimeout(f"no acknowledgement of publication {number + 1} within {seconds:g} s")
        self._answered += 1
        if is_refusal(answer):
            raise NoResponders(self._subject)
        publish_ack_of(answer.payload)
        # a stream acknowledges in the order in which it takes
        if answer.subject != f"{self._inbox}.{number}":
            raise RequestTimeout(f"publication {number + 1} was lost: a later one is acknowledged, and it is not")
