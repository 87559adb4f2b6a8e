"""Which of JetStream's subjects are whose, and what happens to those that are nobody's."""

from __future__ import annotations

import pytest

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.jetstream.client import ClientJetStream


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
        assert info["api"] == {"total": 2, "errors": 1}
        assert (info["streams"], info["consumers"]) == (1, 0)
