"""The session layer: what the broker keeps for one client, connected or not.

Modules that know each other: access, answering, arrivals, backlog_reader, channel, context, cursor, mail, memberships,
outbound, sending, services, slow_consumer, stream_feed, subscribing, waiting.

Modules that know each other: changes, export, mqueue, state.
"""
