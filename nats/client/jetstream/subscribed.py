"""What subscriptions to consumers share: which consumer it is, and what becomes of it behind them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.nats.client.events import DeleteFailed, HeartbeatMissed
from trunkline.nats.client.jetstream.message import JetStreamMessage
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.errors import NatsError
from trunkline.nats.jetstream.configs import AckPolicy
from trunkline.nats.protocol.acknowledging import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from trunkline.nats.client.events import Event
    from trunkline.nats.client.message import Message
    from trunkline.nats.client.receivers import Receivers
    from trunkline.nats.jetstream.configs import ConsumerConfig
    from trunkline.nats.jetstream.replies import ConsumerInfo
    from trunkline.nats.protocol.headers import Headers

_PREFIX: Final = PREFIX.encode()
#: Seconds between looks at a consumer, until it is believed that others subscribe to it.
LOOKS: Final = (0.02, 0.1, 0.4)
#: The first version of servers that take a reason with `+TERM`.
REASONS_SINCE: Final = (2, 10, 4)


class Client(Protocol):
    """What is asked of a client."""

    @property
    def server(self) -> Mapping[str, Any]: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def receivers(self) -> Receivers: ...

    def tell(self, event: Event) -> None: ...

    def new_inbox(self) -> str: ...

    def check(self) -> None: ...

    def encode(
        self, subject: str, payload: bytes, reply: bytes, headers: Headers | Mapping[str, str] | None
    ) -> bytes: ...

    async def post(self, data: bytes) -> None: ...

    def send(self, data: bytes, *, is_last: bool) -> None: ...

    async def room(self) -> None: ...

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None: ...

    def publish_nowait(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None: ...

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109  as the client has it
    ) -> Message: ...

    def request_many(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        timeout: float = 5.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]: ...


class Api(Protocol):
    """What is asked of JetStream."""

    @property
    def client(self) -> Client: ...

    @property
    def prefix(self) -> str: ...

    async def consumer(self, stream: str, name: str) -> ConsumerInfo: ...

    async def new_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo: ...

    async def delete_consumer(self, stream: str, name: str) -> None: ...

    async def stream_of(self, subject: str) -> str: ...


class ConsumerSubscription(BaseSubscription[JetStreamMessage]):
    """`async for message in subscription`. The end of its block ends it. A durable consumer stays then, so that the
    next run of the program goes on where this one was; one that is not durable, and was created for the subscription,
    is deleted."""

    ignores_acks = False
    #: Whether the subscription has created its consumer, which `unsubscribe` and `drain` delete then.
    is_created = False
    #: Several messages were taken at once, whose acknowledgements may leave together.
    _is_bulk = False

    def __init__(self, api: Api, *args: Any) -> None:
        super().__init__(*args)
        self._api = api
        #: The consumer as it was when the subscription began; None: it was not looked up.
        self.info: ConsumerInfo | None = None
        self.stream = self.consumer = ""
        #: Seconds in which something comes from the server, if only a heartbeat.
        self._patience = float("inf")
        #: When something has come last, or could come; messages count when somebody waits for the next one, and those
        #: that had come then.
        self._heard_at = trio.current_time()
        self._counted = 0
        #: When something is to be done although nothing comes.
        self._wakes_at = float("inf")

    def bind(self, stream: str, consumer: str, info: ConsumerInfo | None, *, is_created: bool) -> None:
        """It is the subscription of this consumer."""
        self.stream, self.consumer, self.info, self.is_created = stream, consumer, info, is_created
        self._heard_at = trio.current_time()
        if info is not None:
            self.ignores_acks = info.config.ack_policy is AckPolicy.NONE

    async def receive(self) -> JetStreamMessage:
        """The next message.

        Raises:
            trio.EndOfChannel: there are no more.
            StatusError: the server says that something is wrong.
            NatsError: there are no more, as the client has given up.
        """
        return JetStreamMessage(await self._take(), self)

    @property
    def takes_reasons(self) -> bool:
        """For messages."""
        numbers = re.findall(r"\d{1,9}", str(self._api.client.server.get("version")))
        return tuple(map(int, numbers[:3])) >= REASONS_SINCE

    def acknowledge(self, reply: bytes, kind: bytes) -> None:
        """For messages: this subject came from a server."""
        client = self._api.client
        client.check()
        client.send(b"PUB %b %d\r\n%b\r\n" % (reply, len(kind), kind), is_last=not (self._waiting or self._is_bulk))

    async def confirm(self, subject: str, payload: bytes, seconds: float) -> None:
        """For messages."""
        await self._api.client.request(subject, payload, timeout=seconds)

    # Its end

    async def unsubscribe(self) -> None:
        """Nothing more comes, and what nobody has taken is handed back. A consumer that was created for this is
        deleted.

        Raises:
            ApiError, RequestTimeout, NatsError: it could not be deleted.
        """
        self._owner.unsubscribe(self)
        self._hand_back()
        await self._delete()

    async def drain(self) -> None:
        """Nothing more is asked for, and what the server has sent until then is there when this returns. A consumer
        that was created for this is deleted behind that; if it cannot be, that is told as an event."""
        await super().drain()
        try:
            await self._delete()
        except NatsError as error:
            self._api.client.tell(DeleteFailed(self, error))

    def close(self) -> None:
        """As the end of the block does it. Whether others of a group need the consumer is not known; the server deletes
        one that is not durable when nobody does."""
        self._owner.unsubscribe(self)
        self._hand_back()
        if self.is_created and not self.queue and self.info is not None and not self.info.config.durable:
            self._forget()

    async def _delete(self) -> None:
        if not self.is_created:
            await trio.lowlevel.checkpoint()
            return
        self.is_created = False
        if not self.queue or not await self._is_needed():
            await self._api.delete_consumer(self.stream, self.consumer)

    async def _is_needed(self) -> bool:
        """Whether others of the group subscribe. A server may see a little later that this one does not any more."""
        for wait in (0.0, *LOOKS):
            await trio.sleep(wait)
            if not (await self._api.consumer(self.stream, self.consumer)).push_bound:
                return False
        return True

    def _hand_back(self) -> None:
        """What nobody has taken goes to others at once, and not when its time is over."""
        with suppress(NatsError):
            while self._waiting:
                wire = self._pop()
                if wire.reply.startswith(_PREFIX):
                    JetStreamMessage(wire, self).nak()

    def _forget(self) -> None:
        """Delete the consumer without waiting. Where that is lost, the server does it after a while."""
        self.is_created = False
        with suppress(NatsError):
            self._api.client.publish_nowait(f"{self._api.prefix}.CONSUMER.DELETE.{self.stream}.{self.consumer}")

    # Its silence

    def again(self) -> Iterable[bytes]:
        self._heard_at = trio.current_time()
        return super().again()

    async def _some(self) -> None:
        if self._waiting or self.is_over:
            await trio.lowlevel.checkpoint()
        while not self._waiting:
            self._check()
            if self.received != self._counted:
                self._counted, self._heard_at = self.received, trio.current_time()
            # silence goes on where a wait was cancelled: whoever looks now and then is to hear of it, too
            since, is_silent = await self._pause(self._heard_at, self._patience, self._wakes_at)
            self._heard_at = max(self._heard_at, since)
            if is_silent:
                self._heard_at = trio.current_time()
                self._missed()

    async def _pause(self, began: float, patience: float, wakes_at: float) -> tuple[float, bool]:
        """Wait until something comes, or nothing has for so long. Since when that is, and whether it is so long."""
        received = self.received
        with trio.move_on_at(min(wakes_at, max(began, self._heard_at) + patience)):
            await self._lot.park()
        now = trio.current_time()
        if received != self.received or not self._api.client.is_connected:
            return now, False
        return began, max(began, self._heard_at) + patience <= now

    def _missed(self) -> None:
        """Heartbeats did not come."""
        self._api.client.tell(HeartbeatMissed(self, self._patience))
