# ruff: noqa: PT012 - how a block ends is the matter here
"""Fast batches: what servers do and lose, and real servers."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.nats.client.jetstream.relay import Relay, relayed
from tests.nats.client.jetstream.stub import StubClient, status
from tests.nats.servers import BROKER, NatsServer, running
from trunkline.nats import connect
from trunkline.nats.client.jetstream import FastBatchFailed, JetStream, Missed, NotSupported
from trunkline.nats.client.jetstream.fast_batch import FastBatch
from trunkline.nats.errors import (
    BadSubject,
    BufferFull,
    ClientClosed,
    ConnectionLost,
    NatsError,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
)
from trunkline.nats.jetstream.configs import Discard, Storage, StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.flows import knows_fast_batches
from trunkline.nats.jetstream.replies import ApiError, WrongLast
from trunkline.nats.protocol.operations import Deliver

#: Seconds for what should come.
SOON = 60
UNKNOWN = b'{"error":{"code":400,"err_code":10208,"description":"batch publish ID unknown"},"stream":"s","seq":0}'
NOT_ALLOWED = b'{"error":{"code":400,"err_code":10205,"description":"batch publish is disabled"},"stream":"s","seq":0}'
TOO_LARGE = b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds"},"stream":"s","seq":0}'


class Scene:
    """A batch, and a server that answers what a test says."""

    def __init__(self, *, gaps: bool = False, every: int = 10) -> None:
        self.client = StubClient()
        self.batch = FastBatch(self.client, "_INBOX.b", b"9", every, 5.0, gaps=gaps)

    @property
    def said(self) -> list[str]:
        """What the client has published: number and step of each, where they follow in the reply subject."""
        return [reply.removeprefix("_INBOX.b.").removesuffix(".$FI") for _, _, reply in self.client.published]

    def answer(self, payload: bytes, number: int = 0, step: int = 1) -> None:
        self.batch.put(Deliver(b"_INBOX.b.10.ok.%d.%d.$FI" % (number, step), b"9", b"", b"", payload))

    def ack(self, sequence: int, every: int = 10) -> None:
        self.answer(b'{"type":"ack","seq":%d,"msgs":%d}' % (sequence, every))

    def gap(self, expected: int, sequence: int) -> None:
        self.answer(b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, sequence))

    def refusal(self, sequence: int) -> None:
        error = b'{"code":400,"err_code":10071,"description":"wrong last sequence: 3"}'
        self.answer(b'{"type":"err","seq":%d,"error":%b}' % (sequence, error))

    def done(self, count: int, batch: bytes = b"b") -> None:
        self.answer(b'{"stream":"s","seq":%d,"batch":"%b","count":%d}' % (count + 100, batch, count))

    async def publish(self, count: int) -> None:
        for _ in range(count):
            await self.batch.publish("a", b"x")

    async def started(self, count: int) -> None:
        """So many messages are published."""
        await self.publish(1)
        self.ack(0)
        await self.publish(count - 1)

    async def fails(self) -> FastBatchFailed:
        with trio.fail_after(SOON), pytest.raises(FastBatchFailed) as caught:
            await self.batch.finish()
        return caught.value


async def finish(scene: Scene, count: int) -> None:
    """The end, which the server acknowledges."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.batch.finish)
        await wait_all_tasks_blocked()
        scene.done(count)


async def test_a_batch() -> None:
    scene = Scene()
    assert [await scene.batch.publish("a", b"1")] == [1]
    scene.ack(0)
    assert [await scene.batch.publish(f"a.{number}") for number in (2, 3)] == [2, 3]
    await finish(scene, 3)
    assert scene.said == ["10.fail.1.0", "10.fail.2.1", "10.fail.3.1", "10.fail.4.3"]
    assert scene.client.at_once == [True, False, False, True]
    assert [(subject, payload) for subject, payload, _ in scene.client.published[-2:]] == [("a.3", b"")] * 2
    assert scene.batch.ack is not None
    assert (scene.batch.ack.sequence, scene.batch.stored, scene.batch.missed) == (103, 3, 0)
    for _ in range(2):
        with pytest.raises(NatsError, match="the batch has ended"):
            await scene.batch.publish("a")
        await scene.batch.finish()
    scene.answer(UNKNOWN)  # nobody asks any more
    assert len(scene.said) == 4


