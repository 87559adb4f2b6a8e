"""Between each connection and its real transport: where packets are watched, recorded, and kept from their way.

A link is a transport to its connection. As long as nothing is wanted of it, all bytes go on at once, in the chunks that they
came in. Only where a rule may concern the client are they held back until a packet is complete.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import trio

from trunkline.broker.connection.transport import (
    CONGESTED,
    DRAINED,
    STREAM_BUFFER,
    Congested,
    Drained,
    Ended,
    SocketTransport,
)
from trunkline.mqtt.decoder import MAX_PACKET_SIZE
from trunkline.mqtt.packets import Connack, Connect, PacketType
from trunkline.testing.packets import FROM, TO, Collector, Direction, Framer, Packet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.actors import Scheduler, Timer
    from trunkline.broker.connection.transport import Receiver, StartTask, Transport
    from trunkline.broker.node import Node
    from trunkline.mqtt.versions import Version
    from trunkline.testing.rules import Fault

#: Bytes from a client that may wait here before nothing more is read from it.
_MOST_HELD: Final = 1_048_576
#: Seconds after which it is looked again whether a byte has left.
_SOON: Final = 0.001


class Rule(Protocol):
    """Decides about packets, one by one."""

    def concerns(self, link: Link) -> bool: ...
    def judge(self, packet: Packet, way: Way) -> bool:
        """Deal with the packet, by what `way` offers; False leaves it to the next rule."""
        ...


class Meter(Protocol):
    """Decides about bytes."""

    def concerns(self, link: Link) -> bool: ...
    def allows(self, link: Link, direction: Direction, size: int) -> int | None:
        """Of the next `size` bytes, how many may pass before the connection is reset; None if it is not."""
        ...


class Condition(Protocol):
    """A state that a connection is in for some time."""

    #: Directions in which nothing goes on.
    stops: frozenset[Direction]
    #: Directions in which single bytes go on, with this many seconds in between.
    drips: dict[Direction, float]
    #: Nor does one side hear that the other has closed.
    hides_end: bool

    def concerns(self, link: Link) -> bool: ...
    def took_hold(self, link: Link) -> None: ...


class Recorder(Protocol):
    """Notes what clients send, and what reaches them."""

    def opened(self, link: Link) -> None: ...
    def passed(self, link: Link, packet: Packet) -> None: ...
    def closed(self, link: Link, by: str, error: str) -> None: ...
    def ending(self, graceful: bool, keeps_sessions: bool, keeps_retained: bool) -> None: ...
    def end(self) -> None:
        """Nothing will come any more."""
        ...


class Finish:
    """In the queue to the client: no more will be sent."""


_FINISH: Final = Finish()


class Links:
    """All connections of a broker, and what is wanted of them. It outlives a restart of the broker."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.meters: list[Meter] = []
        self.conditions: list[Condition] = []
        self.recorders: list[Recorder] = []
        #: All that are not removed.
        self.faults: list[Fault] = []
        self._links: dict[int, Link] = {}
        self._count = 0
        self._limit = MAX_PACKET_SIZE
        self._scheduler: Scheduler

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def attach(self, node: Node) -> None:
        """From now on, connections are this node's."""
        self._scheduler = node.scheduler
        self._limit = node.config.mqtt.max_packet_size

    def interpose(self, transport: Transport) -> Transport:
        """For `open_node`."""
        self._count += 1
        link = self._links[self._count] = Link(transport, self._count, self, self._scheduler, self._limit)
        return link

    def forget(self, link: Link) -> None:
        self._links.pop(link.number, None)

    def update(self) -> None:
        """The conditions have changed."""
        for link in self:
            link.update()

    def freeze(self, *, graceful: bool, keeps_sessions: bool, keeps_retained: bool) -> None:
        """The broker is about to end, and is to come back. Nothing more is read of what clients send."""
        for recorder in self.recorders:
            recorder.ending(graceful, keeps_sessions, keeps_retained)
        for link in self:
            link.from_client.stopped = True

    def cut(self) -> None:
        """End all connections without a word."""
        for link in self:
            link.reset("broker")

    def end(self) -> None:
        """The broker is about to end for good, and what it has done with, and was kept, is closed."""
        for recorder in self.recorders:
            recorder.ending(True, False, False)
        self.faults.clear()
        self.rules.clear()
        self.meters.clear()
        self.conditions.clear()
        self.update()


