"""Services, as all clients of NATS know them (ADR-32): endpoints that answer requests, and say what they are and do.

- `service`: what `client.service` gives, its groups and endpoints; `request` is what their handlers are given.
- `descriptions`, without I/O: names and versions that can be, and what a service says of itself.
"""

from trunkline.nats.client.services.request import ServiceRequest, service_error_of
from trunkline.nats.client.services.service import Endpoint, Group, Service

__all__ = ["Endpoint", "Group", "Service", "ServiceRequest", "service_error_of"]
