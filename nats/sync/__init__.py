"""The NATS client for code that does not await: scripts, Flask, Django. It runs in a thread of its own, and has the
same names, arguments, errors and guarantees here.

Every call that waits takes a `timeout` in seconds, and raises `TimeoutError`. An interrupt (Ctrl-C) ends the call, too,
and takes no message. Both leave the client open. Any number of threads may use one client.

- `client`: `connect`, and what can be asked; `messages` has subscriptions and what they give.
- `jetstream`: streams and consumers; `consuming` has the subscriptions to those, `publishing` windows and batches.
- `services`: what `client.service` gives, and the requests to it.
"""

from trunkline.nats.sync.client import Answers, Client, connect
from trunkline.nats.sync.consuming import JetStreamMessage, OrderedSubscription, PullSubscription, PushSubscription
from trunkline.nats.sync.direct import DirectReader
from trunkline.nats.sync.jetstream import JetStream
from trunkline.nats.sync.messages import Message, Subscription
from trunkline.nats.sync.publishing import Batch, FastBatch, Publisher, Receipt
from trunkline.nats.sync.services import Group, Service, ServiceRequest

__all__ = [
    "Answers",
    "Batch",
    "Client",
    "DirectReader",
    "FastBatch",
    "Group",
    "JetStream",
    "JetStreamMessage",
    "Message",
    "OrderedSubscription",
    "Publisher",
    "PullSubscription",
    "PushSubscription",
    "Receipt",
    "Service",
    "ServiceRequest",
    "Subscription",
    "connect",
]
