"""The session layer: what the broker keeps for one client, connected or not.

Modules that know each other: access, answering, behind, channel, context, mail, outbound, pressure, services,
stream_feed, subscribing, waiting.

Modules that know each other: changes, export, mqueue, state.
"""
