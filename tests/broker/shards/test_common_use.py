"""Shards know what the others have of a limit that is the node's, and draw from its rates together."""

from math import inf

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.shards.peer_pair import Pair, Shard, pair
from tests.broker.shards.some_shards import shards, until
from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.metrics import LimitKind
from trunkline.broker.node_use import CONNECTIONS, SESSIONS
from trunkline.broker.rate_limits import RateLimit, limit_of
from trunkline.broker.shards.common_use import CommonUse
from trunkline.config.mqtt_settings import RateSettings
from trunkline.mqtt.reasons import Reason
from trunkline.testing.broker import Broker

MANY = 1_000_000


def users(**how: bool) -> tuple[CommonUse, CommonUse, Pair]:
    one, other, ends = pair(**how)
    return use_of(one), use_of(other), ends


def use_of(shard: Shard) -> CommonUse:
    return CommonUse(shard.words, shard.scheduler, 2)


async def test_numbers_are_known_elsewhere() -> None:
    one, other, ends = users()
    one.has("a", 3, 10)
    one.has("b", 1, 10)
    assert other.elsewhere("a") == 0
    ends.settle()
    assert (other.elsewhere("a"), other.elsewhere("b"), one.elsewhere("a")) == (3, 1, 0)
    one.has("a", 2, 10)
    one.has("a", 0, 10)
    other.has("a", 7, 10)
    ends.settle()
    assert (other.elsewhere("a"), one.elsewhere("a")) == (0, 7)


async def test_nothing_is_said_of_what_has_no_limit() -> None:
    one, other, ends = users()
    one.has("a", 3, 10)
    ends.settle()
    one.has("a", 4, 0)
    one.has("b", 4, 0)
    ends.settle()
    assert (other.elsewhere("a"), other.elsewhere("b")) == (0, 0)


