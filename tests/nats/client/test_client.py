"""The client, with real servers of two versions."""

import gc
from array import array

import pytest
import trio
from trio.testing import MockClock

from tests.nats.client.scripted import Peer, Told, serving
from tests.nats.servers import NatsServer
from trunkline.nats import Client, connect
from trunkline.nats.client.events import AnswersDropped, Event, SlowConsumer
from trunkline.nats.errors import (
    BadSubject,
    BufferFull,
    ClientClosed,
    NatsError,
    NoResponders,
    PayloadTooLarge,
    RequestTimeout,
)
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.operations import PING, Publish


async def test_what_is_published_comes(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a.*") as some, client.subscribe("a.>") as more:
            await client.publish("a.b", b"x", headers={"h": "1"}, reply="r")
            await client.publish("a.b.c")
            await client.publish("b", b"not for them")
            first = await some.receive()
            assert (first.subject, first.payload, first.reply, dict(first.headers)) == ("a.b", b"x", "r", {"h": "1"})
            assert [(await more.receive()).subject for _ in range(2)] == ["a.b", "a.b.c"]
            await client.flush()
            assert len(some) == len(more) == 0
        assert client.is_connected
        assert client.url == server.url
        assert client.server["max_payload"] == 1 << 20
    assert not client.is_connected


async def test_of_a_queue_group_one_gets_a_message(server: NatsServer) -> None:
    async with connect(server.url) as one, connect(server.url) as two:
        with one.subscribe("q", queue="g") as here, two.subscribe("q", queue="g") as there:
            await one.flush()
            await two.flush()
            for number in range(100):
                await one.publish("q", b"%d" % number)
            await one.flush()
            await two.flush()
            found = [(await each.receive()).payload for each in (here, there) for _ in range(len(each))]
    assert sorted(map(int, found)) == list(range(100))


async def test_no_echo(server: NatsServer) -> None:
    async with connect(server.url, echo=False) as client:
        with client.subscribe("a") as own:
            await client.publish("a")
            await client.flush()
            assert len(own) == 0


async def test_requests(server: NatsServer) -> None:
    async def answer(client: Client, task_status: trio.TaskStatus[None]) -> None:
        with client.subscribe("double", queue="workers") as asked:
            await client.flush()
            task_status.started()
            async for message in asked:
                message.respond(message.payload * 2, headers={"of": message.payload.decode()})

    async with connect(server.url) as client, connect(server.url) as other, trio.open_nursery() as nursery:
        await nursery.start(answer, other)
        found = await client.request("double", b"ab")
        assert (found.payload, found.headers["of"]) == (b"abab", "ab")
        results: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            results[number] = (await client.request("double", b"%d" % number)).payload

        async with trio.open_nursery() as many:
            for number in range(100):
                many.start_soon(ask, number)
        assert results == {number: b"%d" % number * 2 for number in range(100)}
        nursery.cancel_scope.cancel()


async def test_a_request_that_nobody_answers(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with pytest.raises(NoResponders, match="nobody answers requests to 'no.one'"):
            await client.request("no.one")
        with client.subscribe("silent") as heard:
            with pytest.raises(RequestTimeout, match=r"no answer to a request to 'silent' within 0\.05 s"):
                await client.request("silent", timeout=0.05)
            assert (await heard.receive()).reply.startswith("_INBOX.")
            with trio.move_on_after(0.05) as scope:
                await client.request("silent")
            assert scope.cancelled_caught
        message = None
        with client.subscribe("plain") as plain:
            await client.publish("plain")
            message = await plain.receive()
        with pytest.raises(NatsError, match="asks for no answer"):
            message.respond()


async def test_many_answers(server: NatsServer) -> None:
    async with connect(server.url) as client:

        async def answer(client: Client, times: int, task_status: trio.TaskStatus[None]) -> None:
            with client.subscribe("status") as asked:
                await client.flush()
                task_status.started()
                async for message in asked:
                    for number in range(times):
                        message.respond(b"%d" % number)

        async with trio.open_nursery() as nursery:
            for times in (2, 3):
                await nursery.start(answer, client, times)
            async with client.request_many("status", max_answers=5) as answers:
                assert sorted([each.payload async for each in answers]) == [b"0", b"0", b"1", b"1", b"2"]
            async with client.request_many("status", max_answers=1) as answers:
                assert [each.payload async for each in answers] == [b"0"]
            async with client.request_many("status", stall=0.2, timeout=60) as answers:
                assert len([each async for each in answers]) == 5
            async with client.request_many("status", timeout=0.2) as answers:
                assert len([each async for each in answers]) == 5
            nursery.cancel_scope.cancel()
        async with client.request_many("no.one") as answers:
            with pytest.raises(NoResponders):
                await anext(answers)


async def asked_for(peer: Peer) -> bytes:
    """Where the first request wants its answers."""
    await peer.welcome()
    while not isinstance(operation := await peer.next(), Publish):
        assert operation is not None
    return operation.reply


async def test_answers_that_find_no_room_are_told_of(server: NatsServer) -> None:
    told: list[Event] = []
    async with connect(server.url, max_messages=10, max_bytes=1000, on_event=told.append) as client:
        with client.subscribe("many") as asked, client.subscribe("large") as also_asked:
            await client.flush()
            async with client.request_many("many", stall=0.5) as answers:
                request = await asked.receive()
                for number in range(100):
                    request.respond(b"%d" % number)
                await client.flush()
                await client.flush()
                assert [int(answer.payload) async for answer in answers] == list(range(10))
            assert told == [AnswersDropped("many")]
            async with trio.open_nursery() as nursery:

                async def answer() -> None:
                    (await also_asked.receive()).respond(bytes(2000))

                nursery.start_soon(answer)
                assert (await client.request("large")).payload == bytes(2000)
            assert told == [AnswersDropped("many")]


async def test_a_status_is_the_last_of_many_answers() -> None:
    """It is handed on; but that nobody answers is an error, whenever it comes."""
    status = b"NATS/1.0 404 No Messages\r\n\r\n"

    async def story(peer: Peer) -> None:
        reply = await asked_for(peer)
        await peer.send(encoder.deliver(reply, b"1", b"x") + encoder.deliver(reply, b"1", b"", block=status))
        await peer.send(encoder.deliver(reply, b"1", b"behind it"))
        await peer.answer()

    async with serving(story) as port, connect(f"127.0.0.1:{port}") as client, client.request_many("a") as answers:
        first, last = [each async for each in answers]
        assert (first.payload, last.payload, last.status) == (b"x", b"", (404, "No Messages"))
    status = b"NATS/1.0 503\r\n\r\n"
    async with serving(story) as port, connect(f"127.0.0.1:{port}") as client, client.request_many("a") as answers:
        assert (await anext(answers)).payload == b"x"
        with pytest.raises(NoResponders):
            await anext(answers)


@pytest.mark.parametrize("stall", [None, 0.0, -1.0, 60.0])
async def test_answers_that_come_in_time_count_however_late_they_are_taken(
    mock_clock: MockClock, stall: float | None
) -> None:
    """A stall that is none, or longer than the whole, changes nothing."""
    is_taken = trio.Event()

    async def story(peer: Peer) -> None:
        reply = await asked_for(peer)
        await peer.send(encoder.deliver(reply, b"1", b"1"))
        await is_taken.wait()
        await peer.send(encoder.deliver(reply, b"1", b"2") + encoder.deliver(reply, b"1", b"3"))
        await peer.answer()

    async with (
        serving(story) as port,
        connect(f"127.0.0.1:{port}") as client,
        client.request_many("a", timeout=2, stall=stall) as answers,
    ):
        assert (await anext(answers)).payload == b"1"
        is_taken.set()
        assert (await anext(answers)).payload == b"2"
        await client.flush()
        mock_clock.jump(10)
        assert [each.payload async for each in answers] == [b"3"]


async def test_answers_that_nobody_wants_any_more(server: NatsServer) -> None:
    """A generator that is left to the garbage collector is an error of these tests."""
    async with connect(server.url) as client:
        with client.subscribe("status") as asked:
            async with client.request_many("status") as answers:
                request = await asked.receive()
                request.respond(b"1")
                request.respond(b"2")
                async for answer in answers:
                    assert answer.payload == b"1"
                    break
            del answers
            gc.collect()


async def test_so_many_and_no_more(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a") as some:
            some.unsubscribe(after=3)
            for number in range(5):
                await client.publish("a", b"%d" % number)
            assert [message.payload async for message in some] == [b"0", b"1", b"2"]
            with pytest.raises(trio.EndOfChannel):
                await some.receive()
        with client.subscribe("a") as some:
            await client.publish("a", b"1")
            await some.receive()
            await client.publish("a", b"2")
            await client.flush()
            some.unsubscribe(after=1)  # it has had more
            await client.publish("a", b"3")
            await client.flush()
            assert [message.payload async for message in some] == [b"2"]


async def test_draining_loses_nothing(server: NatsServer) -> None:
    async with connect(server.url) as client, connect(server.url) as other:
        with client.subscribe("a") as some:
            await client.flush()
            for _ in range(5000):
                await other.publish("a")
            await other.flush()
            await some.drain()
            assert len([message async for message in some]) == 5000
        with client.subscribe("a") as some:
            await client.publish("a")
            await client.drain()
            assert len([message async for message in some]) == 1
            with pytest.raises(ClientClosed):
                await client.publish("a")
            with pytest.raises(ClientClosed):
                client.subscribe("b")


async def test_a_connection_that_is_lost_while_it_is_drained() -> None:
    async def lose(peer: Peer) -> None:
        await peer.welcome()
        while await peer.next() is not PING:
            pass

    async def go_on(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    settings = {"reconnect_wait": 0.001, "on_event": Told()}
    async with serving(lose, go_on) as port, connect(f"127.0.0.1:{port}", **settings) as client:
        with client.subscribe("a") as one, client.subscribe("b") as two:
            await client.drain()
            assert (one.is_over, two.is_over) == (True, True)
            with pytest.raises(ClientClosed):
                client.publish_nowait("a")


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a..b", "a.*", ">"])
async def test_what_cannot_be_published_to(subject: str, server: NatsServer) -> None:
    async with connect(server.url) as client:
        with pytest.raises(BadSubject):
            await client.publish(subject)
        with pytest.raises(BadSubject):
            client.publish_nowait("a", reply=subject or "..")
        await client.flush()


async def test_what_is_a_payload(server: NatsServer) -> None:
    """Whatever has bytes, as many as it says; and nothing that would have to be encoded first."""
    wide = array("I", [1, 2, 3])
    async with connect(server.url) as client:
        with client.subscribe("a") as messages:
            await client.publish("a", b"first")  # the subject is known
            for given in (bytearray(b"x"), memoryview(b"y"), memoryview(wide), wide):
                await client.publish("a", given)  # type: ignore[arg-type]
                client.publish_nowait("a", given, headers={"a": "b"})  # type: ignore[arg-type]
            for wrong in ("text", 5, None, ["a"]):
                for publish in (client.publish, client.request, client.jetstream().publish):
                    with pytest.raises(TypeError, match=f"a payload is bytes, not {type(wrong).__name__}"):
                        await publish("a", wrong)  # type: ignore[arg-type]
            await client.flush()
            came = [message.payload for message in [await messages.receive() for _ in range(9)]]
        assert came == [b"first", b"x", b"x", b"y", b"y", *[wide.tobytes()] * 4]


async def test_what_is_too_large(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a") as some:
            await client.publish("a", bytes(1 << 20))
            assert len((await some.receive()).payload) == 1 << 20
        with pytest.raises(PayloadTooLarge, match="1048577 bytes with its headers, the server allows 1048576"):
            await client.publish("a", bytes((1 << 20) + 1))
        with pytest.raises(PayloadTooLarge):
            await client.publish("a", bytes(1 << 20), headers={"a": "b"})
        await client.flush()


async def test_what_nobody_takes_is_dropped_and_told(server: NatsServer) -> None:
    told = Told()
    async with connect(server.url, on_event=told) as client:
        with client.subscribe("a", max_messages=10) as few, client.subscribe("a", max_bytes=100) as small:
            for _ in range(3):
                for _ in range(25):
                    await client.publish("a", bytes(10))
                await client.flush()
                assert (len(few), len(small)) == (10, 10)
                while len(few):
                    await few.receive()
                while len(small):
                    await small.receive()
            assert few.dropped == small.dropped == 45
    assert sorted(str(event.subscription is few) for event in told.events if isinstance(event, SlowConsumer)) == (
        ["False"] * 3 + ["True"] * 3
    )


async def test_many_publications_are_bounded_in_memory(server: NatsServer) -> None:
    async with connect(server.url, max_pending=100_000) as client:
        with client.subscribe("a", max_messages=100_000) as some:
            for _ in range(20_000):
                await client.publish("a", bytes(100))
            await client.flush()
            assert len(some) == 20_000


async def test_an_error_in_the_block_comes_as_it_is(server: NatsServer) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with connect(server.url):
            raise KeyError("mine")
    with trio.move_on_after(0.05) as scope:
        async with connect(server.url):
            await trio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("url", ["http://x", "nats://", "nats://h:99999", "nats://u:secret@h/path", "nats://h?x=1"])
async def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        async with connect(url):
            pass
    assert "secret" not in str(caught.value)


async def test_what_cannot_be_subscribed_to(server: NatsServer) -> None:
    async with connect(server.url) as client:
        for subject in ("", "a b", "a..b", ">.a", "\ud800"):
            with pytest.raises(BadSubject):
                client.subscribe(subject)
        with pytest.raises(BadSubject, match="queue group"):
            client.subscribe("a", queue="x y")
        with client.subscribe("a", queue="x.y") as some:
            await client.publish("a")
            await some.receive()


async def test_nothing_is_kept_of_requests(server: NatsServer) -> None:
    async with connect(server.url, max_pending=1000) as client:
        with pytest.raises(NoResponders):
            await client.request("no.one")
        async with client.request_many("no.one") as answers:
            with pytest.raises(NoResponders):
                await anext(answers)
        for _ in range(30):
            client.publish_nowait("a", bytes(10))
        with pytest.raises(BufferFull):
            await client.request("no.one", bytes(900))
        assert not client._inbox._requests


async def test_what_just_fits(server: NatsServer) -> None:
    async with connect(server.url, max_pending=44) as client:
        client.publish_nowait("a", bytes(10))  # 22 bytes each
        client.publish_nowait("a", bytes(10))
        with pytest.raises(BufferFull):
            client.publish_nowait("a")


async def test_not_all_subjects_are_remembered(server: NatsServer) -> None:
    async with connect(server.url) as client:
        for number in range(3000):
            await client.publish(f"a.{number}")
        assert len(client._subjects) <= 1024