async def test_nothing() -> None:
    scene = Scene(gaps=True)
    await scene.batch.finish()
    scene.batch.abandon()
    assert (scene.said, scene.batch.ack) == ([], None)


async def test_a_block_that_ends_early_tells_the_server() -> None:
    scene = Scene()
    await scene.started(2)
    scene.batch.abandon()
    assert scene.said[-1] == "10.fail.3.3"
    scene.batch.abandon()
    assert len(scene.said) == 3


async def test_an_answer_to_nothing_ends_no_batch_with_gaps() -> None:
    scene = Scene(gaps=True)
    await scene.started(2)
    scene.batch.put(Deliver(b"_INBOX.b.odd", b"9", b"", b"", TOO_LARGE))
    await finish(scene, 2)
    assert scene.batch.stored == 2


class Steps(trio.abc.Instrument):
    """Counts how often a task goes on."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.count = 0
        self._task = task

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self._task


async def test_others_have_their_turn_while_nothing_is_waited_for() -> None:
    """After each 64 publications."""
    scene = Scene(every=100)
    await scene.publish(1)
    scene.ack(0, 100)
    steps = Steps(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    for count, turns in ((62, 0), (1, 1), (63, 1), (1, 2), (63, 2), (1, 3)):
        await scene.publish(count)
        assert steps.count == turns
    trio.lowlevel.remove_instrument(steps)


async def test_the_server_says_how_fast_it_may_be() -> None:
    """The first message finds out whether there can be others, and no more than two acknowledgements are missing."""
    scene = Scene(every=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.publish, 100)
        for sequence, every, most in (
            (None, 0, 1),
            (0, 1, 2),
            (1, 2, 5),
            (5, 0, 7),
            (5, 3, 11),
            (3, 3, 11),  # an old one
            (10, 5000, 30),  # more than the client asks for
            (400, 10, 50),  # of messages that are not published
        ):
            if sequence is not None:
                scene.ack(sequence, every)
            await wait_all_tasks_blocked()
            assert scene.batch.published == most
            assert sequence != 3 or scene.batch.stored == 5
            # what is waited for leaves at once
            assert scene.client.at_once[-1]
        scene.ack(50)
        await wait_all_tasks_blocked()
        scene.ack(70)
        await wait_all_tasks_blocked()
        scene.ack(90)
    await finish(scene, 100)


async def test_cancelled_while_it_waits() -> None:
    """Nothing is published, and the batch goes on."""
    scene = Scene()
    await scene.publish(1)
    with trio.move_on_after(0) as scope:
        await scene.batch.publish("a", b"not this")
    assert scope.cancelled_caught
    scene.ack(0)
    client = scene.client
    client.failure = BufferFull("full")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.publish, 1)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    client.failure = None
    with trio.move_on_after(0):
        await scene.publish(1000)  # other tasks have their turn
    count = scene.batch.published
    assert 1 < count <= 20
    assert [int(each.split(".")[2]) for each in scene.said] == list(range(1, count + 1))
    assert b"not this" not in [payload for _, payload, _ in client.published]


async def test_a_full_buffer_is_waited_for() -> None:
    """By several tasks, whose messages have their numbers in the order in which they leave."""
    scene = Scene()
    await scene.started(1)
    scene.client.failure = BufferFull("full")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(scene.publish, 2)
        await wait_all_tasks_blocked()
        assert scene.batch.published == 1
        scene.client.failure = None
        scene.client.has_room.set()
    assert [int(each.split(".")[2]) for each in scene.said] == list(range(1, 12))


async def test_an_end_that_finds_no_room_is_told_later() -> None:
    scene = Scene()
    await scene.started(2)
    scene.client.failure = BufferFull("full")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.batch.finish)
        await wait_all_tasks_blocked()
        assert len(scene.said) == 2
        scene.client.failure = None
        scene.client.has_room.set()
        await wait_all_tasks_blocked()
        assert scene.said[2:] == ["10.fail.3.3"]
        scene.done(2)


@pytest.mark.parametrize("is_gap", [True, False])
async def test_what_ends_a_batch_without_gaps(is_gap: bool) -> None:
    """The server tells how far it has come, before or when it is asked."""
    scene = Scene()
    await scene.started(9)
    if is_gap:
        scene.gap(5, 8)
    else:
        scene.refusal(5)
    assert scene.said[9:] == ["10.fail.10.3"]
    async with trio.open_nursery() as nursery:

        async def publish() -> None:
            with pytest.raises(FastBatchFailed):
                await scene.publish(1)

        nursery.start_soon(publish)
        await wait_all_tasks_blocked()
        scene.done(4)
        scene.answer(UNKNOWN, 9)
        scene.answer(UNKNOWN, 10, 3)
    failed = await scene.fails()
    assert (failed.stored, failed.published, failed.is_certain) == (4, 9, True)
    assert failed.__cause__ is failed.reason
    if is_gap:
        assert isinstance(failed.reason, Missed)
        assert (failed.reason.first, failed.reason.last, failed.reason.reason) == (5, 7, None)
        said = "messages 5 to 7 are not in the stream: lost on the way"
    else:
        assert isinstance(failed.reason, WrongLast)
        said = "wrong last sequence: 3"
    assert str(failed).startswith(said)
    assert str(failed).endswith("of 9 messages the first 4 are stored, the others are not")
    assert scene.batch.ack is None
    assert (scene.batch.missed, scene.batch.misses) == (0, [])
    assert len(scene.said) == 10


async def test_a_message_that_is_refused_before_it_is_in_the_batch() -> None:
    """A gap says later that it is missing."""
    scene = Scene()
    await scene.started(3)
    scene.answer(TOO_LARGE, 2)
    scene.gap(2, 3)
    scene.done(1)
    assert scene.batch.is_over
    failed = await scene.fails()
    assert isinstance(failed.reason, ApiError)
    assert (failed.reason.err_code, failed.stored, failed.is_certain) == (10054, 1, True)
    scene = Scene(gaps=True)
    await scene.started(6)
    scene.answer(TOO_LARGE, 2)
    scene.gap(2, 3)
    scene.gap(4, 6)
    scene.refusal(6)
    scene.answer(b"", 6)
    await finish(scene, 6)
    found = [(each.first, each.last, type(each.reason)) for each in scene.batch.misses]
    assert found == [(2, 2, ApiError), (4, 5, type(None)), (6, 6, WrongLast)]
    assert (scene.batch.missed, scene.batch.stored, scene.batch.may_miss_more) == (4, 6, False)


async def test_many_gaps() -> None:
    scene = Scene(gaps=True)
    await scene.started(2)
    for _ in range(105):
        scene.gap(1, 3)
    assert (len(scene.batch.misses), scene.batch.missed) == (100, 210)
    assert {each.reason for each in scene.batch.misses} == {None}


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_gap_that_is_none(gaps: bool) -> None:
    scene = Scene(gaps=gaps)
    await scene.started(6)
    scene.gap(6, 6)
    assert scene.said[6:] == [f"10.{'ok' if gaps else 'fail'}.7.3"]
    scene.answer(UNKNOWN, 7, 3)
    failed = await scene.fails()
    assert str(failed.reason) == "message 6 came where the server expected 6"
    assert scene.batch.missed == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_an_end_that_is_not_what_was_asked_for(count: int) -> None:
    """Before it is asked for, or behind less than all."""
    scene = Scene()
    await scene.started(2)
    if count == 2:
        scene.done(2)
        failed = await scene.fails()
    else:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.fails)
            await wait_all_tasks_blocked()
            scene.done(1)
        failed = await scene.fails()
    assert str(failed.reason) == "the server has ended the batch"
    assert (failed.stored, scene.batch.ack) == (count, None)


async def test_whoever_waits_is_told_of_the_end_at_once(autojump_clock: MockClock) -> None:
    for act in (
        lambda scene: scene.batch.end(),
        lambda scene: scene.batch.denied(PermissionDenied('Permissions Violation for Publish to "a"')),
        lambda scene: scene.batch.abandon(),
    ):
        scene = Scene()
        await scene.publish(1)
        async with trio.open_nursery() as nursery:

            async def publish(scene: Scene) -> None:
                with pytest.raises(FastBatchFailed):
                    await scene.publish(1)

            nursery.start_soon(publish, scene)
            await wait_all_tasks_blocked()
            act(scene)
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("payload", "reason", "is_certain"),
    [(NOT_ALLOWED, ApiError, True), (b"rubbish", BadReply, False), (b'{"stream":"s","seq":1}', NotSupported, False)],
)
@pytest.mark.parametrize("gaps", [True, False])
async def test_a_beginning_that_is_refused(
    payload: bytes, reason: type[NatsError], is_certain: bool, gaps: bool
) -> None:
    """Of a stream without the setting; of a server that has something else there; of an older one in a cluster."""
    scene = Scene(gaps=gaps)
    await scene.publish(1)
    scene.answer(payload, 1, 0)
    with pytest.raises(FastBatchFailed):
        await scene.publish(1)
    failed = await scene.fails()
    assert isinstance(failed.reason, reason)
    assert (failed.stored, failed.published, failed.is_certain) == (0, 1, is_certain)
    assert len(scene.said) == 1


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_subject_of_no_stream(gaps: bool) -> None:
    scene = Scene(gaps=gaps)
    await scene.publish(1)
    scene.batch.put(status(503, subject=b"_INBOX.b.10.ok.1.0.$FI"))
    failed = await scene.fails()
    assert isinstance(failed.reason, NoResponders)
    assert (failed.reason.subject, failed.is_certain) == ("a", True)


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_server_that_does_not_know_the_batch_any_more(gaps: bool) -> None:
    scene = Scene(gaps=gaps)
    await scene.started(20)
    scene.ack(10)
    scene.answer(UNKNOWN, 15)
    failed = await scene.fails()
    assert (failed.stored, failed.published, failed.is_certain) == (10, 20, False)
    assert "the first 10 are stored, of the others nobody knows" in str(failed)
    assert len(scene.said) == 20


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_server_that_ends_the_batch(gaps: bool) -> None:
    for act in (lambda scene: scene.done(5), lambda scene: (scene.gap(4, 3), scene.done(5))):
        scene = Scene(gaps=gaps)
        await scene.started(9)
        act(scene)
        failed = await scene.fails()
        assert (failed.stored, failed.is_certain) == (5, not gaps)
        assert "the server" in str(failed.reason)


async def test_a_stall(autojump_clock: MockClock) -> None:
    """A lost acknowledgement is asked for, and a server that does not answer is given up."""
    scene = Scene()
    await scene.started(20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.publish, 1)
        await trio.sleep(2)
        assert len(scene.said) == 20
        await trio.sleep(1)
        assert scene.said[20:] == ["10.fail.20.4"]
        scene.ack(20)
    assert scene.said[21:] == ["10.fail.21.1"]
    with pytest.raises(FastBatchFailed) as caught:
        await scene.publish(20)
    assert trio.current_time() == 3 + 5
    assert isinstance(caught.value.reason, RequestTimeout)
    assert (caught.value.stored, caught.value.published, caught.value.is_certain) == (20, 40, False)
    assert scene.said[-1] == "10.fail.40.4"
    scene.done(40)  # behind its time
    assert not (await scene.fails()).is_certain


async def test_a_slow_server_that_answers_is_asked_again(autojump_clock: MockClock) -> None:
    scene = Scene()
    await scene.started(20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.publish, 1)
        for times in (1, 2, 3):
            await trio.sleep(2.6)
            assert scene.said[20:] == ["10.fail.20.4"] * times
            scene.ack(0)
        scene.ack(20)
    assert scene.batch.published == 21


async def test_an_end_that_is_not_answered(autojump_clock: MockClock) -> None:
    scene = Scene()
    await scene.started(2)
    failed = await scene.fails()
    assert (trio.current_time(), type(failed.reason), scene.said[2:]) == (5, RequestTimeout, ["10.fail.3.3"] * 2)


async def test_no_connection(autojump_clock: MockClock) -> None:
    scene = Scene()
    await scene.started(2)
    scene.client.is_connected = False
    failed = await scene.fails()
    assert isinstance(failed.reason, ConnectionLost)


async def test_another_connection() -> None:
    """As soon as somebody waits, the server is asked how far it is: behind what waited for the connection."""
    scene = Scene()
    assert list(scene.batch.again()) == [b"SUB _INBOX.b.> 9\r\n"]
    await scene.started(19)
    assert list(scene.batch.again()) == [b"SUB _INBOX.b.> 9\r\n"]
    assert scene.batch.may_miss_more
    assert len(scene.said) == 19
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.publish, 2)
        await wait_all_tasks_blocked()
        assert scene.said[19:] == ["10.fail.20.1", "10.fail.20.4"]
        scene.ack(10)
        await wait_all_tasks_blocked()
        nursery.start_soon(scene.batch.finish)
        await wait_all_tasks_blocked()
        assert scene.said[21:] == ["10.fail.21.1", "10.fail.22.3"]
        list(scene.batch.again())
        await wait_all_tasks_blocked()
        assert scene.said[23:] == ["10.fail.22.3"]
        scene.done(21)


@pytest.mark.parametrize(("failure", "error"), [(None, ConnectionLost), (ClientClosed("why"), ClientClosed)])
async def test_the_end_of_the_client(failure: NatsError | None, error: type[NatsError]) -> None:
    scene = Scene()
    await scene.started(3)
    scene.ack(2)
    scene.batch.end(failure)
    failed = await scene.fails()
    assert isinstance(failed.reason, error)
    assert (failed.stored, failed.is_certain) == (2, False)
    scene = Scene()
    await scene.started(3)
    scene.client.failure = ClientClosed("why")
    assert isinstance((await scene.fails()).reason, ClientClosed)


async def test_what_is_denied() -> None:
    for gaps, count, text, is_over in (
        (False, 0, 'Permissions Violation for Publish to "a"', False),
        (False, 1, 'Permissions Violation for Publish to "a"', True),
        (True, 1, 'Permissions Violation for Publish to "a"', True),
        (False, 2, 'Permissions Violation for Publish to "a"', True),
        (True, 2, 'Permissions Violation for Publish to "a"', False),  # a gap will tell
        (False, 2, 'Permissions Violation for Publish to "b"', False),
        (True, 2, 'Permissions Violation for Subscription to "_INBOX.b.>"', True),
        (False, 2, 'Permissions Violation for Subscription to "_INBOX.c.>"', False),
    ):
        scene = Scene(gaps=gaps)
        if count:
            await scene.started(count)
        scene.batch.denied(PermissionDenied(text))
        assert scene.batch.is_over is is_over, text
        if is_over:
            assert isinstance((await scene.fails()).reason, PermissionDenied)


# With servers


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    """One that knows them."""
    folder = tmp_path_factory.mktemp("new")
    with running("new", folder, "-js", "-sd", str(folder / "js")) as one:
        yield one


@asynccontextmanager
async def stream(url: str, **settings: Any) -> AsyncGenerator[JetStream]:
    async with connect(url, on_event=lambda _: None, reconnect_wait=0.01) as client:
        js = client.jetstream(timeout=SOON)
        config = {"storage": Storage.MEMORY, "allow_batched": True} | settings
        await js.create_stream(StreamConfig(name="fast", subjects=("fast.>",), **config))
        try:
            yield js
        finally:
            await js.delete_stream("fast")


async def count_in(js: JetStream) -> int:
    return (await js.stream("fast")).state.messages


async def test_a_server_that_knows_none(server: NatsServer) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        if knows_fast_batches(client.server):
            await js.create_stream(StreamConfig(name="slow", subjects=("slow",), storage=Storage.MEMORY))
            with pytest.raises(FastBatchFailed, match=r"batch publish .*disabled.*no message is stored"):
                async with js.fast_batch() as batch:
                    await batch.publish("slow")
            assert (await js.stream("slow")).state.messages == 0
            await js.delete_stream("slow")
            return
        with pytest.raises(NotSupported, match="a fast batch: this server, .*, does not know allow_batched"):
            async with js.fast_batch():
                pass
        kind, said = (ApiError, "not offered") if server.kind == BROKER else (NotSupported, "allow_batched")
        with pytest.raises(kind, match=said):
            await js.create_stream(StreamConfig(name="fast", subjects=("fast",), allow_batched=True))


@pytest.mark.parametrize("gaps", [True, False])
async def test_many_messages(gaps: bool, new: NatsServer) -> None:
    async with stream(new.url) as js:
        async with js.fast_batch(gaps=gaps, every=50) as batch:
            for number in range(1, 5001):
                assert await batch.publish(f"fast.{number % 7}", b"%d" % number, headers={"A": "b"}) == number
        assert batch.ack is not None
        assert (batch.ack.stream, batch.ack.sequence, batch.ack.count) == ("fast", 5000, 5000)
        assert (batch.stored, batch.missed, await count_in(js)) == (5000, 0, 5000)
        found = await js.get("fast", 4321)
        assert (found.payload, found.headers["A"]) == (b"4321", "b")
        async with js.fast_batch(gaps=gaps) as batch:
            for _ in range(2):
                await batch.publish("fast.a", message_id="once")
        assert await count_in(js) == 5001
        for every in (0, 65_536):
            with pytest.raises(ValueError, match=f"every: {every}; accepted is 1 to 65535"):
                async with js.fast_batch(every=every):
                    pass
        for every in (1, 65_535):
            async with js.fast_batch(every=every) as batch:
                for _ in range(3):
                    await batch.publish("fast.a")
        assert not any(isinstance(each, FastBatch) for each in js.client.receivers.by_id.values())


async def test_several_tasks_share_a_batch(new: NatsServer) -> None:
    async with stream(new.url) as js, js.fast_batch(every=5) as batch, trio.open_nursery() as nursery:

        async def publish() -> None:
            for _ in range(200):
                await batch.publish("fast.a")

        for _ in range(5):
            nursery.start_soon(publish)


async def test_a_block_that_raises(new: NatsServer) -> None:
    """What was published stays, the server's place is free again, and nothing more can be published."""
    async with stream(new.url) as js:
        for _ in range(60):  # more than a stream may have open
            with pytest.raises(KeyError):
                async with js.fast_batch() as batch:
                    await batch.publish("fast.a")
                    await batch.publish("fast.a")
                    raise KeyError
            with pytest.raises(FastBatchFailed, match="the block of the batch has ended"):
                await batch.publish("fast.a")
        with trio.fail_after(SOON):
            while await count_in(js) < 120:  # nobody has waited for the last ones
                pass


