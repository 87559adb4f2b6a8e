"""Answers go to the asker alone, and what a stream gives is what the asker might subscribe to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.jetstream.asker import Asker
from trunkline.mqtt.message import Message
from trunkline.nats.jetstream.replies import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from trunkline.broker.session.access import Question


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


async def test_a_subscription_for_one_subject_gets_nothing_else() -> None:
    """It is not remembered for those beside it."""
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"UNSUB 1", b"SUB r.* 2", b"SUB r.x 3")
        for subject, sid in (("r.x", "3"), ("r.y", "2"), ("r.z", "2")):
            await puller.publish("$JS.API.STREAM.INFO.s", b"", subject)
            assert (await puller.got()).sid == sid


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


# What it says, and what it asks the rules


class Line:
    """A client's connection that does what a test says."""

    def __init__(self) -> None:
        self.is_over = False
        self.pending = 0
        self.pieces: list[bytes] = []
        self.sent: list[bytes] = []
        self.written: list[int] = []
        #: What waits for a turn of the client's own.
        self.turns: list[Callable[[], object]] = []
        self.tasks: list[tuple[Any, ...]] = []

    def soon(self, action: Callable[[], object]) -> None:
        self.turns.append(action)

    def wrote(self, size: int) -> None:
        self.written.append(size)

    def flush(self) -> None:
        self.sent += self.pieces
        self.pieces.clear()

    def ask(self, *asked: Any, in_task: bool, is_hook: bool) -> None:
        self.tasks.append((*asked, in_task, is_hook))


