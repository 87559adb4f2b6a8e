"""One direction of a connection: packets are cut, judged, and wait here until they go on."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.connection.transport import Ended
from trunkline.testing.packets import FROM, TO, Direction, Framer

if TYPE_CHECKING:
    from trunkline.actors import Timer
    from trunkline.testing.links import Link, Rule
    from trunkline.testing.packets import Packet

#: Seconds after which it is looked again whether a byte has left.
_SOON: Final = 0.001


class Finish:
    """In the queue to the client: no more will be sent."""


FINISH: Final = Finish()


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
        ends = self._framer.cut(data)
        if rules or self.waiting or self.drip is not None or self._gone < len(self._begun):
            self._judge_all(data, ends, rules)
            self.release()
        else:
            self._watch(data, ends)
            self._pass_on(data)

    def _watch(self, data: bytes, ends: list[int]) -> None:
        """All goes on as it is. What is complete is looked at, if somebody wants to see it."""
        begin = 0
        if self.link.watched:
            for end in ends:
                self.link.saw(bytes(self._begun) + data[begin:end], self.direction, self._aliases)
                self._begun.clear()
                begin = end
        elif ends:
            self._begun.clear()
            begin = ends[-1]
        self._begin(data[begin:])
        self._gone = len(self._begun)

    def _judge_all(self, data: bytes, ends: list[int], rules: list[Rule]) -> None:
        """What is complete goes to the rules, and the rest waits until it is. Without rules nothing waits."""
        begin = 0
        for end in ends:
            packet = self.link.saw(bytes(self._begun) + data[begin:end], self.direction, self._aliases)
            if self._gone:
                self.put(packet.data[self._gone :])  # its beginning is gone already
            else:
                self._judge(packet, rules)
            self._begun.clear()
            self._gone = 0
            begin = end
        if self._framer.broken:
            self.put(bytes(self._begun[self._gone :]) + data[begin:])
            self._begin(b"")
        else:
            self._begin(data[begin:])
            if not rules:
                self.put(bytes(self._begun[self._gone :]))
                self._gone = len(self._begun)

    def _begin(self, data: bytes) -> None:
        """Keep the beginning of a packet; nothing of what is none."""
        if self._framer.broken:
            self._begun.clear()
            self._gone = 0
        else:
            self._begun += data

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
            self._timer = self.link.owner.call_at(inf, self.release)
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
