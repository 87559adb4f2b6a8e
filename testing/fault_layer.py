"""The layer of each connection in which packets are watched, recorded, and delayed, changed or lost by faults.

As long as no fault concerns a client, all its bytes go on at once, in the pieces that they came in. Where a fault
chooses packets, bytes are held until a packet is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.broker.connection.connection import Connection
from trunkline.broker.net.stream_transport import STREAM_BUFFER
from trunkline.broker.net.transport import (
    BLOCKED,
    DRAINED,
    Ended,
    Failed,
    Layer,
    SocketTransport,
)
from trunkline.mqtt.conversation import Conversation
from trunkline.mqtt.decoder import MAX_PACKET_SIZE
from trunkline.mqtt.packets import PacketType, Publish
from trunkline.testing.packet_queue import PacketQueue
from trunkline.testing.packets import FROM, TO, Direction, RawPacket, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.actors import Actor
    from trunkline.broker.net.transport import Event, Receiver, Transport
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.versions import Version
    from trunkline.testing.whole import Whole

#: Bytes from a client that may wait here before reading from it stops.
MAX_HELD: Final = 1_048_576


class Disturbance:
    """A layer's interface to a wire fault. This base class does nothing."""

    #: It judges packets, which are held until they are complete.
    judges: bool = False
    #: Directions in which nothing goes on.
    stops: frozenset[Direction] = frozenset()
    #: Directions in which single bytes go on, with so many seconds in between.
    drips: Mapping[Direction, float] = {}
    #: Neither side hears that the other has closed.
    hides_end: bool = False

    def concerns(self, layer: FaultLayer) -> bool:
        raise NotImplementedError

    def began(self, layer: FaultLayer) -> None:
        """Called when the fault begins to concern this connection."""

    def judge(self, packet: RawPacket, queue: PacketQueue) -> bool:
        """Deal with the packet; False leaves it to the next fault. A packet that is not put into the queue is lost."""
        return False

    def allows(self, layer: FaultLayer, direction: Direction, size: int) -> int | None:
        """How many of the next `size` bytes may pass before the connection is reset; None: it is not."""
        return None


class Recorder(Protocol):
    """Records packets that clients send, and packets that reach them."""

    def opened(self, layer: FaultLayer) -> None: ...
    def passed(self, layer: FaultLayer, packet: RawPacket) -> None: ...
    def closed(self, layer: FaultLayer, by: str, error: str) -> None: ...
    def ending(self, graceful: bool, keeps_sessions: bool, keeps_retained: bool) -> None: ...
    def end(self) -> None:
        """Nothing more will come."""
        ...


class Network:
    """All connections of a broker, with the faults that disturb them. It outlives a restart of the broker."""

    def __init__(self) -> None:
        #: Called with each packet that a fault loses, and with each message that a fault refuses.
        self.on_loss: Callable[[RawPacket | Message], None] = lambda _: None
        self.faults: list[Disturbance] = []
        self.recorders: list[Recorder] = []
        self._layers: dict[int, FaultLayer] = {}
        self._count = 0
        self.whole: Whole

    def __iter__(self) -> Iterator[FaultLayer]:
        return iter(list(self._layers.values()))

    def attach(self, whole: Whole) -> None:
        """From now on, connections are those of these shards."""
        self.whole = whole

    def layer(self, transport: Transport) -> Transport:
        """A layer on top of a new connection's transport."""
        self._count += 1
        layer = self._layers[self._count] = FaultLayer(transport, self._count, self)
        return layer

    def topic(self, layer: FaultLayer, direction: Direction, alias: int) -> str:
        """The topic that an alias stands for by now; empty if it is not known."""
        client_id = layer.client_id
        return self.whole.home(client_id).clients.topic_of(client_id, alias, sent=direction != FROM)

    def forget(self, layer: FaultLayer) -> None:
        self._layers.pop(layer.number, None)

    def update(self) -> None:
        """The faults have changed."""
        for layer in self:
            layer.update()

    def freeze(self, *, graceful: bool, keeps_sessions: bool, keeps_retained: bool) -> None:
        """The broker is about to end, and is to come back. Nothing more is read of what clients send."""
        for recorder in self.recorders:
            recorder.ending(graceful, keeps_sessions, keeps_retained)
        for layer in self:
            layer.incoming.stopped = True

    def cut(self) -> None:
        """Reset all connections."""
        for layer in self:
            layer.reset("broker")

    def end(self) -> None:
        """The broker is about to end for good. What faults hold back goes on."""
        for recorder in self.recorders:
            recorder.ending(True, False, False)
        self.faults.clear()
        self.update()


