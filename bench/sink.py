"""Not a broker: the least that a server of these workloads can do, to show what the generator itself can take.

It answers CONNECT and SUBSCRIBE, and from then on splices bytes without looking at them: what publisher `p-1` sends goes
to every subscriber `s-1…` and back, `e-1` gets its own bytes. QoS 1 and 2 work, as the two ends acknowledge each other.
"""

import select
import socket
import sys

CHUNK = 1 << 18


class Splice:
    """One connection; `others` get what it says."""

    def __init__(self, server: "Sink", sock: socket.socket) -> None:
        self.server, self.sock, self.fd = server, sock, sock.fileno()
        self.others: list[Splice] = []
        self.name = ""
        self.greeting = True
        self.v5 = False
        self.pending = bytearray()

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
        if not data:
            self.server.forget(self)
        elif self.greeting:
            self.greet(data)
        else:
            for other in self.others:
                other.write(data)

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
            self.greeting = self.name[0] in "sei"
            self.server.introduce(self)
            self.sock.send(b"\x20\3\0\0\0" if self.v5 else b"\x20\2\0\0")
        elif data[0] == 0x82:
            self.greeting = False
            identifier = data[2:4]
            self.sock.send((b"\x90\4" + identifier + b"\0" if self.v5 else b"\x90\3" + identifier) + data[-1:])
        # DISCONNECT: the end of the stream follows


class Sink:
    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.splices: dict[int, Splice] = {}
        self.groups: dict[str, list[Splice]] = {}

    def introduce(self, splice: Splice) -> None:
        kind, _, rest = splice.name.partition("-")
        if kind == "e":
            splice.others = [splice]
        elif kind in "ps":
            group = self.groups.setdefault(rest.partition("-")[0], [])
            for other in group:
                if (other.name[0] == "p") != (kind == "p"):
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
