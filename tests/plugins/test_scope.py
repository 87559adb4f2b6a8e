"""A plugin that runs once for a node of several workers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.management.plugin_packages import installing
from tests.testing.three import three
from trunkline import testing
from trunkline.hooks import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.plugins import Context, PluginError, Scope, Settings, hook, setting
from trunkline.testing import Broker

ONCE, EACH = Settings(scope="node"), Settings()


class Bridge:
    """Copies messages."""

    #: The processes in which it works.
    at: list[str]

    def __init__(self, context: Context[Settings]) -> None:
        self.context = context
        self.copied = context.counter("copied", "Messages.")
        context.subscribe("in/#", self.copy)
        context.command("where", lambda: context.process_name)

    def copy(self, message: Message) -> None:
        self.copied.add()
        self.context.publish(message.topic.replace("in/", "out/"), message.payload)

    def start(self) -> None:
        self.at.append(self.context.process_name)

    def stop(self) -> None:
        self.at.remove(self.context.process_name)


@pytest.fixture(autouse=True)
def at() -> list[str]:
    Bridge.at = []
    return Bridge.at


@pytest.fixture
async def node() -> AsyncIterator[Broker]:
    async with testing.broker(workers=3) as broker:
        yield broker


async def test_it_runs_in_the_first_worker_and_gets_what_is_published_at_each(node: Broker, at: list[str]) -> None:
    await node.plugins.enable("bridge", ONCE, Bridge)
    assert [running.rsplit(".")[-1] for running in at] == ["0"]
    async with three(node) as wires:
        await wires[1].subscribe("out/#")
        for number, wire in enumerate(wires):
            await wire.publish("in/t", b"%d" % number)
            await wires[1].expect_publish("out/t", b"%d" % number)
    node.assert_published("out/t", times=3)
    assert (await node.metrics())["plugins.bridge.copied"] == 3
    assert node.plugins.call("bridge", "where") == at[0]
    await node.plugins.disable("bridge")
    assert at == []


async def test_listings_say_where_it_runs(node: Broker) -> None:
    await node.plugins.enable("bridge", ONCE, Bridge)
    await node.plugins.enable("echo", EACH, Bridge)
    shards = node._running.whole.shards
    rows = [{row.name: (row.status, row.scope) for row in shard.plugins.rows()} for shard in shards]
    assert [each["bridge"] for each in rows] == [("running", "node"), *[("in worker 0", "node")] * 2]
    assert [each["echo"] for each in rows] == [("running", "worker")] * 3
    assert rows[0]["bans"] == ("stopped", "")
    with pytest.raises(PluginError, match="^the plugin bridge runs in worker 0$"):
        shards[1].plugins.call("bridge", "where", {})
    for shard in shards:
        with pytest.raises(PluginError, match="^the plugin bridge runs already$"):
            await shard.plugins.enable("bridge", ONCE, Bridge)


@pytest.mark.parametrize("change", ["node to worker", "worker to node", "neither"])
async def test_a_reload_with_another_scope(node: Broker, at: list[str], change: str) -> None:
    before, after = {"node to worker": (ONCE, EACH), "worker to node": (EACH, ONCE), "neither": (ONCE, ONCE)}[change]
    await node.plugins.enable("bridge", before, Bridge)
    await node.plugins.reload("bridge", after)
    assert len(at) == (3 if after is EACH else 1)
    for shard in node._running.whole.shards:
        assert shard.plugins.enabled() == {"bridge": after}
    await node.plugins.disable("bridge")
    assert at == []


PACKAGE = """
from tests.plugins.test_scope import Bridge
"""


async def test_the_configuration_says_it_and_it_is_started_again_with_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: list[str]
) -> None:
    with installing(tmp_path, monkeypatch) as install:
        install("bridges", PACKAGE, bridge="Bridge")
        async with testing.broker(workers=3, plugins={"bridge": {"scope": "node"}}) as broker:
            assert len(at) == 1
            await broker.restart()
            assert len(at) == 1
            assert [row.status for row in broker.plugins.rows() if row.name == "bridge"] == ["running"]


class Own(Settings):
    scope: Scope = setting("node", "This plugin is one.")


def own(context: Context[Own]) -> None:
    Bridge(context)


async def test_a_plugin_may_say_itself_that_it_is_of_the_node(node: Broker) -> None:
    await node.plugins.enable("own", factory=own)
    assert [row.status for row in node.plugins.rows() if row.name == "own"] == ["running"]
    shards = node._running.whole.shards
    assert [len(shard.plugins.enabled()) for shard in shards] == [1, 1, 1]
    assert [sum(each == "own" for each, _ in shard.plugins.at_work()) for shard in shards] == [1, 0, 0]


class Watch:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("client.connected")
    def greet(self, client: ClientInfo) -> None: ...


def watch(context: Context[Settings]) -> None:
    context.hooks.add("client.connected", Watch(context).greet)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("factory", [Watch, watch])
async def test_hooks_are_refused(factory: Any, workers: int) -> None:
    """In one process as well, where it would see all: it is to find its mistake there."""
    problem = r'^watch: scope = "node" is not for hooks: .*Watch.greet would see client.connected in worker 0 alone$'
    async with testing.broker(workers=workers) as broker:
        with pytest.raises(PluginError, match=problem):
            await broker.plugins.enable("watch", ONCE, factory)


async def test_one_process_runs_it(at: list[str]) -> None:
    async with testing.broker(workers=1) as broker:
        await broker.plugins.enable("bridge", ONCE, Bridge)
        assert at == [broker.plugins.call("bridge", "where")]
