"""JetStream, by a client.

- `context`: what `client.jetstream()` gives: messages, streams and consumers; `stored` is one message of a stream,
  `direct` several at once.
- `publishing` has a window of acknowledgements, `batch` messages that are taken together, `fast_batch` those that are
  acknowledged many at a time.
- `subscribing` finds or creates the consumer of a subscription; `push`, `ordered` and `pull` are what it gives, with
  what they share in `subscribed`, and `message` is what they give.
- `keyvalue` and `objects` are buckets on top of that; `watching` tells what is in one and what changes, `pipeline`
  fills it; `object_records` and `chunks` are the two parts of an object.
"""

from trunkline.nats.client.jetstream.context import JetStream
from trunkline.nats.client.jetstream.direct import DirectReader, StoredBatch
from trunkline.nats.client.jetstream.fast_batch import FastBatchFailed, Missed
from trunkline.nats.client.jetstream.keyvalue import KeyValue, KeyValues
from trunkline.nats.client.jetstream.objects import ObjectStore, ObjectStores
from trunkline.nats.client.jetstream.publishing import PublishFailed
from trunkline.nats.errors import NotSupported

__all__ = [
    "DirectReader",
    "FastBatchFailed",
    "JetStream",
    "KeyValue",
    "KeyValues",
    "Missed",
    "NotSupported",
    "ObjectStore",
    "ObjectStores",
    "PublishFailed",
    "StoredBatch",
]
