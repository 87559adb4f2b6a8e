"""All messages in the order of the stream, each once, whatever is lost on the way."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.nats.client.jetstream.stub import StubApi, heartbeat, info, message, status
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import connect
from trunkline.nats.client.events import ConsumerRenewed, Event
from trunkline.nats.client.jetstream.ordered import OrderedSubscription, ordered
from trunkline.nats.errors import CannotSubscribe, ClientClosed, NoResponders, RequestTimeout
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy, Storage, StreamConfig
from trunkline.nats.jetstream.replies import ConsumerInfo, NotEnabled, StreamMissing


@pytest.mark.parametrize(
    "config",
    [
        ConsumerConfig(durable="d"),
        ConsumerConfig(name="n"),
        ConsumerConfig(deliver_subject="d"),
        ConsumerConfig(deliver_group="g"),
        ConsumerConfig(backoff=(1.0,)),
        ConsumerConfig(max_waiting=1),
        ConsumerConfig(ack_policy=AckPolicy.ALL),
        ConsumerConfig(max_deliver=2),
        ConsumerConfig(max_deliver=-1),
    ],
    ids=str,
)
def test_what_is_not_possible(config: ConsumerConfig) -> None:
    with pytest.raises(CannotSubscribe):
        ordered(config)


def test_what_makes_it_ordered() -> None:
    found = ordered(ConsumerConfig(filter_subject="a", headers_only=True))
    assert (found.filter_subject, found.headers_only) == ("a", True)
    assert (found.ack_policy, found.max_deliver, found.flow_control) == (AckPolicy.NONE, 1, True)
    assert (found.idle_heartbeat, found.ack_wait, found.memory_storage, found.replicas) == (5.0, 22 * 3600.0, True, 1)
    said = ordered(ConsumerConfig(ack_policy=AckPolicy.NONE, max_deliver=1, idle_heartbeat=1.0))
    assert said.idle_heartbeat == 1.0


def subscribed(*, max_messages: int = 100, config: ConsumerConfig | None = None) -> tuple[OrderedSubscription, StubApi]:
    api = StubApi()
    found = api.client.open(lambda *args: OrderedSubscription(api, *args), "d", max_messages=max_messages)
    config = ordered(config or ConsumerConfig())
    found.bind("s", "c0", info("c0", config), is_created=True)
    return found, api


async def sequences(found: OrderedSubscription, count: int) -> list[int]:
    return [(await found.receive()).origin.stream_sequence for _ in range(count)]


def renewed(api: StubApi) -> int:
    return sum(isinstance(event, ConsumerRenewed) for event in api.client.events)


@pytest.mark.parametrize(
    "lost",
    [
        [message(4, stream=14)],
        [message(4, stream=14), message(5, stream=15)],
        [heartbeat(3)],
        [message(1, stream=1)],
        [status(409, "Consumer Deleted")],
        [status(503)],
    ],
    ids=["message", "messages", "heartbeat", "began anew", "deleted", "gone"],
)
async def test_what_was_missed_is_asked_for(lost: list[object]) -> None:
    """Behind what has come before, which is given first; nothing of the old consumer comes any more."""
    found, api = subscribed()
    first = found.subject
    for sequence in (1, 2):
        found.put(message(sequence, stream=10 + sequence))
    for wire in lost:
        found.put(wire)  # type: ignore[arg-type]
    assert await sequences(found, 2) == [11, 12]
    assert api.created == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 2)
        await wait_all_tasks_blocked()
        (config,) = api.created
        assert (config.deliver_policy, config.start_sequence) == (DeliverPolicy.BY_START_SEQUENCE, 13)
        assert config.deliver_subject == found.subject != first
        assert ("$JS.API.CONSUMER.DELETE.s.c0", b"", "") in api.client.published
        found.put(message(1, stream=13))
        found.put(message(2, stream=14))
    assert renewed(api) == 1
    assert found.consumer == "c1"


async def test_the_first_message_is_missed() -> None:
    found, api = subscribed(config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW))
    found.put(message(2, stream=9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        assert api.created[0].deliver_policy is DeliverPolicy.NEW
        found.put(message(1, stream=9))


async def test_a_heartbeat_behind_the_last_message_renews_nothing() -> None:
    found, api = subscribed()
    found.put(heartbeat(0))
    found.put(message(1, b"1"))
    found.put(heartbeat(1))
    found.put(message(2, b"2"))
    assert await sequences(found, 2) == [1, 2]
    with trio.move_on_after(0):
        await found.receive()
    assert (api.created, renewed(api)) == ([], 0)


async def test_a_time_to_begin_at_is_for_the_first_consumer() -> None:
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, start_time=1_700_000_000.0)
    found, api = subscribed(config=config)
    found.put(message(1, stream=7))
    found.put(message(3, stream=9))
    await found.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        assert (api.created[0].start_sequence, api.created[0].start_time) == (8, None)
        found.put(message(1, stream=8))


@pytest.mark.parametrize("seconds", [16, 1])
async def test_silence(autojump_clock: MockClock, seconds: int) -> None:
    """Also for a program that waits for a second at a time."""
    found, api = subscribed()
    found.put(message(1, stream=7))
    await found.receive()
    for _ in range(16 // seconds):
        with trio.move_on_after(seconds):
            await found.receive()
    assert renewed(api) == 1
    assert api.created[0].start_sequence == 8


async def test_what_finds_no_room_comes_again() -> None:
    found, api = subscribed(max_messages=2)
    for sequence in range(1, 5):
        found.put(message(sequence, stream=sequence))
    assert await sequences(found, 2) == [1, 2]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        assert api.created[0].start_sequence == 3
        found.put(message(1, stream=3))


@pytest.mark.parametrize(
    "failure", [NoResponders("x"), RequestTimeout("no answer"), NotEnabled(503, 10039, "not enabled")], ids=repr
)
async def test_a_server_that_is_not_ready(autojump_clock: MockClock, failure: Exception) -> None:
    found, api = subscribed()
    api.failures = [failure] * 8
    found.put(message(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        await trio.sleep(0.25 + 0.5 + 1 + 2 + 4 + 8 + 8 + 7.9)
        assert api.created == []
        await trio.sleep(0.2)
        assert len(api.created) == 1
        found.put(message(1))
    assert renewed(api) == 1


async def test_a_stream_that_is_gone() -> None:
    found, api = subscribed()
    api.failures = [StreamMissing(404, 10059, "stream not found")]
    found.put(message(2))
    with pytest.raises(StreamMissing):
        await found.receive()
    async with trio.open_nursery() as nursery:  # and it can be tried once more
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        found.put(message(1))


async def test_a_cancelled_renewal(autojump_clock: MockClock) -> None:
    found, api = subscribed()
    api.failures = [RequestTimeout("no answer")] * 3
    found.put(message(2))
    with trio.move_on_after(0.1):
        await found.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        await trio.sleep(2)
        assert len(api.created) == 1
        found.put(message(1))
    assert renewed(api) == 1


async def test_two_tasks_renew_it_once() -> None:
    found, api = subscribed()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        found.put(message(2))
        await wait_all_tasks_blocked()
        assert len(api.created) == 1
        found.put(message(1))
        found.put(message(2))


async def test_one_renewal_ends_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the subscription would take the name of one consumer, and the messages of another."""
    found, api = subscribed()
    create, begun, go = api.new_consumer, 0, trio.Event()

    async def slowly(stream: str, config: ConsumerConfig) -> ConsumerInfo:
        nonlocal begun
        begun += 1
        await go.wait()
        return await create(stream, config)

    monkeypatch.setattr(api, "new_consumer", slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sequences, found, 1)
        nursery.start_soon(sequences, found, 1)
        await wait_all_tasks_blocked()
        for _ in range(2):  # the second one from the new consumer, before its creation is answered
            found.put(message(2))
            await wait_all_tasks_blocked()
        assert begun == 1
        go.set()
        await wait_all_tasks_blocked()
        assert (begun, found.consumer, found.subject) == (2, "c2", api.created[-1].deliver_subject)
        found.put(message(1))
        found.put(message(2))