class Way:
    """One direction of a link: packets are cut, judged, and wait here."""

    __slots__ = (
        "_aliases",
        "_begun",
        "_framer",
        "_gone",
        "_next_at",
        "_queue",
        "_timer",
        "direction",
        "drip",
        "link",
        "queued",
        "stopped",
    )

    def __init__(self, link: Link, direction: Direction, limit: int) -> None:
        self.link = link
        self.direction: Direction = direction
        #: Nothing goes on.
        self.stopped = False
        #: Seconds between single bytes; None: as they come.
        self.drip: float | None = None
        #: Bytes that wait.
        self.queued = 0
        self._framer = Framer(limit)
        #: The packet that is not complete, and how much of it has gone on already.
        self._begun: bytearray = bytearray()
        self._gone = 0
        self._aliases: dict[int, str] = {}
        #: When each goes on. What stands behind another never goes first.
        self._queue: deque[tuple[float, bytes | Ended | Finish]] = deque()
        #: A single byte goes no sooner.
        self._next_at = -inf
        self._timer: Timer | None = None

    # Bytes come

    def feed(self, data: bytes) -> None:
        link = self.link
        rules = [rule for rule in link.links.rules if link.unknown or rule.concerns(link)]
        untouched = not rules and not self.waiting and self.drip is None and self._gone == len(self._begun)
        begin = 0
        for end in self._framer.cut(data):
            packet = link.saw(bytes(self._begun) + data[begin:end], self.direction, self._aliases)
            if not untouched:
                gone = self._gone
                if gone:
                    self.put(packet.data[gone:])  # its beginning is gone already
                else:
                    self._judge(packet, rules)
            self._begun.clear()
            self._gone = 0
            begin = end
        self._begun += data[begin:]
        if self._framer.broken or not rules:
            if not untouched:
                self.put(bytes(self._begun[self._gone :]))
            self._gone = len(self._begun)
        if self._framer.broken:
            self._begun.clear()
            self._gone = 0
        if untouched:
            self._pass_on(data)
        else:
            self.release()

    def _judge(self, packet: Packet, rules: list[Rule]) -> None:
        for rule in rules:
            if rule.concerns(self.link) and rule.judge(packet, self):
                return
        self.put(packet.data)

    # What a rule may do

    def put(self, item: bytes | Ended | Finish, delay: float = 0.0) -> None:
        """Behind all that is there, to go on when `delay` seconds are over. `release` has to follow."""
        if item != b"" and not self.link.over:
            self._queue.append((trio.current_time() + delay if delay else -inf, item))
            if isinstance(item, bytes):
                self.queued += len(item)

    def cut(self) -> None:
        """Reset the connection, behind what may go on now."""
        self.release()
        self.link.reset()

    # And they go

    @property
    def waiting(self) -> bool:
        return self.stopped or bool(self._queue)

    def release(self) -> None:
        """Let go on what may."""
        queue, link = self._queue, self.link
        now = trio.current_time()
        while queue and not self.stopped and not link.over and not (self.direction == FROM and link.paused):
            due, item = queue[0]
            if self.drip is not None:
                due = max(due, self._next_at)
                if self.direction == TO and link.inner.pending:  # the last byte has not left yet
                    due = max(due, now + max(self.drip, _SOON))
            if due > now:
                self.release_at(due)
                break
            queue.popleft()
            if isinstance(item, Ended):
                link.ended(item)
            elif isinstance(item, Finish):
                link.finished()
            elif self.drip is None:
                pieces = [item]
                while queue and queue[0][0] <= now and isinstance(queue[0][1], bytes):
                    pieces.append(queue.popleft()[1])  # type: ignore[arg-type]
                self._leave(b"".join(pieces))
            else:
                self._leave(item[:1])
                self._next_at = now + self.drip
                if len(item) > 1:
                    queue.appendleft((due, item[1:]))
        link.waited(self)

    def release_at(self, when: float) -> None:
        if self._timer is None:
            self._timer = self.link.scheduler.call_at(inf, self.release)
        if when < self._timer.deadline:
            self._timer.restart_at(when)

    def release_soon(self) -> None:
        """As `release`, from wherever it is called."""
        self.release_at(trio.current_time())

    def _leave(self, data: bytes) -> None:
        self.queued -= len(data)
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        link = self.link
        if not data or link.over:
            return
        for meter in link.links.meters:
            if meter.concerns(link) and (most := meter.allows(link, self.direction, len(data))) is not None:
                if most:
                    link.deliver(self.direction, data[:most])
                link.reset()
                return
        link.deliver(self.direction, data)

    def close(self) -> None:
        self._queue.clear()
        self.queued = 0
        if self._timer is not None:
            self._timer.cancel()


