"""The MQTT client, on trio: `async with Client(settings) as client:`."""

from trunkline.client.client import Client
from trunkline.client.connection import Authenticator
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
    RequestQueueFull,
    SubscribeRefused,
    UnsubscribeRefused,
)
from trunkline.client.messaging import Receipt, Subscription
from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
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
    "LargerThanServerAccepts",
    "NotOffered",
    "PublishRefused",
    "PublishesRefused",
    "Receipt",
    "ReceivedMessage",
    "Receiver",
    "RequestQueueFull",
    "SubscribeRefused",
    "Subscription",
    "UnsubscribeRefused",
    "WillMessage",
]
