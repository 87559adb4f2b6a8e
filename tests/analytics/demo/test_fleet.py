from collections import Counter
from pathlib import Path

import pytest
import trio

from trunkline.analytics.demo.broker import settings
from trunkline.analytics.demo.devices import Place, Sensor
from trunkline.analytics.demo.fleet import fleet, live
from trunkline.testing import broker


def test_the_sensors_publish_as_fast_as_they_are_told() -> None:
    sensors = [device for device in fleet(300, 60) if isinstance(device, Sensor)]
    usual = [sensor for sensor in sensors if sensor.client_id != "sensor-asleep"]
    assert sum(1 / sensor.interval for sensor in usual) == pytest.approx(300)
    assert max(sensor.interval for sensor in usual) > 5 * min(sensor.interval for sensor in usual)
    assert [sensor.falls_silent for sensor in sensors if sensor not in usual] == [30]


def test_every_device_has_a_name_of_its_own() -> None:
    names = Counter(device.client_id for device in fleet(10, 10))
    assert set(names.values()) == {1}


@pytest.mark.parametrize(("rate", "duration"), [(0, 1), (1, 0), (-1, 1)])
def test_no_fleet_without_a_rate_and_a_duration(rate: float, duration: float) -> None:
    with pytest.raises(ValueError, match="messages a second"):
        fleet(rate, duration)


async def test_everybody_lives_until_the_end_and_says_goodbye(tmp_path: Path, nursery: trio.Nursery) -> None:
    async with broker(**settings(tmp_path)) as running:
        place = Place(running.host, running.port, 7)
        devices = fleet(500, 10)
        nursery.start_soon(live, devices, place)
        tally = place.tally
        names = {device.client_id for device in devices} - {"intruder", "gateway-flaps", "gateway-worse"}
        seen: set[str] = set()

        def all_is_well() -> bool:
            seen.update(row.client_id for row in running.clients)
            return names <= seen and min(tally.refused, tally.denied) > 0 and tally.taken > 100 and tally.received > 100

        await running.wait_until(all_is_well, timeout=30)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await running.wait_until(lambda: not running.clients)
