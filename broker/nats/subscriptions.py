"""SUB and UNSUB: the subscriptions of one client, and the routes that they share.

A client may subscribe to a subject several times, under ids of its own, and gets a message once for each. To the router
it is one subscriber, with one route for each filter; the route's number is its subscription identifier, so that a
delivery says by which of them it came.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.mapping import filter_of, read_subject, shared_filter
from trunkline.broker.session.access import Question
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import CLIENT_SUBSCRIBE, CLIENT_UNSUBSCRIBE, SESSION_SUBSCRIBED, SESSION_UNSUBSCRIBED
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import writable
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import STREAM_PREFIX, plain_filter, validate_filter
from trunkline.nats.errors import BadSubject
from trunkline.router import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.routes import Grant
    from trunkline.nats.protocol.operations import Subscribe, Unsubscribe

INVALID: Final = "Invalid Subject"
TOO_MANY: Final = "maximum subscriptions exceeded"
#: Retained messages are never sent: NATS has none.
_NO_RETAINED: Final = 2
#: Subscriptions of one client to one subject: a message is copied for each of them, in one step.
MOST_ALIKE: Final = 256
#: Routes whose access is checked again in one turn.
CHECKED_AT_ONCE: Final = 50

_logger = logging.getLogger("trunkline.access")


@dataclass(slots=True, eq=False)
class SubjectSubscription:
    sid: bytes
    #: As the client wrote it.
    subject: str
    route: SubjectRoute
    #: Messages that it gets in all; 0 for no limit.
    maximum: int = 0
    delivered: int = 0


@dataclass(slots=True, eq=False)
class SubjectRoute:
    filter: str
    #: The subscription identifier that the router knows it by.
    number: int
    #: By sid, in the order of subscription.
    subscriptions: dict[bytes, SubjectSubscription] = field(default_factory=dict[bytes, SubjectSubscription])
    #: Of a queue group's member: only one of its subscriptions gets a message, each in turn.
    is_shared: bool = False


class SubjectSubscriptions:
    __slots__ = ("_by_filter", "_dialogue", "_last", "_services", "_standing", "by_number", "by_sid")

    def __init__(self, standing: Standing, dialogue: Dialogue) -> None:
        self._standing = standing
        self._dialogue = dialogue
        self._services = standing.services
        self.by_sid: dict[bytes, SubjectSubscription] = {}
        self.by_number: dict[int, SubjectRoute] = {}
        self._by_filter: dict[str, SubjectRoute] = {}
        #: The number of the last route.
        self._last = 0

    # SUB

    def subscribe(self, asked: Subscribe) -> None:
        dialogue, services, config = self._dialogue, self._services, self._standing.config
        if asked.sid in self.by_sid:
            dialogue.acknowledge()  # the first one stays, as servers have it
            return
        try:
            subject, queue = read_subject(asked.subject), read_subject(asked.queue)
            filter = filter_of(subject, config.mqtt.max_topic_levels)
            if queue:
                filter = shared_filter(queue, filter)
        except BadSubject:
            dialogue.complain(INVALID)
            return
        most = config.session.max_subscriptions
        if 0 < most <= len(self.by_sid):
            dialogue.complain(TOO_MANY)
            return
        request = SubscriptionRequest(filter, 0, not self._standing.terms.echo, False, _NO_RETAINED)
        dialogue.ask(
            lambda: self._decide(request),
            lambda outcome: self._decided(asked.sid, subject, queue, outcome),
            in_task=services.access.waits or services.hooks.is_async(CLIENT_SUBSCRIBE),
        )

    async def _decide(self, request: SubscriptionRequest) -> SubscriptionRequest | Deny | Withhold:
        """Of the hooks, and of the access rules."""
        services, client, mqtt = self._services, self._standing.client, self._standing.config.mqtt
        outcome: SubscriptionRequest | Deny | Withhold
        outcome = await services.hooks.transform_async(CLIENT_SUBSCRIBE, client, request, NO_PROPERTIES)
        if not isinstance(outcome, SubscriptionRequest):
            return outcome
        filter = outcome.filter
        plain = plain_filter(filter)
        try:
            validate_filter(filter, mqtt.max_topic_levels)  # a hook may have replaced it
        except ProtocolError:
            return Deny(Reason.TOPIC_FILTER_INVALID)
        if filter.startswith(STREAM_PREFIX):
            return Deny(Reason.TOPIC_FILTER_INVALID, "streams have no subjects")
        if plain != filter and not mqtt.shared_subscriptions:
            return Deny(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
        if not mqtt.wildcard_subscriptions and ("+" in plain or "#" in plain):
            return Deny(Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
        if mqtt.subscribe_denied == "grant" and not services.access.waits:
            return outcome  # each delivery is checked instead
        return await services.access.refusal(Question(client, "subscribe", plain)) or outcome

    def _decided(self, sid: bytes, subject: str, queue: str, outcome: SubscriptionRequest | Deny | Withhold) -> None:
        dialogue = self._dialogue
        if isinstance(outcome, Deny):
            self._refuse(sid, subject, queue, outcome)
            return
        if isinstance(outcome, Withhold):
            dialogue.acknowledge()
            return  # it looks as if it were there
        known = self._by_filter.get(outcome.filter)
        if known is not None and len(known.subscriptions) >= MOST_ALIKE:
            dialogue.complain(TOO_MANY)
            return
        dialogue.acknowledge()
        if known is not None:
            self._add(known, sid, subject)
            return
        self._last += 1
        filter = outcome.filter
        route = SubjectRoute(filter, self._last, is_shared=plain_filter(filter) != filter)
        self._by_filter[filter] = self.by_number[route.number] = route
        self._add(route, sid, subject)
        options = Options(0, outcome.no_local, False, _NO_RETAINED, route.number)
        # recorded now: if the client leaves before the route is made, it must still be removed
        self._standing.session.subscribe(filter, options)
        dialogue.wait()
        self._services.pubsub.make_routes(
            self._standing.subscriber,
            [(filter, options)],
            lambda grants: dialogue.soon(partial(self._routed, route, outcome, grants)),
        )

    def _add(self, route: SubjectRoute, sid: bytes, subject: str) -> None:
        route.subscriptions[sid] = self.by_sid[sid] = SubjectSubscription(sid, subject, route)

    def _refuse(self, sid: bytes, subject: str, queue: str, denial: Deny) -> None:
        services, client = self._services, self._standing.client
        services.refusals.note(denial.reason, client.client_id, subject, why=writable(denial.text))
        services.metrics.packets_subscribe_error += 1
        services.metrics.packets_subscribe_auth_error += denial.reason == Reason.NOT_AUTHORIZED
        self._dialogue.complain(forbidden(subject, queue))
        if denial.disconnect:
            self._dialogue.end("", Reason(denial.reason), denial.text or f"its subscription {sid!r} is refused")

    def _routed(self, route: SubjectRoute, request: SubscriptionRequest, grants: Sequence[Grant | Reason]) -> None:
        """The route is there, or could not be made."""
        (grant,) = grants
        if self._dialogue.is_over:
            return  # it has left
        if isinstance(grant, Reason):
            self._forget(route)
            self._dialogue.complain(TOO_MANY)
        else:
            self._services.metrics.client_subscribe += 1
            self._services.hooks.notify(SESSION_SUBSCRIBED, self._standing.client, request)
        self._dialogue.proceed()

    # UNSUB

    def unsubscribe(self, asked: Unsubscribe) -> None:
        subscription = self.by_sid.get(asked.sid)
        self._dialogue.acknowledge()
        if subscription is None:
            return
        if asked.after > subscription.delivered:
            subscription.maximum = asked.after
            return
        hooks = self._services.hooks
        self._dialogue.ask(
            lambda: hooks.transform_async(
                CLIENT_UNSUBSCRIBE, self._standing.client, subscription.route.filter, NO_PROPERTIES
            ),
            lambda outcome: self.end(subscription) if isinstance(outcome, str) else None,
            in_task=hooks.is_async(CLIENT_UNSUBSCRIBE),
        )

    def end(self, subscription: SubjectSubscription) -> None:
        """The client unsubscribes, or the subscription has got all that it was to get."""
        route = subscription.route
        self.by_sid.pop(subscription.sid, None)
        route.subscriptions.pop(subscription.sid, None)
        if not route.subscriptions and self.by_number.get(route.number) is route:
            self._remove(route)

    def end_all(self, filters: Sequence[str]) -> None:
        """On behalf of the client, which is not told."""
        for filter in filters:
            route = self._by_filter.get(filter)
            for subscription in list(route.subscriptions.values()) if route is not None else ():
                self.end(subscription)

    def _remove(self, route: SubjectRoute) -> None:
        subscriber = self._standing.subscriber
        self._forget(route)
        self._services.pubsub.remove_routes(
            subscriber,
            [route.filter],
            lambda existed: self._dialogue.soon(partial(self._removed, route.filter, existed)),
        )

    def _forget(self, route: SubjectRoute) -> None:
        for sid in route.subscriptions:
            self.by_sid.pop(sid, None)
        self.by_number.pop(route.number, None)
        if self._by_filter.get(route.filter) is route:
            del self._by_filter[route.filter]
            self._standing.session.unsubscribe(route.filter)

    def _removed(self, filter: str, existed: Sequence[bool | Reason]) -> None:
        if existed[0] is True:
            self._services.metrics.client_unsubscribe += 1
            self._services.hooks.notify(SESSION_UNSUBSCRIBED, self._standing.client, filter)

    # Rights that are taken away

    def check_again(self) -> None:
        """The access rules have changed."""
        if self._services.access.waits:
            self._standing.context.start_task(self._ask_again)
        else:
            self._standing.context.in_slices(self._check_each(list(self._by_filter.values())))

    def _check_each(self, routes: list[SubjectRoute]) -> Iterator[None]:
        for number, route in enumerate(routes, 1):
            if self._services.access.still(self._question(route)) is False:
                self._revoke(route)
            if not number % CHECKED_AT_ONCE:
                yield

    async def _ask_again(self) -> None:
        access = self._services.access
        for route in list(self._by_filter.values()):
            async with access.few:
                allowed = await access.ask_still(self._question(route), patient=True)
            if allowed is False:
                self._dialogue.soon(partial(self._revoke, route))

    def _question(self, route: SubjectRoute) -> Question:
        return Question(self._standing.client, "subscribe", plain_filter(route.filter))

    def _revoke(self, route: SubjectRoute) -> None:
        if self.by_number.get(route.number) is not route or self._dialogue.is_over:
            return
        gone = list(route.subscriptions.values())
        for subscription in gone:
            self._dialogue.complain(forbidden(subscription.subject))
            self.end(subscription)
        fields = {"client": self._standing.client.client_id}
        _logger.info("%d subscriptions to %s are no longer allowed", len(gone), route.filter, extra=fields)


def forbidden(subject: str, queue: str = "") -> str:
    """What a server says of a subscription that is not allowed."""
    group = f' using queue "{queue}"' if queue else ""
    return f'Permissions Violation for Subscription to "{subject}"{group}'
