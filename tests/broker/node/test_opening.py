"""What is looked at before there is a node, and what is left of one that could not start."""

from pathlib import Path

import pytest

from trunkline.broker.net.listeners import ListenError
from trunkline.broker.node.opening import open_node
from trunkline.config.errors import SecurityError
from trunkline.config.reader import from_mapping
from trunkline.hooks import Hooks
from trunkline.store import Engine, StoreUnavailable
from trunkline.store.memory import MemoryEngine


def never() -> Engine:
    raise AssertionError("the store was opened")


async def test_files_are_read_before_the_store_is_opened(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("no colon")
    config = from_mapping({"listeners": [], "auth": {"password_file": str(users)}})
    with pytest.raises(SecurityError):
        async with open_node(config, open_store=never):
            pytest.fail("it runs")


async def test_a_broker_inside_another_process_has_no_store_of_its_own_accord() -> None:
    with pytest.raises(StoreUnavailable, match=r"needs a store\.path"):
        async with open_node(from_mapping({"listeners": [], "store": {"durability": "os"}})):
            pytest.fail("it runs")


async def test_a_node_that_cannot_start_leaves_neither_its_store_nor_its_hooks() -> None:
    closed: list[str] = []

    class Counted(MemoryEngine):
        def close(self) -> None:
            closed.append("closed")

    hooks = Hooks()
    config = from_mapping({"listeners": ["tcp://127.0.0.1:0", "unix:///no/such/folder/socket"]})
    with pytest.raises(ListenError):
        async with open_node(config, hooks, open_store=Counted):
            pytest.fail("it runs")
    assert closed == ["closed"]
    assert hooks.listing() == []


async def test_what_is_prepared_works_already_and_no_client_is_there() -> None:
    seen: list[int] = []
    async with open_node(
        from_mapping({"listeners": ["tcp://127.0.0.1:0"]}),
        prepare=lambda broker: seen.extend([broker.messages.publish("t", b""), len(list(broker.listeners))]),
    ) as broker:
        assert seen == [0, 0]
        assert len(list(broker.listeners)) == 1
