"""The end of subscriptions, and what becomes of their consumers."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.nats.client.jetstream.stub import StubApi, info, message
from tests.nats.servers import NatsServer
from trunkline.nats import Client, connect
from trunkline.nats.client.events import DeleteFailed
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.client.jetstream.pull import PullSubscription
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.errors import ClientClosed, RequestTimeout
from trunkline.nats.jetstream.configs import ConsumerConfig, Storage, StreamConfig
from trunkline.nats.jetstream.replies import ConsumerInfo, ConsumerMissing
from trunkline.nats.protocol.operations import Deliver


@asynccontextmanager
async def stream(server: NatsServer) -> AsyncGenerator[tuple[Client, JetStream]]:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="ends", storage=Storage.MEMORY, subjects=("ends.>",)))
        for number in range(3):
            await js.publish("ends.a", b"%d" % number)
        try:
            yield client, js
        finally:
            await js.delete_stream("ends")


async def names(js: JetStream) -> list[str]:
    return [found.name for found in await js.consumers("ends")]


async def gone(js: JetStream) -> None:
    """Until there are no consumers: nobody waits for the answer of a block's end."""
    with trio.fail_after(60):
        while await names(js):
            await trio.lowlevel.checkpoint()


def begin(js: JetStream, kind: str, **values: Any) -> AbstractAsyncContextManager[ConsumerSubscription]:
    if kind == "pull":
        return js.subscribe_pull("ends.>", **values)
    return js.subscribe("ends.>", **values)


@pytest.mark.parametrize("kind", ["push", "pull"])
@pytest.mark.parametrize("ends", ["unsubscribe", "drain"])
@pytest.mark.parametrize("durable", ["", "d"])
async def test_what_the_subscription_has_created_is_deleted(
    server: NatsServer, kind: str, ends: str, durable: str
) -> None:
    async with stream(server) as (_, js):
        async with begin(js, kind, durable=durable) as found:
            assert await names(js) == [found.consumer]
            assert found.is_created
            await getattr(found, ends)()
            assert await names(js) == []
            await getattr(found, ends)()  # once more does nothing
        assert found.is_over


@pytest.mark.parametrize("kind", ["push", "pull"])
@pytest.mark.parametrize("ends", ["unsubscribe", "drain"])
async def test_what_was_there_stays(server: NatsServer, kind: str, ends: str) -> None:
    async with stream(server) as (client, js):
        deliver = client.new_inbox() if kind == "push" else ""
        await js.create_consumer("ends", ConsumerConfig(durable="d", deliver_subject=deliver))
        for values in ({"durable": "d"}, {"consumer": "d"}):
            async with begin(js, kind, **values) as found:
                assert not found.is_created
                await getattr(found, ends)()
            assert await names(js) == ["d"]


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_the_end_of_the_block(server: NatsServer, kind: str) -> None:
    """A durable consumer is there for the next run, and goes on where the one before was."""
    async with stream(server) as (_, js):
        async with begin(js, kind):
            pass
        await gone(js)
        async with begin(js, kind, durable="d") as found:
            await (await found.receive()).ack_sync()
            while len(found) < 2:
                await trio.lowlevel.checkpoint()
        assert await names(js) == ["d"]
        async with begin(js, kind, durable="d") as found:
            assert (await found.receive()).payload in (b"1", b"2")


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_what_nobody_has_taken_comes_again(server: NatsServer, kind: str) -> None:
    """At once, as a rule: an older server may have given it to the subscription that ends, and waits for its answer."""
    async with stream(server) as (_, js):
        config = ConsumerConfig(durable="d", ack_wait=1.0)
        async with begin(js, kind, config=config) as found:
            await (await found.receive()).ack_sync()
            while len(found) < 2:
                await trio.lowlevel.checkpoint()
        seen: set[bytes] = set()
        async with begin(js, kind, config=config) as found:
            while seen != {b"1", b"2"}:
                message = await found.receive()
                message.ack()
                seen.add(message.payload)


async def test_a_cancelled_block(server: NatsServer) -> None:
    async with stream(server) as (_, js):
        with trio.CancelScope() as scope:
            async with js.subscribe("ends.>"):
                scope.cancel()
                await trio.sleep_forever()
        await gone(js)


async def test_a_member_that_goes_takes_nothing_from_the_others(server: NatsServer) -> None:
    """The first member of a group creates the consumer, and the last one that goes deletes it, if it was the first."""
    async with stream(server) as (client, js):
        async with js.subscribe("ends.>", queue="q") as first, js.subscribe("ends.>", queue="q") as second:
            assert (first.is_created, second.is_created) == (True, False)
            await first.drain()
            assert await names(js) == ["q"]
            await js.publish("ends.b", b"for the second")
            async for found in second:
                found.ack()
                if found.subject == "ends.b":
                    break
        async with js.subscribe("ends.>", queue="alone") as alone:
            await alone.unsubscribe()
            assert await names(js) == ["q"]
        assert client.is_connected


async def test_the_end_of_a_member_s_block_takes_nothing_from_the_others(server: NatsServer) -> None:
    """Of a group whose consumer is not durable."""
    async with stream(server) as (_, js):
        config = ConsumerConfig(name="shared")
        first = js.subscribe("ends.>", queue="q", config=config)
        await first.__aenter__()
        async with js.subscribe("ends.>", queue="q", config=config) as second:
            await first.__aexit__(None, None, None)
            await js.publish("ends.b", b"for the second")
            assert await names(js) == ["shared"]
            with trio.fail_after(60):
                while (await second.receive()).subject != "ends.b":
                    pass


