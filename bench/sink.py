"""Not a broker: the least that a server of these workloads can do, to show what the generator itself can take.

It answers CONNECT and SUBSCRIBE, and from then on splices bytes without looking at them. What a client is there for is
the first letter of its client id: what publisher `p-1` sends goes to every subscriber `s-1…` and back; what the many
`m-1…` send goes there in whole packets, or to one of the group `g-1…` in turn; `e-1` gets its own bytes. QoS 1 and 2
work, as the two ends acknowledge each other. Only `x-…` is answered packet by packet: it subscribes, or retains.
"""

import select
import socket
import sys
from typing import TYPE_CHECKING

from bench import wire

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 18


class Splice:
    """One connection; `others` get what it says."""

    def __init__(self, server: "Sink", sock: socket.socket) -> None:
        self.server, self.sock, self.fd = server, sock, sock.fileno()
        self.others: list[Splice] = []
        self.name = ""
        self.v5 = False
        self.heard: Callable[[bytes], None] = self.greet
        self.pending = bytearray()
        self.rest = b""
        self.turn = 0

    def ready(self, mask: int) -> None:
        if mask & select.EPOLLOUT:
            del self.pending[: self.sock.send(self.pending)]
            if not self.pending:
                self.server.epoll.modify(self.fd, select.EPOLLIN)
        if not mask & ~select.EPOLLOUT:
            return
        try:
            data = self.sock.recv(CHUNK)
        except ConnectionResetError:
            data = b""
        if data:
            self.heard(data)
        else:
            self.server.forget(self)

    def write(self, data: bytes) -> None:
        if not self.pending:
            try:
                taken = self.sock.send(data)
            except BlockingIOError:
                taken = 0
            except OSError:
                return
            if taken == len(data):
                return
            data = data[taken:]
            self.server.epoll.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)
        self.pending += data

    def greet(self, data: bytes) -> None:
        """Small packets, one a chunk: the generator waits for each answer. The last byte of a SUBSCRIBE is its QoS."""
        if data[0] == 0x10:
            self.v5 = data[8] == 5
            start = 13 if self.v5 else 12
            self.name = data[start + 2 : start + 2 + data[start + 1]].decode()
            handlers = {"p": self.forward, "m": self.forward_whole, "x": self.answer}
            self.heard = handlers.get(self.name[0], self.greet)
            self.server.introduce(self)
            self.sock.send(b"\x20\3\0\0\0" if self.v5 else b"\x20\2\0\0")
        elif data[0] == 0x82:
            self.heard = self.forward
            identifier = data[2:4]
            self.sock.send((b"\x90\4" + identifier + b"\0" if self.v5 else b"\x90\3" + identifier) + data[-1:])
        # DISCONNECT: the end of the stream follows

    def forward(self, data: bytes) -> None:
        for other in self.others:
            other.write(data)

    def forward_whole(self, data: bytes) -> None:
        """What others write into the same stream, too, must not be cut. All packets have one length."""
        data = self.rest + data
        bounds = packet_at(data, 0)
        if bounds is None:
            self.rest = data
            return
        size = len(data) // bounds[1] * bounds[1]
        self.rest = data[size:]
        if self.others[0].name[0] == "g":
            self.turn += 1
            self.others[self.turn % len(self.others)].write(data[:size])
        else:
            self.forward(data[:size])

    def answer(self, data: bytes) -> None:
        data, at = self.rest + data, 0
        answers = bytearray()
        while bounds := packet_at(data, at):
            body, end = bounds
            answers += self.reply(data[at], data[body:end])
            at = end
        self.rest = data[at:]
        if answers:
            self.write(bytes(answers))

    def reply(self, first: int, body: bytes) -> bytes:
        properties = b"\0" if self.v5 else b""
        if first == 0x82:
            filters = filters_of(body[2 + len(properties) :])
            reply = wire.packet(0x90, body[:2] + properties + bytes(len(filters)))
            return reply + self.server.retained if filters[0].startswith(b"bench/") else reply
        if first == 0xA2:
            return wire.packet(0xB0, body[:2] + properties * 2)
        if first == 0x31:
            self.server.retained += wire.packet(first, body)
        return b"\xd0\0" if first == wire.PINGREQ[0] else b""


def packet_at(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the body of the packet begins and ends, if all of it is there."""
    length = shift = 0
    for body in range(at + 2, min(at + 6, len(data) + 1)):
        digit = data[body - 1]
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            return (body, body + length) if body + length <= len(data) else None
        shift += 7
    return None


def filters_of(data: bytes) -> list[bytes]:
    filters, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        filters.append(data[at + 2 : end])
        at = end + 1
    return filters


class Sink:
    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.splices: dict[int, Splice] = {}
        self.groups: dict[str, list[Splice]] = {}
        self.retained = bytearray()

    def introduce(self, splice: Splice) -> None:
        kind, _, rest = splice.name.partition("-")
        if kind == "e":
            splice.others = [splice]
        elif kind in "pmsg":
            group = self.groups.setdefault(rest.partition("-")[0], [])
            for other in group:
                if (other.name[0] in "pm") != (kind in "pm"):
                    other.others.append(splice)
                    splice.others.append(other)
            group.append(splice)

    def forget(self, splice: Splice) -> None:
        del self.splices[splice.fd]
        splice.sock.close()
        for other in splice.others:
            if splice in other.others and other is not splice:
                other.others.remove(splice)

    def run(self) -> None:
        listening, splices = self.listener.fileno(), self.splices
        while True:
            for fd, mask in self.epoll.poll():
                if fd == listening:
                    self.accept()
                else:
                    splices[fd].ready(mask)

    def accept(self) -> None:
        for _ in range(64):
            try:
                sock, _peer = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.splices[sock.fileno()] = Splice(self, sock)
            self.epoll.register(sock.fileno(), select.EPOLLIN)


if __name__ == "__main__":
    Sink(int(sys.argv[1])).run()
