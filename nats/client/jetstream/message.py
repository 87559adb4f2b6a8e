"""A message that a consumer has sent, and its acknowledgement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio

from trunkline.nats.client.message import Message
from trunkline.nats.errors import NatsError
from trunkline.nats.protocol.acknowledging import ACK, NAK, PROGRESS, TERM, Origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from trunkline.nats.client.message import Answering
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.protocol.operations import Deliver

    class Acknowledging(Answering, Protocol):
        """The subscription of a message."""

        #: The consumer wants no acknowledgements.
        ignores_acks: bool

        @property
        def takes_reasons(self) -> bool:
            """The server knows a reason of `term`. An older one takes that for no acknowledgement."""
            ...

        def acknowledge(self, reply: bytes, kind: bytes) -> None: ...

        async def confirm(self, subject: str, payload: bytes, seconds: float) -> None:
            """Publish this, and wait until the server says that it has it."""


class JetStreamMessage(Message):
    """Acknowledge it once: `ack`, `nak` or `term`. What is asked for behind that does nothing, and so does all of it
    where the consumer wants no acknowledgements.

    All of them raise `NotJetStream` if no consumer has sent the message, and `BufferFull` or `ClientClosed` if nothing
    can be sent.
    """

    __slots__ = ("_subscription", "is_settled")

    def __init__(self, wire: Deliver, subscription: Acknowledging) -> None:
        super().__init__(wire, subscription)
        self._subscription = subscription
        #: It was acknowledged, or handed back.
        self.is_settled = False

    @property
    def origin(self) -> Origin:
        """Where it comes from: stream and consumer, sequences, how often it was delivered.

        Raises:
            NotJetStream: no consumer has sent it.
        """
        return origin_of(self.reply)

    def ack(self) -> None:
        """It is done."""
        self._settle(ACK)

    def nak(self, delay: float = 0.0) -> None:
        """Deliver it again, at once or in so many seconds."""
        self._settle(NAK + b" " + json.dumps({"delay": round(delay * 1e9)}).encode() if delay > 0 else NAK)

    def term(self, reason: str = "") -> None:
        """Never deliver it again, although it is not done. Servers since 2.10.4 tell the reason in an advisory."""
        is_told = bool(reason) and self._subscription.takes_reasons
        self._settle(TERM + b" " + reason.encode() if is_told else TERM)

    def in_progress(self) -> None:
        """More time is needed: the consumer's `ack_wait` begins anew."""
        if not self.is_settled:
            self._publish(PROGRESS)

    async def ack_sync(self, *, timeout: float = 5.0) -> None:  # noqa: ASYNC109  as requests have it
        """It is done, and the server knows of that when this returns.

        Raises:
            RequestTimeout: it may not, after so many seconds. The message can be acknowledged once more.
            NoResponders: the consumer is gone.
        """
        if self.is_settled or self._subscription.ignores_acks:
            await trio.lowlevel.checkpoint()
        else:
            self._check()
            await self._subscription.confirm(self.reply, ACK, timeout)
            self.is_settled = True

    def respond(self, payload: bytes = b"", *, headers: Headers | Mapping[str, str] | None = None) -> None:
        """Not possible: what is sent to its reply subject is an acknowledgement.

        Raises:
            NatsError: always.
        """
        raise NatsError(f"the message to {self.subject!r} comes from a consumer: it is acknowledged, and not answered")

    def _settle(self, kind: bytes) -> None:
        if not self.is_settled:
            self._publish(kind)
            self.is_settled = True

    def _publish(self, kind: bytes) -> None:
        if not self._subscription.ignores_acks:
            self._check()
            self._subscription.acknowledge(self._wire.reply, kind)

    def _check(self) -> None:
        """
        Raises:
            NotJetStream: no consumer has sent it.
        """
        if not self._wire.reply.startswith(b"$JS.ACK."):
            origin_of(self.reply)
