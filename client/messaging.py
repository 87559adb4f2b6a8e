"""What a user does with a session, whichever connection it has at the time: publish, subscribe, receive."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio

from trunkline.client.bursts import publications
from trunkline.client.dispatch import Dispatch
from trunkline.client.errors import ClientClosed, ClientError, RequestDiscarded, RequestQueueFull
from trunkline.client.incoming import IncomingHalf
from trunkline.client.outgoing import OutgoingHalf
from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
from trunkline.client.requests import PublishRequest, SubscribeRequest, UnsubscribeRequest
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.topics import validate_filter, validate_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from trunkline.client.incoming import Handover
    from trunkline.client.requests import ClientRequest
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.versions import Version

#: Requests that wait to be sent, by default.
MAX_QUEUED: Final = 1000
#: Messages that wait for a user, in each receiver, by default.
MAX_BUFFERED: Final = 1000
#: Topics that are known to be valid.
MAX_TOPICS: Final = 1024


#: What becomes of a request for which the queue has no room: it waits (`publish_nowait` is refused), it is refused, or
#: it takes the place of the one that has waited longest.
Overflow: TypeAlias = Literal["wait", "drop_new", "drop_old"]


class Receipt:
    """A request on its way."""

    def __init__(self, request: ClientRequest, messaging: Messaging) -> None:
        self._request = request
        self._messaging = messaging

    @property
    def is_done(self) -> bool:
        return self._request.is_done

    async def wait(self) -> int:
        """The server's reason code, below 0x80. Cancelling this only ends the waiting.

        Raises:
            ClientError: the server refused it, or will never answer.
        """
        return await self._messaging.answer(self._request)

    def cancel(self) -> None:
        """Take it out of the queue. What was sent cannot be taken back."""
        self._messaging.abandon(self._request)


class Subscription(Receiver):
    """The messages of a subscription. Leaving its block (`async with`) unsubscribes."""

    def __init__(self, filters: Sequence[str], *, manual_ack: bool, max_buffered: int, messaging: Messaging) -> None:
        super().__init__(filters, manual_ack=manual_ack, max_buffered=max_buffered, owner=messaging)
        self._messaging = messaging
        #: The reason code for each topic filter: the QoS that the server grants.
        self.granted: dict[str, int] = {}

    async def unsubscribe(self) -> None:
        """No more messages come. Loops end when they have got what is there.

        Raises:
            UnsubscribeRefused: the server refused it.
        """
        await self._messaging.unsubscribe(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.unsubscribe()
            else:
                self._messaging.unsubscribe_soon(self)
        finally:
            await super().__aexit__(kind, error, trace)


class Messaging:
    """The parts of a session that outlive its connections, and the requests of its user."""

    def __init__(self, version: Version, max_queued: int, max_buffered: int, overflow: Overflow = "wait") -> None:
        self._version = version
        self._max_queued = max_queued
        self._overflow = overflow
        self._max_buffered = max_buffered
        self._outgoing = OutgoingHalf()
        self._incoming = IncomingHalf()
        self._dispatch = Dispatch[Receiver]()
        self._topics: set[str] = set()
        self._is_open = False
        #: Why it is not open any more.
        self._failure: ClientError | None = None
        #: Those who wait for room in the queue.
        self._waiting = trio.lowlevel.ParkingLot()
        self._outgoing.on_orphans = self._drop_orphans
        self._incoming.on_acknowledged = self.wake

    # What a subclass does

    def wake(self) -> None:
        """There may be something to send, or room to read."""

    # Life

    def _open(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._thread = get_ident()
        self._is_open = True

    def _shut(self, error: ClientError) -> None:
        """Nothing more is sent, and nothing more comes."""
        if self._is_open:
            self._is_open = False
            self._failure = error
            self._outgoing.fail(error)
            self._incoming.forget()
            for receiver in self._dispatch.receivers:
                receiver.end()
            self._waiting.unpark_all()

    def _check_open(self) -> None:
        if not self._is_open:
            raise self._failure or ClientClosed()

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
        return await self._ask(self._publish_request(topic, payload, qos, retain, properties))

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
        self._check_open()
        self._make_room()
        self._add(request)
        return Receipt(request, self)

    async def publish_many(
        self,
        topic: str,
        payloads: Iterable[bytes],
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """Publish many messages to one topic, many times faster than one by one, and wait until the server has taken
        all of them.

        Raises:
            PublishesRefused: the server refused some.
        """
        self._check_topic(topic, qos)
        found = publications(topic, list(payloads), qos, retain, properties, self._version)
        if found:
            await self._ask(PublishRequest(found))
        else:
            await trio.lowlevel.checkpoint()

    def _publish_request(
        self, topic: str, payload: bytes | str, qos: int, retain: bool, properties: Properties
    ) -> PublishRequest:
        self._check_topic(topic, qos)
        data = payload.encode() if isinstance(payload, str) else bytes(payload)
        publication: Publication = Message(topic, data, qos, retain, properties)
        return PublishRequest([publication])

    def _check_topic(self, topic: str, qos: int) -> None:
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS is 0, 1 or 2, not {qos!r}")
        if topic not in self._topics:
            try:
                validate_name(topic)
            except ProtocolError as error:
                raise ValueError(str(error)) from None
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
        """Subscribe, and wait for the server's answer.

        Raises:
            SubscribeRefused: the server refused a filter. None of them is subscribed then.
            NotOffered: it was not sent, because the server would end the connection.
            ValueError: this is not a topic filter.
        """
        if not filters or qos not in (0, 1, 2) or retain_handling not in (0, 1, 2):
            raise ValueError("subscribe needs a topic filter; QoS and retain_handling are 0, 1 or 2")
        for each in filters:
            _check_filter(each)
        requests = [SubscriptionRequest(each, qos, no_local, retain_as_published, retain_handling) for each in filters]
        room = self._max_buffered if max_buffered is None else max_buffered
        subscription = Subscription(filters, manual_ack=manual_ack, max_buffered=room, messaging=self)
        request = SubscribeRequest(requests, properties)
        # a filter that was granted in vain is unsubscribed when the answer comes, unless a subscription has it
        request.on_done = lambda: subscription.close() if request.error is not None else None
        # before the answer: retained messages come right behind it
        self._dispatch.add(subscription, subscription.filters)
        try:
            await self._ask(request)
        except BaseException:
            subscription.close()
            raise
        subscription.granted = request.reasons
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Unsubscribe the filters that no other subscription of this client has."""
        filters = self._only_of(subscription)
        self._dispatch.remove(subscription)
        subscription.end()
        if filters and self._is_open:
            await self._ask(UnsubscribeRequest(filters))
        else:
            await trio.lowlevel.checkpoint()

    def unsubscribe_soon(self, subscription: Subscription) -> None:
        """Without waiting for the answer."""
        filters = self._only_of(subscription)
        self._dispatch.remove(subscription)
        if filters and self._is_open:
            self._add(UnsubscribeRequest(filters))

    def _only_of(self, subscription: Subscription) -> list[str]:
        receivers = self._dispatch.receivers
        if subscription not in receivers:
            return []
        others = self._subscribed(each for each in receivers if each is not subscription)
        return [each for each in subscription.filters if each not in others]

    @staticmethod
    def _subscribed(receivers: Iterable[Receiver]) -> set[str]:
        return {each for receiver in receivers if isinstance(receiver, Subscription) for each in receiver.filters}

    def _drop_orphans(self, filters: list[str]) -> None:
        """Granted, and nobody waits for them: their request was cancelled, or refused in part."""
        subscribed = self._subscribed(self._dispatch.receivers)
        orphans = [each for each in filters if each not in subscribed]
        if orphans:
            self._add(UnsubscribeRequest(orphans))

    # Receiving

    def receive_from(self, *filters: str, manual_ack: bool = False, max_buffered: int | None = None) -> Receiver:
        """The messages of these topic filters, without subscribing: those of another subscription, or of a session that
        is resumed. Without filters: all messages that no other receiver gets. It may be called before the client is
        opened, so that nothing is missed.

        A message that no receiver gets is acknowledged and dropped.
        """
        for each in filters:
            _check_filter(each)
        room = self._max_buffered if max_buffered is None else max_buffered
        receiver = Receiver(filters, manual_ack=manual_ack, max_buffered=room, owner=self)
        self._dispatch.add(receiver, filters)
        return receiver

    def closed(self, receiver: Receiver) -> None:
        """It gets no more messages."""
        self._dispatch.remove(receiver)

    def hand_over(self, handovers: Sequence[Handover]) -> None:
        """Messages came: all of one read."""
        found: dict[Receiver, list[ReceivedMessage]] = {}
        for handover in handovers:
            publication = handover.publication
            topics = publication.topics
            receivers = self._dispatch.find(topics[0])
            if len(receivers) == 1 and topics.count(topics[0]) == len(topics):  # as nearly always
                self._gather(found, handover, receivers[0], publication.messages, 0)
                continue
            for number, message in enumerate(publication.messages):
                receivers = self._dispatch.find(message.topic)
                handover.expect(number, len(receivers))
                for receiver in receivers:
                    self._gather(found, handover, receiver, (message,), number)
        for receiver, messages in found.items():
            receiver.put(messages)
        if handovers:
            self.wake()

    def _gather(
        self,
        found: dict[Receiver, list[ReceivedMessage]],
        handover: Handover,
        receiver: Receiver,
        messages: Sequence[Message],
        first: int,
    ) -> None:
        auto_ack = not receiver.manual_ack
        acknowledge = handover.acknowledge
        done = None if acknowledge is None else partial(self._acknowledge, acknowledge)
        dup = handover.publication.dup
        found.setdefault(receiver, []).extend(
            [
                ReceivedMessage(
                    each.topic, each.payload, each.qos, each.retain, dup, each.properties, auto_ack, number, done
                )
                for number, each in enumerate(messages, first)
            ]
        )

    def _acknowledge(self, acknowledge: Callable[[int], object], number: int) -> None:
        if get_ident() == self._thread:
            acknowledge(number)
        else:
            self._token.run_sync_soon(acknowledge, number)

    def may_read(self) -> bool:
        """Whether messages have room. An answer that somebody waits for stands behind them, so they must be read."""
        return self._outgoing.is_waiting or not any(receiver.is_crowded for receiver in self._dispatch.receivers)

    # Requests

    async def _ask(self, request: ClientRequest) -> int:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        while self._overflow == "wait" and self._outgoing.queued >= self._max_queued:
            await self._waiting.park()
            self._check_open()
        self._make_room()
        self._add(request)
        try:
            return await self.answer(request)
        except trio.Cancelled:
            self.abandon(request)
            raise

    def _add(self, request: ClientRequest) -> None:
        self._outgoing.add(request, trio.current_time())
        self.wake()

    def _make_room(self) -> None:
        if self._outgoing.queued >= self._max_queued:
            text = f"{self._max_queued} requests wait already"
            if self._overflow != "drop_old" or not self._outgoing.discard_oldest(RequestDiscarded(text)):
                raise RequestQueueFull(text)

    def sent(self) -> None:
        """Requests have left the queue."""
        room = self._max_queued - self._outgoing.queued
        if room > 0 and self._waiting:
            self._waiting.unpark(count=room)

    async def answer(self, request: ClientRequest) -> int:
        """Wait for the server's answer to a request."""
        if request.is_done:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            done = trio.Event()
            before = request.on_done
            request.on_done = done.set if before is None else lambda: (before(), done.set())
            await done.wait()
        if request.error is not None:
            raise request.error
        return request.reason

    def abandon(self, request: ClientRequest) -> None:
        """Nobody waits for it any more."""
        self._outgoing.abandon(request)
        self.sent()


def _check_filter(topic_filter: str) -> None:
    try:
        validate_filter(topic_filter)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
