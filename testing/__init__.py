"""A broker inside a test: in trio, or in a thread of its own for everybody else."""

from trunkline.testing.broker import Broker, broker

__all__ = ["Broker", "broker"]
