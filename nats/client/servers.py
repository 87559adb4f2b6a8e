"""The servers that a client may connect to: those that it was given, and those that a server has told of."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from trunkline.nats.client.settings import Address, address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Servers that are learned: a cluster is smaller.
MAX_SERVERS: Final = 256


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class ServerPool:
    """Each round asks all of them, the last one that was connected to at the end: it has just been lost."""

    def __init__(self, given: Iterable[Address], shuffle: Callable[[list[Address]], None]) -> None:
        """`shuffle` spreads clients that know the same servers."""
        self._given = {(each.host, each.port): each for each in given}
        self._servers = dict(self._given)
        self._shuffle = shuffle
        self._last: Address | None = None

    def round(self) -> list[Address]:
        """In the order in which they are to be tried."""
        servers = [each for each in self._servers.values() if each is not self._last]
        self._shuffle(servers)
        if self._last is not None and (self._last.host, self._last.port) in self._servers:
            servers.append(self._last)
        return servers

    def connected(self, server: Address) -> None:
        self._last = server

    def learn(self, urls: Any, via: Address) -> list[Address]:
        """A server tells of all servers of its cluster, as HOST:PORT: those that it does not name any more are
        forgotten, unless they were given. Returns the new ones."""
        if not isinstance(urls, list):
            return []
        told: dict[tuple[str, int], Address] = {}
        for url in urls[:MAX_SERVERS]:  # pyright: ignore[reportUnknownVariableType]
            try:
                address = address_of(str(url))  # pyright: ignore[reportUnknownArgumentType]
            except ValueError:
                continue
            # a server tells its address, which its certificate does not have
            name = via.tls_name or via.host if _is_ip(address.host) else ""
            told[address.host, address.port] = Address(
                address.host, address.port, via.is_encrypted, via.user, via.password, name
            )
        new = [address for place, address in told.items() if place not in self._servers]
        kept = {place: self._servers.get(place, address) for place, address in told.items()}
        self._servers = {**self._given, **kept}
        if self._last is not None:
            self._servers.setdefault((self._last.host, self._last.port), self._last)
        return new
