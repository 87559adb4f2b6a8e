"""What hooks, settings and access rules say to a SUBSCRIBE or UNSUBSCRIBE."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.hooks import ClientInfo, Deny
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason


def into_own_corner(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> SubscriptionRequest:
    return replace(request, filter=f"{client.client_id}/{request.filter}", qos=0)


async def test_hooks_replace_and_refuse_each_filter_by_itself() -> None:
    def no_secrets(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> Deny | None:
        return Deny(Reason.QUOTA_EXCEEDED, "not that one") if request.filter == "secret" else None

    async with room() as here:
        here.node.hooks.add("client.subscribe", no_secrets, priority=1)
        here.node.hooks.add("client.subscribe", into_own_corner)
        client = await here.client("a")
        await client.send(raw.subscribe(1, ("t", 2), ("secret", 2)))
        suback = await client.expect_type(raw.SUBACK)
        assert suback.reasons == [0, 0x97]
        assert b"not that one" in suback.data
        assert list(here.session("a").session.subscriptions) == ["a/t"]
        here.broker.publish("a/t", b"x", qos=2)
        await client.expect_publish("a/t", b"x")


async def test_a_filter_that_a_hook_made_too_deep_is_refused() -> None:
    async with room(mqtt={"max_topic_levels": 3}) as here:
        here.node.hooks.add("client.subscribe", lambda client, request, properties: replace(request, filter="a/b/c/d"))
        client = await here.client("a")
        assert await client.subscribe("t") == [0x8F]


async def test_hooks_at_unsubscribe() -> None:
    async def keep(client: ClientInfo, filter: str, properties: Properties) -> str | Deny | None:
        await trio.lowlevel.checkpoint()
        return Deny(Reason.NOT_AUTHORIZED) if filter == "forced" else filter.lower()

    async with room() as here:
        here.node.hooks.add("client.unsubscribe", keep)
        ended: list[str] = []
        here.node.hooks.add("session.unsubscribed", lambda client, filter: ended.append(filter))
        client = await here.client("a")
        await client.subscribe("forced", "t")
        await client.send(raw.unsubscribe(5, "forced", "T"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0x87, 0]
        assert (list(here.session("a").session.subscriptions), ended) == (["forced"], ["t"])


async def test_a_question_mark_is_a_letter_where_no_hook_makes_more_of_it() -> None:
    async with room() as here:
        client = await here.client("a")
        assert await client.subscribe(("a?b", 0)) == [0]
        await client.publish("a?b")
        await client.expect_publish("a?b")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("filter", "reason"),
    [
        *(
            (filter, 0x81)
            for filter in (
                "",
                "#/a",
                "a+",
                "$share//a",
                "$share/g",
                "$share/g/",
                "$queue/",
                "$share/+/a",
                "a/#?",
                "a/#?x",
            )
        ),
        *((filter, 0x8F) for filter in ("a/b/c/d", "$share/g/a/b/c/d")),
    ],
)
async def test_what_is_no_topic_filter_ends_the_connection_before_any_hook_sees_it(
    version: int, filter: str, reason: int
) -> None:
    async with room(mqtt={"max_topic_levels": 3}) as here:
        seen: list[object] = []
        here.node.hooks.add("client.subscribe", lambda client, request, properties: seen.append(request))
        here.node.hooks.add("client.unsubscribe", lambda client, filter, properties: seen.append(filter))
        for packet in (
            raw.subscribe(1, ("good", 0), (filter, 0), version=version),
            raw.unsubscribe(1, "good", filter, version=version),
        ):
            client = await here.client("a", version=version)
            await client.send(packet)
            await client.expect_disconnect(reason)
        assert seen == []


async def test_a_form_of_filters_that_somebody_knows() -> None:
    async with room() as here:
        hooks = here.node.hooks
        hooks.add("client.read_filter", lambda client, filter: filter.removesuffix("!"))
        hooks.add(
            "client.subscribe",
            lambda client, request, properties: replace(request, filter=request.filter.removesuffix("!")),
        )
        client = await here.client("a")
        assert await client.subscribe(("a/#!", 1)) == [1]
        await client.publish("a/b")
        await client.expect_publish("a/b")
        await client.send(raw.subscribe(1, ("#/a!", 1)))  # what is left must be one
        await client.expect_disconnect(0x81)


@pytest.mark.parametrize("count", [FILTERS_AT_ONCE - 1, FILTERS_AT_ONCE, FILTERS_AT_ONCE + 1])
async def test_as_many_filters_as_are_decided_at_once(count: int) -> None:
    filters = [f"t/{number}" for number in range(count)]
    async with room() as here:
        client = await here.client("a")
        await client.send(raw.subscribe(1, *[(filter, 1) for filter in filters]))
        assert (await client.expect_type(raw.SUBACK)).reasons == [1] * count
        await client.send(raw.unsubscribe(2, *filters))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0] * count
        assert here.node.router.subscriptions == 0


async def test_a_plain_callback_that_returns_something_to_be_awaited_is_passed_over() -> None:
    async with room() as here:
        wait = trio.lowlevel.checkpoint
        here.node.hooks.add("client.subscribe", lambda client, request, properties: wait())
        client = await here.client("a")
        assert await client.subscribe(("t", 1)) == [1]
        assert len(here.broker.hook_errors) == 1
        here.broker.hook_errors.clear()


async def test_a_filter_that_is_denied_may_look_granted() -> None:
    async with room(mqtt={"subscribe_denied": "grant", "max_qos": 1}) as here:
        here.node.hooks.add("client.check_acl", lambda client, action, *_: Deny() if action == "subscribe" else None)
        here.broker.publish("t", b"x", retain=True)
        client = await here.client("a")
        assert await client.subscribe(("t", 2)) == [1]
        here.broker.publish("t", b"y")
        await client.expect_nothing()


async def test_what_is_denied_after_a_while_may_look_granted(autojump_clock: MockClock) -> None:
    async def check(client: ClientInfo, action: str, *_: object) -> Deny | None:
        await trio.sleep(1)
        return Deny() if action == "subscribe" else None

    async with room(mqtt={"subscribe_denied": "grant", "max_qos": 1}) as here:
        here.node.hooks.add("client.check_acl", check)
        client = await here.client("a")
        assert await client.subscribe(("t", 2), ("u", 0)) == [1, 0]
        assert not here.node.router.subscriptions
