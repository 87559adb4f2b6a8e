"""Links between shards, which are brokers of their own: what one routes to the other's sessions, and what those want.

- `frames` is what goes over a link, and `decoder` cuts it out of bytes.
- `link` is one end without I/O: what is sent when, what is sent again on the next connection, and how much may wait.
- `outgoing` is what waits there for room and for acknowledgements, `route_table` the routes of one end at the other.
"""
