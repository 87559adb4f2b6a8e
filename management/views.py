"""What there is, as rows: for the control socket, for plugins and for tests. Everything comes in pages, in order, and the
cursor of the next page is the key of the last row."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.broker.session.actor import SessionActor
    from trunkline.broker.session.directory import Directory
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.router import RetainedStore, Router


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client that has a session, connected or not."""

    client_id: str
    connected: bool
    username: str | None
    #: Address and port; None for an in-process connection.
    peer: str | None
    listener: str
    #: "3.1", "3.1.1" or "5.0".
    version: str
    #: Seconds; 0 is none.
    keep_alive: int
    clean_start: bool
    #: Seconds since the epoch: of the last connection, and of the session.
    connected_at: float
    created_at: float
    #: Seconds that the session outlives the connection; None is for ever.
    expiry_interval: float | None
    subscriptions: int
    #: Messages that wait, and their bytes.
    queued: int
    queued_bytes: int
    #: Messages sent and not acknowledged, and QoS 2 messages received whose PUBREL is missing.
    inflight: int
    awaiting_rel: int
    superuser: bool


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
    """A topic filter that somebody has subscribed to."""

    filter: str
    subscribers: int


@dataclass(frozen=True, slots=True)
class RetainedRow:
    topic: str
    payload: bytes
    qos: int
    publisher: str
    #: Seconds since the epoch.
    timestamp: float
    #: Seconds that are left; None is for ever.
    expires_in: float | None
    properties: Properties


@dataclass(frozen=True, slots=True)
class HookRow:
    """A callback registered at a hook point."""

    point: str
    callback: str
    priority: int
    crashes: int
    #: The plugin that it belongs to; empty when it belongs to none.
    plugin: str


def client_row(actor: SessionActor) -> ClientRow:
    session, client = actor.session, actor.client
    return ClientRow(
        session.client_id,
        actor.channel is not None,
        client.username,
        None if client.peer is None else f"{client.peer[0]}:{client.peer[1]}",
        client.listener,
        str(client.version),
        client.keep_alive,
        client.clean_start,
        client.connected_at,
        session.created_at,
        None if session.expiry_interval == inf else session.expiry_interval,
        len(session.subscriptions),
        session.queue.length,
        session.queue.byte_size,
        len(session.inflight),
        len(session.awaiting_rel),
        client.superuser,
    )


def client_rows(sessions: Directory, after: str = "", limit: int = 100) -> list[ClientRow]:
    """The next clients behind the client id `after`."""
    return [client_row(actor) for actor in sessions.page(after, limit)]


def subscription_rows(
    router: Router[Any], after: tuple[str, str] = ("", ""), limit: int = 100
) -> list[SubscriptionRow]:
    """The next subscriptions behind the filter and client id `after`."""
    return [
        SubscriptionRow(
            row.filter,
            row.client_id,
            row.options.qos,
            row.options.no_local,
            row.options.retain_as_published,
            row.options.retain_handling,
            row.options.identifier,
        )
        for row in router.listing.subscriptions(after, limit)
    ]


def route_rows(router: Router[Any], after: str = "", limit: int = 100) -> list[RouteRow]:
    """The next topic filters behind `after`."""
    return [RouteRow(filter, len(router.targets(filter))) for filter in router.listing.filters(after, limit)]


def retained_row(message: Message, retained: RetainedStore, now: float) -> RetainedRow:
    deadline = retained.deadline(message.topic)
    return RetainedRow(
        message.topic,
        message.payload,
        message.qos,
        message.publisher,
        message.timestamp,
        None if deadline == inf else max(0.0, deadline - now),
        message.properties,
    )


def retained_rows(
    retained: RetainedStore, now: float, after: str = "", limit: int = 100, filter: str = "#"
) -> tuple[list[RetainedRow], str | None]:
    """The next retained messages behind the topic `after`, and the cursor of the next page; None at the end."""
    page, cursor = retained.page(now, after=after, limit=limit, filter=filter)
    return [retained_row(message, retained, now) for message in page], cursor


def hook_rows(hooks: Hooks, owner_of: Any) -> list[HookRow]:
    """All callbacks, in the order in which they run. `owner_of` names the plugin of a callback."""
    return [
        HookRow(entry.point.name, entry.name, entry.priority, entry.crashes, owner_of(entry.callback))
        for entry in hooks.listing()
    ]
