"""What a plugin keeps: values as they are, within bounds, and what of it a commit writes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.disk import Disk
from tests.broker.room import room
from trunkline.mqtt.user_properties import UserProperties
from trunkline.plugins.store import PLUGINS, PluginStore, PluginStoreFull, PluginStores
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine

if TYPE_CHECKING:
    from trunkline.plugins import Context, Settings

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars | st.binary(), lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner)
)


class Committer:
    """Commits when it is told to."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.changed: list[PluginStores] = []
        self.waiting: list[Callable[[], None]] = []

    def change(self, part: PluginStores) -> None:
        self.changed.append(part)

    def after_commit(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def commit(self) -> int:
        """The number of rows written."""
        batch = WriteBatch()
        for part in self.changed:
            part.write(batch)
        self.changed.clear()
        self.engine.commit(batch)
        for action in self.waiting:
            action()
        return sum(map(len, batch.values.values()))


def now() -> float:
    return 1000.0


@pytest.fixture
def committer() -> Committer:
    return Committer()


@pytest.fixture
def stores(committer: Committer) -> PluginStores:
    return PluginStores(1000, now, committer)


@pytest.fixture
def store(stores: PluginStores) -> PluginStore:
    return stores.of("tool")


def read(engine: MemoryEngine) -> PluginStores:
    again = PluginStores(10, now)  # less than there is
    again.restore(rows(engine, PLUGINS))
    return again


@given(values)
def test_values_come_back_as_they_were(value: Any) -> None:
    store = PluginStores(0, now).of("tool")
    store.put("k", value)
    assert store.get("k") == value
    assert list(store.items()) == [("k", value)]


def test_a_value_is_a_copy(store: PluginStore) -> None:
    value = {"a": [1]}
    store.put("k", value)
    value["a"].append(2)
    store.get("k")["a"].append(3)
    assert store.get("k") == {"a": [1]}


def test_a_tuple_comes_back_as_a_list(store: PluginStore) -> None:
    store.put("k", (1, (2,)))
    assert store.get("k") == [1, [2]]


def test_properties_of_a_message_as_they_came(store: PluginStore) -> None:
    store.put("p", {"properties": {"user_property": UserProperties(b"&\0\1k\0\1v"), "correlation_data": b"c"}})
    assert store.get("p") == {"properties": {"user_property": [["k", "v"]], "correlation_data": b"c"}}


def test_keys_are_listed_in_their_order_by_prefix(store: PluginStore) -> None:
    for key in ("b/2", "a", "b/10", "b", "c"):
        store.put(key, key)
    assert [key for key, _ in store.items("b/")] == ["b/10", "b/2"]
    assert [key for key, _ in store.items()] == ["a", "b", "b/10", "b/2", "c"]
    assert (len(store), "a" in store, "d" in store, store.get("d"), store.get("d", 5)) == (5, True, False, None, 5)


def test_items_may_be_deleted_while_they_are_listed(store: PluginStore) -> None:
    for key in "abc":
        store.put(key, 1)
    listed = store.items()
    assert next(listed) == ("a", 1)
    store.delete("b")
    assert list(listed) == [("c", 1)]


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64, {"a": object}, "\ud800"])
def test_what_is_no_plain_value_is_refused(store: PluginStore, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="tool cannot keep .* as 'k'"):
        store.put("k", value)
    assert "k" not in store


def test_a_key_that_is_no_text_is_refused(store: PluginStore) -> None:
    with pytest.raises(ValueError, match="cannot keep"):
        store.put("\ud800", 1)


def test_bytes_are_limited_for_each_plugin(stores: PluginStores, store: PluginStore) -> None:
    store.put("a", b"x" * 900)
    with pytest.raises(PluginStoreFull, match=r"the plugin tool would have 1,\d+ bytes .*1,000 .*max_plugin_bytes"):
        store.put("b", b"x" * 200)
    with pytest.raises(PluginStoreFull):
        store.put("a", b"x" * 1000)
    assert store.get("a") == b"x" * 900
    stores.of("other").put("b", b"x" * 200)
    store.put("a", b"x" * 800)
    store.put("b", b"x" * 180)
    store.delete("a")
    store.delete("b")
    assert store.size == 0
    PluginStores(0, now).of("tool").put("a", b"x" * 10_000)


def test_a_commit_writes_what_has_changed(committer: Committer, stores: PluginStores, store: PluginStore) -> None:
    for number in range(3):
        store.put("a", number)
    stores.of("other").put("a", "other")
    store.put("b", 1)
    assert len(committer.changed) == 1
    assert committer.commit() == 3
    store.put("a", 2)
    store.delete("none")
    assert committer.commit() == 0, "it was so before"
    store.delete("b")
    store.put("c/ü", 1)
    assert committer.commit() == 2
    again = read(committer.engine)
    assert list(again.of("tool").items()) == [("a", 2), ("c/ü", 1)]
    assert list(again.of("other").items()) == [("a", "other")]


def test_what_is_above_a_new_limit_stays(committer: Committer, stores: PluginStores, store: PluginStore) -> None:
    store.put("a", b"x" * 500)
    committer.commit()
    again = read(committer.engine).of("tool")
    assert again.size == store.size
    with pytest.raises(PluginStoreFull):
        again.put("b", 1)
    again.put("a", b"x" * 400)
    assert again.delete("a")


async def test_a_plugin_waits_for_the_commit(committer: Committer, stores: PluginStores, store: PluginStore) -> None:
    store.put("a", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.committed)
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        committer.commit()


async def test_without_a_store_nobody_waits() -> None:
    store = PluginStores(0, now).of("tool")
    store.put("a", 1)
    await store.committed()


async def test_a_plugin_finds_it_again_after_its_end_and_after_the_brokers() -> None:
    async with room() as here:
        given: list[Context[Settings]] = []
        await here.admin.plugins.enable("tool", None, given.append)
        given[0].store.put("count", 1)
        await here.admin.plugins.disable("tool")
        await here.admin.plugins.enable("tool", None, given.append)
        assert given[1].store.get("count") == 1
        await here.broker.restart()
        await here.broker.node.plugins.enable("tool", None, given.append)
        assert given[2].store.get("count") == 1
        await here.broker.reset()
        await here.broker.node.plugins.enable("tool", None, given.append)
        assert len(given[3].store) == 0
        with pytest.raises(RuntimeError, match="over"):
            _ = given[0].store


async def test_what_is_committed_outlives_a_power_failure() -> None:
    disk = Disk()
    given: list[Context[Settings]] = []
    async with disk.broker() as life:
        await life.node.plugins.enable("tool", None, given.append)
        given[0].store.put("a", 1)
        given[0].store.put("b", 1)
        await given[0].store.committed()
        given[0].store.delete("b")
        given[0].store.put("c", 1)
        life.cut()
    async with disk.broker() as life:
        await life.node.plugins.enable("tool", None, given.append)
        assert list(given[1].store.items()) == [("a", 1), ("b", 1)]
        given[1].store.delete("a")
        await given[1].store.committed()
    async with disk.broker() as life:
        await life.node.plugins.enable("tool", None, given.append)
        assert list(given[2].store.items()) == [("b", 1)]
