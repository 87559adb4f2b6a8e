"""Each shard tells the figures of the node: they go back for no shard that goes."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.shards.peer_pair import Pair, Shard, pair
from tests.broker.shards.some_shards import until
from tests.conformance import raw
from tests.testing.three import three
from trunkline import testing
from trunkline.broker.shards.figures import MAX_WAIT, CommonFigures
from trunkline.broker.whole_figures import TakenFigures
from trunkline.plugins import Context, Settings
from trunkline.testing.broker import Broker


def reading(sent: int, clients: int = 0, rate: float = 0.0) -> TakenFigures:
    return TakenFigures({"sent": sent}, {"connections.count": clients, "connections.max": clients}, [rate])


def figures_of(shard: Shard, epoch: float = 0.0) -> CommonFigures:
    return CommonFigures(shard.words, shard.number, shard.term, epoch)


def both() -> tuple[CommonFigures, CommonFigures, Pair]:
    one, other, ends = pair()
    return figures_of(one), figures_of(other), ends


async def test_what_a_shard_tells_is_added_up_at_the_other() -> None:
    one, other, ends = both()
    one.tell(reading(5, 2, 1.5))
    assert other.whole(reading(3)).counters == {"sent": 3}
    ends.settle()
    whole = other.whole(reading(3, 1, 0.25))
    assert whole == TakenFigures({"sent": 8}, {"connections.count": 3, "connections.max": 3}, [1.75])
    one.tell(reading(6, 1, 0.5))
    ends.settle()
    assert other.whole(reading(3, 1)) == TakenFigures(
        {"sent": 9}, {"connections.count": 2, "connections.max": 3}, [0.5]
    )


async def test_the_most_at_once_is_told() -> None:
    one, other, ends = both()
    one.tell(reading(0, 4))
    ends.settle()
    assert other.whole(reading(0, 5)).gauges["connections.max"] == 9
    other.tell(reading(0, 1))
    ends.settle()
    assert one.whole(reading(0, 0)).gauges["connections.max"] == 9


async def test_of_a_shard_that_is_down_the_counters_stay() -> None:
    one, other, ends = both()
    one.tell(reading(5, 2, 1.0))
    ends.settle()
    ends.cut()
    assert other.whole(reading(1, 1)) == TakenFigures(
        {"sent": 6}, {"connections.count": 1, "connections.max": 1}, [0.0]
    )
    ends.connect()
    whole = other.whole(reading(1, 1, 1.0))
    assert whole.gauges["connections.count"] == 3, "it tells it again when it can be reached"
    assert whole.rates == [2.0]


async def test_a_shard_goes_on_where_its_life_before_has_told_it_was() -> None:
    one, _, ends = both()
    other = figures_of(ends.shards[1])
    one_again = ends.shards[0].next_life()
    one.tell(reading(5, 2))
    other.tell(reading(7))
    ends.settle()
    assert other.whole(reading(7)).counters == {"sent": 12}
    ends.cut()
    again, later = figures_of(one_again), Pair(one_again, ends.shards[1])
    later.connect()
    assert again.whole(reading(0)).counters == {"sent": 12}, "at once, before the other one tells anything"
    assert other.whole(reading(7)).counters == {"sent": 12}
    again.tell(reading(1))
    later.settle()
    assert other.whole(reading(7)).counters == {"sent": 13}
    assert again.whole(reading(1)).counters == {"sent": 13}
    last = one_again.next_life()
    later.cut()
    third = figures_of(last)
    Pair(last, ends.shards[1]).connect()
    assert third.whole(reading(2)).counters == {"sent": 15}


async def test_what_it_has_told_in_this_life_is_not_counted_twice() -> None:
    one, other, ends = both()
    one.tell(reading(5))
    ends.settle()
    ends.cut()
    ends.connect()
    assert one.whole(reading(5)).counters == other.whole(reading(0)).counters == {"sent": 5}


async def test_a_third_shard_is_known_from_what_another_tells() -> None:
    one, other, ends = both()
    with ends.shards[0].scheduler.turn:  # as if it had told this one
        one._heard(2, (0.0, {2: (9, {"sent": 40}, {"connections.count": 3}, [1.0])}))  # pyright: ignore[reportPrivateUsage]
    ends.cut()
    ends.connect()
    whole = other.whole(reading(1))
    assert whole.counters == {"sent": 41}
    assert whole.gauges["connections.count"] == 0, "nobody knows whether it is there"
    assert whole.rates == [0.0]


async def test_what_another_tells_of_a_shard_counts_less_than_what_that_has_told() -> None:
    one, other, ends = pair(term=3)
    first, second = figures_of(one), figures_of(other)
    first.tell(reading(5, 2, 1.0))
    ends.settle()
    with other.scheduler.turn:  # a third one, which knows the life before
        second._heard(2, (0.0, {0: (2, {"sent": 4}, {}, [])}))  # pyright: ignore[reportPrivateUsage]
    whole = second.whole(reading(1, 1))
    assert (whole.counters, whole.gauges["connections.count"], whole.rates) == ({"sent": 6}, 3, [1.0])
    ends.cut()
    ends.connect()
    assert first.whole(reading(5)).counters == {"sent": 5}, "it was told by this life"


async def test_a_node_is_as_old_as_the_first_of_its_shards(mock_clock: MockClock) -> None:
    one, other, ends = pair()
    first = figures_of(one, epoch=1000.0)
    mock_clock.jump(50)
    second = figures_of(other, epoch=1000.0)
    assert (first.uptime, second.uptime) == (50, 0)
    ends.connect()  # each tells the other its own, and neither has heard yet
    assert (first.uptime, second.uptime) == (50, 50)


async def test_others_tell_theirs_when_they_are_asked(autojump_clock: MockClock) -> None:
    one, other, ends = both()

    async def read() -> TakenFigures:
        await trio.lowlevel.checkpoint()
        return reading(5)

    async with trio.open_nursery() as nursery:
        other.serve(read, nursery.start_soon)
        nursery.start_soon(one.ask)
        await wait_all_tasks_blocked()
        ends.settle()
        await wait_all_tasks_blocked()
        ends.settle()
    assert one.whole(reading(1)).counters == {"sent": 6}


@pytest.mark.parametrize("why", ["says nothing", "goes", "knows nothing"])
async def test_nobody_waits_long_for_a_shard_that_does_not_tell(why: str, autojump_clock: MockClock) -> None:
    one, _, ends = both()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.ask)
        await wait_all_tasks_blocked()
        if why == "goes":
            ends.cut()
        elif why == "knows nothing":
            ends.settle()
    assert trio.current_time() - began == (MAX_WAIT if why == "says nothing" else 0)
    assert one.whole(reading(1)).counters == {"sent": 1}


# In a node


def shards_of(broker: Broker) -> Any:
    return broker._running.whole.shards  # pyright: ignore[reportPrivateUsage]


async def test_every_shard_has_the_figures_of_the_node() -> None:
    async with testing.broker(workers=3) as broker, three(broker) as wires:
        await wires[0].publish("a", b"x", qos=1, retain=True)
        await wires[1].publish("b", b"x", qos=1, retain=True)
        await wires[2].subscribe("c")
        expected = {
            "connections.count": 3,
            "connections.max": 3,
            "sessions.count": 3,
            "subscriptions.count": 1,
            "retained.count": 2,
            "messages.retained": 2,
            "messages.received": 2,
            "packets.connect.received": 3,
            "connections.accepted": 3,
        }
        for shard in shards_of(broker):
            figures = await shard.node_figures()
            assert {name: figures[name] for name in expected} == expected
            assert (await shard.figures())["connections.count"] == 1


async def test_every_shard_publishes_the_figures_of_the_node(autojump_clock: MockClock) -> None:
    topics = ["clients/connected", "retained messages/count", "publish/messages/received", "load/sockets/1min"]
    async with testing.broker(workers=3, sys={"interval": 10}) as broker, three(broker) as wires:
        await wires[0].publish("a", b"x", qos=1, retain=True)
        await trio.sleep(60)
        found: list[dict[str, bytes]] = []
        for wire in wires:
            await wire.subscribe(*[(f"$SYS/broker/{topic}", 0) for topic in topics])
            some = [await wire.expect_type(raw.PUBLISH) for _ in topics]
            found.append({each.topic.removeprefix("$SYS/broker/"): each.payload for each in some})
        assert [each["clients/connected"] for each in found] == [b"3"] * 3
        assert [each["retained messages/count"] for each in found] == [b"1"] * 3
        assert [each["publish/messages/received"] for each in found] == [b"1"] * 3
        assert all(float(each["load/sockets/1min"]) > 1 for each in found)


async def test_a_plugin_reads_the_figures_of_the_node() -> None:
    read: list[dict[str, int]] = []
    made: list[object] = []

    class Reads:
        def __init__(self, context: Context[Settings]) -> None:
            self._context = context
            made.append(self)
            context.counter("noted", "Noted.").add(1)
            context.gauge("here", "Here.", lambda: 2)

        async def start(self) -> None:
            self._context.nursery.start_soon(self._read)

        async def _read(self) -> None:
            await until(lambda: len(made) == 3)
            read.append(await self._context.metrics())
            read.append(await self._context.process_metrics())

    async with testing.broker(workers=3) as broker:
        await broker.plugins.enable("reads", factory=Reads)
        await until(lambda: len(read) == 6)
        names = "plugins.reads.noted", "plugins.reads.here"
        assert sorted([table[name] for name in names] for table in read) == [[1, 2]] * 3 + [[3, 6]] * 3
