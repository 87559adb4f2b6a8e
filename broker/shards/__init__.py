"""The other shards of a node: brokers of their own, each with a part of the sessions. Together they are one broker.

- `routing` is the pubsub layer of a shard: what is published here goes to the sessions here, and to other shards that
  want it.
- `wants` tells the other shards what the sessions here want, and `shares` picks the shard that gets a message of a
  shared group.
- `peer` is one other shard, on an end of a link; `bursts` is what goes there, and `places` how far each came here.
- `shards` is all of them, for the node.
"""
