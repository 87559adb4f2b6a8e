"""A list of bans: of client ids, user names, addresses and networks, each for a time or for good.

Asking costs a look into a dict for each kind, and for addresses one for each length of network prefix that is banned.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Kind: TypeAlias = Literal["client_id", "username", "address"]
KINDS: Final[tuple[Kind, ...]] = ("client_id", "username", "address")


class ListFull(Exception):
    """There are as many bans as there may be."""


@dataclass(frozen=True, slots=True)
class Ban:
    kind: Kind
    #: A client id, a user name, or a network; an address is a network of one.
    who: str
    reason: str = ""
    #: Who banned: `config`, `command` or `flapping`.
    by: str = ""
    #: Seconds since the epoch.
    at: float = 0.0
    until: float = inf


class BanList:
    def __init__(self, max_bans: int) -> None:
        self._max_bans = max_bans
        self._bans: dict[tuple[Kind, str], Ban] = {}
        #: Version of IP and prefix length of each network, to the networks by their leading bits.
        self._networks: dict[tuple[int, int], dict[int, Ban]] = {}

    def __len__(self) -> int:
        return len(self._bans)

    def __iter__(self) -> Iterator[Ban]:
        return iter(list(self._bans.values()))

    def add(self, ban: Ban) -> None:
        """Add a ban, or put it in place of the one for the same client.

        Raises:
            ListFull: there is no room for another.
        """
        if (ban.kind, ban.who) not in self._bans and len(self._bans) >= self._max_bans:
            raise ListFull(f"there are {self._max_bans} bans, as many as there may be (max_bans)")
        self._bans[ban.kind, ban.who] = ban
        if ban.kind == "address":
            prefix, bits = _place(ip_network(ban.who))
            self._networks.setdefault(prefix, {})[bits] = ban

    def remove(self, kind: Kind, who: str) -> None:
        """Take a ban out.

        Raises:
            KeyError: there is none.
        """
        del self._bans[kind, who]
        if kind == "address":
            prefix, bits = _place(ip_network(who))
            del self._networks[prefix][bits]
            if not self._networks[prefix]:
                del self._networks[prefix]

    def get(self, kind: Kind, who: str) -> Ban | None:
        return self._bans.get((kind, who))

    def find(self, client_id: str, username: str | None, address: str | None) -> Ban | None:
        """The ban that keeps this client out, if one does."""
        found = self._bans.get(("client_id", client_id))
        if found is None and username is not None:
            found = self._bans.get(("username", username))
        if found is None and address is not None and self._networks:
            found = self._find_address(address)
        return found

    def _find_address(self, text: str) -> Ban | None:
        address = read_address(text)
        if address is None:
            return None
        for (version, length), networks in self._networks.items():
            if version == address.version:
                found = networks.get(int(address) >> (address.max_prefixlen - length))
                if found is not None:
                    return found
        return None


def _place(network: IPv4Network | IPv6Network) -> tuple[tuple[int, int], int]:
    bits = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
    return (network.version, network.prefixlen), bits


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """An address as a socket gives it: without its zone, and as IPv4 where it stands for one. None: it is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def normal_form(kind: str, who: str) -> tuple[Kind, str]:
    """
    Raises:
        ValueError: this cannot be banned; the message says what can.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} cannot be banned: kind is {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if not who:
        raise ValueError(f"say which {kind} is banned")
    if kind == "address":
        try:
            network = ip_network(who, strict=False)
        except ValueError:
            raise ValueError(f'{who!r} is no address, and no CIDR block such as "10.0.0.0/8"') from None
        who = str(network)
    return kind, who