async def test_messages_that_cannot_be_published(new: NatsServer) -> None:
    async with stream(new.url) as js:
        async with js.fast_batch() as batch:
            for subject in ("fast.*", "fast.a", "fast..b", "fast.b"):
                try:
                    await batch.publish(subject)
                except BadSubject:
                    assert subject in {"fast.*", "fast..b"}
        assert batch.published == await count_in(js) == 2


@pytest.mark.parametrize("gaps", [True, False])
async def test_messages_that_the_stream_refuses(gaps: bool, new: NatsServer) -> None:
    async with stream(new.url, max_message_size=10) as js:

        async def publish(refused: str) -> FastBatch:
            async with js.fast_batch(gaps=gaps) as batch:
                for number in range(1, 101):
                    last = 7 if number == 50 and refused == "expectation" else None
                    payload = bytes(11 if number == 50 and refused == "size" else 1)
                    await batch.publish("fast.a", payload, expected_last_sequence=last)
            return batch

        for refused in ("expectation", "size"):
            await js.purge_stream("fast")
            if gaps:
                batch = await publish(refused)
                assert [(each.first, each.last) for each in batch.misses] == [(50, 50)]
                assert isinstance(batch.misses[0].reason, ApiError)
                assert await count_in(js) == 99
            else:
                with pytest.raises(FastBatchFailed) as caught:
                    await publish(refused)
                assert isinstance(caught.value.reason, ApiError)
                assert (caught.value.stored, caught.value.is_certain, await count_in(js)) == (49, True, 49)


