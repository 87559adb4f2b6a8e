"""Access decisions that take time: the client that asks waits, its packets stay in order, nobody else notices."""

from collections import deque
from collections.abc import Callable

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.hooks.registration import Callback

SECONDS = 10


class Judge:
    """Says yes to all but `no/…`, after ten seconds."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny:
        self.asked.append((client.client_id, action, topic))
        await trio.sleep(SECONDS)
        return Deny() if topic.startswith("no") else ALLOW


def judged(judge: Callback) -> Hooks:
    hooks = Hooks()
    hooks.add("client.check_acl", judge, filter=lambda client, *_: not client.client_id.startswith("free"))
    return hooks


@pytest.mark.parametrize("cache_size", [0, 1, 100])
async def test_packets_stay_in_order_while_a_client_waits(autojump_clock: MockClock, cache_size: int) -> None:
    judge = Judge()
    async with room(hooks=judged(judge), acl={"cache_size": cache_size}) as here:
        watcher = await here.client("w")
        assert await watcher.subscribe(("#", 0)) == [0]
        client = await here.client("a")
        topics = ["a", "a", "no/1", "b", "a", "c"]
        await client.send(
            *[raw.publish(topic, b"%d" % n, qos=1, packet_id=n + 1) for n, topic in enumerate(topics)], raw.PINGREQ
        )
        answers = [await client.receive() for _ in range(len(topics) + 1)]
        assert [(answer.type, answer.packet_id) for answer in answers[:-1]] == [
            (raw.PUBACK, number) for number in range(1, 7)
        ]
        assert [answer.reason for answer in answers[:-1]] == [0, 0, 0x87, 0, 0, 0]
        assert answers[-1].type == raw.PINGRESP[0]
        for n, topic in enumerate(topics):
            if topic != "no/1":
                await watcher.expect_publish(topic, b"%d" % n)
        await watcher.expect_nothing()
        received = here.node.metrics.messages_in
        assert received == [0, 6, 0]  # each counted once, however often it was looked at
        publishes = [topic for who, action, topic in judge.asked if action == "publish"]
        asked = {0: topics, 1: ["a", "no/1", "b", "a", "c"], 100: ["a", "no/1", "b", "c"]}
        assert publishes == asked[cache_size]


async def test_nobody_else_waits(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        free, client = await here.client("free"), await here.client("a")
        await free.subscribe(("t", 0))
        began = trio.current_time()
        await client.send(raw.publish("t", b"slow"))
        await free.publish("t", b"quick")
        await free.expect_publish("t", b"quick")
        assert trio.current_time() == began
        await free.expect_publish("t", b"slow")
        assert trio.current_time() >= began + SECONDS


async def test_subscribing_waits_for_each_filter(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        client = await here.client("a")
        assert await client.subscribe(("yes/#", 1), ("no/#", 1), ("$share/g/no", 0)) == [1, 0x87, 0x87]
        assert [topic for _, _, topic in judge.asked] == ["yes/#", "no/#", "no"]
        assert here.node.metrics.packets_subscribe_auth_error == 2


async def test_an_async_callback_is_not_asked_about_deliveries(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        here.broker.publish("yes/1", b"kept", retain=True)
        client = await here.client("a")
        await client.subscribe(("yes/#", 0))
        await client.expect_publish("yes/1", b"kept")
        here.broker.publish("yes/2", b"live")
        await client.expect_publish("yes/2", b"live")
        assert [action for _, action, _ in judge.asked] == ["subscribe"]


@pytest.mark.parametrize("topic", ["yes", "no"])
async def test_a_will_is_asked_about_when_its_session_is_gone(autojump_clock: MockClock, topic: str) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        watcher = await here.client("free")
        await watcher.subscribe(("#", 0))
        client = await here.client("a", will=raw.Will(topic, b"gone"))
        await client.abort()
        if topic == "yes":
            await watcher.expect_publish("yes", b"gone")
        else:
            await trio.sleep(10 * SECONDS)
            await watcher.expect_nothing()
        assert judge.asked == [("a", "publish", topic)]


async def test_a_will_is_asked_about_before_the_broker_ends() -> None:
    asked, seen = trio.Event(), deque[bytes]()

    async def judge(client: ClientInfo, *_: object) -> Allow:
        await trio.lowlevel.checkpoint()
        asked.set()
        return ALLOW

    hooks = judged(judge)
    hooks.add("message.routed", lambda message, receivers: seen.append(message.payload))
    async with room(hooks=hooks) as here:
        await here.client("a", will=raw.Will("t", b"gone"))
    assert asked.is_set()
    assert list(seen) == [b"gone"]


async def test_a_client_that_leaves_while_it_waits(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x", qos=1, packet_id=1))
        await client.abort()
        again = await here.client("a")
        await again.publish("t", b"y", qos=1)
        assert [topic for _, _, topic in judge.asked] == ["t", "t"]


@pytest.mark.parametrize("wait", [lambda: _crash, lambda: _nonsense])
async def test_a_callback_that_fails_denies(wait: Callable[[], Callback]) -> None:
    async with room(hooks=judged(wait())) as here:
        client = await here.client("a")
        answer = await client.publish("t", b"x", qos=1)
        assert answer is not None
        assert answer.reason == 0x87
        assert await client.subscribe(("t", 0)) == [0x87]
        assert len(here.broker.hook_errors) == 2
        here.broker.hook_errors.clear()


async def test_a_denial_for_want_of_an_answer_is_for_that_message_alone(autojump_clock: MockClock) -> None:
    answers = [5 * SECONDS, 0]

    async def judge(*_: object) -> Allow:
        await trio.sleep(answers.pop(0))
        return ALLOW

    async with room(hooks=judged(judge), acl={"timeout": SECONDS}) as here:
        client = await here.client("a")
        for expected in (0x87, 0x10, 0x10):
            answer = await client.publish("t", b"x", qos=1)
            assert answer is not None
            assert answer.reason == expected
        assert not answers


async def _crash(*_: object) -> Allow:
    raise RuntimeError("down")


async def _nonsense(*_: object) -> str:
    return "yes"


async def test_superusers_and_decisions_that_are_forgotten(autojump_clock: MockClock) -> None:
    judge = Judge()
    hooks = judged(judge)

    @hooks.on("client.connected")
    def promote(client: ClientInfo) -> None:
        client.superuser = client.client_id == "root"

    async with room(hooks=hooks) as here:
        root = await here.client("root")
        await root.publish("no/1", b"", qos=1)
        assert await root.subscribe(("no/#", 0)) == [0]
        assert judge.asked == []
        client = await here.client("a")
        for _ in range(3):
            await client.publish("t", b"", qos=1)
        assert len(judge.asked) == 1
        here.node.clients.forget_decisions("a")
        await client.publish("t", b"", qos=1)
        assert len(judge.asked) == 2
