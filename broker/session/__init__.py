"""The session layer: what the broker keeps for one client, connected or not.

Modules that know each other: access, channel, lifecycle, mail, outbound, pressure, services, subscribing, waiting.

Modules that know each other: changes, export, mqueue, state.
"""
