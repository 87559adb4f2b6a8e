"""Clients, their sessions and their subscriptions."""

from collections.abc import Callable
from typing import Annotated, Literal

from trio.lowlevel import checkpoint

from trunkline.broker.session import mail
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.views import SubscriptionRow, client_row, subscriptions_of
from trunkline.config.key_path import nearest
from trunkline.management.operations.registry import (
    AT_ONCE,
    Administered,
    After,
    Limit,
    NotFound,
    Page,
    Refused,
    operation,
    settled,
)
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import validate_filter
from trunkline.plugins.context import Client

#: Client ids that are searched for a similar name.
NEIGHBOURS = 100

ClientId = Annotated[str, "The client id."]
Prefix = Annotated[str, "Only client ids with this prefix."]
Username = Annotated[str | None, "Only clients of this user name."]
Filter = Annotated[str, "The topic filter."]
Qos = Annotated[Literal[0, 1, 2], "The quality of service."]


def _client_id(row: Client) -> str:
    return row.client_id


@operation("clients.list", cursor=_client_id)
async def list_clients(
    broker: Administered, prefix: Prefix = "", username: Username = None, after: After = "", limit: Limit = AT_ONCE
) -> Page[Client]:
    """Clients that are connected, in order of client id."""
    return await _page(broker, prefix, username, lambda actor: actor.channel is not None, after, limit)


@operation("sessions.list", cursor=_client_id)
async def list_sessions(
    broker: Administered,
    prefix: Prefix = "",
    username: Username = None,
    connected: Annotated[
        bool | None, "Only sessions whose client is connected, or only those whose client is away."
    ] = None,
    after: After = "",
    limit: Limit = AT_ONCE,
) -> Page[Client]:
    """Sessions, whether their client is connected or not, in order of client id."""

    def wanted(actor: SessionActor) -> bool:
        return connected is None or connected is (actor.channel is not None)

    return await _page(broker, prefix, username, wanted, after, limit)


async def _page(
    broker: Administered,
    prefix: str,
    username: str | None,
    wanted: Callable[[SessionActor], bool],
    after: str,
    limit: int,
) -> Page[Client]:
    rows: list[Client] = []
    if prefix > after:  # a page begins behind its cursor, and the prefix itself may be a client id
        found = broker.sessions.get(prefix)
        actors = ([found] if found is not None else []) + broker.sessions.page(prefix, AT_ONCE - 1)
    else:
        actors = broker.sessions.page(after, AT_ONCE)
    while actors:
        for actor in actors:
            after = actor.session.client_id
            if not after.startswith(prefix):
                return Page(rows, None)
            if wanted(actor) and username in (None, actor.client.username):
                rows.append(client_row(actor))
                if len(rows) == limit:
                    return Page(rows, after)
        await checkpoint()
        actors = broker.sessions.page(after, AT_ONCE)
    return Page(rows, None)


@operation("clients.show")
def show_client(broker: Administered, client_id: ClientId) -> Client:
    """All details of a connected client."""
    return client_row(_connected(broker, client_id))


@operation("sessions.show")
def show_session(broker: Administered, client_id: ClientId) -> Client:
    """All details of a session."""
    return client_row(_session(broker, client_id))


@operation("clients.kick")
async def kick(broker: Administered, client_id: ClientId) -> dict[str, object]:
    """End the connection of a client. Its session stays until it expires."""
    _connected(broker, client_id)
    broker.host.kick(client_id)
    await settled(broker)
    return {"kicked": client_id, "session_kept": broker.sessions.get(client_id) is not None}


@operation("sessions.end")
async def end(broker: Administered, client_id: ClientId) -> dict[str, object]:
    """Discard a session with its subscriptions and waiting messages, and close its client's connection."""
    _session(broker, client_id).ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))
    await settled(broker)
    return {"ended": client_id}


@operation("clients.subscribe")
async def subscribe(broker: Administered, client_id: ClientId, filter: Filter, qos: Qos = 0) -> dict[str, object]:
    """Subscribe on behalf of a connected client, without asking it or the access rules."""
    _connected(broker, client_id)
    validate_filter(filter, broker.config.mqtt.max_topic_levels)
    broker.host.subscribe_client(client_id, [SubscriptionRequest(filter, qos)])
    await settled(broker)
    return {"client_id": client_id, "subscribed": filter, "qos": min(qos, broker.config.mqtt.max_qos)}


@operation("clients.unsubscribe")
async def unsubscribe(broker: Administered, client_id: ClientId, filter: Filter) -> dict[str, object]:
    """End a subscription of a client on its behalf. The client may be away."""
    actor = _session(broker, client_id)
    known = actor.session.subscriptions
    if filter not in known:
        hint = nearest(filter, list(known)[:NEIGHBOURS])
        raise NotFound(f"{client_id} has not subscribed to {filter!r}{hint}")
    broker.host.unsubscribe_client(client_id, [filter])
    await settled(broker)
    return {"client_id": client_id, "unsubscribed": filter}


@operation("subscriptions.list", cursor=lambda row: [row.client_id, row.filter])
async def list_subscriptions(
    broker: Administered,
    client_id: Annotated[str | None, "Only subscriptions of this client."] = None,
    filter: Annotated[str | None, "Only subscriptions with exactly this topic filter."] = None,
    after: Annotated[list[str] | None, "Start after this client id and topic filter."] = None,
    limit: Limit = AT_ONCE,
) -> Page[SubscriptionRow]:
    """Subscriptions, in order of client id and topic filter."""
    last, last_filter = after or ("", "")
    rows: list[SubscriptionRow] = []
    if client_id is not None:
        actors = [_session(broker, client_id)]
    else:  # the client of the cursor may have more
        actors = [actor for actor in [broker.sessions.get(last)] if actor is not None]
    while True:
        for actor in actors:
            own = actor.session.client_id
            rows += subscriptions_of(actor, filter, last_filter if own == last else "", limit - len(rows))
            if len(rows) == limit:
                return Page(rows, [rows[-1].client_id, rows[-1].filter])
            last, last_filter = own, ""
        if client_id is not None:
            return Page(rows, None)
        await checkpoint()
        actors = broker.sessions.page(last, AT_ONCE)
        if not actors:
            return Page(rows, None)


def _session(broker: Administered, client_id: str) -> SessionActor:
    found = broker.sessions.get(client_id)
    if found is None:
        raise NotFound(f"no client {client_id!r}{_near(broker, client_id)}")
    return found


def _connected(broker: Administered, client_id: str) -> SessionActor:
    found = _session(broker, client_id)
    if found.channel is None:
        raise Refused(f"the client {client_id!r} is not connected; its session is kept")
    return found


def _near(broker: Administered, client_id: str) -> str:
    """A similar client id, among those with the same beginning or the first ones: searching all would take too long."""
    for start in (client_id[: len(client_id) // 2], ""):
        ids = [actor.session.client_id for actor in broker.sessions.page(start, NEIGHBOURS)]
        hint = nearest(client_id, [each for each in ids if len(each) <= 2 * len(client_id)])
        if hint:
            return hint
    return ""
