"""Which peers a listener admits, and how many at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trunkline.broker.metrics import LimitKind
from trunkline.config.units import parse_access_rule
from trunkline.hooks.client import counted_address, read_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from ipaddress import IPv4Address, IPv6Address

    from trunkline.config.listener_settings import ListenerSettings


class Admission:
    """The peers of one listener's connections. Those of a Unix socket have no address and pass its rules."""

    __slots__ = (
        "_by_address",
        "_limited",
        "_max_connections",
        "_max_node",
        "_max_per_address",
        "_on_node",
        "_rules",
        "comes_later",
    )

    def __init__(
        self, settings: ListenerSettings, max_node: int, on_node: Callable[[], int], limited: dict[LimitKind, int]
    ) -> None:
        """`on_node` counts the connections of the whole node, whose maximum is `max_node`; 0 means no limit. `limited`
        counts refusals by what refused."""
        self._on_node = on_node
        self._limited = limited
        #: Connections by address, where there is a limit for them.
        self._by_address: Counter[str] = Counter()
        self.configure(settings, max_node)

    def configure(self, settings: ListenerSettings, max_node: int) -> None:
        self._max_connections = settings.max_connections
        self._max_per_address = settings.max_connections_per_address
        self._max_node = max_node
        self._rules = [parse_access_rule(rule) for rule in settings.access_rules]
        #: Whether a layer learns the client's address, and calls `refusal_of`, `enter` and `leave` itself.
        self.comes_later = bool(settings.proxy_protocol.trusted)

    def refusal(self, peer: tuple[str, int] | None, connections: int, *, is_known: bool = False) -> str:
        """Why a new connection is refused while the listener has so many; empty if it is not. Call this once for each,
        as it counts. `is_known`: no layer will learn another address."""
        if connections >= self._max_connections:
            return self._refused(LimitKind.LISTENER_FULL, f"max_connections is {self._max_connections}")
        if self._max_node and self._on_node() >= self._max_node:
            return self._refused(LimitKind.NODE_FULL, f"limits.max_connections is {self._max_node}")
        return "" if peer is None or (self.comes_later and not is_known) else self.refusal_of(peer[0])

    def refusal_of(self, host: str) -> str:
        """As `refusal`, of this address."""
        if self._max_per_address and self._by_address[counted_address(host)] >= self._max_per_address:
            text = f"max_connections_per_address is {self._max_per_address}"
            return self._refused(LimitKind.ADDRESS_FULL, text)
        if not self._rules or self._allows(read_address(host)):
            return ""
        return self._refused(LimitKind.ACCESS_RULES, "the address is not allowed")

    def _refused(self, kind: LimitKind, text: str) -> str:
        self._limited[kind] += 1
        return text

    def _allows(self, address: IPv4Address | IPv6Address | None) -> bool:
        for allows, network in self._rules:
            if network is None or (address is not None and address in network):
                return allows
        return True

    def enter(self, peer: tuple[str, int] | None) -> None:
        """A connection of this peer begins."""
        if self._max_per_address and peer is not None:
            self._by_address[counted_address(peer[0])] += 1

    def leave(self, peer: tuple[str, int] | None) -> None:
        if self._max_per_address and peer is not None:
            address = counted_address(peer[0])
            self._by_address[address] -= 1
            if self._by_address[address] <= 0:
                del self._by_address[address]
