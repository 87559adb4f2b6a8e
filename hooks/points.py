"""Every hook point, declared once: its name, its kind, what its callbacks are called with, and when.

`Hooks` makes an attribute of each, the registration checks callbacks against it, and docs/hooks.md is checked against
it by a test.
"""

from collections.abc import Callable
from typing import Final, Generic, Literal, TypeAlias, TypeVar, TypeVarTuple

from trunkline.hooks.alarm import Alarm
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Allow, Deny
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.mqtt.frames import check_writable
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Connack, Connect, SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.publication import Publication
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.window import Delivery
from trunkline.mqtt.topics import validate_filter, validate_name

T = TypeVar("T")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")

#: The actions that access rules decide about.
Action: TypeAlias = Literal["publish", "subscribe", "receive"]


_NO_BRACKETS: Final = str.maketrans("", "", "[]")


class Point:
    """A place in the broker where callbacks run. Compared by identity; all points are declared below."""

    kind: str

    def __init__(self, name: str, arguments: str, doc: str, *, waits: bool = False, publications: bool = False) -> None:
        self.name = name
        #: The attribute of `Hooks` that holds its callbacks.
        self.attribute = name.replace(".", "_")
        #: Names of a callback's arguments, in order. Those in brackets, at the end, go to callbacks that name them.
        self.arguments: tuple[str, ...] = tuple(arguments.translate(_NO_BRACKETS).split())
        self.required = len(self.arguments) - arguments.count("[")
        self.doc = doc
        #: Its callbacks may be async: the client concerned waits, no other does.
        self.waits = waits
        #: The argument that may be a whole publication, for callbacks that only watch.
        self.publication = self.arguments.index("message") if publications else None

    @property
    def words(self) -> str:
        """The arguments, for people."""
        required, optional = self.arguments[: self.required], self.arguments[self.required :]
        return ", ".join([*required, *[f"[{name}]" for name in optional]])

    def __repr__(self) -> str:
        return f"{self.name}({self.words})"


class Notify(Point, Generic[*Ts]):
    """Callbacks watch; their result is not used, except to end the chain."""

    kind = "notify"


class Transform(Point, Generic[T, *Ts]):
    """Callbacks are called with (client, value, …); they may replace the value or refuse it."""

    kind = "transform"

    def __init__(
        self,
        name: str,
        arguments: str,
        doc: str,
        *,
        replace: Callable[[T, object], T],
        waits: bool = False,
        publications: bool = False,
    ) -> None:
        super().__init__(name, arguments, doc, waits=waits, publications=publications)
        #: Computes the new value from the old value and a callback's result. It raises if the result is invalid.
        self.replace = replace


class Decide(Point, Generic[D, *Ts]):
    """The first callback that does not pass decides."""

    kind = "decide"

    def __init__(self, name: str, arguments: str, doc: str, *, answers: tuple[type, ...], waits: bool = False) -> None:
        super().__init__(name, arguments, doc, waits=waits)
        #: The types of a callback's valid results.
        self.answers = answers


def _message(old: Publication, new: object) -> Publication:
    if not isinstance(new, Message):
        raise TypeError(f"returned {new!r:.80}, which is neither a Message nor a Deny")
    if not isinstance(old, Message):
        raise TypeError("returned a Message, but a callback that takes publications only watches")
    if new.topic != old.topic:
        validate_name(new.topic)
    check_writable(new)
    if not _shares_encoded(new, old) and _origin(new) == _origin(old):
        return new
    # For later callbacks it is the same publication. It is copied, because a callback may return one object for many
    # messages, or the old one (or a copy.copy of it) changed in place, whose encoded forms are then outdated.
    return Message(
        new.topic,
        new.payload,
        new.qos,
        new.retain,
        new.properties,
        old.publisher,
        old.username,
        old.guid,
        old.timestamp,
        new.expires_at,
    )


def _origin(message: Message) -> tuple[int, float, str, str | None]:
    return message.guid, message.timestamp, message.publisher, message.username


def _shares_encoded(new: Message, old: Message) -> bool:
    return (
        (new.wire3 is not None and new.wire3 is old.wire3)
        or (new.wire5 is not None and new.wire5 is old.wire5)
        or (new.frames is not None and new.frames is old.frames)
    )


def _request(old: SubscriptionRequest, new: object) -> SubscriptionRequest:
    if not isinstance(new, SubscriptionRequest):
        raise TypeError(f"returned {new!r:.80}, which is neither a SubscriptionRequest nor a Deny")
    if new.filter != old.filter:
        validate_filter(new.filter)
    return new


def _part(old: str, new: object) -> str:
    if not isinstance(new, str):
        raise TypeError(f"returned {new!r:.80}, which is not a part of the topic filter")
    return new


