"""SUBSCRIBE and UNSUBSCRIBE: what is granted, what the routes are asked for, and the answer.

The routes have one writer, so the client waits for its reply before the session goes on with its packets. Hooks at
these points may be async; then it waits for them too. Nobody else waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.broker.pubsub import MakeRoutes, RemoveRoutes
from trunkline.hooks.decisions import Deny
from trunkline.hooks.points import CLIENT_SUBSCRIBE, CLIENT_UNSUBSCRIBE, SESSION_SUBSCRIBED, SESSION_UNSUBSCRIBED
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, reason_string
from trunkline.mqtt.packets import PacketType, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import parse_shared, plain_filter, validate_filter
from trunkline.router import Options, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.pubsub import Subscribed, Subscriber, Unsubscribed
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Transform

T = TypeVar("T")

_DENIED: Final = Deny(Reason.NOT_AUTHORIZED)
SEND_RETAINED: Final = 0
SEND_RETAINED_IF_NEW: Final = 1


class Answer:
    """The SUBACK or UNSUBACK that is being made: a reason for each filter, and the filters to act on."""

    __slots__ = ("channel", "client", "filters", "packet_id", "places", "reasons", "text")

    def __init__(self, client: ClientInfo, channel: Channel | None, packet_id: int, length: int) -> None:
        self.client = client
        #: The connection that asked; None when nobody is connected.
        self.channel = channel
        #: 0 when somebody else asked on the client's behalf: then there is no answer.
        self.packet_id = packet_id
        self.reasons: list[int] = [Reason.SUCCESS] * length
        #: The filters that were accepted, and where each stands in the answer.
        self.filters: list[str] = []
        self.places: list[int] = []
        self.text = ""

    def accept(self, place: int, filter: str) -> None:
        self.filters.append(filter)
        self.places.append(place)

    def refuse(self, place: int, reason: int, text: str = "") -> None:
        self.reasons[place] = reason
        self.text = self.text or text

    @property
    def properties(self) -> Properties:
        told = self.channel is not None and self.channel.problem_information
        return reason_string(self.text) if told else NO_PROPERTIES


class Subscribing:
    __slots__ = ("_outbound", "_services", "_session", "_subscriber")

    def __init__(self, session: Session, services: Services, outbound: Outbound, subscriber: Subscriber) -> None:
        self._session = session
        self._services = services
        self._outbound = outbound
        self._subscriber = subscriber

    # What the hooks make of the packet

    def is_async(self, packet: Subscribe | Unsubscribe) -> bool:
        """Is there somebody who must be waited for?"""
        hooks, access = self._services.hooks, self._services.access
        if type(packet) is Subscribe:
            return hooks.is_async(CLIENT_SUBSCRIBE) or access.waits
        return hooks.is_async(CLIENT_UNSUBSCRIBE)

    def requests(self, packet: Subscribe, channel: Channel) -> list[SubscriptionRequest | Deny]:
        return self._through(CLIENT_SUBSCRIBE, packet.requests, packet, channel)

    async def requests_async(
        self, packet: Subscribe, channel: Channel
    ) -> tuple[list[SubscriptionRequest | Deny], bool]:
        """Also, whether the access rules have been asked, because they have to be waited for."""
        requests = await self._through_async(CLIENT_SUBSCRIBE, packet.requests, packet, channel)
        access, client = self._services.access, channel.client
        if not access.waits:
            return requests, False
        return [
            request
            if type(request) is Deny or await access.ask(client, "subscribe", plain_filter(request.filter), request.qos)
            else self._denied(request)
            for request in requests
        ], True

    def _denied(self, request: SubscriptionRequest) -> Deny:
        """Deliveries cannot wait, so a subscription that is to look granted is not made at all."""
        if self._services.config.mqtt.subscribe_denied == "refuse":
            return _DENIED
        return Deny(Reason(min(request.qos, self._services.config.mqtt.max_qos)))

    def filters(self, packet: Unsubscribe, channel: Channel) -> list[str | Deny]:
        return self._through(CLIENT_UNSUBSCRIBE, packet.filters, packet, channel)

    async def filters_async(self, packet: Unsubscribe, channel: Channel) -> list[str | Deny]:
        return await self._through_async(CLIENT_UNSUBSCRIBE, packet.filters, packet, channel)

    def _through(
        self, point: Transform[T, Properties], entries: list[T], packet: Subscribe | Unsubscribe, channel: Channel
    ) -> list[T | Deny]:
        left: list[T | Deny] = []
        for entry in entries:
            changed = self._services.hooks.transform(point, channel.client, entry, packet.properties)
            left.append(changed)
        return left

    async def _through_async(
        self, point: Transform[T, Properties], entries: list[T], packet: Subscribe | Unsubscribe, channel: Channel
    ) -> list[T | Deny]:
        left: list[T | Deny] = []
        for entry in entries:
            changed = await self._services.hooks.transform_async(point, channel.client, entry, packet.properties)
            left.append(changed)
        return left

    # What is asked of the routes

    def subscribe(
        self,
        packet: Subscribe,
        requests: Sequence[SubscriptionRequest | Deny],
        channel: Channel,
        *,
        asked: bool = False,
    ) -> None:
        """Decide on each request, and have the routes made. `asked`: the access rules agree to what is not a Deny.
        # [MQTT-3.8.4-5] [MQTT-3.8.4-6]

        Raises:
            ProtocolError: the client must go.
        """
        _check_stays(requests)
        answer = Answer(channel.client, channel, packet.packet_id, len(requests))
        identifiers = packet.properties.get("subscription_identifier")
        identifier = identifiers[0] if identifiers else None
        known, metrics = self._session.subscriptions, self._services.metrics
        room = (self._services.config.session.max_subscriptions or len(known) + len(requests)) - len(known)
        wanted: list[tuple[str, Options]] = []
        for place, request in enumerate(requests):
            if type(request) is Deny:
                metrics.packets_subscribe_error += 1
                metrics.packets_subscribe_auth_error += request is _DENIED
                answer.refuse(place, fitting(request.reason, PacketType.SUBACK), request.text)
                continue
            assert isinstance(request, SubscriptionRequest)
            refusal = self._refusal(request, channel, asked=asked)
            if refusal is not None:
                metrics.packets_subscribe_error += 1
                metrics.packets_subscribe_auth_error += refusal is Reason.NOT_AUTHORIZED
                answer.refuse(place, refusal)
                continue
            if request.filter not in known:
                if room <= 0:
                    metrics.packets_subscribe_error += 1
                    answer.refuse(place, Reason.QUOTA_EXCEEDED, "too many subscriptions")
                    continue
                room -= 1
            qos = min(request.qos, self._services.config.mqtt.max_qos)  # [MQTT-3.8.4-7]
            answer.reasons[place] = qos
            answer.accept(place, request.filter)
            options = Options(qos, request.no_local, request.retain_as_published, request.retain_handling, identifier)
            wanted.append((request.filter, options))
            # known from now on: if the session ends before the routes are made, they must be removed all the same
            known[request.filter] = options
            self._session.unasked.discard(request.filter)
        self._services.pubsub.ref.cast(MakeRoutes(self._subscriber, wanted, answer))

    def subscribe_for(self, requests: Sequence[SubscriptionRequest], channel: Channel) -> None:
        """As `subscribe`, on behalf of the client: neither hooks nor access rules are asked."""
        answer = Answer(channel.client, channel, 0, len(requests))
        wanted: list[tuple[str, Options]] = []
        for place, request in enumerate(requests):
            qos = min(request.qos, self._services.config.mqtt.max_qos)
            answer.accept(place, request.filter)
            options = Options(qos, request.no_local, request.retain_as_published, request.retain_handling)
            wanted.append((request.filter, options))
        self._session.subscriptions.update(wanted)
        self._session.unasked.update(answer.filters)
        self._services.pubsub.ref.cast(MakeRoutes(self._subscriber, wanted, answer))

    def _refusal(self, request: SubscriptionRequest, channel: Channel, *, asked: bool) -> Reason | None:
        mqtt = self._services.config.mqtt
        try:
            validate_filter(request.filter, mqtt.max_topic_levels)  # a hook may have replaced what the decoder saw
        except ProtocolError:
            return Reason.TOPIC_FILTER_INVALID
        shared = parse_shared(request.filter)
        if shared is not None and not mqtt.shared_subscriptions:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        filter = request.filter if shared is None else shared[1]
        if not mqtt.wildcard_subscriptions and ("+" in filter or "#" in filter):
            return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
        access = self._services.access
        if (
            mqtt.subscribe_denied == "refuse"
            and not asked
            and not access.decide(channel.client, "subscribe", filter, request.qos)
        ):
            return Reason.NOT_AUTHORIZED
        return None

    def unsubscribe(self, packet: Unsubscribe, filters: Sequence[str | Deny], channel: Channel) -> None:
        """
        Raises:
            ProtocolError: the client must go.
        """
        _check_stays(filters)
        answer = Answer(channel.client, channel, packet.packet_id, len(filters))
        for place, filter in enumerate(filters):
            if isinstance(filter, Deny):
                answer.refuse(place, fitting(filter.reason, PacketType.UNSUBACK), filter.text)
            else:
                answer.accept(place, filter)
        self._services.pubsub.ref.cast(RemoveRoutes(self._subscriber, answer.filters, answer))

    def unsubscribe_for(self, filters: Sequence[str], client: ClientInfo, channel: Channel | None) -> None:
        """As `unsubscribe`, on behalf of the client, which may be away."""
        answer = Answer(client, channel, 0, len(filters))
        for place, filter in enumerate(filters):
            answer.accept(place, filter)
        self._services.pubsub.ref.cast(RemoveRoutes(self._subscriber, answer.filters, answer))

    # What came of it

    def subscribed(self, done: Subscribed) -> None:
        """The routes are there: SUBACK first, then what was retained."""
        hooks, retained = self._services.hooks, len(self._services.pubsub.retained)
        answer: Answer = done.context
        self._services.metrics.client_subscribe += len(done.grants)
        revoked = self._session.revoked
        for grant in done.grants:
            # an answer to an earlier wish to have it removed may have come meanwhile
            self._session.subscriptions[grant.filter] = grant.options
            if revoked is not None:
                revoked.keep(grant.filter)
        if answer.channel is not self._outbound.channel:
            return  # the connection that asked is gone
        if revoked is not None and answer.channel is not None:
            answer.channel.may_read.clear()
        if answer.packet_id:
            self._outbound.write(Suback(answer.packet_id, answer.reasons, answer.properties))  # [MQTT-3.8.4-1]
        for grant in done.grants:
            options = grant.options
            if hooks.session_subscribed:
                request = SubscriptionRequest(
                    grant.filter,
                    options.qos,
                    options.no_local,
                    options.retain_as_published,
                    options.retain_handling,
                )
                hooks.notify(SESSION_SUBSCRIBED, answer.client, request)
            # [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
            wanted = options.retain_handling == SEND_RETAINED or (
                options.retain_handling == SEND_RETAINED_IF_NEW and grant.fresh
            )
            if wanted and retained and parse_shared(grant.filter) is None:
                self._outbound.replay(grant, self._as_retained(options))

    def _as_retained(self, options: Options) -> Target[Subscriber]:
        """What is sent because it was retained says so, whatever the subscription asks for.  # [MQTT-3.3.1-8]"""
        return Target(self._subscriber, Options(options.qos, retain_as_published=True, identifier=options.identifier))

    def unsubscribed(self, done: Unsubscribed) -> None:
        hooks = self._services.hooks
        answer: Answer = done.context
        for place, filter, existed in zip(answer.places, answer.filters, done.existed, strict=True):
            self._session.subscriptions.pop(filter, None)
            self._session.unasked.discard(filter)
            if not existed:
                answer.reasons[place] = Reason.NO_SUBSCRIPTION_EXISTED
                continue
            self._services.metrics.client_unsubscribe += 1
            if hooks.session_unsubscribed:
                hooks.notify(SESSION_UNSUBSCRIBED, answer.client, filter)
        if answer.packet_id and answer.channel is self._outbound.channel:
            self._outbound.write(Unsuback(answer.packet_id, answer.reasons, answer.properties))  # [MQTT-3.10.4-4]


def _check_stays(answers: Sequence[object]) -> None:
    """
    Raises:
        ProtocolError: a hook wants the connection to end.
    """
    for answer in answers:
        if type(answer) is Deny and answer.disconnect:
            raise ProtocolError(answer.text or "refused", answer.reason)
