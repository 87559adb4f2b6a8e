"""The pubsub layer: from one message to all its subscribers.

Reads are direct and writes are messages. A publish looks up the routes in its publisher's own turn; subscribing and
unsubscribing are requests to the one actor that writes the routes, whose turn comes next: the routes are there before
anything that was read from the network after the SUBSCRIBE. Requests that a writer was working on when it crashed are
repeated once. Retained messages are written in the publisher's turn, together with the look-up: a subscription made
before gets the message live, one made after finds it in the store.
"""

from __future__ import annotations

from functools import partial
from itertools import count, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from outcome import Value

from trunkline.broker.alarms import RETAINED_FULL
from trunkline.broker.node_use import ALONE, SUBSCRIPTIONS
from trunkline.broker.routes import MakeRoutes, Queued, RemoveRoutes, Request, RouteWriter
from trunkline.broker.stored_retained import restore_retained
from trunkline.hooks.points import MESSAGE_ROUTED
from trunkline.mqtt.reasons import Reason
from trunkline.router import RetainResult
from trunkline.router.retained import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from outcome import Outcome as Result

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.committer import Committer
    from trunkline.broker.late_refusals import LateRefusals
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.node_use import NodeUse
    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.config.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.ledger import Wait
    from trunkline.router import Options, RetainedStore, Route, Router, Target
    from trunkline.router.shared import Group
    from trunkline.router.target import Destination
    from trunkline.store import Row

#: The publications for each member of a shared group.
Shares: TypeAlias = "Sequence[tuple[Publication, Target[Subscriber]]]"
NO_SHARES: Final[Shares] = ()

P = TypeVar("P", bound="Publication")
S = TypeVar("S", bound="Destination")

_receivers = attrgetter("targets", "behind", "groups", "sinks")


class Own(Protocol):
    """The publisher as a subscriber."""

    def deliver(self, publication: Publication, target: Target[Subscriber]) -> None: ...
    def deliver_own(self, publication: Publication, target: Target[Subscriber]) -> None:
        """Delivers by a target with no local."""
        ...


