"""The state of a session (MQTT 5.0, section 4.1), which outlives the connection, as a value. It can be exported,
stored, moved to another node and restored there.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from trunkline.mqtt.topics import STREAM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Ref
    from trunkline.broker.backlogs.backlogs import Rejoined
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import MessageQueue
    from trunkline.broker.session.revoked import Revoked
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.packets import Will
    from trunkline.mqtt.session.awaiting_rel import AwaitingRel
    from trunkline.mqtt.session.window import Inflight
    from trunkline.router import Options, Target

#: Messages that are dropped or handed over in one turn, before other actors get theirs.
MESSAGES_AT_ONCE: Final = 500
#: Of most sessions, which share it: nothing is added here.
NO_FILTERS: Final[dict[str, None]] = {}
NO_STREAMS: Final[dict[str, StreamPlace | None]] = {}


class Storage(Protocol):
    """Where a session is stored."""

    #: The filters that were subscribed to, or unsubscribed from.
    subscriptions: dict[str, None]

    @property
    def gathering(self) -> int:
        """The number of the commit that will hold what changes now."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the store has what the client knows of the session: that it is there, for how long, and its will."""
        ...

    def own(self, owner: Ref[Any]) -> None:
        """An error in writing it ends this actor."""
        ...

    def changed(self, *, at_once: bool = False) -> None:
        """Something else than its window or its awaited PUBRELs is to be stored, with the next commit. That is begun
        `at_once` or in a second at the latest."""
        ...

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call back when the session is stored as it is now, in any turn: let `action` cast."""
        ...

    def end(self) -> None:
        """The session has ended: no start brings it back, but for what others are to get of it."""
        ...

    def forget(self) -> None:
        """Nothing of the session is left, nor to be stored."""
        ...


class WillStorage(Protocol):
    """Where a will is stored by itself."""

    @property
    def is_settled(self) -> bool:
        """Whether the store has it, or has it no more."""
        ...

    def end(self) -> None:
        """It was published, or is not to be."""
        ...


class Backlogged(Protocol):
    """What waits for a session in the backlogs of its filters."""

    @property
    def waiting(self) -> int:
        """Messages. One that several of its filters match counts for each."""
        ...

    @property
    def byte_size(self) -> int: ...

    @property
    def waits(self) -> bool:
        """Whether the session is behind, and gets its messages from there."""
        ...

    def begin(self) -> None:
        """The session falls behind: what comes from now on waits there."""
        ...

    def end(self, limit: int) -> bool:
        """The session has ended: leave so many of them. Returns whether some are left."""
        ...

    def attach(self) -> None:
        """The client is there."""
        ...

    def detach(self) -> None:
        """The client has gone."""
        ...

    def routed(self, filter: str) -> None:
        """The route of a subscription was made."""
        ...

    def unsubscribed(self, filter: str) -> None: ...

    def to_plain(self) -> object:
        """The position, for a store."""
        ...

    def stored(self) -> None:
        """The position is in a commit."""
        ...

    def adopt(self, place: Rejoined) -> None:
        """This is its place after a start."""
        ...


class StreamPlace(NamedTuple):
    """The last message of a stream that a session has."""

    #: Of the stream: a later one with the same name has another.
    number: int
    sequence: int


class Session:
    __slots__ = (
        "awaiting_rel",
        "client",
        "client_id",
        "created_at",
        "cursor",
        "durable",
        "expiry_interval",
        "inflight",
        "left_at",
        "queue",
        "revoked",
        "stored_will",
        "streams",
        "subscriptions",
        "unasked",
        "will",
    )

    def __init__(
        self,
        client: ClientInfo,
        inflight: Inflight[Target[Subscriber]],
        queue: MessageQueue[Target[Subscriber]],
        awaiting_rel: AwaitingRel,
    ) -> None:
        self.client_id = client.client_id
        #: The client; while it is not connected, as of its last connection.
        self.client = client
        #: When the client left, in node time; inf while it is connected.
        self.left_at = inf
        #: Published after its delay if the client disconnects without a DISCONNECT of reason 0.
        self.will: Will | None = None
        #: Its row, if the session itself is not stored.
        self.stored_will: WillStorage | None = None
        #: Seconds since the epoch.
        self.created_at = client.connected_at
        #: Seconds that it is kept without a connection; inf means for ever.
        self.expiry_interval = 0.0
        self.subscriptions: dict[str, Options] = {}
        #: Those to streams, which would take a whole turn to find among a hundred thousand others; and how far each has
        #: come, where the stream is kept in another process; None, if it has not begun.
        self.streams = NO_STREAMS
        #: Subscriptions that a plugin or an operator made on the client's behalf: access rules do not apply to them.
        self.unasked = NO_FILTERS
        #: Revoked subscriptions, while messages that came by them may be here.
        self.revoked: Revoked | None = None
        #: Keeps what is stored up with it; None where it ends with the process.
        self.durable: Storage | None = None
        #: Where it is in the backlogs, if its messages are kept there while it is behind.
        self.cursor: Backlogged | None = None
        #: Sent and not yet acknowledged.
        self.inflight = inflight
        #: Not yet sent.
        self.queue = queue
        #: QoS 2 messages from the client, which are routed when their PUBREL comes.
        self.awaiting_rel = awaiting_rel

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages that are not yet sent, and their bytes: in the queue, and in the backlogs."""
        length, byte_size, cursor = self.queue.length, self.queue.byte_size, self.cursor
        if cursor is None or not cursor.waits:
            return length, byte_size
        return length + cursor.waiting, byte_size + cursor.byte_size

    def attach(self, client: ClientInfo, expiry_interval: float, will: Will | None) -> None:
        """A client is connected, on these terms."""
        self.client = client
        self.expiry_interval = expiry_interval
        self.will = will
        self.left_at = inf

    def subscribe(self, filter: str, options: Options, *, by_client: bool = True) -> None:
        self.subscribed(filter, options, by_client=by_client)
        if self.durable is not None:
            self.durable.subscriptions[filter] = None

    def subscribed(self, filter: str, options: Options, *, by_client: bool) -> None:
        """The session has this subscription, and it is stored if it has to be."""
        self.subscriptions[filter] = options
        if filter.startswith(STREAM_PREFIX):
            self.streams = self.streams or {}
            self.streams.setdefault(filter, None)
        self.ask(filter, by_client=by_client)

    def ask(self, filter: str, *, by_client: bool = True) -> None:
        """Note whether this subscription is of the client's own asking."""
        if not by_client:
            self.unasked = self.unasked or {}
            self.unasked[filter] = None
        elif filter in self.unasked:
            del self.unasked[filter]

    def come_to(self, filter: str, place: StreamPlace) -> None:
        """It has the messages of a subscription to a stream up to here. One that has ended is none."""
        if filter not in self.streams:
            return
        self.streams[filter] = place
        if self.durable is not None:
            self.durable.subscriptions[filter] = None
            self.durable.changed()

    def unsubscribe(self, filter: str) -> None:
        self.subscriptions.pop(filter, None)
        if filter in self.streams:
            del self.streams[filter]
        self.ask(filter)
        if self.durable is not None:
            self.durable.subscriptions[filter] = None
        if self.cursor is not None:
            self.cursor.unsubscribed(filter)
