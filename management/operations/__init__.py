"""The operations on a running broker. The control socket offers all of them."""

from trunkline.management.operations import actors, clients, listeners, messages, node, plugins, streams, tracing
from trunkline.management.operations.registry import OPERATIONS, find

__all__ = ["OPERATIONS", "actors", "clients", "find", "listeners", "messages", "node", "plugins", "streams", "tracing"]
