"""SUB and UNSUB."""

import pytest
import trio

from tests.broker.nats.speaking import nats_room
from trunkline.broker.nats.subscriptions import MOST_ALIKE
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.reasons import Reason


async def test_each_subscription_gets_its_copy() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB a.b 1", b"SUB a.b 2", b"SUB a.* 3", b"SUB a.> 4", b"SUB * 5", b"PUB a.b 1", b"x")
        found = (await speaker.said()).split(b"MSG ")[1:]
        assert sorted(found) == [b"a.b %d 1\r\nx\r\n" % number for number in (1, 2, 3, 4)]
        assert here.node.router.subscriptions == 4
        assert {each.filter for each in here.broker.subscriptions} == {"a/b", "a/+", "a/+/#", "+"}


async def test_one_subject_is_not_copied_without_end() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(*[b"SUB a %d" % number for number in range(MOST_ALIKE)])
        assert await speaker.said() == b""
        await speaker.say(b"SUB a more", b"SUB b other")
        assert await speaker.said() == b"-ERR 'maximum subscriptions exceeded'\r\n"
        await speaker.say(b"UNSUB 0", b"SUB a again", b"PUB a 0", b"")
        said = await speaker.said()
        assert (said.count(b"MSG a "), b"-ERR" in said) == (MOST_ALIKE, False)


async def test_a_subscription_ends() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"SUB a 2", b"UNSUB 1", b"UNSUB 1", b"UNSUB 9", b"PUB a 0", b"")
        assert await speaker.said() == b"MSG a 2 0\r\n\r\n"
        await speaker.say(b"UNSUB 2", b"SUB a 3", b"PUB a 0", b"")
        assert await speaker.said() == b"MSG a 3 0\r\n\r\n"
        await speaker.say(b"UNSUB 3", b"PUB a 0", b"")
        assert await speaker.said() == b""
        assert here.node.router.subscriptions == 0
        assert here.node.metrics.client_unsubscribe == here.node.metrics.client_subscribe == 2


async def test_a_subscription_ends_behind_so_many_messages() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"SUB a 2", b"UNSUB 1 2", *[b"PUB a 0", b""] * 3)
        assert (await speaker.said()).count(b"MSG a 1 ") == 2
        await speaker.say(b"UNSUB 2 3", b"PUB a 0", b"")
        assert await speaker.said() == b""
        assert here.node.router.subscriptions == 0


async def test_a_queue_group() -> None:
    async with nats_room() as here:
        one, two = await here.speaker(), await here.speaker()
        await one.say(b"SUB a q 1", b"SUB a q 2", b"SUB a 3")
        await two.say(b"SUB a q 1")
        said = [await one.said(), await two.said()]
        assert said == [b"", b""]
        await one.say(*[b"PUB a 0", b""] * 40)
        mine, other = await one.said(), await two.said()
        assert mine.count(b"MSG a 3 ") == 40
        shares = [mine.count(b"MSG a 1 "), mine.count(b"MSG a 2 "), other.count(b"MSG a 1 ")]
        assert sum(shares) == 40
        assert all(shares)


async def test_a_group_on_two_subjects_that_match_is_two_groups() -> None:
    async with nats_room() as here:
        one, two = await here.speaker(), await here.speaker()
        await one.say(b"SUB a.b q 1")
        await two.say(b"SUB a.* q 1")
        assert [await one.said(), await two.said()] == [b"", b""]
        await one.say(*[b"PUB a.b 0", b""] * 4)
        assert [(await each.said()).count(b"MSG a.b 1 ") for each in (one, two)] == [4, 4]


async def test_the_strategy_of_shared_subscriptions_chooses_the_member() -> None:
    async with nats_room(shared={"strategy": "sticky"}) as here:
        speakers = [await here.speaker() for _ in range(3)]
        for speaker in speakers:
            await speaker.say(b"SUB a q 1")
            assert await speaker.said() == b""
        await speakers[0].say(*[b"PUB a 0", b""] * 10)
        assert sorted([(await each.said()).count(b"MSG a 1 ") for each in speakers]) == [0, 0, 10]


async def test_no_echo_lets_another_member_have_it() -> None:
    async with nats_room() as here:
        one, two = await here.speaker(echo=False), await here.speaker()
        await one.say(b"SUB a q 1", b"SUB b 2")
        await two.say(b"SUB a q 1")
        assert [await one.said(), await two.said()] == [b"", b""]
        await one.say(*[b"PUB a 0", b""] * 10, b"PUB b 0", b"")
        assert await one.said() == b""
        assert (await two.said()).count(b"MSG a 1 ") == 10


