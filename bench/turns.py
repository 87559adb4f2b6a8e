"""Connections with one thing on its way each: a message to themselves, or their own CONNECT."""

import os
import socket
import ssl

from bench import wire
from bench.loop import BrokenRun, Loop, Totals
from bench.transport import IN, OUT, LayeredSocket, Transport, framed, framed_send, is_framed, layered


class EchoQos0:
    """One connection that is subscribed to its own topic, with one message on its way."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: bytes, totals: Totals) -> None:
        self.sock, self.totals = sock, totals
        self.frame, self.send = framed(frame) if is_framed(sock) else frame, framed_send(sock)
        self.length = len(frame)
        self.got = self.sent = self.messages = 0
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.sent += 1
        self.send(self.frame)

    def ready(self, mask: int) -> None:
        size = len(self.sock.recv(4096))
        if not size:
            raise BrokenRun("the broker closed a connection")
        self.got += size
        if self.got >= self.length:
            if self.got > self.length:
                raise BrokenRun("more came back than was sent")
            self.got = 0
            self.messages += 1
            totals = self.totals
            totals.shared[totals.slot] += 1
            if self.running:
                self.sent += 1
                self.send(self.frame)

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages


class EchoQos1:
    """As EchoQos0; the next one leaves when both the message and the PUBACK of the last one have come."""

    def __init__(self, loop: Loop, sock: socket.socket, frame: bytes, totals: Totals, at: int) -> None:
        self.sock, self.totals = sock, totals
        self.is_framed, self.send = is_framed(sock), framed_send(sock)
        self.frame = framed(frame) if self.is_framed else frame
        self.length = len(frame)
        self.at = at  # where the packet id stands
        self.sent = self.messages = 0
        self.rest = b""
        self.open = 0  # bit 0: the message, bit 1: its PUBACK
        self.running = False
        loop.add(sock, self.ready)

    def start(self) -> None:
        self.running = True
        self.sent += 1
        self.open = 3
        self.send(self.frame)

    def ready(self, mask: int) -> None:
        data = self.sock.recv(4096)
        if not data:
            raise BrokenRun("the broker closed a connection")
        if self.rest:
            data = self.rest + data
        position, end, answer = 0, len(data), b""
        while end - position >= 2:
            length = data[position + 1] + 2
            if end - position < length:
                break
            kind = data[position]
            if kind == 0x40:
                self.open &= 1
            elif kind == 0x32 and length == self.length:
                self.open &= 2
                self.messages += 1
                self.totals.shared[self.totals.slot] += 1
                answer = b"\x40\x02" + data[position + self.at : position + self.at + 2]
            else:
                raise BrokenRun(f"got {data[position : position + 16].hex()}")
            position += length
        self.rest = data[position:]
        if answer and self.is_framed:
            answer = framed(answer)
        if not self.open and self.running:
            self.open = 3
            self.sent += 1
            self.send(answer + self.frame)
        elif answer:
            self.send(answer)

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sent == self.messages and not self.open


IP_BIND_ADDRESS_NO_PORT = 24


class Caller:
    """One place in which connections come and go: TCP, CONNECT, CONNACK, DISCONNECT, close, and again.

    Each place has a source address of its own (all of 127/8 is loopback), or the ephemeral ports would run out within
    two seconds.
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        hellos: list[bytes],
        totals: Totals,
        place: int,
        transport: Transport = "tcp",
        *,
        resumes: bool = False,
    ) -> None:
        self.loop, self.address, self.hellos, self.totals = loop, address, hellos, totals
        self.transport, self.resumes = transport, resumes
        self.session: ssl.SSLSession | None = None
        self.source = (f"127.{1 + os.getpid() % 200}.{1 + place // 200}.{1 + place % 200}", 0)
        self.sent = self.messages = 0
        self.running = False
        self.sock: socket.socket | None = None

    def start(self) -> None:
        self.running = True
        self.call()

    def call(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        if self.address[0] == "127.0.0.1":
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind(self.source)
        sock.connect_ex(self.address)
        self.sock = sock = layered(sock, self.transport, self.session)
        self.greeted = False
        self.fd = self.loop.add(sock, self.ready, OUT)
        self.sent += 1

    def ready(self, mask: int) -> None:
        assert self.sock is not None
        if not self.greeted:
            self.sock.send(self.hellos[self.sent % len(self.hellos)])
            self.greeted = True
            self.loop.epoll.modify(self.fd, IN)
            return
        data = self.sock.recv(256)
        if len(data) < 4 or data[0] != 0x20 or data[3]:
            raise BrokenRun(f"CONNECT was answered with {data.hex() or 'end of stream'}")
        self.messages += 1
        self.totals.shared[self.totals.slot] += 1
        if self.resumes and isinstance(self.sock, LayeredSocket):
            self.session = self.resumed(self.sock)
        self.sock.send(wire.DISCONNECT)
        del self.loop.handlers[self.fd]
        self.sock.close()  # which also takes it out of the epoll
        self.sock = None
        if self.running:
            self.call()

    def resumed(self, sock: LayeredSocket) -> ssl.SSLSession | None:
        """What the next connection resumes."""
        if self.session is not None and not (sock.tls and sock.tls.session_reused):
            raise BrokenRun("the broker did not resume a TLS session")
        return sock.tls.session if sock.tls else None

    def after_turn(self) -> None:
        pass

    def stop(self) -> None:
        self.running = False

    def idle(self) -> bool:
        return self.sock is None
