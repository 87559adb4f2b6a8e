"""One direction of a connection, in which faults hold packets."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.testing.packets import FROM, TO, Direction, Splitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.actors import Timer
    from trunkline.broker.net.transport import Ended
    from trunkline.testing.fault_layer import Disturbance, FaultLayer
    from trunkline.testing.packets import RawPacket

#: Seconds until the next check whether a single byte has left.
_RETRY: Final = 0.001


class PacketQueue:
    """One direction of a connection: its packets are cut, judged, and wait here until they go on."""

    def __init__(self, layer: FaultLayer, direction: Direction, limit: int) -> None:
        self.layer = layer
        self.direction: Direction = direction
        #: Whether nothing goes on.
        self.stopped = False
        #: Seconds between single bytes; negative: bytes go on as they come.
        self.drip = -1.0
        #: Waiting bytes.
        self.size = 0
        self.packets = Splitter(limit)
        #: Bytes of the incomplete packet that have gone on already.
        self._gone = 0
        #: When each goes on: bytes, the end of what comes in, or None for the end of what is sent. None overtakes
        #: another.
        self._items: deque[tuple[float, bytes | Ended | None]] = deque()
        #: A single byte goes no sooner.
        self._next_at = -inf
        self._timer: Timer | None = None

    def feed(self, data: bytes) -> None:
        layer, packets = self.layer, self.packets
        faults = [
            each for each in layer.network.faults if each.judges and (layer.version is None or each.concerns(layer))
        ]
        untouched = not (faults or self.waiting or self.drip >= 0 or self._gone < len(packets.rest))
        for whole in packets.feed(data, wanted=not untouched or layer.watched):
            packet = layer.see(whole, self.direction)
            if not untouched and self._gone:
                self.put(whole[self._gone :])  # its beginning is gone already
            elif not untouched:
                self._judge(packet, faults)
            self._gone = 0
        if untouched:
            layer.pass_on(data, self.direction)
        elif not faults or packets.broken:
            self.put(bytes(packets.rest[self._gone :]))
        if packets.broken:
            packets.rest.clear()
        if untouched or not faults or packets.broken:
            self._gone = len(packets.rest)
        if not untouched:
            self.release()

    def _judge(self, packet: RawPacket, faults: Sequence[Disturbance]) -> None:
        for fault in faults:
            if fault.concerns(self.layer) and fault.judge(packet, self):
                return
        self.put(packet.data)

    def put(self, item: bytes | Ended | None, delay: float = 0.0) -> None:
        """Behind all that is there, to go on when `delay` seconds are over. `release` has to follow."""
        if item != b"" and not self.layer.over:
            self._items.append((trio.current_time() + delay if delay else -inf, item))
            self.size += len(item) if isinstance(item, bytes) else 0

    def cut(self) -> None:
        """Reset the connection, after the data that may go on now."""
        self.layer.cut = True
        self.release()
        self.layer.reset()

    @property
    def waiting(self) -> bool:
        return self.stopped or bool(self._items)

    def release(self) -> None:
        """Release all data that may go on."""
        items, layer = self._items, self.layer
        now = trio.current_time()
        while items and not self.stopped and not layer.over and not (self.direction == FROM and layer.paused):
            due, item = items[0]
            if self.drip >= 0:
                due = max(due, self._next_at)
                if self.direction == TO and layer.below.pending:  # the last byte has not left yet
                    due = max(due, now + max(self.drip, _RETRY))
            if due > now:
                self._release_at(due)
                break
            items.popleft()
            if isinstance(item, bytes) and self.drip >= 0:
                self._next_at = now + self.drip
                if len(item) > 1:
                    items.appendleft((due, item[1:]))
                item = item[:1]
            elif isinstance(item, bytes):
                pieces = [item]
                while items and items[0][0] <= now and isinstance(more := items[0][1], bytes):
                    pieces.append(more)
                    items.popleft()
                item = b"".join(pieces)
            self.size -= len(item) if isinstance(item, bytes) else 0
            layer.pass_on(item, self.direction)
        layer.queue_changed(self)

    def release_soon(self) -> None:
        """As `release`, from wherever it is called."""
        self._release_at(trio.current_time())

    def _release_at(self, when: float) -> None:
        if self._timer is None:
            self._timer = self.layer.owner.call_at(inf, self.release)
        if when < self._timer.deadline:
            self._timer.restart_at(when)

    def close(self) -> None:
        self._items.clear()
        self.size = 0
        if self._timer is not None:
            self._timer.cancel()
