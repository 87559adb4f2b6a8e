"""The simulated devices: each is a generator that acts and then yields the seconds until it acts again.

A device has a random generator of its own, so that a seed gives the same readings and pauses in any order of execution.
"""

import heapq
import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from itertools import count
from random import Random
from typing import Any, Final

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

#: Sensors, apart from the one that falls silent.
SENSORS: Final = 24
PLANTS: Final = 3
QUANTITIES: Final = ("temperature", "pressure", "flow", "level")
#: Nobody may publish below this topic.
FORBIDDEN: Final = "plant/control"
#: The user name that the intruder tries.
USERNAME: Final = "admin"
#: Patterns of the devices' client ids.
CLIENTS: Final = ("sensor-*", "dashboard-*", "archive-*", "phone-*", "gateway-*", "intruder", "meter-*")

Device = Generator[float, None, None]
Take = Callable[[MQTTMessage], None]


def client(port: int, client_id: str, *filters: str, qos: int = 1, take: Take | None = None, **options: Any) -> Client:
    """A connected client with these subscriptions. paho acknowledges a message when `take` returns."""
    made = Client(
        CallbackAPIVersion.VERSION2,
        client_id,
        protocol=MQTTProtocolVersion.MQTTv5,
        reconnect_on_failure=options.pop("reconnect", True),
    )
    if (login := options.pop("login", None)) is not None:
        made.username_pw_set(*login)
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    for name in ("ReceiveMaximum", "SessionExpiryInterval"):
        if name in options:
            setattr(properties, name, options.pop(name))
    if filters:

        @made.connect_callback()
        def subscribe(*_: Any) -> None:
            made.subscribe([(filter, qos) for filter in filters])

    if take is not None:
        made.on_message = lambda client, data, message: take(message)
    made.connect("127.0.0.1", port, properties=properties, **options)
    made.loop_start()
    return made


def leave(client: Client) -> None:
    client.disconnect()
    client.loop_stop()


def sensor(
    dice: Random,
    port: int,
    client_id: str,
    topic: str,
    interval: float,
    *,
    qos: int = 0,
    retain: bool = False,
    falls_silent: float = float("inf"),
) -> Device:
    """Publishes its readings; after `falls_silent` seconds no more, though it stays connected."""
    begin = due = time.monotonic()
    mine = client(port, client_id)
    try:
        value = dice.uniform(15, 25)
        for number in count(1):
            if time.monotonic() - begin > falls_silent:
                break
            value += dice.gauss(0, 0.2)
            mine.publish(topic, json.dumps({"n": number, "value": round(value, 2)}), qos, retain)
            due += interval * dice.uniform(0.7, 1.3)
            yield due - time.monotonic()
        while True:
            yield 60.0
    finally:
        leave(mine)


def dashboard(dice: Random, port: int, client_id: str, topic: str, *, qos: int = 1, takes: float = 0.0) -> Device:
    """Subscribes and stays. With a pause after each message it is a slow consumer, and gets one message at a time."""
    options = {"ReceiveMaximum": 1} if takes else {}
    mine = client(port, client_id, topic, qos=qos, take=lambda message: time.sleep(takes), **options)
    try:
        while True:
            yield 60.0
    finally:
        leave(mine)


def visitor(dice: Random, port: int, client_id: str, topic: str, stays: float, is_away: float) -> Device:
    """Comes and goes. Its session waits for it, and so do its messages."""
    while True:
        mine = client(port, client_id, topic, clean_start=False, SessionExpiryInterval=3600)
        try:
            yield dice.uniform(0.5, 1.5) * stays
        finally:
            leave(mine)
        yield dice.uniform(0.5, 1.5) * is_away


def flapper(dice: Random, port: int, client_id: str, pause: float) -> Device:
    """Connects and soon leaves, in half of all cases without a DISCONNECT."""
    while True:
        mine = client(port, client_id, reconnect=False)
        try:
            yield dice.uniform(0.2, 0.6) * pause
        finally:
            if dice.random() < 0.5 and isinstance(lost := mine.socket(), socket.socket):
                lost.shutdown(socket.SHUT_RDWR)
            leave(mine)
        yield dice.uniform(0.4, 1.4) * pause


def intruder(dice: Random, port: int, client_id: str, pause: float) -> Device:
    """Guesses passwords."""
    while True:
        mine = client(port, client_id, reconnect=False, login=(USERNAME, str(dice.randrange(10**6))))
        try:
            yield dice.uniform(0.5, 1.5) * pause
        finally:
            leave(mine)


def trespasser(dice: Random, port: int, client_id: str, topic: str, interval: float) -> Device:
    """Publishes to a forbidden topic."""
    mine = client(port, client_id)
    try:
        while True:
            mine.publish(topic, b"open", 1)
            yield dice.uniform(0.5, 1.5) * interval
    finally:
        leave(mine)


def fleet(port: int, rate: float, duration: float, seed: int) -> list[Device]:
    """Devices that publish about `rate` messages a second together. One falls silent after half of `duration`
    seconds."""

    def made(kind: Callable[..., Device], client_id: str, *given: Any, **options: Any) -> Device:
        return kind(Random(f"{seed}/{client_id}"), port, client_id, *given, **options)

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
        made(sensor, "sensor-asleep", "plant/0/machine/99/level", 0.3, qos=1, falls_silent=duration / 2),
        made(dashboard, "dashboard-all", "plant/#"),
        *(made(dashboard, f"dashboard-{plant}", f"plant/{plant}/#", qos=0) for plant in range(PLANTS)),
        made(dashboard, "archive-slow", f"{machines[1]}/#", takes=max(0.25, 3 / rate)),
        *(made(visitor, f"phone-{number}", f"plant/{number % PLANTS}/+/+/level", 4.0, 2.0) for number in range(4)),
        made(flapper, "gateway-flaps", 0.4),
        made(flapper, "gateway-worse", 0.25),
        made(intruder, "intruder", 1.0),
        made(trespasser, "meter-astray", f"{FORBIDDEN}/valve/1", 0.5),
    ]


def live(devices: Sequence[Device], over: threading.Event) -> None:
    """Step each device when it is due, until `over` is set; then they all disconnect."""
    due = [(time.monotonic(), number) for number in range(len(devices))]
    try:
        while not over.is_set():
            at, number = due[0]
            if not over.wait(max(0.0, at - time.monotonic())):
                heapq.heapreplace(due, (time.monotonic() + max(0.0, next(devices[number])), number))
    finally:
        for device in devices:
            device.close()
