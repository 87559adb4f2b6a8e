"""The broker as a whole, looked at by an operator."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.management.asking import all_rows, ask, refused
from trunkline import __version__
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping
from trunkline.hooks import ClientInfo
from trunkline.management.operations.node import RATES
from trunkline.management.operations.registry import BadRequest, NotFound, Refused


@pytest.fixture
def _log_level() -> Iterator[None]:
    own = logging.getLogger("trunkline")
    before = own.level
    yield
    own.setLevel(before)


async def test_status(autojump_clock: MockClock) -> None:
    async with room(node={"name": "plant"}, sys={"interval": 0}) as here:
        a = await here.client("a")
        await a.subscribe("t")
        await trio.sleep(30)
        for _ in range(60):
            await a.publish("t", b"x")
            await a.expect_publish("t", b"x")
        status = await ask(here, "status")
        assert (status["node"], status["version"]) == ("plant", __version__)
        assert 30 <= status["uptime"] < 31
        assert (status["connections"], status["sessions"], status["subscriptions"]) == (1, 1, 1)
        assert [listener["port"] for listener in status["listeners"]] == [here.broker.port]
        assert set(status["rates"]) == set(RATES)
        # 60 messages in half a minute are 120 a minute, and half a minute's share of the average
        assert 45 < status["rates"]["messages_received"]["1min"] < 50
        assert status["rates"]["messages_received"]["15min"] < status["rates"]["messages_received"]["1min"]


async def test_metrics_by_prefix() -> None:
    async with room() as here:
        await here.client("a")
        rows = await all_rows(here, "metrics", limit=7)
        assert {"connections.count", "packets.received", "messages.qos2.sent"} <= {row.name for row in rows}
        assert all(row.meaning for row in rows)
        (row,) = await all_rows(here, "metrics", prefix="packets.connect.r")
        assert (row.name, row.value) == ("packets.connect.received", 1)
        assert await all_rows(here, "metrics", prefix="nothing.of.the.kind") == []


async def test_the_configuration_without_its_secrets() -> None:
    async with room(mqtt={"max_qos": 1}) as here:
        shown = await ask(here, "config.show")
        assert shown["mqtt"]["max_qos"] == 1
        assert shown["listeners"][0]["url"] == "tcp://127.0.0.1:0"


async def test_reload_reads_the_files_that_the_configuration_names(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")
    async with room(acl={"file": str(rules)}) as here:
        assert await ask(here, "reload") == {"reloaded": True, "restart_needed_for": [], "failed": []}
        rules.write_text("nonsense\n")
        assert f"not reloaded: {rules}" in await refused(here, Refused, "reload")


async def test_reload_of_a_broker_of_its_own_says_what_needs_a_restart(tmp_path: Path) -> None:
    config = from_mapping({"listeners": [], "control": {"enabled": False}})
    changed = from_mapping({"listeners": [], "control": {"enabled": False}, "node": {"name": "other"}})
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        async with open_node(config, read=lambda: changed) as node:
            from trunkline.management.operations import find

            answer = await find("reload").run(node, {})
            assert answer == {"reloaded": True, "restart_needed_for": ["node.name"], "failed": []}
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(False)


@pytest.mark.usefixtures("_log_level")
async def test_log_level() -> None:
    async with room() as here:
        assert await ask(here, "log.level", level="error") == {"level": "error"}
        assert await ask(here, "log.level", level="debug") == {"level": "debug"}
        assert await ask(here, "log.level") == {"level": "debug"}
        assert '"debug" or "info"' in await refused(here, BadRequest, "log.level", level="loud")


async def test_alarms_that_last_and_those_that_are_over() -> None:
    async with room() as here:
        alarms = here.admin.alarms
        for name in ("hot", "cold", "wet"):
            alarms.activate(name, f"it is {name}")
        alarms.deactivate("cold")
        assert [alarm.name for alarm in await all_rows(here, "alarms.list", limit=1)] == ["hot", "wet"]
        assert await ask(here, "alarms.clear", name="wet") == {"cleared": "wet"}
        assert [alarm.name for alarm in await all_rows(here, "alarms.history")] == ["cold", "wet"]
        assert await refused(here, NotFound, "alarms.clear", name="hat") == (
            "no alarm 'hat' is active; did you mean hot?"
        )


async def test_hooks_with_their_crashes() -> None:
    def failing(client: ClientInfo) -> None:
        raise LookupError("no")

    async with room() as here:
        here.broker.hooks.add("client.connected", failing, priority=7)
        await here.client("a")
        await here.client("b")
        rows = await all_rows(here, "hooks.list", limit=1)
        (row,) = [row for row in rows if row.point == "client.connected"]
        assert row.callback.endswith("failing")
        assert (row.priority, row.crashes, row.plugin) == (7, 2, "")
        here.broker.hook_errors.clear()
