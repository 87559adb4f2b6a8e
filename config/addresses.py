"""Addresses that listeners take."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Generic, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


def split_listener_url(url: str) -> tuple[str, int]:
    """Host and port of a listener's URL. Without a port it is 1883; port 0 lets the system choose."""
    parts = urlsplit(url)
    if parts.scheme != "tcp" or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("not a listener URL")
    port = parts.port  # raises ValueError for an invalid port
    if not parts.hostname or parts.netloc.endswith(":"):
        raise ValueError("not a listener URL")
    parts.hostname.encode("idna")  # raises UnicodeError for a name that cannot be resolved
    return parts.hostname, 1883 if port is None else port


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`. A name other than localhost may resolve to any
    address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


class TakenAddresses(Generic[T]):
    """The addresses that listeners use. Two sockets cannot listen on the same one, nor on `0.0.0.0` and another address
    with the same port."""

    def __init__(self) -> None:
        #: By port and host; the IP version stands for any address of that version.
        self._owners: dict[tuple[int, object], T] = {}

    def take(self, hosts: Iterable[str], port: int, owner: T) -> T | None:
        """The listener that has the address already, and keeps it. Port 0 is always free."""
        found: T | None = None
        for host in hosts if port else ():
            for own, others in _meant(host):
                for key in others:
                    found = self._owners.get((port, key)) if found is None else found
                for key in own:
                    self._owners.setdefault((port, key), owner)
        return found


def _meant(host: str) -> Iterator[tuple[list[object], list[object]]]:
    """The keys of an address, and those that it collides with. A host name counts as different from its address."""
    for each in ("127.0.0.1", "::1") if host == "localhost" else (host,):
        try:
            address = ip_address(each)
        except ValueError:
            yield [each], [each]
        else:
            everywhere = ip_address("0.0.0.0" if address.version == 4 else "::")
            yield [address, address.version], [address.version] if address == everywhere else [address, everywhere]
