"""What hostile and careless clients do to a broker, over blocking sockets: each attack prepares itself, then strikes
again and again. All that it sends goes to the broker under test, and ends with the run."""

import contextlib
import signal
import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count, product
from typing import ClassVar, Final

from bench import wire
from bench.paced import PATIENCE, Account, Station, clock
from bench.peers import Running
from bench.wire import V5, Refused

CONNACK, PUBACK, PUBREC, SUBACK, UNSUBACK, PINGRESP = 0x20, 0x40, 0x50, 0x90, 0xB0, 0xD0

#: User properties that weigh almost a megabyte, so that the packet is one that brokers take.
HEAVY: Final = (b"\x26\0\1k\xff\xff" + b"v" * 65_535) * 15
STREAM: Final = '[[streams]]\nname = "s"\nfilters = ["st/#"]\n'
LONGEST_EXPIRY: Final = b"\x02\xff\xff\xff\xff"


def varint(value: int) -> bytes:
    return wire.packet(0, bytes(value))[1:-value] if value else b"\0"


def text(value: str) -> bytes:
    return struct.pack("!H", len(value.encode())) + value.encode()


def connect(client_id: str, *, expiry: int = 0, keep_alive: int = 0, login: Sequence[str] = ()) -> bytes:
    """A 5.0 client, with a session that it takes up again if that has an expiry."""
    flags = (0x02 if not expiry else 0) | (0xC0 if login else 0)
    properties = b"\x11" + struct.pack("!I", expiry)
    head = text("MQTT") + bytes([V5, flags]) + struct.pack("!H", keep_alive) + varint(len(properties)) + properties
    return wire.packet(0x10, head + b"".join(map(text, (client_id, *login))))


def publish(
    topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 0, properties: bytes = b"", *, retain: bool = False
) -> bytes:
    identifier = struct.pack("!H", packet_id) if qos else b""
    body = text(topic) + identifier + varint(len(properties)) + properties + payload
    return wire.packet(0x30 | qos << 1 | retain, body)


