"""The pubsub layer: from one message to all who want it.

Reads are direct and writes are messages. A publish looks up the routes in its publisher's own turn; subscribing and
unsubscribing are mail for the one actor that writes the routes. Retained messages are written in the publisher's turn,
together with the look-up: a subscription made before gets the message live, one made after finds it in the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from trunkline.actors import Actor
from trunkline.broker.alarms import RETAINED_FULL
from trunkline.hooks.points import MESSAGE_ROUTED
from trunkline.router import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.settings import RetainedSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.burst import Burst
    from trunkline.mqtt.message import Message
    from trunkline.router import Options, RetainedStore, Route, Router, Target
    from trunkline.router.shared import Group

_receivers = attrgetter("targets", "groups")


class Subscriber:
    """A session as routes and publishers see it. It may live elsewhere: nothing is asked of it but `cast`."""

    __slots__ = ("cast", "client_id", "online")

    def __init__(self, client_id: str, cast: Callable[[Any], None]) -> None:
        self.client_id = client_id
        #: Mail for the session: `(message, target)`, a `BurstTo` or an answer.
        self.cast = cast
        #: Is a client there to be sent something? Shared groups prefer those.
        self.online = False


class Own(Protocol):
    """The way back to the client that publishes."""

    def deliver(self, message: Message, target: Target[Subscriber]) -> None: ...
    def deliver_burst(self, burst: Burst, target: Target[Subscriber]) -> None: ...
    def deliver_own(self, message: Message, target: Target[Subscriber]) -> None:
        """By a target with no local."""
        ...


@dataclass(slots=True, eq=False)
class MakeRoutes:
    subscriber: Subscriber
    requests: list[tuple[str, Options]]
    #: Whatever the session wants back with `Subscribed`.
    context: Any


@dataclass(slots=True, eq=False)
class RemoveRoutes:
    subscriber: Subscriber
    filters: list[str]
    #: Whatever the session wants back with `Unsubscribed`.
    context: Any


@dataclass(slots=True, eq=False)
class Grant:
    """A subscription that was made."""

    filter: str
    options: Options
    #: It was not there before.
    fresh: bool
    #: What the retained store has numbered above was published after it was made, and comes live.
    since: int


@dataclass(slots=True, eq=False)
class BurstTo:
    """To the session: the messages of a burst, as `(message, target)` is one."""

    burst: Burst
    target: Target[Subscriber]


@dataclass(slots=True, eq=False)
class Subscribed:
    """To the session: the routes are there."""

    context: Any
    grants: list[Grant]


@dataclass(slots=True, eq=False)
class Unsubscribed:
    """To the session: the routes are gone."""

    context: Any
    #: Was each of them there?
    existed: list[bool]


class PubSub(Actor[MakeRoutes | RemoveRoutes]):
    """The one writer of the routes, and the way through them."""

    def __init__(
        self,
        router: Router[Subscriber],
        retained: RetainedStore,
        metrics: Metrics,
        alarms: Alarms,
        hooks: Hooks,
        settings: RetainedSettings,
    ) -> None:
        self.router = router
        self.retained = retained
        self._metrics = metrics
        self._alarms = alarms
        self._hooks = hooks
        self._settings = settings

    def init(self) -> None:
        self._sweep_timer = self.call_at(self.retained.next_deadline, self._sweep)

    def handle(self, message: MakeRoutes | RemoveRoutes) -> None:
        subscriber = message.subscriber
        if isinstance(message, MakeRoutes):
            grants = [
                Grant(filter, options, self.router.subscribe(subscriber, filter, options), self.retained.sequence)
                for filter, options in message.requests
            ]
            subscriber.cast(Subscribed(message.context, grants))
        else:
            existed = [self.router.unsubscribe(subscriber, filter) for filter in message.filters]
            subscriber.cast(Unsubscribed(message.context, existed))

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

    def routed(self, burst: Burst) -> Iterable[tuple[Burst, Route[Subscriber]]]:
        """A burst in parts, each of which goes one way as a whole."""
        match, topics = self.router.match, burst.topics
        if len(topics) == 1:
            return [(burst, match(topics[0]))]
        parts: list[tuple[Burst, Route[Subscriber]]] = []
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
        burst: Burst,
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
        self._sweep_timer.restart_at(self.retained.next_deadline)

    def delete_retained(self, topics: Iterable[str]) -> None:
        """Subscribers are not told."""
        for topic in topics:
            self.retained.delete(topic)
        self._alarms.deactivate(RETAINED_FULL)

    def _retain(self, message: Message, now: float) -> None:
        if self._settings.enabled:
            outcome = self.retained.store(message, now)
            if outcome.refused:
                self._metrics.messages_retained_refused += 1
                if outcome is Outcome.FULL:
                    kept = f"{self.retained.limited} retained messages of {self.retained.byte_size} bytes"
                    self._alarms.activate(RETAINED_FULL, f"{kept}: no more are kept")
            elif outcome is Outcome.DELETED:
                self._alarms.deactivate(RETAINED_FULL)
            elif message.payload:
                self._metrics.messages_retained += 1
                if self.retained.next_deadline < self._sweep_timer.deadline:
                    self._sweep_timer.restart_at(self.retained.next_deadline)

    def _sweep(self) -> None:
        """Delete what has expired, a part of it in each turn."""
        if self.retained.sweep(self.scheduler.now):
            self._alarms.deactivate(RETAINED_FULL)
        self._sweep_timer.restart_at(self.retained.next_deadline)


def _shares(group: Group[Subscriber], burst: Burst) -> list[tuple[Target[Subscriber], Burst]]:
    """What each member of a group gets of a burst."""
    numbers: dict[Target[Subscriber], list[int]] = {}
    topics = burst.topics if len(burst.topics) > 1 else repeat(burst.topics[0], len(burst))
    for number, topic in enumerate(topics):
        member = group.pick(burst.publisher, topic)
        if member is not None:
            numbers.setdefault(member, []).append(number)
    return [(member, burst.select(some)) for member, some in numbers.items()]
