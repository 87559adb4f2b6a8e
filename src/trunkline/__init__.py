"""Trunkline: an MQTT broker in pure Python in which every session is an actor."""

__version__ = "0.1.0"