async def test_large_numbers_are_told_now_and_then() -> None:
    one, other, ends = users()
    one.has("a", MANY // 200, MANY)
    ends.settle()
    assert other.elsewhere("a") == 0
    one.has("a", MANY // 200 + 1, MANY)
    ends.settle()
    assert other.elsewhere("a") == MANY // 200 + 1
    one.has("a", MANY // 200, MANY)
    ends.settle()
    assert other.elsewhere("a") == MANY // 200 + 1


async def test_what_has_gone_back_before_it_was_told_is_not_told() -> None:
    one, other, ends = users()
    told: list[object] = []
    other._words.hear("numbers", lambda shard, content: told.append(content))  # pyright: ignore[reportPrivateUsage]
    one.has("a", 3, 10)
    one.has("a", 0, 10)
    ends.settle()
    assert told == []


async def test_of_a_shard_that_is_down_sessions_stay() -> None:
    one, other, ends = users()
    one.has(CONNECTIONS, 3, 10)
    one.has(SESSIONS, 4, 10)
    ends.settle()
    ends.cut()
    assert (other.elsewhere(CONNECTIONS), other.elsewhere(SESSIONS)) == (0, 4)
    ends.connect()
    assert (other.elsewhere(CONNECTIONS), other.elsewhere(SESSIONS)) == (3, 4), "it tells all of it again"


async def test_a_shard_that_begins_anew_has_what_it_says() -> None:
    one, _, ends = pair()
    first = use_of(one)
    second_use = use_of(ends.shards[1])
    second_use.has(SESSIONS, 9, 10)
    ends.settle()
    assert first.elsewhere(SESSIONS) == 9
    ends.cut()
    again = ends.shards[1].next_life()
    use_of(again)
    Pair(one, again).connect()
    assert first.elsewhere(SESSIONS) == 0


async def test_who_waits_for_room_is_told() -> None:
    one, other, ends = users()
    fewer: list[bool] = []
    other.when_fewer("a", lambda: fewer.append(True))
    one.has("a", 3, 10)
    one.has("b", 3, 10)
    ends.settle()
    one.has("a", 4, 10)
    one.has("b", 2, 10)
    ends.settle()
    assert fewer == []
    one.has("a", 3, 10)
    ends.settle()
    assert fewer == [True]


def bucket(use: CommonUse, now: float) -> RateLimit:
    limit = limit_of(LimitKind.NODE_MESSAGES, RateSettings(messages="10/s"), use)
    assert limit is not None
    assert limit.available(now) == 10
    return limit


async def test_a_rate_is_drawn_from_by_all(mock_clock: MockClock) -> None:
    one, other, ends = users()
    now = ends.shards[0].scheduler.now
    near, far = bucket(one, now), bucket(other, now)
    near.take(6, now)
    near.take(1, now)
    assert far.available(now) == 10
    ends.settle()
    assert near.available(now) == pytest.approx(3)
    assert far.available(now) == pytest.approx(3)
    far.take(5, now)
    ends.settle()
    assert near.available(now) == pytest.approx(-2), "nobody draws from it before that is paid off"
    assert (near.kind, near.text, near.shapes) == (LimitKind.NODE_MESSAGES, "messages = 10/s", False)


async def test_a_rate_that_another_shard_has_not_is_nobodys() -> None:
    one, _, ends = users()
    near = bucket(one, 0.0)
    near.take(1, 0.0)
    ends.settle()
    assert near.ready_at < inf


# In a node


async def refused(broker: Broker, client_id: str) -> Reason:
    wire = Wire(broker.connect())
    await wire.send(raw.connect(client_id))
    connack = await wire.expect_type(raw.CONNACK)
    await wire.abort()
    return Reason(connack.reason)


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_sessions_of_the_node_are_counted_as_one(limit: int) -> None:
    async with testing.broker(workers=4, limits={"max_sessions": limit}) as broker:
        wires = [Wire(broker.connect()) for _ in range(limit)]
        for number, wire in enumerate(wires):
            await wire.connect(at(broker, number % 4, f"{number}-"))
            await wait_all_tasks_blocked()
        for shard in range(4):
            assert await refused(broker, at(broker, shard, "more")) is Reason.QUOTA_EXCEEDED
        assert {alarm.name for alarm in broker.alarms} == {"sessions_full"}
        await wires[0].disconnect()
        await wait_all_tasks_blocked()
        assert not broker.alarms
        again = Wire(broker.connect())
        await again.connect(at(broker, 3, "again"))
        for wire in [*wires[1:], again]:
            await wire.abort()


async def test_subscriptions_of_the_node_are_counted_as_one() -> None:
    async with testing.broker(workers=3, limits={"max_subscriptions": 4}) as broker, three(broker) as wires:
        for number, wire in enumerate(wires):
            assert await wire.subscribe(f"a/{number}") == [2]
            await wait_all_tasks_blocked()
        assert await wires[2].subscribe("b", "c") == [2, Reason.QUOTA_EXCEEDED]
        await wait_all_tasks_blocked()
        assert await wires[0].subscribe("d", "a/0") == [Reason.QUOTA_EXCEEDED, 2]
        await wires[1].send(raw.unsubscribe(9, "a/1"))
        await wires[1].expect_type(raw.UNSUBACK)
        await wait_all_tasks_blocked()
        assert await wires[0].subscribe("d") == [2]


#: Settings that let two connections in, and whose refusals are counted where.
TWO = {
    "connections.refused.node": {"limits": {"max_connections": 2}},
    "connections.refused.listener": {"listeners": [{"url": "tcp://127.0.0.1:0", "max_connections": 2}]},
    "connections.refused.address": {"listeners": [{"url": "tcp://127.0.0.1:0", "max_connections_per_address": 2}]},
}


async def admitted(broker: Broker, wire: Wire, client_id: str) -> bool:
    """Whether it is not closed at once."""
    try:
        await wire.connect(client_id)
    except (AssertionError, trio.BrokenResourceError):
        return False
    await until(lambda: any(client.client_id == client_id for client in broker.clients))
    await wait_all_tasks_blocked(0.001)
    return True


@pytest.mark.parametrize("counter", TWO)
async def test_connections_are_counted_once_wherever_they_are(counter: str) -> None:
    settings = {"listeners": [{"url": "tcp://127.0.0.1:0"}], **TWO[counter]}
    async with testing.broker(workers=4, **settings) as broker:  # type: ignore[arg-type]
        wires = [await Wire.open(broker.host, broker.port) for _ in range(2)]
        for shard, wire in enumerate(wires, 2):
            assert await admitted(broker, wire, at(broker, shard))
        for shard in range(4):
            wire = await Wire.open(broker.host, broker.port)
            assert not await admitted(broker, wire, at(broker, shard, "more"))
            await wire.abort()
        assert (await broker.metrics())[counter] == 4
        await wires.pop().abort()
        while not await admitted(broker, wire := await Wire.open(broker.host, broker.port), at(broker, 1, "more")):
            await wire.abort()  # the system has not said yet that the other one is gone
        wires.append(wire)
        for wire in wires:
            await wire.abort()


async def test_a_relayed_connection_counts_where_it_came() -> None:
    async with shards(kind="tls", max_connections=3) as (first, second):
        wires = []
        for client_id, _ in zip(second.ids(), range(3), strict=False):
            wires.append(await first.wire())
            await wires[-1].connect(client_id)
        assert (first.node.listeners[0].acceptor.admitted, second.node.listeners[0].acceptor.admitted) == (3, 0)
        direct = await second.wire()
        await direct.connect(second.id("direct"))
        for wire in [*wires, direct]:
            await wire.abort()
        await first.is_empty()
        await second.is_empty()
        assert (first.node.listeners[0].acceptor.admitted, second.node.listeners[0].acceptor.admitted) == (0, 0)


@pytest.mark.parametrize("where", ["node", "listener"])
async def test_messages_of_all_shards_are_within_one_rate(where: str) -> None:
    rates = {"messages": "1/d burst 10", "connections": "1000/s"}
    listener = {"url": "tcp://127.0.0.1:0", "rate": {"over": "refuse", **(rates if where == "listener" else {})}}
    settings = {"listeners": [listener], "rate": {"over": "refuse", **(rates if where == "node" else {})}}
    async with testing.broker(workers=3, **settings) as broker:  # type: ignore[arg-type]
        async with three(broker, tcp=True) as wires:
            taken = 0
            for number in range(21):
                answer = await wires[number % 3].publish("t", qos=1)
                await wait_all_tasks_blocked(0.001)
                assert answer is not None
                taken += answer.reason != Reason.QUOTA_EXCEEDED
        assert taken == 10
        assert (await broker.metrics())[f"rate.{where}.messages"] == 11
