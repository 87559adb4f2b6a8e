"""Two clients and a broker in random sequences of packets, against a plain model of a correct broker.

`THOROUGH=100` does a hundred times as much.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from random import Random
from typing import Any, TypeAlias

import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw, two_clients
from tests.conformance.lab import nothing_crashes
from tests.conformance.two_clients import Connection, Message, Model, Subscription, Violation, Will
from tests.store.conftest import THOROUGH
from tests.wire import Wire

Op: TypeAlias = tuple[Any, ...]

SLOTS = (0, 1)
CLIENT_IDS = ("a", "b")
TOPICS = ("t", "t/u", "v")
FILTERS = ("t", "t/#", "t/u", "+", "#", "v", "w/+")
BAD: list[tuple[bytes, set[int]]] = [
    (bytes.fromhex("36 05 0001 74 0001"), {0x81}),  # QoS 3
    (bytes.fromhex("08 00"), {0x81}),  # no type
    (bytes.fromhex("38 03 0001 74"), {0x81}),  # DUP at QoS 0
    (bytes.fromhex("20 02 0000"), {0x82}),  # CONNACK
    (bytes.fromhex("d0 00"), {0x82}),  # PINGRESP
    (bytes.fromhex("40 01 00"), {0x81}),  # a PUBACK too short
    (bytes.fromhex("60 02 0001"), {0x81}),  # PUBREL with wrong flags
    (bytes.fromhex("30 ff ff ff 7f"), {0x95}),
    (bytes.fromhex("30 ff ff ff ff 01"), {0x81}),
    (bytes.fromhex("c0 01 00"), {0x81}),  # PINGREQ with a body
    (raw.connect("again"), {0x82}),
    (raw.connect("again", version=4), {0x82}),
]
#: By version, for those whose form depends on it.
BAD_IN: list[tuple[Callable[[int], bytes], set[int]]] = [
    (lambda version: raw.publish("t/+", version=version), {0x81, 0x90}),
    (lambda version: raw.publish(b"t\xff", version=version), {0x81}),
    (lambda version: raw.publish("t\0", version=version), {0x81}),
    (lambda version: raw.publish("t", qos=1, packet_id=0, version=version), {0x81, 0x82}),
    (lambda version: raw.publish("", version=version), {0x81, 0x82}),
    (lambda version: raw.subscribe(9, version=version), {0x81, 0x82}),
    (lambda version: raw.subscribe(0, ("t", 0), version=version), {0x81, 0x82}),
    (lambda version: raw.subscribe(9, ("t/#/u", 0), version=version), {0x81, 0x8F}),
    (lambda version: raw.subscribe(9, ("t", 3), version=version), {0x81}),
    (lambda version: raw.subscribe(9, ("t", 0x40), version=version), {0x81}),
    (lambda version: raw.unsubscribe(9, version=version), {0x81, 0x82}),
    (lambda version: raw.publish("t", bytes(6000), version=version), {0x95}),
]
BAD_5: list[tuple[bytes, set[int]]] = [
    (raw.subscribe(9, ("$share/g/t", raw.options(no_local=True))), {0x82}),
    (raw.subscribe(9, ("t", raw.options(handling=3))), {0x82}),
    (raw.publish("t", properties=raw.message_expiry(1) * 2), {0x82}),
    (raw.publish("t", properties=b"\x7f\0"), {0x81}),
    (raw.publish("t", properties=raw.topic_alias(0)), {0x81, 0x82, 0x94}),
    (raw.publish("t", properties=raw.subscription_identifier(1)), {0x82}),
    (raw.publish("t", properties=raw.payload_format(2)), {0x81, 0x82}),
    (raw.auth(0x18), {0x82}),
    (raw.ack(raw.PUBACK, 9, 0x55), {0x81, 0x82}),
    (raw.disconnect(0x55), {0x81, 0x82}),
]


class Maker:
    """Makes a step from a number. Drawn by hypothesis itself, steps would be much like each other."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)

    def step(self) -> Op:
        random = self.random
        kind = random.choices(
            ("burst", "settle", "connect", "cut", "disconnect", "malformed", "advance"), (60, 10, 12, 5, 4, 4, 5)
        )[0]
        slot = random.choice(SLOTS)
        match kind:
            case "burst":
                return (
                    kind,
                    slot,
                    [self.op() for _ in range(random.choice((1, 1, 2, 3, 8)))],
                    random.choice((0, 0, 7, 25)),
                )
            case "connect":
                return self.connect(slot, random.choice(CLIENT_IDS))
            case "cut":
                return kind, slot, random.random() < 0.3
            case "disconnect":
                return kind, slot, random.choice((0, 4)), random.choice((None, None, 0, 10))
            case "malformed":
                return kind, slot, random.randrange(200)
            case "advance":
                return kind, random.choice((1, 4, 5, 11, 30))
            case _:
                return kind, slot

    def connect(self, slot: int, client_id: str) -> Op:
        random = self.random
        will = (random.randrange(3), random.random() < 0.5, random.choice((0, 3, 20)))
        return (
            "connect",
            slot,
            client_id,
            random.choice((4, 5, 5)),
            random.random() < 0.3,
            random.choice((0xFFFFFFFF, 0xFFFFFFFF, 10, 0)),
            random.choice((65_535, 2, 1)),
            random.choice((0, 9, 1)),
            random.choice((0, 0, 150)),
            random.choice((None, will)),
        )

    def opening(self) -> list[Op]:
        """Each client connects and subscribes."""
        return [
            each
            for slot, client_id in enumerate(CLIENT_IDS)
            for each in (self.connect(slot, client_id), ("burst", slot, [self.subscribe()], 0))
        ]

    def op(self) -> Op:
        random = self.random
        kind = random.choices(
            ("publish", "acknowledge", "release", "subscribe", "unsubscribe", "ping"), (45, 30, 12, 7, 4, 2)
        )[0]
        match kind:
            case "publish":
                return (
                    kind,
                    random.choice(TOPICS),
                    random.choice((0, 1, 2, 2)),
                    random.random() < 0.2,
                    random.random() < 0.2,
                    random.choice((None, None, None, None, 1, 2, 3, 4)) if random.random() < 0.7 else None,
                    random.random() < 0.3,
                    random.choice((None, None, 5)),
                    random.choice(("small", "small", "small", "large", "none")),
                    random.randint(1, 7),
                )
            case "acknowledge":
                how = random.choices(("right", "twice", "wrong", "refused", "unknown"), (80, 6, 2, 6, 6))[0]
                return kind, random.choice((0, 0, 1, 4)), how
            case "release":
                return kind, random.randint(1, 7)
            case "subscribe":
                return self.subscribe()
            case "unsubscribe":
                return kind, random.sample(FILTERS, random.randint(1, 2))
            case _:
                return (kind,)

    def subscribe(self) -> Op:
        random = self.random
        wanted = {
            filter: Subscription(
                random.choice((2, 2, 1, 0)), random.random() < 0.2, random.random() < 0.5, random.choice((0, 0, 1, 2))
            )
            for filter in random.sample(FILTERS, random.randint(1, 3))
        }
        return "subscribe", wanted, random.choice((None, None, 1, 200))


