"""SUBSCRIBE and UNSUBSCRIBE, once decided: the request to the route writer, and the answer.

The routes have one writer, and the session handles its client's next packet after the writer's reply. If the decision
takes long, a task makes it, and the client waits for that, too. No other client waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.session import deciding, mail
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import SESSION_SUBSCRIBED, SESSION_UNSUBSCRIBED
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, reason_string, writable
from trunkline.mqtt.packets import PacketType, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import STREAM_PREFIX, parse_shared
from trunkline.router import Options, Target
from trunkline.store.batch import ROW_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.deciding import FilterOutcome, Outcome
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.waiting import Waiting
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.ledger import Owed

SEND_RETAINED: Final = 0
SEND_RETAINED_IF_NEW: Final = 1


@dataclass(slots=True, eq=False)
class SubscriptionAnswer:
    """A SUBACK or UNSUBACK while it is made: a reason for each filter, and the filters to act on."""

    client: ClientInfo
    #: The requesting connection; None if no client is connected.
    channel: Channel | None
    #: 0 when a plugin or an operator asked on the client's behalf: then no packet answers.
    packet_id: int
    reasons: list[int]
    #: The accepted filters, and the position of each in the answer.
    filters: list[str] = field(default_factory=lambda: [])
    places: list[int] = field(default_factory=lambda: [])
    #: The subscriptions to remove, as they were at the time of the request.
    before: list[Options | None] = field(default_factory=lambda: [])
    text: str = ""
    #: Its place among the answers owed to the client.
    owed: Owed | None = None

    def accept(self, place: int, filter: str) -> None:
        self.filters.append(filter)
        self.places.append(place)

    def refuse(self, place: int, reason: int, text: str = "") -> None:
        self.reasons[place] = reason
        self.text = self.text or text

    @property
    def properties(self) -> Properties:
        explained = self.channel is not None and self.channel.problem_information
        return reason_string(self.text) if explained else NO_PROPERTIES


@dataclass(slots=True, eq=False)
class Subscribing:
    context: SessionContext
    outbound: Outbound
    waiting: Waiting

    def subscribe(self, packet: Subscribe, channel: Channel) -> None:
        """
        Raises:
            ProtocolError: the client must go.
        """
        deciding.check(self.context, [request.filter for request in packet.requests], channel.client)
        self.waiting.ask(
            channel,
            lambda: deciding.subscribe(self.context, packet, channel.client),
            lambda outcomes: self._subscribe(packet, outcomes, channel),
            in_task=deciding.takes_long(self.context, packet),
        )

    def unsubscribe(self, packet: Unsubscribe, channel: Channel) -> None:
        """
        Raises:
            ProtocolError: the client must go.
        """
        deciding.check(self.context, packet.filters, channel.client)
        self.waiting.ask(
            channel,
            lambda: deciding.unsubscribe(self.context, packet, channel.client),
            lambda outcomes: self._unsubscribe(packet, outcomes, channel),
            in_task=deciding.takes_long(self.context, packet),
        )

    # Requests to the route writer

    def _subscribe(self, packet: Subscribe, outcomes: Sequence[Outcome], channel: Channel) -> None:
        answer = self._answer(packet, outcomes, channel, PacketType.SUBACK)
        known = len(self.context.session.subscriptions)
        limit = self.context.config.session.max_subscriptions or known + len(outcomes)
        identifiers = packet.properties.get("subscription_identifier")
        for place, (outcome, request) in enumerate(zip(outcomes, packet.requests, strict=True)):
            if isinstance(outcome, Deny):
                self._refuse(answer, place, request.filter, fitting(outcome.reason, PacketType.SUBACK), outcome.text)
        self._make_routes(answer, outcomes, packet.properties, identifiers[0] if identifiers else None, limit - known)

    def subscribe_for(self, requests: Sequence[SubscriptionRequest], channel: Channel) -> None:
        """Subscribe on behalf of the client, without hooks and access rules."""
        answer = SubscriptionAnswer(channel.client, channel, 0, [Reason.SUCCESS] * len(requests))
        self._make_routes(answer, requests, NO_PROPERTIES)

    def _answer(
        self, packet: Subscribe | Unsubscribe, outcomes: Sequence[object], channel: Channel, kind: PacketType
    ) -> SubscriptionAnswer:
        """The client waits for the routes.

        Raises:
            ProtocolError: a hook requested the end of the connection.
        """
        for outcome in outcomes:
            if type(outcome) is Deny and outcome.disconnect:
                raise ProtocolError(outcome.text or "refused", outcome.reason)
        self.waiting.begin()
        reasons = [fitting(each.reason, kind) if isinstance(each, Withhold) else Reason.SUCCESS for each in outcomes]
        return SubscriptionAnswer(
            channel.client, channel, packet.packet_id, reasons, owed=self.outbound.answers.ledger.owe(kind)
        )

    def _make_routes(
        self,
        answer: SubscriptionAnswer,
        outcomes: Sequence[Outcome],
        properties: Properties,
        identifier: int | None = None,
        room: float = inf,
    ) -> None:
        """Have the routes made for what is not refused, for so many new filters.  # [MQTT-3.8.4-5] [MQTT-3.8.4-6]"""
        session, services, subscriber = self.context.session, self.context.services, self.context.subscriber
        wanted: list[tuple[str, Options]] = []
        for place, request in enumerate(outcomes):
            if not isinstance(request, SubscriptionRequest):
                continue
            filter = request.filter
            if filter not in session.subscriptions:
                if room <= 0:
                    self._refuse(answer, place, filter, Reason.QUOTA_EXCEEDED, "too many subscriptions")
                    continue
                room -= 1
            qos = min(request.qos, self.context.config.mqtt.max_qos)  # [MQTT-3.8.4-7]
            no_local, as_published = request.no_local, request.retain_as_published
            if answer.client.bridge:  # it needs both, and 3.x cannot request them
                no_local, as_published = parse_shared(filter) is None, True
            answer.reasons[place] = qos
            answer.accept(place, filter)
            options = Options(qos, no_local, as_published, request.retain_handling, identifier)
            wanted.append((filter, options))
            # recorded now: if the session ends before the routes are made, they must still be removed
            session.subscribe(filter, options, by_client=answer.packet_id > 0)
        services.pubsub.make_routes(subscriber, wanted, partial(self._routed, answer, properties))

    def _routed(self, answer: SubscriptionAnswer, properties: Properties, grants: Sequence[Grant | Reason]) -> None:
        """In the turn of another actor: the routes exist. Places in streams are stored together with the subscriptions,
        so they are made before the SUBACK."""
        routed = mail.Routed(answer.channel, answer.packet_id > 0, partial(self._subscribed, answer, grants))
        of_streams = [each for each in grants if not isinstance(each, Reason) and each.filter.startswith(STREAM_PREFIX)]
        if of_streams:
            begun = partial(self.context.subscriber.cast, routed)
            slices = self.outbound.begin_feeds(of_streams, properties, begun)
            self.context.soon(lambda: self.context.in_slices(slices))
        else:
            self.context.subscriber.cast(routed)

    def _refuse(self, answer: SubscriptionAnswer, place: int, filter: str, reason: int, text: str = "") -> None:
        services = self.context.services
        services.refusals.note(reason, answer.client.client_id, filter, why=writable(text))
        services.metrics.packets_subscribe_error += 1
        services.metrics.packets_subscribe_auth_error += reason == Reason.NOT_AUTHORIZED
        answer.refuse(place, reason, text)

    def _unsubscribe(self, packet: Unsubscribe, outcomes: Sequence[FilterOutcome], channel: Channel) -> None:
        answer = self._answer(packet, outcomes, channel, PacketType.UNSUBACK)
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Deny):
                answer.refuse(place, fitting(outcome.reason, PacketType.UNSUBACK), outcome.text)
        self._remove_routes(answer, outcomes)

    def unsubscribe_for(self, filters: Sequence[str]) -> None:
        """Unsubscribe on behalf of the client, which may be away."""
        client, channel = self.context.session.client, self.outbound.channel
        self._remove_routes(SubscriptionAnswer(client, channel, 0, [Reason.SUCCESS] * len(filters)), filters)

    def _remove_routes(self, answer: SubscriptionAnswer, outcomes: Sequence[FilterOutcome]) -> None:
        for place, filter in enumerate(outcomes):
            if isinstance(filter, str):
                answer.accept(place, filter)
        subscriber = self.context.subscriber
        answer.before = list(map(self.context.session.subscriptions.get, answer.filters))
        self.context.services.pubsub.remove_routes(
            subscriber,
            answer.filters,
            lambda existed: subscriber.cast(
                mail.Routed(answer.channel, answer.packet_id > 0, partial(self._unsubscribed, answer, existed))
            ),
        )

    # Results

    def _subscribed(self, answer: SubscriptionAnswer, grants: Sequence[Grant | Reason]) -> None:
        """The routes exist: send SUBACK first, then retained messages.

        Raises:
            ProtocolError: the SUBACK is larger than the client accepts.
        """
        services, revoked, cursor = self.context.services, self.context.session.revoked, self.context.session.cursor
        made: list[Grant] = []
        for place, filter, grant in zip(answer.places, answer.filters, grants, strict=True):
            if isinstance(grant, Reason):
                self._not_made(filter)
                self._refuse(answer, place, filter, grant)
                continue
            made.append(grant)
            if cursor is not None:
                cursor.routed(grant.filter)
            if revoked is not None:
                revoked.keep(grant.filter)
        services.metrics.client_subscribe += len(made)
        if answer.channel is not self.outbound.channel:
            return  # the requesting connection has ended
        if revoked is not None and answer.channel is not None:
            answer.channel.may_read.clear()
        try:
            self._acknowledge(answer, Suback)  # [MQTT-3.8.4-1]
        finally:
            for grant in made:
                self._begin(grant, answer.client)

    def _begin(self, grant: Grant, client: ClientInfo) -> None:
        """A subscription was made: call the hooks, then send what was retained."""
        services, options = self.context.services, grant.options
        if services.hooks.session_subscribed:
            request = SubscriptionRequest(
                grant.filter, options.qos, options.no_local, options.retain_as_published, options.retain_handling
            )
            services.hooks.notify(SESSION_SUBSCRIBED, client, request)
        if grant.filter.startswith(STREAM_PREFIX):
            self.outbound.feed(grant.filter)
            return
        # [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
        wanted = options.retain_handling == SEND_RETAINED or (
            options.retain_handling == SEND_RETAINED_IF_NEW and grant.fresh
        )
        if wanted and services.pubsub.retained.may_match(grant.filter) and parse_shared(grant.filter) is None:
            self.outbound.replay(grant, self._as_retained(options))

    def _not_made(self, filter: str) -> None:
        """Update the session's subscription to match the route."""
        before = self.context.services.pubsub.router.subscription(self.context.subscriber, filter)
        if before is None:
            self.context.session.unsubscribe(filter)
        else:
            self.context.session.subscribe(filter, before, by_client=filter not in self.context.session.unasked)

    def _as_retained(self, options: Options) -> Target[Subscriber]:
        """Retained messages are sent with RETAIN set, whatever the subscription's options.  # [MQTT-3.3.1-8]"""
        return Target(
            self.context.subscriber, Options(options.qos, retain_as_published=True, identifier=options.identifier)
        )

    def _unsubscribed(self, answer: SubscriptionAnswer, existed: Sequence[bool | Reason]) -> None:
        """The routes were removed.

        Raises:
            ProtocolError: the UNSUBACK is larger than the client accepts.
        """
        services, session = self.context.services, self.context.session
        self.outbound.unsubscribed(answer.filters)
        for place, filter, before, was_there in zip(answer.places, answer.filters, answer.before, existed, strict=True):
            if isinstance(was_there, Reason):
                answer.reasons[place] = was_there
                continue
            if (
                session.subscriptions.get(filter) is before
            ):  # it may have been requested again, and the new route is still to come
                session.unsubscribe(filter)
                if session.revoked is not None:
                    session.revoked.forget(filter)
            if not was_there:
                answer.reasons[place] = Reason.NO_SUBSCRIPTION_EXISTED
                continue
            services.metrics.client_unsubscribe += 1
            if services.hooks.session_unsubscribed:
                services.hooks.notify(SESSION_UNSUBSCRIBED, answer.client, filter)
        if answer.channel is self.outbound.channel:
            self._acknowledge(answer, Unsuback)  # [MQTT-3.10.4-4]

    def _acknowledge(self, answer: SubscriptionAnswer, kind: type[Suback | Unsuback]) -> None:
        durable, answers = self.context.session.durable, self.outbound.answers
        weight = sum(map(len, answer.filters)) + ROW_OVERHEAD * len(answer.filters)
        if answer.packet_id and not answers.write(
            kind(answer.packet_id, answer.reasons, answer.properties),
            answer.owed,
            None if durable is None else durable.after_commit,
            weight,
        ):
            name = kind.__name__.upper()
            raise ProtocolError(f"the client accepts no packet as large as the {name}", Reason.PACKET_TOO_LARGE)
