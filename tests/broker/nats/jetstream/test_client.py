"""Which of JetStream's subjects are whose, and what happens to those that are nobody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.jetstream.asker import Asker
from trunkline.broker.nats.jetstream.client import ClientJetStream
from trunkline.streams import ConsumerConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("subject", "place"),
    [
        (b"$JS.ACK.s.c.1.2.3.4.5", b"$JS.ACK.s.c"),
        (b"$JS.FC.s.c.7", b"$JS.FC.s.c"),
        (b"$JS.API.CONSUMER.MSG.NEXT.s.c", b"$JS.API.CONSUMER.MSG.NEXT.s.c"),
        (b"$JS.ACK", b"$JS.ACK"),
    ],
)
def test_what_access_is_decided_by(subject: bytes, place: bytes) -> None:
    assert ClientJetStream.place(subject) == place


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API",
        "$JS.API.STREAM",
        "$JS.API.STREAM.CREATE",
        "$JS.API.STREAM.INFO.s.more",
        "$JS.API.CONSUMER.MSG.NEXT.s",
        "$JS.API.CONSUMER.MSG.NEXT.s.no",
        "$JS.API.CONSUMER.MSG.NEXT.no.c",
        "$JS.API.DIRECT.GET.s",
        "$JS.API.META.LEADER.STEPDOWN",
        "$JS.FC.s.c.1",
        "$JS.FC",
        "$JS.other.API.INFO",
        "$JS.EVENT.ADVISORY.x",
    ],
)
async def test_what_nobody_answers(subject: str) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        got = await puller.ask(subject)
        assert got.block == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()


async def test_nothing_is_told_of_what_becomes_of_streams() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB $JS.EVENT.> 2")
        config = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 1, "ack_wait": 1000}
        await puller.api("STREAM.CREATE.t", {"name": "t", "subjects": ["t"]})
        await puller.api("CONSUMER.DURABLE.CREATE.t.c", {"stream_name": "t", "config": config})
        await puller.api("CONSUMER.DELETE.t.c")
        await puller.api("STREAM.DELETE.t")
        await puller.nothing()


@pytest.mark.parametrize("subject", [b"$JS.API..", b"$JS.API.STREAM.CREATE.", b"$JS.ACK.a/b", b"$JS.API.\xff", b"$JS."])
async def test_what_is_no_subject(subject: bytes) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"PUB %s r.1 0" % subject, b"")
        assert await puller.speaker.said() == b"-ERR 'Invalid Publish Subject'\r\n"


async def test_subscribers_hear_requests_to_the_api_alone() -> None:
    async with jetstream_room() as here:
        puller, other = await here.puller(), await here.puller()
        await puller.consumer()
        await other.say(b"SUB $JS.> 2")
        await other.nothing()
        await puller.api("STREAM.INFO.s")
        assert (await other.got()).subject == "$JS.API.STREAM.INFO.s"
        await here.fill(b"1")
        await puller.pull()
        assert (await other.got()).subject == "$JS.API.CONSUMER.MSG.NEXT.s.c"
        await puller.ask((await puller.got()).reply, b"+ACK")
        await other.nothing()


async def test_verbose_clients_are_told_ok() -> None:
    async with jetstream_room() as here:
        speaker = await here.room.speaker(verbose=True)
        await speaker.publish(b"$JS.API.INFO")
        assert await speaker.said() == b"+OK\r\n"


async def test_one_that_asks_for_the_next_message_gets_nothing_else() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2")
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=1)
        await puller.publish((await puller.got()).reply, b"+NXT", "r.n")
        assert (await puller.got()).payload == b"2"
        await puller.nothing()


async def test_one_that_reads_again_gets_the_rest(autojump_clock: trio.testing.MockClock) -> None:
    """Of what it pulls, and of what is pushed to it."""
    autojump_clock.autojump_threshold = 1
    large = b"x" * 100_000
    async with jetstream_room() as here:
        for _ in range(300):
            await here.streams.publish("s/a", large)
        puller = await here.puller()
        puller.speaker.narrow()
        await puller.consumer(max_ack_pending=-1)
        await puller.pull(batch=300)
        for _ in range(300):
            assert (await puller.got()).payload == large
        await puller.say(b"SUB d 2")
        await puller.consumer("p", deliver_subject="d", ack_policy="none")
        for _ in range(300):
            assert (await puller.got()).payload == large


async def test_nothing_is_left_of_one_that_leaves(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 1
    large = b"x" * 100_000
    async with jetstream_room() as here:
        slow = await here.puller()
        client = here.room.connection.client
        assert client is not None
        other = await here.puller()
        await slow.consumer(filter_subject="s.none")
        await slow.pull(batch=1)
        await slow.nothing()
        slow.speaker.narrow()
        for each in (slow, other):
            await each.say(b"SUB d 2")
            await each.nothing()
        await other.consumer("p", deliver_subject="d", ack_policy="none")
        (pusher,) = here.jetstream._pushers.values()
        for _ in range(300):
            await here.streams.publish("s/b", large)
        while client.standing not in pusher.holders:
            await trio.lowlevel.checkpoint()
        await slow.say(b"what")  # it is told so, and does not read that either
        for _ in range(300):
            assert (await other.got()).payload == large
        assert (await other.api("CONSUMER.INFO.s.c"))["num_waiting"] == 0


async def test_a_consumer_that_is_deleted_before_a_pull_is_allowed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        check = Asker.check_filters

        async def delete_and_check(asker: Asker, filters: Any) -> None:
            await here.streams.delete_consumer("s", "c")
            await check(asker, filters)

        monkeypatch.setattr(Asker, "check_filters", delete_and_check)
        monkeypatch.setattr(Asker, "may_consume_at_once", lambda *_: False)
        await puller.pull(batch=1)
        assert (await puller.got()).status == "409 Consumer Deleted"
        assert not here.jetstream._queues


async def test_whether_a_pull_is_allowed_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "subscribe"\ntopics = ["s/b"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.fill(*[b"x"] * 5)
        puller = await here.puller()
        for name, subject in (("c", "s.a"), ("d", "s.b")):
            config = ConsumerConfig(name=name, durable=True, filters=(subject.replace(".", "/"),))
            await here.streams.create_consumer("s", config)
        questions: list[object] = []
        ask = Asker.ask
        monkeypatch.setattr(Asker, "ask", lambda *asked: (questions.append(asked), ask(*asked))[1])
        for _ in range(5):
            await puller.pull(batch=1)
            assert (await puller.got()).payload == b"x"
        assert len(questions) == 1
        await puller.pull(consumer="d")
        assert (await puller.got()).status == "409 permissions violation for subscription to the topic filter 's/b'"


async def test_requests_count_for_limits() -> None:
    rate = {"connection_messages": "3/s", "over": "refuse"}
    async with jetstream_room(listener={"rate": rate}) as here:
        puller = await here.puller()
        for _ in range(10):
            await puller.publish("$JS.API.INFO", b"", "r.1")
        assert (await puller.speaker.said()).count(b"MSG r.1 ") == 3
        assert here.room.node.metrics.dropped[DropReason.RATE_EXCEEDED] == 7


async def test_requests_are_counted() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.api("STREAM.INFO.no")
        info = await puller.api("INFO")
        assert info["api"] == {"level": 2, "total": 2, "errors": 1}
        assert (info["streams"], info["consumers"]) == (1, 0)
