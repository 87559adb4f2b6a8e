"""Sequences of what clients do, made from a number, and all that can be seen of what the broker makes of them."""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import trio.testing

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.states import State

TOPICS = ["a", "a", "a", "b/c", "b/d", "d", "nobody", "$SYS/x", "denied", "x" * 200]
#: By client: version, filters with their options, terms.
SUBSCRIBERS: dict[str, tuple[int, list[tuple[str, int]], bytes]] = {
    "zero": (4, [("#", 0)], b""),
    "one": (5, [("+", 1), ("+/+", 1)], b""),
    "two": (4, [("a", 2), ("b/+", 2)], b""),
    "kept": (5, [("#", raw.options(2, as_published=True))], b""),
    "overlapping": (5, [("b/#", 2), ("b/c", 0), ("a", 1)], b""),
    "aliases": (5, [("a", 1), ("d", 0)], raw.topic_alias_maximum(2)),
    "narrow": (5, [("#", 1)], raw.receive_maximum(2)),
    "shared-1": (4, [("$share/g/a", 1)], b""),
    "shared-2": (5, [("$share/g/a", 2)], b""),
    "shared-3": (5, [("$share/h/#", 0)], b""),
}
ANSWERS = {0x30: None, 0x50: raw.PUBREL, 0x62: raw.PUBCOMP}
Seen = dict[str, list[Any]]


class Publisher:
    """Makes what one client sends."""

    def __init__(self, random: Random, version: int) -> None:
        self._random = random
        self._version = version
        self._last_id = 0
        self._number = 0

    def packets(self) -> list[bytes]:
        """In streaks that are alike, with an odd one here and there."""
        random, made = self._random, list[bytes]()
        for _ in range(random.randint(1, 8)):
            topic, qos, retain = random.choice(TOPICS), random.choice([0, 1, 1, 2]), random.random() < 0.15
            size, properties, again = random.choice([1, 1, 26, 240, 900]), self._properties(), random.random() < 0.1
            for _ in range(2 if size == 900 else random.choice([1, 1, 2, 5, 20])):
                self._number += 1
                if not again:
                    self._last_id = self._last_id % 400 + 1
                payload = b"%05d" % self._number * (size if random.random() < 0.9 else size + 1)
                if random.random() < 0.02:
                    payload = b""
                made.append(
                    raw.publish(
                        topic,
                        payload,
                        qos=qos,
                        packet_id=self._last_id if qos else None,
                        retain=retain,
                        dup=again and qos > 0,
                        properties=properties,
                        version=self._version,
                    )
                )
        if random.random() < 0.3:
            made += [raw.ack(raw.PUBREL, random.randint(1, 400)) for _ in range(random.randint(1, 4))]
        return made

    def _properties(self) -> bytes:
        if self._version < 5:
            return b""
        return self._random.choice(
            [
                b"",
                b"",
                b"",
                raw.user_property("k", "v"),
                raw.message_expiry(60),
                raw.topic_alias(1),
                raw.content_type("t"),
            ]
        )


