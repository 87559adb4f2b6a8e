"""The session layer: what the broker keeps for one client, connected or not.

Modules that know each other: access, channel, mail, outbound, pressure, services, subscribing.

Modules that know each other: mqueue, state.
"""
