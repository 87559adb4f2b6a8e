"""The session layer: what the broker keeps for one client, connected or not.

Modules that know each other: channel, mail.

Modules that know each other: backlog_reader, cursor, excess, memberships.
"""
