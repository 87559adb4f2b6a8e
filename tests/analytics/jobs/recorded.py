"""Some minutes in the life of three brokers, recorded by themselves. Time is a test's own, so they pass in seconds, and
are the same each time."""

import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from tests.analytics.events_made import START
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.analytics.demo.broker import KINDS
from trunkline.events.reader import EventLog
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.reasons import Reason

#: Seconds of it in which something happens.
DURATION = 240.0
#: Whatever is subscribed to by anybody.
FILTERS = (
    *("plant0/#", "plant1/#", "plant2/#", "plant0/up/#", "plant1/up/#", "+/up/1"),
    *("$share/two/plant2/#", "plant2/+/1", "plant9/#", "plant8/#"),
)
#: Nobody listens there.
UNHEARD = "plant7/up/7"
#: Messages that the slow one takes at a time: its window is full with them.
AT_ONCE = 5


def record(folder: Path, root: Path) -> pa.Table:
    """Let them live, and record into the folder. `root` becomes a copy of that log from before they stop, where not all
    has ended. Returns all that is in the copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trunkline.broker.node.time", SimpleNamespace(time=_now, perf_counter=_now))
        trio.run(_live, folder, root, clock=MockClock(autojump_threshold=0))
    log = EventLog(root)
    log.refresh()
    batches = [
        batch for node, extent in sorted(log.nodes().items()) for batch in log.read(node, extent.first, extent.end)
    ]
    return pa.Table.from_batches(batches)


def _now() -> float:
    """The clock on the wall, which otherwise tells in which window of a job something happens."""
    return START.timestamp() + trio.current_time()


async def _live(folder: Path, root: Path) -> None:
    async with (
        _node(folder, "n1") as one,
        _node(folder, "n2") as two,
        _node(folder, "n3", heartbeat=12, stats=70) as three,
        trio.open_nursery() as listening,
    ):
        for here in (one, two):
            await _listeners(here, listening)
        async with trio.open_nursery() as busy:
            for here in (one, two):
                _devices(here, busy)
            for number in range(4):
                busy.start_soon(_roams, (one, two), f"roamer{number}", Random(f"roamer{number}"))
            busy.start_soon(_sleeps, two)
            busy.start_soon(_restarts, three)
        await trio.sleep(5)  # all but the slow one have answered
        shutil.copytree(folder, root)
        listening.cancel_scope.cancel()


@asynccontextmanager
async def _node(folder: Path, name: str, **settings: object) -> AsyncIterator[Room]:
    events = {"path": str(folder), "kinds": KINDS, **settings}
    session = {"max_queue_length": 30, "backpressure": 0}
    async with room(node={"name": name}, plugins={"events": events}, session=session) as here:
        here.broker.hooks.add("client.authenticate", _authenticate)
        here.broker.hooks.add("client.check_acl", _check)
        yield here


def _authenticate(client: ClientInfo, password: bytes | None) -> Deny | None:
    return Deny(Reason.BAD_USER_NAME_OR_PASSWORD) if client.client_id == "guesser" else None


def _check(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
    return Deny() if topic.startswith("secret/") else None


def _from(here: Room, address: str) -> Wire:
    ours, theirs = memory_stream_pair()
    here.node._inside.accept_stream(ours, (address, 40_000))
    return Wire(theirs, patience=60)


async def _listeners(here: Room, nursery: trio.Nursery) -> None:
    """Who gets messages until the end, each in its own way."""
    patient = [
        ("all", "plant0/#", 1, 0.02),
        ("unhurried", "plant1/#", 2, 0.4),
        ("careless", "plant0/up/#", 0, 0.0),
        ("first", "+/up/1", 1, 0.1),
        ("shares-a", "$share/two/plant2/#", 1, 0.05),
        ("shares-b", "$share/two/plant2/#", 1, 0.3),
        ("one", "plant2/+/1", 2, 0.0),
    ]
    for name, filter, qos, takes in patient:
        wire = await here.client(name)
        await wire.subscribe((filter, qos))
        nursery.start_soon(_answers, wire, takes, Random(name))
    deaf = await here.stay("deaf")
    await deaf.subscribe(("plant9/#", 1))
    slow = await here.client("slow", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(AT_ONCE))
    await slow.subscribe(("plant1/up/#", 1))
    nursery.start_soon(_answers, slow, 6.0, Random("slow"))


async def _answers(wire: Wire, takes: float, random: Random) -> None:
    """Acknowledges one message after the other, each after about so many seconds."""
    wire.patience = math.inf
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
        while True:
            packet = await wire.receive()
            if packet.type == raw.PUBLISH and packet.qos:
                await trio.sleep(takes * random.uniform(0.5, 1.5))
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
            elif packet.type == raw.PUBREL & 0xF0:
                await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))


def _devices(here: Room, nursery: trio.Nursery) -> None:
    for number in range(9):
        nursery.start_soon(_publishes, here, f"device{number}", number)
    nursery.start_soon(_falls_silent, here, "meter0", 60.0)
    nursery.start_soon(_falls_silent, here, "meter1", 500.0)
    nursery.start_soon(_flaps, here)
    nursery.start_soon(_trespasses, here)
    nursery.start_soon(_guesses, here)
    nursery.start_soon(_storm, here)
    nursery.start_soon(_come_and_go, here)


async def _publishes(here: Room, name: str, number: int) -> None:
    random = Random(name)
    wire = await here.client(name, version=(4, 5)[number % 2])
    while trio.current_time() < DURATION:
        await trio.sleep(random.expovariate(0.5))
        topic = f"plant{number % 3}/{random.choice(['up', 'down'])}/{min(int(random.expovariate(0.5)), 5)}"
        if random.random() < 0.05:
            topic = UNHEARD
        retain = random.random() < 0.02
        await wire.publish(topic, random.randbytes(random.randrange(300)), qos=random.randrange(3), retain=retain)
    await wire.disconnect()


async def _falls_silent(here: Room, name: str, silent: float) -> None:
    """For so many seconds, if it comes back by then."""
    random = Random(name)
    wire = await here.client(name)
    for begin in (0.0, 80.0 + silent):
        await trio.sleep(min(begin, DURATION))
        for _ in range(12):
            await trio.sleep(random.uniform(2.5, 3.5))
            if trio.current_time() < DURATION:
                await wire.publish("plant0/down/9", b"", qos=1)
    await wire.abort()


async def _flaps(here: Room) -> None:
    random = Random(1)
    await trio.sleep(20)
    for _ in range(15):
        wire = await here.client("flapping")
        await trio.sleep(random.uniform(0.5, 2))
        await (wire.disconnect() if random.random() < 0.5 else wire.abort())
        await trio.sleep(random.uniform(0.5, 2))


async def _trespasses(here: Room) -> None:
    wire = _from(here, "198.51.100.7")
    await wire.connect("trespasser")
    for pause in (0.4, 3.0):
        await trio.sleep(30)
        for number in range(40):
            await trio.sleep(pause)
            await wire.publish(f"secret/up/{number % 3}", b"x", qos=1)
        await wire.subscribe(("secret/#", 1))
    await wire.disconnect()


async def _guesses(here: Room) -> None:
    await trio.sleep(50)
    for number in range(45):
        wire = _from(here, "203.0.113.9")
        await wire.send(raw.connect("guesser", username=f"user{number % 20}", password=b"123"))
        await wire.expect_type(raw.CONNACK)
        await wire.abort()
        await trio.sleep(0.25)


async def _storm(here: Room) -> None:
    await trio.sleep(150)
    random = Random(2)
    wires = []
    for number in range(25):
        wires.append(await here.client(f"phone{number:02}"))
        await trio.sleep(random.uniform(0, 0.2))
    await trio.sleep(20)
    for wire in wires:
        await wire.disconnect()
        await trio.sleep(random.uniform(0, 0.2))


async def _come_and_go(here: Room) -> None:
    """One that says nothing, one that is taken over, and one whose subscriptions end."""
    mute = await here.client("mute", keep_alive=10)
    for _ in range(5):
        twin = await here.client("twin")
        await twin.subscribe(("plant8/#", 1))
        await trio.sleep(30)
    await twin.send(raw.unsubscribe(2, "plant8/#"))
    await twin.expect_type(raw.UNSUBACK)
    here.broker.kick("twin")
    await mute.abort()
    await trio.sleep(30)


async def _sleeps(here: Room) -> None:
    """Is away for a while, comes back for what was kept for it, and leaves in the middle of that."""
    properties = raw.session_expiry(1000) + raw.receive_maximum(3)
    for awake, away in ((20, 5), (10, 60), (1, 40), (30, 1)):
        wire = await here.client("sleeper", clean=False, properties=properties)
        await wire.send(raw.subscribe(1, ("plant2/#", 1)))  # the answer may come behind what was kept
        with trio.move_on_after(awake):
            await _answers(wire, 0.7, Random(awake))
        await wire.abort()
        await trio.sleep(away)


async def _roams(rooms: tuple[Room, Room], name: str, random: Random) -> None:
    for number in range(16):
        wire = await rooms[number % 2].client(name)
        await trio.sleep(random.uniform(5, 8))
        if random.random() < 0.5:
            await wire.disconnect()
            await trio.sleep(random.uniform(0, 2))
    await trio.sleep(70)


async def _restarts(here: Room) -> None:
    for pause in (40, 90):
        wire = await here.client("visitor")
        for number in range(10):
            await wire.publish(f"plant5/up/{number}", b"x", qos=1)
        await wire.disconnect()
        await trio.sleep(pause)
        if pause == 40:
            await here.broker.restart()
