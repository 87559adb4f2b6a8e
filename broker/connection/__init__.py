"""MQTT on a transport: bytes in, packets to the session; packets out, bytes to the peer.

Modules that know each other: connection, handshake.
"""
