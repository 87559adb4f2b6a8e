"""JetStream, by a client.

- `context`: what `client.jetstream()` gives: messages, streams and consumers.
- `subscribing` finds or creates the consumer of a subscription; `push`, `ordered` and `pull` are what it gives, and
  `message` what they give.
"""

from trunkline.nats.client.jetstream.context import JetStream, NotSupported

__all__ = ["JetStream", "NotSupported"]
