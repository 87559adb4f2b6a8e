"""Several messages with one request, at real servers and at the broker, which tell the same."""

import time

import pytest

from tests.nats.client.jetstream.scripted_api import Answer, Api, scripted
from tests.nats.client.stores import IN_MEMORY, jetstream, knows_ttl
from tests.nats.servers import BROKER, NatsServer
from trunkline.nats.client.jetstream import DirectReader, JetStream, NotSupported, StoredBatch
from trunkline.nats.errors import NoResponders, RequestTimeout
from trunkline.nats.jetstream.configs import StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import ApiError

ORDERS = StreamConfig(name="orders", subjects=("orders.>",), allow_direct=True, **IN_MEMORY)


async def filled(js: JetStream, server: NatsServer) -> DirectReader:
    """Six messages, the third of which is deleted."""
    await js.create_stream(ORDERS)
    for number, name in enumerate("abcad", 1):
        await js.publish(f"orders.{name}", b"%d" % number)
    await js.publish("orders.b.x", b"6", headers={"A": "b"})
    await js.delete_message("orders", 3)
    if not (knows_ttl(js) or server.kind == BROKER):
        with pytest.raises(NotSupported, match="2.9.10, tells one at a time"):
            await js.direct("orders").batch(2)
        with pytest.raises(NotSupported):
            await js.direct("orders").lasts("orders.a")
        pytest.skip("it tells one message at a time")
    return js.direct("orders")


def sequences(batch: StoredBatch) -> list[int]:
    return [message.sequence for message in batch.messages]


async def test_messages_from_one_on(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        first = await orders.batch(2)
        assert (sequences(first), first.pending, first.up_to) == ([1, 2], 3, 0)
        following = await orders.batch(10, sequence=3)
        assert (sequences(following), following.pending) == ([4, 5, 6], 0)
        last = following.messages[-1]
        assert (last.stream, last.subject, last.payload) == ("orders", "orders.b.x", b"6")
        assert list(last.headers.pairs()) == [("A", "b")]
        assert last == await js.get("orders", 6)


async def test_messages_that_match(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        found = await orders.batch(1, subject="orders.a")
        assert (sequences(found), found.pending) == ([1], 1)
        found = await orders.batch(5, subject="orders.a", sequence=2)
        assert (sequences(found), found.pending) == ([4], 0)
        found = await orders.batch(2, subject="orders.*", sequence=2)
        assert (sequences(found), found.pending) == ([2, 4], 1)
        for none in ({"subject": "orders.z"}, {"sequence": 7}, {"subject": "orders.a", "sequence": 5}):
            assert await orders.batch(5, **none) == StoredBatch(())  # type: ignore[arg-type]


async def test_no_more_bytes(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        assert sequences(await orders.batch(9, max_bytes=1)) == [1]
        assert sequences(await orders.batch(9, max_bytes=18)) == [1, 2]
        assert sequences(await orders.batch(9, max_bytes=19)) == [1, 2, 4]


async def test_messages_since_a_moment(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        times = [message.time for message in (await orders.batch(9)).messages]
        assert sequences(await orders.batch(9, since=0.0)) == [1, 2, 4, 5, 6]
        assert sequences(await orders.batch(9, since=times[0] + 0.0001))[-1] == 6
        assert sequences(await orders.batch(9, since=times[-1] - 0.00001))[-1:] == [6]
        assert await orders.batch(9, since=time.time() + 3600) == StoredBatch((), pending=0, up_to=0)


async def test_the_last_of_each_subject(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        found = await orders.lasts("orders.>")
        assert (sequences(found), found.pending, found.up_to) == ([2, 4, 5, 6], 0, 6)
        assert sequences(await orders.lasts("orders.a", "orders.*")) == [2, 4, 5]
        for none in ("orders.z", "others.>", "orders..x"):
            assert await orders.lasts(none) == StoredBatch(())


async def test_the_last_of_each_subject_at_an_earlier_moment(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        assert sequences(await orders.lasts("orders.>", up_to=2)) == [1, 2]
        assert sequences(await orders.lasts("orders.>", up_to=4)) == [2, 4]
        assert await orders.lasts("orders.d", up_to=4) == StoredBatch(())
        assert sequences(await orders.lasts("orders.>", until=time.time() + 3600)) == [2, 4, 5, 6]
        assert await orders.lasts("orders.>", until=0.0) == StoredBatch(())


async def test_one_moment_in_several_batches(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        first = await orders.lasts("orders.>", messages=2)
        assert (sequences(first), first.pending, first.up_to) == ([2, 4], 2, 6)
        await js.publish("orders.d", b"7")
        rest = await orders.lasts("orders.>", up_to=first.up_to, sequence=first.messages[-1].sequence + 1)
        assert (sequences(rest), rest.pending) == ([5, 6], 0)


async def test_too_many_subjects(server: NatsServer) -> None:
    async with jetstream(server) as js:
        orders = await filled(js, server)
        async with js.publisher() as publisher:
            for number in range(1024):
                await publisher.publish(f"orders.many.{number}")
        assert len((await orders.lasts("orders.many.*")).messages) == 1024
        with pytest.raises(ApiError, match="Too Many Results") as caught:
            await orders.lasts("orders.>")
        assert caught.value.code == 413


async def test_nobody_tells(server: NatsServer) -> None:
    async with jetstream(server) as js:
        if not (knows_ttl(js) or server.kind == BROKER):
            pytest.skip("it says nothing then")
        with pytest.raises(NoResponders, match="no stream '.*', or it does not have allow_direct"):
            await js.direct("none").batch(1)


async def test_what_no_request_may_be() -> None:
    async def answer(_: Api, subject: str, payload: bytes) -> Answer:
        raise AssertionError

    async with scripted(answer) as (js, _):
        orders = js.direct("orders")
        with pytest.raises(ValueError, match="0 messages"):
            await orders.batch(0)
        with pytest.raises(ValueError, match="-1 bytes"):
            await orders.batch(1, max_bytes=-1)
        with pytest.raises(ValueError, match="which subjects"):
            await orders.lasts()
        with pytest.raises(ValueError, match="or"):
            js.direct("or ders")


@pytest.mark.parametrize(
    "said",
    [
        (b"NATS/1.0 204 EOB\r\n\r\n", b""),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: many\r\n\r\n", b""),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-UpTo-Sequence: x\r\n\r\n", b""),
        (b"NATS/1.0\r\nNats-Num-Pending: 0\r\n\r\n", b"x"),
        (b"NATS/1.0 many\r\n\r\n", b""),
    ],
)
async def test_nonsense(said: Answer) -> None:
    async def answer(_: Api, subject: str, payload: bytes) -> Answer:
        return said

    async with scripted(answer) as (js, _):
        with pytest.raises(BadReply):
            await js.direct("orders").batch(5)


async def test_a_batch_without_an_end() -> None:
    async def answer(_: Api, subject: str, payload: bytes) -> Answer:
        own = "Nats-Stream: s\r\nNats-Subject: a\r\nNats-Sequence: 1\r\nNats-Time-Stamp: 2023-11-14T22:13:20Z\r\n"
        return f"NATS/1.0\r\n{own}Nats-Num-Pending: 3\r\nNats-Last-Sequence: 0\r\n\r\n".encode(), b"x"

    async with scripted(answer, seconds=0.2) as (js, _):
        with pytest.raises(RequestTimeout, match="1 messages came within 0.2 s, and no end"):
            await js.direct("s").batch(5)
