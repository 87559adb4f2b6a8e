"""The HTTP request that opens a WebSocket: what it must say, and the answers to one that does not.

An answer of 400 and above has a body that says what to do, for a person who opens the address in a browser or with
curl, and for a developer whose client logs it.
"""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from wsproto.handshake import server_extensions_handshake
from wsproto.utilities import generate_accept_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    import h11
    from wsproto.extensions import Extension


class Spoken(NamedTuple):
    """A protocol over WebSocket."""

    name: str
    #: What is chosen of the subprotocols that a client offers, in this order. It must offer one, unless there are none.
    subprotocols: tuple[str, ...]


#: [MQTT-6.0.0-4]
MQTT: Final = Spoken("MQTT", ("mqtt", "mqttv3.1"))
NATS: Final = Spoken("NATS", ())
#: What is meant once: of two, a proxy in between may have looked at the other.
_ONCE: Final = ("Host", "Origin", "Sec-WebSocket-Key", "Sec-WebSocket-Version")
#: Characters of a request's value that the log shows.
MAX_SHOWN: Final = 100


class UpgradeRefused(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, advice: str, detail: str = "", headers: str = "") -> None:
        super().__init__(advice)
        self.status = status
        #: One of a fixed number of texts: what was wrong, and what to do.
        self.advice = advice
        #: The part of the request that was wrong.
        self.detail = detail[:MAX_SHOWN]
        self._headers = headers

    @property
    def response(self) -> bytes:
        body = f"{self.advice}\n".encode()
        return (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"{self._headers}Connection: close\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


class UpgradeRequest(NamedTuple):
    """A request that may be accepted."""

    key: bytes
    #: The extensions that the client offers, each with its parameters.
    extensions: list[str]
    #: Empty where the protocol has none.
    subprotocol: str

    def accept(self, supported: Sequence[Extension]) -> tuple[bytes, list[Extension]]:
        """The response, and those of the extensions that the client offers, too. Only its first offer of each counts:
        wsproto would mix the parameters of several."""
        token = generate_accept_token(self.key).decode()
        offers = {offer.partition(";")[0].strip().lower(): offer for offer in reversed(self.extensions)}
        agreed = None
        with suppress(ValueError):  # a parameter is not a number
            agreed = server_extensions_handshake(offers.values(), list(supported))
        response = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {token}\r\n"
            + (f"Sec-WebSocket-Protocol: {self.subprotocol}\r\n" if self.subprotocol else "")
            + (f"Sec-WebSocket-Extensions: {agreed.decode()}\r\n" if agreed else "")
            + "\r\n"
        ).encode()
        return response, list(supported) if agreed else []


def check(request: h11.Request, path: str, origins: Sequence[str], spoken: Spoken = MQTT) -> UpgradeRequest:
    """`origins` are those of the web pages that may connect; all may if it is empty.

    Raises:
        UpgradeRefused: this is not the request for a WebSocket that the settings allow.
    """
    headers = list(request.headers)
    target = request.target.decode("latin-1")
    if request.method != b"GET":
        raise UpgradeRefused(405, "A WebSocket is opened by a GET request.", request.method.decode(), "Allow: GET\r\n")
    if target.partition("?")[0] != path:
        raise UpgradeRefused(404, f"{spoken.name} over WebSocket is at {path}, nothing else is at this port.", target)
    upgrade, connection = ([value.lower() for value in _listed(headers, name)] for name in (b"upgrade", b"connection"))
    if request.http_version < b"1.1" or "websocket" not in upgrade or "upgrade" not in connection:
        raise UpgradeRefused(
            426,
            f"This address is for {spoken.name} over WebSocket: open it with a client of {spoken.name} and a ws:// or "
            "wss:// URL. If a proxy is in between, it must pass on the headers Upgrade and Connection.",
            headers="Upgrade: websocket\r\n",
        )
    for name in _ONCE:
        if sum(key == name.lower().encode() for key, _ in headers) > 1:
            raise UpgradeRefused(400, "A header that may come once comes twice.", name)
    if any(key == b"transfer-encoding" or (key == b"content-length" and value != b"0") for key, value in headers):
        raise UpgradeRefused(400, "A request for a WebSocket has no body.")
    version = _value(headers, b"sec-websocket-version")
    if version != "13":
        raise UpgradeRefused(426, "Version 13 of WebSocket is needed.", version or "", "Sec-WebSocket-Version: 13\r\n")
    origin = _value(headers, b"origin")
    # programs that are no browsers send none, which an empty one is not
    if origin is not None and origins and origin.lower() not in map(str.lower, origins):
        raise UpgradeRefused(403, "Pages of this origin may not connect: `websocket.origins` does not list it.", origin)
    key = _value(headers, b"sec-websocket-key") or ""
    if not _is_key(key):
        raise UpgradeRefused(400, "The header Sec-WebSocket-Key must be 16 bytes in Base64.", key)
    chosen = _chosen(_listed(headers, b"sec-websocket-protocol"), spoken) if spoken.subprotocols else ""
    return UpgradeRequest(key.encode(), _listed(headers, b"sec-websocket-extensions"), chosen)


def _chosen(offered: Sequence[str], spoken: Spoken) -> str:
    for subprotocol in spoken.subprotocols:
        for asked in offered:
            if asked.lower() == subprotocol:
                return asked  # as it was asked for: browsers compare letter by letter
    raise UpgradeRefused(400, f"The client must offer the subprotocol `{spoken.subprotocols[0]}`.", ", ".join(offered))


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def _value(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


def _listed(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values of a header that may come several times, and have several in one."""
    values = ",".join(value.decode("latin-1") for key, value in headers if key == name)
    return [value for each in values.split(",") if (value := each.strip())]