class Sequence:
    def __init__(self, seed: int, add: Callable[..., object]) -> None:
        """`add(hooks, point, one, many)` registers a callback that takes publications."""
        self.random = Random(seed)
        self._add = add
        self._seen: Seen = defaultdict(list)
        self.wires: dict[str, Wire] = {}

    async def play(self) -> list[object]:
        random = self.random
        session = {
            "max_inflight": random.choice([1, 3, 20, 1000]),
            "max_queue_length": random.choice([5, 10_000]),
            "max_awaiting_rel": random.choice([7, 65_535]),
            "upgrade_qos": random.random() < 0.2,
            "backpressure": 0,
        }
        async with room(session=session, mqtt={"max_payload_size": random.choice([0, 0, 6000])}) as here:
            self._listen(here)
            for name, (version, _, _) in SUBSCRIBERS.items():
                await self._connect(here, name, version)
            publishers = {f"publisher-{version}": Publisher(random, version) for version in (4, 5)}
            for name in publishers:
                await self._connect(here, name, int(name[-1]))
            for _ in range(random.randint(1, 4)):
                for name, publisher in publishers.items():
                    packets = publisher.packets()
                    if random.random() < 0.3:
                        packets += [raw.PINGREQ, *publisher.packets()]
                    await self.wires[name].send(*packets)
                    await trio.testing.wait_all_tasks_blocked()
                await self._answer(here)
            figures = await here.node.figures()
            held = [(name, self._held(here, name)) for name in self.wires]
        same = {
            key: value for key, value in figures.items() if not any(word in key for word in ("bytes", "time", "memory"))
        }
        return [dict(sorted(self._seen.items())), held, same]

    async def _connect(self, here: Room, name: str, version: int) -> None:
        filters, terms = (
            SUBSCRIBERS[name][1:] if name in SUBSCRIBERS else ([("d", raw.options(1, no_local=True)), ("a", 0)], b"")
        )
        if version < 5:
            filters = [(topic_filter, options & 3) for topic_filter, options in filters]
        wire = self.wires[name] = here.wire(version)
        connack = await wire.connect(
            name, clean=False, properties=terms + raw.session_expiry(1000) if version == 5 else b""
        )
        self._seen[name].append(("connected", connack.data))
        identifier = raw.subscription_identifier(7) if name == "overlapping" else b""
        await wire.send(raw.subscribe(1, *filters, properties=identifier, version=version))

    async def _answer(self, here: Room) -> None:
        """Each client takes what came and answers some of it. Some connections are lost and made again."""
        for name, wire in list(self.wires.items()):
            for _ in range(self.random.choice([1, 2, 20])):
                await trio.testing.wait_all_tasks_blocked()
                came = await self._take(name, wire)
                answers = [
                    raw.ack(ANSWERS.get(p.data[0] & 0xF0, 0) or self._first(p), p.packet_id)
                    for p in came
                    if self._first(p)
                ]
                limit = self.random.choice([0, 5, 1000, 1000])
                if not answers or not limit or name not in self.wires:
                    break
                if self.random.random() < 0.1:
                    self.random.shuffle(answers)
                await wire.send(*answers[:limit])
            if self.random.random() < 0.15 or name not in self.wires:
                version = wire.version
                await wire.abort()
                await trio.testing.wait_all_tasks_blocked()
                await self._connect(here, name, version)

    @staticmethod
    def _first(packet: raw.Received) -> int:
        """The first byte of what answers a packet."""
        first = packet.data[0]
        if packet.type == raw.PUBLISH:
            return {0: 0, 1: raw.PUBACK, 2: raw.PUBREC}[first >> 1 & 3]
        if packet.type == raw.PUBREC and packet.reason < 0x80:
            return raw.PUBREL
        return raw.PUBCOMP if packet.type == raw.PUBREL & 0xF0 else 0

    async def _take(self, name: str, wire: Wire) -> list[raw.Received]:
        came: list[raw.Received] = []
        try:
            await wire.send(raw.PINGREQ)
            while (packet := await wire.receive()).type != raw.PINGRESP[0]:
                came.append(packet)
        except Exception as error:  # noqa: BLE001 - the broker ended the connection, which is to be the same, too
            del self.wires[name]
            self._seen[name].append(("ended", type(error).__name__))
        # what acknowledges a client's own messages may come before or behind what it is sent
        self._seen[name] += sorted([p.data for p in came], key=lambda data: data[0] & 0xF0 in (0x40, 0x50, 0x70))
        return came

    def _held(self, here: Room, name: str) -> list[object]:
        session = here.session(name).session
        return [
            # of what was released, only the packet identifier is needed
            [
                (packet_id, state, None if state == State.WAIT_PUBCOMP else plain(message))
                for packet_id, state, message, _ in session.inflight.export()[1]
            ],
            [(plain(message), qos) for message, _, qos, _ in session.queue],
            [(packet_id, plain(message)) for packet_id, _, message in session.awaiting_rel.export()],
        ]

    # Hooks

    def _listen(self, here: Room) -> None:
        hooks, random = here.broker.hooks, self.random

        def refuse(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
            return Deny() if action == "publish" and topic == "denied" else None

        hooks.add("client.check_acl", refuse)
        kind = random.choice(["none", "none", "looks", "takes publications", "both", "changes", "changes deliveries"])
        for point in ("message.publish", "message.delivered", "message.acked", "delivery.completed"):
            if kind in ("looks", "both") and random.random() < 0.6:
                hooks.add(point, self._note(point))
            if kind in ("takes publications", "both"):
                one = self._note(point + " together")
                self._add(hooks, point, one, self._each(one))
        if kind in ("looks", "both", "takes publications"):
            for point in ("message.dropped", "message.queued"):
                hooks.add(point, self._note(point))
            one_routed = self._routed()
            if random.random() < 0.5:
                hooks.add("message.routed", one_routed)
            else:
                self._add(hooks, "message.routed", one_routed, self._each_routed(one_routed))
        if kind == "changes":
            hooks.add("message.publish", self._change)
        elif kind == "changes deliveries":
            hooks.add("message.deliver", self._change)

    def _note(self, point: str) -> Callable[..., None]:
        def note(client: ClientInfo, message: Message, *rest: object) -> None:
            self._seen[f"{point} {client.client_id}"].append(
                (message.topic, message.payload, message.qos, message.retain, message.publisher, *map(str, rest))
            )

        return note

    @staticmethod
    def _each(one: Callable[..., None]) -> Callable[..., None]:
        def many(client: ClientInfo, publication: Any) -> None:
            for message in publication.messages:
                one(client, message)

        return many

    def _routed(self) -> Callable[..., None]:
        def routed(message: Message, receivers: tuple[str, ...]) -> None:
            self._seen[f"routed {message.publisher}"].append((message.topic, message.payload, sorted(receivers)))

        return routed

    @staticmethod
    def _each_routed(one: Callable[..., None]) -> Callable[..., None]:
        def many(publication: Any, receivers: tuple[str, ...]) -> None:
            for message in publication.messages:
                one(message, receivers)

        return many

    @staticmethod
    def _change(client: ClientInfo, message: Message) -> Message | Deny | None:
        number = int(message.payload[:5] or b"0")
        if number % 7 == 0:
            return Deny()
        if number % 5 == 0:
            return Message(message.topic, message.payload + b"!", message.qos, message.retain)
        return None


def plain(message: Message | None) -> object:
    """Without id and times, which are never the same twice."""
    if message is None:
        return None
    return message.topic, message.payload, message.qos, message.retain, dict(message.properties), message.publisher
