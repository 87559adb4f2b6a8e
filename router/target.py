"""The result of routing a topic: which subscribers get the message, and how."""

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

from trunkline.router.options import Options, intern_options

if TYPE_CHECKING:
    from trunkline.router.shared import Group


class Destination(Protocol):
    """A subscriber that messages can be delivered to: a session, or a stand-in for one on another node. Compared by
    identity."""

    @property
    def client_id(self) -> str: ...

    @property
    def online(self) -> bool: ...

    @property
    def durable(self) -> bool:
        """Whether what it gets is stored."""
        ...


# Type checkers let a bare `Router` mean `Router[Destination]`; the running Python learns that only in 3.13.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    S = TypeVar("S", bound=Destination, default=Destination)
else:
    from typing import TypeVar

    S = TypeVar("S", bound=Destination)


class Target(Generic[S]):
    """One subscriber of a topic. Never changed after it is made: routes share it.

    A subscription is a target of its own, made when it is subscribed. Only where several subscriptions of one
    subscriber match the same topic is another one made, by `combine`.
    """

    __slots__ = ("identifiers", "no_local", "options", "own", "qos", "retain_as_published", "subscriber")

    #: The group of a shared subscription's member, for messages that must go to another one.
    group: "ClassVar[Group[Any] | None]" = None
    #: Position in the order of subscription; only kept where the order of identifiers matters.
    serial: ClassVar[int] = 0
    #: Whether the subscriber gets messages of QoS 1 and 2 later, from where a sink of the route has put them.
    behind: ClassVar[bool] = False

    def __init__(self, subscriber: S, options: Options) -> None:
        self.subscriber = subscriber
        #: As subscribed; of a merged target, those of the subscription with the highest QoS.
        self.options = options
        self.qos = options.qos
        self.retain_as_published = options.retain_as_published
        identifier = options.identifier
        self.identifiers: tuple[int, ...] = () if identifier is None else (identifier,)
        #: Whether the subscriber's own messages are treated differently: if so, they use `own` instead of this.
        self.no_local = options.no_local
        #: The target for the subscriber's own messages; None if it does not get them. Only meaningful with `no_local`.
        self.own: Target[S] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subscriber.client_id!r} qos {self.qos}>"


class IdentifiedTarget(Target[S]):
    """The target of a subscription with an identifier."""

    __slots__ = ("serial",)

    def __init__(self, subscriber: S, options: Options, serial: int) -> None:
        super().__init__(subscriber, options)
        self.serial = serial  # type: ignore[misc]  # a slot in place of the class's constant


class BehindTarget(IdentifiedTarget[S]):
    """The target of a subscription whose subscriber is behind."""

    __slots__ = ()

    behind = True


class Sink(Protocol):
    """Takes the messages of a filter in the turn of their publisher, and keeps them for later."""

    #: Who has a message that was taken, in words; empty for a sink that only keeps it for subscribers that are behind.
    receiver: str

    def refusal(self, publication: Any) -> str:
        """Why it cannot be taken; empty, if it can. A receiver is asked before anybody gets the publication."""
        ...

    def take(self, publication: Any, sequence: int) -> None:
        """`sequence` is the same for all sinks of a route."""
        ...


class Receivers(Generic[S]):
    """The targets of a combination of filters."""

    __slots__ = ("behind", "durable", "targets")

    def __init__(self, targets: "Iterable[Target[S]]" = ()) -> None:
        self.targets = tuple([target for target in targets if not target.behind])
        self.behind = tuple([target for target in targets if target.behind])
        self.durable = bool(self.behind) or any(target.subscriber.durable for target in self.targets)


class Route(Generic[S]):
    """Where messages of one topic go. A snapshot: a change of routes makes a new one."""

    __slots__ = ("behind", "durable", "groups", "sinks", "targets")

    def __init__(
        self, receivers: Receivers[S], groups: "tuple[Group[S], ...]" = (), sinks: "tuple[Sink, ...]" = ()
    ) -> None:
        self.targets = receivers.targets
        #: The targets that get only messages of QoS 0 now, and the others from the sinks.
        self.behind = receivers.behind
        self.groups = groups
        self.sinks = sinks
        #: Whether any subscriber is durable.
        self.durable = receivers.durable or any(group.durable for group in groups)

    def beside_receivers(self) -> "Route[S]":
        """To all but the sinks that may refuse a message."""
        receivers = Receivers((*self.targets, *self.behind))
        return Route(receivers, self.groups, tuple([sink for sink in self.sinks if not sink.receiver]))

    def __bool__(self) -> bool:
        return bool(self.targets or self.groups or self.sinks)

    def __repr__(self) -> str:
        return f"<Route {self.targets!r} {self.groups!r}>"


def make_target(subscriber: S, options: Options, serial: int, *, behind: bool = False) -> Target[S]:
    if behind:
        return BehindTarget(subscriber, options, serial)
    if options.identifier is not None:
        return IdentifiedTarget(subscriber, options, serial)
    return Target(subscriber, intern_options(options))


_by_serial = attrgetter("serial")


def combine(targets: Iterable[Target[S]]) -> Target[S]:
    """One target for all of a subscriber's subscriptions that match: a message is delivered once.

    It has the highest QoS [MQTT-3.3.4-2] and every identifier [MQTT-3.3.4-4].
    """
    ordered = sorted(targets, key=_by_serial)
    if len(ordered) == 1:
        return ordered[0]
    best = max(ordered, key=attrgetter("qos"))
    behind = any(target.behind for target in ordered)  # one copy of the message is there, and it has to be the only one
    merged = make_target(best.subscriber, best.options, best.serial, behind=behind)
    merged.retain_as_published = any(target.retain_as_published for target in ordered)
    merged.identifiers = tuple([identifier for target in ordered for identifier in target.identifiers])
    merged.no_local = any(target.no_local for target in ordered)
    if merged.no_local:
        # [MQTT-3.8.3-3] forbids the subscriptions that asked for it, not the others.
        heard = [target for target in ordered if not target.no_local]
        merged.own = combine(heard) if heard else None
    return merged
