"""The log against a ledger: clients do what chance says, keep count of what they caused and got, and the rows of each
kind must be exactly those."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock

from tests.broker.room import Room
from tests.conformance import raw
from tests.events.recordings import recorded, recording
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from tests.wire import Wire

NAMES = ("ann", "bob", "cid", "dee", "eve")
TOPICS = ("plant/1/t", "plant/2/t", "office/1", "nobody", "secret/1")
SHARED = "$share/g/plant/#"
FILTERS = ("plant/#", "plant/+/t", "office/1", SHARED)
#: Kinds that are counted, by client.
KINDS = (
    *("client.authenticated", "client.connack", "client.connected", "client.disconnected"),
    *("session.created", "session.resumed", "session.discarded", "session.taken_over", "session.terminated"),
    *("session.subscribed", "session.unsubscribed"),
    *("message.publish", "message.routed", "message.delivered", "message.acked", "message.dropped"),
    *("alarm.activated", "alarm.deactivated"),
)
QUEUE = 3


class Ledger:
    """Clients that keep count."""

    def __init__(self, here: Room, chance: random.Random) -> None:
        self.here = here
        self.chance = chance
        self.counts: Counter[tuple[str, str]] = Counter()
        self.wires: dict[str, Wire] = {}
        #: Whether the session of each outlives its connection, and its filters.
        self.stays: dict[str, bool] = {}
        self.filters: dict[str, set[str]] = {}
        self.waiting: Counter[str] = Counter()
        self.alarms: set[str] = set()

    def add(self, client_id: str, *kinds: str) -> None:
        self.counts.update((kind, client_id) for kind in kinds)

    async def connect(self, name: str) -> None:
        clean, stays = self.chance.random() < 0.3, self.chance.random() < 0.6
        if self.chance.random() < 0.1:
            wire = self.here.wire()
            await wire.send(raw.connect(name, password=b"wrong", username="mallory"))
            assert (await wire.expect_type(raw.CONNACK)).reason == Reason.NOT_AUTHORIZED
            self.add(name, "client.authenticated", "client.connack")
            return
        self.add(name, "client.authenticated", "client.connack", "client.connected")
        old = self.wires.pop(name, None)
        if old is not None:
            self.add(name, "client.disconnected")
        had = name in self.stays
        anew = clean or (old is not None and not self.stays[name])
        if old is not None and not anew:
            self.add(name, "session.taken_over")
        if anew and had:
            self.forget(name)
            self.add(name, "session.discarded")
        self.add(name, "session.resumed" if had and not anew else "session.created")
        self.stays[name] = stays
        self.filters.setdefault(name, set())
        wire = self.here.wire()
        await wire.connect(name, clean=clean, properties=raw.session_expiry(1000 if stays else 0))
        self.wires[name] = wire
        self.waiting[name] = 0

    def forget(self, name: str) -> None:
        self.add(name, *["message.dropped"] * self.waiting[name])  # what waited ends with the session
        del self.stays[name], self.filters[name], self.waiting[name]

    async def leave(self, name: str) -> None:
        await self.unsubscribe(name, SHARED)  # the broker alone knows which absent member gets a message
        wire = self.wires.pop(name)
        if self.chance.random() < 0.5:
            await wire.disconnect()
        else:
            await wire.abort()
            await self.settle()
        self.add(name, "client.disconnected")
        if not self.stays[name]:
            self.forget(name)
            self.add(name, "session.terminated")

    async def subscribe(self, name: str) -> None:
        filter = self.chance.choice(FILTERS)
        await self.wires[name].subscribe((filter, 2))
        self.filters[name].add(filter)
        self.add(name, "session.subscribed")

    async def unsubscribe(self, name: str, filter: str = "") -> None:
        filter = filter or self.chance.choice(FILTERS)
        await self.wires[name].send(raw.unsubscribe(9, filter))
        await self.wires[name].expect_type(raw.UNSUBACK)
        if filter in self.filters[name]:
            self.filters[name].remove(filter)
            self.add(name, "session.unsubscribed")

    async def publish(self, name: str) -> None:
        topic, qos = self.chance.choice(TOPICS), self.chance.randrange(3)
        wire = self.wires[name]
        await wire.send(raw.publish(topic, b"x", qos=qos, packet_id=7 if qos else None))
        reason = None
        while qos:
            packet = await wire.receive()
            if packet.type == raw.PUBLISH & 0xF0:
                await self.take(name, packet)
            elif packet.type == raw.PUBREC & 0xF0 and packet.reason < 0x80:
                reason = packet.reason
                await wire.send(raw.ack(raw.PUBREL, 7))
            else:
                reason = packet.reason if reason is None else reason
                break
        if topic.startswith("secret/"):
            assert reason in (None, Reason.NOT_AUTHORIZED)
            self.add(name, "message.dropped")
            return
        self.add(name, "message.publish", "message.routed")
        groups = {filter for filters in self.filters.values() for filter in filters if filter.startswith("$share")}
        takers = [one for one, filters in self.filters.items() if any(matches(each, topic) for each in filters)]
        if not takers and not (groups and matches("plant/#", topic)):
            assert reason in (None, Reason.NO_MATCHING_SUBSCRIBERS)
            self.add(name, "message.dropped")
        for one in takers:
            if one not in self.wires:
                self.waits(one)

    def waits(self, name: str) -> None:
        """A message for a client that is away: its queue drops the oldest."""
        if self.waiting[name] == QUEUE:
            self.add(name, "message.dropped")
        else:
            self.waiting[name] += 1

    async def take(self, name: str, packet: raw.Received) -> None:
        self.add(name, "message.delivered")
        if packet.qos == 1:
            await self.wires[name].send(raw.ack(raw.PUBACK, packet.packet_id))
        elif packet.qos == 2:
            await self.wires[name].send(raw.ack(raw.PUBREC, packet.packet_id))
        if packet.qos:
            self.add(name, "message.acked")

    async def settle(self) -> None:
        """All clients that are there take what is on its way to them."""
        for name, wire in self.wires.items():
            for _ in range(3):  # PUBREL follows PUBREC, and its answer another one
                await wire.send(raw.PINGREQ)
                while (packet := await wire.receive()).type != raw.PINGRESP[0]:
                    if packet.type == raw.PUBLISH & 0xF0:
                        await self.take(name, packet)
                    elif packet.type == raw.PUBREL & 0xF0:
                        await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))

    def alarm(self) -> None:
        name = self.chance.choice(("hot", "cold"))
        if name in self.alarms:
            self.here.admin.alarms.deactivate(name)
            self.alarms.remove(name)
            self.add("", "alarm.deactivated")
        else:
            self.here.admin.alarms.activate(name, "")
            self.alarms.add(name)
            self.add("", "alarm.activated")

    async def step(self) -> None:
        name = self.chance.choice(NAMES)
        if name not in self.wires:
            await self.connect(name)
        else:
            deeds = (self.subscribe, self.unsubscribe, *[self.publish] * 5, self.connect, self.leave)
            await self.chance.choice(deeds)(name)
        if self.chance.random() < 0.05:
            self.alarm()
        await self.settle()

    def end(self) -> None:
        """The broker stops: connections end, and all sessions."""
        for name in self.wires:
            self.add(name, "client.disconnected")
        for name in list(self.stays):
            self.forget(name)
            self.add(name, "session.terminated")


def counted(path: Path) -> Iterator[tuple[str, str]]:
    for row in recorded(path, *KINDS):
        yield row["kind"], row.get("client_id", "")


@pytest.mark.parametrize("seed", range(6))
async def test_every_row_is_what_a_client_did_or_got(tmp_path: Path, autojump_clock: MockClock, seed: int) -> None:
    def authenticate(client: ClientInfo, password: bytes | None) -> Deny | None:
        return Deny() if password == b"wrong" else None

    def check(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if topic.startswith("secret/") else None

    async with recording(tmp_path, session={"max_queue_length": QUEUE}) as here:
        here.broker.hooks.add("client.authenticate", authenticate)
        here.broker.hooks.add("client.check_acl", check)
        ledger = Ledger(here, random.Random(seed))
        for _ in range(300):
            await ledger.step()
    ledger.end()
    found = Counter(counted(tmp_path))
    differing = {
        key: (ledger.counts[key], found[key]) for key in ledger.counts | found if ledger.counts[key] != found[key]
    }
    assert not differing, "what the clients counted, and what was recorded"
    assert {kind for kind, _ in found} == set(KINDS)
