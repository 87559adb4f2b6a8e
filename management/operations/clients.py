"""Clients, their sessions and their subscriptions."""

from typing import Annotated, Literal

from trunkline.broker.node.admin import Admin
from trunkline.broker.views import SubscriptionRow
from trunkline.config.key_path import nearest
from trunkline.management.operations.registry import (
    AT_ONCE,
    After,
    Limit,
    NotFound,
    Page,
    Refused,
    operation,
)
from trunkline.mqtt.packets import SubscriptionRequest
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
    broker: Admin, prefix: Prefix = "", username: Username = None, after: After = "", limit: Limit = AT_ONCE
) -> Page[Client]:
    """Clients that are connected, in order of client id."""
    return Page(*await broker.clients.matching(prefix, username, True, after, limit))


@operation("sessions.list", cursor=_client_id)
async def list_sessions(
    broker: Admin,
    prefix: Prefix = "",
    username: Username = None,
    connected: Annotated[
        bool | None, "Only sessions whose client is connected, or only those whose client is away."
    ] = None,
    after: After = "",
    limit: Limit = AT_ONCE,
) -> Page[Client]:
    """Sessions, whether their client is connected or not, in order of client id."""
    return Page(*await broker.clients.matching(prefix, username, connected, after, limit))


@operation("clients.show")
def show_client(broker: Admin, client_id: ClientId) -> Client:
    """All details of a connected client."""
    return _connected(broker, client_id)


@operation("sessions.show")
def show_session(broker: Admin, client_id: ClientId) -> Client:
    """All details of a session."""
    return _session(broker, client_id, known_as="session of client")


@operation("clients.kick")
async def kick(broker: Admin, client_id: ClientId) -> dict[str, object]:
    """End the connection of a client. Its session stays until it expires."""
    _connected(broker, client_id)
    broker.clients.kick(client_id)
    await broker.settled()
    return {"kicked": client_id, "session_kept": client_id in broker.clients}


@operation("sessions.end")
async def end(broker: Admin, client_id: ClientId) -> dict[str, object]:
    """Discard a session with its subscriptions and waiting messages, and close its client's connection."""
    _session(broker, client_id, known_as="session of client")
    broker.clients.end(client_id)
    await broker.settled()
    return {"ended": client_id}


@operation("clients.subscribe")
async def subscribe(broker: Admin, client_id: ClientId, filter: Filter, qos: Qos = 0) -> dict[str, object]:
    """Subscribe on behalf of a connected client, without asking it or the access rules."""
    _connected(broker, client_id)
    validate_filter(filter, broker.config.mqtt.max_topic_levels)
    broker.clients.subscribe(client_id, [SubscriptionRequest(filter, qos)])
    await broker.settled()
    return {"client_id": client_id, "subscribed": filter, "qos": min(qos, broker.config.mqtt.max_qos)}


@operation("clients.unsubscribe")
async def unsubscribe(broker: Admin, client_id: ClientId, filter: Filter) -> dict[str, object]:
    """End a subscription of a client on its behalf. The client may be away."""
    _session(broker, client_id)
    known = broker.clients.subscriptions(client_id)
    if filter not in known:
        hint = nearest(filter, list(known)[:NEIGHBOURS])
        raise NotFound(f"{client_id} has not subscribed to {filter!r}{hint}")
    broker.clients.unsubscribe(client_id, [filter])
    await broker.settled()
    return {"client_id": client_id, "unsubscribed": filter}


@operation("subscriptions.list", cursor=lambda row: [row.client_id, row.filter])
async def list_subscriptions(
    broker: Admin,
    client_id: Annotated[str | None, "Only subscriptions of this client."] = None,
    filter: Annotated[str | None, "Only subscriptions with exactly this topic filter."] = None,
    after: Annotated[list[str] | None, "Start after this client id and topic filter."] = None,
    limit: Limit = AT_ONCE,
) -> Page[SubscriptionRow]:
    """Subscriptions, in order of client id and topic filter."""
    if client_id is not None:
        _session(broker, client_id)
    if filter is not None:
        validate_filter(filter)
    last, last_filter = after or ("", "")
    rows, cursor = await broker.clients.subscription_page(client_id, filter, (last, last_filter), limit)
    return Page(rows, None if cursor is None else list(cursor))


def _session(broker: Admin, client_id: str, *, known_as: str = "client") -> Client:
    found = broker.clients.get(client_id)
    if found is None:
        raise NotFound(f"no {known_as} {client_id!r}{_near(broker, client_id)}")
    return found


def _connected(broker: Admin, client_id: str) -> Client:
    found = _session(broker, client_id)
    if not found.connected:
        raise Refused(f"the client {client_id!r} is not connected; its session is kept")
    return found


def _near(broker: Admin, client_id: str) -> str:
    """A similar client id, among those with the same beginning or the first ones: searching all would take too long."""
    for start in (client_id[: len(client_id) // 2], ""):
        ids = [each.client_id for each in broker.clients.page(start, NEIGHBOURS)]
        hint = nearest(client_id, [each for each in ids if len(each) <= 2 * len(client_id)])
        if hint:
            return hint
    return ""
