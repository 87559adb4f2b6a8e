"""What may fail without ending the node."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.node import statistics
from trunkline.broker.sys_topics import sys_topics


async def test_what_runs_beside_the_heart_is_started_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [ValueError("a fault") for _ in range(3)]

    def fails_at_first(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return sys_topics(*args)

    monkeypatch.setattr(statistics, "sys_topics", fails_at_first)
    async with room(sys={"interval": 10}) as here:
        client = await here.client("a")
        await client.subscribe(("$SYS/broker/version", 0))
        assert (await client.expect_type(raw.PUBLISH)).topic == "$SYS/broker/version"
        assert not errors
        assert here.node.alarms.active == []


async def test_the_node_goes_on_without_what_crashes_beside_it_again_and_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(statistics, "sys_topics", fails)
    async with room(sys={"interval": 10}) as here:
        client = await here.client("a")
        await trio.testing.wait_all_tasks_blocked()
        assert [alarm.name for alarm in here.node.alarms.active] == ["sys.down"]
        await client.ping()
