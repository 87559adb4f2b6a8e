"""A client that speaks WebSocket, in bytes of its own and with wsproto, and a layer that it reaches."""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event
from wsproto.extensions import PerMessageDeflate

from tests.broker.net.below import Below
from trunkline.broker.net.websocket import WebSocketLayer
from trunkline.config.layer_settings import WebSocketSettings

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HEADERS = {
    "Host": "broker.example",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(target: str = "/mqtt", method: str = "GET", version: str = "1.1", **changed: str | None) -> bytes:
    """The request of a client; headers may be changed, or left out by None, `_` standing for `-`."""
    headers: dict[str, str | None] = {**HEADERS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {target} HTTP/{version}", *lines, "", ""]).encode("latin-1")


def frame(payload: bytes, opcode: int = 2, *, fin: bool = True, masked: bool = True, rsv1: bool = False) -> bytes:
    """A frame of a client."""
    size = len(payload)
    first = opcode | 0x80 * fin | 0x40 * rsv1
    if size < 126:
        head = bytes([first, size | 0x80 * masked])
    elif size < 65_536:
        head = bytes([first, 126 | 0x80 * masked]) + struct.pack("!H", size)
    else:
        head = bytes([first, 127 | 0x80 * masked]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def layer(below: Below, **settings: object) -> WebSocketLayer:
    made = WebSocketLayer(below, "/mqtt", WebSocketSettings.model_validate(settings))
    below.put(made)
    return made


def opened(**settings: object) -> tuple[Below, WebSocketLayer]:
    below = Below()
    made = layer(below, **settings)
    below.receive(request())
    assert below.sent.startswith(b"HTTP/1.1 101 ")
    below.writes.clear()
    return below, made


class Client:
    """wsproto at the other end."""

    def __init__(self, below: Below, extensions: Sequence[PerMessageDeflate] = ()) -> None:
        self.below = below
        self.frames = Connection(ConnectionType.CLIENT, list(extensions))

    def events(self) -> list[Event]:
        """What the layer has sent."""
        self.frames.receive_data(self.below.sent)
        self.below.writes.clear()
        return list(self.frames.events())

    def data(self) -> bytes:
        return b"".join(event.data for event in self.events() if isinstance(event, BytesMessage))

    def close(self) -> CloseConnection | None:
        return next((event for event in self.events() if isinstance(event, CloseConnection)), None)


def compressed() -> tuple[Below, WebSocketLayer, Client]:
    below = Below()
    made = layer(below, compression=True)
    below.receive(request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    head = below.sent.decode()
    below.writes.clear()
    extension = PerMessageDeflate()
    (line,) = [line for line in head.split("\r\n") if line.startswith("Sec-WebSocket-Extensions: ")]
    extension.finalize(line.partition(": ")[2])
    return below, made, Client(below, [extension])


def bomb(size: int) -> Iterator[bytes]:
    """A message of zeros."""
    deflate = zlib.compressobj(9, wbits=-15)
    packed = (deflate.compress(bytes(size)) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    yield frame(packed, rsv1=True)
