"""Clients of an in-process broker, without sockets."""

from typing import Any

from trunkline.client.authentication import Authenticator
from trunkline.client.client import Client
from trunkline.client.settings import ConnectionSettings
from trunkline.testing import Broker


def client_of(
    broker: Broker,
    client_id: str = "c",
    *,
    authenticator: Authenticator | None = None,
    max_queued: int = 1000,
    max_buffered: int = 1000,
    **settings: Any,
) -> Client:
    return Client(
        ConnectionSettings(client_id=client_id, **settings),
        open_stream=broker.connect,
        authenticator=authenticator,
        max_queued=max_queued,
        max_buffered=max_buffered,
    )
