"""Clients that come and go, and what a correct broker owes them: the plain model that a whole broker is held against.

Whatever a client cannot know for certain, as a subscription before its SUBACK, makes a message one that it may get.
What it knows for certain makes it one that it must get.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import trio

from tests.conformance import raw
from tests.wire import Wire
from trunkline.mqtt.topics import matches, parse_shared, plain_filter

PUBLISH = 0x30


@dataclass
class Subscription:
    filter: str
    qos: int
    no_local: bool = False
    as_published: bool = False
    identifier: int | None = None
    #: SUBACK came, and no UNSUBSCRIBE was sent since.
    sure: bool = False
    #: Steps between which it may have been there.
    begin: int = 0
    end: float = inf

    def matches(self, sent: "Sent", client_id: str) -> bool:
        own = self.no_local and sent.publisher == client_id
        return not own and matches(plain_filter(self.filter), sent.topic)

    @property
    def shared(self) -> bool:
        return parse_shared(self.filter) is not None


@dataclass
class Sent:
    """A message, whose payload is like no other's."""

    publisher: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    expires: bool
    #: The step in which it was sent, and in which the last answer came.
    step: int
    answered: float = inf
    #: How often.
    times: int = 1


@dataclass
class Got:
    payload: bytes
    qos: int
    dup: bool
    retain: bool
    identifiers: list[int]
    life: int
    connection: int
    #: What the client's subscriptions were.
    state: int


@dataclass
class World:
    """All that was sent, and the time."""

    step: int = 0
    life: int = 0
    sent: dict[bytes, Sent] = field(default_factory=dict[bytes, Sent])