class PubSub:
    """Routes publications, and sends requests to the writer of the routes."""

    def __init__(
        self,
        router: Router[Subscriber],
        retained: RetainedStore,
        metrics: Metrics,
        alarms: Alarms,
        hooks: Hooks,
        config: Config,
        committer: Committer | None = None,
    ) -> None:
        """`committer` stores the messages for durable sessions."""
        self.router = router
        #: What other shards use of the limits of the node.
        self.use: NodeUse = ALONE
        self._upgrade_qos = config.session.upgrade_qos
        self._match = router.match
        self.retained = retained
        self._metrics = metrics
        self._alarms = alarms
        self._hooks = hooks
        self._settings = config.retained
        self.committer = committer
        #: Whether publishers may have to wait, for the store or for other shards.
        self.makes_wait = committer is not None
        #: The last publication that a sink has refused, and why.
        self._refused: tuple[Publication, str] | None = None
        #: The other shards to which what is published goes, in words.
        self._bound_for: tuple[str, ...] = ()
        #: None where all streams are in this process.
        self.late_refusals: LateRefusals | None = None
        self._writer: RouteWriter | None = None
        #: Called with the filter of a subscription that was made or removed.
        self.route_watchers: list[Callable[[str], None]] = []
        self._numbers = count()
        #: Requests for the next route writer.
        self._left: list[Request[Any, Any]] = []
        self.configure(config)

    def configure(self, config: Config) -> None:
        """What is there already stays, above a limit too."""
        former, self._settings = self._settings, config.retained
        settings = config.retained
        self.retained.limit(
            max_messages=settings.max_messages,
            max_bytes=settings.max_bytes,
            max_message_size=settings.max_message_size,
            expiry_interval=settings.expiry_interval,
        )
        if settings != former:
            self._alarms.deactivate(RETAINED_FULL)  # until one is refused again
        self.router.choose(config.shared.strategy, config.shared.strategies)
        self.max_subscriptions = config.limits.max_subscriptions

    # Routes

    def new_writer(self) -> RouteWriter:
        """Makes the route writer, at the start and again after each crash: the tables stay as they are."""
        return RouteWriter(
            self.router,
            self.retained,
            self._has_room,
            self._begin,
            self._delete_expired,
            self.route_watchers,
        )

    def _has_room(self) -> bool:
        """For one more subscription."""
        limit = self.max_subscriptions
        return not 0 < limit <= self.router.subscriptions + self.use.elsewhere(SUBSCRIPTIONS)

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
        """The subscriber has ended, and may get messages until `done`. A refused removal is requested once more."""

        def removed(existed: list[bool | Reason]) -> None:
            if set(map(type, existed)) <= {bool}:  # to look at each of a hundred thousand would take a whole turn
                done()
                return
            left = [filter for filter, was_there in zip(filters, existed, strict=True) if isinstance(was_there, Reason)]
            self.remove_routes(subscriber, left, lambda _: done())

        if filters:
            self.remove_routes(subscriber, filters, removed)
        else:
            done()

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

    def notify_watchers(self, filter: str) -> None:
        for watcher in self.route_watchers:
            watcher(filter)

    def when_routed(self, action: Callable[[], None]) -> None:
        """Call back when whoever publishes uses the routes as they are now."""
        action()

    def presence_changed(self, filters: Iterable[str]) -> None:
        """The client of a session with these subscriptions has come or gone. Here it is asked when it matters."""

    # Messages

    def publish(
        self,
        publication: Publication,
        now: float,
        origin: Subscriber | None = None,
        own: Own | None = None,
        route: Route[Subscriber] | None = None,
    ) -> int:
        """Route a publication; the number of sessions that it went to, and of streams.

        `origin` is the publisher as a subscriber. Its own copy goes to `own` at once instead of through its mailbox, so
        that the client has it before the acknowledgement of what it published. `route` is the route of all messages of
        the publication, if it is known.
        """
        if route is None:
            match = self._match
            route = match(publication.topic)
        if self.committer is not None and (publication.qos or self._upgrade_qos) and route.durable:
            self.committer.publications.routed(publication)  # for all of them
        targets, shares, kept = route.targets, NO_SHARES, 0
        if route.groups:
            if publication.count > 1 and self._hooks.message_routed:  # a different member gets each message
                return max(PubSub.publish(self, message, now, origin, own, route) for message in publication.messages)
            shares = [share for group in route.groups for share in self.shares(group, publication)]
        if route.sinks:
            kept = self._keep(publication, route)
            if kept < 0:
                return 0
            if not (publication.qos or self._upgrade_qos):
                targets += route.behind
        if publication.retain:
            self._retain(publication, now)
        if self._hooks.message_routed:
            everybody = (*route.targets, *route.behind, *[member for _, member in shares])
            receivers = [target.subscriber.client_id for target in everybody]
            others = [*[sink.receiver for sink in route.sinks if sink.receiver], *self._bound_for]
            self._hooks.notify(MESSAGE_ROUTED, publication, tuple(receivers), tuple(others))
        for target in targets:
            subscriber = target.subscriber
            if subscriber is not origin or own is None:
                cast_to = subscriber.cast  # a local one is quicker to call than a slot
                cast_to((publication, target))
            elif target.no_local:
                own.deliver_own(publication, target)
            else:
                own.deliver(publication, target)
        if not shares:
            return len(targets) + kept
        for share in shares:
            member = share[1]
            if member.subscriber is not origin or own is None:
                member.subscriber.cast(share)
            elif member.no_local:
                own.deliver_own(*share)
            else:
                own.deliver(*share)
        return len(targets) + len(shares) + kept

    def shares(self, group: Group[Subscriber], publication: Publication) -> Shares:
        """The messages of a publication for each member of a group."""
        topics = publication.topics
        numbers: dict[Target[Subscriber], list[int]] = {}
        for number, topic in enumerate(topics if len(topics) > 1 else repeat(topics[0], publication.count)):
            member = group.pick(publication.publisher, topic)
            if member is not None:
                numbers.setdefault(member, []).append(number)
        return [(publication.select(some), member) for member, some in numbers.items()]

    def publish_will(self, will: Message, now: float, origin: Subscriber, own: Own) -> int:
        """As `publish`. It is gone if it is lost: its client does not publish it again."""
        return self.publish(will, now, origin, own)

    def is_wanted(self, topic: str, *, by_streams: bool = True) -> bool:
        """Whether there is anybody who would get a message of this topic, or who is no stream."""
        route = self._match(topic)
        return bool(route if by_streams else route.targets or route.groups or route.behind)

    def hand_on(self, message: Message, group: Group[Subscriber], member: Subscriber) -> bool:
        """Another member of a shared group gets a message that this one does not. Returns False if there is none."""
        other = group.pick(message.publisher, message.topic, (member,))
        if other is not None:
            other.subscriber.cast((message, other))
        return other is not None

    def publish_beside_streams(
        self, publication: Publication, now: float, origin: Subscriber | None = None, own: Own | None = None
    ) -> int:
        """As `publish`, of one that a stream has refused, where that is no reason to keep it from others."""
        return self.publish(publication, now, origin, own, self._match(publication.topic).beside_receivers())

    def _keep(self, publication: Publication, route: Route[Subscriber]) -> int:
        """Give it to the sinks. Returns the number of receivers that get it from there; a negative one, if one of them
        refuses it, and nobody gets it."""
        refusal = self.refusal_of(publication, route)
        if refusal:
            self._refused = (publication, refusal)
            return -1
        sequence = 0 if self.committer is None else self.committer.publications.next_number()
        kept = 0
        for sink in route.sinks:
            sink.take(publication, sequence)
            kept += bool(sink.receiver)
        if publication.qos or self._upgrade_qos:
            kept += len(route.behind)
            if self._hooks.message_queued:
                for target in route.behind:
                    target.subscriber.cast(Queued(publication))
        return kept

    def refused(self, publication: Publication) -> str:
        """Why a publication that was just routed to nobody was not taken; empty, if nobody wanted it."""
        return "" if self._refused is None or self._refused[0] is not publication else self._refused[1]

    def waits(self, publication: Publication, wait: Wait | None) -> Wait | None:
        """What a publisher waits for that waits for this, too, of a publication that was just published."""
        return wait

    def refusal_of(self, publication: Publication, route: Route[Subscriber]) -> str:
        """Why a receiver among the sinks cannot take it; empty, if all can."""
        return next(filter(None, [sink.refusal(publication) for sink in route.sinks if sink.receiver]), "")

    def routed(self, publication: P) -> Iterable[tuple[P, Route[Subscriber]]]:
        """A publication in parts, each of which has a single route."""
        return parts_of(publication, self.router.match)

    def restore_retained(self, rows: Iterable[Row], epoch: float) -> list[str]:
        """Go on where another life of this node ended: with its retained messages. Returns the topics of those that are
        beyond the limits."""
        refused = restore_retained(self.retained, rows, epoch)
        self._sweep_in_time()
        return refused

    def delete_retained(self, topics: Iterable[str]) -> None:
        """Subscribers are not notified."""
        for topic in topics:
            self.retained.delete(topic)
        self._alarms.deactivate(RETAINED_FULL)

    def _retain(self, publication: Publication, now: float) -> None:
        for message in publication.messages if self._settings.enabled else ():
            self.retain(message, now)

    def retain(self, message: Message, now: float, version: int = 0) -> None:
        """Keep it for its topic, or delete what is there if its payload is empty."""
        outcome = self.retained.store(message.bare(), now, version)
        if outcome.refused:
            self._metrics.messages_retained_refused += 1
            if outcome is RetainResult.FULL:
                count, weight = self.retained.limited, self.retained.byte_size
                kept = f"{count:,} retained message{'s' * (count != 1)} of {weight:,} bytes"
                limits = "retained.max_messages, retained.max_bytes"
                self._alarms.activate(RETAINED_FULL, f"{kept}: no more are kept ({limits})")
        elif outcome is RetainResult.DELETED:
            self._alarms.deactivate(RETAINED_FULL)
        elif message.payload:
            self._metrics.messages_retained += not is_own(message.topic)
            self._sweep_in_time()

    def _sweep_in_time(self) -> None:
        if self._writer is not None:
            self._writer.sweep_in_time()

    def _delete_expired(self, now: float) -> None:
        if self.retained.sweep(now):
            self._alarms.deactivate(RETAINED_FULL)


def parts_of(publication: P, match: Callable[[str], Route[S]]) -> Iterable[tuple[P, Route[S]]]:
    """A publication in parts, each of which has a single route."""
    topics = publication.topics
    if len(topics) == 1:
        return [(publication, match(topics[0]))]
    parts: list[tuple[P, Route[S]]] = []
    first = 0
    for _, group in groupby(map(match, topics), key=_receivers):
        routes = list(group)
        last = first + len(routes)
        parts.append((cast("P", publication.part(first, last)), routes[0]))
        first = last
    return parts