async def test_a_drain_keeps_what_has_come(server: NatsServer) -> None:
    async with stream(server) as (_, js):
        async with js.subscribe("ends.>") as found:
            first = await found.receive()
            await found.drain()
            rest = [message.payload async for message in found]
        assert [first.payload, *rest] == [b"0", b"1", b"2"]


async def test_the_drain_of_the_client(server: NatsServer) -> None:
    """It deletes what the subscriptions have created, behind what has come, and nothing else."""
    async with stream(server) as (_, js):
        await js.create_consumer("ends", ConsumerConfig(durable="theirs"))
        async with connect(server.url) as client:
            other = client.jetstream()
            async with (
                other.subscribe("ends.>", durable="d") as pushed,
                other.subscribe_pull(durable="theirs", stream="ends"),
            ):
                first = await pushed.receive()
                await client.drain()
                assert [first.payload] + [each.payload async for each in pushed] == [b"0", b"1", b"2"]
        assert await names(js) == ["theirs"]


async def test_a_consumer_that_cannot_be_deleted(server: NatsServer) -> None:
    """`unsubscribe` says so, and `drain` tells it as an event."""
    async with stream(server) as (client, js):
        async with js.subscribe("ends.>") as found:
            await js.delete_consumer("ends", found.consumer)
            with pytest.raises(ConsumerMissing):
                await found.unsubscribe()
        told: list[object] = []
        client.tell = told.append  # type: ignore[method-assign,assignment]
        async with js.subscribe("ends.>") as found:
            await js.delete_consumer("ends", found.consumer)
            await found.drain()
        assert [(type(event), type(event.error)) for event in told if isinstance(event, DeleteFailed)] == [
            (DeleteFailed, ConsumerMissing)
        ]


def plain(*, is_created: bool) -> tuple[PushSubscription, StubApi]:
    api = StubApi()
    found = api.client.open(lambda *args: PushSubscription(api, *args), "d")
    found.bind("s", "c", info(), is_created=is_created)
    return found, api


async def test_what_is_lost_with_the_client() -> None:
    """The end of a block asks for the deletion of a consumer, and raises nothing if it cannot."""
    found, api = plain(is_created=True)
    found.close()
    assert api.client.published == [("$JS.API.CONSUMER.DELETE.s.c", b"", "")]
    found.close()
    assert len(api.client.published) == 1
    found, api = plain(is_created=True)
    api.client.failure = ClientClosed("closed")
    found.close()
    found, api = plain(is_created=False)
    found.close()
    assert api.client.published == []


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
async def test_what_nobody_has_taken_is_handed_back(ends: str) -> None:
    found, api = plain(is_created=False)
    taken = message(1)
    for wire in (taken, message(2), Deliver(b"d", b"1", b"elsewhere", b"", b"x"), message(3)):
        found.put(wire)
    (await found.receive()).ack()
    if ends == "close":
        found.close()
    else:
        await found.unsubscribe()
    assert found.is_over
    assert len(found) == 0
    assert [(reply.split(".")[5], payload) for reply, payload, _ in api.client.published] == [
        ("1", b"+ACK"),
        ("2", b"-NAK"),
        ("3", b"-NAK"),
    ]


async def test_an_end_without_an_answer() -> None:
    found, api = plain(is_created=True)
    api.client.failure = RequestTimeout("no answer")
    with pytest.raises(RequestTimeout):
        await found.unsubscribe()
    found, api = plain(is_created=True)
    found.put(message(1))
    api.client.failure = RequestTimeout("no answer")
    await found.drain()
    assert [type(event) for event in api.client.events] == [DeleteFailed]
    assert len(found) == 1


@pytest.mark.parametrize("kind", [PushSubscription, PullSubscription])
async def test_a_consumer_is_deleted_behind_the_drain(
    kind: type[ConsumerSubscription], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way until then is acknowledged by a consumer that is there."""
    api = StubApi()
    found = api.client.open(lambda *args: kind(api, *args), "d")
    found.bind("s", "c", info(), is_created=True)

    async def stop(subscription: object) -> None:
        assert (subscription, api.deleted) == (found, [])
        found.put(message(1, b"late"))

    monkeypatch.setattr(api.client, "stop", stop)
    await found.drain()
    assert (found.is_over, api.deleted) == (True, ["c"])
    assert [each.payload async for each in found] == [b"late"]


class Members(StubApi):
    """Others of the group are seen for so long."""

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        self.push_bound = trio.current_time() < self.until
        return await super().consumer(stream, name)

    until = 0.3


async def test_the_last_member_waits_until_the_server_sees_it(autojump_clock: MockClock) -> None:
    api = Members()
    found = api.client.open(lambda *args: PushSubscription(api, *args), "d", queue="q")
    found.bind("s", "c", info(), is_created=True)
    await found.unsubscribe()
    assert api.deleted == ["c"]


async def test_acknowledgements_leave_at_once_where_nothing_else_waits() -> None:
    api = StubApi()
    found = api.client.open(lambda *args: PullSubscription(api, *args), "d.*")
    found.bind("s", "c", info(), is_created=False)

    def come(*sequences: int) -> None:
        for sequence in sequences:
            found.put(message(sequence))

    come(1, 2)
    (await found.receive()).ack()
    (await found.receive()).ack()
    come(3, 4)
    for each in await found.fetch(2):
        each.ack()
    come(5)
    (await found.receive()).ack()
    assert api.client.at_once == [False, True, False, False, True]
