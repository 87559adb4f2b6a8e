"""What a user asks of the server: to publish, to subscribe, to unsubscribe. A request is queued, sent, and done when
the server has answered.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, cast

from trunkline.client.bursts import MAX_NUMBERED, MAX_PACKET, MAX_SHORT, NO_BLOCK, can_gather
from trunkline.client.errors import PublishesRefused, PublishRefused, SubscribeRefused, UnsubscribeRefused
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import property_block, publish_head
from trunkline.mqtt.packets import Subscribe, Unsubscribe
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import FAILURE
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import OVERHEAD, block_weight, text_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.client.errors import ClientError
    from trunkline.client.server_limits import ServerLimits
    from trunkline.mqtt.packets import Suback, SubscriptionRequest, Unsuback
    from trunkline.mqtt.properties import Properties

#: In the form of a message: it has properties.
WITH_PROPERTIES: Final = 0x100


class RequestState(Enum):
    QUEUED = auto()
    #: Some of its packets are sent; of a burst perhaps not all.
    SENT = auto()
    #: The server has answered, or `error` says why it did not.
    DONE = auto()


_QUEUED: Final = RequestState.QUEUED
_DONE: Final = RequestState.DONE


class Receipt(Protocol):
    """A request on its way, for the one who does not wait for it, or not yet."""

    #: Why it failed, if it is done and did.
    error: ClientError | None

    @property
    def is_done(self) -> bool: ...

    async def wait(self) -> int:
        """The server's reason code, below 0x80. Cancelling this only ends the waiting.

        Raises:
            ClientError: the server refused it, or will never answer.
        """
        ...

    def cancel(self) -> None:
        """Take it out of the queue. What was sent cannot be taken back."""


class RequestOwner(Protocol):
    """The queue of a request."""

    async def answer(self, request: ClientRequest) -> int:
        """Wait for the server's answer. Returns its reason code."""
        ...

    def abandon(self, request: ClientRequest) -> None:
        """Nobody waits for it any more."""


class ClientRequest:
    """`on_done` is called once. It is the `Receipt` of its user, too: there may be very many."""

    __slots__ = (
        "abandoned",
        "error",
        "form",
        "may_be_discarded",
        "on_done",
        "owner",
        "properties",
        "reason",
        "sequence",
        "state",
        "weight",
    )

    def __init__(self) -> None:
        self.state = _QUEUED
        #: Its place among all requests of the session.
        self.sequence = 0
        #: Bytes of memory, roughly, while it is in the queue.
        self.weight = OVERHEAD
        #: Publications that have the same form, in a row, are sent as one; 0: it is sent alone, or not at all.
        self.form = 0
        #: Whether another request may take its place in a full queue.
        self.may_be_discarded = True
        #: Nobody waits for it any more.
        self.abandoned = False
        self.error: ClientError | None = None
        #: What the server answered.
        self.reason = 0
        self.properties = NO_PROPERTIES
        self.on_done: Callable[[], object] | None = None
        #: The queue that it is in.
        self.owner: RequestOwner

    @property
    def is_done(self) -> bool:
        return self.state is _DONE

    async def wait(self) -> int:
        return await self.owner.answer(self)

    def cancel(self) -> None:
        self.owner.abandon(self)

    def finish(self, error: ClientError | None = None) -> None:
        """The server has answered, or never will."""
        if self.state is not _DONE:
            self.state = _DONE
            self.form = 0
            if error is not None:
                self.error = error
            if self.on_done is not None:
                self.on_done()

    def check(self, limits: ServerLimits, version: Version) -> None:
        """
        Raises:
            NotOffered, LargerThanServerAccepts: the server does not allow it.
        """
        raise NotImplementedError


