import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trunkline.analytics.demo.broker import settings
from trunkline.analytics.demo.devices import (
    Dashboard,
    Device,
    Flapper,
    Intruder,
    Place,
    Sensor,
    Trespasser,
    Visitor,
)
from trunkline.testing import Broker, broker


@asynccontextmanager
async def living(folder: Path, *devices: Device) -> AsyncIterator[tuple[Broker, Place]]:
    async with broker(**settings(folder)) as running, trio.open_nursery() as nursery:
        place = Place(running.host, running.port, 1)
        for device in devices:
            nursery.start_soon(device.live, place)
        yield running, place
        nursery.cancel_scope.cancel()


async def test_a_sensor_publishes_its_readings(tmp_path: Path) -> None:
    async with living(tmp_path, Sensor("s", "plant/1/level", 0.01, qos=1, retain=True)) as (running, place):
        message = await running.wait_for("plant/1/level", lambda message: json.loads(message.payload)["n"] == 3)
        assert (message.publisher, message.qos, message.retain) == ("s", 1, True)
        await running.wait_until(lambda: place.tally.taken >= 3)
    assert place.tally.published >= place.tally.taken


async def test_a_sensor_falls_silent_and_stays(tmp_path: Path) -> None:
    async with living(tmp_path, Sensor("s", "t", 0.01, falls_silent=0.0)) as (running, _):
        await running.wait_until(lambda: running.clients)
        await trio.testing.wait_all_tasks_blocked(0.01)
        running.assert_not_published("t")
        assert [row.client_id for row in running.clients] == ["s"]


async def test_a_sensor_comes_back(tmp_path: Path) -> None:
    async with living(tmp_path, Sensor("s", "t", 0.01)) as (running, place):
        await running.wait_for("t")
        running.kick("s")
        await running.wait_until(lambda: place.tally.connections == 2)


async def test_the_same_seed_makes_the_same_readings(tmp_path: Path) -> None:
    found: list[list[bytes]] = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        async with living(tmp_path / str(number), Sensor("s", "t", 0.01)) as (running, _):
            await running.wait_until(lambda running=running: len(running.messages) >= 3)
            found.append([message.payload for message in running.messages[:3]])
    assert found[0] == found[1]


async def test_a_dashboard_gets_what_it_subscribed_to(tmp_path: Path) -> None:
    devices = (Dashboard("d", ("t/#",)), Sensor("s", "t/1", 0.01, qos=1))
    async with living(tmp_path, *devices) as (running, place):
        await running.wait_for("t/1", to="d")
        await running.wait_until(lambda: place.tally.received >= 2)


async def test_a_slow_dashboard_loses_messages(tmp_path: Path) -> None:
    devices = (Dashboard("d", ("t",), takes=60), Sensor("s", "t", 0.0001, qos=1))
    async with living(tmp_path, *devices) as (running, _):
        await running.wait_until(lambda: any("d" in message.dropped for message in running.messages), timeout=30)
        assert {message.dropped["d"] for message in running.messages if "d" in message.dropped} == {"slow_consumer"}


async def test_a_visitors_session_waits_for_it(tmp_path: Path) -> None:
    async with living(tmp_path, Visitor("v", ("t",), 0.02, 0.02)) as (running, _):
        resumed: list[str] = []
        running.hooks.add("session.resumed", lambda client: resumed.append(client.client_id))
        await running.wait_until(lambda: len(resumed) >= 2)
        assert [row.filter for row in running.subscriptions] == ["t"]


async def test_a_flapper_comes_and_goes_in_both_ways(tmp_path: Path) -> None:
    async with living(tmp_path, Flapper("f", 0.01)) as (running, _):
        reasons: set[int] = set()
        running.hooks.add("client.disconnected", lambda client, reason, text: reasons.add(reason))
        await running.wait_until(lambda: len(reasons) >= 2)
        assert 0 in reasons


async def test_an_intruder_is_not_let_in(tmp_path: Path) -> None:
    async with living(tmp_path, Intruder("i", "admin", 0.01)) as (running, place):
        await running.wait_until(lambda: place.tally.denied >= 2)
        assert (place.tally.connections, running.clients) == (0, [])


async def test_a_trespasser_publishes_nothing(tmp_path: Path) -> None:
    async with living(tmp_path, Trespasser("t", "plant/control/x", 0.01)) as (running, place):
        await running.wait_until(lambda: place.tally.refused >= 2)
        running.assert_not_published("plant/control/#")
