"""A long run with mixed traffic and clients that are killed, cut and stalled at random: `python -m bench.soak --help`.

A fifth of the connections are publishers at QoS 1 and 2, a fifth their subscribers, in sessions that stay; the others
are idle. A tenth comes by TLS and a tenth by WebSocket. At the end no message may be missing, none of QoS 2 may have
come twice, memory must not have grown after the first quarter, and when all clients are gone, the broker must have no
more tasks and open files than at the start, no actor of a connection, and one actor for each session that stays.
"""

import argparse
import contextlib
import random
import resource
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import trio
import trustme

from bench import wire
from bench.command import write_results
from bench.peers import TRUNKLINE_CONF, Peer, Running, free_port, running, watched
from bench.turns import IP_BIND_ADDRESS_NO_PORT
from bench.wire import V311, Refused
from trunkline.client.websocket import WebSocketStream

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
KEEP_ALIVE: Final = 20.0  # s between two PINGREQs of an idle client
STALL: Final = 5.0  # s for which a stalled client reads nothing
TROUBLE: Final = 0.02  # the share of all connections that trouble comes to, each second
PATIENCE: Final = 120.0  # s for everything to arrive, after the end
GROWTH: Final = 1.1  # times the memory after the first quarter
SLACK: Final = 16_000_000  # bytes, for what an allocator keeps
SOURCES: Final = 200  # addresses that clients come from: one has too few ports for all that come again and again
AT_ONCE: Final = 100  # clients that connect at the same time

#: How a client comes, by its number.
WAYS: Final = ("tls", "ws", *["tcp"] * 8)


Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream] | WebSocketStream


#: How the end of a connection is seen.
LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, Refused)


