"""Which peers a listener admits, and how many at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trunkline.broker.metrics import LimitKind
from trunkline.broker.node_use import ALONE
from trunkline.config.units import parse_access_rule
from trunkline.hooks.client import counted_address, read_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from ipaddress import IPv4Address, IPv6Address

    from trunkline.broker.node_use import NodeUse
    from trunkline.config.listener_settings import ListenerSettings


class Admission:
    """The peers of one listener's connections. Those of a Unix socket have no address and pass its rules."""

    __slots__ = (
        "_by_address",
        "_limited",
        "_max_connections",
        "_max_node",
        "_max_per_address",
        "_name",
        "_on_node",
        "_rules",
        "_use",
        "comes_later",
    )

    def __init__(
        self,
        settings: ListenerSettings,
        max_node: int,
        on_node: Callable[[], int],
        limited: dict[LimitKind, int],
        use: NodeUse = ALONE,
    ) -> None:
        """`on_node` counts the connections of the whole node, whose maximum is `max_node`; 0 means no limit. `limited`
        counts refusals by what refused, `use` is that of the same listener at other shards."""
        self._use = use
        self._on_node = on_node
        self._limited = limited
        #: Connections by address, where there is a limit for them.
        self._by_address: Counter[str] = Counter()
        self.configure(settings, max_node)

    def configure(self, settings: ListenerSettings, max_node: int) -> None:
        self._name = settings.label
        self._max_connections = settings.max_connections
        self._max_per_address = settings.max_connections_per_address
        self._max_node = max_node
        self._rules = [parse_access_rule(rule) for rule in settings.access_rules]
        #: Whether a layer learns the client's address, and calls `refusal_of`, `enter` and `leave` itself.
        self.comes_later = bool(settings.proxy_protocol.trusted)

    def refusal(self, peer: tuple[str, int] | None, connections: int) -> str:
        """Why a new connection is refused while the listener has so many here; empty if it is not. Call this once for
        each, as it counts."""
        if connections + self._use.elsewhere(self._name) >= self._max_connections:
            return self._refused(LimitKind.LISTENER_FULL, f"max_connections is {self._max_connections}")
        if self._max_node and self._on_node() >= self._max_node:
            return self._refused(LimitKind.NODE_FULL, f"limits.max_connections is {self._max_node}")
        return "" if peer is None or self.comes_later else self.refusal_of(peer[0])

    def refusal_of(self, host: str) -> str:
        """As `refusal`, of this address."""
        if self._max_per_address:
            address = counted_address(host)
            elsewhere = self._use.elsewhere(self._at(address))
            if self._by_address[address] + elsewhere >= self._max_per_address:
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

    def count(self, connections: int) -> None:
        """The listener has so many here."""
        self._use.has(self._name, connections, self._max_connections)

    def enter(self, peer: tuple[str, int] | None) -> None:
        """A connection of this peer begins."""
        self._change(peer, 1)

    def leave(self, peer: tuple[str, int] | None) -> None:
        self._change(peer, -1)

    def _change(self, peer: tuple[str, int] | None, by: int) -> None:
        if not self._max_per_address or peer is None:
            return
        address = counted_address(peer[0])
        count = self._by_address[address] = max(0, self._by_address[address] + by)
        if not count:
            del self._by_address[address]
        self._use.has(self._at(address), count, self._max_per_address)

    def _at(self, address: str) -> str:
        return f"{self._name} {address}"
