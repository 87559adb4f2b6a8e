"""Many messages in a window of acknowledgements."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from tests.nats.client.jetstream.stub import StubClient, status
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import connect
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.client.jetstream.publishing import Publisher, PublishFailed, Receipt
from trunkline.nats.errors import (
    BufferFull,
    ClientClosed,
    ConnectionLost,
    NatsError,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    RequestTimeout,
)
from trunkline.nats.jetstream.configs import Storage, StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import ApiError, WrongLast
from trunkline.nats.protocol.operations import Deliver


def publishing(window: int = 3) -> tuple[Publisher, StubClient]:
    client = StubClient()
    return Publisher(client, "_INBOX.p", b"9", window, 5.0), client


def acked(client: StubClient, index: int, sequence: int = 1) -> Deliver:
    """The answer to what was published."""
    return answer(client, index, b'{"stream":"s", "seq":%d}' % sequence)


def answer(client: StubClient, index: int, payload: bytes) -> Deliver:
    return Deliver(client.published[index][2].encode(), b"9", b"", b"", payload)


async def test_acknowledgements() -> None:
    found, client = publishing()
    one = await found.publish("a", b"1", message_id="m")
    two = await found.publish("b", b"2")
    assert [(subject, payload) for subject, payload, _ in client.published] == [("a", b"1"), ("b", b"2")]
    found.put(acked(client, 1, 8))
    assert (one.is_settled, two.is_settled) == (False, True)
    found.put(acked(client, 0, 7))
    found.put(acked(client, 0, 7))  # once more
    found.put(Deliver(b"_INBOX.p.zz", b"9", b"", b"", b"x"))
    await found.finish()
    assert ((await one.ack()).sequence, (await two.ack()).sequence) == (7, 8)


async def test_an_acknowledgement_in_another_order() -> None:
    found, client = publishing()
    receipt = await found.publish("a")
    found.put(answer(client, 0, b'{"seq":7,"stream":"s"}'))
    assert receipt.is_settled
    with assert_checkpoints():  # many of them in a row leave others their turn
        assert (await receipt.ack()).sequence == 7


async def test_a_full_window_is_waited_for() -> None:
    found, client = publishing(window=2)
    async with trio.open_nursery() as nursery:

        async def publish() -> None:
            for number in range(5):
                await found.publish("a", b"%d" % number)

        nursery.start_soon(publish)
        await wait_all_tasks_blocked()
        assert len(client.published) == 2
        found.put(acked(client, 1))
        await wait_all_tasks_blocked()
        assert len(client.published) == 3
        for index in (0, 2):
            found.put(acked(client, index))
        await wait_all_tasks_blocked()
        assert len(client.published) == 5


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"}}', WrongLast),
        (b'{"stream":"s", "error":{"code":503,"err_code":10077,"description":"full"}}', ApiError),
        (b"nonsense", NatsError),
        (b"", NatsError),
    ],
)
async def test_a_refusal(payload: bytes, error: type[Exception]) -> None:
    """The receipt raises it; if nobody has asked, the end of the block does."""
    found, client = publishing()
    receipt = await found.publish("a", b"1")
    found.put(answer(client, 0, payload))
    with pytest.raises(error):
        await receipt.ack()
    await found.finish()
    found, client = publishing()
    await found.publish("a", b"1")
    await found.publish("b", b"2")
    found.put(answer(client, 0, payload))
    found.put(acked(client, 1))
    with pytest.raises(PublishFailed, match="1 messages were not taken, the first one at 'a'") as caught:
        await found.finish()
    assert isinstance(caught.value.receipts[0].error, error)


async def test_many_refusals() -> None:
    found, client = publishing(window=1000)
    for _ in range(105):
        await found.publish("a")
    for index in range(105):
        found.put(answer(client, index, b"no"))
    with pytest.raises(PublishFailed) as caught:
        await found.finish()
    assert (len(caught.value.receipts), caught.value.count) == (100, 105)


async def test_a_refusal_that_was_told_is_not_counted() -> None:
    found, client = publishing()
    told = await found.publish("a")
    await found.publish("b")
    for index in (0, 1):
        found.put(answer(client, index, b"no"))
    with pytest.raises(NatsError):
        await told.ack()
    with pytest.raises(PublishFailed, match="1 messages were not taken, the first one at 'b'"):
        await found.finish()


async def test_refusals_that_nobody_has_asked_for_beside_many_that_somebody_has() -> None:
    found, client = publishing(window=1000)
    receipts = [await found.publish("a") for _ in range(105)]
    for index in range(105):
        found.put(answer(client, index, b"no"))
    for receipt in [*receipts[:100], *receipts[:100], receipts[-1]]:
        with pytest.raises(BadReply):
            await receipt.ack()
    with pytest.raises(PublishFailed, match="4 messages were not taken") as caught:
        await found.finish()
    assert (caught.value.receipts, caught.value.count) == ([], 4)


async def test_what_cannot_be_published_again_fails_alone(autojump_clock: MockClock) -> None:
    """The server of the new connection takes less."""
    found, client = publishing()
    large, small = await found.publish("a", b"1", message_id="1"), await found.publish("b", b"2")
    list(found.again())
    client.failure = PayloadTooLarge("a message of 1 bytes, the server allows 0")
    with pytest.raises(ConnectionLost):
        await small.ack()
    with pytest.raises(PayloadTooLarge):
        await large.ack()
    await found.finish()


async def test_all_who_wait_are_told_what_cannot_be_published_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, client = publishing()
    receipt = await found.publish("a", b"1", message_id="1")
    list(found.again())

    async def post(data: bytes) -> None:
        await trio.sleep(1)
        raise PayloadTooLarge("it is")

    monkeypatch.setattr(client, "post", post)

    async def wait() -> None:
        with pytest.raises(PayloadTooLarge):
            await receipt.ack()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
    assert trio.current_time() == 1


async def test_what_is_denied(autojump_clock: MockClock) -> None:
    """A subject, all of whose messages fail, or the answers, and with them everything."""
    found, client = publishing()
    one, other, two = await found.publish("a"), await found.publish("b"), await found.publish("a")

    async def wait(receipt: Receipt) -> None:
        with pytest.raises(PermissionDenied):
            await receipt.ack()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, one)
        nursery.start_soon(wait, two)
        await wait_all_tasks_blocked()
        for text in (
            'Publish to "c"',
            'Subscription to "a"',
            'Subscription to "_INBOX.o.*"',
            'Publish to "_INBOX.p.*"',
        ):
            found.denied(PermissionDenied(f"Permissions Violation for {text}"))
        assert (one.is_settled, other.is_settled, found.is_over) == (False, False, False)
        found.denied(PermissionDenied('Permissions Violation for Publish to "a"'))
    assert trio.current_time() == 0
    assert (other.is_settled, found.is_over) == (False, False)
    found.put(acked(client, 0))  # behind that
    assert one.error is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, other)
        await wait_all_tasks_blocked()
        found.denied(PermissionDenied('Permissions Violation for Subscription to "_INBOX.p.*"'))
    assert trio.current_time() == 0
    assert found.is_over
    with pytest.raises(PermissionDenied):
        await found.publish("b")
    await found.finish()


async def test_an_answer_that_comes_while_it_is_published_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, client = publishing()
    await found.publish("a", b"1", message_id="1")
    list(found.again())

    async def post(data: bytes) -> None:
        client.send(data, is_last=False)
        found.put(acked(client, -1))

    monkeypatch.setattr(client, "post", post)
    with trio.fail_after(60):
        await found.finish()


async def test_nobody_answers(autojump_clock: MockClock) -> None:
    """A stream may be changing its leader: it is tried again, and given up after a while."""
    found, client = publishing()
    receipt = await found.publish("a", b"1")
    async with trio.open_nursery() as nursery:

        async def refuse() -> None:
            for index in range(3):
                await trio.sleep(1)
                assert len(client.published) == index + 1
                found.put(status(503, subject=client.published[index][2].encode()))

        nursery.start_soon(refuse)
        with pytest.raises(NoResponders):
            await receipt.ack()
    assert [payload for _, payload, _ in client.published] == [b"1"] * (3)
    assert len({reply for _, _, reply in client.published}) == 3
    await found.finish()


async def test_what_is_tried_again_may_succeed(autojump_clock: MockClock) -> None:
    found, client = publishing(window=1)
    receipt = await found.publish("a", b"1")
    found.put(status(503, subject=client.published[0][2].encode()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.publish, "a", b"2")  # the window is full as before
        await trio.sleep(0.2)
        assert len(client.published) == 1
        await trio.sleep(0.1)
        assert len(client.published) == 2
        found.put(acked(client, 1, 5))
        await wait_all_tasks_blocked()
        assert [payload for _, payload, _ in client.published] == [b"1", b"1", b"2"]
        assert (await receipt.ack()).sequence == 5


async def test_silence(autojump_clock: MockClock) -> None:
    found, client = publishing()
    receipt = await found.publish("a")
    await trio.sleep(1)
    late = await found.publish("a")
    with pytest.raises(RequestTimeout, match="within 5 s"):
        await receipt.ack()
    assert trio.current_time() == 5
    found.put(acked(client, 0))  # behind its time
    with pytest.raises(RequestTimeout):
        await late.ack()
    assert trio.current_time() == 6
    await found.finish()


async def test_another_connection() -> None:
    """What has a message id is published again. Of the rest nobody knows, unless it was not sent yet."""
    found, client = publishing(window=9)
    safe = await found.publish("a", b"safe", message_id="m")
    unsafe = await found.publish("a", b"unsafe")
    client.is_connected = False
    later = await found.publish("a", b"later")
    client.is_connected = True
    assert list(found.again()) == [b"SUB _INBOX.p.* 9\r\n"]
    with pytest.raises(ConnectionLost):
        await unsafe.ack()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.finish)
        await wait_all_tasks_blocked()
        assert [payload for _, payload, _ in client.published] == [b"safe", b"unsafe", b"later", b"safe"]
        found.put(acked(client, 2, 2))
        found.put(acked(client, 3, 1))
    assert ((await safe.ack()).sequence, (await later.ack()).sequence) == (1, 2)


async def test_what_is_tried_again_waits_for_a_connection() -> None:
    """And takes no time meanwhile."""
    found, client = publishing()
    await found.publish("a", b"1", message_id="m")
    list(found.again())
    client.is_connected = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.finish)
        with trio.fail_after(60):
            await wait_all_tasks_blocked()
        assert len(client.published) == 1
        client.is_connected = True
        assert list(found.again()) == [b"SUB _INBOX.p.* 9\r\n"]
        await wait_all_tasks_blocked()
        assert len(client.published) == 2
        found.put(acked(client, 1))


async def test_a_lost_connection_is_told_at_once() -> None:
    """Also where the message had waited for that connection."""
    found, client = publishing()
    client.is_connected = False
    receipt = await found.publish("a")
    client.is_connected = True
    list(found.again())
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(ConnectionLost):
                await receipt.ack()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not receipt.is_settled
        list(found.again())
        await wait_all_tasks_blocked()
        assert nursery.child_tasks == frozenset()


@pytest.mark.parametrize(("failure", "error"), [(None, ConnectionLost), (ClientClosed("why"), ClientClosed)])
async def test_the_end_of_the_client(failure: NatsError | None, error: type[NatsError]) -> None:
    found, client = publishing()
    one = await found.publish("a")
    two = await found.publish("a")
    found.put(status(503, subject=client.published[1][2].encode()))
    found.end(failure)
    for receipt in (one, two):
        with pytest.raises(error):
            await receipt.ack()
    await found.finish()


async def test_the_end_is_told_at_once(autojump_clock: MockClock) -> None:
    found, _ = publishing()
    receipt = await found.publish("a")

    async def wait() -> None:
        with pytest.raises(ClientClosed):
            await receipt.ack()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        found.end(ClientClosed("why"))
    assert trio.current_time() == 0


async def test_what_cannot_be_published_is_not_waited_for() -> None:
    found, client = publishing()
    client.failure = BufferFull("full")
    with pytest.raises(BufferFull):
        await found.publish("a")
    await found.finish()


# With servers


@asynccontextmanager
async def stream(server: NatsServer) -> AsyncGenerator[JetStream]:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="window", storage=Storage.MEMORY, subjects=("window.>",)))
        try:
            yield js
        finally:
            await js.delete_stream("window")


async def test_many_messages(server: NatsServer) -> None:
    async with stream(server) as js:
        async with js.publisher(window=50) as found:
            receipts = [await found.publish("window.a", b"%d" % number) for number in range(500)]
        assert [(await each.ack()).sequence for each in receipts] == list(range(1, 501))
        assert (await js.stream("window")).state.messages == 500


async def test_behind_its_block_nothing_is_published(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("mute"):
            with pytest.raises(KeyError):  # noqa: PT012 - how a block ends is the matter
                async with client.jetstream().publisher() as publisher:
                    receipt = await publisher.publish("mute")
                    raise KeyError
            for waits in (receipt.ack, lambda: publisher.publish("mute")):
                with pytest.raises(NatsError, match="the block of the publisher has ended"):
                    await waits()


async def test_failures_of_servers(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.publishing.RETRY_WAIT", 0.01)
    async with stream(server) as js:
        again: list[Receipt] = []

        async def publish() -> None:
            async with js.publisher() as found:
                await found.publish("window.a", message_id="m")
                again.append(await found.publish("window.a", message_id="m"))
                await found.publish("window.a", expected_last_sequence=7)
                await found.publish("nobody")

        with pytest.raises(PublishFailed, match="2 messages .* at 'window.a': wrong last sequence: 1"):
            await publish()
        assert (await again[0].ack()).duplicate
        with pytest.raises(ValueError, match="window: 0"):
            async with js.publisher(window=0):
                pass

        async def fail() -> None:
            async with js.publisher() as found:
                await found.publish("nobody")
                raise KeyError

        with pytest.raises(KeyError):
            await fail()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_killed(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each message is in the stream once, in spite of what was lost on the way: all have ids."""
    folder = tmp_path_factory.mktemp("killed")
    with running(kind, folder, "-js", "-sd", str(folder / "js")) as server:
        async with connect(server.url, reconnect_wait=0.01, on_event=lambda _: None) as client:
            js = client.jetstream(timeout=30.0)
            await js.create_stream(StreamConfig(name="window", subjects=("window.>",)))
            async with js.publisher(window=100) as found:
                for number in range(1000):
                    await found.publish("window.a", b"%d" % number, message_id=f"m{number}")
                    if number == 500:
                        server.kill()
                        await trio.to_thread.run_sync(server.start)
            state = (await js.stream("window")).state
            assert state.messages == 1000
            seen = {json.loads((await js.get("window", number)).payload) for number in range(1, 1001, 97)}
            assert len(seen) == len(range(1, 1001, 97))