async def test_a_stream_that_is_full(new: NatsServer) -> None:
    async with stream(new.url, max_messages=5, discard=Discard.NEW) as js:
        with pytest.raises(FastBatchFailed, match="maximum messages exceeded") as caught:
            async with js.fast_batch() as batch:
                for _ in range(100):
                    await batch.publish("fast.a")
        assert (caught.value.stored, caught.value.is_certain) == (5, True)


async def test_a_first_message_that_is_refused(new: NatsServer) -> None:
    async with stream(new.url) as js:
        with pytest.raises(FastBatchFailed, match="wrong last sequence") as caught:
            async with js.fast_batch() as batch:
                await batch.publish("fast.a", expected_last_sequence=7)
                for _ in range(20):
                    await batch.publish("fast.a")
        assert (caught.value.stored, caught.value.is_certain, await count_in(js)) == (0, True, 0)


@asynccontextmanager
async def line(new: NatsServer) -> AsyncGenerator[tuple[JetStream, Relay]]:
    """The stream, behind a line."""
    async with relayed(new.port) as relay, stream(f"127.0.0.1:{relay.port}") as js:
        yield js, relay


async def answered(js: JetStream) -> None:
    """Once more there is a server, or there is one still."""
    with trio.fail_after(SOON):
        while True:
            try:
                await js.client.flush()
            except ConnectionLost:
                continue
            return


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_line_that_breaks_and_loses_nothing(gaps: bool, new: NatsServer) -> None:
    async with line(new) as (js, relay):
        async with js.fast_batch(gaps=gaps) as batch:
            for number in range(1, 2001):
                await batch.publish("fast.a")
                if number % 500 == 0:
                    await js.client.flush()
                    relay.cut()
                    await answered(js)
        assert (batch.stored, batch.missed, batch.may_miss_more) == (2000, 0, True)
        assert await count_in(js) == 2000


