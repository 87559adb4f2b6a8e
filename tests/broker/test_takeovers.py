"""Client ids that change hands."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw


async def test_a_client_id_that_changes_hands_too_often_is_refused_for_a_while(autojump_clock: MockClock) -> None:
    async with room(flapping={"max_takeovers": 3, "window": 60, "jail": 100}) as here:
        for _ in range(4):
            last = await here.client("a")
        refused = here.wire()
        await refused.send(raw.connect("a"))
        assert (await refused.expect_type(raw.CONNACK)).reason == 0x9F
        await last.ping()  # who has it keeps it
        await here.client("other")
        await trio.sleep(99)
        again = here.wire()
        await again.send(raw.connect("a"))
        assert (await again.expect_type(raw.CONNACK)).reason == 0x9F
        assert (await here.node.figures())["client.refused.flapping"] == 2
        await trio.sleep(2)
        await here.client("a")


async def test_takeovers_now_and_then_are_no_flapping(autojump_clock: MockClock) -> None:
    async with room(flapping={"max_takeovers": 2, "window": 10}) as here:
        for _ in range(20):
            await here.client("a")
            await trio.sleep(6)


async def test_flapping_that_is_long_past_is_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.broker.takeovers.MIN_SWEPT", 4)
    async with room(flapping={"window": 10}) as here:
        takeovers = here.node.sessions._takeovers  # pyright: ignore[reportPrivateUsage]
        takeovers._sweep_at = 4  # pyright: ignore[reportPrivateUsage]
        for number in range(20):
            for _ in range(2):
                await here.client(f"c{number}")
            await trio.sleep(11)
        assert len(takeovers._recent) <= 4  # pyright: ignore[reportPrivateUsage]
