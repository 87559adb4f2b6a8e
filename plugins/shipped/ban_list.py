"""A list of bans: of client ids, user names, patterns of either, addresses and networks, each temporary or permanent.

A check costs a dict lookup for each kind, for addresses one for each banned prefix length, and one comparison for each
pattern. Patterns are wildcards and not regular expressions: they are compared with text that clients choose, for which
a regular expression can take for ever, while wildcards handle each character once.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import translate
from ipaddress import ip_network
from math import inf
from re import compile as compile_pattern
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from trunkline.hooks.client import read_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Network, IPv6Network
    from re import Pattern

Kind: TypeAlias = Literal["client_id", "username", "address", "client_id_pattern", "username_pattern"]
KINDS: Final[tuple[Kind, ...]] = ("client_id", "username", "address", "client_id_pattern", "username_pattern")
#: Characters of a pattern.
MAX_PATTERN: Final = 256


class ListFull(Exception):
    """The limit of bans is reached."""


@dataclass(frozen=True, slots=True)
class Ban:
    kind: Kind
    #: A client id, a user name, a pattern, or a network; an address is a network of one.
    who: str
    reason: str = ""
    #: Origin of the ban: `config`, `command` or `flapping`.
    by: str = ""
    #: Seconds since the epoch.
    at: float = 0.0
    until: float = inf


class BanList:
    def __init__(self, max_bans: int, max_patterns: int = 100) -> None:
        self._max_bans = max_bans
        self._max_patterns = max_patterns
        self._patterns: dict[Kind, dict[str, tuple[Pattern[str], Ban]]] = {
            "client_id_pattern": {},
            "username_pattern": {},
        }
        self._bans: dict[tuple[Kind, str], Ban] = {}
        #: Version of IP and prefix length of each network, to the networks by their leading bits.
        self._networks: dict[tuple[int, int], dict[int, Ban]] = {}

    def __len__(self) -> int:
        return len(self._bans)

    def __iter__(self) -> Iterator[Ban]:
        return iter(list(self._bans.values()))

    def add(self, ban: Ban) -> None:
        """Add a ban, or replace the one for the same client.

        Raises:
            ListFull: the limit is reached.
        """
        if (ban.kind, ban.who) not in self._bans and len(self._bans) >= self._max_bans:
            raise ListFull(f"the limit of {self._max_bans} bans (max_bans) is reached")
        patterns = self._patterns.get(ban.kind)
        if patterns is not None:
            if ban.who not in patterns and sum(map(len, self._patterns.values())) >= self._max_patterns:
                raise ListFull(f"the limit of {self._max_patterns} patterns (max_patterns) is reached")
            patterns[ban.who] = compile_pattern(translate(ban.who)), ban
        self._bans[ban.kind, ban.who] = ban
        if ban.kind == "address":
            prefix, bits = _place(ip_network(ban.who))
            self._networks.setdefault(prefix, {})[bits] = ban

    def remove(self, kind: Kind, who: str) -> None:
        """Remove a ban.

        Raises:
            KeyError: there is none.
        """
        del self._bans[kind, who]
        self._patterns.get(kind, {}).pop(who, None)
        if kind == "address":
            prefix, bits = _place(ip_network(who))
            del self._networks[prefix][bits]
            if not self._networks[prefix]:
                del self._networks[prefix]

    def get(self, kind: Kind, who: str) -> Ban | None:
        return self._bans.get((kind, who))

    def find(self, client_id: str, username: str | None, address: str | None) -> Ban | None:
        """The ban that applies to this client, if there is one."""
        found = self._bans.get(("client_id", client_id))
        if found is None and username is not None:
            found = self._bans.get(("username", username))
        if found is None and address is not None and self._networks:
            found = self._find_address(address)
        if found is None:
            found = self._find_pattern("client_id_pattern", client_id)
        if found is None and username is not None:
            found = self._find_pattern("username_pattern", username)
        return found

    def _find_pattern(self, kind: Kind, text: str) -> Ban | None:
        return next((ban for pattern, ban in self._patterns[kind].values() if pattern.match(text)), None)

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


def normal_form(kind: str, who: str) -> tuple[Kind, str]:
    """Raises ValueError if this cannot be banned; the message says what can."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} cannot be banned: kind is {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if not who:
        raise ValueError(f"say which {kind} is banned")
    if kind.endswith("_pattern") and len(who) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(who)} characters, more than {MAX_PATTERN}")
    if kind == "address":
        try:
            network = ip_network(who, strict=False)
        except ValueError:
            raise ValueError(f'{who!r} is neither an address nor a CIDR block such as "10.0.0.0/8"') from None
        who = str(network)
    return kind, who