@pytest.mark.parametrize("gaps", [True, False])
async def test_a_line_that_loses_messages(gaps: bool, new: NatsServer) -> None:
    async with line(new) as (js, relay):

        async def publish() -> FastBatch:
            async with js.fast_batch(gaps=gaps) as batch:
                for number in range(1, 301):
                    if number == 251:
                        await js.client.flush()
                        relay.loses_questions = True
                    await batch.publish("fast.a")
                    if number == 260:
                        await relay.lost(b".260.1.$FI")
                        relay.cut()
                        await answered(js)
            return batch

        with trio.fail_after(SOON):
            if gaps:
                batch = await publish()
                assert [(each.first, each.last, each.reason) for each in batch.misses] == [(251, 260, None)]
                assert (batch.missed, batch.stored) == (10, 300)
                assert await count_in(js) == 290
            else:
                with pytest.raises(FastBatchFailed) as caught:
                    await publish()
                assert isinstance(caught.value.reason, Missed)
                assert (caught.value.stored, caught.value.is_certain) == (250, True)
                assert await count_in(js) == 250


async def test_a_line_that_loses_the_last_answer(new: NatsServer) -> None:
    """All is stored, and nobody knows of the last ones."""
    async with line(new) as (js, relay), trio.open_nursery() as nursery:

        async def cut() -> None:
            await relay.lost(b'"count":300')
            relay.cut()

        with trio.fail_after(SOON), pytest.raises(FastBatchFailed, match="unknown") as caught:
            async with js.fast_batch() as batch:
                for _ in range(300):
                    await batch.publish("fast.a")
                await js.client.flush()
                relay.loses_answers = True
                nursery.start_soon(cut)
        assert await count_in(js) == 300
        assert not caught.value.is_certain
        assert caught.value.stored < 300


async def test_a_server_that_is_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It has forgotten the batch. What is said to be stored is, and not more than was published."""
    folder = tmp_path_factory.mktemp("killed")
    with running("new", folder, "-js", "-sd", str(folder / "js")) as server:
        async with stream(server.url, storage=Storage.FILE) as js:
            with trio.fail_after(SOON), pytest.raises(FastBatchFailed, match="unknown") as caught:
                async with js.fast_batch() as batch:
                    for number in range(1, 2001):
                        await batch.publish("fast.a")
                        if number == 1000:
                            server.kill()
                            await trio.to_thread.run_sync(server.start)
            failed = caught.value
            assert not failed.is_certain
            assert 0 < failed.stored <= await count_in(js) <= failed.published
