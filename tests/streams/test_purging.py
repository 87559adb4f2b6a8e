from collections.abc import Iterator

import pytest

from tests.streams.world import World, small_sizes
from trunkline.streams.config import StreamConfig
from trunkline.streams.errors import InvalidStreamConfig, MessageNotFound, StreamForbids
from trunkline.streams.purging import delete_message, purge


@pytest.fixture
def world() -> Iterator[World]:
    """Ten messages of two topics in turn, some of them in the store alone."""
    world = World()
    with small_sizes():
        world.create("#")
        for number in range(10):
            world.publish("even" if number % 2 else "odd", b"%d" % number)
        world.restart()
        yield world


def left(world: World) -> list[int]:
    log = world.stream.log
    return [sequence for sequence in range(1, log.last + 1) if log.is_live(sequence)]


@pytest.mark.parametrize(
    ("topic_filter", "sequence", "keep", "kept"),
    [
        (None, None, None, []),
        (None, 4, None, [4, 5, 6, 7, 8, 9, 10]),
        (None, 10, None, [10]),
        (None, 99, None, []),
        (None, None, 3, [8, 9, 10]),
        (None, None, 0, []),
        (None, None, 20, [*range(1, 11)]),
        ("odd", None, None, [2, 4, 6, 8, 10]),
        ("odd", 4, None, [2, 4, 5, 6, 7, 8, 9, 10]),
        ("odd", None, 2, [2, 4, 6, 7, 8, 9, 10]),
        ("even", None, None, [1, 3, 5, 7, 9]),
        ("none", None, None, [*range(1, 11)]),
    ],
)
def test_what_a_purge_leaves(
    world: World, topic_filter: str | None, sequence: int | None, keep: int | None, kept: list[int]
) -> None:
    assert world.do(purge(world.stream, world, topic_filter, sequence, keep)) == 10 - len(kept)
    assert left(world) == kept
    world.restart()
    assert left(world) == kept


@pytest.mark.parametrize("keep", [None, 0])
def test_a_purge_of_everything_reads_nothing(world: World, keep: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "read", None)
    assert world.do(purge(world.stream, world, keep=keep)) == 10


def test_it_is_written_soon(world: World) -> None:
    told: list[bool] = []
    world.stream.notify = told.append
    world.do(delete_message(world.stream, world, 3))
    assert told
    told.clear()
    world.do(purge(world.stream, world, "even", keep=2))
    assert len(told) >= 3


def test_a_purge_is_up_to_a_sequence_or_keeps_a_number(world: World) -> None:
    with pytest.raises(InvalidStreamConfig, match="not both"):
        world.do(purge(world.stream, world, sequence=4, keep=0))
    assert len(left(world)) == 10


def test_one_message_is_deleted_once(world: World) -> None:
    world.do(delete_message(world.stream, world, 3))
    assert 3 not in left(world)
    with pytest.raises(MessageNotFound, match="has no message 3"):
        world.do(delete_message(world.stream, world, 3))
    world.restart()
    assert left(world) == [1, 2, *range(4, 11)]


@pytest.mark.parametrize(
    ("settings", "may_delete", "may_purge", "why"),
    [
        ({"deny_delete": True}, False, True, "delete"),
        ({"deny_purge": True}, True, False, "purge"),
        ({"sealed": True}, False, False, "sealed"),
    ],
)
def test_a_stream_may_forbid_either(settings: dict[str, bool], may_delete: bool, may_purge: bool, why: str) -> None:
    world = World()
    world.create("#")
    world.publish("t", b"1", b"2")
    world.registry.update(StreamConfig(name="s", filters=("#",), **settings))
    for request, may in (
        (delete_message(world.stream, world, 1), may_delete),
        (purge(world.stream, world), may_purge),
    ):
        if may:
            world.do(request)
        else:
            with pytest.raises(StreamForbids, match="the stream 's'") as caught:
                world.do(request)
            assert caught.value.why == why
