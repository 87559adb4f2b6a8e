"""What happens to a client's connection, besides messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from trunkline.nats.client.subscription import Subscription
    from trunkline.nats.errors import NatsError, ServerError


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is lost, and the client looks for a server."""

    error: NatsError


@dataclass(frozen=True, slots=True)
class Reconnected:
    """To this server."""

    url: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """Servers that the client did not know."""

    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LameDuck:
    """The server is going to end. The client connects to another one when it has."""


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """Messages of this subscription are dropped, as too many wait. It is told once, until none waits."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class ServerSaid:
    """An error that the server has told of. The connection goes on."""

    error: ServerError


Event: TypeAlias = Disconnected | Reconnected | Discovered | LameDuck | SlowConsumer | ServerSaid
