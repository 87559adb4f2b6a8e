"""The other shards of a node: brokers of their own, each with a part of the sessions. Together they are one broker.

- `routing` is the pubsub layer of a shard: what is published here goes to the sessions here, and to other shards that
  want it.
- `wants` tells the other shards what the sessions here want, and `shares` picks the shard that gets a message of a
  shared group.
- `peer` is one other shard, on an end of a link; `bursts` is what goes there, and `places` how far each came here.
- `held` are publishers that wait for another shard.
- `outbox` is what must not be forgotten on the way there, and `versions` which retained message is the newest.
- `shards` is all of them, for the node; `place` is where a shard stands among them.
- `memory_links` and `process_links` join the shards of a process, and the processes of a machine (`link_sockets`).
- `homes` says which shard has a client id, and `hand_over` brings connections there (`passages`).
"""
