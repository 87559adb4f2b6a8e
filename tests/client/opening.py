"""Clients of an in-process broker, without sockets."""

import inspect
from typing import Any, Final

from trunkline.client.authentication import Authenticator
from trunkline.client.client import Client
from trunkline.client.limits import MAX_BYTES
from trunkline.client.retry import ExponentialBackoff, RetryPolicy
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.testing import Broker

EVERY_SECOND = ExponentialBackoff(first=1, largest=1, jitter=0)
#: What a session client takes beside its settings.
OPTIONS: Final = inspect.signature(SessionClient).parameters.keys() - {"settings"}


def client_of(
    broker: Broker,
    client_id: str = "c",
    *,
    authenticator: Authenticator | None = None,
    max_queued: int = 1000,
    max_queued_bytes: int = MAX_BYTES,
    max_buffered: int = 1000,
    max_buffered_bytes: int = MAX_BYTES,
    **settings: Any,
) -> Client:
    return Client(
        ConnectionSettings(client_id=client_id, **settings),
        open_stream=broker.connect,
        authenticator=authenticator,
        max_queued=max_queued,
        max_queued_bytes=max_queued_bytes,
        max_buffered=max_buffered,
        max_buffered_bytes=max_buffered_bytes,
    )


def session_of(
    broker: Broker, client_id: str = "c", retry: RetryPolicy = EVERY_SECOND, **options: Any
) -> SessionClient:
    """`options` are of the client or of its settings."""
    own: dict[str, Any] = {name: options.pop(name) for name in OPTIONS & options.keys()}
    own = {"retry": retry, "open_stream": broker.connect, **own}
    return SessionClient(ConnectionSettings(client_id=client_id, **options), **own)


async def cut(broker: Broker, client: SessionClient) -> None:
    broker.faults.cut(client="c")
    await client.disconnected()
