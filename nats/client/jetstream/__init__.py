"""JetStream, by a client.

- `context`: what `client.jetstream()` gives: messages, streams and consumers.
- `publishing` has a window of acknowledgements, `batch` messages that are taken together.
- `subscribing` finds or creates the consumer of a subscription; `push`, `ordered` and `pull` are what it gives, with
  what they share in `subscribed`, and `message` is what they give.
"""

from trunkline.nats.client.jetstream.context import JetStream, NotSupported
from trunkline.nats.client.jetstream.publishing import PublishFailed

__all__ = ["JetStream", "NotSupported", "PublishFailed"]