class Client:
    """It waits for each answer, up to `PATIENCE`."""

    def __init__(self, address: tuple[str, int], hello: bytes) -> None:
        self.sock = socket.create_connection(address, timeout=PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(hello)
        first, body = wire.read_packet(self.sock)
        if first != CONNACK or body[1]:
            raise Refused(f"CONNECT was answered with {first:#x} {body[:8].hex()}")

    def ask(self, packet: bytes, answer: int) -> None:
        """Send, and read up to an answer of this type; what comes before is thrown away."""
        self.sock.sendall(packet)
        while wire.read_packet(self.sock)[0] != answer:
            pass

    def ask_all(self, packets: Iterable[bytes]) -> None:
        """Send packets that nobody answers, and wait until they were dealt with."""
        self.ask(b"".join(packets) + wire.PINGREQ, PINGRESP)

    def subscribe(self, *filters: str, qos: int = 0) -> None:
        self.ask(wire.subscribe_all([*filters], qos, V5), SUBACK)

    def unsubscribe(self, *filters: str) -> None:
        self.ask(wire.packet(0xA2, b"\0\2\0" + b"".join(map(text, filters))), UNSUBACK)

    def alive(self) -> bool:
        try:
            self.ask(wire.PINGREQ, PINGRESP)
        except (OSError, Refused):
            return False
        return True

    def close(self) -> None:
        self.sock.close()


class Attack(Station):
    """A process of its own."""

    #: What is done, for the table.
    text: ClassVar[str]
    #: Configuration of the broker; empty is its defaults.
    config: ClassVar[str] = ""
    #: Seconds between two strikes.
    pause: ClassVar[float] = 0.1
    #: Whether the canary's round trip is judged; not where the whole process stands still.
    judged: ClassVar[bool] = True

    def __init__(self, broker: Running) -> None:
        super().__init__(broker.address)
        self.broker = broker
        self.numbers = count(1)
        self.prepare()

    def prepare(self) -> None:
        """Before the canary begins."""

    @abstractmethod
    def strike(self) -> None: ...

    def run(self, edges: Sequence[int]) -> None:
        self.edges += edges
        self.begin()
        self.broker.watched()  # turns of the preparation are not measured
        while clock() < edges[-1]:
            with contextlib.suppress(OSError, Refused):  # thrown out: what else should it expect?
                self.strike()
            time.sleep(self.pause)
        self.end()

    def client(self, client_id: str = "", **settings: int) -> Client:
        return Client(self.address, connect(client_id or f"attacker-{next(self.numbers)}", **settings))

    def packet_id(self) -> int:
        return next(self.numbers) % 60_000 + 1

    @staticmethod
    def count(clients: Iterable[Client], kept: Account) -> None:
        """How many of them are still connected."""
        for client in clients:
            kept.sent[0] += 1
            kept.arrived[0] += client.alive()


class Retained(Attack):
    text = "SUBSCRIBE, 300 filters `+/+/nX`, over 50,000 retained messages"

    def prepare(self) -> None:
        self.client().ask_all(publish(f"plant/{n}/c{n % 7}", b"x", retain=True) for n in range(50_000))

    def strike(self) -> None:
        self.client().subscribe(*[f"+/+/n{n}" for n in range(300)])


class Cached(Attack):
    text = "SUBSCRIBE and UNSUBSCRIBE, 1,000 filters, with 20,000 topics in use"

    def prepare(self) -> None:
        for _ in range(2):
            self.client().ask_all(publish(f"plant/{n}/c") for n in range(20_000))

    def strike(self) -> None:
        filters = [f"+/+/n{n}" for n in range(1000)]
        client = self.client()
        client.subscribe(*filters)
        client.unsubscribe(*filters)


class RetainedFilters(Attack):
    text = "SUBSCRIBE, 5,000 filters with wildcards, over 20,000 retained messages"

    def prepare(self) -> None:
        self.client().ask_all(publish(f"a/{n}/b/{n % 100}", retain=True) for n in range(20_000))

    def strike(self) -> None:
        self.client().subscribe(*[f"a/+/{'+' if n % 2 else 'b'}/{n}" for n in range(5_000)])


class Filters(Attack):
    text = "SUBSCRIBE of 1 MB, 110,000 filters"

    def strike(self) -> None:
        self.client().subscribe(*[f"{n:06}" for n in range(110_000)])


class Combinations(Attack):
    text = "200 messages a second that match 8,192 filters of `a` and `+`"

    def prepare(self) -> None:
        self.subscriber, self.publisher = self.client(), self.client()
        filters = ["/".join(levels) + "/+" for levels in product("a+", repeat=13)]
        for first in range(0, len(filters), 512):
            self.subscriber.subscribe(*filters[first : first + 512])

    def strike(self) -> None:
        self.publisher.ask_all(publish("a/" * 13 + str(next(self.numbers))) for _ in range(20))
        self.subscriber.ask_all([])


class StreamFilters(Attack):
    text = "SUBSCRIBE, 2,000 filters of a stream of 20,000 messages, from the earliest, which nobody reads"
    config = STREAM

    def prepare(self) -> None:
        self.client().ask_all(publish(f"st/{n % 1000}", b"%d" % n) for n in range(20_000))

    def strike(self) -> None:
        earliest = b"\x26" + text("from") + text("earliest")
        filters = b"".join(text(f"$stream/s/st/{n}") + b"\0" for n in range(2_000))
        self.client().ask(wire.packet(0x82, b"\0\1" + varint(len(earliest)) + earliest + filters), SUBACK)


class StreamConsumers(Attack):
    text = "200 messages a second to a stream with 4,000 subscriptions, a quarter of which match"
    config = STREAM

    def prepare(self) -> None:
        self.subscribers, self.publisher = [self.client() for _ in range(40)], self.client()
        for client in self.subscribers:
            client.subscribe(*[f"$stream/s/st/{'y' if n % 4 else '+'}/{n}" for n in range(100)])

    def strike(self) -> None:
        self.publisher.ask_all(publish(f"st/x/{next(self.numbers) % 100}") for _ in range(20))
        for client in self.subscribers:
            client.ask_all([])


class HeavyQueue(Attack):
    text = "1 MB of user properties a message, for a client that is away"
    pause = 0.005

    def prepare(self) -> None:
        away = self.client("away", expiry=1000)
        away.subscribe("heavy", qos=1)
        away.close()
        self.publisher = self.client()

    def strike(self) -> None:
        self.publisher.ask(publish("heavy", b"", 1, self.packet_id(), HEAVY), PUBACK)


class HeavyRetained(Attack):
    text = "1 MB of user properties a message, retained, each for a topic of its own"
    pause = 0.005

    def prepare(self) -> None:
        self.publisher = self.client()

    def strike(self) -> None:
        number = self.packet_id()
        self.publisher.ask(publish(f"heavy/{number}", b"x", 1, number, HEAVY, retain=True), PUBACK)


class Unreleased(Attack):
    text = "QoS 2 messages with topics of 60 KB, and never a PUBREL"
    pause = 0.0

    def prepare(self) -> None:
        self.publisher = self.client()

    def strike(self) -> None:
        number = self.packet_id()
        self.publisher.ask(publish(f"{number:06}" + "t" * 60_000, b"", 2, number), PUBREC)


class Resumed(Attack):
    text = "100 messages of 1 MB in a session that is resumed and never reads"

    def prepare(self) -> None:
        session, publisher = self.client("sleeper", expiry=1000), self.client()
        session.subscribe("big", qos=1)
        for number in range(1, 101):
            publisher.ask(publish("big", bytes(1_000_000), 1, number), PUBACK)
        self.held = [session]

    def strike(self) -> None:
        self.held.append(self.client("sleeper", expiry=1000))


class Churn(Attack):
    text = "connections that come, subscribe, publish and go, one after the other"
    pause = 0.0

    def strike(self) -> None:
        client = self.client()
        client.ask_all([wire.subscribe("a/b", 0, V5), publish("a/b", b"x")])
        client.close()


class Poison(Attack):
    text = "expiry of 2**32-1 s, topics of 64 KB with a wildcard, for 50 subscribers"

    def prepare(self) -> None:
        self.kept = self.account("kept")
        self.readers = [self.client() for _ in range(50)]
        for reader in self.readers:
            reader.subscribe("poison", qos=1)

    def strike(self) -> None:
        client = self.client()
        client.ask(publish("poison", b"x", 1, 1, LONGEST_EXPIRY), PUBACK)
        client.sock.sendall(publish("x" * 65_534 + "#"))
        client.close()

    def end(self) -> None:
        self.count(self.readers, self.kept)


class Floods(Attack):
    text = "PINGREQ and AUTH as fast as they are taken, and wills at each end"
    pause = 0.0

    def strike(self) -> None:
        client = self.client()
        client.ask_all([wire.PINGREQ * 10_000])
        client.sock.sendall(wire.packet(0xF0, b"\x19\0") * 1000)
        client.close()


class Pressure(Attack):
    text = "two subscribers that acknowledge nothing and come back each second"
    pause = 1.0

    def prepare(self) -> None:
        self.held: list[Client] = []

    def strike(self) -> None:
        for client in self.held:
            client.close()
        self.held = [self.client(f"blocker-{number}", expiry=1000) for number in range(2)]
        for client in self.held:
            client.subscribe("bench/victim/t", qos=1)


class Logins(Attack):
    text = "50 connections at a time that guess a password"
    config = '[auth]\npassword_file = "{users}"\nallow_anonymous = true\n'
    pause = 0.0

    def strike(self) -> None:
        socks = [socket.create_connection(self.address, timeout=PATIENCE) for _ in range(50)]
        for number, sock in enumerate(socks):
            sock.sendall(connect(f"guess-{number}", login=("ann", f"guess {number}")))
        for sock in socks:
            with sock, contextlib.suppress(OSError):
                sock.recv(64)


class SlowConsumer(Attack):
    text = "10 subscribers that read nothing of what one publisher sends as fast as it can"
    pause = 0.0

    def prepare(self) -> None:
        self.held = [self.client() for _ in range(10)]
        for reader in self.held:
            reader.subscribe("slow")
        self.publisher = self.client()

    def strike(self) -> None:
        self.publisher.ask_all([publish("slow", bytes(1000))] * 500)


class Greedy(Attack):
    text = "a publisher that sends as fast as it can and waits for nothing, to nobody"
    pause = 0.0
    burst: ClassVar[bytes] = publish("greedy", bytes(100)) * 2000

    def prepare(self) -> None:
        self.publisher = self.client()

    def strike(self) -> None:
        self.publisher.sock.sendall(self.burst)


class Subscriptions(Attack):
    text = "a client with 100,000 subscriptions that goes, and comes again with as many"
    config = "[session]\nmax_subscriptions = 0\n"

    def strike(self) -> None:
        client = self.client()
        for first in range(0, 100_000, 2000):
            client.subscribe(*[f"plant/{n}/+/{n % 7}" for n in range(first, first + 2000)])
        client.close()


class Levels(Attack):
    text = "topics of 1,000 levels, where 1,000 levels are allowed, and filters like them"
    config = "[mqtt]\nmax_topic_levels = 1000\n"

    def prepare(self) -> None:
        self.subscriber, self.publisher = self.client(), self.client()
        self.subscriber.subscribe(*["a/" * n + "+/" * (999 - n) + "b" for n in range(0, 1000, 10)])

    def strike(self) -> None:
        self.publisher.ask_all(publish("a/" * 999 + str(next(self.numbers))) for _ in range(20))


class Huge(Attack):
    text = "packets of 256 MB, which are above the limit, from 8 connections"

    def strike(self) -> None:
        clients = [self.client() for _ in range(8)]
        for client in clients:
            with contextlib.suppress(OSError):
                client.sock.sendall(bytes.fromhex("30 ff ff ff 7f 0001 74 00") + bytes(1_000_000))
        for client in clients:
            client.close()


class Largest(Attack):
    text = "packets of 10 MB, which are just allowed, to a subscriber that reads them"

    def prepare(self) -> None:
        self.publisher = self.client()
        self.publisher.subscribe("largest")
        self.packet = publish("largest", bytes(10_000_000))

    def strike(self) -> None:
        self.publisher.ask(self.packet, 0x30)


class Unacknowledged(Attack):
    text = "65,535 QoS 2 messages that are never released, and the end of their session"

    def strike(self) -> None:
        client = self.client()
        for first in range(1, 65_536, 1000):
            client.ask_all(publish("open", b"x", 2, n) for n in range(first, min(first + 1000, 65_536)))
        client.close()


class SameId(Attack):
    text = "connections with one client id, 500 at a time, as fast as they are taken"
    config = "[flapping]\nmax_takeovers = 0\n"
    pause = 0.0

    def strike(self) -> None:
        socks = [socket.create_connection(self.address, timeout=PATIENCE) for _ in range(500)]
        for sock in socks:
            sock.sendall(connect("same", expiry=1000))
        for sock in socks:
            with sock, contextlib.suppress(OSError):
                sock.recv(64)


class Reconnects(Attack):
    text = "2,000 sessions with 10 subscriptions each whose clients come back all at once"

    #: Clients; each is a file here and at the broker.
    number: ClassVar[int] = 2000

    def prepare(self) -> None:
        self.socks: list[socket.socket] = []
        self.strike()

    def strike(self) -> None:
        for sock in self.socks:
            sock.close()
        self.socks = [socket.create_connection(self.address, timeout=PATIENCE) for _ in range(self.number)]
        for number, sock in enumerate(self.socks):
            filters = [f"device/{number}/{n}" for n in range(10)]
            sock.sendall(connect(f"device-{number}", expiry=1000) + wire.subscribe_all(filters, 1, V5))
        for sock in self.socks:
            while wire.read_packet(sock)[0] != SUBACK:
                pass


class Stopped(Attack):
    text = "the process stands still for 4 s, 50 clients with a keep alive of 2 s ping on"
    judged = False

    def prepare(self) -> None:
        self.kept = self.account("kept")
        self.clients = [self.client(keep_alive=2) for _ in range(50)]

    def strike(self) -> None:
        self.broker.signal(signal.SIGSTOP)
        try:
            for _ in range(4):
                for client in self.clients:
                    client.sock.sendall(wire.PINGREQ)
                time.sleep(1)
        finally:
            self.broker.signal(signal.SIGCONT)
        self.count(self.clients, self.kept)


class FullDisk(Attack):
    text = "messages of 1 MB at QoS 1, without a pause, for a session whose store is full"
    config = '[store]\ndurability = "os"\npath = "{folder}/full.db"\nmax_size = "2MiB"\n'
    pause = 0.0

    def prepare(self) -> None:
        session = self.client("stored", expiry=10_000)
        session.subscribe("full/#", qos=1)
        session.close()
        self.flood = self.client("flood")

    def strike(self) -> None:
        try:
            self.flood.sock.sendall(publish("full/1", bytes(1_000_000), 1, self.packet_id()))
        except OSError:  # it was not read from for so long
            self.flood = self.client("flood")


ATTACKS: Final[dict[str, type[Attack]]] = {
    "retained": Retained,
    "cached": Cached,
    "filters": Filters,
    "combinations": Combinations,
    "pressure": Pressure,
    "stopped": Stopped,
    "heavy-queue": HeavyQueue,
    "heavy-retained": HeavyRetained,
    "unreleased": Unreleased,
    "resumed": Resumed,
    "churn": Churn,
    "poison": Poison,
    "logins": Logins,
    "floods": Floods,
    "slow-consumer": SlowConsumer,
    "greedy": Greedy,
    "subscriptions": Subscriptions,
    "levels": Levels,
    "huge": Huge,
    "largest": Largest,
    "unacknowledged": Unacknowledged,
    "same-id": SameId,
    "reconnects": Reconnects,
    "full-disk": FullDisk,
    "retained-filters": RetainedFilters,
    "stream-filters": StreamFilters,
    "stream-consumers": StreamConsumers,
}