class End:
    """One end of a connection: what it knows, and all that came."""

    def __init__(self, wire: Wire, connection: Connection) -> None:
        self.wire = wire
        self.connection = connection
        self.came: list[raw.Received] = []
        self.closed = False

    async def listen(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                try:
                    data = await self.wire.receive_bytes()
                except AssertionError:
                    break
                self.came.append(raw.parse(data, self.wire.version))
        self.closed = True


class Play:
    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.model = Model()
        self.ends: dict[int, End] = {}
        #: Also those that were replaced, until they have been checked.
        self.checked: list[End] = []
        self.number = 0
        self.room: Room
        self.nursery: trio.Nursery

    async def run(self, steps: list[Op]) -> None:
        settings: dict[str, Any] = {
            "mqtt": {
                "receive_maximum": two_clients.RECEIVE_MAXIMUM,
                "max_topic_alias": two_clients.MAX_ALIAS,
                "max_topic_alias_out": two_clients.MAX_ALIAS_OUT,
                "max_packet_size": two_clients.MAX_PACKET_SIZE,
            },
            "session": {
                "max_inflight": two_clients.MAX_INFLIGHT,
                "max_awaiting_rel": two_clients.MAX_AWAITING_REL,
                "expiry_interval": two_clients.EXPIRY_311,
                "backpressure": 0,
            },
            "flapping": {"max_takeovers": 0},
        }
        with nothing_crashes():
            async with room(**settings) as self.room, trio.open_nursery() as self.nursery:
                for index, (name, *arguments) in enumerate(steps):
                    try:
                        await getattr(self, name)(*arguments)
                        await self.rest()
                    except AssertionError as error:
                        error.add_note("\n".join(f"{number} {each}" for number, each in enumerate(steps[: index + 1])))
                        raise
                self.nursery.cancel_scope.cancel()

    async def rest(self) -> None:
        """Until nothing happens any more; then everything that came is checked."""
        for _ in range(3):
            await wait_all_tasks_blocked()
        for end in [*self.checked]:
            came, end.came = end.came, []
            self.model.check(end.connection, came, end.closed)
            if end.closed:
                self.checked.remove(end)
                self.ends = {slot: each for slot, each in self.ends.items() if each is not end}

    # Steps

    async def connect(
        self,
        slot: int,
        client_id: str,
        version: int,
        clean: bool,
        expiry: int,
        receive_maximum: int,
        aliases: int,
        max_packet_size: int,
        will: tuple[int, bool, int] | None,
    ) -> None:
        await self.cut(slot, False)
        await self.rest()
        v5 = version == 5
        properties, asked = b"", None
        if v5:
            properties = raw.session_expiry(expiry) + raw.receive_maximum(receive_maximum)
            properties += raw.topic_alias_maximum(aliases)
            properties += raw.maximum_packet_size(max_packet_size) if max_packet_size else b""
        lasts = (inf if expiry == 0xFFFFFFFF else expiry) if v5 else 0 if clean else two_clients.EXPIRY_311
        asked_will = None
        if will is not None:
            qos, retain, delay = will
            payload = self._payload("small")
            asked_will = raw.Will(f"w/{client_id}", payload, qos, retain, raw.will_delay(delay) if v5 else b"")
            asked = Will(Message(f"w/{client_id}", payload, qos, retain, client_id), delay if v5 else 0)
        connection = Connection(
            client_id,
            version,
            receive_maximum if v5 else 65_535,
            min(aliases, two_clients.MAX_ALIAS_OUT) if v5 else 0,
            max_packet_size if v5 and max_packet_size else 1_000_000,
            False,
        )
        self.model.connect(connection, clean=clean, expiry=lasts, will=asked)
        wire = self.room.wire(version)
        wire.patience = inf
        connack = await wire.connect(client_id, clean=clean, properties=properties, will=asked_will)
        assert connack.session_present == connection.resumed
        end = self.ends[slot] = End(wire, connection)
        self.checked.append(end)
        self.nursery.start_soon(end.listen)

    async def cut(self, slot: int, inside: bool) -> None:
        """The network fails, perhaps in the middle of a packet."""
        end = self.ends.pop(slot, None)
        if end is not None:
            if inside:
                await end.wire.send(raw.publish("t", b"never", version=end.wire.version)[:-1])
            self.checked.remove(end)
            self.model.lost(end.connection)
            await end.wire.abort()

    async def disconnect(self, slot: int, reason: int, expiry: int | None) -> None:
        end = self.ends.get(slot)
        if end is None:
            return
        v5 = end.wire.version == 5
        properties = None if expiry is None else raw.session_expiry(expiry)
        packet = raw.disconnect(reason, properties) if v5 else raw.disconnect()
        try:
            self.model.disconnect(end.connection, reason if v5 else 0, expiry if v5 else None)
        except Violation as violation:
            self.model.violated(end.connection, violation.reasons)
        await end.wire.send(packet)

    async def malformed(self, slot: int, which: int) -> None:
        end = self.ends.get(slot)
        if end is None:
            return
        version = end.wire.version
        bad = BAD + [(make(version), reasons) for make, reasons in BAD_IN] + (BAD_5 if version == 5 else [])
        data, reasons = bad[which % len(bad)]
        self.model.violated(end.connection, reasons)
        await end.wire.send(data)

    async def settle(self, slot: int) -> None:
        """It acknowledges all that it has, and all that comes then."""
        end = self.ends.get(slot)
        while end is not None and self.ends.get(slot) is end:
            inflight = [each for each in self.model.session(end.connection).inflight.values() if not each.optional]
            if not inflight:
                break
            await self.burst(slot, [("acknowledge", number, "right") for number in range(len(inflight))], 0)
            await self.rest()

    async def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.model.advance(1)
            self.clock.jump(1)
            await wait_all_tasks_blocked()

    async def burst(self, slot: int, ops: list[Op], cut: int) -> None:
        end = self.ends.get(slot)
        if end is None:
            return
        data, violation = b"", None
        for name, *arguments in ops:
            packet, act = getattr(self, f"_{name}")(end.connection, *arguments)
            data += packet
            if violation is None:
                try:
                    act()
                except Violation as error:
                    violation = error
                    self.model.violated(end.connection, error.reasons)
        await end.wire.send(data[:cut])
        if data[cut:] and not end.closed:
            if cut:
                await wait_all_tasks_blocked()
            with suppress(trio.BrokenResourceError):
                await end.wire.send(data[cut:])

    # Packets, each with what it does to the model

    def _payload(self, size: str) -> bytes:
        if size == "none":
            return b""
        self.number += 1
        return b"%05d" % self.number * (60 if size == "large" else 1)

    def _publish(
        self,
        connection: Connection,
        topic: str,
        qos: int,
        retain: bool,
        dup: bool,
        alias: int | None,
        omit: bool,
        expiry: int | None,
        size: str,
        packet_id: int,
    ) -> tuple[bytes, Callable[[], None]]:
        v5 = connection.version == 5
        alias = alias if v5 else None
        expiry = expiry if v5 else None
        written = "" if omit and alias is not None else topic
        payload = self._payload(size)
        kind = f"kind {self.number}" if v5 and self.number % 3 == 0 else ""
        properties = b"" if alias is None else raw.topic_alias(alias)
        properties += b"" if expiry is None else raw.message_expiry(expiry)
        properties += raw.content_type(kind) if kind else b""
        number = packet_id + 100 if qos == 1 else packet_id if qos else 0
        packet = raw.publish(
            written,
            payload,
            qos=qos,
            packet_id=number or None,
            retain=retain,
            dup=dup and qos > 0,
            properties=properties,
            version=connection.version,
        )
        expires_at = inf if expiry is None else self.model.now + expiry
        message = Message(topic, payload, qos, retain, connection.client_id, expires_at, kind)
        return packet, lambda: self.model.publish(connection, message, number, alias, written)

    def _release(self, connection: Connection, packet_id: int) -> tuple[bytes, Callable[[], None]]:
        return raw.ack(raw.PUBREL, packet_id), lambda: self.model.pubrel(connection, packet_id)

    def _acknowledge(self, connection: Connection, which: int, how: str) -> tuple[bytes, Callable[[], None]]:
        session = self.model.sessions.get(connection.client_id)
        inflight = [each for each in session.inflight.items() if not each[1].optional] if session is not None else []
        if how == "unknown" or not inflight:
            packet_id, kind = 60_000 + which, (raw.PUBACK, raw.PUBREC, raw.PUBCOMP)[which % 3]
        else:
            packet_id, sent = inflight[which % len(inflight)]
            kind = sent.state
            if how == "wrong":
                kind = {raw.PUBACK: raw.PUBREC, raw.PUBREC: raw.PUBCOMP, raw.PUBCOMP: raw.PUBACK}[kind]
        refused = how == "refused" and connection.version == 5 and kind != raw.PUBCOMP
        reason = 0x83 if refused else 0
        packet = raw.ack(kind, packet_id, reason or None)
        times = 2 if how == "twice" else 1

        def act() -> None:
            for _ in range(times):
                self.model.acknowledge(connection, kind, packet_id, reason)

        return packet * times, act

    def _subscribe(
        self, connection: Connection, wanted: dict[str, Subscription], identifier: int | None
    ) -> tuple[bytes, Callable[[], None]]:
        v5 = connection.version == 5
        asked = {
            filter: Subscription(each.qos, each.no_local, each.as_published, each.handling, identifier)
            if v5
            else Subscription(each.qos)
            for filter, each in wanted.items()
        }
        options = [
            (
                filter,
                raw.options(each.qos, no_local=each.no_local, as_published=each.as_published, handling=each.handling),
            )
            for filter, each in asked.items()
        ]
        properties = raw.subscription_identifier(identifier) if v5 and identifier is not None else b""
        packet = raw.subscribe(77, *options, properties=properties, version=connection.version)
        return packet, lambda: self.model.subscribe(connection, 77, asked)

    def _unsubscribe(self, connection: Connection, filters: list[str]) -> tuple[bytes, Callable[[], None]]:
        packet = raw.unsubscribe(78, *filters, version=connection.version)
        return packet, lambda: self.model.unsubscribe(connection, 78, filters)

    def _ping(self, connection: Connection) -> tuple[bytes, Callable[[], None]]:
        return raw.PINGREQ, lambda: connection.answers.append((two_clients.PINGRESP, 0, [{0}]))


def play(steps: list[Op]) -> None:
    clock = MockClock()
    trio.run(Play(clock).run, steps, clock=clock)


@settings(
    max_examples=60 * THOROUGH,
    print_blob=True,
)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 2**32), min_size=25, max_size=50))
@example(1369945, [1155, 74906, 19127, 8393])  # a retained message, too large for one connection, comes on the next
def test_two_clients_and_a_broker(first: int, numbers: list[int]) -> None:
    """A number 0 is no step: hypothesis shrinks to few that are others."""
    play([*Maker(first).opening(), *[Maker(number).step() for number in numbers if number]])
