"""Clients of a simulation. They speak by bytes, and know what they have sent and got."""

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from tests.broker.shards.simulated_ledger import Delivery, Message, Subscription
from tests.conformance import raw

if TYPE_CHECKING:
    from tests.broker.shards.simulated_shards import Life
    from tests.broker.shards.simulation import World

#: Seconds that packets are on their way to a client at most.
LATENCY = 0.01
EXPIRY = 100_000
#: Messages of a publisher that are not acknowledged.
MAX_OPEN = 6


class Line(trio.abc.HalfCloseableStream):
    """A connection: the broker reads and writes it as a stream."""

    def __init__(self, client: "Client", life: "Life") -> None:
        self._client = client
        self.life = life
        self._agenda, self._random = life.world.agenda, life.world.random
        self._in = bytearray()
        self._news = trio.Event()
        #: The client has closed, which the broker has heard or not.
        self.has_left = False
        self._is_heard = False
        self._last = 0.0

    # The client's end

    def say(self, data: bytes) -> None:
        self._in += data
        self._news.set()

    def leave(self, *, heard: bool = True) -> None:
        self.has_left, self._is_heard = True, heard
        self._news.set()

    # The broker's end

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._in and not self._is_heard:
            self._news = trio.Event()
            await self._news.wait()
        data = bytes(self._in[:max_bytes])
        del self._in[:max_bytes]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_heard:
            raise trio.BrokenResourceError
        self._soon(partial(self._client.came, self, bytes(data)))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._soon(partial(self._client.gone, self))
        await trio.lowlevel.checkpoint()

    def _soon(self, action: Any) -> None:
        if self.life.is_alive and not self.has_left:
            self._last = max(self._last + 1e-6, self._agenda.now + self._random.random() * LATENCY)
            self._agenda.at(self._last, action)


class Client:
    def __init__(self, world: "World", name: str, shard: int, *, durable: bool) -> None:
        self.world = world
        self.name = name
        self.shard = shard
        self.durable = durable
        self.line: Line | None = None
        self.is_online = False
        #: Seconds: since when it is what it is.
        self.since = 0.0
        #: The broker has said that its session is there.
        self._is_kept = False
        #: Sessions so far.
        self.session = 0
        self.will: Message | None = None
        #: Of its CONNECT.
        self.connect_properties = b""
        self._buffer = b""
        self._packet_ids = count(1)

    # Its connection

    def connect(self) -> None:
        if self.line is not None:
            self.leave(heard=False)
        life = self.world.lives[self.shard]
        self.world.note(f"{self.name} connects")
        line = self.line = Line(self, life)
        self._buffer = b""
        self.will = self.world.new_will(self) if self.world.random.random() < self.world.temper.wills else None
        will = None if self.will is None else raw.Will(self.will.topic, self.will.name.encode(), self.will.qos)
        properties = self.connect_properties + (raw.session_expiry(EXPIRY) if self.durable else b"")
        life.admin.serve(line)
        line.say(raw.connect(self.name, clean=not self.durable, properties=properties, will=will))

    def leave(self, *, heard: bool = True) -> None:
        """Without a word."""
        was_online, line = self.is_online, self._lose()
        if line is not None:
            line.leave(heard=heard)
            if was_online and self.will is not None and line.life.is_alive:
                self.world.sent(self.will)

    def disconnect(self) -> None:
        was_online, line = self.is_online, self._lose()
        if line is not None:
            if was_online and self.will is not None:
                self.will.cancelled_in = line.life.term
            line.say(raw.disconnect())
            line.leave()

    def gone(self, line: Line) -> None:
        """The broker has closed it, or is dead."""
        line.has_left = True
        if line is self.line:
            self._lose()

    def _lose(self) -> Line | None:
        line, self.line = self.line, None
        self.world.note(f"the connection of {self.name} is over")
        if self.is_online:
            self.is_online, self.since = False, self.world.agenda.now
        if not self.durable:
            self.forget()
        self.lost()
        return line

    def lost(self) -> None:
        """The connection is over."""

    def forget(self) -> None:
        """So is the session."""

    def resume(self) -> None:
        """The session is there."""

    # Packets

    def came(self, line: Line, data: bytes) -> None:
        if line is not self.line:
            return
        self._buffer += data
        while line is self.line and (packet := self._cut()) is not None:
            self.take(raw.parse(packet, 5))

    def _cut(self) -> bytes | None:
        packet, self._buffer = raw.cut(self._buffer)
        return packet

    def say(self, data: bytes) -> None:
        assert self.line is not None
        self.line.say(data)

    def take(self, packet: raw.Received) -> None:
        if packet.type == raw.CONNACK:
            self._connected(packet)
        elif packet.type == raw.DISCONNECT & 0xF0:
            self.world.ledger.fault(f"{self.name} is told to go: {packet.reason:#x}")
        else:
            self.world.ledger.fault(f"{self.name} gets {packet.data.hex()}")

    def _connected(self, packet: raw.Received) -> None:
        if packet.reason:
            self.world.ledger.fault(f"{self.name} is refused: {packet.reason:#x}")
            return
        self.is_online, self.since = True, self.world.agenda.now
        self.world.note(f"{self.name} is connected")
        if self._is_kept and not packet.session_present:
            self.world.ledger.fault(f"the session of {self.name} is gone")
        self._is_kept = self.durable
        if packet.session_present:
            self.resume()
        else:
            self.session += 1
            self.forget()


