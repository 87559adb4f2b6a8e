"""What a user asks of the server: to publish, to subscribe, to unsubscribe. A request is queued, sent, and done when
the server has answered.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from trunkline.client.errors import PublishesRefused, PublishRefused, SubscribeRefused, UnsubscribeRefused
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import publish_pieces
from trunkline.mqtt.packets import Subscribe, Unsubscribe
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.weight import OVERHEAD, text_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.client.errors import ClientError
    from trunkline.client.server_limits import ServerLimits
    from trunkline.mqtt.packets import Suback, SubscriptionRequest, Unsuback
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.versions import Version

#: Reasons from here on are failures.
FAILURE: Final = 0x80


class RequestState(Enum):
    QUEUED = auto()
    #: Some of its packets are sent; of a burst perhaps not all.
    SENT = auto()
    #: The server has answered, or `error` says why it did not.
    DONE = auto()


class ClientRequest:
    """`on_done` is called once."""

    __slots__ = ("abandoned", "error", "on_done", "properties", "queued_bytes", "reason", "sequence", "state")

    def __init__(self) -> None:
        self.state = RequestState.QUEUED
        #: Its place among all requests of the session.
        self.sequence = 0
        #: What it weighs while it is in the queue.
        self.queued_bytes = 0
        #: Nobody waits for it any more.
        self.abandoned = False
        self.error: ClientError | None = None
        #: What the server answered.
        self.reason = 0
        self.properties: Properties = NO_PROPERTIES
        self.on_done: Callable[[], object] | None = None

    @property
    def is_done(self) -> bool:
        return self.state is RequestState.DONE

    def finish(self, error: ClientError | None = None) -> None:
        """The server has answered, or never will."""
        if self.state is not RequestState.DONE:
            self.state = RequestState.DONE
            self.error = error
            if self.on_done is not None:
                self.on_done()

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly."""
        return OVERHEAD

    def check(self, limits: ServerLimits, version: Version) -> None:
        """
        Raises:
            NotOffered, LargerThanServerAccepts: the server does not allow it.
        """
        raise NotImplementedError


class PublishRequest(ClientRequest):
    """A message, or several to one topic."""

    __slots__ = ("count", "qos", "refusals", "rest", "topic", "unanswered")

    def __init__(self, publications: Sequence[Publication]) -> None:
        super().__init__()
        first = publications[0]
        self.topic, self.qos = first.topic, first.qos
        #: What has not been sent.
        self.rest = deque(publications)
        #: Messages that are sent or will be, and not answered.
        self.count = self.unanswered = sum(each.count for each in publications)
        #: The payloads that the server has refused, and the reasons.
        self.refusals: list[tuple[bytes, int]] = []

    @property
    def weight(self) -> int:
        return sum(each.weight for each in self.rest)

    def drop_rest(self) -> None:
        """What has not been sent will not be."""
        self.unanswered -= sum(each.count for each in self.rest)
        self.rest.clear()
        if not self.unanswered:
            self.finish(self._refusal())

    def answered(self, number: int, reason: int, properties: Properties = NO_PROPERTIES) -> None:
        """The server has taken so many messages for good."""
        self.unanswered -= number
        self.reason, self.properties = reason, properties
        if not self.unanswered:
            self.finish(self._refusal())

    def refused(self, payload: bytes, reason: int, properties: Properties) -> None:
        """The server has refused a message."""
        self.refusals.append((payload, reason))
        self.answered(1, reason, properties)

    def _refusal(self) -> ClientError | None:
        if not self.refusals:
            return None
        if self.count == 1:
            return PublishRefused(self.reason, self.properties, f"the message to {self.topic}")
        return PublishesRefused(self.refusals, self.topic)

    def check(self, limits: ServerLimits, version: Version) -> None:
        retain = self.rest[0].retain
        limits.check_publish(self.qos, retain)
        if limits.max_packet_size:
            id_size = 2 if self.qos else 0
            for publication in self.rest:
                largest = max(publication.messages, key=lambda message: len(message.payload))
                limits.check_size(sum(map(len, publish_pieces(largest, version, self.qos, retain))) + id_size)


class SubscribeRequest(ClientRequest):
    __slots__ = ("_packet", "reasons")

    def __init__(self, requests: list[SubscriptionRequest], properties: Properties = NO_PROPERTIES) -> None:
        super().__init__()
        self._packet = Subscribe(1, requests, properties)
        #: By topic filter.
        self.reasons: dict[str, int] = {}

    @property
    def requests(self) -> list[SubscriptionRequest]:
        return self._packet.requests

    @property
    def weight(self) -> int:
        return sum(OVERHEAD + text_weight(each.filter) for each in self.requests)

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

    def packet(self, packet_id: int) -> Unsubscribe:
        return Unsubscribe(packet_id, self._packet.filters, self._packet.properties)

    @property
    def filters(self) -> list[str]:
        return self._packet.filters

    @property
    def weight(self) -> int:
        return sum(OVERHEAD + text_weight(each) for each in self.filters)

    def answered(self, packet: Unsuback) -> None:
        self.properties = packet.properties
        self.reason = max(packet.reasons, default=0)
        reasons = dict(zip(self.filters, packet.reasons, strict=False))
        self.finish(UnsubscribeRefused(reasons, packet.properties) if self.reason >= FAILURE else None)

    def check(self, limits: ServerLimits, version: Version) -> None:
        limits.check_size(len(encode(self._packet, version)))
