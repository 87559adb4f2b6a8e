"""Between each connection and its real transport: where packets are watched, recorded, and kept from their way.

A link is a transport to its connection. As long as nothing is wanted of it, all bytes go on at once, in the chunks that they
came in. Only where a rule may concern the client are they held back until a packet is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.broker.connection.transport import (
    BLOCKED,
    DRAINED,
    STREAM_BUFFER,
    Ended,
    OutputBlocked,
    OutputDrained,
    SocketTransport,
)
from trunkline.mqtt.decoder import MAX_PACKET_SIZE
from trunkline.mqtt.packets import Connack, Connect, PacketType
from trunkline.testing.packets import FROM, TO, Collector, Direction, Packet
from trunkline.testing.ways import FINISH, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.actors import Actor, Scheduler
    from trunkline.broker.connection.transport import Receiver, Transport
    from trunkline.broker.node import Node
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.versions import Version
    from trunkline.testing.fault import Fault

#: Bytes from a client that may wait here before nothing more is read from it.
_MOST_HELD: Final = 1_048_576


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


class Links:
    """All connections of a broker, and what is wanted of them. It outlives a restart of the broker."""

    def __init__(self) -> None:
        #: Called with each packet that a fault does not let arrive, and with each message that one refuses.
        self.on_loss: Callable[[Packet | Message], None] = lambda _: None
        self.rules: list[Rule] = []
        self.meters: list[Meter] = []
        self.conditions: list[Condition] = []
        self.recorders: list[Recorder] = []
        #: All that are not removed.
        self.faults: list[Fault] = []
        self._links: dict[int, Link] = {}
        self._count = 0
        self._node: Node

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def attach(self, node: Node) -> None:
        """From now on, connections are this node's."""
        self._node = node

    def interpose(self, transport: Transport) -> Transport:
        """For `open_node`."""
        self._count += 1
        link = self._links[self._count] = Link(
            transport, self._count, self, self._node.scheduler, self._node.config.mqtt.max_packet_size
        )
        return link

    def topic(self, link: Link, direction: Direction, alias: int) -> str:
        """What an alias stands for by now; empty if nobody knows."""
        actor = self._node.sessions.get(link.client_id)
        if actor is None or actor.channel is None:
            return ""
        if direction == FROM:
            return actor.channel.aliases_in[alias]
        return actor.channel.aliases_out.topic(alias)

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


class Link:
    """A connection's transport, in front of the real one."""

    __slots__ = (
        "_congested",
        "_ended",
        "_greeted",
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
        "owner",
        "paused",
        "peer",
        "scheduler",
        "to_client",
        "version",
    )

    owner: Actor[Any]

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
        #: A CONNACK has come by.
        self._greeted = False
        #: The broker wants nothing to be read.
        self.paused = False
        self._reads = True
        #: The real one has told its end.
        self._ended = False
        #: It was reset or closed: nothing goes on any more.
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

    @property
    def watched(self) -> bool:
        """Does somebody want to see the packets?"""
        return not self._greeted or bool(self.links.recorders)

    # A transport to the connection

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self._receiver = receiver
        self.owner = owner
        for recorder in self.links.recorders:
            recorder.opened(self)
        self.inner.start(self._came, owner)
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

    def read_now(self) -> None:
        if self._reads:
            self.inner.read_now()

    def finish(self) -> None:
        self.to_client.put(FINISH)
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
            self.over = True
            self.inner.close()
            self.links.forget(self)

    # What comes of the real one

    def _came(self, event: bytes | Ended | OutputBlocked | OutputDrained) -> None:
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
        elif packet.type is PacketType.CONNACK:
            self._greeted = True
            if not self.client_id and isinstance(packet.decoded, Connack):
                self._is_known_as(packet.decoded.properties.get("assigned_client_identifier", ""))
        packet.client = self.client_id
        packet.resolve(aliases, lambda alias: self.links.topic(self, direction, alias))
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
        if not self.links.recorders:
            self._left.skip(data)
        else:
            for whole in self._left.feed(data):
                packet = Packet(whole, TO, self.client_id, self.version)
                for recorder in self.links.recorders:
                    recorder.passed(self, packet)

    def waited(self, way: Way) -> None:
        """What waits has become more, or less."""
        if way is self.from_client:
            self._read_or_not()
        elif way.queued > STREAM_BUFFER:
            self._congested = True
            self._receiver(BLOCKED)
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
