"""The MQTT client, on trio: `async with Client(settings) as client:`, or `SessionClient` for a session that outlives
its connections.

From the user down to the bytes:

- `client`, `session_client`: one connection, and one session over many; `block` is what they share.
- `messaging`: publish, subscribe, receive; responses to requests come to an `inbox`. Below it `request_queue` queues
  requests and waits for their answers, and `receiver_set` hands messages to `receivers`, which `dispatch` finds by
  topic.
- `running` moves bytes between a connection and its stream; `transport` and `websocket` open that.
- Without I/O: `connection` is one connection. Its session is the `outgoing` half, made of `requests` and `bursts`,
  which may need `clearing`; the other half, and the engine of this one, is `mqtt.session`. `link` is what goes out.
- `authentication` and `scram`, `settings`, `limits`, `server_limits`, `retry`, and `errors` with `reason_table` are
  what all of these use; `settings_sources` reads settings from a URL, the environment and a file.
- `sync` is the same client for code without trio, on a `client_thread`.
"""

from trunkline.client.authentication import Authenticator
from trunkline.client.client import Client
from trunkline.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectRefused,
    Disconnected,
    DisconnectedByServer,
    LargerThanServerAccepts,
    NoResponse,
    NotOffered,
    NotSentAgain,
    PublishesRefused,
    PublishRefused,
    ReauthenticationFailed,
    RequestDiscarded,
    RequestFailed,
    RequestQueueFull,
    RetriesExhausted,
    SessionLost,
    SubscribeRefused,
    UnsubscribeRefused,
)
from trunkline.client.messaging import Subscription
from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
from trunkline.client.requests import Receipt
from trunkline.client.retry import ExponentialBackoff, NoRetry, RetryPolicy
from trunkline.client.scram import ScramClient
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings, WillMessage

__all__ = [
    "AuthenticationFailed",
    "Authenticator",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConnectRefused",
    "ConnectionSettings",
    "Disconnected",
    "DisconnectedByServer",
    "ExponentialBackoff",
    "LargerThanServerAccepts",
    "NoResponse",
    "NoRetry",
    "NotOffered",
    "NotSentAgain",
    "PublishRefused",
    "PublishesRefused",
    "ReauthenticationFailed",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "RequestDiscarded",
    "RequestFailed",
    "RequestQueueFull",
    "RetriesExhausted",
    "RetryPolicy",
    "ScramClient",
    "SessionClient",
    "SessionLost",
    "SubscribeRefused",
    "Subscription",
    "UnsubscribeRefused",
    "WillMessage",
]
