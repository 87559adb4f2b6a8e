"""A broker inside a test: in the test's own trio run, or in a thread of its own for all other code.

Modules that know each other: fault_layer, packet_queue.
"""

from trunkline.testing.broker import Broker
from trunkline.testing.opening import Opening, broker
from trunkline.testing.threads import ThreadBroker

__all__ = ["Broker", "Opening", "ThreadBroker", "broker"]
