"""Keeps a connection within its rates: what comes too early is not read, or waits here, and nothing is lost.

It is between the transport and a connection that has limits. Other connections have none of this on their way.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.broker.net.transport import OutputBlocked, OutputDrained
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.publication import PublishBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Scheduler, Timer
    from trunkline.broker.limit_report import LimitReport
    from trunkline.broker.net.transport import Event
    from trunkline.broker.rate_limits import Buckets
    from trunkline.mqtt.publication import Decoded

#: Bytes of the smallest PUBLISH: no more messages can come than bytes divided by this.
SMALLEST_PUBLISH: Final = 5
#: Bytes that are passed on at least, so that small packets do not take many steps, where no limit shapes.
MIN_SLICE: Final = 64


class CountingDecoder(Decoder):
    """Counts the messages that it decodes."""

    __slots__ = ("messages",)

    messages: int

    def feed(self, data: bytes) -> list[Decoded]:
        packets = super().feed(data)
        for packet in packets:
            if isinstance(packet, Publish | PublishBatch):
                self.messages += packet.count
        return packets


class Counting(Protocol):
    """A decoder that counts messages."""

    messages: int

    @property
    def missing(self) -> int:
        """Bytes that a held operation lacks; 0 if there is none, or while its length is not known."""
        ...


class Limited(Protocol):
    """A connection."""

    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def is_closing(self) -> bool: ...
    def call_at(self, deadline: float, callback: Callable[..., object], /) -> Timer: ...
    def receive(self, data: Event, /) -> None: ...
    def pause(self, holder: object, /) -> None: ...
    def resume(self, holder: object, /) -> None: ...


class RateLimiter:
    __slots__ = ("_connection", "_decoder", "_held", "_report", "_timer", "buckets", "whom")

    def __init__(self, connection: Limited, decoder: Counting, buckets: Buckets, report: LimitReport) -> None:
        self._connection = connection
        self._decoder = decoder
        self._decoder.messages = 0
        self.buckets = buckets
        self._report = report
        #: The client id, once it is known.
        self.whom = ""
        #: What came and has to wait.
        self._held: deque[Event] = deque()
        self._timer = connection.call_at(inf, self._go_on)

    def receive(self, event: Event) -> None:
        if isinstance(event, OutputBlocked | OutputDrained):
            self._connection.receive(event)  # what is sent to the client does not wait for what came from it
        elif self._held and (isinstance(event, bytes) or not self._connection.is_closing):
            self._held.append(event)
        elif isinstance(event, bytes) and not self._connection.is_closing:
            self._pass_on(event)
        else:
            self._connection.receive(event)

    def _pass_on(self, data: bytes) -> None:
        """Pass on as much as the limits allow, at least one slice; pause when they are exceeded, and keep the rest."""
        connection, decoder, buckets = self._connection, self._decoder, self.buckets
        now, position, size = connection.scheduler.now, 0, len(data)
        while position < size:
            if buckets.shape:
                end = position + max(SMALLEST_PUBLISH, decoder.missing)
            else:
                room = buckets.room(now)
                end = size if room == inf else position + max(MIN_SLICE, decoder.missing, int(room) * SMALLEST_PUBLISH)
            piece = data if not position and end >= size else data[position:end]
            before = decoder.messages
            connection.receive(piece)
            buckets.take(decoder.messages - before, len(piece), now)
            position += len(piece)
            exceeded = buckets.exceeded(now)
            if exceeded is not None and not connection.is_closing:
                if position < size:
                    self._held.appendleft(data[position:])
                self._report.acted(exceeded.kind, self.whom, exceeded.text)
                self._timer.restart_at(exceeded.ready_at)
                connection.pause(self)
                return

    def take_held(self) -> bytes:
        """The bytes that wait."""
        held = b"".join([event for event in self._held if isinstance(event, bytes)])
        self._held = deque([event for event in self._held if not isinstance(event, bytes)])
        return held

    def _go_on(self) -> None:
        """It is this connection's turn, even if others have drawn from a shared bucket meanwhile."""
        while self._held and not self._timer.armed:
            event = self._held.popleft()
            if isinstance(event, bytes):
                self._pass_on(event)
            else:
                self._connection.receive(event)
        if not self._timer.armed:
            self._connection.resume(self)

    def stop(self) -> None:
        """Nothing that the client sends is handled any more; only its end matters."""
        self._timer.cancel()
        held, self._held = self._held, deque()
        for event in held:
            if not isinstance(event, bytes):
                self._connection.receive(event)

    def discard(self) -> None:
        self._timer.discard()
        self._held.clear()
