"""The MQTT client, on trio: `async with Client(settings) as client:`, or `SessionClient` for a session that outlives
its connections."""

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
    NotOffered,
    PublishesRefused,
    PublishRefused,
    ReauthenticationFailed,
    RequestDiscarded,
    RequestQueueFull,
    RetriesExhausted,
    SessionLost,
    SubscribeRefused,
    UnsubscribeRefused,
)
from trunkline.client.messaging import Subscription
from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
from trunkline.client.requesting import Receipt
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
    "NoRetry",
    "NotOffered",
    "PublishRefused",
    "PublishesRefused",
    "ReauthenticationFailed",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "RequestDiscarded",
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
