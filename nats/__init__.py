"""NATS: a client on trio, the same for code without it in `sync`, and the protocol itself, without I/O and from either
side, in `protocol`. Knows nothing of MQTT."""

from trunkline.nats.client.client import Client, connect
from trunkline.nats.client.message import Message
from trunkline.nats.client.settings import Settings
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.protocol.headers import Headers, Status

__all__ = ["Client", "Headers", "Message", "Settings", "Status", "Subscription", "connect"]