class Publisher(Client):
    def __init__(self, world: "World", name: str, shard: int, *, durable: bool) -> None:
        super().__init__(world, name, shard, durable=durable)
        #: By packet id.
        self.open: dict[int, Message] = {}
        self._numbers = count(1)

    def publish(self, topic: str, qos: int, *, retain: bool = False, deletes: bool = False) -> None:
        if len(self.open) >= MAX_OPEN:
            return
        number = next(self._numbers)
        message = Message(f"{self.name}.{number}", self.name, number, topic, qos, retain, self.shard, deletes=deletes)
        self.world.ledger.messages[message.name] = message
        packet_id = next(self._packet_ids)
        if qos:
            self.open[packet_id] = message
        self._send(packet_id, message, dup=False)

    def _send(self, packet_id: int, message: Message, *, dup: bool) -> None:
        self.world.sent(message)
        identifier = packet_id if message.qos else None
        payload = b"" if message.deletes else message.name.encode()
        properties = raw.user_property("name", message.name) if message.deletes else b""
        self.say(
            raw.publish(
                message.topic,
                payload,
                qos=message.qos,
                packet_id=identifier,
                retain=message.retain,
                dup=dup,
                properties=properties,
            )
        )

    def resume(self) -> None:
        for packet_id, message in self.open.items():
            if message.is_received:
                self._release(packet_id, message)
            else:
                self._send(packet_id, message, dup=True)

    def _release(self, packet_id: int, message: Message) -> None:
        if self.world.released(message):
            message.is_doubtful = True
        self.say(raw.ack(raw.PUBREL, packet_id))

    def forget(self) -> None:
        for message in self.open.values():
            message.is_doubtful = message.is_doubtful or message.qos == 2
        self.open.clear()

    def take(self, packet: raw.Received) -> None:
        if packet.type not in (raw.PUBACK, raw.PUBREC, raw.PUBCOMP):
            super().take(packet)
            return
        message = self.open.get(packet.packet_id)
        if packet.reason >= 0x80 or message is None:
            self.world.ledger.fault(f"{self.name} gets {packet.data.hex()}")
        elif packet.type == raw.PUBREC:
            if not message.is_received:
                message.is_received = True
                self.world.releasing(message)
                self._release(packet.packet_id, message)
        else:
            del self.open[packet.packet_id]
            self.world.acked(message)