class Client:
    """It connects again whenever its connection is lost."""

    def __init__(self, soak: "Soak", name: str, number: int) -> None:
        self.soak = soak
        self.name = name
        self.source = f"127.0.1.{1 + number % SOURCES}"
        self.way = WAYS[number // 2 % len(WAYS)]  # publishers and subscribers of both QoS come each way
        #: What it connects by, and what is on top of it once the broker has accepted it.
        self.transport: trio.SocketStream | None = None
        self.stream: Stream | None = None
        self.stalled = 0.0  # until then
        self.buffer = b""

    async def run(self) -> None:
        while not self.soak.over:
            with contextlib.suppress(*LOST):
                await self._live()
            self.transport = self.stream = None
            await trio.sleep(random.uniform(0.05, 0.5))

    async def _live(self) -> None:
        sock = trio.socket.socket()
        try:
            async with self.soak.connecting:
                stream = await self._connect(sock)
            self.soak.counted["connections"] += 1
            await self.connected(stream)
        finally:
            sock.close()

    async def _connect(self, sock: trio.socket.SocketType) -> Stream:
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        await sock.bind((self.source, 0))
        await sock.connect(("127.0.0.1", self.soak.ports[self.way]))
        stream: Stream
        self.transport = stream = trio.SocketStream(sock)
        if self.way == "tls":
            stream = trio.SSLStream(self.transport, self.soak.trust, server_hostname="localhost", https_compatible=True)
        elif self.way == "ws":
            stream = WebSocketStream(self.transport)
            await stream.handshake("localhost", "/mqtt")
        self.buffer = b""
        await stream.send_all(wire.connect(self.name, V311, stays=self.stays))
        self.stream = stream
        if (await self.packet())[0] != 0x20:
            raise Refused("no CONNACK")
        return stream

    stays = False

    async def connected(self, stream: Stream) -> None:
        due = trio.current_time() + random.uniform(0, KEEP_ALIVE)
        while True:
            with trio.move_on_at(due):
                await self.packet()
                continue
            await stream.send_all(wire.PINGREQ)
            due += KEEP_ALIVE

    async def packet(self) -> tuple[int, bytes]:
        """
        Raises:
            Refused: the connection has ended.
        """
        assert self.stream is not None
        while (found := self._cut()) is None:
            if self.stalled > trio.current_time():
                await trio.sleep_until(self.stalled)
            data = await self.stream.receive_some(65_536)
            if not data:
                raise Refused("closed")
            self.buffer += data
        return found

    def _cut(self) -> tuple[int, bytes] | None:
        """The packets here have less than 128 bytes."""
        buffer = self.buffer
        if len(buffer) < 2 or len(buffer) < buffer[1] + 2:
            return None
        self.buffer = buffer[buffer[1] + 2 :]
        return buffer[0], buffer[2 : buffer[1] + 2]

    async def trouble(self) -> None:
        transport = self.transport
        kind = random.choice(("killed", "cut", "stalled"))
        self.soak.counted[kind] += 1
        if kind == "stalled":
            self.stalled = trio.current_time() + STALL
        elif transport is not None:
            if kind == "killed":
                with contextlib.suppress(OSError):  # it has just ended
                    transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await trio.aclose_forcefully(transport)


class Publisher(Client):
    """One message at a time, sent again on a new connection until it is acknowledged."""

    stays = True

    def __init__(self, soak: "Soak", number: int, qos: int) -> None:
        super().__init__(soak, f"p-{number}", number)
        self.topic, self.qos = f"soak/{number}", qos
        self.sent = 0  # all of them are acknowledged, but for the last
        self.acknowledged = 0
        self.received = False  # the PUBREC for the last has come

    async def connected(self, stream: Stream) -> None:
        again = self.sent > self.acknowledged
        while True:
            if self.sent == self.acknowledged:
                if self.soak.stopped.is_set():
                    self.soak.idle.add(self)
                    await self.packet()  # until the connection ends
                    continue
                self.sent += 1
                self.received = False
            await self._send(stream, again)
            again = False
            self.acknowledged = self.sent
            with trio.move_on_after(self.soak.interval):
                await self.soak.stopped.wait()

    async def _send(self, stream: Stream, again: bool) -> None:
        packet_id = struct.pack("!H", self.sent % 65_535 + 1)
        if not self.received:
            frame = wire.publish(self.topic, b"%d" % self.sent, self.qos, V311, self.sent % 65_535 + 1)
            await stream.send_all(bytes([frame[0] | 8 * again]) + frame[1:])
            await self._answer(PUBACK if self.qos == 1 else PUBREC, packet_id)
            if self.qos == 1:
                return
            self.received = True
        await stream.send_all(bytes([PUBREL, 2]) + packet_id)
        await self._answer(PUBCOMP, packet_id)

    async def _answer(self, kind: int, packet_id: bytes) -> None:
        while await self.packet() != (kind, packet_id):
            pass


class Subscriber(Client):
    stays = True

    def __init__(self, soak: "Soak", number: int, qos: int) -> None:
        super().__init__(soak, f"s-{number}", number)
        self.topic, self.qos = f"soak/{number}", qos
        self.subscribed = trio.Event()
        self.got = 0  # all numbers up to this
        self.beyond: set[int] = set()  # others that have come
        self.twice = 0
        self.open: set[bytes] = set()  # packet ids of QoS 2 whose PUBREL has not come

    async def connected(self, stream: Stream) -> None:
        await stream.send_all(wire.subscribe(self.topic, self.qos, V311))
        while True:
            first, body = await self.packet()
            if first & 0xF0 == 0x30:
                place = 2 + int.from_bytes(body[:2], "big")
                packet_id, number = body[place : place + 2], int(body[place + 2 :])
                if self.qos == 1 or packet_id not in self.open:
                    self._note(number)
                if self.qos == 2:
                    self.open.add(packet_id)
                await stream.send_all(bytes([PUBACK if self.qos == 1 else PUBREC, 2]) + packet_id)
            elif first == 0x90:
                self.subscribed.set()
            elif first == PUBREL:
                self.open.discard(body)
                await stream.send_all(bytes([PUBCOMP, 2]) + body)

    def _note(self, number: int) -> None:
        if number <= self.got or number in self.beyond:
            self.twice += 1
            return
        self.beyond.add(number)
        while self.got + 1 in self.beyond:
            self.got += 1
            self.beyond.discard(self.got)


@dataclass
class Outcome:
    sent: int
    lost: int
    twice: int  # of QoS 2
    memory: list[int]  # bytes, each second
    files: tuple[int, int]  # that the broker has open, at the start and at the end
    tasks: tuple[int, int]  # likewise
    actors: tuple[int, int]  # at the end: of connections, and of sessions beyond those that stay
    counted: dict[str, int]

    @property
    def settled(self) -> list[int]:
        """The memory after the first quarter."""
        return self.memory[len(self.memory) // 4 :]

    @property
    def slope(self) -> float:
        """Bytes a second by which the memory grows after the first quarter: the line that fits best."""
        settled = self.settled
        return statistics.linear_regression(range(len(settled)), settled).slope if len(settled) > 1 else 0.0

    @property
    def problems(self) -> list[str]:
        early, growth = self.settled[0], self.slope * len(self.settled)
        connections, sessions = self.actors
        found = {
            f"{self.lost:,} messages lost": self.lost,
            f"{self.twice:,} messages of QoS 2 came twice": self.twice,
            f"memory grew from {early / 1e6:,.0f} by {growth / 1e6:,.0f} MB": growth > (GROWTH - 1) * early + SLACK,
            f"{self.files[1] - self.files[0]} files stay open": self.files[1] > self.files[0],
            f"{self.tasks[1] - self.tasks[0]} tasks go on": self.tasks[1] > self.tasks[0],
            f"{connections} actors of connections are left": connections,
            f"{sessions} actors of sessions are left": sessions,
        }
        return [text for text, is_so in found.items() if is_so]


class Watch:
    """What a broker has open, and until when one waits for it."""

    def __init__(self, broker: Running) -> None:
        self.broker = broker
        #: Each second.
        self.memory: list[int] = []

    def tasks(self) -> int:
        return int(self.broker.watched()["tasks"])

    def actors(self, layer: str) -> int:
        command = ["ctl", "--socket", str(self.broker.folder / "control"), "actors", "--layer", layer, "--json"]
        done = subprocess.run([sys.executable, "-m", "trunkline", *command], capture_output=True, text=True, check=True)
        return len(done.stdout.splitlines())

    def files(self) -> int:
        """What is open several times counts once: a store opens its log again when it reads for the first time."""
        found: set[str] = set()
        for each in Path(f"/proc/{self.broker.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(each.readlink()))
        return len(found)

    def outcome(
        self, before: tuple[int, int], sent: int, lost: int, twice: int, staying: int, counted: dict[str, int]
    ) -> Outcome:
        """`before` are the files and tasks at the start, `staying` the sessions that outlive their connections."""
        return Outcome(
            sent,
            lost,
            twice,
            self.memory,
            (before[0], self.files()),
            (before[1], self.tasks()),
            (self.actors("connections"), self.actors("sessions") - staying),
            counted,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until then, or until patience ends."""
        with trio.move_on_after(PATIENCE):
            while not condition():  # noqa: ASYNC110 - the broker is another process
                await trio.sleep(0.1)


class Soak(Watch):
    def __init__(
        self,
        broker: Running,
        ports: dict[str, int],
        trust: ssl.SSLContext,
        connections: int,
        seconds: float,
        interval: float,
    ) -> None:
        super().__init__(broker)
        self.ports, self.trust, self.seconds, self.interval = ports, trust, seconds, interval
        pairs = max(2, connections // 5)
        self.publishers = [Publisher(self, number, 1 + number % 2) for number in range(pairs)]
        self.subscribers = [Subscriber(self, number, 1 + number % 2) for number in range(pairs)]
        idle = [Client(self, f"i-{number}", number) for number in range(max(0, connections - 2 * pairs))]
        self.clients: list[Client] = [*self.subscribers, *self.publishers, *idle]
        self.counted: Counter[str] = Counter()
        self.connecting = trio.CapacityLimiter(AT_ONCE)
        #: No new messages from now on, and no trouble; publishers with nothing left to send.
        self.stopped = trio.Event()
        self.idle: set[Publisher] = set()
        self.over = False

    async def run(self) -> Outcome:
        for port in self.ports.values():
            await self.until(partial(listens, port))
        await trio.sleep(1)  # and whatever else belongs to the start
        before = self.files(), self.tasks()
        async with trio.open_nursery() as nursery:
            for subscriber in self.subscribers:
                nursery.start_soon(subscriber.run)
            for subscriber in self.subscribers:
                await subscriber.subscribed.wait()
            for client in self.clients[len(self.subscribers) :]:
                nursery.start_soon(client.run)
            await self.until(lambda: all(client.stream for client in self.clients))
            began, last = time.monotonic(), -1.0
            while (now := time.monotonic() - began) < self.seconds:
                self.memory.append(self.broker.memory())
                if now - last >= 10:
                    last = now
                    print(f"{now:>6.0f} s {self.memory[-1] / 1e6:>8.0f} MB {dict(self.counted)}", file=sys.stderr)
                for client in random.sample(self.clients, max(1, int(TROUBLE * len(self.clients)))):
                    await client.trouble()
                await trio.sleep(1)
            self.stopped.set()
            await self.until(lambda: len(self.idle) == len(self.publishers))
            await self.until(lambda: not self.lost())
            self.over = True
            nursery.cancel_scope.cancel()
        await self.until(lambda: self.files() <= before[0])
        staying = sum(client.stays for client in self.clients)
        await self.until(lambda: not self.actors("connections") and self.actors("sessions") <= staying)
        sent = sum(publisher.sent for publisher in self.publishers)
        twice = sum(each.twice for each in self.subscribers if each.qos == 2)
        return self.outcome(before, sent, self.lost(), twice, staying, dict(self.counted))

    def lost(self) -> int:
        return sum(
            publisher.sent - subscriber.got - len(subscriber.beyond)
            for publisher, subscriber in zip(self.publishers, self.subscribers, strict=True)
        )


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return not sock.connect_ex(("127.0.0.1", port))


def secured(folder: Path) -> tuple[Peer, dict[str, int], ssl.SSLContext]:
    """The broker with a listener for each way, the ports of those but TCP, and what trusts its certificate."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    certificate = authority.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    ports = {"tls": free_port(), "ws": free_port()}
    place = folder / "server.pem"
    listeners = [f"tls://127.0.0.1:{ports['tls']}?cert={place}&key={place}", f"ws://127.0.0.1:{ports['ws']}"]
    peer = watched()
    command = [*peer.command, *[word for url in listeners for word in ("--listen", url)]]
    config = TRUNKLINE_CONF + '[control]\npath = "{folder}/control"\n'
    return replace(peer, command=command, config=config), ports, trust


def allow_files(connections: int) -> None:
    """As many as the system allows, to this process and to the broker, which inherits it; enough, or it ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < connections + 100:
        sys.exit(f"{connections} connections need as many open files, and the system allows {hard}: ulimit -Hn")


def options(name: str, about: str | None, interval: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=about)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--interval", type=float, default=interval, help="seconds between two messages of a publisher")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def tell(given: argparse.Namespace, outcome: Outcome) -> int:
    """The exit status: whether something is wrong."""
    memory = outcome.settled
    print(f"{given.connections:,} connections, {given.minutes:g} minutes: {outcome.sent:,} messages")
    print(f"{outcome.lost:,} lost, {outcome.twice:,} of QoS 2 twice")
    print(
        f"memory after the first quarter: {memory[0] / 1e6:,.0f} MB, at most {max(memory) / 1e6:,.0f} MB, "
        f"at the end {memory[-1] / 1e6:,.0f} MB; slope {outcome.slope * 60 / 1e6:+.3f} MB a minute"
    )
    for name, (before, after) in {"open files": outcome.files, "tasks": outcome.tasks}.items():
        print(f"{name}: {before} before, {after} afterwards")
    print("actors afterwards: {} of connections, {} of sessions that should be gone".format(*outcome.actors))
    print(", ".join(f"{number:,} {name}" for name, number in outcome.counted.items()))
    for problem in outcome.problems:
        print(f"MISSED: {problem}")
    write_results(given, outcome.__dict__)
    return 1 if outcome.problems else 0


def main() -> int:
    given = options("soak", __doc__, interval=1.0).parse_args()
    allow_files(given.connections)
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as place:
        peer, ports, trust = secured(Path(place))
        with running(peer, None, folder=Path(place)) as broker:
            ports["tcp"] = broker.address[1]
            soak = Soak(broker, ports, trust, given.connections, given.minutes * 60, given.interval)
            outcome = trio.run(soak.run)
    return tell(given, outcome)


if __name__ == "__main__":
    sys.exit(main())