class Link:
    """A connection's transport, in front of the real one."""

    __slots__ = (
        "_congested",
        "_ended",
        "_holding",
        "_kept",
        "_left",
        "_reads",
        "_receiver",
        "_told",
        "client_id",
        "from_client",
        "inner",
        "links",
        "number",
        "over",
        "paused",
        "peer",
        "scheduler",
        "to_client",
        "version",
    )

    def __init__(self, inner: Transport, number: int, links: Links, scheduler: Scheduler, limit: int) -> None:
        self.inner = inner
        self.scheduler = scheduler
        self.peer = inner.peer
        #: From 1, in the order in which connections came.
        self.number = number
        self.links = links
        #: Empty as long as it is not known, or if the client has none and is not told which it gets.
        self.client_id = ""
        self.version: Version | None = None
        #: The broker wants nothing to be read.
        self.paused = False
        self._reads = True
        #: The real one has told its end.
        self._ended = False
        #: It was reset: nothing goes on any more.
        self.over = False
        self.from_client = Way(self, FROM, limit)
        self.to_client = Way(self, TO, MAX_PACKET_SIZE)
        #: What has left for the client, to be recorded as packets.
        self._left = Collector()
        self._congested = False
        #: Conditions that the client is under.
        self._holding: list[Condition] = []
        #: The broker has closed it, and the client is not to hear of it.
        self._kept = False
        #: The end was recorded.
        self._told = False

    @property
    def unknown(self) -> bool:
        """It is not known yet who the client is."""
        return self.version is None

    # A transport to the connection

    def start(self, receiver: Receiver, start_task: StartTask) -> None:
        self._receiver = receiver
        for recorder in self.links.recorders:
            recorder.opened(self)
        self.inner.start(self._came, start_task)
        self.update()

    def send(self, data: bytes) -> None:
        if not self.over:
            self.to_client.feed(data)

    @property
    def pending(self) -> int:
        return self.inner.pending + self.to_client.queued

    def pause(self) -> None:
        self.paused = True
        self._read_or_not()

    def resume(self) -> None:
        self.paused = False
        self._read_or_not()
        self.from_client.release_soon()

    def finish(self) -> None:
        self.to_client.put(_FINISH)
        self.to_client.release()

    def reset(self, by: str = "fault") -> None:
        """End it without a word."""
        if self._kept:
            self._let_go()
        elif not self.over:
            self._note_end(by, "reset")
            self.over = True
            self.inner.reset()

    def reset_soon(self) -> None:
        """As `reset`, from wherever it is called."""
        self.scheduler.call_at(trio.current_time(), self.reset)

    def close(self) -> None:
        self._note_end("broker", "")
        self.from_client.close()
        self.to_client.close()
        if self._hides_end and not self._ended and isinstance(self.inner, SocketTransport):
            self._kept = True
            self.inner.resume()  # to hear of it when the client closes it
        else:
            self.inner.close()
            self.links.forget(self)

    # What comes of the real one

    def _came(self, event: bytes | Ended | Congested | Drained) -> None:
        self._ended = self._ended or isinstance(event, Ended)
        if self._kept:
            if self._ended:
                self._let_go()
        elif self.over:
            if isinstance(event, Ended):
                self._receiver(event)
        elif isinstance(event, bytes):
            self.from_client.feed(event)
        elif isinstance(event, Ended):
            self.from_client.put(event)
            self.from_client.release()
        elif not self._congested:
            self._receiver(event)

    def ended(self, event: Ended) -> None:
        self._note_end("client", event.error)
        self._receiver(event)

    # What ways tell

    def finished(self) -> None:
        """The broker has nothing more to say, and all of it has left."""
        self._note_end("broker", "")
        self.inner.finish()

    def saw(self, data: bytes, direction: Direction, aliases: dict[int, str]) -> Packet:
        """A whole packet came by."""
        packet = Packet(data, direction, self.client_id, self.version)
        if packet.type is PacketType.CONNECT and self.version is None:
            if isinstance(connect := packet.decoded, Connect):
                self.version = connect.version
                self._is_known_as(connect.client_id)
        elif packet.type is PacketType.CONNACK and not self.client_id and isinstance(packet.decoded, Connack):
            self._is_known_as(packet.decoded.properties.get("assigned_client_identifier", ""))
        packet.client = self.client_id
        packet.resolve(aliases)
        if direction == FROM:
            for recorder in self.links.recorders:
                recorder.passed(self, packet)
        return packet

    def _is_known_as(self, client_id: str) -> None:
        self.client_id = client_id
        if self.links.conditions:
            self.update()

    def deliver(self, direction: Direction, data: bytes) -> None:
        """Bytes have made their way."""
        if direction == FROM:
            self._receiver(data)
            return
        self.inner.send(data)
        for whole in self._left.feed(data):
            if self.links.recorders:
                packet = Packet(whole, TO, self.client_id, self.version)
                for recorder in self.links.recorders:
                    recorder.passed(self, packet)

    def waited(self, way: Way) -> None:
        """What waits has become more, or less."""
        if way is self.from_client:
            self._read_or_not()
        elif way.queued > STREAM_BUFFER:
            self._congested = True
            self._receiver(CONGESTED)
        elif self._congested and not way.queued:
            self._congested = False
            if not self.inner.pending:
                self._receiver(DRAINED)

    # Conditions

    @property
    def _hides_end(self) -> bool:
        return any(condition.hides_end for condition in self._holding)

    def update(self) -> None:
        """Look again at which conditions hold."""
        holding = [condition for condition in self.links.conditions if condition.concerns(self)]
        for condition in holding:
            if condition not in self._holding:
                condition.took_hold(self)
        self._holding = holding
        if self._kept:
            if not self._hides_end:
                self._let_go()
            return
        for way in (self.from_client, self.to_client):
            way.stopped = any(way.direction in condition.stops for condition in holding)
            gaps = [condition.drips[way.direction] for condition in holding if way.direction in condition.drips]
            way.drip = max(gaps) if gaps else None
            if not way.stopped and way.waiting:
                way.release_soon()
        self._read_or_not()

    def _read_or_not(self) -> None:
        way = self.from_client
        reads = not (self.paused or way.stopped or way.queued > _MOST_HELD)
        if reads != self._reads and not self._ended:
            self._reads = reads
            if reads:
                self.inner.resume()
            else:
                self.inner.pause()

    def _let_go(self) -> None:
        self.inner.close()
        self.links.forget(self)

    def _note_end(self, by: str, error: str) -> None:
        if not self._told:
            self._told = True
            for recorder in self.links.recorders:
                recorder.closed(self, by, error)
