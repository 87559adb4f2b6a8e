"""A crash at each place between two shards where something is registered: links come up again, and messages go on."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.attacks.crash_sites import Crash, Site, sites
from tests.attacks.test_injected_crashes import BETWEEN_SHARDS
from tests.broker.shards.house import House, house
from tests.conformance import raw
from trunkline.broker.links.link import BEAT

SITES = [site for site in sites() if site.file in BETWEEN_SHARDS]
#: Seconds.
PATIENCE = 300.0


@pytest.fixture
def clock() -> MockClock:
    """Beats and pauses are short for those that wait for sockets."""
    return MockClock(rate=10)


@pytest.fixture
def collected() -> Iterator[None]:
    """What this test leaves is not found in a later one, which would fail for it."""
    yield
    gc.collect()


# what a task was given that crashes before it begins is closed by nobody
@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("begun", [False, True], ids=["at the start", "later"])
@pytest.mark.parametrize("site", SITES, ids=str)
async def test_messages_come_after_a_crash(
    clock: MockClock,
    site: Site,
    begun: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    crash = Crash(site)
    crash.install(monkeypatch)
    sockets = tmp_path if site.file == "broker/shards/link_sockets.py" else None
    with trio.fail_after(PATIENCE):
        if not begun:
            crash.arm(set())
        async with house(2, memory=True, sockets=sockets, limits={"max_sessions": 50}) as shards:
            await exchanged(shards, "before")
            crash.arm(set())
            await trio.sleep(BEAT)
            if sockets is None:
                await told_late(shards)
            for number in (1, 0):  # the streams are at the latter
                if not crash.fired:
                    await shards.end(number)
                    await shards.begin(number)
            await exchanged(shards, "after")
            assert crash.fired or crash.absent, "the scenario does not get there: have it do what this is for"


async def told_late(shards: House) -> None:
    """A shard does not answer for a while what another one wants."""
    link = shards.links.between(0, 1)
    link.stall()
    reader = await shards.client(1, "late")
    await reader.subscribe("late")
    link.go_on()


async def exchanged(shards: House, name: str) -> None:
    """A message of each shard comes to the other."""
    for here, there in ((0, 1), (1, 0)):
        reader = await shards.client(there, f"{name}-reader-{there}")
        await reader.subscribe((f"{name}/{here}", 1))
        publisher = await shards.client(here, f"{name}-publisher-{here}")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def publish(publisher=publisher, topic=f"{name}/{here}") -> None:
                while True:  # until the other shard knows of it
                    await publisher.publish(topic, b"x", qos=1)
                    await trio.sleep(0.05)

            while (await reader.receive()).type != raw.PUBLISH:
                pass
            nursery.cancel_scope.cancel()