class FaultLayer(Layer):
    owner: Actor[Any]

    def __init__(self, below: Transport, number: int, network: Network) -> None:
        super().__init__(below)
        self.network = network
        #: From 1, in the order in which connections came.
        self.number = number
        #: What NATS clients say has no packets: it is delayed or cut as bytes, and not recorded.
        self.speaks_mqtt = True
        self._conversation = Conversation()
        #: Whether there was a CONNACK.
        self._greeted = False
        #: Whether the connection has paused reading.
        self.paused = False
        #: Whether the transport below reads.
        self._reads = True
        #: Whether the transport below has ended.
        self._ended = False
        #: A packet at which it is reset was let go on: the connection's answer comes too late.
        self.cut = False
        #: Whether it was reset or closed: nothing goes on any more.
        self.over = False
        self.incoming = PacketQueue(self, FROM, network.whole.first.config.mqtt.max_packet_size)
        self.outgoing = PacketQueue(self, TO, MAX_PACKET_SIZE)
        #: Splits the bytes sent to the client into packets, for recording.
        self._sent = Splitter()
        self._blocked = False
        #: Faults that concern the client.
        self._concerned: list[Disturbance] = []
        #: Whether the broker has closed it, and the client must not notice.
        self._kept_open = False
        self._end_recorded = False

    @property
    def client_id(self) -> str:
        """Empty as long as it is not known, or if the client does not learn the one that it gets."""
        return self._conversation.client_id

    @property
    def version(self) -> Version | None:
        """None as long as there was no CONNECT."""
        return self._conversation.version

    @property
    def watched(self) -> bool:
        """Whether its packets are inspected even if no fault judges them."""
        return not self._greeted or bool(self.network.recorders)

    # To the connection

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.owner = owner
        if isinstance(owner, Connection):
            for recorder in self.network.recorders:
                recorder.opened(self)
        else:
            self.speaks_mqtt = False
            self.incoming.packets.broken = self.outgoing.packets.broken = self._sent.broken = True
        super().start(receiver, owner)
        self.update()

    def send(self, data: bytes) -> None:
        if not self.over and not self.cut:
            self.outgoing.feed(data)

    def send_now(self, data: bytes) -> None:
        """It does not overtake what a fault holds back."""
        self.send(data)

    @property
    def pending(self) -> int:
        return self.below.pending + self.outgoing.size

    def pause(self) -> None:
        self.paused = True
        self._read_or_not()

    def resume(self) -> None:
        self.paused = False
        self._read_or_not()
        self.incoming.release_soon()

    def read_now(self) -> None:
        if self._reads:
            self.below.read_now()

    def finish(self) -> None:
        self.outgoing.put(None)
        self.outgoing.release()

    def reset(self, by: str = "fault") -> None:
        if self._kept_open:
            self._let_go()
        elif not self.over:
            self._record_end(by, "reset")
            self.over = True
            self.below.reset()

    def reset_soon(self) -> None:
        """As `reset`, from wherever it is called."""
        self.network.whole.first.call_at(trio.current_time(), self.reset)

    def close(self) -> None:
        self._record_end("broker", "")
        self.incoming.close()
        self.outgoing.close()
        if self._hides_end and not self._ended and isinstance(self.below, SocketTransport):
            self._kept_open = True
            self.below.resume()  # to hear of it when the client closes
        else:
            self.over = True
            self._let_go()

    # From below

    def receive(self, event: Event) -> None:
        self._ended = self._ended or isinstance(event, Ended)
        if self._kept_open:
            if self._ended:
                self._let_go()
        elif self.over:
            if isinstance(event, Ended):
                self.above(event)
        elif isinstance(event, bytes):
            self.incoming.feed(event)
        elif isinstance(event, Ended):
            self.incoming.put(event)
            self.incoming.release()
        elif isinstance(event, Failed) or not self._blocked:
            self.above(event)

    # From the queues

    def see(self, data: bytes, direction: Direction) -> RawPacket:
        """A whole packet came by."""
        client_id = self.client_id
        decoded = self._conversation.read(data, direction == FROM)
        if self.client_id != client_id and self.network.faults:
            self.update()
        if isinstance(decoded, Publish) and not decoded.topic:
            decoded.topic = self.network.topic(self, direction, decoded.properties.get("topic_alias", 0))
        packet = RawPacket(data, direction, self.client_id, decoded)
        self._greeted = self._greeted or packet.type is PacketType.CONNACK
        if direction == FROM:
            self._record(packet)
        return packet

    def pass_on(self, item: bytes | Ended | None, direction: Direction) -> None:
        """Pass data on in its direction."""
        if isinstance(item, Ended):
            self._record_end("client", item.error)
            self.above(item)
        elif item is None:  # the broker has sent all of its output
            self._record_end("broker", "")
            self.below.finish()
        elif item and not self.over:
            for fault in self.network.faults:
                if fault.concerns(self) and (allowed := fault.allows(self, direction, len(item))) is not None:
                    self.cut = True
                    if allowed:
                        self._deliver(item[:allowed], direction)
                    self.reset()
                    return
            self._deliver(item, direction)

    def _deliver(self, data: bytes, direction: Direction) -> None:
        if direction == FROM:
            self.above(data)
            return
        self.below.send(data)
        for packet in self._sent.feed(data, wanted=bool(self.network.recorders)):
            self._record(RawPacket(packet, TO, self.client_id))

    def queue_changed(self, queue: PacketQueue) -> None:
        """The amount of waiting data has changed."""
        if queue is self.incoming:
            self._read_or_not()
        elif queue.size > STREAM_BUFFER:
            self._blocked = True
            self.above(BLOCKED)
        elif self._blocked and not queue.size:
            self._blocked = False
            if not self.below.pending:
                self.above(DRAINED)

    # Faults

    @property
    def _hides_end(self) -> bool:
        return any(fault.hides_end for fault in self._concerned)

    def update(self) -> None:
        """Find the faults that concern it now."""
        before, self._concerned = self._concerned, [each for each in self.network.faults if each.concerns(self)]
        for fault in self._concerned:
            if fault not in before:
                fault.began(self)
        if self._kept_open:
            if not self._hides_end:
                self._let_go()
            return
        for queue in (self.incoming, self.outgoing):
            queue.stopped = any(queue.direction in fault.stops for fault in self._concerned)
            queue.drip = max((fault.drips.get(queue.direction, -1.0) for fault in self._concerned), default=-1.0)
            if not queue.stopped and queue.waiting:
                queue.release_soon()
        self._read_or_not()

    def _read_or_not(self) -> None:
        reads = not (self.paused or self.incoming.stopped or self.incoming.size > MAX_HELD)
        if reads != self._reads and not self._ended:
            self._reads = reads
            if reads:
                self.below.resume()
            else:
                self.below.pause()

    def _let_go(self) -> None:
        super().close()
        self.network.forget(self)

    # Recorders

    def _record(self, packet: RawPacket) -> None:
        for recorder in self.network.recorders:
            recorder.passed(self, packet)

    def _record_end(self, by: str, error: str) -> None:
        if self.speaks_mqtt and not self._end_recorded:
            self._end_recorded = True
            for recorder in self.network.recorders:
                recorder.closed(self, by, error)
