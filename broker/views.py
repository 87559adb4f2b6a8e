"""Clients, subscriptions, routes and messages as rows: for the control socket, for plugins and for tests. Everything
comes in pages, in order, and the cursor of the next page is the key of the last row."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from heapq import nsmallest
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.hooks.identity import Identity
from trunkline.plugins.context import Client

if TYPE_CHECKING:
    from trunkline.actors import Ref
    from trunkline.broker.net.listener import Listener
    from trunkline.broker.session.occupant import Occupant
    from trunkline.config.listener_settings import ListenerSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.router import Options, RetainedStore

#: Bytes of a retained payload that a listing shows.
HEAD: Final = 128
NO_IDENTITY: Final = Identity()


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    filter: str
    client_id: str
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int | None


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A topic filter with at least one subscription."""

    filter: str
    subscribers: int


@dataclass(frozen=True, slots=True)
class RetainedRow:
    topic: str
    #: In a page for an operator only its beginning.
    payload: bytes
    #: Bytes of the whole payload.
    size: int
    qos: int
    publisher: str
    #: Seconds since the epoch.
    timestamp: float
    #: Seconds that are left; None means for ever.
    expires_in: float | None
    properties: Properties


@dataclass(frozen=True, slots=True)
class ReceiverRow:
    """A receiver of a topic's messages: a client, or one member of a shared group."""

    client_id: str
    #: The shared filter, `$share/group/filter`; empty for a client of its own.
    group: str
    qos: int
    #: Whether a client is connected and gets it at once.
    connected: bool
    #: The number of members of a shared group; otherwise 1.
    members: int


@dataclass(frozen=True, slots=True)
class ListenerView:
    settings: ListenerSettings
    #: `listening`, `paused` or `closed`.
    state: str
    #: Host and port, with the port that the system chose, or the path of a Unix socket and 0. At least one: a host
    #: name, or `*`, may stand for several.
    addresses: list[tuple[str, int]]
    connections: int

    @property
    def name(self) -> str:
        return self.settings.label

    @property
    def address(self) -> tuple[str, int]:
        """The first one."""
        return self.addresses[0]


@dataclass(frozen=True, slots=True)
class ActorRow:
    #: Its supervisor: `node`, `sessions`, `connections`, a plugin's.
    layer: str
    name: str
    #: `waiting` for messages, `ready` to run, `starting`, `ending`.
    state: str
    #: Messages that wait, and messages that it has handled.
    mailbox: int
    handled: int
    restarts: int
    #: In seconds.
    age: float


@dataclass(frozen=True, slots=True)
class HookRow:
    """A callback registered at a hook point."""

    point: str
    callback: str
    priority: int
    crashes: int
    #: The plugin that it belongs to; empty when it belongs to none.
    plugin: str


@dataclass(frozen=True, slots=True)
class MetricRow:
    name: str
    value: int
    #: Its description; a plugin's may be empty.
    meaning: str


def client_row(actor: Occupant) -> Client:
    session, client = actor.session, actor.client
    identity = (client.identity if actor.channel is not None else None) or NO_IDENTITY
    return Client(
        session.client_id,
        actor.channel is not None,
        client.username,
        None if client.peer is None else f"{client.peer[0]}:{client.peer[1]}",
        client.listener,
        actor.protocol,
        client.keep_alive,
        client.clean_start,
        client.connected_at,
        session.created_at,
        None if session.expiry_interval == inf else session.expiry_interval,
        len(session.subscriptions),
        *session.waiting,
        len(session.inflight),
        len(session.awaiting_rel),
        client.superuser,
        identity.tls_version,
        identity.cipher,
        actor.config.session.max_queue_length or None,
        session.inflight.capacity or None,
        identity.named("cn"),
        identity.server_name,
    )


def subscription_row(filter: str, client_id: str, options: Options) -> SubscriptionRow:
    return SubscriptionRow(filter, client_id, *astuple(options))


def retained_row(message: Message, retained: RetainedStore, now: float, head: int | None = None) -> RetainedRow:
    """With the first `head` bytes of its payload, or all."""
    deadline = retained.deadline(message.topic)
    return RetainedRow(
        message.topic,
        message.payload[:head],
        len(message.payload),
        message.qos,
        message.publisher,
        message.timestamp,
        None if deadline == inf else max(0.0, deadline - now),
        message.properties,
    )


def listener_view(listener: Listener) -> ListenerView:
    connections = sum(not connection.is_relayed for connection in listener.acceptor.connections)
    return ListenerView(listener.settings, listener.state.value, listener.addresses, connections)


def actor_row(layer: str, ref: Ref[Any], restarts: int, now: float) -> ActorRow:
    return ActorRow(layer, ref.name, ref.state, ref.queued, ref.handled, restarts, round(now - ref.since, 3))


def hook_rows(hooks: Hooks, owner_of: Any) -> list[HookRow]:
    """All callbacks, in the order in which they run. `owner_of` names the plugin of a callback."""
    return [
        HookRow(entry.point.name, entry.name, entry.priority, entry.crashes, owner_of(entry.callback))
        for entry in hooks.listing()
    ]


def subscriptions_of(actor: Occupant, filter: str | None, after: str, limit: int) -> list[SubscriptionRow]:
    """The next subscriptions of a client behind the topic filter `after`, or the one of them with this very filter."""
    client_id, known = actor.session.client_id, actor.session.subscriptions
    if filter is not None:
        filters = [filter] if filter in known and filter > after else []
    else:
        filters = nsmallest(limit, [each for each in known if each > after])
    return [subscription_row(each, client_id, known[each]) for each in filters]
