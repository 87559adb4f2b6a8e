"""The other shards of a node: brokers of their own, each with a part of the sessions. Together they are one broker.

- `place` is where a shard stands among those of its node, and what it has to ask for there.
- `link_sockets` joins the shards of a machine: bytes from one to the other, whatever becomes of connections.
"""
