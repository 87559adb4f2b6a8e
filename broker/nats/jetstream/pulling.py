"""Pulls: each asks for so many of the next messages of a consumer, and waits for them.

The pulls of one consumer stand in a queue, whoever they are from. The first one takes what there is, in its client's
own turn, so that no message leaves the stream for a client that has gone; where others wait as well, it takes one
message and goes behind them. Nothing runs while all of them wait: the stream wakes the queue, or the clock does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.nats.jetstream.consumer_configs import Extras
from trunkline.broker.nats.jetstream.json_objects import read_object
from trunkline.broker.nats.jetstream.messages import fetch, longest_reply, outgoing, place_of, wire_size
from trunkline.nats.protocol.headers import Headers, Status, encode_headers

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.host import DeliveryHost, PullingClient, PullTarget
    from trunkline.mqtt.message import Message
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.stream import Stream

#: Messages that one pull takes before others get their turn.
TAKEN_AT_ONCE: Final = 64
#: Seconds between two heartbeats, at least: what a client asks for must not keep the broker busy.
LEAST_HEARTBEAT: Final = 0.1
_SECOND: Final = 1_000_000_000


#: What only members of priority groups ask for, which no consumer has.
_OF_GROUPS: Final = (
    ("min_pending", "Overflow"),
    ("min_ack_pending", "Overflow"),
    ("id", "Pinned Client"),
)


class BadPull(Exception):
    """What was asked for cannot be: `status` is the answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(code, text)


@dataclass(slots=True, eq=False)
class Pull:
    receiver: PullingClient
    reply: bytes
    #: The subscription that gets the messages.
    inbox: PullTarget
    #: Messages that it has still to get.
    left: int
    #: Bytes that it may still get; None for no limit.
    room: int | None
    #: Whether it ends when there is nothing more.
    no_wait: bool
    #: When it ends, and how often it is told that all is well; in seconds of the store's time.
    expires_at: float
    heartbeat: float
    next_heartbeat: float
    #: Whether it has got something.
    has_got: bool = field(default=False)
    #: Its client does not read fast enough.
    is_held: bool = field(default=False)

    @property
    def due(self) -> float:
        return min(self.expires_at, self.next_heartbeat)

    @property
    def most(self) -> int:
        """Messages that it may get now: its subscription may end with fewer."""
        inbox = self.inbox
        return min(self.left, inbox.maximum - inbox.delivered) if inbox.maximum else self.left

    @property
    def is_over(self) -> bool:
        """Its client has gone, or does not want it any more."""
        return self.receiver.is_over or not self.receiver.is_there(self.inbox)

    @property
    def is_done(self) -> bool:
        """It ends where there is nothing more. One that has a time waits for its first message."""
        return self.no_wait and (self.has_got or self.expires_at == inf)

    def pending(self) -> Headers:
        return Headers({"Nats-Pending-Messages": str(self.left), "Nats-Pending-Bytes": str(self.room or 0)})

    def tell(self, status: Status, headers: Headers | None = None) -> None:
        """In a turn of its client."""
        if not self.is_over:
            block = encode_headers(headers or Headers(), status)
            self.receiver.give(self.inbox, self.reply, b"", b"", block)


def read_pull(
    receiver: PullingClient, reply: bytes, inbox: PullTarget, payload: bytes, extras: Extras, now: float
) -> Pull:
    """
    Raises:
        BadPull: it asks for more than the consumer allows, or for nothing that can be understood.
    """
    asked = _asked(payload)
    batch, size = _whole(asked, "batch"), _whole(asked, "max_bytes")
    expires, heartbeat = _whole(asked, "expires") / _SECOND, _whole(asked, "idle_heartbeat") / _SECOND
    no_wait = asked.get("no_wait") is True
    if 0 < extras.max_batch < batch:
        raise BadPull(409, f"Exceeded MaxRequestBatch of {extras.max_batch}")
    if 0 < extras.max_expires < expires:
        raise BadPull(409, f"Exceeded MaxRequestExpires of {extras.max_expires:g}s")
    if 0 < extras.max_pull_bytes < size:
        raise BadPull(409, f"Exceeded MaxRequestMaxBytes of {extras.max_pull_bytes}")
    for name, policy in _OF_GROUPS:
        if asked.get(name):
            raise BadPull(400, f"Bad Request - Not a {policy} Priority consumer")
    if heartbeat and 2 * heartbeat > expires:
        raise BadPull(400, "Bad Request - heartbeat value too large")
    heartbeat = max(heartbeat, LEAST_HEARTBEAT) if heartbeat > 0 else 0.0
    return Pull(
        receiver,
        reply,
        inbox,
        max(batch, 1),
        size if size > 0 else None,
        no_wait,
        now + expires if expires > 0 else inf,
        heartbeat,
        now + heartbeat if heartbeat > 0 else inf,
    )