class Rules:
    """They allow what is not among the `denied`, and count what they are asked."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.asked: list[str] = []

    async def refusal(self, question: Question) -> str | None:
        await trio.lowlevel.checkpoint()
        assert question.action == "subscribe"
        self.asked.append(question.topic)
        return "no" if question.topic in self.denied else None

    def may_read(self, channel: object, topic: str) -> bool:
        return topic not in self.denied


@dataclass
class Scene:
    asker: Asker
    line: Line
    rules: Rules
    channel: SimpleNamespace
    subscriptions: SimpleNamespace
    messages_out: list[int]
    dropped: list[tuple[object, Message, DropReason]]


def scene(*denied: str) -> Scene:
    """A client with the subscription `r.*`, whose id is 1."""
    line, rules, dropped = Line(), Rules(*denied), list[tuple[object, Message, DropReason]]()
    channel = SimpleNamespace(rules=1, may_read=dict[str, bool](), client="me")
    metrics = SimpleNamespace(messages_out=[0, 0, 0])
    services = SimpleNamespace(access=rules, metrics=metrics, dropped=lambda *what: dropped.append(what))
    standing = SimpleNamespace(
        channel=channel,
        services=services,
        pressure=SimpleNamespace(high_bytes=100),
        terms=SimpleNamespace(headers=True),
    )
    subscription = SimpleNamespace(subject="r.*", sid=b"1", delivered=0, maximum=0)
    subscriptions = SimpleNamespace(by_sid={b"1": subscription})
    asker = Asker(standing, line, subscriptions)  # type: ignore[arg-type]
    return Scene(asker, line, rules, channel, subscriptions, metrics.messages_out, dropped)


async def test_an_answer_is_counted_and_its_size_is_told() -> None:
    here = scene()
    here.asker.answer(b"r.x", b"17")
    here.asker.answer(b"q.x", b"to nobody")
    here.asker.answer(b"", b"to nobody")
    piece = b"MSG r.x 1 2\r\n17\r\n"
    assert (here.line.pieces, here.line.written, here.messages_out) == ([piece], [len(piece)], [1, 0, 0])


class Looks(dict[bytes, Any]):
    """Subscriptions, and how often they were looked through."""

    count = 0

    def values(self) -> Any:
        self.count += 1
        return super().values()


async def test_where_answers_go_is_looked_up_once() -> None:
    here = scene()
    looks = here.subscriptions.by_sid = Looks(here.subscriptions.by_sid)
    for subject in (b"r.x", b"r.x", b"r.y"):
        here.asker.answer(subject, b"17")
    assert (len(here.line.pieces), looks.count) == (3, 1)


@pytest.mark.parametrize("is_over", [False, True])
async def test_it_is_over_with_its_connection(is_over: bool) -> None:
    here = scene()
    here.line.is_over = is_over
    assert here.asker.is_over is is_over


async def test_requests_may_take_long() -> None:
    """Longer than what hooks may."""
    here, question, answered = scene(), object(), object()
    here.asker.ask(question, answered)  # type: ignore[arg-type]
    assert here.line.tasks == [(question, answered, True, False)]


async def test_several_answers_leave_in_one_turn_and_the_next_ones_when_they_are_read(
    autojump_clock: MockClock,
) -> None:
    here = scene()
    for pending in (100, 101):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.asker.pour, b"r.x", [(b"1", b""), (b"2", b"")])
            await wait_all_tasks_blocked()
            assert here.line.sent == []
            here.line.pending = pending
            (turn,) = here.line.turns
            turn()
            assert here.line.sent == [b"MSG r.x 1 1\r\n1\r\n", b"MSG r.x 1 1\r\n2\r\n"]
            await wait_all_tasks_blocked()
            assert bool(nursery.child_tasks) is (pending > 100)
            here.asker.drained()
        here.line.turns.clear()
        here.line.sent.clear()


async def test_what_is_drained_before_anything_was_poured() -> None:
    scene().asker.drained()


async def test_rules_are_asked_once_for_each_filter() -> None:
    """Until they are others."""
    here = scene()
    here.channel.rules = 0
    assert here.asker.may_consume_at_once(["a"]) is False
    await here.asker.check_filters(["a", "b"])
    await here.asker.check_filters(["a", "c", "b", "d"])
    assert here.rules.asked == ["a", "b", "c", "d"]
    assert here.asker.may_consume_at_once(["d", "a"]) is True
    assert here.asker.may_consume_at_once(["a", "e"]) is False
    here.channel.rules = 7
    assert here.asker.may_consume_at_once(["a"]) is False
    await here.asker.check_filters(["a"])
    assert here.rules.asked[4:] == ["a"]
    assert here.asker.may_consume_at_once(["a"]) is True


async def test_a_filter_that_may_not_be_subscribed_to() -> None:
    here = scene("b")
    for _ in range(2):
        with pytest.raises(ApiError, match="permissions violation for subscription to the topic filter 'b'") as caught:
            await here.asker.check_filters(["a", "b", "c"])
        assert (caught.value.code, caught.value.err_code) == (403, 0)
    assert here.rules.asked == ["a", "b", "b"]
    assert not here.asker.may_consume_at_once(["b"])


async def test_a_message_that_may_not_be_read() -> None:
    here = scene("b")
    for topic in ("a", "b", "c"):
        here.channel.may_read["c"] = False
        message = Message(topic, b"x")
        if topic == "b":
            with pytest.raises(ApiError, match="permissions violation for subscription to 'b'") as caught:
                await here.asker.check_message(message)
            assert (caught.value.code, caught.value.err_code) == (403, 0)
            assert here.dropped == []
            assert here.asker.may_read(message) is False
            assert here.dropped == [("me", message, DropReason.READ_NOT_AUTHORIZED)]
            here.channel.may_read["b"] = True  # it is known
            assert here.asker.may_read(message) is True
        else:
            await here.asker.check_message(message)
            assert here.asker.may_read(message) is True
    assert here.rules.asked == ["a", "b", "c"]
    assert len(here.dropped) == 1


async def test_a_message_that_may_be_subscribed_to_and_not_read() -> None:
    here = scene()
    here.rules.may_read = lambda *_: False  # type: ignore[method-assign]
    with pytest.raises(ApiError, match="permissions violation"):
        await here.asker.check_message(Message("a", b"x"))
    assert len(here.dropped) == 1
