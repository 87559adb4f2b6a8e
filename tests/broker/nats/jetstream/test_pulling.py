"""Pulls: who gets what, in which order, and how each ends."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import trio
import trio.testing

from tests.broker.nats.jetstream.pulled import SECOND, Got, Puller, jetstream_room
from trunkline.broker.nats.jetstream import pulling
from trunkline.broker.nats.jetstream.asker import Asker
from trunkline.broker.nats.jetstream.pulling import TAKEN_AT_ONCE
from trunkline.mqtt.message import Message
from trunkline.streams.errors import MessageNotFound

NUMBERS = [b"%d" % number for number in range(5)]


async def payloads(puller: Puller, count: int) -> list[bytes]:
    return [(await puller.got()).payload for _ in range(count)]


async def test_what_is_there_comes_at_once() -> None:
    async with jetstream_room() as here:
        await here.fill(*NUMBERS)
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=2)
        first, second = await puller.got(), await puller.got()
        assert (first.subject, first.sid, first.payload) == ("s.a", "1", b"0")
        assert first.reply.startswith("$JS.ACK.s.c.1.1.1.")
        assert first.reply.endswith(".4")
        assert second.reply.startswith("$JS.ACK.s.c.1.2.2.")
        await puller.nothing()
        await puller.pull(batch=9, no_wait=True)
        assert await payloads(puller, 3) == NUMBERS[2:]
        assert (await puller.got()).status == "404 No Messages"


async def test_a_number_alone_and_nothing_are_requests_as_well() -> None:
    async with jetstream_room() as here:
        await here.fill(*NUMBERS)
        puller = await here.puller()
        await puller.consumer()
        await puller.publish("$JS.API.CONSUMER.MSG.NEXT.s.c", b"2", "r.p")
        await puller.publish("$JS.API.CONSUMER.MSG.NEXT.s.c", b"", "r.p")
        await puller.pull(batch=-1, no_wait=True)
        assert await payloads(puller, 4) == NUMBERS[:4]
        await puller.nothing()


async def test_messages_that_come_later() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=2)
        await puller.nothing()
        assert (await puller.api("CONSUMER.INFO.s.c"))["num_waiting"] == 1
        await here.fill(b"1", b"2", b"3")
        assert await payloads(puller, 2) == [b"1", b"2"]
        await puller.nothing()
        assert (await puller.api("CONSUMER.INFO.s.c"))["num_waiting"] == 0


async def test_more_than_are_taken_at_once() -> None:
    async with jetstream_room() as here:
        many = [b"%d" % number for number in range(3 * TAKEN_AT_ONCE + 1)]
        await here.fill(*many)
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=len(many))
        assert await payloads(puller, len(many)) == many


async def test_those_who_wait_share_what_comes() -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=10)
        await two.pull(batch=10)
        await one.nothing()
        await two.nothing()
        await here.fill(*NUMBERS[:4])
        assert await payloads(one, 2) == [b"0", b"2"]
        assert await payloads(two, 2) == [b"1", b"3"]


async def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=10)
        await one.nothing()
        await two.pull(batch=10)
        await two.nothing()
        await one.speaker.leave()
        while len(here.room.connections) > 1:
            await trio.lowlevel.checkpoint()
        await here.fill(*NUMBERS)
        assert await payloads(two, 5) == NUMBERS


async def test_who_has_unsubscribed_gets_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=10)
        await one.nothing()
        await two.pull(batch=2)
        await two.nothing()
        await one.say(b"UNSUB 1")
        await one.nothing()
        await here.fill(b"1", b"2")
        assert await payloads(two, 2) == [b"1", b"2"]
        await one.nothing()


async def test_a_subscription_that_ends_within_a_pull() -> None:
    async with jetstream_room() as here:
        await here.fill(*NUMBERS)
        puller = await here.puller()
        await puller.consumer()
        await puller.say(b"SUB q 2", b"UNSUB 2 2")
        await puller.pull("q", batch=5)
        assert await payloads(puller, 2) == NUMBERS[:2]
        await puller.nothing()
        await puller.pull(batch=5, no_wait=True)
        assert await payloads(puller, 3) == NUMBERS[2:], "none has left the stream for nobody"


async def test_a_reply_that_nobody_hears_takes_nothing() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        await puller.pull("q", batch=1)
        await puller.publish("$JS.API.CONSUMER.MSG.NEXT.s.c", {"batch": 1})
        await puller.nothing()
        await puller.pull(batch=1)
        assert await payloads(puller, 1) == [b"1"]


async def test_it_ends_in_time(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        begun = trio.current_time()
        await puller.pull(batch=3, expires=30 * SECOND, max_bytes=5000)
        ended = await puller.got()
        assert trio.current_time() - begun == pytest.approx(30)
        assert ended.subject == "r.p"
        assert ended.block == (
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 5000\r\n\r\n"
        )
        await here.fill(b"1")
        await puller.nothing()


async def test_one_that_does_not_wait_waits_for_the_first_message_if_it_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=3, no_wait=True, expires=30 * SECOND)
        await puller.nothing()
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"]
        assert (await puller.got()).status == "404 No Messages"


async def test_those_that_do_not_wait_behind_others_that_do(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer(max_ack_pending=2)
        await one.pull(batch=3)
        await one.nothing()
        await two.pull(batch=1, no_wait=True)
        assert (await two.got()).status == "404 No Messages"
        await two.pull(batch=1, no_wait=True, expires=30 * SECOND)
        await two.nothing()
        await here.fill(b"1", b"2", b"3")
        assert (await payloads(one, 1), await payloads(two, 1)) == ([b"1"], [b"2"])
        await two.pull(batch=1, no_wait=True)
        assert (await two.got()).status == "404 No Messages", "there is one, but too much is not acknowledged"


async def test_heartbeats(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        begun = trio.current_time()
        await puller.pull(batch=2, expires=10 * SECOND, idle_heartbeat=3 * SECOND)
        assert await payloads(puller, 1) == [b"1"]
        for beat in (3, 6, 9):
            came = await puller.got()
            assert came.block == (
                b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
            )
            assert trio.current_time() - begun == pytest.approx(beat)
        assert (await puller.got()).status == "408 Request Timeout"


async def test_a_message_puts_a_heartbeat_off(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        begun = trio.current_time()
        await puller.pull(batch=2, expires=10 * SECOND, idle_heartbeat=4 * SECOND)
        await puller.nothing()
        await trio.sleep(3)
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"]
        assert (await puller.got()).status == "100 Idle Heartbeat"
        assert trio.current_time() - begun == pytest.approx(7)


async def test_what_is_not_acknowledged_comes_again(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(ack_wait=5 * SECOND)
        begun = trio.current_time()
        await puller.pull(batch=2)
        first, again = await puller.got(), await puller.got()
        assert trio.current_time() - begun == pytest.approx(5)
        assert first.reply.startswith("$JS.ACK.s.c.1.1.1.")
        assert again.reply.startswith("$JS.ACK.s.c.2.1.2.")


async def test_bytes() -> None:
    async with jetstream_room() as here:
        await here.fill(*[b"x" * 100] * 5, b"x" * 1000)
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=10, max_bytes=600, expires=SECOND)
        came: list[Got] = []
        while not (got := await puller.got()).status:
            came.append(got)
        sizes = [len(each.subject) + len(each.reply) + len(each.payload) for each in came]
        assert sum(sizes) <= 600 < sum(sizes) + max(sizes) + 60
        assert got.status == "409 Message Size Exceeds MaxBytes"
        left = 600 - sum(sizes)
        assert f"Nats-Pending-Messages: {10 - len(came)}\r\nNats-Pending-Bytes: {left}\r\n".encode() in got.block
        await puller.pull(batch=5 - len(came))
        assert await payloads(puller, 5 - len(came)) == [b"x" * 100] * (5 - len(came)), "nothing was skipped"


@pytest.mark.parametrize(
    ("config", "asked", "status"),
    [
        ({"max_batch": 5}, {"batch": 6}, "409 Exceeded MaxRequestBatch of 5"),
        ({"max_expires": SECOND}, {"expires": 2 * SECOND}, "409 Exceeded MaxRequestExpires of 1s"),
        ({"max_bytes": 100}, {"max_bytes": 101}, "409 Exceeded MaxRequestMaxBytes of 100"),
        ({}, {"expires": SECOND, "idle_heartbeat": SECOND}, "400 Bad Request - heartbeat value too large"),
        ({}, {"idle_heartbeat": SECOND}, "400 Bad Request - heartbeat value too large"),
        ({}, {"batch": "x"}, "400 Bad Request - batch is no number"),
        ({}, {"batch": 1.5}, "400 Bad Request - batch is no number"),
        ({}, [1], "400 Bad Request - no object"),
    ],
)
async def test_what_may_not_be_asked(config: dict[str, Any], asked: Any, status: str) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(**config)
        got = await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c", asked)
        assert got.status == status


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"max_batch": 5}, {"batch": 5}),
        ({"max_expires": SECOND}, {"expires": SECOND}),
        ({"max_bytes": 1000}, {"max_bytes": 1000}),
        ({}, {"expires": 2 * SECOND, "idle_heartbeat": SECOND}),
    ],
)
async def test_the_most_that_may_be_asked(config: dict[str, Any], asked: Any) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(**config)
        await puller.pull(**asked)
        assert (await puller.got()).payload == b"1"


@pytest.mark.parametrize("payload", [b"{", b"[" * 100_000, b'{"batch":' + b"9" * 400 + b"}", b'{"expires":1e999}'])
async def test_what_is_no_request(payload: bytes) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        got = await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c", payload)
        assert got.status.startswith("400 Bad Request - ")


async def test_only_so_many_may_wait() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(max_waiting=2)
        for number in range(3):
            await puller.pull(f"r.{number}")
        assert (await puller.got())[:3] == ("r.2", "1", "")
        await puller.nothing()


async def test_one_that_has_no_room_leaves_the_message_to_others(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=1, max_bytes=100)
        await one.nothing()
        await two.pull(batch=1)
        await two.nothing()
        await here.fill(b"x" * 1000)
        assert await payloads(two, 1) == [b"x" * 1000]
        assert (await one.got()).status == "409 Message Size Exceeds MaxBytes"


async def test_those_who_have_gone_wait_no_more() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(max_waiting=2)
        await puller.say(b"SUB q 2")
        for _ in range(2):
            await puller.pull("q")
        await puller.say(b"UNSUB 2")
        await puller.pull(batch=1)
        await puller.nothing()
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"]


async def test_one_behind_those_who_have_gone_ends_in_time(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(max_waiting=2)
        await puller.say(b"SUB q 2")
        for _ in range(2):
            await puller.pull("q")
        await puller.say(b"UNSUB 2")
        await puller.pull(batch=1, expires=5 * SECOND)
        assert (await puller.api("CONSUMER.INFO.s.c"))["num_waiting"] == 1
        assert (await puller.got()).status == "408 Request Timeout"


async def test_the_next_one_is_called_when_the_one_whose_turn_comes_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=1, expires=SECOND)
        await one.nothing()
        await two.pull(batch=1)
        await two.nothing()
        (queue,) = here.jetstream._queues.values()
        here.jetstream.publish(Message("s/a", b"1"))
        autojump_clock.jump(2)
        queue._on_time()
        assert await payloads(two, 1) == [b"1"]
        assert (await one.got()).status == "408 Request Timeout"


async def test_one_that_does_not_read_is_not_looked_after_by_the_clock() -> None:
    """What comes again is for nobody until it reads."""
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(ack_wait=SECOND)
        await puller.pull(batch=2)
        await puller.got()
        await puller.nothing()
        (queue,) = here.jetstream._queues.values()
        assert queue._timer.deadline < inf
        queue._waiting[0].is_held = True
        queue._set_timer()
        assert queue._timer.deadline == inf
        queue.go_on(queue._waiting[0].receiver)
        queue._set_timer()
        assert queue._timer.deadline == inf, "its turn comes, and it looks by itself"
        await puller.nothing()
        assert queue._timer.deadline < inf
        queue._is_reading = True
        queue._set_timer()
        assert queue._timer.deadline == inf, "so does whatever reads from the store"


async def test_many_pulls_are_little_work_for_the_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=1)
        await one.nothing()
        (queue,) = here.jetstream._queues.values()
        (waiting,) = queue._waiting
        calls: list[Asker] = []
        soon = Asker.soon
        monkeypatch.setattr(Asker, "soon", lambda asker, action: (calls.append(asker), soon(asker, action))[1])
        next_one = b"PUB $JS.API.CONSUMER.MSG.NEXT.s.c r.p 0"
        await two.say(*[next_one, b""] * 100)
        await two.nothing()
        assert calls.count(waiting.receiver) <= 2  # type: ignore[arg-type]


async def test_a_day_without_anything(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    hour, day = 3600, 86_400
    monkeypatch.setattr("tests.broker.nats.speaking.PATIENCE", inf)
    async with jetstream_room(nats={"ping_interval": 10 * day}) as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(ack_wait=day * SECOND)
        begun = trio.current_time()
        await puller.pull(batch=2, expires=3 * day * SECOND, idle_heartbeat=hour * SECOND)
        assert await payloads(puller, 1) == [b"1"]
        for beat in range(1, 24):
            assert (await puller.got()).status == "100 Idle Heartbeat"
            assert trio.current_time() - begun == pytest.approx(beat * hour)
        while (again := await puller.got()).status:
            pass
        assert trio.current_time() - begun == pytest.approx(day, abs=1)
        assert again.reply.startswith("$JS.ACK.s.c.2.1.2.")
        await puller.publish(again.reply)
        await puller.pull(batch=1, expires=day * SECOND)
        assert (await puller.got()).status == "408 Request Timeout"
        assert trio.current_time() - begun == pytest.approx(2 * day, abs=1)


async def test_heartbeats_have_a_least_distance(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=1, expires=SECOND, idle_heartbeat=1)
        beats = 0
        while (await puller.got()).status == "100 Idle Heartbeat":
            beats += 1
        assert 9 <= beats <= 10


@pytest.mark.parametrize("verb", ["CONSUMER.DELETE.s.c", "STREAM.DELETE.s"])
async def test_what_is_deleted(verb: str) -> None:
    async with jetstream_room() as here:
        puller, other = await here.puller(), await here.puller()
        await puller.consumer()
        await puller.pull(batch=1)
        await puller.nothing()
        assert (await other.api(verb))["success"]
        assert (await puller.got()).status == "409 Consumer Deleted"
        assert (await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c")).status == "503"


async def test_a_push_consumer_is_not_pulled_from() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="d")
        assert (await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c")).status == "409 Consumer is push based"


async def test_headers_alone() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.publish("s.a", b"12345", A="b")
        await puller.consumer(headers_only=True)
        await puller.pull(batch=1)
        got = await puller.got()
        assert (got.block, got.payload) == (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 5\r\n\r\n", b"")


async def test_a_client_that_does_not_read_is_not_sent_more() -> None:
    """What it has asked for stays in the stream, and others get it."""
    async with jetstream_room() as here:
        large = b"x" * 100_000
        for _ in range(400):
            await here.streams.publish("s/a", large)
        greedy, other = await here.puller(), await here.puller()
        await greedy.consumer(max_ack_pending=-1)
        await greedy.publish("$JS.API.CONSUMER.MSG.NEXT.s.c", {"batch": 1000}, "r.p")
        info = await other.api("CONSUMER.INFO.s.c")
        while not any(each.pending for each in here.room.connections):
            await trio.lowlevel.checkpoint()
        for _ in range(20):
            info = await other.api("CONSUMER.INFO.s.c")
        assert info["num_pending"] > 100
        await other.pull(batch=1)
        assert (await other.got()).payload == large
        assert await payloads(greedy, 399) == [large] * 399


async def test_a_client_that_does_not_read_keeps_nobody_waiting(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 1
    async with jetstream_room() as here:
        greedy, other = await here.puller(), await here.puller()
        greedy.speaker.narrow()
        await greedy.consumer(max_ack_pending=-1)
        for each in (greedy, other):
            await each.pull(batch=2000)
            await each.nothing()
        large = b"x" * 20_000  # the other one's connection is never full
        for _ in range(600):
            await here.fill(large, large)
            assert await payloads(other, 1) == [large]
        info = await other.api("CONSUMER.INFO.s.c")
        assert info["num_pending"] == 0
        assert sum(each.pending > 0 for each in here.room.connections) == 1


async def test_who_may_not_read_gets_nothing(tmp_path: Any) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "allow"\naction = "publish"\ntopics = ["$JS/#"]\n'
        '[[rule]]\npermit = "allow"\naction = "subscribe"\ntopics = ["r/#", "s/a"]\n'
    )
    async with jetstream_room(acl={"file": str(rules), "no_match": "deny"}) as here:
        await here.fill(b"1")
        await here.streams.create_consumer("s", _config("c"))
        puller = await here.puller()
        got = await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c")
        assert got.status == "409 permissions violation for subscription to the topic filter 's/#'"


def _config(name: str) -> Any:
    from trunkline.streams import ConsumerConfig

    return ConsumerConfig(name=name, durable=True)


async def test_queues_are_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=1)
        await puller.got()
        (cursor,) = here.room.node.stream_keeper.registry.get("s").consumers
        assert (cursor.receivers, here.jetstream.waiting(cursor)) == (0, 0)
        assert not here.jetstream._queues
        await puller.pull(batch=1)
        await puller.nothing()
        assert (cursor.receivers, here.jetstream.waiting(cursor)) == (1, 1)
        await puller.pull(batch=1)
        await here.fill(b"2", b"3")
        assert await payloads(puller, 2) == [b"2", b"3"]
        await puller.nothing()
        assert not here.jetstream._queues
        timers = here.jetstream.scheduler.timers
        await puller.pull(batch=1, expires=3600 * SECOND)
        await puller.nothing()
        await here.fill(b"4")
        assert await payloads(puller, 1) == [b"4"]
        assert here.jetstream.scheduler.timers == timers, "no hour later"
        await puller.pull(batch=1, expires=SECOND)
        assert (await puller.got()).status == "408 Request Timeout"
        assert not cursor.watchers


async def test_messages_that_have_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the store, while several wait for them."""
    async with jetstream_room() as here:
        many = [b"%d" % number for number in range(300)]
        await here.fill(*many)
        stream = here.room.node.stream_keeper.registry.get("s")
        await here.streams.get("s", 1)
        stream.log.memory.__init__(0)  # type: ignore[misc]
        with pytest.raises(MessageNotFound):
            await here.streams.get("s", 999)
        reads: list[int] = []
        fetch = pulling.fetch

        async def count_reads(stream: Any, host: Any, needed: int) -> None:
            reads.append(needed)
            await trio.testing.wait_all_tasks_blocked()  # all that wait have come
            await fetch(stream, host, needed)

        monkeypatch.setattr(pulling, "fetch", count_reads)
        one, two = await here.puller(), await here.puller()
        await one.consumer()
        await one.pull(batch=50)
        await one.pull(batch=50)
        await two.pull(batch=200)
        found = await payloads(one, 100) + await payloads(two, 200)
        assert sorted(found, key=int) == many
        assert len(reads) == len(set(reads)), "each once"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"min_pending": 5}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"min_ack_pending": 5}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"id": "x"}, "400 Bad Request - Not a Pinned Client Priority consumer"),
    ],
)
async def test_what_only_members_of_priority_groups_ask_for(asked: dict[str, Any], status: str) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.fill(b"1")
        await puller.consumer()
        await puller.pull(batch=1, **asked)
        assert (await puller.got()).status == status


async def test_a_pull_that_needs_a_higher_level() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.fill(b"1")
        await puller.consumer()
        got = await puller.ask("$JS.API.CONSUMER.MSG.NEXT.s.c", {"batch": 1}, Nats_Required_Api_Level="3")
        assert got.status == "412 Required Api Level"
