"""What can be asked of a running broker. The control socket offers all of it."""

from trunkline.management.operations import clients, messages, node, plugins
from trunkline.management.operations.registry import OPERATIONS

__all__ = ["OPERATIONS", "clients", "messages", "node", "plugins"]