def _filter(old: str, new: object) -> str:
    if not isinstance(new, str):
        raise TypeError(f"returned {new!r:.80}, which is neither a topic filter nor a Deny")
    validate_filter(new)
    return new


CLIENT_CONNECT: Final[Notify[ClientInfo, Connect]] = Notify(
    "client.connect",
    "client packet",
    "A CONNECT has been read, and nothing is decided yet. The client id may still be empty.",
)
CLIENT_AUTHENTICATE: Final[Decide[Allow | Deny, ClientInfo, bytes | None]] = Decide(
    "client.authenticate",
    "client password",
    "May this client connect? Asked for each CONNECT without an authentication method. When all pass, the "
    "listener's `allow_anonymous` decides.",
    answers=(Allow, Deny),
    waits=True,
)
CLIENT_ENHANCED_AUTHENTICATE: Final[Decide[Continue | Success | Deny, ClientInfo, Exchange]] = Decide(
    "client.enhanced_authenticate",
    "client exchange",
    "The next step of an enhanced authentication (MQTT 5.0). When all pass, the method is unknown and refused.",
    answers=(Continue, Success, Deny),
    waits=True,
)
#: Where clients log in.
AUTHENTICATION: Final = (CLIENT_AUTHENTICATE, CLIENT_ENHANCED_AUTHENTICATE)
CLIENT_AUTHENTICATED: Final[Notify[ClientInfo, Reason, str]] = Notify(
    "client.authenticated",
    "client reason text",
    "The login is decided: `reason` is SUCCESS, or says why the client may not connect.",
)
CLIENT_CONNACK: Final[Notify[ClientInfo, Connack]] = Notify(
    "client.connack", "client packet", "The CONNACK is about to be sent, whether it accepts or refuses."
)
CLIENT_CONNECTED: Final[Notify[ClientInfo]] = Notify(
    "client.connected", "client", "The client is accepted and has its session."
)
CLIENT_DISCONNECTED: Final[Notify[ClientInfo, Reason, str]] = Notify(
    "client.disconnected",
    "client reason text",
    "A connected client is gone: by its own DISCONNECT, by the broker's, or because the connection was lost.",
)
CLIENT_CHECK_ACL: Final[Decide[Allow | Deny, ClientInfo, Action, str, int, bool]] = Decide(
    "client.check_acl",
    "client action topic qos retain",
    "May this client publish to the topic, or subscribe to the filter? The answer is kept for the connection. Not "
    "called for superusers. When all pass, the access rules decide. An async callback is not called for "
    "`receive`, nor for each topic of retained messages: deliveries cannot wait.",
    answers=(Allow, Deny),
    waits=True,
)
CLIENT_ACL_DECIDED: Final[Notify[ClientInfo, Action, str, int, bool, bool]] = Notify(
    "client.acl_decided",
    "client action topic qos retain allowed",
    "A decision was made whether this client may publish to the topic, subscribe to the filter or receive from "
    "the topic. Decisions are kept for the connection, so this is not called for each message; `message.dropped` "
    "is called for each refused message.",
)
CLIENT_READ_FILTER: Final[Transform[str]] = Transform(
    "client.read_filter",
    "client filter",
    "A SUBSCRIBE or UNSUBSCRIBE has a text that is not a valid topic filter. A callback that knows the form returns "
    "the part that is a filter, and removes the rest at `client.subscribe` and `client.unsubscribe`, which get "
    "the whole text. When no callback knows it, the connection ends.",
    replace=_part,
)
CLIENT_SUBSCRIBE: Final[Transform[SubscriptionRequest, Properties]] = Transform(
    "client.subscribe",
    "client request properties",
    "One entry of a SUBSCRIBE, before access is checked. Replace it, or refuse it with Deny: its reason goes into "
    "the SUBACK.",
    replace=_request,
    waits=True,
)
CLIENT_UNSUBSCRIBE: Final[Transform[str, Properties]] = Transform(
    "client.unsubscribe",
    "client filter properties",
    "One topic filter of an UNSUBSCRIBE. Replace it, or refuse it with Deny: its reason goes into the UNSUBACK.",
    replace=_filter,
    waits=True,
)
SESSION_CREATED: Final[Notify[ClientInfo]] = Notify("session.created", "client", "A new session begins.")
SESSION_RESUMED: Final[Notify[ClientInfo]] = Notify("session.resumed", "client", "A client came back to its session.")
SESSION_DISCARDED: Final[Notify[ClientInfo]] = Notify(
    "session.discarded", "client", "A session ends because its client asked for a clean start."
)
SESSION_TAKEN_OVER: Final[Notify[ClientInfo]] = Notify(
    "session.taken_over",
    "client",
    "Another connection with the same client id took the session; `client` is the one that lost it.",
)
SESSION_TERMINATED: Final[Notify[ClientInfo, str]] = Notify(
    "session.terminated",
    "client reason",
    "A session ends for any other reason: `expired`, `disconnected` (its expiry is 0), `kicked`, `shutdown`, "
    "`crashed`.",
)
SESSION_SUBSCRIBED: Final[Notify[ClientInfo, SubscriptionRequest]] = Notify(
    "session.subscribed", "client request", "A subscription was made, or renewed; `request` says what was granted."
)
SESSION_UNSUBSCRIBED: Final[Notify[ClientInfo, str]] = Notify(
    "session.unsubscribed",
    "client filter",
    "A subscription was ended: by its client, on its behalf, or because it is no longer allowed.",
)
MESSAGE_PUBLISH: Final[Transform[Publication]] = Transform(
    "message.publish",
    "client message",
    "A message is about to be routed. Replace it, or refuse it with Deny (its reason goes into the PUBACK or "
    "PUBREC), DROP (the publisher does not learn it) or TAKEN. Access was checked before, for the topic that the "
    "client named.",
    replace=_message,
    publications=True,
)
MESSAGE_ROUTED: Final[Notify[Publication, tuple[str, ...], tuple[str, ...]]] = Notify(
    "message.routed",
    "message receivers [others]",
    "A message is routed; `receivers` has the client ids of the sessions that get it, and `others` who else does: "
    "`stream orders`, or `worker 1` of several, for sessions there. Messages that a callback publishes here overtake "
    "it.",
    publications=True,
)
MESSAGE_DELIVER: Final[Transform[Publication]] = Transform(
    "message.deliver",
    "client message",
    "A message is about to be delivered to one subscriber. Replace it for this one, or DROP it. The message is "
    "shared with all other subscribers: return a copy, never change it.",
    replace=_message,
)
MESSAGE_QUEUED: Final[Notify[ClientInfo, Message]] = Notify(
    "message.queued",
    "client message",
    "A message waits for this subscriber, which is away, or whose window or socket is full.",
)
MESSAGE_DELIVERED: Final[Notify[ClientInfo, Publication, Delivery]] = Notify(
    "message.delivered",
    "client message [delivery]",
    "A message was written to this subscriber's connection; again each time that it is sent again. `delivery` says "
    "[how it came](#how-a-message-came).",
    publications=True,
)
MESSAGE_ACKED: Final[Notify[ClientInfo, Publication]] = Notify(
    "message.acked",
    "client message",
    "The subscriber acknowledged a message: PUBACK for QoS 1, PUBREC for QoS 2.",
    publications=True,
)
MESSAGE_DROPPED: Final[Notify[ClientInfo, Publication, str]] = Notify(
    "message.dropped",
    "client message reason",
    "A message reached no session (`client` is the publisher: `no_subscribers`, `not_authorized`, `hook`, "
    "`receive_maximum`, `session_ended`, `await_rel_timeout`, `payload_too_large`, `rate_exceeded`, `stream_full`, "
    "`wrong_last`), or did not reach this subscriber (`no_local`, `not_authorized`, `hook`, `expired`, `too_large`, "
    "`unwritable`, `qos0_msg`, `queue_full`, `slow_consumer`, `overloaded`, `refused`, `session_ended`, "
    "`unsubscribed`, `redispatched`).",
    publications=True,
)
DELIVERY_COMPLETED: Final[Notify[ClientInfo, Publication, Delivery]] = Notify(
    "delivery.completed",
    "client message [delivery]",
    "Nothing is left to do for this subscriber: the QoS 0 message is written, the QoS 1 message has its PUBACK, "
    "the QoS 2 message its PUBCOMP. `delivery` says [how it came](#how-a-message-came).",
    publications=True,
)
ALARM_ACTIVATED: Final[Notify[Alarm]] = Notify(
    "alarm.activated", "alarm", "A condition was found that an operator should know about."
)
ALARM_DEACTIVATED: Final[Notify[Alarm]] = Notify("alarm.deactivated", "alarm", "The condition is over.")

#: All points, in the order of a client's life.
POINTS: Final[tuple[Point, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Point))
_BY_NAME: Final = {point.name: point for point in POINTS}


def find(name: str) -> Point:
    """The point with this name. Raises LookupError, with the nearest names, if there is none."""
    point = _BY_NAME.get(name)
    if point is None:
        from difflib import get_close_matches  # only needed to explain a mistake

        near = get_close_matches(name, _BY_NAME, n=3, cutoff=0.5) or sorted(_BY_NAME)
        raise LookupError(f"no hook point is named {name!r}; did you mean {', '.join(near)}?")
    return point


def find_all(name: str) -> list[Point]:
    """The point with this name, or with a `*` at the end all points that begin with it. Raises LookupError if there is
    none."""
    if not name.endswith("*"):
        return [find(name)]
    found = [point for point in POINTS if point.name.startswith(name[:-1])]
    if not found:
        raise LookupError(f"no hook point begins with {name[:-1]!r}")
    return found
