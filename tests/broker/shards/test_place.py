"""Where a shard stands, as the parts of its node see it."""

import pytest
import trio

from trunkline.broker.net.listening_sockets import BoundSocket, SocketSettings, open_sockets
from trunkline.broker.node.opening import open_node
from trunkline.broker.shards.place import ShardPlace
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings


async def _joined(_: object) -> None:
    await trio.sleep_forever()


async def test_a_node_takes_its_sockets_from_there_and_waits_for_the_others_at_its_end() -> None:
    asked: list[str] = []

    async def opened(settings: SocketSettings) -> list[BoundSocket]:
        asked.append(settings.label)
        return await open_sockets(settings)

    async def all_quiet() -> None:
        asked.append("quiet")
        await trio.lowlevel.checkpoint()

    place = ShardPlace(0, 1, 7, 0.0, _joined, open_sockets=opened, all_quiet=all_quiet)
    config = Config(listeners=(ListenerSettings(url="tcp://127.0.0.1:0", name="a"),))
    async with open_node(config, place=place, grace=0) as node:
        assert asked == ["a"]
        assert [listener.name for listener in node.listeners] == ["a"]
    assert asked == ["a", "quiet"]


@pytest.mark.parametrize(("number", "name"), [(0, "plant.0"), (11, "plant.11")])
def test_its_name_differs_from_those_of_the_others(number: int, name: str) -> None:
    assert ShardPlace(number, 12, 1, 0.0, _joined).named("plant") == name
