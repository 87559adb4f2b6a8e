"""Who is in the fleet: a few plants with sensors, those who listen to them, and those who make trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from trunkline.analytics.demo.devices import Dashboard, Flapper, Intruder, Sensor, Trespasser, Visitor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.analytics.demo.devices import Device, Place

#: Sensors, apart from the one that falls silent.
SENSORS: Final = 24
PLANTS: Final = 3
#: Nobody may publish below it.
FORBIDDEN: Final = "plant/control"
#: The name that the intruder tries.
USERNAME: Final = "admin"
#: Patterns of the devices' client ids.
CLIENTS: Final = ("sensor-*", "dashboard-*", "archive-*", "phone-*", "gateway-*", "intruder", "meter-*")
QUANTITIES: Final = ("temperature", "pressure", "flow", "level")


def fleet(rate: float, duration: float) -> list[Device]:
    """Devices that publish about `rate` messages a second, some of them far more than others. One of them falls silent
    when half of `duration` (seconds) is over.

    Raises:
        ValueError: the rate or the duration is none.
    """
    if rate <= 0 or duration <= 0:
        raise ValueError(f"{rate:g} messages a second for {duration:g} s")
    weights = [(index + 1) ** -0.7 for index in range(SENSORS)]
    share = rate / sum(weights)
    sensors: list[Device] = [
        Sensor(
            client_id=f"sensor-{index:02}",
            topic=f"plant/{index % PLANTS}/machine/{index:02}/{QUANTITIES[index % len(QUANTITIES)]}",
            interval=1 / (share * weight),
            qos=index % 2,
            retain=index % 8 == 5,
        )
        for index, weight in enumerate(weights)
    ]
    slow = next(f"plant/{index % PLANTS}/machine/{index:02}/#" for index in range(1, SENSORS, 2))
    others: list[Device] = [
        Sensor("sensor-asleep", "plant/0/machine/99/level", min(0.5, duration / 20), qos=1, falls_silent=duration / 2),
        Dashboard("dashboard-all", ("plant/#",)),
        *[Dashboard(f"dashboard-{plant}", (f"plant/{plant}/#",), qos=0) for plant in range(PLANTS)],
        # as much as the broker sends comes faster than this one works
        Dashboard("archive-slow", (slow,), takes=max(0.25, 3 / rate)),
        *[Visitor(f"phone-{number}", (f"plant/{number % PLANTS}/+/+/level",), 4.0, 2.0) for number in range(4)],
        Flapper("gateway-flaps", 0.4),
        Flapper("gateway-worse", 0.25),
        Intruder("intruder", USERNAME, 1.0),
        Trespasser("meter-astray", f"{FORBIDDEN}/valve/1", 0.5),
    ]
    return sensors + others


async def live(devices: Sequence[Device], place: Place) -> None:
    """Until it is cancelled: then they all say goodbye."""
    async with trio.open_nursery() as nursery:
        for device in devices:
            nursery.start_soon(device.live, place, name=device.client_id)
