"""The URLs of listeners, and the addresses that they take."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

T = TypeVar("T")

#: The schemes of listeners and their default ports: those of EMQX for MQTT over WebSocket.
PORTS: Final = {
    "tcp": 1883,
    "tls": 8883,
    "ws": 8083,
    "wss": 8084,
    "unix": 0,
    "nats": 4222,
    "nats+tls": 4222,
    "nats+ws": 8080,
    "nats+wss": 8443,
}
#: The one where a client may be greeted before TLS begins.
NATS_TLS: Final = "nats+tls"
#: Those with TLS at the bottom.
ENCRYPTED: Final = ("tls", "wss", NATS_TLS, "nats+wss")
#: Those with WebSocket.
WEBSOCKET: Final = ("ws", "wss", "nats+ws", "nats+wss")
#: Those where NATS is spoken, and not MQTT.
NATS: Final = ("nats", NATS_TLS, "nats+ws", "nats+wss")
#: Other names of schemes.
ALIASES: Final = {"mqtt": "tcp", "mqtts": "tls"}
#: Paths of WebSocket listeners whose URL has none: where clients of a protocol look for it.
WEBSOCKET_PATH: Final = "/mqtt"
NATS_WEBSOCKET_PATH: Final = "/"
#: The host that stands for all IPv4 and IPv6 addresses.
ANY_HOST: Final = "*"


class ListenerAddress(NamedTuple):
    """What a listener's URL says, without its query."""

    #: One of `PORTS`.
    scheme: str
    #: Empty for Unix sockets.
    host: str
    #: 0 lets the system choose one.
    port: int
    #: Of the socket's file, or of the resource of a WebSocket; else empty.
    path: str


def split_query(url: str) -> tuple[str, dict[str, str]]:
    """A listener's URL without its query, and the parameters of the query.

    Raises:
        ValueError: the query is invalid.
    """
    url, mark, query = url.partition("?")
    if not mark:
        return url, {}
    try:
        parameters = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise ValueError(f"the query of {url} is not of the form ?NAME=VALUE&NAME=VALUE") from None
    if len(dict(parameters)) < len(parameters):
        raise ValueError(f"the query of {url} has a parameter twice")
    return url, dict(parameters)


@lru_cache
def split_listener_url(url: str) -> ListenerAddress:
    """
    Raises:
        ValueError: this is not a listener's URL, or it has a query.
    """
    if "://" not in url:
        raise ValueError("no scheme")
    if "?" in url or "#" in url or "@" in url:
        raise ValueError("?, # and @ have no meaning here")
    parts = urlsplit(url)
    scheme = ALIASES.get(parts.scheme, parts.scheme)
    if scheme not in PORTS:
        raise ValueError(f"{parts.scheme or 'nothing'} is none of {', '.join(PORTS)}")
    if scheme == "unix":
        if parts.netloc or not parts.path.startswith("/") or parts.path.endswith("/") or "%00" in parts.path:
            raise ValueError("no file's path, which begins with / behind unix://")
        return ListenerAddress(scheme, "", 0, unquote(parts.path))
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc:
        raise ValueError("an IPv6 address stands in brackets")
    if not parts.hostname:
        raise ValueError("no host; 0.0.0.0 and [::] are all addresses of this machine")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if port == -1 or parts.netloc.endswith(":"):
        raise ValueError("the port is a number, 0 to 65535")
    path = parts.path
    if scheme in WEBSOCKET:
        path = path if path.strip("/") else NATS_WEBSOCKET_PATH if scheme in NATS else WEBSOCKET_PATH
    elif path:
        raise ValueError("only URLs of WebSocket have a path")
    try:
        if not parts.hostname.isprintable() or " " in parts.hostname:
            raise UnicodeError
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError(f"{parts.hostname} cannot be the name of a host") from None
    return ListenerAddress(scheme, parts.hostname, PORTS[scheme] if port is None else port, path)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`. A name other than localhost may resolve to any
    address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def shown_address(address: tuple[str, int]) -> str:
    """Host and port, or the path of a Unix socket."""
    host, port = address
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


_NAMES: Final = {"localhost": ("127.0.0.1", "::1"), ANY_HOST: ("0.0.0.0", "::")}


def _meant(host: str) -> Iterator[tuple[list[object], list[object]]]:
    """The keys of an address, and those that it collides with. A host name counts as different from its address."""
    for each in _NAMES.get(host, (host,)):
        try:
            address = ip_address(each)
        except ValueError:
            yield [each], [each]
        else:
            everywhere = ip_address("0.0.0.0" if address.version == 4 else "::")
            yield [address, address.version], [address.version] if address == everywhere else [address, everywhere]