async def test_the_end_of_the_client() -> None:
    found, _ = subscribed()
    found.put(message(2))
    found.end(ClientClosed("over"))
    with pytest.raises(ClientClosed):
        await found.receive()


async def test_what_is_over_is_not_renewed(autojump_clock: MockClock) -> None:
    found, api = subscribed()
    api.failures = [RequestTimeout("no answer")]
    found.put(message(2))
    async with trio.open_nursery() as nursery:

        async def take() -> None:
            with pytest.raises(trio.EndOfChannel):
                await found.receive()

        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        found.close()
    assert api.created == []


async def test_servers_that_lose_it(server: NatsServer) -> None:
    """The consumer is deleted again and again while messages are published and taken."""
    told: list[Event] = []
    async with connect(server.url, on_event=told.append) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="ordered", storage=Storage.MEMORY, subjects=("ordered",)))
        async with js.subscribe_ordered("ordered", config=ConsumerConfig(idle_heartbeat=0.1)) as found:
            taken: list[int] = []
            for number in range(60):
                await js.publish("ordered", b"%d" % number)
                if number % 20 == 10:
                    await js.delete_consumer("ordered", found.consumer)
                if number % 3:
                    taken += await sequences(found, 1)
            taken += await sequences(found, 60 - len(taken))
            assert taken == list(range(1, 61))
        assert any(isinstance(event, ConsumerRenewed) for event in told)
        await js.delete_stream("ordered")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_killed(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The consumer is in its memory, and gone with it."""
    folder = tmp_path_factory.mktemp("killed")
    with running(kind, folder, "-js", "-sd", str(folder / "js")) as server:
        async with connect(server.url, reconnect_wait=0.01, on_event=lambda _: None) as client:
            js = client.jetstream(timeout=1.0)
            await js.create_stream(StreamConfig(name="ordered", subjects=("ordered",)))
            async with js.subscribe_ordered("ordered", config=ConsumerConfig(idle_heartbeat=0.1)) as found:
                for number in range(20):
                    await js.publish("ordered", b"%d" % number)
                taken = await sequences(found, 10)
                server.kill()
                await trio.to_thread.run_sync(server.start)
                taken += await sequences(found, 10)
                await client.flush()
                assert (await js.publish("ordered", b"more")).sequence == 21
                taken += await sequences(found, 1)
                assert taken == list(range(1, 22))