class Client:
    def __init__(self, client_id: str, world: World) -> None:
        self.client_id = client_id
        self.world = world
        self.present = False
        self.subscriptions: dict[str, Subscription] = {}
        self.past: list[Subscription] = []
        #: Counts changes of the subscriptions.
        self.state = 0
        #: What SUBSCRIBE and UNSUBSCRIBE packets ask for that are not answered.
        self.asked: dict[int, list[Subscription | tuple[str, Subscription | None]]] = {}
        #: By payload: the filters for which the client has to get it.
        self.owed: dict[bytes, set[str]] = {}
        #: By payload: the subscriptions at that time, if they were certain, and their state.
        self.exact: dict[bytes, tuple[int, list[Subscription]]] = {}
        #: What it had to get last.
        self.newest = b""
        self.got: list[Got] = []
        self.unanswered: dict[int, bytes | None] = {}
        self.payloads: dict[int, bytes] = {}
        self.last_id = 0
        #: Packet ids of QoS 2 whose PUBREL has not come.
        self.received: set[int] = set()
        #: What a clean start ended that may not be stored yet: subscriptions, and `received`.
        self.discarded: tuple[list[Subscription], set[int]] | None = None
        #: Acknowledgements that are held back.
        self.held: list[bytes] = []
        self.auto = True
        self.wire: Wire | None = None
        self.connection = 0
        self.handled = 0
        self.scope = trio.CancelScope()
        self.sending = trio.Lock()

    # Connections

    async def connect(self, wire: Wire, nursery: trio.Nursery, receive_maximum: int, clean: bool = False) -> None:
        self.gone()
        properties = raw.session_expiry(0xFFFFFFFF) + raw.receive_maximum(receive_maximum)
        wire.patience = inf
        if clean:
            earlier, received = self.discarded or ([], set())
            discarded = [*self.subscriptions.values(), *earlier], self.received | received
            self.forget()
            self.discarded = discarded
        connack = await wire.connect(self.client_id, clean=clean, properties=properties)
        if not connack.session_present:
            certain = [each.filter for each in self.subscriptions.values() if each.sure]
            assert not certain, f"the session of {self.client_id} is lost"
            assert None not in self.unanswered.values() or clean, "a message that was taken over is lost"
            if not clean:
                self.forget()
        elif self.discarded is not None:  # the power failed before the clean start was stored
            self.state += 1
            for each in self.discarded[0]:
                each.end, each.sure = inf, False
                if self.subscriptions.setdefault(each.filter, each) is not each:
                    self.past.append(each)
            self.received |= self.discarded[1]
            self.discarded = None
        self.wire, self.connection = wire, self.connection + 1
        self.scope = trio.CancelScope()
        nursery.start_soon(self._listen, wire, self.scope)
        for packet_id, publish in list(self.unanswered.items()):
            if publish is None:
                await self._send(raw.ack(raw.PUBREL, packet_id))
            else:
                sent = self.world.sent[self.payloads[packet_id]]
                sent.times += 1
                await self._send(bytes([publish[0] | 8]) + publish[1:])

    def forget(self) -> None:
        """The session begins anew."""
        self.past += self.subscriptions.values()
        for each in self.past:
            each.end = min(each.end, self.world.step)
        self.subscriptions.clear()
        self.received.clear()
        self.discarded = None
        self.owed.clear()
        self.exact.clear()
        self.state += 1
        for packet_id in [each for each, publish in self.unanswered.items() if publish is None]:
            del self.unanswered[packet_id]  # whether it was routed is not known

    def crashed(self) -> None:
        """The power has failed."""
        self.gone()
        for each in list(self.subscriptions.values()):
            if each.sure and not each.qos:
                self.release(each.filter)  # what it has now may be lost
                each.sure = True

    def gone(self) -> None:
        self.scope.cancel()
        self.wire = None
        self.held.clear()
        self.asked.clear()

    async def leave(self, abort: bool) -> None:
        wire = self.wire
        if wire is None:
            return
        if not abort:
            await self._send(raw.disconnect())
        self.gone()
        await wire.abort()

    async def _send(self, data: bytes) -> None:
        async with self.sending:
            if self.wire is not None:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self.wire.send(data)

    async def _listen(self, wire: Wire, scope: trio.CancelScope) -> None:
        with scope, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                try:
                    data = await wire.receive_bytes()
                except AssertionError:
                    return  # closed
                packet = raw.parse(data, wire.version)
                self.handled += 1
                if self.wire is wire:
                    await self._handle(packet)

    # What comes

    async def _handle(self, packet: raw.Received) -> None:
        number = packet.packet_id
        if packet.type == PUBLISH:
            if packet.qos < 2 or number not in self.received:
                self._note(packet)
            if packet.qos == 2:
                self.received.add(number)
            if packet.qos:
                await self._answer(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, number))
        elif packet.type == raw.PUBREL & 0xF0:
            self.received.discard(number)
            await self._answer(raw.ack(raw.PUBCOMP, number))
        elif packet.type == raw.PUBREC:
            assert packet.reason < 0x80
            self.unanswered[number] = None
            await self._send(raw.ack(raw.PUBREL, number))
        elif packet.type in (raw.PUBACK, raw.PUBCOMP):
            if number in self.unanswered:
                del self.unanswered[number]
                self.world.sent[self.payloads.pop(number)].answered = self.world.step
        elif packet.type in (raw.SUBACK, raw.UNSUBACK):
            self.state += 1
            self.discarded = None
            for each in self.asked.pop(number, []):
                if isinstance(each, Subscription):
                    if self.subscriptions.get(each.filter) is each:
                        each.sure = True
                elif each[1] is not None and self.subscriptions.get(each[0]) is each[1]:
                    self.past.append(self.subscriptions.pop(each[0]))
                    for old in self.past:
                        if old.filter == each[0]:
                            old.end = min(old.end, self.world.step)

    def _note(self, packet: raw.Received) -> None:
        identifiers = [value for number, value in packet.properties if number == raw.SUBSCRIPTION_IDENTIFIER]
        got = Got(
            packet.payload,
            packet.qos,
            packet.dup,
            packet.retain,
            identifiers,  # type: ignore[arg-type]
            self.world.life,
            self.connection,
            self.state,
        )
        self.got.append(got)
        self.owed.pop(packet.payload, None)
        self._check_exact(got)

    async def _answer(self, acknowledgement: bytes) -> None:
        if self.auto:
            await self._send(acknowledgement)
        else:
            self.held.append(acknowledgement)

    async def acknowledge(self, count: int) -> None:
        some, self.held = self.held[:count], self.held[count:]
        await self._send(b"".join(some))

    # What goes

    async def publish(self, qos: int, topics: list[str], clients: "list[Client]", expires: bool, retain: bool) -> None:
        """In one piece."""
        pieces: list[bytes] = []
        for topic in topics:
            payload = b"%05d" % len(self.world.sent)
            sent = Sent(self.client_id, topic, payload, qos, retain, expires, self.world.step)
            self.world.sent[payload] = sent
            packet_id = None
            if qos:
                self.last_id = packet_id = self.last_id % 60000 + 1
            properties = raw.message_expiry(50) if expires else b""
            wire = raw.publish(topic, payload, qos=qos, packet_id=packet_id, retain=retain, properties=properties)
            if packet_id is not None:
                self.unanswered[packet_id] = wire
                self.payloads[packet_id] = payload
            pieces.append(wire)
            for client in clients:
                client.expect(sent)
        await self._send(b"".join(pieces))

    async def subscribe(self, *wanted: Subscription) -> None:
        if self.wire is None:
            return
        self.last_id = packet_id = self.last_id % 60000 + 1
        identifier = wanted[0].identifier
        self.state += 1
        for each in wanted:
            old = self.subscriptions.get(each.filter)
            each.begin, each.identifier = self.world.step, identifier
            if old is not None:
                self.past.append(old)  # it ends when the new one is granted, or with an UNSUBSCRIBE
                each.sure = old.sure
            self.subscriptions[each.filter] = each
        self.asked[packet_id] = [*wanted]
        options = [
            (each.filter, raw.options(each.qos, no_local=each.no_local, as_published=each.as_published, handling=2))
            for each in wanted
        ]
        properties = raw.subscription_identifier(identifier) if identifier else b""
        await self._send(raw.subscribe(packet_id, *options, properties=properties))

    def release(self, filter: str) -> None:
        """Nothing is owed for this filter any more."""
        self.state += 1
        if filter in self.subscriptions:
            self.subscriptions[filter].sure = False
        for payload, filters in list(self.owed.items()):
            filters.discard(filter)
            if not filters:
                del self.owed[payload]

    async def unsubscribe(self, filter: str) -> None:
        if self.wire is None:
            return
        self.last_id = packet_id = self.last_id % 60000 + 1
        self.release(filter)
        self.asked[packet_id] = [(filter, self.subscriptions.get(filter))]
        await self._send(raw.unsubscribe(packet_id, filter))

    # What is right

    def expect(self, sent: Sent) -> None:
        """It is being published."""
        matching = [each for each in self.subscriptions.values() if each.matches(sent, self.client_id)]
        if not self.asked and all(each.sure for each in matching):
            self.exact[sent.payload] = self.state, matching
        owed = {each.filter for each in matching if each.sure and each.qos and not each.shared}
        if owed and sent.qos and not sent.expires and not self.asked:
            self.owed[sent.payload] = owed
            self.newest = sent.payload

    def _check_exact(self, got: Got) -> None:
        """Its QoS, identifiers and RETAIN, if the subscriptions have not changed meanwhile."""
        sent = self.world.sent[got.payload]
        state, matching = self.exact.get(got.payload, (-1, []))
        if state != self.state or any(each.shared for each in matching):
            return
        assert matching, f"{self.client_id} got {sent}, which it did not want"
        qos = min(sent.qos, max(each.qos for each in matching))
        identifiers = sorted(each.identifier for each in matching if each.identifier)
        retain = sent.retain and any(each.as_published for each in matching)
        assert (got.qos, sorted(got.identifiers), got.retain) == (qos, identifiers, retain), (got, sent, matching)

    def check(self) -> None:
        """At any time."""
        fresh: Counter[tuple[int, bytes]] = Counter()
        once: Counter[bytes] = Counter()
        order: dict[tuple[str, str, int, int], list[bytes]] = {}
        seen: set[bytes] = set()
        everything = [*self.past, *self.subscriptions.values()]
        for got in self.got:
            sent = self.world.sent[got.payload]
            wanted = [
                each
                for each in everything
                if each.matches(sent, self.client_id) and each.begin <= sent.answered and each.end >= sent.step
            ]
            assert wanted, f"{self.client_id} got {sent}, which it did not want"
            assert got.qos <= sent.qos
            allowed = any(not each.shared for each in wanted) + len({each.filter for each in wanted if each.shared})
            if not got.dup:
                fresh[got.life, got.payload] += 1
                assert fresh[got.life, got.payload] <= allowed * sent.times, f"{self.client_id} got {sent} twice: {got}"
            if got.qos == 2:
                once[got.payload] += 1
                assert once[got.payload] <= allowed, f"{self.client_id} got {sent} of QoS 2 twice: {got}"
            if got.payload not in seen and not any(each.shared for each in wanted):
                seen.add(got.payload)
                order.setdefault((sent.publisher, sent.topic, sent.qos, got.qos), []).append(got.payload)
        for key, payloads in order.items():
            assert payloads == sorted(payloads), f"{self.client_id} got messages of {key} out of order: {payloads}"

    def check_complete(self, *, limited: bool) -> None:
        """At the end, when all has come. With limits, the oldest messages may be missing."""
        owed = self.owed.items()
        missing = [
            (self.world.sent[payload], filters) for payload, filters in owed if payload == self.newest or not limited
        ]
        assert not missing, f"{self.client_id} misses {missing}"


def check_shared(clients: list[Client], world: World) -> None:
    """What a group had to get has come to one of its members at least."""
    got = {each.payload for client in clients for each in client.got}
    for payload, sent in world.sent.items():
        owed = [
            client
            for client in clients
            if payload in client.exact
            and any(
                each.shared
                and each.qos
                and each.sure
                and each.begin <= sent.step
                and client.exact[payload][0] == client.state
                for each in client.exact[payload][1]
            )
        ]
        if owed and sent.qos and not sent.expires:
            assert payload in got, f"nobody got {sent}"
