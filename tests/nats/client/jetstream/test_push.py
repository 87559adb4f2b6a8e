"""What comes between the messages that are pushed: heartbeats, flow control, gaps, and what is wrong."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.nats.client.jetstream.relay import Relay, relayed
from tests.nats.client.jetstream.stub import StubApi, heartbeat, info, message, status
from tests.nats.client.scripted import Peer, Told, serving
from tests.nats.servers import KINDS, NatsServer
from trunkline.nats import Client, connect
from trunkline.nats.client.events import Event, HeartbeatMissed, MessagesMissed, Reconnected
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.errors import BufferFull, CannotSubscribe, StatusError, UnknownStatus
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, Storage, StreamConfig
from trunkline.nats.jetstream.replies import ConsumerMissing
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.operations import Deliver, Subscribe


def pushed(
    idle_heartbeat: float = 0.0, *, queue: str = "", is_created: bool = False, max_messages: int = 100
) -> tuple[PushSubscription, StubApi]:
    api = StubApi()
    found = api.client.open(lambda *args: PushSubscription(api, *args), "d", queue=queue, max_messages=max_messages)
    config = ConsumerConfig(deliver_subject="d", idle_heartbeat=idle_heartbeat)
    found.bind("s", "c", info(config=config), is_created=is_created)
    return found, api


async def payloads(found: PushSubscription, count: int) -> list[bytes]:
    return [(await found.receive()).payload for _ in range(count)]


# Heartbeats


async def test_silence_is_told(autojump_clock: MockClock) -> None:
    """After three intervals without a word, and again after as many."""
    found, api = pushed(5.0)
    with trio.move_on_after(46):
        await found.receive()
    assert api.client.events == [HeartbeatMissed(found, 15.0)] * 3
    api.client.events.clear()
    found.put(message(1, b"1"))
    assert await payloads(found, 1) == [b"1"]
    with trio.move_on_after(14):
        await found.receive()
    assert api.client.events == []


async def test_how_much_silence_is_told(server: NatsServer) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="s", subjects=("s.>",), storage=Storage.MEMORY))
        config = ConsumerConfig(idle_heartbeat=0.2)
        for missed in (1, 5):
            async with js.subscribe("s.>", config=config, missed_heartbeats=missed) as found:
                assert found._patience == pytest.approx(missed * 0.2)
        async with js.subscribe("s.>", missed_heartbeats=1) as found:
            assert found._patience == inf, "there are no heartbeats"
        with pytest.raises(CannotSubscribe, match="missed_heartbeats is 0"):
            async with js.subscribe("s.>", durable="d", config=config, missed_heartbeats=0):
                pass
        with pytest.raises(ConsumerMissing):
            await js.consumer("s", "d")


@pytest.mark.parametrize(
    "sign", [message(1, b"1"), heartbeat(1), status(100, "FlowControl Request", reply=b"$JS.FC.x"), status(404)]
)
async def test_every_sign_counts(autojump_clock: MockClock, sign: Deliver) -> None:
    found, api = pushed(5.0)

    async def take() -> None:
        while True:
            try:
                await found.receive()
            except StatusError:
                continue

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        for _ in range(10):
            await trio.sleep(14)
            found.put(sign)
        assert [event for event in api.client.events if isinstance(event, HeartbeatMissed)] == []
        await trio.sleep(16)
        assert api.client.events[-1] == HeartbeatMissed(found, 15.0)
        nursery.cancel_scope.cancel()


async def now_and_then(found: ConsumerSubscription, seconds: int) -> None:
    """Wait for messages, a second at a time."""
    for _ in range(seconds):
        with trio.move_on_after(1):
            await found.receive()


async def test_who_looks_now_and_then_is_told_of_silence(autojump_clock: MockClock) -> None:
    found, api = pushed(5.0)
    await now_and_then(found, 46)
    assert api.client.events == [HeartbeatMissed(found, 15.0)] * 3
    found.put(message(1))
    await now_and_then(found, 14)
    found.put(heartbeat(1))
    await now_and_then(found, 14)
    assert len(api.client.events) == 3
    await now_and_then(found, 2)
    assert len(api.client.events) == 4


async def test_who_has_not_looked_for_long(autojump_clock: MockClock) -> None:
    """Silence is told at once, and a connection that is there since a moment is none."""
    found, api = pushed(5.0)
    await trio.sleep(14)
    found.put(heartbeat(0))
    await trio.sleep(14)
    await now_and_then(found, 1)
    assert api.client.events == []
    await trio.sleep(100)
    list(found.again())
    await now_and_then(found, 14)
    assert api.client.events == []
    await trio.sleep(100)
    await now_and_then(found, 1)
    assert api.client.events == [HeartbeatMissed(found, 15.0)]


async def test_two_who_wait_are_told_once(autojump_clock: MockClock) -> None:
    found, api = pushed(5.0)
    with trio.move_on_after(16):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.receive)
            nursery.start_soon(found.receive)
    assert api.client.events == [HeartbeatMissed(found, 15.0)]


async def test_a_message_that_another_task_takes_counts_for_all(autojump_clock: MockClock) -> None:
    found, api = pushed(5.0)

    async def take() -> None:
        async for _ in found:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        nursery.start_soon(take)
        for number in range(1, 10):
            await trio.sleep(14)
            found.put(message(number))
        await wait_all_tasks_blocked()
        assert api.client.events == []
        nursery.cancel_scope.cancel()


async def test_silence_without_a_connection_is_none(autojump_clock: MockClock) -> None:
    found, api = pushed(5.0)
    api.client.is_connected = False
    with trio.move_on_after(100):
        await found.receive()
    assert api.client.events == []
    api.client.is_connected = True
    with trio.move_on_after(16):
        await found.receive()
    assert api.client.events == [HeartbeatMissed(found, 15.0)]


@pytest.mark.parametrize(("interval", "queue"), [(0.0, ""), (5.0, "q")])
async def test_no_heartbeats(autojump_clock: MockClock, interval: float, queue: str) -> None:
    found, api = pushed(interval, queue=queue)
    with trio.move_on_after(100_000):
        await found.receive()
    assert api.client.events == []


async def test_a_day_of_heartbeats_takes_no_room() -> None:
    found, _ = pushed(5.0, max_messages=3)
    for _ in range(17_280):
        found.put(heartbeat(0))
    assert (len(found), found.dropped) == (0, 0)


# Gaps


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_gap_among_messages(*, is_long: bool) -> None:
    found, api = pushed()
    for sequence in (3, 4, 7, 8):
        wire = message(sequence, b"%d" % sequence)
        if is_long:
            wire.reply = wire.reply.replace(b"$JS.ACK.", b"$JS.ACK._.hash.") + b".more"
        found.put(wire)
    assert api.client.events == [MessagesMissed(found, 5, 6)]
    assert await payloads(found, 4) == [b"3", b"4", b"7", b"8"]


async def test_a_gap_that_a_heartbeat_shows() -> None:
    """It is told once, however many heartbeats say the same."""
    found, api = pushed(5.0)
    found.put(message(1))
    found.put(heartbeat(1))
    assert api.client.events == []
    for _ in range(3):
        found.put(heartbeat(3))
    assert api.client.events == [MessagesMissed(found, 2, 3)]
    found.put(message(4))
    assert len(api.client.events) == 1


@pytest.mark.parametrize(("is_created", "events"), [(True, 1), (False, 0)])
async def test_what_came_before_the_first_message(*, is_created: bool, events: int) -> None:
    """A consumer that was there may have delivered a lot; a new one has not."""
    found, api = pushed(5.0, is_created=is_created)
    found.put(heartbeat(2))
    assert api.client.events == [MessagesMissed(found, 1, 2)][:events]


async def test_a_heartbeat_without_numbers() -> None:
    found, api = pushed(5.0)
    found.put(message(1))
    found.put(heartbeat())
    found.put(status(100, "Idle Heartbeat", Nats_Last_Consumer="x"))
    assert api.client.events == []


async def test_no_gaps_in_a_queue() -> None:
    found, api = pushed(queue="q", is_created=True)
    found.put(heartbeat(9))
    for sequence in (1, 5, 3):
        found.put(message(sequence))
    found.put(heartbeat(9))
    assert api.client.events == []
    assert len(found) == 3


async def test_a_consumer_that_begins_anew() -> None:
    found, api = pushed()
    for sequence in (7, 1, 2):
        found.put(message(sequence, b"%d" % sequence))
    assert api.client.events == []
    assert await payloads(found, 3) == [b"7", b"1", b"2"]


@pytest.mark.parametrize("reply", [b"", b"elsewhere", b"$JS.ACK.s.c.1.x.y.0.0", b"$JS.ACK.a.b.s.c.1.1.9.0", b"a.b"])
async def test_what_comes_from_elsewhere_is_no_gap(reply: bytes) -> None:
    found, api = pushed()
    found.put(message(1, b"1"))
    found.put(Deliver(b"d", b"1", reply, b"", b"other"))
    found.put(message(2, b"2"))
    assert api.client.events == []
    assert await payloads(found, 3) == [b"1", b"other", b"2"]


# Flow control


def questions(api: StubApi) -> list[str]:
    assert all(payload == b"" and reply == "" for _, payload, reply in api.client.published)
    return [subject for subject, _, _ in api.client.published]


ASK = status(100, "FlowControl Request", reply=b"$JS.FC.s.c.1")


async def test_a_question_is_answered_where_it_stands() -> None:
    """Not before the messages in front of it are taken, and then although more were to come."""
    found, api = pushed(5.0)
    found.put(message(1, b"1"))
    found.put(ASK)
    found.put(message(2, b"2"))
    assert questions(api) == []
    assert await payloads(found, 1) == [b"1"]
    assert questions(api) == []
    assert await payloads(found, 1) == [b"2"]
    assert questions(api) == ["$JS.FC.s.c.1"]


async def test_a_question_behind_nothing_is_answered_at_once() -> None:
    found, api = pushed(5.0)
    found.put(ASK)
    assert questions(api) == ["$JS.FC.s.c.1"]
    assert len(found) == 0


async def test_the_next_message_is_waited_for_behind_a_question(autojump_clock: MockClock) -> None:
    """Within the time that the user has for a message."""
    found, api = pushed(5.0)
    found.put(message(1, b"1"))
    found.put(ASK)
    await payloads(found, 1)
    with trio.move_on_after(2) as scope:
        await found.receive()
    assert scope.cancelled_caught
    assert trio.current_time() == 2.0
    assert questions(api) == ["$JS.FC.s.c.1"]

    async def late() -> None:
        await trio.sleep(1)
        found.put(message(2, b"2"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        with trio.fail_after(2):
            assert await payloads(found, 1) == [b"2"]


async def test_a_stalled_consumer_is_answered_once() -> None:
    """Its heartbeats say the subject again and again; it is the same question."""
    found, api = pushed(5.0)
    found.put(message(1, b"1"))
    for _ in range(3):
        found.put(heartbeat(1, "$JS.FC.s.c.7"))
    found.put(status(100, "FlowControl Request", reply=b"$JS.FC.s.c.7"))
    assert questions(api) == []
    await payloads(found, 1)
    found.put(heartbeat(1, "$JS.FC.s.c.7"))
    found.put(message(2, b"2"))
    await payloads(found, 1)
    found.put(heartbeat(2, "anything.at.all"))
    assert questions(api) == ["$JS.FC.s.c.7", "anything.at.all"]


async def test_a_question_that_finds_no_room_is_asked_again() -> None:
    found, api = pushed(5.0, max_messages=1)
    found.put(message(1, b"1"))
    found.put(ASK)
    await payloads(found, 1)
    found.put(heartbeat(1, "$JS.FC.s.c.1"))
    assert questions(api) == ["$JS.FC.s.c.1"]


async def test_an_answer_that_may_be_lost_is_given_again() -> None:
    found, api = pushed(5.0)
    found.put(ASK)
    list(found.again())
    found.put(heartbeat(0, "$JS.FC.s.c.1"))
    assert questions(api) == ["$JS.FC.s.c.1"] * 2


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_that_cannot_be_given_now(autojump_clock: MockClock, *, waits: bool) -> None:
    """It breaks neither the connection nor the loop."""
    found, api = pushed(5.0)
    api.client.failure = BufferFull("8388608 bytes wait to be sent")
    if waits:
        found.put(message(1, b"1"))
    found.put(ASK)
    with trio.move_on_after(1):
        await payloads(found, 2)
    api.client.failure = None
    found.put(heartbeat(1, "$JS.FC.s.c.1"))
    assert questions(api) == ["$JS.FC.s.c.1"]


@pytest.mark.parametrize("subject", [b"$JS.FC.*", b"two words", b"half\xff"])
async def test_a_question_from_what_is_no_subject(subject: bytes) -> None:
    async def story(peer: Peer) -> None:
        await peer.welcome()
        while not isinstance(operation := await peer.next(), Subscribe):
            assert operation is not None
        block = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: %b\r\n\r\n" % subject
        await peer.send(encoder.deliver(b"d", operation.sid, b"", block=block))
        await peer.send(encoder.deliver(b"d", operation.sid, b"x"))
        await peer.answer()

    async with serving(story) as port, connect(f"127.0.0.1:{port}") as client:
        js = client.jetstream()
        found = client.receivers.open(lambda *args: PushSubscription(js, *args), "d")
        assert await payloads(found, 1) == [b"x"]


# What is wrong


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        (409, "Consumer Deleted", StatusError),
        (409, "Exceeded MaxAckPending", StatusError),
        (503, "", StatusError),
        (404, "No Messages", StatusError),
        (777, "Something New", UnknownStatus),
        (999, "", UnknownStatus),
    ],
)
async def test_an_error_is_raised_and_not_given_as_a_message(code: int, text: str, error: type[StatusError]) -> None:
    """Where it stands among the messages; and the subscription goes on behind it."""
    found, _ = pushed()
    found.put(message(1, b"1"))
    found.put(status(code, text))
    found.put(message(2, b"2"))
    assert await payloads(found, 1) == [b"1"]
    with pytest.raises(StatusError, match=f"^{code}") as caught:
        await found.receive()
    assert (type(caught.value), caught.value.code) == (error, code)
    assert await payloads(found, 1) == [b"2"]


async def test_a_loop_ends_with_the_error() -> None:
    found, _ = pushed()
    found.put(message(1))
    found.put(status(409, "Consumer Deleted"))
    seen = 0

    async def loop() -> None:
        nonlocal seen
        async for _ in found:
            seen += 1

    with pytest.raises(StatusError, match="409 Consumer Deleted"):
        await loop()
    assert seen == 1


async def test_what_is_published_like_a_status_is_a_message() -> None:
    found, _ = pushed()
    wire = message(1)
    wire.block = b"NATS/1.0 503 Not Really\r\n\r\n"
    found.put(wire)
    broken = message(2)
    broken.block = b"NATS/1.0 nonsense\r\n\r\n"
    found.put(broken)
    assert [(await found.receive()).origin.stream_sequence for _ in range(2)] == [1, 2]


# With servers


async def test_flow_control_of_servers(server: NatsServer) -> None:
    """More is delivered than a server sends without an answer, to one who takes it slowly."""
    told: list[Event] = []
    async with connect(server.url, on_event=told.append) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="flow", storage=Storage.MEMORY, subjects=("flow",)))
        for _ in range(60):
            await js.publish("flow", bytes(100_000))
        config = ConsumerConfig(
            flow_control=True, idle_heartbeat=0.5, ack_policy=AckPolicy.NONE, deliver_subject=client.new_inbox()
        )
        async with js.subscribe("flow", config=config) as found:
            with trio.fail_after(60):
                for number in range(60):
                    assert (await found.receive()).origin.stream_sequence == number + 1
                    if number < 30:
                        await trio.lowlevel.checkpoint()
        assert [event for event in told if not isinstance(event, HeartbeatMissed)] == []
        await js.delete_stream("flow")


async def test_a_lost_consumer_is_noticed(server: NatsServer) -> None:
    """Nobody tells the subscriber that a push consumer is deleted, but heartbeats end."""
    told = Told()
    async with connect(server.url, on_event=told) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="beats", storage=Storage.MEMORY, subjects=("beats",)))
        config = ConsumerConfig(idle_heartbeat=0.1)
        async with js.subscribe("beats", config=config) as found:
            await js.delete_consumer("beats", found.consumer)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(found.receive)
                await told.wait()
                nursery.cancel_scope.cancel()
        assert told.events[0] == HeartbeatMissed(found, pytest.approx(0.3))
        await js.delete_stream("beats")


# With servers, and a line to them that loses what is sent


@dataclass
class Deaf:
    """A subscription that hears nothing of the server for now, and another one to its subject, which does."""

    client: Client
    found: PushSubscription
    told: list[Event]
    relay: Relay
    js: JetStream
    other: Subscription

    async def delivered(self, sequence: int) -> None:
        """Until the consumer has delivered so many."""
        async for wire in self.other:
            if wire.reply.startswith("$JS.ACK") and int(wire.reply.split(".")[6]) == sequence:
                return

    async def stalled(self) -> str:
        """Until a heartbeat says so. The subject by which the consumer goes on."""
        async for wire in self.other:
            if question := wire.headers.get("Nats-Consumer-Stalled"):
                return question
        raise AssertionError

    def hear(self) -> None:
        """By another connection."""
        self.relay.cut()


@asynccontextmanager
async def deaf(server: NatsServer, **config: Any) -> AsyncGenerator[Deaf]:
    told: list[Event] = []
    async with (
        connect(server.url) as helper,
        relayed(server.port) as relay,
        connect(f"127.0.0.1:{relay.port}", reconnect_wait=0.01, on_event=told.append) as client,
    ):
        js = helper.jetstream()
        await js.create_stream(StreamConfig(name="deaf", subjects=("deaf",), storage=Storage.MEMORY))
        try:
            made = ConsumerConfig(deliver_subject=client.new_inbox(), ack_policy=AckPolicy.NONE, **config)
            with trio.fail_after(60), helper.subscribe(made.deliver_subject) as other:
                await helper.flush()
                async with client.jetstream().subscribe("deaf", config=made) as found:
                    await js.publish("deaf", b"first")
                    assert await payloads(found, 1) == [b"first"]
                    relay.loses_answers = True
                    yield Deaf(client, found, told, relay, js, other)
        finally:
            await js.delete_stream("deaf")


@pytest.mark.parametrize("is_heartbeat", [False, True])
async def test_a_gap_that_servers_leave(server: NatsServer, *, is_heartbeat: bool) -> None:
    """What was delivered while the connection was down is told by the next message, or by a heartbeat."""
    async with deaf(server, idle_heartbeat=0.1 if is_heartbeat else 0.0) as here:
        for _ in range(3):
            await here.js.publish("deaf", b"lost")
        await here.delivered(4)
        here.hear()
        missed = MessagesMissed(here.found, 2, 4)
        async with trio.open_nursery() as nursery:
            if is_heartbeat:
                nursery.start_soon(here.found.receive)
                while missed not in here.told:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            else:
                while not any(isinstance(event, Reconnected) for event in here.told):
                    await trio.lowlevel.checkpoint()
                await here.client.flush()
                await here.js.publish("deaf", b"last")
                assert await payloads(here.found, 1) == [b"last"]
        assert [event for event in here.told if isinstance(event, MessagesMissed)] == [missed]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_consumer_of_servers_that_has_stalled(server: NatsServer, *, is_answered: bool) -> None:
    """The question of flow control, or the answer to it, is lost with a connection. The heartbeats that come by the
    next one say that the consumer has stalled, and it goes on."""
    async with deaf(server, idle_heartbeat=0.2, flow_control=True) as here:
        if is_answered:
            here.relay.loses_answers, here.relay.loses_questions = False, True
        for _ in range(60):
            await here.js.publish("deaf", bytes(100_000))
        async with trio.open_nursery() as nursery:
            if is_answered:
                nursery.start_soon(payloads, here.found, 1000)
            question = await here.stalled()
            if is_answered:
                await here.relay.lost(question.encode())
            nursery.cancel_scope.cancel()
        here.hear()
        while (await here.found.receive()).origin.stream_sequence < 61:
            pass
        missed = [event for event in here.told if isinstance(event, MessagesMissed)]
        assert len(missed) == (not is_answered)


@pytest.mark.parametrize("server", KINDS, indirect=True)
async def test_each_question_of_servers_is_answered_once(server: NatsServer) -> None:
    """While its answer waits for those who take the messages before it, heartbeats ask it again. (The broker shows
    nobody what it is answered.)"""
    async with connect(server.url) as client, connect(server.url) as helper:
        js = helper.jetstream()
        await js.create_stream(StreamConfig(name="once", subjects=("once",), storage=Storage.MEMORY))
        config = ConsumerConfig(flow_control=True, idle_heartbeat=0.1, deliver_subject=client.new_inbox())
        with helper.subscribe("$JS.FC.>") as answers, helper.subscribe(config.deliver_subject) as other:
            await helper.flush()
            async with client.jetstream().subscribe("once", config=config) as found:
                for _ in range(60):
                    await js.publish("once", bytes(100_000))
                with trio.fail_after(60):
                    heartbeats = 0
                    while heartbeats < 3:
                        heartbeats += "Nats-Consumer-Stalled" in (await other.receive()).headers
                    for _ in range(60):
                        (await found.receive()).ack()
                    await client.flush()
                    while not len(answers):
                        await trio.lowlevel.checkpoint()
                    await helper.flush()
            seen = [(await answers.receive()).subject for _ in range(len(answers))]
        assert len(seen) == len(set(seen)) > 0
        await js.delete_stream("once")


async def test_no_gaps_for_members_of_a_group(server: NatsServer) -> None:
    told: list[Event] = []
    async with connect(server.url, on_event=told.append) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="shared", subjects=("shared",), storage=Storage.MEMORY))
        taken: list[list[int]] = [[], []]

        async def take(number: int, *, task_status: trio.TaskStatus[None]) -> None:
            async with js.subscribe("shared", queue="all") as found:
                task_status.started()
                async for each in found:
                    taken[number].append(each.origin.consumer_sequence)
                    each.ack()
                    if sum(map(len, taken)) == 100:
                        nursery.cancel_scope.cancel()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(take, 0)
                await nursery.start(take, 1)
                await client.flush()
                for _ in range(100):
                    await js.publish("shared", b"x")
        assert sorted(taken[0] + taken[1]) == list(range(1, 101))
        assert all(each[-1] - each[0] >= len(each) for each in taken)  # others are between them
        assert told == []
        await js.delete_stream("shared")


@pytest.mark.parametrize("code", [777, 999])
async def test_a_status_that_nobody_knows_by_servers(server: NatsServer, code: int) -> None:
    """They hand on what somebody else says."""
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="new", subjects=("new",), storage=Storage.MEMORY))
        async with js.subscribe("new") as found:
            await js.publish("new", b"1")
            assert await payloads(found, 1) == [b"1"]
            block = b"NATS/1.0 %d Something New\r\n\r\n" % code
            await client.post(encoder.publish(found.subject.encode(), b"", b"", block))
            with pytest.raises(UnknownStatus, match=f"^{code} Something New"):
                await found.receive()
            await js.publish("new", b"2")
            assert await payloads(found, 1) == [b"2"]
        await js.delete_stream("new")
