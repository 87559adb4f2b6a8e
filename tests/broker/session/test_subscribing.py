"""SUBSCRIBE and UNSUBSCRIBE: what hooks and limits make of them."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session import mail
from trunkline.hooks import ClientInfo, Deny, Hooks
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.streams import StreamConfig


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


async def test_who_waits_for_a_hook_waits_alone_and_in_order() -> None:
    answer, asked = trio.Event(), trio.Event()

    async def slow(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        if client.client_id == "slow":
            asked.set()
            await answer.wait()

    async with room() as here:
        here.node.hooks.add("client.subscribe", slow)
        waiting, other = await here.client("slow"), await here.client("other")
        await waiting.send(raw.subscribe(1, ("t", 0)), raw.publish("t", b"1"), raw.PINGREQ, raw.subscribe(2, ("u", 0)))
        await asked.wait()
        await other.subscribe("t")
        await other.publish("u", b"2", qos=1)
        assert here.session("slow").session.subscriptions == {}
        answer.set()
        assert (await waiting.expect_type(raw.SUBACK)).packet_id == 1
        await waiting.expect_publish("t", b"1")
        await waiting.expect(raw.PINGRESP)
        assert (await waiting.expect_type(raw.SUBACK)).packet_id == 2


async def test_who_is_taken_over_while_it_waits_gets_no_answer() -> None:
    answer, asked = trio.Event(), trio.Event()

    async def slow(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        asked.set()
        await answer.wait()

    async with room() as here:
        here.node.hooks.add("client.subscribe", slow)
        old = await here.stay("a")
        await old.send(raw.subscribe(1, ("t", 0)))
        await asked.wait()
        new = await here.stay("a")
        await old.expect_disconnect(0x8E)
        answer.set()
        await new.ping()
        assert here.session("a").session.subscriptions == {}


async def test_no_more_subscriptions_than_allowed() -> None:
    async with room(session={"max_subscriptions": 2}) as here:
        client = await here.client("a")
        assert await client.subscribe("1", "2", "3") == [2, 2, 0x97]
        assert await client.subscribe(("1", 0), ("3", 0)) == [0, 0x97]  # renewing one needs no room
        await client.send(raw.unsubscribe(5, "2", "unknown"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0, 0x11]
        assert await client.subscribe("3") == [2]


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


async def test_a_hook_may_end_the_connection_in_place_of_an_answer() -> None:
    def cut(client: ClientInfo, request: object, properties: Properties) -> Deny | None:
        wanted = request.filter if isinstance(request, SubscriptionRequest) else request
        return Deny(Reason.SERVER_BUSY, "enough", disconnect=True) if wanted == "bad" else None

    async with room() as here:
        here.node.hooks.add("client.subscribe", cut)
        here.node.hooks.add("client.unsubscribe", cut)
        client = await here.stay("a")
        await client.send(raw.subscribe(1, ("good", 0), ("bad", 0)))
        assert b"enough" in (await client.expect_disconnect(0x89)).data  # type: ignore[union-attr]
        assert not here.session("a").session.subscriptions
        client = await here.stay("a")
        await client.subscribe("good")
        await client.send(raw.unsubscribe(1, "good", "bad"))
        await client.expect_disconnect(0x89)
        assert list(here.session("a").session.subscriptions) == ["good"]


async def test_a_question_mark_is_a_letter_where_no_hook_makes_more_of_it() -> None:
    async with room() as here:
        client = await here.client("a")
        assert await client.subscribe(("a?b", 0)) == [0]
        await client.publish("a?b")
        await client.expect_publish("a?b")


async def test_more_filters_than_a_packet_may_have_end_the_connection() -> None:
    async with room(mqtt={"max_filters": 3}) as here:
        client = await here.client("a")
        assert await client.subscribe("1", "2", "3") == [2, 2, 2]
        await client.send(raw.subscribe(1, *[(str(number), 0) for number in range(4)]))
        await client.expect_disconnect(0x97)


async def test_a_long_subscribe_is_worked_off_in_order_while_others_go_on() -> None:
    asked = 0

    def count(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        nonlocal asked
        asked += 1

    async with room() as here:
        here.node.hooks.add("client.subscribe", count)
        greedy, other = await here.client("greedy"), await here.client("other")
        filters = [f"t/{number}" for number in range(1000)]
        long = raw.subscribe(1, *[(filter, 0) for filter in filters])
        with here.node.scheduler.turn:
            here.read("greedy", long + raw.publish("t/999", b"x") + raw.unsubscribe(2, *filters) + raw.PINGREQ)
        assert asked <= 100  # and not all of them in the turn that brought them
        await other.ping()
        assert (await greedy.expect_type(raw.SUBACK)).reasons == [0] * 1000
        await greedy.expect_publish("t/999", b"x")
        assert (await greedy.expect_type(raw.UNSUBACK)).reasons == [0] * 1000
        await greedy.expect(raw.PINGRESP)
        assert here.node.router.subscriptions == 0


async def test_a_queue_shares_its_filter() -> None:
    async with room() as here:
        members = [await here.client(name, version=4) for name in "ab"]
        for member in members:
            assert await member.subscribe(("$queue/t", 0)) == [0]
        for _ in range(4):
            here.broker.publish("t", b"x")
        for member in members:
            for _ in range(2):
                await member.expect_publish("t", b"x")
            await member.expect_nothing()
        await members[0].send(raw.unsubscribe(2, "$queue/t", version=4))
        await members[0].expect_type(raw.UNSUBACK)
        assert [target.subscriber.client_id for target in here.node.router.targets("$share/$queue/t")] == ["b"]


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


async def test_a_session_that_ends_before_what_it_wants_anew_is_there_leaves_no_route() -> None:
    """The answer to an earlier wish to have it removed comes between the two."""
    hooks = Hooks()
    async with room(hooks=hooks) as here:
        client = await here.stay("a")
        await client.subscribe("anew")

        def remove_meanwhile(
            client: ClientInfo, request: SubscriptionRequest, properties: Properties
        ) -> SubscriptionRequest:
            if request.filter == "last":
                here.node.clients.unsubscribe("a", ["anew"])
            return request

        def end(client: ClientInfo, filter: str) -> None:
            here.session("a").ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))

        hooks.add("client.subscribe", remove_meanwhile)
        hooks.add("session.unsubscribed", end)
        session = here.session("a").ref
        await client.send(
            raw.subscribe(2, ("anew", 1), *[(f"{n}", 1) for n in range(2 * FILTERS_AT_ONCE)], ("last", 1))
        )
        await session.join()
        assert here.node.router.subscriptions == 0


async def test_a_client_that_takes_no_packet_as_large_as_the_suback_is_disconnected() -> None:
    async with room() as here:
        limit = raw.maximum_packet_size(40)
        client = await here.client("a", properties=limit)
        await client.send(raw.subscribe(1, *[(f"t/{number}", 0) for number in range(50)]))
        await client.expect_disconnect(0x95)


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


async def test_suback_and_unsuback_leave_behind_their_commits(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        client, _ = await life.stay("a")
        for packet, answer in (
            (raw.subscribe(1, ("t", 2)), raw.SUBACK),
            (raw.subscribe(2, ("t", 1)), raw.SUBACK),
            (raw.unsubscribe(3, "t"), raw.UNSUBACK),
        ):
            async with life.full(mock_clock):
                await client.send(packet)
                await client.expect_silence()
            await client.expect_type(answer)


async def test_messages_of_a_stream_come_behind_the_suback_that_names_other_filters_too() -> None:
    async with room() as here:
        await here.node.streams.create(StreamConfig(name="s", filters=("s/#",)))
        client = await here.client("a")
        here.broker.publish("s/1", b"before", qos=1)
        await client.send(
            raw.subscribe(1, ("t", 0), ("$stream/s/s/#", 0), properties=raw.user_property("from", "earliest"))
        )
        assert (await client.expect_type(raw.SUBACK)).reasons == [0, 0]
        await client.expect_publish("s/1", b"before")


async def test_a_retained_message_comes_with_the_identifier_of_its_subscription() -> None:
    async with room() as here:
        here.broker.publish("t", b"x", qos=2, retain=True)
        client = await here.client("a")
        await client.subscribe(("+", 1), properties=raw.subscription_identifier(5))
        packet = await client.expect_publish("t", b"x", qos=1)
        assert packet.retain
        assert packet.all(0x0B) == [5]


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
