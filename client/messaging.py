"""What a user does with a session, whichever connection it has at the time: publish, subscribe, receive."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from trunkline.client.bursts import slices
from trunkline.client.checks import SURE, check_filter, check_properties, check_qos, check_topic, payload_bytes
from trunkline.client.errors import ClientClosed, PublishesRefused, PublishRefused
from trunkline.client.receiver_set import ReceiverSet
from trunkline.client.receivers import Receiver
from trunkline.client.request_queue import RequestQueue
from trunkline.client.requests import PublishRequest, SubscribeRequest, UnsubscribeRequest
from trunkline.mqtt.errors import UNWRITABLE
from trunkline.mqtt.packets import PacketType, SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.session.receiving import Receiving
from trunkline.mqtt.topics import SHARE_PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from trunkline.client.errors import ClientError
    from trunkline.client.limits import WaitingLimits
    from trunkline.client.request_queue import Overflow
    from trunkline.client.requests import Receipt
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.versions import Version

#: Topics that are known to be valid, and how long they may be.
MAX_TOPICS: Final = 1024
MAX_TOPIC_LENGTH: Final = 256
#: Requests of one burst that are on their way.
MAX_SLICES: Final = 4


class Subscription(Receiver):
    """The messages of a subscription. Leaving its block (`async with`) unsubscribes."""

    is_subscribed = True

    def __init__(
        self,
        filters: Sequence[str],
        *,
        manual_ack: bool,
        limits: WaitingLimits,
        owner: ReceiverSet,
        unsubscribe: Callable[[Subscription], Awaitable[None]],
        unsubscribe_soon: Callable[[Subscription], None],
    ) -> None:
        super().__init__(filters, manual_ack=manual_ack, limits=limits, owner=owner)
        self._unsubscribe = unsubscribe
        self._unsubscribe_soon = unsubscribe_soon
        #: The reason code for each topic filter: the QoS that the server grants.
        self.granted: dict[str, int] = {}

    async def unsubscribe(self) -> None:
        """No more messages come. Loops end when they have got what is there.

        Raises:
            UnsubscribeRefused: the server refused it.
        """
        await self._unsubscribe(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.unsubscribe()
            else:
                self._unsubscribe_soon(self)
        finally:
            await super().__aexit__(kind, error, trace)


class Messaging:
    """What a session's user does with it."""

    def __init__(self, version: Version, limits: WaitingLimits, overflow: Overflow = "wait") -> None:
        self._version = version
        self._limits = limits
        self._requests = requests = RequestQueue(limits, overflow)
        self._incoming = Receiving()
        self._receivers = ReceiverSet(requests.wake, requests.call_later)
        #: Topics that are known to be valid.
        self._topics: set[str] = set()
        requests.outgoing.on_orphans = self._drop_orphans
        self._incoming.on_accepted = requests.wake

    @property
    def failure(self) -> ClientError | None:
        """What has ended the client, unless its user did."""
        failure = self._requests.failure
        return None if isinstance(failure, ClientClosed) else failure

    def _open(self) -> None:
        self._requests.open()
        self._receivers.open()

    def _shut(self, error: ClientError) -> None:
        """Nothing more is sent, and nothing more comes."""
        if self._requests.is_open:
            self._requests.shut(error)
            self._incoming.forget()
            self._receivers.end()

    # Publishing

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> int:
        """Publish, and wait until the server has taken the message: at QoS 0 until it is written, at QoS 1 for PUBACK,
        at QoS 2 for PUBCOMP. Returns the server's reason code, 0 or 0x10, no matching subscribers.

        Raises:
            PublishRefused: the server refused the message.
            NotOffered, LargerThanServerAccepts: it was not sent, because the server would end the connection.
            ValueError: MQTT cannot represent it.
        """
        return await self._requests.ask(self._publish_request(topic, payload, qos, retain, properties))

    def publish_nowait(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> Receipt:
        """Publish without waiting: `await receipt.wait()` later, or never.

        Raises:
            RequestQueueFull: as many requests wait as are allowed.
        """
        request = self._publish_request(topic, payload, qos, retain, properties)
        self._requests.put_nowait(request)
        return request

    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[bytes | str] | AsyncIterable[bytes | str],
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Publish many messages to one topic, many times faster than one by one, and wait until the server has taken
        all of them. Payloads are taken as there is room for them, so there may be any number.

        Raises:
            PublishesRefused: the server refused some.
        """
        self._check_topic(topic)
        pending: deque[PublishRequest] = deque()
        refused: list[tuple[bytes, int]] = []
        count = 0
        # where a full queue refuses or discards requests, a burst has one at a time in it
        ahead = MAX_SLICES if self._requests.overflow == "wait" else 1
        try:
            async with aclosing(slices(payloads)) as parts:
                async for part in parts:
                    while len(pending) >= ahead:
                        count += await self._refusals(pending.popleft(), refused)
                    pending.append(_request(topic, part, qos, retain, properties))
                    await self._requests.put(pending[-1])
            while pending:
                count += await self._refusals(pending[0], refused)
                pending.popleft()
        except BaseException:
            for request in pending:
                self._requests.abandon(request)
            raise
        await trio.lowlevel.checkpoint()
        if count:
            raise PublishesRefused(refused, topic, count)

    async def _refusals(self, request: PublishRequest, refused: list[tuple[bytes, int]]) -> int:
        """Wait for its answers. Returns how many of its messages the server has refused, and adds them to the list."""
        with suppress(PublishRefused, PublishesRefused):
            await self._requests.answer(request)
        refused += request.refusals[: PublishesRefused.MAX_REFUSED - len(refused)]
        return len(request.refusals)

    def _publish_request(
        self, topic: str, payload: bytes | str, qos: int, retain: bool, properties: Properties
    ) -> PublishRequest:
        self._check_topic(topic)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        return _request(topic, (payload,), qos, retain, properties)

    def _check_topic(self, topic: str) -> None:
        try:
            if topic in self._topics:
                return
        except TypeError:
            pass  # it is not even hashable
        check_topic(topic)
        if len(topic) <= MAX_TOPIC_LENGTH:
            if len(self._topics) >= MAX_TOPICS:
                self._topics.clear()
            self._topics.add(topic)

    # Subscribing

    async def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties = NO_PROPERTIES,
        manual_ack: bool = False,
        max_buffered: int | None = None,
    ) -> Subscription:
        """Subscribe, and wait for the server's answer. With a `subscription_identifier` in the properties, of several
        subscriptions that match a message it gets those that the server sends because of this one.

        Raises:
            SubscribeRefused: the server refused a filter. None of them is subscribed then.
            NotOffered: it was not sent, because the server would end the connection.
            ValueError: this is not a topic filter.
        """
        if not filters:
            raise ValueError("subscribe needs a topic filter")
        if retain_handling not in (0, 1, 2):
            raise ValueError(f"retain_handling is 0, 1 or 2, not {retain_handling}")
        check_qos(qos)
        check_properties(properties, PacketType.SUBSCRIBE)
        for each in filters:
            check_filter(each)
            if no_local and each.startswith(SHARE_PREFIX):  # [MQTT-3.8.3-4]
                raise ValueError(f"no_local has no meaning for a shared subscription: {each}")
        requests = [SubscriptionRequest(each, qos, no_local, retain_as_published, retain_handling) for each in filters]
        limits = self._limits_of(max_buffered)
        subscription = Subscription(
            filters,
            manual_ack=manual_ack,
            limits=limits,
            owner=self._receivers,
            unsubscribe=self.unsubscribe,
            unsubscribe_soon=self._unsubscribe_soon,
        )
        (subscription.identifier,) = properties.get("subscription_identifier", (0,))
        subscription.granted = await self._subscribe(subscription, SubscribeRequest(requests, properties))
        return subscription

    async def _subscribe(self, subscription: Receiver, request: SubscribeRequest) -> dict[str, int]:
        """Returns the reason code for each topic filter."""
        # a filter that was granted in vain is unsubscribed when the answer comes, unless a subscription has it
        request.on_done = lambda: subscription.close() if request.error is not None else None
        # before the answer: retained messages come right behind it
        self._receivers.add(subscription)
        try:
            await self._requests.ask(request)
        except BaseException:
            if request.granted:  # it was cancelled when the answer had come
                self._unsubscribe_soon(subscription)
            subscription.close()
            raise
        return request.reasons

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Unsubscribe the filters that no other subscription of this client has."""
        filters = self._receivers.remove(subscription)
        subscription.end()
        if filters and self._requests.is_open:
            await self._requests.answer(self._unsubscribe(filters))
        else:
            await trio.lowlevel.checkpoint()

    async def unsubscribe_from(self, *filters: str, properties: Properties = NO_PROPERTIES) -> None:
        """End subscriptions of a session that is resumed, for which this client has no `Subscription`.

        Raises:
            UnsubscribeRefused: the server refused it.
            ValueError: this is not a topic filter.
        """
        for each in filters:
            check_filter(each)
        check_properties(properties, PacketType.UNSUBSCRIBE)
        await self._requests.ask(UnsubscribeRequest([*filters], properties))

    def _unsubscribe_soon(self, subscription: Receiver) -> None:
        """Without waiting for the answer."""
        filters = self._receivers.remove(subscription)
        if filters and self._requests.is_open:
            self._unsubscribe(filters)

    def _drop_orphans(self, filters: list[str]) -> None:
        """Granted, and nobody waits for them: their request was cancelled, or refused in part."""
        orphans = [each for each in filters if not self._receivers.is_subscribed(each)]
        if orphans:
            self._unsubscribe(orphans)

    def _unsubscribe(self, filters: list[str]) -> UnsubscribeRequest:
        """It needs no room in the queue, and is not taken back: the server must not go on with a subscription that
        nobody has any more."""
        request = UnsubscribeRequest(filters)
        request.may_be_discarded = False
        self._requests.add(request)
        return request

    # Receiving

    def receive_from(self, *filters: str, manual_ack: bool = False, max_buffered: int | None = None) -> Receiver:
        """The messages of these topic filters, without subscribing: those of another subscription, or of a session that
        is resumed. Without filters: all messages that no other receiver gets. It may be called before the client is
        opened, so that nothing is missed.

        A message that no receiver gets is acknowledged and dropped.
        """
        for each in filters:
            check_filter(each)
        limits = self._limits_of(max_buffered)
        receiver = Receiver(filters, manual_ack=manual_ack, limits=limits, owner=self._receivers)
        self._receivers.add(receiver)
        return receiver

    def _limits_of(self, max_buffered: int | None) -> WaitingLimits:
        return self._limits if max_buffered is None else replace(self._limits, buffered=max_buffered)


def _request(topic: str, payloads: Sequence[bytes], qos: int, retain: bool, properties: Properties) -> PublishRequest:
    if qos not in (0, 1, 2):
        check_qos(qos)
    try:
        if properties and not properties.keys() <= SURE:
            check_properties(properties, PacketType.PUBLISH)
        return PublishRequest(topic, payloads, qos, retain, properties)
    except UNWRITABLE:  # what it says is about bytes
        check_qos(qos)
        if not isinstance(retain, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"retain is True or False, not {retain!r:.80}") from None
        check_properties(properties, PacketType.PUBLISH)
        raise
