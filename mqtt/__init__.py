"""MQTT 3.1, 3.1.1 and 5.0: bytes to packets and packets to bytes. No sockets, no clock, no tasks.

Modules that know each other: frames, message.
"""
