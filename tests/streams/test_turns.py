"""Whatever is asked of a stream, others get their turn soon: what a request has to look at is worked off in steps."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tests.counting import Calls, counted
from tests.streams.world import World, burst, done, single
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.stored_codec import publication_from_bytes, publication_to_bytes
from trunkline.store import Engine, WriteBatch
from trunkline.streams import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    MessageNotFound,
    Retention,
    StreamConfig,
    blocks,
    consumer,
    log,
    topics,
)
from trunkline.streams.consumer import ConsumerCursor
from trunkline.streams.filters import TopicFilters
from trunkline.streams.interface import Streams
from trunkline.streams.search import topic_counts
from trunkline.streams.stream import Stream

T = TypeVar("T")

MESSAGES, TOPICS, CONSUMERS, UNACKNOWLEDGED = 4_000, 400, 100, 1_500
#: Calls of functions in one turn.
MOST = 15_000
TOPIC_FILTERS = tuple(f"t/{number}/x" for number in range(0, 200, 2))


class Host(World):
    """Counts what is done in each turn."""

    calls = Calls()

    async def read(self, function: Callable[[Engine], T]) -> T:
        self.calls.turn()
        found = function(self.engine)  # in a thread
        self.calls.now = 0
        return found

    async def pause(self) -> None:
        self.calls.turn()

    async def routed(self) -> None:
        self.calls.turn()

    async def committed(self) -> None:
        self.calls.turn()
        self.write()

    def write(self) -> bool:
        batch = WriteBatch()
        more = self.registry.write(batch)
        self.calls.turn()
        self.engine.commit(batch)  # in a thread
        self.calls.now = 0
        return more

    async def changed(self, cursor: ConsumerCursor, until: float) -> None:
        raise AssertionError("it waits for something")

    def message(self, topic: str, payload: bytes, qos: int, properties: Properties) -> Message:
        return Message(topic, payload, qos, properties=properties)

    def publish(self, message: Message) -> int:  # type: ignore[override]
        self.stream.take(message, self.now)
        return 1

    def route(self, stream: Stream) -> None:
        pass


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read and done at once costs as much in any stream: here little, beside what depends on the stream."""
    monkeypatch.setattr(blocks, "MAX_MESSAGES", 64)
    monkeypatch.setattr(blocks, "PAGE_ROWS", 2)
    monkeypatch.setattr(topics, "PLANTED_AT_ONCE", 100)
    for module in (log, consumer):
        monkeypatch.setattr(module, "MAX_STEP", 200)


