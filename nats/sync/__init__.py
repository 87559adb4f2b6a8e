"""The NATS client for code that does not await: scripts, Flask, Django. It runs in a thread of its own, and has the
same names, arguments, errors and guarantees here.

Every call that waits takes a `timeout` in seconds, and raises `TimeoutError`. An interrupt (Ctrl-C) ends the call, too,
and takes no message. Both leave the client open. Any number of threads may use one client.

- `client`: `connect`, and what can be asked; `messages` has subscriptions and what they give.
- `jetstream`: streams and consumers; `consuming` has the subscriptions to those, `publishing` windows and batches,
  `direct` several messages at once.
- `keyvalue` and `objects` are buckets on top of that, and `watching` tells what is in one and what changes.
- `services`: what `client.service` gives, and the requests to it.
- `handover`: how all of them take what comes one after the other, and end what they have opened.
"""

from trunkline.nats.sync.client import Answers, Client, connect
from trunkline.nats.sync.consuming import JetStreamMessage, OrderedSubscription, PullSubscription, PushSubscription
from trunkline.nats.sync.direct import DirectReader
from trunkline.nats.sync.jetstream import JetStream
from trunkline.nats.sync.keyvalue import KeyValue, KeyValues
from trunkline.nats.sync.messages import Message, Subscription
from trunkline.nats.sync.objects import ObjectReader, ObjectStore, ObjectStores
from trunkline.nats.sync.publishing import Batch, FastBatch, Publisher, Receipt
from trunkline.nats.sync.services import Group, Service, ServiceRequest
from trunkline.nats.sync.watching import Watch

__all__ = [
    "Answers",
    "Batch",
    "Client",
    "DirectReader",
    "FastBatch",
    "Group",
    "JetStream",
    "JetStreamMessage",
    "KeyValue",
    "KeyValues",
    "Message",
    "ObjectReader",
    "ObjectStore",
    "ObjectStores",
    "OrderedSubscription",
    "Publisher",
    "PullSubscription",
    "PushSubscription",
    "Receipt",
    "Service",
    "ServiceRequest",
    "Subscription",
    "Watch",
    "connect",
]