class Subscriber(Client):
    def __init__(self, world: "World", name: str, shard: int, *, durable: bool) -> None:
        super().__init__(world, name, shard, durable=durable)
        self.subscriptions: dict[str, Subscription] = {}
        #: By packet id: what is to be granted.
        self._asked: dict[int, Subscription] = {}
        self.deliveries: list[Delivery] = []
        self._names = set[str]()
        #: Retained messages that came with a subscription, by topic.
        self.retained: list[tuple[int, Message]] = []
        self._unreleased = set[int]()
        #: Acknowledgements that are put off.
        self._put_off = deque[bytes]()

    def has_got(self, message: Message) -> bool:
        return message.name in self._names

    def subscribe(self, filter: str, qos: int) -> None:
        world, packet_id = self.world, next(self._packet_ids)
        asked = Subscription(self, filter, qos, world.moment(), world.agenda.now, line=self.line)
        former = self.subscriptions.get(filter)
        if former is not None:
            former.has_ended = True
        self.subscriptions[filter] = self._asked[packet_id] = asked
        world.ledger.subscriptions.append(asked)
        self.say(raw.subscribe(packet_id, (filter, qos)))

    def unsubscribe(self, filter: str) -> None:
        self.subscriptions.pop(filter).has_ended = True
        self.say(raw.unsubscribe(next(self._packet_ids), filter))

    def lost(self) -> None:
        for asked in self._asked.values():
            asked.has_ended = True
            if self.subscriptions.get(asked.filter) is asked:
                del self.subscriptions[asked.filter]
        self._asked.clear()
        self._put_off.clear()

    def forget(self) -> None:
        for each in self.subscriptions.values():
            each.has_ended = True
        self.subscriptions.clear()
        self._unreleased.clear()

    def take(self, packet: raw.Received) -> None:
        if packet.type == raw.PUBLISH:
            self._got(packet)
        elif packet.type == raw.PUBREL & 0xF0:
            self._unreleased.discard(packet.packet_id)
            self._answer(raw.ack(raw.PUBCOMP, packet.packet_id))
        elif packet.type == raw.SUBACK:
            asked = self._asked.pop(packet.packet_id)
            if packet.reasons != [asked.qos]:
                self.world.ledger.fault(f"{self.name} is refused {asked.filter}: {packet.reasons}")
            self.world.granted(asked)
        elif packet.type != raw.UNSUBACK:
            super().take(packet)

    def _got(self, packet: raw.Received) -> None:
        name = packet.payload.decode() or packet.get(raw.USER_PROPERTY)[1]  # type: ignore[index]
        message = self.world.ledger.messages[name]
        is_new = packet.qos < 2 or packet.packet_id not in self._unreleased
        if packet.retain:
            self.retained.append((self.world.moment(), message))
            self.world.found_retained(self, message)
        elif is_new:
            self.deliver(packet, message)
        else:
            self.world.note(f"{self.name} gets {message.name} again as {packet.packet_id}{', dup' * packet.dup}")
        if packet.qos == 1:
            self._answer(raw.ack(raw.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self._unreleased.add(packet.packet_id)
            self._answer(raw.ack(raw.PUBREC, packet.packet_id))

    def deliver(self, packet: raw.Received, message: Message) -> None:
        terms, moment = self.world.terms, self.world.moment()
        term, shard_term = terms[self.shard], terms[message.shard]
        self.deliveries.append(Delivery(message, self.session, term, shard_term, packet.qos, packet.dup, moment))
        self._names.add(message.name)
        self.world.delivered(self, message)

    def _answer(self, data: bytes) -> None:
        if self._put_off or self.world.random.random() < self.world.temper.lazy:
            if not self._put_off:
                delay = self.world.random.random() * 2
                self.world.agenda.after(delay, partial(self._catch_up, self.line))
            self._put_off.append(data)
        else:
            self.say(data)

    def _catch_up(self, line: Line | None) -> None:
        if line is self.line:
            while self._put_off:
                self.say(self._put_off.popleft())