def crowded(**settings: Any) -> Host:
    """A stream with messages of many topics, with consumers, with much that is not acknowledged, and nothing in memory
    that is stored."""
    host = Host()
    host.create("#", max_age=1e9, **settings)
    for number in range(CONSUMERS):
        filters = () if number % 20 == 1 else (f"t/{number}/x",)
        policy = AckPolicy.EXPLICIT if number % 4 else AckPolicy.ALL
        if settings.get("retention") is Retention.WORK_QUEUE:
            filters, policy = (f"t/{number}/x",), AckPolicy.EXPLICIT
        done(
            host.stream.consumers.add(host, ConsumerConfig(name=f"c{number}", filters=filters, ack_policy=policy), 1e3)
        )
    names = [f"t/{number}/x" for number in range(TOPICS)]
    for _ in range(0, MESSAGES // 2, TOPICS):
        host.stream.take(burst(names, [b"payload"] * TOPICS), host.now)
    for number in range(MESSAGES // 2):
        host.stream.take(single(f"t/{number % TOPICS}/x", b"payload"), host.now)
    if settings.get("retention") is not Retention.WORK_QUEUE:
        for number in range(4):
            deep = ConsumerConfig(name=f"deep{number}", ack_policy=AckPolicy.ALL, max_ack_pending=0)
            cursor = done(host.stream.consumers.add(host, deep, 1e3))
            while len(cursor.outstanding) < UNACKNOWLEDGED:
                host.stream.deliver(cursor, 1000, host.now)
                if cursor.needs:
                    done(host.stream.log.fetch(host, cursor.needs))
    host.commit()
    return host


async def _missing(asked: Awaitable[object]) -> None:
    with pytest.raises(MessageNotFound):
        await asked


async def _purge(streams: Streams) -> None:
    await streams.purge("s", "t/+/x", keep=7)
    await streams.purge("s", "t/7/x")
    await streams.purge("s", sequence=MESSAGES // 2)
    await streams.purge("s")


async def _get_last(streams: Streams) -> None:
    for number in range(MESSAGES - 50, MESSAGES):
        await streams.delete_message("s", number)  # which message of these topics is the last is not known now
    await streams.get_last("s", "t/+/x")
    await streams.get_last("s", "+/390/x")
    await _missing(streams.get_last("s", "+/+/y"))


async def _get_next(streams: Streams) -> None:
    await streams.get_next("s", "t/+/x", 3 * MESSAGES // 4)
    await streams.get_next("s", "t/399/#", MESSAGES // 2)
    await _missing(streams.get_next("s", "t/7/x", MESSAGES - 10))
    await _missing(streams.get_next("s", "nothing"))


async def _update(streams: Streams) -> None:
    await streams.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=MESSAGES // TOPICS - 1))
    await streams.update(StreamConfig(name="s", filters=("#",), max_messages_per_topic=2, max_messages=5))


async def _create_consumer(streams: Streams) -> None:
    for number, policy in enumerate(DeliverPolicy):
        for filters in ((), ("t/7/x",), ("t/+/x",), ("#",), ("nothing/#",), TOPIC_FILTERS):
            start = MESSAGES // 2 if policy is DeliverPolicy.BY_START_SEQUENCE else None
            time = 1000.0 if policy is DeliverPolicy.BY_START_TIME else None
            await streams.create_consumer(
                "s",
                ConsumerConfig(
                    name=f"new-{number}-{len(filters)}-{hash(filters)}",
                    deliver_policy=policy,
                    filters=filters,
                    start_sequence=start,
                    start_time=time,
                ),
            )


async def _update_consumer(streams: Streams) -> None:
    await streams.update_consumer("s", ConsumerConfig(name="c1", ack_wait=7.0))
    await streams.update_consumer("s", ConsumerConfig(name="c1", ack_wait=7.0, filters=("t/7/x", "t/300/x")))
    for number in range(4):
        deep = ConsumerConfig(name=f"deep{number}", ack_policy=AckPolicy.ALL, max_ack_pending=0, filters=TOPIC_FILTERS)
        await streams.update_consumer("s", deep)
    await streams.purge("s", "t/3/x")


async def _fetch(streams: Streams) -> None:
    await streams.fetch("s", "c21", batch=MESSAGES)
    for _ in range(3):
        await streams.fetch("s", "c99", batch=3)
    for message in (await streams.fetch("s", "c4", batch=10))[::-1]:
        message.ack()


async def _consume(streams: Streams) -> None:
    async with streams.consume("s", "c41") as messages:
        got = 0
        async for message in messages:
            message.ack()
            got += 1
            if got == 5:
                return


async def _delete_consumers(streams: Streams) -> None:
    for name in ("c1", "c2", "c3"):
        await streams.delete_consumer("s", name)


async def _sync(answer: object) -> None:
    assert answer


REQUESTS: dict[str, Callable[[Streams], Awaitable[object]]] = {
    "create": lambda streams: streams.create(StreamConfig(name="other", filters=("$other",))),
    "update": _update,
    "delete": lambda streams: streams.delete("s"),
    "info": lambda streams: _sync(streams.info("s")),
    "list": lambda streams: _sync(streams.list()),
    "purge": _purge,
    "get": lambda streams: streams.get("s", MESSAGES // 2),
    "get_last": _get_last,
    "get_next": _get_next,
    "delete_message": lambda streams: streams.delete_message("s", MESSAGES // 2),
    "publish": lambda streams: streams.publish("t/1/x", b"payload", expected_last_topic_sequence=MESSAGES - TOPICS + 2),
    "create_consumer": _create_consumer,
    "update_consumer": _update_consumer,
    "pause_consumer": lambda streams: streams.pause_consumer("s", "deep1", 5000.0),
    "delete_consumer": _delete_consumers,
    "consumer_info": lambda streams: _sync(streams.consumer_info("s", "deep1")),
    "consumers": lambda streams: _sync(streams.consumers("s")),
    "fetch": _fetch,
    "consume": _consume,
    "next_messages": _fetch,  # which asks it
}


def test_each_request_is_here() -> None:
    public = {name for name, _ in inspect.getmembers(Streams, inspect.isfunction) if not name.startswith("_")}
    assert set(REQUESTS) == public


async def longest_turn(host: Host, request: Callable[[Streams], Awaitable[object]]) -> int:
    """Of what was asked, what it leaves to be worked off, and the commits."""

    with counted() as host.calls:
        await request(Streams(host))
        for stream in host.registry:
            while not await stream.settle(host, lambda: host.now):
                pass
        while host.write():
            pass
    return host.calls.longest


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_request_takes_a_long_turn(name: str) -> None:
    assert await longest_turn(crowded(), REQUESTS[name]) < MOST


@pytest.mark.parametrize("name", ["fetch", "consume", "delete_consumer", "purge", "delete"])
@pytest.mark.parametrize("retention", [Retention.INTEREST, Retention.WORK_QUEUE])
async def test_nor_does_what_leaves_by_acknowledgements(name: str, retention: Retention) -> None:
    assert await longest_turn(crowded(retention=retention), REQUESTS[name]) < MOST


@pytest.mark.parametrize("retention", Retention)
@pytest.mark.parametrize("value", ["sub", "all"])
async def test_nor_does_a_message_that_takes_the_place_of_others(value: str, retention: Retention) -> None:
    properties: Properties = {"user_property": [("Nats-Rollup", value)]}

    async def publish(streams: Streams) -> None:
        for number in range(20):
            await streams.publish(f"t/{number}/x", properties=properties)

    assert await longest_turn(crowded(retention=retention, allow_rollup=True), publish) < MOST


async def test_nor_does_what_is_asked_about_many_topics() -> None:
    host = crowded()

    async def ask(streams: Streams) -> None:
        assert (await topic_counts(host.stream.log, host, TopicFilters(("t/#",)), 10, 20))[1] == TOPICS
        assert (await topic_counts(host.stream.log, host, TopicFilters(()), 10, 20))[1] == TOPICS
        expected = MESSAGES
        for filter_ in ("t/+/x", "#"):
            await streams.publish("t/1/x", expected_last_topic_sequence=expected, expected_last_filter=filter_)
            expected += 1

    assert await longest_turn(host, ask) < MOST


@pytest.mark.parametrize("ttl", ["60s", "never"])
async def test_nor_does_the_end_of_many_lives(ttl: str) -> None:
    """All of a time, and with a marker for each topic."""
    settings = {"allow_message_ttl": True, "allow_rollup": True, "delete_marker_ttl": 60.0}
    host = crowded(**settings)
    for number in range(MESSAGES):
        host.stream.take(single(f"t/{number % TOPICS}/x", ttl=ttl), host.now)
    host.commit()

    async def wait(streams: Streams) -> None:
        del streams
        host.now += 2e9  # it is above `max_age`, too

    publication_from_bytes(publication_to_bytes(single("t", ttl=ttl), 0.0), 0.0)  # what reads properties is made once
    before = host.stream.log.last
    assert await longest_turn(host, wait) < MOST
    assert host.stream.log.last - before == (0 if ttl == "never" else TOPICS)


async def test_nor_does_a_pass_through_the_lives_of_messages_that_are_gone() -> None:
    host = crowded(allow_message_ttl=True)
    for number in range(MESSAGES):
        host.stream.take(single(f"t/{number % TOPICS}/x", ttl="900h"), host.now)
    host.commit()

    assert await longest_turn(host, lambda streams: streams.purge("s", keep=100)) < MOST
    assert host.stream.log.deadlines.added == 0, "it was"
