"""An hour of a small site with two brokers, recorded in seconds: what the pages about jobs show is of this log.

Run it with `python examples/recorded_hour.py FOLDER`; FOLDER is the event log that it makes.
"""

import logging
import sys
import time
from contextlib import suppress
from functools import partial

import trio
from trio.testing import MockClock

import trunkline.testing
from trunkline.client import Client, ClientError, ConnectionSettings
from trunkline.testing import Broker

MINUTE = 60.0


KINDS = ["client.*", "session.*", "message.*", "delivery.completed"]


def site(name: str) -> trunkline.testing.Opening:
    """A broker where nobody may publish to `control/`."""
    return trunkline.testing.broker(
        history=0,
        node={"name": name},
        rules=[{"permit": "deny", "action": "publish", "topics": ["control/#"]}, {"permit": "allow"}],
        session={"max_queue_length": 200, "backpressure": 0},
    )


def client(broker: Broker, client_id: str, **settings: object) -> Client:
    made = ConnectionSettings(client_id=client_id, keep_alive=0, **settings)  # type: ignore[arg-type]
    return Client(made, open_stream=broker.connect)


async def sensor(broker: Broker, name: str, topic: str, every: float, size: int = 20, until: float = 60) -> None:
    """Publishes until that minute, and stays connected."""
    async with client(broker, name) as here:
        for _ in range(int(until * MINUTE / every)):
            await here.publish(topic, bytes(size), qos=1)
            await trio.sleep(every)
        await trio.sleep_forever()


async def reader(broker: Broker, name: str, *topics: str, takes: float = 0, **settings: object) -> None:
    """Takes so many seconds for each message."""
    async with client(broker, name, **settings) as here, trio.open_nursery() as nursery:
        for topic in topics:
            nursery.start_soon(read, here, topic, takes)


async def read(here: Client, topic: str, takes: float) -> None:
    async for _ in await here.subscribe(topic, qos=1):
        await trio.sleep(takes)


async def twins(broker: Broker, name: str) -> None:
    """For two minutes, two devices have one client id, and each comes back when it is thrown out."""

    async def one() -> None:
        while True:
            with suppress(ClientError):
                async with client(broker, name):
                    await trio.sleep_forever()
            await trio.sleep(5)

    await trio.sleep(10 * MINUTE)
    with trio.move_on_after(2 * MINUTE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            await trio.sleep(2)
            nursery.start_soon(one)


async def trespasser(broker: Broker) -> None:
    await trio.sleep(40 * MINUTE)
    async with client(broker, "meter-7") as here:
        for _ in range(40):
            with suppress(ClientError):
                await here.publish("control/valve", b"open", qos=1)
            await trio.sleep(1)


async def phone(*brokers: Broker) -> None:
    """Goes from one broker to the other, and back."""
    for broker in (*brokers, brokers[0]):
        async with client(broker, "phone"):
            await trio.sleep(15 * MINUTE)
        await trio.sleep(2)


async def live(north: Broker, south: Broker) -> None:
    async with trio.open_nursery() as nursery:
        for device in (
            partial(reader, north, "display", "hall/#"),
            partial(reader, north, "heating", "hall/1/temprature", session_expiry=3600),
            partial(reader, north, "archive", "hall/#", "yard/#", takes=7, receive_maximum=1),
            partial(sensor, north, "sensor-1", "hall/1/temperature", 10),
            partial(sensor, north, "sensor-2", "hall/2/temperature", 10),
            partial(sensor, north, "sensor-3", "yard/temperature", 30, until=20),
            partial(sensor, north, "camera", "yard/camera", 60, 20_000),
            partial(sensor, south, "logger", "debug/log", 300),
            partial(twins, north, "gateway"),
            partial(trespasser, south),
            partial(phone, north, south),
        ):
            nursery.start_soon(device)
            await trio.sleep(0.1)
        await trio.sleep(56 * MINUTE)
        nursery.cancel_scope.cancel()


async def main(folder: str) -> None:
    async with site("north") as north, site("south") as south:
        # so all of it is within one hour of the clock
        await trio.sleep(-time.time() % 3600 + 2 * MINUTE)
        for broker in (north, south):
            await broker.plugins.enable("events", {"path": folder, "kinds": KINDS})
        await live(north, south)
        for broker in (north, south):
            await broker.plugins.disable("events")


if __name__ == "__main__":
    logging.disable()  # the brokers would tell of each message that is lost
    trio.run(main, sys.argv[1], clock=MockClock(autojump_threshold=0))
