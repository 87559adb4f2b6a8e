"""Answers go to the asker alone, and what a stream gives is what the asker might subscribe to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import trio

from tests.broker.nats.jetstream.pulled import jetstream_room

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_answer_is_heard_by_nobody_else() -> None:
    async with jetstream_room() as here:
        wire = await here.room.wire("reader")
        await wire.subscribe("r/#")
        asking, other = await here.puller(), await here.puller()
        assert (await asking.api("STREAM.INFO.s"))["config"]["name"] == "s"
        await other.nothing()
        await wire.ping()


async def test_a_stored_message_is_not_sent_to_a_topic_that_its_reader_may_not_publish_to(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["command/#"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.fill(b"stop")
        wire = await here.room.wire("machine")
        await wire.subscribe("command/#")
        puller = await here.puller()
        await puller.consumer()
        await puller.publish("$JS.API.CONSUMER.MSG.NEXT.s.c", {"batch": 1}, "command.x")
        await puller.publish("$JS.API.STREAM.MSG.GET.s", {"seq": 1}, "command.x")
        await puller.nothing()
        said = {"stream_name": "s", "config": {"deliver_subject": "command.x"}}
        refused = await puller.api("CONSUMER.CREATE.s", said)
        assert refused["error"]["code"] == 403
        await wire.ping()


async def test_the_first_of_its_subscriptions_gets_it_once() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB r.* 2", b"SUB r.x 3")
        await puller.api("STREAM.INFO.s")
        await puller.nothing()


async def test_a_client_that_hears_everything_gets_answers_at_its_inbox() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"UNSUB 1", b"SUB > 2", b"SUB r.* 4", b"SUB x.> 5")
        for sid in ("4", "4", "6"):  # the second one by what is remembered
            if sid == "6":
                await puller.say(b"SUB q.> 7", b"SUB q.a.b 6")
            await puller.publish("$JS.API.STREAM.INFO.s", b"", "q.a.b" if sid == "6" else "r.x")
            assert (await puller.got()).sid == sid
        await puller.nothing()


async def test_an_inbox_that_is_not_subscribed_to_any_more() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"UNSUB 1", b"SUB r.* 2")
        assert [(await puller.ask("$JS.API.STREAM.INFO.s")).sid for _ in range(2)] == ["2", "2"]
        await puller.say(b"UNSUB 2", b"SUB r.> 3")
        assert (await puller.ask("$JS.API.STREAM.INFO.s")).sid == "3"


async def test_a_subscription_for_one_answer_ends_with_it() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"UNSUB 1 1")
        await puller.api("STREAM.INFO.s")
        await puller.publish("$JS.API.STREAM.INFO.s", b"", "r.y")
        await puller.nothing()
        assert here.room.node.router.subscriptions == 0


async def test_requests_are_answered_in_order_and_what_follows_waits() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB a 2")
        for number in range(20):
            await puller.publish("$JS.API.STREAM.PURGE.s", b"", f"r.{number}")
            await puller.publish("a", b"%d" % number)
        for number in range(20):
            answer = await puller.got()
            assert (answer.subject, json.loads(answer.payload)["purged"]) == (f"r.{number}", 0)
            assert (await puller.got()).payload == b"%d" % number


async def test_one_client_without_headers() -> None:
    async with jetstream_room() as here:
        other = await here.puller()
        await other.publish("s.a", b"1", Unit="C")
        await other.nothing()
        puller = await here.puller(headers=False, no_responders=False)
        await puller.consumer()
        await puller.pull(batch=2, no_wait=True)
        got = [await puller.got(), await puller.got()]
        assert [(each.subject, each.block, each.payload) for each in got] == [("s.a", b"", b"1"), ("r.p", b"", b"")]


async def test_one_that_does_not_read_is_not_given_more() -> None:
    async with jetstream_room() as here:
        for _ in range(300):
            await here.streams.publish("s/a", b"x" * 100_000)
        slow, other = await here.puller(), await here.puller()
        slow.speaker.narrow()
        await slow.consumer(max_ack_pending=-1)
        await slow.pull(batch=1000)
        for _ in range(50):
            info = await other.api("CONSUMER.INFO.s.c")
        assert info["num_pending"] > 100
        assert max(each.pending for each in here.room.connections) < 12_000_000


async def test_it_leaves_in_the_middle_of_a_request() -> None:
    async with jetstream_room() as here:
        puller, other = await here.puller(), await here.puller()
        for number in range(50):
            made = {"name": f"t{number}", "subjects": [f"t.{number}"]}
            await puller.publish(f"$JS.API.STREAM.CREATE.t{number}", made, "r.1")
        await puller.speaker.leave()
        while len(here.room.connections) > 1:
            await trio.lowlevel.checkpoint()
        assert (await other.api("STREAM.NAMES"))["total"] >= 1


async def test_rights_that_are_taken_away(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    everything = '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    rules.write_text(everything)
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.fill(b"1", b"2")
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=1)
        assert (await puller.got()).payload == b"1"
        rules.write_text('[[rule]]\npermit = "deny"\naction = "subscribe"\ntopics = ["s/#"]\n' + everything)
        here.room.broker.node.reconfiguring.reload()
        await puller.pull(batch=1)
        assert (await puller.got()).status.startswith("409 permissions violation")
        assert (await puller.api("STREAM.MSG.GET.s", {"seq": 1})).get("error", {}).get("code") == 403