def _asked(payload: bytes) -> dict[str, Any]:
    """An object of JSON, or the number of messages alone."""
    text = payload.strip()
    if not text:
        return {}
    if text.isdigit() and len(text) < 10:
        return {"batch": int(text)}
    try:
        return read_object(text)
    except ValueError as error:
        raise BadPull(400, f"Bad Request - {error}") from None


def _whole(asked: dict[str, Any], name: str) -> int:
    value = asked.get(name) or 0
    if type(value) is not int:
        raise BadPull(400, f"Bad Request - {name} is no number")
    return value


class Room:
    """How many bytes a pull has room for, while it takes messages."""

    def __init__(self, room: int, reply: bytes) -> None:
        """No message has a longer `reply` subject."""
        self._left = room
        self._reply = reply

    def __call__(self, message: Message) -> bool:
        """Whether there is room for the next one, too."""
        size = wire_size(message, self._reply)
        fits = size <= self._left
        self._left -= size if fits else 0
        return fits


class PullQueue:
    """Of one consumer."""

    def __init__(self, node: DeliveryHost, stream: Stream, cursor: ConsumerCursor) -> None:
        self._node = node
        self._host = node.host
        self.stream = stream
        self.cursor = cursor
        self._waiting: deque[Pull] = deque()
        #: The pull whose turn comes next, while one does.
        self._called: Pull | None = None
        self._is_reading = False
        self._timer = node.scheduler.call_at(inf, self._on_time)

    def __len__(self) -> int:
        return len(self._waiting)

    # Pulls come

    def add(self, pull: Pull) -> None:
        """In a turn of the pull's client."""
        most = Extras.of(self.cursor.config.metadata).max_waiting
        if not self._waiting:
            self.cursor.receivers += 1
        self._waiting.append(pull)  # before others go: a queue without any is forgotten
        queues = pull.receiver.queues
        queues[self] = queues.get(self, 0) + 1
        if len(self._waiting) > most:
            self._forget_gone()
        if len(self._waiting) > most:
            self._end(pull, Status(409, "Exceeded MaxWaiting"))
            return
        if len(self._waiting) == 1:
            self._take(pull)
        else:
            self._call_next()
        self._set_timer()

    def _forget_gone(self) -> None:
        for pull in [each for each in self._waiting if each.is_over]:
            self._remove(pull)

    # They take

    def _call_next(self) -> None:
        """Let the first pull that can take something have its turn."""
        pull = next((each for each in self._waiting if not each.is_held), None)
        if pull is not None and self._called is None:
            self._called = pull
            pull.receiver.soon(partial(self._in_turn, pull))

    def _in_turn(self, pull: Pull) -> None:
        if self._called is pull:
            self._called = None
            self._take(pull)
            self._set_timer()

    def _take(self, pull: Pull) -> None:
        """In a turn of the pull's client."""
        if pull.is_over:
            self._remove(pull)
            self._call_next()
            return
        if self.is_gone:
            self._end_all()
            return
        if pull.receiver.is_slow:
            pull.is_held = True
            self._call_next()
            return
        limit = min(1 if len(self._waiting) > 1 else TAKEN_AT_ONCE, pull.most)
        fits = None if pull.room is None else Room(pull.room, longest_reply(self.stream, self.cursor))
        taken = self.stream.deliver(self.cursor, limit, self._host.now, fits)
        for delivered in taken:
            self._give(pull, delivered)
        self._taken(pull, len(taken))

    def _taken(self, pull: Pull, count: int) -> None:
        """It has got so many, and perhaps no more than that can come now."""
        cursor = self.cursor
        if pull.left <= 0 or pull.is_over:
            self._remove(pull)
            self._call_next()
        elif cursor.held_back:
            self._end(pull, Status(409, "Message Size Exceeds MaxBytes"), pull.pending())
            self._call_next()
        elif count:
            self._waiting.rotate(-1)
            self._call_next()
        elif cursor.needs is not None:
            if not self._is_reading:
                self._is_reading = True
                self._node.in_background(self._read, cursor.needs)
        else:
            cursor.watch(self._call_next)
            for each in [each for each in self._waiting if each.is_done]:
                self._remove(each)
                each.receiver.soon(partial(each.tell, Status(404, "No Messages")))

    def _give(self, pull: Pull, delivered: Delivered) -> None:
        pull.left -= 1
        pull.has_got = True
        if not pull.receiver.may_read(delivered.message):
            return
        out = outgoing(self.stream, self.cursor, delivered)
        if pull.room is not None:
            pull.room = max(pull.room - out.size, 0)
        pull.next_heartbeat = self._host.now + pull.heartbeat if pull.heartbeat else inf
        pull.receiver.give(pull.inbox, out.subject, out.payload, out.reply, out.block)

    async def _read(self, needed: int) -> None:
        try:
            await fetch(self.stream, self._host, needed)
        finally:
            self._is_reading = False
        self._call_next()

    # They end

    @property
    def is_gone(self) -> bool:
        """The stream or the consumer is deleted."""
        return self._node.is_gone(self.stream, self.cursor)

    def _end(self, pull: Pull, status: Status, headers: Headers | None = None) -> None:
        """In a turn of its client."""
        self._remove(pull)
        pull.tell(status, headers)

    def _end_all(self) -> None:
        for pull in list(self._waiting):
            self._remove(pull)
            pull.receiver.soon(partial(pull.tell, Status(409, "Consumer Deleted")))

    def _remove(self, pull: Pull) -> None:
        self._waiting.remove(pull)
        if self._called is pull:
            self._called = None
        queues = pull.receiver.queues
        queues[self] -= 1
        if not queues[self]:
            del queues[self]
        if not self._waiting:
            self.cursor.unwatch(self._call_next)
            self.stream.consumers.left(self.cursor, self._host.now)
            self._timer.discard()
            self._node.forget(self.cursor)

    def drop(self, receiver: PullingClient) -> None:
        """The client has gone."""
        for pull in [each for each in self._waiting if each.receiver is receiver]:
            self._remove(pull)
        self._call_next()

    def go_on(self, receiver: PullingClient) -> None:
        """The client has read what there was for it."""
        for pull in self._waiting:
            if pull.receiver is receiver:
                pull.is_held = False
        self._call_next()

    # The clock

    def _set_timer(self) -> None:
        if self._waiting:
            due = min([pull.due for pull in self._waiting])
            if self._can_take:
                due = min(due, self.cursor.next_due)
            self._timer.restart_at(due - self._node.epoch)

    @property
    def _can_take(self) -> bool:
        """Is there a pull that would take what comes? One whose turn comes looks by itself."""
        return self._called is None and not self._is_reading and not all(pull.is_held for pull in self._waiting)

    def _on_time(self) -> None:
        now, called = self._host.now, self._called
        for pull in [each for each in self._waiting if each.due <= now]:
            if pull.expires_at <= now:
                self._remove(pull)
                status, headers = Status(408, "Request Timeout"), pull.pending()
            else:
                pull.next_heartbeat = now + pull.heartbeat
                status, headers = Status(100, "Idle Heartbeat"), place_of(self.cursor)
            pull.receiver.soon(partial(pull.tell, status, headers))
        if self.cursor.next_due <= now or self._called is not called:
            self._call_next()
        self._set_timer()