@pytest.mark.parametrize(
    "line", [b"SUB a..b 1", b"SUB .a 1", b"SUB a. 1", b"SUB >.a 1", b"SUB a/b 1", b"SUB a b/c 1", b"SUB \xff 1"]
)
async def test_what_is_no_subject(line: bytes) -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(line)
        assert await speaker.said() == b"-ERR 'Invalid Subject'\r\n"
        assert here.node.router.subscriptions == 0


async def test_limits() -> None:
    async with nats_room(session={"max_subscriptions": 2}, limits={"max_subscriptions": 3}) as here:
        one, two = await here.speaker(), await here.speaker()
        await one.say(b"SUB a 1", b"SUB b 2", b"SUB c 3")
        await two.say(b"SUB a 1")
        assert await one.said() == b"-ERR 'maximum subscriptions exceeded'\r\n"
        assert await two.said() == b""
        await two.say(b"SUB d 2")
        assert await two.said() == b"-ERR 'maximum subscriptions exceeded'\r\n"
        assert here.node.router.subscriptions == 3
        await two.say(b"UNSUB 1", b"SUB d 2", b"PUB d 0", b"")
        assert await two.said() == b"MSG d 2 0\r\n\r\n"


def deny(client: ClientInfo, request: SubscriptionRequest, *_: object) -> Deny | Withhold | SubscriptionRequest:
    if request.filter == "deny":
        return Deny(Reason.NOT_AUTHORIZED)
    if request.filter == "withhold":
        return Withhold(Reason.SUCCESS)
    if request.filter == "close":
        return Deny(Reason.NOT_AUTHORIZED, disconnect=True)
    return SubscriptionRequest("other") if request.filter == "change" else request


async def deny_later(client: ClientInfo, request: SubscriptionRequest, *more: object) -> object:
    await trio.lowlevel.checkpoint()
    return deny(client, request, *more)


@pytest.mark.parametrize("hook", [deny, deny_later])
async def test_hooks_decide(hook: object) -> None:
    async with nats_room() as here:
        here.node.hooks.add("client.subscribe", hook)  # type: ignore[arg-type]
        speaker = await here.speaker()
        await speaker.say(
            b"SUB deny 1", b"SUB withhold 2", b"SUB change 3", b"PUB other 0", b"", b"PUB withhold 0", b""
        )
        refused = b"-ERR 'Permissions Violation for Subscription to \"deny\"'\r\n"
        assert await speaker.said() == refused + b"MSG other 3 0\r\n\r\n"
        assert [each.filter for each in here.broker.subscriptions] == ["other"]
        assert here.node.metrics.packets_subscribe_auth_error == 1
        await speaker.say(b"SUB close 4")
        assert await speaker.rest() == b"-ERR 'Permissions Violation for Subscription to \"close\"'\r\n"


async def test_rules_that_change_take_subscriptions_away() -> None:
    allowed = {"a", "b"}

    def check(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return None if topic in allowed else Deny(Reason.NOT_AUTHORIZED)

    for waits in (False, True):
        async with nats_room() as here:

            async def check_later(*asked: object) -> Deny | None:
                await trio.lowlevel.checkpoint()
                return check(*asked)  # type: ignore[arg-type]

            here.node.hooks.add("client.check_acl", check_later if waits else check)  # type: ignore[arg-type]
            allowed |= {"a", "b"}
            speaker = await here.speaker()
            await speaker.say(b"SUB a 1", b"SUB b 2", b"SUB c 3", b"PUB a 0", b"", b"PUB c 0", b"")
            refused = b"-ERR 'Permissions Violation for Subscription to \"c\"'\r\n"
            publish = b"-ERR 'Permissions Violation for Publish to \"c\"'\r\n"
            assert await speaker.said() == refused + b"MSG a 1 0\r\n\r\n" + publish
            allowed -= {"b"}
            here.node.clients.forget_decisions()
            await speaker.expect(b"-ERR 'Permissions Violation for Subscription to \"b\"'")
            assert await speaker.said() == b""
            assert [each.filter for each in here.broker.subscriptions] == ["a"]


async def test_a_denied_unsubscribe_leaves_it() -> None:
    async with nats_room() as here:
        here.node.hooks.add("client.unsubscribe", lambda *_: Deny(Reason.NOT_AUTHORIZED))
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1", b"UNSUB 1", b"PUB a 0", b"")
        assert await speaker.said() == b"MSG a 1 0\r\n\r\n"