class PublishRequest(ClientRequest):
    """A message, or several to one topic."""

    __slots__ = (
        "block",
        "count",
        "message_properties",
        "payloads",
        "qos",
        "refusals",
        "retain",
        "sent",
        "topic",
        "unanswered",
    )

    def __init__(
        self,
        topic: str,
        payloads: Sequence[bytes],
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> None:
        """
        Raises:
            ValueError: MQTT cannot represent it.
        """
        super().__init__()
        self.topic = topic
        #: Of a single message only until it is sent.
        self.payloads = payloads
        self.qos = qos
        self.retain = retain
        self.message_properties = properties
        #: The same, encoded for 5.0.
        self.block = block = property_block(properties) if properties else NO_BLOCK
        #: Messages that have been sent.
        self.sent = 0
        #: All, and those that are sent or will be, and not answered.
        self.count = self.unanswered = count = len(payloads)
        #: The payloads that the server has refused, and the reasons.
        self.refusals: Sequence[tuple[bytes, int]] = ()
        name = len(topic) if topic.isascii() else text_weight(topic)
        if count == 1 and name <= MAX_SHORT >= len(block) and (size := len(payloads[0])) <= MAX_NUMBERED:
            self.weight = OVERHEAD + name + size
            self.form = 0x30 | qos << 1 | retain
            if properties:
                self.weight += block_weight(properties, block)
                self.form |= WITH_PROPERTIES
        else:
            each = OVERHEAD + name + (block_weight(properties, block) if properties else 0)
            self.weight = count * each + sum(map(len, payloads))
            self._largest(Version.V5)

    @property
    def requests(self) -> Sequence[PublishRequest]:
        return (self,)

    def part(self, limit: int) -> Sequence[bytes]:
        """The payloads that are sent next: so many, or as many as go together."""
        found = self.payloads[self.sent : self.sent + limit]
        if len(found) == 1:
            return found
        largest = MAX_NUMBERED if self.qos else MAX_PACKET
        alike = next((number for number, payload in enumerate(found) if len(payload) > largest), len(found))
        return found[: max(1, alike)] if can_gather(self.topic, self.block) else found[:1]

    def drop_rest(self) -> None:
        """What has not been sent will not be."""
        self.unanswered -= self.count - self.sent
        self.sent = self.count
        if not self.unanswered:
            self.finish(self._refusal())

    def answered(self, numbers: Sequence[int], reason: int, properties: Properties = NO_PROPERTIES) -> None:
        """The server has taken these messages for good."""
        self.unanswered -= len(numbers)
        self.reason, self.properties = reason, properties
        if not self.unanswered:
            self.finish(self._refusal())

    def refused(self, number: int, payload: bytes, reason: int, properties: Properties) -> None:
        """The server has refused a message."""
        if not self.refusals:
            self.refusals = []
        cast("list[tuple[bytes, int]]", self.refusals).append((payload, reason))
        self.answered((number,), reason, properties)

    def given_up(self, number: int, error: ClientError) -> None:
        """Message `number` cannot be sent again. Those that were sent with it still may; what was not sent is not."""
        self.finish(error)

    def _refusal(self) -> ClientError | None:
        if not self.refusals:
            return None
        if self.count == 1:
            return PublishRefused(self.reason, self.properties, f"the message to {self.topic}")
        return PublishesRefused(self.refusals, self.topic)

    def _largest(self, version: Version) -> int:
        """Bytes of the largest packet that is not sent.

        Raises:
            ValueError: MQTT cannot represent it.
        """
        rest = (len(self.block) if version is Version.V5 else 0) + max(map(len, self.payloads[self.sent :]))
        return len(publish_head(self.topic, self.qos, self.retain, rest)) + 2 * (self.qos > 0) + rest

    def check(self, limits: ServerLimits, version: Version) -> None:
        if self.qos > limits.maximum_qos or self.retain:
            limits.check_publish(self.qos, self.retain)
        # a packet is smaller than what it weighs
        if 0 < limits.max_packet_size < self.weight:
            limits.check_size(self._largest(version))


class PublishRow:
    """Requests of one message each that were sent together."""

    __slots__ = ("requests",)

    def __init__(self, requests: list[PublishRequest]) -> None:
        self.requests = requests

    @property
    def sequence(self) -> int:
        return self.requests[0].sequence

    def answered(self, numbers: Sequence[int], reason: int, properties: Properties = NO_PROPERTIES) -> None:
        for number in numbers:
            self.requests[number].answered((number,), reason, properties)

    def refused(self, number: int, payload: bytes, reason: int, properties: Properties) -> None:
        self.requests[number].refused(0, payload, reason, properties)

    def given_up(self, number: int, error: ClientError) -> None:
        self.requests[number].finish(error)


class SubscribeRequest(ClientRequest):
    __slots__ = ("_packet", "reasons")

    def __init__(self, requests: list[SubscriptionRequest], properties: Properties = NO_PROPERTIES) -> None:
        super().__init__()
        self._packet = Subscribe(1, requests, properties)
        self.weight = sum(OVERHEAD + text_weight(each.filter) for each in requests)
        #: By topic filter.
        self.reasons: dict[str, int] = {}

    @property
    def requests(self) -> list[SubscriptionRequest]:
        return self._packet.requests

    def packet(self, packet_id: int) -> Subscribe:
        return Subscribe(packet_id, self._packet.requests, self._packet.properties)

    @property
    def granted(self) -> list[str]:
        """The topic filters that the server has granted."""
        return [name for name, reason in self.reasons.items() if reason < FAILURE]

    def answered(self, packet: Suback) -> None:
        self.properties = packet.properties
        self.reason = max(packet.reasons)
        self.reasons = {each.filter: reason for each, reason in zip(self.requests, packet.reasons, strict=True)}
        self.finish(SubscribeRefused(self.reasons, packet.properties) if self.reason >= FAILURE else None)

    def check(self, limits: ServerLimits, version: Version) -> None:
        limits.check_subscribe(self.requests, "subscription_identifier" in self._packet.properties)
        limits.check_size(len(encode(self._packet, version)))


class UnsubscribeRequest(ClientRequest):
    __slots__ = ("_packet",)

    def __init__(self, filters: list[str], properties: Properties = NO_PROPERTIES) -> None:
        super().__init__()
        self._packet = Unsubscribe(1, filters, properties)
        self.weight = sum(OVERHEAD + text_weight(each) for each in filters)

    def packet(self, packet_id: int) -> Unsubscribe:
        return Unsubscribe(packet_id, self._packet.filters, self._packet.properties)

    @property
    def filters(self) -> list[str]:
        return self._packet.filters

    def answered(self, packet: Unsuback) -> None:
        self.properties = packet.properties
        self.reason = max(packet.reasons, default=0)
        reasons = dict(zip(self.filters, packet.reasons, strict=False))
        self.finish(UnsubscribeRefused(reasons, packet.properties) if self.reason >= FAILURE else None)

    def check(self, limits: ServerLimits, version: Version) -> None:
        limits.check_size(len(encode(self._packet, version)))
