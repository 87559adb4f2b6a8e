"""The simulated devices: each is a task that connects, acts, and waits until it acts again.

A device has a random generator of its own, so that a seed gives the same readings and pauses in any order of execution.
"""

import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

import trio

from trunkline.client import Client, ConnectionSettings, ConnectRefused, Disconnected, PublishRefused

#: Sensors, apart from the one that falls silent.
SENSORS: Final = 24
PLANTS: Final = 3
QUANTITIES: Final = ("temperature", "pressure", "flow", "level")
#: Nobody may publish below this topic.
FORBIDDEN: Final = "plant/control"
#: Seconds after which one sensor publishes no more.
ASLEEP_AFTER: Final = 3.0
#: The user name that the intruder tries.
USERNAME: Final = "admin"
#: Patterns of the devices' client ids.
CLIENTS: Final = ("sensor-*", "dashboard-*", "archive-*", "phone-*", "gateway-*", "intruder", "meter-*")

Device: TypeAlias = Callable[[], Awaitable[None]]


async def sensor(
    dice: Random,
    broker: ConnectionSettings,
    topic: str,
    interval: float,
    *,
    qos: int = 0,
    retain: bool = False,
    falls_silent: float = float("inf"),
) -> None:
    """Publishes its readings; after `falls_silent` seconds no more, though it stays connected."""
    async with Client(broker) as client:
        due = trio.current_time()
        silence, value = due + falls_silent, dice.uniform(15, 25)
        for number in count(1):
            if trio.current_time() > silence:
                break
            value += dice.gauss(0, 0.2)
            await client.publish(topic, json.dumps({"n": number, "value": round(value, 2)}), qos=qos, retain=retain)
            due += interval * dice.uniform(0.7, 1.3)
            await trio.sleep_until(due)
        await trio.sleep_forever()


async def dashboard(dice: Random, broker: ConnectionSettings, topic: str, *, qos: int = 1, takes: float = 0.0) -> None:
    """Subscribes and stays. With a pause after each message it is a slow consumer, and gets one message at a time."""
    async with Client(broker.changed(receive_maximum=1) if takes else broker) as client:
        async for _ in await client.subscribe(topic, qos=qos):
            await trio.sleep(takes)


async def visitor(dice: Random, broker: ConnectionSettings, topic: str, stays: float, is_away: float) -> None:
    """Comes and goes. Its session waits for it, and so do its messages."""
    while True:
        async with Client(broker.changed(clean_start=False, session_expiry=3600)) as client:
            await client.subscribe(topic, qos=1)
            await trio.sleep(dice.uniform(0.5, 1.5) * stays)
        await trio.sleep(dice.uniform(0.5, 1.5) * is_away)


async def flapper(dice: Random, broker: ConnectionSettings, pause: float) -> None:
    """Connects and soon leaves, in half of all cases without a DISCONNECT."""
    stream: trio.SocketStream

    def opened(_: ConnectionSettings) -> trio.SocketStream:
        return stream

    while True:
        stream = await trio.open_tcp_stream(broker.host, broker.actual_port)
        with suppress(Disconnected):
            async with Client(broker, open_stream=opened):
                await trio.sleep(dice.uniform(0.2, 0.6) * pause)
                if dice.random() < 0.5:
                    await stream.send_eof()
                    await trio.sleep_forever()
        await trio.sleep(dice.uniform(0.4, 1.4) * pause)


async def intruder(dice: Random, broker: ConnectionSettings, pause: float) -> None:
    """Guesses passwords."""
    while True:
        with suppress(ConnectRefused):
            async with Client(broker.changed(username=USERNAME, password=str(dice.randrange(10**6)))):
                pass
        await trio.sleep(dice.uniform(0.5, 1.5) * pause)


async def trespasser(dice: Random, broker: ConnectionSettings, topic: str, interval: float) -> None:
    """Publishes to a forbidden topic."""
    async with Client(broker) as client:
        while True:
            with suppress(PublishRefused):
                await client.publish(topic, b"open", qos=1)
            await trio.sleep(dice.uniform(0.5, 1.5) * interval)


def fleet(port: int, rate: float, seed: int) -> list[Device]:
    """Devices that publish about `rate` messages a second together."""

    def made(kind: Callable[..., Awaitable[None]], client_id: str, *given: Any, **options: Any) -> Device:
        broker = ConnectionSettings(host="127.0.0.1", port=port, client_id=client_id)
        return partial(kind, Random(f"{seed}/{client_id}"), broker, *given, **options)

    weights = [(index + 1) ** -0.7 for index in range(SENSORS)]
    share = rate / sum(weights)
    machines = [f"plant/{index % PLANTS}/machine/{index:02}" for index in range(SENSORS)]
    return [
        *(
            made(
                sensor,
                f"sensor-{index:02}",
                f"{machine}/{QUANTITIES[index % len(QUANTITIES)]}",
                1 / (share * weight),
                qos=index % 2,
                retain=index % 8 == 5,
            )
            for index, (machine, weight) in enumerate(zip(machines, weights, strict=True))
        ),
        made(sensor, "sensor-asleep", "plant/0/machine/99/level", 0.3, qos=1, falls_silent=ASLEEP_AFTER),
        made(dashboard, "dashboard-all", "plant/#"),
        *(made(dashboard, f"dashboard-{plant}", f"plant/{plant}/#", qos=0) for plant in range(PLANTS)),
        made(dashboard, "archive-slow", f"{machines[1]}/#", takes=max(0.25, 3 / rate)),
        *(made(visitor, f"phone-{number}", f"plant/{number % PLANTS}/+/+/level", 4.0, 2.0) for number in range(4)),
        made(flapper, "gateway-flaps", 0.4),
        made(flapper, "gateway-worse", 0.25),
        made(intruder, "intruder", 1.0),
        made(trespasser, "meter-astray", f"{FORBIDDEN}/valve/1", 0.5),
    ]


async def live(devices: Sequence[Device], over: threading.Event) -> None:
    """Let them act until `over` is set; then they all disconnect."""
    async with trio.open_nursery() as nursery:
        for device in devices:
            nursery.start_soon(device)
        await trio.to_thread.run_sync(over.wait, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()
