"""MQTT over TLS and WebSocket for the generator's clients: what they use of a socket, with as little work as possible.

A client verifies nothing. Its frames are masked, as they must be, all with one mask.
"""

import select
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from websockets.speedups import apply_mask

if TYPE_CHECKING:
    from bench.loop import Loop

Buffer: TypeAlias = bytes | bytearray | memoryview
Transport: TypeAlias = Literal["tcp", "tls", "ws", "wss"]
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)
IN, OUT = select.EPOLLIN, select.EPOLLOUT
FRAMED: Final = ("ws", "wss")
ENCRYPTED: Final = ("tls", "wss")

#: Bytes of a read: what comes of them, with a part of a record that came before, has room in the buffers of all flows.
READ: Final = 1 << 18
#: Most bytes that a record of TLS holds.
RECORD: Final = 16_384
MASK: Final = b"\x5a\x13\xc7\x9e"
REQUEST: Final = (
    "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {b64encode(bytes(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
).encode()


def framed(data: bytes) -> bytes:
    """A binary message of a client."""
    size = len(data)
    if size < 126:
        header = bytes([0x82, 0x80 | size])
    elif size < 65_536:
        header = b"\x82\xfe" + size.to_bytes(2, "big")
    else:
        header = b"\x82\xff" + size.to_bytes(8, "big")
    return header + MASK + apply_mask(data, MASK)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


CONTEXT: Final = _context()


class BrokenTransport(OSError):
    """The broker sent something that this layer does not expect."""


class LayeredSocket(socket.socket):
    """A socket below TLS, WebSocket or both. What is sent before they are open waits until then.

    All of a read is decoded at once, so nothing remains here that epoll would not tell of.
    """

    def __init__(self, sock: socket.socket, transport: Transport, session: ssl.SSLSession | None = None) -> None:
        timeout = sock.gettimeout()
        super().__init__(fileno=sock.detach())
        self.settimeout(timeout)
        self.is_framed = transport in FRAMED
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls: ssl.SSLObject | None = None
        if transport in ENCRYPTED:
            self.tls = CONTEXT.wrap_bio(self.incoming, self.outgoing, session=session)
        self.begun = self.encrypted = self.open = False
        #: Frames that wait until the layers are open, and bytes that the socket did not take.
        self.waiting: list[bytes] = []
        self.unsent = bytearray()
        #: Bytes that were decoded, and not asked for yet: parts of the answers to a blocking client.
        self.early = b""
        #: The beginning of a frame's header, or of the answer to the upgrade; and bytes of a frame still to come.
        self.header = b""
        self.missing = 0
        self.loop: Loop | None = None
        self.handler: Callable[[int], None]

    def attach(self, loop: "Loop", handler: Callable[[int], None]) -> Callable[[int], None]:
        """The handler of what epoll says, instead of the given one."""
        self.loop, self.handler = loop, handler
        return self.ready

    def ready(self, mask: int) -> None:
        assert self.loop is not None
        if mask & OUT and self.unsent:
            if not self.flush():
                mask &= ~OUT
            else:
                self.loop.epoll.modify(self.fileno(), IN)
        try:
            if mask:
                self.handler(mask)
        except BlockingIOError:
            pass  # what came is no message yet

    # To the broker

    def send(self, data: Buffer, flags: int = 0) -> int:
        """In one frame. Everything is taken, or, while something waits, nothing.

        Raises:
            BlockingIOError: something waits.
        """
        self.send_framed(framed(bytes(data)) if self.is_framed else data)
        return memoryview(data).nbytes

    def sendall(self, data: Buffer, flags: int = 0) -> None:
        self.send(data)

    def send_framed(self, data: Buffer) -> int:
        """`data` goes on where the last frame ended. As `send` besides."""
        if self.unsent:
            raise BlockingIOError
        if self.open:
            self.put(data)
        else:
            self.waiting.append(bytes(data))
            if not self.begun:
                self.begun = True
                self.begin()
        return memoryview(data).nbytes

    def begin(self) -> None:
        """The next layer's opening."""
        if self.tls is not None and not self.encrypted:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.put(b"")
                return
            self.encrypted = True
            self.put(b"")
        if self.is_framed:
            self.put(REQUEST)
        else:
            self.begin_mqtt()

    def begin_mqtt(self) -> None:
        self.open = True
        self.put(b"".join(self.waiting))
        self.waiting.clear()

    def put(self, data: Buffer) -> None:
        if self.tls is not None:
            if data:
                self.tls.write(data)
            data = self.outgoing.read()
        self.unsent += data
        if not self.flush() and self.loop is not None:
            self.loop.epoll.modify(self.fileno(), IN | OUT)

    def flush(self) -> bool:
        """Whether all is sent."""
        while self.unsent:
            try:
                del self.unsent[: super().send(self.unsent)]
            except BlockingIOError:
                return False
        return True

    # From the broker

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """
        Raises:
            BlockingIOError: nothing has come, or no whole record or frame.
        """
        data = self.early
        while not data:
            received = super().recv(READ)
            if not received:
                return b""
            data = self.decoded(received)
            if not data and not self.gettimeout():
                raise BlockingIOError
        self.early = data[bufsize:]
        return data[:bufsize]

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """As that of a socket, also with MSG_TRUNC."""
        data = self.recv(2 * READ)
        if not flags:
            memoryview(buffer)[: len(data)] = data
        return len(data)

    def decoded(self, data: bytes) -> bytes:
        if self.tls is not None:
            self.incoming.write(data)
            if not self.encrypted:
                self.begin()
                if not self.encrypted:
                    return b""
            data = self.decrypted(self.tls)
        if not self.is_framed:
            return data
        return self.unframed(data if self.open else self.upgraded(data))

    def decrypted(self, tls: ssl.SSLObject) -> bytes:
        parts: list[bytes] = []
        try:
            while part := tls.read(RECORD):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)

    def upgraded(self, data: bytes) -> bytes:
        """The bytes behind the answer."""
        answer, end, rest = (self.header + data).partition(b"\r\n\r\n")
        if not end:
            self.header = answer
            return b""
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise BrokenTransport(f"the upgrade was answered with {answer[:60]!r}")
        self.header = b""
        self.begin_mqtt()
        return rest

    def unframed(self, data: bytes) -> bytes:
        """The payload of frames that are not masked."""
        if len(data) <= self.missing:
            self.missing -= len(data)
            return data
        parts: list[bytes] = []
        if self.missing:
            parts.append(data[: self.missing])
        data = self.header + data
        at, end = self.missing, len(data)
        self.missing = 0
        while end - at >= 2:
            size = data[at + 1]
            body = at + (2 if size < 126 else 4 if size == 126 else 10)
            if body > end:
                break
            if size >= 126:
                size = int.from_bytes(data[at + 2 : body], "big")
            if data[at] != 0x82:
                raise BrokenTransport(f"got a frame that begins with {data[at : at + 2].hex()}")
            at = body + size
            parts.append(data[body:at])
        self.header = data[at:]
        self.missing = max(0, at - end)
        return b"".join(parts)


def layered(sock: socket.socket, transport: Transport, session: ssl.SSLSession | None = None) -> socket.socket:
    return sock if transport == "tcp" else LayeredSocket(sock, transport, session)


def is_framed(sock: socket.socket) -> bool:
    return isinstance(sock, LayeredSocket) and sock.is_framed


def framed_send(sock: socket.socket) -> Callable[[Buffer], int]:
    """What sends packets that were put into frames beforehand, if the transport has frames."""
    return sock.send_framed if isinstance(sock, LayeredSocket) else sock.send
