"""The pubsub layer: from one message to all who want it.

Reads are direct and writes are messages. A publish looks up the routes in its publisher's own turn; subscribing and
unsubscribing are requests to the one actor that writes the routes, whose turn comes next: the routes are there before
anything that was read from the network after the SUBSCRIBE. A request that a writer had when it crashed is repeated once.
Retained messages are written in the publisher's turn, together with the look-up: a subscription made before gets the
message live, one made after finds it in the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from outcome import Value

from trunkline.broker.alarms import RETAINED_FULL
from trunkline.broker.routes import MakeRoutes, RemoveRoutes, Request, RouteWriter
from trunkline.hooks.points import MESSAGE_ROUTED
from trunkline.mqtt.reasons import Reason
from trunkline.router import RetainResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from outcome import Outcome as Result

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.config.settings import RetainedSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.batch import PublishBatch
    from trunkline.mqtt.message import Message
    from trunkline.router import Options, RetainedStore, Route, Router, Target
    from trunkline.router.shared import Group

_receivers = attrgetter("targets", "groups")


class Own(Protocol):
    """The way back to the client that publishes."""

    def deliver(self, message: Message, target: Target[Subscriber]) -> None: ...
    def deliver_burst(self, burst: PublishBatch, target: Target[Subscriber]) -> None: ...
    def deliver_own(self, message: Message, target: Target[Subscriber]) -> None:
        """By a target with no local."""
        ...


@dataclass(slots=True, eq=False)
class BurstTo:
    """To the session: the messages of a burst, as `(message, target)` is one."""

    burst: PublishBatch
    target: Target[Subscriber]


class PubSub:
    """The way through the routes, and to their writer."""

    def __init__(
        self,
        router: Router[Subscriber],
        retained: RetainedStore,
        metrics: Metrics,
        alarms: Alarms,
        hooks: Hooks,
        settings: RetainedSettings,
        max_subscriptions: int = 0,
    ) -> None:
        self.router = router
        self.retained = retained
        self._metrics = metrics
        self._alarms = alarms
        self._hooks = hooks
        self._settings = settings
        self._max_subscriptions = max_subscriptions
        self._writer: RouteWriter | None = None
        self._numbers = count()
        #: Requests for the next writer.
        self._left: list[Request[Any, Any]] = []

    # Routes

    def new_writer(self) -> RouteWriter:
        """To be started, once at the beginning and again after each crash: the tables are as they were."""
        return RouteWriter(self.router, self.retained, self._max_subscriptions, self._begin, self._delete_expired)

    def make_routes(
        self,
        subscriber: Subscriber,
        wanted: list[tuple[str, Options]],
        done: Callable[[list[Grant | Reason]], None],
    ) -> None:
        """`done` is called from another actor's turn: let it cast."""
        self._ask(MakeRoutes(subscriber, wanted, done, next(self._numbers)))

    def remove_routes(
        self, subscriber: Subscriber, wanted: list[str], done: Callable[[list[bool | Reason]], None]
    ) -> None:
        """As `make_routes`."""
        self._ask(RemoveRoutes(subscriber, wanted, done, next(self._numbers)))

    def remove_subscriber(self, subscriber: Subscriber, filters: list[str], done: Callable[[], None]) -> None:
        """It is over, and may get messages until `done`: what is refused is asked for once more."""

        def removed(existed: list[bool | Reason]) -> None:
            left = [filter for filter, was_there in zip(filters, existed, strict=True) if isinstance(was_there, Reason)]
            if left:
                self.remove_routes(subscriber, left, lambda _: done())
            else:
                done()

        self.remove_routes(subscriber, filters, removed)

    def _ask(self, request: Request[Any, Any]) -> None:
        if self._writer is not None and self._writer.ref.alive:
            self._writer.ref.ask(request, partial(self._answered, request))
        else:
            self._left.append(request)

    def _answered(self, request: Request[Any, Any], result: Result[Any]) -> None:
        if isinstance(result, Value):
            request.done(request.results)
        elif request.lost:
            request.refuse()
        else:
            request.lost = True
            self._left.append(request)

    def _begin(self, writer: RouteWriter) -> None:
        self._writer = writer
        left, self._left = self._left, []
        for request in sorted(left, key=attrgetter("number")):
            self._ask(request)

    # Messages

    def publish(
        self,
        message: Message,
        now: float,
        origin: Subscriber | None = None,
        own: Own | None = None,
    ) -> int:
        """Route a message; the number of sessions that it went to.

        `origin` is the publisher as a subscriber. Its own copy goes to `own` at once instead of through its mailbox,
        so that the client has it before the acknowledgement of what it published.
        """
        if message.retain:
            self._retain(message, now)
        route = self.router.match(message.topic)
        targets = route.targets
        if route.groups:
            members = [group.pick(message.publisher, message.topic) for group in route.groups]
            targets = (*targets, *[member for member in members if member is not None])
        if self._hooks.message_routed:
            self._hooks.notify(MESSAGE_ROUTED, message, tuple([target.subscriber.client_id for target in targets]))
        for target in targets:
            subscriber = target.subscriber
            if subscriber is not origin or own is None:
                subscriber.cast((message, target))
            elif target.no_local:
                own.deliver_own(message, target)
            else:
                own.deliver(message, target)
        return len(targets)

    def routed(self, burst: PublishBatch) -> Iterable[tuple[PublishBatch, Route[Subscriber]]]:
        """A burst in parts, each of which goes one way as a whole."""
        match, topics = self.router.match, burst.topics
        if len(topics) == 1:
            return [(burst, match(topics[0]))]
        parts: list[tuple[PublishBatch, Route[Subscriber]]] = []
        first = 0
        for _, group in groupby(map(match, topics), key=_receivers):
            routes = list(group)
            last = first + len(routes)
            parts.append((burst.part(first, last), routes[0]))
            first = last
        return parts

    def may_burst(self, route: Route[Subscriber]) -> bool:
        """May a burst go this way as one? Who watches the routing is told who gets a message, and of a shared group that
        is another one each time."""
        bursts = self._hooks.message_routed_bursts
        return bursts is not None and not (bursts and route.groups)

    def publish_burst(
        self,
        burst: PublishBatch,
        route: Route[Subscriber],
        origin: Subscriber,
        own: Own,
    ) -> None:
        """As `publish`, for all messages of a burst; only where `may_burst` says so."""
        if self._hooks.message_routed_bursts:
            receivers = tuple([target.subscriber.client_id for target in route.targets])
            self._hooks.look(MESSAGE_ROUTED, self._hooks.message_routed_bursts, burst, receivers)
        for target in route.targets:
            subscriber = target.subscriber
            if subscriber is not origin:
                subscriber.cast(BurstTo(burst, target))
            elif target.no_local:
                for message in burst.messages:
                    own.deliver_own(message, target)
            else:
                own.deliver_burst(burst, target)
        for group in route.groups:
            for member, share in _shares(group, burst):
                if member.subscriber is origin:
                    own.deliver_burst(share, member)
                else:
                    member.subscriber.cast(BurstTo(share, member))

    def take_over(self, retained: Iterable[Mapping[str, Any]], now: float) -> None:
        """Go on where another life of this node ended: with its retained messages, as exported at `now`."""
        self.retained.load(retained, now)
        self._sweep_in_time()

    def delete_retained(self, topics: Iterable[str]) -> None:
        """Subscribers are not told."""
        for topic in topics:
            self.retained.delete(topic)
        self._alarms.deactivate(RETAINED_FULL)

    def _retain(self, message: Message, now: float) -> None:
        if self._settings.enabled:
            outcome = self.retained.store(message.bare(), now)
            if outcome.refused:
                self._metrics.messages_retained_refused += 1
                if outcome is RetainResult.FULL:
                    kept = f"{self.retained.limited} retained messages of {self.retained.byte_size} bytes"
                    self._alarms.activate(RETAINED_FULL, f"{kept}: no more are kept")
            elif outcome is RetainResult.DELETED:
                self._alarms.deactivate(RETAINED_FULL)
            elif message.payload:
                self._metrics.messages_retained += 1
                self._sweep_in_time()

    def _sweep_in_time(self) -> None:
        if self._writer is not None:
            self._writer.sweep_in_time()

    def _delete_expired(self, now: float) -> None:
        if self.retained.sweep(now):
            self._alarms.deactivate(RETAINED_FULL)


def _shares(group: Group[Subscriber], burst: PublishBatch) -> list[tuple[Target[Subscriber], PublishBatch]]:
    """What each member of a group gets of a burst."""
    numbers: dict[Target[Subscriber], list[int]] = {}
    topics = burst.topics if len(burst.topics) > 1 else repeat(burst.topics[0], len(burst))
    for number, topic in enumerate(topics):
        member = group.pick(burst.publisher, topic)
        if member is not None:
            numbers.setdefault(member, []).append(number)
    return [(member, burst.select(some)) for member, some in numbers.items()]
