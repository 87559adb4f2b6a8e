"""Push consumers: what they deliver is published to their deliver subject, while somebody subscribes to that.

Each has a task of its own. They publish one after the other: however many there are, others get their turn behind a
few messages. What is published there reaches clients of MQTT as well, with the topic of the deliver subject; clients of
NATS get the subject that the message had, as from a server.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.nats.carrying import forms_of
from trunkline.broker.nats.jetstream.consumer_configs import Extras
from trunkline.broker.nats.jetstream.messages import OutgoingMessage, fetch, outgoing, place_of
from trunkline.broker.nats.mapping import topic_of
from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.nats.jetstream.statuses import STALLED
from trunkline.nats.protocol.headers import NO_HEADERS, Status, encode_headers

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.host import DeliveryHost
    from trunkline.mqtt.properties import Properties
    from trunkline.nats.protocol.headers import Headers
    from trunkline.streams.consumer import ConsumerCursor, Delivered
    from trunkline.streams.stream import Stream

#: Messages that are published before others get their turn.
PUSHED_AT_ONCE: Final = 64
#: Bytes that may be on their way unconfirmed, where there is flow control; half of it asks for a confirmation.
WINDOW: Final = 1 << 20


class Pusher:
    def __init__(self, node: DeliveryHost, stream: Stream, cursor: ConsumerCursor) -> None:
        self._node = node
        self._host = node.host
        self.stream = stream
        self.cursor = cursor
        self._changed = trio.Event()
        self._questions = count(1)
        #: Of flow control: the subject of the question that is not answered, and the bytes that were sent since it, or
        #: since the last one that was.
        self._question = b""
        self._asked_at = self._sent = 0
        self._next_heartbeat = inf
        #: Receivers that do not read as fast as it pushes.
        self.holders: set[object] = set()
        #: With a limit of the rate: when there is room for the next message.
        self._free_at = 0.0
        self.configure()

    def configure(self) -> None:
        """The consumer has another configuration."""
        self.extras = Extras.of(self.cursor.config.metadata)
        self.topic = topic_of(self.extras.deliver_subject.encode(), NO_LEVEL_LIMIT)
        self._target = self.extras.deliver_subject.encode()
        self._question, self._sent = b"", 0
        self.wake()

    def wake(self) -> None:
        """Something that it waits for may have come."""
        self._changed.set()

    @property
    def has_interest(self) -> bool:
        """Does somebody subscribe to its subject?"""
        return self._node.is_heard(self.topic)

    @property
    def is_stalled(self) -> bool:
        return bool(self.holders) or (self.extras.flow_control and self._sent > WINDOW)

    # Its task

    async def run(self) -> None:
        while not self._node.is_gone(self.stream, self.cursor):
            self._changed = trio.Event()
            if not self.has_interest:
                self.cursor.watch(self._look)
                await self._changed.wait()
                self.cursor.unwatch(self._look)
                continue
            self.cursor.receivers += 1
            self._put_off_heartbeat()
            self._question, self._sent = b"", 0  # who subscribes now has not heard the question
            try:
                while await self._push():
                    pass
            finally:
                self.stream.consumers.left(self.cursor, self._host.now)
        self._node.forget(self.cursor)

    def _look(self) -> None:
        """While nobody subscribes: messages do not matter, but the consumer may be deleted."""
        if self._node.is_gone(self.stream, self.cursor):
            self.wake()
        else:
            self.cursor.watch(self._look)

    async def _push(self) -> bool:
        """Publish what there is, or wait. False: nobody wants it any more."""
        host, cursor = self._host, self.cursor
        async with self._node.pushing:
            self._changed = trio.Event()
            if not self.has_interest or self._node.is_gone(self.stream, cursor):
                return False
            is_limited = host.now < self._free_at
            limit = 1 if self.extras.rate_limit else PUSHED_AT_ONCE
            taken = [] if self.is_stalled or is_limited else self.stream.deliver(cursor, limit, host.now)
            for delivered in taken:
                self._publish(delivered)
        if taken:
            self._put_off_heartbeat()
        elif cursor.needs is not None and not self.is_stalled and not is_limited:
            await fetch(self.stream, host, cursor.needs)
        else:
            await self._rest(self._free_at if is_limited else cursor.next_due)
        return True

    async def _rest(self, due: float) -> None:
        """Until something has changed, or it may go on, or a heartbeat is due."""
        self.cursor.watch(self.wake)
        due = min(inf if self.is_stalled else due, self._next_heartbeat)
        with trio.move_on_at(due - self._node.epoch):
            await self._changed.wait()
        if self._next_heartbeat <= self._host.now:
            self._beat()

    def _publish(self, delivered: Delivered) -> None:
        out = outgoing(self.stream, self.cursor, delivered)
        self._send(out, delivered.message)
        self._sent += out.size
        if self.extras.rate_limit:
            self._free_at = self._host.now + 8 * out.size / self.extras.rate_limit
        if self.extras.flow_control and not self._question and self._sent > WINDOW // 2:
            self._ask()

    def _send(self, out: OutgoingMessage, origin: Message | None = None) -> None:
        properties: Properties = {} if origin is None else {**origin.properties}
        properties.pop("message_expiry_interval", None)
        if out.reply:
            properties["response_topic"] = out.reply.decode().replace(".", "/")  # names have neither
        message = Message(self.topic, out.payload, 0, properties=properties)
        message.frames = forms_of(*out)
        self._node.publish(message)

    # Heartbeats and flow control

    def _put_off_heartbeat(self) -> None:
        interval = self.extras.idle_heartbeat
        self._next_heartbeat = self._host.now + interval if interval else inf

    def _beat(self) -> None:
        said = place_of(self.cursor)
        if self._question:
            said.add(STALLED, self._question.decode())
        self._tell(Status(100, "Idle Heartbeat"), said)
        self._put_off_heartbeat()

    def _ask(self) -> None:
        self._question = f"$JS.FC.{self.stream.name}.{self.cursor.name}.{next(self._questions)}".encode()
        self._asked_at = self._sent
        self._tell(Status(100, "FlowControl Request"), NO_HEADERS, self._question)

    def confirm(self, subject: bytes) -> None:
        """The client has come so far."""
        if subject == self._question:
            self._question = b""
            self._sent -= self._asked_at
            if self._sent > WINDOW // 2:
                self._ask()
            self.wake()

    def _tell(self, status: Status, headers: Headers, reply: bytes = b"") -> None:
        self._send(OutgoingMessage(self._target, reply, encode_headers(headers, status), b""))
