"""What devices do: each one a task with a life of its own, and with dice of its own, so that a seed gives the same fleet
however the tasks are scheduled."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

import trio

from trunkline.analytics.demo.client import Gone, Refused, connected
from trunkline.mqtt.packets import Connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from trunkline.analytics.demo.client import Client
    from trunkline.mqtt.packets import Publish

#: Seconds after which a device that lost its connection tries again.
AGAIN = 0.5


@dataclass(slots=True)
class Tally:
    """What devices know to have happened."""

    published: int = 0
    taken: int = 0
    refused: int = 0
    received: int = 0
    connections: int = 0
    denied: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the devices are: which broker they know, who counts, and which dice are rolled."""

    host: str
    port: int
    seed: int
    tally: Tally = field(default_factory=Tally)

    def dice(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def connected(
        self, hello: Connect, take: Callable[[Publish], Awaitable[None]] | None = None
    ) -> AbstractAsyncContextManager[Client]:
        async def count(message: Publish) -> None:
            self.tally.received += 1
            if take is not None:
                await take(message)

        return connected(self.host, self.port, hello, count)


class Device(Protocol):
    """Lives until it is cancelled."""

    @property
    def client_id(self) -> str: ...

    async def live(self, place: Place) -> None: ...


def reading(number: int, value: float) -> bytes:
    return json.dumps({"n": number, "value": round(value, 2)}).encode()


@dataclass(frozen=True, slots=True)
class Sensor:
    """Publishes its readings, about every `interval` seconds; after `falls_silent` seconds no more, though it stays
    connected."""

    client_id: str
    topic: str
    interval: float
    qos: int = 0
    retain: bool = False
    falls_silent: float = float("inf")

    async def live(self, place: Place) -> None:
        dice = place.dice(self.client_id)
        end = trio.current_time() + self.falls_silent
        number, value = 0, dice.uniform(15, 25)
        await trio.sleep(dice.uniform(0, min(self.interval, 1.0)))
        while True:
            with suppress(Gone):
                async with place.connected(Connect(self.client_id)) as client:
                    place.tally.connections += 1
                    due = trio.current_time()
                    while trio.current_time() < end:
                        number, value = number + 1, value + dice.gauss(0, 0.2)
                        reason = await client.publish(self.topic, reading(number, value), self.qos, retain=self.retain)
                        place.tally.published += 1
                        place.tally.taken += reason < 0x80
                        due += self.interval * dice.uniform(0.7, 1.3)
                        await trio.sleep_until(max(due, trio.current_time()))
                    await client.over.wait()
            await trio.sleep(AGAIN)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Subscribes and stays. Takes `takes` seconds for each message: with more than nothing it is a slow consumer, which
    lets the broker send it one message at a time."""

    client_id: str
    filters: tuple[str, ...]
    qos: int = 1
    takes: float = 0.0

    async def live(self, place: Place) -> None:
        hello = Connect(self.client_id)
        if self.takes:
            hello.properties = {"receive_maximum": 1}

        async def take(message: Publish) -> None:
            if self.takes:
                await trio.sleep(self.takes)

        while True:
            with suppress(Gone):
                async with place.connected(hello, take) as client:
                    place.tally.connections += 1
                    await client.subscribe(*self.filters, qos=self.qos)
                    await client.over.wait()
            await trio.sleep(AGAIN)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Comes and goes. Its session waits for it, and so do its messages."""

    client_id: str
    filters: tuple[str, ...]
    stays: float
    is_away: float

    async def live(self, place: Place) -> None:
        dice = place.dice(self.client_id)
        hello = Connect(self.client_id, clean_start=False, properties={"session_expiry_interval": 3600})
        while True:
            with suppress(Gone):
                async with place.connected(hello) as client:
                    place.tally.connections += 1
                    await client.subscribe(*self.filters, qos=1)
                    with trio.move_on_after(dice.uniform(0.5, 1.5) * self.stays):
                        await client.over.wait()
            await trio.sleep(dice.uniform(0.5, 1.5) * self.is_away)


@dataclass(frozen=True, slots=True)
class Flapper:
    """Connects, and is gone again before it has said anything; now and then without a goodbye."""

    client_id: str
    pause: float

    async def live(self, place: Place) -> None:
        dice = place.dice(self.client_id)
        while True:
            with suppress(Gone):
                async with place.connected(Connect(self.client_id)) as client:
                    place.tally.connections += 1
                    await trio.sleep(dice.uniform(0.2, 0.6) * self.pause)
                    if dice.random() < 0.5:
                        client.vanish()
            await trio.sleep(dice.uniform(0.4, 1.4) * self.pause)


@dataclass(frozen=True, slots=True)
class Intruder:
    """Guesses passwords."""

    client_id: str
    username: str
    pause: float

    async def live(self, place: Place) -> None:
        dice = place.dice(self.client_id)
        while True:
            hello = Connect(self.client_id, username=self.username, password=str(dice.randrange(10**6)).encode())
            try:
                async with place.connected(hello):
                    place.tally.connections += 1
            except Refused:
                place.tally.denied += 1
            except Gone:
                pass
            await trio.sleep(dice.uniform(0.5, 1.5) * self.pause)


@dataclass(frozen=True, slots=True)
class Trespasser:
    """Publishes where it may not, and does not believe the answer."""

    client_id: str
    topic: str
    interval: float

    async def live(self, place: Place) -> None:
        dice = place.dice(self.client_id)
        while True:
            with suppress(Gone):
                async with place.connected(Connect(self.client_id)) as client:
                    place.tally.connections += 1
                    while not client.over.is_set():
                        place.tally.published += 1
                        place.tally.refused += await client.publish(self.topic, b"open", 1) >= 0x80
                        await trio.sleep(dice.uniform(0.5, 1.5) * self.interval)
            await trio.sleep(AGAIN)
