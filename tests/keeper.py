"""A client that keeps its half of a session, whatever becomes of its connections: the other side of every promise that
a durable broker makes. It says of each message whether the broker took it over, and how often it came."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from tests.conformance import raw
from tests.wire import Wire

PUBLISH: Final = 0x30


class Keeper:
    def __init__(self, client_id: str, expiry: int = 1000) -> None:
        self.client_id = client_id
        self.expiry = expiry
        #: What the broker owes an answer for, by packet id: the PUBLISH as it was sent, or None when a PUBREL is.
        self.unanswered: dict[int, bytes | None] = {}
        #: Payloads that the broker has taken over: PUBACK or PUBCOMP came.
        self.taken: list[bytes] = []
        self._payloads: dict[int, bytes] = {}
        self._last_id = 0
        #: Packet ids that PUBREC was sent for, and no PUBREL came.
        self._received: set[int] = set()
        #: How often the application got each payload, and all of them in order.
        self.got: Counter[bytes] = Counter()
        self.order: list[bytes] = []
        #: Filters whose SUBACK came.
        self.subscribed: set[str] = set()
        #: Packets that have come.
        self.handled = 0
        #: Answers are held back.
        self.mute = False
        self._wire: Wire | None = None
        self._sending = trio.Lock()
        self._changed = trio.Condition()

    async def run(self, wire: Wire, *, task_status: trio.TaskStatus[bool] = trio.TASK_STATUS_IGNORED) -> None:
        """Be connected, until cancelled. Starts with whether the broker knew the session."""
        task_status.started(await self.connect(wire))
        await self.listen(wire)

    async def connect(self, wire: Wire, will: raw.Will | None = None) -> bool:
        """Returns whether the broker knew the session."""
        connack = await wire.connect(self.client_id, clean=False, properties=raw.session_expiry(self.expiry), will=will)
        if not connack.session_present:
            self._received.clear()
        self._wire = wire
        wire.patience = float("inf")
        for packet_id, publish in list(self.unanswered.items()):
            if publish is None:
                await wire.send(raw.ack(raw.PUBREL, packet_id))
            else:
                await wire.send(bytes([publish[0] | 8]) + publish[1:])
        return connack.session_present

    async def listen(self, wire: Wire) -> None:
        """Handle what comes, until the connection ends or a later one takes the session over."""
        try:
            while True:
                packet = await wire.receive()
                if self._wire is not wire:
                    return
                await self._handle(packet)
                self.handled += 1
                async with self._changed:
                    self._changed.notify_all()
        finally:
            if self._wire is wire:
                self._wire = None

    async def _handle(self, packet: raw.Received) -> None:
        number = packet.packet_id
        if packet.type == PUBLISH:
            if packet.qos < 2 or number not in self._received:
                self.got[packet.payload] += 1
                self.order.append(packet.payload)
            if packet.qos == 2:
                self._received.add(number)
            if packet.qos and not self.mute:
                await self._send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, number))
        elif packet.type == raw.PUBREL & 0xF0:
            self._received.discard(number)
            if not self.mute:
                await self._send(raw.ack(raw.PUBCOMP, number))
        elif packet.type == raw.PUBREC:
            self.unanswered[number] = None
            await self._send(raw.ack(raw.PUBREL, number))
        elif packet.type in (raw.PUBACK, raw.PUBCOMP):
            if number in self.unanswered:
                del self.unanswered[number]
                self.taken.append(self._payloads.pop(number))
        elif packet.type == raw.SUBACK:
            self.subscribed.add(self._asked)

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            if self._wire is not None:  # else it is sent with the next connection
                await self._wire.send(data)

    @property
    def next_id(self) -> int:
        """The packet id of the next message."""
        return self._last_id % 65_535 + 1

    async def publish(self, topic: str, qos: int, *payloads: bytes, retain: bool = False) -> None:
        """In one piece."""
        packets: list[bytes] = []
        if not qos:
            await self._send(b"".join([raw.publish(topic, payload, retain=retain) for payload in payloads]))
            return
        for payload in payloads:
            number = self._last_id = self.next_id
            self.unanswered[number] = packet = raw.publish(topic, payload, qos=qos, packet_id=number, retain=retain)
            self._payloads[number] = payload
            packets.append(packet)
        await self._send(b"".join(packets))

    async def subscribe(self, filter: str, qos: int = 2) -> None:
        self._asked = filter
        await self._send(raw.subscribe(1, (filter, qos)))
        await self._until(lambda: filter in self.subscribed)

    async def answered(self, left: int = 0) -> None:
        """Wait until the broker owes no more than so many answers."""
        await self._until(lambda: len(self.unanswered) <= left)

    async def released(self) -> None:
        """Wait until a PUBREL has come for each PUBREC."""
        await self._until(lambda: not self._received)

    async def received(self, number: int) -> None:
        """Wait until so many different messages have come."""
        await self._until(lambda: len(self.got) >= number)

    async def received_all(self, payloads: Callable[[], set[bytes]]) -> None:
        """Wait until each of these has come, which are no fewer later. One is looked for at a time: all of them at each
        packet would take longer than what is tested."""
        while missing := payloads() - self.got.keys():
            await self._until(partial(self.got.__contains__, missing.pop()))

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            while not condition():
                await self._changed.wait()
